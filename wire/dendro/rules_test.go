package dendro_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// read drives a decoder over a whole stream and gives every unit's outcome.
type step struct {
	unit    wire.Unit
	outcome dendro.Outcome
	found   []wire.Finding
}

func readAll(t testing.TB, stream []byte, d *dendro.Decoder, opt wire.ReaderOptions) (steps []step, rest []wire.Finding, end wire.Ending) {
	t.Helper()
	r := wire.NewReader(bytes.NewReader(stream), d, opt)
	for {
		u, found, err := r.Next()
		if err == io.EOF {
			return steps, append([]wire.Finding(nil), found...), r.Ending()
		}
		if err != nil {
			t.Fatal(err)
		}
		u.Bytes = bytes.Clone(u.Bytes)
		steps = append(steps, step{u, d.Last(), append([]wire.Finding(nil), found...)})
	}
}

func kinds(found []wire.Finding) string {
	var k []string
	for _, f := range found {
		k = append(k, f.Kind)
	}
	return strings.Join(k, " ")
}

// TestCounters holds what the rules make of every stream that the crate's
// subscriber takes whole against that subscriber's counters.
func TestCounters(t *testing.T) {
	held := 0
	for _, name := range streams(t) {
		b, err := os.ReadFile(strings.TrimSuffix(name, ".stream") + ".subscribe.json")
		if err != nil {
			continue
		}
		var want struct {
			Error         *string
			IndexEntries  int `json:"index_entries"`
			Rows          int
			RowsSkipped   int `json:"rows_skipped"`
			Segments      int
			SegmentsHeld  int `json:"segments_held"`
			ClockOffsets  int `json:"clock_offsets"`
			SourceUpdates int `json:"source_updates"`
			KindsSkipped  int `json:"kinds_skipped"`
			Gap           bool
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(name, err)
		}
		if want.Error != nil {
			continue
		}
		held++
		stream, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got := want
		got.IndexEntries, got.RowsSkipped, got.KindsSkipped, got.SourceUpdates, got.Gap = 0, 0, 0, 0, false
		segments, rows, clocks := 0, 0, 0
		d := newDecoder(t)
		r := wire.NewReader(bytes.NewReader(stream), d, wire.ReaderOptions{})
		for {
			_, _, err := r.Next()
			if err != nil {
				break
			}
			o := d.Last()
			got.Gap = got.Gap || o.Gap > 0
			switch {
			case o.Disposition == dendro.UnknownKind:
				got.KindsSkipped++
			case o.Rows != nil && o.Disposition == dendro.Applied:
				rows += int(o.Rows.Count)
			case o.Rows != nil:
				got.RowsSkipped += int(o.Rows.Count)
			case o.Index != nil:
				got.IndexEntries++
			case o.SourceUpdate != nil:
				got.SourceUpdates++
			case o.Segment != nil:
				segments++
			case o.ClockOffset != nil:
				clocks++
			}
		}
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
		if segments != want.Segments+want.SegmentsHeld {
			t.Errorf("%s: %d segments, the crate has %d and holds %d", name, segments, want.Segments, want.SegmentsHeld)
		}
		if rows < want.Rows {
			t.Errorf("%s: %d rows attributed, the crate has %d", name, rows, want.Rows)
		}
		if clocks > want.ClockOffsets && want.ClockOffsets == 0 {
			t.Errorf("%s: %d clock offsets, the crate has none", name, clocks)
		}
	}
	if held < 30 {
		t.Errorf("only %d streams were compared", held)
	}
}

