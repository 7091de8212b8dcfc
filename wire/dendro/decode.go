package dendro

import (
	"encoding/binary"

	"wiretape/wire"
)

// The Decode functions decode one whole frame without copying: what they give
// aliases u.Bytes. A frame of another kind, one with bytes missing from u.Bytes
// and one that is malformed is a Fault; its finding has the place of the field
// that failed.

// DecodeHandshake decodes a Handshake frame. A malformed uuid and a map out of
// order are no faults; see [Decoder].
func DecodeHandshake(u wire.Unit) (Handshake, *wire.Fault) {
	c := open(u, KindHandshake)
	h := c.handshake()
	return h, c.whole()
}

// DecodeIndex decodes an Index frame.
func DecodeIndex(u wire.Unit) (Index, *wire.Fault) {
	c := open(u, KindIndex)
	x := c.index()
	return x, c.whole()
}

// DecodeRows decodes a Rows frame and checks every row in it.
func DecodeRows(u wire.Unit) (Rows, *wire.Fault) {
	c := open(u, KindRows)
	r := c.rows()
	return r, c.whole()
}

// DecodeSegment decodes a Segment frame. Rows of 0 and a span the wrong way
// round are no faults here: a [Decoder] refuses them.
func DecodeSegment(u wire.Unit) (Segment, *wire.Fault) {
	c := open(u, KindSegment)
	s := c.segment()
	return s, c.whole()
}

// DecodeClockOffset decodes a ClockOffset frame.
func DecodeClockOffset(u wire.Unit) (ClockOffset, *wire.Fault) {
	c := open(u, KindClockOffset)
	o := c.clockOffset()
	return o, c.whole()
}

// DecodeSourceUpdate decodes a SourceUpdate frame.
func DecodeSourceUpdate(u wire.Unit) (SourceUpdate, *wire.Fault) {
	c := open(u, KindSourceUpdate)
	s := c.sourceUpdate()
	return s, c.whole()
}

// payload decodes a frame of any known kind; known is false for another.
func (c *cursor) payload() (known bool) {
	switch c.kind {
	case KindHandshake:
		c.handshake()
	case KindIndex:
		c.index()
	case KindRows:
		c.rows()
	case KindSegment:
		c.segment()
	case KindClockOffset:
		c.clockOffset()
	case KindSourceUpdate:
		c.sourceUpdate()
	default:
		return false
	}
	return true
}

func (c *cursor) handshake() (h Handshake) {
	h.Source = c.u32("source")
	h.UUID, h.HasUUID = c.opt("uuid", true)
	h.Labels = c.textMap("labels")
	h.Metadata = c.textMap("metadata")
	h.ClockAnchorWallNs = c.i64("clock_anchor_wall_ns", wire.TypeTime)
	h.Complete = c.flag("complete")
	c.end()
	return h
}

func (c *cursor) index() (x Index) {
	x.Source = c.u32("source")
	x.Stream = c.str("stream")
	x.TS = c.i64("ts", wire.TypeTime)
	x.Kind = IndexKind(c.indexKind("kind"))
	x.State = c.state("state")
	x.Blob = c.lastBlob("blob")
	c.end()
	return x
}

func (c *cursor) rows() (r Rows) {
	r.Source = c.u32("source")
	r.Seq = c.u64("seq")
	r.IndexState = c.state("index_state")
	r.Count = c.u32("count")
	r.at = c.off + int64(c.p)
	r.records = c.rowRecords("rows", r.Count)
	c.end()
	return r
}

func (c *cursor) segment() (s Segment) {
	s.Source = c.u32("source")
	s.Stream = c.str("stream")
	s.Rows = c.u64("rows")
	s.FirstTS = c.i64("first_ts", wire.TypeTime)
	s.LastTS = c.i64("last_ts", wire.TypeTime)
	s.Bytes = c.blob("bytes")
	s.CallerIndex, s.HasCallerIndex = c.opt("caller_index", false)
	c.end()
	return s
}

func (c *cursor) clockOffset() (o ClockOffset) {
	o.Source = c.u32("source")
	o.TS = c.i64("ts", wire.TypeTime)
	o.OffsetNs = c.i64("offset_ns", wire.TypeDuration)
	c.end()
	return o
}

func (c *cursor) sourceUpdate() (s SourceUpdate) {
	s.Source = c.u32("source")
	s.TS = c.i64("ts", wire.TypeTime)
	s.Labels = c.textMap("labels")
	s.Metadata = c.textMap("metadata")
	c.end()
	return s
}

