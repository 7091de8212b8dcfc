package index

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/wasm/filter"
	"wiretape/wasm/packed"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../wire/dendro/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fixtures(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("../../wire/dendro/testdata/*/*.stream")
	if err != nil || len(names) < 50 {
		t.Fatal("fixtures are missing", len(names), err)
	}
	return names
}

func indexed(t testing.TB, b []byte, runs ...Run) *Index {
	t.Helper()
	if runs == nil {
		runs = []Run{{End: int64(len(b))}}
	}
	ix := New(dendro.Protocol{}, wire.Downstream, runs)
	drive(ix.First(), b)
	return ix
}

// row is what the page reads of a row.
type row struct {
	Row, Frame    int64
	Offset, Size  int64
	Type, Name    string
	Kind          uint32
	Source, Label string
	Stream, Time  string
	Summary       string
	Findings      int
}

func rows(t testing.TB, ix *Index, b []byte, numbers ...int64) (out []row) {
	t.Helper()
	p := ix.RowsPass(numbers)
	drive(p, b)
	if err := json.Unmarshal(p.Close(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func all(ix *Index) []int64 {
	n := make([]int64, ix.Rows)
	for i := range n {
		n[i] = int64(i)
	}
	return n
}

// TestRowsAreTheReadersUnits holds the walk against wire.Reader over every
// fixture: the same units, findings and ending.
func TestRowsAreTheReadersUnits(t *testing.T) {
	for _, name := range fixtures(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compareWithReader(t, filepath.Base(name), b, 0)
	}
}

// compareWithReader reads b both ways; zeros is where its zero-filled tail
// begins, 0 for none.
func compareWithReader(t *testing.T, name string, b []byte, zeros int64) {
	t.Helper()
	if len(b) == 0 {
		return
	}
	dec, err := dendro.Protocol{}.Open(wire.Config{Direction: wire.Downstream})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(bytes.NewReader(b), dec, wire.ReaderOptions{Zeros: (&Run{ZerosFrom: zeros}).zeros()})
	type place struct{ offset, size int64 }
	var want []place
	var found []string
	for {
		u, f, err := r.Next()
		for i := range f {
			found = append(found, string(f[i].AppendJSON(nil)))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(name, err)
		}
		want = append(want, place{u.Offset, u.Size})
	}
	ix := indexed(t, b, Run{End: int64(len(b)), ZerosFrom: zeros})
	var got []place
	end := int64(0)
	for _, x := range rows(t, ix, b, all(ix)...) {
		if x.Offset != end {
			t.Fatalf("%s: row %d starts at %d, the one before ended at %d", name, x.Row, x.Offset, end)
		}
		end = x.Offset + x.Size
		if x.Type == "frame" || x.Type == "preamble" {
			got = append(got, place{x.Offset, x.Size})
		}
	}
	if end != int64(len(b)) {
		t.Fatalf("%s: the rows end at %d of %d", name, end, len(b))
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d units, the reader has %d", name, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: unit %d is %v, the reader's %v", name, i, got[i], want[i])
		}
	}
	var list []struct{ Finding json.RawMessage }
	if err := json.Unmarshal(ix.AppendFindings(nil, 0, MaxFindings), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(found) {
		t.Fatalf("%s: %d findings, the reader has %d\n%s\n%s", name, len(list), len(found), ix.AppendFindings(nil, 0, 100), strings.Join(found, "\n"))
	}
	for i := range list {
		if string(list[i].Finding) != found[i] {
			t.Fatalf("%s: finding %d is\n%s\nthe reader's\n%s", name, i, list[i].Finding, found[i])
		}
	}
}

// TestDamage cuts, flips and zeroes a stream at every place: the walk and the
// reader agree on all of it.
func TestDamage(t *testing.T) {
	b := fixture(t, "crafted/source-update.stream")
	for i := range b {
		compareWithReader(t, "cut at "+wire.Itoa(int64(i)), b[:i], zerosFrom(b[:i]))
		c := bytes.Clone(b)
		c[i] ^= 0x41
		compareWithReader(t, "flip at "+wire.Itoa(int64(i)), c, zerosFrom(c))
		c = bytes.Clone(b)
		clear(c[i:])
		compareWithReader(t, "zero from "+wire.Itoa(int64(i)), c, zerosFrom(c))
	}
}

// TestZeroTails lets zeros follow a stream that was cut: in a frame, in front of
// one, and fewer of them than a frame's length has.
func TestZeroTails(t *testing.T) {
	b := fixture(t, "real/small.stream")
	for _, cut := range []int{100_000, 89_871, 253_400, len(b)} {
		for _, zeros := range []int{0, 1, 3, 4, 100, 700, 4096, 5000} {
			c := append(b[:cut:cut], make([]byte, zeros)...)
			compareWithReader(t, wire.Itoa(int64(cut))+" bytes and "+wire.Itoa(int64(zeros))+" zeros", c, zerosFrom(c))
		}
	}
}

func zerosFrom(b []byte) int64 {
	n := len(bytes.TrimRight(b, "\x00"))
	if n == len(b) {
		return 0
	}
	return int64(max(n, 1))
}

// TestPieces pushes the bytes in the smallest pieces that are asked for, which
// must change nothing.
func TestPieces(t *testing.T) {
	for _, name := range fixtures(t) {
		b, err := os.ReadFile(name)
		if err != nil || len(b) == 0 {
			continue
		}
		ix := indexed(t, b)
		small := New(dendro.Protocol{}, wire.Downstream, []Run{{End: int64(len(b))}})
		p := small.First()
		steps := 0
		for !p.Done() {
			pos, n := p.Need()
			p.Feed(b[pos : pos+n])
			if steps++; steps > 10*len(b)+100 {
				t.Fatalf("%s: the walk does not end", name)
			}
		}
		for _, what := range []func(*Index) []byte{
			func(x *Index) []byte { return x.AppendStatus(nil) },
			func(x *Index) []byte { return x.AppendSources(nil) },
			func(x *Index) []byte { return x.AppendBins(nil) },
			func(x *Index) []byte { return x.AppendFindings(nil, 0, MaxFindings) },
		} {
			if got, want := string(what(small)), string(what(ix)); got != want {
				t.Fatalf("%s: in pieces\n%s\nat once\n%s", name, got, want)
			}
		}
	}
}

// TestAnyRowAlone asks for each row by itself and for some far apart: they are
// what the whole list has, whatever state the walk started from.
func TestAnyRowAlone(t *testing.T) {
	b := smallFrames(24000)
	ix := indexed(t, b)
	if len(ix.states) < 20 {
		t.Fatalf("only %d states", len(ix.states))
	}
	whole := rows(t, ix, b, all(ix)...)
	for i := int64(0); i < ix.Rows; i += 411 {
		if got := rows(t, ix, b, i); len(got) != 1 || got[0] != whole[i] {
			t.Fatalf("row %d alone is %+v, in the list %+v", i, got, whole[i])
		}
		p := ix.FindPass(whole[i].Offset + whole[i].Size - 1)
		drive(p, b)
		// The preamble is row 0, and all that follows is frames.
		f := ix.FramePass(i)
		drive(f, b)
		if whole[i].Frame != i || i > 0 && string(f.Close()) != wire.Itoa(i) {
			t.Fatalf("row %d is frame %d, frame %d row %s", i, whole[i].Frame, i, f.Close())
		}
		if string(p.Close()) != wire.Itoa(i) {
			t.Fatalf("the last byte of row %d is found in row %s", i, p.Close())
		}
	}
	some := []int64{3, 4, 500, 2900, 24004}
	for j, r := range rows(t, ix, b, some...) {
		if r != whole[some[j]] {
			t.Fatalf("row %d is %+v, want %+v", some[j], r, whole[some[j]])
		}
	}
	p := ix.FindPass(int64(len(b)) + 100)
	drive(p, b)
	if string(p.Close()) != wire.Itoa(ix.Rows-1) {
		t.Fatalf("behind the end is row %s", p.Close())
	}
}

// TestStateBefore holds the state before every row against that of a decoder
// that read everything up to it.
func TestStateBefore(t *testing.T) {
	b := fixture(t, "real/small.stream")
	ix := indexed(t, b)
	dec, err := dendro.Protocol{}.Open(wire.Config{Direction: wire.Downstream})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows(t, ix, b, all(ix)...) {
		p := ix.UnitPass(r.Row)
		drive(p, b)
		if want := packed.AppendContext(nil, dec.Context(contextLimit)); !bytes.Equal(p.State, want) {
			t.Fatalf("row %d: another state", r.Row)
		}
		typ := wire.UnitFrame
		if r.Type == "preamble" {
			typ = wire.UnitPreamble
		}
		dec.Observe(wire.Unit{Type: typ, Offset: r.Offset, Size: r.Size, Kind: r.Kind, Bytes: b[r.Offset : r.Offset+r.Size]}, nil)
	}
}

// TestThinning: states are thinned to their budget and every row is still found.
func TestThinning(t *testing.T) {
	b := smallFrames(60_000)
	ix := indexed(t, b)
	before := len(ix.states)
	for range 5 {
		ix.thinStates()
	}
	if len(ix.states) > before/16 || ix.states[0].number != 0 {
		t.Fatalf("%d of %d states", len(ix.states), before)
	}
	for _, n := range []int64{0, 1, 59_999, 31_234} {
		if r := rows(t, ix, b, n); len(r) != 1 || r[0].Row != n {
			t.Fatalf("row %d: %+v", n, r)
		}
	}
	if ix.stateBytes > stateBudget {
		t.Fatal(ix.stateBytes)
	}
}

// TestLargePayloadsAreSkipped: of a frame above the check limit only its first
// bytes are asked for.
func TestLargePayloadsAreSkipped(t *testing.T) {
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{Labels: dendro.NewMap(map[string]string{"host": "h"})})
	for i := range 20 {
		b = dendro.AppendSegment(b, &dendro.Segment{Stream: []byte("s"), Rows: 1, FirstTS: int64(i), LastTS: int64(i), Bytes: make([]byte, 1<<20)})
	}
	ix := New(dendro.Protocol{}, wire.Downstream, []Run{{End: int64(len(b))}})
	p := ix.First()
	asked := int64(0)
	for !p.Done() {
		pos, n := p.Need()
		asked += n
		p.Feed(b[pos : pos+n])
	}
	if ix.Rows != 22 || asked > 20*2048 {
		t.Fatalf("%d rows, %d of %d bytes asked for", ix.Rows, asked, len(b))
	}
}

// TestLargeFramesAreChecked: a Rows frame is no payload, and a fault at its end is
// found in the first pass, in whatever pieces it comes.
func TestLargeFramesAreChecked(t *testing.T) {
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{Labels: dendro.NewMap(map[string]string{"host": "h"})})
	list := make([]dendro.Row, 30_000)
	for i := range list {
		list[i] = dendro.Row{Stream: []byte("s"), TS: int64(i), Row: make([]byte, 100)}
	}
	r := dendro.NewRows(0, 0, dendro.State{}, list)
	b = dendro.AppendRows(b, &r)
	b[len(b)-101]++ // the last row claims more than is left
	ix := New(dendro.Protocol{}, wire.Downstream, []Run{{End: int64(len(b))}})
	p := ix.First()
	for !p.Done() {
		pos, n := p.Need()
		p.Feed(b[pos : pos+n])
	}
	if ix.Rows != 3 || ix.nFindings != 1 || ix.findings[0].Field != "rows[29999].row" {
		t.Fatalf("%d rows, findings %+v", ix.Rows, ix.findings)
	}
}

