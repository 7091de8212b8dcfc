package melin

import (
	"errors"
	"hash/crc32"

	"wiretape/wire"
)

// ErrContext is returned for a context that is not one of melin's.
var ErrContext = errors.New("not a context of melin")

// stage is what a connection is at.
type stage uint8

const (
	// stageUnknown: reading started in the middle.
	stageUnknown stage = iota
	// stageControl: before the stream starts.
	stageControl
	// stageSnapshot and stageSeed: inside a body.
	stageSnapshot
	stageSeed
	// stageStreaming: behind StreamStart.
	stageStreaming
)

// maxFrameFindings is how many findings of one kind a frame gives; the rest are
// counted in one more.
const maxFrameFindings = 16

// Decoder reads one direction of one connection.
type Decoder struct {
	dir    wire.Direction
	set    Layouts
	shape  Shape
	stage  stage
	doubt  bool // the last frame did not decode: the next header is not trusted
	search bool // in junk: a header alone is not enough
	first  bool // the first bytes are still to show that a connection begins
	middle bool // they do not: set by Head, taken by Observe

	haveLast     bool
	last         uint64 // sequence
	announced    uint64 // named last where it differed from last
	passed       bool   // bytes were stepped over since last: more may have been sent
	segmentStart uint64
	haveAnchor   bool
	anchor       [HashSize]byte
	epoch        uint64

	bodyWant, bodyGot uint64
	bodyCRC           uint32
	// snapshot is the sequence of the one that the next start is behind.
	snapshot     uint64
	haveSnapshot bool

	acked, inMemory uint64

	observed bool
}

// NewDecoder starts at a connection's first byte, or where cfg.Context says. A
// context whose Version is set fixes the layout: the Handshake of the other
// direction told it. One without entries knows nothing: the first frame must
// prove itself there, and so it must where cfg.Named says that the protocol is
// this one and the stream does not begin as its connections do.
func NewDecoder(cfg wire.Config) (*Decoder, error) {
	d := &Decoder{dir: cfg.Direction, set: AllLayouts, stage: stageControl}
	if cfg.Context != nil {
		if err := d.resume(cfg.Context); err != nil {
			return nil, err
		}
		if cfg.Direction != wire.DirectionUnknown {
			d.dir = cfg.Direction
		}
	}
	d.shape = d.set.Taken().Shape()
	d.search = cfg.Unaligned || cfg.Context != nil && len(cfg.Context.Entries) == 0
	d.doubt = d.search
	d.first = cfg.Named && cfg.Context == nil && !cfg.Unaligned
	return d, nil
}

// FixLayout says that the stream is in the layout l: who knows more than one
// direction's bytes told it. 0 says nothing.
func (d *Decoder) FixLayout(l Layout) {
	if l != 0 {
		d.set = Only(l)
		d.shape = d.set.Taken().Shape()
	}
}

// AtStart is a context that starts at a connection's first byte with the layout
// known.
func AtStart(l Layout) *wire.Context {
	return &wire.Context{Protocol: Name, Version: uint32(l),
		Entries: []wire.ContextEntry{{Values: []wire.ContextValue{{Name: ctxStage, Num: uint64(stageControl)}}}}}
}

// AtFrame is a context that starts where somebody knows that a frame begins, in
// the middle of a connection of the layout l, 0 for one that is not known.
func AtFrame(l Layout) *wire.Context {
	return &wire.Context{Protocol: Name, Version: uint32(l),
		Entries: []wire.ContextEntry{{Values: []wire.ContextValue{{Name: ctxStage, Num: uint64(stageUnknown)}}}}}
}

// The names of a context's values; its one entry has the ID 0.
const (
	ctxDirection    = "direction"
	ctxLayouts      = "layouts"
	ctxStage        = "stage"
	ctxLastSequence = "last_sequence"
	ctxSegmentStart = "segment_start_sequence"
	ctxAnchor       = "anchor_hash"
	ctxEpoch        = "epoch"
	ctxBodyLength   = "body_length"
	ctxBodyGot      = "body_got"
	ctxBodyCRC      = "body_crc32c"
	ctxAcked        = "acked_sequence"
	ctxInMemory     = "in_memory_sequence"
)

