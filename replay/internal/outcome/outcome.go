// Package outcome is what the reports of all rebuilds share: the verdict, the
// exit code that follows from it, and the list of findings with its limits.
package outcome

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"wiretape/capture"
	"wiretape/internal/jsontext"
	"wiretape/wire"
)

// Verdict is what a rebuild comes to.
type Verdict string

const (
	// Clean: all of it, nothing to report. Exit code 0.
	Clean Verdict = "clean"
	// Found: finished, and something is missing or was found. Exit code 3.
	Found Verdict = "findings"
	// Failed: there is no output. Exit code 1.
	Failed Verdict = "failed"
)

const (
	// MaxFindings and MaxOfKind bound the list of findings; all are counted.
	MaxFindings = 10_000
	MaxOfKind   = 1_000
	// textFindings is how many findings of one kind the text shows.
	textFindings = 5
)

// Outcome opens every report.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	// Error is why the rebuild failed, "" otherwise.
	Error string `json:"error,omitempty"`
}

// Settle sets the verdict by the error that the rebuild ended with, nil for
// none, and by what was found.
func (o *Outcome) Settle(err error, l *List) {
	switch {
	case err != nil:
		o.Verdict, o.Error = Failed, err.Error()
	case l.open():
		o.Verdict = Found
	default:
		o.Verdict = Clean
	}
}

// ExitCode is the exit code of the commands for the verdict.
func (o *Outcome) ExitCode() int {
	switch o.Verdict {
	case Clean:
		return 0
	case Found:
		return 3
	}
	return 1
}

// List is the findings of a report. FindingsByKind counts all of them; Findings
// lists them up to the limits, and FindingsOmitted is how many are only counted.
type List struct {
	FindingsByKind map[string]int64 `json:"findings_by_kind"`
	// MadeGood is how many of each kind tell of something that other captured
	// data holds: nothing is missing by these.
	MadeGood        map[string]int64 `json:"findings_made_good,omitempty"`
	FindingsOmitted int64            `json:"findings_omitted,omitempty"`
	Findings        []wire.Finding   `json:"findings"`
}

// open says that there is a finding that was not made good.
func (l *List) open() bool {
	for kind, n := range l.FindingsByKind {
		if n > l.MadeGood[kind] {
			return true
		}
	}
	return false
}

// Refused notes the findings of a connection of which nothing can be read, so that
// nobody knows what it is, and says whether it is one.
func (l *List) Refused(c *capture.Connection) bool {
	if c.Refused == nil {
		return false
	}
	for _, f := range c.Findings {
		l.Note(f)
	}
	return true
}

// NewList is an empty list, whose members are empty and not null in JSON.
func NewList() List {
	return List{FindingsByKind: map[string]int64{}, Findings: []wire.Finding{}}
}

// Note counts a finding, and lists it within the limits.
func (l *List) Note(f wire.Finding) {
	n := l.FindingsByKind[f.Kind]
	l.FindingsByKind[f.Kind] = n + 1
	if n >= MaxOfKind || len(l.Findings) >= MaxFindings {
		l.FindingsOmitted++
		return
	}
	l.Findings = append(l.Findings, f)
}

// Sort orders the list by connection, offset, kind and message.
func (l *List) Sort() {
	slices.SortStableFunc(l.Findings, func(a, b wire.Finding) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.Offset, b.Offset),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Message, b.Message))
	})
}

// Text writes the findings for people, the first few of each kind.
func (l *List) Text(b *bufio.Writer) {
	if len(l.FindingsByKind) > 0 {
		fmt.Fprintln(b, "findings")
	}
	for _, kind := range slices.Sorted(maps.Keys(l.FindingsByKind)) {
		n := l.FindingsByKind[kind]
		fmt.Fprintf(b, "  %s: %d\n", kind, n)
		shown := int64(0)
		for _, f := range l.Findings {
			if f.Kind != kind || shown == textFindings {
				continue
			}
			shown++
			fmt.Fprintf(b, "    %s\n", f.Line())
			if cost := f.CostLine(); cost != "" {
				fmt.Fprintf(b, "      %s\n", cost)
			}
		}
		if n > shown {
			fmt.Fprintf(b, "    … and %d more, with --json\n", n-shown)
		}
	}
}

// UTC is a time in nanoseconds since 1970, for people.
func UTC(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.999999999Z") }

// JSON is a report as one JSON object on one line, without a line feed. A report
// holds nothing that does not encode.
func JSON(report any) []byte {
	b, err := jsontext.Marshal(report, "")
	if err != nil {
		panic("a report that is no JSON: " + err.Error())
	}
	return b
}
