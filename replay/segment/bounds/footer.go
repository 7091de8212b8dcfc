package bounds

import (
	"encoding/binary"
	"slices"

	"wiretape/wire"
)

// The numbers of the Parquet format that are checked here, as its parquet.thrift
// gives them.
const (
	typeBoolean   = 0
	typeInt32     = 1
	typeInt64     = 2
	typeInt96     = 3
	typeFloat     = 4
	typeDouble    = 5
	typeByteArray = 6
	typeFixed     = 7

	required = 0
	optional = 1
	repeated = 2
)

// Limits on what a footer may ask for. A segment over one of them is not
// checked, which is said; it is no fault.
const (
	// MaxSchemaElements of a footer, inner nodes included.
	MaxSchemaElements = 1 << 16
	// MaxChunks is the most column chunks, over all row groups.
	MaxChunks = 1 << 17
	// MaxNesting of the schema.
	MaxNesting = 32
	// MaxFixedWidth of a FIXED_LEN_BYTE_ARRAY in bytes.
	MaxFixedWidth = 1 << 20
)

const (
	magicSize = 4
	// tailSize is the footer's length and the magic behind it.
	tailSize = 8
	// minChunkBytes is less than any ColumnChunk takes in a footer.
	minChunkBytes = 20
)

// order is how a column's values compare, for its statistics.
type order uint8

const (
	orderNone order = iota
	orderSigned
	orderUnsigned
	orderFloat
	orderBytes
)

// timeUnit is the unit of a TIMESTAMP annotation.
type timeUnit uint8

const (
	unitNone timeUnit = iota
	unitNanos
	unitOther
)

// leaf is a column of the schema.
type leaf struct {
	path   [][]byte
	typ    uint8
	width  int // bytes of a value, 0 for BYTE_ARRAY, 1 for BOOLEAN
	maxRep uint8
	maxDef uint8
	order  order
	utf8   bool
	unit   timeUnit
	// repDef[r-1] is the definition level from which on the r-th repeated
	// ancestor has an element.
	repDef []uint8
}

// name is the column's path for people.
func (l *leaf) name() string {
	var s []byte
	for i, p := range l.path {
		if i > 0 {
			s = append(s, '.')
		}
		s = append(s, p...)
		if len(s) > maxText {
			break
		}
	}
	return wire.SafeText(string(s), maxText)
}

// chunk is one column of one row group.
type chunk struct {
	leaf         *leaf
	group        int
	at           int64 // of its metadata in the footer
	start, end   int64 // of its pages
	codec        uint8
	rows         int64 // of the row group
	values       int64
	uncompressed int64
	stats        statistics
	offsetIndex  extent
	columnIndex  extent
	external     bool // its pages are in another file
	encrypted    bool
	broken       bool // its pages do not hold, or are unchecked
	dataPages    int
}

// extent is a stretch of the file.
type extent struct{ start, end int64 }

// footer is what is known of a file from its metadata.
type footer struct {
	rows   int64
	leaves []leaf
	chunks []chunk
	orders bool // column_orders is there: min_value and max_value count
}

