package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/fixture"
	"wiretape/replay/inspect"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// This file builds from recordings whose beginning is not there: streams cut
// anywhere, and captures whose first files are gone.

func torture() bool { return os.Getenv("WIRETAPE_TORTURE") == "1" }

// carried is what the frames of a stream from an offset on carry: the entries
// by their sequence, those of seeds as well.
func carried(b []byte, from int) map[uint64][]byte {
	out := map[uint64][]byte{}
	at, tags := frames(b)
	var seed []byte
	in := false
	for i, off := range at {
		if off < from {
			continue
		}
		end := off + 4 + int(binary.LittleEndian.Uint32(b[off:]))
		switch tags[i] {
		case melin.TagSegmentSeedBegin:
			in, seed = true, nil
		case melin.TagSnapshotChunk:
			seed = append(seed, b[off+5:end]...)
		case melin.TagSnapshotEnd:
			if in {
				for seq, e := range entriesIn(seed[HeaderSize:]) {
					out[seq] = e
				}
			}
			in = false
		case melin.TagInputBatch:
			r := melin.SlotsOf(b[off:end], melin.ShapeCRC)
			var s melin.Slot
			for r.Next(&s) {
				out[s.Sequence] = bytes.Clone(s.Raw)
			}
		}
	}
	return out
}

// entriesIn takes a journal's entries apart.
func entriesIn(b []byte) map[uint64][]byte {
	out := map[uint64][]byte{}
	for len(b) > 4 && string(b[:2]) == melin.EntryMagic {
		n := 2 + 18 + int(binary.LittleEndian.Uint16(b[2:])) + 4
		out[binary.LittleEndian.Uint64(b[4:])] = b[2:n]
		b = b[n:]
	}
	return out
}

// held is what the journal files of a build hold.
func held(t testing.TB, out string, r *Report) map[uint64][]byte {
	t.Helper()
	all := map[uint64][]byte{}
	for _, g := range r.Lineages {
		for _, f := range g.Files {
			b := read(t, out, f.File)
			if f.Kind == "segment" {
				if h, fault := ParseHeader(b); fault != "" || h.Start != f.Start {
					t.Fatalf("%s: %+v %s", f.File, h, fault)
				}
				b = b[HeaderSize:]
			}
			n := 0
			for seq, e := range entriesIn(b) {
				if seq < f.Start || seq > f.Last {
					t.Fatalf("%s holds %d, and says %d to %d", f.File, seq, f.Start, f.Last)
				}
				all[seq] = e
				n++
			}
			if n != int(f.Entries) {
				t.Fatalf("%s holds %d entries, and says %d", f.File, n, f.Entries)
			}
		}
	}
	return all
}

// same holds entries against each other.
func same(got, want map[uint64][]byte) error {
	for seq, e := range got {
		if w, ok := want[seq]; !ok || !bytes.Equal(e, w) {
			return fmt.Errorf("sequence %d is not what was sent, or was not here (%v)", seq, ok)
		}
	}
	for seq := range want {
		if got[seq] == nil {
			return fmt.Errorf("sequence %d is not in the journal", seq)
		}
	}
	return nil
}

// countIn is how many entries there are from a sequence to another.
func countIn(all map[uint64][]byte, first, last uint64) (n int) {
	for seq := range all {
		if seq >= first && seq <= last {
			n++
		}
	}
	return n
}

