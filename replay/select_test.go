package replay

import (
	"errors"
	"os"
	"slices"
	"testing"

	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

func TestSelection(t *testing.T) {
	_, whole := mustBuild(t, Options{}, stream("real/small"))
	src := whole.Sources[0]
	uuid, mid := src.UUID, src.WAL[len(src.WAL)/2].TS
	off := int64(firstSegment(t))
	for _, c := range []struct {
		name string
		sel  Selection
		row  func(dumpedRow) bool
		seg  func(dumpedSegment) bool
		gone bool
	}{
		{"source", Selection{Selection: archive.Selection{Sources: []string{uuid}}}, nil, nil, false},
		{"another source", Selection{Selection: archive.Selection{Sources: []string{"x"}}}, nil, nil, true},
		{"label", Selection{Selection: archive.Selection{Labels: map[string]string{"host": "web-00"}}}, nil, nil, false},
		{"another stream", Selection{Selection: archive.Selection{Streams: []string{"nosuch"}}}, nil, nil, true},
		{"another label", Selection{Selection: archive.Selection{Labels: map[string]string{"host": "web-01"}}}, nil, nil, true},
		{"stream", Selection{Selection: archive.Selection{Streams: []string{"memory"}}},
			func(r dumpedRow) bool { return r.Stream == "memory" }, func(s dumpedSegment) bool { return s.Stream == "memory" }, false},
		{"from", Selection{Selection: archive.Selection{From: &mid}},
			func(r dumpedRow) bool { return r.TS >= mid }, func(s dumpedSegment) bool { return s.LastTS >= mid }, false},
		{"until", Selection{Selection: archive.Selection{Until: &mid}},
			func(r dumpedRow) bool { return r.TS <= mid }, func(s dumpedSegment) bool { return s.FirstTS <= mid }, false},
		{"offsets", Selection{FromOffset: &off, UntilOffset: &off},
			func(dumpedRow) bool { return false }, func(s dumpedSegment) bool { return s.Stream == "cpu_usage" && s.Seq == 0 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.gone {
				if _, path, err := build(t, Options{Select: c.sel}, stream("real/small")); !errors.Is(err, ErrNothing) {
					t.Errorf("%s: %v", path, err)
				}
				return
			}
			r, d := mustBuild(t, Options{Select: c.sel}, stream("real/small"))
			if len(r.Selection) == 0 {
				t.Error("the report does not state the selection")
			}
			got := d.Sources[0]
			wal := slices.Clone(src.WAL)
			if c.row != nil {
				wal = slices.DeleteFunc(wal, func(r dumpedRow) bool { return !c.row(r) })
			}
			if !slices.Equal(got.WAL, wal) {
				t.Errorf("%d rows, want %d", len(got.WAL), len(wal))
			}
			n := 0
			for _, s := range src.Segments {
				if c.seg == nil || c.seg(s) {
					n++
				}
			}
			if len(got.Segments) != n {
				t.Errorf("%d segments, want %d", len(got.Segments), n)
			}
			if got.Complete {
				t.Error("a part is called complete")
			}
		})
	}
}

// firstSegment is the offset of the first Segment frame of real/small.
func firstSegment(t *testing.T) int {
	b := must(os.ReadFile(stream("real/small")))
	for _, at := range frameEnds(b) {
		if b[at+4] == dendro.KindSegment {
			return at
		}
	}
	t.Fatal("no segment")
	return 0
}

// --strict ends where the crate does; -1 is where only that it ends matters.
func TestStrict(t *testing.T) {
	for name, want := range map[string]int64{
		"bad-bool": 315, "trailing-bytes": 315, "len-0": 315, "len-over-64MiB": 315, "bad-uuid-utf8": -1, "no-handshake": 14,
		"unknown-ordinal": 315, "overlapping-segment": 2171, "segment-after-live-rows": -1, "segment-covers-held-rows": -1,
		"segment-zero-rows": -1, "segment-inverted-span": -1,
	} {
		r, _, err := build(t, Options{Strict: true, Check: segment.DepthRows}, stream("crafted/"+name))
		var refused *RefusedError
		if !errors.As(err, &refused) || r.Verdict != Failed {
			t.Errorf("%s: %v, verdict %s", name, err, r.Verdict)
			continue
		}
		if want >= 0 && refused.Finding.Offset != want {
			t.Errorf("%s: refused at %d, want %d", name, refused.Finding.Offset, want)
		}
	}
	for _, name := range []string{"real/small", "real/live", "crafted/held-segment", "crafted/unknown-kind", "crafted/gap", "crafted/duplicate-row-ts"} {
		if _, _, err := build(t, Options{Strict: true}, stream(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
