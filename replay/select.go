package replay

// This file is the selection: what part of the input is asked for. What is left
// out is still read, because the rules need it; the report states the
// selection, so that nobody takes a part for the whole.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"wiretape/replay/archive"
	"wiretape/wire"
)

// Selection is the part of the input that is asked for; the zero value is all.
// A source is judged by its newest labels.
type Selection struct {
	archive.Selection
	// FromOffset and UntilOffset bound the frames of each connection by the
	// offset of their first byte, both included, nil for open.
	FromOffset, UntilOffset *int64
}

// whole says that nothing of a source that is selected is left out.
func (s *Selection) whole() bool {
	return len(s.Streams) == 0 && s.From == nil && s.Until == nil && s.FromOffset == nil && s.UntilOffset == nil
}

// statements say the selection for a report.
func (s *Selection) statements() []string {
	out := s.Words()
	if s.FromOffset != nil {
		out = append(out, "frames from offset "+wire.Itoa(*s.FromOffset))
	}
	if s.UntilOffset != nil {
		out = append(out, "frames until offset "+wire.Itoa(*s.UntilOffset))
	}
	if s.From != nil || s.Until != nil {
		out = append(out, "segments that reach into the time are kept whole, index entries before its end too")
	}
	return out
}

// maxPresent is how many names a message lists.
const maxPresent = 10

// present is what the input holds, for who selected nothing of it.
type present struct {
	from, to int64
	any      bool
	streams  map[string]bool
}

func (x *present) saw(stream string, first, last int64) {
	if !x.any {
		x.from, x.to, x.any, x.streams = first, last, true, map[string]bool{}
	}
	x.from, x.to = min(x.from, first), max(x.to, last)
	if len(x.streams) <= maxPresent {
		x.streams[stream] = true
	}
}

// nothing is ErrNothing with what there is.
func (b *builder) nothing() error {
	var parts []string
	if b.present.any {
		parts = append(parts, between([2]int64{b.present.from, b.present.to}),
			"streams "+listed(slices.Sorted(maps.Keys(b.present.streams))))
	}
	var sources []string
	for _, s := range b.sources.list {
		if len(sources) > maxPresent {
			break
		}
		name := s.uuid
		if len(s.parts) > 0 {
			labels, _, err := s.parts[0].told()
			if err != nil {
				return err
			}
			if l := label(labels); l != "" {
				name += " (" + l + ")"
			}
		}
		sources = append(sources, name)
	}
	if len(sources) > 0 {
		parts = append(parts, "sources "+listed(sources))
	}
	if len(parts) == 0 {
		return ErrNothing
	}
	return fmt.Errorf("%w: it holds %s", ErrNothing, strings.Join(parts, "; "))
}

// listed writes names, the first few of them.
func listed(names []string) string {
	var shown []string
	for i, n := range names {
		if i == maxPresent {
			shown = append(shown, "…")
			break
		}
		shown = append(shown, wire.SafeText(n, 100))
	}
	return strings.Join(shown, ", ")
}

// source says that a source is selected.
func (s *Selection) source(src *source) (bool, error) {
	if len(s.Labels) == 0 {
		return s.Source(src.uuid, nil), nil
	}
	if len(src.parts) == 0 {
		return false, nil
	}
	labels, _, err := src.parts[0].told()
	return s.Source(src.uuid, labels), err
}

// before says that a time is not behind the end of what is selected.
func (s *Selection) before(ts int64) bool { return s.Until == nil || ts <= *s.Until }

// offset says that a frame at an offset is selected.
func (s *Selection) offset(off int64) bool {
	return (s.FromOffset == nil || off >= *s.FromOffset) && (s.UntilOffset == nil || off <= *s.UntilOffset)
}
