// Package replay rebuilds what the receiver of a recorded stream would have
// had, and says what is missing.
//
// For dendro that is the archive: [Build] reads every connection of a
// [capture.Set], applies the rules that a subscriber follows (package dendro)
// and contributes what they let through to an [archive.Stage], which decides
// what the archive holds as a function of all that was captured (docs/merging.md).
//
// One goroutine reads and decodes, the checks of segments run beside it, and
// one goroutine writes to SQLite. What is between them is bounded, so memory
// stays flat however long the streams are.
package replay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"wiretape/capture"
	"wiretape/internal/unfinished"
	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// BadSegmentPolicy is what becomes of a segment whose check finds a fault.
type BadSegmentPolicy string

const (
	// Quarantine sets it aside in OUT.quarantine/; no watermark moves.
	Quarantine BadSegmentPolicy = "quarantine"
	// Refuse ends the rebuild.
	Refuse BadSegmentPolicy = "refuse"
	// Keep stores it as the crate would, unproved: it still may not shadow rows.
	Keep BadSegmentPolicy = "keep"
)

// Options are how an archive is built.
type Options struct {
	// Archive is the path of the archive, which must not exist.
	Archive string
	// Schema is 4 or 5; 0 is 5.
	Schema int
	// Check is how deep the Parquet of segments is checked.
	Check segment.Depth
	// OnBadSegment is Quarantine unless set.
	OnBadSegment BadSegmentPolicy
	// Separate keeps each handshake its own source, as the crate does.
	Separate bool
	// Encoder refuses sources that name another one, "" takes all.
	Encoder string
	// Select is what part of the input is asked for.
	Select Selection
	// Strict ends the rebuild at the first thing that the crate would refuse.
	Strict bool
	// Picture finds out what the report's HTML page draws.
	Picture bool
	// Tool is the tool's version for the archive's report.
	Tool string
	// Progress is told how far reading is; it must be quick. May be nil.
	Progress func(Progress)
}

// Progress is how far a rebuild is.
type Progress struct {
	// Read and Total are bytes of input, all passes together.
	Read, Total int64
	// Frames read.
	Frames int64
}

// ErrNothing: the selection matches nothing in the input.
var ErrNothing = errors.New("the selection matches nothing in the input")

// ErrExists: the archive's name is taken.
var ErrExists = unfinished.ErrExists

// RefusedError: the rebuild was told to end at this.
type RefusedError struct{ Finding wire.Finding }

// Error is the finding's message; the place is in the finding.
func (e *RefusedError) Error() string { return e.Finding.Message }

// Build makes the archive of a set's dendro connections. The report is given
// also with an error, as far as it got. On an error nothing is left under the
// archive's name.
func Build(set *capture.Set, opt Options) (*Report, error) {
	r := newReport()
	err := rebuild(set, opt, r)
	if err != nil {
		// No archive was made: nothing is stored.
		c := &r.Counts
		c.Rows, c.Segments, c.IndexEntries, c.ClockOffsets = 0, 0, 0, 0
		r.Source, r.SourcesOmitted = []ReportSource{}, 0
	}
	r.finish(err)
	return r, err
}

func rebuild(set *capture.Set, opt Options, r *Report) (err error) {
	if opt.OnBadSegment == "" {
		opt.OnBadSegment = Quarantine
	}
	if opt.Schema == 0 {
		opt.Schema = archive.SchemaCurrent
	}
	if _, err := os.Lstat(opt.Archive); err == nil {
		return fmt.Errorf("%s %w", opt.Archive, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := ownAside(opt.Archive + quarantineSuffix); err != nil {
		return err
	}
	b := &builder{opt: opt, report: r, set: set}
	b.sources = newRegistry(opt.Separate, filepath.Dir(opt.Archive), b.locked)
	defer func() { err = errors.Join(err, b.sources.words.close()) }()
	absent := slices.Concat(set.Findings, set.Absent())
	b.addAll(absent)
	b.absent = absentLosses(absent)
	used := map[string]bool{}
	for _, c := range set.Connections {
		if c.Protocol == dendro.Name {
			used[c.ID] = true
		}
	}
	for _, c := range set.Connections {
		switch c.Protocol {
		case dendro.Name:
			b.addAll(c.Findings)
			b.conns = append(b.conns, &connection{Connection: c, number: len(b.conns)})
		default:
			b.report.other(c, used[c.Pair])
		}
	}
	if len(b.conns) == 0 {
		return errors.New("no dendro connection in the input")
	}
	return b.build()
}
