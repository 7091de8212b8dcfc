package db

import (
	"database/sql/driver"
	"path/filepath"
	"strings"
	"testing"
)

func TestInsertAndQuery(t *testing.T) {
	// A name that a URI would take apart.
	path := filepath.Join(t.TempDir(), "a b?c=d#é.sqlite")
	d, err := Open(path, Create)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run("CREATE TABLE t (n INTEGER PRIMARY KEY, s TEXT)", "BEGIN"); err != nil {
		t.Fatal(err)
	}
	x := d.Inserter("t", "n", "s")
	for n := range int64(1234) {
		var s any
		if n%2 == 0 {
			s = "nul\x00inside"
		}
		if err := x.Add(n, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := d.Run("COMMIT"); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Int("SELECT count(*) FROM t"); err != nil || n != 1234 || x.Rows() != n {
		t.Errorf("%d rows, %v", n, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = Open(path, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	at := int64(0)
	err = d.Query("SELECT n, s FROM t WHERE n >= ? ORDER BY n", func(v []driver.Value) error {
		// Another query, while this one runs.
		if m, err := d.Int("SELECT n + 1 FROM t WHERE n = ?", v[0]); err != nil || m != at+1 {
			t.Errorf("%d, %v", m, err)
		}
		want := driver.Value(nil)
		if at%2 == 0 {
			want = "nul\x00inside"
		}
		if v[0] != at || v[1] != want {
			t.Errorf("row %d is %v", at, v)
		}
		at++
		return nil
	}, int64(0))
	if err != nil || at != 1234 {
		t.Errorf("%d rows, %v", at, err)
	}
	if faults, err := d.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
	if err := d.Exec("INSERT INTO t VALUES (9999, 'x')"); err == nil {
		t.Error("a database that is only read was written to")
	}
	if err := d.Run("SELECT " + strings.Repeat("nonsense ", 100)); err == nil || len(err.Error()) > 200 {
		t.Errorf("%v", err)
	}
}

func TestFaultsAreFound(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "db"), Create)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Run("PRAGMA foreign_keys=OFF", "CREATE TABLE a (id INTEGER PRIMARY KEY)", "CREATE TABLE b (a INTEGER REFERENCES a)", "INSERT INTO b VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if faults, err := d.Faults(); err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], "b ") {
		t.Errorf("%v, %v", faults, err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing"), ReadOnly); err == nil {
		t.Error("a database that is not there was opened")
	}
}
