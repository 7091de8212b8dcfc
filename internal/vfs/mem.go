package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what of it was synced. Its zero
// value is not usable: NewMem. It is safe for use by several goroutines.
type Mem struct {
	mu sync.Mutex
	// dirs are the folders, each true once its name is safe.
	dirs  map[string]bool
	names map[string]*node
	// safe is names as of the last SyncDir of each folder, and pending what was
	// done to them since, in order.
	safe    map[string]*node
	pending []change
	locks   map[string]bool
	now     time.Time
	free    int64
}

// node is a file's content, whatever names it has.
type node struct {
	data []byte
	// synced is data as of the last Sync, and dirty the first byte that may
	// differ since.
	synced []byte
	dirty  int64
	mtime  time.Time
}

// change is one operation on names: from each name to what it then means.
type change struct {
	dir string
	set map[string]*node
}

// NewMem is an empty file system with plenty of free space.
func NewMem() *Mem {
	return &Mem{dirs: map[string]bool{"/": true, ".": true}, names: map[string]*node{}, safe: map[string]*node{},
		locks: map[string]bool{}, now: time.Unix(1_700_000_000, 0), free: 1 << 40}
}

// Crash is what of the unsynced survives a crash.
type Crash uint8

const (
	// CrashLoseAll: nothing that was not synced, names included.
	CrashLoseAll Crash = iota
	// CrashKeepAll: everything, as after kill -9.
	CrashKeepAll
	// CrashZeros: all names and lengths, but zeros for unsynced bytes.
	CrashZeros
	// CrashNamesOnly: all names, no unsynced bytes.
	CrashNamesOnly
	// CrashBytesOnly: all bytes, no unsynced names.
	CrashBytesOnly
	// CrashMixed: each name by itself, and of each file's unsynced bytes each
	// sector by itself: there, zero, or cut off with all behind it.
	CrashMixed
)

// Crashes are all of them.
var Crashes = []Crash{CrashLoseAll, CrashKeepAll, CrashZeros, CrashNamesOnly, CrashBytesOnly, CrashMixed}

// String names it in the messages of tests.
func (c Crash) String() string {
	return [...]string{"lose-all", "keep-all", "zeros", "names-only", "bytes-only", "mixed"}[c]
}

// sector is what a disk writes or does not write as a whole.
const sector = 512

// CrashClone is the file system as a crash now would leave it. All locks are
// free in it. seed decides what CrashMixed leaves to chance.
func (m *Mem) CrashClone(how Crash, seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 11))
	out := NewMem()
	out.now, out.free = m.now, m.free
	for d, safe := range m.dirs {
		if safe || how == CrashKeepAll || how == CrashZeros || how == CrashNamesOnly {
			out.dirs[d] = true
		}
	}
	names := map[string]*node{}
	for n, f := range m.safe {
		names[n] = f
	}
	for _, c := range m.pending {
		if how == CrashLoseAll || how == CrashBytesOnly || how == CrashMixed && rng.IntN(2) == 0 {
			continue
		}
		for n, f := range c.set {
			if f == nil {
				delete(names, n)
			} else {
				names[n] = f
			}
		}
	}
	// In order of name, so that a seed always gives the same.
	var order []string
	for n := range names {
		if out.has(filepath.Dir(n)) {
			order = append(order, n)
		}
	}
	sort.Strings(order)
	clones := map[*node]*node{}
	for _, n := range order {
		f := names[n]
		c := clones[f]
		if c == nil {
			c = f.crash(how, rng)
			clones[f] = c
		}
		out.names[n], out.safe[n] = c, c
	}
	return out
}

// has says that a folder is there.
func (m *Mem) has(dir string) bool {
	_, ok := m.dirs[dir]
	return ok
}

