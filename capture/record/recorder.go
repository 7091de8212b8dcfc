// Package record takes connections down: it reads them from their sources, or
// passes them between two peers, and writes them into a capture directory.
//
// Each direction of a connection has a bounded buffer between the network and
// the disk, a goroutine that writes and one that syncs (tape). A recorder holds
// what they share: the directory, the account of what is received, written and
// safe, the command for sealed files, and the reason to stop.
//
// The bytes are not judged here. A protocol that was named and is not what
// comes ends a connection, since asking again can't help; what came is kept.
package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/capture/source"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// Defaults of [Options].
const (
	DefaultBuffer         = 16 << 20
	DefaultSyncEvery      = time.Second
	DefaultMaxConnections = 4096
	// maxEnded is how many connections a report lists.
	maxEnded = 1000
	// freeTick is how often the disk's free space is looked at.
	freeTick = time.Second
	// sayAgain is how long a repeated failure is not said again.
	sayAgain = time.Hour
	// holdTick is how often the limits are held where no file is sealed.
	holdTick = 5 * time.Second
)

// Sync says when bytes are made safe, beside when a file is sealed, which is
// always. The zero value is at no other time.
type Sync struct {
	// Every so often.
	Every time.Duration
	// Frame: as soon as they are written.
	Frame bool
}

// Options are how a recorder works.
type Options struct {
	// Capture is how the directory is written. OnSealed is called before the
	// command.
	Capture capture.Options
	// Protocol is a name, "raw", or "" and "auto".
	Protocol string
	// Buffer is the most bytes of memory that a direction of a connection
	// holds between the network and the disk. 0 is DefaultBuffer.
	Buffer int64
	Sync   Sync
	// NoRetry ends with the connection.
	NoRetry bool
	// RetryMax is the longest wait between tries. 0 is source.DefaultRetryMax.
	RetryMax time.Duration
	// MaxConnections that come in are taken at the same time; the others wait
	// in the system's queue. 0 is DefaultMaxConnections.
	MaxConnections int
	// MinFree is how many bytes of the disk stay free: recording stops before,
	// or with MakeRoom the oldest sealed files go first, as Retention permits.
	MinFree  int64
	MakeRoom bool
	// Retention is applied while recording. Its MinFree is not used.
	Retention capture.Retention
	// Strict makes a relay stop when it can't record.
	Strict bool
	// ClientPublishes says that in a relay what clients send is downstream.
	ClientPublishes bool
	// OnSealed is a program that gets each sealed file's path as an argument.
	OnSealed string
	// Log is for what happens; nil is slog.Default.
	Log *slog.Logger
}

// NoSpaceError says that the disk has less space left than it should keep.
type NoSpaceError struct {
	Dir string
	// Free and Keep are bytes; Waiting is what those that were received and are
	// not written yet will take.
	Free, Keep, Waiting int64
}

// Error says it in one line.
func (e *NoSpaceError) Error() string {
	if e.Free < e.Keep {
		return fmt.Sprintf("%s has %d bytes free, fewer than the %d to keep", e.Dir, e.Free, e.Keep)
	}
	return fmt.Sprintf("%s has %d bytes free, and received bytes that are still to be written take %d: that would leave fewer than the %d to keep", e.Dir, e.Free, e.Waiting, e.Keep)
}

// WrongProtocolError says that a connection is not of the protocol that was
// named.
type WrongProtocolError struct {
	Protocol string
	// Endpoint that it came from.
	Endpoint string
	Finding  wire.Finding
}

// Error says it in one line; the place is in the finding.
func (e *WrongProtocolError) Error() string { return e.Endpoint + ": " + e.reason() }

// reason is the same without the endpoint.
func (e *WrongProtocolError) reason() string {
	switch f := &e.Finding; f.Kind {
	case wire.KindBadVersion: // it is that protocol
		return wire.SafeText(f.Message, 300)
	case wire.KindBadPreamble:
		return "this is not " + e.Protocol + ": it starts with " + wire.SafeText(f.Got, 100) + ", not with " + wire.SafeText(f.Want, 100)
	default:
		return "this is not " + e.Protocol + ": " + wire.SafeText(f.Message, 300)
	}
}

