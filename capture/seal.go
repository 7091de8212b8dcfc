package capture

// This file seals files.

import (
	"crypto/sha256"
	"errors"
	"io"
	"path/filepath"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// seal gives the open file its final name, the same way for a rotation, the end
// of a connection and a signal. Killed after any step, recovery goes on:
//
//  1. the bytes and the arrival index are synced;
//  2. sidecar and sums are written beside, synced, and given their names;
//  3. the folder is synced, so that no file is ever seen sealed without them;
//  4. the file gets its final name, which must be free;
//  5. the folder is synced, and the opening sidecar removed.
//
// It may be called again after a failure, unless a sync failed: what that lost
// no later sync tells, so the writer is broken and the file left to recovery.
func (w *Writer) seal(why, detail string, v *sidecar.Verdict) error {
	c, fsys := w.cur, w.dir.opt.FS
	base := stemOf(c.path)
	if c.dirty {
		if err := c.f.Truncate(c.size); err != nil {
			return &FileError{"truncate", c.path, c.start + c.size, err}
		}
		c.dirty = false
	}
	c.syncers.Wait()
	if err := c.syncErr.Load(); err != nil {
		w.broken = err
		return err
	}
	if err := c.flushIndex(); err != nil {
		return err
	}
	if err := c.f.Sync(); err != nil {
		w.broken = &FileError{"sync", c.path, w.synced.Load(), err}
		return w.broken
	}
	if err := c.idx.Sync(); err != nil {
		w.broken = &FileError{"sync", base + extIndex, c.start, err}
		return w.broken
	}

	if c.sumLost {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(c.f, 0, c.size)); err != nil {
			return &FileError{"read", c.path, c.start, err}
		}
		c.sum, c.sumLost = h, false
	}
	s := w.sidecarOf(c, w.number)
	s.Length, s.SHA256 = c.size, sumOf(c.sum)
	if c.first != nil {
		s.FirstArrival, s.LastArrival = sidecar.At(c.first.Wall, c.first.Mono), sidecar.At(c.last.Wall, c.last.Mono)
	}
	s.Closed, s.ClosedDetail, s.Transport = why, detail, v
	fr := w.framing
	if w.ahead > 0 {
		// The framing has seen bytes that are not in the file.
		var err error
		if fr, err = w.rescan(c); err != nil {
			return err
		}
	}
	name := filepath.Base(base) + extBytes
	fr.describe(s, w.id, name)
	if c.idxLost {
		s.Findings = append(s.Findings, sidecar.FromWire(wire.Finding{Kind: KindIndex, Connection: w.id, File: name,
			Offset: c.start, Message: "the arrival index could not be written to its end", Cost: "arrival times"}))
	}
	sums := []sum{{extBytes, s.SHA256}, {extIndex, sumOf(c.idxSum)}}
	sides, err := writeSides(fsys, base, s, sums)
	if err == nil {
		err = finishName(fsys, base, s.Start)
	}
	if err != nil {
		// A side file is written anew by the next try, a folder is the same.
		var fe *FileError
		if errors.As(err, &fe) && fe.Op == "sync" && fe.File == filepath.Dir(base) {
			w.broken = err
		}
		return err
	}
	w.synced.Store(max(w.synced.Load(), c.start+c.size))
	w.start, w.prevSum = s.End(), s.SHA256
	w.sealed = append(w.sealed, Sealed{Path: base + extBytes, Connection: w.id, Number: w.number,
		Start: s.Start, Length: s.Length, SHA256: s.SHA256, Reason: why,
		Findings: int64(len(s.Findings)) + s.FindingsOmitted})
	w.onDisk.bytes.Store(0)
	w.onDisk.index.Store(0)
	if w.dir.opt.Keep.Any() {
		f := &prunable{stem: filepath.Base(base), bytes: s.Length + c.idxSize + sides, sha: s.SHA256, known: true, ours: true, mono: w.dir.opt.Clock.Now().Mono}
		for _, ext := range []string{extBytes, extIndex, extSidecar, extSums} {
			f.names = append(f.names, f.stem+ext)
		}
		if c.first != nil {
			f.last, f.mono = c.last.Wall, c.last.Mono
		}
		w.dir.ledger.add(f)
	}
	return errors.Join(w.abandon(), w.dir.Journal(Entry{Event: EventSeal, Connection: w.id, File: name, Offset: s.Start,
		Bytes: s.Length, SHA256: s.SHA256, Reason: why, Detail: detail}))
}

