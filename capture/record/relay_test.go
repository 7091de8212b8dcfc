package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/sidecar"
	"wiretape/capture/source"
	"wiretape/internal/peer"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// relay starts one in front of a server, and gives its address and how to end
// it.
func relay(t testing.TB, network, server string, o record.Options) (addr string, r *record.Recorder, end func() (*record.Report, error)) {
	t.Helper()
	r = open(t, "rec", o)
	listen := "listen+tcp://127.0.0.1:0"
	if network == "unix" {
		listen = "listen+unix://" + filepath.Join(t.TempDir(), "relay")
	}
	le, err := source.Parse(listen)
	if err != nil {
		t.Fatal(err)
	}
	l, err := source.Listen(t.Context(), le, 0)
	if err != nil {
		t.Fatal(err)
	}
	to, err := source.Parse(network + "://" + server)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Relay(ctx, l, to)
	}()
	var once sync.Once
	var rep *record.Report
	end = func() (*record.Report, error) {
		once.Do(func() {
			cancel()
			<-done
			rep, err = r.Close()
		})
		return rep, err
	}
	t.Cleanup(func() { end() })
	return l.Addr().String(), r, end
}

// settled waits until no relayed connection is open any more.
func settled(t testing.TB, r *record.Recorder, connections int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := r.Status()
		if s.Open == 0 && s.Connections >= connections {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still open: %+v", s)
		}
	}
}

// outcome is what one side of a connection saw.
type outcome struct {
	got []byte
	err string // "", "reset" or "eof"
}

