package archive

// This file applies the rules of docs/merging.md that need all contributions of a
// stream: sections 3 (which segments stay), 4 (what becomes of each row) and 5.

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"errors"
	"slices"

	"wiretape/replay/segment"
)

// candidate is one sound segment of a stream.
type candidate struct {
	sha         [32]byte
	seq         int64
	rows        int64
	first, last int64
	proved      bool
	distinct    int64
	place       Place
	why         string // why it does not stay, "" when it stays or is held
	gone        bool
}

// Resolve applies the rules to every stream. After it only Finish may follow.
func (s *Stage) Resolve() error {
	if err := s.begin(0); err != nil {
		return err
	}
	if err := s.eachStream(s.resolveStream); err != nil {
		return err
	}
	if err := s.resolveIndex(); err != nil {
		return err
	}
	n, err := s.db.Change("INSERT INTO clock_offsets SELECT source, ts, offset_ns FROM work.clock ORDER BY source, ts")
	s.counts.ClockOffsets = n
	return errors.Join(s.wrap(err), s.commit())
}

func (s *Stage) resolveStream(k streamKey, st *streamState) error {
	if st.nextSeq == 0 && !s.conflicts {
		return nil // rows alone, all of them live
	}
	segs, err := s.candidates(k)
	if err != nil {
		return err
	}
	if !st.sorted {
		for from := 0; from < len(segs); {
			to, reach := from+1, segs[from].last
			for to < len(segs) && segs[to].first <= reach {
				reach = max(reach, segs[to].last)
				to++
			}
			if to-from > 1 {
				if err := s.resolveOverlap(k, segs[from:to]); err != nil {
					return err
				}
			}
			from = to
		}
	}
	if err := s.resolveUnproved(k, segs); err != nil {
		return err
	}
	if err := s.resolveRows(k, segs); err != nil {
		return err
	}
	return s.renumber(k, segs)
}

// candidates are the stream's segments in time order.
func (s *Stage) candidates(k streamKey) ([]candidate, error) {
	var segs []candidate
	err := s.db.Query(`SELECT sha, seq, rows, first_ts, last_ts, proved, distincts, conn, off FROM work.seg
		WHERE source=? AND stream=? ORDER BY first_ts, last_ts, sha`, func(v []driver.Value) error {
		c := candidate{seq: v[1].(int64), rows: v[2].(int64), first: v[3].(int64), last: v[4].(int64),
			proved: v[5].(int64) != 0, distinct: v[6].(int64), place: Place{int(v[7].(int64)), v[8].(int64)}}
		copy(c.sha[:], bytesOf(v[0]))
		segs = append(segs, c)
		return nil
	}, k.source, k.stream)
	return segs, s.wrap(err)
}

func (s *Stage) segmentBytes(k streamKey, seq int64) ([]byte, error) {
	var b []byte
	_, err := s.db.One("SELECT bytes FROM segments WHERE source_id=? AND stream=? AND seq=?",
		func(v []driver.Value) error { b = bytesOf(v[0]); return nil }, k.source, k.stream, seq)
	return b, s.wrap(err)
}

// prove reads the time column of a segment that was not checked so deep. A
// fault that shows only now sets it aside.
func (s *Stage) prove(k streamKey, c *candidate) error {
	if c.proved || c.gone || s.opt.Segment.Depth >= segment.DepthRows {
		return nil
	}
	b, err := s.segmentBytes(k, c.seq)
	if err != nil {
		return err
	}
	o := s.opt.Segment
	o.Depth = segment.DepthRows
	r := segment.Check(b, segment.Claim{Rows: uint64(c.rows), FirstTS: c.first, LastTS: c.last}, o)
	if !r.Sound() {
		return s.drop(k, c, r.Findings[0].Kind, r)
	}
	c.proved, c.distinct = r.Proved, int64(r.Distinct)
	return nil
}

