package capture

import (
	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// prover holds the bytes of a file against its arrival index as they go by, and
// so finds out which of them are not those that came.
type prover struct {
	idx *sidecar.Index // nil when there is none
	// cur is the read that the next byte came with, if any.
	cur   sidecar.Arrival
	any   bool
	off   int64 // of the next byte
	crc   uint32
	torn  []wire.Finding
	more  int64 // torn stretches beyond those listed
	start int64
	// first and last are the reads that the index has of the file.
	first, last sidecar.Arrival
	// proven is the end of the stretch from the file's start on that is as it
	// came.
	proven int64
	broken bool
}

// maxTorn is how many torn stretches of a file are listed.
const maxTorn = 100

func newProver(start int64, idx *sidecar.Index) *prover {
	p := &prover{idx: idx, off: start, start: start, proven: start}
	p.advance()
	p.first = p.cur
	if p.any && p.cur.Offset != start {
		p.any, p.idx = false, nil
	}
	return p
}

// advance goes to the next read of the index.
func (p *prover) advance() {
	p.any = false
	if p.idx == nil {
		return
	}
	if p.cur, p.any = p.idx.Next(); p.any {
		p.last = p.cur
	}
}

// rest reads the index to its end.
func (p *prover) rest() {
	for p.any {
		p.advance()
	}
}

// Write takes the next bytes.
func (p *prover) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 && p.any {
		a := p.cur
		n := min(int64(len(b)), a.Offset+a.Length-p.off)
		p.crc = sidecar.CRC(p.crc, b[:n])
		p.off += n
		b = b[n:]
		if p.off < a.Offset+a.Length {
			break
		}
		p.settle(a)
		p.crc = 0
		p.advance()
	}
	p.off += int64(len(b))
	return total, nil
}

func (p *prover) settle(a sidecar.Arrival) {
	if p.crc == a.CRC {
		if !p.broken {
			p.proven = a.Offset + a.Length
		}
		return
	}
	p.broken = true
	if n := len(p.torn); n > 0 && p.torn[n-1].Offset+p.torn[n-1].Length == a.Offset {
		p.torn[n-1].Length += a.Length
		return
	}
	if len(p.torn) == maxTorn {
		p.more++
		return
	}
	p.torn = append(p.torn, wire.Finding{Kind: KindTornBytes, Offset: a.Offset, Length: a.Length})
}

// findings are the torn stretches, with their words.
func (p *prover) findings(file string) []wire.Finding {
	for i := range p.torn {
		f := &p.torn[i]
		f.File = file
		f.Message = "bytes " + wire.Itoa(f.Offset) + " to " + wire.Itoa(f.Offset+f.Length) + " (" +
			wire.Itoa(f.Offset-p.start) + " in the file) do not fit their arrival index: they or the index are damaged"
		f.Cost = "what these bytes said"
	}
	if p.more > 0 {
		last := &p.torn[len(p.torn)-1]
		last.Message += "; " + wire.Itoa(p.more) + " more such stretches follow"
	}
	return p.torn
}
