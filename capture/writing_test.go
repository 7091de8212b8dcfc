package capture_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// year is what a clock that was never set is off by, times five.
const year = int64(365*24) * int64(time.Hour)

// TestLessonNamesAndClocks records with clocks that stand still, go back, jump
// by an hour and by five years: no name repeats, the order of names is the order
// of writing, and a time limit makes exactly one new file. It closes "names from
// a clock, creation not exclusive" and "wall clock used for intervals".
func TestLessonNamesAndClocks(t *testing.T) {
	cases := []struct {
		name string
		step func(i int) int64 // how far the wall clock goes in the i-th step
	}{
		{"frozen", func(int) int64 { return 0 }},
		{"backwards", func(int) int64 { return -int64(time.Second) }},
		{"an hour back and forth", func(i int) int64 { return int64(time.Hour) * int64(1-2*(i%2)) }},
		{"five years back and forth", func(i int) int64 { return 5 * year * int64(1-2*(i%2)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			mem, clock := vfs.NewMem(), newClock()
			stream, _ := lenproto.Stream(3, 100, 50)
			var sealed []string
			opt := capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry, RotateEvery: time.Minute,
				OnSealed: func(s capture.Sealed) { sealed = append(sealed, filepath.Base(s.Path)) }}
			for run := range 4 {
				d, err := capture.Create("/a", opt)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					w, err := d.Connect(capture.ConnInfo{})
					if err != nil {
						t.Fatal(err)
					}
					// Just over a minute by the monotonic clock.
					p, steps := stream, 31
					for i := range steps {
						n := len(p) / (steps - i)
						clock.now.Mono += int64(2100 * time.Millisecond)
						clock.now.Wall += c.step(i)
						if _, err := w.Write(p[:n], clock.now); err != nil {
							t.Fatal(err)
						}
						p = p[n:]
					}
					if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if want := (run + 1) * 3 * 2; len(sealed) != want {
					t.Fatalf("%d files, want %d: one rotation a connection", len(sealed), want)
				}
			}
			if !sort.StringsAreSorted(sealed) {
				t.Fatalf("the order of names is not that of writing: %v", sealed)
			}
			seen := map[string]bool{}
			for _, s := range sealed {
				if seen[s] {
					t.Fatalf("%s comes twice", s)
				}
				seen[s] = true
			}
			info, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(mem)})
			if err != nil {
				t.Fatal(err)
			}
			for _, ci := range info.Connections {
				if ci.Duration != 30*2100*time.Millisecond {
					t.Fatalf("it lasted %v", ci.Duration)
				}
				if len(ci.ClockSteps) == 0 {
					t.Fatal("no clock steps")
				}
			}
		})
	}
}

