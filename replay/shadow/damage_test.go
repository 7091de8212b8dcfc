package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/internal/aewrgen"
	"wiretape/internal/unfinished"
	"wiretape/replay/internal/db"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// rawFiles writes a session of one worker as two bare stream files.
func rawFiles(t testing.TB, streams [2][]byte) (dir string, paths []string, ids map[[2]int]string) {
	t.Helper()
	dir = t.TempDir()
	ids = map[[2]int]string{}
	for direction, name := range []string{"down.stream", "up.stream"} {
		if len(streams[direction]) == 0 {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, streams[direction], 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		ids[[2]int{0, direction}] = name
	}
	return dir, paths, ids
}

// dump is everything that a build holds but for its report.
func (r *rebuilt) dump(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for table := range strings.Lines(r.rows(t, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") + "\n") {
		table = strings.TrimSpace(table)
		fmt.Fprintf(&b, "%s\n%s\n", table, r.rows(t, "SELECT * FROM "+table+" ORDER BY 1, 2"))
	}
	err := filepath.WalkDir(filepath.Join(r.dir, shadowsName), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %x\n", e.Name(), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOrderOfInputsChangesNothing gives the same files in other orders, and
// twice.
func TestOrderOfInputsChangesNothing(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 5, Version: 26, Workers: 2, Requests: 8, ChunkBytes: 900, Gap: true, Differ: true, Fence: true})
	dir, ids := record(t, s, 4000)
	want := rebuild(t, ids, dir).dump(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.cap"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		if got := rebuild(t, ids, append(files, files[0])...).dump(t); got != want {
			t.Error("another order of the files gave another build")
		}
	}
}

// TestCutStreams cuts the workers' stream: what lies before the cut is rebuilt
// exactly, and nothing else is there.
func TestCutStreams(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 8, Version: 31, Workers: 1, Requests: 20, ChunkBytes: 500, Chunks: 6})
	w := s.Workers[0]
	rng := rand.New(rand.NewPCG(3, 3))
	frames := w.Frames[aewrgen.Up]
	for range 8 {
		cut := frames[1].Offset + rng.Int64N(int64(len(w.Streams[aewrgen.Up]))-frames[1].Offset)
		_, paths, ids := rawFiles(t, [2][]byte{w.Streams[aewrgen.Down], w.Streams[aewrgen.Up][:cut]})
		r := rebuild(t, ids, paths...)
		whole := 0
		for _, f := range frames {
			if f.Offset+f.Size <= cut {
				whole++
			}
		}
		want := fmt.Sprintf("%d 0", whole)
		if got := r.rows(t, "SELECT frames, losses FROM connections WHERE connection = 'up.stream'"); got != want {
			t.Errorf("cut at %d: %s, want %s", cut, got, want)
		}
		boundary := slices.ContainsFunc(frames, func(f aewrgen.Placed) bool { return f.Offset == cut })
		if _, found := r.report.FindingsByKind[wire.KindCut]; found == boundary {
			t.Errorf("cut at %d: %v", cut, r.report.FindingsByKind)
		}
		for _, q := range s.Requests {
			if q.Answered >= 0 && q.Answered+int64(aewr.HeaderSize) <= cut && slices.ContainsFunc(frames, func(f aewrgen.Placed) bool { return f.Offset == q.Answered && f.Offset+f.Size <= cut }) {
				r.checkRequest(t, q)
				continue
			}
			id := r.frame(t, 0, aewrgen.Down, q.Offset)
			if got := r.rows(t, "SELECT state FROM requests WHERE frame = ?", id); got != "none" && got != "unfinished" {
				t.Errorf("cut at %d: the request at %d is %s", cut, q.Offset, got)
			}
		}
		var chunks []aewrgen.Chunk
		for _, c := range s.Chunks {
			if slices.ContainsFunc(frames, func(f aewrgen.Placed) bool {
				return c.Direction == aewrgen.Up && f.Offset == c.Offset && f.Offset+f.Size <= cut
			}) || c.Direction == aewrgen.Down {
				chunks = append(chunks, c)
			}
		}
		r.checkShadows(t, aewrgen.Apply(chunks))
	}
}

