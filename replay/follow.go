package replay

// This file follows captures that are still being written: the archive is
// added to as frames arrive, readable by others at every instant, and how far
// each connection was applied is committed with the data. What can't be put in
// its place without taking a decision back makes the archive anew from all the
// captures, in one transaction. A restart reads what was applied before for the
// state of its sessions, writes nothing of it again, and goes on.

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"wiretape/capture"
	"wiretape/internal/unfinished"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// commitEvery and commitBytes bound what a kill takes back, and how far
	// readers are behind.
	commitEvery = 150 * time.Millisecond
	commitBytes = 8 << 20
	// scanEvery is how often the folders are looked at without any event.
	scanEvery = 500 * time.Millisecond
	// holePatience is how long a follower waits for a file that is missing
	// before it goes on behind it.
	holePatience  = 30 * time.Second
	rebuildSuffix = ".rebuild"
)

// Status is what a follower is doing.
type Status struct {
	// Stuck is the finding that it can't pass, nil while it reads or waits at
	// the end of what there is.
	Stuck *wire.Finding
	// Waiting: all that there is was applied.
	Waiting bool
	// Rebuilding: the archive is being made anew.
	Rebuilding string
	Counts     ReportCounts
	Bytes      int64
}

// FollowOptions are how captures are followed.
type FollowOptions struct {
	// Open looks at the inputs again.
	Open func() (*capture.Set, error)
	// Events tells that something may have changed; it may be nil, and it may
	// miss what happens: the inputs are looked at again and again.
	Events <-chan struct{}
	// Once ends when all that there is was applied: an archive that is there
	// is brought up to date.
	Once bool
	// HolePatience is holePatience unless set.
	HolePatience time.Duration
	// Status is told what is being done, after each look. May be nil.
	Status func(Status)
}

type follower struct {
	opt Options
	fo  FollowOptions
	// lock is the archive's: one process at a time writes to it.
	lock   *unfinished.Lock
	live   *archive.Live
	report *Report
	conns  map[string]*followed
	order  []*followed
	reg    *registry
	ids    map[*source]int64
	// foreign: the archive was there before, made by something else, so that it
	// can't be made anew from the captures.
	foreign bool
	before  map[string]int64 // how far an earlier run applied each connection
	// lacked are the holes that it left in them; of a connection that is not in
	// it nothing is known.
	lacked map[string][]span64
	// raws are the raw streams that were applied, by id; ending: nothing of
	// them is waited for any more.
	raws map[string]rawPrefix
	// identities are those of connections that have sources without a uuid.
	identities map[string][]byte
	ending     bool
	muted      bool // what is read now was applied by an earlier run
	aside      *quarantine
	changed    map[*source]bool
	counts     map[string]int64 // of index entries, by connection and content
	counted    int              // bytes of the keys of counts
	ranks      order
	names      interned
	since      time.Time
	pending    int
	dirty      bool // a finding was added
	base       archive.Counts
	// earlier is what runs before this one counted, added: there were some.
	earlier ReportCounts
	added   bool
	again   string // why the archive must be made anew
	// set is what the inputs were when they were last looked at, unread why they
	// could not be opened.
	set    *capture.Set
	unread *wire.Finding
}

// followed is one connection and how far it was applied.
type followed struct {
	*connection
	begun bool
	from  int64 // where its first file began when it was first read
	done  bool
	hole  time.Time // since when its next bytes are missing
	shut  time.Time // since when its next file can't be opened
	// raw is nil for what a recorder wrote; gone: other bytes are under its
	// name now.
	raw  *rawStream
	gone bool
	// left: nothing of it was here at the last look.
	left bool
}

// progress is how far it was applied. Of a raw stream what was cut at its end
// was not: it may go on.
func (k *followed) progress() int64 {
	if k.raw != nil {
		return k.framed
	}
	return k.at
}

// over says that no more bytes of it will come: a raw stream may grow for as
// long as it is followed.
func (f *follower) over(c *connection) bool {
	return c.over() && (!c.Raw || f.fo.Once || f.ending)
}

// follows takes up a connection.
func (f *follower) follows(c *connection) *followed {
	k := &followed{connection: c}
	if c.later = c.Raw; c.Raw {
		k.raw = &rawStream{path: c.Files[0].Path, length: c.Files[0].Length, modified: c.Files[0].Modified()}
	}
	f.conns[c.ID], f.order = k, append(f.order, k)
	return k
}