// rescan follows the frames of the open file anew, from what is in it.
func (w *Writer) rescan(c *openFile) (*framing, error) {
	protocol := w.info.Protocol
	if !w.framing.detecting && c.start > 0 {
		protocol = w.framing.name()
	}
	fr, err := newFraming(w.dir.opt.Registry, protocol, w.framing.direction, c.start, c.ctx)
	if err != nil {
		return nil, err
	}
	fr.mark()
	if err := fr.readAll(io.NewSectionReader(c.f, 0, c.size), nil); err != nil {
		return nil, &FileError{"read", c.path, c.start, err}
	}
	fr.finish()
	return fr, nil
}

// readAll takes the bytes of a file that lies there, and gives them to hash too.
func (fr *framing) readAll(src io.Reader, hash io.Writer) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := src.Read(buf)
		if hash != nil {
			hash.Write(buf[:n])
		}
		for b := buf[:n]; len(b) > 0; {
			b = b[fr.step(b, int64(len(b))):]
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sum is one line of a .sha256 file: the ending of a file with our stem.
type sum struct{ ext, hex string }

// writeSides writes the sidecar and the sums of a file, and makes their names
// safe. It gives how many bytes they have.
func writeSides(fsys vfs.FS, base string, s *sidecar.Sidecar, sums []sum) (int64, error) {
	text, err := s.Append(nil)
	if err != nil {
		return 0, &FileError{"encode", base + extSidecar, s.Start, err}
	}
	if err := writeWhole(fsys, base+extSidecar, text, s.Start); err != nil {
		return 0, err
	}
	h := sha256.New()
	h.Write(text)
	sums = append(sums, sum{extSidecar, sumOf(h)})
	said := sumsText(filepath.Base(base), sums)
	if err := writeWhole(fsys, base+extSums, said, s.Start); err != nil {
		return 0, err
	}
	dir := filepath.Dir(base)
	if err := fsys.SyncDir(dir); err != nil {
		return 0, &FileError{"sync", dir, s.Start, err}
	}
	return int64(len(text) + len(said)), nil
}

// sumsText is what sha256sum -c reads.
func sumsText(stem string, sums []sum) []byte {
	var b []byte
	for _, s := range sums {
		b = append(b, s.hex...)
		b = append(b, "  "...)
		b = append(b, stem...)
		b = append(b, s.ext...)
		b = append(b, '\n')
	}
	return b
}

// writeWhole writes a side file so that its name only ever shows it whole.
func writeWhole(fsys vfs.FS, name string, b []byte, offset int64) error {
	tmp := name + extTemporary
	if err := removeQuietly(fsys, tmp); err != nil {
		return &FileError{"remove", tmp, offset, err}
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return &FileError{"create", tmp, offset, err}
	}
	n, err := f.WriteAt(b, 0)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	op := "write"
	if err == nil {
		op = "sync"
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		op, err = "close", cerr
	}
	if err == nil {
		op = "rename"
		err = fsys.Replace(tmp, name)
	}
	if err != nil {
		return &FileError{op, tmp, offset, errors.Join(err, removeQuietly(fsys, tmp))}
	}
	return nil
}

// finishName is the last of sealing: the final name, made safe.
func finishName(fsys vfs.FS, base string, offset int64) error {
	if err := fsys.Rename(base+extPartial, base+extBytes); err != nil {
		return &FileError{"rename", base + extPartial, offset, err}
	}
	dir := filepath.Dir(base)
	if err := fsys.SyncDir(dir); err != nil {
		return &FileError{"sync", dir, offset, err}
	}
	// A leftover opening sidecar does no harm, the next recovery removes it.
	_ = fsys.Remove(base + extOpening)
	return nil
}
