package replay

// This file reads one connection: its runs in order, unit by unit, with the
// ordinals resolved to sources.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// visitor is told what a connection holds, in its order. What it is given is
// good during the call.
type visitor interface {
	// frame is told every frame, whatever the rules made of it.
	frame(c *connection, u wire.Unit, out *dendro.Outcome)
	// failed ends the walk.
	failed() error
	// found is told every finding, with connection and file filled in.
	found(f wire.Finding)
	// handshake, … are told what the rules let through.
	handshake(p *part, h *dendro.Handshake) error
	index(p *part, x *dendro.Index, off int64) error
	rows(p *part, r *dendro.Rows, off int64) error
	skipped(p *part, r *dendro.Rows, off int64) error
	segment(p *part, s *dendro.Segment, off int64) error
	clock(p *part, o *dendro.ClockOffset, off int64) error
	update(p *part, u *dendro.SourceUpdate) error
	// refusedSegment is told a segment whose claim can't be, with the reason.
	refusedSegment(p *part, s *dendro.Segment, f wire.Finding, off int64) error
	// gap is told before rows or skipped about sequence numbers that are
	// missing before them.
	gap(p *part, missing uint64, r *dendro.Rows, off int64)
	// lost is told of bytes or frames that can't be credited; p is nil when it
	// could be any source.
	lost(c *connection, p *part, l Loss)
}

// walk reads a connection and tells v. progress is told bytes read. A connection
// that is growing ends in the middle of things: that is no finding, and it keeps
// what is needed to go on.
func walk(c *connection, g *registry, v visitor, progress func(n int64)) error {
	w := &walker{c: c, g: g, v: v, ordinals: map[uint32]*part{}, growing: c.growing}
	c.clean = c.wholeAsFarAsKnown()
	c.walker, c.dec, c.at, c.framed, c.lacks, c.damage = w, nil, 0, 0, nil, nil
	if len(c.Runs()) == 0 {
		return nil
	}
	err := w.read(progress)
	if !c.growing && !c.waiting {
		// What it saw last may be as large as a frame.
		c.dec = nil
	}
	if err != nil {
		return fmt.Errorf("connection %s: %w", c.ID, err)
	}
	return nil
}

// wholeAsFarAsKnown says that no file of the connection is missing and that its
// transport ended well, where somebody saw it end.
func (c *connection) wholeAsFarAsKnown() bool {
	t := c.Transport
	return c.Complete() && (t == nil || t.Kind == sidecar.TransportClean || t.Kind == sidecar.TransportUnwitnessed)
}

// over says that no more bytes of the connection will come.
func (c *connection) over() bool {
	if c.Raw || c.Transport != nil || len(c.Files) == 0 {
		return true
	}
	return c.Files[len(c.Files)-1].Sealed && !slices.ContainsFunc(c.Findings, func(f wire.Finding) bool { return f.Kind == capture.KindNoEnd })
}

type walker struct {
	c        *connection
	growing  bool
	g        *registry
	v        visitor
	ordinals map[uint32]*part
	shakes   int
	// run is where the last unit came from.
	run *capture.Run
	// told: it was said that the connection's identity is not known.
	told bool
}

// hole says that bytes before off can't be read, so that nothing behind them
// may be credited to a source that was named before them.
func (w *walker) hole(why string, off int64) {
	w.c.clean = false
	clear(w.ordinals)
	w.v.lost(w.c, nil, Loss{Kind: why, Offset: off, hole: true})
}

// cut notes the frame at off, in which the connection ends. It is a loss of the
// source that it names.
func (w *walker) cut(run *capture.Run, off int64) {
	w.c.clean = false
	x := readFragment(run, off)
	var p *part
	if x.HasSource && x.Kind != dendro.KindHandshake {
		p = w.ordinals[x.Source]
	}
	clear(w.ordinals)
	l := x.loss(wire.KindCut, off)
	l.Recording = w.c.recording && run.End() == w.c.end()
	w.v.lost(w.c, p, l)
}

// read goes through the connection as far as it can be read.
func (w *walker) read(progress func(int64)) error {
	units := w.c.Units()
	units.Progress, units.Growing = progress, w.growing
	defer units.Close()
	more, err := w.units(units, nil)
	if err != nil || more {
		return err
	}
	for _, h := range w.c.tail() {
		if err := w.passOver(h, nil); err != nil {
			return err
		}
	}
	return nil
}

