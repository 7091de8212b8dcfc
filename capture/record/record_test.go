package record_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/sidecar"
	"wiretape/capture/source"
	"wiretape/internal/fixture"
	"wiretape/internal/peer"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// torture says that the long campaigns run.
var torture = os.Getenv("WIRETAPE_TORTURE") == "1"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// real is a stream that a real publisher sent.
func real(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("../../wire/dendro/testdata/real/small.stream")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// noise is bytes of no protocol.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{3}).Read(b)
	return b
}

func open(t testing.TB, dir string, o record.Options) *record.Recorder {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet
	}
	r, err := record.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sourceOf(t testing.TB, endpoint string, o source.Options) source.Source {
	t.Helper()
	e, err := source.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Open(t.Context(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recorded gives the bytes of every connection in a file system, by its id.
func recorded(files map[string][]byte) (byID map[string][]byte, ids []string, count int) {
	var names []string
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	byID = map[string][]byte{}
	for _, n := range names {
		p := capture.ParseName(filepath.Base(n))
		if p.Form != capture.FormBytes && p.Form != capture.FormPartial {
			continue
		}
		if _, ok := byID[p.Connection]; !ok {
			ids = append(ids, p.Connection)
			byID[p.Connection] = []byte{}
		}
		byID[p.Connection] = append(byID[p.Connection], files[n]...)
		count++
	}
	return byID, ids, count
}

func filesOf(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// sidecars gives every sidecar, in order, and holds each against its file.
func sidecars(t testing.TB, files map[string][]byte) (all []*sidecar.Sidecar) {
	t.Helper()
	var names []string
	for n := range files {
		if capture.ParseName(filepath.Base(n)).Form == capture.FormBytes {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	previous := map[string]string{}
	for _, n := range names {
		s, err := sidecar.Parse(files[strings.TrimSuffix(n, ".cap")+".json"])
		if err != nil {
			t.Fatalf("%s: %v", n, err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(files[n])); got != s.SHA256 || s.Length != int64(len(files[n])) {
			t.Errorf("%s: hash and length are not the sidecar's", n)
		}
		if s.PreviousSHA256 != previous[s.Connection] {
			t.Errorf("%s: the chain of hashes is broken", n)
		}
		previous[s.Connection] = s.SHA256
		all = append(all, s)
	}
	return all
}

// slow is a disk that takes its time.
func slow(fsys vfs.FS, write, sync time.Duration) vfs.FS {
	// Fault asks under its lock; the waiting is done by the file itself.
	return slowFS{fsys, write, sync}
}

type slowFS struct {
	vfs.FS
	write, sync time.Duration
}

func (s slowFS) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	s slowFS
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(f.s.write)
	return f.File.WriteAt(p, off)
}

func (f slowFile) Sync() error {
	time.Sleep(f.s.sync)
	return f.File.Sync()
}

// TestVerbatim: for every transport, rotation and disk, the files put one behind
// the other are what the peer sent.
func TestVerbatim(t *testing.T) {
	id := peer.NewIdentity(t)
	framed, raw := real(t), noise(200_000)
	type transport struct {
		name string
		// start gives an endpoint and its options; publish, if any, connects in.
		start func(t *testing.T, stream []byte) (endpoint string, o source.Options, publish func(addr string))
		end   string
	}
	tlsOpt := source.Options{TLS: source.TLS{CA: id.CA, Cert: id.ClientCert, Key: id.ClientKey}}
	dial := func(f func(t *testing.T, stream []byte) string, o source.Options) func(*testing.T, []byte) (string, source.Options, func(string)) {
		return func(t *testing.T, s []byte) (string, source.Options, func(string)) { return f(t, s), o, nil }
	}
	in := func(endpoint, network string, client bool) func(*testing.T, []byte) (string, source.Options, func(string)) {
		return func(t *testing.T, s []byte) (string, source.Options, func(string)) {
			c := id.ClientConfig(t)
			if !client {
				c = nil
			}
			e := endpoint
			if network == "unix" {
				e += filepath.Join(t.TempDir(), "s")
			}
			return e, source.Options{TLS: source.TLS{CA: id.CA, Cert: id.ServerCert, Key: id.ServerKey}},
				func(addr string) { go peer.Publish(context.Background(), network, addr, c, peer.Send(s)) }
		}
	}
	transports := []transport{
		{"tcp", dial(func(t *testing.T, s []byte) string { return "tcp://" + peer.Listen(t, peer.Send(s)) }, source.Options{}), sidecar.TransportClean},
		{"tls", dial(func(t *testing.T, s []byte) string {
			return "tls://" + peer.ListenTLS(t, id.ServerConfig(t, true), peer.Send(s))
		}, tlsOpt), sidecar.TransportClean},
		{"unix", dial(func(t *testing.T, s []byte) string { return "unix://" + peer.ListenUnix(t, peer.Send(s)) }, source.Options{}), sidecar.TransportClean},
		{"http chunked", dial(func(t *testing.T, s []byte) string {
			return "http://" + peer.Listen(t, peer.HTTP(s, peer.BodyChunked, nil))
		}, source.Options{}), sidecar.TransportClean},
		{"http close", dial(func(t *testing.T, s []byte) string {
			return "http://" + peer.Listen(t, peer.HTTP(s, peer.BodyClose, nil))
		}, source.Options{}), sidecar.TransportUnwitnessed},
		{"http cut", dial(func(t *testing.T, s []byte) string {
			return "http://" + peer.Listen(t, peer.HTTP(s, peer.BodyLengthShort, nil))
		}, source.Options{}), sidecar.TransportCut},
		{"https", dial(func(t *testing.T, s []byte) string {
			return "https://" + peer.ListenTLS(t, id.ServerConfig(t, true), peer.HTTP(s, peer.BodyChunked, nil))
		}, tlsOpt), sidecar.TransportClean},
		{"file", dial(func(t *testing.T, s []byte) string {
			p := filepath.Join(t.TempDir(), "f")
			os.WriteFile(p, s, 0o600)
			return "file://" + p
		}, source.Options{}), sidecar.TransportClean},
		{"stdin", func(t *testing.T, s []byte) (string, source.Options, func(string)) {
			return "-", source.Options{Stdin: bytes.NewReader(s)}, nil
		}, sidecar.TransportClean},
		{"listen+tcp", in("listen+tcp://127.0.0.1:0", "tcp", false), sidecar.TransportClean},
		{"listen+tls", in("listen+tls://127.0.0.1:0", "tcp", true), sidecar.TransportClean},
		{"listen+unix", in("listen+unix://", "unix", false), sidecar.TransportClean},
	}
	rotations := []struct {
		name  string
		bytes int64
		every time.Duration
		sync  record.Sync
		slow  bool
	}{
		{"one file", 0, 0, record.Sync{}, false},
		{"smallest", 1, 0, record.Sync{Every: time.Millisecond}, false},
		{"4096", 4096, 0, record.Sync{Frame: true}, false},
		{"65536", 65536, 0, record.Sync{Every: time.Millisecond}, false},
		{"by time", 0, time.Millisecond, record.Sync{}, false},
		{"slow disk", 20_000, 5 * time.Millisecond, record.Sync{Every: 3 * time.Millisecond}, true},
	}
	for _, tr := range transports {
		for _, ro := range rotations {
			for _, st := range []struct {
				name  string
				bytes []byte
			}{{"frames", framed}, {"noise", raw}} {
				if ro.bytes == 1 && st.name == "noise" {
					// One byte a file: as many files as this is worth.
					st.bytes = raw[:2000]
				}
				t.Run(tr.name+"/"+ro.name+"/"+st.name, func(t *testing.T) {
					t.Parallel()
					mem := vfs.NewMem()
					var fsys vfs.FS = mem
					if ro.slow {
						fsys = slow(mem, time.Millisecond, 2*time.Millisecond)
					}
					endpoint, so, publish := tr.start(t, st.bytes)
					r := open(t, "rec", record.Options{NoRetry: true, Sync: ro.sync, Buffer: 1,
						Capture: capture.Options{FS: fsys, RotateBytes: ro.bytes, RotateEvery: ro.every}})
					s := sourceOf(t, endpoint, so)
					if publish != nil {
						publish(source.Address(s))
					}
					r.Record(t.Context(), s)
					rep, err := r.Close()
					if err != nil {
						t.Fatal(err)
					}
					files := mem.Files()
					byID, ids, count := recorded(files)
					if len(ids) != 1 || sha256.Sum256(byID[ids[0]]) != sha256.Sum256(st.bytes) {
						t.Fatalf("%d connections, %d bytes of %d", len(ids), len(byID[ids[0]]), len(st.bytes))
					}
					n := int64(len(st.bytes))
					if rep.Received != n || rep.Written != n || rep.Synced != n || rep.NotRecorded != 0 || rep.Files != int64(count) {
						t.Errorf("report %+v of %d bytes in %d files", rep.Status, n, count)
					}
					e := rep.Ended[0]
					wantFraming := map[string]string{"frames": "clean", "noise": ""}[st.name]
					if e.Transport != tr.end || e.Framing != wantFraming {
						t.Errorf("transport %q, framing %q, want %q, %q (%s)", e.Transport, e.Framing, tr.end, wantFraming, e.Detail)
					}
					want := record.VerdictClean
					if tr.end == sidecar.TransportCut {
						want = record.VerdictFindings
					}
					if rep.Verdict != want {
						t.Errorf("verdict %s, want %s", rep.Verdict, want)
					}
					all := sidecars(t, files)
					last := all[len(all)-1]
					if last.Transport == nil || last.Transport.Kind != tr.end {
						t.Errorf("the last sidecar's transport: %+v", last.Transport)
					}
					if st.name == "frames" {
						for _, s := range all {
							if s.Protocol != "dendro" || s.Framing != sidecar.FramingFrames || !s.StartsAtBoundary || !s.EndsAtBoundary {
								t.Errorf("file %d: %s, %s, boundaries %v and %v", s.Number, s.Protocol, s.Framing, s.StartsAtBoundary, s.EndsAtBoundary)
							}
						}
					}
					if ro.bytes == 4096 && st.name == "noise" && count != (len(st.bytes)+4095)/4096 {
						t.Errorf("%d files of 4096 bytes for %d", count, len(st.bytes))
					}
				})
			}
		}
	}
}

// unsynced is the system's files without the cost of syncing: for tests of
// names and numbers on the real file system.
type unsynced struct{ vfs.FS }

func (u unsynced) Create(name string) (vfs.File, error) {
	f, err := u.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

// TestTenThousandRotations: no name repeats, order by name is order of writing,
// nothing is lost between two files.
func TestTenThousandRotations(t *testing.T) {
	run := func(t *testing.T, fsys vfs.FS, dir string, n int, files func() map[string][]byte) {
		want := noise(100 * n)
		r := open(t, dir, record.Options{NoRetry: true, Protocol: "raw", Sync: record.Sync{Every: time.Second},
			Capture: capture.Options{FS: fsys, RotateBytes: 100}})
		r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(want)), source.Options{}))
		rep, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		byID, ids, count := recorded(files())
		if len(ids) != 1 || !bytes.Equal(byID[ids[0]], want) || count != n || rep.Files != int64(n) {
			t.Fatalf("%d connections, %d files, %d bytes", len(ids), count, len(byID[ids[0]]))
		}
	}
	t.Run("memory", func(t *testing.T) {
		mem := vfs.NewMem()
		run(t, mem, "rec", 10_000, mem.Files)
	})
	t.Run("disk", func(t *testing.T) {
		n := 500
		if torture {
			n = 10_000
		}
		dir := filepath.Join(t.TempDir(), "rec")
		run(t, unsynced{vfs.OS}, dir, n, func() map[string][]byte { return filesOf(t, dir) })
	})
}

// journal reads a journal's entries from a file.
func journal(t testing.TB, text []byte) (all []capture.Entry) {
	t.Helper()
	for _, l := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var e capture.Entry
		if err := json.Unmarshal(l, &e); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		all = append(all, e)
	}
	return all
}

// TestLessonSilentServer (go-mysql 82): a server that sends its preamble and
// goes silent is given up, the reason is recorded, and the recorder connects
// again; a keepalive just in time never trips it.
func TestLessonSilentServer(t *testing.T) {
	stream := real(t)
	const idle = 700 * time.Millisecond
	var conns atomic.Int32
	script := func(c net.Conn, n int) error {
		conns.Add(1)
		if n == 0 {
			c.Write(stream[:14]) // the preamble
			return peer.Hold(c)
		}
		for i := range 6 {
			if _, err := c.Write(stream[i*1000 : (i+1)*1000]); err != nil {
				return err
			}
			time.Sleep(idle * 6 / 10)
		}
		return peer.Hold(c)
	}
	mem := vfs.NewMem()
	r := open(t, "rec", record.Options{RetryMax: 10 * time.Millisecond, Capture: capture.Options{FS: mem}})
	ctx, cancel := context.WithTimeout(t.Context(), idle*7)
	defer cancel()
	r.Record(ctx, sourceOf(t, "tcp://"+peer.Listen(t, script), source.Options{IdleTimeout: idle}))
	rep, err := r.Close()
	if err != nil || rep.Verdict != record.VerdictClean {
		t.Fatalf("%v, %s", err, rep.Verdict)
	}
	byID, ids, _ := recorded(mem.Files())
	if len(ids) < 2 || !bytes.Equal(byID[ids[0]], stream[:14]) || !bytes.Equal(byID[ids[1]], stream[:6000]) {
		t.Fatalf("connections %v", ids)
	}
	var reasons []string
	for _, e := range journal(t, mem.Files()["rec/journal.jsonl"]) {
		if e.Event == capture.EventDisconnect {
			reasons = append(reasons, e.Reason)
		}
	}
	if reasons[0] != sidecar.TransportIdle || !strings.Contains(rep.Ended[0].Detail, "nothing received for 700ms") {
		t.Errorf("reasons %v, %s", reasons, rep.Ended[0].Detail)
	}
}

// TestLessonSecondRecorder (pebble 4919): the second recorder in a directory
// ends and names the holder.
func TestLessonSecondRecorder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	r := open(t, dir, record.Options{})
	_, err := record.Open(dir, record.Options{Log: quiet})
	var locked *capture.LockedError
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("%v", err)
	}
	if _, err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, record.Options{})
	if _, err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLessonDiskFull (rosbag2 PR 2443): when the disk is full recording stops
// with everything before it safe, and says which file, where, why, and how many
// received bytes are in no file. On a disk that fails at every possible write,
// and on a real small one where mounting is permitted.
func TestLessonDiskFull(t *testing.T) {
	stream := noise(4 << 20)
	run := func(t *testing.T, dir string, o record.Options) (*record.Report, error) {
		t.Helper()
		o.Sync = record.Sync{Every: 5 * time.Millisecond}
		o.Protocol, o.NoRetry = "raw", true
		r := open(t, dir, o)
		r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(stream)), source.Options{}))
		return r.Close()
	}
	check := func(t *testing.T, rep *record.Report, err error, files map[string][]byte, errno syscall.Errno) {
		t.Helper()
		var fe *capture.FileError
		if !errors.As(err, &fe) || !errors.Is(err, errno) || fe.File == "" {
			t.Fatalf("%v", err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("errno %d", int(errno))) {
			t.Errorf("%q does not name the errno", err)
		}
		byID, ids, _ := recorded(files)
		got := int64(0)
		if len(ids) > 0 {
			got = int64(len(byID[ids[0]]))
			if !bytes.Equal(byID[ids[0]], stream[:got]) {
				t.Fatal("what is recorded is not what was sent")
			}
		}
		if rep.Verdict != record.VerdictFailed || rep.Received != rep.Written+rep.NotRecorded || rep.Written > got || rep.Synced > rep.Written {
			t.Errorf("%d bytes in files, status %+v", got, rep.Status)
		}
		if rep.NotRecorded == 0 && fe.Op == "write" && strings.HasSuffix(fe.File, ".cap.partial") {
			t.Errorf("nothing said to be lost: %+v", rep.Status)
		}
	}
	t.Run("double", func(t *testing.T) {
		for n := 1; ; n++ {
			mem := vfs.NewMem()
			writes, hit := 0, false
			f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
				if op.Kind != "write" || strings.HasSuffix(op.Name, "journal.jsonl") {
					return vfs.Verdict{}
				}
				if writes++; writes < n {
					return vfs.Verdict{}
				}
				hit = true
				return vfs.Verdict{Err: syscall.ENOSPC, Short: op.Size / 2}
			}}
			rep, err := run(t, "rec", record.Options{Capture: capture.Options{FS: f, RotateBytes: 512 << 10}})
			if !hit || n > 60 {
				if hit {
					break // the later ones are like those before
				}
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			check(t, rep, err, mem.Files(), syscall.ENOSPC)
			// The next start gets along by itself, and keeps what is there.
			before, ids, _ := recorded(mem.Files())
			r := open(t, "rec", record.Options{Capture: capture.Options{FS: mem}})
			if _, err := r.Close(); err != nil {
				t.Fatal(err)
			}
			after, _, _ := recorded(mem.Files())
			for _, id := range ids {
				if !bytes.Equal(before[id], after[id]) {
					t.Fatalf("write %d: recovery changed the bytes", n)
				}
			}
			for name := range mem.Files() {
				if strings.HasSuffix(name, ".partial") {
					t.Fatalf("write %d: %s after recovery", n, name)
				}
			}
		}
	})
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := mountMemory(dir, "1m", false); err != nil {
			t.Logf("mounting is not permitted here (%v): the double above stands for it", err)
			return
		}
		defer unmount(dir)
		rec := filepath.Join(dir, "rec")
		rep, err := run(t, rec, record.Options{Capture: capture.Options{RotateBytes: 200_000}})
		check(t, rep, err, filesOf(t, rec), syscall.ENOSPC)
		if rep.Written < 600_000 {
			t.Errorf("only %d bytes were written to 1 MiB", rep.Written)
		}
		// With space again the next start recovers and goes on.
		if err := mountMemory(dir, "16m", true); err != nil {
			t.Fatal(err)
		}
		before, ids, _ := recorded(filesOf(t, rec))
		rep, err = run(t, rec, record.Options{})
		if err != nil || rep.Verdict != record.VerdictClean {
			t.Fatalf("%v", err)
		}
		after, all, _ := recorded(filesOf(t, rec))
		if !bytes.Equal(before[ids[0]], after[ids[0]]) || !bytes.Equal(after[all[len(all)-1]], stream) {
			t.Error("what was there changed, or the new recording is not whole")
		}
		sidecars(t, filesOf(t, rec))
	})
}