// readFooter decodes and bounds the metadata of the Parquet file c.b.
func (c *checker) readFooter() (*footer, bool) {
	b := c.b
	fault := func(off, n int64, want, got, msg string) (*footer, bool) {
		c.find(wire.Finding{Kind: KindFooter, Offset: off, Length: n, Want: want, Got: got, Message: msg})
		return nil, false
	}
	if len(b) < magicSize+tailSize {
		return fault(0, int64(len(b)), "at least 12 bytes", wire.Itoa(int64(len(b)))+" bytes",
			"too short for a Parquet file: "+wire.Itoa(int64(len(b)))+" bytes")
	}
	tail := b[len(b)-tailSize:]
	if string(tail[4:]) == "PARE" {
		c.unchecked("the footer is encrypted")
		return nil, false
	}
	if string(tail[4:]) != "PAR1" {
		return fault(int64(len(b)-4), 4, "PAR1", "0x"+string(wire.AppendHex(nil, tail[4:])), "does not end as a Parquet file does")
	}
	if string(b[:4]) != "PAR1" {
		return fault(0, 4, "PAR1", "0x"+string(wire.AppendHex(nil, b[:4])), "does not start as a Parquet file does")
	}
	size := int64(binary.LittleEndian.Uint32(tail))
	if size == 0 || size > int64(len(b)-magicSize-tailSize) {
		return fault(int64(len(b)-tailSize), 4, "at most "+wire.Itoa(int64(len(b)-magicSize-tailSize)), wire.Itoa(size),
			"the footer's length can't be: "+wire.Itoa(size)+" bytes in a file of "+wire.Itoa(int64(len(b))))
	}
	at := int64(len(b)) - tailSize - size
	t := thrift{b: b, pos: int(at), end: len(b) - tailSize}
	f := &footer{}
	c.metadata(&t, f)
	if t.bad != "" {
		return fault(int64(t.badPos), 0, "", "", "the footer does not decode: "+t.bad)
	}
	if c.stop {
		return nil, false
	}
	if t.pos != t.end {
		return fault(int64(t.pos), int64(t.left()), "", wire.Itoa(int64(t.left()))+" bytes", "the footer has bytes left over behind its end")
	}
	if !c.extents(f, at) {
		return nil, false
	}
	return f, true
}

// halt ends the check with a finding at the footer.
func (c *checker) halt(off int, field, want, got, msg string) {
	c.stop = true
	c.find(wire.Finding{Kind: KindFooter, Offset: int64(off), Field: field, Want: want, Got: got, Message: msg})
}

// haltUnchecked ends the check for a limit.
func (c *checker) haltUnchecked(why string) {
	c.stop = true
	c.unchecked(why)
}

// metadata reads FileMetaData.
func (c *checker) metadata(t *thrift, f *footer) {
	var s fields
	var groupRows int64
	for {
		id, typ, ok := t.next(&s)
		if !ok || c.stop {
			break
		}
		switch id {
		case 1:
			t.i32(id, typ)
		case 2:
			c.schema(t, f, t.list(id, typ, thriftStruct))
		case 3:
			f.rows = t.count(id, typ)
		case 4:
			if f.leaves == nil {
				t.fail(t.pos, "row groups before the schema")
				break
			}
			groupRows = c.rowGroups(t, f, t.list(id, typ, thriftStruct))
		case 7:
			// A list of unions, each of which is TypeDefinedOrder where the
			// statistics are to be read by the type's own order.
			n := t.list(id, typ, thriftStruct)
			f.orders = n == len(f.leaves)
			for ; n > 0 && t.bad == ""; n-- {
				var u fields
				for {
					id, typ, ok := t.next(&u)
					if !ok {
						break
					}
					f.orders = f.orders && id == 1
					t.skip(typ)
				}
			}
		case 8:
			c.haltUnchecked("the file is encrypted")
		default:
			t.skip(typ)
		}
	}
	if t.bad != "" || c.stop {
		return
	}
	if !s.has(1, 2, 3, 4) {
		t.fail(t.pos, "a required field of FileMetaData is missing")
		return
	}
	if groupRows != f.rows {
		c.halt(t.pos, "num_rows", wire.Itoa(groupRows), wire.Itoa(f.rows),
			"the file says "+wire.Itoa(f.rows)+" rows, its row groups "+wire.Itoa(groupRows))
	}
}

// element is one SchemaElement.
type element struct {
	at        int
	typ       int32 // -1 for an inner node
	width     int32
	rep       int32 // -1 where absent
	name      []byte
	children  int64
	converted int32 // -1 where absent
	logical   int   // the union's field id, 0 where absent
	signed    bool
	unit      int
}

