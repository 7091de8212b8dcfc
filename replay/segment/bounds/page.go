package bounds

import (
	"hash/crc32"

	"wiretape/wire"
)

const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// page is a page header with its place.
type page struct {
	at         int64 // of the header
	body, end  int64
	typ        uint8
	enc        int32
	defEnc     int32
	repEnc     int32
	size       int64 // decoded
	n          int64 // entries, nulls among them
	rows       int64 // v2
	nulls      int64 // v2
	defLen     int64 // v2
	repLen     int64 // v2
	compressed bool
	hasCRC     bool
	crc        uint32
}

// pageHeader reads the header at pos of a chunk that ends at end, and bounds
// the page by what is left of the chunk.
func (c *checker) pageHeader(ch *chunk, pos int64) (p page, ok bool) {
	t := thrift{b: c.b, pos: int(pos), end: int(ch.end)}
	p = page{at: pos, compressed: true, enc: -1}
	var s fields
	var packed int64
	typ := int32(-1)
	for {
		id, ty, more := t.next(&s)
		if !more {
			break
		}
		switch id {
		case 1:
			typ = t.i32(id, ty)
		case 2:
			p.size = t.count(id, ty)
		case 3:
			packed = t.count(id, ty)
		case 4:
			p.crc, p.hasCRC = uint32(t.i32(id, ty)), true
		case 5, 7, 8:
			if t.want(id, ty, thriftStruct) {
				t.pageFields(&p, id)
			}
		default:
			t.skip(ty)
		}
	}
	if t.bad != "" {
		c.pageFault(ch, int64(t.badPos), 0, "a page header does not decode: "+t.bad)
		return p, false
	}
	want := -1
	switch typ {
	case pageData:
		want = 5
	case pageIndex:
		want = 6
	case pageDictionary:
		want = 7
	case pageDataV2:
		want = 8
	default:
		c.pageFault(ch, pos, 0, "a page of the unknown type "+wire.Itoa(int64(typ)))
		return p, false
	}
	if !s.has(1, 2, 3) || typ != pageIndex && !s.has(want) {
		c.pageFault(ch, pos, 0, "a required field of a page header is missing")
		return p, false
	}
	p.typ = uint8(typ)
	p.body = int64(t.pos)
	p.end = p.body + packed
	if p.end > ch.end {
		c.pageFault(ch, pos, ch.end-pos, "a page of "+wire.Itoa(packed)+" bytes where "+wire.Itoa(ch.end-p.body)+" are left of the column")
		return p, false
	}
	if p.typ == pageDataV2 && (p.defLen+p.repLen > packed || p.defLen+p.repLen > p.size) {
		c.pageFault(ch, pos, p.end-pos, "a page's levels are larger than the page")
		return p, false
	}
	if p.typ == pageDataV2 && (p.nulls > p.n || p.rows > p.n) {
		c.pageFault(ch, pos, p.end-pos, "a page has more nulls or rows than values")
		return p, false
	}
	if ratio := maxRatio[ch.codec]; ratio > 0 && p.typ != pageIndex {
		codec := ch.codec
		if !p.compressed {
			ratio, codec = 1, codecNone
		}
		in, out := packed-p.defLen-p.repLen, p.size-p.defLen-p.repLen
		if out > in*ratio+ratioSlack || codec == codecNone && out != in {
			c.pageFault(ch, pos, p.end-pos, wire.Itoa(in)+" bytes of "+codecNames[codec]+" can't hold the "+wire.Itoa(out)+" that the page says")
			return p, false
		}
	}
	return p, true
}

