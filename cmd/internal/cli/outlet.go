package cli

import (
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
	lost  []dropped
	shut  bool
	wake  chan struct{}
	done  chan struct{}
}

type queued struct {
	w io.Writer
	b []byte
}

// dropped is how many pieces a writer lacks, and how that is said there.
type dropped struct {
	w   io.Writer
	say func(n int) string
	n   int
}

func saidInWords(n int) string {
	return "(" + wire.Count(int64(n), "line") + " dropped: nobody read them)"
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
func (o *Outlet) To(w io.Writer, keep bool) io.Writer { return o.Saying(w, keep, saidInWords) }

// Saying is To with the line that says how many were dropped.
func (o *Outlet) Saying(w io.Writer, keep bool, say func(n int) string) io.Writer {
	return outletWriter{o, direct(w), keep, say}
}

type outletWriter struct {
	o    *Outlet
	w    io.Writer
	keep bool
	say  func(n int) string
}

func (w outletWriter) Write(p []byte) (int, error) {
	w.o.put(w, append([]byte(nil), p...))
	return len(p), nil
}

func (o *Outlet) put(w outletWriter, b []byte) {
	o.mu.Lock()
	if w.keep || len(o.queue) < maxQueued {
		o.queue = append(o.queue, queued{w.w, b})
	} else {
		o.lose(w)
	}
	o.mu.Unlock()
	o.poke()
}

func (o *Outlet) lose(w outletWriter) {
	for i := range o.lost {
		if o.lost[i].w == w.w {
			o.lost[i].n++
			return
		}
	}
	o.lost = append(o.lost, dropped{w.w, w.say, 1})
}

func (o *Outlet) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *Outlet) run() {
	defer close(o.done)
	for {
		o.mu.Lock()
		queue, lost, shut := o.queue, o.lost, o.shut
		o.queue, o.lost = nil, nil
		o.mu.Unlock()
		for _, q := range queue {
			// Without a reader there is nobody to tell.
			q.w.Write(q.b)
		}
		for _, l := range lost {
			io.WriteString(l.w, l.say(l.n)+"\n")
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
