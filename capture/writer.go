package capture

// This file writes the files of one connection (docs/capture-format.md, How a
// file comes about).

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// Writer records one connection. Write, Rotate, RotateIfDue and Close are for
// one goroutine; Sync and Stats may be called beside them.
type Writer struct {
	dir  *Dir
	id   string
	info ConnInfo

	mu      sync.Mutex
	framing *framing
	cur     *openFile
	number  int64 // of the file that is or was open last
	start   int64 // of the next file to open
	prevSum string
	// ahead is how many bytes behind the file's end the framing has seen: those
	// of a write that failed, to be written again.
	ahead int64
	// rotate is a pending wish to begin a new file.
	rotate  string
	sealed  []Sealed
	broken  error
	closed  bool
	skew    int64
	hasSkew bool

	received, written, synced atomic.Int64
	onDisk                    onDisk
}

// openFile is the file being written.
type openFile struct {
	path  string // of the partial file
	f     vfs.File
	idx   vfs.File
	open  vfs.File // the opening sidecar
	start int64
	size  int64
	sum   hash.Hash
	// sumLost says that sum is not that of the file's bytes: it is made anew
	// when the file is sealed.
	sumLost bool
	ctx     *wire.Context
	atEdge  bool // begins at a frame boundary
	// syncers are the calls of Sync that are at work on the file; syncErr is
	// what one of them met. A later sync would not know of it.
	syncers sync.WaitGroup
	syncErr atomic.Pointer[FileError]
	first   *Instant
	last    Instant
	// idxBuf holds records of the index that are not written yet.
	idxBuf  []byte
	idxSize int64
	idxSum  hash.Hash
	idxLost bool // its rest could not be written
	// dirty says that bytes may lie behind size, of a write that failed.
	dirty bool
	named bool // its name was synced
}

const (
	// idxFlush is how many bytes of index gather before they are written.
	idxFlush = 4 << 10
	// hashBeside is from how many bytes on hashing goes on beside writing.
	hashBeside = 64 << 10
	// idxHeld is how many gather at most while they can't be written.
	idxHeld = 1 << 20
)

// ID is the connection's.
func (w *Writer) ID() string { return w.id }

// Protocol is what the bytes were found to be so far, "" while that is open.
func (w *Writer) Protocol() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.framing.detecting {
		return ""
	}
	return w.framing.name()
}

// Searching says that for some time now no frame was found in what came, and one
// is looked for.
func (w *Writer) Searching() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	fr := w.framing
	return fr.scanner != nil && fr.scanner.Searching() && fr.offset-fr.lastWhole >= wire.DetectLimit
}

// Stats are offsets in the connection: how much came in by Write, how much of
// it is in files, how much of that survives a power loss.
type Stats struct{ Received, Written, Synced int64 }

// Stats is never held up by a slow disk.
func (w *Writer) Stats() Stats {
	// In this order, so that no later number is larger than an earlier one.
	s := Stats{Synced: w.synced.Load()}
	s.Written = max(w.written.Load(), s.Synced)
	s.Received = max(w.received.Load(), s.Written)
	return s
}

// Write records bytes that arrived together. It takes them all, or says with a
// *FileError how many it took: those are recorded, and the writer can go on
// with the rest once the cause is gone. After a failed sync it can't: that
// error stays.
func (w *Writer) Write(p []byte, at Instant) (int, error) {
	w.received.Store(max(w.received.Load(), w.written.Load()+int64(len(p))))
	n, err := w.write(p, at)
	w.tell()
	return n, err
}

func (w *Writer) write(p []byte, at Instant) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return 0, err
	}
	w.watchClock(at)
	if w.cur == nil && len(p) > 0 {
		// The last rotation got no further than sealing.
		if err := w.openFile(); err != nil {
			return 0, err
		}
	}
	total := 0
	n := int(min(w.ahead, int64(len(p)))) // of p, seen by the framing and not yet written
	limit := w.dir.opt.RotateBytes
	for n < len(p) {
		size, unit := w.cur.size+int64(n), int64(0)
		if w.ahead <= int64(n) {
			w.framing.settle(p[n:], false)
			unit = w.framing.nextSize(p[n:])
			if why := w.due(unit, size, at); why != "" {
				if err := w.append(p[:n], at); err != nil {
					return total, err
				}
				total += n
				p, n = p[n:], 0
				if err := w.next(why); err != nil {
					return total, err
				}
				continue
			}
		}
		room := int64(len(p))
		if limit > 0 {
			room = limit - size
		}
		next := p[n:]
		if unit > 0 {
			// Where a file may end nothing behind it has been looked at: what
			// its sidecar says of it has to come from its own bytes.
			next = next[:min(int64(len(next)), unit)]
		}
		n += w.framing.step(next, room)
	}
	if err := w.append(p[:n], at); err != nil {
		return total, err
	}
	return total + n, nil
}

