package capture

// This file keeps a directory that is recorded into within its limits: what a
// recorder knows of its sealed files without reading the directory, and how it
// makes room on a disk that is full.

import (
	"sync"
	"sync/atomic"
	"time"

	"wiretape/internal/vfs"
)

// ledgerLife is for how long a recorder goes by what it knows of its directory,
// in which others may delete.
const ledgerLife = int64(time.Minute)

// ledger is what a recorder knows of the files of its directory.
type ledger struct {
	// mu guards what writers change.
	mu     sync.Mutex
	live   map[*Writer]struct{}
	sealed []*prunable // and not yet among files

	// The rest belongs to who holds Dir.pruneMu.
	memory memory
	looked bool
	when   int64 // by the monotonic clock
	files  []*prunable
	// other is what lies there beside sealed files and what is being written.
	other int64
}

// begin and end follow a connection, so that what it writes is counted.
func (l *ledger) begin(w *Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		l.live = map[*Writer]struct{}{}
	}
	l.live[w] = struct{}{}
}

func (l *ledger) end(w *Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, w)
}

func (l *ledger) add(f *prunable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = append(l.sealed, f)
}

// take gives the files sealed since the last call, the connections that are
// being written, and how many bytes their open files have.
func (l *ledger) take() (sealed []*prunable, live map[string]bool, open int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	live = make(map[string]bool, len(l.live))
	for w := range l.live {
		live[w.id] = true
		open += w.onDisk.Load()
	}
	sealed, l.sealed = l.sealed, nil
	return sealed, live, open
}

// known fills in a pruning from the ledger, and the ledger from the directory
// where that is due.
func (d *Dir) known(p *pruning) error {
	l := &d.ledger
	now := d.opt.Clock.Now()
	fresh := !l.looked || now.Mono-l.when >= ledgerLife || !d.opt.Keep.Any()
	p.later = !fresh
	if fresh {
		if err := p.look(); err != nil {
			return err
		}
	}
	sealed, live, open := l.take()
	if fresh {
		have := make(map[string]*prunable, len(p.sealed))
		for _, f := range p.sealed {
			have[f.stem] = f
		}
		for _, f := range append(l.files, sealed...) {
			if k := have[f.stem]; k != nil && f.known {
				// Its sidecar need not be read again, and the monotonic clock
				// knows better how old one of ours is.
				k.known, k.sha, k.last, k.ours, k.mono = true, f.sha, f.last, f.ours, f.mono
			}
		}
		l.files, l.other, l.looked, l.when = p.sealed, 0, true, now.Mono
		for _, f := range sealed {
			if have[f.stem] == nil {
				l.files = append(l.files, f)
			}
			delete(p.rest, f.stem)
		}
		for s, n := range p.rest {
			if !live[ParseName(s+extBytes).Connection] {
				l.other += n
			}
		}
	} else {
		l.files = append(l.files, sealed...)
	}
	p.sealed, p.total = l.files, l.other+open
	for _, f := range p.sealed {
		p.total += f.bytes
	}
	return nil
}

// Prune deletes from the directory what the limits ask for.
func (d *Dir) Prune(r Retention) (*PruneReport, error) {
	d.pruneMu.Lock()
	defer d.pruneMu.Unlock()
	opt := d.opt
	opt.FS = d.disk
	p := &pruning{dir: d.path, opt: opt, r: r, log: &d.ledger.memory, start: d.start, without: map[*prunable]bool{}, rep: newPruneReport(r.DryRun)}
	if err := d.known(p); err != nil {
		return nil, err
	}
	err := p.run()
	if gone := p.without; !r.DryRun && len(gone)+len(p.gone) > 0 {
		for _, f := range p.gone {
			gone[f] = true
		}
		kept := d.ledger.files[:0]
		for _, f := range d.ledger.files {
			if !gone[f] {
				kept = append(kept, f)
			}
		}
		clear(d.ledger.files[len(kept):])
		d.ledger.files = kept
	}
	d.ledger.looked = d.ledger.looked && err == nil
	return p.rep, err
}

// Hold deletes what Options.Keep asks for, and tells Options.OnPrune.
func (d *Dir) Hold() {
	if d.opt.Keep.Any() {
		d.told(d.Prune(d.opt.Keep))
	}
}

func (d *Dir) told(rep *PruneReport, err error) {
	if f := d.opt.OnPrune; f != nil {
		f(rep, err)
	}
}

// makeRoom deletes sealed files because the disk is full, the oldest first, and
// says whether what failed is worth another try. tries is how many there were.
func (d *Dir) makeRoom(tries int) bool {
	free, err := d.disk.Free(d.path)
	if err != nil {
		return false
	}
	if tries == 0 && free > max(d.opt.Keep.MinFree, roomStep) {
		// Somebody else has made room meanwhile, it seems.
		return true
	}
	limits := d.opt.Keep
	// At least one file, whatever the disk says it has free: it may be a quota,
	// or the number of files, that is used up.
	limits.MinFree = max(limits.MinFree, free+1)
	rep, err := d.Prune(limits)
	d.told(rep, err)
	return err == nil && tries < maxTries && (len(rep.Deleted) > 0 || rep.FreeBytes != nil && *rep.FreeBytes > free)
}

const (
	// roomStep is more than one operation of ours takes.
	roomStep = 4 << 20
	// maxTries is how often an operation is tried on a full disk.
	maxTries = 10_000
)

// roomy is a file system on which an operation that fails for want of space is
// tried again once room was made. A failed sync is not: what that lost no later
// one tells.
type roomy struct {
	vfs.FS
	dir *Dir
}

func (r roomy) again(op func() error) error {
	for tries := 0; ; tries++ {
		err := op()
		if err == nil || !DiskFull(err) || !r.dir.makeRoom(tries) {
			return err
		}
	}
}

func (r roomy) file(op func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := r.again(func() (err error) {
		f, err = op()
		return err
	})
	if err != nil {
		return nil, err
	}
	return roomyFile{f, r}, nil
}

func (r roomy) Create(name string) (vfs.File, error) {
	return r.file(func() (vfs.File, error) { return r.FS.Create(name) })
}

func (r roomy) OpenAppend(name string) (vfs.File, error) {
	return r.file(func() (vfs.File, error) { return r.FS.OpenAppend(name) })
}

func (r roomy) Rename(from, to string) error {
	return r.again(func() error { return r.FS.Rename(from, to) })
}

func (r roomy) Replace(from, to string) error {
	return r.again(func() error { return r.FS.Replace(from, to) })
}

type roomyFile struct {
	vfs.File
	r roomy
}

func (f roomyFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.r.again(func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f roomyFile) Write(p []byte) (n int, err error) {
	whole := p
	err = f.r.again(func() error {
		n, err = f.File.Write(p)
		if n > 0 && err != nil {
			// Half a line of a journal stands there: it must not swallow this one.
			p = append([]byte{'\n'}, whole...)
		}
		return err
	})
	return min(n, len(whole)), err
}

// onDisk is how many bytes an open file has, side files included.
type onDisk struct{ bytes, index atomic.Int64 }

func (o *onDisk) Load() int64 { return o.bytes.Load() + o.index.Load() }