// units applies units until there are no more; more says that the input may
// grow. Behind a hole only what the next file's sidecar says is known. each, if
// set, is told after every unit, and ends the reading with false.
func (w *walker) units(units *capture.UnitReader, each func(u wire.Unit) (bool, error)) (more bool, err error) {
	c := w.c
	for {
		u, found, err := units.Next()
		if err == nil && (!units.Restarted() || c.at == 0 && units.Run().Context == nil) {
			if waits, err := w.waits(u, units.Decoder()); err != nil || waits {
				if c.at == units.Run().Start {
					c.dec = nil // what it found on the way is found again
				}
				return waits, err
			}
		}
		hole := false
		for _, f := range found {
			if f.Kind == dendro.KindRowsSkipped && f.Offset == u.Offset && rowless(u, units.Decoder()) {
				continue // nothing was skipped
			}
			hole = w.report(f) || hole
		}
		if err := w.v.failed(); err != nil {
			return false, err
		}
		switch {
		case errors.Is(err, wire.ErrMore):
			return true, nil
		case err == io.EOF:
			switch e := units.Ending(); {
			case e == wire.EndingCut && !hole && units.Run() != nil:
				w.cut(units.Run(), c.at)
			case e != wire.EndingClean && !hole:
				w.hole(string(e), c.at)
			}
			if run := units.Run(); run != nil {
				c.at = run.End()
			}
			return false, nil
		case err != nil:
			return false, err
		}
		if units.Restarted() {
			run := units.Run()
			lacking := !hole && (c.dec != nil || run.Start > 0 || run.Context != nil)
			c.dec, _ = units.Decoder().(*dendro.Decoder)
			var err error
			switch {
			case lacking:
				if w.run != nil {
					if c.at < w.run.End() {
						w.cut(w.run, c.at)
					}
					c.at = w.run.End()
				}
				err = w.passOver(c.holeAt(c.at, run), run.Context)
			case run.Context != nil:
				err = w.restore(run.Context)
			}
			if err != nil {
				return false, err
			}
		}
		if u.Type == wire.UnitFrame {
			// A later file, which its sidecar tells how to read.
			c.refused = nil
			out := c.dec.Last()
			if err := w.apply(u, &out); err != nil {
				return false, err
			}
		}
		c.at, c.framed, w.run = u.End(), u.End(), units.Run()
		if each != nil {
			if on, err := each(u); err != nil || !on {
				return true, err
			}
		}
	}
}

// rowless says that a unit is a Rows frame without rows.
func rowless(u wire.Unit, dec wire.Decoder) bool {
	d, ok := dec.(*dendro.Decoder)
	if !ok || u.Type != wire.UnitFrame || u.Kind != dendro.KindRows {
		return false
	}
	rows := d.Last().Rows
	return rows != nil && rows.Count == 0
}

// report passes a finding on, and says whether it is a hole.
func (w *walker) report(f wire.Finding) (hole bool) {
	w.c.damagedBy(&f)
	switch f.Kind {
	case wire.KindCut, wire.KindZeroTail, wire.KindDoubtful:
		if w.c.recording && w.c.AtEnd(&f) {
			f.Message = "the connection is still being recorded: the rest of this frame is not there yet"
			f.Cost = "the frame is not in the archive yet"
		}
	case wire.KindLost, wire.KindBadLength, capture.KindUnreadable, capture.KindDamagedZstd, capture.KindSidecarStale:
		w.hole(f.Kind, f.Offset)
		hole = true
	case capture.KindMissingFiles, capture.KindPruned:
		// Files went away since they were listed.
		w.lack(missing{f.Kind, f.Offset, f.Offset + f.Length})
		hole = true
	case wire.KindBadPreamble, wire.KindBadVersion:
		w.c.refused = &f
		w.hole(f.Kind, f.Offset)
		hole = true
	}
	w.v.found(f)
	return hole
}

