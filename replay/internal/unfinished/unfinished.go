// Package unfinished is a folder that appears whole: made beside its name, by
// one process at a time, and renamed.
package unfinished

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"wiretape/internal/vfs"
)

// Suffix is added to a folder's name while it is unfinished, lockSuffix to that
// for the lock of the process that works on it.
const (
	Suffix     = ".unfinished"
	lockSuffix = ".lock"
)

// ErrExists: the folder's name is taken.
var ErrExists = errors.New("is there already")

// ErrBusy: another process is making the same folder.
var ErrBusy = errors.New("is being made by another process")

// Folder is a folder that is being made.
type Folder struct {
	name string // it will have
	path string // it has
	lock io.Closer
}

// Path is where the folder is until it has its name.
func (u *Folder) Path() string { return u.path }

// Start makes an empty folder for what will be named name. What a run that was
// stopped left of it is removed.
func Start(name string) (*Folder, error) {
	u := &Folder{name: name, path: name + Suffix}
	lock, err := vfs.OS.Lock(u.path+lockSuffix, nil)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s %w", name, ErrBusy)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	u.lock = lock
	// Looked for under the lock: the one who held it may just have made it.
	if _, err := os.Lstat(name); err == nil {
		return nil, errors.Join(fmt.Errorf("%s %w", name, ErrExists), u.unlock())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, u.unlock())
	}
	if err := u.Clear(); err != nil {
		return nil, errors.Join(err, u.unlock())
	}
	return u, nil
}

// Clear empties the folder.
func (u *Folder) Clear() error {
	if err := os.RemoveAll(u.path); err != nil {
		return fmt.Errorf("removing what is left of an earlier run: %w", err)
	}
	return os.Mkdir(u.path, 0o700)
}

// Publish gives the folder its name. What is in it must be synced.
func (u *Folder) Publish() error {
	if err := SyncFolder(u.path); err != nil {
		return err
	}
	if err := os.Rename(u.path, u.name); err != nil {
		return fmt.Errorf("naming %s: %w", u.name, err)
	}
	return errors.Join(SyncFolder(filepath.Dir(u.name)), u.unlock())
}

// Abandon removes the folder.
func (u *Folder) Abandon() error { return errors.Join(os.RemoveAll(u.path), u.unlock()) }

func (u *Folder) unlock() error {
	return errors.Join(os.Remove(u.path+lockSuffix), u.lock.Close())
}

// WriteFile makes a new file and syncs it.
func WriteFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncFolder makes the names in a folder safe, or a file's bytes.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
