package index

import (
	"slices"
	"strings"
	"testing"

	"wiretape/wasm/filter"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// TestStreams: a stream's rows are of it as its Index and Segment frames are,
// and the time of a SourceUpdate's making stretches no span of data.
func TestStreams(t *testing.T) {
	b := fixture(t, "real/small.stream")
	ix := indexed(t, b)
	var want []int64
	for _, r := range rows(t, ix, b, all(ix)...) {
		u := wire.Unit{Type: wire.UnitFrame, Offset: r.Offset, Size: r.Size, Kind: r.Kind, Bytes: b[r.Offset : r.Offset+r.Size]}
		of := r.Stream == "cpu_usage"
		if r.Kind == dendro.KindRows && r.Type == "frame" {
			f, fault := dendro.DecodeRows(u)
			if fault != nil {
				t.Fatal(fault)
			}
			for row := range f.All() {
				of = of || string(row.Stream) == "cpu_usage"
			}
		}
		if of {
			want = append(want, r.Row)
		}
	}
	for expr, list := range map[string][]int64{"stream == cpu_usage": want, "stream ~ CPU_": want, "kind == Rows and stream == cpu_usage": nil} {
		e, wrong := filter.Parse(expr, Kinds(ix.Protocol))
		if wrong != nil {
			t.Fatal(wrong)
		}
		h := new(Hits)
		drive(ix.FilterPass(e, h, 0), b)
		got := h.Append(nil, 0, 1<<20)
		if list == nil {
			if len(got) == 0 || len(got) >= len(want) {
				t.Fatalf("%s: %v", expr, got)
			}
			continue
		}
		if !slices.Equal(got, list) || len(list) < 40 {
			t.Fatalf("%s: %v, want %v", expr, got, list)
		}
	}
	if s := string(ix.AppendSources(nil)); strings.Contains(s, `"to":"1796`) || !strings.Contains(s, `"to":"1700`) {
		t.Fatalf("the sources' spans: %s", s)
	}
}
