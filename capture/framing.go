package capture

import (
	"sort"

	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// framing follows the frames of one connection as its bytes go by: where a file
// may be cut, what was counted and found since the file began. It never refuses
// bytes. The recorder and recovery share it.
type framing struct {
	registry  wire.Registry
	protocol  wire.Protocol // nil while and where unknown
	direction wire.Direction
	scanner   *wire.Scanner
	// prefix is held until the protocol is found out; detecting says so.
	detecting bool
	prefix    []byte
	offset    int64 // in the connection, behind all that was seen
	// lastWhole is the end of the last whole unit that was no junk.
	lastWhole int64

	// Since mark was called:
	kinds      map[uint32]int64
	otherKinds int64
	found      []wire.Finding
	omitted    int64
	// unframed says that bytes went by that no frame is known of.
	unframed bool
	// zeros that the input ends in at end, and how the frames ended, "" where
	// they are not known and before finish.
	zeros  wire.Zeros
	end    int64
	ending wire.Ending
}

// newFraming starts at an offset of a connection. protocol is a name of the
// registry, "raw", or "" and "auto" to find it out, which needs offset 0. A
// context that can't be used leaves the framing unknown; the error says why.
func newFraming(reg wire.Registry, protocol string, dir wire.Direction, offset int64, ctx *wire.Context) (*framing, error) {
	fr := &framing{registry: reg, direction: dir, offset: offset, lastWhole: offset, kinds: map[uint32]int64{}}
	if protocol == "" || protocol == ProtocolAuto {
		fr.detecting = offset == 0
		fr.unframed = !fr.detecting
		return fr, nil
	}
	p := reg.Named(protocol)
	if p == nil {
		fr.unframed = true
		return fr, nil
	}
	if offset > 0 && ctx == nil {
		ctx = wire.MidStream(protocol)
	}
	return fr, fr.start(p, ctx)
}

func (fr *framing) start(p wire.Protocol, ctx *wire.Context) error {
	dec, err := p.Open(wire.Config{Direction: fr.direction, Context: ctx})
	if err != nil {
		fr.unframed = true
		return err
	}
	fr.protocol = p
	fr.scanner = wire.NewScanner(dec, fr.offset, 0)
	fr.scanner.EndsIn(fr.zeros, fr.end)
	return nil
}

// endsIn says of bytes that lie there where they end, and of what zeros there a
// power loss may have left.
func (fr *framing) endsIn(z wire.Zeros, end int64) {
	fr.zeros, fr.end = z, end
	if fr.scanner != nil {
		fr.scanner.EndsIn(z, end)
	}
}

// name is the protocol's name for a sidecar.
func (fr *framing) name() string {
	if fr.protocol == nil {
		return ProtocolRaw
	}
	return fr.protocol.Name()
}

// framed says that frames are being followed at the current place.
func (fr *framing) framed() bool { return fr.scanner != nil && !fr.scanner.Lost() }

// atBoundary says that a frame begins here, as far as is known.
func (fr *framing) atBoundary() bool {
	return fr.framed() && fr.scanner.AtBoundary() || fr.offset == 0
}

// cuttable says that a file may end here: at a boundary, or where no frame is
// known that it would cut.
func (fr *framing) cuttable() bool {
	if fr.detecting {
		return fr.offset == 0
	}
	return !fr.framed() || fr.scanner.AtBoundary() || fr.scanner.Searching()
}

// nextSize is the size of the unit that begins with p at a boundary, as far as
// p tells it, else 0.
func (fr *framing) nextSize(p []byte) int64 {
	if !fr.atBoundary() || fr.scanner == nil || len(p) == 0 {
		return 0
	}
	switch h := fr.scanner.Decoder().Head(p, false); h.Type {
	case wire.UnitFrame, wire.UnitPreamble:
		return h.Size
	}
	return 0
}

// step takes bytes of p, at least one: no further than to the end of the current
// frame, and where there are no frames no more than room.
func (fr *framing) step(p []byte, room int64) int {
	if fr.settle(p, false); fr.detecting {
		// All that came so far is less than a first frame that may be one.
		fr.prefix = append(fr.prefix, p...)
		fr.offset += int64(len(p))
		return len(p)
	}
	if !fr.framed() {
		fr.unframed = true
		n := int(min(int64(len(p)), max(room, 1)))
		if fr.scanner != nil {
			fr.scanner.Next(p[:n])
		}
		fr.offset += int64(n)
		return n
	}
	if fr.scanner.Searching() {
		p = p[:min(int64(len(p)), max(room, 1))]
	}
	// No more than room, since the frames may get lost in it; of a frame that
	// is larger than that, the rest at once.
	if room > 0 {
		p = p[:min(int64(len(p)), room)]
	}
	return fr.scan(p)
}

// scan takes bytes of p up to the end of the unit under way. Units that had to
// wait for later bytes to be told are counted as soon as those came: what is
// counted at a place must not depend on how the bytes before it were cut.
func (fr *framing) scan(p []byte) int {
	total := 0
	for {
		n, u, done := fr.scanner.Next(p)
		total += n
		fr.offset += int64(n)
		if done {
			fr.count(u)
		}
		if fr.scanner.Lost() {
			fr.unframed = true
		}
		if n == 0 && !done || done && fr.scanner.AtBoundary() && total > 0 {
			break
		}
		if p = p[n:]; total > 0 {
			p = p[:0]
		}
	}
	fr.collect()
	return total
}

func (fr *framing) count(u wire.Unit) {
	fr.lastWhole = u.End()
	if u.Type == wire.UnitFrame {
		if _, known := fr.kinds[u.Kind]; known || len(fr.kinds) < sidecar.MaxKinds {
			fr.kinds[u.Kind]++
		} else {
			fr.otherKinds++
		}
	}
}

func (fr *framing) collect() {
	for _, f := range fr.scanner.Findings() {
		if len(fr.found) == sidecar.MaxFindings {
			fr.omitted++
			continue
		}
		fr.found = append(fr.found, f)
	}
}

// settle finds the protocol out where the bytes held so far and the coming ones
// tell it. Those that were held go through the scanner; the coming ones are not
// taken, so that a file may end among them as the frames are.
func (fr *framing) settle(coming []byte, end bool) {
	if !fr.detecting {
		return
	}
	held := fr.prefix
	n := min(len(coming), wire.DetectLimit-len(held))
	proto, dir, more := fr.registry.Detect(append(held[:len(held):len(held)], coming[:n]...), end)
	if proto == nil && more {
		return
	}
	fr.detecting, fr.prefix = false, nil
	if proto == nil {
		fr.unframed = true
		return
	}
	// What travels tells the direction better than who connected to whom.
	if dir != wire.DirectionUnknown {
		fr.direction = dir
	}
	fr.offset = 0
	if err := fr.start(proto, nil); err != nil {
		fr.offset = int64(len(held))
		return
	}
	for len(held) > 0 {
		held = held[fr.scan(held):]
	}
}

// finish says that the stream ends here.
func (fr *framing) finish() {
	fr.settle(nil, true)
	if fr.scanner != nil {
		for u, done := fr.scanner.Rest(); done; u, done = fr.scanner.Rest() {
			fr.count(u)
		}
		fr.ending = fr.scanner.Finish()
		fr.unframed = fr.unframed || fr.ending == wire.EndingLost
		fr.collect()
	}
}

// context is what a reader needs to go on from here, nil at the start of the
// connection and where nothing is known.
func (fr *framing) context(limit int) *wire.Context {
	if fr.offset == 0 || fr.scanner == nil {
		return nil
	}
	if c := fr.scanner.Decoder().Context(limit); c != nil {
		return c
	}
	return wire.MidStream(fr.name())
}

// mark begins the account of a new file.
func (fr *framing) mark() {
	fr.kinds = map[uint32]int64{}
	fr.found, fr.omitted, fr.otherKinds = nil, 0, 0
	fr.unframed = !fr.detecting && !fr.framed()
	fr.lastWhole = fr.offset
}

// word is Sidecar.Framing for the bytes since mark.
func (fr *framing) word() string {
	switch {
	case fr.scanner == nil:
		return sidecar.FramingUnknown
	case fr.unframed:
		return sidecar.FramingLost
	}
	return sidecar.FramingFrames
}

// describe fills in what a sidecar says of the frames since mark, up to end.
func (fr *framing) describe(s *sidecar.Sidecar, connection, file string) {
	s.Protocol = fr.name()
	if fr.scanner != nil {
		if c := fr.scanner.Decoder().Context(0); c != nil {
			s.ProtocolVersion = c.Version
		}
	}
	s.Direction = fr.direction.String()
	s.Framing = fr.word()
	s.EndsAtBoundary = fr.atBoundary()
	s.Boundary = min(max(fr.lastWhole, s.Start), s.End())
	if s.Framing == sidecar.FramingUnknown {
		s.Boundary = s.End()
	}
	s.Frames, s.OtherFrames = kindCounts(fr.protocol, fr.kinds), fr.otherKinds
	for _, f := range fr.found {
		f.Connection, f.File = connection, file
		s.Findings = append(s.Findings, sidecar.FromWire(f))
	}
	s.FindingsOmitted = fr.omitted
}

func kindCounts(p wire.Protocol, kinds map[uint32]int64) []sidecar.KindCount {
	out := make([]sidecar.KindCount, 0, len(kinds))
	for k, n := range kinds {
		c := sidecar.KindCount{Kind: k, Count: n}
		if p != nil {
			c.Name = p.KindName(k)
		}
		out = append(out, c)
	}
	sortKinds(out)
	return out
}

func sortKinds(ks []sidecar.KindCount) {
	sort.Slice(ks, func(i, j int) bool { return ks[i].Kind < ks[j].Kind })
}
