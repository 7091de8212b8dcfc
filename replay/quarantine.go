package replay

// This file keeps what can't be in the archive, with its bytes: in
// OUT.quarantine/ beside it, written into the unfinished folder until the rebuild
// is done.

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sync/errgroup"

	"wiretape/internal/jsontext"
	"wiretape/internal/unfinished"
	"wiretape/internal/vfs"
	"wiretape/replay/archive"
	"wiretape/wire"
)

const (
	quarantineSuffix = ".quarantine"
	// quarantineName is its name in an unfinished folder.
	quarantineName = "quarantine"
	rowsFile       = "rows.jsonl"
)

// quarantine implements archive.SetAside.
type quarantine struct {
	// final is the folder's name, tmp the one that it is written under: the
	// same where an archive is added to.
	final, tmp string
	// uuid gives a source's, connection the connection of a number, and found
	// takes what there is to report.
	uuid       func(id int64) string
	connection func(number int) *connection
	found      func(wire.Finding)

	fs vfs.FS
	// unsynced are the files that were written since the last sync.
	unsynced []string
	// notes is how many notes there are of each segment's bytes.
	notes map[[32]byte]int
	made  bool
	rows  *os.File
	buf   *bufio.Writer
	marks []asideMark
}

// newQuarantine writes under the folder's final name until tmp is set to another.
func newQuarantine(archive string) *quarantine {
	final := archive + quarantineSuffix
	return &quarantine{fs: vfs.OS, final: final, tmp: final}
}

// asideName are the names of what was set aside.
var asideName = regexp.MustCompile(`^(rows\.jsonl|segment-[0-9a-f]{64}(-[0-9]+)?\.(json|parquet))$`)

// ownAside refuses a folder of the quarantine's name in which lies anything that
// no rebuild wrote: a *unfinished.ForeignError.
func ownAside(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &unfinished.ForeignError{Path: path}
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.Type().IsRegular() || !asideName.MatchString(e.Name()) {
			return &unfinished.ForeignError{Path: filepath.Join(path, e.Name())}
		}
	}
	return nil
}

// asideSegment is the note beside a segment that was set aside.
type asideSegment struct {
	Kind       string         `json:"kind"`
	Source     string         `json:"source"`
	Stream     string         `json:"stream"`
	Rows       uint64         `json:"rows"`
	FirstTS    int64          `json:"first_ts"`
	LastTS     int64          `json:"last_ts"`
	Length     int            `json:"length"`
	SHA256     string         `json:"sha256"`
	Connection string         `json:"connection"`
	Offset     int64          `json:"offset"`
	Findings   []wire.Finding `json:"findings,omitempty"`
	Caller     string         `json:"caller_index_base64,omitempty"`
	HasCaller  bool           `json:"has_caller_index,omitempty"`
}

// asideRow is one line of rows.jsonl, but for its last member `row_base64`.
type asideRow struct {
	Kind       string `json:"kind"`
	Source     string `json:"source"`
	Stream     string `json:"stream"`
	TS         int64  `json:"ts"`
	WallOffset int64  `json:"wall_offset"`
	SHA256     string `json:"sha256"`
	Connection string `json:"connection,omitempty"`
	Offset     *int64 `json:"offset,omitempty"`
}

func (q *quarantine) mark(source int64, stream string, first, last int64, what cover) {
	if len(q.marks) < maxAsideMarks {
		q.marks = append(q.marks, asideMark{source, stream, first, last, what})
	}
}

func (q *quarantine) create() error {
	if q.made {
		return nil
	}
	if err := errors.Join(q.fs.MkdirAll(q.tmp), q.fs.SyncDir(filepath.Dir(q.tmp))); err != nil {
		return fmt.Errorf("setting aside: %w", err)
	}
	q.made = true
	return nil
}

// place fills in where a finding lies.
func (q *quarantine) place(f wire.Finding, p archive.Place) wire.Finding {
	f.Offset = p.Offset
	if p.Conn >= 0 {
		c := q.connection(p.Conn)
		return c.locate(f)
	}
	return f
}

// report adds a finding about a segment, at its frame, and gives it as it is
// there.
func (q *quarantine) report(stream string, s archive.Segment, f wire.Finding) wire.Finding {
	within := f.Offset
	f = q.place(f, s.Place)
	if within > 0 {
		f.Message += " (byte " + wire.Itoa(within) + " of the segment)"
	}
	f.Message = "segment of stream " + quote(stream) + ": " + f.Message
	q.found(f)
	return f
}

func quote(s string) string { return `"` + wire.SafeText(s, 80) + `"` }

