package shadow

// This file is one container's shadow: a sparse file, which of its bytes were
// written, and where two chunks disagree.

import (
	"container/list"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
)

// Limits on what chunks may ask for.
const (
	// MaxShadowSize is the largest offset that a shadow is written to. Files
	// are sparse, but an offset is only a number that a peer sent.
	MaxShadowSize = 1 << 40
	// MaxShadows is how many containers get a shadow.
	MaxShadows = 10_000
	// MaxExtents is how many separate stretches one shadow may have, and
	// MaxAllExtents all of them together.
	MaxExtents    = 1 << 16
	MaxAllExtents = 1 << 20
	// MaxOverlaps is how many differing overlaps of one shadow are listed; all
	// are counted.
	MaxOverlaps = 1_000
	// openFiles is how many shadows are open at a time.
	openFiles = 64
	// compareBytes is how much of a shadow is read at a time.
	compareBytes = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// containerKey names a shadow.
type containerKey struct{ tenant, container uint64 }

// name is the shadow's file name: numbers only, whatever was sent.
func (k containerKey) name() string {
	return "tenant-" + strconv.FormatUint(k.tenant, 10) + "-container-" + strconv.FormatUint(k.container, 10)
}

// extent is a stretch of a shadow that chunks of one epoch wrote.
type extent struct {
	from, to uint64 // to excluded
	epoch    uint64
}

// overlap is a stretch that two chunks filled differently. frame is the later
// chunk's; the one that stays is the one of the newer epoch, of equal ones the
// later.
type overlap struct {
	from, to uint64 // first differing byte to behind the last
	bytes    int64  // how many of them differ
	frame    int64
	replaced bool // the later chunk's bytes stay
}

type container struct {
	key     containerKey
	path    string
	file    *os.File
	open    *list.Element
	extents []extent // in order, not overlapping
	written int64    // bytes, chunks all together
	chunks  int64
	refused int64
	overlap []overlap
	// overlaps counts them all.
	overlaps int64
}

// end is the length of the shadow.
func (c *container) end() uint64 {
	if n := len(c.extents); n > 0 {
		return c.extents[n-1].to
	}
	return 0
}

// held is how many bytes of a range the shadow has.
func (c *container) held(from, to uint64) (n uint64) {
	i := sort.Search(len(c.extents), func(i int) bool { return c.extents[i].to > from })
	for ; i < len(c.extents) && c.extents[i].from < to; i++ {
		n += min(to, c.extents[i].to) - max(from, c.extents[i].from)
	}
	return n
}

// bytes is how many bytes the shadow has.
func (c *container) bytes() (n int64) {
	for _, e := range c.extents {
		n += int64(e.to - e.from)
	}
	return n
}

// span is a range of bytes, to excluded.
type span struct{ from, to uint64 }

// holes are the ranges before the end that no chunk filled.
func (c *container) holes() (all []span) {
	var at uint64
	for _, e := range c.extents {
		if e.from > at {
			all = append(all, span{at, e.from})
		}
		at = e.to
	}
	return all
}

// containers are all shadows of a build.
type containers struct {
	dir     string
	all     map[containerKey]*container
	opened  *list.List // of *container, the one used last in front
	extents int
	buf     []byte
}

func newContainers(dir string) *containers {
	return &containers{dir: dir, all: map[containerKey]*container{}, opened: list.New()}
}

// errLimit is why a chunk is not written.
type errLimit struct{ what, want, got string }

func (e *errLimit) Error() string { return e.what }

// get finds a container's shadow, or starts one.
func (s *containers) get(k containerKey) (*container, error) {
	c := s.all[k]
	if c != nil {
		return c, nil
	}
	if len(s.all) >= MaxShadows {
		return nil, &errLimit{"more containers than get a shadow", "at most " + strconv.Itoa(MaxShadows), "another"}
	}
	c = &container{key: k, path: filepath.Join(s.dir, k.name()+".shadow")}
	f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting a shadow: %w", err)
	}
	s.all[k] = c
	return c, s.use(c, f)
}

// use makes sure that a shadow's file is open, and closes one that was not used
// for longest where too many are.
func (s *containers) use(c *container, f *os.File) error {
	if c.file != nil {
		s.opened.MoveToFront(c.open)
		return nil
	}
	if f == nil {
		var err error
		if f, err = os.OpenFile(c.path, os.O_RDWR, 0); err != nil {
			return fmt.Errorf("opening a shadow: %w", err)
		}
	}
	c.file, c.open = f, s.opened.PushFront(c)
	if s.opened.Len() <= openFiles {
		return nil
	}
	return s.shut(s.opened.Back().Value.(*container))
}

func (s *containers) shut(c *container) error {
	s.opened.Remove(c.open)
	f := c.file
	c.file, c.open = nil, nil
	// Synced here, since nobody opens it again only to sync it.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("closing a shadow: %w", err)
	}
	return nil
}

// close closes every file, synced.
func (s *containers) close() error {
	var errs []error
	for s.opened.Len() > 0 {
		errs = append(errs, s.shut(s.opened.Back().Value.(*container)))
	}
	return errors.Join(errs...)
}

