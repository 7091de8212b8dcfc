package melin

import (
	"encoding/binary"

	"wiretape/wire"
)

// Handshake is what a replica has (0x01). Epoch and Version are not in the
// first layouts.
type Handshake struct {
	LastSequence uint64
	ChainHash    [HashSize]byte
	HasEpoch     bool
	Epoch        uint64
	HasVersion   bool
	Version      uint16
}

// Ack is how far a replica is (0x02). The oldest has one cursor.
type Ack struct {
	Acked     uint64
	HasMemory bool
	InMemory  uint64
}

// Challenge asks a replica to sign (0x03).
type Challenge struct{ Nonce [32]byte }

// ChallengeResponse is the signature and who made it (0x04).
type ChallengeResponse struct {
	Signature [64]byte
	PublicKey [32]byte
}

// StreamStart says where the stream goes on and of which segment (0x10). Which
// fields there are depends on the layout.
type StreamStart struct {
	StartSequence uint64
	// HasSegment: SegmentStart and Anchor are there, in all but the first.
	HasSegment   bool
	SegmentStart uint64
	Anchor       [HashSize]byte
	HasEpoch     bool
	Epoch        uint64
	HasPolicy    bool
	Policy       uint8
	// HasGenesis: GenesisKnown and GenesisEntries are there, protocols 7 and 8.
	HasGenesis     bool
	GenesisKnown   uint8
	GenesisEntries uint64
	// Genesis is what the first layout carries instead of an anchor. It
	// aliases the frame.
	First   bool
	Genesis []byte
}

// SnapshotBegin announces a snapshot (0x13).
type SnapshotBegin struct {
	Length       uint64
	SnapSequence uint64
	ChainHash    [HashSize]byte
}

// ChainPoint is a sequence and the chain's hash there: Rotate (0x16) and
// ChainCheck (0x17).
type ChainPoint struct {
	Sequence uint64
	Hash     [HashSize]byte
}

// DataBatch is the oldest layout's piece of journal (0x20). Journal aliases the
// frame.
type DataBatch struct {
	EndSequence uint64
	Hash        [HashSize]byte
	Count       uint32
	Journal     []byte
}

// Heartbeat names the last sequence sent (0x30).
type Heartbeat struct {
	Sequence  uint64
	HasPolicy bool
	Policy    uint8
	HasHash   bool
	Hash      [HashSize]byte
}

// The Decode functions take a whole frame with its length prefix and tag, and
// give the value and how many bytes of the frame it owns; 0 means that the
// frame is too short for it. More bytes than it owns are left over.

// DecodeHandshake decodes a Handshake of any layout, told by its length.
func DecodeHandshake(frame []byte) (v Handshake, size int) {
	n := len(frame) - PrefixSize
	if n < lenHandshakeFirst {
		return v, 0
	}
	p := frame[HeaderSize:]
	v.LastSequence = u64(p)
	copy(v.ChainHash[:], p[8:])
	size = lenHandshakeFirst
	if n >= lenHandshakeEpoch {
		v.HasEpoch, v.Epoch = true, u64(p[40:])
		size = lenHandshakeEpoch
	}
	if n >= lenHandshake {
		v.HasVersion, v.Version = true, u16(p[48:])
		size = lenHandshake
	}
	return v, PrefixSize + size
}

// DecodeAck decodes an Ack of any layout.
func DecodeAck(frame []byte) (v Ack, size int) {
	n := len(frame) - PrefixSize
	if n < lenAckFirst {
		return v, 0
	}
	v.Acked = u64(frame[HeaderSize:])
	if n < lenAck {
		return v, PrefixSize + lenAckFirst
	}
	v.HasMemory, v.InMemory = true, u64(frame[HeaderSize+8:])
	return v, PrefixSize + lenAck
}

// DecodeChallenge decodes a Challenge.
func DecodeChallenge(frame []byte) (v Challenge, size int) {
	if len(frame) < PrefixSize+lenChallenge {
		return v, 0
	}
	copy(v.Nonce[:], frame[HeaderSize:])
	return v, PrefixSize + lenChallenge
}

// DecodeChallengeResponse decodes a ChallengeResponse.
func DecodeChallengeResponse(frame []byte) (v ChallengeResponse, size int) {
	if len(frame) < PrefixSize+lenChallengeResponse {
		return v, 0
	}
	copy(v.Signature[:], frame[HeaderSize:])
	copy(v.PublicKey[:], frame[HeaderSize+64:])
	return v, PrefixSize + lenChallengeResponse
}