// due says why a new file has to begin before the coming unit, of so many bytes
// as far as that is told, "" if not.
func (w *Writer) due(unit, size int64, at Instant) string {
	if size == 0 || !w.framing.cuttable() {
		return ""
	}
	if w.rotate != "" {
		return w.rotate
	}
	if every := w.dir.opt.RotateEvery; every > 0 && w.cur != nil && w.cur.first != nil && at.Mono-w.cur.first.Mono >= int64(every) {
		return sidecar.ClosedTime
	}
	if limit := w.dir.opt.RotateBytes; limit > 0 && (size >= limit || size+unit > limit) {
		return sidecar.ClosedSize
	}
	return ""
}

// append writes bytes that the framing has seen to the open file.
func (w *Writer) append(p []byte, at Instant) error {
	if len(p) == 0 {
		return nil
	}
	// Until they are in the file the framing is ahead by them.
	w.ahead = max(w.ahead, int64(len(p)))
	c := w.cur
	crc, err := c.put(p)
	if err != nil {
		return &FileError{"write", c.path, c.start + c.size, err}
	}
	w.ahead -= int64(len(p))
	c.size += int64(len(p))
	w.written.Store(c.start + c.size)
	w.onDisk.bytes.Store(c.size)
	prev := c.last
	if c.first == nil {
		first := at
		c.first = &first
		prev = at
		c.idxBuf = sidecar.AppendIndexHeader(c.idxBuf, c.start, at.Wall, at.Mono)
	}
	c.last = Instant{at.Wall, max(at.Mono, prev.Mono)}
	if c.idxLost {
		return nil
	}
	c.idxBuf = sidecar.AppendIndexRecord(c.idxBuf, len(p), crc, prev.Wall, prev.Mono, at.Wall, at.Mono)
	if len(c.idxBuf) >= idxFlush && c.flushIndex() != nil && len(c.idxBuf) > idxHeld {
		// The bytes are recorded, so this is no failure of the write: the
		// index ends here, and the sidecar says so.
		c.idxLost, c.idxBuf = true, nil
	}
	w.onDisk.index.Store(c.idxSize)
	return nil
}

// put writes bytes behind the file's end and takes them into its hash. Large
// ones are hashed while the disk takes them, since hashing costs as much.
func (c *openFile) put(p []byte) (crc uint32, err error) {
	if len(p) < hashBeside {
		if err := c.write(p); err != nil {
			return 0, err
		}
		c.sum.Write(p)
		return sidecar.CRC(0, p), nil
	}
	hashed := make(chan uint32, 1)
	go func() {
		c.sum.Write(p)
		hashed <- sidecar.CRC(0, p)
	}()
	err = c.write(p)
	crc = <-hashed
	// The hash has bytes now that the file has not.
	c.sumLost = c.sumLost || err != nil
	return crc, err
}

// write puts bytes behind the file's end. After a failure the file is cut back
// to what it was; should that fail too, the bytes behind its end are written
// over by the next try, or cut off when it is sealed.
func (c *openFile) write(p []byte) error {
	n, err := c.f.WriteAt(p, c.size)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return nil
	}
	c.dirty = c.f.Truncate(c.size) != nil
	return err
}

// flushIndex writes what gathered of the arrival index. A failure is tried
// again with the next one: the same bytes at the same place.
func (c *openFile) flushIndex() error {
	if len(c.idxBuf) == 0 {
		return nil
	}
	n, err := c.idx.WriteAt(c.idxBuf, c.idxSize)
	if err == nil && n < len(c.idxBuf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &FileError{"write", sidePathOf(c.path, extIndex), c.start, err}
	}
	c.idxSum.Write(c.idxBuf)
	c.idxSize += int64(n)
	c.idxBuf = c.idxBuf[:0]
	return nil
}

