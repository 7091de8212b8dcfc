package capture

// This file proves inputs: bytes against sidecars, sums and arrival indexes, files
// against each other and the journal, frames against their protocol.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// VerifyReport is what Verify found.
type VerifyReport struct {
	Connections int   `json:"connections"`
	Files       int   `json:"files"`
	Bytes       int64 `json:"bytes"`
	// Proven is how many bytes have the SHA-256 that was recorded with them.
	Proven   int64          `json:"proven_bytes"`
	Frames   int64          `json:"frames"`
	Findings []wire.Finding `json:"-"`
	// Notes are what is expected and no fault: what retention deleted, what is
	// being recorded.
	Notes []wire.Finding `json:"-"`
	// Omitted is how many more there were than a report lists.
	Omitted int64 `json:"findings_omitted"`
	// Unproven is what can't be told from these inputs, and why.
	Unproven []Unproven `json:"unproven"`
}

// Unproven is one thing that verifying can't tell.
type Unproven struct {
	Connection string `json:"connection"`
	// File is "" where the whole connection is meant.
	File string `json:"file"`
	What string `json:"what"`
}

// VerifyOptions are how Verify goes about it.
type VerifyOptions struct {
	Input InputOptions
	// First stops at the first finding.
	First bool
	// Progress, if set, is told how many bytes were read.
	Progress func(n int64)
}

// maxReported is how many findings a report lists: a hostile stream has one for
// every frame.
const maxReported = 100_000

// errFirst stops verifying at the first finding.
var errFirst = errors.New("stopped at the first finding")

// Verify reads all of the inputs and holds bytes, sidecars, sums, chains,
// indexes and frames against each other. It reports everything; an error means
// that it could not look.
func Verify(paths []string, opt VerifyOptions) (*VerifyReport, error) {
	set, err := OpenInputs(paths, opt.Input)
	var refused *NoPlaceError
	if err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	v := &verifier{opt: opt, set: set, rep: &VerifyReport{Unproven: []Unproven{}}}
	if err != nil {
		v.rep.Findings = []wire.Finding{{Kind: KindNoPlace, Connection: refused.Connection, File: refused.File, Message: refused.Error()}}
		return v.rep, nil
	}
	err = v.report(nil, append(set.nothing(), set.Findings...)...)
	for _, c := range set.Connections {
		if err != nil {
			break
		}
		v.rep.Connections++
		err = v.connection(c)
	}
	if err == nil {
		err = v.journals(set)
	}
	if err != nil && err != errFirst {
		return v.rep, err
	}
	return v.rep, nil
}

type verifier struct {
	opt VerifyOptions
	set *Set
	rep *VerifyReport
}

// report takes findings about a connection, or about none.
func (v *verifier) report(c *Connection, fs ...wire.Finding) error {
	for _, f := range fs {
		if v.set.expected(c, &f) {
			if len(v.rep.Notes) < maxReported {
				v.rep.Notes = append(v.rep.Notes, f)
			}
			continue
		}
		if len(v.rep.Findings) == maxReported {
			v.rep.Omitted++
			continue
		}
		v.rep.Findings = append(v.rep.Findings, f)
		if v.opt.First {
			return errFirst
		}
	}
	return nil
}

func (v *verifier) unproven(c *Connection, file, what string) {
	if len(v.rep.Unproven) == maxReported {
		return
	}
	v.rep.Unproven = append(v.rep.Unproven, Unproven{c.ID, file, what})
}

func (v *verifier) connection(c *Connection) error {
	if err := v.report(c, c.Findings...); err != nil {
		return err
	}
	switch {
	case c.Raw:
		v.unproven(c, "", "a stream file without sidecars: whether the bytes are those that were sent, and all of them")
	case len(c.silent()) > 0:
		v.rep.Notes = append(v.rep.Notes, c.silent()...)
	case c.Protocol == ProtocolRaw:
		v.unproven(c, "", "the protocol is not known: where its frames begin and end")
	}
	if !c.Raw && c.Transport == nil && c.Refused == nil {
		v.unproven(c, "", "no file here says how the connection ended: whether something came behind them")
	}
	if t := c.Transport; t != nil && t.Kind == sidecar.TransportUnwitnessed && !c.Silent() {
		v.unproven(c, "", "the transport has no witness of its end: whether something came behind the last byte")
	}
	if len(c.Files) > 0 && c.Files[0].Number != 1 && !c.Raw {
		v.unproven(c, c.Files[0].Name, "the files before this one are not here: the chain of hashes is only followed from it on")
	}
	for _, r := range c.Runs() {
		if err := v.run(c, r); err != nil {
			return err
		}
	}
	return nil
}

