// Package peer has real publishers for tests: what a recorder connects to, or
// what connects to a recorder, over every transport and with every way to end.
package peer

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Identity is a certificate authority with a server's and a client's
// certificate, as PEM files.
type Identity struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string
	// OtherCA signed none of them.
	OtherCA string
}

// NewIdentity writes one for 127.0.0.1 and the name publisher.test.
func NewIdentity(tb testing.TB) *Identity {
	tb.Helper()
	dir := tb.TempDir()
	id := &Identity{}
	ca, caKey, caPath, _ := issue(tb, dir, "ca", nil, nil)
	id.CA = caPath
	_, _, id.ServerCert, id.ServerKey = issue(tb, dir, "server", ca, caKey)
	_, _, id.ClientCert, id.ClientKey = issue(tb, dir, "client", ca, caKey)
	_, _, id.OtherCA, _ = issue(tb, dir, "other", nil, nil)
	return id
}

func issue(tb testing.TB, dir, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(tb, err)
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
		tmpl.KeyUsage |= x509.KeyUsageCertSign
		parent, parentKey = tmpl, key
	} else {
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		tmpl.DNSNames = []string{"publisher.test"}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, parentKey)
	check(tb, err)
	cert, err := x509.ParseCertificate(der)
	check(tb, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	check(tb, err)
	certPath, keyPath := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	check(tb, os.WriteFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(tb, os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert, key, certPath, keyPath
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// ServerConfig is the server's side; clients must have a certificate of the
// authority when mutual is set.
func (id *Identity) ServerConfig(tb testing.TB, mutual bool) *tls.Config {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(id.ServerCert, id.ServerKey)
	check(tb, err)
	c := &tls.Config{Certificates: []tls.Certificate{pair}}
	if mutual {
		c.ClientCAs, c.ClientAuth = id.pool(tb), tls.RequireAndVerifyClientCert
	}
	return c
}

// ClientConfig trusts the authority and shows the client's certificate.
func (id *Identity) ClientConfig(tb testing.TB) *tls.Config {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(id.ClientCert, id.ClientKey)
	check(tb, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: id.pool(tb), ServerName: "publisher.test"}
}

func (id *Identity) pool(tb testing.TB) *x509.CertPool {
	tb.Helper()
	text, err := os.ReadFile(id.CA)
	check(tb, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		tb.Fatal("no certificate in the authority's file")
	}
	return pool
}

// Script is what a publisher does on one connection, numbered from 0. The
// connection is closed after it. A returned error is ignored: peers that go
// away are part of the play.
type Script func(c net.Conn, n int) error

// Listen serves script on every connection until the test ends, and gives
// host:port.
func Listen(tb testing.TB, script Script) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(tb, err)
	Serve(tb, l, script)
	return l.Addr().String()
}

// ListenTLS is Listen behind TLS.
func ListenTLS(tb testing.TB, c *tls.Config, script Script) string {
	tb.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	check(tb, err)
	Serve(tb, l, script)
	return l.Addr().String()
}

// ListenUnix is Listen on a socket file, whose path it gives.
func ListenUnix(tb testing.TB, script Script) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "peer")
	check(tb, err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	check(tb, err)
	Serve(tb, l, script)
	return path
}

// Serve runs script on every connection of l until the test ends.
func Serve(tb testing.TB, l net.Listener, script Script) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		open = map[net.Conn]bool{}
	)
	wg.Add(1)
	go func() {
		defer wg.Done()
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Add(1)
			go func() {
				defer wg.Done()
				script(c, n)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			}()
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// Body is how a stream is framed in an HTTP response.
type Body string

// The first three end in order; the others end before all was sent, by closing
// the connection or by a reset.
const (
	BodyChunked      Body = "chunked"
	BodyLength       Body = "length"
	BodyClose        Body = "close-delimited"
	BodyChunkedCut   Body = "chunked, cut"
	BodyLengthShort  Body = "length, short"
	BodyChunkedReset Body = "chunked, reset"
)

// HTTP is a script that answers every request with stream as body says.
// inspect, if not nil, sees the request first and may give a status instead.
func HTTP(stream []byte, body Body, inspect func(*http.Request) (status int)) Script {
	return func(c net.Conn, _ int) error {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return err
		}
		if inspect != nil {
			if s := inspect(req); s != 0 && s != http.StatusOK {
				_, err := fmt.Fprintf(c, "HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", s)
				return err
			}
		}
		head := "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
		switch body {
		case BodyLength:
			fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", head, len(stream))
			return Pieces(c, stream, 1)
		case BodyLengthShort:
			fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", head, len(stream)+1)
			return Pieces(c, stream, 1)
		case BodyClose:
			fmt.Fprintf(c, "%s\r\n", head)
			return Pieces(c, stream, 1)
		}
		fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n", head)
		if err := Pieces(chunks{c}, stream, 1); err != nil {
			return err
		}
		switch body {
		case BodyChunkedCut:
			return nil
		case BodyChunkedReset:
			return Reset(c)
		}
		_, err = io.WriteString(c, "0\r\n\r\n")
		return err
	}
}

type chunks struct{ w io.Writer }

func (c chunks) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b := fmt.Appendf(nil, "%x\r\n", len(p))
	b = append(append(b, p...), "\r\n"...)
	if _, err := c.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Pieces writes stream in pieces of random sizes, from 1 byte to 128 KiB, the
// small ones more often. The sizes follow from seed.
func Pieces(w io.Writer, stream []byte, seed uint64) error {
	r := mrand.New(mrand.NewPCG(seed, 1))
	for len(stream) > 0 {
		n := 1 + r.IntN(1<<r.IntN(18))
		n = min(n, len(stream))
		if _, err := w.Write(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

// Send is a script that writes stream in pieces and ends in order.
func Send(stream []byte) Script {
	return func(c net.Conn, n int) error { return Pieces(c, stream, uint64(n)) }
}

// Reset makes c end with a reset once its peer has all that was sent.
func Reset(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("not a TCP connection")
	}
	// A reset throws away what the peer has not read yet.
	time.Sleep(100 * time.Millisecond)
	if err := t.SetLinger(0); err != nil {
		return err
	}
	return t.Close()
}

// Hold keeps the connection open without a word until the peer closes it.
func Hold(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

// Publish connects to a recorder that listens, tries until it does, and runs
// script.
func Publish(ctx context.Context, network, address string, c *tls.Config, script Script) error {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			if c != nil {
				conn = tls.Client(conn, c)
			}
			err = script(conn, 0)
			conn.Close()
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
