//go:build interop

package interop_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"wiretape/interop"
)

// serve starts the rig's server and gives the endpoint it listens on. wait
// waits for it to end, which it does after one client.
func serve(t *testing.T, listen string, args ...string) (endpoint string, wait func()) {
	t.Helper()
	cmd := exec.Command(programs.Rig, append([]string{"serve", "--listen", listen}, args...)...)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	first, err := lines.ReadBytes('\n')
	var hello struct {
		Listening string `json:"listening"`
	}
	if err == nil {
		err = json.Unmarshal(first, &hello)
	}
	if err != nil {
		t.Fatalf("serve: %v: %s%s", err, first, words.Bytes())
	}
	return hello.Listening, func() {
		t.Helper()
		io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v: %s", err, words.Bytes())
		}
	}
}

// transports are where a publisher may be recorded from.
func transports(t *testing.T) []string {
	return []string{"tcp://127.0.0.1:0", "http://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "s")}
}

// record captures what the endpoint sends until it ends, which must be at a
// frame boundary.
func record(t testing.TB, endpoint string, flags ...string) (dir string) {
	t.Helper()
	dir, exit := recordCut(t, endpoint, flags...)
	if exit != 0 {
		t.Fatalf("capture of a whole stream: exit %d", exit)
	}
	return dir
}

// recordCut captures what may end anywhere.
func recordCut(t testing.TB, endpoint string, flags ...string) (dir string, exit int) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "capture")
	args := append([]string{"record", endpoint, "--dir", dir, "--no-retry"}, flags...)
	r := run(t, programs.Capture, args...)
	if r.Exit != 0 && r.Exit != 3 {
		t.Fatalf("capture %q: exit %d: %s%s", args, r.Exit, r.Stdout, r.Stderr)
	}
	return dir, r.Exit
}

// sameBytes: the files of the capture, one after the other, are the stream.
func sameBytes(t testing.TB, stream, dir string) {
	t.Helper()
	want, err := os.ReadFile(stream)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.cap"))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	if sum := sha256.Sum256(want); !bytes.Equal(sum[:], h.Sum(nil)) {
		t.Errorf("%d capture files do not add up to the stream", len(files))
	}
}

// encoderOf is the encoder that the stream's sources name, as the crate
// decodes it.
func encoderOf(t testing.TB, stream string) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(run(t, programs.Rig, "frames", stream).Stdout))
	for dec.More() {
		var f struct {
			Name     string            `json:"name"`
			Metadata map[string]string `json:"metadata"`
		}
		if err := dec.Decode(&f); err != nil {
			t.Fatal(err)
		}
		if f.Name == "Handshake" && f.Metadata["encoder"] != "" {
			return f.Metadata["encoder"]
		}
	}
	return "none"
}

// sameCounters: what the crate's subscriber counted is what the report counts.
func sameCounters(t testing.TB, crate interop.Applied, ours interop.Report) {
	t.Helper()
	for name, want := range map[string]int64{
		"sources": crate.Sources, "source_updates": crate.SourceUpdates, "index_entries": crate.IndexEntries,
		"rows": crate.Rows, "rows_skipped": crate.RowsSkipped, "segments": crate.Segments,
		"segments_held": crate.SegmentsHeld, "clock_offsets": crate.ClockOffsets, "kinds_skipped": crate.KindsSkipped,
	} {
		if got, ok := ours.Counts[name]; !ok || got != want {
			t.Errorf("%s: the crate counts %d, the report %d (there: %v)", name, want, got, ok)
		}
	}
	if n := ours.Counts["segments_quarantined"]; n != 0 {
		t.Errorf("%d segments of a real stream were set aside", n)
	}
}

