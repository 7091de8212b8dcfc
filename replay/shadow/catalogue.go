package shadow

// This file is the session catalogue: its tables (docs/aewr.md), the rows that
// come as frames are read, and what is worked out from them at the end. All
// that joins frames is done by SQLite over its own files, so that no number of
// transactions or requests takes memory.

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"wiretape/replay/internal/db"
	"wiretape/wire/aewr"
)

// CatalogueVersion is the version of the tables, in meta under "version" and in
// SQLite's user_version.
const CatalogueVersion = 1

// catalogueName is the catalogue's file in the folder of a build.
const catalogueName = "catalogue.sqlite"

var tables = []string{
	`CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE message_types (code INTEGER PRIMARY KEY, name TEXT NOT NULL, since INTEGER NOT NULL, direction TEXT NOT NULL)`,
	`CREATE TABLE connections (id INTEGER PRIMARY KEY, connection TEXT NOT NULL UNIQUE, session INTEGER NOT NULL, peer INTEGER,
		direction TEXT NOT NULL, endpoint TEXT NOT NULL, version INTEGER, target_cluster_hash INTEGER,
		frames INTEGER NOT NULL, bytes INTEGER NOT NULL, lost_bytes INTEGER NOT NULL, losses INTEGER NOT NULL,
		ending TEXT NOT NULL, transport TEXT, snapshot_word INTEGER NOT NULL,
		first_arrival_ns INTEGER, last_arrival_ns INTEGER)`,
	`CREATE TABLE versions (connection INTEGER NOT NULL REFERENCES connections, version INTEGER NOT NULL,
		first_frame INTEGER NOT NULL REFERENCES frames, frames INTEGER NOT NULL, PRIMARY KEY (connection, version)) WITHOUT ROWID`,
	`CREATE TABLE frames (id INTEGER PRIMARY KEY, connection INTEGER NOT NULL REFERENCES connections,
		offset INTEGER NOT NULL, size INTEGER NOT NULL, version INTEGER NOT NULL, message_type INTEGER NOT NULL,
		target_cluster_hash INTEGER NOT NULL, instruction_count INTEGER NOT NULL, constants_len INTEGER NOT NULL,
		header_checksum INTEGER NOT NULL, checksum_ok INTEGER NOT NULL, pad INTEGER NOT NULL, manifest_epoch INTEGER NOT NULL,
		txn_id INTEGER NOT NULL, container_id INTEGER NOT NULL, tenant_id INTEGER NOT NULL,
		payload TEXT NOT NULL, rows INTEGER, losses_before INTEGER NOT NULL, arrival_ns INTEGER)`,
	`CREATE TABLE requests (frame INTEGER PRIMARY KEY REFERENCES frames, session INTEGER NOT NULL, message_type INTEGER NOT NULL,
		tenant_id INTEGER NOT NULL, txn_id INTEGER NOT NULL, container_id INTEGER NOT NULL, number INTEGER NOT NULL,
		state TEXT NOT NULL, rows INTEGER NOT NULL, answer_frames INTEGER NOT NULL,
		first_answer INTEGER REFERENCES frames, last_answer INTEGER REFERENCES frames, certain INTEGER NOT NULL)`,
	`CREATE TABLE answers (frame INTEGER PRIMARY KEY REFERENCES frames, request INTEGER REFERENCES requests)`,
	`CREATE TABLE transactions (session INTEGER NOT NULL, tenant_id INTEGER NOT NULL, txn_id INTEGER NOT NULL,
		outcome TEXT NOT NULL, frames INTEGER NOT NULL, requests INTEGER NOT NULL, validations INTEGER NOT NULL,
		commits INTEGER NOT NULL, aborts INTEGER NOT NULL, conflicts INTEGER NOT NULL,
		first_frame INTEGER NOT NULL REFERENCES frames, last_frame INTEGER NOT NULL REFERENCES frames,
		PRIMARY KEY (session, tenant_id, txn_id)) WITHOUT ROWID`,
	`CREATE TABLE heartbeats (frame INTEGER PRIMARY KEY REFERENCES frames, kind TEXT NOT NULL, timestamp_us INTEGER NOT NULL,
		worker_id INTEGER NOT NULL, data_end_offset INTEGER NOT NULL, shadow_end INTEGER, lag_bytes INTEGER,
		ping INTEGER REFERENCES frames, lag_us INTEGER, round_trip_ns INTEGER)`,
	`CREATE TABLE epochs (connection INTEGER NOT NULL REFERENCES connections, epoch INTEGER NOT NULL,
		first_frame INTEGER NOT NULL REFERENCES frames)`,
	`CREATE TABLE fence_violations (frame INTEGER PRIMARY KEY REFERENCES frames, epoch INTEGER NOT NULL, newest INTEGER NOT NULL)`,
	`CREATE TABLE migration_steps (frame INTEGER PRIMARY KEY REFERENCES frames, session INTEGER NOT NULL, tenant_id INTEGER NOT NULL,
		container_id INTEGER NOT NULL, message_type INTEGER NOT NULL, step INTEGER NOT NULL)`,
	`CREATE TABLE migrations (session INTEGER NOT NULL, tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL, steps INTEGER NOT NULL,
		first_frame INTEGER NOT NULL REFERENCES frames, last_frame INTEGER NOT NULL REFERENCES frames,
		retired_frame INTEGER REFERENCES frames)`,
	`CREATE TABLE result_keys (frame INTEGER NOT NULL REFERENCES frames, row INTEGER NOT NULL, sort_key INTEGER NOT NULL, row_offset INTEGER NOT NULL)`,
	`CREATE TABLE result_aggregates (frame INTEGER NOT NULL REFERENCES frames, accumulator INTEGER NOT NULL, value INTEGER NOT NULL, valid INTEGER NOT NULL)`,
	`CREATE TABLE result_groups (frame INTEGER NOT NULL REFERENCES frames, slot INTEGER NOT NULL, key INTEGER NOT NULL, used INTEGER NOT NULL,
		acc0 INTEGER NOT NULL, acc1 INTEGER NOT NULL, acc2 INTEGER NOT NULL, acc3 INTEGER NOT NULL,
		valid0 INTEGER NOT NULL, valid1 INTEGER NOT NULL, valid2 INTEGER NOT NULL, valid3 INTEGER NOT NULL)`,
	`CREATE TABLE result_chunks (frame INTEGER PRIMARY KEY REFERENCES frames, slot_count INTEGER NOT NULL, row_count INTEGER NOT NULL, has_row_offsets INTEGER NOT NULL)`,
	`CREATE TABLE result_values (frame INTEGER NOT NULL REFERENCES frames, row INTEGER NOT NULL, slot INTEGER NOT NULL, value INTEGER NOT NULL, valid INTEGER NOT NULL)`,
	`CREATE TABLE result_row_offsets (frame INTEGER NOT NULL REFERENCES frames, row INTEGER NOT NULL, row_offset INTEGER NOT NULL)`,
	`CREATE TABLE segment_fetches (frame INTEGER PRIMARY KEY REFERENCES frames, from_offset INTEGER NOT NULL, length INTEGER NOT NULL,
		snapshot INTEGER, held INTEGER NOT NULL)`,
	`CREATE TABLE shadows (tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL, file TEXT NOT NULL, length INTEGER NOT NULL,
		bytes INTEGER NOT NULL, chunks INTEGER NOT NULL, chunks_refused INTEGER NOT NULL, holes INTEGER NOT NULL, overlaps INTEGER NOT NULL,
		PRIMARY KEY (tenant_id, container_id)) WITHOUT ROWID`,
	`CREATE TABLE shadow_chunks (frame INTEGER PRIMARY KEY REFERENCES frames, tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL,
		from_offset INTEGER NOT NULL, length INTEGER NOT NULL, snapshot INTEGER, crc32c INTEGER NOT NULL)`,
	`CREATE TABLE shadow_extents (tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL, from_offset INTEGER NOT NULL, to_offset INTEGER NOT NULL, epoch INTEGER NOT NULL)`,
	`CREATE TABLE shadow_holes (tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL, from_offset INTEGER NOT NULL, to_offset INTEGER NOT NULL)`,
	`CREATE TABLE shadow_overlaps (tenant_id INTEGER NOT NULL, container_id INTEGER NOT NULL, from_offset INTEGER NOT NULL, to_offset INTEGER NOT NULL,
		differing INTEGER NOT NULL, frame INTEGER NOT NULL REFERENCES frames, replaced INTEGER NOT NULL)`,
	`CREATE VIEW named_frames AS SELECT f.id, c.connection, f.offset, f.size, f.version, t.name, f.manifest_epoch, f.txn_id, f.tenant_id, f.container_id, f.rows, f.arrival_ns
		FROM frames f JOIN connections c ON c.id = f.connection LEFT JOIN message_types t ON t.code = f.message_type`,
	`CREATE VIEW transaction_outcomes AS SELECT tenant_id, txn_id, count(*) AS sessions, sum(validations) AS validations, sum(commits) AS commits,
		sum(aborts) AS aborts, sum(conflicts) AS conflicts FROM transactions GROUP BY tenant_id, txn_id`,
	// What is joined at the end is staged here, in a file of its own that goes.
	`CREATE TABLE work.beats (frame INTEGER PRIMARY KEY, connection INTEGER, version INTEGER, pong INTEGER, timestamp_us INTEGER,
		worker_id INTEGER, data_end_offset INTEGER, shadow_end INTEGER, arrival_ns INTEGER)`,
	`CREATE TABLE work.fetches (frame INTEGER PRIMARY KEY, tenant_id INTEGER, container_id INTEGER, from_offset INTEGER, length INTEGER, snapshot INTEGER)`,
}

