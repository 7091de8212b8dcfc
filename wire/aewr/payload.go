package aewr

import (
	"encoding/binary"
	"math/bits"

	"wiretape/wire"
)

// Sizes and limits of the payloads.
const (
	KeyOffsetSize   = 16   // sort_key, row_offset
	MaxKeyOffsets   = 4092 // in one RESULT_STREAM_CHUNK
	AccumulatorSize = 16   // value, valid
	GroupSlotSize   = 64   // one group of a RESULT_GROUPED_AGG_CHUNK
	MaxGroupSlots   = 1023 // in one RESULT_GROUPED_AGG_CHUNK
	GroupAccs       = 4    // accumulators of a group
	JoinOffsetSize  = 16   // offset_a, offset_b
	HeartbeatSize   = 24   // timestamp_us, worker_id, data_end_offset
	// SegmentFetchSize is from and len; SegmentFetchSnapshotSize with the
	// snapshot word of version 19.
	SegmentFetchSize         = 16
	SegmentFetchSnapshotSize = 24

	materializeHead = 8  // slot_count, row_count
	hashTableHead   = 24 // dir_slots, record_count, stride
	hashDirSlot     = 16 // composite_key, start << 32 | count
	groupPad        = GroupSlotSize - 8 - 8 - GroupAccs*8 - GroupAccs
	freeSlot        = 1<<64 - 1
	minStride       = 2 // row_offset, valid_mask
)

// The readings of what the description leaves open; docs/aewr.md says each.
const (
	ReadingChecksumScope      = "checksum-scope"
	ReadingRecordsInConstants = "records-in-constants"
	ReadingMaterializeOrder   = "materialize-order"
	ReadingGroupSlot          = "group-slot"
	ReadingValidWord          = "valid-word"
	ReadingHashDirectory      = "hash-directory"
	ReadingSegmentSnapshot    = "segment-snapshot"
	ReadingPongEcho           = "pong-echo"
)

// PayloadKind says which layout a payload has.
type PayloadKind uint8

const (
	// PayloadBytes is a payload whose layout is not public, or not that of a
	// version known here.
	PayloadBytes PayloadKind = iota
	// PayloadProgram is EXEC_BYTECODE_REQ.
	PayloadProgram
	// PayloadKeyOffsets is RESULT_STREAM_CHUNK.
	PayloadKeyOffsets
	// PayloadMaterialized is RESULT_MATERIALIZE_CHUNK.
	PayloadMaterialized
	// PayloadAggregates is RESULT_AGGREGATE_CHUNK.
	PayloadAggregates
	// PayloadGroups is RESULT_GROUPED_AGG_CHUNK.
	PayloadGroups
	// PayloadHashTable is HASH_TABLE_LOAD.
	PayloadHashTable
	// PayloadJoinOffsets is JOIN_STREAM_CHUNK.
	PayloadJoinOffsets
	// PayloadHeartbeat is HEARTBEAT_PING and HEARTBEAT_PONG.
	PayloadHeartbeat
	// PayloadSegmentFetch is SEGMENT_FETCH_REQ.
	PayloadSegmentFetch
	// PayloadSegment is SEGMENT_STREAM_CHUNK.
	PayloadSegment
)

// Payload is a view of a frame's payload under its own version's layout. Its
// lengths have been proved, so that its methods can't fail for the indexes that
// its counts allow.
type Payload struct {
	Kind    PayloadKind
	Version uint16
	// Words is how many of Bytes are instruction words.
	Words int
	Bytes []byte
	// Records is how many key offsets, accumulators, group slots, join offsets
	// or hash table records there are.
	Records int
	// Slots and Rows of a materialised chunk, and whether row offsets follow.
	Slots, Rows   int
	HasRowOffsets bool
	// DirSlots and Stride (in words) of a hash table.
	DirSlots, Stride int
}

// fault is why a payload can't be decoded, or what is odd in one that can. off
// is relative to the payload.
type fault struct {
	kind        string
	field       string
	off, length int64
	want, got   string
	message     string
}

func (f *fault) finding(frame int64, h *Header) wire.Finding {
	w := wire.Finding{Kind: f.kind, Offset: frame + HeaderSize + f.off, Length: f.length, Field: f.field,
		Want: f.want, Got: f.got, Message: typeText(h.MessageType) + ": " + f.message}
	if f.kind == wire.KindMalformed {
		w.Cost = "the payload is shown as bytes"
	}
	return w
}

