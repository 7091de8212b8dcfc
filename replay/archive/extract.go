package archive

// This file takes an archive apart into files: segments as Parquet, rows and
// index entries as they are. No name comes from the archive unsanitised: folders
// and files are numbered, and the manifest says what they are.

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"wiretape/internal/jsontext"
	"wiretape/internal/unfinished"
	"wiretape/replay/internal/outcome"
)

// Selection is a part of an archive or a stream. The zero Selection is all.
type Selection struct {
	// Sources are uuids; a prefix of at least 4 characters will do.
	Sources []string
	// Labels that a source must have, all of them.
	Labels map[string]string
	// Streams by name.
	Streams []string
	// From and Until bound the time, both included, nil for open.
	From, Until *int64
}

// minPrefix is how much of a uuid names a source.
const minPrefix = 4

// Source says that a source is selected.
func (s *Selection) Source(uuid string, labels map[string]string) bool {
	for k, v := range s.Labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return len(s.Sources) == 0 || slices.ContainsFunc(s.Sources, func(want string) bool {
		return uuid == want || len(want) >= minPrefix && strings.HasPrefix(uuid, want)
	})
}

// Stream says that a stream is selected.
func (s *Selection) Stream(name string) bool {
	return len(s.Streams) == 0 || slices.Contains(s.Streams, name)
}

// Span says that some of the time from first to last is selected.
func (s *Selection) Span(first, last int64) bool {
	return (s.From == nil || last >= *s.From) && (s.Until == nil || first <= *s.Until)
}

// Words say what is selected, one condition each; none for all.
func (s *Selection) Words() []string {
	var w []string
	for _, v := range s.Sources {
		w = append(w, "source "+v)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		w = append(w, "label "+k+"="+s.Labels[k])
	}
	for _, v := range s.Streams {
		w = append(w, "stream "+v)
	}
	if s.From != nil {
		w = append(w, "from "+outcome.UTC(*s.From))
	}
	if s.Until != nil {
		w = append(w, "until "+outcome.UTC(*s.Until))
	}
	return w
}

// Manifest says what an extraction holds: a documented contract as JSON.
type Manifest struct {
	Archive   string           `json:"archive"`
	Selection []string         `json:"selection,omitempty"`
	Sources   []ManifestSource `json:"sources"`
}

// ManifestSource is one source's folder.
type ManifestSource struct {
	Folder            string            `json:"folder"`
	UUID              string            `json:"uuid,omitempty"`
	Labels            map[string]string `json:"labels"`
	Metadata          map[string]string `json:"metadata"`
	Complete          bool              `json:"complete"`
	ClockAnchorWallNs int64             `json:"clock_anchor_wall_ns"`
	Streams           []ManifestStream  `json:"streams"`
	// ClockOffsets are [ts, offset_ns].
	ClockOffsets [][2]int64 `json:"clock_offsets,omitempty"`
}

// ManifestStream is one stream's folder.
type ManifestStream struct {
	Folder   string            `json:"folder"`
	Stream   string            `json:"stream"`
	Segments []ManifestSegment `json:"segments,omitempty"`
	Rows     *ManifestItems    `json:"rows,omitempty"`
	Index    *ManifestItems    `json:"index_entries,omitempty"`
}

// ManifestSegment is one segment's file. A segment that reaches out of the
// selected time is there whole: Reaches says so.
type ManifestSegment struct {
	File        string `json:"file"`
	Seq         int64  `json:"seq"`
	Rows        int64  `json:"rows"`
	FirstTS     int64  `json:"first_ts"`
	LastTS      int64  `json:"last_ts"`
	Length      int64  `json:"length"`
	SHA256      string `json:"sha256"`
	Reaches     bool   `json:"reaches_out_of_selection,omitempty"`
	CallerIndex string `json:"caller_index_file,omitempty"`
}

// ManifestItems are rows or index entries: their bytes one after the other in
// File, and a JSON line for each in Lines, with ts, wall_offset (rows), offset
// and length.
type ManifestItems struct {
	File  string `json:"file"`
	Lines string `json:"lines_file"`
	Count int64  `json:"count"`
	First int64  `json:"first_ts"`
	Last  int64  `json:"last_ts"`
}

const (
	// ManifestFile and SumsFile lie in the extraction's folder; coreutils'
	// sha256sum -c reads the second.
	ManifestFile = "manifest.json"
	SumsFile     = "SHA256SUMS"
)

// ErrNothing: the selection names nothing that is there.
var ErrNothing = errors.New("nothing in the archive is selected")

