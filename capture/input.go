package capture

// This file opens inputs: captures, some of their files, and raw streams, in any
// mixture, and makes connections of them.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// InputOptions say how inputs are read.
type InputOptions struct {
	// FS holds the inputs; nil is the operating system's.
	FS vfs.FS
	// Registry is the protocols that are known; nil is protocols.All.
	Registry wire.Registry
	// Protocol forces one for all inputs: a name of the registry, or "raw" for
	// bytes without frames. "" and "auto" take it from the content, and where
	// that does not tell from the sidecar.
	Protocol string
	// Context, if set, is where connections go on that have no place of their
	// own: no first file and no sidecar. ContextStart is the offset then.
	Context      *wire.Context
	ContextStart int64
	// TrustHashes leaves out the SHA-256 while reading.
	TrustHashes bool
	// Cache, if set, keeps what is known of sealed files from one look at the
	// same inputs to the next.
	Cache *Cache
}

// Cache remembers sealed files between calls of OpenInputs, so that looking
// again at a directory that grows costs only what is new. It is for one
// goroutine at a time. Its zero value is empty and ready.
type Cache struct {
	files map[string]cached
}

// cached is a sealed file with a sidecar, as long as its size and time stay.
type cached struct {
	size     int64
	modified time.Time
	file     File
	findings []wire.Finding
}

func (c *Cache) get(f *File, modified time.Time) (*cached, bool) {
	if c == nil || !f.Sealed {
		return nil, false
	}
	e, ok := c.files[f.Path]
	if !ok || e.size != f.size || !e.modified.Equal(modified) {
		return nil, false
	}
	return &e, true
}

func (c *Cache) put(f *File, modified time.Time, findings []wire.Finding) {
	if c == nil || !f.Sealed || f.Sidecar == nil {
		return
	}
	if c.files == nil {
		c.files = map[string]cached{}
	}
	c.files[f.Path] = cached{f.size, modified, *f, append([]wire.Finding(nil), findings...)}
}

// ProtocolRaw is the protocol of bytes that no known protocol fits.
const ProtocolRaw = "raw"

// ProtocolAuto is the word for finding the protocol out.
const ProtocolAuto = "auto"

// Set is what a list of inputs holds. Nothing in it depends on the order in
// which they were given.
type Set struct {
	// Connections in order of their ids.
	Connections []*Connection
	// Findings about inputs that belong to no connection, such as foreign
	// files. Those about a connection are in it.
	Findings []wire.Finding

	fs      vfs.FS
	folders []string // that were given
	// barren are those of them that hold no file of a connection.
	barren []string
	locked map[string]bool // folders, as far as it was asked
	// known are the ids of which any file is here, side files included.
	known map[string]bool
	// orphans are the folders in which sidecars lie whose bytes are not here, by
	// connection and file number.
	orphans map[string]map[int64][]string
}

// Connection is one transport session in one direction.
type Connection struct {
	// ID from the file names, or made from a raw stream file's name.
	ID string
	// Protocol is a name of the registry, or "raw".
	Protocol  string
	Direction wire.Direction
	// Pair is the id of the other direction's connection, "" when not known;
	// it may not be among the inputs.
	Pair string
	// Endpoint as the recorder was told, "" when not known.
	Endpoint string
	// FirstArrival and LastArrival are nil when not known.
	FirstArrival, LastArrival *sidecar.Instant
	// Transport is how the connection ended, nil when not known.
	Transport *sidecar.Verdict
	// Files in order of number, without holes' files.
	Files []*File
	// Raw says that this is a stream file that no recorder of ours wrote.
	Raw bool
	// Findings about its files, places included: holes among them.
	Findings []wire.Finding
	// Refused is why nothing of it can be read: a *NoPlaceError.
	Refused error

	runs []*Run
	opt  InputOptions
	// accounted is the highest file number that is here or known to be missing.
	accounted int64
}

// Runs are the contiguous stretches of the connection, in order; none when it
// was Refused.
func (c *Connection) Runs() []*Run { return c.runs }

// File is one file of a connection.
type File struct {
	// Path to open it, and Name, its base name, to report it.
	Path, Name string
	// Number in its connection, from 1.
	Number int64
	// Start is the offset in the connection of its first byte.
	Start int64
	// Length is how many bytes of the connection it holds, decompressed.
	Length int64
	// Sealed files are complete and never change. A file that is not sealed
	// may be being written.
	Sealed     bool
	Compressed bool
	// Sidecar is what the file's sidecar says, as far as it fits the bytes;
	// nil without one. Context and Findings are left out, since a set of many
	// files would hold much: WholeSidecar has them.
	Sidecar *sidecar.Sidecar

	fs   vfs.FS
	conn string
	// side is the path of the sidecar that Sidecar was read from.
	side string
	// expected is Length as the sidecar says, -1 without one.
	expected int64
	size     int64 // on disk
	modified time.Time
}

