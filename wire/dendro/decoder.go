package dendro

import (
	"encoding/binary"

	"wiretape/wire"
)

// Disposition is what the subscriber's rules made of a frame.
type Disposition uint8

const (
	// Applied: the frame counts.
	Applied Disposition = iota
	// SkippedState: rows whose index state differs from the accumulated one.
	SkippedState
	// SkippedNoFull: rows built against an index of which no Full came yet.
	SkippedNoFull
	// Refused: the frame is malformed, or can't be.
	Refused
	// Unknown: a sound frame for an ordinal that no good Handshake introduced.
	Unknown
	// UnknownKind: a frame of a kind that this version does not have.
	UnknownKind
)

// Outcome is what [Decoder.Observe] made of its last unit. The frame of the
// unit's kind is set when it decoded whole, whatever the disposition; it lives
// in the decoder and aliases the unit's bytes: good until the next Observe and
// as long as those are.
type Outcome struct {
	Kind        uint32
	Disposition Disposition
	// Gap is how many intervals are missing before this Rows frame.
	Gap uint64
	// Fault says why a frame was refused; it is among the findings too.
	Fault *wire.Fault

	Handshake    *Handshake
	Index        *Index
	Rows         *Rows
	Segment      *Segment
	ClockOffset  *ClockOffset
	SourceUpdate *SourceUpdate
}

// source is the session state of one ordinal.
type source struct {
	ordinal uint32
	label   string
	// handshake and update are the newest frames, whole with their lengths.
	// handshake is nil where it was not kept.
	handshake []byte
	update    []byte
	// updateLost: an update that was not kept is newer than what is here.
	updateLost bool
	state      State
	seenFull   bool
	hasSeq     bool
	lastSeq    uint64
}

// gap is how many intervals are missing before seq (rule 2).
func (s *source) gap(seq uint64) uint64 {
	if s.hasSeq && seq > s.lastSeq {
		return seq - s.lastSeq - 1
	}
	return 0
}

// rowsDisposition is what becomes of rows that were built against a state
// (rule 3).
func (s *source) rowsDisposition(state State) Disposition {
	switch {
	case !s.seenFull && state != State{}:
		return SkippedNoFull
	case state != s.state:
		return SkippedState
	}
	return Applied
}

// recentSources is how many sources are found without the map.
const recentSources = 16

// phase is what the decoder expects at its position.
type phase uint8

const (
	atPreamble phase = iota
	atFrame
	// inZeros: behind zeros that no frame owns.
	inZeros
	// searching: the framing is lost.
	searching
	// doubted: a frame begins here only as far as somebody supposes.
	doubted
)

// Decoder implements [wire.Decoder] with the rules that a subscriber follows:
// per ordinal the accumulated index state, whether a Full was seen, the last
// seq, the newest Handshake and the newest SourceUpdate after it. A refused
// Handshake makes its ordinal unknown, all of them where the ordinal can't be
// read; so do lost bytes.
type Decoder struct {
	named   bool // wire.Config.Named
	phase   phase
	sources map[uint32]*source
	recent  [recentSources]*source // those looked up last, by ordinal
	held    int                    // bytes in handshake and update of all sources
	opening Opening

	out       Outcome
	handshake Handshake
	index     Index
	rows      Rows
	segment   Segment
	clock     ClockOffset
	update    SourceUpdate
}

// NewDecoder starts at the preamble, or where c.Context or c.Unaligned say.
func NewDecoder(c wire.Config) (*Decoder, error) {
	d := &Decoder{sources: map[uint32]*source{}}
	d.opening.Known = c.Context == nil && !c.Unaligned
	if c.Context != nil {
		if err := d.restore(c.Context); err != nil {
			return nil, err
		}
		d.phase = atFrame
		if c.Named && len(d.sources) == 0 {
			d.phase = doubted
		}
	}
	if c.Unaligned {
		d.phase = searching
	}
	d.named = c.Named
	return d, nil
}

// Last is the outcome of the unit that was observed last.
func (d *Decoder) Last() Outcome { return d.out }

