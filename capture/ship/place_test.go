package ship_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wiretape/capture/ship"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
)

// mounted is a file system with another one at /far, that comes and goes: what
// is open stays open.
type mounted struct {
	vfs.FS
	on *vfs.Mem
	up bool
}

func (m *mounted) at(name string) vfs.FS {
	if m.up && (name == "/far" || strings.HasPrefix(name, "/far/")) {
		return m.on
	}
	return m.FS
}

func (m *mounted) Create(n string) (vfs.File, error)                { return m.at(n).Create(n) }
func (m *mounted) Open(n string) (vfs.File, error)                  { return m.at(n).Open(n) }
func (m *mounted) OpenAppend(n string) (vfs.File, error)            { return m.at(n).OpenAppend(n) }
func (m *mounted) Rename(a, b string) error                         { return m.at(a).Rename(a, b) }
func (m *mounted) Replace(a, b string) error                        { return m.at(a).Replace(a, b) }
func (m *mounted) Remove(n string) error                            { return m.at(n).Remove(n) }
func (m *mounted) List(n string) ([]string, error)                  { return m.at(n).List(n) }
func (m *mounted) SyncDir(n string) error                           { return m.at(n).SyncDir(n) }
func (m *mounted) Lock(n string, b []byte) (c io.Closer, err error) { return m.at(n).Lock(n, b) }
func (m *mounted) Stat(n string) (vfs.Info, error) {
	st, err := m.at(n).Stat(n)
	if st.Device = 1; m.at(n) == m.on {
		st.Device = 2
	}
	return st, err
}

// TestMountGoesAway: the file system at the destination goes away before each
// operation of a pass in turn, for good or for a few operations, and its empty
// mount point takes what is written. Nothing is called shipped that is not on
// the file system, the next pass with the mount point alone refuses and writes
// nothing, and the one after it, with the file system back, ships everything.
func TestMountGoesAway(t *testing.T) {
	for _, back := range []int{0, 1, 2, 3, 5, 8, 13, 40} {
		step := 1
		if back > 0 && os.Getenv("WIRETAPE_TORTURE") != "1" {
			step = 4
		}
		for n := 1 + back%step; ; n += step {
			m := &mounted{FS: vfs.NewMem(), on: vfs.NewMem(), up: true}
			d, w := recording(t, m, "/src")
			m.FS.MkdirAll("/far")
			m.on.MkdirAll("/far")
			// A pass before makes the mark.
			if err := shipper(t, m, "/src", folder(t, m, "/far"), ship.Options{}).Pass(t.Context(), &ship.Report{}); err != nil {
				t.Fatal(err)
			}
			write(t, w, 9_000)
			if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
			d.Close()
			ops := 0
			f := &vfs.Fault{FS: m, Decide: func(vfs.Op) vfs.Verdict {
				ops++
				m.up = ops < n || back > 0 && ops >= n+back
				return vfs.Verdict{}
			}}
			dest, err := ship.NewFolder(m, "/far")
			if err != nil {
				t.Fatal(err)
			}
			dest, err = ship.NewFolder(f, dest.String())
			if err != nil && n > 1 {
				t.Fatal(err)
			}
			if err == nil {
				err = shipper(t, f, "/src", dest, ship.Options{}).Pass(t.Context(), &ship.Report{})
			}
			if ops < n {
				break
			}
			far := m.on.Files()
			for _, mark := range shippedMarks(t, m, "/src") {
				if string(far["/far/"+mark]) != string(m.FS.(*vfs.Mem).Files()["/src/"+mark]) {
					t.Fatalf("away before operation %d for %d (%v): the journal calls %s shipped", n, back, err, mark)
				}
			}
			if back == 0 {
				m.up = false
				below := len(m.FS.(*vfs.Mem).Files())
				var away *ship.AwayError
				err := shipper(t, m, "/src", folder(t, m, "/far"), ship.Options{}).Pass(t.Context(), &ship.Report{})
				if !errors.As(err, &away) || len(m.FS.(*vfs.Mem).Files()) != below {
					t.Fatalf("away before operation %d: %v, and %d files of %d", n, err, len(m.FS.(*vfs.Mem).Files()), below)
				}
			}
			m.up = true
			rep := &ship.Report{}
			if err := shipper(t, m, "/src", folder(t, m, "/far"), ship.Options{}).Pass(t.Context(), rep); err != nil || len(rep.Findings) > 0 {
				t.Fatalf("back after operation %d for %d: %v, %v", n, back, err, rep.Findings)
			}
			if err := whole(m.FS.(*vfs.Mem).Files(), m.on.Files(), "/src", "/far"); err != nil {
				t.Fatalf("away before operation %d for %d: %v", n, back, err)
			}
		}
	}
}

