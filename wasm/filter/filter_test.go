package filter

import (
	"strings"
	"testing"

	"wiretape/wire"
)

var kinds = []string{"Rows", "Segment"}

func TestParseTime(t *testing.T) {
	for s, want := range map[string]int64{
		"1970-01-01":                     0,
		"1970-01-01T00:00:01Z":           1e9,
		"2023-11-14T22:13:20.123456789Z": 1700000000123456789,
		"2023-11-14T22:13":               1699999980000000000,
		"2000-02-29":                     951782400000000000,
		"1969-12-31T23:59:59.5Z":         -5e8,
		"-17":                            -17,
		"1700000000000000000":            1700000000000000000,
	} {
		if got, ok := ParseTime(s); !ok || got != want {
			t.Errorf("%s is %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "soon", "2023-13-01", "2023-00-01", "2023-01-32", "2023-01-01T24:00", "2023-01-01T1", "2023-01-01T00:00:00.0000000001Z", "2300-01-01", "1-1-1T"} {
		if v, ok := ParseTime(s); ok {
			t.Errorf("%s is %d", s, v)
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
		"":                         "expected a field",
		"colour == 3":              "there is no field colour",
		"size ==":                  "expected a value",
		"size == big":              "expected a number",
		"size ~ 3":                 "is no text",
		"stream < 3":               "has no order",
		"kind == Nothing":          "no kind of that name; there are Rows, Segment",
		"kind > Rows":              "a kind's number",
		"time > yesterday":         "expected a time",
		"(size > 1":                "expected ) here",
		"size > 1 )":               "expected && or ||",
		"size > 1 size":            "expected && or ||",
		"size & 1":                 "expected an operator",
		`stream == "open`:          "no closing quote",
		"size > 9999999999999999G": "expected a number",
		strings.Repeat("(", 100):   "nested too deep",
		strings.Repeat("!", 5000):  "longer than",
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
	for _, s := range []string{"kind == Rows and not finding", `stream ~ "a\"b" || size > 4K`, "((time >= 2023-01-01))", "!!!", "source !~ \xff"} {
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
	})
}
