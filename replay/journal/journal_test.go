package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/fixture"
	"wiretape/replay/internal/db"
)

// recorded is where wire/melin keeps the streams that real nodes exchanged.
const recorded = "../../wire/melin/testdata"

// streams unpacks the named recordings, "s1-main/conn01-p2r" and so on, into a
// folder and gives their paths.
func streams(t testing.TB, names ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		p := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".bin")
		if err := os.WriteFile(p, fixture.Read(t, filepath.Join(recorded, name+".bin.gz")), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// all gives a scenario's recordings.
func all(scenario string, connections int) (names []string) {
	for n := 1; n <= connections; n++ {
		names = append(names, fmt.Sprintf("%s/conn%02d-p2r", scenario, n), fmt.Sprintf("%s/conn%02d-r2p", scenario, n))
	}
	return names
}

// build rebuilds and gives the output's folder and the report.
func build(t testing.TB, paths ...string) (string, *Report) {
	t.Helper()
	set, err := capture.OpenInputs(paths, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	r, err := Build(set, out, Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	left, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(left) != 1 {
		t.Fatalf("left over: %v, %v", left, err)
	}
	return out, r
}

func (r *Report) proofOf(lineage int, name string) Proof {
	for _, p := range r.Lineages[lineage].Proofs {
		if p.Proof == name {
			return p
		}
	}
	return Proof{}
}

// clean fails on anything that a build reports.
func clean(t testing.TB, r *Report) {
	t.Helper()
	if r.Verdict != Clean {
		t.Errorf("verdict %s", r.Verdict)
		for _, f := range r.Findings {
			t.Errorf("%s: connection %s at %d: %s", f.Kind, f.Connection, f.Offset, f.Message)
		}
	}
	for _, g := range r.Lineages {
		if len(g.Missing) > 0 {
			t.Errorf("missing %+v", g.Missing)
		}
		for _, p := range g.Proofs {
			if p.Verdict == Failed {
				t.Errorf("%+v", p)
			}
		}
	}
}

func query(t testing.TB, out, q string, args ...any) int64 {
	t.Helper()
	d, err := db.Open(filepath.Join(out, CatalogueName), db.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n, err := d.Int(q, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The journal of a real replica comes out byte for byte.
func TestReplicaJournal(t *testing.T) {
	out, r := build(t, streams(t, all("s11-journal", 2)...)...)
	clean(t, r)
	if len(r.Lineages) != 1 {
		t.Fatalf("%d lineages", len(r.Lineages))
	}
	for _, name := range []string{"j.journal.000001", "j.journal"} {
		got, err := os.ReadFile(filepath.Join(out, "lineage-1", name))
		if err != nil {
			t.Fatal(err)
		}
		if want := fixture.Read(t, "testdata/s11-journal/"+name+".gz"); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, differs from the replica's %d", name, len(got), len(want))
		}
	}
	if p := r.proofOf(0, "chain"); p.Verdict != Proved || p.Proved < 3 {
		t.Errorf("%+v", p)
	}
	if p := r.proofOf(0, "acks"); p.Verdict != Proved || p.Proved != 280 {
		t.Errorf("%+v", p)
	}
}

// Every recording of real nodes: nothing is missing, every check that an anchor
// reaches is proved.
func TestRecordings(t *testing.T) {
	for _, c := range []struct {
		scenario       string
		connections    int
		chain, unknown int64 // checks proved, and not provable
		entries        int64
		missing        int
	}{
		{"s1-main", 2, 4, 2, 543, 0},
		{"s2-idle", 1, 0, 1, 5, 0},
		{"s4-snapshot", 2, 5, 1, 463, 0},
		{"s4x-gap", 3, 4, 2, 421, 0},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			out, r := build(t, streams(t, all(c.scenario, c.connections)...)...)
			clean(t, r)
			if len(r.Lineages) != 1 {
				t.Fatalf("%d lineages", len(r.Lineages))
			}
			g := r.Lineages[0]
			if p := r.proofOf(0, "chain"); p.Proved != c.chain || p.NotProvable != c.unknown || p.Failed != 0 {
				t.Errorf("%+v", p)
			}
			if g.Entries != c.entries || query(t, out, "SELECT count(*) FROM entries") != c.entries {
				t.Errorf("%d entries", g.Entries)
			}
			if len(g.Missing) != c.missing {
				t.Errorf("missing %+v", g.Missing)
			}
			for _, x := range r.Connections {
				if x.Lineage != 1 || x.PairedBy == "" || !x.Clean {
					t.Errorf("%+v", x)
				}
			}
			if n := query(t, out, "SELECT count(*) FROM checks WHERE verdict = 'proved'"); n != c.chain {
				t.Errorf("%d checks in the catalogue", n)
			}
		})
	}
}

// The real gap is reported on the connection that has it, and closed by the
// next.
func TestGapIsClosed(t *testing.T) {
	_, r := build(t, streams(t, all("s4x-gap", 3)...)...)
	gaps := r.Lineages[0].Gaps
	if len(gaps) != 1 || gaps[0].First != 3 || !gaps[0].Closed || !strings.Contains(gaps[0].Connection, "conn01") ||
		len(gaps[0].ClosedBy) != 1 || !strings.Contains(gaps[0].ClosedBy[0], "conn02") {
		t.Errorf("%+v", gaps)
	}
	if p := r.proofOf(0, "repeats"); p.Verdict != Proved || p.Proved < 300 {
		t.Errorf("%+v", p)
	}
	// The first connection alone lacks the entries, and says what would help.
	_, r = build(t, streams(t, all("s4x-gap", 1)...)...)
	m := r.Lineages[0].Missing
	if r.Verdict != Findings || len(m) != 1 || m[0].First != gaps[0].First || m[0].Last != gaps[0].Last || m[0].AfterNs == nil || m[0].BeforeNs == nil ||
		!strings.Contains(m[0].Closes, "sequence 3") {
		t.Errorf("%s %+v", r.Verdict, m)
	}
}

// A replica that was made from a snapshot has the seed's segment and the
// snapshot beside it, and the chain goes on from the seed.
func TestSnapshotAlone(t *testing.T) {
	out, r := build(t, streams(t, "s4-snapshot/conn02-p2r", "s4-snapshot/conn02-r2p")...)
	clean(t, r)
	if p := r.proofOf(0, "chain"); p.Verdict != Proved || p.Proved < 2 {
		t.Errorf("%+v", p)
	}
	if p := r.proofOf(0, "bodies"); p.Proved != 2 {
		t.Errorf("%+v", p)
	}
	whole, w := build(t, streams(t, all("s4-snapshot", 2)...)...)
	clean(t, w)
	// The segment is the same as that of the connection that has all of it.
	same := func(a, b string) {
		t.Helper()
		x, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s and %s differ", filepath.Base(a), filepath.Base(b))
		}
	}
	same(filepath.Join(out, "lineage-1", LiveName), filepath.Join(whole, "lineage-1", LiveName))
	same(filepath.Join(out, "lineage-1", SnapshotName), filepath.Join(out, r.Lineages[0].Bodies[0].File))
	if _, err := os.Stat(filepath.Join(whole, "lineage-1", SnapshotName)); err == nil {
		t.Error("a snapshot beside a journal that begins at its beginning")
	}
}
