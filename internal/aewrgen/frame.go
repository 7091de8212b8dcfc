// Package aewrgen makes faithful AEWR sessions for tests, together with what
// they mean, since no peer that speaks AEWR is public. It is written from the
// specification alone and apart from the decoder: it imports nothing of this
// module, so that a layout misread once is not misread twice in the same way.
package aewrgen

import (
	"encoding/binary"
	"hash/fnv"
)

// Frame is one frame to be sent.
type Frame struct {
	Version, Type         uint16
	Cluster, Epoch        uint64
	Txn, Container        uint64
	Tenant                uint64 // the last word of the header, whatever the version
	Words                 []uint64
	Constants             []byte
	Pad                   uint32
	BreakChecksum         bool
	ClaimWords, ClaimLen  uint32 // what the header says, where Claim is set
	Claim                 bool
	OverwriteMagic        string // instead of AEWR
	ChecksumWithoutTenant bool   // another reading of the checksum's scope
}

var le = binary.LittleEndian

// Append appends the frame as it is on the wire.
func (f Frame) Append(dst []byte) []byte {
	words, constants := uint32(len(f.Words)), uint32(len(f.Constants))
	if f.Claim {
		words, constants = f.ClaimWords, f.ClaimLen
	}
	before := le.AppendUint16([]byte("AEWR"), f.Version)
	before = le.AppendUint16(before, f.Type)
	before = le.AppendUint64(before, f.Cluster)
	before = le.AppendUint32(before, words)
	before = le.AppendUint32(before, constants)
	after := le.AppendUint32(nil, f.Pad)
	for _, w := range []uint64{f.Epoch, f.Txn, f.Container, f.Tenant} {
		after = le.AppendUint64(after, w)
	}
	hash := fnv.New32a()
	hash.Write(before)
	hash.Write(make([]byte, 4))
	if f.ChecksumWithoutTenant {
		hash.Write(after[:len(after)-8])
	} else {
		hash.Write(after)
	}
	sum := hash.Sum32()
	if f.BreakChecksum {
		sum ^= 0x5a5a
	}
	if f.OverwriteMagic != "" {
		copy(before, f.OverwriteMagic)
	}
	dst = append(dst, before...)
	dst = le.AppendUint32(dst, sum)
	dst = append(dst, after...)
	for _, w := range f.Words {
		dst = le.AppendUint64(dst, w)
	}
	return append(dst, f.Constants...)
}

// words writes 8-byte words one after the other.
func words(w ...uint64) (b []byte) {
	for _, x := range w {
		b = le.AppendUint64(b, x)
	}
	return b
}

// Cell is one value and whether it is one.
type Cell struct {
	Value int64
	Valid bool
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// KeyOffset is one row of a RESULT_STREAM_CHUNK.
type KeyOffset struct{ SortKey, RowOffset uint64 }

// KeyOffsets is the payload of a RESULT_STREAM_CHUNK.
func KeyOffsets(rows []KeyOffset) (b []byte) {
	for _, r := range rows {
		b = append(b, words(r.SortKey, r.RowOffset)...)
	}
	return b
}

// Aggregates is the payload of a RESULT_AGGREGATE_CHUNK.
func Aggregates(accs []Cell) (b []byte) {
	for _, a := range accs {
		b = append(b, words(uint64(a.Value), flag(a.Valid))...)
	}
	return b
}

// Group is one group of a RESULT_GROUPED_AGG_CHUNK.
type Group struct {
	Key  uint64
	Used bool
	Acc  [4]Cell
}

// Groups is the payload of a RESULT_GROUPED_AGG_CHUNK.
func Groups(groups []Group) (b []byte) {
	for _, g := range groups {
		b = append(b, words(g.Key, flag(g.Used))...)
		for _, a := range g.Acc {
			b = append(b, words(uint64(a.Value))...)
		}
		for _, a := range g.Acc {
			b = append(b, byte(flag(a.Valid)))
		}
		b = append(b, make([]byte, 12)...)
	}
	return b
}

// Materialized is the payload of a RESULT_MATERIALIZE_CHUNK: rows of one cell a
// slot, and each row's offset where offsets are given.
func Materialized(slots int, rows [][]Cell, offsets []uint64) []byte {
	b := le.AppendUint32(nil, uint32(slots))
	b = le.AppendUint32(b, uint32(len(rows)))
	for s := range slots {
		for _, r := range rows {
			b = append(b, words(uint64(r[s].Value))...)
		}
	}
	for s := range slots {
		var set []uint64
		for i, r := range rows {
			if i%64 == 0 {
				set = append(set, 0)
			}
			set[len(set)-1] |= flag(r[s].Valid) << (i % 64)
		}
		b = append(b, words(set...)...)
	}
	return append(b, words(offsets...)...)
}

// HashSlot is one directory slot: Count records from Start on, or free.
type HashSlot struct {
	Key          uint64
	Start, Count uint32
	Free         bool
}

// HashTable is the payload of a HASH_TABLE_LOAD.
func HashTable(dir []HashSlot, stride int, records [][]uint64) []byte {
	b := words(uint64(len(dir)), uint64(len(records)), uint64(stride))
	for _, s := range dir {
		place := uint64(s.Start)<<32 | uint64(s.Count)
		if s.Free {
			place = ^uint64(0)
		}
		b = append(b, words(s.Key, place)...)
	}
	for _, r := range records {
		b = append(b, words(r...)...)
	}
	return b
}

// Heartbeat is the payload of a ping or pong.
func Heartbeat(timestampUS, worker, dataEnd uint64) []byte {
	return words(timestampUS, worker, dataEnd)
}

// SegmentFetch is the payload of a SEGMENT_FETCH_REQ in a version.
func SegmentFetch(version uint16, from, length, snapshot uint64) []byte {
	if version < 19 {
		return words(from, length)
	}
	return words(from, length, snapshot)
}

// Segment is the payload of a SEGMENT_STREAM_CHUNK, with or without the
// snapshot word.
func Segment(word bool, from, snapshot uint64, data []byte) []byte {
	b := words(from)
	if word {
		b = append(b, words(snapshot)...)
	}
	return append(b, data...)
}
