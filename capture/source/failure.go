package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Kind is why there is no connection, as a stable word.
type Kind string

const (
	// KindAddress: the endpoint is not one, or can't be listened on.
	KindAddress Kind = "bad-address"
	// KindNoHost: the name does not exist, so a resolver says.
	KindNoHost Kind = "no-such-host"
	// KindDNS: the resolver could not tell.
	KindDNS Kind = "dns"
	// KindRefused: nobody listens.
	KindRefused Kind = "refused"
	// KindReset: the peer, or something on the way, broke it off.
	KindReset Kind = "reset"
	// KindUnreachable: no route.
	KindUnreachable Kind = "unreachable"
	// KindTimeout: no answer in time.
	KindTimeout Kind = "timeout"
	// KindTLS: no trust between the two: the certificate's name, its issuer,
	// its dates, a refused client certificate, no TLS at all.
	KindTLS Kind = "tls"
	// KindStatus: the answer's status is not 200; Error.Status has it.
	KindStatus Kind = "status"
	// KindNoFile: no such file.
	KindNoFile Kind = "no-such-file"
	// KindPermission: the system does not permit it.
	KindPermission Kind = "permission"
	// KindStopped: the caller's context ended.
	KindStopped Kind = "stopped"
	// KindOther: anything else.
	KindOther Kind = "error"
)

// Error is why there is no connection.
type Error struct {
	Kind     Kind
	Endpoint string
	// Status of an HTTP response, else 0.
	Status int
	// RetryAfter is how long the server asks to stay away, else 0.
	RetryAfter time.Duration
	Message    string
	Err        error
}

// Error says it in one line, without secrets.
func (e *Error) Error() string {
	if e.Endpoint == "" {
		return e.Message
	}
	return e.Endpoint + ": " + e.Message
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// Permanent says that trying again can't help. connected says that this
// endpoint gave a connection before: a name that a resolver does not know is a
// mistake at the start, and a resolver's bad hour later on.
func (e *Error) Permanent(connected bool) bool {
	switch e.Kind {
	case KindAddress, KindTLS, KindNoFile, KindPermission:
		return true
	case KindNoHost:
		return !connected
	case KindStatus:
		return !retryStatus(e.Status)
	}
	return false
}

// retryStatus says that a status passes: the server's own trouble, and the two
// of the 400s that mean "later".
func retryStatus(code int) bool { return code >= 500 || code == 408 || code == 429 }

func badAddress(message string) *Error { return &Error{Kind: KindAddress, Message: message} }

// failed makes an Error of why there is no connection to e.
func failed(e *Endpoint, doing string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		if own.Endpoint == "" {
			own.Endpoint = e.String()
		}
		return own
	}
	kind, message := classify(e, err)
	return &Error{Kind: kind, Endpoint: e.String(), Message: doing + ": " + message, Err: err}
}

// classify tells what an error is, and words for it that hold nothing but the
// error's own cause.
func classify(e *Endpoint, err error) (Kind, string) {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return KindNoHost, "no such host " + strconv.Quote(dns.Name)
		}
		return KindDNS, "the name " + strconv.Quote(dns.Name) + " could not be looked up: " + dns.Err
	}
	if m, ok := tlsTrouble(err); ok {
		return KindTLS, m
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errnoKind(e, errno), errno.Error()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return KindStopped, "stopped"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return KindTimeout, "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return KindReset, "the peer closed the connection"
	case errors.Is(err, fs.ErrNotExist):
		return KindNoFile, "no such file"
	case errors.Is(err, fs.ErrPermission):
		return KindPermission, "permission denied"
	}
	return KindOther, innermost(err)
}

func errnoKind(e *Endpoint, errno syscall.Errno) Kind {
	switch errno {
	case syscall.ECONNREFUSED:
		return KindRefused
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return KindReset
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN:
		return KindUnreachable
	case syscall.ETIMEDOUT:
		return KindTimeout
	case syscall.ENOENT, syscall.ENOTDIR:
		if e.Scheme == SchemeUnix {
			// A publisher that is restarted takes its socket away and brings
			// it back: the same as nobody listening.
			return KindRefused
		}
		return KindNoFile
	case syscall.EACCES, syscall.EPERM:
		if e.Scheme == SchemeTCP || e.Scheme == SchemeTLS || e.HTTP() {
			return KindUnreachable // a packet filter's refusal
		}
		return KindPermission
	case syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EINVAL, syscall.EISDIR, syscall.ENOTSOCK, syscall.EPROTOTYPE, syscall.EAFNOSUPPORT:
		return KindAddress
	}
	return KindOther
}

// tlsTrouble says that err is a lack of trust, which no retry mends.
func tlsTrouble(err error) (string, bool) {
	var (
		verify  *tls.CertificateVerificationError
		name    x509.HostnameError
		issuer  x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		alert   tls.AlertError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &name):
		return "the certificate is for another name: " + name.Error(), true
	case errors.As(err, &issuer):
		return "the certificate's issuer is not trusted here", true
	case errors.As(err, &invalid):
		return "the certificate is not valid: " + invalid.Error(), true
	case errors.As(err, &verify):
		return "the certificate can't be verified: " + innermost(verify.Err), true
	case errors.As(err, &record):
		return "the peer does not speak TLS", true
	case errors.As(err, &alert):
		return "the peer refused: " + alert.Error(), true
	}
	var op *net.OpError
	// Alerts that the peer sent come as an OpError of its own kind.
	if errors.As(err, &op) && op.Op == "remote error" {
		return "the peer refused: " + innermost(op.Err), true
	}
	return "", false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// innermost is the last error of a chain in its own words: the outer ones
// repeat addresses and URLs.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