// indexes come last: an index that grows with its table costs more.
var indexes = []string{
	`CREATE INDEX frames_of_connection ON frames (connection, offset)`,
	`CREATE INDEX frames_of_txn ON frames (txn_id) WHERE txn_id <> 0`,
	`CREATE INDEX answers_of_request ON answers (request)`,
	`CREATE INDEX shadow_chunks_of ON shadow_chunks (tenant_id, container_id, from_offset)`,
	`CREATE INDEX result_keys_of ON result_keys (frame)`,
	`CREATE INDEX result_aggregates_of ON result_aggregates (frame)`,
	`CREATE INDEX result_groups_of ON result_groups (frame)`,
	`CREATE INDEX result_values_of ON result_values (frame)`,
	`CREATE INDEX result_row_offsets_of ON result_row_offsets (frame, row)`,
}

// among is message types as SQL lists them.
func among(types ...uint16) string {
	s := "("
	for i, t := range types {
		if i > 0 {
			s += ","
		}
		s += strconv.Itoa(int(t))
	}
	return s + ")"
}

var (
	// requestTypes are answered by frames of answerTypes and ended by one of
	// endTypes (readings request-order and fetch-end); a txid request by its
	// response.
	requestTypes  = among(aewr.ExecBytecodeReq, aewr.FetchProjectionReq, aewr.ExecDeleteReq, aewr.ExecUpdateReadReq, aewr.SyncTxidReq)
	endTypes      = among(aewr.ExecAbort, aewr.ExecSuccess, aewr.ResultAggregateChunk, aewr.WriteConflict, aewr.SyncTxidResp)
	answerTypes   = among(aewr.ResultStreamChunk, aewr.FetchStreamChunk, aewr.ResultMaterializeChunk, aewr.ResultGroupedAggChunk, aewr.ExecAbort, aewr.ExecSuccess, aewr.ResultAggregateChunk, aewr.WriteConflict, aewr.SyncTxidResp)
	syncTypes     = among(aewr.SyncTxidReq, aewr.SyncTxidResp)
	migrateTypes  = among(aewr.Migrate09, aewr.Migrate0A, aewr.Migrate0B, aewr.Migrate10)
	validateTypes = among(aewr.MigrateOrValidate0C, aewr.ValidateTxn0D)
)

