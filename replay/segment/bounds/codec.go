package bounds

import (
	"encoding/binary"
	"errors"
)

// The codecs of the format.
const (
	codecNone   = 0
	CodecSnappy = 1
	CodecGzip   = 2
	CodecLZO    = 3
	CodecBrotli = 4
	CodecLZ4    = 5
	CodecZstd   = 6
	CodecLZ4Raw = 7
)

var codecNames = [...]string{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"}

// maxRatio is how many bytes a byte of each codec can become, 0 where it is no
// bound worth having. What a page claims beyond it is refused before anything
// is allocated.
var maxRatio = [...]int64{codecNone: 1, CodecSnappy: 22, CodecGzip: 1032, CodecLZ4: 255, CodecLZ4Raw: 255}

// ratioSlack is for the few bytes of a codec's own that the ratio forgets.
const ratioSlack = 64

// Decompress decodes src to dst, which it must fill exactly; anything else is
// an error. It holds on to neither.
type Decompress func(dst, src []byte) error

// Codecs are the decoders of codecs that this package does not have itself,
// by the format's numbers. It has SNAPPY, LZ4 and LZ4_RAW.
type Codecs [len(codecNames)]Decompress

func (o *Options) codec(id uint8) Decompress {
	if o.Codecs != nil && o.Codecs[id] != nil {
		return o.Codecs[id]
	}
	switch id {
	case codecNone:
		return stored
	case CodecSnappy:
		return snappy
	case CodecLZ4:
		return lz4Hadoop
	case CodecLZ4Raw:
		return lz4
	}
	return nil
}

var (
	errCut    = errors.New("the input ends early")
	errOver   = errors.New("the output has more bytes")
	errShort  = errors.New("the output has fewer bytes")
	errOffset = errors.New("a match begins before the output")
	errGaveUp = errors.New("the decoder gave up")
	errSize   = errors.New("the input says another size")
)

func stored(dst, src []byte) error {
	if len(dst) != len(src) {
		return errSize
	}
	copy(dst, src)
	return nil
}

// match appends n bytes to dst[:d] from off before its end. There is room for
// them and 0 < off ≤ d.
func match(dst []byte, d, off, n int) {
	from := d - off
	if off >= 8 && n <= 32 && d+40 <= len(dst) {
		for i := 0; i < n; i += 8 {
			binary.LittleEndian.PutUint64(dst[d+i:], binary.LittleEndian.Uint64(dst[from+i:]))
		}
		return
	}
	if off >= n {
		copy(dst[d:d+n], dst[from:d])
		return
	}
	// The copied bytes repeat: each round copies all that is there by now.
	end := d + n
	for d < end {
		d += copy(dst[d:end], dst[from:d])
	}
}

// lz4 decodes one LZ4 block.
func lz4(dst, src []byte) error {
	d, s := 0, 0
	for {
		if s >= len(src) {
			return errCut
		}
		token := src[s]
		s++
		n := int(token >> 4)
		if n == 15 {
			for {
				if s >= len(src) {
					return errCut
				}
				c := src[s]
				s++
				n += int(c)
				if c != 255 {
					break
				}
			}
		}
		if n > len(src)-s {
			return errCut
		}
		if n > len(dst)-d {
			return errOver
		}
		if n <= 16 && s+16 <= len(src) && d+16 <= len(dst) {
			in, out := src[s:s+16], dst[d:d+16]
			binary.LittleEndian.PutUint64(out, binary.LittleEndian.Uint64(in))
			binary.LittleEndian.PutUint64(out[8:], binary.LittleEndian.Uint64(in[8:]))
		} else {
			copy(dst[d:], src[s:s+n])
		}
		d += n
		s += n
		if s == len(src) {
			// The last sequence has literals only.
			if d != len(dst) {
				return errShort
			}
			return nil
		}
		if len(src)-s < 2 {
			return errCut
		}
		off := int(binary.LittleEndian.Uint16(src[s:]))
		s += 2
		n = int(token&15) + 4
		if n == 19 {
			for {
				if s >= len(src) {
					return errCut
				}
				c := src[s]
				s++
				n += int(c)
				if c != 255 {
					break
				}
			}
		}
		if off == 0 || off > d {
			return errOffset
		}
		if n > len(dst)-d {
			return errOver
		}
		match(dst, d, off, n)
		d += n
	}
}

// lz4Hadoop decodes the deprecated LZ4 codec: blocks, each behind its decoded
// and its encoded size as big-endian numbers. Some writers wrote a bare block
// under the same name.
func lz4Hadoop(dst, src []byte) error {
	if err := lz4Framed(dst, src); err == nil {
		return nil
	}
	return lz4(dst, src)
}

func lz4Framed(dst, src []byte) error {
	for len(src) > 0 {
		if len(src) < 8 {
			return errCut
		}
		out, in := binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
		src = src[8:]
		if uint64(in) > uint64(len(src)) {
			return errCut
		}
		if uint64(out) > uint64(len(dst)) {
			return errOver
		}
		if err := lz4(dst[:out], src[:in]); err != nil {
			return err
		}
		dst, src = dst[out:], src[in:]
	}
	if len(dst) > 0 {
		return errShort
	}
	return nil
}

// snappy decodes one Snappy block.
func snappy(dst, src []byte) error {
	size, k := binary.Uvarint(src)
	if k <= 0 || size != uint64(len(dst)) {
		return errSize
	}
	d, s := 0, k
	for s < len(src) {
		tag := src[s]
		s++
		if tag&3 == 0 {
			n := int(tag >> 2)
			if n >= 60 {
				extra := n - 59
				if extra > len(src)-s {
					return errCut
				}
				long := uint64(0)
				for i := range extra {
					long |= uint64(src[s+i]) << (8 * i)
				}
				s += extra
				if long >= uint64(len(src)-s) {
					return errCut
				}
				n = int(long)
			}
			n++
			if n > len(src)-s {
				return errCut
			}
			if n > len(dst)-d {
				return errOver
			}
			copy(dst[d:], src[s:s+n])
			d += n
			s += n
			continue
		}
		var n, off int
		switch tag & 3 {
		case 1:
			if s >= len(src) {
				return errCut
			}
			n = int(tag>>2&7) + 4
			off = int(tag>>5)<<8 | int(src[s])
			s++
		case 2:
			if len(src)-s < 2 {
				return errCut
			}
			n = int(tag>>2) + 1
			off = int(binary.LittleEndian.Uint16(src[s:]))
			s += 2
		case 3:
			if len(src)-s < 4 {
				return errCut
			}
			n = int(tag>>2) + 1
			v := binary.LittleEndian.Uint32(src[s:])
			if uint64(v) > uint64(d) {
				return errOffset
			}
			off = int(v)
			s += 4
		}
		if off == 0 || off > d {
			return errOffset
		}
		if n > len(dst)-d {
			return errOver
		}
		match(dst, d, off, n)
		d += n
	}
	if d != len(dst) {
		return errShort
	}
	return nil
}