func (d *Decoder) resume(c *wire.Context) error {
	if c.Protocol != Name || len(c.Entries) > 1 || c.Version > uint32(Newest) {
		return ErrContext
	}
	d.stage = stageUnknown
	if c.Version != 0 {
		d.set = Only(Layout(c.Version))
	}
	if len(c.Entries) == 0 {
		return nil
	}
	for _, v := range c.Entries[0].Values {
		switch v.Name {
		case ctxDirection:
			if v.Num > uint64(wire.Upstream) {
				return ErrContext
			}
			d.dir = wire.Direction(v.Num)
		case ctxLayouts:
			if s := Layouts(v.Num) & AllLayouts; s != 0 && c.Version == 0 {
				d.set = s
			}
		case ctxStage:
			if v.Num > uint64(stageStreaming) {
				return ErrContext
			}
			d.stage = stage(v.Num)
		case ctxLastSequence:
			d.haveLast, d.last, d.announced = true, v.Num, v.Num
		case ctxSegmentStart:
			d.segmentStart = v.Num
		case ctxAnchor:
			if len(v.Bytes) != HashSize {
				return ErrContext
			}
			d.haveAnchor = true
			copy(d.anchor[:], v.Bytes)
		case ctxEpoch:
			d.epoch = v.Num
		case ctxBodyLength:
			d.bodyWant = v.Num
		case ctxBodyGot:
			d.bodyGot = v.Num
		case ctxBodyCRC:
			d.bodyCRC = uint32(v.Num)
		case ctxAcked:
			d.acked = v.Num
		case ctxInMemory:
			d.inMemory = v.Num
		}
	}
	return nil
}

// Context is the state to go on from here. It is always small: a limit below
// its size leaves it out whole and says so.
func (d *Decoder) Context(limit int) *wire.Context {
	if !d.observed {
		return nil
	}
	c := &wire.Context{Protocol: Name}
	if d.set&(d.set-1) == 0 {
		c.Version = uint32(d.set.Taken())
	}
	var vs []wire.ContextValue
	num := func(name string, v uint64) { vs = append(vs, wire.ContextValue{Name: name, Num: v}) }
	num(ctxDirection, uint64(d.dir))
	num(ctxLayouts, uint64(d.set))
	num(ctxStage, uint64(d.stage))
	if d.haveLast {
		num(ctxLastSequence, d.last)
	}
	if d.haveAnchor {
		num(ctxSegmentStart, d.segmentStart)
		vs = append(vs, wire.ContextValue{Name: ctxAnchor, Bytes: append([]byte(nil), d.anchor[:]...)})
	}
	num(ctxEpoch, d.epoch)
	if d.stage == stageSnapshot || d.stage == stageSeed {
		num(ctxBodyLength, d.bodyWant)
		num(ctxBodyGot, d.bodyGot)
		num(ctxBodyCRC, uint64(d.bodyCRC))
	}
	if d.dir == wire.Upstream {
		num(ctxAcked, d.acked)
		num(ctxInMemory, d.inMemory)
	}
	size := 0
	for _, v := range vs {
		size += len(v.Name) + len(v.Bytes) + 8
	}
	if limit > 0 && size > limit {
		c.Omitted = []string{"session state"}
		return c
	}
	c.Entries = []wire.ContextEntry{{Values: vs}}
	return c
}

// Direction is the one given, or the one that the frames showed.
func (d *Decoder) Direction() wire.Direction { return d.dir }

// Layouts are the layouts under which everything observed reads; Taken of it is
// the one in force.
func (d *Decoder) Layouts() Layouts { return d.set }

// Shape is the shape of slots in force.
func (d *Decoder) Shape() Shape { return d.shape }

// LastSequence is the last one sent, as far as it is known.
func (d *Decoder) LastSequence() (seq uint64, known bool) { return d.last, d.haveLast }

// InBody says that the frames now carry a snapshot (false) or a seed (true).
func (d *Decoder) InBody() (in, seed bool) {
	return d.stage == stageSnapshot || d.stage == stageSeed, d.stage == stageSeed
}