// TestCrafted names what is found in each crafted stream, and where.
func TestCrafted(t *testing.T) {
	type at struct {
		kind   string
		offset int64
		field  string
	}
	for name, want := range map[string][]at{
		"bad-bool":                     {{wire.KindMalformed, 439, "complete"}},
		"bad-utf8":                     {{wire.KindMalformed, 352, "rows[0].stream"}, {dendro.KindGap, 379, "seq"}},
		"bad-uuid-utf8":                {{wire.KindMalformed, 23, "uuid"}},
		"bytes-overrun":                nil,
		"len-0":                        {{wire.KindMalformed, 315, "len"}},
		"len-over-64MiB":               {{wire.KindBadLength, 315, "len"}},
		"trailing-bytes":               {{wire.KindMalformed, 340, ""}},
		"no-handshake":                 {{dendro.KindUnknownOrdinal, 14, "source"}},
		"unknown-kind":                 {{wire.KindUnknownKind, 315, "kind"}},
		"unknown-kind-only":            {{wire.KindUnknownKind, 14, "kind"}, {wire.KindUnknownKind, 20, "kind"}},
		"gap":                          {{dendro.KindGap, 407, "seq"}},
		"seq-backwards":                {},
		"seq-repeat":                   {},
		"rehandshake":                  {},
		"rows-no-index-state":          {},
		"rows-before-full":             {{dendro.KindRowsSkipped, 170, "index_state"}},
		"state-mismatch":               {{dendro.KindRowsSkipped, 315, "index_state"}, {dendro.KindRowsSkipped, 407, "index_state"}, {dendro.KindRowsSkipped, 645, "index_state"}},
		"segment-zero-rows":            {{dendro.KindSegmentNoRows, 315, "rows"}},
		"segment-inverted-span":        {{dendro.KindSegmentSpan, 223, "first_ts"}},
		"uuid-empty":                   {{dendro.KindUUID, 23, "uuid"}},
		"uuid-uppercase":               {{dendro.KindUUID, 23, "uuid"}},
		"uuid-absent":                  {},
		"truncated-in-len":             {{wire.KindCut, 407, ""}},
		"truncated-in-len-1":           {{wire.KindCut, 407, ""}},
		"truncated-in-magic":           {{wire.KindCut, 0, ""}},
		"zero-byte-file":               {{wire.KindCut, 0, ""}},
		"empty-stream":                 {},
		"bad-magic":                    {{wire.KindBadPreamble, 0, "magic"}},
		"bad-version":                  {{wire.KindBadVersion, 0, "version"}},
		"source-update":                {},
		"two-handshakes-same-uuid":     {},
		"empty-caller-index-vs-absent": {},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := os.ReadFile("testdata/crafted/" + name + ".stream")
			if err != nil {
				t.Fatal(err)
			}
			steps, found, _ := readAll(t, stream, newDecoder(t), wire.ReaderOptions{})
			var all []wire.Finding
			for _, s := range steps {
				all = append(all, s.found...)
			}
			all = append(all, found...)
			if want == nil {
				for _, f := range all {
					t.Logf("%+v", f)
				}
				if len(all) == 0 {
					t.Error("nothing is found")
				}
				return
			}
			for i, f := range all {
				if f.Message == "" || f.Kind != wire.KindUnknownKind && f.Kind != dendro.KindUUID && f.Cost == "" && f.Offset > 0 {
					t.Errorf("a finding without words: %+v", f)
				}
				if i >= len(want) || (at{f.Kind, f.Byte(), f.Field}) != want[i] {
					t.Errorf("finding %d is %+v", i, f)
				}
			}
			if len(all) < len(want) {
				t.Errorf("found %d of %+v", len(all), want)
			}
		})
	}
}

// stream builds a stream of frames behind a preamble.
func stream(frames ...[]byte) []byte {
	b := dendro.AppendPreamble(nil)
	for _, f := range frames {
		b = append(b, f...)
	}
	return b
}

const uuid1 = "3f2b1c4d-0000-4000-8000-000000000001"

func hello(source uint32) []byte {
	return dendro.AppendHandshake(nil, &dendro.Handshake{Source: source, UUID: []byte(uuid1), HasUUID: true,
		Labels: dendro.NewMap(map[string]string{"host": "web-1", "rack": "r7"}), Metadata: dendro.NewMap(map[string]string{"encoder": "e"})})
}

func rows(source uint32, seq uint64, state dendro.State, n int) []byte {
	r := make([]dendro.Row, n)
	for i := range r {
		r[i] = dendro.Row{Stream: []byte("cpu"), TS: int64(i), WallOffset: -1, Row: []byte("abc")}
	}
	f := dendro.NewRows(source, seq, state, r)
	return dendro.AppendRows(nil, &f)
}

func index(source uint32, kind dendro.IndexKind, state dendro.State) []byte {
	return dendro.AppendIndex(nil, &dendro.Index{Source: source, Stream: []byte("slots"), TS: 5, Kind: kind, State: state, Blob: []byte("blob")})
}

