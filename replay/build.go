package replay

// This file is the rebuild: connections are read in the common order, newest
// first, and what the rules let through goes to the stage through a bounded
// queue, with the checks of segments done beside it.

import (
	"crypto/sha256"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"wiretape/capture"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// batchRows and batchBytes are how many rows are gathered before they go
	// to SQLite: enough that streams which alternate row by row come in runs.
	batchRows  = 8192
	batchBytes = 4 << 20
	// largeBytes is from where on a value goes alone.
	largeBytes = 1 << 20
	// aliasBytes is from where on it is not copied: reading waits until it is
	// written.
	aliasBytes = 16 << 20
	// queueBytes is how much may lie between reading and writing; one frame
	// that is larger passes alone.
	queueBytes = 24 << 20
)

type builder struct {
	opt     Options
	report  *Report
	sources *registry
	conns   []*connection
	// set is the input; absent are the losses of connections of which no byte is
	// in it.
	set      *capture.Set
	absent   []Loss
	stage    *archive.Stage
	contents contents
	aside    *quarantine
	mu       sync.Mutex // report and aside: the writer and the reader share them

	// reading
	pass    int
	batch   *batch
	queue   chan *batch
	room    *budget
	workers chan struct{}
	stop    chan struct{} // closed when the writer failed
	// strict is what the crate would have refused first.
	strict *RefusedError
	names  interned
	// present is what there is, where a part was asked for.
	present archive.Present
	read    int64
	total   int64
}

// contents is what an archive tells of what it holds.
type contents interface {
	EachStream(source int64, fn func(archive.StreamSummary) error) error
	Covered(source int64, stream string, from, to int64, near func(a, b int64) bool) (bool, error)
	HasSegment(source int64, stream string, rows, first, last, length int64) (bool, error)
	HasRow(source int64, stream string, ts int64) (bool, error)
	HasIndex(source int64, stream string, ts int64) (bool, error)
	HasClock(source, ts int64) (bool, error)
	EachSpan(source int64, stream string, width int64, fn func(first, last int64, live bool)) error
}

// batch is a piece of work for the writer, in the order of its connection.
type batch struct {
	groups  []group
	byKey   map[groupKey]int
	arena   []byte
	rows    int
	bytes   int
	indexes []indexItem
	clocks  []clockItem
	seg     *segItem
	size    int64 // held of the budget
	held    int64 // taken from it before it was copied
	// done, where what the batch holds was not copied, is closed once it is
	// written.
	done chan struct{}
}

type groupKey struct {
	src    *source
	stream string
}

type group struct {
	groupKey
	rows []archive.Row
}

type indexItem struct {
	src    *source
	stream string
	ts     int64
	blob   []byte
	rank   int
	pos    int64
}

type clockItem struct {
	src        *source
	ts, offset int64
	rank       int
}

type segItem struct {
	p      *part
	stream string
	s      archive.Segment
	done   chan struct{}
	// refused: the decoder reported it already, and no policy keeps it.
	refused bool
}

func (b *builder) addAll(fs []wire.Finding) {
	for _, f := range fs {
		b.report.add(f)
	}
}

func (b *builder) segmentOptions() segment.Options {
	return segment.Options{Depth: b.opt.Check, DecodedLimit: segment.DefaultDecodedLimit}
}

