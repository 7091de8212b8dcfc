package journal

// This file finds which connections have one history, and plans from which of
// them each sequence is taken.

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"wiretape/wire"
	"wiretape/wire/melin"
)

// member is a link of a lineage, as far as its sequences are below a fork.
type member struct {
	*link
	below uint64 // 0: all of them
	why   string
}

// piece is sequences and where they are taken from.
type piece struct {
	first, last uint64
	from        *stretch
}

// boundary is where a segment starts, with its anchor.
type boundary struct {
	start  uint64
	anchor [melin.HashSize]byte
	rotate bool // a Rotate said so, so that a replica made the segment at once
}

// lineage is one history of entries.
type lineage struct {
	number     int
	folder     string // relative to the output
	members    []member
	pieces     []piece
	boundaries []boundary
	points     []point
	damages    []damage
	report     *ReportLineage
	files      []*file
	conflicts  int64
	repeats    int64
}

// fact is a chain hash at a sequence; who names the same one shares a history.
type fact struct {
	sequence uint64
	hash     [melin.HashSize]byte
}

// trace makes the lineages out of the links that carry anything.
func (b *builder) trace() ([]*lineage, error) {
	group := make([]int, len(b.links)) // to the first link of the group
	why := make([]string, len(b.links))
	var find func(i int) int
	find = func(i int) int {
		if group[i] != i {
			group[i] = find(group[i])
		}
		return group[i]
	}
	unite := func(i, j int, reason string) {
		i, j = find(i), find(j)
		if i == j {
			return
		}
		if i > j {
			i, j = j, i
		}
		group[j] = i
		if why[j] == "" {
			why[j] = reason
		}
	}
	facts := map[fact]int{}
	geneses := map[string]int{}
	for i, l := range b.links {
		group[i] = i
		for _, p := range l.points {
			f := fact{p.sequence, p.hash}
			if j, ok := facts[f]; ok {
				unite(i, j, "names the same chain hash at sequence "+wire.Utoa(p.sequence))
			} else {
				facts[f] = i
			}
		}
		for _, s := range l.starts {
			if !s.First || len(s.Genesis) == 0 {
				continue
			}
			if j, ok := geneses[string(s.Genesis)]; ok {
				unite(i, j, "has the same genesis")
			} else {
				geneses[string(s.Genesis)] = i
			}
		}
	}
	if err := b.joinByEntries(find, unite); err != nil {
		return nil, err
	}
	var out []*lineage
	of := map[int]*lineage{}
	for i, l := range b.links {
		root := find(i)
		g := of[root]
		if g == nil {
			g = &lineage{}
			of[root] = g
			out = append(out, g)
		}
		g.members = append(g.members, member{link: l, why: why[i]})
	}
	out = loneReplicas(out)
	// A replica that had nothing and was never answered is no history.
	out = slices.DeleteFunc(out, func(g *lineage) bool { return !g.carries() })
	return out, nil
}

// loneReplicas puts what replicas said to whom nothing recorded was sent with the
// one history that there is, where they named no hash, or only hashes of entries
// that the recording of it lacks, so that it could not name them.
func loneReplicas(all []*lineage) []*lineage {
	var one *lineage
	for _, g := range all {
		if g.streams() {
			if one != nil {
				return all
			}
			one = g
		}
	}
	if one == nil {
		return all
	}
	return slices.DeleteFunc(all, func(g *lineage) bool {
		if g == one || slices.ContainsFunc(g.members, func(m member) bool {
			return slices.ContainsFunc(m.points, func(p point) bool { return !one.lacks(p.sequence) })
		}) {
			return false
		}
		for _, m := range g.members {
			m.why = "nothing tells it apart from the one history here"
			one.members = append(one.members, m)
		}
		return true
	})
}

// lacks says that an entry before the last one sent is not in the recording, and
// that no hash is named for it.
func (g *lineage) lacks(seq uint64) bool {
	last := uint64(0)
	for _, m := range g.members {
		last = max(last, m.sent)
		if slices.ContainsFunc(m.stretches, func(s *stretch) bool { return s.first <= seq && seq <= s.last }) ||
			slices.ContainsFunc(m.points, func(p point) bool { return p.sequence == seq }) {
			return false
		}
	}
	return seq <= last
}

