package replay

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/replay/archive"
	"wiretape/replay/internal/db"
	"wiretape/wire/dendro"
)

// What another tool put into an archive and no frame can carry is named with its
// place, and all the rest is merged.
func TestMergeNamesWhatNoFrameCarries(t *testing.T) {
	_, big, err := build(t, Options{}, stream("real/complete"))
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := build(t, Options{}, stream("reconnect/c1"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(big, db.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	const size = dendro.MaxFrame + 1
	for _, q := range []string{
		"INSERT INTO segments(source_id, stream, seq, rows, first_ts, last_ts, bytes) VALUES (1, 'huge', 7, 3, 1, 3, zeroblob(%d))",
		"INSERT INTO wal VALUES (1, 'huge row', 5, 0, zeroblob(%d))",
		"INSERT INTO caller_rows VALUES (1, 'huge entry', 6, zeroblob(%d))",
	} {
		if err := d.Run(fmt.Sprintf(q, size)); err != nil {
			t.Fatal(err)
		}
	}
	// One that just fits, behind others.
	const fits = dendro.MaxFrame - 1000
	if err := d.Run("INSERT INTO wal VALUES (1, 'large', 1, 0, x'00')", fmt.Sprintf("INSERT INTO wal VALUES (1, 'large', 2, 0, zeroblob(%d))", fits),
		"INSERT INTO wal VALUES (1, 'large', 3, 0, x'00')"); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := OpenInputs([]string{big, other}, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out := filepath.Join(t.TempDir(), "out.dendro")
	r, err := Build(in.Set, Options{Archive: out})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Findings || r.FindingsByKind[archive.KindTooLarge] != 3 || len(r.FindingsByKind) != 1 {
		t.Errorf("verdict %s, %v", r.Verdict, r.FindingsByKind)
	}
	places := ""
	for _, f := range r.Findings {
		places += f.File + " " + f.Field + "\n"
	}
	for _, want := range []string{`segments source=1 stream="huge" seq=7`, `wal source=1 stream="huge row" ts=5`, `caller_rows source=1 stream="huge entry" ts=6`, filepath.Base(big)} {
		if !strings.Contains(places, want) {
			t.Errorf("no %s in\n%s", want, places)
		}
	}
	for _, s := range r.Source {
		lacks := slices.ContainsFunc(s.Streams, func(x ReportStream) bool { return x.Stream == "large" })
		if lacks && s.Complete {
			t.Errorf("source %+v", s)
		}
	}
	a, err := archive.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	rows := map[string]int{}
	sources, err := a.Sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		if err := a.Rows(s.ID, func(r archive.RowOf) error {
			if r.Stream == "large" {
				rows[fmt.Sprint(r.TS, " ", len(r.Bytes))]++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(rows) != 3 || rows[fmt.Sprint(2, " ", fits)] != 1 {
		t.Errorf("rows of the large stream: %v", rows)
	}
	if r.Counts.Segments == 0 || r.Counts.Sources != 3 {
		t.Errorf("counts %+v", r.Counts)
	}
}
