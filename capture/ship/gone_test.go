package ship_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/ship"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// Guards: shipping said that everything sealed was there, exit code 0, while files
// that were sealed and never shipped had gone from the directory.
func TestSealedFilesThatAreGone(t *testing.T) {
	matching := func(dir, pattern string) []string {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		return names
	}
	remove := func(names []string) {
		for _, n := range names {
			if err := os.Remove(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		how  string
		do   func(dir string)
		gone int
	}{
		{"nothing", func(string) {}, 0},
		{"the bytes", func(dir string) { remove(matching(dir, "c00000001-*.00000002.cap")) }, 1},
		{"all of a file", func(dir string) { remove(matching(dir, "c00000001-*.00000002.*")) }, 1},
		{"the last file", func(dir string) { remove(matching(dir, "c00000002-*.00000003.*")) }, 1},
		{"a connection", func(dir string) { remove(matching(dir, "c00000001-*")) }, 3},
		{"a link that leads nowhere", func(dir string) {
			name := matching(dir, "c00000001-*.00000001.cap")
			remove(name)
			if err := os.Symlink("/nowhere", name[0]); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"pruned", func(dir string) {
			if _, err := capture.Prune(dir, capture.Retention{KeepFiles: 2, Unshipped: true}, capture.Options{}); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		dir, to := filepath.Join(t.TempDir(), "rec"), t.TempDir()
		d, w := recording(t, vfs.OS, dir)
		c.do(dir)
		s := shipper(t, vfs.OS, dir, folder(t, vfs.OS, to), ship.Options{})
		rep := &ship.Report{}
		if err := s.Pass(context.Background(), rep); err != nil {
			t.Fatal(c.how, err)
		}
		n := 0
		for _, f := range rep.Findings {
			if f.Kind != ship.KindMissingHere || !strings.HasSuffix(f.File, ".cap") {
				t.Errorf("%s: found %+v", c.how, f)
			}
			n++
		}
		if n != c.gone || rep.Unshipped == nil || *rep.Unshipped != int64(c.gone) {
			t.Errorf("%s: %d found, %+v", c.how, n, rep)
		}
		// What was shipped, and went then, is no loss.
		var shipped []string
		for _, name := range matching(dir, "*.cap") {
			if st, err := os.Stat(name); err == nil && st.Size() > 0 {
				shipped = append(shipped, name)
			}
		}
		remove(shipped)
		again := &ship.Report{}
		if err := shipper(t, vfs.OS, dir, folder(t, vfs.OS, to), ship.Options{}).Pass(context.Background(), again); err != nil || len(again.Findings) != c.gone {
			t.Errorf("%s, shipped and gone: %v, %+v", c.how, err, again.Findings)
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that retention deletes while the shipper looks is none that is gone.
func TestPrunedWhileShipping(t *testing.T) {
	var found []wire.Finding
	for at := 1; ; at++ {
		mem, dir, to := vfs.NewMem(), "/rec", "/to"
		d, w := recording(t, mem, dir)
		fault := &vfs.Fault{FS: mem}
		fault.Decide = func(op vfs.Op) vfs.Verdict {
			if op.N == at {
				if _, err := capture.Prune(dir, capture.Retention{KeepFiles: 3, Unshipped: true}, capture.Options{FS: mem}); err != nil {
					t.Error(err)
				}
			}
			return vfs.Verdict{}
		}
		rep := &ship.Report{}
		if err := shipper(t, fault, dir, folder(t, mem, to), ship.Options{}).Pass(context.Background(), rep); err != nil {
			t.Fatal(at, err)
		}
		found = append(found, rep.Findings...)
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if fault.Count() < at {
			break
		}
	}
	for _, f := range found {
		if f.Kind == ship.KindMissingHere {
			t.Errorf("found %+v", f)
		}
	}
}
