package record

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/capture/source"
	"wiretape/wire"
)

// tape records one direction of one connection. Who receives the bytes puts
// them into the buffer; a goroutine of the tape's own writes them, and another
// makes them safe, so that neither a slow write nor a slow sync holds up the
// network before the buffer is full.
type tape struct {
	r   *Recorder
	buf *buffer
	// open begins the connection on disk, which may take its time, too.
	open func() (*capture.Writer, error)
	// failed is called once when recording can't go on. It must not wait for
	// the disk.
	failed func(error)
	// name is the endpoint's, for people; quiet says that an unknown protocol
	// is nothing to warn of.
	name  string
	quiet bool
	// w is there once it was opened.
	w atomic.Pointer[capture.Writer]
	// protocol is what the bytes are, "" while that is not told.
	protocol atomic.Pointer[string]
	// unframed: it was said that no frames are found.
	unframed bool

	received atomic.Int64
	broken   atomic.Bool
	rotate   chan struct{}
	quit     chan error // why it has to end, from a sync or from the recorder
	done     chan struct{}

	mu                    sync.Mutex
	accounted, accountedS int64

	// Set before the buffer's end, and read only if the tape did not break.
	end source.Verdict
	// cause is why the recording ends before the connection does, with all that
	// the buffer holds recorded.
	cause error
	// Good once done is closed.
	ending wire.Ending
	err    error
}

func (r *Recorder) newTape(name string, quiet bool, open func() (*capture.Writer, error), failed func(error)) *tape {
	t := &tape{r: r, buf: newBuffer(r.opt.Buffer), open: open, failed: failed, name: name, quiet: quiet,
		rotate: make(chan struct{}, 1), quit: make(chan error, 1), done: make(chan struct{})}
	r.count.add(t)
	go t.run()
	return t
}

// stats are the writer's, zero as long as there is none.
func (t *tape) stats() capture.Stats {
	if w := t.w.Load(); w != nil {
		return w.Stats()
	}
	return capture.Stats{}
}

// commit takes the first n bytes of what the buffer's reserve gave.
func (t *tape) commit(n int, at capture.Instant) {
	t.received.Add(int64(n))
	t.r.count.received.Add(int64(n))
	t.buf.commit(n, at)
	// In this order: a look in between counts them twice, and not never.
	t.r.spend(n)
}

// pass counts n bytes that went by and are not recorded: the tape is broken, or
// was overrun.
func (t *tape) pass(n int) {
	t.received.Add(int64(n))
	t.r.count.received.Add(int64(n))
}

// errOverrun says that the disk did not keep up with the traffic of a relay.
var errOverrun = errors.New("the disk is slower than the traffic and the buffer is full: the recording of this connection ends here")

// overrun ends the recording at what is in the buffer now; that is still
// written.
func (t *tape) overrun(why error) {
	if t.broken.Load() {
		return // that was said
	}
	t.cause = why
	t.broken.Store(true)
	t.buf.end()
	t.failed(why)
}

// endWith ends the recording for a reason from outside, behind what waits to be
// written; the first one counts.
func (t *tape) endWith(err error) {
	select {
	case t.quit <- err:
	default:
	}
}

// finish says how the connection ended, and waits until everything is sealed.
func (t *tape) finish(v source.Verdict) {
	if !t.broken.Load() {
		t.end = v
		if v.End == source.EndSignal {
			// The recorder itself may have stopped everything.
			t.cause = t.r.failed()
		}
	}
	t.buf.end()
	<-t.done
	t.r.count.remove(t, t.received.Load()-t.stats().Written)
}

// notRecorded is how many received bytes are in no file, once the tape broke.
func (t *tape) notRecorded() int64 {
	if !t.broken.Load() {
		return 0
	}
	return t.received.Load() - t.stats().Written
}

// account adds to the recorder's sums what was written and synced since.
func (t *tape) account() {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats()
	t.r.count.written.Add(s.Written - t.accounted)
	t.r.count.synced.Add(s.Synced - t.accountedS)
	t.accounted, t.accountedS = s.Written, s.Synced
}

// rotateTick is how often a quiet connection is looked at for whether its file
// has spanned its time.
const rotateTick = 250 * time.Millisecond

func (t *tape) run() {
	defer close(t.done)
	w, err := t.open()
	if err != nil {
		t.err = fmt.Errorf("beginning a connection: %w", err)
		t.broken.Store(true)
		t.failed(t.err)
		t.buf.giveUp()
		return
	}
	t.w.Store(w)
	t.r.count.connections.Add(1)
	stop := make(chan struct{})
	var syncing sync.WaitGroup
	if every := t.r.opt.Sync.Every; every > 0 {
		syncing.Add(1)
		go func() {
			defer syncing.Done()
			t.syncEvery(w, every, stop)
		}()
	}
	err = t.loop(w)
	close(stop)
	syncing.Wait()
	if err == nil {
		select {
		case err = <-t.quit:
		default:
		}
	}
	if err == nil && t.broken.Load() {
		err = t.cause // told already
	} else if err != nil {
		t.broken.Store(true)
		t.failed(err)
		t.buf.giveUp()
	}
	why, v := sidecar.ClosedError, sidecar.Verdict{Kind: sidecar.TransportFailed}
	if err == nil {
		err = t.cause
	}
	if err != nil {
		v.Detail = err.Error()
	} else {
		why, v = closedFor(t.end.End), verdictOf(t.end)
	}
	ending, cerr := w.Close(v, why)
	t.tellProtocol(w)
	t.tellUnframed(w, ending == wire.EndingLost)
	t.account()
	if cerr != nil && err == nil {
		err = cerr
		t.broken.Store(true)
		t.failed(cerr)
	}
	t.ending, t.err = ending, err
}