func badLength(want string, got int) *fault {
	return &fault{kind: wire.KindMalformed, field: "constants_len", length: int64(got), want: want,
		got: wire.Count(int64(got), "byte"), message: "a payload of " + wire.Count(int64(got), "byte") + ", " + want + " expected"}
}

// ParsePayload reads the payload of a frame with header h; body is everything
// behind the header. On an error the payload is PayloadBytes.
func ParsePayload(h *Header, body []byte) (Payload, error) {
	var p Payload
	if f := p.parse(h, body); f != nil {
		return p, &wire.Fault{Finding: f.finding(0, h)}
	}
	return p, nil
}

func (p *Payload) parse(h *Header, body []byte) *fault {
	*p = Payload{Version: h.Version, Words: int(h.InstructionCount), Bytes: body}
	if !h.VersionKnown() || !h.TypeKnown() {
		return nil
	}
	switch h.MessageType {
	case ExecBytecodeReq:
		if h.ConstantsLen < 8 {
			return badLength("at least 8 bytes of constants", int(h.ConstantsLen))
		}
		p.Kind = PayloadProgram
	case ResultStreamChunk:
		return p.records(PayloadKeyOffsets, KeyOffsetSize, "a multiple of 16 bytes")
	case ResultAggregateChunk:
		return p.records(PayloadAggregates, AccumulatorSize, "a multiple of 16 bytes")
	case ResultGroupedAggChunk:
		return p.records(PayloadGroups, GroupSlotSize, "a multiple of 64 bytes")
	case JoinStreamChunk:
		return p.records(PayloadJoinOffsets, JoinOffsetSize, "a multiple of 16 bytes")
	case HeartbeatPing, HeartbeatPong:
		return p.exactly(PayloadHeartbeat, HeartbeatSize, "24 bytes")
	case SegmentFetchReq:
		if h.Version < snapshotVersion {
			return p.exactly(PayloadSegmentFetch, SegmentFetchSize, "16 bytes")
		}
		return p.exactly(PayloadSegmentFetch, SegmentFetchSnapshotSize, "24 bytes")
	case SegmentStreamChunk:
		if len(body) < 8 {
			return badLength("at least 8 bytes", len(body))
		}
		p.Kind = PayloadSegment
	case ResultMaterializeChunk:
		return p.parseMaterialized()
	case HashTableLoad:
		if h.Version >= hashTableVersion {
			return p.parseHashTable()
		}
	}
	return nil
}

func (p *Payload) records(k PayloadKind, size int, rule string) *fault {
	if len(p.Bytes)%size != 0 {
		return badLength(rule, len(p.Bytes))
	}
	p.Kind, p.Records = k, len(p.Bytes)/size
	return nil
}

func (p *Payload) exactly(k PayloadKind, size int, rule string) *fault {
	if len(p.Bytes) != size {
		return badLength(rule, len(p.Bytes))
	}
	p.Kind = k
	return nil
}

// bitmapBytes is the size of one validity bitmap.
func bitmapBytes(rows uint64) uint64 { return (rows + 63) / 64 * 8 }

func (p *Payload) parseMaterialized() *fault {
	n := uint64(len(p.Bytes))
	if n < materializeHead {
		return badLength("at least 8 bytes", len(p.Bytes))
	}
	slots := uint64(binary.LittleEndian.Uint32(p.Bytes))
	rows := uint64(binary.LittleEndian.Uint32(p.Bytes[4:]))
	// One slot's values and bitmap are at most 2^35 + 2^29 bytes.
	perSlot := rows*8 + bitmapBytes(rows)
	hi, all := bits.Mul64(slots, perSlot)
	rest := n - materializeHead
	fits, offsets := hi == 0 && rest == all, false
	if hi == 0 && p.Version >= offsetsVersion && rows > 0 && rest >= all && rest-all == rows*8 {
		fits, offsets = true, true
	}
	// Empty slots take no bytes: any number of them would fit.
	if fits && rows == 0 && slots > MaxEmptySlots || fits && slots == 0 && rows > 0 && !offsets {
		fits = false
	}
	if !fits {
		return &fault{kind: wire.KindMalformed, field: "slot_count, row_count", length: int64(n),
			want: "the length that " + wire.Count(int64(slots), "slot") + " of " + wire.Count(int64(rows), "row") + " take",
			got:  wire.Count(int64(n), "byte"),
			message: wire.Count(int64(slots), "slot") + " of " + wire.Count(int64(rows), "row") + " do not make " +
				wire.Count(int64(n), "byte")}
	}
	p.Kind, p.Slots, p.Rows, p.Records, p.HasRowOffsets = PayloadMaterialized, int(slots), int(rows), int(rows), offsets
	return nil
}