// TestNumbersOutliveFiles: the numbers of pruned connections do not come again.
func TestNumbersOutliveFiles(t *testing.T) {
	mem, clock := vfs.NewMem(), newClock()
	opt := capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry}
	last := ""
	for range 5 {
		d, err := capture.Create("/a", opt)
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{})
		if err != nil {
			t.Fatal(err)
		}
		if w.ID() <= last {
			t.Fatalf("%s is not behind %s", w.ID(), last)
		}
		last = w.ID()
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportStopped}, sidecar.ClosedSignal); err != nil {
			t.Fatal(err)
		}
		if rep, err := d.Prune(capture.Retention{KeepBytes: 1, Unshipped: true}); err != nil || len(rep.Deleted) != 1 {
			t.Fatal(rep, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLessonTwoRecorders: the second one is refused and told who has the
// directory; a recorder that is gone is no obstacle. It closes "no lock".
func TestLessonTwoRecorders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cap")
	d, err := capture.Create(dir, capture.Options{Holder: "the first recorder"})
	if err != nil {
		t.Fatal(err)
	}
	var locked *capture.LockedError
	if _, err := capture.Create(dir, capture.Options{Holder: "the second"}); !errors.As(err, &locked) || locked.Holder != "the first recorder" {
		t.Fatalf("got %v", err)
	}
	if _, err := capture.Recover(dir, capture.Options{}); !errors.As(err, &locked) {
		t.Fatalf("got %v", err)
	}
	w, err := d.Connect(capture.ConnInfo{Protocol: capture.ProtocolRaw})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = capture.Create(dir, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// Modes.
	err = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Stat(p)
		if err == nil && (st.Mode().Perm() != 0o600 && !e.IsDir() || st.Mode().Perm() != 0o700 && e.IsDir()) {
			t.Errorf("%s has mode %v", p, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTenThousandRotations: the concatenation of 10,000 files is what came, by
// SHA-256, in whatever pieces it came.
func TestTenThousandRotations(t *testing.T) {
	stream, ends := lenproto.Stream(8, 14_000, 60)
	mem, clock := vfs.NewMem(), newClock()
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	rotations := 0
	for p := stream; len(p) > 0; {
		n := min(1+rng.IntN(40), len(p))
		if _, err := w.Write(p[:n], clock.pass(1)); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
		if err := w.Rotate(sidecar.ClosedRequest); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	files := mem.Files()
	for n := range files {
		if strings.HasSuffix(n, ".cap") {
			names = append(names, n)
			rotations++
		}
	}
	sort.Strings(names)
	h := sha256.New()
	for _, n := range names {
		h.Write(files[n])
	}
	if want := sha256.Sum256(stream); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Fatal("the files do not hold what came")
	}
	if rotations < 10_000 || rotations > len(ends) {
		t.Fatalf("%d files", rotations)
	}
}

// TestRotation: sizes, a frame larger than the limit, reads of every size, and
// streams without frames.
func TestRotation(t *testing.T) {
	small, _ := lenproto.Stream(1, 50, 60)
	big := append(append([]byte{}, small...), 0x88, 0x13, 0, 0, 2)
	big = append(big, bytes.Repeat([]byte{7}, 5000-1)...)
	tail, _ := lenproto.Stream(2, 50, 60)
	big = append(big, tail[4:]...)
	noise := bytes.Repeat([]byte("noise "), 1000)
	lost := append(append([]byte{}, small...), make([]byte, 3000)...)
	cases := []struct {
		name     string
		stream   []byte
		protocol string
		framing  string
		largest  int64 // of a file, when whole reads tell the frames' lengths
	}{
		{"frames", small, "auto", sidecar.FramingFrames, 300},
		{"a frame over the limit", big, "auto", sidecar.FramingFrames, 5004},
		{"raw", big, "raw", sidecar.FramingUnknown, 300},
		{"unknown bytes", noise, "auto", sidecar.FramingUnknown, 300},
		{"lost on the way", lost, "auto", sidecar.FramingLost, 300},
	}
	for _, c := range cases {
		for _, read := range []int{1, 3, 64, 1000, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", c.name, read), func(t *testing.T) {
				mem, clock := vfs.NewMem(), newClock()
				d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry, RotateBytes: 300})
				if err != nil {
					t.Fatal(err)
				}
				w, err := d.Connect(capture.ConnInfo{Protocol: c.protocol})
				if err != nil {
					t.Fatal(err)
				}
				for p := c.stream; len(p) > 0; {
					n := min(read, len(p))
					if _, err := w.Write(p[:n], clock.pass(1e6)); err != nil {
						t.Fatal(err)
					}
					p = p[n:]
				}
				if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
					t.Fatal(err)
				}
				set, err := capture.OpenInputs([]string{"/a"}, inputs(mem))
				if err != nil {
					t.Fatal(err)
				}
				conn := set.Connections[0]
				if !bytes.Equal(readAllRuns(t, conn), c.stream) {
					t.Fatal("the files do not hold what came")
				}
				for i, f := range conn.Files {
					lastOne := i == len(conn.Files)-1
					if f.Length > c.largest && (read > 64 || c.framing == sidecar.FramingUnknown) && !(i == 0 && c.protocol == "auto") {
						t.Fatalf("file %d has %d bytes", f.Number, f.Length)
					}
					if c.framing == sidecar.FramingFrames && (!f.Sidecar.StartsAtBoundary || !f.Sidecar.EndsAtBoundary) {
						t.Fatalf("file %d: %+v", f.Number, f.Sidecar)
					}
					if c.framing == sidecar.FramingUnknown && !lastOne && f.Sidecar.Framing != sidecar.FramingUnknown {
						t.Fatalf("file %d: %+v", f.Number, f.Sidecar)
					}
				}
				last := conn.Files[len(conn.Files)-1].Sidecar
				if last.Framing != c.framing || (c.framing == sidecar.FramingLost) == last.EndsAtBoundary && c.framing != sidecar.FramingUnknown {
					t.Fatalf("the last file: %+v", last)
				}
				if rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(mem)}); err != nil ||
					(len(rep.Findings) > 0) != (c.framing == sidecar.FramingLost) || rep.Proven != int64(len(c.stream)) {
					t.Fatalf("verify: %+v, %v", rep, err)
				}
			})
		}
	}
}

