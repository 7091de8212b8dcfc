package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/wire"
)

// shownFindings is how many findings people are shown without --all.
const shownFindings = 50

// reportFlags are those of the verbs that read recordings.
type reportFlags struct {
	protocol *cli.Word
	json     bool
	all      bool
}

func (r *reportFlags) register(fs *pflag.FlagSet) {
	r.protocol = protocolFlag(fs)
	fs.BoolVar(&r.json, "json", false, "print the report as JSON")
	fs.BoolVar(&r.all, "all", false, "print all findings, however many")
}

func (r *reportFlags) limit() int {
	if r.all {
		return 0
	}
	return shownFindings
}

// inputSize is about how much there is to read, for a progress bar.
func inputSize(paths []string, opt capture.InputOptions) int64 {
	set, err := capture.OpenInputs(paths, opt)
	if err != nil {
		return 0
	}
	n := int64(0)
	for _, c := range set.Connections {
		for _, f := range c.Files {
			n += f.Length
		}
	}
	return n
}

// progress gives a bar's feeder and its end.
func progress(w io.Writer, what string, paths []string, opt capture.InputOptions) (feed func(int64), done func()) {
	if !cli.IsTerminal(w) {
		return nil, func() {}
	}
	total, at := inputSize(paths, opt), int64(0)
	bar := cli.NewBar(w, what, total)
	return func(n int64) {
		at += n
		bar.Set(at, total)
	}, bar.Done
}

// printNotes lists what is expected and no fault.
func printNotes(w io.Writer, notes []wire.Finding, limit int) {
	if len(notes) > 0 {
		fmt.Fprintln(w, "no fault:")
		cli.PrintFindings(w, notes, limit)
	}
}

// inputHint says what to do about an input of no known protocol.
func inputHint(err error) error {
	var none *capture.NotCaptureError
	if !errors.As(err, &none) || !none.Readable {
		return err
	}
	return &cli.HintError{Err: err, Hint: "--protocol raw takes any bytes as they are; where the first bytes are damaged or missing, --protocol dendro, melin or aewr says what they are"}
}

func found(n int) error {
	if n == 0 {
		return nil
	}
	return &cli.ExitError{Code: cli.Findings}
}

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name: "verify", Args: "INPUT…",
		Short: "read recordings whole and tell everything that is wrong with them",
		Long: `INPUT is a capture directory, one of its files, or a raw stream file. Bytes,
hashes, chains, sidecars, arrival indexes, sums and frames are held against each
other. What can't be proved from these inputs is said, and is no fault; nor is
what retention deleted, or what a recorder is just writing. Nothing is written.
Exit code 3 when something was found.`,
		Examples: `# a directory that was shipped here
capture verify /srv/from-site-a
# a stream file that no recorder of ours wrote
capture verify old.stream --protocol dendro`,
		Setup: setupVerify,
	}
}

func setupVerify(fs *pflag.FlagSet) func(*cli.Run) error {
	var r reportFlags
	var first bool
	r.register(fs)
	fs.BoolVar(&first, "first", false, "stop at the first finding")
	return func(run *cli.Run) error {
		if len(run.Args) == 0 {
			return cli.Usagef("name at least one input")
		}
		opt := capture.VerifyOptions{Input: capture.InputOptions{Protocol: r.protocol.Value}, First: first}
		feed, done := progress(run.Stderr, "verifying", run.Args, opt.Input)
		opt.Progress = feed
		rep, err := capture.Verify(run.Args, opt)
		done()
		if err != nil {
			return inputHint(err)
		}
		if r.json {
			err = jsontext.Write(run.Stdout, rep, " ")
		} else {
			err = printVerify(run.Stdout, rep, r.limit())
		}
		if err != nil {
			return err
		}
		return found(len(rep.Findings))
	}
}

func printVerify(w io.Writer, rep *capture.VerifyReport, limit int) error {
	verdict := "clean"
	if n := len(rep.Findings); n > 0 {
		verdict = wire.Count(int64(n)+rep.Omitted, "finding")
	}
	fmt.Fprintf(w, "%s: %s, %s, %s, %s; %s proved by SHA-256\n", verdict,
		wire.Count(int64(rep.Connections), "connection"), wire.Count(int64(rep.Files), "file"), humanize.IBytes(uint64(rep.Bytes)), wire.Count(int64(rep.Frames), "frame"), humanize.IBytes(uint64(rep.Proven)))
	if len(rep.Findings) > 0 {
		fmt.Fprintln(w, "found:")
		cli.PrintFindings(w, rep.Findings, limit)
	}
	printNotes(w, rep.Notes, limit)
	if len(rep.Unproven) > 0 {
		fmt.Fprintln(w, "not proved:")
	}
	for i, u := range rep.Unproven {
		if limit > 0 && i == limit {
			fmt.Fprintf(w, "  … and %d more\n", len(rep.Unproven)-limit)
			break
		}
		place := u.File
		if place == "" {
			place = u.Connection
		}
		fmt.Fprintf(w, "  %s: %s\n", place, u.What)
	}
	_, err := fmt.Fprintln(w, "not proved by any recording: that nobody who can write bytes and hashes changed both")
	return err
}

// tool is the program's name and version, for sidecars.
func tool() string { return "capture " + cli.VersionString() }

// holder says who has a directory, for others who want it.
func holder(verb string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	return fmt.Sprintf("%s, process %d on %s", verb, os.Getpid(), host)
}
