package replay

// This file is the selection: what part of the input is asked for. What is left
// out is still read, because the rules need it; the report states the
// selection, so that nobody takes a part for the whole.

import (
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

// nothing is ErrNothing with what there is.
func (b *builder) nothing() error {
	for _, s := range b.sources.list {
		if b.present.Full() {
			break
		}
		var labels map[string]string
		if len(s.parts) > 0 {
			var err error
			if labels, _, err = s.parts[0].told(); err != nil {
				return err
			}
		}
		b.present.Source(s.uuid, labels)
	}
	return b.present.Nothing(ErrNothing)
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
