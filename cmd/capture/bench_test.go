package main

// Benchmarks against real peers, each a ratio in one run:
//
//	go test -run '^$' -bench . -benchtime 1x ./cmd/capture

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"wiretape/capture/source"
	"wiretape/internal/peer"
)

// sized is how many bytes lie in the files of a folder that match a pattern.
func sized(pattern string) (n int64) {
	names, _ := filepath.Glob(pattern)
	for _, name := range names {
		if st, err := os.Stat(name); err == nil {
			n += st.Size()
		}
	}
	return n
}

// timed starts a program that writes a stream of n bytes into files, and gives
// how long it took from the first byte sent until all are in the files, and the
// program's peak of memory and use of CPU.
func timed(b *testing.B, n int64, pattern string, command func(addr string) *exec.Cmd) (took time.Duration, rss int64, cpu time.Duration) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c := command(l.Addr().String())
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	go func() {
		p := make([]byte, 256<<10)
		for i := range p {
			p[i] = byte(i * 7)
		}
		for left := n; left > 0; {
			k, err := conn.Write(p[:min(left, int64(len(p)))])
			if err != nil {
				return
			}
			left -= int64(k)
		}
	}()
	for sized(pattern) < n {
		time.Sleep(time.Millisecond)
		if time.Since(begun) > 5*time.Minute {
			b.Fatalf("%d of %d bytes", sized(pattern), n)
		}
	}
	took = time.Since(begun)
	c.Process.Kill()
	c.Wait()
	u := c.ProcessState.SysUsage().(*syscall.Rusage)
	return took, u.Maxrss << 10, c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