// DecodeStreamStart decodes a StreamStart. Its length tells the layout; layout
// decides where the first one, with its genesis, has a newer one's length.
func DecodeStreamStart(frame []byte, layout Layout) (v StreamStart, size int) {
	n := len(frame) - PrefixSize
	if n < lenStreamStartFirst {
		return v, 0
	}
	p := frame[HeaderSize:]
	v.StartSequence = u64(p)
	switch genesis := uint64(u32(p[8:])); {
	case streamStartLayouts(frame) == layouts(1) && n != lenStreamStart1,
		layout == 1 && genesis == uint64(n-lenStreamStartFirst),
		layout == 1 && n < lenStreamStart1:
		v.First = true
		if genesis > uint64(n-lenStreamStartFirst) {
			return v, 0
		}
		v.Genesis = p[12 : 12+genesis : 12+genesis]
		return v, PrefixSize + lenStreamStartFirst + int(genesis)
	}
	if n < lenStreamStart1 {
		return v, 0
	}
	v.HasSegment, v.SegmentStart = true, u64(p[8:])
	copy(v.Anchor[:], p[16:])
	if n < lenStreamStart2 {
		return v, PrefixSize + lenStreamStart1
	}
	v.HasEpoch, v.Epoch = true, u64(p[48:])
	genesis := p[56:]
	switch {
	case n < lenStreamStart4:
		return v, PrefixSize + lenStreamStart2
	case n < lenStreamStart, n >= lenStreamStart7 && (layout != Newest || n == lenStreamStart7):
		v.HasPolicy, v.Policy = true, p[56]
		genesis = p[57:]
	}
	if n < lenStreamStart {
		return v, PrefixSize + lenStreamStart4
	}
	v.HasGenesis, v.GenesisKnown, v.GenesisEntries = true, genesis[0], u64(genesis[1:])
	if v.HasPolicy {
		return v, PrefixSize + lenStreamStart7
	}
	return v, PrefixSize + lenStreamStart
}

// DecodeSnapshotBegin decodes a SnapshotBegin.
func DecodeSnapshotBegin(frame []byte) (v SnapshotBegin, size int) {
	if len(frame) < PrefixSize+lenSnapshotBegin {
		return v, 0
	}
	p := frame[HeaderSize:]
	v.Length, v.SnapSequence = u64(p), u64(p[8:])
	copy(v.ChainHash[:], p[16:])
	return v, PrefixSize + lenSnapshotBegin
}

// DecodeSnapshotChunk gives a SnapshotChunk's data, which aliases the frame.
func DecodeSnapshotChunk(frame []byte) (data []byte, size int) {
	if len(frame) < HeaderSize {
		return nil, 0
	}
	return frame[HeaderSize:], len(frame)
}

// DecodeSnapshotEnd gives a SnapshotEnd's crc32c.
func DecodeSnapshotEnd(frame []byte) (crc uint32, size int) {
	if len(frame) < PrefixSize+lenSnapshotEnd {
		return 0, 0
	}
	return u32(frame[HeaderSize:]), PrefixSize + lenSnapshotEnd
}

// DecodeSegmentSeedBegin gives a SegmentSeedBegin's seed_len.
func DecodeSegmentSeedBegin(frame []byte) (length uint64, size int) {
	if len(frame) < PrefixSize+lenSegmentSeedBegin {
		return 0, 0
	}
	return u64(frame[HeaderSize:]), PrefixSize + lenSegmentSeedBegin
}

// DecodeChainPoint decodes a Rotate or a ChainCheck.
func DecodeChainPoint(frame []byte) (v ChainPoint, size int) {
	if len(frame) < PrefixSize+lenRotate {
		return v, 0
	}
	v.Sequence = u64(frame[HeaderSize:])
	copy(v.Hash[:], frame[HeaderSize+8:])
	return v, PrefixSize + lenRotate
}

// DecodeDataBatch decodes a DataBatch.
func DecodeDataBatch(frame []byte) (v DataBatch, size int) {
	if len(frame) < PrefixSize+lenDataBatch {
		return v, 0
	}
	p := frame[HeaderSize:]
	v.EndSequence = u64(p)
	copy(v.Hash[:], p[8:])
	v.Count = u32(p[40:])
	v.Journal = p[44:]
	return v, len(frame)
}

