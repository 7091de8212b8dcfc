package replay

// This file keeps what is known to be missing, and holds it against what other
// connections brought. Of a frame that is cut or does not decode, its first
// bytes tell what it held (dendro.Fragment): so it can be said whether that is
// in the archive, is missing, or can't be told.

import (
	"fmt"
	"io"
	"slices"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/replay/internal/outcome"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// LossState says whether what was lost is there by other captured data.
type LossState string

const (
	// LossMadeGood: other captured data holds all of it; nothing is missing.
	LossMadeGood LossState = "made-good"
	// LossMissing: it is known what was lost, and not all of it is there.
	LossMissing LossState = "missing"
	// LossUnknown: what was lost can't be told, so neither can whether it is
	// there.
	LossUnknown LossState = "unknown"
)

// Loss is what is known to be missing of a source, and why.
type Loss struct {
	Kind       string `json:"kind"`
	Connection string `json:"connection"`
	Offset     int64  `json:"offset"`
	// From and To are the times between which it lies, nil where unknown.
	From *int64 `json:"from,omitempty"`
	To   *int64 `json:"to,omitempty"`
	// Bytes is how many bytes are not here, where that is known.
	Bytes int64 `json:"bytes,omitempty"`
	// Rows is how many rows were skipped, Intervals how many sequence numbers
	// are missing.
	Rows      int64  `json:"rows,omitempty"`
	Intervals uint64 `json:"intervals,omitempty"`
	// Stream where it concerns one stream alone.
	Stream string `json:"stream,omitempty"`
	// Frame is the kind of the frame that was lost, where that is known.
	Frame string `json:"frame,omitempty"`
	// Healed says that other captured data covers it: nothing is missing.
	Healed bool      `json:"healed"`
	State  LossState `json:"state"`
	// Recording: a recorder is at work on the connection, and the rest of its
	// last frame is not there yet.
	Recording bool `json:"recording,omitempty"`
	// frag is what there is of the frame.
	frag *fragment
	// hole: it is a stretch of bytes, between the newest time before it and the
	// first row behind it.
	hole bool
	// newest is the newest time that the connection had brought before it.
	newest newest
	// next is the connection whose first rows it lies before, of one that was cut.
	next *part
}

// fragment is what there is of a frame that was lost.
type fragment struct {
	dendro.Partial
	uuid, stream string
	rows         []rowAt
	// more: there are whole rows that rows has not.
	more bool
}

type rowAt struct {
	stream string
	ts     int64
}

const (
	// maxFragment is how much of a frame that is cut is looked at.
	maxFragment = 1 << 20
	// maxFragmentRows is how many of its rows are held against the archive.
	maxFragmentRows = 10_000
)

// fragmentOf reads what the first bytes of a frame tell; it keeps nothing of b.
func fragmentOf(b []byte, off int64) *fragment {
	p := dendro.Fragment(b, off)
	x := &fragment{Partial: p, uuid: string(p.UUID), stream: string(p.Stream)}
	for row := range p.Rows.All() {
		if len(x.rows) == maxFragmentRows {
			x.more = true
			break
		}
		x.rows = append(x.rows, rowAt{string(row.Stream), row.TS})
	}
	x.UUID, x.Partial.Stream, x.Rows = nil, nil, dendro.Rows{Count: p.Rows.Count}
	return x
}

// readFragment reads what is here of a frame that the run ends in.
func readFragment(run *capture.Run, off int64) *fragment {
	src, _ := run.OpenAt(off)
	defer src.Close()
	b := make([]byte, min(maxFragment, max(0, run.End()-off)))
	// What can't be read tells nothing; reading the run reported it.
	n, _ := io.ReadFull(src, b)
	return fragmentOf(b[:n], off)
}

// loss is the loss of the frame.
func (x *fragment) loss(kind string, off int64) Loss {
	l := Loss{Kind: kind, Offset: off, Frame: dendro.KindName(x.Kind), Stream: x.stream, frag: x}
	if x.HasTime {
		l.widen(x.First)
		l.widen(x.Last)
	}
	for _, row := range x.rows {
		l.widen(row.ts)
	}
	if x.Kind == dendro.KindRows && x.HasCount {
		l.Rows = int64(x.Count)
	}
	return l
}

// widen makes the loss's time reach over ts.
func (l *Loss) widen(ts int64) {
	if l.From == nil || ts < *l.From {
		l.From = &ts
	}
	if l.To == nil || ts > *l.To {
		l.To = &ts
	}
}

// text says a loss in one line, with what became of it.
func (l *Loss) text() string {
	if l.Recording && l.State != LossMadeGood {
		return l.what() + ": still being recorded, the rest is not there yet"
	}
	return l.what() + ": " + l.State.words()
}

// what says what was lost.
func (l *Loss) what() string {
	t := l.Kind + " on " + wire.SafeText(l.Connection, 80) + " at " + wire.Itoa(l.Offset)
	if l.Frame != "" {
		t += ", of a " + l.Frame + " frame"
	}
	if l.Stream != "" {
		t += ", stream " + quote(l.Stream)
	}
	if l.Bytes > 0 {
		t += ", " + wire.Many(l.Bytes, "byte")
	}
	switch {
	case l.From != nil && l.To != nil:
		t += ", " + between([2]int64{*l.From, *l.To})
	case l.From != nil:
		t += ", from " + outcome.UTC(*l.From) + " on"
	case l.To != nil:
		t += ", before " + outcome.UTC(*l.To)
	}
	return t
}

func (s LossState) words() string {
	switch s {
	case LossMadeGood:
		return "made good by other captured data"
	case LossMissing:
		return "not made good"
	}
	return "what was lost can't be told"
}

// Losses counts what was lost. One that concerns several sources counts once,
// by the worst that is said of it.
type Losses struct {
	Found    int64 `json:"found"`
	MadeGood int64 `json:"made_good"`
	Missing  int64 `json:"missing"`
	Unknown  int64 `json:"unknown"`
}

func (l *Losses) count(s LossState) {
	l.Found++
	switch s {
	case LossMadeGood:
		l.MadeGood++
	case LossMissing:
		l.Missing++
	default:
		l.Unknown++
	}
}

// lossPlace tells losses apart.
type lossPlace struct {
	kind, connection, stream string
	offset                   int64
}

// settleLosses counts the losses of all sources, and says of the findings about
// those that were made good that nothing is missing by them.
func (b *builder) settleLosses() {
	r := b.report
	worst := map[lossPlace]LossState{}
	// found is the same by the place of the finding, which knows no stream.
	found := map[lossPlace]LossState{}
	note := func(m map[lossPlace]LossState, at lossPlace, s LossState) {
		if old, ok := m[at]; !ok || old == LossMadeGood || old == LossUnknown && s == LossMissing {
			m[at] = s
		}
	}
	recording := map[lossPlace]bool{}
	r.Losses, r.growing = Losses{}, Losses{}
	for _, src := range b.sources.list {
		for _, p := range src.parts {
			if src.left {
				continue
			}
			for i := range p.losses {
				l := &p.losses[i]
				at := lossPlace{l.Kind, l.Connection, l.Stream, l.Offset}
				note(worst, at, l.State)
				if l.Recording {
					recording[at] = true
				}
				at.stream = ""
				note(found, at, l.State)
			}
			n := p.more()
			r.Losses.Found += n
			r.Losses.Unknown += n
		}
	}
	r.Nobodys = nil
	nobodys := func(l Loss) {
		at := lossPlace{l.Kind, l.Connection, l.Stream, l.Offset}
		note(worst, at, l.State)
		note(found, at, l.State)
		if l.Recording {
			recording[at] = true
		}
		if len(r.Nobodys) < maxLosses {
			r.Nobodys = append(r.Nobodys, l)
		}
	}
	for _, c := range b.conns {
		for _, l := range c.nobodys {
			if c.regained(&l) || l.frag != nil && b.handshakeHeld(c, l.frag) {
				l.State, l.Healed = LossMadeGood, true
			}
			nobodys(l)
		}
	}
	for _, l := range b.absent {
		nobodys(l)
	}
	for at, s := range worst {
		r.Losses.count(s)
		if recording[at] {
			r.growing.count(s)
		}
	}
	r.MadeGood = nil
	r.Findings = slices.Clone(r.Findings)
	for i := range r.Findings {
		f := &r.Findings[i]
		if found[lossPlace{f.Kind, f.Connection, "", f.Offset}] != LossMadeGood {
			continue
		}
		if r.MadeGood == nil {
			r.MadeGood = map[string]int64{}
		}
		r.MadeGood[f.Kind]++
		f.Cost = "nothing: other captured data holds what was in it"
	}
}

// continued says that the connection's bytes are the first ones of another
// connection, which has more.
func (c *connection) continued() bool {
	return c.stands != nil && c.stands != c && len(c.Runs()) == 1 && c.stands.Length() > c.Length()
}

// hasLive says that rows came: every connection of a publisher may begin with the
// same bytes before these.
func (c *connection) hasLive() bool {
	return slices.ContainsFunc(c.parts, func(p *part) bool { return len(p.streams) > 0 || p.untracked })
}

// cutOff says that more may have come behind what was lost: the transport was cut
// there.
func (c *connection) cutOff(l *Loss) bool {
	if l.Kind != wire.KindCut {
		return l.Kind == capture.KindTransportCut
	}
	runs := c.Runs()
	return c.Transport != nil && c.Transport.Kind == sidecar.TransportCut && l.Offset >= runs[len(runs)-1].Start
}

// regained says that another connection has just the bytes that were lost.
func (c *connection) regained(l *Loss) bool {
	switch {
	case isHole(l.Kind):
		return c.proved[l.Offset]
	case l.Kind == wire.KindCut:
		// The rest of the frame is in the hole behind it.
		for _, r := range c.Runs() {
			if r.Start <= l.Offset && l.Offset < r.End() && c.proved[r.End()] {
				return true
			}
		}
	}
	switch {
	case !c.continued():
		return false
	case c.cutOff(l):
		// More may have come: the other one must have all of it.
		return c.hasLive() && c.stands.clean
	}
	// Before the first rows two connections of a publisher are the same.
	return c.hasLive() || readFragment(c.stands.Runs()[0], l.Offset).Kind != dendro.KindRows
}

// heal finds the losses that other captured data makes good, and says whether
// nothing is missing of the source.
func (b *builder) heal(s *source, id int64) (whole bool, err error) {
	whole = true
	for _, p := range s.parts {
		whole = whole && p.more() == 0
		for i := range p.losses {
			l := &p.losses[i]
			if l.State, err = b.stateOf(s, id, p, l); err != nil {
				return false, fmt.Errorf("holding the losses of connection %s against the rest: %w", p.conn.ID, err)
			}
			l.Healed = l.State == LossMadeGood
			whole = whole && l.Healed
		}
	}
	return whole, nil
}

// told says that what was lost is known by its kind alone.
func (l *Loss) told() bool {
	switch l.Kind {
	case KindInterruption, dendro.KindGap:
		return true
	}
	return false
}

func (b *builder) stateOf(s *source, id int64, p *part, l *Loss) (LossState, error) {
	if l.Kind == KindInterruption {
		return LossMissing, nil
	}
	if p.conn.regained(l) {
		return LossMadeGood, nil
	}
	last := p.conn.cutOff(l)
	if last {
		l.before(s.next(p))
	}
	if l.frag != nil {
		state, err := b.fragmentHeld(s, id, p, l)
		if err != nil || l.Kind == dendro.KindRowsSkipped || !last && state != LossUnknown || state == LossMissing && l.frag.Kind != dendro.KindRows {
			return state, err
		}
		// Of a frame that the transport was cut in, what the peer sent behind it is
		// lost too.
	}
	ok, err := b.healed(s, id, p, l)
	switch {
	case err != nil:
		return "", err
	case ok:
		return LossMadeGood, nil
	case l.told():
		return LossMissing, nil
	}
	return LossUnknown, nil
}

// fragmentHeld holds what there is of a frame against the archive, and where
// that is not all of it, against the other connections of its source.
func (b *builder) fragmentHeld(s *source, id int64, p *part, l *Loss) (LossState, error) {
	x := l.frag
	held := func(ok bool, err error) (LossState, error) {
		switch {
		case err != nil:
			return "", err
		case ok:
			return LossMadeGood, nil
		}
		return LossMissing, nil
	}
	switch {
	case x.Kind == dendro.KindHandshake:
		if b.handshakeHeld(p.conn, x) {
			return LossMadeGood, nil
		}
	case x.Kind == dendro.KindSourceUpdate && x.HasSource:
		// A newer connection says the labels anew.
		if p.rank > 0 {
			return LossMadeGood, nil
		}
		return LossMissing, nil
	case x.Kind == dendro.KindClockOffset && x.HasTime:
		return held(b.contents.HasClock(id, x.First))
	case x.Kind == dendro.KindIndex && x.HasTime:
		return held(b.contents.HasIndex(id, x.stream, x.First))
	case x.Kind == dendro.KindSegment && x.HasTime:
		return held(b.contents.HasSegment(id, x.stream, int64(min(x.Count, 1<<62)), x.First, x.Last, x.Partial.Bytes))
	case x.Kind == dendro.KindRows:
		return b.rowsHeld(s, id, p, x, l.newest)
	}
	return LossUnknown, nil
}

// handshakeHeld says that x is of a Handshake of a source that another connection
// than c names. What follows it was not captured on c: the identity is all that
// is lost.
func (b *builder) handshakeHeld(c *connection, x *fragment) bool {
	return x.Kind == dendro.KindHandshake && x.HasUUID && slices.ContainsFunc(b.sources.list, func(q *source) bool {
		return q.uuid == x.uuid && !q.minted && slices.ContainsFunc(q.parts, func(o *part) bool { return o.conn != c })
	})
}

// rowsHeld is fragmentHeld for a Rows frame: the rows that are whole must be in
// the archive; of the others only the frame's number tells, where another
// connection has the frame of that number and of the same time. at is the newest
// time before the frame.
func (b *builder) rowsHeld(s *source, id int64, p *part, x *fragment, at newest) (LossState, error) {
	if x.HasCount && x.Count == 0 {
		return LossMadeGood, nil
	}
	for _, row := range x.rows {
		ok, err := b.contents.HasRow(id, row.stream, row.ts)
		if err != nil {
			return "", err
		}
		if !ok {
			return LossMissing, nil
		}
	}
	if x.HasCount && uint64(len(x.rows)) == x.Count {
		return LossMadeGood, nil
	}
	if !x.HasSeq {
		return LossUnknown, nil
	}
	for _, row := range x.rows {
		at.saw(row.ts)
	}
	end := at.ts
	if len(x.rows) == 0 {
		end++ // the frame's rows are behind the newest one
	}
	for _, q := range s.parts {
		if q != p && (at.has && q.received(x.Seq) && q.live(at.ts, end) || p.first.nth == 0 && q.opensWith(x)) {
			return LossMadeGood, nil
		}
	}
	return LossUnknown, nil
}

// opensWith says that the first rows of the connection are those of a frame of
// which some are known.
func (p *part) opensWith(x *fragment) bool {
	return x.HasCount && x.Count == p.first.count && x.Seq == p.first.seq && len(x.rows) > 0 &&
		!slices.ContainsFunc(x.rows, func(r rowAt) bool {
			sp := p.streams[r.stream]
			return sp == nil || !sp.initial || sp.first > r.ts
		})
}

// seqRun is a run of sequence numbers of Rows frames that a connection brought.
type seqRun struct{ lo, hi uint64 }

// maxSeqRuns bounds the runs of one source on one connection; of frames in more
// of them nothing can be proved.
const maxSeqRuns = 1024

// got notes that a Rows frame is applied, before its rows are.
func (p *part) got(seq, count uint64) {
	p.frames++
	if p.first.nth == 0 && count > 0 {
		p.first = rowsFrame{p.frames, seq, count}
	}
	if n := len(p.seqs); n > 0 {
		switch last := &p.seqs[n-1]; {
		case seq == last.hi+1:
			last.hi = seq
			return
		case seq >= last.lo && seq <= last.hi:
			return
		}
	}
	if len(p.seqs) < maxSeqRuns {
		p.seqs = append(p.seqs, seqRun{seq, seq})
	}
}

// received says that the connection brought the Rows frame of that number.
func (p *part) received(seq uint64) bool {
	return slices.ContainsFunc(p.seqs, func(r seqRun) bool { return r.lo <= seq && seq <= r.hi })
}