func (b *builder) build() (err error) {
	for _, c := range b.conns {
		c.recording = b.set.Recording(c.Connection)
		b.total += c.Length()
	}
	if err := identify(b.conns); err != nil {
		return err
	}
	order, passes := b.conns, 1
	if len(b.conns) > 1 || len(b.opt.Select.Labels) > 0 {
		b.total *= 2
		o := b.segmentOptions()
		o.Depth = max(o.Depth, segment.DepthRows)
		for _, c := range b.conns {
			if err := walk(c, b.sources, surveyor{o}, b.progress); err != nil {
				return err
			}
		}
		order, passes = b.sources.rank(b.conns)
		b.total += int64(passes-1) * b.total / 2
	}
	for _, s := range b.sources.list {
		in, err := b.opt.Select.source(s)
		if err != nil {
			return err
		}
		s.left = !in
	}
	b.report.Selection = b.opt.Select.statements()
	b.aside = newQuarantine(b.opt.Archive)
	b.aside.uuid = func(id int64) string { return b.sources.list[id-1].uuid }
	b.aside.connection = func(n int) *connection { return b.conns[n] }
	b.aside.found = b.locked
	b.stage, err = archive.NewStage(b.opt.Archive, archive.Options{Schema: b.opt.Schema, Segment: b.segmentOptions()}, b.aside)
	if err != nil {
		return err
	}
	b.contents = b.stage
	b.aside.tmp = filepath.Join(b.stage.Folder(), quarantineName)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.aside.abort(), b.stage.Abort())
		}
	}()
	if err := b.contribute(order, passes); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.conns, func(c *connection) bool { return c.refused == nil }) {
		return &RefusedError{Finding: *b.conns[0].refused}
	}
	if err := b.stage.Resolve(); err != nil {
		return err
	}
	rows, err := b.conclude()
	if err != nil {
		return err
	}
	if c := &b.report.Counts; len(b.report.Selection) > 0 && (c.Sources == 0 || !b.opt.Select.whole() && c.Rows+c.Segments == 0) {
		return b.nothing()
	}
	if made, err := b.aside.finish(); err != nil {
		return err
	} else if made {
		b.report.Quarantine = filepath.Base(b.aside.final)
	}
	doc := b.report.document()
	doc.CreatedWallNs = time.Now().UnixNano() / 1e6 * 1e6
	return b.stage.Finish(rows, doc)
}

// failed is what a visitor reports though its method has no error.
func (b *builder) failed() error {
	if b.strict != nil {
		return b.strict
	}
	return nil
}

func (b *builder) progress(n int64) {
	b.read += n
	if b.opt.Progress != nil {
		b.opt.Progress(Progress{Read: b.read, Total: b.total, Frames: b.report.Counts.Frames})
	}
}

// contribute reads all connections and writes what they contribute.
func (b *builder) contribute(order []*connection, passes int) error {
	b.queue = make(chan *batch, 64)
	b.room = newBudget(queueBytes)
	b.workers = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))
	b.stop = make(chan struct{})
	done := make(chan error, 1)
	go func() {
		var failed error
		for x := range b.queue {
			if failed == nil {
				if failed = b.write(x); failed != nil {
					close(b.stop)
				}
			}
			b.room.give(x.size)
			if x.done != nil {
				close(x.done)
			}
		}
		done <- failed
	}()
	var err error
	for b.pass = 0; b.pass < passes && err == nil; b.pass++ {
		for _, c := range order {
			if err = walk(c, b.sources, b, b.progress); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = b.flush(nil)
	}
	close(b.queue)
	if werr := <-done; werr != nil {
		return werr
	}
	return err
}

var errStopped = errors.New("writing failed")

// flush sends what is gathered, and a segment behind it.
func (b *builder) flush(seg *segItem) error {
	x := b.batch
	b.batch = nil
	if x == nil {
		if seg == nil {
			return nil
		}
		x = &batch{}
	}
	x.seg = seg
	// What is large was taken from the budget before it was copied.
	if x.size = x.held; x.size == 0 {
		x.size = int64(x.bytes) + int64(x.rows)*64
		if !b.room.take(x.size, b.stop) {
			return errStopped
		}
	}
	select {
	case b.queue <- x:
	case <-b.stop:
		return errStopped
	}
	if x.done == nil {
		return nil
	}
	select {
	case <-x.done:
		return nil
	case <-b.stop:
		return errStopped
	}
}

// reserve takes n bytes from the budget for what comes next, before it is
// copied: what is gathered goes first.
func (b *builder) reserve(n int) error {
	if err := b.flush(nil); err != nil {
		return err
	}
	if !b.room.take(int64(n), b.stop) {
		return errStopped
	}
	b.batch = &batch{byKey: map[groupKey]int{}, held: int64(n)}
	if n > aliasBytes {
		b.batch.done = make(chan struct{})
		// What reading it took goes before SQLite takes its copies.
		debug.FreeOSMemory()
	}
	return nil
}