// followState is what is committed beside the data.
type followState struct {
	Counts    ReportCounts     `json:"counts"`
	ByKind    map[string]int64 `json:"by_kind"`
	Omitted   int64            `json:"omitted"`
	Findings  []storedFinding  `json:"findings"`
	Unchecked map[string]int64 `json:"unchecked"`
	AsideRows int64            `json:"aside_rows_bytes"`
	// Foreign: something in the archive is from elsewhere, for ever.
	Foreign bool `json:"foreign,omitempty"`
	// Lacks are the holes in what was applied of each connection; earlier versions
	// have none.
	Lacks map[string][]span64 `json:"lacks,omitempty"`
	// Raws are the raw streams that were applied; earlier versions have none.
	Raws map[string]rawPrefix `json:"raw_streams,omitempty"`
	// Identities are of connections that have sources without a uuid.
	Identities map[string][]byte `json:"identities,omitempty"`
	// Relied and Apart are what of order has to be looked at again; earlier
	// versions have none.
	Relied []relied `json:"relied,omitempty"`
	Apart  bool     `json:"apart,omitempty"`
}

// storedFinding is a finding whose JSON can be read back.
type storedFinding wire.Finding

const stateName = "report"

// Follow keeps an archive up with captures that are being written, until ctx is
// done or, with Once, until all that there is was applied.
func Follow(ctx context.Context, opt Options, fo FollowOptions) (*Report, error) {
	if opt.OnBadSegment == "" {
		opt.OnBadSegment = Quarantine
	}
	if fo.HolePatience == 0 {
		fo.HolePatience = holePatience
	}
	f := &follower{opt: opt, fo: fo, report: newReport(), conns: map[string]*followed{},
		ids: map[*source]int64{}, changed: map[*source]bool{}, counts: map[string]int64{},
		raws: map[string]rawPrefix{}, identities: map[string][]byte{}, lacked: map[string][]span64{}, ranks: newOrder()}
	f.reg = newRegistry(opt.Separate, filepath.Dir(opt.Archive), func(x wire.Finding) { f.report.add(x) })
	err := f.run(ctx)
	err = errors.Join(err, f.reg.words.close())
	if f.live != nil {
		err = errors.Join(err, f.live.Close())
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Release())
	}
	f.report.finish(err)
	return f.report, err
}

func (f *follower) run(ctx context.Context) error {
	if err := f.openArchive(); err != nil {
		return err
	}
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		idle, stuck, err := f.look(ctx)
		if err == nil && f.again == "" && idle {
			f.putInOrder(false)
		}
		if err == nil && f.again != "" {
			err = f.rebuild()
			idle = false
		}
		if err == nil {
			err = f.commit()
		}
		if err == nil {
			err = f.live.There()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		f.tell(Status{Stuck: stuck, Waiting: idle && stuck == nil})
		if ctx.Err() != nil || f.fo.Once && idle && stuck == nil {
			if idle {
				if err := f.endReading(); err != nil {
					return err
				}
			}
			return f.conclude()
		}
		if !idle {
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.fo.Events:
		case <-tick.C:
		}
	}
}

// endReading reads raw streams to their ends, what is cut there included, and
// has the last word on the order of connections.
func (f *follower) endReading() error {
	if !f.fo.Once {
		if err := f.endStreams(); err != nil {
			return err
		}
	}
	if f.again == "" {
		f.putInOrder(true)
	}
	if f.again != "" {
		return f.rebuild()
	}
	return f.commit()
}

func (f *follower) endStreams() error {
	f.ending = true
	for _, k := range f.order {
		k.growing = false
	}
	for _, k := range f.order {
		if k.raw == nil {
			continue
		}
		if _, _, err := f.advance(context.Background(), k); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) tell(s Status) {
	if f.fo.Status == nil {
		return
	}
	s.Counts, s.Bytes = f.total(), f.bytes()
	f.fo.Status(s)
}

func (f *follower) bytes() (n int64) {
	for _, c := range f.order {
		n += c.at
	}
	return n
}

// openArchive locks the archive and opens it, or makes an empty one.
func (f *follower) openArchive() (err error) {
	if f.lock, err = unfinished.Take(f.opt.Archive); err != nil {
		return err
	}
	// What a run left that was stopped; somebody else's is in the way only when
	// its name is needed.
	for _, err := range []error{f.lock.Sweep(), unfinished.Sweep(f.opt.Archive + rebuildSuffix)} {
		var foreign *unfinished.ForeignError
		if err != nil && !errors.As(err, &foreign) {
			return err
		}
	}
	if err := ownAside(f.opt.Archive + quarantineSuffix); err != nil {
		return err
	}
	f.aside = newQuarantine(f.opt.Archive)
	f.aside.uuid = func(id int64) string {
		for s, n := range f.ids {
			if n == id {
				return s.uuid
			}
		}
		return ""
	}
	f.aside.connection = func(n int) *connection { return f.order[n].connection }
	f.aside.found = f.found
	_, err = os.Lstat(f.opt.Archive)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s, err := archive.NewStage(f.opt.Archive, archive.Options{Schema: f.opt.Schema, Segment: f.segmentOptions(), Lock: f.lock}, f.aside)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Resolve(), s.Finish(nil, nil)); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	live, before, err := archive.OpenLive(f.opt.Archive, archive.Options{Segment: f.segmentOptions()}, f.aside)
	if err != nil {
		return err
	}
	f.live, f.before = live, before
	f.opt.Schema = live.Schema()
	f.foreign = before == nil && !live.Empty()
	if before == nil {
		if f.foreign {
			// What it holds was stored by others, and counts as what was stored.
			held, sources, err := live.Held()
			if err != nil {
				return err
			}
			c := &f.report.Counts
			c.Rows, c.Segments, c.IndexEntries, c.ClockOffsets, c.Sources = held.Rows, held.Segments, held.IndexEntries, held.ClockOffsets, sources
			f.earlier, f.added = *c, true
		}
		body, err := json.Marshal(followState{Counts: f.report.Counts, Foreign: f.foreign})
		if err != nil {
			return err
		}
		return f.live.Commit(nil, map[string][]byte{stateName: body})
	}
	body, err := live.State(stateName)
	if err != nil || body == nil {
		return err
	}
	var st followState
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("the progress in the archive: %w", err)
	}
	f.foreign = st.Foreign
	f.earlier, f.added = st.Counts, true
	f.earlier.Bytes, f.earlier.Connections = 0, int64(len(before))
	for _, n := range before {
		f.earlier.Bytes += n
	}
	if st.Raws != nil {
		f.raws = st.Raws
	}
	if st.Identities != nil {
		f.identities = st.Identities
	}
	if st.Lacks != nil {
		f.lacked = st.Lacks
	}
	f.ranks.resume(st.Relied, st.Apart)
	r := f.report
	r.Counts, r.FindingsOmitted, r.Unchecked = st.Counts, st.Omitted, st.Unchecked
	if st.ByKind != nil {
		r.FindingsByKind = st.ByKind
	}
	for _, x := range st.Findings {
		r.Findings = append(r.Findings, wire.Finding(x))
	}
	return f.aside.resume(st.AsideRows)
}

