package aewr

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"wiretape/wire"
)

// This file starts reading anywhere in a stream, as --from-middle does.

func torture() bool { return os.Getenv("WIRETAPE_TORTURE") == "1" }

// middle is a reading of a stream from an offset on.
type middle struct {
	units  []unit
	fields []string
	found  []wire.Finding
	ending wire.Ending
}

// begin reads from an offset on; of the fields it takes those of the first
// frames, -1 for all.
func begin(t testing.TB, stream []byte, from int, c wire.Config, fields int) (m middle) {
	t.Helper()
	d := open(t, c)
	r := wire.NewReader(bytes.NewReader(stream[from:]), d, wire.ReaderOptions{Offset: int64(from)})
	for {
		u, found, err := r.Next()
		m.found = append(m.found, found...)
		if err != nil {
			m.ending = r.Ending()
			return m
		}
		if !bytes.Equal(u.Bytes, stream[u.Offset:u.End()]) {
			t.Fatalf("from %d on: the bytes of the frame at %d are others", from, u.Offset)
		}
		if fields < 0 || len(m.units) < fields {
			fs, fault := d.Fields(u)
			line := append([]byte(d.Info(u).Name), wire.AppendJSON(nil, fs, sha256.Sum256)...)
			if fault != nil {
				line = fault.AppendJSON(line)
			}
			m.fields = append(m.fields, string(line))
		}
		m.units = append(m.units, unit{u.Offset, u.Size, u.Kind})
	}
}

// otherSums gives a stream whose peer computes the checksum in another way.
func otherSums(stream []byte) []byte {
	out := bytes.Clone(stream)
	for off := 0; off < len(out); {
		h, _ := ParseHeader(out[off:])
		for i := range 4 {
			out[off+offChecksum+i] ^= 0x5a
		}
		off += int(h.Size())
	}
	return out
}

// A stream that begins anywhere: every frame from the first header on is what it
// is in the whole stream, what was stepped over is a finding with its place, and
// nothing is said that is not so.
func TestStreamsThatBeginAnywhere(t *testing.T) {
	names, err := filepath.Glob("testdata/sessions/*.stream")
	if err != nil || len(names) != 10 {
		t.Fatal(names, err)
	}
	started := 0
	for _, name := range names {
		recorded, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, sums := range []string{"checksums that hold", "checksums of another scope"} {
			stream := recorded
			if sums != "checksums that hold" {
				stream = otherSums(recorded)
			}
			whole := begin(t, stream, 0, wire.Config{Named: true}, -1)
			for _, how := range []string{"named", "from middle", "cut by bytes"} {
				c := wire.Config{Named: true}
				switch how {
				case "from middle":
					c.Context = wire.MidStream(Name)
				case "cut by bytes":
					c.Context, c.Unaligned = wire.MidStream(Name), true
				}
				for cut := 1; cut < len(stream); cut++ {
					if !torture() && cut%13 > 0 && len(stream) > 2000 && !slices.ContainsFunc(whole.units, func(u unit) bool { return max(int(u.offset)-cut, cut-int(u.offset)) < 2 }) {
						continue
					}
					at := fmt.Sprintf("%s, %s, %s from byte %d on", name, sums, how, cut)
					started++
					want := slices.IndexFunc(whole.units, func(u unit) bool { return int(u.offset) >= cut })
					got := begin(t, stream, cut, c, 2)
					if want < 0 {
						if len(got.units) > 0 || len(got.found) == 0 || got.ending == wire.EndingClean {
							t.Fatalf("%s: %+v", at, got)
						}
						continue
					}
					if !slices.Equal(got.units, whole.units[want:]) {
						t.Fatalf("%s: %d frames %v, want %d from %d on; %+v", at, len(got.units), got.units[:min(2, len(got.units))], len(whole.units)-want, whole.units[want].offset, got.found)
					}
					for i, f := range got.fields {
						if f != whole.fields[want+i] {
							t.Fatalf("%s: the frame at %d is\n%s\nwant\n%s", at, got.units[i].offset, f, whole.fields[want+i])
						}
					}
					rest := got.found
					if passed := got.units[0].offset - int64(cut); passed > 0 {
						if len(rest) == 0 || rest[0].Kind != wire.KindLost || rest[0].Offset != int64(cut) || rest[0].Length != passed {
							t.Fatalf("%s: found %+v, want %d bytes stepped over", at, rest, passed)
						}
						rest = rest[1:]
					}
					for _, f := range rest {
						// What is said once of a connection is said of another frame.
						once := f.Kind == KindReading || f.Kind == KindDirection || f.Kind == KindChecksum && sums != "checksums that hold"
						if !once && !slices.ContainsFunc(whole.found, func(w wire.Finding) bool {
							return w.Kind == f.Kind && w.Offset == f.Offset && w.At == f.At && (w.Message == f.Message || f.Kind == KindEpochFence)
						}) || once && !slices.ContainsFunc(whole.found, func(w wire.Finding) bool { return w.Kind == f.Kind }) {
							t.Fatalf("%s: it claims %+v", at, f)
						}
					}
				}
			}
		}
	}
	t.Log(started, "beginnings")
}

// The same in whatever pieces the bytes come.
func TestBeginsAnywhereInPieces(t *testing.T) {
	recorded, err := os.ReadFile("testdata/sessions/v31-up.stream")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(6, 7))
	for _, stream := range [][]byte{recorded, otherSums(recorded)} {
		for cut := 1; cut < len(stream); cut += 29 {
			c := wire.Config{Context: wire.MidStream(Name), Unaligned: cut%2 == 0}
			want := begin(t, stream, cut, c, 0)
			for _, most := range []int{1, 40, 5000} {
				units, found, clean := scan(stream[cut:], open(t, c), rng, most)
				for i := range units {
					units[i].offset += int64(cut)
				}
				if !slices.Equal(units, want.units) || clean != (want.ending == wire.EndingClean) || len(found) > 0 != (len(want.found) > 0) {
					t.Fatalf("from byte %d on, in pieces of up to %d: %d frames, %v, want %d", cut, most, len(units), found, len(want.units))
				}
			}
		}
	}
}