// TestRuns: a hole between two runs is a row and a finding, and the second
// starts with its own context.
func TestRuns(t *testing.T) {
	b := fixture(t, "real/live.stream")
	whole := indexed(t, b)
	list := rows(t, whole, b, all(whole)...)
	cut, resume := list[20].Offset, list[40].Offset
	p := whole.UnitPass(40)
	drive(p, b)
	c := packed.NewReader(p.State).Context()
	ix := indexed(t, b, Run{End: cut}, Run{Start: resume, End: int64(len(b)), Context: c})
	got := rows(t, ix, b, all(ix)...)
	if len(got) != len(list)-20+1 {
		t.Fatalf("%d rows", len(got))
	}
	if h := got[20]; h.Type != "missing" || h.Offset != cut || h.Size != resume-cut || h.Findings != 1 {
		t.Fatalf("%+v", h)
	}
	for i, g := range got[21:] {
		w := list[40+i]
		w.Row = g.Row
		if g.Label != w.Label || g.Offset != w.Offset || g.Summary != w.Summary {
			t.Fatalf("%+v, want %+v", g, w)
		}
	}
	if s := string(ix.AppendStatus(nil)); !strings.Contains(s, `"`+KindMissing+`":1`) {
		t.Fatal(s)
	}
}

func TestHits(t *testing.T) {
	h := new(Hits)
	var want []int64
	for i := int64(0); i < 300_000; i++ {
		if i%7 == 0 && (i < 1000 || i > 200_000) || i == 299_999 {
			h.add(i)
			want = append(want, i)
		}
	}
	if h.Len() != int64(len(want)) {
		t.Fatal(h.Len())
	}
	for from := int64(0); from < h.Len(); from += 97 {
		got := h.Append(nil, from, 5)
		for j, g := range got {
			if g != want[from+int64(j)] {
				t.Fatalf("hit %d is %d, want %d", from+int64(j), g, want[from+int64(j)])
			}
		}
		if h.Rank(want[from]) != from || h.Rank(want[from]+1) != from+1 {
			t.Fatalf("rank of %d is %d", want[from], h.Rank(want[from]))
		}
	}
	if h.Append(nil, h.Len(), 5) != nil || h.Append(nil, -1, 5) != nil {
		t.Fatal("hits beyond the end")
	}
	if got := h.Append(nil, h.Len()-1, 10); len(got) != 1 || got[0] != 299_999 {
		t.Fatal(got)
	}
}

