package archive

// This file asks an archive what it holds, while it is made and after.

import (
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"

	"wiretape/replay/internal/db"
)

// contents is an open archive.
type contents struct{ db *db.DB }

func readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading the archive: %w", err)
}

// StreamSummary is what the archive holds of one stream.
type StreamSummary struct {
	Stream         string
	Segments, Rows int64
	// Sealed and Live are the first and last time of the segments and of the
	// live rows, nil without any.
	Sealed, Live *[2]int64
}

// Streams gives what the archive holds of a source, in order of name. It is
// called after Resolve.
func (c contents) Streams(source int64) ([]StreamSummary, error) {
	all := map[string]*StreamSummary{}
	get := func(name string) *StreamSummary {
		if all[name] == nil {
			all[name] = &StreamSummary{Stream: name}
		}
		return all[name]
	}
	err := c.db.Query("SELECT stream, count(*), min(first_ts), max(last_ts) FROM segments WHERE source_id=? GROUP BY stream", func(v []driver.Value) error {
		x := get(v[0].(string))
		x.Segments, x.Sealed = v[1].(int64), &[2]int64{v[2].(int64), v[3].(int64)}
		return nil
	}, source)
	if err != nil {
		return nil, readError(err)
	}
	err = c.db.Query("SELECT stream, count(*), min(ts), max(ts) FROM wal WHERE source_id=? GROUP BY stream", func(v []driver.Value) error {
		x := get(v[0].(string))
		x.Rows, x.Live = v[1].(int64), &[2]int64{v[2].(int64), v[3].(int64)}
		return nil
	}, source)
	if err != nil {
		return nil, readError(err)
	}
	out := make([]StreamSummary, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[name])
	}
	return out, nil
}

// Covered says that the segments that stay reach over all of the time from
// from to to: their publisher sealed what was in it.
func (c contents) Covered(source int64, stream string, from, to int64) (bool, error) {
	covered := false
	_, err := c.db.One("SELECT min(first_ts), max(last_ts) FROM segments WHERE source_id=? AND stream=? AND last_ts>=? AND first_ts<=?",
		func(v []driver.Value) error {
			if v[0] != nil {
				covered = v[0].(int64) <= from && v[1].(int64) >= to
			}
			return nil
		}, source, stream, from, to)
	return covered, readError(err)
}

// EachSpan tells the times of a stream's segments, and of its live rows in
// steps of width: fn gets the first and last time of the rows in each step.
func (c contents) EachSpan(source int64, stream string, width int64, fn func(first, last int64, live bool)) error {
	span := func(live bool) func(v []driver.Value) error {
		return func(v []driver.Value) error { fn(v[0].(int64), v[1].(int64), live); return nil }
	}
	err := c.db.Query("SELECT first_ts, last_ts FROM segments WHERE source_id=? AND stream=?", span(false), source, stream)
	if err == nil {
		err = c.db.Query("SELECT min(ts), max(ts) FROM wal WHERE source_id=? AND stream=? GROUP BY ts/?", span(true), source, stream, width)
	}
	return readError(err)
}