func (f *follower) segmentOptions() segment.Options {
	return segment.Options{Depth: max(f.opt.Check, segment.DepthRows), DecodedLimit: segment.DefaultDecodedLimit}
}

// look opens the inputs and applies what is new. idle says that nothing was.
func (f *follower) look(ctx context.Context) (idle bool, stuck *wire.Finding, err error) {
	f.unread = nil
	set, err := f.fo.Open()
	if err != nil {
		var none *capture.NotCaptureError
		var place *capture.NoPlaceError
		if errors.As(err, &none) || errors.As(err, &place) || errors.Is(err, fs.ErrNotExist) {
			if f.fo.Once {
				return true, nil, err
			}
			f.unread = &wire.Finding{Kind: capture.KindUnreadable, Message: err.Error()}
			return true, f.unread, nil
		}
		return true, nil, err
	}
	if err := f.nameStreams(set); err != nil {
		return true, nil, err
	}
	f.set = set
	var fresh []*connection
	here := map[string]bool{}
	for _, c := range set.Connections {
		here[c.ID] = true
		if c.Protocol != dendro.Name || c.Refused != nil {
			continue
		}
		if k := f.conns[c.ID]; k != nil {
			k.Connection = c
			// One that was read is taken up by making the archive anew.
			k.done = k.done && (k.begun || !k.left)
			continue
		}
		if c := (&connection{Connection: c, number: len(f.order)}); c.Length() > int64(dendro.PreambleSize) {
			if f.follows(c).raw != nil {
				f.forget(f.conns[c.ID])
			}
			c.identity.before = f.identities[c.ID]
			fresh = append(fresh, c)
		}
	}
	for _, k := range f.order {
		k.growing = !f.over(k.connection)
	}
	if len(fresh) > 0 {
		var all []*connection
		for _, k := range f.order {
			if !k.gone {
				all = append(all, k.connection)
			}
		}
		if err := identify(all); err != nil {
			return true, nil, err
		}
	}
	idle = true
	for _, k := range f.order {
		var moved bool
		var hole *wire.Finding
		var err error
		if k.left = !here[k.ID] && k.raw == nil; k.left {
			hole, err = f.vanished(k)
		} else {
			moved, hole, err = f.advance(ctx, k)
		}
		if err != nil {
			return false, nil, err
		}
		if moved {
			idle = false
		}
		if hole != nil {
			stuck = hole
		}
		if f.again != "" {
			break
		}
	}
	return idle, stuck, nil
}

