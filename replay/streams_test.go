package replay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wiretape/replay/archive"
)

// update brings an archive up to date with inputs.
func update(t *testing.T, out string, paths ...string) *Report {
	t.Helper()
	r, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(paths...), Once: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// place writes a stream, or the first n bytes of it, as the file name in a new
// folder.
func place(t *testing.T, name, from string, n int) string {
	t.Helper()
	b := must(os.ReadFile(stream(from)))
	if n > 0 {
		b = b[:n]
	}
	path := filepath.Join(t.TempDir(), name)
	write(t, path, b)
	return path
}

// A raw stream is known by its bytes: another one under a name that an earlier
// run applied loses nothing, and the same one under another name is not applied
// again.
func TestUpdateStreamsUnderOneName(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.dendro")
	first, second := place(t, "saved.bin", "reconnect/c1", 0), place(t, "saved.bin", "reconnect/c2", 0)
	if r := update(t, out, first); r.FindingsByKind[KindNameReused] != 0 {
		t.Errorf("first run: %v", r.FindingsByKind)
	}
	frames := update(t, out, first).Counts.Frames
	r := update(t, out, second)
	if r.FindingsByKind[KindNameReused] != 1 || r.Verdict != Findings {
		t.Errorf("verdict %s, %v", r.Verdict, r.FindingsByKind)
	}
	if diff := cmp.Diff(golden(t, "dump/reconnect"), dump(t, out)); diff != "" {
		t.Errorf("archive (-publisher +ours):\n%s", diff)
	}
	both := r.Counts.Frames
	if both <= frames {
		t.Errorf("%d frames, %d before: the second stream was not read", both, frames)
	}
	// Both again, the names exchanged, one of them twice: nothing is new.
	for _, in := range [][]string{{first}, {second}, {place(t, "other.bin", "reconnect/c1", 0), second}} {
		if r := update(t, out, in...); r.Counts.Frames != both || r.FindingsByKind[KindNameReused] != 1 {
			t.Errorf("%v: %d frames, %d before; %v", in, r.Counts.Frames, both, r.FindingsByKind)
		}
	}
	if diff := cmp.Diff(golden(t, "dump/reconnect"), dump(t, out)); diff != "" {
		t.Errorf("archive after more runs (-publisher +ours):\n%s", diff)
	}
}

// Two streams of one name in one run, then each alone: nothing is applied again.
func TestUpdateTwoStreamsOfOneName(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.dendro")
	first, second := place(t, "saved.bin", "reconnect/c1", 0), place(t, "saved.bin", "reconnect/c2", 0)
	n := update(t, out, first, second).Counts.Frames
	for _, in := range [][]string{{first}, {second}, {second, first}} {
		if r := update(t, out, in...); r.Counts.Frames != n || len(r.FindingsByKind) != 0 {
			t.Errorf("%v: %d frames, %d before; %v", in, r.Counts.Frames, n, r.FindingsByKind)
		}
	}
	if diff := cmp.Diff(golden(t, "dump/reconnect"), dump(t, out)); diff != "" {
		t.Errorf("archive (-publisher +ours):\n%s", diff)
	}
}

// A raw stream that has grown goes on where it was cut, also inside a frame, and
// what was found at its end before is no finding any more.
func TestUpdateStreamThatGrew(t *testing.T) {
	whole := len(must(os.ReadFile(stream("real/live"))))
	want, _ := mustBuild(t, Options{}, stream("real/live"))
	for _, n := range []int{whole / 3, whole / 2, whole - 1} {
		out := filepath.Join(t.TempDir(), "out.dendro")
		path := place(t, "saved.bin", "real/live", n)
		update(t, out, path)
		again := update(t, out, path)
		if once := update(t, out, path); once.FindingsByKind["cut"] > 1 || cmp.Diff(again.FindingsByKind, once.FindingsByKind) != "" {
			t.Errorf("cut at %d, the same again: %v", n, once.FindingsByKind)
		}
		write(t, path, must(os.ReadFile(stream("real/live"))))
		r := update(t, out, path)
		if diff := cmp.Diff(golden(t, "dump/real/live"), dump(t, out)); diff != "" {
			t.Errorf("cut at %d, archive (-crate +ours):\n%s", n, diff)
		}
		if diff := cmp.Diff(want.FindingsByKind, r.FindingsByKind); diff != "" {
			t.Errorf("cut at %d, findings (-in one go +ours): %s", n, diff)
		}
		if diff := cmp.Diff(want.Counts, r.Counts); diff != "" {
			t.Errorf("cut at %d, counts (-in one go +ours): %s", n, diff)
		}
	}
}

// The progress of an earlier version has no hashes: nothing is skipped by a
// name alone.
func TestUpdateProgressWithoutHashes(t *testing.T) {
	for _, name := range []string{"reconnect/c2", "reconnect/c1"} {
		out := filepath.Join(t.TempDir(), "out.dendro")
		update(t, out, place(t, "saved.bin", "reconnect/c1", 0))
		live, _, err := archive.OpenLive(out, archive.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		state := must(live.State(stateName))
		i := strings.Index(string(state), `,"raw_streams"`)
		if i < 0 {
			t.Fatalf("no hashes in %s", state)
		}
		if err := live.Commit(nil, map[string][]byte{stateName: append(state[:i:i], '}')}); err != nil {
			t.Fatal(err)
		}
		if err := live.Close(); err != nil {
			t.Fatal(err)
		}
		r := update(t, out, place(t, "saved.bin", name, 0))
		if len(r.FindingsByKind) != 0 || len(r.Unchecked) != 1 {
			t.Errorf("%s: findings %v, notes %v", name, r.FindingsByKind, r.Unchecked)
		}
		want := golden(t, "dump/reconnect")
		if name == "reconnect/c1" {
			_, want = mustBuild(t, Options{}, stream(name))
		}
		if diff := cmp.Diff(want, dump(t, out)); diff != "" {
			t.Errorf("%s: archive (-want +ours):\n%s", name, diff)
		}
	}
}

// A raw stream that another tool is still writing is followed to its end; when
// other bytes come under its name they are another connection.
func TestFollowStreamThatGrows(t *testing.T) {
	path, out := filepath.Join(t.TempDir(), "saved.bin"), filepath.Join(t.TempDir(), "out.dendro")
	first := must(os.ReadFile(stream("reconnect/c1")))
	write(t, path, first[:len(first)/3])
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waiting := make(chan Status, 1)
	events := make(chan struct{}, 1)
	type result struct {
		r   *Report
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(path), Events: events, Status: func(s Status) {
			if s.Waiting {
				select {
				case <-waiting:
				default:
				}
				waiting <- s
			}
		}})
		done <- result{r, err}
	}()
	until := func(what string, ok func(Status) bool) {
		t.Helper()
		for end := time.After(20 * time.Second); ; {
			select {
			case events <- struct{}{}:
			default:
			}
			select {
			case s := <-waiting:
				if ok(s) {
					return
				}
			case <-end:
				t.Fatal(what)
			}
		}
	}
	until("the first bytes", func(s Status) bool { return s.Bytes > 0 })
	f := must(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))
	if _, err := f.Write(first[len(first)/3:]); err != nil {
		t.Fatal(err)
	}
	until("the rest", func(s Status) bool { return s.Bytes == int64(len(first)) })
	if err := errors.Join(f.Close(), os.Rename(place(t, "saved.bin", "reconnect/c2", 0), path)); err != nil {
		t.Fatal(err)
	}
	until("the other stream", func(s Status) bool { return s.Bytes > int64(len(first)) })
	cancel()
	res := <-done
	if res.err != nil {
		t.Fatal(res.err)
	}
	if n := res.r.FindingsByKind[KindNameReused]; n != 1 || res.r.FindingsByKind["cut"] != 0 {
		t.Errorf("findings %v", res.r.FindingsByKind)
	}
	if diff := cmp.Diff(golden(t, "dump/reconnect"), dump(t, out)); diff != "" {
		t.Errorf("archive (-publisher +ours):\n%s", diff)
	}
}