func programCmd(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

func median[T int64 | time.Duration](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkAgainstSocat records one stream over loopback and lets socat write
// the same to the same disk, in turns.
func BenchmarkAgainstSocat(b *testing.B) {
	if _, err := exec.LookPath("socat"); err != nil {
		b.Fatal("socat is not installed: apt-get install socat")
	}
	for _, tc := range []struct {
		name  string
		bytes int64
		socat string
		sync  string
	}{
		{"unsynced", 1 << 30, "", "seal"},
		{"synced", 64 << 20, ",o-sync", "frame"},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var theirs, ours []time.Duration
			var rss []int64
			for range b.N * 5 {
				dir := b.TempDir()
				file := filepath.Join(dir, "socat")
				d, _, _ := timed(b, tc.bytes, file, func(addr string) *exec.Cmd {
					return exec.Command("socat", "-u", "TCP:"+addr, "OPEN:"+file+",creat,trunc"+tc.socat)
				})
				theirs = append(theirs, d)
				os.Remove(file)
				rec := filepath.Join(dir, "rec")
				d, r, _ := timed(b, tc.bytes, filepath.Join(rec, "*.cap*"), func(addr string) *exec.Cmd {
					return programCmd("record", "tcp://"+addr, "--dir", rec, "--no-retry", "--sync", tc.sync)
				})
				ours, rss = append(ours, d), append(rss, r)
				os.RemoveAll(rec)
			}
			t, o := median(theirs), median(ours)
			mb := float64(tc.bytes) / 1e6
			b.ReportMetric(mb/t.Seconds(), "socat-MB/s")
			b.ReportMetric(mb/o.Seconds(), "capture-MB/s")
			b.ReportMetric(100*t.Seconds()/o.Seconds(), "%of-socat")
			b.ReportMetric(float64(slices.Max(rss))/(1<<20), "peak-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkManyConnections records 200 publishers of 1 MB/s each into a file
// system in memory, and tells how much of a core that takes.
func BenchmarkManyConnections(b *testing.B) {
	const publishers, tick, each = 200, 20 * time.Millisecond, 20_000
	base := "/dev/shm"
	if st, err := os.Stat(base); err != nil || !st.IsDir() {
		base = b.TempDir()
	}
	dir, err := os.MkdirTemp(base, "wiretape-bench")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const last = 10 * time.Second
	for range b.N {
		var sent atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		var addr string
		rec := filepath.Join(dir, "rec")
		c := programCmd("record", "listen+tcp://127.0.0.1:0", "--dir", rec, "--rotate-bytes", "16MiB", "--log-format", "json")
		errs, err := c.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, _ := errs.Read(buf)
		_, rest, _ := strings.Cut(string(buf[:n]), `"address":"`)
		addr, _, _ = strings.Cut(rest, `"`)
		go io.Copy(io.Discard, errs)
		var wg sync.WaitGroup
		for i := range publishers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				peer.Publish(ctx, "tcp", addr, nil, func(c net.Conn, _ int) error {
					p := make([]byte, each)
					time.Sleep(tick * time.Duration(i) / publishers)
					t := time.NewTicker(tick)
					defer t.Stop()
					for {
						select {
						case <-ctx.Done():
							return nil
						case <-t.C:
						}
						if _, err := c.Write(p); err != nil {
							return err
						}
						sent.Add(each)
					}
				})
			}()
		}
		time.Sleep(time.Second)
		from, cpu := sent.Load(), cpuOf(c.Process.Pid)
		begun := time.Now()
		time.Sleep(last)
		took := time.Since(begun)
		cpu, moved := cpuOf(c.Process.Pid)-cpu, sent.Load()-from
		cancel()
		wg.Wait()
		for deadline := time.Now().Add(10 * time.Second); sized(filepath.Join(rec, "*.cap*")) < sent.Load() && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			b.Fatal(err)
		}
		if got := sized(filepath.Join(rec, "*.cap")); got != sent.Load() {
			b.Fatalf("%d bytes recorded of %d", got, sent.Load())
		}
		b.ReportMetric(float64(moved)/1e6/took.Seconds(), "MB/s")
		b.ReportMetric(cpu.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "peak-MiB")
		b.ReportMetric(0, "ns/op")
		os.RemoveAll(rec)
	}
}

// cpuOf is the CPU time that a process has used.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * time.Second / 100
}

// BenchmarkRelayLatency is how much later an answer comes through a relay than
// on a direct connection, over loopback, in turns.
func BenchmarkRelayLatency(b *testing.B) {
	echo := peer.Listen(b, func(c net.Conn, _ int) error {
		p := make([]byte, 64<<10)
		for {
			n, err := c.Read(p)
			if err != nil {
				return err
			}
			if _, err := c.Write(p[:n]); err != nil {
				return err
			}
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c := programCmd("relay", "--listen", addr, "--to", echo, "--dir", filepath.Join(b.TempDir(), "rec"))
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
	}()
	dial := func(addr string) net.Conn {
		for {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				return c
			}
			if source.Wait(context.Background(), 10*time.Millisecond) != nil {
				b.Fatal(err)
			}
		}
	}
	direct, relayed := dial(echo), dial(addr)
	defer direct.Close()
	defer relayed.Close()
	for _, size := range []int{100, 16 << 10} {
		b.Run(strconv.Itoa(size)+" bytes", func(b *testing.B) {
			p := make([]byte, size)
			trip := func(c net.Conn) time.Duration {
				begun := time.Now()
				if _, err := c.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, p); err != nil {
					b.Fatal(err)
				}
				return time.Since(begun)
			}
			var d, r []time.Duration
			for range 200 {
				trip(direct)
				trip(relayed)
			}
			for range b.N * 20_000 {
				d, r = append(d, trip(direct)), append(r, trip(relayed))
			}
			slices.Sort(d)
			slices.Sort(r)
			at := func(v []time.Duration, q float64) float64 {
				return float64(v[int(float64(len(v)-1)*q)]) / 1e3
			}
			// An answer goes through the relay twice.
			b.ReportMetric((at(r, 0.5)-at(d, 0.5))/2, "added-µs-median")
			b.ReportMetric((at(r, 0.99)-at(d, 0.99))/2, "added-µs-p99")
			b.ReportMetric(at(d, 0.5)/2, "direct-µs-median")
			b.ReportMetric(at(d, 0.99)/2, "direct-µs-p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}
