// Package aewr decodes the frames that an AEWR orchestrator and its workers
// exchange, versions 17 to 31: a 64-byte header, then instruction_count 64-bit
// words, then constants_len bytes. All integers are little-endian.
//
// Only a description of the protocol is public. What it leaves open is read in
// one way here, each such reading has a name (docs/aewr.md), and a frame for
// which it does not hold gets a finding; it is never refused for it.
//
// A frame is decoded under the layout of the version in its own header, and
// with no other. What a version does not have, and every payload whose layout
// is not public, is bytes with their place.
package aewr

import (
	"encoding/binary"
	"errors"

	"wiretape/wire"
)

// Name is the protocol's word in flags and sidecars.
const Name = "aewr"

// Magic is the first four bytes of every frame.
const Magic = "AEWR"

const (
	// HeaderSize is the fixed size of a frame's header.
	HeaderSize = 64
	// WordSize is the size of one instruction word.
	WordSize = 8
	// MinVersion and MaxVersion are the versions known here; UnassignedVersion
	// between them was never used.
	MinVersion        = 17
	MaxVersion        = 31
	UnassignedVersion = 28
	// MaxFrame is the largest frame, header included, that is believed. The
	// header's own fields reach to nearly 2^35.
	MaxFrame = 64 << 20
	// ConfirmLimit is the largest frame with a header_checksum that does not
	// match whose length is believed when another frame follows it.
	ConfirmLimit = 256 << 10
)

// Where the header's fields are.
const (
	offVersion          = 4
	offMessageType      = 6
	offClusterHash      = 8
	offInstructionCount = 16
	offConstantsLen     = 20
	offChecksum         = 24
	offPad              = 28
	offEpoch            = 32
	offTxnID            = 40
	offContainerID      = 48
	offTenantID         = 56
)

// Versions from which a part of the layout exists.
const (
	tenantVersion    = 18 // tenant_id, reserved before
	snapshotVersion  = 19 // the snapshot word of 0x1A and 0x1B
	offsetsVersion   = 16 // the row offsets behind a materialised chunk
	hashTableVersion = 16 // the layout of HASH_TABLE_LOAD that is public
)

// PongEchoVersion is the version from which on a HEARTBEAT_PONG echoes the ping.
const PongEchoVersion = 30

// The kinds of findings of this protocol, beside those of package wire.
const (
	// KindChecksum: header_checksum does not match the header.
	KindChecksum = "bad-checksum"
	// KindReserved: pad, or tenant_id before version 18, is not zero.
	KindReserved = "reserved-not-zero"
	// KindVersionMismatch: a frame of another version than the frames before.
	KindVersionMismatch = "version-mismatch"
	// KindTypeTooNew: a message type that the frame's version does not have.
	KindTypeTooNew = "type-not-in-version"
	// KindEpochFence: a manifest_epoch older than one seen before.
	KindEpochFence = "epoch-fence"
	// KindDirection: a message type that travels the other way.
	KindDirection = "wrong-direction"
	// KindCount: a payload has more records than the protocol allows, or a
	// count inside it contradicts another.
	KindCount = "bad-count"
	// KindReading: one of the named readings does not hold.
	KindReading = "reading"
)

// Header is a frame's header.
type Header struct {
	Version           uint16
	MessageType       uint16
	TargetClusterHash uint64
	InstructionCount  uint32
	ConstantsLen      uint32
	HeaderChecksum    uint32
	Pad               uint32
	ManifestEpoch     uint64
	TxnID             uint64
	ContainerID       uint64
	// RawTenantID is the field as sent, also where it is reserved.
	RawTenantID uint64
}

// ParseHeader reads the header at the start of b. ok is false when b is shorter
// than a header or does not start with the magic; nothing else is checked.
func ParseHeader(b []byte) (h Header, ok bool) {
	if len(b) < HeaderSize || string(b[:len(Magic)]) != Magic {
		return Header{}, false
	}
	return parseHeader((*[HeaderSize]byte)(b)), true
}

