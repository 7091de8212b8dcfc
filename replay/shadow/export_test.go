package shadow

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"wiretape/internal/aewrgen"
	"wiretape/replay/internal/db"
)

// csvLines are the lines of an exported CSV file, names first.
func csvLines(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// parquetLines are the same of a Parquet file, as the file itself describes it.
func parquetLines(t *testing.T, path string, names []string) (lines [][]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := parquet.NewReader(f)
	defer r.Close()
	fields := r.Schema().Fields()
	if len(fields) != len(names) {
		t.Fatalf("%d columns, %d expected", len(fields), len(names))
	}
	for {
		rows := make([]parquet.Row, 100)
		n, err := r.ReadRows(rows)
		for _, row := range rows[:n] {
			line := make([]string, len(names))
			for i, v := range row {
				at := slices.Index(names, fields[i].Name())
				unsigned := strings.Contains(fields[i].Type().String(), "isSigned=false") || strings.Contains(fields[i].Type().String(), "INT(64,false)")
				switch {
				case v.IsNull():
				case v.Kind() == parquet.Int64 && unsigned:
					line[at] = strconv.FormatUint(v.Uint64(), 10)
				default:
					line[at] = v.String()
				}
			}
			lines = append(lines, line)
		}
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func cell(c aewrgen.Cell) string {
	if !c.Valid {
		return ""
	}
	return strconv.FormatInt(c.Value, 10)
}

func TestExport(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 31, Version: 24, Workers: 2, Requests: 25, ChunkBytes: 100, Chunks: 2})
	dir, ids := record(t, s, 0)
	r := rebuild(t, ids, dir)
	out := filepath.Join(t.TempDir(), "csv")
	report, err := Export(r.dir, out, ExportOptions{Format: CSV})
	if err != nil {
		t.Fatal(err)
	}
	// What each table holds of each request, from what was sent.
	want := map[string]map[string][]string{"requests": {}, "keys": {}, "aggregates": {}, "groups": {}}
	add := func(table, request, line string) {
		if want[table] == nil {
			want[table] = map[string][]string{}
		}
		want[table][request] = append(want[table][request], line)
	}
	for _, q := range s.Requests {
		id := fmt.Sprint(r.frame(t, q.Worker, aewrgen.Down, q.Offset))
		add("requests", id, fmt.Sprintf("%d %d %s %d", q.Key.Tenant, q.Txn, q.State, q.Rows))
		for _, k := range q.Keys {
			add("keys", id, fmt.Sprintf("%d %d", k.SortKey, k.RowOffset))
		}
		for _, a := range q.Aggs {
			add("aggregates", id, cell(a)+" ")
		}
		for _, g := range q.Groups {
			add("groups", id, fmt.Sprintf("%d %d %s %s %s %s", g.Key, flag(g.Used), cell(g.Acc[0]), cell(g.Acc[1]), cell(g.Acc[2]), cell(g.Acc[3])))
		}
		for i, row := range q.Columns {
			line := ""
			if q.RowOffsets != nil {
				line = strconv.FormatUint(q.RowOffsets[i], 10)
			}
			for _, c := range row {
				line += " " + cell(c)
			}
			add(fmt.Sprintf("columns-%d", q.Slots), id, line)
		}
	}
	shown := map[string][]string{"requests": {"tenant_id", "txn_id", "state", "rows"}, "keys": {"sort_key", "row_offset"},
		"aggregates": {"value", "value_float"}, "groups": {"key", "used", "acc0", "acc1", "acc2", "acc3"}}
	if len(report.Tables) != 4+4 {
		t.Errorf("%+v", report.Tables)
	}
	asParquet := filepath.Join(t.TempDir(), "parquet")
	if _, err := Export(filepath.Join(r.dir, catalogueName), asParquet, ExportOptions{Format: Parquet}); err != nil {
		t.Fatal(err)
	}
	for _, table := range report.Tables {
		lines := csvLines(t, filepath.Join(out, table.File))
		names, lines := lines[0], lines[1:]
		if int64(len(lines)) != table.Rows {
			t.Errorf("%s: %d lines, %d rows", table.Name, len(lines), table.Rows)
		}
		columns := shown[table.Name]
		if columns == nil {
			columns = append([]string{"row_offset"}, names[4:]...)
		}
		got := map[string][]string{}
		for _, line := range lines {
			var parts []string
			for _, c := range columns {
				parts = append(parts, line[slices.Index(names, c)])
			}
			id := line[slices.Index(names, "request")]
			got[id] = append(got[id], strings.Join(parts, " "))
		}
		for id, lines := range want[table.Name] {
			if !slices.Equal(got[id], lines) {
				t.Errorf("%s of request %s:\n%s\nwant\n%s", table.Name, id, strings.Join(got[id], "\n"), strings.Join(lines, "\n"))
			}
		}
		if len(got) != len(want[table.Name]) {
			t.Errorf("%s: %d requests, %d expected", table.Name, len(got), len(want[table.Name]))
		}
		again := parquetLines(t, filepath.Join(asParquet, table.Name+".parquet"), names)
		if !slices.EqualFunc(again, lines, slices.Equal) {
			t.Errorf("%s: the Parquet file holds other rows than the CSV file", table.Name)
		}
	}
}

func TestExportOfOneRequestAndFloats(t *testing.T) {
	value := 2.75
	rows := [][]aewrgen.Cell{{{Value: int64(math.Float64bits(value)), Valid: true}, {Value: 4, Valid: true}}, {{}, {Value: -1}}}
	var down, up []byte
	for n := range 3 {
		down = aewrgen.Frame{Version: 20, Type: 0x01, Txn: uint64(n), Constants: make([]byte, 8)}.Append(down)
		up = aewrgen.Frame{Version: 20, Type: 0x16, Txn: uint64(n), Constants: aewrgen.Materialized(2, rows[:1+n%2], nil)}.Append(up)
		up = aewrgen.Frame{Version: 20, Type: 0x15, Txn: uint64(n), Constants: aewrgen.Aggregates([]aewrgen.Cell{rows[0][0], rows[0][1]})}.Append(up)
	}
	_, paths, ids := rawFiles(t, [2][]byte{down, up})
	r := rebuild(t, ids, paths...)
	out := filepath.Join(t.TempDir(), "one")
	id := r.frame(t, 0, aewrgen.Down, 72)
	if _, err := Export(r.dir, out, ExportOptions{Format: CSV, Request: id, Floats: []int{0}}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(csvLines(t, filepath.Join(out, "columns-2.csv"))), fmt.Sprintf("[[request frame row row_offset c0 c1] [%d %d 0  2.75 4] [%d %d 1   ]]", id, id+4, id, id+4); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := fmt.Sprint(csvLines(t, filepath.Join(out, "aggregates.csv"))), fmt.Sprintf("[[request frame accumulator value value_float] [%d %d 0  2.75] [%d %d 1 4 ]]", id, id+5, id, id+5); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// Floats that are no finite number survive both formats.
	for _, format := range []Format{CSV, Parquet} {
		if _, err := Export(r.dir, filepath.Join(t.TempDir(), "all"), ExportOptions{Format: format, Floats: []int{0, 1}}); err != nil {
			t.Error(err)
		}
	}
}

// TestExportOfALyingCatalogue has a catalogue that somebody else wrote.
func TestExportOfALyingCatalogue(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 31, Version: 24, Workers: 1, Requests: 25, ChunkBytes: 100, Chunks: 2})
	dir, ids := record(t, s, 0)
	for n, lie := range []string{
		"UPDATE result_values SET slot = 4000000000",
		"UPDATE result_values SET slot = -1",
		"UPDATE result_chunks SET slot_count = -7",
		"UPDATE result_chunks SET slot_count = 1 << 62",
		"UPDATE frames SET connection = 99",
		"UPDATE meta SET value = '2' WHERE key = 'version'",
		"PRAGMA user_version = 99",
		"PRAGMA user_version = 0",
		"UPDATE result_values SET value = 'text' WHERE rowid = 1",
		"UPDATE result_values SET valid = 'text' WHERE rowid = 1",
		"UPDATE result_values SET row = 1.5 WHERE rowid = 1",
		"UPDATE requests SET state = x'00' WHERE rowid = (SELECT min(rowid) FROM requests)",
		"ALTER TABLE result_values ADD COLUMN more TEXT",
		"DROP TABLE result_keys",
	} {
		r := rebuild(t, ids, dir)
		d, err := db.Open(filepath.Join(r.dir, catalogueName), db.Create)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Run("PRAGMA foreign_keys=OFF", lie), d.Close()); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		_, err = Export(r.dir, out, ExportOptions{Format: Parquet})
		if refused := n != 3 && n != 4; (err != nil) != refused {
			t.Errorf("%s: %v", lie, err)
		}
		if _, e := os.Stat(out); (e == nil) != (err == nil) {
			t.Errorf("%s: %v, %v", lie, err, e)
		}
	}
}