// Recorder records into one directory.
type Recorder struct {
	opt   Options
	dir   *capture.Dir
	clock capture.Clock
	log   *slog.Logger
	hook  *hook
	start time.Time
	count counters

	hookCancel context.CancelFunc
	space      space
	lenient    atomic.Bool // a relay that goes on when recording fails

	mu      sync.Mutex
	failure error
	stop    context.CancelFunc
	found   map[string]int64 // findings of connections that are open
	ended   []Ended
	omitted int64
	missing bool
	tries   map[tried]tries
	unmet   bool // a limit, and that is said
	errs    []error
}

// Open takes a directory for recording, as capture.Create does.
func Open(dir string, o Options) (*Recorder, error) {
	if o.Buffer <= 0 {
		o.Buffer = DefaultBuffer
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Capture.Clock == nil {
		o.Capture.Clock = capture.SystemClock
	}
	if o.Capture.Registry == nil {
		o.Capture.Registry = protocols.All()
	}
	r := &Recorder{opt: o, clock: o.Capture.Clock, log: o.Log, start: time.Now(), space: space{wake: make(chan struct{}, 1)}, found: map[string]int64{}, tries: map[tried]tries{}}
	r.count.open, r.count.protocols = map[*tape]struct{}{}, map[string]int64{}
	told := o.Capture.OnSealed
	o.Capture.OnSealed = func(s capture.Sealed) {
		r.count.files.Add(1)
		if s.Findings > 0 {
			r.count.findings.Add(s.Findings)
			r.mu.Lock()
			r.found[s.Connection] += s.Findings
			r.mu.Unlock()
		}
		r.log.Debug("sealed", "file", s.Path, "bytes", s.Length, "why", s.Reason)
		if told != nil {
			told(s)
		}
		r.hook.sealed(s.Path)
	}
	if o.OnSealed != "" {
		ctx, cancel := context.WithCancel(context.Background())
		r.hook, r.hookCancel = newHook(ctx, o.OnSealed, o.Log), cancel
	}
	o.Capture.Keep, o.Capture.MakeRoom, o.Capture.OnPrune = o.Retention, o.MakeRoom, r.pruned
	if o.MakeRoom {
		o.Capture.Keep.MinFree = o.MinFree
	}
	d, err := capture.Create(dir, o.Capture)
	if err != nil {
		r.hook.close()
		return nil, err
	}
	r.dir = d
	for _, f := range d.Findings() {
		r.log.Warn(f.Message, "kind", f.Kind, "connection", f.Connection, "file", f.File, "cost", f.Cost)
	}
	for _, f := range d.Recovered() {
		if f.Rebuilt {
			continue // it was sealed before
		}
		s := capture.Sealed{Path: filepath.Join(dir, f.File), Connection: f.Connection, Number: f.Number, Start: f.Start,
			Length: f.Kept, SHA256: f.SHA256, Reason: sidecar.ClosedRecovered, Findings: f.Findings}
		if told != nil {
			told(s)
		}
		r.hook.sealed(s.Path)
	}
	return r, nil
}

// Dir is the directory that is recorded into.
func (r *Recorder) Dir() *capture.Dir { return r.dir }

// Rotate begins a new file of every open connection at its next frame boundary.
func (r *Recorder) Rotate() {
	for _, t := range r.count.tapes() {
		poke(t.rotate)
	}
}

// fail stops everything: nothing more can be recorded.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	first := r.failure == nil
	if first {
		r.failure = err
	}
	stop := r.stop
	r.mu.Unlock()
	if first {
		r.count.setTrouble(err.Error())
		r.log.Error("recording stops", "err", err)
	}
	if stop != nil {
		stop()
	}
}

// failed is why everything was stopped, nil if it was not.
func (r *Recorder) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// begin makes the context that a failure ends, and watches the disk.
func (r *Recorder) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	r.stop = cancel
	failed := r.failure != nil
	r.mu.Unlock()
	if failed {
		cancel()
	}
	if r.opt.MinFree > 0 {
		r.space.looks.Lock()
		r.watchFree()
		r.space.looks.Unlock()
	}
	if r.opt.MinFree > 0 || r.opt.Retention.Any() {
		go r.look(ctx)
	}
	return ctx, cancel
}

// Record takes down what the sources give until they end, ctx does, or
// recording fails. With several sources one that can't go on leaves the others
// alone. What went wrong is in the report of Close.
func (r *Recorder) Record(ctx context.Context, sources ...source.Source) {
	ctx, cancel := r.begin(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(len(sources)))
	for _, s := range sources {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if s.Endpoint().Listens() {
				err = r.accept(ctx, s)
			} else {
				err = r.follow(ctx, s)
			}
			others := left.Add(-1) > 0
			if err != nil {
				r.giveUp(s.Endpoint(), err, others)
			}
		}()
	}
	wg.Wait()
}