func (t *thrift) element() element {
	e := element{at: t.pos, typ: -1, rep: -1, converted: -1}
	var s fields
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 1:
			e.typ = t.i32(id, typ)
			if e.typ < typeBoolean || e.typ > typeFixed {
				t.fail(e.at, "a column has the unknown type "+wire.Itoa(int64(e.typ)))
			}
		case 2:
			e.width = t.i32(id, typ)
		case 3:
			e.rep = t.i32(id, typ)
			if e.rep < required || e.rep > repeated {
				t.fail(e.at, "an unknown repetition type "+wire.Itoa(int64(e.rep)))
			}
		case 4:
			e.name = t.bytes(id, typ)
		case 5:
			e.children = t.count(id, typ)
		case 6:
			e.converted = t.i32(id, typ)
		case 10:
			if t.want(id, typ, thriftStruct) {
				t.logicalType(&e)
			}
		default:
			t.skip(typ)
		}
	}
	if t.bad == "" && !s.has(4) {
		t.fail(e.at, "a schema element has no name")
	}
	return e
}

// logicalType reads the LogicalType union, as far as it decides how values
// compare or what they must hold.
func (t *thrift) logicalType(e *element) {
	var s fields
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			return
		}
		if !t.want(id, typ, thriftStruct) {
			return
		}
		e.logical = id
		var in fields
		for {
			id, typ, ok := t.next(&in)
			if !ok {
				break
			}
			switch {
			case e.logical == logicalInteger && id == 2:
				e.signed = t.bool(id, typ)
			case e.logical == logicalTimestamp && id == 2 && typ == thriftStruct:
				var u fields
				for {
					id, typ, ok := t.next(&u)
					if !ok {
						break
					}
					e.unit = id
					t.skip(typ)
				}
			default:
				t.skip(typ)
			}
		}
	}
}

// The LogicalType union's fields and the ConvertedType numbers that matter here.
const (
	logicalString    = 1
	logicalMap       = 2
	logicalList      = 3
	logicalEnum      = 4
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalJSON      = 12
	logicalBSON      = 13
	logicalUUID      = 14

	unitFieldNanos = 3

	convertedUTF8     = 0
	convertedEnum     = 4
	convertedDecimal  = 5
	convertedMillis   = 9
	convertedMicros   = 10
	convertedUint8    = 11
	convertedUint64   = 14
	convertedJSON     = 19
	convertedBSON     = 20
	convertedInterval = 21
)

// schema reads the flattened tree of n elements.
func (c *checker) schema(t *thrift, f *footer, n int) {
	if t.bad != "" {
		return
	}
	if n > MaxSchemaElements {
		c.haltUnchecked("a schema of " + wire.Itoa(int64(n)) + " elements, the limit is " + wire.Itoa(MaxSchemaElements))
		return
	}
	root := t.element()
	if t.bad != "" {
		return
	}
	if n == 0 || root.typ >= 0 {
		t.fail(root.at, "the schema has no root")
		return
	}
	type node struct {
		left     int64
		rep, def uint8
		name     []byte
		repDef   []uint8
	}
	stack := make([]node, 0, MaxNesting)
	stack = append(stack, node{left: root.children})
	f.leaves = make([]leaf, 0, min(n-1, t.left()))
	for i := 1; i < n; i++ {
		e := t.element()
		if t.bad != "" {
			return
		}
		for stack[len(stack)-1].left == 0 {
			stack = stack[:len(stack)-1]
			if len(stack) == 0 {
				t.fail(e.at, "the schema has more elements than its tree")
				return
			}
		}
		up := &stack[len(stack)-1]
		up.left--
		if e.rep < 0 {
			t.fail(e.at, "a schema element has no repetition type")
			return
		}
		nd := node{rep: up.rep, def: up.def, name: e.name, repDef: up.repDef}
		if e.rep != required {
			nd.def++
		}
		if e.rep == repeated {
			nd.rep++
			nd.repDef = append(slices.Clone(up.repDef), nd.def)
		}
		if e.typ < 0 {
			if e.children == 0 {
				t.fail(e.at, "a group of the schema has no children")
				return
			}
			if len(stack) == MaxNesting {
				c.haltUnchecked("a schema nested deeper than " + wire.Itoa(MaxNesting))
				return
			}
			nd.left = e.children
			stack = append(stack, nd)
			continue
		}
		if e.children != 0 {
			t.fail(e.at, "a column has children")
			return
		}
		l := leaf{typ: uint8(e.typ), maxRep: nd.rep, maxDef: nd.def, repDef: nd.repDef}
		l.path = make([][]byte, 0, len(stack))
		for _, s := range stack[1:] {
			l.path = append(l.path, s.name)
		}
		l.path = append(l.path, e.name)
		if !c.leafType(t, &l, &e) {
			return
		}
		f.leaves = append(f.leaves, l)
	}
	for _, s := range stack {
		if s.left != 0 {
			t.fail(t.pos, "the schema has fewer elements than its tree")
			return
		}
	}
}

