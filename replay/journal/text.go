package journal

// This file is the report for people.

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"wiretape/replay/internal/outcome"
	"wiretape/wire"
)

// textLines is how many stretches, gaps and so on of one kind the text shows;
// the report as JSON has them all.
const textLines = 5

// Text writes the report for people. out is the output's path.
func (r *Report) Text(w io.Writer, out string) error {
	b := bufio.NewWriter(w)
	switch r.Verdict {
	case FailedBuild:
		fmt.Fprintf(b, "failed: %s\n", wire.SafeText(r.Error, 0))
	case Clean:
		fmt.Fprintf(b, "%s: rebuilt whole, nothing to report\n", out)
	default:
		fmt.Fprintf(b, "%s: rebuilt, with findings\n", out)
	}
	for i := range r.Connections {
		r.Connections[i].text(b)
	}
	for _, g := range r.Lineages {
		g.text(b, out)
	}
	r.List.Text(b)
	return b.Flush()
}

func (x *ReportConnection) text(b io.Writer) {
	fmt.Fprintf(b, "connection %s", wire.SafeText(x.ID, 100))
	if !x.Used {
		fmt.Fprintf(b, ": %s, not read\n", cmp.Or(x.Protocol, "no protocol that is known"))
		return
	}
	fmt.Fprintf(b, " %s, %s, %s", x.Direction, humanize.IBytes(uint64(x.Bytes)), wire.Many(int64(x.Frames), "frame"))
	if x.FirstSequence != nil {
		fmt.Fprintf(b, ", %s", rangeText(*x.FirstSequence, *x.LastSequence))
	}
	fmt.Fprintln(b)
	switch x.LayoutFrom {
	case "ambiguous":
		fmt.Fprintf(b, "  layout    %s taken, and ambiguous: %s fit\n", x.Layout, x.Layouts)
	case "taken":
		fmt.Fprintf(b, "  layout    %s taken, nothing recorded tells it\n", x.Layout)
	default:
		fmt.Fprintf(b, "  layout    %s, by its %s\n", x.Layout, x.LayoutFrom)
	}
	if !x.Clean {
		fmt.Fprintf(b, "  ending    %s: not all of it was read\n", x.Ending)
	}
}

func (g *ReportLineage) text(b io.Writer, out string) {
	fmt.Fprintf(b, "lineage %d: %s", g.Number, wire.Many(int64(g.Entries), "entry"))
	if g.FirstSequence != nil {
		fmt.Fprintf(b, ", %s", rangeText(*g.FirstSequence, *g.LastSequence))
	}
	if g.FirstTimeNs != nil {
		fmt.Fprintf(b, ", %s to %s", outcome.UTC(*g.FirstTimeNs), outcome.UTC(*g.LastTimeNs))
	}
	fmt.Fprintln(b)
	for _, f := range g.Files {
		fmt.Fprintf(b, "  file      %s, %s, %s\n", filepath.Join(out, filepath.FromSlash(f.File)), humanize.IBytes(uint64(f.Bytes)), entriesText(f))
	}
	switch {
	case len(g.Files) > 0:
	case g.Entries == 0:
		fmt.Fprintf(b, "  file      none: no entry of this lineage is in the recording\n")
	default:
		fmt.Fprintf(b, "  file      none: the catalogue alone has this lineage\n")
	}
	for _, x := range g.Bodies {
		beside := ""
		if x.Beside != "" {
			beside = ", also " + filepath.Join(out, x.Beside, SnapshotName)
		}
		fmt.Fprintf(b, "  %-9s %s, %s, %s%s\n", x.Kind, filepath.Join(out, x.File), humanize.IBytes(x.Bytes), x.Verdict, beside)
	}
	several(b, len(g.Stretches), "stretch", func(i int) {
		s := g.Stretches[i]
		from := ""
		if s.Seed {
			from = "'s seed"
		}
		fmt.Fprintf(b, "  from      %s: connection %s%s\n", rangeText(s.First, s.Last), wire.SafeText(s.Connection, 100), from)
	})
	several(b, len(g.Gaps), "gap", func(i int) {
		x := g.Gaps[i]
		closed := "not closed"
		if x.Closed {
			closed = "closed by another connection"
		}
		fmt.Fprintf(b, "  gap       %s on connection %s at %d, %s\n", rangeText(x.First, x.Last), wire.SafeText(x.Connection, 100), x.Offset, closed)
	})
	several(b, len(g.Missing), "missing range", func(i int) {
		x := g.Missing[i]
		fmt.Fprintf(b, "  missing   %s", rangeText(x.First, x.Last))
		if x.AfterNs != nil && x.BeforeNs != nil {
			fmt.Fprintf(b, ", %s to %s", outcome.UTC(*x.AfterNs), outcome.UTC(*x.BeforeNs))
		}
		fmt.Fprintf(b, ": %s\n", wire.SafeText(x.Reason, 300))
		if x.Covered {
			fmt.Fprintf(b, "            a snapshot holds what they did to the state\n")
		}
		fmt.Fprintf(b, "            closed by %s\n", x.Closes)
	})
	for _, p := range g.Proofs {
		fmt.Fprintf(b, "  %-9s %s\n", p.Proof, p.text())
	}
}

// checked is what each kind of check looks at: what was proved, and what failed
// or is not provable.
var checked = map[string][2]string{
	"slot-crc": {"entry", "entry"}, "sequences": {"", "hole"}, "repeats": {"repeat", "repeat"}, "bodies": {"body", "body"},
	"chain": {"hash", "hash"}, "acks": {"ack", "connection"}, "epochs": {"connection", "connection"},
}

// text is what became of the checks of one kind, for people.
func (p *Proof) text() string {
	unit := checked[p.Proof]
	var parts []string
	say := func(n int64, verdict ProofVerdict, unit string) {
		switch {
		case n == 0:
		case unit == "" || verdict == NotProvable && p.Verdict == NotProvable:
			parts = append(parts, string(verdict))
		default:
			parts = append(parts, string(verdict)+" for "+wire.Many(n, unit))
		}
	}
	say(p.Failed, Failed, unit[1])
	say(p.Proved, Proved, unit[0])
	say(p.NotProvable, NotProvable, unit[1])
	text := strings.Join(parts, ", ")
	var reasons []string
	for i, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		if i == textLines {
			reasons = append(reasons, "…")
			break
		}
		reasons = append(reasons, wire.SafeText(reason, 200))
	}
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons, "; ")
	}
	return text
}

func entriesText(f ReportFile) string {
	if f.Entries == 0 {
		return "no entries yet, from sequence " + wire.Utoa(f.Start)
	}
	if f.Kind != "segment" {
		return rangeText(f.Start, f.Last) + " without their segment's beginning"
	}
	return rangeText(f.Start, f.Last)
}

// several shows the first few of n.
func several(b io.Writer, n int, what string, show func(i int)) {
	for i := range min(n, textLines) {
		show(i)
	}
	if n > textLines {
		fmt.Fprintf(b, "            and %s\n", wire.Many(int64(n-textLines), "more "+what))
	}
}
