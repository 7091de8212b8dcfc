package aewr

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"wiretape/internal/aewrgen"
	"wiretape/wire"
)

func open(t testing.TB, c wire.Config) *Decoder {
	t.Helper()
	d, err := Protocol.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Decoder)
}

// unit is what a way of reading gives back of a frame.
type unit struct {
	offset, size int64
	kind         uint32
}

// read reads everything with a Reader.
func read(t testing.TB, stream []byte) (units []unit, findings []wire.Finding, ending wire.Ending) {
	t.Helper()
	return readFrom(t, open(t, wire.Config{}), stream, 0)
}

func readFrom(t testing.TB, d *Decoder, stream []byte, offset int64) (units []unit, findings []wire.Finding, ending wire.Ending) {
	t.Helper()
	r := wire.NewReader(bytes.NewReader(stream), d, wire.ReaderOptions{Offset: offset})
	for {
		u, found, err := r.Next()
		findings = append(findings, found...)
		if err == io.EOF {
			return units, findings, r.Ending()
		}
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, unit{u.Offset, u.Size, u.Kind})
	}
}

// scan reads everything with a Scanner, in pieces of any size.
func scan(stream []byte, d *Decoder, rng *rand.Rand, most int) (units []unit, findings []wire.Finding, clean bool) {
	s := wire.NewScanner(d, 0, 0)
	feed := func(p []byte) {
		for {
			n, u, done := s.Next(p)
			p = p[n:]
			if done && u.Type == wire.UnitFrame {
				units = append(units, unit{u.Offset, u.Size, u.Kind})
			}
			if !done && len(p) == 0 {
				return
			}
		}
	}
	for len(stream) > 0 {
		n := 1 + rng.IntN(min(most, len(stream)))
		feed(stream[:n])
		stream = stream[n:]
	}
	for {
		u, done := s.Rest()
		if !done {
			break
		}
		if u.Type == wire.UnitFrame {
			units = append(units, unit{u.Offset, u.Size, u.Kind})
		}
	}
	clean = s.Finish() == wire.EndingClean
	return units, s.Findings(), clean
}

func placed(frames []aewrgen.Placed) (units []unit) {
	for _, f := range frames {
		units = append(units, unit{f.Offset, f.Size, uint32(f.Type)})
	}
	return units
}

var sessions = map[uint16]*aewrgen.Session{}

// session is one of a version, made once; nobody writes to its streams.
func session(version uint16) *aewrgen.Session {
	if sessions[version] == nil {
		sessions[version] = makeSession(version)
	}
	return sessions[version]
}

func makeSession(version uint16) *aewrgen.Session {
	return aewrgen.Make(aewrgen.Options{Seed: 3, Version: version, Workers: 2, Requests: 24, ChunkBytes: 300, Gap: true})
}

func TestSessionsOfEveryVersion(t *testing.T) {
	for _, v := range aewrgen.Versions() {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			seen := map[uint16]bool{}
			for _, w := range session(v).Workers {
				for direction, stream := range w.Streams {
					units, findings, ending := read(t, stream)
					if want := placed(w.Frames[direction]); !slices.Equal(units, want) {
						t.Errorf("%d frames, %d expected", len(units), len(want))
					}
					if len(findings) > 0 || ending != wire.EndingClean {
						t.Errorf("%s, %+v", ending, findings)
					}
					d := open(t, wire.Config{})
					for _, f := range w.Frames[direction] {
						seen[f.Type] = true
						u := wire.Unit{Type: wire.UnitFrame, Offset: f.Offset, Size: f.Size, Kind: uint32(f.Type), Bytes: stream[f.Offset : f.Offset+f.Size]}
						list, fault := d.Fields(u)
						if fault != nil {
							t.Fatalf("%+v", fault)
						}
						checkPlaces(t, list, u.Offset, u.End())
						i := d.Info(u)
						if i.Name == "" || i.Summary == "" {
							t.Fatalf("%+v", i)
						}
						if i.Summary = ""; d.Brief(u) != i {
							t.Fatalf("%+v, in brief %+v", i, d.Brief(u))
						}
						d.Observe(u, nil)
					}
					want := wire.Downstream
					if direction == aewrgen.Up {
						want = wire.Upstream
					}
					if d.Direction() != want {
						t.Errorf("stream %d was read as %s", direction, d.Direction())
					}
				}
			}
			for i, m := range messageTypes {
				if m.name != "" && m.since <= v && !seen[uint16(i)] && i != WriteConflict && i != ExecAbort && i != ExecUpdateReadReq && i != ExecDeleteReq && i != AbortTxn {
					t.Errorf("the session has no %s", m.name)
				}
			}
		})
	}
}

