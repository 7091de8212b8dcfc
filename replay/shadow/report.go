package shadow

// This file is the report of a build: a documented contract (docs/aewr.md), as
// one JSON object and as text for people.

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"wiretape/replay/internal/outcome"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// The verdicts of a build; the exit codes follow them.
const (
	Clean    = outcome.Clean
	Findings = outcome.Found
	Failed   = outcome.Failed
)

// textLines is how many connections, and how many shadows, the text shows.
const textLines = 20

// Report is the report of a build.
type Report struct {
	outcome.Outcome
	// Tool is the name and version of the program that built it.
	Tool string `json:"tool"`
	// Mismatches are the sessions whose peers speak different versions: first,
	// because nothing else in such a session means what it seems to.
	Mismatches  []VersionMismatch  `json:"version_mismatches"`
	Counts      Counts             `json:"counts"`
	Connections []ReportConnection `json:"connections"`
	// Other are the input's connections of other protocols; they are not used.
	Other []OtherConnection `json:"other_connections,omitempty"`
	// Requests by state, Transactions by outcome, Types by message type.
	Requests     map[string]int64 `json:"requests"`
	Transactions map[string]int64 `json:"transactions"`
	Types        map[string]int64 `json:"message_types"`
	Shadows      []ReportShadow   `json:"shadows"`
	outcome.List
}

// Counts are counters over all connections.
type Counts struct {
	Sessions          int64 `json:"sessions"`
	Frames            int64 `json:"frames"`
	FramesOpaque      int64 `json:"frames_opaque"`
	FramesMalformed   int64 `json:"frames_malformed"`
	FramesUnknown     int64 `json:"frames_unknown"`
	Bytes             int64 `json:"bytes"`
	BytesLost         int64 `json:"bytes_lost"`
	ChecksumsBad      int64 `json:"checksums_bad"`
	RequestsOpen      int64 `json:"requests_open"`
	RequestsUncertain int64 `json:"requests_uncertain"`
	AnswersAlone      int64 `json:"answers_alone"`
	ResultRows        int64 `json:"result_rows"`
	TransactionsBoth  int64 `json:"transactions_both"`
	Heartbeats        int64 `json:"heartbeats"`
	PongsPaired       int64 `json:"pongs_paired"`
	PongsAlone        int64 `json:"pongs_alone"`
	PongsBeforePing   int64 `json:"pongs_before_ping"`
	MaxLagBytes       int64 `json:"max_lag_bytes"`
	MaxRoundTrip      int64 `json:"max_round_trip_ns"`
	Epochs            int64 `json:"epochs"`
	FenceViolations   int64 `json:"fence_violations"`
	Migrations        int64 `json:"migrations"`
	Fetches           int64 `json:"fetches"`
	FetchesUnanswered int64 `json:"fetches_not_held"`
	Chunks            int64 `json:"chunks"`
	ChunksSetAside    int64 `json:"chunks_set_aside"`
	SegmentBytes      int64 `json:"segment_bytes"`
	ShadowBytes       int64 `json:"shadow_bytes"`
}

// ReportConnection is one connection.
type ReportConnection struct {
	ID        string   `json:"connection"`
	Session   int64    `json:"session"`
	Peer      string   `json:"peer,omitempty"`
	Direction string   `json:"direction"`
	Versions  []uint16 `json:"versions"`
	Frames    int64    `json:"frames"`
	Bytes     int64    `json:"bytes"`
	Lost      int64    `json:"bytes_lost"`
	Ending    string   `json:"ending"`
}

// OtherConnection is a connection that is not used.
type OtherConnection struct {
	Connection string `json:"connection"`
	Protocol   string `json:"protocol"`
}

// ReportShadow is one container's shadow.
type ReportShadow struct {
	Tenant         uint64 `json:"tenant_id"`
	Container      uint64 `json:"container_id"`
	File           string `json:"file"`
	Length         uint64 `json:"length"`
	Bytes          int64  `json:"bytes"`
	Missing        int64  `json:"missing"`
	Chunks         int64  `json:"chunks"`
	ChunksSetAside int64  `json:"chunks_set_aside"`
	Holes          int64  `json:"holes"`
	Overlaps       int64  `json:"overlaps"`
}

