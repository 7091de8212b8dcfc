package source

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// listener waits for publishers that connect in.
type listener struct {
	e   *Endpoint
	o   Options
	l   net.Listener
	tls *tls.Config
}

func (s *listener) Endpoint() *Endpoint { return s.e }
func (s *listener) Close() error        { return s.l.Close() }

// Address is where a listening source really listens, with the port that the
// system chose; "" for a source that does not listen.
func Address(s Source) string {
	if l, ok := s.(*listener); ok {
		return l.l.Addr().String()
	}
	return ""
}

func listen(ctx context.Context, e *Endpoint, o Options, t *tls.Config) (*listener, error) {
	s := &listener{e: e, o: o, tls: t}
	l, err := Listen(ctx, e, o.SocketMode)
	if err != nil {
		return nil, err
	}
	s.l = l
	return s, nil
}

// Listen opens a listening endpoint's socket. A socket file that nobody
// listens on any more is no obstacle; one in use, or another kind of file, is.
func Listen(ctx context.Context, e *Endpoint, mode os.FileMode) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	if e.Scheme != SchemeListenUnix {
		l, err := lc.Listen(ctx, "tcp", e.Address)
		if err != nil {
			return nil, listenFailed(e, err)
		}
		return l, nil
	}
	l, err := lc.Listen(ctx, "unix", e.Address)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(e.Address) {
		if err = os.Remove(e.Address); err == nil {
			l, err = lc.Listen(ctx, "unix", e.Address)
		}
	}
	if err != nil {
		return nil, listenFailed(e, err)
	}
	if mode == 0 {
		mode = 0o600
	}
	if err := os.Chmod(e.Address, mode); err != nil {
		l.Close()
		return nil, listenFailed(e, err)
	}
	return l, nil
}

// listenFailed is permanent: another try meets the same.
func listenFailed(e *Endpoint, err error) *Error {
	f := failed(e, "listen", err)
	if f.Kind != KindPermission && f.Kind != KindStopped {
		f.Kind = KindAddress
	}
	return f
}

// abandoned says that a path is a socket which refuses connections: its
// listener is gone.
func abandoned(path string) bool {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (s *listener) Next(ctx context.Context) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { s.l.Close() })
	defer stop()
	c, err := s.l.Accept()
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil, &Error{Kind: KindStopped, Endpoint: s.e.String(), Message: "stopped", Err: err}
		}
		kind, message := classify(s.e, err)
		return nil, &Error{Kind: kind, Endpoint: s.e.String(), Message: "accept: " + message, Err: err}
	}
	l := &line{Conn: c, idle: s.o.IdleTimeout}
	conn := &Conn{Endpoint: s.e, Peer: peerName(c), r: l, line: l, closer: l.Close}
	if s.tls != nil {
		t := tls.Server(l, s.tls)
		conn.r, conn.closer, conn.witness = t, closeTLS(t, l), byTLS
		conn.handshake = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, s.o.ConnectTimeout)
			defer cancel()
			return t.HandshakeContext(ctx)
		}
	}
	return conn, nil
}
