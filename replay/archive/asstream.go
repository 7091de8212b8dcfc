package archive

// This file shows an archive as the stream that a publisher of it would send:
// handshakes, index entries, segments, clock observations and rows. So what
// reads streams reads archives too, and merging archives follows the very rules
// that merging captures does (merge.md).

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// pieceItems and pieceBytes bound what is made at a time of rows, index
	// entries and clock observations.
	pieceItems = 4096
	pieceBytes = 1 << 20
)

// anyIndex is the state that index entries and rows of a source share, so that
// no row is taken for one of another index: an archive keeps no states.
var anyIndex = dendro.State{1, 1}

// Stream is an archive as a stream of dendro frames, made as it is read. The
// same contents, in the same order of sources, give the same bytes.
type Stream struct {
	mu     sync.Mutex
	a      *Archive
	pieces []piece
	size   int64
	last   int // the piece in buf, -1 for none
	buf    []byte
}

// piece is a stretch of the stream that can be made alone.
type piece struct {
	off, size int64
	make      func(dst []byte) ([]byte, error)
}

// errEnough ends a query that gave what fits into one piece.
var errEnough = errors.New("enough")

// NewStream lays the stream out: it reads the rows and index entries once, and
// of segments only their sizes.
func NewStream(a *Archive) (*Stream, error) {
	s := &Stream{a: a, last: -1}
	sources, err := a.Sources()
	if err != nil {
		return nil, err
	}
	if err := s.add(func(dst []byte) ([]byte, error) { return dendro.AppendPreamble(dst), nil }); err != nil {
		return nil, err
	}
	for i, src := range sources {
		if err := s.source(uint32(i), src); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add puts a piece behind the others; it is made once to learn its size.
func (s *Stream) add(mk func(dst []byte) ([]byte, error)) error {
	b, err := mk(s.buf[:0])
	if err != nil {
		return err
	}
	s.buf = b
	s.put(int64(len(b)), mk)
	return nil
}

func (s *Stream) put(size int64, mk func(dst []byte) ([]byte, error)) {
	if size > 0 {
		s.pieces = append(s.pieces, piece{s.size, size, mk})
		s.size += size
	}
}

func (s *Stream) source(ordinal uint32, src SourceRow) error {
	hello := dendro.Handshake{Source: ordinal, UUID: []byte(src.UUID), HasUUID: src.HasUUID, Labels: dendro.NewMap(src.Labels),
		Metadata: dendro.NewMap(src.Metadata), ClockAnchorWallNs: src.ClockAnchorWallNs, Complete: src.Complete}
	if err := s.add(func(dst []byte) ([]byte, error) { return dendro.AppendHandshake(dst, &hello), nil }); err != nil {
		return err
	}
	state, err := s.entries(ordinal, src.ID)
	if err != nil {
		return err
	}
	if err := s.segments(ordinal, src.ID); err != nil {
		return err
	}
	if err := s.clocks(ordinal, src.ID); err != nil {
		return err
	}
	return s.rows(ordinal, src.ID, state)
}

func (s *Stream) entries(ordinal uint32, id int64) (dendro.State, error) {
	state := dendro.State{}
	for after, n := int64(first), 1; n > 0; {
		from, kind := after, dendro.IndexDelta
		if state == (dendro.State{}) {
			kind = dendro.IndexFull
		}
		n = 0
		mk := func(dst []byte) ([]byte, error) {
			n = 0
			kind := kind
			start := len(dst)
			err := s.a.entriesAfter(id, from, pieceItems, func(e EntryOf) error {
				dst = dendro.AppendIndex(dst, &dendro.Index{Source: ordinal, Stream: []byte(e.Stream), TS: e.TS, Kind: kind, State: anyIndex, Blob: e.Blob})
				kind = dendro.IndexDelta
				after = e.rowid
				n++
				if len(dst)-start > pieceBytes {
					return errEnough
				}
				return nil
			})
			if errors.Is(err, errEnough) {
				err = nil
			}
			return dst, err
		}
		if err := s.add(mk); err != nil {
			return state, err
		}
		if n > 0 {
			state = anyIndex
		}
	}
	return state, nil
}

func (s *Stream) segments(ordinal uint32, id int64) error {
	return s.a.Segments(id, func(g SegmentRow) error {
		frame := dendro.Segment{Source: ordinal, Stream: []byte(g.Stream), Rows: uint64(g.Rows), FirstTS: g.FirstTS, LastTS: g.LastTS, HasCallerIndex: g.HasIndex}
		size := int64(len(dendro.AppendSegment(nil, &frame))) + g.Length + g.IndexLength
		if size > dendro.MaxFrame+dendro.LenSize {
			return fmt.Errorf("segment %d of stream \"%s\" has %d bytes, more than a frame can hold", g.Seq, wire.SafeText(g.Stream, 80), g.Length)
		}
		s.put(size, func(dst []byte) ([]byte, error) {
			b, err := s.a.SegmentBytes(g)
			if err != nil {
				return dst, err
			}
			frame := frame
			frame.Bytes = b
			if g.HasIndex {
				if frame.CallerIndex, err = s.a.CallerIndex(g); err != nil {
					return dst, err
				}
			}
			return dendro.AppendSegment(dst, &frame), nil
		})
		return nil
	})
}

func (s *Stream) clocks(ordinal uint32, id int64) error {
	for next, more := int64(first), true; more; {
		from := next
		mk := func(dst []byte) ([]byte, error) {
			n := 0
			more = false
			err := s.a.clocksFrom(id, from, pieceItems+1, func(ts, offset int64) error {
				if n++; n > pieceItems {
					next, more = ts, true
					return nil
				}
				dst = dendro.AppendClockOffset(dst, &dendro.ClockOffset{Source: ordinal, TS: ts, OffsetNs: offset})
				return nil
			})
			return dst, err
		}
		if err := s.add(mk); err != nil {
			return err
		}
	}
	return nil
}

// rows puts every row of `wal` into the stream, also one that readers can't
// see: what becomes of it is for the rules to say.
func (s *Stream) rows(ordinal uint32, id int64, state dendro.State) error {
	var after *RowOf
	for seq, n := uint64(0), 1; n > 0; seq++ {
		from, seq := after, seq
		n = 0
		mk := func(dst []byte) ([]byte, error) {
			var rows []dendro.Row
			size := 0
			err := s.a.rowsAfter(id, from, pieceItems, func(r RowOf) error {
				rows = append(rows, dendro.Row{Stream: []byte(r.Stream), TS: r.TS, WallOffset: r.WallOffset, Row: slices.Clone(r.Bytes)})
				after = &RowOf{Stream: r.Stream, TS: r.TS}
				if size += len(r.Bytes); size > pieceBytes {
					return errEnough
				}
				return nil
			})
			if n = len(rows); err != nil && !errors.Is(err, errEnough) || n == 0 {
				return dst, err
			}
			frame := dendro.NewRows(ordinal, seq, state, rows)
			return dendro.AppendRows(dst, &frame), nil
		}
		if err := s.add(mk); err != nil {
			return err
		}
	}
	return nil
}

// Size is the stream's length in bytes.
func (s *Stream) Size() int64 { return s.size }

// ReadAt gives bytes of the stream. Reading on from where the last call ended is
// cheap.
func (s *Stream) ReadAt(p []byte, off int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	for n < len(p) {
		at := off + int64(n)
		if at >= s.size {
			return n, io.EOF
		}
		i := sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].off+s.pieces[i].size > at })
		if i != s.last {
			s.last = -1
			if s.buf, err = s.pieces[i].make(s.buf[:0]); err != nil {
				return n, err
			}
			if int64(len(s.buf)) != s.pieces[i].size {
				return n, s.a.wrap(ErrChanged)
			}
			s.last = i
		}
		n += copy(p[n:], s.buf[at-s.pieces[i].off:])
	}
	return n, nil
}
