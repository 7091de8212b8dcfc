//go:build interop

package interop_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"wiretape/interop"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	second     = int64(1e9)
	stream     = "cpu_usage"
	segmentRow = 20 // rows in each of the real segments below
)

// realSegments are segments that the crate sealed, one after the other in time,
// without a hole between them: each has a row at every second of its span.
func realSegments(t *testing.T, n, rows int) []dendro.Segment {
	t.Helper()
	name := filepath.Join(t.TempDir(), "segments.stream")
	publish(t, "--out", name, "--streams", "1", "--segments", fmt.Sprint(n), "--rows-per-segment", fmt.Sprint(rows),
		"--live-intervals", "0")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var segs []dendro.Segment
	dec, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(strings.NewReader(string(b)), dec, wire.ReaderOptions{})
	for {
		u, _, err := r.Next()
		if err != nil {
			break
		}
		if u.Kind != dendro.KindSegment || u.Type != wire.UnitFrame {
			continue
		}
		s, fault := dendro.DecodeSegment(u)
		if fault != nil {
			t.Fatal(fault)
		}
		s.Stream, s.Bytes, s.CallerIndex, s.HasCallerIndex = []byte(stream), slices.Clone(s.Bytes), nil, false
		segs = append(segs, s)
	}
	for i, s := range segs {
		if s.FirstTS != segs[0].FirstTS+int64(i*rows)*second || s.LastTS != s.FirstTS+int64(rows-1)*second {
			t.Fatalf("segment %d is not as the cases below need it: [%d, %d]", i, s.FirstTS, s.LastTS)
		}
	}
	if len(segs) != n {
		t.Fatalf("%d segments", len(segs))
	}
	return segs
}

// crafted is a stream in the making, with what a reader of the whole truth
// would have.
type crafted struct {
	b   []byte
	seq uint64
	// sent are the (stream, ts) that the stream carries in sound rows and
	// segments.
	sent map[int64]bool
	// times are the rows of each sound segment, by the segment's hash.
	times map[string][]int64
}

func (c *crafted) handshake(mod func(h *dendro.Handshake)) {
	h := dendro.Handshake{UUID: []byte("0189d2c6-1f3a-4d6e-9c1b-6a2f5f0e7a11"), HasUUID: true, ClockAnchorWallNs: 1_700_000_000 * second,
		Labels:   dendro.NewMap(map[string]string{"host": "craft"}),
		Metadata: dendro.NewMap(map[string]string{"encoder": rigEncoder, "producer_version": "craft 1"})}
	if mod != nil {
		mod(&h)
	}
	c.b = dendro.AppendHandshake(c.b, &h)
}

// row is a row as the rig's encoder packs it: one counter.
func row(ts int64, v uint64) dendro.Row {
	b := binary.LittleEndian.AppendUint64([]byte{1, 0, 0, 0}, v)
	return dendro.Row{Stream: []byte(stream), TS: ts, Row: b}
}

// rows adds one Rows frame.
func (c *crafted) rows(rows ...dendro.Row) {
	f := dendro.NewRows(0, c.seq, dendro.State{}, rows)
	c.seq++
	c.b = dendro.AppendRows(c.b, &f)
	for _, r := range rows {
		c.sent[r.TS] = true
	}
}

// live adds n Rows frames of one row each, a second apart, from ts on.
func (c *crafted) live(ts int64, n int) {
	for i := range n {
		c.rows(row(ts+int64(i)*second, uint64(i)))
	}
}

func (c *crafted) segment(s dendro.Segment) {
	c.b = dendro.AppendSegment(c.b, &s)
	var ts []int64
	for t := s.FirstTS; t <= s.LastTS; t += second {
		ts = append(ts, t)
		c.sent[t] = true
	}
	c.times[digest(s.Bytes)] = ts
}

// badSegment adds a segment that can't be read as what its frame says.
func (c *crafted) badSegment(s dendro.Segment) { c.b = dendro.AppendSegment(c.b, &s) }

