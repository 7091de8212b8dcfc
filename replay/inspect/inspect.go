// Package inspect shows the frames of recordings, of any protocol: as lines
// that people read, as JSON lines (docs/inspect-json.md), and one frame with
// every field and its place.
package inspect

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// Options are what is shown, and how.
type Options struct {
	// JSON writes JSON lines instead of text.
	JSON bool
	// Hex adds the bytes of each frame that is shown.
	Hex bool
	// Frame, if set, shows one frame of each connection with all of its fields.
	Frame *Ref
	// Connection is the id of the one to show, "" for all.
	Connection string
	// Kinds are names or numbers of frame kinds; none means all.
	Kinds []string
	// Source is a source's number or label, Stream the name of a series that a
	// frame must be of or have rows of.
	Source string
	Stream string
	// From and To bound the offsets at which frames start: From ≤ offset < To.
	// A To of 0 is no bound.
	From, To int64
	// Limit ends the listing after so many frames; 0 is none.
	Limit int64
}

// Ref names a frame of a connection: by its number, counted from 1, where 0 is
// the preamble, or by any byte of it.
type Ref struct {
	Number   int64
	Offset   int64
	ByOffset bool
}

// ParseRef reads a Ref: "12" or, by a byte's offset, "@4096".
func ParseRef(s string) (*Ref, error) {
	digits, byOffset := strings.CutPrefix(s, "@")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is no frame: write its number, counted from 1, or @OFFSET", s)
	}
	if byOffset {
		return &Ref{Offset: n, ByOffset: true}, nil
	}
	return &Ref{Number: n}, nil
}

// Result is what was read and shown.
type Result struct {
	Frames   int64
	Shown    int64
	Findings int64
}

// ErrNoFrame is that no connection has the frame that Options.Frame names.
var ErrNoFrame = errors.New("no such frame")

// ErrNothing is that the filters match no frame of the input.
var ErrNothing = errors.New("the selection matches nothing in the input")

// filters says that the options choose some of the frames.
func (o *Options) filters() bool {
	return len(o.Kinds) > 0 || o.Source != "" || o.Stream != "" || o.From > 0 || o.To > 0
}

// ErrKind is that Options.Kinds names a kind that none of the inputs' protocols
// has, ErrConnection that there is no such connection.
var (
	ErrKind       = errors.New("no such frame kind")
	ErrConnection = errors.New("no such connection")
)

// lineSize is how much output is gathered.
const lineSize = 64 << 10

// Write shows the frames and findings of a set.
func Write(out io.Writer, set *capture.Set, opt Options) (Result, error) {
	in := &inspector{opt: opt, set: set}
	if err := in.prepare(); err != nil {
		return Result{}, err
	}
	w := bufio.NewWriterSize(out, lineSize)
	if opt.JSON {
		in.view = &jsonLines{w: w, hex: opt.Hex}
	} else {
		in.view = &textLines{w: w, hex: opt.Hex}
	}
	err := in.run()
	return in.res, errors.Join(err, w.Flush())
}

// frame is one unit as a view is told it.
type frame struct {
	conn   *capture.Connection
	file   *capture.File
	at     int64 // of the frame in its file
	number int64
	// missing is how many bytes of the connection before it are not here, -1
	// where that is not known: number counts the frames that are here.
	missing int64
	unit    wire.Unit
	dec     wire.Decoder
	name    string
}

// view writes what is shown.
type view interface {
	begin(c *capture.Connection) error
	frame(f *frame) error
	detail(f *frame) error
	finding(f *wire.Finding) error
	// raw shows bytes without frames, rest how many more there are.
	raw(c *capture.Connection, at int64, b []byte) error
	rest(n int64) error
	end(c *capture.Connection, e wire.Ending, at, frames, findings int64) error
}

type inspector struct {
	opt   Options
	set   *capture.Set
	view  view
	res   Result
	kinds map[string]map[uint32]bool // by protocol
	done  bool
}

