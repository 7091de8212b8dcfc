package archive

// This file adds to an archive that is there, in WAL mode: valid and readable
// by others at every instant, with the progress committed in the transaction of
// the data. Rows and segments that come in time order, as a live stream brings
// them, are put in their place at once; what would need a decision taken before
// to be taken back is ErrOutOfOrder, and the archive is made anew from all
// captures and put in with one transaction.

import (
	"bytes"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"wiretape/replay/internal/db"
	"wiretape/replay/segment"
)

// ErrOutOfOrder: a contribution that can't be put beside what is there without
// looking at everything again (docs/merging.md, sections 3 and 4).
var ErrOutOfOrder = errors.New("out of order")

// ErrGone: what has the archive's name is not the archive that was opened, or
// nothing has it. What is written would be in no archive.
var ErrGone = errors.New("the archive was deleted, moved or replaced while it was written to: what came since is not in what has its name now; start again to bring that up to date, or to make it anew")

// ErrOtherWriter: a program that does not look at the archive's lock wrote to it.
var ErrOtherWriter = errors.New("another program changed the sources or the progress in the archive while it was written to: end that program, then start again")

// Live is an archive that is being added to. Who opens it has its lock, so that
// there is one writer at a time. It is used by one goroutine.
type Live struct {
	path string
	// file is what had the path when it was opened, version tells whether others
	// have written to it since, sum is of its sources, with the open transaction
	// and without, and states are of what was committed by name.
	file           os.FileInfo
	version        int64
	sum, committed sum
	states         map[string]sum
	schema         int
	contents
	opt     Options
	set     SetAside
	open    bool
	counts  Counts
	sources map[string]int64
	nextID  int64
	marks   map[streamKey]*mark
	marked  int // bytes of maxStreamBytes that they take
	// the time column that was looked at last
	timesOf  streamKey
	timesSeq int64
	times    []int64
}

type sum [sha256.Size]byte

// add puts a source in, or takes it out again.
func (s *sum) add(id int64, uuid string) {
	h := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, uint64(id)), uuid...))
	for i := range s {
		s[i] ^= h[i]
	}
}

// mark is the newest sealed time of a stream and its next number.
type mark struct {
	w    int64
	has  bool
	next int64
}

// progressTables are this package's own beside the archive's. Readers of the
// archive do not look at them.
var progressTables = []string{
	`CREATE TABLE IF NOT EXISTS wiretape_progress(connection TEXT PRIMARY KEY, off INTEGER NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS wiretape_state(name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID`,
}

// busyTimeout is how long a write waits for another program's lock.
const busyTimeout = 30 * time.Second

// OpenLive opens an archive to add to it. progress is how far each connection
// was applied, nil when the archive was not made by following.
func OpenLive(path string, opt Options, set SetAside) (l *Live, progress map[string]int64, err error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the archive: %w", err)
	}
	d, err := db.Open(path, db.ReadWrite)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the archive %s: %w", path, err)
	}
	l = &Live{path: path, file: file, contents: contents{d}, opt: opt, set: set, sources: map[string]int64{},
		marks: map[streamKey]*mark{}, states: map[string]sum{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the archive %s: %w", path, err), d.Close())
			l = nil
		}
	}()
	id, err := d.Int("PRAGMA application_id")
	if err != nil {
		return l, nil, err
	}
	schema, err := d.Int("PRAGMA user_version")
	if err != nil {
		return l, nil, err
	}
	if id != ApplicationID || schema != SchemaCurrent && schema != SchemaOld {
		return l, nil, fmt.Errorf("no dendro archive of schema 4 or 5 (application_id %#x, user_version %d)", id, schema)
	}
	l.schema = int(schema)
	if err := d.Run(pragma("busy_timeout", int(busyTimeout.Milliseconds())), "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON"); err != nil {
		return l, nil, err
	}
	followed, err := d.Int("SELECT count(*) FROM sqlite_master WHERE name='wiretape_progress'")
	if err != nil {
		return l, nil, err
	}
	if followed > 0 {
		progress = map[string]int64{}
		err = d.Query("SELECT connection, off FROM wiretape_progress", func(v []driver.Value) error {
			progress[v[0].(string)] = v[1].(int64)
			return nil
		})
		if err != nil {
			return l, nil, err
		}
	} else if err := d.Run(progressTables...); err != nil {
		return l, nil, err
	}
	if l.version, err = d.Int("PRAGMA data_version"); err != nil {
		return l, nil, err
	}
	if l.sum, err = l.sourcesSum(); err != nil {
		return l, nil, err
	}
	l.committed = l.sum
	if err := l.loadSources(); err != nil {
		return l, nil, err
	}
	return l, progress, l.There()
}

