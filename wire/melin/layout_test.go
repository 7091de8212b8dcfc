package melin

import (
	"bytes"
	"hash/crc32"
	"testing"

	"wiretape/wire"
)

// The streams of older layouts, built here from the specification byte by byte:
// nothing of the package's own encoder is in them.

type oldSlot struct {
	seq, ts, key, req uint64
	event             byte
	payload           []byte
}

func (s oldSlot) bytes(version int) []byte {
	var in []byte
	in = append(in, le(8, s.key)...)
	if version <= 4 {
		in = append(in, le(8, s.req)...)
	}
	in = append(append(in, s.event), s.payload...)
	b := append(le(2, uint64(len(in))), le(8, s.seq)...)
	b = append(append(b, le(8, s.ts)...), in...)
	if version >= 6 {
		sum := crc32.Checksum(append([]byte{0x45, 0x4a}, b...), crc32.MakeTable(crc32.Castagnoli))
		b = append(b, le(4, uint64(sum))...)
	}
	return b
}

func oldBatch(version int, slots ...oldSlot) []byte {
	parts := [][]byte{le(2, uint64(len(slots)))}
	for _, s := range slots {
		parts = append(parts, s.bytes(version))
	}
	return raw(0x21, parts...)
}

var (
	hash1 = bytes.Repeat([]byte{0xa1}, 32)
	hash2 = bytes.Repeat([]byte{0xb2}, 32)
)

// oldStreamStart is a StreamStart of a version behind sequence start.
func oldStreamStart(version int, start, segment, epoch uint64) []byte {
	parts := [][]byte{le(8, start), le(8, segment), hash1}
	if version >= 2 {
		parts = append(parts, le(8, epoch))
	}
	if version >= 4 && version <= 7 {
		parts = append(parts, []byte{2})
	}
	if version >= 7 {
		parts = append(parts, []byte{1}, le(8, 4))
	}
	return raw(0x10, parts...)
}

func oldHeartbeat(version int, seq uint64) []byte {
	if version >= 4 && version <= 7 {
		return raw(0x30, le(8, seq), []byte{1})
	}
	return raw(0x30, le(8, seq))
}

// oldSlots are four events whose request_seq starts with a byte that is no
// event tag, and whose first payload says nothing at its eighth byte.
func oldSlots(from uint64) []oldSlot {
	return []oldSlot{
		{seq: from, ts: 1e18, key: 77, req: 0x11, event: 0x80, payload: []byte("0123456789")},
		{seq: from + 1, ts: 1e18 + 1, key: 0, req: 0x12, event: 0x03, payload: le(8, 5)},
		{seq: from + 2, ts: 1e18 + 2, key: 0, req: 0x13, event: 0x04, payload: le(8, 9)},
		{seq: from + 3, ts: 1e18 + 3, key: 77, req: 0x14, event: 0x80},
	}
}

func oldStream(version int) []byte {
	b := raw(0x03, bytes.Repeat([]byte{7}, 32))
	b = append(b, raw(0x05)...)
	b = append(b, oldStreamStart(version, 100, 51, 9)...)
	b = append(b, oldBatch(version, oldSlots(101)...)...)
	b = append(b, oldHeartbeat(version, 104)...)
	if version >= 3 {
		b = append(b, raw(0x17, le(8, 104), hash2)...)
		b = append(b, raw(0x16, le(8, 104), hash2)...)
	}
	b = append(b, oldBatch(version)...)
	return append(b, oldBatch(version, oldSlot{seq: 105, event: 0x80, payload: []byte{1}})...)
}

func TestOlderLayouts(t *testing.T) {
	for version := 1; version <= 8; version++ {
		d := open(t, wire.Config{})
		in := oldStream(version)
		us, last, r := readAll(t, in, d)
		if len(last) != 0 || r.Ending() != wire.EndingClean {
			t.Fatalf("%d: %v %v", version, r.Ending(), last)
		}
		for _, u := range us {
			if len(u.found) > 0 {
				t.Errorf("version %d: %+v", version, u.found)
			}
			if fs, fault := d.Fields(u.Unit); fault != nil {
				t.Errorf("version %d: %s", version, fault.Message)
			} else {
				tiles(t, TagName(u.Kind), fs, u.Offset, u.End())
			}
		}
		if !d.Layouts().Has(Layout(version)) || d.Shape() != Layout(version).Shape() {
			t.Errorf("version %d: layouts %v, shape %d", version, d.Layouts(), d.Shape())
		}
		if seq, _ := d.LastSequence(); seq != 105 {
			t.Errorf("version %d: last %d", version, seq)
		}
		var out []byte
		for _, u := range us {
			out = appendAgain(out, u.Unit, Layout(version))
		}
		if !bytes.Equal(in, out) {
			t.Errorf("version %d: encoded again it differs\n% x\n% x", version, in, out)
		}
		s, ok := firstSlotOf(us, d.Shape())
		if !ok || s.Sequence != 101 || s.KeyHash != 77 || s.Event != EventApp || string(s.Payload) != "0123456789" ||
			s.Timestamp != 1e18 || (version <= 4) != (s.RequestSeq == 0x11) {
			t.Errorf("version %d: first slot %+v", version, s)
		}
	}
}

