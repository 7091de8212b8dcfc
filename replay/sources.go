package replay

// This file keeps who the sources are (docs/merging.md, section 2): their identity
// across connections, and what each connection contributes to one.

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"

	"wiretape/capture"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// connection is one dendro connection of the input.
type connection struct {
	*capture.Connection
	// identity is what sources without a uuid get one from, stands the longest
	// connection of which this is the beginning.
	identity identity
	stands   *connection
	// sha is the SHA-256 of all its bytes, found out only where it decides.
	sha []byte
	// clean: it ended at a frame boundary, its transport too as far as known,
	// and nothing of it is missing.
	clean bool
	// recording: a recorder was at work on it when the inputs were opened.
	recording bool
	// refused is why the stream can't be read at all: no preamble of the
	// protocol, or of another version.
	refused *wire.Finding
	// walker, dec and at are where reading it ended, to go on from there.
	walker *walker
	dec    *dendro.Decoder
	at     int64
	// framed is the end of the last unit that was read, before anything that
	// was cut; growing says that more bytes may come.
	framed  int64
	growing bool
	// later says that a later run may find more bytes; waiting that reading it
	// ended at a Handshake without a uuid, before its first row came.
	later, waiting bool
	// number is its place in the input, for places.
	number int
	// parts are what it contributes to each source.
	parts []*part
	// lacks are the holes that reading it passed over, proved those of them, by
	// their first offset, whose bytes another connection has.
	lacks  []missing
	proved map[int64]bool
	// had, if set, says that an earlier run applied the bytes from from to to.
	had func(from, to int64) bool
	// damage is where something was found wrong with its bytes.
	damage [][2]int64
	// nobodys are its losses that no source is known of.
	nobodys []Loss
	// listed is how many losses are kept of it, of all its sources; fanned how
	// many of those concerned every source; omitted how many more of these were
	// only counted, by the pass.
	listed, fanned int
	omitted        map[int]int64
	// checked are results of the first pass by the offset of the frame.
	checked map[int64]segment.Result
}

// source is one identity.
type source struct {
	reg    *registry
	key    string
	id     int64
	uuid   string
	minted bool
	// parts is what each connection contributes.
	parts []*part
	// left: the selection leaves it out.
	left bool
	// own is the number of its own pass, 0 for the common one.
	own int
}

// part is what one connection contributes to one source.
type part struct {
	src  *source
	conn *connection
	// rank is the connection's place among the source's, 0 the newest.
	rank int

	handshake Identity
	// words are the labels and metadata as last updated on the connection.
	words wordsAt

	// survey is the newest time that the first pass saw, newest the newest one
	// that was contributed so far.
	survey, newest newest
	streams        map[string]*span
	// untracked: it has streams that streams has not, for there were too many.
	untracked bool
	losses    []Loss
	unended   []int    // of losses, the holes behind which no row came yet
	seqs      []seqRun // of the Rows frames that were applied
	// frames counts the Rows frames; first is the first of them that has a row.
	frames int64
	first  rowsFrame
	// seals is where the last Segment of each stream ended, since the last loss.
	seals    map[string]int64
	moreLoss int64
	omitted  int64                   // of the connection, before this part was there
	pos      int64                   // of the next index entry
	crate    map[string]*crateStream // with --strict
}

// Identity is what a Handshake says beside the uuid.
type Identity struct {
	Encoder           string
	ClockAnchorWallNs int64
	Complete          bool
}

// rowsFrame is one Rows frame of a connection.
type rowsFrame struct {
	nth        int64 // from 1, 0 for none
	seq, count uint64
}

// span is what one connection has of one stream.
type span struct {
	first, last int64
	lastRow     int64
	hasRow      bool
	// initial: it has a row in the first Rows frame of the connection that has any.
	initial bool
	rows    int64
	// step is the longest time between two rows, least the shortest, each 0 where
	// there are no two.
	step, least int64
}

// row widens the span by a row.
func (s *span) row(ts int64) {
	if s.hasRow && ts > s.lastRow {
		d := ts - s.lastRow
		s.step = max(s.step, d)
		if s.least == 0 || d < s.least {
			s.least = d
		}
	}
	s.first, s.last = min(s.first, ts), max(s.last, ts)
	s.lastRow, s.hasRow = ts, true
	s.rows++
}

