package index

import (
	"sort"
	"strconv"

	"wiretape/wasm/filter"
	"wiretape/wire"
)

// source is what is known of one source, by the number that the protocol gives
// it on this connection.
type source struct {
	id      uint64
	label   string
	rows    int64
	bytes   int64
	first   int64 // row numbers
	last    int64
	hasTime bool
	from    int64
	to      int64
	kinds   [maxKinds]int64 // by slot
	streams map[string]*stream
	more    int64 // rows of streams that are not listed
	// told is the row that last told who the source is.
	told      int64
	toldFrame int64
	findings  []count
}

type stream struct {
	number      int
	rows, bytes int64
	hasTime     bool
	from, to    int64
}

// observeSource takes a frame into its source's figures.
func (ix *Index) observeSource(r *Row, info *wire.Info, slot int) *source {
	if !info.HasSource {
		return nil
	}
	s := ix.sourceOf(info.Source)
	if s == nil {
		if len(ix.sources) == MaxSources {
			return nil
		}
		s = &source{id: info.Source, first: r.Number, told: -1, streams: map[string]*stream{}}
		ix.byID[info.Source] = s
		ix.sources = append(ix.sources, s)
	}
	if info.Label != "" && info.Label != s.label {
		s.label = info.Label
		s.told, s.toldFrame = r.Number, r.Frame
	}
	s.last = r.Number
	s.rows++
	s.bytes += r.Size
	s.kinds[slot]++
	span(&s.hasTime, &s.from, &s.to, info.HasTime, info.Time)
	if info.Stream == "" {
		return s
	}
	t := s.streams[info.Stream]
	if t == nil {
		if len(ix.streams) == MaxStreams {
			s.more++
			return s
		}
		t = &stream{number: len(ix.streams)}
		ix.streams = append(ix.streams, info.Stream)
		s.streams[info.Stream] = t
	}
	t.rows++
	t.bytes += r.Size
	span(&t.hasTime, &t.from, &t.to, info.HasTime, info.Time)
	return s
}

// recentSources is how many sources are found without the map.
const recentSources = 16

// sourceOf is what is known of a source, nil when it is not listed.
func (ix *Index) sourceOf(id uint64) *source {
	r := &ix.recent[id%recentSources]
	if *r == nil || (*r).id != id {
		s := ix.byID[id]
		if s == nil {
			return nil
		}
		*r = s
	}
	return *r
}

// span widens a span of times by t, if that is one.
func span(has *bool, from, to *int64, isTime bool, t int64) {
	if !isTime {
		return
	}
	if !*has {
		*has, *from, *to = true, t, t
	}
	*from, *to = min(*from, t), max(*to, t)
}

// AppendSources appends what is known of the sources as JSON.
func (ix *Index) AppendSources(dst []byte) []byte {
	dst = append(dst, '[')
	for i, s := range ix.sources {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"id":`...)
		dst = appendQuoted(dst, wire.Utoa(s.id))
		dst = appendText(dst, "label", s.label)
		dst = appendAltered(dst, s.label)
		dst = appendNumber(dst, "rows", s.rows)
		dst = appendNumber(dst, "bytes", s.bytes)
		dst = appendNumber(dst, "first", s.first)
		dst = appendNumber(dst, "last", s.last)
		dst = appendNumber(dst, "told", s.told)
		dst = appendNumber(dst, "toldFrame", s.toldFrame)
		dst = appendSpan(dst, s.hasTime, s.from, s.to)
		var kinds []count
		for slot, n := range s.kinds {
			if n > 0 {
				kinds = append(kinds, count{ix.kinds[slot].name, n})
			}
		}
		dst = appendCounts(dst, "kinds", kinds)
		dst = appendCounts(dst, "findings", s.findings)
		dst = appendNumber(dst, "more", s.more)
		dst = append(dst, `,"streams":[`...)
		names := make([]string, 0, len(s.streams))
		for n := range s.streams {
			names = append(names, n)
		}
		sort.Strings(names)
		for j, n := range names {
			if j > 0 {
				dst = append(dst, ',')
			}
			t := s.streams[n]
			dst = append(dst, `{"name":`...)
			dst = wire.AppendJSONString(dst, wire.SafeText(n, maxLabel))
			dst = appendAltered(dst, n)
			dst = appendNumber(dst, "number", int64(t.number))
			dst = appendNumber(dst, "rows", t.rows)
			dst = appendNumber(dst, "bytes", t.bytes)
			dst = appendSpan(dst, t.hasTime, t.from, t.to)
			dst = append(dst, '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

// appendAltered says of a name from the wire that it is not shown as it is.
func appendAltered(dst []byte, s string) []byte {
	if wire.SafeText(s, maxLabel) == s {
		return dst
	}
	return strconv.AppendBool(appendName(dst, "altered"), true)
}

// StreamName is the name of a stream as a filter takes it, by the number that
// AppendSources gives it; "" when there is none of that number.
func (ix *Index) StreamName(number int) string {
	if number < 0 || number >= len(ix.streams) {
		return ""
	}
	return string(filter.AppendQuoted(nil, ix.streams[number]))
}
