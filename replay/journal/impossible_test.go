package journal

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/melin"
)

// batchOf is an InputBatch of slots with these sequences, their CRCs valid.
func batchOf(b []byte, sequences ...uint64) []byte {
	b, at := melin.BeginInputBatch(b)
	for _, seq := range sequences {
		b = melin.AppendSlot(b, &melin.Slot{Sequence: seq, Timestamp: 1e18, Event: melin.EventApp, Payload: []byte("x")}, melin.ShapeCRC)
	}
	return melin.EndInputBatch(b, at, len(sequences))
}

func findingAt(r *Report, kind string) (f wire.Finding) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			return f
		}
	}
	return f
}

// Entries with sequences that there can't be, though their bytes are sound, are
// found with their places, also where nothing else is in the stream.
func TestImpossibleSequences(t *testing.T) {
	p := newPrimary(8, 'i')
	p.send(5, 0)
	p.check()
	sound := bytes.Clone(p.b)
	_, r := build(t, save(t, batchOf(bytes.Clone(p.b), 1<<63, 1<<64-1, 0))...)
	crc := r.proofOf(0, "slot-crc")
	if r.Verdict != Findings || r.FindingsByKind[melin.KindValue] != 3 || crc.Verdict != Failed || crc.Failed != 3 || r.Lineages[0].Entries != 5 {
		t.Errorf("%v %+v", r.FindingsByKind, crc)
	}
	// Behind the batch's header, the slot's length.
	if f := findingAt(r, melin.KindValue); f.At != int64(len(sound))+4+3+2 || f.Field != "slots[0].sequence" {
		t.Errorf("%+v", f)
	}
	start := melin.StreamStart{StartSequence: 1<<64 - 1, HasSegment: true, SegmentStart: 1, Anchor: p.anchor, HasEpoch: true, HasGenesis: true}
	_, r = build(t, save(t, batchOf(start.Append(nil), 0))...)
	if r.Verdict != Findings || r.FindingsByKind[melin.KindValue] != 2 || r.proofOf(0, "slot-crc").Verdict != NotProvable {
		t.Errorf("%v %+v", r.FindingsByKind, r.Lineages[0].Proofs)
	}
	first := (&melin.StreamStart{First: true, Genesis: []byte("genesis")}).Append(nil)
	first = (&melin.DataBatch{EndSequence: 1<<64 - 1, Count: 1, Journal: []byte("x")}).Append(first)
	_, r = build(t, save(t, first)...)
	if r.Verdict != Findings || r.FindingsByKind[melin.KindValue] != 1 {
		t.Errorf("%v", r.FindingsByKind)
	}
}

// What a replica says that it has is missing when nothing has it, whatever was
// recorded of the other direction.
func TestReplicaAlone(t *testing.T) {
	up := (&melin.ChallengeResponse{PublicKey: [32]byte{7}}).Append(nil)
	hello := melin.Handshake{LastSequence: 15, ChainHash: [32]byte{9}, HasEpoch: true, Epoch: 1, HasVersion: true, Version: 8}
	up = hello.Append(up)
	acks := (&melin.Ack{Acked: 20, HasMemory: true, InMemory: 22}).Append(bytes.Clone(up))
	for _, c := range []struct {
		up   []byte
		last uint64
		at   int
	}{{up, 15, 101}, {acks, 22, 101 + 55}} {
		_, r := build(t, save(t, c.up)...)
		f := findingAt(r, KindMissing)
		if r.Verdict != Findings || len(r.Lineages) != 1 || len(r.Lineages[0].Missing) != 1 || r.Lineages[0].Missing[0].Last != c.last || f.Offset != int64(c.at) {
			t.Errorf("to %d: %v %+v", c.last, r.FindingsByKind, f)
		}
	}
	// One that has nothing, and was never answered, lacks nothing.
	none := (&melin.Handshake{HasEpoch: true, HasVersion: true, Version: 8}).Append((&melin.ChallengeResponse{PublicKey: [32]byte{7}}).Append(nil))
	if _, r := build(t, save(t, none)...); r.Verdict != Clean || len(r.Lineages) != 0 {
		t.Errorf("%v %d", r.FindingsByKind, len(r.Lineages))
	}
	// The entries are here, and nothing but the order tells whose the acks are.
	p := newPrimary(8, 'r')
	p.send(20, 0)
	only := (&melin.Ack{Acked: 20, HasMemory: true, InMemory: 20}).Append(none)
	if _, r := build(t, save(t, p.b, only)...); r.Verdict != Clean || len(r.Lineages) != 1 || len(r.Lineages[0].Connections) != 2 {
		t.Errorf("%v %+v", kinds(r), r.Lineages)
	}
	only = (&melin.Ack{Acked: 21, HasMemory: true, InMemory: 21}).Append(only)
	if _, r := build(t, save(t, p.b, only)...); kinds(r) != "missing-sequences " || r.Lineages[0].Missing[0].First != 21 {
		t.Errorf("%v %+v", kinds(r), r.Lineages)
	}
	// Only heartbeats were recorded, from the middle on.
	if _, r := build(t, save(t, (&melin.ChainPoint{Sequence: 7, Hash: [32]byte{1}}).Append((&melin.Challenge{}).Append(nil), melin.TagChainCheck))...); r.FindingsByKind[KindMissing] != 1 {
		t.Errorf("%v", kinds(r))
	}
}