func readAll(c net.Conn) outcome {
	b, err := io.ReadAll(c)
	switch {
	case err == nil:
		return outcome{b, "eof"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return outcome{b, "reset"}
	}
	return outcome{b, err.Error()}
}

// play is a client and a server that do something to each other.
type play struct {
	name           string
	network        string
	client, server func(c net.Conn) outcome
	// up and down are what each sends.
	up, down []byte
	// part says that the relay may have received less than was sent: the
	// receiver went away.
	part bool
}

// TestRelayIsNotNoticed: each side sees through the relay what it sees of a
// direct connection, and both directions are recorded as they were sent.
func TestRelayIsNotNoticed(t *testing.T) {
	up, down := noise(3<<20), bytes.Repeat([]byte("downstream "), 200_000)
	send := func(c net.Conn, b []byte) { peer.Pieces(c, b, 9) }
	halfClose := func(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() }
	both := func(mine []byte) func(net.Conn) outcome {
		return func(c net.Conn) outcome {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				send(c, mine)
				halfClose(c)
			}()
			o := readAll(c)
			<-sent
			return o
		}
	}
	plays := []play{
		{name: "both ways at once", client: both(up), server: both(down), up: up, down: down},
		{name: "request, half-close, response",
			client: func(c net.Conn) outcome { send(c, up); halfClose(c); return readAll(c) },
			server: func(c net.Conn) outcome { o := readAll(c); send(c, down); return o }, up: up, down: down},
		{name: "the server ends its stream first",
			client: func(c net.Conn) outcome { o := readAll(c); send(c, up); return o },
			server: func(c net.Conn) outcome { send(c, down); halfClose(c); return readAll(c) }, up: up, down: down},
		{name: "one byte after another",
			client: func(c net.Conn) outcome {
				var got []byte
				for i := range 500 {
					c.Write([]byte{byte(i)})
					b := make([]byte, 1)
					io.ReadFull(c, b)
					got = append(got, b...)
				}
				return outcome{got, "eof"}
			},
			server: func(c net.Conn) outcome {
				var got []byte
				for {
					b := make([]byte, 1)
					if _, err := c.Read(b); err != nil {
						return outcome{got, "eof"}
					}
					got = append(got, b...)
					c.Write([]byte{^b[0]})
				}
			},
			up: count(500, func(i int) byte { return byte(i) }), down: count(500, func(i int) byte { return ^byte(i) })},
		{name: "nothing at all", client: func(c net.Conn) outcome { return outcome{} }, server: readAll},
		{name: "socket file", network: "unix", client: both(up), server: both(down), up: up, down: down},
		{name: "socket file, half-close", network: "unix",
			client: func(c net.Conn) outcome { send(c, up); halfClose(c); return readAll(c) },
			server: func(c net.Conn) outcome { o := readAll(c); send(c, down); return o }, up: up, down: down},
		{name: "the server resets",
			client: func(c net.Conn) outcome { c.Write(up[:10]); return readAll(c) },
			server: func(c net.Conn) outcome {
				io.ReadFull(c, make([]byte, 10))
				send(c, down[:100_000])
				peer.Reset(c)
				return outcome{}
			}, up: up[:10], down: down[:100_000]},
		{name: "the client resets",
			client: func(c net.Conn) outcome { send(c, up[:100_000]); peer.Reset(c); return outcome{} },
			server: readAll, up: up[:100_000]},
		{name: "the server closes while the client sends", part: true,
			client: func(c net.Conn) outcome {
				o := outcome{}
				for {
					if _, err := c.Write(up[:50_000]); err != nil {
						if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
							o.err = "reset"
						} else {
							o.err = err.Error()
						}
						return o
					}
				}
			},
			server: func(c net.Conn) outcome { io.ReadFull(c, make([]byte, 1000)); return outcome{} }},
	}
	for _, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.network == "" {
				p.network = "tcp"
			}
			run := func(dial func(server string) string) (client, server outcome) {
				fromServer := make(chan outcome, 1)
				script := func(c net.Conn, _ int) error { fromServer <- p.server(c); return nil }
				addr := ""
				if p.network == "unix" {
					addr = peer.ListenUnix(t, script)
				} else {
					addr = peer.Listen(t, script)
				}
				c, err := net.Dial(p.network, dial(addr))
				if err != nil {
					t.Fatal(err)
				}
				c.SetDeadline(time.Now().Add(20 * time.Second))
				client = p.client(c)
				c.Close()
				select {
				case server = <-fromServer:
				case <-time.After(20 * time.Second):
					t.Fatal("the server waits for ever")
				}
				return client, server
			}
			directClient, directServer := run(func(server string) string { return server })
			mem := vfs.NewMem()
			var r *record.Recorder
			var end func() (*record.Report, error)
			client, server := run(func(server string) string {
				var addr string
				addr, r, end = relay(t, p.network, server, record.Options{Sync: record.Sync{Every: 5 * time.Millisecond}, Capture: capture.Options{FS: mem, RotateBytes: 500_000}})
				return addr
			})
			settled(t, r, 2)
			rep, err := end()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				who         string
				direct, got outcome
			}{{"client", directClient, client}, {"server", directServer, server}} {
				if !bytes.Equal(x.direct.got, x.got.got) || x.direct.err != x.got.err {
					t.Errorf("the %s saw %d bytes and %q through the relay, %d bytes and %q without", x.who, len(x.got.got), x.got.err, len(x.direct.got), x.direct.err)
				}
			}
			if rep.NotRecorded != 0 || rep.Received != rep.Synced {
				t.Errorf("%+v", rep.Status)
			}
			for _, e := range rep.Ended {
				// It is the relay that listens, and not the client.
				if !strings.HasPrefix(e.Endpoint, "relay at ") || !strings.Contains(e.Endpoint, ", of ") || !strings.Contains(e.Endpoint, " to "+p.network+"://") {
					t.Errorf("the endpoint is told as %s", e.Endpoint)
				}
			}
			if p.part {
				return
			}
			byID, ids, _ := recorded(mem.Files())
			if len(ids) != 2 || !bytes.Equal(byID[ids[0]], p.down) || !bytes.Equal(byID[ids[1]], p.up) {
				t.Fatalf("%d connections with %d and %d bytes, want %d and %d", len(ids), len(byID[ids[0]]), len(byID[ids[1]]), len(p.down), len(p.up))
			}
			for _, s := range sidecars(t, mem.Files()) {
				other, dir := ids[1], wire.Downstream
				if s.Connection == ids[1] {
					other, dir = ids[0], wire.Upstream
				}
				if s.Pair != other || s.Direction != dir.String() {
					t.Errorf("%s: pair %s, direction %s", s.Connection, s.Pair, s.Direction)
				}
			}
		})
	}
}

func count(n int, f func(int) byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = f(i)
	}
	return b
}

