package wire

import "testing"

// TestLine: a finding is one line with its place, names its file once, and says
// what was expected and found unless the message has said it.
func TestLine(t *testing.T) {
	for _, c := range []struct {
		f    Finding
		want string
	}{
		{Finding{Connection: "c1", File: "c1.cap", Offset: 315, At: 352, Message: "m"}, "c1.cap at 315, byte 352: m"},
		{Finding{Connection: "c1", Offset: 0, Message: "m"}, "c1 at 0: m"},
		{Finding{File: "x", Message: "m"}, "x: m"},
		{Finding{Message: "m"}, "m"},
		{Finding{Connection: "c1", File: "c1.cap", Offset: 7, Message: "c1.cap is short"}, "at 7: c1.cap is short"},
		{Finding{File: "x", Message: "x is no part"}, "x is no part"},
		{Cut(5, 3, 9, "frame"), "at 5: the stream ends inside a frame: got 3 of 9 bytes"},
		{Finding{Message: "the value is 2, not 0 or 1", Want: "0 or 1", Got: "2"}, "the value is 2, not 0 or 1"},
		{Finding{Message: "12 rows", Want: "1 rows", Got: "12"}, "12 rows (expected 1 rows)"},
		{Finding{Message: "other", Want: "a", Got: "b\x1b"}, "other (expected a, found b\\u001b)"},
		{Finding{Message: "other", Got: "b"}, "other (found b)"},
	} {
		if got := c.f.Line(); got != c.want {
			t.Errorf("%+v\n%q, want\n%q", c.f, got, c.want)
		}
	}
	if f := (Finding{Cost: "rows"}); f.CostLine() != "costs: rows" || (&Finding{}).CostLine() != "" {
		t.Error("the cost is told otherwise")
	}
}
