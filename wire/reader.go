package wire

import (
	"errors"
	"io"
)

// ErrMore is what [Reader.Next] gives on a live input that has no whole unit
// yet: call again when there may be more.
var ErrMore = errors.New("no whole frame yet")

// Ending says how a stream ended as far as its framing tells.
type Ending string

const (
	// EndingClean: at a unit boundary.
	EndingClean Ending = "clean"
	// EndingCut: inside a unit.
	EndingCut Ending = "cut"
	// EndingZeroTail: in zeros that no frame owns.
	EndingZeroTail Ending = "zero-filled-tail"
	// EndingLost: in bytes in which no frame could be found.
	EndingLost Ending = "framing-lost"
)

// ReaderOptions are where a Reader starts and what is known of its input.
type ReaderOptions struct {
	// Offset in the connection of the input's first byte.
	Offset int64
	// Live input may grow: at its end Next gives ErrMore until Finish.
	Live bool
	// Zeros that the input ends in, where known.
	Zeros Zeros
	// MaxUnit is the most bytes of one unit that are held; a larger one is
	// given back with its first MaxUnit bytes. 0 is DefaultMaxUnit.
	MaxUnit int64
}

const (
	// DefaultMaxUnit is dendro's frame limit, the largest of the three
	// protocols, and its length prefix.
	DefaultMaxUnit = 64<<20 + 4
	// firstWindow is how much is read at first, readWindow later.
	firstWindow = 16 << 10
	readWindow  = 1 << 20
)

// Reader reads whole units from input that lies there, such as the files of a
// connection one after the other. It holds one unit at a time, and buffers grow
// with the bytes that are really there, not with what a length claims.
type Reader struct {
	src  io.Reader
	dec  Decoder
	opt  ReaderOptions
	buf  []byte
	r, w int   // buf[r:w] is read and not yet given back
	off  int64 // of buf[r]
	last int   // size of the unit given back last, still in buf
	skip int64 // bytes of it that were not held and are still to be read
	eof  bool
	err  error

	ending   Ending
	junk     int64
	junkKind Finding
	found    []Finding
}

// NewReader reads from src, which starts at opt.Offset of the connection.
func NewReader(src io.Reader, dec Decoder, opt ReaderOptions) *Reader {
	if opt.MaxUnit <= 0 {
		opt.MaxUnit = DefaultMaxUnit
	}
	return &Reader{src: src, dec: dec, opt: opt, off: opt.Offset}
}

// Decoder is the decoder that the reader drives.
func (r *Reader) Decoder() Decoder { return r.dec }

// Offset is the place behind the last unit given back.
func (r *Reader) Offset() int64 { return r.off + int64(r.last) + r.skip }

// Ending is how the stream ended; it is good once Next gave io.EOF.
func (r *Reader) Ending() Ending { return r.ending }

// Finish says that a live input will not grow any more.
func (r *Reader) Finish() { r.opt.Live = false }

// Next gives the next unit and what was found at it; the decoder has observed
// it. Junk is not given back, it becomes a finding. Findings may come with the
// error, also with io.EOF, which is the input's end whatever its Ending. Both
// are good until the next call. The first error that is not ErrMore sticks.
func (r *Reader) Next() (Unit, []Finding, error) {
	r.found = r.found[:0]
	if r.err != nil {
		return Unit{}, nil, r.err
	}
	u, err := r.next()
	if err != nil && err != ErrMore {
		r.err = err
	}
	return u, r.found, err
}

func (r *Reader) next() (Unit, error) {
	r.r += r.last
	r.off += int64(r.last)
	r.last = 0
	if err := r.skipRest(); err != nil {
		return Unit{}, err
	}
	for {
		if r.inZeros(r.off) {
			return Unit{}, r.zeroTail(r.off)
		}
		have, end := r.buf[r.r:r.w], r.eof && !r.opt.Live
		if len(have) == 0 && !end {
			if _, err := r.fill(1); err != nil {
				return Unit{}, err
			}
			continue
		}
		h := r.dec.Head(have, end)
		switch h.Type {
		case UnitMore:
			h.Size = max(h.Size, int64(len(have))+1)
			more, err := r.fill(h.Size)
			if err != nil {
				return Unit{}, err
			}
			if !more && end {
				return Unit{}, r.cut(h)
			}
			continue
		case UnitLost:
			return Unit{}, r.lost(h)
		case UnitJunk:
			n := r.beforeZeros(min(max(h.Size, 1), int64(len(have))))
			if n == 0 {
				return Unit{}, r.cut(h)
			}
			have = r.buf[r.r:r.w]
			r.startJunk(h)
			u := Unit{Type: UnitJunk, Offset: r.off, Size: n, Bytes: have[:n]}
			seen := len(r.found)
			r.found = r.dec.Observe(u, r.found)
			InUnit(u, r.found[seen:])
			r.junk += n
			r.r += int(n)
			r.off += n
			continue
		}
		want := min(h.Size, r.opt.MaxUnit)
		if int64(len(have)) < want {
			more, err := r.fill(want)
			if err != nil {
				return Unit{}, err
			}
			if !more && end {
				return Unit{}, r.cut(h)
			}
			continue
		}
		r.endJunk()
		u := Unit{Type: h.Type, Offset: r.off, Size: h.Size, Kind: h.Kind, Bytes: have[:want:want]}
		if p, doubt := r.doubtful(u); doubt {
			return Unit{}, r.zeroTail(p)
		}
		// The question above may have moved the buffer.
		u.Bytes = r.buf[r.r : r.r+int(want) : r.r+int(want)]
		r.last = int(want)
		r.skip = h.Size - want
		seen := len(r.found)
		r.found = r.dec.Observe(u, r.found)
		InUnit(u, r.found[seen:])
		return u, nil
	}
}

