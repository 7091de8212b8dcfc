package replay

// This file is about bytes of a connection that are not here: files that are
// missing, pruned or short. Each such hole is a loss. It is made good where it
// is proved that another connection has just these bytes: by the hashes that
// journals and sidecars kept of the files that are gone, or because all that is
// here of the one is byte for byte what the other has at the same offsets.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// minEvidence is how many bytes beside a hole must be equal where no hash of
	// the hole is known.
	minEvidence = 64
	// maxProofs bounds the pairs of connections that are compared; of holes
	// beyond that nothing is proved.
	maxProofs = 10_000
	// maxDamage bounds the damaged places of a connection that are remembered;
	// one with more proves nothing.
	maxDamage = 1_000
)

// missing is a hole: a stretch of a connection that is not here, to -1 where its end is
// not known.
type missing struct {
	kind     string
	from, to int64
}

// bytes is how many are missing, 0 where that is not known.
func (h missing) bytes() int64 { return max(0, h.to-h.from) }

// isHole says that findings of a kind tell of bytes that are not here.
func isHole(kind string) bool {
	switch kind {
	case capture.KindMissingFiles, capture.KindPruned, capture.KindNoEnd, capture.KindTransportCut, capture.KindShortFile:
		return true
	}
	return false
}

// holes are those of which the connection's files tell, in order.
func (c *connection) holes() (hs []missing) {
	for _, f := range c.Findings {
		if !isHole(f.Kind) {
			continue
		}
		h := missing{f.Kind, f.Offset, -1}
		if f.Length > 0 && f.Kind != capture.KindNoEnd {
			h.to = f.Offset + f.Length
		}
		hs = append(hs, h)
	}
	slices.SortStableFunc(hs, func(a, b missing) int { return int(min(1, max(-1, a.from-b.from))) })
	return hs
}

// holeAt is the hole that begins at an offset, before the run next.
func (c *connection) holeAt(at int64, next *capture.Run) missing {
	h := missing{capture.KindMissingFiles, at, -1}
	for _, x := range c.holes() {
		if x.from == at {
			h.kind = x.kind
			break
		}
	}
	if !next.Loose && next.Start > at {
		h.to = next.Start
	}
	return h
}

// tail are the holes behind all that is here.
func (c *connection) tail() []missing {
	return slices.DeleteFunc(c.holes(), func(h missing) bool { return h.from < c.end() })
}

// passOver notes a hole; what lies behind it is read with what ctx tells, nil
// for nothing.
func (w *walker) passOver(h missing, ctx *wire.Context) error {
	w.c.clean = false
	clear(w.ordinals)
	if ctx != nil {
		if err := w.restore(ctx); err != nil {
			return err
		}
	}
	w.lost(h)
	return nil
}

// lack notes a hole behind which nothing that came before is known.
func (w *walker) lack(h missing) {
	w.c.clean = false
	clear(w.ordinals)
	w.lost(h)
}

func (w *walker) lost(h missing) {
	w.c.lacks = append(w.c.lacks, h)
	w.v.lost(w.c, nil, Loss{Kind: h.kind, Offset: h.from, Bytes: h.bytes(), hole: true})
}

// next is the first connection of the source that the same recorder opened when
// no more came on p; nil where that is not known. A connection begins with the
// newest row of every stream (the wire format's rule 8), so that all that was
// observed before is before these.
func (s *source) next(p *part) (next *part) {
	for _, q := range s.parts {
		if q != p && q.conn.behind(p.conn) && (next == nil || q.conn.arrival() < next.conn.arrival()) {
			next = q
		}
	}
	return next
}

// behind says that the first byte of c came behind the last one of d, by the clock
// of one recorder.
func (c *connection) behind(d *connection) bool {
	return c.FirstArrival != nil && d.LastArrival != nil && c.FirstArrival.Wall >= d.LastArrival.Wall &&
		filepath.Dir(c.Files[0].Path) == filepath.Dir(d.Files[0].Path)
}

// before notes that what was lost at the end of a connection lies before the first
// rows of q.
func (l *Loss) before(q *part) {
	l.next, l.To = q, nil
	if q == nil || l.From == nil || len(q.streams) == 0 {
		return
	}
	to := *l.From // where all of them begin with what was there already
	for _, sp := range q.streams {
		to = max(to, sp.first)
	}
	l.To = &to
}

// damages says that findings of a kind tell of bytes that can't be relied on, or
// that nothing was taken from.
func damages(kind string) bool {
	switch kind {
	case wire.KindLost, wire.KindBadLength, wire.KindBadPreamble, wire.KindBadVersion, wire.KindMalformed, wire.KindCut,
		wire.KindZeroTail, wire.KindDoubtful, capture.KindUnreadable, capture.KindDamagedZstd, capture.KindHashMismatch,
		capture.KindSidecarStale, capture.KindTornBytes, dendro.KindUnknownOrdinal, dendro.KindRowsSkipped, dendro.KindTooManySources:
		return true
	}
	return false
}

