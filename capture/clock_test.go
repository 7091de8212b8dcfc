package capture_test

import "wiretape/capture"

// fakeClock is a clock that a test moves.
type fakeClock struct{ now capture.Instant }

func (c *fakeClock) Now() capture.Instant { return c.now }

func (c *fakeClock) pass(ns int64) capture.Instant {
	c.now.Wall += ns
	c.now.Mono += ns
	return c.now
}