func number(t uint16) string { return strconv.Itoa(int(t)) }

// conclusions are the statements that work out requests, transactions,
// heartbeats and migrations from the frames.
var conclusions = []string{
	// Requests and answers with one key are matched by their order: the n-th
	// request with the frames up to the n-th end.
	`CREATE TABLE work.req AS SELECT f.id AS frame, f.message_type, c.session, f.tenant_id, f.txn_id, f.container_id, f.message_type IN ` + syncTypes + ` AS family, f.losses_before AS losses,
		coalesce((SELECT p.losses + (p.ending <> 'clean') FROM connections p WHERE p.id = c.peer), 1) AS peer_losses,
		row_number() OVER (PARTITION BY c.session, f.tenant_id, f.txn_id, f.container_id, f.message_type IN ` + syncTypes + ` ORDER BY f.id) AS number
		FROM frames f JOIN connections c ON c.id = f.connection WHERE f.message_type IN ` + requestTypes,
	`CREATE TABLE work.res AS SELECT f.id AS frame, f.message_type, f.rows, c.session, f.tenant_id, f.txn_id, f.container_id, f.message_type IN ` + syncTypes + ` AS family, f.losses_before AS losses,
		1 + coalesce(sum(f.message_type IN ` + endTypes + `) OVER (PARTITION BY c.session, f.tenant_id, f.txn_id, f.container_id, f.message_type IN ` + syncTypes + `
			ORDER BY f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS number
		FROM frames f JOIN connections c ON c.id = f.connection WHERE f.message_type IN ` + answerTypes,
	`CREATE TABLE work.ans AS SELECT session, tenant_id, txn_id, container_id, family, number, min(frame) AS first_answer, max(frame) AS last_answer,
		count(*) AS frames, coalesce(sum(rows), 0) AS rows, max(losses) AS losses, max(CASE WHEN message_type IN ` + endTypes + ` THEN message_type END) AS ended
		FROM work.res GROUP BY session, tenant_id, txn_id, container_id, family, number`,
	`CREATE INDEX work.ans_key ON ans (session, tenant_id, txn_id, container_id, family, number)`,
	`CREATE INDEX work.req_key ON req (session, tenant_id, txn_id, container_id, family, number)`,
	// More ends than requests: some were not recorded, and nobody knows which.
	`CREATE TABLE work.ends AS SELECT session, tenant_id, txn_id, container_id, family, count(ended) AS ends FROM work.ans GROUP BY session, tenant_id, txn_id, container_id, family`,
	`CREATE INDEX work.ends_key ON ends (session, tenant_id, txn_id, container_id, family)`,
	`CREATE TABLE work.excess AS SELECT e.session, e.tenant_id, e.txn_id, e.container_id, e.family FROM work.ends e JOIN
		(SELECT session, tenant_id, txn_id, container_id, family, count(*) AS requests FROM work.req GROUP BY session, tenant_id, txn_id, container_id, family) q
		ON q.session = e.session AND q.tenant_id = e.tenant_id AND q.txn_id = e.txn_id AND q.container_id = e.container_id AND q.family = e.family
		WHERE e.ends > q.requests`,
	`CREATE INDEX work.excess_key ON excess (session, tenant_id, txn_id, container_id, family)`,
	`INSERT INTO requests SELECT r.frame, r.session, r.message_type, r.tenant_id, r.txn_id, r.container_id, r.number,
		CASE a.ended WHEN ` + number(aewr.ExecSuccess) + ` THEN 'success' WHEN ` + number(aewr.ExecAbort) + ` THEN 'abort'
			WHEN ` + number(aewr.ResultAggregateChunk) + ` THEN 'aggregate' WHEN ` + number(aewr.WriteConflict) + ` THEN 'conflict'
			WHEN ` + number(aewr.SyncTxidResp) + ` THEN 'answered'
			ELSE CASE WHEN a.first_answer IS NULL THEN 'none' ELSE 'unfinished' END END,
		coalesce(a.rows, 0), coalesce(a.frames, 0), a.first_answer, a.last_answer,
		r.losses = 0 AND coalesce(a.losses, r.peer_losses) = 0 AND NOT EXISTS (SELECT 1 FROM work.excess x WHERE x.session = r.session AND x.tenant_id = r.tenant_id
			AND x.txn_id = r.txn_id AND x.container_id = r.container_id AND x.family = r.family)
		FROM work.req r LEFT JOIN work.ans a ON a.session = r.session AND a.tenant_id = r.tenant_id AND a.txn_id = r.txn_id
			AND a.container_id = r.container_id AND a.family = r.family AND a.number = r.number ORDER BY r.frame`,
	`INSERT INTO answers SELECT s.frame, r.frame FROM work.res s LEFT JOIN work.req r ON s.session = r.session AND s.tenant_id = r.tenant_id
		AND s.txn_id = r.txn_id AND s.container_id = r.container_id AND s.family = r.family AND s.number = r.number ORDER BY s.frame`,
	`INSERT INTO transactions SELECT session, tenant_id, txn_id,
		CASE WHEN commits > 0 AND aborts > 0 THEN 'both' WHEN commits > 0 THEN 'commit' WHEN aborts > 0 THEN 'abort' ELSE 'none' END,
		frames, requests, validations, commits, aborts, conflicts, first_frame, last_frame FROM (
		SELECT c.session, f.tenant_id, f.txn_id, count(*) AS frames, sum(f.message_type IN ` + requestTypes + `) AS requests,
			sum(f.message_type IN ` + validateTypes + `) AS validations, sum(f.message_type = ` + number(aewr.CommitTxn) + `) AS commits,
			sum(f.message_type = ` + number(aewr.AbortTxn) + `) AS aborts, sum(f.message_type = ` + number(aewr.WriteConflict) + `) AS conflicts,
			min(f.id) AS first_frame, max(f.id) AS last_frame
		FROM frames f JOIN connections c ON c.id = f.connection WHERE f.txn_id <> 0 GROUP BY c.session, f.tenant_id, f.txn_id)`,
	// A pong belongs to the ping that it echoes, before version 30 to the one
	// of the same number (reading pong-echo), where nothing was lost before
	// either and there are no more pongs than pings.
	`CREATE TABLE work.ping AS SELECT b.*, f.losses_before AS losses, row_number() OVER (PARTITION BY b.connection ORDER BY b.frame) AS number
		FROM work.beats b JOIN frames f ON f.id = b.frame WHERE NOT pong`,
	`CREATE INDEX work.ping_number ON ping (connection, number)`,
	`CREATE INDEX work.ping_echo ON ping (connection, worker_id, timestamp_us, frame)`,
	`CREATE TABLE work.pong AS SELECT b.*, coalesce(c.peer, c.id) AS peer, f.losses_before AS losses, row_number() OVER (PARTITION BY b.connection ORDER BY b.frame) AS number
		FROM work.beats b JOIN connections c ON c.id = b.connection JOIN frames f ON f.id = b.frame WHERE b.pong`,
	`CREATE TABLE work.pings AS SELECT connection, count(*) AS pings FROM work.ping GROUP BY connection`,
	`CREATE TABLE work.pongs AS SELECT peer AS connection, count(*) AS pongs FROM work.pong GROUP BY peer`,
	`CREATE TABLE work.pair AS SELECT q.frame, CASE WHEN q.version >= ` + strconv.Itoa(pongEchoes) + `
		THEN (SELECT min(p.frame) FROM work.ping p WHERE p.connection = q.peer AND p.worker_id = q.worker_id AND p.timestamp_us = q.timestamp_us)
		ELSE (SELECT p.frame FROM work.ping p WHERE p.connection = q.peer AND p.number = q.number AND p.losses = 0 AND q.losses = 0
			AND (SELECT pongs FROM work.pongs n WHERE n.connection = q.peer) <= (SELECT pings FROM work.pings n WHERE n.connection = q.peer)) END AS ping FROM work.pong q`,
	`CREATE UNIQUE INDEX work.pair_frame ON pair (frame)`,
	`INSERT INTO heartbeats SELECT b.frame, CASE WHEN b.pong THEN 'pong' ELSE 'ping' END, b.timestamp_us, b.worker_id, b.data_end_offset,
		b.shadow_end, b.data_end_offset - b.shadow_end, p.frame, b.timestamp_us - p.timestamp_us, b.arrival_ns - p.arrival_ns
		FROM work.beats b LEFT JOIN work.pair x ON x.frame = b.frame LEFT JOIN work.beats p ON p.frame = x.ping ORDER BY b.frame`,
	`INSERT INTO migration_steps SELECT f.id, c.session, f.tenant_id, f.container_id, f.message_type,
		row_number() OVER (PARTITION BY c.session, f.tenant_id, f.container_id ORDER BY f.id)
		FROM frames f JOIN connections c ON c.id = f.connection
		WHERE f.message_type IN ` + migrateTypes + ` OR f.message_type = ` + number(aewr.MigrateOrValidate0C) + ` AND f.txn_id = 0 ORDER BY f.id`,
	`CREATE TABLE work.retired AS SELECT c.session, f.tenant_id, f.container_id, max(f.id) AS frame FROM frames f JOIN connections c ON c.id = f.connection
		WHERE f.message_type = ` + number(aewr.ContainerRetired) + ` GROUP BY c.session, f.tenant_id, f.container_id`,
	`CREATE INDEX work.retired_key ON retired (session, tenant_id, container_id)`,
	`INSERT INTO migrations SELECT m.session, m.tenant_id, m.container_id, count(*), min(m.frame), max(m.frame),
		(SELECT r.frame FROM work.retired r WHERE r.session = m.session AND r.tenant_id = m.tenant_id AND r.container_id = m.container_id)
		FROM migration_steps m GROUP BY m.session, m.tenant_id, m.container_id`,
}