// advance applies what is new of a connection.
func (f *follower) advance(ctx context.Context, k *followed) (moved bool, hole *wire.Finding, err error) {
	if k.begun && slices.ContainsFunc(k.lacks, func(h missing) bool { return k.spanning(h.from, h.from+1) != nil }) &&
		f.startAgain("bytes of connection "+k.ID+" are here that were missing before") {
		return moved, nil, nil
	}
	for ctx.Err() == nil && !k.done && f.again == "" {
		runs := k.Runs()
		i := slices.IndexFunc(runs, func(r *capture.Run) bool { return r.Start <= k.at && (k.at < r.End() || k.at == r.End() && k.begun) })
		if i < 0 {
			// The bytes at k.at are missing.
			i = slices.IndexFunc(runs, func(r *capture.Run) bool { return r.Start > k.at })
			if i < 0 {
				return moved, nil, nil
			}
		}
		run := runs[i]
		if k.begun && k.at == run.End() && i+1 < len(runs) {
			run = runs[i+1]
		}
		if k.begun && run.Start > k.at {
			gap := k.holeAt(k.at, run)
			x := run.Locate(wire.Finding{Kind: gap.kind, Offset: k.at, Length: run.Start - k.at,
				Message: "bytes " + wire.Itoa(k.at) + " to " + wire.Itoa(run.Start) + " of connection " + k.ID + " are missing",
				Cost:    "what was in them, unless the file comes"})
			if f.waits(&k.hole) {
				return moved, &x, nil
			}
			f.muted = f.had(k, k.at)
			f.found(x)
			f.start(k, run)
			if err := f.restore(k, run, &gap); err != nil {
				return moved, nil, err
			}
		}
		k.hole = time.Time{}
		if !k.begun {
			var head *missing
			if run.Start > 0 || run.Context != nil {
				h := k.holeAt(0, run)
				head = &h
			}
			if f.fills(k) && f.startAgain("bytes of connection "+k.ID+" are here that were missing before") {
				return moved, nil, nil
			}
			f.start(k, run)
			if err := f.restore(k, run, head); err != nil {
				return moved, nil, err
			}
		}
		last := run == runs[len(runs)-1]
		if k.at >= run.End() {
			if last && f.over(k.connection) {
				k.done = true
				if err := f.end(k, run); err != nil {
					return moved, nil, err
				}
			}
			return moved, nil, nil
		}
		n, err := f.read(ctx, k, run, last && !f.over(k.connection))
		if moved = moved || n; n {
			k.shut = time.Time{}
		}
		var damage *capture.DamagedError
		if errors.As(err, &damage) && damage.Unopened {
			x, err := f.unopened(k, run, damage)
			if x != nil || err != nil {
				return moved, x, err
			}
			moved = true
			continue
		}
		if err != nil || !n {
			return moved, nil, err
		}
	}
	return moved, nil, nil
}

// waits says that what a connection has stood at since a time may still pass; the
// time is set at the first look.
func (f *follower) waits(since *time.Time) bool {
	if since.IsZero() {
		*since = time.Now()
	}
	return time.Since(*since) < f.fo.HolePatience && !f.fo.Once
}

// unopened is told of a file that can't be opened. One that went away since the
// inputs were looked at is missing at the next look; another one is waited for,
// and then passed over: nil says that it was. A raw stream is waited for.
func (f *follower) unopened(k *followed, run *capture.Run, damage *capture.DamagedError) (*wire.Finding, error) {
	x := damage.Finding
	switch {
	case k.raw != nil && f.fo.Once:
		return nil, damage // nothing is behind it
	case f.waits(&k.shut), k.raw != nil, errors.Is(damage.Err, fs.ErrNotExist):
		return &x, nil
	}
	k.shut = time.Time{}
	f.muted = f.had(k, k.at)
	f.found(x)
	gap := missing{x.Kind, x.Offset, x.Offset + x.Length}
	if damage.Next != nil {
		f.start(k, damage.Next)
		return nil, f.restore(k, damage.Next, &gap)
	}
	k.at, k.framed = run.End(), run.End()
	return nil, k.walker.passOver(gap, nil)
}

// vanished is told of a connection of which nothing is here any more. What was not
// applied of it is missing.
func (f *follower) vanished(k *followed) (*wire.Finding, error) {
	if k.done {
		return nil, nil
	}
	if x := f.set.Vanished(k.Connection, k.at); f.waits(&k.hole) {
		return &x, nil
	}
	return nil, f.leave(k)
}

// leave ends a connection of which nothing is here any more.
func (f *follower) leave(k *followed) error {
	x := f.set.Vanished(k.Connection, k.at)
	k.hole, k.done, k.clean = time.Time{}, true, false
	if !k.begun {
		return nil // told as one of which no file is here
	}
	f.muted = f.had(k, k.at)
	f.found(x)
	gap := missing{x.Kind, x.Offset, -1}
	if x.Length > 0 {
		gap.to = x.Offset + x.Length
	}
	return k.walker.passOver(gap, nil)
}

// start makes a decoder for the start of a run.
func (f *follower) start(k *followed, run *capture.Run) {
	if k.walker == nil {
		k.walker = &walker{c: k.connection, g: f.reg, v: f, ordinals: map[uint32]*part{}}
		k.clean = true // until a hole or its end says otherwise
	}
	if !k.begun {
		k.from = run.Start
	}
	k.begun, k.at, k.dec = true, run.Start, nil
}