// Extract writes the selected part into dir, which must not exist; it appears
// whole or not at all, under the conditions of [unfinished.Start].
func (a *Archive) Extract(ctx context.Context, dir string, sel Selection) (m *Manifest, err error) {
	folder, err := unfinished.Start(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, folder.Abandon())
		}
	}()
	x := &extraction{ctx: ctx, a: a, dir: folder.Path(), sel: sel, out: &Manifest{Archive: filepath.Base(a.Path), Selection: sel.Words(), Sources: []ManifestSource{}}}
	sources, err := a.Sources()
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		if sel.Source(s.UUID, s.Labels) {
			if err := x.source(s); err != nil {
				return nil, err
			}
		}
	}
	some := func(s ManifestSource) bool {
		return len(s.Streams) > 0 || len(sel.Streams) == 0 && len(s.ClockOffsets) > 0
	}
	if len(x.out.Selection) > 0 && !slices.ContainsFunc(x.out.Sources, some) {
		return nil, a.nothing(sources)
	}
	if err := x.finish(); err != nil {
		return nil, err
	}
	return x.out, folder.Publish()
}

type extraction struct {
	ctx  context.Context
	a    *Archive
	dir  string
	sel  Selection
	out  *Manifest
	sums strings.Builder
}

// safeName is the part of a stream's name that may be in a path.
func safeName(s string) string {
	const limit = 40
	var b []byte
	for i := 0; i < len(s) && len(b) < limit; i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c == '_', c == '-':
			b = append(b, c)
		case len(b) > 0 && b[len(b)-1] != '_':
			b = append(b, '_')
		}
	}
	return strings.Trim(string(b), "_-")
}

func (x *extraction) source(s SourceRow) error {
	m := ManifestSource{Folder: fmt.Sprintf("source-%03d", len(x.out.Sources)+1), UUID: s.UUID, Labels: s.Labels, Metadata: s.Metadata,
		Complete: s.Complete, ClockAnchorWallNs: s.ClockAnchorWallNs, Streams: []ManifestStream{}}
	if err := os.Mkdir(filepath.Join(x.dir, m.Folder), 0o700); err != nil {
		return fmt.Errorf("extracting: %w", err)
	}
	byName := map[string]int{}
	stream := func(name string) (*ManifestStream, error) {
		i, ok := byName[name]
		if !ok {
			i = len(m.Streams)
			byName[name] = i
			folder := fmt.Sprintf("stream-%03d", i+1)
			if safe := safeName(name); safe != "" {
				folder += "-" + safe
			}
			m.Streams = append(m.Streams, ManifestStream{Folder: m.Folder + "/" + folder, Stream: name})
			if err := os.Mkdir(filepath.Join(x.dir, m.Folder, folder), 0o700); err != nil {
				return nil, fmt.Errorf("extracting: %w", err)
			}
		}
		return &m.Streams[i], nil
	}
	err := x.a.Segments(s.ID, func(g SegmentRow) error {
		if err := x.ctx.Err(); err != nil || !x.sel.Stream(g.Stream) || !x.sel.Span(g.FirstTS, g.LastTS) {
			return err
		}
		st, err := stream(g.Stream)
		if err != nil {
			return err
		}
		return x.segment(st, g)
	})
	if err != nil {
		return err
	}
	var w *items
	var of string
	next := func(name, kind string) error {
		if w != nil && of == name {
			return nil
		}
		if err := x.close(w); err != nil {
			return err
		}
		st, err := stream(name)
		if err != nil {
			return err
		}
		into := &st.Rows
		if kind == "index" {
			into = &st.Index
		}
		*into = &ManifestItems{File: st.Folder + "/" + kind + ".bin", Lines: st.Folder + "/" + kind + ".jsonl"}
		of = name
		w, err = x.open(*into)
		return err
	}
	err = x.a.Rows(s.ID, func(r RowOf) error {
		if err := x.ctx.Err(); err != nil || !x.sel.Stream(r.Stream) || !x.sel.Span(r.TS, r.TS) {
			return err
		}
		if err := next(r.Stream, "rows"); err != nil {
			return err
		}
		return w.put(r.TS, &r.WallOffset, r.Bytes)
	})
	if err = errors.Join(err, x.close(w)); err != nil {
		return err
	}
	w = nil
	err = x.a.entriesByStream(s.ID, func(e EntryOf) error {
		if err := x.ctx.Err(); err != nil || !x.sel.Stream(e.Stream) || !x.sel.Span(e.TS, e.TS) {
			return err
		}
		if err := next(e.Stream, "index"); err != nil {
			return err
		}
		return w.put(e.TS, nil, e.Blob)
	})
	if err = errors.Join(err, x.close(w)); err != nil {
		return err
	}
	err = x.a.Clocks(s.ID, func(ts, offset int64) error {
		if x.sel.Span(ts, ts) {
			m.ClockOffsets = append(m.ClockOffsets, [2]int64{ts, offset})
		}
		return nil
	})
	x.out.Sources = append(x.out.Sources, m)
	return err
}

