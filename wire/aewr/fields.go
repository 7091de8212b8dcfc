package aewr

import (
	"encoding/binary"
	"math"
	"strconv"

	"wiretape/wire"
)

// Fields gives the header's fields and then the payload's. A payload that does
// not decode, or whose layout is not public, is `instructions` and `constants`,
// as far as there are any.
func (d *Decoder) Fields(u wire.Unit) ([]wire.Field, *wire.Finding) {
	if u.Type == wire.UnitJunk {
		return []wire.Field{{Name: "bytes", Offset: u.Offset, Length: u.Size, Type: wire.TypeBlob, Bytes: u.Bytes, ByteOffset: u.Offset}}, nil
	}
	h, ok := ParseHeader(u.Bytes)
	if !ok {
		f := wire.Cut(u.Offset, int64(len(u.Bytes)), HeaderSize, "frame")
		return nil, &f
	}
	fields := headerFields(u, &h)
	body := view{b: u.Bytes[HeaderSize:], off: u.Offset + HeaderSize}
	if int64(len(u.Bytes)) < u.Size {
		f := wire.Cut(u.Offset, int64(len(u.Bytes)), u.Size, "frame")
		return append(fields, body.blob("payload", 0, len(body.b), "cut")), &f
	}
	var p Payload
	f := p.parse(&h, body.b)
	fields = body.payload(fields, &p)
	if f == nil {
		return fields, nil
	}
	finding := f.finding(u.Offset, &h)
	return fields, &finding
}

// view makes fields of bytes that start at an offset in the connection.
type view struct {
	b   []byte
	off int64
}

func (v view) num(name string, at, size int, t wire.Type, n uint64, note string) wire.Field {
	return wire.Field{Name: name, Offset: v.off + int64(at), Length: int64(size), Type: t, Num: n, Note: note}
}

func (v view) u64(name string, at int) wire.Field {
	return v.num(name, at, 8, wire.TypeUint, binary.LittleEndian.Uint64(v.b[at:]), "")
}

// word is 8 bytes whose type the frame does not say: a signed number, with the
// other way to read it beside.
func (v view) word(name string, at int) wire.Field {
	n := binary.LittleEndian.Uint64(v.b[at:])
	return v.num(name, at, 8, wire.TypeInt, n, floatNote(n))
}

func (v view) hex(name string, at, size int, note string) wire.Field {
	return wire.Field{Name: name, Offset: v.off + int64(at), Length: int64(size), Type: wire.TypeHex,
		Bytes: v.b[at : at+size], ByteOffset: v.off + int64(at), Note: note}
}

func (v view) blob(name string, at, size int, note string) wire.Field {
	f := v.hex(name, at, size, note)
	f.Type = wire.TypeBlob
	return f
}

// list is count equally long children from at on; child makes the one at a
// place.
func (v view) list(name string, at, size, count int, child func(at, i int) wire.Field) wire.Field {
	return wire.Field{Name: name, Offset: v.off + int64(at), Length: int64(size) * int64(count), Type: wire.TypeList, Count: count,
		Make: func(dst []wire.Field, from, n int) []wire.Field {
			for i := from; i < from+n; i++ {
				dst = append(dst, child(at+i*size, i))
			}
			return dst
		}}
}

// records is a list of records whose fields field appends.
func (v view) records(name string, at, size, count, fields int, field func(dst []wire.Field, at int) []wire.Field) wire.Field {
	return v.list(name, at, size, count, func(at, i int) wire.Field {
		return wire.Field{Name: wire.Itoa(int64(i)), Offset: v.off + int64(at), Length: int64(size), Type: wire.TypeRecord, Count: fields,
			Make: func(dst []wire.Field, from, n int) []wire.Field {
				return append(dst, field(nil, at)[from:from+n]...)
			}}
	})
}

// floatNote reads 8 bytes as a float64 where they look like one: no small
// integer has an exponent in this span.
func floatNote(n uint64) string {
	const span = 128 // 2^±128 is beyond any measured quantity
	if e := int(n >> 52 & 0x7ff); e < 1023-span || e > 1023+span {
		return ""
	}
	return "as a float " + strconv.FormatFloat(math.Float64frombits(n), 'g', -1, 64)
}