// giveUp notes that an endpoint can't be recorded. It is said at once where
// others go on; else it is the recorder's own end, and its error.
func (r *Recorder) giveUp(e *source.Endpoint, err error, others bool) {
	r.mu.Lock()
	r.errs = append(r.errs, err)
	r.mu.Unlock()
	r.count.setTrouble(err.Error())
	if others {
		r.log.Error("no further try", "endpoint", e.String(), "err", err)
	}
}

// follow connects again and again.
func (r *Recorder) follow(ctx context.Context, s source.Source) error {
	back := source.NewBackoff(r.opt.RetryMax)
	connected := false
	for {
		c, err := s.Next(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case err == io.EOF:
			return nil
		case err != nil:
			var se *source.Error
			if r.opt.NoRetry || !errors.As(err, &se) || se.Permanent(connected) || s.Endpoint().Once() {
				r.lastAttempt(s.Endpoint(), err)
				return err
			}
			r.attempt(s.Endpoint(), err)
		default:
			connected = true
			r.connected(s.Endpoint())
			begun := time.Now()
			permanent := r.connection(ctx, c)
			if permanent != nil {
				return permanent
			}
			if r.opt.NoRetry || s.Endpoint().Once() || ctx.Err() != nil {
				return nil
			}
			back.Ended(time.Since(begun))
		}
		wait := back.Next(err)
		r.log.Debug("connecting again", "endpoint", s.Endpoint().String(), "in", wait.Round(time.Millisecond))
		if source.Wait(ctx, wait) != nil {
			return nil
		}
	}
}

// tried is an endpoint and why there was no connection.
type tried struct{ endpoint, reason string }

// tries is when that was said last, and how many there were since.
type tries struct {
	said   time.Time
	silent int64
}

// attempt notes a try that made no connection. Of those for the same reason one
// an hour is said, with their number: a publisher that is away for months, or
// somebody who knocks at a listener all day, must not fill the journal.
func (r *Recorder) attempt(e *source.Endpoint, err error) {
	r.count.attempts.Add(1)
	r.count.setTrouble(err.Error())
	reason := reasonOf(err)
	name := e.String()
	key := tried{name, reason}
	r.mu.Lock()
	last := r.tries[key]
	if !last.said.IsZero() && time.Since(last.said) < sayAgain {
		last.silent++
		r.tries[key] = last
		r.mu.Unlock()
		r.log.Debug("no connection", "endpoint", name, "err", err)
		return
	}
	r.tries[key] = tries{said: time.Now()}
	r.mu.Unlock()
	detail := err.Error()
	if last.silent > 0 {
		detail += fmt.Sprintf(" (as %s before)", wire.Count(int64(last.silent), "try"))
	}
	r.log.Warn("no connection", "endpoint", name, "err", detail)
	r.journal(capture.Entry{Event: capture.EventAttempt, Endpoint: name, Reason: reason, Detail: detail})
}

// lastAttempt notes a try behind which there is no other: who gives up says why.
func (r *Recorder) lastAttempt(e *source.Endpoint, err error) {
	r.count.attempts.Add(1)
	r.journal(capture.Entry{Event: capture.EventAttempt, Endpoint: e.String(), Reason: reasonOf(err), Detail: err.Error()})
}

// reasonOf is a stable word for why there is no connection.
func reasonOf(err error) string {
	var se *source.Error
	if errors.As(err, &se) {
		return string(se.Kind)
	}
	return string(source.KindOther)
}

// connected ends what is remembered of an endpoint's failed tries.
func (r *Recorder) connected(e *source.Endpoint) {
	r.mu.Lock()
	maps.DeleteFunc(r.tries, func(k tried, _ tries) bool { return k.endpoint == e.String() })
	r.mu.Unlock()
}

// journal writes an entry, for what the bytes do not depend on: a disk that
// fails says so where it matters.
func (r *Recorder) journal(e capture.Entry) {
	if err := r.dir.Journal(e); err != nil {
		r.log.Warn("the journal can't be written", "err", err)
	}
}

