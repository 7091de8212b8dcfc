package replay

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	_ "modernc.org/sqlite"
)

// dumped is an archive in the canonical form of the goldens, which the real
// crate wrote: what two archives are compared by. Writer sessions and documents
// are left out. It shares nothing with interop, which reads what the crate itself
// dumps: each is a witness of its own.
type dumped struct {
	SchemaVersion int64          `json:"schema_version"`
	Sources       []dumpedSource `json:"sources"`
}

type dumpedSource struct {
	UUID       string            `json:"uuid"`
	Labels     map[string]string `json:"labels"`
	Metadata   map[string]string `json:"metadata"`
	Complete   bool              `json:"complete"`
	Anchor     int64             `json:"clock_anchor_wall_ns"`
	Segments   []dumpedSegment   `json:"segments"`
	WAL        []dumpedRow       `json:"wal"`
	Clock      [][2]int64        `json:"clock_offsets"`
	CallerRows []dumpedCaller    `json:"caller_rows"`
}

type dumpedSegment struct {
	Stream    string  `json:"stream"`
	Seq       int64   `json:"seq"`
	Rows      int64   `json:"rows"`
	FirstTS   int64   `json:"first_ts"`
	LastTS    int64   `json:"last_ts"`
	Len       int     `json:"len"`
	SHA256    string  `json:"sha256"`
	CallerLen *int    `json:"caller_index_len"`
	CallerSHA *string `json:"caller_index_sha256"`
}

type dumpedRow struct {
	Stream     string `json:"stream"`
	TS         int64  `json:"ts"`
	WallOffset int64  `json:"wall_offset"`
	Len        int    `json:"len"`
	SHA256     string `json:"sha256"`
}

type dumpedCaller struct {
	Stream string `json:"stream"`
	TS     int64  `json:"ts"`
	Len    int    `json:"len"`
	SHA256 string `json:"sha256"`
}

func (d *dumped) normal() {
	for i := range d.Sources {
		s := &d.Sources[i]
		delete(s.Metadata, "writer_sessions")
	}
	slices.SortStableFunc(d.Sources, func(a, b dumpedSource) int {
		return compareJSON([]any{a.Labels, a.Anchor, a.Complete, a.Metadata, a.UUID}, []any{b.Labels, b.Anchor, b.Complete, b.Metadata, b.UUID})
	})
}

func compareJSON(a, b any) int {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return slices.Compare(x, y)
}

func hexSum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// dump reads an archive through database/sql, apart from the code that wrote it.
func dump(t testing.TB, path string) *dumped {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := &dumped{Sources: []dumpedSource{}}
	each := func(q string, args []any, row func(r *sql.Rows) error) {
		t.Helper()
		r, err := db.Query(q, args...)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		defer r.Close()
		for r.Next() {
			if err := row(r); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		if err := r.Err(); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	each("PRAGMA user_version", nil, func(r *sql.Rows) error { return r.Scan(&d.SchemaVersion) })
	ids := []int64{}
	each("SELECT id, uuid, labels, metadata, complete, clock_anchor_wall_ns FROM sources", nil, func(r *sql.Rows) error {
		s := dumpedSource{Segments: []dumpedSegment{}, WAL: []dumpedRow{}, Clock: [][2]int64{}, CallerRows: []dumpedCaller{}}
		var id int64
		var labels, metadata string
		if err := r.Scan(&id, &s.UUID, &labels, &metadata, &s.Complete, &s.Anchor); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(labels), &s.Labels); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(metadata), &s.Metadata); err != nil {
			return err
		}
		ids = append(ids, id)
		d.Sources = append(d.Sources, s)
		return nil
	})
	segments := `SELECT s.stream, s.seq, s.rows, s.first_ts, s.last_ts, s.bytes, i.bytes, i.bytes IS NOT NULL FROM segments s
		LEFT JOIN segment_indexes i USING (source_id, stream, seq) WHERE s.source_id=? ORDER BY s.stream, s.seq`
	if d.SchemaVersion == 4 {
		segments = "SELECT stream, seq, rows, first_ts, last_ts, bytes, caller_index, caller_index IS NOT NULL FROM segments WHERE source_id=? ORDER BY stream, seq"
	}
	for i, id := range ids {
		s := &d.Sources[i]
		each(segments, []any{id}, func(r *sql.Rows) error {
			var g dumpedSegment
			var b, caller []byte
			var has bool
			if err := r.Scan(&g.Stream, &g.Seq, &g.Rows, &g.FirstTS, &g.LastTS, &b, &caller, &has); err != nil {
				return err
			}
			g.Len, g.SHA256 = len(b), hexSum(b)
			if has {
				n, h := len(caller), hexSum(caller)
				g.CallerLen, g.CallerSHA = &n, &h
			}
			s.Segments = append(s.Segments, g)
			return nil
		})
		each("SELECT stream, ts, wall_offset, row FROM wal WHERE source_id=? ORDER BY stream, ts", []any{id}, func(r *sql.Rows) error {
			var w dumpedRow
			var b []byte
			if err := r.Scan(&w.Stream, &w.TS, &w.WallOffset, &b); err != nil {
				return err
			}
			w.Len, w.SHA256 = len(b), hexSum(b)
			s.WAL = append(s.WAL, w)
			return nil
		})
		each("SELECT ts, offset_ns FROM clock_offsets WHERE source_id=? ORDER BY ts", []any{id}, func(r *sql.Rows) error {
			var c [2]int64
			if err := r.Scan(&c[0], &c[1]); err != nil {
				return err
			}
			s.Clock = append(s.Clock, c)
			return nil
		})
		each("SELECT stream, ts, blob FROM caller_rows WHERE source_id=? ORDER BY stream, ts, rowid", []any{id}, func(r *sql.Rows) error {
			var c dumpedCaller
			var b []byte
			if err := r.Scan(&c.Stream, &c.TS, &b); err != nil {
				return err
			}
			c.Len, c.SHA256 = len(b), hexSum(b)
			s.CallerRows = append(s.CallerRows, c)
			return nil
		})
	}
	d.normal()
	return d
}