// cursor reads the fields of one frame in order. The first fault sticks, and
// what is read after it is zero. It may be given the frame's first bytes alone:
// it then stops without a fault where they end (short).
type cursor struct {
	b     []byte // the unit's first bytes, all of them or fewer
	size  int    // of the whole unit
	p     int
	off   int64 // of the unit, in the connection
	kind  uint32
	short bool
	fault *wire.Fault
	// quiet makes every fault the same, for frames that are only tried.
	quiet bool
	// trace makes every field read be appended to fields.
	trace  bool
	fields []wire.Field
}

// noFrame is what a quiet cursor fails with.
var noFrame wire.Fault

// begin starts behind the frame's head.
func begin(u wire.Unit) cursor {
	c := cursor{b: u.Bytes, size: int(u.Size), off: u.Offset, kind: u.Kind, p: frameHead}
	if c.size > LenSize+MaxFrame {
		c.size = LenSize + MaxFrame
	}
	if len(c.b) > c.size {
		c.b = c.b[:c.size]
	}
	c.short = len(c.b) < frameHead
	return c
}

// open starts a decode of a frame that must be of one kind.
func open(u wire.Unit, kind uint32) cursor {
	c := begin(u)
	if u.Kind != kind || u.Type != wire.UnitFrame {
		c.fail(0, 0, "kind", KindName(kind), "another frame", "it is not a "+KindName(kind))
	}
	return c
}

// whole gives the fault, also that bytes of the frame are not there.
func (c *cursor) whole() *wire.Fault {
	if c.fault == nil && c.short {
		c.fail(len(c.b), c.size-len(c.b), "", wire.Itoa(int64(c.size))+" bytes",
			wire.Itoa(int64(len(c.b)))+" bytes", "only its first "+wire.Itoa(int64(len(c.b)))+" bytes are here")
	}
	return c.fault
}

// fail makes the fault, with its place relative to the frame.
func (c *cursor) fail(at, n int, field, want, got, why string) {
	if c.fault != nil {
		return
	}
	if c.quiet {
		c.fault = &noFrame
		return
	}
	name, cost := KindName(c.kind), "the frame is set aside"
	switch c.kind {
	case KindHandshake:
		cost += "; what follows for its source can't be credited until the next good Handshake"
	case KindRows:
		cost += " with its rows"
	case KindSegment:
		cost += " with its segment"
	}
	c.fault = &wire.Fault{Finding: wire.Finding{
		Kind: wire.KindMalformed, Offset: c.off + int64(at), Length: int64(n), Field: field,
		Want: want, Got: got, Cost: cost,
		Message: name + " frame at " + wire.Itoa(c.off) + ": " + why,
	}}
}

// need says whether n more bytes are there.
func (c *cursor) need(n int, field string) bool {
	if c.fault != nil || c.short {
		return false
	}
	if left := c.size - c.p; n > left {
		c.fail(c.p, left, field, wire.Itoa(int64(n))+" bytes", wire.Itoa(int64(left))+" bytes left",
			field+" needs "+wire.Itoa(int64(n))+" bytes and "+wire.Itoa(int64(left))+" are left")
		return false
	}
	if n > len(c.b)-c.p {
		c.short = true
		return false
	}
	return true
}

// note records the field that was read from at to the current position.
func (c *cursor) note(name string, at int, t wire.Type, num uint64, b []byte, byteAt int) *wire.Field {
	if !c.trace {
		return nil
	}
	c.fields = append(c.fields, wire.Field{Name: name, Offset: c.off + int64(at), Length: int64(c.p - at),
		Type: t, Num: num, Bytes: b, ByteOffset: c.off + int64(byteAt)})
	return &c.fields[len(c.fields)-1]
}

func (c *cursor) u32(name string) uint32 {
	if !c.need(4, name) {
		return 0
	}
	n := binary.LittleEndian.Uint32(c.b[c.p:])
	c.p += 4
	c.note(name, c.p-4, wire.TypeUint, uint64(n), nil, 0)
	return n
}

func (c *cursor) raw64(name string, t wire.Type) uint64 {
	if !c.need(8, name) {
		return 0
	}
	n := binary.LittleEndian.Uint64(c.b[c.p:])
	c.p += 8
	c.note(name, c.p-8, t, n, nil, 0)
	return n
}

func (c *cursor) u64(name string) uint64 { return c.raw64(name, wire.TypeUint) }

func (c *cursor) i64(name string, t wire.Type) int64 { return int64(c.raw64(name, t)) }

