package journal

// This file says what is missing of a lineage, and what of it is proved.

import (
	"slices"

	"wiretape/capture"
	"wiretape/replay/internal/outcome"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// concludeMissing lists the gaps of the connections and what no connection has.
func (b *builder) concludeMissing(g *lineage, r *ReportLineage) error {
	for _, m := range g.members {
		for _, x := range m.gaps {
			if m.below > 0 && x.first >= m.below {
				continue
			}
			by, all := g.covers(x.first, x.last)
			if len(r.Gaps) < maxListed {
				r.Gaps = append(r.Gaps, ReportGap{m.id(), x.offset, x.first, x.last, all, by})
			}
		}
	}
	covered := uint64(0) // by the newest sound snapshot
	for _, m := range g.members {
		for _, x := range m.bodies {
			if x.kind == "snapshot" && x.sound {
				covered = max(covered, x.sequence)
			}
		}
	}
	add := func(from, to uint64, after, before *int64, reason string, where *wire.Finding) error {
		x := ReportMissing{First: from, Last: to, AfterNs: after, BeforeNs: before, Reason: reason, Covered: to <= covered,
			Closes: "a recording of this lineage's link that carries " + rangeText(from, to) + ", or the files of a node that has them"}
		if len(r.Missing) < maxListed {
			r.Missing = append(r.Missing, x)
		}
		f := wire.Finding{Kind: KindMissing, Field: "sequence", Want: rangeText(from, to), Got: "nothing",
			Message: "lineage " + wire.Itoa(int64(g.number)) + " lacks " + rangeText(from, to) + ": " + reason, Cost: "the entries"}
		if where != nil {
			f.Connection, f.File, f.Offset = where.Connection, where.File, where.Offset
		} else if b.report.FindingsByKind[KindMissing] < outcome.MaxOfKind { // the list shows no more
			f = g.place(f, from, to)
		}
		b.report.add(f)
		var a, z any
		if after != nil {
			a = *after
		}
		if before != nil {
			z = *before
		}
		return b.cat.missing.Add(int64(g.number), int64(from), int64(to), a, z, reason)
	}
	end := uint64(0)
	var endTime *int64
	for i, p := range g.pieces {
		time := some(int64(p.from.firstTime))
		switch {
		case i == 0 && p.first > 1:
			// What a snapshot covers is on no replica that was made from it.
			if covered < p.first-1 {
				reason := "the recording begins behind them"
				if _, all := g.damagedAll(1, p.first-1); all {
					reason = "they came damaged"
				}
				if err := add(1, p.first-1, nil, time, reason, nil); err != nil {
					return err
				}
			}
		case i > 0 && p.first > end+1:
			reason := "no connection carried them"
			if ds, all := g.damagedAll(end+1, p.first-1); all {
				reason = "they came damaged"
			} else if len(ds) > 0 {
				reason = "some came damaged, the others not at all"
			}
			if err := add(end+1, p.first-1, endTime, time, reason, nil); err != nil {
				return err
			}
		}
		end, endTime = p.last, some(int64(p.from.lastTime))
	}
	// What was named as sent, or acknowledged, and is not here.
	named, by := uint64(0), ""
	var where *wire.Finding // who named it, its place
	see := func(seq uint64, c *capture.Connection, off int64, who string) {
		if seq > named && seq <= melin.MaxSequence && c != nil {
			named, by = seq, who+" on connection "+c.ID
			where = &wire.Finding{Connection: c.ID, Offset: off}
			for _, run := range c.Runs() {
				if off < run.End() {
					*where = run.Locate(*where)
					break
				}
			}
		}
	}
	for _, m := range g.members {
		if m.below > 0 {
			continue
		}
		see(m.announced, m.down, m.announcedAt, "the primary named "+wire.Utoa(m.announced)+" as sent")
		if len(m.starts) > 0 {
			see(m.sent, m.down, m.starts[len(m.starts)-1].offset, "the stream begins behind "+wire.Utoa(m.sent))
		}
		see(max(m.acked, m.inMemory), m.up, m.ackedAt, "the replica had "+wire.Utoa(max(m.acked, m.inMemory)))
	}
	if named > end && named > covered {
		return add(max(end, covered)+1, named, endTime, nil, by, where)
	}
	return nil
}

// place gives a finding about missing sequences the place where they came
// damaged, or were skipped, or else the first connection.
func (g *lineage) place(f wire.Finding, from, to uint64) wire.Finding {
	for _, d := range g.damages {
		if d.first >= from && d.first <= to {
			f.Offset, f.Length = d.offset, d.length
			return d.run.Locate(f)
		}
	}
	for _, m := range g.members {
		for _, x := range m.gaps {
			if x.first <= to && x.last >= from {
				f.Offset = x.offset
				return x.run.Locate(f)
			}
		}
	}
	for _, m := range g.members {
		if m.down != nil && len(m.down.Runs()) > 0 {
			return m.down.Runs()[0].Locate(f)
		}
	}
	return f
}

// concludeProofs says what became of each kind of check.
func (b *builder) concludeProofs(g *lineage, r *ReportLineage) error {
	var crcs, sequences, repeats, bodies, acks, epochs proofCount
	for _, p := range g.pieces {
		n := int64(p.last - p.first + 1)
		switch {
		case p.from.batches:
			crcs.add(NotProvable, n, "pieces of journal in the oldest layout are not taken apart")
		case p.from.link.layout.Shape() == melin.ShapeCRC:
			crcs.add(Proved, n, "")
		default:
			crcs.add(NotProvable, n, "slots before protocol 6 carry no CRC")
		}
	}
	for _, d := range g.damages {
		crcs.note(Failed, "damaged at offset "+wire.Itoa(d.offset)+" of connection "+d.link.id())
	}
	if crcs.counts == nil {
		crcs.note(NotProvable, "no entry of this lineage is in the recording")
	}
	held := 0
	for i, p := range g.pieces {
		if i > 0 && p.first > g.pieces[i-1].last+1 {
			sequences.note(Failed, rangeText(g.pieces[i-1].last+1, p.first-1)+" missing")
		}
		held++
	}
	if held > 0 && sequences.counts[Failed] == 0 {
		sequences.note(Proved, "")
	} else if held == 0 {
		sequences.note(NotProvable, "no entry of this lineage is in the recording")
	}
	repeats.add(Proved, g.repeats-g.conflicts, "")
	repeats.add(Failed, g.conflicts, "carried with other bytes")
	if g.repeats == 0 {
		repeats.note(NotProvable, "no sequence was carried twice")
	}
	for _, m := range g.members {
		for _, x := range m.bodies {
			v, reason := Proved, ""
			switch {
			case !x.ended:
				v, reason = NotProvable, "the "+x.kind+" is not in the recording to its end"
			case x.length != x.announced:
				v, reason = Failed, "another length than was announced"
			case x.crc != x.crcNamed:
				v, reason = Failed, "another CRC-32C than was announced"
			case x.kind == "snapshot" && x.crc != melin.SnapshotResidue:
				v, reason = Failed, "the snapshot does not end in its own CRC-32C"
			}
			bodies.note(v, reason)
			r.Bodies = append(r.Bodies, ReportBody{x.file, x.kind, m.id(), x.offset, x.length, x.sequence, v, x.folder})
			var seq, hash any
			if x.kind == "snapshot" {
				seq, hash = int64(x.sequence), x.hash[:]
			}
			if m.below > 0 {
				continue // the other lineage of a fork has it
			}
			err := b.cat.bodies.Add(int64(m.downID), x.offset, x.kind, x.file, int64(x.announced), int64(x.length), int64(x.crc), seq, hash, string(v))
			if err != nil {
				return err
			}
		}
		b.acks(m, &acks)
		epochsOf(m, &epochs, r)
	}
	if bodies.counts == nil {
		bodies.note(NotProvable, "no snapshot or seed was sent")
	}
	if r.chain.counts == nil {
		r.chain.note(NotProvable, "no chain hash was named")
	}
	r.RepeatsCompared = g.repeats
	r.Proofs = []Proof{crcs.proof("slot-crc"), sequences.proof("sequences"), repeats.proof("repeats"), bodies.proof("bodies"),
		r.chain.proof("chain"), acks.proof("acks"), epochs.proof("epochs")}
	return nil
}

// acks holds what a replica acknowledged against what was sent to it.
func (b *builder) acks(m member, p *proofCount) {
	switch {
	case m.up == nil || m.acks == 0:
		p.note(NotProvable, "no acks were recorded")
	case m.down == nil || !m.downStat.clean:
		p.note(NotProvable, "what was sent was not recorded whole")
	case m.inMemory > m.sent:
		p.note(Failed, "acked beyond what was sent")
		f := wire.Finding{Kind: KindAcks, Connection: m.up.ID, Offset: m.ackedAt, Field: "in_memory_sequence",
			Want: "at most " + wire.Utoa(m.sent), Got: wire.Utoa(m.inMemory), Message: "the replica acknowledged more than was sent to it"}
		if runs := m.up.Runs(); len(runs) > 0 {
			f = runs[0].Locate(f)
		}
		b.report.add(f)
	case m.badAcks > 0:
		p.note(Failed, "an ack goes back, or has more on disk than in memory")
	default:
		p.add(Proved, m.acks, "")
	}
}

// epochsOf says whether a member's epochs ever went back.
func epochsOf(m member, p *proofCount, r *ReportLineage) {
	if !slices.ContainsFunc(m.starts, func(s start) bool { return s.HasEpoch }) {
		p.note(NotProvable, "the layout, or what was recorded of it, has no epochs")
		return
	}
	if !slices.ContainsFunc(r.Epochs, func(e Epoch) bool { return e.Epoch == m.epoch }) {
		r.Epochs = append(r.Epochs, Epoch{m.epoch, m.id()})
	}
	if m.badEpochs > 0 {
		p.note(Failed, "an epoch goes back")
		return
	}
	p.note(Proved, "")
}

// madeGood finds what was missing of a connection, before an entry that it
// carried, and lacks nothing: every entry up to that one is in the journal, from
// other connections. What a replica said is in no other recording.
func (b *builder) madeGood() {
	links := map[string]*link{}
	for _, l := range b.links {
		if l.down != nil && l.lineage != nil && len(l.overflow) == 0 {
			links[l.down.ID] = l
		}
	}
	for i := range b.report.Findings {
		f := &b.report.Findings[i]
		switch f.Kind {
		case capture.KindMissingFiles, capture.KindPruned, wire.KindBadPreamble:
		default:
			continue
		}
		l := links[f.Connection]
		if l == nil || len(l.lineage.report.Missing) > 0 ||
			slices.ContainsFunc(l.lineage.report.Proofs, func(p Proof) bool { return p.Verdict == Failed }) {
			continue
		}
		next := slices.IndexFunc(l.stretches, func(s *stretch) bool { return s.seed == nil && s.offset >= f.Offset+f.Length })
		if next < 0 {
			continue
		}
		if n := l.stretches[next].first; n == 1 {
			continue // what was there before is in no other recording
		} else if _, all := l.lineage.covers(1, n-1); !all {
			continue
		}
		if b.report.MadeGood == nil {
			b.report.MadeGood = map[string]int64{}
		}
		b.report.MadeGood[f.Kind]++
		f.Cost = "nothing: other connections carried every entry up to the one behind it"
	}
}