// pageFields reads the header of a data or dictionary page: the struct in field
// id of PageHeader.
func (t *thrift) pageFields(p *page, in int) {
	var s fields
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch {
		case id == 1:
			p.n = t.count(id, typ)
		case in != 8 && id == 2:
			p.enc = t.i32(id, typ)
		case in == 5 && id == 3:
			p.defEnc = t.i32(id, typ)
		case in == 5 && id == 4:
			p.repEnc = t.i32(id, typ)
		case in == 8 && id == 2:
			p.nulls = t.count(id, typ)
		case in == 8 && id == 3:
			p.rows = t.count(id, typ)
		case in == 8 && id == 4:
			p.enc = t.i32(id, typ)
		case in == 8 && id == 5:
			p.defLen = t.count(id, typ)
		case in == 8 && id == 6:
			p.repLen = t.count(id, typ)
		case in == 8 && id == 7:
			p.compressed = t.bool(id, typ)
		default:
			t.skip(typ)
		}
	}
	if t.bad != "" {
		return
	}
	if !s.has(1, 2) || in == 5 && !s.has(3, 4) || in == 8 && !s.has(3, 4, 5, 6) {
		t.fail(t.pos, "a required field of a page header is missing")
	}
}

// pageFault reports a fault in a chunk's pages at off of the segment.
func (c *checker) pageFault(ch *chunk, off, n int64, msg string) {
	ch.broken = true
	c.find(wire.Finding{Kind: KindPage, Offset: off, Length: n, Field: ch.leaf.name(),
		Message: "column " + ch.leaf.name() + ": " + msg})
}

// headers walks a chunk's page headers: each lies inside the chunk, together
// they fill it, and their counts and sizes are the chunk's.
func (c *checker) headers(ch *chunk) bool {
	if ch.external || ch.encrypted {
		what := "in another file"
		if ch.encrypted {
			what = "encrypted"
		}
		c.unchecked("column " + ch.leaf.name() + ": its pages are " + what)
		ch.broken = true
		return false
	}
	var values, rows, decoded, heads int64
	var v2 bool
	places := c.offsetIndex(ch)
	for pos := ch.start; pos < ch.end; {
		p, ok := c.pageHeader(ch, pos)
		if !ok {
			return false
		}
		switch p.typ {
		case pageDictionary:
			if pos != ch.start {
				c.pageFault(ch, pos, p.end-pos, "a dictionary page behind the first page")
				return false
			}
		case pageData, pageDataV2:
			row := values
			if ch.leaf.maxRep > 0 && values > 0 {
				row = -1
				if v2 {
					row = rows
				}
			}
			places.next(&p, row)
			values += p.n
			rows += p.rows
			v2 = v2 || p.typ == pageDataV2
			ch.dataPages++
		}
		decoded += p.size
		heads += p.body - p.at
		pos = p.end
	}
	fault := func(what string, want, got int64) bool {
		ch.broken = true
		c.find(wire.Finding{Kind: KindPage, Offset: ch.start, Length: ch.end - ch.start, Field: what,
			Want: wire.Itoa(want), Got: wire.Itoa(got),
			Message: "column " + ch.leaf.name() + ": the pages have " + wire.Itoa(got) + " in all where " + what + " says " + wire.Itoa(want)})
		return false
	}
	if values != ch.values {
		return fault("num_values", ch.values, values)
	}
	// The format counts the headers too; some writers do not.
	if ch.uncompressed != decoded+heads && ch.uncompressed != decoded {
		return fault("total_uncompressed_size", ch.uncompressed, decoded+heads)
	}
	if v2 && ch.leaf.maxRep > 0 && rows != ch.rows {
		return fault("num_rows", ch.rows, rows)
	}
	if places.end(); places.t.bad != "" {
		c.indexFault(ch, int64(places.t.badPos), "offset index", places.t.bad)
	}
	return true
}

// Visitor is shown what a column holds, page by page: levels first, then the
// values that are not null, in one call or more. What it is given is good until
// it returns. An error ends the walk.
type Visitor interface {
	// Levels of the next page's entries. rep and def are nil where the column
	// has no such levels.
	Levels(entries int, rep, def []byte) error
	// Fixed gives values of a type with a fixed width, little-endian, back to
	// back; a BOOLEAN is one byte of 0 or 1.
	Fixed(values []byte) error
	// Bytes gives one BYTE_ARRAY.
	Bytes(value []byte) error
}