// End is the offset behind the file's last byte.
func (f *File) End() int64 { return f.Start + f.Length }

// Modified is when the file was written last, as its file system says.
func (f *File) Modified() time.Time { return f.modified }

// Open gives the file's bytes, decompressed.
func (f *File) Open() (io.ReadCloser, error) { return f.openAt(0) }

// openAt gives the file's bytes from offset at in it on.
func (f *File) openAt(at int64) (io.ReadCloser, error) {
	src, compressed, err := f.source()
	if err != nil {
		return nil, &FileError{"open", f.Path, f.Start, err}
	}
	if !compressed {
		// A sealed file may have surplus bytes that are not part of it.
		n := max(f.Length-at, 0)
		return fileReader{io.NewSectionReader(src, at, n), src}, nil
	}
	size, err := src.Size()
	if err != nil {
		src.Close()
		return nil, &FileError{"stat", f.Path, f.Start, err}
	}
	from := int64(0)
	if t, ok := seekTable(src, size); ok && at > 0 {
		if e, ok := t.EntryByDecompressedOffset(uint64(at)); ok && e.CompressedOffset < uint64(size) {
			from, at = int64(e.CompressedOffset), at-int64(e.DecompressedOffset)
		}
	}
	z, err := zstdReader(io.NewSectionReader(src, from, size-from))
	if err != nil {
		src.Close()
		return nil, &FileError{"read", f.Path, f.Start, err}
	}
	if at > 0 {
		if _, err := io.CopyN(io.Discard, z, at); err != nil && err != io.EOF {
			z.Close()
			src.Close()
			return nil, &FileError{"read", f.Path, f.Start, err}
		}
	}
	return fileReader{z, closers{z, src}}, nil
}

// source opens the file's own bytes, under the name that it has by now; compressed
// says that this is the one of a compressed file.
func (f *File) source() (src vfs.File, compressed bool, err error) {
	src, err = f.fs.Open(f.Path)
	if !errors.Is(err, fs.ErrNotExist) {
		return src, f.Compressed, err
	}
	for _, p := range f.renamed() {
		if src, err := f.fs.Open(p); !errors.Is(err, fs.ErrNotExist) {
			return src, strings.HasSuffix(p, extCompressed), err
		}
	}
	return nil, false, err
}

// renamed are the names that the file may have got since its own was seen: one
// that was being written may have been sealed, a sealed one compressed.
func (f *File) renamed() []string {
	switch ParseName(filepath.Base(f.Path)).Form {
	case FormPartial:
		return []string{stemOf(f.Path) + extBytes, stemOf(f.Path) + extCompressed}
	case FormBytes:
		return []string{stemOf(f.Path) + extCompressed}
	case FormCompressed:
		return []string{stemOf(f.Path) + extBytes}
	}
	return nil
}

