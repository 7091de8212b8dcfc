package source_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"wiretape/capture/source"
	"wiretape/internal/peer"
)

// stream is bytes that no transport may change: every value, line ends, zeros.
func stream(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{7})
	r.Read(b)
	copy(b, "dendro-repl\x00\r\n\r\n0\r\n\r\n")
	return b
}

func mustOpen(t *testing.T, endpoint string, o source.Options) source.Source {
	t.Helper()
	e, err := source.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Open(t.Context(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// read takes everything with reads of random sizes.
func read(c *source.Conn, seed uint64) ([]byte, source.Verdict) {
	r := rand.New(rand.NewPCG(seed, 2))
	var all []byte
	for {
		p := make([]byte, 1+r.IntN(1<<r.IntN(18)))
		n, err := c.Read(p)
		all = append(all, p[:n]...)
		if err != nil {
			return all, c.Verdict()
		}
	}
}

// TestLessonEndsAndTheirWitnesses (Go net/http, wal-g 655): for every transport
// and every way that it can end, the bytes are those that the peer sent and the
// verdict is the truth: a cut body is no end, and an end without a witness is
// called that.
func TestLessonEndsAndTheirWitnesses(t *testing.T) {
	want := stream(1<<20 + 13)
	id := peer.NewIdentity(t)
	tlsOpt := source.Options{TLS: source.TLS{CA: id.CA, Cert: id.ClientCert, Key: id.ClientKey}}
	reset := func(c net.Conn, n int) error {
		if err := peer.Pieces(c, want, 3); err != nil {
			return err
		}
		return peer.Reset(c)
	}
	// abrupt ends a TLS connection without its closing message.
	abrupt := func(c net.Conn, n int) error {
		if err := peer.Pieces(c, want, 3); err != nil {
			return err
		}
		return c.(interface{ NetConn() net.Conn }).NetConn().Close()
	}
	file := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
			peer.Pieces(f, want, 4)
			f.Close()
		}
	}()
	plain := func(s peer.Script) string { return peer.Listen(t, s) }
	secure := func(s peer.Script) string { return peer.ListenTLS(t, id.ServerConfig(t, true), s) }

	for _, tc := range []struct {
		name, endpoint string
		opt            source.Options
		end            source.End
	}{
		{"tcp", "tcp://" + plain(peer.Send(want)), source.Options{}, source.EndOfStream},
		{"tcp, idle timeout set", "tcp://" + plain(peer.Send(want)), source.Options{IdleTimeout: time.Minute}, source.EndOfStream},
		{"tcp, reset", "tcp://" + plain(reset), source.Options{}, source.EndReset},
		{"tls", "tls://" + secure(peer.Send(want)), tlsOpt, source.EndOfStream},
		{"tls, no closing message", "tls://" + secure(abrupt), tlsOpt, source.EndNoWitness},
		{"unix", "unix://" + peer.ListenUnix(t, peer.Send(want)), source.Options{}, source.EndOfStream},
		{"http, chunked", "http://" + plain(peer.HTTP(want, peer.BodyChunked, nil)), source.Options{}, source.EndOfStream},
		{"http, length", "http://" + plain(peer.HTTP(want, peer.BodyLength, nil)), source.Options{IdleTimeout: time.Minute}, source.EndOfStream},
		{"http, close-delimited", "http://" + plain(peer.HTTP(want, peer.BodyClose, nil)), source.Options{}, source.EndNoWitness},
		{"http, chunked and cut", "http://" + plain(peer.HTTP(want, peer.BodyChunkedCut, nil)), source.Options{}, source.EndCut},
		{"http, length and short", "http://" + plain(peer.HTTP(want, peer.BodyLengthShort, nil)), source.Options{}, source.EndCut},
		{"http, reset", "http://" + plain(peer.HTTP(want, peer.BodyChunkedReset, nil)), source.Options{}, source.EndReset},
		{"https", "https://" + secure(peer.HTTP(want, peer.BodyChunked, nil)) + "/metrics/stream?x=y", tlsOpt, source.EndOfStream},
		{"https, close-delimited", "https://" + secure(peer.HTTP(want, peer.BodyClose, nil)), tlsOpt, source.EndOfStream},
		{"https, close-delimited, no closing message", "https://" + secure(func(c net.Conn, n int) error {
			peer.HTTP(want, peer.BodyClose, nil)(c, n)
			return c.(interface{ NetConn() net.Conn }).NetConn().Close()
		}), tlsOpt, source.EndNoWitness},
		{"file", "file://" + file, source.Options{}, source.EndOfStream},
		{"file, a pipe", "file://" + fifo, source.Options{}, source.EndNoWitness},
		{"stdin", "-", source.Options{Stdin: bytes.NewReader(want)}, source.EndOfStream},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(2) {
				if seed > 0 && (tc.endpoint == "-" || strings.HasSuffix(tc.endpoint, "fifo")) {
					return
				}
				s := mustOpen(t, tc.endpoint, tc.opt)
				c, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got, v := read(c, seed)
				if err := c.Close(); err != nil && v.Whole() {
					t.Errorf("close: %v", err)
				}
				if sha256.Sum256(got) != sha256.Sum256(want) {
					t.Errorf("got %d bytes that differ from the %d sent", len(got), len(want))
				}
				if v.End != tc.end || v.Reason == "" || v.Permanent {
					t.Errorf("verdict %+v, want %s", v, tc.end)
				}
				if _, err := s.Next(t.Context()); s.Endpoint().Once() && err != io.EOF {
					t.Errorf("a second connection of what can be had once: %v", err)
				}
			}
		})
	}
}

