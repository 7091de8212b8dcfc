package replay

// One writer at a time: what a second one, or somebody who takes the archive
// away, meets.

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wiretape/replay/archive"
	"wiretape/wire/dendro"
)

const t0 = 1_700_000_000_000_000_000

// begins is a stream that introduces sources 0, 1, … by the last digits of their
// uuids.
func begins(uuids ...int) []byte {
	b := dendro.AppendPreamble(nil)
	for i, n := range uuids {
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: uint32(i), UUID: fmt.Appendf(nil, "00000000-0000-4000-8000-%012d", n), HasUUID: true,
			Labels: dendro.NewMap(map[string]string{"n": strconv.Itoa(n)}), Metadata: dendro.NewMap(map[string]string{"encoder": "e"})})
	}
	return b
}

// withRows appends rows from to to-1 of source, a nanosecond apart.
func withRows(b []byte, source uint32, from, to int, text string) []byte {
	for i := from; i < to; i++ {
		b = dendro.AppendRowsOf(b, source, uint64(i), dendro.State{}, []dendro.Row{{Stream: []byte("x"), TS: t0 + int64(i), Row: fmt.Appendf(nil, "%s%d", text, i)}})
	}
	return b
}

func appendTo(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); errors.Join(err, f.Close()) != nil {
		t.Fatal(err)
	}
}

// waitFor fails the test where nothing comes of it.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// count is how many rows the archive has that begin with text, of one source.
func count(path string, uuid int, text string) (n int) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return -1
	}
	defer db.Close()
	err = db.QueryRow("SELECT count(*) FROM wal JOIN sources ON id=source_id WHERE uuid LIKE ? AND CAST(row AS TEXT) LIKE ?",
		fmt.Sprintf("%%%012d", uuid), text+"%").Scan(&n)
	if err != nil {
		return -1
	}
	return n
}

func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "replay")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/replay").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return bin
}

