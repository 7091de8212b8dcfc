package ship_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/ship"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
)

// TestRecheckFindsAllBeforeItMends: several copies are bad and the far disk is
// full, or can't be read in places: what is called shipped afterwards is whole
// there, whatever broke off first.
func TestRecheckFindsAllBeforeItMends(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	if err := shipper(t, mem, "/src", folder(t, mem, "/far"), ship.Options{}).Pass(t.Context(), &ship.Report{}); err != nil {
		t.Fatal(err)
	}
	marks := shippedMarks(t, mem, "/src")
	mem.SetFile("/far/"+marks[0], []byte("no longer what it was"))
	mem.Remove("/far/" + marks[4])
	full := true
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if full && (op.Kind == "write" && strings.HasSuffix(op.Name, ".new") || op.Kind == "read" && op.Name == "/far/"+marks[2]) {
			return vfs.Verdict{Err: errors.New("input/output error")}
		}
		return vfs.Verdict{}
	}}
	dest, err := ship.NewFolder(f, "/far")
	if err != nil {
		t.Fatal(err)
	}
	rep := &ship.Report{}
	if err := shipper(t, mem, "/src", dest, ship.Options{Recheck: true}).Pass(t.Context(), rep); err == nil {
		t.Fatal("nothing broke off")
	}
	kinds := map[string]int{}
	for _, f := range rep.Findings {
		kinds[f.Kind]++
	}
	if len(rep.Findings) != 6 || kinds[ship.KindMissingThere] != 3 || kinds[ship.KindNotShipped] != 3 || *rep.Unshipped != 3 {
		t.Errorf("%v", rep.Findings)
	}
	got, err := capture.Prune("/src", capture.Retention{KeepBytes: 1, DryRun: true}, capture.Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	if got.Held != 3 || len(got.Deleted) != 3 {
		t.Errorf("retention: %+v", got)
	}
	for _, d := range got.Deleted {
		if d.File == marks[0] || d.File == marks[2] || d.File == marks[4] {
			t.Errorf("%s would be deleted", d.File)
		}
	}
	full = false
	rep = &ship.Report{}
	if err := shipper(t, mem, "/src", dest, ship.Options{}).Pass(t.Context(), rep); err != nil || rep.Mended != 2 || rep.Shipped != 2 || rep.Already != 4 {
		t.Errorf("%v, %+v", err, rep)
	}
	if err := whole(mem.Files(), mem.Files(), "/src", "/far"); err != nil {
		t.Error(err)
	}
	if string(mem.Files()["/far/"+marks[0]+".damaged"]) != "no longer what it was" {
		t.Error("the damaged copy was not set aside")
	}
}

