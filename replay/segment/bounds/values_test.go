package bounds

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// gather is a Visitor that keeps everything.
type gather struct {
	rep, def []byte
	fixed    []byte
	texts    []string
	limit    int
}

var errFull = errors.New("full")

func (g *gather) Levels(_ int, rep, def []byte) error {
	g.rep, g.def = append(g.rep, rep...), append(g.def, def...)
	return nil
}

func (g *gather) Fixed(b []byte) error {
	if g.fixed = append(g.fixed, b...); len(g.fixed) > g.limit {
		return errFull
	}
	return nil
}

func (g *gather) Bytes(b []byte) error {
	if g.texts = append(g.texts, string(b)); len(g.texts) > g.limit {
		return errFull
	}
	return nil
}

// newDecoder starts a decoder of one page of a column of that type.
func newDecoder(typ uint8, width int, v Visitor) *decoder {
	l := &leaf{path: [][]byte{[]byte("c")}, typ: typ, width: width}
	d := &decoder{}
	d.begin(&chunk{leaf: l}, v, 1<<24)
	return d
}

func ints(b []byte) []int64 {
	var out []int64
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out
}

// TestVectors are the format's own examples, from the Parquet project's description of
// encodings, and the
// edges of each encoding.
func TestVectors(t *testing.T) {
	// DELTA_BINARY_PACKED, example 1: 1, 2, 3, 4, 5.
	g := &gather{limit: 1 << 20}
	d := newDecoder(typeInt64, 8, g)
	if bad, why := d.values(encDelta, unhex(t, "8001 04 05 02 02 00000000"), 5); bad+why != "" || !slices.Equal(ints(g.fixed), []int64{1, 2, 3, 4, 5}) {
		t.Errorf("%v, %s%s", ints(g.fixed), bad, why)
	}
	// Example 2: 7, 5, 3, 1, 2, 3, 4, 5, the least difference -2, two bits each.
	g = &gather{limit: 1 << 20}
	d = newDecoder(typeInt64, 8, g)
	if bad, why := d.values(encDelta, unhex(t, "8001 04 08 0e 03 02000000 c03f 000000000000"), 8); bad+why != "" || !slices.Equal(ints(g.fixed), []int64{7, 5, 3, 1, 2, 3, 4, 5}) {
		t.Errorf("%v, %s%s", ints(g.fixed), bad, why)
	}
	// The deprecated BIT_PACKED levels of the numbers 0 to 7: from the most
	// significant bit on.
	d = newDecoder(typeInt64, 8, nil)
	var buf []byte
	out, rest, bad, why := d.levelsV1(&buf, unhex(t, "05 39 77 ff"), 8, 7, encBitPacked)
	if bad+why != "" || !slices.Equal(out, []byte{0, 1, 2, 3, 4, 5, 6, 7}) || len(rest) != 1 {
		t.Errorf("%v, %d left, %s%s", out, len(rest), bad, why)
	}
	// The same in the hybrid, from the least significant bit on.
	out, bad = d.levels(&buf, unhex(t, "03 88c6fa"), 8, 7)
	if bad != "" || !slices.Equal(out, []byte{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%v, %s", out, bad)
	}
	// BYTE_STREAM_SPLIT of two 32-bit numbers.
	g = &gather{limit: 1 << 20}
	d = newDecoder(typeFloat, 4, g)
	if bad, why := d.values(encByteStreamSplit, unhex(t, "aa00 bb11 cc22 dd33"), 2); bad+why != "" || !slices.Equal(g.fixed, unhex(t, "aabbccdd00112233")) {
		t.Errorf("%x, %s%s", g.fixed, bad, why)
	}
}

// appendDeltas encodes values, as a second reading of the encoding.
func appendDeltas(b []byte, values []int64, block, minis int) []byte {
	b = binary.AppendUvarint(b, uint64(block))
	b = binary.AppendUvarint(b, uint64(minis))
	b = binary.AppendUvarint(b, uint64(len(values)))
	b = binary.AppendVarint(b, values[0])
	for at := 1; at < len(values); at += block {
		part := values[at:min(len(values), at+block)]
		least := int64(math.MaxInt64)
		for i := range part {
			least = min(least, values[at+i]-values[at+i-1])
		}
		b = binary.AppendVarint(b, least)
		per := block / minis
		widths := make([]byte, minis)
		var bodies []byte
		for m := range minis {
			if m*per >= len(part) {
				break
			}
			some := part[m*per : min(len(part), (m+1)*per)]
			w := 0
			for i := range some {
				for v := uint64(values[at+m*per+i]-values[at+m*per+i-1]) - uint64(least); w < 64 && v>>w != 0; w++ {
				}
			}
			widths[m] = byte(w)
			body := make([]byte, per*w/8)
			for i := range some {
				v := uint64(values[at+m*per+i]-values[at+m*per+i-1]) - uint64(least)
				for k := range w {
					bit := i*w + k
					body[bit/8] |= byte(v>>k&1) << (bit % 8)
				}
			}
			bodies = append(bodies, body...)
		}
		b = append(b, widths...)
		b = append(b, bodies...)
	}
	return b
}

// TestDeltaWidths: differences of every width from 0 to 64 bits, and batches
// that end anywhere.
func TestDeltaWidths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for w := range 65 {
		for _, n := range []int{1, 2, 33, 129, 300, 1000} {
			values := make([]int64, n)
			v := int64(rnd.Uint64())
			for i := range values {
				if w > 0 {
					v += int64(rnd.Uint64() >> (64 - w))
				}
				values[i] = v
			}
			src := appendDeltas(nil, values, 128<<(n%3), 4)
			g := &gather{limit: 1 << 20}
			d := newDecoder(typeInt64, 8, g)
			if bad, why := d.values(encDelta, src, n); bad+why != "" || !slices.Equal(ints(g.fixed), values) {
				t.Fatalf("%d values of %d bits: %s%s", n, w, bad, why)
			}
		}
	}
}

