package cli

// This file has the flag values that pflag has not: sizes, and words of a list.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cheggaaa/pb/v3"
	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// Size is a number of bytes, given as 1048576, 64MiB or 64MB.
type Size int64

// Set parses a size.
func (s *Size) Set(v string) error {
	n, err := humanize.ParseBytes(v)
	if err != nil || n > 1<<62 {
		return fmt.Errorf("%q is no size; write it as 1048576, 64MiB or 64MB", v)
	}
	*s = Size(n)
	return nil
}

// String is the size in powers of 1024, "64MiB".
func (s *Size) String() string {
	if *s == 0 {
		return "0"
	}
	return strings.ReplaceAll(humanize.IBytes(uint64(*s)), " ", "")
}

// Type names the value in help.
func (s *Size) Type() string { return "SIZE" }

// Word is one of a list of words.
type Word struct {
	Value string
	Words []string
}

// Set takes a word of the list.
func (w *Word) Set(v string) error {
	if !slices.Contains(w.Words, v) {
		return fmt.Errorf("%q is none of %s", v, strings.Join(w.Words, ", "))
	}
	w.Value = v
	return nil
}

// String is the word that is set.
func (w *Word) String() string { return w.Value }

// Type names the value in help.
func (w *Word) Type() string { return strings.Join(w.Words, "|") }

// IsTerminal says that w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Bar is progress in bytes on a terminal, with rate and time left; elsewhere it
// is nothing.
type Bar struct{ bar *pb.ProgressBar }

// NewBar starts a bar on w. A total of 0 is not known yet.
func NewBar(w io.Writer, what string, total int64) *Bar {
	if !IsTerminal(w) {
		return &Bar{}
	}
	b := pb.New64(total).SetWriter(w).Set(pb.Bytes, true)
	b.SetTemplateString(`{{string . "what"}} {{counters . }} {{bar . }} {{percent . }} {{speed . }} {{rtime . "%s left"}}`)
	b.Set("what", what)
	return &Bar{b.Start()}
}

// Set moves the bar.
func (b *Bar) Set(done, total int64) {
	if b.bar != nil {
		b.bar.SetTotal(total).SetCurrent(done)
	}
}

// Done takes the bar off the terminal.
func (b *Bar) Done() {
	if b.bar != nil {
		b.bar.Set(pb.CleanOnFinish, true).Finish()
	}
}
