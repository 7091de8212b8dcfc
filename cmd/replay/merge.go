package main

import (
	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/replay/archive"
)

var mergeCommand = &cli.Command{
	Name:  "merge",
	Args:  "ARCHIVE… --archive OUT",
	Short: "make one archive of several",
	Long: `What OUT holds depends on what the archives hold, not on their order: equal uuid is
one source, equal segments and rows are one, of segments that overlap the fuller
one stays, and what can't be in the archive lies in OUT.quarantine/ with its bytes.
These are the rules by which captures are merged: each archive counts as one
connection of its publisher. The archives are not changed. To merge archives with
captures, give both to build.

ARCHIVE is a dendro archive; what a part of it is, times say.`,
	Examples: `# one archive of what two sites have
replay merge site-a.dendro site-b.dendro --archive both.dendro`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		build := setupBuild(fs, false)
		return func(r *cli.Run) error {
			if len(r.Args) == 0 {
				return cli.Usagef("no ARCHIVE")
			}
			for _, p := range r.Args {
				if _, err := archive.Detect(p); err != nil {
					return archiveHint(p, err)
				}
			}
			return build(r)
		}
	},
}
