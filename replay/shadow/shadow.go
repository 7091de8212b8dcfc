// Package shadow rebuilds what an AEWR recording holds: the shadow of every
// container from its segment chunks, and a catalogue in SQLite of the sessions
// that were recorded: frames, requests with their results, transactions,
// heartbeats, epochs, migrations.
//
// A build is a folder. It is made beside its name, checks itself against what
// was read, and appears whole by one rename:
//
//	OUT/catalogue.sqlite
//	OUT/report.json
//	OUT/shadows/tenant-2-container-7.shadow     sparse: holes are zeros
//	OUT/shadows/tenant-2-container-7.map.json   which bytes are not
//
// The result depends on the set of connections alone, in the order of their
// ids, and on no order in which inputs were named.
package shadow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"wiretape/capture"
	"wiretape/internal/unfinished"
	"wiretape/wire/aewr"
)

const (
	shadowsName = "shadows"
	reportName  = "report.json"
)

// Options are how a build is made.
type Options struct {
	// Tool is the tool's version, for the catalogue and the report.
	Tool string
	// Progress is told how far reading is; it must be quick. May be nil.
	Progress func(Progress)
}

// Progress is how far a build is.
type Progress struct {
	// Read and Total are bytes of input. A second pass makes Total larger.
	Read, Total int64
	// Frames read.
	Frames int64
}

// ErrNone: the input has no connection of this protocol.
var ErrNone = errors.New("no aewr connection in the input")

// Build makes the build of a set's AEWR connections in the folder dir, which
// must not exist. The report is given also with an error, as far as it got. On
// an error nothing is left under the name.
func Build(set *capture.Set, dir string, opt Options) (*Report, error) {
	report := newReport(opt.Tool)
	err := build(set, dir, opt, report)
	report.conclude(err)
	return report, err
}

func build(set *capture.Set, dir string, opt Options, report *Report) error {
	var conns []*capture.Connection
	for _, c := range set.Connections {
		if c.Protocol == aewr.Name {
			conns = append(conns, c)
		}
	}
	if len(conns) == 0 {
		return ErrNone
	}
	out, err := unfinished.Start(dir)
	if err != nil {
		return err
	}
	if err := passes(set, conns, out, opt, report); err != nil {
		return errors.Join(err, out.Abandon())
	}
	return nil
}

// passes reads everything, as often as it takes. A reading of the snapshot word
// is proved or disproved by all chunks of a connection together: where it is
// disproved the build is made once more.
func passes(set *capture.Set, conns []*capture.Connection, out *unfinished.Folder, opt Options, report *Report) error {
	words := map[string]bool{}
	var done int64
	for {
		b := &builder{dir: out.Path(), opt: opt, report: newReport(opt.Tool), words: words, done: done}
		wrong, err := b.build(set, conns)
		b.report.conclude(err)
		*report = *b.report
		if err != nil {
			return errors.Join(err, b.abort())
		}
		if len(wrong) == 0 {
			if err := b.finish(); err != nil {
				return err
			}
			return out.Publish()
		}
		if err := errors.Join(b.abort(), out.Clear()); err != nil {
			return err
		}
		done += b.read
		for _, id := range wrong {
			words[id] = true
		}
	}
}

// builder is one pass over all connections.
type builder struct {
	dir    string
	opt    Options
	report *Report
	// words says of connections that their segment chunks have no snapshot
	// word, whatever their version.
	words map[string]bool

	cat     *catalogue
	shadows *containers
	conns   []*connection
	frame   int64 // id of the last frame
	done    int64 // bytes read by passes before
	read    int64
	total   int64
}

// build reads everything and checks the result. wrong names the connections
// whose chunks do not tile under the reading that was taken.
func (b *builder) build(set *capture.Set, conns []*capture.Connection) (wrong []string, err error) {
	if err := os.Mkdir(filepath.Join(b.dir, shadowsName), 0o700); err != nil {
		return nil, err
	}
	if b.cat, err = newCatalogue(filepath.Join(b.dir, catalogueName), b.opt.Tool); err != nil {
		return nil, err
	}
	b.shadows = newContainers(filepath.Join(b.dir, shadowsName))
	for _, f := range slices.Concat(set.Findings, set.Absent()) {
		b.report.add(f)
	}
	for _, c := range set.Connections {
		if c.Protocol != aewr.Name {
			b.report.Refused(c)
			b.report.Other = append(b.report.Other, OtherConnection{Connection: c.ID, Protocol: c.Protocol})
		}
	}
	b.total = b.done
	for _, c := range conns {
		for _, f := range c.Files {
			b.total += f.Length
		}
	}
	for i, c := range conns {
		k := newConnection(c, int64(i+1))
		b.conns = append(b.conns, k)
		for _, f := range c.Findings {
			b.report.add(f)
		}
		if c.Refused != nil {
			k.ending = "refused" // why is among its findings
			continue
		}
		if err := b.connection(k); err != nil {
			return nil, fmt.Errorf("connection %s: %w", c.ID, err)
		}
	}
	if wrong := b.disproved(); len(wrong) > 0 && len(b.words) == 0 {
		return wrong, nil
	}
	return nil, b.conclude()
}

// conclude works out what needs all connections, writes it, and checks it.
func (b *builder) conclude() error {
	pairUp(b.conns)
	for _, k := range b.conns {
		if err := b.cat.addConnection(k); err != nil {
			return err
		}
	}
	if err := b.cat.conclude(); err != nil {
		return fmt.Errorf("working out the catalogue: %w", err)
	}
	if err := b.cat.db.Run("BEGIN"); err != nil {
		return err
	}
	b.cat.open, b.cat.left = true, commitRows
	if err := b.addShadows(); err != nil {
		return err
	}
	if err := b.addFetches(); err != nil {
		return err
	}
	if err := b.shadows.close(); err != nil {
		return err
	}
	if err := b.summarize(); err != nil {
		return err
	}
	if err := b.verifyShadows(); err != nil {
		return err
	}
	return b.cat.finish()
}

// finish adds the report and makes the folder's files safe.
func (b *builder) finish() error {
	if err := unfinished.WriteFile(filepath.Join(b.dir, reportName), append(b.report.JSON(), '\n')); err != nil {
		return err
	}
	return unfinished.SyncFolder(filepath.Join(b.dir, shadowsName))
}

// abort closes what is open.
func (b *builder) abort() error {
	var errs []error
	if b.shadows != nil {
		errs = append(errs, b.shadows.close())
	}
	if b.cat != nil {
		errs = append(errs, b.cat.close())
	}
	return errors.Join(errs...)
}

// ErrExists: the output's name is taken.
var ErrExists = unfinished.ErrExists