// restore takes the ordinals that the context before a run names.
func (w *walker) restore(ctx *wire.Context) error {
	for _, e := range ctx.Entries {
		hv, ok := e.Value("handshake")
		if !ok {
			continue
		}
		h, fault := dendro.DecodeHandshake(frameUnit(dendro.KindHandshake, hv.Bytes))
		if fault != nil {
			return fmt.Errorf("the sidecar's context: %w", fault)
		}
		p, err := w.introduce(&h)
		if err != nil {
			return err
		}
		uv, ok := e.Value("source_update")
		if !ok {
			continue
		}
		up, fault := dendro.DecodeSourceUpdate(frameUnit(dendro.KindSourceUpdate, uv.Bytes))
		if fault != nil {
			return fmt.Errorf("the sidecar's context: %w", fault)
		}
		if err := w.v.update(p, &up); err != nil {
			return err
		}
	}
	return nil
}

// waits says that a unit is a Handshake without a uuid, of a connection that is
// growing and shows only later which one it is.
func (w *walker) waits(u wire.Unit, dec wire.Decoder) (bool, error) {
	d, ok := dec.(*dendro.Decoder)
	if !ok || u.Type != wire.UnitFrame || u.Kind != dendro.KindHandshake {
		return false, nil
	}
	out := d.Last()
	if out.Handshake == nil || out.Handshake.HasUUID {
		return false, nil
	}
	var err error
	w.c.waiting, err = w.c.settle(false)
	return w.c.waiting, err
}

// introduce takes a handshake: from here on its ordinal is that source.
func (w *walker) introduce(h *dendro.Handshake) (*part, error) {
	if !h.HasUUID {
		if _, err := w.c.settle(true); err != nil {
			return nil, err
		}
		if w.c.identity.unknown && !w.told {
			w.told = true
			w.v.found(w.c.unidentified())
		}
	}
	s, err := w.g.source(w.c, h, w.shakes)
	if err != nil {
		return nil, err
	}
	p := s.part(w.c)
	w.shakes++
	w.ordinals[h.Source] = p
	return p, w.v.handshake(p, h)
}

func frameUnit(kind uint32, b []byte) wire.Unit {
	return wire.Unit{Type: wire.UnitFrame, Size: int64(len(b)), Kind: kind, Bytes: b}
}

// apply tells the visitor what the rules made of a frame.
func (w *walker) apply(u wire.Unit, out *dendro.Outcome) error {
	w.v.frame(w.c, u, out)
	switch out.Disposition {
	case dendro.Refused:
		return w.refused(u, out)
	case dendro.Unknown, dendro.UnknownKind:
		return nil
	}
	if h := out.Handshake; h != nil {
		_, err := w.introduce(h)
		return err
	}
	ord, _ := ordinal(u)
	p := w.ordinals[ord]
	if p == nil {
		return errors.New("a frame was applied to an ordinal without a handshake")
	}
	switch {
	case out.Index != nil:
		return w.v.index(p, out.Index, u.Offset)
	case out.Segment != nil:
		return w.v.segment(p, out.Segment, u.Offset)
	case out.ClockOffset != nil:
		return w.v.clock(p, out.ClockOffset, u.Offset)
	case out.SourceUpdate != nil:
		return w.v.update(p, out.SourceUpdate)
	case out.Rows != nil:
		if out.Gap > 0 {
			w.v.gap(p, out.Gap, out.Rows, u.Offset)
		}
		if out.Disposition != dendro.Applied {
			return w.v.skipped(p, out.Rows, u.Offset)
		}
		return w.v.rows(p, out.Rows, u.Offset)
	}
	return nil
}

// refused notes whose loss a refused frame is. A refused handshake makes its
// ordinal unknown, all of them where the ordinal itself can't be read.
func (w *walker) refused(u wire.Unit, out *dendro.Outcome) error {
	ord, known := ordinal(u)
	p := w.ordinals[ord]
	if !known {
		p = nil
	}
	w.v.lost(w.c, p, fragmentOf(u.Bytes[:min(len(u.Bytes), maxFragment)], u.Offset).loss(wire.KindMalformed, u.Offset))
	if out.Kind == dendro.KindHandshake {
		if known {
			delete(w.ordinals, ord)
		} else {
			clear(w.ordinals)
		}
	}
	if out.Segment != nil && p != nil && out.Fault != nil {
		return w.v.refusedSegment(p, out.Segment, out.Fault.Finding, u.Offset)
	}
	return nil
}

// ordinal is the source ordinal that a frame names, the first field of every
// kind; known is false where the payload is too short for it.
func ordinal(u wire.Unit) (n uint32, known bool) {
	const at = dendro.LenSize + 1
	if len(u.Bytes) < at+4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(u.Bytes[at:]), true
}