// wholeWay takes one stream from the crate's publisher to the crate's reader:
// over a socket into a capture, rebuilt, verified, read and dumped, beside what
// the crate's own subscriber makes of the same bytes.
func wholeWay(t *testing.T, stream, transport string, minted bool, rotate int64) {
	t.Helper()
	endpoint, wait := serve(t, transport, "--stream", stream, "--write-seed", "7", "--write-bytes", "9000")
	dir := record(t, endpoint, "--rotate-bytes", strconv.FormatInt(rotate, 10))
	wait()
	sameBytes(t, stream, dir)
	encoder := encoderOf(t, stream)
	tmp := t.TempDir()
	theirs := filepath.Join(tmp, "crate.dendro")
	applied := subscribe(t, stream, theirs, encoder)
	if applied.Exit != 0 {
		t.Fatalf("the crate refuses the stream: %s", applied.Error)
	}
	want := comparable(dump(t, theirs), minted)
	for _, depth := range []string{"none", "footer", "rows", "full"} {
		ours := filepath.Join(tmp, depth+".dendro")
		report, exit := build(t, ours, []string{dir}, "--check", depth)
		if exit != 0 {
			t.Errorf("check %s: exit %d: %v", depth, exit, report.Findings)
		}
		crateAccepts(t, ours, encoder)
		sameCounters(t, applied, report)
		sameDump(t, want, comparable(dump(t, ours), minted))
		if !minted {
			sameByDiff(t, theirs, ours)
		}
	}
	if r := run(t, programs.Replay, "verify", theirs); r.Exit != 0 {
		t.Errorf("replay verify of the crate's archive: exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
}

// sameByDiff: replay diff sees no difference between the crate's archive and
// ours but the session that the crate's writer notes of itself.
func sameByDiff(t *testing.T, theirs, ours string) {
	t.Helper()
	var c struct {
		Sources []struct {
			Only   string `json:"only"`
			Fields []struct {
				Name string `json:"name"`
			} `json:"fields"`
			Streams []any `json:"streams"`
			Clock   any   `json:"clock_offsets"`
		} `json:"sources"`
	}
	r := run(t, programs.Replay, "diff", theirs, ours, "--json")
	if err := r.JSON(&c); err != nil {
		t.Fatalf("exit %d: %v: %s", r.Exit, err, r.Stderr)
	}
	for _, s := range c.Sources {
		if s.Only != "" || len(s.Streams) > 0 || s.Clock != nil || len(s.Fields) != 1 || s.Fields[0].Name != "metadata.writer_sessions" {
			t.Errorf("replay diff: %s", r.Stdout)
		}
	}
}

// comparable takes out of a dump what two writers mint differently.
func comparable(d interop.Dump, minted bool) interop.Dump {
	if minted {
		for i := range d.Sources {
			s := interop.Minted
			d.Sources[i].UUID = &s
		}
	}
	return d
}

func TestFixtures(t *testing.T) {
	var streams []string
	for _, p := range []string{"real/*.stream", "telemetry/*.stream", "reconnect/*.stream"} {
		streams = append(streams, fixtures(t, p)...)
	}
	for i, s := range streams {
		t.Run(filepath.Base(filepath.Dir(s))+"/"+base(s), func(t *testing.T) {
			all := transports(t)
			wholeWay(t, s, all[i%len(all)], false, 20_000)
		})
	}
}

// A telemetry producer whose series come and go: segments with nested
// lists and several Parquet rows to a timestamp, a first Rows frame of megabytes.
func TestTelemetryChurn(t *testing.T) {
	packed, err := os.Open(filepath.Join("testdata", "churn.stream.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := zstd.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	stream := filepath.Join(t.TempDir(), "churn.stream")
	f, err := os.Create(stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, z); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wholeWay(t, stream, "http://127.0.0.1:0", false, 300_000)
}

// seed is printed, and taken from INTEROP_SEED to repeat a run.
func seed(t *testing.T) uint64 {
	n := uint64(time.Now().UnixNano())
	if s := os.Getenv("INTEROP_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal("INTEROP_SEED:", err)
		}
	}
	t.Logf("INTEROP_SEED=%d", n)
	return n
}

// rounds is how often a random test runs: n, and ten times n in a long campaign.
func rounds(n int) int {
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		return 10 * n
	}
	return n
}

// randomFlags are flags for the crate's publisher; minted says that the stream
// brings no uuids.
func randomFlags(r *rand.Rand) (flags []string, minted bool) {
	num := func(name string, from, to int) {
		flags = append(flags, name, strconv.Itoa(from+r.IntN(to-from+1)))
	}
	num("--seed", 1, 1<<30)
	num("--sources", 1, 4)
	num("--streams", 1, 9)
	num("--segments", 0, 4)
	num("--rows-per-segment", 1, 300)
	num("--live-intervals", 0, 80)
	num("--row-bytes", 12, 900)
	num("--seal-every", 0, 30)
	num("--index-every", 0, 9)
	num("--empty-every", 0, 7)
	for _, f := range []string{"--mixed-sizes", "--caller-index", "--negative-ts", "--unicode-labels", "--late-stream",
		"--late-source", "--source-update", "--no-uuid", "--complete"} {
		if r.IntN(3) == 0 {
			flags = append(flags, f)
			minted = minted || f == "--no-uuid"
		}
	}
	return flags, minted
}

func TestPublishedStreams(t *testing.T) {
	r := rand.New(rand.NewPCG(seed(t), 1))
	for i := range rounds(12) {
		flags, minted := randomFlags(r)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("%q", flags)
			stream := filepath.Join(t.TempDir(), "a.stream")
			publish(t, append(flags, "--out", stream)...)
			all := transports(t)
			wholeWay(t, stream, all[i%len(all)], minted, 1<<(8+r.IntN(12)))
		})
	}
	t.Run("medium", func(t *testing.T) {
		stream := filepath.Join(t.TempDir(), "medium.stream")
		publish(t, "--out", stream, "--sources", "2", "--streams", "4", "--segments", "3", "--rows-per-segment", "1000",
			"--row-bytes", "1024", "--mixed-sizes", "--caller-index", "--late-stream", "--late-source", "--source-update")
		wholeWay(t, stream, "tcp://127.0.0.1:0", false, 1<<20)
	})
}

