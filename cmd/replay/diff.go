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
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/replay/archive"
	"wiretape/wire"
)

var diffCommand = &cli.Command{
	Name:  "diff",
	Args:  "A B",
	Short: "compare two archives by uuid, stream and time",
	Long: `Says what only one of two archives holds, and what both hold differently. Ids,
segment numbers, schema and documents are not content. A row that is live in one
and in a segment of the other is the same row stored in another way; it is told.

Exit code 0: both hold the same. 3: they differ.`,
	Examples: `# compare what two sites have
replay diff site-a.dendro site-b.dendro
# for a program
replay diff site-a.dendro site-b.dendro --json`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		var asJSON bool
		fs.BoolVar(&asJSON, "json", false, "the comparison as one JSON object (docs/archives.md)")
		return func(r *cli.Run) (err error) {
			if len(r.Args) != 2 {
				return cli.Usagef("two archives are compared: %s given", wire.Count(int64(len(r.Args)), "archive"))
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			a, err := archive.Open(r.Args[0])
			if err != nil {
				return archiveHint(r.Args[0], err)
			}
			defer func() { err = errors.Join(err, a.Close()) }()
			b, err := archive.Open(r.Args[1])
			if err != nil {
				return archiveHint(r.Args[1], err)
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			c, err := archive.Compare(ctx, a, b)
			if err != nil {
				return err
			}
			if asJSON {
				err = jsontext.Write(r.Stdout, c, "")
			} else {
				err = comparisonText(r.Stdout, c)
			}
			if err != nil {
				return err
			}
			return findingsExit(!c.Equal)
		}
	},
}

func comparisonText(w io.Writer, c *archive.Comparison) error {
	b := bufio.NewWriter(w)
	if c.Equal {
		fmt.Fprintln(b, "both archives hold the same")
	}
	for _, s := range c.Sources {
		name := s.UUID
		if name == "" {
			name = "without uuid"
		}
		fmt.Fprintf(b, "source %s%s\n", wire.SafeText(name, 64), labelText(s.Labels))
		if s.Only != "" {
			fmt.Fprintf(b, "  only in %s\n", map[string]string{"a": "A", "b": "B"}[s.Only])
		}
		for _, f := range s.Fields {
			fmt.Fprintf(b, "  %s: A has %s, B has %s\n", wire.SafeText(f.Name, 80), wire.SafeText(f.A, 120), wire.SafeText(f.B, 120))
		}
		for _, st := range s.Streams {
			fmt.Fprintf(b, "  stream %s\n", wire.SafeText(st.Stream, 120))
			if x := st.Segments; x != nil {
				segmentText(b, "A", x.OnlyACount, x.OnlyA)
				segmentText(b, "B", x.OnlyBCount, x.OnlyB)
				if n := len(x.IndexDiffers); n > 0 {
					fmt.Fprintf(b, "    segments with another caller index: %d\n", n)
				}
			}
			sidesText(b, "    ", "rows", st.Rows)
			sidesText(b, "    ", "index entries", st.Index)
		}
		sidesText(b, "  ", "clock offsets", s.Clock)
	}
	return b.Flush()
}

func labelText(labels map[string]string) string {
	text := ""
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		text += " " + wire.SafeText(k, 40) + "=" + wire.SafeText(labels[k], 60)
	}
	return text
}

// shownSegments is how many segments the text lists.
const shownSegments = 10

func segmentText(w io.Writer, side string, n int64, list []archive.SegmentRef) {
	if n == 0 {
		return
	}
	fmt.Fprintf(w, "    segments only in %s: %s\n", side, humanize.Comma(n))
	for i, s := range list {
		if i == shownSegments {
			fmt.Fprintf(w, "      … and %s more\n", humanize.Comma(n-shownSegments))
			break
		}
		fmt.Fprintf(w, "      %d: %s, %s to %s, sha256 %s\n", s.Seq, wire.Many(s.Rows, "row"), timeText(s.FirstTS), timeText(s.LastTS), s.SHA256)
	}
}

func sidesText(w io.Writer, indent, what string, s *archive.Sides) {
	if s == nil {
		return
	}
	for _, part := range []struct {
		words string
		s     archive.Stretch
	}{
		{"only in A", s.OnlyA}, {"only in B", s.OnlyB}, {"that differ", s.Differs},
		{"live in A that a segment of B has", s.SealedInB}, {"live in B that a segment of A has", s.SealedInA},
		{"in another order", s.Reordered},
	} {
		if part.s.Count > 0 {
			fmt.Fprintf(w, "%s%s %s: %s, %s to %s\n", indent, what, part.words, humanize.Comma(part.s.Count), timeText(*part.s.First), timeText(*part.s.Last))
		}
	}
}

func timeText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