type registry struct {
	separate bool
	byKey    map[string]*source
	list     []*source
	words    words
	// uuids and spans are how many bytes of the limits are used.
	uuids, spans int
	// skipped is how many bytes the rows take that were skipped and are held
	// against the archive at the end.
	skipped int
	// seams are the times between two segments of which a publisher said that
	// nothing was in them; sealing counts them, and the places in part.seals.
	seams   map[seam]struct{}
	sealing int
	// found takes the finding that a limit is reached, once.
	found func(wire.Finding)
}

// newRegistry makes an empty one; dir is a folder for what is not held.
func newRegistry(separate bool, dir string, found func(wire.Finding)) *registry {
	return &registry{separate: separate, byKey: map[string]*source{}, words: words{dir: dir}, found: found}
}

// key names the identity that a handshake gives: its uuid as it was sent, or
// the connection and the ordinal.
func (g *registry) key(c *connection, h *dendro.Handshake, nth int) string {
	switch {
	case g.separate:
		return "s" + c.ID + "\x00" + strconv.Itoa(nth)
	case h.HasUUID:
		return "u" + string(h.UUID)
	}
	return "a" + string(c.identity.sum) + "\x00" + strconv.FormatUint(uint64(h.Source), 10)
}

// source finds or makes the identity of a handshake. nth counts the handshakes
// of the connection.
func (g *registry) source(c *connection, h *dendro.Handshake, nth int) (*source, error) {
	k := g.key(c, h, nth)
	s := g.byKey[k]
	if s == nil {
		if g.uuids += len(k) + len(h.UUID); g.uuids > maxUUIDBytes {
			return nil, &RefusedError{Finding: wire.Finding{Kind: KindNamesLimit, Connection: c.ID, Offset: c.at, Field: "uuid",
				Want: "at most " + wire.Count(maxUUIDBytes, "byte"), Message: "the uuids of the sources take more than " + wire.Count(maxUUIDBytes, "byte")}}
		}
		s = &source{reg: g, key: k, id: int64(len(g.list) + 1), uuid: string(h.UUID)}
		if !h.HasUUID {
			s.minted = true
			s.uuid = archive.UUIDFrom(c.identity.sum, []byte(strconv.FormatUint(uint64(h.Source), 10)))
		}
		g.byKey[k] = s
		g.list = append(g.list, s)
	}
	return s, nil
}

// part finds or makes what c contributes to s.
func (s *source) part(c *connection) *part {
	for _, p := range s.parts {
		if p.conn == c {
			return p
		}
	}
	p := &part{src: s, conn: c, omitted: c.omitted[s.own]}
	s.parts = append(s.parts, p)
	c.parts = append(c.parts, p)
	return p
}

// open applies a handshake: the labels and metadata that it brings.
func (p *part) open(h *dendro.Handshake) (err error) {
	metadata := h.Metadata.Go()
	p.handshake = Identity{Encoder: metadata["encoder"], ClockAnchorWallNs: h.ClockAnchorWallNs, Complete: h.Complete}
	p.words, err = p.src.reg.words.put(p.words, h.Labels.Go(), metadata)
	return err
}

// told gives the labels and metadata as they were told last.
func (p *part) told() (labels, metadata map[string]string, err error) {
	return p.src.reg.words.get(p.words)
}

// keptByUpdate are the metadata keys that an update does not replace where the
// handshake brought them (docs/merging.md, section 2).
var keptByUpdate = []string{"encoder", "writer_sessions"}

// update applies a SourceUpdate: both maps are replaced whole.
func (p *part) update(u *dendro.SourceUpdate) error {
	_, old, err := p.told()
	if err != nil {
		return err
	}
	metadata := u.Metadata.Go()
	for _, k := range keptByUpdate {
		if v, ok := old[k]; ok {
			metadata[k] = v
		}
	}
	p.words, err = p.src.reg.words.put(p.words, u.Labels.Go(), metadata)
	return err
}

// newest is the newest of some times.
type newest struct {
	ts  int64
	has bool
}

func (n *newest) saw(ts int64) {
	if !n.has || ts > n.ts {
		n.ts, n.has = ts, true
	}
}

