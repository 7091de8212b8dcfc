// Command capture records streams verbatim, looks after what was recorded,
// and ships it.
package main

import (
	"os"

	"wiretape/cmd/internal/cli"
)

func main() { os.Exit(program().Main()) }

func program() *cli.Program {
	return &cli.Program{
		Name:  "capture",
		Short: "record replication streams byte for byte, and look after the recordings",
		Long: `A capture directory holds connections: the bytes as they came, in files that are
cut at frame boundaries, with what is known of them beside. cat is a valid
reader. What is said to be safe survives kill -9 and a power loss.`,
		Commands: []*cli.Command{
			recordCommand(),
			relayCommand(),
			shipCommand(),
			verifyCommand(),
			infoCommand(),
			recoverCommand(),
			pruneCommand(),
		},
	}
}
