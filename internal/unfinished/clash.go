package unfinished

// This file finds inputs that the output would be written over.

import (
	"os"
	"path/filepath"
)

// ClashError: an input is, contains, or lies in what is written for an output.
type ClashError struct {
	Input, Output string
	how           string
}

// Error says which.
func (e *ClashError) Error() string {
	return "the input " + e.Input + " " + e.how + ": the output is written there"
}

// companions are the names, beside that of an output itself, under which
// anything of it is ever written: its unfinished folder and the lock of that,
// SQLite's files, what is set aside, and an archive that is made anew.
var companions = []string{"", Suffix, Suffix + lockSuffix, "-wal", "-shm", "-journal", ".quarantine", ".rebuild", ".rebuild" + Suffix, ".rebuild" + Suffix + lockSuffix}

// Clash compares what is read with what would be written for out, by what the
// names lead to and not by the names: symbolic links are followed, and files
// compared by device and inode. It gives a *ClashError, or nil.
func Clash(inputs []string, out string) error {
	out = filepath.Clean(out)
	for _, in := range inputs {
		for _, end := range companions {
			name := out + end
			switch {
			case same(in, name):
				return &ClashError{in, name, "is in the way"}
			case within(in, name):
				return &ClashError{in, name, "lies in " + name}
			case within(name, in):
				return &ClashError{in, name, "contains " + name}
			}
		}
	}
	return nil
}

// same says that two names lead to one file, or would.
func same(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(x, y)
	}
	return resolve(a) == resolve(b)
}

// within says that name lies somewhere in the folder dir, directly or by what
// the names lead to.
func within(name, dir string) bool {
	for _, at := range []string{resolve(name), resolve(filepath.Dir(name)) + string(filepath.Separator) + filepath.Base(name)} {
		for {
			up := filepath.Dir(at)
			if up == at {
				break
			}
			if at = up; same(at, dir) {
				return true
			}
		}
	}
	return false
}

// resolve is the path that a name leads to, absolute and without symbolic links;
// what does not exist yet is where it would be.
func resolve(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		if abs, err := filepath.Abs(real); err == nil {
			return abs
		}
	}
	dir := filepath.Dir(name)
	if dir == name {
		return name
	}
	if dir == "." {
		dir, _ = os.Getwd()
	}
	return filepath.Join(resolve(dir), filepath.Base(name))
}
