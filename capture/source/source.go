package source

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	DefaultConnectTimeout = 15 * time.Second
	// A peer whose machine is gone is found after 15 s of silence and four
	// probes, 35 s in all.
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 4
)

// Limits on what files and peers may give.
const (
	maxTokenFile      = 64 << 10
	maxHeaderFile     = 64 << 10
	maxResponseHeader = 256 << 10
	maxRetryAfter     = time.Hour
)

// Options are the same for every transport; what does not concern one has no
// effect on it.
type Options struct {
	// ConnectTimeout bounds a connect with its TLS handshake, and after it the
	// wait for an HTTP response's header. 0 is DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// IdleTimeout ends a connection on which nothing came for so long. 0 is none.
	IdleTimeout time.Duration
	TLS         TLS
	HTTP        HTTP
	// SocketMode is a listen+unix socket's permissions. 0 is 0600.
	SocketMode os.FileMode
	// Stdin is what - reads. Nil is the process's standard input.
	Stdin io.Reader
}

// TLS names the files of a TLS identity and whom to trust.
type TLS struct {
	// CA is a PEM file of the only issuers to trust; "" is the system's. For a
	// listener it is who signs the clients' certificates, and "" asks for none.
	CA string
	// Cert and Key are PEM files; a listener must have them.
	Cert, Key string
	// ServerName is the name to expect instead of the endpoint's host.
	ServerName string
}

// HTTP is what a request carries. Credentials are read anew for each request.
type HTTP struct {
	// Header lines, "Name: value".
	Header []string
	// HeaderFile holds further lines, TokenFile a bearer token; TokenEnv names
	// the environment's variable that holds it.
	HeaderFile string
	TokenFile  string
	TokenEnv   string
	// Proxy is the URL of a proxy. The environment's proxies are not used.
	Proxy string
}

// Source gives connections.
type Source interface {
	// Next makes one connection, or waits for one to come in. It gives io.EOF
	// when there can be no further one, else errors are [Error].
	Next(ctx context.Context) (*Conn, error)
	// Endpoint that it was opened with.
	Endpoint() *Endpoint
	// Close stops listening. Connections stay.
	Close() error
}

// Check reads what the options name for an endpoint, as Open does, and touches
// nothing: its error says that the options are wrong.
func Check(e *Endpoint, o Options) error {
	_, err := prepared(e, o)
	return err
}

// Open makes a source of an endpoint. What an option names is read now, so
// that a wrong file is known before anything starts; a listener listens.
func Open(ctx context.Context, e *Endpoint, o Options) (Source, error) {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	p, err := prepared(e, o)
	switch {
	case err != nil:
		return nil, err
	case e.Once():
		return &once{e: e, o: o}, nil
	case e.Listens():
		return listen(ctx, e, o, p.tls)
	}
	return &dialer{e: e, o: o, prepare: p}, nil
}

// prepare is what options come to for an endpoint.
type prepare struct {
	tls   *tls.Config
	proxy *url.URL
}

func prepared(e *Endpoint, o Options) (p prepare, err error) {
	switch e.Scheme {
	case SchemeTLS, SchemeHTTPS:
		p.tls, err = clientTLS(e, o.TLS)
	case SchemeListenTLS:
		p.tls, err = serverTLS(o.TLS)
	}
	if err != nil {
		return p, failed(e, "tls", err)
	}
	if !e.HTTP() {
		return p, nil
	}
	if _, err := requestHeader(e, o.HTTP); err != nil {
		return p, failed(e, "request header", err)
	}
	if o.HTTP.Proxy != "" {
		u, err := url.Parse(o.HTTP.Proxy)
		if err != nil || u.Host == "" {
			return p, failed(e, "proxy", badAddress("not a proxy's URL"))
		}
		p.proxy = u
	}
	return p, nil
}

// dialer connects to a publisher.
type dialer struct {
	e *Endpoint
	o Options
	prepare
}

func (d *dialer) Endpoint() *Endpoint { return d.e }
func (d *dialer) Close() error        { return nil }