// leafType settles how the values of a column are read and compared.
func (c *checker) leafType(t *thrift, l *leaf, e *element) bool {
	unsigned := e.logical == logicalInteger && !e.signed ||
		e.logical == 0 && e.converted >= convertedUint8 && e.converted <= convertedUint64
	integer := orderSigned
	if unsigned {
		integer = orderUnsigned
	}
	switch l.typ {
	case typeBoolean:
		l.width, l.order = 1, orderUnsigned
	case typeInt32:
		l.width, l.order = 4, integer
	case typeInt64:
		l.width, l.order = 8, integer
	case typeInt96:
		l.width = 12
	case typeFloat:
		l.width, l.order = 4, orderFloat
	case typeDouble:
		l.width, l.order = 8, orderFloat
	case typeByteArray:
		switch {
		case e.logical == logicalString, e.logical == logicalEnum, e.logical == logicalJSON,
			e.logical == 0 && (e.converted == convertedUTF8 || e.converted == convertedEnum || e.converted == convertedJSON):
			l.utf8, l.order = true, orderBytes
		case e.logical == 0 && e.converted < 0, e.logical == logicalBSON:
			l.order = orderBytes
		}
	case typeFixed:
		if e.width <= 0 {
			t.fail(e.at, "a FIXED_LEN_BYTE_ARRAY of "+wire.Itoa(int64(e.width))+" bytes")
			return false
		}
		if e.width > MaxFixedWidth {
			c.haltUnchecked("a FIXED_LEN_BYTE_ARRAY of " + wire.Itoa(int64(e.width)) + " bytes, the limit is " + wire.Itoa(MaxFixedWidth))
			return false
		}
		l.width = int(e.width)
		if e.logical == logicalUUID || e.logical == 0 && e.converted < 0 {
			l.order = orderBytes
		}
	}
	switch {
	case e.logical == logicalTimestamp && e.unit == unitFieldNanos:
		l.unit = unitNanos
	case e.logical == logicalTimestamp, e.converted == convertedMillis, e.converted == convertedMicros:
		l.unit = unitOther
	}
	return true
}

