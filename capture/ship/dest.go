package ship

// This file is where files go.

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"wiretape/capture"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// Dest is where files go: names, each with bytes that are there whole or not at
// all. A folder is one ([Folder]); a bucket can be another.
type Dest interface {
	// Where tells the place by the mark that is kept there and whatever else
	// the system knows it by. It only reads.
	Where(ctx context.Context) (Place, error)
	// Mark leaves a mark, under the lock.
	Mark(ctx context.Context, mark string) error
	// Lock keeps other shippers out until it is closed.
	Lock(ctx context.Context) (io.Closer, error)
	// Open reads a file; fs.ErrNotExist when there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Put writes a file. write fills it, and check then reads back what has
	// arrived: when it gives an error everything is as before. When Put gives
	// nil the file survives a power loss.
	Put(ctx context.Context, name string, over Over, write func(io.Writer) error, check func(io.Reader) error) error
	// Sweep removes what Puts that were broken off left, under the lock.
	Sweep(ctx context.Context) error
	// Journal reads what arrived from a position on, 0 or what an earlier call
	// gave as next; Arrived adds to it, safely.
	Journal(ctx context.Context, from int64, do func(capture.Entry)) (next int64, err error)
	Arrived(ctx context.Context, entries ...capture.Entry) error
	// String names it in the journal and in reports, without secrets.
	String() string
}

// Place is one place that files are shipped to. Two that differ while nothing
// was mounted anew are not the same.
type Place struct {
	// Mark is 32 hex digits, "" where there is none.
	Mark string
	// Device is the system's number of what it lies on, 0 when it gives none.
	Device uint64
}

// Over is what a Put does with a file that has the name.
type Over uint8

const (
	// OverNothing: the name must be free, else the error wraps fs.ErrExist.
	OverNothing Over = iota
	// OverIt: it is replaced.
	OverIt
	// OverAside: it stays, under another name.
	OverAside
)

// Folder is a directory as a destination, such as a mount or a disk that
// travels.
type Folder struct {
	fs   vfs.FS
	path string
}

// NewFolder takes a directory, which must exist: a mount that is not there must
// not become a folder on the disk below it.
func NewFolder(fsys vfs.FS, path string) (*Folder, error) {
	if fsys == nil {
		fsys = vfs.OS
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	st, err := fsys.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("the destination: %w", err)
	}
	if !st.Dir {
		return nil, fmt.Errorf("the destination %s is no directory", wire.SafeText(abs, 0))
	}
	return &Folder{fsys, abs}, nil
}

// AwaitedFolder is NewFolder for a watch: a directory that the journal of the
// capture directory dir knows may be away, and is waited for. One that was never
// shipped to must exist, since its name may be mistyped.
func AwaitedFolder(fsys vfs.FS, dir, path string) (*Folder, error) {
	d, err := NewFolder(fsys, path)
	if err == nil {
		return d, nil
	}
	if fsys == nil {
		fsys = vfs.OS
	}
	abs, aerr := filepath.Abs(path)
	if _, serr := fsys.Stat(abs); aerr != nil || serr == nil {
		return nil, err // it is there, and no directory
	}
	var m memory
	if merr := m.update(fsys, dir, abs); merr != nil || !m.knows() {
		return nil, err
	}
	return &Folder{fsys, abs}, nil
}

// String is the folder's path, as the journal names it.
func (d *Folder) String() string { return d.path }

const markDigits = 32

// Where reads the mark (capture.DestinationName) and the device. What is no
// mark is none.
func (d *Folder) Where(context.Context) (Place, error) {
	// The mark first: what mounts on demand does so for a name in the folder.
	const limit = markDigits + 1 // a line
	text, err := vfs.ReadFile(d.fs, filepath.Join(d.path, capture.DestinationName), limit)
	st, serr := d.fs.Stat(d.path)
	if serr != nil {
		return Place{}, fmt.Errorf("the destination: %w", serr)
	}
	p := Place{Device: st.Device}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrTooLarge) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("the destination's mark: %w", err)
	}
	mark := strings.TrimSuffix(string(text), "\n")
	if _, err := hex.DecodeString(mark); err == nil && len(mark) == markDigits {
		p.Mark = mark
	}
	return p, nil
}

// Mark writes the mark, in place of what is none.
func (d *Folder) Mark(ctx context.Context, mark string) error {
	return d.Put(ctx, capture.DestinationName, OverIt, func(w io.Writer) error {
		_, err := io.WriteString(w, mark+"\n")
		return err
	}, func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && string(got) != mark+"\n" {
			err = errNotAsWritten
		}
		return err
	})
}

var errNotAsWritten = errors.New("what was read back differs from what was written")

