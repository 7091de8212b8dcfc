package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire/dendro"
)

func withIndex(b []byte, stream string, ts int64, blob string) []byte {
	return dendro.AppendIndex(b, &dendro.Index{Stream: []byte(stream), TS: t0 + ts, Kind: dendro.IndexFull, Blob: []byte(blob)})
}

func withClock(b []byte, ts, offset int64) []byte {
	return dendro.AppendClockOffset(b, &dendro.ClockOffset{TS: t0 + ts, OffsetNs: offset})
}

func withRow(b []byte, seq uint64, ts int64, text string) []byte {
	return dendro.AppendRowsOf(b, 0, seq, dendro.State{}, []dendro.Row{{Stream: []byte("x"), TS: t0 + ts, Row: []byte(text)}})
}

// upToDate brings an archive up to date, and gives how often it was made anew.
func upToDate(t *testing.T, out string, paths ...string) (anew int) {
	t.Helper()
	_, err := Follow(context.Background(), Options{Archive: out}, FollowOptions{Open: opener(paths...), Once: true, Status: func(s Status) {
		if s.Rebuilding != "" {
			anew++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return anew
}

// Of what the connections of a source say differently of one time the older one
// counts, in whatever order they come: also when it turns out later which one
// that is, by another run, or while both still come.
func TestOrderOfConnections(t *testing.T) {
	for name, c := range map[string]struct {
		// what each connection has at first, and then
		first, then [2]func(b []byte) []byte
		anew        [2]int
	}{
		"clock, the older one comes later": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withClock(withRow(b, 1, 100, "a"), 5, 1) },
				func(b []byte) []byte { return withClock(withRow(b, 1, 50, "b"), 5, 2) }},
			anew: [2]int{1, 0}},
		"clock, its first": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withClock(withClock(withRow(b, 1, 100, "a"), 5, 1), 5, 3) },
				func(b []byte) []byte { return withClock(withRow(b, 1, 150, "b"), 5, 2) }}},
		"index, the older one comes later": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte {
					return withRow(withIndex(withIndex(b, "x", 5, "new"), "x", 60, "late"), 1, 100, "a")
				},
				func(b []byte) []byte {
					return withRow(withIndex(withIndex(b, "x", 5, "old"), "x", 40, "early"), 1, 50, "b")
				}},
			anew: [2]int{1, 0}},
		"index, the same entries": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withRow(withIndex(withIndex(b, "x", 5, "p"), "x", 5, "q"), 1, 100, "a") },
				func(b []byte) []byte { return withRow(withIndex(withIndex(b, "x", 5, "p"), "x", 5, "q"), 1, 50, "b") }}},
		"index, in another order": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withRow(withIndex(withIndex(b, "x", 5, "p"), "x", 5, "q"), 1, 100, "a") },
				func(b []byte) []byte { return withRow(withIndex(withIndex(b, "x", 5, "q"), "x", 5, "p"), 1, 50, "b") }},
			anew: [2]int{1, 0}},
		"a reconnect": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withClock(withRow(withIndex(b, "x", 5, "delta"), 1, 50, "a"), 5, 1) },
				func(b []byte) []byte { return withClock(withRow(withIndex(b, "x", 5, "full"), 1, 100, "b"), 5, 2) }}},
		"equal ones apart": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte {
					return withIndex(withIndex(withIndex(b, "x", 5, "p"), "x", 5, "q"), "x", 5, "p")
				},
				func(b []byte) []byte { return b }},
			anew: [2]int{1, 0}},
		"it turns": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withClock(withRow(withIndex(b, "x", 5, "p"), 1, 50, "a"), 5, 1) },
				func(b []byte) []byte { return withClock(withRow(withIndex(b, "x", 5, "q"), 1, 100, "b"), 5, 2) }},
			then: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withRow(b, 2, 200, "c") }, nil},
			anew: [2]int{0, 1}},
		"rows, it turns": {
			first: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withRow(withRow(b, 1, 5, "a"), 2, 50, "a") },
				func(b []byte) []byte { return withRow(withRow(b, 1, 5, "b"), 2, 100, "b") }},
			then: [2]func(b []byte) []byte{
				func(b []byte) []byte { return withRow(b, 3, 200, "c") }, nil},
			anew: [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			paths := []string{filepath.Join(dir, "1"), filepath.Join(dir, "2")}
			for i, p := range paths {
				write(t, p, c.first[i](begins(1)))
			}
			check := func(when string, anew, want int) {
				t.Helper()
				_, one := mustBuild(t, Options{}, paths...)
				if diff := cmp.Diff(one, dump(t, out)); diff != "" {
					t.Errorf("%s (-one go +updated):\n%s", when, diff)
				}
				if anew != want {
					t.Errorf("%s: made anew %d times, want %d", when, anew, want)
				}
			}
			check("at once", upToDate(t, out, paths...), c.anew[0])
			for i, p := range paths {
				if c.then[i] != nil {
					appendTo(t, p, c.then[i](nil))
				}
			}
			check("then", upToDate(t, out, paths...), c.anew[1])
			check("again", upToDate(t, out, paths...), 0)
		})
	}
}

