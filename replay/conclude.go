package replay

// This file draws the conclusions of a rebuild when all is read: the rows of
// `sources` (docs/merging.md, section 2), what is missing, and what of that other
// captured data makes good.

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"wiretape/capture"
	"wiretape/replay/archive"
	"wiretape/wire"
)

// other notes a connection that a dendro rebuild has no use for. wayBack says
// that it is the other direction of one that it uses: nothing is missing then, nor
// where nothing came.
func (r *Report) other(c *capture.Connection, wayBack bool) {
	r.Inputs = append(r.Inputs, ReportInput{ID: c.ID, Protocol: c.Protocol, Bytes: c.Length()})
	if wayBack || c.Silent() {
		return
	}
	what := "another protocol (" + wire.SafeText(c.Protocol, 20) + ")"
	switch {
	case r.Refused(c):
		// That is the reason, and not what its bytes are.
		return
	case c.Protocol == "":
		what = "no protocol that is known"
	}
	r.add(wire.Finding{Kind: "other-protocol", Connection: c.ID, Got: c.Protocol,
		Message: "connection of " + what + ", not used for this archive"})
}

// conclude fills the report and gives the rows of `sources`, one after the other.
func (b *builder) conclude() (iter.Seq2[archive.Source, error], error) {
	r := b.report
	n := b.stage.Counts()
	c := &r.Counts
	c.Rows, c.RowsHeld, c.RowsConflicting = n.Rows, n.RowsHeld, n.RowsConflicting
	c.RowsBelowWatermark, c.RowsSuperseded = n.RowsBelowWatermark, n.RowsSuperseded
	c.Segments, c.SegmentsHeld, c.SegmentsQuarantined = n.Segments, n.SegmentsHeld, n.SegmentsQuarantined
	c.IndexEntries, c.ClockOffsets = n.IndexEntries, n.ClockOffsets
	for _, conn := range b.conns {
		c.Bytes += conn.Length()
		c.Connections++
		r.Inputs = append(r.Inputs, ReportInput{ID: conn.ID, Protocol: conn.Protocol, Bytes: conn.Length(), Clean: conn.clean, Used: true})
	}
	slices.SortFunc(r.Inputs, func(a, b ReportInput) int { return cmp.Compare(a.ID, b.ID) })
	type row struct {
		s        *source
		uuid     string
		complete bool
	}
	b.prove()
	var rows []row
	taken := map[string]bool{}
	for _, s := range b.sources.list {
		if s.left {
			continue
		}
		c.Sources++
		rs, complete, err := b.concludeSource(s, s.id)
		if err != nil {
			return nil, err
		}
		if rs != nil {
			r.Source = append(r.Source, *rs)
		}
		found, err := s.alike()
		if err != nil {
			return nil, err
		}
		b.addAll(found)
		uuid := s.uuid
		if taken[uuid] {
			// Sources kept apart that share a uuid: an archive holds one of each.
			uuid = archive.UUIDFrom([]byte(s.key), []byte(uuid))
		}
		taken[uuid] = true
		rows = append(rows, row{s, uuid, complete})
	}
	b.settleLosses()
	slices.SortStableFunc(r.Source, func(a, b ReportSource) int { return cmp.Compare(a.UUID, b.UUID) })
	return func(yield func(archive.Source, error) bool) {
		for _, x := range rows {
			newest, oldest := x.s.parts[0], x.s.parts[len(x.s.parts)-1]
			labels, metadata, err := newest.told()
			if !yield(archive.Source{ID: x.s.id, UUID: x.uuid, Labels: labels, Metadata: metadata,
				ClockAnchorWallNs: oldest.handshake.ClockAnchorWallNs, Complete: x.complete}, err) {
				return
			}
		}
	}, nil
}