// cap is the longest length that a real reader takes now.
func (d *Decoder) cap(tag uint32) int {
	switch {
	case d.dir == wire.Upstream, d.stage == stageControl:
		return MaxControl
	case d.stage == stageUnknown && tag != TagSnapshotChunk && tag != TagInputBatch && tag != TagDataBatch:
		return MaxControl
	}
	return MaxFrame
}

// Head finds the frame at the current position.
func (d *Decoder) Head(b []byte, end bool) wire.Head {
	if d.first && len(b) > 0 {
		match, _ := (Protocol{}).Detect(b[:min(len(b), wire.DetectLimit)], len(b) >= wire.DetectLimit)
		switch {
		case match == wire.NoMatch:
			d.middle = true
			h := d.resync(b, end, 0)
			h.Finding = noBeginning()
			return h
		case match == wire.MoreNeeded && !end:
			return wire.Head{Type: wire.UnitMore, Size: int64(len(b)) + 1}
		}
	}
	if len(b) < HeaderSize && !(end && len(b) >= PrefixSize && u32(b) == 0) {
		if end && d.search && len(b) > 0 {
			return junk(len(b))
		}
		return wire.Head{Type: wire.UnitMore, Size: HeaderSize}
	}
	n := int64(u32(b))
	if d.search {
		return d.resync(b, end, 0)
	}
	if n > MaxFrame {
		return d.resyncFor(b, end, &wire.Finding{Kind: wire.KindBadLength, Length: PrefixSize, Field: "length",
			Want: "at most " + wire.Itoa(MaxFrame), Got: wire.Itoa(n),
			Message: "a frame's length is over the protocol's cap: the framing is lost here"})
	}
	if n == 0 {
		// A lone one is stepped over; more zeros, or nonsense behind, are no
		// framing.
		switch {
		case len(b) < PrefixSize+HeaderSize && !end:
			return wire.Head{Type: wire.UnitMore, Size: PrefixSize + HeaderSize}
		case len(b) == PrefixSize, len(b) >= PrefixSize+HeaderSize && d.plausible(b[PrefixSize:]):
			return wire.Head{Type: wire.UnitFrame, Size: PrefixSize, Peek: PrefixSize, Kind: KindEmpty}
		}
		return d.resyncFor(b, end, emptyFrame())
	}
	tag := uint32(b[PrefixSize])
	known := TagName(tag) != ""
	if d.doubt && !d.plausible(b) {
		return d.resyncFor(b, end, &wire.Finding{Kind: wire.KindLost, Length: HeaderSize,
			Want: "a frame's header", Got: "length " + wire.Itoa(n) + ", tag " + hexByte(uint8(tag)),
			Message: "behind a frame that does not decode there is no header: the framing is lost here"})
	}
	h := wire.Head{Type: wire.UnitFrame, Size: PrefixSize + n, Peek: PrefixSize + n, Kind: tag}
	if known {
		return h
	}
	// A tag that nobody knows is a frame if another follows where it ends.
	switch found, need := d.next(b, int(h.Size), end); {
	case found:
		h.Peek = HeaderSize
		return h
	case need > 0:
		return wire.Head{Type: wire.UnitMore, Size: need}
	}
	return d.resyncFor(b, end, &wire.Finding{Kind: wire.KindUnknownKind, Length: HeaderSize, Field: "tag", Got: hexByte(uint8(tag)),
		Message: "the unknown tag " + hexByte(uint8(tag)) + ", and no frame behind it: the framing is lost here"})
}

// noBeginning is what there is to say of a stream that is read from its middle.
func noBeginning() *wire.Finding {
	return &wire.Finding{Kind: wire.KindBadPreamble,
		Want:    "a Challenge, ChallengeResponse, Handshake, StreamStart or NeedSnapshot",
		Message: "the stream does not begin as a connection of melin does: it is read from the first place on from which frames follow one another",
		Cost:    "what came before, if anything"}
}

func emptyFrame() *wire.Finding {
	return &wire.Finding{Kind: KindEmptyFrame, Length: PrefixSize, Field: "length",
		Want: "at least 1", Got: "0", Message: "a frame of length 0 has no tag; a real node ends the connection here"}
}

