package journal

// This file is the journal on a replica's disk (melin.md, The journal on a
// replica's disk).

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"wiretape/wire/melin"
)

const (
	// HeaderSize is a segment file's header, and SectorSize what its fields
	// name: the newest segment is padded to it.
	HeaderSize = 4096
	SectorSize = 4096

	headerMagic = 0x4A4F5552 // "RUOJ"
	// VersionGenesis has the lineage's genesis length, VersionPlain not.
	VersionGenesis = 16
	VersionPlain   = 15

	// LiveName is the newest segment's file, and closed ones have a number
	// behind it.
	LiveName = "j.journal"
	// SnapshotName is the snapshot beside a journal.
	SnapshotName = "j.snapshot"
)

// Header is a segment file's header.
type Header struct {
	Version        uint16
	Start          uint64
	Anchor         [melin.HashSize]byte
	GenesisEntries uint64 // VersionGenesis only
}

// Append appends the header's 4,096 bytes.
func (h *Header) Append(dst []byte) []byte {
	start := len(dst)
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, headerMagic)
	dst = le.AppendUint16(dst, h.Version)
	dst = le.AppendUint16(dst, SectorSize)
	dst = le.AppendUint64(dst, h.Start)
	dst = append(dst, h.Anchor[:]...)
	if h.Version == VersionGenesis {
		dst = le.AppendUint64(dst, h.GenesisEntries)
	}
	dst = le.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, make([]byte, HeaderSize-(len(dst)-start))...)
}

// ParseHeader reads a header; fault is what is wrong with it, "" for nothing.
func ParseHeader(b []byte) (h Header, fault string) {
	le := binary.LittleEndian
	if len(b) < HeaderSize {
		return h, "a header of fewer than 4096 bytes"
	}
	if le.Uint32(b) != headerMagic {
		return h, "no magic number at its start"
	}
	h.Version = le.Uint16(b[4:])
	size := 48
	switch h.Version {
	case VersionPlain:
	case VersionGenesis:
		h.GenesisEntries = le.Uint64(b[48:])
		size += 8
	default:
		return h, "a format version that is not known here"
	}
	h.Start = le.Uint64(b[8:])
	copy(h.Anchor[:], b[16:])
	switch {
	case le.Uint32(b[size:]) != crc32.Checksum(b[:size], castagnoli):
		return h, "its CRC-32C does not fit"
	case le.Uint16(b[6:]) != SectorSize:
		return h, "another sector size than 4096"
	case len(bytes.Trim(b[size+4:HeaderSize], "\x00")) > 0:
		return h, "its rest is not zero"
	}
	return h, ""
}
