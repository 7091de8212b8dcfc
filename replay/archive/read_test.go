package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	_ "modernc.org/sqlite"

	"wiretape/capture"
	"wiretape/internal/unfinished"
	"wiretape/replay"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const fixtures = "../../wire/dendro/testdata"

// build rebuilds the archive of some inputs, which must give one.
func build(t testing.TB, inputs ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "a.dendro")
	in, err := replay.OpenInputs(inputs, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := replay.Build(in.Set, replay.Options{Archive: out, Check: segment.DepthRows}); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t testing.TB, path string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func verify(t testing.TB, path string) *archive.Verification {
	t.Helper()
	a, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Verify(context.Background(), archive.VerifyOptions{Segment: segment.Options{Depth: segment.DepthRows}})
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	return v
}

// change runs SQL on a copy of an archive, as a damaged or foreign writer would.
func change(t testing.TB, path string, statements ...string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "changed.dendro")
	if err := os.WriteFile(out, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", out)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range append([]string{"PRAGMA foreign_keys=OFF", "PRAGMA journal_mode=DELETE"}, statements...) {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return out
}

func folder(t testing.TB, path string) (names []string, sum [32]byte) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return names, sha256.Sum256(b)
}

// A sound archive has no findings at any depth, and checking it leaves no trace:
// no byte of it changes and no file appears beside it.
func TestVerifySound(t *testing.T) {
	for _, stream := range []string{"real/small", "real/complete", "real/live", "telemetry/small", "reconnect/c2"} {
		path := build(t, filepath.Join(fixtures, stream+".stream"))
		names, sum := folder(t, path)
		for _, depth := range []segment.Depth{segment.DepthNone, segment.DepthFooter, segment.DepthRows, segment.DepthFull} {
			a := open(t, path)
			v, err := a.Verify(context.Background(), archive.VerifyOptions{Segment: segment.Options{Depth: depth}})
			if err != nil || len(v.Findings) > 0 {
				t.Errorf("%s, %v: %v, %v", stream, depth, err, v.Findings)
			}
			if v.Sources == 0 || v.Segments+v.WalRows == 0 {
				t.Errorf("%s: nothing was looked at: %+v", stream, v)
			}
			if depth >= segment.DepthRows && v.Proved != v.Segments {
				t.Errorf("%s: %d of %d segments proved", stream, v.Proved, v.Segments)
			}
		}
		if after, now := folder(t, path); !slices.Equal(names, after) || sum != now {
			t.Errorf("%s: checking left %v", stream, after)
		}
	}
}

// Each kind of damage is named by its kind, with the row concerned.
func TestVerifyDamage(t *testing.T) {
	path := build(t, filepath.Join(fixtures, "real/small.stream"))
	for _, tc := range []struct {
		name, kind, field string
		sql               []string
	}{
		{"no rows", archive.KindSegmentClaim, `segments source=1 stream="memory" seq=1`, []string{"UPDATE segments SET rows=0 WHERE stream='memory' AND seq=1"}},
		{"span runs backwards", archive.KindSegmentClaim, `segments source=1 stream="memory" seq=1`, []string{"UPDATE segments SET first_ts=last_ts+1 WHERE stream='memory' AND seq=1"}},
		{"wrong span", segment.KindSpan, `segments source=1 stream="memory" seq=3`, []string{"UPDATE segments SET last_ts=last_ts+1 WHERE stream='memory' AND seq=3"}},
		{"wrong rows", segment.KindRows, `segments source=1 stream="memory" seq=3`, []string{"UPDATE segments SET rows=rows+1 WHERE stream='memory' AND seq=3"}},
		{"text for Parquet", segment.KindFooter, `segments source=1 stream="cpu_usage" seq=0`, []string{"UPDATE segments SET bytes=x'6e6f7468696e67206f6620746865206b696e64' WHERE stream='cpu_usage' AND seq=0"}},
		{"order", archive.KindSegmentOrder, `segments source=1 stream="memory" seq=2`, []string{"UPDATE segments SET seq=-1 WHERE stream='memory' AND seq=1",
			"UPDATE segments SET seq=1 WHERE stream='memory' AND seq=2", "UPDATE segments SET seq=2 WHERE stream='memory' AND seq=-1",
			"DELETE FROM segment_indexes"}},
		{"overlap", archive.KindSegmentOverlap, `segments source=1 stream="memory" seq=9`, []string{"INSERT INTO segments SELECT source_id,stream,9,rows,first_ts,last_ts,bytes FROM segments WHERE stream='memory' AND seq=3"}},
		{"rows that no reader sees", archive.KindRowBelowWatermark, `wal source=1 stream="memory"`, []string{"INSERT INTO wal SELECT source_id, stream, last_ts-1, 0, x'00' FROM segments WHERE stream='memory' AND seq=3"}},
		{"a row without source", archive.KindReference, "", []string{"INSERT INTO wal VALUES (77,'x',1,0,x'00')"}},
		{"an index without segment", archive.KindReference, "", []string{"INSERT INTO segment_indexes VALUES (1,'x',4,x'00')"}},
		{"labels that are no object", archive.KindValue, "sources.labels", []string{"UPDATE sources SET labels='[1]'"}},
		{"labels that are null", archive.KindValue, "sources.labels", []string{"UPDATE sources SET labels='null'"}},
		{"metadata of numbers", archive.KindValue, "sources.metadata", []string{`UPDATE sources SET metadata='{"a":1}'`}},
		{"a blob for a stream", archive.KindValue, "wal.stream", []string{"INSERT INTO wal VALUES (1,x'ff',1,0,x'00')"}},
		{"text for a row", archive.KindValue, "wal.row", []string{"UPDATE wal SET row='text'"}},
		{"text for a time", archive.KindValue, "clock_offsets.ts", []string{"INSERT INTO clock_offsets VALUES (1,'noon',1)"}},
		{"two of one uuid", archive.KindSameUUID, "sources id=2", []string{"INSERT INTO sources SELECT 2,labels,metadata,complete,clock_anchor_wall_ns,uuid,NULL,NULL FROM sources"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := verify(t, change(t, path, tc.sql...))
			i := slices.IndexFunc(v.Findings, func(f wire.Finding) bool { return f.Kind == tc.kind })
			if i < 0 {
				t.Fatalf("no %s in %v", tc.kind, v.Findings)
			}
			if f := v.Findings[i]; f.Field != tc.field || f.Message == "" || f.File != "changed.dendro" {
				t.Errorf("%+v", f)
			}
		})
	}
}

