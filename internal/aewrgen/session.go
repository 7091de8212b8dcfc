package aewrgen

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Options say what a session is made of.
type Options struct {
	Seed    uint64
	Version uint16
	// UpVersion is what the workers speak, where it differs.
	UpVersion uint16
	Workers   int
	// Requests for each worker.
	Requests int
	// ChunkBytes is the most that one segment chunk carries, 4096 if 0, and
	// Chunks how many each container's tail has, 12 if 0.
	ChunkBytes, Chunks int
	// NoSnapshotWord leaves out the snapshot word of segment chunks from
	// version 19 on: the other way to read the description.
	NoSnapshotWord bool
	// Gap leaves out one chunk of each tail.
	Gap bool
	// Differ sends one chunk of each tail again with other bytes.
	Differ bool
	// Fence sends one frame of an old epoch from each worker.
	Fence bool
}

// Direction of a stream.
const (
	Down = 0 // orchestrator to worker
	Up   = 1 // worker to orchestrator
)

// Placed is a frame's place and what it is.
type Placed struct {
	Offset, Size int64
	Type         uint16
}

// Worker is one worker's connection: two streams of bytes.
type Worker struct {
	Streams [2][]byte
	Frames  [2][]Placed
}

// Key names a container.
type Key struct{ Tenant, Container uint64 }

// Request is one request and what came back.
type Request struct {
	Worker int
	Offset int64 // of the request's frame, downstream
	Type   uint16
	Txn    uint64
	Key    Key
	// State is success, abort, aggregate, conflict or none.
	State  string
	Rows   int
	Keys   []KeyOffset
	Aggs   []Cell
	Groups []Group
	// Columns are materialised rows, and RowOffsets theirs.
	Slots      int
	Columns    [][]Cell
	RowOffsets []uint64
	// Answered is the last frame of the answer, upstream, -1 without one.
	Answered int64
}

// Txn is one transaction.
type Txn struct {
	Worker      int
	Tenant, ID  uint64
	Outcome     string // commit, abort or none
	Validations int
	Requests    int
}

// Chunk is one SEGMENT_STREAM_CHUNK that was sent.
type Chunk struct {
	Worker, Direction int
	Offset            int64
	Epoch             uint64
	Key               Key
	From              uint64
	Data              []byte
}

// Span is a range of bytes, To excluded.
type Span struct{ From, To uint64 }

// Shadow is what a container's chunks make.
type Shadow struct {
	Data  []byte // zero in holes
	Holes []Span
	// Differ are the ranges that two chunks fill differently.
	Differ []Span
}

// Session is what was sent and what it means.
type Session struct {
	Options    Options
	Workers    []*Worker
	Requests   []*Request
	Txns       []*Txn
	Chunks     []Chunk
	Shadows    map[Key]*Shadow
	Pings      int
	Pongs      int
	Migrations int // steps
	// Fences are the places of frames of an old epoch, upstream.
	Fences []struct {
		Worker int
		Offset int64
	}
}

// since is when message types came that versions from 17 on do not all have.
var since = map[uint16]uint16{0x1C: 19, 0x1D: 20, 0x1E: 21, 0x1F: 24, 0x20: 25, 0x21: 25,
	0x22: 26, 0x23: 27, 0x24: 29, 0x25: 29, 0x26: 31}

// Has says that a version has a message type.
func Has(version, messageType uint16) bool { return version >= since[messageType] }

// Versions are the versions that are assigned.
func Versions() (all []uint16) {
	for v := uint16(17); v <= 31; v++ {
		if v != 28 {
			all = append(all, v)
		}
	}
	return all
}

type generator struct {
	*Session
	rng     *rand.Rand
	cluster uint64
	epoch   uint64
	clock   uint64
	nextTxn uint64
	flight  []*inFlight
	tails   map[Key]uint64
}

// inFlight is a request of which frames are still to come.
type inFlight struct {
	req  *Request
	rest []Frame
}

