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
	"wiretape/internal/lenproto"
)

// TestFollow reads a connection while it is being recorded, look by look: every
// byte comes once, through rotations and sealing, also where what is known of
// sealed files is remembered.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	stream, _ := lenproto.Stream(4, 300, 200)
	clock := newClock()
	d, err := capture.Create(dir, capture.Options{Registry: lenproto.Registry, Clock: clock, RotateBytes: 3000})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	opt := capture.InputOptions{Registry: lenproto.Registry, Cache: &capture.Cache{}}
	var got []byte
	look := func() {
		t.Helper()
		c := open(t, opt, dir).Connections[0]
		if len(c.Findings) > 0 || len(c.Runs()) != 1 {
			t.Fatalf("%d runs, %v", len(c.Runs()), c.Findings)
		}
		rr, _ := c.Runs()[0].OpenAt(int64(len(got)))
		b, err := io.ReadAll(rr)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
		if f := rr.Findings(); len(f) > 0 {
			t.Fatalf("%v", f)
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
	if !bytes.Equal(got, stream) {
		t.Fatal("what was followed is not what came")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// What is remembered of a file is forgotten when it changes or goes.
	names := capFiles(t, dir)
	if err := os.Remove(names[2]); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(names[5], 100); err != nil {
		t.Fatal(err)
	}
	c := open(t, opt, dir).Connections[0]
	if got := kinds(c.Findings); len(c.Runs()) != 3 || got != capture.KindMissingFiles+" "+capture.KindShortFile {
		t.Fatalf("%d runs, %v", len(c.Runs()), got)
	}
}

// TestOpenWhileRecording looks again and again at a directory in which files
// are sealed all the time: nothing is ever found, and what is read is a prefix
// of what was sent.
func TestOpenWhileRecording(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	stream, _ := lenproto.Stream(4, 150, 200)
	d, err := capture.Create(dir, capture.Options{Registry: lenproto.Registry, RotateBytes: 500})
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