// Head finds where a unit ends. It needs the whole of the small frames, of Rows
// the fields before the rows, of Segment and Index those before the blobs.
func (d *Decoder) Head(b []byte, end bool) wire.Head {
	switch d.phase {
	case atPreamble:
		h := preambleHead(b, end)
		if f := h.Finding; d.named && f != nil && f.Kind == wire.KindBadPreamble {
			f.Message = "the stream does not begin as one of dendro does: it starts with " + f.Got + ", not with " + f.Want + "; the first Handshake was looked for"
			h = search(b, 0, end)
			h.Finding = f
		}
		return h
	case searching:
		return search(b, 0, end)
	case doubted:
		if h, sure := doubt(b, end); !sure {
			return h
		}
	}
	if len(b) < LenSize {
		return wire.Head{Type: wire.UnitMore, Size: LenSize}
	}
	n := binary.LittleEndian.Uint32(b)
	switch {
	case n == 0:
		return d.zerosHead(b, end)
	case n > MaxFrame:
		h := search(b, 1, end)
		h.Finding = &wire.Finding{Kind: wire.KindBadLength, Field: "len",
			Want: "at most " + wire.Itoa(MaxFrame), Got: wire.Itoa(int64(n)),
			Message: "len is " + wire.Itoa(int64(n)) + ", above the limit of " + wire.Itoa(MaxFrame) +
				": the framing is lost up to the next Handshake"}
		return h
	}
	h := wire.Head{Type: wire.UnitFrame, Size: LenSize + int64(n), Peek: frameHead}
	if len(b) > LenSize {
		h.Kind = uint32(b[LenSize])
		h.Peek = min(peek(h.Kind, h.Size, b), h.Size)
		if h.Kind == KindRows && d.opening.open() {
			h.Peek = min(h.Size, MaxOpening)
		}
		h.Payload = h.Kind == KindSegment || h.Kind == KindIndex
	}
	return h
}

// peek is how many first bytes of a frame the session state needs.
func peek(kind uint32, size int64, b []byte) int64 {
	const stream = frameHead + 4 // of Index and Segment
	switch kind {
	case KindHandshake, KindSourceUpdate:
		return size
	case KindRows:
		return frameHead + 4 + 8 + 16 + 4
	case KindClockOffset:
		return frameHead + 4 + 8 + 8
	case KindIndex, KindSegment:
		if len(b) < stream+4 {
			return stream + 4
		}
		name := stream + 4 + int64(binary.LittleEndian.Uint32(b[stream:]))
		if kind == KindIndex {
			return name + 8 + 1 + 16 + 4
		}
		return name + 8 + 8 + 8 + 4
	}
	return frameHead
}

func preambleHead(b []byte, end bool) wire.Head {
	h := wire.Head{Type: wire.UnitPreamble, Size: int64(PreambleSize), Peek: int64(PreambleSize)}
	n := min(len(b), len(Magic))
	switch {
	case len(b) == 0 && end:
		return wire.Head{Type: wire.UnitMore, Size: int64(PreambleSize), Finding: &wire.Finding{
			Kind: wire.KindCut, Want: wire.Itoa(int64(PreambleSize)) + " bytes of preamble", Got: "0 bytes",
			Message: "the stream is empty: not even a preamble came"}}
	case string(b[:n]) != Magic[:n] && n < len(Magic) && !end:
		// The finding shows all of what is there instead.
		return wire.Head{Type: wire.UnitMore, Size: int64(len(Magic))}
	case string(b[:n]) != Magic[:n]:
		return wire.Head{Type: wire.UnitLost, Finding: &wire.Finding{
			Kind: wire.KindBadPreamble, Field: "magic", Want: quoted(Magic), Got: quoted(string(b[:n])),
			Message: "this is no dendro replication stream: it starts with " + quoted(string(b[:n])) + ", not with " + quoted(Magic)}}
	case len(b) >= PreambleSize:
		if v := binary.LittleEndian.Uint16(b[len(Magic):]); v != Version {
			got := wire.Itoa(int64(v))
			return wire.Head{Type: wire.UnitLost, Finding: &wire.Finding{
				Kind: wire.KindBadVersion, Field: "version", Want: wire.Itoa(Version), Got: got,
				Message: "this is a dendro replication stream of protocol " + got + "; protocol " + wire.Itoa(Version) + " is read here"}}
		}
	}
	return h
}

