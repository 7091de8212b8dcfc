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
	// Already counts those that were shipped before.
	Shipped int64 `json:"shipped"`
	Bytes   int64 `json:"bytes"`
	Stored  int64 `json:"stored"`
	Already int64 `json:"already"`
	// Unfinished files are still being written, and ship once they are sealed.
	Unfinished int64          `json:"unfinished"`
	Findings   []wire.Finding `json:"-"`
	Errors     []string       `json:"errors"`
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
	var total, done int64
	for _, i := range items {
		if s.done[i.mark()] == "" || s.opt.Recheck {
			total += i.size
		}
	}
	rep.Already = 0
	for _, i := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := s.done[i.mark()]
		if before != "" && !s.opt.Recheck {
			rep.Already++
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

// sum is one line of a sums file.
type sum struct{ name, hex string }

// errDamaged says that bytes are not those that their sidecar describes.
var errDamaged = errors.New("the bytes differ from what the sidecar says")

// ship copies one file with its side files, and has the journal say so.
func (s *Shipper) ship(ctx context.Context, i item, rep *Report) error {
	want, start, err := s.described(i, rep)
	if err != nil {
		return err
	}
	var sums []sum
	for _, side := range i.sides {
		hex, _, _, err := s.put(ctx, side, side, "", false)
		if errors.Is(err, fs.ErrExist) {
			return s.occupied(i, side, rep)
		}
		if err != nil {
			return err
		}
		sums = append(sums, sum{side, hex})
	}
	name, compress, err := s.formThere(ctx, i)
	if err != nil {
		return err
	}
	stored, plain, size, err := s.put(ctx, i.bytes, name, want, compress)
	switch {
	case errors.Is(err, errDamaged):
		s.find(rep, wire.Finding{Kind: KindDamagedSource, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes, Offset: start,
			Want: want, Got: plain, Message: "the file's SHA-256 is not the one in its sidecar: it is not shipped",
			Cost: "the file is only here"})
		return nil
	case errors.Is(err, fs.ErrExist):
		return s.occupied(i, name, rep)
	case err != nil:
		return err
	}
	sums = append([]sum{{name, stored}}, sums...)
	if err := s.putSums(ctx, i.stem+".sha256", sums); errors.Is(err, fs.ErrExist) {
		return s.occupied(i, i.stem+".sha256", rep)
	} else if err != nil {
		return err
	}
	e := capture.Entry{Event: capture.EventShip, File: i.mark(), Bytes: i.size, SHA256: plain, Dest: s.dest.String()}
	if err := capture.Append(s.fs, s.dir, true, capture.Stamp(e, s.opt.Clock.Now())); err != nil {
		return err
	}
	s.done[i.mark()] = plain
	rep.Shipped++
	rep.Bytes += i.size
	rep.Stored += size
	s.log.Info("shipped", "file", i.bytes, "dest", s.dest.String())
	return nil
}

// formThere is the name that the bytes get at the destination, and whether they
// are compressed for it. What lies there in the other form already, from a pass
// that was broken off, stays in that form.
func (s *Shipper) formThere(ctx context.Context, i item) (name string, compress bool, err error) {
	plain, zst := i.stem+".cap", i.stem+".cap.zst"
	if i.form == capture.FormCompressed {
		return zst, false, nil
	}
	name, other := plain, zst
	if s.opt.Zstd {
		name, other = zst, plain
	}
	f, err := s.dest.Open(ctx, other)
	if err == nil {
		f.Close()
		name = other
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	return name, name == zst, nil
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

func (s *Shipper) occupied(i item, name string, rep *Report) error {
	s.find(rep, wire.Finding{Kind: KindOccupied, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
		Message: "the destination has another file named " + name + ": it is left as it is", Cost: "the file is not shipped"})
	return nil
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
	s.log.Error("finding", "kind", f.Kind, "file", f.File, "message", f.Message)
	if len(rep.Findings) < maxFindings {
		rep.Findings = append(rep.Findings, f)
	}
}

// put copies one file of the directory to the destination, if it is not there
// already. want is the SHA-256 of the recorded bytes, "" when not known. It
// gives the hash of what is stored, that of the recorded bytes, and how many
// bytes are stored.
func (s *Shipper) put(ctx context.Context, from, to, want string, compress bool) (stored, plain string, size int64, err error) {
	source := func() (io.ReadCloser, error) {
		f, err := s.fs.Open(filepath.Join(s.dir, from))
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
	zst := compress || strings.HasSuffix(from, ".zst")
	there, err := s.dest.Open(ctx, to)
	if err == nil {
		// A pass that was broken off before the journal knew, or another
		// file: only the bytes tell.
		stored, thereplain, n, err := digest(there, zst)
		there.Close()
		if err != nil {
			return "", "", 0, fmt.Errorf("%w: %w", fs.ErrExist, err)
		}
		src, err := source()
		if err != nil {
			return "", "", 0, err
		}
		_, hereplain, _, err := digest(src, strings.HasSuffix(from, ".zst"))
		src.Close()
		if err != nil {
			return "", "", 0, err
		}
		if want != "" && hereplain != want {
			return "", hereplain, 0, errDamaged
		}
		if thereplain != hereplain {
			return "", "", 0, &fs.PathError{Op: "create", Path: to, Err: fs.ErrExist}
		}
		return stored, hereplain, n, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", "", 0, err
	}
	out := sha256.New()
	var count counter
	err = s.dest.Put(ctx, to, func(w io.Writer) error {
		src, err := source()
		if err != nil {
			return err
		}
		defer src.Close()
		w = io.MultiWriter(w, out, &count)
		switch {
		case compress:
			h := sha256.New()
			err = capture.CompressTo(w, io.TeeReader(src, h))
			plain = sumOf(h)
		case zst:
			// What is compressed already is held against its sidecar by
			// taking it apart once more.
			if _, err = io.Copy(w, src); err == nil {
				again, oerr := source()
				if oerr != nil {
					return oerr
				}
				_, plain, _, err = digest(again, true)
				again.Close()
			}
		default:
			_, err = io.Copy(w, src)
			plain = sumOf(out)
		}
		if err == nil && want != "" && plain != want {
			err = errDamaged
		}
		return err
	}, func(r io.Reader) error {
		gotStored, gotPlain, n, err := digest(r, zst)
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if gotStored != sumOf(out) || gotPlain != plain || n != int64(count) {
			return errors.New("what was read back differs from what was written")
		}
		return nil
	})
	return sumOf(out), plain, int64(count), err
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

// putSums writes what sha256sum -c reads.
func (s *Shipper) putSums(ctx context.Context, name string, sums []sum) error {
	var text []byte
	for _, x := range sums {
		text = append(text, x.hex+"  "+x.name+"\n"...)
	}
	there, err := s.dest.Open(ctx, name)
	if err == nil {
		defer there.Close()
		got, err := io.ReadAll(io.LimitReader(there, int64(len(text))+1))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, text) {
			return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.dest.Put(ctx, name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}, func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, text) {
			err = errors.New("what was read back differs from what was written")
		}
		return err
	})
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
			rep.Already++
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
