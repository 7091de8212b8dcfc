package index

import (
	"sort"

	"wiretape/wasm/packed"
	"wiretape/wire"
)

// Pass is one walk over a part of the connection. Its driver gives it the bytes
// that it asks for until it is done:
//
//	for !p.Done() {
//		pos, n := p.Need()
//		p.Feed(read(pos, n)) // n bytes from pos on, or more
//	}
type Pass struct {
	ix    *Index
	w     walker
	visit func(*Row) bool
	after func()
	over  bool
	// rows and closed: Out is an array, and has its end.
	rows, closed bool
	// Out is what the pass has made.
	Out []byte
	// State is what a unit pass found before its row.
	State []byte
}

// Need is where bytes are wanted and how many at least, never more than
// [WholeLimit] and never beyond the end of the connection's files.
func (p *Pass) Need() (pos, n int64) {
	r := &p.w.runs[p.w.run]
	return p.w.pos, max(0, min(p.w.need, r.End-p.w.pos))
}

// Done says that nothing more is wanted.
func (p *Pass) Done() bool { return p.over || p.w.done }

// Err is why the walk could not be started.
func (p *Pass) Err() error { return p.w.err }

// Feed takes bytes from the wanted place on. They are good for the call only.
func (p *Pass) Feed(b []byte) {
	p.w.feed(b, func(r *Row) bool {
		stop := p.visit(r)
		if p.after != nil {
			p.after()
		}
		return stop
	})
	if p.after != nil {
		p.after()
	}
}

// RowsPass makes the rows with the given numbers, in rising order, as a JSON
// array. It starts at the newest state before each and reads of other rows only
// what the state needs.
func (ix *Index) RowsPass(numbers []int64) *Pass {
	p := &Pass{ix: ix, w: ix.walker(0), rows: true, Out: []byte{'['}}
	i := 0
	seek := func() {
		p.w.target = numbers[i]
		s := ix.before(numbers[i])
		if i == 0 || s.number > p.w.number {
			s.place(&p.w)
		}
	}
	p.visit = func(r *Row) bool {
		if r.Number != numbers[i] {
			return false
		}
		var info wire.Info
		if r.What == Frame || r.What == Preamble {
			info = p.w.dec.Info(r.Unit)
		} else if len(r.Findings) > 0 {
			info.Summary = r.Findings[0].Message
		}
		if i > 0 {
			p.Out = append(p.Out, ',')
		}
		p.Out = AppendRow(p.Out, ix.Protocol, r, &info, ix.findingsOf(r.Number))
		i++
		if i == len(numbers) {
			p.over = true
			return true
		}
		was := p.w.pos
		seek()
		return p.w.pos != was
	}
	p.w.skimmed = func([]wire.Skimmed, int64, int64, []byte) bool { return false }
	if len(numbers) == 0 {
		p.over = true
	} else {
		seek()
	}
	return p
}

// Close gives what the pass has made: a rows pass's array is whole from here on.
func (p *Pass) Close() []byte {
	if p.rows && !p.closed {
		p.closed = true
		p.Out = append(p.Out, ']')
	}
	return p.Out
}

// UnitPass makes one row as RowsPass does, and takes the decoder's state before
// it with it: State is packed, nil for a row that is no frame.
func (ix *Index) UnitPass(number int64) *Pass {
	p := ix.RowsPass([]int64{number})
	p.w.before = func() { p.State = packed.AppendContext(nil, p.w.dec.Context(contextLimit)) }
	return p
}

// FramePass finds the row of the frame with a number, counted from 1. Out is the
// row's number in decimal, null where there are not so many.
func (ix *Index) FramePass(frame int64) *Pass {
	p := &Pass{ix: ix, w: ix.walker(0), Out: []byte("null")}
	i := sort.Search(len(ix.states), func(i int) bool { return ix.states[i].frames >= frame })
	ix.states[max(i-1, 0)].place(&p.w)
	p.visit = func(r *Row) bool {
		if p.over = r.Frame == frame; p.over {
			p.Out = append(p.Out[:0], wire.Itoa(r.Number)...)
		}
		return p.over
	}
	p.w.skimmed = func(batch []wire.Skimmed, number, _ int64, _ []byte) bool {
		first := p.w.frames - int64(len(batch)) + 1
		if p.over = frame >= first && frame <= p.w.frames; p.over {
			p.Out = append(p.Out[:0], wire.Itoa(number+frame-first)...)
		}
		return p.over
	}
	return p
}

// FindPass finds the number of the row that holds an offset, the last row when
// the offset is behind all. Out is the number in decimal.
func (ix *Index) FindPass(off int64) *Pass {
	p := &Pass{ix: ix, w: ix.walker(0)}
	ix.beforeOffset(off).place(&p.w)
	at := func(number, end int64) bool {
		p.Out = append(p.Out[:0], wire.Itoa(number)...)
		p.over = end > off
		return p.over
	}
	p.visit = func(r *Row) bool { return at(r.Number, r.End()) }
	p.w.skimmed = func(batch []wire.Skimmed, number, pos int64, _ []byte) bool {
		for i := range batch {
			if pos += int64(batch[i].Size); i+1 < len(batch) && pos <= off {
				continue
			}
			return at(number+int64(i), pos)
		}
		return false
	}
	return p
}