// TestMinFree: recording stops before the disk has less free than it should
// keep, with everything received recorded.
func TestMinFree(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetFree(10 << 20)
	r := open(t, "rec", record.Options{MinFree: 1 << 20, Capture: capture.Options{FS: mem}})
	stop := make(chan struct{})
	var sent []byte
	addr := peer.Listen(t, func(c net.Conn, _ int) error {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return nil
			default:
			}
			p := noise(1000)
			n, err := c.Write(p)
			sent = append(sent, p[:n]...)
			if err != nil {
				return err
			}
			if i == 10 {
				mem.SetFree(1<<20 - 1)
			}
			time.Sleep(time.Millisecond)
		}
	})
	defer close(stop)
	r.Record(t.Context(), sourceOf(t, "tcp://"+addr, source.Options{}))
	rep, err := r.Close()
	var ns *record.NoSpaceError
	if !errors.As(err, &ns) || ns.Free != 1<<20-1 || ns.Keep != 1<<20 || rep.Verdict != record.VerdictFailed {
		t.Fatalf("%v, %s", err, rep.Verdict)
	}
	byID, ids, _ := recorded(mem.Files())
	if rep.NotRecorded != 0 || int64(len(byID[ids[0]])) != rep.Received || rep.Synced != rep.Received {
		t.Errorf("%+v", rep.Status)
	}
}

