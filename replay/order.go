package replay

// This file keeps what a follower decided by the order of a source's connections
// (docs/merging.md, sections 2, 4 and 5), which may turn while they grow: a
// clock observation or an index entry that comes later is taken for the newer
// connection's, as it nearly always is. Where it turns out otherwise the archive
// is made anew.

import (
	"maps"
	"slices"
)

const (
	// maxRelied bounds what is remembered; beyond it the archive is made anew
	// once, at the end.
	maxRelied = 256
	// maxPlaces bounds the streams whose entries' places are remembered: a place
	// that is not only has the order looked at.
	maxPlaces = 1 << 16
)

// relied: of a source, one connection was taken to be newer than another.
type relied struct {
	Source string `json:"source"`
	Newer  string `json:"newer"`
	Older  string `json:"older"`
}

type order struct {
	relied map[relied]bool
	// apart: the order of index entries is wrong, whichever connection is newer,
	// or too much was to be remembered.
	apart bool
	// places are how many entries each connection has had at its last time.
	places map[placeOf]entriesAt
}

type placeOf struct {
	p      *part
	stream string
}

type entriesAt struct{ ts, n int64 }

func newOrder() order {
	return order{relied: map[relied]bool{}, places: map[placeOf]entriesAt{}}
}

// next is how many index entries of a stream and time a connection has had
// before this one. Where it has had others in between it is 0.
func (o *order) next(p *part, stream string, ts int64) int64 {
	if len(o.places) > maxPlaces {
		clear(o.places)
	}
	k := placeOf{p, stream}
	x := o.places[k]
	if x.ts != ts {
		x = entriesAt{ts: ts}
	}
	x.n++
	o.places[k] = x
	return x.n - 1
}

func (o *order) stored() []relied { return slices.Collect(maps.Keys(o.relied)) }

func (o *order) resume(list []relied, apart bool) {
	for _, r := range list {
		o.relied[r] = true
	}
	o.apart = apart
}

// pair gives the parts that a relation is about, ranked, nil for one that is not
// here.
func (g *registry) pair(r relied) (p, q *part) {
	s := g.byKey["u"+r.Source]
	if s == nil {
		i := slices.IndexFunc(g.list, func(s *source) bool { return s.uuid == r.Source })
		if i < 0 {
			return nil, nil
		}
		s = g.list[i]
	}
	s.rank()
	for _, x := range s.parts {
		switch x.conn.ID {
		case r.Newer:
			p = x
		case r.Older:
			q = x
		}
	}
	return p, q
}

// settled says that no more will come of a connection, in no later run either.
func (k *followed) settled() bool { return k.done && k.raw == nil }

// relyOnOrder notes that what p contributed is where it belongs if its
// connection is newer than all others of the source so far. Of those that are
// over, whose order is settled, the newest stands for all.
func (f *follower) relyOnOrder(p *part) {
	if f.foreign {
		return
	}
	add := func(c *connection) {
		if c == p.conn {
			return
		}
		if len(f.ranks.relied) >= maxRelied {
			f.ranks.apart = true
			return
		}
		f.ranks.relied[relied{p.src.uuid, p.conn.ID, c.ID}] = true
	}
	p.src.rank()
	over := false
	for _, q := range p.src.parts {
		if k := f.conns[q.conn.ID]; k == nil || !k.settled() {
			add(q.conn)
		} else if q != p && !over {
			over = true
			add(q.conn)
		}
	}
	// What an earlier run applied and this one has not come to yet.
	for _, k := range f.order {
		if k.at < f.before[k.ID] {
			add(k.connection)
		}
	}
}

// relyAnew notes the order in which the archive was made anew, of the sources
// where it decided. What still grows can only become newer.
func (f *follower) relyAnew(ordered func(source int64) bool) {
	f.ranks = newOrder()
	for _, s := range f.reg.list {
		for i, p := range s.parts {
			if k := f.conns[p.conn.ID]; i == 0 || k == nil || k.settled() || !ordered(s.id) {
				continue
			}
			if len(f.ranks.relied) >= maxRelied {
				f.ranks.apart = true
				return
			}
			f.ranks.relied[relied{s.uuid, s.parts[i-1].conn.ID, p.conn.ID}] = true
		}
	}
}

// rank orders the parts by what is known of them now, the newest first.
func (s *source) rank() {
	for _, p := range s.parts {
		if p.newest.has {
			p.survey.saw(p.newest.ts)
		}
	}
	slices.SortStableFunc(s.parts, newer)
}

// putInOrder asks for the archive to be made anew where the order of connections
// is not what was relied on. It is called when all that there is was read. While
// two connections both grow their order may turn again and again: then last
// decides, at the end.
func (f *follower) putInOrder(last bool) {
	for r := range f.ranks.relied {
		p, q := f.reg.pair(r)
		if p == nil || q == nil {
			continue
		}
		a, b := f.conns[r.Newer], f.conns[r.Older]
		if a == nil || b == nil || !last && !a.settled() && !b.settled() {
			continue
		}
		switch {
		case newer(p, q) > 0:
			if f.startAgain("another connection of a source is the newer one, so that it decides") {
				return
			}
		case a.settled() && b.settled():
			delete(f.ranks.relied, r)
		}
	}
	if last && f.ranks.apart {
		f.startAgain("equal index entries came apart from one another")
	}
}
