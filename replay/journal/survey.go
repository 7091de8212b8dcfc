package journal

// This file is the first step: each connection is read once, and what it
// carries is noted with its place.

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// stretch is sequences that lie one behind the other in one connection, sound
// as far as one connection tells.
type stretch struct {
	link        *link
	first, last uint64
	// run and offset are where the frame with the first one starts, and skip
	// how many slots of it come before.
	run    *capture.Run
	offset int64
	skip   int
	// seed is set where the entries lie in a seed's file instead; offset is in
	// it then.
	seed *body
	// batches: the oldest layout's pieces of journal, whose entries can't be
	// told apart.
	batches bool
	// marks are frames on the way, every markEvery bytes.
	marks               []mark
	firstTime, lastTime uint64
}

// mark is a frame whose first slot has a sequence of the stretch.
type mark struct {
	sequence uint64
	offset   int64
}

// markEvery is how far marks are apart in a connection.
const markEvery = 4 << 20

// damage is bytes that stand where entries should, from first to last; last is
// 0 where it is open how many entries they were.
type damage struct {
	link        *link
	first, last uint64
	run         *capture.Run
	offset      int64 // in the connection
	frame       int64 // of the frame
	length      int64
}

// point is a place where a hash of the chain is named.
type point struct {
	link     *link
	kind     string
	sequence uint64
	hash     [melin.HashSize]byte
	conn     *capture.Connection
	run      *capture.Run
	offset   int64
	// segment says that the hash is the anchor of a segment that starts behind
	// sequence: a StreamStart or a Rotate.
	segment bool
}

// gap is sequences that a connection skipped.
type gap struct {
	link        *link
	run         *capture.Run
	offset      int64
	first, last uint64
}

// start is a StreamStart.
type start struct {
	melin.StreamStart
	offset int64
}

// body is a snapshot or a seed.
type body struct {
	link          *link
	kind          string // "snapshot" or "seed"
	file          string // relative to the output
	conn          *capture.Connection
	run           *capture.Run
	offset        int64
	announced     uint64
	length        uint64
	crc, crcNamed uint32
	sequence      uint64 // snapshots
	hash          [melin.HashSize]byte
	ended, sound  bool
	header        []byte // seeds: the segment's header
	first, last   uint64 // seeds: the entries in it
	folder        string
}

// surveyor reads one link.
type surveyor struct {
	b       *builder
	l       *link
	cur     *stretch // being extended
	expect  uint64   // the next sequence, 0 when nothing is known
	open    *body
	out     *os.File
	waiting *body // a seed whose StreamStart is to come
}

func (b *builder) survey(l *link) error {
	handshake := melin.AllLayouts
	if l.up != nil {
		var err error
		if handshake, err = b.surveyUp(l); err != nil {
			return fmt.Errorf("connection %s: %w", l.up.ID, err)
		}
	}
	if err := b.tellLayout(l, handshake); err != nil {
		return err
	}
	if l.down == nil {
		return nil
	}
	s := &surveyor{b: b, l: l}
	st := &l.downStat
	ending, err := walk(l.down, l.layout, s.visit)
	if err == nil {
		err = s.closeBody()
	}
	if s.out != nil {
		s.out.Close()
	}
	st.ending, st.clean = ending, st.whole(l.down, ending)
	if err != nil {
		return fmt.Errorf("connection %s: %w", l.down.ID, err)
	}
	b.signature(l)
	return nil
}

// signature holds a replica's answer against the challenge, where the primary
// took it.
func (b *builder) signature(l *link) {
	c, r := l.challenge, l.response
	if c == nil || r == nil || !l.authOk || ed25519.Verify(r.PublicKey[:], c.Nonce[:], r.Signature[:]) {
		return
	}
	b.found(l.responseAt.run, wire.Finding{Kind: KindSignature, Offset: l.responseAt.offset, At: l.responseAt.offset + melin.HeaderSize, Length: ed25519.SignatureSize,
		Field: "signature", Want: "the Ed25519 signature of the key over the Challenge's nonce", Got: "another one",
		Message: "the ChallengeResponse does not answer the Challenge, and the primary took it: one of the two is damaged, or they do not belong together",
		Cost:    "whose replica it is"})
}

// whole says that no bytes of the connection are missing, as far as its files
// and its frames tell, of which ending is how they ended.
func (st *direction) whole(c *capture.Connection, ending string) bool {
	return ending == string(wire.EndingClean) && !st.holes && c.Complete()
}