// restore opens a decoder for a run; over is the hole before it, nil for none.
func (f *follower) restore(k *followed, run *capture.Run, over *missing) error {
	dec, err := k.Decoder(run)
	if err != nil {
		return err
	}
	var ok bool
	if k.dec, ok = dec.(*dendro.Decoder); !ok {
		return errors.New("connection " + k.ID + " is none of " + dendro.Name)
	}
	f.muted = f.had(k, k.at)
	switch {
	case over != nil:
		return k.walker.passOver(*over, run.Context)
	case run.Context == nil:
		return nil
	}
	return k.walker.restore(run.Context)
}

// read applies units of a run from k.at on.
func (f *follower) read(ctx context.Context, k *followed, run *capture.Run, growing bool) (moved bool, err error) {
	if k.dec == nil {
		if err := f.restore(k, run, nil); err != nil {
			return false, err
		}
	}
	units := k.UnitsFrom(run, k.at, k.dec)
	units.Growing = growing
	defer units.Close()
	began := k.at
	f.muted = f.had(k, k.at)
	_, err = k.walker.units(units, func(u wire.Unit) (bool, error) {
		f.pending += int(u.Size)
		if f.again == "" && !f.muted && (f.pending > commitBytes || time.Since(f.since) > commitEvery) {
			if err := f.commit(); err != nil {
				return false, err
			}
			f.tell(Status{})
		}
		f.muted = f.had(k, k.at)
		return f.again == "" && ctx.Err() == nil, nil
	})
	return k.at > began, err
}

// end settles what is known once a connection is over.
func (f *follower) end(k *followed, run *capture.Run) error {
	k.clean = k.clean && k.wholeAsFarAsKnown()
	for _, s := range f.reg.list {
		for _, p := range s.parts {
			if p.conn == k.connection {
				f.changed[s] = true
			}
		}
	}
	return nil
}

func (f *follower) total() ReportCounts {
	c := f.report.Counts
	n := f.live.Counts()
	c.Rows += n.Rows - f.base.Rows
	c.RowsHeld += n.RowsHeld - f.base.RowsHeld
	c.RowsConflicting += n.RowsConflicting - f.base.RowsConflicting
	c.RowsBelowWatermark += n.RowsBelowWatermark - f.base.RowsBelowWatermark
	c.RowsSuperseded += n.RowsSuperseded - f.base.RowsSuperseded
	c.Segments += n.Segments - f.base.Segments
	c.SegmentsHeld += n.SegmentsHeld - f.base.SegmentsHeld
	c.SegmentsQuarantined += n.SegmentsQuarantined - f.base.SegmentsQuarantined
	c.IndexEntries += n.IndexEntries - f.base.IndexEntries
	c.ClockOffsets += n.ClockOffsets - f.base.ClockOffsets
	return c
}

// commit makes what was applied durable with how far that is.
func (f *follower) commit() error {
	f.since = time.Now()
	if f.pending == 0 && len(f.changed) == 0 && !f.dirty {
		return nil
	}
	f.pending = 0
	for _, s := range f.reg.list {
		if !f.changed[s] {
			continue
		}
		row, err := f.row(s)
		if err == nil {
			err = f.live.SetSource(row)
		}
		if err != nil {
			return err
		}
	}
	clear(f.changed)
	progress := map[string]int64{}
	for _, k := range f.order {
		n := k.progress()
		if k.identity.sum != nil {
			f.identities[k.ID] = k.identity.sum
		}
		// Of a raw stream the preamble alone tells nothing: all have it.
		if k.gone || n == 0 || n < f.before[k.ID] || k.raw != nil && n <= int64(dendro.PreambleSize) {
			continue
		}
		if n > f.before[k.ID] {
			progress[k.ID] = n
		}
		if k.raw != nil {
			if err := k.raw.advance(k.Connection, n); err != nil {
				return err
			}
			f.raws[k.ID] = k.raw.prefix()
		}
	}
	size, err := f.aside.sync()
	if err != nil {
		return err
	}
	r := f.report
	st := followState{Counts: f.total(), ByKind: r.FindingsByKind, Omitted: r.FindingsOmitted, Unchecked: r.Unchecked, AsideRows: size, Foreign: f.foreign, Raws: f.raws, Identities: f.identities, Lacks: f.lacks(),
		Relied: f.ranks.stored(), Apart: f.ranks.apart}
	for _, x := range r.Findings {
		st.Findings = append(st.Findings, storedFinding(x))
	}
	body, err := json.Marshal(st)
	if err != nil {
		return err
	}
	f.dirty = false
	return f.live.Commit(progress, map[string][]byte{stateName: body})
}

// row is a source as far as it is known now.
func (f *follower) row(s *source) (archive.Source, error) {
	s.rank()
	newest, oldest := s.parts[0], s.parts[len(s.parts)-1]
	over := false
	if k := f.conns[newest.conn.ID]; k != nil {
		over = k.done
	}
	whole := !slices.ContainsFunc(s.parts, func(p *part) bool { return len(p.losses) > 0 || p.more() > 0 })
	labels, metadata, err := newest.told()
	return archive.Source{ID: f.ids[s], UUID: s.uuid, Labels: labels, Metadata: metadata,
		ClockAnchorWallNs: oldest.handshake.ClockAnchorWallNs,
		Complete:          newest.handshake.Complete && over && newest.conn.clean && whole}, err
}