// What is not in the catalogue can't be exported, and is no empty result.
func TestExportOfWhatIsNotThere(t *testing.T) {
	down := aewrgen.Frame{Version: 20, Type: 0x01, Txn: 1, Constants: make([]byte, 8)}.Append(nil)
	up := aewrgen.Frame{Version: 20, Type: 0x15, Txn: 1, Constants: aewrgen.Aggregates([]aewrgen.Cell{{Value: 4, Valid: true}})}.Append(nil)
	_, paths, ids := rawFiles(t, [2][]byte{down, up})
	r := rebuild(t, ids, paths...)
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		opt  ExportOptions
		want error
	}{
		{ExportOptions{Request: 99}, ErrNoRequest},
		{ExportOptions{Request: r.frame(t, 0, aewrgen.Up, 0)}, ErrNoRequest}, // a frame, and no request
		{ExportOptions{Floats: []int{-1}}, ErrNoSlot},
		{ExportOptions{Floats: []int{0, 1}}, ErrNoSlot},
		{ExportOptions{Floats: []int{0}, Request: r.frame(t, 0, aewrgen.Down, 0)}, nil},
	} {
		c.opt.Format = CSV
		_, err := Export(r.dir, out, c.opt)
		if !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.opt, err)
		}
		if _, e := os.Stat(out); (e == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c.opt, e)
		}
	}
}