// What is no archive is told as what it is, and nothing of it is trusted.
func TestOpenForeign(t *testing.T) {
	path := build(t, filepath.Join(fixtures, "real/live.stream"))
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for want, p := range map[string]string{
		"too few for one":                         write("empty", nil),
		"not a SQLite database":                   write("jpeg", append([]byte("\xff\xd8\xff\xe0\x00\x10JFIF"), make([]byte, 4000)...)),
		"not a regular file":                      dir,
		"application id 0x0":                      change(t, path, "PRAGMA application_id=0"),
		"schema 6; 4 and 5 are known here":        change(t, path, "PRAGMA user_version=6"),
		"it has no table wal":                     change(t, path, "ALTER TABLE wal RENAME TO w"),
		"it has no table caller_rows":             change(t, path, "DROP TABLE caller_rows", "CREATE VIEW caller_rows AS SELECT * FROM wal"),
		"its table segments has no column rows":   change(t, path, "ALTER TABLE segments RENAME COLUMN rows TO r"),
		"its table wal has an index over an":      change(t, path, "CREATE INDEX i ON wal(length(zeroblob(1000000000)))"),
		"its table wal has a partial index":       change(t, path, "CREATE INDEX i ON wal(ts) WHERE length(row)>0"),
		"its table x has a generated column":      change(t, path, "CREATE TABLE x(a, b AS (hex(zeroblob(1000000000))))"),
		"its table segments has no column caller": change(t, path, "PRAGMA user_version=4"),
	} {
		_, err := archive.Open(p)
		var not *archive.NotArchiveError
		if !errors.As(err, &not) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Damage anywhere in the file ends in a finding or an error, never in a crash;
// where pages of the catalog are hit it is said.
func TestVerifySweep(t *testing.T) {
	path := build(t, filepath.Join(fixtures, "real/live.stream"))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := open(t, path)
	p := filepath.Join(t.TempDir(), "damaged.dendro")
	named, total := 0, 0
	try := func(b []byte) {
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		total++
		a, err := archive.Open(p)
		if err != nil {
			named++
			return
		}
		v, err := a.Verify(context.Background(), archive.VerifyOptions{Segment: segment.Options{Depth: segment.DepthFull}})
		if err != nil || len(v.Findings) > 0 {
			named++
		}
		// The other readers may give up, and nothing else.
		_, _ = archive.Compare(context.Background(), a, good)
		if s, err := archive.NewStream(a); err == nil {
			_, _ = io.Copy(io.Discard, io.NewSectionReader(s, 0, s.Size()))
		}
		if total%10 == 0 {
			if _, err := a.Extract(context.Background(), p+".out", archive.Selection{}); err == nil {
				if err := os.RemoveAll(p + ".out"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for at := 0; at < len(whole); at += 512 {
		b := slices.Clone(whole)
		b[at+r.IntN(512)] ^= 1 << r.IntN(8)
		try(b)
		b = slices.Clone(whole)
		clear(b[at : at+512])
		try(b)
	}
	for n := range 40 {
		try(whole[:len(whole)*n/40])
	}
	t.Logf("%d of %d damaged archives were told", named, total)
	if named < total/3 {
		t.Error("too few: the checks look at too little")
	}
}

// Reading an archive that somebody writes to meanwhile ends with ErrChanged.
func TestChangedWhileRead(t *testing.T) {
	path := build(t, filepath.Join(fixtures, "real/live.stream"))
	a, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := a.Close(); !errors.Is(err, archive.ErrChanged) {
		t.Errorf("%v", err)
	}
}

// An archive with commits in its write-ahead log is read through the log.
func TestOpenThroughLog(t *testing.T) {
	path := change(t, build(t, filepath.Join(fixtures, "real/live.stream")), "PRAGMA journal_mode=WAL")
	before := verify(t, path).WalRows
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("INSERT INTO wal VALUES (1,'late',?,0,x'00')", int64(1)<<62); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		if got := verify(t, p).WalRows; got != before+1 {
			t.Errorf("%s: %d rows, want %d", p, got, before+1)
		}
	}
}

// An archive as a stream gives the archive back, and the same bytes wherever
// reading starts.
func TestStream(t *testing.T) {
	for _, name := range []string{"real/small", "real/complete", "telemetry/small", "reconnect/c1"} {
		path := build(t, filepath.Join(fixtures, name+".stream"))
		s, err := archive.NewStream(open(t, path))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()+100))
		if err != nil || int64(len(whole)) != s.Size() {
			t.Fatalf("%s: %d of %d bytes: %v", name, len(whole), s.Size(), err)
		}
		if err := iotest.TestReader(io.NewSectionReader(s, 0, s.Size()), whole); err != nil {
			t.Error(name, err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 200 {
			at := r.Int64N(s.Size())
			p := make([]byte, r.IntN(9000))
			n, err := s.ReadAt(p, at)
			if !bytes.Equal(p[:n], whole[at:at+int64(n)]) || n < len(p) != (err == io.EOF) {
				t.Fatalf("%s: %d bytes at %d: %v", name, n, at, err)
			}
		}
		dec, err := dendro.NewDecoder(wire.Config{})
		if err != nil {
			t.Fatal(err)
		}
		rd := wire.NewReader(bytes.NewReader(whole), dec, wire.ReaderOptions{})
		for {
			_, findings, err := rd.Next()
			if len(findings) > 0 {
				t.Errorf("%s: %v", name, findings)
			}
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		same(t, name, path, build(t, path))
	}
}

func same(t *testing.T, what, a, b string) {
	t.Helper()
	c, err := archive.Compare(context.Background(), open(t, a), open(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Equal {
		t.Errorf("%s: %+v", what, c.Sources)
	}
}

// Whatever the order of the inputs, and archives or captures, the result is one.
func TestMergeOrder(t *testing.T) {
	c1, c2 := filepath.Join(fixtures, "reconnect/c1.stream"), filepath.Join(fixtures, "reconnect/c2.stream")
	other := filepath.Join(fixtures, "real/small.stream")
	want := build(t, c1, c2, other)
	a1, a2, ao := build(t, c1), build(t, c2), build(t, other)
	for i, inputs := range [][]string{{a1, a2, ao}, {a2, a1, ao}, {ao, a2, a1}, {a1, c2, ao}, {other, a2, c1}, {want, a1}, {a2, want, want}} {
		same(t, fmt.Sprint(i), want, build(t, inputs...))
	}
}

// Each difference is told as what it is.
func TestCompare(t *testing.T) {
	path := build(t, filepath.Join(fixtures, "real/small.stream"))
	compare := func(t *testing.T, sql ...string) archive.SourceComparison {
		c, err := archive.Compare(context.Background(), open(t, path), open(t, change(t, path, sql...)))
		if err != nil {
			t.Fatal(err)
		}
		if c.Equal || len(c.Sources) != 1 {
			t.Fatalf("%+v", c)
		}
		return c.Sources[0]
	}
	stream := func(t *testing.T, s archive.SourceComparison, name string) archive.StreamComparison {
		if len(s.Streams) != 1 || s.Streams[0].Stream != name || len(s.Fields) > 0 || s.Clock != nil {
			t.Fatalf("%+v", s)
		}
		return s.Streams[0]
	}
	t.Run("fields", func(t *testing.T) {
		s := compare(t, `UPDATE sources SET labels='{"host":"other"}', complete=1`)
		if got := fmt.Sprint(s.Fields); got != `[{labels.host "web-00" "other"} {labels.source "rig" absent} {complete false true}]` {
			t.Error(got)
		}
	})
	t.Run("segment", func(t *testing.T) {
		x := stream(t, compare(t, "DELETE FROM segments WHERE stream='memory' AND seq=2"), "memory").Segments
		if x == nil || x.OnlyACount != 1 || x.OnlyBCount != 0 || x.OnlyA[0].Seq != 2 || len(x.OnlyA[0].SHA256) != 64 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("caller index", func(t *testing.T) {
		x := stream(t, compare(t, "UPDATE segment_indexes SET bytes=x'00' WHERE stream='memory' AND seq=2"), "memory").Segments
		if x == nil || len(x.IndexDiffers) != 1 || x.OnlyACount+x.OnlyBCount != 0 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("rows", func(t *testing.T) {
		x := stream(t, compare(t, "DELETE FROM wal WHERE stream='memory' AND ts=(SELECT min(ts) FROM wal WHERE stream='memory')",
			"UPDATE wal SET row=x'00' WHERE stream='memory' AND ts=(SELECT max(ts) FROM wal WHERE stream='memory')",
			"INSERT INTO wal SELECT 1,'memory',max(ts)+1,0,x'00' FROM wal WHERE stream='memory'"), "memory").Rows
		if x == nil || x.OnlyA.Count != 1 || x.Differs.Count != 1 || x.OnlyB.Count != 1 || *x.OnlyB.First != *x.Differs.Last+1 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("sealed there", func(t *testing.T) {
		x := stream(t, compare(t, "INSERT INTO wal SELECT 1,'memory',first_ts,0,x'00' FROM segments WHERE stream='memory' AND seq=1",
			"INSERT INTO wal SELECT 1,'memory',first_ts+1,0,x'00' FROM segments WHERE stream='memory' AND seq=1"), "memory").Rows
		if x == nil || x.SealedInA.Count != 1 || x.OnlyB.Count != 1 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("index entries", func(t *testing.T) {
		x := stream(t, compare(t, "INSERT INTO caller_rows VALUES (1,'slots',5,x'00'),(1,'slots',5,x'00')"), "slots").Index
		if x == nil || x.OnlyB.Count != 2 || x.OnlyA.Count != 0 || *x.OnlyB.First != 5 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("clock", func(t *testing.T) {
		s := compare(t, "UPDATE clock_offsets SET offset_ns=offset_ns+1 WHERE ts=(SELECT min(ts) FROM clock_offsets)")
		if s.Clock == nil || s.Clock.Differs.Count != 1 || s.Clock.OnlyA.Count != 0 {
			t.Errorf("%+v", s.Clock)
		}
	})
	t.Run("source", func(t *testing.T) {
		s := compare(t, "DELETE FROM sources WHERE id=1")
		if s.Only != "a" {
			t.Errorf("%+v", s)
		}
	})
}

// A hostile archive's names never leave the folder, and what is extracted is
// what is stored, byte for byte.
func TestExtract(t *testing.T) {
	path := change(t, build(t, filepath.Join(fixtures, "real/small.stream")),
		"INSERT INTO wal VALUES (1,'../../../etc/passwd',1,0,x'0102'),(1,'',1,0,x'03'),(1,'/abs/olute',1,-5,x''),(1,'con.txt ',1,0,x'04')")
	a := open(t, path)
	dir := filepath.Join(t.TempDir(), "out")
	m, err := a.Extract(context.Background(), dir, archive.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, s := range m.Sources {
		for _, st := range s.Streams {
			if strings.Contains(st.Folder, "..") || strings.Count(st.Folder, "/") != 1 {
				t.Errorf("stream %q lies in %q", st.Stream, st.Folder)
			}
			for _, g := range st.Segments {
				segments++
				b, err := os.ReadFile(filepath.Join(dir, g.File))
				if err != nil || fmt.Sprintf("%x", sha256.Sum256(b)) != g.SHA256 || int64(len(b)) != g.Length {
					t.Errorf("%s: %v", g.File, err)
				}
				if r := segment.Check(b, segment.Claim{Rows: uint64(g.Rows), FirstTS: g.FirstTS, LastTS: g.LastTS}, segment.Options{Depth: segment.DepthFull}); !r.Proved {
					t.Errorf("%s: %v", g.File, r.Findings)
				}
			}
		}
	}
	if v := verify(t, path); int64(segments) != v.Segments {
		t.Errorf("%d of %d segments", segments, v.Segments)
	}
	if _, err := a.Extract(context.Background(), dir, archive.Selection{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an existing folder: %v", err)
	}
	late := int64(1) << 62
	none := filepath.Join(t.TempDir(), "none")
	for _, sel := range []archive.Selection{{Sources: []string{"9d2"}}, {Labels: map[string]string{"host": "x"}}, {From: &late}} {
		if _, err := a.Extract(context.Background(), none, sel); !errors.Is(err, archive.ErrNothing) {
			t.Errorf("%+v: %v", sel, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"+unfinished.Suffix)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
