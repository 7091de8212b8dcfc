package melin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"wiretape/internal/fixture"
	"wiretape/wire"
)

// whole says that the units and findings of a reading account for every byte,
// in order.
func whole(t *testing.T, what string, b []byte, us []unit, last []wire.Finding, r *wire.Reader) {
	t.Helper()
	at := int64(0)
	for _, u := range us {
		if u.Offset < at {
			t.Fatalf("%s: a unit at %d, behind %d", what, u.Offset, at)
		}
		at = u.End()
		for _, f := range u.found {
			if f.Kind == "" || f.Message == "" || f.Offset < 0 || f.Offset+f.Length > int64(len(b)) {
				t.Fatalf("%s: a finding without a place: %+v", what, f)
			}
		}
	}
	if at > int64(len(b)) {
		t.Fatalf("%s: ends at %d of %d", what, at, len(b))
	}
	if r.Ending() == "" || r.Ending() == wire.EndingClean && at != int64(len(b)) {
		t.Fatalf("%s: ending %q at %d of %d, %v", what, r.Ending(), at, len(b), last)
	}
}

// small is a stream with every kind of frame that a connection has.
func small(t testing.TB) []byte {
	b := raw(TagChallenge, make([]byte, 32))
	b = append(b, raw(TagAuthOk)...)
	b = append(b, raw(TagNeedSnapshot)...)
	snap := append([]byte("a snapshot"), le(4, uint64(0))...)
	sum := crc(snap[:10])
	copy(snap[10:], le(4, uint64(sum)))
	b = append(b, raw(TagSnapshotBegin, le(8, uint64(len(snap))), le(8, 40), hash1)...)
	b = append(b, raw(TagSnapshotChunk, snap)...)
	b = append(b, raw(TagSnapshotEnd, le(4, uint64(crc(snap))))...)
	b = append(b, raw(TagSegmentSeedBegin, le(8, 6))...)
	b = append(b, raw(TagSnapshotChunk, []byte("see"))...)
	b = append(b, raw(TagSnapshotChunk, []byte("ded"))...)
	b = append(b, raw(TagSnapshotEnd, le(4, uint64(crc([]byte("seeded")))))...)
	b = append(b, oldStreamStart(8, 40, 31, 0)...)
	b = append(b, oldBatch(8, oldSlots(41)...)...)
	b = append(b, oldHeartbeat(8, 44)...)
	b = append(b, raw(TagChainCheck, le(8, 44), hash1)...)
	b = append(b, oldBatch(8, oldSlot{seq: 45, event: 0x80, payload: []byte("x")})...)
	b = append(b, raw(TagRotate, le(8, 45), hash2)...)
	b = append(b, oldBatch(8, oldSlot{seq: 46, event: 0x80, payload: []byte("y")}, oldSlot{seq: 47, event: 0x05, payload: []byte{1, 0}})...)
	b = append(b, oldHeartbeat(8, 47)...)
	us, last, _ := readAll(t, b, open(t, wire.Config{}))
	for _, u := range us {
		for _, f := range u.found {
			t.Fatalf("the sound stream has a finding: %+v", f)
		}
	}
	if len(last) > 0 {
		t.Fatalf("%+v", last)
	}
	return b
}

func crc(b []byte) uint32 {
	c := ^uint32(0)
	for _, x := range b {
		c ^= uint32(x)
		for range 8 {
			c = c>>1 ^ 0x82f63b78&-(c&1)
		}
	}
	return ^c
}

func TestCutAtEveryByte(t *testing.T) {
	b := small(t)
	ends := map[int]bool{0: true}
	us, _, _ := readAll(t, b, open(t, wire.Config{}))
	for _, u := range us {
		ends[int(u.End())] = true
	}
	for n := range len(b) + 1 {
		us, last, r := readAll(t, b[:n], open(t, wire.Config{}))
		whole(t, fmt.Sprint("cut at ", n), b[:n], us, last, r)
		if clean := r.Ending() == wire.EndingClean; clean != ends[n] {
			t.Errorf("cut at %d: %v", n, r.Ending())
		} else if !clean && (len(last) != 1 || last[0].Kind != wire.KindCut || last[0].Offset != us2end(us)) {
			t.Errorf("cut at %d: %+v", n, last)
		}
	}
}