// TestNextHit: the hits after and before every row, over blocks that are empty,
// alone and together with another set.
func TestNextHit(t *testing.T) {
	var h, other Hits
	in, both := make([]bool, 5*hitRows), make([]bool, 5*hitRows)
	for r := int64(0); r < 5*hitRows; r++ {
		a := r%7001 == 0 && r/hitRows != 2 || r == 63 || r == 64 || r == hitRows-1 || r == hitRows
		b := r%3 == 0
		if a {
			h.add(r)
			in[r] = true
		}
		if b && r < 4*hitRows {
			other.add(r)
			both[r] = a
		}
	}
	check := func(name string, set []bool, with *Hits) {
		for _, from := range []int64{-1, 0, 1, 62, 63, 64, 65, 7000, 7001, 7002, hitRows - 1, hitRows, hitRows + 1, 2 * hitRows, 2*hitRows + 5, 3*hitRows - 1, 3 * hitRows, 4*hitRows + 9, 5*hitRows - 1, 5 * hitRows, 5*hitRows + 1, 9 * hitRows} {
			after, before := int64(-1), int64(-1)
			for r := from + 1; r < 5*hitRows && after < 0; r++ {
				if set[r] {
					after = r
				}
			}
			for r := min(from, 5*hitRows) - 1; r >= 0 && before < 0; r-- {
				if set[r] {
					before = r
				}
			}
			if got := h.Next(from, false, with); got != after {
				t.Errorf("%s: after %d is %d, want %d", name, from, got, after)
			}
			if got := h.Next(from, true, with); got != before {
				t.Errorf("%s: before %d is %d, want %d", name, from, got, before)
			}
		}
	}
	check("all", in, nil)
	check("both", both, &other)
	if got := new(Hits).Next(5, true, nil); got != -1 {
		t.Errorf("an empty set has %d", got)
	}
}