func segment(source uint32) []byte {
	return dendro.AppendSegment(nil, &dendro.Segment{Source: source, Stream: []byte("cpu"), Rows: 1, FirstTS: 1, LastTS: 2, Bytes: []byte("PAR1")})
}

// bad makes the last byte of a frame's payload go missing, the framing whole.
func bad(frame []byte) []byte {
	f := append([]byte(nil), frame[:len(frame)-1]...)
	n := len(f) - 4
	f[0], f[1], f[2], f[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return f
}

// truncated is a frame of n payload bytes.
func truncated(frame []byte, n int) []byte {
	f := append([]byte(nil), frame[:5+n]...)
	f[0], f[1], f[2], f[3] = byte(n+1), 0, 0, 0
	return f
}

// TestRules goes through rules 1 to 3 and 8 one by one.
func TestRules(t *testing.T) {
	a, b := dendro.State{1, 2}, dendro.State{3, 4}
	zero := dendro.State{}
	max := ^uint64(0)
	type want struct {
		d   dendro.Disposition
		gap uint64
	}
	ok := want{}
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   []want
	}{
		{"rows against no index", [][]byte{hello(0), rows(0, 9, zero, 1), rows(0, 10, zero, 0)}, []want{ok, ok, ok}},
		{"no Full yet", [][]byte{hello(0), index(0, dendro.IndexDelta, a), rows(0, 0, a, 1)},
			[]want{ok, ok, {d: dendro.SkippedNoFull}}},
		{"the state follows Full and Delta", [][]byte{hello(0), index(0, dendro.IndexFull, a), rows(0, 0, a, 1), index(0, dendro.IndexDelta, b), rows(0, 1, b, 1), rows(0, 2, a, 1)},
			[]want{ok, ok, ok, ok, ok, {d: dendro.SkippedState}}},
		{"no index any more", [][]byte{hello(0), index(0, dendro.IndexFull, a), rows(0, 0, zero, 1)},
			[]want{ok, ok, {d: dendro.SkippedState}}},
		{"last seq moves for skipped frames", [][]byte{hello(0), rows(0, 0, zero, 1), rows(0, 1, a, 1), rows(0, 2, zero, 1)},
			[]want{ok, ok, {d: dendro.SkippedNoFull}, ok}},
		{"a gap, and one more at the largest seq", [][]byte{hello(0), rows(0, 5, zero, 1), rows(0, 8, zero, 1), rows(0, max, zero, 1), rows(0, 0, zero, 1)},
			[]want{ok, ok, {gap: 2}, {gap: max - 9}, ok}},
		{"a keepalive shows a gap too", [][]byte{hello(0), rows(0, 5, zero, 1), rows(0, 7, zero, 0)}, []want{ok, ok, {gap: 1}}},
		{"each ordinal has its own seq", [][]byte{hello(0), hello(1), rows(0, 5, zero, 1), rows(1, 9, zero, 1), rows(0, 6, zero, 1)}, []want{ok, ok, ok, ok, ok}},
		{"a used ordinal is reopened with fresh state", [][]byte{hello(0), index(0, dendro.IndexFull, a), rows(0, 5, a, 1), hello(0), rows(0, 9, a, 1), rows(0, 10, zero, 1)},
			[]want{ok, ok, ok, ok, {d: dendro.SkippedNoFull}, ok}},
		{"a refused Handshake makes its ordinal unknown", [][]byte{hello(0), hello(1), bad(hello(0)), rows(0, 0, zero, 1), rows(1, 0, zero, 1), hello(0), rows(0, 0, zero, 1)},
			[]want{ok, ok, {d: dendro.Refused}, {d: dendro.Unknown}, ok, ok, ok}},
		{"a Handshake without an ordinal makes all unknown", [][]byte{hello(0), hello(1), truncated(hello(0), 3), rows(0, 0, zero, 1), segment(1)},
			[]want{ok, ok, {d: dendro.Refused}, {d: dendro.Unknown}, {d: dendro.Unknown}}},
		{"a refused Index leaves the state, so that rows are skipped", [][]byte{hello(0), index(0, dendro.IndexFull, a), bad(index(0, dendro.IndexDelta, b)), rows(0, 0, b, 1)},
			[]want{ok, ok, {d: dendro.Refused}, {d: dendro.SkippedState}}},
		{"refused Rows show as a gap", [][]byte{hello(0), rows(0, 0, zero, 1), bad(rows(0, 1, zero, 1)), rows(0, 2, zero, 1)},
			[]want{ok, ok, {d: dendro.Refused}, {gap: 1}}},
		{"one len 0 is a malformed frame", [][]byte{hello(0), {0, 0, 0, 0}, rows(0, 0, zero, 1)}, []want{ok, {d: dendro.Refused}, ok}},
		{"an unknown kind", [][]byte{hello(0), {1, 0, 0, 0, 77}, rows(0, 0, zero, 1)}, []want{ok, {d: dendro.UnknownKind}, ok}},
		{"an unknown ordinal", [][]byte{hello(0), index(3, dendro.IndexFull, a), dendro.AppendClockOffset(nil, &dendro.ClockOffset{Source: 3}),
			dendro.AppendSourceUpdate(nil, &dendro.SourceUpdate{Source: 3})}, []want{ok, {d: dendro.Unknown}, {d: dendro.Unknown}, {d: dendro.Unknown}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps, rest, end := readAll(t, stream(c.frames...), newDecoder(t), wire.ReaderOptions{})
			if end != wire.EndingClean || len(rest) > 0 || len(steps) != 1+len(c.want) {
				t.Fatalf("ending %s, %d units, %v", end, len(steps), rest)
			}
			for i, w := range c.want {
				s := steps[i+1]
				if s.outcome.Disposition != w.d || s.outcome.Gap != w.gap {
					t.Errorf("frame %d: disposition %d, gap %d; want %d, %d", i, s.outcome.Disposition, s.outcome.Gap, w.d, w.gap)
				}
				if (len(s.found) > 0) != (w != ok) {
					t.Errorf("frame %d: findings %v", i, s.found)
				}
				if (s.outcome.Fault != nil) != (w.d == dendro.Refused) {
					t.Errorf("frame %d: fault %v", i, s.outcome.Fault)
				}
			}
		})
	}
}

