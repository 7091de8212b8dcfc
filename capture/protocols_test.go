package capture_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/fixture"
	"wiretape/internal/vfs"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// realStreams are the streams of all protocols that the decoders are tested
// with, and what each is of.
func realStreams(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, glob := range []string{"dendro/testdata/*/*.stream", "melin/testdata/*/*.bin.gz", "aewr/testdata/sessions/*.stream"} {
		names, err := filepath.Glob(filepath.Join("../wire", glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			out[strings.TrimPrefix(n, "../wire/")] = fixture.Read(t, n)
		}
	}
	return out
}

// unitsOf reads a connection and says what units and findings there are.
func unitsOf(t *testing.T, c *capture.Connection) (lines []string, found []string) {
	t.Helper()
	r := c.Units()
	defer r.Close()
	for {
		u, fs, err := r.Next()
		for _, f := range fs {
			found = append(found, fmt.Sprintf("%s at %d", f.Kind, f.Offset))
		}
		if err == io.EOF {
			return lines, found
		}
		if err != nil {
			t.Fatal(err)
		}
		info := r.Decoder().Info(u)
		lines = append(lines, fmt.Sprintf("%d %d %d %s %d %d %q", u.Offset, u.Size, u.Kind, info.Label, info.Source, info.Time, info.Stream))
	}
}

// TestEveryProtocol records the streams that the decoders are tested with, in
// reads of random size and small files. The files hold the stream; verify finds
// nothing but what is in the stream itself; and every file read alone, by the
// context in its sidecar, gives the units that it gives in its place.
func TestEveryProtocol(t *testing.T) {
	streams := realStreams(t)
	seen := map[string]int{}
	for name, stream := range streams {
		if len(stream) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			raw := vfs.NewMem()
			raw.MkdirAll("/r")
			raw.SetFile("/r/s", stream)
			p, _, _ := protocols.All().Detect(stream, true)
			if p == nil {
				// Crafted not to be recognised.
				return
			}
			seen[p.Name()]++
			set, err := capture.OpenInputs([]string{"/r/s"}, capture.InputOptions{FS: raw})
			if err != nil {
				t.Fatal(err)
			}
			want, wantFound := unitsOf(t, set.Connections[0])

			mem, _ := recordReal(t, stream, int64(max(len(stream)/15, 200)))
			set, err = capture.OpenInputs([]string{"/a"}, capture.InputOptions{FS: mem})
			if err != nil {
				t.Fatal(err)
			}
			c := set.Connections[0]
			if c.Protocol != p.Name() || len(c.Findings) > 0 {
				t.Fatalf("%s, %v", c.Protocol, c.Findings)
			}
			if got := readAllRuns(t, c); !bytes.Equal(got, stream) {
				t.Fatal("the files do not hold the stream")
			}
			got, gotFound := unitsOf(t, c)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("%d units in files, %d in the stream", len(got), len(want))
			}
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: capture.InputOptions{FS: mem}})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range rep.Findings {
				if f.Kind == capture.KindSidecarStale || f.Kind == capture.KindTornBytes || f.Kind == capture.KindIndex || f.Kind == capture.KindSums {
					t.Errorf("verify: %+v", f)
				}
			}
			if len(wantFound) == 0 && len(rep.Findings) > 0 {
				t.Fatalf("verify: %+v", rep.Findings)
			}
			if len(gotFound) == 0 {
				eachFileAlone(t, mem, c, got)
			}
		})
	}
	for _, p := range protocols.All() {
		if seen[p.Name()] < 2 {
			t.Errorf("%d streams of %s", seen[p.Name()], p.Name())
		}
	}
}

// recordReal records a stream into /a of a file system, and says how it ended.
func recordReal(t *testing.T, stream []byte, limit int64) (*vfs.Mem, wire.Ending) {
	t.Helper()
	mem, clock := vfs.NewMem(), newClock()
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, RotateBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://real"})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(len(stream)), 2))
	for p := stream; len(p) > 0; {
		n := min(1+rng.IntN(2000), len(p))
		if _, err := w.Write(p[:n], clock.pass(1e6)); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
	}
	ending, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return mem, ending
}

// eachFileAlone reads every file by itself.
func eachFileAlone(t *testing.T, mem *vfs.Mem, c *capture.Connection, whole []string) {
	t.Helper()
	at := map[int64]int{}
	for i, l := range whole {
		var off int64
		if _, err := fmt.Sscan(l, &off); err != nil {
			t.Fatal(err)
		}
		at[off] = i
	}
	for _, f := range c.Files {
		if f.Length == 0 || !f.Sidecar.StartsAtBoundary {
			continue
		}
		set, err := capture.OpenInputs([]string{f.Path}, capture.InputOptions{FS: mem})
		if err != nil {
			t.Fatal(err)
		}
		got, found := unitsOf(t, set.Connections[0])
		i, ok := at[f.Start]
		if !ok || i+len(got) > len(whole) {
			t.Fatalf("file %d at %d: %d units", f.Number, f.Start, len(got))
		}
		for k, l := range got {
			if l != whole[i+k] {
				t.Fatalf("file %d alone: unit %q, in its place %q", f.Number, l, whole[i+k])
			}
		}
		for _, x := range found {
			if strings.HasPrefix(x, wire.KindCut) || strings.HasPrefix(x, wire.KindBadLength) || strings.HasPrefix(x, wire.KindMalformed) {
				t.Fatalf("file %d alone: %v", f.Number, found)
			}
		}
	}
}

// TestDetectionHoldsNoBoundary records streams in one piece. Whether the
// protocol is named or found out from the first bytes, the files end at the
// same places, also among those first bytes.
func TestDetectionHoldsNoBoundary(t *testing.T) {
	lengths := func(t *testing.T, stream []byte, protocol string) []int {
		mem, clock := vfs.NewMem(), newClock()
		d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, RotateBytes: 150})
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://real", Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(stream, clock.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
		var out []int
		files := mem.Files()
		for _, n := range slices.Sorted(maps.Keys(files)) {
			if strings.HasSuffix(n, ".cap") {
				out = append(out, len(files[n]))
			}
		}
		return out
	}
	streams := realStreams(t)
	streams["raw"] = bytes.Repeat([]byte("a line of text, of no protocol at all\n"), 105)
	for name, stream := range streams {
		stream = stream[:min(len(stream), 3*wire.DetectLimit)]
		protocol := capture.ProtocolRaw
		if p, _, _ := protocols.All().Detect(stream, true); p != nil {
			protocol = p.Name()
		} else if name != "raw" {
			continue
		}
		auto, named := lengths(t, stream, capture.ProtocolAuto), lengths(t, stream, protocol)
		if !slices.Equal(auto, named) {
			t.Errorf("%s: files of %d bytes with the protocol found out, of %d with it named", name, auto, named)
		}
		if name == "raw" && len(auto) != (len(stream)+149)/150 {
			t.Errorf("raw: %d files of %d bytes", len(auto), len(stream))
		}
	}
}
