package aewr

import "wiretape/wire"

// Message types, in the specification's words. The names of the single
// migration codes are not public.
const (
	ExecBytecodeReq        = 0x01
	ResultStreamChunk      = 0x02
	ExecAbort              = 0x04
	FetchProjectionReq     = 0x05
	FetchStreamChunk       = 0x06
	HeartbeatPing          = 0x07
	HeartbeatPong          = 0x08
	Migrate09              = 0x09
	Migrate0A              = 0x0A
	Migrate0B              = 0x0B
	MigrateOrValidate0C    = 0x0C
	ValidateTxn0D          = 0x0D
	CommitTxn              = 0x0E
	AbortTxn               = 0x0F
	Migrate10              = 0x10
	WorkerReady            = 0x11
	ContainerRetired       = 0x12
	TopologyDelta          = 0x13
	ExecSuccess            = 0x14
	ResultAggregateChunk   = 0x15
	ResultMaterializeChunk = 0x16
	JoinStreamChunk        = 0x17
	HashTableLoad          = 0x18
	ResultGroupedAggChunk  = 0x19
	SegmentFetchReq        = 0x1A
	SegmentStreamChunk     = 0x1B
	SnapshotReq            = 0x1C
	ExecDeleteReq          = 0x1D
	ExecUpdateReadReq      = 0x1E
	WriteConflict          = 0x1F
	SyncTxidReq            = 0x20
	SyncTxidResp           = 0x21
	IndexBuildReq          = 0x22
	StringArenaChunk       = 0x23
	ShuffleDataReq         = 0x24
	ShuffleEOF             = 0x25
	JoinBroadcastReq       = 0x26
)

type typeInfo struct {
	name  string
	since uint16
	dir   wire.Direction // DirectionUnknown: travels both ways
	// fixed says that the layout does not allow an empty payload.
	fixed bool
}

const both = wire.DirectionUnknown

// messageTypes is the specification's table. JOIN_STREAM_CHUNK goes from the
// orchestrator to the next stage, SEGMENT_STREAM_CHUNK from the primary to the
// orchestrator and from there to the shadow, a shuffle from worker to worker
// through the orchestrator: the last two are seen on both ways.
var messageTypes = [...]typeInfo{
	ExecBytecodeReq:        {"EXEC_BYTECODE_REQ", 0, wire.Downstream, true},
	ResultStreamChunk:      {"RESULT_STREAM_CHUNK", 0, wire.Upstream, false},
	ExecAbort:              {"EXEC_ABORT", 0, wire.Upstream, false},
	FetchProjectionReq:     {"FETCH_PROJECTION_REQ", 0, wire.Downstream, false},
	FetchStreamChunk:       {"FETCH_STREAM_CHUNK", 0, wire.Upstream, false},
	HeartbeatPing:          {"HEARTBEAT_PING", 3, both, true},
	HeartbeatPong:          {"HEARTBEAT_PONG", 3, both, true},
	Migrate09:              {"MIGRATE_*", 3, wire.Downstream, false},
	Migrate0A:              {"MIGRATE_*", 3, wire.Downstream, false},
	Migrate0B:              {"MIGRATE_*", 3, wire.Downstream, false},
	MigrateOrValidate0C:    {"MIGRATE_* / VALIDATE_TXN_*", 3, both, false},
	ValidateTxn0D:          {"VALIDATE_TXN_*", 0, both, false},
	CommitTxn:              {"COMMIT_TXN", 0, both, false},
	AbortTxn:               {"ABORT_TXN", 0, both, false},
	Migrate10:              {"MIGRATE_*", 3, wire.Downstream, false},
	WorkerReady:            {"WORKER_READY", 6, wire.Upstream, false},
	ContainerRetired:       {"CONTAINER_RETIRED", 0, wire.Downstream, false},
	TopologyDelta:          {"TOPOLOGY_DELTA", 0, wire.Downstream, false},
	ExecSuccess:            {"EXEC_SUCCESS", 11, wire.Upstream, false},
	ResultAggregateChunk:   {"RESULT_AGGREGATE_CHUNK", 13, wire.Upstream, false},
	ResultMaterializeChunk: {"RESULT_MATERIALIZE_CHUNK", 13, wire.Upstream, true},
	JoinStreamChunk:        {"JOIN_STREAM_CHUNK", 13, wire.Downstream, false},
	HashTableLoad:          {"HASH_TABLE_LOAD", 14, wire.Downstream, true},
	ResultGroupedAggChunk:  {"RESULT_GROUPED_AGG_CHUNK", 14, wire.Upstream, false},
	SegmentFetchReq:        {"SEGMENT_FETCH_REQ", 17, wire.Downstream, true},
	SegmentStreamChunk:     {"SEGMENT_STREAM_CHUNK", 17, both, true},
	SnapshotReq:            {"SNAPSHOT_REQ", 19, wire.Downstream, false},
	ExecDeleteReq:          {"EXEC_DELETE_REQ", 20, wire.Downstream, false},
	ExecUpdateReadReq:      {"EXEC_UPDATE_READ_REQ", 21, wire.Downstream, false},
	WriteConflict:          {"WRITE_CONFLICT", 24, wire.Upstream, false},
	SyncTxidReq:            {"SYNC_TXID_REQ", 25, both, false},
	SyncTxidResp:           {"SYNC_TXID_RESP", 25, both, false},
	IndexBuildReq:          {"INDEX_BUILD_REQ", 26, wire.Downstream, false},
	StringArenaChunk:       {"STRING_ARENA_CHUNK", 27, wire.Downstream, false},
	ShuffleDataReq:         {"SHUFFLE_DATA_REQ", 29, both, false},
	ShuffleEOF:             {"SHUFFLE_EOF", 29, both, false},
	JoinBroadcastReq:       {"JOIN_BROADCAST_REQ", 31, wire.Downstream, false},
}

