// Package wire turns bytes into frames and fields that each know their place.
//
// It is what the three protocols share: the description of a protocol
// ([Protocol]), of one direction of one connection being read ([Decoder]), the
// two ways to drive a decoder over input ([Scanner] for bytes that arrive,
// [Reader] for bytes that lie there), the field tree that people look at
// ([Field]) and what there is to report ([Finding]).
//
// A place is an offset in the connection: 0 is the first byte that the
// transport delivered in this direction, whatever file it lies in now. Every
// offset in this package is such an offset, as int64.
//
// The package starts no goroutine, reads no clock, writes no log, opens no
// file and imports the standard library only, without fmt, reflection or
// encoding/json: the same code is the WebAssembly decoder.
package wire

// Direction says which of a connection's two byte streams is being read.
type Direction uint8

const (
	// DirectionUnknown is a stream of which only the bytes are known.
	DirectionUnknown Direction = iota
	// Downstream is publisher to subscriber (dendro), primary to replica
	// (melin), orchestrator to worker (AEWR).
	Downstream
	// Upstream is the way back.
	Upstream
)

// String gives the word used in sidecars, reports and flags.
func (d Direction) String() string {
	switch d {
	case Downstream:
		return "downstream"
	case Upstream:
		return "upstream"
	}
	return "unknown"
}

// ParseDirection is the inverse of String; an unknown word is DirectionUnknown.
func ParseDirection(s string) Direction {
	switch s {
	case "downstream":
		return Downstream
	case "upstream":
		return Upstream
	}
	return DirectionUnknown
}

// Match is a detector's answer about the first bytes of a stream.
type Match uint8

const (
	// NoMatch: these bytes are not the start of this protocol.
	NoMatch Match = iota
	// MoreNeeded: so far it fits, more bytes would tell.
	MoreNeeded
	// Matched: this is the protocol.
	Matched
)

// Protocol is one entry of a [Registry].
type Protocol interface {
	// Name is the word used in flags and sidecars, such as "dendro".
	Name() string
	// Detect looks at the first bytes of a stream. end says that no more will
	// come. The direction is DirectionUnknown where the bytes do not tell it.
	Detect(prefix []byte, end bool) (Match, Direction)
	// Open starts a decoder. A context that this protocol can't use is an error.
	Open(Config) (Decoder, error)
	// KindName is the specification's name of a frame kind, "" when unknown.
	KindName(kind uint32) string
}

// Unmarked is a Protocol whose connections have no beginning: any frame may be the
// first one, and no decoder can tell that something came before it.
type Unmarked interface {
	Protocol
	Unmarked()
}

// Config is where and how a decoder starts.
type Config struct {
	// Direction, where it is known. A decoder may find it out by itself.
	Direction Direction
	// Context makes a decoder start in the middle of a connection, at a unit
	// boundary. Nil starts at the connection's first byte.
	Context *Context
	// Unaligned says that the input starts in the middle of a connection and
	// anywhere in a unit: the decoder looks for the first frame that it can
	// tell. A protocol in which none can be told is lost at once.
	Unaligned bool
	// Named says that somebody who knows named the protocol: a stream that does
	// not begin as it should is damaged then, and not one of another protocol.
	// A decoder that can find its frames again does.
	Named bool
}

// MidStream is the context of a reader that starts at a unit boundary in the
// middle of a connection and knows nothing of what came before.
func MidStream(protocol string) *Context { return &Context{Protocol: protocol} }

// Decoder reads one direction of one connection, unit by unit: Head tells where
// the unit at the current position ends, Observe moves past it. A decoder keeps
// the session state that the protocol's rules need, and nothing else: it holds
// on to no byte slice given to it.
type Decoder interface {
	// Head looks at b, the bytes from the current position on, which may be
	// any number. end says that the stream ends after b. It never looks at
	// bytes that Observe has passed, and asking twice changes nothing.
	Head(b []byte, end bool) Head
	// Observe applies the unit to the session state and appends what there is
	// to report about it. It needs u.Bytes to hold at least Head.Peek bytes;
	// with the whole unit it checks the whole of it, with less only what the
	// session state needs.
	Observe(u Unit, findings []Finding) []Finding
	// Info is what a list shows of a unit. It must be called before the unit
	// is observed, or after it; the state in force does not change the answer
	// but for the source's label.
	Info(u Unit) Info
	// Fields decodes the whole unit into fields with their places. On a fault
	// the fields up to it are returned together with the finding.
	Fields(u Unit) ([]Field, *Finding)
	// Context is what a reader needs to go on from here, nil at the start.
	// limit is the most bytes that it may hold; what was left out for it is
	// said by Context.Omitted.
	Context(limit int) *Context
}

// Enveloped is a Decoder that can also show what a unit has around its payload,
// such as a length prefix and a kind byte: they are no part of Fields.
type Enveloped interface {
	Decoder
	// Envelope gives those parts with their places, as far as u.Bytes reaches.
	Envelope(u Unit) []Field
}

// Briefer is a decoder that gives Info without its Summary at less cost, for
// who looks at millions of units.
type Briefer interface {
	Brief(u Unit) Info
}

