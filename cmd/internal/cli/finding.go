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
		fmt.Fprintf(w, "  %s [%s]\n", f.Line(), wire.SafeText(f.Kind, 60))
		if cost := f.CostLine(); cost != "" {
			fmt.Fprintf(w, "      %s\n", cost)
		}
	}
}
