package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Builders of Thrift structs, for files that no writer would make.

func i32(v int64) *node        { return &node{typ: cI32, num: v} }
func i64(v int64) *node        { return &node{typ: cI64, num: v} }
func str(s string) *node       { return &node{typ: cBinary, bytes: []byte(s)} }
func structs(l ...*node) *node { return &node{typ: cList, elem: cStruct, list: l} }

func record(fields ...field) *node { return &node{typ: cStruct, fields: fields} }

// craftColumn describes one column of a crafted file.
type craftColumn struct {
	name  string
	typ   int64
	rep   int64
	width int64
	utf8  bool
	codec int64
	pages []*anatomyPage
}

// craft makes a file of one row group.
func craft(rows int64, columns ...craftColumn) *anatomy {
	schema := []*node{record(field{4, str("schema")}, field{5, i32(int64(len(columns)))})}
	a := &anatomy{}
	var chunks []*node
	for _, c := range columns {
		e := record(field{1, i32(c.typ)}, field{2, i32(c.width)}, field{3, i32(c.rep)}, field{4, str(c.name)})
		if c.utf8 {
			e.fields = append(e.fields, field{6, i32(0)})
		}
		schema = append(schema, e)
		meta := record(field{1, i32(c.typ)}, field{2, &node{typ: cList, elem: cI32}}, field{3, &node{typ: cList, elem: cBinary, list: []*node{str(c.name)}}},
			field{4, i32(c.codec)}, field{5, i64(0)}, field{6, i64(0)}, field{7, i64(0)}, field{9, i64(0)}, field{11, i64(0)})
		whole := record(field{2, i64(0)}, field{3, meta})
		chunks = append(chunks, whole)
		a.chunks = append(a.chunks, &anatomyChunk{meta: meta, whole: whole, pages: c.pages})
	}
	group := record(field{1, structs(chunks...)}, field{2, i64(0)}, field{3, i64(rows)})
	a.meta = record(field{1, i32(1)}, field{2, structs(schema...)}, field{3, i64(rows)}, field{4, structs(group)})
	return a
}

// dataPage is a v1 data page.
func dataPage(n, encoding, size int64, body []byte) *anatomyPage {
	return &anatomyPage{body: body, header: record(field{1, i32(0)}, field{2, i32(size)}, field{3, i32(int64(len(body)))},
		field{5, record(field{1, i32(n)}, field{2, i32(encoding)}, field{3, i32(3)}, field{4, i32(3)})})}
}

func dictPage(n, size int64, body []byte) *anatomyPage {
	return &anatomyPage{body: body, header: record(field{1, i32(2)}, field{2, i32(size)}, field{3, i32(int64(len(body)))},
		field{7, record(field{1, i32(n)}, field{2, i32(0)})})}
}

func times(n int, p *anatomyPage) []*anatomyPage { return slices.Repeat([]*anatomyPage{p}, n) }

func uvarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// TestBombs: files whose few bytes ask for very much. Each check ends within
// its time and memory, and says that something was not checked or is wrong.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 48<<20)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	zstdBomb := enc.EncodeAll(zeros, nil)
	enc.Close()
	var gz, br, brEmpty, gzEmpty bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(zeros)
	w.Close()
	gzip.NewWriter(&gzEmpty).Close()
	bw := brotli.NewWriter(&br)
	bw.Write(zeros)
	bw.Close()
	brotli.NewWriter(&brEmpty).Close()
	lz4Bomb := func(n int) []byte {
		b := []byte{0x1f, 0, 1, 0}
		n -= 1 + 4 + 15
		b = append(b, bytes.Repeat([]byte{255}, n/255)...)
		return append(b, byte(n%255), 0x00)
	}
	const many = 9_000_000 // values of a page that is nearly all there may be
	delta := func(n uint64) []byte {
		b := uvarint(uvarint(uvarint(nil, 1<<30), 1), n)
		return append(binary.AppendVarint(binary.AppendVarint(b, 5), 0), 0)
	}
	run := func(width byte, n uint64, v byte) []byte { return append(uvarint([]byte{width}, n<<1), v) }
	level := func(n uint64, rest []byte) []byte {
		r := append(uvarint(nil, n<<1), 1)
		return slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(len(r))), r, rest)
	}
	ts := func(c craftColumn) craftColumn { c.name, c.typ = "timestamp", 2; return c }
	long := 1 << 20
	// 33 values: 1 MiB of text, and 32 that are all of it again. Prefix lengths
	// 0, then 32 times long; suffix lengths long, then 32 times 0.
	deltas := func(first, step int64) []byte {
		b := binary.AppendVarint(uvarint(uvarint(uvarint(nil, 128), 4), 33), first)
		// The least difference is step, and only the first one is it.
		b = append(binary.AppendVarint(b, min(step, 0)), 21, 0, 0, 0)
		bits := make([]byte, 32*21/8)
		for i := range 32 {
			if (i == 0) == (step > 0) {
				for k := range 21 {
					bits[(i*21+k)/8] |= byte(long>>k&1) << ((i*21 + k) % 8)
				}
			}
		}
		return append(b, bits...)
	}
	prefixes := slices.Concat(deltas(0, int64(long)), deltas(int64(long), -int64(long)), bytes.Repeat([]byte("a"), long))

	wide := func(n int) []craftColumn {
		c := make([]craftColumn, n)
		for i := range c {
			c[i] = craftColumn{name: "c", typ: 1, pages: []*anatomyPage{dataPage(0, 0, 0, nil)}}
		}
		return c
	}
	bombs := []struct {
		name  string
		file  []byte
		whole bool // nothing of it is too much
	}{
		{"zstd", craft(64*int64(len(zeros)/8), ts(craftColumn{codec: 6, pages: times(64, dataPage(int64(len(zeros)/8), 0, int64(len(zeros)), zstdBomb))})).putTogether(), false},
		{"gzip", craft(64*int64(len(zeros)/8), ts(craftColumn{codec: 2, pages: times(64, dataPage(int64(len(zeros)/8), 0, int64(len(zeros)), gz.Bytes()))})).putTogether(), false},
		{"brotli", craft(64*int64(len(zeros)/8), ts(craftColumn{codec: 4, pages: times(64, dataPage(int64(len(zeros)/8), 0, int64(len(zeros)), br.Bytes()))})).putTogether(), false},
		{"lz4", craft(64*int64(len(zeros)/8), ts(craftColumn{codec: 7, pages: times(64, dataPage(int64(len(zeros)/8), 0, int64(len(zeros)), lz4Bomb(len(zeros))))})).putTogether(), false},
		{"zstd in many columns", craft(int64(len(zeros)/8), slices.Repeat([]craftColumn{{name: "c", typ: 2, codec: 6, pages: times(1, dataPage(int64(len(zeros)/8), 0, int64(len(zeros)), zstdBomb))}}, 64)...).putTogether(), false},
		{"runs of one index", craft(500*many, ts(craftColumn{pages: append([]*anatomyPage{dictPage(1, 8, make([]byte, 8))}, times(500, dataPage(many, 8, 4+1+1, run(1, many, 0)))...)})).putTogether(), false},
		{"deltas of no bits", craft(500*many, ts(craftColumn{pages: times(500, dataPage(many, 5, int64(len(delta(many))), delta(many)))})).putTogether(), false},
		{"runs of nulls", craft(500*many, ts(craftColumn{rep: 1, pages: times(500, dataPage(many, 5, int64(len(level(many, delta(many)))), level(many, delta(many))))})).putTogether(), false},
		{"values that begin with the one before", craft(33*20, craftColumn{name: "t", typ: 6, utf8: true, pages: times(20, dataPage(33, 7, int64(len(prefixes)), prefixes))}).putTogether(), false},
		{"pages of nothing in gzip", craft(0, ts(craftColumn{codec: 2, pages: times(100_000, dataPage(0, 0, 0, gzEmpty.Bytes()))})).putTogether(), true},
		{"pages of nothing in brotli", craft(0, ts(craftColumn{codec: 4, pages: times(100_000, dataPage(0, 0, 0, brEmpty.Bytes()))})).putTogether(), true},
		{"a wide schema", craft(0, wide(60_000)...).putTogether(), false},
		{"a schema over the limit", craft(0, wide(70_000)...).putTogether(), false},
	}
	for _, tt := range bombs {
		// Once to fill the pools.
		Check(tt.file, Claim{}, Options{Depth: DepthFooter})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := clock()
		r := Check(tt.file, Claim{}, Options{Depth: DepthFull})
		took := clock() - start
		runtime.ReadMemStats(&after)
		used := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%-40s %8d bytes: %8v, %4d MiB allocated, %d findings, unchecked %.1q", tt.name, len(tt.file), took.Round(100*time.Microsecond), used>>20, len(r.Findings), r.Unchecked)
		if took > hostileTime {
			t.Errorf("%s took %v", tt.name, took)
		}
		if used > 3*DefaultDecodedLimit {
			t.Errorf("%s allocated %d bytes", tt.name, used)
		}
		if tt.whole != (len(r.Unchecked) == 0) || r.Proved && !tt.whole {
			t.Errorf("%s: %+v", tt.name, r)
		}
		for _, f := range r.Findings {
			if f.Kind != KindRows && f.Kind != KindSpan {
				t.Errorf("%s: %s", tt.name, f.Message)
			}
		}
	}
}