// TestPiecesAgree holds the two ways to read against each other, on whole and on
// damaged streams.
func TestPiecesAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		s := session(aewrgen.Versions()[n%14])
		stream := slices.Clone(s.Workers[0].Streams[n%2])
		for range n % 7 {
			switch at := rng.IntN(len(stream)); rng.IntN(4) {
			case 0:
				stream = stream[:max(at, 1)]
			case 1:
				stream[at] ^= 1 << rng.IntN(8)
			case 2:
				clear(stream[at:min(at+rng.IntN(200), len(stream))])
			case 3:
				stream = slices.Delete(stream, at, min(at+rng.IntN(200), len(stream)))
			}
			if len(stream) == 0 {
				stream = []byte{0}
			}
		}
		units, findings, ending := read(t, stream)
		most := []int{1, 7, 64, 100, 5000, 1 << 20}[rng.IntN(6)]
		got, found, clean := scan(stream, open(t, wire.Config{}), rng, most)
		if !slices.Equal(got, units) {
			t.Fatalf("round %d, pieces up to %d: %d and %d frames", n, most, len(got), len(units))
		}
		if clean != (ending == wire.EndingClean) {
			t.Fatalf("round %d: clean is %v, ending %s", n, clean, ending)
		}
		// A scanner sees no payloads: it finds less, and nothing else.
		for _, f := range found {
			if !slices.Contains(findings, f) {
				t.Fatalf("round %d: only the scanner found %+v", n, f)
			}
		}
		for _, f := range findings {
			if f.Kind != wire.KindMalformed && f.Kind != KindCount && f.Kind != KindReading && !slices.Contains(found, f) {
				t.Fatalf("round %d: only the reader found %+v", n, f)
			}
		}
	}
}

func TestCutAtEveryByte(t *testing.T) {
	s := session(31).Workers[0]
	for direction, stream := range s.Streams {
		whole := placed(s.Frames[direction])
		n := 0
		for cut := range min(len(stream), 2500) {
			for n < len(whole) && whole[n].offset+whole[n].size <= int64(cut) {
				n++
			}
			units, findings, ending := read(t, stream[:cut])
			if !slices.Equal(units, whole[:n]) {
				t.Fatalf("cut at %d: %d frames, %d expected", cut, len(units), n)
			}
			boundary := n == 0 && cut == 0 || n > 0 && whole[n-1].offset+whole[n-1].size == int64(cut)
			switch {
			case boundary && (ending != wire.EndingClean || len(findings) > 0):
				t.Fatalf("cut at the boundary %d: %s, %+v", cut, ending, findings)
			case !boundary && (ending != wire.EndingCut || len(findings) != 1 || findings[0].Kind != wire.KindCut || findings[0].Offset != whole[n].offset):
				t.Fatalf("cut at %d: %s, %+v", cut, ending, findings)
			}
		}
	}
}

