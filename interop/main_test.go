//go:build interop

package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/interop"
)

// programs are built once for all tests.
var programs interop.Programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "interop-")
		if err == nil {
			defer os.RemoveAll(dir)
			programs, err = interop.Build(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func run(t testing.TB, program string, args ...string) interop.Result {
	t.Helper()
	r, err := interop.Run(program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rig runs the crate's program, which must succeed.
func rig(t testing.TB, args ...string) interop.Result {
	t.Helper()
	r := run(t, programs.Rig, args...)
	if r.Exit != 0 {
		t.Fatalf("dendro-rig %q: exit %d: %s%s", args, r.Exit, r.Stdout, r.Stderr)
	}
	return r
}

// published is one stream made by the crate's publisher.
type published struct {
	Out   string
	Bytes int64
}

// publish runs the crate's publisher and gives its connections in order.
func publish(t testing.TB, flags ...string) []published {
	t.Helper()
	var all []published
	dec := json.NewDecoder(bytes.NewReader(rig(t, append([]string{"publish"}, flags...)...).Stdout))
	for dec.More() {
		var p published
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// subscribe applies a stream with the crate's subscriber.
func subscribe(t testing.TB, stream, archive, encoder string) interop.Applied {
	t.Helper()
	var a interop.Applied
	r := run(t, programs.Rig, "subscribe", stream, "--archive", archive, "--encoder", encoder)
	if err := r.JSON(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// dump is the archive as the crate reads it.
func dump(t testing.TB, archive string) interop.Dump {
	t.Helper()
	d, err := interop.ReadDump(rig(t, "dump", archive, "--strip-sessions").Stdout)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// crateAccepts has the crate verify the archive and, where encoder is its own,
// read every stream back: every row that the archive holds comes out, in order.
func crateAccepts(t testing.TB, archive, encoder string) {
	t.Helper()
	rig(t, "verify", archive)
	if encoder != rigEncoder {
		return
	}
	var read struct {
		Rows     int64    `json:"rows"`
		Problems []string `json:"problems"`
	}
	if err := run(t, programs.Rig, "read", archive, "--encoder", encoder).JSON(&read); err != nil {
		t.Fatal(err)
	}
	if want := dump(t, archive).Rows(); read.Rows != want || len(read.Problems) > 0 {
		t.Errorf("the crate reads %d of %d rows: %q", read.Rows, want, read.Problems)
	}
}

const rigEncoder = "rig-1"

// build runs replay build and gives its report and exit code; the archive must
// be there unless the exit code is 1.
func build(t testing.TB, archive string, inputs []string, flags ...string) (interop.Report, int) {
	t.Helper()
	args := append([]string{"build", "--archive", archive, "--json"}, flags...)
	r := run(t, programs.Replay, append(args, inputs...)...)
	var rep interop.Report
	if r.Exit != 0 && r.Exit != 3 {
		t.Fatalf("replay %q: exit %d: %s%s", args, r.Exit, r.Stdout, r.Stderr)
	}
	if err := r.JSON(&rep); err != nil {
		t.Fatal(err)
	}
	if want := map[int]string{0: "clean", 3: "findings"}[r.Exit]; rep.Verdict != want {
		t.Fatalf("exit %d with verdict %q", r.Exit, rep.Verdict)
	}
	return rep, r.Exit
}

func sameDump(t testing.TB, crate, ours interop.Dump) {
	t.Helper()
	diff := interop.Differences(crate, ours)
	if len(diff) > 0 {
		t.Errorf("the archives differ in %d places:\n%s", len(diff), strings.Join(diff[:min(len(diff), 12)], "\n"))
	}
}

// fixtures are the streams that real peers wrote; they live beside the decoder.
func fixtures(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "wire", "dendro", "testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no fixtures under %s: %v", pattern, err)
	}
	return names
}

func base(stream string) string {
	return strings.TrimSuffix(filepath.Base(stream), ".stream")
}
