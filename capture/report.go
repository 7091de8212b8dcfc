package capture

import (
	"encoding/json"

	"wiretape/wire"
)

// The reports as JSON (docs/capture-format.md, Reports): findings are objects
// as wire.Finding.AppendJSON writes them.

// listed gives findings as a list that is never null in JSON.
func listed(fs []wire.Finding) []wire.Finding { return append([]wire.Finding{}, fs...) }

// verdictOf is the word for an exit code of 0 or 3.
func verdictOf(findings int) string {
	if findings == 0 {
		return "clean"
	}
	return "findings"
}

// MarshalJSON gives the report with its verdict, "clean" or "findings".
func (r *VerifyReport) MarshalJSON() ([]byte, error) {
	type plain VerifyReport
	return json.Marshal(struct {
		Verdict string `json:"verdict"`
		*plain
		Findings []wire.Finding `json:"findings"`
		Notes    []wire.Finding `json:"notes"`
	}{verdictOf(len(r.Findings)), (*plain)(r), listed(r.Findings), listed(r.Notes)})
}

// AllFindings are those of the inputs and of all connections.
func (i *Info) AllFindings() []wire.Finding {
	out := append([]wire.Finding(nil), i.Findings...)
	for k := range i.Connections {
		out = append(out, i.Connections[k].Findings...)
	}
	return out
}

// MarshalJSON gives the report with its verdict and all findings.
func (i *Info) MarshalJSON() ([]byte, error) {
	type plain Info
	all := i.AllFindings()
	return json.Marshal(struct {
		Verdict string `json:"verdict"`
		*plain
		Findings []wire.Finding `json:"findings"`
		Notes    []wire.Finding `json:"notes"`
	}{verdictOf(len(all)), (*plain)(i), listed(all), listed(i.Notes)})
}

// RecoverReport is what Recover did, as JSON: {"verdict", "recovered": […]}, and
// what a verb that fails gives, where it got no further.
type RecoverReport struct {
	Recovered []Recovered
	Err       error
	// Hint and ExitCode go with Err.
	Hint     string
	ExitCode int
}

// Torn is how many of the files have an end that is no whole frame.
func (r RecoverReport) Torn() (n int) {
	for _, x := range r.Recovered {
		if x.Tail != "" {
			n++
		}
	}
	return n
}

// MarshalJSON gives the report.
func (r RecoverReport) MarshalJSON() ([]byte, error) {
	type line struct {
		File       string `json:"file"`
		Connection string `json:"connection"`
		Start      int64  `json:"start"`
		Kept       int64  `json:"kept"`
		Whole      int64  `json:"whole"`
		Tail       string `json:"tail"`
		Rebuilt    bool   `json:"sidecar_rebuilt"`
	}
	out := make([]line, 0, len(r.Recovered))
	for _, x := range r.Recovered {
		out = append(out, line{x.File, x.Connection, x.Start, x.Kept, x.Whole, x.Tail, x.Rebuilt})
	}
	verdict, text := verdictOf(r.Torn()), ""
	if r.Err != nil {
		verdict, text = "failed", r.Err.Error()
	}
	return json.Marshal(struct {
		Verdict   string `json:"verdict"`
		Error     string `json:"error,omitempty"`
		Hint      string `json:"hint,omitempty"`
		ExitCode  int    `json:"exit_code,omitempty"`
		Recovered []line `json:"recovered"`
	}{verdict, text, r.Hint, r.ExitCode, out})
}

// String says it in one line.
func (r Recovered) String() string {
	s := r.File + ": kept " + wire.Count(r.Kept, "byte")
	if r.Rebuilt {
		s = r.File + ": the sidecar was made anew"
	}
	if r.Tail == "" {
		return s + ", all of them whole frames"
	}
	why := wire.SafeText(r.Tail, 40)
	switch r.Tail {
	case wire.KindZeroTail:
		why = "a zero-filled tail"
	case wire.KindCut:
		why = "a frame that is cut"
	case wire.KindLost:
		why = "bytes without frames"
	}
	return s + "; no whole frames are in the " + wire.Count(r.Kept-r.Whole, "byte") + " from " + wire.Itoa(r.Start+r.Whole) + " on: " + why
}
