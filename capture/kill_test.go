package capture_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/aftermath"
	"wiretape/internal/lenproto"
)

// asRecorder makes this test binary a recorder in the folder that it names.
const asRecorder = "CAPTURE_TEST_RECORDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asRecorder); dir != "" {
		if err := recordForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// killedStream is what the recorder gets on its n-th connection.
func killedStream(n int) []byte {
	stream, _ := lenproto.Stream(uint64(n), 400, 300)
	return stream
}

// recordForEver records one connection after the other until it is killed. It
// says "conn ID N" when one begins and "safe ID OFFSET" after each sync.
func recordForEver(dir string) error {
	d, err := capture.Create(dir, capture.Options{Registry: lenproto.Registry, RotateBytes: 20_000})
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://killed"})
		if err != nil {
			return err
		}
		fmt.Printf("conn %s %d\n", w.ID(), n)
		for i, p := 0, killedStream(n); len(p) > 0; i++ {
			k := min(777, len(p))
			if _, err := w.Write(p[:k], capture.SystemClock.Now()); err != nil {
				return err
			}
			p = p[k:]
			if i%5 == 0 {
				if err := w.Sync(); err != nil {
					return err
				}
				fmt.Printf("safe %s %d\n", w.ID(), w.Stats().Synced)
			}
		}
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			return err
		}
		fmt.Printf("safe %s %d\n", w.ID(), w.Stats().Synced)
	}
}

// TestLessonKilledRecorder kills a real process at random moments, with signal
// 9, and restarts in its folder each time: nothing that it called safe is
// missing, nothing is there twice, and nothing is torn but the last frame. It
// closes "the writer makes a state that its own restart rejects" and "a stale
// lock after kill -9" once more, on a real file system.
func TestLessonKilledRecorder(t *testing.T) {
	times := 12
	if torture {
		times = 200
	}
	rng := rand.New(rand.NewPCG(8, 15))
	recorded, sealed := 0, 0
	for range times {
		dir := filepath.Join(t.TempDir(), "rec")
		c := aftermath.Case{Dir: dir, Registry: lenproto.Registry, Sent: map[string][]byte{}, Safe: map[string]int64{}, Killed: true}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asRecorder+"="+dir)
		var words bytes.Buffer
		cmd.Stderr = &words
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(rng.IntN(150))*time.Millisecond, func() { cmd.Process.Kill() })
		said := bufio.NewReader(out)
		for {
			line, err := said.ReadString('\n')
			if err == io.EOF {
				break // and a line without its end was not said
			}
			if err != nil {
				t.Fatal(err)
			}
			var what, id string
			var n int64
			if _, err := fmt.Sscan(line, &what, &id, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			switch what {
			case "conn":
				c.Sent[id] = killedStream(int(n))
				recorded++
			case "safe":
				c.Safe[id] = n
			}
		}
		if err := cmd.Wait(); err == nil || words.Len() > 0 {
			t.Fatalf("it ended by itself: %v\n%s", err, &words)
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		sealed += len(capFiles(t, dir))
	}
	if recorded == 0 || sealed < times {
		t.Fatalf("%d connections, %d files in %d runs", recorded, sealed, times)
	}
}