// maxDoubted is how much of a frame is decoded to see whether it is one.
const maxDoubted = 1 << 20

// doubt says whether a frame of a known kind begins at b: it decodes, or its first
// maxDoubted bytes do. Where none does nothing can be credited before a Handshake,
// which is looked for. Until sure, h says what to do.
func doubt(b []byte, end bool) (h wire.Head, sure bool) {
	if len(b) < frameHead && !end {
		return wire.Head{Type: wire.UnitMore, Size: frameHead}, false
	}
	if len(b) >= frameHead {
		kind, n := uint32(b[LenSize]), binary.LittleEndian.Uint32(b)
		size := LenSize + int64(n)
		if n > 0 && n <= MaxFrame && KindName(kind) != "" {
			if want := min(size, maxDoubted); int64(len(b)) < want && !end {
				return wire.Head{Type: wire.UnitMore, Size: want}, false
			}
			c := begin(wire.Unit{Type: wire.UnitFrame, Kind: kind, Size: size, Bytes: b[:min(int64(len(b)), size)]})
			c.quiet = true
			if c.payload() && c.fault == nil && !(c.short && end) {
				return wire.Head{}, true
			}
		}
	}
	h = search(b, 0, end)
	h.Finding = &wire.Finding{Kind: wire.KindLost, Want: "a frame", Got: "other bytes",
		Message: "no frame begins here, where one was supposed to: the first Handshake is looked for"}
	return h, false
}

// headless is found of a stream that begins with its first Handshake.
func headless(u wire.Unit) wire.Finding {
	got := quoted(string(u.Bytes[:min(len(u.Bytes), len(Magic))]))
	return wire.Finding{Kind: wire.KindBadPreamble, Offset: u.Offset, Field: "magic", Want: quoted(Magic), Got: got,
		Message: "the stream does not begin as one of dendro does: a Handshake comes first, and no preamble before it",
		Cost:    "what came before it, if anything did"}
}

// quoted shows bytes that may be anything.
func quoted(s string) string { return "“" + wire.SafeText(s, labelLimit) + "”" }

// zerosHead looks at a len of 0. The framing still holds: one alone is a
// malformed frame, more of them are zeros that no frame owns.
func (d *Decoder) zerosHead(b []byte, end bool) wire.Head {
	n := LenSize
	for n+LenSize <= len(b) && binary.LittleEndian.Uint32(b[n:]) == 0 {
		n += LenSize
	}
	switch {
	case n > LenSize || d.phase == inZeros:
		return wire.Head{Type: wire.UnitJunk, Size: int64(n), Peek: LenSize, Finding: &wire.Finding{
			Kind: wire.KindLost, Want: "a frame", Got: "zeros",
			Message: "a run of zeros lies between the frames"}}
	case len(b) < 2*LenSize && !end:
		return wire.Head{Type: wire.UnitMore, Size: 2 * LenSize}
	}
	return wire.Head{Type: wire.UnitFrame, Size: LenSize, Peek: LenSize}
}

// minHandshake is the len of a Handshake with nothing in it.
const minHandshake = 1 + 4 + 1 + 4 + 4 + 8 + 1

// search finds the first place from from on where a Handshake decodes whole.
// What lies before it is junk.
func search(b []byte, from int, end bool) wire.Head {
	p := from
	for ; p+frameHead <= len(b); p++ {
		if b[p+LenSize] != KindHandshake || b[p+LenSize-1] != 0 {
			continue
		}
		n := binary.LittleEndian.Uint32(b[p:])
		if n < minHandshake || n > MaxResync {
			continue
		}
		size := LenSize + int64(n)
		c := begin(wire.Unit{Type: wire.UnitFrame, Kind: KindHandshake, Size: size, Bytes: b[p:]})
		c.quiet = true
		c.handshake()
		if c.fault != nil || c.short && end {
			continue
		}
		switch {
		case p > 0:
			return wire.Head{Type: wire.UnitJunk, Size: int64(p), Peek: LenSize}
		case c.short:
			return wire.Head{Type: wire.UnitMore, Size: size}
		}
		return wire.Head{Type: wire.UnitFrame, Size: size, Peek: size, Kind: KindHandshake}
	}
	switch {
	case end && len(b) > 0:
		return wire.Head{Type: wire.UnitJunk, Size: int64(len(b)), Peek: min(LenSize, int64(len(b)))}
	case p > 0:
		// Behind p a frame may begin whose head is not here yet.
		return wire.Head{Type: wire.UnitJunk, Size: int64(p), Peek: min(LenSize, int64(p))}
	}
	return wire.Head{Type: wire.UnitMore, Size: frameHead}
}

