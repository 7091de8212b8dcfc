package melin

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"wiretape/internal/fixture"
	"wiretape/wire"
)

// This file starts reading where no connection begins: anywhere in a stream, as
// --from-middle does, and at every boundary with what is known there.

func torture() bool { return os.Getenv("WIRETAPE_TORTURE") == "1" }

// named is a stream of the tests here.
type named struct {
	name string
	b    []byte
}

// everyStream is all golden streams and one of every layout.
func everyStream(t testing.TB) (all []named) {
	for _, name := range golden(t) {
		all = append(all, named{strings.TrimPrefix(name, "testdata/"), fixture.Read(t, name)})
	}
	for v := 1; v <= 8; v++ {
		all = append(all, named{fmt.Sprint("layout ", v), longStream(v)})
	}
	return append(all, named{"small", small(t)})
}

// longStream is a stream of a layout with frames enough to begin in.
func longStream(version int) []byte {
	b := oldStream(version)
	for seq := 106; seq < 140; seq += 3 {
		b = append(b, oldBatch(version, oldSlots(uint64(seq))[:3]...)...)
		b = append(b, oldHeartbeat(version, uint64(seq+2))...)
	}
	return b
}

// cuts are the offsets at which a stream is begun: all of a small one, of a large
// one those around its boundaries and some between.
func cuts(b []byte, us []unit) (at []int) {
	most, points := 4000, 100
	if torture() {
		most, points = 20_000, 4000
	}
	if len(b) < most {
		for i := 1; i < len(b); i++ {
			at = append(at, i)
		}
		return at
	}
	stride := max(1, len(us)*4/points)
	for i := 0; i < len(us); i += stride {
		off := int(us[i].Offset)
		for _, d := range []int{-5, -1, 0, 1, 4, 5, 7, 30} {
			at = append(at, off+d)
		}
	}
	for i := 1; i < len(b); i += len(b)/points + 1 {
		at = append(at, i)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	return slices.DeleteFunc(at, func(i int) bool { return i < 1 || i >= len(b) })
}

// decoded is all that a decoder tells of a frame.
func decoded(d *Decoder, u wire.Unit) string {
	fs, fault := d.Fields(u)
	line := wire.AppendJSON(nil, fs, sha256.Sum256)
	if fault != nil {
		line = fault.AppendJSON(line)
	}
	return d.Info(u).Name + string(line)
}

// reading is a reading of a stream from an offset on.
type reading struct {
	units  []unit
	fields []string
	found  []wire.Finding // in order, offsets in the whole stream
	ending wire.Ending
}

// readFrom reads from an offset on, at most so many frames; of the fields it takes
// those of the first frames. -1 is all.
func readFrom(t testing.TB, b []byte, from int, cfg wire.Config, most, fields int) (r reading) {
	t.Helper()
	d := open(t, cfg)
	in := wire.NewReader(bytes.NewReader(b[from:]), d, wire.ReaderOptions{Offset: int64(from)})
	for len(r.units) != most {
		u, fs, err := in.Next()
		r.found = append(r.found, fs...)
		if err != nil {
			r.ending = in.Ending()
			return r
		}
		if !bytes.Equal(u.Bytes, b[u.Offset:u.End()]) {
			t.Fatalf("from %d on: the bytes of the frame at %d are others", from, u.Offset)
		}
		if fields < 0 || len(r.units) < fields {
			r.fields = append(r.fields, decoded(d, u))
		}
		r.units = append(r.units, unit{Unit: u})
	}
	return r
}

// from is the number of the first unit at or behind an offset.
func (r *reading) from(off int) int {
	return slices.IndexFunc(r.units, func(u unit) bool { return int(u.Offset) >= off })
}

// claims holds what was found behind the beginning against what the whole stream
// has: nothing else may be said.
func (r *reading) claims(whole *reading) error {
	for _, f := range r.found {
		if f.Offset == r.found[0].Offset && (f.Kind == wire.KindBadPreamble || f.Kind == wire.KindLost) {
			continue
		}
		if !slices.ContainsFunc(whole.found, func(w wire.Finding) bool {
			return w.Kind == f.Kind && w.Offset == f.Offset && w.At == f.At && w.Message == f.Message
		}) {
			return fmt.Errorf("it claims %+v, which is not so", f)
		}
	}
	return nil
}

// A stream that begins anywhere, named by its protocol: every frame from the
// first one on that is whole is what it is in the whole stream, what was stepped
// over is a finding with its place, and nothing is said that is not so.
func TestStreamsThatBeginAnywhere(t *testing.T) {
	started := 0
	for _, s := range everyStream(t) {
		whole := readFrom(t, s.b, 0, wire.Config{Named: true}, -1, -1)
		for _, how := range []string{"named", "from middle", "cut by bytes"} {
			for i, cut := range cuts(s.b, whole.units) {
				at := fmt.Sprintf("%s, %s from byte %d on", s.name, how, cut)
				cfg := wire.Config{Named: true}
				switch how {
				case "from middle":
					cfg.Context = wire.MidStream(Name)
				case "cut by bytes":
					cfg.Context, cfg.Unaligned = wire.MidStream(Name), true
				}
				want := whole.from(cut)
				most, fields := -1, 12
				if i%16 > 0 {
					most, fields = 20, 3
				}
				got := readFrom(t, s.b, cut, cfg, most, fields)
				started++
				if want < 0 {
					if len(got.units) > 0 {
						t.Fatalf("%s: a frame at %d, where none is whole", at, got.units[0].Offset)
					}
					if len(got.found) == 0 || got.ending == wire.EndingClean {
						t.Fatalf("%s: %s, %+v", at, got.ending, got.found)
					}
					continue
				}
				if n := len(whole.units) - want; len(got.units) != n && (len(got.units) != most || n < most) {
					first := int64(-1)
					if len(got.units) > 0 {
						first = got.units[0].Offset
					}
					t.Errorf("%s: %d frames from %d on, want %d from %d on; %+v", at, len(got.units), first, len(whole.units)-want, whole.units[want].Offset, got.found)
					continue
				}
				for i, u := range got.units {
					if w := whole.units[want+i]; u.Offset != w.Offset || u.Size != w.Size || u.Kind != w.Kind {
						t.Fatalf("%s: frame %d is %s at %d, want %s at %d", at, i, TagName(u.Kind), u.Offset, TagName(w.Kind), w.Offset)
					}
				}
				for i, f := range got.fields {
					if f != whole.fields[want+i] {
						t.Errorf("%s: the frame at %d is\n%s\nwant\n%s", at, got.units[i].Offset, f, whole.fields[want+i])
						break
					}
				}
				passed := got.units[0].Offset - int64(cut)
				switch kind := map[string]string{"named": wire.KindBadPreamble}[how]; {
				case kind == "" && passed > 0:
					kind = wire.KindLost
					fallthrough
				case kind != "":
					_, dir := Protocol{}.Detect(s.b[cut:min(len(s.b), cut+wire.DetectLimit)], true)
					if dir != wire.DirectionUnknown {
						break // it begins as a connection does
					}
					if len(got.found) == 0 || got.found[0].Kind != kind || got.found[0].Offset != int64(cut) || got.found[0].Length != passed {
						t.Errorf("%s: found %+v, want %s over %d bytes", at, got.found, kind, passed)
					}
				}
				// The vectors are frames of many sessions, one behind the other.
				if err := got.claims(&whole); err != nil && !strings.HasPrefix(s.name, "vectors/") {
					t.Errorf("%s: %v", at, err)
				}
				if t.Failed() {
					break
				}
			}
		}
	}
	t.Log(started, "beginnings")
}
