// Package dendro is the dendro replication stream, protocol 1: its constants,
// its frames decoded without copying and encoded append-style, and the session
// state that the subscriber's rules need.
//
// A stream is a preamble of 14 bytes (12 of magic, a u16 version) and then
// frames back to back until the transport ends; there is no end marker. A frame
// is
//
//	len u32 | kind u8 | payload
//
// where len counts the kind byte and the payload. Everything is little-endian
// and of fixed width. A bool is a byte that is exactly 0 or 1; bytes are a u32
// length and that many; a str is bytes in valid UTF-8; an opt is a presence
// byte, 0 or 1, and then the value when 1; a map is a u32 count and that many
// pairs of str in key order. Timestamps are i64 nanoseconds since 1970.
//
//	kind  frame         payload
//	1     Handshake     source u32, uuid opt<bytes>, labels map, metadata map,
//	                    clock_anchor_wall_ns i64, complete bool
//	2     Index         source u32, stream str, ts i64, kind u8, state u64 u64,
//	                    blob bytes
//	3     Rows          source u32, seq u64, index_state u64 u64, count u32, and
//	                    count × (stream str, ts i64, wall_offset i64, row bytes)
//	4     Segment       source u32, stream str, rows u64, first_ts i64,
//	                    last_ts i64, bytes bytes, caller_index opt<bytes>
//	5     ClockOffset   source u32, ts i64, offset_ns i64
//	6     SourceUpdate  source u32, ts i64, labels map, metadata map
//
// A payload with bytes left over, or too few, is refused; the framing holds, so
// reading goes on behind it. An unknown kind is stepped over. A len of 0 is a
// malformed frame of 4 bytes. A len above [MaxFrame] loses the framing: what
// follows is stepped over to the next place where a Handshake decodes whole,
// because nothing before one could be credited to a source.
package dendro

import "wiretape/wire"

// Name of the protocol in flags and sidecars.
const Name = "dendro"

const (
	// Magic opens a stream: the name and a NUL.
	Magic = "dendro-repl\x00"
	// Version is the protocol that this package reads and writes.
	Version = 1
	// PreambleSize is the magic and the version, in bytes.
	PreambleSize = len(Magic) + 2
	// MaxFrame is the largest value of len.
	MaxFrame = 64 << 20
	// LenSize is the size of len itself, which it does not count.
	LenSize = 4
	// frameHead is len and kind.
	frameHead = LenSize + 1
	// MaxSources is how many ordinals of one connection are told apart. A
	// Handshake that would introduce one more is refused.
	MaxSources = 1 << 16
	// MaxHeld is how many bytes of Handshake and SourceUpdate frames a decoder
	// keeps for its context. What is more is known but can't be handed on.
	MaxHeld = 16 << 20
	// MaxResync is the largest len of a Handshake at which a lost framing is
	// found again.
	MaxResync = 64 << 10
)

// Frame kinds.
const (
	KindHandshake    = 1
	KindIndex        = 2
	KindRows         = 3
	KindSegment      = 4
	KindClockOffset  = 5
	KindSourceUpdate = 6
)

// KindName is the name of a frame kind, "" when it is unknown.
func KindName(kind uint32) string {
	switch kind {
	case KindHandshake:
		return "Handshake"
	case KindIndex:
		return "Index"
	case KindRows:
		return "Rows"
	case KindSegment:
		return "Segment"
	case KindClockOffset:
		return "ClockOffset"
	case KindSourceUpdate:
		return "SourceUpdate"
	}
	return ""
}

// IndexKind says whether an Index frame replaces the index or adds to it.
type IndexKind uint8

// Index kinds.
const (
	IndexFull  IndexKind = 0
	IndexDelta IndexKind = 1
)

// String is the specification's word, "" for a number that it does not have.
func (k IndexKind) String() string {
	switch k {
	case IndexFull:
		return "Full"
	case IndexDelta:
		return "Delta"
	}
	return ""
}

// State is an index state, a running hash: to be compared, never computed. The
// zero State means "built against no index".
type State [2]uint64

// Protocol is dendro as an entry of a [wire.Registry].
type Protocol struct{}

// Name is "dendro".
func (Protocol) Name() string { return Name }

// KindName is [KindName].
func (Protocol) KindName(kind uint32) string { return KindName(kind) }

// detectable is how many bytes of the magic are enough at the end of a stream.
const detectable = len("dendro")

// Detect knows the magic. The version is the decoder's matter: another one is
// this protocol too, and refused with its number. A stream that ends inside the
// magic is this protocol when at least the name is there.
func (Protocol) Detect(prefix []byte, end bool) (wire.Match, wire.Direction) {
	n := min(len(prefix), len(Magic))
	switch {
	case string(prefix[:n]) != Magic[:n]:
		return wire.NoMatch, wire.DirectionUnknown
	case n == len(Magic), end && n >= detectable:
		return wire.Matched, wire.Downstream
	case end:
		return wire.NoMatch, wire.DirectionUnknown
	}
	return wire.MoreNeeded, wire.DirectionUnknown
}

// Open is [NewDecoder].
func (Protocol) Open(c wire.Config) (wire.Decoder, error) {
	d, err := NewDecoder(c)
	if err != nil {
		return nil, err
	}
	return d, nil
}