// TestLessonCutAtEveryByte: a stream that ends at any byte has a clean verdict
// exactly at the frame boundaries, else the frame's offset and what was there of
// it. It closes "one end for three facts".
func TestLessonCutAtEveryByte(t *testing.T) {
	stream, ends := lenproto.Stream(6, 12, 40)
	boundary := map[int]int64{}
	for _, e := range ends {
		boundary[int(e)] = e
	}
	last := int64(0)
	for cut := range len(stream) + 1 {
		if e, ok := boundary[cut]; ok {
			last = e
		}
		mem, clock := vfs.NewMem(), newClock()
		d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry})
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{Protocol: lenproto.Name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(stream[:cut], clock.Now()); err != nil {
			t.Fatal(err)
		}
		ending, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportUnwitnessed}, sidecar.ClosedEnd)
		if err != nil {
			t.Fatal(err)
		}
		_, whole := boundary[cut]
		if (ending == wire.EndingClean) != whole || !whole && ending != wire.EndingCut {
			t.Fatalf("cut at %d: %s", cut, ending)
		}
		set, err := capture.OpenInputs([]string{"/a"}, inputs(mem))
		if err != nil {
			t.Fatal(err)
		}
		s := set.Connections[0].Files[0].WholeSidecar()
		if s.EndsAtBoundary != whole || s.Boundary != last || s.Transport.Kind != sidecar.TransportUnwitnessed {
			t.Fatalf("cut at %d: %+v", cut, s)
		}
		if !whole && (len(s.Findings) != 1 || s.Findings[0].Kind != wire.KindCut || s.Findings[0].Offset != last || s.Findings[0].Length != int64(cut)-last) {
			t.Fatalf("cut at %d: %+v", cut, s.Findings)
		}
	}
}

// TestLessonRetention: nothing goes that was not shipped, by the very hash that
// was read back; what goes is the oldest, and the reader is told. It closes
// "deletion by age with no proof".
func TestLessonRetention(t *testing.T) {
	r := recordMem(t, 1, 200, 2000)
	n := r.count()
	opt := func(m *vfs.Mem, c *fakeClock) capture.Options { return capture.Options{FS: m, Clock: c} }
	ship := func(m *vfs.Mem, k int, sum string) {
		t.Helper()
		err := capture.Append(m, "/a", true, capture.Entry{Event: capture.EventShip, Connection: r.id,
			File: filepath.Base(r.name(k, ".cap")), SHA256: sum, Dest: "/far"})
		if err != nil {
			t.Fatal(err)
		}
	}
	left := func(m *vfs.Mem) (out []int) {
		files := m.Files()
		for k := 1; k <= n; k++ {
			if files[r.name(k, ".cap")] != nil {
				out = append(out, k)
			} else {
				for _, ext := range []string{".json", ".idx", ".sha256"} {
					if files[r.name(k, ext)] != nil {
						t.Fatalf("%s stayed", r.name(k, ext))
					}
				}
			}
		}
		return out
	}
	limits := []capture.Retention{{KeepBytes: 5000}, {KeepFiles: 2}, {KeepAge: time.Hour}, {MinFree: 1 << 50}}
	for _, limit := range limits {
		m, clock := r.mem(), newClock()
		clock.pass(int64(24 * time.Hour))
		m.SetFree(1 << 20)
		rep, err := capture.Prune("/a", limit, opt(m, clock))
		if err != nil || len(rep.Deleted) > 0 || len(left(m)) != n || rep.Held == 0 || rep.Met {
			t.Fatalf("%+v: a shipper that stalled, and %+v, %v", limit, rep, err)
		}
		// Shipped with another hash is not shipped.
		ship(m, 1, strings.Repeat("0", 64))
		if rep, err := capture.Prune("/a", limit, opt(m, clock)); err != nil || len(rep.Deleted) > 0 {
			t.Fatal(rep, err)
		}
		ship(m, 1, parse(t, r.files[r.name(1, ".json")]).SHA256)
		ship(m, 2, parse(t, r.files[r.name(2, ".json")]).SHA256)
		dry := limit
		dry.DryRun = true
		if rep, err := capture.Prune("/a", dry, opt(m, clock)); err != nil || len(rep.Deleted) != 2 || len(left(m)) != n {
			t.Fatalf("dry: %+v, %v", rep, err)
		}
		if rep, err := capture.Prune("/a", limit, opt(m, clock)); err != nil || len(rep.Deleted) != 2 || !rep.Deleted[0].Shipped || left(m)[0] != 3 {
			t.Fatalf("%+v: %+v, %v", limit, rep, err)
		}
		limit.Unshipped = true
		rep, err = capture.Prune("/a", limit, opt(m, clock))
		if err != nil || len(rep.Deleted) == 0 || rep.Held != 0 || rep.Met == (limit.MinFree > 0) {
			t.Fatalf("%+v: %+v, %v", limit, rep, err)
		}
		switch {
		case limit.KeepFiles > 0:
			if l := left(m); len(l) != 2 || l[0] != n-1 {
				t.Fatalf("left: %v", l)
			}
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m)})
			if err != nil || len(rep.Findings) > 0 || kinds(rep.Notes) != capture.KindPruned || !strings.Contains(rep.Notes[0].Message, "deleted by retention") {
				t.Fatalf("after pruning: %v, %v, %v", rep.Findings, rep.Notes, err)
			}
		case limit.KeepBytes > 0:
			total := int64(0)
			for name, b := range m.Files() {
				if name != "/a/journal.jsonl" && name != "/a/lock" {
					total += int64(len(b))
				}
			}
			if total > limit.KeepBytes || len(left(m)) == 0 {
				t.Fatalf("%d bytes are left: %v", total, left(m))
			}
		case limit.KeepAge > 0:
			if len(left(m)) != 0 {
				t.Fatalf("left: %v", left(m))
			}
		}
	}
	// The clock goes back: nothing is old.
	m, clock := r.mem(), newClock()
	clock.now.Wall -= 5 * year
	if rep, err := capture.Prune("/a", capture.Retention{KeepAge: time.Hour, Unshipped: true}, opt(m, clock)); err != nil || len(rep.Deleted) > 0 {
		t.Fatal(rep, err)
	}
}

