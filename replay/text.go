package replay

// This file is the report for people.

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"wiretape/capture"
	"wiretape/replay/internal/outcome"
	"wiretape/wire"
)

// Text writes the report for people: what was rebuilt, what is missing and why,
// and what to do about it. archive is the path to name.
func (r *Report) Text(w io.Writer, archive string) error {
	b := bufio.NewWriter(w)
	c := &r.Counts
	if r.Verdict == Failed {
		fmt.Fprintf(b, "failed: %s\n", wire.SafeText(r.Error, 0))
	} else {
		fmt.Fprintf(b, "%s: %s\n", archive, r.headline())
	}
	if len(r.Selection) > 0 {
		fmt.Fprintf(b, "  only      %s\n", wire.SafeText(strings.Join(r.Selection, "; "), 1000))
	}
	fmt.Fprintf(b, "  read      %s in %s of %s\n", humanize.IBytes(uint64(c.Bytes)), wire.Many(c.Frames, "frame"), wire.Many(c.Connections, "connection"))
	if r.Verdict != Failed {
		r.stored(b)
	}
	r.List.Text(b)
	if r.Quarantine != "" {
		fmt.Fprintf(b, "What could not be in the archive is in %s, with its bytes.\n", archive+quarantineSuffix)
	}
	if r.Verdict != Failed {
		for _, l := range r.advice() {
			fmt.Fprintln(b, l)
		}
	}
	return b.Flush()
}

// stored says what the archive holds, and what it does not.
func (r *Report) stored(b io.Writer) {
	c := &r.Counts
	if n := r.New; n != nil {
		fmt.Fprintf(b, "  new       %s in %s; %s, %s\n", humanize.IBytes(uint64(max(0, n.Bytes))), wire.Many(n.Frames, "frame"),
			change(n.Segments, "segment", ""), change(n.Rows, "live row", ", which segments hold now"))
	}
	fmt.Fprintf(b, "  stored    %s, %s, %s, %s of %s\n", wire.Many(c.Segments, "segment"), wire.Many(c.Rows, "live row"),
		wire.Many(c.IndexEntries, "index entry"), wire.Many(c.ClockOffsets, "clock offset"), wire.Many(c.Sources, "source"))
	line := func(what string, parts ...string) {
		first := true
		for _, p := range parts {
			if p == "" {
				continue
			}
			if first {
				fmt.Fprintf(b, "  %-9s %s", what, p)
			} else {
				fmt.Fprintf(b, ", %s", p)
			}
			first = false
		}
		if !first {
			fmt.Fprintln(b)
		}
	}
	andAgain := func(what, why string) string {
		if what == "" {
			return ""
		}
		return what + " (" + why + ")"
	}
	some := func(n int64, what string) string {
		if n == 0 {
			return ""
		}
		return wire.Many(n, what)
	}
	line("twice", andAgain(some(c.SegmentsHeld, "segment"), "sent again"), andAgain(some(c.RowsHeld+c.RowsSuperseded, "row"), "in a segment or sent again"))
	line("missing", some(c.Gaps, "gap"), some(c.RowsSkipped, "skipped row"), some(c.FramesRefused, "refused frame"), some(c.KindsSkipped, "frame")+ofUnknownKind(c.KindsSkipped))
	line("aside", some(c.SegmentsQuarantined, "segment"), some(c.RowsConflicting, "conflicting row"), some(c.RowsBelowWatermark, "unreadable row"))
	for i := range r.Source {
		r.Source[i].text(b)
	}
	lossLines(b, r.Nobodys, 0)
	if r.SourcesOmitted > 0 {
		fmt.Fprintf(b, "… and %s in the archive\n", wire.Many(r.SourcesOmitted, "more source"))
	}
	if len(r.Unchecked) > 0 {
		fmt.Fprintln(b, "not checked (no fault)")
		for _, why := range slices.Sorted(maps.Keys(r.Unchecked)) {
			fmt.Fprintf(b, "  %6d  %s\n", r.Unchecked[why], wire.SafeText(why, 200))
		}
	}
}

// change says how many more or fewer there are, and of fewer why.
func change(n int64, what, why string) string {
	if n < 0 {
		return wire.Many(-n, what) + " fewer" + why
	}
	return wire.Many(n, what)
}

