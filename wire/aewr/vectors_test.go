package aewr

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"wiretape/internal/aewrgen"
	"wiretape/wire"
)

// A vector file is stanzas of lines `word: value`, with a blank line between:
//
//	what: what the stanza shows
//	findings: kind@offset …, or none
//	fields: the frame's fields as JSON, or the SHA-256 of it
//	frame: hex, in pieces; 3*0011 is a piece three times
//
// The expectations are written down here, from the specification and the values
// that went into the frame, and never taken from the decoder.
var update = flag.Bool("update", false, "write the vector files anew")

type vector struct {
	what, findings, fields string
	frame                  []string
}

func (v *vector) bytes(t *testing.T) (b []byte) {
	t.Helper()
	for _, piece := range v.frame {
		times := 1
		if n, rest, ok := strings.Cut(piece, "*"); ok {
			var err error
			if times, err = strconv.Atoi(n); err != nil {
				t.Fatal(err)
			}
			piece = rest
		}
		raw, err := hex.DecodeString(piece)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, bytes.Repeat(raw, times)...)
	}
	return b
}

func (v *vector) render() string {
	return "what: " + v.what + "\nfindings: " + v.findings + "\nfields: " + v.fields + "\nframe: " + strings.Join(v.frame, " ") + "\n"
}

func parseVectors(t *testing.T, name string) (all []vector) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for stanza := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		var v vector
		for line := range strings.Lines(stanza) {
			word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch word {
			case "what":
				v.what = value
			case "findings":
				v.findings = value
			case "fields":
				v.fields = value
			case "frame":
				v.frame = strings.Fields(value)
			default:
				t.Fatalf("%s: a line %q", name, line)
			}
		}
		all = append(all, v)
	}
	return all
}