// row notes the time of a row of a stream. Of streams above the limit of all
// names nothing is noted but that there are some.
func (p *part) row(stream string, ts int64) {
	for _, i := range p.unended {
		l := &p.losses[i]
		to := ts
		if l.From != nil {
			to = max(to, *l.From)
		}
		l.To = &to
	}
	p.unended = p.unended[:0]
	sp := p.streams[stream]
	if sp == nil {
		if p.untracked {
			return
		}
		g := p.src.reg
		if g.spans+len(stream)+spanOverhead > maxSpanBytes {
			p.untracked = true
			if g.found != nil {
				g.found(namesLimit(p, "the names of streams take more than "+wire.Count(maxSpanBytes, "byte")+": the times of further ones are not kept track of",
					"no interruption of those streams is told, and no loss of the sources that have them is called healed by segments"))
				g.found = nil
			}
			return
		}
		g.spans += len(stream) + spanOverhead
		sp = &span{first: ts, last: ts, initial: p.frames == p.first.nth}
		if p.streams == nil {
			p.streams = map[string]*span{}
		}
		p.streams[stream] = sp
	}
	if end, sealed := p.seals[stream]; sealed {
		// What follows the segments of a stream is all that is behind them.
		p.src.reg.join(seam{p.src, stream, end, ts})
		delete(p.seals, stream)
		p.src.reg.sealing--
	}
	sp.row(ts)
}

// seam is the time between two segments of a stream, or behind the last of them.
type seam struct {
	src      *source
	stream   string
	from, to int64
}

// maxSeams bounds the seams that are remembered, 128 bytes and the name for each.
const maxSeams = 1 << 16

// sealed notes the time between a Segment and the one before it on the connection:
// a publisher sends them in their order and leaves none out, so nothing was in it.
// What no recorder of ours wrote may be an archive, which may lack some.
func (p *part) sealed(stream string, s *dendro.Segment) {
	g := p.src.reg
	last, had := p.seals[stream]
	if p.conn.Raw || g.sealing >= maxSeams && !had {
		return
	}
	if p.seals == nil {
		p.seals = map[string]int64{}
	}
	if !had {
		g.sealing++
	}
	p.seals[stream] = s.LastTS
	if had {
		g.join(seam{p.src, stream, last, s.FirstTS})
	}
}

// join notes that nothing was in a time, as long as there is room for it.
func (g *registry) join(at seam) {
	if _, known := g.seams[at]; known || at.from >= at.to || g.sealing >= maxSeams {
		return
	}
	if g.seams == nil {
		g.seams = map[seam]struct{}{}
	}
	g.seams[at] = struct{}{}
	g.sealing++
}

