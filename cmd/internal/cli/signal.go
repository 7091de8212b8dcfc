package cli

// This file is what signals that end a program mean.

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after a signal another one is taken for the same: a
// terminal, timeout and service managers signal a process and then its group.
const sameSignal = time.Second

// Stops are the signals that ask a program to end.
var Stops = []os.Signal{os.Interrupt, syscall.SIGTERM}

// OnStop calls stop once one of the signals comes. Those of the next second are
// the same wish; a later one is in earnest, and quit is called for it. Release
// gives the signals back.
func OnStop(stop, quit func(os.Signal), signals ...os.Signal) (release func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, signals...)
	over := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-over:
				return
			case sig := <-c:
				switch {
				case first.IsZero():
					first = time.Now()
					stop(sig)
				case time.Since(first) >= sameSignal:
					quit(sig)
				}
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(over)
	}
}

// Interruptible gives a context that a signal ends; a further one ends the
// process at once.
func Interruptible() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	back := OnStop(func(os.Signal) { cancel() }, func(os.Signal) { os.Exit(Failed) }, Stops...)
	return ctx, func() {
		back()
		cancel()
	}
}