// TestStreamed: a page that the limit allows is read whatever its values weigh
// when written out: a million equal times from a few bytes.
func TestStreamed(t *testing.T) {
	const n = 1_000_000
	body := append(uvarint([]byte{1}, n<<1), 0)
	f := craft(n, craftColumn{name: "timestamp", typ: 2, pages: []*anatomyPage{dictPage(1, 8, []byte{9, 0, 0, 0, 0, 0, 0, 0}), dataPage(n, 8, int64(len(body)), body)}})
	b := f.putTogether()
	if r := Check(b, Claim{Rows: 1, FirstTS: 9, LastTS: 9}, Options{Depth: DepthFull}); !r.Sound() || !r.Proved || r.ParquetRows != n {
		t.Errorf("%+v", r)
	}
	// A codec that is not known: said, and no fault.
	f = craft(1, craftColumn{name: "timestamp", typ: 2, codec: 3, pages: []*anatomyPage{dataPage(1, 0, 8, make([]byte, 3))}})
	b = f.putTogether()
	r := Check(b, Claim{Rows: 1}, Options{Depth: DepthRows})
	if !r.Sound() || r.Proved || len(r.Unchecked) != 1 || !strings.Contains(r.Unchecked[0], "LZO") {
		t.Errorf("%+v", r)
	}
	var u *Unchecked
	if _, err := Times(b, Options{}); !errors.As(err, &u) {
		t.Errorf("%v", err)
	}
}

// TestTimesInFlatMemory: three million timestamps in 64 pages go by in the
// memory of one page.
func TestTimesInFlatMemory(t *testing.T) {
	const per, pages = 50_000, 64
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	c := craftColumn{name: "timestamp", typ: 2, codec: 6}
	body := make([]byte, 8*per)
	for p := range pages {
		for i := range per {
			binary.LittleEndian.PutUint64(body[8*i:], uint64(p*per+i))
		}
		c.pages = append(c.pages, dataPage(per, 0, int64(len(body)), enc.EncodeAll(body, nil)))
	}
	b := craft(per*pages, c).putTogether()
	run := func() (n int64) {
		if err := EachTime(b, Options{}, func(ts int64) error {
			if ts != n {
				t.Fatalf("time %d is %d", n, ts)
			}
			n++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := run()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; n != per*pages || used > 4<<20 {
		t.Errorf("%d times, %d bytes allocated", n, used)
	}
	if r := Check(b, Claim{Rows: per * pages, LastTS: per*pages - 1}, Options{Depth: DepthRows}); !r.Sound() || !r.Proved {
		t.Errorf("%+v", r)
	}
}

// TestPageOverTheLimit: what is said of a page with too many values names their
// number and the limit of values, not that of bytes.
func TestPageOverTheLimit(t *testing.T) {
	const n = 100_000_000
	body := append(binary.AppendUvarint([]byte{1}, n<<1), 0)
	file := craft(n, craftColumn{name: "timestamp", typ: 2, pages: []*anatomyPage{
		dictPage(1, 8, make([]byte, 8)), dataPage(n, 8, int64(len(body)), body)}}).putTogether()
	r := Check(file, Claim{}, Options{Depth: DepthFull})
	if len(r.Unchecked) != 1 || !strings.Contains(r.Unchecked[0], "a page says that it has 100000000 values, the limit is 16777216") {
		t.Errorf("%q", r.Unchecked)
	}
}
