package archive

// This file compares two archives by what they hold: by uuid, stream and time.
// Ids, segment numbers, schema and documents are not content (docs/merging.md,
// section 5).

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"

	"wiretape/replay/segment"
)

// maxListed is how many things of one kind are listed for a stream; all are
// counted.
const maxListed = 100

// Comparison is how two archives differ: a documented contract as JSON.
type Comparison struct {
	Equal   bool               `json:"equal"`
	Sources []SourceComparison `json:"sources"`
}

// SourceComparison is a source that only one archive holds, or how what both
// hold of it differs.
type SourceComparison struct {
	// UUID, or "" where the archive has none; then labels and clock anchor are
	// what the source is known by.
	UUID   string            `json:"uuid"`
	Labels map[string]string `json:"labels"`
	// Only is "a" or "b" for a source that the other archive lacks.
	Only string `json:"only,omitempty"`
	// Fields of the source that differ.
	Fields  []FieldComparison  `json:"fields,omitempty"`
	Streams []StreamComparison `json:"streams,omitempty"`
	Clock   *Sides             `json:"clock_offsets,omitempty"`
}

// FieldComparison is one value that differs.
type FieldComparison struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// StreamComparison is how a stream differs.
type StreamComparison struct {
	Stream   string     `json:"stream"`
	Segments *SegmentsX `json:"segments,omitempty"`
	Rows     *Sides     `json:"rows,omitempty"`
	Index    *Sides     `json:"index_entries,omitempty"`
}

// SegmentsX is how the segments of a stream differ. Up to a limit they are
// listed.
type SegmentsX struct {
	OnlyACount int64        `json:"only_a_count"`
	OnlyBCount int64        `json:"only_b_count"`
	OnlyA      []SegmentRef `json:"only_a,omitempty"`
	OnlyB      []SegmentRef `json:"only_b,omitempty"`
	// IndexDiffers are segments of equal bytes whose caller index is not equal.
	IndexDiffers []SegmentRef `json:"caller_index_differs,omitempty"`
}

// SegmentRef names a segment.
type SegmentRef struct {
	Seq     int64  `json:"seq"`
	Rows    int64  `json:"rows"`
	FirstTS int64  `json:"first_ts"`
	LastTS  int64  `json:"last_ts"`
	Length  int64  `json:"length"`
	SHA256  string `json:"sha256"`
}

// Sides counts what each side alone has and what both have differently.
type Sides struct {
	OnlyA   Stretch `json:"only_a"`
	OnlyB   Stretch `json:"only_b"`
	Differs Stretch `json:"differs"`
	// SealedInB are live rows of A that a segment of B holds, SealedInA the
	// other way: the same row, stored in another way.
	SealedInA Stretch `json:"sealed_in_a,omitzero"`
	SealedInB Stretch `json:"sealed_in_b,omitzero"`
	// Reordered are times at which both have the same index entries in another
	// order.
	Reordered Stretch `json:"reordered,omitzero"`
}

// Stretch is how many things, and the first and last time of them.
type Stretch struct {
	Count int64  `json:"count"`
	First *int64 `json:"first_ts,omitempty"`
	Last  *int64 `json:"last_ts,omitempty"`
}

func (s *Stretch) add(ts int64) {
	s.Count++
	if s.First == nil || ts < *s.First {
		s.First = &ts
	}
	if s.Last == nil || ts > *s.Last {
		s.Last = &ts
	}
}

func (s *Sides) empty() bool {
	return s.OnlyA.Count+s.OnlyB.Count+s.Differs.Count+s.SealedInA.Count+s.SealedInB.Count+s.Reordered.Count == 0
}

// Compare compares two archives.
func Compare(ctx context.Context, a, b *Archive) (*Comparison, error) {
	c := &comparer{ctx: ctx, a: a, b: b, out: &Comparison{Sources: []SourceComparison{}}}
	sa, err := byIdentity(a)
	if err != nil {
		return nil, err
	}
	sb, err := byIdentity(b)
	if err != nil {
		return nil, err
	}
	for _, k := range union(sa, sb) {
		x, inA := sa[k]
		y, inB := sb[k]
		switch {
		case !inB:
			c.out.Sources = append(c.out.Sources, SourceComparison{UUID: x.UUID, Labels: x.Labels, Only: "a"})
		case !inA:
			c.out.Sources = append(c.out.Sources, SourceComparison{UUID: y.UUID, Labels: y.Labels, Only: "b"})
		default:
			if err := c.source(x, y); err != nil {
				return nil, err
			}
		}
	}
	c.out.Equal = len(c.out.Sources) == 0
	return c.out, nil
}

