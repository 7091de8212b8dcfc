package capture

import (
	"path/filepath"
	"strconv"
	"strings"

	"wiretape/wire"
)

// The names in a capture directory (docs/capture-format.md, Names):
//
//	c00000001-5f3a9b2e.00000001.cap
//	└ counter └ unique └ file number
//
// Counter and number have eight digits, so that the order of names is the order
// of connections and files. The counter is one more than the highest that the
// directory ever had, and no clock is in a name. The eight hex digits are drawn
// at random for each connection: they keep the connections of two sites apart
// once their files lie together.
const (
	counterDigits = 8
	uniqueDigits  = 8
	numberDigits  = 8
	// maxCounter is the last connection and the last file of a connection.
	maxCounter = 99_999_999

	// JournalName is the directory's journal.
	JournalName = "journal.jsonl"
	// LockName is the file whose lock the recorder holds.
	LockName = "lock"
	// DestinationName is the mark by which a directory that is shipped to is
	// known again.
	DestinationName = "destination.id"
	// ListName is the list by which the viewer opens the directory from a file
	// server (docs/viewer.md). Nothing here reads it.
	ListName = "list.json"

	extBytes      = ".cap"
	extPartial    = ".cap.partial"
	extCompressed = ".cap.zst"
	extSidecar    = ".json"
	extOpening    = ".json.partial"
	extIndex      = ".idx"
	extSums       = ".sha256"
	// extTemporary ends the name of a side file that is being written, and of
	// any file that is being shipped.
	extTemporary = ".new"
)

// Form is what a file in a capture directory is.
type Form uint8

const (
	// FormForeign: no name of a capture.
	FormForeign Form = iota
	// FormBytes: the bytes of a sealed file.
	FormBytes
	// FormPartial: the bytes of a file that is not sealed.
	FormPartial
	// FormCompressed: the bytes of a sealed file as zstd.
	FormCompressed
	// FormSidecar: the sidecar of a sealed file.
	FormSidecar
	// FormOpening: what is known at the first byte of a file not yet sealed.
	FormOpening
	// FormIndex: an arrival index.
	FormIndex
	// FormSums: SHA-256 sums for coreutils.
	FormSums
	// FormTemporary: a side file that was being written, or any file that was
	// being shipped.
	FormTemporary
	// FormJournal and FormLock: the directory's own.
	FormJournal
	FormLock
	// FormDestination: the mark of a directory that is shipped to.
	FormDestination
	// FormList: the list of a file server.
	FormList
)

// Name is a parsed file name.
type Name struct {
	Form Form
	// Connection is the connection's id and Number the file's, from 1. Both
	// are empty for the directory's own files.
	Connection string
	Number     int64
}

// ParseName reads the base name of a file. What is not exactly a name that a
// recorder gives is FormForeign.
func ParseName(base string) Name {
	switch base {
	case JournalName:
		return Name{Form: FormJournal}
	case LockName:
		return Name{Form: FormLock}
	case DestinationName:
		return Name{Form: FormDestination}
	case ListName:
		return Name{Form: FormList}
	case DestinationName + extTemporary:
		return Name{Form: FormTemporary}
	}
	id, rest, ok := strings.Cut(base, ".")
	if !ok || !validID(id) || len(rest) <= numberDigits {
		return Name{}
	}
	number, ok := digits(rest[:numberDigits])
	if !ok || number < 1 {
		return Name{}
	}
	n := Name{Connection: id, Number: number}
	switch rest[numberDigits:] {
	case extBytes:
		n.Form = FormBytes
	case extPartial:
		n.Form = FormPartial
	case extCompressed:
		n.Form = FormCompressed
	case extSidecar:
		n.Form = FormSidecar
	case extOpening:
		n.Form = FormOpening
	case extIndex:
		n.Form = FormIndex
	case extSums:
		n.Form = FormSums
	case extSidecar + extTemporary, extSums + extTemporary, extOpening + extTemporary, extIndex + extTemporary,
		extBytes + extTemporary, extCompressed + extTemporary:
		n.Form = FormTemporary
	default:
		return Name{}
	}
	return n
}

func validID(id string) bool {
	if len(id) != 1+counterDigits+1+uniqueDigits || id[0] != 'c' || id[1+counterDigits] != '-' {
		return false
	}
	if n, ok := digits(id[1 : 1+counterDigits]); !ok || n < 1 {
		return false
	}
	for _, c := range []byte(id[1+counterDigits+1:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func digits(s string) (n int64, ok bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// connectionID makes an id from a directory's counter and a random number.
func connectionID(counter int64, unique uint32) string {
	hex := strconv.FormatUint(uint64(unique), 16)
	return "c" + padded(counter, counterDigits) + "-" + strings.Repeat("0", uniqueDigits-len(hex)) + hex
}

// counterOf is the counter in an id, 0 when it is none.
func counterOf(id string) int64 {
	if !validID(id) {
		return 0
	}
	n, _ := digits(id[1 : 1+counterDigits])
	return n
}

func padded(n int64, width int) string {
	s := wire.Itoa(n)
	return strings.Repeat("0", max(width-len(s), 0)) + s
}

// stem is a file's name without its ending.
func stem(connection string, number int64) string {
	return connection + "." + padded(number, numberDigits)
}

// stemOf is the path of a capture file without its ending.
func stemOf(path string) string {
	dir, base := filepath.Split(path)
	n := ParseName(base)
	return dir + stem(n.Connection, n.Number)
}
