package capture

// This file is the kinds of findings and the errors that a caller decides by.

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"wiretape/wire"
)

// The kinds of findings about capture files, beside those of package wire.
const (
	// KindMissingFiles: files of a connection are not there.
	KindMissingFiles = "missing-files"
	// KindPruned: files of a connection, or all that there was, are not there,
	// and a journal says that retention deleted them. To who looks after
	// recordings that is no fault; of a rebuild it is what is missing.
	KindPruned = "pruned-files"
	// KindNothingReceived: a connection on which not one byte came.
	KindNothingReceived = "nothing-received"
	// KindNothing: a capture directory in which nothing was ever recorded.
	KindNothing = "nothing-recorded"
	// KindRecording: a recorder is at work at this place, and what it has not
	// written yet is no fault.
	KindRecording = "being-recorded"
	// KindMissingConnection: a journal knows a connection of which no file is
	// there.
	KindMissingConnection = "missing-connection"
	// KindNoEnd: the last file here was closed by rotation; what came behind
	// it is not here.
	KindNoEnd = "no-end"
	// KindTransportCut: the transport was broken off where a frame ends, so that
	// the frames do not tell that something is missing behind them.
	KindTransportCut = "transport-cut"
	// KindShortFile: a file has fewer bytes than its sidecar says.
	KindShortFile = "short-file"
	// KindSurplusBytes: a file has bytes behind those that its sidecar proves.
	KindSurplusBytes = "surplus-bytes"
	// KindHashMismatch: a file's bytes are not those of its sidecar's SHA-256.
	KindHashMismatch = "hash-mismatch"
	// KindTornBytes: bytes that do not fit the checksums of the arrival index.
	KindTornBytes = "torn-bytes"
	// KindChainBroken: a sidecar names another file before this one.
	KindChainBroken = "chain-broken"
	// KindConflict: two files of one connection and number with other bytes.
	KindConflict = "conflicting-files"
	// KindDoubled: a file was given more than once.
	KindDoubled = "doubled-file"
	// KindCounter: a connection's number that leaves no room for others.
	KindCounter = "connection-number"
	// KindForeign: a file that is no part of a capture.
	KindForeign = "foreign-file"
	// KindSidecarMissing: files without their sidecar.
	KindSidecarMissing = "sidecar-missing"
	// KindSidecarInvalid: a sidecar that can't be read as one.
	KindSidecarInvalid = "sidecar-invalid"
	// KindSidecarStale: a sidecar that does not fit the bytes.
	KindSidecarStale = "sidecar-stale"
	// KindNoPlace: a file from the middle of a connection without context.
	KindNoPlace = "no-place"
	// KindDamagedZstd: a compressed file that does not decompress.
	KindDamagedZstd = "damaged-zstd"
	// KindIndex: an arrival index that is cut or does not fit the bytes.
	KindIndex = "arrival-index"
	// KindUnsealed: a file that its recorder did not close.
	KindUnsealed = "unsealed-file"
	// KindProtocol: the bytes are of another protocol than the sidecar says.
	KindProtocol = "protocol-mismatch"
	// KindSums: a .sha256 file that is missing or does not fit.
	KindSums = "sums"
	// KindRecovered: a file that its recorder did not close and recovery did.
	KindRecovered = "recovered-file"
	// KindUnreadable: a file that can't be read.
	KindUnreadable = "unreadable-file"
)

// NotCaptureError says that an input is neither a capture nor a stream that
// this program can read, and what it is instead.
type NotCaptureError struct {
	Path string
	// What it is: "a JPEG image", "an empty file".
	What string
	// Readable: it is of no kind that is known, and may be a stream all the same:
	// with a protocol named, or as raw bytes, it can be read.
	Readable bool
}

// Error says it in one line.
func (e *NotCaptureError) Error() string {
	return wire.SafeText(e.Path, 0) + " is " + e.What
}

// WrongUsage makes it the caller's mistake, by which nothing was touched.
func (*NotCaptureError) WrongUsage() {}

// NoPlaceError says that a file is from the middle of a connection and nothing
// tells from where: neither a first file nor a sidecar.
type NoPlaceError struct {
	Connection string
	// File is the first file there is.
	File string
}

// Error says it in one line.
func (e *NoPlaceError) Error() string {
	return e.File + " is from the middle of a connection and has no place: its sidecar " + stemOf(e.File) + extSidecar +
		" and the files before it are missing"
}

// LockedError says that another recorder has the directory.
type LockedError struct {
	Dir string
	// Holder is what the holder wrote about itself.
	Holder string
}

// Error says it in one line, with the holder.
func (e *LockedError) Error() string {
	s := "the capture directory " + wire.SafeText(e.Dir, 0) + " is in use"
	if e.Holder != "" {
		s += " by " + wire.SafeText(e.Holder, 200)
	}
	return s
}

// FileError is an operation on a capture file that failed, with its place.
type FileError struct {
	// Op is what was being done: "write", "sync", "rename", "create" and so on.
	Op string
	// File is the file's path.
	File string
	// Offset in the connection of the first byte concerned, -1 where a folder
	// or a name is meant and no byte.
	Offset int64
	Err    error
}

// noOffset is the Offset of what concerns a folder, or a name, and no byte.
const noOffset = -1

// Error has all of it, and the errno where there is one.
func (e *FileError) Error() string {
	s := e.Op + " " + e.File
	if e.Offset != noOffset {
		s += " at offset " + wire.Itoa(e.Offset)
	}
	s += ": " + cause(e.Err)
	var no syscall.Errno
	if errors.As(e.Err, &no) {
		s += " (errno " + wire.Itoa(int64(no)) + ")"
	}
	return s
}

// Unwrap gives Err.
func (e *FileError) Unwrap() error { return e.Err }

// DiskFull says that an operation failed for want of space: the disk's, or what
// a quota leaves of it.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// cause is the error without the operation and path that FileError says.
func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return strings.TrimSpace(err.Error())
}