func lookup(t uint16) *typeInfo {
	if int(t) < len(messageTypes) {
		return &messageTypes[t]
	}
	return &messageTypes[0]
}

// TypeName is the specification's name of a message type, "" when it has none.
// 0x0C has two.
func TypeName(t uint16) string { return lookup(t).name }

// TypeSince is the version that brought the message type, 0 for the first ones
// and for types that are not known.
func TypeSince(t uint16) uint16 { return lookup(t).since }

// TypeDirection is the way that a message type travels, DirectionUnknown when
// it may travel both.
func TypeDirection(t uint16) wire.Direction { return lookup(t).dir }

// Change is what one version brought, for saying what a peer that does not know
// it would have made of a newer peer's frames.
type Change struct {
	// Version that brought it.
	Version uint16
	// Types that it concerns; none means all.
	Types []uint16
	// Misread says what an older peer would have made of such a frame.
	Misread string
}

// Changes are the versions' changes since the oldest known one, oldest first.
var Changes = []Change{
	{18, nil, "the tenant in the last header word is a reserved word to it: every tenant's frames would have been taken for the system tenant's"},
	{19, []uint16{SegmentStreamChunk}, "the snapshot word behind `from` would have been taken for the first 8 bytes of the segment, and everything after it written 8 bytes too far"},
	{19, []uint16{SegmentFetchReq}, "the snapshot word would have been bytes too many in a request of 16"},
	{19, []uint16{ExecBytecodeReq}, "the snapshot word in the constants would have been taken for a constant of the program"},
	{19, []uint16{SnapshotReq}, "a message type that it does not have"},
	{20, []uint16{ExecDeleteReq}, "a message type that it does not have: nothing would have been deleted"},
	{21, []uint16{ExecUpdateReadReq}, "a message type that it does not have"},
	{22, []uint16{ExecBytecodeReq}, "the transaction window in the constants would have been taken for constants of the program"},
	{23, []uint16{ExecBytecodeReq}, "the abort mask in the constants would have been taken for a constant of the program"},
	{24, []uint16{WriteConflict}, "a message type that it does not have: a write conflict would have gone unnoticed"},
	{25, []uint16{SyncTxidReq, SyncTxidResp}, "a message type that it does not have: transaction ids would have drifted apart"},
	{26, []uint16{IndexBuildReq}, "a message type that it does not have"},
	{27, []uint16{StringArenaChunk}, "a message type that it does not have: the strings that later programs refer to would have been missing"},
	{27, []uint16{ExecBytecodeReq}, "the string literal pool in the constants would have been taken for constants of the program"},
	{29, []uint16{ShuffleDataReq, ShuffleEOF}, "a message type that it does not have: a shuffle's rows would have been missing"},
	{30, []uint16{HeartbeatPong}, "the echoed ping would have been taken for the worker's own clock and the committed end of its first container"},
	{31, []uint16{JoinBroadcastReq}, "a message type that it does not have: one side of a join would have been missing"},
}