// Observe applies a frame to the session and checks it.
func (d *Decoder) Observe(u wire.Unit, fs []wire.Finding) []wire.Finding {
	d.observed = true
	if d.first {
		d.first = false
		if d.middle {
			d.stage = stageUnknown
			if u.Type == wire.UnitFrame {
				f := noBeginning()
				f.Offset = u.Offset
				fs = append(fs, *f)
			}
		}
	}
	if u.Type != wire.UnitFrame {
		d.doubt, d.search, d.passed = true, u.Type == wire.UnitJunk, true
		if d.stage == stageControl || d.stage == stageStreaming {
			d.stage = stageUnknown // what leads to another may be among it
		}
		return fs
	}
	d.doubt, d.search = false, false
	o := observation{Decoder: d, u: u, fs: fs}
	if u.Kind == KindEmpty {
		f := emptyFrame()
		f.Offset = u.Offset
		d.doubt = true
		return append(fs, *f)
	}
	o.frame()
	return o.fs
}

// observation is one frame being observed.
type observation struct {
	*Decoder
	u  wire.Unit
	fs []wire.Finding
}

// add reports n bytes at off in the frame.
func (o *observation) add(f wire.Finding, off, n int) {
	f.Offset = o.u.Offset + int64(off)
	f.Length = int64(n)
	o.fs = append(o.fs, f)
}

func (o *observation) order(message string) {
	o.add(wire.Finding{Kind: KindOrder, Message: message + ": " + TagName(o.u.Kind)}, PrefixSize, 1)
}

func (o *observation) frame() {
	tag, n := o.u.Kind, o.u.Size-PrefixSize
	name := TagName(tag)
	if limit := int64(o.cap(tag)); n > limit {
		o.add(wire.Finding{Kind: KindOverCap, Field: "length", Want: "at most " + wire.Itoa(limit), Got: wire.Itoa(n),
			Message: "a frame longer than a real node takes at this stage"}, 0, PrefixSize)
	}
	if name == "" {
		o.add(wire.Finding{Kind: wire.KindUnknownKind, Field: "tag", Got: hexByte(uint8(tag)),
			Message: "a frame with the unknown tag " + hexByte(uint8(tag)) + ", " + wire.Count(n, "byte"),
			Cost:    "what it says"}, PrefixSize, 1)
		o.doubt = true
		return
	}
	if int64(len(o.u.Bytes)) < o.u.Size {
		return // not held whole: nothing can be said about its fields
	}
	switch dir := tagDirection(tag); {
	case o.dir == wire.DirectionUnknown:
		if lengthFits(tag, int(n)) { // else it may be the tag that is damaged
			o.dir = dir
		}
	case o.dir != dir:
		o.order("a frame that travels the other way")
		o.doubt = true
		return
	}
	o.layout()
	size := o.fields()
	switch {
	case size == 0:
		o.add(wire.Finding{Kind: wire.KindMalformed, Field: "length", Got: wire.Count(n, "byte"),
			Message: "a " + name + " too short for its fields", Cost: "what it says"}, 0, int(o.u.Size))
		o.doubt = true
	case int64(size) < o.u.Size:
		rest := int(o.u.Size) - size
		o.add(wire.Finding{Kind: KindLeftOver, Want: wire.Count(int64(size)-PrefixSize, "byte"), Got: wire.Count(n, "byte"),
			Message: wire.Count(int64(rest), "byte") + " left over behind a " + name}, size, rest)
		o.doubt = true
	}
}

// layout narrows the layouts by the frame, and reports one of another layout.
func (o *observation) layout() {
	b := o.u.Bytes
	if o.set&(o.set-1) != 0 {
		o.set = o.set.Narrow(b)
		o.shape = o.set.Taken().Shape()
		return
	}
	if o.u.Kind == TagInputBatch {
		return
	}
	if ls := frameLayouts(o.u.Kind, b); ls&o.set == 0 {
		o.add(wire.Finding{Kind: KindLayout, Want: o.set.String(), Got: ls.String(),
			Message: "a " + TagName(o.u.Kind) + " in the layout of another protocol version"}, 0, int(o.u.Size))
	}
}