// Values that can't be beside each other are found, in one direction and in
// both.
func TestImpossibleCombinations(t *testing.T) {
	p := newPrimary(8, 'c')
	p.epoch = 1
	p.connect(0)
	p.send(5, 0)
	down := p.b
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize))
	answer := melin.ChallengeResponse{PublicKey: [32]byte(key.Public().(ed25519.PublicKey)), Signature: [64]byte(ed25519.Sign(key, p.anchor[:]))}
	hello := func(last, epoch uint64) []byte {
		return (&melin.Handshake{LastSequence: last, HasEpoch: true, Epoch: epoch, HasVersion: true, Version: 8}).Append(answer.Append(nil))
	}
	start, _ := frames(down)
	for name, c := range map[string]struct {
		up    []byte
		field string
	}{
		"sound":           {hello(0, 1), ""},
		"a fenced stream": {hello(0, 9), "epoch"},
		"another start":   {hello(3, 1), "start_sequence"},
	} {
		_, r := build(t, recordPairs(t, 1<<20, down, c.up))
		f := findingAt(r, melin.KindValue)
		if c.field == "" && r.Verdict != Clean || c.field != "" && (r.FindingsByKind[melin.KindValue] != 1 || f.Field != c.field || f.Offset != int64(start[2])) {
			t.Errorf("%s: %s %+v", name, kinds(r), f)
		}
	}
	// The primary took an answer that is none; and one whose sender has nothing
	// names a hash.
	for at, kind := range map[int]string{5: KindSignature, 101 + 5 + 8: melin.KindValue} {
		bad := hello(0, 1)
		bad[at] ^= 4
		if _, r := build(t, recordPairs(t, 1<<20, down, bad)); kinds(r) != kind+" " {
			t.Errorf("%s: %s", kind, kinds(r))
		}
	}
	// One flipped bit: the segment would begin behind the stream's start.
	bad := bytes.Clone(down)
	bad[start[2]+5+8+1] ^= 2
	if _, r := build(t, save(t, bad)...); !strings.Contains(kinds(r), melin.KindValue) || findingAt(r, melin.KindValue).Field != "segment_start_sequence" {
		t.Errorf("%s", kinds(r))
	}
	// Another: the genesis would not be known, and is counted.
	bad = bytes.Clone(down)
	bad[start[2]+5+56] ^= 1
	if _, r := build(t, save(t, bad)...); kinds(r) != melin.KindValue+" " || findingAt(r, melin.KindValue).Field != "genesis_entries" {
		t.Errorf("%s", kinds(r))
	}
	// A genesis as long as a newer StreamStart's fields is no newer one.
	first := (&melin.StreamStart{First: true, Genesis: bytes.Repeat([]byte("g"), 44)}).Append(nil)
	if _, r := build(t, save(t, first)...); r.Verdict != Clean || r.Connections[0].Layout != melin.Layout(1).String() {
		t.Errorf("%s %+v", kinds(r), r.Connections)
	}
	// A snapshot from behind the stream's start.
	snap := (&melin.SnapshotBegin{SnapSequence: 1<<64 - 1}).Append(melin.AppendTag((&melin.Challenge{}).Append(nil), melin.TagNeedSnapshot))
	snap = append(snap, down[start[2]:]...)
	if _, r := build(t, save(t, snap)...); r.FindingsByKind[melin.KindValue] != 2 {
		t.Errorf("%s", kinds(r))
	}
	// A segment can't be closed twice.
	p.rotate()
	once := bytes.Clone(p.b)
	p.rotate()
	p.rotate()
	if _, r := build(t, save(t, once)...); r.Verdict != Clean {
		t.Errorf("%s", kinds(r))
	}
	if _, r := build(t, save(t, p.b)...); r.FindingsByKind[melin.KindValue] != 2 {
		t.Errorf("%s", kinds(r))
	}
}

// No report is clean in which a proof failed, even if nothing else tells.
func TestFailedProofIsNeverClean(t *testing.T) {
	r := newReport()
	r.Lineages = []*ReportLineage{{Number: 1, Connections: []ReportMember{{Connection: "c"}},
		Proofs: []Proof{{Proof: "bodies", Verdict: Failed, Failed: 1, Reasons: map[string]int64{"why": 1}}}}}
	r.finish(nil)
	r.finish(nil)
	if f := findingAt(r, KindProof); r.Verdict != Findings || f.Connection != "c" || f.Message != "lineage 1: failed for 1 body: why" || len(r.Findings) != 1 {
		t.Errorf("%s %+v", r.Verdict, r.Findings)
	}
}
