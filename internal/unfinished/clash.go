package unfinished

// This file finds inputs that the output would be written over.

import (
	"os"
	"path/filepath"
	"slices"
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
	var names []target
	for _, end := range companions {
		names = append(names, newTarget(out+end).withAbove())
	}
	in := map[string]string{} // of folders that were looked at: the name that they lie in, or ""
	for _, path := range inputs {
		input := newTarget(path)
		for _, name := range names {
			switch {
			case input.is(name):
				return &ClashError{path, name.name, "is in the way"}
			case slices.ContainsFunc(name.above, input.is):
				return &ClashError{path, name.name, "contains " + name.name}
			}
		}
		for _, dir := range input.folders {
			inside, known := in[dir]
			if !known {
				inside = insideOf(dir, names)
				in[dir] = inside
			}
			if inside != "" {
				return &ClashError{path, inside, "lies in " + inside}
			}
		}
	}
	return nil
}

// target is what a name leads to.
type target struct {
	name, path string
	info       os.FileInfo // nil where nothing is
	// folders are that of the name itself and that of what it leads to, above
	// all folders above them.
	folders []string
	above   []target
}

func newTarget(name string) target {
	t := target{name: name, path: resolve(name)}
	t.info, _ = os.Stat(name)
	t.folders = []string{filepath.Dir(t.path)}
	if own := resolve(filepath.Dir(name)); own != t.folders[0] {
		t.folders = append(t.folders, own)
	}
	return t
}

// withAbove fills in above.
func (t target) withAbove() target {
	for _, dir := range t.folders {
		for {
			info, _ := os.Stat(dir)
			t.above = append(t.above, target{path: dir, info: info})
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
	}
	return t
}

// is says that two names lead to one file, or would.
func (t target) is(o target) bool {
	if t.info != nil && o.info != nil {
		return os.SameFile(t.info, o.info)
	}
	return t.path == o.path
}

// insideOf is the name that a folder is, or lies in; "" for none.
func insideOf(dir string, names []target) string {
	at := target{folders: []string{dir}}.withAbove()
	for _, folder := range at.above {
		for _, name := range names {
			if folder.is(name) {
				return name.name
			}
		}
	}
	return ""
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