// rebuild makes the archive anew from all captures and puts it in the place of
// the old contents, in one transaction.
func (f *follower) rebuild() (err error) {
	why := f.again
	f.again = ""
	f.tell(Status{Rebuilding: why})
	if err := f.live.Rollback(); err != nil {
		return err
	}
	set, err := f.fo.Open()
	if err != nil {
		return err
	}
	if err := f.nameStreams(set); err != nil {
		return err
	}
	folder, err := unfinished.Start(f.opt.Archive + rebuildSuffix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Abandon()) }()
	opt := f.opt
	opt.Archive = filepath.Join(folder.Path(), "archive")
	opt.Check = f.segmentOptions().Depth
	b := &builder{opt: opt, report: newReport(), set: set}
	b.sources = newRegistry(opt.Separate, filepath.Dir(opt.Archive), b.locked)
	for _, c := range set.Connections {
		if c.Protocol == dendro.Name && c.Refused == nil {
			b.addAll(c.Findings)
			k := &connection{Connection: c, number: len(b.conns)}
			k.growing, k.later = !f.over(k), c.Raw
			b.conns = append(b.conns, k)
		}
	}
	if err := b.build(); err != nil {
		return errors.Join(err, b.sources.words.close())
	}
	if err := f.live.Replace(opt.Archive); err != nil {
		return err
	}
	// From here on the archive's own state is the rebuild's.
	if err := f.reg.words.close(); err != nil {
		return err
	}
	f.reg, f.report = b.sources, b.report
	f.base = f.live.Counts()
	clear(f.ids)
	clear(f.counts)
	f.order = f.order[:0]
	clear(f.conns)
	f.before = map[string]int64{}
	clear(f.raws)
	clear(f.lacked)
	clear(f.identities)
	for _, s := range f.reg.list {
		f.ids[s] = s.id
	}
	for _, c := range b.conns {
		k := f.follows(c)
		k.begun = c.walker != nil && len(c.Runs()) > 0
		if runs := c.Runs(); len(runs) > 0 {
			k.from = runs[0].Start
		}
		if k.walker != nil {
			k.walker.v, k.walker.growing = f, true
		}
		k.done = f.over(c) && k.at >= c.end()
	}
	f.relyAnew(b.stage.Ordered)
	if err := f.aside.replace(opt.Archive + quarantineSuffix); err != nil {
		return err
	}
	f.pending = 1
	if err := f.commit(); err != nil {
		return err
	}
	return f.live.Replaced()
}

// outstanding reports what the inputs lack, and what of them could not be read,
// when they were last looked at. It may be otherwise at the next look, so it is
// not kept with the progress.
func (f *follower) outstanding() {
	if f.unread != nil {
		f.report.add(*f.unread)
	}
	if f.set == nil {
		return
	}
	found := slices.Concat(f.set.Findings, f.set.Absent())
	for _, c := range f.set.Connections {
		if c.Protocol == dendro.Name || c.Refused != nil {
			found = append(found, c.Findings...)
		}
	}
	for _, x := range found {
		if x.Kind == capture.KindNoEnd && !f.fo.Once {
			continue // the recorder is about to begin the next file
		}
		if !slices.ContainsFunc(f.report.Findings, func(y wire.Finding) bool {
			return x.Kind == y.Kind && x.Connection == y.Connection && x.Offset == y.Offset
		}) {
			f.report.add(x)
		}
	}
}