// fields checks the frame's fields; it gives the bytes that they take, 0 when
// the frame is too short.
func (o *observation) fields() int {
	b := o.u.Bytes
	switch o.u.Kind {
	case TagHandshake:
		v, size := DecodeHandshake(b)
		if v.HasVersion && (v.Version < 2 || v.Version > uint16(Newest)) {
			o.add(wire.Finding{Kind: wire.KindBadVersion, Field: "protocol_version", Want: "2 to 8", Got: wire.Utoa(uint64(v.Version)),
				Message: "a protocol version that is not known here"}, size-2, 2)
		}
		if size > 0 {
			o.acked, o.inMemory, o.stage = v.LastSequence, v.LastSequence, stageStreaming
			o.sequence("last_sequence", 0, v.LastSequence, HeaderSize)
			if v.LastSequence == 0 && v.ChainHash != ([HashSize]byte{}) {
				o.add(wire.Finding{Kind: KindValue, Field: "chain_hash", Want: "zeros", Got: string(wire.AppendHex(nil, v.ChainHash[:])),
					Message: "a Handshake of a replica without entries names a chain hash"}, HeaderSize+8, HashSize)
			}
			if v.HasEpoch {
				o.epoch = v.Epoch
			}
		}
		return size
	case TagAck:
		v, size := DecodeAck(b)
		if size > 0 {
			o.ack(v)
		}
		return size
	case TagChallenge:
		_, size := DecodeChallenge(b)
		o.control()
		return size
	case TagChallengeResponse:
		_, size := DecodeChallengeResponse(b)
		if o.stage == stageStreaming {
			o.order("a frame behind the Handshake")
		}
		return size
	case TagAuthOk, TagAuthFailed, TagNeedSnapshot, TagHashMismatch:
		o.control()
		return HeaderSize
	case TagStreamStart:
		v, size := DecodeStreamStart(b, o.set.Taken())
		if size > 0 {
			o.streamStart(v)
		}
		return size
	case TagSnapshotBegin:
		v, size := DecodeSnapshotBegin(b)
		if size > 0 {
			o.sequence("snap_sequence", 0, v.SnapSequence, HeaderSize+8)
			o.beginBody(stageSnapshot, v.Length)
			o.snapshot, o.haveSnapshot = v.SnapSequence, true
		}
		return size
	case TagSegmentSeedBegin:
		n, size := DecodeSegmentSeedBegin(b)
		if size > 0 {
			o.beginBody(stageSeed, n)
		}
		return size
	case TagSnapshotChunk:
		data, size := DecodeSnapshotChunk(b)
		o.chunk(data)
		return size
	case TagSnapshotEnd:
		crc, size := DecodeSnapshotEnd(b)
		if size > 0 {
			o.endBody(crc)
		}
		return size
	case TagRotate, TagChainCheck:
		v, size := DecodeChainPoint(b)
		if size > 0 {
			o.streaming()
			o.names("sequence", v.Sequence)
			if o.u.Kind == TagRotate {
				if o.haveAnchor && v.Sequence < o.segmentStart {
					o.impossible("sequence", "at least "+wire.Utoa(o.segmentStart), v.Sequence, HeaderSize,
						"a Rotate ends a segment in which there is no entry yet")
				}
				o.segmentStart, o.anchor, o.haveAnchor = v.Sequence+1, v.Hash, true
			}
		}
		return size
	case TagDataBatch:
		v, size := DecodeDataBatch(b)
		if size > 0 {
			o.streaming()
			o.dataBatch(v)
		}
		return size
	case TagInputBatch:
		if len(b) < PrefixSize+lenInputBatch {
			return 0
		}
		o.streaming()
		o.slots()
		return len(b)
	case TagHeartbeat:
		v, size := DecodeHeartbeat(b)
		if size > 0 {
			o.streaming()
			o.names("sequence", v.Sequence)
			if v.HasPolicy && v.Policy > maxPolicy {
				o.value("policy", uint64(v.Policy), HeaderSize+8)
			}
		}
		return size
	}
	return 0
}

func (o *observation) value(field string, v uint64, off int) {
	o.add(wire.Finding{Kind: KindValue, Field: field, Got: wire.Utoa(v),
		Message: "a " + TagName(o.u.Kind) + "'s " + field + " is none that the specification lists"}, off, 1)
}

