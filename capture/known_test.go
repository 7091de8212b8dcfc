package capture

import (
	"testing"

	"wiretape/internal/vfs"
)

// TestKnown: what journals say of files that are not here, and nothing of files
// of which two say different things.
func TestKnown(t *testing.T) {
	mem := vfs.NewMem()
	entry := func(dir, file string, offset, bytes int64, sum string) {
		t.Helper()
		if err := Append(mem, dir, false, Entry{Event: EventSeal, File: file, Offset: offset, Bytes: bytes, SHA256: sum}); err != nil {
			t.Fatal(err)
		}
	}
	const id = "c00000001-00000abc"
	for _, dir := range []string{"a", "b"} {
		if err := mem.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		entry(dir, id+".00000001.cap", 0, 10, "11")
		entry(dir, id+".00000002.cap", 10, 5, "22"+dir)
	}
	entry("a", id+".00000003.cap", 15, 5, "old")
	entry("a", id+".00000003.cap", 15, 6, "33") // a later line takes the earlier one back
	if err := Append(mem, "a", false, Entry{Event: EventDisconnect, Connection: id, Bytes: 21}); err != nil {
		t.Fatal(err)
	}
	set, err := OpenInputs([]string{"a", "b"}, InputOptions{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	k := set.Known(func(c string) bool { return c == id })[id]
	if k == nil || len(k.Files) != 2 || k.Files[0].SHA256 != "11" || k.Files[1] != (KnownFile{3, 15, 6, "33"}) || k.End != 21 {
		t.Fatalf("%+v", k)
	}
	for _, c := range []struct{ from, to, files int64 }{{0, 10, 1}, {2, 4, 1}, {0, 11, 0}, {15, 21, 1}, {15, 22, 0}, {10, 15, 0}, {21, 22, 0}} {
		if got := k.Covering(c.from, c.to); int64(len(got)) != c.files {
			t.Errorf("%d to %d: %+v", c.from, c.to, got)
		}
	}
	if len(set.Known(func(string) bool { return false })) != 0 || (*Known)(nil).Covering(0, 1) != nil {
		t.Error("something is known of nothing")
	}
}