func headerFields(u wire.Unit, h *Header) []wire.Field {
	v := view{b: u.Bytes, off: u.Offset}
	sum := Checksum(u.Bytes)
	checked := "matches"
	if sum != h.HeaderChecksum {
		checked = "does not match, " + hex32(sum) + " expected"
	}
	version := ""
	if !h.VersionKnown() {
		version = "not known"
	}
	name := TypeName(h.MessageType)
	switch {
	case name == "":
		name = "not known"
	case !h.TypeKnown():
		name += ", since version " + wire.Itoa(int64(TypeSince(h.MessageType)))
	}
	tenant := ""
	switch {
	case h.Version < tenantVersion:
		tenant = "reserved in this version"
	case h.RawTenantID == 0:
		tenant = "the system tenant"
	}
	return append(make([]wire.Field, 0, 18),
		wire.Field{Name: "magic", Offset: u.Offset, Length: int64(len(Magic)), Type: wire.TypeText, Bytes: u.Bytes[:len(Magic)], ByteOffset: u.Offset},
		v.num("version", offVersion, 2, wire.TypeUint, uint64(h.Version), version),
		v.num("message_type", offMessageType, 2, wire.TypeEnum, uint64(h.MessageType), name),
		v.u64("target_cluster_hash", offClusterHash),
		v.num("instruction_count", offInstructionCount, 4, wire.TypeUint, uint64(h.InstructionCount), ""),
		v.num("constants_len", offConstantsLen, 4, wire.TypeUint, uint64(h.ConstantsLen), ""),
		v.num("header_checksum", offChecksum, 4, wire.TypeUint, uint64(h.HeaderChecksum), checked),
		v.num("pad", offPad, 4, wire.TypeUint, uint64(h.Pad), ""),
		v.u64("manifest_epoch", offEpoch),
		v.u64("txn_id", offTxnID),
		v.u64("container_id", offContainerID),
		v.num("tenant_id", offTenantID, 8, wire.TypeUint, h.RawTenantID, tenant),
	)
}

// payload appends the payload's fields.
func (v view) payload(dst []wire.Field, p *Payload) []wire.Field {
	switch p.Kind {
	case PayloadProgram:
		pool := p.Words * WordSize
		dst = append(dst, v.instructions(p.Words), v.u64("target_table_id", pool))
		return append(dst, v.blob("constants", pool+8, len(v.b)-pool-8, "words of later versions have no public place"))
	case PayloadKeyOffsets:
		return append(dst, v.records("records", 0, KeyOffsetSize, p.Records, 2, func(dst []wire.Field, at int) []wire.Field {
			return append(dst, v.u64("sort_key", at), v.u64("row_offset", at+8))
		}))
	case PayloadAggregates:
		return append(dst, v.records("accumulators", 0, AccumulatorSize, p.Records, 2, func(dst []wire.Field, at int) []wire.Field {
			return append(dst, v.word("value", at), v.u64("valid", at+8))
		}))
	case PayloadGroups:
		return append(dst, v.records("groups", 0, GroupSlotSize, p.Records, 5, v.group))
	case PayloadJoinOffsets:
		return append(dst, v.records("records", 0, JoinOffsetSize, p.Records, 2, func(dst []wire.Field, at int) []wire.Field {
			return append(dst, v.u64("offset_a", at), v.u64("offset_b", at+8))
		}))
	case PayloadHeartbeat:
		hb := p.Heartbeat()
		stamp := v.u64("timestamp_us", 0)
		if ns, ok := hb.time(); ok && ns != 0 {
			stamp.Note = "microseconds, " + wire.Itoa(ns) + " ns since 1970 if they count from there"
		}
		return append(dst, stamp, v.u64("worker_id", 8), v.u64("data_end_offset", 16))
	case PayloadSegmentFetch:
		dst = append(dst, v.u64("from", 0), v.u64("len", 8))
		if p.SegmentFetch().HasSnapshot {
			dst = append(dst, v.u64("snapshot", 16))
		}
		return dst
	case PayloadSegment:
		dst = append(dst, v.u64("from", 0))
		if !p.HasSnapshotWord() {
			return append(dst, v.blob("bytes", 8, len(v.b)-8, ""))
		}
		word := v.u64("snapshot", 8)
		word.Note = "reading " + ReadingSegmentSnapshot
		return append(dst, word, v.blob("bytes", 16, len(v.b)-16, ""))
	case PayloadMaterialized:
		return v.materialized(dst, p)
	case PayloadHashTable:
		return v.hashTable(dst, p)
	}
	words := p.Words * WordSize
	if p.Words > 0 {
		dst = append(dst, v.instructions(p.Words))
	}
	if words < len(v.b) {
		dst = append(dst, v.blob("constants", words, len(v.b)-words, ""))
	}
	return dst
}

func (v view) instructions(words int) wire.Field {
	return v.list("instructions", 0, WordSize, words, func(at, i int) wire.Field {
		return v.hex(wire.Itoa(int64(i)), at, WordSize, "0x"+strconv.FormatUint(binary.LittleEndian.Uint64(v.b[at:]), 16))
	})
}

