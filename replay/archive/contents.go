package archive

// This file asks an archive what it holds, while it is made and after.

import (
	"database/sql/driver"
	"errors"
	"fmt"

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

// EachStream tells what the archive holds of each stream of a source, in order
// of name. It is called after Resolve.
func (c contents) EachStream(source int64, fn func(StreamSummary) error) error {
	count := func(v driver.Value) int64 { n, _ := v.(int64); return n }
	span := func(a, z driver.Value) *[2]int64 {
		if a == nil {
			return nil
		}
		return &[2]int64{count(a), count(z)}
	}
	err := c.db.Query(`SELECT stream, max(segs), max(a), max(z), max(n), max(b), max(y) FROM (
		SELECT stream, count(*) AS segs, min(first_ts) AS a, max(last_ts) AS z, NULL AS n, NULL AS b, NULL AS y
			FROM segments WHERE source_id=? GROUP BY stream
		UNION ALL SELECT stream, NULL, NULL, NULL, count(*), min(ts), max(ts) FROM wal WHERE source_id=? GROUP BY stream)
		GROUP BY stream ORDER BY stream`, func(v []driver.Value) error {
		return fn(StreamSummary{Stream: v[0].(string), Segments: count(v[1]), Sealed: span(v[2], v[3]), Rows: count(v[4]), Live: span(v[5], v[6])})
	}, source, source)
	return readError(err)
}

// Covered says that segments that stay reach over all of the time from from to to.
// near says of two times, each of a row, from or to, that nothing of the stream
// lies between: from and the first of these segments, the end of one and the
// beginning of the next, the last one and to. One of them at least reaches into
// that time.
func (c contents) Covered(source int64, stream string, from, to int64, near func(a, b int64) bool) (bool, error) {
	reach, any := from, false
	err := c.db.Query("SELECT first_ts, last_ts FROM segments WHERE source_id=? AND stream=? AND last_ts>=? AND first_ts<=? ORDER BY first_ts",
		func(v []driver.Value) error {
			first, last := v[0].(int64), v[1].(int64)
			if first > reach && !near(reach, first) {
				return errHole
			}
			reach, any = max(reach, last), true
			return nil
		}, source, stream, from, to)
	if errors.Is(err, errHole) {
		return false, nil
	}
	return any && err == nil && (reach >= to || near(reach, to)), readError(err)
}

// errHole ends a query where the answer is known.
var errHole = errors.New("a time that no segment covers")

// HasSegment says that one segment that stays reaches over all of a Segment
// frame's time with as many rows, and where the time is the very same, with as
// many bytes; a length of 0 is not known.
func (c contents) HasSegment(source int64, stream string, rows, first, last, length int64) (bool, error) {
	return c.has("SELECT 1 FROM segments WHERE source_id=? AND stream=? AND last_ts>=? AND first_ts<=? AND rows>=?"+
		" AND (?=0 OR first_ts<? OR last_ts>? OR length(bytes)=?) LIMIT 1",
		source, stream, last, first, rows, length, first, last, length)
}

// HasRow says that there is a row of that time, live or in a segment's span.
func (c contents) HasRow(source int64, stream string, ts int64) (bool, error) {
	ok, err := c.has("SELECT 1 FROM wal WHERE source_id=? AND stream=? AND ts=?", source, stream, ts)
	if err != nil || ok {
		return ok, err
	}
	return c.has("SELECT 1 FROM segments WHERE source_id=? AND stream=? AND last_ts>=? AND first_ts<=? LIMIT 1", source, stream, ts, ts)
}

// HasIndex says that there is an index entry of that stream and time.
func (c contents) HasIndex(source int64, stream string, ts int64) (bool, error) {
	return c.has("SELECT 1 FROM caller_rows WHERE source_id=? AND stream=? AND ts=? LIMIT 1", source, stream, ts)
}

// HasClock says that there is a clock observation of that time.
func (c contents) HasClock(source, ts int64) (bool, error) {
	return c.has("SELECT 1 FROM clock_offsets WHERE source_id=? AND ts=?", source, ts)
}

func (c contents) has(query string, args ...any) (bool, error) {
	ok, err := c.db.One(query, func([]driver.Value) error { return nil }, args...)
	return ok, readError(err)
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
