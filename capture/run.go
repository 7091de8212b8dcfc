package capture

// This file reads a stretch of a connection as one stream of bytes.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"slices"
	"sort"

	"wiretape/wire"
)

// Run is a contiguous stretch of a connection: files without a hole between.
type Run struct {
	conn *Connection
	// Start is the offset in the connection of its first byte.
	Start int64
	// Context is what a decoder needs to start there; nil at offset 0.
	Context *wire.Context
	// Files in order.
	Files []*File
	// Loose says that Start is not known: bytes of unknown number are missing
	// before it, and offsets count from the end of what was there before.
	Loose bool
}

// Complete says that no byte of the connection is missing, as far as its files
// tell.
func (c *Connection) Complete() bool {
	if len(c.runs) != 1 || c.runs[0].Start != 0 || c.runs[0].Context != nil {
		return false
	}
	return !slices.ContainsFunc(c.Findings, func(f wire.Finding) bool {
		return f.Kind == KindNoEnd || f.Kind == KindMissingFiles || f.Kind == KindPruned
	})
}

// Length is how many bytes of the connection there are.
func (c *Connection) Length() (n int64) {
	for _, r := range c.runs {
		n += r.End() - r.Start
	}
	return n
}

// Connection is the one that the run is part of.
func (r *Run) Connection() *Connection { return r.conn }

// End is the offset behind the run's last byte.
func (r *Run) End() int64 {
	if len(r.Files) == 0 {
		return r.Start
	}
	return r.Files[len(r.Files)-1].End()
}

// FileAt gives the file that holds the byte at an offset in the connection, and
// the byte's offset in it. An offset outside of the run gives the nearest file
// of it; its end belongs to the last one.
func (r *Run) FileAt(offset int64) (f *File, at int64) {
	i := sort.Search(len(r.Files), func(i int) bool { return r.Files[i].End() > offset })
	// Empty files hold no byte: only as the last resort.
	i = min(i, len(r.Files)-1)
	f = r.Files[i]
	return f, offset - f.Start
}

// Locate fills in a finding's connection and file by its offset.
func (r *Run) Locate(f wire.Finding) wire.Finding {
	f.Connection = r.conn.ID
	if file, _ := r.FileAt(f.Offset); file != nil {
		f.File = file.Name
	}
	return f
}

// After is the rest of the run from the first file on that starts behind an
// offset: where reading can go on when the framing was lost before it, since
// files begin at frame boundaries as far as their sidecars do not say
// otherwise. Nil when there is none.
func (r *Run) After(offset int64) *Run {
	for i, f := range r.Files {
		if f.Start <= offset || f.Sidecar != nil && !f.Sidecar.StartsAtBoundary {
			continue
		}
		return &Run{conn: r.conn, Start: f.Start, Context: r.conn.contextOf(f), Files: r.Files[i:], Loose: r.Loose}
	}
	return nil
}

// contextOf is where a decoder starts that begins with a file.
func (c *Connection) contextOf(f *File) *wire.Context {
	if f.Start == 0 {
		return nil
	}
	if ctx := f.context(); ctx != nil {
		return ctx
	}
	p := c.Protocol
	if p == "" {
		p = ProtocolRaw
	}
	return wire.MidStream(p)
}

// Open gives the run's bytes, decompressed and one file after the other, and
// the options for a wire.Reader over them. Errors come from Read: a *DamagedError,
// also where a file is gone that was there.
func (r *Run) Open() (*RunReader, wire.ReaderOptions) { return r.OpenAt(r.Start) }

// OpenAt is Open from an offset in the connection on, clamped to the run.
func (r *Run) OpenAt(offset int64) (*RunReader, wire.ReaderOptions) {
	offset = min(max(offset, r.Start), r.End())
	rr := &RunReader{run: r, hashing: !r.conn.opt.TrustHashes}
	for rr.next < len(r.Files)-1 && r.Files[rr.next].End() <= offset {
		rr.next++
	}
	opt := wire.ReaderOptions{Offset: offset}
	if len(r.Files) == 0 {
		return rr, opt
	}
	rr.skip = offset - r.Files[rr.next].Start
	opt.Zeros = r.zeros()
	return rr, opt
}

