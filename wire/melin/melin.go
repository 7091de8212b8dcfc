// Package melin reads and writes melin's replication protocol: the link over
// which a primary streams its journaled input events to a replica, in both
// directions and in every layout from the first published one to protocol 8.
//
// A frame is
//
//	u32 length   little-endian, itself not counted
//	u8  tag
//	…   length-1 bytes
//
// Integers are little-endian and packed, hashes are 32 raw bytes. There is no
// marker by which a reader could find a frame again, so one damaged length
// would cost the rest of a stream: after a length that no frame can have, or a
// header that makes no sense behind a frame that did not decode, the decoder
// looks for the next place from which frames follow one another (resync.go).
//
// The layouts differ in the lengths of a few frames and in the slots of an
// InputBatch; layout.go tells them apart. Only the Handshake, replica to
// primary, says its version.
//
// What the bytes let one connection check is checked here and becomes findings:
// slot CRCs, sequences, announced sequences, bodies' lengths and CRCs, acks and
// epochs that go back. What needs several connections, or the hash chain, is
// the rebuild's.
package melin

import "wiretape/wire"

// Name is the protocol's word in flags and sidecars.
const Name = "melin"

// The frames' tags, which are the kinds of its units.
const (
	TagHandshake         = 0x01
	TagAck               = 0x02
	TagChallenge         = 0x03
	TagChallengeResponse = 0x04
	TagAuthOk            = 0x05
	TagAuthFailed        = 0x06
	TagStreamStart       = 0x10
	TagNeedSnapshot      = 0x11
	TagHashMismatch      = 0x12
	TagSnapshotBegin     = 0x13
	TagSnapshotChunk     = 0x14
	TagSnapshotEnd       = 0x15
	TagRotate            = 0x16
	TagChainCheck        = 0x17
	TagSegmentSeedBegin  = 0x18
	TagDataBatch         = 0x20
	TagInputBatch        = 0x21
	TagHeartbeat         = 0x30
	// KindEmpty is the kind of a frame of length 0, which has no tag.
	KindEmpty = 0x00
)

const (
	// PrefixSize is the length prefix, HeaderSize that and the tag.
	PrefixSize = 4
	HeaderSize = 5
	// MaxControl is the most that a real reader takes for a frame's length in
	// the control stages, and from a replica always.
	MaxControl = 256
	// MaxFrame is the most that it takes for snapshot and seed bodies and once
	// streaming: 768 KiB.
	MaxFrame = 768 << 10
	// MaxChunk is the most data of one SnapshotChunk.
	MaxChunk = 64 << 10
	// MaxSequence is the largest sequence that is believed: a catalogue's
	// integers end there, and no journal comes near.
	MaxSequence = 1<<63 - 1
	// HashSize is a BLAKE3 hash's.
	HashSize = 32
	// SnapshotResidue is the CRC-32C of every snapshot body, since it ends in
	// its own.
	SnapshotResidue = 0x48674bc7
)

// The lengths of the frames, tag included, where they are fixed.
const (
	lenHandshake         = 51
	lenHandshakeEpoch    = 49 // an epoch, and no version yet
	lenHandshakeFirst    = 41
	lenAck               = 17
	lenAckFirst          = 9
	lenChallenge         = 33
	lenChallengeResponse = 97
	lenTagAlone          = 1
	lenStreamStart       = 66
	lenStreamStart7      = 67
	lenStreamStart4      = 58
	lenStreamStart2      = 57
	lenStreamStart1      = 49 // an anchor, and no epoch yet
	lenStreamStartFirst  = 13 // and the genesis
	lenSnapshotBegin     = 49
	lenSnapshotEnd       = 5
	lenRotate            = 41
	lenSegmentSeedBegin  = 9
	lenDataBatch         = 45 // and the journal bytes
	lenInputBatch        = 3  // and the slots
	lenHeartbeat         = 9
	lenHeartbeatPolicy   = 10
	lenHeartbeatFirst    = 41
)

// The kinds of findings of this package.
const (
	// KindOverCap: a frame longer than a real reader takes at its stage.
	KindOverCap = "over-cap"
	// KindEmptyFrame: a frame of length 0, fatal to a real reader.
	KindEmptyFrame = "empty-frame"
	// KindLeftOver: bytes behind the last field of a frame; real nodes
	// tolerate them on fixed frames.
	KindLeftOver = "left-over-bytes"
	// KindSlotCRC: a slot whose CRC-32C is not that of its bytes.
	KindSlotCRC = "slot-crc"
	// KindGap: sequences that this connection did not carry.
	KindGap = "sequence-gap"
	// KindAnnounced: a frame names another last sequence than was sent.
	KindAnnounced = "announced-sequence"
	// KindEvent: an event tag or its payload that the specification lacks.
	KindEvent = "bad-event"
	// KindOrder: a frame at a stage where it has no place.
	KindOrder = "out-of-order"
	// KindAckOrder: an Ack that goes back, or acked above in_memory.
	KindAckOrder = "ack-order"
	// KindEpochBack: an epoch below one that was seen.
	KindEpochBack = "epoch-back"
	// KindBodyLength and KindBodyCRC: a snapshot or seed that is not what was
	// announced.
	KindBodyLength = "body-length"
	KindBodyCRC    = "body-crc"
	// KindLayout: a frame of another layout than the one in force.
	KindLayout = "other-layout"
	// KindValue: a field's value outside what the specification lists, or one
	// that can't be beside another.
	KindValue = "bad-value"
)

