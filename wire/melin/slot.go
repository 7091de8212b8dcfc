package melin

import (
	"hash/crc32"

	"wiretape/wire"
)

// The tags of events. 0x01 and 0x02 are retired.
const (
	EventTick            = 0x03
	EventEpochBump       = 0x04
	EventAckPolicyChange = 0x05
	EventApp             = 0x80
)

// EventName is the name of an event tag, "" when there is none.
func EventName(tag uint8) string {
	switch tag {
	case EventTick:
		return "Tick"
	case EventEpochBump:
		return "EpochBump"
	case EventAckPolicyChange:
		return "AckPolicyChange"
	case EventApp:
		return "App"
	}
	return ""
}

// maxPolicy is the largest ack policy.
const maxPolicy = 3

// PolicyName is what an ack policy asks for before a write counts, "" when
// there is no such policy.
func PolicyName(policy uint8) string {
	switch policy {
	case 0:
		return "disk"
	case 1:
		return "disk and memory"
	case 2:
		return "two disks"
	case 3:
		return "memory"
	}
	return ""
}

const (
	// slotPrefix is what a slot has before the bytes that its length counts:
	// length, sequence and timestamp_ns.
	slotPrefix = 18
	// slotFixed and slotFixedRequest are the least lengths of a slot.
	slotFixed        = 9
	slotFixedRequest = 17
	// SlotCRCSize is the CRC-32C at a slot's end, where there is one.
	SlotCRCSize = 4
	// MaxSlot is the most bytes of one slot: its length has 16 bits.
	MaxSlot = slotPrefix + 1<<16 - 1 + SlotCRCSize
)

// EntryMagic is what stands before a slot in a journal, and what its CRC and
// the hash chain begin with.
const EntryMagic = "EJ"

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	crcMagic   = crc32.Update(0, castagnoli, []byte(EntryMagic))
)

// Slot is one event of an InputBatch. It aliases the frame.
type Slot struct {
	// Raw is the whole slot as it lies in the frame, its CRC included.
	Raw []byte
	// Offset of Raw in the frame, from its length prefix on.
	Offset     int
	Sequence   uint64
	Timestamp  uint64
	KeyHash    uint64
	RequestSeq uint64 // ShapeRequest only
	Event      uint8
	Payload    []byte
	CRC        uint32 // ShapeCRC only
}

// SlotCRC is the CRC-32C that a slot with these bytes before its CRC has: over
// the entry's magic and then the slot.
func SlotCRC(slot []byte) uint32 { return crc32.Update(crcMagic, castagnoli, slot) }

// CRCValid says whether a ShapeCRC slot's CRC fits its bytes.
func (s *Slot) CRCValid() bool { return SlotCRC(s.Raw[:len(s.Raw)-SlotCRCSize]) == s.CRC }

// Slots walks the slots of an InputBatch without allocating:
//
//	for slots.Next(&slot) { … }
//	if f := slots.Fault(); f != nil { … }
type Slots struct {
	frame []byte
	off   int
	count int // as the frame says
	next  int
	shape Shape
	fault uint8
	// Of the shape: the least length, where the event tag is, and what follows
	// the bytes that the length counts.
	least, event, tail int
}

const (
	slotFine uint8 = iota
	slotShort
	slotCut
)

// SlotsOf starts a walk over a whole InputBatch, length prefix included.
func SlotsOf(frame []byte, shape Shape) Slots {
	if len(frame) < PrefixSize+lenInputBatch {
		return Slots{frame: frame, off: len(frame), fault: slotCut}
	}
	return slotsAt(frame, PrefixSize+lenInputBatch, int(u16(frame[HeaderSize:])), shape)
}

func slotsAt(frame []byte, off, count int, shape Shape) Slots {
	r := Slots{frame: frame, off: off, count: count, shape: shape, least: slotFixed, event: slotPrefix + 8}
	switch shape {
	case ShapeRequest:
		r.least, r.event = slotFixedRequest, slotPrefix+16
	case ShapeCRC:
		r.tail = SlotCRCSize
	}
	return r
}

// Count is how many slots the frame says that it has.
func (r *Slots) Count() int { return r.count }

