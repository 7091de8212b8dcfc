package bounds

import (
	"math"

	"wiretape/wire"
)

// The types of Thrift's compact protocol.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// maxThriftDepth is how deep structs that are stepped over may nest. Parquet's
// own nest six deep.
const maxThriftDepth = 24

// thrift is a strict reader of Thrift's compact protocol over b[pos:end]. Every
// length is checked against what is left before it is used. The first fault
// sticks: it is kept in bad, and from then on everything reads as its end, so
// that callers need look at it only once. Offsets are offsets in b.
type thrift struct {
	b        []byte
	pos, end int
	bad      string // what is wrong, "" as long as nothing is
	badPos   int
}

// fields is the state of reading one struct.
type fields struct {
	last int32
	seen uint64 // a bit for each field id below 64
}

// has says whether all of the ids were read.
func (f *fields) has(ids ...int) bool {
	for _, id := range ids {
		if f.seen&(1<<id) == 0 {
			return false
		}
	}
	return true
}

func (t *thrift) fail(pos int, what string) {
	if t.bad == "" {
		t.bad, t.badPos = what, pos
	}
	t.pos = t.end
}

func (t *thrift) left() int { return t.end - t.pos }

func (t *thrift) byte() byte {
	if t.pos >= t.end {
		t.fail(t.pos, "ends inside a value")
		return 0
	}
	c := t.b[t.pos]
	t.pos++
	return c
}

func (t *thrift) uvarint() uint64 {
	start := t.pos
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		c := t.byte()
		if t.bad != "" {
			return 0
		}
		if shift == 63 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	t.fail(start, "a number has more than 64 bits")
	return 0
}

func (t *thrift) varint() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// next reads a field header. ok is false at the end of the struct, and after a
// fault.
func (t *thrift) next(f *fields) (id int, typ byte, ok bool) {
	start := t.pos
	c := t.byte()
	typ = c & 15
	if t.bad != "" || c == thriftStop {
		return 0, 0, false
	}
	if typ == thriftStop || typ > thriftUUID {
		t.fail(start, "a field has the unknown type "+wire.Itoa(int64(typ)))
		return 0, 0, false
	}
	n := int64(f.last) + int64(c>>4)
	if c>>4 == 0 {
		n = t.varint()
	}
	if t.bad != "" || n < math.MinInt16 || n > math.MaxInt16 {
		t.fail(start, "a field has an impossible number")
		return 0, 0, false
	}
	f.last = int32(n)
	if n >= 0 && n < 64 {
		if f.seen&(1<<n) != 0 {
			t.fail(start, "field "+wire.Itoa(n)+" comes twice")
			return 0, 0, false
		}
		f.seen |= 1 << n
	}
	return int(n), typ, true
}

// want checks a known field's type.
func (t *thrift) want(id int, typ, want byte) bool {
	if typ != want {
		t.fail(t.pos, "field "+wire.Itoa(int64(id))+" has the type "+wire.Itoa(int64(typ))+", not "+wire.Itoa(int64(want)))
		return false
	}
	return true
}

func (t *thrift) i32(id int, typ byte) int32 {
	if !t.want(id, typ, thriftI32) {
		return 0
	}
	start := t.pos
	v := t.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		t.fail(start, "field "+wire.Itoa(int64(id))+" has more than 32 bits")
		return 0
	}
	return int32(v)
}

func (t *thrift) i64(id int, typ byte) int64 {
	if !t.want(id, typ, thriftI64) {
		return 0
	}
	return t.varint()
}

// count is an i32 or i64 that can't be negative.
func (t *thrift) count(id int, typ byte) int64 {
	start := t.pos
	var v int64
	if typ == thriftI32 {
		v = int64(t.i32(id, typ))
	} else {
		v = t.i64(id, typ)
	}
	if v < 0 {
		t.fail(start, "field "+wire.Itoa(int64(id))+" is negative: "+wire.Itoa(v))
		return 0
	}
	return v
}

func (t *thrift) bool(id int, typ byte) bool {
	if typ == thriftTrue || typ == thriftFalse {
		return typ == thriftTrue
	}
	t.want(id, typ, thriftTrue)
	return false
}

// bytes aliases the input.
func (t *thrift) bytes(id int, typ byte) []byte {
	if !t.want(id, typ, thriftBinary) {
		return nil
	}
	return t.raw()
}

func (t *thrift) raw() []byte {
	start := t.pos
	n := t.uvarint()
	if t.bad != "" {
		return nil
	}
	if n > uint64(t.left()) {
		t.fail(start, "a length of "+wire.Utoa(n)+" where "+wire.Itoa(int64(t.left()))+" bytes are left")
		return nil
	}
	v := t.b[t.pos : t.pos+int(n)]
	t.pos += int(n)
	return v
}

// list reads a list's header. Each element takes at least one byte, which
// bounds the count.
func (t *thrift) list(id int, typ, elem byte) int {
	if !t.want(id, typ, thriftList) {
		return 0
	}
	n, got := t.listHeader()
	if n > 0 && got != elem {
		t.fail(t.pos, "field "+wire.Itoa(int64(id))+" is a list of type "+wire.Itoa(int64(got))+", not "+wire.Itoa(int64(elem)))
		return 0
	}
	return n
}

func (t *thrift) listHeader() (n int, elem byte) {
	start := t.pos
	c := t.byte()
	size := uint64(c >> 4)
	if size == 15 {
		size = t.uvarint()
	}
	if t.bad != "" {
		return 0, 0
	}
	if size > uint64(t.left()) {
		t.fail(start, "a list of "+wire.Utoa(size)+" where "+wire.Itoa(int64(t.left()))+" bytes are left")
		return 0, 0
	}
	return int(size), c & 15
}

// skip steps over a field's value.
func (t *thrift) skip(typ byte) { t.skipValue(typ, false, maxThriftDepth) }

func (t *thrift) skipValue(typ byte, element bool, depth int) {
	if depth == 0 {
		t.fail(t.pos, "nested deeper than "+wire.Itoa(maxThriftDepth))
		return
	}
	switch typ {
	case thriftTrue, thriftFalse:
		if element {
			t.byte()
		}
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		t.advance(8)
	case thriftUUID:
		t.advance(16)
	case thriftBinary:
		t.raw()
	case thriftList, thriftSet:
		n, elem := t.listHeader()
		for ; n > 0 && t.bad == ""; n-- {
			t.skipValue(elem, true, depth-1)
		}
	case thriftMap:
		start := t.pos
		n := t.uvarint()
		if n == 0 {
			return
		}
		kv := t.byte()
		if n > uint64(t.left()) {
			t.fail(start, "a map of "+wire.Utoa(n)+" where "+wire.Itoa(int64(t.left()))+" bytes are left")
			return
		}
		for ; n > 0 && t.bad == ""; n-- {
			t.skipValue(kv>>4, true, depth-1)
			t.skipValue(kv&15, true, depth-1)
		}
	case thriftStruct:
		var f fields
		for {
			_, typ, ok := t.next(&f)
			if !ok {
				return
			}
			t.skipValue(typ, false, depth-1)
		}
	default:
		t.fail(t.pos, "the unknown type "+wire.Itoa(int64(typ)))
	}
}

func (t *thrift) advance(n int) {
	if n > t.left() {
		t.fail(t.pos, "ends inside a value")
		return
	}
	t.pos += n
}
