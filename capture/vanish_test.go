package capture_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// vanishing is a capture in which files go at a given operation of a reader: as a
// prune lets them go, that writes it down, removes the bytes and then, some
// operations later, what lies beside them.
type vanishing struct {
	*vfs.Fault
	mem *vfs.Mem
	err error
}

func (r *recorded) vanishing(at int, numbers []int, journal bool) *vanishing {
	v := &vanishing{mem: r.mem()}
	v.Fault = &vfs.Fault{FS: v.mem, Decide: func(op vfs.Op) vfs.Verdict {
		for _, n := range numbers {
			switch op.N {
			case at:
				if journal {
					v.fail(capture.Append(v.mem, "/a", false, capture.Entry{Event: capture.EventPrune, File: filepath.Base(r.name(n, ".cap"))}))
				}
				v.fail(v.mem.Remove(r.name(n, ".cap")))
			case at + 3:
				for _, ext := range []string{".json", ".idx", ".sha256"} {
					v.fail(v.mem.Remove(r.name(n, ext)))
				}
			}
		}
		return vfs.Verdict{}
	}}
	return v
}

func (v *vanishing) fail(err error) {
	if v.err == nil {
		v.err = err
	}
}

// Guards: a reader beside a recorder that prunes ended with "no such file or
// directory" when a file went between its listing and its opening. Files go at
// every operation: they are missing, and everything else is read.
func TestFilesVanishUnderAReader(t *testing.T) {
	r := recordMem(t, 7, 34, 1000)
	files := r.count()
	if files < 5 {
		t.Fatalf("%d files", files)
	}
	whole, err := capture.OpenInputs([]string{"/a"}, inputs(r.mem()))
	if err != nil {
		t.Fatal(err)
	}
	starts := map[int]*capture.File{}
	for i, f := range whole.Connections[0].Files {
		starts[i+1] = f
	}
	frames := func(opt capture.InputOptions) (at []int64, found []wire.Finding, err error) {
		set, err := capture.OpenInputs([]string{"/a"}, opt)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, set.Findings...)
		for _, c := range set.Connections {
			found = append(found, c.Findings...)
			units := c.Units()
			defer units.Close()
			for {
				u, fs, err := units.Next()
				found = append(found, fs...)
				if err == io.EOF {
					break
				}
				if err != nil {
					return at, found, err
				}
				if u.Type == wire.UnitFrame {
					at = append(at, u.Offset)
				}
			}
		}
		return at, found, nil
	}
	for _, numbers := range [][]int{{1}, {1, 2}, {3}, {files}} {
		for _, journal := range []bool{true, false} {
			kind := capture.KindPruned
			if !journal {
				kind = capture.KindMissingFiles
			}
			var want []int64 // the frames in the files that stay
			for _, at := range r.ends[1 : len(r.ends)-1] {
				if !slices.ContainsFunc(numbers, func(n int) bool { return starts[n].Start <= at && at < starts[n].End() }) {
					want = append(want, at)
				}
			}
			for _, verb := range []string{"read", "info", "verify"} {
				for at := 1; ; at++ {
					what := fmt.Sprintf("%s: files %v go at operation %d (journal %v)", verb, numbers, at, journal)
					v := r.vanishing(at, numbers, journal)
					var found, notes []wire.Finding
					var err error
					switch opt := inputs(v); verb {
					case "read":
						var got []int64
						got, found, err = frames(opt)
						for _, o := range want {
							if !slices.Contains(got, o) {
								t.Fatalf("%s: the frame at %d is not read", what, o)
							}
						}
					case "info":
						var info *capture.Info
						if info, err = capture.Describe([]string{"/a"}, capture.InfoOptions{Input: opt}); err == nil {
							found, notes = info.AllFindings(), info.Notes
						}
					case "verify":
						var rep *capture.VerifyReport
						if rep, err = capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: opt}); err == nil {
							found, notes = rep.Findings, rep.Notes
						}
					}
					if err != nil || v.err != nil {
						t.Fatal(what, err, v.err)
					}
					for _, x := range append(slices.Clone(found), notes...) {
						if x.Kind != kind {
							t.Errorf("%s: found %+v", what, x)
						}
					}
					if journal && verb != "read" && len(found) > 0 {
						t.Errorf("%s: what was pruned is a fault: %+v", what, found)
					}
					if t.Failed() {
						t.FailNow()
					}
					if v.Count() < at {
						break // the reader was done before that
					}
				}
			}
		}
	}
}

