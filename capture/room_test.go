package capture_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
)

// smallDisk is a file system that holds so many bytes and no more. liar tells of
// much free space, as a quota does.
type smallDisk struct {
	vfs.Fault
	mem  *vfs.Mem
	size int64
	liar bool
}

func newSmallDisk(size int64) *smallDisk {
	d := &smallDisk{mem: vfs.NewMem(), size: size}
	d.FS = d.mem
	d.Decide = func(op vfs.Op) vfs.Verdict {
		if op.Kind == "write" {
			if left := d.size - d.used(); int64(op.Size) > left {
				return vfs.Verdict{Err: syscall.ENOSPC, Short: int(max(left, 0))}
			}
		}
		return vfs.Verdict{}
	}
	return d
}

func (d *smallDisk) used() (n int64) {
	for _, b := range d.mem.Files() {
		n += int64(len(b))
	}
	return n
}

func (d *smallDisk) Free(string) (int64, error) {
	if d.liar {
		return 1 << 40, nil
	}
	return max(d.size-d.used(), 0), nil
}

// fillDisk records until the disk is full, and leaves the recorder as if it had
// been killed. written is how many bytes it said were.
func fillDisk(t *testing.T, size, rotate int64) (disk *smallDisk, clock *fakeClock, written int64) {
	t.Helper()
	disk, clock = newSmallDisk(size), newClock()
	d, err := capture.Create("/a", capture.Options{FS: disk, Clock: clock, RotateBytes: rotate})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x", Protocol: capture.ProtocolRaw})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Write([]byte(strings.Repeat("x", 499)+"\n"), clock.pass(1e6))
	}
	if !capture.DiskFull(err) {
		t.Fatal(err)
	}
	return disk, clock, w.Stats().Written
}

// sealedOn is how many sealed files there are, and the bytes of all files of
// connections.
func sealedOn(m *vfs.Mem) (files int, bytes int64) {
	for name, b := range m.Files() {
		if strings.HasSuffix(name, ".cap") {
			files++
		}
		if strings.HasPrefix(name, "/a/c") {
			bytes += int64(len(b))
		}
	}
	return files, bytes
}