// TestRefused: what each encoding must not take.
func TestRefused(t *testing.T) {
	tests := []struct {
		name  string
		typ   uint8
		width int
		enc   int32
		n     int
		page  string
		want  string
	}{
		{"PLAIN too short", typeInt64, 8, encPlain, 2, "0000000000000000 00", "2 values of 8 bytes in 9"},
		{"PLAIN with bytes left over", typeInt64, 8, encPlain, 1, "0000000000000000 01", "1 bytes left over"},
		{"PLAIN bits too short", typeBoolean, 1, encPlain, 9, "ff", "9 bits in 1 bytes"},
		{"a BYTE_ARRAY's length cut", typeByteArray, 0, encPlain, 1, "0100", "length is cut"},
		{"a BYTE_ARRAY too long", typeByteArray, 0, encPlain, 1, "ffffffff 00", "4294967295 bytes where 1"},
		{"indexes without a dictionary", typeInt64, 8, encDictionary, 1, "00", "without a dictionary"},
		{"RLE of integers", typeInt64, 8, encRLE, 1, "00", "in the encoding 3"},
		{"RLE longer than the page", typeBoolean, 1, encRLE, 8, "ff000000 03ff", "runs of 255 bytes where 2"},
		{"a run of nothing", typeBoolean, 1, encRLE, 8, "02000000 0001", "a run of no values"},
		{"a run too long", typeBoolean, 1, encRLE, 8, "02000000 1401", "10 values where 8"},
		{"a run's value too large", typeBoolean, 1, encRLE, 8, "02000000 1002", "more than 1 bits"},
		{"a packed run cut", typeBoolean, 1, encRLE, 16, "02000000 05ff", "2 bytes where 1"},
		{"a run's header of 64 bits", typeBoolean, 1, encRLE, 8, "0a000000 ffffffffffffffffff01", "not a number of 32 bits"},
		{"deltas of another count", typeInt64, 8, encDelta, 4, "8001 04 05 02 02 00000000", "says 5 values where there are 4"},
		{"delta blocks of no size", typeInt64, 8, encDelta, 5, "00 04 05 02 02 00000000", "blocks of 0"},
		{"delta blocks in no parts", typeInt64, 8, encDelta, 5, "8001 00 05 02 02 00000000", "in 0 parts"},
		{"delta blocks that do not divide", typeInt64, 8, encDelta, 5, "8001 03 05 02 02 00000000", "in 3 parts"},
		{"a delta of 65 bits", typeInt64, 8, encDelta, 5, "8001 04 05 02 02 41000000", "65 bits"},
		{"deltas cut", typeInt64, 8, encDelta, 5, "8001 04 05 02 02 08000000 00", "32 bytes where 1"},
		{"delta widths cut", typeInt64, 8, encDelta, 5, "8001 04 05 02 02 0000", "block is cut"},
		{"deltas of doubles", typeDouble, 8, encDelta, 1, "8001 04 01 02", "in the encoding 5"},
		{"a negative length", typeByteArray, 0, encDeltaLength, 1, "8001 04 01 01", "negative length"},
		{"a length beyond the page", typeByteArray, 0, encDeltaLength, 1, "8001 04 01 14 61", "10 bytes where 1"},
		{"a prefix of nothing", typeByteArray, 0, encDeltaBytes, 1, "8001 04 01 02 8001 04 01 02 61", "begins with 1 bytes of one of 0"},
		{"a value of another width", typeFixed, 2, encDeltaBytes, 1, "8001 04 01 00 8001 04 01 02 61", "1 bytes in a column of 2"},
		{"BYTE_STREAM_SPLIT too short", typeDouble, 8, encByteStreamSplit, 2, "00", "2 values of 8 bytes in 1"},
		{"BYTE_STREAM_SPLIT of text", typeByteArray, 0, encByteStreamSplit, 1, "00", "in the encoding 9"},
	}
	for _, tt := range tests {
		d := newDecoder(tt.typ, tt.width, nil)
		bad, why := d.values(tt.enc, unhex(t, tt.page), tt.n)
		if !strings.Contains(bad, tt.want) || why != "" {
			t.Errorf("%s: %q, %q", tt.name, bad, why)
		}
	}
	// What is not known is no fault.
	for _, enc := range []int32{1, encBitPacked, 10, -1, math.MaxInt32} {
		if bad, why := newDecoder(typeInt64, 8, nil).values(enc, nil, 1); bad != "" || why == "" {
			t.Errorf("encoding %d: %q, %q", enc, bad, why)
		}
	}
	// Dictionaries.
	d := newDecoder(typeInt64, 8, nil)
	if bad := d.setDictionary(make([]byte, 16), 2); bad != "" {
		t.Fatal(bad)
	}
	for page, want := range map[string]string{
		"":                   "is cut",
		"21 00":              "33 bits",
		"02 0402":            "index 2 into a dictionary of 2",
		"02 030200":          "index 2 into a dictionary of 2",
		"20 04 ffffffff":     "index 4294967295",
		"01 0400 01":         "1 bytes left over",
		"20 03 000000000000": "32 bytes where 6",
	} {
		if bad, why := d.values(encDictionary, unhex(t, page), 2); !strings.Contains(bad, want) || why != "" {
			t.Errorf("indexes %q: %q, %q", page, bad, why)
		}
	}
	d = newDecoder(typeByteArray, 0, nil)
	for page, n := range map[string]int{"00000000": 2, "05000000 61": 1, "01000000 61 00": 1} {
		if bad := d.setDictionary(unhex(t, page), n); bad == "" {
			t.Errorf("a dictionary %q of %d was taken", page, n)
		}
	}
}

