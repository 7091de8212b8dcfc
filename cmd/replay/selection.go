package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/replay"
	"wiretape/replay/archive"
)

// selectionFlags name a part of what there is.
type selectionFlags struct {
	sources, labels, streams []string
	from, until              timeFlag
}

func (f *selectionFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.sources, "source", nil, "only the source with this `UUID` or its first characters; may be repeated")
	fs.StringArrayVar(&f.labels, "label", nil, "only sources with the label `K=V`; repeated, all of them")
	fs.StringArrayVar(&f.streams, "stream", nil, "only the stream `NAME`; may be repeated")
	fs.Var(&f.from, "from", "from this time on")
	fs.Var(&f.until, "until", "up to this time, included")
}

func (f *selectionFlags) selection() (archive.Selection, error) {
	s := archive.Selection{Sources: f.sources, Streams: f.streams, From: f.from.at, Until: f.until.at}
	for _, l := range f.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return s, cli.Usagef("--label %q: write it as K=V", l)
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[k] = v
	}
	if f.from.at != nil && f.until.at != nil && *f.from.at > *f.until.at {
		return s, cli.Usagef("--from is after --until")
	}
	return s, nil
}

// timeFlag is a point in time.
type timeFlag struct {
	at   *int64
	text string
}

// timeForms are the ways in which a time is written, beside nanoseconds.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02", "2006-01", "2006"}

// Set parses a time; one without a zone is UTC.
func (f *timeFlag) Set(v string) error {
	f.text = v
	for _, form := range timeForms {
		if t, err := time.Parse(form, v); err == nil {
			if t.Year() < 1678 || t.Year() > 2261 {
				return fmt.Errorf("%q is out of what nanoseconds since 1970 can say", v)
			}
			n := t.UnixNano()
			f.at = &n
			return nil
		}
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		f.at = &n
		return nil
	}
	if strings.HasPrefix(v, "offset:") {
		return fmt.Errorf("%q is no time, and the offsets of an archive's stream say nothing of the archive; write a time, such as 2026-11-29T18:00:00Z", v)
	}
	return fmt.Errorf("%q is no time; write it as 2026-11-29T18:00:00Z or in nanoseconds since 1970", v)
}

func (f *timeFlag) String() string { return f.text }

// Type names the value in help.
func (f *timeFlag) Type() string { return "TIME" }

// rangeFlags are selectionFlags whose times may also be offsets in the
// connections of a capture.
type rangeFlags struct {
	selectionFlags
	fromOffset, untilOffset *int64
}

func (f *rangeFlags) register(fs *pflag.FlagSet) {
	f.selectionFlags.register(fs)
	for name, b := range map[string]struct {
		at  *timeFlag
		off **int64
	}{"from": {&f.from, &f.fromOffset}, "until": {&f.until, &f.untilOffset}} {
		flag := fs.Lookup(name)
		flag.Usage += "; offset:N is a frame's offset in its connection"
		flag.Value = &boundFlag{b.at, b.off}
	}
}

func (f *rangeFlags) selection() (replay.Selection, error) {
	s, err := f.selectionFlags.selection()
	return replay.Selection{Selection: s, FromOffset: f.fromOffset, UntilOffset: f.untilOffset}, err
}

// boundFlag is a point in time or an offset.
type boundFlag struct {
	*timeFlag
	off **int64
}

// Set parses offset:N, or a time.
func (f *boundFlag) Set(v string) error {
	text, ok := strings.CutPrefix(v, "offset:")
	if !ok {
		return f.timeFlag.Set(v)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no offset; write it as offset:1234", v)
	}
	f.text, *f.off = v, &n
	return nil
}