// resolveOverlap applies section 3, rules 3 and 4, to segments that form one
// run of overlapping spans.
func (s *Stage) resolveOverlap(k streamKey, run []candidate) error {
	for i := range run {
		if err := s.prove(k, &run[i]); err != nil {
			return err
		}
	}
	order := make([]*candidate, 0, len(run))
	for i := range run {
		if !run[i].gone {
			order = append(order, &run[i])
		}
	}
	slices.SortFunc(order, func(a, b *candidate) int {
		if a.proved != b.proved {
			if a.proved {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.distinct, a.distinct), cmp.Compare(b.rows, a.rows), bytes.Compare(a.sha[:], b.sha[:]))
	})
	var stay, rest []*candidate
	for _, c := range order {
		if slices.ContainsFunc(stay, func(o *candidate) bool { return c.first <= o.last && o.first <= c.last }) {
			rest = append(rest, c)
		} else {
			stay = append(stay, c)
		}
	}
	for _, c := range rest {
		why := KindSegmentConflict
		if !c.proved {
			why = KindSegmentUnproved
		} else if held, err := s.heldBy(k, c, stay); err != nil {
			return err
		} else if held {
			why = ""
		}
		if err := s.drop(k, c, why, segment.Result{}); err != nil {
			return err
		}
	}
	return nil
}

// heldBy says that every timestamp of c is in the time column of one of stay.
func (s *Stage) heldBy(k streamKey, c *candidate, stay []*candidate) (bool, error) {
	b, err := s.segmentBytes(k, c.seq)
	if err != nil {
		return false, err
	}
	left, err := segment.Times(b, s.opt.Segment)
	if err != nil {
		return false, nil
	}
	for _, o := range stay {
		if len(left) == 0 || !o.proved || c.first > o.last || o.first > c.last {
			continue
		}
		b, err := s.segmentBytes(k, o.seq)
		if err != nil {
			return false, err
		}
		have, err := segment.Times(b, s.opt.Segment)
		if err != nil {
			return false, nil
		}
		left = slices.DeleteFunc(left, func(ts int64) bool { _, ok := slices.BinarySearch(have, ts); return ok })
	}
	return len(left) == 0, nil
}

// drop takes a segment out: as held when why is "", else set aside.
func (s *Stage) drop(k streamKey, c *candidate, why string, r segment.Result) error {
	c.gone, c.why = true, why
	if why == "" {
		s.counts.SegmentsHeld++
	} else {
		b, err := s.segmentBytes(k, c.seq)
		if err != nil {
			return err
		}
		s.counts.SegmentsQuarantined++
		err = s.set.Segment(k.source, k.stream, Segment{Rows: uint64(c.rows), FirstTS: c.first, LastTS: c.last,
			Bytes: b, SHA: c.sha, Check: r, Place: c.place}, why)
		if err != nil {
			return err
		}
	}
	if s.opt.Schema != SchemaOld {
		if _, err := s.db.Change("DELETE FROM segment_indexes WHERE source_id=? AND stream=? AND seq=?", k.source, k.stream, c.seq); err != nil {
			return s.wrap(err)
		}
	}
	_, err := s.db.Change("DELETE FROM segments WHERE source_id=? AND stream=? AND seq=?", k.source, k.stream, c.seq)
	return s.wrap(err)
}

