package bounds

import (
	"encoding/binary"

	"wiretape/wire"
)

// The encodings of the format.
const (
	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encBitPacked       = 4
	encDelta           = 5
	encDeltaLength     = 6
	encDeltaBytes      = 7
	encDictionary      = 8
	encByteStreamSplit = 9
)

// batchBytes is how much of a page is unpacked at a time.
const batchBytes = 8 << 10

// setDictionary takes a dictionary page's n PLAIN values. buf is good until
// the next dictionary.
func (d *decoder) setDictionary(buf []byte, n int) (bad string) {
	d.dict, d.dictN, d.hasDict = buf, n, false
	switch {
	case d.leaf.typ == typeBoolean:
		return "a dictionary of a BOOLEAN column"
	case d.leaf.width > 0:
		if int64(len(buf)) != int64(n)*int64(d.leaf.width) {
			return sizes("a dictionary", n, d.leaf.width, len(buf))
		}
	default:
		if int64(n)*4 > int64(len(buf)) {
			return sizes("a dictionary", n, 4, len(buf))
		}
		off := grow(&d.dictOff, n+1)
		at := 0
		for i := range n {
			off[i] = uint32(at)
			v, bad := byteArray(buf, at)
			if bad != "" {
				return bad
			}
			at += 4 + len(v)
		}
		off[n] = uint32(at)
		if at != len(buf) {
			return "a dictionary with " + wire.Itoa(int64(len(buf)-at)) + " bytes left over"
		}
	}
	clear(grow(&d.used, n))
	d.hasDict = true
	return ""
}

// entry is a dictionary's value i, without a BYTE_ARRAY's length.
func (d *decoder) entry(i int) []byte {
	if w := d.leaf.width; w > 0 {
		return d.dict[i*w : (i+1)*w]
	}
	return d.dict[d.dictOff[i]+4 : d.dictOff[i+1]]
}

func sizes(what string, n, width, got int) string {
	return what + " of " + wire.Itoa(int64(n)) + " values of " + wire.Itoa(int64(width)) + " bytes in " + wire.Itoa(int64(got)) + " bytes"
}

// byteArray is the PLAIN BYTE_ARRAY at off of b.
func byteArray(b []byte, off int) (v []byte, bad string) {
	if len(b)-off < 4 {
		return nil, "a value's length is cut"
	}
	n := binary.LittleEndian.Uint32(b[off:])
	if uint64(n) > uint64(len(b)-off-4) {
		return nil, "a value of " + wire.Itoa(int64(n)) + " bytes where " + wire.Itoa(int64(len(b)-off-4)) + " are left of the page"
	}
	return b[off+4 : off+4+int(n)], ""
}

const tooMuchWork = "the segment takes more work to decode than its size allows"

// values decodes a page's n values that are there.
func (d *decoder) values(enc int32, buf []byte, n int) (bad, why string) {
	l := d.leaf
	switch enc {
	case encPlain:
		return d.plain(buf, n), ""
	case encPlainDictionary, encDictionary:
		if !d.hasDict {
			return "dictionary indexes without a dictionary", ""
		}
		return d.indexes(buf, n)
	case encRLE:
		if l.typ == typeBoolean {
			return d.booleans(buf, n), ""
		}
	case encDelta:
		if l.typ == typeInt32 || l.typ == typeInt64 {
			return d.deltaInts(buf, n), ""
		}
	case encDeltaLength:
		if l.typ == typeByteArray {
			return d.deltaLength(buf, n), ""
		}
	case encDeltaBytes:
		if l.typ == typeByteArray || l.typ == typeFixed {
			return d.deltaBytes(buf, n)
		}
	case encByteStreamSplit:
		if l.typ != typeBoolean && l.typ != typeByteArray && l.typ != typeInt96 {
			return d.byteStreamSplit(buf, n), ""
		}
	default:
		return "", "values in the encoding " + wire.Itoa(int64(enc))
	}
	return "values of type " + wire.Itoa(int64(l.typ)) + " in the encoding " + wire.Itoa(int64(enc)), ""
}

// fixed passes on values of a fixed width.
func (d *decoder) fixed(b []byte) {
	d.stats.page.fixed(b)
	if d.v != nil && d.err == nil && len(b) > 0 {
		d.err = d.v.Fixed(b)
	}
}