// Guards: one link that leads nowhere stopped everything. It is a finding, and all
// else is read; so is a file that may not be looked at.
func TestDanglingLink(t *testing.T) {
	r := recordMem(t, 8, 30, 1000)
	files := r.count()
	for _, n := range []int{1, 3, files} {
		for _, alone := range []bool{false, true} {
			dir := t.TempDir()
			for name, b := range r.files {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			link := filepath.Join(dir, filepath.Base(r.name(n, ".cap")))
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if alone {
				for _, ext := range []string{".json", ".idx", ".sha256"} {
					if err := os.Remove(strings.TrimSuffix(link, ".cap") + ext); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.Symlink("/nowhere/"+filepath.Base(link), link); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("file %d of %d, alone %v", n, files, alone)
			opt := capture.InputOptions{Registry: lenproto.Registry}
			rep, err := capture.Verify([]string{dir}, capture.VerifyOptions{Input: opt})
			if err != nil {
				t.Fatal(what, err)
			}
			if rep.Files != files-1 || !has(rep.Findings, capture.KindUnreadable, filepath.Base(link)) || !has(rep.Findings, capture.KindMissingFiles, filepath.Base(link)) || len(rep.Findings) != 2 {
				t.Errorf("%s: %d files verified, found %+v", what, rep.Files, rep.Findings)
			}
			info, err := capture.Describe([]string{dir}, capture.InfoOptions{Input: opt})
			if err != nil || len(info.Connections) != 1 || info.Connections[0].Files != files-1 || len(info.AllFindings()) != 2 {
				t.Errorf("%s: %v, %+v", what, err, info)
			}
		}
	}
}

func has(fs []wire.Finding, kind, file string) bool {
	return slices.ContainsFunc(fs, func(f wire.Finding) bool { return f.Kind == kind && f.File == file })
}

// A connection of which only such a link is here.
func TestDanglingLinkIsAll(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/nowhere", filepath.Join(dir, "c00000001-00000abc.00000001.cap")); err != nil {
		t.Fatal(err)
	}
	rep, err := capture.Verify([]string{dir}, capture.VerifyOptions{})
	if err != nil || !has(rep.Findings, capture.KindUnreadable, "c00000001-00000abc.00000001.cap") {
		t.Errorf("%v, %+v", err, rep)
	}
	// One that is given by its own name is asked for: it fails.
	if _, err := capture.OpenInputs([]string{filepath.Join(dir, "c00000001-00000abc.00000001.cap")}, capture.InputOptions{}); err == nil {
		t.Error("a link that leads nowhere was opened")
	}
}

// A file that got another name since it was listed is the same file.
func TestRenamedUnderAReader(t *testing.T) {
	r := recordMem(t, 9, 24, 1000)
	set, err := capture.OpenInputs([]string{"/a"}, inputs(r.mem()))
	if err != nil {
		t.Fatal(err)
	}
	want := readBytes(t, set.Connections[0])
	for n := 1; n <= r.count(); n++ {
		mem := r.mem()
		var z strings.Builder
		if err := capture.CompressTo(&z, strings.NewReader(string(r.files[r.name(n, ".cap")]))); err != nil {
			t.Fatal(err)
		}
		set, err := capture.OpenInputs([]string{"/a"}, inputs(mem))
		if err != nil {
			t.Fatal(err)
		}
		mem.SetFile(r.name(n, ".cap.zst"), []byte(z.String()))
		if err := mem.Remove(r.name(n, ".cap")); err != nil {
			t.Fatal(err)
		}
		got := readBytes(t, set.Connections[0])
		if len(got) != 1 || string(got[0]) != string(want[0]) {
			t.Errorf("file %d compressed meanwhile: %d bytes, want %d", n, len(got[0]), len(want[0]))
		}
	}
}
