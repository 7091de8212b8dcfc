package main

import (
	"strings"

	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/replay"
)

// selectFlags are the flags that ask for a part of the input.
type selectFlags struct {
	sources, labels, streams []string
	from, until              string
}

func (f *selectFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.sources, "source", nil, "only the source with this `UUID`; may be repeated")
	fs.StringArrayVar(&f.labels, "label", nil, "only sources that have this label, `K=V`; all that are given")
	fs.StringArrayVar(&f.streams, "stream", nil, "only the stream `NAME`; may be repeated")
	fs.StringVar(&f.from, "from", "", "only from `WHEN` on: a time (2026-01-31T12:00:00Z, ts:NANOSECONDS) or an offset in the connection (a number)")
	fs.StringVar(&f.until, "until", "", "only before `WHEN`")
}

func (f *selectFlags) selection() (replay.Selection, error) {
	s := replay.Selection{Sources: f.sources, Streams: f.streams}
	for _, l := range f.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return s, cli.Usagef("--label takes K=V, not %q", l)
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[k] = v
	}
	for _, b := range []struct {
		flag, text string
		to         **replay.Bound
	}{{"--from", f.from, &s.From}, {"--until", f.until, &s.Until}} {
		if b.text == "" {
			continue
		}
		v, err := replay.ParseBound(b.text)
		if err != nil {
			return s, cli.Usagef("%s %v", b.flag, err)
		}
		*b.to = v
	}
	return s, nil
}