// Make makes a session. Equal options make equal bytes.
func Make(o Options) *Session {
	if o.UpVersion == 0 {
		o.UpVersion = o.Version
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 4096
	}
	if o.Chunks == 0 {
		o.Chunks = 12
	}
	o.Workers = max(o.Workers, 1)
	g := &generator{Session: &Session{Options: o, Shadows: map[Key]*Shadow{}},
		rng:     rand.New(rand.NewPCG(o.Seed, uint64(o.Version))),
		cluster: 0xc1a5_7e11_0000_0000 + o.Seed, epoch: 7, clock: 1_700_000_000_000_000, nextTxn: 100, tails: map[Key]uint64{}}
	for range o.Workers {
		g.Workers = append(g.Workers, &Worker{})
	}
	for w := range o.Workers {
		g.hello(w)
	}
	for n := range o.Requests {
		for w := range o.Workers {
			g.begin(w)
			g.advance(w, 1+g.rng.IntN(3))
			if n%5 == 0 {
				g.heartbeat(w)
			}
			if n == o.Requests/2 {
				g.migrate(w)
				g.others(w)
			}
		}
	}
	for w := range o.Workers {
		g.advance(w, 1<<30)
	}
	g.shadowTail()
	for w := range o.Workers {
		g.heartbeat(w)
		if o.Fence {
			g.fence(w)
		}
	}
	g.shadows()
	return g.Session
}

func (g *generator) version(direction int) uint16 {
	if direction == Up {
		return g.Options.UpVersion
	}
	return g.Options.Version
}

// send appends a frame to a stream and gives its place.
func (g *generator) send(worker, direction int, f Frame) int64 {
	w := g.Workers[worker]
	f.Version, f.Cluster = g.version(direction), g.cluster
	if f.Epoch == 0 {
		f.Epoch = g.epoch
	}
	at := int64(len(w.Streams[direction]))
	w.Streams[direction] = f.Append(w.Streams[direction])
	w.Frames[direction] = append(w.Frames[direction], Placed{at, int64(len(w.Streams[direction])) - at, f.Type})
	return at
}

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	return b
}

func (g *generator) tenant(direction int) uint64 {
	if g.version(direction) < 18 {
		return 0
	}
	return g.rng.Uint64N(3)
}

func (g *generator) key() Key {
	// Both directions must agree, so a tenant needs both versions.
	t := min(g.tenant(Down), g.tenant(Up))
	return Key{t, 1 + g.rng.Uint64N(3)}
}

func (g *generator) hello(w int) {
	g.send(w, Up, Frame{Type: 0x11, Constants: g.bytes(16)})
	g.send(w, Down, Frame{Type: 0x13, Constants: g.bytes(40)})
}

// heartbeat sends a ping and its pong.
func (g *generator) heartbeat(w int) {
	g.clock += 1000
	stamp, id, end := g.clock, uint64(w+1), g.tails[Key{0, 1}]
	g.send(w, Down, Frame{Type: 0x07, Container: 1, Constants: Heartbeat(stamp, id, end)})
	g.clock += 250
	if g.version(Up) < 30 {
		stamp = g.clock
	}
	g.send(w, Up, Frame{Type: 0x08, Container: 1, Constants: Heartbeat(stamp, id, end)})
	g.Pings++
	g.Pongs++
}

// migrate moves a container away: every step, then its end and a new epoch.
func (g *generator) migrate(w int) {
	for _, t := range []uint16{0x09, 0x0A, 0x0B, 0x0C, 0x10} {
		g.send(w, Down, Frame{Type: t, Container: 9, Constants: g.bytes(24)})
		g.Migrations++
	}
	g.send(w, Down, Frame{Type: 0x12, Container: 9})
	if w == len(g.Workers)-1 {
		g.epoch++
	}
}

