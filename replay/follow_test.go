package replay

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/replay/segment"
)

func opener(paths ...string) func() (*capture.Set, error) {
	return func() (*capture.Set, error) { return capture.OpenInputs(paths, capture.InputOptions{}) }
}

// Following a capture while it is written gives the archive of one go, for
// every recording, whatever the pieces in which it arrives; and the archive is
// behind by less than a second meanwhile.
func TestFollowEqualsOneGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, names := range [][]string{{"real/live"}, {"real/complete"}, {"real/small"}, {"reconnect/c1", "reconnect/c2"}, {"reconnect/c2", "reconnect/c1"},
		{"telemetry/small"}, {"crafted/segment-covers-held-rows"}, {"crafted/overlapping-segment"}, {"crafted/duplicate-row-ts"},
		{"crafted/segment-after-live-rows"}, {"crafted/rehandshake"}, {"crafted/bad-bool"}, {"crafted/ts-range-lies"}, {"crafted/truncated-in-len"}} {
		t.Run(names[0], func(t *testing.T) {
			dir := t.TempDir()
			rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			events := make(chan struct{}, 1)
			type result struct {
				r   *Report
				err error
			}
			done := make(chan result, 1)
			waiting := make(chan Status, 1000)
			d, err := capture.Create(rec, capture.Options{RotateBytes: 9000})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				r, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(rec), Events: events, Status: func(s Status) {
					select {
					case waiting <- s:
					default:
					}
				}})
				done <- result{r, err}
			}()
			total := int64(0)
			for i, name := range names {
				b := must(os.ReadFile(stream(name)))
				total += int64(len(b))
				w, err := d.Connect(capture.ConnInfo{Protocol: "auto"})
				if err != nil {
					t.Fatal(err)
				}
				for at := 0; at < len(b); {
					n := min(len(b)-at, 1+rng.IntN(len(b)/8+1))
					if _, err := w.Write(b[at:at+n], capture.Instant{Wall: int64(i+1) * 1e18, Mono: int64(at)}); err != nil {
						t.Fatal(err)
					}
					at += n
					select {
					case events <- struct{}{}:
					default:
					}
					time.Sleep(time.Millisecond)
				}
				if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			written := time.Now()
			for {
				s := <-waiting
				if s.Waiting && s.Bytes == total || s.Waiting && time.Since(written) > 3*time.Second {
					break
				}
			}
			if lag := time.Since(written); lag > time.Second && names[0] != "crafted/truncated-in-len" {
				t.Errorf("the archive is %v behind", lag)
			}
			// The look after the next one began when the end was recorded.
			for len(waiting) > 0 {
				<-waiting
			}
			for range 2 {
				<-waiting
			}
			cancel()
			res := <-done
			if res.err != nil {
				t.Fatal(res.err)
			}
			r, want := mustBuild(t, Options{Check: segment.DepthRows}, rec)
			got := dump(t, out)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("archive (-one go +followed):\n%s", diff)
			}
			if diff := cmp.Diff(r.Counts, res.r.Counts); diff != "" {
				t.Logf("counts (-one go +followed):\n%s", diff)
			}
			if r.Verdict != res.r.Verdict {
				t.Errorf("verdict %s, in one go %s: %s", res.r.Verdict, r.Verdict, res.r.JSON())
			}
			// Again: nothing changes.
			again, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(rec), Once: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, dump(t, out)); diff != "" {
				t.Errorf("archive after another run (-want +got):\n%s", diff)
			}
			if again.Verdict != r.Verdict {
				t.Errorf("another run's verdict %s, want %s: %s", again.Verdict, r.Verdict, again.JSON())
			}
		})
	}
}

// A file that is missing under a follower is named within one look, and status
// tells that it is stuck; when the file comes, all of it is there.
func TestLessonFollowerNamesAHole(t *testing.T) {
	dir := t.TempDir()
	rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
	record(t, rec, 9000, 0, must(os.ReadFile(stream("real/live"))))
	files := must(filepath.Glob(filepath.Join(rec, "*.cap")))
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	gone := files[1]
	away := filepath.Join(dir, "away")
	if err := os.Rename(gone, away); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stuck, waiting := make(chan Status, 100), make(chan Status, 100)
	done := make(chan error, 1)
	go func() {
		_, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(rec), Status: func(s Status) {
			to := waiting
			if s.Stuck != nil {
				to = stuck
			}
			if s.Stuck != nil || s.Waiting {
				select {
				case to <- s:
				default:
				}
			}
		}})
		done <- err
	}()
	select {
	case s := <-stuck:
		if s.Stuck.Kind != capture.KindMissingFiles {
			t.Errorf("stuck at %+v", s.Stuck)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the hole was not named")
	}
	if err := os.Rename(away, gone); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waiting:
	case <-time.After(10 * time.Second):
		t.Fatal("the file that came was not read")
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden(t, "dump/real/live"), dump(t, out)); diff != "" {
		t.Errorf("archive (-crate +followed):\n%s", diff)
	}
}

