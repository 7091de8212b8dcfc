package shadow

// This file gives a catalogue's results as tables for other programs: Parquet
// or CSV, a file a table, each read back and compared before it gets its name.

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"wiretape/internal/unfinished"
	"wiretape/replay/internal/db"
)

// Format is what exported tables are written as.
type Format string

const (
	// Parquet is compressed with zstd.
	Parquet Format = "parquet"
	// CSV has a line of names first; an empty cell is NULL.
	CSV Format = "csv"
)

const (
	// MaxWideSlots is the most slots that become columns of one table; results
	// with more are exported a value a row.
	MaxWideSlots = 1000
	// MaxWideTables is how many tables of materialised columns are made, one
	// for each number of slots.
	MaxWideTables = 1000
)

// ExportOptions say what is exported, and how.
type ExportOptions struct {
	Format Format
	// Request is the frame number of the one request whose results are wanted;
	// 0 is all.
	Request int64
	// Floats are the slots and accumulators whose 8 bytes are float64: the
	// frames do not say it.
	Floats []int
}

// ExportedTable is one table of an export.
type ExportedTable struct {
	Name string `json:"name"`
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// ExportReport is what was exported.
type ExportReport struct {
	Tables []ExportedTable `json:"tables"`
	// Omitted is how many numbers of slots got no table.
	Omitted int64 `json:"tables_omitted,omitempty"`
}

var (
	// ErrNotCatalogue: the file is no catalogue of this version.
	ErrNotCatalogue = errors.New("not an aewr catalogue of this version")
	// ErrNoRequest: the one request that is wanted is not in the catalogue.
	ErrNoRequest = errors.New("the catalogue has no request in frame")
	// ErrNoSlot: a slot or accumulator that no result has.
	ErrNoSlot = errors.New("no result has a slot or accumulator of the number")
)

// cellKind is the type of a column.
type cellKind uint8

const (
	cellUint cellKind = iota
	cellInt
	cellFloat
	cellBool
	cellText
)

type tableColumn struct {
	name     string
	kind     cellKind
	optional bool
}

// table is a table to export: its columns, and the query that gives them.
type table struct {
	name    string
	columns []tableColumn
	// each calls row for each of the rows; a nil cell is NULL.
	each func(row func(cells []driver.Value) error) error
}

// tableWriter writes one table.
type tableWriter interface {
	row(cells []driver.Value) error
	close() error
}

// Export writes the results of a build or its catalogue as tables into the
// folder dir, which must not exist and appears whole.
func Export(source, dir string, opt ExportOptions) (*ExportReport, error) {
	if info, err := os.Stat(source); err != nil {
		return nil, err
	} else if info.IsDir() {
		source = filepath.Join(source, catalogueName)
	}
	d, err := openCatalogue(source)
	if err != nil {
		return nil, err
	}
	if err := opt.check(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	out, err := unfinished.Start(dir)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	report, err := export(d, out.Path(), opt)
	if err = errors.Join(err, d.Close()); err == nil {
		err = out.Publish()
	}
	if err != nil {
		return nil, errors.Join(err, out.Abandon())
	}
	return report, nil
}

func openCatalogue(path string) (*db.DB, error) {
	d, err := db.Open(path, db.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("opening the catalogue: %w", err)
	}
	if err := checkCatalogue(d); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.Close())
	}
	return d, nil
}

// exportedFrom are the tables that an export reads.
var exportedFrom = []string{"connections", "frames", "message_types", "requests", "answers", "result_keys", "result_aggregates", "result_groups",
	"result_chunks", "result_values", "result_row_offsets"}