// There gives ErrGone when the archive has lost its name.
func (l *Live) There() error {
	now, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(now, l.file) {
		return l.wrap(ErrGone)
	}
	return l.wrap(err)
}

func (l *Live) sourcesSum() (s sum, err error) {
	err = l.db.Query("SELECT id, uuid FROM sources", func(v []driver.Value) error {
		s.add(v[0].(int64), textOf(v[1]))
		return nil
	})
	return s, err
}

// unchanged makes sure that what is known of the archive still holds: it is
// called at the beginning of a transaction. What others may do is move its log
// into it, and write what none of this depends on.
func (l *Live) unchanged() error {
	version, err := l.db.Int("PRAGMA data_version")
	if err != nil || version == l.version {
		return err
	}
	now, err := l.sourcesSum()
	if err != nil {
		return err
	}
	if now != l.committed {
		return ErrOtherWriter
	}
	for name, want := range l.states {
		body, err := l.state(name)
		if err != nil {
			return err
		}
		if sha256.Sum256(body) != want {
			return ErrOtherWriter
		}
	}
	clear(l.marks)
	l.times, l.version = nil, version
	return nil
}

func (l *Live) loadSources() error {
	clear(l.sources)
	l.nextID = 1
	return l.db.Query("SELECT id, uuid FROM sources ORDER BY id", func(v []driver.Value) error {
		id := v[0].(int64)
		l.nextID = max(l.nextID, id+1)
		if u, ok := v[1].(string); ok {
			if _, dup := l.sources[u]; !dup {
				l.sources[u] = id
			}
		}
		return nil
	})
}

// Schema is 4 or 5.
func (l *Live) Schema() int { return l.schema }

// Empty says that nothing is in the archive yet.
func (l *Live) Empty() bool { return len(l.sources) == 0 }

// Counts are what was done since the archive was opened.
func (l *Live) Counts() Counts { return l.counts }

// Held counts what the archive holds, whoever stored it.
func (l *Live) Held() (c Counts, sources int64, err error) {
	for _, x := range []struct {
		table string
		n     *int64
	}{{"wal", &c.Rows}, {"segments", &c.Segments}, {"caller_rows", &c.IndexEntries}, {"clock_offsets", &c.ClockOffsets}, {"sources", &sources}} {
		if *x.n, err = l.db.Int("SELECT count(*) FROM " + x.table); err != nil {
			return c, sources, l.wrap(err)
		}
	}
	return c, sources, nil
}

// Close closes the archive; what was not committed is gone.
func (l *Live) Close() error { return l.wrap(l.db.Close()) }

func (l *Live) wrap(err error) error {
	if err == nil || errors.Is(err, ErrOutOfOrder) {
		return err
	}
	return fmt.Errorf("adding to the archive %s: %w", l.path, err)
}

func (l *Live) begin() error {
	if l.open {
		return nil
	}
	if err := l.db.Exec("BEGIN IMMEDIATE"); err != nil {
		return l.wrap(err)
	}
	if err := l.unchanged(); err != nil {
		return errors.Join(l.wrap(err), l.db.Exec("ROLLBACK"))
	}
	l.open = true
	return nil
}

// Commit makes everything since the last one durable, together with how far
// the connections were applied and with named states. ErrGone, ErrOtherWriter:
// nothing was committed.
func (l *Live) Commit(progress map[string]int64, states map[string][]byte) error {
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.There(); err != nil {
		return err
	}
	for c, off := range progress {
		if err := l.db.Exec("INSERT INTO wiretape_progress VALUES (?,?) ON CONFLICT DO UPDATE SET off=excluded.off", c, off); err != nil {
			return l.wrap(err)
		}
	}
	for name, body := range states {
		if err := l.db.Exec("INSERT INTO wiretape_state VALUES (?,?) ON CONFLICT DO UPDATE SET body=excluded.body", name, string(body)); err != nil {
			return l.wrap(err)
		}
	}
	l.open = false
	if err := l.db.Exec("COMMIT"); err != nil {
		return l.wrap(err)
	}
	l.committed = l.sum
	for name, body := range states {
		l.states[name] = sha256.Sum256(body)
	}
	return nil
}

// Rollback takes everything back since the last Commit.
func (l *Live) Rollback() error {
	clear(l.marks)
	l.times = nil
	if !l.open {
		return nil
	}
	l.open, l.sum = false, l.committed
	return errors.Join(l.wrap(l.db.Exec("ROLLBACK")), l.loadSources())
}

