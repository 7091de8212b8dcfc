package archive

// This file checks a finished archive: all that the crate's verify checks, and
// what it does not look at, the order of segments and the Parquet inside them.

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"wiretape/replay/segment"
	"wiretape/wire"
)

// The kinds of findings in an archive, beside those of segments and
// KindRowBelowWatermark.
const (
	// KindCorrupt: SQLite says that the database itself is damaged.
	KindCorrupt = "archive-corrupt"
	// KindReference: a row points at one that is not there.
	KindReference = "archive-reference"
	// KindValue: a row holds what its column can't have.
	KindValue = "archive-value"
	// KindSegmentClaim: a segment says of itself what can't be: no rows, or a
	// span that runs backwards.
	KindSegmentClaim = "segment-claim"
	// KindSegmentOrder: a segment lies before the one that is read before it.
	KindSegmentOrder = "segment-order"
	// KindSegmentOverlap: a segment's span meets that of the one before it.
	KindSegmentOverlap = "segment-overlap"
	// KindSameUUID: two sources have one uuid.
	KindSameUUID = "source-uuid-repeated"
)

// maxFindings is how many findings of one kind a check gives; the others are
// counted.
const maxFindings = 200

// Verification is what a check of an archive found.
type Verification struct {
	Schema       int   `json:"schema"`
	Sources      int64 `json:"sources"`
	Streams      int64 `json:"streams"`
	Segments     int64 `json:"segments"`
	SegmentBytes int64 `json:"segment_bytes"`
	// Proved segments are those whose time column was read and is as they say.
	Proved       int64 `json:"segments_proved"`
	WalRows      int64 `json:"wal_rows"`
	IndexEntries int64 `json:"index_entries"`
	ClockOffsets int64 `json:"clock_offsets"`
	// Unchecked is what could not be checked and how often: no fault.
	Unchecked map[string]int64 `json:"unchecked,omitempty"`
	// ByKind counts all findings, Findings are the first of each kind.
	ByKind   map[string]int64 `json:"findings_by_kind"`
	Findings []wire.Finding   `json:"-"`
}

// VerifyOptions are how deep segments are checked.
type VerifyOptions struct {
	Segment segment.Options
	// Progress is told bytes of segments as they are read; it may be nil.
	Progress func(n int64)
}

// Verify checks the whole archive. What is wrong with it is a finding; an error
// is a database that the checks can't be run against. A finding's file is the
// archive's name and its field the row concerned; an offset is one in a
// segment's bytes.
func (a *Archive) Verify(ctx context.Context, opt VerifyOptions) (*Verification, error) {
	v := &verifier{a: a, opt: opt, file: wire.SafeText(filepath.Base(a.Path), 200),
		out: &Verification{Schema: a.Schema, ByKind: map[string]int64{}, Unchecked: map[string]int64{}}}
	if err := v.database(); err != nil {
		return v.out, a.wrap(err)
	}
	err := v.content(ctx)
	if err != nil && v.out.ByKind[KindCorrupt] > 0 && ctx.Err() == nil {
		// What follows from the damage is no news.
		return v.out, nil
	}
	return v.out, err
}

type verifier struct {
	a    *Archive
	opt  VerifyOptions
	file string
	out  *Verification
}

func (v *verifier) find(f wire.Finding) {
	f.File = v.file
	v.out.ByKind[f.Kind]++
	if v.out.ByKind[f.Kind] <= maxFindings {
		v.out.Findings = append(v.out.Findings, f)
	}
}

// database is what SQLite can say of itself.
func (v *verifier) database() error {
	for _, q := range []struct{ pragma, kind, cost string }{
		{"PRAGMA integrity_check", KindCorrupt, "what lies on the damaged pages can't be trusted"},
		{"PRAGMA foreign_key_check", KindReference, "no reader finds the row"},
	} {
		err := v.a.db.Query(q.pragma, func(row []driver.Value) error {
			parts := make([]string, len(row))
			for i := range row {
				parts[i] = textOf(row[i])
			}
			if q.kind == KindReference && len(parts) == 4 {
				parts = []string{"row " + parts[1] + " of the table " + parts[0] + " points at nothing in " + parts[2]}
			}
			if text := strings.Join(parts, " "); text != "ok" {
				v.find(wire.Finding{Kind: q.kind, Message: wire.SafeText(text, 400), Cost: q.cost})
			}
			return nil
		})
		if err != nil {
			// The check can itself run into the damage.
			v.find(wire.Finding{Kind: KindCorrupt, Message: "the check stopped: " + wire.SafeText(err.Error(), 400), Cost: q.cost})
		}
	}
	return nil
}

// content checks the rows of the tables.
func (v *verifier) content(ctx context.Context) error {
	sources, err := v.a.Sources()
	if err := v.value(err); err != nil {
		return err
	}
	byUUID := map[string]int64{}
	for _, s := range sources {
		v.out.Sources++
		if s.HasUUID {
			if other, ok := byUUID[s.UUID]; ok {
				v.find(wire.Finding{Kind: KindSameUUID, Field: row("sources", s.ID, "", 0),
					Message: "sources " + wire.Itoa(other) + " and " + wire.Itoa(s.ID) + " have one uuid", Cost: "readers take one source for two"})
			} else {
				byUUID[s.UUID] = s.ID
			}
		}
		if err := v.value(v.source(ctx, s.ID)); err != nil {
			return err
		}
	}
	return nil
}