func (c *cursor) state(name string) State {
	if !c.need(16, name) {
		return State{}
	}
	s := State{binary.LittleEndian.Uint64(c.b[c.p:]), binary.LittleEndian.Uint64(c.b[c.p+8:])}
	c.p += 16
	if f := c.note(name, c.p-16, wire.TypePair, 0, nil, 0); f != nil {
		f.Count = 2
		f.Make = wire.Fixed([]wire.Field{
			{Offset: f.Offset, Length: 8, Type: wire.TypeUint, Num: s[0]},
			{Offset: f.Offset + 8, Length: 8, Type: wire.TypeUint, Num: s[1]},
		})
	}
	return s
}

// bit reads a byte that must be 0 or 1.
func (c *cursor) bit(name, what string) bool {
	if !c.need(1, name) {
		return false
	}
	v := c.b[c.p]
	if v > 1 {
		got := wire.Itoa(int64(v))
		c.fail(c.p, 1, name, "0 or 1", got, what+" of "+name+" is "+got+", not 0 or 1")
		return false
	}
	c.p++
	return v == 1
}

func (c *cursor) flag(name string) bool {
	at := c.p
	v := c.bit(name, "the value")
	if c.p > at {
		c.note(name, at, wire.TypeBool, uint64(c.b[at]), nil, 0)
	}
	return v
}

func (c *cursor) indexKind(name string) uint8 {
	if !c.need(1, name) {
		return 0
	}
	v := c.b[c.p]
	if v > uint8(IndexDelta) {
		got := wire.Itoa(int64(v))
		c.fail(c.p, 1, name, "0 (Full) or 1 (Delta)", got, name+" is "+got+", neither 0 (Full) nor 1 (Delta)")
		return 0
	}
	c.p++
	if f := c.note(name, c.p-1, wire.TypeEnum, uint64(v), nil, 0); f != nil {
		f.Note = IndexKind(v).String()
	}
	return v
}

// take reads a length and that many bytes. Where the frame holds them and
// c.b does not, it stops as short and gives nil.
func (c *cursor) take(name string) (b []byte, ok bool) {
	if !c.need(4, name) {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(c.b[c.p:]))
	if left := int64(c.size - c.p - 4); n > left {
		c.fail(c.p, 4, name, "at most "+wire.Itoa(left)+" bytes", wire.Itoa(n)+" bytes",
			name+" claims "+wire.Itoa(n)+" bytes and "+wire.Itoa(left)+" are left")
		return nil, false
	}
	if n > int64(len(c.b)-c.p-4) {
		c.short = true
		return nil, false
	}
	at := c.p + 4
	c.p = at + int(n)
	return c.b[at:c.p:c.p], true
}

// text checks bytes that were just read from at on.
func (c *cursor) text(name string, b []byte, at int) bool {
	if utf8OK(b) {
		return true
	}
	c.fail(at, c.p-at, name, "valid UTF-8", "other bytes", name+" is not valid UTF-8")
	return false
}

func (c *cursor) str(name string) []byte {
	at := c.p
	b, ok := c.take(name)
	if !ok || !c.text(name, b, at) {
		return nil
	}
	c.note(name, at, wire.TypeText, 0, b, at+4)
	return b
}

func (c *cursor) blob(name string) []byte {
	at := c.p
	b, ok := c.take(name)
	if ok {
		c.note(name, at, wire.TypeBlob, 0, b, at+4)
	}
	return b
}

// lastBlob is a blob behind which nothing may follow: that is known from its
// length alone.
func (c *cursor) lastBlob(name string) []byte {
	if c.short {
		return nil
	}
	at := c.p
	b := c.blob(name)
	if c.short && c.p == at && len(c.b) >= at+4 {
		next := at + 4 + int(binary.LittleEndian.Uint32(c.b[at:]))
		if next < c.size {
			c.leftOver(next)
		}
	}
	return b
}

func (c *cursor) opt(name string, isText bool) (b []byte, has bool) {
	at := c.p
	has = c.bit(name, "the presence")
	if c.fault != nil || c.short {
		return nil, false
	}
	if !has {
		c.note(name, at, wire.TypeNone, 0, nil, 0)
		return nil, false
	}
	b, ok := c.take(name)
	if !ok || isText && !c.text(name, b, at) {
		return nil, false
	}
	t := wire.TypeBlob
	if isText {
		t = wire.TypeText
	}
	c.note(name, at, t, 0, b, at+5)
	return b, true
}

// minPair is the size of a pair of empty strings.
const minPair = 8

