package shadow

// This file writes and reads back the tables of an export.

import (
	"bufio"
	"database/sql/driver"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// digest tells a table's content: its rows, and a checksum over their cells as
// text.
type digest struct {
	rows int64
	sum  uint64
}

func newDigest() *digest { return &digest{} }

var crcTable = crc64.MakeTable(crc64.ECMA)

func (d *digest) add(columns []tableColumn, cells []driver.Value) {
	d.rows++
	for i := range columns {
		d.cell(columns[i].text(cells[i]))
	}
}

func (d *digest) cell(text string) {
	d.sum = crc64.Update(d.sum, crcTable, append(strconv.AppendInt(nil, int64(len(text)), 10), text...))
}

// text is a cell as CSV has it: a number in full, "" for NULL.
func (c *tableColumn) text(v driver.Value) string {
	switch x := v.(type) {
	case int64:
		switch c.kind {
		case cellUint:
			return strconv.FormatUint(uint64(x), 10)
		case cellBool:
			return strconv.FormatBool(x != 0)
		}
		return strconv.FormatInt(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case string:
		return x
	}
	return ""
}

// csvTable writes CSV with a line of names.
type csvTable struct {
	columns []tableColumn
	b       *bufio.Writer
	w       *csv.Writer
	line    []string
}

func newCSV(f io.Writer, columns []tableColumn) (*csvTable, error) {
	b := bufio.NewWriterSize(f, 1<<16)
	t := &csvTable{columns: columns, b: b, w: csv.NewWriter(b), line: make([]string, len(columns))}
	for i, c := range columns {
		t.line[i] = c.name
	}
	return t, t.w.Write(t.line)
}

func (t *csvTable) row(cells []driver.Value) error {
	for i := range t.columns {
		t.line[i] = t.columns[i].text(cells[i])
	}
	return t.w.Write(t.line)
}

func (t *csvTable) close() error {
	t.w.Flush()
	return errors.Join(t.w.Error(), t.b.Flush())
}

func readCSV(path string, columns []tableColumn, d *digest) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := csv.NewReader(bufio.NewReader(f))
	r.ReuseRecord = true
	r.FieldsPerRecord = len(columns)
	if _, err := r.Read(); err != nil {
		return err
	}
	for {
		line, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		d.rows++
		for _, cell := range line {
			d.cell(cell)
		}
	}
}

const (
	// groupCells is how many cells a row group has at most: what the writer
	// holds in memory.
	groupCells = 1 << 20
	// batchRows is how many rows are handed over at a time.
	batchRows = 64
)

// parquetTable writes Parquet.
type parquetTable struct {
	columns []tableColumn
	index   []int // of each column among the file's leaves
	w       *parquet.GenericWriter[any]
	batch   []parquet.Row
}

// schemaOf is the file's schema; its leaves are in the order of their names.
func schemaOf(columns []tableColumn) (*parquet.Schema, []int, error) {
	root := parquet.Group{}
	for _, c := range columns {
		var n parquet.Node
		switch c.kind {
		case cellUint:
			n = parquet.Uint(64)
		case cellInt:
			n = parquet.Int(64)
		case cellFloat:
			n = parquet.Leaf(parquet.DoubleType)
		case cellBool:
			n = parquet.Leaf(parquet.BooleanType)
		default:
			n = parquet.String()
		}
		if c.optional {
			n = parquet.Optional(n)
		}
		root[c.name] = n
	}
	s := parquet.NewSchema("result", root)
	index := make([]int, len(columns))
	for i, c := range columns {
		leaf, ok := s.Lookup(c.name)
		if !ok {
			return nil, nil, fmt.Errorf("the column %s is not in its schema", c.name)
		}
		index[i] = leaf.ColumnIndex
	}
	return s, index, nil
}

func newParquet(f io.Writer, columns []tableColumn) (*parquetTable, error) {
	s, index, err := schemaOf(columns)
	if err != nil {
		return nil, err
	}
	w := parquet.NewGenericWriter[any](f, s, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(max(batchRows, int64(groupCells/len(columns)))),
		parquet.DataPageStatistics(true), parquet.CreatedBy("wiretape", "1", ""))
	return &parquetTable{columns: columns, index: index, w: w}, nil
}

func (t *parquetTable) row(cells []driver.Value) error {
	row := make(parquet.Row, len(t.columns))
	for i, c := range t.columns {
		v, level := parquet.NullValue(), 0
		if c.optional && cells[i] != nil {
			level = 1
		}
		switch x := cells[i].(type) {
		case int64:
			v = parquet.Int64Value(x)
			if c.kind == cellBool {
				v = parquet.BooleanValue(x != 0)
			}
		case float64:
			v = parquet.DoubleValue(x)
		case string:
			v = parquet.ByteArrayValue([]byte(x))
		}
		row[t.index[i]] = v.Level(0, level, t.index[i])
	}
	if t.batch = append(t.batch, row); len(t.batch) < batchRows {
		return nil
	}
	return t.flush()
}

func (t *parquetTable) flush() error {
	_, err := t.w.WriteRows(t.batch)
	t.batch = t.batch[:0]
	return err
}

func (t *parquetTable) close() error { return errors.Join(t.flush(), t.w.Close()) }

func readParquet(path string, columns []tableColumn, d *digest) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, index, err := schemaOf(columns)
	if err != nil {
		return err
	}
	r := parquet.NewGenericReader[any](f, s)
	defer r.Close()
	rows := make([]parquet.Row, batchRows)
	cells := make([]driver.Value, len(columns))
	for {
		n, err := r.ReadRows(rows)
		for _, row := range rows[:n] {
			if len(row) != len(columns) {
				return fmt.Errorf("a row of %d cells, %d expected", len(row), len(columns))
			}
			for i := range columns {
				cells[i] = cellOf(row[index[i]])
			}
			d.add(columns, cells)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func cellOf(v parquet.Value) driver.Value {
	if v.IsNull() {
		return nil
	}
	switch v.Kind() {
	case parquet.Boolean:
		if v.Boolean() {
			return int64(1)
		}
		return int64(0)
	case parquet.Int64:
		return v.Int64()
	case parquet.Double:
		return v.Double()
	}
	return string(v.ByteArray())
}
