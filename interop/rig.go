//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// RigEnv names the environment variable that holds the path of the crate's
// program; interop/run sets it.
const RigEnv = "DENDRO_RIG"

// Programs are the paths of what is held against each other.
type Programs struct {
	Rig, Capture, Replay string
}

// Build finds the rig and builds Wiretape's commands into dir.
func Build(dir string) (Programs, error) {
	p := Programs{Rig: os.Getenv(RigEnv), Capture: filepath.Join(dir, "capture"), Replay: filepath.Join(dir, "replay")}
	if p.Rig == "" {
		return p, errors.New(RigEnv + " is not set: start this with interop/run")
	}
	for out, pkg := range map[string]string{p.Capture: "wiretape/cmd/capture", p.Replay: "wiretape/cmd/replay"} {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return p, fmt.Errorf("building %s: %w", pkg, err)
		}
	}
	return p, nil
}

// Result is how a program ended.
type Result struct {
	Exit           int
	Stdout, Stderr []byte
	// Wall is the time from start to end, PeakRSS in bytes.
	Wall    time.Duration
	CPU     time.Duration
	PeakRSS int64
}

// JSON decodes the standard output.
func (r Result) JSON(into any) error {
	if err := json.Unmarshal(r.Stdout, into); err != nil {
		return fmt.Errorf("%w in %q", err, head(r.Stdout))
	}
	return nil
}

func head(b []byte) []byte { return b[:min(len(b), 2000)] }

// Run runs a program to its end. Only a program that can't be started or dies
// by a signal is an error.
func Run(program string, args ...string) (Result, error) {
	cmd := exec.Command(program, args...)
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	start := time.Now()
	err := cmd.Run()
	r := Result{Stdout: out.Bytes(), Stderr: words.Bytes(), Wall: time.Since(start)}
	if cmd.ProcessState == nil {
		return r, err
	}
	r.Exit = cmd.ProcessState.ExitCode()
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.PeakRSS = u.Maxrss << 10
	}
	if r.Exit < 0 {
		return r, fmt.Errorf("%s %q: %w: %s", filepath.Base(program), args, err, head(r.Stderr))
	}
	return r, nil
}

// Applied are the counters of the crate's subscriber.
type Applied struct {
	Exit          int      `json:"exit"`
	Rows          int64    `json:"rows"`
	RowsSkipped   int64    `json:"rows_skipped"`
	Segments      int64    `json:"segments"`
	SegmentsHeld  int64    `json:"segments_held"`
	IndexEntries  int64    `json:"index_entries"`
	ClockOffsets  int64    `json:"clock_offsets"`
	Sources       int64    `json:"sources"`
	SourceUpdates int64    `json:"source_updates"`
	KindsSkipped  int64    `json:"kinds_skipped"`
	Created       bool     `json:"archive_created"`
	Error         string   `json:"error"`
	Warnings      []string `json:"warnings"`
}

// Report is the part of `replay build --json` that is held against the crate.
type Report struct {
	Verdict  string           `json:"verdict"`
	Counts   map[string]int64 `json:"counts"`
	Findings []Finding        `json:"findings"`
}

// Finding is one finding of a [Report].
type Finding struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Offset  int64  `json:"offset"`
}

// Dump is an archive as the crate reads it, in the rig's canonical order.
type Dump struct {
	Schema  int          `json:"schema_version"`
	Sources []DumpSource `json:"sources"`
}

// Rows is how many rows the archive holds, sealed and live.
func (d Dump) Rows() (n int64) {
	for _, s := range d.Sources {
		for _, g := range s.Segments {
			n += g.Rows
		}
		n += int64(len(s.WAL))
	}
	return n
}

// DumpSource is one source of a [Dump].
type DumpSource struct {
	UUID         *string           `json:"uuid"`
	Labels       map[string]string `json:"labels"`
	Metadata     map[string]string `json:"metadata"`
	Complete     bool              `json:"complete"`
	Anchor       int64             `json:"clock_anchor_wall_ns"`
	Segments     []DumpSegment     `json:"segments"`
	WAL          []DumpRow         `json:"wal"`
	ClockOffsets [][2]int64        `json:"clock_offsets"`
	CallerRows   []DumpEntry       `json:"caller_rows"`
}

// DumpSegment is one sealed segment.
type DumpSegment struct {
	Stream            string  `json:"stream"`
	Seq               int64   `json:"seq"`
	Rows              int64   `json:"rows"`
	FirstTS           int64   `json:"first_ts"`
	LastTS            int64   `json:"last_ts"`
	Len               int64   `json:"len"`
	SHA256            string  `json:"sha256"`
	CallerIndexLen    *int64  `json:"caller_index_len"`
	CallerIndexSHA256 *string `json:"caller_index_sha256"`
}

// DumpRow is one row of the WAL.
type DumpRow struct {
	Stream     string `json:"stream"`
	TS         int64  `json:"ts"`
	WallOffset int64  `json:"wall_offset"`
	Len        int64  `json:"len"`
	SHA256     string `json:"sha256"`
}

// DumpEntry is one index entry.
type DumpEntry struct {
	Stream string `json:"stream"`
	TS     int64  `json:"ts"`
	Len    int64  `json:"len"`
	SHA256 string `json:"sha256"`
}

// ReadDump reads a dump without the writer sessions, of which each program that
// writes an archive adds its own.
func ReadDump(b []byte) (Dump, error) {
	var d Dump
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return d, errors.New("bytes after the dump")
	}
	for _, s := range d.Sources {
		delete(s.Metadata, "writer_sessions")
	}
	return d, nil
}