// note keeps whether a finding tells of bytes that are missing or were not read.
func (st *direction) note(f *wire.Finding) {
	switch f.Kind {
	case wire.KindBadPreamble, wire.KindLost, wire.KindBadLength, wire.KindUnknownKind, melin.KindEmptyFrame:
		st.holes = true
	}
}

// count notes what all frames have.
func (b *builder) count(st *direction, u wire.Unit) {
	b.read(u.Size)
	if u.Type == wire.UnitFrame {
		st.frames++
		b.progress.Frames++
	}
}

// surveyUp reads what the replica sent.
func (b *builder) surveyUp(l *link) (layouts melin.Layouts, err error) {
	layouts = melin.AllLayouts
	st := &l.upStat
	st.ending, err = walk(l.up, 0, func(run *capture.Run, d *melin.Decoder, u wire.Unit, found []wire.Finding, _ bool) error {
		b.count(st, u)
		for _, f := range found {
			st.note(&f)
			if f.Kind == melin.KindAckOrder {
				l.badAcks++
			}
			b.found(run, f)
		}
		if u.Type != wire.UnitFrame {
			return nil
		}
		switch u.Kind {
		case melin.TagChallengeResponse:
			if v, size := melin.DecodeChallengeResponse(u.Bytes); size > 0 {
				l.key = bytes.Clone(v.PublicKey[:])
				if l.response == nil {
					l.response, l.responseAt = &v, place{run, u.Offset}
				}
			}
		case melin.TagHandshake:
			v, size := melin.DecodeHandshake(u.Bytes)
			if size == 0 {
				break
			}
			layouts = d.Layouts()
			l.acked, l.inMemory, l.ackedAt = v.LastSequence, v.LastSequence, u.Offset
			if l.handshake == nil {
				l.handshake = &v
			}
			l.note(point{kind: "Handshake", sequence: v.LastSequence, hash: v.ChainHash, conn: l.up, run: run, offset: u.Offset})
		case melin.TagAck:
			v, size := melin.DecodeAck(u.Bytes)
			if size == 0 {
				break
			}
			l.acks++
			l.acked = max(l.acked, v.Acked)
			if v.HasMemory {
				l.inMemory = max(l.inMemory, v.InMemory)
			}
			l.inMemory, l.ackedAt = max(l.inMemory, v.Acked), u.Offset
			var memory any
			if v.HasMemory {
				memory = int64(v.InMemory)
			}
			return b.cat.acks.Add(int64(l.upID), u.Offset, int64(v.Acked), memory)
		}
		return nil
	})
	st.clean = st.whole(l.up, st.ending)
	return layouts, err
}

// note keeps a hash that was named; none is kept of all zeros, which is what a
// node without a chain sends.
func (l *link) note(p point) {
	if p.hash == [melin.HashSize]byte{} {
		return
	}
	p.link = l
	if p.segment {
		if l.segments++; l.segments > maxSegments {
			l.overflow["segments"] = true
			return
		}
	}
	if len(l.points) >= maxPoints {
		l.overflow["chain hashes"] = true
		return
	}
	l.points = append(l.points, p)
}

