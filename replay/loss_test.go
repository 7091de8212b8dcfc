package replay

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// TestCutHeldAgainstOthers: a connection that is cut in any frame has lost
// nothing where another one brings that frame, and is never said to have lost
// nothing where the other one lacks it.
func TestCutHeldAgainstOthers(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	ends := frameEnds(b)
	dir := t.TempDir()
	cutAt, other := filepath.Join(dir, "cut.stream"), filepath.Join(dir, "other.stream")
	shake := b[dendro.PreambleSize:ends[1]]
	// The same Handshake once more: this connection does not begin with the
	// bytes of the one that is cut.
	again := slices.Concat(b[:dendro.PreambleSize], shake, b[dendro.PreambleSize:])
	write(t, other, again)
	states := map[string]map[LossState]int{}
	for i := 1; i < len(ends); i++ {
		from, to := ends[i-1], ends[i]
		kind := dendro.KindName(uint32(b[from+dendro.LenSize]))
		if states[kind] == nil {
			states[kind] = map[LossState]int{}
		}
		for _, n := range []int{(to - from) / 2, to - from - 1} {
			write(t, cutAt, b[:from+n])
			r, _ := mustBuild(t, Options{}, cutAt, other)
			if i == 1 {
				continue // no source was introduced on it
			}
			if r.Losses.Found != 1 {
				t.Fatalf("frame %d, a %s, cut after %d bytes: %+v", i, kind, n, r.Losses)
			}
			l := r.Source[0].Losses[0]
			states[kind][l.State]++
			if l.Frame != kind || l.Healed != (l.State == LossMadeGood) {
				t.Errorf("frame %d, a %s, cut after %d bytes: %+v", i, kind, n, l)
			}
			if n == to-from-1 && l.State == LossUnknown {
				t.Errorf("frame %d, a %s, but for its last byte: %s", i, kind, l.text())
			}
			if l.State == LossMissing {
				t.Errorf("frame %d, a %s, cut after %d bytes and there on the other connection: %s", i, kind, n, l.text())
			}
			if healed := r.Verdict == Clean && r.ExitCode() == 0 && r.MadeGood[wire.KindCut] == 1; healed != l.Healed {
				t.Errorf("frame %d: verdict %s, %+v, for %s", i, r.Verdict, r.MadeGood, l.State)
			}
		}
	}
	for kind, m := range states {
		if kind != "Handshake" && m[LossMadeGood] == 0 {
			t.Errorf("no %s frame was found on the other connection: %v", kind, m)
		}
	}

	// The other connection without that frame.
	for i := 3; i < len(ends); i++ {
		from, to := ends[i-1], ends[i]
		kind := uint32(b[from+dendro.LenSize])
		if kind != dendro.KindSegment && kind != dendro.KindRows {
			continue
		}
		at := len(shake)
		lacking := slices.Concat(again[:at+from], again[at+to:])
		write(t, other, lacking)
		write(t, cutAt, b[:to-1])
		r, _ := mustBuild(t, Options{}, cutAt, other)
		p := dendro.Fragment(b[from:to], 0)
		for _, l := range r.Source[0].Losses {
			if l.Kind == wire.KindCut && l.Healed && !empty(p) && !sealed(t, b, p) {
				t.Errorf("frame %d is in neither: %s", i, l.text())
			}
		}
	}
}

func empty(p dendro.Partial) bool { return p.Kind == dendro.KindRows && p.Count == 0 }

// sealed says that all rows of a frame are in Segments of the stream as well.
func sealed(t *testing.T, b []byte, p dendro.Partial) bool {
	for row := range p.Rows.All() {
		in := false
		ends := frameEnds(b)
		for i := 1; i < len(ends); i++ {
			s := dendro.Fragment(b[ends[i-1]:ends[i]], 0)
			in = in || s.Kind == dendro.KindSegment && bytes.Equal(s.Stream, row.Stream) && s.First <= row.TS && row.TS <= s.Last
		}
		if !in {
			return false
		}
	}
	return p.Kind == dendro.KindRows
}

