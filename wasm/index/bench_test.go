package index

import (
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// smallFrames is a stream of n frames of 25 to 80 bytes from 4 sources.
func smallFrames(n int) []byte {
	b := dendro.AppendPreamble(nil)
	for s := range uint32(4) {
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: s, Labels: dendro.NewMap(map[string]string{"host": "h" + wire.Itoa(int64(s))})})
	}
	row := []dendro.Row{{Stream: []byte("a"), Row: make([]byte, 8)}}
	for i := range n {
		s := uint32(i % 4)
		if i/4%3 == 0 {
			b = dendro.AppendClockOffset(b, &dendro.ClockOffset{Source: s, TS: int64(i) * 1000, OffsetNs: int64(i % 1000)})
			continue
		}
		row[0].TS = int64(i) * 1000
		r := dendro.NewRows(s, uint64(i/12*2+i/4%3), dendro.State{}, row)
		b = dendro.AppendRows(b, &r)
	}
	return b
}

func drive(p *Pass, b []byte) {
	for !p.Done() {
		pos, n := p.Need()
		p.Feed(b[pos:min(int64(len(b)), max(pos+n, pos+FeedLimit))])
	}
}

// BenchmarkSmallFrames is the first pass over frames that are all small: what
// it costs a frame.
func BenchmarkSmallFrames(b *testing.B) {
	const n = 200_000
	stream := smallFrames(n)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		ix := New(dendro.Protocol{}, wire.Downstream, []Run{{End: int64(len(stream))}})
		drive(ix.First(), stream)
		if ix.Rows != n+5 {
			b.Fatal(ix.Rows)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/frame")
}