// readable is how many of the sent rows a reader of the archive can get: the
// rows of sound segments and the rows above the newest last_ts.
func (c *crafted) readable(d interop.Dump) int {
	got := map[int64]bool{}
	for _, s := range d.Sources {
		watermark, sealed := int64(math.MinInt64), false
		for _, g := range s.Segments {
			watermark, sealed = max(watermark, g.LastTS), true
			for _, ts := range c.times[g.SHA256] {
				got[ts] = true
			}
		}
		for _, r := range s.WAL {
			if !sealed || r.TS > watermark {
				got[r.TS] = true
			}
		}
	}
	n := 0
	for ts := range got {
		if c.sent[ts] {
			n++
		}
	}
	return n
}

// outcome is what became of one stream.
type outcome struct {
	crate, ours interop.Dump
	applied     interop.Applied
	report      interop.Report
	exit        int
}

// setAside: the one bad segment is beside the archive, and said so.
func setAside(t *testing.T, o outcome) {
	if n := o.report.Counts["segments_quarantined"]; n != 1 || o.exit != 3 {
		t.Errorf("%d segments set aside, exit %d", n, o.exit)
	}
	if o.applied.Segments == 0 {
		t.Error("the crate has come to look into segments")
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Where the crate's subscriber loses what a rebuild need not (docs/merging.md): a
// stream for each case, the crate's subscriber and ours side by side.
func TestLossyCases(t *testing.T) {
	segs := realSegments(t, 5, segmentRow)
	wide := realSegments(t, 1, 50)[0]
	after := func(i int) int64 { return segs[i].LastTS + second }
	cases := []struct {
		name string
		make func(c *crafted)
		// unreadable is how many of the sent rows no archive can hold.
		unreadable int
		// kinds are the findings that the report must name.
		kinds []string
		// more looks at what a count of rows does not tell.
		more func(t *testing.T, o outcome)
	}{
		{"an end inside the length bytes", func(c *crafted) {
			c.handshake(nil)
			c.live(after(0), 6)
			c.b = append(c.b, 40, 0)
		}, 0, []string{wire.KindCut}, func(t *testing.T, o outcome) {
			if o.applied.Exit != 0 {
				t.Error("the crate has come to see the cut")
			}
		}},
		{"a segment that is text", func(c *crafted) {
			c.handshake(nil)
			bad := segs[0]
			bad.Bytes = []byte("not a Parquet file at all, but long enough to look at")
			c.badSegment(bad)
			c.live(segs[0].FirstTS, 12)
		}, 0, nil, setAside},
		{"a segment with a zeroed footer", func(c *crafted) {
			c.handshake(nil)
			bad := segs[0]
			bad.Bytes = slices.Clone(bad.Bytes)
			footer := int(binary.LittleEndian.Uint32(bad.Bytes[len(bad.Bytes)-8:]))
			clear(bad.Bytes[len(bad.Bytes)-8-footer : len(bad.Bytes)-8])
			c.badSegment(bad)
			c.live(segs[0].FirstTS, 12)
		}, 0, nil, setAside},
		{"a segment with a wrong row count", func(c *crafted) {
			c.handshake(nil)
			bad := segs[0]
			bad.Rows = 99
			c.badSegment(bad)
			c.live(segs[0].FirstTS, 12)
		}, 0, nil, setAside},
		{"a segment with a wrong span", func(c *crafted) {
			c.handshake(nil)
			bad := segs[0]
			bad.LastTS += 3600 * second
			c.badSegment(bad)
			c.live(after(0), 12)
		}, 0, nil, setAside},
		{"a segment whose last_ts is i64::MAX", func(c *crafted) {
			c.handshake(nil)
			bad := segs[0]
			bad.LastTS = math.MaxInt64
			c.badSegment(bad)
			c.live(segs[2].FirstTS, 12)
			c.segment(segs[2])
			c.live(after(2), 5)
		}, 0, nil, setAside},
		{"one repeated (stream, ts) in a Rows frame", func(c *crafted) {
			c.handshake(nil)
			c.live(after(0), 3)
			c.rows(row(after(0)+10*second, 1), row(after(0)+11*second, 2), row(after(0)+2*second, 2), row(after(0)+12*second, 3))
			c.rows(row(after(0)+20*second, 1), row(after(0)+20*second, 2), row(after(0)+21*second, 2))
		}, 0, nil, func(t *testing.T, o outcome) {
			if o.report.Counts["rows_held"] != 1 || o.report.Counts["rows_conflicting"] != 1 {
				t.Errorf("held %d, conflicting %d", o.report.Counts["rows_held"], o.report.Counts["rows_conflicting"])
			}
		}},
		{"rows at the watermark counted as written", func(c *crafted) {
			c.handshake(nil)
			c.segment(segs[0])
			c.live(segs[0].FirstTS, 25)
		}, 0, nil, func(t *testing.T, o outcome) {
			if got := o.report.Counts["rows"]; got != 5 {
				t.Errorf("the report counts %d rows stored", got)
			}
			if got := o.report.Counts["rows_held"]; got != segmentRow {
				t.Errorf("the report counts %d rows held", got)
			}
		}},
		{"a segment over live rows that it holds", func(c *crafted) {
			c.handshake(nil)
			c.live(segs[0].FirstTS, segmentRow)
			c.segment(segs[0])
			c.live(after(0), 12)
		}, 0, nil, func(t *testing.T, o outcome) {
			if got := o.report.Counts["rows_superseded"]; got != segmentRow {
				t.Errorf("%d rows superseded", got)
			}
		}},
		{"a segment over live rows that it lacks", func(c *crafted) {
			c.handshake(nil)
			c.live(segs[0].FirstTS+second/2, 3)
			c.segment(segs[0])
			c.live(after(0), 12)
		}, 3, nil, func(t *testing.T, o outcome) {
			if got := o.report.Counts["rows_below_watermark"]; got != 3 {
				t.Errorf("%d rows below the watermark", got)
			}
		}},
		{"a segment that straddles the newest sealed row", func(c *crafted) {
			c.handshake(nil)
			c.segment(segs[0])
			c.segment(wide)
			c.segment(segs[3])
			c.live(after(3), 12)
		}, 0, nil, nil},
		{"a segment that fills a hole", func(c *crafted) {
			c.handshake(nil)
			c.segment(segs[0])
			c.segment(segs[3])
			c.segment(segs[1])
			c.segment(segs[2])
			c.live(after(3), 5)
		}, 0, nil, func(t *testing.T, o outcome) {
			for i, g := range o.ours.Sources[0].Segments {
				if g.FirstTS != segs[i].FirstTS {
					t.Errorf("segment %d is not the one of its time", i)
				}
			}
		}},
		{"a second handshake for one uuid", func(c *crafted) {
			c.handshake(nil)
			c.segment(segs[0])
			c.live(after(0), 5)
			c.handshake(nil)
			c.seq = 0
			c.live(after(0)+5*second, 5)
		}, 0, nil, func(t *testing.T, o outcome) {
			if len(o.ours.Sources) != 1 || len(o.crate.Sources) != 2 {
				t.Errorf("%d sources, the crate %d", len(o.ours.Sources), len(o.crate.Sources))
			}
		}},
		{"complete though the stream was cut", func(c *crafted) {
			c.handshake(func(h *dendro.Handshake) { h.Complete = true })
			c.live(after(0), 5)
			c.b = append(c.b, 40, 0, 0)
		}, 0, []string{wire.KindCut}, func(t *testing.T, o outcome) {
			if !o.crate.Sources[0].Complete || o.ours.Sources[0].Complete {
				t.Errorf("complete: crate %v, ours %v", o.crate.Sources[0].Complete, o.ours.Sources[0].Complete)
			}
		}},
		{"a clock observation that nobody made", func(c *crafted) {
			c.handshake(func(h *dendro.Handshake) { h.Complete = true })
			c.live(after(0), 5)
		}, 0, nil, func(t *testing.T, o outcome) {
			if len(o.crate.Sources[0].ClockOffsets) != 1 || len(o.ours.Sources[0].ClockOffsets) != 0 {
				t.Errorf("clock: crate %v, ours %v", o.crate.Sources[0].ClockOffsets, o.ours.Sources[0].ClockOffsets)
			}
		}},
		{"the publisher's encoder", func(c *crafted) {
			c.handshake(func(h *dendro.Handshake) {
				h.Metadata = dendro.NewMap(map[string]string{"encoder": "theirs/7"})
			})
			c.live(after(0), 5)
		}, 0, nil, func(t *testing.T, o outcome) {
			if a, b := o.crate.Sources[0].Metadata["encoder"], o.ours.Sources[0].Metadata["encoder"]; a != rigEncoder || b != "theirs/7" {
				t.Errorf("encoder: crate %q, ours %q", a, b)
			}
		}},
		{"one refused frame in the middle", func(c *crafted) {
			c.handshake(nil)
			c.live(after(0), 5)
			c.b = append(c.b, 3, 0, 0, 0, dendro.KindClockOffset, 0, 0)
			c.live(after(0)+5*second, 20)
		}, 0, []string{wire.KindMalformed}, nil},
		{"a uuid in upper case, a map out of order", func(c *crafted) {
			c.handshake(func(h *dendro.Handshake) {
				h.UUID = []byte("0189D2C6-1F3A-4D6E-9C1B-6A2F5F0E7A11")
				h.Labels = dendro.MapOf([2]string{"z", "1"}, [2]string{"a", "2"}, [2]string{"z", "3"})
			})
			c.live(after(0), 5)
		}, 0, nil, func(t *testing.T, o outcome) {
			if len(o.report.Findings) < 2 {
				t.Errorf("findings: %v", o.report.Findings)
			}
			for _, d := range []interop.Dump{o.crate, o.ours} {
				if u := d.Sources[0].UUID; u == nil || *u != "0189D2C6-1F3A-4D6E-9C1B-6A2F5F0E7A11" || d.Sources[0].Labels["z"] != "3" {
					t.Errorf("identity: %v %v", u, d.Sources[0].Labels)
				}
			}
		}},
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\trows sent\tcrate counts\tcrate keeps\tcrate reads it\twe keep\twe set aside\tour verdict")
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := &crafted{b: dendro.AppendPreamble(nil), sent: map[int64]bool{}, times: map[string][]int64{}}
			tc.make(c)
			tmp := t.TempDir()
			in, theirs, ours := filepath.Join(tmp, "in.stream"), filepath.Join(tmp, "crate.dendro"), filepath.Join(tmp, "ours.dendro")
			if err := os.WriteFile(in, c.b, 0o600); err != nil {
				t.Fatal(err)
			}
			var o outcome
			o.applied = subscribe(t, in, theirs, rigEncoder)
			o.crate = dump(t, theirs)
			o.report, o.exit = build(t, ours, []string{in})
			o.ours = dump(t, ours)
			crateAccepts(t, ours, o.ours.Sources[0].Metadata["encoder"])
			crateKept, oursKept := c.readable(o.crate), c.readable(o.ours)
			reads := "yes"
			if run(t, programs.Rig, "read", theirs, "--encoder", rigEncoder).Exit != 0 {
				reads = "no"
			}
			counts := o.report.Counts
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%d\t%d\t%s\n", tc.name, len(c.sent), o.applied.Rows, crateKept, reads, oursKept,
				counts["rows_below_watermark"]+counts["rows_conflicting"], o.report.Verdict)
			if oursKept != len(c.sent)-tc.unreadable {
				t.Errorf("kept %d of %d rows, %d of them unreadable in any archive", oursKept, len(c.sent), tc.unreadable)
			}
			if oursKept < crateKept {
				t.Errorf("the crate keeps %d rows, we keep %d", crateKept, oursKept)
			}
			for _, kind := range tc.kinds {
				if !slices.ContainsFunc(o.report.Findings, func(f interop.Finding) bool { return f.Kind == kind }) {
					t.Errorf("no finding %q in %v", kind, o.report.Findings)
				}
			}
			if len(tc.kinds) > 0 && o.exit != 3 {
				t.Errorf("exit %d", o.exit)
			}
			if tc.more != nil {
				tc.more(t, o)
			}
		})
	}
	w.Flush()
	t.Logf("the crate's subscriber and replay build on the same streams\n%s", table.String())
}
