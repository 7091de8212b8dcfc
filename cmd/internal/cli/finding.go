package cli

import (
	"fmt"
	"io"

	"wiretape/wire"
)

// PrintFindings lists findings for people, one to a line and what it costs
// below. With a limit above 0 it says how many more there are.
func PrintFindings(w io.Writer, findings []wire.Finding, limit int) {
	for i := range findings {
		if limit > 0 && i == limit {
			fmt.Fprintf(w, "  … and %d more\n", len(findings)-limit)
			return
		}
		f := &findings[i]
		place := f.File
		if place == "" {
			place = f.Connection
		}
		if f.Connection != "" {
			place += " at " + wire.Itoa(f.Offset)
		}
		if place != "" {
			place += ": "
		}
		fmt.Fprintf(w, "  %s%s [%s]\n", wire.SafeText(place, 300), wire.SafeText(f.Message, 1000), wire.SafeText(f.Kind, 60))
		if f.Cost != "" {
			fmt.Fprintf(w, "      lost by it: %s\n", wire.SafeText(f.Cost, 300))
		}
	}
}
