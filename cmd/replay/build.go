package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/unfinished"
	"wiretape/replay"
	"wiretape/replay/journal"
	"wiretape/replay/segment"
	"wiretape/replay/shadow"
	"wiretape/wire"
	"wiretape/wire/dendro"
	"wiretape/wire/melin"
)

var buildCommand = &cli.Command{
	Name:  "build",
	Args:  "INPUT… --archive OUT",
	Short: "rebuild the archive that the receiver would have had",
	Long: `OUT is a dendro archive (SQLite); it appears whole, under its name, or not at all.
What can't be in the archive lies in OUT.quarantine/ with its bytes and the reason.
The order of the inputs does not matter. For melin OUT is a folder with the replica's
journal and a catalogue (docs/melin.md), for AEWR one with the containers' shadows and
a catalogue of sessions (docs/aewr.md); both are made whole each time: of the flags
below they take --archive, --json, --protocol and --from-middle alone, the others are
for dendro.

The report goes to standard output: what was rebuilt, what is missing and why. Exit
code 0 also where losses are reported that other captured data makes good.` + inputHelp,
	Examples: `# rebuild from a capture directory
replay build capture/ --archive site.dendro
# from a stream that was saved with another tool, report as JSON
replay build saved.bin --archive site.dendro --json`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error { return setupBuild(fs, true) },
}

// setupBuild registers the flags of a rebuild: captures says that the inputs may
// be captures, which have offsets and may grow. Merge takes archives alone.
func setupBuild(fs *pflag.FlagSet, captures bool) func(*cli.Run) error {
	var (
		in      = inputFlags{apart: true}
		opt     = replay.Options{Tool: cli.VersionString()}
		schema  = cli.Word{Value: "5", Words: []string{"4", "5"}}
		check   = cli.Word{Value: "rows", Words: []string{"none", "footer", "rows", "full"}}
		onBad   = cli.Word{Value: "quarantine", Words: []string{"quarantine", "refuse", "keep"}}
		sources = cli.Word{Value: "merged", Words: []string{"merged", "separate"}}
		asJSON  bool
		page    string
		follow  bool
		update  bool
	)
	fs.StringVar(&opt.Archive, "archive", "", "`OUT`, the archive to make; it must not exist")
	fs.Var(&schema, "schema", "schema of the archive; 4 is for readers up to dendro 0.5.1")
	fs.Var(&check, "check", "how deep the Parquet of segments is checked")
	fs.Var(&onBad, "on-bad-segment", "what becomes of a segment whose check finds a fault")
	fs.Var(&sources, "sources", "merged: equal uuid is one source; separate: each handshake its own, as the crate does")
	fs.StringVar(&opt.Encoder, "encoder", "", "refuse sources that name another encoder than `NAME`")
	if captures {
		fs.BoolVar(&opt.Strict, "strict", false, "end at the first thing that the crate would refuse, with its verdict")
		fs.BoolVar(&follow, "follow", false, "go on as the captures grow, until interrupted; OUT may exist, and others may read it meanwhile")
		fs.BoolVar(&update, "update", false, "bring OUT, an archive that exists, up to date with the inputs")
	}
	var sel rangeFlags
	if captures {
		sel.register(fs)
	} else {
		sel.selectionFlags.register(fs)
	}
	fs.BoolVar(&asJSON, "json", false, "the report as one JSON object (docs/report.md)")
	fs.StringVar(&page, "html", "", "the report also as one self-contained page, `FILE`, with a picture of what there is over time")
	if captures {
		in.register(fs)
	}
	return func(r *cli.Run) (err error) {
		if opt.Archive == "" {
			return cli.Usagef("--archive OUT is required")
		}
		if err := apart(r.Args, opt.Archive); err != nil {
			return err
		}
		if err := hasFolder("--archive", opt.Archive); err != nil {
			return err
		}
		set, err := in.open(r.Args)
		if err != nil && !(follow && notYet(err)) {
			return err
		}
		defer func() { err = errors.Join(err, in.close()) }()
		if err := freePage(page, opt.Archive, follow || update); err != nil {
			return err
		}
		// What is followed may have no bytes yet: then it is waited for.
		protocol, wanted := "", ""
		if in.known() {
			wanted = in.protocol.Value
		}
		if set != nil {
			if protocol, err = oneProtocol(set, wanted); err != nil && !follow {
				return err
			}
		}
		if protocol == "" {
			protocol = dendro.Name
		}
		bar := cli.NewBar(r.Stderr, "rebuilding", 0)
		var report report
		switch protocol {
		case dendro.Name:
			opt.Schema = int(schema.Value[0] - '0')
			opt.Check, _ = segment.ParseDepth(check.Value)
			if opt.Select, err = sel.selection(); err != nil {
				return err
			}
			opt.OnBadSegment = replay.BadSegmentPolicy(onBad.Value)
			opt.Picture = page != ""
			opt.Separate = sources.Value == "separate"
			opt.Progress = func(p replay.Progress) { bar.Set(p.Read, p.Total) }
			if follow || update {
				if err := onlyWithout(fs, "--follow and --update", "strict", "source", "label", "stream", "from", "until", "sources"); err != nil {
					return err
				}
				bar.Done()
				report, err = followInputs(r, &in, opt, follow)
				break
			}
			report, err = replay.Build(set, opt)
		case melin.Name:
			if err := onlyFor(fs, dendro.Name, dendroFlags...); err != nil {
				return err
			}
			report, err = journal.Build(set, opt.Archive, journal.Options{
				Progress: func(p journal.Progress) { bar.Set(p.Read, p.Total) }})
		default:
			if err := onlyFor(fs, dendro.Name, dendroFlags...); err != nil {
				return err
			}
			report, err = shadow.Build(set, opt.Archive, shadow.Options{Tool: opt.Tool,
				Progress: func(p shadow.Progress) { bar.Set(p.Read, p.Total) }})
		}
		bar.Done()
		hint := "name another archive, or move this one away"
		if captures && protocol == dendro.Name {
			hint = "name another archive, move this one away, or bring it up to date with --update"
		}
		if err = outputHint(err, hint); errors.As(err, new(*cli.HintError)) {
			return err // nothing was touched
		}
		// Each of the two is given also where the other can't be.
		if asJSON {
			_, e := fmt.Fprintf(r.Stdout, "%s\n", report.JSON())
			err = errors.Join(err, e)
		} else {
			err = errors.Join(err, report.Text(r.Stdout, opt.Archive))
		}
		// A page of a rebuild that failed would be in the way of the next one.
		if page != "" && report.ExitCode() != cli.Failed {
			err = errors.Join(err, writePage(page, report, opt.Archive, follow || update))
		}
		if err != nil {
			return err
		}
		if code := report.ExitCode(); code != 0 {
			return &cli.ExitError{Code: code}
		}
		return nil
	}
}