// TestFlipInEveryHeader flips every bit of a header between two others: the
// frames around it are always found, and the flip never passes unseen.
func TestFlipInEveryHeader(t *testing.T) {
	s := session(24).Workers[0]
	stream, frames := s.Streams[aewrgen.Up], placed(s.Frames[aewrgen.Up])
	frames = frames[:14]
	stream = stream[:frames[13].offset+frames[13].size]
	for n := 1; n < 12; n++ {
		at := frames[n].offset
		for bit := range HeaderSize * 8 {
			damaged := slices.Clone(stream)
			damaged[at+int64(bit/8)] ^= 1 << (bit % 8)
			units, findings, _ := read(t, damaged)
			if len(findings) == 0 {
				t.Fatalf("frame %d, bit %d: not found", n, bit)
			}
			first := slices.MinFunc(findings, func(a, b wire.Finding) int { return int(a.Byte() - b.Byte()) })
			if first.Byte() < at || first.Byte() >= at+HeaderSize {
				t.Fatalf("frame %d at %d, bit %d: found at %d", n, at, bit, first.Byte())
			}
			lost := 0
			for i, f := range frames {
				if i != n && !slices.Contains(units, f) {
					lost++
				}
			}
			if lost > 0 {
				t.Fatalf("frame %d, bit %d: %d other frames lost", n, bit, lost)
			}
			length := bit/8 >= offInstructionCount && bit/8 < offChecksum
			if kept := slices.ContainsFunc(units, func(u unit) bool { return u.offset == at && u.size == frames[n].size }); kept == (length || bit < 32) {
				t.Fatalf("frame %d, bit %d: kept is %v", n, bit, kept)
			}
		}
	}
}

// TestFlipAndZeroSweeps damages the golden sessions, byte after byte, and zeroes
// stretches: never a panic, never a frame that overlaps another, and what lies
// behind is read.
func TestFlipAndZeroSweeps(t *testing.T) {
	step := 11
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		step = 1
	}
	for _, o := range goldenOptions() {
		w := aewrgen.Make(o).Workers[0]
		for direction, stream := range w.Streams {
			sweep(t, stream, placed(w.Frames[direction]), step)
		}
	}
}

func sweep(t *testing.T, stream []byte, frames []unit, step int) {
	check := func(at int, damaged []byte) {
		t.Helper()
		units, _, _ := read(t, damaged)
		var end int64
		for _, u := range units {
			if u.offset < end {
				t.Fatalf("damage at %d: frames overlap", at)
			}
			end = u.offset + u.size
		}
		for _, f := range frames {
			if f.offset >= int64(at)+64+4096 && !slices.Contains(units, f) {
				t.Fatalf("damage at %d: the frame at %d is lost", at, f.offset)
			}
		}
	}
	for at := 0; at < len(stream); at += step {
		damaged := slices.Clone(stream)
		damaged[at] ^= 0xff
		check(at, damaged)
		clear(damaged[at:min(at+64, len(stream))])
		check(at, damaged)
	}
}

func TestChecksumReadingDoesNotHold(t *testing.T) {
	var stream []byte
	for i := range 20 {
		stream = aewrgen.Frame{Version: 20, Type: ExecSuccess, Epoch: 1, Tenant: uint64(i + 1), Constants: make([]byte, i), ChecksumWithoutTenant: true}.Append(stream)
	}
	units, findings, ending := read(t, stream)
	if len(units) != 20 || ending != wire.EndingClean {
		t.Errorf("%d frames, %s", len(units), ending)
	}
	if len(findings) != 1 || findings[0].Kind != KindChecksum || findings[0].Byte() != 24 {
		t.Errorf("%+v", findings)
	}
}