// TestHoles takes files out of the middle of recordings: the rest is rebuilt,
// and what was matched behind a loss says so.
func TestHoles(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 21, Version: 27, Workers: 2, Requests: 25, ChunkBytes: 700, Differ: true})
	rng := rand.New(rand.NewPCG(4, 4))
	uncertain := 0
	for round := range 6 {
		dir, ids := record(t, s, 5000)
		set := set(t, dir)
		type gone struct {
			id       string
			from, to int64
		}
		var missing []gone
		for _, c := range set.Connections {
			if n := len(c.Files); n > 2 {
				f := c.Files[1+rng.IntN(n-2)]
				missing = append(missing, gone{c.ID, f.Start, f.End()})
				if err := os.Remove(f.Path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(missing) < 2 {
			t.Fatalf("round %d: %d holes", round, len(missing))
		}
		r := rebuild(t, ids, dir)
		lost := func(worker, direction int, offset int64) bool {
			return slices.ContainsFunc(missing, func(g gone) bool {
				return g.id == ids[[2]int{worker, direction}] && offset >= g.from && offset < g.to
			})
		}
		var chunks []aewrgen.Chunk
		for _, c := range s.Chunks {
			if !lost(c.Worker, c.Direction, c.Offset) {
				chunks = append(chunks, c)
			}
		}
		r.checkShadows(t, aewrgen.Apply(chunks))
		for n, w := range s.Workers {
			for direction, frames := range w.Frames {
				kept := 0
				for _, f := range frames {
					if !lost(n, direction, f.Offset) {
						kept++
					}
				}
				if got := r.rows(t, "SELECT frames FROM connections WHERE connection = ?", ids[[2]int{n, direction}]); got != fmt.Sprint(kept) {
					t.Errorf("%s frames, %d expected", got, kept)
				}
			}
		}
		for _, q := range s.Requests {
			if lost(q.Worker, aewrgen.Down, q.Offset) {
				continue
			}
			id := r.frame(t, q.Worker, aewrgen.Down, q.Offset)
			switch got := r.rows(t, "SELECT certain, state FROM requests WHERE frame = ?", id); {
			case strings.HasPrefix(got, "0"):
				uncertain++
			case got == "1 none", got == "1 unfinished":
				// Its end lies in the hole or behind it, which says so itself.
				if q.Answered >= 0 && !lost(q.Worker, aewrgen.Up, q.Answered) && !slices.ContainsFunc(missing, func(g gone) bool { return g.id == ids[[2]int{q.Worker, aewrgen.Up}] && q.Answered >= g.from }) {
					t.Errorf("the request at %d is %s", q.Offset, got)
				}
			default:
				r.checkRequest(t, q)
			}
		}
		if r.report.FindingsByKind[capture.KindMissingFiles] == 0 || r.report.Verdict != Findings {
			t.Errorf("%s: %v", r.report.Verdict, r.report.FindingsByKind)
		}
	}
	if uncertain == 0 {
		t.Error("no request was matched behind a loss")
	}
}

// TestFenceHoldsAcrossAHole loses a file, its neighbours' sidecars too: an old
// epoch behind the hole is still one.
func TestFenceHoldsAcrossAHole(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 14, Version: 22, Workers: 1, Requests: 20, ChunkBytes: 300, Fence: true})
	dir, ids := record(t, s, 4000)
	up := slices.IndexFunc(set(t, dir).Connections, func(c *capture.Connection) bool { return c.Direction == wire.Upstream })
	files := set(t, dir).Connections[up].Files
	last := files[len(files)-1]
	if len(files) < 4 || s.Fences[0].Offset < last.Start {
		t.Fatalf("%d files, the fence at %d", len(files), s.Fences[0].Offset)
	}
	if err := os.Remove(files[len(files)-2].Path); err != nil {
		t.Fatal(err)
	}
	sidecars, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(sidecars) == 0 {
		t.Fatal(sidecars, err)
	}
	for _, path := range sidecars {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	r := rebuild(t, ids, dir)
	if got := r.rows(t, "SELECT epoch, newest FROM fence_violations"); got != "7 8" || r.report.FindingsByKind[aewr.KindEpochFence] != 1 {
		t.Errorf("violations %q: %+v", got, r.report.Findings)
	}
}

// TestBothDirectionsInOneStream has a stream into which somebody merged both
// directions: it is one session of its own.
func TestBothDirectionsInOneStream(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 4, Version: 25, Workers: 1, Requests: 12, ChunkBytes: 300, Chunks: 4})
	w := s.Workers[0]
	var stream []byte
	places := [2]map[int64]int64{{}, {}}
	rng := rand.New(rand.NewPCG(2, 2))
	next := [2]int{}
	for next[0]+next[1] < len(w.Frames[0])+len(w.Frames[1]) {
		d := rng.IntN(2)
		if next[d] == len(w.Frames[d]) {
			continue
		}
		f := w.Frames[d][next[d]]
		next[d]++
		places[d][f.Offset] = int64(len(stream))
		stream = append(stream, w.Streams[d][f.Offset:f.Offset+f.Size]...)
	}
	_, paths, _ := rawFiles(t, [2][]byte{stream, nil})
	r := rebuild(t, map[[2]int]string{{0, 0}: "down.stream", {0, 1}: "down.stream"}, paths...)
	for _, q := range s.Requests {
		moved := *q
		moved.Offset = places[aewrgen.Down][q.Offset]
		if q.Answered >= 0 {
			moved.Answered = places[aewrgen.Up][q.Answered]
		}
		r.checkRequest(t, &moved)
	}
	r.checkShadows(t, s.Shadows)
	// The merge put frames of the old epoch behind frames of the new one.
	if got, want := kinds(r.report), aewr.KindEpochFence+" "+KindHole+" "+aewr.KindDirection; got != want {
		t.Errorf("findings %s, want %s", got, want)
	}
	if got := r.rows(t, "SELECT count(*) FROM heartbeats WHERE kind = 'pong' AND ping IS NULL"); got != "0" {
		t.Errorf("%s pongs without their ping", got)
	}
}