// Observe applies the unit; see [wire.Decoder] and [Decoder.Last].
func (d *Decoder) Observe(u wire.Unit, found []wire.Finding) []wire.Finding {
	d.out = Outcome{Kind: u.Kind}
	switch u.Type {
	case wire.UnitPreamble:
		d.phase = atFrame
	case wire.UnitJunk, wire.UnitLost:
		d.forget()
		zeros := len(u.Bytes) >= LenSize && binary.LittleEndian.Uint32(u.Bytes) == 0
		// Zeros in the place of a preamble may be any part of any frame.
		if zeros && (d.phase == atFrame || d.phase == inZeros) {
			d.phase = inZeros
		} else {
			d.phase = searching
		}
	case wire.UnitFrame:
		if d.phase == atPreamble {
			found = append(found, headless(u))
		}
		d.phase = atFrame
		if d.opening.open() {
			d.opening.frame(u)
		}
		return d.frame(u, found)
	}
	return found
}

// forget makes every ordinal unknown.
func (d *Decoder) forget() {
	clear(d.sources)
	clear(d.recent[:])
	d.held = 0
}

// drop makes one ordinal unknown.
func (d *Decoder) drop(ordinal uint32) {
	if s := d.find(ordinal); s != nil {
		d.held -= len(s.handshake) + len(s.update)
		delete(d.sources, ordinal)
		d.recent[ordinal%recentSources] = nil
	}
}

// find is the state of an ordinal, nil when it is unknown.
func (d *Decoder) find(ordinal uint32) *source {
	r := &d.recent[ordinal%recentSources]
	if *r == nil || (*r).ordinal != ordinal {
		if s := d.sources[ordinal]; s != nil {
			*r = s
			return s
		}
		return nil
	}
	return *r
}

func (d *Decoder) frame(u wire.Unit, found []wire.Finding) []wire.Finding {
	if f := zeroLength(u); f != nil {
		return d.refuse(f, found)
	}
	c := begin(u)
	switch u.Kind {
	case KindHandshake:
		return d.onHandshake(u, &c, found)
	case KindIndex:
		d.index = c.index()
		if set(&c, &d.out.Index, &d.index) {
			return d.refuse(c.fault, found)
		}
		s, found := d.credit(u, d.index.Source, found)
		if s != nil {
			s.state = d.index.State
			s.seenFull = s.seenFull || d.index.Kind == IndexFull
		}
		return found
	case KindRows:
		d.rows = c.rows()
		if set(&c, &d.out.Rows, &d.rows) {
			return d.refuse(c.fault, found)
		}
		return d.onRows(u, found)
	case KindSegment:
		d.segment = c.segment()
		if set(&c, &d.out.Segment, &d.segment) {
			return d.refuse(c.fault, found)
		}
		s, found := d.credit(u, d.segment.Source, found)
		if s != nil {
			found = d.checkSegment(u, s, found)
		}
		return found
	case KindClockOffset:
		d.clock = c.clockOffset()
		if set(&c, &d.out.ClockOffset, &d.clock) {
			return d.refuse(c.fault, found)
		}
		_, found = d.credit(u, d.clock.Source, found)
		return found
	case KindSourceUpdate:
		return d.onUpdate(u, &c, found)
	}
	d.out.Disposition = UnknownKind
	return append(found, unknownKindFinding(u))
}

// set puts a frame that decoded whole into the outcome, and says that it is
// malformed.
func set[F any](c *cursor, to **F, frame *F) (malformed bool) {
	if c.fault == nil && !c.short {
		*to = frame
	}
	return c.fault != nil
}

func (d *Decoder) refuse(f *wire.Fault, found []wire.Finding) []wire.Finding {
	d.out.Disposition, d.out.Fault = Refused, f
	return append(found, f.Finding)
}

