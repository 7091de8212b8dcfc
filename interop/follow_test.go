//go:build interop

package interop_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"wiretape/interop"
)

// follower is replay build --follow at work; ended gives how it ended.
type follower struct {
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan error
}

func follow(t *testing.T, dir, archive string) *follower {
	t.Helper()
	f := &follower{ended: make(chan error, 1), cmd: exec.Command(programs.Replay, "build", dir, "--archive", archive, "--follow", "--json")}
	f.cmd.Stdout, f.cmd.Stderr = &f.out, &f.out
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.cmd.Process.Kill() })
	go func() { f.ended <- f.cmd.Wait() }()
	return f
}

// unnumbered takes the numbers of segments out of a dump: an archive that is
// followed may leave gaps between them.
func unnumbered(d interop.Dump) interop.Dump {
	for i := range d.Sources {
		for j := range d.Sources[i].Segments {
			d.Sources[i].Segments[j].Seq = 0
		}
	}
	return d
}

// The crate publishes, capture records, replay follows, and the crate reads the
// archive all the while: it verifies at every moment and only ever grows. The
// follower is killed on the way and started again.
func TestFollow(t *testing.T) {
	tmp := t.TempDir()
	stream, dir, ours := filepath.Join(tmp, "live.stream"), filepath.Join(tmp, "capture"), filepath.Join(tmp, "ours.dendro")
	endpoint, wait := serve(t, "http://127.0.0.1:0", "--out", stream, "--interval-ms", "40", "--live-intervals", "120",
		"--sources", "2", "--streams", "3", "--source-update", "--late-source", "--late-stream")
	record := exec.Command(programs.Capture, "record", endpoint, "--dir", dir, "--no-retry", "--rotate-every", "700ms")
	var words bytes.Buffer
	record.Stdout, record.Stderr = &words, &words
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Process.Kill() })
	recorded := make(chan error, 1)
	go func() { recorded <- record.Wait() }()
	for i := 0; ; i++ {
		if caps, _ := filepath.Glob(filepath.Join(dir, "*.cap*")); len(caps) > 0 {
			break
		} else if i == 500 {
			t.Fatalf("nothing is recorded: %s", words.Bytes())
		}
		time.Sleep(10 * time.Millisecond)
	}
	f := follow(t, dir, ours)
	rows, looks, recording := int64(0), 0, true
	var quiet int
	deadline := time.After(2 * time.Minute)
	for quiet < 3 {
		select {
		case <-deadline:
			t.Fatalf("%d looks, %d rows, recording %v: %s", looks, rows, recording, f.out.Bytes())
		case err := <-f.ended:
			t.Fatalf("the follower ended: %v: %s", err, f.out.Bytes())
		case err := <-recorded:
			if err != nil {
				t.Errorf("capture: %v: %s", err, words.Bytes())
			}
			recording = false
		case <-time.After(300 * time.Millisecond):
		}
		if _, err := os.Stat(ours); err != nil {
			continue
		}
		rig(t, "verify", ours)
		now := dump(t, ours).Rows()
		if now < rows {
			t.Fatalf("the archive had %d rows and has %d", rows, now)
		}
		if !recording && now == rows {
			quiet++
		}
		rows = now
		if looks++; looks == 5 {
			f.cmd.Process.Kill()
			<-f.ended
			f = follow(t, dir, ours)
		}
	}
	wait()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-f.ended; err != nil {
		t.Errorf("follow: %v: %s", err, f.out.Bytes())
	}
	if looks < 6 {
		t.Errorf("only %d looks while following", looks)
	}
	theirs := filepath.Join(tmp, "crate.dendro")
	subscribe(t, stream, theirs, rigEncoder)
	crateAccepts(t, ours, rigEncoder)
	sameDump(t, unnumbered(dump(t, theirs)), unnumbered(dump(t, ours)))
}