// bytes passes on one BYTE_ARRAY.
func (d *decoder) bytes(b []byte) {
	d.stats.page.bytes(b)
	if d.v != nil && d.err == nil {
		d.err = d.v.Bytes(b)
	}
}

func (d *decoder) plain(buf []byte, n int) (bad string) {
	w := d.leaf.width
	switch d.leaf.typ {
	case typeBoolean:
		size := (n + 7) / 8
		if len(buf) < size {
			return "a page of " + wire.Itoa(int64(n)) + " bits in " + wire.Itoa(int64(len(buf))) + " bytes"
		}
		d.bits(buf, n)
		return leftOver(buf[size:])
	case typeByteArray:
		at := 0
		for range n {
			v, bad := byteArray(buf, at)
			if bad != "" {
				return bad
			}
			d.bytes(v)
			at += 4 + len(v)
		}
		return leftOver(buf[at:])
	}
	if int64(len(buf)) < int64(n)*int64(w) {
		return sizes("a page", n, w, len(buf))
	}
	d.fixed(buf[:n*w])
	return leftOver(buf[n*w:])
}

// maxPadding is how many zeros may lie behind a page's values. The format has
// none; one writer (fastparquet) adds 8.
const maxPadding = 8

func leftOver(b []byte) string {
	zeros := len(b) <= maxPadding
	for _, c := range b {
		zeros = zeros && c == 0
	}
	if !zeros {
		return "a page with " + wire.Itoa(int64(len(b))) + " bytes left over behind its values"
	}
	return ""
}

// bits passes on n bits as bytes of 0 or 1.
func (d *decoder) bits(src []byte, n int) {
	for at := 0; at < n; at += batchBytes {
		out := grow(&d.batch, min(batchBytes, n-at))
		unpackLevels(out, src[at/8:], 1)
		d.fixed(out)
	}
}

// booleans decodes BOOLEAN values in the RLE encoding: a length, then runs.
func (d *decoder) booleans(buf []byte, n int) (bad string) {
	if len(buf) < 4 {
		return "the length of a page's runs is cut"
	}
	if size := binary.LittleEndian.Uint32(buf); uint64(size) != uint64(len(buf)-4) {
		return "runs of " + wire.Itoa(int64(size)) + " bytes where " + wire.Itoa(int64(len(buf)-4)) + " are left of the page"
	}
	h := hybrid{src: buf[4:], width: 1}
	for left := n; left > 0; {
		count, value, packed, bad := h.run()
		if bad != "" {
			return bad
		}
		if overrun(count, left, packed) {
			return tooLong(count, left)
		}
		count = min(count, left)
		if packed != nil {
			d.bits(packed, count)
		} else {
			out := grow(&d.batch, min(batchBytes, count))
			fill(out, byte(value))
			for k := count; k > 0; k -= len(out) {
				out = out[:min(len(out), k)]
				d.fixed(out)
			}
		}
		left -= count
	}
	return leftOver(h.src)
}

func tooLong(count, left int) string {
	return "a run of " + wire.Itoa(int64(count)) + " values where " + wire.Itoa(int64(left)) + " are left"
}

// indexes decodes dictionary indexes: a bit width, then runs.
func (d *decoder) indexes(buf []byte, n int) (bad, why string) {
	if n == 0 && len(buf) <= 1 {
		return "", ""
	}
	if len(buf) == 0 {
		return "the width of a page's indexes is cut", ""
	}
	width := int(buf[0])
	if width > 32 {
		return "dictionary indexes of " + wire.Itoa(int64(width)) + " bits", ""
	}
	h := hybrid{src: buf[1:], width: width}
	d.batch = d.batch[:0]
	for left := n; left > 0; {
		count, value, packed, bad := h.run()
		if bad != "" {
			return bad, ""
		}
		if overrun(count, left, packed) {
			return tooLong(count, left), ""
		}
		count = min(count, left)
		left -= count
		if packed == nil {
			if int64(value) >= int64(d.dictN) {
				return outOfDict(value, d.dictN), ""
			}
			d.used[value] = 1
			if !d.repeat(int(value), count) {
				return "", tooMuchWork
			}
			continue
		}
		mask := uint64(1)<<width - 1
		bit := 0
		for range count {
			i := load64(packed, bit>>3) >> (bit & 7) & mask
			bit += width
			if i >= uint64(d.dictN) {
				return outOfDict(uint32(i), d.dictN), ""
			}
			d.used[i] = 1
			if d.v != nil && !d.expand(int(i)) {
				return "", tooMuchWork
			}
		}
		d.flush()
	}
	return leftOver(h.src), ""
}

