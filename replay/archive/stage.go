package archive

import (
	"cmp"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"wiretape/internal/unfinished"
	"wiretape/replay/internal/db"
	"wiretape/replay/segment"
)

// Place is where a contribution lies: the connection by the number that the
// engine gave it, and the offset of its frame there.
type Place struct {
	Conn   int
	Offset int64
}

// Row is one live row as a Rows frame carries it.
type Row struct {
	TS, WallOffset int64
	Bytes          []byte
	Place          Place
}

// Segment is one Segment frame with what its check gave.
type Segment struct {
	Rows            uint64
	FirstTS, LastTS int64
	Bytes           []byte
	CallerIndex     []byte
	HasCallerIndex  bool
	SHA             [32]byte
	Check           segment.Result
	Place           Place
}

// Options are how a stage is made.
type Options struct {
	// Schema is SchemaCurrent or SchemaOld; 0 is SchemaCurrent.
	Schema int
	// Segment is how deep segments are checked when a rule needs their time
	// column; its DecodedLimit holds here too.
	Segment segment.Options
	// Lock is the archive's, where the caller has it already and keeps it; nil
	// for the stage to take it.
	Lock *unfinished.Lock
}

// Stage is an archive under construction. It is used by one goroutine.
//
// Contributions must come connection by connection, the newest connection of
// each source first (docs/merging.md, section 2): of two rows that differ the one that
// came first stays.
type Stage struct {
	path   string // of the finished archive
	tmp    string
	folder *unfinished.Folder // in which tmp lies
	contents
	opt     Options
	pending int64 // bytes in the open transaction
	open    bool
	streams map[streamKey]*streamState
	// held is how many bytes of maxStreamBytes streams takes; spilled: some
	// lie in work.stream.
	held    int
	spilled bool
	// conflicts: there are rows in work.conflict.
	conflicts bool
	// ordered are the sources of which connections contribute what differs.
	ordered map[int64]bool
	counts  Counts
	set     SetAside
	rowVals []any
}

// Counts are what a stage did, in the words of the report.
type Counts struct {
	Rows, RowsHeld, RowsConflicting, RowsBelowWatermark, RowsSuperseded int64
	Segments, SegmentsHeld, SegmentsQuarantined                         int64
	IndexEntries, ClockOffsets                                          int64
}

// SetAside takes what can't be in the archive. The bytes are good during the
// call.
type SetAside interface {
	// Row takes a row; why is a finding's kind.
	Row(source int64, stream string, r Row, why string) error
	// Segment takes a segment.
	Segment(source int64, stream string, s Segment, why string) error
}

type streamKey struct {
	source int64
	stream string
}

type streamState struct {
	nextSeq int64
	// reach is the newest last_ts of the segments that came so far.
	reach    int64
	hasReach bool
	lastTS   int64 // of the segment with the highest seq
	sorted   bool
}

// The finding kinds of docs/merging.md's rules.
const (
	// KindRowConflict: a row that differs from the one that is kept at its time.
	KindRowConflict = "row-conflict"
	// KindRowBelowWatermark: a row at or below the newest sealed row of its
	// stream that is in no segment: no reader sees it.
	KindRowBelowWatermark = "row-below-watermark"
	// KindSegmentConflict: a segment that overlaps another one that holds more.
	KindSegmentConflict = "segment-conflict"
	// KindSegmentClaims: a segment with the bytes of one that is kept and other
	// claims about them.
	KindSegmentClaims = "segment-claims-differ"
	// KindSegmentUnproved: a segment that can't be proved to hold the rows that
	// it would hide.
	KindSegmentUnproved = "segment-unproved"
)

const (
	// rowsPerInsert is how many rows one statement carries; more gain nothing.
	rowsPerInsert = 100
	// maxStreamBytes is how much the states of streams take in memory, with
	// streamOverhead bytes for each: further ones lie in the work database.
	maxStreamBytes = 8 << 20
	streamOverhead = 128
	// commitBytes is how much one transaction of a build holds.
	commitBytes = 64 << 20
)

// stageName is the archive's file in its unfinished folder.
const stageName = "archive"

