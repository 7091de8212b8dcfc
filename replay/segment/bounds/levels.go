package bounds

import (
	"encoding/binary"
	"math/bits"

	"wiretape/wire"
)

// decoder decodes the pages of one chunk. Its buffers are kept from chunk to
// chunk.
type decoder struct {
	ch    *chunk
	leaf  *leaf
	v     Visitor
	err   error // the visitor's
	stats gathered

	dict    []byte // the dictionary's values, PLAIN
	dictN   int
	dictOff []uint32 // where each BYTE_ARRAY starts in dict, and one more
	used    []byte   // 1 for each dictionary entry that a value names
	hasDict bool
	first   bool  // no entry of the chunk was read yet
	spent   int64 // bytes given out beyond the page itself
	budget  int64 // the most of them

	pageBuf, dictBuf []byte
	rep, def         []byte
	batch            []byte
	lengths          []int32
	prefixes         []int32
	value            []byte
}

func (d *decoder) begin(ch *chunk, v Visitor, budget int64) {
	d.ch, d.leaf, d.v, d.err = ch, ch.leaf, v, nil
	d.dict, d.dictN, d.hasDict, d.first, d.spent = nil, 0, false, true, 0
	d.budget = budget
	d.stats.begin(ch)
}

// release drops what the decoder holds of a segment, and buffers that are
// larger than a pool should keep.
func (d *decoder) release() {
	const keep = 4 << 20
	if cap(d.pageBuf) > keep {
		d.pageBuf = nil
	}
	if cap(d.dictBuf) > keep {
		d.dictBuf = nil
	}
	if cap(d.rep) > keep {
		d.rep = nil
	}
	if cap(d.def) > keep {
		d.def = nil
	}
	if cap(d.used) > keep {
		d.used = nil
	}
	if cap(d.dictOff) > keep/4 {
		d.dictOff = nil
	}
	if cap(d.lengths) > keep/4 {
		d.lengths = nil
	}
	if cap(d.prefixes) > keep/4 {
		d.prefixes = nil
	}
	if cap(d.value) > keep {
		d.value = nil
	}
	if cap(d.batch) > keep {
		d.batch = nil
	}
	d.ch, d.leaf, d.v, d.err, d.dict = nil, nil, nil, nil, nil
	d.stats.release()
}

// grow gives buf with length n.
func grow[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n, n+n/8)
	}
	*buf = (*buf)[:n]
	return *buf
}

// hybrid reads the runs of the RLE and bit-packing hybrid encoding.
type hybrid struct {
	src   []byte
	width int
}

// maxRun is more than any page has values, and fits an int everywhere.
const maxRun = 1 << 30

// run is the next run: count values, all of them value, or bit-packed.
func (h *hybrid) run() (count int, value uint32, packed []byte, bad string) {
	head, n := binary.Uvarint(h.src)
	if n <= 0 || head>>32 != 0 {
		return 0, 0, nil, "a run's header is not a number of 32 bits"
	}
	h.src = h.src[n:]
	if head>>1 == 0 {
		return 0, 0, nil, "a run of no values"
	}
	if head&1 == 1 {
		size := (head >> 1) * uint64(h.width)
		if size > uint64(len(h.src)) {
			return 0, 0, nil, "a bit-packed run of " + wire.Utoa(size) + " bytes where " + wire.Itoa(int64(len(h.src))) + " are left"
		}
		packed, h.src = h.src[:size:size], h.src[size:]
		return int(min(head>>1*8, maxRun)), 0, packed, ""
	}
	size := (h.width + 7) / 8
	if size > len(h.src) {
		return 0, 0, nil, "a run's value is cut"
	}
	for i := range size {
		value |= uint32(h.src[i]) << (8 * i)
	}
	h.src = h.src[size:]
	if h.width < 32 && value>>h.width != 0 {
		return 0, 0, nil, "a run's value has more than " + wire.Itoa(int64(h.width)) + " bits"
	}
	return int(min(head>>1, maxRun)), value, nil, ""
}

// overrun says whether a run of count values is too long where left are wanted:
// only a bit-packed run may be, to fill its last group of eight, or as many
// groups as a writer always makes (DuckDB: 32).
func overrun(count, left int, packed []byte) bool {
	return count > left && packed == nil
}

