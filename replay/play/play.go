package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/dendro"
	"wiretape/wire/melin"
	"wiretape/wire/protocols"
)

// Options are how a run is sent.
type Options struct {
	// Speed is how many recorded seconds pass in one; 0 is as fast as the
	// subscriber takes them.
	Speed float64
	// Clock is SystemClock unless set.
	Clock Clock
}

// Sent says what was sent of one run of a connection.
type Sent struct {
	Connection string `json:"connection"`
	// From and To are offsets in the connection.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Prefix is how many bytes were sent before them that its context needs.
	Prefix int64 `json:"prefix_bytes"`
	// Took is how long it took, Late the longest that bytes were behind.
	Took time.Duration `json:"took_ns"`
	Late time.Duration `json:"late_ns"`
	// Notes are what somebody who looks at the subscriber should know.
	Notes []string `json:"notes,omitempty"`
}

// ErrNoContext: bytes from the middle of a connection that no subscriber could
// take.
var ErrNoContext = errors.New("starts in the middle of a connection, and what a subscriber needs to take it is not known")

// buffer is how much is sent at a time.
const buffer = 64 << 10

// Prefix is what a subscriber needs to be sent before a run that starts in the
// middle of a connection: for dendro the preamble, and for each ordinal the
// newest Handshake and the newest SourceUpdate after it.
func Prefix(run *capture.Run) (prefix []byte, notes []string, err error) {
	if run.Context == nil {
		if !beginsAsItself(run) {
			return nil, nil, ErrNoContext
		}
		return nil, nil, nil
	}
	switch run.Connection().Protocol {
	case dendro.Name:
		prefix = dendro.AppendPreamble(nil)
		n := 0
		for _, e := range run.Context.Entries {
			if h, ok := e.Value("handshake"); ok {
				prefix = append(prefix, h.Bytes...)
				n++
			}
			if u, ok := e.Value("source_update"); ok {
				prefix = append(prefix, u.Bytes...)
			}
		}
		if n == 0 {
			return nil, nil, ErrNoContext
		}
		notes = append(notes, "starts in the middle of a connection: the preamble and "+wire.Count(int64(n), "handshake")+
			" of its context went before it; where rows were built against an index, a subscriber"+
			" skips them until the next Full (none may come, and a Full can't be made up)")
		for _, what := range run.Context.Omitted {
			notes = append(notes, "not in the context: "+wire.SafeText(what, 200))
		}
		return prefix, notes, nil
	case melin.Name:
		return nil, nil, ErrNoContext
	}
	return nil, []string{"starts in the middle of a connection"}, nil
}

// beginsAsItself says that a run begins as its protocol does, or that nothing is
// known against it. What a recorder wrote from the connection's first byte on
// goes as it came. A raw stream has nothing but its bytes to tell where it begins,
// and who names its protocol may name one of its middle. What can't be read is
// reported where it is sent.
func beginsAsItself(run *capture.Run) bool {
	c := run.Connection()
	p := protocols.All().Named(c.Protocol)
	if p == nil || !c.Raw {
		return true
	}
	src, _ := run.Open()
	defer src.Close()
	b := make([]byte, wire.DetectLimit)
	n, err := io.ReadFull(src, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return true
	}
	match, _ := p.Detect(b[:n], true)
	return match == wire.Matched
}

// Run sends one run to w. It ends at the run's end, at the first error of w or
// when ctx is done.
func Run(ctx context.Context, run *capture.Run, w io.Writer, opt Options) (*Sent, error) {
	if opt.Clock == nil {
		opt.Clock = SystemClock()
	}
	s := &Sent{Connection: run.Connection().ID, From: run.Start, To: run.Start}
	prefix, notes, err := Prefix(run)
	s.Notes = notes
	if err != nil {
		return s, fmt.Errorf("connection %s at %d: %w", s.Connection, run.Start, err)
	}
	began := opt.Clock.Now()
	defer func() { s.Took = opt.Clock.Now() - began }()
	if _, err := w.Write(prefix); err != nil {
		return s, fmt.Errorf("sending: %w", err)
	}
	s.Prefix = int64(len(prefix))
	src, _ := run.Open()
	defer src.Close()
	p := pacer{clock: opt.Clock, speed: opt.Speed}
	defer func() { s.Late = p.late }()
	buf := make([]byte, buffer)
	// send passes bytes on up to an offset in the connection.
	send := func(to int64) error {
		for s.To < to {
			n, err := src.Read(buf[:min(to-s.To, buffer)])
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return fmt.Errorf("sending byte %d of connection %s: %w", s.To, s.Connection, err)
				}
				s.To += int64(n)
			}
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range run.Files {
		arrivals, cut, err := f.Arrivals()
		if opt.Speed > 0 {
			switch {
			case err != nil || len(arrivals) == 0:
				s.Notes = append(s.Notes, wire.SafeText(f.Name, 0)+" has no arrival times: sent as fast as it goes")
			case cut:
				s.Notes = append(s.Notes, wire.SafeText(f.Name, 0)+" has arrival times for its first part only")
			}
		}
		for _, a := range arrivals {
			if a.Offset >= f.End() {
				break
			}
			if err := p.wait(ctx, a.Mono); err != nil {
				return s, err
			}
			if err := send(min(a.Offset+a.Length, f.End())); err != nil {
				return s, err
			}
		}
		if err := send(f.End()); err != nil {
			return s, err
		}
	}
	return s, nil
}
