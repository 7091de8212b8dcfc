package dendro_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// TestSpans: the spans are those of Segments and Rows alone, and a frame that is
// not whole tells of none.
func TestSpans(t *testing.T) {
	d := newDecoder(t)
	steps, _, _ := readAll(t, load(t, "testdata/real/small.stream"), d, wire.ReaderOptions{})
	const second = 1_000_000_000
	first, last := int64(1<<62), int64(0)
	streams := map[string]int{}
	for _, s := range steps {
		n := 0
		d.Spans(s.unit, func(stream []byte, a, b int64) {
			n++
			streams[string(stream)]++
			first, last = min(first, a), max(last, b)
		})
		if data := s.unit.Kind == dendro.KindSegment || s.unit.Kind == dendro.KindRows; !data && n > 0 {
			t.Errorf("%s at %d tells of data", dendro.KindName(s.unit.Kind), s.unit.Offset)
		}
		for cut := 0; cut < len(s.unit.Bytes); cut += 1 + len(s.unit.Bytes)/200 {
			part := s.unit
			part.Bytes = part.Bytes[:cut]
			d.Spans(part, func([]byte, int64, int64) {
				t.Errorf("%d of %d bytes at %d tell of data", cut, s.unit.Size, s.unit.Offset)
			})
		}
	}
	if names := strings.Join(slices.Sorted(maps.Keys(streams)), " "); names != "cpu_usage late_stream memory" {
		t.Errorf("data of %s", names)
	}
	// 2023-11-14T22:13:20Z to 22:40:39Z.
	if first/second != 1700000000 || last/second != 1700000000+27*60+19 {
		t.Errorf("from %d to %d", first, last)
	}
}
