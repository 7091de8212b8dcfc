package archive

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"modernc.org/sqlite"
)

// db is one connection to SQLite at the driver's own level: a stage has one
// writer, and database/sql costs a tenth of the insert speed (measured).
type db struct {
	conn  driver.Conn
	cache map[string]*stmt
	args  []driver.NamedValue
}

type stmt struct {
	s driver.Stmt
	d *db
}

func openDB(dsn string) (*db, error) {
	c, err := (&sqlite.Driver{}).Open(dsn)
	if err != nil {
		return nil, err
	}
	return &db{conn: c, cache: map[string]*stmt{}}, nil
}

func (d *db) close() error {
	var errs []error
	for _, s := range d.cache {
		errs = append(errs, s.s.Close())
	}
	d.cache = nil
	return errors.Join(append(errs, d.conn.Close())...)
}

// prepare keeps the statement for as long as the connection lives.
func (d *db) prepare(q string) (*stmt, error) {
	if s := d.cache[q]; s != nil {
		return s, nil
	}
	s, err := d.conn.Prepare(q)
	if err != nil {
		return nil, fmt.Errorf("%w in %q", err, q)
	}
	st := &stmt{s: s, d: d}
	d.cache[q] = st
	return st, nil
}

func (d *db) named(args []any) []driver.NamedValue {
	d.args = d.args[:0]
	for i, a := range args {
		d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return d.args
}

// exec runs a statement and gives how many rows it changed.
func (s *stmt) exec(args ...any) (int64, error) {
	r, err := s.s.(driver.StmtExecContext).ExecContext(context.Background(), s.d.named(args))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (d *db) exec(q string, args ...any) (int64, error) {
	s, err := d.prepare(q)
	if err != nil {
		return 0, err
	}
	return s.exec(args...)
}

// run executes statements that are used once.
func (d *db) run(queries ...string) error {
	for _, q := range queries {
		s, err := d.conn.Prepare(q)
		if err != nil {
			return fmt.Errorf("%w in %q", err, q)
		}
		_, err = s.(driver.StmtExecContext).ExecContext(context.Background(), nil)
		if e := s.Close(); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("%w in %q", err, q)
		}
	}
	return nil
}

// query calls row for each result row until it gives an error. The values are
// good during the call. A statement that is not kept is prepared anew, so that
// row may run queries of its own.
func (d *db) query(q string, row func(v []driver.Value) error, args ...any) (err error) {
	s, err := d.conn.Prepare(q)
	if err != nil {
		return fmt.Errorf("%w in %q", err, q)
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	nv := make([]driver.NamedValue, len(args))
	for i, a := range args {
		nv[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return scan(s, nv, row)
}

func scan(s driver.Stmt, args []driver.NamedValue, row func(v []driver.Value) error) (err error) {
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(v); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(v); err != nil {
			return err
		}
	}
}

// queryOne is query for a kept statement with at most one result row; found is
// false without one.
func (d *db) queryOne(q string, row func(v []driver.Value) error, args ...any) (found bool, err error) {
	s, err := d.prepare(q)
	if err != nil {
		return false, err
	}
	err = scan(s.s, d.named(args), func(v []driver.Value) error {
		if found {
			return nil
		}
		found = true
		return row(v)
	})
	return found, err
}