func (d *dialer) Next(ctx context.Context) (*Conn, error) {
	if d.e.HTTP() {
		c, err := d.get(ctx)
		if err != nil {
			return nil, failed(d.e, "get", err)
		}
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.o.ConnectTimeout)
	defer cancel()
	network := "tcp"
	if d.e.Scheme == SchemeUnix {
		network = "unix"
	}
	l, err := d.dial(ctx, network, d.e.Address)
	if err != nil {
		return nil, failed(d.e, "connect", err)
	}
	c := &Conn{Endpoint: d.e, Peer: peerName(l.Conn), r: l, line: l, closer: l.Close}
	if d.tls != nil {
		t := tls.Client(l, d.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			l.Close()
			return nil, failed(d.e, "tls handshake", err)
		}
		c.r, c.closer, c.witness = t, closeTLS(t, l), byTLS
	}
	return c, nil
}

func (d *dialer) dial(ctx context.Context, network, address string) (*line, error) {
	nd := net.Dialer{KeepAliveConfig: keepAlive()}
	c, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &line{Conn: c, idle: d.o.IdleTimeout}, nil
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount}
}

func peerName(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// get asks for the response whose body is the stream. One connection serves
// one request; redirects are not followed, because headers are for the host
// that was named.
func (d *dialer) get(ctx context.Context) (*Conn, error) {
	header, err := requestHeader(d.e, d.o.HTTP)
	if err != nil {
		return nil, err
	}
	var l *line
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, d.o.ConnectTimeout)
			defer cancel()
			var err error
			if l, err = d.dial(ctx, network, address); err != nil {
				return nil, err
			}
			return l, nil
		},
		TLSClientConfig:        d.tls,
		TLSHandshakeTimeout:    d.o.ConnectTimeout,
		ResponseHeaderTimeout:  d.o.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    -1, // none, without asking the server to close
		MaxResponseHeaderBytes: maxResponseHeader,
		ReadBufferSize:         64 << 10,
	}
	if d.proxy != nil {
		tr.Proxy = http.ProxyURL(d.proxy)
	}
	u := *d.e.url
	u.User = nil
	// ctx ends the waiting for the response; the body lives on until Close.
	bodyCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	req, err := http.NewRequestWithContext(bodyCtx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, badAddress("not a URL")
	}
	req.Header = header
	unhook := context.AfterFunc(ctx, cancel)
	resp, err := tr.RoundTrip(req)
	unhook()
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if l != nil && l.sawEnd() {
			// The library has several words for it.
			err = &Error{Kind: KindReset, Message: "get: the server closed the connection before it answered", Err: err}
		}
		return nil, err
	}
	closer := func() error {
		cancel()
		err := resp.Body.Close()
		if l != nil {
			l.Close()
		}
		return err
	}
	if resp.StatusCode != http.StatusOK {
		closer()
		return nil, statusError(resp)
	}
	c := &Conn{Endpoint: d.e, r: resp.Body, line: l, closer: closer}
	if l != nil {
		c.Peer = peerName(l.Conn)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		c.Notes = append(c.Notes, "the body comes with Content-Encoding "+strconv.QuoteToASCII(enc)+" and is recorded as it comes")
	}
	switch {
	case resp.ContentLength >= 0 || chunked(resp):
	case resp.TLS != nil:
		c.witness = byTLS
	default:
		c.witness = byNobody
	}
	return c, nil
}

func chunked(r *http.Response) bool {
	for _, t := range r.TransferEncoding {
		if strings.EqualFold(t, "chunked") {
			return true
		}
	}
	return false
}

func statusError(r *http.Response) *Error {
	e := &Error{Kind: KindStatus, Status: r.StatusCode,
		Message: "the server answered " + strconv.Itoa(r.StatusCode)}
	if t := http.StatusText(r.StatusCode); t != "" {
		e.Message += " " + t
	}
	if r.StatusCode/100 == 3 {
		if u, err := url.Parse(r.Header.Get("Location")); err == nil && u.Host != "" {
			e.Message += ", to " + strconv.QuoteToASCII(redact(u))
		}
		e.Message += "; redirects are not followed"
	}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = min(time.Duration(min(s, 1<<20))*time.Second, maxRetryAfter)
	}
	return e
}