// TestSlowDiskHoldsThePublisherUp: when the buffer is full the publisher waits,
// nothing is lost, and the report says for how long.
func TestSlowDiskHoldsThePublisherUp(t *testing.T) {
	stream := noise(8 << 20)
	mem := vfs.NewMem()
	r := open(t, "rec", record.Options{NoRetry: true, Buffer: 1, Capture: capture.Options{FS: slow(mem, 2*time.Millisecond, 0)}})
	r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(stream)), source.Options{}))
	rep, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	byID, ids, _ := recorded(mem.Files())
	if !bytes.Equal(byID[ids[0]], stream) {
		t.Fatal("not what was sent")
	}
	if rep.Stalled <= 0 || rep.WaitingMost > record.MinBuffer || rep.WaitingMost < record.MinBuffer/2 {
		t.Errorf("held up for %v, at most %d bytes waited", rep.Stalled, rep.WaitingMost)
	}
}

// TestSlowSyncHoldsNobodyUp: the network is read on while a sync takes its time.
func TestSlowSyncHoldsNobodyUp(t *testing.T) {
	stream := noise(2 << 20)
	mem := vfs.NewMem()
	release := make(chan struct{})
	r := open(t, "rec", record.Options{NoRetry: true, Sync: record.Sync{Every: time.Millisecond},
		Capture: capture.Options{FS: stuck{mem, release}}})
	ended := make(chan *record.Report)
	go func() {
		r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(stream)), source.Options{}))
		rep, _ := r.Close()
		ended <- rep
	}()
	for deadline := time.Now().Add(20 * time.Second); r.Status().Written < int64(len(stream)); {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", r.Status())
		}
		time.Sleep(time.Millisecond)
	}
	if s := r.Status(); s.Synced != 0 || s.Received != int64(len(stream)) {
		t.Errorf("while the sync goes on: %+v", s)
	}
	close(release)
	if rep := <-ended; rep.Synced != int64(len(stream)) || rep.Stalled != 0 {
		t.Errorf("%+v", rep.Status)
	}
}