// impossible reports a field of 8 bytes whose value can't be.
func (o *observation) impossible(field, want string, got uint64, off int, message string) {
	o.add(wire.Finding{Kind: KindValue, Field: field, Want: want, Got: wire.Utoa(got), Message: message}, off, 8)
}

// sequence checks that a sequence is one that there can be, from least on.
func (o *observation) sequence(field string, least, seq uint64, off int) bool {
	if seq >= least && seq <= MaxSequence {
		return true
	}
	o.impossible(field, wire.Utoa(least)+" to "+wire.Utoa(MaxSequence), seq, off, "the "+field+" of the "+TagName(o.u.Kind)+" can't be")
	return false
}

// control reports a frame that belongs before the stream.
func (o *observation) control() {
	if o.stage == stageUnknown {
		o.stage = stageControl
	}
	if o.stage != stageControl {
		o.order("a frame of the connection's start in its middle")
	}
}

// streaming reports a frame that belongs behind StreamStart.
func (o *observation) streaming() {
	if o.stage != stageStreaming && o.stage != stageUnknown {
		o.order("a frame before StreamStart")
	}
	o.stage = stageStreaming
}

func (o *observation) streamStart(v StreamStart) {
	if o.stage != stageControl && o.stage != stageUnknown {
		o.order("a second start, or one inside a body")
	}
	o.stage = stageStreaming
	o.haveLast, o.last, o.announced, o.passed = true, v.StartSequence, v.StartSequence, false
	believed := o.sequence("start_sequence", 0, v.StartSequence, HeaderSize)
	if o.haveSnapshot && o.snapshot > v.StartSequence {
		o.impossible("start_sequence", "at least "+wire.Utoa(o.snapshot), v.StartSequence, HeaderSize,
			"the stream starts before the snapshot that was sent for it")
	}
	o.haveSnapshot = false
	if v.HasSegment {
		if o.sequence("segment_start_sequence", 1, v.SegmentStart, HeaderSize+8) && believed && v.SegmentStart > v.StartSequence+1 {
			o.impossible("segment_start_sequence", "at most "+wire.Utoa(v.StartSequence+1), v.SegmentStart, HeaderSize+8,
				"the segment begins behind the stream's first entry")
		}
		o.segmentStart, o.anchor, o.haveAnchor = v.SegmentStart, v.Anchor, true
	}
	if v.HasEpoch {
		o.newEpoch(v.Epoch, HeaderSize+48)
	}
	if v.HasPolicy && v.Policy > maxPolicy {
		o.value("policy", uint64(v.Policy), HeaderSize+56)
	}
	if v.HasGenesis && v.GenesisKnown > 1 {
		o.value("genesis_known", uint64(v.GenesisKnown), int(o.u.Size)-9)
	}
	if v.HasGenesis && v.GenesisKnown == 0 && v.GenesisEntries != 0 {
		o.impossible("genesis_entries", "0", v.GenesisEntries, int(o.u.Size)-8, "a StreamStart that does not know the genesis counts its entries")
	}
}

func (o *observation) newEpoch(epoch uint64, off int) {
	if epoch < o.epoch {
		o.add(wire.Finding{Kind: KindEpochBack, Field: "epoch", Want: "at least " + wire.Utoa(o.epoch), Got: wire.Utoa(epoch),
			Message: "the epoch goes back from " + wire.Utoa(o.epoch) + " to " + wire.Utoa(epoch)}, off, 8)
	}
	o.epoch = max(o.epoch, epoch)
}

// names checks a sequence that the frame calls the last one sent.
func (o *observation) names(field string, seq uint64) {
	o.sequence(field, 0, seq, HeaderSize)
	if o.haveLast && !o.passed && seq != o.last && seq != o.announced {
		o.add(wire.Finding{Kind: KindAnnounced, Field: field, Want: wire.Utoa(o.last), Got: wire.Utoa(seq),
			Message: "a " + TagName(o.u.Kind) + " names " + wire.Utoa(seq) + " as the last sequence sent, and it is " + wire.Utoa(o.last)}, HeaderSize, 8)
	}
	o.announced = seq
	if !o.haveLast {
		o.haveLast, o.last = true, seq
	}
}

