package replay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

// manySources is a stream whose publisher names n sources.
func manySources(n int) []byte {
	b := dendro.AppendPreamble(nil)
	for i := range n {
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: uint32(i), HasUUID: true,
			UUID: fmt.Appendf(nil, "%08x-0000-4000-8000-000000000000", i)})
	}
	return b
}

// Each frame whose ordinal can't be read is a loss of every source. A stream of
// a few hundred kilobytes must not make as many records as sources times frames,
// and nothing of it goes uncounted.
func TestLossesOfEverySourceAreBounded(t *testing.T) {
	const sources, lost = 1_000, 3_000
	b := manySources(sources)
	for range lost {
		b = append(b, 2, 0, 0, 0, dendro.KindIndex, 0)
	}
	// One more source, named behind all of that, has lost nothing.
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: sources, HasUUID: true, UUID: []byte("ffffffff-0000-4000-8000-000000000000")})
	path := filepath.Join(t.TempDir(), "many.stream")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := mustBuild(t, Options{}, path)
	if len(r.Source) != sources+1 || r.Counts.FramesRefused != lost {
		t.Fatalf("%d sources and %d refused frames, want %d and %d", len(r.Source), r.Counts.FramesRefused, sources+1, lost)
	}
	listed := 0
	for i, s := range r.Source {
		listed += len(s.Losses)
		want := int64(lost)
		if i == sources {
			want = 0
		}
		if n := int64(len(s.Losses)) + s.LossesOmitted; n != want {
			t.Fatalf("source %s: %d losses, want %d", s.UUID, n, want)
		}
	}
	if listed > maxListed {
		t.Errorf("%d losses are listed, the limit is %d", listed, maxListed)
	}
}

// Equal bytes that are set aside again and again get a note each.
func TestEqualSegmentsSetAside(t *testing.T) {
	const n = 40
	b := manySources(1)
	for i := range n {
		b = dendro.AppendSegment(b, &dendro.Segment{Stream: []byte("s"), Rows: 1, FirstTS: int64(i), LastTS: int64(i), Bytes: []byte("junk")})
	}
	path := filepath.Join(t.TempDir(), "equal.stream")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, out, err := build(t, Options{Check: segment.DepthRows}, path)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join(out+quarantineSuffix, "segment-*.json"))
	if err != nil || len(notes) != n || r.Counts.SegmentsQuarantined != n {
		t.Errorf("%d notes, %d set aside, %v; want %d", len(notes), r.Counts.SegmentsQuarantined, err, n)
	}
}

// A part is never told as the whole.
func TestTextStatesTheSelection(t *testing.T) {
	from := int64(1_700_001_600_000_000_000)
	opt := Options{}
	opt.Select.From = &from
	r, out, err := build(t, opt, stream("real/small"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Text(&text, out); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); strings.Contains(got, "rebuilt whole") || !strings.Contains(got, "  only      from 2023-11-14T22:40:00Z") {
		t.Errorf("the selection is not told:\n%s", got)
	}
}

// A rebuild that fails says so in its report too, however early.
func TestFailedReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{file, filepath.Join(file, "x"), filepath.Join(file+"-no", "x")} {
		r, _, err := build(t, Options{Archive: out}, stream("real/small"))
		if err == nil || r.Verdict != Failed || r.ExitCode() != 1 || r.Error == "" {
			t.Errorf("%s: %v, verdict %q", out, err, r.Verdict)
		}
	}
}

// What a rebuild was told to refuse is named with its place, in the error too.
func TestRefusedSegmentHasItsPlace(t *testing.T) {
	b := manySources(1)
	at := int64(len(b))
	b = dendro.AppendSegment(b, &dendro.Segment{Stream: []byte("s"), Rows: 1, Bytes: []byte("junk")})
	path := filepath.Join(t.TempDir(), "bad.stream")
	write(t, path, b)
	_, out, one := build(t, Options{Check: segment.DepthRows, OnBadSegment: Refuse}, path)
	_, two := Follow(t.Context(), Options{Archive: out, OnBadSegment: Refuse}, FollowOptions{Open: opener(path), Once: true})
	for _, err := range []error{one, two} {
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
		if f := refused.Finding; f.Connection != "bad.stream" || f.Offset != at || !strings.Contains(err.Error(), `stream "s"`) {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
