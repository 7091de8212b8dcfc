package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"wiretape/wire"
)

// Outlet writes to standard output or standard error from a goroutine of its
// own, so that a reader that does not read holds nothing up. What need not be
// kept is dropped once much waits.
type Outlet struct {
	mu    sync.Mutex
	queue []queued
	lost  int
	shut  bool
	wake  chan struct{}
	done  chan struct{}
}

type queued struct {
	w io.Writer
	b []byte
}

// maxQueued is how many pieces wait before the next are dropped.
const maxQueued = 1000

// NewOutlet starts one. Close ends it.
func NewOutlet() *Outlet {
	o := &Outlet{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

// To gives a writer that queues for w, in the order of all that is queued here.
// What must be kept is never dropped.
func (o *Outlet) To(w io.Writer, keep bool) io.Writer { return outletWriter{o, direct(w), keep} }

type outletWriter struct {
	o    *Outlet
	w    io.Writer
	keep bool
}

func (w outletWriter) Write(p []byte) (int, error) {
	w.o.put(w.w, append([]byte(nil), p...), w.keep)
	return len(p), nil
}

func (o *Outlet) put(w io.Writer, b []byte, keep bool) {
	o.mu.Lock()
	if keep || len(o.queue) < maxQueued {
		o.queue = append(o.queue, queued{w, b})
	} else {
		o.lost++
	}
	o.mu.Unlock()
	o.poke()
}

func (o *Outlet) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *Outlet) run() {
	defer close(o.done)
	var last io.Writer
	for {
		o.mu.Lock()
		queue, lost, shut := o.queue, o.lost, o.shut
		o.queue, o.lost = nil, 0
		o.mu.Unlock()
		for _, q := range queue {
			// Without a reader there is nobody to tell.
			q.w.Write(q.b)
			last = q.w
		}
		if lost > 0 && last != nil {
			fmt.Fprintf(last, "(%s dropped: nobody read them)\n", wire.Count(int64(lost), "line"))
		}
		if len(queue) > 0 {
			continue
		}
		if shut {
			return
		}
		<-o.wake
	}
}

// Close waits until everything is written, or for at most limit if there is one.
func (o *Outlet) Close(limit time.Duration) {
	o.mu.Lock()
	o.shut = true
	o.mu.Unlock()
	o.poke()
	var late <-chan time.Time
	if limit > 0 {
		late = time.After(limit)
	}
	select {
	case <-o.done:
	case <-late:
	}
}