// Protocol is melin in a registry.
type Protocol struct{}

// Name is "melin".
func (Protocol) Name() string { return Name }

// KindName is the name of the frame with this tag.
func (Protocol) KindName(kind uint32) string { return TagName(kind) }

// TagName is the name of the frame with this tag, "" when there is none.
func TagName(tag uint32) string {
	switch tag {
	case TagHandshake:
		return "Handshake"
	case TagAck:
		return "Ack"
	case TagChallenge:
		return "Challenge"
	case TagChallengeResponse:
		return "ChallengeResponse"
	case TagAuthOk:
		return "AuthOk"
	case TagAuthFailed:
		return "AuthFailed"
	case TagStreamStart:
		return "StreamStart"
	case TagNeedSnapshot:
		return "NeedSnapshot"
	case TagHashMismatch:
		return "HashMismatch"
	case TagSnapshotBegin:
		return "SnapshotBegin"
	case TagSnapshotChunk:
		return "SnapshotChunk"
	case TagSnapshotEnd:
		return "SnapshotEnd"
	case TagRotate:
		return "Rotate"
	case TagChainCheck:
		return "ChainCheck"
	case TagSegmentSeedBegin:
		return "SegmentSeedBegin"
	case TagDataBatch:
		return "DataBatch"
	case TagInputBatch:
		return "InputBatch"
	case TagHeartbeat:
		return "Heartbeat"
	}
	return ""
}

// tagDirection is the direction in which a tag travels.
func tagDirection(tag uint32) wire.Direction {
	switch tag {
	case TagHandshake, TagAck, TagChallengeResponse:
		return wire.Upstream
	}
	if TagName(tag) == "" {
		return wire.DirectionUnknown
	}
	return wire.Downstream
}

// Detect knows a connection by its first frame: a Challenge from the primary, a
// ChallengeResponse or a Handshake from the replica; where nobody is asked who
// he is, a StreamStart or the verdict with the snapshot behind it.
func (Protocol) Detect(b []byte, end bool) (wire.Match, wire.Direction) {
	more := func(n int) (wire.Match, wire.Direction) {
		if end || len(b) >= n {
			return wire.NoMatch, wire.DirectionUnknown
		}
		return wire.MoreNeeded, wire.DirectionUnknown
	}
	if len(b) < HeaderSize {
		for _, first := range firstFrames {
			if string(first.header[:len(b)]) == string(b) {
				return more(HeaderSize)
			}
		}
		if len(b) >= PrefixSize && !startLength(u32(b)) {
			return wire.NoMatch, wire.DirectionUnknown
		}
		return more(HeaderSize)
	}
	for _, first := range firstFrames {
		if string(b[:HeaderSize]) == first.header {
			if !first.verdict {
				return wire.Matched, first.dir
			}
			// One byte says little: the snapshot must follow.
			const both = 2 * HeaderSize
			if len(b) < both {
				return more(both)
			}
			if u32(b[HeaderSize:]) == lenSnapshotBegin && b[both-1] == TagSnapshotBegin {
				return wire.Matched, wire.Downstream
			}
			return wire.NoMatch, wire.DirectionUnknown
		}
	}
	if n := u32(b); b[4] == TagStreamStart && startLength(n) {
		whole := PrefixSize + int(n)
		if len(b) < whole {
			return more(whole)
		}
		if streamStartLayouts(b[:whole]) != 0 {
			return wire.Matched, wire.Downstream
		}
	}
	return wire.NoMatch, wire.DirectionUnknown
}

// startLength tells the lengths of a StreamStart that a detector can be shown.
func startLength(n uint32) bool { return n >= lenStreamStartFirst && n <= wire.DetectLimit-PrefixSize }

var firstFrames = [...]struct {
	header  string
	dir     wire.Direction
	verdict bool
}{
	{"\x21\x00\x00\x00\x03", wire.Downstream, false},
	{"\x61\x00\x00\x00\x04", wire.Upstream, false},
	{"\x33\x00\x00\x00\x01", wire.Upstream, false},
	{"\x31\x00\x00\x00\x01", wire.Upstream, false},
	{"\x29\x00\x00\x00\x01", wire.Upstream, false},
	{"\x01\x00\x00\x00\x11", wire.Downstream, true},
	{"\x01\x00\x00\x00\x12", wire.Downstream, true},
}

// Open starts a [Decoder].
func (Protocol) Open(cfg wire.Config) (wire.Decoder, error) { return NewDecoder(cfg) }

func u16(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }

func u32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func u64(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}