// DecodeHeartbeat decodes a Heartbeat of any layout, told by its length.
func DecodeHeartbeat(frame []byte) (v Heartbeat, size int) {
	n := len(frame) - PrefixSize
	if n < lenHeartbeat {
		return v, 0
	}
	p := frame[HeaderSize:]
	v.Sequence = u64(p)
	switch {
	case n >= lenHeartbeatFirst:
		v.HasHash = true
		copy(v.Hash[:], p[8:])
		return v, PrefixSize + lenHeartbeatFirst
	case n >= lenHeartbeatPolicy:
		v.HasPolicy, v.Policy = true, p[8]
		return v, PrefixSize + lenHeartbeatPolicy
	}
	return v, PrefixSize + lenHeartbeat
}

// appendHeader appends a length prefix for n bytes, tag included, and the tag.
func appendHeader(dst []byte, n int, tag uint8) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(n)), tag)
}

func append64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

// AppendTag appends a frame that is its tag alone: AuthOk, AuthFailed,
// NeedSnapshot, HashMismatch.
func AppendTag(dst []byte, tag uint8) []byte { return appendHeader(dst, lenTagAlone, tag) }

// Append appends the frame with the fields that v has.
func (v *Handshake) Append(dst []byte) []byte {
	n := lenHandshakeFirst
	switch {
	case v.HasVersion:
		n = lenHandshake
	case v.HasEpoch:
		n = lenHandshakeEpoch
	}
	dst = append64(appendHeader(dst, n, TagHandshake), v.LastSequence)
	dst = append(dst, v.ChainHash[:]...)
	if n >= lenHandshakeEpoch {
		dst = append64(dst, v.Epoch)
	}
	if n == lenHandshake {
		dst = binary.LittleEndian.AppendUint16(dst, v.Version)
	}
	return dst
}

// Append appends the frame.
func (v *Ack) Append(dst []byte) []byte {
	if !v.HasMemory {
		return append64(appendHeader(dst, lenAckFirst, TagAck), v.Acked)
	}
	return append64(append64(appendHeader(dst, lenAck, TagAck), v.Acked), v.InMemory)
}

// Append appends the frame.
func (v *Challenge) Append(dst []byte) []byte {
	return append(appendHeader(dst, lenChallenge, TagChallenge), v.Nonce[:]...)
}

// Append appends the frame.
func (v *ChallengeResponse) Append(dst []byte) []byte {
	dst = append(appendHeader(dst, lenChallengeResponse, TagChallengeResponse), v.Signature[:]...)
	return append(dst, v.PublicKey[:]...)
}

// Append appends the frame with the fields that v has.
func (v *StreamStart) Append(dst []byte) []byte {
	if v.First {
		dst = append64(appendHeader(dst, lenStreamStartFirst+len(v.Genesis), TagStreamStart), v.StartSequence)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v.Genesis)))
		return append(dst, v.Genesis...)
	}
	n := lenStreamStart1
	if v.HasEpoch {
		n += 8
	}
	if v.HasPolicy {
		n++
	}
	if v.HasGenesis {
		n += 9
	}
	dst = append64(append64(appendHeader(dst, n, TagStreamStart), v.StartSequence), v.SegmentStart)
	dst = append(dst, v.Anchor[:]...)
	if v.HasEpoch {
		dst = append64(dst, v.Epoch)
	}
	if v.HasPolicy {
		dst = append(dst, v.Policy)
	}
	if v.HasGenesis {
		dst = append64(append(dst, v.GenesisKnown), v.GenesisEntries)
	}
	return dst
}

// Append appends the frame.
func (v *SnapshotBegin) Append(dst []byte) []byte {
	dst = append64(append64(appendHeader(dst, lenSnapshotBegin, TagSnapshotBegin), v.Length), v.SnapSequence)
	return append(dst, v.ChainHash[:]...)
}

// AppendSnapshotChunk appends a SnapshotChunk of a snapshot or a seed.
func AppendSnapshotChunk(dst, data []byte) []byte {
	return append(appendHeader(dst, 1+len(data), TagSnapshotChunk), data...)
}

// AppendSnapshotEnd appends a SnapshotEnd.
func AppendSnapshotEnd(dst []byte, crc uint32) []byte {
	return binary.LittleEndian.AppendUint32(appendHeader(dst, lenSnapshotEnd, TagSnapshotEnd), crc)
}

// AppendSegmentSeedBegin appends a SegmentSeedBegin.
func AppendSegmentSeedBegin(dst []byte, length uint64) []byte {
	return append64(appendHeader(dst, lenSegmentSeedBegin, TagSegmentSeedBegin), length)
}