func firstSlotOf(us []unit, shape Shape) (s Slot, ok bool) {
	for _, u := range us {
		if u.Kind == TagInputBatch {
			r := SlotsOf(u.Bytes, shape)
			return s, r.Next(&s)
		}
	}
	return s, false
}

// The first published layout: no anchor, pieces of journal, a hash in every
// heartbeat, one cursor in an Ack.
func TestFirstLayout(t *testing.T) {
	genesis := []byte("genesis of a lineage")
	down := oldStart(0, genesis)
	down = append(down, raw(0x20, le(8, 3), hash1, le(4, 3), []byte("three entries"))...)
	down = append(down, raw(0x30, le(8, 3), hash1)...)
	down = append(down, raw(0x20, le(8, 5), hash2, le(4, 1), []byte("the fifth"))...)
	up := append(raw(0x01, le(8, 7), hash1), raw(0x02, le(8, 8))...)
	for i, in := range [][]byte{down, up} {
		d := open(t, wire.Config{})
		us, _, r := readAll(t, in, d)
		var out []byte
		found := 0
		for _, u := range us {
			out = appendAgain(out, u.Unit, d.Layouts().Taken())
			found += len(u.found)
			for _, f := range u.found {
				if f.Kind != KindGap || f.Want != "4" || f.Got != "5" {
					t.Errorf("%+v", f)
				}
			}
			fs, fault := d.Fields(u.Unit)
			if fault != nil {
				t.Fatal(fault.Message)
			}
			tiles(t, TagName(u.Kind), fs, u.Offset, u.End())
		}
		if r.Ending() != wire.EndingClean || d.Layouts() != layouts(1) || !bytes.Equal(in, out) || found != 1-i {
			t.Errorf("%v, layouts %v, %d findings", r.Ending(), d.Layouts(), found)
		}
	}
	v, size := DecodeStreamStart(down[:PrefixSize+13+len(genesis)], 1)
	if !v.First || string(v.Genesis) != string(genesis) || size != PrefixSize+13+len(genesis) {
		t.Errorf("%+v, %d", v, size)
	}
}

// The Handshake's three lengths, and the layouts that they tell.
func TestHandshakeLayouts(t *testing.T) {
	for _, c := range []struct {
		tail [][]byte
		want Layouts
	}{
		{nil, layouts(1)},
		{[][]byte{le(8, 3)}, layouts(2)},
		{[][]byte{le(8, 3), le(2, 4)}, layouts(4)},
		{[][]byte{le(8, 3), le(2, 8)}, layouts(8)},
	} {
		d := open(t, wire.Config{})
		us, _, _ := readAll(t, raw(0x01, append([][]byte{le(8, 5), hash1}, c.tail...)...), d)
		if d.Layouts() != c.want || len(us[0].found) != 0 {
			t.Errorf("%v, want %v: %v", d.Layouts(), c.want, us[0].found)
		}
	}
	d := open(t, wire.Config{})
	us, _, _ := readAll(t, raw(0x01, le(8, 5), hash1, le(8, 3), le(2, 9)), d)
	if len(us[0].found) != 1 || us[0].found[0].Kind != wire.KindBadVersion || d.Layouts() != AllLayouts {
		t.Errorf("version 9: %v %v", us[0].found, d.Layouts())
	}
}

