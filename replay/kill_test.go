package replay

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// kill -9 of the real program at random moments, in both modes: starting it
// again works unaided and ends as in one go, and under the archive's name there
// is never anything that is not whole.
func TestKillAnywhere(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "replay")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/replay").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	rec := filepath.Join(dir, "rec")
	record(t, rec, 1<<20, 0, must(os.ReadFile(rowStream(t, 4000))), must(os.ReadFile(stream("reconnect/c1"))), must(os.ReadFile(stream("reconnect/c2"))))
	_, want := mustBuild(t, Options{}, rec)
	kills := 6
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		kills = 100
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for _, mode := range []string{"", "--follow"} {
		out := filepath.Join(dir, "out"+mode+".dendro")
		args := []string{"build", rec, "--archive", out}
		if mode != "" {
			args = append(args, mode)
		}
		// How long an undisturbed run takes, roughly: the follower does not end.
		began := time.Now()
		if mode == "" {
			if b, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
		}
		span := max(time.Since(began), 600*time.Millisecond)
		killed := 0
		for killed < kills {
			cmd := exec.Command(bin, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(span))))
			_ = cmd.Process.Kill()
			err := cmd.Wait()
			killed++
			if _, e := os.Stat(out); e == nil {
				if mode == "" {
					// It appeared: then it is whole.
					if diff := cmp.Diff(want, dump(t, out)); diff != "" {
						t.Fatalf("after %d kills there is an archive that is not whole:\n%s", killed, diff)
					}
					if err := os.Remove(out); err != nil {
						t.Fatal(err)
					}
				} else {
					dump(t, out) // readable at every instant
				}
			} else if err == nil {
				t.Fatal("it ended well without an archive")
			}
		}
		if mode != "" {
			args[len(args)-1] = "--update"
		}
		b, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil && !strings.Contains(err.Error(), "exit status 3") {
			t.Fatalf("the run after %d kills: %v\n%s", killed, err, b)
		}
		if diff := cmp.Diff(want, dump(t, out)); diff != "" {
			t.Fatalf("%s after %d kills (-one go +killed):\n%s", mode, killed, diff)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*"+"unfinished*"))
		if err != nil || len(left) > 0 {
			t.Fatalf("left behind: %q, %v", left, err)
		}
	}
}