// TestPruneStopsAnywhere kills a prune at every operation: what is left reads,
// and the next prune ends it.
func TestPruneStopsAnywhere(t *testing.T) {
	r := recordMem(t, 1, 100, 2000)
	limit := capture.Retention{KeepFiles: 2, Unshipped: true}
	for stop := 1; ; stop++ {
		m, stopped := r.mem(), false
		f := &vfs.Fault{FS: m, Decide: func(op vfs.Op) vfs.Verdict {
			if op.N >= stop {
				stopped = true
				return vfs.Verdict{Err: errStopped}
			}
			return vfs.Verdict{}
		}}
		_, err := capture.Prune("/a", limit, capture.Options{FS: f, Clock: newClock()})
		if !stopped {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		for _, how := range vfs.Crashes {
			left := m.CrashClone(how, uint64(stop))
			set, err := capture.OpenInputs([]string{"/a"}, inputs(left))
			if err != nil {
				t.Fatal(err)
			}
			run := set.Connections[0].Runs()[len(set.Connections[0].Runs())-1]
			if got := readRun(t, run); !bytes.Equal(got, r.stream[run.Start:]) {
				t.Fatalf("stopped at %d: what is left does not read", stop)
			}
			if _, err := capture.Prune("/a", limit, capture.Options{FS: left, Clock: newClock()}); err != nil {
				t.Fatal(err)
			}
			caps := 0
			for name := range left.Files() {
				if strings.HasSuffix(name, ".cap") {
					caps++
				}
			}
			if caps != 2 {
				t.Fatalf("stopped at %d (%v): %d files are left", stop, how, caps)
			}
		}
	}
}

// TestStatsAndSync: what is reported is in order, and safe.
func TestStatsAndSync(t *testing.T) {
	stream, _ := lenproto.Stream(1, 50, 100)
	mem, clock := vfs.NewMem(), newClock()
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry, RotateBytes: 700})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	stop := make(chan bool)
	go func() {
		var err error
		for {
			select {
			case <-stop:
				done <- err
				return
			default:
				if e := w.Sync(); e != nil {
					err = e
				}
				if s := w.Stats(); s.Synced > s.Written || s.Written > s.Received {
					err = fmt.Errorf("%+v", s)
				}
			}
		}
	}()
	sent := int64(0)
	for body := stream; sent < 100_000; body = stream[4:] {
		for p := body; len(p) > 0; {
			n := min(50, len(p))
			if _, err := w.Write(p[:n], clock.pass(1)); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
		sent += int64(len(body))
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.Synced != s.Received || s.Synced != sent {
		t.Fatalf("%+v", s)
	}
	left := mem.CrashClone(vfs.CrashLoseAll, 0)
	if _, err := capture.Recover("/a", capture.Options{FS: left, Registry: lenproto.Registry, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	set, err := capture.OpenInputs([]string{"/a"}, inputs(left))
	if err != nil {
		t.Fatal(err)
	}
	if got := readAllRuns(t, set.Connections[0]); int64(len(got)) != w.Stats().Synced {
		t.Fatalf("%d bytes survived of %+v", len(got), w.Stats())
	}
}

// TestVerifyFinds damages everything that lies beside the bytes, and the bytes:
// each is found, and a sound capture has no finding.
func TestVerifyFinds(t *testing.T) {
	r := recordMem(t, 1, 100, 2000)
	edit := func(k int, change func(s *sidecar.Sidecar)) func(m *vfs.Mem) {
		return func(m *vfs.Mem) {
			s := parse(t, r.files[r.name(k, ".json")])
			change(s)
			m.SetFile(r.name(k, ".json"), text(t, s))
		}
	}
	cases := []struct {
		name   string
		damage func(m *vfs.Mem)
		want   string
	}{
		{"nothing", func(m *vfs.Mem) {}, ""},
		{"chain", edit(3, func(s *sidecar.Sidecar) { s.PreviousSHA256 = s.SHA256 }), capture.KindChainBroken},
		{"hash", edit(3, func(s *sidecar.Sidecar) { s.SHA256 = strings.Repeat("ab", 32) }), capture.KindHashMismatch},
		{"frames", edit(3, func(s *sidecar.Sidecar) { s.Frames[0].Count++ }), capture.KindSidecarStale},
		{"boundary", edit(3, func(s *sidecar.Sidecar) { s.Boundary-- }), capture.KindSidecarStale},
		{"context", edit(3, func(s *sidecar.Sidecar) {
			s.Context = sidecar.ContextOf(&wire.Context{Protocol: lenproto.Name, Version: 1})
		}), capture.KindSidecarStale},
		{"ends", edit(3, func(s *sidecar.Sidecar) { s.EndsAtBoundary = false }), capture.KindSidecarStale},
		{"sums of a sidecar", edit(3, func(s *sidecar.Sidecar) { s.Tool = "another" }), capture.KindSums},
		{"index cut", func(m *vfs.Mem) {
			b := r.files[r.name(3, ".idx")]
			m.SetFile(r.name(3, ".idx"), b[:len(b)-3])
		}, capture.KindIndex},
		{"index of another file", func(m *vfs.Mem) { m.SetFile(r.name(3, ".idx"), r.files[r.name(4, ".idx")]) }, capture.KindIndex},
		{"index noise", func(m *vfs.Mem) { m.SetFile(r.name(3, ".idx"), bytes.Repeat([]byte{0xff}, 100)) }, capture.KindIndex},
		{"sums noise", func(m *vfs.Mem) { m.SetFile(r.name(3, ".sha256"), []byte("noise\n")) }, capture.KindSums},
		{"a last file that only the journal knows", func(m *vfs.Mem) {
			for _, ext := range []string{".cap", ".json", ".idx", ".sha256"} {
				m.Remove(r.name(r.count(), ext))
			}
		}, capture.KindNoEnd + " " + capture.KindMissingFiles},
		{"a connection that only the journal knows", func(m *vfs.Mem) {
			for name := range r.files {
				if strings.Contains(name, r.id) {
					m.Remove(name)
				}
			}
		}, capture.KindMissingFiles},
		{"unsealed", func(m *vfs.Mem) {
			n := r.count()
			m.Rename(r.name(n, ".cap"), r.name(n, ".cap.partial"))
		}, capture.KindUnsealed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := r.mem()
			c.damage(m)
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m)})
			if err != nil {
				t.Fatal(err)
			}
			got := kinds(rep.Findings)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Fatalf("found %q, want %q: %+v", got, c.want, rep.Findings)
			}
			for _, f := range rep.Findings {
				if f.Connection != r.id || f.File == "" || f.Message == "" {
					t.Fatalf("no place: %+v", f)
				}
			}
			first, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m), First: true})
			if err != nil || len(first.Findings) != min(1, len(rep.Findings)) {
				t.Fatalf("--first: %+v, %v", first, err)
			}
		})
	}
}

