package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

// record writes streams, one connection each, into a capture directory, in
// files of at most rotate bytes. They arrived one after the other, the first of
// them as number first.
func record(t testing.TB, dir string, rotate int64, first int, conns ...[]byte) {
	t.Helper()
	d, err := capture.Create(dir, capture.Options{RotateBytes: rotate, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range conns {
		w, err := d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "auto"})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(b); {
			n := min(len(b)-at, 1+(at*7919+first+i)%4096)
			at0 := int64(first+i)*1e12 + int64(at)*1000
			if _, err := w.Write(b[at:at+n], capture.Instant{Wall: 1_700_000_000_000_000_000 + at0, Mono: at0}); err != nil {
				t.Fatal(err)
			}
			at += n
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever the order, number and splitting of the inputs, the same set of
// connections gives the same archive; and replaying twice changes nothing.
func TestMergeIsOrderFree(t *testing.T) {
	seed := uint64(20261129)
	rounds := 12
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		seed, rounds = rand.Uint64(), 400
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	base := [][]byte{}
	for _, n := range []string{"reconnect/c1", "reconnect/c2", "real/live", "real/small"} {
		base = append(base, must(os.ReadFile(stream(n))))
	}
	for round := range rounds {
		// Connections cut, repeated, overlapped, and with a frame that differs.
		var conns [][]byte
		for range 1 + rng.IntN(4) {
			b := slices.Clone(base[rng.IntN(len(base))])
			ends := frameEnds(b)
			switch rng.IntN(5) {
			case 0:
				b = b[:ends[rng.IntN(len(ends))]]
			case 1:
				b = b[:14+rng.IntN(len(b)-14)]
			case 2: // a frame is missing
				i := 1 + rng.IntN(len(ends)-1)
				b = slices.Delete(b, ends[i-1], ends[i])
			case 3:
				b = alter(b, rng)
			}
			conns = append(conns, b)
		}
		var want *dumped
		var wantCounts ReportCounts
		for try := range 4 {
			dir := t.TempDir()
			var in []string
			switch {
			case try < 2:
				// One directory, files of some size, given one by one in any order.
				rotate := []int64{0, 3000, 20_000}[rng.IntN(3)]
				record(t, filepath.Join(dir, "rec"), rotate, 0, conns...)
				in = must(filepath.Glob(filepath.Join(dir, "rec", "*.cap")))
				if try == 1 {
					in = []string{filepath.Join(dir, "rec")}
				}
			default:
				// Each connection from a site of its own.
				for i, c := range conns {
					site := filepath.Join(dir, fmt.Sprint("site", i))
					record(t, site, 9000, i, c)
					in = append(in, site)
				}
			}
			rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			r, d := mustBuild(t, Options{Check: segment.DepthRows}, in...)
			if want == nil {
				want, wantCounts = d, r.Counts
				continue
			}
			if try < 2 {
				if diff := cmp.Diff(wantCounts, r.Counts); diff != "" {
					t.Fatalf("round %d, try %d: counts (-first +this):\n%s", round, try, diff)
				}
			}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Fatalf("round %d, try %d: archive (-first +this):\n%s", round, try, diff)
			}
		}
	}
}

// frameEnds are the offsets at which frames end.
func frameEnds(b []byte) []int {
	var ends []int
	for n := range boundaries(b) {
		if n <= len(b) {
			ends = append(ends, n)
		}
	}
	slices.Sort(ends)
	return ends
}

// alter changes the last byte of one Rows frame: a row of other bytes.
func alter(b []byte, rng *rand.Rand) []byte {
	ends := frameEnds(b)
	for range 100 {
		i := rng.IntN(len(ends) - 1)
		if b[ends[i]+4] == dendro.KindRows && ends[i+1]-ends[i] > 60 {
			b[ends[i+1]-1] ^= 0x55
			return b
		}
	}
	return b
}

// Of two rows that differ the one of the newest connection stays, and the other
// is set aside with its bytes; the newest is found by what the connections
// carry, not by the order in which they are given.
func TestConflictingRows(t *testing.T) {
	newer := must(os.ReadFile(stream("real/live")))
	ends := frameEnds(newer)
	// The older one ends half way, with one row that differs.
	older := slices.Clone(newer[:ends[len(ends)/2]])
	cut := frameEnds(older)
	changed := false
	for i := len(cut) - 2; i > 0 && !changed; i-- {
		if older[cut[i]+4] == dendro.KindRows && cut[i+1]-cut[i] > 60 {
			older[cut[i+1]-1] ^= 0xff
			changed = true
		}
	}
	if !changed {
		t.Fatal("no row to change")
	}
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.stream"), filepath.Join(dir, "b.stream")
	write(t, a, older)
	write(t, b, newer)
	want := golden(t, "dump/real/live")
	for _, in := range [][]string{{a, b}, {b, a}} {
		r, path, err := build(t, Options{Check: segment.DepthRows}, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, dump(t, path)); diff != "" {
			t.Errorf("archive (-newest +ours):\n%s", diff)
		}
		if r.Counts.RowsConflicting != 1 || r.Verdict != Findings {
			t.Errorf("%d conflicts, verdict %s", r.Counts.RowsConflicting, r.Verdict)
		}
		lines := must(os.ReadFile(filepath.Join(path+quarantineSuffix, rowsFile)))
		var row struct {
			asideRow
			Row string `json:"row_base64"`
		}
		if err := json.Unmarshal(lines, &row); err != nil || row.Kind != "row-conflict" || row.Connection != "a.stream" || row.Row == "" {
			t.Errorf("set aside: %s, %v", lines, err)
		}
	}
}

// Without a uuid each connection is a source of its own, also where two begin
// alike; the same connection given twice, or cut, is one; and a second run gives
// the same minted uuids.
func TestNoUUID(t *testing.T) {
	whole := must(os.ReadFile(stream("crafted/uuid-absent")))
	ends := frameEnds(whole)
	other := slices.Clone(whole)
	other[len(other)-1] ^= 1 // another row
	dir := t.TempDir()
	path := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		write(t, p, b)
		return p
	}
	a, cut, b := path("a", whole), path("cut", whole[:ends[len(ends)-2]]), path("b", other)
	for _, c := range []struct {
		in   []string
		want int
	}{{[]string{a}, 1}, {[]string{a, cut}, 1}, {[]string{a, b}, 2}, {[]string{b, cut, a}, 2}} {
		_, first := mustBuild(t, Options{}, c.in...)
		slices.Reverse(c.in)
		_, second := mustBuild(t, Options{}, c.in...)
		if len(first.Sources) != c.want {
			t.Errorf("%q: %d sources, want %d", c.in, len(first.Sources), c.want)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%q: a second run differs:\n%s", c.in, diff)
		}
	}
}