// A publisher that is still going while it is recorded: the stream grows on the
// socket at its own pace.
func TestLivePublisher(t *testing.T) {
	tmp := t.TempDir()
	stream := filepath.Join(tmp, "live.stream")
	endpoint, wait := serve(t, "http://127.0.0.1:0", "--out", stream, "--interval-ms", "25", "--live-intervals", "80",
		"--sources", "2", "--streams", "3", "--unicode-labels", "--source-update", "--late-source")
	dir := record(t, endpoint, "--rotate-every", "500ms")
	wait()
	sameBytes(t, stream, dir)
	theirs, ours := filepath.Join(tmp, "crate.dendro"), filepath.Join(tmp, "ours.dendro")
	applied := subscribe(t, stream, theirs, rigEncoder)
	report, exit := build(t, ours, []string{dir})
	if exit != 0 {
		t.Errorf("exit %d: %v", exit, report.Findings)
	}
	sameCounters(t, applied, report)
	crateAccepts(t, ours, rigEncoder)
	sameDump(t, dump(t, theirs), dump(t, ours))
}

// The connections of one publisher, whatever was sealed between them, give the
// publisher's own archive in every order.
func TestReconnects(t *testing.T) {
	r := rand.New(rand.NewPCG(seed(t), 2))
	for i := range rounds(6) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tmp := t.TempDir()
			own := filepath.Join(tmp, "publisher.dendro")
			flags := []string{"--out", filepath.Join(tmp, "c"), "--archive", own, "--final-connect",
				"--seed", strconv.Itoa(1 + r.IntN(1<<30)), "--sources", strconv.Itoa(1 + r.IntN(3)),
				"--reconnects", strconv.Itoa(1 + r.IntN(3)), "--live-intervals", strconv.Itoa(60 + r.IntN(120)),
				"--seal-every", strconv.Itoa(5 + r.IntN(25)), "--outage", strconv.Itoa(r.IntN(12)),
				"--overlap", strconv.Itoa(r.IntN(12)), "--source-update"}
			t.Logf("%q", flags)
			var inputs []string
			for _, p := range publish(t, flags...) {
				inputs = append(inputs, p.Out)
			}
			want := dump(t, own)
			for n := range 3 {
				ours := filepath.Join(tmp, strconv.Itoa(n)+".dendro")
				report, _ := build(t, ours, inputs)
				crateAccepts(t, ours, rigEncoder)
				sameDump(t, want, dump(t, ours))
				for _, name := range []string{"rows_below_watermark", "rows_conflicting", "segments_quarantined"} {
					if report.Counts[name] != 0 {
						t.Errorf("%s is %d", name, report.Counts[name])
					}
				}
				r.Shuffle(len(inputs), func(a, b int) { inputs[a], inputs[b] = inputs[b], inputs[a] })
			}
			// An archive of each connection, merged, is the same again.
			for i, in := range inputs {
				inputs[i] = filepath.Join(tmp, "part"+strconv.Itoa(i)+".dendro")
				build(t, inputs[i], []string{in})
			}
			merged := filepath.Join(tmp, "merged.dendro")
			if x := run(t, programs.Replay, append([]string{"merge", "--archive", merged}, inputs...)...); x.Exit != 0 && x.Exit != 3 {
				t.Fatalf("merge: exit %d: %s%s", x.Exit, x.Stdout, x.Stderr)
			}
			crateAccepts(t, merged, rigEncoder)
			sameDump(t, want, dump(t, merged))
		})
	}
}