// TestRelayHoldsASenderUp: a receiver that does not read holds its sender up as
// on a direct connection; the relay takes in no more than the system's buffers.
func TestRelayHoldsASenderUp(t *testing.T) {
	fill := func(addr string) (n int64) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := make([]byte, 64<<10)
		for {
			c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			k, err := c.Write(p)
			n += int64(k)
			if err != nil {
				return n
			}
		}
	}
	release := make(chan struct{})
	defer close(release)
	server := peer.Listen(t, func(c net.Conn, _ int) error { <-release; return nil })
	mem := vfs.NewMem()
	addr, r, _ := relay(t, "tcp", server, record.Options{Capture: capture.Options{FS: mem}})
	through := fill(addr)
	// The system's buffers grow to some megabytes at each of the two
	// connections; without back pressure there is no bound at all.
	const perConnection = 16 << 20
	if s := r.Status(); through > 2*perConnection || s.Received > perConnection || s.Received == 0 {
		t.Errorf("a sender got rid of %d bytes; the relay took %d in", through, s.Received)
	}
}

// TestRelayOfAPublisherThatConnects: what the client sends is downstream.
func TestRelayOfAPublisherThatConnects(t *testing.T) {
	stream := real(t)
	mem := vfs.NewMem()
	server := peer.Listen(t, func(c net.Conn, _ int) error { return peer.Hold(c) })
	addr, r, end := relay(t, "tcp", server, record.Options{ClientPublishes: true, Capture: capture.Options{FS: mem}})
	if err := peer.Publish(t.Context(), "tcp", addr, nil, peer.Send(stream)); err != nil {
		t.Fatal(err)
	}
	settled(t, r, 2)
	if _, err := end(); err != nil {
		t.Fatal(err)
	}
	for _, s := range sidecars(t, mem.Files()) {
		if want := map[bool]string{true: "downstream", false: "upstream"}[s.Length > 0]; s.Direction != want {
			t.Errorf("%d bytes are %s", s.Length, s.Direction)
		}
		if s.Length > 0 && (s.Length != int64(len(stream)) || s.Protocol != "dendro" || s.Framing != sidecar.FramingFrames) {
			t.Errorf("%d bytes of %s, framing %s", s.Length, s.Protocol, s.Framing)
		}
	}
}

// TestRelayServerGone: nobody listens behind the relay, and the client's
// connection breaks at once.
func TestRelayServerGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	mem := vfs.NewMem()
	addr, _, end := relay(t, "tcp", gone, record.Options{Capture: capture.Options{FS: mem}})
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if o := readAll(c); o.err != "reset" {
			t.Errorf("the client saw %q", o.err)
		}
		c.Close()
	}
	rep, err := end()
	if err != nil || rep.Attempts != 1 || !strings.Contains(rep.Trouble, "refused") {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// TestRelayManyAndIdle: many connections at once, of which most say nothing for
// a long time.
func TestRelayManyAndIdle(t *testing.T) {
	const n = 150
	mem := vfs.NewMem()
	echo := peer.Listen(t, func(c net.Conn, _ int) error { _, err := io.Copy(c, c); return err })
	addr, r, end := relay(t, "tcp", echo, record.Options{Capture: capture.Options{FS: mem}})
	conns := make([]net.Conn, n)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	time.Sleep(300 * time.Millisecond)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			msg := []byte(fmt.Sprintf("connection %d", i))
			c.Write(msg)
			got := make([]byte, len(msg))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, msg) {
				t.Errorf("%q, %v", got, err)
			}
			c.Close()
		}()
	}
	wg.Wait()
	settled(t, r, 2*n)
	rep, err := end()
	if err != nil || rep.Connections != 2*n || rep.Received != rep.Synced {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// TestRelayGoesOnWithoutRecording: when recording fails the traffic does not
// notice, and what is not recorded is counted; a strict relay stops.
func TestRelayGoesOnWithoutRecording(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %v", strict), func(t *testing.T) {
			mem := vfs.NewMem()
			var failing sync.Mutex
			failed := false
			f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
				failing.Lock()
				defer failing.Unlock()
				if failed && (op.Kind == "write" || op.Kind == "create") {
					return vfs.Verdict{Err: syscall.ENOSPC}
				}
				return vfs.Verdict{}
			}}
			echo := peer.Listen(t, func(c net.Conn, _ int) error { _, err := io.Copy(c, c); return err })
			addr, r, end := relay(t, "tcp", echo, record.Options{Strict: strict, Capture: capture.Options{FS: f}})
			talk := func(c net.Conn, n int) error {
				c.SetDeadline(time.Now().Add(10 * time.Second))
				go c.Write(noise(n))
				_, err := io.ReadFull(c, make([]byte, n))
				return err
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := talk(c, 1000); err != nil {
				t.Fatal(err)
			}
			for r.Status().Written < 2000 {
				time.Sleep(time.Millisecond)
			}
			failing.Lock()
			failed = true
			failing.Unlock()
			err = talk(c, 100_000)
			if strict {
				// The failure is noticed beside the traffic, which then ends.
				for i := 0; i < 100 && err == nil; i++ {
					time.Sleep(10 * time.Millisecond)
					err = talk(c, 1000)
				}
				if err == nil {
					t.Error("a strict relay goes on")
				}
				rep, err := end()
				if !errors.Is(err, syscall.ENOSPC) || rep.Verdict != record.VerdictFailed {
					t.Errorf("%v, %+v", err, rep)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// A connection that begins in this state is passed on too.
			c2, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := talk(c2, 50_000); err != nil {
				t.Fatal(err)
			}
			c.Close()
			c2.Close()
			settled(t, r, 2)
			rep, err := end()
			if err != nil || rep.Verdict != record.VerdictFindings || rep.Received != 2*(1000+100_000+50_000) ||
				rep.NotRecorded != rep.Received-rep.Written || rep.NotRecorded < 2*50_000 {
				t.Errorf("%v, %s, %+v", err, rep.Verdict, rep.Status)
			}
		})
	}
}