// decode decodes every page of a chunk whose headers hold. v may be nil: then
// dictionaries are not expanded, and otherwise the same is checked.
func (c *checker) decode(ch *chunk, v Visitor) bool {
	if ch.broken {
		return false
	}
	d := &c.dec
	d.begin(ch, v, c.work)
	defer func() { c.work -= d.spent }()
	var rows, nulls int64
	var dictSize int64
	faults := c.faults()
	ix := c.readColumnIndex(ch, ch.dataPages)
	for pos := ch.start; pos < ch.end; {
		p, ok := c.pageHeader(ch, pos)
		if !ok {
			return false
		}
		pos = p.end
		if p.typ == pageIndex {
			continue
		}
		held := p.held(ch.leaf) + dictSize
		if p.n > maxPageValues {
			return c.tooMuch(ch, "a page says that it has "+wire.Itoa(p.n)+" values, the limit is "+wire.Itoa(maxPageValues))
		}
		if held > c.opt.DecodedLimit {
			return c.tooMuch(ch, "a page needs "+wire.Itoa(held)+" decoded bytes, the limit is "+wire.Itoa(c.opt.DecodedLimit))
		}
		c.work -= p.size*workPerByteOf(ch.codec) + p.n*workPerValue(p.enc) + pageWork
		if c.work < 0 {
			return c.tooMuch(ch, tooMuchWork)
		}
		if p.hasCRC && crc32.ChecksumIEEE(c.b[p.body:p.end]) != p.crc {
			ch.broken = true
			c.find(wire.Finding{Kind: KindPage, Offset: p.at, Length: p.end - p.at, Field: "crc",
				Message: "column " + ch.leaf.name() + ": a page's bytes do not fit its CRC"})
			return false
		}
		if c.opt.codec(ch.codec) == nil && p.compressed {
			return c.tooMuch(ch, "the codec "+codecNames[ch.codec]+" is not known here")
		}
		before := nulls
		d.stats.page.reset()
		bad, why := c.decodePage(ch, &p, v, &rows, &nulls)
		if c.visitErr != nil {
			return false
		}
		if why != "" {
			return c.tooMuch(ch, why)
		}
		if bad != "" {
			c.pageFault(ch, p.at, p.end-p.at, bad)
			return false
		}
		if p.typ == pageDictionary {
			dictSize = held
			continue
		}
		if ix != nil && !c.comparePage(ch, ix, &p, &d.stats.page, nulls-before, !p.indexes()) {
			ix = nil
		}
		d.stats.all.merge(&d.stats.page)
	}
	if ch.leaf.maxRep > 0 && rows != ch.rows {
		c.pageFault(ch, ch.start, ch.end-ch.start, "its pages have "+wire.Itoa(rows)+" rows in a row group of "+wire.Itoa(ch.rows))
		return false
	}
	return c.compareStatistics(ch, nulls) && c.faults() == faults
}

// tooMuch says that a chunk is left unchecked.
func (c *checker) tooMuch(ch *chunk, why string) bool {
	ch.broken = true
	c.unchecked("column " + ch.leaf.name() + ": " + why)
	return false
}

