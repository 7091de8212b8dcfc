package inspect_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/fixture"
	"wiretape/replay/inspect"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const fixtures = "../../wire/dendro/testdata/"

func show(t testing.TB, opt inspect.Options, paths ...string) (string, inspect.Result) {
	t.Helper()
	in := capture.InputOptions{}
	if strings.HasSuffix(paths[0], "-magic.stream") {
		in.Protocol = dendro.Name // its first bytes do not tell
	}
	set, err := capture.OpenInputs(paths, in)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	res, err := inspect.Write(&out, set, opt)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), res
}

// line is one JSON line.
type line struct {
	Connection, File string
	Offset, Size     int64
	Kind             uint32
	Name             string
	Fields           map[string]any
	Hex              string
	Parts            []part
	Finding          *struct {
		Kind, Connection, File, Message string
		Offset, At, Length              int64
	}
}

type part struct {
	Name           string
	Offset, Length int64
	Value          any
	Parts          []part
}

func decode(t testing.TB, s string) (frames, findings []line) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	for {
		var l line
		err := d.Decode(&l)
		if err == io.EOF {
			return frames, findings
		}
		if err != nil {
			t.Fatalf("%v in %.200s", err, s)
		}
		if l.Finding != nil {
			findings = append(findings, l)
		} else {
			frames = append(frames, l)
		}
	}
}

// TestCrateAgrees: on every stream the lines are what the dendro crate decodes,
// up to where it stops.
func TestCrateAgrees(t *testing.T) {
	names, err := filepath.Glob(fixtures + "*/*.stream")
	if err != nil || len(names) < 50 {
		t.Fatal("fixtures are missing", err)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err != nil || st.Size() == 0 {
			continue
		}
		out, res := show(t, inspect.Options{JSON: true}, name)
		frames, findings := decode(t, out)
		if int(res.Findings) != len(findings) || int(res.Shown) != len(frames) {
			t.Errorf("%s: %+v, but %d frames and %d findings", name, res, len(frames), len(findings))
		}
		b, err := os.ReadFile(strings.TrimSuffix(name, ".stream") + ".frames.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		for i := 0; ; i++ {
			var want map[string]any
			if err := d.Decode(&want); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if want["error"] != nil {
				at, _ := want["offset"].(json.Number).Int64()
				hit := false
				for _, f := range findings {
					hit = hit || f.Finding.Offset == at
				}
				if !hit {
					t.Errorf("%s: no finding at %d, where the crate stops: %v", name, at, want["error"])
				}
				break
			}
			if want["end"] != nil {
				if i != len(frames) {
					t.Errorf("%s: %d frames, the crate has %d", name, len(frames), i)
				}
				break
			}
			if i >= len(frames) {
				t.Errorf("%s: %d frames are too few", name, len(frames))
				break
			}
			if got := asFixture(frames[i]); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\n got %v\nwant %v", name, got, want)
			}
		}
	}
}

// asFixture makes a line into one of a .frames.jsonl.
func asFixture(l line) map[string]any {
	m := map[string]any{"offset": number(l.Offset), "length": number(l.Size - 4), "kind": number(int64(l.Kind)), "name": l.Name}
	if l.Name == "unknown" {
		m["skipped"] = true
		return m
	}
	for k, v := range l.Fields {
		if k == "kind" {
			k, v = "index_kind", []string{"full", "delta"}[v.(json.Number)[0]-'0']
		}
		m[k] = fixture.Short(v)
	}
	return m
}

func number(n int64) json.Number { return json.Number(fmt.Sprint(n)) }

// TestHexAndParts: the bytes are the stream's, and parts lie where they say.
func TestHexAndParts(t *testing.T) {
	name := fixtures + "real/small.stream"
	stream, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := show(t, inspect.Options{JSON: true, Hex: true}, name)
	frames, _ := decode(t, out)
	for i, f := range frames {
		if b, err := hex.DecodeString(f.Hex); err != nil || !bytes.Equal(b, stream[f.Offset:f.Offset+f.Size]) {
			t.Fatalf("frame %d: other bytes", i+1)
		}
		out, res := show(t, inspect.Options{JSON: true, Frame: &inspect.Ref{Number: int64(i + 1)}}, name)
		one, _ := decode(t, out)
		if len(one) != 1 || one[0].Offset != f.Offset || res.Shown != 1 || !reflect.DeepEqual(one[0].Fields, f.Fields) {
			t.Fatalf("frame %d alone is another", i+1)
		}
		at := f.Offset
		for _, p := range one[0].Parts {
			if p.Offset != at {
				t.Fatalf("frame %d: part %s at %d, want %d", i+1, p.Name, p.Offset, at)
			}
			at += p.Length
		}
		if at != f.Offset+f.Size {
			t.Fatalf("frame %d: its parts end at %d", i+1, at)
		}
		text, _ := show(t, inspect.Options{Hex: true, Frame: &inspect.Ref{Offset: f.Offset + f.Size - 1, ByOffset: true}}, name)
		if !strings.Contains(text, fmt.Sprintf("frame %d: %s\n", i+1, f.Name)) || strings.Count(text, "|\n") != int(f.Size+15)/16 {
			t.Fatalf("frame %d by its last byte: %.200s", i+1, text)
		}
	}
}

