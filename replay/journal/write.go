package journal

// This file writes a lineage: its entries in order, in the files that a replica
// has, and into the catalogue; the chain runs along.

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"wiretape/wire"
	"wiretape/wire/melin"
)

// file is a journal file that was written.
type file struct {
	id       int
	kind     string // "segment", or "entries" where a segment's start is missing
	name     string // relative to the output
	part     int
	start    uint64
	last     uint64 // start-1 without entries
	header   []byte
	anchor   [melin.HashSize]byte
	hash     [melin.HashSize]byte // the chain at its end
	hasHash  bool
	size     int64 // padding included
	entries  int64
	complete bool // closed by a boundary
}

// bufferSize is how much is gathered before it is written and hashed.
const bufferSize = 256 << 10

type writer struct {
	b       *builder
	g       *lineage
	part    int
	folder  string
	out     *os.File
	cur     *file
	closed  int // segments closed in this part
	buf     []byte
	size    int64 // of cur, with buf
	chain   chain
	nextB   int
	nextP   int
	begun   bool
	last    uint64
	allowed bool // a layout with journal files is among the lineage's
	files   bool // the current entries go into journal files
	chained bool // they carry what the chain covers
	genesis *uint64
}

// write makes the files of a lineage.
func (b *builder) write(g *lineage) (err error) {
	w := &writer{b: b, g: g, part: 1, folder: fmt.Sprintf("lineage-%d", g.number), buf: make([]byte, 0, bufferSize+maxEntry)}
	g.folder = w.folder
	w.decide()
	if err := w.makeFolder(); err != nil {
		return err
	}
	defer func() {
		if w.out != nil {
			err = errors.Join(err, w.out.Close())
		}
	}()
	w.chain.lose("the record of this lineage begins here")
	if len(g.pieces) > 0 {
		if err := w.damagedStart(g.pieces[0].first); err != nil {
			return err
		}
	}
	for _, p := range g.pieces {
		if w.begun && p.first > w.last+1 {
			if err := w.hole(w.last+1, p.first-1); err != nil {
				return err
			}
		}
		if err := w.piece(p); err != nil {
			return fmt.Errorf("connection %s: %w", p.from.link.id(), err)
		}
	}
	if err := w.end(); err != nil {
		return err
	}
	return w.snapshots()
}

// whyUnchained is why nothing of a chain can be proved before protocol 6.
const whyUnchained = "the entries of layouts before protocol 6 do not carry the CRC that the chain covers"

// whyFirst is why the anchor of the first segment can't be proved.
const whyFirst = "the first segment's anchor has no entries before it"

// decide says what can be made of the lineage's layouts.
func (w *writer) decide() {
	for _, m := range w.g.members {
		if m.down == nil {
			continue
		}
		w.allowed = w.allowed || m.layout >= 7
		if !m.hasGenesis {
			continue
		}
		if w.genesis != nil && *w.genesis != m.genesisEntries {
			w.b.found(m.down.Runs()[0], wire.Finding{Kind: KindGenesis, Want: wire.Utoa(*w.genesis), Got: wire.Utoa(m.genesisEntries),
				Message: "another length of the genesis than the lineage's other connections name"})
		} else {
			w.genesis = &m.genesisEntries
		}
	}
	w.chained = len(w.g.pieces) == 0 || w.g.pieces[0].from.link.layout.Shape() == melin.ShapeCRC
	w.files = w.allowed && w.chained
}

// turn goes over from entries that carry the chain's bytes to such that do not,
// or back, as after an upgrade of the nodes.
func (w *writer) turn(chained bool) error {
	if chained == w.chained {
		return nil
	}
	if err := w.nextPart(); err != nil {
		return err
	}
	w.chained, w.files = chained, w.allowed && chained
	w.chain.lose(whyUnchained)
	return w.makeFolder()
}

// nextPart ends the files of this part.
func (w *writer) nextPart() error {
	if err := w.close(false); err != nil {
		return err
	}
	w.part++
	w.folder, w.closed = filepath.Join(w.g.folder, fmt.Sprintf("part-%d", w.part)), 0
	return nil
}

