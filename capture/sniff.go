package capture

// This file says what a file is that is no capture.

import (
	"bytes"
	"encoding/binary"
)

// signatures are what people give by mistake. The first bytes of no known
// protocol are among them.
var signatures = []struct {
	magic string
	what  string
}{
	{"\xff\xd8\xff", "a JPEG image"},
	{"\x89PNG\r\n\x1a\n", "a PNG image"},
	{"GIF8", "a GIF image"},
	{"%PDF-", "a PDF document"},
	{"SQLite format 3\x00", "an SQLite database"},
	{"\xd4\xc3\xb2\xa1", "a pcap packet capture"},
	{"\xa1\xb2\xc3\xd4", "a pcap packet capture"},
	{"\x4d\x3c\xb2\xa1", "a pcap packet capture"},
	{"\xa1\xb2\x3c\x4d", "a pcap packet capture"},
	{"\x0a\x0d\x0d\x0a", "a pcapng packet capture"},
	{"PAR1", "a Parquet file"},
	{"PK\x03\x04", "a zip archive"},
	{"\x1f\x8b", "gzip data: decompress it first"},
	{"BZh", "bzip2 data: decompress it first"},
	{"\xfd7zXZ\x00", "xz data: decompress it first"},
	{"7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{"\x7fELF", "a program (ELF)"},
	{"WTARRIX1", "an arrival index: give the .cap file beside it"},
}

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// isZstd tells zstd data, also where skippable frames come first.
func isZstd(prefix []byte) bool {
	if bytes.HasPrefix(prefix, zstdMagic) {
		return true
	}
	return len(prefix) >= 4 && binary.LittleEndian.Uint32(prefix)&^0xf == 0x184d2a50
}

// sniff says what bytes are that belong to no known protocol, "" when that is
// not known either.
func sniff(prefix []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(prefix, []byte(s.magic)) {
			return s.what
		}
	}
	return ""
}