// TestLimitsAtAllTimes: limits hold whenever a file is sealed, with several
// connections at once, without the directory being read each time; and what
// another prune deletes meanwhile is not counted for long.
func TestLimitsAtAllTimes(t *testing.T) {
	const piece = 1000
	for _, keep := range []capture.Retention{{KeepFiles: 3, Unshipped: true}, {KeepBytes: 20_000, Unshipped: true}} {
		mem, clock := vfs.NewMem(), newClock()
		var lists atomic.Int64
		fsys := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
			if op.Kind == "list" {
				lists.Add(1)
			}
			return vfs.Verdict{}
		}}
		var deleted int
		d, err := capture.Create("/a", capture.Options{FS: fsys, Clock: clock, RotateBytes: piece, Keep: keep,
			OnPrune: func(rep *capture.PruneReport, err error) {
				if err != nil {
					t.Error(err)
				}
				deleted += len(rep.Deleted)
			}})
		if err != nil {
			t.Fatal(err)
		}
		var ws []*capture.Writer
		for range 3 {
			w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x", Protocol: capture.ProtocolRaw})
			if err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
		}
		begun := lists.Load()
		check := func() {
			t.Helper()
			files, bytes := sealedOn(mem)
			if keep.KeepFiles > 0 && files > keep.KeepFiles {
				t.Fatalf("%d files, the limit is %d", files, keep.KeepFiles)
			}
			// What is open comes on top: here the opening sidecars of three files.
			if keep.KeepBytes > 0 && bytes > keep.KeepBytes+3*piece {
				t.Fatalf("%d bytes, the limit is %d", bytes, keep.KeepBytes)
			}
		}
		for i := range 200 {
			w := ws[i%len(ws)]
			if n, err := w.Write(make([]byte, piece), clock.pass(1e6)); n != piece || err != nil {
				t.Fatal(n, err)
			}
			check()
			if i == 100 {
				// By hand, beside the recorder.
				if _, err := capture.Prune("/a", capture.Retention{KeepFiles: 1, Unshipped: true}, capture.Options{FS: mem, Clock: clock}); err != nil {
					t.Fatal(err)
				}
			}
			if i == 110 {
				if files, _ := sealedOn(mem); files < 2 {
					t.Error("what another deleted is still counted: too much goes")
				}
			}
		}
		for _, w := range ws {
			if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
			check()
		}
		if n := lists.Load() - begun; n > 2 {
			t.Errorf("the directory was read %d times", n)
		}
		if deleted < 100 {
			t.Errorf("%d files deleted", deleted)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// thousands connects and gives what writes a thousand bytes, and so a file.
func thousands(t *testing.T, d *capture.Dir, clock *fakeClock) func() {
	t.Helper()
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x", Protocol: capture.ProtocolRaw})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := w.Write(make([]byte, 1000), clock.pass(1e6)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnshippedStays: with limits and a full disk what was not shipped stays
// unless it is said in words, and what is shipped meanwhile goes.
func TestUnshippedStays(t *testing.T) {
	mem, clock := vfs.NewMem(), newClock()
	var sealed []capture.Sealed
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, RotateBytes: 1000, Keep: capture.Retention{KeepFiles: 2}, MakeRoom: true,
		OnSealed: func(s capture.Sealed) { sealed = append(sealed, s) }})
	if err != nil {
		t.Fatal(err)
	}
	write := thousands(t, d, clock)
	for range 6 {
		write()
	}
	if files, _ := sealedOn(mem); files != len(sealed) || files != 5 {
		t.Fatalf("%d files of %d are left", files, len(sealed))
	}
	for _, s := range sealed[:4] {
		if err := capture.Append(mem, "/a", true, capture.Entry{Event: capture.EventShip, Connection: s.Connection, File: strings.TrimPrefix(s.Path, "/a/"), SHA256: s.SHA256, Dest: "/far"}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if files, _ := sealedOn(mem); files != 2 {
		t.Errorf("%d files are left of what was shipped", files)
	}
}

// TestFullDiskMakesRoom: on a disk that is full in spite of everything, also one
// whose free space says otherwise, the oldest files go and no byte is lost.
func TestFullDiskMakesRoom(t *testing.T) {
	for _, liar := range []bool{false, true} {
		disk, clock := newSmallDisk(40_000), newClock()
		disk.liar = liar
		opt := capture.Options{FS: disk, Clock: clock, RotateBytes: 5000, MakeRoom: true, Keep: capture.Retention{Unshipped: true}}
		d, err := capture.Create("/a", opt)
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x", Protocol: capture.ProtocolRaw})
		if err != nil {
			t.Fatal(err)
		}
		const total = 100_000
		for i := range total / 500 {
			if n, err := w.Write([]byte(strings.Repeat(fmt.Sprintf("%04d ", i), 100)), clock.pass(1e6)); n != 500 || err != nil {
				t.Fatalf("liar %v: %d, %v", liar, n, err)
			}
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if s := w.Stats(); s.Written != total {
			t.Errorf("%+v", s)
		}
		rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(disk.mem)})
		if err != nil || len(rep.Findings) > 0 {
			t.Errorf("liar %v: %v, %v", liar, rep.Findings, err)
		}
		j, err := capture.ReadJournal(disk.mem, "/a")
		if err != nil {
			t.Fatal(err)
		}
		went := 0
		for _, e := range j.Entries {
			if e.Event == capture.EventPrune {
				went++
			}
		}
		if files, _ := sealedOn(disk.mem); files == 0 || files+went < total/5000 {
			t.Errorf("liar %v: %d files are left, %d went, of %d", liar, files, went, total/5000)
		}
	}
}

// TestRecoveryMakesRoom: a start on a full disk deletes what it may and goes on;
// where it may nothing, the error is the disk's.
func TestRecoveryMakesRoom(t *testing.T) {
	for _, how := range []string{"", "make room", "keep files", "make room, shipped nowhere"} {
		disk, clock, written := fillDisk(t, 60_000, 5000)
		left := newSmallDisk(0)
		left.mem = disk.mem.CrashClone(vfs.Crashes[0], 1)
		left.FS = left.mem
		for n, b := range disk.mem.Files() {
			left.mem.SetFile(n, b)
		}
		left.size = left.used() // not one byte is free
		opt := capture.Options{FS: left, Clock: clock}
		switch how {
		case "make room":
			opt.MakeRoom, opt.Keep.Unshipped = true, true
		case "keep files":
			opt.Keep = capture.Retention{KeepFiles: 2, Unshipped: true}
		case "make room, shipped nowhere":
			opt.MakeRoom = true
		}
		d, err := capture.Create("/a", opt)
		if !opt.Keep.Unshipped {
			if !capture.DiskFull(err) {
				t.Errorf("%s: %v", how, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", how, err)
			continue
		}
		if rec := d.Recovered(); len(rec) != 1 || rec[0].Start+rec[0].Kept < written {
			t.Errorf("%s: %+v, %d bytes were written", how, rec, written)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(left.mem)})
		if err != nil || len(rep.Findings) > 0 {
			t.Errorf("%s: %v, %v", how, rep.Findings, err)
		}
	}
}

// TestAgeAndLeapingClock: a wall clock that leaps while a recorder runs makes no
// file older, be it one of its own or of an earlier run; time that passes does.
func TestAgeAndLeapingClock(t *testing.T) {
	r := recordMem(t, 1, 20, 2000)
	old := r.count()
	for _, leap := range []int64{int64(time.Hour), -int64(time.Hour), 5 * year, -5 * year} {
		mem, clock := r.mem(), newClock()
		clock.pass(int64(time.Minute))
		d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, RotateBytes: 1000, Keep: capture.Retention{KeepAge: 30 * time.Minute, Unshipped: true}})
		if err != nil {
			t.Fatal(err)
		}
		write := thousands(t, d, clock)
		for range 3 {
			write()
		}
		clock.now.Wall += leap
		write()
		d.Hold()
		if files, _ := sealedOn(mem); files != old+3 {
			t.Errorf("the clock leapt by %v: %d files of %d are left", time.Duration(leap), files, old+3)
		}
		// What is told by the directory alone comes to the same.
		clock.pass(int64(2 * time.Minute))
		d.Hold()
		if files, _ := sealedOn(mem); files != old+3 {
			t.Errorf("the clock leapt by %v, later: %d files of %d are left", time.Duration(leap), files, old+3)
		}
		clock.pass(int64(31 * time.Minute))
		write()
		d.Hold()
		want := 0
		if leap < 0 {
			// Of an earlier run's files the younger age counts.
			want = old
		}
		if files, _ := sealedOn(mem); files != want {
			t.Errorf("after the clock leapt by %v %d files are left, want %d", time.Duration(leap), files, want)
		}
	}
}