// gone says that the file is not here any more, under none of its names.
func (f *File) gone() bool {
	for _, p := range append(f.renamed(), f.Path) {
		if _, err := f.fs.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

type fileReader struct {
	io.Reader
	io.Closer
}

type closers []io.Closer

func (cs closers) Close() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// hash reads the whole file. n is its length as read, also when err is not nil.
func (f *File) hash(limit int64) (sum string, n int64, err error) {
	r, err := f.Open()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	h := sha256.New()
	var src io.Reader = r
	if limit >= 0 {
		src = io.LimitReader(r, limit)
	}
	n, err = io.CopyBuffer(struct{ io.Writer }{h}, src, make([]byte, 256<<10))
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// OpenInputs looks at inputs: each path is a capture directory, one of its
// files, or a raw stream file. It reads names, sidecars and first bytes, not
// whole files, and writes nothing. A path that is no input at all is a
// *NotCaptureError; if no connection has a place, the error is a *NoPlaceError.
// Everything else is a finding and the rest is used.
func OpenInputs(paths []string, opt InputOptions) (*Set, error) {
	if opt.FS == nil {
		opt.FS = vfs.OS
	}
	if opt.Registry == nil {
		opt.Registry = protocols.All()
	}
	if p := opt.Protocol; p != "" && p != ProtocolAuto && p != ProtocolRaw && opt.Registry.Named(p) == nil {
		return nil, fmt.Errorf("unknown protocol %s", wire.SafeText(p, 40))
	}
	in := &inputs{opt: opt, set: &Set{}, byID: map[string]*gathered{}, seen: map[string]bool{}, barren: map[string]bool{}, absentees: map[string]bool{}}
	sorted := append([]string(nil), paths...)
	sort.Strings(sorted)
	for _, p := range sorted {
		if err := in.path(p); err != nil {
			return nil, err
		}
	}
	// A folder's list may miss a file that gets its final name just then.
	for range holeTries {
		if !in.holes() {
			break
		}
		for _, dir := range in.folders {
			in.forget(dir)
			if err := in.folder(dir, folderTries); err != nil {
				return nil, err
			}
		}
	}
	if err := in.connections(); err != nil {
		return nil, err
	}
	if in.beside != nil && len(in.folders) == 0 && len(in.raws) == 0 && len(in.set.Connections) == 0 {
		return nil, in.beside
	}
	for _, dir := range in.folders {
		if in.barren[dir] {
			in.set.barren = append(in.set.barren, dir)
		}
	}
	in.set.fs, in.set.folders, in.set.known = opt.FS, in.folders, make(map[string]bool, len(in.byID))
	in.set.orphans = map[string]map[int64][]string{}
	for id, g := range in.byID {
		in.set.known[id] = true
		for n, dirs := range g.sides {
			if len(g.files[n]) > 0 {
				continue
			}
			if in.set.orphans[id] == nil {
				in.set.orphans[id] = map[int64][]string{}
			}
			in.set.orphans[id][n] = dirs
		}
	}
	return in.set, nil
}

// holeTries is how often folders are looked at again for files that seem to be
// missing.
const holeTries = 3

// holes says that a file number of a connection is missing.
func (in *inputs) holes() bool {
	for _, g := range in.byID {
		last := int64(0)
		for n := range g.files {
			last = max(last, n)
		}
		if int64(len(g.files)) != last {
			return true
		}
		for n := range g.sides {
			if n > last {
				return true
			}
		}
	}
	return false
}

// inputs gathers what the paths hold.
type inputs struct {
	opt  InputOptions
	set  *Set
	byID map[string]*gathered
	raws []*File
	seen map[string]bool
	// folders that were given, and what their journals say was pruned: nil
	// until it is asked for.
	folders []string
	pruned  map[string]bool
	// barren are folders without a file of any connection; beside is the first
	// file that was given and only describes others, or nil.
	barren map[string]bool
	beside *NotCaptureError
	// absentees are paths that a folder's list had and that led nowhere.
	absentees map[string]bool
}

// gathered is one connection's files and side files as they are found.
type gathered struct {
	files map[int64][]*File
	// sides are folders in which sidecars lie, by file number: also those
	// whose bytes are missing.
	sides map[int64][]string
}

func (in *inputs) path(p string) error {
	st, err := in.opt.FS.Stat(p)
	if err != nil {
		return fmt.Errorf("opening the input: %w", err)
	}
	if !st.Dir {
		return in.file(p, true)
	}
	in.folders = append(in.folders, p)
	return in.folder(p, folderTries)
}

// folderTries is how often a folder is listed anew because a file in it got
// another name.
const folderTries = 10

func (in *inputs) folder(p string, tries int) error {
	names, err := in.opt.FS.List(p)
	if err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	if err := isCapture(p, names); err != nil {
		return err
	}
	in.barren[p] = !slices.ContainsFunc(names, func(n string) bool { return ParseName(n).Connection != "" })
	again := false
	for _, n := range names {
		path := filepath.Join(p, n)
		err := in.file(path, false)
		var at *listedError
		switch {
		case errors.As(err, &at) && errors.Is(err, fs.ErrNotExist) && !in.absentees[path]:
			// A recorder sealed it meanwhile, or retention deleted it: what it
			// is now comes with another look.
			in.absentees[path], again = true, true
		case errors.As(err, &at):
			in.unreadable(path, at.err)
		case err != nil:
			return err
		}
	}
	if again && tries > 0 {
		in.forget(p)
		return in.folder(p, tries-1)
	}
	return nil
}

// listedError is why a capture file that a folder's list has can't be looked at.
type listedError struct{ err error }

func (e *listedError) Error() string { return e.err.Error() }
func (e *listedError) Unwrap() error { return e.err }

// unreadable takes a capture file that is listed and can't be looked at for one
// that is missing: everything else is read.
func (in *inputs) unreadable(p string, err error) {
	clean := filepath.Clean(p)
	if in.seen[clean] {
		return
	}
	in.seen[clean] = true
	n := ParseName(filepath.Base(p))
	name := wire.SafeText(filepath.Base(p), 200)
	why := cause(err)
	if errors.Is(err, fs.ErrNotExist) {
		why = "a link to a file that is not there"
	}
	in.set.Findings = append(in.set.Findings, wire.Finding{Kind: KindUnreadable, Connection: n.Connection, File: name,
		Message: name + " can't be read: " + why, Cost: "its bytes"})
	g := in.of(n.Connection)
	g.sides[n.Number] = append(g.sides[n.Number], filepath.Dir(p))
}

// isCapture refuses a folder that has no name of a capture in it.
func isCapture(dir string, names []string) error {
	for _, n := range names {
		switch ParseName(n).Form {
		case FormBytes, FormPartial, FormCompressed, FormJournal, FormLock:
			return nil
		}
	}
	if len(names) == 0 {
		return &NotCaptureError{Path: dir, What: "an empty folder"}
	}
	return &NotCaptureError{Path: dir, What: "a folder without capture files"}
}

// CheckDir refuses what is no capture directory: *NotCaptureError. Nil is the
// operating system's file system.
func CheckDir(fsys vfs.FS, dir string) error {
	if fsys == nil {
		fsys = vfs.OS
	}
	st, err := fsys.Stat(dir)
	if err != nil {
		return fmt.Errorf("the capture directory %s: %s", wire.SafeText(dir, 0), cause(err))
	}
	if !st.Dir {
		return &NotCaptureError{Path: dir, What: "no folder, and so no capture directory"}
	}
	names, err := fsys.List(dir)
	if err != nil {
		return &FileError{"list", dir, noOffset, err}
	}
	return isCapture(dir, names)
}

// forget drops the unsealed files of a folder, which may have other names now.
func (in *inputs) forget(dir string) {
	for _, g := range in.byID {
		for n, files := range g.files {
			kept := files[:0]
			for _, f := range files {
				if f.Sealed || filepath.Dir(f.Path) != filepath.Clean(dir) {
					kept = append(kept, f)
					continue
				}
				delete(in.seen, filepath.Clean(f.Path))
			}
			if g.files[n] = kept; len(kept) == 0 {
				delete(g.files, n)
			}
		}
	}
}

// file takes in one file: named says that it was given by its own path.
func (in *inputs) file(p string, named bool) error {
	clean := filepath.Clean(p)
	if in.seen[clean] {
		return nil
	}
	base := filepath.Base(p)
	n := ParseName(base)
	f := &File{Path: p, Name: wire.SafeText(base, 200), Number: n.Number, fs: in.opt.FS, expected: -1}
	switch n.Form {
	case FormJournal, FormLock, FormDestination, FormList, FormIndex, FormSums, FormTemporary:
		in.onlyBeside(p, n.Form, named)
		return nil
	case FormSidecar, FormOpening:
		in.onlyBeside(p, n.Form, named)
		in.seen[clean] = true
		g := in.of(n.Connection)
		if n.Form == FormSidecar {
			g.sides[n.Number] = append(g.sides[n.Number], filepath.Dir(p))
		}
		return nil
	case FormForeign:
		in.seen[clean] = true
		if !named {
			what := "a file that is no part of a capture, not read"
			if st, err := in.opt.FS.Stat(p); err == nil && st.Dir {
				what = "a folder, not looked into"
			}
			in.set.Findings = append(in.set.Findings, wire.Finding{Kind: KindForeign, File: f.Name,
				Message: f.Name + " is " + what})
			return nil
		}
		return in.raw(f)
	case FormBytes, FormCompressed:
		f.Sealed = true
		f.Compressed = n.Form == FormCompressed
	}
	st, err := in.opt.FS.Stat(p)
	switch {
	case err != nil && !named:
		return &listedError{err}
	case err != nil:
		return fmt.Errorf("opening the input: %w", err)
	}
	if !st.Regular {
		in.seen[clean] = true
		in.set.Findings = append(in.set.Findings, wire.Finding{Kind: KindForeign, File: f.Name,
			Message: f.Name + " has the name of a capture file and is none: neither a file nor a link to one; it is not read"})
		return nil
	}
	f.size, f.modified = st.Size, st.ModTime
	in.seen[clean] = true
	g := in.of(n.Connection)
	g.files[n.Number] = append(g.files[n.Number], f)
	if named {
		// A file given alone still has its sidecar beside it.
		g.sides[n.Number] = append(g.sides[n.Number], filepath.Dir(p))
	}
	return nil
}

// besides say what the files of a capture are that hold no bytes of it.
var besides = map[Form]string{
	FormJournal:     "the journal of a directory: give the folder, or its .cap files",
	FormLock:        "the lock of a directory: give the folder, or its .cap files",
	FormDestination: "the mark of a directory that is shipped to: give the folder, or its .cap files",
	FormList:        "the list of a directory for the viewer: give the folder, or its .cap files",
	FormIndex:       "an arrival index: give the .cap file beside it",
	FormSums:        "the sums of one: give the .cap file beside it",
	FormSidecar:     "the sidecar of one: give the .cap file beside it",
	FormOpening:     "the sidecar of one: give the .cap.partial file beside it",
	FormTemporary:   "one that was being written",
}

// onlyBeside remembers a file that was given and is no input by itself: it is
// none at all when nothing else was given.
func (in *inputs) onlyBeside(p string, form Form, named bool) {
	if named && in.beside == nil {
		in.beside = &NotCaptureError{Path: p, What: "no capture file; it is " + besides[form]}
	}
}

func (in *inputs) of(id string) *gathered {
	g := in.byID[id]
	if g == nil {
		g = &gathered{files: map[int64][]*File{}, sides: map[int64][]string{}}
		in.byID[id] = g
	}
	return g
}

// raw takes in a file that is a whole connection by itself.
func (in *inputs) raw(f *File) error {
	f.Number = 1
	st, err := in.opt.FS.Stat(f.Path)
	if err != nil {
		return fmt.Errorf("opening the input: %w", err)
	}
	f.size, f.Length, f.modified = st.Size, st.Size, st.ModTime
	if st.Size == 0 && st.Regular {
		return &NotCaptureError{Path: f.Path, What: "an empty file"}
	}
	if !st.Regular {
		return &NotCaptureError{Path: f.Path, What: "neither a file nor a folder"}
	}
	prefix, err := f.prefix()
	if err != nil {
		return err
	}
	if isZstd(prefix) {
		f.Compressed = true
		if _, f.Length, err = f.hash(-1); err != nil {
			return &NotCaptureError{Path: f.Path, What: "zstd data that does not decompress: " + err.Error()}
		}
		if prefix, err = f.prefix(); err != nil {
			return err
		}
	}
	if in.opt.Protocol == "" || in.opt.Protocol == ProtocolAuto {
		if p, _, _ := in.opt.Registry.Detect(prefix, true); p == nil {
			if what := sniff(prefix); what != "" {
				return &NotCaptureError{Path: f.Path, What: what}
			}
			return &NotCaptureError{Path: f.Path, What: "no stream of a known protocol", Readable: true}
		}
	}
	in.raws = append(in.raws, f)
	return nil
}

// prefix is what a detector is given.
func (f *File) prefix() ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, min(wire.DetectLimit, max(f.Length, 0)))
	n, err := io.ReadFull(r, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, &FileError{"read", f.Path, f.Start, err}
	}
	return b[:n], nil
}

// connections makes the set of what was gathered.
func (in *inputs) connections() error {
	for id, g := range in.byID {
		for len(g.files) > 0 {
			c := &Connection{ID: id, opt: in.opt}
			gone := in.assemble(c, g)
			if gone == nil {
				in.set.Connections = append(in.set.Connections, c)
				break
			}
			in.drop(g, gone)
		}
		if len(g.files) == 0 {
			in.absent(id, g)
			if len(g.sides) == 0 {
				// Only a journal may know of it now.
				delete(in.byID, id)
			}
		}
	}
	if err := in.rawConnections(); err != nil {
		return err
	}
	cs := in.set.Connections
	sort.Slice(cs, func(i, j int) bool { return cs[i].ID < cs[j].ID })
	sortFindings(in.set.Findings)
	placed := false
	var refused error
	for _, c := range cs {
		placed = placed || c.Refused == nil
		if refused == nil {
			refused = c.Refused
		}
	}
	if !placed && refused != nil {
		return refused
	}
	return nil
}

func sortFindings(fs []wire.Finding) {
	sort.SliceStable(fs, func(i, j int) bool {
		a, b := &fs[i], &fs[j]
		if a.File != b.File {
			return a.File < b.File
		}
		return a.Offset < b.Offset
	})
}

// rawConnections makes one connection of each raw file. Equal bytes are one.
func (in *inputs) rawConnections() error {
	byName := map[string][]*File{}
	for _, f := range in.raws {
		byName[f.Name] = append(byName[f.Name], f)
	}
	for name, files := range byName {
		sums := map[string]bool{}
		for _, f := range files {
			id := name
			if len(files) > 1 {
				sum, _, err := f.hash(-1)
				if err != nil {
					return &FileError{"read", f.Path, 0, err}
				}
				if sums[sum] {
					in.set.Findings = append(in.set.Findings, wire.Finding{Kind: KindDoubled, File: f.Name,
						Message: f.Name + " was given more than once with the same bytes; it is used once"})
					continue
				}
				sums[sum] = true
				id += "~" + sum[:8]
			}
			c := &Connection{ID: id, Raw: true, Files: []*File{f}, opt: in.opt}
			c.runs = []*Run{{conn: c, Start: 0, Files: c.Files}}
			if err := c.detect(); err != nil {
				return err
			}
			in.set.Connections = append(in.set.Connections, c)
		}
	}
	return nil
}

// drop takes out a file that went away since it was listed. The journal is asked
// anew whether retention deleted it.
func (in *inputs) drop(g *gathered, gone *File) {
	left := slices.DeleteFunc(g.files[gone.Number], func(f *File) bool { return f == gone })
	if g.files[gone.Number] = left; len(left) == 0 {
		delete(g.files, gone.Number)
	}
	in.pruned = nil
}

// assemble puts the files of a connection in their places. It ends at a file that
// is not there any more.
func (in *inputs) assemble(c *Connection, g *gathered) (gone *File) {
	numbers := make([]int64, 0, len(g.files))
	for n := range g.files {
		numbers = append(numbers, n)
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	bare := int64(0)
	firstBare := ""
	for _, n := range numbers {
		for _, f := range g.files[n] {
			if !in.describe(c, f) {
				return f
			}
		}
		f, gone := c.choose(g.files[n])
		if gone != nil {
			return gone
		}
		c.Files = append(c.Files, f)
		if f.Sidecar == nil && f.expected < 0 && f.size > 0 {
			if bare++; firstBare == "" {
				firstBare = f.Name
			}
		}
	}
	if bare > 0 {
		c.add(wire.Finding{Kind: KindSidecarMissing, File: firstBare,
			Message: wire.Itoa(bare) + " of " + wire.Itoa(int64(len(c.Files))) + " files have no sidecar that can be used",
			Cost:    "their arrival times, and their context if they are read alone"})
	}
	in.place(c, g)
	c.summary()
	if c.Refused == nil {
		err := c.detect()
		if errors.Is(err, fs.ErrNotExist) {
			return c.Files[0]
		}
		if err != nil {
			c.add(wire.Finding{Kind: KindUnreadable, File: c.Files[0].Name, Message: c.Files[0].Name + " can't be read: " + cause(err)})
		}
	}
	sortFindings(c.Findings)
	return nil
}

func (c *Connection) add(f wire.Finding) {
	f.Connection = c.ID
	c.Findings = append(c.Findings, f)
}

// describe finds out a file's length and reads its sidecar, unless that is
// known from an earlier look. It is false for a file that is not there any more.
func (in *inputs) describe(c *Connection, f *File) bool {
	if known, ok := in.opt.Cache.get(f, f.modified); ok {
		fs := f.fs
		*f = known.file
		f.fs = fs
		c.Findings = append(c.Findings, known.findings...)
		return true
	}
	before := len(c.Findings)
	if !in.look(c, f) {
		return false
	}
	in.opt.Cache.put(f, f.modified, c.Findings[before:])
	return true
}

func (in *inputs) look(c *Connection, f *File) bool {
	f.conn = c.ID
	side, finding := in.sidecar(c.ID, f)
	if side == nil && finding == nil && f.gone() {
		return false
	}
	if finding != nil {
		c.add(*finding)
	}
	if f.Sidecar = side; side != nil {
		side.Context, side.Findings = nil, nil
	}
	f.Length = f.size
	if side != nil && !side.Open {
		f.expected = side.Length
	}
	if f.Compressed {
		f.Length = f.expected
		if !f.sizesAgree() {
			// Counting is what is left to find its length.
			_, n, err := f.hash(-1)
			f.Length = n
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return false
			case err != nil && n == 0 && notZstd(err):
				c.add(wire.Finding{Kind: KindUnreadable, File: f.Name, Message: f.Name + " can't be read: " + cause(err), Cost: "its bytes"})
			case err != nil:
				c.add(wire.Finding{Kind: KindDamagedZstd, File: f.Name, Offset: n,
					Message: f.Name + " decompresses only up to byte " + wire.Itoa(n) + ": " + cause(err),
					Cost:    "the bytes behind that"})
			}
		}
	}
	if f.expected < 0 || f.Length == f.expected {
		return true
	}
	if !f.Sealed {
		in.unsealed(f)
		return true
	}
	if f.Length > f.expected {
		// Bytes that the hash proves are the file; what follows is not.
		if sum, n, err := f.hash(f.expected); err == nil && n == f.expected && sum == side.SHA256 {
			c.add(wire.Finding{Kind: KindSurplusBytes, File: f.Name, Offset: side.End(), Length: f.Length - f.expected,
				Want: wire.Itoa(f.expected) + " bytes", Got: wire.Itoa(f.Length) + " bytes",
				Message: f.Name + " has " + wire.Count(f.Length-f.expected, "byte") + " behind those that its sidecar proves, not used"})
			f.Length = f.expected
			return true
		}
		c.add(wire.Finding{Kind: KindSidecarStale, File: f.Name, Offset: side.Start,
			Want: wire.Itoa(f.expected) + " bytes", Got: wire.Itoa(f.Length) + " bytes",
			Message: "the sidecar of " + f.Name + " does not fit its bytes; the bytes are used as they are"})
		f.Sidecar, f.expected = nil, f.Length
		return true
	}
	c.add(wire.Finding{Kind: KindShortFile, File: f.Name, Offset: side.Start + f.Length, Length: f.expected - f.Length,
		Want: wire.Itoa(f.expected) + " bytes", Got: wire.Itoa(f.Length) + " bytes",
		Message: f.Name + " is short: got " + wire.Itoa(f.Length) + " of " + wire.Itoa(f.expected) + " bytes",
		Cost:    wire.Count(f.expected-f.Length, "byte") + " missing"})
	return true
}

// notZstd says that an error is not one of the compressed bytes themselves, but of
// the file.
func notZstd(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe)
}