// TestMapFindings: leniency as the crate's, each a finding.
func TestMapFindings(t *testing.T) {
	for _, c := range []struct {
		pairs [][2]string
		want  string
		last  string // the value of "a"
	}{
		{[][2]string{{"a", "1"}, {"b", "2"}}, "", "1"},
		{nil, "", ""},
		{[][2]string{{"b", "2"}, {"a", "1"}}, dendro.KindMapOrder, "1"},
		{[][2]string{{"a", "1"}, {"a", "2"}, {"a", "3"}}, dendro.KindMapRepeatedKey, "3"},
		{[][2]string{{"a", "1"}, {"b", "2"}, {"a", "3"}}, dendro.KindMapOrder + " " + dendro.KindMapRepeatedKey, "3"},
		{[][2]string{{"c", "1"}, {"a", "2"}, {"b", "3"}, {"c", "4"}, {"a", "5"}}, dendro.KindMapOrder + " " + dendro.KindMapRepeatedKey, "5"},
	} {
		h := dendro.Handshake{UUID: []byte(uuid1), HasUUID: true, Metadata: dendro.MapOf(c.pairs...)}
		f := dendro.AppendHandshake(nil, &h)
		steps, _, _ := readAll(t, stream(f), newDecoder(t), wire.ReaderOptions{})
		s := steps[1]
		if got := kinds(s.found); got != c.want {
			t.Errorf("%v: found %q, want %q", c.pairs, got, c.want)
		}
		for _, f := range s.found {
			// The place is that of the key: its length and the key itself.
			key := s.unit.Bytes[f.Byte()-s.unit.Offset:][:f.Length]
			if string(key[4:]) != f.Got || !strings.HasPrefix(f.Field, "metadata[") {
				t.Errorf("%v: the place of %+v has %q", c.pairs, f, key)
			}
		}
		back, fault := dendro.DecodeHandshake(s.unit)
		if fault != nil || back.Metadata.Go()["a"] != c.last || back.Metadata.Len() != len(c.pairs) {
			t.Errorf("%v: %v, %v", c.pairs, back.Metadata.Go(), fault)
		}
		if v, _ := back.Metadata.Get("a"); string(v) != c.last {
			t.Errorf("%v: Get gives %q", c.pairs, v)
		}
	}
}