// credit finds the source of a sound frame, nil when its ordinal is unknown.
func (d *Decoder) credit(u wire.Unit, ordinal uint32, found []wire.Finding) (*source, []wire.Finding) {
	s := d.find(ordinal)
	if s == nil {
		d.out.Disposition = Unknown
		found = append(found, unknownFinding(u, ordinal))
	}
	return s, found
}

func (d *Decoder) onHandshake(u wire.Unit, c *cursor, found []wire.Finding) []wire.Finding {
	const behindSource = frameHead + 4
	d.handshake = c.handshake()
	if set(c, &d.out.Handshake, &d.handshake) {
		if len(c.b) < behindSource {
			d.forget()
		} else {
			d.drop(binary.LittleEndian.Uint32(c.b[frameHead:]))
		}
		return d.refuse(c.fault, found)
	}
	h := &d.handshake
	if d.find(h.Source) == nil && len(d.sources) >= MaxSources {
		limit := wire.Itoa(MaxSources)
		return d.refuse(&wire.Fault{Finding: frameFinding(u, KindTooManySources, "source", "at most "+limit+" sources",
			"one more", "this connection introduces more than "+limit+" sources",
			"source "+wire.Itoa(int64(h.Source))+" is not read")}, found)
	}
	d.drop(h.Source)
	s := &source{ordinal: h.Source, label: h.label()}
	if !c.short {
		s.handshake = d.keep(c.b)
	}
	d.sources[h.Source] = s
	return h.identityFindings(u, found)
}

// keep copies a frame for the context, nil where that is above the limit.
func (d *Decoder) keep(frame []byte) []byte {
	if d.held+len(frame) > MaxHeld {
		return nil
	}
	d.held += len(frame)
	return append([]byte(nil), frame...)
}

func (d *Decoder) onUpdate(u wire.Unit, c *cursor, found []wire.Finding) []wire.Finding {
	d.update = c.sourceUpdate()
	if set(c, &d.out.SourceUpdate, &d.update) {
		return d.refuse(c.fault, found)
	}
	s, found := d.credit(u, d.update.Source, found)
	if s == nil {
		return found
	}
	d.held -= len(s.update)
	s.update = nil
	if !c.short {
		s.update = d.keep(c.b)
		s.label = labelOf(d.update.Labels)
	}
	s.updateLost = s.update == nil
	found = d.update.Labels.findings("labels", found)
	return d.update.Metadata.findings("metadata", found)
}

// onRows follows rules 2 and 3.
func (d *Decoder) onRows(u wire.Unit, found []wire.Finding) []wire.Finding {
	r := &d.rows
	s, found := d.credit(u, r.Source, found)
	if s == nil {
		return found
	}
	if d.out.Gap = s.gap(r.Seq); d.out.Gap > 0 {
		found = append(found, gapFinding(u, named(s.ordinal, s.label), s.lastSeq, r.Seq, d.out.Gap))
	}
	s.hasSeq, s.lastSeq = true, r.Seq
	if d.out.Disposition = s.rowsDisposition(r.IndexState); d.out.Disposition == Applied {
		return found
	}
	return append(found, skippedFinding(u, named(s.ordinal, s.label), r, s.state, d.out.Disposition))
}

// checkSegment follows what of rule 4 the frame alone tells.
func (d *Decoder) checkSegment(u wire.Unit, s *source, found []wire.Finding) []wire.Finding {
	g := &d.segment
	var f wire.Finding
	switch {
	case len(u.Bytes) < int(peek(KindSegment, u.Size, u.Bytes)):
		// A stream name longer than what was held: the rest is not known.
		return found
	case g.Rows == 0:
		f = frameFinding(u, KindSegmentNoRows, "rows", "at least 1", "0",
			named(s.ordinal, s.label)+": a segment that claims 0 rows", "the segment is set aside")
	case g.FirstTS > g.LastTS:
		f = frameFinding(u, KindSegmentSpan, "first_ts", "at most last_ts "+wire.Itoa(g.LastTS), wire.Itoa(g.FirstTS),
			named(s.ordinal, s.label)+": a segment from "+wire.Itoa(g.FirstTS)+" to "+wire.Itoa(g.LastTS)+
				", which is before it", "the segment is set aside")
	default:
		return found
	}
	return d.refuse(&wire.Fault{Finding: f}, found)
}