// dendroFlags mean nothing for the other protocols.
var dendroFlags = []string{"schema", "check", "on-bad-segment", "sources", "encoder", "strict", "html", "follow", "update",
	"source", "label", "stream", "from", "until"}

// report is what a rebuild of any protocol gives.
type report interface {
	JSON() []byte
	Text(w io.Writer, out string) error
	ExitCode() int
}

// freePage says before a rebuild why its page could not be written behind it.
// With replace, a page that is there is an earlier run's.
func freePage(page, archive string, replace bool) error {
	if page == "" {
		return nil
	}
	if st, err := os.Lstat(page); err == nil && (!replace || !st.Mode().IsRegular()) {
		return cli.Usagef("--html %s is there already", page)
	}
	if err := hasFolder("--html", page); err != nil {
		return err
	}
	if err := unfinished.Clash([]string{page}, archive); err != nil {
		return cli.Usagef("--html %s: the archive is written there, or what belongs to it", page)
	}
	return nil
}

// writePage writes the report's page, which appears whole; over another file
// only with replace.
func writePage(path string, r report, archive string, replace bool) (err error) {
	h, ok := r.(interface {
		HTML(w io.Writer, archive string) error
	})
	if !ok {
		return cli.Usagef("--html is for dendro captures alone")
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing the page: %w", err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), ".replay-page-") // 0600, as archives are
	if err != nil {
		return err
	}
	defer func() {
		if e := os.Remove(f.Name()); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := errors.Join(h.HTML(f, archive), f.Sync(), f.Close()); err != nil {
		return err
	}
	if replace {
		err = os.Rename(f.Name(), path)
	} else {
		err = os.Link(f.Name(), path)
	}
	return errors.Join(err, unfinished.SyncFolder(filepath.Dir(path)))
}

// oneProtocol is the protocol of the set's connections; wanted is the one to
// choose where there are several, "" for none.
func oneProtocol(set *capture.Set, wanted string) (string, error) {
	names := protocolsOf(set)
	switch {
	case wanted != "" && slices.Contains(names, wanted):
		return wanted, nil
	case wanted != "" && len(names) > 0:
		return "", cli.Usagef("no %s connection in the inputs: they hold %s", wanted, strings.Join(names, " and "))
	case len(names) > 1:
		return "", cli.Usagef("the inputs hold %s connections: --protocol says which of them to build", strings.Join(names, " and "))
	case len(names) == 1:
		return names[0], nil
	}
	err := errors.New("no connection of a known protocol in the inputs")
	if gone := set.Absent(); len(gone) > 0 {
		return "", fmt.Errorf("%w; %s known and not here, the first: %s", err, wire.Count(int64(len(gone)), "connection"), gone[0].Message)
	}
	silent := int64(0)
	for _, c := range set.Connections {
		if c.Silent() {
			silent++
		}
	}
	switch n := int64(len(set.Connections)); {
	case n == 0:
		return "", &cli.HintError{Err: errors.New("nothing was recorded: the inputs hold no connection"), Hint: "capture info tells what was tried"}
	case silent == n:
		return "", &cli.HintError{Err: errors.New("nothing was received: not one byte came on " + wire.Count(n, "connection")),
			Hint: "capture info tells how it ended"}
	}
	return "", &cli.HintError{Err: err, Hint: "where the first bytes are damaged or missing, --protocol dendro, melin or aewr says what they are; " +
		`"replay inspect --protocol raw" shows the bytes of anything`}
}

// notYet says that the inputs may still come.
func notYet(err error) bool {
	var none *capture.NotCaptureError
	return errors.As(err, &none)
}

// onlyWithout refuses flags that can't be given together with another.
func onlyWithout(fs *pflag.FlagSet, with string, flags ...string) error {
	for _, f := range flags {
		if fs.Changed(f) {
			return cli.Usagef("--%s can't be given together with %s", f, with)
		}
	}
	return nil
}

// onlyFor refuses flags that were given and mean nothing for the protocol.
func onlyFor(fs *pflag.FlagSet, protocol string, flags ...string) error {
	for _, f := range flags {
		switch {
		case !fs.Changed(f):
		case f == "follow" || f == "update":
			return cli.Usagef("--%s is for %s captures alone: what is made of others is made whole; "+
				"build again to another --archive once the capture has grown or ended", f, protocol)
		default:
			return cli.Usagef("--%s is for %s captures alone", f, protocol)
		}
	}
	return nil
}
