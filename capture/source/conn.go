package source

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// End is how a connection ended as far as its transport tells.
type End string

const (
	// EndOfStream: the peer, or the file, said that this is all.
	EndOfStream End = "end-of-stream"
	// EndNoWitness: the bytes stopped, and nothing says that they are all: a
	// response that is delimited by closing the connection, TLS without its
	// closing message, a pipe.
	EndNoWitness End = "no-witness"
	// EndCut: the transport itself knows that bytes are missing: a chunked
	// body without its last chunk, fewer bytes than Content-Length, half a
	// TLS record.
	EndCut End = "cut"
	// EndReset: the connection was broken off.
	EndReset End = "reset"
	// EndTimeout: the peer's machine no longer answers.
	EndTimeout End = "timeout"
	// EndIdle: nothing came for as long as the idle timeout.
	EndIdle End = "idle-timeout"
	// EndSignal: this side stopped reading.
	EndSignal End = "signal"
	// EndError: anything else; the reason says it.
	EndError End = "error"
)

// Verdict is what the transport knows of a connection's end.
type Verdict struct {
	End End
	// Reason says it in a few words.
	Reason string
	// Permanent says that connecting again can't help.
	Permanent bool
}

// Whole says that the transport vouches for having delivered everything.
func (v Verdict) Whole() bool { return v.End == EndOfStream }

// witness is what vouches for an end in order, if there is one.
type witness uint8

const (
	byTransport witness = iota // FIN, the last chunk, a length, the file's end
	byTLS                      // TLS's closing message
	byPipe                     // nobody: a writer that dies ends it too
	byNobody
)

var (
	errIdle    = errors.New("idle timeout")
	errStopped = errors.New("stopped")
)

// Conn is one connection. Read is for one goroutine; Interrupt and Close may
// be called from any.
type Conn struct {
	// Endpoint it came from, and the peer's address where there is one.
	Endpoint *Endpoint
	Peer     string
	// Notes are facts worth a line in the log, such as a content encoding.
	Notes []string

	r         io.Reader
	line      *line // the connection below, nil for files
	pump      *pump // what reads where there are no deadlines
	closer    func() error
	handshake func(context.Context) error
	// witness is what could vouch for an end in order.
	witness witness

	once    sync.Once
	verdict Verdict
}

// Read gives bytes as they arrive. At the end it gives an error, io.EOF or
// another, and Verdict tells what that means. Bytes may come with the error.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil {
		c.once.Do(func() { c.verdict = c.judge(err) })
	}
	return n, err
}

// Verdict is good once Read gave an error.
func (c *Conn) Verdict() Verdict { return c.verdict }

// Handshake does what must be done before the first byte of a connection that
// came in, such as TLS. It is worth nothing for others and does no harm.
func (c *Conn) Handshake(ctx context.Context) error {
	if c.handshake == nil {
		return nil
	}
	if err := c.handshake(ctx); err != nil {
		return failed(c.Endpoint, "from "+c.Peer, err)
	}
	return nil
}

// Interrupt makes a Read that waits, and each one after it, end with the
// verdict EndSignal. Bytes already taken from the system are not lost.
func (c *Conn) Interrupt() {
	if c.line != nil {
		c.line.interrupt()
	}
	if c.pump != nil {
		c.pump.interrupt()
	}
}

// Close gives the connection up.
func (c *Conn) Close() error {
	if c.closer == nil {
		return nil
	}
	return c.closer()
}

func (c *Conn) judge(err error) Verdict {
	if errors.Is(err, errStopped) || c.line != nil && c.line.wasStopped() {
		return Verdict{End: EndSignal, Reason: "stopped by the operator"}
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, errIdle):
		return Verdict{End: EndIdle, Reason: "nothing received for " + c.idle().String()}
	case err == io.EOF && c.witness == byTLS && c.line.sawEnd():
		// crypto/tls takes an end between two records for one in order.
		return Verdict{End: EndNoWitness, Reason: "TLS ended without its closing message: the end has no witness"}
	case err == io.EOF && c.witness == byPipe:
		return Verdict{End: EndNoWitness, Reason: "a pipe: the end has no witness"}
	case err == io.EOF && c.witness == byNobody:
		return Verdict{End: EndNoWitness, Reason: "close-delimited body: the end has no witness"}
	case err == io.EOF:
		return Verdict{End: EndOfStream, Reason: "the peer ended the stream"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Verdict{End: EndCut, Reason: "the connection ended before its transport said that it was complete"}
	case errors.As(err, &errno):
		switch errnoKind(c.Endpoint, errno) {
		case KindReset:
			return Verdict{End: EndReset, Reason: errno.Error()}
		case KindTimeout, KindUnreachable:
			return Verdict{End: EndTimeout, Reason: errno.Error()}
		}
		return Verdict{End: EndError, Reason: errno.Error()}
	}
	if m, ok := tlsTrouble(err); ok {
		return Verdict{End: EndError, Reason: m, Permanent: true}
	}
	if isTimeout(err) {
		return Verdict{End: EndTimeout, Reason: "no answer in time"}
	}
	return Verdict{End: EndError, Reason: innermost(err)}
}