// byIdentity gives the sources by what they are known by.
func byIdentity(a *Archive) (map[string]SourceRow, error) {
	sources, err := a.Sources()
	if err != nil {
		return nil, err
	}
	m := map[string]SourceRow{}
	for _, s := range sources {
		k := "uuid " + s.UUID
		if !s.HasUUID {
			labels, err := jsonObject(s.Labels)
			if err != nil {
				return nil, err
			}
			k = "labels " + labels + " " + strconv.FormatInt(s.ClockAnchorWallNs, 10)
		}
		for n, base := 2, k; ; n++ {
			if _, ok := m[k]; !ok {
				break
			}
			k = base + " " + strconv.Itoa(n)
		}
		m[k] = s
	}
	return m, nil
}

type comparer struct {
	ctx  context.Context
	a, b *Archive
	out  *Comparison
}

func (c *comparer) source(x, y SourceRow) error {
	s := SourceComparison{UUID: x.UUID, Labels: x.Labels}
	field := func(name, a, b string) {
		if a != b {
			s.Fields = append(s.Fields, FieldComparison{name, a, b})
		}
	}
	fields := func(name string, a, b map[string]string) {
		for _, k := range union(a, b) {
			va, inA := a[k]
			vb, inB := b[k]
			if inA != inB || va != vb {
				s.Fields = append(s.Fields, FieldComparison{name + "." + k, asJSON(va, inA), asJSON(vb, inB)})
			}
		}
	}
	fields("labels", x.Labels, y.Labels)
	fields("metadata", x.Metadata, y.Metadata)
	field("complete", strconv.FormatBool(x.Complete), strconv.FormatBool(y.Complete))
	field("clock_anchor_wall_ns", strconv.FormatInt(x.ClockAnchorWallNs, 10), strconv.FormatInt(y.ClockAnchorWallNs, 10))

	streams := map[string]*StreamComparison{}
	of := func(name string) *StreamComparison {
		if streams[name] == nil {
			streams[name] = &StreamComparison{Stream: name}
		}
		return streams[name]
	}
	segsA, err := segmentsByStream(c.a, x.ID)
	if err != nil {
		return err
	}
	segsB, err := segmentsByStream(c.b, y.ID)
	if err != nil {
		return err
	}
	for _, name := range union(segsA, segsB) {
		if err := c.segments(segsA[name], segsB[name], func() *SegmentsX {
			if of(name).Segments == nil {
				of(name).Segments = &SegmentsX{}
			}
			return of(name).Segments
		}); err != nil {
			return err
		}
	}
	if err := c.rows(x.ID, y.ID, segsA, segsB, of); err != nil {
		return err
	}
	if err := c.index(x.ID, y.ID, of); err != nil {
		return err
	}
	clock := &Sides{}
	err = join(seqOf(func(fn func([2]int64) error) error {
		return c.a.Clocks(x.ID, func(ts, o int64) error { return fn([2]int64{ts, o}) })
	}), seqOf(func(fn func([2]int64) error) error {
		return c.b.Clocks(y.ID, func(ts, o int64) error { return fn([2]int64{ts, o}) })
	}), func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) }, func(a, b *[2]int64) error {
		switch {
		case b == nil:
			clock.OnlyA.add(a[0])
		case a == nil:
			clock.OnlyB.add(b[0])
		case a[1] != b[1]:
			clock.Differs.add(a[0])
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !clock.empty() {
		s.Clock = clock
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		s.Streams = append(s.Streams, *streams[name])
	}
	if len(s.Fields) > 0 || len(s.Streams) > 0 || s.Clock != nil {
		c.out.Sources = append(c.out.Sources, s)
	}
	return nil
}

// asJSON is a value as JSON, "absent" when there is none.
func asJSON(v string, there bool) string {
	if !there {
		return "absent"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func union[V any](a, b map[string]V) []string {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func segmentsByStream(a *Archive, id int64) (map[string][]SegmentRow, error) {
	m := map[string][]SegmentRow{}
	err := a.Segments(id, func(s SegmentRow) error {
		m[s.Stream] = append(m[s.Stream], s)
		return nil
	})
	for _, list := range m {
		slices.SortStableFunc(list, bySpan)
	}
	return m, err
}

func bySpan(a, b SegmentRow) int {
	return cmp.Or(cmp.Compare(a.FirstTS, b.FirstTS), cmp.Compare(a.LastTS, b.LastTS))
}

// segments compares the segments of a stream: the same ones are those of equal
// bytes that say the same of themselves.
func (c *comparer) segments(a, b []SegmentRow, out func() *SegmentsX) error {
	type key struct {
		rows, first, last int64
		sha               [32]byte
	}
	hash := func(x *Archive, list []SegmentRow) (map[key][]SegmentRow, []key, error) {
		m := map[key][]SegmentRow{}
		var order []key
		for _, s := range list {
			if err := c.ctx.Err(); err != nil {
				return nil, nil, err
			}
			p, err := x.SegmentBytes(s)
			if err != nil {
				return nil, nil, err
			}
			k := key{s.Rows, s.FirstTS, s.LastTS, sha256.Sum256(p)}
			if m[k] == nil {
				order = append(order, k)
			}
			m[k] = append(m[k], s)
		}
		return m, order, nil
	}
	inA, orderA, err := hash(c.a, a)
	if err != nil {
		return err
	}
	inB, orderB, err := hash(c.b, b)
	if err != nil {
		return err
	}
	ref := func(k key, s SegmentRow) SegmentRef {
		return SegmentRef{s.Seq, s.Rows, s.FirstTS, s.LastTS, s.Length, hex.EncodeToString(k.sha[:])}
	}
	for _, k := range orderA {
		la, lb := inA[k], inB[k]
		for i := range la {
			switch {
			case i >= len(lb):
				out().OnlyACount++
				out().OnlyA = list(out().OnlyA, ref(k, la[i]))
			default:
				same, err := c.sameIndex(la[i], lb[i])
				if err != nil {
					return err
				}
				if !same {
					out().IndexDiffers = list(out().IndexDiffers, ref(k, la[i]))
				}
			}
		}
	}
	for _, k := range orderB {
		for i := len(inA[k]); i < len(inB[k]); i++ {
			out().OnlyBCount++
			out().OnlyB = list(out().OnlyB, ref(k, inB[k][i]))
		}
	}
	return nil
}

func list(to []SegmentRef, r SegmentRef) []SegmentRef {
	if len(to) < maxListed {
		to = append(to, r)
	}
	return to
}

func (c *comparer) sameIndex(a, b SegmentRow) (bool, error) {
	if a.HasIndex != b.HasIndex || a.IndexLength != b.IndexLength {
		return false, nil
	}
	if !a.HasIndex {
		return true, nil
	}
	x, err := c.a.CallerIndex(a)
	if err != nil {
		return false, err
	}
	y, err := c.b.CallerIndex(b)
	return bytes.Equal(x, y), err
}

// rows compares the live rows. One that is live here and sealed there is the
// same row where the segment's time column has it.
func (c *comparer) rows(ida, idb int64, segsA, segsB map[string][]SegmentRow, of func(string) *StreamComparison) error {
	sealedA, sealedB := &sealed{a: c.a, segs: segsA}, &sealed{a: c.b, segs: segsB}
	sides := map[string]*Sides{}
	err := join(seqOf(func(fn func(RowOf) error) error { return c.a.Rows(ida, fn) }),
		seqOf(func(fn func(RowOf) error) error { return c.b.Rows(idb, fn) }),
		func(a, b RowOf) int { return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.TS, b.TS)) },
		func(a, b *RowOf) error {
			if a != nil && b != nil && a.WallOffset == b.WallOffset && bytes.Equal(a.Bytes, b.Bytes) {
				return c.ctx.Err()
			}
			r, other, only, there := a, sealedB, func(s *Sides) *Stretch { return &s.OnlyA }, func(s *Sides) *Stretch { return &s.SealedInB }
			if a == nil {
				r, other, only, there = b, sealedA, func(s *Sides) *Stretch { return &s.OnlyB }, func(s *Sides) *Stretch { return &s.SealedInA }
			}
			s := sides[r.Stream]
			if s == nil {
				s = &Sides{}
				sides[r.Stream] = s
			}
			if a != nil && b != nil {
				s.Differs.add(r.TS)
				return nil
			}
			has, err := other.has(r.Stream, r.TS)
			if err != nil {
				return err
			}
			if has {
				only = there
			}
			only(s).add(r.TS)
			return nil
		})
	for name, s := range sides {
		of(name).Rows = s
	}
	return err
}

// sealed answers which times the segments of a source hold. Times are asked for
// in order, so one segment's times are held at a time.
type sealed struct {
	a      *Archive
	segs   map[string][]SegmentRow
	stream string
	seq    int64
	loaded bool
	times  []int64
	spans  bool // the time column can't be read: the span has to do
}

func (s *sealed) has(stream string, ts int64) (bool, error) {
	for _, g := range s.segs[stream] {
		if ts < g.FirstTS || ts > g.LastTS {
			continue
		}
		if !s.loaded || s.stream != stream || s.seq != g.Seq {
			b, err := s.a.SegmentBytes(g)
			if err != nil {
				return false, err
			}
			s.times, err = segment.Times(b, segment.Options{})
			s.loaded, s.stream, s.seq, s.spans = true, stream, g.Seq, err != nil
		}
		if s.spans {
			return true, nil
		}
		if _, ok := slices.BinarySearch(s.times, ts); ok {
			return true, nil
		}
	}
	return false, nil
}

// entriesAt are the index entries of one stream at one time, in their order.
type entriesAt struct {
	stream string
	ts     int64
	sums   [][32]byte
}

// entriesByTime gives the index entries of a source by stream and time.
func (a *Archive) entriesByTime(source int64, fn func(entriesAt) error) error {
	var at *entriesAt
	err := a.entriesByStream(source, func(e EntryOf) error {
		if at != nil && (at.stream != e.Stream || at.ts != e.TS) {
			if err := fn(*at); err != nil {
				return err
			}
			at = nil
		}
		if at == nil {
			at = &entriesAt{stream: e.Stream, ts: e.TS}
		}
		at.sums = append(at.sums, sha256.Sum256(e.Blob))
		return nil
	})
	if err == nil && at != nil {
		err = fn(*at)
	}
	return err
}

func (c *comparer) index(ida, idb int64, of func(string) *StreamComparison) error {
	return join(seqOf(func(fn func(entriesAt) error) error { return c.a.entriesByTime(ida, fn) }),
		seqOf(func(fn func(entriesAt) error) error { return c.b.entriesByTime(idb, fn) }),
		func(a, b entriesAt) int { return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.ts, b.ts)) },
		func(a, b *entriesAt) error {
			x, y := entriesAt{}, entriesAt{}
			if a != nil {
				x = *a
			}
			if b != nil {
				y = *b
			}
			if slices.Equal(x.sums, y.sums) {
				return c.ctx.Err()
			}
			stream, ts := x.stream, x.ts
			if a == nil {
				stream, ts = y.stream, y.ts
			}
			s := of(stream)
			if s.Index == nil {
				s.Index = &Sides{}
			}
			left := map[[32]byte]int{}
			for _, sum := range x.sums {
				left[sum]++
			}
			differs := false
			for _, sum := range y.sums {
				if left[sum] > 0 {
					left[sum]--
				} else {
					s.Index.OnlyB.add(ts)
					differs = true
				}
			}
			for _, sum := range x.sums {
				if left[sum] > 0 {
					left[sum]--
					s.Index.OnlyA.add(ts)
					differs = true
				}
			}
			if !differs {
				s.Index.Reordered.add(ts)
			}
			return nil
		})
}