func TestFilterPass(t *testing.T) {
	b := fixture(t, "real/small.stream")
	ix := indexed(t, b)
	list := rows(t, ix, b, all(ix)...)
	for expr, takes := range map[string]func(row) bool{
		"kind == Rows":               func(r row) bool { return r.Name == "Rows" },
		"source ~ web and size > 4K": func(r row) bool { return strings.Contains(r.Label, "web") && r.Size > 4096 },
		"time":                       func(r row) bool { return r.Time != "" },
		"summary ~ keepalive":        func(r row) bool { return strings.Contains(r.Summary, "keepalive") },
		"not type == frame":          func(r row) bool { return r.Type != "frame" },
	} {
		e, wrong := filter.Parse(expr, Kinds(ix.Protocol))
		if wrong != nil {
			t.Fatal(expr, wrong)
		}
		h := new(Hits)
		drive(ix.FilterPass(e, h, 0), b)
		var want []int64
		for _, r := range list {
			if takes(r) {
				want = append(want, r.Row)
			}
		}
		if got := h.Append(nil, 0, 1000); len(want) == 0 || !equal(got, want) {
			t.Errorf("%s: %v, want %v", expr, got, want)
		}
		h = new(Hits)
		p := ix.FilterPass(e, h, 1)
		drive(p, b)
		if h.Len() != 1 || h.Append(nil, 0, 1)[0] != want[0] || string(p.Close()) != wire.Itoa(want[0]) {
			t.Errorf("%s: the first alone is %v, %s", expr, h.Append(nil, 0, 10), p.Out)
		}
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestBins: every time is in a bin, however far apart they are, and none is
// lost when bins merge.
func TestBins(t *testing.T) {
	for _, times := range [][]int64{
		{0, 1, 2},
		{1_700_000_000_000_000_000, 1_700_000_000_000_000_001},
		{5, -5, 1 << 40, -(1 << 41), 1 << 62, -(1 << 62)},
		{math.MaxInt64 - 1, math.MinInt64 + 1, 0},
		{math.MinInt64 + 1, math.MaxInt64 - 1},
		{0, -1, -2, -1000, math.MinInt64 + 1, 7},
		{math.MaxInt64, math.MinInt64, 3},
	} {
		var b bins
		b.init(0, 100)
		n := uint32(0)
		for _, v := range times {
			if isTime(v) {
				b.addTime(v, 0, marks{findings: 1})
				n++
			}
		}
		sum, found := uint32(0), uint32(0)
		for i := range Bins {
			sum += b.time.kinds[0][i]
			found += b.time.findings[i]
		}
		if sum != n || found != n {
			t.Errorf("%v: %d of %d in bins, %d findings", times, sum, n, found)
		}
		for _, v := range times {
			if v == math.MaxInt64 || v == math.MinInt64 {
				continue
			}
			i := (uint64(v) - uint64(b.from)) / b.step
			if v < b.from || i >= Bins || b.time.kinds[0][i] == 0 {
				t.Errorf("%v: %d is in no bin from %d by %d", times, v, b.from, b.step)
			}
		}
	}
}

// axes is what the page reads of the timeline.
type axes struct {
	Bytes, Time, Arrival struct {
		From, Step     string
		Kinds          [][]uint32
		Findings, Gaps []uint32
		Places         []*string
	}
}

func (x *Index) axes(t *testing.T) (a axes) {
	t.Helper()
	if err := json.Unmarshal(x.AppendBins(nil), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAxes: every row is on each axis where it is, and so are its marks.
func TestAxes(t *testing.T) {
	b := fixture(t, "crafted/gap.stream")
	plain := indexed(t, b)
	list := rows(t, plain, b, all(plain)...)
	var steps []Step
	for i, r := range list {
		// The first row came at a time that isn't known, then two in each bin.
		steps = append(steps, Step{r.Offset, (i-1+2)/2 - 1})
	}
	steps[0].Bin = -1
	places := []int64{0, list[len(list)-1].Offset, int64(len(b))}
	ix := New(dendro.Protocol{}, wire.Downstream, []Run{{End: int64(len(b))}})
	ix.Axes(places, steps)
	drive(ix.First(), b)
	a := ix.axes(t)
	want := make([]uint32, Bins)
	gaps := make([]uint32, Bins)
	for i, r := range list {
		if i == 0 {
			continue
		}
		want[steps[i].Bin]++
		for _, f := range plain.findings {
			if f.number == r.Row && f.Kind == dendro.KindGap {
				gaps[steps[i].Bin]++
			}
		}
	}
	got := make([]uint32, Bins)
	for _, k := range a.Arrival.Kinds {
		for i, n := range k {
			got[i] += n
		}
	}
	sum := func(c []uint32) (n uint32) {
		for _, v := range c {
			n += v
		}
		return n
	}
	if !slices.Equal(got, want) || !slices.Equal(a.Arrival.Gaps, gaps) || sum(gaps) == 0 {
		t.Errorf("arrival %v, want %v; gaps %v, want %v", got, want, a.Arrival.Gaps, gaps)
	}
	for name, s := range map[string][]uint32{"bytes": a.Bytes.Gaps, "time": a.Time.Gaps} {
		if sum(s) != sum(gaps) {
			t.Errorf("%s: %d gaps, want %d", name, sum(s), sum(gaps))
		}
	}
	if n := uint32(plain.nFindings); sum(a.Bytes.Findings) != n || sum(a.Time.Findings) != n {
		t.Errorf("%d and %d findings, want %d", sum(a.Bytes.Findings), sum(a.Time.Findings), n)
	}
	var first string
	for _, r := range list {
		if first == "" {
			first = r.Time
		}
	}
	p := a.Time.Places
	if len(p) != 3 || p[0] == nil || *p[0] != first || p[2] != nil {
		t.Errorf("places %v, want the first at %s and the last nowhere", p, first)
	}
}

func TestAxesPacked(t *testing.T) {
	config := func(places []int64, steps ...[2]int64) []byte {
		b := packed.AppendUint(nil, uint64(len(places)))
		for _, p := range places {
			b = packed.AppendInt(b, p)
		}
		b = packed.AppendUint(b, uint64(len(steps)))
		for _, s := range steps {
			b = packed.AppendUint(packed.AppendInt(b, s[0]), uint64(s[1]))
		}
		return b
	}
	ix := New(dendro.Protocol{}, wire.Downstream, []Run{{End: 100}})
	good := config([]int64{0, 50}, [2]int64{0, 1}, [2]int64{30, 0}, [2]int64{40, Bins})
	if err := ix.AxesPacked(good); err != nil || ix.Bins.steps[1] != (Step{30, -1}) || ix.Bins.steps[2].Bin != Bins-1 {
		t.Fatal(err, ix.Bins.steps)
	}
	for i := range good {
		if err := ix.AxesPacked(good[:i]); !errors.Is(err, packed.ErrMalformed) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	for _, bad := range [][]byte{config([]int64{5, 4}), config([]int64{-1}), config([]int64{1 << 53}), config(nil, [2]int64{0, Bins + 1}),
		config(nil, [2]int64{9, 1}, [2]int64{8, 1}), append(config(nil), 0)} {
		if err := ix.AxesPacked(bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestOpenPacked(t *testing.T) {
	reg := wire.Registry{dendro.Protocol{}}
	config := func(runs ...int64) []byte {
		b := packed.AppendString(nil, "dendro")
		b = packed.AppendUint(b, 1)
		b = packed.AppendUint(b, uint64(len(runs)/2))
		for i := 0; i < len(runs); i += 2 {
			for _, v := range []int64{runs[i], runs[i+1], 0, 0} {
				b = packed.AppendInt(b, v)
			}
			b = packed.AppendContext(b, nil)
		}
		return b
	}
	good := config(0, 100, 200, 300)
	ix, err := OpenPacked(reg, good)
	if err != nil || len(ix.Runs) != 2 || ix.Runs[1].Start != 200 {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := OpenPacked(reg, good[:i]); !errors.Is(err, packed.ErrMalformed) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	for _, bad := range [][]byte{config(), config(100, 0), config(0, 100, 50, 200), config(-1, 5), config(0, 1<<53), append(config(0, 1), 0)} {
		if _, err := OpenPacked(reg, bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// FuzzWalk: any bytes end, in rows that tile them, for any size of pieces.
func FuzzWalk(f *testing.F) {
	for _, name := range []string{"crafted/gap.stream", "crafted/unknown-kind.stream", "crafted/len-0.stream", "crafted/bad-utf8.stream"} {
		f.Add(fixture(f, name), uint16(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		if len(b) == 0 {
			return
		}
		ix := New(dendro.Protocol{}, wire.DirectionUnknown, []Run{{End: int64(len(b)), ZerosFrom: zerosFrom(b)}})
		p := ix.First()
		for steps := 0; !p.Done(); steps++ {
			pos, n := p.Need()
			p.Feed(b[pos:min(int64(len(b)), pos+max(n, int64(piece)))])
			if steps > 4*len(b)+16 {
				t.Fatal("the walk does not end")
			}
		}
		end := int64(0)
		for _, r := range rows(t, ix, b, all(ix)...) {
			if r.Offset != end || r.Size <= 0 {
				t.Fatalf("row %d at %d, %d bytes, after %d", r.Row, r.Offset, r.Size, end)
			}
			end += r.Size
		}
		if end != int64(len(b)) {
			t.Fatalf("rows end at %d of %d", end, len(b))
		}
	})
}
