package shadow

// This file reads one connection, frame by frame, into the catalogue and the
// shadows.

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// KindSetAside: a segment chunk that is not in the shadow.
const KindSetAside = "segment-set-aside"

// connection is what is known of one connection as it is read.
type connection struct {
	*capture.Connection
	id        int64
	session   int64
	peer      *connection
	direction wire.Direction
	frames    int64
	bytes     int64
	lost      int64 // bytes stepped over or missing, as far as known
	losses    int64 // how often something before a frame was lost
	ending    string
	cluster   uint64
	// versions in the order in which they were first seen.
	versions []versionSeen
	// tiles and misses count chunks that follow on the one before under the
	// reading of the snapshot word, and under the other one.
	tiles, misses int64
	firstChunk    wire.Finding // its place
	tails         map[containerKey]tail
	hasArrival    bool
	first, last   int64
}

type versionSeen struct {
	version uint16
	frame   int64 // id of the first
	place   wire.Finding
	frames  int64
	types   [256]int64 // frames by type; types are small numbers
	tenants int64      // frames that name a tenant
}

// tail is a container's last chunk on a connection, and how far all of them
// reached.
type tail struct {
	from, payload uint64
	end           uint64
}

func newConnection(c *capture.Connection, id int64) *connection {
	return &connection{Connection: c, id: id, session: id, direction: c.Direction, ending: string(wire.EndingClean), tails: map[containerKey]tail{}}
}

