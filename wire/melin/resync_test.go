package melin

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"wiretape/wire"
)

// junkOf makes bytes in which no frame starts, some of them made to look as if.
var junkOf = []struct {
	name string
	make func(n int) []byte
}{
	{"random", func(n int) []byte {
		b := make([]byte, n)
		rng := rand.NewChaCha8([32]byte{1})
		rng.Read(b)
		return b
	}},
	{"zeros", func(n int) []byte { return make([]byte, n) }},
	// A header of a batch that could hold all that follows, every 5 bytes.
	{"headers", func(n int) []byte {
		return bytes.Repeat([]byte{0x21, 0xf0, 0x0b, 0x00, 0x00}, n/5)
	}},
	// Headers of batches whose first slot could be one, close together.
	{"batches", func(n int) []byte {
		one := binary.LittleEndian.AppendUint32(nil, MaxFrame)
		one = append(one, TagInputBatch, 0xff, 0xff, 9, 0)
		return bytes.Repeat(one, n/len(one))
	}},
	// Slots that are valid but for the last of their batch.
	{"slots", func(n int) []byte {
		b, at := BeginInputBatch(nil)
		count := 0
		for ; len(b) < MaxFrame-40; count++ {
			b = AppendSlot(b, &Slot{Sequence: uint64(count + 1), Event: EventApp}, ShapeCRC)
		}
		b = EndInputBatch(b, at, count)
		b[len(b)-1] ^= 1
		return bytes.Repeat(b, n/len(b)+1)[:n]
	}},
	// Batches that begin inside of one another, each with slots that are valid for
	// long.
	{"nested", func(n int) []byte {
		var b []byte
		inner := binary.LittleEndian.AppendUint32(nil, MaxFrame-100)
		inner = append(inner, TagInputBatch, 0xff, 0xff)
		slot := AppendSlot(nil, &Slot{Sequence: 1, Event: EventApp, Payload: inner}, ShapePlain)
		for len(b) < n {
			b = append(append(b, inner...), bytes.Repeat(slot, 2000)...)
		}
		return b[:n]
	}},
	// Chunks of a body, each of which ends where nothing follows.
	{"chunks", func(n int) []byte {
		one := append(binary.LittleEndian.AppendUint32(nil, 1+MaxChunk), TagSnapshotChunk)
		return bytes.Repeat(one, n/len(one)+1)[:n]
	}},
}

func BenchmarkResync(b *testing.B) {
	tail := longStream(8)
	for _, j := range junkOf {
		for _, size := range []int{4 << 20, 32 << 20} {
			in := append(j.make(size), tail...)
			b.Run(j.name+"/"+wire.Itoa(int64(size>>20))+"MiB", func(b *testing.B) {
				b.SetBytes(int64(len(in)))
				for b.Loop() {
					r := wire.NewReader(bytes.NewReader(in), open(b, wire.Config{Named: true}), wire.ReaderOptions{})
					n := 0
					for {
						if _, _, err := r.Next(); err != nil {
							break
						}
						n++
					}
					b.ReportMetric(float64(n), "frames")
				}
			})
		}
	}
}

// Bytes that look like headers cost the search what it looks at of them, and not
// what they claim: the frames right behind them are found.
func TestFramesBehindHeaders(t *testing.T) {
	tail := longStream(8)[42:] // from StreamStart on
	for _, j := range junkOf {
		in := append(j.make(300<<10), tail...)
		if j.name == "nested" || j.name == "chunks" {
			// What looks into one another for long is given up at some point, and
			// a chunk may hold the frames behind it.
			in = append(in, j.make(3<<20)...)
			in = append(in, tail...)
		}
		for _, cfg := range []wire.Config{{Named: true}, {Named: true, Direction: wire.Downstream}, {Unaligned: true}} {
			us, last, r := readAll(t, in, open(t, cfg))
			whole(t, j.name, in, us, last, r)
			found := false
			for _, u := range us {
				found = found || u.Offset == int64(len(in)-len(tail))
			}
			if !found && j.name != "nested" && j.name != "chunks" {
				t.Errorf("%s: %d frames, %+v, ending %s", j.name, len(us), last, r.Ending())
			}
		}
	}
}
