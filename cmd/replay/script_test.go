package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"wiretape/capture"
	"wiretape/capture/sidecar"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"replay": main})
}

// TestScripts runs the real program; each script opens with what it is about.
func TestScripts(t *testing.T) {
	fixtures, err := filepath.Abs("../../wire/dendro/testdata")
	if err != nil {
		t.Fatal(err)
	}
	aewr, err := filepath.Abs("../../wire/aewr/testdata/sessions")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "record": record},
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURES", fixtures)
			e.Setenv("AEWR", aewr)
			e.Setenv("TZ", "Asia/Kathmandu")
			return nil
		},
	})
}

// exits is "exits CODE COMMAND…": exec with the very exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// record is "record DIR STREAM BYTES": a capture of one connection, in files of
// about so many bytes.
func record(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: record DIR STREAM BYTES")
	}
	stream, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	size, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	d, err := capture.Create(ts.MkAbs(args[0]), capture.Options{RotateBytes: size, Unique: func() uint32 { return 0xabc }})
	ts.Check(err)
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://publisher:9000", Protocol: "auto"})
	ts.Check(err)
	_, err = w.Write(stream, capture.Instant{Wall: 1_700_000_000e9, Mono: 1e9})
	ts.Check(err)
	_, err = w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd)
	ts.Check(err)
	ts.Check(d.Close())
}

// TestReadmeBuilds: the README's builds run as they stand there, one after the
// other.
func TestReadmeBuilds(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := filepath.Abs("../../wire/dendro/testdata/real/small.stream")
	if err != nil {
		t.Fatal(err)
	}
	script := "record rec " + stream + " 50000\nexec cp -r rec siteA\nexec cp -r rec siteB\n"
	lines := 0
	for l := range strings.Lines(string(readme)) {
		args, ok := strings.CutPrefix(strings.TrimSpace(l), "bin/replay build ")
		if !ok {
			continue
		}
		args, _, _ = strings.Cut(args, " #")
		lines++
		if strings.Contains(args, "--follow") {
			// It ends when it is interrupted.
			script += "! exec timeout -s INT 2 replay build " + args + "\nstdout 'rebuilt whole'\n"
			continue
		}
		// The recording is of another time than the README's.
		script += "exits 0 replay build " + strings.ReplaceAll(args, "2026-01-31", "2023-11-14") + "\n"
	}
	if lines < 5 {
		t.Fatalf("%d builds", lines)
	}
	name := filepath.Join(t.TempDir(), "readme.txtar")
	if err := os.WriteFile(name, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Files: []string{name},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "record": record}})
}