// TestInfo: what there is, by frames and by sidecars, is the same where both
// tell it.
func TestInfo(t *testing.T) {
	r := recordMem(t, 1, 100, 2000)
	m := r.mem()
	full, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(m)})
	if err != nil {
		t.Fatal(err)
	}
	quick, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(m), Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range []*capture.Info{full, quick} {
		c := info.Connections[0]
		total := int64(0)
		for _, k := range c.Kinds {
			total += k.Count
		}
		if c.ID != r.id || c.Bytes != int64(len(r.stream)) || c.Files != r.count() || total != 100 || c.Rate == 0 || len(info.AllFindings()) > 0 {
			t.Fatalf("%+v", c)
		}
	}
	m.Remove(r.name(3, ".cap"))
	info, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(m)})
	if err != nil || len(info.Connections[0].Holes) != 1 || len(info.AllFindings()) == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// TestJournal: torn and foreign lines are stepped over, and swallow no other.
func TestJournal(t *testing.T) {
	m := vfs.NewMem()
	m.MkdirAll("/a")
	m.SetFile("/a/journal.jsonl", []byte(`{"event":"start"}`+"\n"+`{"event":"conn`))
	if err := capture.Append(m, "/a", true, capture.Entry{Event: capture.EventStop, Detail: "a\nb\x1b[31m" + strings.Repeat("x", 1<<20)}); err != nil {
		t.Fatal(err)
	}
	j, err := capture.ReadJournal(m, "/a")
	if err != nil || len(j.Entries) != 2 || j.Skipped != 1 || j.Entries[1].Event != capture.EventStop {
		t.Fatalf("%+v, %v", j, err)
	}
	if d := j.Entries[1].Detail; strings.ContainsAny(d, "\n\x1b") || len(d) > 5000 {
		t.Fatalf("detail %q", d[:100])
	}
	m.SetFile("/a/journal.jsonl", append(bytes.Repeat([]byte{0}, 300_000), "\n{\"event\":\"stop\"}\nnoise\n"...))
	j, err = capture.ReadJournal(m, "/a")
	if err != nil || len(j.Entries) != 1 || j.Skipped != 2 {
		t.Fatalf("%+v, %v", j, err)
	}
}

