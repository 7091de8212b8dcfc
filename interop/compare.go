//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
)

// Minted replaces, in both dumps, uuids that the stream did not bring: each
// program mints its own.
const Minted = "minted"

// lines flattens a dump, each thing that it holds in one line, in its order.
func (d Dump) lines() []string {
	var out []string
	put := func(v any, format string, args ...any) {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte(err.Error())
		}
		out = append(out, fmt.Sprintf(format, args...)+" "+string(b))
	}
	put(d.Schema, "schema")
	for i, s := range d.Sources {
		put(s.UUID, "source %d uuid", i)
		put(s.Labels, "source %d labels", i)
		put(s.Metadata, "source %d metadata", i)
		put(s.Complete, "source %d complete", i)
		put(s.Anchor, "source %d clock_anchor_wall_ns", i)
		for _, x := range s.Segments {
			put(x, "source %d segment", i)
		}
		for _, x := range s.WAL {
			put(x, "source %d row", i)
		}
		for _, x := range s.ClockOffsets {
			put(x, "source %d clock offset", i)
		}
		for _, x := range s.CallerRows {
			put(x, "source %d index entry", i)
		}
	}
	return out
}

// Differences says how two dumps differ, nothing when they are equal. Order
// counts: it is part of what a reader sees.
func Differences(crate, ours Dump) []string {
	a, b := crate.lines(), ours.lines()
	left := map[string]int{}
	for _, l := range a {
		left[l]++
	}
	var diff []string
	for _, l := range b {
		if left[l] > 0 {
			left[l]--
		} else {
			diff = append(diff, "only ours:  "+l)
		}
	}
	for _, l := range a {
		if left[l] > 0 {
			left[l]--
			diff = append(diff, "only crate: "+l)
		}
	}
	if len(diff) == 0 {
		for i := range a {
			if a[i] != b[i] {
				return []string{fmt.Sprintf("line %d: the crate has %s here, we have %s", i, a[i], b[i])}
			}
		}
	}
	return diff
}