// A result of more slots than become columns keeps its rows' offsets, and takes
// floats.
func TestExportOfManySlots(t *testing.T) {
	const slots = MaxWideSlots + 1
	rows := make([][]aewrgen.Cell, 2)
	for i := range rows {
		for s := range slots {
			rows[i] = append(rows[i], aewrgen.Cell{Value: int64(i*slots + s), Valid: true})
		}
	}
	rows[1][7].Value = int64(math.Float64bits(2.5))
	up := aewrgen.Frame{Version: 20, Type: 0x16, Txn: 1, Constants: aewrgen.Materialized(slots, rows, []uint64{500, 1<<64 - 1})}.Append(nil)
	_, paths, ids := rawFiles(t, [2][]byte{aewrgen.Frame{Version: 20, Type: 0x01, Txn: 1, Constants: make([]byte, 8)}.Append(nil), up})
	r := rebuild(t, ids, paths...)
	for _, format := range []Format{CSV, Parquet} {
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Export(r.dir, out, ExportOptions{Format: format, Floats: []int{7}}); err != nil {
			t.Fatal(err)
		}
		if format == Parquet {
			continue
		}
		lines := csvLines(t, filepath.Join(out, fmt.Sprintf("values-%d.csv", slots)))
		if len(lines) != 1+2*slots || fmt.Sprint(lines[0]) != "[request frame row slot value value_float row_offset]" ||
			fmt.Sprint(lines[1][2:]) != "[0 0 0  500]" || fmt.Sprint(lines[1+slots+7][2:]) != "[1 7  2.5 18446744073709551615]" {
			t.Errorf("%d lines: %v %v %v", len(lines), lines[0], lines[1], lines[1+slots+7])
		}
	}
}

// A fetch of the worker's first container is held by what answered it.
func TestFetchOfTheFirstContainer(t *testing.T) {
	fetch := func(container, length uint64) []byte {
		return aewrgen.Frame{Version: 31, Type: 0x1A, Container: container, Tenant: 5, Constants: aewrgen.SegmentFetch(31, 0, length, 7)}.Append(nil)
	}
	chunk := func(container uint64, size int) []byte {
		return aewrgen.Frame{Version: 31, Type: 0x1B, Container: container, Tenant: 5, Constants: aewrgen.Segment(true, 0, 7, make([]byte, size))}.Append(nil)
	}
	for _, c := range []struct {
		down, up []byte
		lacking  int64
	}{
		{fetch(0, 40), chunk(9, 40), 0},
		{fetch(0, 41), chunk(9, 40), 1},
		{fetch(0, 40), append(chunk(3, 10), chunk(9, 40)...), 0},
		{fetch(8, 40), chunk(9, 40), 1},
	} {
		_, paths, ids := rawFiles(t, [2][]byte{c.down, c.up})
		r := rebuild(t, ids, paths...)
		var text strings.Builder
		if err := r.report.Text(&text, "out"); err != nil || strings.Contains(text.String(), "  fetches       1, of 1 the shadows lack bytes") != (c.lacking > 0) {
			t.Errorf("%v: %s", err, &text)
		}
		if r.report.Counts.FetchesUnanswered != c.lacking || r.report.Counts.Fetches != 1 {
			t.Errorf("%d of %d lack bytes, %d wanted: %s", r.report.Counts.FetchesUnanswered, r.report.Counts.Fetches, c.lacking, r.rows(t, "SELECT c.session, f.message_type, f.tenant_id, f.container_id, payload FROM frames f JOIN connections c ON c.id = f.connection"))
		}
	}
}

func TestExportRefusesWhatIsNoCatalogue(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("not a database, but long enough to be looked at as one"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, text, filepath.Join(dir, "missing"), dir} {
		if _, err := Export(path, filepath.Join(dir, "out"), ExportOptions{Format: CSV}); err == nil {
			t.Errorf("%s was taken for a catalogue", path)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}
