package capture

// This file is the journal of a directory (docs/capture-format.md, Journal).

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"wiretape/internal/vfs"
	"wiretape/wire"
)

// The events of a journal: Entry.Event.
const (
	EventStart      = "start"      // a recorder opened the directory
	EventStop       = "stop"       // it closed it
	EventConnect    = "connect"    // a connection begins
	EventDisconnect = "disconnect" // it ended, with its verdict
	EventAttempt    = "attempt"    // a connection could not be made
	EventSeal       = "seal"       // a file was sealed
	EventRecover    = "recover"    // an unfinished file was sealed by recovery
	EventPrune      = "prune"      // a file was deleted
	EventShip       = "ship"       // a file was copied and read back
	EventUnship     = "unship"     // what was shipped is not there any more, or damaged
	EventArrive     = "arrive"     // a file was shipped into this directory
	// EventDestination: a destination was met for the first time.
	EventDestination = "destination"
	EventClockStep   = "clock-step" // the wall clock went otherwise than the monotonic one
	EventError       = "error"      // something failed
)

// Entry is one line of a journal.
type Entry struct {
	// Time is the wall clock's, RFC 3339 in UTC; MonotonicNS only orders the
	// entries of one process.
	Time        string `json:"time"`
	MonotonicNS int64  `json:"monotonic_ns,string"`
	Event       string `json:"event"`
	Connection  string `json:"connection,omitempty"`
	// File is a base name.
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Reason is a stable word: why a file was closed or deleted, a verdict.
	Reason string `json:"reason,omitempty"`
	// Detail is one line for people.
	Detail string `json:"detail,omitempty"`
	// Endpoint of a connection, Pair the connection of the other direction.
	Endpoint string `json:"endpoint,omitempty"`
	Pair     string `json:"pair,omitempty"`
	// Dest is where a file was shipped.
	Dest string `json:"dest,omitempty"`
	// DestID is the mark that was kept there (DestinationName).
	DestID string `json:"dest_id,omitempty"`
}

const (
	// maxJournalLine is the longest line that is read or written.
	maxJournalLine = 64 << 10
	// maxDetail is the longest Detail that is written; the rest is cut.
	maxDetail = 4 << 10
)

// Append adds entries to the journal of a directory, each line in one write, so
// that a recorder and a shipper may write to it side by side. With sync they
// are safe when it returns.
func Append(fsys vfs.FS, dir string, sync bool, entries ...Entry) error {
	name := filepath.Join(dir, JournalName)
	_, err := fsys.Stat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	f, err := fsys.OpenAppend(name)
	if err != nil {
		return &FileError{"open", name, 0, err}
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return &FileError{"stat", name, 0, err}
	}
	var line []byte
	if size > 0 {
		// A line that a crash cut must not swallow this one.
		var last [1]byte
		if n, _ := f.ReadAt(last[:], size-1); n == 1 && last[0] != '\n' {
			line = append(line, '\n')
		}
	}
	for _, e := range entries {
		e.Detail = wire.SafeText(e.Detail, maxDetail)
		e.Endpoint = wire.SafeText(e.Endpoint, maxDetail)
		b, err := json.Marshal(e)
		if err != nil {
			return &FileError{"encode", name, size, err}
		}
		line = append(wire.AppendEscapedJSON(line, b), '\n')
		if _, err := f.Write(line); err != nil {
			return &FileError{"write", name, size, err}
		}
		size += int64(len(line))
		line = line[:0]
	}
	if !sync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return &FileError{"sync", name, size, err}
	}
	if fresh {
		if err := fsys.SyncDir(dir); err != nil {
			return &FileError{"sync", dir, 0, err}
		}
	}
	return nil
}

// Journal is what a directory's journal tells.
type Journal struct {
	Entries []Entry
	// Skipped is how many lines were none: cut by a crash, or foreign.
	Skipped int
}

// ReadJournal reads a directory's journal. One that is not there is empty.
// Lines that can't be read are counted and stepped over: a journal is a record
// for people and a memory of what was shipped, never needed to read bytes.
func ReadJournal(fsys vfs.FS, dir string) (*Journal, error) {
	j := &Journal{}
	err := eachEntry(fsys, dir, func(e Entry) { j.Entries = append(j.Entries, e) }, &j.Skipped)
	return j, err
}

// EachEntry walks a directory's journal from a byte on, 0 or what an earlier
// walk gave as next, without holding it. A journal that is shorter than that is
// walked anew.
func EachEntry(fsys vfs.FS, dir string, from int64, do func(Entry)) (next int64, err error) {
	skipped := 0
	return eachEntryFrom(fsys, dir, from, do, &skipped)
}

// eachEntry walks a journal without holding it.
func eachEntry(fsys vfs.FS, dir string, do func(Entry), skipped *int) error {
	_, err := eachEntryFrom(fsys, dir, 0, do, skipped)
	return err
}

// eachEntryFrom walks a journal from a byte on, at which a line starts, and
// gives where the next walk goes on. A journal that is shorter is walked anew.
func eachEntryFrom(fsys vfs.FS, dir string, from int64, do func(Entry), skipped *int) (next int64, err error) {
	name := filepath.Join(dir, JournalName)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, &FileError{"open", name, 0, err}
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, &FileError{"stat", name, 0, err}
	}
	if from > size {
		from = 0
	}
	r := &lineReader{src: io.NewSectionReader(f, from, size-from), at: from}
	for {
		line, err := r.next()
		if err == io.EOF {
			return r.at, nil
		}
		if err != nil {
			return r.at, &FileError{"read", name, 0, err}
		}
		if len(line) == 0 {
			continue
		}
		var e Entry
		if len(line) > maxJournalLine || json.Unmarshal(line, &e) != nil || e.Event == "" {
			*skipped++
			continue
		}
		do(e)
	}
}

// lineReader gives lines without their end. Of a line over maxJournalLine it
// gives one byte more than that, so that the caller can tell.
type lineReader struct {
	src  io.Reader
	buf  []byte
	have []byte
	eof  bool
	// at is behind the last line that has its end.
	at   int64
	seen int64
}

func (r *lineReader) next() ([]byte, error) {
	if r.buf == nil {
		r.buf = make([]byte, 2*maxJournalLine)
	}
	skipping := false
	if r.seen == 0 {
		r.seen = r.at
	}
	for {
		if i := bytes.IndexByte(r.have, '\n'); i >= 0 {
			line := r.have[:i]
			r.have = r.have[i+1:]
			r.at = r.seen - int64(len(r.have))
			if skipping {
				return r.buf[:maxJournalLine+1], nil
			}
			return line, nil
		}
		if len(r.have) > maxJournalLine {
			skipping, r.have = true, nil
		}
		if r.eof {
			line := r.have
			r.have = nil
			if skipping {
				return r.buf[:maxJournalLine+1], nil
			}
			if len(line) == 0 {
				return nil, io.EOF
			}
			return line, nil
		}
		n := copy(r.buf, r.have)
		m, err := r.src.Read(r.buf[n:])
		r.have = r.buf[:n+m]
		r.seen += int64(m)
		if err == io.EOF {
			r.eof = true
		} else if err != nil {
			return nil, err
		}
	}
}

// Stamp fills in an entry's times, for [Append].
func Stamp(e Entry, at Instant) Entry { return e.stamp(at) }

// stamp fills in an entry's times.
func (e Entry) stamp(at Instant) Entry {
	e.Time = time.Unix(0, at.Wall).UTC().Format(time.RFC3339Nano)
	e.MonotonicNS = at.Mono
	return e
}