// TestLossesLookDifferent: what is missing, what was made good and what can't be
// told are said in other words, and a cure is promised for the first alone.
func TestLossesLookDifferent(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	ends := frameEnds(b)
	seg := slices.IndexFunc(ends, func(e int) bool { return b[e+dendro.LenSize] == dendro.KindSegment })
	dir := t.TempDir()
	cut, short := filepath.Join(dir, "cut.stream"), filepath.Join(dir, "short.stream")
	write(t, cut, b[:ends[seg+1]-100])
	write(t, short, b[:ends[seg]+2])
	const cure = "closes it"
	for _, c := range []struct {
		paths   []string
		exit    int
		head    string
		state   LossState
		promise bool
	}{
		{[]string{cut}, 3, "rebuilt, with 1 loss not made good", LossMissing, true},
		{[]string{short}, 3, "rebuilt, with 1 loss of which it can't be told what is missing", LossUnknown, false},
		{[]string{cut, stream("real/small")}, 0, "rebuilt whole, all losses made good by other captured data", LossMadeGood, false},
		{[]string{short, stream("real/small")}, 0, "rebuilt whole, all losses made good by other captured data", LossMadeGood, false},
	} {
		r, _ := mustBuild(t, Options{}, c.paths...)
		var text strings.Builder
		if err := r.Text(&text, "OUT"); err != nil {
			t.Fatal(err)
		}
		got := text.String()
		head, _, _ := strings.Cut(got, "\n")
		if r.ExitCode() != c.exit || head != "OUT: "+c.head || r.Source[0].Losses[0].State != c.state ||
			strings.Contains(got, cure) != c.promise || strings.Contains(got, "partial frame is lost") != (c.exit != 0) {
			t.Errorf("exit code %d, %+v\n%s", r.ExitCode(), r.Losses, got)
		}
	}
}

// TestLossHasThePlaceOfItsFinding: files that are missing are one thing, at one
// place, as a finding and as a loss, also where the archive is added to.
func TestLossHasThePlaceOfItsFinding(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, 50_000, 1, must(os.ReadFile(stream("real/small"))))
	files := must(filepath.Glob(filepath.Join(dir, "*.00000003.*")))
	if len(files) == 0 {
		t.Fatal("there is no third file")
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := mustBuild(t, Options{}, dir)
	added := update(t, filepath.Join(t.TempDir(), "out.dendro"), dir)
	for _, r := range []*Report{r, added} {
		at := int64(-1)
		for _, f := range r.Findings {
			if f.Kind == capture.KindMissingFiles {
				at = f.Offset
			}
		}
		if l := r.Source[0].Losses; len(l) == 0 || l[0].Kind != capture.KindMissingFiles || l[0].Offset != at || at <= 0 {
			t.Errorf("finding at %d, losses %+v", at, l)
		}
	}
}

// TestUpdateMakesLossesGood: what an earlier run missed is made good by what a
// later one brings, and the exit code says so.
func TestUpdateMakesLossesGood(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	cut := filepath.Join(t.TempDir(), "cut.stream")
	write(t, cut, b[:190000])
	out := filepath.Join(t.TempDir(), "out.dendro")
	first := update(t, out, cut)
	if first.ExitCode() != 3 || first.Losses.Missing != 1 {
		t.Errorf("alone: exit code %d, %+v", first.ExitCode(), first.Losses)
	}
	for range 2 {
		r := update(t, out, cut, stream("real/small"))
		if r.ExitCode() != 0 || r.Losses != (Losses{Found: 1, MadeGood: 1}) || r.MadeGood[wire.KindCut] != 1 {
			t.Errorf("with the other: exit code %d, %+v, %v of %v", r.ExitCode(), r.Losses, r.MadeGood, r.FindingsByKind)
		}
	}
}

