package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/replay/play"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// speed is a factor of the recorded timing.
type speed float64

func (s *speed) Set(v string) error {
	if v == "max" {
		*s = 0
		return nil
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f > 0 && f <= 1e6) {
		return fmt.Errorf("%q is no speed; write 1 for the recorded timing, 0.5, 10 or max", v)
	}
	*s = speed(f)
	return nil
}

func (s *speed) String() string {
	if *s == 0 {
		return "max"
	}
	return strconv.FormatFloat(float64(*s), 'g', -1, 64)
}

func (s *speed) Type() string { return "FACTOR|max" }

var playCommand = &cli.Command{
	Name:  "play",
	Args:  "INPUT… --to ENDPOINT | --listen ENDPOINT",
	Short: "send the recorded bytes to a live subscriber",
	Long: `Sends each recorded connection over a connection of its own, one after the other,
byte for byte: with the recorded timing, at another speed, or as fast as the
subscriber takes it. A subscriber is dialled (--to tcp://host:port, unix://path,
- for standard output) or connects in (--listen tcp://, unix:// or
http://host:port/path).

Files from the middle of a connection get the preamble and the handshakes that
their context needs; where it is not known they are refused. --protocol raw sends
any stream as it is. Of a relay's two directions, choose one with --connection.` + inputHelp,
	Examples: `# serve a recording to the next subscriber, as fast as it goes
replay play capture/ --listen tcp://127.0.0.1:7000 --speed max
# the same as a long-lived HTTP response, with the recorded timing
replay play capture/ --listen http://127.0.0.1:4241/metrics/stream`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		var (
			in         inputFlags
			to, listen string
			only       []string
			rate       = speed(1)
			asJSON     bool
		)
		fs.StringVar(&to, "to", "", "`ENDPOINT` to connect to")
		fs.StringVar(&listen, "listen", "", "`ENDPOINT` to wait for a subscriber on")
		fs.Var(&rate, "speed", "recorded seconds in a second; max is as fast as it goes")
		fs.StringArrayVar(&only, "connection", nil, "play only the connection `ID`; may be repeated")
		fs.BoolVar(&asJSON, "json", false, "what was sent as JSON, one line for each stretch")
		in.register(fs)
		return func(r *cli.Run) (err error) {
			if (to == "") == (listen == "") {
				return cli.Usagef("name one of --to and --listen")
			}
			if asJSON && to == "-" {
				return cli.Usagef("--json and --to - both want standard output")
			}
			set, err := in.open(r.Args)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, in.close()) }()
			runs, err := playable(set, only)
			if err != nil {
				return err
			}
			ctx, stop := cli.Interruptible()
			defer stop()
			var target play.Target
			if to != "" {
				target, err = play.Dial(to, r.Stdout)
			} else {
				target, err = play.Listen(ctx, listen)
			}
			if errors.Is(err, play.ErrEndpoint) {
				return cli.Usagef("%v", err)
			}
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, target.Close()) }()
			if listen != "" {
				fmt.Fprintf(r.Stderr, "waiting on %s\n", target.Address())
			}
			words := r.Stdout
			if to == "-" {
				words = r.Stderr
			}
			found := slices.Clone(set.Findings)
			of := ""
			for len(runs) > 0 {
				run := runs[0]
				runs = runs[1:]
				if c := run.Connection(); c.ID != of {
					of, found = c.ID, append(found, c.Findings...)
				}
				sent, damage, err := playRun(ctx, target, run, float64(rate))
				if damage != nil {
					// What is behind it is a session of its own, as behind a hole.
					found = append(found, damage.Finding)
					if damage.Next != nil {
						runs = append([]*capture.Run{damage.Next}, runs...)
					}
				}
				if e := tell(words, sent, asJSON); e != nil {
					return e
				}
				if errors.Is(err, context.Canceled) {
					return &cli.ExitError{Code: cli.Failed, Message: "interrupted"}
				}
				if err != nil {
					return err
				}
			}
			cli.PrintFindings(r.Stderr, found, 0)
			if len(found) > 0 {
				return &cli.ExitError{Code: cli.Findings}
			}
			return nil
		}
	},
}

// playable is the runs of the connections that were asked for.
func playable(set *capture.Set, only []string) ([]*capture.Run, error) {
	var runs []*capture.Run
	known := map[string]bool{}
	for _, c := range set.Connections {
		known[c.ID] = true
		if len(only) > 0 && !slices.Contains(only, c.ID) {
			continue
		}
		if c.Refused != nil {
			return nil, c.Refused
		}
		runs = append(runs, c.Runs()...)
	}
	for _, id := range only {
		if !known[id] {
			return nil, cli.Usagef("no connection %q in the inputs", id)
		}
	}
	return runs, nil
}

// playRun sends a run in a session, as far as it can be read.
func playRun(ctx context.Context, target play.Target, run *capture.Run, rate float64) (*play.Sent, *capture.DamagedError, error) {
	if _, _, err := play.Prefix(run); err != nil {
		return nil, nil, contextHint(run, fmt.Errorf("connection %s at %d: %w", run.Connection().ID, run.Start, err))
	}
	w, err := target.Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	sent, err := play.Run(ctx, run, w, play.Options{Speed: rate})
	var damage *capture.DamagedError
	if errors.As(err, &damage) {
		err = nil
	}
	return sent, damage, errors.Join(err, w.Close())
}

// contextHint says what to do about a run that no subscriber could take.
func contextHint(run *capture.Run, err error) error {
	hint := "name the whole capture, or files whose sidecars are beside them"
	switch {
	case !errors.Is(err, play.ErrNoContext):
		return err
	case run.Connection().Raw:
		hint = "--protocol raw sends the bytes as they are"
	case run.Connection().Protocol == melin.Name:
		hint = "a replica takes a connection from its first file on"
	}
	return &cli.HintError{Err: err, Hint: hint}
}

func tell(w io.Writer, s *play.Sent, asJSON bool) error {
	if s == nil {
		return nil
	}
	if asJSON {
		return jsontext.Write(w, s, "")
	}
	_, err := fmt.Fprintf(w, "%s: sent %s (bytes %d to %d) in %v", wire.SafeText(s.Connection, 0), humanize.IBytes(uint64(s.To-s.From)), s.From, s.To, s.Took.Round(time.Millisecond))
	if err == nil && s.Late > 0 {
		_, err = fmt.Fprintf(w, ", at most %v late", s.Late.Round(time.Microsecond))
	}
	for _, n := range s.Notes {
		if err == nil {
			_, err = fmt.Fprintf(w, "\n  %s", n)
		}
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