// TestResync: after an impossible length nothing is credited until the next
// Handshake, which is found wherever it starts.
func TestResync(t *testing.T) {
	zero := dendro.State{}
	over := []byte{1, 0, 0, 4, 3, 9, 9}
	for pad := range 9 {
		head := stream(hello(0), rows(0, 0, zero, 1))
		junk := append(append([]byte(nil), over...), bytes.Repeat([]byte{1}, pad)...)
		junk = append(junk, rows(0, 1, zero, 2)...)
		tail := append(hello(4), rows(0, 2, zero, 1)...)
		tail = append(tail, rows(4, 0, zero, 1)...)
		steps, rest, end := readAll(t, append(append(append([]byte(nil), head...), junk...), tail...), newDecoder(t), wire.ReaderOptions{})
		if end != wire.EndingClean || len(rest) > 0 || len(steps) != 6 {
			t.Fatalf("pad %d: ending %s, %d units, %v", pad, end, len(steps), rest)
		}
		f := steps[3].found[0]
		if f.Kind != wire.KindBadLength || f.Offset != int64(len(head)) || f.Length != int64(len(junk)) || f.Cost == "" {
			t.Errorf("pad %d: %+v", pad, f)
		}
		if steps[4].outcome.Disposition != dendro.Unknown || steps[5].outcome.Disposition != dendro.Applied {
			t.Errorf("pad %d: the ordinals are %d, %d", pad, steps[4].outcome.Disposition, steps[5].outcome.Disposition)
		}
	}
	// None comes: everything to the end is one finding.
	lost := append(stream(hello(0)), over...)
	at := int64(len(lost) - len(over))
	lost = append(lost, bytes.Repeat([]byte{7}, 5000)...)
	_, rest, end := readAll(t, lost, newDecoder(t), wire.ReaderOptions{})
	if end != wire.EndingLost || len(rest) != 1 || rest[0].Offset != at || rest[0].Length != 5000+int64(len(over)) {
		t.Errorf("ending %s, %+v", end, rest)
	}
	// An unaligned start finds the first Handshake.
	mid := append([]byte{9, 9, 9}, stream(hello(0), rows(0, 0, zero, 1))...)
	d, err := dendro.NewDecoder(wire.Config{Unaligned: true})
	if err != nil {
		t.Fatal(err)
	}
	steps, rest, end := readAll(t, mid, d, wire.ReaderOptions{Offset: 1000})
	if end != wire.EndingClean || len(rest) > 0 || len(steps) != 2 || steps[0].unit.Offset != 1017 || steps[0].found[0].Offset != 1000 {
		t.Errorf("ending %s, %d units, %v", end, len(steps), rest)
	}
}

// TestZeroRuns: the framing holds in zeros, but no frame owns them, and what
// was there may have been a Handshake.
func TestZeroRuns(t *testing.T) {
	zero := dendro.State{}
	for n := 4; n <= 40; n += 4 {
		head := stream(hello(0), rows(0, 0, zero, 1))
		s := append(append(append([]byte(nil), head...), make([]byte, n)...), rows(0, 1, zero, 1)...)
		steps, rest, end := readAll(t, s, newDecoder(t), wire.ReaderOptions{})
		last := steps[len(steps)-1]
		if end != wire.EndingClean || len(rest) > 0 {
			t.Fatalf("%d zeros: ending %s, %v", n, end, rest)
		}
		if n == 4 {
			if len(steps) != 5 || kinds(steps[3].found) != wire.KindMalformed || last.outcome.Disposition != dendro.Applied {
				t.Errorf("one len 0: %d units, %v", len(steps), steps[3].found)
			}
			continue
		}
		if len(steps) != 4 || kinds(last.found) != wire.KindLost+" "+dendro.KindUnknownOrdinal {
			t.Fatalf("%d zeros: %d units, %+v", n, len(steps), last.found)
		}
		if f := last.found[0]; f.Offset != int64(len(head)) || f.Length != int64(n) {
			t.Errorf("%d zeros: %+v", n, f)
		}
	}
}