// item is a value of a query, or the error that ended it.
type item[T any] struct {
	v   T
	err error
}

var errStop = errors.New("stop")

// seqOf turns a query with a callback into a sequence.
func seqOf[T any](query func(fn func(T) error) error) iter.Seq[item[T]] {
	return func(yield func(item[T]) bool) {
		err := query(func(v T) error {
			if !yield(item[T]{v: v}) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(item[T]{err: err})
		}
	}
}

// join calls fn with the values of two sequences in their common order, those
// that are equal by order together.
func join[T any](a, b iter.Seq[item[T]], order func(a, b T) int, fn func(a, b *T) error) error {
	nextA, stopA := iter.Pull(a)
	defer stopA()
	nextB, stopB := iter.Pull(b)
	defer stopB()
	x, okA := nextA()
	y, okB := nextB()
	for okA || okB {
		if err := cmp.Or(x.err, y.err); err != nil {
			return err
		}
		var err error
		switch c := 0; {
		case okA && okB:
			if c = order(x.v, y.v); c == 0 {
				err = fn(&x.v, &y.v)
			} else if c < 0 {
				err = fn(&x.v, nil)
			} else {
				err = fn(nil, &y.v)
			}
			if c <= 0 {
				x, okA = nextA()
			}
			if c >= 0 {
				y, okB = nextB()
			}
		case okA:
			err = fn(&x.v, nil)
			x, okA = nextA()
		default:
			err = fn(nil, &y.v)
			y, okB = nextB()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