func (f *node) crash(how Crash, rng *rand.Rand) *node {
	var b []byte
	switch how {
	case CrashKeepAll, CrashBytesOnly:
		b = append(b, f.data...)
	case CrashLoseAll, CrashNamesOnly:
		b = append(b, f.synced...)
	case CrashZeros:
		b = append(b, f.data...)
		clear(b[min(f.dirty, int64(len(b))):])
		copy(b, f.synced)
	case CrashMixed:
		b = append(b, f.data...)
		for at := f.dirty / sector * sector; at < int64(len(b)); at += sector {
			end := min(at+sector, int64(len(b)))
			switch rng.IntN(5) {
			case 0, 1:
				clear(b[at:end])
				if at < int64(len(f.synced)) {
					copy(b[at:end], f.synced[at:])
				}
			case 2:
				b = b[:max(at, int64(min(len(f.synced), len(b))))]
				if at < int64(len(f.synced)) {
					copy(b[at:], f.synced[at:])
				}
			}
		}
	}
	return &node{data: b, synced: append([]byte(nil), b...), dirty: int64(len(b)), mtime: f.mtime}
}

// Files gives the content of every file, for comparing.
func (m *Mem) Files() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]byte{}
	for n, f := range m.names {
		out[n] = append([]byte(nil), f.data...)
	}
	return out
}

// SetFile puts a file there, synced, with its folders, whatever was there
// before.
func (m *Mem) SetFile(name string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &node{data: append([]byte(nil), b...), synced: append([]byte(nil), b...), dirty: int64(len(b)), mtime: m.now}
	n := filepath.Clean(name)
	m.names[n], m.safe[n] = f, f
	for d := filepath.Dir(n); !m.dirs[d]; d = filepath.Dir(d) {
		m.dirs[d] = true
	}
}

// SetFree sets what Free gives.
func (m *Mem) SetFree(n int64) {
	m.mu.Lock()
	m.free = n
	m.mu.Unlock()
}

// SetTime sets the time that files are modified at from now on.
func (m *Mem) SetTime(t time.Time) {
	m.mu.Lock()
	m.now = t
	m.mu.Unlock()
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) change(dir string, set map[string]*node) {
	for n, f := range set {
		if f == nil {
			delete(m.names, n)
		} else {
			m.names[n] = f
		}
	}
	m.pending = append(m.pending, change{dir, set})
}

// MkdirAll implements [FS].
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := filepath.Clean(dir); !m.has(d); d = filepath.Dir(d) {
		if m.names[d] != nil {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		m.dirs[d] = false
	}
	return nil
}

// Create implements [FS].
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := filepath.Clean(name)
	switch {
	case m.names[n] != nil || m.has(n):
		return nil, pathError("open", name, syscall.EEXIST)
	case !m.has(filepath.Dir(n)):
		return nil, pathError("open", name, syscall.ENOENT)
	}
	f := &node{mtime: m.now}
	m.change(filepath.Dir(n), map[string]*node{n: f})
	return &memFile{m: m, node: f, name: name, write: true}, nil
}

// Open implements [FS].
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.names[filepath.Clean(name)]
	if f == nil {
		return nil, pathError("open", name, syscall.ENOENT)
	}
	return &memFile{m: m, node: f, name: name}, nil
}

// OpenAppend implements [FS].
func (m *Mem) OpenAppend(name string) (File, error) {
	m.mu.Lock()
	f := m.names[filepath.Clean(name)]
	m.mu.Unlock()
	if f == nil {
		made, err := m.Create(name)
		if err != nil {
			return nil, err
		}
		made.(*memFile).append = true
		return made, nil
	}
	return &memFile{m: m, node: f, name: name, write: true, append: true}, nil
}

// Rename implements [FS].
func (m *Mem) Rename(from, to string) error { return m.rename(from, to, true) }

// Replace implements [FS].
func (m *Mem) Replace(from, to string) error { return m.rename(from, to, false) }

func (m *Mem) rename(from, to string, exclusive bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	f := m.names[from]
	if f == nil {
		return pathError("rename", from, syscall.ENOENT)
	}
	if m.has(to) || exclusive && m.names[to] != nil {
		return pathError("rename", to, syscall.EEXIST)
	}
	m.change(filepath.Dir(to), map[string]*node{from: nil, to: f})
	return nil
}

// Remove implements [FS].
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := filepath.Clean(name)
	if m.names[n] == nil {
		return pathError("remove", name, syscall.ENOENT)
	}
	m.change(filepath.Dir(n), map[string]*node{n: nil})
	return nil
}

