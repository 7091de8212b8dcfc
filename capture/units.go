package capture

// This file reads a connection unit by unit, as far as it can be read.

import (
	"errors"
	"io"

	"wiretape/wire"
)

// UnitReader gives the units of a connection in their order, across files and
// holes. Where the framing was lost it goes on with the next file that starts
// at a frame boundary, with that file's context; where a file can't be read,
// with the next that can.
type UnitReader struct {
	conn    *Connection
	left    []*Run
	run     *Run
	src     *RunReader
	dec     wire.Decoder
	read    *wire.Reader
	found   []wire.Finding
	ending  wire.Ending
	restart bool
	hashed  map[string]bool // files whose hash was found to differ
	// the place in the first run and its decoder, where reading goes on
	at    int64
	again wire.Decoder
	// patient: a file that can't be opened is an error, and not passed over.
	patient bool
	// Growing says that the connection may still be recorded: at the end of
	// what is here Next gives wire.ErrMore.
	Growing bool
	// Progress, if set, is told how many bytes were read.
	Progress func(n int64)
	// Open, if set, starts the decoder of a run instead of the connection: for
	// who knows more of it than the run's context.
	Open func(*Run) (wire.Decoder, error)
}

// Units starts at the connection's first byte that is here.
func (c *Connection) Units() *UnitReader { return &UnitReader{conn: c, left: c.runs} }

// UnitsFrom goes on in a run at an offset, a unit's first byte, with the decoder
// that has observed what came before, and ends with the run. A file that can't
// be opened is an error here: who goes on from place to place may try again.
func (c *Connection) UnitsFrom(run *Run, offset int64, dec wire.Decoder) *UnitReader {
	return &UnitReader{conn: c, left: []*Run{run}, at: offset, again: dec, patient: true}
}

// Run is the stretch that the last unit came from.
func (r *UnitReader) Run() *Run { return r.run }

// Decoder has observed the last unit; nil before the first one, and where the
// frames are not known.
func (r *UnitReader) Decoder() wire.Decoder { return r.dec }

// Restarted says that the last unit is the first of a new Decoder, which knows
// of what came before only its run's Context.
func (r *UnitReader) Restarted() bool { return r.restart }

// Ending is how the last run ended, "" where its frames are not known. It is
// good once Next gave io.EOF.
func (r *UnitReader) Ending() wire.Ending { return r.ending }

// Close closes the file that is open.
func (r *UnitReader) Close() error {
	if r.src == nil {
		return nil
	}
	return r.src.Close()
}

// Next gives the next unit and what was found at it, with connection and file;
// both are good until the next call. Findings may come with io.EOF. Another
// error is that of a file that can't be read at all.
func (r *UnitReader) Next() (wire.Unit, []wire.Finding, error) {
	r.found = r.found[:0]
	r.restart = false
	for {
		if r.src == nil {
			if len(r.left) == 0 {
				return wire.Unit{}, r.found, io.EOF
			}
			r.open(r.left[0])
			r.left = r.left[1:]
		}
		u, err := r.unit()
		var damage *DamagedError
		switch {
		case err == errElsewhere:
		case errors.As(err, &damage) && !(r.patient && damage.Unopened):
			r.found = append(r.found, damage.Finding)
			r.goOn(damage.Next)
		case err == io.EOF:
			r.goOn(nil)
		default:
			return u, r.found, err
		}
	}
}

// errElsewhere says that reading goes on with another run.
var errElsewhere = errors.New("the framing was lost; reading goes on with a later file")

func (r *UnitReader) open(run *Run) {
	r.run, r.restart, r.ending = run, true, ""
	src, opt := run.OpenAt(max(run.Start, r.at))
	r.src, r.read = src, nil
	if r.Growing && len(r.left) <= 1 {
		// Zeros at the end may be the next frame's own.
		opt.Live, opt.Zeros = true, wire.Zeros{}
	}
	if r.again != nil {
		r.restart, r.dec = false, r.again
		r.read = wire.NewReader(src, r.dec, opt)
		r.at, r.again = 0, nil
		return
	}
	start := r.conn.Decoder
	if r.Open != nil {
		start = r.Open
	}
	dec, err := start(run)
	if err != nil {
		r.found = append(r.found, run.Locate(wire.Finding{Kind: KindSidecarStale, Offset: run.Start,
			Message: "the context can't be used: " + wire.SafeText(err.Error(), 300),
			Cost:    "the frames from here to the next hole are not read"}))
		dec = nil
	}
	if r.dec = dec; dec != nil {
		r.read = wire.NewReader(src, dec, opt)
	}
}

// goOn leaves the run for the rest of it that can be read, nil when that is
// nothing.
func (r *UnitReader) goOn(rest *Run) {
	r.src.Close()
	r.src = nil
	if rest != nil {
		r.left = append([]*Run{rest}, r.left...)
	}
}

func (r *UnitReader) unit() (wire.Unit, error) {
	if r.read == nil {
		_, err := io.Copy(progressFunc(r.Progress), r.src)
		r.hashes()
		if err == nil {
			err = io.EOF
		}
		return wire.Unit{}, err
	}
	before := r.read.Offset()
	u, found, err := r.read.Next()
	if r.Progress != nil {
		r.Progress(r.read.Offset() - before)
	}
	r.hashes()
	for _, f := range found {
		if rest := r.resume(&f); rest != nil {
			r.found = append(r.found, r.run.Locate(f))
			r.goOn(rest)
			return wire.Unit{}, errElsewhere
		}
		r.found = append(r.found, r.run.Locate(f))
	}
	if err == io.EOF {
		r.ending = r.read.Ending()
	}
	return u, err
}

// hashes takes what was found of hashes, once for a file that is read twice.
func (r *UnitReader) hashes() {
	for _, f := range r.src.Findings() {
		if r.hashed[f.File] {
			continue
		}
		if r.hashed == nil {
			r.hashed = map[string]bool{}
		}
		r.hashed[f.File] = true
		r.found = append(r.found, f)
	}
}

// resume gives the rest of the run with which reading goes on, when f tells of
// a stretch without frames in which a later file begins, and cuts the stretch
// there.
func (r *UnitReader) resume(f *wire.Finding) *Run {
	switch f.Kind {
	case wire.KindLost, wire.KindBadLength, wire.KindBadPreamble, wire.KindBadVersion:
	default:
		return nil
	}
	rest := r.run.After(f.Offset)
	if rest == nil || rest.Start >= f.Offset+f.Length {
		return nil
	}
	*f = wire.SteppedOver(*f, f.Offset, rest.Start-f.Offset)
	return rest
}
