package segment

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"wiretape/wire"
)

// TestRealSegments: what real producers wrote is sound at every depth, and its
// frames' claims are proved.
func TestRealSegments(t *testing.T) {
	n := 0
	for name, claim := range claims(t) {
		if !strings.HasPrefix(name, "real/") {
			continue
		}
		n++
		b := readFile(t, name)
		for d := DepthNone; d <= DepthFull; d++ {
			r := Check(b, claim, Options{Depth: d})
			if !r.Sound() || len(r.Unchecked) > 0 || r.Proved != (d >= DepthRows) {
				t.Errorf("%s at depth %s: %+v", name, d, r)
			}
			if d >= DepthRows && (r.Distinct != claim.Rows || r.FirstTS != claim.FirstTS || r.LastTS != claim.LastTS ||
				r.ParquetRows < claim.Rows || r.TimeColumn != "timestamp") {
				t.Errorf("%s at depth %s: %+v, the frame says %+v", name, d, r, claim)
			}
		}
		times, err := Times(b, Options{})
		if err != nil || uint64(len(times)) != claim.Rows || !slices.IsSorted(times) ||
			times[0] != claim.FirstTS || times[len(times)-1] != claim.LastTS || len(slices.Compact(slices.Clone(times))) != len(times) {
			t.Errorf("%s: %d times, %v; the frame says %+v", name, len(times), err, claim)
		}
	}
	if n < 18 {
		t.Errorf("only %d segments", n)
	}
}

// TestFindings: what each kind of lie is found as, and where.
func TestFindings(t *testing.T) {
	said := claims(t)
	small := Claim{Rows: 4, FirstTS: 1, LastTS: 4}
	tests := []struct {
		file   string
		claim  Claim
		depth  Depth
		kinds  []string
		offset int64
	}{
		{"damaged/bad-parquet-footer.parquet", said["damaged/bad-parquet-footer.parquet"], DepthFooter, []string{KindFooter}, 1899},
		{"damaged/segment-empty-bytes.parquet", said["damaged/segment-empty-bytes.parquet"], DepthFooter, []string{KindFooter}, 0},
		{"damaged/rows-count-lies.parquet", said["damaged/rows-count-lies.parquet"], DepthRows, []string{KindRows}, 4},
		{"damaged/segment-zero-rows.parquet", said["damaged/segment-zero-rows.parquet"], DepthRows, []string{KindRows}, 4},
		{"damaged/segment-inverted-span.parquet", said["damaged/segment-inverted-span.parquet"], DepthRows, []string{KindSpan, KindSpan}, 4},
		{"damaged/ts-range-lies.parquet", said["damaged/ts-range-lies.parquet"], DepthRows, []string{KindSpan, KindSpan}, 4},
		{"damaged/rows-count-lies.parquet", said["damaged/rows-count-lies.parquet"], DepthFooter, nil, 0},
		{"made/unsorted.parquet", Claim{Rows: 3, FirstTS: 1, LastTS: 2}, DepthRows, []string{KindUnsorted}, 4},
		{"made/format-1.0.parquet", small, DepthRows, nil, 0},
		{"made/format-1.0.parquet", Claim{Rows: 5, FirstTS: 1, LastTS: 4}, DepthRows, []string{KindRows}, 4},
		{"made/nanos.parquet", small, DepthFull, nil, 0},
		{"made/before-1970.parquet", Claim{Rows: 4, FirstTS: -5, LastTS: 2}, DepthFull, nil, 0},
		{"made/empty.parquet", Claim{}, DepthFull, nil, 0},
		{"made/empty.parquet", Claim{Rows: 1}, DepthFull, []string{KindRows}, 4},
	}
	for _, tt := range tests {
		r := Check(readFile(t, tt.file), tt.claim, Options{Depth: tt.depth})
		var kinds []string
		for _, f := range r.Findings {
			kinds = append(kinds, f.Kind)
			if f.Offset != tt.offset {
				t.Errorf("%s: %s at %d, not %d", tt.file, f.Kind, f.Offset, tt.offset)
			}
			if f.Message == "" {
				t.Errorf("%s: %s has no message", tt.file, f.Kind)
			}
		}
		if !slices.Equal(kinds, tt.kinds) || r.Proved != (tt.kinds == nil && tt.depth >= DepthRows) || len(r.Unchecked) > 0 {
			t.Errorf("%s at depth %s: %+v", tt.file, tt.depth, r)
		}
	}
}

