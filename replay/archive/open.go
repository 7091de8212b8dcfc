package archive

// This file opens a finished archive to read it. Nothing is written, neither to
// the archive nor beside it, and read-only media are fine.

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"wiretape/replay/internal/db"
	"wiretape/wire"
)

// headerSize is how much of the file tells whether it is an archive
// (docs/merging.md, The archive itself).
const headerSize = 100

const sqliteMagic = "SQLite format 3\x00"

// MaxBlob is the largest value that is read from an archive: a frame's limit
// with room for archives that never were a stream.
const MaxBlob = 256 << 20

// NotArchiveError says why a file is no archive that can be read here.
type NotArchiveError struct{ Path, Reason string }

// Error says it in one line.
func (e *NotArchiveError) Error() string { return e.Path + " is not a dendro archive: " + e.Reason }

// ErrChanged: somebody wrote to the archive while it was read, so what was read
// may be no state that it ever had.
var ErrChanged = errors.New("the archive changed while it was read")

// Archive is a finished archive being read. It is used by one goroutine.
type Archive struct {
	// Path as it was given.
	Path string
	// Schema is 4 or 5.
	Schema int

	db    *db.DB
	real  string // Path without links
	stamp fileStamp
	fixed bool // read as immutable: the stamp must hold
}

type fileStamp struct {
	size, mtime int64
	wal         bool
}

func stampOf(path string) (s fileStamp, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() {
		return s, &NotArchiveError{path, "not a regular file"}
	}
	s = fileStamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if w, err := os.Stat(path + "-wal"); err == nil && w.Size() > 0 {
		s.wal = true
	}
	return s, nil
}

// Detect looks at a file's first bytes: the schema of a dendro archive, or a
// *NotArchiveError.
func Detect(path string) (schema int, err error) {
	if _, err := stampOf(path); err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var h [headerSize]byte
	if n, err := io.ReadFull(f, h[:]); err != nil {
		return 0, &NotArchiveError{path, fmt.Sprintf("it has %d bytes, too few for one", n)}
	}
	version, id := binary.BigEndian.Uint32(h[60:]), binary.BigEndian.Uint32(h[68:])
	switch {
	case string(h[:len(sqliteMagic)]) != sqliteMagic:
		return 0, &NotArchiveError{path, "not a SQLite database"}
	case id != ApplicationID:
		return 0, &NotArchiveError{path, fmt.Sprintf("a SQLite database with application id %#x", id)}
	case version != SchemaOld && version != SchemaCurrent:
		return 0, &NotArchiveError{path, fmt.Sprintf("schema %d; %d and %d are known here", version, SchemaOld, SchemaCurrent)}
	}
	return int(version), nil
}

// Open opens an archive to read it, in one snapshot. A file that is no archive
// is a *NotArchiveError.
//
// An archive whose commits are all in its main file is read as immutable, which
// needs no lock and makes no file beside it; Close then tells whether it stayed
// as it was. One that has a write-ahead log (somebody writes to it, or died
// while doing so) is read through that log.
func Open(path string) (*Archive, error) {
	schema, err := Detect(path)
	if err != nil {
		return nil, err
	}
	// The log lies beside the file, not beside a link to it.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	stamp, err := stampOf(real)
	if err != nil {
		return nil, err
	}
	mode := db.ReadOnly
	if !stamp.wal {
		mode = db.Immutable
	}
	d, err := db.Open(real, mode)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	a := &Archive{Path: path, Schema: schema, db: d, real: real, stamp: stamp, fixed: !stamp.wal}
	// What a database can be made to run is shut out; a transaction makes all
	// reads one snapshot.
	err = d.Run("PRAGMA query_only=1", "PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON",
		"PRAGMA ignore_check_constraints=ON", "PRAGMA temp_store=MEMORY", "BEGIN")
	if err == nil {
		err = a.checkExpressions()
	}
	if err == nil {
		err = a.checkTables()
	}
	if err != nil {
		if stamp.wal && strings.Contains(err.Error(), "unable to open") {
			err = fmt.Errorf("%w: its write-ahead log can only be read where files can be made beside it: copy the archive and its -wal", err)
		}
		return nil, errors.Join(wrapOpen(path, err), d.Close())
	}
	return a, nil
}

func wrapOpen(path string, err error) error {
	var not *NotArchiveError
	if errors.As(err, &not) {
		return err
	}
	return fmt.Errorf("opening %s: %w", path, err)
}

// Close ends the reading. It gives ErrChanged when what was read may be no state
// that the archive ever had.
func (a *Archive) Close() error {
	err := a.db.Close()
	if now, e := stampOf(a.real); a.fixed && (e != nil || now != a.stamp) {
		err = errors.Join(err, fmt.Errorf("%s: %w", a.Path, ErrChanged))
	}
	return err
}

