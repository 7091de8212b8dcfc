package wire_test

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"wiretape/wire"
)

func TestSafeText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"web-1", 0, "web-1"},
		{"", 4, ""},
		{"Grüße 東京", 0, "Grüße 東京"},
		{"\x1b[2J", 0, `\u001b[2J`},
		{"a\nb\tc\r", 0, `a\nb\tc\u000d`},
		{"\u202eabc\u2069", 0, `\u202eabc\u2069`},
		{"zero\u200bwidth\ufeff", 0, `zero\u200bwidth\ufeff`},
		{"\x9b31m", 0, `\x9b31m`},
		{"\u009b31m", 0, `\u009b31m`},
		{"\xff\xfe", 0, `\xff\xfe`},
		{"a\U000e0041b\u3164\ufe0f", 0, `a\u{e0041}b\u3164\ufe0f`},
		{"\x7f\x00", 0, `\u007f\u0000`},
		{"abcdef", 6, "abcdef"},
		{"abcdef", 3, "abc…"},
	} {
		if got := wire.SafeText(c.in, c.limit); got != c.want {
			t.Errorf("SafeText(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

// TestUnprintable holds the rule against the list that the viewer's is held
// against too, for every character.
func TestUnprintable(t *testing.T) {
	b, err := os.ReadFile("testdata/unprintable.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []bool
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		from, to, ok := strings.Cut(line, "-")
		if !ok {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 16, 32)
		z, err2 := strconv.ParseUint(to, 16, 32)
		if err1 != nil || err2 != nil || a > z || z > utf8.MaxRune || int(a) < len(listed) {
			t.Fatalf("the line %q", line)
		}
		listed = append(listed, make([]bool, int(z)+1-len(listed))...)
		for r := a; r <= z; r++ {
			listed[r] = true
		}
	}
	listed = append(listed, make([]bool, utf8.MaxRune+1-len(listed))...)
	for r := range rune(utf8.MaxRune + 1) {
		s := string(r)
		if !utf8.ValidRune(r) {
			continue
		}
		safe := wire.SafeText(s, 0)
		if escaped := safe != s; escaped != listed[r] {
			t.Errorf("U+%04X: escaped %v, listed %v", r, escaped, listed[r])
		}
		if listed[r] && strings.ContainsRune(string(wire.AppendJSONString(nil, s)), r) && r != '\\' {
			t.Errorf("U+%04X stands in JSON as it is", r)
		}
	}
}

// harmless says that s can be shown on a terminal and in HTML text.
func harmless(s string) bool {
	for _, r := range s {
		switch {
		case r < 0x20, r >= 0x7f && r <= 0x9f, r == '\u202e', r == '\u2028', r == '\u200b', r == '\ufeff', r == utf8.RuneError:
			return false
		}
	}
	return utf8.ValidString(s)
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "web-1", "\x1b[31m", "\u202e", "\xff\xc0\x80", "<script>", "\u2028\u2029", "a\"b\\c", "\ufffd"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(max(limit, 0), 100)
		safe := wire.SafeText(s, limit)
		// A replacement character may itself be what was sent.
		if !harmless(strings.ReplaceAll(safe, "\ufffd", "")) {
			t.Fatalf("SafeText(%q) = %q", s, safe)
		}
		if limit > 0 && len(safe) > limit+16 {
			t.Fatalf("SafeText(%q, %d) has %d bytes", s, limit, len(safe))
		}
		j := string(wire.AppendJSONString(nil, s))
		if strings.ContainsAny(j, "<>&\u2028\u2029\u202e") || !harmless(strings.ReplaceAll(j, "\ufffd", "")) {
			t.Fatalf("AppendJSONString(%q) = %s", s, j)
		}
		var back string
		if err := json.Unmarshal([]byte(j), &back); err != nil {
			t.Fatalf("%s: %v", j, err)
		}
		// Every byte that is no UTF-8 becomes one replacement character.
		var want strings.Builder
		for _, r := range s {
			want.WriteRune(r)
		}
		if back != want.String() {
			t.Fatalf("%q comes back as %q", s, back)
		}
	})
}

func TestAppendJSON(t *testing.T) {
	kids := []wire.Field{{Name: "a", Type: wire.TypeUint, Num: math.MaxUint64}, {Name: "b<", Type: wire.TypeText, Bytes: []byte("x\"y")}}
	many := make([]wire.Field, 1000)
	for i := range many {
		many[i] = wire.Field{Type: wire.TypeUint, Num: uint64(i)}
	}
	neg := int64(-5)
	fields := []wire.Field{
		{Name: "none", Type: wire.TypeNone},
		{Name: "int", Type: wire.TypeInt, Num: uint64(neg)},
		{Name: "time", Type: wire.TypeTime, Num: 1 << 63},
		{Name: "enum", Type: wire.TypeEnum, Num: 3, Note: "three"},
		{Name: "yes", Type: wire.TypeBool, Num: 1},
		{Name: "float", Type: wire.TypeFloat, Num: math.Float64bits(1.5)},
		{Name: "nan", Type: wire.TypeFloat, Num: math.Float64bits(math.NaN())},
		{Name: "hex", Type: wire.TypeHex, Bytes: []byte{0, 255}},
		{Name: "blob", Type: wire.TypeBlob, Bytes: []byte("abc")},
		{Name: "record", Type: wire.TypeRecord, Count: 2, Make: wire.Fixed(kids)},
		{Name: "pair", Type: wire.TypePair, Count: 2, Make: wire.Fixed(many[1:3])},
		{Name: "empty", Type: wire.TypeMap},
	}
	want := `{"none":null,"int":-5,"time":-9223372036854775808,"enum":3,"yes":true,"float":1.5,"nan":"NaN","hex":"00ff",` +
		`"blob":{"length":3,"sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},` +
		`"record":{"a":18446744073709551615,"b\u003c":"x\"y"},"pair":[1,2],"empty":{}}`
	if got := string(wire.AppendJSON(nil, fields, sha256.Sum256)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	list := wire.Field{Type: wire.TypeList, Count: len(many), Make: wire.Fixed(many)}
	var back []int
	if err := json.Unmarshal(wire.AppendJSONValue(nil, &list, sha256.Sum256), &back); err != nil || len(back) != 1000 || back[999] != 999 {
		t.Errorf("%d numbers of a list, %v", len(back), err)
	}
	if n := len(list.Children(nil, 998, 10)) + len(list.Children(nil, 1000, 1)) + len(list.Children(nil, -1, 1)); n != 2 {
		t.Errorf("%d children at the end", n)
	}
	f := wire.Finding{Kind: "gap", Connection: "c", File: "f", Offset: 5, At: 7, Length: 2, Field: "seq", Want: "1", Got: "2", Message: "m<", Cost: "x"}
	const finding = `{"kind":"gap","connection":"c","file":"f","offset":5,"at":7,"length":2,"field":"seq","expected":"1","found":"2","message":"m\u003c","cost":"x"}`
	if got := string(f.AppendJSON(nil)); got != finding {
		t.Errorf("\n got %s\nwant %s", got, finding)
	}
	f = wire.Finding{Kind: "cut"}
	if got := string(f.AppendJSON(nil)); got != `{"kind":"cut","connection":"","file":"","offset":0,"message":""}` {
		t.Error(got)
	}
}

// TestMany: the nouns that reports count.
func TestMany(t *testing.T) {
	for _, c := range []struct {
		n         int64
		one, want string
	}{
		{0, "loss", "0 losses"}, {1, "loss", "1 loss"}, {1234, "loss", "1,234 losses"}, {2, "index entry", "2 index entries"},
		{2, "try", "2 tries"}, {1, "try", "1 try"}, {3, "key", "3 keys"}, {2, "batch", "2 batches"}, {2, "prefix", "2 prefixes"},
		{999, "byte", "999 bytes"}, {-1, "byte", "-1 bytes"}, {-1000, "byte", "-1,000 bytes"}, {123456, "byte", "123,456 bytes"},
		{math.MaxInt64, "row", "9,223,372,036,854,775,807 rows"}, {math.MinInt64, "row", "-9,223,372,036,854,775,808 rows"},
	} {
		if got := wire.Count(c.n, c.one); got != strings.ReplaceAll(c.want, ",", "") {
			t.Errorf("%q, want %q without commas", got, c.want)
		}
		if got := wire.Many(c.n, c.one); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
