// Package journal rebuilds a replica's journal from recordings of melin's
// replication links, and proves what can be proved of it.
//
// A build goes over the input in steps:
//
//  1. Survey: every connection is read once, in both directions. What it
//     carries is noted as stretches of sequences with their places, the chain
//     hashes that it names, and what is damaged. Snapshots and seeds become
//     files, acks go to the catalogue.
//  2. Lineages: connections that name the same chain hash at the same sequence
//     have one history. For each lineage a plan says which connection gives
//     which sequence.
//  3. Repeats: a sequence that several connections carry is compared, byte for
//     byte. Where two epochs differ the lineage forks.
//  4. Writing: the entries in order, cut into segments at each Rotate, as a
//     replica has them, and into the catalogue. The chain is computed on the
//     way and held against every hash that was named.
//  5. Reading back: every file that was written is read again and checked by
//     itself.
//
// Nothing is under the output's name before all of it is done. Memory does not
// grow with the input but for one note per stretch, hash and damage, of which
// there are limits.
package journal

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"wiretape/capture"
	"wiretape/internal/unfinished"
	"wiretape/wire"
)

// Limits on what is noted of the input.
const (
	// maxStretches, maxPoints and maxDamages are of one connection.
	maxStretches = 1 << 18
	maxPoints    = 1 << 20
	maxDamages   = 1 << 16
	// maxSegments are named by one connection, maxBodies sent by all: each is
	// a file.
	maxSegments = 1 << 16
	maxBodies   = 1 << 12
	// maxJoins bounds the comparisons by which connections without a common
	// hash are found to have one history.
	maxJoins = 10_000
	// maxPairs bounds the signatures that are tried to pair directions.
	maxPairs = 10_000
)

// Options are how a journal is built.
type Options struct {
	// Progress is told how far reading is; it must be quick. May be nil.
	Progress func(Progress)
}

// Progress is how far a build is.
type Progress struct {
	// Read is bytes of input read, Total those of the survey: the later steps
	// add to Total what they will read.
	Read, Total int64
	// Frames read in the survey.
	Frames int64
}

// ErrExists: the output's name is taken.
var ErrExists = unfinished.ErrExists

// ErrNothing: no melin connection is in the input.
var ErrNothing = errors.New("no melin connection in the input")

// Build makes out, a folder that must not exist, from the melin connections of
// a set. The report is given also with an error, as far as it got; on an error
// nothing is left under out.
func Build(set *capture.Set, out string, opt Options) (*Report, error) {
	b := &builder{opt: opt, report: newReport()}
	err := b.run(set, out)
	b.report.finish(err)
	return b.report, err
}

type builder struct {
	opt      Options
	report   *Report
	dir      string // the output under its temporary name
	cat      *catalogue
	links    []*link
	lineages []*lineage
	progress Progress
	bodies   int
}

func (b *builder) run(set *capture.Set, out string) (err error) {
	for _, f := range slices.Concat(set.Findings, set.Absent()) {
		b.report.add(f)
	}
	b.links = b.collect(set)
	if len(b.links) == 0 {
		return ErrNothing
	}
	folder, err := unfinished.Start(filepath.Clean(out))
	if err != nil {
		return err
	}
	b.dir = folder.Path()
	err = b.fill()
	if err == nil {
		err = folder.Publish()
	}
	if err != nil {
		return errors.Join(err, folder.Abandon())
	}
	return nil
}

// fill makes everything in the folder.
func (b *builder) fill() (err error) {
	if b.cat, err = newCatalogue(filepath.Join(b.dir, CatalogueName)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			b.cat.abandon()
		}
	}()
	if err := b.build(); err != nil {
		return err
	}
	if err := b.conclude(); err != nil {
		return err
	}
	return filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unfinished.SyncFolder(path)
	})
}

func (b *builder) build() error {
	for _, l := range b.links {
		if err := b.survey(l); err != nil {
			return err
		}
	}
	lineages, err := b.trace()
	if err != nil {
		return err
	}
	// A fork gives two lineages, of which each is looked at anew.
	for len(lineages) > 0 {
		g := lineages[0]
		lineages = lineages[1:]
		g.plan()
		forks, err := b.compare(g)
		if err != nil {
			return err
		}
		if forks != nil {
			lineages = append(forks, lineages...)
			continue
		}
		g.number = len(b.lineages) + 1
		b.lineages = append(b.lineages, g)
	}
	for _, g := range b.lineages {
		if err := b.write(g); err != nil {
			return err
		}
		if err := b.readBack(g); err != nil {
			return err
		}
	}
	return nil
}

// found reports a finding of a run, with its connection and file; one that has
// its file lies where it says, which may be before the run.
func (b *builder) found(run *capture.Run, f wire.Finding) {
	if f.File == "" {
		f = run.Locate(f)
	}
	b.report.add(f)
}

func (b *builder) read(n int64) {
	b.progress.Read += n
	if b.opt.Progress != nil {
		b.opt.Progress(b.progress)
	}
}