func TestLostFrameStartIsFoundAtASoundHeader(t *testing.T) {
	frame := func(f aewrgen.Frame) []byte {
		f.Version, f.Type, f.Epoch = max(f.Version, 20), ResultStreamChunk, 3
		return f.Append(nil)
	}
	good := frame(aewrgen.Frame{Constants: make([]byte, 32)})
	for name, near := range map[string][]byte{
		"magic alone":        []byte("AEWRAEWR and some more text, long enough for a header of its own here"),
		"checksum":           frame(aewrgen.Frame{BreakChecksum: true}),
		"pad":                frame(aewrgen.Frame{Pad: 1}),
		"version":            frame(aewrgen.Frame{Version: 32}),
		"unassigned version": frame(aewrgen.Frame{Version: 28}),
		"length":             frame(aewrgen.Frame{Claim: true, ClaimWords: 1 << 31}),
		"type":               aewrgen.Frame{Version: 20, Type: 0x26}.Append(nil),
		"reserved":           aewrgen.Frame{Version: 17, Type: 0x14, Tenant: 1}.Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			junk := append([]byte("not a frame "), near...)
			stream := slices.Concat(good, junk, good, good)
			units, findings, ending := read(t, stream)
			at := int64(len(good))
			want := []unit{{0, at, ResultStreamChunk}, {at + int64(len(junk)), at, ResultStreamChunk}, {2*at + int64(len(junk)), at, ResultStreamChunk}}
			if !slices.Equal(units, want) || ending != wire.EndingClean {
				t.Errorf("%v, %s", units, ending)
			}
			if len(findings) != 1 || findings[0].Kind != wire.KindLost || findings[0].Offset != at || findings[0].Length != int64(len(junk)) {
				t.Errorf("%+v", findings)
			}
		})
	}
}

// TestDoubtIsCheap has a header in doubt that wants to be looked 256 KiB ahead
// of, over and over, with thousands of frames in what was looked at.
func TestDoubtIsCheap(t *testing.T) {
	small := aewrgen.Frame{Version: 31, Type: ExecSuccess, Epoch: 1}.Append(nil)
	doubt := aewrgen.Frame{Version: 31, Type: ExecAbort, Epoch: 1, Claim: true, ClaimLen: ConfirmLimit - 100, BreakChecksum: true}.Append(nil)
	stream := slices.Clone(small)
	for len(stream) < 8<<20 {
		stream = append(stream, doubt...)
		stream = append(stream, bytes.Repeat(small, 4096)...)
	}
	start := time.Now()
	units, _, _ := scan(stream, open(t, wire.Config{}), rand.New(rand.NewPCG(1, 1)), 4096)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%d frames in %v", len(units), took)
	}
	if want, _, _ := read(t, stream); !slices.Equal(units, want) {
		t.Errorf("%d frames, %d expected", len(units), len(want))
	}
}

func TestHugeLengthsAllocateNothing(t *testing.T) {
	for _, claim := range [][2]uint32{{0xffffffff, 0xffffffff}, {0x80000000, 0}, {0, 0xffffffff}} {
		stream := aewrgen.Frame{Version: 31, Type: 1, Claim: true, ClaimWords: claim[0], ClaimLen: claim[1]}.Append(nil)
		d := open(t, wire.Config{})
		if h := d.Head(stream, false); h.Type != wire.UnitJunk || h.Finding.Kind != wire.KindBadLength {
			t.Errorf("%v: %+v", claim, h)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			d.Head(stream, false)
			read(t, stream)
		}
		runtime.ReadMemStats(&after)
		// The reader's window is 1 MiB; the claims are 4 GiB and more.
		if n := (after.TotalAlloc - before.TotalAlloc) / 100; n > 2<<20 {
			t.Errorf("%v: %d bytes allocated", claim, n)
		}
		if units, findings, _ := read(t, stream); len(units) != 0 || len(findings) != 1 {
			t.Errorf("%v: %+v, %+v", claim, units, findings)
		}
	}
}