// connection reads all of a connection that can be read.
func (b *builder) connection(k *connection) error {
	in := k.Units()
	defer in.Close()
	in.Progress = func(n int64) {
		k.bytes += n
		b.read += n
		if b.opt.Progress != nil {
			b.opt.Progress(Progress{Read: b.done + b.read, Total: b.total, Frames: b.frame})
		}
	}
	w := &walker{b: b, k: k}
	in.Open = w.open
	for {
		u, found, err := in.Next()
		// What lies before a frame is lost before it is read: a hole, an end
		// in the middle of a file, bytes stepped over.
		if run := in.Run(); in.Restarted() && (w.dec != nil || run.Start > 0 || run.Context != nil) {
			k.losses++
		}
		fenced := false
		for _, f := range found {
			switch f.Kind {
			case wire.KindLost, wire.KindBadLength, wire.KindZeroTail, wire.KindCut:
				k.lost += f.Length
				k.losses += truth(f.Kind != wire.KindCut)
			case aewr.KindChecksum:
				// One that was stepped over has a frame's length here, one of
				// a frame that was kept its field's.
				if f.Length >= aewr.HeaderSize {
					k.lost += f.Length
					k.losses++
				}
			case aewr.KindEpochFence:
				fenced = true
			}
			b.report.add(f)
		}
		if dec, ok := in.Decoder().(*aewr.Decoder); ok {
			w.dec, w.run = dec, in.Run()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if u.Type != wire.UnitFrame || w.dec == nil {
			continue
		}
		if err := w.frame(u, fenced); err != nil {
			return err
		}
	}
	if w.dec != nil && w.dec.Direction() != wire.DirectionUnknown {
		k.direction = w.dec.Direction()
	}
	k.ending = string(in.Ending())
	if slices.ContainsFunc(k.Findings, func(f wire.Finding) bool {
		return f.Kind == capture.KindNoEnd || (f.Kind == capture.KindMissingFiles || f.Kind == capture.KindPruned) && len(k.Files) > 0 && f.Offset >= k.Files[len(k.Files)-1].End()
	}) {
		k.losses++ // what came behind the last frame
	}
	for _, v := range k.versions {
		if err := b.cat.versions.Add(k.id, int64(v.version), v.frame, v.frames); err != nil {
			return err
		}
	}
	k.tails = nil
	return nil
}

// walker reads one connection.
type walker struct {
	b     *builder
	k     *connection
	run   *capture.Run
	dec   *aewr.Decoder
	epoch uint64
	began bool // an epoch was noted

	arrivals sidecar.Arrivals
	file     *capture.File
}

// contextBytes is room enough for a decoder's context.
const contextBytes = 1 << 10

// open starts the decoder of a run. Behind a hole without a sidecar the newest
// epoch and the version are those from before the hole.
func (w *walker) open(run *capture.Run) (wire.Decoder, error) {
	dec, err := w.k.Decoder(run)
	if err != nil || w.dec == nil {
		return dec, err
	}
	if d, ok := dec.(*aewr.Decoder); ok && d.Epoch() >= w.dec.Epoch() {
		return dec, nil
	}
	return aewr.Protocol.Open(wire.Config{Direction: w.k.Direction, Context: w.dec.Context(contextBytes)})
}

// arrival is when the byte at an offset came, nil when not known.
func (w *walker) arrival(offset int64) any {
	if f, _ := w.run.FileAt(offset); f != nil && f != w.file {
		w.file = f
		// Without an index there are no times; capture's own checks report it.
		w.arrivals, _, _ = f.Arrivals()
	}
	a, ok := w.arrivals.At(offset)
	if !ok {
		return nil
	}
	if !w.k.hasArrival {
		w.k.hasArrival, w.k.first = true, a.Wall
	}
	w.k.last = a.Wall
	return a.Wall
}

// num is a number as SQLite holds it: 64 bits, two's complement.
func num(v uint64) int64 { return int64(v) }

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// frame adds a frame to the catalogue and what it carries to where it belongs.
func (w *walker) frame(u wire.Unit, fenced bool) error {
	b, k := w.b, w.k
	if err := b.cat.begin(); err != nil {
		return err
	}
	h, ok := aewr.ParseHeader(u.Bytes)
	if !ok {
		return fmt.Errorf("a frame at %d without a header", u.Offset)
	}
	b.frame++
	k.frames++
	id := b.frame
	b.report.Counts.Frames++
	b.report.frameOf(h.MessageType)
	arrival := w.arrival(u.Offset)
	w.version(u, &h, id)
	p, err := aewr.ParsePayload(&h, u.Bytes[aewr.HeaderSize:])
	payload := "decoded"
	switch {
	case err != nil:
		payload = "malformed"
		b.report.Counts.FramesMalformed++
	case len(p.Bytes) == 0:
		payload = "none"
	case p.Kind == aewr.PayloadBytes:
		payload = "bytes"
	}
	var rows any
	if n, ok := p.ResultRows(); ok {
		rows = int64(n)
	}
	sumOK := aewr.Checksum(u.Bytes) == h.HeaderChecksum
	if !sumOK {
		b.report.Counts.ChecksumsBad++
	}
	err = b.cat.frames.Add(id, k.id, u.Offset, u.Size, int64(h.Version), int64(h.MessageType), num(h.TargetClusterHash),
		int64(h.InstructionCount), int64(h.ConstantsLen), int64(h.HeaderChecksum), truth(sumOK), int64(h.Pad), num(h.ManifestEpoch),
		num(h.TxnID), num(h.ContainerID), num(h.TenantID()), payload, rows, k.losses, arrival)
	if err != nil {
		return err
	}
	if fenced {
		b.report.Counts.FenceViolations++
		if err := b.cat.fences.Add(id, num(h.ManifestEpoch), num(w.dec.Epoch())); err != nil {
			return err
		}
	} else if !w.began || h.ManifestEpoch != w.epoch {
		w.began, w.epoch = true, h.ManifestEpoch
		if err := b.cat.epochs.Add(k.id, num(h.ManifestEpoch), id); err != nil {
			return err
		}
	}
	trusted := sumOK || !w.dec.ChecksumsHold()
	return w.carry(u, &h, &p, id, trusted, arrival)
}

// version follows which versions a connection's frames have.
func (w *walker) version(u wire.Unit, h *aewr.Header, id int64) {
	k := w.k
	var v *versionSeen
	for i := range k.versions {
		if k.versions[i].version == h.Version {
			v = &k.versions[i]
		}
	}
	if v == nil {
		if len(k.versions) == 0 {
			k.cluster = h.TargetClusterHash
		}
		if len(k.versions) >= maxVersions {
			return
		}
		k.versions = append(k.versions, versionSeen{version: h.Version, frame: id, place: w.run.Locate(wire.Finding{Offset: u.Offset})})
		v = &k.versions[len(k.versions)-1]
		v.place.Field = typeName(h.MessageType)
	}
	v.frames++
	if int(h.MessageType) < len(v.types) {
		v.types[h.MessageType]++
	}
	if h.Version >= 18 && h.RawTenantID != 0 {
		v.tenants++
	}
}

// maxVersions is how many versions are told apart on one connection.
const maxVersions = 32

func typeName(t uint16) string {
	if name := aewr.TypeName(t); name != "" {
		return name
	}
	return "0x" + strconv.FormatUint(uint64(t), 16)
}

// carry adds what a payload carries.
func (w *walker) carry(u wire.Unit, h *aewr.Header, p *aewr.Payload, id int64, trusted bool, arrival any) error {
	cat := w.b.cat
	counts := &w.b.report.Counts
	switch p.Kind {
	case aewr.PayloadKeyOffsets:
		for i := range p.Records {
			key, offset := p.KeyOffset(i)
			if err := cat.keys.Add(id, int64(i), num(key), num(offset)); err != nil {
				return err
			}
		}
		counts.ResultRows += int64(p.Records)
	case aewr.PayloadAggregates:
		for i := range p.Records {
			value, valid := p.Accumulator(i)
			if err := cat.aggregates.Add(id, int64(i), value, num(valid)); err != nil {
				return err
			}
		}
		counts.ResultRows += int64(min(p.Records, 1))
	case aewr.PayloadGroups:
		for i := range p.Records {
			g := p.Group(i)
			err := cat.groups.Add(id, int64(i), num(g.Key), num(g.Used), g.Acc[0], g.Acc[1], g.Acc[2], g.Acc[3],
				int64(g.Valid[0]), int64(g.Valid[1]), int64(g.Valid[2]), int64(g.Valid[3]))
			if err != nil {
				return err
			}
			counts.ResultRows += truth(g.Used != 0)
		}
	case aewr.PayloadMaterialized:
		counts.ResultRows += int64(p.Rows)
		return w.materialized(p, id)
	case aewr.PayloadHeartbeat:
		hb := p.Heartbeat()
		var end any
		if t, ok := w.k.tails[containerKey{h.TenantID(), h.ContainerID}]; ok {
			end = num(t.end)
		}
		counts.Heartbeats++
		return cat.beats.Add(id, w.k.id, int64(h.Version), truth(h.MessageType == aewr.HeartbeatPong), num(hb.TimestampUS), num(hb.WorkerID),
			num(hb.DataEndOffset), end, arrival)
	case aewr.PayloadSegmentFetch:
		f := p.SegmentFetch()
		var snapshot any
		if f.HasSnapshot {
			snapshot = num(f.Snapshot)
		}
		return cat.fetches.Add(id, num(h.TenantID()), num(h.ContainerID), num(f.From), num(f.Len), snapshot)
	case aewr.PayloadSegment:
		return w.segment(u, h, p, id, trusted)
	}
	return nil
}

func (w *walker) materialized(p *aewr.Payload, id int64) error {
	cat := w.b.cat
	if err := cat.chunks.Add(id, int64(p.Slots), int64(p.Rows), truth(p.HasRowOffsets)); err != nil {
		return err
	}
	for row := range p.Rows {
		for slot := range p.Slots {
			if err := cat.values.Add(id, int64(row), int64(slot), num(p.Value(slot, row)), truth(p.Valid(slot, row))); err != nil {
				return err
			}
		}
		if p.HasRowOffsets {
			if err := cat.rowOffsets.Add(id, int64(row), num(p.RowOffset(row))); err != nil {
				return err
			}
		}
	}
	return nil
}

// segment writes a chunk to its container's shadow.
func (w *walker) segment(u wire.Unit, h *aewr.Header, p *aewr.Payload, id int64, trusted bool) error {
	b, k := w.b, w.k
	b.report.Counts.Chunks++
	key := containerKey{h.TenantID(), h.ContainerID}
	place := func(f wire.Finding) {
		f.Kind, f.Offset, f.Length = KindSetAside, u.Offset, u.Size
		f.Cost = "its bytes are not in the shadow"
		b.report.Counts.ChunksSetAside++
		b.report.add(w.run.Locate(f))
	}
	if !trusted {
		place(wire.Finding{Field: "header_checksum", Message: "a segment chunk whose header is damaged: where its bytes belong is not sure"})
		return nil
	}
	word := p.HasSnapshotWord() && !b.words[k.ID]
	s := p.Segment(word)
	w.follow(u, key, p, s.From+uint64(len(s.Data)))
	c, err := b.shadows.get(key)
	if err == nil {
		err = b.shadows.write(c, s.From, s.Data, h.ManifestEpoch, id)
	}
	var limit *errLimit
	switch {
	case errors.As(err, &limit):
		place(wire.Finding{Field: "from", Want: limit.want, Got: limit.got, Message: limit.what})
		return nil
	case err != nil:
		return err
	}
	b.report.Counts.SegmentBytes += int64(len(s.Data))
	var snapshot any
	if s.HasSnapshot {
		snapshot = num(s.Snapshot)
	}
	return b.cat.shadowChunks.Add(id, num(key.tenant), num(key.container), num(s.From), int64(len(s.Data)), snapshot,
		int64(crc32.Checksum(s.Data, castagnoli)))
}

// follow keeps a container's tail on this connection, and tells whether a chunk
// follows on the one before with or without the snapshot word.
func (w *walker) follow(u wire.Unit, key containerKey, p *aewr.Payload, end uint64) {
	k := w.k
	t, ok := k.tails[key]
	if !ok && len(k.tails) >= MaxShadows {
		return
	}
	from := p.Segment(false).From
	if p.HasSnapshotWord() {
		if k.firstChunk.Connection == "" {
			k.firstChunk = w.run.Locate(wire.Finding{Offset: u.Offset})
		}
		switch {
		case ok && from-t.from == t.payload-16:
			k.tiles++
		case ok && from-t.from == t.payload-8:
			k.misses++
		}
	}
	k.tails[key] = tail{from, uint64(len(p.Bytes)), max(t.end, end)}
}

// disproved are the connections whose chunks have no snapshot word though their
// version should. A connection that does not tell goes by all others.
func (b *builder) disproved() (ids []string) {
	var tiles, misses int64
	for _, k := range b.conns {
		tiles += k.tiles
		misses += k.misses
	}
	for _, k := range b.conns {
		silent := k.tiles == 0 && k.misses == 0 && k.firstChunk.Connection != ""
		if k.misses > k.tiles || silent && misses > tiles {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// pairUp finds for every connection the one of the other direction. Where no
// recorder told, the only two that go opposite ways in one cluster are a pair.
func pairUp(conns []*connection) {
	byID := map[string]*connection{}
	for _, k := range conns {
		byID[k.ID] = k
	}
	join := func(a, b *connection) {
		a.peer, b.peer = b, a
		a.session = min(a.id, b.id)
		b.session = a.session
	}
	type open struct{ down, up []*connection }
	unpaired := map[uint64]*open{}
	for _, k := range conns {
		if p := byID[k.Pair]; p != nil && p != k && k.peer == nil && p.peer == nil {
			join(k, p)
		}
	}
	for _, k := range conns {
		if k.peer != nil || k.Pair != "" || k.frames == 0 {
			continue
		}
		o := unpaired[k.cluster]
		if o == nil {
			o = &open{}
			unpaired[k.cluster] = o
		}
		switch k.direction {
		case wire.Downstream:
			o.down = append(o.down, k)
		case wire.Upstream:
			o.up = append(o.up, k)
		}
	}
	for _, o := range unpaired {
		if len(o.down) == 1 && len(o.up) == 1 {
			join(o.down[0], o.up[0])
		}
	}
}
