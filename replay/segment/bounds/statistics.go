package bounds

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"wiretape/wire"
)

// statistics are what a chunk's metadata says of its values. The deprecated min
// and max, whose order is not defined, are not read.
type statistics struct {
	min, max           []byte // nil where absent; alias the segment
	minExact, maxExact bool
	nulls              int64
	hasNulls           bool
}

func (t *thrift) statistics(st *statistics) {
	var s fields
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 3:
			st.nulls, st.hasNulls = t.i64(id, typ), true
		case 5:
			st.max = t.bytes(id, typ)
		case 6:
			st.min = t.bytes(id, typ)
		case 7:
			st.maxExact = t.bool(id, typ)
		case 8:
			st.minExact = t.bool(id, typ)
		default:
			t.skip(typ)
		}
	}
}

// gathered is what is kept of the values of a chunk, and of its newest page.
type gathered struct{ all, page accumulator }

func (g *gathered) begin(ch *chunk) {
	g.all.begin(ch)
	g.page.begin(ch)
}

func (g *gathered) release() {
	g.all.release()
	g.page.release()
}

// accumulator gathers the least and the greatest value, and whether text is
// text.
type accumulator struct {
	order    order
	wide     bool // 8 bytes, not 4
	one      bool // 1 byte
	text     bool
	seen     bool
	badText  bool
	lo, hi   int64
	ulo, uhi uint64
	flo, fhi float64
	blo, bhi []byte
	width    int
}

func (a *accumulator) begin(ch *chunk) {
	l := ch.leaf
	*a = accumulator{order: l.order, wide: l.width == 8, one: l.width == 1, text: l.utf8, width: l.width,
		blo: a.blo[:0], bhi: a.bhi[:0]}
	if ch.stats.min == nil && ch.stats.max == nil && ch.columnIndex.end == 0 {
		a.order = orderNone
	}
}

// reset forgets the values.
func (a *accumulator) reset() { a.seen, a.badText = false, false }

// merge adds what another one gathered.
func (a *accumulator) merge(b *accumulator) {
	a.badText = a.badText || b.badText
	if !b.seen {
		return
	}
	if a.order == orderBytes {
		a.compareBytes(b.blo)
		a.compareBytes(b.bhi)
		return
	}
	if !a.seen {
		a.lo, a.hi, a.ulo, a.uhi, a.flo, a.fhi = b.lo, b.hi, b.ulo, b.uhi, b.flo, b.fhi
		a.seen = true
		return
	}
	a.lo, a.hi = min(a.lo, b.lo), max(a.hi, b.hi)
	a.ulo, a.uhi = min(a.ulo, b.ulo), max(a.uhi, b.uhi)
	a.flo, a.fhi = min(a.flo, b.flo), max(a.fhi, b.fhi)
}

func (a *accumulator) release() {
	const keep = 1 << 16
	if cap(a.blo) > keep {
		a.blo = nil
	}
	if cap(a.bhi) > keep {
		a.bhi = nil
	}
}

// fixed takes values of a fixed width.
func (a *accumulator) fixed(b []byte) {
	if len(b) == 0 || a.order == orderNone {
		return
	}
	switch a.order {
	case orderSigned:
		lo, hi := a.lo, a.hi
		if !a.seen {
			lo, hi = math.MaxInt64, math.MinInt64
		}
		if a.wide {
			for ; len(b) >= 8; b = b[8:] {
				v := int64(binary.LittleEndian.Uint64(b))
				lo, hi = min(lo, v), max(hi, v)
			}
		} else {
			for ; len(b) >= 4; b = b[4:] {
				v := int64(int32(binary.LittleEndian.Uint32(b)))
				lo, hi = min(lo, v), max(hi, v)
			}
		}
		a.lo, a.hi, a.seen = lo, hi, true
	case orderUnsigned:
		lo, hi := a.ulo, a.uhi
		if !a.seen {
			lo, hi = math.MaxUint64, 0
		}
		switch {
		case a.wide:
			for ; len(b) >= 8; b = b[8:] {
				v := binary.LittleEndian.Uint64(b)
				lo, hi = min(lo, v), max(hi, v)
			}
		case a.one:
			for _, v := range b {
				lo, hi = min(lo, uint64(v)), max(hi, uint64(v))
			}
		default:
			for ; len(b) >= 4; b = b[4:] {
				v := uint64(binary.LittleEndian.Uint32(b))
				lo, hi = min(lo, v), max(hi, v)
			}
		}
		a.ulo, a.uhi, a.seen = lo, hi, true
	case orderFloat:
		lo, hi := a.flo, a.fhi
		if !a.seen {
			lo, hi = math.Inf(1), math.Inf(-1)
		}
		// A comparison with NaN is false: NaN counts for nothing here, as the
		// format says.
		if a.wide {
			for ; len(b) >= 8; b = b[8:] {
				v := math.Float64frombits(binary.LittleEndian.Uint64(b))
				if v <= lo {
					lo, a.seen = v, true
				}
				if v >= hi {
					hi, a.seen = v, true
				}
			}
		} else {
			for ; len(b) >= 4; b = b[4:] {
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
				if v <= lo {
					lo, a.seen = v, true
				}
				if v >= hi {
					hi, a.seen = v, true
				}
			}
		}
		a.flo, a.fhi = lo, hi
	case orderBytes:
		for ; len(b) >= a.width; b = b[a.width:] {
			a.compareBytes(b[:a.width])
		}
	}
}

