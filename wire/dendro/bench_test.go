package dendro_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// The streams that are measured: 32 MiB of segments of a megabyte, of rows as a
// publisher sends them, and of many small frames.
func benchStreams() map[string][]byte {
	const size = 32 << 20
	seg := dendro.AppendSegment(nil, &dendro.Segment{Stream: []byte("cpu_usage"), Rows: 1000, FirstTS: 1, LastTS: 2, Bytes: make([]byte, 1<<20)})
	row := make([]dendro.Row, 200)
	for i := range row {
		row[i] = dendro.Row{Stream: []byte("cpu_usage"), TS: int64(i) + 1<<60, WallOffset: -3, Row: make([]byte, 120)}
	}
	r := dendro.NewRows(0, 0, dendro.State{}, row)
	rowsFrame := dendro.AppendRows(nil, &r)
	clock := dendro.AppendClockOffset(nil, &dendro.ClockOffset{TS: 1, OffsetNs: 2})
	all := map[string][]byte{}
	for name, f := range map[string][]byte{"segments": seg, "rows": rowsFrame, "small": clock} {
		s := stream(hello(0))
		for len(s) < size {
			s = append(s, f...)
		}
		all[name] = s
	}
	return all
}

var order = []string{"segments", "rows", "small"}

func perStream(b *testing.B, run func(b *testing.B, s []byte)) {
	all := benchStreams()
	for _, name := range order {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(all[name])))
			for b.Loop() {
				run(b, all[name])
			}
		})
	}
}

var sink uint64

// BenchmarkWalk is the peer: every word of the same bytes read once.
func BenchmarkWalk(b *testing.B) {
	perStream(b, func(b *testing.B, s []byte) {
		sum := uint64(0)
		for len(s) >= 8 {
			sum += binary.LittleEndian.Uint64(s)
			s = s[8:]
		}
		sink = sum
	})
}

// BenchmarkDecode observes whole frames where they lie and visits every row.
func BenchmarkDecode(b *testing.B) {
	perStream(b, func(b *testing.B, s []byte) {
		d := newDecoder(b)
		sum, off := uint64(0), int64(0)
		for off < int64(len(s)) {
			h := d.Head(s[off:], true)
			if h.Type != wire.UnitFrame && h.Type != wire.UnitPreamble {
				b.Fatal(h.Type)
			}
			u := wire.Unit{Type: h.Type, Offset: off, Size: h.Size, Kind: h.Kind, Bytes: s[off : off+h.Size]}
			if found := d.Observe(u, nil); len(found) > 0 {
				b.Fatal(found)
			}
			if r := d.Last().Rows; r != nil {
				for row := range r.All() {
					sum += uint64(row.TS) + uint64(len(row.Row))
				}
			}
			off += h.Size
		}
		sink = sum
	})
}

// BenchmarkScan is what recording costs: frames found in pieces of 64 KiB.
func BenchmarkScan(b *testing.B) {
	perStream(b, func(b *testing.B, s []byte) {
		sc := wire.NewScanner(newDecoder(b), 0, 0)
		for len(s) > 0 {
			p := s[:min(64<<10, len(s))]
			s = s[len(p):]
			for len(p) > 0 {
				n, _, _ := sc.Next(p)
				p = p[n:]
			}
		}
		if sc.Finish() != wire.EndingClean {
			b.Fatal("not clean")
		}
	})
}

// BenchmarkRead is what replay costs before it does anything: whole frames out
// of a reader.
func BenchmarkRead(b *testing.B) {
	perStream(b, func(b *testing.B, s []byte) {
		r := wire.NewReader(bytes.NewReader(s), newDecoder(b), wire.ReaderOptions{})
		for {
			if _, _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSkim is what the index pass of a viewer does first with small frames.
func BenchmarkSkim(b *testing.B) {
	s := stream(hello(0), hello(1))
	row := []dendro.Row{{Stream: []byte("a"), Row: make([]byte, 8)}}
	n := 2
	for seq := uint64(0); len(s) < 8<<20; seq++ {
		for source := range uint32(2) {
			row[0].TS = int64(seq)
			r := dendro.NewRows(source, seq, dendro.State{}, row)
			s = dendro.AppendRows(s, &r)
			s = dendro.AppendClockOffset(s, &dendro.ClockOffset{Source: source, TS: 1, OffsetNs: 2})
			n += 2
		}
	}
	dst := make([]wire.Skimmed, 512)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		d, err := dendro.NewDecoder(wire.Config{})
		if err != nil {
			b.Fatal(err)
		}
		at := 0
		for range 4 { // with the first row the opening is over
			at += next(d, s[at:])
		}
		seen := 3
		for at < len(s) {
			k, size := d.Skim(s[at:], dst)
			if k == 0 {
				b.Fatal("a plain frame is not skimmed at ", at)
			}
			seen += k
			at += size
		}
		if seen != n {
			b.Fatal(seen, n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/frame")
}

// next observes the unit at the start of s and gives its size.
func next(d *dendro.Decoder, s []byte) int {
	h := d.Head(s, true)
	d.Observe(wire.Unit{Type: h.Type, Size: h.Size, Kind: h.Kind, Bytes: s[:h.Size]}, nil)
	return int(h.Size)
}
