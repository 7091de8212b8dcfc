package replay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"wiretape/replay/archive"
	"wiretape/wire/dendro"
)

// peak runs fn and gives by how much the heap was larger meanwhile.
func peak(fn func()) int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base := int64(m.HeapAlloc)
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		max := base
		for {
			select {
			case <-stop:
				most <- max - base
				return
			case <-time.After(80 * time.Millisecond):
			}
			// What is live counts, not what waits for the collector.
			runtime.GC()
			runtime.ReadMemStats(&m)
			if n := int64(m.HeapAlloc); n > max {
				max = n
			}
		}
	}()
	fn()
	close(stop)
	return <-most
}

// manyNames is a stream of n streams with long names, a row each, and two rows
// that differ in the last one.
func manyNames(n int) []byte {
	b := manySources(1)
	for at := 0; at < n; {
		var rows []dendro.Row
		for range min(500, n-at) {
			rows = append(rows, dendro.Row{Stream: []byte(streamName(at)), TS: int64(at), Row: []byte("row")})
			at++
		}
		r := dendro.NewRows(0, uint64(at), dendro.State{}, rows)
		b = dendro.AppendRows(b, &r)
	}
	r := dendro.NewRows(0, uint64(n), dendro.State{}, []dendro.Row{{Stream: []byte(streamName(n - 1)), TS: int64(n - 1), Row: []byte("other")}})
	return dendro.AppendRows(b, &r)
}

func streamName(n int) string { return fmt.Sprintf("stream-%08d-", n) + strings.Repeat("x", 1000) }

