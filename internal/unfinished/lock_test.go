package unfinished

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many want one name at once, and those that get it give it back at once: never
// do two have it, nobody fails but by finding it taken, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/out"
	var inside, got atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				u, err := Start(name)
				if errors.Is(err, ErrBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the name", n)
				}
				got.Add(1)
				inside.Add(-1)
				if err := u.Abandon(); err != nil {
					t.Error(err)
				}
				if err := Sweep(name); err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := tree(t, dir); left != "./\n" || got.Load() < 8 {
		t.Errorf("%d times; left: %s", got.Load(), left)
	}
}

// TestAnotherProcess has a process that holds a name, says who it is and dies.
func TestAnotherProcess(t *testing.T) {
	if name := os.Getenv("WIRETAPE_TEST_HOLD"); name != "" {
		if _, err := Take(name); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		time.Sleep(time.Minute)
		return
	}
	dir := t.TempDir()
	name := dir + "/out"
	write(t, dir+"/real/out", "an output")
	if err := os.Symlink("real/out", name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAnotherProcess$")
	cmd.Env = append(os.Environ(), "WIRETAPE_TEST_HOLD="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{name, dir + "/real/../real/out"} {
		_, err := Take(path)
		var busy *BusyError
		if !errors.As(err, &busy) || !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process "+strconv.Itoa(cmd.Process.Pid)+" on ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l, err := Take(name)
	if err != nil {
		t.Fatal(err)
	}
	// A lock that lost its name is not another's to remove.
	if err := os.Remove(l.path()); err != nil {
		t.Fatal(err)
	}
	other, err := Take(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if _, err := Take(name); !errors.Is(err, ErrBusy) {
		t.Errorf("the other's lock is gone: %v", err)
	}
	if err := other.Release(); err != nil {
		t.Error(err)
	}
	if left := tree(t, dir); left != "./\nout -> real/out\nreal/\nreal/out an output\n" {
		t.Errorf("left: %s", left)
	}
}
