package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// anonymous is a connection of a publisher without a uuid: what every connection
// of it begins with, then n rows from the time first on.
func anonymous(first int64, n int) []byte {
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 3, Labels: dendro.NewMap(map[string]string{"host": "a"})})
	b = dendro.AppendClockOffset(b, &dendro.ClockOffset{Source: 3, TS: 1, OffsetNs: 2})
	b = dendro.AppendRowsOf(b, 3, 0, dendro.State{}, nil)
	for i := range n {
		ts := first + int64(i)
		b = dendro.AppendRowsOf(b, 3, uint64(i+1), dendro.State{}, []dendro.Row{{Stream: []byte("cpu"), TS: ts, Row: fmt.Appendf(nil, "%d-%d", first, i)}})
	}
	return b
}

// uuids are those of an archive's sources.
func uuids(d *dumped) (all []string) {
	for _, s := range d.Sources {
		all = append(all, s.UUID)
	}
	slices.Sort(all)
	return all
}

// Two streams without a uuid that grow, brought up to date at every boundary and
// inside of frames: what is there at the end is what one go makes, with one
// source for each, whatever came first.
func TestNoUUIDGrows(t *testing.T) {
	a, b := anonymous(1000, 5), anonymous(2000, 5)
	dir := t.TempDir()
	pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, pa, a)
	write(t, pb, b)
	_, want := mustBuild(t, Options{}, pa, pb)
	if len(want.Sources) != 2 {
		t.Fatalf("%d sources in one go, want 2", len(want.Sources))
	}
	var cuts []int
	for _, n := range frameEnds(a) {
		cuts = append(cuts, n, n+3)
	}
	for _, cut := range cuts {
		if cut > len(a) || cut <= dendro.PreambleSize {
			continue
		}
		out := filepath.Join(t.TempDir(), "out.dendro")
		write(t, pa, a[:cut])
		update(t, out, pa)
		write(t, pb, b[:min(len(b), cut+40)])
		update(t, out, pa, pb)
		write(t, pa, a)
		write(t, pb, b)
		r := update(t, out, pa, pb)
		got := dump(t, out)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cut at %d, archive (-in one go +ours):\n%s", cut, diff)
		}
		if len(r.FindingsByKind) != 0 {
			t.Errorf("cut at %d: %v", cut, r.FindingsByKind)
		}
		update(t, out, pb, pa)
		if diff := cmp.Diff(got, dump(t, out)); diff != "" {
			t.Errorf("cut at %d, once more:\n%s", cut, diff)
		}
	}
}

// What is only the beginning of another stream, and turns out to be one of its own
// when the other is not here any more, was never taken for it.
func TestNoUUIDBeginning(t *testing.T) {
	a, b := anonymous(1000, 5), anonymous(2000, 5)
	for _, head := range []int{0, dendro.PreambleSize} { // with a preamble, and without
		for _, n := range []int{1, 2, 3} {
			dir := t.TempDir()
			pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			write(t, pa, a[head:])
			write(t, pb, b[head:frameEnds(b)[n]-5])
			named := func(paths ...string) FollowOptions {
				return FollowOptions{Once: true, Open: func() (*capture.Set, error) {
					return capture.OpenInputs(paths, capture.InputOptions{Protocol: dendro.Name})
				}}
			}
			out := filepath.Join(dir, "out.dendro")
			for range 2 {
				r := must(Follow(context.Background(), Options{Archive: out}, named(pa, pb)))
				if s := len(dump(t, out).Sources); s != 1 || n > 1 && len(r.Unchecked) != 1 {
					t.Errorf("cut behind frame %d: %d sources of one stream and its beginning, notes %v", n, s, r.Unchecked)
				}
			}
			write(t, pb, b[head:])
			r := must(Follow(context.Background(), Options{Archive: out}, named(pb)))
			set := must(capture.OpenInputs([]string{pa, pb}, capture.InputOptions{Protocol: dendro.Name}))
			one := filepath.Join(dir, "one.dendro")
			want := must(Build(set, Options{Archive: one}))
			if diff := cmp.Diff(dump(t, one), dump(t, out)); diff != "" {
				t.Errorf("from %d, cut behind frame %d: archive (-in one go +ours):\n%s", head, n, diff)
			}
			if diff := cmp.Diff(want.FindingsByKind, r.FindingsByKind); diff != "" {
				t.Errorf("from %d, cut behind frame %d: findings (-in one go +ours): %s", head, n, diff)
			}
		}
	}
}

// A publisher without a uuid that reconnects, recorded and brought up to date
// after each connection, has one source for each connection, as in one go.
func TestNoUUIDReconnects(t *testing.T) {
	rec, out := filepath.Join(t.TempDir(), "rec"), filepath.Join(t.TempDir(), "out.dendro")
	for i := range 3 {
		record(t, rec, 0, i, anonymous(int64(1000*i), 20))
		update(t, out, rec)
		_, want := mustBuild(t, Options{}, rec)
		if diff := cmp.Diff(want, dump(t, out)); diff != "" || len(want.Sources) != i+1 {
			t.Errorf("%d sources after connection %d, archive (-in one go +ours):\n%s", len(want.Sources), i+1, diff)
		}
	}
}