// zeros are those that the run ends in and that a power loss may have left.
func (r *Run) zeros() wire.Zeros {
	last := r.Files[len(r.Files)-1]
	// What can't be read is found again when its turn comes.
	if zeros, err := last.zerosFrom(); err == nil && zeros < last.End() {
		return wire.ZerosFrom(zeros, last.Start)
	}
	return wire.Zeros{}
}

// DamagedError says that a file can't be read to its end, or that it and those
// that follow went away since they were listed, and where reading may go on.
type DamagedError struct {
	Finding wire.Finding
	// Next is the run behind the damage, nil when there is none.
	Next *Run
	// Unopened: the file could not even be opened; that may pass.
	Unopened bool
	Err      error
}

// Error is the finding's message; the place is in the finding.
func (e *DamagedError) Error() string { return e.Finding.Message }

// Unwrap gives Err.
func (e *DamagedError) Unwrap() error { return e.Err }

// RunReader reads a run. It holds each file against its sidecar's SHA-256 as it
// goes by.
type RunReader struct {
	run     *Run
	next    int   // of run.Files, to be opened
	skip    int64 // bytes of it to pass
	cur     io.ReadCloser
	file    *File
	got     int64 // bytes read of file, from its start
	sum     hash.Hash
	hashing bool
	found   []wire.Finding
	err     error
}

// Findings gives what was found since the last call: hashes that differ.
func (rr *RunReader) Findings() []wire.Finding {
	f := rr.found
	rr.found = nil
	return f
}

// Close closes the file that is open.
func (rr *RunReader) Close() error {
	if rr.cur == nil {
		return nil
	}
	err := rr.cur.Close()
	rr.cur = nil
	if rr.err == nil {
		rr.err = io.ErrClosedPipe
	}
	return err
}

