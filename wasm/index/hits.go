package index

import (
	"math/bits"
	"sort"

	"wiretape/wasm/filter"
	"wiretape/wire"
)

const (
	hitWords = 1024 // words of one block
	hitRows  = hitWords * 64
)

// Hits is a set of rows, filled in rising order: one bit a row, in fixed blocks.
type Hits struct {
	blocks []*[hitWords]uint64
	before []int64 // hits before each block
	n      int64
}

// Len is how many rows are in the set.
func (h *Hits) Len() int64 { return h.n }

func (h *Hits) add(row int64) {
	b := int(row / hitRows)
	for len(h.blocks) <= b {
		h.blocks = append(h.blocks, nil)
		h.before = append(h.before, h.n)
	}
	if h.blocks[b] == nil {
		h.blocks[b] = new([hitWords]uint64)
	}
	h.blocks[b][row%hitRows/64] |= 1 << (row % 64)
	h.n++
}

// Append appends the numbers of the hits from the given one on, at most n.
func (h *Hits) Append(dst []int64, from int64, n int) []int64 {
	if from < 0 || from >= h.n {
		return dst
	}
	b := sort.Search(len(h.before), func(i int) bool { return h.before[i] > from }) - 1
	skip := from - h.before[b]
	for ; b < len(h.blocks) && n > 0; b++ {
		if h.blocks[b] == nil {
			continue
		}
		for i, w := range h.blocks[b] {
			if c := int64(bits.OnesCount64(w)); c <= skip {
				skip -= c
				continue
			}
			for ; w != 0 && n > 0; w &= w - 1 {
				if skip > 0 {
					skip--
					continue
				}
				dst = append(dst, int64(b)*hitRows+int64(i)*64+int64(bits.TrailingZeros64(w)))
				n--
			}
			if n == 0 {
				break
			}
		}
	}
	return dst
}

// Rank is how many hits have a lower number than row.
func (h *Hits) Rank(row int64) int64 {
	b := int(row / hitRows)
	if b >= len(h.blocks) {
		return h.n
	}
	r := h.before[b]
	if h.blocks[b] == nil {
		return r
	}
	word := row % hitRows / 64
	for _, w := range h.blocks[b][:word] {
		r += int64(bits.OnesCount64(w))
	}
	return r + int64(bits.OnesCount64(h.blocks[b][word]&(1<<(row%64)-1)))
}

// Next is the first row of the set after row, or before it with back, that is in
// other too where there is one; -1 when there is none.
func (h *Hits) Next(row int64, back bool, other *Hits) int64 {
	// From word to word of 64 rows, first those of row's own on the right side.
	last := int64(len(h.blocks))*hitWords - 1
	if back && row > (last+1)*64 {
		row = (last + 1) * 64
	}
	start := row + 1
	if back {
		start = row - 1
	}
	if start < 0 {
		return -1
	}
	mask := ^uint64(0) << (start % 64)
	if back {
		mask = ^uint64(0) >> (63 - start%64)
	}
	for w := start / 64; w >= 0 && w <= last; mask = ^uint64(0) {
		if h.blocks[w/hitWords] == nil {
			if back {
				w = w/hitWords*hitWords - 1
			} else {
				w = (w/hitWords + 1) * hitWords
			}
			continue
		}
		if v := h.word(w) & mask; v != 0 {
			if other != nil {
				v &= other.word(w)
			}
			if v != 0 && back {
				return w*64 + int64(bits.Len64(v)) - 1
			}
			if v != 0 {
				return w*64 + int64(bits.TrailingZeros64(v))
			}
		}
		if back {
			w--
		} else {
			w++
		}
	}
	return -1
}

func (h *Hits) word(w int64) uint64 {
	if b := int(w / hitWords); b < len(h.blocks) && h.blocks[b] != nil {
		return h.blocks[b][w%hitWords]
	}
	return 0
}

// FilterPass walks over everything and puts the rows that e takes into h. It
// ends after limit hits, and Out then is the number of the last in decimal; 0 is
// no limit.
func (ix *Index) FilterPass(e *filter.Expr, h *Hits, limit int64) *Pass {
	check := int64(0)
	if e.NeedsFindings() || e.NeedsInfo() || e.NeedsStreams() {
		check = CheckLimit
	}
	p := &Pass{ix: ix, w: ix.walker(check)}
	match := func(number int64, s *filter.Subject) {
		if e.Match(s) {
			h.add(number)
			if p.over = h.n == limit; p.over {
				p.Out = append(p.Out[:0], wire.Itoa(number)...)
			}
		}
	}
	// What skimmed frames share with the one before of the same kind or source.
	names := map[uint32]string{}
	labels := map[uint64]string{}
	p.visit = func(r *Row) bool {
		s := filter.Subject{Number: r.Frame, Offset: r.Offset, Size: r.Size, Type: r.What.String(),
			Name: rowName(ix.Protocol, r), Findings: r.Findings}
		if r.What == Frame {
			s.HasKind, s.Kind = true, r.Kind
			if e.NeedsSummary() {
				s.Info = p.w.dec.Info(r.Unit)
			} else if e.NeedsInfo() {
				s.Info = p.w.brief(r.Unit)
			}
			if e.NeedsStreams() && int64(len(r.Unit.Bytes)) == r.Size {
				s.Streams = func(is func([]byte) bool) bool {
					fields, _ := p.w.dec.Fields(r.Unit)
					return wire.AnyStream(fields, is)
				}
			}
		}
		clear(labels) // it may have told another
		match(r.Number, &s)
		return p.over
	}
	if !e.NeedsSummary() && !e.NeedsStreams() {
		p.w.skimmed = func(batch []wire.Skimmed, number, pos int64, b []byte) bool {
			s := filter.Subject{Type: Frame.String(), HasKind: true}
			for i := range batch {
				f := &batch[i]
				s.Number, s.Offset, s.Size = p.w.frames-int64(len(batch)-i)+1, pos, int64(f.Size)
				if s.Name == "" || s.Kind != f.Kind {
					name, ok := names[f.Kind]
					if !ok {
						name = rowName(ix.Protocol, &Row{Unit: wire.Unit{Kind: f.Kind}, What: Frame})
						names[f.Kind] = name
					}
					s.Kind, s.Name = f.Kind, name
				}
				if f.HasSource && (!s.Info.HasSource || s.Info.Source != f.Source) {
					label, ok := labels[f.Source]
					if !ok && e.NeedsInfo() {
						label = p.w.brief(wire.Unit{Type: wire.UnitFrame, Offset: pos, Size: s.Size, Kind: f.Kind, Bytes: b[:f.Size]}).Label
						labels[f.Source] = label
					}
					s.Info.Source, s.Info.Label = f.Source, label
				}
				s.Info.HasSource, s.Info.HasTime, s.Info.Time = f.HasSource, f.HasTime, f.Time
				match(number, &s)
				if p.over {
					break
				}
				number++
				pos += s.Size
				b = b[f.Size:]
			}
			return p.over
		}
	}
	p.w.start(0, ix.Runs[0].Start, 0, 0, ix.Runs[0].Context)
	return p
}

// Kinds are the names that a filter may compare a kind with.
func Kinds(p wire.Protocol) []string {
	var names []string
	for k := range uint32(256) {
		if s := p.KindName(k); s != "" {
			names = append(names, s)
		}
	}
	return names
}
