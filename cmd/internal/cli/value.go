package cli

// This file has the flag values that pflag has not: sizes, and words of a list.

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
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

// durationPlace is the placeholder of durations in help.
const durationPlace = "DURATION"

// Duration is a time.Duration, given as 90s, 15m, 12h, 30d or 2w.
type Duration time.Duration

// DurationVar registers a flag for a duration.
func DurationVar(fs *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var((*Duration)(d), name, usage)
}

// Set parses a duration.
func (d *Duration) Set(v string) error {
	p, err := ParseDuration(v)
	if err == nil {
		*d = Duration(p)
	}
	return err
}

// String is the duration without parts that are zero: 2m, not 2m0s.
func (d *Duration) String() string {
	s := time.Duration(*d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Type names the value in help.
func (d *Duration) Type() string { return durationPlace }

// ParseDuration reads what time.ParseDuration does, and days (d, of 24 hours)
// and weeks (w).
func ParseDuration(v string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is no duration; write it as 90s, 15m, 12h, 30d or 2w", v)
	rest, negative := strings.CutPrefix(v, "-")
	if rest == "0" {
		return 0, nil
	}
	var sum time.Duration
	for first := true; first || rest != ""; first = false {
		n := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if n <= 0 {
			return 0, wrong
		}
		unit := rest[n:]
		if m := strings.IndexFunc(unit, func(r rune) bool { return r >= '0' && r <= '9' || r == '.' }); m >= 0 {
			unit = unit[:m]
		}
		times := time.Duration(1)
		part := rest[:n] + unit
		switch unit {
		case "d":
			part, times = rest[:n]+"h", 24
		case "w":
			part, times = rest[:n]+"h", 7*24
		}
		p, err := time.ParseDuration(part)
		if err != nil || p > (math.MaxInt64-sum)/times {
			return 0, wrong
		}
		sum += p * times
		rest = rest[n+len(unit):]
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}

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

// terminalOf is where what is written to w ends up.
func terminalOf(w io.Writer) io.Writer {
	w = bare(w)
	if o, ok := w.(outletWriter); ok {
		return bare(o.w)
	}
	return w
}

// IsTerminal says that w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := terminalOf(w).(*os.File)
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
	b := pb.New64(total).SetWriter(bare(w)).Set(pb.Bytes, true)
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
