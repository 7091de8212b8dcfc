// Package unfinished is output that appears whole: made in a folder beside its
// name, by one process at a time, and renamed. What a run that was stopped left
// there is removed by the next one, but only by its mark: a folder of that name
// that is somebody else's stays as it is.
package unfinished

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Suffix is added to a name for the folder while it is unfinished, lockSuffix to
// that for the lock of the process that works on it, or on the whole output.
const (
	Suffix     = ".unfinished"
	lockSuffix = ".lock"
)

// The mark lies in each unfinished folder, and the lock begins with its text, so
// that they are told from what is not this tool's. It is written before anything
// else.
const (
	markName = ".wiretape-unfinished"
	markText = "wiretape: the unfinished output of a run; the next run to the same name removes it\n"
)

// ErrExists: the output's name is taken. It is an fs.ErrExist.
var ErrExists error = existsError{}

type existsError struct{}

func (existsError) Error() string        { return "is there already" }
func (existsError) Is(target error) bool { return target == fs.ErrExist }

// ForeignError: at a name that the output needs lies what is not this tool's.
type ForeignError struct{ Path string }

// Error names it.
func (e *ForeignError) Error() string {
	return e.Path + " is in the way: nothing says that it is this tool's to remove"
}

// Folder is a folder that is being made.
type Folder struct {
	name string // it will have
	path string // it has
	lock *Lock
	// own: the lock ends with the folder; the holder of another keeps it.
	own bool
}

// Path is where the folder is until it has its name.
func (u *Folder) Path() string { return u.path }

// Start makes an empty folder for what will be named name. What a run that was
// stopped left of it is removed. ErrExists: there is something of that name;
// ErrBusy: another process is at it; a *ForeignError: something else lies where
// the folder would be.
func Start(name string) (*Folder, error) {
	l, err := take(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	u, err := l.Start()
	if err != nil {
		return nil, errors.Join(err, l.Release())
	}
	u.own = true
	return u, nil
}

// Start is the function Start for the name whose lock is held, and goes on being
// held when the folder is published or abandoned.
func (l *Lock) Start() (*Folder, error) {
	u := l.folder()
	// Looked for under the lock: the one who held it may just have made it.
	if _, err := os.Lstat(u.name); err == nil {
		return nil, fmt.Errorf("%s %w", u.name, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := u.remove(); err != nil {
		return nil, err
	}
	if err := u.make(); err != nil {
		return nil, err
	}
	return u, nil
}

// Sweep removes what a run that was stopped left of the folder for name, if
// there is such, and nobody works on it.
func Sweep(name string) error {
	if _, err := os.Lstat(name + Suffix); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(name + Suffix + lockSuffix); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	l, err := take(filepath.Clean(name))
	if err != nil {
		return err
	}
	return errors.Join(l.Sweep(), l.Release())
}

// Sweep removes what a run that was stopped left of the folder for the name
// whose lock is held.
func (l *Lock) Sweep() error { return l.folder().remove() }

func (l *Lock) folder() *Folder { return &Folder{name: l.name, path: l.name + Suffix, lock: l} }

// remove removes what an earlier run left.
func (u *Folder) remove() error {
	info, err := os.Lstat(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &ForeignError{u.path}
	}
	if marked(filepath.Join(u.path, markName)) {
		if err := empty(u.path); err != nil {
			return fmt.Errorf("removing what is left of an earlier run: %w", err)
		}
		return nil
	}
	// It was stopped between making the folder and having marked it: then its lock
	// is there too, and nothing is in the folder but the mark's beginning.
	if u.lock.left && half(u.path) {
		return os.RemoveAll(u.path)
	}
	return &ForeignError{u.path}
}

// half says that nothing is in a folder but what was written of its mark.
func half(path string) bool {
	list, err := os.ReadDir(path)
	if err != nil || len(list) > 1 {
		return false
	}
	if len(list) == 0 {
		return true
	}
	if list[0].Name() != markName || !list[0].Type().IsRegular() {
		return false
	}
	info, err := list[0].Info()
	if err != nil || info.Size() > int64(len(markText)) {
		return false
	}
	b, err := os.ReadFile(filepath.Join(path, markName))
	return err == nil && strings.HasPrefix(markText, string(b))
}

// empty removes a folder, its mark at last.
func empty(path string) error {
	if err := clear(path); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// clear removes all that is in a folder but the mark.
func clear(path string) error {
	list, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Name() == markName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (u *Folder) make() error {
	if err := os.Mkdir(u.path, 0o700); err != nil {
		return fmt.Errorf("starting %s: %w", u.name, err)
	}
	if err := WriteFile(filepath.Join(u.path, markName), []byte(markText)); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", u.name, err), os.RemoveAll(u.path))
	}
	return nil
}

// marked says that a file is the mark.
func marked(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(markText)) {
		return false
	}
	b, err := os.ReadFile(path)
	return err == nil && string(b) == markText
}

// Clear empties the folder.
func (u *Folder) Clear() error { return clear(u.path) }

// Publish gives the folder its name. What is in it must be synced. On an error
// the folder is still to be abandoned.
func (u *Folder) Publish() error {
	if err := SyncFolder(u.path); err != nil {
		return err
	}
	// A rename would take an empty folder's place.
	if _, err := os.Lstat(u.name); err == nil {
		return fmt.Errorf("%s %w", u.name, ErrExists)
	}
	if err := os.Rename(u.path, u.name); err != nil {
		return fmt.Errorf("naming %s: %w", u.name, err)
	}
	// A run that is stopped here leaves the mark in what is whole, where it
	// says nothing any more.
	err := os.Remove(filepath.Join(u.name, markName))
	return errors.Join(err, SyncFolder(u.name), SyncFolder(filepath.Dir(u.name)), u.release())
}

// Abandon removes the folder, if it is still unfinished.
func (u *Folder) Abandon() error {
	if u.lock == nil {
		return nil
	}
	err := empty(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, u.release())
}

func (u *Folder) release() error {
	l := u.lock
	u.lock = nil
	if !u.own {
		return nil
	}
	return l.Release()
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