// journals holds the folders' journals against what is there: a file that was
// sealed in a folder, not pruned, and is in none of the inputs is missing, also
// where no other file of its connection would tell.
func (v *verifier) journals(set *Set) error {
	accounted := map[string]int64{}
	for _, c := range set.Connections {
		accounted[c.ID] = c.accounted
	}
	gone := map[string]Entry{}
	counters := map[int64]bool{} // of connections that are here or in a journal
	for id := range set.known {
		counters[counterOf(id)] = true
	}
	for _, dir := range set.folders {
		skipped, entries := 0, 0
		err := eachEntry(v.fs(), dir, func(e Entry) {
			n := ParseName(e.File)
			entries++
			counters[counterOf(n.Connection)] = true
			counters[counterOf(e.Connection)] = true
			switch s := stem(n.Connection, n.Number); {
			case n.Number <= accounted[n.Connection]:
			case e.Event == EventSeal || e.Event == EventRecover || e.Event == EventArrive:
				gone[s] = e
			case e.Event == EventPrune:
				delete(gone, s)
			}
		}, &skipped)
		if err != nil {
			if err := v.report(nil, wire.Finding{Kind: KindUnreadable, File: JournalName,
				Message: "the journal can't be read: " + wire.SafeText(cause(err), 300),
				Cost:    "whether files and connections that it knows are missing"}); err != nil {
				return err
			}
		} else if entries == 0 {
			v.unproven(&Connection{}, JournalName, "no journal is in "+wire.SafeText(dir, 300)+": whether connections were recorded of which nothing is here")
		}
		if skipped > 0 {
			v.unproven(&Connection{}, JournalName, wire.Count(int64(skipped), "line")+" of the journal can't be read: what happened then")
		}
		// A recorder may have sealed files since the folder was listed.
		for s := range gone {
			for _, ext := range []string{extBytes, extCompressed} {
				if _, err := v.fs().Stat(filepath.Join(dir, s+ext)); err == nil {
					delete(gone, s)
				}
			}
		}
	}
	if len(set.folders) > 0 {
		if missing := gaps(counters); missing != "" {
			v.unproven(&Connection{}, JournalName, "neither a file nor a journal here knows "+missing+
				": whether files of it are missing, or it was recorded elsewhere or never")
		}
	}
	names := make([]string, 0, len(gone))
	for s := range gone {
		names = append(names, s)
	}
	sort.Strings(names)
	for _, s := range names {
		e := gone[s]
		if err := v.report(nil, wire.Finding{Kind: KindMissingFiles, Connection: ParseName(s + extBytes).Connection, File: s + extBytes,
			Offset: e.Offset, Length: max(e.Bytes, 0),
			Message: "the journal says that " + s + extBytes + " was here, and it is gone",
			Cost:    wire.Count(e.Bytes, "byte") + " missing"}); err != nil {
			return err
		}
	}
	return nil
}

// maxGaps is how many stretches of numbers are named.
const maxGaps = 20

// gaps names the connections from number 1 to the highest that are not there, ""
// for none. The numbers of several sites can't be told apart.
func gaps(have map[int64]bool) string {
	all := make([]int64, 0, len(have))
	for n := range have {
		all = append(all, n)
	}
	slices.Sort(all)
	next, count, stretches := int64(1), int64(0), []string{}
	for _, n := range all {
		if n > next {
			s := wire.Itoa(next)
			if n-1 > next {
				s += " to " + wire.Itoa(n-1)
			}
			if count += n - next; len(stretches) < maxGaps {
				stretches = append(stretches, s)
			} else if len(stretches) == maxGaps {
				stretches = append(stretches, "…")
			}
		}
		next = max(next, n+1)
	}
	if count == 0 {
		return ""
	}
	word := "connection "
	if count > 1 {
		word = "connections "
	}
	return word + strings.Join(stretches, ", ")
}

func (v *verifier) fs() vfs.FS {
	if v.opt.Input.FS != nil {
		return v.opt.Input.FS
	}
	return vfs.OS
}

