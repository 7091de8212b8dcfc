package shadow

// This file is what a build works out and proves after all connections were
// read: the map of each shadow, fetches, version mismatches, and the check of
// the shadows against the chunks.

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"wiretape/internal/jsontext"
	"wiretape/internal/unfinished"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// The kinds of findings that a build adds.
const (
	// KindHole: bytes of a container that no chunk carried.
	KindHole = "shadow-hole"
	// KindOverlap: two chunks fill the same bytes differently.
	KindOverlap = "shadow-overlap"
	// KindPeerVersion: the peers of a session speak different versions.
	KindPeerVersion = "peer-version-mismatch"
	// KindTransaction: a transaction that was committed and aborted.
	KindTransaction = "transaction-both"
)

func (c *catalogue) addConnection(k *connection) error {
	var peer, version, cluster, transport, first, last any
	if k.peer != nil {
		peer = k.peer.id
	}
	if len(k.versions) > 0 {
		version, cluster = int64(k.versions[0].version), num(k.cluster)
	}
	if k.Transport != nil {
		transport = string(k.Transport.Kind)
	}
	if k.hasArrival {
		first, last = k.first, k.last
	}
	return c.db.Exec("INSERT INTO connections VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", k.id, k.ID, k.session, peer, k.direction.String(), k.Endpoint,
		version, cluster, k.frames, k.bytes, k.lost, k.losses, k.ending, transport, truth(k.tiles > 0 && k.tiles >= k.misses), first, last)
}

// shadowMap is a shadow's map file: a documented contract (docs/aewr.md).
type shadowMap struct {
	Tenant    uint64       `json:"tenant_id"`
	Container uint64       `json:"container_id"`
	File      string       `json:"file"`
	Length    uint64       `json:"length"`
	Bytes     int64        `json:"bytes"`
	Chunks    int64        `json:"chunks"`
	Refused   int64        `json:"chunks_refused"`
	Extents   []mapExtent  `json:"extents"`
	Holes     []mapSpan    `json:"holes"`
	Overlaps  []mapOverlap `json:"overlaps"`
	// Omitted is how many more overlaps there are than are listed.
	Omitted int64 `json:"overlaps_omitted"`
}

