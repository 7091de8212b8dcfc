package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/fixture"
	"wiretape/wire/melin"
)

func read(t testing.TB, parts ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Segments are cut at each Rotate, closed ones numbered; one that a Rotate
// opened is there before its first entry.
func TestSegments(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(30, 0)
	p.check()
	p.rotate()
	p.send(5, 0)
	p.rotate()
	out, r := build(t, save(t, p.b)...)
	clean(t, r)
	for i, entries := range append(p.segments, nil) {
		name := fmt.Sprintf("j.journal.%06d", i+1)
		if i == 2 {
			name = LiveName
		}
		b := read(t, out, "lineage-1", name)
		if h, fault := ParseHeader(b); fault != "" || h.Version != VersionGenesis || h.GenesisEntries != 2 || h.Start != []uint64{1, 31, 36}[i] {
			t.Errorf("%s: %+v %s", name, h, fault)
		}
		if !bytes.Equal(b[HeaderSize:], entries) {
			t.Errorf("%s: %d bytes of entries, want %d", name, len(b)-HeaderSize, len(entries))
		}
	}
	if g := r.Lineages[0]; len(g.Files) != 3 || g.Files[1].Chain != hex.EncodeToString(p.anchor[:]) {
		t.Errorf("%+v", g.Files)
	}
	if got := query(t, out, "SELECT position FROM entries WHERE sequence = 32"); got != HeaderSize+int64(len(p.segments[1])/5) {
		t.Errorf("position %d", got)
	}
	if got := uint64(query(t, out, "SELECT key_hash FROM entries WHERE sequence = 7")); got != 1<<63+7 {
		t.Errorf("key hash %d", got)
	}
}

// A lineage whose genesis length is not known has headers of version 15.
func TestGenesisUnknown(t *testing.T) {
	p := newPrimary(8, 'a')
	p.genesis = nil
	p.connect(0)
	p.send(3, 0)
	out, r := build(t, save(t, p.b)...)
	clean(t, r)
	if h, fault := ParseHeader(read(t, out, "lineage-1", LiveName)); fault != "" || h.Version != VersionPlain {
		t.Errorf("%+v %s", h, fault)
	}
	p = newPrimary(7, 'a')
	p.send(3, 0)
	out, r = build(t, save(t, p.b)...)
	clean(t, r)
	if h, fault := ParseHeader(read(t, out, "lineage-1", LiveName)); fault != "" || h.Version != VersionGenesis || h.GenesisEntries != 2 {
		t.Errorf("%+v %s", h, fault)
	}
}

// Any one flipped bit in an entry is found by its CRC, or because the batch no
// longer decodes, and by the chain.
func TestFlippedBits(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	p.check()
	at, _ := frames(p.b)
	slot := (len(p.b) - 45 - at[3] - 7) / 3
	second := at[3] + 7 + slot
	n := 0
	for off := second; off < second+slot; off++ {
		for bit := range 8 {
			b := bytes.Clone(p.b)
			b[off] ^= 1 << bit
			flipped(t, save(t, b), fmt.Sprint("bit ", bit, " of byte ", off))
			n++
		}
	}
	if n != 8*slot || slot < 40 {
		t.Fatal(n, slot)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	whole := fixture.Read(t, recorded+"/s1-main/conn01-p2r.bin.gz")
	at, tags := frames(whole)
	for range 30 {
		// The last ChainCheck or Rotate reaches all before it.
		i := rng.IntN(len(at) - 4)
		if tags[i] != melin.TagInputBatch {
			continue
		}
		b := bytes.Clone(whole)
		off := at[i] + 7 + rng.IntN(at[i+1]-at[i]-7)
		b[off] ^= 1 << rng.IntN(8)
		flipped(t, save(t, b), fmt.Sprint("s1-main at ", off))
	}
}

func flipped(t *testing.T, paths []string, what string) {
	t.Helper()
	_, r := build(t, paths...)
	found := kinds(r)
	if !strings.Contains(found, melin.KindSlotCRC) && !strings.Contains(found, "malformed-frame") {
		t.Fatalf("%s: not found: %s", what, found)
	}
	if c := r.proofOf(0, "chain"); c.Verdict != Failed || !strings.Contains(found, KindChain) {
		t.Fatalf("%s: the chain is %+v (%s)", what, c, found)
	}
	if len(r.Lineages[0].Missing) != 1 || r.Verdict != Findings {
		t.Fatalf("%s: %+v", what, r.Lineages[0].Missing)
	}
	for _, f := range r.Findings {
		if f.Connection == "" || f.File == "" || f.Offset == 0 {
			t.Fatalf("%s: a finding without a place: %+v", what, f)
		}
	}
}

// What one recording has damaged, another of the same link mends.
func TestDamageIsMended(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(10, 0)
	p.check()
	p.rotate()
	p.send(4, 0)
	b := bytes.Clone(p.b)
	b[len(b)-100] ^= 1
	_, alone := build(t, save(t, b)...)
	out, r := build(t, save(t, b, p.b)...)
	if alone.Verdict != Findings || len(r.Lineages) != 1 || len(r.Lineages[0].Missing) != 0 {
		t.Fatalf("%s, %+v", alone.Verdict, r.Lineages)
	}
	if c := r.proofOf(0, "chain"); c.Verdict != Proved {
		t.Errorf("%+v", c)
	}
	if got := read(t, out, "lineage-1", "j.journal.000001"); !bytes.Equal(got[HeaderSize:], p.segments[0]) {
		t.Error("the journal is not the primary's")
	}
}

// Of two anchors that are named for a segment the one counts that the chain has.
func TestAnchorOfTwo(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(10, 0)
	p.rotate()
	p.send(4, 0)
	at, _ := frames(p.b)
	b := bytes.Clone(p.b)
	b[at[4]+20] ^= 1 // in the Rotate's hash
	for _, in := range [][][]byte{{b, p.b}, {p.b, b}} {
		out, r := build(t, save(t, in...)...)
		if len(r.Lineages) != 1 || r.FindingsByKind[KindAnchor] != 1 || r.FindingsByKind[KindChain] != 1 {
			t.Fatalf("%v", r.FindingsByKind)
		}
		h, _ := ParseHeader(read(t, out, "lineage-1", LiveName))
		if h.Start != 11 || h.Anchor != p.anchor {
			t.Errorf("%+v", h)
		}
	}
}

// A hole ends the files of a part; what lies behind it is kept.
func TestHole(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(10, 0)
	p.send(2, 0)
	p.send(7, 0)
	p.check()
	p.rotate()
	p.send(6, 0)
	p.check()
	b := without(p.b, melin.TagInputBatch, 1)
	out, r := build(t, save(t, b)...)
	g := r.Lineages[0]
	if r.Verdict != Findings || len(g.Missing) != 1 || g.Missing[0].First != 11 || g.Missing[0].Last != 12 || g.Missing[0].Reason != "no connection carried them" {
		t.Fatalf("%s %+v", r.Verdict, g.Missing)
	}
	if *g.Missing[0].AfterNs != 1e18+10*1e6 || *g.Missing[0].BeforeNs != 1e18+13*1e6 {
		t.Errorf("%+v", g.Missing[0])
	}
	c := r.proofOf(0, "chain")
	if c.Proved != 1 || c.NotProvable != 3 || c.Reasons["sequences 11 to 12 missing"] != 2 {
		t.Errorf("%+v", c)
	}
	size := len(p.segments[0]) / 19
	if got := read(t, out, "lineage-1", LiveName); !bytes.Equal(bytes.TrimRight(got[HeaderSize:], "\x00"), bytes.TrimRight(p.segments[0][:10*size], "\x00")) {
		t.Error("the part before the hole")
	}
	if got := read(t, out, "lineage-1", "part-2", "entries-13"); !bytes.Equal(got, p.segments[0][12*size:]) {
		t.Error("the entries behind the hole")
	}
	if got := read(t, out, "lineage-1", "part-2", LiveName); !bytes.HasPrefix(got[HeaderSize:], p.journal) {
		t.Error("the segment behind the hole")
	}
	// The catch-up of another connection closes it.
	q := newPrimary(8, 'a')
	q.send(10, 0)
	q.connect(10)
	q.send(9, 0)
	out, r = build(t, save(t, b, q.b)...)
	clean(t, r)
	if c := r.proofOf(0, "chain"); c.Proved != 3 {
		t.Errorf("%+v", c)
	}
	if got := read(t, out, "lineage-1", "j.journal.000001"); !bytes.Equal(got[HeaderSize:], p.segments[0]) {
		t.Error("the closed segment")
	}
}

// After a failover the old primary's last entries are another history: the
// lineage forks where the epochs differ.
func TestFork(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(10, 0)
	p.check()
	common := len(p.journal)
	old := bytes.Clone(p.b)
	q := *p
	p.b = old
	p.send(5, 1)
	p.check()
	q.epoch = 1
	q.journal = q.journal[:common:common]
	q.connect(10)
	q.send(8, 2)
	q.check()
	out, r := build(t, save(t, p.b, q.b)...)
	clean(t, r)
	if len(r.Lineages) != 2 {
		t.Fatalf("%d lineages", len(r.Lineages))
	}
	for i, want := range [][]byte{p.journal, q.journal} {
		got := read(t, out, fmt.Sprintf("lineage-%d", i+1), LiveName)
		if !bytes.Equal(bytes.TrimRight(got[HeaderSize:], "\x00"), bytes.TrimRight(want, "\x00")) {
			t.Errorf("lineage %d: %d bytes", i+1, len(got))
		}
		if c := r.proofOf(i, "chain"); c.Verdict != Proved || c.Failed != 0 {
			t.Errorf("%+v", c)
		}
	}
	// In one epoch it is a fault of one of them.
	q.epoch = 0
	q.b, q.seq, q.journal = nil, 10, q.journal[:common:common]
	q.connect(10)
	q.send(8, 2)
	_, r = build(t, save(t, p.b, q.b)...)
	if len(r.Lineages) != 1 || r.FindingsByKind[KindConflict] != 5 || r.proofOf(0, "repeats").Verdict != Failed {
		t.Errorf("%d lineages, %v", len(r.Lineages), r.FindingsByKind)
	}
}

// Two primaries are two lineages.
func TestLineagesApart(t *testing.T) {
	p, q := newPrimary(8, 'a'), newPrimary(8, 'b')
	p.send(3, 0)
	q.send(4, 9)
	_, r := build(t, save(t, p.b, q.b)...)
	clean(t, r)
	if len(r.Lineages) != 2 || r.Lineages[0].Entries != 3 || r.Lineages[1].Entries != 4 {
		t.Errorf("%+v", r.Lineages)
	}
}

// Entries of older layouts carry no CRC: the catalogue alone has them.
func TestOlderLayouts(t *testing.T) {
	for layout := melin.Layout(2); layout <= 6; layout++ {
		p := newPrimary(layout, 'a')
		p.send(3, 0)
		p.beat()
		if layout >= 3 {
			p.check()
		}
		p.send(2, 0)
		out, r := build(t, save(t, p.b)...)
		clean(t, r)
		g := r.Lineages[0]
		if len(g.Files) != 0 || g.Folder != "" || g.Entries != 5 || query(t, out, "SELECT count(*) FROM entries WHERE segment IS NULL") != 5 {
			t.Errorf("%v: %+v", layout, g)
		}
		want := NotProvable
		if layout == 6 {
			want = Proved
		}
		if c := r.proofOf(0, "chain"); layout >= 3 && c.Verdict != want {
			t.Errorf("%v: %+v", layout, c)
		}
		if x := r.Connections[0]; layout >= 4 && x.Layout != layout.String() || x.LayoutFrom != "frames" {
			t.Errorf("%v: %+v", layout, x)
		}
		if _, err := os.Stat(filepath.Join(out, "lineage-1")); err == nil {
			t.Errorf("%v: a folder", layout)
		}
	}
}

// The first layout has pieces of journal and nothing that anchors them; a
// genesis joins its connections.
func TestFirstLayout(t *testing.T) {
	first := func(start uint64, genesis string) []byte {
		return (&melin.StreamStart{First: true, StartSequence: start, Genesis: []byte(genesis)}).Append(nil)
	}
	piece := func(b []byte, end uint64, count uint32, hash byte) []byte {
		return (&melin.DataBatch{EndSequence: end, Count: count, Hash: [32]byte{hash}, Journal: []byte("journal")}).Append(b)
	}
	a := piece(piece(first(0, "genesis!"), 4, 4, 1), 6, 2, 2)
	z := piece(first(6, ""), 9, 3, 3)
	up := (&melin.Handshake{LastSequence: 6, ChainHash: [32]byte{2}}).Append(nil)
	out, r := build(t, save(t, a, z, up)...)
	clean(t, r)
	if len(r.Lineages) != 1 || *r.Lineages[0].LastSequence != 9 || query(t, out, "SELECT count(*) FROM batches") != 3 {
		t.Errorf("%+v", r.Lineages)
	}
	_, r = build(t, save(t, a, piece(first(8, ""), 9, 1, 3))...)
	if len(r.Lineages) != 2 {
		t.Errorf("joined without a reason: %+v", r.Lineages[0].Connections)
	}
}

// Where two layouts fit, the report says so and which was taken.
func TestAmbiguousLayout(t *testing.T) {
	b := (&melin.StreamStart{HasSegment: true, SegmentStart: 1, Anchor: [32]byte{1}, HasEpoch: true, HasPolicy: true}).Append(nil)
	b, at := melin.BeginInputBatch(b)
	b = melin.AppendSlot(b, &melin.Slot{Sequence: 1, RequestSeq: 0x80, Event: melin.EventApp, Payload: []byte("payload")}, melin.ShapeRequest)
	b = melin.EndInputBatch(b, at, 1)
	_, r := build(t, save(t, b)...)
	if x := r.Connections[0]; r.Verdict != Findings || r.FindingsByKind[KindAmbiguous] != 1 || x.LayoutFrom != "ambiguous" || x.Layouts != "4, 5" || x.Layout != "protocol 5" {
		t.Errorf("%v %+v", r.FindingsByKind, x)
	}
}

// A replica acknowledges what it was not sent.
func TestAcksBeyondSent(t *testing.T) {
	down := fixture.Read(t, recorded+"/s2-idle/conn01-p2r.bin.gz")
	up := fixture.Read(t, recorded+"/s2-idle/conn01-r2p.bin.gz")
	_, r := build(t, save(t, down, (&melin.Ack{Acked: 5, HasMemory: true, InMemory: 99}).Append(bytes.Clone(up)))...)
	if p := r.proofOf(0, "acks"); p.Verdict != Failed || r.FindingsByKind[KindAcks] != 1 {
		t.Errorf("%+v %v", p, r.FindingsByKind)
	}
	_, r = build(t, save(t, down[:len(down)-3], up)...)
	if p := r.proofOf(0, "acks"); p.Verdict != NotProvable {
		t.Errorf("%+v", p)
	}
}

// A direction that nobody said is told by the frames.
func TestDirectionOfBareFrames(t *testing.T) {
	up := fixture.Read(t, recorded+"/s2-idle/conn01-r2p.bin.gz")
	at, _ := frames(up)
	set, err := capture.OpenInputs(save(t, up[at[2]:]), capture.InputOptions{Protocol: melin.Name})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build(set, filepath.Join(t.TempDir(), "out"), Options{})
	if err != nil || len(r.Connections) != 1 || r.Connections[0].Direction != "upstream" || kinds(r) != "bad-preamble missing-sequences " ||
		r.Connections[0].Clean {
		t.Errorf("%v %+v", err, r.Connections)
	}
}

// The output's name is taken, or nothing of melin is there: nothing is made.
func TestNothingIsLeft(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	set, err := capture.OpenInputs(save(t, p.b), capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Build(set, dir, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if r, err := Build(&capture.Set{}, filepath.Join(dir, "out"), Options{}); !errors.Is(err, ErrNothing) || r.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	// An input that vanishes under the build.
	for _, c := range set.Connections {
		os.Remove(c.Files[0].Path)
	}
	r, err := Build(set, filepath.Join(dir, "out"), Options{})
	if err == nil && r.Verdict == Clean {
		t.Error("a build without its input is clean")
	}
	if err != nil {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
}

// Whatever is cut, zeroed or overwritten: a build ends with a report, and what
// it wrote reads back (a build fails otherwise).
func TestDamagedRecordings(t *testing.T) {
	rounds := 25
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		rounds = 1000
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range []struct {
		name        string
		connections int
	}{{"s1-main", 2}, {"s4-snapshot", 2}, {"s4x-gap", 3}, {"s11-journal", 2}} {
		var sound [][]byte
		for _, name := range all(s.name, s.connections) {
			sound = append(sound, fixture.Read(t, filepath.Join(recorded, name+".bin.gz")))
		}
		for round := range rounds {
			var bad [][]byte
			for _, b := range sound {
				c := bytes.Clone(b)
				// The first frames stay, so that the protocol is found.
				switch at := 160 + rng.IntN(max(len(c)-160, 1)); rng.IntN(6) {
				case 0:
					c = c[:min(at, len(c))]
				case 1:
					c[min(at, len(c)-1)] ^= 1 << rng.IntN(8)
				case 2:
					clear(c[min(at, len(c)):min(len(c), at+rng.IntN(3000))])
				case 3:
					clear(c[min(at, len(c)):])
				case 4:
					for i := at; i < min(len(c), at+40); i++ {
						c[i] = byte(rng.Uint32())
					}
				}
				bad = append(bad, c)
			}
			var r *Report
			// A test of its own, so that its files go when it is done.
			t.Run(fmt.Sprint(s.name, "-", round), func(t *testing.T) { _, r = build(t, save(t, bad...)...) })
			if r == nil {
				continue
			}
			var text bytes.Buffer
			if err := r.Text(&text, "out"); err != nil || text.Len() == 0 || len(r.JSON()) == 0 {
				t.Fatal(err)
			}
			for _, g := range r.Lineages {
				for _, p := range g.Proofs {
					if p.Verdict == Failed && r.Verdict == Clean {
						t.Fatalf("%s, round %d: clean, and %+v", s.name, round, p)
					}
				}
			}
			for _, f := range r.Findings {
				if f.Kind == "" || f.Message == "" {
					t.Fatalf("%s, round %d: %+v", s.name, round, f)
				}
			}
		}
	}
}

// An upgrade of the nodes goes on with the lineage: what carries CRCs is in
// files from there on.
func TestUpgrade(t *testing.T) {
	p := newPrimary(5, 'a')
	p.send(4, 0)
	old := p.b
	p.layout, p.journal = 8, nil
	p.connect(4)
	p.send(5, 0)
	tail := bytes.Clone(p.journal)
	p.rotate()
	p.send(2, 0)
	p.check()
	out, r := build(t, save(t, old, p.b)...)
	// The first Rotate's hash covers bytes that the old layout does not carry.
	clean(t, r)
	g := r.Lineages[0]
	if len(r.Lineages) != 1 || g.Entries != 11 || len(g.Files) != 2 {
		t.Fatalf("%+v", g.Files)
	}
	if got := read(t, out, "lineage-1", "part-2", "entries-5"); !bytes.Equal(got, tail) {
		t.Error("the entries behind the upgrade")
	}
	if c := r.proofOf(0, "chain"); c.Proved != 1 || c.Reasons[whyUnchained] == 0 {
		t.Errorf("%+v", c)
	}
}

// A seed that is not the segment that the StreamStart behind it names.
func TestSeedOfAnotherSegment(t *testing.T) {
	b := fixture.Read(t, recorded+"/s4-snapshot/conn02-p2r.bin.gz")
	at, tags := frames(b)
	for i := range at {
		if tags[i] == melin.TagStreamStart {
			for _, off := range []int{5, 13, 21} { // start, segment start, anchor
				c := bytes.Clone(b)
				c[at[i]+off]++
				_, r := build(t, save(t, c)...)
				if r.FindingsByKind[KindSeed] != 1 || r.Verdict != Findings {
					t.Errorf("byte %d: %v", off, r.FindingsByKind)
				}
			}
			return
		}
	}
	t.Fatal("no StreamStart")
}

// Whatever two streams hold, a build ends, and what it wrote reads back.
func FuzzBuild(f *testing.F) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	p.check()
	p.rotate()
	p.send(2, 0)
	q := newPrimary(8, 'a')
	q.send(1, 0)
	f.Add(p.b, q.b)
	old := newPrimary(4, 'b')
	old.send(2, 0)
	old.beat()
	f.Add(old.b, fixture.Read(f, recorded+"/s2-idle/conn01-r2p.bin.gz"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		// The first frames tell the protocol.
		head := melin.AppendTag((&melin.Challenge{}).Append(nil), melin.TagAuthOk)
		paths := save(t, append(head, a...), append(bytes.Clone(head), b...))
		set, err := capture.OpenInputs(paths, capture.InputOptions{Protocol: melin.Name})
		if err != nil {
			return // no melin input: nothing to build
		}
		if _, err := Build(set, filepath.Join(t.TempDir(), "out"), Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

// The first entries behind a Rotate are missing: the segment before is closed.
func TestHoleBehindRotate(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	p.rotate()
	p.send(1, 0)
	p.send(2, 0)
	p.check()
	out, r := build(t, save(t, without(p.b, melin.TagInputBatch, 1))...)
	g := r.Lineages[0]
	if len(g.Files) != 3 || g.Files[1].Entries != 0 || g.Files[2].Kind != "entries" || g.Files[2].Start != 5 {
		t.Errorf("%+v", g.Files)
	}
	if b := read(t, out, "lineage-1", "j.journal.000001"); !bytes.Equal(b[HeaderSize:], p.segments[0]) {
		t.Error("the closed segment")
	}
	if c := r.proofOf(0, "chain"); c.Proved != 1 || c.Reasons["sequence 4 missing"] != 1 {
		t.Errorf("%+v", c)
	}
}

// The first entry behind a Rotate is the last of the recording, and damaged.
func TestDamageBehindRotate(t *testing.T) {
	p := newPrimary(8, 'a')
	p.send(3, 0)
	p.rotate()
	p.send(1, 0)
	p.check()
	b := bytes.Clone(p.b)
	at, _ := frames(b)
	b[at[5]+30] ^= 1
	out, r := build(t, save(t, b)...)
	if g := r.Lineages[0]; len(g.Files) != 2 || g.Files[1].Start != 4 || g.Files[1].Entries != 0 || r.proofOf(0, "chain").Failed != 1 {
		t.Errorf("%+v %+v", g.Files, g.Proofs)
	}
	if b := read(t, out, "lineage-1", "j.journal.000001"); !bytes.Equal(b[HeaderSize:], p.segments[0]) {
		t.Error("the closed segment")
	}
}