// requestHeader reads everything that a request carries.
func requestHeader(e *Endpoint, o HTTP) (http.Header, error) {
	h := http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {"wiretape"}}
	lines := o.Header
	if o.HeaderFile != "" {
		text, err := readLimited(o.HeaderFile, maxHeaderFile)
		if err != nil {
			return nil, &Error{Kind: KindNoFile, Message: "the header file can't be read: " + innermost(err), Err: err}
		}
		s := bufio.NewScanner(strings.NewReader(text))
		s.Buffer(nil, maxHeaderFile)
		for s.Scan() {
			if t := strings.TrimSpace(s.Text()); t != "" && t[0] != '#' {
				lines = append(lines[:len(lines):len(lines)], t)
			}
		}
	}
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !token(name) || strings.ContainsAny(value, "\r\n\x00") {
			// Not quoted: it may be a secret in the wrong place.
			return nil, badAddress("a header is written Name: value")
		}
		h.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	if u := e.url.User; u != nil {
		r := http.Request{Header: h}
		p, _ := u.Password()
		r.SetBasicAuth(u.Username(), p)
	}
	bearer := ""
	switch {
	case o.TokenFile != "" && o.TokenEnv != "":
		return nil, badAddress("a token comes from a file or from the environment, not from both")
	case o.TokenFile != "":
		text, err := readLimited(o.TokenFile, maxTokenFile)
		if err != nil {
			return nil, &Error{Kind: KindNoFile, Message: "the token file can't be read: " + innermost(err), Err: err}
		}
		if bearer = strings.TrimSpace(text); bearer == "" {
			return nil, &Error{Kind: KindNoFile, Message: "the token file is empty"}
		}
	case o.TokenEnv != "":
		if bearer = strings.TrimSpace(os.Getenv(o.TokenEnv)); bearer == "" {
			return nil, &Error{Kind: KindNoFile, Message: "the environment has no " + strconv.Quote(o.TokenEnv)}
		}
	}
	if bearer != "" {
		if strings.ContainsAny(bearer, "\r\n\x00") {
			return nil, badAddress("the token has more than one line")
		}
		h.Set("Authorization", "Bearer "+bearer)
	}
	return h, nil
}

// token says that s is a header's name (RFC 9110, section 5.6.2).
func token(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func readLimited(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return "", err
	}
	if int64(len(b)) > limit {
		return "", errors.New("larger than " + strconv.FormatInt(limit, 10) + " bytes")
	}
	return string(b), nil
}

// maxPEM is the largest certificate or key file.
const maxPEM = 4 << 20

func clientTLS(e *Endpoint, o TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if c.ServerName == "" && e.Scheme == SchemeTLS {
		c.ServerName = e.Host // HTTP sets its own, a proxy's among them
	}
	if err := identity(c, o); err != nil {
		return nil, err
	}
	if o.CA != "" {
		pool, err := issuers(o.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	return c, nil
}

func serverTLS(o TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Cert == "" {
		return nil, badAddress("a TLS listener needs a certificate and its key")
	}
	if err := identity(c, o); err != nil {
		return nil, err
	}
	if o.CA != "" {
		pool, err := issuers(o.CA)
		if err != nil {
			return nil, err
		}
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

func identity(c *tls.Config, o TLS) error {
	if (o.Cert == "") != (o.Key == "") {
		return badAddress("a certificate and its key go together")
	}
	if o.Cert == "" {
		return nil
	}
	cert, err := readLimited(o.Cert, maxPEM)
	if err != nil {
		return &Error{Kind: KindNoFile, Message: "the certificate can't be read: " + innermost(err), Err: err}
	}
	key, err := readLimited(o.Key, maxPEM)
	if err != nil {
		return &Error{Kind: KindNoFile, Message: "the certificate's key can't be read: " + innermost(err), Err: err}
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return &Error{Kind: KindTLS, Message: "the certificate and its key don't fit: " + err.Error(), Err: err}
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

func issuers(path string) (*x509.CertPool, error) {
	text, err := readLimited(path, maxPEM)
	if err != nil {
		return nil, &Error{Kind: KindNoFile, Message: "the issuers' file can't be read: " + innermost(err), Err: err}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, &Error{Kind: KindTLS, Message: "the issuers' file holds no certificate"}
	}
	return pool, nil
}
