package source

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Defaults of [Backoff].
const (
	DefaultRetryFirst = 250 * time.Millisecond
	DefaultRetryMax   = 30 * time.Second
	// steadyAfter is how long a connection must have lasted for the next
	// failure to count as the first: a server that takes a connection, says a
	// word and drops it must not be asked again and again at once.
	steadyAfter = 10 * time.Second
)

// Backoff is the waits between tries to one endpoint: each twice the one
// before, half of it up or down by chance, up to a limit.
type Backoff struct {
	b *backoff.ExponentialBackOff
}

// NewBackoff starts at DefaultRetryFirst, or at limit if that is less. A limit
// of 0 is DefaultRetryMax.
func NewBackoff(limit time.Duration) *Backoff {
	if limit <= 0 {
		limit = DefaultRetryMax
	}
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = min(DefaultRetryFirst, limit)
	b.MaxInterval = limit
	b.Multiplier = 2
	b.RandomizationFactor = 0.5
	b.Reset()
	return &Backoff{b}
}

// Ended tells how long the connection lasted that ended now.
func (b *Backoff) Ended(lasted time.Duration) {
	if lasted >= steadyAfter {
		b.b.Reset()
	}
}

// Next is how long to wait now. err is why there was no connection, or nil; a
// server's own wish is heard.
func (b *Backoff) Next(err error) time.Duration {
	d := b.b.NextBackOff()
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > d {
		d = e.RetryAfter
	}
	return d
}

// Wait waits, unless ctx ends first.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
