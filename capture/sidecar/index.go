package sidecar

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
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
	maxIndexRecord  = 3*binary.MaxVarintLen64 + 4
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

// AppendIndexRecord adds n bytes with their CRC that came at an instant, after
// the one before at prevWall and prevMono. A monotonic clock that went back
// counts as still.
func AppendIndexRecord(dst []byte, n int, crc uint32, prevWall, prevMono, wall, mono int64) []byte {
	step := max(mono-prevMono, 0)
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendUvarint(dst, uint64(step))
	dst = binary.AppendVarint(dst, (wall-prevWall)-step)
	return binary.LittleEndian.AppendUint32(dst, crc)
}

// Arrival is one read: the bytes from Offset on, Length of them, came then.
type Arrival struct {
	Offset, Length int64
	Wall, Mono     int64
	// CRC is that of the bytes.
	CRC uint32
}

// Index reads an arrival index record by record, holding one.
type Index struct {
	src  *bufio.Reader
	good int64
	next Arrival
	cut  bool
	err  error
}

// NewIndex checks the header and stands before the first record. An index that
// was cut before the end of its header, or is empty, has no records. The error
// wraps ErrInvalid when src holds no index; others are those of src.
func NewIndex(src io.Reader) (*Index, error) {
	x := &Index{src: bufio.NewReaderSize(src, 32<<10)}
	var h [IndexHeaderSize]byte
	n, err := io.ReadFull(x.src, h[:])
	m := min(n, len(IndexMagic))
	switch {
	case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
		return nil, err
	case string(h[:m]) != IndexMagic[:m]:
		return nil, fmt.Errorf("%w arrival index: no header", ErrInvalid)
	case n < IndexHeaderSize:
		x.cut, x.err = n > 0, io.EOF
		return x, nil
	}
	x.good = IndexHeaderSize
	x.next.Offset = int64(binary.LittleEndian.Uint64(h[8:]))
	x.next.Wall = int64(binary.LittleEndian.Uint64(h[16:]))
	x.next.Mono = int64(binary.LittleEndian.Uint64(h[24:]))
	if x.next.Offset < 0 || x.next.Offset > maxStream {
		return nil, fmt.Errorf("%w arrival index: starts at %d", ErrInvalid, x.next.Offset)
	}
	return x, nil
}

// Next gives the next record; ok is false at the end, and Cut then says
// whether it ends in the middle of one, Err whether src failed.
func (x *Index) Next() (a Arrival, ok bool) {
	if x.err != nil {
		return Arrival{}, false
	}
	if _, err := x.src.Peek(1); err != nil {
		x.err = err
		return Arrival{}, false
	}
	x.cut = true
	b, err := x.src.Peek(maxIndexRecord)
	if err != nil && err != io.EOF {
		x.err = err
		return Arrival{}, false
	}
	n, k := binary.Uvarint(b)
	if k <= 0 || n == 0 || n > uint64(maxStream-x.next.Offset-x.next.Length) {
		return x.end()
	}
	step, k2 := binary.Uvarint(b[k:])
	if k2 <= 0 || step > 1<<62 {
		return x.end()
	}
	k += k2
	skew, k3 := binary.Varint(b[k:])
	k += k3
	if k3 <= 0 || len(b) < k+4 {
		return x.end()
	}
	x.next.CRC = binary.LittleEndian.Uint32(b[k:])
	k += 4
	x.src.Discard(k)
	x.cut = false
	x.good += int64(k)
	x.next.Offset += x.next.Length
	x.next.Length = int64(n)
	x.next.Mono += int64(step)
	x.next.Wall += int64(step) + skew
	return x.next, true
}

func (x *Index) end() (Arrival, bool) {
	x.err = io.EOF
	return Arrival{}, false
}

// Cut says that the index ended inside a record or in bytes that are none.
func (x *Index) Cut() bool { return x.cut }

// Err is why src could not be read to its end, nil if it could.
func (x *Index) Err() error {
	if x.err == io.EOF {
		return nil
	}
	return x.err
}

// Good is how many of its bytes are header and whole records, as far as Next
// came.
func (x *Index) Good() int64 { return x.good }

// Arrivals is an arrival index made ready for look-ups.
type Arrivals []Arrival

// ReadArrivals reads all records of an index; cut is as Index.Cut.
func ReadArrivals(b []byte) (all Arrivals, cut bool, err error) {
	x, err := NewIndex(bytes.NewReader(b))
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
