package bounds

import (
	"wiretape/wire"
)

// pageLocations walks a chunk's OffsetIndex in step with its page headers. A
// reader that picks pages by it loses rows where it lies.
type pageLocations struct {
	t     thrift
	s     fields
	left  int
	there bool
}

func (c *checker) offsetIndex(ch *chunk) (p pageLocations) {
	e := ch.offsetIndex
	if e.end <= e.start {
		return p
	}
	p.there = true
	p.t = thrift{b: c.b, pos: int(e.start), end: int(e.end)}
	id, typ, ok := p.t.next(&p.s)
	if !ok || id != 1 {
		p.t.fail(p.t.pos, "no page locations")
		return p
	}
	p.left = p.t.list(id, typ, thriftStruct)
	return p
}

// next compares the next location with a page: its place and size with its
// header, and its first row, -1 where that is not known yet.
func (p *pageLocations) next(pg *page, row int64) {
	if !p.there || p.t.bad != "" {
		return
	}
	at := p.t.pos
	if p.left == 0 {
		p.t.fail(at, "fewer page locations than pages")
		return
	}
	p.left--
	var s fields
	var off, size, first int64
	for {
		id, typ, ok := p.t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 1:
			off = p.t.count(id, typ)
		case 2:
			size = p.t.count(id, typ)
		case 3:
			first = p.t.count(id, typ)
		default:
			p.t.skip(typ)
		}
	}
	if p.t.bad != "" {
		return
	}
	if !s.has(1, 2, 3) {
		p.t.fail(at, "a required field of a page location is missing")
		return
	}
	if off != pg.at || size != pg.end-pg.at || row >= 0 && first != row {
		p.t.fail(at, "a page at "+wire.Itoa(off)+" of "+wire.Itoa(size)+" bytes from row "+wire.Itoa(first)+
			", where one lies at "+wire.Itoa(pg.at)+" of "+wire.Itoa(pg.end-pg.at)+" bytes")
	}
}

// end checks that nothing is left of the index.
func (p *pageLocations) end() {
	if !p.there || p.t.bad != "" {
		return
	}
	if p.left > 0 {
		p.t.fail(p.t.pos, "more page locations than pages")
		return
	}
	for {
		_, typ, ok := p.t.next(&p.s)
		if !ok {
			break
		}
		p.t.skip(typ)
	}
	if p.t.bad == "" && p.t.left() > 0 {
		p.t.fail(p.t.pos, "bytes left over")
	}
}

// columnIndex is a chunk's ColumnIndex: what it says of each data page. The
// slices alias the segment.
type columnIndex struct {
	empty    []bool // pages of nulls only
	min, max [][]byte
	nulls    []int64
	page     int // the one that is decoded
}

// readColumnIndex reads the index of a chunk, nil where there is none. Its
// lists have an entry for each of n data pages.
func (c *checker) readColumnIndex(ch *chunk, n int) *columnIndex {
	e := ch.columnIndex
	if e.end <= e.start {
		return nil
	}
	t := thrift{b: c.b, pos: int(e.start), end: int(e.end)}
	ix := &columnIndex{}
	var s fields
	sized := func(id int, typ, elem byte) int {
		k, got := 0, elem
		if t.want(id, typ, thriftList) {
			k, got = t.listHeader()
		}
		// Either boolean type stands for a list of them.
		if t.bad == "" && (k != n || got != elem && (elem != thriftTrue || got != thriftFalse)) {
			t.fail(t.pos, "field "+wire.Itoa(int64(id))+" has "+wire.Itoa(int64(k))+" entries for "+wire.Itoa(int64(n))+" pages")
		}
		if t.bad != "" {
			return 0
		}
		return k
	}
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 1:
			k := sized(id, typ, thriftTrue)
			ix.empty = make([]bool, k)
			for i := range ix.empty {
				ix.empty[i] = t.byte() == thriftTrue
			}
		case 2, 3:
			v := make([][]byte, sized(id, typ, thriftBinary))
			for i := range v {
				v[i] = t.raw()
			}
			if id == 2 {
				ix.min = v
			} else {
				ix.max = v
			}
		case 4:
			t.i32(id, typ)
		case 5:
			ix.nulls = make([]int64, sized(id, typ, thriftI64))
			for i := range ix.nulls {
				ix.nulls[i] = t.varint()
			}
		default:
			t.skip(typ)
		}
	}
	if t.bad == "" && !s.has(1, 2, 3, 4) {
		t.fail(t.pos, "a required field is missing")
	}
	if t.bad == "" && t.left() > 0 {
		t.fail(t.pos, "bytes left over")
	}
	if t.bad != "" {
		c.indexFault(ch, int64(t.badPos), "column index", t.bad)
		return nil
	}
	return ix
}

func (c *checker) indexFault(ch *chunk, off int64, what, bad string) {
	c.find(wire.Finding{Kind: KindIndex, Offset: off, Field: what,
		Message: "column " + ch.leaf.name() + ": its " + what + ": " + bad})
}

// comparePage compares the page just decoded with the column's index. a has the
// page's values alone; known is false where they were not gathered.
func (c *checker) comparePage(ch *chunk, ix *columnIndex, p *page, a *accumulator, nulls int64, known bool) bool {
	i := ix.page
	ix.page++
	bad := ""
	switch {
	case ch.leaf.maxRep == 0 && ix.empty[i] != (nulls == p.n):
		bad = "a page is of nulls only, or is not, against what it says"
	case ix.nulls != nil && ch.leaf.maxRep == 0 && ix.nulls[i] != nulls:
		bad = "a page has " + wire.Itoa(nulls) + " nulls where it says " + wire.Itoa(ix.nulls[i])
	case !known || !a.seen || ix.empty[i] || !c.orders:
	default:
		if cmp, want, got, ok := a.compare(ix.min[i], false); ok && cmp > 0 {
			bad = "a page's least value is " + got + " where it says " + want
		} else if cmp, want, got, ok := a.compare(ix.max[i], true); ok && cmp < 0 {
			bad = "a page's greatest value is " + got + " where it says " + want
		}
	}
	if bad == "" {
		return true
	}
	c.indexFault(ch, p.at, "column index", bad)
	return false
}