// run reads a run once: the framing goes on from file to file, and where it was
// lost it starts anew with the next file's context.
func (v *verifier) run(c *Connection, r *Run) error {
	var fr *framing
	guessed := false // that a frame starts where fr did
	zeros := wire.Zeros{}
	if len(r.Files) > 0 {
		zeros = r.zeros()
	}
	for i, f := range r.Files {
		v.rep.Files++
		// A file that was cut by bytes goes on inside of a frame.
		inside := f.Sidecar == nil || !f.Sidecar.StartsAtBoundary
		if fr == nil || !fr.framed() || !fr.atBoundary() && !inside {
			ctx := c.contextOf(f)
			if i == 0 {
				ctx = r.Context
			}
			guessed = i > 0 && inside
			var err error
			if fr, err = newFraming(c.opt.Registry, c.Protocol, c.Direction, f.Start, ctx); err != nil {
				if err := v.report(c, v.at(c, f, KindSidecarStale, f.Start, 0, "the context of "+f.Name+" can't be used: "+wire.SafeText(err.Error(), 300))); err != nil {
					return err
				}
			}
			fr.endsIn(zeros, r.End())
		} else if err := v.context(c, f, fr); err != nil {
			return err
		}
		if i > 0 {
			if err := v.chain(c, r.Files[i-1], f); err != nil {
				return err
			}
		}
		whole, err := v.file(c, f, fr, guessed, i == len(r.Files)-1)
		if err != nil {
			return err
		}
		if !whole {
			fr = nil
		}
	}
	return nil
}

func (v *verifier) at(c *Connection, f *File, kind string, off, n int64, msg string) wire.Finding {
	return wire.Finding{Kind: kind, Connection: c.ID, File: f.Name, Offset: off, Length: n, Message: msg}
}

// context holds what a sidecar says is in force at its file's first byte
// against what the files before really led to.
func (v *verifier) context(c *Connection, f *File, fr *framing) error {
	if !fr.atBoundary() || f.Sidecar == nil || f.Start == 0 {
		return nil
	}
	said := f.context()
	if said == nil || len(said.Omitted) > 0 {
		return nil
	}
	want := fr.context(sidecar.DefaultContextLimit)
	if want != nil && len(want.Omitted) > 0 {
		return nil
	}
	a, err1 := json.Marshal(sidecar.ContextOf(want))
	b, err2 := json.Marshal(sidecar.ContextOf(said))
	if err1 != nil || err2 != nil || bytes.Equal(a, b) {
		return errors.Join(err1, err2)
	}
	return v.report(c, v.at(c, f, KindSidecarStale, f.Start, 0,
		"the context in the sidecar of "+f.Name+" is not what the files before it lead to"))
}

func (v *verifier) chain(c *Connection, before, f *File) error {
	if before.Sidecar == nil || before.Sidecar.Open || f.Sidecar == nil || f.Sidecar.PreviousSHA256 == "" {
		return nil
	}
	if f.Sidecar.PreviousSHA256 == before.Sidecar.SHA256 {
		return nil
	}
	x := v.at(c, f, KindChainBroken, f.Start, 0, "the sidecar of "+f.Name+" was written behind another file than "+before.Name)
	x.Want, x.Got = wire.SafeText(f.Sidecar.PreviousSHA256, 64), wire.SafeText(before.Sidecar.SHA256, 64)
	return v.report(c, x)
}