func (c *cursor) textMap(name string) (m Map) {
	at := c.p
	if !c.need(4, name) {
		return Map{}
	}
	n := binary.LittleEndian.Uint32(c.b[c.p:])
	if left := c.size - c.p - 4; int64(n)*minPair > int64(left) {
		c.fail(c.p, 4, name, "at most "+wire.Itoa(int64(left/minPair))+" pairs", wire.Itoa(int64(n))+" pairs",
			name+" claims "+wire.Itoa(int64(n))+" pairs and "+wire.Itoa(int64(left))+" bytes are left")
		return Map{}
	}
	c.p += 4
	first := c.p
	for i := uint32(0); i < n; i++ {
		for _, part := range [2]string{"].key", "].value"} {
			from := c.p
			b, ok := c.take(name)
			if ok && utf8OK(b) {
				continue
			}
			if c.fault == nil && !c.short {
				c.text(name, b, from)
			}
			if c.fault != nil && !c.quiet {
				f := &c.fault.Finding
				f.Field = name + "[" + wire.Itoa(int64(i)) + part
				f.Message += " (" + f.Field + ")"
			}
			return Map{}
		}
	}
	m = Map{pairs: c.b[first:c.p:c.p], n: int(n), at: c.off + int64(at)}
	if f := c.note(name, at, wire.TypeMap, 0, nil, 0); f != nil {
		f.Count = m.n
		f.Make = m.children()
	}
	return m
}

// Sizes of a row's fixed parts: both lengths, ts and wall_offset.
const (
	rowStreamLen = 4
	rowFixed     = 8 + 8 + 4
	minRow       = rowStreamLen + rowFixed
)

// rowRecords checks count rows and gives their bytes.
func (c *cursor) rowRecords(name string, count uint32) []byte {
	at := c.p
	if c.fault != nil || c.short {
		return nil
	}
	if left := c.size - c.p; int64(count)*minRow > int64(left) {
		c.fail(c.p-4, 4, "count", "at most "+wire.Itoa(int64(left/minRow))+" rows", wire.Itoa(int64(count))+" rows",
			"count claims "+wire.Itoa(int64(count))+" rows and "+wire.Itoa(int64(left))+" bytes are left")
		return nil
	}
	if len(c.b) < c.size {
		c.short = true
		return nil
	}
	p, i, ok := soundRows(c.b, c.p, count)
	if !ok {
		return c.rowFault(name, i, p)
	}
	c.p = p
	r := c.b[at:p:p]
	if f := c.note(name, at, wire.TypeList, 0, nil, 0); f != nil {
		f.Count = int(count)
		f.Make = rowChildren(r, f.Offset)
	}
	return r
}

// soundRows moves over count rows from p on: to their end, or to the row i that
// is not sound or does not lie in b.
func soundRows(b []byte, p int, count uint32) (end int, i uint32, ok bool) {
	for ; i < count; i++ {
		if len(b)-p < minRow {
			return p, i, false
		}
		row := b[p:]
		n := uint64(binary.LittleEndian.Uint32(row))
		if n > uint64(len(row)-minRow) {
			return p, i, false
		}
		tail := row[rowStreamLen+int(n):]
		m := uint64(binary.LittleEndian.Uint32(tail[rowFixed-4:]))
		if m > uint64(len(tail)-rowFixed) {
			return p, i, false
		}
		// What follows a short name lets its bytes be looked at in one load.
		if n > 8 || binary.LittleEndian.Uint64(row[rowStreamLen:])<<(64-8*n)&highBits != 0 {
			if !utf8OK(row[rowStreamLen : rowStreamLen+int(n)]) {
				return p, i, false
			}
		}
		p += rowStreamLen + int(n) + rowFixed + int(m)
	}
	return p, count, true
}

// highBits are set in the bytes that are not ASCII.
const highBits = 0x8080808080808080

// rowFault reads row i at p field by field to name the one that fails.
func (c *cursor) rowFault(name string, i uint32, p int) []byte {
	row := name + "[" + wire.Itoa(int64(i)) + "]."
	c.p = p
	trace := c.trace
	c.trace = false
	c.str(row + "stream")
	c.i64(row+"ts", wire.TypeTime)
	c.i64(row+"wall_offset", wire.TypeDuration)
	c.blob(row + "row")
	c.trace = trace
	return nil
}

// end checks that no byte of the frame is left over.
func (c *cursor) end() {
	if c.fault == nil && !c.short && c.p < c.size {
		c.leftOver(c.p)
	}
}

func (c *cursor) leftOver(at int) {
	left := wire.Itoa(int64(c.size-at)) + " bytes"
	c.fail(at, c.size-at, "", "the frame's end", left, left+" are left over after its fields")
}