// decodePage decodes one page. bad is what is wrong with it, why is why it
// can't be checked.
func (c *checker) decodePage(ch *chunk, p *page, v Visitor, rows, nulls *int64) (bad, why string) {
	d := &c.dec
	l := ch.leaf
	body := c.b[p.body:p.end]
	n := int(p.n)
	if p.typ == pageDictionary {
		if p.enc != encPlain && p.enc != encPlainDictionary {
			return "", "a dictionary in the encoding " + wire.Itoa(int64(p.enc))
		}
		buf, bad := c.inflate(&d.dictBuf, body, int(p.size), ch.codec)
		if bad != "" {
			return bad, ""
		}
		return d.setDictionary(buf, n), ""
	}
	var rep, def []byte
	var buf []byte
	if p.typ == pageDataV2 {
		rl, dl := int(p.repLen), int(p.defLen)
		rep, bad = d.levels(&d.rep, body[:rl], n, l.maxRep)
		if bad == "" {
			def, bad = d.levels(&d.def, body[rl:rl+dl], n, l.maxDef)
		}
		if bad != "" {
			return bad, ""
		}
		codec := ch.codec
		if !p.compressed {
			codec = codecNone
		}
		buf, bad = c.inflate(&d.pageBuf, body[rl+dl:], int(p.size)-rl-dl, codec)
		if bad != "" {
			return bad, ""
		}
	} else {
		buf, bad = c.inflate(&d.pageBuf, body, int(p.size), ch.codec)
		if bad == "" {
			rep, buf, bad, why = d.levelsV1(&d.rep, buf, n, l.maxRep, p.repEnc)
		}
		if bad == "" && why == "" {
			def, buf, bad, why = d.levelsV1(&d.def, buf, n, l.maxDef, p.defEnc)
		}
		if bad != "" || why != "" {
			return bad, why
		}
	}
	present, bad := d.countLevels(l, n, rep, def, rows)
	if bad != "" {
		return bad, ""
	}
	*nulls += int64(n - present)
	if p.typ == pageDataV2 && l.maxRep == 0 && (p.nulls != int64(n-present) || p.rows != p.n) {
		return "a page's header has another number of nulls or rows than its levels", ""
	}
	if v != nil {
		if err := v.Levels(n, rep, def); err != nil {
			c.visitErr = err
			return "", ""
		}
	}
	bad, why = d.values(p.enc, buf, present)
	if d.err != nil {
		c.visitErr = d.err
	}
	return bad, why
}

// inflate gives a page's decoded bytes, exactly size of them, in *buf or as
// they lie in the segment. size is within the limit.
func (c *checker) inflate(buf *[]byte, src []byte, size int, codec uint8) (out []byte, bad string) {
	if codec == codecNone {
		if len(src) != size {
			return nil, "a page of " + wire.Itoa(int64(len(src))) + " bytes that says " + wire.Itoa(int64(size))
		}
		return src, ""
	}
	if size == 0 && len(src) == 0 {
		return nil, ""
	}
	if cap(*buf) < size {
		*buf = make([]byte, size, size+size/8)
	}
	out = (*buf)[:size]
	if err := decompress(c.opt.codec(codec), out, src); err != nil {
		return nil, "a page's " + codecNames[codec] + " does not decode to the " + wire.Itoa(int64(size)) + " bytes it says: " + wire.SafeText(err.Error(), maxText)
	}
	return out, ""
}

// decompress calls a codec. One that was handed in may panic on damage.
func decompress(f Decompress, dst, src []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = errGaveUp
		}
	}()
	return f(dst, src)
}

// held is how many bytes decoding the page takes: its own, its levels, and the
// lengths of delta encodings or the marks and offsets of a dictionary.
func (p *page) held(l *leaf) int64 {
	n := p.size
	if l.maxRep > 0 {
		n += p.n
	}
	if l.maxDef > 0 {
		n += p.n
	}
	switch {
	case p.typ == pageDictionary:
		n += 5 * p.n
	case p.enc == encDeltaLength, p.enc == encDeltaBytes:
		n += 8 * p.n
	}
	return n
}

// workPerValue is how a value weighs against a decoded byte. Runs are walked a
// run at a time, differences have to be added one by one.
func workPerValue(enc int32) int64 {
	switch enc {
	case encDelta, encDeltaLength, encDeltaBytes:
		return 4
	}
	return 1
}

// workPerByteOf is how a decoded byte of a codec weighs against one of zstd.
func workPerByteOf(codec uint8) int64 {
	switch codec {
	case CodecGzip:
		return 2
	case CodecBrotli:
		return 4
	}
	return 1
}

// indexes says whether the page's values are indexes into a dictionary.
func (p *page) indexes() bool { return p.enc == encPlainDictionary || p.enc == encDictionary }