// pongEchoes is the version from which on a pong echoes the ping.
const pongEchoes = aewr.PongEchoVersion

// catalogue is the database while it is built.
type catalogue struct {
	db   *db.DB
	path string
	open bool // a transaction
	left int64

	frames, versions, epochs, fences        *db.Inserter
	keys, aggregates, groups, chunks        *db.Inserter
	values, rowOffsets, beats, fetches      *db.Inserter
	shadowChunks, extents, holes, disagrees *db.Inserter
	all                                     []*db.Inserter
}

// workSuffix is added to the catalogue's name for what is only staged.
const workSuffix = ".work"

// commitRows is how many rows go into one transaction.
const commitRows = 50_000

func newCatalogue(path, tool string) (*catalogue, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting the catalogue: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("starting the catalogue: %w", err)
	}
	d, err := db.Open(path, db.Create)
	if err != nil {
		return nil, fmt.Errorf("starting the catalogue: %w", err)
	}
	c := &catalogue{db: d, path: path}
	// The build is renamed when it is whole: nothing of it needs to survive a
	// crash.
	setup := []string{"PRAGMA page_size=8192", "PRAGMA journal_mode=MEMORY", "PRAGMA synchronous=OFF", "PRAGMA locking_mode=EXCLUSIVE",
		"PRAGMA foreign_keys=OFF", "PRAGMA temp_store=FILE", "PRAGMA work.journal_mode=OFF", "PRAGMA work.synchronous=OFF"}
	// What is staged lies beside the catalogue, on the disk that has room for it.
	if err := d.Exec("ATTACH ? AS work", path+workSuffix); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the catalogue: %w", err), d.Close())
	}
	if err := d.Run(append(setup, tables...)...); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the catalogue: %w", err), d.Close())
	}
	into := func(table string, columns ...string) *db.Inserter {
		x := d.Inserter(table, columns...)
		c.all = append(c.all, x)
		return x
	}
	c.frames = into("frames", "id", "connection", "offset", "size", "version", "message_type", "target_cluster_hash", "instruction_count", "constants_len",
		"header_checksum", "checksum_ok", "pad", "manifest_epoch", "txn_id", "container_id", "tenant_id", "payload", "rows", "losses_before", "arrival_ns")
	c.versions = into("versions", "connection", "version", "first_frame", "frames")
	c.epochs = into("epochs", "connection", "epoch", "first_frame")
	c.fences = into("fence_violations", "frame", "epoch", "newest")
	c.keys = into("result_keys", "frame", "row", "sort_key", "row_offset")
	c.aggregates = into("result_aggregates", "frame", "accumulator", "value", "valid")
	c.groups = into("result_groups", "frame", "slot", "key", "used", "acc0", "acc1", "acc2", "acc3", "valid0", "valid1", "valid2", "valid3")
	c.chunks = into("result_chunks", "frame", "slot_count", "row_count", "has_row_offsets")
	c.values = into("result_values", "frame", "row", "slot", "value", "valid")
	c.rowOffsets = into("result_row_offsets", "frame", "row", "row_offset")
	c.beats = into("work.beats", "frame", "connection", "version", "pong", "timestamp_us", "worker_id", "data_end_offset", "shadow_end", "arrival_ns")
	c.fetches = into("work.fetches", "frame", "tenant_id", "container_id", "from_offset", "length", "snapshot")
	c.shadowChunks = into("shadow_chunks", "frame", "tenant_id", "container_id", "from_offset", "length", "snapshot", "crc32c")
	c.extents = into("shadow_extents", "tenant_id", "container_id", "from_offset", "to_offset", "epoch")
	c.holes = into("shadow_holes", "tenant_id", "container_id", "from_offset", "to_offset")
	c.disagrees = into("shadow_overlaps", "tenant_id", "container_id", "from_offset", "to_offset", "differing", "frame", "replaced")
	for t := range uint16(1 << 8) {
		if name := aewr.TypeName(t); name != "" {
			direction := aewr.TypeDirection(t).String()
			if err := d.Exec("INSERT INTO message_types VALUES (?,?,?,?)", int64(t), name, int64(aewr.TypeSince(t)), direction); err != nil {
				return nil, errors.Join(err, d.Close())
			}
		}
	}
	for key, value := range map[string]string{"format": "wiretape aewr catalogue", "version": strconv.Itoa(CatalogueVersion), "tool": tool} {
		if err := d.Exec("INSERT INTO meta VALUES (?,?)", key, value); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return c, nil
}