// accept takes publishers that connect in, several at a time.
func (r *Recorder) accept(ctx context.Context, s source.Source) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.Close()
	back := source.NewBackoff(time.Second)
	places := make(chan struct{}, r.opt.MaxConnections)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := s.Next(ctx)
		if err != nil {
			<-places
			var se *source.Error
			if ctx.Err() != nil || errors.As(err, &se) && se.Kind == source.KindStopped {
				return nil
			}
			// Such as too many open files: it passes.
			r.attempt(s.Endpoint(), err)
			if source.Wait(ctx, back.Next(err)) != nil {
				return nil
			}
			continue
		}
		if r.opt.NoRetry {
			s.Close()
			return r.connection(ctx, c)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-places }()
			if err := r.connection(ctx, c); err != nil {
				r.log.Error("connection refused", "endpoint", s.Endpoint().String(), "peer", c.Peer, "err", err)
				r.journal(capture.Entry{Event: capture.EventError, Endpoint: nameOf(c), Detail: err.Error()})
			}
		}()
	}
}

func nameOf(c *source.Conn) string {
	if c.Endpoint.Listens() && c.Peer != "" {
		return c.Endpoint.String() + " from " + c.Peer
	}
	return c.Endpoint.String()
}

// connection records one connection to its end. It gives an error when
// connecting again can't help.
func (r *Recorder) connection(ctx context.Context, c *source.Conn) error {
	defer c.Close()
	if err := c.Handshake(ctx); err != nil {
		if c.Endpoint.Listens() && !r.opt.NoRetry {
			r.attempt(c.Endpoint, err)
			return nil
		}
		r.lastAttempt(c.Endpoint, err)
		return err
	}
	w, err := r.dir.Connect(capture.ConnInfo{Endpoint: nameOf(c), Protocol: r.opt.Protocol, Direction: wire.DirectionUnknown})
	if err != nil {
		r.fail(fmt.Errorf("beginning a connection: %w", err))
		return nil
	}
	log := r.log.With("endpoint", nameOf(c))
	log.Info("connected", "connection", w.ID(), "peer", c.Peer)
	for _, n := range c.Notes {
		log.Warn(n)
	}
	t := r.newTape(nameOf(c), false, func() (*capture.Writer, error) { return w, nil }, func(err error) {
		r.fail(err)
		c.Interrupt()
	})
	stop := context.AfterFunc(ctx, c.Interrupt)
	defer stop()
	verdict, wrong := r.receive(c, t)
	t.finish(verdict)
	r.report(t, verdict, r.opt.NoRetry || c.Endpoint.Once(), log)
	if wrong != nil {
		return wrong
	}
	if verdict.Permanent {
		return &source.Error{Kind: source.KindTLS, Endpoint: c.Endpoint.String(), Message: verdict.Reason}
	}
	return nil
}

// receive reads into the tape until the connection ends.
func (r *Recorder) receive(c *source.Conn, t *tape) (source.Verdict, error) {
	check := newProtocolCheck(r.opt.Capture.Registry, r.opt.Protocol)
	for {
		var p []byte
		if r.admit() {
			p = t.buf.reserve()
		}
		if p == nil {
			return source.Verdict{End: source.EndSignal, Reason: "recording failed"}, nil
		}
		n, err := c.Read(r.limit(p))
		if n > 0 {
			var wrong *WrongProtocolError
			if check != nil {
				check, wrong = check.look(p[:n])
			}
			t.commit(n, r.clock.Now())
			if wrong != nil {
				wrong.Endpoint = nameOf(c)
				return source.Verdict{End: source.EndError, Reason: wrong.reason(), Permanent: true}, wrong
			}
		}
		if err != nil {
			if v := c.Verdict(); check != nil && v.End != source.EndSignal {
				if wrong := check.ended(); wrong != nil {
					wrong.Endpoint = nameOf(c)
					return v, wrong
				}
			}
			return c.Verdict(), nil
		}
	}
}

// protocolCheck holds the first bytes of a connection against the protocol
// that was named: they are of another one where that knows them as its own, or
// where the named one has a preamble and they are none. All others may be a
// stream that begins in its middle or is damaged.
type protocolCheck struct {
	registry wire.Registry
	named    wire.Protocol
	dec      wire.Decoder
	prefix   []byte
	headed   bool // the decoder has nothing against them
}

