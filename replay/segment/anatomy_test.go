package segment

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Tests take a Parquet file apart into the parts of which a hostile one can be
// put together again: Thrift structs as trees, pages as header and body. It is
// a second reading of the format on purpose, lenient where the checks are
// strict.

// node is a Thrift value of the compact protocol.
type node struct {
	typ    byte
	num    int64  // integers and booleans
	bytes  []byte // binary, and the bytes of doubles
	elem   byte   // of a list
	fields []field
	list   []*node
}

type field struct {
	id int64
	v  *node
}

const (
	cTrue   = 1
	cFalse  = 2
	cByte   = 3
	cI16    = 4
	cI32    = 5
	cI64    = 6
	cDouble = 7
	cBinary = 8
	cList   = 9
	cSet    = 10
	cStruct = 12
)

var errTree = errors.New("not a tree of the compact protocol")

func parseNode(b []byte, typ byte, inList bool) (*node, []byte, error) {
	n := &node{typ: typ}
	switch typ {
	case cTrue, cFalse:
		n.num = int64(typ)
		if inList {
			if len(b) == 0 {
				return nil, nil, errTree
			}
			n.num, b = int64(b[0]), b[1:]
		}
	case cByte:
		if len(b) == 0 {
			return nil, nil, errTree
		}
		n.num, b = int64(b[0]), b[1:]
	case cI16, cI32, cI64:
		v, k := binary.Varint(b)
		if k <= 0 {
			return nil, nil, errTree
		}
		n.num, b = v, b[k:]
	case cDouble:
		if len(b) < 8 {
			return nil, nil, errTree
		}
		n.bytes, b = b[:8], b[8:]
	case cBinary:
		v, k := binary.Uvarint(b)
		if k <= 0 || v > uint64(len(b)-k) {
			return nil, nil, errTree
		}
		n.bytes, b = b[k:k+int(v)], b[k+int(v):]
	case cList, cSet:
		if len(b) == 0 {
			return nil, nil, errTree
		}
		size := uint64(b[0] >> 4)
		n.elem, b = b[0]&15, b[1:]
		if size == 15 {
			v, k := binary.Uvarint(b)
			if k <= 0 {
				return nil, nil, errTree
			}
			size, b = v, b[k:]
		}
		if size > uint64(len(b)) {
			return nil, nil, errTree
		}
		for range size {
			var e *node
			var err error
			if e, b, err = parseNode(b, n.elem, true); err != nil {
				return nil, nil, err
			}
			n.list = append(n.list, e)
		}
	case cStruct:
		last := int64(0)
		for {
			if len(b) == 0 {
				return nil, nil, errTree
			}
			c := b[0]
			b = b[1:]
			if c == 0 {
				return n, b, nil
			}
			last += int64(c >> 4)
			if c>>4 == 0 {
				v, k := binary.Varint(b)
				if k <= 0 {
					return nil, nil, errTree
				}
				last, b = v, b[k:]
			}
			e, rest, err := parseNode(b, c&15, false)
			if err != nil {
				return nil, nil, err
			}
			b = rest
			n.fields = append(n.fields, field{last, e})
		}
	default:
		return nil, nil, errTree
	}
	return n, b, nil
}

func (n *node) append(b []byte, inList bool) []byte {
	switch n.typ {
	case cTrue, cFalse:
		if inList {
			b = append(b, byte(n.num))
		}
	case cByte:
		b = append(b, byte(n.num))
	case cI16, cI32, cI64:
		b = binary.AppendVarint(b, n.num)
	case cDouble:
		b = append(b, n.bytes...)
	case cBinary:
		b = binary.AppendUvarint(b, uint64(len(n.bytes)))
		b = append(b, n.bytes...)
	case cList, cSet:
		if len(n.list) < 15 {
			b = append(b, byte(len(n.list))<<4|n.elem)
		} else {
			b = append(b, 0xf0|n.elem)
			b = binary.AppendUvarint(b, uint64(len(n.list)))
		}
		for _, e := range n.list {
			b = e.append(b, true)
		}
	case cStruct:
		last := int64(0)
		for _, f := range n.fields {
			if d := f.id - last; d > 0 && d < 16 {
				b = append(b, byte(d)<<4|f.v.typ)
			} else {
				b = append(b, f.v.typ)
				b = binary.AppendVarint(b, f.id)
			}
			last = f.id
			b = f.v.append(b, false)
		}
		b = append(b, 0)
	}
	return b
}