// State is a named state that was committed last, nil when there is none.
func (l *Live) State(name string) ([]byte, error) {
	b, err := l.state(name)
	if err == nil {
		l.states[name] = sha256.Sum256(b)
	}
	return b, l.wrap(err)
}

func (l *Live) state(name string) (b []byte, err error) {
	_, err = l.db.One("SELECT body FROM wiretape_state WHERE name=?", func(v []driver.Value) error { b = bytesOf(v[0]); return nil }, name)
	return b, err
}

// Source is the id of the source with a uuid, made if there is none.
func (l *Live) Source(uuid string) (int64, error) {
	if id, ok := l.sources[uuid]; ok {
		return id, nil
	}
	if err := l.begin(); err != nil {
		return 0, err
	}
	id := l.nextID
	err := l.db.Exec("INSERT INTO sources(id, labels, metadata, complete, clock_anchor_wall_ns, uuid) VALUES (?,'{}','{}',0,0,?)", id, uuid)
	if err == nil {
		l.nextID++
		l.sources[uuid] = id
		l.sum.add(id, uuid)
	}
	return id, l.wrap(err)
}

// SetSource writes what is known of a source.
func (l *Live) SetSource(s Source) error {
	labels, err := jsonObject(s.Labels)
	if err != nil {
		return err
	}
	metadata, err := jsonObject(s.Metadata)
	if err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	complete := int64(0)
	if s.Complete {
		complete = 1
	}
	return l.wrap(l.db.Exec("UPDATE sources SET labels=?, metadata=?, complete=?, clock_anchor_wall_ns=? WHERE id=?",
		labels, metadata, complete, s.ClockAnchorWallNs, s.ID))
}

// mark is the newest sealed time of a stream, in the transaction that it opens.
func (l *Live) mark(k streamKey) (*mark, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	if m := l.marks[k]; m != nil {
		return m, nil
	}
	if l.marked > maxStreamBytes {
		clear(l.marks)
		l.marked = 0
	}
	m := &mark{}
	_, err := l.db.One("SELECT max(last_ts), max(seq) FROM segments WHERE source_id=? AND stream=?", func(v []driver.Value) error {
		if w, ok := v[0].(int64); ok {
			m.w, m.has, m.next = w, true, v[1].(int64)+1
		}
		return nil
	}, k.source, k.stream)
	l.marks[k] = m
	l.marked += len(k.stream) + streamOverhead
	return m, l.wrap(err)
}

// holds says that a segment that is stored has a row at ts.
func (l *Live) holds(k streamKey, ts int64) (bool, error) {
	seq := int64(-1)
	_, err := l.db.One("SELECT seq FROM segments WHERE source_id=? AND stream=? AND last_ts>=? AND first_ts<=? ORDER BY last_ts LIMIT 1",
		func(v []driver.Value) error { seq = v[0].(int64); return nil }, k.source, k.stream, ts, ts)
	if err != nil || seq < 0 {
		return false, l.wrap(err)
	}
	if l.times == nil || l.timesOf != k || l.timesSeq != seq {
		var b []byte
		if _, err := l.db.One("SELECT bytes FROM segments WHERE source_id=? AND stream=? AND seq=?",
			func(v []driver.Value) error { b = bytesOf(v[0]); return nil }, k.source, k.stream, seq); err != nil {
			return false, l.wrap(err)
		}
		l.times, err = segment.Times(b, l.opt.Segment)
		if err != nil {
			l.times = nil
			return false, nil
		}
		l.timesOf, l.timesSeq = k, seq
	}
	_, ok := slices.BinarySearch(l.times, ts)
	return ok, nil
}

// AddRow contributes a row. A row that differs from the one that is stored is
// ErrOutOfOrder: which one stays depends on more than these two.
func (l *Live) AddRow(source int64, stream string, r Row) error {
	k := streamKey{source, stream}
	m, err := l.mark(k)
	if err != nil {
		return err
	}
	if m.has && r.TS <= m.w {
		held, err := l.holds(k, r.TS)
		if err != nil {
			return err
		}
		if held {
			l.counts.RowsHeld++
			return nil
		}
		l.counts.RowsBelowWatermark++
		return l.set.Row(source, stream, r, KindRowBelowWatermark)
	}
	n, err := l.db.Change("INSERT OR IGNORE INTO wal VALUES (?,?,?,?,?)", source, stream, r.TS, r.WallOffset, blob(r.Bytes))
	if err != nil {
		return l.wrap(err)
	}
	if n == 1 {
		l.counts.Rows++
		return nil
	}
	differs := false
	_, err = l.db.One("SELECT wall_offset<>? OR CAST(row AS BLOB)<>? FROM wal WHERE source_id=? AND stream=? AND ts=?",
		func(v []driver.Value) error { differs = v[0].(int64) != 0; return nil }, r.WallOffset, blob(r.Bytes), source, stream, r.TS)
	if err != nil {
		return l.wrap(err)
	}
	if differs {
		return ErrOutOfOrder
	}
	l.counts.RowsHeld++
	return nil
}