// sidecar reads a file's sidecar; one that does not belong to it is a finding.
func (in *inputs) sidecar(id string, f *File) (*sidecar.Sidecar, *wire.Finding) {
	f.side = stemOf(f.Path) + extSidecar
	s, finding := in.readSidecar(id, f, f.side)
	if s == nil && finding == nil && !f.Sealed {
		f.side = stemOf(f.Path) + extOpening
		s, finding = in.readSidecar(id, f, f.side)
		if s == nil && finding == nil {
			// It may have been sealed between the two looks.
			f.side = stemOf(f.Path) + extSidecar
			s, finding = in.readSidecar(id, f, f.side)
		}
		if f.size == 0 && s == nil {
			// It is just being made: the bytes come after the sidecar.
			return nil, nil
		}
	}
	if s != nil && s.Open && f.Sealed {
		return nil, &wire.Finding{Kind: KindSidecarStale, File: f.Name,
			Message: "the sidecar of " + f.Name + " is from before the file was sealed; it is not used"}
	}
	return s, finding
}

// unsealed takes a file that has a sidecar of another length and not yet its
// final name: it was being sealed while we looked, or its recorder died after a
// seal that failed. Its bytes are what counts.
func (in *inputs) unsealed(f *File) {
	if st, err := in.opt.FS.Stat(f.Path); err == nil {
		f.size, f.Length = st.Size, st.Size
	}
	if f.Length == f.expected {
		return
	}
	f.expected = -1
	side := *f.Sidecar
	side.Open = true
	f.Sidecar = &side
}

