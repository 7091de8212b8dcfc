package capture_test

// How a stream ended is said alike by all that read it.

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
	"wiretape/wire/dendro"
	"wiretape/wire/protocols"
)

// endings are the findings about how bytes ended, and what was stepped over.
func endings(fs []wire.Finding) string {
	var b strings.Builder
	for _, f := range fs {
		switch f.Kind {
		case wire.KindCut, wire.KindZeroTail, wire.KindDoubtful, wire.KindLost, wire.KindBadLength:
			fmt.Fprintf(&b, "%s at %d, %d bytes\n", f.Kind, f.Offset, f.Length)
		}
	}
	return b.String()
}

// read gives the findings and the ending of the only connection there.
func read(t *testing.T, m *vfs.Mem, path string) (found []wire.Finding, end wire.Ending, whole int64) {
	t.Helper()
	set, err := capture.OpenInputs([]string{path}, capture.InputOptions{FS: m})
	if err != nil {
		t.Fatal(err)
	}
	r := set.Connections[0].Units()
	defer r.Close()
	for {
		u, fs, err := r.Next()
		found = append(found, fs...)
		if err == io.EOF {
			return found, r.Ending(), whole
		}
		if err != nil {
			t.Fatal(err)
		}
		whole = u.End()
	}
}

func verified(t *testing.T, m *vfs.Mem, path string) []wire.Finding {
	t.Helper()
	rep, err := capture.Verify([]string{path}, capture.VerifyOptions{Input: capture.InputOptions{FS: m}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rep.Findings {
		if f.Kind == capture.KindSidecarStale {
			t.Errorf("%+v", f)
		}
	}
	return rep.Findings
}

// TestEndingsAgree cuts the streams of all protocols anywhere and lets zeros
// follow. Verify and who reads units say the same of it, of the bytes alone, of a
// file that its recorder left and recovery sealed, and of one that was recorded
// so, where the zeros are the sender's own.
func TestEndingsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	tails := map[wire.Ending]int{}
	for name, stream := range realStreams(t) {
		if p, _, _ := protocols.All().Detect(stream, true); p == nil || len(stream) < 64 {
			continue
		}
		cuts := []int{len(stream)}
		for range 6 {
			cuts = append(cuts, 32+r.IntN(min(len(stream), 300_000)-32))
		}
		if strings.HasSuffix(name, "real/small.stream") {
			cuts = append(cuts, 100_000, 89_871, 253_400)
		}
		for _, cut := range cuts {
			for _, zeros := range []int{0, 3, 100, 700, 4096, 5000} {
				b := append(stream[:cut:cut], make([]byte, zeros)...)
				what := fmt.Sprintf("%s, first %d bytes and %d zeros", name, cut, zeros)
				m := vfs.NewMem()
				m.MkdirAll("/r")
				m.SetFile("/r/s", b)
				found, end, whole := read(t, m, "/r/s")
				tails[end]++
				want := endings(found)
				if got := endings(verified(t, m, "/r/s")); got != want {
					t.Fatalf("%s: verify says\n%sreading says\n%s", what, got, want)
				}

				m.MkdirAll("/p")
				m.SetFile("/p/c00000001-00000007.00000001.cap.partial", b)
				rec, err := capture.Recover("/p", capture.Options{FS: m, Clock: newClock()})
				if err != nil || len(rec) != 1 {
					t.Fatal(what, err)
				}
				if tail := rec[0].Tail; end != "" && tail != string(end) && !(end == wire.EndingClean && tail == "") || rec[0].Whole != whole && rec[0].Whole != int64(len(b)) {
					t.Fatalf("%s: recovery says %+v, reading %s, whole to %d", what, rec[0], end, whole)
				}
				found, again, _ := read(t, m, "/p")
				if got := endings(found); got != want || again != end {
					t.Fatalf("%s: recovered, reading says %s\n%swithout %s\n%s", what, again, got, end, want)
				}
				if got := endings(verified(t, m, "/p")); got != want {
					t.Fatalf("%s: recovered, verify says\n%swithout\n%s", what, got, want)
				}
				if zeros == 100 || zeros == 5000 {
					asRecorded(t, what, b)
				}
			}
		}
	}
	for _, e := range []wire.Ending{wire.EndingClean, wire.EndingCut, wire.EndingZeroTail} {
		if tails[e] < 10 {
			t.Errorf("%d streams ended %s", tails[e], e)
		}
	}
}

func asRecorded(t *testing.T, what string, b []byte) {
	t.Helper()
	m, end := recordReal(t, b, 100_000)
	found, again, _ := read(t, m, "/a")
	if again != end {
		t.Fatalf("%s: recorded as %q, read as %q", what, end, again)
	}
	if got, want := endings(verified(t, m, "/a")), endings(found); got != want {
		t.Fatalf("%s: recorded, verify says\n%sreading says\n%s", what, got, want)
	}
	info, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Quick: true, Input: capture.InputOptions{FS: m}})
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Connections[0].Framing; end != "" && got != string(end) {
		t.Fatalf("%s: recorded as %q, by the sidecar %q", what, end, got)
	}
}