func us2end(us []unit) int64 {
	if len(us) == 0 {
		return 0
	}
	return us[len(us)-1].End()
}

// Any one flipped bit in a slot is found: by its CRC, or because the slots no
// longer fill their frame.
func TestFlippedBitsInSlots(t *testing.T) {
	b := small(t)
	us, _, _ := readAll(t, b, open(t, wire.Config{}))
	n := 0
	for _, u := range us {
		if u.Kind != TagInputBatch {
			continue
		}
		for at := u.Offset + PrefixSize + lenInputBatch; at < u.End(); at++ {
			for bit := range 8 {
				c := bytes.Clone(b)
				c[at] ^= 1 << bit
				found := false
				got, last, r := readAll(t, c, open(t, wire.Config{Context: AtStart(8)}))
				whole(t, fmt.Sprint("flip ", at), c, got, last, r)
				for _, g := range got {
					for _, f := range g.found {
						found = found || g.Offset == u.Offset && (f.Kind == KindSlotCRC || f.Kind == wire.KindMalformed)
					}
				}
				if !found {
					t.Fatalf("bit %d of byte %d is not found", bit, at)
				}
				if len(got) != len(us) {
					t.Fatalf("bit %d of byte %d: %d frames, want %d", bit, at, len(got), len(us))
				}
				n++
			}
		}
	}
	if n < 1000 {
		t.Fatalf("only %d bits", n)
	}
}

// A flipped bit anywhere, in a length too, costs at most what is near it: the
// frames are found again.
func TestFramingIsFoundAgain(t *testing.T) {
	b := small(t)
	tail := bytes.Repeat(append(oldBatch(8, oldSlot{seq: 48, event: 0x80, payload: []byte("z")}), oldHeartbeat(8, 48)...), 20)
	b = append(b, tail...)
	for at := range len(b) - len(tail) {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[at] ^= 1 << bit
			us, last, r := readAll(t, c, open(t, wire.Config{}))
			whole(t, fmt.Sprint("flip ", at), c, us, last, r)
			heartbeats := 0
			for _, u := range us {
				if u.Kind == TagHeartbeat && u.Size == 13 && u.Offset >= int64(len(b)-len(tail)) {
					heartbeats++
				}
			}
			// A length that stays below the cap may own what follows, as far
			// as it reaches.
			if heartbeats < 18 && !(at < len(b)-len(tail) && longer(b, at, bit)) {
				t.Fatalf("bit %d of byte %d: only %d frames behind it were read, ending %v", bit, at, heartbeats, r.Ending())
			}
		}
	}
}

// longer says that the flip makes a frame's length larger and still possible.
func longer(b []byte, at, bit int) bool {
	for off := 0; off < len(b); off += PrefixSize + int(u32(b[off:])) {
		if at >= off && at < off+PrefixSize {
			n := u32(b[off:])
			f := n ^ 1<<(8*(at-off)+bit)
			return f > n && f <= MaxFrame
		}
	}
	return false
}

func TestZeroFromEverySector(t *testing.T) {
	b := fixture.Read(t, "testdata/s1-main/conn01-p2r.bin.gz")
	for from := 0; from < len(b); from += wire.SectorSize {
		c := bytes.Clone(b)
		clear(c[from:])
		us, last, r := readAll(t, c, open(t, wire.Config{}))
		whole(t, fmt.Sprint("zeros from ", from), c, us, last, r)
		n := 0
		for _, u := range us {
			n += len(u.found)
		}
		if n+len(last) > 40 {
			t.Fatalf("zeros from %d: %d findings", from, n+len(last))
		}
		// The same with the zeros known, as a file's reader knows them.
		z := len(bytes.TrimRight(c, "\x00"))
		rd := wire.NewReader(bytes.NewReader(c), open(t, wire.Config{}), wire.ReaderOptions{Zeros: wire.ZerosFrom(int64(z), 0)})
		var err error
		for err == nil {
			_, _, err = rd.Next()
		}
		if e := rd.Ending(); from > 0 && e != wire.EndingZeroTail && e != wire.EndingClean && e != wire.EndingCut {
			t.Fatalf("zeros from %d: %v", from, e)
		}
	}
	// A sector of zeros in the middle: what lies behind is read.
	for from := 512; from+1024 < len(b); from += 5 * wire.SectorSize {
		c := bytes.Clone(b)
		clear(c[from : from+wire.SectorSize])
		us, last, r := readAll(t, c, open(t, wire.Config{}))
		whole(t, fmt.Sprint("a zero sector at ", from), c, us, last, r)
		if r.Ending() != wire.EndingClean || us[len(us)-1].End() != int64(len(b)) {
			t.Fatalf("a zero sector at %d: %v", from, r.Ending())
		}
	}
}

func TestDamageOfEveryGoldenStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 12
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		rounds = 2000
	}
	for _, name := range golden(t) {
		b := fixture.Read(t, name)
		for range rounds {
			c := bytes.Clone(b)
			for range 1 + rng.IntN(4) {
				at := rng.IntN(len(c))
				switch rng.IntN(4) {
				case 0:
					c[at] ^= 1 << rng.IntN(8)
				case 1:
					c = c[:max(at, 1)]
				case 2:
					clear(c[at:min(len(c), at+rng.IntN(2048))])
				default:
					n := min(len(c)-at, rng.IntN(64))
					for i := range n {
						c[at+i] = byte(rng.Uint32())
					}
				}
			}
			d := open(t, wire.Config{})
			us, last, r := readAll(t, c, d)
			whole(t, name, c, us, last, r)
			for _, u := range us {
				d.Info(u.Unit)
				fs, _ := d.Fields(u.Unit)
				tiles2(t, fs, u.Unit)
			}
		}
	}
}

// tiles2 checks that fields of a damaged frame stay inside it.
func tiles2(t *testing.T, fs []wire.Field, u wire.Unit) {
	t.Helper()
	for _, f := range fs {
		if f.Offset < u.Offset || f.Offset+f.Length > u.End() {
			t.Fatalf("%s at %d+%d outside of its frame", f.Name, f.Offset, f.Length)
		}
		if f.Count > 0 {
			tiles2(t, f.Children(nil, f.Count-1, 1), u)
		}
	}
}

