package shadow

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"wiretape/capture"
	recorder "wiretape/capture/record"
	"wiretape/capture/source"
	"wiretape/internal/aewrgen"
	"wiretape/wire"
)

// TestRelayedSessionIsRebuilt has an orchestrator talk to two workers through a
// relay, over sockets, and rebuilds what was said from what the relay recorded.
func TestRelayedSessionIsRebuilt(t *testing.T) {
	s := aewrgen.Make(aewrgen.Options{Seed: 12, Version: 30, Workers: 2, Requests: 25, ChunkBytes: 3000, Gap: true, Differ: true})
	workers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer workers.Close()
	dir := filepath.Join(t.TempDir(), "rec")
	rec, err := recorder.Open(dir, recorder.Options{Capture: capture.Options{RotateBytes: 20_000}})
	if err != nil {
		t.Fatal(err)
	}
	listen, err := source.Parse("listen+tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := source.Listen(t.Context(), listen, 0)
	if err != nil {
		t.Fatal(err)
	}
	to, err := source.Parse("tcp://" + workers.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		rec.Relay(ctx, l, to)
	}()
	ids := map[[2]int]string{}
	for n, w := range s.Workers {
		before := rec.Status().Connections
		talk(t, l.Addr().String(), workers, w)
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if now := rec.Status(); now.Open == 0 && now.Connections > before {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("worker %d: still open: %+v", n, now)
			}
		}
	}
	stop()
	<-relayed
	if r, err := rec.Close(); err != nil || r.Verdict != recorder.VerdictClean {
		t.Fatalf("%+v, %v", r, err)
	}
	recorded := set(t, dir)
	for _, c := range recorded.Connections {
		direction := aewrgen.Down
		if c.Direction == wire.Upstream {
			direction = aewrgen.Up
		}
		n := 0
		if _, taken := ids[[2]int{0, direction}]; taken {
			n = 1
		}
		ids[[2]int{n, direction}] = c.ID
		for _, f := range c.Files {
			if len(s.Workers[n].Streams[direction]) > 60_000 && len(c.Files) < 3 || f.Sidecar == nil || !f.Sidecar.StartsAtBoundary || !f.Sidecar.EndsAtBoundary {
				t.Errorf("%s of %d files is not cut at frames", f.Name, len(c.Files))
			}
		}
	}
	rebuild(t, ids, dir).checkAll(t, s)
}

// talk lets an orchestrator and a worker send their streams to each other at
// the same time, and holds what each received against what was sent.
func talk(t *testing.T, addr string, workers net.Listener, w *aewrgen.Worker) {
	t.Helper()
	orchestrator, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := workers.Accept()
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	for direction, c := range []net.Conn{orchestrator, worker} {
		go func() {
			_, err := c.Write(w.Streams[direction])
			if tcp, ok := c.(*net.TCPConn); ok && err == nil {
				err = tcp.CloseWrite()
			}
			errs <- err
		}()
	}
	for direction, c := range []net.Conn{worker, orchestrator} {
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, w.Streams[direction]) {
			t.Errorf("stream %d: %d bytes of %d, %v", direction, len(got), len(w.Streams[direction]), err)
		}
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := orchestrator.Close(); err != nil {
		t.Error(err)
	}
	if err := worker.Close(); err != nil {
		t.Error(err)
	}
}
