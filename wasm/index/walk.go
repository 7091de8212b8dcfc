package index

import (
	"wiretape/wire"
)

const (
	// FeedLimit is how many bytes a walk wants at a time, where one frame alone
	// isn't more.
	FeedLimit = wire.DefaultPeekLimit
	// CheckLimit is the size up to which the first pass gives a whole frame to
	// the decoder and so checks all of it, and WholeLimit that of a frame that
	// has no payload in another format. Of a larger one it reads only what the
	// session state needs; it is checked when it is opened.
	CheckLimit = 64 << 10
	WholeLimit = 8 << 20
	// glance is how much of a larger frame is read at least, for its summary.
	glance = 256
)

// Run is a stretch of the connection that lies there without a hole: one or
// more files.
type Run struct {
	// Start and End are offsets in the connection.
	Start, End int64
	// ZerosFrom is the offset from which on the run holds only zeros, 0 when
	// it doesn't end in zeros; FileStart is where the file begins that holds it.
	ZerosFrom, FileStart int64
	// Context is what is known at Start, nil for a connection's start.
	Context *wire.Context
}

func (r *Run) zeros() wire.Zeros {
	if r.ZerosFrom <= 0 {
		return wire.Zeros{}
	}
	return wire.ZerosFrom(r.ZerosFrom, r.FileStart)
}

// What a row of the list is.
type What uint8

const (
	// Preamble and Frame are the units of the same names.
	Preamble What = iota
	Frame
	// Junk is a stretch that no frame owns.
	Junk
	// Lost is the rest of a run after the framing was lost.
	Lost
	// Cut is the partial unit at the end of a run.
	Cut
	// Zeros is a zero-filled tail, with the frame that reaches into it.
	Zeros
	// Missing is a hole between two runs.
	Missing
)

var whatNames = [...]string{"preamble", "frame", "junk", "lost", "cut", "zeros", "missing"}

// String is the word used in rows and filters.
func (w What) String() string { return whatNames[w] }

// Row is one row of the list with what was found at it.
type Row struct {
	wire.Unit
	What What
	// Number counts all rows from 0, Frame the frames from 1; of what is no frame
	// it is 0.
	Number   int64
	Frame    int64
	Findings []wire.Finding
}

// walker moves through the runs unit by unit over bytes that are pushed into
// it. It holds no bytes: where a unit isn't whole in what it is given it asks
// for the same place again.
type walker struct {
	proto wire.Protocol
	dir   wire.Direction
	runs  []Run
	dec   wire.Decoder
	// brief is the decoder's Brief, or Info where it has none.
	brief func(wire.Unit) wire.Info
	// check is the size up to which a unit is given whole to the decoder.
	check int64
	// target is a row that is given whole as in the first pass, -1 for none.
	target int64
	// before is called before the decoder observes the target.
	before func()
	// skimmed is given what a Skimmer moved over, from the row number at pos on,
	// where b starts; nil when every row is to be visited. room is how many
	// frames that may be, where that is bounded; a target is always visited.
	// It reports whether to stop.
	skimmed func(batch []wire.Skimmed, number, pos int64, b []byte) bool
	room    func() int64
	skimmer wire.Skimmer
	batch   []wire.Skimmed

	run    int
	pos    int64
	number int64
	frames int64 // before pos
	need   int64
	done   bool
	err    error

	junking   bool
	junkStart int64
	junkWhy   wire.Finding
	found     []wire.Finding
	row       Row // the one that is given to visit
}

// start puts the walker at a place with the state that holds there.
func (w *walker) start(run int, pos, number, frames int64, c *wire.Context) {
	w.run, w.pos, w.number, w.frames = run, pos, number, frames
	w.need = 1
	w.junking, w.done = false, false
	w.dec, w.err = w.proto.Open(wire.Config{Direction: w.dir, Context: c})
	if w.done = w.err != nil; w.done {
		return
	}
	w.brief = w.dec.Info
	if b, ok := w.dec.(wire.Briefer); ok {
		w.brief = b.Brief
	}
	w.skimmer, _ = w.dec.(wire.Skimmer)
}

// atBoundary says that the place is one between two rows.
func (w *walker) atBoundary() bool { return !w.junking }

// emit gives one row to visit. It reports whether to stop.
func (w *walker) emit(u wire.Unit, what What, found []wire.Finding, visit func(*Row) bool) bool {
	w.row = Row{Unit: u, What: what, Number: w.number, Findings: found}
	w.number++
	if what == Frame {
		w.frames++
		w.row.Frame = w.frames
	}
	return visit(&w.row)
}

// rest makes a row of everything up to the end of the run.
func (w *walker) rest(from int64, what What, found []wire.Finding, visit func(*Row) bool) bool {
	end := w.runs[w.run].End
	w.pos = end
	return w.emit(wire.Unit{Type: wire.UnitLost, Offset: from, Size: end - from}, what, found, visit)
}

// cut makes a row of the unit with head h that the run ends inside of.
func (w *walker) cut(h wire.Head, left int64, visit func(*Row) bool) bool {
	r := &w.runs[w.run]
	if p, tail := r.zeros().Cut(h, w.pos, r.End); tail {
		return w.rest(w.pos, Zeros, r.zeros().Found(w.pos, p, r.End), visit)
	}
	return w.rest(w.pos, Cut, []wire.Finding{wire.CutUnit(h, w.pos, left)}, visit)
}

func (w *walker) startJunk(h wire.Head) {
	if w.junking {
		return
	}
	w.junking, w.junkStart, w.junkWhy = true, w.pos, wire.Finding{}
	if h.Finding != nil {
		w.junkWhy = *h.Finding
	}
}

