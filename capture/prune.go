package capture

// This file deletes sealed files to keep limits (docs/capture-format.md,
// Retention).

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sort"
	"time"

	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
)

// Retention is how much of a directory is kept. Zero values are no limit. Only
// sealed files are ever deleted, whole and with their side files, the one that
// was sealed first before all others.
type Retention struct {
	// KeepBytes is the most bytes that the files may take on disk, the journal
	// not counted.
	KeepBytes int64
	// KeepAge is how long after its last byte came a file is kept.
	KeepAge time.Duration
	// KeepFiles is how many sealed files are kept.
	KeepFiles int
	// MinFree is how many bytes of the disk are to be free.
	MinFree int64
	// Unshipped lets files go that the journal does not prove to have been
	// shipped.
	Unshipped bool
	// DryRun only tells.
	DryRun bool
}

// Any says that there is a limit.
func (r Retention) Any() bool {
	return r.KeepBytes > 0 || r.KeepAge > 0 || r.KeepFiles > 0 || r.MinFree > 0
}

// PruneReport is what a prune did, or would do where DryRun says so.
type PruneReport struct {
	DryRun  bool     `json:"dry_run"`
	Deleted []Pruned `json:"deleted"`
	// FreedBytes on disk.
	FreedBytes int64 `json:"freed_bytes"`
	// Held is how many files would have been the ones to go and stayed because
	// they were not shipped, and HeldBytes what they take.
	Held      int   `json:"held_files"`
	HeldBytes int64 `json:"held_bytes"`
	// KeptFiles and KeptBytes are what is left; FreeBytes of the disk, nil when
	// no limit asks for it.
	KeptFiles int    `json:"kept_files"`
	KeptBytes int64  `json:"kept_bytes"`
	FreeBytes *int64 `json:"free_bytes"`
	// Met says that all limits hold now.
	Met bool `json:"met"`
}

// Pruned is a deleted file.
type Pruned struct {
	File string `json:"file"`
	// Bytes on disk, side files included.
	Bytes int64 `json:"bytes"`
	// Reason is the limit: "bytes", "age", "files" or "free".
	Reason  string `json:"reason"`
	Shipped bool   `json:"shipped"`
}

// Prune deletes sealed files of a directory, which a recorder may be writing
// into meanwhile: that never touches again what it sealed.
func Prune(dir string, r Retention, opt Options) (*PruneReport, error) {
	opt = opt.filled()
	if err := CheckDir(opt.FS, dir); err != nil {
		return nil, err
	}
	p := &pruning{dir: dir, opt: opt, r: r, log: &memory{}, rep: newPruneReport(r.DryRun)}
	if err := p.look(); err != nil {
		return nil, err
	}
	err := p.run()
	return p.rep, err
}

func newPruneReport(dry bool) *PruneReport { return &PruneReport{DryRun: dry, Deleted: []Pruned{}} }

// run chooses and deletes.
func (p *pruning) run() error {
	for {
		if err := p.choose(); err != nil || p.r.DryRun {
			return err
		}
		if back, err := p.takenBack(); err != nil {
			return err
		} else if !back {
			return p.remove()
		}
		p.gone, *p.rep = nil, *newPruneReport(p.r.DryRun)
	}
}

// takenBack says that a copy of what is to go was found bad since the journal
// was read.
func (p *pruning) takenBack() (bool, error) {
	if err := p.log.update(p.opt.FS, p.dir); err != nil {
		return false, err
	}
	for _, f := range p.gone {
		if f.shipped && !p.log.proves(f) {
			return true, nil
		}
	}
	return false, nil
}

type pruning struct {
	dir string
	opt Options
	r   Retention
	rep *PruneReport
	log *memory
	// start is when the recorder that prunes began, zero for another. later says
	// that sealed is what it knew before; without gathers those that another
	// deleted since.
	start   Instant
	later   bool
	without map[*prunable]bool

	sealed []*prunable
	// rest is the bytes on disk of what lies beside sealed files, by stem; total
	// is those of everything.
	rest   map[string]int64
	total  int64
	gone   []*prunable
	orphan []string // side files of files that were pruned before
}