func parseHeader(b *[HeaderSize]byte) Header {
	return Header{
		Version:           binary.LittleEndian.Uint16(b[offVersion:]),
		MessageType:       binary.LittleEndian.Uint16(b[offMessageType:]),
		TargetClusterHash: binary.LittleEndian.Uint64(b[offClusterHash:]),
		InstructionCount:  binary.LittleEndian.Uint32(b[offInstructionCount:]),
		ConstantsLen:      binary.LittleEndian.Uint32(b[offConstantsLen:]),
		HeaderChecksum:    binary.LittleEndian.Uint32(b[offChecksum:]),
		Pad:               binary.LittleEndian.Uint32(b[offPad:]),
		ManifestEpoch:     binary.LittleEndian.Uint64(b[offEpoch:]),
		TxnID:             binary.LittleEndian.Uint64(b[offTxnID:]),
		ContainerID:       binary.LittleEndian.Uint64(b[offContainerID:]),
		RawTenantID:       binary.LittleEndian.Uint64(b[offTenantID:]),
	}
}

// Append appends the header's 64 bytes with the checksum that belongs to them;
// h.HeaderChecksum is not used.
func (h *Header) Append(dst []byte) []byte {
	var b [HeaderSize]byte
	copy(b[:], Magic)
	binary.LittleEndian.PutUint16(b[offVersion:], h.Version)
	binary.LittleEndian.PutUint16(b[offMessageType:], h.MessageType)
	binary.LittleEndian.PutUint64(b[offClusterHash:], h.TargetClusterHash)
	binary.LittleEndian.PutUint32(b[offInstructionCount:], h.InstructionCount)
	binary.LittleEndian.PutUint32(b[offConstantsLen:], h.ConstantsLen)
	binary.LittleEndian.PutUint32(b[offPad:], h.Pad)
	binary.LittleEndian.PutUint64(b[offEpoch:], h.ManifestEpoch)
	binary.LittleEndian.PutUint64(b[offTxnID:], h.TxnID)
	binary.LittleEndian.PutUint64(b[offContainerID:], h.ContainerID)
	binary.LittleEndian.PutUint64(b[offTenantID:], h.RawTenantID)
	binary.LittleEndian.PutUint32(b[offChecksum:], checksum(&b))
	return append(dst, b[:]...)
}

// Size is the whole frame's length in bytes, at most 64 + 2^35 + 2^32.
func (h *Header) Size() int64 {
	return HeaderSize + int64(h.InstructionCount)*WordSize + int64(h.ConstantsLen)
}

// TenantID is the tenant, 0 (the system tenant) before version 18.
func (h *Header) TenantID() uint64 {
	if h.Version < tenantVersion {
		return 0
	}
	return h.RawTenantID
}

// VersionKnown says that the header's version is one whose layouts are known.
func (h *Header) VersionKnown() bool {
	return h.Version >= MinVersion && h.Version <= MaxVersion && h.Version != UnassignedVersion
}

// TypeKnown says that the header's version has the header's message type.
func (h *Header) TypeKnown() bool {
	t := lookup(h.MessageType)
	return t.name != "" && t.since <= h.Version
}

// reserved gives the name of a field that must be zero in this version and is
// not, "" when there is none.
func (h *Header) reserved() (field string, off int64, value uint64) {
	if h.Pad != 0 {
		return "pad", offPad, uint64(h.Pad)
	}
	if h.Version < tenantVersion && h.RawTenantID != 0 {
		return "tenant_id", offTenantID, h.RawTenantID
	}
	return "", 0, 0
}

// sound says that every check of a header holds but the checksum's.
func (h *Header) sound() bool {
	field, _, _ := h.reserved()
	return field == "" && h.VersionKnown() && h.TypeKnown() && h.Size() <= MaxFrame
}

// The parameters of FNV-1a with 32 bits, and the prime's powers: a byte of zero
// is a multiplication alone.
const (
	fnvBasis  = 2166136261
	fnvPrime  = 16777619
	fnvPrime2 = fnvPrime * fnvPrime & 0xffffffff
	fnvPrime4 = fnvPrime2 * fnvPrime2 & 0xffffffff
	fnvPrime8 = fnvPrime4 * fnvPrime4 & 0xffffffff
)

// Checksum is FNV-1a 32 over a header with header_checksum taken as zero
// (reading `checksum-scope`). b must hold HeaderSize bytes.
func Checksum(b []byte) uint32 { return checksum((*[HeaderSize]byte)(b)) }