// List implements [FS].
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := filepath.Clean(dir)
	if !m.has(d) {
		return nil, pathError("open", dir, syscall.ENOENT)
	}
	var out []string
	for n := range m.names {
		if filepath.Dir(n) == d {
			out = append(out, filepath.Base(n))
		}
	}
	for n := range m.dirs {
		if filepath.Dir(n) == d && n != d {
			out = append(out, filepath.Base(n))
		}
	}
	sort.Strings(out)
	return out, nil
}

// Stat implements [FS].
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := filepath.Clean(name)
	if m.has(n) {
		return Info{Dir: true, ModTime: m.now}, nil
	}
	f := m.names[n]
	if f == nil {
		return Info{}, pathError("stat", name, syscall.ENOENT)
	}
	return Info{Size: int64(len(f.data)), ModTime: f.mtime, Regular: true}, nil
}

// SyncDir implements [FS].
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := filepath.Clean(dir)
	if !m.has(d) {
		return pathError("open", dir, syscall.ENOENT)
	}
	for sub := range m.dirs {
		if filepath.Dir(sub) == d {
			m.dirs[sub] = true
		}
	}
	rest := m.pending[:0]
	for _, c := range m.pending {
		if c.dir != d {
			rest = append(rest, c)
			continue
		}
		for n, f := range c.set {
			if f == nil {
				delete(m.safe, n)
			} else {
				m.safe[n] = f
			}
		}
	}
	m.pending = rest
	return nil
}

// Lock implements [FS].
func (m *Mem) Lock(name string, note []byte) (io.Closer, error) {
	n := filepath.Clean(name)
	m.mu.Lock()
	held := m.locks[n]
	m.mu.Unlock()
	if held {
		return nil, pathError("lock", name, fmt.Errorf("%w: %w", ErrLocked, syscall.EWOULDBLOCK))
	}
	f, err := m.OpenAppend(name)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(note, 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.locks[n] = true
	m.mu.Unlock()
	return memLock{m, n}, nil
}

// Locked implements [FS].
func (m *Mem) Locked(name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks[filepath.Clean(name)], nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.locks, l.name)
	l.m.mu.Unlock()
	return nil
}

// Free implements [FS].
func (m *Mem) Free(dir string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free, nil
}

type memFile struct {
	m      *Mem
	node   *node
	name   string
	write  bool
	append bool
	closed bool
}

// locked takes the lock unless the file was closed.
func (f *memFile) locked(op string) error {
	f.m.mu.Lock()
	if f.closed {
		f.m.mu.Unlock()
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.locked("read"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.locked("write"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if !f.write {
		return 0, pathError("write", f.name, syscall.EBADF)
	}
	f.put(p, off)
	return len(p), nil
}

func (f *memFile) Write(p []byte) (int, error) {
	if err := f.locked("write"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if !f.append {
		return 0, pathError("write", f.name, syscall.EBADF)
	}
	f.put(p, int64(len(f.node.data)))
	return len(p), nil
}

func (f *memFile) put(p []byte, off int64) {
	n := f.node
	if grow := off + int64(len(p)) - int64(len(n.data)); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	copy(n.data[off:], p)
	n.dirty = min(n.dirty, off)
	n.mtime = f.m.now
}

func (f *memFile) Close() error {
	if err := f.locked("close"); err != nil {
		return err
	}
	f.closed = true
	f.m.mu.Unlock()
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.locked("stat"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.locked("truncate"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if !f.write {
		return pathError("truncate", f.name, syscall.EBADF)
	}
	if grow := size - int64(len(f.node.data)); grow > 0 {
		f.node.data = append(f.node.data, make([]byte, grow)...)
	}
	f.node.data = f.node.data[:size]
	f.node.dirty = min(f.node.dirty, size)
	return nil
}

func (f *memFile) Sync() error {
	if err := f.locked("sync"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	n := f.node
	keep := min(n.dirty, int64(len(n.synced)), int64(len(n.data)))
	n.synced = append(n.synced[:keep], n.data[keep:]...)
	n.dirty = int64(len(n.data))
	return nil
}

// Dump lists the files with their sizes, for a failed test's message.
func (m *Mem) Dump() string {
	files := m.Files()
	var names []string
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%s %d\n", n, len(files[n]))
	}
	return b.String()
}
