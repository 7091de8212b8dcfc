package replay

// This file is the first pass over several connections: it finds out which of a
// source's connections is the newest, because the rules of docs/merging.md let the
// newest one's rows stay. One connection needs no such pass.

import (
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// surveyor notes the times that each connection carries for each source.
type surveyor struct{ opt segment.Options }

func (surveyor) frame(*connection, wire.Unit, *dendro.Outcome)                    {}
func (surveyor) failed() error                                                    { return nil }
func (surveyor) found(wire.Finding)                                               {}
func (surveyor) gap(*part, uint64, *dendro.Rows, int64)                           {}
func (surveyor) refusedSegment(*part, *dendro.Segment, wire.Finding, int64) error { return nil }
func (surveyor) lost(*connection, *part, Loss)                                    {}
func (surveyor) skipped(*part, *dendro.Rows, int64) error                         { return nil }
func (surveyor) index(*part, *dendro.Index, int64) error                          { return nil }
func (surveyor) update(*part, *dendro.SourceUpdate) error                         { return nil }
func (surveyor) handshake(p *part, h *dendro.Handshake) error                     { return p.open(h) }
func (surveyor) clock(p *part, o *dendro.ClockOffset, _ int64) error              { p.survey.saw(o.TS); return nil }
func (s surveyor) rows(p *part, r *dendro.Rows, _ int64) error {
	for row := range r.All() {
		p.survey.saw(row.TS)
	}
	return nil
}

// segment counts a segment's time only where it is newer than all that was seen
// and its check finds no fault: a last_ts that lies must not make a connection
// the newest.
func (s surveyor) segment(p *part, g *dendro.Segment, off int64) error {
	if p.survey.has && g.LastTS <= p.survey.ts {
		return nil
	}
	a := archive.Segment{Rows: g.Rows, FirstTS: g.FirstTS, LastTS: g.LastTS, Bytes: g.Bytes}
	r := checkSegment(&a, s.opt)
	if len(p.conn.checked) < maxChecked {
		if p.conn.checked == nil {
			p.conn.checked = map[int64]segment.Result{}
		}
		p.conn.checked[off] = r
	}
	if r.Sound() {
		p.survey.saw(g.LastTS)
	}
	return nil
}

// maxChecked is how many results of checks are kept for the second pass.
const maxChecked = 1 << 16
