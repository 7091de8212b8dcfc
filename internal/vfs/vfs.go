// Package vfs is the seam between what writes capture files and the file
// system: the few operations that a capture needs, each with what it promises
// about a crash, the operating system's implementation ([OS]), and two doubles.
//
// [Mem] keeps files in memory and knows what of them was synced, so that it can
// be cloned as a crash would have left it. [Fault] stands before any FS and
// fails, shortens or counts its operations.
//
// What is assumed of a file system, and nothing more:
//
//   - Bytes of a file survive a crash once File.Sync has returned nil after
//     they were written. Before that any of them may be there, missing or zero.
//   - A name that was created, renamed or removed is so after a crash once
//     SyncDir of its folder has returned nil. Before that each of the changes
//     may have happened or not, by itself.
//   - Rename to a name that does not exist is atomic, and so is Replace.
//   - A failed Sync tells nothing about which bytes are safe, and a later one
//     that succeeds does not mend it.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

// ErrLocked is wrapped by the error of Lock when another process, or another
// holder in this one, has the lock.
var ErrLocked = errors.New("locked")

// FS is a file system. Names are paths with the host's separators. Errors are
// *fs.PathError or *os.LinkError, so that errors.As finds the errno.
type FS interface {
	// MkdirAll makes a folder and its parents, for the owner alone (0700).
	MkdirAll(dir string) error
	// Create makes a new file for the owner alone (0600) and opens it for
	// writing and reading. The name must not exist: fs.ErrExist.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// OpenAppend opens a file to write at its end, and makes it when it does
	// not exist (0600). Each Write goes in whole behind those of others.
	OpenAppend(name string) (File, error)
	// Rename gives a file another name, which must not exist: fs.ErrExist.
	Rename(from, to string) error
	// Replace gives a file another name, taking the place of what has it.
	Replace(from, to string) error
	// Remove removes a file.
	Remove(name string) error
	// List gives the names in a folder, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or folder.
	Stat(name string) (Info, error)
	// SyncDir makes the names of a folder safe.
	SyncDir(dir string) error
	// Lock takes a lock that ends with Close or with the process, however it
	// ends. note is written into the file for others to read. When the lock is
	// held the error wraps ErrLocked and the file is as its holder wrote it.
	Lock(name string, note []byte) (io.Closer, error)
	// Locked says that somebody holds the lock of that name now.
	Locked(name string) (bool, error)
	// Free is how many bytes may still be written to the folder's disk.
	Free(dir string) (int64, error)
}

// Info is what Stat gives.
type Info struct {
	Size    int64
	ModTime time.Time
	Dir     bool
	Regular bool
	// Device is the system's number of what the file lies on, 0 where it gives
	// none. A folder that something is mounted on has that one's.
	Device uint64
}

// File is an open file. The bytes of a failed WriteAt or Write are undefined
// between the offset and its end; a short count comes with an error.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Write appends to a file from OpenAppend.
	io.Writer
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

// ErrTooLarge is wrapped by the error of ReadFile for a file over its limit.
var ErrTooLarge = errors.New("larger than its limit")
