package dendro_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"wiretape/internal/fixture"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// whole makes a scanner hold all of every frame, so that it finds what a reader
// finds.
type whole struct{ *dendro.Decoder }

func (w whole) Head(b []byte, end bool) wire.Head {
	h := w.Decoder.Head(b, end)
	if h.Type == wire.UnitFrame {
		h.Peek = h.Size
	}
	return h
}

type place struct {
	t            wire.UnitType
	offset, size int64
	kind         uint32
}

type run struct {
	places []place
	found  []wire.Finding
	clean  bool
}

func scan(dec wire.Decoder, stream []byte, limit int, piece func() int) run {
	return scanTo(dec, stream, limit, wire.Zeros{}, piece)
}

// scanTo is scan of what ends in zeros.
func scanTo(dec wire.Decoder, stream []byte, limit int, z wire.Zeros, piece func() int) run {
	var r run
	s := wire.NewScanner(dec, 0, limit)
	s.EndsIn(z, int64(len(stream)))
	add := func(u wire.Unit) { r.places = append(r.places, place{u.Type, u.Offset, u.Size, u.Kind}) }
	for p := stream; len(p) > 0; {
		b := p[:min(piece(), len(p))]
		p = p[len(b):]
		for len(b) > 0 {
			n, u, done := s.Next(b)
			b = b[n:]
			if done {
				add(u)
			}
			if s.Skippable() > 0 && len(b) > 0 {
				n := min(s.Skippable(), int64(len(b)))
				if u, done := s.Skip(n); done {
					add(u)
				}
				b = b[n:]
			}
		}
	}
	for {
		u, done := s.Rest()
		if !done {
			break
		}
		add(u)
	}
	r.clean = s.Finish() == wire.EndingClean
	r.found = s.Findings()
	return r
}