// bytes takes one BYTE_ARRAY.
func (a *accumulator) bytes(b []byte) {
	if a.text && !a.badText && !utf8.Valid(b) {
		a.badText = true
	}
	if a.order == orderBytes {
		a.compareBytes(b)
	}
}

func (a *accumulator) compareBytes(b []byte) {
	if !a.seen || bytes.Compare(b, a.blo) < 0 {
		a.blo = append(a.blo[:0], b...)
	}
	if !a.seen || bytes.Compare(b, a.bhi) > 0 {
		a.bhi = append(a.bhi[:0], b...)
	}
	a.seen = true
}

// compare compares a bound of the statistics with the gathered one: below 0
// when bound is less. ok is false where the bound says nothing.
func (a *accumulator) compare(bound []byte, high bool) (cmp int, want, got string, ok bool) {
	if a.order != orderBytes && len(bound) != a.width {
		return 0, wire.Itoa(int64(a.width)) + " bytes", wire.Itoa(int64(len(bound))) + " bytes", true
	}
	switch a.order {
	case orderSigned:
		v, s := a.lo, int64(0)
		if high {
			v = a.hi
		}
		if a.wide {
			s = int64(binary.LittleEndian.Uint64(bound))
		} else {
			s = int64(int32(binary.LittleEndian.Uint32(bound)))
		}
		return sign(s < v, s > v), wire.Itoa(s), wire.Itoa(v), true
	case orderUnsigned:
		v, s := a.ulo, uint64(0)
		if high {
			v = a.uhi
		}
		switch {
		case a.wide:
			s = binary.LittleEndian.Uint64(bound)
		case a.one:
			s = uint64(bound[0])
		default:
			s = uint64(binary.LittleEndian.Uint32(bound))
		}
		return sign(s < v, s > v), wire.Utoa(s), wire.Utoa(v), true
	case orderFloat:
		v, s := a.flo, 0.0
		if high {
			v = a.fhi
		}
		if a.wide {
			s = math.Float64frombits(binary.LittleEndian.Uint64(bound))
		} else {
			s = float64(math.Float32frombits(binary.LittleEndian.Uint32(bound)))
		}
		if s != s {
			return 0, "", "", false
		}
		return sign(s < v, s > v), strconv.FormatFloat(s, 'g', -1, 64), strconv.FormatFloat(v, 'g', -1, 64), true
	}
	v := a.blo
	if high {
		v = a.bhi
	}
	return bytes.Compare(bound, v), shortHex(bound), shortHex(v), true
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

func shortHex(b []byte) string {
	const most = 32
	if len(b) > most {
		return string(wire.AppendHex(nil, b[:most])) + "…"
	}
	return string(wire.AppendHex(nil, b))
}

// compareStatistics compares what a decoded chunk holds with what its metadata
// says of it.
func (c *checker) compareStatistics(ch *chunk, nulls int64) bool {
	d := &c.dec
	a := &d.stats.all
	if d.hasDict && (a.order != orderNone || a.text) {
		for i, used := range d.used {
			if used == 0 {
				continue
			}
			if ch.leaf.width > 0 {
				a.fixed(d.entry(i))
			} else {
				a.bytes(d.entry(i))
			}
		}
	}
	fault := func(kind, field, want, got, msg string) bool {
		c.find(wire.Finding{Kind: kind, Offset: ch.start, Length: ch.end - ch.start, Field: field, Want: want, Got: got,
			Message: "column " + ch.leaf.name() + ": " + msg})
		return false
	}
	if a.badText {
		return fault(KindValues, ch.leaf.name(), "UTF-8", "", "a text value is not UTF-8")
	}
	if ch.stats.hasNulls && ch.leaf.maxRep == 0 && ch.stats.nulls != nulls {
		return fault(KindStatistics, "null_count", wire.Itoa(ch.stats.nulls), wire.Itoa(nulls),
			wire.Itoa(nulls)+" nulls where the statistics say "+wire.Itoa(ch.stats.nulls))
	}
	if !c.orders || !a.seen || a.order == orderNone {
		return true
	}
	if b := ch.stats.min; b != nil {
		cmp, want, got, ok := a.compare(b, false)
		if ok && (cmp > 0 || cmp < 0 && ch.stats.minExact || a.order != orderBytes && len(b) != a.width) {
			return fault(KindStatistics, "min_value", want, got, "its least value is "+got+" where the statistics say "+want)
		}
	}
	if b := ch.stats.max; b != nil {
		cmp, want, got, ok := a.compare(b, true)
		if ok && (cmp < 0 || cmp > 0 && ch.stats.maxExact || a.order != orderBytes && len(b) != a.width) {
			return fault(KindStatistics, "max_value", want, got, "its greatest value is "+got+" where the statistics say "+want)
		}
	}
	return true
}
