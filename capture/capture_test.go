package capture_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/wire"
)

// record writes a stream into dir as one connection, in reads of random size.
func record(t testing.TB, dir string, stream []byte, opt capture.Options, clock *fakeClock) string {
	t.Helper()
	opt.Registry = lenproto.Registry
	opt.Clock = clock
	d, err := capture.Create(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://test", Protocol: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(stream))))
	for p := stream; len(p) > 0; {
		n := min(1+rng.IntN(700), len(p))
		if m, err := w.Write(p[:n], clock.pass(1e6)); err != nil || m != n {
			t.Fatalf("write gave %d, %v", m, err)
		}
		p = p[n:]
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return w.ID()
}

func newClock() *fakeClock { return &fakeClock{now: capture.Instant{Wall: 1_700_000_000e9, Mono: 5e9}} }

// capFiles are the names of the bytes in a folder, in order of name.
func capFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		switch capture.ParseName(n.Name()).Form {
		case capture.FormBytes, capture.FormPartial, capture.FormCompressed:
			out = append(out, filepath.Join(dir, n.Name()))
		}
	}
	sort.Strings(out)
	return out
}

func cat(t testing.TB, dir string) []byte {
	t.Helper()
	var all []byte
	for _, f := range capFiles(t, dir) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

func readRun(t testing.TB, r *capture.Run) []byte {
	t.Helper()
	rr, opt := r.Open()
	if opt.Offset != r.Start {
		t.Fatalf("the run starts at %d, its reader at %d", r.Start, opt.Offset)
	}
	b, err := io.ReadAll(rr)
	if err != nil {
		t.Fatal(err)
	}
	if f := rr.Findings(); len(f) > 0 {
		t.Fatalf("findings while reading: %v", f)
	}
	if err := rr.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, opt capture.InputOptions, paths ...string) *capture.Set {
	t.Helper()
	opt.Registry = lenproto.Registry
	set, err := capture.OpenInputs(paths, opt)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func kinds(fs []wire.Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Kind)
	}
	return strings.Join(out, " ")
}

func TestRecordAndRead(t *testing.T) {
	stream, ends := lenproto.Stream(3, 400, 300)
	boundary := map[int64]bool{}
	for _, e := range ends {
		boundary[e] = true
	}
	for _, limit := range []int64{0, 500, 4000} {
		dir := t.TempDir()
		id := record(t, dir, stream, capture.Options{RotateBytes: limit}, newClock())
		if !bytes.Equal(cat(t, dir), stream) {
			t.Fatal("the files do not hold the stream")
		}
		set := open(t, capture.InputOptions{}, dir)
		if len(set.Connections) != 1 || len(set.Findings) > 0 {
			t.Fatalf("got %d connections and %v", len(set.Connections), set.Findings)
		}
		c := set.Connections[0]
		if c.ID != id || c.Protocol != lenproto.Name || c.Direction != wire.Downstream || c.Endpoint != "tcp://test" || len(c.Findings) > 0 {
			t.Fatalf("got %+v", c)
		}
		if c.Transport == nil || c.Transport.Kind != sidecar.TransportClean {
			t.Fatalf("verdict %v", c.Transport)
		}
		if len(c.Runs()) != 1 || c.Runs()[0].Context != nil || !bytes.Equal(readRun(t, c.Runs()[0]), stream) {
			t.Fatal("the run is not the stream")
		}
		if limit > 0 && len(c.Files) < len(stream)/int(limit+300) {
			t.Fatalf("limit %d gave %d files", limit, len(c.Files))
		}
		for i, f := range c.Files {
			s := f.Sidecar
			if s == nil || !boundary[f.Start] || !boundary[f.End()] || !s.StartsAtBoundary || !s.EndsAtBoundary || s.Framing != sidecar.FramingFrames || s.Boundary != f.End() {
				t.Fatalf("file %d from %d to %d: %+v", f.Number, f.Start, f.End(), s)
			}
			sum := sha256.Sum256(stream[f.Start:f.End()])
			if s.SHA256 != hex.EncodeToString(sum[:]) {
				t.Fatalf("file %d: wrong hash", f.Number)
			}
			if i > 0 && (s.PreviousSHA256 != c.Files[i-1].Sidecar.SHA256 || f.WholeSidecar().Context == nil) {
				t.Fatalf("file %d: %+v", f.Number, s)
			}
			all, cut, err := f.Arrivals()
			if err != nil || cut || len(all) == 0 || all[0].Offset != f.Start || all[len(all)-1].Offset+all[len(all)-1].Length != f.End() {
				t.Fatalf("file %d: arrivals %v %v %v", f.Number, all, cut, err)
			}
			// Each file alone has its place and its context.
			one := open(t, capture.InputOptions{}, f.Path).Connections[0].Runs()
			if len(one) != 1 || one[0].Start != f.Start || (one[0].Context == nil) != (f.Start == 0) {
				t.Fatalf("file %d alone: %+v", f.Number, one)
			}
		}
		cmd := exec.Command("sh", "-c", "sha256sum -c --quiet *.sha256")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("sha256sum -c: %v\n%s", err, out)
		}
	}
}

func readAllRuns(t testing.TB, c *capture.Connection) []byte {
	t.Helper()
	var all []byte
	for _, r := range c.Runs() {
		all = append(all, readRun(t, r)...)
	}
	return all
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
