// Package ship copies sealed capture files to other places.
//
// A file goes with its side files: the arrival index and the sidecar first, then
// the bytes, and the sums last, so that whoever looks at the destination at any
// time finds each capture file described, and sha256sum -c at peace. Each is
// read while its hash is made, held against its sidecar, written under a
// temporary name, synced, read back and held against the hash, and then gets its
// name; after that the journal says that the capture file was shipped, which is
// what retention goes by. A pass that is broken off anywhere is taken up by the
// next one, and nothing is ever replaced at the destination.
package ship

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// The kinds of findings of shipping.
const (
	// KindDamagedSource: a capture file's bytes are not those that its sidecar
	// describes. It is not shipped.
	KindDamagedSource = "damaged-source"
	// KindOccupied: the destination has another file of the same name. It is
	// left as it is.
	KindOccupied = "name-occupied"
	// KindNoSidecar: nothing describes the file; it is shipped as it is.
	KindNoSidecar = "no-sidecar"
	// KindNothing: nothing was ever recorded in the directory.
	KindNothing = capture.KindNothing
	// KindMissingThere: a file that was shipped is not, or not whole, at the
	// destination any more; a recheck shipped it again.
	KindMissingThere = "missing-at-destination"
)

// Options are how files are shipped.
type Options struct {
	// FS is where the capture directory is; nil is the operating system's.
	FS vfs.FS
	// Clock is for the journal; nil is capture.SystemClock.
	Clock capture.Clock
	// Zstd compresses the bytes of capture files, so that a reader can seek.
	Zstd bool
	// Recheck reads everything that was shipped before at the destination.
	Recheck bool
	// Progress is called with bytes done and in all, as far as is known.
	Progress func(done, total int64)
	// Log is for what happens; nil is slog.Default.
	Log *slog.Logger
}

// Report is what shipping did.
type Report struct {
	Verdict string `json:"verdict"`
	Dest    string `json:"dest"`
	// Shipped capture files now, their bytes as recorded and as stored there;
	// Already counts those that were there whole before.
	Shipped int64 `json:"shipped"`
	Bytes   int64 `json:"bytes"`
	Stored  int64 `json:"stored"`
	Already int64 `json:"already"`
	// Unfinished files are still being written, and ship once they are sealed.
	Unfinished int64          `json:"unfinished"`
	Findings   []wire.Finding `json:"-"`
	Errors     []string       `json:"errors"`

	counted map[string]bool // the files in Shipped and Already
}

// already counts a file that was there, unless this report knows of it.
func (r *Report) already(i item) {
	if !r.counted[i.mark()] {
		r.counted[i.mark()] = true
		r.Already++
	}
}

// Shipper ships one capture directory to one destination.
type Shipper struct {
	dir  string
	dest Dest
	opt  Options
	fs   vfs.FS
	log  *slog.Logger

	done     map[string]string // of files shipped before: base name of the .cap to SHA-256
	known    bool              // done holds what the journal says
	reported map[string]bool
	watching bool
	// sealedOnce says that the journal knows of a sealed file, which may have
	// been pruned since.
	sealedOnce bool
}

// New makes a shipper for a capture directory, which must exist.
func New(dir string, dest Dest, o Options) (*Shipper, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Clock == nil {
		o.Clock = capture.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	st, err := o.FS.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("the capture directory: %w", err)
	}
	if !st.Dir {
		return nil, fmt.Errorf("%s is no capture directory", wire.SafeText(dir, 0))
	}
	if f, ok := dest.(*Folder); ok {
		if abs, err := filepath.Abs(dir); err == nil && samePlace(abs, f.path) {
			return nil, errors.New("the destination is the capture directory itself")
		}
	}
	return &Shipper{dir: dir, dest: dest, opt: o, fs: o.FS, log: o.Log, done: map[string]string{}, reported: map[string]bool{}}, nil
}

// samePlace says that two paths are one folder, as far as the system can tell.
func samePlace(a, b string) bool {
	if a == b {
		return true
	}
	sa, erra := os.Stat(a)
	sb, errb := os.Stat(b)
	return erra == nil && errb == nil && os.SameFile(sa, sb)
}

// item is one capture file with what lies beside it.
type item struct {
	stem  string
	bytes string // base name of the .cap or .cap.zst
	form  capture.Form
	sides []string // base names of what goes before the bytes
	size  int64
}

// mark is the file's name in the journal.
func (i item) mark() string { return i.stem + ".cap" }