func (s *surveyor) visit(run *capture.Run, d *melin.Decoder, u wire.Unit, found []wire.Finding, restarted bool) error {
	l, b := s.l, s.b
	if restarted {
		s.breakOff()
		s.expect = 0
	}
	b.count(&l.downStat, u)
	bad, crc := false, false
	for _, f := range found {
		l.downStat.note(&f)
		switch f.Kind {
		case melin.KindGap: // a stretch ends, which is noted below
			continue
		case melin.KindEpochBack:
			l.badEpochs++
		case melin.KindSlotCRC:
			crc = true
		case melin.KindAnnounced, melin.KindEvent, melin.KindValue:
		case wire.KindMalformed:
			bad = true
		default: // the framing may have been lost here
			s.breakOff()
		}
		b.found(run, f)
	}
	if u.Type != wire.UnitFrame {
		return nil
	}
	frame := u.Bytes
	switch u.Kind {
	case melin.TagInputBatch:
		return s.batch(run, u, bad, crc)
	case melin.TagDataBatch:
		if v, size := melin.DecodeDataBatch(frame); size > 0 {
			return s.dataBatch(run, u, v)
		}
	case melin.TagChallenge:
		if v, size := melin.DecodeChallenge(frame); size > 0 && l.challenge == nil {
			l.challenge = &v
		}
	case melin.TagAuthOk:
		l.authOk = true
	case melin.TagStreamStart:
		if v, size := melin.DecodeStreamStart(frame, l.layout); size > 0 {
			v.Genesis = bytes.Clone(v.Genesis)
			return s.streamStart(run, u, v)
		}
	case melin.TagRotate, melin.TagChainCheck:
		if v, size := melin.DecodeChainPoint(frame); size > 0 {
			l.note(point{kind: melin.TagName(u.Kind), sequence: v.Sequence, hash: v.Hash, conn: l.down, run: run,
				offset: u.Offset, segment: u.Kind == melin.TagRotate})
			l.announced, l.announcedAt = v.Sequence, u.Offset
		}
	case melin.TagHeartbeat:
		if v, size := melin.DecodeHeartbeat(frame); size > 0 {
			l.announced, l.announcedAt = v.Sequence, u.Offset
			if v.HasHash {
				l.note(point{kind: "Heartbeat", sequence: v.Sequence, hash: v.Hash, conn: l.down, run: run, offset: u.Offset})
			}
		}
	case melin.TagSnapshotBegin:
		if v, size := melin.DecodeSnapshotBegin(frame); size > 0 {
			l.note(point{kind: "SnapshotBegin", sequence: v.SnapSequence, hash: v.ChainHash, conn: l.down, run: run, offset: u.Offset})
			return s.beginBody(&body{kind: "snapshot", announced: v.Length, sequence: v.SnapSequence, hash: v.ChainHash}, run, u)
		}
	case melin.TagSegmentSeedBegin:
		if n, size := melin.DecodeSegmentSeedBegin(frame); size > 0 {
			return s.beginBody(&body{kind: "seed", announced: n}, run, u)
		}
	case melin.TagSnapshotChunk:
		return s.chunk(frame[melin.HeaderSize:])
	case melin.TagSnapshotEnd:
		if crc, size := melin.DecodeSnapshotEnd(frame); size > 0 && s.open != nil {
			s.open.ended, s.open.crcNamed = true, crc
			return s.closeBody()
		}
	}
	return nil
}

// breakOff ends the current stretch: what comes is not known to be next.
func (s *surveyor) breakOff() { s.cur = nil }

func (s *surveyor) streamStart(run *capture.Run, u wire.Unit, v melin.StreamStart) error {
	l := s.l
	s.breakOff()
	if len(l.starts) < maxSegments {
		l.starts = append(l.starts, start{v, u.Offset})
	}
	s.answers(run, u, v)
	s.checkSeed(run, u, v)
	s.expect = v.StartSequence + 1
	l.sent = max(l.sent, v.StartSequence)
	l.epoch = max(l.epoch, v.Epoch)
	if v.HasEpoch {
		if err := s.b.cat.epochs.Add(int64(l.downID), u.Offset, nil, int64(v.Epoch)); err != nil {
			return err
		}
	}
	if v.GenesisKnown == 1 {
		l.hasGenesis, l.genesisEntries = true, v.GenesisEntries
	}
	if v.HasSegment && v.SegmentStart > 0 {
		l.note(point{kind: "StreamStart", sequence: v.SegmentStart - 1, hash: v.Anchor, conn: l.down, run: run, offset: u.Offset, segment: true})
	}
	return nil
}

// answers holds a StreamStart against the Handshake that it answers: it starts
// where the replica is, unless a snapshot was sent, and no primary streams to a
// replica that has seen a newer epoch.
func (s *surveyor) answers(run *capture.Run, u wire.Unit, v melin.StreamStart) {
	l := s.l
	h := l.handshake
	if h == nil || len(l.starts) > 1 {
		return
	}
	report := func(field, want string, got uint64, off int64, message string) {
		s.b.found(run, wire.Finding{Kind: melin.KindValue, Offset: u.Offset, At: u.Offset + off, Length: 8, Field: field, Want: want, Got: wire.Utoa(got), Message: message})
	}
	if h.HasEpoch && v.HasEpoch && v.Epoch < h.Epoch {
		l.badEpochs++
		report("epoch", "at least "+wire.Utoa(h.Epoch), v.Epoch, melin.HeaderSize+48,
			"the stream has an older epoch than the replica's Handshake; such a primary is fenced and sends none")
	}
	if len(l.bodies) == 0 && v.StartSequence != h.LastSequence {
		report("start_sequence", wire.Utoa(h.LastSequence), v.StartSequence, melin.HeaderSize,
			"the stream does not start where the replica's Handshake says that it is, and no snapshot was sent")
	}
}

