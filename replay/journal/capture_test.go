package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/fixture"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// recordDir writes a scenario as a relay records it: pairs of connections in
// files of rotate bytes.
func recordDir(t testing.TB, rotate int64, scenario string, connections int) (dir string) {
	t.Helper()
	var streams [][]byte
	for _, name := range all(scenario, connections) {
		streams = append(streams, fixture.Read(t, filepath.Join(recorded, name+".bin.gz")))
	}
	return recordPairs(t, rotate, streams...)
}

// recordPairs writes streams, downstream and upstream by turns, the bytes
// arriving in odd pieces.
func recordPairs(t testing.TB, rotate int64, streams ...[]byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "capture")
	d, err := capture.Create(dir, capture.Options{RotateBytes: rotate, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	at := capture.Instant{Wall: 1_700_000_000e9, Mono: 1e9}
	for n := 0; n < len(streams); n += 2 {
		info := func(d wire.Direction) capture.ConnInfo {
			return capture.ConnInfo{Endpoint: fmt.Sprintf("tcp://primary-%d", n/2), Direction: d}
		}
		down, up, err := d.ConnectPair(info(wire.Downstream), info(wire.Upstream))
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range []*capture.Writer{down, up} {
			b := streams[n+i]
			for len(b) > 0 {
				at.Wall += 1e6
				at.Mono += 1e6
				p := b[:min(len(b), 1777)]
				b = b[len(p):]
				if _, err := w.Write(p, at); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A capture directory, its files cut by rotation, gives what the streams give;
// without its sidecars too, only the pairs are found by their signatures then.
func TestCaptureDirectory(t *testing.T) {
	for _, c := range []struct {
		scenario    string
		connections int
	}{{"s11-journal", 2}, {"s4x-gap", 3}} {
		want, w := build(t, streams(t, all(c.scenario, c.connections)...)...)
		dir := recordDir(t, 1<<10, c.scenario, c.connections)
		names, err := filepath.Glob(filepath.Join(dir, "*.cap"))
		if err != nil || len(names) < 10 {
			t.Fatalf("%d files, %v", len(names), err)
		}
		for _, sidecars := range []bool{true, false} {
			if !sidecars {
				for _, name := range names {
					if err := os.Remove(strings.TrimSuffix(name, ".cap") + ".json"); err != nil {
						t.Fatal(err)
					}
				}
			}
			out, r := build(t, dir)
			if sidecars {
				clean(t, r)
			}
			for _, x := range r.Connections {
				if x.PairedBy == "" || sidecars != (x.PairedBy == "recorded together") {
					t.Errorf("sidecars %v: paired by %q", sidecars, x.PairedBy)
				}
			}
			if len(r.Lineages) != 1 || len(r.Lineages[0].Missing) > 0 || len(r.Lineages[0].Files) != len(w.Lineages[0].Files) {
				t.Fatalf("sidecars %v: %+v", sidecars, r.Lineages)
			}
			for _, f := range w.Lineages[0].Files {
				if !bytes.Equal(read(t, want, f.File), read(t, out, f.File)) {
					t.Errorf("%s differs", f.File)
				}
			}
			if g, x := r.proofOf(0, "chain"), w.proofOf(0, "chain"); g.Proved != x.Proved {
				t.Errorf("chain: %+v, want %+v", g, x)
			}
		}
	}
}

// Files of the middle alone: entries whose segment's beginning is missing are
// kept, and nothing is proved of their chain before the next anchor.
func TestFilesFromTheMiddle(t *testing.T) {
	dir := recordDir(t, 4<<10, "s11-journal", 2)
	names, err := filepath.Glob(filepath.Join(dir, "*.00000002.cap"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	out, r := build(t, names[0])
	g := r.Lineages[0]
	if len(g.Files) != 1 || g.Files[0].Kind != "entries" || g.Files[0].Start < 10 || g.Missing[0].First != 1 {
		t.Fatalf("%+v %+v", g.Files, g.Missing)
	}
	whole, _ := build(t, streams(t, all("s11-journal", 2)...)...)
	if !bytes.Contains(read(t, whole, "lineage-1", "j.journal.000001"), read(t, out, g.Files[0].File)) {
		t.Error("the entries are not those of the journal")
	}
	// A file in the middle that is gone is a hole, and what is behind it goes on.
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	_, r = build(t, dir)
	if g := r.Lineages[0]; r.Verdict != Findings || len(g.Missing) != 1 || g.Missing[0].First < 10 || *g.LastSequence != 542 {
		t.Errorf("%s %+v", r.Verdict, g.Missing)
	}
	if c := r.proofOf(0, "chain"); c.Failed != 0 || c.Proved == 0 {
		t.Errorf("%+v", c)
	}
}

// A file that can't be opened is a hole with its place and the reason; what the
// others hold is in the journal.
func TestUnreadableFile(t *testing.T) {
	dir := recordDir(t, 4000, "s1-main", 2)
	files, err := filepath.Glob(filepath.Join(dir, "c00000001-*.cap"))
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	bad := files[2]
	set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{FS: &vfs.Fault{FS: vfs.OS, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind == "open" && op.Name == bad {
			return vfs.Verdict{Err: syscall.EACCES}
		}
		return vfs.Verdict{}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	r, err := Build(set, out, Options{})
	if err != nil || r.Verdict != Findings {
		t.Fatal(r.Verdict, err)
	}
	f := findingAt(r, capture.KindUnreadable)
	if f.File != filepath.Base(bad) || f.Offset < 4000 || !strings.Contains(f.Message, "permission denied") || r.FindingsByKind[KindMissing] == 0 || r.Lineages[0].Entries == 0 {
		t.Errorf("%+v, %s", f, kinds(r))
	}
}