// TestListenersDeliverVerbatim: publishers that connect in.
func TestListenersDeliverVerbatim(t *testing.T) {
	want := stream(300_000)
	id := peer.NewIdentity(t)
	sock := filepath.Join(t.TempDir(), "in.sock")
	for _, tc := range []struct{ endpoint, network string }{
		{"listen+tcp://127.0.0.1:0", "tcp"},
		{"listen+tls://127.0.0.1:0", "tcp"},
		{"listen+unix://" + sock, "unix"},
	} {
		t.Run(tc.endpoint, func(t *testing.T) {
			s := mustOpen(t, tc.endpoint, source.Options{TLS: source.TLS{CA: id.CA, Cert: id.ServerCert, Key: id.ServerKey}, IdleTimeout: time.Minute})
			client := id.ClientConfig(t)
			if !strings.Contains(tc.endpoint, "tls") {
				client = nil
			}
			for range 3 {
				go peer.Publish(t.Context(), tc.network, source.Address(s), client, peer.Send(want))
				c, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Handshake(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, v := read(c, 1)
				c.Close()
				if !bytes.Equal(got, want) || v.End != source.EndOfStream {
					t.Fatalf("%d of %d bytes, %+v", len(got), len(want), v)
				}
			}
			if tc.network == "unix" {
				if st, err := os.Stat(sock); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("the socket is open to others: %v, %v", st.Mode(), err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			var se *source.Error
			if _, err := s.Next(ctx); !errors.As(err, &se) || se.Kind != source.KindStopped {
				t.Errorf("after the stop: %v", err)
			}
		})
	}
}

// TestLessonPermanentAndTransient (barman 223): what can't succeed ends at
// once with its reason, what may pass is tried again.
func TestLessonPermanentAndTransient(t *testing.T) {
	id := peer.NewIdentity(t)
	ca := source.Options{TLS: source.TLS{CA: id.CA}}
	hold := func(c net.Conn, _ int) error { return peer.Hold(c) }
	status := func(code int) string {
		return "http://" + peer.Listen(t, peer.HTTP(nil, peer.BodyChunked, func(*http.Request) int { return code }))
	}
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	liveSock := peer.ListenUnix(t, peer.Send(nil))
	plainFile := filepath.Join(t.TempDir(), "plain")
	os.WriteFile(plainFile, []byte("x"), 0o600)
	for _, tc := range []struct {
		name, endpoint string
		opt            source.Options
		kind           source.Kind
		permanent      bool
		words          string
	}{
		{"refused", "tcp://" + closed, source.Options{}, source.KindRefused, false, "connection refused"},
		{"unix, nobody there yet", "unix:///nowhere/at/all", source.Options{}, source.KindRefused, false, "no such file"},
		{"name that does not exist", "tcp://nothing.invalid:1", source.Options{}, "", true, ""},
		{"no such file", "file:///nowhere/at/all", source.Options{}, source.KindNoFile, true, "no such file"},
		{"a folder", "file://" + t.TempDir(), source.Options{}, source.KindAddress, true, "directory"},
		{"400", status(400), source.Options{}, source.KindStatus, true, "400"},
		{"401", status(401), source.Options{}, source.KindStatus, true, "401 Unauthorized"},
		{"403", status(403), source.Options{}, source.KindStatus, true, "403"},
		{"404", status(404), source.Options{}, source.KindStatus, true, "404"},
		{"410", status(410), source.Options{}, source.KindStatus, true, "410"},
		{"redirect", status(302), source.Options{}, source.KindStatus, true, "redirects are not followed"},
		{"204", status(204), source.Options{}, source.KindStatus, true, "204"},
		{"408", status(408), source.Options{}, source.KindStatus, false, "408"},
		{"429", status(429), source.Options{}, source.KindStatus, false, "429"},
		{"500", status(500), source.Options{}, source.KindStatus, false, "500"},
		{"503", status(503), source.Options{}, source.KindStatus, false, "503"},
		{"tls, unknown issuer", "tls://" + peer.ListenTLS(t, id.ServerConfig(t, false), hold), source.Options{TLS: source.TLS{CA: id.OtherCA}}, source.KindTLS, true, "not trusted"},
		{"tls, another name", "tls://" + peer.ListenTLS(t, id.ServerConfig(t, false), hold), source.Options{TLS: source.TLS{CA: id.CA, ServerName: "elsewhere.test"}}, source.KindTLS, true, "another name"},
		{"https, another name", "https://" + peer.ListenTLS(t, id.ServerConfig(t, false), peer.HTTP(nil, peer.BodyChunked, nil)), source.Options{TLS: source.TLS{CA: id.CA, ServerName: "elsewhere.test"}}, source.KindTLS, true, "another name"},
		{"tls to a peer without", "tls://" + peer.Listen(t, peer.Send([]byte("hello, I speak no TLS"))), ca, source.KindTLS, true, "does not speak TLS"},
		{"tls, closed in the handshake", "tls://" + peer.Listen(t, peer.Send(nil)), ca, source.KindReset, false, ""},
		{"http, closed before the response", "http://" + peer.Listen(t, peer.Send(nil)), source.Options{}, source.KindReset, false, ""},
		{"http, no response in time", "http://" + peer.Listen(t, func(c net.Conn, _ int) error { return peer.Hold(c) }), source.Options{ConnectTimeout: 50 * time.Millisecond}, source.KindTimeout, false, ""},
		{"listen, in use", "listen+tcp://" + busy.Addr().String(), source.Options{}, source.KindAddress, true, "in use"},
		{"listen, a live socket", "listen+unix://" + liveSock, source.Options{}, source.KindAddress, true, "in use"},
		{"listen, a file in the way", "listen+unix://" + plainFile, source.Options{}, source.KindAddress, true, "in use"},
		{"listen+tls without a certificate", "listen+tls://127.0.0.1:0", source.Options{}, source.KindAddress, true, "needs a certificate"},
		{"tls, no such issuers' file", "tls://127.0.0.1:1", source.Options{TLS: source.TLS{CA: "/nowhere"}}, source.KindNoFile, true, "issuers"},
		{"token file missing", "http://127.0.0.1:1", source.Options{HTTP: source.HTTP{TokenFile: "/nowhere"}}, source.KindNoFile, true, "token file"},
		{"token not in the environment", "http://127.0.0.1:1", source.Options{HTTP: source.HTTP{TokenEnv: "NOT_SET_ANYWHERE"}}, source.KindNoFile, true, "NOT_SET_ANYWHERE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := source.Parse(tc.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			s, err := source.Open(t.Context(), e, tc.opt)
			if err == nil {
				var c *source.Conn
				if c, err = s.Next(t.Context()); err == nil {
					c.Close()
					t.Fatal("there is a connection")
				}
			}
			var se *source.Error
			if !errors.As(err, &se) {
				t.Fatalf("%T %v", err, err)
			}
			if tc.kind == "" {
				// Without a resolver the name can't be told from a bad hour.
				if se.Kind != source.KindNoHost && se.Kind != source.KindDNS {
					t.Errorf("kind %s: %v", se.Kind, err)
				}
				if (&source.Error{Kind: source.KindNoHost}).Permanent(true) || !(&source.Error{Kind: source.KindNoHost}).Permanent(false) {
					t.Error("an unknown name is a mistake at first and a bad hour later")
				}
				return
			}
			if se.Kind != tc.kind || se.Permanent(false) != tc.permanent || se.Permanent(true) != tc.permanent {
				t.Errorf("kind %s, permanent %v: %v", se.Kind, se.Permanent(false), err)
			}
			if !strings.Contains(err.Error(), tc.words) || !strings.Contains(err.Error(), e.String()) {
				t.Errorf("%q does not say %q of %s", err, tc.words, e)
			}
		})
	}
}

// TestRefusedClientCertificate: with TLS 1.3 the refusal arrives after the
// handshake, as the first thing read.
func TestRefusedClientCertificate(t *testing.T) {
	id := peer.NewIdentity(t)
	s := mustOpen(t, "tls://"+peer.ListenTLS(t, id.ServerConfig(t, true), peer.Send([]byte("secret"))), source.Options{TLS: source.TLS{CA: id.CA}})
	c, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, v := read(c, 1)
	if len(got) != 0 || v.End != source.EndError || !v.Permanent || !strings.Contains(v.Reason, "certificate required") {
		t.Errorf("%q, %+v", got, v)
	}
}

// TestLessonSilentPeer (go-mysql 82): a peer that goes silent is noticed after
// the idle timeout; one that says something just in time never trips it.
func TestLessonSilentPeer(t *testing.T) {
	id := peer.NewIdentity(t)
	const idle = 2 * time.Second
	silent := func(c net.Conn, _ int) error {
		c.Write([]byte("preamble"))
		return peer.Hold(c)
	}
	alive := func(c net.Conn, _ int) error {
		for range 5 {
			if _, err := c.Write([]byte("k")); err != nil {
				return err
			}
			time.Sleep(idle * 6 / 10)
		}
		return nil
	}
	response := func(s peer.Script) peer.Script {
		return func(c net.Conn, n int) error {
			if _, err := http.ReadRequest(bufioReader(c)); err != nil {
				return err
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			return s(c, n)
		}
	}
	pipe := func(s func(io.Writer)) io.Reader {
		r, w := io.Pipe()
		go func() { s(w) }()
		return r
	}
	opt := source.Options{IdleTimeout: idle, TLS: source.TLS{CA: id.CA}}
	stdin := func(r io.Reader) source.Options { o := opt; o.Stdin = r; return o }
	for _, tc := range []struct {
		name, endpoint string
		opt            source.Options
		silent         bool
	}{
		{"tcp", "tcp://" + peer.Listen(t, silent), opt, true},
		{"tls", "tls://" + peer.ListenTLS(t, id.ServerConfig(t, false), silent), opt, true},
		{"unix", "unix://" + peer.ListenUnix(t, silent), opt, true},
		{"http", "http://" + peer.Listen(t, response(silent)), opt, true},
		{"https", "https://" + peer.ListenTLS(t, id.ServerConfig(t, false), response(silent)), opt, true},
		{"stdin", "-", stdin(pipe(func(w io.Writer) { w.Write([]byte("preamble")) })), true},
		{"tcp, alive", "tcp://" + peer.Listen(t, alive), opt, false},
		{"tls, alive", "tls://" + peer.ListenTLS(t, id.ServerConfig(t, false), alive), opt, false},
		{"http, alive", "http://" + peer.Listen(t, response(alive)), opt, false},
		{"stdin, alive", "-", stdin(pipe(func(w io.Writer) {
			for range 5 {
				w.Write([]byte("k"))
				time.Sleep(idle * 6 / 10)
			}
			w.(io.Closer).Close()
		})), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := mustOpen(t, tc.endpoint, tc.opt).Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			start := time.Now()
			got, v := read(c, 1)
			if tc.silent {
				if string(got) != "preamble" || v.End != source.EndIdle || !strings.Contains(v.Reason, "2s") || time.Since(start) < idle {
					t.Errorf("%q, %+v after %v", got, v, time.Since(start))
				}
			} else if string(got) != "kkkkk" || v.End == source.EndIdle {
				t.Errorf("%q, %+v", got, v)
			}
		})
	}
}

// TestIdleTimeoutIsNotBackPressure: the time in which nobody reads is no
// silence of the peer.
func TestIdleTimeoutIsNotBackPressure(t *testing.T) {
	c, err := mustOpen(t, "tcp://"+peer.Listen(t, peer.Send([]byte("ab"))), source.Options{IdleTimeout: 50 * time.Millisecond}).Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(200 * time.Millisecond)
	if got, v := read(c, 1); string(got) != "ab" || v.End != source.EndOfStream {
		t.Errorf("%q, %+v", got, v)
	}
}

// TestInterrupt: a waiting read ends, and no later one begins.
func TestInterrupt(t *testing.T) {
	id := peer.NewIdentity(t)
	hold := func(c net.Conn, _ int) error {
		c.Write([]byte("x"))
		return peer.Hold(c)
	}
	pr, pw := io.Pipe()
	defer pw.Close()
	go pw.Write([]byte("x"))
	for _, tc := range []struct {
		endpoint string
		opt      source.Options
	}{
		{"tcp://" + peer.Listen(t, hold), source.Options{}},
		{"tcp://" + peer.Listen(t, hold), source.Options{IdleTimeout: time.Hour}},
		{"tls://" + peer.ListenTLS(t, id.ServerConfig(t, false), hold), source.Options{TLS: source.TLS{CA: id.CA}}},
		{"http://" + peer.Listen(t, func(c net.Conn, n int) error {
			http.ReadRequest(bufioReader(c))
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nx")
			return peer.Hold(c)
		}), source.Options{}},
		{"-", source.Options{Stdin: pr}},
	} {
		c, err := mustOpen(t, tc.endpoint, tc.opt).Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(30*time.Millisecond, c.Interrupt)
		got, v := read(c, 1)
		if string(got) != "x" || v.End != source.EndSignal {
			t.Errorf("%s: %q, %+v", tc.endpoint, got, v)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: a read after the end: %d, %v", tc.endpoint, n, err)
		}
		c.Close()
	}
}

// TestConnectGivesUp: a stop ends the waiting for a connection.
func TestConnectGivesUp(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{
		"http://" + peer.Listen(t, func(c net.Conn, _ int) error { return peer.Hold(c) }),
		"tls://" + peer.Listen(t, func(c net.Conn, _ int) error { return peer.Hold(c) }),
		"file://" + fifo,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		start := time.Now()
		_, err := mustOpen(t, endpoint, source.Options{}).Next(ctx)
		var se *source.Error
		if !errors.As(err, &se) || se.Kind != source.KindStopped || time.Since(start) > 5*time.Second {
			t.Errorf("%s: %v after %v", endpoint, err, time.Since(start))
		}
	}
	// Let the pipe's open go.
	if f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		f.Close()
	}
}

// TestAbandonedSocket: a socket file that a killed listener left is no obstacle.
func TestAbandonedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	s := mustOpen(t, "listen+unix://"+path, source.Options{SocketMode: 0o660})
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", st, err)
	}
	go peer.Publish(t.Context(), "unix", path, nil, peer.Send([]byte("x")))
	c, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, v := read(c, 1); string(got) != "x" || v.End != source.EndOfStream {
		t.Errorf("%q, %+v", got, v)
	}
}