// add extends the current stretch by a sequence, or begins one.
func (s *surveyor) add(seq, time uint64, run *capture.Run, frame int64, slot int) {
	l := s.l
	if c := s.cur; c != nil && seq == c.last+1 {
		c.last, c.lastTime = seq, time
		if slot == 0 && frame-c.marks[len(c.marks)-1].offset >= markEvery {
			c.marks = append(c.marks, mark{seq, frame})
		}
	} else if len(l.stretches) >= maxStretches {
		l.overflow["stretches"] = true
		return
	} else {
		s.cur = &stretch{link: l, first: seq, last: seq, run: run, offset: frame, skip: slot,
			marks: []mark{{seq, frame}}, firstTime: time, lastTime: time}
		l.stretches = append(l.stretches, s.cur)
	}
	st := &l.downStat
	if st.first == 0 || seq < st.first {
		st.first, st.firstTime = seq, time
	}
	if seq > st.last {
		st.last, st.lastTime = seq, time
	}
	l.sent = max(l.sent, seq)
}

// follow notes a gap before seq, and what is expected behind it.
func (s *surveyor) follow(seq uint64, run *capture.Run, off int64) {
	if s.expect != 0 && seq > s.expect {
		if len(s.l.gaps) < maxDamages {
			s.l.gaps = append(s.l.gaps, gap{s.l, run, off, s.expect, seq - 1})
		} else {
			s.l.overflow["gaps"] = true
		}
	}
	if seq >= s.expect {
		s.expect = seq + 1
	}
}

// damaged notes bytes that stand for the entries from s.expect on.
func (s *surveyor) damaged(d damage) {
	d.link = s.l
	if len(s.l.damages) >= maxDamages {
		s.l.overflow["damages"] = true
		return
	}
	s.l.damages = append(s.l.damages, d)
}

// batch notes the slots of an InputBatch. bad says that they do not fill it, crc
// that the CRC of some does not fit.
func (s *surveyor) batch(run *capture.Run, u wire.Unit, bad, crc bool) error {
	l := s.l
	shape := l.layout.Shape()
	r := melin.SlotsOf(u.Bytes, shape)
	var slot melin.Slot
	for r.Next(&slot) {
		l.downStat.slots++
		if crc && !slot.CRCValid() || slot.Sequence > melin.MaxSequence || slot.Sequence == 0 {
			// Its sequence may be what is damaged: it stands for the next one.
			s.breakOff()
			if s.expect != 0 {
				s.damaged(damage{first: s.expect, last: s.expect, run: run, frame: u.Offset,
					offset: u.Offset + int64(slot.Offset), length: int64(len(slot.Raw))})
				s.expect++
			}
			continue
		}
		s.follow(slot.Sequence, run, u.Offset+int64(slot.Offset))
		s.add(slot.Sequence, slot.Timestamp, run, u.Offset, r.Read()-1)
		if slot.Event == melin.EventEpochBump && len(slot.Payload) == 8 {
			epoch := le64(slot.Payload)
			if err := s.b.cat.epochs.Add(int64(l.downID), u.Offset+int64(slot.Offset), int64(slot.Sequence), int64(epoch)); err != nil {
				return err
			}
			l.epoch = max(l.epoch, epoch)
		}
	}
	if off, rest := r.Rest(); bad && rest > 0 {
		s.breakOff()
		if s.expect != 0 {
			s.damaged(damage{first: s.expect, run: run, frame: u.Offset, offset: u.Offset + int64(off), length: int64(rest)})
		}
	}
	return nil
}