// TestStartThatMakesRoomStopsAnywhere kills a start on a full disk, which prunes
// and recovers, at every operation. The next start gets along unaided, and what
// is missing then went by retention.
func TestStartThatMakesRoomStopsAnywhere(t *testing.T) {
	disk, clock, written := fillDisk(t, 30_000, 2500)
	// from is a full disk with so much left on it.
	from := func(m *vfs.Mem, how vfs.Crash) *smallDisk {
		n := newSmallDisk(0)
		n.mem = m.CrashClone(how, 1)
		n.FS = n.mem
		n.size = disk.used()
		return n
	}
	opt := capture.Options{Clock: clock, MakeRoom: true, Keep: capture.Retention{KeepFiles: 6, MinFree: 1000, Unshipped: true}}
	for _, how := range []vfs.Crash{vfs.CrashKeepAll, vfs.CrashLoseAll, vfs.CrashMixed} {
		for stop := 1; ; stop++ {
			left := from(disk.mem, vfs.CrashKeepAll)
			stopped := false
			full := left.Decide
			left.Decide = func(op vfs.Op) vfs.Verdict {
				if op.N >= stop {
					stopped = true
					return vfs.Verdict{Err: errStopped}
				}
				return full(op)
			}
			o := opt
			o.FS = left
			if _, err := capture.Create("/a", o); !stopped {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			again := from(left.mem, how)
			o.FS = again
			d, err := capture.Create("/a", o)
			if err != nil {
				t.Fatalf("%v, stopped at %d: %v", how, stop, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			end := int64(0)
			set, err := capture.OpenInputs([]string{"/a"}, inputs(again.mem))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range set.Connections[0].Files {
				end = max(end, f.End())
				if !f.Sealed {
					t.Errorf("%v, stopped at %d: %s is not sealed", how, stop, f.Name)
				}
			}
			if how == vfs.CrashKeepAll && end != written {
				t.Errorf("%v, stopped at %d: the recording ends at %d, %d were written", how, stop, end, written)
			}
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(again.mem)})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range rep.Findings {
				t.Errorf("%v, stopped at %d: %+v", how, stop, f)
			}
		}
	}
}
