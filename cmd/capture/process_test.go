package main

// Tests that need a process of its own: signals, kill -9, a restart.

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/sidecar"
	"wiretape/internal/peer"
)

var torture = os.Getenv("WIRETAPE_TORTURE") == "1"

// process is the program, running.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	mu     sync.Mutex
	stderr bytes.Buffer
	// newest of the JSON lines.
	status record.Status
	report *record.Report
	sealed []string
	lines  chan struct{}
	read   chan struct{}
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe, args...), lines: make(chan struct{}, 1), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.WaitDelay = time.Second // a command for a sealed file may outlive it
	p.cmd.Stderr = writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stderr.Write(b)
	})
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	go func() {
		defer close(p.read)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			var line struct {
				Status *record.Status
				Report *record.Report
				Sealed *sealedLine
			}
			if json.Unmarshal(s.Bytes(), &line) != nil {
				continue // cut by a kill
			}
			p.mu.Lock()
			switch {
			case line.Status != nil:
				p.status = *line.Status
			case line.Report != nil:
				p.report, p.status = line.Report, line.Report.Status
			case line.Sealed != nil:
				p.sealed = append(p.sealed, line.Sealed.File)
			}
			p.mu.Unlock()
			select {
			case p.lines <- struct{}{}:
			default:
			}
		}
	}()
	return p
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (p *process) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// until waits for a status.
func (p *process) until(what string, ok func(record.Status) bool) {
	p.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		s := p.status
		p.mu.Unlock()
		if ok(s) {
			return
		}
		select {
		case <-p.lines:
		case <-p.read:
			p.t.Fatalf("%s: it ended with %+v\n%s", what, s, p.words())
		case <-deadline:
			p.t.Fatalf("%s: %+v\n%s", what, s, p.words())
		}
	}
}

// wait gives the exit code, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	<-p.read
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("it does not end\n%s", p.words())
	}
	return p.cmd.ProcessState.ExitCode()
}

// endless is a publisher whose every connection sends the same unending stream,
// as fast as it is taken or in small pieces.
type endless struct{ seed [32]byte }

func (e endless) script(c net.Conn, n int) error {
	g := rand.NewChaCha8(e.seed)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for {
		p := make([]byte, 1+r.IntN(1<<r.IntN(15)))
		g.Read(p)
		if _, err := c.Write(p); err != nil {
			return err
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
		}
	}
}

func (e endless) prefix(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8(e.seed).Read(b)
	return b
}

// connections gives the bytes of each connection of a directory, in order.
func connections(t *testing.T, dir string) (ids []string, byID map[string][]byte, partial int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.cap*"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	byID = map[string][]byte{}
	for _, n := range names {
		p := capture.ParseName(filepath.Base(n))
		if p.Form != capture.FormBytes && p.Form != capture.FormPartial {
			continue
		}
		if p.Form == capture.FormPartial {
			partial++
		}
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := byID[p.Connection]; !ok {
			ids = append(ids, p.Connection)
		}
		byID[p.Connection] = append(byID[p.Connection], b...)
	}
	return ids, byID, partial
}

// sums holds every sealed file against its sidecar and its sums.
func sums(t *testing.T, dir string) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, "*.cap"))
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(n, ".cap") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		s, err := sidecar.Parse(text)
		if err != nil || s.SHA256 != fmt.Sprintf("%x", sha256.Sum256(b)) {
			t.Errorf("%s: %v, or another hash than in its sidecar", n, err)
		}
	}
	if out, err := exec.Command("sh", "-c", "cd '"+dir+"' && sha256sum --quiet -c *.sha256").CombinedOutput(); err != nil {
		t.Errorf("sha256sum -c: %v\n%s", err, out)
	}
}