// newProtocolCheck is nil when there is nothing to hold the bytes against.
func newProtocolCheck(reg wire.Registry, name string) *protocolCheck {
	p := reg.Named(name)
	if p == nil {
		return nil
	}
	dec, err := p.Open(wire.Config{})
	if err != nil {
		return nil
	}
	return &protocolCheck{registry: reg, named: p, dec: dec}
}

// look gives the check that goes on, nil when it is done.
func (k *protocolCheck) look(p []byte) (*protocolCheck, *WrongProtocolError) {
	k.prefix = append(k.prefix, p[:min(len(p), wire.DetectLimit-len(k.prefix))]...)
	if !k.headed {
		done, wrong := k.head(false)
		if wrong != nil {
			return nil, wrong
		}
		k.headed = done
	}
	other, more := k.other()
	if other != nil {
		return nil, &WrongProtocolError{Protocol: k.named.Name(), Finding: wire.Finding{Kind: capture.KindProtocol,
			Want: k.named.Name(), Got: other.Name(), Message: "it begins as a stream of " + other.Name() + " does"}}
	}
	if k.headed && !more || len(k.prefix) >= wire.DetectLimit {
		return nil, nil
	}
	return k, nil
}

// other is the protocol that knows the bytes as its own where the named one does
// not; more says that further bytes could tell.
func (k *protocolCheck) other() (p wire.Protocol, more bool) {
	end := len(k.prefix) >= wire.DetectLimit
	if m, _ := k.named.Detect(k.prefix, end); m == wire.Matched {
		return nil, false
	}
	if p, _, more = k.registry.Detect(k.prefix, end); p == k.named {
		p = nil
	}
	return p, more
}

// ended is the decoder's word about a connection that ended before it had one.
func (k *protocolCheck) ended() *WrongProtocolError {
	if k.headed {
		return nil
	}
	_, wrong := k.head(true)
	return wrong
}

// head is the decoder's word; done says that it has one, end that no more bytes
// will come.
func (k *protocolCheck) head(end bool) (done bool, wrong *WrongProtocolError) {
	h := k.dec.Head(k.prefix, end)
	var found []wire.Finding
	switch {
	case h.Type == wire.UnitLost || h.Type == wire.UnitJunk:
		if h.Finding != nil {
			found = append(found, *h.Finding)
		}
	case h.Type == wire.UnitPreamble && h.Size <= int64(len(k.prefix)):
		found = k.dec.Observe(wire.Unit{Type: h.Type, Size: h.Size, Kind: h.Kind, Bytes: k.prefix[:h.Size]}, nil)
	case h.Type == wire.UnitFrame, len(k.prefix) >= wire.DetectLimit:
	default:
		return false, nil
	}
	for _, f := range found {
		if f.Kind == wire.KindBadPreamble || f.Kind == wire.KindBadVersion {
			return true, &WrongProtocolError{Protocol: k.named.Name(), Finding: f}
		}
	}
	return true, nil
}

// report notes a connection's end. only says that no other will follow it.
func (r *Recorder) report(t *tape, v source.Verdict, only bool, log *slog.Logger) {
	w := t.w.Load()
	if w == nil {
		return // there is no such connection; its bytes are counted
	}
	e := Ended{Recorded: t.recorded(w), Transport: verdictOf(v).Kind, Detail: string(v.End) + ": " + v.Reason, Framing: string(t.ending)}
	_, _, e.Stalled = t.buf.usage()
	if t.err != nil {
		e.Transport, e.Detail = sidecar.TransportFailed, t.err.Error()
	}
	log.Info("ended", "connection", e.Connection, "received", e.Received, "written", e.Written, "transport", e.Transport, "detail", e.Detail, "protocol", e.Protocol, "framing", e.Framing)
	// Where connections follow each other, ends of all kinds are what the
	// journal is for. Where this was the only one, what it lacks is missing.
	// A stop of ours cuts what was under way, and is no loss of the stream's.
	cut := t.ending == wire.EndingCut || !v.Whole() && v.End != source.EndNoWitness
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Findings = r.found[e.Connection]
	delete(r.found, e.Connection)
	missing := only && v.End != source.EndSignal && (cut || t.ending == wire.EndingLost || e.Findings > 0)
	r.missing = r.missing || missing || e.Received > e.Written
	if len(r.ended) == maxEnded {
		r.ended = append(r.ended[:0], r.ended[1:]...)
		r.omitted++
	}
	r.ended = append(r.ended, e)
}