// file reads one file and holds everything beside it against its bytes. guessed
// says that fr started where no frame need start; whole is false where bytes could
// not be read, so that fr does not reach to the file's end.
func (v *verifier) file(c *Connection, f *File, fr *framing, guessed, last bool) (whole bool, err error) {
	r, oerr := f.Open()
	if errors.Is(oerr, fs.ErrNotExist) {
		return false, v.report(c, c.wentAway(f, f, f.Start))
	}
	if oerr == nil {
		defer r.Close()
	}
	s := f.Sidecar
	sealed := s != nil && !s.Open
	switch {
	case c.Raw:
	case !f.Sealed:
		if err := v.report(c, c.unsealed(f)); err != nil {
			return false, err
		}
		v.unproven(c, f.Name, "the file is not sealed: it has no hash yet")
	case s == nil:
		v.unproven(c, f.Name, "no sidecar that can be used: whether the bytes are those that were recorded")
	case s.Recovery != nil:
		if err := v.recovered(c, f); err != nil {
			return false, err
		}
	}
	var idx *sidecar.Index
	var ierr error
	if !c.Raw {
		var done io.Closer
		if idx, done, ierr = f.ArrivalIndex(); ierr == nil {
			defer done.Close()
		}
	}
	prove := newProver(f.Start, idx)
	h := sha256.New()
	fr.mark()
	n := int64(0)
	if err = oerr; err == nil {
		n, err = v.read(f, r, fr, h, prove)
	}
	v.rep.Bytes += n
	if err != nil {
		x := v.at(c, f, KindUnreadable, f.Start+n, f.Length-n, f.Name+" can't be read from its byte "+wire.Itoa(n)+" on: "+cause(err))
		if f.Compressed {
			x.Kind = KindDamagedZstd
		}
		if err := v.report(c, x); err != nil {
			return false, err
		}
	}
	damaged := err != nil
	sum := sumOf(h)
	if sealed && f.proved() && !damaged {
		if sum == s.SHA256 {
			v.rep.Proven += f.Length
		} else if err := v.report(c, c.hashMismatch(f, sum)); err != nil {
			return false, err
		}
	}
	if err := v.report(c, v.located(c, prove.findings(f.Name))...); err != nil {
		return false, err
	}
	if !c.Raw {
		prove.rest()
		if err := v.index(c, f, idx, prove, ierr); err != nil {
			return false, err
		}
		if f.Sealed && !damaged {
			if err := v.sums(c, f, sum); err != nil {
				return false, err
			}
		}
	}
	if last {
		fr.finish()
	}
	for _, k := range fr.kinds {
		v.rep.Frames += k
	}
	if err := v.report(c, v.frames(c, f, fr, sealed && !damaged, guessed)...); err != nil {
		return false, err
	}
	return !damaged, nil
}

// unsealed is the finding of a file that its recorder did not close.
func (c *Connection) unsealed(f *File) wire.Finding {
	return wire.Finding{Kind: KindUnsealed, Connection: c.ID, File: f.Name, Offset: f.Start, Length: f.Length,
		Message: f.Name + " is not sealed: its recorder did not live to (capture recover)"}
}

func (v *verifier) located(c *Connection, fs []wire.Finding) []wire.Finding {
	for i := range fs {
		fs[i].Connection = c.ID
	}
	return fs
}

func (v *verifier) recovered(c *Connection, f *File) error {
	r := f.Sidecar.Recovery
	if r.Proven < r.Kept {
		v.unproven(c, f.Name, "the recorder died while writing this file: whether its bytes from "+
			wire.Itoa(f.Start+r.Proven)+" on are those that came")
	}
	if r.Tail == "" {
		return nil
	}
	return v.report(c, v.at(c, f, KindRecovered, f.Start+r.Whole, r.Kept-r.Whole,
		f.Name+" was recovered; no whole frames are in its last "+wire.Count(r.Kept-r.Whole, "byte")+": "+wire.SafeText(r.Tail, 40)))
}

// read gives a file's bytes to all that want them. n is how many there were.
func (v *verifier) read(f *File, r io.Reader, fr *framing, ws ...io.Writer) (n int64, err error) {
	count := &counting{progress: v.opt.Progress}
	err = fr.readAll(io.LimitReader(r, f.Length), io.MultiWriter(append(ws, count)...))
	if err == nil && count.n < f.Length {
		err = io.ErrUnexpectedEOF
	}
	return count.n, err
}

type counting struct {
	n        int64
	progress func(int64)
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	if c.progress != nil {
		c.progress(int64(len(p)))
	}
	return len(p), nil
}

// index holds an arrival index against its file.
func (v *verifier) index(c *Connection, f *File, idx *sidecar.Index, prove *prover, err error) error {
	if err == nil {
		err = idx.Err()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.Length > 0 {
			v.unproven(c, f.Name, "no arrival index: when its bytes came")
		}
		return nil
	case !f.Sealed || f.Sidecar != nil && f.Sidecar.Recovery != nil:
		// The recorder did not finish it.
		return nil
	case err != nil:
		return v.report(c, v.at(c, f, KindIndex, f.Start, 0, "the arrival index of "+f.Name+" can't be read: "+wire.SafeText(cause(err), 300)))
	}
	end := f.Start
	if a := prove.first; a.Length > 0 {
		if a.Offset != f.Start {
			return v.report(c, v.at(c, f, KindIndex, f.Start, 0, "the arrival index of "+f.Name+" starts at "+wire.Itoa(a.Offset)+" and not at the file's first byte"))
		}
		end = prove.last.Offset + prove.last.Length
	}
	if idx.Cut() || end != f.End() {
		return v.report(c, v.at(c, f, KindIndex, end, max(f.End()-end, 0), "the arrival index of "+f.Name+" covers the bytes up to "+wire.Itoa(end)+" of "+wire.Itoa(f.End())))
	}
	return nil
}