// The damages that the specification names, each with its place.
func TestNamedDamages(t *testing.T) {
	start := oldStreamStart(8, 0, 1, 0)
	batch := oldBatch(8, oldSlots(1)...)
	hb := oldHeartbeat(8, 4)
	after := append(bytes.Clone(batch), hb...)
	over := func(n uint32) []byte {
		b := make([]byte, 4+n)
		binary.LittleEndian.PutUint32(b, n)
		b[4] = TagChallenge
		return b
	}
	for _, c := range []struct {
		what  string
		in    [][]byte
		kinds string // of all findings, in order
		at    int64  // of the first
		units int
	}{
		{"length 0", [][]byte{start, make([]byte, 4), after}, "empty-frame", 70, 4},
		{"a Challenge over the control cap", [][]byte{over(300), start, after}, "over-cap left-over-bytes", 0, 4},
		{"over the protocol's cap", [][]byte{start, {0xff, 0xff, 0xff, 0x7f, 0x21, 1, 2}, after}, "bad-length", 70, 3},
		{"over the cap by one", [][]byte{start, {1, 0, 12, 0, 0x21, 1, 2}, after}, "bad-length", 70, 3},
		{"an unknown tag", [][]byte{start, raw(0x77, []byte("new")), after}, "unknown-kind", 74, 4},
		{"left-over on a fixed frame", [][]byte{start, raw(TagChainCheck, le(8, 0), hash1, []byte("xyz")), after}, "left-over-bytes", 70 + 45, 4},
		{"a short fixed frame", [][]byte{start, raw(TagChainCheck, le(8, 0)), after}, "malformed-frame", 70, 4},
		{"bytes behind the last slot", [][]byte{start, grow(batch), hb}, "malformed-frame", 70 + int64(len(batch)), 3},
		{"a retired event", [][]byte{start, oldBatch(8, oldSlot{seq: 1, event: 0x01}), oldHeartbeat(8, 1)}, "bad-event", 77, 3},
		{"a Tick of seven bytes", [][]byte{start, oldBatch(8, oldSlot{seq: 1, event: 0x03, payload: make([]byte, 7)}), oldHeartbeat(8, 1)}, "bad-event", 77, 3},
		{"a heartbeat ahead", [][]byte{start, batch, oldHeartbeat(8, 9), oldHeartbeat(8, 9)}, "announced-sequence", 70 + int64(len(batch)) + 5, 4},
		{"an epoch that goes back", [][]byte{oldStreamStart(8, 0, 1, 5), oldBatch(8, oldSlot{seq: 1, event: 4, payload: le(8, 4)})}, "epoch-back", 70 + 7 + 27, 2},
		{"a batch before the start", [][]byte{batch}, "out-of-order", 4, 1},
		{"the other direction's frame", [][]byte{start, raw(TagAck, le(8, 1), le(8, 1)), after}, "out-of-order", 74, 4},
		{"a chunk of nothing", [][]byte{raw(TagSnapshotChunk, []byte("x")), start}, "out-of-order", 4, 2},
		{"a repeat", [][]byte{start, batch, batch}, "", 0, 3},
		{"a count of 0", [][]byte{start, oldBatch(8), after}, "", 0, 4},
	} {
		in := bytes.Join(c.in, nil)
		us, last, r := readAll(t, in, open(t, wire.Config{Direction: wire.Downstream}))
		whole(t, c.what, in, us, last, r)
		var kinds []string
		at := int64(-1)
		for _, u := range us {
			for _, f := range u.found {
				kinds = append(kinds, f.Kind)
				if at < 0 {
					at = f.Byte()
				}
			}
		}
		if got := strings.Join(kinds, " "); got != c.kinds || len(kinds) > 0 && at != c.at || len(us) != c.units || r.Ending() != wire.EndingClean {
			t.Errorf("%s: %q at %d, %d units, %v; want %q at %d, %d units", c.what, got, at, len(us), r.Ending(), c.kinds, c.at, c.units)
		}
	}
	for _, c := range []struct {
		what, kind, field string
		ack               []byte
	}{
		{"acked above in memory", KindAckOrder, "in_memory_sequence", raw(TagAck, le(8, 9), le(8, 8))},
		{"acked goes back", KindAckOrder, "acked_sequence", raw(TagAck, le(8, 4), le(8, 8))},
	} {
		us, _, _ := readAll(t, append(raw(TagHandshake, le(8, 5), hash1, le(8, 0), le(2, 8)), c.ack...), open(t, wire.Config{}))
		if fs := us[1].found; len(fs) != 1 || fs[0].Kind != c.kind || fs[0].Field != c.field {
			t.Errorf("%s: %+v", c.what, fs)
		}
	}
}