// prepare checks the options against the inputs.
func (in *inspector) prepare() error {
	if id := in.opt.Connection; id != "" {
		found := false
		for _, c := range in.set.Connections {
			found = found || c.ID == id
		}
		if !found {
			return fmt.Errorf("%w: %s", ErrConnection, wire.SafeText(id, 100))
		}
	}
	if len(in.opt.Kinds) == 0 {
		return nil
	}
	in.kinds = map[string]map[uint32]bool{}
	known := map[string]bool{}
	var names []string
	times := map[string]int{}
	for _, c := range in.set.Connections {
		if in.kinds[c.Protocol] != nil {
			continue
		}
		p := protocols.All().Named(c.Protocol)
		wanted := map[uint32]bool{}
		in.kinds[c.Protocol] = wanted
		for _, k := range in.opt.Kinds {
			if n, err := strconv.ParseUint(k, 0, 32); err == nil {
				wanted[uint32(n)] = true
				known[k] = true
			}
		}
		if p == nil {
			continue
		}
		for n := range uint32(maxKind) {
			name := p.KindName(n)
			if name == "" {
				continue
			}
			times[name]++
			names = append(names, name+kindNumber(n))
			for _, k := range in.opt.Kinds {
				if strings.EqualFold(k, name) {
					wanted[n] = true
					known[k] = true
				}
			}
		}
	}
	for _, k := range in.opt.Kinds {
		if !known[k] {
			// A name of one kind goes without its number.
			for i, name := range names {
				if bare, _, _ := strings.Cut(name, " ("); times[bare] == 1 {
					names[i] = bare
				}
			}
			return fmt.Errorf("%w: %s; the inputs can have %s", ErrKind, wire.SafeText(k, 60), strings.Join(names, ", "))
		}
	}
	return nil
}

// kindNumber is a kind's number behind its name.
func kindNumber(n uint32) string { return fmt.Sprintf(" (0x%02x)", n) }

// maxKind is above every kind number that has a name.
const maxKind = 1 << 16

func (in *inspector) run() error {
	for i := range in.set.Findings {
		if err := in.finding(&in.set.Findings[i]); err != nil {
			return err
		}
	}
	hit := false
	for _, c := range in.set.Connections {
		if in.opt.Connection != "" && c.ID != in.opt.Connection {
			continue
		}
		found, err := in.connection(c)
		if err != nil {
			return fmt.Errorf("connection %s: %w", wire.SafeText(c.ID, 100), err)
		}
		hit = hit || found
		if in.done {
			return nil
		}
	}
	if in.opt.Frame != nil && !hit {
		return ErrNoFrame
	}
	if in.opt.filters() && in.res.Shown == 0 {
		return ErrNothing
	}
	return nil
}

func (in *inspector) finding(f *wire.Finding) error {
	in.res.Findings++
	return in.view.finding(f)
}

// connection shows one connection. hit says that it has the frame asked for.
func (in *inspector) connection(c *capture.Connection) (hit bool, err error) {
	one := in.opt.Frame != nil
	before := in.res
	if !one {
		if err := in.view.begin(c); err != nil {
			return false, err
		}
		for i := range c.Findings {
			if err := in.finding(&c.Findings[i]); err != nil {
				return false, err
			}
		}
	}
	units := c.Units()
	defer units.Close()
	p := protocols.All().Named(c.Protocol)
	if p == nil {
		return false, in.bytes(c)
	}
	number, at := int64(0), int64(0)
	for {
		u, found, err := units.Next()
		if err != nil && err != io.EOF {
			return hit, err
		}
		end := err == io.EOF
		if !end {
			at = u.End()
		}
		// What is about bytes before the unit comes before it, all by offset.
		slices.SortStableFunc(found, func(a, b wire.Finding) int { return cmp.Compare(a.Offset, b.Offset) })
		split := len(found)
		if !end {
			split = 0
			for split < len(found) && found[split].Offset < u.Offset {
				split++
			}
		}
		if !one {
			for i := range found[:split] {
				if err := in.finding(&found[i]); err != nil {
					return hit, err
				}
			}
		}
		if end {
			break
		}
		f := frame{conn: c, unit: u, dec: units.Decoder()}
		f.file, f.at = units.Run().FileAt(u.Offset)
		f.missing = missingBefore(c, u.Offset)
		if u.Type == wire.UnitFrame {
			number++
			in.res.Frames++
			f.number = number
			if f.name = p.KindName(u.Kind); f.name == "" {
				f.name = "unknown"
			}
		} else {
			f.name = "preamble"
		}
		switch {
		case one && !in.opt.Frame.is(&f):
			if hit || in.opt.Frame.behind(&f) {
				return hit, nil
			}
			continue
		case one:
			if !hit {
				// What is told of the files concerns every frame.
				for i := range c.Findings {
					if err := in.finding(&c.Findings[i]); err != nil {
						return hit, err
					}
				}
			}
			hit = true
			if err := in.view.detail(&f); err != nil {
				return hit, err
			}
			in.res.Shown++
		case in.wants(&f):
			if err := in.view.frame(&f); err != nil {
				return hit, err
			}
			if u.Type == wire.UnitFrame {
				in.res.Shown++
			}
		}
		for i := range found[split:] {
			if err := in.finding(&found[split+i]); err != nil {
				return hit, err
			}
		}
		if in.opt.Limit > 0 && in.res.Shown >= in.opt.Limit {
			in.done = true
			return hit, nil
		}
	}
	if one {
		return hit, nil
	}
	return hit, in.view.end(c, units.Ending(), at, in.res.Frames-before.Frames, in.res.Findings-before.Findings)
}

