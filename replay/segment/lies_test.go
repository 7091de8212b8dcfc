package segment

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"testing"

	"wiretape/replay/segment/bounds"
)

// three is a small file of one INT64 column with three values in two pages.
func three() *anatomy {
	le := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	return craft(3, craftColumn{name: "timestamp", typ: 2, pages: []*anatomyPage{
		dataPage(2, 0, 16, le(1, 2)), dataPage(1, 0, 8, le(3))}})
}

// TestLies: each thing that a footer or a page header can say wrongly, what it
// is found as and which words tell it.
func TestLies(t *testing.T) {
	claim := Claim{Rows: 3, FirstTS: 1, LastTS: 3}
	if r := Check(three().putTogether(), claim, Options{Depth: DepthFull}); !r.Sound() || !r.Proved {
		t.Fatalf("the file to start from: %+v", r)
	}
	// after changes what putTogether would set right again.
	type change func(a *anatomy)
	tests := []struct {
		name  string
		pages change // before places and sizes are set
		after change // behind them, in the footer alone
		kind  string
		words string
	}{
		{"no schema", nil, func(a *anatomy) { a.meta.fields = a.meta.fields[:1] }, KindFooter, "required field of FileMetaData"},
		{"an empty schema", nil, func(a *anatomy) { a.meta.at(2).list = nil }, KindFooter, "does not decode"},
		{"a schema of a root alone", nil, func(a *anatomy) { a.meta.at(2).list = a.meta.at(2).list[:1] }, KindFooter, "fewer elements than its tree"},
		{"more elements than the tree", nil, func(a *anatomy) { a.meta.at(2).list[0].set(5, 0) }, KindFooter, "more elements than its tree"},
		{"more children than elements", nil, func(a *anatomy) { a.meta.at(2).list[0].set(5, 1<<30) }, KindFooter, "fewer elements than its tree"},
		{"negative children", nil, func(a *anatomy) { a.meta.at(2).list[0].set(5, -1) }, KindFooter, "negative"},
		{"an unknown type", nil, func(a *anatomy) { a.meta.at(2).list[1].set(1, 9) }, KindFooter, "unknown type 9"},
		{"an unknown repetition", nil, func(a *anatomy) { a.meta.at(2).list[1].set(3, 3) }, KindFooter, "unknown repetition"},
		{"a type that the column has not", nil, func(a *anatomy) { a.meta.at(2).list[1].set(1, 5) }, KindFooter, "has the type 2, in the schema 5"},
		{"a name that the column has not", nil, func(a *anatomy) { a.meta.at(2).list[1].at(4).bytes = []byte("time") }, KindFooter, "another path"},
		{"an unknown codec", nil, func(a *anatomy) { a.chunks[0].meta.set(4, 8) }, KindFooter, "unknown codec 8"},
		{"other rows in the file", nil, func(a *anatomy) { a.meta.set(3, 4) }, KindFooter, "says 4 rows, its row groups 3"},
		{"other rows in the row group", nil, func(a *anatomy) { a.meta.set(3, 4); a.meta.at(4).list[0].set(3, 4) }, KindFooter, "3 values in a row group of 4 rows"},
		{"no column in the row group", nil, func(a *anatomy) { a.meta.at(4).list[0].at(1).list = nil }, KindFooter, "has 0 columns, the schema 1"},
		{"pages before the file", nil, func(a *anatomy) { a.chunks[0].meta.set(9, 3) }, KindFooter, "outside the file"},
		{"pages in the footer", nil, func(a *anatomy) { a.chunks[0].meta.set(7, 1000) }, KindFooter, "outside the file"},
		{"pages behind every file", nil, func(a *anatomy) { a.chunks[0].meta.set(9, 1<<62); a.chunks[0].meta.set(7, 1<<62) }, KindFooter, "ends behind every file"},
		{"pages of a negative size", nil, func(a *anatomy) { a.chunks[0].meta.set(7, -1) }, KindFooter, "negative"},
		{"values in no bytes", nil, func(a *anatomy) { a.chunks[0].meta.set(7, 0) }, KindFooter, "3 values in no bytes"},
		{"a chunk that is longer", nil, func(a *anatomy) { a.chunks[0].meta.set(7, a.chunks[0].meta.at(7).num+1) }, KindFooter, "outside the file"},
		{"a chunk that is shorter", nil, func(a *anatomy) { a.chunks[0].meta.set(7, a.chunks[0].meta.at(7).num-1) }, KindPage, "where 7 are left of the column"},
		{"other values in the chunk", nil, func(a *anatomy) {
			a.chunks[0].meta.set(5, 2)
			a.meta.set(3, 2)
			a.meta.at(4).list[0].set(3, 2)
		}, KindPage, "num_values says 2"},
		{"another decoded size", nil, func(a *anatomy) { a.chunks[0].meta.set(6, 7) }, KindPage, "total_uncompressed_size says 7"},
		{"a field twice", nil, func(a *anatomy) { a.meta.fields = append(a.meta.fields, field{3, i64(3)}) }, KindFooter, "comes twice"},
		{"a field of another type", nil, func(a *anatomy) { a.meta.fields[2].v = i32(3); a.meta.fields[2].v.typ = cI16 }, KindFooter, "has the type 4, not 6"},
		{"an unknown page", func(a *anatomy) { a.chunks[0].pages[0].header.set(1, 4) }, nil, KindPage, "unknown type 4"},
		{"a page of gigabytes", func(a *anatomy) { a.chunks[0].pages[0].header.set(2, 1<<31-1) }, nil, KindPage, "can't hold the 2147483647"},
		{"a page of less than nothing", func(a *anatomy) { a.chunks[0].pages[0].header.set(2, -16) }, nil, KindPage, "negative"},
		{"a page longer than its column", func(a *anatomy) { a.chunks[0].pages[1].header.set(3, 1<<30) }, nil, KindPage, "are left of the column"},
		{"a page header without a size", func(a *anatomy) {
			h := a.chunks[0].pages[0].header
			h.fields = append(h.fields[:1:1], h.fields[2:]...)
		}, nil, KindPage, "required field of a page header"},
		{"a data page as a dictionary", func(a *anatomy) { a.chunks[0].pages[0].header.set(1, 2) }, func(a *anatomy) {
			a.chunks[0].meta.set(5, 3)
			a.chunks[0].meta.set(9, 4)
			a.chunks[0].meta.set(11, 0)
		}, KindPage, "required field of a page header"},
		{"a dictionary behind the first page", func(a *anatomy) {
			a.chunks[0].pages = append(a.chunks[0].pages, dictPage(0, 0, nil))
		}, func(a *anatomy) { a.chunks[0].meta.set(11, 0) }, KindPage, "dictionary page behind"},
		{"a CRC that is not the page's", func(a *anatomy) {
			h := a.chunks[0].pages[1].header
			h.fields = append(h.fields[:3:3], field{4, i32(int64(int32(crc32.ChecksumIEEE(a.chunks[0].pages[0].body))))}, h.fields[3])
		}, nil, KindPage, "do not fit its CRC"},
		{"an encoding that the type has not", func(a *anatomy) { a.chunks[0].pages[0].header.at(5).set(2, 3) }, nil, KindPage, "in the encoding 3"},
		{"indexes without a dictionary", func(a *anatomy) { a.chunks[0].pages[0].header.at(5).set(2, 8) }, nil, KindPage, "without a dictionary"},
		{"statistics with another least value", nil, func(a *anatomy) { statistics(a, 6, "\x02\x00\x00\x00\x00\x00\x00\x00") }, KindStatistics, "its least value is 1 where the statistics say 2"},
		{"statistics with another greatest value", nil, func(a *anatomy) { statistics(a, 5, "\x02\x00\x00\x00\x00\x00\x00\x00") }, KindStatistics, "its greatest value is 3 where the statistics say 2"},
		{"statistics of another width", nil, func(a *anatomy) { statistics(a, 5, "\x03\x00\x00\x00") }, KindStatistics, "4 bytes"},
		{"statistics with other nulls", nil, func(a *anatomy) {
			m := a.chunks[0].meta
			m.fields = append(m.fields, field{12, record(field{3, i64(1)})})
		}, KindStatistics, "0 nulls where the statistics say 1"},
	}
	for _, tt := range tests {
		a := three()
		if tt.pages != nil {
			tt.pages(a)
		}
		b := a.putTogether()
		if tt.after != nil {
			size := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
			body := b[: len(b)-8-size : len(b)-8-size]
			tt.after(a)
			b = finish(body, a.meta)
		}
		r := Check(b, claim, Options{Depth: DepthFull})
		if len(r.Findings) != 1 || r.Proved {
			t.Errorf("%s: %+v", tt.name, r)
			continue
		}
		f := r.Findings[0]
		if f.Kind != tt.kind || !strings.Contains(f.Message+f.Got, tt.words) || f.Offset < 0 || f.Offset > int64(len(b)) {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}

// statistics adds a bound, and the order that makes it count.
func statistics(a *anatomy, id int64, v string) {
	m := a.chunks[0].meta
	m.fields = append(m.fields, field{12, record(field{id, str(v)})})
	a.meta.fields = append(a.meta.fields, field{7, structs(record(field{1, record()}))})
}

// TestCutsFlipsZeros: a sweep over small files. No cut is sound; no flip or
// zeroed stretch is proved with other times than the file's.
func TestCutsFlipsZeros(t *testing.T) {
	for _, name := range []string{"made/format-1.0.parquet", "made/nanos.parquet", "damaged/ts-range-lies.parquet", "real/real-live-0001.parquet"} {
		b := readFile(t, name)
		want, err := Times(b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		claim := Claim{Rows: uint64(len(want)), FirstTS: want[0], LastTS: want[len(want)-1]}
		for i := range b {
			if r := Check(b[:i], claim, Options{Depth: DepthFull}); r.Sound() {
				t.Fatalf("%s cut at %d is sound", name, i)
			}
		}
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				r := Check(b, claim, Options{Depth: DepthFull})
				if r.Proved && (r.Distinct != claim.Rows || r.FirstTS != claim.FirstTS || r.LastTS != claim.LastTS) {
					t.Fatalf("%s with bit %d of byte %d flipped: %+v", name, bit, i, r)
				}
				b[i] ^= 1 << bit
			}
		}
		for i := 0; i < len(b); i += 16 {
			z := append([]byte(nil), b...)
			clear(z[i:])
			if r := Check(z, claim, Options{Depth: DepthFull}); r.Sound() {
				t.Fatalf("%s zeroed from %d is sound", name, i)
			}
		}
	}
}

// TestBoundsStandsAlone: package bounds imports no Parquet library, no codec,
// no fmt and no JSON, and compiles for the browser.
func TestBoundsStandsAlone(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "wiretape/replay/segment/bounds")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	for _, d := range deps {
		first, _, _ := strings.Cut(d, "/")
		ours := d == "wiretape/wire" || d == "wiretape/replay/segment/bounds"
		if strings.Contains(first, ".") || first == "wiretape" && !ours || d == "fmt" || d == "encoding/json" || d == "os" || d == "net" {
			t.Errorf("imports %s", d)
		}
	}
	if len(deps) < 10 {
		t.Errorf("only %d packages: %s", len(deps), out)
	}
}

