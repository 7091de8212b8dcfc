package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/internal/vfs"
	"wiretape/replay/archive"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// without gives a copy of a capture directory that lacks what the patterns name.
func without(t *testing.T, dir string, patterns ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "rec")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, p := range patterns {
		names := must(filepath.Glob(filepath.Join(to, p)))
		if len(names) == 0 {
			t.Fatalf("nothing is named %s", p)
		}
		for _, n := range names {
			if err := os.Remove(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// recorded is a capture of a stream in several files, and how many these are.
func recorded(t *testing.T, b []byte, rotate int64) (dir string, files int) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "rec")
	record(t, dir, rotate, 1, b)
	return dir, len(must(filepath.Glob(filepath.Join(dir, "*.cap"))))
}

// numbered names the files of a number, those beside them too.
func numbered(n int) string { return fmt.Sprintf("*.%08d.*", n) }

// prunes notes in the journal that retention deleted a file.
func prunes(t *testing.T, dir string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		names := must(filepath.Glob(filepath.Join(dir, fmt.Sprintf("*.%08d.cap", n))))
		if err := capture.Append(vfs.OS, dir, true, capture.Entry{Event: capture.EventPrune, File: filepath.Base(names[0])}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMissingBytesAreLosses: whatever bytes of a connection are not here are a
// loss, at the place of its finding, and are made good by a whole capture of the
// same stream alone; so says a rebuild, and an archive that is added to.
func TestMissingBytesAreLosses(t *testing.T) {
	whole := stream("real/small")
	b := must(os.ReadFile(whole))
	dir, n := recorded(t, b, 64<<10)
	if n < 5 {
		t.Fatalf("%d files", n)
	}
	pruned := without(t, dir)
	prunes(t, pruned, 1, 2)
	short := without(t, dir)
	truncate := func(dir string, n int, by int64) {
		t.Helper()
		name := must(filepath.Glob(filepath.Join(dir, fmt.Sprintf("*.%08d.cap", n))))[0]
		if err := os.Truncate(name, must(os.Stat(name)).Size()-by); err != nil {
			t.Fatal(err)
		}
	}
	truncate(short, 2, 1000)
	shortEnd := without(t, dir)
	truncate(shortEnd, n, 100)
	for name, c := range map[string]struct {
		dir  string
		kind string
	}{
		"head":               {without(t, dir, numbered(1), numbered(2)), capture.KindMissingFiles},
		"first file":         {without(t, dir, numbered(1)), capture.KindMissingFiles},
		"head, no journal":   {without(t, dir, numbered(1), numbered(2), "journal.jsonl"), capture.KindMissingFiles},
		"pruned head":        {without(t, pruned, numbered(1), numbered(2)), capture.KindPruned},
		"middle":             {without(t, dir, numbered(3)), capture.KindMissingFiles},
		"middle, no journal": {without(t, dir, numbered(3), "journal.jsonl"), capture.KindMissingFiles},
		"tail":               {without(t, dir, numbered(n)), capture.KindNoEnd},
		"tail, no journal":   {without(t, dir, numbered(n), "journal.jsonl"), capture.KindNoEnd},
		"tail, its sidecar":  {without(t, dir, fmt.Sprintf("*.%08d.cap", n)), capture.KindMissingFiles},
		"short":              {short, capture.KindShortFile},
		"short at the end":   {shortEnd, capture.KindShortFile},
		"all":                {without(t, dir, "*.cap", "*.json", "*.idx", "*.sha256"), capture.KindMissingConnection},
		"all but a sidecar":  {without(t, dir, "*.cap", "*.idx", "*.sha256"), capture.KindMissingFiles},
	} {
		t.Run(name, func(t *testing.T) {
			others := map[string][]string{"with the whole": {whole}}
			if name != "all" && name != "all but a sidecar" {
				others["alone"] = nil
			} else {
				others["alone"] = []string{stream("real/live")} // of another source
			}
			for what, other := range others {
				in := append([]string{c.dir}, other...)
				r, _ := mustBuild(t, Options{}, in...)
				added := update(t, filepath.Join(t.TempDir(), "out.dendro"), in...)
				for how, r := range map[string]*Report{"build": r, "update": added} {
					losses := slices.Clone(r.Nobodys)
					for _, s := range r.Source {
						losses = append(losses, s.Losses...)
					}
					i := slices.IndexFunc(losses, func(l Loss) bool { return l.Kind == c.kind })
					j := slices.IndexFunc(r.Findings, func(f wire.Finding) bool { return f.Kind == c.kind })
					if i < 0 || j < 0 || losses[i].Offset != r.Findings[j].Offset || losses[i].Connection != r.Findings[j].Connection {
						t.Fatalf("%s, %s: losses %+v, findings %+v", what, how, losses, r.Findings)
					}
					exit, made := 3, int64(0)
					if what != "alone" {
						exit, made = 0, r.Losses.Found
					}
					if r.ExitCode() != exit || r.Losses.Found == 0 || r.Losses.MadeGood != made {
						t.Errorf("%s, %s: exit code %d, %+v\n%s", what, how, r.ExitCode(), r.Losses, r.JSON())
					}
					for _, s := range r.Source {
						if s.Complete && what == "alone" && len(s.Losses) > 0 {
							t.Errorf("%s, %s: complete, with losses", what, how)
						}
					}
				}
			}
		})
	}
}

// TestHolesAreProved: a hole is not made good where the other connection has
// other bytes beside it or in it, ends before it, or may be another one that
// only began alike.
func TestHolesAreProved(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	dir, n := recorded(t, b, 64<<10)
	ends := frameEnds(b)
	starts := []int{0}
	for i := 1; i <= n; i++ {
		name := must(filepath.Glob(filepath.Join(dir, fmt.Sprintf("*.%08d.cap", i))))[0]
		starts = append(starts, starts[i-1]+int(must(os.Stat(name)).Size()))
	}
	// flipped is the stream with one byte of the payload at an offset changed.
	flipped := func(at int) []byte {
		x := bytes.Clone(b)
		x[at+200] ^= 1
		return x
	}
	at := func(i int) int { return starts[i-1] } // of file i
	for name, c := range map[string]struct {
		dir   string
		other []byte
	}{
		"other bytes in the hole, by the journal":         {without(t, dir, numbered(2), numbered(3)), flipped(at(3))},
		"other bytes in the hole, by the next sidecar":    {without(t, dir, numbered(3), "journal.jsonl"), flipped(at(3))},
		"other bytes in the missing head":                 {without(t, dir, numbered(1), "journal.jsonl"), flipped(at(1) + 1000)},
		"other bytes in the tail, by the journal":         {without(t, dir, numbered(n)), flipped(at(n))},
		"other bytes before the hole":                     {without(t, dir, numbered(3), "journal.jsonl"), flipped(at(2))},
		"other bytes behind the hole":                     {without(t, dir, numbered(3), "journal.jsonl"), flipped(at(4))},
		"other bytes behind the missing head":             {without(t, dir, numbered(1), numbered(2), "journal.jsonl"), flipped(at(3))},
		"ends in the hole":                                {without(t, dir, numbered(3), "journal.jsonl"), b[:ends[slices.Index(ends, at(4))-1]]},
		"ends with the hole":                              {without(t, dir, numbered(2), numbered(3), "journal.jsonl"), b[:at(4)]},
		"ends in the tail, by the journal":                {without(t, dir, numbered(n)), b[:ends[len(ends)-2]]},
		"cut in the tail":                                 {without(t, dir, numbered(n), "journal.jsonl"), b[:len(b)-3]},
		"sealed data alone, as each connection has first": {without(t, dir, numbered(2), numbered(3), numbered(4), numbered(5), "journal.jsonl"), b},
	} {
		if name == "sealed data alone, as each connection has first" && n != 5 {
			t.Fatalf("%d files", n)
		}
		other := filepath.Join(t.TempDir(), "other.stream")
		write(t, other, c.other)
		r, _ := mustBuild(t, Options{}, c.dir, other)
		var kind LossState
		for _, s := range r.Source {
			for _, l := range s.Losses {
				if isHole(l.Kind) {
					kind = l.State
				}
			}
		}
		if kind != LossUnknown || r.ExitCode() != 3 {
			t.Errorf("%s: exit code %d, the hole is %q: %s", name, r.ExitCode(), kind, r.JSON())
		}
	}
	// Two captures that lack different files make each other good.
	other, _ := recorded(t, b, 30_000)
	r, d := mustBuild(t, Options{}, without(t, dir, numbered(3)), without(t, other, numbered(1)))
	if r.ExitCode() != 0 || r.Losses != (Losses{Found: 2, MadeGood: 2}) {
		t.Errorf("two that complete each other: exit code %d, %+v", r.ExitCode(), r.Losses)
	}
	_, want := mustBuild(t, Options{}, stream("real/small"))
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("archive of the two (-whole +two):\n%s", diff)
	}
}

// TestUpdateFillsHoles: what an earlier run lacked is applied when it is here,
// with or without the rest of what was applied before; and what an earlier run
// applied is no loss where it was pruned since.
func TestUpdateFillsHoles(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	dir, n := recorded(t, b, 64<<10)
	_, want := mustBuild(t, Options{}, stream("real/small"))
	for name, lacks := range map[string]string{"head": numbered(1), "middle": numbered(3), "tail": numbered(n)} {
		for _, other := range []bool{false, true} {
			out := filepath.Join(t.TempDir(), "out.dendro")
			in := []string{without(t, dir, lacks)}
			if other {
				// A connection of another source, which later runs are not given:
				// the archive can't be made anew from their inputs.
				in = append(in, stream("telemetry/small"))
			}
			if r := update(t, out, in...); r.ExitCode() != 3 || r.Losses.Unknown != 1 {
				t.Errorf("%s, the first run: exit code %d, %+v", name, r.ExitCode(), r.Losses)
			}
			for again := range 2 {
				r := update(t, out, dir)
				// What can't come behind what is stored is set aside, and told.
				told := other && name != "tail" && r.FindingsByKind[archive.KindSegmentConflict] > 0
				if (r.ExitCode() != 0) != told || r.Losses.Found != 0 {
					t.Errorf("%s, run %d: exit code %d, %+v, %v", name, again+2, r.ExitCode(), r.Losses, r.Findings)
				}
			}
			if diff := cmp.Diff(want, dump(t, out)); diff != "" && !other {
				t.Errorf("%s: archive (-whole +ours):\n%s", name, diff)
			}
			// Pruned, and then not here: it was applied.
			pruned := without(t, dir)
			prunes(t, pruned, 1, 2)
			r := update(t, out, without(t, pruned, numbered(1), numbered(2)))
			if n := r.New; n == nil || *n != (ReportCounts{}) {
				t.Errorf("%s, pruned since: new %+v", name, n)
			}
			if r.MadeGood[capture.KindPruned] != 1 || r.Losses != (Losses{Found: 1, MadeGood: 1}) {
				t.Errorf("%s, pruned since: exit code %d, %+v, %v", name, r.ExitCode(), r.Losses, r.Findings)
			}
		}
	}
	// What an earlier run lacked is not taken for applied.
	out := filepath.Join(t.TempDir(), "out.dendro")
	for range 3 {
		if r := update(t, out, without(t, dir, numbered(2))); r.ExitCode() != 3 || r.Losses != (Losses{Found: 1, Unknown: 1}) {
			t.Errorf("missing each time: exit code %d, %+v", r.ExitCode(), r.Losses)
		}
	}
}

// TestExitCodeOfHoles: of captures of one stream that lack files, or end early,
// exit code 0 says that the archive is the whole stream's.
func TestExitCodeOfHoles(t *testing.T) {
	seed, rounds := uint64(20261130), 40
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		seed, rounds = rand.Uint64(), 300
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	said := map[int]int{}
	for round := range rounds {
		name := []string{"real/small", "real/live", "reconnect/c2", "telemetry/small"}[rng.IntN(4)]
		b := must(os.ReadFile(stream(name)))
		ends := frameEnds(b)
		_, want := mustBuild(t, Options{}, stream(name))
		var in []string
		cut, endless := false, false
		for range 1 + rng.IntN(3) {
			if rng.IntN(4) == 0 {
				path := filepath.Join(t.TempDir(), fmt.Sprint(len(in), ".stream"))
				n := len(b)
				if rng.IntN(3) > 0 {
					n = ends[len(ends)/2+rng.IntN(len(ends)/2)]
					cut = true
				}
				write(t, path, b[:n])
				in = append(in, path)
				continue
			}
			dir, n := recorded(t, b, int64(len(b)/(2+rng.IntN(6))))
			var lacks []string
			for i := range n {
				if rng.IntN(3) == 0 && len(lacks) < n-1 {
					lacks = append(lacks, numbered(i+1))
				}
			}
			if rng.IntN(3) == 0 {
				endless = endless || slices.Contains(lacks, numbered(n))
				lacks = append(lacks, "journal.jsonl")
			}
			in = append(in, without(t, dir, lacks...))
		}
		raw := !slices.ContainsFunc(in, func(p string) bool { return filepath.Ext(p) != ".stream" })
		// Of a raw stream that ends between two frames nobody knows that it did,
		// unless a journal says how long the connection was.
		raw = raw || cut && endless
		r, d := mustBuild(t, Options{}, in...)
		code := r.ExitCode()
		said[code]++
		if diff := cmp.Diff(want, d); code == 0 && diff != "" && !raw {
			t.Errorf("round %d, %s: exit code 0, %+v, archive (-whole +ours):\n%s", round, name, r.Losses, diff)
		}
		if open := r.Losses.Missing + r.Losses.Unknown; (code == 0) != (open == 0) {
			t.Errorf("round %d, %s: exit code %d, %+v, %v", round, name, code, r.Losses, r.FindingsByKind)
		}
	}
	if said[0] < rounds/10 || said[3] < rounds/10 {
		t.Errorf("exit codes %v", said)
	}
}

// TestTransportCut: what the transport says was cut behind the last frame is a
// loss, and one that a whole capture of the same connection makes good.
func TestTransportCut(t *testing.T) {
	b := must(os.ReadFile(stream("real/small")))
	ends := frameEnds(b)
	at := ends[len(ends)-3]
	if bytes.Contains(b[at:], []byte("verdict")) {
		t.Fatal("the stream has the word itself")
	}
	dir, n := recorded(t, b[:at], 64<<10)
	name := must(filepath.Glob(filepath.Join(dir, fmt.Sprintf("*.%08d.json", n))))[0]
	cutTransport(t, name)
	other := filepath.Join(t.TempDir(), "other.stream")
	write(t, other, b[:at])
	for what, c := range map[string]struct {
		in   []string
		exit int
	}{
		"alone":                       {[]string{dir}, 3},
		"with another source":         {[]string{dir, stream("telemetry/small")}, 3},
		"with one that has no more":   {[]string{dir, other}, 3},
		"with one that has the bytes": {[]string{dir, stream("real/small")}, 0},
	} {
		r, _ := mustBuild(t, Options{}, c.in...)
		added := update(t, filepath.Join(t.TempDir(), "out.dendro"), c.in...)
		for how, r := range map[string]*Report{"build": r, "update": added} {
			i := slices.IndexFunc(r.Findings, func(f wire.Finding) bool { return f.Kind == capture.KindTransportCut })
			if i < 0 || r.Findings[i].Offset != int64(at) || r.Losses.Found != 1 || r.ExitCode() != c.exit || (r.Losses.MadeGood == 1) != (c.exit == 0) {
				t.Errorf("%s, %s: exit code %d, %+v, %+v", what, how, r.ExitCode(), r.Losses, r.Findings)
			}
		}
	}
}

// TestCutThatTheNextConnectionCloses: what was lost where a connection ends lies
// before the first rows of the next one, and there nothing is missing where
// segments reach from the one to the other. Whatever is said to lack nothing is
// the archive of the whole stream, and where that is so it is nearly always said.
func TestCutThatTheNextConnectionCloses(t *testing.T) {
	c1, c2 := must(os.ReadFile(stream("reconnect/c1"))), must(os.ReadFile(stream("reconnect/c2")))
	// Publishers that keep segments for some time, or none.
	lacking := map[string][]byte{}
	for _, since := range []int64{0, 105, 120, 135, 150, 1000} {
		next := slices.Clone(c2[:dendro.PreambleSize])
		ends := frameEnds(c2)
		for i, at := range ends[:len(ends)-1] {
			x := dendro.Fragment(c2[at:ends[i+1]], int64(at))
			if x.Kind != dendro.KindSegment || x.Last >= int64(1_700_000_000+since)*1e9 {
				next = append(next, c2[at:ends[i+1]]...)
			}
		}
		lacking[fmt.Sprintf("since %d", since)] = next
	}
	step := 13
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		step = 1
	}
	said, unsaid := map[int]int{}, 0
	for what, next := range lacking {
		dir := filepath.Join(t.TempDir(), "whole")
		record(t, dir, 1<<30, 1, c1, next)
		of, whole := mustBuild(t, Options{}, dir)
		ends := frameEnds(c1)
		for i := len(ends) / 4; i < len(ends); i += step {
			for _, cut := range []bool{true, false}[:1+i%2] {
				dir := filepath.Join(t.TempDir(), fmt.Sprint(i, cut))
				record(t, dir, 1<<30, 1, c1[:ends[i]], next)
				if cut {
					cutTransport(t, must(filepath.Glob(filepath.Join(dir, "*.json")))[0])
				}
				r, d := mustBuild(t, Options{}, dir)
				added := update(t, filepath.Join(t.TempDir(), "out.dendro"), dir)
				code := r.ExitCode()
				said[code]++
				diff := cmp.Diff(whole, d)
				// Where an end was clean a time no longer than the stream's longest
				// step is none in which something is known to be missing.
				if code == 0 && cut && diff != "" {
					t.Errorf("%s, end at %d (%v): exit code 0, archive (-whole +ours):\n%s", what, ends[i], cut, diff)
				}
				if code != 0 && diff == "" && of.ExitCode() == 0 {
					unsaid++
					t.Logf("%s, end at %d (%v): nothing is missing, said is %+v", what, ends[i], cut, r.FindingsByKind)
				}
				if added.ExitCode() != code || added.Losses != r.Losses {
					t.Errorf("%s, end at %d (%v): built %d %+v, added %d %+v", what, ends[i], cut, code, r.Losses, added.ExitCode(), added.Losses)
				}
			}
		}
	}
	if n := said[0] + said[3]; said[0] < n/10 || said[3] < n/10 || unsaid > n/20 {
		t.Errorf("exit codes %v, %d times nothing was missing and that was not said", said, unsaid)
	}
}

// TestCutBeforeStreamsThatAreNew: a connection begins with the newest row of every
// stream, and so tells nothing of earlier rows of one that the connection before
// did not have.
func TestCutBeforeStreamsThatAreNew(t *testing.T) {
	type row struct {
		stream string
		ts     int64
	}
	conn := func(frames ...[]row) []byte {
		b := dendro.AppendPreamble(nil)
		b = dendro.AppendHandshake(b, &dendro.Handshake{UUID: []byte("3f2b1c4d-0000-4000-8000-000000000001"), HasUUID: true})
		for seq, rows := range frames {
			var list []dendro.Row
			for _, r := range rows {
				list = append(list, dendro.Row{Stream: []byte(r.stream), TS: r.ts, Row: []byte(fmt.Sprint(r.stream, r.ts))})
			}
			b = dendro.AppendRowsOf(b, 0, uint64(seq), dendro.State{}, list)
		}
		return b
	}
	a := func(ts ...int64) (frames [][]row) {
		for _, x := range ts {
			frames = append(frames, []row{{"a", x}})
		}
		return frames
	}
	p := a(10, 20, 30, 40)
	var regular [][]row
	for ts := int64(10); ts <= 300; ts += 10 {
		regular = append(regular, []row{{"a", ts}})
	}
	for what, c := range map[string]struct {
		p, q [][]row
		exit int
	}{
		"goes on with the row that is held":      {p, a(40, 50), 0},
		"goes on with the next row":              {regular, a(310, 320), 0},
		"a row fits in between":                  {regular, a(320, 330), 3},
		"too few rows to know the stream's pace": {p, a(50, 60), 3},
		"a stream that comes at any time":        {append(regular, []row{{"a", 304}}), a(310, 320), 3},
		"a new stream was there already":         {p, [][]row{{{"a", 40}, {"b", 60}}, {{"a", 50}, {"b", 70}}}, 3},
		"a new stream that comes later":          {p, [][]row{{{"a", 40}}, {{"a", 50}, {"b", 50}}}, 0},
		"a new stream, and nothing comes again":  {regular, [][]row{{{"a", 310}}, {{"a", 320}, {"b", 320}}}, 3},
		"a stream is not there any more":         {[][]row{{{"a", 10}, {"b", 10}}, {{"a", 20}}}, a(20, 30), 3},
		"no rows before and none behind":         {nil, nil, 3},
		"no rows before":                         {nil, a(10, 20), 3},
		"none behind":                            {p, nil, 3},
	} {
		dir := filepath.Join(t.TempDir(), "rec")
		record(t, dir, 1<<30, 1, conn(c.p...), conn(c.q...))
		cutTransport(t, must(filepath.Glob(filepath.Join(dir, "c00000001-*.json")))[0])
		r, _ := mustBuild(t, Options{}, dir)
		added := update(t, filepath.Join(t.TempDir(), "out.dendro"), dir)
		for how, r := range map[string]*Report{"build": r, "update": added} {
			if r.ExitCode() != c.exit || r.FindingsByKind[capture.KindTransportCut] != 1 || (r.Losses.MadeGood == 1) != (c.exit == 0) {
				t.Errorf("%s, %s: exit code %d, %+v, %v", what, how, r.ExitCode(), r.Losses, r.FindingsByKind)
			}
		}
		// Another directory is another recorder's, whose clock may differ.
		apart := filepath.Join(t.TempDir(), "apart")
		if err := os.Mkdir(apart, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, f := range must(filepath.Glob(filepath.Join(dir, "c00000002-*"))) {
			if err := os.Rename(f, filepath.Join(apart, filepath.Base(f))); err != nil {
				t.Fatal(err)
			}
		}
		if r, _ := mustBuild(t, Options{}, dir, apart); r.ExitCode() != 3 {
			t.Errorf("%s, apart: exit code %d, %+v", what, r.ExitCode(), r.Losses)
		}
	}
}

// cutTransport makes a sidecar say that the transport was cut.
func cutTransport(t *testing.T, sidecar string) {
	t.Helper()
	b := must(os.ReadFile(sidecar))
	cut := bytes.Replace(b, []byte(`"verdict": "clean"`), []byte(`"verdict": "cut"`), 1)
	if bytes.Equal(cut, b) {
		t.Fatalf("no verdict in %s", b)
	}
	write(t, sidecar, cut)
}