// Read reads on, across files.
func (rr *RunReader) Read(p []byte) (int, error) {
	for {
		if rr.err != nil {
			return 0, rr.err
		}
		if rr.cur == nil {
			if rr.next == len(rr.run.Files) {
				return 0, io.EOF
			}
			rr.file = rr.run.Files[rr.next]
			rr.next++
			var err error
			rr.cur, err = rr.file.openAt(rr.skip)
			rr.sum = nil
			if rr.hashing && rr.skip == 0 && rr.file.proved() {
				rr.sum = sha256.New()
			}
			rr.got, rr.skip = rr.skip, 0
			if errors.Is(err, fs.ErrNotExist) {
				rr.gone(err)
				continue
			}
			if err != nil {
				rr.damaged(err).Unopened = true
				continue
			}
		}
		// A zstd file may hold more than was said.
		want := min(int64(len(p)), rr.file.Length-rr.got)
		n, err := 0, io.EOF
		if want > 0 {
			n, err = rr.cur.Read(p[:want])
		}
		rr.got += int64(n)
		if rr.sum != nil {
			rr.sum.Write(p[:n])
		}
		switch {
		case err == io.EOF:
			rr.endFile()
		case err != nil:
			rr.damaged(err)
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
	}
}

// proved says that the sidecar has a hash for just these bytes.
func (f *File) proved() bool {
	return f.Sidecar != nil && !f.Sidecar.Open && f.Sidecar.Length == f.Length
}

func (rr *RunReader) endFile() {
	f := rr.file
	rr.cur.Close()
	rr.cur = nil
	if rr.got < f.Length {
		rr.damaged(io.ErrUnexpectedEOF)
		return
	}
	if rr.sum == nil {
		return
	}
	if sum := hex.EncodeToString(rr.sum.Sum(nil)); sum != f.Sidecar.SHA256 {
		rr.found = append(rr.found, rr.run.conn.hashMismatch(f, sum))
	}
}

func (c *Connection) hashMismatch(f *File, sum string) wire.Finding {
	return wire.Finding{Kind: KindHashMismatch, Connection: c.ID, File: f.Name, Offset: f.Start, Length: f.Length,
		Want: wire.SafeText(f.Sidecar.SHA256, 64), Got: sum,
		Message: "the bytes of " + f.Name + " are not those that were recorded: their SHA-256 differs",
		Cost:    "what is damaged in the file can't be told by its hash"}
}

// gone says that rr.file is not there any more, with those behind it of which the
// same is true: they are missing, and nothing else is wrong with them.
func (rr *RunReader) gone(err error) {
	first, last := rr.file, rr.file
	for ; rr.next < len(rr.run.Files) && rr.run.Files[rr.next].gone(); rr.next++ {
		last = rr.run.Files[rr.next]
	}
	rr.err = &DamagedError{Err: err, Next: rr.run.After(last.Start), Unopened: true,
		Finding: rr.run.conn.wentAway(first, last, first.Start+rr.got)}
}

func (rr *RunReader) damaged(err error) *DamagedError {
	f := rr.file
	at := f.Start + rr.got
	d := &DamagedError{Err: err, Next: rr.run.After(f.Start), Finding: wire.Finding{
		Kind: KindUnreadable, Connection: rr.run.conn.ID, File: f.Name, Offset: at, Length: f.End() - at,
		Want: wire.Itoa(f.Length) + " bytes", Got: wire.Itoa(rr.got) + " bytes",
		Message: f.Name + " can't be read from its byte " + wire.Itoa(rr.got) + " on: " + cause(err),
		Cost:    wire.Count(f.End()-at, "byte") + " missing"}}
	if f.Compressed {
		d.Finding.Kind = KindDamagedZstd
	}
	rr.err = d
	if rr.cur != nil {
		rr.cur.Close()
		rr.cur = nil
	}
	return d
}

// zerosFrom is the offset in the connection from which on a file that may end
// in a power loss holds only zeros; its end when it ends otherwise.
func (f *File) zerosFrom() (int64, error) {
	if f.Length == 0 {
		return f.End(), nil
	}
	sealed := f.proved() && f.Sidecar.Recovery == nil
	if f.Compressed && sealed {
		return f.End(), nil
	}
	src, compressed, err := f.source()
	if err != nil {
		return 0, &FileError{"open", f.Path, f.Start, err}
	}
	defer src.Close()
	if compressed {
		return f.zerosForward()
	}
	n, err := zerosBackward(src, f.Length)
	if err != nil {
		return 0, &FileError{"read", f.Path, f.Start, err}
	}
	if sealed {
		// Its zeros are its own, unless a whole sector of them is not what the
		// hash says.
		if f.Length-n < wire.SectorSize {
			return f.End(), nil
		}
		if sum, _, err := f.hash(-1); err != nil || sum == f.Sidecar.SHA256 {
			return f.End(), err
		}
	}
	return f.Start + n, nil
}

// zerosBackward gives the offset from which on the first size bytes of a file
// hold only zeros. It reads from the end and stops at the first other byte.
func zerosBackward(src io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, min(64<<10, size))
	for end := size; end > 0; {
		b := buf[:min(int64(len(buf)), end)]
		start := end - int64(len(b))
		if n, err := src.ReadAt(b, start); n < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != 0 {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

func (f *File) zerosForward() (int64, error) {
	r, err := f.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	buf := make([]byte, 64<<10)
	var off, zeros int64
	for {
		n, err := r.Read(buf)
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				zeros = off + int64(i) + 1
				break
			}
		}
		off += int64(n)
		if err != nil {
			// Damage is found again by who reads the bytes.
			return f.Start + zeros, nil
		}
	}
}