// An archive that is there, made in one go, is brought up to date.
func TestUpdateAnArchiveThatIsThere(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.dendro")
	mustBuild(t, Options{Archive: out}, stream("reconnect/c1"))
	if _, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(stream("reconnect/c2")), Once: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden(t, "dump/reconnect"), dump(t, out)); diff != "" {
		t.Errorf("archive (-publisher +ours):\n%s", diff)
	}
	if _, err := Follow(context.Background(), Options{Archive: stream("real/live")}, FollowOptions{Open: opener(stream("reconnect/c2")), Once: true}); err == nil {
		t.Error("a stream was taken for an archive")
	}
}

// A run that is stopped anywhere and started again ends as in one go.
func TestFollowStoppedAnywhere(t *testing.T) {
	dir := t.TempDir()
	rec := filepath.Join(dir, "rec")
	record(t, rec, 9000, 0, must(os.ReadFile(stream("reconnect/c1"))), must(os.ReadFile(stream("reconnect/c2"))))
	_, want := mustBuild(t, Options{}, rec)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 12 {
		out := filepath.Join(t.TempDir(), "out.dendro")
		for range 4 {
			ctx, cancel := context.WithCancel(context.Background())
			n := rng.IntN(6)
			_, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(rec), Once: true, Status: func(Status) {
				if n--; n < 0 {
					cancel()
				}
			}})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(rec), Once: true}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, dump(t, out)); diff != "" {
			t.Fatalf("archive (-one go +stopped):\n%s", diff)
		}
	}
}

// Inputs that could not be read when a follower was stopped are in its report.
func TestFollowTellsWhatItNeverRead(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	foreign := filepath.Join(t.TempDir(), "picture.jpg")
	write(t, foreign, []byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01"))
	r, err := Follow(ctx, Options{Archive: filepath.Join(t.TempDir(), "out.dendro")}, FollowOptions{Open: opener(foreign),
		Status: func(s Status) {
			if s.Stuck != nil {
				cancel()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Findings || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Message, "JPEG") {
		t.Errorf("verdict %s, %+v", r.Verdict, r.Findings)
	}
}

// What is in an archive and not among the inputs stays, also where an input
// would have the archive made anew: of another tool, or of an earlier run.
func TestUpdateKeepsWhatItWasNotGiven(t *testing.T) {
	odd := stream("crafted/overlapping-segment")
	has := func(out, uuid string) bool {
		return slices.ContainsFunc(dump(t, out).Sources, func(s dumpedSource) bool { return s.UUID == uuid && len(s.WAL)+len(s.Segments) > 0 })
	}
	first := golden(t, "dump/real/live").Sources[0].UUID
	for _, made := range []string{"in one go", "by an earlier run"} {
		out := filepath.Join(t.TempDir(), "out.dendro")
		steps := []string{stream("real/live"), stream("reconnect/c2"), odd}
		if made == "in one go" {
			mustBuild(t, Options{Archive: out}, steps[0])
			steps = steps[1:]
		}
		for _, in := range steps {
			if _, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(in), Once: true}); err != nil {
				t.Fatal(err)
			}
			if !has(out, first) {
				t.Fatalf("made %s: after %s the first source is gone", made, in)
			}
		}
		if !has(out, "3f2b1c4d-0000-4000-8000-000000000001") {
			t.Errorf("made %s: the last input is not there", made)
		}
	}
}

// What was pruned from a capture after it was applied stays in the archive.
func TestUpdateKeepsWhatWasPruned(t *testing.T) {
	dir := t.TempDir()
	rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out.dendro")
	record(t, rec, 9000, 0, must(os.ReadFile(stream("real/small"))))
	update := func(paths ...string) {
		if _, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(paths...), Once: true}); err != nil {
			t.Fatal(err)
		}
	}
	update(rec)
	want := golden(t, "dump/real/small").Sources[0]
	for _, f := range must(filepath.Glob(filepath.Join(rec, "*.00000001.*"))) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	update(rec, stream("crafted/overlapping-segment"))
	got := dump(t, out).Sources
	i := slices.IndexFunc(got, func(s dumpedSource) bool { return s.UUID == want.UUID })
	if i < 0 || len(got) != 2 {
		t.Fatalf("%d sources", len(got))
	}
	if diff := cmp.Diff(want, got[i]); diff != "" {
		t.Errorf("the pruned capture's source (-crate +ours):\n%s", diff)
	}
}