// MaxEmptySlots is how many slots a materialised chunk without rows may name.
const MaxEmptySlots = 65536

func (p *Payload) parseHashTable() *fault {
	n := uint64(len(p.Bytes))
	if n < hashTableHead {
		return badLength("at least 24 bytes", len(p.Bytes))
	}
	dir := binary.LittleEndian.Uint64(p.Bytes)
	records := binary.LittleEndian.Uint64(p.Bytes[8:])
	stride := binary.LittleEndian.Uint64(p.Bytes[16:])
	rest := n - hashTableHead
	lie := func(what, want, got string) *fault {
		return &fault{kind: wire.KindMalformed, field: what, length: int64(n), want: want, got: got,
			message: what + " is " + got + ", " + want + " expected"}
	}
	if dir > rest/hashDirSlot {
		return lie("dir_slots", "at most "+wire.Utoa(rest/hashDirSlot), wire.Utoa(dir))
	}
	if dir&(dir-1) != 0 || dir == 0 {
		return lie("dir_slots", "a power of two", wire.Utoa(dir))
	}
	rest -= dir * hashDirSlot
	if records > 0 && stride < minStride {
		return lie("stride", "at least 2 words", wire.Utoa(stride))
	}
	hi, words := bits.Mul64(records, stride)
	if hi != 0 || words > rest/8 || words*8 != rest {
		return lie("record_count", "records of "+wire.Utoa(stride)+" words in "+wire.Utoa(rest)+" bytes", wire.Utoa(records))
	}
	if records == 0 {
		stride = min(stride, minStride)
	}
	p.Kind, p.DirSlots, p.Records, p.Stride = PayloadHashTable, int(dir), int(records), int(stride)
	return nil
}

func (p *Payload) u64(at int) uint64 { return binary.LittleEndian.Uint64(p.Bytes[at:]) }

// KeyOffset is record i of a RESULT_STREAM_CHUNK.
func (p *Payload) KeyOffset(i int) (sortKey, rowOffset uint64) {
	return p.u64(i * KeyOffsetSize), p.u64(i*KeyOffsetSize + 8)
}

// Accumulator is record i of a RESULT_AGGREGATE_CHUNK.
func (p *Payload) Accumulator(i int) (value int64, valid uint64) {
	return int64(p.u64(i * AccumulatorSize)), p.u64(i*AccumulatorSize + 8)
}

// Group is one slot of a RESULT_GROUPED_AGG_CHUNK (reading `group-slot`).
type Group struct {
	Key, Used uint64
	Acc       [GroupAccs]int64
	Valid     [GroupAccs]byte
}

// Group is slot i of a RESULT_GROUPED_AGG_CHUNK.
func (p *Payload) Group(i int) (g Group) {
	at := i * GroupSlotSize
	g.Key, g.Used = p.u64(at), p.u64(at+8)
	for k := range g.Acc {
		g.Acc[k] = int64(p.u64(at + 16 + 8*k))
	}
	copy(g.Valid[:], p.Bytes[at+16+8*GroupAccs:])
	return g
}

func (p *Payload) valueAt(slot, row int) int { return materializeHead + (slot*p.Rows+row)*8 }

func (p *Payload) bitmapAt(slot int) int {
	return materializeHead + p.Slots*p.Rows*8 + slot*int(bitmapBytes(uint64(p.Rows)))
}

// Value is the 8 bytes of a materialised value (reading `materialize-order`).
func (p *Payload) Value(slot, row int) uint64 { return p.u64(p.valueAt(slot, row)) }

// Valid says that a materialised value is one.
func (p *Payload) Valid(slot, row int) bool {
	return p.Bytes[p.bitmapAt(slot)+row/8]>>(row%8)&1 != 0
}

// RowOffset is the row offset of a materialised row, where there are any.
func (p *Payload) RowOffset(row int) uint64 { return p.u64(p.bitmapAt(p.Slots) + row*8) }