// columns that every archive has (docs/merging.md, The archive itself); schema 5 has two
// tables more, schema 4 a column.
func columnsFor(schema int) map[string]string {
	c := map[string]string{
		"sources":       "id labels metadata complete clock_anchor_wall_ns uuid",
		"segments":      "source_id stream seq rows first_ts last_ts bytes",
		"wal":           "source_id stream ts wall_offset row",
		"clock_offsets": "source_id ts offset_ns",
		"caller_rows":   "source_id stream ts blob",
	}
	if schema == SchemaOld {
		c["segments"] += " caller_index"
	} else {
		c["segment_indexes"] = "source_id stream seq bytes"
		c["documents"] = "id uuid kind name schema body"
	}
	return c
}

// checkExpressions refuses a schema that makes SQLite compute values while it
// reads: an archive has no such thing, and an expression may cost anything.
func (a *Archive) checkExpressions() error {
	for what, q := range map[string]string{
		"an index over an expression": "SELECT m.name FROM sqlite_schema m, pragma_index_list(m.name) l, pragma_index_xinfo(l.name) x WHERE m.type='table' AND x.cid=-2",
		"a partial index":             "SELECT m.name FROM sqlite_schema m, pragma_index_list(m.name) l WHERE m.type='table' AND l.partial",
		"a generated column":          "SELECT m.name FROM sqlite_schema m, pragma_table_xinfo(m.name) x WHERE m.type='table' AND x.hidden>1",
	} {
		err := a.db.Query(q, func(v []driver.Value) error {
			return &NotArchiveError{a.Path, "its table " + wire.SafeText(textOf(v[0]), 80) + " has " + what}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkTables makes sure that what is asked for below is tables, and that they
// have the columns: a view of the same name could be anything.
func (a *Archive) checkTables() error {
	want := columnsFor(a.Schema)
	names := make([]string, 0, len(want))
	for t := range want {
		names = append(names, t)
	}
	sort.Strings(names)
	for _, table := range names {
		isTable := false
		// A virtual table has no root page.
		err := a.db.Query("SELECT 1 FROM sqlite_schema WHERE type='table' AND rootpage>0 AND name=?", func([]driver.Value) error {
			isTable = true
			return nil
		}, table)
		if err != nil {
			return err
		}
		if !isTable {
			return &NotArchiveError{a.Path, "it has no table " + table}
		}
		have := map[string]bool{}
		err = a.db.Query("SELECT name FROM pragma_table_info(?)", func(v []driver.Value) error {
			have[textOf(v[0])] = true
			return nil
		}, table)
		if err != nil {
			return err
		}
		for _, c := range strings.Fields(want[table]) {
			if !have[c] {
				return &NotArchiveError{a.Path, "its table " + table + " has no column " + c}
			}
		}
	}
	return nil
}

// textOf is a value as text, whatever type it has: SQLite keeps types by value.
func textOf(v driver.Value) string {
	switch t := v.(type) {
	case string:
		return t
	case []byte:
		return string(t)
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}

// ValueError says that a table's row holds what its column can't have.
type ValueError struct{ Table, Column, Got string }

// Error says it in one line.
func (e *ValueError) Error() string {
	return "a row of the table " + e.Table + " has " + e.Got + " in its column " + e.Column
}

// record reads the columns of one row and remembers the first that is wrong.
type record struct {
	table string
	v     []driver.Value
	i     int
	err   error
}

func (r *record) fail(column string, v driver.Value) {
	if r.err == nil {
		got := map[bool]string{true: "nothing", false: fmt.Sprintf("a value of type %T", v)}[v == nil]
		r.err = &ValueError{r.table, column, got}
	}
}

func (r *record) next() driver.Value {
	r.i++
	return r.v[r.i-1]
}

func (r *record) num(column string) int64 {
	v := r.next()
	n, ok := v.(int64)
	if !ok {
		r.fail(column, v)
	}
	return n
}

func (r *record) text(column string) string {
	v := r.next()
	s, ok := v.(string)
	if !ok {
		r.fail(column, v)
	} else if !utf8.ValidString(s) && r.err == nil {
		r.err = &ValueError{r.table, column, "text that is not UTF-8"}
	}
	return s
}

// blob is valid until the next row.
func (r *record) blob(column string) []byte {
	v := r.next()
	b, ok := v.([]byte)
	if !ok {
		r.fail(column, v)
	}
	return b
}

// SourceRow is one row of `sources` as it was found.
type SourceRow struct {
	Source
	// HasUUID: an absent uuid means unknown.
	HasUUID bool
}

// Sources are the rows of `sources`, by id.
func (a *Archive) Sources() ([]SourceRow, error) {
	var all []SourceRow
	err := a.db.Query("SELECT id, labels, metadata, complete, clock_anchor_wall_ns, uuid FROM sources ORDER BY id", func(v []driver.Value) error {
		r := record{table: "sources", v: v}
		s := SourceRow{HasUUID: v[5] != nil}
		s.ID = r.num("id")
		labels, metadata := r.text("labels"), r.text("metadata")
		s.Complete = r.num("complete") != 0
		s.ClockAnchorWallNs = r.num("clock_anchor_wall_ns")
		if s.HasUUID {
			s.UUID = r.text("uuid")
		}
		if r.err != nil {
			return r.err
		}
		for column, text := range map[string]string{"labels": labels, "metadata": metadata} {
			into := &s.Labels
			if column == "metadata" {
				into = &s.Metadata
			}
			if err := json.Unmarshal([]byte(text), into); err != nil || *into == nil {
				return &ValueError{"sources", column, "what is not a JSON object of strings"}
			}
		}
		all = append(all, s)
		return nil
	})
	return all, a.wrap(err)
}

func (a *Archive) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading the archive %s: %w", a.Path, err)
}

// SegmentRow is one row of `segments` without its bytes.
type SegmentRow struct {
	Source          int64
	Stream          string
	Seq             int64
	Rows            int64
	FirstTS, LastTS int64
	// Length of the bytes, and of the caller index where there is one.
	Length      int64
	IndexLength int64
	HasIndex    bool
}

// Segments calls fn with the segments of a source, by stream and in the order
// in which readers take them. fn may read the archive.
func (a *Archive) Segments(source int64, fn func(SegmentRow) error) error {
	q := `SELECT s.stream, s.seq, s.rows, s.first_ts, s.last_ts, octet_length(s.bytes), octet_length(x.bytes)
		FROM segments s LEFT JOIN segment_indexes x ON x.source_id=s.source_id AND x.stream=s.stream AND x.seq=s.seq
		WHERE s.source_id=? ORDER BY s.stream, s.seq`
	if a.Schema == SchemaOld {
		q = `SELECT stream, seq, rows, first_ts, last_ts, octet_length(bytes), octet_length(caller_index)
			FROM segments WHERE source_id=? ORDER BY stream, seq`
	}
	return a.wrap(a.db.Query(q, func(v []driver.Value) error {
		r := record{table: "segments", v: v}
		s := SegmentRow{Source: source, Stream: r.text("stream"), Seq: r.num("seq"), Rows: r.num("rows"),
			FirstTS: r.num("first_ts"), LastTS: r.num("last_ts"), Length: r.num("bytes"), HasIndex: v[6] != nil}
		if s.HasIndex {
			s.IndexLength = r.num("caller index")
		}
		if r.err != nil {
			return r.err
		}
		return fn(s)
	}, source))
}

// SegmentBytes are a segment's Parquet file, not above MaxBlob.
func (a *Archive) SegmentBytes(s SegmentRow) ([]byte, error) {
	return a.one("segments", "bytes", s.Length, "SELECT bytes FROM segments WHERE source_id=? AND stream=? AND seq=?", s.Source, s.Stream, s.Seq)
}

// CallerIndex is a segment's caller index; SegmentRow.HasIndex says whether
// there is one.
func (a *Archive) CallerIndex(s SegmentRow) ([]byte, error) {
	if a.Schema == SchemaOld {
		return a.one("segments", "caller_index", s.IndexLength, "SELECT caller_index FROM segments WHERE source_id=? AND stream=? AND seq=?", s.Source, s.Stream, s.Seq)
	}
	return a.one("segment_indexes", "bytes", s.IndexLength, "SELECT bytes FROM segment_indexes WHERE source_id=? AND stream=? AND seq=?", s.Source, s.Stream, s.Seq)
}

func (a *Archive) one(table, column string, length int64, q string, args ...any) (b []byte, err error) {
	if length > MaxBlob {
		return nil, a.wrap(&ValueError{table, column, wire.Itoa(length) + " bytes, more than is read"})
	}
	found := false
	err = a.db.Query(q, func(v []driver.Value) error {
		r := record{table: table, v: v}
		b, found = r.blob(column), true
		return r.err
	}, args...)
	if err == nil && !found {
		err = &ValueError{table, column, "nothing"}
	}
	return b, a.wrap(err)
}

// RowOf is one row of `wal`. Bytes is the caller's.
type RowOf struct {
	Stream         string
	TS, WallOffset int64
	Bytes          []byte
}

// Rows calls fn with the rows of a source's `wal` by stream and time.
func (a *Archive) Rows(source int64, fn func(RowOf) error) error {
	return a.rowsAfter(source, nil, -1, fn)
}

// rowsAfter starts behind a row and gives at most limit rows that fit into a
// frame, or all with -1.
func (a *Archive) rowsAfter(source int64, after *RowOf, limit int, fn func(RowOf) error) error {
	from, args := "", []any{source}
	if after != nil {
		from, args = " AND (stream, ts) > (?, ?)", append(args, after.Stream, after.TS)
	}
	if limit >= 0 {
		from += fits("row")
	}
	q := "SELECT stream, ts, wall_offset, row FROM wal WHERE source_id=?" + from + " ORDER BY stream, ts LIMIT ?"
	return a.wrap(a.db.Query(q, func(v []driver.Value) error {
		r := record{table: "wal", v: v}
		row := RowOf{Stream: r.text("stream"), TS: r.num("ts"), WallOffset: r.num("wall_offset"), Bytes: r.blob("row")}
		if r.err != nil {
			return r.err
		}
		return fn(row)
	}, append(args, int64(limit))...))
}

// Watermarks are the newest last_ts of each of a source's sealed streams.
func (a *Archive) Watermarks(source int64) (map[string]int64, error) {
	marks := map[string]int64{}
	err := a.db.Query("SELECT stream, max(last_ts) FROM segments WHERE source_id=? GROUP BY stream", func(v []driver.Value) error {
		r := record{table: "segments", v: v}
		marks[r.text("stream")] = r.num("last_ts")
		return r.err
	}, source)
	return marks, a.wrap(err)
}

// EntryOf is one index entry. Blob is good during the call.
type EntryOf struct {
	Stream string
	TS     int64
	Blob   []byte
	rowid  int64
}

// first is below every rowid and at or below every time.
const first = math.MinInt64

// Entries calls fn with the index entries of a source in the order of arrival.
func (a *Archive) Entries(source int64, fn func(EntryOf) error) error {
	return a.entriesAfter(source, first, -1, fn)
}

func (a *Archive) entriesAfter(source, rowid int64, limit int, fn func(EntryOf) error) error {
	from := ""
	if limit >= 0 {
		from = fits("blob")
	}
	return a.entries("NOT INDEXED WHERE source_id=? AND rowid>?"+from+" ORDER BY rowid LIMIT ?", fn, source, rowid, int64(limit))
}

// entriesByStream gives them by stream and time, in their order at each time.
func (a *Archive) entriesByStream(source int64, fn func(EntryOf) error) error {
	return a.entries("WHERE source_id=? ORDER BY stream, ts, rowid", fn, source)
}

func (a *Archive) entries(where string, fn func(EntryOf) error, args ...any) error {
	return a.wrap(a.db.Query("SELECT rowid, stream, ts, blob FROM caller_rows "+where, func(v []driver.Value) error {
		r := record{table: "caller_rows", v: v}
		e := EntryOf{rowid: r.num("rowid"), Stream: r.text("stream"), TS: r.num("ts"), Blob: r.blob("blob")}
		if r.err != nil {
			return r.err
		}
		return fn(e)
	}, args...))
}

// Clocks calls fn with the clock observations of a source in order of time.
func (a *Archive) Clocks(source int64, fn func(ts, offsetNs int64) error) error {
	return a.clocksFrom(source, first, -1, fn)
}

// clocksFrom starts at a time: two observations never have the same.
func (a *Archive) clocksFrom(source, ts int64, limit int, fn func(ts, offsetNs int64) error) error {
	q := "SELECT ts, offset_ns FROM clock_offsets WHERE source_id=? AND ts>=? ORDER BY ts LIMIT ?"
	return a.wrap(a.db.Query(q, func(v []driver.Value) error {
		r := record{table: "clock_offsets", v: v}
		t, o := r.num("ts"), r.num("offset_ns")
		if r.err != nil {
			return r.err
		}
		return fn(t, o)
	}, source, ts, int64(limit)))
}

// Documents counts the documents, by kind; schema 4 has none.
func (a *Archive) Documents() (map[string]int64, error) {
	n := map[string]int64{}
	if a.Schema == SchemaOld {
		return n, nil
	}
	err := a.db.Query("SELECT kind, count(*) FROM documents GROUP BY kind", func(v []driver.Value) error {
		n[textOf(v[0])], _ = v[1].(int64)
		return nil
	})
	return n, a.wrap(err)
}