func (c *Conn) idle() time.Duration {
	if c.line != nil {
		return c.line.idle
	}
	return c.pump.idle
}

// line is a network connection on which every read has the idle timeout, and
// which another goroutine can stop. The timeout counts while a read waits and
// not while nobody reads, so back pressure never looks like silence. It lies
// below TLS and HTTP. Deadlines are kept by the runtime's monotonic clock.
type line struct {
	net.Conn
	idle time.Duration

	mu      sync.Mutex
	stopped bool
	ended   bool // the connection below gave io.EOF
}

func (l *line) Read(p []byte) (int, error) {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return 0, errStopped
	}
	if l.idle > 0 {
		if err := l.Conn.SetReadDeadline(time.Now().Add(l.idle)); err != nil {
			l.mu.Unlock()
			return 0, err
		}
	}
	l.mu.Unlock()
	n, err := l.Conn.Read(p)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		if l.wasStopped() {
			return n, errStopped
		}
		return n, errIdle
	}
	if err == io.EOF {
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
	}
	return n, err
}

// SetReadDeadline is for layers above, which set none of their own while the
// line's is in force.
func (l *line) SetReadDeadline(time.Time) error { return nil }

// SetDeadline sets the one for writing only.
func (l *line) SetDeadline(t time.Time) error { return l.Conn.SetWriteDeadline(t) }

func (l *line) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (l *line) wasStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

func (l *line) sawEnd() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// pumpBuffer is how much a pump reads ahead.
const pumpBuffer = 256 << 10

// pump reads what knows no deadlines, such as standard input, in a goroutine
// of its own, so that a read can be given up. What it read ahead when it was
// given up is still handed over.
type pump struct {
	src     io.Reader
	idle    time.Duration
	full    chan pumped
	free    chan []byte
	stop    chan struct{}
	stopped sync.Once
	start   sync.Once
	cur     pumped
}

type pumped struct {
	p   []byte
	buf []byte
	err error
}

func newPump(src io.Reader, idle time.Duration) *pump {
	// There are two buffers, so handing one over never waits.
	return &pump{src: src, idle: idle, full: make(chan pumped, 2), free: make(chan []byte, 2), stop: make(chan struct{})}
}

func (p *pump) run() {
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-p.stop:
			return
		}
		n, err := p.src.Read(buf)
		p.full <- pumped{p: buf[:n], buf: buf, err: err}
		if err != nil {
			return
		}
	}
}

func (p *pump) Read(b []byte) (int, error) {
	p.start.Do(func() {
		p.free <- make([]byte, pumpBuffer)
		p.free <- make([]byte, pumpBuffer)
		go p.run()
	})
	for len(p.cur.p) == 0 {
		if p.cur.err != nil {
			return 0, p.cur.err
		}
		if p.cur.buf != nil {
			p.free <- p.cur.buf
			p.cur = pumped{}
		}
		if err := p.wait(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.cur.p)
	p.cur.p = p.cur.p[n:]
	return n, nil
}

// wait takes the next buffer. What is there already goes before a stop.
func (p *pump) wait() error {
	select {
	case p.cur = <-p.full:
		return nil
	default:
	}
	var late <-chan time.Time
	if p.idle > 0 {
		t := time.NewTimer(p.idle)
		defer t.Stop()
		late = t.C
	}
	select {
	case p.cur = <-p.full:
		return nil
	case <-p.stop:
		return errStopped
	case <-late:
		return errIdle
	}
}

func (p *pump) interrupt() { p.stopped.Do(func() { close(p.stop) }) }

// closeTLS closes both without waiting for the peer.
func closeTLS(t *tls.Conn, l *line) func() error {
	return func() error {
		// The closing message is a courtesy: it must not hold up the end.
		l.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		return t.Close()
	}
}