// However many long names a capture has, all rows are in the archive, memory
// stays flat, and what is not tracked any more is said.
func TestNamesAreBounded(t *testing.T) {
	const n = 60_000 // 60 MB of names
	path := filepath.Join(t.TempDir(), "names.stream")
	write(t, path, manyNames(n))
	var r *Report
	var out string
	var err error
	used := peak(func() { r, out, err = build(t, Options{}, path) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Counts.Rows != n || r.Counts.RowsConflicting != 1 {
		t.Errorf("%d rows and %d conflicts, want %d and 1", r.Counts.Rows, r.Counts.RowsConflicting, n)
	}
	if r.FindingsByKind[KindNamesLimit] != 1 {
		t.Errorf("findings %v", r.FindingsByKind)
	}
	if listed := len(r.Source[0].Streams); listed == 0 || int64(listed)+r.Source[0].StreamsOmitted != n {
		t.Errorf("%d streams listed, %d not", listed, r.Source[0].StreamsOmitted)
	}
	if used > 90<<20 {
		t.Errorf("the heap grew by %d MiB", used>>20)
	}
	a, err := archive.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	v, err := a.Verify(t.Context(), archive.VerifyOptions{})
	if err != nil || v.WalRows != n || len(v.Findings) != 0 {
		t.Errorf("%v: %+v", err, v)
	}
}

// Segments of more streams than are held in memory are numbered, ordered and
// found again as those of few.
func TestStreamStatesSpill(t *testing.T) {
	real := must(os.ReadFile(stream("crafted/overlapping-segment")))
	few := filepath.Join(t.TempDir(), "few.stream")
	write(t, few, real)
	_, want := mustBuild(t, Options{}, few)
	const streams = 9_000
	b := manyNames(streams)
	before := dendro.Segment{Stream: []byte(streamName(1)), Rows: 1, FirstTS: -9, LastTS: -9, Bytes: []byte("a")}
	after := dendro.Segment{Stream: []byte(streamName(1)), Rows: 1, FirstTS: -5, LastTS: -5, Bytes: []byte("b")}
	b = dendro.AppendSegment(b, &after)
	b = append(b, manyNames(streams)[len(manySources(1)):]...)
	b = dendro.AppendSegment(b, &before)
	b = dendro.AppendSegment(b, &after)
	path := filepath.Join(t.TempDir(), "spill.stream")
	write(t, path, b)
	r, out, err := build(t, Options{OnBadSegment: Keep}, path, few)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Counts; c.Rows < streams || c.RowsHeld < streams {
		t.Errorf("counts %+v", c)
	}
	d := dump(t, out)
	for _, s := range d.Sources {
		for _, w := range want.Sources {
			if s.UUID == w.UUID && (len(s.Segments) != len(w.Segments) || len(s.WAL) != len(w.WAL)) {
				t.Errorf("source %s: %d segments and %d rows, want %d and %d", s.UUID, len(s.Segments), len(s.WAL), len(w.Segments), len(w.WAL))
			}
		}
		last := int64(-100)
		for _, g := range s.Segments {
			if g.Stream != streamName(1) {
				continue
			}
			if g.FirstTS <= last {
				t.Errorf("segment %d begins at %d behind %d", g.Seq, g.FirstTS, last)
			}
			last = g.FirstTS
		}
		if last != -100 && last != -5 {
			t.Errorf("the newest segment begins at %d", last)
		}
	}
}

// Labels and metadata above the limit lie in a file: all of them come back, the
// updated ones too, and nothing is left beside the archive.
func TestWordsSpill(t *testing.T) {
	const sources = 6_000
	long := strings.Repeat("y", 2_000)
	b := dendro.AppendPreamble(nil)
	hello := func(i int) []byte { return fmt.Appendf(nil, "%08x-0000-4000-8000-000000000000", i) }
	for i := range sources {
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: uint32(i), HasUUID: true, UUID: hello(i),
			Labels:   dendro.NewMap(map[string]string{"host": fmt.Sprint(i), "long": long}),
			Metadata: dendro.NewMap(map[string]string{"encoder": "e", "note": long})})
	}
	for i := 0; i < sources; i += 2 {
		b = dendro.AppendSourceUpdate(b, &dendro.SourceUpdate{Source: uint32(i),
			Labels: dendro.NewMap(map[string]string{"host": "new"}), Metadata: dendro.NewMap(map[string]string{"encoder": "f"})})
	}
	path := filepath.Join(t.TempDir(), "words.stream")
	write(t, path, b)
	r, out, err := build(t, Options{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(len(r.Source)) + r.SourcesOmitted; n != sources || r.SourcesOmitted == 0 {
		t.Errorf("%d sources, %d of them listed", n, len(r.Source))
	}
	a, err := archive.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	got, err := a.Sources()
	if err != nil || len(got) != sources {
		t.Fatalf("%d sources, %v", len(got), err)
	}
	for i, s := range got {
		host, note := fmt.Sprint(i), long
		if i%2 == 0 {
			host, note = "new", ""
		}
		if s.UUID != string(hello(i)) || s.Labels["host"] != host || s.Metadata["note"] != note || s.Metadata["encoder"] != "e" {
			t.Fatalf("source %d: %q, host %q, encoder %q, %d bytes of note", i, s.UUID, s.Labels["host"], s.Metadata["encoder"], len(s.Metadata["note"]))
		}
	}
	if left := must(filepath.Glob(filepath.Join(filepath.Dir(out), ".replay-*"))); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Uuids that take more than the limit end the rebuild with their place.
func TestUUIDsAreBounded(t *testing.T) {
	b := dendro.AppendPreamble(nil)
	for i := range 20 {
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: uint32(i), HasUUID: true, UUID: []byte(strings.Repeat(string(rune('a'+i)), 1<<20))})
	}
	path := filepath.Join(t.TempDir(), "uuids.stream")
	write(t, path, b)
	_, _, err := build(t, Options{}, path)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Finding.Kind != KindNamesLimit || refused.Finding.Offset == 0 {
		t.Errorf("%v", err)
	}
}

// Rows as large as a frame that differ from the one that is kept are not held
// more than once beside it.
func TestLargeConflictsAreNotHeld(t *testing.T) {
	const size = 40 << 20
	path := filepath.Join(t.TempDir(), "conflict.stream")
	f := must(os.Create(path))
	b := manySources(1)
	for i := range 3 {
		r := dendro.NewRows(0, uint64(i), dendro.State{}, []dendro.Row{{Stream: []byte("s"), TS: 5, Row: []byte(strings.Repeat(string(rune('a'+i)), size))}})
		if _, err := f.Write(dendro.AppendRows(b, &r)); err != nil {
			t.Fatal(err)
		}
		b = b[:0]
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b = nil
	var r *Report
	var err error
	used := peak(func() { r, _, err = build(t, Options{}, path) })
	if err != nil || r.Counts.RowsConflicting != 2 || r.Counts.Rows != 1 {
		t.Fatalf("%v: %+v", err, r.Counts)
	}
	if used > size+size/2+24<<20 {
		t.Errorf("the heap grew by %d MiB for rows of %d", used>>20, size>>20)
	}
}
