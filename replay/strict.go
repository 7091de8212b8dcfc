package replay

// This file is --strict: the rebuild ends at the first thing that the crate's
// subscriber would refuse, with its verdict (interop compares it with
// the crate's own).

import (
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// KindRefused is the verdict of --strict on a sound frame.
const KindRefused = "crate-refuses"

// refusedKinds are the findings of the decoder at which the crate stops.
var refusedKinds = map[string]bool{
	wire.KindMalformed: true, wire.KindBadLength: true, wire.KindBadPreamble: true, wire.KindBadVersion: true,
	dendro.KindUnknownOrdinal: true, dendro.KindSegmentNoRows: true, dendro.KindSegmentSpan: true,
}

// crateStream is what the crate's subscriber knows of one stream on one
// connection: the newest sealed row and the oldest row above it.
type crateStream struct {
	sealed, live       int64
	hasSealed, hasLive bool
}

func (b *builder) crateStream(p *part, stream string) *crateStream {
	if p.crate == nil {
		p.crate = map[string]*crateStream{}
	}
	c := p.crate[stream]
	if c == nil {
		c = &crateStream{}
		p.crate[stream] = c
	}
	return c
}

// strictRow follows a row: the crate drops it at the watermark, or has it live.
func (b *builder) strictRow(p *part, stream string, ts int64) {
	c := b.crateStream(p, stream)
	if c.hasSealed && ts <= c.sealed {
		return
	}
	if !c.hasLive || ts < c.live {
		c.live, c.hasLive = ts, true
	}
}

// strictSegment is rule 4.
func (b *builder) strictSegment(p *part, s *dendro.Segment, off int64) error {
	c := b.crateStream(p, b.intern(s.Stream))
	refuse := func(message, want, got string) error {
		f := p.conn.locate(wire.Finding{Kind: KindRefused, Offset: off, Want: want, Got: got,
			Message: "the crate refuses this segment of stream " + quote(string(s.Stream)) + ": " + message})
		b.found(f)
		return &RefusedError{Finding: f}
	}
	switch {
	case c.hasSealed && s.LastTS <= c.sealed:
		return nil // held already
	case c.hasSealed && s.FirstTS <= c.sealed:
		return refuse("it straddles the stream's newest sealed row", "first_ts above "+wire.Itoa(c.sealed), wire.Itoa(s.FirstTS))
	case c.hasLive && c.live <= s.LastTS:
		return refuse("it reaches over a live row", "last_ts below "+wire.Itoa(c.live), wire.Itoa(s.LastTS))
	}
	c.sealed, c.hasSealed = s.LastTS, true
	return nil
}
