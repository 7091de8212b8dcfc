package vfs

import (
	"io"
	"sync"
)

// Op is one operation that a [Fault] sees.
type Op struct {
	// N counts operations from 1, those that only read included.
	N int
	// Kind is the method's name in lower case: "create", "write", "truncate",
	// "sync", "rename", "replace", "remove", "syncdir", "mkdir", "append",
	// "lock", "close", "read", "open", "list", "stat", "free".
	Kind string
	Name string
	// Size is how many bytes are to be written.
	Size int
}

// Changes says that the operation could change the disk.
func (o Op) Changes() bool {
	switch o.Kind {
	case "read", "open", "list", "stat", "free", "close":
		return false
	}
	return true
}

// Verdict is what a Fault does with an operation: nothing for the zero value.
type Verdict struct {
	// Err fails it.
	Err error
	// Short, with an Err, lets that many bytes of a write through first.
	Short int
	// After lets the operation happen and then fails it.
	After bool
}

// Fault stands before a file system and asks Decide about every operation, one
// after the other.
type Fault struct {
	FS     FS
	Decide func(Op) Verdict

	mu sync.Mutex
	n  int
}

// Count is how many operations there were.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *Fault) ask(kind, name string, size int) Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	v := f.Decide(Op{f.n, kind, name, size})
	if v.Err != nil {
		v.Err = pathError(kind, name, v.Err)
	}
	return v
}

// do runs an operation unless it is to fail.
func (f *Fault) do(kind, name string, op func() error) error {
	v := f.ask(kind, name, 0)
	if v.Err != nil && !v.After {
		return v.Err
	}
	if err := op(); err != nil {
		return err
	}
	return v.Err
}

func (f *Fault) file(kind, name string, op func() (File, error)) (File, error) {
	var file File
	err := f.do(kind, name, func() (err error) {
		file, err = op()
		return err
	})
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return &faultFile{file, f, name}, nil
}

// MkdirAll implements [FS].
func (f *Fault) MkdirAll(dir string) error {
	return f.do("mkdir", dir, func() error { return f.FS.MkdirAll(dir) })
}

// Create implements [FS].
func (f *Fault) Create(name string) (File, error) {
	return f.file("create", name, func() (File, error) { return f.FS.Create(name) })
}

// Open implements [FS].
func (f *Fault) Open(name string) (File, error) {
	return f.file("open", name, func() (File, error) { return f.FS.Open(name) })
}

// OpenAppend implements [FS].
func (f *Fault) OpenAppend(name string) (File, error) {
	return f.file("append", name, func() (File, error) { return f.FS.OpenAppend(name) })
}

// Rename implements [FS].
func (f *Fault) Rename(from, to string) error {
	return f.do("rename", from, func() error { return f.FS.Rename(from, to) })
}

// Replace implements [FS].
func (f *Fault) Replace(from, to string) error {
	return f.do("replace", from, func() error { return f.FS.Replace(from, to) })
}

// Remove implements [FS].
func (f *Fault) Remove(name string) error {
	return f.do("remove", name, func() error { return f.FS.Remove(name) })
}

// List implements [FS].
func (f *Fault) List(dir string) (names []string, err error) {
	err = f.do("list", dir, func() (err error) {
		names, err = f.FS.List(dir)
		return err
	})
	return names, err
}

// Stat implements [FS].
func (f *Fault) Stat(name string) (info Info, err error) {
	err = f.do("stat", name, func() (err error) {
		info, err = f.FS.Stat(name)
		return err
	})
	return info, err
}

// SyncDir implements [FS].
func (f *Fault) SyncDir(dir string) error {
	return f.do("syncdir", dir, func() error { return f.FS.SyncDir(dir) })
}

// Lock implements [FS].
func (f *Fault) Lock(name string, note []byte) (l io.Closer, err error) {
	err = f.do("lock", name, func() (err error) {
		l, err = f.FS.Lock(name, note)
		return err
	})
	if err != nil && l != nil {
		l.Close()
		l = nil
	}
	return l, err
}

// Locked implements [FS].
func (f *Fault) Locked(name string) (held bool, err error) {
	err = f.do("locked", name, func() (err error) {
		held, err = f.FS.Locked(name)
		return err
	})
	return held, err
}

// Free implements [FS].
func (f *Fault) Free(dir string) (n int64, err error) {
	err = f.do("free", dir, func() (err error) {
		n, err = f.FS.Free(dir)
		return err
	})
	return n, err
}

type faultFile struct {
	File
	f    *Fault
	name string
}

func (x *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	v := x.f.ask("read", x.name, len(p))
	if v.Err != nil {
		return 0, v.Err
	}
	return x.File.ReadAt(p, off)
}

func (x *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return x.write(p, func(p []byte) (int, error) { return x.File.WriteAt(p, off) })
}

func (x *faultFile) Write(p []byte) (int, error) { return x.write(p, x.File.Write) }

func (x *faultFile) write(p []byte, op func([]byte) (int, error)) (int, error) {
	v := x.f.ask("write", x.name, len(p))
	if v.Err == nil {
		return op(p)
	}
	short := min(v.Short, len(p))
	if v.After {
		short = len(p)
	}
	if short == 0 {
		return 0, v.Err
	}
	n, err := op(p[:short])
	if err != nil {
		return n, err
	}
	return n, v.Err
}

func (x *faultFile) Truncate(size int64) error {
	return x.f.do("truncate", x.name, func() error { return x.File.Truncate(size) })
}

func (x *faultFile) Sync() error { return x.f.do("sync", x.name, x.File.Sync) }

// Close always closes, so that a double never leaks, and then fails if told.
func (x *faultFile) Close() error {
	v := x.f.ask("close", x.name, 0)
	if err := x.File.Close(); err != nil {
		return err
	}
	return v.Err
}
