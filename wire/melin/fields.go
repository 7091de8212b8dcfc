package melin

import "wiretape/wire"

// Info is a line of a frame list.
func (d *Decoder) Info(u wire.Unit) wire.Info {
	i := wire.Info{Name: TagName(u.Kind)}
	b := u.Bytes
	switch {
	case u.Type != wire.UnitFrame:
		i.Name = ""
		return i
	case u.Kind == KindEmpty:
		i.Name, i.Summary = "Empty", "length 0"
		return i
	case i.Name == "":
		i.Name, i.Summary = "Unknown", "tag "+hexByte(uint8(u.Kind))
		return i
	case int64(len(b)) < u.Size:
		return i
	}
	text := func(size int, s string) {
		if size > 0 {
			i.Summary = s
		}
	}
	switch u.Kind {
	case TagHandshake:
		v, size := DecodeHandshake(b)
		s := "has " + wire.Utoa(v.LastSequence)
		if v.HasEpoch {
			s += ", epoch " + wire.Utoa(v.Epoch)
		}
		if v.HasVersion {
			s += ", protocol " + wire.Utoa(uint64(v.Version))
		}
		text(size, s)
	case TagAck:
		v, size := DecodeAck(b)
		s := "on disk to " + wire.Utoa(v.Acked)
		if v.HasMemory {
			s += ", in memory to " + wire.Utoa(v.InMemory)
		}
		text(size, s)
	case TagChallengeResponse:
		v, size := DecodeChallengeResponse(b)
		text(size, "key "+hexShort(v.PublicKey[:]))
	case TagStreamStart:
		v, size := DecodeStreamStart(b, d.set.Taken())
		s := "behind " + wire.Utoa(v.StartSequence)
		if v.HasSegment {
			s += ", segment from " + wire.Utoa(v.SegmentStart)
		}
		if v.HasEpoch {
			s += ", epoch " + wire.Utoa(v.Epoch)
		}
		text(size, s)
	case TagSnapshotBegin:
		v, size := DecodeSnapshotBegin(b)
		text(size, wire.Utoa(v.Length)+" bytes at "+wire.Utoa(v.SnapSequence))
	case TagSegmentSeedBegin:
		n, size := DecodeSegmentSeedBegin(b)
		text(size, wire.Utoa(n)+" bytes")
	case TagSnapshotChunk:
		i.Summary = wire.Count(u.Size-HeaderSize, "byte")
	case TagRotate, TagChainCheck:
		v, size := DecodeChainPoint(b)
		text(size, "at "+wire.Utoa(v.Sequence)+", "+hexShort(v.Hash[:]))
	case TagDataBatch:
		v, size := DecodeDataBatch(b)
		text(size, wire.Count(int64(v.Count), "entry")+" to "+wire.Utoa(v.EndSequence))
	case TagHeartbeat:
		v, size := DecodeHeartbeat(b)
		text(size, "at "+wire.Utoa(v.Sequence))
	case TagInputBatch:
		if len(b) < PrefixSize+lenInputBatch {
			return i
		}
		r := SlotsOf(b, d.shape)
		i.Summary = wire.Count(int64(r.Count()), "slot")
		var s Slot
		if r.Next(&s) {
			i.HasTime, i.Time = true, int64(s.Timestamp)
			i.Summary += " from " + wire.Utoa(s.Sequence)
		}
	}
	return i
}

func hexShort(b []byte) string { return string(wire.AppendHex(nil, b[:4])) + "…" }

// fieldList builds the fields of a frame, each behind the one before.
type fieldList struct {
	u   wire.Unit
	fs  []wire.Field
	off int
}

func (l *fieldList) field(name string, n int, t wire.Type) *wire.Field {
	l.fs = append(l.fs, wire.Field{Name: name, Offset: l.u.Offset + int64(l.off), Length: int64(n), Type: t,
		ByteOffset: l.u.Offset + int64(l.off)})
	l.off += n
	return &l.fs[len(l.fs)-1]
}

func (l *fieldList) num(name string, n int) *wire.Field {
	b := l.u.Bytes[l.off:]
	f := l.field(name, n, wire.TypeUint)
	switch n {
	case 1:
		f.Num = uint64(b[0])
	case 2:
		f.Num = uint64(u16(b))
	case 4:
		f.Num = uint64(u32(b))
	default:
		f.Num = u64(b)
	}
	return f
}

func (l *fieldList) hex(name string, n int) *wire.Field { return l.bytes(name, n, wire.TypeHex) }

func (l *fieldList) bytes(name string, n int, t wire.Type) *wire.Field {
	b := l.u.Bytes[l.off : l.off+n : l.off+n]
	f := l.field(name, n, t)
	f.Bytes = b
	return f
}

func (l *fieldList) hash(name string) {
	if f := l.hex(name, HashSize); zeroHash(f.Bytes) {
		f.Note = "none"
	}
}