// While one process follows, a second one is refused at once, by name, and
// touches nothing; readers read. The follower's rows stay its source's own.
func TestSecondWriterIsRefused(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	one, two, out := filepath.Join(dir, "z1"), filepath.Join(dir, "a2"), filepath.Join(dir, "out")
	write(t, one, withRows(begins(1), 0, 0, 20, "X"))
	// Of the other source first, and with another word on a row of this one:
	// together they would have the archive made anew with other numbers.
	b := withRows(begins(2, 1), 0, 1000, 1020, "Y")
	write(t, two, withRows(withRows(b, 1, 3, 4, "other"), 1, 900, 901, "X"))
	follower := exec.Command(bin, "build", one, "--archive", out, "--follow", "--json")
	var report, words bytes.Buffer
	follower.Stdout, follower.Stderr = &report, &words
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	defer follower.Process.Kill()
	waitFor(t, "the first rows", func() bool { return count(out, 1, "X") == 20 })
	before := dump(t, out)
	if err := os.Symlink("out", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, mode := range [][]string{{out, "--update"}, {out, "--follow"}, {filepath.Join(dir, "link"), "--update"}} {
		cmd := exec.Command(bin, append([]string{"build", one, two, "--archive"}, mode...)...)
		began := time.Now()
		text, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || time.Since(began) > 10*time.Second ||
			!strings.Contains(string(text), "is being written by another process (process "+strconv.Itoa(follower.Process.Pid)+" on ") {
			t.Errorf("%q: exit code %d after %v: %s", mode, code, time.Since(began), text)
		}
	}
	if diff := cmp.Diff(before, dump(t, out)); diff != "" {
		t.Errorf("what was refused changed the archive:\n%s", diff)
	}
	for _, verb := range [][]string{{"verify", out}, {"diff", out, out}} {
		if text, err := exec.Command(bin, verb...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v %s", verb, err, text)
		}
	}
	appendTo(t, one, withRows(nil, 0, 20, 40, "X"))
	waitFor(t, "more rows", func() bool { return count(out, 1, "X") == 40 })
	if err := follower.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := follower.Wait(); err != nil {
		t.Errorf("%v: %s", err, words.String())
	}
	var r Report
	if err := json.Unmarshal(report.Bytes(), &r); err != nil || r.Verdict != Clean || r.Counts.Rows != 40 {
		t.Errorf("%v: %s", err, report.String())
	}
	text, err := exec.Command(bin, "build", one, two, "--archive", out, "--update").CombinedOutput()
	if err != nil && !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("%v: %s", err, text)
	}
	_, want := mustBuild(t, Options{}, one, two)
	if diff := cmp.Diff(want, dump(t, out)); diff != "" {
		t.Errorf("archive (-one go +updated):\n%s", diff)
	}
	if left := must(filepath.Glob(filepath.Join(dir, "*unfinished*"))); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Several updates of one new archive at once: each either does it or says that
// another is at it.
func TestUpdatesAtOnce(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	in := filepath.Join(dir, "s")
	write(t, in, withRows(begins(1), 0, 0, 4000, "X"))
	_, want := mustBuild(t, Options{}, in)
	for _, mode := range []string{"--update", "--json"} {
		for round := range 4 {
			out := filepath.Join(dir, fmt.Sprintf("out%s%d", mode, round))
			var all [4]*exec.Cmd
			var words [4]bytes.Buffer
			for i := range all {
				all[i] = exec.Command(bin, "build", in, "--archive", out, mode)
				all[i].Stderr = &words[i]
				if err := all[i].Start(); err != nil {
					t.Fatal(err)
				}
			}
			done := 0
			for i, cmd := range all {
				_ = cmd.Wait()
				text := words[i].String()
				switch code := cmd.ProcessState.ExitCode(); {
				case code == 0:
					done++
				case code != 1 || !strings.Contains(text, "is being written by another process") && (mode == "--update" || !strings.Contains(text, "is there already")):
					t.Errorf("%s: exit code %d: %s", mode, code, text)
				}
			}
			if done == 0 || mode != "--update" && done != 1 {
				t.Errorf("%s: %d of them ended well", mode, done)
			}
			if diff := cmp.Diff(want, dump(t, out)); diff != "" {
				t.Errorf("%s (-one go +updated):\n%s", mode, diff)
			}
			if left := must(filepath.Glob(filepath.Join(dir, "*unfinished*"))); len(left) > 0 {
				t.Fatalf("%s left behind: %q", mode, left)
			}
		}
	}
}

// following runs a follower on a raw stream until ctx ends or it fails.
func following(ctx context.Context, in, out string) <-chan error {
	done := make(chan error, 1)
	go func() {
		r, err := Follow(ctx, Options{Archive: out}, FollowOptions{Open: opener(in)})
		if (err != nil) != (r.Verdict == Failed) {
			err = errors.Join(err, fmt.Errorf("verdict %s", r.Verdict))
		}
		done <- err
	}()
	return done
}

// An archive that is deleted or replaced under a follower ends it with an error,
// whether more comes or not; what has the name then stays as it is.
func TestArchiveGoesAway(t *testing.T) {
	for _, how := range []string{"deleted", "moved", "replaced"} {
		for _, more := range []bool{false, true} {
			dir := t.TempDir()
			in, out, other := filepath.Join(dir, "s"), filepath.Join(dir, "out"), filepath.Join(dir, "other")
			write(t, in, withRows(begins(1), 0, 0, 20, "X"))
			mustBuild(t, Options{Archive: other}, in)
			kept := must(os.ReadFile(other))
			ctx, cancel := context.WithCancel(context.Background())
			done := following(ctx, in, out)
			waitFor(t, "the first rows", func() bool { return count(out, 1, "X") == 20 })
			var err error
			switch how {
			case "deleted":
				err = errors.Join(os.Remove(out), os.Remove(out+"-wal"), os.Remove(out+"-shm"))
			case "moved":
				err = os.Rename(out, out+".away")
			case "replaced":
				err = os.Rename(other, out)
			}
			if err != nil {
				t.Fatal(err)
			}
			if more {
				appendTo(t, in, withRows(nil, 0, 20, 40, "X"))
			}
			select {
			case err := <-done:
				if !errors.Is(err, archive.ErrGone) {
					t.Errorf("%s, more %v: %v", how, more, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s, more %v: it goes on", how, more)
			}
			cancel()
			if now, err := os.ReadFile(out); how == "replaced" && !bytes.Equal(now, kept) {
				t.Errorf("what replaced it was written to: %v", err)
			} else if how != "replaced" && err == nil {
				t.Errorf("%s: there is an archive again", how)
			}
			if left := must(filepath.Glob(filepath.Join(dir, "*unfinished*"))); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		}
	}
}

// A program that does not look at the lock: what changes who the sources are
// ends the follower before it writes on; what does not is no concern.
func TestOtherWriter(t *testing.T) {
	for _, c := range []struct {
		what   string
		does   []string
		harmed bool
	}{
		{"checkpoint", []string{"PRAGMA wal_checkpoint(TRUNCATE)"}, false},
		{"a document", []string{"INSERT INTO documents(uuid,kind,name,created_wall_ns) VALUES ('u','k','n',1)"}, false},
		{"other ids", []string{"UPDATE wal SET source_id=2", "UPDATE sources SET id=2", "INSERT INTO sources VALUES (1,'{}','{}',0,0,'another',NULL,NULL)"}, true},
		{"other progress", []string{"UPDATE wiretape_state SET body='{}'"}, true},
	} {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "s"), filepath.Join(dir, "out")
		write(t, in, withRows(begins(1), 0, 0, 20, "X"))
		ctx, cancel := context.WithCancel(context.Background())
		done := following(ctx, in, out)
		waitFor(t, "the first rows", func() bool { return count(out, 1, "X") == 20 })
		db, err := sql.Open("sqlite", "file:"+out+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(0)")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range append([]string{"BEGIN IMMEDIATE"}, append(c.does, "COMMIT")...) {
			if c.what == "checkpoint" && q != c.does[0] {
				continue
			}
			db.SetMaxOpenConns(1)
			if _, err := db.Exec(q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		appendTo(t, in, withRows(nil, 0, 20, 40, "X"))
		if c.harmed {
			select {
			case err := <-done:
				if !errors.Is(err, archive.ErrOtherWriter) {
					t.Errorf("%s: %v", c.what, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: it goes on", c.what)
			}
			if n := count(out, 1, "X"); n != 20 {
				t.Errorf("%s: %d rows", c.what, n)
			}
		} else {
			waitFor(t, "rows behind "+c.what, func() bool { return count(out, 1, "X") == 40 })
		}
		cancel()
		if !c.harmed {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
}