// Spanner is a decoder of data that has times: it tells of which series a unit
// holds data and from when to when. What else a unit says of times, such as when
// it was made, is no data's.
type Spanner interface {
	// Spans calls visit for each piece of data in the unit, all of whose bytes
	// it needs; first and last are nanoseconds since 1970. Of a unit that does
	// not decode it tells nothing.
	Spans(u Unit, visit func(stream []byte, first, last int64))
}

// Skimmer is a decoder that moves over many small frames at a time, for who
// looks at millions of them.
type Skimmer interface {
	// Skim moves over frames from the current position on as Head and Observe
	// do, as long as each is whole in b, Observe finds nothing in it, and Brief
	// tells of it what a Skimmed holds and a label that was told before. It
	// fills dst and gives how many frames these are and their bytes, which may
	// be 0: what comes next then needs Head and Observe.
	Skim(b []byte, dst []Skimmed) (n, size int)
}

// Skimmed is what a Skimmer tells of a frame.
type Skimmed struct {
	// Source and Time are those of Info.
	Source uint64
	Time   int64
	// Size of the whole frame with its length prefix.
	Size uint32
	Kind uint32
	// HasTime says that Time is one.
	HasTime   bool
	HasSource bool
}

// UnitType tells what the bytes at a position are.
type UnitType uint8

const (
	// UnitMore: too few bytes to tell; Head.Size is how many are needed.
	UnitMore UnitType = iota
	// UnitPreamble: what some protocols send before the first frame.
	UnitPreamble
	// UnitFrame: a frame.
	UnitFrame
	// UnitJunk: bytes that no frame owns, stepped over to find the next one.
	UnitJunk
	// UnitLost: the framing is lost here and can't be found again.
	UnitLost
)

// Head is what is known of a unit from its first bytes.
type Head struct {
	Type UnitType
	// Size is the unit's whole length in bytes, its length prefix included.
	// For UnitMore it is how many bytes Head needs to be called with; they may
	// reach behind the unit. For UnitJunk it is at most what Head was given.
	Size int64
	// Peek is how many of the unit's first bytes Observe needs. It may grow as
	// Head is called with more; it is settled once Peek ≤ len(b).
	Peek int64
	// Kind is the frame's kind number.
	Kind uint32
	// Payload says that what lies behind Peek is another format's, which Observe
	// steps over.
	Payload bool
	// Finding is the reason for UnitJunk and UnitLost. Its offset is relative
	// to the unit.
	Finding *Finding
}

// Unit is one stretch of a stream with its place.
type Unit struct {
	Type UnitType
	// Offset of the first byte in the connection.
	Offset int64
	// Size of the whole unit with its length prefix.
	Size int64
	Kind uint32
	// Bytes are the unit's bytes from its first on, all of them or fewer. They
	// belong to the caller and are good until its next call.
	Bytes []byte
}

// End is the offset behind the unit.
func (u Unit) End() int64 { return u.Offset + u.Size }

// Info is what a frame list shows of one unit.
type Info struct {
	// Name of the frame kind in the specification's words.
	Name string
	// Source is the number that the protocol gives to whom the frame is about
	// (dendro's ordinal), and Label how people know it.
	HasSource bool
	Source    uint64
	Label     string
	// Stream is the named series inside a source, where there is one.
	Stream string
	// Time is the data's own time in nanoseconds since 1970.
	HasTime bool
	Time    int64
	// Summary is one short line of text; it may hold text from the wire.
	Summary string
}

// Context is what a reader needs to decode from the middle of a connection,
// small enough to be kept beside each file (docs/capture-format.md, Sidecar).
type Context struct {
	// Protocol is Protocol.Name, Version the protocol's or layout's number, 0
	// when unknown.
	Protocol string
	Version  uint32
	Entries  []ContextEntry
	// Omitted names what was left out because of a size limit.
	Omitted []string
}

// ContextEntry is the state of one subject: for dendro an ordinal.
type ContextEntry struct {
	ID     uint64
	Values []ContextValue
}

// ContextValue is one named value, a number or bytes.
type ContextValue struct {
	Name string
	// Bytes is nil for a number.
	Bytes []byte
	Num   uint64
}

// Value finds a value by its name.
func (e ContextEntry) Value(name string) (ContextValue, bool) {
	for _, v := range e.Values {
		if v.Name == name {
			return v, true
		}
	}
	return ContextValue{}, false
}

// Registry is the protocols that a program knows, in the order of detection.
type Registry []Protocol

// Named finds a protocol by its name, nil when there is none.
func (r Registry) Named(name string) Protocol {
	for _, p := range r {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// DetectLimit is the most bytes that a detector is given.
const DetectLimit = 4096

// Detect finds the protocol whose stream starts with prefix. more says that
// further bytes could still tell; it is never true once end is or prefix has
// DetectLimit bytes. The protocol is nil when none matches.
func (r Registry) Detect(prefix []byte, end bool) (p Protocol, d Direction, more bool) {
	if len(prefix) >= DetectLimit {
		prefix, end = prefix[:DetectLimit], true
	}
	for _, q := range r {
		switch m, dir := q.Detect(prefix, end); m {
		case Matched:
			return q, dir, false
		case MoreNeeded:
			more = true
		}
	}
	return nil, DirectionUnknown, more && !end
}
