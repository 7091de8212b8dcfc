package filter

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"wiretape/wire"
)

var kinds = []string{"Rows", "Segment"}

func TestParseTime(t *testing.T) {
	b, err := os.ReadFile("testdata/times.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("%q has no tab", line)
		}
		n++
		got := "none"
		if v, ok := ParseTime(text); ok {
			got = strconv.FormatInt(v, 10)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if n < 60 {
		t.Errorf("%d vectors", n)
	}
}

func TestParseNumber(t *testing.T) {
	for s, want := range map[string]string{
		"0": "0", "10": "10", "010": "10", "0x10": "16", "0X1f": "31", "4K": "4096", "4k": "4096", "2M": "2097152", "1G": "1073741824", "-5": "-5", "-2K": "-2048",
		"9223372036854775807": "9223372036854775807", "8589934591G": "9223372035781033984", "0x7fffffffffffffff": "9223372036854775807",
		"9223372036854775808": "none", "8589934592G": "none", "17179869184G": "none", "18446744073709551616": "none",
		"0b11": "none", "0o17": "none", "1_0": "none", "0x": "none", "0x1K": "none", "0xg": "none", "K": "none", "": "none", "-": "none", "--1": "none", "+1": "none", "1.5K": "none", "1e3": "none",
	} {
		got := "none"
		if v, ok := parseNumber(s); ok {
			got = strconv.FormatInt(v, 10)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", s, got, want)
		}
	}
}

// TestSourceNumbers: a number without quotes is a source's, all 64 bits of it,
// and what is quoted is always a label.
func TestSourceNumbers(t *testing.T) {
	big := Subject{Info: wire.Info{HasSource: true, Source: 1<<64 - 1, Label: "2"}}
	two := Subject{Info: wire.Info{HasSource: true, Source: 2, Label: "18446744073709551615"}}
	for expr, want := range map[string][2]bool{
		"source == 18446744073709551615":   {true, false},
		`source == "18446744073709551615"`: {false, true},
		"source == 2":                      {false, true},
		`source == "2"`:                    {true, false},
		"source > 9223372036854775808":     {true, false},
		"source < 3":                       {false, true},
		"source != 2":                      {true, false},
		`source != "2"`:                    {false, true},
	} {
		e, wrong := Parse(expr, kinds)
		if wrong != nil {
			t.Errorf("%s: %v", expr, wrong)
			continue
		}
		if got := [2]bool{e.Match(&big), e.Match(&two)}; got != want {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}

// TestQuoted: any text is found by its quoted form, and by no other.
func TestQuoted(t *testing.T) {
	for _, name := range []string{"", "cpu", `a"b\c`, "a\nb\tc\rd\x00e\x7f", "\u202egnp.exe", "\xff\xfeab\xc3", "日本語 😀", `\u0041`, `\`, "\u2028", strings.Repeat("long ", 1000)} {
		quoted := string(AppendQuoted(nil, name))
		for i := range len(quoted) {
			if quoted[i] < 0x20 || quoted[i] == 0x7f {
				t.Errorf("%q holds a control character", quoted)
			}
		}
		e, wrong := Parse("stream == "+quoted, kinds)
		if wrong != nil {
			t.Errorf("%s: %v", quoted, wrong)
			continue
		}
		s := Subject{Streams: func(is func([]byte) bool) bool { return is([]byte(name)) }}
		other := Subject{Streams: func(is func([]byte) bool) bool { return is([]byte(name + "\x00")) }}
		if !e.Match(&s) || e.Match(&other) {
			t.Errorf("%s takes %v, another %v", quoted, e.Match(&s), e.Match(&other))
		}
	}
	for text, want := range map[string]string{`\x41\u0042\u{43}\u{1F600}`: "ABC\U0001F600", `\"\\\n\t`: "\"\\\n\t", `\xff`: "\xff"} {
		e, wrong := Parse(`summary == "`+text+`"`, kinds)
		if wrong != nil || !e.Match(&Subject{Info: wire.Info{Summary: want}}) {
			t.Errorf("%s is not %q: %v", text, want, wrong)
		}
	}
	for _, text := range []string{`\q`, `\x4`, `\xgg`, `\u123`, `\u{}`, `\u{110000}`, `\u{12`, `\ud800`, `\u{0000041}`, `\é`} {
		expr := `stream == "` + text + `"`
		if _, wrong := Parse(expr, kinds); wrong == nil || !strings.Contains(wrong.Message, "no such escape") || expr[wrong.From] != '\\' {
			t.Errorf("%s: %v", text, wrong)
		}
	}
}

func TestParts(t *testing.T) {
	for expr, want := range map[string]string{
		"kind == Rows":                                           "kind == Rows",
		" not kind == Rows ":                                     "not kind == Rows",
		"not not kind == Rows":                                   "kind == Rows",
		"kind=Rows && size>4K":                                   "kind == Rows|size > 4K",
		"finding and (kind != Rows)":                             "finding|kind != Rows",
		"not (finding)":                                          "not finding",
		"kind == Rows or finding":                                "nothing",
		"kind == Rows and finding or source":                     "nothing",
		"source and finding or kind == Rows and size > 1":        "nothing",
		"(kind == Rows or finding) and size > 1":                 "{(kind == Rows or finding)}|size > 1",
		"size > 1 and (source == 2 and finding)":                 "size > 1|{(source == 2 and finding)}",
		"not (source == 2 and finding)":                          "{not (source == 2 and finding)}",
		`summary ~ "kind == Rows and finding" and time > 5`:      "summary ~ kind == Rows and finding|time > 5",
		`source == 2 and stream == "a\"b"`:                       `source == 2|stream == a"b`,
		"arrival >= 2023-01-01 and not arrival and offset < 0x5": "arrival >= 2023-01-01|not arrival|offset < 0x5",
	} {
		e, wrong := Parse(expr, kinds)
		if wrong != nil {
			t.Errorf("%s: %v", expr, wrong)
			continue
		}
		var got []string
		for _, p := range e.Parts() {
			text := "{" + expr[p.From:p.To] + "}"
			if p.Field != "" {
				text = strings.TrimSpace(p.Field + " " + p.Op + " " + p.Value)
				if p.Not {
					text = "not " + text
				}
			}
			got = append(got, text)
		}
		if got == nil {
			got = []string{"nothing"}
		}
		if g := strings.Join(got, "|"); g != want {
			t.Errorf("%s is %s, want %s", expr, g, want)
		}
	}
	e, _ := Parse("size > 1 and  not finding ", kinds)
	if p := e.Parts(); p[0].From != 0 || p[0].To != 8 || p[1].From != 14 || p[1].To != 25 {
		t.Errorf("places %+v", p)
	}
}

func TestArrivals(t *testing.T) {
	expr := `not arrival >= "2023-11-14 22:13:20Z" or arrival<5`
	e, wrong := Parse(expr, kinds)
	if wrong != nil {
		t.Fatal(wrong)
	}
	a := e.Arrivals()
	if len(a) != 2 || a[0].Op != ">=" || a[0].Time != 1700000000000000000 || a[1].Op != "<" || a[1].Time != 5 {
		t.Fatalf("%+v", a)
	}
	if got := expr[a[0].From:a[0].To] + "|" + expr[a[1].From:a[1].To]; got != `arrival >= "2023-11-14 22:13:20Z"|arrival<5` {
		t.Errorf("places: %s", got)
	}
	if !e.Match(&Subject{Offset: 3}) {
		t.Error("a comparison takes rows before it was told which")
	}
	e.SetArrivals(0, [][2]int64{{0, 10}, {20, 30}, {30, 40}})
	e.SetArrivals(1, [][2]int64{{25, 26}})
	for off, want := range map[int64]bool{0: false, 9: false, 10: true, 19: true, 20: false, 24: false, 25: true, 26: false, 30: false, 39: false, 40: true} {
		if got := e.Match(&Subject{Offset: off}); got != want {
			t.Errorf("offset %d is %v", off, got)
		}
	}
}

func TestMatch(t *testing.T) {
	s := Subject{Number: 7, Offset: 1000, Size: 4096, Type: "frame", Name: "Rows", HasKind: true, Kind: 3,
		Info:     wire.Info{HasSource: true, Source: 2, Label: "Host-A", Stream: "cpu usage", HasTime: true, Time: 1e9, Summary: "seq 5"},
		Findings: []wire.Finding{{Kind: "gap", Message: "3 intervals were not received"}}}
	junk := Subject{Number: 8, Type: "junk"}
	for expr, want := range map[string][2]bool{
		"number == 7":                  {true, false},
		"number != 7":                  {false, true},
		"size >= 4K and size < 0x1001": {true, false},
		"kind == rows":                 {true, false},
		"kind == 3":                    {true, false},
		"kind != Segment":              {true, true},
		"kind ~ ow":                    {true, false},
		"kind > 2":                     {true, false},
		"type = junk":                  {false, true},
		"source == Host-A":             {true, false},
		"source == host-a":             {false, false},
		"source ~ host":                {true, false},
		"source !~ host":               {false, true},
		"source == 2":                  {true, false},
		"source != 2":                  {false, true},
		"source < 3":                   {true, false},
		"source":                       {true, false},
		`stream == "cpu usage"`:        {true, false},
		"time > 1970-01-01 and time <= 1000000000": {true, false},
		"time":                                  {true, false},
		"finding":                               {true, false},
		"finding == gap":                        {true, false},
		"finding == interval":                   {false, false},
		"finding ~ Intervals":                   {true, false},
		"finding != gap":                        {false, true},
		"not finding":                           {false, true},
		"!(number == 7 || number == 8)":         {false, false},
		"number = 7 or number = 8 and size > 1": {true, false},
		"summary ~ \"SEQ 5\"":                   {true, false},
	} {
		e, wrong := Parse(expr, kinds)
		if wrong != nil {
			t.Errorf("%s: %v", expr, wrong)
			continue
		}
		if got := [2]bool{e.Match(&s), e.Match(&junk)}; got != want {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	for expr, want := range map[string][3]bool{
		"kind == 3 and size > 1": {}, "source": {true}, "finding": {false, false, true}, "time or finding": {true, false, true},
		"size > 1 or summary ~ x": {true, true}, "stream": {true},
	} {
		e, wrong := Parse(expr, kinds)
		if wrong != nil {
			t.Fatal(wrong)
		}
		if got := [3]bool{e.NeedsInfo(), e.NeedsSummary(), e.NeedsFindings()}; got != want {
			t.Errorf("%s needs %v, want %v", expr, got, want)
		}
	}
}

func TestWrong(t *testing.T) {
	for expr, want := range map[string]string{
		"":                               "expected a field",
		"colour == 3":                    "there is no field colour",
		"size ==":                        "expected a value",
		"size == big":                    "expected a number",
		"size ~ 3":                       "is no text",
		"stream < 3":                     "has no order",
		"kind == Nothing":                "no kind of that name; there are Rows, Segment",
		"kind > Rows":                    "a kind's number",
		"time > yesterday":               "expected a time",
		"(size > 1":                      "expected ) here",
		"size > 1 )":                     "expected && or ||",
		"size > 1 size":                  "expected && or ||",
		"size & 1":                       "expected an operator",
		`stream == "open`:                "no closing quote",
		"size > 99999999999999999G":      "expected a number",
		"size == 0b11":                   "expected a number",
		"time > 2023-02-31":              "expected a time",
		"arrival > 2023-02-31":           "expected a time",
		"arrival == 5":                   "compared with a time by",
		"arrival ~ 5":                    "compared with a time by",
		strings.Repeat("(", 100):         "nested too deep",
		strings.Repeat("!", MaxLength+1): "has 16385 bytes, of which it may have 16384",
	} {
		e, wrong := Parse(expr, kinds)
		if wrong == nil || e != nil || !strings.Contains(wrong.Message, want) {
			t.Errorf("%.40s: %v, want %q", expr, wrong, want)
			continue
		}
		if wrong.From < 0 || wrong.To < wrong.From || wrong.To > len(expr) {
			t.Errorf("%.40s: place %d to %d of %d", expr, wrong.From, wrong.To, len(expr))
		}
	}
}

// FuzzParse: any text is an expression that matches, or an error with a place in it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"kind == Rows and not finding", `stream == "\x41\u{42}\q"`, "not (arrival > 5 or source) and kind", `stream ~ "a\"b" || size > 4K`, "((time >= 2023-01-01))", "!!!", "source !~ \xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, wrong := Parse(s, kinds)
		if wrong != nil {
			if e != nil || wrong.From < 0 || wrong.To < wrong.From || wrong.To > len(s) {
				t.Fatalf("%q: %+v", s, wrong)
			}
			return
		}
		e.Match(&Subject{})
		at := 0
		for _, p := range e.Parts() {
			if p.From < at || p.To <= p.From || p.To > len(s) {
				t.Fatalf("%q: part %+v", s, p)
			}
			at = p.To
		}
	})
}