// value makes a finding of a value that a column can't have.
func (v *verifier) value(err error) error {
	if e := (*ValueError)(nil); errors.As(err, &e) {
		v.find(wire.Finding{Kind: KindValue, Field: e.Table + "." + e.Column, Got: e.Got, Message: e.Error(), Cost: "the rows behind it were not looked at"})
		return nil
	}
	return err
}

// row names a row of a table for people and programs.
func row(table string, source int64, stream string, seq int64) string {
	if table == "sources" {
		return "sources id=" + wire.Itoa(source)
	}
	s := table + " source=" + wire.Itoa(source) + " stream=\"" + wire.SafeText(stream, 80) + "\""
	if table == "segments" {
		s += " seq=" + wire.Itoa(seq)
	}
	return s
}

func (v *verifier) source(ctx context.Context, id int64) error {
	streams := map[string]bool{}
	if err := v.segments(ctx, id, streams); err != nil {
		return err
	}
	marks, err := v.a.Watermarks(id)
	if err != nil {
		return err
	}
	below := map[string]int64{}
	var order []string
	if err := v.a.Rows(id, func(r RowOf) error {
		v.out.WalRows++
		streams[r.Stream] = true
		if w, ok := marks[r.Stream]; ok && r.TS <= w {
			if below[r.Stream] == 0 {
				order = append(order, r.Stream)
			}
			below[r.Stream]++
		}
		return ctx.Err()
	}); err != nil {
		return err
	}
	for _, s := range order {
		v.find(wire.Finding{Kind: KindRowBelowWatermark, Field: row("wal", id, s, 0), Got: wire.Count(below[s], "row"),
			Want: "rows above " + wire.Itoa(marks[s]), Message: wire.Count(below[s], "row") + " of stream \"" + wire.SafeText(s, 80) +
				"\" lie at or below its newest sealed row", Cost: "no reader sees them"})
	}
	if err := v.a.Entries(id, func(EntryOf) error { v.out.IndexEntries++; return ctx.Err() }); err != nil {
		return err
	}
	err = v.a.Clocks(id, func(int64, int64) error { v.out.ClockOffsets++; return nil })
	v.out.Streams += int64(len(streams))
	return err
}

// segments checks the segments of a source: each entry, its place among the
// others, and its Parquet on as many cores as there are.
func (v *verifier) segments(ctx context.Context, id int64, streams map[string]bool) error {
	type job struct {
		s    SegmentRow
		done chan segment.Result
	}
	results := make(chan job, max(1, runtime.GOMAXPROCS(0)))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for j := range results {
			v.segment(j.s, <-j.done)
		}
	}()
	var before *SegmentRow
	err := v.a.Segments(id, func(s SegmentRow) error {
		streams[s.Stream] = true
		j := job{s, make(chan segment.Result, 1)}
		b, err := v.a.SegmentBytes(s)
		if err != nil {
			return err
		}
		if v.opt.Progress != nil {
			v.opt.Progress(s.Length)
		}
		go func() {
			j.done <- segment.Check(b, segment.Claim{Rows: uint64(s.Rows), FirstTS: s.FirstTS, LastTS: s.LastTS}, v.opt.Segment)
		}()
		results <- j
		return ctx.Err()
	})
	close(results)
	<-finished
	if err != nil {
		return err
	}
	return v.a.Segments(id, func(s SegmentRow) error {
		if before != nil && before.Stream == s.Stream {
			v.order(*before, s)
		}
		before = &s
		return nil
	})
}

// order looks at a segment and the one that readers take before it.
func (v *verifier) order(a, b SegmentRow) {
	f := wire.Finding{Field: row("segments", b.Source, b.Stream, b.Seq), Want: "first_ts above " + wire.Itoa(a.LastTS),
		Got: "first_ts " + wire.Itoa(b.FirstTS)}
	switch {
	case b.FirstTS > a.LastTS:
		return
	case b.LastTS < a.FirstTS:
		f.Kind, f.Message = KindSegmentOrder, "lies before segment "+wire.Itoa(a.Seq)+", which is read before it"
		f.Cost = "readers get the rows out of order"
	default:
		f.Kind, f.Message = KindSegmentOverlap, "overlaps segment "+wire.Itoa(a.Seq)
		f.Cost = "readers get rows twice or out of order"
	}
	f.Message = "segment " + wire.Itoa(b.Seq) + " of stream \"" + wire.SafeText(b.Stream, 80) + "\" " + f.Message
	v.find(f)
}

func (v *verifier) segment(s SegmentRow, r segment.Result) {
	v.out.Segments++
	v.out.SegmentBytes += s.Length
	if r.Proved {
		v.out.Proved++
	}
	for _, why := range r.Unchecked {
		v.out.Unchecked[why]++
	}
	place, what := row("segments", s.Source, s.Stream, s.Seq), "segment "+wire.Itoa(s.Seq)+" of stream \""+wire.SafeText(s.Stream, 80)+"\""
	if s.Rows <= 0 {
		v.find(wire.Finding{Kind: KindSegmentClaim, Field: place, Want: "at least 1 row", Got: wire.Itoa(s.Rows), Message: what + " claims " + wire.Count(s.Rows, "row")})
	}
	if s.FirstTS > s.LastTS {
		v.find(wire.Finding{Kind: KindSegmentClaim, Field: place, Want: "first_ts at or below last_ts", Got: fmt.Sprintf("[%d, %d]", s.FirstTS, s.LastTS),
			Message: what + " has a span that runs backwards"})
	}
	for _, f := range r.Findings {
		if f.Field != "" {
			f.Message += " (" + wire.SafeText(f.Field, 80) + ")"
		}
		f.Field = place
		f.Message = what + ": " + f.Message
		v.find(f)
	}
}