func read(t testing.TB, stream []byte, src io.Reader) run {
	var r run
	rd := wire.NewReader(src, newDecoder(t), wire.ReaderOptions{})
	for {
		u, found, err := rd.Next()
		r.found = append(r.found, found...)
		if err == io.EOF {
			r.clean = rd.Ending() == wire.EndingClean
			return r
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(u.Bytes, stream[u.Offset:u.End()]) {
			t.Fatalf("the bytes of the unit at %d differ", u.Offset)
		}
		r.places = append(r.places, place{u.Type, u.Offset, u.Size, u.Kind})
	}
}

func (a run) diff(b run) string {
	if !reflect.DeepEqual(a.places, b.places) {
		return fmt.Sprintf("units differ: %v and %v", tail(a.places), tail(b.places))
	}
	if len(a.found)+len(b.found) > 0 && !reflect.DeepEqual(a.found, b.found) {
		return fmt.Sprintf("findings differ:\n%+v\n%+v", a.found, b.found)
	}
	if a.clean != b.clean {
		return fmt.Sprintf("clean is %v and %v", a.clean, b.clean)
	}
	return ""
}

func tail(p []place) []place { return p[max(0, len(p)-6):] }

// sameBothWays holds the scanner, in pieces of any size, against the reader.
func sameBothWays(t testing.TB, stream []byte, rng *rand.Rand) {
	t.Helper()
	want := read(t, stream, bytes.NewReader(stream))
	for _, most := range []int{1, 7, 300, 1 << 20} {
		got := scan(whole{newDecoder(t)}, stream, 1<<30, func() int { return 1 + rng.IntN(most) })
		if d := got.diff(want); d != "" {
			t.Fatalf("pieces up to %d: %s", most, d)
		}
		if most == 1 && len(stream) > 1<<15 {
			continue
		}
		// With peeks alone the units are the same.
		got = scan(newDecoder(t), stream, 0, func() int { return 1 + rng.IntN(most) })
		if !reflect.DeepEqual(got.places, want.places) || got.clean != want.clean {
			t.Fatalf("peeking, pieces up to %d: units differ: %v and %v", most, tail(got.places), tail(want.places))
		}
		// And so are the findings, whatever the pieces.
		if again := scan(newDecoder(t), stream, 0, func() int { return 1 + rng.IntN(50) }); again.diff(got) != "" {
			t.Fatalf("peeking: pieces change what is found: %s", again.diff(got))
		}
	}
	got := read(t, stream, iotest.OneByteReader(iotest.DataErrReader(bytes.NewReader(stream))))
	if d := got.diff(want); d != "" {
		t.Fatal("byte by byte:", d)
	}
	tiles(t, want, int64(len(stream)))
}

// tiles says that units and what was stepped over cover the stream without
// overlap, up to a partial unit at the end.
func tiles(t testing.TB, r run, size int64) {
	t.Helper()
	at := int64(0)
	skipped := map[int64]int64{}
	for _, f := range r.found {
		switch f.Kind {
		case wire.KindLost, wire.KindBadLength, wire.KindCut, wire.KindBadPreamble, wire.KindBadVersion:
			skipped[f.Offset] += f.Length
		}
		if f.Offset < 0 || f.Byte()+f.Length > size {
			t.Fatalf("a finding outside the stream: %+v", f)
		}
	}
	for _, p := range r.places {
		at += skipped[at]
		if p.offset != at || p.size <= 0 {
			t.Fatalf("a unit at %d, the one before ends at %d", p.offset, at)
		}
		at += p.size
	}
	at += skipped[at]
	at += skipped[at] // junk, then a cut
	if at != size {
		t.Fatalf("%d of %d bytes are accounted for", at, size)
	}
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func load(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestScannerEqualsReader(t *testing.T) {
	rng := seeded(t)
	for _, name := range streams(t) {
		t.Run(strings.TrimPrefix(name, "testdata/"), func(t *testing.T) { sameBothWays(t, load(t, name), rng) })
	}
}

// torture says that the long form is wanted.
func torture() bool { return os.Getenv("WIRETAPE_TORTURE") == "1" }

// TestDamage flips, zeroes, repeats and removes stretches of every stream:
// whatever comes, both drivers tell the same and account for every byte.
func TestDamage(t *testing.T) {
	rng := seeded(t)
	most := 12
	if torture() {
		most = 300
	}
	for _, name := range streams(t) {
		orig := load(t, name)
		if len(orig) == 0 || len(orig) > 40_000 && !torture() {
			continue
		}
		for range min(most, 3_000_000/len(orig)) {
			s := bytes.Clone(orig)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(s))
				n := min(1+rng.IntN(40), len(s)-at)
				switch rng.IntN(5) {
				case 0:
					s[at] ^= 1 << rng.IntN(8)
				case 1:
					clear(s[at : at+n])
				case 2:
					s = append(s[:at:at], s[at+n:]...)
				case 3:
					s = append(s[:at+n:at+n], s[at:]...)
				case 4:
					s[at] = byte(rng.Uint32())
				}
				if len(s) == 0 {
					break
				}
			}
			sameBothWays(t, s, rng)
		}
	}
}

// TestFlips flips every byte of the small streams: each ends, and what is
// before the flipped frame is as it was.
func TestFlips(t *testing.T) {
	for _, name := range streams(t) {
		orig := load(t, name)
		if len(orig) > 1500 {
			continue
		}
		want := read(t, orig, bytes.NewReader(orig))
		for at := range orig {
			for _, bit := range []byte{1, 0x80, 0xff} {
				s := bytes.Clone(orig)
				s[at] ^= bit
				got := read(t, s, bytes.NewReader(s))
				tiles(t, got, int64(len(s)))
				for i, p := range want.places {
					if p.offset+p.size > int64(at) {
						break
					}
					if i >= len(got.places) || got.places[i] != p {
						t.Fatalf("%s: byte %d flipped changes the unit at %d", name, at, p.offset)
					}
				}
			}
		}
	}
}

// TestCutAtEveryByte: clean exactly at the boundaries, else a cut at the frame
// that is not whole, saying how much of it there is.
func TestCutAtEveryByte(t *testing.T) {
	for _, name := range streams(t) {
		s := load(t, name)
		all := read(t, s, bytes.NewReader(s))
		if !all.clean {
			continue
		}
		step := 1
		if len(s) > 100_000 && !strings.HasSuffix(name, "real/small.stream") && !torture() {
			step = 97
		}
		d := newDecoder(t)
		for i, p := range all.places {
			ctx := d.Context(1 << 20)
			frame := s[p.offset : p.offset+p.size]
			for n := 1; n < len(frame); n += step {
				checkCut(t, name, s[:p.offset], frame[:n], p, ctx)
			}
			d.Observe(wire.Unit{Type: p.t, Offset: p.offset, Size: p.size, Kind: p.kind, Bytes: frame}, nil)
			// From the start, at the boundary and around it.
			for n := int(p.offset); n < int(p.offset+min(6, p.size)) && len(s) < 60_000; n++ {
				steps, found, end := readAll(t, s[:n], newDecoder(t), wire.ReaderOptions{})
				clean := n == int(p.offset) && i > 0
				if (end == wire.EndingClean) != clean || (len(found) == 0) != clean || len(steps) != i {
					t.Fatalf("%s cut at %d: %s, %d units, %v", name, n, end, len(steps), found)
				}
			}
		}
	}
}

// checkCut reads the first bytes of one frame with what came before known.
func checkCut(t *testing.T, name string, before, part []byte, p place, ctx *wire.Context) {
	t.Helper()
	d, err := dendro.NewDecoder(wire.Config{Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	steps, found, end := readAll(t, part, d, wire.ReaderOptions{Offset: int64(len(before))})
	n := int64(len(part))
	if end != wire.EndingCut || len(steps) != 0 || len(found) != 1 || found[0].Kind != wire.KindCut || found[0].Offset != p.offset || found[0].Length != n {
		t.Fatalf("%s cut at %d: %s, %d units, %+v", name, p.offset+n, end, len(steps), found)
	}
	if n >= 4 && !strings.Contains(found[0].Message, fmt.Sprintf("got %d of %d", n, p.size)) {
		t.Fatalf("%s cut at %d: %s", name, p.offset+n, found[0].Message)
	}
}

// zerosFrom is where the run of zeros begins in which b ends.
func zerosFrom(b []byte) int64 { return int64(len(bytes.TrimRight(b, "\x00"))) }

// TestZeroTail zeroes every stream from every sector on and appends zeros: no
// frame is made of zeros, and the verdict names where they begin.
func TestZeroTail(t *testing.T) {
	for _, name := range streams(t) {
		orig := load(t, name)
		all := read(t, orig, bytes.NewReader(orig))
		if !all.clean {
			continue
		}
		for from := wire.SectorSize; from < len(orig); from += wire.SectorSize {
			if len(orig) > 60_000 && from%(16*wire.SectorSize) != 0 && !torture() {
				continue
			}
			for _, more := range []int{0, 5000} {
				s := append(bytes.Clone(orig[:from]), make([]byte, len(orig)-from+more)...)
				checkZeroTail(t, fmt.Sprintf("%s zeroed from %d, %d more", name, from, more), s, orig, all, from)
			}
		}
		for _, more := range []int{4, 8, 511, 512, 4096} {
			s := append(bytes.Clone(orig), make([]byte, more)...)
			checkZeroTail(t, fmt.Sprintf("%s with %d zeros", name, more), s, orig, all, len(orig))
		}
	}
}

func checkZeroTail(t *testing.T, what string, s, orig []byte, all run, from int) {
	t.Helper()
	z := zerosFrom(s)
	steps, found, end := readAll(t, s, newDecoder(t), wire.ReaderOptions{Zeros: wire.ZerosFrom(z, 0)})
	next := int64(0)
	for i, u := range steps {
		if u.unit.Offset != all.places[i].offset {
			t.Fatalf("%s: a unit at %d, was at %d", what, u.unit.Offset, all.places[i].offset)
		}
		if !bytes.Equal(u.unit.Bytes, orig[u.unit.Offset:u.unit.End()]) && u.unit.End() != int64(len(s)) {
			t.Fatalf("%s: the unit at %d is not what was sent", what, u.unit.Offset)
		}
		next = u.unit.End()
	}
	// Everything before the zeros is there.
	if len(steps) < len(all.places) && all.places[len(steps)].offset+all.places[len(steps)].size <= z {
		t.Fatalf("%s: the sound unit at %d is missing", what, next)
	}
	if next == int64(len(s)) {
		// The last frame's own length reaches the end: its zeros may be its own.
		return
	}
	switch end {
	case wire.EndingZeroTail:
		f := found[0]
		for _, x := range found {
			if x.Kind == wire.KindZeroTail {
				f = x
			}
		}
		if f.Kind != wire.KindZeroTail || f.Offset < z || f.Offset > int64(from)+wire.SectorSize || f.Offset+f.Length != int64(len(s)) {
			t.Fatalf("%s: %+v (zeros from %d)", what, f, z)
		}
	case wire.EndingCut:
		// Less than a sector of zeros inside the last frame is a cut.
		if int64(len(s))-z >= 2*wire.SectorSize || found[len(found)-1].Offset != next {
			t.Fatalf("%s: %s, %+v", what, end, found)
		}
	default:
		t.Fatalf("%s: ending %s, %+v", what, end, found)
	}
}

// TestZerosInside: a long run of zeros in a payload, or at the very end of a
// frame that the input ends with, is the frame's own.
func TestZerosInside(t *testing.T) {
	g := func(trail int) []byte {
		return dendro.AppendSegment(nil, &dendro.Segment{Stream: []byte("cpu"), Rows: 1,
			Bytes: append(append(make([]byte, 20000), "PAR1"...), make([]byte, trail)...)})
	}
	for _, s := range [][]byte{stream(hello(0), g(0), segment(0)), stream(hello(0), segment(0), g(5000))} {
		steps, found, end := readAll(t, s, newDecoder(t), wire.ReaderOptions{Zeros: wire.ZerosFrom(zerosFrom(s), 0)})
		if end != wire.EndingClean || len(found) > 0 || len(steps) != 4 || steps[3].outcome.Disposition != dendro.Applied {
			t.Errorf("ending %s, %d units, %v", end, len(steps), found)
		}
	}
}

// TestContextGoesOn: from every boundary a decoder with the context finds what
// the one that read from the start finds.
func TestContextGoesOn(t *testing.T) {
	for _, name := range streams(t) {
		s := load(t, name)
		steps, rest, end := readAll(t, s, newDecoder(t), wire.ReaderOptions{})
		if len(steps) > 400 {
			continue
		}
		d := newDecoder(t)
		if d.Context(1<<20) != nil {
			t.Fatal("a context before the first byte")
		}
		for i, st := range steps {
			d.Observe(st.unit, nil)
			if i%7 > 2 && len(steps) > 60 {
				continue
			}
			c := d.Context(1 << 20)
			if len(c.Omitted) > 0 {
				t.Fatal(c.Omitted)
			}
			d2, err := dendro.NewDecoder(wire.Config{Context: c})
			if err != nil {
				t.Fatal(name, err)
			}
			if again := d2.Context(1 << 20); !reflect.DeepEqual(c, again) {
				t.Fatalf("%s at %d: the context changes:\n%+v\n%+v", name, st.unit.End(), c, again)
			}
			if i+1 < len(steps) && steps[i+1].unit.Offset != st.unit.End() {
				continue // junk follows, which forgets
			}
			more, rest2, end2 := readAll(t, s[st.unit.End():], d2, wire.ReaderOptions{Offset: st.unit.End()})
			if end2 != end || !reflect.DeepEqual(rest, rest2) || len(more) != len(steps)-i-1 {
				t.Fatalf("%s from %d: ending %s, %d units, %v", name, st.unit.End(), end2, len(more), rest2)
			}
			for j, m := range more {
				w := steps[i+1+j]
				if !reflect.DeepEqual(m.found, w.found) || m.outcome.Disposition != w.outcome.Disposition || m.outcome.Gap != w.outcome.Gap {
					t.Fatalf("%s from %d: at %d %+v, was %+v", name, st.unit.End(), m.unit.Offset, m.found, w.found)
				}
			}
		}
	}
}

// TestContextRefuses: a context comes from a file, so that anything may be in it.
func TestContextRefuses(t *testing.T) {
	good := func() *wire.Context {
		d := newDecoder(t)
		readAll(t, stream(hello(3), dendro.AppendSourceUpdate(nil, &dendro.SourceUpdate{Source: 3, Labels: dendro.NewMap(map[string]string{"host": "other"})})), d, wire.ReaderOptions{})
		return d.Context(1 << 20)
	}
	d, err := dendro.NewDecoder(wire.Config{Context: good()})
	if err != nil {
		t.Fatal(err)
	}
	for s := range d.Sources() {
		h, u := s.Units()
		if _, fault := dendro.DecodeHandshake(h); fault != nil || s.Ordinal != 3 || s.Label != "other" {
			t.Errorf("%+v %v", s, fault)
		}
		if _, fault := dendro.DecodeSourceUpdate(u); fault != nil {
			t.Error(fault)
		}
	}
	for name, spoil := range map[string]func(c *wire.Context){
		"protocol":       func(c *wire.Context) { c.Protocol = "melin" },
		"version":        func(c *wire.Context) { c.Version = 2 },
		"ordinal":        func(c *wire.Context) { c.Entries[0].ID = 1 << 32 },
		"other ordinal":  func(c *wire.Context) { c.Entries[0].ID = 4 },
		"twice":          func(c *wire.Context) { c.Entries = append(c.Entries, c.Entries[0]) },
		"no handshake":   func(c *wire.Context) { c.Entries[0].Values = c.Entries[0].Values[1:] },
		"cut handshake":  func(c *wire.Context) { v := &c.Entries[0].Values[0]; v.Bytes = v.Bytes[:len(v.Bytes)-1] },
		"empty":          func(c *wire.Context) { c.Entries[0].Values[0].Bytes = nil },
		"wrong kind":     func(c *wire.Context) { c.Entries[0].Values[0].Bytes = c.Entries[0].Values[1].Bytes },
		"update of none": func(c *wire.Context) { c.Entries[0].Values[1].Bytes[5] = 9 },
		"too many":       func(c *wire.Context) { c.Entries = make([]wire.ContextEntry, dendro.MaxSources+1) },
	} {
		c := good()
		spoil(c)
		if _, err := dendro.NewDecoder(wire.Config{Context: c}); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	// What does not fit is named, and an ordinal without its Handshake is gone.
	d, _ = dendro.NewDecoder(wire.Config{Context: good()})
	for limit, want := range map[int]string{10: "source 3", 270: "source 3: source_update", 1000: ""} {
		if got := strings.Join(d.Context(limit).Omitted, "|"); got != want {
			t.Errorf("limit %d: omitted %q, want %q", limit, got, want)
		}
	}
}

// TestEncode: every sound frame of every stream comes out of the encoder as it
// went into the decoder.
func TestEncode(t *testing.T) {
	frames := 0
	for _, name := range streams(t) {
		steps, _, _ := readAll(t, load(t, name), newDecoder(t), wire.ReaderOptions{})
		for _, s := range steps {
			var out []byte
			switch s.unit.Kind {
			case dendro.KindHandshake:
				if h, f := dendro.DecodeHandshake(s.unit); f == nil {
					out = dendro.AppendHandshake(nil, &h)
				}
			case dendro.KindIndex:
				if x, f := dendro.DecodeIndex(s.unit); f == nil {
					out = dendro.AppendIndex(nil, &x)
				}
			case dendro.KindRows:
				if r, f := dendro.DecodeRows(s.unit); f == nil {
					out = dendro.AppendRows(nil, &r)
					var list []dendro.Row
					for row := range r.All() {
						list = append(list, row)
						if got := s.unit.Bytes[row.Offset-s.unit.Offset:][:row.Length]; !bytes.HasSuffix(got, row.Row) {
							t.Fatalf("%s: the place of a row at %d is wrong", name, row.Offset)
						}
					}
					again := dendro.NewRows(r.Source, r.Seq, r.IndexState, list)
					if !bytes.Equal(dendro.AppendRows(nil, &again), out) || len(list) != int(r.Count) {
						t.Fatalf("%s: the rows at %d do not come back", name, s.unit.Offset)
					}
				}
			case dendro.KindSegment:
				if g, f := dendro.DecodeSegment(s.unit); f == nil {
					out = dendro.AppendSegment(nil, &g)
				}
			case dendro.KindClockOffset:
				if c, f := dendro.DecodeClockOffset(s.unit); f == nil {
					out = dendro.AppendClockOffset(nil, &c)
				}
			case dendro.KindSourceUpdate:
				if u, f := dendro.DecodeSourceUpdate(s.unit); f == nil {
					out = dendro.AppendSourceUpdate(nil, &u)
				}
			}
			if out == nil {
				continue
			}
			frames++
			if !bytes.Equal(out, s.unit.Bytes) {
				t.Fatalf("%s: the frame at %d does not come back", name, s.unit.Offset)
			}
		}
	}
	if frames < 500 {
		t.Errorf("only %d frames", frames)
	}
}

// TestFields: the field tree as JSON equals the crate's decoding, and the
// fields tile the frame.
func TestFields(t *testing.T) {
	for _, name := range streams(t) {
		d := newDecoder(t)
		want := readLines(t, strings.TrimSuffix(name, ".stream")+".frames.jsonl")
		steps, _, _ := readAll(t, load(t, name), d, wire.ReaderOptions{})
		for _, s := range steps {
			if s.unit.Type != wire.UnitFrame || s.outcome.Disposition == dendro.Refused && s.outcome.Fault.Finding.Kind == wire.KindMalformed {
				continue
			}
			fields, f := d.Fields(s.unit)
			if f != nil {
				t.Fatalf("%s at %d: %+v", name, s.unit.Offset, f)
			}
			at := s.unit.Offset
			for _, f := range append(d.Envelope(s.unit), fields...) {
				at = tileField(t, name, s.unit, at, f)
			}
			if at != s.unit.End() {
				t.Fatalf("%s: the fields of the frame at %d end at %d, it ends at %d", name, s.unit.Offset, at, s.unit.End())
			}
			if len(want) == 0 || want[0]["error"] != nil || want[0]["skipped"] != nil {
				want = want[min(1, len(want)):]
				continue
			}
			got := string(wire.AppendJSON(nil, fields, sha256.Sum256))
			if exp := fieldsJSON(t, want[0]); !jsonEqual(t, got, exp) {
				t.Fatalf("%s at %d:\n got %s\nwant %s", name, s.unit.Offset, got, exp)
			}
			want = want[1:]
		}
	}
}

// fieldsJSON makes the fixture's line into the fields of an inspect line.
func fieldsJSON(t *testing.T, l frameLine) string {
	m := map[string]any{}
	for k, v := range l {
		switch k {
		case "offset", "length", "name":
		case "kind":
		case "index_kind":
			m["kind"] = map[string]int{"full": 0, "delta": 1}[v.(string)]
		default:
			m[k] = v
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// jsonEqual compares with blobs told by length and the hash's first half.
func jsonEqual(t *testing.T, got, want string) bool {
	var g, w any
	for s, to := range map[string]*any{got: &g, want: &w} {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(to); err != nil {
			t.Fatal(err, s)
		}
	}
	return reflect.DeepEqual(fixture.Short(g), w)
}

// tileField checks that f starts at at, and its children inside it, and gives
// where it ends.
func tileField(t *testing.T, name string, u wire.Unit, at int64, f wire.Field) int64 {
	t.Helper()
	if f.Offset != at {
		t.Fatalf("%s: field %q of the frame at %d starts at %d, the one before ends at %d", name, f.Name, u.Offset, f.Offset, at)
	}
	if f.Bytes != nil {
		if got := u.Bytes[f.ByteOffset-u.Offset:][:len(f.Bytes)]; !bytes.Equal(got, f.Bytes) {
			t.Fatalf("%s: the bytes of field %q of the frame at %d are elsewhere", name, f.Name, u.Offset)
		}
	}
	if f.Count > 0 {
		all := f.Children(nil, 0, f.Count)
		if len(all) != f.Count {
			t.Fatalf("%s: %d of %d children of %q", name, len(all), f.Count, f.Name)
		}
		in := f.Offset
		if f.Type == wire.TypeMap {
			in += 4
		}
		for _, c := range all {
			in = tileField(t, name, u, in, c)
		}
		if in != f.Offset+f.Length {
			t.Fatalf("%s: the children of %q end at %d, it ends at %d", name, f.Name, in, f.Offset+f.Length)
		}
		// Any window, in any order, is the same children.
		for _, from := range []int{f.Count - 1, f.Count / 2, 0, f.Count / 3} {
			part := f.Children(nil, from, 3)
			for i := range part {
				if part[i].Offset != all[from+i].Offset || part[i].Name != all[from+i].Name {
					t.Fatalf("%s: child %d of %q is not the same twice", name, from+i, f.Name)
				}
			}
		}
	}
	return f.Offset + f.Length
}

// TestInfo: a list shows who and what without the whole frame.
func TestInfo(t *testing.T) {
	d := newDecoder(t)
	steps, _, _ := readAll(t, load(t, "testdata/real/small.stream"), d, wire.ReaderOptions{})
	for _, s := range steps {
		whole := d.Info(s.unit)
		h := d.Head(s.unit.Bytes, false)
		part := s.unit
		part.Bytes = part.Bytes[:h.Peek]
		peeked := d.Info(part)
		if s.unit.Kind == dendro.KindRows {
			whole.HasTime, whole.Time = peeked.HasTime, peeked.Time
		}
		if s.unit.Type == wire.UnitFrame && (whole != peeked || whole.Name == "" || whole.Label != "web-00" || whole.Summary == "") {
			t.Fatalf("at %d: %+v, with %d bytes %+v", s.unit.Offset, whole, h.Peek, peeked)
		}
	}
}

// TestDetect: by the magic, also cut, and nothing else.
func TestDetect(t *testing.T) {
	var p dendro.Protocol
	full := dendro.AppendPreamble(nil)
	for n := range len(full) {
		m, _ := p.Detect(full[:n], false)
		if want := map[bool]wire.Match{true: wire.Matched, false: wire.MoreNeeded}[n >= len(dendro.Magic)]; m != want {
			t.Errorf("%d bytes: %d, want %d", n, m, want)
		}
		m, _ = p.Detect(full[:n], true)
		if want := map[bool]wire.Match{true: wire.Matched, false: wire.NoMatch}[n >= 6]; m != want {
			t.Errorf("%d bytes and the end: %d, want %d", n, m, want)
		}
	}
	for _, s := range []string{"\xff\xd8\xff\xe0", "AEWR", "dendro_repl\x00\x01\x00", "Dendro"} {
		if m, _ := p.Detect([]byte(s), false); m != wire.NoMatch {
			t.Errorf("%q matches", s)
		}
	}
}

// TestLive: input that grows gives ErrMore, then goes on, and is cut only once
// it is finished.
func TestLive(t *testing.T) {
	s := load(t, "testdata/crafted/gap.stream")
	want := read(t, s, bytes.NewReader(s))
	var src bytes.Buffer
	d := newDecoder(t)
	r := wire.NewReader(&src, d, wire.ReaderOptions{Live: true})
	var got run
	for i := 0; i < len(s); {
		u, found, err := r.Next()
		got.found = append(got.found, found...)
		switch err {
		case nil:
			got.places = append(got.places, place{u.Type, u.Offset, u.Size, u.Kind})
		case wire.ErrMore:
			n := min(1+i%37, len(s)-i)
			src.Write(s[i : i+n])
			i += n
		default:
			t.Fatal(err)
		}
	}
	r.Finish()
	for {
		u, found, err := r.Next()
		got.found = append(got.found, found...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got.places = append(got.places, place{u.Type, u.Offset, u.Size, u.Kind})
	}
	got.clean = r.Ending() == wire.EndingClean
	if d := got.diff(want); d != "" {
		t.Error(d)
	}
}

// pieces gives at most n random bytes at a time.
type pieces struct {
	b   []byte
	rng *rand.Rand
	n   int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.rng.IntN(p.n))], p.b)
	p.b = p.b[n:]
	return n, nil
}

// TestLargeFrames: frames around and above what is read at a time, in any
// order, come whole; one above MaxUnit comes with its first bytes.
func TestLargeFrames(t *testing.T) {
	rng := seeded(t)
	for range 6 {
		s := stream(hello(0))
		for range 12 {
			size := []int{10, 5000, 16 << 10, 100_000, 1 << 20, 3 << 20}[rng.IntN(6)]
			b := make([]byte, size-rng.IntN(9))
			b[0], b[len(b)-1] = 1, 2
			s = append(s, dendro.AppendSegment(nil, &dendro.Segment{Stream: []byte("cpu"), Rows: 1, Bytes: b})...)
			s = append(s, rows(0, 0, dendro.State{}, rng.IntN(3))...)
		}
		want := scan(whole{newDecoder(t)}, s, 1<<30, func() int { return 1 + rng.IntN(1<<20) })
		if d := read(t, s, &pieces{s, rng, 1 << uint(8+rng.IntN(15))}).diff(want); d != "" {
			t.Fatal(d)
		}
		r := wire.NewReader(bytes.NewReader(s), newDecoder(t), wire.ReaderOptions{MaxUnit: 50_000})
		for i := 0; ; i++ {
			u, _, err := r.Next()
			if err == io.EOF {
				if i != len(want.places) || r.Ending() != wire.EndingClean {
					t.Fatalf("%d units, ending %s", i, r.Ending())
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if w := want.places[i]; u.Offset != w.offset || u.Size != w.size || int64(len(u.Bytes)) != min(u.Size, 50_000) {
				t.Fatalf("unit %d at %d, %d bytes of %d", i, u.Offset, len(u.Bytes), u.Size)
			}
		}
	}
}

// TestNoAllocation: a frame that is not kept for the context costs no
// allocation.
func TestNoAllocation(t *testing.T) {
	steps, _, _ := readAll(t, load(t, "testdata/real/small.stream"), newDecoder(t), wire.ReaderOptions{})
	d := newDecoder(t)
	for _, s := range steps {
		d.Observe(s.unit, nil)
		if s.unit.Type == wire.UnitPreamble || s.unit.Kind == dendro.KindHandshake || s.unit.Kind == dendro.KindSourceUpdate {
			continue
		}
		n := testing.AllocsPerRun(3, func() {
			if d.Head(s.unit.Bytes, false).Size != s.unit.Size {
				t.Error("another size")
			}
			d.Observe(s.unit, nil)
			if r := d.Last().Rows; r != nil {
				sum := int64(0)
				for row := range r.All() {
					sum += row.TS
				}
				if sum == 0 && r.Count > 0 {
					t.Error("no time")
				}
			}
		})
		if n != 0 {
			t.Errorf("%s at %d: %v allocations", dendro.KindName(s.unit.Kind), s.unit.Offset, n)
		}
	}
}