// checkCatalogue says whether the tables are those of this version, and every
// value of the type of its column: SQLite itself holds to none.
func checkCatalogue(d *db.DB) error {
	version, err := d.Int("PRAGMA user_version")
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNotCatalogue, err)
	}
	if version != CatalogueVersion {
		return fmt.Errorf("%w: its user_version is %d", ErrNotCatalogue, version)
	}
	n, err := d.Int("SELECT count(*) FROM meta WHERE key = 'format' AND value = 'wiretape aewr catalogue' OR key = 'version' AND value = ?", strconv.Itoa(CatalogueVersion))
	if err != nil || n != 2 {
		return errors.Join(ErrNotCatalogue, err)
	}
	for _, name := range exportedFrom {
		i := slices.IndexFunc(tables, func(q string) bool { return strings.HasPrefix(q, "CREATE TABLE "+name+" (") })
		n, err := d.Int("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ? AND sql = ?", name, tables[i])
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%w: its table %s is another one", ErrNotCatalogue, name)
		}
		var wrong []string
		err = d.Query("SELECT name, type, \"notnull\" FROM pragma_table_info(?)", func(v []driver.Value) error {
			column, _ := v[0].(string)
			kind, _ := v[1].(string)
			words := "'" + strings.ToLower(kind) + "'"
			if v[2] == int64(0) {
				words += ", 'null'"
			}
			wrong = append(wrong, "typeof("+column+") NOT IN ("+words+")")
			return nil
		}, name)
		if err != nil {
			return err
		}
		n, err = d.Int("SELECT count(*) FROM (SELECT 1 FROM " + name + " WHERE " + strings.Join(wrong, " OR ") + " LIMIT 1)")
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: its table %s has a value that is not of its column's type", ErrNotCatalogue, name)
		}
	}
	return nil
}

// check says whether the catalogue has what the options name.
func (opt *ExportOptions) check(d *db.DB) error {
	if opt.Request != 0 {
		n, err := d.Int("SELECT count(*) FROM requests WHERE frame = ?", opt.Request)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w %d", ErrNoRequest, opt.Request)
		}
	}
	if len(opt.Floats) == 0 {
		return nil
	}
	n, err := d.Int("SELECT max(coalesce((SELECT max(slot_count) FROM result_chunks), 0), coalesce((SELECT max(accumulator) + 1 FROM result_aggregates), 0), " +
		"(SELECT 4 * count(*) FROM (SELECT 1 FROM result_groups LIMIT 1)))")
	if err != nil {
		return err
	}
	for _, f := range opt.Floats {
		if f < 0 || int64(f) >= n {
			return fmt.Errorf("%w %d", ErrNoSlot, f)
		}
	}
	return nil
}

func export(d *db.DB, dir string, opt ExportOptions) (*ExportReport, error) {
	report := &ExportReport{Tables: []ExportedTable{}}
	tables := fixedTables(d, opt)
	wide, omitted, err := wideTables(d, opt)
	if err != nil {
		return nil, err
	}
	report.Omitted = omitted
	for _, t := range append(tables, wide...) {
		rows, file, err := t.write(dir, opt.Format)
		if err != nil {
			return nil, fmt.Errorf("exporting %s: %w", t.name, err)
		}
		report.Tables = append(report.Tables, ExportedTable{t.name, file, rows})
	}
	return report, nil
}

// write writes a table and reads it back.
func (t *table) write(dir string, format Format) (rows int64, file string, err error) {
	file = t.name + "." + string(format)
	path := filepath.Join(dir, file)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, "", err
	}
	var w tableWriter
	if format == CSV {
		w, err = newCSV(f, t.columns)
	} else {
		w, err = newParquet(f, t.columns)
	}
	if err != nil {
		return 0, "", errors.Join(err, f.Close())
	}
	written := newDigest()
	err = t.each(func(cells []driver.Value) error {
		rows++
		written.add(t.columns, cells)
		return w.row(cells)
	})
	if err := errors.Join(err, w.close(), f.Sync(), f.Close()); err != nil {
		return 0, "", err
	}
	read := newDigest()
	if format == CSV {
		err = readCSV(path, t.columns, read)
	} else {
		err = readParquet(path, t.columns, read)
	}
	if err != nil {
		return 0, "", fmt.Errorf("reading it back: %w", err)
	}
	if *read != *written {
		return 0, "", fmt.Errorf("what was read back is not what was written: %d rows of %d", read.rows, written.rows)
	}
	return rows, file, nil
}

// query makes a table's each of a query; change, if set, changes its cells.
func query(d *db.DB, q string, change func(v []driver.Value), args ...any) func(func([]driver.Value) error) error {
	return func(row func([]driver.Value) error) error {
		return d.Query(q, func(v []driver.Value) error {
			if change != nil {
				change(v)
			}
			return row(v)
		}, args...)
	}
}