// Sweep removes what is under temporary names: the lock says that nobody is at
// it.
func (d *Folder) Sweep(ctx context.Context) error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	for _, n := range names {
		if capture.ParseName(n).Form != capture.FormTemporary {
			continue
		}
		if st, err := d.fs.Stat(filepath.Join(d.path, n)); err != nil || !st.Regular {
			continue // nothing that a Put left
		}
		if err := ignoreMissing(d.fs.Remove(filepath.Join(d.path, n))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Journal reads the folder's own journal, as of any capture directory.
func (d *Folder) Journal(_ context.Context, from int64, do func(capture.Entry)) (int64, error) {
	return capture.EachEntry(d.fs, d.path, from, do)
}

// Arrived writes to it.
func (d *Folder) Arrived(_ context.Context, entries ...capture.Entry) error {
	return capture.Append(d.fs, d.path, true, entries...)
}

// Lock takes the directory as a recorder would, so that nobody records into it
// meanwhile either.
func (d *Folder) Lock(ctx context.Context) (io.Closer, error) {
	name := filepath.Join(d.path, capture.LockName)
	host, _ := os.Hostname()
	note := fmt.Sprintf("shipping process %d on %s\n", os.Getpid(), host)
	c, err := d.fs.Lock(name, []byte(note))
	if errors.Is(err, vfs.ErrLocked) {
		const maxHolder = 1 << 10
		holder, _ := vfs.ReadFile(d.fs, name, maxHolder)
		for len(holder) > 0 && holder[len(holder)-1] == '\n' {
			holder = holder[:len(holder)-1]
		}
		return nil, &capture.LockedError{Dir: d.path, Holder: string(holder)}
	}
	return c, err
}

// Open reads a file of the folder.
func (d *Folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := d.fs.Open(filepath.Join(d.path, name))
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	return readCloser{io.NewSectionReader(f, 0, size), f}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// temporary ends a name while its bytes are written; readers of captures know
// it and leave it alone.
const temporary = ".new"

// Put writes under a temporary name, syncs, reads back from the disk, and
// renames. What an earlier try left under the temporary name is written anew:
// the lock says that nobody is at it.
func (d *Folder) Put(ctx context.Context, name string, over Over, write func(io.Writer) error, check func(io.Reader) error) (err error) {
	final := filepath.Join(d.path, name)
	if over == OverNothing {
		if _, err := d.fs.Stat(final); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = &fs.PathError{Op: "create", Path: final, Err: fs.ErrExist}
			}
			return err
		}
	}
	tmp := final + temporary
	if err := d.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.fs.Create(tmp)
	if err != nil {
		return err
	}
	w := &appender{ctx: ctx, f: f}
	err = write(w)
	if err == nil {
		err = f.Sync()
	}
	dropCache(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.readBack(tmp, w.off, check)
	}
	if err == nil && over == OverAside {
		err = ignoreMissing(d.aside(final))
	}
	if err == nil && over == OverIt {
		err = d.fs.Replace(tmp, final)
	} else if err == nil {
		err = d.rename(tmp, final)
	}
	if err != nil {
		// What can't be removed is under a temporary name, and the next try
		// removes it.
		return errors.Join(err, ignoreMissing(d.fs.Remove(tmp)))
	}
	return d.fs.SyncDir(d.path)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d *Folder) readBack(name string, size int64, check func(io.Reader) error) error {
	f, err := d.fs.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%s has %d bytes of the %d written", wire.SafeText(name, 0), n, size)
	}
	return check(io.NewSectionReader(f, 0, n))
}

// maxAside is how many damaged copies of one file are kept.
const maxAside = 100

// aside gives a file a name that no reader takes for a capture file.
func (d *Folder) aside(name string) error {
	var err error
	for k := range maxAside {
		to := name + ".damaged"
		if k > 0 {
			to += "." + strconv.Itoa(k+1)
		}
		// Looked at as well, for file systems without an exclusive rename.
		if _, serr := d.fs.Stat(to); errors.Is(serr, fs.ErrNotExist) {
			if err = d.rename(name, to); !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return errors.Join(fmt.Errorf("%s: %s were set aside already", wire.SafeText(name, 0), wire.Count(maxAside, "damaged copy")), err)
}

// rename gives the final name. File systems of disks that travel may know no
// exclusive rename; there the lock and the look before are what keeps a file
// from being replaced.
func (d *Folder) rename(tmp, final string) error {
	err := d.fs.Rename(tmp, final)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) {
		return d.fs.Replace(tmp, final)
	}
	return err
}

// appender writes one piece behind the other.
type appender struct {
	ctx context.Context
	f   vfs.File
	off int64
}

func (a *appender) Write(p []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := a.f.WriteAt(p, a.off)
	a.off += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}