// TestFaultPlaces cuts every payload short at every byte and sets every length
// in it too large: the finding must name the field in which that lies.
func TestFaultPlaces(t *testing.T) {
	frames := map[uint32][]byte{
		dendro.KindHandshake: hello(1), dendro.KindIndex: index(1, dendro.IndexFull, dendro.State{1, 2}),
		dendro.KindRows: rows(1, 3, dendro.State{}, 2), dendro.KindSegment: dendro.AppendSegment(nil, &dendro.Segment{
			Stream: []byte("cpu"), Rows: 1, Bytes: []byte("PAR1"), CallerIndex: []byte("ci"), HasCallerIndex: true}),
		dendro.KindClockOffset:  dendro.AppendClockOffset(nil, &dendro.ClockOffset{Source: 1, TS: -5, OffsetNs: 3}),
		dendro.KindSourceUpdate: dendro.AppendSourceUpdate(nil, &dendro.SourceUpdate{Labels: dendro.NewMap(map[string]string{"a": "b"})}),
	}
	d := newDecoder(t)
	for kind, frame := range frames {
		const base = 1000
		whole := wire.Unit{Type: wire.UnitFrame, Offset: base, Size: int64(len(frame)), Kind: kind, Bytes: frame}
		fields, f := d.Fields(whole)
		if f != nil {
			t.Fatal(f)
		}
		for n := 0; n < len(frame)-5; n++ {
			cut := truncated(frame, n)
			u := wire.Unit{Type: wire.UnitFrame, Offset: base, Size: int64(len(cut)), Kind: kind, Bytes: cut}
			part, f := d.Fields(u)
			if f == nil {
				t.Fatalf("%s with %d payload bytes decodes", dendro.KindName(kind), n)
			}
			// The first field that does not end by then is the one at fault.
			want := fields[0]
			for _, want = range fields {
				if want.Offset+want.Length > u.End() {
					break
				}
			}
			if name, _, _ := strings.Cut(f.Field, "["); name != want.Name && !(name == "count" && want.Name == "rows") {
				t.Errorf("%s with %d payload bytes: fault in %q, want %q (%s)", dendro.KindName(kind), n, f.Field, want.Name, f.Message)
			}
			if f.Offset > u.End() || f.Offset+f.Length > u.End() || f.Want == "" || f.Got == "" {
				t.Errorf("%s with %d payload bytes: %+v", dendro.KindName(kind), n, f)
			}
			if len(part) > len(fields) {
				t.Errorf("more fields than there are")
			}
			for i := range part {
				if part[i].Name != fields[i].Name || part[i].Offset != fields[i].Offset {
					t.Errorf("field %d is %q at %d", i, part[i].Name, part[i].Offset)
				}
			}
		}
	}
}

// TestDecodeRefusesOthers: a typed decode takes whole frames of its kind alone.
func TestDecodeRefusesOthers(t *testing.T) {
	f := hello(0)
	u := wire.Unit{Type: wire.UnitFrame, Size: int64(len(f)), Kind: dendro.KindHandshake, Bytes: f}
	if _, fault := dendro.DecodeSegment(u); fault == nil {
		t.Error("a Handshake decodes as a Segment")
	}
	u.Bytes = f[:20]
	if _, fault := dendro.DecodeHandshake(u); fault == nil {
		t.Error("a Handshake decodes from its first bytes")
	}
}

// TestTooManySources bounds what a hostile stream makes a decoder remember.
func TestTooManySources(t *testing.T) {
	b := dendro.AppendPreamble(nil)
	h := dendro.Handshake{UUID: []byte(uuid1), HasUUID: true}
	for i := range dendro.MaxSources + 2 {
		h.Source = uint32(i)
		b = dendro.AppendHandshake(b, &h)
	}
	h.Source = 5
	b = dendro.AppendHandshake(b, &h)
	d := newDecoder(t)
	steps, _, _ := readAll(t, b, d, wire.ReaderOptions{})
	n := len(steps)
	for i, want := range []dendro.Disposition{dendro.Applied, dendro.Refused, dendro.Refused, dendro.Applied} {
		if got := steps[n-4+i].outcome.Disposition; got != want {
			t.Errorf("handshake %d from the end: %d, want %d", 4-i, got, want)
		}
	}
	if got := kinds(steps[n-3].found); got != dendro.KindTooManySources {
		t.Error(got)
	}
	count := 0
	for range d.Sources() {
		count++
	}
	if count != dendro.MaxSources {
		t.Errorf("%d sources are known", count)
	}
	c := d.Context(1 << 20)
	if len(c.Entries) == 0 || len(c.Omitted) == 0 || len(c.Omitted) > 200 {
		t.Errorf("%d entries, %d omitted", len(c.Entries), len(c.Omitted))
	}
}