// TestWatchWaitsForItsPlace: a watch whose destination becomes another folder
// writes nothing there, and goes on when its own is back.
func TestWatchWaitsForItsPlace(t *testing.T) {
	base := t.TempDir()
	src, far, disk := filepath.Join(base, "src"), filepath.Join(base, "far"), filepath.Join(base, "disk")
	d, w := recording(t, vfs.OS, src)
	defer d.Close()
	defer w.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
	s := shipper(t, vfs.OS, src, folder(t, vfs.OS, far), ship.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Watch(ctx, 10*time.Millisecond, &ship.Report{}) }()
	until(t, func() bool { return len(shippedMarks(t, vfs.OS, src)) == 6 })
	away(t, far, disk)
	write(t, w, 9_000)
	time.Sleep(150 * time.Millisecond)
	if names, _ := os.ReadDir(far); len(names) != 0 {
		t.Errorf("written to another place: %v", names)
	}
	if marks := shippedMarks(t, vfs.OS, src); len(marks) != 6 {
		t.Errorf("called shipped: %v", marks)
	}
	back(t, far, disk)
	until(t, func() bool { return len(sums(far)) == 7 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWatchSaysWhatIsLeft: a watch that ends while its destination is away says
// why it stands, and which files that are sealed are not there; one that is ended
// with everything there says nothing.
func TestWatchSaysWhatIsLeft(t *testing.T) {
	base := t.TempDir()
	src, far, disk := filepath.Join(base, "src"), filepath.Join(base, "far"), filepath.Join(base, "disk")
	d, w := recording(t, vfs.OS, src)
	defer d.Close()
	defer w.Close(sidecar.Verdict{}, sidecar.ClosedEnd)
	s := shipper(t, vfs.OS, src, folder(t, vfs.OS, far), ship.Options{})
	watch := func(rep *ship.Report, meanwhile func()) error {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Watch(ctx, 10*time.Millisecond, rep) }()
		meanwhile()
		cancel()
		return <-done
	}
	rep := &ship.Report{}
	err := watch(rep, func() { until(t, func() bool { return len(shippedMarks(t, vfs.OS, src)) == 6 }) })
	if err != nil || len(rep.Findings) != 0 || *rep.Unshipped != 0 {
		t.Errorf("all was shipped: %v, %+v", err, rep)
	}
	rep = &ship.Report{}
	err = watch(rep, func() {
		away(t, far, disk)
		write(t, w, 9_000)
		time.Sleep(150 * time.Millisecond)
	})
	var gone *ship.AwayError
	if !errors.As(err, &gone) || *rep.Unshipped != 1 || len(rep.Findings) != 1 || rep.Findings[0].Kind != ship.KindNotShipped || rep.Findings[0].File == "" {
		t.Errorf("away: %v, %+v", err, rep)
	}
	// Shut off by the signal alone: nothing failed, and it is not there.
	back(t, far, disk)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep = &ship.Report{}
	s = shipper(t, vfs.OS, src, folder(t, vfs.OS, far), ship.Options{})
	if err := s.Watch(ctx, 10*time.Millisecond, rep); err != nil || *rep.Unshipped != 1 || len(rep.Findings) != 1 {
		t.Errorf("ended at once: %v, %+v", err, rep)
	}
}

// TestPassBesideARecorder: what is sealed while a pass is under way is the next
// one's, and nothing to report.
func TestPassBesideARecorder(t *testing.T) {
	mem := vfs.NewMem()
	d, w := recording(t, mem, "/src")
	defer d.Close()
	folder(t, mem, "/far")
	more := 1
	f := &vfs.Fault{FS: mem, Decide: func(op vfs.Op) vfs.Verdict {
		if more > 0 && op.Kind == "write" && strings.HasSuffix(op.Name, ".cap.new") {
			more--
			write(t, w, 9_000)
		}
		return vfs.Verdict{}
	}}
	dest, err := ship.NewFolder(f, "/far")
	if err != nil {
		t.Fatal(err)
	}
	rep := &ship.Report{}
	if err := shipper(t, mem, "/src", dest, ship.Options{}).Pass(t.Context(), rep); err != nil || len(rep.Findings) > 0 || *rep.Unshipped != 0 || rep.Shipped != 6 || more != 0 {
		t.Errorf("%v, %+v", err, rep)
	}
}

func sums(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "*.sha256"))
	return names
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come")
		}
	}
}

// away makes a folder's name lead to another, empty one: by a mount where that is
// permitted, else by renaming.
func away(t *testing.T, far, disk string) {
	t.Helper()
	if err := mountMemory(far); err == nil {
		t.Cleanup(func() { unmount(far) })
		return
	}
	if err := errors.Join(os.Rename(far, disk), os.Mkdir(far, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// back undoes that.
func back(t *testing.T, far, disk string) {
	t.Helper()
	if _, err := os.Stat(disk); err != nil {
		unmount(far)
		return
	}
	if err := errors.Join(os.Remove(far), os.Rename(disk, far)); err != nil {
		t.Fatal(err)
	}
}