// WholeSidecar reads the file's sidecar again, with its context and findings;
// nil where Sidecar is nil, and when it is not there any more.
func (f *File) WholeSidecar() *sidecar.Sidecar {
	if f.Sidecar == nil {
		return nil
	}
	b, err := vfs.ReadFile(f.fs, f.side, sidecar.MaxSize)
	if err != nil {
		return nil
	}
	s, err := sidecar.Parse(b)
	if err != nil || s.Connection != f.conn || s.Number != f.Number {
		return nil
	}
	return s
}

// findings are the sidecar's.
func (f *File) findings() []sidecar.Finding {
	if s := f.WholeSidecar(); s != nil {
		return s.Findings
	}
	return nil
}

// context is the sidecar's, nil without one.
func (f *File) context() *wire.Context {
	if s := f.WholeSidecar(); s != nil {
		return s.Context.Wire()
	}
	return nil
}

func (in *inputs) readSidecar(id string, f *File, path string) (*sidecar.Sidecar, *wire.Finding) {
	b, err := vfs.ReadFile(in.opt.FS, path, sidecar.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	bad := func(kind, msg string) (*sidecar.Sidecar, *wire.Finding) {
		return nil, &wire.Finding{Kind: kind, File: f.Name, Message: msg + "; it is not used"}
	}
	if err != nil {
		return bad(KindSidecarInvalid, "the sidecar of "+f.Name+" can't be read: "+cause(err))
	}
	s, err := sidecar.Parse(b)
	if err != nil {
		return bad(KindSidecarInvalid, "the sidecar of "+f.Name+" is damaged: "+wire.SafeText(err.Error(), 300))
	}
	if s.Connection != id || s.Number != f.Number {
		return bad(KindSidecarStale, "the sidecar of "+f.Name+" is that of file "+wire.Itoa(s.Number)+" of "+wire.SafeText(s.Connection, 60))
	}
	return s, nil
}

// choose takes one of the files that have the same number: the one whose
// sidecar fits, then a sealed one, then the longest, then by its hash. gone is one
// that is not there any more.
func (c *Connection) choose(files []*File) (best, gone *File) {
	if len(files) == 1 {
		return files[0], nil
	}
	type candidate struct {
		f    *File
		sum  string
		fits bool
	}
	var cs []candidate
	for _, f := range files {
		sum, n, err := f.hash(-1)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, f
		}
		if err != nil {
			c.add(wire.Finding{Kind: KindUnreadable, File: f.Name, Offset: n, Message: cause(err)})
		}
		cs = append(cs, candidate{f: f, sum: sum, fits: err == nil && f.Sidecar != nil && f.Sidecar.SHA256 == sum})
	}
	sort.SliceStable(cs, func(i, j int) bool {
		a, b := cs[i], cs[j]
		switch {
		case a.fits != b.fits:
			return a.fits
		case a.f.Sealed != b.f.Sealed:
			return a.f.Sealed
		case a.f.Length != b.f.Length:
			return a.f.Length > b.f.Length
		case a.sum != b.sum:
			return a.sum < b.sum
		case (a.f.Sidecar != nil) != (b.f.Sidecar != nil):
			return a.f.Sidecar != nil
		}
		return !a.f.Compressed && b.f.Compressed
	})
	first := cs[0]
	for _, o := range cs[1:] {
		if o.sum == first.sum {
			continue
		}
		if o.f.Length < first.f.Length && first.f.startsWith(o.f, o.sum) {
			c.add(wire.Finding{Kind: KindDoubled, File: o.f.Name, Length: o.f.Length,
				Message: o.f.Name + " was given twice, " + wire.SafeText(o.f.Path, 0) + " as the first " + wire.Count(o.f.Length, "byte") + " of " + wire.SafeText(first.f.Path, 0) + ", which is used"})
			continue
		}
		// Both have one name: their paths tell them apart.
		used, other := wire.SafeText(first.f.Path, 0), wire.SafeText(o.f.Path, 0)
		why := "neither can be proved, " + used + " is used"
		if first.fits {
			why = "the one that its sidecar proves is used"
		}
		c.add(wire.Finding{Kind: KindConflict, File: o.f.Name,
			Want: first.sum, Got: o.sum,
			Message: "file " + wire.Itoa(first.f.Number) + " of " + c.ID + " was given with different bytes, as " + used + " and as " + other + "; " + why,
			Cost:    wire.Count(o.f.Length, "byte") + " not used"})
	}
	return first.f, nil
}