// prunable is a sealed file with what lies beside it.
type prunable struct {
	stem    string
	names   []string // the bytes first
	bytes   int64
	order   int // of sealing, 0 when the journal does not know it
	shipped bool
	// last is when its last byte came, 0 when not known.
	last  int64
	sha   string
	known bool // read was called
	// ours says that mono is when it came by the monotonic clock of this process.
	ours bool
	mono int64
}

// look gathers files, the order in which they were sealed, and what was shipped.
func (p *pruning) look() error {
	fsys := p.opt.FS
	names, err := fsys.List(p.dir)
	if err != nil {
		return &FileError{"list", p.dir, noOffset, err}
	}
	files := map[string]*prunable{}
	partial := map[string]bool{}
	for _, n := range names {
		pn := ParseName(n)
		if pn.Form == FormForeign || pn.Form == FormLock || pn.Form == FormDestination || pn.Form == FormList || pn.Form == FormTemporary && pn.Connection == "" {
			continue
		}
		st, err := fsys.Stat(filepath.Join(p.dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			// Renamed since the list, by the recorder.
			continue
		}
		if err != nil {
			return &FileError{"stat", filepath.Join(p.dir, n), noOffset, err}
		}
		if pn.Form == FormJournal {
			// It can't be pruned, so it must not make everything else go.
			continue
		}
		p.total += st.Size
		s := stem(pn.Connection, pn.Number)
		f := files[s]
		if f == nil {
			f = &prunable{stem: s}
			files[s] = f
		}
		f.bytes += st.Size
		switch pn.Form {
		case FormBytes, FormCompressed:
			f.names = append([]string{n}, f.names...)
			f.last = max(f.last, st.ModTime.UnixNano())
		case FormPartial:
			partial[s] = true
		case FormSidecar, FormIndex, FormSums:
			f.names = append(f.names, n)
		}
	}
	if err := p.log.update(fsys, p.dir); err != nil {
		return err
	}
	p.log.forget(func(s string) bool { return files[s] != nil })
	p.rest = map[string]int64{}
	for s, f := range files {
		if partial[s] {
			p.rest[s] = f.bytes
			continue
		}
		if form := ParseName(f.names0()).Form; form != FormBytes && form != FormCompressed {
			p.rest[s] = f.bytes
			if p.log.pruned[s] {
				p.orphan = append(p.orphan, f.names...)
			}
			continue
		}
		f.order = p.log.orderOf(s)
		p.sealed = append(p.sealed, f)
	}
	// What the journal does not know is older than what it does.
	sort.Slice(p.sealed, func(i, j int) bool {
		a, b := p.sealed[i], p.sealed[j]
		if a.order != b.order {
			return a.order < b.order
		}
		return a.stem < b.stem
	})
	sort.Strings(p.orphan)
	return nil
}

// read takes from the sidecar what the file's hash is and when its last byte
// came, once.
func (p *pruning) read(f *prunable) {
	// Shipped is only what has the very hash that was read back there.
	defer func() { f.shipped = p.log.proves(f) }()
	if f.known {
		return
	}
	f.known = true
	b, err := vfs.ReadFile(p.opt.FS, filepath.Join(p.dir, f.stem+extSidecar), sidecar.MaxSize)
	if err != nil {
		return
	}
	s, err := sidecar.Parse(b)
	if err != nil {
		return
	}
	f.sha = s.SHA256
	if s.LastArrival != nil {
		f.last = s.LastArrival.Wall
	}
}

// memory is what a journal says of the files that are there, read as it grows.
type memory struct {
	next int64 // where the journal goes on
	seen int
	// order of sealing, from 1.
	order   map[string]int
	shipped map[string]map[string]string // hashes, by stem and destination
	pruned  map[string]bool
}

func (m *memory) update(fsys vfs.FS, dir string) error {
	if m.order == nil {
		m.order, m.shipped, m.pruned = map[string]int{}, map[string]map[string]string{}, map[string]bool{}
	}
	skipped := 0
	next, err := eachEntryFrom(fsys, dir, m.next, func(e Entry) {
		n := ParseName(e.File)
		s := stem(n.Connection, n.Number)
		switch e.Event {
		case EventSeal, EventRecover, EventArrive:
			if m.order[s] == 0 {
				m.seen++
				m.order[s] = m.seen
			}
			if e.Event == EventRecover {
				// What lies beside it was made anew, and is only here.
				delete(m.shipped, s)
			}
		case EventShip:
			if m.shipped[s] == nil {
				m.shipped[s] = map[string]string{}
			}
			m.shipped[s][e.place()] = e.SHA256
		case EventUnship:
			delete(m.shipped[s], e.place())
			delete(m.shipped[s], Entry{Dest: e.Dest}.place())
		case EventPrune:
			m.pruned[s] = true
		}
	}, &skipped)
	if err != nil {
		return err
	}
	m.next = next
	return nil
}

// forget drops what was pruned and is no longer there.
func (m *memory) forget(there func(stem string) bool) {
	for s := range m.pruned {
		if !there(s) {
			delete(m.order, s)
			delete(m.shipped, s)
			delete(m.pruned, s)
		}
	}
}

// proves says that a file was read back at a destination with the hash that it
// has, and was not found missing there since.
func (m *memory) proves(f *prunable) bool {
	for _, sha := range m.shipped[f.stem] {
		if f.sha != "" && sha == f.sha {
			return true
		}
	}
	return false
}

// place is the destination of an entry: its mark, and from before there were
// marks its name.
func (e Entry) place() string {
	if e.DestID != "" {
		return e.DestID
	}
	return "at " + e.Dest
}

// orderOf is a file's place in the order of sealing. One that was sealed before
// the journal could say so is behind those that it comes after by name; one
// from before the journal is older than all.
func (m *memory) orderOf(s string) int {
	if o, ok := m.order[s]; ok {
		return o
	}
	best := 0
	for k, o := range m.order {
		if k < s {
			best = max(best, o)
		}
	}
	return best
}

func (f *prunable) names0() string {
	if len(f.names) == 0 {
		return ""
	}
	return f.names[0]
}

// level is what limits are held against.
type level struct {
	total, free int64
	files       int
}

func (l *level) without(f *prunable) {
	l.total -= f.bytes
	l.free += f.bytes
	l.files--
}

// over says which limit a level is over, "" for none.
func (r *Retention) over(l level) string {
	switch {
	case r.MinFree > 0 && l.free < r.MinFree:
		return "free"
	case r.KeepBytes > 0 && l.total > r.KeepBytes:
		return "bytes"
	case r.KeepFiles > 0 && l.files > r.KeepFiles:
		return "files"
	}
	return ""
}

// choose decides what has to go, the first sealed before all others.
func (p *pruning) choose() error {
	is := level{total: p.total, files: len(p.sealed)}
	if p.r.MinFree > 0 {
		var err error
		if is.free, err = p.opt.FS.Free(p.dir); err != nil {
			return &FileError{"free space of", p.dir, noOffset, err}
		}
	}
	if p.r.KeepAge == 0 && p.r.over(is) == "" {
		p.settle(is, false)
		return nil
	}
	// What was shipped and pruned since the last look.
	if err := p.log.update(p.opt.FS, p.dir); err != nil {
		return err
	}
	if p.later {
		for _, f := range p.sealed {
			if p.log.pruned[f.stem] {
				p.without[f] = true
				is.total -= f.bytes
				is.files--
			}
		}
	}
	// ought is the level if everything were shipped.
	ought, aged := is, false
	now := p.opt.Clock.Now()
	for _, f := range p.sealed {
		if p.without[f] {
			continue
		}
		if p.r.KeepAge > 0 {
			p.read(f)
		}
		old := p.r.KeepAge > 0 && p.age(f, now) > int64(p.r.KeepAge)
		reason := p.r.over(is)
		if reason == "" && old {
			reason = "age"
		}
		if reason == "" {
			continue
		}
		p.read(f)
		if !f.shipped && !p.r.Unshipped {
			if p.r.over(ought) != "" || old {
				p.rep.Held++
				p.rep.HeldBytes += f.bytes
			}
			aged = aged || old
			ought.without(f)
			continue
		}
		is.without(f)
		ought.without(f)
		p.gone = append(p.gone, f)
		p.rep.Deleted = append(p.rep.Deleted, Pruned{f.names[0], f.bytes, reason, f.shipped})
		p.rep.FreedBytes += f.bytes
	}
	p.settle(is, aged)
	return nil
}

// age is how old a file is, in nanoseconds. A wall clock that leaps while
// a recorder runs makes nothing older: its own files' ages are told by the
// monotonic clock, and those of others by the lesser of two.
func (p *pruning) age(f *prunable, now Instant) int64 {
	if f.ours {
		return now.Mono - f.mono
	}
	if f.last == 0 {
		return 0
	}
	wall := now.Wall
	if p.start != (Instant{}) {
		wall = min(wall, p.start.Wall+now.Mono-p.start.Mono)
	}
	return wall - f.last
}

// settle says what is left.
func (p *pruning) settle(is level, aged bool) {
	p.rep.KeptFiles, p.rep.KeptBytes = is.files, is.total
	if p.r.MinFree > 0 {
		p.rep.FreeBytes = &is.free
	}
	p.rep.Met = !aged && p.r.over(is) == ""
}

// remove writes down what goes, and then lets it go: the bytes first, so that
// what is left of a prune that was killed says what is missing.
func (p *pruning) remove() error {
	if len(p.gone) == 0 && len(p.orphan) == 0 {
		return nil
	}
	var entries []Entry
	for i, f := range p.gone {
		n := ParseName(f.names[0])
		e := Entry{Event: EventPrune, Connection: n.Connection, File: f.names[0], Bytes: f.bytes, SHA256: f.sha, Reason: p.rep.Deleted[i].Reason}
		if !f.shipped {
			e.Detail = "it was not shipped"
		}
		entries = append(entries, e.stamp(p.opt.Clock.Now()))
	}
	if len(entries) > 0 {
		err := Append(p.opt.FS, p.dir, true, entries...)
		// On a disk that is full to the last byte the journal has to wait for
		// what goes: the arrival index first, which the bytes do without.
		for i := 0; DiskFull(err) && i < len(p.gone[0].names); i++ {
			names := p.gone[0].names
			if rerr := p.removeAll([]string{names[(i+1)%len(names)]}); rerr != nil {
				return errors.Join(err, rerr)
			}
			err = Append(p.opt.FS, p.dir, true, entries...)
		}
		if err != nil {
			return err
		}
	}
	var bytes []string
	sides := p.orphan
	for _, f := range p.gone {
		bytes = append(bytes, f.names[0])
		sides = append(sides, f.names[1:]...)
	}
	if err := p.removeAll(bytes); err != nil {
		return err
	}
	return p.removeAll(sides)
}

func (p *pruning) removeAll(names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, n := range names {
		if err := removeQuietly(p.opt.FS, filepath.Join(p.dir, n)); err != nil {
			return &FileError{"remove", filepath.Join(p.dir, n), noOffset, err}
		}
	}
	if err := p.opt.FS.SyncDir(p.dir); err != nil {
		return &FileError{"sync", p.dir, noOffset, err}
	}
	return nil
}
