package segment

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"
)

// wideSegment is a segment of a real one's size: 100 columns whose pages are
// those of a committed real segment, one after the other, and a time column.
// Its pages are the real ones, but there are 14 to a column, where a real
// segment of this size has one.
func wideSegment(tb testing.TB, from string) ([]byte, Claim) {
	tb.Helper()
	real, err := takeApart(readFile(tb, from))
	if err != nil {
		tb.Fatal(err)
	}
	const columns, repeat = 100, 14
	a := &anatomy{meta: real.meta.clone()}
	root := a.meta.at(2).list[0]
	group := a.meta.at(4).list[0]
	elements := a.meta.at(2).list[1:]
	rows := group.at(3).num
	var flat []int
	for i, e := range elements {
		if e.at(1) == nil {
			tb.Fatalf("%s is nested", from)
		}
		if string(e.at(4).bytes) != "timestamp" {
			flat = append(flat, i)
		}
	}
	var schema, chunks []*node
	add := func(e, whole *node, pages []*anatomyPage) {
		meta := whole.at(3)
		meta.fields = slices.DeleteFunc(meta.fields, func(f field) bool { return f.id == 12 })
		schema = append(schema, e)
		chunks = append(chunks, whole)
		a.chunks = append(a.chunks, &anatomyChunk{meta: meta, whole: whole, pages: pages})
	}
	start := int64(1_700_000_000_000_000_000)
	times := make([]byte, 0, rows*repeat*8)
	for i := range rows * repeat {
		times = binary.LittleEndian.AppendUint64(times, uint64(start+i*1_000_000_000))
	}
	ts := craft(rows*repeat, craftColumn{name: "timestamp", typ: 2, pages: []*anatomyPage{dataPage(rows*repeat, 0, int64(len(times)), times)}})
	add(ts.meta.at(2).list[1], ts.chunks[0].whole, ts.chunks[0].pages)
	for i := range columns - 1 {
		k := flat[i%len(flat)]
		e, whole := elements[k].clone(), real.chunks[k].whole.clone()
		name := fmt.Sprintf("column_%03d", i)
		e.at(4).bytes = []byte(name)
		whole.at(3).at(3).list[0].bytes = []byte(name)
		var pages []*anatomyPage
		for range repeat {
			pages = append(pages, real.chunks[k].pages...)
		}
		add(e, whole, pages)
	}
	root.set(5, columns)
	a.meta.at(2).list = append([]*node{root}, schema...)
	group.at(1).list = chunks
	group.set(3, rows*repeat)
	a.meta.set(3, rows*repeat)
	a.meta.fields = slices.DeleteFunc(a.meta.fields, func(f field) bool { return f.id == 7 })
	return a.putTogether(), Claim{Rows: uint64(rows * repeat), FirstTS: start, LastTS: start + (rows*repeat-1)*1_000_000_000}
}

// BenchmarkCheck is each depth on a segment of 100 columns in LZ4_RAW, which is
// what the dendro crate writes.
func BenchmarkCheck(b *testing.B) {
	segment, claim := wideSegment(b, "real/real-small-0000.parquet")
	if name := os.Getenv("WIRETAPE_WRITE_SEGMENT"); name != "" {
		// For timing another reader on the same file.
		if err := os.WriteFile(name, segment, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for d := DepthFooter; d <= DepthFull; d++ {
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(int64(len(segment)))
			b.ReportAllocs()
			for b.Loop() {
				if r := Check(segment, claim, Options{Depth: d}); !r.Sound() || r.Proved != (d >= DepthRows) || len(r.Unchecked) > 0 {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
	b.Run("times", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := EachTime(segment, Options{}, func(int64) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel full", func(b *testing.B) {
		b.SetBytes(int64(len(segment)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if r := Check(segment, claim, Options{Depth: DepthFull}); !r.Sound() {
					b.Error(r.Findings)
				}
			}
		})
	})
}

// BenchmarkReal is each committed kind of segment at full depth.
func BenchmarkReal(b *testing.B) {
	said := claims(b)
	for _, name := range []string{"real/real-small-0000.parquet", "real/telemetry-churn-0083.parquet", "real/telemetry-small-0000.parquet",
		"made/snappy-v1-plain.parquet", "made/gzip-v1-plain.parquet", "made/brotli-v1-plain.parquet", "made/zstd-v2-delta.parquet"} {
		segment := readFile(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(segment)))
			b.ReportAllocs()
			for b.Loop() {
				if r := Check(segment, said[name], Options{Depth: DepthFull}); len(r.Unchecked) > 0 {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}

// TestWideSegment: the benchmark's segment is sound and proved.
func TestWideSegment(t *testing.T) {
	b, claim := wideSegment(t, "real/real-small-0000.parquet")
	if r := Check(b, claim, Options{Depth: DepthFull}); !r.Sound() || !r.Proved || len(b) < 2<<20 {
		t.Errorf("%d bytes: %+v", len(b), r)
	}
}