func (w *writer) makeFolder() error {
	if !w.files {
		return nil
	}
	return os.MkdirAll(filepath.Join(w.b.dir, w.folder), 0o700)
}

func (w *writer) piece(p piece) error {
	if err := w.turn(p.from.link.layout.Shape() == melin.ShapeCRC); err != nil {
		return err
	}
	if p.from.batches {
		w.begun, w.last = true, p.last
		return nil
	}
	e, err := w.b.open(p.from, p.first, p.last)
	if err != nil {
		return err
	}
	defer e.Close()
	for {
		more, err := e.Next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := w.entry(e.Entry()); err != nil {
			return err
		}
	}
	if w.last != p.last {
		return fmt.Errorf("it ends at sequence %d instead of %d: %w", w.last, p.last, errChanged)
	}
	return nil
}

// entry writes one entry behind all before it.
func (w *writer) entry(e *entry) error {
	if err := w.pass(e.sequence); err != nil {
		return err
	}
	if err := w.boundaryAt(e.sequence); err != nil {
		return err
	}
	if w.files && w.cur == nil {
		if err := w.create("entries", e.sequence, nil); err != nil {
			return err
		}
	}
	if !w.begun && !w.chain.known() {
		why := "the segment's entries before " + wire.Utoa(e.sequence) + " are not in the recording"
		if e.sequence == 1 {
			why = "no anchor of the first segment is in the recording"
		}
		w.chain.lose(why)
	}
	var segment, position any
	if w.chained {
		if w.files {
			segment, position = int64(w.cur.id), w.size
			w.cur.last = e.sequence
			w.cur.entries++
		}
		w.buf = appendEntry(w.buf, e.slot.Raw)
		w.size += int64(len(melin.EntryMagic) + len(e.slot.Raw))
		if len(w.buf) >= bufferSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	w.begun, w.last = true, e.sequence
	s := &e.slot
	err := w.b.cat.entries.Add(int64(w.g.number), int64(s.Sequence), int64(s.Timestamp), int64(s.KeyHash), int64(s.Event),
		segment, position, int64(len(s.Raw)), int64(e.link.downID), e.offset)
	if err != nil {
		return err
	}
	return w.check(e.sequence)
}

// flush writes and hashes what was gathered.
func (w *writer) flush() error {
	w.chain.write(w.buf)
	var err error
	if w.out != nil && len(w.buf) > 0 {
		_, err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return err
}

// boundaryAt begins a new segment where one starts at seq.
func (w *writer) boundaryAt(seq uint64) error {
	bs := w.g.boundaries
	for w.nextB < len(bs) && bs[w.nextB].start <= seq {
		x, end := bs[w.nextB], w.nextB+1
		for end < len(bs) && bs[end].start == x.start {
			end++
		}
		if end > w.nextB+1 {
			var err error
			if x, err = w.anchorOf(bs[w.nextB:end]); err != nil {
				return err
			}
		}
		w.nextB = end
		if x.start < seq {
			continue
		}
		if err := w.begin(x); err != nil {
			return err
		}
	}
	return nil
}

// anchorOf decides between anchors that are named for one segment: the chain's
// own counts where it is known, else the first.
func (w *writer) anchorOf(bs []boundary) (boundary, error) {
	if err := w.flush(); err != nil {
		return boundary{}, err
	}
	best := bs[0]
	if w.chain.known() && w.last+1 == best.start {
		sum := w.chain.sum()
		for _, x := range bs {
			if x.anchor == sum {
				best = x
			}
		}
	}
	for _, x := range bs {
		if x.anchor == best.anchor {
			continue
		}
		f := wire.Finding{Kind: KindAnchor, Want: hex.EncodeToString(best.anchor[:]), Got: hex.EncodeToString(x.anchor[:]),
			Message: "two anchors are named for the segment from sequence " + wire.Utoa(x.start)}
		for i := range w.g.points {
			if p := &w.g.points[i]; p.segment && p.sequence+1 == x.start && p.hash == x.anchor {
				f.Offset = p.offset
				f = p.run.Locate(f)
				break
			}
		}
		w.b.report.add(f)
	}
	return best, nil
}

// begin closes the current segment and opens the next.
func (w *writer) begin(x boundary) error {
	if err := w.close(true); err != nil {
		return err
	}
	w.chain.start(x.anchor)
	if !w.files {
		return nil
	}
	h := Header{Version: VersionPlain, Start: x.start, Anchor: x.anchor}
	if w.genesis != nil {
		h.Version, h.GenesisEntries = VersionGenesis, *w.genesis
	}
	header := h.Append(nil)
	for _, m := range w.g.members {
		for _, s := range m.bodies { // a seed has the header as the primary has it
			if p, fault := ParseHeader(s.header); fault == "" && p.Start == x.start && p.Anchor == x.anchor {
				header = s.header[:HeaderSize]
			}
		}
	}
	if err := w.create("segment", x.start, header); err != nil {
		return err
	}
	w.cur.anchor = x.anchor
	return nil
}

func (w *writer) create(kind string, start uint64, header []byte) error {
	name := LiveName
	if kind == "entries" {
		name = "entries-" + wire.Utoa(start)
	}
	w.b.cat.files++
	w.cur = &file{id: w.b.cat.files, kind: kind, name: filepath.Join(w.folder, name), part: w.part, start: start, last: start - 1, header: header}
	f, err := os.OpenFile(filepath.Join(w.b.dir, w.cur.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.out, w.size = f, int64(len(header))
	_, err = f.Write(header)
	return err
}

// close ends the current file: with its number when a boundary closes it, else
// as the newest, padded to a whole sector.
func (w *writer) close(boundary bool) error {
	if err := w.flush(); err != nil {
		return err
	}
	f := w.cur
	if f == nil {
		return nil
	}
	w.cur = nil
	if w.chain.known() && w.chain.taint == nil && f.kind == "segment" {
		f.hash, f.hasHash = w.chain.sum(), true
	}
	f.complete = boundary
	if f.kind == "segment" && !boundary {
		pad := (SectorSize - w.size%SectorSize) % SectorSize
		if _, err := w.out.Write(make([]byte, pad)); err != nil {
			return err
		}
		w.size += pad
	}
	f.size = w.size
	err := w.out.Close()
	w.out = nil
	if err != nil {
		return err
	}
	if f.kind == "segment" && boundary {
		w.closed++
		name := filepath.Join(w.folder, fmt.Sprintf("%s.%06d", LiveName, w.closed))
		if err := os.Rename(filepath.Join(w.b.dir, f.name), filepath.Join(w.b.dir, name)); err != nil {
			return err
		}
		f.name = name
	}
	w.g.files = append(w.g.files, f)
	return nil
}

// hole goes over sequences that no connection carries soundly: the files of
// this part end. Where all of them came, but damaged, the chain takes them as
// they came, so that it shows the damage too.
func (w *writer) hole(from, to uint64) error {
	// A segment that starts with what is missing was begun on a replica.
	if err := w.boundaryAt(from); err != nil {
		return err
	}
	if err := w.nextPart(); err != nil {
		return err
	}
	if err := w.makeFolder(); err != nil {
		return err
	}
	ds, all := w.g.damagedAll(from, to)
	if !all || !w.chain.known() {
		w.chain.lose(missingText(from, to))
		w.last = to
		return w.passHole(from, to)
	}
	for _, d := range ds {
		if err := w.taint(d); err != nil {
			return err
		}
		w.last = d.last
		if d.last == 0 {
			w.last = to
		}
		if err := w.check(w.last); err != nil {
			return err
		}
	}
	w.last = to
	return nil
}

// taint takes damaged bytes into the chain as they came.
func (w *writer) taint(d damage) error {
	raw, err := readRaw(&d)
	if err != nil {
		return err
	}
	if w.chain.taint == nil {
		w.chain.taint = &d
	}
	w.chain.write([]byte(melin.EntryMagic))
	w.chain.write(raw)
	return nil
}

// damagedStart begins the chain where the entries from a segment's beginning to
// the first sound one came damaged.
func (w *writer) damagedStart(first uint64) error {
	for i := len(w.g.boundaries) - 1; i >= 0; i-- {
		x := w.g.boundaries[i]
		if x.start >= first {
			continue
		}
		ds, all := w.g.damagedAll(x.start, first-1)
		if !all || !w.chained {
			continue
		}
		w.chain.start(x.anchor)
		w.nextB = i + 1
		for _, d := range ds {
			if err := w.taint(d); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func missingText(from, to uint64) string { return rangeText(from, to) + " missing" }

// damagedAll gives the damages that stand for all sequences from one to another.
func (g *lineage) damagedAll(from, to uint64) (ds []damage, all bool) {
	i := sort.Search(len(g.damages), func(i int) bool { return g.damages[i].first >= from })
	for _, d := range g.damages[i:] {
		if d.first > from {
			break
		}
		if d.first < from {
			continue // another connection's, of the same entries
		}
		ds = append(ds, d)
		if d.last == 0 || d.last >= to {
			return ds, true
		}
		from = d.last + 1
	}
	return ds, false
}

// maxDamageRead is more than a frame has.
const maxDamageRead = melin.MaxFrame + melin.PrefixSize

func readRaw(d *damage) ([]byte, error) {
	src, _ := d.run.OpenAt(d.offset)
	defer src.Close()
	b := make([]byte, min(d.length, maxDamageRead))
	if _, err := io.ReadFull(src, b); err != nil {
		return nil, fmt.Errorf("connection %s at %d: %w", d.link.id(), d.offset, err)
	}
	return b, nil
}

// pass settles the hashes that are named below seq and were not reached.
func (w *writer) pass(seq uint64) error {
	for ; w.nextP < len(w.g.points) && w.g.points[w.nextP].sequence < seq; w.nextP++ {
		why := "the record of this lineage begins at sequence " + wire.Utoa(seq)
		if w.begun {
			why = w.chain.why
		}
		if w.chain.taint != nil && w.g.points[w.nextP].sequence > 0 {
			why = "the entries there are damaged"
		}
		if w.g.points[w.nextP].sequence == 0 {
			why = whyFirst
		}
		if err := w.verdict(&w.g.points[w.nextP], NotProvable, w.reason(why)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) passHole(from, to uint64) error {
	for ; w.nextP < len(w.g.points) && w.g.points[w.nextP].sequence <= to; w.nextP++ {
		if err := w.verdict(&w.g.points[w.nextP], NotProvable, w.reason(missingText(from, to))); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) reason(why string) string {
	if !w.chained {
		return whyUnchained
	}
	return why
}

// check holds the chain behind seq against the hashes that are named for it.
func (w *writer) check(seq uint64) error {
	var sum [melin.HashSize]byte
	summed := false
	for ; w.nextP < len(w.g.points) && w.g.points[w.nextP].sequence == seq; w.nextP++ {
		p := &w.g.points[w.nextP]
		if !w.chained || !w.chain.known() {
			if err := w.verdict(p, NotProvable, w.reason(w.chain.why)); err != nil {
				return err
			}
			continue
		}
		if !summed {
			if err := w.flush(); err != nil {
				return err
			}
			sum, summed = w.chain.sum(), true
		}
		v, reason := Proved, ""
		if sum != p.hash && !w.emptyBehind(p) {
			v, reason = Failed, w.mismatch(p, sum)
		}
		if err := w.verdict(p, v, reason); err != nil {
			return err
		}
	}
	return nil
}

// emptyBehind says that the hash is that of the segment that starts right
// behind the sequence: who has rotated already names it so.
func (w *writer) emptyBehind(p *point) bool {
	if p.segment {
		return false
	}
	bs := w.g.boundaries
	i := sort.Search(len(bs), func(i int) bool { return bs[i].start > p.sequence })
	return i < len(bs) && bs[i].start == p.sequence+1 && emptySum(bs[i].anchor) == p.hash
}

// mismatch reports a hash that the chain does not have.
func (w *writer) mismatch(p *point, sum [melin.HashSize]byte) (reason string) {
	f := wire.Finding{Kind: KindChain, Offset: p.offset, Field: "hash",
		Want: hex.EncodeToString(p.hash[:]), Got: hex.EncodeToString(sum[:]),
		Message: "the chain at sequence " + wire.Utoa(p.sequence) + " is not the one that the " + p.kind + " names",
		Cost:    "the segment's entries up to there are not proved"}
	reason = "the chain is another"
	if d := w.chain.taint; d != nil {
		at := d.run.Locate(wire.Finding{Offset: d.offset})
		reason = "the entry at offset " + wire.Itoa(d.offset) + " of connection " + at.Connection + " is damaged"
		f.Message += ": " + reason
	}
	w.b.found(p.run, f)
	return reason
}

// verdict notes what became of a hash.
func (w *writer) verdict(p *point, v ProofVerdict, reason string) error {
	w.g.reportOf().chain.note(v, reason)
	conn := p.link.downID
	if p.conn == p.link.up {
		conn = p.link.upID
	}
	return w.b.cat.checks.Add(int64(w.g.number), p.kind, int64(p.sequence), p.hash[:], int64(conn), p.offset, string(v), reason)
}

// end closes the last file. A segment that a Rotate opened is there on a
// replica before its first entry.
func (w *writer) end() error {
	if err := w.flush(); err != nil {
		return err
	}
	if !w.begun {
		// Nothing but a start: a fresh replica makes its first segment.
		if len(w.g.boundaries) > 0 {
			if err := w.begin(w.g.boundaries[0]); err != nil {
				return err
			}
		}
	} else {
		_, more := w.g.damagedAll(w.last+1, w.last+1)
		for _, x := range w.g.boundaries[w.nextB:] {
			if x.start == w.last+1 && (x.rotate || more) {
				if err := w.begin(x); err != nil {
					return err
				}
				break
			}
		}
	}
	if err := w.damagedEnd(); err != nil {
		return err
	}
	if err := w.close(false); err != nil {
		return err
	}
	for ; w.nextP < len(w.g.points); w.nextP++ {
		p := &w.g.points[w.nextP]
		why := "the record of this lineage ends at sequence " + wire.Utoa(w.last)
		if !w.begun {
			why = "no entry of this lineage is in the recording"
		}
		if p.sequence == 0 {
			why = whyFirst
		}
		if err := w.verdict(p, NotProvable, w.reason(why)); err != nil {
			return err
		}
	}
	return nil
}

// damagedEnd takes what came damaged behind the last sound entry into the
// chain, so that the hashes named for it fail and are not just out of reach.
func (w *writer) damagedEnd() error {
	last := w.last
	defer func() { w.last = last }()
	for _, d := range w.g.damages {
		if !w.chain.known() || d.first != w.last+1 {
			continue
		}
		if err := w.flush(); err != nil {
			return err
		}
		// The file ends with what is sound.
		if f := w.cur; f != nil && f.kind == "segment" && w.chain.taint == nil {
			f.hash, f.hasHash = w.chain.sum(), true
		}
		if err := w.taint(d); err != nil {
			return err
		}
		if w.last = d.last; d.last != 0 {
			if err := w.check(w.last); err != nil {
				return err
			}
			continue
		}
		// How many entries it was is open: it stands for all that are named.
		for w.nextP < len(w.g.points) {
			w.last = w.g.points[w.nextP].sequence
			if err := w.check(w.last); err != nil {
				return err
			}
			if w.g.points[w.nextP-1].segment {
				break
			}
		}
		break
	}
	return nil
}

// snapshots puts the newest sound snapshot beside each part of the journal that
// a node could not start from without.
func (w *writer) snapshots() error {
	parts := map[int][]*file{}
	for _, f := range w.g.files {
		parts[f.part] = append(parts[f.part], f)
	}
	for _, fs := range parts {
		if fs[0].kind != "segment" || fs[0].start <= 1 {
			continue
		}
		var best *body
		for _, m := range w.g.members {
			for _, x := range m.bodies {
				if x.kind == "snapshot" && x.sound && x.sequence+1 >= fs[0].start && x.sequence <= fs[len(fs)-1].last &&
					(best == nil || x.sequence > best.sequence) {
					best = x
				}
			}
		}
		if best == nil {
			continue
		}
		best.folder = filepath.Dir(fs[0].name)
		if err := copyFile(filepath.Join(w.b.dir, best.folder, SnapshotName), filepath.Join(w.b.dir, best.file)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