// NewStage starts an archive that will be named path, in an unfinished folder
// beside it, under the conditions of [unfinished.Start].
func NewStage(path string, opt Options, set SetAside) (*Stage, error) {
	if opt.Schema == 0 {
		opt.Schema = SchemaCurrent
	}
	if opt.Schema != SchemaCurrent && opt.Schema != SchemaOld {
		return nil, fmt.Errorf("schema %d: an archive is %d or %d", opt.Schema, SchemaCurrent, SchemaOld)
	}
	if err := alone(path); err != nil {
		return nil, err
	}
	start := func() (*unfinished.Folder, error) { return unfinished.Start(path) }
	if opt.Lock != nil {
		start = opt.Lock.Start
	}
	folder, err := start()
	if err != nil {
		return nil, err
	}
	tmp := filepath.Join(folder.Path(), stageName)
	var d *db.DB
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		d, err = db.Open(tmp, db.Create)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the archive %s: %w", tmp, err), folder.Abandon())
	}
	s := &Stage{path: path, tmp: tmp, folder: folder, contents: contents{d}, opt: opt, set: set, streams: map[streamKey]*streamState{}, ordered: map[int64]bool{}}
	// A build is renamed when it is whole, so nothing of it needs to survive a
	// crash. PERSIST without syncs costs what OFF does and keeps ROLLBACK defined;
	// in MEMORY the pages that a transaction changes would be, which are all of
	// the index where rows of one archive come between those of another.
	setup := []string{
		pragma("page_size", pageSize), "PRAGMA auto_vacuum=INCREMENTAL",
		"PRAGMA journal_mode=PERSIST", "PRAGMA synchronous=OFF", "PRAGMA locking_mode=EXCLUSIVE",
		"PRAGMA foreign_keys=OFF", "PRAGMA temp_store=FILE", "ATTACH '' AS work",
		"PRAGMA work.journal_mode=OFF", "PRAGMA work.synchronous=OFF",
	}
	setup = append(setup, tablesFor(opt.Schema)...)
	setup = append(setup, workTables...)
	if err := d.Run(setup...); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the archive %s: %w", tmp, err), s.Abort())
	}
	return s, nil
}

// alone refuses a name beside which lies what SQLite would take for the new
// archive's own, and apply to it or overwrite: a *unfinished.ForeignError. What
// readers of an archive leave that has gone, a log without content and its
// index, is none.
func alone(path string) error {
	for _, ext := range []string{"-wal", "-shm", "-journal"} {
		info, err := os.Lstat(path + ext)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() && (info.Size() == 0 || ext == "-shm" && isIndex(path+ext)) {
			continue
		}
		return &unfinished.ForeignError{Path: path + ext}
	}
	return nil
}

// isIndex says that a file begins as SQLite's index of a log does.
func isIndex(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [4]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && binary.NativeEndian.Uint32(b[:]) == 3007000
}

// Folder is where the stage lies until it is finished. What else is there then
// is removed.
func (s *Stage) Folder() string { return s.folder.Path() }

// Abort closes the stage and removes its folder.
func (s *Stage) Abort() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
		s.db = nil
	}
	return errors.Join(err, s.folder.Abandon())
}

// Ordered says, after Resolve, that the order of a source's connections decided
// something of it, or may have.
func (s *Stage) Ordered(source int64) bool { return s.ordered[source] }

// Counts are what was done so far.
func (s *Stage) Counts() Counts { return s.counts }

func (s *Stage) begin(bytes int) error {
	if s.open && s.pending+int64(bytes) > commitBytes {
		if err := s.commit(); err != nil {
			return err
		}
	}
	s.pending += int64(bytes)
	if s.open {
		return nil
	}
	_, err := s.db.Change("BEGIN")
	s.open = err == nil
	return s.wrap(err)
}

func (s *Stage) commit() error {
	if !s.open {
		return nil
	}
	s.open, s.pending = false, 0
	_, err := s.db.Change("COMMIT")
	return s.wrap(err)
}

func (s *Stage) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("writing the archive %s: %w", s.tmp, err)
}