// headline says what a rebuild that did not fail came to.
func (r *Report) headline() string {
	what, whole := "rebuilt", " whole"
	if len(r.Selection) > 0 {
		what, whole = "rebuilt in part, as selected", ""
	}
	l := r.Losses
	switch {
	case r.Verdict == Clean && l.Found == 0:
		return what + whole + ", nothing to report"
	case r.Verdict == Clean:
		return what + whole + ", all losses made good by other captured data"
	case l.Missing > 0 && l.Unknown > 0:
		return what + ", with " + wire.Count(l.Missing, "loss") + " not made good, and " + wire.Itoa(l.Unknown) + " of which it can't be told"
	case l.Missing > 0:
		return what + ", with " + wire.Count(l.Missing, "loss") + " not made good"
	case l.Unknown > 0:
		return what + ", with " + wire.Count(l.Unknown, "loss") + " of which it can't be told what is missing"
	case l.Found > 0:
		return what + ", all losses made good by other captured data, with findings"
	}
	return what + ", with findings"
}

// advice says what would close what is missing, where something would.
func (r *Report) advice() (lines []string) {
	l := r.Losses
	l.Missing -= r.growing.Missing
	l.Unknown -= r.growing.Unknown
	if n := r.growing.Missing + r.growing.Unknown; n > 0 {
		lines = append(lines, wire.Count(n, "loss")+" at the end of what is still being recorded: the rest comes when the recorder has written it; build again, or with --update or --follow.")
	}
	if l.Missing > 0 {
		lines = append(lines, wire.Count(l.Missing, "loss")+" not made good by other captured data: a capture of another connection or "+
			"site that covers the time, given together with these inputs, closes it.")
	}
	if l.Unknown > 0 {
		lines = append(lines, wire.Count(l.Unknown, "loss")+" of which it can't be told what was lost, and so not whether other captured data holds it.")
	}
	if r.lacks() {
		lines = append(lines, "Files that are missing, or a whole capture of the very connection by somebody else, given together with these inputs, close what "+
			"is lost by bytes that are not here.")
	}
	return lines
}

// lacks says that bytes are not here which nothing else was proved to hold.
func (r *Report) lacks() bool {
	open := func(l Loss) bool {
		return l.State == LossUnknown && (isHole(l.Kind) || l.Kind == capture.KindMissingConnection)
	}
	return slices.ContainsFunc(r.Nobodys, open) || slices.ContainsFunc(r.Source, func(s ReportSource) bool { return slices.ContainsFunc(s.Losses, open) })
}

func ofUnknownKind(n int64) string {
	if n == 0 {
		return ""
	}
	return " of an unknown kind"
}

// text writes what the archive holds of a source, and its losses.
func (s *ReportSource) text(b io.Writer) {
	state := "still being recorded when the capture ended"
	if s.Complete {
		state = "complete"
	}
	fmt.Fprintf(b, "source %s  %s  (%s", wire.SafeText(s.UUID, 80), label(s.Labels), state)
	if s.Encoder != "" {
		fmt.Fprintf(b, ", encoder %s", wire.SafeText(s.Encoder, 60))
	}
	fmt.Fprintln(b, ")")
	for i, st := range s.Streams {
		if i == maxTextStreams {
			fmt.Fprintf(b, "  … and %s, with --json\n", wire.Many(int64(len(s.Streams)-i), "more stream"))
			break
		}
		fmt.Fprintf(b, "  %-32s", wire.SafeText(st.Stream, 60))
		if st.Sealed != nil {
			fmt.Fprintf(b, "  %s sealed, %s", wire.Many(st.Segments, "segment"), between(*st.Sealed))
		}
		if st.Live != nil {
			fmt.Fprintf(b, "  %s live, %s", wire.Many(st.Rows, "row"), between(*st.Live))
		}
		fmt.Fprintln(b)
	}
	if s.StreamsOmitted > 0 {
		fmt.Fprintf(b, "  … and %s, in the archive alone\n", wire.Many(s.StreamsOmitted, "more stream"))
	}
	lossLines(b, s.Losses, s.LossesOmitted)
}

// lossLines lists the first losses; omitted are not among them.
func lossLines(b io.Writer, losses []Loss, omitted int64) {
	for i, l := range losses {
		if i == maxTextStreams {
			fmt.Fprintf(b, "  … and %s, all of them with --json\n", wire.Many(int64(len(losses)-i)+omitted, "more loss"))
			break
		}
		fmt.Fprintf(b, "  loss: %s\n", l.text())
	}
}

// maxTextStreams is how many streams, and how many losses, of a source the text
// lists.
const maxTextStreams = 40

func between(t [2]int64) string { return outcome.UTC(t[0]) + " to " + outcome.UTC(t[1]) }
