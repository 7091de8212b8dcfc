package dendro

// This file reads what the first bytes of a frame tell of it: a connection that
// is cut ends inside a frame, and whether what it held is to be found elsewhere
// can be asked by what is there of it.

import (
	"wiretape/wire"
)

// Partial is what the first bytes of a frame tell. A member is only good where
// its Has says so.
type Partial struct {
	// Kind is 0 where its byte is not there; no kind has that number.
	Kind      uint32
	Source    uint32
	HasSource bool
	// UUID is a Handshake's.
	UUID    []byte
	HasUUID bool
	// Stream of an Index or a Segment.
	Stream    []byte
	HasStream bool
	// First and Last are the span of a Segment, and one time of an Index, a
	// ClockOffset or a SourceUpdate.
	First, Last int64
	HasTime     bool
	// Count is how many rows a Segment claims or a Rows frame has.
	Count    uint64
	HasCount bool
	// Bytes is how long a Segment's bytes are.
	Bytes    int64
	HasBytes bool
	// Seq of a Rows frame, and the rows of it that are whole.
	Seq    uint64
	HasSeq bool
	Rows   Rows
}

// Fragment reads what b, the first bytes of a frame at off, tell of it, up to
// the first field that is not there or does not decode.
func Fragment(b []byte, off int64) (p Partial) {
	if len(b) < frameHead {
		return p
	}
	p.Kind = uint32(b[LenSize])
	// Nothing is asked of the frame's own end: all of its fields end somewhere.
	c := cursor{b: b, size: LenSize + MaxFrame, off: off, kind: p.Kind, p: frameHead, quiet: true}
	good := func() bool { return !c.short && c.fault == nil }
	if KindName(p.Kind) == "" {
		return p
	}
	if p.Source = c.u32("source"); !good() {
		return p
	}
	p.HasSource = true
	one := func(ts int64) {
		if good() {
			p.First, p.Last, p.HasTime = ts, ts, true
		}
	}
	switch p.Kind {
	case KindHandshake:
		uuid, has := c.opt("uuid", true)
		p.UUID, p.HasUUID = uuid, has && good()
	case KindIndex:
		if p.Stream = c.str("stream"); good() {
			p.HasStream = true
			one(c.i64("ts", wire.TypeTime))
		}
	case KindClockOffset, KindSourceUpdate:
		one(c.i64("ts", wire.TypeTime))
	case KindSegment:
		p.segment(&c, good)
	case KindRows:
		p.rows(&c, good)
	}
	return p
}

func (p *Partial) segment(c *cursor, good func() bool) {
	if p.Stream = c.str("stream"); !good() {
		return
	}
	p.HasStream = true
	if p.Count = c.u64("rows"); !good() {
		return
	}
	p.HasCount = true
	p.First = c.i64("first_ts", wire.TypeTime)
	if p.Last = c.i64("last_ts", wire.TypeTime); !good() {
		return
	}
	p.HasTime = true
	n := c.u32("bytes")
	p.Bytes, p.HasBytes = int64(n), good()
}

func (p *Partial) rows(c *cursor, good func() bool) {
	p.Rows.Source = p.Source
	if p.Seq = c.u64("seq"); !good() {
		return
	}
	p.HasSeq = true
	p.Rows.Seq, p.Rows.IndexState = p.Seq, c.state("index_state")
	count := c.u32("count")
	if !good() {
		return
	}
	p.Count, p.HasCount = uint64(count), true
	if c.p+minRow > len(c.b) {
		return
	}
	at := c.p
	end, n, _ := soundRows(c.b, c.p, count)
	p.Rows.Count, p.Rows.records, p.Rows.at = n, c.b[at:end:end], c.off+int64(at)
}