// Whatever several connections of a source say of a few times, in whatever
// pieces it comes and however often it is brought up to date, ends as in one go.
func TestUpdatesEqualOneGo(t *testing.T) {
	rounds := 15
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		rounds = 2000
	}
	seed := uint64(time.Now().UnixNano())
	for round := range rounds {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		var paths []string
		seq := uint64(0)
		for range 4 {
			if n := len(paths); n < 3 && (n == 0 || rng.IntN(2) == 0) {
				paths = append(paths, filepath.Join(dir, fmt.Sprint(n)))
				write(t, paths[n], begins(1))
			}
			for _, p := range paths {
				var b []byte
				for range rng.IntN(6) {
					seq++
					few := func() int64 { return rng.Int64N(3) }
					switch rng.IntN(4) {
					case 0:
						b = withClock(b, few(), few())
					case 1:
						b = withRow(b, seq, few(), fmt.Sprint(few()))
					case 2:
						b = withRow(b, seq, 10+rng.Int64N(1000), fmt.Sprint(few()))
					default:
						b = withIndex(b, "x", few(), fmt.Sprint(few()))
					}
				}
				appendTo(t, p, b)
			}
			upToDate(t, out, paths...)
			_, one := mustBuild(t, Options{}, paths...)
			if diff := cmp.Diff(one, dump(t, out)); diff != "" {
				t.Fatalf("seed %d, round %d (-one go +updated):\n%s", seed, round, diff)
			}
		}
	}
}

// A follower beside two recordings of one source: what turns while both grow is
// in order at the end, and a recorder that connects anew makes nothing anew.
func TestFollowOrder(t *testing.T) {
	dir := t.TempDir()
	rec, out := filepath.Join(dir, "rec"), filepath.Join(dir, "out")
	d, err := capture.Create(rec, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	connect := func(b []byte) *capture.Writer {
		t.Helper()
		w, err := d.Connect(capture.ConnInfo{Protocol: "auto"})
		if err == nil {
			_, err = w.Write(b, capture.Instant{Wall: time.Now().UnixNano()})
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	anew := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		_, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(rec), Status: func(s Status) {
			if s.Rebuilding != "" {
				anew <- s.Rebuilding
			}
		}})
		done <- err
	}()
	var writers []*capture.Writer
	for i := range 4 {
		at := int64(i) * 100
		b := withClock(withIndex(begins(1), "x", 5, fmt.Sprint("full", i)), 5, int64(i))
		writers = append(writers, connect(withRow(b, 1, at+100, fmt.Sprint("r", i))))
		waitFor(t, "a row", func() bool { return count(out, 1, fmt.Sprint("r", i)) == 1 })
	}
	if len(anew) > 0 {
		t.Errorf("made anew: %s", <-anew)
	}
	// The first goes on behind all others.
	if _, err := writers[0].Write(withRow(nil, 2, 1000, "last"), capture.Instant{Wall: time.Now().UnixNano()}); err != nil {
		t.Fatal(err)
	}
	for _, w := range writers {
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the archive anew", func() bool { return len(anew) > 0 && count(out, 1, "last") == 1 })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_, one := mustBuild(t, Options{}, rec)
	if diff := cmp.Diff(one, dump(t, out)); diff != "" {
		t.Errorf("archive (-one go +followed):\n%s", diff)
	}
}
