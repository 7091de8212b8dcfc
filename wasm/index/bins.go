package index

import "math"

const (
	// Bins is how many columns the timeline has.
	Bins = 512
	// maxKinds is how many kinds of rows are told apart; what is beyond shares
	// the last.
	maxKinds = 64
)

// series is one axis of the timeline: rows by kind, and findings.
type series struct {
	kinds    [maxKinds]*[Bins]uint32
	findings [Bins]uint32
}

func (s *series) add(bin, slot, findings int) {
	if s.kinds[slot] == nil {
		s.kinds[slot] = new([Bins]uint32)
	}
	s.kinds[slot][bin]++
	s.findings[bin] += uint32(findings)
}

// bins lay the rows over the connection's bytes, whose range is known, and over
// the data's own time, whose range grows: there a bin's width doubles and
// neighbours merge until all times fit.
type bins struct {
	bytes series
	start int64
	width int64

	time    series
	hasTime bool
	from    int64 // of the first bin
	step    uint64
}

func (b *bins) init(start, end int64) {
	b.start = start
	b.width = max(1, (end-start+Bins-1)/Bins)
}

func (b *bins) add(off int64, slot, findings int) {
	b.bytes.add(int(min((off-b.start)/b.width, Bins-1)), slot, findings)
}

// firstStep is the width of a time bin at the start: a millisecond.
const firstStep = 1_000_000

func (b *bins) addTime(t int64, slot, findings int) {
	// Times at the ends of the range are marks of "none" rather than times.
	if t == math.MaxInt64 || t == math.MinInt64 {
		return
	}
	if !b.hasTime {
		b.hasTime, b.step, b.from = true, firstStep, t
	}
	for {
		d := uint64(t) - uint64(b.from)
		if t >= b.from && d/b.step < Bins {
			b.time.add(int(d/b.step), slot, findings)
			return
		}
		b.widen(t < b.from)
	}
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
	b.from, b.step = from, widest
}
