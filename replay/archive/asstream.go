package archive

// This file shows an archive as the stream that a publisher of it would send:
// handshakes, index entries, segments, clock observations and rows. So what
// reads streams reads archives too, and merging archives follows the very rules
// that merging captures does (docs/merging.md).

import (
	"database/sql/driver"
	"errors"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
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
	found  []wire.Finding
	more   int64 // findings beyond maxStreamFindings
}

// KindTooLarge: a value of an archive that is larger than a frame may be. The
// limit is the wire's and no archive's, but what merges reads frames.
const KindTooLarge = "larger-than-a-frame"

// maxStreamFindings bounds what Findings lists one by one.
const maxStreamFindings = 1000

// piece is a stretch of the stream that can be made alone.
type piece struct {
	off, size int64
	make      func(dst []byte) ([]byte, error)
}

// errEnough ends a query that gave what fits into one piece.
var errEnough = errors.New("enough")

// NewStream lays the stream out: it reads the rows and index entries once, and
// of segments only their sizes. What no frame can carry is left out, and its
// source is not called complete: Findings names it.
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
	s.letGo()
	return nil
}

// keptBytes is the largest piece that is kept once it was read to its end, and
// is made without giving back at once what making it took.
const keptBytes = 16 << 20

// letGo drops a large piece: who reads has its own copy.
func (s *Stream) letGo() {
	if cap(s.buf) > keptBytes {
		s.buf, s.last = nil, -1
		debug.FreeOSMemory()
	}
}

func (s *Stream) put(size int64, mk func(dst []byte) ([]byte, error)) {
	if size > 0 {
		s.pieces = append(s.pieces, piece{s.size, size, mk})
		s.size += size
	}
}

// Findings are what of the archive is not in the stream, places included.
func (s *Stream) Findings() []wire.Finding {
	found := slices.Clone(s.found)
	if s.more > 0 {
		found = append(found, s.tooLarge(wire.Count(s.more, "more value"), "", 0))
	}
	return found
}

// tooLarge is a value that no frame carries. field is its place in the archive.
func (s *Stream) tooLarge(what, field string, size int64) wire.Finding {
	f := wire.Finding{Kind: KindTooLarge, File: wire.SafeText(filepath.Base(s.a.Path), 200), Field: field, Want: "at most " + wire.Count(dendro.MaxFrame, "byte") + " in a frame",
		Message: what + " can't be merged: no frame can carry it", Cost: "it is in that archive alone"}
	if size > 0 {
		f.Got = wire.Count(size, "byte")
	}
	return f
}

func (s *Stream) leaveOut(what, field string, size int64) {
	if len(s.found) >= maxStreamFindings {
		s.more++
		return
	}
	s.found = append(s.found, s.tooLarge(what, field, size))
}

func (s *Stream) source(ordinal uint32, src SourceRow) error {
	left, err := s.tooLargeOf(src)
	if err != nil {
		return err
	}
	hello := dendro.Handshake{Source: ordinal, UUID: []byte(src.UUID), HasUUID: src.HasUUID, Labels: dendro.NewMap(src.Labels),
		Metadata: dendro.NewMap(src.Metadata), ClockAnchorWallNs: src.ClockAnchorWallNs, Complete: src.Complete && !left}
	if size := int64(len(dendro.AppendHandshake(nil, &hello))); size > dendro.MaxFrame+dendro.LenSize {
		s.leaveOut("source \""+wire.SafeText(src.UUID, 80)+"\", whose labels and metadata are too large,", "sources id="+wire.Itoa(src.ID), size)
		return nil
	}
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

// fits is the condition that a row of a table of the archive fits into a frame
// of its own.
func fits(column string) string {
	return " AND octet_length(stream)+octet_length(" + column + ")<=" + strconv.Itoa(dendro.MaxFrame-frameRoom)
}

// frameRoom is what a frame takes beside the name of the stream and the value.
const frameRoom = 64

// tooLargeOf finds the rows and index entries of a source that are left out, and
// says whether there are any, segments included.
func (s *Stream) tooLargeOf(src SourceRow) (left bool, err error) {
	for _, t := range []struct{ table, column, what string }{{"wal", "row", "the row"}, {"caller_rows", "blob", "the index entry"}} {
		q := "SELECT stream, ts, octet_length(" + t.column + ") FROM " + t.table + " WHERE source_id=? AND NOT (1" + fits(t.column) + ")"
		err := s.a.db.Query(q, func(v []driver.Value) error {
			r := record{table: t.table, v: v}
			stream, ts, size := r.text("stream"), r.num("ts"), r.num(t.column)
			left = true
			s.leaveOut(t.what+" of stream \""+wire.SafeText(stream, 80)+"\" at "+wire.Itoa(ts), row(t.table, src.ID, stream, 0)+" ts="+wire.Itoa(ts), size)
			return r.err
		}, src.ID)
		if err != nil {
			return left, s.a.wrap(err)
		}
	}
	err = s.a.Segments(src.ID, func(g SegmentRow) error {
		_, size := segmentFrame(0, g)
		if size <= dendro.MaxFrame+dendro.LenSize {
			return nil
		}
		left = true
		s.leaveOut("segment "+wire.Itoa(g.Seq)+" of stream \""+wire.SafeText(g.Stream, 80)+"\", "+wire.Count(g.Rows, "row")+" from "+
			wire.Itoa(g.FirstTS)+" to "+wire.Itoa(g.LastTS)+",", row("segments", src.ID, g.Stream, g.Seq), g.Length+g.IndexLength)
		return nil
	})
	return left, err
}

// segmentFrame is a segment's frame without its bytes, and how long it is with
// them.
func segmentFrame(ordinal uint32, g SegmentRow) (dendro.Segment, int64) {
	frame := dendro.Segment{Source: ordinal, Stream: []byte(g.Stream), Rows: uint64(g.Rows), FirstTS: g.FirstTS, LastTS: g.LastTS, HasCallerIndex: g.HasIndex}
	return frame, int64(len(dendro.AppendSegment(nil, &frame))) + g.Length + g.IndexLength
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
		frame, size := segmentFrame(ordinal, g)
		if size > dendro.MaxFrame+dendro.LenSize {
			return nil
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
			return dendro.AppendSegment(slices.Grow(dst, int(size)), &frame), nil
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
				if size += len(r.Bytes) + len(r.Stream) + frameRoom; size > dendro.MaxFrame-frameRoom && len(rows) > 0 {
					return errEnough // it fits into a frame of its own
				}
				rows = append(rows, dendro.Row{Stream: []byte(r.Stream), TS: r.TS, WallOffset: r.WallOffset, Row: r.Bytes})
				after = &RowOf{Stream: r.Stream, TS: r.TS}
				if size > pieceBytes {
					return errEnough
				}
				return nil
			})
			if n = len(rows); err != nil && !errors.Is(err, errEnough) || n == 0 {
				return dst, err
			}
			return dendro.AppendRowsOf(slices.Grow(dst, size+frameRoom), ordinal, seq, state, rows), nil
		}
		if err := s.add(mk); err != nil {
			return err
		}
	}
	return nil
}

// Size is the stream's length in bytes.
func (s *Stream) Size() int64 { return s.size }

// Rest lets go of what is held for reading on.
func (s *Stream) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGo()
}

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
			if len(s.buf) > keptBytes {
				debug.FreeOSMemory() // the value that it was made of
			}
		}
		n += copy(p[n:], s.buf[at-s.pieces[i].off:])
		if off+int64(n) == s.pieces[i].off+s.pieces[i].size {
			s.letGo()
		}
	}
	return n, nil
}