type mapExtent struct {
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`
	Epoch uint64 `json:"manifest_epoch"`
}

type mapSpan struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// mapPlace is where a chunk is.
type mapPlace struct {
	Connection string `json:"connection"`
	Offset     int64  `json:"offset"`
}

type mapOverlap struct {
	From      uint64   `json:"from"`
	To        uint64   `json:"to"`
	Differing int64    `json:"differing"`
	Earlier   mapPlace `json:"earlier"`
	Later     mapPlace `json:"later"`
	// Kept is "earlier" or "later".
	Kept string `json:"kept"`
}

// sorted are all shadows in order of tenant and container.
func (s *containers) sorted() []*container {
	var all []*container
	for _, c := range s.all {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.key.tenant, b.key.tenant), cmp.Compare(a.key.container, b.key.container))
	})
	return all
}

// placeOf is where a frame is.
func (b *builder) placeOf(frame int64) (p mapPlace, err error) {
	err = b.cat.db.Query("SELECT c.connection, f.offset FROM frames f JOIN connections c ON c.id = f.connection WHERE f.id = ?", func(v []driver.Value) error {
		p.Connection, _ = v[0].(string)
		p.Offset, _ = v[1].(int64)
		return nil
	}, frame)
	return p, err
}

// addShadows writes the maps and the catalogue's rows about shadows, and
// reports what is missing or doubtful in them.
func (b *builder) addShadows() error {
	if err := b.cat.shadowChunks.Flush(); err != nil {
		return err
	}
	if err := b.cat.db.Run("CREATE INDEX work_shadow_chunks ON shadow_chunks (tenant_id, container_id, from_offset, length)"); err != nil {
		return err
	}
	for _, c := range b.shadows.sorted() {
		if err := b.addShadow(c); err != nil {
			return err
		}
	}
	return b.cat.db.Run("DROP INDEX work_shadow_chunks")
}

func (b *builder) addShadow(c *container) error {
	file := filepath.Base(c.path)
	m := shadowMap{Tenant: c.key.tenant, Container: c.key.container, File: file, Length: c.end(), Bytes: c.bytes(), Chunks: c.chunks, Refused: c.refused,
		Extents: []mapExtent{}, Holes: []mapSpan{}, Overlaps: []mapOverlap{}, Omitted: c.overlaps - int64(len(c.overlap))}
	tenant, id := num(c.key.tenant), num(c.key.container)
	for _, e := range c.extents {
		m.Extents = append(m.Extents, mapExtent{e.from, e.to, e.epoch})
		if err := b.cat.extents.Add(tenant, id, num(e.from), num(e.to), num(e.epoch)); err != nil {
			return err
		}
	}
	r := ReportShadow{Tenant: c.key.tenant, Container: c.key.container, File: filepath.Join(shadowsName, file), Length: m.Length, Bytes: m.Bytes,
		Chunks: c.chunks, ChunksSetAside: c.refused, Overlaps: c.overlaps}
	for _, h := range c.holes() {
		m.Holes = append(m.Holes, mapSpan{h.from, h.to})
		r.Holes++
		r.Missing += int64(h.to - h.from)
		if err := b.cat.holes.Add(tenant, id, num(h.from), num(h.to)); err != nil {
			return err
		}
		b.report.add(wire.Finding{Kind: KindHole, Offset: int64(h.from), Length: int64(h.to - h.from), File: filepath.Join(shadowsName, file),
			Message: "no chunk carried bytes " + wire.Utoa(h.from) + " to " + wire.Utoa(h.to) + " of " + c.key.words(),
			Cost:    wire.Many(int64(h.to-h.from), "byte") + " of the shadow missing: they read as zeros"})
	}
	for _, o := range c.overlap {
		later, err := b.placeOf(o.frame)
		if err != nil {
			return err
		}
		earlier, err := b.earlier(c, o)
		if err != nil {
			return err
		}
		kept := "earlier"
		if o.replaced {
			kept = "later"
		}
		m.Overlaps = append(m.Overlaps, mapOverlap{o.from, o.to, o.bytes, earlier, later, kept})
		if err := b.cat.disagrees.Add(tenant, id, num(o.from), num(o.to), o.bytes, o.frame, truth(o.replaced)); err != nil {
			return err
		}
		b.report.add(wire.Finding{Kind: KindOverlap, Connection: later.Connection, Offset: later.Offset, Field: "bytes",
			Want: "the bytes of the chunk at " + earlier.Connection + ":" + wire.Itoa(earlier.Offset), Got: wire.Many(o.bytes, "other byte"),
			Message: "two chunks differ in " + wire.Many(o.bytes, "byte") + " from " + wire.Utoa(o.from) + " to " + wire.Utoa(o.to) + " of " + c.key.words(),
			Cost:    "the shadow has those of the " + kept + " chunk"})
	}
	b.report.Shadows = append(b.report.Shadows, r)
	b.report.Counts.ShadowBytes += m.Bytes
	err := b.cat.db.Exec("INSERT INTO shadows VALUES (?,?,?,?,?,?,?,?,?)", tenant, id, filepath.Join(shadowsName, file), num(m.Length), m.Bytes,
		c.chunks, c.refused, r.Holes, c.overlaps)
	if err != nil {
		return err
	}
	text, err := jsontext.Marshal(m, " ")
	if err != nil {
		return err
	}
	return unfinished.WriteFile(filepath.Join(b.shadows.dir, c.key.name()+".map.json"), append(text, '\n'))
}

// earlier is a chunk before an overlap's that covers its first byte: the newest
// one of those that start close before it.
func (b *builder) earlier(c *container, o overlap) (p mapPlace, err error) {
	var frame int64
	err = b.cat.db.Query(`SELECT max(frame) FROM (SELECT frame FROM shadow_chunks WHERE tenant_id = ? AND container_id = ? AND from_offset <= ?
		AND frame < ? AND from_offset + length > ? ORDER BY from_offset DESC LIMIT 100)`, func(v []driver.Value) error {
		frame, _ = v[0].(int64)
		return nil
	}, num(c.key.tenant), num(c.key.container), num(o.from), o.frame, num(o.from))
	if err != nil || frame == 0 {
		return p, err
	}
	return b.placeOf(frame)
}

func (k containerKey) words() string {
	return "tenant " + strconv.FormatUint(k.tenant, 10) + ", container " + strconv.FormatUint(k.container, 10)
}

// firstContainer is what a SEGMENT_FETCH_REQ names when it means the worker's
// first container.
const firstContainer = 0

// addFetches tells of each SEGMENT_FETCH_REQ how much of it the shadow has.
func (b *builder) addFetches() error {
	if err := b.cat.fetches.Flush(); err != nil {
		return err
	}
	answering, err := b.sessionContainers()
	if err != nil {
		return err
	}
	into := b.cat.db.Inserter("segment_fetches", "frame", "from_offset", "length", "snapshot", "held")
	err = b.cat.db.Query(`SELECT w.frame, w.tenant_id, w.container_id, w.from_offset, w.length, w.snapshot, iif(c.peer IS NULL, 0, c.session) FROM work.fetches w
		JOIN frames f ON f.id = w.frame JOIN connections c ON c.id = f.connection ORDER BY w.frame`, func(v []driver.Value) error {
		n := func(i int) uint64 { x, _ := v[i].(int64); return uint64(x) }
		to, over := bits.Add64(n(3), n(4), 0)
		if over != 0 {
			to = 1<<64 - 1
		}
		asked := []containerKey{{n(1), n(2)}}
		if n(2) == firstContainer {
			asked = append(asked, answering[sessionTenant{int64(n(6)), n(1)}]...)
		}
		var held uint64
		for _, k := range asked {
			if c := b.shadows.all[k]; c != nil {
				held = max(held, c.held(n(3), to))
			}
		}
		b.report.Counts.Fetches++
		if held < n(4) {
			b.report.Counts.FetchesUnanswered++
		}
		return into.Add(v[0], v[3], v[4], v[5], num(held))
	})
	return errors.Join(err, into.Flush())
}

// sessionTenant is one tenant in one session; all connections whose peer is not
// known are session 0.
type sessionTenant struct {
	session int64
	tenant  uint64
}

// sessionContainers are the containers of which each session carried chunks;
// there are no more of them in all than connections and containers allow.
func (b *builder) sessionContainers() (map[sessionTenant][]containerKey, error) {
	out := map[sessionTenant][]containerKey{}
	if n, err := b.cat.db.Int("SELECT count(*) FROM (SELECT 1 FROM work.fetches WHERE container_id = ? LIMIT 1)", int64(firstContainer)); err != nil || n == 0 {
		return out, err
	}
	err := b.cat.db.Query(`SELECT DISTINCT iif(c.peer IS NULL, 0, c.session), s.tenant_id, s.container_id FROM shadow_chunks s JOIN frames f ON f.id = s.frame
		JOIN connections c ON c.id = f.connection ORDER BY 1, 2, 3`, func(v []driver.Value) error {
		n := func(i int) uint64 { x, _ := v[i].(int64); return uint64(x) }
		k := sessionTenant{int64(n(0)), n(1)}
		out[k] = append(out[k], containerKey{n(1), n(2)})
		return nil
	})
	return out, err
}

// verifyShadows reads every chunk's range back and holds it against the chunk's
// checksum. Only where another chunk disputes the range may it differ.
func (b *builder) verifyShadows() error {
	buf := make([]byte, compareBytes)
	var c *container
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	return b.cat.db.Query("SELECT tenant_id, container_id, from_offset, length, crc32c, frame FROM shadow_chunks ORDER BY tenant_id, container_id, from_offset, frame",
		func(v []driver.Value) error {
			n := func(i int) uint64 { x, _ := v[i].(int64); return uint64(x) }
			if k := (containerKey{n(0), n(1)}); c == nil || c.key != k {
				if f != nil {
					f.Close()
				}
				var err error
				c = b.shadows.all[k]
				if f, err = os.Open(c.path); err != nil {
					return err
				}
				if info, err := f.Stat(); err != nil || uint64(info.Size()) != c.end() {
					return errors.Join(err, fmt.Errorf("the shadow %s does not verify: its length is not %d", filepath.Base(c.path), c.end()))
				}
			}
			sum, err := c.sum(f, n(2), n(2)+n(3), buf)
			if err != nil {
				return err
			}
			if uint64(sum) != n(4) && !c.disputed(n(2), n(2)+n(3)) {
				return fmt.Errorf("the shadow %s does not verify: bytes %d to %d are not those of frame %d", filepath.Base(c.path), n(2), n(2)+n(3), n(5))
			}
			return nil
		})
}

// summarize takes from the catalogue what the report says of it.
func (b *builder) summarize() error {
	if err := b.cat.flush(); err != nil {
		return err
	}
	r := b.report
	for _, k := range b.conns {
		c := ReportConnection{ID: k.ID, Session: k.session, Direction: k.direction.String(), Frames: k.frames, Bytes: k.bytes, Lost: k.lost, Ending: k.ending}
		if k.peer != nil {
			c.Peer = k.peer.ID
		}
		for _, v := range k.versions {
			c.Versions = append(c.Versions, v.version)
		}
		r.Connections = append(r.Connections, c)
		r.Counts.Bytes += k.bytes
		r.Counts.BytesLost += k.lost
		if b.words[k.ID] {
			f := k.firstChunk
			f.Kind, f.Field = aewr.KindReading, aewr.ReadingSegmentSnapshot
			f.Want, f.Got = "chunks that follow on each other with a snapshot word", wire.Itoa(k.misses)+" that do without"
			f.Message = "segment chunks of version 19 or later have no snapshot word on this connection; they were taken so"
			r.add(f)
		}
	}
	b.mismatches()
	states := func(query string, into map[string]int64) error {
		return b.cat.db.Query(query, func(v []driver.Value) error {
			word, _ := v[0].(string)
			into[word], _ = v[1].(int64)
			return nil
		})
	}
	if err := states("SELECT state, count(*) FROM requests GROUP BY state", r.Requests); err != nil {
		return err
	}
	if err := states("SELECT outcome, count(*) FROM transactions GROUP BY outcome", r.Transactions); err != nil {
		return err
	}
	for query, into := range map[string]*int64{
		"SELECT count(*) FROM requests WHERE NOT certain":                                                  &r.Counts.RequestsUncertain,
		"SELECT count(*) FROM answers WHERE request IS NULL":                                               &r.Counts.AnswersAlone,
		"SELECT count(*) FROM migrations":                                                                  &r.Counts.Migrations,
		"SELECT count(DISTINCT epoch) FROM epochs":                                                         &r.Counts.Epochs,
		"SELECT count(*) FROM work.pair WHERE ping IS NOT NULL":                                            &r.Counts.PongsPaired,
		"SELECT count(*) FROM work.pong q JOIN work.pair p ON p.frame = q.frame WHERE ping IS NULL":        &r.Counts.PongsAlone,
		"SELECT coalesce(max(lag_bytes), 0) FROM heartbeats WHERE kind = 'pong'":                           &r.Counts.MaxLagBytes,
		"SELECT coalesce(max(round_trip_ns), 0) FROM heartbeats WHERE round_trip_ns IS NOT NULL":           &r.Counts.MaxRoundTrip,
		"SELECT count(*) FROM transactions WHERE outcome = 'both'":                                         &r.Counts.TransactionsBoth,
		"SELECT count(*) FROM frames WHERE message_type NOT IN (SELECT code FROM message_types)":           &r.Counts.FramesUnknown,
		"SELECT count(*) FROM (SELECT 1 FROM connections GROUP BY session)":                                &r.Counts.Sessions,
		"SELECT count(*) FROM frames WHERE payload = 'bytes'":                                              &r.Counts.FramesOpaque,
		"SELECT count(*) FROM heartbeats WHERE kind = 'pong' AND ping IS NOT NULL AND lag_us < 0":          &r.Counts.PongsBeforePing,
		"SELECT count(*) FROM requests r WHERE r.state IN ('none', 'unfinished') AND r.message_type <> 32": &r.Counts.RequestsOpen,
	} {
		n, err := b.cat.db.Int(query)
		if err != nil {
			return err
		}
		*into = n
	}
	if err := b.echoes(); err != nil {
		return err
	}
	return b.cat.db.Query(`SELECT c.connection, f.offset, t.tenant_id, t.txn_id FROM transactions t JOIN frames f ON f.id = t.last_frame
		JOIN connections c ON c.id = f.connection WHERE t.outcome = 'both' LIMIT 100`, func(v []driver.Value) error {
		name, _ := v[0].(string)
		offset, _ := v[1].(int64)
		txn, _ := v[3].(int64)
		r.add(wire.Finding{Kind: KindTransaction, Connection: name, Offset: offset, Field: "txn_id", Got: wire.Utoa(uint64(txn)),
			Message: "transaction " + wire.Utoa(uint64(txn)) + " was committed and aborted"})
		return nil
	})
}

// echoes reports pongs from version 30 on that echo no ping though the pings
// were recorded.
func (b *builder) echoes() error {
	return b.cat.db.Query(`SELECT c.connection, min(f.offset), count(*) FROM work.pong q JOIN work.pair p ON p.frame = q.frame JOIN frames f ON f.id = q.frame
		JOIN connections c ON c.id = q.connection WHERE p.ping IS NULL AND q.version >= ? AND EXISTS (SELECT 1 FROM work.ping g WHERE g.connection = q.peer)
		AND NOT EXISTS (SELECT 1 FROM connections x WHERE x.id = q.peer AND x.losses > 0) GROUP BY c.id`, func(v []driver.Value) error {
		name, _ := v[0].(string)
		offset, _ := v[1].(int64)
		n, _ := v[2].(int64)
		b.report.add(wire.Finding{Kind: aewr.KindReading, Connection: name, Offset: offset, Field: aewr.ReadingPongEcho,
			Want: "the timestamp_us and worker_id of a ping", Got: wire.Count(n, "pong") + " of no ping",
			Message: "pongs of version 30 or later that echo no recorded ping"})
		return nil
	}, int64(pongEchoes))
}

// mismatches finds sessions whose peers speak different versions.
func (b *builder) mismatches() {
	bySession := map[int64][]*connection{}
	for _, k := range b.conns {
		bySession[k.session] = append(bySession[k.session], k)
	}
	for _, k := range b.conns {
		members := bySession[k.session]
		if members[0] != k {
			continue
		}
		var seen []*versionSeen
		for _, m := range members {
			for i := range m.versions {
				seen = append(seen, &m.versions[i])
			}
		}
		slices.SortStableFunc(seen, func(x, y *versionSeen) int { return int(x.version) - int(y.version) })
		for i := 1; i < len(seen); i++ {
			if old, young := seen[0], seen[i]; young.version != seen[i-1].version {
				b.report.mismatch(k, members, old, young)
			}
		}
	}
}

func (r *Report) mismatch(k *connection, members []*connection, old, young *versionSeen) {
	m := VersionMismatch{Session: k.session, Older: old.version, Newer: young.version, FirstOlder: placed(old), FirstNewer: placed(young), Misread: []Misread{}}
	for _, c := range members {
		m.Connections = append(m.Connections, c.ID)
	}
	for _, c := range aewr.Changes {
		if c.Version <= old.version || c.Version > young.version {
			continue
		}
		n := young.tenants
		var names []string
		if len(c.Types) > 0 {
			n = 0
			for _, t := range c.Types {
				n += young.types[t]
				names = append(names, aewr.TypeName(t))
			}
		}
		if n > 0 {
			m.Misread = append(m.Misread, Misread{Version: c.Version, Types: names, Frames: n, What: c.Misread})
		}
	}
	r.Mismatches = append(r.Mismatches, m)
	f := young.place
	f.Kind, f.Field, f.Length = KindPeerVersion, "version", 0
	f.Want, f.Got = strconv.Itoa(int(old.version)), strconv.Itoa(int(young.version))
	f.Message = "peers of one session speak versions " + f.Want + " and " + f.Got
	f.Cost = "each refuses the other's frames"
	r.add(f)
}

func placed(v *versionSeen) FirstFrame {
	return FirstFrame{Connection: v.place.Connection, File: v.place.File, Offset: v.place.Offset, Name: v.place.Field}
}
