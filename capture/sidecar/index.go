package sidecar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
)

// The arrival index of a file: a header of IndexHeaderSize bytes, then one
// record for each read of the transport that brought bytes for this file, in
// order. A record is three numbers in LEB128 (protobuf's varint) and a checksum:
//
//	bytes      how many bytes came, at least 1
//	mono       nanoseconds since the record before by the monotonic clock
//	skew       zigzag: how much further the wall clock went than the monotonic
//	crc        CRC-32C of the bytes, 4 bytes little-endian
//
// The checksum is what tells, after a power loss or a flipped bit, which of the
// bytes are not those that came.
//
// Header: the eight bytes of IndexMagic, then little-endian int64s: the stream
// offset of the file's first byte, and wall and monotonic time from which the
// first record counts. A record is never written twice and nothing follows the
// last one, so an index that was cut is good up to the cut; a zero where a
// record would begin ends it, as in a tail that a power loss zeroed.
const (
	IndexMagic      = "WTARRIX1"
	IndexHeaderSize = 8 + 3*8
)

// AppendIndexHeader starts an index.
func AppendIndexHeader(dst []byte, start, wall, mono int64) []byte {
	dst = append(dst, IndexMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(wall))
	return binary.LittleEndian.AppendUint64(dst, uint64(mono))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the checksum of a record's bytes, or, with the checksum of bytes before
// them, that of both.
func CRC(before uint32, p []byte) uint32 { return crc32.Update(before, castagnoli, p) }

// AppendIndexRecord adds bytes that came at an instant, after the one before at
// prevWall and prevMono. A monotonic clock that went back counts as still.
func AppendIndexRecord(dst, p []byte, prevWall, prevMono, wall, mono int64) []byte {
	step := max(mono-prevMono, 0)
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	dst = binary.AppendUvarint(dst, uint64(step))
	dst = binary.AppendVarint(dst, (wall-prevWall)-step)
	return binary.LittleEndian.AppendUint32(dst, CRC(0, p))
}

// Arrival is one read: the bytes from Offset on, Length of them, came then.
type Arrival struct {
	Offset, Length int64
	Wall, Mono     int64
	// CRC is that of the bytes.
	CRC uint32
}

// Index reads an arrival index from memory, record by record.
type Index struct {
	b    []byte
	pos  int
	next Arrival
	cut  bool
}

// ParseIndex checks the header of b and stands before the first record. An index
// that was cut before the end of its header, or is empty, has no records.
func ParseIndex(b []byte) (*Index, error) {
	if n := min(len(b), len(IndexMagic)); len(b) < IndexHeaderSize && string(b[:n]) == IndexMagic[:n] {
		return &Index{cut: len(b) > 0}, nil
	}
	if len(b) < IndexHeaderSize || string(b[:8]) != IndexMagic {
		return nil, fmt.Errorf("%w arrival index: no header", ErrInvalid)
	}
	x := &Index{b: b, pos: IndexHeaderSize}
	x.next.Offset = int64(binary.LittleEndian.Uint64(b[8:]))
	x.next.Wall = int64(binary.LittleEndian.Uint64(b[16:]))
	x.next.Mono = int64(binary.LittleEndian.Uint64(b[24:]))
	if x.next.Offset < 0 || x.next.Offset > maxStream {
		return nil, fmt.Errorf("%w arrival index: starts at %d", ErrInvalid, x.next.Offset)
	}
	return x, nil
}

// Next gives the next record; ok is false at the end, and Cut then says
// whether it ends in the middle of one.
func (x *Index) Next() (a Arrival, ok bool) {
	b := x.b[x.pos:]
	if len(b) == 0 {
		return Arrival{}, false
	}
	x.cut = true
	n, k := binary.Uvarint(b)
	if k <= 0 || n == 0 || n > uint64(maxStream-x.next.Offset-x.next.Length) {
		return Arrival{}, false
	}
	b = b[k:]
	step, k2 := binary.Uvarint(b)
	if k2 <= 0 || step > 1<<62 {
		return Arrival{}, false
	}
	skew, k3 := binary.Varint(b[k2:])
	if k3 <= 0 || len(b) < k2+k3+4 {
		return Arrival{}, false
	}
	x.cut = false
	x.pos += k + k2 + k3 + 4
	x.next.CRC = binary.LittleEndian.Uint32(b[k2+k3:])
	x.next.Offset += x.next.Length
	x.next.Length = int64(n)
	x.next.Mono += int64(step)
	x.next.Wall += int64(step) + skew
	return x.next, true
}

// Cut says that the index ended inside a record or in bytes that are none.
func (x *Index) Cut() bool { return x.cut }

// Good is how many of its bytes are header and whole records, once Next gave
// its end.
func (x *Index) Good() int { return x.pos }

// Arrivals is an arrival index made ready for look-ups.
type Arrivals []Arrival

// ReadArrivals reads all records of an index; cut is as Index.Cut.
func ReadArrivals(b []byte) (all Arrivals, cut bool, err error) {
	x, err := ParseIndex(b)
	if err != nil {
		return nil, false, err
	}
	for {
		a, ok := x.Next()
		if !ok {
			return all, x.Cut(), nil
		}
		all = append(all, a)
	}
}

// At gives the read that brought the byte at a stream offset. ok is false when
// no read in the index did.
func (all Arrivals) At(offset int64) (a Arrival, ok bool) {
	i := sort.Search(len(all), func(i int) bool { return all[i].Offset+all[i].Length > offset })
	if i == len(all) || all[i].Offset > offset {
		return Arrival{}, false
	}
	return all[i], true
}