// resolveUnproved applies section 3, rule 4: a segment that can't be proved
// stays only where it puts no row at or below the watermark that no proved
// segment holds.
func (s *Stage) resolveUnproved(k streamKey, segs []candidate) error {
	var open []*candidate
	w, hasW := int64(0), false
	for i := range segs {
		switch c := &segs[i]; {
		case c.gone:
		case c.proved:
			if !hasW || c.last > w {
				w, hasW = c.last, true
			}
		default:
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(a, b *candidate) int { return cmp.Compare(a.last, b.last) })
	for _, c := range open {
		if hasW && c.last <= w {
			continue
		}
		rows := false
		for _, table := range []string{"wal", "work.low", "work.conflict"} {
			q := "SELECT 1 FROM " + table + " WHERE source" + idColumn(table) + "=? AND stream=? AND ts<=? AND (ts>? OR ?) LIMIT 1"
			found, err := s.db.One(q, func([]driver.Value) error { return nil }, k.source, k.stream, c.last, w, !hasW)
			if err != nil {
				return s.wrap(err)
			}
			rows = rows || found
		}
		if rows {
			if err := s.prove(k, c); err != nil {
				return err
			}
			if !c.proved && !c.gone {
				if err := s.drop(k, c, KindSegmentUnproved, segment.Result{}); err != nil {
					return err
				}
			}
		}
		if !c.gone {
			w, hasW = c.last, true
		}
	}
	return nil
}

// resolveRows applies section 4.
func (s *Stage) resolveRows(k streamKey, segs []candidate) error {
	w, hasW := int64(0), false
	stay := make([]*candidate, 0, len(segs))
	for i := range segs {
		if c := &segs[i]; !c.gone {
			stay = append(stay, c)
			if !hasW || c.last > w {
				w, hasW = c.last, true
			}
		}
	}
	if hasW {
		if err := s.resolveBelow(k, stay, w); err != nil {
			return err
		}
	}
	return s.resolveAbove(k, w, hasW)
}

// resolveBelow takes every row at or below the watermark out: it is held by a
// segment that stays, or it could never be read and is set aside.
func (s *Stage) resolveBelow(k streamKey, stay []*candidate, w int64) error {
	next := 0
	var times []int64
	q := `SELECT ts, wall_offset, row, -1 AS conn, 0 AS off, 0 AS t FROM wal WHERE source_id=? AND stream=? AND ts<=?
		UNION ALL SELECT ts, wall_offset, row, conn, off, 1 FROM work.low WHERE source=? AND stream=? AND ts<=?
		UNION ALL SELECT ts, wall_offset, row, conn, off, 2 FROM work.conflict WHERE source=? AND stream=? AND ts<=?
		ORDER BY ts, t, wall_offset, row`
	stored := int64(0)
	err := s.db.Query(q, func(v []driver.Value) error {
		ts := v[0].(int64)
		for next < len(stay) && stay[next].first <= ts {
			times = nil
			if stay[next].last >= ts {
				b, err := s.segmentBytes(k, stay[next].seq)
				if err != nil {
					return err
				}
				if times, err = segment.Times(b, s.opt.Segment); err != nil {
					times = nil // it can't be proved to hold anything
				}
			}
			next++
		}
		_, held := slices.BinarySearch(times, ts)
		inWal := v[5].(int64) == 0
		if inWal {
			stored++
		}
		switch {
		case held && inWal:
			s.counts.RowsSuperseded++
		case held:
			s.counts.RowsHeld++
		default:
			s.counts.RowsBelowWatermark++
			r := rowOf(v)
			if inWal {
				// A stored row has no place of its own: it is the one of the
				// segment that hides it.
				i, _ := slices.BinarySearchFunc(stay, ts, func(c *candidate, ts int64) int { return cmp.Compare(c.last, ts) })
				r.Place = stay[i].place
			}
			return s.set.Row(k.source, k.stream, r, KindRowBelowWatermark)
		}
		return nil
	}, k.source, k.stream, w, k.source, k.stream, w, k.source, k.stream, w)
	if err != nil {
		return s.wrap(err)
	}
	if stored == 0 {
		return nil
	}
	s.counts.Rows -= stored
	_, err = s.db.Change("DELETE FROM wal WHERE source_id=? AND stream=? AND ts<=?", k.source, k.stream, w)
	return s.wrap(err)
}

// resolveAbove stores the rows that turned out to be live after all, and sets
// aside what differs from a live row.
func (s *Stage) resolveAbove(k streamKey, w int64, hasW bool) error {
	above := "WHERE source=? AND stream=? AND (ts>? OR ?) ORDER BY ts"
	var moved []Row
	store := func() error {
		if len(moved) == 0 {
			return nil
		}
		rows := moved
		moved = moved[:0]
		return s.addLive(k.source, k.stream, rows)
	}
	err := s.db.Query("SELECT ts, wall_offset, row, conn, off FROM work.low "+above, func(v []driver.Value) error {
		moved = append(moved, rowOf(v))
		if len(moved) < rowsPerInsert {
			return nil
		}
		return store()
	}, k.source, k.stream, w, !hasW)
	if err == nil {
		err = store()
	}
	if err != nil {
		return s.wrap(err)
	}
	err = s.db.Query("SELECT ts, wall_offset, row, conn, off FROM work.conflict "+above+", sha", func(v []driver.Value) error {
		s.counts.RowsConflicting++
		return s.set.Row(k.source, k.stream, rowOf(v), KindRowConflict)
	}, k.source, k.stream, w, !hasW)
	return s.wrap(err)
}

func rowOf(v []driver.Value) Row {
	return Row{TS: v[0].(int64), WallOffset: v[1].(int64), Bytes: bytesOf(v[2]), Place: Place{int(v[3].(int64)), v[4].(int64)}}
}

// renumber gives the segments that stay the numbers 0, 1, … in time order
// (section 3, rule 5).
func (s *Stage) renumber(k streamKey, segs []candidate) error {
	n := int64(0)
	changed := false
	for i := range segs {
		if !segs[i].gone {
			s.counts.Segments++
			changed = changed || segs[i].seq != n
			n++
		}
	}
	if !changed {
		return nil
	}
	tables := []string{"segments"}
	if s.opt.Schema != SchemaOld {
		tables = append(tables, "segment_indexes")
	}
	// Through negative numbers, so that no two ever meet.
	n = 0
	for i := range segs {
		c := &segs[i]
		if c.gone {
			continue
		}
		for _, t := range tables {
			if _, err := s.db.Change("UPDATE "+t+" SET seq=? WHERE source_id=? AND stream=? AND seq=?", -1-n, k.source, k.stream, c.seq); err != nil {
				return s.wrap(err)
			}
		}
		c.seq = n
		n++
	}
	for _, t := range tables {
		if _, err := s.db.Change("UPDATE "+t+" SET seq=-1-seq WHERE source_id=? AND stream=? AND seq<0", k.source, k.stream); err != nil {
			return s.wrap(err)
		}
	}
	return nil
}

// resolveIndex applies section 5 to the index entries. Connections are numbered
// newest first, so the oldest is the largest number.
func (s *Stage) resolveIndex() error {
	q := `SELECT e.source, e.stream, e.ts, e.blob, x.n FROM work.entry e JOIN
		(SELECT entry, max(n) AS n, max(conn) AS oldest FROM work.entry_in GROUP BY entry) x ON x.entry=e.id
		JOIN work.entry_in o ON o.entry=e.id AND o.conn=x.oldest
		ORDER BY e.source, e.ts, x.oldest DESC, o.pos`
	for _, several := range []string{"SELECT DISTINCT source FROM work.clock WHERE differs",
		"SELECT DISTINCT source FROM (SELECT source FROM work.entry GROUP BY source, stream, ts HAVING count(*)>1)"} {
		if err := s.db.Query(several, func(v []driver.Value) error { s.ordered[v[0].(int64)] = true; return nil }); err != nil {
			return s.wrap(err)
		}
	}
	err := s.db.Query(q, func(v []driver.Value) error {
		for range v[4].(int64) {
			if _, err := s.db.Change("INSERT INTO caller_rows VALUES (?,?,?,?)", v[0], v[1], v[2], blob(bytesOf(v[3]))); err != nil {
				return err
			}
			s.counts.IndexEntries++
		}
		return nil
	})
	return s.wrap(err)
}
