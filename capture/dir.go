// Package capture is the capture directory as a format: its names, a writer, a
// reader over many files, recovery, verification and retention. What a directory
// promises is in docs/capture-format.md. It asks the protocols of package wire
// one question, where a frame ends, and refuses no bytes.
package capture

// This file is a capture directory that is recorded into.

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// Options are how a directory is recorded into.
type Options struct {
	// FS is where; nil is the operating system's.
	FS vfs.FS
	// Clock is read for the journal; arrivals come with their own time. Nil is
	// SystemClock.
	Clock Clock
	// Registry is the protocols whose frames are followed; nil is
	// protocols.All.
	Registry wire.Registry
	// Tool is the name and version of the program, for sidecars.
	Tool string
	// Holder says who has the directory, for the one who finds it locked; ""
	// is the process's id and host.
	Holder string
	// RotateBytes is how large a file may get before the next begins, 0 for no
	// limit. A file is larger by the frame that a boundary could not be found
	// before: one that is larger itself, or whose length came in two reads.
	RotateBytes int64
	// RotateEvery is how much time by the monotonic clock a file may span from
	// its first byte on, 0 for no limit.
	RotateEvery time.Duration
	// ContextLimit is how many bytes a sidecar's context may hold; 0 is
	// sidecar.DefaultContextLimit.
	ContextLimit int
	// Keep is held at the start, before anything is recovered, and whenever a
	// file is sealed: what is being written comes on top of it.
	Keep Retention
	// MakeRoom lets the oldest sealed files go when an operation fails because
	// the disk is full, as far as Keep.Unshipped permits, and tries it again.
	MakeRoom bool
	// OnPrune is told what Keep and MakeRoom did.
	OnPrune func(*PruneReport, error)
	// OnSealed is called for each file once it is sealed, in order, the last
	// one too. No lock of ours is held; the connection waits until it returns.
	OnSealed func(Sealed)
	// Unique draws the random part of connection ids; nil is crypto/rand.
	Unique func() uint32
}

func (o Options) filled() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Clock == nil {
		o.Clock = SystemClock
	}
	if o.Registry == nil {
		o.Registry = protocols.All()
	}
	if o.Tool == "" {
		o.Tool = "wiretape"
	}
	if o.Holder == "" {
		host, _ := os.Hostname()
		o.Holder = fmt.Sprintf("process %d on %s", os.Getpid(), host)
	}
	if o.ContextLimit <= 0 {
		o.ContextLimit = sidecar.DefaultContextLimit
	}
	if o.Unique == nil {
		o.Unique = func() uint32 {
			var b [4]byte
			rand.Read(b[:])
			return binary.LittleEndian.Uint32(b[:])
		}
	}
	return o
}

// Sealed is a file that got its final name.
type Sealed struct {
	// Path of the bytes; the side files have the same stem.
	Path       string
	Connection string
	Number     int64
	Start      int64
	Length     int64
	SHA256     string
	// Reason is Sidecar.Closed.
	Reason string
	// Findings is how many its sidecar has and counts.
	Findings int64
}

// Dir is a capture directory that this process records into.
type Dir struct {
	path string
	opt  Options
	lock io.Closer

	mu        sync.Mutex
	counter   int64
	used      map[int64]bool // counters of old, once the highest is used up
	recovered []Recovered
	findings  []wire.Finding

	// disk is the file system as it is; that of opt may make room.
	disk    vfs.FS
	start   Instant
	pruneMu sync.Mutex
	ledger  ledger
}