// TestMendingBrokenOff: mending fails at every operation in turn, by an error and
// by a crash. What the journal calls shipped is whole there at any time, and a
// plain pass makes everything whole.
func TestMendingBrokenOff(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for n := 1; ; n++ {
			mem := vfs.NewMem()
			d, w := recording(t, mem, "/src")
			w.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
			d.Close()
			if err := shipper(t, mem, "/src", folder(t, mem, "/far"), ship.Options{Zstd: n%2 == 0}).Pass(t.Context(), &ship.Report{}); err != nil {
				t.Fatal(err)
			}
			marks := shippedMarks(t, mem, "/src")
			ending := map[bool]string{false: "", true: ".zst"}[n%2 == 0]
			mem.SetFile("/far/"+marks[0]+ending, []byte("no longer what it was"))
			mem.Remove("/far/" + marks[1] + ending)
			mem.SetFile("/far/"+strings.TrimSuffix(marks[2], "cap")+"json", nil)
			mem.Remove("/far/" + strings.TrimSuffix(marks[3], "cap") + "sha256")
			mem.SyncDir("/far")
			ops, hit, resent := 0, false, false
			boom := errors.New("input/output error")
			f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
				if !op.Changes() {
					return vfs.Verdict{}
				}
				if ops++; ops == n || hit && crash {
					hit = true
					return vfs.Verdict{Err: boom}
				}
				resent = resent || op.Kind == "create"
				return vfs.Verdict{}
			}}
			dest, err := ship.NewFolder(f, "/far")
			if err != nil {
				t.Fatal(err)
			}
			err = shipper(t, f, "/src", dest, ship.Options{Recheck: true}).Pass(t.Context(), &ship.Report{})
			after := mem
			if crash {
				after = mem.CrashClone(vfs.CrashLoseAll, uint64(n))
			}
			if !hit && err != nil {
				t.Fatal(err)
			}
			// Once anything is sent again, the journal has taken back all that is
			// bad.
			good := map[string]bool{}
			j, err := capture.ReadJournal(after, "/src")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range j.Entries {
				switch e.Event {
				case capture.EventShip:
					good[e.File] = true
				case capture.EventUnship:
					good[e.File] = false
				}
			}
			for mark, good := range good {
				src := map[string][]byte{}
				for name, b := range after.Files() {
					if strings.HasPrefix(name, "/src/"+strings.TrimSuffix(mark, "cap")) {
						src[name] = b
					}
				}
				if err := whole(src, after.Files(), "/src", "/far"); err != nil && good && resent {
					t.Fatalf("operation %d: the journal calls %s shipped: %v", n, mark, err)
				}
			}
			if !hit {
				break
			}
			dest, err = ship.NewFolder(after, "/far")
			if err != nil {
				t.Fatal(err)
			}
			// One recheck for what the first one did not get to read.
			for _, o := range []ship.Options{{Recheck: true}, {}} {
				if err := shipper(t, after, "/src", dest, o).Pass(t.Context(), &ship.Report{}); err != nil {
					t.Fatalf("operation %d: the next pass: %v", n, err)
				}
			}
			if err := whole(after.Files(), after.Files(), "/src", "/far"); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
	}
}

// TestRetentionHearsOfBadCopies: a copy that is found bad while a prune has
// chosen what is to go: it stays.
func TestRetentionHearsOfBadCopies(t *testing.T) {
	mem := vfs.NewMem()
	d, w := recording(t, mem, "/src")
	w.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
	d.Close()
	if err := shipper(t, mem, "/src", folder(t, mem, "/far"), ship.Options{}).Pass(t.Context(), &ship.Report{}); err != nil {
		t.Fatal(err)
	}
	bad := ""
	for _, m := range shippedMarks(t, mem, "/src") {
		bad = m
		break
	}
	mem.SetFile("/far/"+bad, []byte("no longer what it was"))
	// When the prune has read the last sidecar, a recheck finds the damage, and
	// its resend breaks off.
	sidecars := 0
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind != "open" || !strings.HasSuffix(op.Name, ".json") {
			return vfs.Verdict{}
		}
		if sidecars++; sidecars == 7 {
			full := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
				if op.Kind == "write" && strings.HasSuffix(op.Name, ".new") {
					return vfs.Verdict{Err: errors.New("no space left")}
				}
				return vfs.Verdict{}
			}}
			dest, err := ship.NewFolder(full, "/far")
			if err != nil {
				t.Error(err)
			}
			if err := shipper(t, mem, "/src", dest, ship.Options{Recheck: true}).Pass(t.Context(), &ship.Report{}); err == nil {
				t.Error("the resend did not break off")
			}
		}
		return vfs.Verdict{}
	}}
	rep, err := capture.Prune("/src", capture.Retention{KeepBytes: 1}, capture.Options{FS: f})
	if err != nil {
		t.Fatal(err)
	}
	if mem.Files()["/src/"+bad] == nil || rep.Held != 1 || len(rep.Deleted) != 6 {
		t.Errorf("%s was deleted, its copy is bad: %+v", bad, rep)
	}
	if got := fmt.Sprint(rep.Deleted); strings.Contains(got, bad) {
		t.Errorf("reported as deleted: %s", got)
	}
}
