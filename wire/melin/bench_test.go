package melin

import (
	"bytes"
	"hash/crc32"
	"testing"
	"time"

	"wiretape/wire"
)

// benchStream is traffic of InputBatches with slots of a payload's size, as a
// busy primary sends it: batches up to 64 KiB, heartbeats between.
func benchStream(payload int) (b []byte, slots int) {
	b = oldStreamStart(8, 0, 1, 0)
	seq := uint64(0)
	s := Slot{Event: EventApp, Payload: bytes.Repeat([]byte("p"), payload), KeyHash: 7, Timestamp: 1e18}
	for len(b) < 64<<20 {
		start := 0
		b, start = BeginInputBatch(b)
		n := 0
		for ; len(b)-start < 64<<10; n++ {
			seq++
			s.Sequence = seq
			b = AppendSlot(b, &s, ShapeCRC)
		}
		slots += n
		b = EndInputBatch(b, start, n)
		b = (&Heartbeat{Sequence: seq}).Append(b)
	}
	return b, slots
}

var benchPayloads = []struct {
	name string
	size int
}{{"slots-of-40", 9}, {"slots-of-287", 256}, {"slots-of-1055", 1024}}

// BenchmarkDecode decodes every slot of a stream in memory.
func BenchmarkDecode(b *testing.B) {
	for _, p := range benchPayloads {
		b.Run(p.name, func(b *testing.B) {
			in, slots := benchStream(p.size)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if n := decodeAll(b, in); n != slots {
					b.Fatal(n)
				}
			}
		})
	}
}

func decodeAll(b *testing.B, in []byte) (slots int) {
	d := open(b, wire.Config{Direction: wire.Downstream})
	for len(in) > 0 {
		h := d.Head(in, true)
		if h.Type != wire.UnitFrame {
			b.Fatal(h)
		}
		if h.Kind == TagInputBatch {
			r := SlotsOf(in[:h.Size], ShapeCRC)
			var s Slot
			for r.Next(&s) {
				slots++
			}
			if r.Fault() != nil {
				b.Fatal(r.Fault())
			}
		}
		in = in[h.Size:]
	}
	return slots
}

// BenchmarkObserve reads the stream as the recorder and the rebuild do, with
// every check: frames found, slots walked, CRCs and sequences.
func BenchmarkObserve(b *testing.B) {
	for _, p := range benchPayloads {
		b.Run(p.name, func(b *testing.B) {
			in, _ := benchStream(p.size)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				d := open(b, wire.Config{})
				var fs []wire.Finding
				for off := 0; off < len(in); {
					h := d.Head(in[off:], true)
					fs = d.Observe(wire.Unit{Type: h.Type, Offset: int64(off), Size: h.Size, Kind: h.Kind, Bytes: in[off : off+int(h.Size)]}, fs[:0])
					if len(fs) > 0 {
						b.Fatal(fs)
					}
					off += int(h.Size)
				}
			}
		})
	}
}

// BenchmarkCRC holds the checking of every slot's CRC against CRC-32C alone
// over the same bytes, in one run; ratio is how much of its speed is left.
func BenchmarkCRC(b *testing.B) {
	for _, p := range benchPayloads {
		b.Run(p.name, func(b *testing.B) {
			in, _ := benchStream(p.size)
			b.SetBytes(int64(len(in)))
			var alone, checked timer
			for b.Loop() {
				alone.measure(func() { crc32.Update(0, castagnoli, in) })
				checked.measure(func() {
					for rest := in; len(rest) > 0; {
						n := PrefixSize + int(u32(rest))
						if rest[4] == TagInputBatch {
							r := SlotsOf(rest[:n], ShapeCRC)
							var s Slot
							for r.Next(&s) {
								if !s.CRCValid() {
									b.Fatal("crc")
								}
							}
						}
						rest = rest[n:]
					}
				})
			}
			b.ReportMetric(alone.seconds()/checked.seconds(), "ratio")
		})
	}
}

// timer keeps the best of what it measured: other load only slows.
type timer struct{ best time.Duration }

func (t *timer) measure(f func()) {
	start := time.Now()
	f()
	if d := time.Since(start); t.best == 0 || d < t.best {
		t.best = d
	}
}

func (t *timer) seconds() float64 { return t.best.Seconds() }