// Append appends a Rotate or a ChainCheck, as tag says.
func (v *ChainPoint) Append(dst []byte, tag uint8) []byte {
	return append(append64(appendHeader(dst, lenRotate, tag), v.Sequence), v.Hash[:]...)
}

// Append appends the frame.
func (v *DataBatch) Append(dst []byte) []byte {
	dst = append64(appendHeader(dst, lenDataBatch+len(v.Journal), TagDataBatch), v.EndSequence)
	dst = append(dst, v.Hash[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, v.Count)
	return append(dst, v.Journal...)
}

// Append appends the frame with the fields that v has.
func (v *Heartbeat) Append(dst []byte) []byte {
	switch {
	case v.HasHash:
		return append(append64(appendHeader(dst, lenHeartbeatFirst, TagHeartbeat), v.Sequence), v.Hash[:]...)
	case v.HasPolicy:
		return append(append64(appendHeader(dst, lenHeartbeatPolicy, TagHeartbeat), v.Sequence), v.Policy)
	}
	return append64(appendHeader(dst, lenHeartbeat, TagHeartbeat), v.Sequence)
}

// BeginInputBatch appends the start of an InputBatch; the slots follow by
// [AppendSlot], and [EndInputBatch] completes it. start is where in dst it is.
func BeginInputBatch(dst []byte) (out []byte, start int) {
	start = len(dst)
	return append(appendHeader(dst, lenInputBatch, TagInputBatch), 0, 0), start
}

// AppendSlot appends a slot in a shape; Raw, Offset and CRC of s are not used,
// the CRC is computed. Its payload has at most 65,518 bytes.
func AppendSlot(dst []byte, s *Slot, shape Shape) []byte {
	n := slotFixed + len(s.Payload)
	if shape == ShapeRequest {
		n = slotFixedRequest + len(s.Payload)
	}
	start := len(dst)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	dst = append64(append64(append64(dst, s.Sequence), s.Timestamp), s.KeyHash)
	if shape == ShapeRequest {
		dst = append64(dst, s.RequestSeq)
	}
	dst = append(append(dst, s.Event), s.Payload...)
	if shape == ShapeCRC {
		dst = binary.LittleEndian.AppendUint32(dst, SlotCRC(dst[start:]))
	}
	return dst
}

// EndInputBatch completes the InputBatch at start with its length and count.
func EndInputBatch(dst []byte, start, count int) []byte {
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-PrefixSize))
	binary.LittleEndian.PutUint16(dst[start+HeaderSize:], uint16(count))
	return dst
}

// lengthFits says whether a frame with this tag has such a length, tag
// included, in any layout.
func lengthFits(tag uint32, n int) bool {
	switch tag {
	case TagHandshake:
		return n == lenHandshake || n == lenHandshakeEpoch || n == lenHandshakeFirst
	case TagAck:
		return n == lenAck || n == lenAckFirst
	case TagChallenge:
		return n == lenChallenge
	case TagChallengeResponse:
		return n == lenChallengeResponse
	case TagAuthOk, TagAuthFailed, TagNeedSnapshot, TagHashMismatch:
		return n == lenTagAlone
	case TagStreamStart:
		return n >= lenStreamStartFirst && n <= MaxControl
	case TagSnapshotBegin:
		return n == lenSnapshotBegin
	case TagSnapshotChunk:
		return n >= 1 && n <= 1+MaxChunk
	case TagSnapshotEnd:
		return n == lenSnapshotEnd
	case TagRotate, TagChainCheck:
		return n == lenRotate
	case TagSegmentSeedBegin:
		return n == lenSegmentSeedBegin
	case TagDataBatch:
		return n >= lenDataBatch && n <= MaxFrame
	case TagInputBatch:
		return n >= lenInputBatch && n <= MaxFrame
	case TagHeartbeat:
		return n == lenHeartbeat || n == lenHeartbeatPolicy || n == lenHeartbeatFirst
	}
	return false
}

// zeroHash says whether a hash is all zero: none was computed.
func zeroHash(h []byte) bool {
	for _, c := range h {
		if c != 0 {
			return false
		}
	}
	return true
}

// policyNote is the name of a policy for a field's note.
func policyNote(p uint8) string {
	if n := PolicyName(p); n != "" {
		return n
	}
	return "not a policy of the specification"
}

var _ wire.Protocol = Protocol{}
