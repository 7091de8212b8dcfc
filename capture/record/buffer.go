package record

// This file is the buffer between the network and the disk, for one connection.

import (
	"sync"
	"time"

	"wiretape/capture"
)

const (
	// A connection starts with small chunks and takes large ones once a read
	// fills most of a small one, until a large one took many reads to fill:
	// 200 quiet connections cost little, one fast one reads much at a time.
	smallChunk = 32 << 10
	largeChunk = 512 << 10
	manyReads  = 16
	// minRead is the least room at a chunk's end that is worth a read.
	minRead = 4 << 10
	// maxMarks is how many reads one chunk holds.
	maxMarks = 1024
	// MinBuffer is the least limit of a buffer: two large chunks.
	MinBuffer = 2 * largeChunk
)

var (
	smallChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, largeChunk)} }}
)

// chunk is a piece of memory that reads fill one behind the other.
type chunk struct {
	buf   []byte
	r, w  int // buf[r:w] waits to be written
	marks []mark
	first int // of the marks that wait
}

// mark is where one read ends in its chunk, and when it came.
type mark struct {
	end int
	at  capture.Instant
}

func (c *chunk) recycle() {
	c.r, c.w, c.first, c.marks = 0, 0, 0, c.marks[:0]
	if len(c.buf) == largeChunk {
		largeChunks.Put(c)
	} else {
		smallChunks.Put(c)
	}
}

// buffer lies between the network and the disk: one goroutine reads into it,
// another writes out of it, and a bounded number of bytes lies between. A
// reader that finds it full waits, and how long is counted.
type buffer struct {
	limit int64

	mu     sync.Mutex
	chunks []*chunk
	held   int64 // bytes of memory in chunks
	large  bool  // reads have filled a chunk
	ended  bool  // no more will come
	broken bool  // nobody takes any more
	stall  time.Duration
	since  time.Time // of the wait for room that goes on, zero without one
	high   int64     // the most bytes that ever waited
	wait   int64     // bytes that wait

	ready chan struct{} // something came
	room  chan struct{} // something went
}

func newBuffer(limit int64) *buffer {
	return &buffer{limit: max(limit, MinBuffer), ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reserve gives room for one read, which is the caller's until commit. It waits
// while the buffer is full; nil says that the buffer is broken.
func (b *buffer) reserve() []byte {
	for {
		p, full := b.tryReserve()
		if !full {
			return p
		}
		<-b.room
	}
}

// tryReserve is reserve without the wait: full says that one would be needed.
// The wait is counted from the first such answer to the next other.
func (b *buffer) tryReserve() (p []byte, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return nil, false
	}
	if n := len(b.chunks); n > 0 {
		c := b.chunks[n-1]
		if len(c.buf)-c.w >= minRead && len(c.marks) < maxMarks {
			return c.buf[c.w:], false
		}
	}
	size := int64(smallChunk)
	if b.large {
		size = largeChunk
	}
	if b.held+size > b.limit {
		if b.since.IsZero() {
			b.since = time.Now()
		}
		return nil, true
	}
	if !b.since.IsZero() {
		b.stall += time.Since(b.since)
		b.since = time.Time{}
	}
	b.held += size
	var c *chunk
	if b.large {
		c = largeChunks.Get().(*chunk)
	} else {
		c = smallChunks.Get().(*chunk)
	}
	b.chunks = append(b.chunks, c)
	return c.buf, false
}

// commit hands over the first n bytes of what reserve gave.
func (b *buffer) commit(n int, at capture.Instant) {
	if n <= 0 {
		return
	}
	b.mu.Lock()
	if b.broken {
		b.mu.Unlock()
		return
	}
	c := b.chunks[len(b.chunks)-1]
	c.w += n
	c.marks = append(c.marks, mark{c.w, at})
	if c.w == len(c.buf) {
		b.large = n >= smallChunk/2 || b.large && len(c.marks) < manyReads
	}
	b.wait += int64(n)
	b.high = max(b.high, b.wait)
	b.mu.Unlock()
	poke(b.ready)
}

// end says that no more will come.
func (b *buffer) end() {
	b.mu.Lock()
	b.ended = true
	b.since = time.Time{} // nobody waits for room any more
	b.mu.Unlock()
	poke(b.ready)
}

// giveUp says that nobody takes any more: what waits is dropped, and the reader
// is let go. It gives how many bytes waited.
func (b *buffer) giveUp() int64 {
	b.mu.Lock()
	b.broken = true
	n := b.wait
	b.wait, b.held, b.chunks = 0, 0, nil
	b.mu.Unlock()
	poke(b.room)
	return n
}

// take gives the oldest bytes that wait and the marks of their reads, both good
// until release. Nothing comes back when nothing waits; end then says that
// nothing will.
func (b *buffer) take() (p []byte, from int, marks []mark, end bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.chunks) == 0 {
		return nil, 0, nil, b.ended
	}
	c := b.chunks[0]
	if c.r == c.w {
		return nil, 0, nil, b.ended
	}
	return c.buf[c.r:c.w], c.r, c.marks[c.first:len(c.marks):len(c.marks)], false
}

// release says that the first n bytes of what take gave are done, which end at
// a mark.
func (b *buffer) release(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return
	}
	c := b.chunks[0]
	c.r += n
	b.wait -= int64(n)
	for c.first < len(c.marks) && c.marks[c.first].end <= c.r {
		c.first++
	}
	last := len(b.chunks) == 1
	if c.r < c.w || last && !b.ended && len(c.buf)-c.w >= minRead && len(c.marks) < maxMarks {
		// Its reader may be reading into the rest of it right now.
		return
	}
	if last {
		b.chunks = b.chunks[:0]
	} else {
		b.chunks = append(b.chunks[:0], b.chunks[1:]...)
	}
	b.held -= int64(len(c.buf))
	c.recycle()
	poke(b.room)
}

// usage is for status: bytes that wait now and at most, and the time in which a
// reader found no room.
func (b *buffer) usage() (wait, high int64, stalled time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stalled = b.stall
	if !b.since.IsZero() {
		stalled += time.Since(b.since)
	}
	return b.wait, b.high, stalled
}