func (n *node) clone() *node {
	m := *n
	m.fields = slices.Clone(n.fields)
	for i := range m.fields {
		m.fields[i].v = m.fields[i].v.clone()
	}
	m.list = slices.Clone(n.list)
	for i := range m.list {
		m.list[i] = m.list[i].clone()
	}
	return &m
}

// at gives the field of that id, or nil.
func (n *node) at(id int64) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.id == id {
			return f.v
		}
	}
	return nil
}

func (n *node) set(id, v int64) {
	if f := n.at(id); f != nil {
		f.num = v
	}
}

// walk calls fn with every node of the tree.
func (n *node) walk(fn func(*node)) {
	fn(n)
	for _, f := range n.fields {
		f.v.walk(fn)
	}
	for _, e := range n.list {
		e.walk(fn)
	}
}

// anatomy is a Parquet file in parts.
type anatomy struct {
	meta   *node
	chunks []*anatomyChunk // in the footer's order
}

type anatomyChunk struct {
	meta  *node // ColumnMetaData, inside anatomy.meta
	whole *node // ColumnChunk
	pages []*anatomyPage
}

type anatomyPage struct {
	header *node
	body   []byte
}

// takeApart parses a sound file. Page indexes are left out.
func takeApart(b []byte) (*anatomy, error) {
	if len(b) < 12 {
		return nil, errTree
	}
	size := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	if size > len(b)-12 {
		return nil, errTree
	}
	meta, rest, err := parseNode(b[len(b)-8-size:len(b)-8], cStruct, false)
	if err != nil || len(rest) > 0 {
		return nil, errTree
	}
	a := &anatomy{meta: meta}
	for _, g := range meta.at(4).list {
		for _, whole := range g.at(1).list {
			c := &anatomyChunk{whole: whole, meta: whole.at(3)}
			start := c.meta.at(9).num
			if d := c.meta.at(11); d != nil && d.num > 0 && (d.num < start || start == 0) {
				start = d.num
			}
			left := b[start : start+c.meta.at(7).num]
			for len(left) > 0 {
				h, rest, err := parseNode(left, cStruct, false)
				if err != nil {
					return nil, err
				}
				n := h.at(3).num
				c.pages = append(c.pages, &anatomyPage{header: h, body: rest[:n]})
				left = rest[n:]
			}
			whole.fields = slices.DeleteFunc(whole.fields, func(f field) bool { return f.id >= 4 && f.id <= 7 })
			a.chunks = append(a.chunks, c)
		}
	}
	return a, nil
}

// putTogether writes the file, with places and sizes in the footer that fit
// what the page headers say now.
func (a *anatomy) putTogether() []byte {
	b := []byte("PAR1")
	for _, c := range a.chunks {
		start := int64(len(b))
		first := true
		var decoded, values int64
		dict := int64(-1)
		for _, p := range c.pages {
			at := int64(len(b))
			b = p.header.append(b, false)
			decoded += int64(len(b)) - at
			b = append(b, p.body...)
			if v := p.header.at(2); v != nil {
				decoded += v.num
			}
			if t := p.header.at(1); t != nil && t.num == 2 {
				dict = at
				continue
			}
			for _, id := range []int64{5, 8} {
				if h := p.header.at(id); h != nil && h.at(1) != nil {
					values += h.at(1).num
				}
			}
			if first {
				c.meta.set(9, at)
				first = false
			}
		}
		if dict >= 0 {
			c.meta.set(11, dict)
		}
		c.meta.set(5, values)
		c.meta.set(6, decoded)
		c.meta.set(7, int64(len(b))-start)
	}
	n := 0
	if groups := a.meta.at(4); groups != nil {
		for _, g := range groups.list {
			sum := int64(0)
			for range g.at(1).list {
				sum += a.chunks[n].meta.at(7).num
				n++
			}
			g.set(6, sum)
		}
	}
	return finish(b, a.meta)
}

// finish puts a footer behind a body.
func finish(b []byte, meta *node) []byte {
	at := len(b)
	b = meta.append(b, false)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)-at))
	return append(b, "PAR1"...)
}

func (a *anatomy) clone() *anatomy {
	m := &anatomy{meta: a.meta.clone()}
	i := 0
	for _, g := range m.meta.at(4).list {
		for _, whole := range g.at(1).list {
			c := &anatomyChunk{whole: whole, meta: whole.at(3)}
			for _, p := range a.chunks[i].pages {
				c.pages = append(c.pages, &anatomyPage{header: p.header.clone(), body: p.body})
			}
			m.chunks = append(m.chunks, c)
			i++
		}
	}
	return m
}