func (b *builder) gather() *batch {
	if b.batch == nil {
		b.batch = &batch{byKey: map[groupKey]int{}, arena: make([]byte, 0, batchBytes/4)}
	}
	return b.batch
}

// keep copies bytes into the batch's arena, which may move: what is kept
// before stays valid in the old one.
func (x *batch) keep(p []byte) []byte {
	if x.done != nil {
		return p
	}
	if cap(x.arena)-len(x.arena) < len(p) {
		x.arena = make([]byte, 0, max(len(p), batchBytes/4))
	}
	x.bytes += len(p)
	at := len(x.arena)
	x.arena = append(x.arena, p...)
	return x.arena[at:len(x.arena):len(x.arena)]
}

// intern gives a stream's name as one string for all its rows.
func (b *builder) intern(stream []byte) string { return b.names.of(stream) }

// mine says that p's source is selected and contributed in this pass.
func (b *builder) mine(p *part) bool { return p.src.own == b.pass && !p.src.left }

func (b *builder) write(x *batch) error {
	for i := range x.groups {
		g := &x.groups[i]
		if err := b.stage.AddRows(g.src.id, g.stream, g.rows); err != nil {
			return err
		}
	}
	for _, e := range x.indexes {
		if err := b.stage.AddIndex(e.src.id, e.stream, e.ts, e.blob, e.rank, e.pos); err != nil {
			return err
		}
	}
	for _, o := range x.clocks {
		if err := b.stage.AddClock(o.src.id, o.ts, o.offset, o.rank); err != nil {
			return err
		}
	}
	if x.seg == nil {
		return nil
	}
	<-x.seg.done
	return b.writeSegment(x.seg)
}

func (b *builder) writeSegment(g *segItem) error {
	b.unchecked(g)
	if g.refused {
		b.stage.CountQuarantined()
		return b.aside.keepSegment(g.p.src.id, g.stream, g.s, g.s.Check.Findings[0].Kind, g.s.Check.Findings)
	}
	if !g.s.Check.Sound() {
		f := g.s.Check.Findings[0]
		switch b.opt.OnBadSegment {
		case Refuse:
			return &RefusedError{Finding: b.aside.report(g.stream, g.s, f)}
		case Keep:
			b.aside.report(g.stream, g.s, f)
			g.s.Check.Proved = false
		default:
			b.stage.CountQuarantined()
			return b.aside.Segment(g.p.src.id, g.stream, g.s, f.Kind)
		}
	}
	return b.stage.AddSegment(g.p.src.id, g.stream, g.s)
}

// unchecked notes what could not be checked; it is no fault.
func (b *builder) unchecked(g *segItem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, why := range g.s.Check.Unchecked {
		b.report.note(why)
	}
}

// visitor

func (b *builder) frame(c *connection, u wire.Unit, out *dendro.Outcome) {
	if b.pass > 0 {
		return
	}
	b.report.Counts.frame(out)
}

func (b *builder) found(f wire.Finding) {
	if b.pass > 0 {
		return
	}
	b.locked(f)
	if b.opt.Strict && b.strict == nil && refusedKinds[f.Kind] {
		b.strict = &RefusedError{Finding: f}
	}
}

// locked adds a finding; the reader and the writer both have some.
func (b *builder) locked(f wire.Finding) {
	b.mu.Lock()
	b.report.add(f)
	b.mu.Unlock()
}

func (b *builder) handshake(p *part, h *dendro.Handshake) error {
	if len(b.opt.Select.Sources) > 0 {
		p.src.left = p.src.left || !b.opt.Select.Source(p.src.uuid, nil) && len(b.opt.Select.Labels) == 0
	}
	if !b.mine(p) {
		return nil
	}
	if err := p.open(h); err != nil {
		return err
	}
	if v := b.opt.Encoder; v != "" && p.handshake.Encoder != v {
		return &RefusedError{Finding: encoderFinding(p, v)}
	}
	return nil
}