// While a connection is followed its source appears with its first row, and stays
// the one that one go makes.
func TestNoUUIDFollowed(t *testing.T) {
	rec := t.TempDir()
	d, err := capture.Create(rec, capture.Options{Tool: "test", RotateBytes: 200})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	b := anonymous(1000, 8)
	out := filepath.Join(t.TempDir(), "out.dendro")
	for at, i := 0, 0; at < len(b); i++ {
		n := min(len(b)-at, 37)
		if _, err := w.Write(b[at:at+n], capture.Instant{Wall: int64(i), Mono: int64(i)}); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		at += n
		if i == 0 {
			continue
		}
		if _, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(rec), Once: true}); err != nil {
			t.Fatal(err)
		}
		if n := len(dump(t, out).Sources); n > 1 || n == 0 && at > frameEnds(b)[5] {
			t.Fatalf("%d sources after %d bytes", n, at)
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	update(t, out, rec)
	_, want := mustBuild(t, Options{}, rec)
	if diff := cmp.Diff(want, dump(t, out)); diff != "" {
		t.Errorf("archive (-in one go +ours):\n%s", diff)
	}
}

// With its first files gone a connection has the sources that it had: the
// sidecars know how it began. So a copy of all its bytes is the same one.
func TestNoUUIDPruned(t *testing.T) {
	b := anonymous(1000, 60)
	dir := t.TempDir()
	rec, raw := filepath.Join(dir, "rec"), filepath.Join(dir, "raw.stream")
	record(t, rec, 500, 0, b)
	write(t, raw, b)
	_, whole := mustBuild(t, Options{}, rec)
	followed := filepath.Join(dir, "followed.dendro")
	update(t, followed, rec)
	files := must(filepath.Glob(filepath.Join(rec, "*.cap")))
	for _, gone := range files[:2] {
		for _, x := range must(filepath.Glob(gone[:len(gone)-len("cap")] + "*")) {
			if err := os.Remove(x); err != nil {
				t.Fatal(err)
			}
		}
		r, pruned := mustBuild(t, Options{}, rec)
		if diff := cmp.Diff(uuids(whole), uuids(pruned)); diff != "" || r.FindingsByKind[KindUnidentified] != 0 {
			t.Errorf("without %s: sources (-whole +pruned): %s%v", filepath.Base(gone), diff, r.FindingsByKind)
		}
		r, both := mustBuild(t, Options{}, rec, raw)
		if diff := cmp.Diff(whole.Sources, both.Sources); diff != "" || r.FindingsByKind[KindAlike] != 0 {
			t.Errorf("without %s, with a copy (-whole +both): %s%v", filepath.Base(gone), diff, r.FindingsByKind)
		}
	}
	update(t, followed, rec)
	if diff := cmp.Diff(whole.Sources, dump(t, followed).Sources); diff != "" {
		t.Errorf("brought up to date after pruning: %s", diff)
	}

	// Without what the sidecars know the connection's name must do, and that is
	// said; what an earlier run knew goes on.
	for _, name := range must(filepath.Glob(filepath.Join(rec, "*.json"))) {
		s := must(sidecar.Parse(must(os.ReadFile(name))))
		if s.Context == nil {
			continue
		}
		c := s.Context.Wire()
		for i := range c.Entries {
			c.Entries[i].Values = slices.DeleteFunc(c.Entries[i].Values, func(v wire.ContextValue) bool {
				return v.Name == dendro.ValueOpening || v.Name == dendro.ValueOpeningFrames || v.Name == dendro.ValueOpeningWhole
			})
		}
		s.Context = sidecar.ContextOf(c)
		write(t, name, must(json.Marshal(s)))
	}
	r, nameless := mustBuild(t, Options{}, rec)
	if r.FindingsByKind[KindUnidentified] != 1 || r.Verdict != Findings || len(nameless.Sources) != 1 || slices.Equal(uuids(nameless), uuids(whole)) {
		t.Errorf("without the opening: %v, %v", r.FindingsByKind, uuids(nameless))
	}
	if r := update(t, followed, rec); r.FindingsByKind[KindUnidentified] != 0 {
		t.Errorf("brought up to date: %v", r.FindingsByKind)
	}
	if diff := cmp.Diff(whole.Sources, dump(t, followed).Sources); diff != "" {
		t.Errorf("brought up to date without the opening: %s", diff)
	}
}

// Two connections that begin alike up to their first row are one source, which is
// said where they differ later, in any order and in any number of runs.
func TestNoUUIDAlike(t *testing.T) {
	a := anonymous(1000, 5)
	b := append(bytes.Clone(a), dendro.AppendRowsOf(nil, 3, 9, dendro.State{}, []dendro.Row{{Stream: []byte("cpu"), TS: 3000, Row: []byte("b")}})...)
	a = append(a, dendro.AppendRowsOf(nil, 3, 9, dendro.State{}, []dendro.Row{{Stream: []byte("cpu"), TS: 2000, Row: []byte("a")}})...)
	dir := t.TempDir()
	pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, pa, a)
	write(t, pb, b)
	r, want := mustBuild(t, Options{}, pa, pb)
	_, turned := mustBuild(t, Options{}, pb, pa)
	if len(want.Sources) != 1 || r.FindingsByKind[KindAlike] != 1 || r.Verdict != Findings {
		t.Errorf("%d sources, %v", len(want.Sources), r.FindingsByKind)
	}
	if diff := cmp.Diff(want, turned); diff != "" {
		t.Errorf("turned round:\n%s", diff)
	}
	out := filepath.Join(dir, "out.dendro")
	update(t, out, pb)
	for range 2 {
		if r := update(t, out, pa, pb); r.FindingsByKind[KindAlike] != 1 {
			t.Errorf("brought up to date: %v", r.FindingsByKind)
		}
		if diff := cmp.Diff(want, dump(t, out)); diff != "" {
			t.Errorf("brought up to date:\n%s", diff)
		}
	}
}