// TestSkippedRowsHeldAgainstTheArchive: rows that were skipped are made good just
// when every one of them is there otherwise; a frame without rows loses nothing.
func TestSkippedRowsHeldAgainstTheArchive(t *testing.T) {
	b := must(os.ReadFile(stream("real/live")))
	ends := frameEnds(b)
	full := slices.IndexFunc(ends, func(e int) bool { return b[e+dendro.LenSize] == dendro.KindIndex })
	lacking := slices.Concat(b[:ends[full]], b[ends[full+1]:])
	dir := t.TempDir()
	skips, other := filepath.Join(dir, "skips.stream"), filepath.Join(dir, "other.stream")
	write(t, skips, lacking)

	r, _ := mustBuild(t, Options{}, skips)
	if r.ExitCode() != 3 || r.Losses.Found == 0 || r.Losses.Missing != r.Losses.Found {
		t.Fatalf("alone: exit code %d, %+v", r.ExitCode(), r.Losses)
	}
	losses := func(r *Report) (ls []Loss) {
		for _, src := range r.Source {
			ls = append(ls, src.Losses...)
		}
		return ls
	}
	for _, l := range losses(r) {
		if l.Rows == 0 {
			t.Errorf("a frame without rows is a loss: %s", l.text())
		}
	}
	found := r.Losses.Found

	for _, build := range []func() *Report{
		func() *Report { r, _ := mustBuild(t, Options{}, skips, stream("real/live")); return r },
		func() *Report { return update(t, filepath.Join(t.TempDir(), "a.dendro"), skips, stream("real/live")) },
	} {
		r := build()
		var text strings.Builder
		if err := r.Text(&text, "OUT"); err != nil {
			t.Fatal(err)
		}
		if r.ExitCode() != 0 || r.Losses != (Losses{Found: found, MadeGood: found}) || strings.Contains(text.String(), "closes it") {
			t.Errorf("with all of it: exit code %d, %+v\n%s", r.ExitCode(), r.Losses, text.String())
		}
	}

	// The other one lacks one Rows frame that was skipped here, and no more.
	at := int(losses(r)[found/2].Offset) + ends[full+1] - ends[full]
	i := slices.Index(ends, at)
	if i < 0 || b[at+dendro.LenSize] != dendro.KindRows {
		t.Fatalf("no Rows frame at %d", at)
	}
	write(t, other, slices.Concat(b[:at], b[ends[i+1]:]))
	r, _ = mustBuild(t, Options{}, skips, other)
	missing := 0
	for _, l := range losses(r) {
		if l.Kind == dendro.KindRowsSkipped && l.State != LossMadeGood {
			missing++
		}
	}
	if missing != 1 || r.ExitCode() != 3 {
		t.Errorf("with all but one frame: %d of %d missing, exit code %d", missing, found, r.ExitCode())
	}
}

// TestSkippedRowsAreBounded: of rows beyond what is held it can't be told whether
// they are there.
func TestSkippedRowsAreBounded(t *testing.T) {
	b := must(os.ReadFile(stream("real/live")))
	var names interned
	var p part
	p.conn = &connection{Connection: &capture.Connection{ID: "c"}}
	g := &registry{skipped: maxSkippedBytes - 1}
	ends := frameEnds(b)
	for i := 1; i < len(ends); i++ {
		if b[ends[i-1]+dendro.LenSize] != dendro.KindRows {
			continue
		}
		x := dendro.Fragment(b[ends[i-1]:ends[i]], 0)
		g.skip(&p, &x.Rows, int64(ends[i-1]), &names)
	}
	if len(p.losses) == 0 {
		t.Fatal("no loss")
	}
	for _, l := range p.losses {
		state, err := (&builder{}).fragmentHeld(nil, 0, &p, &l)
		if err != nil || state != LossUnknown || l.Rows == 0 || len(l.frag.rows) > 0 {
			t.Errorf("%s: %s, %v", l.text(), state, err)
		}
	}
}

// TestCutWhereStillRecording: a capture that ends inside a frame since its
// recorder is at work lacks that frame, and no other site is advised for it;
// once the recorder is done the same bytes are cut.
func TestCutWhereStillRecording(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	b = b[:len(b)-10]
	dir := t.TempDir()
	d, err := capture.Create(dir, capture.Options{RotateBytes: 100_000, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b, capture.Instant{Wall: 1_700_000_000e9, Mono: 1e9}); err != nil {
		t.Fatal(err)
	}
	check := func(r *Report, recording bool) {
		t.Helper()
		var text strings.Builder
		if err := r.Text(&text, "OUT"); err != nil {
			t.Fatal(err)
		}
		got := text.String()
		if r.ExitCode() != 3 || r.Losses.Found != 1 || r.Source[0].Losses[0].Recording != recording ||
			strings.Contains(got, "still being recorded: the rest of this frame") != recording ||
			strings.Contains(got, "loss at the end of what is still being recorded") != recording ||
			strings.Contains(got, "partial frame is lost") == recording || recording && strings.Contains(got, "closes it") {
			t.Errorf("exit code %d, %+v\n%s", r.ExitCode(), r.Losses, got)
		}
	}
	r, _ := mustBuild(t, Options{}, dir)
	check(r, true)
	out := filepath.Join(t.TempDir(), "a.dendro")
	if r := update(t, out, dir); r.ExitCode() != 0 || r.Losses.Found != 0 || len(r.Unchecked) != 1 {
		t.Errorf("brought up to date: exit code %d, %+v, %v", r.ExitCode(), r.Losses, r.Unchecked)
	}

	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, _ = mustBuild(t, Options{}, dir)
	check(r, false)
	check(update(t, out, dir), false)
}