// Heartbeat is a ping's or pong's payload.
type Heartbeat struct{ TimestampUS, WorkerID, DataEndOffset uint64 }

// Heartbeat reads a PayloadHeartbeat.
func (p *Payload) Heartbeat() Heartbeat {
	return Heartbeat{p.u64(0), p.u64(8), p.u64(16)}
}

// time is the heartbeat's time in nanoseconds, where that fits.
func (h *Heartbeat) time() (ns int64, ok bool) {
	if h.TimestampUS > (1<<63-1)/1000 {
		return 0, false
	}
	return int64(h.TimestampUS) * 1000, true
}

// SegmentFetch is a SEGMENT_FETCH_REQ.
type SegmentFetch struct {
	From, Len   uint64
	Snapshot    uint64
	HasSnapshot bool
}

// SegmentFetch reads a PayloadSegmentFetch.
func (p *Payload) SegmentFetch() SegmentFetch {
	f := SegmentFetch{From: p.u64(0), Len: p.u64(8)}
	if len(p.Bytes) >= SegmentFetchSnapshotSize {
		f.Snapshot, f.HasSnapshot = p.u64(16), true
	}
	return f
}

// Segment is a SEGMENT_STREAM_CHUNK.
type Segment struct {
	From        uint64
	Snapshot    uint64
	HasSnapshot bool
	Data        []byte
}

// HasSnapshotWord says that under the reading `segment-snapshot` a word follows
// a PayloadSegment's `from`: from version 19 on, where there is room for it.
func (p *Payload) HasSnapshotWord() bool {
	return p.Version >= snapshotVersion && len(p.Bytes) >= 16
}

// Segment reads a PayloadSegment; snapshot says whether a word follows `from`,
// which only HasSnapshotWord allows.
func (p *Payload) Segment(snapshot bool) Segment {
	s := Segment{From: p.u64(0), Data: p.Bytes[8:]}
	if snapshot {
		s.Snapshot, s.HasSnapshot, s.Data = p.u64(8), true, p.Bytes[16:]
	}
	return s
}

// TargetTableID is the first word of a program's constants.
func (p *Payload) TargetTableID() uint64 { return p.u64(p.Words * WordSize) }

// ResultRows is how many rows of a result the payload carries: rows, used
// groups, or one row of accumulators. ok is false for what is no result.
func (p *Payload) ResultRows() (rows int, ok bool) {
	switch p.Kind {
	case PayloadKeyOffsets, PayloadMaterialized:
		return p.Records, true
	case PayloadAggregates:
		return min(p.Records, 1), true
	case PayloadGroups:
		for i := range p.Records {
			if p.u64(i*GroupSlotSize+8) != 0 {
				rows++
			}
		}
		return rows, true
	}
	return 0, false
}

// remark looks for what a payload that decodes should not have: too many
// records, counts inside it that lie, a reading that does not hold. It gives
// the first.
func (p *Payload) remark() *fault {
	switch p.Kind {
	case PayloadKeyOffsets:
		return p.tooMany(MaxKeyOffsets)
	case PayloadAggregates:
		for i := range p.Records {
			if v := p.u64(i*AccumulatorSize + 8); v > 1 {
				return p.notHeld(ReadingValidWord, i*AccumulatorSize+8, 8, "0 or 1", wire.Utoa(v), "a valid word that is neither 0 nor 1")
			}
		}
	case PayloadGroups:
		if f := p.tooMany(MaxGroupSlots); f != nil {
			return f
		}
		return p.remarkGroups()
	case PayloadMaterialized:
		return p.remarkMaterialized()
	case PayloadHashTable:
		return p.remarkHashTable()
	case PayloadSegment:
		if p.Version >= snapshotVersion && !p.HasSnapshotWord() {
			return p.notHeld(ReadingSegmentSnapshot, 0, len(p.Bytes), "at least 16 bytes", wire.Itoa(int64(len(p.Bytes))),
				"too short for a snapshot word; the bytes behind from are taken as the segment's")
		}
	}
	return nil
}

func (p *Payload) tooMany(most int) *fault {
	if p.Records <= most {
		return nil
	}
	return &fault{kind: KindCount, field: "constants_len", length: int64(len(p.Bytes)), want: "at most " + wire.Itoa(int64(most)),
		got: wire.Itoa(int64(p.Records)), message: wire.Count(int64(p.Records), "record") + ", at most " + wire.Itoa(int64(most)) + " expected"}
}

