package record

import (
	"errors"
	"time"
)

// The verdicts of a report.
const (
	VerdictClean    = "clean"
	VerdictFindings = "findings"
	VerdictFailed   = "failed"
)

// Ended is a connection that ended, in a report.
type Ended struct {
	Recorded
	// Transport is the transport's verdict in a sidecar's words, Detail the
	// same for people, Framing where the frames ended, "" where none are known.
	Transport string `json:"transport"`
	Detail    string `json:"detail"`
	Framing   string `json:"framing,omitempty"`
	// Findings in its bytes; the sidecars have them.
	Findings int64         `json:"findings"`
	Stalled  time.Duration `json:"stalled_ns"`
}

// Report is what a recorder did from Open to Close.
type Report struct {
	// Verdict is clean, findings (something is missing or was found) or failed.
	Verdict string `json:"verdict"`
	Status
	// Ended lists the newest connections; EndedOmitted counts those before.
	Ended        []Ended `json:"ended"`
	EndedOmitted int64   `json:"ended_omitted,omitempty"`
	Recovered    int     `json:"recovered"`
	// LimitsMet says that all limits of what to keep hold at the end; Held is how
	// many files stayed in spite of them because they were not shipped, HeldBytes
	// what they take.
	LimitsMet bool     `json:"limits_met"`
	Held      int      `json:"held_files"`
	HeldBytes int64    `json:"held_bytes"`
	Errors    []string `json:"errors"`
}

// Close waits for the command on sealed files, gives the directory back, and
// tells what was done. The error is the first that made recording fail.
func (r *Recorder) Close() (*Report, error) {
	r.hook.close()
	if r.hookCancel != nil {
		r.hookCancel()
	}
	kept := r.lastHold()
	err := r.dir.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.errs
	if r.failure != nil {
		errs = append([]error{r.failure}, errs...)
	}
	if err != nil && r.lenient.Load() {
		// The same trouble that a relay went on in spite of.
		r.log.Warn("the journal can't be closed", "err", err)
		r.missing = true
	} else if err != nil {
		errs = append(errs, err)
	}
	rep := &Report{Verdict: VerdictClean, Status: r.Status(), Ended: r.ended, EndedOmitted: r.omitted,
		Recovered: len(r.dir.Recovered()), LimitsMet: kept.Met, Held: kept.Held, HeldBytes: kept.HeldBytes, Errors: []string{}}
	if rep.Ended == nil {
		rep.Ended = []Ended{}
	}
	for _, e := range errs {
		rep.Errors = append(rep.Errors, e.Error())
	}
	if r.missing || !rep.LimitsMet || rep.NotRecorded > 0 || rep.HookFailures > 0 {
		rep.Verdict = VerdictFindings
	}
	if len(errs) > 0 {
		rep.Verdict = VerdictFailed
	}
	return rep, errors.Join(errs...)
}
