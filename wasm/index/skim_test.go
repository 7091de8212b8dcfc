package index

import (
	"bytes"
	"os"
	"testing"

	"wiretape/wasm/filter"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// unskimmed is a protocol whose decoder takes every frame by itself.
type unskimmed struct{ wire.Protocol }

func (p unskimmed) Open(c wire.Config) (wire.Decoder, error) {
	d, err := p.Protocol.Open(c)
	return struct{ wire.Decoder }{d}, err
}

// picture is all that an index tells of b.
func picture(t *testing.T, p wire.Protocol, b []byte, zeros int64) []string {
	t.Helper()
	ix := New(p, wire.Downstream, []Run{{End: int64(len(b)), ZerosFrom: zeros}})
	var places []int64
	var steps []Step
	for i := range 40 {
		at := int64(i * len(b) / 40)
		places = append(places, at)
		steps = append(steps, Step{at, i%30*7 - 1})
	}
	ix.Axes(places, steps)
	drive(ix.First(), b)
	out := []string{string(ix.AppendStatus(nil)), string(ix.AppendSources(nil)), string(ix.AppendBins(nil)),
		string(ix.AppendFindings(nil, 0, MaxFindings))}
	for _, s := range []string{"kind == Rows and size > 40", `source ~ "h1" or source == 2`, "time > 1000000 and number < 900", "finding", "stream or kind == 5", `summary ~ "seq 1"`} {
		e, wrong := filter.Parse(s, Kinds(p))
		if wrong != nil {
			t.Fatal(wrong)
		}
		h := new(Hits)
		drive(ix.FilterPass(e, h, 0), b)
		for _, n := range h.Append(nil, 0, 1<<20) {
			out = append(out, s+": "+wire.Itoa(n))
		}
		h = new(Hits)
		drive(ix.FilterPass(e, h, 3), b)
		out = append(out, "of three: "+wire.Itoa(h.Len()))
	}
	for at := int64(0); at < int64(len(b)); at += max(1, int64(len(b))/97) {
		f := ix.FindPass(at)
		drive(f, b)
		out = append(out, string(f.Close()))
		n := ix.FramePass(at)
		drive(n, b)
		out = append(out, "frame "+wire.Itoa(at)+" is row "+string(n.Close()))
		r := ix.RowsPass([]int64{at % ix.Rows})
		drive(r, b)
		out = append(out, string(r.Close()))
	}
	return out
}

func sameUnskimmed(t *testing.T, name string, b []byte, zeros int64) {
	t.Helper()
	if len(b) == 0 {
		return
	}
	got, want := picture(t, dendro.Protocol{}, b, zeros), picture(t, unskimmed{dendro.Protocol{}}, b, zeros)
	if len(got) != len(want) {
		t.Fatalf("%s: %d answers skimmed, %d frame by frame", name, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s, answer %d: skimmed\n%s\nframe by frame\n%s", name, i, got[i], want[i])
		}
	}
}

// TestSkimmed holds the walk that moves over many frames at a time against the
// one that takes each by itself, over fixtures and damaged streams.
func TestSkimmed(t *testing.T) {
	for _, name := range fixtures(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sameUnskimmed(t, name, b, zerosFrom(b))
	}
	b := smallFrames(3000)
	sameUnskimmed(t, "small frames", b, 0)
	step := 4001
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		step = 101
	}
	for i := 14; i < len(b); i += step {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		sameUnskimmed(t, "flip at "+wire.Itoa(int64(i)), c, zerosFrom(c))
		sameUnskimmed(t, "cut at "+wire.Itoa(int64(i)), b[:i], zerosFrom(b[:i]))
		clear(c[i : i+min(40, len(c)-i)])
		sameUnskimmed(t, "zeros at "+wire.Itoa(int64(i)), c, zerosFrom(c))
	}
}
