package replay

// This file is the selection: what part of the input is asked for. What is left
// out is still read, because the rules need it; the report states the
// selection, so that nobody takes a part for the whole.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"wiretape/wire"
)

// Selection is the part of the input that is asked for; the zero value is all.
type Selection struct {
	// Sources are uuids; a source must be one of them, if there are any.
	Sources []string
	// Labels are pairs that a source's newest labels must all have.
	Labels map[string]string
	// Streams are names; empty is all.
	Streams []string
	From    *Bound
	Until   *Bound
}

// Bound is a time in nanoseconds since 1970, or an offset in each connection.
// From is included, Until is not.
type Bound struct {
	Time   int64
	Offset int64
	// IsOffset says which of the two it is.
	IsOffset bool
}

// ParseBound parses a time (RFC 3339, or a date), nanoseconds since 1970 as
// ts:N, or an offset in the connection as a plain number.
func ParseBound(s string) (*Bound, error) {
	if n, ok := strings.CutPrefix(s, "ts:"); ok {
		ts, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: ts: takes nanoseconds since 1970", s)
		}
		return &Bound{Time: ts}, nil
	}
	if off, err := strconv.ParseInt(s, 10, 64); err == nil && off >= 0 {
		return &Bound{Offset: off, IsOffset: true}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			if y := t.Year(); y < 1678 || y > 2261 {
				return nil, fmt.Errorf("%q is outside of the times that nanoseconds can say", s)
			}
			return &Bound{Time: t.UnixNano()}, nil
		}
	}
	return nil, fmt.Errorf("%q is neither a time (2026-01-31T12:00:00Z, or ts:NANOSECONDS) nor an offset (a number)", s)
}

func (b *Bound) String() string {
	if b.IsOffset {
		return "offset " + wire.Itoa(b.Offset)
	}
	return utc(b.Time)
}

// whole says that nothing of a source that is selected is left out.
func (s *Selection) whole() bool { return len(s.Streams) == 0 && s.From == nil && s.Until == nil }

// all says that everything is selected.
func (s *Selection) all() bool { return s.whole() && len(s.Sources) == 0 && len(s.Labels) == 0 }

// statements say the selection for a report.
func (s *Selection) statements() []string {
	var out []string
	if len(s.Sources) > 0 {
		out = append(out, "sources "+strings.Join(s.Sources, ", "))
	}
	keys := make([]string, 0, len(s.Labels))
	for k := range s.Labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out = append(out, "sources with label "+k+"="+s.Labels[k])
	}
	if len(s.Streams) > 0 {
		out = append(out, "streams "+strings.Join(s.Streams, ", "))
	}
	if s.From != nil {
		out = append(out, "from "+s.From.String())
	}
	if s.Until != nil {
		out = append(out, "until "+s.Until.String())
	}
	if s.From != nil && !s.From.IsOffset || s.Until != nil && !s.Until.IsOffset {
		out = append(out, "segments that reach into the time are kept whole, index entries before its end too")
	}
	return out
}

// source says that a source is selected, by its newest labels.
func (s *Selection) source(src *source) bool {
	if len(s.Sources) > 0 && !slices.Contains(s.Sources, src.uuid) {
		return false
	}
	if len(s.Labels) == 0 {
		return true
	}
	if len(src.parts) == 0 {
		return false
	}
	for k, v := range s.Labels {
		if got, ok := src.parts[0].labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func (s *Selection) stream(name string) bool {
	return len(s.Streams) == 0 || slices.Contains(s.Streams, name)
}

// span says that something of the times first to last is selected.
func (s *Selection) span(first, last int64) bool {
	return last >= s.from() && s.before(first)
}

// from is the first selected time.
func (s *Selection) from() int64 {
	if s.From == nil || s.From.IsOffset {
		return math.MinInt64
	}
	return s.From.Time
}

// offset says that a frame at an offset is selected.
func (s *Selection) offset(off int64) bool {
	return !(s.From != nil && s.From.IsOffset && off < s.From.Offset || s.Until != nil && s.Until.IsOffset && off >= s.Until.Offset)
}

// before says that a time is before the end of what is selected.
func (s *Selection) before(ts int64) bool {
	return s.Until == nil || s.Until.IsOffset || ts < s.Until.Time
}
