package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// TestLessonFailedOperation fails every operation that writes, in turn, for
// good, and once, with each errno and with a short write. It closes "a write's
// result ignored": the recorder's error names file, offset and errno, what it
// reported safe is there, and what is left verifies to a frame boundary.
func TestLessonFailedOperation(t *testing.T) {
	first, _ := lenproto.Stream(1, 30, 150)
	second, _ := lenproto.Stream(2, 10, 200)
	total := &vfs.Fault{FS: vfs.NewMem(), Decide: func(vfs.Op) vfs.Verdict { return vfs.Verdict{} }}
	if err := scenario(total, first, second, reported{}, map[string][]byte{}); err != nil {
		t.Fatal(err)
	}
	type fault struct {
		name    string
		v       vfs.Verdict
		forever bool
	}
	faults := []fault{
		{"enospc", vfs.Verdict{Err: syscall.ENOSPC}, true},
		{"enospc-short", vfs.Verdict{Err: syscall.ENOSPC, Short: 7}, true},
		{"eio-once", vfs.Verdict{Err: syscall.EIO}, false},
		{"eio-once-after", vfs.Verdict{Err: syscall.EIO, After: true}, false},
	}
	for n := 1; n <= total.Count(); n++ {
		for _, ft := range faults {
			mem := vfs.NewMem()
			var hit vfs.Op
			f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
				switch {
				case op.N == n && op.Changes():
					hit = op
					return ft.v
				case hit.N > 0 && ft.forever && op.Changes() && op.Kind != "remove" && op.Kind != "truncate":
					return ft.v
				}
				return vfs.Verdict{}
			}}
			said, streams := reported{}, map[string][]byte{}
			err := scenario(f, first, second, said, streams)
			if hit.N == 0 {
				break
			}
			t.Run(fmt.Sprintf("%d-%s-%s", n, hit.Kind, ft.name), func(t *testing.T) {
				checkFailure(t, err, hit, ft.v.Err)
				for _, how := range []vfs.Crash{vfs.CrashKeepAll, vfs.CrashLoseAll} {
					left := mem.CrashClone(how, 1)
					if ft.forever || how == vfs.CrashKeepAll {
						checkRestart(t, left, said, streams)
						checkVerifies(t, left, streams)
					}
				}
			})
		}
	}
}

// checkFailure holds an error against the operation that caused it.
func checkFailure(t *testing.T, err error, hit vfs.Op, errno error) {
	t.Helper()
	if err == nil {
		// What may fail without a word: tidying up, which recovery does again,
		// and the end of a file that was synced before.
		base := filepath.Base(hit.Name)
		switch {
		case hit.Kind == "remove", hit.Kind == "truncate":
		case hit.Kind == "write" && capture.ParseName(base).Form == capture.FormIndex:
			// Tried again by the next.
		case base == capture.JournalName && hit.Kind != "lock":
			t.Fatalf("a failed %s of the journal went unsaid", hit.Kind)
		default:
			t.Fatalf("a failed %s of %s went unsaid", hit.Kind, hit.Name)
		}
		return
	}
	var fe *capture.FileError
	if !errors.As(err, &fe) {
		t.Fatalf("%s of %s failed: the error has no place: %v", hit.Kind, hit.Name, err)
	}
	if !errors.Is(err, errno) || !strings.Contains(err.Error(), "errno") || !strings.Contains(err.Error(), fe.File) || !strings.Contains(err.Error(), "offset") {
		t.Fatalf("%s of %s failed: %v", hit.Kind, hit.Name, err)
	}
	// Tidying up may fail without a word; then the next failure is told.
	tidy := hit.Kind == "remove" || hit.Kind == "truncate" || capture.ParseName(filepath.Base(hit.Name)).Form == capture.FormIndex
	if stemBase(fe.File) != stemBase(hit.Name) && fe.File != crashDir && !tidy {
		t.Fatalf("%s of %s failed, the error names %s", hit.Kind, hit.Name, fe.File)
	}
}

func stemBase(path string) string {
	base := filepath.Base(path)
	if n := capture.ParseName(base); n.Connection != "" {
		return fmt.Sprintf("%s.%08d", n.Connection, n.Number)
	}
	return base
}