// KeepStored sets a row aside that differs from the one that is stored.
func (l *Live) KeepStored(source int64, stream string, r Row) error {
	l.counts.RowsConflicting++
	return l.set.Row(source, stream, r, KindRowConflict)
}

// AddSegment contributes a sound segment. One that is not behind all that are
// stored, or that can't be proved, is ErrOutOfOrder.
func (l *Live) AddSegment(source int64, stream string, g Segment) error {
	k := streamKey{source, stream}
	m, err := l.mark(k)
	if err != nil {
		return err
	}
	if m.has && g.FirstTS <= m.w {
		same := false
		_, err := l.db.One("SELECT bytes FROM segments WHERE source_id=? AND stream=? AND last_ts=? AND first_ts=? AND rows=?", func(v []driver.Value) error {
			same = bytes.Equal(bytesOf(v[0]), g.Bytes)
			return nil
		}, source, stream, g.LastTS, g.FirstTS, int64(g.Rows))
		if err != nil {
			return l.wrap(err)
		}
		if same {
			l.counts.SegmentsHeld++
			return nil
		}
		return ErrOutOfOrder
	}
	if !g.Check.Proved {
		return ErrOutOfOrder
	}
	times, err := segment.Times(g.Bytes, l.opt.Segment)
	if err != nil {
		return ErrOutOfOrder
	}
	stored := int64(0)
	err = l.db.Query("SELECT ts, wall_offset, row FROM wal WHERE source_id=? AND stream=? AND ts<=? ORDER BY ts", func(v []driver.Value) error {
		stored++
		r := Row{TS: v[0].(int64), WallOffset: v[1].(int64), Bytes: bytesOf(v[2]), Place: g.Place}
		if _, held := slices.BinarySearch(times, r.TS); held {
			l.counts.RowsSuperseded++
			return nil
		}
		l.counts.RowsBelowWatermark++
		return l.set.Row(source, stream, r, KindRowBelowWatermark)
	}, source, stream, g.LastTS)
	if err != nil {
		return l.wrap(err)
	}
	if stored > 0 {
		l.counts.Rows -= stored
		if err := l.db.Exec("DELETE FROM wal WHERE source_id=? AND stream=? AND ts<=?", source, stream, g.LastTS); err != nil {
			return l.wrap(err)
		}
	}
	if l.schema == SchemaOld {
		var index any
		if g.HasCallerIndex {
			index = blob(g.CallerIndex)
		}
		err = l.db.Exec("INSERT INTO segments VALUES (?,?,?,?,?,?,?,?)", source, stream, m.next, int64(g.Rows), g.FirstTS, g.LastTS, blob(g.Bytes), index)
	} else {
		err = l.db.Exec("INSERT INTO segments VALUES (?,?,?,?,?,?,?)", source, stream, m.next, int64(g.Rows), g.FirstTS, g.LastTS, blob(g.Bytes))
		if err == nil && g.HasCallerIndex {
			err = l.db.Exec("INSERT INTO segment_indexes VALUES (?,?,?,?)", source, stream, m.next, blob(g.CallerIndex))
		}
	}
	if err != nil {
		return l.wrap(err)
	}
	m.w, m.has, m.next = g.LastTS, true, m.next+1
	l.counts.Segments++
	return nil
}

// SetSegmentAside keeps a segment out that is ErrOutOfOrder.
func (l *Live) SetSegmentAside(source int64, stream string, g Segment, why string) error {
	l.counts.SegmentsQuarantined++
	return l.set.Segment(source, stream, g, why)
}