func (b *builder) update(p *part, u *dendro.SourceUpdate) error {
	if b.mine(p) {
		b.report.Counts.SourceUpdates++
		return p.update(u)
	}
	return nil
}

func (b *builder) index(p *part, x *dendro.Index, off int64) error {
	if !b.mine(p) {
		return nil
	}
	if s := &b.opt.Select; !s.offset(off) || !s.before(x.TS) {
		return nil
	}
	if len(x.Blob) > largeBytes {
		if err := b.reserve(len(x.Blob)); err != nil {
			return err
		}
	}
	t := b.gather()
	t.indexes = append(t.indexes, indexItem{p.src, b.intern(x.Stream), x.TS, t.keep(x.Blob), p.rank, p.pos})
	p.pos++
	t.rows++
	t.bytes += len(x.Stream)
	return b.flushFull()
}

func (b *builder) clock(p *part, o *dendro.ClockOffset, off int64) error {
	if s := &b.opt.Select; !b.mine(p) || !s.offset(off) || !s.Span(o.TS, o.TS) {
		return nil
	}
	p.newest.saw(o.TS)
	t := b.gather()
	t.clocks = append(t.clocks, clockItem{p.src, o.TS, o.OffsetNs, p.rank})
	t.rows++
	return b.flushFull()
}