// buildAs builds from inputs that somebody names, and holds the report against
// what inspect shows of them: both read the same frames.
func buildAs(t testing.TB, opt capture.InputOptions, paths ...string) (string, *Report) {
	t.Helper()
	open := func() *capture.Set {
		set, err := capture.OpenInputs(paths, opt)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	out := filepath.Join(t.TempDir(), "out")
	r, err := Build(open(), out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Connections {
		var shown bytes.Buffer
		res, err := inspect.Write(&shown, open(), inspect.Options{Connection: c.ID})
		if err != nil {
			t.Fatal(err)
		}
		if res.Frames != c.Frames {
			t.Errorf("%s: inspect reads %d frames, build %d\n%s", c.ID, res.Frames, c.Frames, shown.String())
		}
		if c.Clean && c.Ending == string(wire.EndingClean) && res.Findings > 0 && r.Verdict == Clean {
			t.Errorf("%s: inspect has %d findings, build none", c.ID, res.Findings)
		}
	}
	return out, r
}

// begins says that a connection can begin with the frame at off, so that nothing
// tells that it did not.
func begins(b []byte, off int) bool {
	m, _ := melin.Protocol{}.Detect(b[off:min(len(b), off+wire.DetectLimit)], true)
	return m == wire.Matched
}

// A stream cut at its start: the journal holds exactly the entries of the frames
// behind the cut, what is missing before is named, and nothing is proved that
// needs what is gone.
func TestStreamsThatBeginAnywhere(t *testing.T) {
	builds := 0
	for _, name := range []string{"s1-main/conn01", "s1-main/conn02", "s4-snapshot/conn02", "s4x-gap/conn02", "s2-idle/conn01"} {
		down := fixture.Read(t, filepath.Join(recorded, name+"-p2r.bin.gz"))
		up := fixture.Read(t, filepath.Join(recorded, name+"-r2p.bin.gz"))
		at, tags := frames(down)
		var cuts []int
		for i, off := range at {
			if i == 0 || !torture() && i > 8 && i%(len(at)/3+1) > 0 && tags[i] != melin.TagRotate {
				continue
			}
			for k, d := range []int{-3, 0, 1, 9} {
				if !torture() && k%2 != i%2 && k != 1 {
					continue
				}
				if off+d > 0 && off+d < len(down) {
					cuts = append(cuts, off+d)
				}
			}
		}
		slices.Sort(cuts)
		_, whole := build(t, save(t, down, up)...)
		for i, cut := range slices.Compact(cuts) {
			at := fmt.Sprintf("%s from byte %d on", name, cut)
			streams := [][]byte{down[cut:]}
			if i%2 == 0 {
				streams = append(streams, up)
			}
			out, r := buildAs(t, capture.InputOptions{Protocol: melin.Name}, save(t, streams...)...)
			builds++
			want := carried(down, cut)
			if err := same(held(t, out, r), want); err != nil {
				t.Errorf("%s: %v", at, err)
			}
			first := uint64(0)
			for seq := range want {
				if first == 0 || seq < first {
					first = seq
				}
			}
			if begins(down, cut) || len(bytes.Trim(down[cut:], "\x00")) == 0 {
				continue // as a connection whose replica is not asked who it is; as a tail of zeros
			}
			if r.Verdict != Findings || r.ExitCode() != 3 || r.FindingsByKind[wire.KindBadPreamble] != 1 {
				t.Errorf("%s: %s %v", at, r.Verdict, r.FindingsByKind)
			}
			for _, c := range r.Connections {
				if c.Direction == "downstream" && c.Clean {
					t.Errorf("%s: it counts as whole", at)
				}
			}
			for _, g := range r.Lineages {
				for _, p := range g.Proofs {
					if p.Failed > 0 || p.Proof == "acks" && p.Verdict == Proved {
						t.Errorf("%s: %+v", at, p)
					}
				}
				for _, x := range g.Missing {
					if n := countIn(want, x.First, x.Last); n > 0 {
						t.Errorf("%s: lineage %d: %d of %d to %d are there, and these are missing: %+v", at, g.Number, n, x.First, x.Last, r.Lineages[0])
					}
				}
			}
			if first > 1 && !slices.ContainsFunc(r.Lineages[0].Missing, func(x ReportMissing) bool { return x.First == 1 && x.Last == first-1 }) &&
				!slices.ContainsFunc(r.Lineages[0].Bodies, func(x ReportBody) bool { return x.Kind == "snapshot" && x.Verdict == Proved }) {
				t.Errorf("%s: the entries before %d are not missing: %+v", at, first, r.Lineages[0].Missing)
			}
			for _, f := range r.Findings {
				switch f.Kind {
				case wire.KindBadPreamble, KindMissing, wire.KindZeroTail:
				default:
					if !slices.ContainsFunc(whole.Findings, func(w wire.Finding) bool { return w.Kind == f.Kind && w.Message == f.Message }) {
						t.Errorf("%s: it claims %+v", at, f)
					}
				}
			}
			if t.Failed() {
				break
			}
		}
	}
	t.Log(builds, "builds")
}

// What a replica sent, from anywhere on: it is said where it begins, and nothing
// of it is proved against what is not there.
func TestReplicaFromAnywhere(t *testing.T) {
	for _, name := range []string{"s1-main/conn01", "s1-main/conn02", "s4x-gap/conn02"} {
		down := fixture.Read(t, filepath.Join(recorded, name+"-p2r.bin.gz"))
		up := fixture.Read(t, filepath.Join(recorded, name+"-r2p.bin.gz"))
		_, whole := build(t, save(t, down, up)...)
		for cut := 1; cut < len(up); cut++ {
			if begins(up, cut) || !torture() && (cut > 160 && cut%271 > 1 || cut%9 > 0 && cut != 101 && cut != 156) || torture() && cut%5 > 1 || len(bytes.Trim(up[cut:], "\x00")) == 0 {
				continue
			}
			_, r := buildAs(t, capture.InputOptions{Protocol: melin.Name}, save(t, down, up[cut:])...)
			want := maps.Clone(whole.FindingsByKind)
			want[wire.KindBadPreamble] = 1
			delete(r.FindingsByKind, wire.KindZeroTail) // what is left of the last frame may end in zeros
			if r.Verdict != Findings || !maps.Equal(r.FindingsByKind, want) || len(r.Lineages) != 1 {
				t.Fatalf("%s from byte %d on: %s %+v, %d lineages, want %v", name, cut, r.Verdict, r.Findings, len(r.Lineages), want)
			}
			for _, p := range r.Lineages[0].Proofs {
				if p.Failed > 0 || p.Proof == "acks" && p.Verdict == Proved {
					t.Fatalf("%s from byte %d on: %+v", name, cut, p)
				}
			}
		}
	}
}

// How a capture's file from the middle is known.
var sidecarsOf = []string{"its sidecar", "no sidecars", "stale sidecars", "damaged sidecars"}

// prune takes the first files of a connection away, and of the sidecars of what
// is left makes what how says.
func prune(t testing.TB, dir, connection string, first int, how string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, connection+"-*.cap"))
	if err != nil || len(names) <= first {
		t.Fatalf("%d files, %v", len(names), err)
	}
	stem := func(i int) string { return strings.TrimSuffix(names[i], ".cap") }
	for i := range names[:first] {
		for _, end := range []string{".cap", ".json", ".idx", ".sha256"} {
			if err := os.Remove(stem(i) + end); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := first; i < len(names); i++ {
		switch how {
		case "no sidecars":
			err = os.Remove(stem(i) + ".json")
		case "damaged sidecars":
			err = os.WriteFile(stem(i)+".json", []byte(`{"format":"wiretape-sidecar","version":1,"connection":`), 0o600)
		case "stale sidecars":
			if i+1 < len(names) { // that of the next file, under this one's name
				var b []byte
				if b, err = os.ReadFile(stem(i+1) + ".json"); err == nil {
					err = os.WriteFile(stem(i)+".json", b, 0o600)
				}
			} else {
				err = os.Remove(stem(i) + ".json")
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// boundaries are where the files of a connection begin.
func starts(t testing.TB, dir, connection string) (at []int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, connection+"-*.cap"))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, name := range names {
		at = append(at, sum)
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(st.Size())
	}
	return at
}

// A capture whose first files were pruned, with their sidecars and without: the
// entries of the files that are there, no others; and a recording of the whole
// beside it closes what is missing.
func TestPrunedCaptures(t *testing.T) {
	down := fixture.Read(t, filepath.Join(recorded, "s11-journal/conn01-p2r.bin.gz"))
	up := fixture.Read(t, filepath.Join(recorded, "s11-journal/conn01-r2p.bin.gz"))
	whole, w := build(t, save(t, down, up)...)
	made := recordPairs(t, 400, down, up)
	at := starts(t, made, "c00000001")
	if len(at) < 8 {
		t.Fatal(at)
	}
	for first := 1; first < len(at); first++ {
		if !torture() && first > 1 && first%(len(at)/3) > 0 && first < len(at)-1 {
			continue
		}
		for _, how := range sidecarsOf {
			what := fmt.Sprintf("without the first %d files, %s", first, how)
			dir := filepath.Join(t.TempDir(), "capture")
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			prune(t, dir, "c00000001", first, how)
			opt := capture.InputOptions{Protocol: melin.Name}
			if how != sidecarsOf[0] {
				opt.Context = wire.MidStream(melin.Name)
			}
			out, r := buildAs(t, opt, dir)
			want := carried(down, at[first])
			if err := same(held(t, out, r), want); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if r.Verdict != Findings || r.FindingsByKind[capture.KindMissingFiles] != 1 || r.FindingsByKind[wire.KindBadPreamble] > 0 {
				t.Errorf("%s: %s %v", what, r.Verdict, r.FindingsByKind)
			}
			for _, p := range r.Lineages[0].Proofs {
				if p.Failed > 0 || p.Proof == "acks" && p.Verdict == Proved {
					t.Errorf("%s: %+v", what, p)
				}
			}
			for _, f := range r.Findings {
				switch f.Kind {
				case KindMissing, capture.KindMissingFiles, capture.KindSidecarStale, capture.KindSidecarInvalid, capture.KindNoEnd, capture.KindSums, capture.KindSidecarMissing, capture.KindHashMismatch:
				default:
					t.Errorf("%s: it claims %+v", what, f)
				}
			}
			// The whole recording beside it.
			full := save(t, down)
			set, err := capture.OpenInputs(append([]string{dir}, full...), opt)
			if err != nil {
				t.Fatal(err)
			}
			out = filepath.Join(t.TempDir(), "both")
			r, err = Build(set, out, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Lineages) != 1 || len(r.Lineages[0].Missing) > 0 || len(r.Lineages[0].Files) != len(w.Lineages[0].Files) {
				t.Errorf("%s, and the whole: %+v", what, r.Lineages)
				continue
			}
			for _, f := range w.Lineages[0].Files {
				if !bytes.Equal(read(t, whole, f.File), read(t, out, f.File)) {
					t.Errorf("%s, and the whole: %s differs", what, f.File)
				}
			}
			if g, x := r.proofOf(0, "chain"), w.proofOf(0, "chain"); g.Failed > 0 || g.Proved < x.Proved {
				t.Errorf("%s, and the whole: chain %+v, want %+v", what, g, x)
			}
			// Nothing is missing then but behind the last entry of what is there.
			entries := len(want) > 0
			if good := r.MadeGood[capture.KindMissingFiles] == 1; good != entries || how == sidecarsOf[0] && r.ExitCode() == 0 != entries {
				t.Errorf("%s, and the whole: made good %v, exit code %d, %d entries: %+v", what, r.MadeGood, r.ExitCode(), len(want), r.Findings)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// Guards: the end of what was sent was not there, and the acks of it failed as
// beyond what was sent.
func TestWithoutItsEnd(t *testing.T) {
	down := fixture.Read(t, filepath.Join(recorded, "s1-main/conn01-p2r.bin.gz"))
	up := fixture.Read(t, filepath.Join(recorded, "s1-main/conn01-r2p.bin.gz"))
	dir := recordPairs(t, 2000, down, up)
	names, err := filepath.Glob(filepath.Join(dir, "c00000001-*.cap"))
	if err != nil || len(names) < 6 {
		t.Fatal(names, err)
	}
	for _, sidecars := range []bool{true, false} {
		for _, name := range names[len(names)-2:] {
			for _, end := range []string{".cap", ".json"} {
				if err := os.Remove(strings.TrimSuffix(name, ".cap") + end); err != nil && (sidecars || end == ".json") {
					t.Fatal(err)
				}
			}
			if sidecars {
				// Its sidecar stays, and tells of it.
				if err := os.WriteFile(strings.TrimSuffix(name, ".cap")+".json", []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, r := buildAs(t, capture.InputOptions{}, dir)
		p := r.proofOf(0, "acks")
		if r.Verdict != Findings || p.Verdict != NotProvable || r.FindingsByKind[KindAcks] > 0 || r.FindingsByKind[KindMissing] != 1 {
			t.Errorf("sidecars %v: %+v %v", sidecars, p, r.FindingsByKind)
		}
		for _, c := range r.Connections {
			if c.Clean != (c.Direction == "upstream") {
				t.Errorf("sidecars %v: %+v", sidecars, c)
			}
		}
	}
}

// Guards: a connection of which nothing could be read, so that nobody knew of
// which protocol it is, was no finding of the rebuild.
func TestConnectionThatCannotBeRead(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	down := fixture.Read(t, filepath.Join(recorded, "s1-main/conn01-p2r.bin.gz"))
	dir := recordPairs(t, 2000, down, fixture.Read(t, filepath.Join(recorded, "s1-main/conn01-r2p.bin.gz")))
	prune(t, dir, "c00000001", 2, "no sidecars")
	_, r := build(t, append(save(t, p.b), dir)...)
	if r.Verdict != Findings || r.FindingsByKind[capture.KindNoPlace] != 1 {
		t.Errorf("%s %v", r.Verdict, r.FindingsByKind)
	}
	if !slices.ContainsFunc(r.Connections, func(c ReportConnection) bool { return strings.HasPrefix(c.ID, "c00000001-") && !c.Used }) {
		t.Errorf("%+v", r.Connections)
	}
}