func (o *observation) beginBody(s stage, length uint64) {
	switch {
	case o.stage == stageSnapshot || o.stage == stageSeed:
		o.order("a body begins inside another")
	case o.stage == stageStreaming:
		o.order("a body begins while streaming")
	}
	o.stage, o.bodyWant, o.bodyGot, o.bodyCRC = s, length, 0, 0
}

func (o *observation) chunk(data []byte) {
	if len(data) > MaxChunk {
		o.add(wire.Finding{Kind: KindOverCap, Field: "length", Want: "at most " + wire.Itoa(MaxChunk) + " bytes of data",
			Got: wire.Itoa(int64(len(data))), Message: "a SnapshotChunk with more data than one may have"}, 0, PrefixSize)
	}
	if in, _ := o.InBody(); !in {
		if o.stage != stageUnknown {
			o.order("a piece of a body that was not announced")
		}
		return
	}
	o.bodyGot += uint64(len(data))
	o.bodyCRC = crc32.Update(o.bodyCRC, castagnoli, data)
}

func (o *observation) endBody(crc uint32) {
	if in, _ := o.InBody(); !in {
		if o.stage != stageUnknown {
			o.order("the end of a body that did not begin")
		}
		o.stage = stageControl
		return
	}
	what := "snapshot"
	if o.stage == stageSeed {
		what = "segment seed"
	}
	if o.bodyGot != o.bodyWant {
		o.add(wire.Finding{Kind: KindBodyLength, Want: wire.Utoa(o.bodyWant) + " bytes", Got: wire.Utoa(o.bodyGot) + " bytes",
			Message: "the " + what + " has another length than was announced", Cost: "the " + what}, 0, int(o.u.Size))
	}
	if o.bodyCRC != crc {
		o.add(wire.Finding{Kind: KindBodyCRC, Field: "crc32c", Want: wire.Utoa(uint64(crc)), Got: wire.Utoa(uint64(o.bodyCRC)),
			Message: "the " + what + "'s bytes do not have the CRC-32C that was announced", Cost: "the " + what}, HeaderSize, 4)
	} else if o.stage == stageSnapshot && crc != SnapshotResidue {
		o.add(wire.Finding{Kind: KindBodyCRC, Field: "crc32c", Want: wire.Utoa(SnapshotResidue), Got: wire.Utoa(uint64(crc)),
			Message: "the snapshot does not end in its own CRC-32C"}, HeaderSize, 4)
	}
	o.stage = stageControl
}

func (o *observation) ack(v Ack) {
	o.sequence("acked_sequence", 0, v.Acked, HeaderSize)
	if v.HasMemory {
		o.sequence("in_memory_sequence", 0, v.InMemory, HeaderSize+8)
	}
	report := func(field, want string, got uint64, off int, message string) {
		o.add(wire.Finding{Kind: KindAckOrder, Field: field, Want: want, Got: wire.Utoa(got), Message: message}, off, 8)
	}
	if v.HasMemory && v.InMemory < v.Acked {
		report("in_memory_sequence", "at least "+wire.Utoa(v.Acked), v.InMemory, HeaderSize+8,
			"an Ack has more on disk than in memory")
	}
	if v.Acked < o.acked {
		report("acked_sequence", "at least "+wire.Utoa(o.acked), v.Acked, HeaderSize, "an Ack goes back")
	}
	if v.HasMemory && v.InMemory < o.inMemory {
		report("in_memory_sequence", "at least "+wire.Utoa(o.inMemory), v.InMemory, HeaderSize+8, "an Ack goes back")
	}
	o.acked, o.inMemory = max(o.acked, v.Acked), max(o.inMemory, v.InMemory)
}

// follow takes the sequences from first to last as sent next, the field at off
// in the frame.
func (o *observation) follow(first, last uint64, off int) {
	if o.haveLast && first > o.last+1 && o.last+1 != 0 {
		o.add(wire.Finding{Kind: KindGap, Field: "sequence", Want: wire.Utoa(o.last + 1), Got: wire.Utoa(first),
			Message: "this connection skips from sequence " + wire.Utoa(o.last) + " to " + wire.Utoa(first),
			Cost:    wire.Count(int64(min(first-1-o.last, MaxSequence)), "entry") + " of it, unless another connection has them"}, off, 8)
	}
	if !o.haveLast || last > o.last {
		o.haveLast, o.last, o.announced, o.passed = true, last, last, false
	}
}