func (b *builder) rows(p *part, r *dendro.Rows, off int64) error {
	if b.pass == 0 && len(b.report.Selection) > 0 {
		for row := range r.All() {
			b.present.Saw(b.intern(row.Stream), row.TS, row.TS)
		}
	}
	if !b.mine(p) {
		return nil
	}
	sel := &b.opt.Select
	if !sel.offset(off) {
		return nil
	}
	p.got(r.Seq, uint64(r.Count))
	part := !sel.whole()
	for row := range r.All() {
		if part && (!sel.Span(row.TS, row.TS) || !sel.Stream(b.intern(row.Stream))) {
			continue
		}
		if len(row.Row) > largeBytes {
			if err := b.reserve(len(row.Row)); err != nil {
				return err
			}
		}
		t := b.gather()
		k := groupKey{p.src, b.intern(row.Stream)}
		i, ok := t.byKey[k]
		if !ok {
			i = len(t.groups)
			t.byKey[k] = i
			t.groups = append(t.groups, group{groupKey: k})
			t.bytes += len(k.stream) + spanOverhead
		}
		if b.opt.Strict {
			b.strictRow(p, k.stream, row.TS)
		}
		p.newest.saw(row.TS)
		p.row(k.stream, row.TS)
		g := &t.groups[i]
		g.rows = append(g.rows, archive.Row{TS: row.TS, WallOffset: row.WallOffset, Bytes: t.keep(row.Row),
			Place: archive.Place{Conn: p.conn.number, Offset: off}})
		t.rows++
		if err := b.flushFull(); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) flushFull() error {
	if b.batch.rows < batchRows && b.batch.bytes < batchBytes && b.batch.held == 0 {
		return nil
	}
	return b.flush(nil)
}

func (b *builder) skipped(p *part, r *dendro.Rows, off int64) error {
	if !b.mine(p) {
		return nil
	}
	b.report.Counts.RowsSkipped += int64(r.Count)
	b.sources.skip(p, r, off, &b.names)
	return nil
}

func (b *builder) gap(p *part, missing uint64, r *dendro.Rows, off int64) {
	if !b.mine(p) {
		return
	}
	b.report.Counts.Gaps++
	p.lose(gapLoss(p, missing, r, off))
}

func (b *builder) lost(c *connection, p *part, l Loss) {
	c.lose(p, l, b.pass, b.mine)
}

func (b *builder) segment(p *part, s *dendro.Segment, off int64) error {
	if b.pass == 0 && len(b.report.Selection) > 0 {
		b.present.Saw(b.intern(s.Stream), s.FirstTS, s.LastTS)
	}
	if !b.mine(p) {
		return nil
	}
	if sel := &b.opt.Select; !sel.offset(off) || !sel.Span(s.FirstTS, s.LastTS) || !sel.Stream(b.intern(s.Stream)) {
		return nil
	}
	if b.opt.Strict {
		if err := b.strictSegment(p, s, off); err != nil {
			return err
		}
	}
	g, err := b.segItem(p, s, off)
	if err != nil {
		return err
	}
	p.sealed(g.stream, s)
	select {
	case b.workers <- struct{}{}:
	case <-b.stop:
		return errStopped
	}
	o := b.segmentOptions()
	known, ok := p.conn.checked[off]
	ok = ok && o.Depth >= segment.DepthRows
	go func() {
		g.s.SHA = sha256.Sum256(g.s.Bytes)
		if g.s.Check = known; !ok {
			g.s.Check = checkSegment(&g.s, o)
		}
		close(g.done)
		<-b.workers
	}()
	return b.flush(g)
}

// refusedSegment sets the bytes of a segment aside whose claim can't be.
func (b *builder) refusedSegment(p *part, s *dendro.Segment, f wire.Finding, off int64) error {
	if !b.mine(p) {
		return nil
	}
	g, err := b.segItem(p, s, off)
	if err != nil {
		return err
	}
	g.s.SHA = sha256.Sum256(g.s.Bytes)
	f.Offset = 0
	g.s.Check = segment.Result{Findings: []wire.Finding{f}}
	g.refused = true
	close(g.done)
	return b.flush(g)
}

func (b *builder) segItem(p *part, s *dendro.Segment, off int64) (*segItem, error) {
	if err := b.reserve(len(s.Bytes) + len(s.CallerIndex)); err != nil {
		return nil, err
	}
	return &segItem{p: p, stream: b.intern(s.Stream), done: make(chan struct{}), s: segmentOf(p, s, off, b.batch.done == nil)}, nil
}

// segmentOf takes a segment out of its frame, as a copy or not; its SHA is left
// to who has the time.
func segmentOf(p *part, s *dendro.Segment, off int64, copied bool) archive.Segment {
	g := archive.Segment{Rows: s.Rows, FirstTS: s.FirstTS, LastTS: s.LastTS, Bytes: s.Bytes,
		CallerIndex: s.CallerIndex, HasCallerIndex: s.HasCallerIndex,
		Place: archive.Place{Conn: p.conn.number, Offset: off}}
	if copied {
		g.Bytes, g.CallerIndex = slices.Clone(g.Bytes), slices.Clone(g.CallerIndex)
	}
	return g
}

func checkSegment(s *archive.Segment, o segment.Options) segment.Result {
	return segment.Check(s.Bytes, segment.Claim{Rows: s.Rows, FirstTS: s.FirstTS, LastTS: s.LastTS}, o)
}

// budget is a number of bytes that may be under way.
type budget struct {
	mu   sync.Mutex
	free int64
	all  int64
	wake chan struct{}
}

func newBudget(n int64) *budget { return &budget{free: n, all: n, wake: make(chan struct{}, 1)} }

// take waits until n bytes are free, or until nothing is under way.
func (b *budget) take(n int64, stop <-chan struct{}) bool {
	for {
		b.mu.Lock()
		ok := b.free >= n || b.free == b.all
		if ok {
			b.free -= n
		}
		b.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-b.wake:
		case <-stop:
			return false
		}
	}
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	b.free += n
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// hash is the SHA-256 of all bytes of the connection, found out at first use.
// Bytes that can't be read are left out: reading reports them.
func (c *connection) hash() []byte {
	if c.sha != nil {
		return c.sha
	}
	h := sha256.New()
	for _, run := range c.Runs() {
		src, _ := run.Open()
		_, _ = io.Copy(h, src)
		_ = src.Close()
	}
	c.sha = h.Sum(nil)
	return c.sha
}
