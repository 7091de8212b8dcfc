package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/internal/vfs"
	"wiretape/replay/archive"
	"wiretape/wire"
)

// asideIn is a quarantine in a file system.
func asideIn(fsys vfs.FS) *quarantine {
	q := newQuarantine("/a/out.dendro")
	q.fs = fsys
	q.uuid = func(int64) string { return "u" }
	q.found = func(wire.Finding) {}
	return q
}

func asideNumber(t *testing.T, q *quarantine, n int) {
	t.Helper()
	b := bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, 700)
	s := archive.Segment{Rows: 1, FirstTS: int64(n), LastTS: int64(n), Bytes: b, Place: archive.Place{Conn: -1}}
	s.SHA[0], s.SHA[1] = byte(n), byte(n>>8)
	if err := q.keepSegment(1, "s", s, "test", nil); err != nil {
		t.Fatal(err)
	}
}

func checkAside(t *testing.T, fsys vfs.FS, what string, n int) {
	t.Helper()
	for i := range n {
		name := filepath.Join("/a/out.dendro"+quarantineSuffix, fmt.Sprintf("segment-%02x%02x%s", byte(i), byte(i>>8), strings.Repeat("00", 30)))
		b, err := vfs.ReadFile(fsys, name+".parquet", maxAsideFile)
		if err != nil || !bytes.Equal(b, bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, 700)) {
			t.Errorf("%s: segment %d: %v, %d bytes", what, i, err, len(b))
		}
		b, err = vfs.ReadFile(fsys, name+".json", maxAsideFile)
		if err != nil || !json.Valid(b) {
			t.Errorf("%s: the note of segment %d: %v, %q", what, i, err, b)
		}
	}
}

// What was set aside is safe once sync returned, however many files are made
// safe together; what a crash left of later ones gives way to the next run's.
func TestSetAsideSurvivesACrash(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/a"); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	q := asideIn(m)
	const safe, all = 40, 60
	for i := range all {
		if i == safe {
			if err := q.syncAside(); err != nil {
				t.Fatal(err)
			}
		}
		asideNumber(t, q, i)
	}
	for _, how := range vfs.Crashes {
		for seed := range uint64(20) {
			what := fmt.Sprint(how, " ", seed)
			after := m.CrashClone(how, seed)
			checkAside(t, after, what, safe)
			again := asideIn(after)
			for i := safe; i < all; i++ {
				asideNumber(t, again, i)
			}
			if err := again.syncAside(); err != nil {
				t.Fatal(what, err)
			}
			checkAside(t, after.CrashClone(vfs.CrashLoseAll, 0), what+", again", all)
		}
	}
}