// stream is the state of a stream, good until the next call. It is called with
// a transaction open.
func (s *Stage) stream(source int64, stream string) (*streamState, error) {
	k := streamKey{source, stream}
	if st := s.streams[k]; st != nil {
		return st, nil
	}
	if s.held > maxStreamBytes {
		if err := s.spill(); err != nil {
			return nil, err
		}
	}
	st := &streamState{sorted: true}
	if s.spilled {
		_, err := s.db.One("SELECT next_seq, reach, last_ts, sorted FROM work.stream WHERE source=? AND stream=?", func(v []driver.Value) error {
			st.nextSeq, st.lastTS, st.sorted = v[0].(int64), v[2].(int64), v[3].(int64) != 0
			st.reach, st.hasReach = v[1].(int64)
			return nil
		}, source, stream)
		if err != nil {
			return nil, s.wrap(err)
		}
	}
	s.streams[k] = st
	s.held += len(stream) + streamOverhead
	return st, nil
}

// spill puts the states of streams into the work database.
func (s *Stage) spill() error {
	for k, st := range s.streams {
		var reach any
		if st.hasReach {
			reach = st.reach
		}
		sorted := int64(0)
		if st.sorted {
			sorted = 1
		}
		if _, err := s.db.Change(`INSERT INTO work.stream VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE
			SET next_seq=excluded.next_seq, reach=excluded.reach, last_ts=excluded.last_ts, sorted=excluded.sorted`,
			k.source, k.stream, st.nextSeq, reach, st.lastTS, sorted); err != nil {
			return s.wrap(err)
		}
	}
	clear(s.streams)
	s.held, s.spilled = 0, true
	return nil
}