func (w *walker) endJunk(visit func(*Row) bool) bool {
	if !w.junking {
		return false
	}
	w.junking = false
	n := w.pos - w.junkStart
	f := []wire.Finding{wire.SteppedOver(w.junkWhy, w.junkStart, n)}
	return w.emit(wire.Unit{Type: wire.UnitJunk, Offset: w.junkStart, Size: n}, Junk, f, visit)
}

// nextRun goes on at the next run, over the hole before it.
func (w *walker) nextRun(visit func(*Row) bool) bool {
	if w.run+1 >= len(w.runs) {
		w.done = true
		return true
	}
	at, r := w.pos, w.runs[w.run+1]
	c := r.Context
	if c == nil {
		c = wire.MidStream(w.proto.Name())
	}
	w.start(w.run+1, r.Start, w.number, w.frames, c)
	hole := r.Start - at
	if hole <= 0 || w.done {
		return w.done
	}
	f := []wire.Finding{{Kind: KindMissing, Offset: at, Length: hole,
		Message: wire.Itoa(hole) + " bytes of the connection are not among the files",
		Cost:    "the frames in them are not shown"}}
	return w.emit(wire.Unit{Type: wire.UnitLost, Offset: at, Size: hole}, Missing, f, visit)
}

// KindMissing: bytes of a connection that no file that was opened holds.
const KindMissing = "missing-bytes"

// skimBatch is the most frames that are skimmed at a time.
const skimBatch = 512

// skim moves over plain frames at the start of b, the bytes at pos: whether
// there were any, and whether to stop.
func (w *walker) skim(b []byte) (moved, stop bool) {
	if w.skimmed == nil || w.skimmer == nil || w.junking {
		return false, false
	}
	most := int64(skimBatch)
	if w.room != nil {
		most = min(most, w.room())
	}
	if w.target >= w.number {
		most = min(most, w.target-w.number)
	}
	if most <= 0 {
		return false, false
	}
	if z := w.runs[w.run].ZerosFrom; z > 0 {
		b = b[:min(int64(len(b)), max(z-w.pos, 0))]
	}
	if w.batch == nil {
		w.batch = make([]wire.Skimmed, skimBatch)
	}
	n, size := w.skimmer.Skim(b[:min(len(b), FeedLimit)], w.batch[:most])
	if n == 0 {
		return false, false
	}
	number, pos := w.number, w.pos
	w.number += int64(n)
	w.frames += int64(n)
	w.pos += int64(size)
	return true, w.skimmed(w.batch[:n], number, pos, b)
}

// feed takes b, the bytes at w.pos, as far as whole units go, and gives each
// row to visit until that says stop. What is wanted next is in pos and need.
func (w *walker) feed(b []byte, visit func(*Row) bool) {
	at := w.pos // of b[0]
	for !w.done {
		r := &w.runs[w.run]
		left := r.End - w.pos
		if left <= 0 {
			if w.endJunk(visit) || w.nextRun(visit) {
				return
			}
			w.need = 1
			return
		}
		zeros := r.zeros()
		if zeros.At(w.pos, r.End) {
			if w.endJunk(visit) {
				return
			}
			if w.rest(w.pos, Zeros, zeros.Found(w.pos, w.pos, r.End), visit) {
				return
			}
			continue
		}
		have := b[min(w.pos-at, int64(len(b))):]
		if int64(len(have)) > left {
			have = have[:left]
		}
		if len(have) == 0 {
			w.need = 1
			return
		}
		if moved, stop := w.skim(have); stop {
			return
		} else if moved {
			continue
		}
		end := int64(len(have)) == left
		h := w.dec.Head(have, end)
		switch h.Type {
		case wire.UnitMore:
			if end {
				if w.endJunk(visit) {
					return
				}
				if w.cut(h, left, visit) {
					return
				}
				continue
			}
			want := min(max(h.Size, int64(len(have))+1), left)
			if want <= FeedLimit {
				w.need = want
				return
			}
			fallthrough
		case wire.UnitLost:
			w.startJunk(h)
			w.junking = false
			f := []wire.Finding{wire.SteppedOver(w.junkWhy, w.junkStart, r.End-w.junkStart)}
			if w.rest(w.junkStart, Lost, f, visit) {
				return
			}
			continue
		case wire.UnitJunk:
			w.startJunk(h)
			n := zeros.Junk(w.pos, min(max(h.Size, 1), int64(len(have))), r.End)
			w.found = w.dec.Observe(wire.Unit{Type: wire.UnitJunk, Offset: w.pos, Size: n, Bytes: have[:n]}, w.found[:0])
			w.pos += n
			continue
		}
		size := max(h.Size, 1)
		want := size
		if size > w.check && (w.number != w.target || size > CheckLimit) {
			want = min(max(h.Peek, glance), FeedLimit, size)
			if w.check > 0 && size <= WholeLimit && int64(len(have)) >= want && !h.Payload {
				want = size
			}
		}
		if size > left {
			if w.endJunk(visit) {
				return
			}
			if w.cut(h, left, visit) {
				return
			}
			continue
		}
		if int64(len(have)) < want {
			w.need = want
			return
		}
		if w.endJunk(visit) {
			return
		}
		u := wire.Unit{Type: h.Type, Offset: w.pos, Size: size, Kind: h.Kind, Bytes: have[:want:want]}
		if p, doubt := zeros.Into(u, r.End); doubt {
			if w.rest(w.pos, Zeros, zeros.Found(w.pos, p, r.End), visit) {
				return
			}
			continue
		}
		what := Frame
		if h.Type == wire.UnitPreamble {
			what = Preamble
		}
		if w.number == w.target && w.before != nil {
			w.before()
		}
		w.found = w.dec.Observe(u, w.found[:0])
		wire.InUnit(u, w.found)
		w.pos += size
		if w.emit(u, what, w.found, visit) {
			return
		}
	}
}
