package journal

// This file is the catalogue: a SQLite database of what the recordings carried
// and what the build proved (docs/melin.md). Unsigned 64-bit values are stored
// as SQLite's signed ones with the same bits.

import (
	"errors"
	"fmt"

	"wiretape/replay/internal/db"
)

// CatalogueName is the catalogue's file in the output, CatalogueVersion the
// number of its tables' form, in user_version.
const (
	CatalogueName    = "catalogue.sqlite"
	CatalogueVersion = 1
)

var tables = []string{
	`CREATE TABLE connections (id INTEGER PRIMARY KEY, connection TEXT NOT NULL, direction TEXT NOT NULL, pair INTEGER,
		endpoint TEXT, layout INTEGER, layouts TEXT, layout_from TEXT, replica_key BLOB, lineage INTEGER,
		bytes INTEGER NOT NULL, frames INTEGER NOT NULL, ending TEXT NOT NULL, first_sequence INTEGER, last_sequence INTEGER)`,
	`CREATE TABLE lineages (id INTEGER PRIMARY KEY, folder TEXT NOT NULL, genesis_entries INTEGER,
		first_sequence INTEGER, last_sequence INTEGER)`,
	`CREATE TABLE segments (id INTEGER PRIMARY KEY, lineage INTEGER NOT NULL REFERENCES lineages, part INTEGER NOT NULL,
		file TEXT NOT NULL, kind TEXT NOT NULL, start_sequence INTEGER NOT NULL, last_sequence INTEGER, entries INTEGER NOT NULL,
		anchor BLOB, chain_hash BLOB, bytes INTEGER NOT NULL, closed INTEGER NOT NULL)`,
	`CREATE TABLE entries (lineage INTEGER NOT NULL, sequence INTEGER NOT NULL, time_ns INTEGER NOT NULL, key_hash INTEGER NOT NULL,
		event INTEGER NOT NULL, segment INTEGER, position INTEGER, bytes INTEGER NOT NULL,
		connection INTEGER NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (lineage, sequence)) WITHOUT ROWID`,
	`CREATE TABLE batches (connection INTEGER NOT NULL, offset INTEGER NOT NULL, first_sequence INTEGER NOT NULL,
		last_sequence INTEGER NOT NULL, chain_hash BLOB NOT NULL, bytes INTEGER NOT NULL)`,
	`CREATE TABLE acks (connection INTEGER NOT NULL, offset INTEGER NOT NULL, acked_sequence INTEGER NOT NULL, in_memory_sequence INTEGER)`,
	`CREATE TABLE epochs (connection INTEGER NOT NULL, offset INTEGER NOT NULL, sequence INTEGER, epoch INTEGER NOT NULL)`,
	`CREATE TABLE checks (lineage INTEGER NOT NULL, kind TEXT NOT NULL, sequence INTEGER NOT NULL, hash BLOB NOT NULL,
		connection INTEGER NOT NULL, offset INTEGER NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL)`,
	`CREATE TABLE bodies (connection INTEGER NOT NULL, offset INTEGER NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
		announced INTEGER NOT NULL, bytes INTEGER NOT NULL, crc32c INTEGER NOT NULL, sequence INTEGER, chain_hash BLOB, verdict TEXT NOT NULL)`,
	`CREATE TABLE missing (lineage INTEGER NOT NULL, first_sequence INTEGER NOT NULL, last_sequence INTEGER NOT NULL,
		after_ns INTEGER, before_ns INTEGER, reason TEXT NOT NULL)`,
	`CREATE TABLE findings (kind TEXT NOT NULL, connection TEXT NOT NULL, file TEXT NOT NULL, offset INTEGER NOT NULL, bytes INTEGER NOT NULL,
		field TEXT NOT NULL, expected TEXT NOT NULL, found TEXT NOT NULL, message TEXT NOT NULL, cost TEXT NOT NULL)`,
	`CREATE TABLE events (event INTEGER PRIMARY KEY, name TEXT NOT NULL)`,
}

