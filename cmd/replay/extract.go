package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/replay/archive"
	"wiretape/wire"
)

var extractCommand = &cli.Command{
	Name:  "extract",
	Args:  "ARCHIVE --dir DIR",
	Short: "take an archive apart: segments as .parquet files, rows as they are",
	Long: `DIR appears whole or not at all. Every segment is a .parquet file, byte for byte;
rows and index entries lie one after the other in a .bin file with a JSON line for
each beside it. Folders and files are numbered: manifest.json says which source,
stream and time each is, and sha256sum -c SHA256SUMS checks them.

A segment that reaches out of the selected time is given whole, and said so.`,
	Examples: `# everything
replay extract site.dendro --dir site/
# one stream of one host in an hour
replay extract site.dendro --dir cpu/ --label host=web-00 --stream cpu_usage --from 2026-11-29T18:00:00Z --until 2026-11-29T19:00:00Z`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		var (
			dir    string
			sel    selectionFlags
			asJSON bool
		)
		fs.StringVar(&dir, "dir", "", "the folder `DIR` to make; it must not exist")
		sel.register(fs)
		fs.BoolVar(&asJSON, "json", false, "the manifest as JSON (docs/archives.md)")
		return func(r *cli.Run) (err error) {
			if len(r.Args) != 1 {
				return cli.Usagef("one ARCHIVE is taken apart: %s given", wire.Count(int64(len(r.Args)), "archive"))
			}
			if dir == "" {
				return cli.Usagef("--dir DIR is required")
			}
			part, err := sel.selection()
			if err != nil {
				return err
			}
			if err := apart(r.Args, dir); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			a, err := archive.Open(r.Args[0])
			if err != nil {
				return archiveHint(r.Args[0], err)
			}
			defer func() { err = errors.Join(err, a.Close()) }()
			m, err := a.Extract(ctx, dir, part)
			if err != nil {
				return outputHint(err, "name another folder, or move this one away")
			}
			if asJSON {
				return jsontext.Write(r.Stdout, m, "")
			}
			return manifestText(r.Stdout, dir, m)
		}
	},
}

func manifestText(w io.Writer, dir string, m *archive.Manifest) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s: extracted from %s\n", wire.SafeText(dir, 0), wire.SafeText(m.Archive, 0))
	for _, words := range m.Selection {
		fmt.Fprintf(b, "  only %s\n", wire.SafeText(words, 200))
	}
	for _, s := range m.Sources {
		fmt.Fprintf(b, "  %s%s\n", s.Folder, labelText(s.Labels))
		for _, st := range s.Streams {
			var size, reaching, rows, entries int64
			for _, g := range st.Segments {
				size += g.Length
				if g.Reaches {
					reaching++
				}
			}
			if st.Rows != nil {
				rows = st.Rows.Count
			}
			if st.Index != nil {
				entries = st.Index.Count
			}
			fmt.Fprintf(b, "    %s: segments %s (%s), rows %s, index entries %s", wire.SafeText(st.Stream, 80), humanize.Comma(int64(len(st.Segments))),
				humanize.IBytes(uint64(size)), humanize.Comma(rows), humanize.Comma(entries))
			if reaching > 0 {
				fmt.Fprintf(b, "; segments that reach out of the selection %s", humanize.Comma(reaching))
			}
			fmt.Fprintln(b)
		}
	}
	fmt.Fprintf(b, "  %s says what each file is\n", archive.ManifestFile)
	return b.Flush()
}
