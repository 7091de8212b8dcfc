// Package play sends recorded bytes to a live subscriber, with the recorded
// timing, at another speed, or as fast as it takes them.
package play

import (
	"context"
	"time"
)

// Clock is a monotonic clock that can wait.
type Clock interface {
	// Now is the time since an arbitrary start.
	Now() time.Duration
	// Sleep waits at least d, or until ctx is done and gives its error.
	Sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{ start time.Time }

// SystemClock is the machine's.
func SystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pacer says when what was recorded at an instant is due. Each due time is
// computed from the start alone, never from the one before, so that no error
// adds up.
type pacer struct {
	clock Clock
	speed float64 // 0 is as fast as it goes
	start time.Duration
	// origin is the recorded time that start stands for, last the newest
	// recorded time that was waited for.
	origin, last int64
	began        bool
	// late is the longest time by which something was behind its due time.
	late time.Duration
}

// wait waits until what was recorded at mono (nanoseconds) is due. A time that
// goes back, as between two recorders, counts as no time passed.
func (p *pacer) wait(ctx context.Context, mono int64) error {
	if p.speed == 0 {
		return ctx.Err()
	}
	switch {
	case !p.began:
		p.began = true
		p.start, p.origin, p.last = p.clock.Now(), mono, mono
	case mono < p.last:
		p.origin -= p.last - mono
		p.last = mono
	default:
		p.last = mono
	}
	due := p.start + time.Duration(float64(mono-p.origin)/p.speed)
	now := p.clock.Now()
	if now < due {
		if err := p.clock.Sleep(ctx, due-now); err != nil {
			return err
		}
		now = p.clock.Now()
	}
	p.late = max(p.late, now-due)
	return ctx.Err()
}
