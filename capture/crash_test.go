package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// torture says that the long campaigns run.
var torture = os.Getenv("WIRETAPE_TORTURE") == "1"

var errStopped = errors.New("the process is gone")

// reported is what a recorder said was safe, by connection.
type reported map[string]int64

func (r reported) note(w *Writer) { r[w.ID()] = max(r[w.ID()], w.Stats().Synced) }

const crashDir = "/cap"

// scenario records two connections through create, write, rotate and seal, with
// syncs between, and stops at the first error. streams holds what was sent.
func scenario(fsys vfs.FS, first, second []byte, said reported, streams map[string][]byte) (err error) {
	clock := newClock()
	unique := uint32(0)
	opt := Options{FS: fsys, Clock: clock, Registry: toyRegistry, Holder: "test", RotateBytes: 900, RotateEvery: 40 * time.Millisecond,
		Unique: func() uint32 { unique++; return unique }}
	var open []*Writer
	opt.OnSealed = func(s Sealed) { said[s.Connection] = max(said[s.Connection], s.Start+s.Length) }
	d, err := Create(crashDir, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	send := func(w *Writer, p []byte, step int) error {
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
	a, err := d.Connect(ConnInfo{Endpoint: "tcp://a"})
	if err != nil {
		return err
	}
	streams[a.ID()] = first
	open = append(open, a)
	if err := send(a, first[:len(first)/2], 130); err != nil {
		return err
	}
	b, err := d.Connect(ConnInfo{Endpoint: "tcp://b", Pair: a.ID()})
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

// checkRestart holds what a crash left against what was sent and what was
// reported safe, restarts in it, and holds it against both again.
func checkRestart(t *testing.T, fsys *vfs.Mem, said reported, streams map[string][]byte) {
	t.Helper()
	if !sealedAreWhole(t, fsys) {
		return
	}
	before := fsys.Files()
	unique := uint32(0xff)
	opt := Options{FS: fsys, Clock: newClock(), Registry: toyRegistry, Holder: "restart", Unique: func() uint32 { return unique }}
	d, err := Create(crashDir, opt)
	if err != nil {
		t.Fatalf("restart: %v\n%s", err, fsys.Dump())
	}
	// All bytes that were there still are.
	after := fsys.Files()
	for name, b := range before {
		if strings.HasSuffix(name, extPartial) {
			sealedName := strings.TrimSuffix(name, extPartial) + extBytes
			if other, both := before[sealedName]; both && bytes.Equal(other, b) {
				continue
			}
			if !bytes.Equal(after[sealedName], b) {
				t.Fatalf("recovery changed the bytes of %s", name)
			}
		}
	}
	w, err := d.Connect(ConnInfo{Endpoint: "tcp://next"})
	if err != nil {
		t.Fatalf("recording after the restart: %v", err)
	}
	next, _ := toyStream(99, 20, 100)
	if _, err := w.Write(next, opt.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for id := range streams {
		if w.ID() <= id {
			t.Fatalf("the new connection %s is not behind %s", w.ID(), id)
		}
	}
	// Nothing is left to recover, and recovering changes nothing.
	settled := fsys.Files()
	if rec, err := Recover(crashDir, opt); err != nil || len(rec) > 0 {
		t.Fatalf("a second recovery: %v %v", rec, err)
	}
	for name, b := range fsys.Files() {
		if filepath.Base(name) != LockName && !bytes.Equal(settled[name], b) {
			t.Fatalf("a second recovery changed %s", name)
		}
	}
	set, err := OpenInputs([]string{crashDir}, InputOptions{FS: fsys, Registry: toyRegistry})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range set.Connections {
		if c.ID == w.ID() {
			if got := readAllRuns(t, c); !bytes.Equal(got, next) {
				t.Fatal("the connection after the restart is not what was sent")
			}
			continue
		}
		found[c.ID] = true
		checkConnection(t, c, streams[c.ID], said[c.ID])
	}
	for id, n := range said {
		if n > 0 && !found[id] {
			t.Fatalf("%d bytes of %s were reported safe and it is gone\n%s", n, id, fsys.Dump())
		}
	}
}

func readAllRuns(t *testing.T, c *Connection) []byte {
	t.Helper()
	var all []byte
	for _, r := range c.Runs() {
		rr, _ := r.Open()
		b, err := io.ReadAll(rr)
		if err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		if f := rr.Findings(); len(f) > 0 {
			t.Fatalf("%s: %v", c.ID, f)
		}
		all = append(all, b...)
	}
	return all
}

// checkConnection holds a recovered connection against what was sent: all that
// was reported safe is there, and its whole frames are a prefix of the stream.
func checkConnection(t *testing.T, c *Connection, sent []byte, safe int64) {
	t.Helper()
	if len(c.Runs()) != 1 || c.Runs()[0].Start != 0 {
		t.Fatalf("%s: %d runs, findings %v", c.ID, len(c.Runs()), c.Findings)
	}
	got := readAllRuns(t, c)
	if int64(len(got)) < safe || !bytes.Equal(got[:safe], sent[:safe]) {
		t.Fatalf("%s: %d bytes were reported safe, %d are there", c.ID, safe, commonPrefix(got, sent))
	}
	last := c.Files[len(c.Files)-1]
	whole := last.Start
	switch s := last.Sidecar; {
	case s == nil:
		t.Fatalf("%s has no sidecar: %v", last.Name, c.Findings)
	case s.Recovery != nil:
		whole += s.Recovery.Whole
		if s.Recovery.Kept != last.Length {
			t.Fatalf("%s: kept %d of %d", last.Name, s.Recovery.Kept, last.Length)
		}
	default:
		whole = s.Boundary
	}
	// Unsynced bytes that the crash spoiled inside of frames are told by the
	// arrival index, as far as that survived.
	if n := int64(commonPrefix(got, sent)); n < whole {
		r := last.Sidecar.Recovery
		if r == nil || n < last.Start+r.Proven {
			t.Fatalf("%s: %d bytes are said to be whole frames, %d are as sent: %+v", last.Name, whole, n, r)
		}
		if indexed := arrivalsEnd(t, last); n < indexed && !strings.Contains(kinds(wires(last.Sidecar.Findings)), KindTornBytes) {
			t.Fatalf("%s: bytes are damaged from %d on, and the index up to %d did not tell", last.Name, n, indexed)
		}
	}
	// A reader agrees with recovery about where the frames end.
	rr, opt := c.Runs()[0].Open()
	dec, err := c.Decoder(c.Runs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if dec == nil || last.Sidecar.Framing == sidecar.FramingUnknown {
		if commonPrefix(got, sent) >= 4 {
			t.Fatalf("%s: the protocol got lost: %+v", last.Name, last.Sidecar)
		}
		return
	}
	r := wire.NewReader(rr, dec, opt)
	end := int64(0)
	for {
		u, _, err := r.Next()
		if err != nil {
			break
		}
		end = u.End()
	}
	if end != whole {
		t.Fatalf("%s: a reader finds whole frames up to %d, the sidecar says %d (%+v)", last.Name, end, whole, last.Sidecar.Recovery)
	}
}

func arrivalsEnd(t *testing.T, f *File) int64 {
	all, _, err := f.Arrivals()
	if err != nil || len(all) == 0 {
		return f.Start
	}
	a := all[len(all)-1]
	return a.Offset + a.Length
}

func wires(fs []sidecar.Finding) (out []wire.Finding) {
	for _, f := range fs {
		out = append(out, f.Wire())
	}
	return out
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// sealedAreWhole holds promise 3: what has its final name is complete and
// described.
func sealedAreWhole(t *testing.T, fsys *vfs.Mem) bool {
	t.Helper()
	files := fsys.Files()
	for name, b := range files {
		if ParseName(filepath.Base(name)).Form != FormBytes {
			continue
		}
		text, ok := files[stemOf(name)+extSidecar]
		s, err := sidecar.Parse(text)
		if !ok || err != nil {
			t.Fatalf("%s is sealed, its sidecar is not: %v\n%s", name, err, fsys.Dump())
		}
		if s.Length != int64(len(b)) || s.SHA256 != hexSum(b) {
			t.Fatalf("%s is sealed and not what its sidecar says", name)
		}
		if !bytes.Contains(files[stemOf(name)+extSums], []byte(hexSum(b)+"  "+filepath.Base(name)+"\n")) {
			t.Fatalf("%s is sealed without its sum", name)
		}
	}
	return true
}

// TestLessonCrashAtEveryOperation stops a recorder at every operation on the
// file system, leaves of the unsynced what a power loss or kill -9 may, and
// restarts. It closes "the writer makes a state that its own restart rejects",
// "durable said before fsync" and "a name visible before the file is complete".
func TestLessonCrashAtEveryOperation(t *testing.T) {
	first, _ := toyStream(1, 40, 150)
	second, _ := toyStream(2, 14, 200)
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
	first, _ := toyStream(1, 40, 150)
	second, _ := toyStream(2, 14, 200)
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
			_, err := Recover(crashDir, Options{FS: f, Clock: newClock(), Registry: toyRegistry, Holder: "first"})
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
