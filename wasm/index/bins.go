package index

import (
	"math"

	"wiretape/wire"
)

const (
	// Bins is how many columns the timeline has.
	Bins = 512
	// maxKinds is how many kinds of rows are told apart; what is beyond shares
	// the last.
	maxKinds = 64
)

// series is one axis of the timeline: rows by kind, findings, and the gaps
// among them.
type series struct {
	kinds          [maxKinds]*[Bins]uint32
	findings, gaps [Bins]uint32
}

// marks is what is to see at one row beside its kind.
type marks struct{ findings, gaps uint32 }

// noSlot is a row that lies at a place of another one: its marks are shown there.
const noSlot = -1

func (s *series) add(bin, slot int, m marks) {
	if slot != noSlot {
		if s.kinds[slot] == nil {
			s.kinds[slot] = new([Bins]uint32)
		}
		s.kinds[slot][bin]++
	}
	s.findings[bin] += m.findings
	s.gaps[bin] += m.gaps
}

func (s *series) count(bin, slot int) {
	if s.kinds[slot] == nil {
		s.kinds[slot] = new([Bins]uint32)
	}
	s.kinds[slot][bin]++
}

// gapKinds are the findings that tell of something that is not there.
var gapKinds = [...]string{"gap", "sequence-gap", KindMissing, wire.KindZeroTail}

func marksOf(list []wire.Finding) (m marks) {
	for i := range list {
		m.findings++
		for _, k := range gapKinds {
			if list[i].Kind == k {
				m.gaps++
			}
		}
	}
	return m
}

// cell is a stretch of values that lie in one bin, where most of the next ones
// fall too: those from from on, fewer than width behind it.
type cell struct {
	from  int64
	width uint64
	bin   int
}

func (c *cell) holds(v int64) bool { return uint64(v)-uint64(c.from) < c.width }

// bins lay the rows over the connection's bytes, whose range is known, over the
// data's own time, whose range grows: there a bin's width doubles and
// neighbours merge until all times fit; and over the time of arrival, of which
// the page says which bytes came in which bin.
type bins struct {
	bytes  series
	start  int64
	width  int64
	atByte cell

	time    series
	atTime  cell
	hasTime bool
	from    int64 // of the first bin
	step    uint64
	// last is the time of the row before; marks of rows without a time are
	// shown there, early those before any.
	last  int64
	early marks

	arrival    series
	hasArrival bool
	steps      []Step
	bin        int // of the steps so far
	lastBin    int // the last one before a stretch that has none

	places []Place
	placed int // how many of them were reached
	timed  int // how many of them have a time
}

// Step says that the bytes from an offset on came in a bin of the arrival axis,
// -1 where it isn't known when.
type Step struct {
	Offset int64
	Bin    int
}

// Place is an offset whose place in the data's time is wanted: that of the
// first row at it or behind it that has one.
type Place struct {
	Offset  int64
	Time    int64
	HasTime bool
}

// Axes says what the page knows of the connection's axes before the first pass:
// both lists are in rising order of their offsets.
func (ix *Index) Axes(places []int64, steps []Step) {
	b := &ix.Bins
	b.steps = steps
	b.places = make([]Place, len(places))
	for i, p := range places {
		b.places[i].Offset = p
	}
}

func (b *bins) init(start, end int64) {
	b.start, b.bin = start, -1
	b.width = max(1, (end-start+Bins-1)/Bins)
}

// add takes a row; those of one connection come in rising order of offset.
func (b *bins) add(off int64, slot int, m marks) {
	if !b.atByte.holds(off) {
		b.seekByte(off)
	}
	b.bytes.add(b.atByte.bin, slot, m)
	if b.bin >= 0 {
		b.arrival.add(b.bin, slot, m)
	} else if b.hasArrival && m != (marks{}) {
		// What did not come is shown where what lies before it did.
		b.arrival.add(b.lastBin, noSlot, m)
	}
}

// count is add without marks.
func (b *bins) count(off int64, slot int) {
	if !b.atByte.holds(off) {
		b.seekByte(off)
	}
	b.bytes.count(b.atByte.bin, slot)
	if b.bin >= 0 {
		b.arrival.count(b.bin, slot)
	}
}