// levels decodes n levels of at most limit in the hybrid encoding. nil where
// the limit is 0.
func (d *decoder) levels(buf *[]byte, src []byte, n int, limit uint8) (out []byte, bad string) {
	if limit == 0 {
		if len(src) > 0 {
			return nil, "levels where the column has none"
		}
		return nil, ""
	}
	width := bits.Len8(limit)
	h := hybrid{src: src, width: width}
	out = grow(buf, n)
	for at := 0; at < n; {
		count, value, packed, bad := h.run()
		if bad != "" {
			return nil, "levels: " + bad
		}
		if overrun(count, n-at, packed) {
			return nil, "levels: a run of " + wire.Itoa(int64(count)) + " where " + wire.Itoa(int64(n-at)) + " are left"
		}
		if packed == nil {
			if value > uint32(limit) {
				return nil, "a level of " + wire.Itoa(int64(value)) + ", the most is " + wire.Itoa(int64(limit))
			}
			fill(out[at:at+count], byte(value))
			at += count
			continue
		}
		count = min(count, n-at)
		unpackLevels(out[at:at+count], packed, width)
		at += count
	}
	if len(h.src) > 0 {
		return nil, "levels: " + wire.Itoa(int64(len(h.src))) + " bytes left over"
	}
	return out, ""
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// unpackLevels unpacks values of at most 8 bits.
func unpackLevels(dst, src []byte, width int) {
	mask := uint64(1)<<width - 1
	for len(dst) > 0 {
		v := load64(src, 0)
		k := min(8, len(dst))
		for i := range k {
			dst[i] = byte(v & mask)
			v >>= width
		}
		dst = dst[k:]
		src = src[min(width, len(src)):]
	}
}

// load64 loads 8 bytes little-endian; what lies behind the end is zero.
func load64(b []byte, i int) uint64 {
	if i+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[i:])
	}
	var v uint64
	for k := 0; i+k < len(b); k++ {
		v |= uint64(b[i+k]) << (8 * k)
	}
	return v
}

// levelsV1 takes n levels off the front of a v1 page's buffer.
func (d *decoder) levelsV1(buf *[]byte, src []byte, n int, limit uint8, enc int32) (out, rest []byte, bad, why string) {
	if limit == 0 {
		return nil, src, "", ""
	}
	switch enc {
	case encRLE:
		if len(src) < 4 {
			return nil, nil, "the length of a page's levels is cut", ""
		}
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if uint64(size) > uint64(len(src)) {
			return nil, nil, "levels of " + wire.Itoa(int64(size)) + " bytes where " + wire.Itoa(int64(len(src))) + " are left of the page", ""
		}
		out, bad = d.levels(buf, src[:size], n, limit)
		return out, src[size:], bad, ""
	case encBitPacked:
		width := bits.Len8(limit)
		size := (n*width + 7) / 8
		if size > len(src) {
			return nil, nil, "levels of " + wire.Itoa(int64(size)) + " bytes where " + wire.Itoa(int64(len(src))) + " are left of the page", ""
		}
		out = grow(buf, n)
		for i := range out {
			// This deprecated encoding packs from the most significant bit.
			var v byte
			for k := i * width; k < (i+1)*width; k++ {
				v = v<<1 | src[k>>3]>>(7-k&7)&1
			}
			out[i] = v
		}
		return out, src[size:], "", ""
	}
	return nil, nil, "", "levels in the encoding " + wire.Itoa(int64(enc))
}

// countLevels checks a page's levels against each other and the schema. It
// gives how many values are there, and adds the rows that start.
func (d *decoder) countLevels(l *leaf, n int, rep, def []byte, rows *int64) (present int, bad string) {
	if n == 0 {
		return 0, ""
	}
	first := d.first
	d.first = false
	present = n
	if def != nil {
		present = 0
		for _, v := range def {
			if v >= l.maxDef {
				if v > l.maxDef {
					return 0, "a definition level of " + wire.Itoa(int64(v)) + ", the most is " + wire.Itoa(int64(l.maxDef))
				}
				present++
			}
		}
	}
	if rep == nil {
		*rows += int64(n)
		return present, ""
	}
	if first && rep[0] != 0 {
		return 0, "the column's first value does not start a row"
	}
	for i, r := range rep {
		switch {
		case r == 0:
			*rows++
		case r > l.maxRep:
			return 0, "a repetition level of " + wire.Itoa(int64(r)) + ", the most is " + wire.Itoa(int64(l.maxRep))
		case def[i] < l.repDef[r-1]:
			return 0, "a repeated value whose list is not there"
		}
	}
	return present, ""
}
