package cli

// This file watches standard output: a verb whose results could not be written
// has failed, whatever it did, and says so; and one that fails before it has any
// says so there too, for who reads JSON.

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"wiretape/internal/jsontext"

	"github.com/spf13/pflag"
)

// results is standard output, with the first error of writing to it.
type results struct {
	w io.Writer
	*loss
}

type loss struct {
	mu    sync.Mutex
	err   error
	wrote bool
}

// Write writes; behind an error nothing more is, so that what came out is a
// beginning and not a text with holes.
func (r *results) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	r.wrote = r.wrote || len(p) > 0
	n, err := r.w.Write(p)
	r.err = err
	return n, err
}

// direct is bare that still notices what is lost.
func direct(w io.Writer) io.Writer {
	if r, ok := w.(*results); ok {
		return &results{bare(r.w), r.loss}
	}
	return bare(w)
}

// lost is why something was not written. A reader that went away wanted no more:
// that is no loss.
func (r *results) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.err, syscall.EPIPE) {
		return nil
	}
	return r.err
}

// lostError is the error of a verb whose results were lost: its own, if it has
// failed anyway.
func lostError(err, lost error) error {
	var exit *ExitError
	if err != nil && !errors.Is(err, lost) && !(errors.As(err, &exit) && exit.Code == Findings) {
		return err
	}
	return fmt.Errorf("the results could not be written to standard output: %w", lost)
}

// failure is what a verb with --json prints when it fails without a report of
// its own: a documented contract (docs/report.md).
type failure struct {
	Verdict  string `json:"verdict"`
	Error    string `json:"error"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

// tell prints the failure of a verb that was asked for JSON, unless a report
// that it wrote has it already.
func (r *results) tell(fs *pflag.FlagSet, lines bool, err error, code int) error {
	asked := fs.Lookup("json")
	if code != Failed && code != Usage || asked == nil || asked.Value.String() != "true" || r.wrote && !lines {
		return nil
	}
	f := failure{Verdict: "failed", Error: err.Error(), ExitCode: code}
	var hint *HintError
	if errors.As(err, &hint) {
		f.Hint = hint.Hint
	}
	return jsontext.Write(r, f, "")
}
