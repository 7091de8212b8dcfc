package capture_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/toy"
	"wiretape/wire"
)

// TestFollow reads a connection while it is being recorded, look by look: every
// byte comes once, through rotations and sealing, and hashes are held.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	stream, _ := toy.Stream(4, 300, 200)
	clock := newClock()
	d, err := capture.Create(dir, capture.Options{Registry: toy.Registry, Clock: clock, RotateBytes: 3000})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	opt := capture.InputOptions{Registry: toy.Registry, Cache: &capture.Cache{}}
	var rr *capture.RunReader
	var got []byte
	look := func() {
		t.Helper()
		set, err := capture.OpenInputs([]string{dir}, opt)
		if err != nil {
			t.Fatal(err)
		}
		c := set.Connections[0]
		if len(c.Findings) > 0 || len(c.Runs()) != 1 {
			t.Fatalf("%d runs, %v", len(c.Runs()), c.Findings)
		}
		if rr == nil {
			rr, _ = c.Runs()[0].Open()
		} else if !rr.Extend(c.Runs()[0]) {
			t.Fatalf("at %d: the run of %d to %d does not go on", rr.Offset(), c.Runs()[0].Start, c.Runs()[0].End())
		}
		b, err := io.ReadAll(rr)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
		if f := rr.Findings(); len(f) > 0 {
			t.Fatalf("%v", f)
		}
		if rr.Offset() != int64(len(got)) {
			t.Fatalf("%d bytes came, the reader stands at %d", len(got), rr.Offset())
		}
	}
	for p := stream; len(p) > 0; {
		n := min(1+rng.IntN(900), len(p))
		if _, err := w.Write(p[:n], clock.pass(1e6)); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
		if rng.IntN(3) > 0 {
			look()
			if len(got) != len(stream)-len(p) {
				t.Fatalf("%d bytes are written, %d were read", len(stream)-len(p), len(got))
			}
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	look()
	look()
	if !bytes.Equal(got, stream) {
		t.Fatal("what was followed is not what came")
	}
	// A byte that changes in a file behind the follower is found by its hash
	// when the file comes by again, not by who has passed it.
	last := capFiles(t, dir)
	if err := os.Remove(last[2]); err != nil {
		t.Fatal(err)
	}
	set, err := capture.OpenInputs([]string{dir}, opt)
	if err != nil {
		t.Fatal(err)
	}
	if c := set.Connections[0]; len(c.Runs()) != 2 || kinds(c.Findings) != capture.KindMissingFiles {
		t.Fatalf("a file that went is not named: %v", c.Findings)
	}
	if !rr.Extend(set.Connections[0].Runs()[1]) {
		t.Fatal("what was read is no reason not to go on")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFollowHash: a file whose bytes change between reading and sealing is
// found when its hash is known.
func TestFollowHash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	stream, _ := toy.Stream(4, 30, 200)
	d, err := capture.Create(dir, capture.Options{Registry: toy.Registry})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(stream, capture.Instant{}); err != nil {
		t.Fatal(err)
	}
	partial := capFiles(t, dir)[0]
	f, err := os.OpenFile(partial, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{stream[100] ^ 1}, 100); err != nil {
		t.Fatal(err)
	}
	set := open(t, capture.InputOptions{}, dir)
	rr, ropt := set.Connections[0].Runs()[0].Open()
	dec, err := set.Connections[0].Decoder(set.Connections[0].Runs()[0])
	if err != nil {
		t.Fatal(err)
	}
	ropt.Live = true
	r := wire.NewReader(rr, dec, ropt)
	for err = nil; err == nil; {
		_, _, err = r.Next()
	}
	if err != wire.ErrMore {
		t.Fatal(err)
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	set = open(t, capture.InputOptions{}, dir)
	if !rr.Extend(set.Connections[0].Runs()[0]) {
		t.Fatal("the run does not go on")
	}
	if _, _, err := r.Next(); err != wire.ErrMore {
		t.Fatal(err)
	}
	if f := rr.Findings(); len(f) != 1 || f[0].Kind != capture.KindHashMismatch {
		t.Fatalf("%v", f)
	}
}

// TestOpenWhileRecording looks again and again at a directory in which files
// are sealed all the time: nothing is ever found, and what is read is a prefix
// of what was sent.
func TestOpenWhileRecording(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	stream, _ := toy.Stream(4, 150, 200)
	d, err := capture.Create(dir, capture.Options{Registry: toy.Registry, RotateBytes: 500})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for p := stream; len(p) > 0; {
			n := min(300, len(p))
			if _, err := w.Write(p[:n], capture.SystemClock.Now()); err != nil {
				done <- err
				return
			}
			p = p[n:]
		}
		_, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd)
		done <- err
	}()
	for looks := 1; ; looks++ {
		over := false
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
		set := open(t, capture.InputOptions{}, dir)
		if len(set.Findings) > 0 || len(set.Connections) != 1 {
			t.Fatalf("%v", set.Findings)
		}
		c := set.Connections[0]
		// Between sealing and the next file's creation the last file says that
		// it was closed for its size.
		if k := kinds(c.Findings); k != "" && (k != capture.KindNoEnd || over) || len(c.Runs()) != 1 {
			t.Fatalf("look %d: %v", looks, c.Findings)
		}
		if got := readAllRuns(t, c); !bytes.HasPrefix(stream, got) || over && len(got) != len(stream) {
			t.Fatalf("look %d: %d bytes, %d as sent", looks, len(got), commonPrefix(got, stream))
		}
		if over {
			if looks < 5 {
				t.Fatalf("only %d looks", looks)
			}
			break
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