// checkVerifies says that what was recovered verifies: everything that is found
// is a torn end, behind a frame boundary.
func checkVerifies(t *testing.T, fsys *vfs.Mem, streams map[string][]byte) {
	t.Helper()
	rep, err := capture.Verify([]string{crashDir}, capture.VerifyOptions{Input: capture.InputOptions{FS: fsys, Registry: lenproto.Registry}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rep.Findings {
		sent := streams[f.Connection]
		switch f.Kind {
		case wire.KindCut, wire.KindZeroTail, capture.KindRecovered, capture.KindNoEnd:
			if !lenproto.Boundary(sent, f.Offset) {
				t.Fatalf("%s at %d, which is no frame boundary: %+v", f.Kind, f.Offset, f)
			}
		default:
			t.Fatalf("found %+v", f)
		}
	}
}

// TestLessonShortWriteThenSuccess fails one write in the middle, lets the
// recorder try the same bytes again, and wants every frame before and behind.
// It closes "append after a failed write".
func TestLessonShortWriteThenSuccess(t *testing.T) {
	stream, _ := lenproto.Stream(5, 60, 200)
	probe := &vfs.Fault{FS: vfs.NewMem(), Decide: func(vfs.Op) vfs.Verdict { return vfs.Verdict{} }}
	retry := func(f *vfs.Fault) (failures int, id string, err error) {
		clock := newClock()
		d, err := capture.Create(crashDir, capture.Options{FS: f, Clock: clock, Registry: lenproto.Registry, RotateBytes: 1500, Unique: func() uint32 { return 9 }})
		if err != nil {
			return 1, "", err
		}
		w, err := d.Connect(capture.ConnInfo{})
		if err != nil {
			return 1, "", err
		}
		for p := stream; len(p) > 0; {
			n, err := w.Write(p[:min(len(p), 333)], clock.pass(1e6))
			p = p[n:]
			if err != nil {
				if failures++; failures > 3 {
					return failures, w.ID(), err
				}
			}
		}
		if _, err = w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			failures++
		}
		if cerr := d.Close(); cerr != nil {
			failures++
		}
		return failures, w.ID(), err
	}
	if _, _, err := retry(probe); err != nil {
		t.Fatal(err)
	}
	writes := 0
	for n := 1; n <= probe.Count(); n++ {
		for _, short := range []int{0, 1, 100} {
			for _, truncates := range []bool{true, false} {
				mem := vfs.NewMem()
				var hit vfs.Op
				f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
					if op.N == n && (op.Kind == "write" || op.Kind == "create" || op.Kind == "replace" || op.Kind == "rename") {
						hit = op
						return vfs.Verdict{Err: syscall.ENOSPC, Short: short}
					}
					if hit.N > 0 && op.N == hit.N+1 && op.Kind == "truncate" && !truncates {
						return vfs.Verdict{Err: syscall.EIO}
					}
					return vfs.Verdict{}
				}}
				failures, id, err := retry(f)
				if hit.N == 0 || id == "" {
					continue
				}
				writes++
				if err != nil {
					// The last seal: recovery does it.
					if _, err := capture.Recover(crashDir, capture.Options{FS: mem.CrashClone(vfs.CrashKeepAll, 0), Clock: newClock(), Registry: lenproto.Registry}); err != nil {
						t.Fatal(err)
					}
				}
				if failures == 0 && capture.ParseName(filepath.Base(hit.Name)).Form != capture.FormIndex {
					t.Fatalf("a failed %s of %s went unsaid", hit.Kind, hit.Name)
				}
				set, err := capture.OpenInputs([]string{crashDir}, capture.InputOptions{FS: mem, Registry: lenproto.Registry})
				if err != nil {
					t.Fatalf("operation %d, %s %s: %v", n, hit.Kind, hit.Name, err)
				}
				if got := readAllRuns(t, set.Connections[0]); !bytes.Equal(got, stream) {
					t.Fatalf("operation %d, %s %s: %d bytes are as sent, of %d", n, hit.Kind, hit.Name, commonPrefix(got, stream), len(stream))
				}
			}
		}
	}
	if writes < 100 {
		t.Fatalf("only %d failures", writes)
	}
}

// TestLessonFailedSyncIsFinal: a sync that failed once is never reported as
// done by a later one that succeeds, and the file is not sealed.
func TestLessonFailedSyncIsFinal(t *testing.T) {
	stream, _ := lenproto.Stream(5, 30, 200)
	mem := vfs.NewMem()
	fail := false
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if fail && op.Kind == "sync" && strings.HasSuffix(op.Name, ".cap.partial") {
			fail = false
			return vfs.Verdict{Err: syscall.EIO}
		}
		return vfs.Verdict{}
	}}
	clock := newClock()
	d, err := capture.Create(crashDir, capture.Options{FS: f, Clock: clock, Registry: lenproto.Registry})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(stream[:1000], clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); err != nil || w.Stats().Synced != 1000 {
		t.Fatal(err, w.Stats())
	}
	if _, err := w.Write(stream[1000:], clock.Now()); err != nil {
		t.Fatal(err)
	}
	fail = true
	for range 2 {
		if err := w.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync: %v", err)
		}
	}
	if _, err := w.Write(stream[:1], clock.Now()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("write: %v", err)
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); !errors.Is(err, syscall.EIO) {
		t.Fatalf("close: %v", err)
	}
	if w.Stats().Synced != 1000 {
		t.Fatalf("%+v", w.Stats())
	}
	names, _ := mem.List(crashDir)
	for _, n := range names {
		if capture.ParseName(n).Form == capture.FormBytes {
			t.Fatalf("%s was sealed after a failed sync", n)
		}
	}
}

// TestFailedLargeWrite: what is hashed beside a write that fails does not stay
// in the file's hash.
func TestFailedLargeWrite(t *testing.T) {
	stream := bytes.Repeat([]byte("some bytes "), 100_000)
	mem := vfs.NewMem()
	large := 0
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind == "write" && op.Size > 50_000 {
			if large++; large%3 == 1 {
				return vfs.Verdict{Err: syscall.ENOSPC, Short: op.Size / 2}
			}
		}
		return vfs.Verdict{}
	}}
	clock := newClock()
	d, err := capture.Create(crashDir, capture.Options{FS: f, Clock: clock, Registry: lenproto.Registry, RotateBytes: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Protocol: capture.ProtocolRaw})
	if err != nil {
		t.Fatal(err)
	}
	failures := 0
	for p := stream; len(p) > 0; {
		n, err := w.Write(p[:min(len(p), 200_000)], clock.pass(1e6))
		if p = p[n:]; err != nil {
			failures++
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if failures < 2 {
		t.Fatalf("%d failures", failures)
	}
	rep, err := capture.Verify([]string{crashDir}, capture.VerifyOptions{Input: inputs(mem)})
	if err != nil || len(rep.Findings) > 0 || rep.Proven != int64(len(stream)) {
		t.Fatalf("%+v, %v", rep, err)
	}
	set, err := capture.OpenInputs([]string{crashDir}, inputs(mem))
	if err != nil || !bytes.Equal(readAllRuns(t, set.Connections[0]), stream) {
		t.Fatal(err)
	}
}
