package journal

// This file is the report: a documented contract (docs/melin.md), as one JSON
// object and as text for people.

import (
	"cmp"
	"encoding/hex"
	"path/filepath"
	"slices"

	"wiretape/internal/unfinished"
	"wiretape/replay/internal/outcome"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// The kinds of findings that a build adds to those of wire, capture and
// wire/melin.
const (
	// KindChain: the chain is not the one that a node named.
	KindChain = "chain-differs"
	// KindConflict: two connections of one epoch carry one sequence with
	// different bytes.
	KindConflict = "entry-differs"
	// KindAnchor: two anchors for one segment.
	KindAnchor = "anchor-differs"
	// KindGenesis: two lengths of one genesis.
	KindGenesis = "genesis-differs"
	// KindMissing: sequences that no connection carries.
	KindMissing = "missing-sequences"
	// KindSeed: a seed that is not a segment's beginning.
	KindSeed = "bad-seed"
	// KindAcks: acks for more than was sent.
	KindAcks = "acked-beyond-sent"
	// KindSignature: a ChallengeResponse that was taken and answers no Challenge.
	KindSignature = "bad-signature"
	// KindAmbiguous: more than one layout fits what was recorded.
	KindAmbiguous = "ambiguous-layout"
	// KindProof: a proof that failed and has no finding of its own.
	KindProof = "failed-proof"
	// KindLimit: more of something than is kept, so that not all was looked at.
	KindLimit = "limit"
)

// Verdict is what a build comes to; the exit codes follow it.
type Verdict = outcome.Verdict

// The verdicts.
const (
	Clean       = outcome.Clean
	Findings    = outcome.Found
	FailedBuild = outcome.Failed
)

// ProofVerdict is what became of something that the bytes let a reader check.
type ProofVerdict string

const (
	// Proved: it was checked and holds.
	Proved ProofVerdict = "proved"
	// Failed: it was checked and does not hold; a finding has its place.
	Failed ProofVerdict = "failed"
	// NotProvable: what is needed to check it is not in the recording.
	NotProvable ProofVerdict = "not provable"
)

// Report is the report of a build.
type Report struct {
	outcome.Outcome
	Connections []ReportConnection `json:"connections"`
	Lineages    []*ReportLineage   `json:"lineages"`
	outcome.List
}

// ReportConnection is one connection, in one direction.
type ReportConnection struct {
	ID       string `json:"connection"`
	Protocol string `json:"protocol"`
	// Used is false for a connection of another protocol.
	Used      bool   `json:"used"`
	Direction string `json:"direction,omitempty"`
	// Pair is the connection of the other direction, PairedBy how it was found.
	Pair     string `json:"pair,omitempty"`
	PairedBy string `json:"paired_by,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	// Layout is the one taken. LayoutFrom says what told it: handshake, frames,
	// ambiguous (Layouts lists those that fit) or taken (nothing told).
	Layout     string `json:"layout,omitempty"`
	LayoutFrom string `json:"layout_from,omitempty"`
	Layouts    string `json:"layouts,omitempty"`
	// ReplicaKey is the public key in the ChallengeResponse.
	ReplicaKey string `json:"replica_key,omitempty"`
	Lineage    int    `json:"lineage,omitempty"`
	Bytes      int64  `json:"bytes"`
	Frames     int64  `json:"frames"`
	Entries    int64  `json:"entries"`
	// Clean says that all of it was read; Ending is how it ended.
	Clean         bool    `json:"clean"`
	Ending        string  `json:"ending,omitempty"`
	FirstSequence *uint64 `json:"first_sequence,omitempty"`
	LastSequence  *uint64 `json:"last_sequence,omitempty"`
	FirstTimeNs   *int64  `json:"first_time_ns,omitempty"`
	LastTimeNs    *int64  `json:"last_time_ns,omitempty"`
}

// ReportLineage is one history of entries.
type ReportLineage struct {
	Number int `json:"lineage"`
	// Folder in the output that holds its journal, "" where only the catalogue
	// has it.
	Folder      string         `json:"folder,omitempty"`
	Connections []ReportMember `json:"connections"`
	// Entries, and their sequences and times.
	Entries         int64   `json:"entries"`
	FirstSequence   *uint64 `json:"first_sequence,omitempty"`
	LastSequence    *uint64 `json:"last_sequence,omitempty"`
	FirstTimeNs     *int64  `json:"first_time_ns,omitempty"`
	LastTimeNs      *int64  `json:"last_time_ns,omitempty"`
	GenesisEntries  *uint64 `json:"genesis_entries,omitempty"`
	Epochs          []Epoch `json:"epochs"`
	RepeatsCompared int64   `json:"repeats_compared"`
	// Stretches say from which connection each sequence was taken.
	Stretches []ReportStretch `json:"stretches"`
	Files     []ReportFile    `json:"files"`
	Bodies    []ReportBody    `json:"bodies"`
	// Gaps are sequences that a connection skipped; Missing those that no
	// connection has.
	Gaps    []ReportGap     `json:"gaps"`
	Missing []ReportMissing `json:"missing"`
	Proofs  []Proof         `json:"proofs"`

	chain proofCount
}

// ReportMember is a connection of a lineage and why it is one.
type ReportMember struct {
	Connection string `json:"connection"`
	Why        string `json:"why,omitempty"`
}

// Epoch is an epoch of a lineage and the sequence that began it, where an entry
// did.
type Epoch struct {
	Epoch      uint64 `json:"epoch"`
	Connection string `json:"connection"`
}

// ReportStretch is sequences that were taken from one connection.
type ReportStretch struct {
	First      uint64 `json:"first"`
	Last       uint64 `json:"last"`
	Connection string `json:"connection"`
	Seed       bool   `json:"seed,omitempty"`
}

// ReportFile is a journal file.
type ReportFile struct {
	File string `json:"file"`
	// Kind is segment, or entries where the segment's beginning is missing.
	Kind    string `json:"kind"`
	Start   uint64 `json:"start_sequence"`
	Last    uint64 `json:"last_sequence"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Anchor  string `json:"anchor_hash,omitempty"`
	Chain   string `json:"chain_hash,omitempty"`
}

// ReportBody is a snapshot or a seed.
type ReportBody struct {
	File       string       `json:"file"`
	Kind       string       `json:"kind"`
	Connection string       `json:"connection"`
	Offset     int64        `json:"offset"`
	Bytes      uint64       `json:"bytes"`
	Sequence   uint64       `json:"sequence,omitempty"`
	Verdict    ProofVerdict `json:"verdict"`
	// Beside is the folder of the journal that it was put beside.
	Beside string `json:"beside,omitempty"`
}

// ReportGap is sequences that one connection skipped.
type ReportGap struct {
	Connection string `json:"connection"`
	Offset     int64  `json:"offset"`
	First      uint64 `json:"first"`
	Last       uint64 `json:"last"`
	// Closed says that other connections have them all: ClosedBy.
	Closed   bool     `json:"closed"`
	ClosedBy []string `json:"closed_by,omitempty"`
}

// ReportMissing is sequences that no connection has.
type ReportMissing struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// AfterNs and BeforeNs are the times of the entries around them.
	AfterNs  *int64 `json:"after_ns,omitempty"`
	BeforeNs *int64 `json:"before_ns,omitempty"`
	Reason   string `json:"reason"`
	// Covered says that a snapshot holds what they did to the state.
	Covered bool   `json:"covered_by_snapshot"`
	Closes  string `json:"closes"`
}