// Pass ships what is sealed and not yet shipped. Findings are in the report; an
// error means that the pass could not go on.
func (s *Shipper) Pass(ctx context.Context, rep *Report) error {
	lock, err := s.dest.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.readJournal(); err != nil {
		return err
	}
	items, unfinished, err := s.sealed()
	if err != nil {
		return err
	}
	rep.Unfinished = unfinished
	if len(items) == 0 && unfinished == 0 && !s.watching && !s.sealedOnce {
		s.find(rep, wire.Finding{Kind: KindNothing, Message: "nothing was recorded in " + wire.SafeText(s.dir, 0) + ": there is nothing to ship"})
	}
	if rep.counted == nil {
		rep.counted = map[string]bool{}
	}
	var total, done int64
	for _, i := range items {
		if s.done[i.mark()] == "" || s.opt.Recheck {
			total += i.size
		}
	}
	for _, i := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := s.done[i.mark()]
		if before != "" && !s.opt.Recheck {
			rep.already(i)
			continue
		}
		if before != "" {
			err = s.recheck(ctx, i, rep)
		} else {
			err = s.ship(ctx, i, rep)
		}
		if err != nil {
			return fmt.Errorf("shipping %s: %w", i.bytes, err)
		}
		done += i.size
		s.opt.Progress(done, total)
	}
	return nil
}

// readJournal learns what was shipped to this destination before.
func (s *Shipper) readJournal() error {
	if s.known {
		return nil // since then this shipper is who writes it
	}
	j, err := capture.ReadJournal(s.fs, s.dir)
	if err != nil {
		return err
	}
	for _, e := range j.Entries {
		s.sealedOnce = s.sealedOnce || e.Event == capture.EventSeal || e.Event == capture.EventRecover
		if e.Event == capture.EventShip && e.Dest == s.dest.String() {
			s.done[e.File] = e.SHA256
		}
	}
	s.known = true
	return nil
}

// sealed lists the directory's sealed files in order.
func (s *Shipper) sealed() (items []item, unfinished int64, err error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, 0, fmt.Errorf("listing %s: %w", wire.SafeText(s.dir, 0), err)
	}
	var cur item
	flush := func() {
		if cur.bytes != "" {
			items = append(items, cur)
		}
	}
	for _, name := range names {
		n := capture.ParseName(name)
		if n.Connection == "" {
			continue
		}
		// Without the ending; the number has eight digits.
		stem := name[:len(n.Connection)+1+8]
		if stem != cur.stem {
			flush()
			cur = item{stem: stem}
		}
		switch n.Form {
		case capture.FormPartial:
			unfinished++
		case capture.FormBytes, capture.FormCompressed:
			if cur.bytes != "" {
				// Both forms of one file: the bytes as they came go first.
				continue
			}
			st, err := s.fs.Stat(filepath.Join(s.dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // pruned meanwhile
			}
			if err != nil {
				return nil, 0, err
			}
			if !st.Regular {
				continue
			}
			cur.bytes, cur.form, cur.size = name, n.Form, st.Size
		case capture.FormIndex, capture.FormSidecar:
			cur.sides = append(cur.sides, name)
		}
	}
	flush()
	return items, unfinished, nil
}

// errDamaged says that bytes are not those that their sidecar describes.
var errDamaged = errors.New("the bytes differ from what the sidecar says")

// piece is one file on its way: what it is called here and there, and what is
// known of its bytes.
type piece struct {
	from, to string
	// want is the SHA-256 of the recorded bytes, "" when not known.
	want     string
	compress bool
	// expect is what the sums at the destination say of what is stored, "" when
	// there are none.
	expect string
	// there says that the destination has it already.
	there bool
	// stored and plain are the SHA-256 of what is stored there and of the
	// recorded bytes, size how many bytes are stored.
	stored, plain string
	size          int64
}

// occupiedError says that the destination has another file of a name.
type occupiedError struct{ name string }

func (e *occupiedError) Error() string { return e.name + ": " + fs.ErrExist.Error() }

// ship copies one file with its side files, and has the journal say so. What is
// there already, in either form, is held against what is here before anything
// is written: of a file that can't be whole there nothing is.
func (s *Shipper) ship(ctx context.Context, i item, rep *Report) error {
	want, start, err := s.described(i, rep)
	if err != nil {
		return err
	}
	pieces, summed, err := s.compare(ctx, i, want)
	wrote := false
	for k := 0; err == nil && k < len(pieces); k++ {
		if p := &pieces[k]; !p.there {
			wrote = true
			err = s.put(ctx, i.stem, p)
		}
	}
	if err == nil && !summed {
		wrote = true
		err = s.putSums(ctx, i, pieces)
	}
	var taken *occupiedError
	data := pieces[len(pieces)-1]
	switch {
	case errors.Is(err, errDamaged):
		s.find(rep, wire.Finding{Kind: KindDamagedSource, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes, Offset: start,
			Want: want, Got: data.plain, Message: "the file's SHA-256 is not the one in its sidecar: it is not shipped",
			Cost: "the file is only here"})
		return nil
	case errors.As(err, &taken):
		s.find(rep, wire.Finding{Kind: KindOccupied, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
			Message: "the destination has another file named " + wire.SafeText(taken.name, 200) + ": it is left as it is", Cost: "the file is not shipped"})
		return nil
	case err != nil:
		return err
	}
	e := capture.Entry{Event: capture.EventShip, File: i.mark(), Bytes: i.size, SHA256: data.plain, Dest: s.dest.String()}
	if err := capture.Append(s.fs, s.dir, true, capture.Stamp(e, s.opt.Clock.Now())); err != nil {
		return err
	}
	s.done[i.mark()] = data.plain
	if !wrote {
		rep.already(i)
		return nil
	}
	rep.counted[i.mark()] = true
	rep.Shipped++
	rep.Bytes += i.size
	rep.Stored += data.size
	s.log.Info("shipped", "file", i.bytes, "dest", s.dest.String())
	return nil
}