// TestSnapshotWordFallback sends chunks without the snapshot word that the
// reading expects: the chunks themselves tell.
func TestSnapshotWordFallback(t *testing.T) {
	for _, v := range []uint16{17, 18, 19, 31} {
		s := aewrgen.Make(aewrgen.Options{Seed: 6, Version: v, Workers: 2, Requests: 4, ChunkBytes: 300, NoSnapshotWord: true, Differ: true})
		dir, ids := record(t, s, 0)
		r := rebuild(t, ids, dir)
		r.checkShadows(t, s.Shadows)
		reading := slices.ContainsFunc(r.report.Findings, func(f wire.Finding) bool { return f.Kind == aewr.KindReading && f.Field == aewr.ReadingSegmentSnapshot })
		if reading != (v >= 19) {
			t.Errorf("version %d: %+v", v, r.report.Findings)
		}
	}
}

// TestVersionMismatch has peers of two versions: it is said first.
func TestVersionMismatch(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 6, Version: 30, UpVersion: 18, Workers: 2, Requests: 10, ChunkBytes: 300})
	dir, ids := record(t, s, 0)
	r := rebuild(t, ids, dir)
	if len(r.report.Mismatches) != 2 {
		t.Fatalf("%+v", r.report.Mismatches)
	}
	m := r.report.Mismatches[0]
	if m.Older != 18 || m.Newer != 30 || m.FirstNewer.Connection != ids[[2]int{0, aewrgen.Down}] || m.FirstNewer.Offset != 0 ||
		m.FirstOlder.Connection != ids[[2]int{0, aewrgen.Up}] || m.FirstOlder.Name != "WORKER_READY" || m.FirstNewer.Name != "TOPOLOGY_DELTA" {
		t.Errorf("%+v", m)
	}
	var misread []string
	for _, x := range m.Misread {
		if x.Frames <= 0 || x.Version <= 18 || x.Version > 30 {
			t.Errorf("%+v", x)
		}
		misread = append(misread, fmt.Sprint(x.Version))
	}
	// The last worker is the shadow: its downstream chunks have the word.
	if got := strings.Join(misread, " "); !strings.HasPrefix(got, "19 19") || strings.Contains(got, "31") {
		t.Errorf("misread by the changes of versions %s", got)
	}
	var text bytes.Buffer
	if err := r.report.Text(&text, "OUT"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "version mismatch: the peers of session 1 speak versions 18 and 30\n") || !strings.Contains(text.String(), "a peer of version 18 would have misread") {
		t.Error(text.String())
	}
	if json := string(r.report.JSON()); strings.Index(json, "version_mismatches") > strings.Index(json, "counts") {
		t.Error("the mismatch is not said first")
	}
}

