package ship_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"wiretape/capture"
	"wiretape/capture/ship"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// recording makes a capture directory of two connections with several files
// each, and a third that is still being written.
func recording(t testing.TB, fsys vfs.FS, dir string) (*capture.Dir, *capture.Writer) {
	t.Helper()
	d, err := capture.Create(dir, capture.Options{FS: fsys, RotateBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for k := range 2 {
		w := connect(t, d)
		write(t, w, 12_000+k)
		if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
	}
	w := connect(t, d)
	write(t, w, 700)
	return d, w
}

func connect(t testing.TB, d *capture.Dir) *capture.Writer {
	t.Helper()
	w, err := d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, w *capture.Writer, n int) {
	t.Helper()
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	for i := range b {
		b[i] &= 0x03 // so that it compresses
	}
	if _, err := w.Write(b, capture.SystemClock.Now()); err != nil {
		t.Fatal(err)
	}
}

func shipper(t testing.TB, fsys vfs.FS, dir string, dest ship.Dest, o ship.Options) *ship.Shipper {
	t.Helper()
	o.FS, o.Log = fsys, quiet
	s, err := ship.New(dir, dest, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func folder(t testing.TB, fsys vfs.FS, dir string) *ship.Folder {
	t.Helper()
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	f, err := ship.NewFolder(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// whole says what is wrong with a destination: every sealed file of the source
// is there, whole, in one form, with its side files and sums that fit.
func whole(src, dest map[string][]byte, from, to string) error {
	for name, b := range src {
		if filepath.Dir(name) != from || capture.ParseName(filepath.Base(name)).Form != capture.FormBytes {
			continue
		}
		base := filepath.Base(name)
		got, ok := dest[filepath.Join(to, base)]
		z, zok := dest[filepath.Join(to, base+".zst")]
		if ok == zok {
			return fmt.Errorf("%s is there %v, compressed %v", base, ok, zok)
		}
		if zok {
			r, err := capture.Decompress(bytes.NewReader(z))
			if err != nil {
				return err
			}
			if got, err = io.ReadAll(r); err != nil {
				return err
			}
			r.Close()
		}
		if !bytes.Equal(got, b) {
			return fmt.Errorf("%s differs", base)
		}
		stem := strings.TrimSuffix(base, ".cap")
		for _, ext := range []string{".json", ".idx"} {
			if !bytes.Equal(dest[filepath.Join(to, stem+ext)], src[filepath.Join(from, stem+ext)]) {
				return fmt.Errorf("%s%s differs", stem, ext)
			}
		}
		sums := string(dest[filepath.Join(to, stem+".sha256")])
		if strings.Count(sums, "\n") != 3 {
			return fmt.Errorf("sums of %s: %q", stem, sums)
		}
		for _, l := range strings.Split(strings.TrimSpace(sums), "\n") {
			hex, name, _ := strings.Cut(l, "  ")
			if hex != fmt.Sprintf("%x", sha256.Sum256(dest[filepath.Join(to, name)])) {
				return fmt.Errorf("the sum of %s does not fit", name)
			}
		}
	}
	return nil
}

// shown says what is wrong with a destination at any time: whatever has a final
// name is whole.
func shown(src, dest map[string][]byte, from, to string) error {
	for name, b := range dest {
		if filepath.Dir(name) != to {
			continue
		}
		base := filepath.Base(name)
		switch n := capture.ParseName(base); n.Form {
		case capture.FormForeign, capture.FormPartial:
			return fmt.Errorf("a reader would stumble over %s", base)
		case capture.FormBytes, capture.FormSidecar, capture.FormIndex:
			if !bytes.Equal(b, src[filepath.Join(from, base)]) {
				return fmt.Errorf("%s is there and not whole: %d of %d bytes", base, len(b), len(src[filepath.Join(from, base)]))
			}
		case capture.FormCompressed:
			r, err := capture.Decompress(bytes.NewReader(b))
			if err != nil {
				return err
			}
			got, err := io.ReadAll(r)
			r.Close()
			if err != nil || !bytes.Equal(got, src[filepath.Join(from, strings.TrimSuffix(base, ".zst"))]) {
				return fmt.Errorf("%s is there and not whole: %v", base, err)
			}
		}
	}
	return nil
}

// shippedMarks are the files that the journal calls shipped.
func shippedMarks(t testing.TB, fsys vfs.FS, dir string) (marks []string) {
	t.Helper()
	j, err := capture.ReadJournal(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range j.Entries {
		if e.Event == capture.EventShip {
			marks = append(marks, e.File)
		}
	}
	return marks
}

// TestLessonHalfAFileIsNeverSeen (lumberjack PR 155): shipping fails at every
// single operation in turn, by an error, by a crash that keeps what was written
// and by one that loses what was not synced. No name at the destination ever
// shows half a file, the journal never calls shipped what is not there, and the
// next pass gets everything across.
func TestLessonHalfAFileIsNeverSeen(t *testing.T) {
	for _, zstd := range []bool{false, true} {
		for _, how := range []string{"error", "short", "after", "crash keeping", "crash losing"} {
			t.Run(fmt.Sprintf("zstd %v, %s", zstd, how), func(t *testing.T) {
				step := 1
				if zstd && os.Getenv("WIRETAPE_TORTURE") != "1" {
					step = 7 // the operations are the same, only the bytes differ
				}
				for n := 1; ; n += step {
					mem := vfs.NewMem()
					d, w := recording(t, mem, "/src")
					if err := mem.MkdirAll("/far"); err != nil {
						t.Fatal(err)
					}
					mem.SyncDir("/")
					ops, hit := 0, false
					boom := errors.New("input/output error")
					f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
						if !op.Changes() || hit && strings.HasPrefix(how, "crash") {
							if hit {
								return vfs.Verdict{Err: boom}
							}
							return vfs.Verdict{}
						}
						if ops++; ops != n {
							return vfs.Verdict{}
						}
						hit = true
						return vfs.Verdict{Err: boom, Short: map[bool]int{true: op.Size / 2}[how == "short"], After: how == "after"}
					}}
					dest, err := ship.NewFolder(f, "/far")
					if err != nil {
						t.Fatal(err)
					}
					err = shipper(t, f, "/src", dest, ship.Options{Zstd: zstd}).Pass(t.Context(), &ship.Report{})
					if !hit {
						if err != nil {
							t.Fatal(err)
						}
						return
					}
					if _, cerr := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); cerr != nil {
						t.Fatal(cerr)
					}
					d.Close()
					after := mem
					switch how {
					case "crash keeping":
						after = mem.CrashClone(vfs.CrashKeepAll, uint64(n))
					case "crash losing":
						after = mem.CrashClone(vfs.CrashLoseAll, uint64(n))
					}
					src := mem.Files()
					if err := shown(src, after.Files(), "/src", "/far"); err != nil {
						t.Fatalf("operation %d: %v", n, err)
					}
					for _, m := range shippedMarks(t, after, "/src") {
						stem := "/far/" + strings.TrimSuffix(m, ".cap")
						if after.Files()[stem+".cap"] == nil && after.Files()[stem+".cap.zst"] == nil || after.Files()[stem+".sha256"] == nil {
							t.Fatalf("operation %d: the journal calls %s shipped", n, m)
						}
					}
					dest, err = ship.NewFolder(after, "/far")
					if err != nil {
						t.Fatal(err)
					}
					rep := &ship.Report{}
					if err := shipper(t, after, "/src", dest, ship.Options{Zstd: zstd}).Pass(t.Context(), rep); err != nil || len(rep.Findings) > 0 {
						t.Fatalf("operation %d: the next pass: %v, %v", n, err, rep.Findings)
					}
					if err := whole(after.Files(), after.Files(), "/src", "/far"); err != nil {
						t.Fatalf("operation %d: %v", n, err)
					}
					for name := range after.Files() {
						if strings.HasPrefix(name, "/far/") && strings.HasSuffix(name, ".new") {
							t.Fatalf("operation %d: %s is left", n, name)
						}
					}
				}
			})
		}
	}
}

// lying is a destination that stores other bytes than it was given.
type lying struct {
	vfs.FS
	lies *atomic.Int32
}

func (l lying) Create(name string) (vfs.File, error) {
	f, err := l.FS.Create(name)
	return lyingFile{f, name, l.lies}, err
}

type lyingFile struct {
	vfs.File
	name string
	lies *atomic.Int32
}

func (f lyingFile) WriteAt(p []byte, off int64) (int, error) {
	if strings.HasSuffix(f.name, ".cap.new") && f.lies.Add(-1) >= 0 {
		p = append([]byte(nil), p...)
		p[len(p)/2] ^= 1
	}
	return f.File.WriteAt(p, off)
}

// TestReadBack: what a destination did not keep as it was given is found before
// it gets its name, is not called shipped, and goes again.
func TestReadBack(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	var lies atomic.Int32
	lies.Store(1)
	mem.MkdirAll("/far")
	dest, err := ship.NewFolder(lying{mem, &lies}, "/far")
	if err != nil {
		t.Fatal(err)
	}
	s := shipper(t, mem, "/src", dest, ship.Options{})
	if err := s.Pass(t.Context(), &ship.Report{}); err == nil || !strings.Contains(err.Error(), "read back") {
		t.Fatalf("%v", err)
	}
	if marks := shippedMarks(t, mem, "/src"); len(marks) != 0 {
		t.Errorf("shipped: %v", marks)
	}
	if err := shown(mem.Files(), mem.Files(), "/src", "/far"); err != nil {
		t.Error(err)
	}
	if err := s.Pass(t.Context(), &ship.Report{}); err != nil {
		t.Fatal(err)
	}
	if err := whole(mem.Files(), mem.Files(), "/src", "/far"); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedAndForeignStay: what is not sealed, and what is no capture file,
// is not shipped; a compressed file is shipped as it is, and from there again.
func TestUnfinishedAndForeignStay(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	mem.SetFile("/src/notes.txt", []byte("mine"))
	mem.SetFile("/src/c00000001-00000000.00000001.cap.new", []byte("x"))
	rep := &ship.Report{}
	if err := shipper(t, mem, "/src", folder(t, mem, "/far"), ship.Options{Zstd: true}).Pass(t.Context(), rep); err != nil {
		t.Fatal(err)
	}
	if rep.Shipped != 6 || rep.Unfinished != 1 || rep.Stored >= rep.Bytes {
		t.Errorf("%+v", rep)
	}
	for name := range mem.Files() {
		if strings.HasPrefix(name, "/far/") && (strings.Contains(name, "c00000003") || strings.Contains(name, "notes") || strings.HasSuffix(name, ".new")) {
			t.Errorf("shipped: %s", name)
		}
	}
	rep = &ship.Report{}
	if err := shipper(t, mem, "/far", folder(t, mem, "/farther"), ship.Options{}).Pass(t.Context(), rep); err != nil || rep.Shipped != 6 {
		t.Fatalf("%v, %+v", err, rep)
	}
	if err := whole(mem.Files(), mem.Files(), "/src", "/farther"); err != nil {
		t.Error(err)
	}
}

// TestNoSidecar: a file that nothing describes is shipped as it is, and said.
func TestNoSidecar(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	gone := ""
	for name := range mem.Files() {
		if strings.HasSuffix(name, ".00000002.json") {
			gone = name
			mem.Remove(name)
			break
		}
	}
	rep := &ship.Report{}
	if err := shipper(t, mem, "/src", folder(t, mem, "/far"), ship.Options{}).Pass(t.Context(), rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Findings) != 1 || rep.Findings[0].Kind != ship.KindNoSidecar || rep.Shipped != 6 {
		t.Errorf("%s: %+v", gone, rep)
	}
	var f wire.Finding = rep.Findings[0]
	if f.File != filepath.Base(strings.TrimSuffix(gone, ".json"))+".cap" || f.Connection == "" {
		t.Errorf("no place: %+v", f)
	}
}

// TestOneAtATime: two shippers to one destination, and a recorder there.
func TestOneAtATime(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	dest := folder(t, mem, "/far")
	lock, err := dest.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var locked *capture.LockedError
	err = shipper(t, mem, "/src", dest, ship.Options{}).Pass(t.Context(), &ship.Report{})
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), fmt.Sprintf("shipping process %d ", os.Getpid())) {
		t.Errorf("%v", err)
	}
	lock.Close()
	if _, err := ship.New("/far", dest, ship.Options{FS: mem}); err == nil {
		t.Error("shipping a directory to itself")
	}
	if _, err := ship.NewFolder(mem, "/nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a destination that is not there: %v", err)
	}
}

// TestWatch on the real file system: files are shipped as they are sealed, with
// events and without, through a destination that goes away and comes back, and a
// capture directory that is replaced by another.
func TestWatch(t *testing.T) {
	for _, poll := range []time.Duration{time.Hour, 20 * time.Millisecond} {
		t.Run(poll.String(), func(t *testing.T) {
			base := t.TempDir()
			src, far := filepath.Join(base, "src"), filepath.Join(base, "far")
			d, w := recording(t, vfs.OS, src)
			dest := folder(t, vfs.OS, far)
			s := shipper(t, vfs.OS, src, dest, ship.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			rep := &ship.Report{}
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := s.Watch(ctx, poll, rep); err != nil {
					t.Error(err)
				}
			}()
			there := func(dir string, n int) {
				t.Helper()
				var names []string
				for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
					if names, _ = filepath.Glob(filepath.Join(dir, "*.sha256")); len(names) >= n {
						return
					}
				}
				t.Fatalf("%d files are there, want %d", len(names), n)
			}
			there(far, 6)
			write(t, w, 20_000) // four more files are sealed
			there(far, 10)
			if poll < time.Hour {
				// The destination is away for a while.
				away := far + ".away"
				if err := os.Rename(far, away); err != nil {
					t.Fatal(err)
				}
				write(t, w, 10_000)
				time.Sleep(100 * time.Millisecond)
				if err := os.Rename(away, far); err != nil {
					t.Fatal(err)
				}
				there(far, 12)
			}
			cancel()
			wg.Wait()
			if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
			d.Close()
			if err := s.Pass(t.Context(), rep); err != nil || len(rep.Findings) > 0 {
				t.Fatalf("%v, %v", err, rep.Findings)
			}
			if err := whole(read(t, src), read(t, far), src, far); err != nil {
				t.Error(err)
			}
			// What it shipped itself was not there before.
			if names, _ := filepath.Glob(filepath.Join(far, "*.cap")); rep.Shipped+rep.Already != int64(len(names)) || poll == time.Hour && rep.Already != 0 {
				t.Errorf("%d files: shipped %d, there before %d", len(names), rep.Shipped, rep.Already)
			}
			if out, err := exec.Command("sh", "-c", "cd '"+far+"' && sha256sum --quiet -c *.sha256").CombinedOutput(); err != nil {
				t.Errorf("sha256sum -c: %v\n%s", err, out)
			}
			if poll < time.Hour {
				// Another directory in its place, as after a renaming, is watched anew.
				if err := os.Rename(src, src+".old"); err != nil {
					t.Fatal(err)
				}
				d2, w2 := recording(t, vfs.OS, src)
				defer d2.Close()
				defer w2.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
				far2 := folder(t, vfs.OS, filepath.Join(base, "far2"))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					shipper(t, vfs.OS, src, far2, ship.Options{}).Watch(ctx, poll, &ship.Report{})
				}()
				there(far2.String(), 6)
				if err := os.Rename(src, src+".older"); err != nil {
					t.Fatal(err)
				}
				d3, w3 := recording(t, vfs.OS, src)
				defer d3.Close()
				defer w3.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
				there(far2.String(), 12)
				cancel()
				<-done
			}
		})
	}
}

