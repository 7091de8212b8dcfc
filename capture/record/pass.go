package record

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"wiretape/capture/source"
)

// pair is a relayed connection: what comes from one side goes to the other, in
// both directions, and what each side does to end its stream is done to the
// other. The two directions share nothing but that.
type pair struct {
	client, server net.Conn
	stopped        atomic.Bool
	aborted        sync.Once
}

// way is one direction of a pair.
type way struct {
	from, to net.Conn
	tape     recording
	// undelivered counts bytes received that the other side did not take.
	undelivered int64
	done        chan struct{}

	// writing is held during each write to to; broke is how one failed.
	writing sync.Mutex
	broke   error
}

// write passes bytes on.
func (w *way) write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	n, err := w.to.Write(p)
	if err != nil {
		w.broke = err
	}
	return n, err
}

// witness says whether an end of file that was read from c is its peer's word:
// nil, or how the connection broke. A connection tells once that it was reset,
// and to whoever asks first: when that was this way's write, a read meets an
// end of file. A peer that had ended its stream before the reset is told apart
// by the errno of the write, which is EPIPE then.
func (w *way) witness(c net.Conn) error {
	if hungUp(c) {
		// A write that is under way can't wait for the peer any more.
		w.writing.Lock()
	} else if !w.writing.TryLock() {
		return nil
	}
	defer w.writing.Unlock()
	var errno syscall.Errno
	if errors.As(w.broke, &errno) && errno != syscall.EPIPE {
		return w.broke
	}
	return nil
}

// recording is where a relay puts what it has passed on. None of it may hold
// up the traffic, but for a strict one.
type recording interface {
	// room gives memory for one read. It always does.
	room() []byte
	// passed records the first n bytes of what room gave.
	passed(n int)
}

// run passes bytes on until both directions have ended, and gives a verdict
// for each: up is from the client to the server.
func (p *pair) run(up, down *way) (upEnd, downEnd source.Verdict) {
	up.done, down.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(up.done)
		upEnd = p.pass(up, down)
	}()
	downEnd = p.pass(down, up)
	close(down.done)
	<-up.done
	p.client.Close()
	p.server.Close()
	return upEnd, downEnd
}

// pass moves one direction's bytes, each read at once and whole: a sender is
// held up exactly when the receiver is.
func (p *pair) pass(w, other *way) source.Verdict {
	for {
		buf := w.tape.room()
		n, err := w.from.Read(buf)
		if n > 0 {
			sent, werr := w.write(buf[:n])
			w.tape.passed(n)
			if werr != nil {
				w.undelivered += int64(n - sent)
				return p.refused(w, other, werr)
			}
		}
		if err == io.EOF {
			if broke := other.witness(w.from); broke != nil {
				err = broke
			}
		}
		if err != nil {
			return p.ended(w, err)
		}
	}
}

// ended does to the receiver what the sender did.
func (p *pair) ended(w *way, err error) source.Verdict {
	switch {
	case p.stopped.Load():
		return source.Verdict{End: source.EndSignal, Reason: "stopped by the operator"}
	case err == io.EOF:
		if c, ok := w.to.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
		return source.Verdict{End: source.EndOfStream, Reason: "the peer ended the stream"}
	case errors.Is(err, net.ErrClosed):
		return source.Verdict{End: source.EndReset, Reason: "the other direction broke the connection off"}
	}
	p.abort(w.to)
	var errno syscall.Errno
	v := source.Verdict{End: source.EndReset, Reason: err.Error()}
	if errors.As(err, &errno) {
		v.Reason = errno.Error()
		if errno == syscall.ETIMEDOUT {
			v.End = source.EndTimeout
		}
	}
	return v
}

// refused is the end of a direction whose receiver takes no more. The other
// direction may still hold bytes of that receiver: it goes on to its own end,
// which comes at once where the connection is gone, and then the sender is told.
func (p *pair) refused(w, other *way, err error) source.Verdict {
	if p.stopped.Load() {
		return source.Verdict{End: source.EndSignal, Reason: "stopped by the operator"}
	}
	reason := err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		reason = errno.Error()
	}
	v := source.Verdict{End: source.EndReset, Reason: "the receiver is gone: " + reason}
	if c, ok := w.from.(*net.UnixConn); ok {
		// A socket file can be closed for reading alone.
		c.CloseRead()
		return v
	}
	select {
	case <-other.done:
	case <-time.After(drainLimit):
	}
	p.abort(w.from)
	return v
}

const (
	// drainLimit is how long an abort waits for what was sent before it: a
	// reset overtakes nothing, as it would not on a direct connection.
	drainLimit = 2 * time.Second
	drainPoll  = 2 * time.Millisecond
)

// abort breaks the connection to c off with a reset, as its other end did, and
// ends both directions. On a socket file there is no reset, and a close is what
// the peer would have seen.
func (p *pair) abort(c net.Conn) {
	p.aborted.Do(func() {
		if t, ok := c.(*net.TCPConn); ok {
			for start := time.Now(); unsent(t) > 0 && time.Since(start) < drainLimit; {
				time.Sleep(drainPoll)
			}
			t.SetLinger(0)
		}
		c.Close()
	})
}

// stop ends both directions now. What was read is still passed on as far as
// the receiver takes it at once.
func (p *pair) stop() {
	p.stopped.Store(true)
	past := time.Unix(1, 0)
	for _, c := range []net.Conn{p.client, p.server} {
		c.SetReadDeadline(past)
		c.SetWriteDeadline(time.Now().Add(stopGrace))
	}
}

// stopGrace is how long a receiver may take for the last bytes.
const stopGrace = 200 * time.Millisecond
