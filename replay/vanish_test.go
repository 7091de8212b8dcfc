package replay

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// prunedAt gives captures whose files, by patterns, go when the file named by at
// is opened for the nth time: as retention lets them go, beside a reader.
func prunedAt(t *testing.T, rec, at string, nth int, patterns ...string) func() (*capture.Set, error) {
	t.Helper()
	var once sync.Once
	seen := 0
	fsys := &vfs.Fault{FS: vfs.OS, Decide: func(op vfs.Op) vfs.Verdict {
		if hit, _ := filepath.Match(at, filepath.Base(op.Name)); op.Kind == "open" && hit {
			seen++
		}
		if seen < nth {
			return vfs.Verdict{}
		}
		once.Do(func() {
			for _, p := range patterns {
				names, _ := filepath.Glob(filepath.Join(rec, p))
				for _, n := range names {
					if filepath.Ext(n) == ".cap" {
						if err := capture.Append(vfs.OS, rec, false, capture.Entry{Event: capture.EventPrune, File: filepath.Base(n)}); err != nil {
							t.Error(err)
						}
					}
					if err := os.Remove(n); err != nil {
						t.Error(err)
					}
				}
			}
		})
		return vfs.Verdict{}
	}}
	return func() (*capture.Set, error) {
		return capture.OpenInputs([]string{rec}, capture.InputOptions{FS: fsys})
	}
}

// Guards: retention beside a rebuild, or a follower, ended it with "no such file or
// directory" and an empty archive. What went is a loss, and all else is there: the
// same as where it had gone before.
func TestRetentionBesideAReader(t *testing.T) {
	for _, way := range []string{"build", "update", "follow"} {
		for n, nth := 1, 1; n <= 3; nth++ {
			dir := t.TempDir()
			rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
			record(t, rec, 9000, 0, must(os.ReadFile(stream("real/small"))))
			open := prunedAt(t, rec, "*"+numbered(n)[1:10]+".cap", nth, numbered(n))
			var r *Report
			switch way {
			case "build":
				set, err := open()
				if err != nil {
					t.Fatal(err)
				}
				if r, err = Build(set, Options{Archive: out}); err != nil {
					t.Fatalf("%s, file %d at its opening %d: %v", way, n, nth, err)
				}
			default:
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				var err error
				r, err = Follow(ctx, Options{Archive: out}, FollowOptions{Open: open, Once: way == "update", HolePatience: time.Millisecond,
					Status: func(s Status) {
						if s.Waiting {
							stop()
						}
					}})
				if err != nil {
					t.Fatalf("%s, file %d at its opening %d: %v", way, n, nth, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(rec, numbered(n))); len(left) > 0 {
				if nth == 1 {
					t.Fatalf("%s, file %d did not go", way, n)
				}
				n, nth = n+1, 0 // it is not opened so often
				continue
			}
			_, want := mustBuild(t, Options{}, rec)
			got := dump(t, out)
			if len(got.Sources) != len(want.Sources) {
				t.Fatalf("%s, file %d at its opening %d: %d sources, want %d", way, n, nth, len(got.Sources), len(want.Sources))
			}
			for i := range got.Sources {
				if len(got.Sources[i].WAL) < len(want.Sources[i].WAL) || len(got.Sources[i].Segments) < len(want.Sources[i].Segments) || got.Sources[i].Complete {
					t.Errorf("%s, file %d at its opening %d: %d rows and %d segments, want %d and %d", way, n, nth, len(got.Sources[i].WAL), len(got.Sources[i].Segments),
						len(want.Sources[i].WAL), len(want.Sources[i].Segments))
				}
			}
			if r.FindingsByKind[capture.KindPruned] == 0 || r.FindingsByKind[capture.KindUnreadable] > 0 {
				t.Errorf("%s, file %d at its opening %d: found %v", way, n, nth, r.FindingsByKind)
			}
		}
	}
}

// All of a connection goes while a follower is in the middle of it.
func TestConnectionVanishesUnderAFollower(t *testing.T) {
	for _, once := range []bool{true, false} {
		dir := t.TempDir()
		rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
		record(t, rec, 9000, 0, must(os.ReadFile(stream("real/small"))))
		record(t, rec, 0, 0, must(os.ReadFile(stream("real/live"))))
		open := prunedAt(t, rec, "c00000001-*.00000003.cap", 1, "c00000001-*")
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		r, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: open, Once: once, HolePatience: time.Millisecond,
			Status: func(s Status) {
				if s.Waiting {
					stop()
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		want := golden(t, "dump/real/live").Sources[0]
		i := slices.IndexFunc(dump(t, out).Sources, func(s dumpedSource) bool { return s.UUID == want.UUID })
		if i < 0 || len(dump(t, out).Sources[i].WAL) != len(want.WAL) {
			t.Errorf("once %v: the other connection is not there", once)
		}
		lost := 0
		for _, s := range r.Source {
			for _, l := range s.Losses {
				if l.Kind == capture.KindPruned && l.Bytes > 0 && l.Offset > 0 {
					lost++
				}
			}
		}
		if lost != 1 || r.FindingsByKind[capture.KindPruned] == 0 {
			t.Errorf("once %v: %d losses, found %v", once, lost, r.FindingsByKind)
		}
	}
}

// A file that may not be read is waited for, named, and then passed over.
func TestFollowerPassesWhatItMayNotRead(t *testing.T) {
	dir := t.TempDir()
	rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
	record(t, rec, 9000, 0, must(os.ReadFile(stream("real/small"))))
	fsys := &vfs.Fault{FS: vfs.OS, Decide: func(op vfs.Op) vfs.Verdict {
		if hit, _ := filepath.Match("*.00000002.cap", filepath.Base(op.Name)); op.Kind == "open" && hit {
			return vfs.Verdict{Err: syscall.EACCES}
		}
		return vfs.Verdict{}
	}}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	var stuck []wire.Finding
	r, err := Follow(ctx, Options{Archive: out}, FollowOptions{HolePatience: 700 * time.Millisecond,
		Open: func() (*capture.Set, error) {
			return capture.OpenInputs([]string{rec}, capture.InputOptions{FS: fsys})
		},
		Status: func(s Status) {
			if s.Stuck != nil {
				stuck = append(stuck, *s.Stuck)
			}
			if s.Waiting {
				stop()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if len(stuck) == 0 || stuck[0].Kind != capture.KindUnreadable || r.FindingsByKind[capture.KindUnreadable] != 1 {
		t.Errorf("stuck %d times, found %v", len(stuck), r.FindingsByKind)
	}
	for _, f := range must(filepath.Glob(filepath.Join(rec, numbered(2)))) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	_, want := mustBuild(t, Options{}, rec)
	if got := dump(t, out); len(got.Sources) != 1 || len(got.Sources[0].WAL) != len(want.Sources[0].WAL) || len(got.Sources[0].Segments) != len(want.Sources[0].Segments) {
		t.Errorf("not all of the rest is there")
	}
}