// TestLessonKilledAtRandom: kill -9 at random moments with a live publisher.
// Every restart works by itself, all that was called synced is there, nothing is
// there twice.
func TestLessonKilledAtRandom(t *testing.T) {
	times := 8
	if torture {
		times = 200
	}
	e := endless{[32]byte{1}}
	addr := peer.Listen(t, e.script)
	dir := filepath.Join(t.TempDir(), "rec")
	r := rand.New(rand.NewPCG(42, 0))
	seen := 0
	for k := range times {
		mode := []string{"5ms", "frame", "50ms", "seal"}[k%4]
		p := start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms", "--sync", mode,
			"--rotate-bytes", []string{"20000", "300000", "64MiB"}[k%3], "--rotate-every", "200ms")
		if k%5 > 0 {
			p.until("recording", func(s record.Status) bool { return s.Received > 0 })
		}
		time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
		p.cmd.Process.Kill()
		p.wait()
		if strings.Contains(p.words(), "level=ERROR") {
			t.Fatalf("run %d: %s", k, p.words())
		}
		ids, byID, _ := connections(t, dir)
		var got int64
		for _, id := range ids[min(seen, len(ids)):] {
			got += int64(len(byID[id]))
		}
		if got < p.status.Synced || got < p.status.Written {
			t.Fatalf("run %d: %d bytes are there of %d called written and %d called synced", k, got, p.status.Written, p.status.Synced)
		}
		seen = len(ids)
	}
	// A last one that ends in order leaves nothing unfinished.
	p := start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms")
	p.until("recording", func(s record.Status) bool { return s.Received > 0 })
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.words())
	}
	ids, byID, partial := connections(t, dir)
	if partial != 0 {
		t.Errorf("%d files are left unfinished", partial)
	}
	for _, id := range ids {
		if !bytes.Equal(byID[id], e.prefix(len(byID[id]))) {
			t.Errorf("%s is not what was sent", id)
		}
	}
	if len(ids) < times/2 {
		t.Errorf("%d connections in %d runs", len(ids), times)
	}
	sums(t, dir)
}

// TestLessonSignals (rosbag2 791, tcpdump 1015): a signal at any moment under
// load seals everything, the last file's command runs too, and the exit code is
// 0; a second signal, a second later or more, ends it at once and leaves a file
// that the next start recovers.
func TestLessonSignals(t *testing.T) {
	times := 6
	if torture {
		times = 100
	}
	e := endless{[32]byte{2}}
	addr := peer.Listen(t, e.script)
	r := rand.New(rand.NewPCG(43, 0))
	seen := filepath.Join(t.TempDir(), "seen")
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nprintf '%s\\n' \"$1\" >> '"+seen+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for k := range times {
		dir := filepath.Join(t.TempDir(), "rec")
		os.Remove(seen)
		p := start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms", "--rotate-bytes", "1MB", "--on-sealed", hook)
		if k > 0 {
			p.until("recording", func(s record.Status) bool { return s.Received > 0 })
			time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond)
		} else {
			// Perhaps before it listens to anything but its signals.
			p.until("started", func(s record.Status) bool { return s.Uptime > 0 })
		}
		p.cmd.Process.Signal([]os.Signal{syscall.SIGTERM, syscall.SIGINT}[k%2])
		if code := p.wait(); code != 0 {
			t.Fatalf("run %d: exit code %d\n%s", k, code, p.words())
		}
		ids, byID, partial := connections(t, dir)
		if partial != 0 || p.report == nil || p.report.Received != p.report.Synced {
			t.Fatalf("run %d: %d unfinished, report %+v", k, partial, p.report)
		}
		for _, id := range ids {
			if !bytes.Equal(byID[id], e.prefix(len(byID[id]))) {
				t.Fatalf("run %d: %s is not what was sent", k, id)
			}
		}
		names, _ := filepath.Glob(filepath.Join(dir, "*.cap"))
		text, _ := os.ReadFile(seen)
		if got := strings.Fields(string(text)); strings.Join(got, "\n") != strings.Join(names, "\n") {
			t.Fatalf("run %d: the command saw %d files of %d", k, len(got), len(names))
		}
		sums(t, dir)
	}
	// A second signal while the first is being obeyed: the command for the last
	// file takes its time.
	slow := filepath.Join(t.TempDir(), "slow")
	os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 20\n"), 0o700)
	dir := filepath.Join(t.TempDir(), "rec")
	p := start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms", "--on-sealed", slow)
	p.until("recording", func(s record.Status) bool { return s.Received > 0 })
	begun := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	// Two within a second are one: timeout signals its child and then the group.
	time.Sleep(200 * time.Millisecond)
	p.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(1200 * time.Millisecond)
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("two signals in a second ended it: %v\n%s", err, p.words())
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 1 || time.Since(begun) > 10*time.Second {
		t.Errorf("after the second signal: exit code %d in %v", code, time.Since(begun))
	}
	if w := p.words(); !strings.Contains(w, "again to quit at once") || !strings.Contains(w, "quitting at once") {
		t.Errorf("the log does not say what a second signal does:\n%s", w)
	}
	p = start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms")
	p.until("recording again", func(s record.Status) bool { return s.Received > 0 })
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.words())
	}
	sums(t, dir)
}

