package replay

// This file is the report of a rebuild: a documented contract
// (docs/report.md), as one JSON object and as text for people.

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"wiretape/replay/archive"
	"wiretape/replay/internal/outcome"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// Verdict is what a rebuild comes to; the exit codes follow it.
type Verdict = outcome.Verdict

// The verdicts.
const (
	Clean    = outcome.Clean
	Findings = outcome.Found
	Failed   = outcome.Failed
)

// The kinds of findings that a rebuild adds to those of wire, capture, segment
// and archive.
const (
	// KindEncoder: connections of one source name different encoders.
	KindEncoder = "encoder-differs"
	// KindAnchor: connections of one source have different clock anchors.
	KindAnchor = "clock-anchor-differs"
	// KindInterruption: a time between two connections of a source that neither
	// covers.
	KindInterruption = "interruption"
)

// Report is the report of a rebuild.
type Report struct {
	outcome.Outcome
	// Losses counts what was lost, and how much of it was made good.
	Losses Losses `json:"losses"`
	// growing are those of Losses whose rest a recorder has yet to write.
	growing Losses
	Counts  ReportCounts `json:"counts"`
	// New is what of Counts came with this run, where an archive that was there
	// was added to: Counts is of all runs. Nil for an archive made at once.
	New    *ReportCounts  `json:"new,omitempty"`
	Inputs []ReportInput  `json:"connections"`
	Source []ReportSource `json:"sources"`
	// SourcesOmitted is how many more there are, in the archive alone.
	SourcesOmitted int64 `json:"sources_omitted,omitempty"`
	// Nobodys are the losses of which no source is known.
	Nobodys []Loss `json:"losses_of_no_source,omitempty"`
	// Quarantine is the name of the folder beside the archive that holds what
	// was set aside, "" when nothing was.
	Quarantine string `json:"quarantine,omitempty"`
	// Selection says what part of the input was asked for, nil for all of it.
	Selection []string `json:"selection,omitempty"`
	// Unchecked is what could not be checked and how often: no fault.
	Unchecked map[string]int64 `json:"unchecked,omitempty"`
	outcome.List
	// listed is how many bytes of maxReportBytes are used.
	listed int
}

// ReportCounts are the crate's own counters under their names, and ours.
type ReportCounts struct {
	Sources       int64 `json:"sources"`
	SourceUpdates int64 `json:"source_updates"`
	IndexEntries  int64 `json:"index_entries"`
	// Rows stored.
	Rows         int64 `json:"rows"`
	RowsSkipped  int64 `json:"rows_skipped"`
	Segments     int64 `json:"segments"`
	SegmentsHeld int64 `json:"segments_held"`
	ClockOffsets int64 `json:"clock_offsets"`
	KindsSkipped int64 `json:"kinds_skipped"`

	Gaps                int64 `json:"gaps"`
	RowsHeld            int64 `json:"rows_held"`
	RowsConflicting     int64 `json:"rows_conflicting"`
	RowsBelowWatermark  int64 `json:"rows_below_watermark"`
	RowsSuperseded      int64 `json:"rows_superseded"`
	SegmentsQuarantined int64 `json:"segments_quarantined"`
	Frames              int64 `json:"frames"`
	FramesRefused       int64 `json:"frames_refused"`
	Bytes               int64 `json:"bytes"`
	// Connections that the frames and bytes are of.
	Connections int64 `json:"connections"`
}

// minus is what came since old.
func (c ReportCounts) minus(old ReportCounts) ReportCounts {
	c.Sources -= old.Sources
	c.SourceUpdates -= old.SourceUpdates
	c.IndexEntries -= old.IndexEntries
	c.Rows -= old.Rows
	c.RowsSkipped -= old.RowsSkipped
	c.Segments -= old.Segments
	c.SegmentsHeld -= old.SegmentsHeld
	c.ClockOffsets -= old.ClockOffsets
	c.KindsSkipped -= old.KindsSkipped
	c.Gaps -= old.Gaps
	c.RowsHeld -= old.RowsHeld
	c.RowsConflicting -= old.RowsConflicting
	c.RowsBelowWatermark -= old.RowsBelowWatermark
	c.RowsSuperseded -= old.RowsSuperseded
	c.SegmentsQuarantined -= old.SegmentsQuarantined
	c.Frames -= old.Frames
	c.FramesRefused -= old.FramesRefused
	c.Bytes -= old.Bytes
	c.Connections -= old.Connections
	return c
}

// namedCount is one count with its name in the report.
type namedCount struct {
	name string
	n    int64
}

// frame counts a frame by what became of it.
func (c *ReportCounts) frame(out *dendro.Outcome) {
	c.Frames++
	switch out.Disposition {
	case dendro.Refused, dendro.Unknown:
		c.FramesRefused++
	case dendro.UnknownKind:
		c.KindsSkipped++
	}
}

