package outcome

import (
	"bufio"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"wiretape/wire"
)

// TestLimits: every finding counts, and the list keeps to both limits.
func TestLimits(t *testing.T) {
	l := NewList()
	for kind := range 12 {
		for range MaxOfKind + 5 {
			l.Note(wire.Finding{Kind: "kind-" + strconv.Itoa(kind)})
		}
	}
	if n := len(l.Findings); n != MaxFindings {
		t.Errorf("%d listed, want %d", n, MaxFindings)
	}
	if want := int64(12*(MaxOfKind+5) - MaxFindings); l.FindingsOmitted != want {
		t.Errorf("%d omitted, want %d", l.FindingsOmitted, want)
	}
	for kind, n := range l.FindingsByKind {
		if n != MaxOfKind+5 {
			t.Errorf("%s counted %d times", kind, n)
		}
		of := func(f wire.Finding) bool { return f.Kind == kind }
		if i := slices.IndexFunc(l.Findings, of); i >= 0 {
			if n := len(slices.DeleteFunc(slices.Clone(l.Findings), func(f wire.Finding) bool { return !of(f) })); n != MaxOfKind {
				t.Errorf("%s listed %d times", kind, n)
			}
		}
	}
}

// TestSettle: the verdict, its exit code, and the JSON that the contract has.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		err   error
		found bool
		exit  int
		json  string
	}{
		{nil, false, 0, `{"verdict":"clean","findings_by_kind":{},"findings":[]}`},
		{nil, true, 3, `{"verdict":"findings","findings_by_kind":{"gap":1},"findings":[{"kind":"gap","connection":"c","file":"","offset":7,"message":"\u003cm\u003e"}]}`},
		{errors.New("no room"), true, 1, `{"verdict":"failed","error":"no room","findings_by_kind":{"gap":1},"findings":[{"kind":"gap","connection":"c","file":"","offset":7,"message":"\u003cm\u003e"}]}`},
	} {
		var r struct {
			Outcome
			List
		}
		r.List = NewList()
		if c.found {
			r.Note(wire.Finding{Kind: "gap", Connection: "c", Offset: 7, Message: "<m>"})
		}
		r.Settle(c.err, &r.List)
		if got := string(JSON(r)); got != c.json || r.ExitCode() != c.exit {
			t.Errorf("exit code %d, %s\nwant %d, %s", r.ExitCode(), got, c.exit, c.json)
		}
	}
}

// TestText: the first few of each kind with place, expectation and cost, in the
// order of kinds, and nothing of it reaches a terminal as it is.
func TestText(t *testing.T) {
	l := NewList()
	for i := range textFindings + 2 {
		l.Note(wire.Finding{Kind: "gap", Connection: "c", File: "f\x1b", Offset: int64(i), Want: "1", Got: "2", Message: "a gap", Cost: "rows"})
	}
	l.Note(wire.Finding{Kind: "cut", Message: "the end"})
	var s strings.Builder
	b := bufio.NewWriter(&s)
	l.Text(b)
	b.Flush()
	got := s.String()
	if !strings.HasPrefix(got, "findings\n  cut: 1\n    the end\n  gap: 7\n") || strings.Contains(got, "\x1b") ||
		strings.Count(got, ": a gap (expected 1, found 2)\n      costs: rows\n") != textFindings || !strings.HasSuffix(got, "    … and 2 more, with --json\n") {
		t.Error(got)
	}
}