// AddIndex contributes an index entry that its connection has had n times, this
// one included. at is its place among the entries of the stream and time, copies
// counted; apart says that the n-th copy came behind another entry, where a
// rebuild in one go puts it beside the first.
func (l *Live) AddIndex(source int64, stream string, ts int64, b []byte, n int64) (at int64, apart bool, err error) {
	if err := l.begin(); err != nil {
		return 0, false, err
	}
	const those = " FROM caller_rows WHERE source_id=? AND stream=? AND ts=?"
	var all, have int64
	_, err = l.db.One("SELECT count(*), count(CASE WHEN blob=? THEN 1 END)"+those,
		func(v []driver.Value) error { all, have = v[0].(int64), v[1].(int64); return nil }, blob(b), source, stream, ts)
	if err != nil {
		return 0, false, l.wrap(err)
	}
	if at = all; have >= n {
		at = n - 1
	}
	if have > 0 && have < all {
		var i, copies, last int64
		err := l.db.Query("SELECT blob=?"+those+" ORDER BY rowid", func(v []driver.Value) error {
			if v[0].(int64) != 0 {
				if copies++; copies == n {
					at = i
				}
				last = i
			}
			i++
			return nil
		}, blob(b), source, stream, ts)
		if err != nil {
			return 0, false, l.wrap(err)
		}
		apart = have < n && last != all-1
	}
	if have >= n {
		return at, false, nil
	}
	l.counts.IndexEntries++
	return at, apart, l.wrap(l.db.Exec("INSERT INTO caller_rows VALUES (?,?,?,?)", source, stream, ts, blob(b)))
}

// AddClock contributes a clock observation: the first at a time stays. differs
// says that it is not this one.
func (l *Live) AddClock(source, ts, offsetNs int64) (differs bool, err error) {
	if err := l.begin(); err != nil {
		return false, err
	}
	n, err := l.db.Change("INSERT OR IGNORE INTO clock_offsets VALUES (?,?,?)", source, ts, offsetNs)
	l.counts.ClockOffsets += n
	if err != nil || n > 0 {
		return false, l.wrap(err)
	}
	_, err = l.db.One("SELECT offset_ns<>? FROM clock_offsets WHERE source_id=? AND ts=?",
		func(v []driver.Value) error { differs = v[0].(int64) != 0; return nil }, offsetNs, source, ts)
	return differs, l.wrap(err)
}

// Replace puts the contents of another archive in the place of this one's, in
// the transaction that Commit ends. Documents stay: they are append-only.
func (l *Live) Replace(from string) error {
	if err := l.Rollback(); err != nil {
		return err
	}
	if err := l.db.Exec("ATTACH ? AS made", from); err != nil {
		return l.wrap(err)
	}
	if err := l.begin(); err != nil {
		return err
	}
	tables := []string{"segments", "wal", "clock_offsets", "caller_rows", "sources"}
	if l.schema != SchemaOld {
		tables = append([]string{"segment_indexes"}, tables...)
	}
	for _, t := range tables {
		if err := l.db.Exec("DELETE FROM main." + t); err != nil {
			return l.wrap(err)
		}
	}
	slices.Reverse(tables)
	for _, t := range tables {
		order := ""
		if t == "caller_rows" {
			order = " ORDER BY rowid"
		}
		if err := l.db.Exec("INSERT INTO main." + t + " SELECT * FROM made." + t + order); err != nil {
			return l.wrap(err)
		}
	}
	l.counts = Counts{}
	var err error
	l.sum, err = l.sourcesSum()
	return l.wrap(err)
}

// Replaced ends a Replace, after its Commit.
func (l *Live) Replaced() error {
	clear(l.marks)
	l.times = nil
	return errors.Join(l.wrap(l.db.Run("DETACH made")), l.loadSources())
}

// PutDocument writes a revision of a document when it differs from the newest
// one. A schema 4 archive has no place for it.
func (l *Live) PutDocument(d *Document) error {
	if l.schema == SchemaOld {
		return nil
	}
	if err := l.begin(); err != nil {
		return err
	}
	var newest any
	same := false
	_, err := l.db.One("SELECT id, body FROM documents WHERE kind=? AND name=? ORDER BY id DESC LIMIT 1", func(v []driver.Value) error {
		newest = v[0]
		same = bytes.Equal(bytesOf(v[1]), d.Body)
		return nil
	}, d.Kind, d.Name)
	if err != nil || same {
		return l.wrap(err)
	}
	id := fmt.Sprint(newest)
	return l.wrap(l.db.Exec("INSERT INTO documents(uuid, kind, name, schema, body, created_wall_ns, supersedes) VALUES (?,?,?,?,?,?,?)",
		UUIDFrom([]byte(d.Kind), []byte(d.Name), []byte(id), d.Body), d.Kind, d.Name, d.Schema, string(d.Body), d.CreatedWallNs, newest))
}

// Verify is what the database's own checks find.
func (l *Live) Verify() ([]string, error) {
	faults, err := l.db.Faults()
	return faults, l.wrap(err)
}

// Checkpoint moves what is in the write-ahead log into the archive, as far as
// readers let it.
func (l *Live) Checkpoint() error { return l.wrap(l.db.Run("PRAGMA wal_checkpoint(PASSIVE)")) }