// list gives the counts in the order of the contract.
func (c *ReportCounts) list() []namedCount {
	return []namedCount{{"sources", c.Sources}, {"source_updates", c.SourceUpdates}, {"index_entries", c.IndexEntries},
		{"rows", c.Rows}, {"rows_skipped", c.RowsSkipped}, {"segments", c.Segments}, {"segments_held", c.SegmentsHeld},
		{"clock_offsets", c.ClockOffsets}, {"kinds_skipped", c.KindsSkipped}, {"gaps", c.Gaps}, {"rows_held", c.RowsHeld},
		{"rows_conflicting", c.RowsConflicting}, {"rows_below_watermark", c.RowsBelowWatermark},
		{"rows_superseded", c.RowsSuperseded}, {"segments_quarantined", c.SegmentsQuarantined},
		{"frames", c.Frames}, {"frames_refused", c.FramesRefused}, {"bytes", c.Bytes}, {"connections", c.Connections}}
}

// ReportInput is one connection of the input.
type ReportInput struct {
	ID       string `json:"connection"`
	Protocol string `json:"protocol"`
	Bytes    int64  `json:"bytes"`
	// Ending is "clean" or why the connection is not whole.
	Clean bool `json:"clean"`
	// Used is false for a connection of another protocol than the rebuild's.
	Used bool `json:"used"`
}

// ReportSource is one source of the archive.
type ReportSource struct {
	UUID string `json:"uuid"`
	// Minted says that the publisher sent no uuid.
	Minted bool              `json:"uuid_minted,omitempty"`
	Labels map[string]string `json:"labels"`
	// Encoder is what a reader of the archive needs.
	Encoder  string         `json:"encoder,omitempty"`
	Complete bool           `json:"complete"`
	Streams  []ReportStream `json:"streams"`
	// StreamsOmitted is how many more there are, in the archive alone.
	StreamsOmitted int64  `json:"streams_omitted,omitempty"`
	Losses         []Loss `json:"losses,omitempty"`
	// LossesOmitted is how many more there are.
	LossesOmitted int64 `json:"losses_omitted,omitempty"`
	// from and to are the times that its streams span, for the HTML page; empty:
	// there are none.
	from, to int64
	empty    bool
}

// ReportStream is what the archive holds of one stream. Times are nanoseconds
// since 1970.
type ReportStream struct {
	Stream   string    `json:"stream"`
	Segments int64     `json:"segments"`
	Rows     int64     `json:"rows"`
	Sealed   *[2]int64 `json:"sealed,omitempty"`
	Live     *[2]int64 `json:"live,omitempty"`
	// cover is the picture of it for the HTML page.
	cover *coverage
}

// maxLosses bounds the losses that are kept of one source on one connection.
const maxLosses = 10_000

// maxListed bounds the losses that are kept of all sources on one connection.
const maxListed = 100_000

// maxUnchecked bounds the reasons in Unchecked.
const maxUnchecked = 1_000

func (p *part) lose(l Loss) {
	if len(p.losses) >= maxLosses || p.conn.listed >= maxListed {
		p.moreLoss++
		return
	}
	p.conn.listed++
	if p.losses = append(p.losses, l); l.hole {
		p.unended = append(p.unended, len(p.losses)-1)
	}
}

// more is how many losses there are that losses does not list.
func (p *part) more() int64 { return p.moreLoss + p.conn.omitted[p.src.own] - p.omitted }

func newReport() *Report {
	return &Report{Inputs: []ReportInput{}, Source: []ReportSource{}, List: outcome.NewList()}
}

func (r *Report) add(f wire.Finding) { r.Note(f) }

// withdraw takes findings back that are none any more.
func (r *Report) withdraw(which func(wire.Finding) bool) {
	r.Findings = slices.DeleteFunc(r.Findings, func(f wire.Finding) bool {
		out := which(f)
		if out {
			if r.FindingsByKind[f.Kind]--; r.FindingsByKind[f.Kind] == 0 {
				delete(r.FindingsByKind, f.Kind)
			}
		}
		return out
	})
}

func (r *Report) note(why string) {
	if r.Unchecked == nil {
		r.Unchecked = map[string]int64{}
	}
	if _, ok := r.Unchecked[why]; ok || len(r.Unchecked) < maxUnchecked {
		r.Unchecked[why]++
	}
}

// finish settles the verdict and the order of the findings.
func (r *Report) finish(err error) {
	r.Sort()
	r.Settle(err, &r.List)
	if r.Verdict == Clean && r.Losses.Missing+r.Losses.Unknown > 0 {
		r.Verdict = Findings // also where no finding tells of a loss
	}
}

// DocumentKind, DocumentName and DocumentSchema name the report in the archive.
const (
	DocumentKind   = "wiretape.replay"
	DocumentName   = "report"
	DocumentSchema = "wiretape.replay.report/1"
)

// document is the report as the archive carries it: it depends on the inputs
// alone, so it has no folders and no times of its making.
func (r *Report) document() *archive.Document {
	r.finish(nil)
	return &archive.Document{Kind: DocumentKind, Name: DocumentName, Schema: DocumentSchema, Body: r.JSON()}
}

// JSON is the report as one object.
func (r *Report) JSON() []byte { return outcome.JSON(r) }

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// label is how people know a source.
func label(labels map[string]string) string { return archive.LabelWords(labels) }