// TestRelayMinFree: a disk that has less free than it should keep ends the
// recordings of a relay and not its traffic, and they begin again with space.
func TestRelayMinFree(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetFree(2 << 20)
	echo := peer.Listen(t, func(c net.Conn, _ int) error { _, err := io.Copy(c, c); return err })
	addr, r, end := relay(t, "tcp", echo, record.Options{MinFree: 1 << 20, Capture: capture.Options{FS: mem}})
	talk := func(c net.Conn) {
		t.Helper()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write(noise(1000))
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	until := func(what string, ok func(record.Status) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(r.Status()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, r.Status())
			}
		}
	}
	c := dial()
	talk(c)
	until("recorded", func(s record.Status) bool { return s.Written == 2000 })
	mem.SetFree(1)
	until("ended", func(s record.Status) bool { return s.Files == 2 })
	talk(c)
	c2 := dial()
	talk(c2)
	until("counted", func(s record.Status) bool { return s.NotRecorded == 4000 })
	mem.SetFree(2 << 20)
	until("recording again", func(record.Status) bool {
		c := dial()
		talk(c)
		return r.Status().Connections > 2
	})
	rep, err := end()
	if err != nil || rep.Verdict != record.VerdictFindings || rep.Received != rep.Written+rep.NotRecorded {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// TestRelayOverrun: a disk that is slower than the traffic does not slow it; the
// recording ends at a place that is said, and what is there is what was sent.
func TestRelayOverrun(t *testing.T) {
	stream := noise(24 << 20)
	mem := vfs.NewMem()
	server := peer.Listen(t, peer.Send(stream))
	addr, r, end := relay(t, "tcp", server, record.Options{Buffer: 1, Capture: capture.Options{FS: slow(mem, 20*time.Millisecond, 0)}})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	o := readAll(c)
	took := time.Since(begun)
	c.Close()
	if !bytes.Equal(o.got, stream) || o.err != "eof" || took > 5*time.Second {
		t.Errorf("%d bytes, %q, in %v", len(o.got), o.err, took)
	}
	settled(t, r, 2)
	rep, err := end()
	byID, ids, _ := recorded(mem.Files())
	got := byID[ids[0]]
	if err != nil || rep.Verdict != record.VerdictFindings || rep.NotRecorded != int64(len(stream)-len(got)) || len(got) == 0 || !bytes.HasPrefix(stream, got) {
		t.Errorf("%v, %s, %d bytes recorded, %+v", err, rep.Verdict, len(got), rep.Status)
	}
	if e := rep.Ended[0]; !strings.Contains(e.Detail+rep.Ended[1].Detail, "slower than the traffic") {
		t.Errorf("%+v", rep.Ended)
	}
	sidecars(t, mem.Files())
}

// TestRelayStops: a stop ends idle and busy connections, and seals everything.
func TestRelayStops(t *testing.T) {
	mem := vfs.NewMem()
	server := peer.Listen(t, func(c net.Conn, n int) error {
		if n == 0 {
			return peer.Hold(c)
		}
		for {
			if _, err := c.Write(noise(10_000)); err != nil {
				return err
			}
			time.Sleep(time.Millisecond) // busy, and no faster than a loaded machine records
		}
	})
	addr, r, end := relay(t, "tcp", server, record.Options{Capture: capture.Options{FS: mem}})
	for i := range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i == 1 {
			go io.Copy(io.Discard, c)
		}
		for r.Status().Open < 2*(i+1) {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(100 * time.Millisecond)
	begun := time.Now()
	rep, err := end()
	if err != nil || rep.Verdict != record.VerdictClean || time.Since(begun) > 5*time.Second || rep.Received != rep.Synced {
		t.Errorf("%v, %s in %v, %+v", err, rep.Verdict, time.Since(begun), rep.Status)
	}
	for name := range mem.Files() {
		if strings.HasSuffix(name, ".partial") {
			t.Errorf("%s is left", name)
		}
	}
}

// TestRelayDoesNotWaitForTheDisk: a disk that hangs, from the start or later,
// holds no traffic up.
func TestRelayDoesNotWaitForTheDisk(t *testing.T) {
	mem := vfs.NewMem()
	hang := make(chan struct{})
	echo := peer.Listen(t, func(c net.Conn, _ int) error { _, err := io.Copy(c, c); return err })
	addr, r, end := relay(t, "tcp", echo, record.Options{Buffer: 1, Capture: capture.Options{FS: hanging{mem, hang}}})
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		for range 5 {
			b := noise(1 << 20)
			go c.Write(b)
			got := make([]byte, len(b))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, b) {
				t.Fatalf("the traffic is held up: %v", err)
			}
		}
		c.Close()
	}
	// A read is counted after it was passed on.
	for deadline := time.Now().Add(10 * time.Second); r.Status().Received < 3*2*5<<20 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if s := r.Status(); s.Received != 3*2*5<<20 || s.Stalled != 0 || !strings.Contains(s.Trouble, "slower than the traffic") {
		t.Errorf("%+v", s)
	}
	close(hang)
	settled(t, r, 6)
	rep, err := end()
	if err != nil || rep.Verdict != record.VerdictFindings || rep.NotRecorded == 0 || rep.Received != rep.Written+rep.NotRecorded {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// hanging is a disk on which nothing gets done until it is released.
type hanging struct {
	vfs.FS
	hang chan struct{}
}

func (h hanging) Create(name string) (vfs.File, error) {
	<-h.hang
	return h.FS.Create(name)
}

// TestRelayResetWhileTheServerSends: a client that breaks the connection off
// while the server sends is never recorded as one that ended its stream,
// whichever direction meets the reset first. One that ends its stream and then
// takes no more has ended it.
func TestRelayResetWhileTheServerSends(t *testing.T) {
	const n = 40
	for _, reset := range []bool{true, false} {
		server := peer.Listen(t, func(c net.Conn, _ int) error {
			block := noise(64 << 10)
			for {
				if _, err := c.Write(block); err != nil {
					return nil
				}
			}
		})
		mem := vfs.NewMem()
		addr, r, end := relay(t, "tcp", server, record.Options{Capture: capture.Options{FS: mem}})
		for range n {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(20 * time.Second))
			c.Write([]byte("hello"))
			if _, err := io.CopyN(io.Discard, c, 500_000); err != nil {
				t.Fatal(err)
			}
			if reset {
				c.(*net.TCPConn).SetLinger(0)
			} else {
				c.(*net.TCPConn).CloseWrite()
				time.Sleep(5 * time.Millisecond)
			}
			c.Close()
		}
		settled(t, r, 2*n)
		if _, err := end(); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, s := range sidecars(t, mem.Files()) {
			if s.Transport != nil && s.Direction != "downstream" {
				got[s.Transport.Kind]++
			}
		}
		want := map[bool]string{true: sidecar.TransportCut, false: sidecar.TransportClean}[reset]
		if got[want] != n {
			t.Errorf("reset %v: the client's direction ended %v, want %d times %s", reset, got, n, want)
		}
	}
}