func (l *fieldList) policy() {
	f := l.num("policy", 1)
	f.Type, f.Note = wire.TypeEnum, policyNote(uint8(f.Num))
}

func (l *fieldList) fault(f wire.Finding, off, n int) *wire.Finding {
	f.Offset, f.Length = l.u.Offset+int64(off), int64(n)
	return &f
}

// Fields decodes the whole frame, its length and tag first.
func (d *Decoder) Fields(u wire.Unit) ([]wire.Field, *wire.Finding) {
	l := &fieldList{u: u, fs: make([]wire.Field, 0, 10)}
	b := u.Bytes
	if u.Type != wire.UnitFrame || len(b) < PrefixSize {
		l.bytes("bytes", len(b), wire.TypeBlob)
		return l.fs, nil
	}
	l.num("length", PrefixSize)
	if u.Kind == KindEmpty {
		f := emptyFrame()
		f.Offset = u.Offset
		return l.fs, f
	}
	if len(b) < HeaderSize {
		return l.fs, l.fault(wire.Finding{Kind: wire.KindMalformed, Message: "the tag is missing"}, PrefixSize, 0)
	}
	tag := l.num("tag", 1)
	tag.Type, tag.Note = wire.TypeEnum, TagName(u.Kind)
	if tag.Note == "" {
		tag.Note = "unknown"
		l.bytes("bytes", len(b)-HeaderSize, wire.TypeBlob)
		return l.fs, l.fault(wire.Finding{Kind: wire.KindUnknownKind, Field: "tag", Got: hexByte(uint8(u.Kind)),
			Message: "a frame with the unknown tag " + hexByte(uint8(u.Kind))}, PrefixSize, 1)
	}
	short := func() ([]wire.Field, *wire.Finding) {
		l.bytes("bytes", len(b)-HeaderSize, wire.TypeBlob)
		return l.fs, l.fault(wire.Finding{Kind: wire.KindMalformed, Field: "length", Got: wire.Count(int64(len(b)-PrefixSize), "byte"),
			Message: "a " + TagName(u.Kind) + " too short for its fields"}, 0, len(b))
	}
	switch u.Kind {
	case TagHandshake:
		v, size := DecodeHandshake(b)
		if size == 0 {
			return short()
		}
		l.num("last_sequence", 8)
		l.hash("chain_hash")
		if v.HasEpoch {
			l.num("epoch", 8)
		}
		if v.HasVersion {
			l.num("protocol_version", 2)
		}
	case TagAck:
		v, size := DecodeAck(b)
		if size == 0 {
			return short()
		}
		l.num("acked_sequence", 8)
		if v.HasMemory {
			l.num("in_memory_sequence", 8)
		}
	case TagChallenge:
		if _, size := DecodeChallenge(b); size == 0 {
			return short()
		}
		l.hex("nonce", 32)
	case TagChallengeResponse:
		if _, size := DecodeChallengeResponse(b); size == 0 {
			return short()
		}
		l.hex("signature", 64)
		l.hex("pubkey", 32)
	case TagStreamStart:
		v, size := DecodeStreamStart(b, d.set.Taken())
		if size == 0 {
			return short()
		}
		l.num("start_sequence", 8)
		if v.First {
			l.num("genesis_len", 4)
			l.bytes("genesis", len(v.Genesis), wire.TypeBlob)
			break
		}
		l.num("segment_start_sequence", 8)
		l.hash("anchor_hash")
		if v.HasEpoch {
			l.num("epoch", 8)
		}
		if v.HasPolicy {
			l.policy()
		}
		if v.HasGenesis {
			l.num("genesis_known", 1)
			f := l.num("genesis_entries", 8)
			if v.GenesisKnown == 0 {
				f.Note = "not known"
			}
		}
	case TagSnapshotBegin:
		if _, size := DecodeSnapshotBegin(b); size == 0 {
			return short()
		}
		l.num("snapshot_len", 8)
		l.num("snap_sequence", 8)
		l.hash("snap_chain_hash")
	case TagSegmentSeedBegin:
		if _, size := DecodeSegmentSeedBegin(b); size == 0 {
			return short()
		}
		l.num("seed_len", 8)
	case TagSnapshotChunk:
		l.bytes("data", len(b)-HeaderSize, wire.TypeBlob)
	case TagSnapshotEnd:
		if _, size := DecodeSnapshotEnd(b); size == 0 {
			return short()
		}
		l.num("crc32c", 4)
	case TagRotate, TagChainCheck:
		if _, size := DecodeChainPoint(b); size == 0 {
			return short()
		}
		l.num("sequence", 8)
		l.hash("hash")
	case TagDataBatch:
		if _, size := DecodeDataBatch(b); size == 0 {
			return short()
		}
		l.num("end_sequence", 8)
		l.hash("hash")
		l.num("count", 4)
		l.bytes("journal", len(b)-l.off, wire.TypeBlob)
	case TagHeartbeat:
		v, size := DecodeHeartbeat(b)
		if size == 0 {
			return short()
		}
		l.num("sequence", 8)
		if v.HasPolicy {
			l.policy()
		}
		if v.HasHash {
			l.hash("hash")
		}
	case TagInputBatch:
		if len(b) < PrefixSize+lenInputBatch {
			return short()
		}
		return d.batchFields(l)
	}
	if rest := len(b) - l.off; rest > 0 {
		at := l.off
		l.bytes("left_over", rest, wire.TypeBlob)
		return l.fs, l.fault(wire.Finding{Kind: KindLeftOver, Want: wire.Count(int64(at)-PrefixSize, "byte"),
			Got:     wire.Count(int64(len(b)-PrefixSize), "byte"),
			Message: wire.Count(int64(rest), "byte") + " left over behind a " + TagName(u.Kind)}, at, rest)
	}
	return l.fs, nil
}