// TestGarbageAtTheEnd: bytes in which no frame is, behind the last frame. Who
// records them, recovers a file that ends in them, verifies and reads says that
// the framing was lost there; a frame that is known only by the end counts.
func TestGarbageAtTheEnd(t *testing.T) {
	tails := map[string][]byte{
		"100 bytes of ff":      bytes.Repeat([]byte{0xff}, 100),
		"5 bytes of ff":        bytes.Repeat([]byte{0xff}, 5),
		"ff and text":          append(bytes.Repeat([]byte{0xff}, 100), "abc"...),
		"a length of nothing":  make([]byte, 4),
		"two lengths of zeros": make([]byte, 8),
		"a frame of no kind":   {1, 0, 0, 0, 77},
		"half a length":        {9, 0},
	}
	for name, stream := range realStreams(t) {
		if p, _, _ := protocols.All().Detect(stream, true); p == nil || p.Name() != dendro.Name || len(stream) < 64 {
			continue
		}
		if u, e := lastWhole(stream); e != wire.EndingClean || u != int64(len(stream)) {
			continue // it ends in something else already
		}
		for tail, b := range tails {
			what := name + " and " + tail
			b := append(stream[:len(stream):len(stream)], b...)
			whole, ending := lastWhole(b)
			m, end := recordReal(t, b, 1<<30)
			if end != ending {
				t.Errorf("%s: recorded as %q, read as %q", what, end, ending)
			}
			set, err := capture.OpenInputs([]string{"/a"}, capture.InputOptions{FS: m})
			if err != nil {
				t.Fatal(what, err)
			}
			s := set.Connections[0].Files[0].Sidecar
			if s.Boundary != whole || s.EndsAtBoundary != (ending == wire.EndingClean) || (s.Framing == sidecar.FramingLost) != (ending == wire.EndingLost) {
				t.Errorf("%s: the sidecar says %s, a boundary at %d (%v); want %s, %d", what, s.Framing, s.Boundary, s.EndsAtBoundary, ending, whole)
			}
			verified(t, m, "/a")

			m = vfs.NewMem()
			m.MkdirAll("/p")
			m.SetFile("/p/c00000001-00000007.00000001.cap.partial", b)
			rec, err := capture.Recover("/p", capture.Options{FS: m, Clock: newClock()})
			if err != nil || len(rec) != 1 {
				t.Fatal(what, err)
			}
			want := string(ending)
			if ending == wire.EndingClean {
				want = ""
			}
			if len(bytes.Trim(tails[tail], "\x00")) == 0 && rec[0].Tail == wire.KindZeroTail {
				continue // as a power loss may have left them
			}
			if rec[0].Tail != want || rec[0].Whole != whole {
				t.Errorf("%s: recovery says %q, whole to %d; want %q, %d", what, rec[0].Tail, rec[0].Whole, want, whole)
			}
			verified(t, m, "/p")
		}
	}
}

// lastWhole is where the last unit of a stream ends that is no junk, and how the
// stream does.
func lastWhole(b []byte) (end int64, how wire.Ending) {
	dec, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		panic(err)
	}
	r := wire.NewReader(bytes.NewReader(b), dec, wire.ReaderOptions{})
	for {
		u, _, err := r.Next()
		if err != nil {
			return end, r.Ending()
		}
		end = u.End()
	}
}

// TestTransportCut: a transport that was cut where a frame ends is told by verify
// and info, once and at the connection's end; one that was cut inside a frame is
// told by its frames alone, and one that ended otherwise not at all.
func TestTransportCut(t *testing.T) {
	var b []byte
	for name, s := range realStreams(t) {
		if strings.HasSuffix(name, "real/small.stream") {
			b = s
		}
	}
	whole, _ := lastWhole(b)
	for what, c := range map[string]struct {
		bytes []byte
		kind  string
		want  string
	}{
		"at a boundary":  {b[:whole], sidecar.TransportCut, capture.KindTransportCut},
		"inside a frame": {b[:whole-1], sidecar.TransportCut, wire.KindCut},
		"raw":            {[]byte("these are words of nobody"), sidecar.TransportCut, capture.KindTransportCut},
		"nothing":        {nil, sidecar.TransportCut, ""},
		"clean":          {b[:whole], sidecar.TransportClean, ""},
		"no witness":     {b[:whole], sidecar.TransportUnwitnessed, ""},
	} {
		m := vfs.NewMem()
		d, err := capture.Create("/r", capture.Options{FS: m, Clock: newClock(), RotateBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{Protocol: "auto"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(c.bytes, newClock().Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(sidecar.Verdict{Kind: c.kind, Detail: "cut: why"}, sidecar.ClosedError); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		in := capture.InputOptions{FS: m}
		rep, err := capture.Verify([]string{"/r"}, capture.VerifyOptions{Input: in})
		if err != nil {
			t.Fatal(err)
		}
		info, err := capture.Describe([]string{"/r"}, capture.InfoOptions{Input: in})
		if err != nil {
			t.Fatal(err)
		}
		for how, found := range map[string][]wire.Finding{"verify": rep.Findings, "info": info.AllFindings()} {
			if got := kinds(found); got != c.want {
				t.Errorf("%s, %s: found %q, want %q", what, how, got, c.want)
			} else if got == capture.KindTransportCut && found[0].Offset != int64(len(c.bytes)) {
				t.Errorf("%s, %s: %+v", what, how, found[0])
			}
		}
		if said := strings.Contains(fmt.Sprint(rep.Unproven), "no witness"); said != (c.kind == sidecar.TransportUnwitnessed) {
			t.Errorf("%s: not proved: %v", what, rep.Unproven)
		}
	}
}