func (p *Payload) notHeld(reading string, off, length int, want, got, message string) *fault {
	return &fault{kind: KindReading, field: reading, off: int64(off), length: int64(length), want: want, got: got, message: message}
}

func (p *Payload) remarkGroups() *fault {
	for i := range p.Records {
		at := i * GroupSlotSize
		if used := p.u64(at + 8); used > 1 {
			return p.notHeld(ReadingGroupSlot, at+8, 8, "0 or 1", wire.Utoa(used), "a used word that is neither 0 nor 1")
		}
		// The last 16 bytes: four valid bytes of 0 or 1, then zeros.
		tail := at + GroupSlotSize - GroupAccs - groupPad
		if p.u64(tail)&^0x01010101 != 0 || p.u64(tail+8) != 0 {
			return p.notHeld(ReadingGroupSlot, tail, 16, "four bytes of 0 or 1, then zeros",
				string(wire.AppendHex(nil, p.Bytes[tail:tail+16])), "the end of a group slot is not valid flags and padding")
		}
	}
	return nil
}

func (p *Payload) remarkMaterialized() *fault {
	used := p.Rows % 64
	if used == 0 {
		return nil
	}
	for slot := range p.Slots {
		at := p.bitmapAt(slot+1) - 8
		if w := p.u64(at); w>>used != 0 {
			return p.notHeld(ReadingMaterializeOrder, at, 8, "zeros behind bit "+wire.Itoa(int64(used)), "0x"+string(wire.AppendHex(nil, p.Bytes[at:at+8])),
				"the padding of a validity bitmap is not zero")
		}
	}
	return nil
}

func (p *Payload) remarkHashTable() *fault {
	var sum uint64
	for i := range p.DirSlots {
		at := hashTableHead + i*hashDirSlot
		v := p.u64(at + 8)
		if v == freeSlot {
			continue
		}
		start, count := v>>32, v&(1<<32-1)
		sum += count
		if start+count > uint64(p.Records) {
			return &fault{kind: KindCount, field: "start, count", off: int64(at + 8), length: 8,
				want: "within " + wire.Count(int64(p.Records), "record"), got: wire.Utoa(start) + " + " + wire.Utoa(count),
				message: "directory slot " + wire.Itoa(int64(i)) + " reaches past the records"}
		}
	}
	if sum != uint64(p.Records) {
		return p.notHeld(ReadingHashDirectory, 0, hashTableHead, wire.Count(int64(p.Records), "record"), wire.Utoa(sum),
			"the directory's counts do not add up to record_count")
	}
	return nil
}

// summary is what a list says of a payload.
func (p *Payload) summary(h *Header) string {
	switch p.Kind {
	case PayloadProgram:
		return wire.Count(int64(p.Words), "instruction") + ", table " + wire.Utoa(p.TargetTableID())
	case PayloadKeyOffsets:
		return wire.Count(int64(p.Records), "row")
	case PayloadMaterialized:
		return wire.Count(int64(p.Rows), "row") + " of " + wire.Count(int64(p.Slots), "slot")
	case PayloadAggregates:
		return wire.Count(int64(p.Records), "accumulator")
	case PayloadGroups:
		n, _ := p.ResultRows()
		return wire.Count(int64(n), "group")
	case PayloadHashTable:
		return wire.Count(int64(p.Records), "record") + " in " + wire.Count(int64(p.DirSlots), "slot")
	case PayloadJoinOffsets:
		return wire.Count(int64(p.Records), "pair")
	case PayloadHeartbeat:
		hb := p.Heartbeat()
		return "worker " + wire.Utoa(hb.WorkerID) + ", data end " + wire.Utoa(hb.DataEndOffset)
	case PayloadSegmentFetch:
		s := p.SegmentFetch()
		n := wire.Utoa(s.Len) + " bytes"
		if s.Len == 1 {
			n = "1 byte"
		}
		return n + " from " + wire.Utoa(s.From)
	case PayloadSegment:
		s := p.Segment(p.HasSnapshotWord())
		return wire.Count(int64(len(s.Data)), "byte") + " at " + wire.Utoa(s.From)
	}
	if len(p.Bytes) == 0 {
		return ""
	}
	return wire.Count(int64(len(p.Bytes)), "byte") + " of payload"
}