// only is the condition on a table whose rows belong to a request.
func only(opt ExportOptions, column string) (where string, args []any) {
	if opt.Request == 0 {
		return "", nil
	}
	return " WHERE " + column + " = ?", []any{opt.Request}
}

func floatCell(v driver.Value) driver.Value {
	n, ok := v.(int64)
	if !ok {
		return nil
	}
	return math.Float64frombits(uint64(n))
}

// fixedTables are the tables whose columns are always the same.
func fixedTables(d *db.DB, opt ExportOptions) []*table {
	request := tableColumn{"request", cellInt, true}
	frame := tableColumn{"frame", cellInt, false}
	float := func(n int) bool { return slices.Contains(opt.Floats, n) }
	where, args := only(opt, "r.frame")
	requests := &table{name: "requests", columns: []tableColumn{{"request", cellInt, false}, {"connection", cellText, false}, {"offset", cellInt, false},
		{"session", cellInt, false}, {"message_type", cellText, false}, {"tenant_id", cellUint, false}, {"txn_id", cellUint, false},
		{"container_id", cellUint, false}, {"state", cellText, false}, {"rows", cellInt, false}, {"certain", cellBool, false}},
		each: query(d, `SELECT r.frame, c.connection, f.offset, r.session, t.name, r.tenant_id, r.txn_id, r.container_id, r.state, r.rows, r.certain
			FROM requests r JOIN frames f ON f.id = r.frame JOIN connections c ON c.id = f.connection JOIN message_types t ON t.code = r.message_type`+
			where+" ORDER BY r.frame", nil, args...)}
	where, args = only(opt, "a.request")
	keys := &table{name: "keys", columns: []tableColumn{request, frame, {"row", cellInt, false}, {"sort_key", cellUint, false}, {"row_offset", cellUint, false}},
		each: query(d, "SELECT a.request, k.frame, k.row, k.sort_key, k.row_offset FROM result_keys k LEFT JOIN answers a ON a.frame = k.frame"+where+" ORDER BY k.rowid", nil, args...)}
	// The kind of an accumulator's value changes from row to row, a column's
	// can't: where floats are asked for, they get a column of their own.
	aggregates := &table{name: "aggregates", columns: []tableColumn{request, frame, {"accumulator", cellInt, false}, {"value", cellInt, true}, {"value_float", cellFloat, true}},
		each: query(d, "SELECT a.request, g.frame, g.accumulator, CASE WHEN g.valid <> 0 THEN g.value END, NULL FROM result_aggregates g LEFT JOIN answers a ON a.frame = g.frame"+where+" ORDER BY g.rowid",
			func(v []driver.Value) {
				if n, _ := v[2].(int64); n <= math.MaxInt32 && float(int(n)) {
					v[4], v[3] = floatCell(v[3]), nil
				}
			}, args...)}
	groups := &table{name: "groups", columns: []tableColumn{request, frame, {"slot", cellInt, false}, {"key", cellUint, false}, {"used", cellUint, false}}}
	sel := "SELECT a.request, g.frame, g.slot, g.key, g.used"
	for i := range 4 {
		kind := cellInt
		if float(i) {
			kind = cellFloat
		}
		n := strconv.Itoa(i)
		groups.columns = append(groups.columns, tableColumn{"acc" + n, kind, true})
		sel += ", CASE WHEN g.valid" + n + " <> 0 THEN g.acc" + n + " END"
	}
	groups.each = query(d, sel+" FROM result_groups g LEFT JOIN answers a ON a.frame = g.frame"+where+" ORDER BY g.rowid", func(v []driver.Value) {
		for i := range 4 {
			if float(i) {
				v[5+i] = floatCell(v[5+i])
			}
		}
	}, args...)
	return []*table{requests, keys, aggregates, groups}
}