// concludeSource is what the report says of a source, nil where the report is
// full, and whether the source is complete (docs/merging.md, section 2).
func (b *builder) concludeSource(s *source, id int64) (*ReportSource, bool, error) {
	if err := b.interruptions(s, id); err != nil {
		return nil, false, err
	}
	whole, err := b.heal(s, id)
	if err != nil {
		return nil, false, err
	}
	b.compare(s)
	newest := s.parts[0]
	complete := newest.handshake.Complete && newest.conn.clean && whole && b.opt.Select.whole()
	if b.report.listed > maxReportBytes {
		b.report.SourcesOmitted++
		return nil, complete, nil
	}
	labels, metadata, err := newest.told()
	if err != nil {
		return nil, false, err
	}
	rs := &ReportSource{UUID: s.uuid, Minted: s.minted, Labels: labels, Encoder: metadata["encoder"], Complete: complete, Streams: []ReportStream{}}
	b.report.listed += listedOverhead + len(s.uuid) + len(rs.Encoder)
	for k, v := range labels {
		b.report.listed += len(k) + len(v)
	}
	if err := b.streams(rs, id); err != nil {
		return nil, false, err
	}
	for _, p := range s.parts {
		rs.Losses = append(rs.Losses, p.losses...)
		rs.LossesOmitted += p.more()
	}
	slices.SortStableFunc(rs.Losses, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Stream, b.Stream))
	})
	if b.opt.Picture {
		err = b.picture(s, id, rs)
	}
	return rs, complete, err
}

// streams lists the streams of a source, as many as the report has room for.
func (b *builder) streams(rs *ReportSource, id int64) error {
	any := false
	err := b.contents.EachStream(id, func(s archive.StreamSummary) error {
		for _, t := range []*[2]int64{s.Sealed, s.Live} {
			switch {
			case t == nil:
			case !any:
				rs.from, rs.to, any = t[0], t[1], true
			default:
				rs.from, rs.to = min(rs.from, t[0]), max(rs.to, t[1])
			}
		}
		if b.report.listed > maxReportBytes {
			rs.StreamsOmitted++
			return nil
		}
		b.report.listed += listedOverhead + len(s.Stream)
		rs.Streams = append(rs.Streams, ReportStream{Stream: s.Stream, Segments: s.Segments, Rows: s.Rows, Sealed: s.Sealed, Live: s.Live})
		return nil
	})
	rs.empty = !any
	return err
}

// compare reports what the connections of a source say differently.
func (b *builder) compare(s *source) {
	newest, oldest := s.parts[0], s.parts[len(s.parts)-1]
	for _, p := range s.parts {
		if a, z := p.handshake.Encoder, newest.handshake.Encoder; a != z {
			b.report.add(wire.Finding{Kind: KindEncoder, Connection: p.conn.ID, Field: "encoder", Want: z, Got: a,
				Message: "source " + quote(s.uuid) + " names the encoder " + quote(a) + " here and " + quote(z) + " on its newest connection " + p.src.parts[0].conn.ID,
				Cost:    "one reader may not read all of it"})
		}
		if a, z := p.handshake.ClockAnchorWallNs, oldest.handshake.ClockAnchorWallNs; a != z {
			b.report.add(wire.Finding{Kind: KindAnchor, Connection: p.conn.ID, Field: "clock_anchor_wall_ns", Want: wire.Itoa(z), Got: wire.Itoa(a),
				Message: "source " + quote(s.uuid) + " has another clock anchor here than on its oldest connection " + oldest.conn.ID})
		}
	}
}

// interruptions are the times between two connections of a source that neither
// covers: what was observed then is in no capture.
func (b *builder) interruptions(s *source, id int64) error {
	for i := len(s.parts) - 1; i > 0; i-- {
		older, younger := s.parts[i], s.parts[i-1]
		for _, stream := range slices.Sorted(maps.Keys(older.streams)) {
			o, y := older.streams[stream], younger.streams[stream]
			if y == nil || y.first <= o.last {
				continue
			}
			// A step no longer than the stream's own steps is no interruption.
			most := max(o.step, y.step)
			if y.first-o.last <= most {
				continue
			}
			near := s.near(stream, o, y)
			covered, err := b.contents.Covered(id, stream, o.last, y.first, func(a, z int64) bool { return z-a <= most || near(a, z) })
			if err != nil {
				return err
			}
			if covered {
				continue
			}
			from, to := o.last, y.first
			older.lose(Loss{Kind: KindInterruption, Connection: older.conn.ID, Offset: older.conn.end(), From: &from, To: &to, Stream: stream})
			b.report.add(wire.Finding{Kind: KindInterruption, Connection: older.conn.ID, Offset: older.conn.end(), Field: "stream",
				Message: "stream " + quote(stream) + " has nothing between " + wire.Itoa(from) + " and " + wire.Itoa(to) +
					", the time between this connection and the next, " + younger.conn.ID,
				Cost: "what was observed then is in no capture"})
		}
	}
	return nil
}