// sums holds a .sha256 file against the files that it names.
func (v *verifier) sums(c *Connection, f *File, sum string) error {
	fsys := c.opt.FS
	base := stemOf(f.Path)
	text, err := vfs.ReadFile(fsys, base+extSums, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		v.unproven(c, f.Name, "no .sha256 file: sha256sum -c has nothing to check it with")
		return nil
	}
	if err != nil {
		return v.report(c, v.at(c, f, KindSums, f.Start, 0, "the .sha256 file of "+f.Name+" can't be read: "+cause(err)))
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		want, name, ok := strings.Cut(line, "  ")
		n := ParseName(name)
		if !ok || len(want) != 64 || stem(n.Connection, n.Number) != filepath.Base(base) {
			if err := v.report(c, v.at(c, f, KindSums, f.Start, 0, "the .sha256 file of "+f.Name+" has a line that is none of its own")); err != nil {
				return err
			}
			continue
		}
		got := sum
		if name != filepath.Base(f.Path) || f.Compressed {
			got, err = hashFile(fsys, filepath.Join(filepath.Dir(f.Path), name))
			if errors.Is(err, fs.ErrNotExist) && n.Form == FormIndex {
				// Already said.
				continue
			}
			if errors.Is(err, fs.ErrNotExist) && f.gone() {
				return nil // all of it went since its bytes were read
			}
			if err != nil {
				got = "no such file"
			}
		}
		if got != want {
			x := v.at(c, f, KindSums, f.Start, 0, wire.SafeText(name, 100)+" is not what the .sha256 file says")
			x.Want, x.Got = wire.SafeText(want, 64), got
			if err := v.report(c, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// frames holds what the sidecar says of a file's frames against them, and gives
// what was found in the bytes themselves.
func (v *verifier) frames(c *Connection, f *File, fr *framing, sealed, guessed bool) []wire.Finding {
	var out []wire.Finding
	said := map[string]bool{}
	if sealed {
		s := f.Sidecar
		got := &sidecar.Sidecar{Start: f.Start, Length: f.Length}
		fr.describe(got, c.ID, f.Name)
		stale := func(what, want, have string) {
			x := v.at(c, f, KindSidecarStale, f.Start, 0, "the sidecar of "+f.Name+" is wrong about "+what)
			x.Want, x.Got = wire.SafeText(want, 200), wire.SafeText(have, 200)
			out = append(out, x)
		}
		a, b := frameText(got.Frames), frameText(s.Frames)
		switch {
		case s.Protocol != got.Protocol && s.Protocol != ProtocolRaw:
			// Said by OpenInputs, or forced.
		case guessed:
			// It was recorded with the framing lost.
		case s.Protocol == ProtocolRaw:
			// What was recorded without frames is not judged by them.
		case a != b:
			stale("its frames", a, b)
		case s.Recovery == nil && got.EndsAtBoundary != s.EndsAtBoundary:
			stale("whether it ends at a frame boundary", word(got.EndsAtBoundary), word(s.EndsAtBoundary))
		case s.Recovery == nil && got.Boundary != s.Boundary:
			stale("where its last whole frame ends", wire.Itoa(got.Boundary), wire.Itoa(s.Boundary))
		}
		for _, x := range f.findings() {
			x.Connection, x.File = c.ID, f.Name
			w := x.Wire()
			said[w.Kind+wire.Itoa(w.Offset)] = true
			if w.Kind != KindTornBytes {
				out = append(out, safeFinding(w))
			}
		}
	}
	if f.Sidecar == nil || f.Sidecar.Recovery == nil {
		for _, x := range fr.found {
			x.Connection, x.File = c.ID, f.Name
			if !said[x.Kind+wire.Itoa(x.Offset)] {
				out = append(out, x)
			}
		}
	}
	return out
}

// safeFinding makes text that came by a sidecar harmless.
func safeFinding(f wire.Finding) wire.Finding {
	for _, s := range []*string{&f.Kind, &f.Field, &f.Want, &f.Got, &f.Message, &f.Cost} {
		*s = wire.SafeText(*s, 500)
	}
	return f
}

func word(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func frameText(ks []sidecar.KindCount) string {
	var b []byte
	for i, k := range ks {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, wire.Itoa(int64(k.Kind))...)
		b = append(b, ':')
		b = append(b, wire.Itoa(k.Count)...)
	}
	return string(b)
}
