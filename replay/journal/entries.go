package journal

// This file reads entries again: from a connection, from a seed's file, or from
// a journal file.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// entry is one entry of a journal, without its magic.
type entry struct {
	slot     melin.Slot
	sequence uint64
	link     *link
	offset   int64 // of the slot in the connection; of the seed for a seed's
}

// entries gives the entries of a stretch in order.
type entries interface {
	// Next reads the next one; false behind the last.
	Next() (bool, error)
	Entry() *entry
	Close() error
}

// errChanged: a second reading of the input gave something else.
var errChanged = errors.New("the input changed while it was read")

// open reads the entries of a stretch from one sequence to another.
func (b *builder) open(s *stretch, from, to uint64) (entries, error) {
	if s.seed != nil {
		e, err := openSeed(b.dir, s.seed, s.offset)
		if err != nil {
			return nil, err
		}
		e.last = to
		for e.sequence+1 < from {
			if ok, err := e.Next(); err != nil || !ok {
				e.Close()
				return nil, errors.Join(err, errChanged)
			}
		}
		return e, nil
	}
	at := mark{s.first, s.offset}
	for _, m := range s.marks {
		if m.sequence <= from {
			at = m
		}
	}
	src, opt := s.run.OpenAt(at.offset)
	d, err := melin.NewDecoder(wire.Config{Direction: wire.Downstream, Context: melin.AtFrame(s.link.layout)})
	if err != nil {
		src.Close()
		return nil, err
	}
	e := &linkEntries{src: src, r: wire.NewReader(&counted{src, b}, d, opt), want: at.sequence, from: from, last: to,
		shape: s.link.layout.Shape()}
	e.entry.link = s.link
	if at.offset == s.offset {
		e.skip = s.skip
	}
	return e, nil
}

// counted tells the progress what was read.
type counted struct {
	src *capture.RunReader
	b   *builder
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.b.progress.Total += int64(n)
	c.b.read(int64(n))
	return n, err
}

// linkEntries reads from a connection.
type linkEntries struct {
	src   *capture.RunReader
	r     *wire.Reader
	slots melin.Slots
	in    bool
	base  int64 // offset of the frame
	skip  int
	shape melin.Shape
	want  uint64
	from  uint64
	last  uint64
	entry entry
}

func (e *linkEntries) Entry() *entry { return &e.entry }
func (e *linkEntries) Close() error  { return e.src.Close() }

func (e *linkEntries) Next() (bool, error) {
	for e.want <= e.last {
		if !e.in {
			u, _, err := e.r.Next()
			if err == io.EOF {
				return false, fmt.Errorf("sequence %d: %w", e.want, errChanged)
			}
			if err != nil {
				return false, err
			}
			if u.Kind != melin.TagInputBatch || u.Type != wire.UnitFrame {
				continue
			}
			e.slots, e.in, e.base = melin.SlotsOf(u.Bytes, e.shape), true, u.Offset
		}
		if !e.slots.Next(&e.entry.slot) {
			e.in = false
			continue
		}
		if e.skip > 0 {
			e.skip--
			continue
		}
		if e.entry.slot.Sequence != e.want {
			return false, fmt.Errorf("sequence %d instead of %d: %w", e.entry.slot.Sequence, e.want, errChanged)
		}
		e.want++
		if e.entry.slot.Sequence < e.from {
			continue
		}
		e.entry.sequence = e.entry.slot.Sequence
		e.entry.offset = e.base + int64(e.entry.slot.Offset)
		return true, nil
	}
	return false, nil
}

// fileEntries reads entries as they lie in a journal: magic and slot.
type fileEntries struct {
	f      *os.File
	r      *bufio.Reader
	header []byte
	buf    []byte
	at     int64 // of the last entry read
	next   int64
	last   uint64 // 0: all
	entry
	// fault is why reading ended before the file did, "" when it did not.
	fault string
}

func (e *fileEntries) Entry() *entry { return &e.entry }
func (e *fileEntries) Close() error  { return e.f.Close() }

// openFile reads a file's entries from an offset on; at 0 the header is read
// first, where there is one.
func openFile(path string, offset int64, header bool) (*fileEntries, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	e := &fileEntries{f: f, r: bufio.NewReaderSize(f, 256<<10)}
	if header {
		e.header = make([]byte, HeaderSize)
		n, err := io.ReadFull(e.r, e.header)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			e.header, e.fault = e.header[:n], "the file ends inside its header"
		} else if err != nil {
			f.Close()
			return nil, err
		}
		e.next = int64(n)
	}
	if offset > e.next {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			f.Close()
			return nil, err
		}
		e.r.Reset(f)
		e.next = offset
	}
	return e, nil
}

func openSeed(dir string, x *body, offset int64) (*fileEntries, error) {
	e, err := openFile(filepath.Join(dir, x.file), offset, offset == 0)
	if err == nil {
		e.entry.link, e.entry.offset = x.link, x.offset
		if x.first > 0 {
			e.sequence = x.first - 1
		}
	}
	return e, err
}

// Next reads an entry and checks its CRC. It ends, with a fault, at the first
// bytes that are none; zeros to the end of the file are preallocation.
func (e *fileEntries) Next() (bool, error) {
	if e.fault != "" || e.last != 0 && e.sequence >= e.last {
		return false, nil
	}
	const head = len(melin.EntryMagic) + 2
	b, err := e.r.Peek(head)
	if len(b) == 0 && err == io.EOF {
		return false, nil
	}
	if err != nil && err != io.EOF {
		return false, err
	}
	e.at = e.next
	place := " at byte " + wire.Itoa(e.at)
	if len(b) < head || string(b[:2]) != melin.EntryMagic {
		return false, e.rest(place)
	}
	size := len(melin.EntryMagic) + 18 + (int(b[2]) | int(b[3])<<8) + melin.SlotCRCSize
	if cap(e.buf) < size {
		e.buf = make([]byte, size, size+4096)
	}
	e.buf = e.buf[:size]
	if n, err := io.ReadFull(e.r, e.buf); err == io.ErrUnexpectedEOF {
		e.fault = "the last entry" + place + " is cut: " + wire.Itoa(int64(n)) + " of " + wire.Itoa(int64(size)) + " bytes"
		return false, nil
	} else if err != nil {
		return false, err
	}
	if !melin.ParseSlot(e.buf[len(melin.EntryMagic):], melin.ShapeCRC, &e.slot) || !e.slot.CRCValid() {
		e.fault = "the entry" + place + " does not have its CRC-32C"
		return false, nil
	}
	if e.slot.Sequence == 0 || e.slot.Sequence > melin.MaxSequence {
		e.fault = "the entry" + place + " has the sequence " + wire.Utoa(e.slot.Sequence)
		return false, nil
	}
	e.sequence = e.slot.Sequence
	e.next += int64(size)
	return true, nil
}

// rest looks at what is no entry: zeros are none, anything else is a fault.
func (e *fileEntries) rest(place string) error {
	for {
		c, err := e.r.ReadByte()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if c != 0 {
			e.fault = "no entry" + place
			return nil
		}
	}
}