// eachStream gives every stream in order of source and name.
func (s *Stage) eachStream(fn func(k streamKey, st *streamState) error) error {
	if !s.spilled {
		keys := slices.SortedFunc(maps.Keys(s.streams), func(a, b streamKey) int {
			return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.stream, b.stream))
		})
		for _, k := range keys {
			if err := fn(k, s.streams[k]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	at := streamKey{} // before all: ids begin with 1
	for {
		var st streamState
		found, err := s.db.One(`SELECT source, stream, next_seq, last_ts, sorted FROM work.stream
			WHERE (source, stream) > (?, ?) ORDER BY source, stream LIMIT 1`, func(v []driver.Value) error {
			at = streamKey{v[0].(int64), v[1].(string)}
			st.nextSeq, st.lastTS, st.sorted = v[2].(int64), v[3].(int64), v[4].(int64) != 0
			return nil
		}, at.source, at.stream)
		if err != nil {
			return s.wrap(err)
		}
		if !found {
			return nil
		}
		if err := fn(at, &st); err != nil {
			return err
		}
	}
}

// inserts is the statement that stores n rows and leaves repeats out.
func inserts(table, group string, n int) string {
	return "INSERT OR IGNORE INTO " + table + " VALUES " + strings.TrimSuffix(strings.Repeat(group+",", n), ",")
}

// AddRows contributes rows of one stream (docs/merging.md, section 4). stream must be
// valid UTF-8; rows may repeat.
func (s *Stage) AddRows(source int64, stream string, rows []Row) error {
	if err := s.begin(0); err != nil {
		return err
	}
	st, err := s.stream(source, stream)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := 0
		size := 0
		low := st.hasReach && rows[0].TS <= st.reach
		for n < len(rows) && n < rowsPerInsert && (st.hasReach && rows[n].TS <= st.reach) == low {
			size += len(rows[n].Bytes) + 64
			n++
		}
		if err := s.begin(size); err != nil {
			return err
		}
		add := s.addLive
		if low {
			add = s.addLow
		}
		if err := add(source, stream, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// addLive stores rows above every segment that came so far. A repeat is left
// out by SQLite, and only then looked at.
func (s *Stage) addLive(source int64, stream string, rows []Row) error {
	s.rowVals = s.rowVals[:0]
	var src, str any = source, stream
	for i := range rows {
		s.rowVals = append(s.rowVals, src, str, rows[i].TS, rows[i].WallOffset, blob(rows[i].Bytes))
	}
	n, err := s.db.Change(inserts("wal", "(?,?,?,?,?)", len(rows)), s.rowVals...)
	if err != nil {
		return s.wrap(err)
	}
	s.counts.Rows += n
	if n == int64(len(rows)) {
		return nil
	}
	return s.repeats("wal", source, stream, rows, int64(len(rows))-n)
}

// addLow keeps rows at or below a segment's last_ts until it is known which
// segments stay.
func (s *Stage) addLow(source int64, stream string, rows []Row) error {
	s.rowVals = s.rowVals[:0]
	for i := range rows {
		s.rowVals = append(s.rowVals, source, stream, rows[i].TS, rows[i].WallOffset, blob(rows[i].Bytes),
			int64(rows[i].Place.Conn), rows[i].Place.Offset)
	}
	n, err := s.db.Change(inserts("work.low", "(?,?,?,?,?,?,?)", len(rows)), s.rowVals...)
	if err != nil {
		return s.wrap(err)
	}
	if n == int64(len(rows)) {
		return nil
	}
	return s.repeats("work.low", source, stream, rows, int64(len(rows))-n)
}

// repeats finds which of rows were left out of table because another row has
// their key: an equal one is held, an unequal one waits until it is known
// whether a segment holds its time anyway.
func (s *Stage) repeats(table string, source int64, stream string, rows []Row, left int64) error {
	for i := range rows {
		differs, err := s.differs(table, source, stream, rows[i])
		if err != nil {
			return err
		}
		if !differs {
			continue
		}
		left--
		if err := s.addConflict(source, stream, rows[i]); err != nil {
			return err
		}
	}
	s.counts.RowsHeld += left
	return nil
}

// differs says that table holds another row than r at r's key.
func (s *Stage) differs(table string, source int64, stream string, r Row) (bool, error) {
	// The database compares: a row that is read here is in memory once more.
	differs := false
	q := "SELECT wall_offset<>? OR row<>? FROM " + table + " WHERE source" + idColumn(table) + "=? AND stream=? AND ts=?"
	_, err := s.db.One(q, func(v []driver.Value) error { differs = v[0].(int64) != 0; return nil }, r.WallOffset, blob(r.Bytes), source, stream, r.TS)
	return differs, s.wrap(err)
}

func (s *Stage) addConflict(source int64, stream string, r Row) error {
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(r.WallOffset)))
	h.Write(r.Bytes)
	n, err := s.db.Change("INSERT OR IGNORE INTO work.conflict VALUES (?,?,?,?,?,?,?,?)", source, stream, r.TS, h.Sum(nil),
		r.WallOffset, blob(r.Bytes), int64(r.Place.Conn), r.Place.Offset)
	s.conflicts, s.ordered[source] = true, true
	if n == 0 && err == nil {
		s.counts.RowsHeld++
	}
	return s.wrap(err)
}

func idColumn(table string) string {
	if table == "wal" {
		return "_id"
	}
	return ""
}

// blob makes an empty value an empty BLOB: the driver takes nil for NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func bytesOf(v driver.Value) []byte {
	switch b := v.(type) {
	case []byte:
		return b
	case string:
		return []byte(b)
	}
	return nil
}