// TestNotParquet: whatever a Segment holds is a finding.
func TestNotParquet(t *testing.T) {
	for name, b := range map[string][]byte{
		"nil": nil, "text": []byte("this is no Parquet file, it is a line of text\n"), "magic alone": []byte("PAR1"),
		"twice the magic": []byte("PAR1PAR1"), "no footer": []byte("PAR1\x00\x00\x00\x00PAR1"),
		"a footer of one byte": []byte("PAR1\x00\x01\x00\x00\x00PAR1"), "zeros": make([]byte, 4096),
		"a footer before the file": []byte("PAR1\xff\xff\xff\xffPAR1"), "too much footer": []byte("PAR1aaaa\xff\xff\xff\x7fPAR1"),
	} {
		for d := DepthFooter; d <= DepthFull; d++ {
			r := Check(b, Claim{Rows: 1}, Options{Depth: d})
			if len(r.Findings) != 1 || r.Findings[0].Kind != KindFooter || r.Proved || len(r.Unchecked) > 0 {
				t.Errorf("%s at depth %s: %+v", name, d, r)
			}
		}
		var fault *wire.Fault
		if _, err := Times(b, Options{}); !errors.As(err, &fault) {
			t.Errorf("%s: Times: %v", name, err)
		}
	}
}

// TestUnchecked: what can't be proved is said, and is no fault.
func TestUnchecked(t *testing.T) {
	for name, why := range map[string]string{
		"made/no-times.parquet":   "no column is named timestamp",
		"made/text-times.parquet": "the column timestamp is not an INT64",
		"made/int96.parquet":      "the column timestamp is not an INT64",
		"made/micros.parquet":     "the column timestamp is not in nanoseconds",
		"made/null-times.parquet": "the column timestamp has 1 nulls",
	} {
		b := readFile(t, name)
		for d := DepthRows; d <= DepthFull; d++ {
			r := Check(b, Claim{Rows: 3, FirstTS: 1, LastTS: 3}, Options{Depth: d})
			if !r.Sound() || r.Proved || len(r.Unchecked) != 1 || r.Unchecked[0] != why {
				t.Errorf("%s at depth %s: %+v", name, d, r)
			}
		}
		if r := Check(b, Claim{}, Options{Depth: DepthFooter}); !r.Sound() || len(r.Unchecked) > 0 {
			t.Errorf("%s at depth footer: %+v", name, r)
		}
		var u *Unchecked
		if _, err := Times(b, Options{}); !errors.As(err, &u) || u.Why != why {
			t.Errorf("%s: Times: %v", name, err)
		}
	}
	// A limit that a page does not fit.
	claim := claims(t)["real/real-small-0000.parquet"]
	b := readFile(t, "real/real-small-0000.parquet")
	r := Check(b, claim, Options{Depth: DepthFull, DecodedLimit: 1000})
	if !r.Sound() || r.Proved || len(r.Unchecked) == 0 || !strings.Contains(r.Unchecked[0], "the limit is 1000") {
		t.Errorf("under a limit of 1000 bytes: %+v", r)
	}
}

// TestMadeFiles: every codec, encoding and page version is sound, with a claim
// that is made from the time column itself.
func TestMadeFiles(t *testing.T) {
	var golden map[string]goldenFile
	readJSON(t, "golden.json", &golden)
	n := 0
	for name := range golden {
		b := readFile(t, name)
		times, err := Times(b, Options{})
		var u *Unchecked
		if errors.As(err, &u) || name == "made/unsorted.parquet" || len(times) == 0 {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n++
		r := Check(b, Claim{Rows: uint64(len(times)), FirstTS: times[0], LastTS: times[len(times)-1]}, Options{Depth: DepthFull})
		if !r.Sound() || !r.Proved || len(r.Unchecked) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n < 50 {
		t.Errorf("only %d files", n)
	}
}

// TestEachTimeStops: the caller's error comes back, and its panic is its own.
func TestEachTimeStops(t *testing.T) {
	b := readFile(t, "made/format-1.0.parquet")
	enough := errors.New("enough")
	n := 0
	if err := EachTime(b, Options{}, func(int64) error { n++; return enough }); err != enough || n != 1 {
		t.Errorf("%v after %d", err, n)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v", p)
		}
	}()
	EachTime(b, Options{}, func(int64) error { panic("mine") })
}

// TestConcurrent: checks at the same time do not see each other's buffers.
func TestConcurrent(t *testing.T) {
	said := claims(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				for name, claim := range said {
					if r := Check(readFile(t, name), claim, Options{Depth: DepthFull}); r.Sound() != strings.HasPrefix(name, "real/") {
						t.Errorf("%s: %+v", name, r)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestParseDepth(t *testing.T) {
	for d := DepthNone; d <= DepthFull; d++ {
		if got, err := ParseDepth(d.String()); err != nil || got != d {
			t.Errorf("%s: %v, %v", d, got, err)
		}
	}
	if _, err := ParseDepth("Full"); err == nil {
		t.Error("a depth that is none was taken")
	}
}
