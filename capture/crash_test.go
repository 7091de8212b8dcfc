package capture_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/aftermath"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
)

// torture says that the long campaigns run.
var torture = os.Getenv("WIRETAPE_TORTURE") == "1"

var errStopped = errors.New("the process is gone")

// reported is what a recorder said was safe, by connection.
type reported map[string]int64

func (r reported) note(w *capture.Writer) { r[w.ID()] = max(r[w.ID()], w.Stats().Synced) }

const crashDir = "/srv/wiretape/cap"

// scenario records two connections through create, write, rotate and seal, with
// syncs between, and stops at the first error. streams holds what was sent.
func scenario(fsys vfs.FS, first, second []byte, said reported, streams map[string][]byte) (err error) {
	clock := newClock()
	unique := uint32(0)
	opt := capture.Options{FS: fsys, Clock: clock, Registry: lenproto.Registry, Holder: "test", RotateBytes: 900, RotateEvery: 40 * time.Millisecond,
		Unique: func() uint32 { unique++; return unique }}
	var open []*capture.Writer
	opt.OnSealed = func(s capture.Sealed) { said[s.Connection] = max(said[s.Connection], s.Start+s.Length) }
	d, err := capture.Create(crashDir, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	send := func(w *capture.Writer, p []byte, step int) error {
		for i := 0; len(p) > 0; i++ {
			n := min(step, len(p))
			if _, err := w.Write(p[:n], clock.pass(3e6)); err != nil {
				return err
			}
			p = p[n:]
			if i%3 == 2 {
				if err := w.Sync(); err != nil {
					return err
				}
				said.note(w)
			}
		}
		return nil
	}
	a, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://a"})
	if err != nil {
		return err
	}
	streams[a.ID()] = first
	open = append(open, a)
	if err := send(a, first[:len(first)/2], 130); err != nil {
		return err
	}
	b, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://b", Pair: a.ID()})
	if err != nil {
		return err
	}
	streams[b.ID()] = second
	open = append(open, b)
	if err := send(b, second, 211); err != nil {
		return err
	}
	if err := b.Rotate(sidecar.ClosedRequest); err != nil {
		return err
	}
	if err := send(a, first[len(first)/2:], 170); err != nil {
		return err
	}
	for _, w := range open {
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			return err
		}
		said.note(w)
	}
	return nil
}

// checkRestart restarts in what a crash left.
func checkRestart(t *testing.T, fsys *vfs.Mem, said reported, streams map[string][]byte) {
	t.Helper()
	c := aftermath.Case{FS: fsys, Dir: crashDir, Registry: lenproto.Registry, Sent: streams, Safe: said,
		Clock: newClock(), Unique: func() uint32 { return 0xff }}
	if err := c.Check(); err != nil {
		t.Fatalf("%v\n%s", err, fsys.Dump())
	}
}

// TestLessonCrashAtEveryOperation stops a recorder at every operation on the
// file system, leaves of the unsynced what a power loss or kill -9 may, and
// restarts. It closes "the writer makes a state that its own restart rejects",
// "durable said before fsync" and "a name visible before the file is complete".
func TestLessonCrashAtEveryOperation(t *testing.T) {
	first, _ := lenproto.Stream(1, 40, 150)
	second, _ := lenproto.Stream(2, 14, 200)
	total := &vfs.Fault{FS: vfs.NewMem(), Decide: func(vfs.Op) vfs.Verdict { return vfs.Verdict{} }}
	if err := scenario(total, first, second, reported{}, map[string][]byte{}); err != nil {
		t.Fatal(err)
	}
	if total.Count() < 300 {
		t.Fatalf("only %d operations", total.Count())
	}
	seeds := uint64(2)
	if torture {
		seeds = 40
	}
	for stop := 1; stop <= total.Count(); stop++ {
		mem := vfs.NewMem()
		stopped, changes := false, false
		f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
			if op.N == stop {
				changes = op.Changes()
			}
			if op.N >= stop {
				stopped = true
				return vfs.Verdict{Err: errStopped}
			}
			return vfs.Verdict{}
		}}
		said, streams := reported{}, map[string][]byte{}
		err := scenario(f, first, second, said, streams)
		if !stopped || err != nil && !errors.Is(err, errStopped) {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		if !changes {
			continue
		}
		for _, how := range vfs.Crashes {
			n := uint64(1)
			if how == vfs.CrashMixed {
				n = seeds
			}
			for seed := range n {
				t.Run(fmt.Sprintf("%d/%v/%d", stop, how, seed), func(t *testing.T) {
					checkRestart(t, mem.CrashClone(how, seed), said, streams)
				})
			}
		}
	}
}

// TestRecoveryStopsAnywhere kills recovery itself at every operation and
// recovers again.
func TestRecoveryStopsAnywhere(t *testing.T) {
	first, _ := lenproto.Stream(1, 40, 150)
	second, _ := lenproto.Stream(2, 14, 200)
	mem := vfs.NewMem()
	const dieAt = 260
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if op.N >= dieAt {
			return vfs.Verdict{Err: errStopped}
		}
		return vfs.Verdict{}
	}}
	said, streams := reported{}, map[string][]byte{}
	if err := scenario(f, first, second, said, streams); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	for _, how := range vfs.Crashes {
		for stop := 1; ; stop++ {
			crashed := mem.CrashClone(how, 3)
			stopped := false
			f := &vfs.Fault{FS: crashed, Decide: func(op vfs.Op) vfs.Verdict {
				if op.N >= stop {
					stopped = true
					return vfs.Verdict{Err: errStopped}
				}
				return vfs.Verdict{}
			}}
			_, err := capture.Recover(crashDir, capture.Options{FS: f, Clock: newClock(), Registry: lenproto.Registry, Holder: "first"})
			if !stopped {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			for _, again := range secondCrashes() {
				t.Run(fmt.Sprintf("%v/%d/%v", how, stop, again), func(t *testing.T) {
					checkRestart(t, crashed.CrashClone(again, 5), said, streams)
				})
			}
		}
	}
}

// secondCrashes are what may be left of a recovery that was killed.
func secondCrashes() []vfs.Crash {
	if torture {
		return vfs.Crashes
	}
	return []vfs.Crash{vfs.CrashLoseAll, vfs.CrashMixed}
}