// Segment sets a segment aside and reports why.
func (q *quarantine) Segment(src int64, stream string, s archive.Segment, why string) error {
	found := s.Check.Findings
	if len(found) == 0 {
		f := wire.Finding{Kind: why, Message: "overlaps another segment that holds more, and has timestamps that none of those that stay has",
			Cost: "its rows that no other segment has can't be in the archive; the bytes are set aside"}
		switch why {
		case archive.KindSegmentClaims:
			f.Message = "has the bytes of a segment that is kept, and claims " + wire.Count(int64(s.Rows), "row") + " from " +
				wire.Itoa(s.FirstTS) + " to " + wire.Itoa(s.LastTS) + " of them, which that one does not"
			f.Cost = "the claims of the one that is kept stay, true or not; these are set aside"
		case archive.KindSegmentUnproved:
			f.Message = "can't be proved to hold the rows that it would hide"
			f.Cost = "the bytes are set aside"
		}
		found = []wire.Finding{f}
	}
	for i := range found {
		if found[i].Cost == "" {
			found[i].Cost = "the segment is set aside with its bytes"
		}
		q.report(stream, s, found[i])
	}
	return q.keepSegment(src, stream, s, why, found)
}

// keepSegment writes a segment's bytes and a note.
func (q *quarantine) keepSegment(src int64, stream string, s archive.Segment, why string, found []wire.Finding) error {
	if err := q.create(); err != nil {
		return err
	}
	q.mark(src, stream, s.FirstTS, s.LastTS, coverAside)
	sum := hex.EncodeToString(s.SHA[:])
	name := filepath.Join(q.tmp, "segment-"+sum)
	note := asideSegment{Kind: why, Source: q.uuid(src), Stream: stream, Rows: s.Rows, FirstTS: s.FirstTS, LastTS: s.LastTS,
		Length: len(s.Bytes), SHA256: sum, Offset: s.Place.Offset,
		Caller: base64.StdEncoding.EncodeToString(s.CallerIndex), HasCaller: s.HasCallerIndex}
	if s.Place.Conn >= 0 {
		note.Connection = q.connection(s.Place.Conn).ID
	}
	note.Findings = append(note.Findings, found...)
	text, err := jsontext.Marshal(note, "  ")
	if err != nil {
		return err
	}
	// Equal bytes that were offered twice get one file and two notes.
	whole := func(have []byte) bool { return bytes.Equal(have, s.Bytes) }
	if err := q.write(name+".parquet", s.Bytes, whole); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("setting a segment aside: %w", err)
	}
	if q.notes == nil {
		q.notes = map[[32]byte]int{}
	}
	for {
		q.notes[s.SHA]++
		n := q.notes[s.SHA]
		path := name + ".json"
		if n > 1 {
			path = fmt.Sprintf("%s-%d.json", name, n)
		}
		err := q.write(path, append(text, '\n'), json.Valid)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("setting a segment aside: %w", err)
		}
	}
}