// catalogue is the database being built.
type catalogue struct {
	db                                     *db.DB
	files                                  int
	connections, lineages, segments        *db.Inserter
	entries, batches, acks, epochs, checks *db.Inserter
	bodies, missing, findings, events      *db.Inserter
	all                                    []*db.Inserter
}

func newCatalogue(path string) (*catalogue, error) {
	d, err := db.Open(path, db.Create)
	if err != nil {
		return nil, fmt.Errorf("making the catalogue: %w", err)
	}
	c := &catalogue{db: d}
	table := func(name string, columns ...string) *db.Inserter {
		x := d.Inserter(name, columns...)
		c.all = append(c.all, x)
		return x
	}
	c.connections = table("connections", "id", "connection", "direction", "pair", "endpoint", "layout", "layouts", "layout_from",
		"replica_key", "lineage", "bytes", "frames", "ending", "first_sequence", "last_sequence")
	c.lineages = table("lineages", "id", "folder", "genesis_entries", "first_sequence", "last_sequence")
	c.segments = table("segments", "id", "lineage", "part", "file", "kind", "start_sequence", "last_sequence", "entries", "anchor",
		"chain_hash", "bytes", "closed")
	c.entries = table("entries", "lineage", "sequence", "time_ns", "key_hash", "event", "segment", "position", "bytes", "connection", "offset")
	c.batches = table("batches", "connection", "offset", "first_sequence", "last_sequence", "chain_hash", "bytes")
	c.acks = table("acks", "connection", "offset", "acked_sequence", "in_memory_sequence")
	c.epochs = table("epochs", "connection", "offset", "sequence", "epoch")
	c.checks = table("checks", "lineage", "kind", "sequence", "hash", "connection", "offset", "verdict", "reason")
	c.bodies = table("bodies", "connection", "offset", "kind", "file", "announced", "bytes", "crc32c", "sequence", "chain_hash", "verdict")
	c.missing = table("missing", "lineage", "first_sequence", "last_sequence", "after_ns", "before_ns", "reason")
	c.findings = table("findings", "kind", "connection", "file", "offset", "bytes", "field", "expected", "found", "message", "cost")
	c.events = table("events", "event", "name")
	// The output gets its name when it is whole, so nothing here needs to
	// survive a crash.
	err = d.Run(append([]string{"PRAGMA page_size=8192", "PRAGMA journal_mode=MEMORY", "PRAGMA synchronous=OFF", "PRAGMA locking_mode=EXCLUSIVE",
		"PRAGMA foreign_keys=OFF", "PRAGMA temp_store=FILE", "BEGIN"}, tables...)...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the catalogue: %w", err), d.Close())
	}
	return c, nil
}

// abandon closes the catalogue of a build that failed.
func (c *catalogue) abandon() {
	if c.db != nil {
		c.db.Close() // the folder is removed with it
		c.db = nil
	}
}

// finish writes what is left and closes the database, checked by itself.
func (c *catalogue) finish() error {
	for _, x := range c.all {
		if err := x.Flush(); err != nil {
			return err
		}
	}
	err := c.db.Run("COMMIT", "CREATE INDEX entries_by_key ON entries (key_hash, lineage, sequence)",
		"CREATE INDEX entries_by_time ON entries (time_ns)", fmt.Sprintf("PRAGMA user_version=%d", CatalogueVersion))
	if err != nil {
		return err
	}
	faults, err := c.db.Faults()
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("the catalogue does not pass SQLite's checks: %s", faults[0])
	}
	if err == nil {
		err = c.db.Run("PRAGMA locking_mode=NORMAL", "PRAGMA synchronous=FULL", "PRAGMA journal_mode=DELETE")
	}
	d := c.db
	c.db = nil
	return errors.Join(err, d.Close())
}