// rowGroups reads n row groups and gives their rows.
func (c *checker) rowGroups(t *thrift, f *footer, n int) (rows int64) {
	if int64(n)*int64(len(f.leaves)) > MaxChunks {
		c.haltUnchecked(wire.Itoa(int64(n)) + " row groups of " + wire.Itoa(int64(len(f.leaves))) + " columns, the limit is " +
			wire.Itoa(MaxChunks) + " column chunks")
		return 0
	}
	for g := 0; g < n && t.bad == "" && !c.stop; g++ {
		at, first := t.pos, len(f.chunks)
		var s fields
		var r, packed int64
		for {
			id, typ, ok := t.next(&s)
			if !ok || c.stop {
				break
			}
			switch id {
			case 1:
				k := t.list(id, typ, thriftStruct)
				if t.bad == "" && k != len(f.leaves) {
					t.fail(at, "row group "+wire.Itoa(int64(g))+" has "+wire.Itoa(int64(k))+" columns, the schema "+wire.Itoa(int64(len(f.leaves))))
					break
				}
				if f.chunks == nil {
					f.chunks = make([]chunk, 0, min(n*k, t.left()/minChunkBytes))
				}
				for i := 0; i < k && t.bad == "" && !c.stop; i++ {
					c.columnChunk(t, f, g, &f.leaves[i])
				}
			case 2:
				t.count(id, typ)
			case 3:
				r = t.count(id, typ)
			case 6:
				packed = t.count(id, typ)
			default:
				t.skip(typ)
			}
		}
		if t.bad != "" || c.stop {
			return 0
		}
		if !s.has(1, 2, 3) {
			t.fail(at, "a required field of a row group is missing")
			return 0
		}
		rows += r
		if rows < 0 {
			t.fail(at, "the row groups' rows have more than 64 bits")
			return 0
		}
		var sum int64
		for i := first; i < len(f.chunks); i++ {
			ch := &f.chunks[i]
			ch.rows = r
			sum += ch.end - ch.start
			if ch.leaf.maxRep == 0 && ch.values != r && !ch.encrypted {
				c.halt(int(ch.at), "num_values", wire.Itoa(r), wire.Itoa(ch.values),
					"column "+ch.leaf.name()+" has "+wire.Itoa(ch.values)+" values in a row group of "+wire.Itoa(r)+" rows")
				return 0
			}
		}
		if s.has(6) && packed != sum {
			c.halt(at, "total_compressed_size", wire.Itoa(sum), wire.Itoa(packed),
				"row group "+wire.Itoa(int64(g))+" says "+wire.Itoa(packed)+" bytes, its columns "+wire.Itoa(sum))
			return 0
		}
	}
	return rows
}

// columnChunk reads one ColumnChunk with its metadata.
func (c *checker) columnChunk(t *thrift, f *footer, group int, l *leaf) {
	ch := chunk{leaf: l, group: group, at: int64(t.pos)}
	var s fields
	var oiLen, ciLen int64
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 1:
			ch.external = len(t.bytes(id, typ)) > 0
		case 2:
			t.i64(id, typ)
		case 3:
			if t.want(id, typ, thriftStruct) {
				c.columnMetadata(t, &ch)
			}
		case 4:
			ch.offsetIndex.start = t.count(id, typ)
		case 5:
			oiLen = t.count(id, typ)
		case 6:
			ch.columnIndex.start = t.count(id, typ)
		case 7:
			ciLen = t.count(id, typ)
		case 8:
			ch.encrypted = true
			t.skip(typ)
		default:
			t.skip(typ)
		}
	}
	if t.bad != "" {
		return
	}
	if !s.has(3) && !ch.encrypted {
		t.fail(int(ch.at), "a column chunk has no metadata")
		return
	}
	ch.offsetIndex.end = ch.offsetIndex.start + oiLen
	ch.columnIndex.end = ch.columnIndex.start + ciLen
	f.chunks = append(f.chunks, ch)
}