// begin keeps a transaction open and ends it when it has enough rows.
func (c *catalogue) begin() error {
	c.left--
	if c.open && c.left > 0 {
		return nil
	}
	if err := c.commit(); err != nil {
		return err
	}
	c.open, c.left = true, commitRows
	return c.db.Exec("BEGIN")
}

func (c *catalogue) commit() error {
	if !c.open {
		return nil
	}
	c.open = false
	return c.db.Exec("COMMIT")
}

func (c *catalogue) flush() error {
	for _, x := range c.all {
		if err := x.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// conclude works out what needs all frames.
func (c *catalogue) conclude() error {
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.commit(); err != nil {
		return err
	}
	if err := c.db.Run("BEGIN"); err != nil {
		return err
	}
	if err := c.db.Run(conclusions...); err != nil {
		return err
	}
	return c.db.Run("COMMIT")
}

// finish makes the indexes, checks the database against itself and against what
// was put into it, and leaves it closed and synced.
func (c *catalogue) finish() error {
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.commit(); err != nil {
		return err
	}
	if err := c.db.Run(indexes...); err != nil {
		return err
	}
	faults, err := c.db.Faults()
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("the catalogue does not verify: %v", faults)
	}
	if n, err := c.db.Int("SELECT count(*) FROM frames"); err != nil || n != c.frames.Rows() {
		return errors.Join(err, fmt.Errorf("the catalogue does not verify: %d frames of %d", n, c.frames.Rows()))
	}
	if err := c.db.Run("DETACH work", "PRAGMA locking_mode=NORMAL", "PRAGMA synchronous=FULL", "PRAGMA journal_mode=DELETE", "PRAGMA optimize",
		"PRAGMA user_version="+strconv.Itoa(CatalogueVersion)); err != nil {
		return err
	}
	err = c.db.Close()
	c.db = nil
	if err != nil {
		return err
	}
	if err := os.Remove(c.path + workSuffix); err != nil {
		return err
	}
	f, err := os.Open(c.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// close gives the catalogue up.
func (c *catalogue) close() error {
	if c.db == nil {
		return nil
	}
	err := c.db.Close()
	c.db = nil
	return err
}