// write puts a chunk's bytes into a shadow. Where bytes are there already, those
// of the newer epoch stay, of equal epochs the later ones.
func (s *containers) write(c *container, from uint64, data []byte, epoch uint64, frame int64) error {
	if from > MaxShadowSize || uint64(len(data)) > MaxShadowSize-from {
		c.refused++
		return &errLimit{"an offset beyond the largest shadow", "at most " + strconv.Itoa(MaxShadowSize), strconv.FormatUint(from, 10)}
	}
	if len(data) == 0 {
		c.chunks++
		return nil
	}
	to := from + uint64(len(data))
	first := sort.Search(len(c.extents), func(i int) bool { return c.extents[i].to > from })
	last := first
	for last < len(c.extents) && c.extents[last].from < to {
		last++
	}
	// At most one piece before, one behind, and a hole and an overlap for each.
	if grow := 2*(last-first) + 3; len(c.extents)+grow > MaxExtents || s.extents+grow > MaxAllExtents {
		c.refused++
		return &errLimit{"the shadow is in more pieces than are followed", "at most " + strconv.Itoa(MaxExtents) + " pieces, " + strconv.Itoa(MaxAllExtents) + " in all shadows", "more"}
	}
	if err := s.use(c, nil); err != nil {
		return err
	}
	before := len(c.extents)
	var pieces []extent
	at := from
	for _, e := range c.extents[first:last] {
		lo, hi := max(e.from, from), min(e.to, to)
		if e.from < from {
			pieces = append(pieces, extent{e.from, from, e.epoch})
		}
		if at < lo {
			if err := c.put(at, data[at-from:lo-from]); err != nil {
				return err
			}
			pieces = append(pieces, extent{at, lo, epoch})
		}
		stays, err := s.overlapped(c, lo, data[lo-from:hi-from], epoch >= e.epoch, frame)
		if err != nil {
			return err
		}
		if stays {
			pieces = append(pieces, extent{lo, hi, max(epoch, e.epoch)})
		} else {
			pieces = append(pieces, extent{lo, hi, e.epoch})
		}
		if e.to > to {
			pieces = append(pieces, extent{to, e.to, e.epoch})
		}
		at = hi
	}
	if at < to {
		if err := c.put(at, data[at-from:]); err != nil {
			return err
		}
		pieces = append(pieces, extent{at, to, epoch})
	}
	c.replace(first, last, pieces)
	s.extents += len(c.extents) - before
	c.chunks++
	c.written += int64(len(data))
	return nil
}

// replace puts pieces in place of extents first to last, and joins what touches
// and is of one epoch.
func (c *container) replace(first, last int, pieces []extent) {
	if first > 0 {
		first--
		pieces = slices.Insert(pieces, 0, c.extents[first])
	}
	if last < len(c.extents) {
		pieces = append(pieces, c.extents[last])
		last++
	}
	joined := pieces[:1]
	for _, p := range pieces[1:] {
		if l := &joined[len(joined)-1]; l.to == p.from && l.epoch == p.epoch {
			l.to = p.to
		} else {
			joined = append(joined, p)
		}
	}
	c.extents = slices.Replace(c.extents, first, last, joined...)
}

func (c *container) put(at uint64, data []byte) error {
	if _, err := c.file.WriteAt(data, int64(at)); err != nil {
		return fmt.Errorf("writing a shadow at %d: %w", at, err)
	}
	return nil
}

// overlapped compares bytes with those that are there, notes where they differ,
// and writes them where the newer stay. stays says that they are the ones that
// are there now.
func (s *containers) overlapped(c *container, at uint64, data []byte, newer bool, frame int64) (stays bool, err error) {
	if s.buf == nil {
		s.buf = make([]byte, compareBytes)
	}
	o := overlap{frame: frame, replaced: newer}
	for done := 0; done < len(data); {
		part := s.buf[:min(len(s.buf), len(data)-done)]
		if _, err := c.file.ReadAt(part, int64(at)+int64(done)); err != nil {
			return false, fmt.Errorf("reading a shadow at %d: %w", at, err)
		}
		for i, b := range part {
			if b == data[done+i] {
				continue
			}
			place := at + uint64(done+i)
			if o.bytes == 0 {
				o.from = place
			}
			o.to = place + 1
			o.bytes++
		}
		done += len(part)
	}
	if o.bytes == 0 {
		return newer, nil
	}
	c.overlaps++
	if len(c.overlap) < MaxOverlaps {
		c.overlap = append(c.overlap, o)
	}
	if !newer {
		return false, nil
	}
	return true, c.put(at, data)
}

// sum is the CRC-32C of a range as it is in the file.
func (c *container) sum(r io.ReaderAt, from, to uint64, buf []byte) (crc uint32, err error) {
	for from < to {
		part := buf[:min(uint64(len(buf)), to-from)]
		if _, err := r.ReadAt(part, int64(from)); err != nil {
			return 0, fmt.Errorf("reading %s at %d: %w", filepath.Base(c.path), from, err)
		}
		crc = crc32.Update(crc, castagnoli, part)
		from += uint64(len(part))
	}
	return crc, nil
}

// disputed says that a range may hold bytes of another chunk than one that
// covers it: a listed overlap lies in it, or not all of them are listed.
func (c *container) disputed(from, to uint64) bool {
	return c.overlaps > int64(len(c.overlap)) ||
		slices.ContainsFunc(c.overlap, func(o overlap) bool { return o.from < to && from < o.to })
}
