// Command replay rebuilds what the receiver of a recorded stream would have
// had, and shows what is in a recording.
package main

import (
	"os"
	"runtime/debug"

	"wiretape/cmd/internal/cli"
)

// program lists the verbs; each has a file of its own.
func program() *cli.Program {
	return &cli.Program{
		Name:  "replay",
		Short: "rebuild and look into recorded replication streams",
		Long: `Takes capture directories, some of their files, or raw stream files that never
saw this tool; rebuilds offline what the receiver would have had, proves what it
rebuilt, and says what is missing. Inputs are never changed.`,
		Commands: []*cli.Command{
			buildCommand,
			inspectCommand,
			viewCommand,
			playCommand,
			verifyCommand,
			diffCommand,
			mergeCommand,
			extractCommand,
			exportResultsCommand,
		},
	}
}

// memoryLimit is from where on garbage is collected eagerly: what is live stays
// below it but for the largest frames. GOMEMLIMIT overrides it.
const memoryLimit = 96 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	os.Exit(program().Main())
}
