package journal

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/blake3"

	"wiretape/wire/melin"
)

// primary makes the stream of a primary that journals as it goes. Its chain is
// computed here from the specification, apart from the code under test.
type primary struct {
	b        []byte
	layout   melin.Layout
	seq      uint64
	epoch    uint64
	genesis  *uint64
	segment  uint64
	anchor   [32]byte
	journal  []byte // entries of the segment
	segments [][]byte
}

func newPrimary(layout melin.Layout, anchor byte) *primary {
	p := &primary{layout: layout, segment: 1, genesis: some(uint64(2))}
	p.anchor[0], p.anchor[31] = anchor, 1
	p.connect(0)
	return p
}

// connect begins a new connection to a replica that has the entries up to start.
func (p *primary) connect(start uint64) {
	p.b = melin.AppendTag((&melin.Challenge{Nonce: p.anchor}).Append(nil), melin.TagAuthOk)
	s := melin.StreamStart{StartSequence: start, HasSegment: true, SegmentStart: p.segment, Anchor: p.anchor,
		HasEpoch: p.layout >= 2, Epoch: p.epoch, HasPolicy: p.layout >= 4 && p.layout <= 7, HasGenesis: p.layout >= 7}
	if p.genesis != nil && s.HasGenesis {
		s.GenesisKnown, s.GenesisEntries = 1, *p.genesis
	}
	p.b = s.Append(p.b)
}

// send sends n entries whose content follows from their sequence and salt.
func (p *primary) send(n int, salt byte) {
	var at int
	p.b, at = melin.BeginInputBatch(p.b)
	for range n {
		p.seq++
		s := melin.Slot{Sequence: p.seq, Timestamp: 1e18 + p.seq*1e6, KeyHash: 1<<63 + p.seq, RequestSeq: 0x1100 + p.seq<<8, Event: melin.EventApp,
			Payload: []byte{salt, byte(p.seq), byte(p.seq >> 8), 'x', 'y', 'z', 1, 2, 3, 4}}
		before := len(p.b)
		p.b = melin.AppendSlot(p.b, &s, p.layout.Shape())
		p.journal = append(append(p.journal, 0x45, 0x4a), p.b[before:]...)
	}
	p.b = melin.EndInputBatch(p.b, at, n)
}

func (p *primary) chain() (sum [32]byte) {
	h := blake3.New()
	h.Write(p.journal)
	h.Write(p.anchor[:])
	h.Sum(sum[:0])
	return sum
}

func (p *primary) check() {
	p.b = (&melin.ChainPoint{Sequence: p.seq, Hash: p.chain()}).Append(p.b, melin.TagChainCheck)
}

func (p *primary) rotate() {
	hash := p.chain()
	p.b = (&melin.ChainPoint{Sequence: p.seq, Hash: hash}).Append(p.b, melin.TagRotate)
	p.segments = append(p.segments, p.journal)
	p.segment, p.anchor, p.journal = p.seq+1, hash, nil
}

func (p *primary) beat() {
	p.b = (&melin.Heartbeat{Sequence: p.seq, HasPolicy: p.layout >= 4 && p.layout <= 7}).Append(p.b)
}

// frames gives where each frame of a stream starts, and its tag.
func frames(b []byte) (at []int, tags []byte) {
	for off := 0; off < len(b); off += 4 + int(binary.LittleEndian.Uint32(b[off:])) {
		at, tags = append(at, off), append(tags, b[off+4])
	}
	return at, tags
}

// without is a stream without its n-th frame with a tag, from 0.
func without(b []byte, tag byte, n int) []byte {
	at, tags := frames(b)
	for i := range at {
		if tags[i] != tag {
			continue
		}
		if n--; n < 0 {
			end := at[i] + 4 + int(binary.LittleEndian.Uint32(b[at[i]:]))
			return append(append([]byte(nil), b[:at[i]]...), b[end:]...)
		}
	}
	panic("no such frame")
}

// save writes streams as files, in the order of their connections.
func save(t testing.TB, streams ...[]byte) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for i, b := range streams {
		p := filepath.Join(dir, string(rune('a'+i))+".bin")
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func kinds(r *Report) string {
	s := ""
	for _, f := range r.Findings {
		s += f.Kind + " "
	}
	return s
}