// wideTables are the materialised results: a table for each number of slots,
// with a column for each slot.
func wideTables(d *db.DB, opt ExportOptions) (tables []*table, omitted int64, err error) {
	where, args := only(opt, "a.request")
	err = d.Query("SELECT DISTINCT c.slot_count FROM result_chunks c LEFT JOIN answers a ON a.frame = c.frame"+where+" ORDER BY c.slot_count", func(v []driver.Value) error {
		n, _ := v[0].(int64)
		switch {
		case n < 0:
			return fmt.Errorf("a result of %d slots: %w", n, ErrNotCatalogue)
		case len(tables) >= MaxWideTables:
			omitted++
		case n > MaxWideSlots:
			tables = append(tables, longTable(d, opt, n))
		default:
			tables = append(tables, wideTable(d, opt, int(n)))
		}
		return nil
	}, args...)
	return tables, omitted, err
}

// ofSlots is the condition on the chunks of a number of slots.
func ofSlots(opt ExportOptions, slots int64) (where string, args []any) {
	where, args = " WHERE c.slot_count = ?", []any{slots}
	if opt.Request != 0 {
		where += " AND a.request = ?"
		args = append(args, opt.Request)
	}
	return where, args
}

func longTable(d *db.DB, opt ExportOptions, slots int64) *table {
	where, args := ofSlots(opt, slots)
	return &table{name: "values-" + strconv.FormatInt(slots, 10),
		columns: []tableColumn{{"request", cellInt, true}, {"frame", cellInt, false}, {"row", cellInt, false}, {"slot", cellInt, false}, {"value", cellInt, true}, {"value_float", cellFloat, true},
			{"row_offset", cellUint, true}},
		each: query(d, `SELECT a.request, v.frame, v.row, v.slot, CASE WHEN v.valid THEN v.value END, NULL, o.row_offset FROM result_values v
			JOIN result_chunks c ON c.frame = v.frame LEFT JOIN answers a ON a.frame = v.frame
			LEFT JOIN result_row_offsets o ON o.frame = v.frame AND o.row = v.row`+where+" ORDER BY v.rowid",
			func(v []driver.Value) {
				if n, _ := v[3].(int64); n <= math.MaxInt32 && slices.Contains(opt.Floats, int(n)) {
					v[5], v[4] = floatCell(v[4]), nil
				}
			}, args...)}
}

func wideTable(d *db.DB, opt ExportOptions, slots int) *table {
	columns := []tableColumn{{"request", cellInt, true}, {"frame", cellInt, false}, {"row", cellInt, false}, {"row_offset", cellUint, true}}
	digits := len(strconv.Itoa(max(slots-1, 0)))
	for i := range slots {
		kind := cellInt
		if slices.Contains(opt.Floats, i) {
			kind = cellFloat
		}
		columns = append(columns, tableColumn{fmt.Sprintf("c%0*d", digits, i), kind, true})
	}
	t := &table{name: "columns-" + strconv.Itoa(slots), columns: columns}
	where, args := ofSlots(opt, int64(slots))
	if slots == 0 {
		t.each = query(d, `SELECT a.request, o.frame, o.row, o.row_offset FROM result_row_offsets o
			JOIN result_chunks c ON c.frame = o.frame LEFT JOIN answers a ON a.frame = o.frame`+where+" ORDER BY o.rowid", nil, args...)
		return t
	}
	// A row of the query is one value; those of one row of the result come
	// together and in order of their slots.
	t.each = func(row func([]driver.Value) error) error {
		cells := make([]driver.Value, len(columns))
		return d.Query(`SELECT a.request, v.frame, v.row, o.row_offset, v.slot, CASE WHEN v.valid THEN v.value END FROM result_values v
			JOIN result_chunks c ON c.frame = v.frame LEFT JOIN answers a ON a.frame = v.frame
			LEFT JOIN result_row_offsets o ON v.slot = 0 AND o.frame = v.frame AND o.row = v.row`+where+" ORDER BY v.rowid",
			func(v []driver.Value) error {
				slot, _ := v[4].(int64)
				if slot < 0 || slot >= int64(slots) {
					return fmt.Errorf("a value of slot %d in a result of %d slots: %w", slot, slots, ErrNotCatalogue)
				}
				if slot == 0 {
					copy(cells, v[:4])
				}
				cell := v[5]
				if columns[4+slot].kind == cellFloat {
					cell = floatCell(cell)
				}
				cells[4+slot] = cell
				if int(slot) < slots-1 {
					return nil
				}
				return row(cells)
			}, args...)
	}
	return t
}