// stuck is a disk whose syncs wait until they are released.
type stuck struct {
	vfs.FS
	release chan struct{}
}

func (s stuck) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	if err != nil || !strings.HasSuffix(name, ".cap.partial") {
		return f, err
	}
	return stuckFile{f, s.release}, nil
}

type stuckFile struct {
	vfs.File
	release chan struct{}
}

func (f stuckFile) Sync() error {
	<-f.release
	return f.File.Sync()
}

// TestFailedSync: nothing is called safe after a sync failed, and recording
// ends.
func TestFailedSync(t *testing.T) {
	mem := vfs.NewMem()
	syncs := 0
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind == "sync" && strings.HasSuffix(op.Name, ".cap.partial") {
			if syncs++; syncs > 3 {
				return vfs.Verdict{Err: syscall.EIO}
			}
		}
		return vfs.Verdict{}
	}}
	r := open(t, "rec", record.Options{Sync: record.Sync{Frame: true}, Capture: capture.Options{FS: f}})
	r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, func(c net.Conn, _ int) error {
		for {
			if _, err := c.Write(noise(100)); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}), source.Options{}))
	rep, err := r.Close()
	if !errors.Is(err, syscall.EIO) || rep.Synced > rep.Written || rep.Verdict != record.VerdictFailed {
		t.Errorf("%v, %+v", err, rep.Status)
	}
	crashed := mem.CrashClone(vfs.CrashLoseAll, 1)
	byID, ids, _ := recorded(crashed.Files())
	if len(ids) != 1 || int64(len(byID[ids[0]])) < rep.Synced {
		t.Errorf("%d bytes called safe, %d are", rep.Synced, len(byID[ids[0]]))
	}
}

// TestLessonPowerCut (nats-server 7564): what a status called synced is in a
// crash clone of the disk taken after it.
func TestLessonPowerCut(t *testing.T) {
	for _, mode := range []record.Sync{{Every: time.Millisecond}, {Frame: true}, {}} {
		mem := vfs.NewMem()
		stream := real(t)
		r := open(t, "rec", record.Options{NoRetry: true, Sync: mode, Capture: capture.Options{FS: mem, RotateBytes: 30_000}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, func(c net.Conn, n int) error {
				for i := 0; i < len(stream); i += 2000 {
					c.Write(stream[i:min(i+2000, len(stream))])
					time.Sleep(200 * time.Microsecond)
				}
				return nil
			}), source.Options{}))
		}()
		for seed := uint64(0); ; seed++ {
			synced := r.Status().Synced
			crashed := mem.CrashClone(vfs.Crash(seed%2), seed)
			byID, ids, _ := recorded(crashed.Files())
			got := []byte{}
			if len(ids) > 0 {
				got = byID[ids[0]]
			}
			if int64(len(got)) < synced || !bytes.HasPrefix(stream, got[:synced]) {
				t.Fatalf("%+v: %d bytes called safe, %d survive", mode, synced, len(got))
			}
			select {
			case <-done:
			default:
				time.Sleep(time.Millisecond)
				continue
			}
			break
		}
		if _, err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWrongProtocol (barman 223): a protocol that was named and is not what
