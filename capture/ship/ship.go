// Package ship copies sealed capture files to other places.
//
// A file goes with its side files: the arrival index and the sidecar first, then
// the bytes, and the sums last, so that whoever looks at the destination at any
// time finds each capture file described, and sha256sum -c at peace. Each is
// read while its hash is made, held against its sidecar, written under a
// temporary name, synced, read back and held against the hash, and then gets its
// name; after that the journal says that the capture file was shipped, which is
// what retention goes by. A pass that is broken off anywhere is taken up by the
// next one. What was shipped and is found bad or gone there is taken back in the
// journal before anything else is done about it.
//
// No bytes of a capture are ever replaced at the destination: a damaged copy of
// what was shipped is set aside before it is shipped again. Side files of such a
// copy are replaced.
package ship

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"wiretape/capture"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// The kinds of findings of shipping.
const (
	// KindDamagedSource: a capture file's bytes are not those that its sidecar
	// or the journal describes, or what lies beside it is not what its sums
	// say. It is not shipped.
	KindDamagedSource = "damaged-source"
	// KindOccupied: the destination has another file of the same name. It is
	// left as it is.
	KindOccupied = "name-occupied"
	// KindNoSidecar: nothing describes the file; it is shipped as it is.
	KindNoSidecar = "no-sidecar"
	// KindNothing: nothing was ever recorded in the directory.
	KindNothing = capture.KindNothing
	// KindNoIndex: the arrival index that the sums list is not there; the file
	// is shipped without.
	KindNoIndex = "no-index"
	// KindNotShipped: a sealed file was not shipped when shipping ended, and
	// nothing else was found about it.
	KindNotShipped = "not-shipped"
	// KindMissingHere: a file that was sealed in the directory, or arrived there,
	// is gone; neither was it shipped nor does the journal say that it was
	// deleted.
	KindMissingHere = capture.KindMissingFiles
	// KindMissingThere: a file that was shipped, or what lies beside it, is
	// not, or not whole, at the destination any more.
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
	// NewPlace takes a destination that is another place than the one that was
	// shipped to before (see AwayError), once.
	NewPlace bool
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
	// Mended files were shipped before and found missing or damaged there, and
	// are whole again. They count among Shipped.
	Mended int64 `json:"mended"`
	// Unfinished files are still being written, and ship once they are sealed.
	Unfinished int64 `json:"unfinished"`
	// Unshipped sealed files are not at the destination, as far as the journal
	// says; nil where that could not be looked at.
	Unshipped *int64         `json:"unshipped"`
	Findings  []wire.Finding `json:"-"`
	Errors    []string       `json:"errors"`

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

	mem memory
	// here is the place that the destination's name leads to, and reason how
	// the journal is to call it.
	here   Place
	reason string
	// arrived are the files in the destination's own journal, read up to next.
	arrived map[string]bool
	next    int64
	swept   bool // since nothing failed

	// refused is when a file could not be shipped for what it is, by the
	// monotonic clock: a watch does not read it again at every look.
	refused  map[string]int64
	reported map[string]bool
	watching bool
	// listed are the files that the newest pass was to ship.
	listed map[string]bool
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
	return &Shipper{dir: dir, dest: dest, opt: o, fs: o.FS, log: o.Log, arrived: map[string]bool{}, refused: map[string]int64{}, reported: map[string]bool{}}, nil
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

// Pass ships what is sealed and not yet shipped. Findings are in the report, and
// what is still not at the destination; an error means that the pass could not go
// on: an *AwayError before anything was written to a place that is not the
// destination.
func (s *Shipper) Pass(ctx context.Context, rep *Report) error {
	s.listed = nil
	err := s.pass(ctx, rep)
	if err != nil {
		return s.ended(err, rep, nil)
	}
	// What is sealed since is for the next pass.
	return s.ended(nil, rep, s.listed)
}

func (s *Shipper) pass(ctx context.Context, rep *Report) error {
	if err := s.mem.update(s.fs, s.dir, s.dest.String()); err != nil {
		return err
	}
	if err := s.meet(ctx); err != nil {
		return err
	}
	lock, err := s.dest.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.settle(ctx); err != nil {
		return err
	}
	if !s.swept {
		if err := s.dest.Sweep(ctx); err != nil {
			return err
		}
	}
	s.swept = false
	items, unfinished, err := s.sealed()
	if err != nil {
		return err
	}
	rep.Unfinished = unfinished
	if len(items) == 0 && unfinished == 0 && !s.watching && !s.mem.any {
		s.find(rep, wire.Finding{Kind: KindNothing, Message: "nothing was recorded in " + wire.SafeText(s.dir, 0) + ": there is nothing to ship"})
	}
	if rep.counted == nil {
		rep.counted = map[string]bool{}
	}
	s.listed = make(map[string]bool, len(items))
	for _, i := range items {
		s.listed[i.mark()] = true
	}
	there := s.mem.at(s.here.Mark)
	if _, err := s.lost(items, there, rep); err != nil {
		return err
	}
	var total, unsent, done int64
	for _, i := range items {
		if good := there[i.mark()].good; !good || s.opt.Recheck {
			total += i.size
			if !good {
				unsent += i.size
			}
		}
	}
	step := func(i item) {
		done += i.size
		s.opt.Progress(done, total)
	}
	if s.opt.Recheck {
		if err := s.recheck(ctx, items, rep, step); err != nil {
			return err
		}
		// What was found bad is sent as well.
		for _, i := range items {
			if !there[i.mark()].good {
				total += i.size
			}
		}
		total -= unsent
	}
	for _, i := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if there[i.mark()].good {
			rep.already(i)
			continue
		}
		now := s.opt.Clock.Now().Mono
		if at, refused := s.refused[i.mark()]; s.watching && refused && now-at < int64(retryMax) {
			continue
		}
		delete(s.refused, i.mark())
		err = s.ship(ctx, i, rep)
		if err != nil && s.gone(i) {
			continue // pruned meanwhile
		}
		if err != nil {
			return fmt.Errorf("shipping %s: %w", i.bytes, err)
		}
		if !there[i.mark()].good {
			s.refused[i.mark()] = now
		}
		step(i)
	}
	s.swept = true
	return nil
}