// write writes a new file, which is safe after the next sync. One that is there
// is an os.ErrExist; but what a crash left of one that was not yet safe, which
// whole tells, gives way.
func (q *quarantine) write(path string, b []byte, whole func(have []byte) bool) error {
	f, err := q.fs.Create(path)
	if errors.Is(err, os.ErrExist) {
		have, rerr := vfs.ReadFile(q.fs, path, maxAsideFile)
		if rerr != nil || whole(have) {
			return errors.Join(err, rerr)
		}
		if err := q.fs.Remove(path); err != nil {
			return err
		}
		f, err = q.fs.Create(path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if q.unsynced = append(q.unsynced, path); len(q.unsynced) < syncBatch {
		return nil
	}
	return q.syncFiles()
}

const (
	// syncBatch is how many files are made safe together, syncers how many at a
	// time: a disk takes many at once for hardly more than one.
	syncBatch = 4096
	syncers   = 16
	// maxAsideFile is the largest file that a segment or its note is.
	maxAsideFile = 256 << 20
)

// syncAside makes all files safe that were set aside, names included.
func (q *quarantine) syncAside() error {
	return errors.Join(q.syncFiles(), q.fs.SyncDir(q.tmp))
}

// syncFiles makes the bytes of the files safe that were written since the last
// time; their names are safe once the folder is.
func (q *quarantine) syncFiles() error {
	var g errgroup.Group
	g.SetLimit(syncers)
	for _, path := range q.unsynced {
		g.Go(func() error {
			f, err := q.fs.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	q.unsynced = q.unsynced[:0]
	return g.Wait()
}

// Row sets a row aside.
func (q *quarantine) Row(src int64, stream string, r archive.Row, why string) error {
	if err := q.create(); err != nil {
		return err
	}
	if q.rows == nil {
		f, err := os.OpenFile(filepath.Join(q.tmp, rowsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("setting a row aside: %w", err)
		}
		q.rows, q.buf = f, bufio.NewWriterSize(f, 1<<16)
	}
	sum := sha(r.Bytes)
	line := asideRow{Kind: why, Source: q.uuid(src), Stream: stream, TS: r.TS, WallOffset: r.WallOffset,
		SHA256: sum}
	f := wire.Finding{Kind: why, Field: "rows", Got: "sha256 " + sum}
	what := "row of stream " + quote(stream) + " at " + wire.Itoa(r.TS)
	switch why {
	case archive.KindRowConflict:
		q.mark(src, stream, r.TS, r.TS, coverConflict)
		f.Message = what + " differs from the one that is kept"
		f.Cost = "the row is set aside with its bytes"
	default:
		q.mark(src, stream, r.TS, r.TS, coverAside)
		f.Message = what + " lies at or below the stream's newest sealed row and in no segment"
		f.Cost = "it can't be read in any archive of this format and is set aside with its bytes"
	}
	if r.Place.Conn >= 0 {
		line.Connection, line.Offset = q.connection(r.Place.Conn).ID, &r.Place.Offset
		f = q.place(f, r.Place)
	}
	q.found(f)
	text, err := jsontext.Marshal(line, "")
	if err != nil {
		return err
	}
	// The row goes straight to the file: it may be as large as a frame.
	if _, err := q.buf.Write(append(bytes.TrimSuffix(text, []byte("}")), `,"row_base64":"`...)); err != nil {
		return fmt.Errorf("setting a row aside: %w", err)
	}
	e := base64.NewEncoder(base64.StdEncoding, q.buf)
	_, err = e.Write(r.Bytes)
	if err = errors.Join(err, e.Close()); err == nil {
		_, err = q.buf.WriteString("\"}\n")
	}
	if err != nil {
		return fmt.Errorf("setting a row aside: %w", err)
	}
	return nil
}

// sync makes what was set aside safe, and gives how long the file of rows is.
func (q *quarantine) sync() (size int64, err error) {
	if !q.made {
		return q.size()
	}
	if q.rows != nil {
		err = errors.Join(q.buf.Flush(), q.rows.Sync())
	}
	if err := errors.Join(err, q.syncAside()); err != nil {
		return 0, fmt.Errorf("setting aside: %w", err)
	}
	return q.size()
}

func (q *quarantine) size() (int64, error) {
	info, err := os.Stat(filepath.Join(q.tmp, rowsFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("setting aside: %w", err)
	}
	return info.Size(), nil
}

// resume cuts the file of rows back to what was committed.
func (q *quarantine) resume(size int64) error {
	err := os.Truncate(filepath.Join(q.tmp, rowsFile), size)
	if errors.Is(err, os.ErrNotExist) && size == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("going on with what was set aside: %w", err)
	}
	return nil
}

// replace puts what a rebuild set aside in the place of this.
func (q *quarantine) replace(from string) error {
	if err := q.close(); err != nil {
		return err
	}
	q.made = false
	if err := ownAside(q.final); err != nil {
		return err
	}
	if err := os.RemoveAll(q.final); err != nil {
		return err
	}
	if err := os.Rename(from, q.final); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (q *quarantine) close() error {
	if q.rows == nil {
		return nil
	}
	err := errors.Join(q.buf.Flush(), q.rows.Sync(), q.rows.Close())
	q.rows = nil
	if err != nil {
		return fmt.Errorf("setting rows aside: %w", err)
	}
	return nil
}

// finish gives what was set aside its name, and says whether anything was. It
// comes before the archive gets its own, so that an archive that is there always
// has what its report names. A folder that a run left whose archive never came
// gives way, with another name.
func (q *quarantine) finish() (made bool, err error) {
	if err := q.close(); err != nil {
		return false, err
	}
	if _, err := os.Lstat(q.final); err == nil {
		for n := 1; ; n++ {
			old := fmt.Sprintf("%s.old-%d", q.final, n)
			if _, err := os.Lstat(old); err == nil {
				continue
			}
			if err := os.Rename(q.final, old); err != nil {
				return false, fmt.Errorf("setting aside: %w", err)
			}
			break
		}
	}
	if !q.made {
		return false, nil
	}
	if err := q.syncAside(); err != nil {
		return false, fmt.Errorf("setting aside: %w", err)
	}
	if err := os.Rename(q.tmp, q.final); err != nil {
		return false, fmt.Errorf("setting aside: %w", err)
	}
	return true, nil
}

// abort ends what was set aside by a rebuild that failed: it goes with the
// unfinished folder.
func (q *quarantine) abort() error {
	if q.rows == nil {
		return nil
	}
	err := q.rows.Close()
	q.rows = nil
	return err
}
