package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/wire"
)

// retentionFlags are the limits of prune, and of the verbs that record.
type retentionFlags struct {
	bytes, free cli.Size
	age         time.Duration
	files       int
	unshipped   bool
	flags       *pflag.FlagSet
}

func (r *retentionFlags) register(fs *pflag.FlagSet) {
	r.flags = fs
	fs.Var(&r.bytes, "keep-bytes", "the most that the directory may take on disk")
	cli.DurationVar(fs, &r.age, "keep-age", 0, "how long after its last byte came a file is kept, such as 30d")
	fs.IntVar(&r.files, "keep-files", 0, "how many sealed files are kept")
	fs.BoolVar(&r.unshipped, "delete-unshipped", false, "delete also what was not shipped anywhere")
}

func (r *retentionFlags) retention() (capture.Retention, error) {
	for _, name := range []string{"keep-bytes", "keep-age", "keep-files", "min-free"} {
		if f := r.flags.Lookup(name); f != nil && f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s" || strings.HasPrefix(f.Value.String(), "-")) {
			return capture.Retention{}, cli.Usagef("--%s %s is no limit: it takes more than 0, and is left out for none", name, f.Value)
		}
	}
	return capture.Retention{KeepBytes: int64(r.bytes), KeepAge: r.age, KeepFiles: r.files, MinFree: int64(r.free), Unshipped: r.unshipped}, nil
}

func pruneCommand() *cli.Command {
	return &cli.Command{
		Name: "prune", Args: "DIR",
		Short: "delete the oldest sealed files down to a limit",
		Long: `Files go whole, the one that was sealed first before all others. What was not
shipped stays, unless --delete-unshipped says otherwise in words. A recorder may
be at work in the directory. Exit code 3 when a limit could not be met.`,
		Examples: `# at most 50 GiB, of what the far site has
capture prune /var/lib/wiretape --keep-bytes 50GiB
# what would go
capture prune /var/lib/wiretape --keep-age 30d --dry-run`,
		Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
			var flags retentionFlags
			var dry, asJSON bool
			flags.register(fs)
			fs.Var(&flags.free, "min-free", "how much of the disk is to be free")
			fs.BoolVar(&dry, "dry-run", false, "only tell what would go")
			fs.BoolVar(&asJSON, "json", false, "print the report as JSON")
			return func(run *cli.Run) error {
				if len(run.Args) != 1 {
					return cli.Usagef("name one capture directory")
				}
				r, err := flags.retention()
				if err != nil {
					return err
				}
				if !r.Any() {
					return cli.Usagef("name at least one limit: --keep-bytes, --keep-age, --keep-files or --min-free")
				}
				r.DryRun = dry
				rep, err := capture.Prune(run.Args[0], r, capture.Options{Tool: tool()})
				if err != nil {
					return err
				}
				if asJSON {
					err = jsontext.Write(run.Stdout, rep, " ")
				} else {
					printPrune(run, rep, dry)
				}
				if err == nil && !rep.Met {
					return &cli.ExitError{Code: cli.Findings}
				}
				return err
			}
		},
	}
}

func printPrune(run *cli.Run, rep *capture.PruneReport, dry bool) {
	did := "deleted"
	if dry {
		did = "would delete"
	}
	for _, p := range rep.Deleted {
		note := ""
		if !p.Shipped {
			note = ", not shipped"
		}
		fmt.Fprintf(run.Stdout, "%s %s (%s, for its %s%s)\n", did, p.File, humanize.IBytes(uint64(p.Bytes)), p.Reason, note)
	}
	fmt.Fprintf(run.Stdout, "%s %s, %s; kept %s, the directory takes %s\n", did, wire.Count(int64(len(rep.Deleted)), "file"),
		humanize.IBytes(uint64(rep.FreedBytes)), wire.Count(int64(rep.KeptFiles), "sealed file"), humanize.IBytes(uint64(rep.KeptBytes)))
	if rep.Held > 0 {
		fmt.Fprintf(run.Stdout, "%s, %s, had to go and stay: the journal has no proof of shipping\n",
			wire.Count(int64(rep.Held), "file"), humanize.IBytes(uint64(rep.HeldBytes)))
	}
	if !rep.Met {
		fmt.Fprintln(run.Stdout, "a limit is not met")
	}
}