// ended completes the report of shipping that ended with err; of is what was to
// be shipped, nil for all that is sealed.
func (s *Shipper) ended(err error, rep *Report, of map[string]bool) error {
	if rerr := s.remaining(rep, of); err == nil {
		err = rerr
	}
	return err
}

// remaining reports which sealed files the journal does not call shipped to the
// destination now that shipping ends: to the place that was met last, or, where
// none was, to the newest of its name.
func (s *Shipper) remaining(rep *Report, of map[string]bool) error {
	rep.Unshipped = nil
	if err := s.mem.update(s.fs, s.dir, s.dest.String()); err != nil {
		return err
	}
	items, unfinished, err := s.sealed()
	if err != nil {
		return err
	}
	mark := s.here.Mark
	if mark == "" {
		mark = s.mem.newest
	}
	there := s.mem.at(mark)
	said := map[string]bool{}
	for _, f := range rep.Findings {
		if f.Kind == KindDamagedSource || f.Kind == KindOccupied {
			said[stemOf(f.File)] = true
		}
	}
	n := int64(0)
	for _, i := range items {
		if there[i.mark()].good || of != nil && !of[i.mark()] {
			continue
		}
		n++
		if !said[i.stem] {
			s.find(rep, wire.Finding{Kind: KindNotShipped, Connection: capture.ParseName(i.bytes).Connection, File: i.bytes,
				Message: "the file is sealed, and was not shipped to the destination"})
		}
	}
	lost, err := s.lost(items, there, rep)
	if err != nil {
		return err
	}
	n += lost
	rep.Unfinished, rep.Unshipped = unfinished, &n
	return nil
}

// lost reports what the journal knows of that is not among the items that were
// listed behind its last look at the journal, and not at the destination either.
func (s *Shipper) lost(items []item, there place, rep *Report) (n int64, err error) {
	listed := make(map[string]bool, len(items))
	for _, i := range items {
		listed[i.mark()] = true
	}
	var gone []string
	for mark := range s.mem.sealed {
		if n := capture.ParseName(mark); n.Form == capture.FormBytes && !listed[mark] && !there[mark].good {
			gone = append(gone, mark)
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	// Retention writes down what it deletes before it does.
	if err := s.mem.update(s.fs, s.dir, s.dest.String()); err != nil {
		return 0, err
	}
	slices.Sort(gone)
	for _, mark := range gone {
		if _, sealed := s.mem.sealed[mark]; !sealed || !s.gone(item{bytes: mark}) || !s.gone(item{bytes: mark + compressedEnding}) {
			continue
		}
		n++
		s.find(rep, wire.Finding{Kind: KindMissingHere, Connection: capture.ParseName(mark).Connection, File: mark,
			Message: "the journal says that the file was sealed here; it is gone, was not shipped to the destination, and nothing says that it was deleted",
			Cost:    "its bytes, unless another place has them"})
	}
	return n, nil
}

// gone says that a file is not here any more.
func (s *Shipper) gone(i item) bool {
	_, err := s.fs.Stat(filepath.Join(s.dir, i.bytes))
	return errors.Is(err, fs.ErrNotExist)
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
		stem := stemOf(name)
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

// stemOf is the name of a file of a capture without its ending, "" for another.
func stemOf(name string) string {
	const digits = 8 // of the number
	n := capture.ParseName(name)
	if n.Connection == "" {
		return ""
	}
	return name[:len(n.Connection)+1+digits]
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

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