// Connections that were cut anywhere, repeated and split give one archive,
// whatever their order, and the crate reads it.
func TestAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(seed(t), 3))
	for i := range rounds(6) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tmp := t.TempDir()
			flags, _ := randomFlags(r)
			flags = slices.DeleteFunc(flags, func(f string) bool { return f == "--complete" || f == "--no-uuid" })
			flags = append(flags, "--out", filepath.Join(tmp, "c"), "--reconnects", strconv.Itoa(1+r.IntN(3)), "--overlap", strconv.Itoa(r.IntN(20)),
				"--outage", strconv.Itoa(r.IntN(10)))
			t.Logf("%q", flags)
			var inputs []string
			for _, p := range publish(t, flags...) {
				if r.IntN(2) == 0 {
					if err := os.Truncate(p.Out, 14+r.Int64N(p.Bytes-13)); err != nil {
						t.Fatal(err)
					}
				}
				if r.IntN(2) == 0 {
					endpoint, wait := serve(t, "tcp://127.0.0.1:0", "--stream", p.Out)
					dir, _ := recordCut(t, endpoint, "--rotate-bytes", strconv.Itoa(1000+r.IntN(20_000)))
					wait()
					sameBytes(t, p.Out, dir)
					inputs = append(inputs, dir)
				}
				inputs = append(inputs, p.Out)
			}
			var want interop.Dump
			for n := range 4 {
				ours := filepath.Join(tmp, strconv.Itoa(n)+".dendro")
				build(t, ours, inputs)
				crateAccepts(t, ours, rigEncoder)
				if got := dump(t, ours); n == 0 {
					want = got
				} else {
					sameDump(t, want, got)
				}
				r.Shuffle(len(inputs), func(a, b int) { inputs[a], inputs[b] = inputs[b], inputs[a] })
			}
		})
	}
}

// A relay between the crate's publisher and its subscriber: the subscriber's
// archive is as without it, and the recording gives the same.
func TestRelay(t *testing.T) {
	tmp := t.TempDir()
	stream := filepath.Join(tmp, "a.stream")
	publish(t, "--out", stream, "--sources", "2", "--streams", "4", "--caller-index", "--unicode-labels", "--source-update")
	endpoint, wait := serve(t, "tcp://127.0.0.1:0", "--stream", stream, "--write-seed", "5", "--write-bytes", "3000")
	socket, dir := filepath.Join(tmp, "s"), filepath.Join(tmp, "capture")
	relay := exec.Command(programs.Capture, "relay", "--listen", "unix://"+socket, "--to", endpoint, "--dir", dir, "--rotate-bytes", "20000")
	var words bytes.Buffer
	relay.Stdout, relay.Stderr = &words, &words
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Process.Kill() })
	for i := 0; ; i++ {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if i == 500 {
			t.Fatal("the relay does not listen")
		}
		time.Sleep(10 * time.Millisecond)
	}
	through, direct, ours := filepath.Join(tmp, "through.dendro"), filepath.Join(tmp, "direct.dendro"), filepath.Join(tmp, "ours.dendro")
	if a := subscribe(t, "unix://"+socket, through, rigEncoder); a.Exit != 0 {
		t.Fatal(a.Error)
	}
	wait()
	if err := relay.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := relay.Wait(); err != nil {
		t.Errorf("relay: %v: %s", err, words.Bytes())
	}
	subscribe(t, stream, direct, rigEncoder)
	want := dump(t, direct)
	sameDump(t, want, dump(t, through))
	if report, exit := build(t, ours, []string{dir}); exit != 0 {
		t.Errorf("exit %d: %v", exit, report.Findings)
	}
	sameDump(t, want, dump(t, ours))
}

// What replay play sends is to the crate's subscriber as if the publisher sent
// it.
func TestPlay(t *testing.T) {
	tmp := t.TempDir()
	stream := filepath.Join(tmp, "a.stream")
	publish(t, "--out", stream, "--sources", "2", "--streams", "3", "--caller-index", "--late-stream", "--late-source", "--source-update")
	endpoint, wait := serve(t, "tcp://127.0.0.1:0", "--stream", stream)
	dir := record(t, endpoint, "--rotate-bytes", "7000")
	wait()
	want := filepath.Join(tmp, "want.dendro")
	subscribe(t, stream, want, rigEncoder)
	for i, input := range []string{dir, stream} {
		got := filepath.Join(tmp, strconv.Itoa(i)+".dendro")
		cmd := exec.Command(programs.Rig, "subscribe", "listen+tcp://127.0.0.1:0", "--archive", got)
		words, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		lines := bufio.NewReader(words)
		hello, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		to := strings.TrimSpace(strings.TrimPrefix(hello, "listening on "))
		if r := run(t, programs.Replay, "play", input, "--to", to, "--speed", "max"); r.Exit != 0 {
			t.Errorf("play: exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
		}
		io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the crate's subscriber: %v", err)
		}
		sameDump(t, dump(t, want), dump(t, got))
	}
}
