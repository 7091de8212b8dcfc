package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/replay/shadow"
	"wiretape/wire"
)

var exportResultsCommand = &cli.Command{
	Name:  "export-results",
	Args:  "BUILD --to DIR",
	Short: "give the results in an AEWR build as Parquet or CSV",
	Long: `BUILD is what "replay build" made of AEWR connections, or its catalogue.sqlite. DIR
gets a file a table: requests, keys, aggregates, groups, and columns-N for
materialised results of N slots, a column a slot. Every row names its request's
frame, so that tables join. Values that are not valid are NULL, in CSV empty.

A value is 8 bytes, and the frames do not say what they mean: they are given as
signed numbers, and as float64 in the slots and accumulators that --float names.
Each file is read back and compared before DIR gets its name.`,
	Examples: `# every result, as Parquet
replay export-results site/ --to results/
# what one query returned, whose second column is a float
replay export-results site/ --to q17/ --request 17 --float 1 --format csv`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		var (
			to     string
			format = cli.Word{Value: "parquet", Words: []string{"parquet", "csv"}}
			opt    shadow.ExportOptions
			asJSON bool
		)
		fs.StringVar(&to, "to", "", "`DIR`, the folder to make; it must not exist")
		fs.Var(&format, "format", "what the tables are written as")
		fs.Int64Var(&opt.Request, "request", 0, "only the results of the request with this `FRAME` number in the catalogue")
		fs.IntSliceVar(&opt.Floats, "float", nil, "`SLOTS` and accumulators, counted from 0, whose values are float64")
		fs.BoolVar(&asJSON, "json", false, "print what was written as JSON (docs/aewr.md)")
		return func(r *cli.Run) error {
			switch {
			case len(r.Args) != 1:
				return cli.Usagef("name one BUILD: the folder that replay build made, or its catalogue.sqlite")
			case to == "":
				return cli.Usagef("--to DIR is required")
			case opt.Request < 0:
				return cli.Usagef("--request %d: frames are numbered from 1", opt.Request)
			case fs.Changed("request") && opt.Request == 0:
				return cli.Usagef("--request 0: frames are numbered from 1")
			case slices.ContainsFunc(opt.Floats, func(n int) bool { return n < 0 }):
				return cli.Usagef("--float: slots and accumulators are numbered from 0")
			}
			if err := apart(r.Args, to); err != nil {
				return err
			}
			opt.Format = shadow.Format(format.Value)
			report, err := shadow.Export(r.Args[0], to, opt)
			switch {
			case errors.Is(err, shadow.ErrNoSlot):
				return cli.Usagef("--float: %v", err)
			case errors.Is(err, shadow.ErrNoRequest):
				return &cli.HintError{Err: err, Hint: "its table requests lists them by frame; so does requests.csv of an export"}
			case errors.Is(err, shadow.ErrNotCatalogue), errors.Is(err, os.ErrNotExist):
				return &cli.HintError{Err: err, Hint: `"replay build" makes one of AEWR captures`}
			case err != nil:
				return outputHint(err, "name another folder, or move this one away")
			}
			if asJSON {
				if err := jsontext.Write(r.Stdout, report, " "); err != nil {
					return err
				}
			} else {
				for _, t := range report.Tables {
					fmt.Fprintf(r.Stdout, "%s: %s %s\n", wire.SafeText(t.File, 0), humanize.Comma(t.Rows), english.PluralWord(int(t.Rows), "row", ""))
				}
			}
			if report.Omitted > 0 {
				return &cli.ExitError{Code: cli.Findings, Message: fmt.Sprintf("%d more numbers of slots than get a table were left out", report.Omitted)}
			}
			return nil
		}
	},
}