func sidePathOf(partial, ext string) string { return stemOf(partial) + ext }

// clockStep is by how much the wall clock may run away from the monotonic one
// between two reads before the journal says so.
const clockStep = int64(1e9)

func (w *Writer) watchClock(at Instant) {
	skew := at.Wall - at.Mono
	step := skew - w.skew
	if w.hasSkew && (step > clockStep || step < -clockStep) {
		// The journal is no reason to lose bytes; a disk that fails will say
		// so at the next write.
		_ = w.dir.Journal(Entry{Event: EventClockStep, Connection: w.id, Offset: w.written.Load(),
			Detail: "the wall clock went " + wire.Itoa(step) + " ns further than the monotonic clock"})
	}
	w.skew, w.hasSkew = skew, true
}

func (w *Writer) usable() error {
	if w.broken != nil {
		return w.broken
	}
	if w.closed {
		return errors.New("recording to a connection that was closed: " + w.id)
	}
	return nil
}

// next seals the open file and begins another.
func (w *Writer) next(why string) error {
	if w.cur != nil {
		if err := w.seal(why, "", nil); err != nil {
			return err
		}
	}
	w.rotate = ""
	return w.openFile()
}

// openFile begins the next file: the name first, which makes it ours, then
// what a reader needs to know at its first byte, then the index.
func (w *Writer) openFile() error {
	fsys := w.dir.opt.FS
	number := w.number + 1
	if number > maxCounter {
		return errors.New("the connection " + w.id + " has the most files there can be")
	}
	base := filepath.Join(w.dir.path, stem(w.id, number))
	c := &openFile{path: base + extPartial, start: w.start, sum: sha256.New(), idxSum: sha256.New(),
		ctx: w.framing.context(w.dir.opt.ContextLimit), atEdge: w.framing.atBoundary()}
	var made []string
	fail := func(op, name string, err error) error {
		for _, f := range []vfs.File{c.f, c.open, c.idx} {
			if f != nil {
				f.Close()
			}
		}
		// In the reverse order, so that the name goes last. What can't be
		// removed now is sealed, empty, by the next recovery.
		for i := len(made) - 1; i >= 0; i-- {
			if rerr := fsys.Remove(made[i]); rerr != nil {
				w.number = number
				break
			}
		}
		return &FileError{op, name, w.start, err}
	}
	var err error
	create := func(ext string) (f vfs.File, err error) {
		if f, err = fsys.Create(base + ext); err == nil {
			made = append(made, base+ext)
		}
		return f, err
	}
	if c.f, err = create(extPartial); err != nil {
		return fail("create", c.path, err)
	}
	s := w.sidecarOf(c, number)
	s.Open = true
	text, err := s.Append(nil)
	if err != nil {
		return fail("encode", base+extOpening, err)
	}
	if c.open, err = create(extOpening); err != nil {
		return fail("create", base+extOpening, err)
	}
	if n, err := c.open.WriteAt(text, 0); err != nil || n < len(text) {
		if err == nil {
			err = io.ErrShortWrite
		}
		return fail("write", base+extOpening, err)
	}
	if c.idx, err = create(extIndex); err != nil {
		return fail("create", base+extIndex, err)
	}
	w.number = number
	w.cur = c
	w.framing.mark()
	return nil
}

// Rotate begins a new file at the next frame boundary, which may be now. why is
// one of the sidecar.Closed words.
func (w *Writer) Rotate(why string) error {
	err := w.rotateNow(why)
	w.tell()
	return err
}

func (w *Writer) rotateNow(why string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if w.cur == nil || w.cur.size == 0 {
		return nil
	}
	w.rotate = why
	if w.ahead > 0 || !w.framing.cuttable() {
		return nil
	}
	return w.next(why)
}

// RotateIfDue begins a new file if the open one has spanned its time and stands
// at a frame boundary: for a connection on which nothing comes.
func (w *Writer) RotateIfDue(now Instant) error {
	w.mu.Lock()
	why := ""
	if w.cur != nil && w.ahead == 0 && w.usable() == nil {
		why = w.due(0, w.cur.size, now)
	}
	w.mu.Unlock()
	if why == "" {
		return nil
	}
	return w.Rotate(why)
}

