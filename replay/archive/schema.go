// Package archive writes the dendro archive that a rebuild gives: one SQLite
// file that the dendro crate opens, verifies and reads (docs/merging.md), and
// decides what it holds as a function of what was captured (docs/merging.md).
//
// A [Stage] is an archive under construction, in an unfinished folder beside its
// name. Contributions go in as they are read; Resolve then applies the rules
// that need all of them: which of overlapping segments stays, which rows are
// live, which are held and which could never be read. Finish makes it a valid
// archive, verifies it and gives it its name.
package archive

import "strconv"

const (
	// ApplicationID marks a dendro archive, "dend" at bytes 68–71.
	ApplicationID = 0x64656e64
	// SchemaCurrent is what is written unless told otherwise, SchemaOld is what
	// releases of the crate up to 0.5.1 read.
	SchemaCurrent = 5
	SchemaOld     = 4
	// pageSize is the page size of every archive (docs/merging.md, The archive itself).
	pageSize = 4096
)

// tablesFor is the schema of docs/merging.md, The archive itself.
func tablesFor(schema int) []string {
	callerIndex := ""
	if schema == SchemaOld {
		callerIndex = ", caller_index BLOB"
	}
	t := []string{
		`CREATE TABLE sources(id INTEGER PRIMARY KEY, labels TEXT NOT NULL, metadata TEXT NOT NULL,
			complete INTEGER NOT NULL DEFAULT 0, clock_anchor_wall_ns INTEGER NOT NULL,
			uuid TEXT, heartbeat INTEGER, heartbeat_interval_ns INTEGER)`,
		`CREATE TABLE segments(source_id INTEGER NOT NULL REFERENCES sources(id), stream TEXT NOT NULL,
			seq INTEGER NOT NULL, rows INTEGER NOT NULL, first_ts INTEGER NOT NULL, last_ts INTEGER NOT NULL,
			bytes BLOB NOT NULL` + callerIndex + `, PRIMARY KEY (source_id, stream, seq))`,
		`CREATE INDEX segments_by_time ON segments(source_id, stream, last_ts)`,
		`CREATE TABLE wal(source_id INTEGER NOT NULL REFERENCES sources(id), stream TEXT NOT NULL,
			ts INTEGER NOT NULL, wall_offset INTEGER NOT NULL, row BLOB NOT NULL,
			PRIMARY KEY (source_id, stream, ts))`,
		`CREATE TABLE clock_offsets(source_id INTEGER NOT NULL REFERENCES sources(id), ts INTEGER NOT NULL,
			offset_ns INTEGER NOT NULL, PRIMARY KEY (source_id, ts))`,
		`CREATE TABLE caller_rows(source_id INTEGER NOT NULL REFERENCES sources(id), stream TEXT NOT NULL,
			ts INTEGER NOT NULL, blob BLOB NOT NULL)`,
		`CREATE INDEX caller_rows_by_time ON caller_rows(source_id, stream, ts)`,
	}
	if schema == SchemaOld {
		return t
	}
	return append(t,
		`CREATE TABLE segment_indexes(source_id INTEGER NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL,
			bytes BLOB NOT NULL, PRIMARY KEY (source_id, stream, seq),
			FOREIGN KEY (source_id, stream, seq) REFERENCES segments(source_id, stream, seq) ON DELETE CASCADE
			) WITHOUT ROWID`,
		`CREATE TABLE documents(id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
			name TEXT NOT NULL, schema TEXT, body TEXT, created_wall_ns INTEGER NOT NULL,
			supersedes INTEGER REFERENCES documents(id), CHECK ((schema IS NULL) = (body IS NULL)))`,
		`CREATE INDEX documents_by_name ON documents(kind, name, id)`,
	)
}

// workTables hold what the rules need and the archive does not: they live in a
// database of their own, attached as `work`, that is gone with the stage.
var workTables = []string{
	// Every sound segment, by its bytes: equal bytes are one segment.
	`CREATE TABLE work.seg(source INTEGER, stream TEXT, sha BLOB, seq INTEGER, rows INTEGER,
		first_ts INTEGER, last_ts INTEGER, proved INTEGER, distincts INTEGER,
		conn INTEGER, off INTEGER, has_index INTEGER, PRIMARY KEY (source, stream, sha)) WITHOUT ROWID`,
	`CREATE INDEX work.seg_by_time ON seg(source, stream, first_ts, seq)`,
	// The states of streams, where there are very many.
	`CREATE TABLE work.stream(source INTEGER, stream TEXT, next_seq INTEGER, reach INTEGER, last_ts INTEGER,
		sorted INTEGER, PRIMARY KEY (source, stream)) WITHOUT ROWID`,
	// Rows that came after a segment that reaches over them. A row may be as
	// large as a frame: a table WITHOUT ROWID takes it into memory once more.
	`CREATE TABLE work.low(source INTEGER, stream TEXT, ts INTEGER, wall_offset INTEGER, row BLOB,
		conn INTEGER, off INTEGER, PRIMARY KEY (source, stream, ts))`,
	// Rows that differ from the one that is stored at their time.
	`CREATE TABLE work.conflict(source INTEGER, stream TEXT, ts INTEGER, sha BLOB, wall_offset INTEGER, row BLOB,
		conn INTEGER, off INTEGER, PRIMARY KEY (source, stream, ts, sha))`,
	// Index entries by content, how often each connection has them and where first.
	`CREATE TABLE work.entry(id INTEGER PRIMARY KEY, source INTEGER, stream TEXT, ts INTEGER, sha BLOB,
		blob BLOB, UNIQUE (source, stream, ts, sha))`,
	`CREATE TABLE work.entry_in(entry INTEGER, conn INTEGER, n INTEGER, pos INTEGER,
		PRIMARY KEY (entry, conn)) WITHOUT ROWID`,
	`CREATE TABLE work.clock(source INTEGER, ts INTEGER, offset_ns INTEGER, conn INTEGER,
		differs INTEGER, PRIMARY KEY (source, ts)) WITHOUT ROWID`,
}

func pragma(name string, value int) string { return "PRAGMA " + name + "=" + strconv.Itoa(value) }