// TestUpdateTotals: all numbers of an archive that is added to are of all runs,
// and what came with this run is said apart.
func TestUpdateTotals(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.dendro")
	first := update(t, out, stream("reconnect/c1"))
	second := update(t, out, stream("reconnect/c2"))
	size := func(name string) int64 { return int64(len(must(os.ReadFile(stream(name))))) }
	one, two := size("reconnect/c1"), size("reconnect/c2")
	if c := first.Counts; c.Connections != 1 || c.Bytes != one {
		t.Errorf("first: %+v", c)
	}
	if c := second.Counts; c.Connections != 2 || c.Bytes != one+two || c.Frames <= first.Counts.Frames {
		t.Errorf("second: %+v", c)
	}
	if n := second.New; n == nil || n.Connections != 1 || n.Bytes != two || n.Frames != second.Counts.Frames-first.Counts.Frames ||
		n.Segments != second.Counts.Segments-first.Counts.Segments {
		t.Errorf("new: %+v", n)
	}
	again := update(t, out, stream("reconnect/c2"))
	if n := again.New; n == nil || *n != (ReportCounts{}) || again.Counts != second.Counts {
		t.Errorf("nothing new: %+v\n%+v\n%+v", n, again.Counts, second.Counts)
	}
	var text strings.Builder
	if err := again.Text(&text, out); err != nil || !strings.Contains(text.String(), "of 2 connections\n  new       0 B in 0 frames") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// A stream that comes beside a copy of it, whole or of its beginning, under a name
// before or behind its own, goes on under its name: nothing was reused.
func TestUpdateStreamBesideACopy(t *testing.T) {
	whole := must(os.ReadFile(stream("real/live")))
	ends := frameEnds(whole)
	cut, mid := whole[:len(whole)-30], whole[:ends[len(ends)/2]]
	for _, x := range []struct {
		before, later map[string][]byte
	}{
		{map[string][]byte{"b": whole}, map[string][]byte{"a": whole}},
		{map[string][]byte{"b": whole}, map[string][]byte{"a": mid}},
		{map[string][]byte{"b": mid}, map[string][]byte{"a": whole}},
		{map[string][]byte{"b": cut, "c": whole}, map[string][]byte{"a": mid}},
		{map[string][]byte{"b": cut, "c": whole}, map[string][]byte{"z": mid}},
		{map[string][]byte{"one/b": mid, "two/b": whole}, map[string][]byte{"a": cut}},
	} {
		dir := t.TempDir()
		var before, all []string
		for name, b := range x.before {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), b)
			before = append(before, filepath.Join(dir, name))
		}
		for name, b := range x.later {
			write(t, filepath.Join(dir, name), b)
			all = append(all, filepath.Join(dir, name))
		}
		all = append(all, before...)
		slices.Sort(before)
		slices.Sort(all)
		out := filepath.Join(dir, "out.dendro")
		update(t, out, before...)
		// Any order, and again: the second time nothing is new.
		first := update(t, out, all...)
		slices.Reverse(all)
		again := update(t, out, all...)
		want, _ := mustBuild(t, Options{}, all...)
		for _, r := range []*Report{first, again} {
			if r.FindingsByKind[KindNameReused] != 0 || r.Counts.Bytes != want.Counts.Bytes {
				t.Errorf("%v then %v: %v, %d bytes, want %d", before, all, r.FindingsByKind, r.Counts.Bytes, want.Counts.Bytes)
			}
		}
		if again.Counts != first.Counts {
			t.Errorf("%v then %v: counts again %+v, before %+v", before, all, again.Counts, first.Counts)
		}
		if diff := cmp.Diff(golden(t, "dump/real/live"), dump(t, out)); diff != "" {
			t.Errorf("%v then %v (-crate +ours):\n%s", before, all, diff)
		}
	}
}