// VersionMismatch is a session whose peers speak different versions.
type VersionMismatch struct {
	Session     int64      `json:"session"`
	Connections []string   `json:"connections"`
	Older       uint16     `json:"older"`
	Newer       uint16     `json:"newer"`
	FirstOlder  FirstFrame `json:"first_older"`
	FirstNewer  FirstFrame `json:"first_newer"`
	// Misread is what the older peer would have made of the newer one's frames
	// that were recorded, had it not refused them.
	Misread []Misread `json:"misread"`
}

// FirstFrame is the first frame of a version.
type FirstFrame struct {
	Connection string `json:"connection"`
	File       string `json:"file"`
	Offset     int64  `json:"offset"`
	Name       string `json:"name"`
}

// Misread is one change of the protocol between two versions, and how many
// frames it concerns.
type Misread struct {
	Version uint16   `json:"version"`
	Types   []string `json:"types,omitempty"`
	Frames  int64    `json:"frames"`
	What    string   `json:"what"`
}

func newReport(tool string) *Report {
	return &Report{Tool: tool, Mismatches: []VersionMismatch{}, Connections: []ReportConnection{}, Requests: map[string]int64{},
		Transactions: map[string]int64{}, Types: map[string]int64{}, Shadows: []ReportShadow{}, List: outcome.NewList()}
}

// maxTypes bounds the types that are counted by name.
const maxTypes = 256

func (r *Report) frameOf(t uint16) {
	name := typeName(t)
	if t == aewr.Migrate09 || t == aewr.Migrate0A || t == aewr.Migrate0B || t == aewr.Migrate10 {
		name += fmt.Sprintf(" (0x%02x)", t)
	}
	if _, ok := r.Types[name]; !ok && len(r.Types) >= maxTypes {
		name = "other"
	}
	r.Types[name]++
}

func (r *Report) add(f wire.Finding) { r.Note(f) }

// conclude sets the verdict.
func (r *Report) conclude(err error) { r.Settle(err, &r.List) }