// inZeros says that a zero-filled tail begins at off.
func (r *Reader) inZeros(off int64) bool {
	if !r.opt.Zeros.At(off, off+minZeros) {
		return false
	}
	more, err := r.fill(minZeros)
	return err == nil && more
}

// beforeZeros is how many of n bytes of junk lie before a zero-filled tail.
func (r *Reader) beforeZeros(n int64) int64 {
	k := r.opt.Zeros.Junk(r.off, n, r.off+n+minZeros)
	if k == n {
		return n
	}
	if more, err := r.fill(k + minZeros); err != nil || !more {
		return n
	}
	return k
}

// doubtful says that u reaches into a zero-filled tail, which begins at p.
func (r *Reader) doubtful(u Unit) (p int64, doubt bool) {
	p, doubt = r.opt.Zeros.Into(u, u.End()+1)
	if !doubt {
		return 0, false
	}
	more, err := r.fill(int64(len(u.Bytes)) + 1)
	return p, err == nil && more
}

func (r *Reader) zeroTail(from int64) error {
	r.endJunk()
	start := r.off
	n, err := r.drain()
	if err != nil {
		return err
	}
	r.found = append(r.found, r.opt.Zeros.Found(start, from, start+n)...)
	r.ending = EndingZeroTail
	return io.EOF
}

func (r *Reader) cut(h Head) error {
	have := int64(r.w - r.r)
	if p, zeros := r.opt.Zeros.Cut(h, r.off, r.off+have); zeros {
		return r.zeroTail(p)
	}
	wasJunk := r.junk > 0
	r.endJunk()
	r.ending = EndingClean
	if have == 0 && h.Finding != nil {
		f := *h.Finding
		f.Offset += r.off
		r.found = append(r.found, f)
		r.ending = EndingCut
	} else if have > 0 {
		r.found = append(r.found, CutUnit(h, r.off, have))
		r.ending = EndingCut
		r.off += have
		r.r = r.w
	} else if wasJunk {
		inVain(&r.found[len(r.found)-1])
		r.ending = EndingLost
	}
	return io.EOF
}

func (r *Reader) lost(h Head) error {
	r.startJunk(h)
	n, err := r.drain()
	if err != nil {
		return err
	}
	r.junk += n
	r.endJunk()
	r.ending = EndingLost
	return io.EOF
}

func (r *Reader) startJunk(h Head) {
	if r.junk == 0 {
		r.junkKind = Finding{}
		if h.Finding != nil {
			r.junkKind = *h.Finding
		}
	}
}

func (r *Reader) endJunk() {
	if r.junk > 0 {
		r.found = append(r.found, SteppedOver(r.junkKind, r.off-r.junk, r.junk))
		r.junk = 0
	}
}

// drain reads to the end and gives how many bytes that were.
func (r *Reader) drain() (int64, error) {
	n := int64(r.w - r.r)
	for {
		r.off += int64(r.w - r.r)
		r.r, r.w = 0, 0
		more, err := r.fill(1)
		if err == ErrMore {
			// Lost on a live input: what comes later is lost as well.
			return n, nil
		}
		if err != nil || !more {
			return n, err
		}
		n += int64(r.w)
	}
}

// skipRest passes what was left of a unit larger than MaxUnit.
func (r *Reader) skipRest() error {
	for r.skip > 0 {
		if r.r == r.w {
			more, err := r.fill(1)
			if err != nil {
				return err
			}
			if !more {
				f := Cut(r.off, 0, r.skip, "frame")
				r.found = append(r.found, f)
				r.ending = EndingCut
				return io.EOF
			}
		}
		n := min(int64(r.w-r.r), r.skip)
		r.r += int(n)
		r.off += n
		r.skip -= n
	}
	return nil
}

// fill reads until n bytes are held. more is false when the input ends before.
func (r *Reader) fill(n int64) (more bool, err error) {
	empty := 0
	for int64(r.w-r.r) < n {
		if r.eof && !r.opt.Live {
			return false, nil
		}
		r.room(n)
		m, err := r.src.Read(r.buf[r.w:])
		r.w += m
		r.eof = err == io.EOF
		switch {
		case err != nil && err != io.EOF:
			return false, err
		case r.eof && m == 0 && r.opt.Live:
			r.eof = false
			return false, ErrMore
		case m == 0 && !r.eof:
			if empty++; empty > 100 {
				return false, io.ErrNoProgress
			}
		}
	}
	return true, nil
}

// room makes place for reading towards n held bytes. The buffer doubles with
// the bytes that came, so that neither a length alone nor a short input
// allocates much.
func (r *Reader) room(n int64) {
	if r.r == r.w {
		r.r, r.w = 0, 0
	}
	if r.w < len(r.buf) {
		return
	}
	buf, size := r.buf, len(r.buf)
	if size < readWindow {
		size = max(firstWindow, 4*size)
	}
	if n > int64(size) {
		size = max(size, int(min(2*int64(len(buf)), n)))
	}
	if size > len(buf) {
		buf = make([]byte, size)
	}
	r.w = copy(buf, r.buf[r.r:r.w])
	r.r = 0
	r.buf = buf
}