// conclude writes the report.
func (f *follower) conclude() error {
	r := f.report
	r.Counts = f.total()
	f.base = f.live.Counts()
	r.Counts.Sources = int64(len(f.reg.list))
	r.Counts.Bytes, r.Counts.Connections = 0, 0
	// All numbers are of all runs: what earlier ones applied of inputs that are
	// not here this time counts too.
	for id, n := range f.before {
		if f.conns[id] == nil {
			r.Counts.Bytes += n
			r.Counts.Connections++
		}
	}
	r.Inputs, r.Source = r.Inputs[:0], r.Source[:0]
	for _, k := range f.order {
		length := k.Length()
		if k.left {
			length = min(length, k.at)
		}
		r.Counts.Bytes += length
		for _, h := range k.lacks {
			if f.hadAll(k, h.from, h.to) {
				r.Counts.Bytes += h.bytes() // read by an earlier run, and gone since
			}
		}
		r.Counts.Connections++
		r.Inputs = append(r.Inputs, ReportInput{ID: k.ID, Protocol: k.Protocol, Bytes: length, Clean: k.done && k.clean, Used: true})
		switch {
		case k.done:
		case k.waiting:
			r.note("connections with a source without a uuid that are not read behind its Handshake: their first row, by which they are told apart, did not come yet")
		default:
			r.note("connections that were still being recorded when following ended")
		}
	}
	r.Counts.Sources = max(r.Counts.Sources, f.earlier.Sources)
	if f.added {
		n := r.Counts.minus(f.earlier)
		r.New = &n
	}
	b := &builder{opt: f.opt, report: r, sources: f.reg, contents: f.live, aside: f.aside, set: f.set}
	for _, k := range f.order {
		b.conns = append(b.conns, k.connection)
		k.had = func(from, to int64) bool { return f.hadAll(k, from, to) }
		if k.left && !k.done {
			if err := f.leave(k); err != nil {
				return err
			}
		}
		if !k.begun || k.gone {
			continue
		}
		for _, h := range k.tail() {
			if h.kind == capture.KindNoEnd && !f.fo.Once || slices.Contains(k.lacks, h) {
				continue
			}
			if err := k.walker.passOver(h, nil); err != nil {
				return err
			}
		}
	}
	if f.set != nil {
		b.absent = slices.DeleteFunc(absentLosses(slices.Concat(f.set.Findings, f.set.Absent())), func(l Loss) bool {
			k := f.conns[l.Connection]
			return k != nil && k.begun // applied as far as it was here
		})
	}
	b.prove()
	for _, s := range f.reg.list {
		if len(s.parts) == 0 {
			continue
		}
		s.rank()
		rs, complete, err := b.concludeSource(s, f.ids[s])
		if err != nil {
			return err
		}
		over := true
		if k := f.conns[s.parts[0].conn.ID]; k != nil {
			over = k.done
		}
		row, err := f.row(s)
		if err != nil {
			return err
		}
		row.Complete = complete && over
		if err := f.live.SetSource(row); err != nil {
			return err
		}
		if rs != nil {
			rs.Complete = row.Complete
			r.Source = append(r.Source, *rs)
		}
	}
	if _, err := f.aside.sync(); err != nil {
		return err
	}
	if _, err := os.Lstat(f.aside.final); err == nil {
		r.Quarantine = filepath.Base(f.aside.final)
	}
	if faults, err := f.live.Verify(); err != nil {
		return err
	} else if len(faults) > 0 {
		return fmt.Errorf("the archive %s does not verify: %s", f.opt.Archive, faults[0])
	}
	applied := r.List
	applied.FindingsByKind = maps.Clone(r.FindingsByKind)
	f.outstanding()
	for _, s := range f.reg.list {
		found, err := s.alike()
		if err != nil {
			return err
		}
		b.addAll(found)
	}
	b.settleLosses()
	doc := r.document()
	doc.CreatedWallNs = time.Now().UnixNano() / 1e6 * 1e6
	if err := f.live.PutDocument(doc); err != nil {
		return err
	}
	f.pending = 1
	told := r.List
	// What is made good is found anew each time.
	r.List = applied
	err := errors.Join(f.commit(), f.live.Checkpoint(), f.live.There())
	r.List = told
	return err
}

// visitor

func (f *follower) failed() error { return nil }

func (f *follower) found(x wire.Finding) {
	if !f.muted {
		f.report.add(x)
		f.dirty = true
	}
}

func (f *follower) frame(c *connection, u wire.Unit, out *dendro.Outcome) {
	if f.muted {
		return
	}
	f.report.Counts.frame(out)
}

// id is the source's id in the archive.
func (f *follower) id(s *source) (int64, error) {
	if id, ok := f.ids[s]; ok {
		return id, nil
	}
	id, err := f.live.Source(s.uuid)
	f.ids[s] = id
	return id, err
}

func (f *follower) handshake(p *part, h *dendro.Handshake) error {
	if err := p.open(h); err != nil {
		return err
	}
	if id := &p.conn.identity; id.moved {
		id.moved = false
		if f.startAgain("connection " + p.conn.ID + " shows only now which one it is") {
			return nil
		}
	}
	f.changed[p.src] = true
	if v := f.opt.Encoder; v != "" && p.handshake.Encoder != v {
		return &RefusedError{Finding: encoderFinding(p, v)}
	}
	_, err := f.id(p.src)
	return err
}

func (f *follower) update(p *part, u *dendro.SourceUpdate) error {
	f.changed[p.src] = true
	if !f.muted {
		f.report.Counts.SourceUpdates++
	}
	return p.update(u)
}

func (f *follower) index(p *part, x *dendro.Index, off int64) error {
	sum := sha256.Sum256(x.Blob)
	key := fmt.Sprintf("%s\x00%d\x00%s\x00%d\x00%x", p.conn.ID, f.ids[p.src], x.Stream, x.TS, sum)
	if f.counts[key]++; f.counts[key] == 1 {
		f.counted += len(key) + spanOverhead/2
	}
	stream := f.names.of(x.Stream)
	before := f.ranks.next(p, stream, x.TS)
	if f.muted {
		return nil
	}
	if f.counted > maxInterned {
		clear(f.counts)
		f.counts[key], f.counted = 1, 0
	}
	at, apart, err := f.live.AddIndex(f.ids[p.src], stream, x.TS, x.Blob, f.counts[key])
	if at != before {
		f.relyOnOrder(p)
	}
	f.ranks.apart = f.ranks.apart || apart && !f.foreign
	return err
}