func outOfDict(i uint32, n int) string {
	return "index " + wire.Itoa(int64(i)) + " into a dictionary of " + wire.Itoa(int64(n))
}

// expand gives the visitor dictionary entry i, fixed ones by the batch.
func (d *decoder) expand(i int) bool {
	v := d.entry(i)
	if d.err != nil || d.leaf.width == 0 {
		if d.err == nil {
			d.err = d.v.Bytes(v)
		}
		return true
	}
	d.spent += int64(len(v))
	if d.spent > d.budget {
		return false
	}
	d.batch = append(d.batch, v...)
	if len(d.batch) >= batchBytes {
		d.flush()
	}
	return true
}

// repeat gives the visitor dictionary entry i n times.
func (d *decoder) repeat(i, n int) bool {
	if d.v == nil {
		return true
	}
	v := d.entry(i)
	if d.leaf.width == 0 {
		for ; n > 0 && d.err == nil; n-- {
			d.err = d.v.Bytes(v)
		}
		return true
	}
	if d.spent += int64(n) * int64(len(v)); d.spent > d.budget {
		return false
	}
	d.flush()
	k := min(n, max(1, batchBytes/len(v)))
	for range k {
		d.batch = append(d.batch, v...)
	}
	all := d.batch
	for ; n > 0; n -= k {
		d.batch = all[:min(n, k)*len(v)]
		d.flush()
	}
	return true
}

// flush gives the visitor what expand gathered.
func (d *decoder) flush() {
	if d.v != nil && d.err == nil && len(d.batch) > 0 && d.leaf.width > 0 {
		d.err = d.v.Fixed(d.batch)
	}
	d.batch = d.batch[:0]
}

// deltaInts decodes DELTA_BINARY_PACKED values.
func (d *decoder) deltaInts(buf []byte, n int) (bad string) {
	w := d.leaf.width
	rest, bad := deltas(buf, n, func(v []int64) {
		out := grow(&d.batch, len(v)*w)
		if w == 8 {
			for i, x := range v {
				binary.LittleEndian.PutUint64(out[i*8:], uint64(x))
			}
		} else {
			for i, x := range v {
				binary.LittleEndian.PutUint32(out[i*4:], uint32(x))
			}
		}
		d.fixed(out)
	})
	if bad != "" {
		return bad
	}
	return leftOver(rest)
}

// deltas decodes n values in the DELTA_BINARY_PACKED encoding and gives what
// lies behind them. Differences wrap around at 64 bits, as the format says; who
// wants 32 cuts them.
func deltas(src []byte, n int, emit func([]int64)) (rest []byte, bad string) {
	if n == 0 && len(src) == 0 {
		return nil, ""
	}
	var head [3]uint64
	for i := range head {
		v, k := binary.Uvarint(src)
		if k <= 0 || v > 1<<30 {
			return nil, "a delta header that is no header"
		}
		head[i], src = v, src[k:]
	}
	first, k := binary.Varint(src)
	if k <= 0 {
		return nil, "a delta header is cut"
	}
	src = src[k:]
	block, minis, total := head[0], head[1], head[2]
	if total != uint64(n) {
		return nil, "a delta header says " + wire.Utoa(total) + " values where there are " + wire.Itoa(int64(n))
	}
	if n == 0 {
		return src, ""
	}
	if block == 0 || block%128 != 0 || minis == 0 || block%minis != 0 || block/minis%32 != 0 {
		return nil, "delta blocks of " + wire.Utoa(block) + " values in " + wire.Utoa(minis) + " parts"
	}
	var out [256]int64
	out[0] = first
	last, fill := first, 1
	per := int(block / minis)
	for left := n - 1; left > 0; {
		step, k := binary.Varint(src)
		if k <= 0 {
			return nil, "a delta block is cut"
		}
		src = src[k:]
		if minis > uint64(len(src)) {
			return nil, "a delta block is cut"
		}
		widths := src[:minis]
		src = src[minis:]
		for _, width := range widths {
			if left == 0 {
				break
			}
			w := int(width)
			if w > 64 {
				return nil, "a delta of " + wire.Itoa(int64(w)) + " bits"
			}
			size := int64(per/8) * int64(w)
			if size > int64(len(src)) {
				return nil, "deltas of " + wire.Itoa(size) + " bytes where " + wire.Itoa(int64(len(src))) + " are left of the page"
			}
			packed := src[:size]
			src = src[size:]
			mask := ^uint64(0) >> (64 - w)
			count := min(per, left)
			left -= count
			for bit := 0; count > 0; {
				if fill == len(out) {
					emit(out[:])
					fill = 0
				}
				part := out[fill:min(len(out), fill+count)]
				fill += len(part)
				count -= len(part)
				switch {
				case w == 0:
					for i := range part {
						last += step
						part[i] = last
					}
				case w <= 56:
					// With its shift of up to 7 bits it fits one load.
					for i := range part {
						last += step + int64(load64(packed, bit>>3)>>(bit&7)&mask)
						part[i] = last
						bit += w
					}
				default:
					for i := range part {
						v := load64(packed, bit>>3) >> (bit & 7)
						if s := bit & 7; s+w > 64 {
							v |= uint64(packed[bit>>3+8]) << (64 - s)
						}
						last += step + int64(v&mask)
						part[i] = last
						bit += w
					}
				}
			}
		}
	}
	emit(out[:fill])
	return src, ""
}