func read(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = b
	}
	return all
}

// TestDiskFullThere: the far disk is full: an error, nothing half, and the next
// pass goes on.
func TestDiskFullThere(t *testing.T) {
	mem := vfs.NewMem()
	recording(t, mem, "/src")
	mem.MkdirAll("/far")
	var room atomic.Int64
	room.Store(11_000)
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if op.Kind == "write" && strings.HasPrefix(op.Name, "/far") && room.Add(-int64(op.Size)) < 0 {
			return vfs.Verdict{Err: syscall.ENOSPC}
		}
		return vfs.Verdict{}
	}}
	dest, err := ship.NewFolder(f, "/far")
	if err != nil {
		t.Fatal(err)
	}
	s := shipper(t, mem, "/src", dest, ship.Options{})
	rep := &ship.Report{}
	if err := s.Pass(t.Context(), rep); !errors.Is(err, syscall.ENOSPC) || rep.Shipped != 1 {
		t.Fatalf("%v, %+v", err, rep)
	}
	if err := shown(mem.Files(), mem.Files(), "/src", "/far"); err != nil {
		t.Error(err)
	}
	room.Store(1 << 30)
	if err := s.Pass(t.Context(), rep); err != nil || rep.Shipped != 6 {
		t.Fatalf("%v, %+v", err, rep)
	}
	if err := whole(mem.Files(), mem.Files(), "/src", "/far"); err != nil {
		t.Error(err)
	}
}
