package record

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Status is what a recorder is doing, at one moment. Received bytes came from
// the network, written ones were handed to the system, synced ones survive a
// power loss; each is at most the one before. Counts are since the start.
type Status struct {
	Time     time.Time     `json:"time"`
	Uptime   time.Duration `json:"uptime_ns"`
	Received int64         `json:"received"`
	Written  int64         `json:"written"`
	Synced   int64         `json:"synced"`
	// NotRecorded bytes were received, or passed on by a relay, and are in no
	// file.
	NotRecorded int64 `json:"not_recorded"`
	// Waiting bytes lie in buffers now, WaitingMost at the worst.
	Waiting     int64 `json:"waiting"`
	WaitingMost int64 `json:"waiting_most"`
	// Stalled is for how long publishers were held up by full buffers, added
	// up over the connections.
	Stalled time.Duration `json:"stalled_ns"`
	// Open connections now, and Connections so far.
	Open        int   `json:"open"`
	Connections int64 `json:"connections"`
	// Protocols is how many of the connections so far turned out to be of each
	// protocol, "raw" for none that is known.
	Protocols map[string]int64 `json:"protocols"`
	// Now lists open connections, the oldest first, at most maxNow of them.
	Now []Recorded `json:"now"`
	// Attempts that made no connection.
	Attempts int64 `json:"failed_attempts"`
	// Files that were sealed, and Pruned ones that were deleted.
	Files  int64 `json:"files"`
	Pruned int64 `json:"pruned"`
	// HookFailures counts sealed files for which the command failed.
	HookFailures int64 `json:"hook_failures"`
	// Findings counts what was found in the bytes.
	Findings int64 `json:"findings"`
	// Trouble is the newest thing that went wrong, for people.
	Trouble string `json:"trouble,omitempty"`
}

// Recorded is what was recorded of a connection: so far in a status, in all in a
// report.
type Recorded struct {
	Connection string `json:"connection"`
	Endpoint   string `json:"endpoint"`
	// Protocol is what the bytes are, "raw" when they are of none that is
	// known, "" as long as they do not tell it or none came.
	Protocol string `json:"protocol"`
	Received int64  `json:"received"`
	Written  int64  `json:"written"`
	Synced   int64  `json:"synced"`
}

// maxNow is how many open connections a status lists.
const maxNow = 100

// counters are the sums behind a Status, of connections that ended and of those
// that are open.
type counters struct {
	received, written, synced              atomic.Int64
	connections, attempts, files, findings atomic.Int64
	pruned                                 atomic.Int64

	mu          sync.Mutex
	notRecorded int64
	stalled     time.Duration // of buffers that are gone
	most        int64         // of one buffer
	trouble     string
	open        map[*tape]struct{}
	protocols   map[string]int64
}

// told counts a connection whose protocol is known now.
func (c *counters) told(protocol string) {
	c.mu.Lock()
	c.protocols[protocol]++
	c.mu.Unlock()
}

func (c *counters) setTrouble(s string) {
	c.mu.Lock()
	c.trouble = s
	c.mu.Unlock()
}

func (c *counters) add(t *tape) {
	c.mu.Lock()
	c.open[t] = struct{}{}
	c.mu.Unlock()
}

// remove takes a tape out of the open ones; lost bytes of it are in no file.
func (c *counters) remove(t *tape, lost int64) {
	_, most, stalled := t.buf.usage()
	c.mu.Lock()
	c.notRecorded += lost
	delete(c.open, t)
	c.stalled += stalled
	c.most = max(c.most, most)
	c.mu.Unlock()
}

// tapes are the open ones now.
func (c *counters) tapes() []*tape {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*tape, 0, len(c.open))
	for t := range c.open {
		all = append(all, t)
	}
	return all
}

// Status tells what the recorder is doing. It may be called at any time.
func (r *Recorder) Status() Status {
	// In this order, so that a later number never passes an earlier one.
	synced, written, received := r.count.synced.Load(), r.count.written.Load(), r.count.received.Load()
	now := time.Now()
	s := Status{
		Time: now, Uptime: now.Sub(r.start),
		Received: received, Written: written, Synced: synced,
		Connections: r.count.connections.Load(),
		Attempts:    r.count.attempts.Load(),
		Files:       r.count.files.Load(),
		Pruned:      r.count.pruned.Load(),
		Findings:    r.count.findings.Load(),
	}
	if r.hook != nil {
		s.HookFailures = r.hook.failed.Load()
	}
	r.count.mu.Lock()
	defer r.count.mu.Unlock()
	s.Stalled, s.WaitingMost, s.Trouble = r.count.stalled, r.count.most, r.count.trouble
	s.Protocols, s.Now = maps.Clone(r.count.protocols), []Recorded{}
	s.Open, s.NotRecorded = len(r.count.open), r.count.notRecorded
	for t := range r.count.open {
		wait, most, stalled := t.buf.usage()
		s.Waiting += wait
		s.WaitingMost = max(s.WaitingMost, most)
		s.Stalled += stalled
		s.NotRecorded += t.notRecorded()
		if w := t.w.Load(); w != nil {
			s.Now = append(s.Now, t.recorded(w))
		}
	}
	slices.SortFunc(s.Now, func(a, b Recorded) int { return strings.Compare(a.Connection, b.Connection) })
	s.Now = s.Now[:min(len(s.Now), maxNow)]
	return s
}