func (v view) group(dst []wire.Field, at int) []wire.Field {
	valid := at + 16 + 8*GroupAccs
	return append(dst, v.u64("key", at), v.u64("used", at+8),
		v.list("acc", at+16, 8, GroupAccs, func(at, i int) wire.Field { return v.word(wire.Itoa(int64(i)), at) }),
		v.list("valid", valid, 1, GroupAccs, func(at, i int) wire.Field {
			return v.num(wire.Itoa(int64(i)), at, 1, wire.TypeUint, uint64(v.b[at]), "")
		}),
		v.hex("pad", valid+GroupAccs, groupPad, "reading "+ReadingGroupSlot))
}

func (v view) materialized(dst []wire.Field, p *Payload) []wire.Field {
	q := *p // the closures below outlive p
	dst = append(dst,
		v.num("slot_count", 0, 4, wire.TypeUint, uint64(q.Slots), ""),
		v.num("row_count", 4, 4, wire.TypeUint, uint64(q.Rows), ""),
		v.list("values", materializeHead, q.Rows*8, q.Slots, func(at, slot int) wire.Field {
			return v.list("slot "+wire.Itoa(int64(slot)), at, 8, q.Rows, func(at, row int) wire.Field {
				f := v.word(wire.Itoa(int64(row)), at)
				if !q.Valid(slot, row) {
					f.Note = "not valid"
				}
				return f
			})
		}),
		v.list("validity", q.bitmapAt(0), int(bitmapBytes(uint64(q.Rows))), q.Slots, func(at, slot int) wire.Field {
			return v.bitmap("slot "+wire.Itoa(int64(slot)), at, q.Rows)
		}))
	if q.HasRowOffsets {
		dst = append(dst, v.list("row_offsets", q.bitmapAt(q.Slots), 8, q.Rows, func(at, row int) wire.Field {
			return v.u64(wire.Itoa(int64(row)), at)
		}))
	}
	return dst
}

// bitsShown is how many bits of a bitmap are written out beside it.
const bitsShown = 64

// bitmap is a validity bitmap, least significant bit first: a list of truths.
// Every child's place is the byte that its bit lies in.
func (v view) bitmap(name string, at, rows int) wire.Field {
	bit := func(i int) uint64 { return uint64(v.b[at+i/8] >> (i % 8) & 1) }
	var valid uint64
	for i := range rows {
		valid += bit(i)
	}
	note := make([]byte, 0, 2*bitsShown)
	note = strconv.AppendUint(note, valid, 10)
	note = append(note, " of "...)
	note = strconv.AppendInt(note, int64(rows), 10)
	note = append(note, " valid: "...)
	for i := range min(rows, bitsShown) {
		note = append(note, '0'+byte(bit(i)))
	}
	if rows > bitsShown {
		note = append(note, "…"...)
	}
	return wire.Field{Name: name, Offset: v.off + int64(at), Length: int64(bitmapBytes(uint64(rows))), Type: wire.TypeList,
		Count: rows, Note: string(note),
		Make: func(dst []wire.Field, from, n int) []wire.Field {
			for i := from; i < from+n; i++ {
				dst = append(dst, v.num(wire.Itoa(int64(i)), at+i/8, 1, wire.TypeBool, bit(i), "bit "+wire.Itoa(int64(i%8))))
			}
			return dst
		}}
}

func (v view) hashTable(dst []wire.Field, p *Payload) []wire.Field {
	stride := p.Stride
	records := hashTableHead + p.DirSlots*hashDirSlot
	return append(dst, v.u64("dir_slots", 0), v.u64("record_count", 8), v.u64("stride", 16),
		v.records("directory", hashTableHead, hashDirSlot, p.DirSlots, 3, func(dst []wire.Field, at int) []wire.Field {
			w := binary.LittleEndian.Uint64(v.b[at+8:])
			note := ""
			if w == freeSlot {
				note = "free"
			}
			return append(dst, v.u64("composite_key", at),
				v.num("count", at+8, 4, wire.TypeUint, w&(1<<32-1), note),
				v.num("start", at+12, 4, wire.TypeUint, w>>32, note))
		}),
		v.records("records", records, stride*WordSize, p.Records, 3, func(dst []wire.Field, at int) []wire.Field {
			mask := binary.LittleEndian.Uint64(v.b[at+8:])
			return append(dst, v.u64("row_offset", at),
				v.num("valid_mask", at+8, 8, wire.TypeUint, mask, "0b"+strconv.FormatUint(mask, 2)),
				v.list("columns", at+16, WordSize, stride-minStride, func(at, i int) wire.Field {
					f := v.word(wire.Itoa(int64(i)), at)
					if i < 64 && mask>>i&1 == 0 {
						f.Note = "not valid"
					}
					return f
				}))
		}))
}
