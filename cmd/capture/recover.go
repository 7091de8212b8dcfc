package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
)

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name: "recover", Args: "DIR",
		Short: "seal the files that a recorder left unfinished",
		Long: `The true end of each unfinished file is found, its bytes are kept, all of them, a
sidecar says what happened, and it gets its final name. Sidecars that are missing
or damaged are made anew from the bytes. record does this by itself before it
starts. Doing it again changes nothing. Exit code 3 when a file's end was torn.`,
		Examples: `# after a power loss, on a directory that is to be shipped and not recorded into
capture recover /var/lib/wiretape`,
		Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
			var asJSON bool
			fs.BoolVar(&asJSON, "json", false, "print the report as JSON")
			return func(run *cli.Run) error {
				if len(run.Args) != 1 {
					return cli.Usagef("name one capture directory")
				}
				rec, err := capture.Recover(run.Args[0], capture.Options{Tool: tool(), Holder: holder("capture recover")})
				rep := capture.RecoverReport{Recovered: rec}
				if err == nil {
					if asJSON {
						err = jsontext.Write(run.Stdout, rep, " ")
					} else {
						printRecovered(run.Stdout, rec)
					}
					if err == nil {
						err = found(rep.Torn())
					}
					return err
				}
				failed := &cli.HintError{Err: err}
				var locked *capture.LockedError
				switch {
				case errors.As(err, &locked):
					failed.Hint = "a recorder is at work there; it recovered the directory when it started"
				case capture.DiskFull(err):
					failed.Hint = "nothing is lost; free some space, with capture prune " + run.Args[0] + " --min-free SIZE for example, and do this again"
				}
				if failed.Hint != "" {
					err = failed
				}
				switch {
				case len(rec) == 0:
				case asJSON:
					// What was done, and the failure, in one object.
					rep.Err, rep.Hint, rep.ExitCode = failed.Err, failed.Hint, cli.Failed
					if perr := jsontext.Write(run.Stdout, rep, ""); perr != nil {
						return perr
					}
				default:
					printRecovered(run.Stdout, rec)
				}
				return err
			}
		},
	}
}

func printRecovered(w io.Writer, rec []capture.Recovered) {
	for _, r := range rec {
		fmt.Fprintln(w, r.String())
	}
	if len(rec) == 0 {
		fmt.Fprintln(w, "nothing to recover")
	}
}