// TestManyRows: a frame with very many rows is written as it is read, also
// with its parts.
func TestManyRows(t *testing.T) {
	const n = 60_000
	rows := make([]dendro.Row, n)
	for i := range rows {
		rows[i] = dendro.Row{Stream: []byte("cpu"), TS: int64(i), Row: []byte{byte(i)}}
	}
	r := dendro.NewRows(0, 1, dendro.State{}, rows)
	s := dendro.AppendHandshake(dendro.AppendPreamble(nil), &dendro.Handshake{})
	s = dendro.AppendRows(s, &r)
	name := filepath.Join(t.TempDir(), "many.stream")
	if err := os.WriteFile(name, s, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []*inspect.Ref{nil, {Number: 2}} {
		set, err := capture.OpenInputs([]string{name}, capture.InputOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := &writes{}
		if _, err := inspect.Write(w, set, inspect.Options{JSON: true, Frame: ref}); err != nil {
			t.Fatal(err)
		}
		if w.largest > 1<<20 || w.total < n*100 {
			t.Errorf("%d bytes in writes of up to %d", w.total, w.largest)
		}
	}
	out, _ := show(t, inspect.Options{JSON: true, Frame: &inspect.Ref{Number: 2}}, name)
	frames, _ := decode(t, out)
	if got := len(frames[0].Fields["rows"].([]any)); got != n {
		t.Errorf("%d rows", got)
	}
	for _, p := range frames[0].Parts {
		if p.Name == "rows" && (len(p.Parts) != n || p.Parts[n-1].Parts[1].Value != number(n-1)) {
			t.Errorf("%d parts", len(p.Parts))
		}
	}
}

// writes tells how large the pieces are in which output comes.
type writes struct{ total, largest int }

func (w *writes) Write(p []byte) (int, error) {
	w.total += len(p)
	w.largest = max(w.largest, len(p))
	return len(p), nil
}

// TestHostileText: nothing from the wire reaches a terminal as it is.
func TestHostileText(t *testing.T) {
	evil := "\x1b[2J\u202e\x07\r\nname%s<script>"
	s := dendro.AppendPreamble(nil)
	s = dendro.AppendHandshake(s, &dendro.Handshake{UUID: []byte(evil), HasUUID: true,
		Labels: dendro.NewMap(map[string]string{"host": evil, evil: evil}), Metadata: dendro.MapOf([2]string{evil, ""}, [2]string{evil, ""})})
	r := dendro.NewRows(0, 1, dendro.State{}, []dendro.Row{{Stream: []byte(evil), Row: []byte(evil)}})
	s = dendro.AppendRows(s, &r)
	s = dendro.AppendIndex(s, &dendro.Index{Stream: []byte(evil), Blob: []byte(evil)})
	r.Seq = 9
	s = dendro.AppendRows(s, &r)
	name := filepath.Join(t.TempDir(), "evil.stream")
	if err := os.WriteFile(name, s, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, opt := range map[string]inspect.Options{
		"list": {}, "json": {JSON: true}, "hex": {Hex: true},
		"frame": {Frame: &inspect.Ref{Number: 1}}, "rows": {Frame: &inspect.Ref{Number: 2}, Hex: true}, "frame json": {JSON: true, Frame: &inspect.Ref{Number: 1}},
	} {
		out, _ := show(t, opt, name)
		for i, c := range out {
			if c < 0x20 && c != '\n' || c >= 0x7f && c <= 0x9f || c == '\u202e' {
				t.Fatalf("%s: character %U at %d of %q", what, c, i, out)
			}
		}
		if strings.Contains(out, "%!") {
			t.Fatalf("%s: text was a format: %s", what, out)
		}
		if opt.JSON {
			if strings.Contains(out, "<script>") {
				t.Fatalf("%s: a tag as it is", what)
			}
			frames, _ := decode(t, out)
			if frames[0].Fields["uuid"] != evil {
				t.Fatalf("%s: the uuid is %q", what, frames[0].Fields["uuid"])
			}
		}
	}
}

// TestOtherProtocols: melin's real connections, both directions, are read by
// the same code; the lines cover the stream.
func TestOtherProtocols(t *testing.T) {
	names, err := filepath.Glob("../../wire/melin/testdata/*/*.bin.gz")
	if err != nil || len(names) == 0 {
		t.Fatal("no melin streams", err)
	}
	for _, name := range names {
		if strings.Contains(name, "vectors") {
			continue
		}
		stream := fixture.Read(t, name)
		raw := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(name), ".gz"))
		if err := os.WriteFile(raw, stream, 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := show(t, inspect.Options{JSON: true}, raw)
		frames, findings := decode(t, out)
		at := int64(0)
		for i, l := range frames {
			if l.Offset != at || l.Name == "unknown" {
				t.Fatalf("%s: frame %d at %d, want %d: %+v", name, i, l.Offset, at, l)
			}
			at += l.Size
		}
		if at != int64(len(stream)) && len(findings) == 0 {
			t.Errorf("%s: the frames end at %d of %d", name, at, len(stream))
		}
		text, res := show(t, inspect.Options{}, raw)
		if int(res.Frames) != len(frames) || !strings.Contains(text, "melin") {
			t.Errorf("%s: %d frames in the text", name, res.Frames)
		}
	}
}

// TestSelection: what is asked for that is not there is told as such.
func TestSelection(t *testing.T) {
	set, err := capture.OpenInputs([]string{fixtures + "crafted/gap.stream"}, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for want, opt := range map[error]inspect.Options{
		inspect.ErrNoFrame:    {Frame: &inspect.Ref{Number: 7}},
		inspect.ErrKind:       {Kinds: []string{"Rows", "Slot"}},
		inspect.ErrConnection: {Connection: "x"},
	} {
		if _, err := inspect.Write(io.Discard, set, opt); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for s, want := range map[string]*inspect.Ref{"12": {Number: 12}, "@0": {ByOffset: true}, "": nil, "-1": nil, "@": nil, "x": nil, "@9x": nil} {
		if got, err := inspect.ParseRef(s); (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, %v", s, got, err)
		}
	}
	// A finding between frames stands where its bytes lie.
	out, _ := show(t, inspect.Options{JSON: true}, damaged(t))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || !strings.Contains(lines[2], wire.KindBadLength) || !strings.Contains(lines[1], `"name":"Rows"`) || !strings.Contains(lines[3], "Handshake") {
		t.Errorf("lines: %s", out)
	}
}

// damaged is a stream with bytes between two frames that no frame owns.
func damaged(t *testing.T) string {
	s := dendro.AppendHandshake(dendro.AppendPreamble(nil), &dendro.Handshake{})
	r := dendro.NewRows(0, 1, dendro.State{}, nil)
	s = dendro.AppendRows(s, &r)
	s = append(s, 0xff, 0xff, 0xff, 0xff, 0xff)
	s = dendro.AppendHandshake(s, &dendro.Handshake{})
	name := filepath.Join(t.TempDir(), "damaged.stream")
	if err := os.WriteFile(name, s, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestOrder: the lines of a connection are in the order of their offsets,
// whatever is wrong with it.
func TestOrder(t *testing.T) {
	names, err := filepath.Glob(fixtures + "crafted/*.stream")
	if err != nil || len(names) == 0 {
		t.Fatal("no crafted streams", err)
	}
	b, err := os.ReadFile(fixtures + "real/small.stream")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for what, s := range map[string][]byte{
		"zeros in a frame": append(b[:100_000:100_000], make([]byte, 5000)...),
		"zeros":            append(b[:31053:31053], make([]byte, 5000)...),
		"junk, cut":        append(append(b[:31053:31053], 0xff, 0xff, 0xff, 0xff, 0xff), b[31053:100_000]...),
	} {
		name := filepath.Join(dir, what+".stream")
		if err := os.WriteFile(name, s, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	found := 0
	for _, name := range names {
		if b, err := os.ReadFile(name); err != nil || len(b) < dendro.PreambleSize || strings.Contains(name, "bad-magic") {
			continue // no stream by itself
		}
		out, res := show(t, inspect.Options{JSON: true}, name)
		found += int(res.Findings)
		last := int64(0)
		for l := range strings.Lines(out) {
			var x line
			if err := json.Unmarshal([]byte(l), &x); err != nil {
				t.Fatal(err)
			}
			at := x.Offset
			if x.Finding != nil {
				at = x.Finding.Offset
			}
			if at < last {
				t.Errorf("%s: offset %d behind %d", filepath.Base(name), at, last)
			}
			last = at
		}
	}
	if found < 20 {
		t.Errorf("%d findings in all", found)
	}
}