// Read is how many Next gave.
func (r *Slots) Read() int { return r.next }

// Next reads the next slot; fields that the shape lacks are left as they are. It
// is false behind the last one and at the first
// that does not fit its frame.
func (r *Slots) Next(s *Slot) bool {
	if r.next >= r.count {
		return false
	}
	b := r.frame[r.off:]
	if len(b) < slotPrefix+slotFixed {
		r.fault = slotCut
		return false
	}
	head := (*[slotPrefix + slotFixed]byte)(b) // one bounds check for all
	n := int(u16(head[0:2]))
	size := slotPrefix + n + r.tail
	if n < r.least || size > len(b) {
		r.fault = slotCut
		if n < r.least {
			r.fault = slotShort
		}
		return false
	}
	b = b[:size:size]
	s.Raw = b
	s.Offset = r.off
	s.Sequence = u64(head[2:10])
	s.Timestamp = u64(head[10:18])
	s.KeyHash = u64(head[18:26])
	s.Event = b[r.event]
	s.Payload = b[r.event+1 : slotPrefix+n]
	if r.tail != 0 {
		s.CRC = u32(b[slotPrefix+n:])
	} else if r.shape == ShapeRequest {
		s.RequestSeq = u64(b[26:])
	}
	r.off += size
	r.next++
	return true
}

// Rest is where the walk stands in the frame, and how many bytes lie behind.
func (r *Slots) Rest() (offset, n int) { return r.off, len(r.frame) - r.off }

// Fault is what is wrong with the frame once Next was false: a slot that does
// not fit, or bytes behind the last. Its offset is in the frame. Nil when the
// slots fill the frame exactly.
func (r *Slots) Fault() *wire.Finding {
	rest := len(r.frame) - r.off
	switch {
	case r.fault == slotShort:
		got := u16(r.frame[r.off:])
		return r.malformed("slots["+wire.Itoa(int64(r.next))+"].length", rest,
			"at least "+wire.Itoa(int64(r.least)), wire.Utoa(uint64(got)), "a slot's length is too small for its fields")
	case r.fault == slotCut:
		return r.malformed("slots["+wire.Itoa(int64(r.next))+"]", rest,
			"a whole slot", wire.Count(int64(rest), "byte"), "a slot reaches beyond its frame")
	case rest > 0:
		return r.malformed("slots", rest,
			"no bytes behind the last slot", wire.Count(int64(rest), "byte"), "bytes follow the last slot")
	}
	return nil
}

func (r *Slots) malformed(field string, n int, want, got, message string) *wire.Finding {
	return &wire.Finding{Kind: wire.KindMalformed, Offset: int64(r.off), Length: int64(n), Field: field,
		Want: want, Got: got, Message: message,
		Cost: "what the slots from number " + wire.Itoa(int64(r.next)) + " of " + wire.Itoa(int64(r.count)) + " on hold"}
}

// validEvent says whether the specification has this event with a payload of
// this size.
func validEvent(event uint8, payload []byte) bool {
	switch event {
	case EventApp:
		return true
	case EventTick, EventEpochBump:
		return len(payload) == 8
	case EventAckPolicyChange:
		return len(payload) == 2 && payload[0] <= maxPolicy && payload[1] <= 1
	}
	return false
}

// validSlots says whether every slot of the InputBatch is valid in this shape
// and they fill it exactly; n is how many there are, read how many bytes of the
// frame it took to tell.
func validSlots(frame []byte, shape Shape) (n, read int, ok bool) {
	if len(frame) < PrefixSize+lenInputBatch {
		return 0, len(frame), false
	}
	r := SlotsOf(frame, shape)
	var s Slot
	for r.Next(&s) {
		if !validEvent(s.Event, s.Payload) || shape == ShapeCRC && !s.CRCValid() {
			return r.next, r.off, false
		}
	}
	return r.next, r.off, r.fault == slotFine && r.next == r.count && r.off == len(frame)
}

// ParseSlot reads b, all of it, as one slot.
func ParseSlot(b []byte, shape Shape, s *Slot) bool {
	r := slotsAt(b, 0, 1, shape)
	return r.Next(s) && r.off == len(b)
}