// FuzzCheck: any bytes, any claim. What is proved is what EachTime gives.
func FuzzCheck(f *testing.F) {
	for name, c := range claims(f) {
		if b := readFile(f, name); len(b) < 3000 {
			f.Add(b, c.Rows, c.FirstTS, c.LastTS)
		}
	}
	f.Add(three().putTogether(), uint64(3), int64(1), int64(3))
	f.Add([]byte("PAR1\x15\x00\x00\x01\x00\x00\x00PAR1"), uint64(1), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, rows uint64, first, last int64) {
		claim := Claim{Rows: rows, FirstTS: first, LastTS: last}
		o := Options{DecodedLimit: 1 << 20}
		var before Result
		for d := DepthFooter; d <= DepthFull; d++ {
			o.Depth = d
			r := Check(b, claim, o)
			for _, x := range r.Findings {
				if x.Offset < 0 || x.Length < 0 || x.Offset+x.Length > int64(len(b)) || x.Kind == "" || x.Message == "" {
					t.Fatalf("%+v in %d bytes", x, len(b))
				}
			}
			if d > DepthFooter && len(r.Findings) < len(before.Findings) {
				t.Fatalf("depth %s finds less than the one before", d)
			}
			before = r
		}
		n, from, to := uint64(0), int64(0), int64(0)
		err := EachTime(b, o, func(ts int64) error {
			if n > 0 && ts <= to {
				t.Fatalf("%d behind %d", ts, to)
			}
			if n == 0 {
				from = ts
			}
			n, to = n+1, ts
			return nil
		})
		if before.Proved && (err != nil || n != rows || n > 0 && (from != first || to != last)) {
			t.Fatalf("proved %+v, but %d times from %d to %d, %v", claim, n, from, to, err)
		}
		if columns, err := bounds.Columns(b); err == nil {
			for i := range min(len(columns), 8) {
				bounds.Visit(b, i, o.bounds(), newColumnHash(max(1, columns[i].Width), 1<<20))
			}
		}
	})
}