// TestSumsAtTheFarEnd: coreutils alone check a recovered directory too.
func TestSumsAtTheFarEnd(t *testing.T) {
	dir := t.TempDir()
	stream, _ := lenproto.Stream(1, 50, 100)
	name := filepath.Join(dir, "c00000001-00000007.00000001.cap.partial")
	if err := os.WriteFile(name, stream[:len(stream)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if rec, err := capture.Recover(dir, capture.Options{Registry: lenproto.Registry}); err != nil || len(rec) != 1 || rec[0].Tail != wire.KindCut {
		t.Fatal(rec, err)
	}
	cmd := exec.Command("sh", "-c", "sha256sum -c --quiet --strict *.sha256")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestHighestNumberInJournal: one line that names the last connection there can
// be is no reason to refuse the directory for ever.
func TestHighestNumberInJournal(t *testing.T) {
	mem, clock := vfs.NewMem(), newClock()
	mem.MkdirAll("/a")
	mem.SetFile("/a/c00000007-00000000.00000001.cap", []byte("x"))
	mem.SetFile("/a/journal.jsonl", []byte(`{"event":"connect","connection":"c00000009-00000000"}`+"\n"+`{"event":"connect","connection":"c99999999-00000000"}`+"\n"))
	for _, want := range []string{"c00000010-", "c00000011-"} {
		d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x"})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(w.ID(), want) {
			t.Errorf("the connection is %s, want %s…", w.ID(), want)
		}
		found := d.Findings()
		if len(found) != 1 || found[0].Kind != capture.KindCounter || found[0].File != capture.JournalName || found[0].Connection != "c99999999-00000000" {
			t.Errorf("findings: %+v", found)
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The last number but one is taken, then the last, and then the next free one.
	mem = vfs.NewMem()
	mem.MkdirAll("/a")
	mem.SetFile("/a/journal.jsonl", []byte(`{"event":"connect","connection":"c99999998-00000000"}`+"\n"))
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"c99999999-", "c00000001-", "c00000002-"} {
		w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://x"})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(w.ID(), want) {
			t.Errorf("the connection is %s, want %s…", w.ID(), want)
		}
	}
}