// healed says that a loss between two times is covered by other captured data.
func (b *builder) healed(s *source, id int64, p *part, l *Loss) (bool, error) {
	if l.next != nil {
		if ok, err := b.goesOn(s, id, p, l.next); err != nil || ok {
			return ok, err
		}
	}
	if l.From == nil || l.To == nil || len(p.streams) == 0 && !p.untracked {
		return false, nil
	}
	from, to := *l.From, *l.To
	for _, q := range s.parts {
		if q != p && q.covers(p, from, to) {
			return true, nil
		}
	}
	if from == to || l.hole {
		// A loss at the end of a connection has no end of its own; and bytes that
		// are gone may have held anything, not rows alone.
		return false, nil
	}
	if p.untracked {
		return false, nil
	}
	for stream, sp := range p.streams {
		near := s.near(stream, sp)
		ok, err := b.contents.Covered(id, stream, from, to, func(a, z int64) bool {
			// The two ends need not be rows of this stream.
			return a != from && z != to && near(a, z)
		})
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// goesOn says that q, which was opened when no more came on p, begins where p ends:
// no stream can have had a row between the two.
func (b *builder) goesOn(s *source, id int64, p, q *part) (bool, error) {
	if p.untracked || q.untracked || len(p.streams) == 0 {
		return false, nil
	}
	// A publisher may begin with the newest row of each stream, of which the
	// connections of it have some in common, or with what comes behind its opening.
	repeats := false
	for stream, o := range p.streams {
		y := q.streams[stream]
		repeats = repeats || y != nil && y.initial && y.first <= o.last
	}
	for stream, y := range q.streams {
		// One that is new may have rows before, but where it came later than these.
		if p.streams[stream] == nil && !(repeats && !y.initial) {
			return false, nil
		}
	}
	for stream, o := range p.streams {
		y := q.streams[stream]
		if y == nil {
			return false, nil
		}
		near := s.near(stream, o, y)
		if y.first <= o.last || near(o.last, y.first) {
			continue
		}
		if ok, err := b.contents.Covered(id, stream, o.last, y.first, near); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// minPaced is how many rows tell the pace of a stream.
const minPaced = 24

// pace is the shortest time between two rows of a stream that comes regularly, as
// far as some connections show; 0 for another one.
func pace(known ...*span) int64 {
	rows, least, most := int64(0), int64(math.MaxInt64), int64(0)
	for _, sp := range known {
		rows += sp.rows
		if sp.least > 0 {
			least, most = min(least, sp.least), max(most, sp.step)
		}
	}
	if rows < minPaced || most-least >= least/2 {
		return 0
	}
	return least
}

// near says of two times, each of a row of a stream, that it had none between them:
// twice its pace would have to fit in, or it is the seam of two segments.
func (s *source) near(stream string, known ...*span) func(a, b int64) bool {
	p := pace(known...)
	return func(a, b int64) bool {
		if b-a < 2*p {
			return true
		}
		_, ok := s.reg.seams[seam{s, stream, a, b}]
		return ok
	}
}

// covers says that the connection was live all of the time from a to z and has no
// loss in it, so that it has every row of the streams of another one between the two.
func (p *part) covers(other *part, a, z int64) bool {
	if p.untracked || other.untracked || p.more() > 0 || !p.live(a, max(z, a+1)) {
		return false
	}
	for stream, sp := range other.streams {
		if p.streams[stream] == nil && sp.first <= z {
			return false
		}
	}
	for _, l := range p.losses {
		if (l.From == nil || *l.From <= z) && (l.To == nil || a <= *l.To) {
			return false
		}
	}
	return true
}

// live says that the connection was open at a and goes on to z: it began with
// the newest row of every stream, of which none is behind a, or so near that no
// other fits in between.
func (p *part) live(a, z int64) bool {
	behind := false
	for _, sp := range p.streams {
		if sp.initial && sp.first > a && sp.first-a >= pace(sp) {
			return false
		}
		behind = behind || sp.last >= z
	}
	return behind
}
