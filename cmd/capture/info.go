package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/wire"
)

func infoCommand() *cli.Command {
	return &cli.Command{
		Name: "info", Args: "INPUT…",
		Short: "tell what there is: connections, files, spans, sources, kinds, rates, gaps",
		Long: `INPUT is a capture directory, one of its files, or a raw stream file. Frames are
read for sources and kinds; --quick takes the sidecars at their word instead.
--csv prints one line a file. Exit code 3 when something was found.`,
		Examples: `# a glance at a large directory
capture info /var/lib/wiretape --quick
# for a spreadsheet
capture info /var/lib/wiretape --csv > files.csv`,
		Setup: setupInfo,
	}
}

func setupInfo(fs *pflag.FlagSet) func(*cli.Run) error {
	var r reportFlags
	var opt capture.InfoOptions
	var asCSV, files bool
	r.register(fs)
	fs.BoolVar(&asCSV, "csv", false, "print one line a file, as CSV")
	fs.BoolVar(&files, "files", false, "list the files too")
	fs.BoolVar(&opt.Quick, "quick", false, "believe the sidecars and read no frames: no sources")
	cli.DurationVar(fs, &opt.Pause, "pause", capture.DefaultPause, "the shortest time without bytes to list")
	return func(run *cli.Run) error {
		if len(run.Args) == 0 {
			return cli.Usagef("name at least one input")
		}
		if r.json && asCSV {
			return cli.Usagef("choose one of --json and --csv")
		}
		opt.Input = capture.InputOptions{Protocol: r.protocol.Value}
		feed, done := progress(run.Stderr, "reading", run.Args, opt.Input)
		opt.Progress = feed
		info, err := capture.Describe(run.Args, opt)
		done()
		if err != nil {
			return inputHint(err)
		}
		switch {
		case r.json:
			err = jsontext.Write(run.Stdout, info, " ")
		case asCSV:
			err = printInfoCSV(run.Stdout, info)
		default:
			err = printInfo(run.Stdout, info, files, r.limit())
		}
		if err != nil {
			return err
		}
		return found(len(info.AllFindings()))
	}
}

func printInfo(w io.Writer, info *capture.Info, files bool, limit int) error {
	if len(info.Connections) == 0 {
		fmt.Fprintln(w, "no connections")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(info.Connections) > 0 {
		fmt.Fprintln(tw, "CONNECTION\tPROTOCOL\tDIRECTION\tFILES\tBYTES\tFIRST\tLASTED\tRATE\tENDED\tENDPOINT")
	}
	for i := range info.Connections {
		c := &info.Connections[i]
		first, lasted, rate, ended := "not known", "-", "-", "not known"
		if c.FirstArrival != nil {
			first = time.Unix(0, c.FirstArrival.Wall).UTC().Format("2006-01-02 15:04:05Z")
			lasted = c.Duration.Round(time.Millisecond).String()
			if c.Rate > 0 {
				rate = humanize.IBytes(uint64(c.Rate)) + "/s"
			}
		}
		if c.Transport != nil {
			ended = wire.SafeText(c.Transport.Kind, 20)
		} else if c.Recording {
			ended = "being recorded"
		} else if c.Unsealed > 0 {
			ended = "not sealed"
		}
		if c.Framing != "" && !c.Recording {
			ended += ", " + c.Framing
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.Protocol, c.Direction, c.Files,
			humanize.IBytes(uint64(c.Bytes)), first, lasted, rate, ended, c.Endpoint)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range info.Connections {
		printConnection(w, &info.Connections[i], files, limit)
	}
	if all := info.AllFindings(); len(all) > 0 {
		fmt.Fprintf(w, "\nfound:\n")
		cli.PrintFindings(w, all, limit)
	}
	if len(info.Notes) > 0 {
		fmt.Fprintln(w)
	}
	printNotes(w, info.Notes, limit)
	return nil
}

func printConnection(w io.Writer, c *capture.ConnectionInfo, files bool, limit int) {
	fmt.Fprintf(w, "\n%s", c.ID)
	if c.Pair != "" {
		fmt.Fprintf(w, ", paired with %s", c.Pair)
	}
	if c.Refused != "" { // where its bytes belong is not known
		fmt.Fprintf(w, "\n  %s\n", c.Refused)
	} else {
		fmt.Fprintf(w, ": bytes %d to %d\n", c.Start, c.End)
	}
	if len(c.Kinds) > 0 {
		var parts []string
		for _, k := range c.Kinds {
			name := k.Name
			if name == "" {
				name = fmt.Sprintf("kind %d", k.Kind)
			}
			parts = append(parts, fmt.Sprintf("%d %s", k.Count, name))
		}
		fmt.Fprintf(w, "  frames: %s\n", strings.Join(parts, ", "))
	}
	for i, s := range c.Sources {
		if limit > 0 && i == limit {
			fmt.Fprintf(w, "  … and %s\n", wire.Count(int64(len(c.Sources)-limit), "more source"))
			break
		}
		span := ""
		if s.First != 0 {
			span = ", " + stamp(s.First) + " to " + stamp(s.Last)
		}
		fmt.Fprintf(w, "  source %d %s: %s, %s, %s%s\n", s.Source, s.Label, wire.Count(s.Frames, "frame"), humanize.IBytes(uint64(s.Bytes)), wire.Count(int64(len(s.Streams)), "stream"), span)
	}
	for _, h := range c.Holes {
		fmt.Fprintf(w, "  hole: %s\n", h.Message)
	}
	for _, p := range c.Pauses {
		fmt.Fprintf(w, "  nothing came for %s from %s on, before byte %d\n", p.Duration.Round(time.Millisecond), stamp(p.Wall), p.Offset)
	}
	for _, s := range c.ClockSteps {
		fmt.Fprintf(w, "  the clock stepped by %s after %s, before byte %d\n", s.Step, stamp(s.Wall), s.Offset)
	}
	if files {
		for _, f := range c.FileList {
			state := f.Closed
			if !f.Sealed {
				state = "not sealed"
			}
			fmt.Fprintf(w, "  %s: %s from %d, %s\n", f.File, wire.Count(f.Length, "byte"), f.Start, state)
		}
	}
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.999Z") }

func printInfoCSV(w io.Writer, info *capture.Info) error {
	cw := csv.NewWriter(w)
	if err := cw.Write([]string{"connection", "protocol", "direction", "pair", "endpoint", "file", "number", "start", "length",
		"sealed", "compressed", "sha256", "closed", "first_wall_ns", "last_wall_ns"}); err != nil {
		return err
	}
	for _, c := range info.Connections {
		for _, f := range c.FileList {
			if err := cw.Write([]string{c.ID, c.Protocol, c.Direction, c.Pair, cell(c.Endpoint), cell(f.File), wire.Itoa(f.Number), wire.Itoa(f.Start),
				wire.Itoa(f.Length), fmt.Sprint(f.Sealed), fmt.Sprint(f.Compressed), f.SHA256, f.Closed,
				instant(f.FirstWall), instant(f.LastWall)}); err != nil {
				return err
			}
		}
	}
	cw.Flush()
	return cw.Error()
}

// instant is a time in nanoseconds, empty where it is not known.
func instant(ns int64) string {
	if ns == 0 {
		return ""
	}
	return wire.Itoa(ns)
}

// cell keeps text from being taken for a formula by a spreadsheet.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}