// batchFields are an InputBatch's count and slots. The slots are made as they
// are asked for.
func (d *Decoder) batchFields(l *fieldList) ([]wire.Field, *wire.Finding) {
	u, shape := l.u, d.shape
	l.num("count", 2)
	r := SlotsOf(u.Bytes, shape)
	var s Slot
	for r.Next(&s) {
	}
	end, rest := r.Rest()
	f := l.field("slots", end-l.off, wire.TypeList)
	f.Count = r.Read()
	walk := SlotsOf(u.Bytes, shape)
	f.Make = func(dst []wire.Field, from, n int) []wire.Field {
		if walk.Read() > from {
			walk = SlotsOf(u.Bytes, shape)
		}
		var s Slot
		for walk.Read() < from {
			if !walk.Next(&s) {
				return dst
			}
		}
		for ; n > 0 && walk.Next(&s); n-- {
			dst = append(dst, slotField(u, s, shape))
		}
		return dst
	}
	if rest > 0 {
		l.bytes("left_over", rest, wire.TypeBlob)
	}
	if fault := r.Fault(); fault != nil {
		fault.Offset += u.Offset
		return l.fs, fault
	}
	return l.fs, nil
}

// slotField is one slot, named by its event.
func slotField(u wire.Unit, s Slot, shape Shape) wire.Field {
	name := EventName(s.Event)
	if name == "" {
		name = "event " + hexByte(s.Event)
	}
	f := wire.Field{Name: name, Offset: u.Offset + int64(s.Offset), Length: int64(len(s.Raw)), Type: wire.TypeRecord,
		Note: name, ByteOffset: u.Offset + int64(s.Offset)}
	f.Count = slotFieldCount(s, shape)
	f.Make = func(dst []wire.Field, from, n int) []wire.Field {
		all := slotFields(u, s, shape)
		return append(dst, all[from:from+n]...)
	}
	return f
}

// slotFieldCount is how many fields slotFields makes.
func slotFieldCount(s Slot, shape Shape) int {
	n := 5 // length, sequence, timestamp_ns, key_hash, event_tag
	if shape != ShapePlain {
		n++ // request_seq or crc32c
	}
	switch {
	case s.Event == EventAckPolicyChange && len(s.Payload) == 2:
		n += 2
	case len(s.Payload) > 0:
		n++
	}
	return n
}

func slotFields(u wire.Unit, s Slot, shape Shape) []wire.Field {
	l := &fieldList{u: u, fs: make([]wire.Field, 0, 9), off: s.Offset}
	l.num("length", 2)
	l.num("sequence", 8)
	l.num("timestamp_ns", 8).Type = wire.TypeTime
	l.num("key_hash", 8)
	if shape == ShapeRequest {
		l.num("request_seq", 8)
	}
	tag := l.num("event_tag", 1)
	tag.Type, tag.Note = wire.TypeEnum, EventName(s.Event)
	switch n := len(s.Payload); {
	case s.Event == EventTick && n == 8:
		l.num("now_ns", 8).Type = wire.TypeTime
	case s.Event == EventEpochBump && n == 8:
		l.num("epoch", 8)
	case s.Event == EventAckPolicyChange && n == 2:
		l.policy()
		f := l.num("flags", 1)
		if f.Num&1 != 0 {
			f.Note = "unwitnessed"
		}
	case n > 0:
		l.bytes("payload", n, wire.TypeBlob)
	}
	if shape == ShapeCRC {
		f := l.num("crc32c", SlotCRCSize)
		if !s.CRCValid() {
			f.Note = "wrong: the bytes have " + wire.Utoa(uint64(SlotCRC(s.Raw[:len(s.Raw)-SlotCRCSize])))
		}
	}
	return l.fs
}
