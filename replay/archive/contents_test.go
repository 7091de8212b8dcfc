package archive

import (
	"path/filepath"
	"testing"

	"wiretape/replay/internal/db"
)

// TestCovered: segments cover a time only where nothing fits in before, between
// and behind them.
func TestCovered(t *testing.T) {
	d, err := db.Open(filepath.Join(t.TempDir(), "a.dendro"), db.Create)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, q := range tablesFor(SchemaCurrent) {
		if err := d.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Exec("INSERT INTO sources(id, labels, metadata, clock_anchor_wall_ns) VALUES (1, '', '', 0)"); err != nil {
		t.Fatal(err)
	}
	for i, s := range [][2]int64{{0, 10}, {11, 20}, {30, 40}, {35, 60}, {63, 70}} {
		if err := d.Exec("INSERT INTO segments(source_id, stream, seq, rows, first_ts, last_ts, bytes) VALUES (1, 's', ?, 1, ?, ?, x'00')", int64(i), s[0], s[1]); err != nil {
			t.Fatal(err)
		}
	}
	near := func(a, b int64) bool { return b-a < 2 || a == 60 && b == 63 }
	for _, c := range []struct {
		from, to int64
		want     bool
		why      string
	}{
		{0, 10, true, "one"},
		{3, 7, true, "inside one"},
		{3, 18, true, "two that follow one another"},
		{3, 21, true, "to a row right behind the last"},
		{3, 22, false, "a row fits in behind the last"},
		{3, 35, false, "a hole between two, with segments on both sides"},
		{20, 30, false, "nothing but a hole"},
		{21, 29, false, "no segment"},
		{24, 25, false, "no segment, though nothing fits in"},
		{29, 40, true, "from a row right before the first"},
		{28, 40, false, "a row fits in before the first"},
		{30, 70, true, "over a seam that is known"},
		{30, 71, true, "and to what follows"},
		{-5, 5, false, "before all"},
	} {
		got, err := contents{d}.Covered(1, "s", c.from, c.to, near)
		if err != nil || got != c.want {
			t.Errorf("%d to %d, %s: %v, %v", c.from, c.to, c.why, got, err)
		}
	}
	if got, err := (contents{d}).Covered(1, "other", 0, 10, near); got || err != nil {
		t.Errorf("another stream: %v, %v", got, err)
	}
}
