// Package db is one connection to SQLite at the driver's own level, as a build
// wants it: one writer, statements that are kept, rows inserted a hundred at a
// time. database/sql costs a tenth of the insert speed (measured).
package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strings"

	"modernc.org/sqlite"
)

// DB is one connection. It is for one goroutine.
type DB struct {
	conn  driver.Conn
	kept  map[string]driver.Stmt
	named []driver.NamedValue
}

// Mode says what a database is opened for.
type Mode string

const (
	// Create makes the file where there is none.
	Create Mode = "rwc"
	// ReadOnly never writes to the database, but may make files beside it.
	ReadOnly Mode = "ro"
	// ReadWrite wants the file to be there.
	ReadWrite Mode = "rw"
	// Immutable takes no lock and makes no file; it does not see what lies in a
	// write-ahead log.
	Immutable Mode = "ro&immutable=1"
)

// Open opens the database at a path, whatever characters it has.
func Open(path string, mode Mode) (*DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "file", Path: abs, RawQuery: "mode=" + string(mode)}
	c, err := (&sqlite.Driver{}).Open(u.String())
	if err != nil {
		return nil, err
	}
	return &DB{conn: c, kept: map[string]driver.Stmt{}}, nil
}

// Close closes the statements and the connection.
func (d *DB) Close() error {
	var errs []error
	for _, s := range d.kept {
		errs = append(errs, s.Close())
	}
	d.kept = nil
	return errors.Join(append(errs, d.conn.Close())...)
}

func (d *DB) keep(query string) (driver.Stmt, error) {
	if s := d.kept[query]; s != nil {
		return s, nil
	}
	s, err := d.conn.Prepare(query)
	if err != nil {
		return nil, wrap(err, query)
	}
	d.kept[query] = s
	return s, nil
}

func (d *DB) values(args []any) []driver.NamedValue {
	d.named = d.named[:0]
	for i, a := range args {
		d.named = append(d.named, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return d.named
}

// shownQuery is how much of a statement an error shows.
const shownQuery = 60

func wrap(err error, query string) error {
	if len(query) > shownQuery {
		query = query[:shownQuery] + "…"
	}
	return fmt.Errorf("%w in %q", err, query)
}

// Exec runs a statement and keeps it prepared.
func (d *DB) Exec(query string, args ...any) error {
	_, err := d.Change(query, args...)
	return err
}

// Change is Exec that gives how many rows were changed.
func (d *DB) Change(query string, args ...any) (int64, error) {
	s, err := d.keep(query)
	if err != nil {
		return 0, err
	}
	r, err := s.(driver.StmtExecContext).ExecContext(context.Background(), d.values(args))
	if err != nil {
		return 0, wrap(err, query)
	}
	return r.RowsAffected()
}

// One calls row for the first row of the result of a query that is kept
// prepared; found is false when there is none. row must not run the same query.
func (d *DB) One(query string, row func(v []driver.Value) error, args ...any) (found bool, err error) {
	s, err := d.keep(query)
	if err != nil {
		return false, err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), d.values(args))
	if err != nil {
		return false, wrap(err, query)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v := make([]driver.Value, len(rows.Columns()))
	switch err := rows.Next(v); {
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, wrap(err, query)
	}
	return true, row(v)
}

// Run runs statements that are needed once.
func (d *DB) Run(queries ...string) error {
	for _, q := range queries {
		s, err := d.conn.Prepare(q)
		if err != nil {
			return wrap(err, q)
		}
		_, err = s.(driver.StmtExecContext).ExecContext(context.Background(), nil)
		if err := errors.Join(err, s.Close()); err != nil {
			return wrap(err, q)
		}
	}
	return nil
}

// Query calls row for each row of the result until it gives an error. The
// values are good during the call, in which other queries may run; bytes are the
// caller's for ever.
func (d *DB) Query(query string, row func(v []driver.Value) error, args ...any) (err error) {
	s, err := d.conn.Prepare(query)
	if err != nil {
		return wrap(err, query)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	named := append([]driver.NamedValue(nil), d.values(args)...)
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), named)
	if err != nil {
		return wrap(err, query)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(v); {
		case err == io.EOF:
			return nil
		case err != nil:
			return wrap(err, query)
		}
		if err := row(v); err != nil {
			return err
		}
		letGo(v)
	}
}

// hugeBytes is from where on a value is worth a collection of its own.
const hugeBytes = 16 << 20

// letGo drops a row's values. Of a huge one the memory comes back at once, so
// that it does not lie beside the next.
func letGo(v []driver.Value) {
	huge := false
	for _, x := range v {
		b, _ := x.([]byte)
		huge = huge || len(b) > hugeBytes
	}
	clear(v)
	if huge {
		debug.FreeOSMemory()
	}
}

// Int is the one integer that a query gives, 0 when it gives none.
func (d *DB) Int(query string, args ...any) (n int64, err error) {
	err = d.Query(query, func(v []driver.Value) error {
		n, _ = v[0].(int64)
		return nil
	}, args...)
	return n, err
}

// Faults gives what the database's own checks of itself find, at most ten
// lines, none when it is sound.
func (d *DB) Faults() (faults []string, err error) {
	for _, q := range []string{"PRAGMA foreign_key_check", "PRAGMA quick_check"} {
		err := d.Query(q, func(v []driver.Value) error {
			parts := make([]string, len(v))
			for i := range v {
				parts[i] = fmt.Sprint(v[i])
			}
			if text := strings.Join(parts, " "); text != "ok" && len(faults) < 10 {
				faults = append(faults, text)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return faults, nil
}

// groupRows is how many rows one statement inserts (libraries measured: more
// gain nothing).
const groupRows = 100

// Inserter collects rows for one table.
type Inserter struct {
	db      *DB
	one     string
	many    string
	columns int
	args    []any
	rows    int64
}

// Inserter makes an inserter for a table's columns. Rows are in the database
// once Flush was called.
func (d *DB) Inserter(table string, columns ...string) *Inserter {
	head := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES "
	group := "(" + strings.TrimSuffix(strings.Repeat("?,", len(columns)), ",") + ")"
	return &Inserter{db: d, one: head + group, columns: len(columns),
		many: head + strings.TrimSuffix(strings.Repeat(group+",", groupRows), ",")}
}

// Add adds a row, one value a column.
func (x *Inserter) Add(row ...any) error {
	x.args = append(x.args, row...)
	x.rows++
	if len(x.args) < groupRows*x.columns {
		return nil
	}
	err := x.db.Exec(x.many, x.args...)
	x.args = x.args[:0]
	return err
}

// Rows is how many rows were added.
func (x *Inserter) Rows() int64 { return x.rows }

// Flush inserts what was collected.
func (x *Inserter) Flush() error {
	for a := x.args; len(a) > 0; a = a[x.columns:] {
		if err := x.db.Exec(x.one, a[:x.columns]...); err != nil {
			return err
		}
	}
	x.args = x.args[:0]
	return nil
}