func (x *extraction) segment(st *ManifestStream, g SegmentRow) error {
	b, err := x.a.SegmentBytes(g)
	if err != nil {
		return err
	}
	m := ManifestSegment{File: fmt.Sprintf("%s/segment-%06d.parquet", st.Folder, g.Seq), Seq: g.Seq, Rows: g.Rows, FirstTS: g.FirstTS, LastTS: g.LastTS, Length: g.Length,
		Reaches: x.sel.From != nil && g.FirstTS < *x.sel.From || x.sel.Until != nil && g.LastTS > *x.sel.Until}
	if m.SHA256, err = x.write(m.File, b); err != nil {
		return err
	}
	if g.HasIndex {
		if b, err = x.a.CallerIndex(g); err != nil {
			return err
		}
		m.CallerIndex = strings.TrimSuffix(m.File, ".parquet") + ".index"
		if _, err = x.write(m.CallerIndex, b); err != nil {
			return err
		}
	}
	st.Segments = append(st.Segments, m)
	return nil
}

// write writes a file and notes its checksum.
func (x *extraction) write(name string, b []byte) (sum string, err error) {
	f, err := x.create(name)
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	return hex.EncodeToString(f.sum.Sum(nil)), errors.Join(err, x.done(f))
}

// outFile is a file being written and hashed.
type outFile struct {
	name string
	f    *os.File
	buf  *bufio.Writer
	sum  hash.Hash
	io.Writer
}

func (x *extraction) create(name string) (*outFile, error) {
	f, err := os.OpenFile(filepath.Join(x.dir, filepath.FromSlash(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("extracting: %w", err)
	}
	o := &outFile{name: name, f: f, buf: bufio.NewWriterSize(f, 64<<10), sum: sha256.New()}
	o.Writer = io.MultiWriter(o.buf, o.sum)
	return o, nil
}

func (x *extraction) done(o *outFile) error {
	if err := errors.Join(o.buf.Flush(), o.f.Sync(), o.f.Close()); err != nil {
		return fmt.Errorf("extracting: %w", err)
	}
	fmt.Fprintf(&x.sums, "%x  %s\n", o.sum.Sum(nil), o.name)
	return nil
}

// items writes rows or index entries.
type items struct {
	bin, lines *outFile
	m          *ManifestItems
	at         int64
}

func (x *extraction) open(m *ManifestItems) (*items, error) {
	bin, err := x.create(m.File)
	if err != nil {
		return nil, err
	}
	lines, err := x.create(m.Lines)
	return &items{bin: bin, lines: lines, m: m}, err
}

func (w *items) put(ts int64, wallOffset *int64, b []byte) error {
	line, err := json.Marshal(struct {
		TS         int64  `json:"ts"`
		WallOffset *int64 `json:"wall_offset,omitempty"`
		Offset     int64  `json:"offset"`
		Length     int    `json:"length"`
	}{ts, wallOffset, w.at, len(b)})
	if err != nil {
		return err
	}
	if w.m.Count == 0 || ts < w.m.First {
		w.m.First = ts
	}
	if w.m.Count == 0 || ts > w.m.Last {
		w.m.Last = ts
	}
	w.m.Count++
	w.at += int64(len(b))
	_, err = w.bin.Write(b)
	_, err2 := w.lines.Write(append(line, '\n'))
	return errors.Join(err, err2)
}

func (x *extraction) close(w *items) error {
	if w == nil {
		return nil
	}
	return errors.Join(x.done(w.bin), x.done(w.lines))
}

// finish writes the manifest and the checksums and gives the folder its name.
func (x *extraction) finish() error {
	text, err := jsontext.Marshal(x.out, "  ")
	if err != nil {
		return err
	}
	if _, err := x.write(ManifestFile, append(text, '\n')); err != nil {
		return err
	}
	sums := x.sums.String()
	if _, err := x.write(SumsFile, []byte(sums)); err != nil {
		return err
	}
	for _, s := range x.out.Sources {
		for _, st := range s.Streams {
			if err := syncFile(filepath.Join(x.dir, filepath.FromSlash(st.Folder))); err != nil {
				return err
			}
		}
	}
	return nil
}