// startsWith says that the first bytes of f are those of o, whose hash is sum.
func (f *File) startsWith(o *File, sum string) bool {
	mine, n, err := f.hash(o.Length)
	return err == nil && n == o.Length && mine == sum
}

// summary takes over what sidecars say of the whole connection.
func (c *Connection) summary() {
	for _, f := range c.Files {
		s := f.Sidecar
		if s == nil {
			continue
		}
		if c.Protocol == "" && s.Protocol != ProtocolRaw && s.Protocol != ProtocolAuto {
			c.Protocol = s.Protocol
		}
		if c.Direction == wire.DirectionUnknown {
			c.Direction = wire.ParseDirection(s.Direction)
		}
		if c.Pair == "" {
			c.Pair = wire.SafeText(s.Pair, 60)
		}
		if c.Endpoint == "" {
			c.Endpoint = wire.SafeText(s.Endpoint, 300)
		}
		if c.FirstArrival == nil {
			c.FirstArrival = s.FirstArrival
		}
		if s.LastArrival != nil {
			c.LastArrival = s.LastArrival
		}
		if s.Transport != nil {
			c.Transport = s.Transport
		}
	}
}

// detect settles the connection's protocol: the forced one, else what the bytes
// say, else what the sidecars say, else raw.
func (c *Connection) detect() error {
	if p := c.opt.Protocol; p != "" && p != ProtocolAuto {
		c.Protocol = p
		c.beheaded()
		return nil
	}
	said := c.Protocol
	if len(c.runs) > 0 && c.runs[0].Start == 0 && c.runs[0].Context == nil {
		prefix, err := c.runs[0].Files[0].prefix()
		if err != nil {
			if c.Protocol == "" || c.opt.Registry.Named(c.Protocol) == nil {
				c.Protocol = ProtocolRaw
			}
			return err
		}
		p, d, _ := c.opt.Registry.Detect(prefix, true)
		if p != nil {
			if said != "" && said != p.Name() {
				c.add(wire.Finding{Kind: KindProtocol, File: c.runs[0].Files[0].Name, Want: wire.SafeText(said, 40), Got: p.Name(),
					Message: "the sidecar says " + wire.SafeText(said, 40) + ", the bytes are " + p.Name()})
			}
			c.Protocol = p.Name()
			for _, r := range c.runs {
				// Placed before the protocol was known.
				if r.Context != nil && r.Context.Protocol == ProtocolRaw {
					r.Context = wire.MidStream(c.Protocol)
				}
			}
			if d != wire.DirectionUnknown {
				c.Direction = d
			}
			return nil
		}
	}
	if c.Protocol == "" || c.opt.Registry.Named(c.Protocol) == nil {
		c.Protocol = ProtocolRaw
	}
	return nil
}