// Create takes a capture directory for recording: makes it when it does not
// exist, locks it (*LockedError when another has it) and recovers what an
// earlier recorder left unfinished. Close gives it back.
func Create(dir string, opt Options) (*Dir, error) {
	opt = opt.filled()
	d := &Dir{path: dir, opt: opt, disk: opt.FS, start: opt.Clock.Now()}
	err := makeDir(opt.FS, dir)
	if err != nil {
		return nil, err
	}
	if d.lock, err = lockDir(opt.FS, dir, opt.Holder); err != nil {
		return nil, err
	}
	if opt.MakeRoom {
		d.opt.FS = roomy{opt.FS, d}
	}
	if err := d.open(); err != nil {
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

// makeDir makes a folder that survives a power loss: what is synced in a folder
// whose own name is lost is lost too.
func makeDir(fsys vfs.FS, dir string) error {
	dir = filepath.Clean(dir)
	parents := []string{filepath.Dir(dir)}
	_, err := fsys.Stat(dir)
	existed := err == nil
	for d := parents[0]; !existed && d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := fsys.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parents = append(parents, filepath.Dir(d))
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return &FileError{"create", dir, 0, err}
	}
	for i := len(parents) - 1; i >= 0; i-- {
		err := fsys.SyncDir(parents[i])
		if err != nil && !(existed && errors.Is(err, fs.ErrPermission)) {
			return &FileError{"sync", parents[i], 0, err}
		}
	}
	return nil
}

// maxHolder is how much of a lock's note is read.
const maxHolder = 1 << 10

func lockDir(fsys vfs.FS, dir, holder string) (io.Closer, error) {
	name := filepath.Join(dir, LockName)
	lock, err := fsys.Lock(name, []byte(holder+"\n"))
	if errors.Is(err, vfs.ErrLocked) {
		note, _ := vfs.ReadFile(fsys, name, maxHolder)
		for len(note) > 0 && note[len(note)-1] == '\n' {
			note = note[:len(note)-1]
		}
		return nil, &LockedError{Dir: dir, Holder: string(note)}
	}
	if err != nil {
		return nil, &FileError{"lock", name, 0, err}
	}
	return lock, nil
}

func (d *Dir) open() error {
	// Recovery needs some room itself.
	d.Hold()
	rec, err := recoverDir(d.path, d.opt, false)
	d.recovered, d.ledger.looked = rec, false
	if err != nil {
		return err
	}
	d.Hold()
	var at wire.Finding
	if d.counter, at, err = highest(d.opt.FS, d.path); err != nil {
		return err
	}
	if d.counter == maxCounter {
		if err := d.restart(at); err != nil {
			return err
		}
	}
	return d.Journal(Entry{Event: EventStart, Detail: d.opt.Holder})
}

// highest is the highest connection counter that the directory ever had, as
// far as names and the journal remember, and which of them says so.
func highest(fsys vfs.FS, dir string) (high int64, at wire.Finding, err error) {
	err = eachCounter(fsys, dir, func(c int64, connection, file string) {
		if c > high {
			high, at.Connection, at.File = c, connection, file
		}
	})
	return high, at, err
}

// eachCounter goes through the connection counters that names and the journal
// remember.
func eachCounter(fsys vfs.FS, dir string, do func(c int64, connection, file string)) error {
	names, err := fsys.List(dir)
	if err != nil {
		return &FileError{"list", dir, 0, err}
	}
	for _, n := range names {
		id := ParseName(n).Connection
		do(counterOf(id), id, n)
	}
	skipped := 0
	return eachEntry(fsys, dir, func(e Entry) { do(counterOf(e.Connection), e.Connection, JournalName) }, &skipped)
}

// restart goes on from the lowest run of counters where the highest one is
// used: a hundred million connections are less likely than one foreign line.
// at says where that is. The caller holds d.mu, or the only reference to d.
func (d *Dir) restart(at wire.Finding) error {
	used := map[int64]bool{}
	if err := eachCounter(d.opt.FS, d.path, func(c int64, _, _ string) { used[c] = true }); err != nil {
		return err
	}
	// Behind the last counter before the highest block.
	top := int64(maxCounter)
	for used[top] {
		top--
	}
	d.counter, d.used = 0, used
	for c := range used {
		if c < top {
			d.counter = max(d.counter, c)
		}
	}
	at.Kind, at.Want = KindCounter, "a number below "+wire.Itoa(maxCounter)
	at.Got = wire.SafeText(at.Connection, 0)
	at.Message = wire.SafeText(at.File, 0) + " names a connection with the highest number that there is; recording goes on at " + wire.Itoa(d.counter+1)
	at.Cost = "sorting by name is no longer the order of connections"
	d.findings = append(d.findings, at)
	return Append(d.opt.FS, d.path, false, Entry{Event: EventError, Detail: at.Message}.stamp(d.opt.Clock.Now()))
}

// Findings are what was met in the directory that does not keep it from being
// recorded into.
func (d *Dir) Findings() []wire.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findings
}

