package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

// rowStream writes a stream of n Rows frames of 20 rows, each of another
// stream: the shape that is hardest on SQLite.
func rowStream(t testing.TB, n int) string {
	path := filepath.Join(t.TempDir(), "rows.stream")
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{UUID: []byte("3f2b1c4d-0000-4000-8000-000000000001"), HasUUID: true,
		Labels: dendro.NewMap(map[string]string{"host": "bench"}), Metadata: dendro.NewMap(map[string]string{"encoder": "bench"})})
	names := make([][]byte, 20)
	for i := range names {
		names[i] = fmt.Appendf(nil, "stream_%d", i)
	}
	blob := make([]byte, 76)
	rows := make([]dendro.Row, len(names))
	for i := range n {
		for j := range rows {
			blob[0]++
			rows[j] = dendro.Row{Stream: names[j], TS: int64(1_700_000_000+i) * 1e9, WallOffset: int64(j), Row: blob}
		}
		r := dendro.NewRows(0, uint64(i), dendro.State{}, rows)
		b = dendro.AppendRows(b, &r)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// BenchmarkBuildRows rebuilds a stream of live rows; MB/s are the stream's.
func BenchmarkBuildRows(b *testing.B) {
	in := rowStream(b, 10_000)
	info, err := os.Stat(in)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	out := filepath.Join(b.TempDir(), "out.dendro")
	for b.Loop() {
		if _, _, err := build(b, Options{Archive: out, Check: segment.DepthRows}, in); err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(out); err != nil {
			b.Fatal(err)
		}
	}
}