// TestPageIndex: a flipped bit in a page index is found. In an offset index
// every bit counts, but for the first row of a page of lists, which only
// decoding tells; in a column index a bound may become looser, which is none
// the less a bound.
func TestPageIndex(t *testing.T) {
	for _, name := range []string{"made/none-v1-plain.parquet", "made/zstd-v2-plain.parquet", "made/polars-gzip.parquet", "real/telemetry-small-0016.parquet"} {
		b := readFile(t, name)
		times, err := Times(b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		claim := Claim{Rows: uint64(len(times)), FirstTS: times[0], LastTS: times[len(times)-1]}
		size := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		meta, _, err := parseNode(b[len(b)-8-size:len(b)-8], cStruct, false)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string][2]int{}
		sweep := func(what string, at, size int64, depth Depth) {
			n := found[what]
			for i := at; i < at+size; i++ {
				for bit := range 8 {
					b[i] ^= 1 << bit
					if r := Check(b, claim, Options{Depth: depth}); !r.Sound() {
						n[0]++
					} else {
						n[1]++
					}
					b[i] ^= 1 << bit
				}
			}
			found[what] = n
		}
		for _, i := range []int{0, len(meta.at(4).list[0].at(1).list) - 1} {
			c := meta.at(4).list[0].at(1).list[i]
			if c.at(4) == nil || c.at(6) == nil {
				t.Fatalf("%s has no page index", name)
			}
			sweep("offset index", c.at(4).num, c.at(5).num, DepthFooter)
			sweep("column index", c.at(6).num, c.at(7).num, DepthFull)
		}
		if n := found["offset index"]; n[0] == 0 || n[1] > n[0]/20 {
			t.Errorf("%s: offset index: %d flips found, %d not", name, n[0], n[1])
		}
		if n := found["column index"]; 3*n[0] < n[1] {
			t.Errorf("%s: column index: %d flips found, %d not", name, n[0], n[1])
		}
		t.Logf("%s: found and not: %v", name, found)
		// With every index zeroed there are more findings than are listed. Those
		// left out count all the same: nothing is proved.
		for _, whole := range meta.at(4).list[0].at(1).list {
			clear(b[whole.at(4).num : whole.at(4).num+whole.at(5).num])
			clear(b[whole.at(6).num : whole.at(6).num+whole.at(7).num])
		}
		if r := Check(b, claim, Options{Depth: DepthFull}); r.Sound() || r.Proved {
			t.Errorf("%s with its page indexes zeroed: %+v", name, r)
		}
	}
}
