package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
)

// copies watches that of every sealed file a good copy is there at any moment.
type copies struct {
	src, far string
	mu       sync.Mutex
	sealed   map[string]string // base names to SHA-256
}

func (c *copies) add(s capture.Sealed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed[filepath.Base(s.Path)] = s.SHA256
}

func (c *copies) all() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	for n, h := range c.sealed {
		all[n] = h
	}
	return all
}

// hashOf is that of the recorded bytes, "" when the file is not there.
func hashOf(name string) string {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".zst") {
		z, err := capture.Decompress(f)
		if err != nil {
			return err.Error()
		}
		defer z.Close()
		r = z
	}
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (c *copies) there(name, hash string) bool {
	return hashOf(filepath.Join(c.far, name)) == hash || hashOf(filepath.Join(c.far, name+".zst")) == hash
}

// check looks here first: what is deleted here is there already.
func (c *copies) check() error {
	for name, hash := range c.all() {
		if hashOf(filepath.Join(c.src, name)) != hash && !c.there(name, hash) {
			return fmt.Errorf("no good copy of %s is left", name)
		}
	}
	return nil
}

// run is the program, run to its end; the exit code is -1 when it can't be.
func run(args ...string) (code int, words string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestRetentionBesideKilledShippers: shippers of all kinds are killed with -9 at
// random moments while files are sealed and retention deletes what is shipped,
// and copies at the far end are damaged or deleted and found by a recheck. At
// every moment there is a good copy of every sealed file.
func TestRetentionBesideKilledShippers(t *testing.T) {
	times := 25
	if torture {
		times = 300
	}
	base := t.TempDir()
	c := &copies{src: filepath.Join(base, "src"), far: filepath.Join(base, "far"), sealed: map[string]string{}}
	if err := os.Mkdir(c.far, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := capture.Create(c.src, capture.Options{RotateBytes: 20_000, OnSealed: c.add})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	every := func(pause time.Duration, do func() error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	g := rand.NewChaCha8([32]byte{9})
	record := func() error {
		w, err := d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "raw"})
		if err != nil {
			return err
		}
		p := make([]byte, 90_000)
		g.Read(p)
		if _, err := w.Write(p, capture.SystemClock.Now()); err != nil {
			return err
		}
		_, err = w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd)
		return err
	}
	if err := record(); err != nil {
		t.Fatal(err)
	}
	var retention sync.Mutex
	every(60*time.Millisecond, record)
	every(time.Millisecond, c.check)
	every(time.Millisecond, func() error {
		retention.Lock()
		defer retention.Unlock()
		if code, words := run("prune", c.src, "--keep-bytes", "100KB"); code != 0 && code != 3 {
			return fmt.Errorf("prune: exit code %d: %s", code, words)
		}
		return nil
	})
	r := rand.New(rand.NewPCG(44, 0))
	kinds := [][]string{{}, {"--zstd"}, {"--recheck"}, {"--watch", "--poll", "10ms"}, {"--watch", "--zstd"}}
	for k := range times {
		p := start(t, append([]string{"ship", c.src, c.far}, kinds[r.IntN(len(kinds))]...)...)
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		p.cmd.Process.Kill()
		if p.wait() == 1 {
			t.Errorf("run %d: %s", k, p.words())
		}
		if k%5 == 4 {
			damage(t, c, r, &retention)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
	d.Close()
	if code, words := run("ship", c.src, c.far, "--recheck"); code != 0 && code != 3 {
		t.Fatalf("the last pass: exit code %d: %s", code, words)
	}
	for name, hash := range c.all() {
		if !c.there(name, hash) {
			t.Errorf("%s is not there", name)
		}
	}
	damaged, _ := filepath.Glob(filepath.Join(c.far, "*.damaged*"))
	for _, n := range damaged {
		os.Remove(n)
	}
	if left, _ := filepath.Glob(filepath.Join(c.far, "*.new")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if out, err := exec.Command("sh", "-c", "cd '"+c.far+"' && sha256sum --quiet -c *.sha256").CombinedOutput(); err != nil {
		t.Errorf("sha256sum -c: %v\n%s", err, out)
	}
	if code, words := run("verify", c.far); code != 0 {
		t.Errorf("verify: exit code %d: %s", code, words)
	}
	j, err := os.ReadFile(filepath.Join(c.src, capture.JournalName))
	found := bytes.Count(j, []byte(`"event":"unship"`))
	if err != nil || found == 0 {
		t.Errorf("no bad copy was found: %v", err)
	}
	t.Logf("%d files, %d bad copies found, %d set aside", len(c.all()), found, len(damaged))
}

// damage spoils the far copy of a file that is still here, lets a recheck find
// it, and kills that at a random moment from then on.
func damage(t *testing.T, c *copies, r *rand.Rand, retention *sync.Mutex) {
	t.Helper()
	retention.Lock()
	held := true
	defer func() {
		if held {
			retention.Unlock()
		}
	}()
	if code, words := run("ship", c.src, c.far); code != 0 {
		t.Fatalf("exit code %d: %s", code, words)
	}
	for name, hash := range c.all() {
		before, shipped := taken(t, c.src, name)
		if !shipped || hashOf(filepath.Join(c.src, name)) != hash {
			continue
		}
		far := filepath.Join(c.far, name)
		if _, err := os.Stat(far); err != nil {
			far += ".zst"
		}
		b, err := os.ReadFile(far)
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(3) == 0 {
			err = os.Remove(far)
		} else {
			b[r.IntN(len(b))] ^= 0x10
			err = os.WriteFile(far, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, "ship", c.src, c.far, "--recheck")
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if now, _ := taken(t, c.src, name); now > before {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the recheck did not find %s: %s", name, p.words())
			}
		}
		held = false
		retention.Unlock()
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		p.cmd.Process.Kill()
		p.wait()
		return
	}
}

// taken is how often the journal took back that a file was shipped, and whether
// it calls it shipped now.
func taken(t *testing.T, dir, name string) (n int, shipped bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, capture.JournalName))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"`+name+`"`)) {
			continue
		}
		switch {
		case bytes.Contains(line, []byte(`"event":"ship"`)):
			shipped = true
		case bytes.Contains(line, []byte(`"event":"unship"`)):
			shipped = false
			n++
		}
	}
	return n, shipped
}