// FuzzValues: one page of any type and encoding, with and without a dictionary.
func FuzzValues(f *testing.F) {
	f.Add(uint8(typeInt64), uint8(8), int32(encDelta), 5, unhex(f, "8001 04 05 02 02 00000000"), []byte(nil), uint8(0))
	f.Add(uint8(typeInt64), uint8(8), int32(encDelta), 8, unhex(f, "8001 04 08 0e 03 02000000 c03f 000000000000"), []byte(nil), uint8(1))
	f.Add(uint8(typeBoolean), uint8(1), int32(encRLE), 8, unhex(f, "02000000 03ff"), []byte(nil), uint8(0))
	f.Add(uint8(typeByteArray), uint8(0), int32(encDeltaBytes), 1, unhex(f, "8001 04 01 00 8001 04 01 02 61"), []byte(nil), uint8(0))
	f.Add(uint8(typeByteArray), uint8(0), int32(encDeltaLength), 1, unhex(f, "8001 04 01 02 61"), []byte(nil), uint8(2))
	f.Add(uint8(typeByteArray), uint8(0), int32(encDictionary), 3, unhex(f, "01 0600"), unhex(f, "01000000 61"), uint8(3))
	f.Add(uint8(typeFixed), uint8(3), int32(encPlain), 1, unhex(f, "616263"), []byte(nil), uint8(0))
	f.Fuzz(func(t *testing.T, typ, width uint8, enc int32, n int, page, dict []byte, limit uint8) {
		widths := [...]int{1, 4, 8, 12, 4, 8, 0, int(width%17) + 1}
		typ &= 7
		if n < 0 || n > 1<<16 {
			return
		}
		values := -1
		for _, v := range []*gather{nil, {limit: 1 << 16}} {
			var d *decoder
			if v == nil {
				d = newDecoder(typ, widths[typ], nil)
			} else {
				d = newDecoder(typ, widths[typ], v)
			}
			d.leaf.utf8, d.leaf.order = true, orderBytes
			if len(dict) > 0 {
				d.setDictionary(dict, len(dict)/max(widths[typ], 4))
			}
			var buf []byte
			d.levels(&buf, page, n, limit)
			d.levelsV1(&buf, page, n, limit%4, encBitPacked)
			bad, why := d.values(enc, page, n)
			if v == nil {
				if bad+why == "" {
					values = n
				}
				continue
			}
			if d.err == nil && bad+why == "" {
				if values < 0 {
					t.Fatal("sound with a visitor alone")
				}
				if w := widths[typ]; w > 0 && len(v.fixed) != n*w || w == 0 && len(v.texts) != n {
					t.Fatalf("%d values gave %d bytes, %d texts", n, len(v.fixed), len(v.texts))
				}
			}
		}
	})
}
