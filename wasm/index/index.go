// Package index is the page's picture of one connection: where its rows start,
// what was found at them, who sent them, and how they lie over the bytes and
// over time. It is made in one pass over the connection's bytes, which are
// pushed into it, and holds none of them.
//
// Memory is bounded whatever the connection holds: the decoder's state is kept
// with its place now and then, thinned by half when all of them outgrow their
// budget; everything between is read again when it is looked at.
package index

import (
	"sort"

	"wiretape/wasm/packed"
	"wiretape/wire"
)

const (
	// stateBudget bounds the decoder states kept, in bytes.
	stateBudget = 6 << 20
	// contextLimit is the most bytes that one decoder state may hold.
	contextLimit = 1 << 20
	// stateRows and stateLarge are how many rows, or rows too large to be read
	// whole, lie between two states at the start, and stateSpan how many bytes of
	// other rows.
	stateRows, stateLarge = 1024, 4
	stateSpan             = 2 << 20
	// MaxFindings is how many findings are kept; all are counted.
	MaxFindings = 5000
	// MaxSources and MaxStreams bound what the sources panel lists.
	MaxSources, MaxStreams = 4096, 8192
)

// state is the decoder's state before a row.
type state struct {
	number, pos int64
	frames      int64 // before it
	run         int
	context     []byte // packed
}

// found is a finding and the row that it was made at.
type found struct {
	number int64
	frame  int64
	wire.Finding
}

// Index is the picture of one connection.
type Index struct {
	Protocol  wire.Protocol
	Direction wire.Direction
	Runs      []Run

	// Rows is how many rows there are so far, End up to where they go.
	Rows int64
	End  int64

	states     []state
	stateBytes int
	stateRows  int64
	stateLarge int64
	stateSpan  int64
	sinceRows  int64
	sinceLarge int64
	sinceBytes int64
	// stateEntries is how many subjects the newest state is of.
	stateEntries int64

	findings  []found
	nFindings int64
	// Found are all rows with a finding, of which findings holds the first.
	Found     Hits
	byFinding []count

	kinds  []kind
	kindAt map[uint32]int
	// frameSlots are the slots of the frame kinds that have small numbers, plus
	// one: without a look into a map for each of millions of rows.
	frameSlots [256]uint8
	sources    []*source
	byID       map[uint64]*source
	recent     [recentSources]*source
	// streams are the names of those of all sources that are listed, by their
	// numbers.
	streams []string
	Bins    bins
}

type count struct {
	name string
	n    int64
}

type kind struct {
	kind  uint32
	what  What
	name  string
	rows  int64
	bytes int64
}

// New makes an empty index over the runs, of which there is at least one.
func New(p wire.Protocol, d wire.Direction, runs []Run) *Index {
	ix := &Index{Protocol: p, Direction: d, Runs: runs, End: runs[0].Start,
		stateRows: stateRows, stateLarge: stateLarge, stateSpan: stateSpan,
		kindAt: map[uint32]int{}, byID: map[uint64]*source{}}
	ix.Bins.init(runs[0].Start, runs[len(runs)-1].End)
	ix.states = append(ix.states, state{pos: runs[0].Start, context: packed.AppendContext(nil, runs[0].Context)})
	return ix
}

func (ix *Index) walker(check int64) walker {
	return walker{proto: ix.Protocol, dir: ix.Direction, runs: ix.Runs, check: check, target: -1}
}

// First starts the pass that fills the index.
func (ix *Index) First() *Pass {
	p := &Pass{ix: ix, w: ix.walker(CheckLimit)}
	p.visit = func(r *Row) bool {
		ix.add(r, p.w.brief)
		return false
	}
	p.w.skimmed = func(batch []wire.Skimmed, number, pos int64, b []byte) bool {
		ix.addSkimmed(batch, number, p.w.frames-int64(len(batch)), pos, b, p.w.brief)
		p.after()
		return false
	}
	p.w.room = func() int64 { return max(1, ix.statesApart()-ix.sinceRows) }
	p.after = func() {
		ix.End = p.w.pos
		ix.keepState(&p.w)
	}
	p.w.start(0, ix.Runs[0].Start, 0, 0, ix.Runs[0].Context)
	return p
}