// streams says that something was sent.
func (g *lineage) streams() bool {
	return slices.ContainsFunc(g.members, func(m member) bool {
		return len(m.starts) > 0 || len(m.stretches) > 0 || len(m.bodies) > 0
	})
}

// carries says that the lineage has anything: a stream, or entries that a node
// named as sent or had.
func (g *lineage) carries() bool {
	return g.streams() || slices.ContainsFunc(g.members, func(m member) bool { return max(m.announced, m.acked, m.inMemory) > 0 })
}

// joinByEntries unites groups that name no common hash but carry an entry that
// is the same, and links of the first layout, which has no anchors, that go on
// where another ends.
func (b *builder) joinByEntries(find func(int) int, unite func(i, j int, why string)) error {
	tries := 0
	for i, l := range b.links {
		for j := range i {
			m := b.links[j]
			if find(i) == find(j) {
				continue
			}
			if tries++; tries > maxJoins {
				return nil
			}
			x, y, seq := common(l, m)
			if x != nil {
				same, err := b.sameEntry(x, y, seq)
				if err != nil {
					return err
				}
				if same {
					unite(i, j, "carries the same entry at sequence "+wire.Utoa(seq))
				}
				continue
			}
			if l.layout == 1 && m.layout == 1 && len(l.starts) > 0 && l.starts[0].First && m.sent > 0 &&
				l.starts[0].StartSequence == m.sent && len(l.starts[0].Genesis) == 0 {
				unite(i, j, "goes on where the other ends; this layout proves no more")
			}
		}
	}
	return nil
}

// common finds a sequence that both links carry as an entry.
func common(l, m *link) (x, y *stretch, seq uint64) {
	for _, x := range l.stretches {
		for _, y := range m.stretches {
			first := max(x.first, y.first)
			if !x.batches && !y.batches && first <= min(x.last, y.last) {
				return x, y, first
			}
		}
		if len(l.stretches)*len(m.stretches) > maxJoins {
			break
		}
	}
	return nil, nil, 0
}

func (b *builder) sameEntry(x, y *stretch, seq uint64) (same bool, err error) {
	same = true
	err = b.together(x, y, seq, seq, func(p, q *entry) bool {
		same = sameBytes(p, q)
		return false
	})
	return same, err
}

// sameBytes compares two entries, across layouts by their values.
func sameBytes(p, q *entry) bool {
	if p.link.layout.Shape() == q.link.layout.Shape() {
		return bytes.Equal(p.slot.Raw, q.slot.Raw)
	}
	return p.slot.Timestamp == q.slot.Timestamp && p.slot.KeyHash == q.slot.KeyHash && p.slot.Event == q.slot.Event &&
		bytes.Equal(p.slot.Payload, q.slot.Payload)
}

// together reads two stretches side by side until v has enough.
func (b *builder) together(x, y *stretch, from, to uint64, v func(p, q *entry) bool) error {
	p, err := b.open(x, from, to)
	if err != nil {
		return err
	}
	defer p.Close()
	q, err := b.open(y, from, to)
	if err != nil {
		return err
	}
	defer q.Close()
	for {
		more, err := p.Next()
		if err != nil || !more {
			return err
		}
		if more, err = q.Next(); err != nil {
			return err
		}
		if !more {
			return errChanged
		}
		if !v(p.Entry(), q.Entry()) {
			return nil
		}
	}
}