// checksum is a serial chain of one multiplication a byte; runs of zero bytes,
// of which headers are full, are one multiplication each.
func checksum(b *[HeaderSize]byte) uint32 {
	h := fnv8(fnvBasis, binary.LittleEndian.Uint64(b[0:]))
	h = fnv8(h, binary.LittleEndian.Uint64(b[8:]))
	h = fnv8(h, binary.LittleEndian.Uint64(b[16:]))
	h = fnv8(h, binary.LittleEndian.Uint64(b[24:])>>32<<32)
	h = fnv8(h, binary.LittleEndian.Uint64(b[32:]))
	h = fnv8(h, binary.LittleEndian.Uint64(b[40:]))
	h = fnv8(h, binary.LittleEndian.Uint64(b[48:]))
	return fnv8(h, binary.LittleEndian.Uint64(b[56:]))
}

func fnv8(h uint32, w uint64) uint32 {
	if w == 0 {
		return h * fnvPrime8
	}
	h = fnv4(h, uint32(w))
	if w>>32 == 0 {
		return h * fnvPrime4
	}
	return fnv4(h, uint32(w>>32))
}

func fnv4(h, w uint32) uint32 {
	h = (h ^ w&0xff) * fnvPrime
	h = (h ^ w>>8&0xff) * fnvPrime
	if w>>16 == 0 {
		return h * fnvPrime2
	}
	h = (h ^ w>>16&0xff) * fnvPrime
	return (h ^ w>>24) * fnvPrime
}

// Protocol is AEWR's entry in a registry.
var Protocol wire.Protocol = protocol{}

var _ wire.Unmarked = protocol{}

type protocol struct{}

func (protocol) Name() string { return Name }

// Unmarked says that nothing tells a connection's first frame from any other.
func (protocol) Unmarked() {}

// Detect knows a stream by its magic: whatever follows it, no other protocol
// starts so, and a version or a checksum that is wrong is a finding. The
// direction is that of the first type that travels one way only.
func (protocol) Detect(prefix []byte, end bool) (wire.Match, wire.Direction) {
	n := min(len(prefix), len(Magic))
	if string(prefix[:n]) != Magic[:n] || n == 0 && end {
		return wire.NoMatch, wire.DirectionUnknown
	}
	if n < len(Magic) {
		if end {
			return wire.NoMatch, wire.DirectionUnknown
		}
		return wire.MoreNeeded, wire.DirectionUnknown
	}
	for {
		h, ok := ParseHeader(prefix)
		if !ok {
			return wire.Matched, wire.DirectionUnknown
		}
		if d := TypeDirection(h.MessageType); d != wire.DirectionUnknown && h.sound() {
			return wire.Matched, d
		}
		if h.Size() >= int64(len(prefix)) {
			return wire.Matched, wire.DirectionUnknown
		}
		prefix = prefix[h.Size():]
	}
}

// The names of what a context holds.
const (
	ctxEpoch     = "epoch"
	ctxDirection = "direction"
	ctxChecksums = "checksums"
)

var errContext = errors.New("the context is not one of aewr")

// Open starts a decoder.
func (protocol) Open(c wire.Config) (wire.Decoder, error) {
	d := &Decoder{told: c.Direction, lost: c.Unaligned}
	if c.Context == nil {
		return d, nil
	}
	if c.Context.Protocol != Name || c.Context.Version > 1<<16-1 {
		return nil, errContext
	}
	d.version, d.versioned = uint16(c.Context.Version), c.Context.Version != 0
	for _, e := range c.Context.Entries {
		if v, ok := e.Value(ctxEpoch); ok {
			d.epoch, d.seen = v.Num, true
		}
		if v, ok := e.Value(ctxDirection); ok && v.Num <= uint64(wire.Upstream) {
			d.direction = wire.Direction(v.Num)
		}
		if v, ok := e.Value(ctxChecksums); ok {
			d.good, d.bad = v.Num&1 != 0, v.Num&2 != 0
		}
	}
	return d, nil
}

func (protocol) KindName(kind uint32) string {
	if kind > 1<<16-1 {
		return ""
	}
	return TypeName(uint16(kind))
}
