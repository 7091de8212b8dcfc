package dendro

import (
	"encoding/binary"
	"iter"
	"slices"
	"unicode/utf8"
)

// Handshake introduces a source: it assigns the ordinal that later frames of
// the connection name. One for an ordinal in use reopens it with fresh state.
type Handshake struct {
	Source uint32
	// UUID is the identity, as it was sent. Absent and empty differ.
	UUID    []byte
	HasUUID bool
	Labels  Map
	// Metadata holds encoder and writer_sessions, among others.
	Metadata          Map
	ClockAnchorWallNs int64
	Complete          bool
}

// Index is an index entry. The blob is the publisher's own, stored and never
// decoded.
type Index struct {
	Source uint32
	Stream []byte
	TS     int64
	Kind   IndexKind
	State  State
	Blob   []byte
}

// Rows is one interval's live rows. One without rows is the keepalive.
type Rows struct {
	Source     uint32
	Seq        uint64
	IndexState State
	Count      uint32

	records []byte // checked
	at      int64  // of records, in the connection
}

// Row is one row of a Rows frame. Offset and Length are the place of the whole
// record, from its stream's length on.
type Row struct {
	Stream     []byte
	TS         int64
	WallOffset int64
	Row        []byte
	Offset     int64
	Length     int64
}

// All gives the rows in their order. It allocates nothing; the slices alias the
// frame.
func (r *Rows) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		b, at := r.records, r.at
		for len(b) > 0 {
			n := int(binary.LittleEndian.Uint32(b))
			tail := b[4+n:]
			m := int(binary.LittleEndian.Uint32(tail[16:]))
			size := 4 + n + 20 + m
			row := Row{
				Stream:     b[4 : 4+n : 4+n],
				TS:         int64(binary.LittleEndian.Uint64(tail)),
				WallOffset: int64(binary.LittleEndian.Uint64(tail[8:])),
				Row:        tail[20 : 20+m : 20+m],
				Offset:     at,
				Length:     int64(size),
			}
			if !yield(row) {
				return
			}
			b = b[size:]
			at += int64(size)
		}
	}
}

// NewRows makes a frame to encode of rows; their Offset and Length are not
// looked at.
func NewRows(source uint32, seq uint64, state State, rows []Row) Rows {
	return Rows{Source: source, Seq: seq, IndexState: state, Count: uint32(len(rows)), records: appendRecords(nil, rows)}
}

func appendRecords(dst []byte, rows []Row) []byte {
	for i := range rows {
		dst = appendBytes(dst, rows[i].Stream)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(rows[i].TS))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(rows[i].WallOffset))
		dst = appendBytes(dst, rows[i].Row)
	}
	return dst
}

// Segment is a sealed segment. Bytes is one Parquet file, which lands byte for
// byte.
type Segment struct {
	Source  uint32
	Stream  []byte
	Rows    uint64
	FirstTS int64
	LastTS  int64
	Bytes   []byte
	// CallerIndex is the publisher's own. Absent and empty differ.
	CallerIndex    []byte
	HasCallerIndex bool
}

// ClockOffset is one observation of the source's clock.
type ClockOffset struct {
	Source   uint32
	TS       int64
	OffsetNs int64
}

// SourceUpdate replaces labels and metadata whole, but for encoder and
// writer_sessions, which stay those of the Handshake.
type SourceUpdate struct {
	Source   uint32
	TS       int64
	Labels   Map
	Metadata Map
}

// Map is a view on checked pairs as they are on the wire. The zero Map is empty.
type Map struct {
	pairs []byte
	n     int
	at    int64 // of the count, in the connection
}

// NewMap makes a Map to encode, in key order.
func NewMap(m map[string]string) Map {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	pairs := make([][2]string, len(keys))
	for i, k := range keys {
		pairs[i] = [2]string{k, m[k]}
	}
	return MapOf(pairs...)
}

// MapOf makes a Map to encode of pairs exactly as given, also out of order.
func MapOf(pairs ...[2]string) Map {
	m := Map{n: len(pairs)}
	for _, p := range pairs {
		m.pairs = appendBytes(m.pairs, []byte(p[0]))
		m.pairs = appendBytes(m.pairs, []byte(p[1]))
	}
	return m
}

// Len is how many pairs there are, a repeated key counted each time.
func (m Map) Len() int { return m.n }

// All gives the pairs as they are on the wire, a repeated key each time.
func (m Map) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for b := m.pairs; len(b) > 0; {
			k, v, rest := pair(b)
			if !yield(k, v) {
				return
			}
			b = rest
		}
	}
}

// pair splits the first pair off checked pairs.
func pair(b []byte) (k, v, rest []byte) {
	n := int(binary.LittleEndian.Uint32(b))
	m := int(binary.LittleEndian.Uint32(b[4+n:]))
	return b[4 : 4+n : 4+n], b[8+n : 8+n+m : 8+n+m], b[8+n+m:]
}

// Get is the value of key, of a repeated one the last.
func (m Map) Get(key string) (value []byte, ok bool) {
	for k, v := range m.All() {
		if string(k) == key {
			value, ok = v, true
		}
	}
	return value, ok
}

// Go copies the pairs into a map; of a repeated key the last value stays.
func (m Map) Go() map[string]string {
	g := make(map[string]string, min(m.n, 1024))
	for k, v := range m.All() {
		g[string(k)] = string(v)
	}
	return g
}

// UUIDWellFormed says that u is 8-4-4-4-12 lower-case hex. Another one is an
// identity like any other, and a finding.
func UUIDWellFormed(u []byte) bool {
	if len(u) != 36 {
		return false
	}
	for i, c := range u {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// utf8OK is utf8.Valid with a short way for the short ASCII names that streams
// have.
func utf8OK(b []byte) bool {
	if len(b) <= 16 {
		var or byte
		for _, c := range b {
			or |= c
		}
		if or < utf8.RuneSelf {
			return true
		}
	}
	return utf8.Valid(b)
}