// others sends one frame of each type that nothing else here sends.
func (g *generator) others(w int) {
	either := func(direction int, t uint16, words int, constants []byte) {
		if Has(g.version(direction), t) {
			f := Frame{Type: t, Container: 2, Constants: constants}
			for range words {
				f.Words = append(f.Words, g.rng.Uint64())
			}
			g.send(w, direction, f)
		}
	}
	either(Down, 0x17, 0, words(1, 2, 3, 4))
	either(Down, 0x18, 0, HashTable([]HashSlot{{Key: 5, Start: 0, Count: 2}, {Free: true}, {Free: true}, {Key: 9, Start: 2, Count: 1}},
		4, [][]uint64{{10, 3, 1, 2}, {11, 1, 5, 0}, {12, 3, 7, 8}}))
	either(Down, 0x1C, 0, g.bytes(8))
	either(Down, 0x20, 0, g.bytes(8))
	either(Up, 0x21, 0, g.bytes(8))
	either(Down, 0x22, 2, g.bytes(16))
	either(Down, 0x23, 0, []byte("alpha\x00beta\x00"))
	either(Up, 0x24, 0, g.bytes(32))
	either(Down, 0x24, 0, g.bytes(32))
	either(Up, 0x25, 0, nil)
	either(Down, 0x25, 0, nil)
	either(Down, 0x26, 0, g.bytes(48))
}

// begin sends a request, in a transaction of its own or in none, and lays down
// what will come back for it.
func (g *generator) begin(w int) {
	r := &Request{Worker: w, Key: g.key(), Answered: -1}
	types := []uint16{0x01, 0x01, 0x01, 0x05}
	for _, t := range []uint16{0x1D, 0x1E} {
		if Has(g.version(Down), t) {
			types = append(types, t)
		}
	}
	r.Type = types[g.rng.IntN(len(types))]
	var txn *Txn
	if g.rng.IntN(2) == 0 {
		g.nextTxn++
		r.Txn = g.nextTxn
		txn = &Txn{Worker: w, Tenant: r.Key.Tenant, ID: r.Txn, Outcome: "none", Requests: 1}
		g.Txns = append(g.Txns, txn)
	}
	f := Frame{Type: r.Type, Txn: r.Txn, Container: r.Key.Container, Tenant: r.Key.Tenant,
		Constants: append(words(40+g.rng.Uint64N(5)), g.bytes(8*g.rng.IntN(6))...)}
	for range 1 + g.rng.IntN(12) {
		f.Words = append(f.Words, g.rng.Uint64())
	}
	r.Offset = g.send(w, Down, f)
	g.Requests = append(g.Requests, r)
	fl := &inFlight{req: r, rest: g.answer(r)}
	if txn != nil {
		g.finish(txn, r, fl)
	}
	g.flight = append(g.flight, fl)
}

