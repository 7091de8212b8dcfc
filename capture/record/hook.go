package record

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// hook runs a command for each sealed file, one at a time in the order of
// sealing, without a shell. It never holds up the recording.
type hook struct {
	command string
	log     *slog.Logger
	failed  atomic.Int64

	mu     sync.Mutex
	queue  []string
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

func newHook(ctx context.Context, command string, log *slog.Logger) *hook {
	h := &hook{command: command, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go h.run(ctx)
	return h
}

// sealed queues a file.
func (h *hook) sealed(path string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.queue = append(h.queue, path)
	h.mu.Unlock()
	poke(h.wake)
}

// close waits until the command has run for every file.
func (h *hook) close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	poke(h.wake)
	<-h.done
}

func (h *hook) run(ctx context.Context) {
	defer close(h.done)
	for {
		h.mu.Lock()
		var path string
		some := len(h.queue) > 0
		if some {
			path = h.queue[0]
			h.queue = h.queue[1:]
		}
		closed := h.closed
		h.mu.Unlock()
		switch {
		case some:
			h.runOnce(ctx, path)
		case closed:
			return
		default:
			<-h.wake
		}
	}
}

func (h *hook) runOnce(ctx context.Context, path string) {
	start := time.Now()
	c := exec.CommandContext(ctx, h.command, path)
	// Results of ours go to standard output; a command's words don't.
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		h.failed.Add(1)
		h.log.Error("the command for a sealed file failed", "command", h.command, "file", path, "err", err)
		return
	}
	h.log.Debug("the command for a sealed file ended", "file", path, "took", time.Since(start))
}