// keepState keeps the decoder's state at the walker's place when it is due.
func (ix *Index) keepState(w *walker) {
	if !ix.stateDue() || !w.atBoundary() || w.done {
		return
	}
	c := w.dec.Context(contextLimit)
	s := state{number: w.number, frames: w.frames, pos: w.pos, run: w.run, context: packed.AppendContext(nil, c)}
	ix.stateEntries = 0
	if c != nil {
		ix.stateEntries = int64(len(c.Entries))
	}
	ix.sinceRows, ix.sinceLarge, ix.sinceBytes = 0, 0, 0
	if last := &ix.states[len(ix.states)-1]; string(last.context) == string(s.context) {
		s.context = last.context
	} else {
		ix.stateBytes += len(s.context)
	}
	ix.stateBytes += 64
	ix.states = append(ix.states, s)
	if ix.stateBytes > stateBudget {
		ix.thinStates()
	}
}

// statesApart is how many rows lie between two states: more where a state costs
// much.
func (ix *Index) statesApart() int64 { return max(ix.stateRows, entryRows*ix.stateEntries) }

// entryRows is how many rows pay for a state's part of one subject.
const entryRows = 16

// stateDue says that what a walk from the newest state to here reads is enough
// for another state.
func (ix *Index) stateDue() bool {
	return ix.sinceLarge >= ix.stateLarge || ix.sinceRows >= ix.statesApart() ||
		ix.sinceBytes >= ix.stateSpan && ix.sinceRows >= entryRows*ix.stateEntries
}

func (ix *Index) thinStates() {
	kept := ix.states[:1]
	bytes := 0
	for i := 2; i < len(ix.states); i += 2 {
		kept = append(kept, ix.states[i])
		bytes += 64 + len(ix.states[i].context)
	}
	clear(ix.states[len(kept):])
	ix.states, ix.stateBytes = kept, bytes
	ix.stateRows *= 2
	ix.stateLarge *= 2
	ix.stateSpan *= 2
}

// before is the newest state at or before a row.
func (ix *Index) before(number int64) *state {
	i := sort.Search(len(ix.states), func(i int) bool { return ix.states[i].number > number })
	return &ix.states[i-1]
}

// beforeOffset is the newest state at or before an offset.
func (ix *Index) beforeOffset(off int64) *state {
	i := sort.Search(len(ix.states), func(i int) bool { return ix.states[i].pos > off })
	return &ix.states[max(i-1, 0)]
}

func (s *state) place(w *walker) {
	c := packed.NewReader(s.context).Context()
	w.start(s.run, s.pos, s.number, s.frames, c)
}

// add takes a row into the index.
func (ix *Index) add(r *Row, brief func(wire.Unit) wire.Info) {
	ix.Rows = r.Number + 1
	ix.sinceRows++
	if r.Size > CheckLimit {
		ix.sinceLarge++
	} else {
		ix.sinceBytes += r.Size
	}
	slot := ix.slot(r)
	k := &ix.kinds[slot]
	k.rows++
	k.bytes += r.Size
	var m marks
	if len(r.Findings) > 0 {
		m = marksOf(r.Findings)
	}
	ix.Bins.add(r.Offset, slot, m)
	timed := false
	var src *source
	if r.What == Frame {
		info := brief(r.Unit)
		src = ix.observeSource(r, &info, slot)
		if timed = info.HasTime && isTime(info.Time); timed {
			ix.Bins.addTime(info.Time, slot, m)
		}
	}
	if !timed {
		ix.Bins.addTimeless(m)
	}
	if len(r.Findings) > 0 {
		ix.Found.add(r.Number)
	}
	for i := range r.Findings {
		ix.addFinding(r, &r.Findings[i], src)
	}
}