// answer makes the frames that answer a request.
func (g *generator) answer(r *Request) (frames []Frame) {
	add := func(t uint16, constants []byte) {
		frames = append(frames, Frame{Type: t, Txn: r.Txn, Container: r.Key.Container, Tenant: r.Key.Tenant, Constants: constants})
	}
	chunks := 1 + g.rng.IntN(3)
	r.State = "success"
	if r.Type == 0x05 {
		for range chunks {
			add(0x06, g.bytes(g.rng.IntN(200)))
		}
		add(0x14, nil)
		return frames
	}
	switch g.rng.IntN(6) {
	case 0:
		for range chunks {
			rows := make([]KeyOffset, g.rng.IntN(40))
			for i := range rows {
				rows[i] = KeyOffset{g.rng.Uint64(), g.rng.Uint64N(1 << 40)}
			}
			r.Keys = append(r.Keys, rows...)
			r.Rows += len(rows)
			add(0x02, KeyOffsets(rows))
		}
	case 1:
		for i := range 1 + g.rng.IntN(5) {
			r.Aggs = append(r.Aggs, Cell{int64(g.rng.Uint64()), i%2 == 0})
		}
		r.Rows, r.State = 1, "aggregate"
		add(0x15, Aggregates(r.Aggs))
		return frames
	case 2:
		for range chunks {
			groups := make([]Group, g.rng.IntN(20))
			for i := range groups {
				groups[i] = Group{Key: g.rng.Uint64(), Used: g.rng.IntN(4) > 0}
				for k := range groups[i].Acc {
					groups[i].Acc[k] = Cell{int64(g.rng.Uint64()), g.rng.IntN(2) == 0}
				}
				if groups[i].Used {
					r.Rows++
				}
			}
			r.Groups = append(r.Groups, groups...)
			add(0x19, Groups(groups))
		}
	case 3, 4:
		r.Slots = 1 + g.rng.IntN(4)
		withOffsets := g.rng.IntN(2) == 0
		for range chunks {
			rows := make([][]Cell, g.rng.IntN(150))
			var offsets []uint64
			for i := range rows {
				for range r.Slots {
					rows[i] = append(rows[i], Cell{int64(g.rng.Uint64()), g.rng.IntN(5) > 0})
				}
				if withOffsets {
					offsets = append(offsets, g.rng.Uint64N(1<<40))
				}
			}
			r.Columns = append(r.Columns, rows...)
			r.RowOffsets = append(r.RowOffsets, offsets...)
			r.Rows += len(rows)
			add(0x16, Materialized(r.Slots, rows, offsets))
		}
	}
	switch n := g.rng.IntN(10); {
	case n == 0:
		r.State = "abort"
		add(0x04, g.bytes(12))
	case n == 1 && Has(g.version(Up), 0x1F):
		r.State = "conflict"
		add(0x1F, g.bytes(24))
	default:
		add(0x14, g.bytes(8*g.rng.IntN(2)))
	}
	return frames
}

// finish lays down how a transaction ends: it is validated, and then commits,
// aborts or is left.
func (g *generator) finish(t *Txn, r *Request, fl *inFlight) {
	add := func(messageType uint16) {
		fl.rest = append(fl.rest, Frame{Type: messageType, Txn: t.ID, Container: r.Key.Container, Tenant: r.Key.Tenant, Constants: g.bytes(16)})
	}
	switch g.rng.IntN(4) {
	case 0:
		return
	case 1:
		t.Outcome = "abort"
		add(0x0F)
	default:
		t.Outcome = "commit"
		t.Validations = 2
		add(0x0C)
		add(0x0D)
		add(0x0E)
	}
}

// advance sends up to n frames of requests in flight at a worker, whichever
// come: requests of one transaction and container in their order.
func (g *generator) advance(w, n int) {
	for ; n > 0; n-- {
		var ready []*inFlight
		seen := map[[3]uint64]bool{}
		for _, f := range g.flight {
			k := [3]uint64{f.req.Key.Tenant, f.req.Key.Container, f.req.Txn}
			if f.req.Worker == w && len(f.rest) > 0 && !seen[k] {
				ready = append(ready, f)
				seen[k] = true
			}
		}
		if len(ready) == 0 {
			return
		}
		f := ready[g.rng.IntN(len(ready))]
		frame := f.rest[0]
		f.rest = f.rest[1:]
		direction := Up
		if frame.Type >= 0x0C && frame.Type <= 0x0F {
			// The orchestrator asks for the validation, the worker votes.
			if frame.Type != 0x0D {
				direction = Down
			}
			g.send(w, direction, frame)
		} else {
			f.req.Answered = g.send(w, Up, frame)
		}
		if len(f.rest) == 0 {
			g.flight = slices.DeleteFunc(g.flight, func(x *inFlight) bool { return x == f })
		}
	}
}

