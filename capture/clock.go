package capture

// This file is the clock that everything here tells time by.

import "time"

// Instant is one moment by two clocks, in nanoseconds: Wall since 1970 UTC, and
// Mono since an arbitrary start, never going back. Intervals are measured by
// Mono alone; Wall is only written down.
type Instant struct{ Wall, Mono int64 }

// Clock tells the time. Now is safe for use by several goroutines.
type Clock interface{ Now() Instant }

// SystemClock is the machine's.
var SystemClock Clock = systemClock{}

type systemClock struct{}

var processStart = time.Now()

func (systemClock) Now() Instant {
	t := time.Now()
	return Instant{Wall: t.UnixNano(), Mono: int64(t.Sub(processStart))}
}