func TestEpochFenceAndVersionMismatch(t *testing.T) {
	var stream []byte
	var at []int64
	add := func(version uint16, epoch uint64) {
		at = append(at, int64(len(stream)))
		stream = aewrgen.Frame{Version: version, Type: ExecSuccess, Epoch: epoch}.Append(stream)
	}
	add(20, 5)
	add(20, 6)
	add(20, 5)
	add(20, 4)
	add(20, 6)
	add(26, 6)
	_, findings, _ := read(t, stream)
	want := fmt.Sprintf("epoch-fence@%d epoch-fence@%d version-mismatch@%d", at[2]+32, at[3]+32, at[5]+4)
	if got := placesOf(findings); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestDirection(t *testing.T) {
	down := aewrgen.Frame{Version: 20, Type: SnapshotReq}.Append(nil)
	up := aewrgen.Frame{Version: 20, Type: ExecSuccess}.Append(nil)
	ping := aewrgen.Frame{Version: 20, Type: HeartbeatPing, Constants: make([]byte, 24)}.Append(nil)
	for _, c := range []struct {
		stream []byte
		want   wire.Direction
	}{{slices.Concat(ping, down), wire.Downstream}, {slices.Concat(ping, up), wire.Upstream}, {ping, wire.DirectionUnknown}, {down[:10], wire.DirectionUnknown}} {
		if m, d := Protocol.Detect(c.stream, true); m != wire.Matched || d != c.want {
			t.Errorf("%d, %s", m, d)
		}
	}
	_, findings, _ := readFrom(t, open(t, wire.Config{Direction: wire.Upstream}), slices.Concat(up, down, down), 0)
	if got := placesOf(findings); got != fmt.Sprintf("wrong-direction@%d", len(up)+6) {
		t.Error(got)
	}
	// Who connected to whom may say otherwise.
	d := open(t, wire.Config{Direction: wire.Downstream})
	if d.Direction() != wire.Downstream {
		t.Error(d.Direction())
	}
	if _, findings, _ := readFrom(t, d, slices.Concat(ping, up, up), 0); len(findings) > 0 || d.Direction() != wire.Upstream {
		t.Errorf("%s, %+v", d.Direction(), findings)
	}
	for _, none := range []string{"", "AEW", "AEWX", "DNDR", "\x00"} {
		if m, _ := Protocol.Detect([]byte(none), true); m != wire.NoMatch {
			t.Errorf("%q: %d", none, m)
		}
	}
	if m, _ := Protocol.Detect([]byte("AE"), false); m != wire.MoreNeeded {
		t.Errorf("%d", m)
	}
}

func TestContext(t *testing.T) {
	s := session(26).Workers[1]
	stream, frames := s.Streams[aewrgen.Up], s.Frames[aewrgen.Up]
	_, want, _ := read(t, stream)
	d := open(t, wire.Config{})
	if d.Context(1<<20) != nil {
		t.Error("a context before the first frame")
	}
	half := frames[len(frames)/2].Offset
	_, first, _ := readFrom(t, d, stream[:half], 0)
	c := d.Context(1 << 20)
	if v, ok := c.Entries[0].Value("epoch"); !ok || v.Num < 7 || c.Version != 26 {
		t.Fatalf("%+v", c)
	}
	// An old epoch and another version behind the context are still found.
	tail := slices.Concat(stream[half:], aewrgen.Frame{Version: 27, Type: ExecSuccess, Epoch: 1}.Append(nil))
	_, second, _ := readFrom(t, open(t, wire.Config{Context: c}), tail, half)
	end := int64(len(stream))
	if got, want := placesOf(append(first, second...)), placesOf(append(want, wire.Finding{Kind: KindVersionMismatch, Offset: end + 4, Message: "m"},
		wire.Finding{Kind: KindEpochFence, Offset: end + 32, Message: "m"})); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if small := d.Context(10); len(small.Omitted) != 1 || small.Entries != nil {
		t.Errorf("%+v", small)
	}
	if _, err := Protocol.Open(wire.Config{Context: wire.MidStream("dendro")}); err == nil {
		t.Error("another protocol's context was taken")
	}
	if _, err := Protocol.Open(wire.Config{Context: wire.MidStream(Name)}); err != nil {
		t.Error(err)
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 2000 {
		// Headers are full of zero bytes; every pattern of them is a path.
		word := func() uint64 { return rng.Uint64() >> (8 * rng.IntN(9)) << (8 * rng.IntN(9)) }
		f := aewrgen.Frame{Version: uint16(word()), Type: uint16(word()), Cluster: word(), Epoch: word(), Txn: word(), Container: word(),
			Tenant: word(), Claim: true, ClaimWords: uint32(word()), ClaimLen: uint32(word()), Pad: uint32(word()) * uint32(rng.IntN(2))}
		b := f.Append(nil)
		h, ok := ParseHeader(b)
		if !ok || f.Pad == 0 && Checksum(b) != h.HeaderChecksum {
			t.Fatalf("%x: checksum %08x, %08x expected", b, Checksum(b), h.HeaderChecksum)
		}
		if f.Pad == 0 && !bytes.Equal(h.Append(nil), b) {
			t.Fatalf("%x came back as %x", b, h.Append(nil))
		}
		if f.Pad != 0 && Checksum(b) != h.HeaderChecksum {
			t.Fatalf("with a pad of %#x: checksum %08x, %08x expected", f.Pad, Checksum(b), h.HeaderChecksum)
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, v := range []uint16{17, 19, 31} {
		s := aewrgen.Make(aewrgen.Options{Seed: uint64(v), Version: v, Workers: 1, Requests: 3, ChunkBytes: 40, Chunks: 3})
		for _, stream := range s.Workers[0].Streams {
			f.Add(stream[:min(len(stream), 3000)])
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := open(t, wire.Config{})
		r := wire.NewReader(bytes.NewReader(stream), d, wire.ReaderOptions{})
		var end int64
		for {
			u, _, err := r.Next()
			if err == io.EOF {
				break
			}
			if u.Offset < end || u.End() > int64(len(stream)) {
				t.Fatalf("a unit at %d to %d behind %d of %d", u.Offset, u.End(), end, len(stream))
			}
			end = u.End()
			list, _ := d.Fields(u)
			checkPlaces(t, list, u.Offset, u.End())
			d.Info(u)
			_ = d.Context(1 << 10)
		}
		units, _, _ := read(t, stream)
		got, _, _ := scan(stream, open(t, wire.Config{}), rand.New(rand.NewPCG(uint64(len(stream)), 1)), 100)
		if !slices.Equal(got, units) {
			t.Fatalf("%d frames by the scanner, %d by the reader", len(got), len(units))
		}
	})
}

func FuzzPayload(f *testing.F) {
	for _, v := range []uint16{17, 19, 31} {
		f.Add(v, uint16(ResultMaterializeChunk), aewrgen.Materialized(2, [][]aewrgen.Cell{{{Value: 1}, {Value: 2}}}, []uint64{1}))
		f.Add(v, uint16(HashTableLoad), aewrgen.HashTable([]aewrgen.HashSlot{{Free: true}}, 3, [][]uint64{{1, 2, 3}}))
		f.Add(v, uint16(SegmentStreamChunk), aewrgen.Segment(v >= 19, 1, 2, []byte("abc")))
		f.Add(v, uint16(ResultGroupedAggChunk), aewrgen.Groups([]aewrgen.Group{{Key: 1}}))
	}
	f.Fuzz(func(t *testing.T, version, messageType uint16, payload []byte) {
		b := aewrgen.Frame{Version: version, Type: messageType, Constants: payload}.Append(nil)
		d := open(t, wire.Config{})
		u := wire.Unit{Type: wire.UnitFrame, Size: int64(len(b)), Kind: uint32(messageType), Bytes: b}
		d.Observe(u, nil)
		d.Info(u)
		list, fault := d.Fields(u)
		checkPlaces(t, list, 0, u.Size)
		h, _ := ParseHeader(b)
		if p, err := ParsePayload(&h, b[HeaderSize:]); (err != nil) != (fault != nil) {
			t.Fatalf("%v and %v", err, fault)
		} else if n, ok := p.ResultRows(); ok && n > len(payload) {
			t.Fatalf("%d rows in %d bytes", n, len(payload))
		}
	})
}