// Proof is one kind of check and what became of it.
type Proof struct {
	// Proof is slot-crc, sequences, repeats, bodies, chain, acks or epochs.
	Proof       string           `json:"proof"`
	Verdict     ProofVerdict     `json:"verdict"`
	Proved      int64            `json:"proved"`
	Failed      int64            `json:"failed"`
	NotProvable int64            `json:"not_provable"`
	Reasons     map[string]int64 `json:"reasons,omitempty"`
}

// proofCount counts the checks of one kind.
type proofCount struct {
	counts  map[ProofVerdict]int64
	reasons map[string]int64
}

// maxReasons bounds the reasons that are kept of one kind of check.
const maxReasons = 100

func (p *proofCount) note(v ProofVerdict, reason string) { p.add(v, 1, reason) }

func (p *proofCount) add(v ProofVerdict, n int64, reason string) {
	if n == 0 {
		return
	}
	if p.counts == nil {
		p.counts, p.reasons = map[ProofVerdict]int64{}, map[string]int64{}
	}
	p.counts[v] += n
	if _, ok := p.reasons[reason]; reason != "" && (ok || len(p.reasons) < maxReasons) {
		p.reasons[reason] += n
	}
}

// proof is failed where anything failed, proved where anything was proved and
// nothing failed.
func (p *proofCount) proof(name string) Proof {
	out := Proof{Proof: name, Verdict: NotProvable, Proved: p.counts[Proved], Failed: p.counts[Failed],
		NotProvable: p.counts[NotProvable], Reasons: p.reasons}
	switch {
	case out.Failed > 0:
		out.Verdict = Failed
	case out.Proved > 0:
		out.Verdict = Proved
	}
	return out
}