// The pairs whose lengths agree: what follows tells them apart where anything
// does, and the set stays as it is where nothing does.
func TestLayoutsOfOneLength(t *testing.T) {
	slots := func(version int, ss ...oldSlot) []byte { return oldBatch(version, ss...) }
	// A v4 slot that reads as a v5 slot too: its request_seq starts with the
	// tag of App. And the other way round: the payload's eighth byte is it.
	both4 := oldSlot{seq: 1, req: 0x80, event: 0x80, payload: []byte("anything")}
	both5 := oldSlot{seq: 1, event: 0x80, payload: append(le(7, 0), 0x80, 1, 2)}
	genesis := func(n int, segmentKnown byte) []byte {
		g := bytes.Repeat([]byte{0x55}, n)
		clear(g[:4]) // with its length, a segment's start of the newer reading
		if n > 44 {
			g[44] = segmentKnown // policy or genesis_known of the newer reading
		}
		if n == 54 {
			g[45] = segmentKnown
		}
		return oldStart(60, g)
	}
	for _, c := range []struct {
		what string
		in   [][]byte
		want Layouts
	}{
		{"v4 by its slots", [][]byte{oldStreamStart(4, 0, 1, 0), slots(4, oldSlots(1)...)}, layouts(4)},
		{"v5 by its slots", [][]byte{oldStreamStart(5, 0, 1, 0), slots(5, oldSlots(1)...)}, layouts(5)},
		{"v6 by its slots", [][]byte{oldStreamStart(6, 0, 1, 0), slots(6, oldSlots(1)...)}, layouts(6)},
		{"v4 or v5", [][]byte{oldStreamStart(4, 0, 1, 0), slots(4, both4)}, layouts(4, 5)},
		{"v5 or v4", [][]byte{oldStreamStart(5, 0, 1, 0), slots(5, both5)}, layouts(4, 5)},
		{"v4 in the end", [][]byte{oldStreamStart(4, 0, 1, 0), slots(4, both4), slots(4, oldSlots(2)...)}, layouts(4)},
		{"v5 in the end", [][]byte{oldStreamStart(5, 0, 1, 0), slots(5, both5), slots(5, oldSlots(2)...)}, layouts(5)},
		{"44 bytes of genesis or protocol 2", [][]byte{genesis(44, 0)}, layouts(1, 2, 3)},
		{"44 bytes of genesis that are no segment's start", [][]byte{oldStart(60, bytes.Repeat([]byte{0x55}, 44))}, layouts(1)},
		{"53 bytes of genesis, and a stream before the segment", [][]byte{oldStart(51, genesis(53, 1)[17:])}, layouts(1)},
		{"45 bytes of genesis, no policy", [][]byte{genesis(45, 9)}, layouts(1)},
		{"45 bytes of genesis or protocol 4", [][]byte{genesis(45, 1)}, layouts(1, 4, 5, 6)},
		{"53 bytes of genesis, no flag", [][]byte{genesis(53, 9)}, layouts(1)},
		{"53 bytes of genesis or protocol 8", [][]byte{genesis(53, 1)}, layouts(1, 8)},
		{"54 bytes of genesis, no flag", [][]byte{genesis(54, 9)}, layouts(1)},
		{"54 bytes of genesis or protocol 7", [][]byte{genesis(54, 1)}, layouts(1, 7)},
		{"genesis, told by a DataBatch", [][]byte{genesis(53, 1), raw(0x20, le(8, 1), hash1, le(4, 1), []byte("x"))}, layouts(1)},
		{"genesis, told by a Heartbeat", [][]byte{genesis(53, 1), raw(0x30, le(8, 0), hash1)}, layouts(1)},
		{"protocol 8 from segment 53", [][]byte{oldStreamStart(8, 60, 53, 0), slots(8, oldSlots(61)...)}, layouts(8)},
		{"protocol 7 from segment 54", [][]byte{oldStreamStart(7, 60, 54, 0), oldHeartbeat(7, 60)}, layouts(7)},
	} {
		d := open(t, wire.Config{})
		us, _, _ := readAll(t, bytes.Join(c.in, nil), d)
		if d.Layouts() != c.want {
			t.Errorf("%s: %v, want %v", c.what, d.Layouts(), c.want)
		}
		if len(us) != len(c.in) {
			t.Errorf("%s: %d units", c.what, len(us))
		}
		// With the layout known from the Handshake nothing is in doubt.
		for l := Layout(1); l <= Newest; l++ {
			if c.want.Has(l) {
				d := open(t, wire.Config{Context: AtStart(l)})
				us, _, _ := readAll(t, bytes.Join(c.in, nil), d)
				if d.Layouts() != Only(l) {
					t.Errorf("%s: told %v, is %v", c.what, l, d.Layouts())
				}
				for _, u := range us {
					for _, f := range u.found {
						if f.Kind == KindLayout || f.Kind == wire.KindMalformed || f.Kind == KindLeftOver {
							t.Errorf("%s under %v: %+v", c.what, l, f)
						}
					}
				}
			}
		}
	}
}

// A frame of another layout than the one that the Handshake told.
func TestOtherLayoutIsFound(t *testing.T) {
	d := open(t, wire.Config{Context: AtStart(8)})
	us, _, _ := readAll(t, append(oldStreamStart(7, 0, 1, 0), oldHeartbeat(7, 0)...), d)
	for _, u := range us {
		if len(u.found) != 1 || u.found[0].Kind != KindLayout || u.found[0].Want != "protocol 8" {
			t.Errorf("%+v", u.found)
		}
	}
}

func TestLayoutText(t *testing.T) {
	for s, want := range map[Layouts]string{layouts(8): "protocol 8", layouts(1): "before protocol 2",
		layouts(4, 5): "4, 5", 0: "unknown"} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
