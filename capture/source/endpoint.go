// Package source is where a recording's bytes come from: the transports.
//
// An endpoint is written as people write it (tcp://, tls://, unix://, http://,
// https://, file://, - for standard input, listen+tcp://, listen+tls:// and
// listen+unix://), and [Open] makes it a [Source]. Each connection that a
// source gives is a [Conn]: bytes as the transport delivered them, and at the
// end a [Verdict] that says what the transport knows of how it ended. Whether
// the bytes ended at a frame boundary is not known here.
//
// Errors are [Error]: what can't succeed by trying again is permanent, all
// else is worth a [Backoff]. No error, name or verdict holds a credential.
package source

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// The schemes of endpoints.
const (
	SchemeTCP        = "tcp"
	SchemeTLS        = "tls"
	SchemeUnix       = "unix"
	SchemeHTTP       = "http"
	SchemeHTTPS      = "https"
	SchemeFile       = "file"
	SchemeStdin      = "-"
	SchemeListenTCP  = "listen+tcp"
	SchemeListenTLS  = "listen+tls"
	SchemeListenUnix = "listen+unix"
)

// maxUnixPath is the longest socket path that the kernel takes.
const maxUnixPath = 107

// Endpoint is a parsed endpoint. Its String is fit for logs, sidecars and
// reports: user information and the values of a query are left out.
type Endpoint struct {
	Scheme string
	// Address is host:port, or a path for unix, listen+unix and file.
	Address string
	// Host is the address's host alone, without brackets; "" where there is none.
	Host string

	url *url.URL // http and https, with everything that was given
}

// Parse reads an endpoint. What is wrong with one is a permanent [Error].
func Parse(s string) (*Endpoint, error) {
	if s == SchemeStdin {
		return &Endpoint{Scheme: SchemeStdin}, nil
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return nil, badAddress("an endpoint starts with a scheme, such as tcp://host:port, unix://path, https://host/path or file://path; - is standard input")
	}
	e := &Endpoint{Scheme: scheme}
	switch scheme {
	case SchemeTCP, SchemeTLS, SchemeListenTCP, SchemeListenTLS:
		if strings.Contains(rest, "@") {
			return nil, badAddress(scheme + ":// takes host:port, without a user")
		}
		host, port, err := net.SplitHostPort(strings.TrimSuffix(rest, "/"))
		if err != nil {
			return nil, badAddress(scheme + ":// takes host:port")
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 && !e.Listens() {
			return nil, badAddress("not a port number: " + strconv.Quote(port))
		}
		if host == "" && !e.Listens() {
			return nil, badAddress(scheme + ":// takes host:port, and the host is missing")
		}
		e.Host, e.Address = host, net.JoinHostPort(host, port)
	case SchemeUnix, SchemeListenUnix, SchemeFile:
		if rest == "" || strings.ContainsRune(rest, 0) {
			return nil, badAddress(scheme + ":// takes a path")
		}
		if scheme != SchemeFile && len(rest) > maxUnixPath {
			return nil, badAddress("a socket's path has at most " + strconv.Itoa(maxUnixPath) + " bytes, this has " + strconv.Itoa(len(rest)))
		}
		e.Address = filepath.Clean(rest)
	case SchemeHTTP, SchemeHTTPS:
		u, err := url.Parse(s)
		if err != nil {
			// The library's message holds the whole text, password and all.
			return nil, badAddress("not a URL")
		}
		if u.Hostname() == "" {
			return nil, badAddress(scheme + ":// takes a host")
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{SchemeHTTP: "80", SchemeHTTPS: "443"}[scheme]
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, badAddress("not a port number: " + strconv.Quote(port))
		}
		u.Fragment = ""
		e.url, e.Host, e.Address = u, u.Hostname(), net.JoinHostPort(u.Hostname(), port)
	default:
		return nil, badAddress("no transport is called " + strconv.Quote(scheme))
	}
	return e, nil
}

// Listens says that publishers connect in.
func (e *Endpoint) Listens() bool { return strings.HasPrefix(e.Scheme, "listen+") }

// Once says that there is one connection only, which can't be had again: a
// file or standard input.
func (e *Endpoint) Once() bool { return e.Scheme == SchemeFile || e.Scheme == SchemeStdin }

// HTTP says that the endpoint is a request's response.
func (e *Endpoint) HTTP() bool { return e.url != nil }

// Loopback says that the endpoint is on this machine as far as its name tells.
func (e *Endpoint) Loopback() bool {
	switch e.Scheme {
	case SchemeUnix, SchemeListenUnix, SchemeFile, SchemeStdin:
		return true
	}
	if e.Host == "localhost" {
		return true
	}
	ip := net.ParseIP(e.Host)
	return ip != nil && ip.IsLoopback()
}

// String is the endpoint without its credentials.
func (e *Endpoint) String() string {
	if e.Scheme == SchemeStdin {
		return "-"
	}
	if e.url != nil {
		return redact(e.url)
	}
	return e.Scheme + "://" + e.Address
}

// redact leaves out what may be secret in a URL: the user's name and password,
// and the values of the query.
func redact(u *url.URL) string {
	var b strings.Builder
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	b.WriteString(bare.String())
	if u.RawQuery != "" {
		for i, pair := range strings.Split(u.RawQuery, "&") {
			b.WriteByte("?&"[min(i, 1)])
			name, _, valued := strings.Cut(pair, "=")
			if !valued {
				// A query without names may be a token by itself.
				name = ""
			}
			b.WriteString(name + "=…")
		}
	}
	return b.String()
}
