package index

import (
	"encoding/binary"
	"encoding/json"
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

// TestStreamNames: every stream that is listed is found by the name that
// the index gives, whatever its name holds and however long it is.
func TestStreamNames(t *testing.T) {
	names := []string{"plain", "PLAIN", `a"b\c`, "new\nline", "tab\tx", "rtl\u202eabc", "zero\u200bwidth", "emoji😀", `back\u202eabc`, "x" + strings.Repeat("x", 5000), "x" + strings.Repeat("x", 5000) + "y", "<b>"}
	b := dendro.AppendHandshake(dendro.AppendPreamble(nil), &dendro.Handshake{Source: 4_000_000_000, Labels: dendro.MapOf([2]string{"host", "a\u202eb"})})
	for i, n := range names {
		b = dendro.AppendIndex(b, &dendro.Index{Source: 4_000_000_000, Stream: []byte(n), TS: int64(i), Kind: 1})
	}
	ix := indexed(t, b)
	var sources []struct {
		Altered bool
		Streams []struct {
			Name    string
			Altered bool
			Number  int
		}
	}
	if err := json.Unmarshal(ix.AppendSources(nil), &sources); err != nil {
		t.Fatal(err)
	}
	if len(sources) != 1 || !sources[0].Altered || len(sources[0].Streams) != len(names) {
		t.Fatalf("%+v", sources)
	}
	for _, s := range sources[0].Streams {
		i := slices.Index(names, s.Name)
		if s.Altered != (i < 0) {
			t.Errorf("%.40q altered: %v", s.Name, s.Altered)
		}
		e, wrong := filter.Parse("source == 4000000000 and stream == "+ix.StreamName(s.Number), Kinds(ix.Protocol))
		if wrong != nil {
			t.Errorf("%.40q: %v", s.Name, wrong)
			continue
		}
		h := new(Hits)
		drive(ix.FilterPass(e, h, 0), b)
		if got := h.Append(nil, 0, 10); len(got) != 1 || got[0] != int64(s.Number)+2 {
			t.Errorf("%.40q is at rows %v", s.Name, got)
		}
	}
	if got := ix.StreamName(len(names)); got != "" || ix.StreamName(-1) != "" {
		t.Errorf("a stream that is not there: %s", got)
	}
}

// TestArrivalsPacked: stretches that do not rise, are too many or of another
// number of comparisons are refused, and those that are taken hold.
func TestArrivalsPacked(t *testing.T) {
	e, _ := filter.Parse("arrival > 5 and not arrival >= 7", nil)
	pack := func(lists ...[]int64) []byte {
		b := binary.AppendUvarint(nil, uint64(len(lists)))
		for _, l := range lists {
			b = binary.AppendUvarint(b, uint64(len(l)/2))
			for _, v := range l {
				b = binary.AppendVarint(b, v)
			}
		}
		return b
	}
	if err := ArrivalsPacked(e, pack([]int64{0, 50, 60, 70}, []int64{40, 65})); err != nil {
		t.Fatal(err)
	}
	for off, want := range map[int64]bool{0: true, 39: true, 40: false, 55: false, 60: false, 65: true, 69: true, 70: false} {
		if e.Match(&filter.Subject{Offset: off}) != want {
			t.Errorf("offset %d is not %v", off, want)
		}
	}
	good := pack([]int64{0, 50}, nil)
	for _, b := range [][]byte{nil, pack(), pack(nil), pack(nil, nil, nil), pack([]int64{5, 4}, nil), pack([]int64{0, 9, 8, 10}, nil), good[:len(good)-1], append(good, 0), pack([]int64{-3, 4}, nil)} {
		if err := ArrivalsPacked(e, b); err == nil {
			t.Errorf("%v is taken", b)
		}
	}
	if ArrivalsPacked(nil, pack()) == nil {
		t.Error("without a filter")
	}
}