// maxListed bounds the stretches, gaps and missing ranges of a lineage that the
// report lists; the catalogue has all.
const maxListed = 10_000

func newReport() *Report {
	return &Report{Connections: []ReportConnection{}, Lineages: []*ReportLineage{}, List: outcome.NewList()}
}

func (r *Report) add(f wire.Finding) { r.Note(f) }

// finish settles the verdict and the order of the findings. A report with a
// proof that failed is never a clean one.
func (r *Report) finish(err error) {
	for _, g := range r.Lineages {
		for _, p := range g.Proofs {
			if p.Verdict == Failed && len(r.FindingsByKind) == 0 {
				r.add(wire.Finding{Kind: KindProof, Connection: g.Connections[0].Connection, Field: p.Proof, Want: string(Proved), Got: string(Failed),
					Message: "lineage " + wire.Itoa(int64(g.Number)) + ": " + p.text()})
			}
		}
	}
	r.Sort()
	r.Settle(err, &r.List)
}

// JSON is the report as one object.
func (r *Report) JSON() []byte { return outcome.JSON(r) }

func (g *lineage) reportOf() *ReportLineage {
	if g.report == nil {
		g.report = &ReportLineage{Number: g.number, Connections: []ReportMember{}, Epochs: []Epoch{}, Stretches: []ReportStretch{},
			Files: []ReportFile{}, Bodies: []ReportBody{}, Gaps: []ReportGap{}, Missing: []ReportMissing{}}
	}
	return g.report
}

// ReportName is the report's file in the output.
const ReportName = "report.json"

func some[T any](v T) *T { return &v }

// conclude fills in the report and the catalogue, and closes it.
func (b *builder) conclude() error {
	for _, g := range b.lineages {
		if err := b.concludeLineage(g); err != nil {
			return err
		}
	}
	for _, l := range b.links {
		if err := b.concludeLink(l); err != nil {
			return err
		}
	}
	b.madeGood()
	slices.SortStableFunc(b.report.Connections, func(x, y ReportConnection) int { return cmp.Compare(x.ID, y.ID) })
	b.report.finish(nil)
	for _, f := range b.report.Findings {
		err := b.cat.findings.Add(f.Kind, f.Connection, f.File, f.Offset, f.Length, f.Field, f.Want, f.Got, f.Message, f.Cost)
		if err != nil {
			return err
		}
	}
	for _, e := range []uint8{melin.EventTick, melin.EventEpochBump, melin.EventAckPolicyChange, melin.EventApp} {
		if err := b.cat.events.Add(int64(e), melin.EventName(e)); err != nil {
			return err
		}
	}
	if err := b.cat.finish(); err != nil {
		return err
	}
	return unfinished.WriteFile(filepath.Join(b.dir, ReportName), append(b.report.JSON(), '\n'))
}

