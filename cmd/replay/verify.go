package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
)

var verifyCommand = &cli.Command{
	Name:  "verify",
	Args:  "ARCHIVE…",
	Short: "check finished archives, down to the Parquet of every segment",
	Long: `Checks all that the dendro crate's own verify checks (SQLite's integrity, foreign
keys, each segment's rows and span, rows that no reader can see), and what it does
not look at: the order of segments, their overlap, and the Parquet inside them.

Nothing is written, neither to the archive nor beside it; read-only media are fine.
Exit code 0: nothing to report. 3: something was found, all of it is listed.`,
	Examples: `# check an archive
replay verify site.dendro
# every page of every column, as JSON
replay verify site.dendro --check full --json`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		check := cli.Word{Value: "rows", Words: []string{"none", "footer", "rows", "full"}}
		var asJSON bool
		fs.Var(&check, "check", "how deep the Parquet of segments is checked")
		fs.BoolVar(&asJSON, "json", false, "one JSON object for each archive (docs/archives.md)")
		return func(r *cli.Run) error {
			r.JSONLines = true
			if len(r.Args) == 0 {
				return cli.Usagef("no ARCHIVE")
			}
			depth, err := segment.ParseDepth(check.Value)
			if err != nil {
				return err
			}
			found := false
			for _, path := range r.Args {
				v, err := verify(r, path, depth)
				if err != nil {
					return err
				}
				found = found || len(v.Findings) > 0
				if asJSON {
					err = verificationJSON(r.Stdout, path, v)
				} else {
					err = verificationText(r.Stdout, path, v)
				}
				if err != nil {
					return err
				}
			}
			return findingsExit(found)
		}
	},
}

// findingsExit is the end of a verb that finished.
func findingsExit(found bool) error {
	if found {
		return &cli.ExitError{Code: cli.Findings}
	}
	return nil
}

func verify(r *cli.Run, path string, depth segment.Depth) (v *archive.Verification, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	a, err := archive.Open(path)
	if err != nil {
		return nil, archiveHint(path, err)
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	bar := cli.NewBar(r.Stderr, "checking", info.Size())
	defer bar.Done()
	done := int64(0)
	return a.Verify(ctx, archive.VerifyOptions{Segment: segment.Options{Depth: depth}, Progress: func(n int64) {
		done += n
		bar.Set(done, max(done, info.Size()))
	}})
}

func verdict(found bool) string {
	if found {
		return "findings"
	}
	return "clean"
}

func verificationJSON(w io.Writer, path string, v *archive.Verification) error {
	return jsontext.Write(w, struct {
		Verdict string `json:"verdict"`
		Archive string `json:"archive"`
		*archive.Verification
		Findings []wire.Finding `json:"findings"`
	}{verdict(len(v.Findings) > 0), path, v, append([]wire.Finding{}, v.Findings...)}, "")
}

func verificationText(w io.Writer, path string, v *archive.Verification) error {
	b := bufio.NewWriter(w)
	what := "nothing to report"
	if len(v.Findings) > 0 {
		what = "with findings"
	}
	fmt.Fprintf(b, "%s: checked, %s\n", wire.SafeText(path, 0), what)
	fmt.Fprintf(b, "  schema %d, sources %s, streams %s\n", v.Schema, humanize.Comma(v.Sources), humanize.Comma(v.Streams))
	fmt.Fprintf(b, "  segments %s (%s), proved %s; rows in no segment yet (the table wal) %s, index entries %s, clock offsets %s\n", humanize.Comma(v.Segments),
		humanize.IBytes(uint64(v.SegmentBytes)), humanize.Comma(v.Proved), humanize.Comma(v.WalRows), humanize.Comma(v.IndexEntries), humanize.Comma(v.ClockOffsets))
	for _, why := range slices.Sorted(maps.Keys(v.Unchecked)) {
		fmt.Fprintf(b, "  not checked (no fault), %s: %s\n", wire.Many(v.Unchecked[why], "time"), wire.SafeText(why, 200))
	}
	var found []wire.Finding
	for _, f := range v.Findings {
		// One archive is spoken of, and what is concerned is named: no place.
		f.File, f.Connection = "", ""
		found = append(found, f)
	}
	cli.PrintFindings(b, found, 0)
	for _, kind := range slices.Sorted(maps.Keys(v.ByKind)) {
		listed := int64(0)
		for _, f := range v.Findings {
			if f.Kind == kind {
				listed++
			}
		}
		if n := v.ByKind[kind]; n > listed {
			fmt.Fprintf(b, "  … and %d more of %s\n", n-listed, kind)
		}
	}
	return b.Flush()
}