// TestDamagedChunk breaks the checksum of one chunk's header: its bytes are not
// believed to belong where it says, and the hole is named.
func TestDamagedChunk(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 9, Version: 22, Workers: 1, Requests: 2, ChunkBytes: 400})
	w := s.Workers[0]
	up := slices.Clone(w.Streams[aewrgen.Up])
	const hit = 7
	if c := s.Chunks[hit]; c.Direction != aewrgen.Up || c.Worker != 0 {
		t.Fatalf("%+v", c)
	}
	up[s.Chunks[hit].Offset+48] ^= 1 // container_id
	s.Chunks = slices.Delete(slices.Clone(s.Chunks), hit, hit+1)
	_, paths, ids := rawFiles(t, [2][]byte{w.Streams[aewrgen.Down], up})
	r := rebuild(t, ids, paths...)
	r.checkShadows(t, aewrgen.Apply(s.Chunks))
	if r.report.FindingsByKind[KindSetAside] != 1 || r.report.Counts.ChunksSetAside != 1 || r.report.FindingsByKind[aewr.KindChecksum] != 1 {
		t.Errorf("%+v", r.report.Findings)
	}
	if got := r.rows(t, "SELECT count(*) FROM frames WHERE NOT checksum_ok"); got != "1" {
		t.Errorf("%s frames with a bad checksum in the catalogue", got)
	}
}

// TestNewerEpochWins has chunks that overlap with other bytes and epochs: the
// newest epoch's stay, also against a chunk that comes later.
func TestNewerEpochWins(t *testing.T) {
	var stream []byte
	add := func(epoch, from uint64, data string) {
		stream = aewrgen.Frame{Version: 20, Type: 0x1B, Epoch: epoch, Container: 4, Constants: aewrgen.Segment(true, from, 1, []byte(data))}.Append(stream)
	}
	add(5, 0, "aaaaaaaaaa")
	add(7, 2, "bbb")
	add(6, 0, "cccccccccccc") // behind the fence: only where nothing newer is
	add(7, 3, "d")
	_, paths, ids := rawFiles(t, [2][]byte{nil, stream})
	r := rebuild(t, ids, paths...)
	data, err := os.ReadFile(filepath.Join(r.dir, shadowsName, "tenant-0-container-4.shadow"))
	if err != nil || string(data) != "ccbdbccccccc" {
		t.Errorf("%q, %v", data, err)
	}
	if got, want := r.rows(t, "SELECT from_offset, to_offset, epoch FROM shadow_extents"), "0 2 6\n2 5 7\n5 12 6"; got != want {
		t.Errorf("extents\n%s", got)
	}
	if r.report.FindingsByKind[aewr.KindEpochFence] != 1 {
		t.Errorf("%+v", r.report.FindingsByKind)
	}
}

