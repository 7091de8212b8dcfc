package melin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"wiretape/internal/fixture"
	"wiretape/wire"
)

// golden lists the recorded streams: testdata/*/*.bin.gz.
func golden(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*/*.bin.gz")
	if err != nil || len(names) < 18 {
		t.Fatalf("golden files: %d, %v", len(names), err)
	}
	return names
}

func directionOf(name string) wire.Direction {
	if strings.Contains(name, "r2p") {
		return wire.Upstream
	}
	return wire.Downstream
}

type unit struct {
	wire.Unit
	found []wire.Finding
}

// readAll reads a whole stream and keeps a copy of every unit.
func readAll(t testing.TB, b []byte, d *Decoder) (us []unit, last []wire.Finding, r *wire.Reader) {
	t.Helper()
	r = wire.NewReader(bytes.NewReader(b), d, wire.ReaderOptions{})
	for {
		u, fs, err := r.Next()
		if errors.Is(err, io.EOF) {
			return us, append(last, fs...), r
		}
		if err != nil {
			t.Fatal(err)
		}
		u.Bytes = bytes.Clone(u.Bytes)
		us = append(us, unit{u, append([]wire.Finding(nil), fs...)})
	}
}

func open(t testing.TB, cfg wire.Config) *Decoder {
	t.Helper()
	d, err := NewDecoder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// body is what the truth files know of a snapshot or seed while it passes.
type body struct {
	of   string
	want uint64
	data []byte
}

// truthOf renders a frame as the truth files do.
func truthOf(t *testing.T, u wire.Unit, shape Shape, in *body) map[string]any {
	t.Helper()
	b := u.Bytes
	fields := map[string]any{}
	num := func(v uint64) json.Number { return json.Number(fmt.Sprint(v)) }
	table := crc32.MakeTable(crc32.Castagnoli)
	switch u.Kind {
	case TagHandshake:
		v, _ := DecodeHandshake(b)
		fields["last_sequence"], fields["chain_hash"] = num(v.LastSequence), hexOf(v.ChainHash[:])
		fields["epoch"], fields["protocol_version"] = num(v.Epoch), num(uint64(v.Version))
	case TagAck:
		v, _ := DecodeAck(b)
		fields["acked_sequence"], fields["in_memory_sequence"] = num(v.Acked), num(v.InMemory)
	case TagChallenge:
		v, _ := DecodeChallenge(b)
		fields["nonce"] = hexOf(v.Nonce[:])
	case TagChallengeResponse:
		v, _ := DecodeChallengeResponse(b)
		fields["signature"], fields["pubkey"] = hexOf(v.Signature[:]), hexOf(v.PublicKey[:])
	case TagAuthOk:
		fields["ok"] = true
	case TagAuthFailed:
		fields["ok"] = false
	case TagStreamStart:
		v, _ := DecodeStreamStart(b, Newest)
		fields["start_sequence"], fields["segment_start_sequence"] = num(v.StartSequence), num(v.SegmentStart)
		fields["anchor_hash"], fields["epoch"] = hexOf(v.Anchor[:]), num(v.Epoch)
		fields["genesis_entries"] = nil
		if v.GenesisKnown == 1 {
			fields["genesis_entries"] = num(v.GenesisEntries)
		}
	case TagNeedSnapshot, TagHashMismatch:
	case TagSnapshotBegin:
		v, _ := DecodeSnapshotBegin(b)
		*in = body{of: "snapshot", want: v.Length}
		fields["snapshot_len"], fields["snap_sequence"] = num(v.Length), num(v.SnapSequence)
		fields["snap_chain_hash"] = hexOf(v.ChainHash[:])
	case TagSegmentSeedBegin:
		n, _ := DecodeSegmentSeedBegin(b)
		*in = body{of: "segment_seed", want: n}
		fields["seed_len"] = num(n)
	case TagSnapshotChunk:
		data, _ := DecodeSnapshotChunk(b)
		fields["of"], fields["body_offset"] = in.of, num(uint64(len(in.data)))
		fields["data_len"], fields["head"] = num(uint64(len(data))), hexOf(data[:min(len(data), 16)])
		fields["data_crc32c"] = num(uint64(crc32.Checksum(data, table)))
		in.data = append(in.data, data...)
	case TagSnapshotEnd:
		crc, _ := DecodeSnapshotEnd(b)
		sum := crc32.Checksum(in.data, table)
		fields["of"], fields["body_len"], fields["expected_len"] = in.of, num(uint64(len(in.data))), num(in.want)
		fields["crc32c"], fields["computed_crc32c"] = num(uint64(crc)), num(uint64(sum))
		fields["crc_ok"], fields["len_ok"] = crc == sum, in.want == uint64(len(in.data))
	case TagRotate:
		v, _ := DecodeChainPoint(b)
		fields["boundary_seq"], fields["tail_hash"] = num(v.Sequence), hexOf(v.Hash[:])
	case TagChainCheck:
		v, _ := DecodeChainPoint(b)
		fields["sequence"], fields["chain_hash"] = num(v.Sequence), hexOf(v.Hash[:])
	case TagHeartbeat:
		v, _ := DecodeHeartbeat(b)
		fields["sequence"] = num(v.Sequence)
	case TagInputBatch:
		r := SlotsOf(b, shape)
		fields["count"], fields["first_sequence"], fields["last_sequence"] = num(uint64(r.Count())), nil, nil
		slots := []any{}
		var s Slot
		for r.Next(&s) {
			if fields["first_sequence"] == nil {
				fields["first_sequence"] = num(s.Sequence)
			}
			fields["last_sequence"] = num(s.Sequence)
			decoded := map[string]any{}
			switch s.Event {
			case EventTick:
				decoded["now_ns"] = num(u64(s.Payload))
			case EventEpochBump:
				decoded["epoch"] = num(u64(s.Payload))
			case EventAckPolicyChange:
				decoded["policy"], decoded["unwitnessed"] = num(uint64(s.Payload[0])), s.Payload[1]&1 != 0
			case EventApp: // the payload of the application that was recorded
				if s.Payload[0] == 'A' {
					decoded["app_kind"], decoded["value"] = "Add", num(u64(s.Payload[1:]))
				} else {
					text := s.Payload[1:]
					decoded["app_kind"], decoded["len"] = "Note", num(uint64(len(text)))
					decoded["crc32c"] = fmt.Sprintf("%08x", crc32.Checksum(text, table))
				}
			}
			if !s.CRCValid() {
				t.Errorf("sequence %d: the CRC does not fit", s.Sequence)
			}
			slots = append(slots, map[string]any{
				"crc32c": num(uint64(s.CRC)), "decoded": decoded, "event": EventName(s.Event), "event_tag": num(uint64(s.Event)),
				"key_hash": num(s.KeyHash), "length": num(uint64(u16(s.Raw))), "offset": num(uint64(u.Offset) + uint64(s.Offset)),
				"payload_len": num(uint64(len(s.Payload))), "sequence": num(s.Sequence), "slot_bytes": num(uint64(len(s.Raw))),
				"timestamp_ns": num(s.Timestamp)})
		}
		if f := r.Fault(); f != nil {
			t.Errorf("offset %d: %s", u.Offset, f.Message)
		}
		fields["slots"] = slots
	}
	return map[string]any{"fields": fields, "frame_len": num(uint64(u.Size)), "length": num(uint64(u.Size - PrefixSize)),
		"name": TagName(u.Kind), "offset": num(uint64(u.Offset)), "tag": num(uint64(u.Kind))}
}

// Every frame and slot of every recorded stream, as the real decoders read it.
func TestTruth(t *testing.T) {
	for _, name := range golden(t) {
		t.Run(name, func(t *testing.T) {
			want := json.NewDecoder(bytes.NewReader(fixture.Read(t, strings.Replace(name, ".bin.", ".truth.jsonl.", 1))))
			want.UseNumber()
			d := open(t, wire.Config{})
			us, last, r := readAll(t, fixture.Read(t, name), d)
			var in body
			for _, u := range us {
				var w map[string]any
				if err := want.Decode(&w); err != nil {
					t.Fatalf("offset %d: a frame that the truth lacks: %v", u.Offset, err)
				}
				delete(w, "conn")
				if w["dir"] != map[wire.Direction]string{wire.Downstream: "p2r", wire.Upstream: "r2p"}[directionOf(name)] {
					t.Fatal("direction")
				}
				delete(w, "dir")
				if got := truthOf(t, u.Unit, d.Shape(), &in); !reflect.DeepEqual(got, w) {
					t.Fatalf("got  %.2000v\nwant %.2000v", got, w)
				}
			}
			if want.More() {
				t.Fatal("the truth has more frames")
			}
			if r.Ending() != wire.EndingClean || len(last) != 0 {
				t.Errorf("ending %v, %v", r.Ending(), last)
			}
			if d.Direction() != directionOf(name) {
				t.Errorf("direction %v", d.Direction())
			}
			if strings.Contains(name, "vectors") {
				return
			}
			if d.Direction() == wire.Downstream && d.Layouts() != layouts(8) || !d.Layouts().Has(8) {
				t.Errorf("layouts %v", d.Layouts())
			}
			for _, u := range us {
				for _, f := range u.found {
					if f.Kind == KindGap && strings.Contains(name, "s4x-gap/conn01-p2r") && f.Want == "3" {
						continue
					}
					t.Errorf("%s at %d: %s", f.Kind, f.Offset, f.Message)
				}
			}
		})
	}
}

// The real gap of s4x-gap has its place and its sequences.
func TestGapHasItsPlace(t *testing.T) {
	us, _, _ := readAll(t, fixture.Read(t, "testdata/s4x-gap/conn01-p2r.bin.gz"), open(t, wire.Config{}))
	n := 0
	for _, u := range us {
		for _, f := range u.found {
			n++
			if f.Kind != KindGap || f.Want != "3" || f.Length != 8 || f.Offset != u.Offset || f.At <= u.Offset || f.At+8 > u.End() {
				t.Errorf("%+v", f)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d findings", n)
	}
}

// appendAgain encodes what was decoded of a frame.
func appendAgain(dst []byte, u wire.Unit, layout Layout) []byte {
	b := u.Bytes
	switch u.Kind {
	case TagHandshake:
		v, _ := DecodeHandshake(b)
		return v.Append(dst)
	case TagAck:
		v, _ := DecodeAck(b)
		return v.Append(dst)
	case TagChallenge:
		v, _ := DecodeChallenge(b)
		return v.Append(dst)
	case TagChallengeResponse:
		v, _ := DecodeChallengeResponse(b)
		return v.Append(dst)
	case TagStreamStart:
		v, _ := DecodeStreamStart(b, layout)
		return v.Append(dst)
	case TagSnapshotBegin:
		v, _ := DecodeSnapshotBegin(b)
		return v.Append(dst)
	case TagSnapshotChunk:
		data, _ := DecodeSnapshotChunk(b)
		return AppendSnapshotChunk(dst, data)
	case TagSnapshotEnd:
		crc, _ := DecodeSnapshotEnd(b)
		return AppendSnapshotEnd(dst, crc)
	case TagSegmentSeedBegin:
		n, _ := DecodeSegmentSeedBegin(b)
		return AppendSegmentSeedBegin(dst, n)
	case TagRotate, TagChainCheck:
		v, _ := DecodeChainPoint(b)
		return v.Append(dst, uint8(u.Kind))
	case TagDataBatch:
		v, _ := DecodeDataBatch(b)
		return v.Append(dst)
	case TagHeartbeat:
		v, _ := DecodeHeartbeat(b)
		return v.Append(dst)
	case TagInputBatch:
		r := SlotsOf(b, layout.Shape())
		dst, start := BeginInputBatch(dst)
		var s Slot
		for r.Next(&s) {
			dst = AppendSlot(dst, &s, layout.Shape())
		}
		return EndInputBatch(dst, start, r.Count())
	}
	return AppendTag(dst, uint8(u.Kind))
}

// Every frame kind, byte for byte.
func TestRoundTrip(t *testing.T) {
	for _, name := range golden(t) {
		in := fixture.Read(t, name)
		us, _, _ := readAll(t, in, open(t, wire.Config{}))
		var out []byte
		for _, u := range us {
			out = appendAgain(out, u.Unit, Newest)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("%s: encoded again it differs", name)
		}
	}
}

// tiles checks that the fields cover their parent's bytes one behind the other.
func tiles(t *testing.T, what string, fs []wire.Field, from, to int64) {
	t.Helper()
	at := from
	for i := range fs {
		f := &fs[i]
		if f.Offset != at {
			t.Fatalf("%s.%s at %d, want %d", what, f.Name, f.Offset, at)
		}
		at += f.Length
		if f.Count > 0 {
			var all []wire.Field
			for n := 0; n < f.Count; n += 100 {
				all = f.Children(all, n, 100)
			}
			if len(all) != f.Count {
				t.Fatalf("%s.%s: %d children, want %d", what, f.Name, len(all), f.Count)
			}
			tiles(t, what+"."+f.Name, all, f.Offset, f.Offset+f.Length)
			// A child alone is the same child.
			k := f.Count / 2
			if one := f.Children(nil, k, 1); one[0].Offset != all[k].Offset || one[0].Name != all[k].Name {
				t.Fatalf("%s.%s: child %d differs when made alone", what, f.Name, k)
			}
		}
	}
	if at != to {
		t.Fatalf("%s ends at %d, want %d", what, at, to)
	}
}

func TestFieldsTileFrames(t *testing.T) {
	for _, name := range golden(t) {
		d := open(t, wire.Config{})
		us, _, _ := readAll(t, fixture.Read(t, name), d)
		for _, u := range us {
			fs, fault := d.Fields(u.Unit)
			if fault != nil {
				t.Fatalf("%s at %d: %s", name, u.Offset, fault.Message)
			}
			tiles(t, name+" "+TagName(u.Kind), fs, u.Offset, u.End())
			if i := d.Info(u.Unit); i.Name != TagName(u.Kind) {
				t.Fatalf("%s: info %+v", name, i)
			}
		}
	}
}

func TestSlotFields(t *testing.T) {
	b := fixture.Read(t, "testdata/vectors/melin-p2r.bin.gz")
	d := open(t, wire.Config{})
	us, _, _ := readAll(t, b, d)
	for _, u := range us {
		if u.Kind != TagInputBatch || u.Offset != 150414 {
			continue
		}
		fs, _ := d.Fields(u.Unit)
		out := wire.AppendJSON(nil, fs, sha256.Sum256)
		want := `{"length":1255,"tag":33,"count":7,"slots":[{"length":17,"sequence":80,"timestamp_ns":1700000000000000080,"key_hash":43981,"event_tag":3,"now_ns":123,"crc32c":3363327272},` +
			`{"length":17,"sequence":81,"timestamp_ns":1700000000000000081,"key_hash":43981,"event_tag":4,"epoch":3,"crc32c":2857943109},` +
			`{"length":11,"sequence":82,"timestamp_ns":1700000000000000082,"key_hash":43981,"event_tag":5,"policy":2,"flags":1,"crc32c":2775835128},`
		if !strings.HasPrefix(string(out), want) {
			t.Errorf("got %.600s", out)
		}
		var names []string
		for _, f := range fs[3].Children(nil, 0, 4) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != "Tick EpochBump AckPolicyChange App" {
			t.Errorf("slots are %s", got)
		}
		return
	}
	t.Fatal("no such frame")
}

func TestDetect(t *testing.T) {
	for _, name := range golden(t) {
		b := fixture.Read(t, name)
		m, dir := Protocol{}.Detect(b[:min(len(b), wire.DetectLimit)], false)
		if m != wire.Matched || dir != directionOf(name) {
			t.Errorf("%s: %v %v", name, m, dir)
		}
		for n := range HeaderSize {
			if m, _ := (Protocol{}).Detect(b[:n], false); m != wire.MoreNeeded {
				t.Errorf("%s: %d bytes: %v", name, n, m)
			}
			if m, _ := (Protocol{}).Detect(b[:n], true); m != wire.NoMatch {
				t.Errorf("%s: %d bytes at the end: %v", name, n, m)
			}
		}
	}
	first := oldStart(1, bytes.Repeat([]byte("g"), 20))
	verdict := append(raw(TagNeedSnapshot), raw(TagSnapshotBegin, make([]byte, 48))...)
	for _, c := range []struct {
		what string
		b    []byte
		m    wire.Match
		dir  wire.Direction
	}{
		{"a StreamStart", first, wire.Matched, wire.Downstream},
		{"a StreamStart's start", first[:20], wire.MoreNeeded, wire.DirectionUnknown},
		{"a verdict and its snapshot", verdict, wire.Matched, wire.Downstream},
		{"a verdict alone", verdict[:5], wire.MoreNeeded, wire.DirectionUnknown},
		{"a Handshake", raw(TagHandshake, make([]byte, 40)), wire.Matched, wire.Upstream},
		{"a JPEG", []byte("\xff\xd8\xff\xe0\x00\x10JFIF"), wire.NoMatch, wire.DirectionUnknown},
		{"HTTP", []byte("HTTP/1.1 200 OK\r\n"), wire.NoMatch, wire.DirectionUnknown},
		{"zeros", make([]byte, 4096), wire.NoMatch, wire.DirectionUnknown},
		{"a verdict and something else", append(raw(TagNeedSnapshot), raw(TagAck, make([]byte, 16))...), wire.NoMatch, wire.DirectionUnknown},
	} {
		if m, dir := (Protocol{}).Detect(c.b, false); m != c.m || dir != c.dir {
			t.Errorf("%s: %v %v", c.what, m, dir)
		}
	}
}

// raw builds a frame by hand.
func raw(tag byte, parts ...[]byte) []byte {
	body := append([]byte{tag}, bytes.Join(parts, nil)...)
	return append([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), byte(len(body) >> 24)}, body...)
}

func le(n int, v uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

func oldStart(seq uint64, genesis []byte) []byte {
	return raw(TagStreamStart, le(8, seq), le(4, uint64(len(genesis))), genesis)
}

// Reading from any frame boundary with the context that was kept there gives
// the same findings and the same state as reading through.
func TestContextResumes(t *testing.T) {
	for _, name := range golden(t) {
		b := fixture.Read(t, name)
		if len(b) > 300_000 {
			continue
		}
		whole := open(t, wire.Config{})
		us, _, _ := readAll(t, b, whole)
		step := max(1, len(us)/20)
		d := open(t, wire.Config{})
		for i, u := range us {
			if i > 0 && i%step == 0 {
				c := d.Context(4096)
				if c == nil || len(c.Omitted) > 0 {
					t.Fatalf("%s: no context", name)
				}
				again := open(t, wire.Config{Context: c})
				for _, v := range us[i:] {
					if got := again.Observe(v.Unit, nil); len(got) != len(v.found) || !samePlaces(got, v.found) {
						t.Fatalf("%s from %d: at %d %v, want %v", name, u.Offset, v.Offset, got, v.found)
					}
				}
				if !reflect.DeepEqual(again.Context(0), whole.Context(0)) {
					t.Fatalf("%s from %d: another state at the end", name, u.Offset)
				}
			}
			d.Observe(u.Unit, nil)
		}
	}
	if _, err := NewDecoder(wire.Config{Context: &wire.Context{Protocol: "dendro"}}); !errors.Is(err, ErrContext) {
		t.Errorf("another protocol's context: %v", err)
	}
	if open(t, wire.Config{}).Context(0) != nil {
		t.Error("a context before the first frame")
	}
	d := open(t, wire.Config{})
	d.Observe(wire.Unit{Type: wire.UnitFrame, Kind: TagAuthOk, Size: 5, Bytes: raw(TagAuthOk)}, nil)
	if c := d.Context(10); len(c.Omitted) != 1 || len(c.Entries) != 0 {
		t.Errorf("a context over its limit: %+v", c)
	}
	// A file's start with nothing known of what came before.
	mid := open(t, wire.Config{Context: wire.MidStream(Name)})
	us, _, _ := readAll(t, fixture.Read(t, "testdata/s1-main/conn01-p2r.bin.gz"), open(t, wire.Config{}))
	for _, u := range us[10:] {
		if fs := mid.Observe(u.Unit, nil); len(fs) > 0 {
			t.Fatalf("%+v", fs)
		}
	}
	if mid.Layouts() != layouts(8) && mid.Shape() != ShapeCRC {
		t.Errorf("layouts %v", mid.Layouts())
	}
}

// samePlaces compares findings straight from a decoder with those that a reader
// gave the place of their frame.
func samePlaces(got, read []wire.Finding) bool {
	return slices.EqualFunc(got, read, func(a, b wire.Finding) bool {
		b.Offset, b.At = b.Byte(), 0
		return a == b
	})
}