func le64(b []byte) (v uint64) {
	for i := 7; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// dataBatch notes a piece of journal of the oldest layout.
func (s *surveyor) dataBatch(run *capture.Run, u wire.Unit, v melin.DataBatch) error {
	first := v.EndSequence - uint64(v.Count) + 1
	if v.Count == 0 || first > v.EndSequence || first == 0 || v.EndSequence > melin.MaxSequence {
		return nil
	}
	s.follow(first, run, u.Offset)
	if c := s.cur; c != nil && c.batches && c.last+1 == first {
		s.add(first, 0, run, u.Offset, 0)
	} else {
		s.breakOff()
		s.add(first, 0, run, u.Offset, 0)
	}
	if s.cur != nil {
		s.cur.batches, s.cur.last = true, v.EndSequence
	}
	s.expect = max(s.expect, v.EndSequence+1)
	s.l.sent = max(s.l.sent, v.EndSequence)
	s.l.downStat.last = max(s.l.downStat.last, v.EndSequence)
	s.l.note(point{kind: "DataBatch", sequence: v.EndSequence, hash: v.Hash, conn: s.l.down, run: run, offset: u.Offset})
	return s.b.cat.batches.Add(int64(s.l.downID), u.Offset, int64(first), int64(v.EndSequence), v.Hash[:], int64(len(v.Journal)))
}

// bodiesFolder holds snapshots and seeds as they came.
const bodiesFolder = "bodies"

func (s *surveyor) beginBody(x *body, run *capture.Run, u wire.Unit) error {
	if err := s.closeBody(); err != nil {
		return err
	}
	b := s.b
	if b.bodies >= maxBodies {
		s.l.overflow["snapshots and seeds"] = true
		return nil
	}
	b.bodies++
	x.link, x.conn, x.run, x.offset = s.l, s.l.down, run, u.Offset
	x.file = filepath.Join(bodiesFolder, fmt.Sprintf("%06d.%s", b.bodies, x.kind))
	if err := os.MkdirAll(filepath.Join(b.dir, bodiesFolder), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(b.dir, x.file), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	s.open, s.out = x, out
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *surveyor) chunk(data []byte) error {
	if s.open == nil {
		return nil // reported by the decoder
	}
	s.open.crc = crc32.Update(s.open.crc, castagnoli, data)
	s.open.length += uint64(len(data))
	_, err := s.out.Write(data)
	return err
}

// closeBody ends the open body, whole or not, and looks into a seed.
func (s *surveyor) closeBody() error {
	x := s.open
	if x == nil {
		return nil
	}
	s.open = nil
	err := s.out.Close()
	s.out = nil
	if err != nil {
		return err
	}
	x.sound = x.ended && x.length == x.announced && x.crc == x.crcNamed
	s.l.bodies = append(s.l.bodies, x)
	if !x.ended {
		s.b.found(x.run, wire.Finding{Kind: melin.KindBodyLength, Offset: x.offset, Want: wire.Utoa(x.announced) + " bytes",
			Got: wire.Utoa(x.length) + " bytes", Message: "the " + x.kind + " is not in the recording to its end", Cost: "the " + x.kind})
	}
	if x.kind == "seed" {
		return s.seed(x)
	}
	return nil
}

// seed notes the entries of a seed: the segment up to the snapshot.
func (s *surveyor) seed(x *body) error {
	e, err := openSeed(s.b.dir, x, 0)
	if err != nil {
		return err
	}
	defer e.Close()
	x.header = e.header
	s.breakOff()
	var st *stretch
	for {
		ok, err := e.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if st == nil {
			st = &stretch{link: s.l, seed: x, first: e.sequence, last: e.sequence, offset: e.at, firstTime: e.slot.Timestamp}
			x.first = e.sequence
		} else if e.sequence != st.last+1 {
			s.b.found(x.run, wire.Finding{Kind: melin.KindGap, Offset: x.offset, Want: wire.Utoa(st.last + 1), Got: wire.Utoa(e.sequence),
				Message: "the seed's entries are not in order", Cost: "the seed's entries from there on"})
			break
		}
		st.last, st.lastTime = e.sequence, e.slot.Timestamp
	}
	if st != nil {
		x.last = st.last
		s.l.stretches = append(s.l.stretches, st)
	}
	s.waiting = x
	if e.fault != "" {
		s.b.found(x.run, wire.Finding{Kind: KindSeed, Offset: x.offset, Message: e.fault, Cost: "the seed's entries from there on"})
	}
	return nil
}

// checkSeed holds a seed against the StreamStart behind it: it is that segment,
// up to where the stream starts.
func (s *surveyor) checkSeed(run *capture.Run, u wire.Unit, v melin.StreamStart) {
	x := s.waiting
	s.waiting = nil
	if x == nil {
		return
	}
	report := func(want, got, message string) {
		s.b.found(x.run, wire.Finding{Kind: KindSeed, Offset: x.offset, Want: want, Got: got, Message: message,
			Cost: "the segment may not be whole"})
	}
	h, fault := ParseHeader(x.header)
	last := x.last
	if x.first == 0 {
		last = h.Start - 1
	}
	switch {
	case fault != "":
		report("a segment's header", fault, "the seed does not begin with a segment's header")
	case h.Start != v.SegmentStart || h.Anchor != v.Anchor:
		report("the segment from "+wire.Utoa(v.SegmentStart), "one from "+wire.Utoa(h.Start),
			"the seed is of another segment than the StreamStart behind it names")
	case last != v.StartSequence:
		report("entries to "+wire.Utoa(v.StartSequence), "entries to "+wire.Utoa(last),
			"the seed does not reach to where the stream starts")
	}
}

// runOf is the run that a stretch lies in; a seed's is that of its beginning.
func runOf(s *stretch) *capture.Run {
	if s.seed != nil {
		return s.seed.run
	}
	return s.run
}