// addSkimmed takes frames into the index that the decoder moved over at once,
// with nothing found in them, from row number at pos on, before which there were
// so many frames; b starts there.
func (ix *Index) addSkimmed(batch []wire.Skimmed, number, frames, pos int64, b []byte, brief func(wire.Unit) wire.Info) {
	bins, at, asked := &ix.Bins, 0, int64(0)
	for i := range batch {
		f := &batch[i]
		var s *source
		if f.HasSource {
			s = ix.sourceOf(f.Source)
		}
		slot := -1
		if f.Kind < uint32(len(ix.frameSlots)) {
			slot = int(ix.frameSlots[f.Kind]) - 1
		}
		size := int64(f.Size)
		if slot < 0 || s == nil && f.HasSource {
			// The first of its kind or source: what it is called is asked for.
			u := wire.Unit{Type: wire.UnitFrame, Offset: pos + int64(at), Size: size, Kind: f.Kind, Bytes: b[at : at+int(f.Size)]}
			ix.add(&Row{Unit: u, What: Frame, Number: number, Frame: frames + int64(i) + 1}, brief)
			asked += size
		} else {
			k := &ix.kinds[slot]
			k.rows++
			k.bytes += size
			bins.count(pos+int64(at), slot)
			if s != nil {
				s.last = number
				s.rows++
				s.bytes += size
				s.kinds[slot]++
				span(&s.hasTime, &s.from, &s.to, f.HasTime, f.Time)
			}
			if f.HasTime && !bins.countTime(f.Time, slot) && isTime(f.Time) {
				bins.addTime(f.Time, slot, marks{})
			}
			ix.sinceRows++
		}
		at += int(f.Size)
		number++
	}
	ix.Rows = number
	ix.sinceBytes += int64(at) - asked
}

func kindKey(r *Row) uint32 {
	if r.What == Frame {
		return r.Kind
	}
	return ^uint32(r.What)
}

// slot is the number of the row's kind among those seen.
func (ix *Index) slot(r *Row) int {
	if r.What == Frame && r.Kind < uint32(len(ix.frameSlots)) {
		if i := ix.frameSlots[r.Kind]; i > 0 {
			return int(i) - 1
		}
	}
	key := kindKey(r)
	i, ok := ix.kindAt[key]
	if !ok {
		if len(ix.kinds) == maxKinds {
			i = maxKinds - 1
		} else {
			i = len(ix.kinds)
			ix.kinds = append(ix.kinds, kind{kind: r.Kind, what: r.What, name: rowName(ix.Protocol, r)})
		}
		ix.kindAt[key] = i
		if r.What == Frame && r.Kind < uint32(len(ix.frameSlots)) {
			ix.frameSlots[r.Kind] = uint8(i + 1)
		}
	}
	return i
}

// rowName is what the list calls a row's kind.
func rowName(p wire.Protocol, r *Row) string {
	if r.What != Frame {
		return r.What.String()
	}
	if s := p.KindName(r.Kind); s != "" {
		return s
	}
	return "kind " + wire.Utoa(uint64(r.Kind))
}

func (ix *Index) addFinding(r *Row, f *wire.Finding, src *source) {
	ix.nFindings++
	add(&ix.byFinding, f.Kind)
	if src != nil {
		add(&src.findings, f.Kind)
	}
	if len(ix.findings) < MaxFindings {
		ix.findings = append(ix.findings, found{r.Number, r.Frame, clip(*f)})
	}
}

// clip bounds a finding's texts, which may quote what is on the wire.
func clip(f wire.Finding) wire.Finding {
	const most = 512
	f.Field = wire.SafeText(f.Field, most)
	f.Want, f.Got = wire.SafeText(f.Want, most), wire.SafeText(f.Got, most)
	f.Message, f.Cost = wire.SafeText(f.Message, most), wire.SafeText(f.Cost, most)
	return f
}

func add(list *[]count, name string) {
	for i := range *list {
		if (*list)[i].name == name {
			(*list)[i].n++
			return
		}
	}
	*list = append(*list, count{name, 1})
}

// findingsOf is how many of the kept findings were made at a row.
func (ix *Index) findingsOf(number int64) int {
	i := sort.Search(len(ix.findings), func(i int) bool { return ix.findings[i].number >= number })
	n := 0
	for ; i < len(ix.findings) && ix.findings[i].number == number; i++ {
		n++
	}
	return n
}