func (o *observation) dataBatch(v DataBatch) {
	first := v.EndSequence - uint64(v.Count) + 1
	if !o.sequence("end_sequence", 0, v.EndSequence, HeaderSize) {
		return
	}
	if v.Count == 0 || first > v.EndSequence || first == 0 {
		if v.Count != 0 {
			o.add(wire.Finding{Kind: KindValue, Field: "count", Got: wire.Utoa(uint64(v.Count)),
				Want:    "at most end_sequence, " + wire.Utoa(v.EndSequence),
				Message: "a DataBatch counts more entries than there are sequences"}, HeaderSize+40, 4)
		}
		return
	}
	o.follow(first, v.EndSequence, HeaderSize)
}

// slots checks the slots of an InputBatch.
func (o *observation) slots() {
	r := SlotsOf(o.u.Bytes, o.shape)
	var s Slot
	var crcs, events, values int
	crc := o.shape == ShapeCRC
	for r.Next(&s) {
		seq := s.Sequence
		if crc && !s.CRCValid() {
			if crcs++; crcs <= maxFrameFindings {
				o.add(wire.Finding{Kind: KindSlotCRC, Field: "slots[" + wire.Itoa(int64(r.Read()-1)) + "].crc32c",
					Want: wire.Utoa(uint64(s.CRC)), Got: wire.Utoa(uint64(SlotCRC(s.Raw[:len(s.Raw)-SlotCRCSize]))),
					Message: "the slot's bytes do not have its CRC-32C", Cost: "this entry"}, s.Offset, len(s.Raw))
			}
			// Its sequence may be what is damaged.
			if o.haveLast {
				seq = o.last + 1
			}
		} else if seq == 0 || seq > MaxSequence {
			if values++; values <= maxFrameFindings {
				o.sequence("slots["+wire.Itoa(int64(r.Read()-1))+"].sequence", 1, seq, s.Offset+2)
			}
			// It stands where the next one should.
			if o.haveLast {
				seq = o.last + 1
			}
		} else if !validEvent(s.Event, s.Payload) {
			if events++; events <= maxFrameFindings {
				o.event(&s, r.Read()-1)
			}
		} else if s.Event == EventEpochBump {
			o.newEpoch(u64(s.Payload), s.Offset+slotPrefix+int(u16(s.Raw))-8)
		}
		if seq == o.last+1 && o.haveLast {
			o.last, o.announced, o.passed = seq, seq, false
		} else {
			o.follow(seq, seq, s.Offset+2)
		}
	}
	for _, more := range [...]struct {
		n    int
		kind string
	}{{crcs, KindSlotCRC}, {events, KindEvent}, {values, KindValue}} {
		if more.n > maxFrameFindings {
			o.add(wire.Finding{Kind: more.kind, Got: wire.Count(int64(more.n), "slot"),
				Message: wire.Count(int64(more.n-maxFrameFindings), "more such slot") + " in this frame"}, 0, int(o.u.Size))
		}
	}
	if f := r.Fault(); f != nil {
		f.Offset += o.u.Offset
		o.fs = append(o.fs, *f)
		o.doubt = true
	}
}

func (o *observation) event(s *Slot, number int) {
	f := wire.Finding{Kind: KindEvent, Field: "slots[" + wire.Itoa(int64(number)) + "].event_tag", Got: hexByte(s.Event)}
	switch name := EventName(s.Event); {
	case name != "":
		f.Field = "slots[" + wire.Itoa(int64(number)) + "].payload"
		f.Got = wire.Count(int64(len(s.Payload)), "byte")
		f.Message = "the payload of " + name + " is none that the specification lists"
	case s.Event == 0x01 || s.Event == 0x02:
		f.Message = "a retired event tag"
	default:
		f.Message = "an unknown event tag"
	}
	o.add(f, s.Offset, len(s.Raw))
}

func hexByte(b uint8) string { return string(wire.AppendHex([]byte("0x"), []byte{b})) }
