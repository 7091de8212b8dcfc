package capture

// This file makes sealed files of what a recorder left unfinished
// (docs/capture-format.md, Recovery).

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sort"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// Recovered is a file that recovery sealed.
type Recovered struct {
	// File is its final base name.
	File       string
	Connection string
	Number     int64
	Start      int64
	// Kept is how many bytes the file has, Whole how many of them are whole
	// frames, and Tail what the rest is, as in sidecar.Recovery.
	Kept  int64
	Whole int64
	Tail  string
	// SHA256 of the file's bytes; Findings is how many its sidecar has.
	SHA256   string
	Findings int64
	// Rebuilt says that the file was sealed already and only its sidecar was
	// made anew.
	Rebuilt bool
}

// Recover does what Create does before it records: it seals what a recorder
// left unfinished. It also makes anew the sidecars of sealed files that are
// missing or can't be read. The directory must not be in use: *LockedError.
func Recover(dir string, opt Options) ([]Recovered, error) {
	opt = opt.filled()
	if err := CheckDir(opt.FS, dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(opt.FS, dir, opt.Holder)
	if err != nil {
		return nil, err
	}
	rec, err := recoverDir(dir, opt, true)
	return rec, errors.Join(err, lock.Close())
}

// recoverDir seals the unfinished files of a directory that is ours. For each,
// in order of name (docs/capture-format.md, Recovery):
//
//  1. what the opening sidecar says is taken as far as it is of this file;
//     without it the files before tell the offset and the context;
//  2. the bytes are read, all of them: frames, hash, trailing zeros;
//  3. a sidecar and sums that fit them are kept, else they are written;
//  4. the file gets its final name as in sealing, and is read back.
//
// No byte of it is changed or cut. Each step leaves a state from which a second
// recovery gets to the same end.
//
// A sealed file without a sidecar gets one; deep looks also whether those that
// are there can be read.
func recoverDir(dir string, opt Options, deep bool) ([]Recovered, error) {
	names, err := opt.FS.List(dir)
	if err != nil {
		return nil, &FileError{"list", dir, 0, err}
	}
	var done []Recovered
	have := map[string]map[Form]bool{}
	var stems []string
	for _, n := range names {
		p := ParseName(n)
		if p.Connection == "" {
			continue
		}
		switch st, err := opt.FS.Stat(filepath.Join(dir, n)); {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, &FileError{"stat", filepath.Join(dir, n), 0, err}
		case err != nil || !st.Regular:
			// Foreign, whatever its name.
			continue
		}
		st := stem(p.Connection, p.Number)
		if have[st] == nil {
			have[st] = map[Form]bool{}
			stems = append(stems, st)
		}
		have[st][p.Form] = true
		if p.Form == FormTemporary {
			if err := removeQuietly(opt.FS, filepath.Join(dir, n)); err != nil {
				return done, &FileError{"remove", filepath.Join(dir, n), 0, err}
			}
		}
	}
	sort.Strings(stems)
	r := &recovery{dir: dir, opt: opt}
	for _, st := range stems {
		forms := have[st]
		base := filepath.Join(dir, st)
		if forms[FormPartial] && forms[FormBytes] {
			// A rename that a hard link stood in for got half way. Two files
			// that differ are nobody's doing: both stay.
			if same, err := r.sameFile(base); err != nil {
				return done, err
			} else if !same {
				continue
			}
			if err := opt.FS.Remove(base + extPartial); err != nil {
				return done, &FileError{"remove", base + extPartial, 0, err}
			}
			forms[FormPartial] = false
		}
		unknown := forms[FormBytes] && (!forms[FormSidecar] || deep && !r.sidecarReads(st))
		if forms[FormPartial] || unknown {
			rec, err := r.file(st, unknown)
			if unknown && errors.Is(err, fs.ErrNotExist) {
				continue // it went to make room
			}
			if err != nil {
				return done, err
			}
			done = append(done, rec)
		}
		if forms[FormOpening] {
			if err := removeQuietly(opt.FS, base+extOpening); err != nil {
				return done, &FileError{"remove", base + extOpening, 0, err}
			}
		}
	}
	return done, nil
}

type recovery struct {
	dir string
	opt Options
}

// sameFile says that partial and sealed file hold the same bytes.
func (r *recovery) sameFile(base string) (bool, error) {
	var sums [2]string
	for i, ext := range []string{extPartial, extBytes} {
		st, err := r.opt.FS.Stat(base + ext)
		if err != nil {
			return false, &FileError{"stat", base + ext, 0, err}
		}
		f := &File{Path: base + ext, Length: st.Size, size: st.Size, fs: r.opt.FS}
		if sums[i], _, err = f.hash(-1); err != nil {
			return false, &FileError{"read", base + ext, 0, err}
		}
	}
	return sums[0] == sums[1], nil
}

// side reads a sidecar if it is one of this file, else nil.
func (r *recovery) side(st, ext string) *sidecar.Sidecar {
	b, err := vfs.ReadFile(r.opt.FS, filepath.Join(r.dir, st+ext), sidecar.MaxSize)
	if err != nil {
		return nil
	}
	s, err := sidecar.Parse(b)
	n := ParseName(st + extBytes)
	if err != nil || s.Connection != n.Connection || s.Number != n.Number {
		return nil
	}
	return s
}

func (r *recovery) sidecarReads(st string) bool {
	s := r.side(st, extSidecar)
	return s != nil && !s.Open
}

// file recovers one file: seals it, or, where it is sealed, makes its sidecar
// anew.
func (r *recovery) file(st string, sealed bool) (Recovered, error) {
	base := filepath.Join(r.dir, st)
	path := base + extPartial
	if sealed {
		path = base + extBytes
	}
	n := ParseName(st + extBytes)
	rec := Recovered{File: st + extBytes, Connection: n.Connection, Number: n.Number, Rebuilt: sealed}
	size, err := r.opt.FS.Stat(path)
	if err != nil {
		return rec, &FileError{"stat", path, 0, err}
	}
	f := &File{Path: path, Name: st + extBytes, Number: n.Number, Length: size.Size, size: size.Size, fs: r.opt.FS}
	rec.Kept = f.Length

	s := r.side(st, extOpening)
	if s == nil {
		if s, err = r.fromBefore(n); err != nil {
			return rec, err
		}
	}
	f.Start, rec.Start = s.Start, s.Start
	res, err := r.scan(f, s)
	if err != nil {
		return rec, err
	}
	rec.Whole, rec.Tail, rec.SHA256 = res.whole, res.tail, res.sum

	// A recorder that got as far as the sidecar of just these bytes was only
	// stopped before the name.
	final := r.side(st, extSidecar)
	if sealed || final == nil || final.Open || final.Length != f.Length || final.SHA256 != res.sum {
		final = r.describe(s, f, res, sealed)
	}
	rec.Findings = int64(len(final.Findings)) + final.FindingsOmitted
	sums := []sum{{extBytes, res.sum}}
	switch h, err := hashFile(r.opt.FS, base+extIndex); {
	case err == nil:
		sums = append(sums, sum{extIndex, h})
	case !errors.Is(err, fs.ErrNotExist):
		return rec, &FileError{"read", base + extIndex, 0, err}
	}
	if !sealed {
		// The bytes are there, but nothing says that they are safe.
		if err := syncPath(r.opt.FS, path); err != nil {
			return rec, &FileError{"sync", path, f.Start, err}
		}
		if len(sums) > 1 {
			if err := syncPath(r.opt.FS, base+extIndex); err != nil {
				return rec, &FileError{"sync", base + extIndex, f.Start, err}
			}
		}
	}
	if _, err := writeSides(r.opt.FS, base, final, sums); err != nil {
		return rec, err
	}
	if !sealed {
		if err := finishName(r.opt.FS, base, f.Start); err != nil {
			return rec, err
		}
	}
	if err := r.check(base, res.sum); err != nil {
		return rec, err
	}
	reason := res.tail
	if reason == "" {
		reason = "whole"
	}
	e := Entry{Event: EventRecover, Connection: n.Connection, File: rec.File, Offset: f.Start,
		Bytes: f.Length, SHA256: res.sum, Reason: reason}
	return rec, Append(r.opt.FS, r.dir, false, e.stamp(r.opt.Clock.Now()))
}

// check reads back what was made: the file by its final name, and a sidecar that
// says so.
func (r *recovery) check(base, sum string) error {
	got, err := hashFile(r.opt.FS, base+extBytes)
	if err != nil {
		return &FileError{"read back", base + extBytes, 0, err}
	}
	s := r.side(filepath.Base(base), extSidecar)
	if s == nil || s.Open || got != sum || s.SHA256 != sum {
		return &FileError{"read back", base + extBytes, 0, errors.New("what recovery wrote is not what it read")}
	}
	return nil
}

func syncPath(fsys vfs.FS, name string) error {
	f, err := fsys.OpenAppend(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func hashFile(fsys vfs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, io.NewSectionReader(f, 0, size))
	return sumOf(h), err
}

// fromBefore makes the opening sidecar of a file from the file before it: its
// sidecar for the place, its bytes for the context at its end.
func (r *recovery) fromBefore(n Name) (*sidecar.Sidecar, error) {
	s := &sidecar.Sidecar{Connection: n.Connection, Number: n.Number, Protocol: ProtocolAuto, StartsAtBoundary: n.Number == 1}
	if n.Number == 1 {
		return s, nil
	}
	// Anew: some may have gone to make room.
	names, err := r.opt.FS.List(r.dir)
	if err != nil {
		return nil, &FileError{"list", r.dir, noOffset, err}
	}
	var paths []string
	for _, base := range names {
		p := ParseName(base)
		if p.Connection == n.Connection && p.Number < n.Number && (p.Form == FormBytes || p.Form == FormCompressed) {
			paths = append(paths, filepath.Join(r.dir, base))
		}
	}
	s.Protocol = ProtocolRaw
	if len(paths) == 0 {
		return s, nil
	}
	set, err := OpenInputs(paths, InputOptions{FS: r.opt.FS, Registry: r.opt.Registry, TrustHashes: true})
	var refused *NoPlaceError
	if errors.As(err, &refused) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	c := set.Connections[0]
	last := c.Files[len(c.Files)-1]
	run := c.runs[len(c.runs)-1]
	s.Start = last.End()
	if last.Number != n.Number-1 || run.Loose {
		return s, nil
	}
	s.Protocol, s.Direction, s.Pair, s.Endpoint = c.Protocol, c.Direction.String(), c.Pair, c.Endpoint
	// From the last file whose sidecar has a context; without any, from the
	// run's start.
	from, ctx := run.Start, run.Context
	for i := len(run.Files) - 1; i > 0; i-- {
		if c := run.Files[i].context(); c != nil {
			from, ctx = run.Files[i].Start, c
			break
		}
	}
	fr, err := newFraming(r.opt.Registry, c.Protocol, c.Direction, from, ctx)
	if err == nil {
		rr, _ := run.OpenAt(from)
		err = errors.Join(fr.readAll(rr, nil), rr.Close())
	}
	if err != nil {
		// The file before is damaged: this one is kept without a context.
		return s, nil
	}
	s.StartsAtBoundary = fr.atBoundary()
	s.Context = sidecar.ContextOf(fr.context(r.opt.ContextLimit))
	if last.proved() {
		s.PreviousSHA256 = last.Sidecar.SHA256
	}
	return s, nil
}

// scanned is what the bytes of an unfinished file say.
type scanned struct {
	fr    *framing
	sum   string
	whole int64
	tail  string
	prove *prover
}

// scan reads an unfinished file from its start to its end.
func (r *recovery) scan(f *File, s *sidecar.Sidecar) (*scanned, error) {
	res := &scanned{}
	src, err := r.opt.FS.Open(f.Path)
	if err != nil {
		return nil, &FileError{"open", f.Path, f.Start, err}
	}
	defer src.Close()
	zeros, err := zerosBackward(src, f.Length)
	if err != nil {
		return nil, &FileError{"read", f.Path, f.Start, err}
	}
	fr, err := newFraming(r.opt.Registry, s.Protocol, wire.ParseDirection(s.Direction), f.Start, s.Context.Wire())
	if err != nil && fr == nil {
		return nil, &FileError{"read", f.Path, f.Start, err}
	}
	fr.mark()
	res.fr = fr
	h := sha256.New()
	if zeros < f.Length {
		fr.endsIn(wire.ZerosFrom(f.Start+zeros, f.Start), f.End())
	}
	idx, done, err := f.ArrivalIndex()
	if err != nil {
		// Without an index nothing is proven; that is all.
		idx = nil
	} else {
		defer done.Close()
	}
	res.prove = newProver(f.Start, idx)
	if err := fr.readAll(io.NewSectionReader(src, 0, f.Length), io.MultiWriter(h, res.prove)); err != nil {
		return nil, &FileError{"read", f.Path, f.Start, err}
	}
	res.prove.rest()
	res.sum = sumOf(h)
	fr.finish()
	switch {
	case fr.scanner == nil:
		// No frames are known: zeros at the end are no bytes that came.
		if res.whole = zeros; zeros < f.Length {
			res.tail = wire.KindZeroTail
			fr.found = append(fr.found, fr.zeros.Found(f.Start+zeros, f.Start+zeros, f.End())...)
		}
	case fr.lastWhole == f.End():
		res.whole = f.Length
	default:
		res.whole, res.tail = fr.lastWhole-f.Start, string(fr.ending)
	}
	fr.lastWhole = f.Start + res.whole
	return res, nil
}

// describe makes the sidecar of a recovered file.
func (r *recovery) describe(s *sidecar.Sidecar, f *File, res *scanned, sealed bool) *sidecar.Sidecar {
	out := &sidecar.Sidecar{Tool: r.opt.Tool, Connection: s.Connection, Number: s.Number, Pair: s.Pair, Endpoint: s.Endpoint,
		Start: f.Start, Length: f.Length, SHA256: res.sum, PreviousSHA256: s.PreviousSHA256,
		StartsAtBoundary: s.StartsAtBoundary, Context: s.Context, Closed: sidecar.ClosedRecovered,
		Transport: &sidecar.Verdict{Kind: sidecar.TransportUnknown, Detail: "the recorder did not live to see the end"},
		Recovery:  &sidecar.Recovery{Kept: f.Length, Whole: res.whole, Tail: res.tail, Proven: res.prove.proven - f.Start}}
	if sealed {
		out.Closed, out.Transport, out.Recovery = sidecar.ClosedUnknown, nil, nil
	}
	res.fr.found = append(res.fr.found, res.prove.findings(f.Name)...)
	res.fr.describe(out, s.Connection, f.Name)
	out.EndsAtBoundary = out.Framing == sidecar.FramingFrames && res.whole == f.Length
	if first, last := res.prove.first, res.prove.last; first.Length > 0 {
		out.FirstArrival, out.LastArrival = sidecar.At(first.Wall, first.Mono), sidecar.At(last.Wall, last.Mono)
	}
	return out
}

// maxIndex is the largest arrival index that is held in memory.
const maxIndex = 64 << 20

// Arrivals reads the arrival index that lies beside a file into memory. The
// error wraps fs.ErrNotExist when there is none, and vfs.ErrTooLarge when that
// would take too much: ArrivalIndex reads any. cut says that it ends early.
func (f *File) Arrivals() (all sidecar.Arrivals, cut bool, err error) {
	b, err := vfs.ReadFile(f.fs, stemOf(f.Path)+extIndex, maxIndex)
	if err != nil {
		return nil, false, err
	}
	return sidecar.ReadArrivals(b)
}

// ArrivalIndex opens the arrival index that lies beside a file, to be read
// record by record; done closes it. The error wraps fs.ErrNotExist when there is
// none.
func (f *File) ArrivalIndex() (idx *sidecar.Index, done io.Closer, err error) {
	src, err := f.fs.Open(stemOf(f.Path) + extIndex)
	if err != nil {
		return nil, nil, err
	}
	size, err := src.Size()
	if err == nil {
		idx, err = sidecar.NewIndex(io.NewSectionReader(src, 0, size))
	}
	if err != nil {
		src.Close()
		return nil, nil, err
	}
	return idx, src, nil
}