// damagedBy notes a finding about the connection's bytes.
func (c *connection) damagedBy(f *wire.Finding) {
	if damages(f.Kind) && len(c.damage) <= maxDamage {
		c.damage = append(c.damage, [2]int64{f.Offset, f.Offset + max(1, f.Length)})
	}
}

// sound says that nothing was found wrong with the bytes from from to to.
func (c *connection) sound(from, to int64) bool {
	return len(c.damage) <= maxDamage && !slices.ContainsFunc(c.damage, func(d [2]int64) bool { return d[0] < to && from < d[1] })
}

// spanning is the run that holds all bytes from from to to, nil for none.
func (c *connection) spanning(from, to int64) *capture.Run {
	for _, r := range c.Runs() {
		if !r.Loose && r.Start <= from && to <= r.End() {
			return r
		}
	}
	return nil
}

// bringsRows says that live rows were taken from the connection.
func (c *connection) bringsRows() bool {
	return slices.ContainsFunc(c.parts, func(p *part) bool { return p.untracked || len(p.streams) > 0 })
}

// prover finds out which holes are proved to be in other connections.
type prover struct {
	conns []*connection
	known map[string]*capture.Known
	tries int
}

// prove looks for what is missing in the other connections. Connections of which
// no file is here are found by their hashes alone.
func (b *builder) prove() {
	v := &prover{conns: b.conns}
	want := map[string]bool{}
	for _, c := range b.conns {
		c.proved = nil
		if len(c.lacks) > 0 {
			want[c.ID] = true
		}
	}
	for i := range b.absent {
		want[b.absent[i].Connection] = true
	}
	if len(want) == 0 || len(b.conns) == 0 || b.set == nil {
		return
	}
	v.known = b.set.Known(func(id string) bool { return want[id] })
	for _, c := range b.conns {
		for _, h := range c.lacks {
			if to, open := v.extent(c, h); c.had != nil && !open && c.had(h.from, to) {
				c.regain(h)
			}
		}
		for _, o := range b.conns {
			if len(c.proved) >= len(c.lacks) {
				break
			}
			v.pair(c, o)
		}
	}
	for i := range b.absent {
		l := &b.absent[i]
		k := v.known[l.Connection]
		if k == nil || k.End <= 0 {
			continue
		}
		files := k.Covering(0, k.End)
		for _, o := range v.conns {
			if files != nil && !l.Healed && o.spanning(0, k.End) != nil && o.sound(0, k.End) && v.may() && o.hasFiles(files) {
				l.Healed, l.State = true, LossMadeGood
			}
		}
	}
}

// may takes one of the tries.
func (v *prover) may() bool {
	v.tries++
	return v.tries <= maxProofs
}

// pair looks for the holes of c in o.
func (v *prover) pair(c, o *connection) {
	if c == o {
		return
	}
	var same *overlap
	for _, h := range c.lacks {
		if c.proved[h.from] {
			continue
		}
		k := v.known[c.ID]
		tail := h.from >= c.end()
		to, open := v.extent(c, h)
		reach := to
		if open {
			reach = max(to, o.end())
		}
		if open && !tail || reach <= h.from || o.spanning(h.from, reach) == nil || !o.sound(h.from, reach) {
			continue
		}
		if same == nil {
			if !v.may() {
				return
			}
			same = overlapOf(c, o)
		}
		last := to
		if open {
			last = math.MaxInt64
		}
		if !same.equal || !o.fits(k, h.from, last) {
			continue
		}
		switch {
		case !open && k.Covering(h.from, to) != nil: // and they fit
		case !same.beside(c, h):
			continue
		case tail && !open && o.end() != to:
			// Another length: another connection that began alike.
			continue
		case tail && open && !(o.clean && c.bringsRows()):
			// A publisher begins each connection alike, with what it has sealed:
			// only live rows show that both are one.
			continue
		}
		c.regain(h)
	}
}

// extent is how far a hole reaches, -1 where nothing is known of that; open says
// that there may be more behind it.
func (v *prover) extent(c *connection, h missing) (to int64, open bool) {
	if h.from < c.end() {
		return h.to, h.to < 0
	}
	if k := v.known[c.ID]; k != nil && k.End > h.from && k.End >= h.to {
		return k.End, false
	}
	return h.to, true
}

// regain notes that the bytes of a hole are had.
func (c *connection) regain(h missing) {
	if c.proved == nil {
		c.proved = map[int64]bool{}
	}
	c.proved[h.from] = true
}

// fits says that the files of which it is known that they lay between two
// offsets are what o has there.
func (o *connection) fits(k *capture.Known, from, to int64) bool {
	if k == nil {
		return true
	}
	var files []capture.KnownFile
	for _, f := range k.Files {
		if f.Start+f.Length > from && f.Start < to && f.Length > 0 {
			files = append(files, f)
		}
	}
	return o.hasFiles(files)
}

