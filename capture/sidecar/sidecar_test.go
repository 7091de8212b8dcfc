package sidecar

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"wiretape/wire"
)

func sample() *Sidecar {
	return &Sidecar{Tool: "capture 1", Connection: "c00000001-00000001", Number: 3, Protocol: "dendro", ProtocolVersion: 1,
		Direction: "downstream", Endpoint: "tcp://host:1/\x1b[31m<script>\u202e", Start: 100, Length: 50,
		SHA256: strings.Repeat("0a", 32), PreviousSHA256: strings.Repeat("0b", 32), Frames: []KindCount{{1, "Handshake", 1}},
		FirstArrival: At(1_700_000_000_123_456_789, 1<<62), LastArrival: At(1_700_000_000_123_456_790, 1<<62+1),
		Framing: FramingFrames, StartsAtBoundary: true, EndsAtBoundary: true, Boundary: 150,
		Findings: []Finding{FromWire(wire.Finding{Kind: "x", Connection: "c", File: "f", Offset: 1, At: 2, Length: 3, Field: "g", Want: "w", Got: "h", Message: "m", Cost: "n"})},
		Closed:   ClosedSize, Transport: &Verdict{Kind: TransportClean},
		Context: ContextOf(&wire.Context{Protocol: "dendro", Version: 1, Omitted: []string{"o"}, Entries: []wire.ContextEntry{
			{ID: 1<<64 - 1, Values: []wire.ContextValue{{Name: "n", Num: 1<<64 - 1}, {Name: "b", Bytes: []byte{0, 255}}, {Name: "empty", Bytes: []byte{}}}}, {ID: 2}}})}
}

// TestRoundTrip: what is written is read back, with 64-bit numbers exact, and
// holds no raw control character.
func TestRoundTrip(t *testing.T) {
	s := sample()
	b, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(b, "\x1b<>\u202e") {
		t.Fatalf("unescaped: %s", b)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, s) {
		t.Fatalf("got %+v, want %+v", got, s)
	}
	want := &wire.Context{Protocol: "dendro", Version: 1, Omitted: []string{"o"}, Entries: []wire.ContextEntry{
		{ID: 1<<64 - 1, Values: []wire.ContextValue{{Name: "n", Num: 1<<64 - 1}, {Name: "b", Bytes: []byte{0, 255}}, {Name: "empty", Bytes: []byte{}}}}, {ID: 2}}}
	if c := got.Context.Wire(); !reflect.DeepEqual(c, want) {
		t.Fatalf("context %+v", c)
	}
	if f := got.Findings[0].Wire(); f.At != 2 || f.Want != "w" || f.Got != "h" {
		t.Fatalf("finding %+v", f)
	}
	// A finding is the object that wire writes.
	w := got.Findings[0].Wire()
	var a, c any
	if json.Unmarshal(w.AppendJSON(nil), &a) != nil {
		t.Fatal("wire's JSON does not parse")
	}
	mine, _ := json.Marshal(got.Findings[0])
	if json.Unmarshal(mine, &c) != nil || !reflect.DeepEqual(a, c) {
		t.Fatalf("%s and %s", w.AppendJSON(nil), mine)
	}
}

func TestParseRefuses(t *testing.T) {
	good, err := sample().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(from, to string) []byte {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("no %s in the sample", from)
		}
		return bytes.Replace(good, []byte(from), []byte(to), 1)
	}
	for name, b := range map[string][]byte{
		"empty":              nil,
		"null":               []byte("null"),
		"another format":     edit(Format, "another"),
		"a later version":    edit(`"version": 1`, `"version": 2`),
		"no connection":      edit(`c00000001-00000001`, ``),
		"file 0":             edit(`"file": 3`, `"file": 0`),
		"negative start":     edit(`"start": 100`, `"start": -1`),
		"huge start":         edit(`"start": 100`, `"start": 9223372036854775807`),
		"overflowing length": edit(`"length": 50`, `"length": 9007199254740991`),
		"fraction":           edit(`"length": 50`, `"length": 50.5`),
		"no hash":            edit(strings.Repeat("0a", 32), "0a"),
		"boundary outside":   edit(`"boundary": 150`, `"boundary": 151`),
		"framing":            edit(`"framing": "frames"`, `"framing": "x"`),
		"trailing":           append(append([]byte{}, good...), "{}"...),
		"both":               edit(`"number": "18446744073709551615"`, `"number": "1", "bytes": ""`),
		"neither":            edit(`"number": "18446744073709551615"`, `"other": 1`),
		"number too large":   edit(`"number": "18446744073709551615"`, `"number": "18446744073709551616"`),
		"bad base64":         edit(`"bytes": "AP8="`, `"bytes": "?"`),
		"too large":          append(append([]byte{}, good...), make([]byte, MaxSize)...),
	} {
		if s, err := Parse(b); err == nil {
			t.Errorf("%s: parsed %+v", name, s)
		}
	}
	for cut := range len(good) - 1 {
		if _, err := Parse(good[:cut]); err == nil {
			t.Fatalf("cut at %d parses", cut)
		}
	}
}