// AddSegment contributes a segment whose check found no fault (docs/merging.md,
// section 3). Equal bytes are one segment: a repeat is held.
func (s *Stage) AddSegment(source int64, stream string, g Segment) error {
	if err := s.begin(len(g.Bytes) + len(g.CallerIndex)); err != nil {
		return err
	}
	st, err := s.stream(source, stream)
	if err != nil {
		return err
	}
	var seq, hasIndex int64
	same := false
	found, err := s.db.One("SELECT seq, has_index, rows, first_ts, last_ts FROM work.seg WHERE source=? AND stream=? AND sha=?", func(v []driver.Value) error {
		seq, hasIndex = v[0].(int64), v[1].(int64)
		same = v[2] == int64(g.Rows) && v[3] == g.FirstTS && v[4] == g.LastTS
		return nil
	}, source, stream, g.SHA[:])
	if err != nil {
		return s.wrap(err)
	}
	if found && !same {
		// Only without checks: at most one of the claims is true.
		s.counts.SegmentsQuarantined++
		g.Check = segment.Result{}
		return s.set.Segment(source, stream, g, KindSegmentClaims)
	}
	if found {
		s.counts.SegmentsHeld++
		if g.HasCallerIndex && hasIndex == 0 {
			if err := s.putIndex(source, stream, seq, g.CallerIndex); err != nil {
				return err
			}
			_, err = s.db.Change("UPDATE work.seg SET has_index=1 WHERE source=? AND stream=? AND sha=?", source, stream, g.SHA[:])
		}
		return s.wrap(err)
	}
	seq = st.nextSeq
	st.nextSeq++
	if seq > 0 && g.FirstTS <= st.lastTS {
		st.sorted = false
	}
	st.lastTS = max(st.lastTS, g.LastTS)
	if seq == 0 {
		st.lastTS = g.LastTS
	}
	if g.Check.Proved && (!st.hasReach || g.LastTS > st.reach) {
		st.reach, st.hasReach = g.LastTS, true
	}
	cols := "INSERT INTO segments(source_id, stream, seq, rows, first_ts, last_ts, bytes) VALUES (?,?,?,?,?,?,?)"
	if _, err := s.db.Change(cols, source, stream, seq, int64(g.Rows), g.FirstTS, g.LastTS, blob(g.Bytes)); err != nil {
		return s.wrap(err)
	}
	if g.HasCallerIndex {
		if err := s.putIndex(source, stream, seq, g.CallerIndex); err != nil {
			return err
		}
		hasIndex = 1
	}
	proved, distincts := int64(0), int64(0)
	if g.Check.Proved {
		proved, distincts = 1, int64(g.Check.Distinct)
	}
	_, err = s.db.Change("INSERT INTO work.seg VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", source, stream, g.SHA[:], seq, int64(g.Rows),
		g.FirstTS, g.LastTS, proved, distincts, int64(g.Place.Conn), g.Place.Offset, hasIndex)
	return s.wrap(err)
}

func (s *Stage) putIndex(source int64, stream string, seq int64, b []byte) error {
	q := "INSERT INTO segment_indexes VALUES (?,?,?,?)"
	args := []any{source, stream, seq, blob(b)}
	if s.opt.Schema == SchemaOld {
		q = "UPDATE segments SET caller_index=? WHERE source_id=? AND stream=? AND seq=?"
		args = []any{blob(b), source, stream, seq}
	}
	_, err := s.db.Change(q, args...)
	return s.wrap(err)
}

// AddIndex contributes an index entry (docs/merging.md, section 5). pos orders the
// entries of one connection.
func (s *Stage) AddIndex(source int64, stream string, ts int64, b []byte, conn int, pos int64) error {
	if err := s.begin(len(b) + 64); err != nil {
		return err
	}
	sha := sha256.Sum256(b)
	if _, err := s.db.Change("INSERT OR IGNORE INTO work.entry(source,stream,ts,sha,blob) VALUES (?,?,?,?,?)", source, stream, ts, sha[:], blob(b)); err != nil {
		return s.wrap(err)
	}
	_, err := s.db.Change(`INSERT INTO work.entry_in SELECT id, ?, 1, ? FROM work.entry WHERE source=? AND stream=? AND ts=? AND sha=?
		ON CONFLICT DO UPDATE SET n=n+1`, int64(conn), pos, source, stream, ts, sha[:])
	return s.wrap(err)
}

// AddClock contributes a clock observation (docs/merging.md, section 5): of a source's
// connections the oldest one's stays, and in one connection the first.
func (s *Stage) AddClock(source, ts, offsetNs int64, conn int) error {
	if err := s.begin(32); err != nil {
		return err
	}
	_, err := s.db.Change(`INSERT INTO work.clock VALUES (?,?,?,?,0) ON CONFLICT DO UPDATE
		SET differs=differs OR offset_ns<>excluded.offset_ns, offset_ns=excluded.offset_ns, conn=excluded.conn
		WHERE conn<>excluded.conn`, source, ts, offsetNs, int64(conn))
	return s.wrap(err)
}

// CountQuarantined counts a segment that was set aside before it came here.
func (s *Stage) CountQuarantined() { s.counts.SegmentsQuarantined++ }