// Sync makes safe what was written before the call. It waits for the disk
// without holding up Write.
func (w *Writer) Sync() error {
	w.mu.Lock()
	c := w.cur
	if w.broken != nil || c == nil {
		defer w.mu.Unlock()
		return w.broken
	}
	end, named := c.start+c.size, c.named
	if named && w.synced.Load() >= end {
		w.mu.Unlock()
		return nil
	}
	ierr := c.flushIndex()
	c.syncers.Add(1)
	w.mu.Unlock()
	err := w.syncFile(c, named)
	if err != nil {
		c.syncErr.Store(err)
	}
	c.syncers.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.broken = err
		return err
	}
	w.synced.Store(max(w.synced.Load(), end))
	c.named = true
	return ierr
}

func (w *Writer) syncFile(c *openFile, named bool) *FileError {
	if err := c.f.Sync(); err != nil {
		return &FileError{"sync", c.path, w.synced.Load(), err}
	}
	if named {
		return nil
	}
	if err := c.open.Sync(); err != nil {
		return &FileError{"sync", sidePathOf(c.path, extOpening), c.start, err}
	}
	if err := w.dir.opt.FS.SyncDir(w.dir.path); err != nil {
		return &FileError{"sync", w.dir.path, c.start, err}
	}
	return nil
}

// Close ends the connection: its last file is sealed with the transport's
// verdict. why is one of the sidecar.Closed words. The framing's verdict is
// given back. After a failed sync the file stays unfinished, for recovery to
// find out what of it is there; the error says so.
func (w *Writer) Close(v sidecar.Verdict, why string) (wire.Ending, error) {
	ending, err := w.close(v, why)
	w.tell()
	return ending, err
}

func (w *Writer) close(v sidecar.Verdict, why string) (wire.Ending, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.dir.ledger.end(w)
	if w.closed {
		return "", errors.New("closing a connection twice: " + w.id)
	}
	w.closed = true
	v.Detail = wire.SafeText(v.Detail, maxDetail)
	if w.broken != nil {
		return "", errors.Join(w.broken, w.abandon())
	}
	if w.cur == nil {
		// The verdict needs a file to be said in.
		if err := w.openFile(); err != nil {
			return "", err
		}
	}
	w.framing.finish()
	ending := w.framing.ending
	if ending == wire.EndingClean && w.ahead > 0 {
		ending = wire.EndingCut
	}
	err := w.seal(why, v.Detail, &v)
	if err != nil {
		return ending, errors.Join(err, w.abandon())
	}
	return ending, w.dir.Journal(Entry{Event: EventDisconnect, Connection: w.id, Bytes: w.written.Load(),
		Reason: v.Kind, Detail: v.Detail, Endpoint: w.info.Endpoint})
}

// abandon lets go of an unfinished file: recovery seals it.
func (w *Writer) abandon() error {
	c := w.cur
	if c == nil {
		return nil
	}
	w.cur = nil
	var errs []error
	c.syncers.Wait()
	for _, f := range []vfs.File{c.f, c.idx, c.open} {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// tell calls OnSealed for what was sealed, with no lock held.
func (w *Writer) tell() {
	w.mu.Lock()
	sealed := w.sealed
	w.sealed = nil
	w.mu.Unlock()
	if f := w.dir.opt.OnSealed; f != nil {
		for _, s := range sealed {
			f(s)
		}
	}
	if len(sealed) > 0 {
		w.dir.Hold()
	}
}

// sidecarOf is what is known of a file at any time.
func (w *Writer) sidecarOf(c *openFile, number int64) *sidecar.Sidecar {
	protocol := w.framing.name()
	if w.framing.detecting {
		protocol = ProtocolAuto
	}
	return &sidecar.Sidecar{Tool: w.dir.opt.Tool, Connection: w.id, Number: number,
		Protocol: protocol, Direction: w.framing.direction.String(), Pair: w.info.Pair,
		Endpoint: wire.SafeText(w.info.Endpoint, maxDetail), Start: c.start, PreviousSHA256: w.prevSum,
		Framing: w.framing.word(), StartsAtBoundary: c.atEdge, Context: sidecar.ContextOf(c.ctx)}
}

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