// seekByte makes atByte the stretch from an offset on that lies in one bin of
// the bytes and in one of the arrival, with no place in it.
func (b *bins) seekByte(off int64) {
	i := min((off-b.start)/b.width, Bins-1)
	end := b.start + (i+1)*b.width
	for len(b.steps) > 0 && b.steps[0].Offset <= off {
		if b.bin >= 0 {
			b.lastBin = b.bin
		}
		b.bin, b.steps = b.steps[0].Bin, b.steps[1:]
		b.hasArrival = true
	}
	if len(b.steps) > 0 {
		end = min(end, b.steps[0].Offset)
	}
	for b.placed < len(b.places) && b.places[b.placed].Offset <= off {
		b.placed++
	}
	if b.placed < len(b.places) {
		end = min(end, b.places[b.placed].Offset)
	}
	b.atByte = cell{off, uint64(max(end-off, 1)), int(i)}
}

// firstStep is the width of a time bin at the start: a millisecond.
const firstStep = 1_000_000

// isTime says that it is one: those at the ends of the range are marks of
// "none" rather than times.
func isTime(t int64) bool { return t != math.MaxInt64 && t != math.MinInt64 }

// addTimeless takes the marks of a row that has no time.
func (b *bins) addTimeless(m marks) {
	if m == (marks{}) {
		return
	}
	if b.hasTime {
		b.put(b.last, noSlot, m)
		return
	}
	b.early.findings += m.findings
	b.early.gaps += m.gaps
}

func (b *bins) addTime(t int64, slot int, m marks) {
	if !b.hasTime {
		b.hasTime, b.step, b.from = true, firstStep, t
		m.findings += b.early.findings
		m.gaps += b.early.gaps
	}
	b.reach(t)
	b.put(t, slot, m)
}

// reach says that a row with a time was reached.
func (b *bins) reach(t int64) {
	b.last = t
	for ; b.timed < b.placed; b.timed++ {
		p := &b.places[b.timed]
		p.Time, p.HasTime = t, true
	}
}

// countTime is addTime without marks, for what most rows are: a time in the
// bin of the one before. It reports whether it was.
func (b *bins) countTime(t int64, slot int) bool {
	if !b.atTime.holds(t) || b.timed < b.placed {
		return false
	}
	b.last = t
	b.time.count(b.atTime.bin, slot)
	return true
}

// put makes room for a time and takes it.
func (b *bins) put(t int64, slot int, m marks) {
	for !b.atTime.holds(t) {
		d := uint64(t) - uint64(b.from)
		if i := d / b.step; t >= b.from && i < Bins {
			b.atTime = cell{int64(uint64(b.from) + i*b.step), b.step, int(i)}
			if b.atTime.holds(math.MaxInt64) || b.atTime.holds(math.MinInt64) {
				b.atTime = cell{t, 1, int(i)}
			}
			break
		}
		b.widen(t < b.from)
		b.atTime = cell{}
	}
	b.time.add(b.atTime.bin, slot, m)
}

// widen doubles the width of a bin; to the left, what is there moves into the
// upper half.
func (b *bins) widen(left bool) {
	shift := 0
	if left {
		span := b.step * Bins
		if b.step >= widest/2 || uint64(b.from)-uint64(1<<63) < span {
			// No room to the left: the first bin starts at the lowest time.
			b.rebase()
			return
		}
		b.from -= int64(span)
		shift = Bins / 2
	}
	b.step *= 2
	merge := func(c *[Bins]uint32) {
		var out [Bins]uint32
		for i, n := range c {
			out[i/2+shift] += n
		}
		*c = out
	}
	for _, k := range b.time.kinds {
		if k != nil {
			merge(k)
		}
	}
	merge(&b.time.findings)
	merge(&b.time.gaps)
}

// widest × Bins is the range of an int64.
const widest = 1 << 55

// rebase moves everything to bins that hold the whole range of times.
func (b *bins) rebase() {
	const from = math.MinInt64
	old := *b
	move := func(c *[Bins]uint32) {
		var out [Bins]uint32
		for i, n := range c {
			if n > 0 {
				t := uint64(old.from) + uint64(i)*old.step
				out[(t-uint64(1<<63))/widest] += n
			}
		}
		*c = out
	}
	for _, k := range b.time.kinds {
		if k != nil {
			move(k)
		}
	}
	move(&b.time.findings)
	move(&b.time.gaps)
	b.from, b.step = from, widest
}