// TestRotateBySignal: SIGUSR1 begins new files, and --json names the sealed one.
func TestRotateBySignal(t *testing.T) {
	addr := peer.Listen(t, endless{}.script)
	dir := filepath.Join(t.TempDir(), "rec")
	p := start(t, "record", "tcp://"+addr, "--dir", dir, "--json", "--status-every", "3ms")
	for k := range 3 {
		p.until("more", func(s record.Status) bool { return s.Files == int64(k) && s.Received > int64(k+1)*1000 })
		p.cmd.Process.Signal(syscall.SIGUSR1)
		p.until("sealed", func(s record.Status) bool { return s.Files == int64(k)+1 })
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || len(p.sealed) != 4 {
		t.Errorf("exit code %d, sealed %v", code, p.sealed)
	}
}

// TestMetricsAndNotify: what goes on is told to Prometheus and to systemd.
func TestMetricsAndNotify(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", sock)
	t.Setenv("WATCHDOG_USEC", "200000")
	addr := peer.Listen(t, endless{}.script)
	p := start(t, "record", "tcp://"+addr, "--dir", filepath.Join(t.TempDir(), "rec"), "--json", "--status-every", "3ms", "--metrics", ":0")
	told := map[string]bool{}
	l.SetReadDeadline(time.Now().Add(20 * time.Second))
	for b := make([]byte, 1000); !told["READY"] || !told["WATCHDOG"] || !told["STATUS"]; {
		n, err := l.Read(b)
		if err != nil {
			t.Fatalf("told only %v", told)
		}
		word, _, _ := strings.Cut(string(b[:n]), "=")
		told[word] = true
	}
	p.until("recording", func(s record.Status) bool {
		return s.Synced > 0 && s.Protocols["raw"] == 1 && len(s.Now) == 1 && s.Now[0].Protocol == "raw" && s.Now[0].Received >= s.Now[0].Synced
	})
	m := regexp.MustCompile(`msg=metrics address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.words())
	if m == nil {
		t.Fatalf("no address on the loopback interface:\n%s", p.words())
	}
	resp, err := http.Get("http://" + m[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, name := range []string{"wiretape_received_bytes_total", "wiretape_synced_bytes_total", "wiretape_not_recorded_bytes_total 0", "wiretape_open_connections 1",
		`wiretape_protocol_connections_total{protocol="raw"} 1`, `wiretape_open_connection_received_bytes{connection="c0`, "go_goroutines", "process_open_fds"} {
		if !strings.Contains(string(text), "\n"+name) {
			t.Errorf("no %s in\n%.2000s", name, text)
		}
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for !told["STOPPING"] {
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal("the stop was not told")
		}
		word, _, _ := strings.Cut(string(b[:n]), "=")
		told[word] = true
	}
}

// TestNoSecretShows: not in the log, the report, the files, nor in what ps shows
// of a token from a file or the environment.
func TestNoSecretShows(t *testing.T) {
	const secret = "s3cr3t-Zq8"
	tokens := filepath.Join(t.TempDir(), "token")
	os.WriteFile(tokens, []byte(secret), 0o600)
	t.Setenv("WT_TOKEN", secret)
	authorized := func(r *http.Request) int {
		if r.Header.Get("Authorization") != "Bearer "+secret && r.URL.Query().Get("key") != secret {
			return 401
		}
		return 200
	}
	good := peer.Listen(t, peer.HTTP([]byte("x"), peer.BodyChunked, authorized))
	bad := peer.Listen(t, peer.HTTP(nil, peer.BodyChunked, func(*http.Request) int { return 403 }))
	for _, tc := range []struct {
		args []string
		code int
		ps   bool // the operator put it on the command line
	}{
		{[]string{"http://" + good, "--token-file", tokens}, 0, false},
		{[]string{"http://" + good, "--token-env", "WT_TOKEN"}, 0, false},
		{[]string{"http://" + good + "/?key=" + secret}, 0, true},
		{[]string{"http://" + bad, "--token-file", tokens}, 1, false},
		{[]string{"http://u:" + secret + "@" + bad + "/?key=" + secret}, 1, true},
		{[]string{"http://u:" + secret + "@" + good + ":1:1"}, 2, true},
		{[]string{"http://" + good, "--token-file", tokens, "--header", secret}, 2, true},
	} {
		dir := filepath.Join(t.TempDir(), "rec")
		args := append([]string{"record", "--no-retry", "--dir", dir, "-v"}, tc.args...)
		exe, _ := os.Executable()
		c := exec.Command(exe, args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != tc.code {
			t.Errorf("%v: exit code %d, want %d\n%s", tc.args, c.ProcessState.ExitCode(), tc.code, out)
		}
		all := string(out)
		names, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, n := range names {
			b, _ := os.ReadFile(n)
			all += string(b)
		}
		if !tc.ps {
			all += strings.Join(args, " ")
		}
		if strings.Contains(all, secret) {
			t.Errorf("%v: shown in\n%s", tc.args, all)
		}
	}
}

// TestRelayProcess: the relay as a process, stopped under load.
func TestRelayProcess(t *testing.T) {
	e := endless{[32]byte{4}}
	server := peer.Listen(t, e.script)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := filepath.Join(t.TempDir(), "rec")
	p := start(t, "relay", "--listen", addr, "--to", server, "--dir", dir, "--json", "--status-every", "3ms", "--rotate-bytes", "1MB")
	p.until("started", func(s record.Status) bool { return s.Uptime > 0 })
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(c, 5<<20))
		c.Close()
		got <- b
	}()
	if b := <-got; !bytes.Equal(b, e.prefix(len(b))) || len(b) != 5<<20 {
		t.Errorf("%d bytes came through the relay", len(b))
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.words())
	}
	ids, byID, partial := connections(t, dir)
	if partial != 0 || len(ids) != 2 || len(byID[ids[0]]) < 5<<20 || !bytes.Equal(byID[ids[0]], e.prefix(len(byID[ids[0]]))) || len(byID[ids[1]]) != 0 {
		t.Errorf("%d connections, %d unfinished", len(ids), partial)
	}
	sums(t, dir)
}

// TestNobodyReadsTheOutput: a reader of standard output that goes away, or one
// that does not read, holds no recording up and ends none.
func TestNobodyReadsTheOutput(t *testing.T) {
	const n = 3 << 20
	stream := make([]byte, n)
	for _, gone := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "rec")
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		shrink(t, w)
		c := exec.Command(exe, "record", "tcp://"+peer.Listen(t, peer.Send(stream)), "--dir", dir, "--no-retry",
			"--protocol", "raw", "--rotate-bytes", "50000", "--json", "--sync", "seal", "-v")
		c.Env = append(os.Environ(), asProgram+"=1")
		c.Stdout, c.Stderr = w, w
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if gone {
			r.Close()
		}
		for deadline := time.Now().Add(60 * time.Second); sized(filepath.Join(dir, "*.cap*")) < n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("gone %v: %d of %d bytes", gone, sized(filepath.Join(dir, "*.cap*")), n)
			}
		}
		go io.Copy(io.Discard, r) // and now it reads
		err = c.Wait()
		r.Close()
		if err != nil {
			t.Errorf("gone %v: %v", gone, err)
		}
	}
}