// TestIndex: records come back; a cut at any byte leaves the whole ones, and
// zeros end it.
func TestIndex(t *testing.T) {
	b := AppendIndexHeader(nil, 1000, 1_700_000_000e9, 5)
	var want Arrivals
	ends := map[int]int{len(b): 0}
	wall, mono, off := int64(1_700_000_000e9), int64(5), int64(1000)
	for i := range 200 {
		p := bytes.Repeat([]byte{byte(i)}, 1+i*37)
		w, m := wall+int64(i*i)*1000-int64(i%7)*3600e9, mono+int64(i)*1e6
		b = AppendIndexRecord(b, len(p), CRC(0, p), wall, mono, w, m)
		wall, mono = w, m
		want = append(want, Arrival{off, int64(len(p)), w, m, CRC(0, p)})
		off += int64(len(p))
		ends[len(b)] = i + 1
	}
	for cut := range len(b) + 1 {
		got, isCut, err := ReadArrivals(b[:cut])
		n, whole := ends[cut]
		if cut < IndexHeaderSize {
			n, whole = 0, cut == 0
		}
		if err != nil || isCut == whole || whole && len(got) != n || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
			t.Fatalf("cut at %d: %d records, cut %v, %v", cut, len(got), isCut, err)
		}
		zeroed, isCut, err := ReadArrivals(append(append([]byte{}, b[:cut]...), make([]byte, 600)...))
		if cut >= IndexHeaderSize && whole && (err != nil || !isCut || len(zeroed) != n) {
			t.Fatalf("zeros from %d: %d records, %v", cut, len(zeroed), err)
		}
	}
	for _, off := range []int64{1000, 1001, 5000, off - 1} {
		a, ok := want.At(off)
		if !ok || off < a.Offset || off >= a.Offset+a.Length {
			t.Fatalf("at %d: %+v", off, a)
		}
	}
	for _, off := range []int64{0, 999, off} {
		if a, ok := want.At(off); ok {
			t.Fatalf("at %d: %+v", off, a)
		}
	}
	if _, _, err := ReadArrivals([]byte("no index at all, and longer than a header")); err == nil {
		t.Fatal("noise parses")
	}
	// The clock goes back: time stands still, it does not run wild.
	back := AppendIndexRecord(AppendIndexHeader(nil, 0, 100, 100), 1, 7, 100, 100, 50, 40)
	if got, _, err := ReadArrivals(back); err != nil || got[0].Mono != 100 || got[0].Wall != 50 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	good, err := sample().Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"wiretape-sidecar","version":1,"context":{"entries":[{"id":"1","values":[{}]}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		// What parses can be used, and written again to the same.
		s.Context.Wire()
		text, err := s.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		twice, err := again.Append(nil)
		if err != nil || !bytes.Equal(text, twice) {
			t.Fatalf("%v: %s and %s", err, text, twice)
		}
	})
}

func FuzzIndex(f *testing.F) {
	b := AppendIndexHeader(nil, 1000, 1, 2)
	b = AppendIndexRecord(b, 3, 0xabc, 1, 2, 3, 4)
	b = AppendIndexRecord(b, 1, 0xd, 3, 4, 100, 40)
	f.Add(b)
	f.Add(b[:len(b)-2])
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _, err := ReadArrivals(b)
		if err != nil {
			return
		}
		end := int64(-1)
		for _, a := range all {
			if a.Length < 1 || a.Offset < 0 || end >= 0 && a.Offset != end {
				t.Fatalf("%+v behind %d", a, end)
			}
			end = a.Offset + a.Length
			if got, ok := all.At(a.Offset); !ok || got != a {
				t.Fatalf("at %d: %+v", a.Offset, got)
			}
		}
	})
}

// TestGoldenSidecar pins the format: a sidecar of version 1 as it was written
// once reads the same for ever.
func TestGoldenSidecar(t *testing.T) {
	const name = "testdata/version1.json"
	want, err := sample().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("version 1 is now written as\n%s", want)
	}
}

// TestTooLarge: what is written can always be read.
func TestTooLarge(t *testing.T) {
	s := sample()
	s.Context.Omitted = []string{strings.Repeat("\x01", 4<<20)}
	b, err := s.Append(nil)
	if err != nil || len(b) > MaxSize {
		t.Fatal(len(b), err)
	}
	got, err := Parse(b)
	if err != nil || len(got.Context.Omitted) != 1 || got.FindingsOmitted != 1 || len(got.Findings) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestRules: what a sidecar is, by a list of ones that were written otherwise. The
// viewer's page is held against the same list.
func TestRules(t *testing.T) {
	whole, err := os.ReadFile("testdata/version1.json")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("testdata/rules.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(rules)), "\n")
	if len(lines) < 200 {
		t.Fatalf("%d rules", len(lines))
	}
	for _, line := range lines {
		var r struct {
			What, From, To string
			// ToHex is To where it is no text, Deep the depth of lists in place of "#[]".
			ToHex string `json:"to_hex"`
			Deep  int
			Valid bool
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		to := []byte(r.To)
		if r.ToHex != "" {
			if to, err = hex.DecodeString(r.ToHex); err != nil {
				t.Fatal(err)
			}
		}
		to = bytes.Replace(to, []byte("#[]"), []byte(strings.Repeat("[", r.Deep)+strings.Repeat("]", r.Deep)), 1)
		if !bytes.Contains(whole, []byte(r.From)) {
			t.Fatalf("%s: nothing to replace", r.What)
		}
		if _, err := Parse(bytes.Replace(whole, []byte(r.From), to, 1)); (err == nil) != r.Valid {
			t.Errorf("%s: %v", r.What, err)
		}
	}
}
