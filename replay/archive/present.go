package archive

// This file says what there is, for who selected nothing of it.

import (
	"maps"
	"slices"
	"strings"

	"wiretape/replay/internal/outcome"
	"wiretape/wire"
)

// maxPresent is how many names a message lists.
const maxPresent = 10

// Present is what an input or an archive holds: the time that it spans and the
// first few names. Its zero value is nothing.
type Present struct {
	from, to int64
	any      bool
	streams  map[string]bool
	sources  []string
}

// Saw takes in a stretch of time of a stream, in nanoseconds since 1970.
func (x *Present) Saw(stream string, first, last int64) {
	if !x.any {
		x.from, x.to, x.any, x.streams = first, last, true, map[string]bool{}
	}
	x.from, x.to = min(x.from, first), max(x.to, last)
	if len(x.streams) <= maxPresent {
		x.streams[stream] = true
	}
}

// Full says that no more sources are listed.
func (x *Present) Full() bool { return len(x.sources) > maxPresent }

// Source takes in a source.
func (x *Present) Source(uuid string, labels map[string]string) {
	if l := LabelWords(labels); l != "" {
		uuid += " (" + l + ")"
	}
	if !x.Full() {
		x.sources = append(x.sources, uuid)
	}
}

// Nothing is err with what there is.
func (x *Present) Nothing(err error) error {
	var parts []string
	if x.any {
		parts = append(parts, outcome.UTC(x.from)+" to "+outcome.UTC(x.to), "streams "+listed(slices.Sorted(maps.Keys(x.streams))))
	}
	if len(x.sources) > 0 {
		parts = append(parts, "sources "+listed(x.sources))
	}
	if len(parts) == 0 {
		return err
	}
	return &nothing{err, strings.Join(parts, "; ")}
}

// nothing is an error that nothing is selected, with what there is.
type nothing struct {
	err   error
	holds string
}

func (n *nothing) Error() string { return n.err.Error() + ": it holds " + n.holds }
func (n *nothing) Unwrap() error { return n.err }

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

// LabelWords is how people know a source: its labels, in order of their keys.
func LabelWords(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, wire.SafeText(k, 40)+"="+wire.SafeText(labels[k], 60))
	}
	return strings.Join(parts, " ")
}

// nothing is ErrNothing with what the archive holds.
func (a *Archive) nothing(sources []SourceRow) error {
	var x Present
	for _, s := range sources {
		x.Source(s.UUID, s.Labels)
		err := contents{a.db}.EachStream(s.ID, func(st StreamSummary) error {
			for _, t := range []*[2]int64{st.Sealed, st.Live} {
				if t != nil {
					x.Saw(st.Stream, t[0], t[1])
				}
			}
			return nil
		})
		if err != nil {
			return a.wrap(err)
		}
	}
	return x.Nothing(ErrNothing)
}