// Path is the directory's.
func (d *Dir) Path() string { return d.path }

// Recovered is what Create found unfinished and sealed.
func (d *Dir) Recovered() []Recovered { return d.recovered }

// Journal writes an entry to the directory's journal; its times are filled in.
func (d *Dir) Journal(e Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Append(d.opt.FS, d.path, false, e.stamp(d.opt.Clock.Now()))
}

// Free is how many bytes may still be written to the directory's disk.
func (d *Dir) Free() (int64, error) { return d.opt.FS.Free(d.path) }

// Close gives the directory back. Connections must have been closed before.
func (d *Dir) Close() error {
	d.mu.Lock()
	err := Append(d.opt.FS, d.path, true, Entry{Event: EventStop}.stamp(d.opt.Clock.Now()))
	d.mu.Unlock()
	return errors.Join(err, d.lock.Close())
}

// ConnInfo is what is known of a connection when it begins.
type ConnInfo struct {
	// Endpoint is for people, without secrets.
	Endpoint string
	// Protocol is a name of the registry, "raw", or "" and "auto" to find it
	// out from the first bytes.
	Protocol  string
	Direction wire.Direction
	// Pair is the id of the other direction's connection, "" for none.
	Pair string
}

// Connect begins a connection and its first file.
func (d *Dir) Connect(info ConnInfo) (*Writer, error) {
	id, err := d.newID()
	if err != nil {
		return nil, err
	}
	return d.connect(id, info)
}

// ConnectPair begins the two directions of one connection, paired.
func (d *Dir) ConnectPair(down, up ConnInfo) (*Writer, *Writer, error) {
	a, err := d.newID()
	if err != nil {
		return nil, nil, err
	}
	b, err := d.newID()
	if err != nil {
		return nil, nil, err
	}
	down.Pair, up.Pair = b, a
	wa, err := d.connect(a, down)
	if err != nil {
		return nil, nil, err
	}
	wb, err := d.connect(b, up)
	if err != nil {
		_, cerr := wa.Close(sidecar.Verdict{Kind: sidecar.TransportFailed, Detail: err.Error()}, sidecar.ClosedError)
		return nil, nil, errors.Join(err, cerr)
	}
	return wa, wb, nil
}

func (d *Dir) newID() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counter >= maxCounter && d.used == nil {
		if err := d.restart(wire.Finding{File: JournalName, Connection: connectionID(maxCounter, 0)}); err != nil {
			return "", err
		}
	}
	for d.used[d.counter+1] {
		d.counter++
	}
	if d.counter >= maxCounter {
		return "", fmt.Errorf("the capture directory %s has had %s, the most there can be: record into another", d.path, wire.Count(d.counter, "connection"))
	}
	d.counter++
	return connectionID(d.counter, d.opt.Unique()), nil
}

func (d *Dir) connect(id string, info ConnInfo) (*Writer, error) {
	if p := info.Protocol; p != "" && p != ProtocolAuto && p != ProtocolRaw && d.opt.Registry.Named(p) == nil {
		return nil, fmt.Errorf("unknown protocol %s", wire.SafeText(p, 40))
	}
	fr, err := newFraming(d.opt.Registry, info.Protocol, info.Direction, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("following %s: %w", info.Protocol, err)
	}
	w := &Writer{dir: d, id: id, info: info, framing: fr}
	d.ledger.begin(w)
	if err := w.openFile(); err != nil {
		d.ledger.end(w)
		return nil, err
	}
	if err := d.Journal(Entry{Event: EventConnect, Connection: id, Endpoint: info.Endpoint, Pair: info.Pair}); err != nil {
		d.ledger.end(w)
		return nil, errors.Join(err, w.abandon())
	}
	return w, nil
}

// removeQuietly removes a file that may not be there.
func removeQuietly(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