// missingBefore is how many bytes of the connection before an offset are not
// here, -1 where that is not known.
func missingBefore(c *capture.Connection, offset int64) (n int64) {
	end := int64(0)
	for _, r := range c.Runs() {
		if r.Start > offset {
			break
		}
		if r.Loose || r.Start == 0 && r.Context != nil {
			return -1
		}
		n += r.Start - end
		end = r.End()
	}
	return n
}

// rawShown is how many bytes without frames are shown unless all are asked for.
const rawShown = 4096

// bytes shows a connection of no known protocol as the bytes that it is, those
// within the offsets that the options name; without Hex the first of them.
func (in *inspector) bytes(c *capture.Connection) error {
	if in.opt.Frame != nil || len(in.opt.Kinds) > 0 || in.opt.Source != "" || in.opt.Stream != "" {
		return nil
	}
	left := int64(rawShown)
	if in.opt.Hex {
		left = math.MaxInt64
	}
	b := make([]byte, lineSize)
	for _, run := range c.Runs() {
		at := max(run.Start, in.opt.From)
		end := run.End()
		if in.opt.To > 0 {
			end = min(end, in.opt.To)
		}
		src, _ := run.OpenAt(at)
		for at < end && left > 0 {
			n, err := io.ReadFull(src, b[:min(int64(len(b)), end-at, left)])
			if n > 0 {
				in.res.Shown++
				if err := in.view.raw(c, at, b[:n]); err != nil {
					return errors.Join(err, src.Close())
				}
			}
			at, left = at+int64(n), left-int64(n)
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return errors.Join(err, src.Close())
			}
			if err != nil {
				break
			}
		}
		if err := src.Close(); err != nil {
			return err
		}
		if left == 0 && at < end {
			return in.view.rest(end - at)
		}
	}
	return nil
}

// is says that r names f.
func (r *Ref) is(f *frame) bool {
	if r.ByOffset {
		return f.unit.Offset <= r.Offset && r.Offset < f.unit.End()
	}
	return f.number == r.Number && (f.unit.Type == wire.UnitFrame) == (r.Number > 0)
}

// behind says that f comes after what r names.
func (r *Ref) behind(f *frame) bool {
	if r.ByOffset {
		return f.unit.Offset > r.Offset
	}
	return f.number > r.Number
}

// wants says that f passes the filters.
func (in *inspector) wants(f *frame) bool {
	o := &in.opt
	if f.unit.Offset < o.From || o.To > 0 && f.unit.Offset >= o.To {
		return false
	}
	if in.kinds == nil && o.Source == "" && o.Stream == "" {
		return true
	}
	if f.unit.Type != wire.UnitFrame || in.kinds != nil && !in.kinds[f.conn.Protocol][f.unit.Kind] {
		return false
	}
	if o.Source == "" && o.Stream == "" {
		return true
	}
	info := f.dec.Info(f.unit)
	if o.Source != "" && !(info.HasSource && (wire.Utoa(info.Source) == o.Source || info.Label == o.Source)) {
		return false
	}
	if o.Stream == "" || info.Stream == o.Stream {
		return true
	}
	fields, _ := f.dec.Fields(f.unit)
	return wire.AnyStream(fields, func(name []byte) bool { return string(name) == o.Stream })
}

// batch is how many children of a field are made at a time.
const batch = 256

// hash is the hash by which a blob is shown.
func hash(b []byte) [32]byte { return sha256.Sum256(b) }
