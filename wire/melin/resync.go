package melin

import (
	"bytes"

	"wiretape/wire"
)

// How a lost framing is found again. A place is taken for a frame's start when
// its header is one that this direction has, and the frame proves it: an
// InputBatch by slots that are all valid and fill it, any other by a second
// such header right behind it.

// resyncBudget is how many bytes of candidates one search looks into: it keeps
// bytes made to look like frames from costing more than a few passes.
const resyncBudget = 8 * MaxFrame

func junk(n int) wire.Head { return wire.Head{Type: wire.UnitJunk, Size: int64(n)} }

// resyncFor starts a search because of f: the current position is no frame.
func (d *Decoder) resyncFor(b []byte, end bool, f *wire.Finding) wire.Head {
	h := d.resync(b, end, 1)
	h.Finding = f
	return h
}

// resync gives the junk before the next place from i on where frames start
// again; or the frame itself, when it is the current position.
func (d *Decoder) resync(b []byte, end bool, i int) wire.Head {
	budget := resyncBudget
	for ; i+HeaderSize <= len(b); i++ {
		// A length's last byte is 0, and no tag is: most places are passed at once.
		zero := bytes.IndexByte(b[i+PrefixSize-1:len(b)-1], 0)
		if zero < 0 {
			i = len(b)
			break
		}
		i += zero
		if b[i+PrefixSize] == 0 {
			i += zeros(b[i+PrefixSize:]) - 1
			continue
		}
		if !d.plausible(b[i:]) {
			continue
		}
		found, need := d.confirm(b[i:], end, &budget)
		switch {
		case need == 0 && !found:
			continue
		case i > 0:
			return junk(i) // it is looked at again from its own start
		case need > 0:
			return wire.Head{Type: wire.UnitMore, Size: need}
		}
		n := PrefixSize + int64(u32(b))
		return wire.Head{Type: wire.UnitFrame, Size: n, Peek: n, Kind: uint32(b[PrefixSize])}
	}
	if end {
		return junk(len(b))
	}
	return junk(max(len(b)-PrefixSize, 1))
}

// zeros is how many zeros b begins with.
func zeros(b []byte) (n int) {
	for len(b)-n >= 8 && u64(b[n:]) == 0 {
		n += 8
	}
	for n < len(b) && b[n] == 0 {
		n++
	}
	return n
}

// plausible says whether b, of at least a header's bytes, starts with a header
// that this direction has.
func (d *Decoder) plausible(b []byte) bool {
	if len(b) < HeaderSize || b[3] != 0 {
		return false
	}
	tag := uint32(b[PrefixSize])
	if !lengthFits(tag, int(u32(b))) {
		return false
	}
	return d.dir == wire.DirectionUnknown || d.dir == tagDirection(tag)
}

// confirm says whether the frame at b, whose header is plausible, proves itself;
// need is how many bytes it takes to tell, 0 when it is told.
func (d *Decoder) confirm(b []byte, end bool, budget *int) (found bool, need int64) {
	size := PrefixSize + int(u32(b))
	tag := uint32(b[PrefixSize])
	if tag == TagInputBatch && size > PrefixSize+lenInputBatch {
		if len(b) < size {
			if end || !d.firstSlot(b) {
				return false, 0
			}
			return false, int64(size)
		}
		has, _ := d.set.shapes()
		for shape := ShapeCRC; shape > ShapeUnknown; shape-- {
			if !has[shape] || *budget < 0 {
				continue
			}
			n, read, ok := validSlots(b[:size], shape)
			*budget -= read
			if ok && n > 0 {
				if shape == ShapeCRC {
					return true, 0
				}
				return d.next(b, size, end)
			}
		}
		return false, 0
	}
	return d.next(b, size, end)
}

// firstSlot says whether the first slot of a batch that is not held whole could
// be one, so that nonsense does not make a reader wait for 768 KiB.
func (d *Decoder) firstSlot(b []byte) bool {
	const at = PrefixSize + lenInputBatch
	if len(b) < at+2 {
		return true
	}
	n, size := int(u16(b[at:])), PrefixSize+int(u32(b))
	return n >= slotFixed && at+slotPrefix+n <= size && u16(b[HeaderSize:]) > 0
}

// next says whether a plausible header, or the end, follows size bytes.
func (d *Decoder) next(b []byte, size int, end bool) (found bool, need int64) {
	switch {
	case len(b) >= size+HeaderSize:
		return d.plausible(b[size:]), 0
	case !end:
		return false, int64(size + HeaderSize)
	}
	return len(b) == size, 0
}