// compare gives the pieces of a file, the bytes last, each held against what
// the destination has of it, and whether the sums are there. An
// *occupiedError names what is there and is another's.
func (s *Shipper) compare(ctx context.Context, i item, want string) (pieces []piece, summed bool, err error) {
	for _, side := range i.sides {
		pieces = append(pieces, piece{from: side, to: side})
	}
	sums, summed, err := s.sumsThere(ctx, i)
	if err != nil {
		return append(pieces, piece{from: i.bytes}), false, err
	}
	name, err := s.formThere(ctx, i, sums)
	pieces = append(pieces, piece{from: i.bytes, to: name, want: want,
		compress: strings.HasSuffix(name, ".zst") && i.form != capture.FormCompressed})
	if err != nil {
		return pieces, false, err
	}
	for k := range pieces {
		if err := s.look(ctx, &pieces[k]); err != nil {
			return pieces, false, err
		}
	}
	if !summed {
		return pieces, false, nil
	}
	for k := range pieces {
		p := &pieces[k]
		if p.expect = sums[p.to]; p.expect == "" || len(sums) != len(pieces) || p.there && p.expect != p.stored {
			return pieces, false, &occupiedError{i.stem + ".sha256"}
		}
	}
	return pieces, true, nil
}

// maxSums is how long a file's sums may be.
const maxSums = 64 << 10

// sumsThere reads the sums that the destination has of a file: hashes by name.
func (s *Shipper) sumsThere(ctx context.Context, i item) (sums map[string]string, there bool, err error) {
	name := i.stem + ".sha256"
	f, err := s.dest.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSums+1))
	if err != nil {
		return nil, false, err
	}
	sums = map[string]string{}
	for line := range strings.Lines(string(text)) {
		hex, file, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(text) > maxSums {
			return nil, false, &occupiedError{name}
		}
		sums[file] = hex
	}
	return sums, true, nil
}

// formThere is the name that the bytes get at the destination. What lies there
// in the other form already, or is to lie there by its sums, stays in it.
func (s *Shipper) formThere(ctx context.Context, i item, sums map[string]string) (string, error) {
	name, other := i.stem+".cap", i.stem+".cap.zst"
	if s.opt.Zstd || i.form == capture.FormCompressed {
		name, other = other, name
	}
	if sums[name] != "" {
		return name, nil
	}
	f, err := s.dest.Open(ctx, other)
	if err == nil {
		return other, f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return name, err
	}
	if i.form != capture.FormCompressed && sums[other] != "" {
		name = other
	}
	return name, nil
}