// hasFiles says that o has the bytes of files, by their SHA-256.
func (o *connection) hasFiles(files []capture.KnownFile) bool {
	for _, f := range files {
		run := o.spanning(f.Start, f.Start+f.Length)
		if run == nil {
			return false
		}
		h := sha256.New()
		src, _ := run.OpenAt(f.Start)
		_, err := io.CopyN(h, src, f.Length)
		src.Close()
		if err != nil || hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
			return false
		}
	}
	return true
}

// overlap is what two connections have at the same offsets.
type overlap struct {
	spans [][2]int64
	bytes int64
	equal bool
}

// overlapOf compares all bytes that both connections have.
func overlapOf(c, o *connection) *overlap {
	x := &overlap{equal: true}
	for _, a := range c.Runs() {
		for _, b := range o.Runs() {
			from, to := max(a.Start, b.Start), min(a.End(), b.End())
			if a.Loose || b.Loose || from >= to {
				continue
			}
			if x.equal = equalBytes(a, b, from, to); !x.equal {
				return x
			}
			x.spans = append(x.spans, [2]int64{from, to})
			x.bytes += to - from
		}
	}
	return x
}

// equalBytes says that two runs have the same bytes from from to to. What can't
// be read is not equal.
func equalBytes(a, b *capture.Run, from, to int64) bool {
	p, _ := a.OpenAt(from)
	q, _ := b.OpenAt(from)
	defer p.Close()
	defer q.Close()
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := from; at < to; {
		n := min(int64(len(x)), to-at)
		if _, err := io.ReadFull(p, x[:n]); err != nil {
			return false
		}
		if _, err := io.ReadFull(q, y[:n]); err != nil || !bytes.Equal(x[:n], y[:n]) {
			return false
		}
		at += n
	}
	return true
}

// beside says that what was compared reaches to both sides of a hole, as far as
// there is anything of the connection.
func (x *overlap) beside(c *connection, h missing) bool {
	if x.bytes < minEvidence {
		return false
	}
	enough := func(r *capture.Run, from, to int64) bool { return to-from >= min(minEvidence, r.End()-r.Start) }
	for _, r := range c.Runs() {
		if r.End() == h.from && !slices.ContainsFunc(x.spans, func(s [2]int64) bool { return s[1] == h.from && enough(r, s[0], s[1]) }) {
			return false
		}
		if h.to >= 0 && r.Start == h.to && !slices.ContainsFunc(x.spans, func(s [2]int64) bool { return s[0] == h.to && enough(r, s[0], s[1]) }) {
			return false
		}
	}
	return true
}

// absentLosses are the losses of connections of which no byte is here.
func absentLosses(fs []wire.Finding) (ls []Loss) {
	for _, f := range fs {
		if f.Kind == capture.KindMissingConnection || f.Connection != "" && isHole(f.Kind) {
			ls = append(ls, Loss{Kind: f.Kind, Connection: f.Connection, Offset: f.Offset, Bytes: f.Length, State: LossUnknown})
		}
	}
	return ls
}

// span64 is a stretch of a connection, its second member -1 for one that has no
// known end.
type span64 [2]int64

// had says that an earlier run applied the byte at an offset.
func (f *follower) had(k *followed, at int64) bool {
	return at < f.before[k.ID] && !f.lackedIn(k.ID, at, at+1)
}

// hadAll says that an earlier run is known to have applied all bytes from from to
// to.
func (f *follower) hadAll(k *followed, from, to int64) bool {
	_, known := f.lacked[k.ID]
	return known && to > 0 && to <= f.before[k.ID] && !f.lackedIn(k.ID, from, to)
}

// lackedIn says that an earlier run may have lacked bytes between two offsets.
func (f *follower) lackedIn(id string, from, to int64) bool {
	return slices.ContainsFunc(f.lacked[id], func(s span64) bool { return s[0] < to && (s[1] < 0 || from < s[1]) })
}

// fills says that bytes are here which an earlier run lacked, and takes back what
// it found of that.
func (f *follower) fills(k *followed) (some bool) {
	for _, r := range k.Runs() {
		end := min(r.End(), f.before[k.ID])
		some = some || r.Start < end && f.lackedIn(k.ID, r.Start, end)
	}
	if some {
		f.report.withdraw(func(x wire.Finding) bool {
			return x.Connection == k.ID && isHole(x.Kind) && k.spanning(x.Offset, x.Offset+1) != nil
		})
	}
	return some
}

// lacks are the holes in what was applied of all connections, by all runs.
func (f *follower) lacks() map[string][]span64 {
	all := maps.Clone(f.lacked)
	for _, k := range f.order {
		if !k.begun || k.gone {
			continue
		}
		_, known := f.lacked[k.ID]
		if !known && f.before[k.ID] > 0 {
			continue // what an earlier version lacked of it is not known
		}
		left := []span64{}
		for _, s := range f.lacked[k.ID] {
			if s[1] < 0 || s[1] > k.at {
				left = append(left, span64{max(s[0], k.at), s[1]})
			}
		}
		for _, h := range k.lacks {
			if !k.proved[h.from] && !f.hadAll(k, h.from, h.to) {
				left = append(left, span64{h.from, h.to})
			}
		}
		all[k.ID] = left
	}
	return all
}