func (b *builder) concludeLink(l *link) error {
	for what := range l.overflow {
		b.report.add(wire.Finding{Kind: KindLimit, Connection: l.id(), Message: "the connection has more " + what + " than are kept; the rest was not looked at"})
	}
	if l.ambiguous {
		b.report.add(wire.Finding{Kind: KindAmbiguous, Connection: l.id(), Want: "one layout", Got: l.set.String(),
			Message: "the frames read under the layouts " + l.set.String() + "; " + l.layout.String() + " was taken"})
	}
	lineage := 0
	if l.lineage != nil {
		lineage = l.lineage.number
	}
	add := func(id, pair int, dir wire.Direction, st *direction) error {
		c, other := l.down, l.up
		if dir == wire.Upstream {
			c, other = l.up, l.down
		}
		x := ReportConnection{ID: c.ID, Protocol: melin.Name, Used: true, Direction: dir.String(), Endpoint: wire.SafeText(c.Endpoint, 300),
			Layout: l.layout.String(), LayoutFrom: l.layoutFrom, Lineage: lineage, Bytes: c.Length(), Frames: st.frames, Entries: st.slots,
			Clean: st.clean, Ending: st.ending, ReplicaKey: hex.EncodeToString(l.key)}
		if other != nil {
			x.Pair, x.PairedBy = other.ID, l.paired
		}
		if l.set != melin.Only(l.layout) {
			x.Layouts = l.set.String()
		}
		var first, last any
		if st.last > 0 {
			x.FirstSequence, x.LastSequence = some(st.first), some(st.last)
			first, last = int64(st.first), int64(st.last)
			if st.lastTime > 0 {
				x.FirstTimeNs, x.LastTimeNs = some(int64(st.firstTime)), some(int64(st.lastTime))
			}
		}
		b.report.Connections = append(b.report.Connections, x)
		var key, in, peer any
		if l.key != nil {
			key = l.key
		}
		if lineage > 0 {
			in = int64(lineage)
		}
		if pair > 0 {
			peer = int64(pair)
		}
		return b.cat.connections.Add(int64(id), c.ID, dir.String(), peer, c.Endpoint, int64(l.layout), l.set.String(), l.layoutFrom,
			key, in, c.Length(), st.frames, st.ending, first, last)
	}
	if l.down != nil {
		if err := add(l.downID, l.upID, wire.Downstream, &l.downStat); err != nil {
			return err
		}
	}
	if l.up != nil {
		return add(l.upID, l.downID, wire.Upstream, &l.upStat)
	}
	return nil
}

func (b *builder) concludeLineage(g *lineage) error {
	r := g.reportOf()
	b.report.Lineages = append(b.report.Lineages, r)
	if len(g.files) > 0 {
		r.Folder = g.folder
	}
	var genesis any
	for _, m := range g.members {
		if m.link.lineage == nil || m.below == 0 {
			m.link.lineage = g
		}
		r.Connections = append(r.Connections, ReportMember{m.id(), m.why})
		if m.hasGenesis && r.GenesisEntries == nil {
			r.GenesisEntries, genesis = some(m.genesisEntries), int64(m.genesisEntries)
		}
	}
	for _, p := range g.pieces {
		if !p.from.batches {
			r.Entries += int64(p.last - p.first + 1)
		}
		if len(r.Stretches) < maxListed {
			r.Stretches = append(r.Stretches, ReportStretch{p.first, p.last, p.from.link.id(), p.from.seed != nil})
		}
	}
	var first, last any
	if n := len(g.pieces); n > 0 {
		r.FirstSequence, r.LastSequence = some(g.pieces[0].first), some(g.pieces[n-1].last)
		first, last = int64(*r.FirstSequence), int64(*r.LastSequence)
		if p := g.pieces[n-1]; p.from.lastTime > 0 {
			r.FirstTimeNs, r.LastTimeNs = some(int64(g.pieces[0].from.firstTime)), some(int64(p.from.lastTime))
		}
	}
	if err := b.cat.lineages.Add(int64(g.number), r.Folder, genesis, first, last); err != nil {
		return err
	}
	for _, f := range g.files {
		x := ReportFile{File: filepath.ToSlash(f.name), Kind: f.kind, Start: f.start, Last: f.last, Entries: f.entries, Bytes: f.size}
		var anchor, chain any
		if f.kind == "segment" {
			x.Anchor, anchor = hex.EncodeToString(f.anchor[:]), f.anchor[:]
		}
		if f.hasHash {
			x.Chain, chain = hex.EncodeToString(f.hash[:]), f.hash[:]
		}
		r.Files = append(r.Files, x)
		err := b.cat.segments.Add(int64(f.id), int64(g.number), int64(f.part), x.File, f.kind, int64(f.start), int64(f.last), f.entries,
			anchor, chain, f.size, f.complete)
		if err != nil {
			return err
		}
	}
	if err := b.concludeMissing(g, r); err != nil {
		return err
	}
	return b.concludeProofs(g, r)
}