// described reads what the sidecar says the bytes hash to, "" without one.
func (s *Shipper) described(i item, rep *Report) (sha string, start int64, err error) {
	name := i.stem + ".json"
	text, err := vfs.ReadFile(s.fs, filepath.Join(s.dir, name), sidecar.MaxSize)
	if err == nil {
		if sc, perr := sidecar.Parse(text); perr == nil && !sc.Open {
			return sc.SHA256, sc.Start, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrTooLarge) {
		return "", 0, err
	}
	s.find(rep, wire.Finding{Kind: KindNoSidecar, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
		Message: "no sidecar describes the file: it is shipped as it is"})
	return "", 0, nil
}

// maxFindings bounds a report that a watch adds to for months.
const maxFindings = 1000

// find reports a finding once.
func (s *Shipper) find(rep *Report, f wire.Finding) {
	key := f.Kind + " " + f.File
	if s.reported[key] {
		return
	}
	s.reported[key] = true
	if s.watching {
		// Its report may be months away.
		s.log.Error("finding", "kind", f.Kind, "file", f.File, "message", f.Message)
	}
	if len(rep.Findings) < maxFindings {
		rep.Findings = append(rep.Findings, f)
	}
}

// source opens a file of the directory.
func (s *Shipper) source(name string) (io.ReadCloser, error) {
	f, err := s.fs.Open(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	return readCloser{io.NewSectionReader(f, 0, n), f}, nil
}

// look holds a piece against what the destination has of that name: from a pass
// that was broken off, from another shipper, or another file. Only the bytes
// tell.
func (s *Shipper) look(ctx context.Context, p *piece) error {
	there, err := s.dest.Open(ctx, p.to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	stored, thereplain, n, therr := digest(there, strings.HasSuffix(p.to, ".zst"))
	there.Close()
	src, err := s.source(p.from)
	if err != nil {
		return err
	}
	_, p.plain, _, err = digest(src, strings.HasSuffix(p.from, ".zst"))
	src.Close()
	switch {
	case err != nil:
		return err
	case p.want != "" && p.plain != p.want:
		return errDamaged
	case therr != nil || thereplain != p.plain:
		return &occupiedError{p.to}
	}
	p.there, p.stored, p.size = true, stored, n
	return nil
}

// put copies a piece to the destination and fills in what is stored there.
func (s *Shipper) put(ctx context.Context, stem string, p *piece) error {
	zst := strings.HasSuffix(p.to, ".zst")
	out := sha256.New()
	var count counter
	err := s.dest.Put(ctx, p.to, func(w io.Writer) error {
		src, err := s.source(p.from)
		if err != nil {
			return err
		}
		defer src.Close()
		w = io.MultiWriter(w, out, &count)
		switch {
		case p.compress:
			h := sha256.New()
			err = capture.CompressTo(w, io.TeeReader(src, h))
			p.plain = sumOf(h)
		case zst:
			// What is compressed already is held against its sidecar by
			// taking it apart once more.
			if _, err = io.Copy(w, src); err == nil {
				again, oerr := s.source(p.from)
				if oerr != nil {
					return oerr
				}
				_, p.plain, _, err = digest(again, true)
				again.Close()
			}
		default:
			_, err = io.Copy(w, src)
			p.plain = sumOf(out)
		}
		switch {
		case err != nil:
			return err
		case p.want != "" && p.plain != p.want:
			return errDamaged
		case p.expect != "" && p.expect != sumOf(out):
			return &occupiedError{stem + ".sha256"}
		}
		return nil
	}, func(r io.Reader) error {
		gotStored, gotPlain, n, err := digest(r, zst)
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if gotStored != sumOf(out) || gotPlain != p.plain || n != int64(count) {
			return errors.New("what was read back differs from what was written")
		}
		return nil
	})
	if errors.Is(err, fs.ErrExist) {
		return &occupiedError{p.to}
	}
	p.stored, p.size = sumOf(out), int64(count)
	return err
}

// digest reads r whole: the hash of its bytes, that of what they decompress to,
// and how many they are.
func digest(r io.Reader, zst bool) (stored, plain string, size int64, err error) {
	h := sha256.New()
	var n counter
	in := io.TeeReader(r, io.MultiWriter(h, &n))
	if !zst {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return "", "", 0, err
		}
		return sumOf(h), sumOf(h), int64(n), nil
	}
	z, err := capture.Decompress(in)
	if err != nil {
		return "", "", 0, err
	}
	defer z.Close()
	p := sha256.New()
	if _, err := io.Copy(p, z); err != nil {
		return "", "", 0, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return "", "", 0, err
	}
	return sumOf(h), sumOf(p), int64(n), nil
}

// putSums writes what sha256sum -c reads, the bytes first.
func (s *Shipper) putSums(ctx context.Context, i item, pieces []piece) error {
	last := len(pieces) - 1
	var text []byte
	for _, p := range append([]piece{pieces[last]}, pieces[:last]...) {
		text = append(text, p.stored+"  "+p.to+"\n"...)
	}
	name := i.stem + ".sha256"
	err := s.dest.Put(ctx, name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}, func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, text) {
			err = errors.New("what was read back differs from what was written")
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return &occupiedError{name}
	}
	return err
}

// recheck reads a file that was shipped before at the destination, in the form
// that it has there, and ships it again when it is missing.
func (s *Shipper) recheck(ctx context.Context, i item, rep *Report) error {
	for _, name := range []string{i.stem + ".cap", i.stem + ".cap.zst"} {
		f, err := s.dest.Open(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, plain, _, err := digest(f, strings.HasSuffix(name, ".zst"))
		f.Close()
		if err == nil && plain == s.done[i.mark()] {
			rep.already(i)
			return nil
		}
		s.find(rep, wire.Finding{Kind: KindMissingThere, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
			Want: s.done[i.mark()], Got: plain, Message: "what the destination has as " + name + " is not what was shipped: it is left as it is",
			Cost: "the copy there is damaged"})
		return nil
	}
	s.find(rep, wire.Finding{Kind: KindMissingThere, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
		Message: "the destination no longer has the file: it is shipped again"})
	return s.ship(ctx, i, rep)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