// lengthsOf decodes n lengths that are not negative.
func lengthsOf(buf *[]int32, src []byte, n int) (out []int32, rest []byte, bad string) {
	out = grow(buf, n)
	at := 0
	negative := false
	rest, bad = deltas(src, n, func(v []int64) {
		for _, x := range v {
			// 32-bit arithmetic, as the format says.
			out[at] = int32(x)
			negative = negative || out[at] < 0
			at++
		}
	})
	if bad == "" && negative {
		bad = "a negative length"
	}
	return out, rest, bad
}

// deltaLength decodes DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
func (d *decoder) deltaLength(buf []byte, n int) (bad string) {
	lengths, rest, bad := lengthsOf(&d.lengths, buf, n)
	if bad != "" {
		return bad
	}
	for _, k := range lengths {
		if int(k) > len(rest) {
			return "a value of " + wire.Itoa(int64(k)) + " bytes where " + wire.Itoa(int64(len(rest))) + " are left of the page"
		}
		d.bytes(rest[:k])
		rest = rest[k:]
	}
	return leftOver(rest)
}

// deltaBytes decodes DELTA_BYTE_ARRAY: how much of the value before each one
// begins with, then the rest of each.
func (d *decoder) deltaBytes(buf []byte, n int) (bad, why string) {
	prefixes, rest, bad := lengthsOf(&d.prefixes, buf, n)
	if bad != "" {
		return bad, ""
	}
	lengths, rest, bad := lengthsOf(&d.lengths, rest, n)
	if bad != "" {
		return bad, ""
	}
	value := d.value[:0]
	for i, k := range lengths {
		if int(k) > len(rest) {
			return "a value of " + wire.Itoa(int64(k)) + " bytes where " + wire.Itoa(int64(len(rest))) + " are left of the page", ""
		}
		if int(prefixes[i]) > len(value) {
			return "a value that begins with " + wire.Itoa(int64(prefixes[i])) + " bytes of one of " + wire.Itoa(int64(len(value))), ""
		}
		value = append(value[:prefixes[i]], rest[:k]...)
		d.value = value
		rest = rest[k:]
		// Values may be much longer than the page that holds them.
		if d.spent += int64(len(value)); d.spent > d.budget {
			return "", tooMuchWork
		}
		if w := d.leaf.width; w > 0 {
			if len(value) != w {
				return "a value of " + wire.Itoa(int64(len(value))) + " bytes in a column of " + wire.Itoa(int64(w)), ""
			}
			d.fixed(value)
			continue
		}
		d.bytes(value)
	}
	return leftOver(rest), ""
}

// byteStreamSplit decodes BYTE_STREAM_SPLIT: all first bytes, all second ones
// and so on.
func (d *decoder) byteStreamSplit(buf []byte, n int) (bad string) {
	w := d.leaf.width
	if int64(len(buf)) != int64(n)*int64(w) {
		return sizes("a page", n, w, len(buf))
	}
	per := max(1, batchBytes/w)
	for at := 0; at < n; at += per {
		k := min(per, n-at)
		out := grow(&d.batch, k*w)
		for j := range w {
			src := buf[j*n+at : j*n+at+k]
			for i, c := range src {
				out[i*w+j] = c
			}
		}
		d.fixed(out)
	}
	return ""
}