// grow adds a byte behind the last slot.
func grow(batch []byte) []byte {
	b := append(bytes.Clone(batch), 0)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// A stream comes to the same whether it arrives at once or byte by byte.
func TestScannerSeesTheSame(t *testing.T) {
	b := small(t)
	b = append(b, 0xff, 0xff, 0xff, 0x7f, 0x21)
	b = append(b, bytes.Repeat(oldHeartbeat(8, 47), 3)...)
	read := func(piece int) (out []string) {
		s := wire.NewScanner(open(t, wire.Config{}), 0, 0)
		for at := 0; at < len(b); at += piece {
			p := b[at:min(len(b), at+piece)]
			for len(p) > 0 {
				n, u, done := s.Next(p)
				p = p[n:]
				if done && u.Type == wire.UnitFrame {
					out = append(out, fmt.Sprint(u.Offset, u.Size, u.Kind))
				}
			}
		}
		s.Finish()
		for _, f := range s.Findings() {
			out = append(out, fmt.Sprint(f.Kind, f.Byte(), f.Length))
		}
		return out
	}
	want := strings.Join(read(len(b)), "\n")
	for _, piece := range []int{1, 3, 7, 64, 1000} {
		if got := strings.Join(read(piece), "\n"); got != want {
			t.Errorf("in pieces of %d:\n%s\nwant\n%s", piece, got, want)
		}
	}
	if !strings.Contains(want, wire.KindBadLength) {
		t.Error("the damage was not found")
	}
}

// Bytes made to look like frames everywhere do not make the search slow.
func TestSearchIsBounded(t *testing.T) {
	// Every 5 bytes the header of a batch that could hold all that follows.
	b := append(oldStreamStart(8, 0, 1, 0), 0xff, 0xff, 0xff, 0xff, 0xff)
	b = append(b, bytes.Repeat([]byte{0x21, 0xf0, 0x0b, 0x00, 0x00}, 1<<19)...)
	us, last, r := readAll(t, b, open(t, wire.Config{Direction: wire.Downstream}))
	whole(t, "headers everywhere", b, us, last, r)
}

func FuzzDecoder(f *testing.F) {
	f.Add(small(f), uint8(0))
	for v := 1; v <= 8; v++ {
		f.Add(oldStream(v), uint8(v))
	}
	f.Add(fixture.Read(f, "testdata/vectors/melin-r2p.bin.gz"), uint8(0))
	f.Add(fixture.Read(f, "testdata/s2-idle/conn01-p2r.bin.gz"), uint8(0))
	f.Add(fixture.Read(f, "testdata/s2-idle/conn01-p2r.bin.gz")[39:], uint8(64))
	f.Add(fixture.Read(f, "testdata/s2-idle/conn01-r2p.bin.gz")[60:], uint8(64|15))
	f.Add(longStream(4)[130:], uint8(128|15))
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		cfg := wire.Config{Direction: wire.Direction(how >> 4 & 3), Named: how&64 > 0, Unaligned: how&128 > 0}
		if l := Layout(how & 15); l <= Newest && l > 0 {
			cfg.Context = AtStart(l)
		} else if how&15 == 15 {
			cfg.Context = wire.MidStream(Name)
		}
		if cfg.Direction > wire.Upstream {
			cfg.Direction = 0
		}
		d := open(t, cfg)
		us, last, r := readAll(t, b, d)
		whole(t, "fuzz", b, us, last, r)
		for _, u := range us {
			d.Info(u.Unit)
			fs, _ := d.Fields(u.Unit)
			tiles2(t, fs, u.Unit)
			appendAgain(nil, u.Unit, d.Layouts().Taken())
		}
		if c := d.Context(4096); c != nil {
			if _, err := NewDecoder(wire.Config{Context: c}); err != nil {
				t.Fatalf("its own context: %v", err)
			}
		}
		Protocol{}.Detect(b[:min(len(b), wire.DetectLimit)], true)
	})
}

// Cuts, single flips and zeros through every golden stream: at points a stride
// apart, and around every one of its first boundaries.
func TestSweepsOfEveryGoldenStream(t *testing.T) {
	points := 60
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		points = 5000
	}
	for _, name := range golden(t) {
		b := fixture.Read(t, name)
		us, _, _ := readAll(t, b, open(t, wire.Config{}))
		ends := map[int]bool{0: true}
		var at []int
		for i, u := range us {
			ends[int(u.End())] = true
			if i < points/4 {
				at = append(at, int(u.End())-1, int(u.End()), int(u.End())+1)
			}
		}
		for p := 0; p < len(b); p += max(1, len(b)/points) {
			at = append(at, p)
		}
		for _, p := range at {
			if p >= len(b) {
				continue
			}
			got, last, r := readAll(t, b[:p], open(t, wire.Config{}))
			whole(t, fmt.Sprint(name, " cut at ", p), b[:p], got, last, r)
			if (r.Ending() == wire.EndingClean) != ends[p] {
				t.Fatalf("%s cut at %d: %v", name, p, r.Ending())
			}
			c := bytes.Clone(b)
			c[p] ^= 1 << (p % 8)
			got, last, r = readAll(t, c, open(t, wire.Config{}))
			whole(t, fmt.Sprint(name, " flip at ", p), c, got, last, r)
			c[p] ^= 1 << (p % 8)
			clear(c[p:])
			got, last, r = readAll(t, c, open(t, wire.Config{}))
			whole(t, fmt.Sprint(name, " zeros from ", p), c, got, last, r)
			// What was read before the damage is what was there.
			for i, u := range got {
				if u.End() > int64(p) {
					break
				}
				if u.Offset != us[i].Offset || u.Size != us[i].Size || u.Kind != us[i].Kind {
					t.Fatalf("%s zeros from %d: unit %d at %d", name, p, i, u.Offset)
				}
			}
		}
	}
}