// beheaded takes it from whoever opens the inputs that a stream of a protocol that
// can't tell so begins in the middle of a connection.
func (c *Connection) beheaded() {
	_, unmarked := c.opt.Registry.Named(c.Protocol).(wire.Unmarked)
	if !unmarked || !c.Raw || c.opt.Context == nil || len(c.runs) == 0 {
		return
	}
	c.runs[0].Context = c.opt.Context
	c.add(wire.Finding{Kind: KindMissingFiles, File: c.Files[0].Name,
		Message: "what came before " + c.Files[0].Name + " is not here: it is read from the middle of a connection, as was said",
		Cost:    "bytes of unknown number are missing"})
}

// Decoder starts a decoder of the connection's protocol at the start of a run;
// nil for raw bytes.
func (c *Connection) Decoder(r *Run) (wire.Decoder, error) {
	p := c.opt.Registry.Named(c.Protocol)
	if p == nil {
		return nil, nil
	}
	// A file that was cut by bytes begins anywhere in a frame.
	first := r.Files[0]
	inside := first.Start > 0 && first.Sidecar != nil && !first.Sidecar.StartsAtBoundary
	return p.Open(wire.Config{Direction: c.Direction, Context: r.Context, Unaligned: inside, Named: c.opt.Protocol == c.Protocol})
}
