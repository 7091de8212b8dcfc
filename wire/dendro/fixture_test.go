package dendro_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// frameLine is one line of a .frames.jsonl: what the dendro crate decodes.
type frameLine map[string]any

func readLines(t testing.TB, name string) []frameLine {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var lines []frameLine
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for {
		var l frameLine
		if err := d.Decode(&l); err == io.EOF {
			return lines
		} else if err != nil {
			t.Fatal(name, err)
		}
		lines = append(lines, l)
	}
}

func streams(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*/*.stream")
	if err != nil || len(names) < 50 {
		t.Fatal("fixtures are missing", len(names), err)
	}
	return names
}

func newDecoder(t testing.TB) *dendro.Decoder {
	t.Helper()
	d, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func digest(b []byte) map[string]any {
	h := sha256.Sum256(b)
	return map[string]any{"len": num(len(b)), "sha256_16": hex.EncodeToString(h[:8])}
}

func num[N int | int64 | uint64 | uint32](n N) json.Number {
	b, _ := json.Marshal(n)
	return json.Number(b)
}

func texts(m map[string]string) map[string]any {
	g := map[string]any{}
	for k, v := range m {
		g[k] = v
	}
	return g
}

func states(s dendro.State) []any { return []any{num(s[0]), num(s[1])} }

// line renders what Observe decoded in the words of the fixture.
func line(u wire.Unit, o dendro.Outcome) frameLine {
	l := frameLine{"offset": num(u.Offset), "length": num(u.Size - dendro.LenSize), "kind": num(u.Kind)}
	if l["name"] = dendro.KindName(u.Kind); l["name"] == "" {
		l["name"], l["skipped"] = "unknown", true
	}
	switch {
	case o.Handshake != nil:
		h := o.Handshake
		l["source"], l["labels"], l["metadata"] = num(h.Source), texts(h.Labels.Go()), texts(h.Metadata.Go())
		l["clock_anchor_wall_ns"], l["complete"], l["uuid"] = num(h.ClockAnchorWallNs), h.Complete, nil
		if h.HasUUID {
			l["uuid"] = string(h.UUID)
		}
	case o.Index != nil:
		x := o.Index
		l["source"], l["stream"], l["ts"] = num(x.Source), string(x.Stream), num(x.TS)
		l["index_kind"], l["state"], l["blob"] = strings.ToLower(x.Kind.String()), states(x.State), digest(x.Blob)
	case o.Rows != nil:
		r := o.Rows
		l["source"], l["seq"], l["index_state"], l["count"] = num(r.Source), num(r.Seq), states(r.IndexState), num(r.Count)
		rows := []any{}
		for row := range r.All() {
			rows = append(rows, map[string]any{"stream": string(row.Stream), "ts": num(row.TS),
				"wall_offset": num(row.WallOffset), "row": digest(row.Row)})
		}
		l["rows"] = rows
	case o.Segment != nil:
		s := o.Segment
		l["source"], l["stream"], l["rows"] = num(s.Source), string(s.Stream), num(s.Rows)
		l["first_ts"], l["last_ts"], l["bytes"] = num(s.FirstTS), num(s.LastTS), digest(s.Bytes)
		l["caller_index"] = nil
		if s.HasCallerIndex {
			l["caller_index"] = digest(s.CallerIndex)
		}
	case o.ClockOffset != nil:
		l["source"], l["ts"], l["offset_ns"] = num(o.ClockOffset.Source), num(o.ClockOffset.TS), num(o.ClockOffset.OffsetNs)
	case o.SourceUpdate != nil:
		s := o.SourceUpdate
		l["source"], l["ts"], l["labels"], l["metadata"] = num(s.Source), num(s.TS), texts(s.Labels.Go()), texts(s.Metadata.Go())
	}
	return l
}

// TestFixtures holds every frame against what the crate decodes, up to where
// the crate stops.
func TestFixtures(t *testing.T) {
	for _, name := range streams(t) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(name, "testdata/"), ".stream"), func(t *testing.T) {
			stream, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want := readLines(t, strings.TrimSuffix(name, ".stream")+".frames.jsonl")
			d := newDecoder(t)
			r := wire.NewReader(bytes.NewReader(stream), d, wire.ReaderOptions{})
			var faults []wire.Finding
			for {
				u, found, err := r.Next()
				faults = append(faults, found...)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if u.Type != wire.UnitFrame {
					continue
				}
				if len(want) == 0 {
					t.Fatalf("a frame at %d that the crate does not see", u.Offset)
				}
				if want[0]["error"] != nil {
					break
				}
				got, _ := json.Marshal(line(u, d.Last()))
				exp, _ := json.Marshal(want[0])
				if !bytes.Equal(got, exp) {
					t.Fatalf("frame at %d\n got %s\nwant %s", u.Offset, got, exp)
				}
				want = want[1:]
			}
			checkEnd(t, r, want, faults, int64(len(stream)))
		})
	}
}

// checkEnd holds the end, or the first fault, against the crate's.
func checkEnd(t *testing.T, r *wire.Reader, want []frameLine, faults []wire.Finding, size int64) {
	if len(want) != 1 {
		t.Fatalf("%d lines of the crate's are left", len(want))
	}
	at, _ := want[0]["offset"].(json.Number).Int64()
	_, failed := want[0]["error"]
	stray := want[0]["stray_length_bytes"]
	if !failed && stray == json.Number("0") {
		if r.Ending() != wire.EndingClean || at != size {
			t.Errorf("ending is %s, the crate ends clean at %d", r.Ending(), at)
		}
		return
	}
	for _, f := range faults {
		length := int64(dendro.MaxFrame)
		if n, ok := want[0]["length"].(json.Number); ok {
			length, _ = n.Int64()
		}
		if f.Offset >= at && f.Offset <= at+4+length {
			if f.Message == "" || f.Kind == "" {
				t.Errorf("a finding says nothing: %+v", f)
			}
			return
		}
	}
	t.Errorf("no finding for what the crate refuses at %d: %v\nfound %+v", at, want[0]["error"], faults)
}
