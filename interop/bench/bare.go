//go:build interop

package main

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// batchRows and batchBytes bound one transaction.
	batchRows  = 20_000
	batchBytes = 16 << 20
	// perInsert rows go into one statement.
	perInsert = 100
)

// bareTime is what the bare insert prints.
type bareTime struct {
	InsertNs int64 `json:"insert_ns"`
	Rows     int64 `json:"rows"`
	Segments int64 `json:"segments"`
}

// bare inserts rows grouped by (source, stream), and segments, with no rule
// applied and nothing checked: what SQLite itself needs.
type bare struct {
	conn  driver.Conn
	stmts map[int]driver.Stmt
	seg   driver.Stmt
	args  []driver.NamedValue
	took  bareTime

	groups map[group][]dendro.Row
	order  []group
	n      int
	arena  []byte
	seq    map[group]int64
}

type group struct {
	source int64
	stream string
}

// bareInsert fills the empty archive with the stream's rows and segments, and
// prints how long SQLite took, sync and rename included.
func bareInsert(in, out string) error {
	c, err := (&sqlite.Driver{}).Open(out)
	if err != nil {
		return err
	}
	b := &bare{conn: c, stmts: map[int]driver.Stmt{}, groups: map[group][]dendro.Row{}, seq: map[group]int64{}}
	for _, q := range []string{"PRAGMA foreign_keys=OFF", "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=MEMORY", "PRAGMA synchronous=OFF"} {
		if err := b.exec(q); err != nil {
			return err
		}
	}
	if err := b.read(in); err != nil {
		return err
	}
	start := time.Now()
	for _, s := range b.stmts {
		s.Close()
	}
	if b.seg != nil {
		b.seg.Close()
	}
	for _, q := range []string{"PRAGMA locking_mode=NORMAL", "PRAGMA synchronous=FULL", "PRAGMA journal_mode=WAL"} {
		if err := b.exec(q); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Close(), syncFile(out), os.Rename(out, out+".done"), os.Rename(out+".done", out), syncFile(filepath.Dir(out))); err != nil {
		return err
	}
	b.took.InsertNs += time.Since(start).Nanoseconds()
	return json.NewEncoder(os.Stdout).Encode(b.took)
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (b *bare) read(in string) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	dec, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		return err
	}
	r := wire.NewReader(f, dec, wire.ReaderOptions{})
	for {
		u, _, err := r.Next()
		if err == io.EOF {
			return b.flush()
		} else if err != nil {
			return err
		}
		if u.Type != wire.UnitFrame {
			continue
		}
		switch u.Kind {
		case dendro.KindHandshake:
			h, fault := dendro.DecodeHandshake(u)
			if fault != nil {
				return fault
			}
			if err := b.exec("INSERT INTO sources(id, labels, metadata, clock_anchor_wall_ns) VALUES (?, '{}', '{}', 0)", int64(h.Source)); err != nil {
				return err
			}
		case dendro.KindRows:
			rows, fault := dendro.DecodeRows(u)
			if fault != nil {
				return fault
			}
			for row := range rows.All() {
				b.add(int64(rows.Source), row)
			}
			if b.n >= batchRows || len(b.arena) >= batchBytes {
				if err := b.flush(); err != nil {
					return err
				}
			}
		case dendro.KindSegment:
			s, fault := dendro.DecodeSegment(u)
			if fault != nil {
				return fault
			}
			if err := b.segment(&s); err != nil {
				return err
			}
		}
	}
}

func (b *bare) add(source int64, row dendro.Row) {
	g := group{source, string(row.Stream)}
	if len(b.groups[g]) == 0 {
		b.order = append(b.order, g)
	}
	at := len(b.arena)
	b.arena = append(b.arena, row.Row...)
	row.Row = b.arena[at:len(b.arena):len(b.arena)]
	b.groups[g] = append(b.groups[g], row)
	b.n++
}

// flush inserts the batch in one transaction.
func (b *bare) flush() error {
	start := time.Now()
	defer func() { b.took.InsertNs += time.Since(start).Nanoseconds() }()
	if b.n == 0 {
		return nil
	}
	if err := b.exec("BEGIN"); err != nil {
		return err
	}
	for _, g := range b.order {
		rows := b.groups[g]
		for len(rows) > 0 {
			n := min(len(rows), perInsert)
			if err := b.insert(g, rows[:n]); err != nil {
				return err
			}
			rows = rows[n:]
		}
		clear(b.groups[g])
		b.groups[g] = b.groups[g][:0]
	}
	b.took.Rows += int64(b.n)
	b.order, b.n, b.arena = b.order[:0], 0, b.arena[:0]
	return b.exec("COMMIT")
}

func (b *bare) insert(g group, rows []dendro.Row) error {
	s := b.stmts[len(rows)]
	if s == nil {
		var err error
		q := "INSERT OR FAIL INTO wal VALUES (?,?,?,?,?)" + strings.Repeat(",(?,?,?,?,?)", len(rows)-1)
		if s, err = b.conn.Prepare(q); err != nil {
			return err
		}
		b.stmts[len(rows)] = s
	}
	b.args = b.args[:0]
	for i := range rows {
		b.bind(g.source, g.stream, rows[i].TS, rows[i].WallOffset, rows[i].Row)
	}
	_, err := s.(driver.StmtExecContext).ExecContext(context.Background(), b.args)
	return err
}

func (b *bare) bind(values ...any) {
	for _, v := range values {
		b.args = append(b.args, driver.NamedValue{Ordinal: len(b.args) + 1, Value: v})
	}
}

func (b *bare) segment(s *dendro.Segment) (err error) {
	start := time.Now()
	defer func() { b.took.InsertNs += time.Since(start).Nanoseconds() }()
	if b.seg == nil {
		if b.seg, err = b.conn.Prepare("INSERT INTO segments VALUES (?,?,?,?,?,?,?)"); err != nil {
			return err
		}
	}
	g := group{int64(s.Source), string(s.Stream)}
	b.args = b.args[:0]
	b.bind(g.source, g.stream, b.seq[g], int64(s.Rows), s.FirstTS, s.LastTS, s.Bytes)
	b.seq[g]++
	b.took.Segments++
	_, err = b.seg.(driver.StmtExecContext).ExecContext(context.Background(), b.args)
	return err
}

func (b *bare) exec(q string, values ...any) error {
	s, err := b.conn.Prepare(q)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	defer s.Close()
	b.args = b.args[:0]
	b.bind(values...)
	if _, err = s.(driver.StmtExecContext).ExecContext(context.Background(), b.args); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}