// plan decides what each sequence is taken from, and gathers what the members
// know of boundaries, hashes and damages.
func (g *lineage) plan() {
	var all []piece
	g.pieces, g.boundaries, g.points, g.damages = nil, nil, nil, nil
	anchors := map[fact]int{} // to the boundary's number
	for _, m := range g.members {
		for _, s := range m.stretches {
			last := s.last
			if m.below > 0 {
				last = min(last, m.below-1)
			}
			if s.first <= last {
				all = append(all, piece{s.first, last, s})
			}
		}
		for _, p := range m.points {
			if m.below > 0 && p.sequence >= m.below {
				continue
			}
			g.points = append(g.points, p)
			if p.segment {
				at, ok := anchors[fact{p.sequence, p.hash}]
				if !ok {
					at = len(g.boundaries)
					anchors[fact{p.sequence, p.hash}] = at
					g.boundaries = append(g.boundaries, boundary{start: p.sequence + 1, anchor: p.hash})
				}
				if p.kind == "Rotate" {
					g.boundaries[at].rotate = true
				}
			}
		}
		for _, d := range m.damages {
			if m.below == 0 || d.first < m.below {
				g.damages = append(g.damages, d)
			}
		}
	}
	slices.SortStableFunc(g.boundaries, func(x, y boundary) int { return cmp.Compare(x.start, y.start) })
	slices.SortStableFunc(g.points, func(x, y point) int { return cmp.Compare(x.sequence, y.sequence) })
	slices.SortStableFunc(g.damages, func(x, y damage) int { return cmp.Compare(x.first, y.first) })
	slices.SortStableFunc(all, func(x, y piece) int { return cmp.Compare(x.first, y.first) })
	// Sweep: what is being read goes on as long as it can; then the one that
	// reaches furthest is taken.
	var have []piece // begun, not passed
	at := uint64(0)
	for i := 0; i < len(all) || len(have) > 0; {
		for i < len(all) && all[i].first <= max(at, 1) {
			have = append(have, all[i])
			i++
		}
		have = slices.DeleteFunc(have, func(p piece) bool { return p.last < at })
		if len(have) == 0 {
			if i == len(all) {
				break
			}
			at = all[i].first
			continue
		}
		best := have[0]
		for _, p := range have[1:] {
			if p.last > best.last || p.last == best.last && best.from.seed != nil {
				best = p
			}
		}
		if at < best.first {
			at = best.first
		}
		g.pieces = append(g.pieces, piece{at, best.last, best.from})
		at = best.last + 1
	}
}

// pieceFrom is the number of the first piece that reaches seq.
func (g *lineage) pieceFrom(seq uint64) int {
	return sort.Search(len(g.pieces), func(i int) bool { return g.pieces[i].last >= seq })
}

// maxConflicts is how many differing entries of two connections are reported
// each.
const maxConflicts = 16

// compare holds every sequence that more than one connection carries against
// the one that is taken. Where two epochs differ it gives the two lineages.
func (b *builder) compare(g *lineage) (forks []*lineage, err error) {
	g.repeats, g.conflicts = 0, 0
	for _, m := range g.members {
		for _, s := range m.stretches {
			for _, p := range g.pieces[g.pieceFrom(s.first):] {
				if p.first > s.last {
					break
				}
				first, last := max(p.first, s.first), min(p.last, s.last)
				if m.below > 0 {
					last = min(last, m.below-1)
				}
				if p.from == s || first > last || s.batches || p.from.batches {
					continue
				}
				var forked uint64
				n := 0
				err := b.together(s, p.from, first, last, func(x, y *entry) bool {
					g.repeats++
					if sameBytes(x, y) {
						return true
					}
					if s.link.epoch != p.from.link.epoch {
						forked = x.sequence
						return false
					}
					g.conflicts++
					if n++; n <= maxConflicts {
						b.found(runOf(s), wire.Finding{Kind: KindConflict, Offset: x.offset, Length: int64(len(x.slot.Raw)), Field: "slot",
							Want:    "the entry " + wire.Utoa(x.sequence) + " of connection " + p.from.link.id() + " at " + wire.Itoa(y.offset),
							Got:     "another one",
							Message: "sequence " + wire.Utoa(x.sequence) + " was carried before with other bytes, in the same epoch", Cost: "this one is not in the journal"})
					}
					return true
				})
				if err != nil {
					return nil, err
				}
				if forked > 0 {
					return g.fork(forked, max(s.link.epoch, p.from.link.epoch)), nil
				}
			}
		}
	}
	return nil, nil
}

// fork gives the lineage of the epochs below epoch and that of the others, of
// which each has of the other only what lies before the sequence at.
func (g *lineage) fork(at, epoch uint64) []*lineage {
	old, young := &lineage{}, &lineage{}
	for _, m := range g.members {
		cut := m
		if cut.below == 0 || cut.below > at {
			cut.below = at
		}
		cut.why = "shares the entries below " + wire.Utoa(at) + ", where epoch " + wire.Utoa(epoch) + " differs"
		if m.epoch < epoch {
			old.members, young.members = append(old.members, m), append(young.members, cut)
		} else {
			old.members, young.members = append(old.members, cut), append(young.members, m)
		}
	}
	return []*lineage{old, young}
}