// newer orders two connections of a source, the newer one first (docs/merging.md,
// section 2): by the newest time that each carries for it, then by arrival,
// then by the larger SHA-256.
func newer(a, b *part) int {
	if a.survey.has != b.survey.has {
		if a.survey.has {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.survey.ts, a.survey.ts); c != 0 {
		return c
	}
	return newerConnection(a.conn, b.conn)
}

func newerConnection(a, b *connection) int {
	// An unknown arrival is before all others, so that the order is total.
	if c := cmp.Compare(b.arrival(), a.arrival()); c != 0 {
		return c
	}
	if c := bytes.Compare(b.hash(), a.hash()); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// rank orders the parts of every source and finds the sources whose order is
// not the common one; they get a pass of their own. It gives the connections in
// the common order, newest first, and the number of passes.
func (g *registry) rank(conns []*connection) (order []*connection, passes int) {
	best := map[*connection]*part{}
	for _, s := range g.list {
		slices.SortStableFunc(s.parts, newer)
		for i, p := range s.parts {
			p.rank = i
			if q := best[p.conn]; q == nil || newer(p, q) < 0 {
				best[p.conn] = p
			}
		}
	}
	order = slices.Clone(conns)
	slices.SortStableFunc(order, func(a, b *connection) int {
		pa, pb := best[a], best[b]
		switch {
		case pa == nil && pb == nil:
			return newerConnection(a, b)
		case pa == nil:
			return 1
		case pb == nil:
			return -1
		}
		return newer(pa, pb)
	})
	place := map[*connection]int{}
	for i, c := range order {
		place[c] = i
	}
	passes = 1
	for _, s := range g.list {
		if !slices.IsSortedFunc(s.parts, func(a, b *part) int { return cmp.Compare(place[a.conn], place[b.conn]) }) {
			s.own = passes
			passes++
		}
	}
	return order, passes
}

// arrival is when the connection's first byte came, by the wall clock.
func (c *connection) arrival() int64 {
	if c.FirstArrival == nil {
		return math.MinInt64
	}
	return c.FirstArrival.Wall
}

// end is the offset behind the last byte of the connection that is there.
func (c *connection) end() int64 {
	if runs := c.Runs(); len(runs) > 0 {
		return runs[len(runs)-1].End()
	}
	return 0
}

// locate fills in the file that holds an offset.
func (c *connection) locate(f wire.Finding) wire.Finding {
	for _, r := range c.Runs() {
		if f.Offset <= r.End() {
			return r.Locate(f)
		}
	}
	f.Connection = c.ID
	return f
}

// lose notes a loss of every source of the connection, or of p alone; mine says
// which parts this pass is about. A stream may hold as many losses of every
// source as it has sources, so above a limit they are counted once for all.
func (c *connection) lose(p *part, l Loss, pass int, mine func(*part) bool) {
	parts := c.parts
	if p != nil {
		parts = []*part{p}
	}
	for _, q := range parts {
		q.src.reg.sealing -= len(q.seals)
		q.seals = nil // a segment may have been lost
	}
	switch {
	case p != nil:
	case len(parts) == 0 && c.listed < maxListed:
		if pass == 0 {
			l.Connection, l.State = c.ID, LossUnknown
			c.listed++
			c.nobodys = append(c.nobodys, l)
		}
		return
	case c.fanned >= maxLosses || c.listed >= maxListed:
		if c.omitted == nil {
			c.omitted = map[int]int64{}
		}
		c.omitted[pass]++
		return
	default:
		c.fanned++
	}
	for _, q := range parts {
		if mine != nil && !mine(q) {
			continue
		}
		l := l
		l.Connection, l.newest = c.ID, q.newest
		if l.From == nil && q.newest.has {
			l.widen(q.newest.ts)
			if l.hole {
				l.To = nil // the next row tells
			}
		}
		q.lose(l)
	}
}

// maxSkippedBytes is the most that the rows of all losses take that rule 3 made,
// skippedOverhead bytes and the stream's name for each. Whether what is beyond
// that is in the archive can't be told.
const (
	maxSkippedBytes = 16 << 20
	skippedOverhead = 32
)

// skip notes the loss of a Rows frame that rule 3 skips. One without rows loses
// nothing.
func (g *registry) skip(p *part, r *dendro.Rows, off int64, names *interned) {
	if r.Count == 0 {
		return
	}
	x := &fragment{Partial: dendro.Partial{Kind: dendro.KindRows, HasCount: true, Count: uint64(r.Count)}}
	l := Loss{Kind: dendro.KindRowsSkipped, Connection: p.conn.ID, Offset: off, Rows: int64(r.Count), frag: x}
	for row := range r.All() {
		l.widen(row.TS)
		size := skippedOverhead + len(row.Stream)
		if x.more = x.more || g.skipped+size > maxSkippedBytes; !x.more {
			g.skipped += size
			x.rows = append(x.rows, rowAt{names.of(row.Stream), row.TS})
		}
	}
	p.lose(l)
}

// gapLoss is the loss of the sequence numbers before a Rows frame.
func gapLoss(p *part, missing uint64, r *dendro.Rows, off int64) Loss {
	l := Loss{Kind: dendro.KindGap, Connection: p.conn.ID, Offset: off, Intervals: missing}
	if p.newest.has {
		l.widen(p.newest.ts)
	}
	for row := range r.All() {
		l.widen(row.TS)
		break
	}
	return l
}

// encoderFinding is a source that names another encoder than is wanted.
func encoderFinding(p *part, want string) wire.Finding {
	got := p.handshake.Encoder
	return wire.Finding{Kind: KindEncoder, Connection: p.conn.ID, Field: "encoder", Want: want, Got: got,
		Message: "source " + quote(p.src.uuid) + " names the encoder " + quote(got) + ", wanted " + quote(want)}
}