// shadowTail streams containers from worker 0, the primary, to the orchestrator
// and from there to the last worker, their shadow.
func (g *generator) shadowTail() {
	last := len(g.Workers) - 1
	keys := []Key{{0, 1}, {0, 2}}
	if g.version(Up) >= 18 && g.version(Down) >= 18 {
		keys = append(keys, Key{2, 1})
	}
	type tail struct{ from uint64 }
	tails := make([]tail, len(keys))
	for i := range tails {
		tails[i].from = uint64(i) * 100_000
	}
	missing := g.Options.Chunks / 3
	again := g.Options.Chunks / 2
	for n := range g.Options.Chunks {
		for i, k := range keys {
			data := g.bytes(1 + g.rng.IntN(g.Options.ChunkBytes))
			from := tails[i].from
			tails[i].from += uint64(len(data))
			g.tails[k] = tails[i].from
			f := Frame{Type: 0x1A, Container: k.Container, Tenant: k.Tenant,
				Constants: SegmentFetch(g.version(Down), from, uint64(len(data)), g.nextTxn)}
			g.send(0, Down, f)
			if g.Options.Gap && n == missing {
				continue
			}
			send := func(data []byte) {
				g.chunk(0, Up, k, from, data)
				if last > 0 {
					g.chunk(last, Down, k, from, data)
				}
			}
			send(data)
			if g.Options.Differ && n == again {
				other := slices.Clone(data)
				other[len(other)/2] ^= 0xff
				send(other)
			}
		}
	}
}

func (g *generator) chunk(w, direction int, k Key, from uint64, data []byte) {
	word := g.version(direction) >= 19 && !g.Options.NoSnapshotWord
	at := g.send(w, direction, Frame{Type: 0x1B, Container: k.Container, Tenant: k.Tenant,
		Constants: Segment(word, from, g.nextTxn, data)})
	g.Chunks = append(g.Chunks, Chunk{w, direction, at, g.epoch, k, from, data})
}

// fence sends a frame of the epoch before the newest.
func (g *generator) fence(w int) {
	at := g.send(w, Up, Frame{Type: 0x14, Epoch: g.epoch - 1, Container: 77})
	g.Fences = append(g.Fences, struct {
		Worker int
		Offset int64
	}{w, at})
}

// shadows works out what the chunks make: the newest epoch's bytes, then those
// of the later connection (a worker's downstream one before its upstream one),
// then the later ones within it.
func (g *generator) shadows() { g.Shadows = Apply(g.Chunks) }

// Apply makes shadows of chunks.
func Apply(all []Chunk) map[Key]*Shadow {
	chunks := slices.Clone(all)
	slices.SortStableFunc(chunks, func(a, b Chunk) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Worker, b.Worker),
			cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Offset, b.Offset))
	})
	shadows := map[Key]*Shadow{}
	written := map[Key][]bool{}
	differ := map[Key][]bool{}
	for _, c := range chunks {
		s := shadows[c.Key]
		if s == nil {
			s = &Shadow{}
			shadows[c.Key] = s
		}
		for end := c.From + uint64(len(c.Data)); uint64(len(s.Data)) < end; {
			s.Data = append(s.Data, 0)
			written[c.Key] = append(written[c.Key], false)
			differ[c.Key] = append(differ[c.Key], false)
		}
		for i, b := range c.Data {
			at := c.From + uint64(i)
			if written[c.Key][at] && s.Data[at] != b {
				differ[c.Key][at] = true
			}
			s.Data[at], written[c.Key][at] = b, true
		}
	}
	for k, s := range shadows {
		s.Holes = spans(written[k], false)
		s.Differ = spans(differ[k], true)
	}
	return shadows
}

// spans are the ranges in which marks have a value.
func spans(marks []bool, value bool) (all []Span) {
	for i, m := range marks {
		if m != value {
			continue
		}
		if n := len(all); n > 0 && all[n-1].To == uint64(i) {
			all[n-1].To++
		} else {
			all = append(all, Span{uint64(i), uint64(i) + 1})
		}
	}
	return all
}