// observed decodes one frame alone in a fresh decoder that is told nothing.
func observed(t *testing.T, frame []byte) (findings []wire.Finding, fields string) {
	t.Helper()
	d, err := Protocol.Open(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(bytes.NewReader(frame), d, wire.ReaderOptions{})
	u, found, err := r.Next()
	findings = append(findings, found...)
	if err != nil {
		return findings, "none"
	}
	list, fault := d.Fields(u)
	fields = string(wire.AppendJSON(nil, list, sha256.Sum256))
	malformed := slices.ContainsFunc(found, func(f wire.Finding) bool { return f.Kind == wire.KindMalformed })
	if (fault != nil) != malformed {
		t.Errorf("Fields and Observe disagree: %+v, %+v", fault, found)
	}
	checkPlaces(t, list, u.Offset, u.End())
	_, found, err = r.Next()
	if err == nil {
		t.Error("a second unit")
	}
	return append(findings, found...), short(fields)
}

// short is the fields, or the SHA-256 of them when they are many.
func short(fields string) string {
	if len(fields) < 4096 {
		return fields
	}
	return fmt.Sprintf("sha256 %x", sha256.Sum256([]byte(fields)))
}

func placesOf(findings []wire.Finding) string {
	var words []string
	for _, f := range findings {
		if f.Message == "" {
			words = append(words, "without-message")
		}
		words = append(words, f.Kind+"@"+wire.Itoa(f.Byte()))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

// checkPlaces holds every field and child against the place it says it has.
func checkPlaces(t *testing.T, list []wire.Field, from, to int64) {
	t.Helper()
	for i := range list {
		f := &list[i]
		if f.Offset < from || f.Offset+f.Length > to || f.Length < 0 {
			t.Fatalf("field %s is at %d+%d, outside of %d to %d", f.Name, f.Offset, f.Length, from, to)
		}
		checkPlaces(t, f.Children(nil, 0, min(f.Count, 64)), f.Offset, f.Offset+f.Length)
		if f.Count > 64 {
			checkPlaces(t, f.Children(nil, f.Count-2, 10), f.Offset, f.Offset+f.Length)
		}
	}
}

func TestVectors(t *testing.T) {
	files := vectorFiles()
	for name, want := range files {
		path := filepath.Join("testdata", "vectors", name+".txt")
		if *update {
			var out []string
			for _, v := range want {
				out = append(out, v.render())
			}
			if err := os.WriteFile(path, []byte(strings.Join(out, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(names) != len(files) {
		t.Fatalf("%d vector files, %d expected: %v", len(names), len(files), err)
	}
	types := map[uint16]bool{}
	for _, name := range names {
		base := strings.TrimSuffix(filepath.Base(name), ".txt")
		t.Run(base, func(t *testing.T) {
			vectors := parseVectors(t, name)
			if len(vectors) != len(files[base]) {
				t.Errorf("%d stanzas, %d expected", len(vectors), len(files[base]))
			}
			for i, v := range vectors {
				if i < len(files[base]) && v.render() != files[base][i].render() {
					t.Errorf("%s: the file's stanza is not the one written down in the test", v.what)
				}
				frame := v.bytes(t)
				if h, ok := ParseHeader(frame); ok {
					types[h.MessageType] = true
				}
				findings, fields := observed(t, frame)
				if got := placesOf(findings); got != v.findings {
					t.Errorf("%s:\nfindings %s\nwant     %s", v.what, got, v.findings)
				}
				if fields != v.fields {
					t.Errorf("%s:\nfields %s\nwant   %s", v.what, fields, v.fields)
				}
			}
		})
	}
	for i, m := range messageTypes {
		if m.name != "" && !types[uint16(i)] {
			t.Errorf("no vector for %s", m.name)
		}
	}
}

// The table below.

type stanza struct {
	what, findings string
	frame          aewrgen.Frame
	payload        string // the fields behind the header, as JSON without braces
	repeat         int    // the constants are this many times what frame has
}

func (s stanza) vector() vector {
	f := s.frame
	if s.repeat > 0 {
		f.Claim, f.ClaimLen = true, uint32(len(f.Constants)*s.repeat)
	}
	whole := f.Append(nil)
	head := len(whole) - len(f.Constants)
	pieces := []string{hex.EncodeToString(whole[:head])}
	if len(f.Constants) > 0 {
		piece := hex.EncodeToString(f.Constants)
		if s.repeat > 0 {
			piece = strconv.Itoa(s.repeat) + "*" + piece
		}
		pieces = append(pieces, piece)
	}
	words, constants := len(f.Words), len(f.Constants)
	if f.Claim {
		words, constants = int(f.ClaimWords), int(f.ClaimLen)
	}
	fields := fmt.Sprintf(`{"magic":"AEWR","version":%d,"message_type":%d,"target_cluster_hash":%d,"instruction_count":%d,"constants_len":%d,"header_checksum":%d,"pad":%d,"manifest_epoch":%d,"txn_id":%d,"container_id":%d,"tenant_id":%d`,
		f.Version, f.Type, f.Cluster, words, constants, uint32(whole[24])|uint32(whole[25])<<8|uint32(whole[26])<<16|uint32(whole[27])<<24,
		f.Pad, f.Epoch, f.Txn, f.Container, f.Tenant)
	if s.payload != "" {
		fields += "," + s.payload
	}
	fields += "}"
	if s.payload == "no unit" {
		fields = "none"
	}
	return vector{what: s.what, findings: s.findings, fields: short(fields), frame: pieces}
}

func blobJSON(b []byte) string {
	return fmt.Sprintf(`{"length":%d,"sha256":"%x"}`, len(b), sha256.Sum256(b))
}

// newTypes are the types that not every version from 17 on has.
var newTypes = map[uint16]uint16{0x1C: 19, 0x1D: 20, 0x1E: 21, 0x1F: 24, 0x20: 25, 0x21: 25,
	0x22: 26, 0x23: 27, 0x24: 29, 0x25: 29, 0x26: 31}

// named are the file names.
var named = map[uint16]string{
	0x01: "exec-bytecode-req", 0x02: "result-stream-chunk", 0x04: "exec-abort", 0x05: "fetch-projection-req", 0x06: "fetch-stream-chunk",
	0x07: "heartbeat-ping", 0x08: "heartbeat-pong", 0x09: "migrate-09", 0x0A: "migrate-0a", 0x0B: "migrate-0b", 0x0C: "migrate-or-validate-0c",
	0x0D: "validate-txn-0d", 0x0E: "commit-txn", 0x0F: "abort-txn", 0x10: "migrate-10", 0x11: "worker-ready", 0x12: "container-retired",
	0x13: "topology-delta", 0x14: "exec-success", 0x15: "result-aggregate-chunk", 0x16: "result-materialize-chunk", 0x17: "join-stream-chunk",
	0x18: "hash-table-load", 0x19: "result-grouped-agg-chunk", 0x1A: "segment-fetch-req", 0x1B: "segment-stream-chunk", 0x1C: "snapshot-req",
	0x1D: "exec-delete-req", 0x1E: "exec-update-read-req", 0x1F: "write-conflict", 0x20: "sync-txid-req", 0x21: "sync-txid-resp",
	0x22: "index-build-req", 0x23: "string-arena-chunk", 0x24: "shuffle-data-req", 0x25: "shuffle-eof", 0x26: "join-broadcast-req",
}

func vectorFiles() map[string][]vector {
	files := map[string][]vector{}
	add := func(file string, s stanza) { files[file] = append(files[file], s.vector()) }
	base := func(version, messageType uint16, constants []byte) aewrgen.Frame {
		f := aewrgen.Frame{Version: version, Type: messageType, Cluster: 0x1122334455667788, Epoch: 5, Txn: 9, Container: 3, Constants: constants}
		if version >= 18 {
			f.Tenant = 2
		}
		return f
	}
	const bad = "malformed-frame@64"
	for messageType, file := range named {
		var versions []uint16
		for v := uint16(17); v <= 31; v++ {
			if v != 28 {
				versions = append(versions, v)
			}
		}
		for _, v := range versions {
			name := fmt.Sprintf("version %d", v)
			opaque := func(what, findings string, payload []byte) {
				json := ""
				if len(payload) > 0 {
					json = `"constants":` + blobJSON(payload)
				}
				add(file, stanza{what: name + ", " + what, findings: findings, frame: base(v, messageType, payload), payload: json})
			}
			if v < newTypes[messageType] {
				opaque("which does not have the type", "type-not-in-version@6", []byte{1, 2, 3})
				continue
			}
			// A payload of the exact length, and where the layout or the type is
			// new or old, one byte less, one and eight more.
			boundary := v <= 19 || v == newTypes[messageType] || v == 31
			lengths := func(payload []byte, json string, wrong ...[]byte) {
				if !boundary {
					wrong = nil
				}
				add(file, stanza{what: name + ", exact", findings: "none", frame: base(v, messageType, payload), payload: json})
				for _, w := range wrong {
					opaque(fmt.Sprintf("%d bytes", len(w)), bad, w)
				}
			}
			less := func(b []byte) []byte { return b[:len(b)-1] }
			more := func(b []byte, n int) []byte { return append(slices.Clone(b), make([]byte, n)...) }
			switch messageType {
			case 0x01:
				p := append(le64(77), 1, 2, 3)
				f := base(v, messageType, p)
				f.Words = []uint64{0x0102030405060708, 0xff}
				add(file, stanza{what: name + ", two instructions", findings: "none", frame: f,
					payload: `"instructions":["0807060504030201","ff00000000000000"],"target_table_id":77,"constants":` + blobJSON([]byte{1, 2, 3})})
				f.Constants = p[:7]
				add(file, stanza{what: name + ", constants without a whole table id", findings: bad, frame: f,
					payload: `"instructions":["0807060504030201","ff00000000000000"],"constants":` + blobJSON(p[:7])})
			case 0x02:
				p := aewrgen.KeyOffsets([]aewrgen.KeyOffset{{SortKey: 1<<63 + 1, RowOffset: 4096}, {SortKey: 7}})
				lengths(p, `"records":[{"sort_key":9223372036854775809,"row_offset":4096},{"sort_key":7,"row_offset":0}]`, less(p), more(p, 1), more(p, 8))
				lengths(nil, `"records":[]`)
			case 0x07, 0x08:
				p := aewrgen.Heartbeat(1_700_000_000_000_000, 4, 1<<40)
				lengths(p, `"timestamp_us":1700000000000000,"worker_id":4,"data_end_offset":1099511627776`, less(p), more(p, 1), more(p, 8), []byte{})
			case 0x15:
				p := aewrgen.Aggregates([]aewrgen.Cell{{Value: -5, Valid: true}, {}})
				lengths(p, `"accumulators":[{"value":-5,"valid":1},{"value":0,"valid":0}]`, less(p), more(p, 1), more(p, 8))
				lengths(nil, `"accumulators":[]`)
			case 0x16:
				rows := [][]aewrgen.Cell{{{Value: 10, Valid: true}, {Value: -1}}, {{Value: 11}, {Value: 12, Valid: true}}, {{Value: 13, Valid: true}, {Value: 14, Valid: true}}}
				json := `"slot_count":2,"row_count":3,"values":[[10,11,13],[-1,12,14]],"validity":[[true,false,true],[false,true,true]]`
				p := aewrgen.Materialized(2, rows, nil)
				lengths(p, json, less(p), more(p, 1), more(p, 8))
				p = aewrgen.Materialized(2, rows, []uint64{100, 200, 300})
				lengths(p, json+`,"row_offsets":[100,200,300]`, less(p), more(p, 8))
				lengths(aewrgen.Materialized(2, nil, nil), `"slot_count":2,"row_count":0,"values":[[],[]],"validity":[[],[]]`)
				// Counts that lie.
				for _, lie := range [][2]uint32{{3, 3}, {2, 4}, {1 << 31, 1 << 31}, {0xffffffff, 0xffffffff}, {0, 3}, {0xffffffff, 0}} {
					if !boundary {
						break
					}
					q := append(append(le32(lie[0]), le32(lie[1])...), p[8:]...)
					if lie[0] == 0 || lie[1] == 0 {
						q = q[:8]
					}
					opaque(fmt.Sprintf("%d slots of %d rows in %d bytes", lie[0], lie[1], len(q)), bad, q)
				}
			case 0x17:
				lengths(append(le64(1), le64(2)...), `"records":[{"offset_a":1,"offset_b":2}]`, make([]byte, 15), make([]byte, 17), make([]byte, 24))
			case 0x18:
				dir := []aewrgen.HashSlot{{Key: 6, Start: 0, Count: 2}, {Free: true}}
				p := aewrgen.HashTable(dir, 4, [][]uint64{{100, 1, 5, 6}, {200, 3, 7, 8}})
				lengths(p, `"dir_slots":2,"record_count":2,"stride":4,"directory":[{"composite_key":6,"count":2,"start":0},{"composite_key":0,"count":4294967295,"start":4294967295}],`+
					`"records":[{"row_offset":100,"valid_mask":1,"columns":[5,6]},{"row_offset":200,"valid_mask":3,"columns":[7,8]}]`, less(p), more(p, 1), more(p, 8))
				lengths(aewrgen.HashTable(dir[1:], 0, nil), `"dir_slots":1,"record_count":0,"stride":0,"directory":[{"composite_key":0,"count":4294967295,"start":4294967295}],"records":[]`)
				for _, lie := range [][3]uint64{{1 << 60, 2, 4}, {3, 2, 4}, {0, 2, 4}, {2, 1 << 62, 4}, {2, 2, 1 << 62}, {2, 1 << 33, 1 << 31}, {2, 8, 1}, {2, 3, 4}} {
					if !boundary {
						break
					}
					q := append(append(append(le64(lie[0]), le64(lie[1])...), le64(lie[2])...), p[24:]...)
					opaque(fmt.Sprintf("%d directory slots, %d records of %d words", lie[0], lie[1], lie[2]), bad, q)
				}
			case 0x19:
				g := aewrgen.Group{Key: 8, Used: true, Acc: [4]aewrgen.Cell{{Value: 1, Valid: true}, {Value: -2}, {Value: 3, Valid: true}, {}}}
				p := aewrgen.Groups([]aewrgen.Group{g})
				lengths(p, `"groups":[{"key":8,"used":1,"acc":[1,-2,3,0],"valid":[1,0,1,0],"pad":"000000000000000000000000"}]`, less(p), more(p, 1), more(p, 16))
			case 0x1A:
				p := aewrgen.SegmentFetch(v, 4096, 512, 33)
				if v < 19 {
					lengths(p, `"from":4096,"len":512`, less(p), more(p, 1), more(p, 8))
				} else {
					lengths(p, `"from":4096,"len":512,"snapshot":33`, less(p), p[:16], more(p, 1), more(p, 8))
				}
			case 0x1B:
				data := []byte("segment bytes")
				p := aewrgen.Segment(v >= 19, 4096, 33, data)
				if v < 19 {
					lengths(p, `"from":4096,"bytes":`+blobJSON(data), p[:7], nil)
					lengths(p[:8], `"from":4096,"bytes":`+blobJSON(nil))
				} else {
					lengths(p, `"from":4096,"snapshot":33,"bytes":`+blobJSON(data), p[:7], nil)
					add(file, stanza{what: name + ", too short for a snapshot word", findings: "reading@64", frame: base(v, messageType, p[:15]),
						payload: `"from":4096,"bytes":` + blobJSON(p[8:15])})
				}
			default:
				opaque("no payload", "none", nil)
				opaque("whose layout is not public", "none", []byte{1, 2, 3, 4, 5})
				f := base(v, messageType, []byte{9})
				f.Words = []uint64{1}
				add(file, stanza{what: name + ", an instruction word", findings: "none", frame: f,
					payload: `"instructions":["0100000000000000"],"constants":` + blobJSON([]byte{9})})
			}
		}
	}
	// Limits on records, counts and readings.
	key := aewrgen.KeyOffsets([]aewrgen.KeyOffset{{SortKey: 1, RowOffset: 2}})
	list := func(one string, n int) string { return `[` + strings.Repeat(one+",", n-1) + one + `]` }
	for _, n := range []int{4092, 4093} {
		s := stanza{what: fmt.Sprintf("%d records", n), findings: "none", frame: base(20, 0x02, key), repeat: n,
			payload: `"records":` + list(`{"sort_key":1,"row_offset":2}`, n)}
		if n > 4092 {
			s.findings = "bad-count@64"
		}
		add("record-limits", s)
	}
	group := aewrgen.Groups([]aewrgen.Group{{Key: 1}})
	for _, n := range []int{1023, 1024} {
		s := stanza{what: fmt.Sprintf("%d groups", n), findings: "none", frame: base(20, 0x19, group), repeat: n,
			payload: `"groups":` + list(`{"key":1,"used":0,"acc":[0,0,0,0],"valid":[0,0,0,0],"pad":"000000000000000000000000"}`, n)}
		if n > 1023 {
			s.findings = "bad-count@64"
		}
		add("record-limits", s)
	}
	add("readings", stanza{what: "a valid word of 2", findings: "reading@72", frame: base(20, 0x15, append(le64(1), le64(2)...)),
		payload: `"accumulators":[{"value":1,"valid":2}]`})
	odd := slices.Clone(group)
	odd[63] = 1
	add("readings", stanza{what: "a group slot whose padding is not zero", findings: "reading@112", frame: base(20, 0x19, odd),
		payload: `"groups":[{"key":1,"used":0,"acc":[0,0,0,0],"valid":[0,0,0,0],"pad":"000000000000000000000001"}]`})
	odd = slices.Clone(group)
	odd[8] = 2
	add("readings", stanza{what: "a used word of 2", findings: "reading@72", frame: base(20, 0x19, odd),
		payload: `"groups":[{"key":1,"used":2,"acc":[0,0,0,0],"valid":[0,0,0,0],"pad":"000000000000000000000000"}]`})
	one := aewrgen.Materialized(1, [][]aewrgen.Cell{{{Value: 5, Valid: true}}}, nil)
	odd = slices.Clone(one)
	odd[16] = 3
	add("readings", stanza{what: "a validity bitmap with a bit in its padding", findings: "reading@80", frame: base(20, 0x16, odd),
		payload: `"slot_count":1,"row_count":1,"values":[[5]],"validity":[[true]]`})
	add("readings", stanza{what: "a directory slot that reaches past the records", findings: "bad-count@96",
		frame:   base(20, 0x18, aewrgen.HashTable([]aewrgen.HashSlot{{Key: 1, Start: 0, Count: 2}}, 2, [][]uint64{{1, 0}})),
		payload: `"dir_slots":1,"record_count":1,"stride":2,"directory":[{"composite_key":1,"count":2,"start":0}],"records":[{"row_offset":1,"valid_mask":0,"columns":[]}]`})
	add("readings", stanza{what: "a record in no directory slot", findings: "reading@64",
		frame:   base(20, 0x18, aewrgen.HashTable([]aewrgen.HashSlot{{Free: true}}, 2, [][]uint64{{1, 0}})),
		payload: `"dir_slots":1,"record_count":1,"stride":2,"directory":[{"composite_key":0,"count":4294967295,"start":4294967295}],"records":[{"row_offset":1,"valid_mask":0,"columns":[]}]`})
	f := base(20, 0x02, nil)
	f.Words = []uint64{1, 2}
	add("readings", stanza{what: "records in the instruction words", findings: "reading@16", frame: f,
		payload: `"records":[{"sort_key":1,"row_offset":2}]`})
	// The header's own rules.
	for _, v := range []uint16{0, 16, 28, 32, 65535} {
		f := base(v, 0x02, key)
		f.Tenant = 0
		add("header", stanza{what: fmt.Sprintf("version %d is not known", v), findings: "bad-version@4", frame: f, payload: `"constants":` + blobJSON(key)})
	}
	f = base(17, 0x14, nil)
	f.Tenant = 4
	add("header", stanza{what: "a tenant where version 17 has a reserved word", findings: "reserved-not-zero@56", frame: f})
	f = base(18, 0x14, nil)
	f.Pad = 7
	add("header", stanza{what: "padding that is not zero", findings: "reserved-not-zero@28", frame: f})
	f = base(18, 0x14, nil)
	f.BreakChecksum = true
	add("header", stanza{what: "a checksum that does not match, at the end of the stream", findings: "bad-checksum@24", frame: f})
	for _, unknown := range []uint16{0x00, 0x03, 0x27, 0xffff} {
		add("header", stanza{what: fmt.Sprintf("message type %#02x is not known", unknown), findings: "unknown-kind@6", frame: base(31, unknown, []byte{1}),
			payload: `"constants":` + blobJSON([]byte{1})})
	}
	f = base(31, 0x01, nil)
	f.Claim, f.ClaimWords, f.ClaimLen = true, 0xffffffff, 0xffffffff
	add("header", stanza{what: "nearly 2^35 bytes", findings: "bad-length@0", frame: f, payload: "no unit"})
	f.ClaimWords, f.ClaimLen = 0, MaxFrame-HeaderSize+1
	add("header", stanza{what: "a byte more than the largest frame", findings: "bad-length@0", frame: f, payload: "no unit"})
	f.ClaimLen--
	add("header", stanza{what: "the largest frame, cut behind its header", findings: "cut@0", frame: f, payload: "no unit"})
	f = base(31, 0x14, nil)
	f.OverwriteMagic = "AEWS"
	add("header", stanza{what: "another magic", findings: "framing-lost@0", frame: f, payload: "no unit"})
	return files
}

func le32(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }

func le64(v uint64) []byte { return append(le32(uint32(v)), le32(uint32(v>>32))...) }
