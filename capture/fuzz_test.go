package capture_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"wiretape/capture"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
)

// FuzzJournal: a journal of any bytes is read to its end, and takes a line.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","monotonic_ns":"1","event":"ship","file":"c00000001-00000001.00000001.cap"}` + "\n"))
	f.Add([]byte("{\"event\":\"seal\"}\n\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := vfs.NewMem()
		m.MkdirAll("/a")
		m.SetFile("/a/journal.jsonl", b)
		j, err := capture.ReadJournal(m, "/a")
		if err != nil {
			t.Fatal(err)
		}
		if err := capture.Append(m, "/a", false, capture.Entry{Event: capture.EventStop}); err != nil {
			t.Fatal(err)
		}
		k, err := capture.ReadJournal(m, "/a")
		if err != nil || len(k.Entries) != len(j.Entries)+1 || k.Skipped != j.Skipped {
			t.Fatalf("%d entries and %d skipped became %d and %d, %v", len(j.Entries), j.Skipped, len(k.Entries), k.Skipped, err)
		}
	})
}

// FuzzFolder: sidecars, indexes, sums and bytes of any content are opened, read,
// verified, described and recovered, and no bytes change.
func FuzzFolder(f *testing.F) {
	r := recordMem(f, 1, 20, 2000)
	f.Add(r.files[r.name(1, ".cap")], r.files[r.name(1, ".json")], r.files[r.name(1, ".idx")], r.files[r.name(2, ".json")], r.files[r.name(1, ".sha256")], uint8(0))
	f.Add([]byte("LEN1\x01\x00\x00\x00\x01"), []byte("{}"), []byte("WTARRIX1"), []byte("{"), []byte("x  y\n"), uint8(1))
	f.Add([]byte("\x28\xb5\x2f\xfd"), []byte("{}"), []byte(""), []byte("{"), []byte(""), uint8(2))
	f.Fuzz(func(t *testing.T, b, side, idx, side2, sums []byte, form uint8) {
		m := vfs.NewMem()
		m.MkdirAll("/a")
		ext := []string{".cap", ".cap.partial", ".cap.zst"}[form%3]
		first := "/a/c00000001-00000001.00000001"
		second := "/a/c00000001-00000001.00000002"
		m.SetFile(first+ext, b)
		m.SetFile(first+".json", side)
		m.SetFile(first+".json.partial", side2)
		m.SetFile(first+".idx", idx)
		m.SetFile(first+".sha256", sums)
		m.SetFile(second+".cap", b)
		m.SetFile(second+".json", side2)
		look(t, m)
		if _, err := capture.Recover("/a", capture.Options{FS: m, Registry: lenproto.Registry, Clock: newClock()}); err != nil {
			t.Fatal(err)
		}
		look(t, m)
		after := m.Files()
		if ext == ".cap.partial" {
			ext = ".cap"
		}
		if !bytes.Equal(after[first+ext], b) || !bytes.Equal(after[second+".cap"], b) {
			t.Fatal("recovery changed bytes")
		}
	})
}

func look(t *testing.T, m *vfs.Mem) {
	set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil {
		var refused *capture.NoPlaceError
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
		return
	}
	for _, c := range set.Connections {
		for _, r := range c.Runs() {
			rr, _ := r.Open()
			if _, err := io.Copy(io.Discard, rr); err != nil {
				var d *capture.DamagedError
				if !errors.As(err, &d) {
					t.Fatal(err)
				}
			}
			rr.Close()
		}
	}
	if _, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m)}); err != nil {
		t.Fatal(err)
	}
	if _, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(m)}); err != nil {
		t.Fatal(err)
	}
}