// columnMetadata reads ColumnMetaData.
func (c *checker) columnMetadata(t *thrift, ch *chunk) {
	at := t.pos
	var s fields
	var size, data, dict int64
	for {
		id, typ, ok := t.next(&s)
		if !ok {
			break
		}
		switch id {
		case 1:
			if v := t.i32(id, typ); t.bad == "" && v != int32(ch.leaf.typ) {
				t.fail(at, "column "+ch.leaf.name()+" has the type "+wire.Itoa(int64(v))+", in the schema "+wire.Itoa(int64(ch.leaf.typ)))
			}
		case 3:
			n := t.list(id, typ, thriftBinary)
			same := n == len(ch.leaf.path)
			for i := 0; i < n && t.bad == ""; i++ {
				p := t.raw()
				same = same && string(p) == string(ch.leaf.path[i])
			}
			if t.bad == "" && !same {
				t.fail(at, "column "+ch.leaf.name()+" has another path than in the schema")
			}
		case 4:
			v := t.i32(id, typ)
			if t.bad == "" && (v < 0 || v >= int32(len(codecNames))) {
				t.fail(at, "column "+ch.leaf.name()+" has the unknown codec "+wire.Itoa(int64(v)))
			}
			ch.codec = uint8(v)
		case 5:
			ch.values = t.count(id, typ)
		case 6:
			ch.uncompressed = t.count(id, typ)
		case 7:
			size = t.count(id, typ)
		case 9:
			data = t.count(id, typ)
		case 11:
			dict = t.i64(id, typ)
		case 12:
			if t.want(id, typ, thriftStruct) {
				t.statistics(&ch.stats)
			}
		default:
			t.skip(typ)
		}
	}
	if t.bad != "" {
		return
	}
	if !s.has(1, 2, 3, 4, 5, 6, 7, 9) {
		t.fail(at, "a required field of column "+ch.leaf.name()+" is missing")
		return
	}
	ch.start = data
	// Some writers give 0 where there is no dictionary, and others where there
	// is no data page.
	if dict > 0 && (dict < data || data == 0) {
		ch.start = dict
	}
	ch.end = ch.start + size
	if ch.end < ch.start {
		t.fail(at, "column "+ch.leaf.name()+" ends behind every file")
	}
}

// extents checks that everything the footer points at lies between the magic
// and the footer, and that nothing lies in two places.
func (c *checker) extents(f *footer, footerAt int64) bool {
	type place struct {
		extent
		ch   *chunk
		what string
	}
	all := make([]place, 0, len(f.chunks))
	ok := true
	add := func(e extent, ch *chunk, what string) {
		if e.end <= e.start && e.start == 0 || !ok {
			return
		}
		if e.start < magicSize || e.end < e.start || e.end > footerAt {
			ok = false
			c.find(wire.Finding{Kind: KindFooter, Offset: ch.at, Field: what,
				Want: "between " + wire.Itoa(magicSize) + " and " + wire.Itoa(footerAt), Got: wire.Itoa(e.start) + " to " + wire.Itoa(e.end),
				Message: what + " of column " + ch.leaf.name() + " outside the file"})
			return
		}
		if e.end > e.start {
			all = append(all, place{e, ch, what})
		}
	}
	for i := range f.chunks {
		ch := &f.chunks[i]
		if ch.external || ch.encrypted {
			continue
		}
		if ch.end > ch.start {
			add(extent{ch.start, ch.end}, ch, "pages")
		} else if ch.values > 0 {
			ok = false
			c.find(wire.Finding{Kind: KindFooter, Offset: ch.at, Field: "total_compressed_size", Want: "at least 1", Got: "0",
				Message: "column " + ch.leaf.name() + " has " + wire.Itoa(ch.values) + " values in no bytes"})
		}
		add(ch.offsetIndex, ch, "offset index")
		add(ch.columnIndex, ch, "column index")
	}
	if !ok {
		return false
	}
	byStart := func(a, b place) int {
		if a.start != b.start {
			if a.start < b.start {
				return -1
			}
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(all, byStart) {
		slices.SortFunc(all, byStart)
	}
	for i := 1; i < len(all); i++ {
		if a, b := &all[i-1], &all[i]; b.start < a.end {
			c.find(wire.Finding{Kind: KindFooter, Offset: b.start, Length: a.end - b.start, Field: b.what,
				Message: "the " + b.what + " of column " + b.ch.leaf.name() + " and the " + a.what + " of column " + a.ch.leaf.name() + " overlap"})
			return false
		}
	}
	return true
}
