package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sort"
	"time"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

const (
	fileMode = 0o600
	dirMode  = 0o700
)

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirMode) }

func (osFS) Create(name string) (File, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open does not wait for the other end of a named pipe.
func (osFS) Open(name string) (File, error) { return osOpen(name, os.O_RDONLY|openNonblock) }

func (osFS) OpenAppend(name string) (File, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_APPEND)
}

func osOpen(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error  { return renameExclusive(from, to) }
func (osFS) Replace(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error      { return os.Remove(name) }

func (osFS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: st.Size(), ModTime: st.ModTime(), Dir: st.IsDir(), Regular: st.Mode().IsRegular(), Device: device(st)}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (osFS) Lock(name string, note []byte) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := LockOpen(f); err != nil {
		f.Close()
		return nil, err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(note, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Who looks whether a lock is held holds it for a moment itself: one that is
// held is tried for so long.
const (
	lockTries = 5
	lockPause = 10 * time.Millisecond
)

// LockOpen takes the lock of an open file, which ends with it. When the lock is
// held the error wraps ErrLocked.
func LockOpen(f *os.File) (err error) {
	for range lockTries {
		if err = lockFile(f); !errors.Is(err, ErrLocked) {
			return err
		}
		time.Sleep(lockPause)
	}
	return err
}

func (osFS) Locked(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return lockHeld(f)
}

func (osFS) Free(dir string) (int64, error) { return freeBytes(dir) }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// linkExclusive is Rename for systems without an exclusive rename: a hard link
// fails when the name exists. A crash between the two steps leaves both names
// for one file, which recovery knows.
func linkExclusive(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
