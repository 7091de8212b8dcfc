package play

// This file is where the bytes go: a subscriber that is dialled, or one that
// connects in.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Target gives one session with a subscriber after the other. Closing a session
// ends its stream and waits a little for the subscriber to take it.
type Target interface {
	Session(ctx context.Context) (io.WriteCloser, error)
	// Address is where it really is: a port 0 is the one that was given.
	Address() string
	Close() error
}

const (
	dialTimeout = 15 * time.Second
	// lingerTimeout is how long a session's end waits for the subscriber.
	lingerTimeout = 5 * time.Second
)

// ErrEndpoint: what was given is no endpoint.
var ErrEndpoint = errors.New("no endpoint")

// Dial sends to tcp://host:port, unix://path, or - for out.
func Dial(endpoint string, out io.Writer) (Target, error) {
	if endpoint == "-" {
		return &writerTarget{out}, nil
	}
	network, address, err := socket(endpoint)
	if err != nil {
		return nil, err
	}
	return &dialer{network: network, address: address}, nil
}

// Listen waits for subscribers on tcp://host:port, unix://path or
// http://host:port/path, which serves each request one connection.
func Listen(ctx context.Context, endpoint string) (Target, error) {
	if strings.HasPrefix(endpoint, "http://") {
		return listenHTTP(ctx, endpoint)
	}
	network, address, err := socket(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return &listener{l: l, scheme: network}, nil
}

func socket(endpoint string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case ok && scheme == "tcp":
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return "", "", fmt.Errorf("%w: %s: tcp:// takes host:port", ErrEndpoint, endpoint)
		}
		return "tcp", rest, nil
	case ok && scheme == "unix" && rest != "":
		return "unix", rest, nil
	}
	return "", "", fmt.Errorf("%w: %s: write tcp://host:port or unix://path", ErrEndpoint, endpoint)
}

type writerTarget struct{ w io.Writer }

func (t *writerTarget) Session(context.Context) (io.WriteCloser, error) { return nopClose{t.w}, nil }
func (t *writerTarget) Address() string                                 { return "standard output" }
func (t *writerTarget) Close() error                                    { return nil }

type nopClose struct{ io.Writer }

func (nopClose) Close() error { return nil }

type dialer struct{ network, address string }

func (d *dialer) Session(ctx context.Context) (io.WriteCloser, error) {
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, d.network, d.address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return session(ctx, c), nil
}

func (d *dialer) Address() string { return d.network + "://" + d.address }
func (d *dialer) Close() error    { return nil }

type listener struct {
	l      net.Listener
	scheme string
}

func (t *listener) Session(ctx context.Context) (io.WriteCloser, error) {
	stop := context.AfterFunc(ctx, func() { _ = t.l.Close() })
	defer stop()
	c, err := t.l.Accept()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for a subscriber: %w", err)
	}
	return session(ctx, c), nil
}

func (t *listener) Address() string { return t.scheme + "://" + t.l.Addr().String() }

func (t *listener) Close() error {
	if err := t.l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// connSession closes without losing what is on its way.
type connSession struct {
	net.Conn
	stop func() bool
}

func session(ctx context.Context, c net.Conn) io.WriteCloser {
	// A subscriber that does not read must not hold up an interrupt.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return &connSession{c, stop}
}

func (s *connSession) Close() error {
	defer s.stop()
	if h, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		if err := h.CloseWrite(); err == nil {
			// Until the subscriber closes its side: a close with bytes of its
			// own unread would reset the connection and lose ours.
			_ = s.SetReadDeadline(time.Now().Add(lingerTimeout))
			_, err = io.Copy(io.Discard, s.Conn)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				_ = s.Conn.Close()
				return fmt.Errorf("the subscriber's end: %w", err)
			}
		}
	}
	return s.Conn.Close()
}

// httpTarget serves each request of a path one session, as a body that has no
// length.
type httpTarget struct {
	l    net.Listener
	s    *http.Server
	path string
	next chan *httpSession
}

func listenHTTP(ctx context.Context, endpoint string) (Target, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%w: write http://host:port/path", ErrEndpoint)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	t := &httpTarget{l: l, path: u.Path, next: make(chan *httpSession)}
	if t.path == "" {
		t.path = "/"
	}
	t.s = &http.Server{Handler: t, ReadHeaderTimeout: dialTimeout}
	go func() { _ = t.s.Serve(l) }()
	return t, nil
}

func (t *httpTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != t.path {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	s := &httpSession{w: w, c: http.NewResponseController(w), done: make(chan struct{}), gone: r.Context()}
	select {
	case t.next <- s:
	case <-r.Context().Done():
		return
	}
	select {
	case <-s.done:
	case <-r.Context().Done():
	}
}

func (t *httpTarget) Session(ctx context.Context) (io.WriteCloser, error) {
	select {
	case s := <-t.next:
		return s, s.c.Flush()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *httpTarget) Address() string { return "http://" + t.l.Addr().String() + t.path }

func (t *httpTarget) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lingerTimeout)
	defer cancel()
	return t.s.Shutdown(ctx)
}

type httpSession struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	done chan struct{}
	gone context.Context
}

func (s *httpSession) Write(p []byte) (int, error) {
	if err := s.gone.Err(); err != nil {
		return 0, errors.New("the subscriber went away")
	}
	n, err := s.w.Write(p)
	if err == nil {
		err = s.c.Flush()
	}
	return n, err
}

func (s *httpSession) Close() error { close(s.done); return nil }