// TestHostileChunks asks for impossible offsets and lengths.
func TestHostileChunks(t *testing.T) {
	var stream []byte
	add := func(tenant, container, from uint64, n int) {
		stream = aewrgen.Frame{Version: 31, Type: 0x1B, Epoch: 1, Tenant: tenant, Container: container, Constants: aewrgen.Segment(true, from, 1, bytes.Repeat([]byte{7}, n))}.Append(stream)
	}
	add(1<<64-1, 1<<64-1, 10, 5)
	add(0, 0, 1<<64-1, 100)
	add(0, 0, 1<<63, 100)
	add(0, 0, MaxShadowSize-50, 100)
	add(0, 0, MaxShadowSize-100, 100)
	add(0, 0, 3, 0)
	_, paths, ids := rawFiles(t, [2][]byte{nil, stream})
	r := rebuild(t, ids, paths...)
	if r.report.Counts.ChunksSetAside != 3 || r.report.FindingsByKind[KindSetAside] != 3 {
		t.Errorf("%+v", r.report.Findings)
	}
	info, err := os.Stat(filepath.Join(r.dir, shadowsName, "tenant-0-container-0.shadow"))
	if err != nil || info.Size() != MaxShadowSize {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, shadowsName, "tenant-18446744073709551615-container-18446744073709551615.shadow")); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeftAfterAnError(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 1, Version: 20, Workers: 1, Requests: 2, ChunkBytes: 100})
	_, paths, _ := rawFiles(t, s.Workers[0].Streams)
	out := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(out, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(set(t, paths...), out, Options{}); !errors.Is(err, unfinished.ErrExists) {
		t.Errorf("%v", err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("no such protocol, only text"), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := capture.OpenInputs([]string{other}, capture.InputOptions{Protocol: capture.ProtocolRaw})
	if err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(t.TempDir(), "free")
	if r, err := Build(raw, free, Options{}); !errors.Is(err, ErrNone) || r.Verdict != Failed {
		t.Errorf("%v, %s", err, r.Verdict)
	}
	// What an earlier run left is no obstacle, and is gone.
	stopped, err := unfinished.Start(free)
	if err != nil {
		t.Fatal(err)
	}
	aside := stopped.Path() + ".aside"
	err = errors.Join(os.MkdirAll(filepath.Join(stopped.Path(), shadowsName, "old"), 0o700), os.Rename(stopped.Path(), aside),
		stopped.Abandon(), os.Rename(aside, free+unfinished.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(set(t, paths...), free, Options{}); err != nil {
		t.Error(err)
	}
	// An input that goes away while it is read.
	lost := set(t, paths...)
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	r, err := Build(lost, gone, Options{})
	for _, name := range []string{gone, gone + unfinished.Suffix} {
		if _, e := os.Lstat(name); err != nil && !errors.Is(e, fs.ErrNotExist) {
			t.Errorf("%s is there after %v", name, err)
		}
	}
	if err == nil && r.Verdict == Clean {
		t.Error("a lost file was not noticed")
	}
}

// TestTwoBuildsOfOneName has another process at work on the same folder: it is
// left alone.
func TestTwoBuildsOfOneName(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 1, Version: 20, Workers: 1, Requests: 2, ChunkBytes: 100})
	_, paths, _ := rawFiles(t, s.Workers[0].Streams)
	out := filepath.Join(t.TempDir(), "out")
	other, err := unfinished.Start(out)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(other.Path(), "kept")
	if err := unfinished.WriteFile(kept, []byte("work")); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(set(t, paths...), out, Options{}); !errors.Is(err, unfinished.ErrBusy) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the other's work is gone: %v", err)
	}
	if err := other.Abandon(); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(set(t, paths...), out, Options{}); err != nil {
		t.Fatal(err)
	}
	tables := filepath.Join(t.TempDir(), "tables")
	for _, want := range []error{nil, unfinished.ErrExists} {
		if _, err := Export(out, tables, ExportOptions{Format: CSV}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	names, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestKilledBuilds kills the process that builds, at any moment: the name is
// never there by half, and the next run makes what an undisturbed one makes.
func TestKilledBuilds(t *testing.T) {
	if out := os.Getenv("WIRETAPE_TEST_BUILD"); out != "" {
		// The child: it builds until it is killed.
		if _, err := Build(set(t, os.Getenv("WIRETAPE_TEST_INPUT")), out, Options{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	s := aewrgen.Make(aewrgen.Options{Seed: 3, Version: 31, Workers: 2, Requests: 40, ChunkBytes: 5000, Gap: true, Differ: true})
	dir, ids := record(t, s, 0)
	want := rebuild(t, ids, dir).dump(t)
	rounds := 5
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		rounds = 100
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for range rounds {
		out := filepath.Join(t.TempDir(), "out")
		child := exec.Command(os.Args[0], "-test.run=^TestKilledBuilds$")
		child.Env = append(os.Environ(), "WIRETAPE_TEST_BUILD="+out, "WIRETAPE_TEST_INPUT="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		child.Wait() // it was killed, or was done
		if _, err := os.Stat(out); err != nil {
			if _, err := Build(set(t, dir), out, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		d, err := db.Open(filepath.Join(out, catalogueName), db.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		r := &rebuilt{dir: out, db: d}
		if got := strings.ReplaceAll(r.dump(t), "tool \n", "tool test\n"); got != want {
			t.Error("the build after a kill is another one")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShadowModel holds the extents against a byte-by-byte model, over chunks
// that overlap in every way.
func TestShadowModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 5))
	for range 150 {
		s := newContainers(t.TempDir())
		c, err := s.get(containerKey{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		var data []byte
		var epochs []uint64 // 0: not written
		var differing int64
		for n := range 40 {
			from, length, epoch := rng.IntN(120), rng.IntN(40), 1+rng.Uint64N(3)
			chunk := bytes.Repeat([]byte{byte(1 + rng.IntN(2))}, length)
			for len(data) < from+length {
				data, epochs = append(data, 0), append(epochs, 0)
			}
			for i, b := range chunk {
				at := from + i
				if epochs[at] != 0 && data[at] != b {
					differing++
				}
				if epoch >= epochs[at] {
					data[at], epochs[at] = b, epoch
				}
			}
			if err := s.write(c, uint64(from), chunk, epoch, int64(n)); err != nil {
				t.Fatal(err)
			}
		}
		for len(epochs) > 0 && epochs[len(epochs)-1] == 0 {
			data, epochs = data[:len(data)-1], epochs[:len(epochs)-1]
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(c.path)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%x\nwant %x, %v", got, data, err)
		}
		var want []extent
		for i, e := range epochs {
			switch n := len(want); {
			case e == 0:
			case n > 0 && want[n-1].to == uint64(i) && want[n-1].epoch == e:
				want[n-1].to++
			default:
				want = append(want, extent{uint64(i), uint64(i) + 1, e})
			}
		}
		if !slices.Equal(c.extents, want) {
			t.Fatalf("%v\nwant %v", c.extents, want)
		}
		var counted int64
		for _, o := range c.overlap {
			counted += o.bytes
		}
		if counted != differing {
			t.Fatalf("%d differing bytes, %d expected", counted, differing)
		}
		if held := c.held(10, 90); held != uint64(len(slices.DeleteFunc(slices.Clone(epochs[min(10, len(epochs)):min(90, len(epochs))]), func(e uint64) bool { return e == 0 }))) {
			t.Fatalf("%d bytes held", held)
		}
	}
}

// TestMutatedSessions rebuilds damaged recordings: a verdict each, never a
// panic, and what the build says of itself holds.
func TestMutatedSessions(t *testing.T) {
	rounds := 40
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		rounds = 5000
	}
	rng := rand.New(rand.NewPCG(77, 1))
	s := aewrgen.Make(aewrgen.Options{Seed: 2, Version: 29, Workers: 1, Requests: 6, ChunkBytes: 200, Chunks: 4, Gap: true, Differ: true})
	for round := range rounds {
		// Each round closes and removes what it made.
		t.Run(fmt.Sprint(round), func(t *testing.T) { mutated(t, s, rng) })
	}
}

// mutated rebuilds a session after damage at random.
func mutated(t *testing.T, s *aewrgen.Session, rng *rand.Rand) {
	var streams [2][]byte
	for d, stream := range s.Workers[0].Streams {
		streams[d] = slices.Clone(stream)
		for range rng.IntN(12) {
			at := 4 + rng.IntN(len(streams[d])-4)
			switch rng.IntN(4) {
			case 0:
				streams[d][at] ^= 1 << rng.IntN(8)
			case 1:
				clear(streams[d][at:min(at+rng.IntN(100), len(streams[d]))])
			case 2:
				streams[d] = slices.Delete(streams[d], at, min(at+rng.IntN(60), len(streams[d])))
			case 3:
				streams[d] = slices.Insert(streams[d], at, streams[d][4:4+rng.IntN(len(streams[d])/4)]...)
			}
		}
	}
	_, paths, ids := rawFiles(t, streams)
	r := rebuild(t, ids, paths...)
	if n := r.rows(t, "SELECT count(*) FROM frames"); n != fmt.Sprint(r.report.Counts.Frames) {
		t.Fatalf("%s frames in the catalogue, %d in the report", n, r.report.Counts.Frames)
	}
}
