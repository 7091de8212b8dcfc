package record

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"wiretape/capture"
	"wiretape/capture/source"
	"wiretape/wire"
)

// relayRead is the memory for reads of a direction that is not recorded.
const relayRead = 256 << 10

// dialLimit is how long the server behind a relay may take to answer.
const dialLimit = 15 * time.Second

// Relay passes connections that come in on l on to an endpoint, tcp or unix,
// and records both directions, until ctx ends. Recording never holds the
// traffic up: what can't be recorded is passed on, counted and said. In a
// strict recorder it is the other way: a full buffer holds the peers up, and
// when recording fails the relay stops.
func (r *Recorder) Relay(ctx context.Context, l net.Listener, to *source.Endpoint) {
	r.lenient.Store(!r.opt.Strict)
	ctx, cancel := r.begin(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	back := source.NewBackoff(time.Second)
	places := make(chan struct{}, r.opt.MaxConnections)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := l.Accept()
		if err != nil {
			<-places
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, net.ErrClosed) {
				r.giveUp(to, fmt.Errorf("accept: %w", err), false)
				return
			}
			r.log.Warn("accept", "err", err)
			if source.Wait(ctx, back.Next(err)) != nil {
				return
			}
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-places }()
			r.relayOne(ctx, c, l.Addr().String(), to)
		}()
	}
}

// relayOne relays one connection to its end.
func (r *Recorder) relayOne(ctx context.Context, client net.Conn, at string, to *source.Endpoint) {
	p := &pair{client: client}
	defer client.Close()
	network := "tcp"
	if to.Scheme == source.SchemeUnix {
		network = "unix"
	}
	peer := "a client"
	if a := client.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		peer = a.String()
	}
	d := net.Dialer{Timeout: dialLimit}
	server, err := d.DialContext(ctx, network, to.Address)
	if err != nil {
		// The client sees what it would have seen: a connection that breaks.
		p.abort(client)
		if !errors.Is(err, context.Canceled) {
			r.attempt(to, fmt.Errorf("%s: for %s: %w", to, peer, err))
		}
		return
	}
	defer server.Close()
	p.server = server
	name := fmt.Sprintf("relay at %s, of %s to %s", at, peer, to)
	down, up := r.tapePair(p, name)
	log := r.log.With("client", peer, "server", to.String())
	if r.opt.ClientPublishes {
		down, up = up, down
	}
	downWay := &way{from: server, to: client, tape: r.recordingOf(down)}
	upWay := &way{from: client, to: server, tape: r.recordingOf(up)}
	log.Info("relaying")
	stop := context.AfterFunc(ctx, p.stop)
	defer stop()
	upEnd, downEnd := p.run(upWay, downWay)
	for _, e := range []struct {
		t   *tape
		w   *way
		end source.Verdict
	}{{down, downWay, downEnd}, {up, upWay, upEnd}} {
		if n := e.w.undelivered; n > 0 {
			e.end.Reason += fmt.Sprintf("; received and not taken by the receiver: the last %s", wire.Count(int64(n), "byte"))
		}
		e.t.finish(e.end)
		r.report(e.t, e.end, false, log)
	}
}

// tapePair begins the recording of both directions: down is from the publisher.
// The traffic does not wait for it.
func (r *Recorder) tapePair(p *pair, name string) (down, up *tape) {
	info := func(d wire.Direction) capture.ConnInfo {
		return capture.ConnInfo{Endpoint: name, Protocol: r.opt.Protocol, Direction: d}
	}
	var both sync.Once
	var wd, wu *capture.Writer
	var err error
	begin := func() {
		if full := r.space.full.Load(); full != nil && full.Free < full.Keep {
			err = full
		} else {
			wd, wu, err = r.dir.ConnectPair(info(wire.Downstream), info(wire.Upstream))
		}
		if err != nil && !r.opt.Strict {
			r.journal(capture.Entry{Event: capture.EventError, Endpoint: name, Detail: "relayed without being recorded: " + err.Error()})
		}
	}
	var once sync.Once
	failed := func(err error) { once.Do(func() { r.relayTrouble(p, err) }) }
	down = r.newTape(name, false, func() (*capture.Writer, error) { both.Do(begin); return wd, err }, failed)
	// What goes to a publisher is often no protocol of its own, as a request is.
	up = r.newTape(name, true, func() (*capture.Writer, error) { both.Do(begin); return wu, err }, failed)
	return down, up
}

// relayTrouble is what happens when a connection can't be recorded. Where the
// recording ends, its sidecar says it.
func (r *Recorder) relayTrouble(p *pair, err error) {
	if r.opt.Strict {
		r.fail(err)
		p.stop()
		return
	}
	r.count.setTrouble(err.Error())
	r.log.Error("NOT RECORDING: the connection is relayed on", "err", err)
}

func (r *Recorder) recordingOf(t *tape) recording {
	return &relayTape{r: r, t: t, strict: r.opt.Strict}
}

// relayTape puts what a relay passes on into a tape as long as that can take
// it. A recording has no holes: after the first byte that it can't take it ends
// there, and the rest is counted.
type relayTape struct {
	r      *Recorder
	t      *tape
	strict bool
	// own is the memory once nothing is recorded any more.
	own []byte
}

func (k *relayTape) room() []byte {
	if k.own != nil {
		return k.own
	}
	if k.strict {
		k.r.admit()
		if p := k.t.buf.reserve(); p != nil {
			return k.r.limit(p)
		}
	} else if full := k.r.full(); full != nil {
		k.t.overrun(full)
	} else if p, full := k.t.buf.tryReserve(); p != nil {
		return p
	} else if full {
		k.t.overrun(errOverrun)
	}
	k.own = make([]byte, relayRead)
	return k.own
}

func (k *relayTape) passed(n int) {
	if k.own == nil {
		k.t.commit(n, k.r.clock.Now())
		return
	}
	k.t.pass(n)
}