// loop writes until the buffer ends.
func (t *tape) loop(w *capture.Writer) error {
	var tick <-chan time.Time
	if t.r.opt.Capture.RotateEvery > 0 {
		k := time.NewTicker(min(rotateTick, t.r.opt.Capture.RotateEvery))
		defer k.Stop()
		tick = k.C
	}
	var stop error
	for {
		p, from, marks, end := t.buf.take()
		if end || stop != nil && len(p) == 0 {
			return stop
		}
		var err error
		if len(p) > 0 {
			if t.r.opt.MakeRoom && t.r.lenient.Load() {
				t.r.admit()
			}
			err = t.write(w, p, from, marks)
			t.tellProtocol(w)
			t.tellUnframed(w, w.Searching())
			t.buf.release(len(p))
			select {
			case <-t.rotate:
				err = errors.Join(err, w.Rotate(sidecar.ClosedRequest))
			case stop = <-t.quit:
			default:
			}
		} else {
			select {
			case <-t.buf.ready:
				continue
			case <-t.rotate:
				err = w.Rotate(sidecar.ClosedRequest)
			case <-tick:
				err = w.RotateIfDue(t.r.clock.Now())
			case stop = <-t.quit:
				// Something may have come just before.
			}
		}
		t.account()
		if err != nil {
			return err
		}
	}
}

// write writes what waits, read by read, each with its arrival.
func (t *tape) write(w *capture.Writer, p []byte, from int, marks []mark) error {
	at := 0
	for _, m := range marks {
		end := m.end - from
		if _, err := w.Write(p[at:end], m.at); err != nil {
			return err
		}
		at = end
	}
	if t.r.opt.Sync.Frame {
		return w.Sync()
	}
	return nil
}

// tellProtocol says what the bytes are, once they tell it. Of no byte nothing is
// said.
func (t *tape) tellProtocol(w *capture.Writer) {
	if t.protocol.Load() != nil || w.Stats().Written == 0 {
		return
	}
	p := w.Protocol()
	if p == "" {
		return
	}
	t.protocol.Store(&p)
	t.r.count.told(p)
	log := t.r.log.With("endpoint", t.name, "connection", w.ID(), "protocol", p)
	if p == capture.ProtocolRaw && t.r.opt.Protocol != capture.ProtocolRaw && !t.quiet {
		log.Warn("no known protocol, recorded as raw bytes")
		return
	}
	log.Info("protocol")
}

// tellUnframed says once that what comes is not framed as its protocol is.
func (t *tape) tellUnframed(w *capture.Writer, unframed bool) {
	if unframed && !t.unframed {
		t.unframed = true
		t.r.log.Warn("no frames are found in what came; these bytes are recorded as they are", "endpoint", t.name, "connection", w.ID(), "protocol", w.Protocol())
	}
}

// protocolName is what the bytes are, "" while that is not told.
func (t *tape) protocolName() string {
	if p := t.protocol.Load(); p != nil {
		return *p
	}
	return ""
}

// recorded is what w has of the connection.
func (t *tape) recorded(w *capture.Writer) Recorded {
	n := w.Stats() // before received, which is never the smaller one
	return Recorded{w.ID(), t.name, t.protocolName(), t.received.Load(), n.Written, n.Synced}
}

func (t *tape) syncEvery(w *capture.Writer, every time.Duration, stop <-chan struct{}) {
	k := time.NewTicker(every)
	defer k.Stop()
	for {
		select {
		case <-stop:
			return
		case <-k.C:
		}
		if s := w.Stats(); s.Synced == s.Written {
			continue
		}
		if err := w.Sync(); err != nil {
			t.endWith(err)
			return
		}
		t.account()
	}
}

// closedFor is why the last file of a connection was closed.
func closedFor(e source.End) string {
	switch e {
	case source.EndSignal:
		return sidecar.ClosedSignal
	case source.EndOfStream, source.EndNoWitness:
		return sidecar.ClosedEnd
	}
	return sidecar.ClosedError
}

// verdictOf says a transport's verdict in a sidecar's words.
func verdictOf(v source.Verdict) sidecar.Verdict {
	s := sidecar.Verdict{Kind: sidecar.TransportCut, Detail: string(v.End) + ": " + v.Reason}
	switch v.End {
	case source.EndOfStream:
		s.Kind = sidecar.TransportClean
	case source.EndNoWitness:
		s.Kind = sidecar.TransportUnwitnessed
	case source.EndIdle:
		s.Kind = sidecar.TransportIdle
	case source.EndSignal:
		s.Kind = sidecar.TransportStopped
	}
	return s
}