func (f *follower) clock(p *part, o *dendro.ClockOffset, _ int64) error {
	p.newest.saw(o.TS)
	f.changed[p.src] = f.changed[p.src] || len(p.src.parts) > 1
	if f.muted {
		return nil
	}
	differs, err := f.live.AddClock(f.ids[p.src], o.TS, o.OffsetNs)
	if differs {
		f.relyOnOrder(p)
	}
	return err
}

func (f *follower) rows(p *part, r *dendro.Rows, off int64) error {
	p.got(r.Seq, uint64(r.Count))
	for row := range r.All() {
		p.newest.saw(row.TS)
		stream := f.names.of(row.Stream)
		p.row(stream, row.TS)
		if f.muted {
			continue
		}
		x := archive.Row{TS: row.TS, WallOffset: row.WallOffset, Bytes: row.Row, Place: archive.Place{Conn: p.conn.number, Offset: off}}
		err := f.live.AddRow(f.ids[p.src], stream, x)
		if errors.Is(err, archive.ErrOutOfOrder) {
			f.relyOnOrder(p)
			if f.startAgain("a row of stream " + quote(stream) + " differs from the one that is stored") {
				return nil
			}
			err = f.live.KeepStored(f.ids[p.src], stream, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startAgain asks for the archive to be made anew, where the captures have all
// of it.
func (f *follower) startAgain(why string) bool {
	if f.foreign {
		return false
	}
	for id := range f.before {
		if f.conns[id] == nil {
			return false // an earlier run's input is not among these
		}
	}
	for _, k := range f.order {
		runs := k.Runs()
		if len(runs) == 0 || k.gone {
			return false
		}
		// What was applied of it must still be here from its first byte on.
		_, earlier := f.before[k.ID]
		if start := runs[0].Start; start > 0 && (earlier || k.begun && start > k.from) {
			return false
		}
	}
	f.again = why
	return true
}

func (f *follower) skipped(p *part, r *dendro.Rows, off int64) error {
	if !f.muted {
		f.report.Counts.RowsSkipped += int64(r.Count)
	}
	f.reg.skip(p, r, off, &f.names)
	return nil
}

func (f *follower) gap(p *part, missing uint64, r *dendro.Rows, off int64) {
	if !f.muted {
		f.report.Counts.Gaps++
	}
	p.lose(gapLoss(p, missing, r, off))
}

func (f *follower) lost(c *connection, p *part, l Loss) {
	c.lose(p, l, 0, nil)
}

func (f *follower) refusedSegment(p *part, s *dendro.Segment, x wire.Finding, off int64) error {
	if f.muted {
		return nil
	}
	g := segmentOf(p, s, off, false)
	g.SHA = sha256.Sum256(g.Bytes)
	x.Offset, x.At = 0, 0
	g.Check = segment.Result{Findings: []wire.Finding{x}}
	f.report.Counts.SegmentsQuarantined++
	return f.aside.keepSegment(f.ids[p.src], string(s.Stream), g, x.Kind, g.Check.Findings)
}

func (f *follower) segment(p *part, s *dendro.Segment, off int64) error {
	p.sealed(f.names.of(s.Stream), s)
	if f.muted {
		if p.survey.has && s.LastTS <= p.survey.ts {
			return nil
		}
		there, err := f.live.HasSegment(f.ids[p.src], string(s.Stream), int64(s.Rows), s.FirstTS, s.LastTS, int64(len(s.Bytes)))
		if there {
			p.survey.saw(s.LastTS)
		}
		return err
	}
	g := segmentOf(p, s, off, false)
	g.SHA = sha256.Sum256(g.Bytes)
	g.Check = checkSegment(&g, f.segmentOptions())
	id, stream := f.ids[p.src], string(s.Stream)
	for _, why := range g.Check.Unchecked {
		f.report.note(why)
	}
	if !g.Check.Sound() {
		switch f.opt.OnBadSegment {
		case Refuse:
			return &RefusedError{Finding: f.aside.report(stream, g, g.Check.Findings[0])}
		case Keep:
			if f.startAgain("a segment of stream " + quote(stream) + " has a fault and is kept") {
				return nil
			}
		}
		return f.live.SetSegmentAside(id, stream, g, g.Check.Findings[0].Kind)
	}
	p.survey.saw(s.LastTS)
	err := f.live.AddSegment(id, stream, g)
	if errors.Is(err, archive.ErrOutOfOrder) {
		if f.startAgain("a segment of stream " + quote(stream) + " belongs before what is stored") {
			return nil
		}
		err = f.live.SetSegmentAside(id, stream, g, archive.KindSegmentConflict)
	}
	return err
}