// Text writes the report for people; dir is the build's folder, to name it. A
// version mismatch is said before everything else.
func (r *Report) Text(w io.Writer, dir string) error {
	b := bufio.NewWriter(w)
	for _, m := range r.Mismatches {
		m.text(b)
	}
	c := &r.Counts
	switch r.Verdict {
	case Failed:
		fmt.Fprintf(b, "failed: %s\n", wire.SafeText(r.Error, 0))
		return b.Flush()
	case Clean:
		fmt.Fprintf(b, "%s: rebuilt whole, nothing to report\n", dir)
	default:
		fmt.Fprintf(b, "%s: rebuilt, with findings\n", dir)
	}
	fmt.Fprintf(b, "  read          %s in %s of %s, %s\n", humanize.IBytes(uint64(max(c.Bytes, 0))), wire.Many(c.Frames, "frame"),
		wire.Many(int64(len(r.Connections)), "connection"), wire.Many(c.Sessions, "session"))
	if c.BytesLost > 0 {
		fmt.Fprintf(b, "  stepped over  %s\n", wire.Many(c.BytesLost, "byte"))
	}
	fmt.Fprintf(b, "  requests      %s\n", words(r.Requests))
	fmt.Fprintf(b, "  results       %s\n", wire.Many(c.ResultRows, "row"))
	fmt.Fprintf(b, "  transactions  %s\n", words(r.Transactions))
	if c.FetchesUnanswered > 0 {
		fmt.Fprintf(b, "  fetches       %s, of %s the shadows lack bytes\n", humanize.Comma(c.Fetches), humanize.Comma(c.FetchesUnanswered))
	}
	fmt.Fprintf(b, "  heartbeats    %s, %s paired with a ping", humanize.Comma(c.Heartbeats), wire.Many(c.PongsPaired, "pong"))
	if c.MaxLagBytes > 0 {
		fmt.Fprintf(b, ", largest lag %s", humanize.IBytes(uint64(c.MaxLagBytes)))
	}
	fmt.Fprintf(b, "\n  epochs        %s, %s of the fence\n", humanize.Comma(c.Epochs), wire.Many(c.FenceViolations, "violation"))
	if c.Migrations > 0 {
		fmt.Fprintf(b, "  migrations    %s\n", humanize.Comma(c.Migrations))
	}
	if c.RequestsUncertain > 0 {
		fmt.Fprintf(b, "  uncertain     %s whose answer is not certain: bytes are missing around it\n", wire.Many(c.RequestsUncertain, "request"))
	}
	for i, k := range r.Connections {
		if i == textLines {
			fmt.Fprintf(b, "  … and %s more\n", wire.Many(int64(len(r.Connections)-i), "connection"))
			break
		}
		fmt.Fprintf(b, "  %s  session %d, %s, version %s, %s, ending %s\n", wire.SafeText(k.ID, 80), k.Session, k.Direction, versions(k.Versions), wire.Many(k.Frames, "frame"), k.Ending)
	}
	if len(r.Shadows) > 0 {
		fmt.Fprintln(b, "shadows")
	}
	for i, s := range r.Shadows {
		if i == textLines {
			fmt.Fprintf(b, "  … and %s more, all of them in the catalogue\n", wire.Many(int64(len(r.Shadows)-i), "shadow"))
			break
		}
		fmt.Fprintf(b, "  %s  %s of %s", s.File, humanize.IBytes(uint64(s.Bytes)), humanize.IBytes(s.Length))
		if s.Holes > 0 {
			fmt.Fprintf(b, ", %s, %s missing", wire.Many(s.Holes, "hole"), wire.Many(s.Missing, "byte"))
		}
		if s.Overlaps > 0 {
			fmt.Fprintf(b, ", %s", wire.Many(s.Overlaps, "differing overlap"))
		}
		fmt.Fprintln(b)
	}
	for _, o := range r.Other {
		fmt.Fprintf(b, "  %s is a %s connection and was not used\n", wire.SafeText(o.Connection, 80), wire.SafeText(o.Protocol, 20))
	}
	r.List.Text(b)
	return b.Flush()
}

func (m *VersionMismatch) text(b io.Writer) {
	fmt.Fprintf(b, "version mismatch: the peers of session %d speak versions %d and %d\n", m.Session, m.Older, m.Newer)
	for _, f := range []struct {
		version uint16
		at      FirstFrame
	}{{m.Older, m.FirstOlder}, {m.Newer, m.FirstNewer}} {
		fmt.Fprintf(b, "  first frame of version %d: %s at %s:%d\n", f.version, f.at.Name, wire.SafeText(f.at.File, 120), f.at.Offset)
	}
	if len(m.Misread) == 0 {
		fmt.Fprintf(b, "  none of the recorded frames of version %d would have been misread\n", m.Newer)
	}
	for _, x := range m.Misread {
		what := "frames with a tenant"
		if len(x.Types) > 0 {
			what = strings.Join(x.Types, " or ")
		}
		fmt.Fprintf(b, "  a peer of version %d would have misread %s %s (version %d): %s\n", m.Older, humanize.Comma(x.Frames), what, x.Version, x.What)
	}
}

// words are counts by word, in order, "none" when there are none.
func words(counts map[string]int64) string {
	var parts []string
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, humanize.Comma(counts[w])+" "+w)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func versions(all []uint16) string {
	var parts []string
	for _, v := range all {
		parts = append(parts, fmt.Sprint(v))
	}
	if len(parts) == 0 {
		return "not known"
	}
	return strings.Join(parts, " and ")
}

// JSON is the report as one object.
func (r *Report) JSON() []byte { return outcome.JSON(r) }
