package unfinished

// This file is the lock of one process on an output's name: a file beside it
// with the mark's text and a line that says who holds it, removed by its holder.
// A lock on a file that has lost its name excludes nobody. So what was locked
// counts only if it has the name still, and the name is removed while the lock
// is held.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"wiretape/internal/vfs"
	"wiretape/wire"
)

// ErrBusy: another process has the same name. The error is a *BusyError.
var ErrBusy = errors.New("is being written by another process")

// BusyError says who has a name.
type BusyError struct {
	Name string
	// Holder is what the lock says of its holder, "" for nothing.
	Holder string
}

// Error says both.
func (e *BusyError) Error() string {
	who := ErrBusy.Error()
	if e.Holder != "" {
		who += " (" + wire.SafeText(e.Holder, maxHolder) + ")"
	}
	return e.Name + " " + who
}

// Is: it is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

const (
	holderPrefix = "held by "
	// maxHolder is the longest line about the holder that a lock has.
	maxHolder = 1 << 10
	// maxTakes is how often a lock is tried for whose name goes away meanwhile:
	// each time another process ended its own work.
	maxTakes = 1000
)

// Lock is the lock of one process on an output's name.
type Lock struct {
	name string
	file *os.File
	// left: an earlier run that was stopped left the file. keep: an empty file
	// was there, and who made it is not known.
	left, keep bool
}

// Take locks a name for as long as its output is worked on; symbolic links are
// followed. It does not matter whether there is something of that name. A
// *BusyError: another process has it.
func Take(name string) (*Lock, error) { return take(resolve(name)) }

func take(name string) (*Lock, error) {
	l := &Lock{name: name}
	for range maxTakes {
		held, err := l.acquire()
		switch {
		case errors.Is(err, vfs.ErrLocked):
			return nil, &BusyError{name, l.holder()}
		case errors.As(err, new(*ForeignError)):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("starting %s: %w", name, err)
		case held:
			return l, nil
		}
	}
	return nil, &BusyError{Name: name}
}

func (l *Lock) path() string { return l.name + Suffix + lockSuffix }

// acquire makes the file or opens the one that is there, and locks it. held is
// false when the name went away meanwhile.
func (l *Lock) acquire() (held bool, err error) {
	path := l.path()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	made := err == nil
	switch {
	case made:
		// At once: who finds it empty can't know whose it is, and keeps it.
		if _, err = f.WriteString(markText); err != nil && vfs.LockOpen(f) == nil {
			err = errors.Join(err, os.Remove(path))
		}
	case errors.Is(err, fs.ErrExist):
		if whose(path) == foreign {
			return false, &ForeignError{path}
		}
		f, err = os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err == nil {
		err = vfs.LockOpen(f)
	}
	if err == nil && !named(f, path) {
		return false, f.Close()
	}
	if err == nil {
		l.file, l.left, l.keep = f, !made, false
		switch whose(path) {
		case foreign:
			err = &ForeignError{path}
		case nobodys:
			l.keep = true
		default:
			err = l.sign()
		}
	}
	if err != nil && f != nil {
		f.Close()
	}
	return err == nil, err
}

// named says that a path leads to an open file.
func named(f *os.File, path string) bool {
	is, err := f.Stat()
	if err != nil {
		return false
	}
	has, err := os.Lstat(path)
	return err == nil && os.SameFile(is, has)
}

// sign says behind the mark's text who holds the lock.
func (l *Lock) sign() error {
	host, _ := os.Hostname()
	line := fmt.Sprintf("%sprocess %d on %.200s, %.200s\n", holderPrefix, os.Getpid(), host, filepath.Base(os.Args[0]))
	if err := l.file.Truncate(int64(len(markText))); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(line), int64(len(markText)))
	return err
}

// holder is what the lock says of who has it.
func (l *Lock) holder() string {
	text, _ := read(l.path())
	line, ok := strings.CutPrefix(text, markText+holderPrefix)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(line, "\n")
}

// read gives the beginning of a file, all of a lock.
func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(len(markText)+len(holderPrefix)+maxHolder)))
	return string(b), errors.Join(err, f.Close())
}

// Whose a lock's file is.
type owner int

const (
	ours owner = iota
	// nobodys: empty. Made just now, or never written to before a crash, or
	// somebody's.
	nobodys
	foreign
)

// whose looks at what has a lock's name; where nothing has it, it is ours to
// make.
func whose(path string) owner {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ours
	case err != nil || !info.Mode().IsRegular():
		return foreign
	case info.Size() == 0:
		return nobodys
	}
	text, err := read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.HasPrefix(text, markText) {
		return ours
	}
	return foreign
}

// Release gives the name back.
func (l *Lock) Release() error {
	var err error
	path := l.path()
	// Who made an empty file since has written the mark to it by now.
	if named(l.file, path) && !(l.keep && whose(path) == nobodys) {
		err = os.Remove(path)
	}
	return errors.Join(err, l.file.Close())
}