// comes ends the recorder with the reason, and what came is kept; found out by
// itself it is recorded as bytes.
func TestWrongProtocol(t *testing.T) {
	for _, tc := range []struct{ name, protocol, finding string }{
		{"bad-magic", "dendro", "bad-preamble"},
		{"bad-version", "dendro", "bad-version"},
		{"bad-magic", "auto", ""},
		{"bad-magic", "raw", ""},
	} {
		t.Run(tc.name+" "+tc.protocol, func(t *testing.T) {
			stream, err := os.ReadFile("../../wire/dendro/testdata/crafted/" + tc.name + ".stream")
			if err != nil {
				t.Fatal(err)
			}
			var conns atomic.Int32
			addr := peer.Listen(t, func(c net.Conn, _ int) error {
				conns.Add(1)
				c.Write(stream)
				if tc.finding != "" {
					return peer.Hold(c) // nothing but the finding ends it
				}
				return nil
			})
			mem := vfs.NewMem()
			r := open(t, "rec", record.Options{Protocol: tc.protocol, NoRetry: tc.finding == "", Capture: capture.Options{FS: mem}})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			r.Record(ctx, sourceOf(t, "tcp://"+addr, source.Options{}))
			rep, err := r.Close()
			byID, ids, _ := recorded(mem.Files())
			if len(ids) != 1 || !bytes.Equal(byID[ids[0]], stream) || conns.Load() != 1 {
				t.Errorf("%d connections, %d made, %d of %d bytes", len(ids), conns.Load(), len(byID[ids[0]]), len(stream))
			}
			if tc.finding == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var wrong *record.WrongProtocolError
			if !errors.As(err, &wrong) || wrong.Finding.Kind != tc.finding || rep.Verdict != record.VerdictFailed {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestAnotherProtocol: of a named protocol whose streams may begin anywhere, bytes
// that begin as another's do end the recorder with the reason, also where they
// come one by one. Bytes that tell nothing are recorded to their end, warned of
// once, and the framing is lost.
func TestAnotherProtocol(t *testing.T) {
	dendro := real(t)
	aewr := fixture.Read(t, "../../wire/aewr/testdata/sessions/v31-down.stream")
	melin := fixture.Read(t, "../../wire/melin/testdata/s1-main/conn01-p2r.bin.gz")
	text := bytes.Repeat([]byte("a line of text\n"), 2000)
	for _, tc := range []struct {
		name, protocol string
		stream         []byte
		other          string
		ending         wire.Ending
	}{
		{"dendro", "melin", dendro, "dendro", ""},
		{"dendro", "aewr", dendro, "dendro", ""},
		{"aewr", "melin", aewr, "aewr", ""},
		{"melin", "aewr", melin, "melin", ""},
		{"aewr", "dendro", aewr, "bad-preamble", ""},
		{"text", "melin", text, "", wire.EndingLost},
		{"text", "aewr", text, "", wire.EndingLost},
		{"the middle of aewr", "aewr", aewr[70:], "", wire.EndingClean},
		{"the middle of melin", "melin", melin[3:], "", wire.EndingClean},
		{"itself", "melin", melin, "", wire.EndingClean},
		{"itself", "aewr", aewr, "", wire.EndingClean},
	} {
		for _, piece := range []int{1, len(tc.stream)} {
			tc := tc
			if tc.other == "bad-preamble" && piece == 1 {
				tc.other = "aewr" // its magic is there before a preamble could be
			}
			t.Run(fmt.Sprintf("%s as %s, by %d", tc.name, tc.protocol, piece), func(t *testing.T) {
				recorder := make(chan *record.Recorder, 1)
				addr := peer.Listen(t, func(c net.Conn, _ int) error {
					r := <-recorder
					for sent := 0; sent < len(tc.stream); {
						n := min(piece, len(tc.stream)-sent)
						if sent >= 100 {
							n = len(tc.stream) - sent // the first bytes tell
						}
						if _, err := c.Write(tc.stream[sent : sent+n]); err != nil {
							return nil
						}
						sent += n
						// One by one they come only where each was read before the next is sent.
						for until := time.Now().Add(time.Second); n == 1 && r.Status().Received < int64(sent) && time.Now().Before(until); {
							time.Sleep(50 * time.Microsecond)
						}
					}
					if tc.other != "" {
						return peer.Hold(c) // nothing but what it is ends it
					}
					return nil
				})
				mem := vfs.NewMem()
				var log bytes.Buffer
				r := open(t, "rec", record.Options{Protocol: tc.protocol, NoRetry: tc.other == "", Capture: capture.Options{FS: mem},
					Log: slog.New(slog.NewTextHandler(&log, nil))})
				recorder <- r
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				r.Record(ctx, sourceOf(t, "tcp://"+addr, source.Options{}))
				rep, err := r.Close()
				byID, ids, _ := recorded(mem.Files())
				if len(ids) != 1 || ctx.Err() != nil {
					t.Fatalf("%d connections, %v", len(ids), ctx.Err())
				}
				if tc.other != "" {
					var wrong *record.WrongProtocolError
					if !errors.As(err, &wrong) || wrong.Finding.Got != tc.other && wrong.Finding.Kind != tc.other || !bytes.HasPrefix(tc.stream, byID[ids[0]]) || len(byID[ids[0]]) == 0 {
						t.Errorf("%v, %d bytes kept", err, len(byID[ids[0]]))
					}
					return
				}
				if err != nil || !bytes.Equal(byID[ids[0]], tc.stream) || rep.Ended[0].Framing != string(tc.ending) {
					t.Errorf("%v, %d of %d bytes, %+v", err, len(byID[ids[0]]), len(tc.stream), rep.Ended)
				}
				want := 0
				if tc.ending == wire.EndingLost {
					want = 1
				}
				if n := strings.Count(log.String(), "no frames are found"); n != want {
					t.Errorf("warned %d times:\n%s", n, log.String())
				}
			})
		}
	}
}

// TestPermanentEndsOneEndpoint: a source that can't go on leaves the others
// alone, and what it was is in the end's error.
func TestPermanentEndsOneEndpoint(t *testing.T) {
	good := real(t)
	mem := vfs.NewMem()
	r := open(t, "rec", record.Options{Capture: capture.Options{FS: mem}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live := peer.Listen(t, func(c net.Conn, _ int) error {
		time.Sleep(50 * time.Millisecond)
		c.Write(good)
		time.AfterFunc(50*time.Millisecond, cancel)
		return peer.Hold(c)
	})
	gone := peer.Listen(t, peer.HTTP(nil, peer.BodyChunked, func(*http.Request) int { return 404 }))
	r.Record(ctx, sourceOf(t, "http://"+gone, source.Options{}), sourceOf(t, "tcp://"+live, source.Options{}))
	rep, err := r.Close()
	if err == nil || !strings.Contains(err.Error(), "404") || rep.Verdict != record.VerdictFailed {
		t.Errorf("%v", err)
	}
	byID, ids, _ := recorded(mem.Files())
	if len(ids) != 1 || !bytes.Equal(byID[ids[0]], good) {
		t.Errorf("%d connections", len(ids))
	}
}

// TestManyConnections into one directory, from publishers that connect in.
func TestManyConnections(t *testing.T) {
	const n = 200
	mem := vfs.NewMem()
	r := open(t, "rec", record.Options{Sync: record.Sync{Every: 10 * time.Millisecond}, Capture: capture.Options{FS: mem, RotateBytes: 10_000}})
	s := sourceOf(t, "listen+tcp://127.0.0.1:0", source.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	want := map[[32]byte]int{}
	for i := range n {
		b := append([]byte(fmt.Sprintf("publisher %d ", i)), noise(20_000+i)...)
		want[sha256.Sum256(b)]++
		wg.Add(1)
		go func() {
			defer wg.Done()
			peer.Publish(t.Context(), "tcp", source.Address(s), nil, func(c net.Conn, _ int) error { return peer.Pieces(c, b, uint64(i)) })
		}()
	}
	go func() {
		wg.Wait()
		for r.Status().Connections < n || r.Status().Open > 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	r.Record(ctx, s)
	if _, err := r.Close(); err != nil {
		t.Fatal(err)
	}
	byID, ids, _ := recorded(mem.Files())
	for _, id := range ids {
		want[sha256.Sum256(byID[id])]--
	}
	for _, left := range want {
		if len(ids) != n || left != 0 {
			t.Fatalf("%d connections, and not each stream once", len(ids))
		}
	}
}

// TestRotateOnDemand: every open connection begins a new file at its next frame
// boundary.
func TestRotateOnDemand(t *testing.T) {
	stream := real(t)
	mem := vfs.NewMem()
	var hooked []string
	r := open(t, "rec", record.Options{NoRetry: true, Capture: capture.Options{FS: mem,
		OnSealed: func(s capture.Sealed) { hooked = append(hooked, s.Reason) }}})
	half := make(chan struct{})
	go func() {
		<-half
		for r.Status().Written < 10_000 {
			time.Sleep(time.Millisecond)
		}
		r.Rotate()
	}()
	r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, func(c net.Conn, _ int) error {
		c.Write(stream[:10_000])
		close(half)
		time.Sleep(100 * time.Millisecond)
		c.Write(stream[10_000:])
		return nil
	}), source.Options{}))
	if _, err := r.Close(); err != nil {
		t.Fatal(err)
	}
	byID, ids, count := recorded(mem.Files())
	if count != 2 || !bytes.Equal(byID[ids[0]], stream) || hooked[0] != sidecar.ClosedRequest || hooked[1] != sidecar.ClosedEnd {
		t.Errorf("%d files, closed for %v", count, hooked)
	}
	for _, s := range sidecars(t, mem.Files()) {
		if !s.EndsAtBoundary {
			t.Errorf("file %d was cut inside a frame", s.Number)
		}
	}
}

// TestLessonHookGetsTheLastFileToo (rosbag2 791, tcpdump 1015): the command
// runs for every sealed file, in order, the last one too, without a shell.
func TestLessonHookGetsTheLastFileToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec; echo $HOME")
	seen := filepath.Join(t.TempDir(), "seen")
	command := filepath.Join(t.TempDir(), "a command.sh")
	if err := os.WriteFile(command, []byte("#!/bin/sh\nsleep 0.01\ntest -f \"$1\" && test $# = 1 && printf '%s\\n' \"$1\" >> '"+seen+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, record.Options{NoRetry: true, OnSealed: command, Capture: capture.Options{FS: unsynced{vfs.OS}, RotateBytes: 30_000}})
	r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(real(t))), source.Options{}))
	rep, err := r.Close()
	if err != nil || rep.HookFailures != 0 {
		t.Fatalf("%v, %d failures", err, rep.HookFailures)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	want, err := filepath.Glob(filepath.Join(strings.ReplaceAll(dir, "[", "\\["), "*.cap"))
	if err != nil || len(want) < 2 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the command saw %v, want %v", got, want)
	}
	// A command that fails is counted and loses nothing.
	r = open(t, dir, record.Options{NoRetry: true, OnSealed: "/bin/false"})
	r.Record(t.Context(), sourceOf(t, "-", source.Options{Stdin: strings.NewReader("x")}))
	rep, err = r.Close()
	if err != nil || rep.HookFailures != 1 || rep.Verdict != record.VerdictFindings {
		t.Errorf("%v, %d failures, %s", err, rep.HookFailures, rep.Verdict)
	}
}

// descriptors is how many files this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(e)
}

// TestSoak: rotations every second and reconnects all the time, and neither
// memory nor goroutines nor descriptors grow.
func TestSoak(t *testing.T) {
	last := time.Minute
	if torture {
		last = 10 * time.Minute
	}
	stream := real(t)
	var sent atomic.Int64
	publisher := func(c net.Conn, n int) error {
		r := rand.New(rand.NewPCG(uint64(n), 5))
		for i := 0; i < len(stream); {
			k := min(1+r.IntN(20_000), len(stream)-i)
			if _, err := c.Write(stream[i : i+k]); err != nil {
				return err
			}
			sent.Add(int64(k))
			i += k
			time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
		}
		if n%3 == 0 {
			return peer.Reset(c)
		}
		return nil
	}
	dir := filepath.Join(t.TempDir(), "rec")
	r := open(t, dir, record.Options{RetryMax: 20 * time.Millisecond, Sync: record.Sync{Every: 100 * time.Millisecond},
		Capture: capture.Options{RotateEvery: time.Second, RotateBytes: 200_000,
			OnSealed: func(s capture.Sealed) {
				// The soak is of the recorder: its disk is kept small.
				stem := strings.TrimSuffix(s.Path, ".cap")
				if s.Number%2 == 0 {
					for _, ext := range []string{".cap", ".json", ".idx", ".sha256"} {
						os.Remove(stem + ext)
					}
				}
			}}})
	ctx, cancel := context.WithTimeout(t.Context(), last)
	defer cancel()
	var sources []source.Source
	for range 8 {
		sources = append(sources, sourceOf(t, "tcp://"+peer.Listen(t, publisher), source.Options{IdleTimeout: time.Minute}))
	}
	type sample struct{ heap, goroutines, fds int }
	measure := func() sample {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return sample{int(m.HeapAlloc), runtime.NumGoroutine(), descriptors(t)}
	}
	var early, late sample
	worst := func(a, b sample) sample {
		return sample{max(a.heap, b.heap), max(a.goroutines, b.goroutines), max(a.fds, b.fds)}
	}
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		start := time.Now()
		for source.Wait(ctx, last/40) == nil {
			switch at := time.Since(start); {
			case at > last/8 && at < last*3/8:
				early = worst(early, measure())
			case at > last*5/8:
				late = worst(late, measure())
			}
		}
	}()
	r.Record(ctx, sources...)
	<-measured
	rep, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections, %d files, %d bytes; early %+v, late %+v", rep.Connections, rep.Files, rep.Received, early, late)
	if rep.Received != rep.Synced || rep.NotRecorded != 0 || rep.Received == 0 {
		t.Errorf("%+v", rep.Status)
	}
	if late.heap > early.heap*3/2+8<<20 || late.goroutines > early.goroutines+16 || late.fds > early.fds+16 {
		t.Errorf("growth: early %+v, late %+v", early, late)
	}
}

// TestLessonRetentionWaitsForTheShipper (litestream 771): while recording, the oldest sealed files go, and none that was
// not shipped unless that was said in words: a stalled shipper
// means no deletion.
func TestLessonRetentionWaitsForTheShipper(t *testing.T) {
	for _, unshipped := range []bool{false, true} {
		mem := vfs.NewMem()
		r := open(t, "rec", record.Options{Retention: capture.Retention{KeepFiles: 3, Unshipped: unshipped},
			Capture: capture.Options{FS: mem, RotateBytes: 1000}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if s := r.Status(); s.Files >= 20 && (s.Pruned > 0 || !unshipped && s.Uptime > 3*time.Second) {
					return
				}
			}
		}()
		r.Record(ctx, sourceOf(t, "tcp://"+peer.Listen(t, func(c net.Conn, _ int) error {
			c.Write(noise(30_000))
			return peer.Hold(c)
		}), source.Options{}))
		rep, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if unshipped != (rep.Pruned > 0) {
			t.Errorf("delete-unshipped %v: %d files pruned of %d", unshipped, rep.Pruned, rep.Files)
		}
	}
}

// TestMakeRoom: with too little space the oldest go first and recording goes on.
func TestMakeRoom(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetFree(10 << 20)
	r := open(t, "rec", record.Options{MinFree: 1 << 20, MakeRoom: true, Retention: capture.Retention{Unshipped: true},
		Capture: capture.Options{FS: freeing{mem, 1<<20 + 90_000}, RotateBytes: 1000}})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r.Record(ctx, sourceOf(t, "tcp://"+peer.Listen(t, func(c net.Conn, _ int) error {
		for range 60 {
			c.Write(noise(1000))
			time.Sleep(20 * time.Millisecond)
		}
		return peer.Hold(c)
	}), source.Options{}))
	rep, err := r.Close()
	if err != nil || rep.Received != 60_000 || rep.Synced != 60_000 || rep.Pruned == 0 {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// freeing is a disk whose free space is what its files leave of a size.
type freeing struct {
	*vfs.Mem
	size int64
}

func (f freeing) Free(string) (int64, error) {
	n := f.size
	for _, b := range f.Files() {
		n -= int64(len(b))
	}
	return n, nil
}

// TestFailedTriesAreSaidOnce: a publisher that is away, and somebody who knocks
// at a TLS listener, do not fill the journal.
func TestFailedTriesAreSaidOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := l.Addr().String()
	l.Close()
	id := peer.NewIdentity(t)
	mem := vfs.NewMem()
	r := open(t, "rec", record.Options{RetryMax: time.Millisecond, Capture: capture.Options{FS: mem}})
	in := sourceOf(t, "listen+tls://127.0.0.1:0", source.Options{TLS: source.TLS{Cert: id.ServerCert, Key: id.ServerKey}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for range 30 {
			if c, err := net.Dial("tcp", source.Address(in)); err == nil {
				c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
				c.Close()
			}
		}
		for deadline := time.Now().Add(20 * time.Second); r.Status().Attempts < 100 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}()
	r.Record(ctx, sourceOf(t, "tcp://"+away, source.Options{}), in)
	rep, err := r.Close()
	if err != nil || rep.Attempts < 100 || rep.Connections != 0 {
		t.Fatalf("%v, %+v", err, rep.Status)
	}
	said := map[string]int{}
	for _, e := range journal(t, mem.Files()["rec/journal.jsonl"]) {
		if e.Event == capture.EventAttempt {
			said[e.Endpoint+" "+e.Reason]++
		}
	}
	if len(said) < 2 || len(said) > 4 {
		t.Errorf("said: %v", said)
	}
	for what, n := range said {
		if n > 1 {
			t.Errorf("%s: said %d times", what, n)
		}
	}
}

// TestHookGetsRecoveredFiles: what the recovery at the start seals goes to the
// command and is told, before everything else.
func TestHookGetsRecoveredFiles(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c00000001-00000000.00000001.cap.partial"), real(t), 0o600); err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(tmp, "command.sh")
	if err := os.WriteFile(command, []byte("#!/bin/sh\necho \"$1\" >> "+tmp+"/seen\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var told []capture.Sealed
	r := open(t, dir, record.Options{NoRetry: true, OnSealed: command, Capture: capture.Options{OnSealed: func(s capture.Sealed) { told = append(told, s) }}})
	r.Record(t.Context(), sourceOf(t, "-", source.Options{Stdin: strings.NewReader("x")}))
	rep, err := r.Close()
	if err != nil || rep.HookFailures != 0 || rep.Files != 1 || rep.Recovered != 1 {
		t.Fatalf("%v, %+v", err, rep)
	}
	seen, _ := os.ReadFile(filepath.Join(tmp, "seen"))
	names, _ := filepath.Glob(filepath.Join(dir, "*.cap"))
	if want := strings.Join(names, "\n") + "\n"; len(names) != 2 || string(seen) != want {
		t.Errorf("the command saw %q, want %q", seen, want)
	}
	sum := sha256.Sum256(real(t))
	if len(told) != 2 || told[0].Path != names[0] || told[0].Reason != sidecar.ClosedRecovered || told[0].SHA256 != fmt.Sprintf("%x", sum) || told[0].Length != int64(len(real(t))) {
		t.Errorf("told: %+v", told)
	}
}

// smallDisk holds so many bytes and no more, as freeing tells.
func smallDisk(size int64) (*vfs.Mem, vfs.FS) {
	disk := freeing{vfs.NewMem(), size}
	return disk.Mem, &vfs.Fault{FS: disk, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind == "write" {
			if free, _ := disk.Free(""); int64(op.Size) > free {
				return vfs.Verdict{Err: syscall.ENOSPC, Short: int(max(free, 0))}
			}
		}
		return vfs.Verdict{}
	}}
}

// TestMinFreeAgainstAFastPublisher: a publisher that would fill the disk between
// two ticks of a clock fills it no further than it may, with every received byte
// recorded; and where room may be made it is made before more is received.
func TestMinFreeAgainstAFastPublisher(t *testing.T) {
	check := func(t *testing.T, room bool, size, minFree int64, dir string, fsys vfs.FS, stream []byte, free func() int64) {
		lowest := size
		o := record.Options{Protocol: "raw", NoRetry: true, MinFree: minFree, MakeRoom: room, Buffer: record.MinBuffer,
			Retention: capture.Retention{Unshipped: room},
			Capture: capture.Options{FS: fsys, RotateBytes: size / 32, OnSealed: func(capture.Sealed) {
				lowest = min(lowest, free())
			}}}
		r := open(t, dir, o)
		r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(stream)), source.Options{}))
		rep, err := r.Close()
		var ns *record.NoSpaceError
		if room != (err == nil) || !room && !errors.As(err, &ns) {
			t.Errorf("make room %v: %v", room, err)
		}
		if rep.NotRecorded != 0 || rep.Received != rep.Written || rep.Received != rep.Synced {
			t.Errorf("make room %v: %+v", room, rep.Status)
		}
		if room && (rep.Received != int64(len(stream)) || rep.Pruned == 0) {
			t.Errorf("with room made for it: %+v", rep.Status)
		}
		if len(rep.Ended) != 1 || !room && rep.Ended[0].Transport != sidecar.TransportFailed {
			t.Errorf("make room %v: %+v", room, rep.Ended)
		}
		// Of what was being received when it was looked at, a small read may pass.
		if lowest < minFree-64<<10 {
			t.Errorf("make room %v: only %d bytes were free, %d are to be kept: %v, %+v", room, lowest, minFree, err, rep.Status)
		}
		if !room && rep.Received < (size-minFree)/3 {
			t.Errorf("it stopped with %d bytes received", rep.Received)
		}
	}
	for _, room := range []bool{false, true} {
		t.Run(fmt.Sprintf("double, make room %v", room), func(t *testing.T) {
			const size = 6 << 20
			mem, fsys := smallDisk(size)
			check(t, room, size, 1<<20, "rec", fsys, noise(12<<20), func() int64 {
				free, _ := freeing{mem, size}.Free("")
				return free
			})
		})
		t.Run(fmt.Sprintf("tmpfs, make room %v", room), func(t *testing.T) {
			dir := t.TempDir()
			if err := mountMemory(dir, "48m", false); err != nil {
				t.Logf("mounting is not permitted here (%v): the double above stands for it", err)
				return
			}
			defer unmount(dir)
			check(t, room, 48<<20, 8<<20, filepath.Join(dir, "rec"), vfs.OS, noise(200<<20), func() int64 {
				free, _ := vfs.OS.Free(dir)
				return free
			})
		})
	}
}

// TestMakeRoomInSpiteOfOthers: another program fills the disk between two looks;
// no received byte is lost.
func TestMakeRoomInSpiteOfOthers(t *testing.T) {
	const size = 6 << 20
	mem, fsys := smallDisk(size)
	stream := noise(8 << 20)
	var grabbed atomic.Bool
	r := open(t, "rec", record.Options{Protocol: "raw", NoRetry: true, MinFree: 1 << 20, MakeRoom: true, Retention: capture.Retention{Unshipped: true},
		Capture: capture.Options{FS: fsys, RotateBytes: 200_000, OnSealed: func(s capture.Sealed) {
			if s.Number == 8 && grabbed.CompareAndSwap(false, true) {
				free, _ := freeing{mem, size}.Free("")
				mem.SetFile("/others", make([]byte, min(free, 4200<<10)))
			}
		}}})
	r.Record(t.Context(), sourceOf(t, "tcp://"+peer.Listen(t, peer.Send(stream)), source.Options{}))
	rep, err := r.Close()
	if !grabbed.Load() || err != nil || rep.Received != int64(len(stream)) || rep.Written != rep.Received {
		t.Errorf("%v, %+v", err, rep.Status)
	}
}

// TestRelayMinFreeRecordsWhatItReceived: a relay passes on what there is no space
// for; what it took into its buffer before is recorded, and nothing fails.
func TestRelayMinFreeRecordsWhatItReceived(t *testing.T) {
	const size = 4 << 20
	mem, fsys := smallDisk(size)
	stream := noise(8 << 20)
	addr, r, end := relay(t, "tcp", peer.Listen(t, peer.Send(stream)), record.Options{Protocol: "raw", MinFree: 2 << 20,
		Capture: capture.Options{FS: fsys, RotateBytes: 200_000}})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, stream) {
		t.Fatalf("%d bytes passed on, %v", len(got), err)
	}
	c.Close()
	settled(t, r, 2)
	rep, err := end()
	if err != nil || rep.Verdict != record.VerdictFindings || rep.Received != rep.Written+rep.NotRecorded || rep.NotRecorded == 0 {
		t.Errorf("%v, %+v", err, rep.Status)
	}
	if free, _ := (freeing{mem, size}).Free(""); free < 512<<10 {
		t.Errorf("%d bytes are free", free)
	}
	for _, s := range sidecars(t, mem.Files()) {
		if s.Transport != nil && s.Length > 0 && (s.Transport.Kind != sidecar.TransportFailed || !strings.Contains(s.Transport.Detail, "bytes free")) {
			t.Errorf("%+v", s.Transport)
		}
	}
}
