package capture_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// recordDendro writes a stream into dir as one connection, in small files.
func recordDendro(t *testing.T, dir string, stream []byte, clock *fakeClock) {
	t.Helper()
	d, err := capture.Create(dir, capture.Options{RotateBytes: 1500, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://test", Protocol: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	for len(stream) > 0 {
		n := min(300, len(stream))
		if _, err := w.Write(stream[:n], clock.pass(1e6)); err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestUnitsFromInsideAFrame: where the framing was lost files are cut by bytes.
// One of them alone is searched for the next frame, and not taken by its first
// bytes.
func TestUnitsFromInsideAFrame(t *testing.T) {
	dir := t.TempDir()
	hello := dendro.AppendHandshake(nil, &dendro.Handshake{Labels: dendro.NewMap(map[string]string{"host": "web-1"})})
	stream := append(dendro.AppendPreamble(nil), hello...)
	stream = append(stream, 0xff, 0xff, 0xff, 0xff)
	for range 1000 {
		// As lengths these are under the limit.
		stream = append(stream, 7, 7, 7, 3)
	}
	at := int64(len(stream))
	stream = append(stream, hello...)
	recordDendro(t, dir, stream, newClock())
	files := capFiles(t, dir)
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	set, err := capture.OpenInputs(files[len(files)-1:], capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := set.Connections[0]
	if s := c.Files[0].Sidecar; s == nil || s.StartsAtBoundary || c.Files[0].Start >= at {
		t.Fatalf("the last file starts at a frame: %+v", c.Files[0])
	}
	r := c.Units()
	defer r.Close()
	u, found, err := r.Next()
	if err != nil || u.Offset != at || u.Kind != dendro.KindHandshake || kinds(found) != wire.KindLost || found[0].Length != at-c.Files[0].Start {
		t.Errorf("%v, a unit of kind %d at %d, want %d; %+v", err, u.Kind, u.Offset, at, found)
	}
}

// TestUnitsGoOnBehindDamage: one bad length costs the rest of its own file, as
// the next one begins at a frame and its sidecar knows the sources.
func TestUnitsGoOnBehindDamage(t *testing.T) {
	dir := t.TempDir()
	stream := dendro.AppendPreamble(nil)
	stream = dendro.AppendHandshake(stream, &dendro.Handshake{Labels: dendro.NewMap(map[string]string{"host": "web-1"})})
	const frames = 40
	for i := range frames {
		r := dendro.NewRows(0, uint64(i), dendro.State{}, []dendro.Row{{Stream: []byte("cpu"), TS: int64(i), Row: make([]byte, 200)}})
		stream = dendro.AppendRows(stream, &r)
	}
	clock := newClock()
	recordDendro(t, dir, stream, clock)
	read := func(dir string) (units []wire.Unit, found []wire.Finding, restarts int, end wire.Ending) {
		set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := set.Connections[0].Units()
		defer r.Close()
		total := int64(0)
		r.Progress = func(n int64) { total += n }
		for {
			u, fs, err := r.Next()
			found = append(found, fs...)
			if err == io.EOF {
				if len(found) == 0 && total != int64(len(stream)) {
					t.Errorf("progress tells of %d bytes of %d", total, len(stream))
				}
				return units, found, restarts, r.Ending()
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Restarted() {
				restarts++
			}
			units = append(units, u)
		}
	}
	all, found, restarts, end := read(dir)
	if len(all) != frames+2 || len(found) > 0 || restarts != 1 || end != wire.EndingClean {
		t.Fatalf("undamaged: %d units, %v, %d restarts, %s", len(all), found, restarts, end)
	}

	set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := set.Connections[0].Files
	if len(files) < 4 {
		t.Fatalf("%d files", len(files))
	}
	f := files[1]
	b, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	second := 4 + binary.LittleEndian.Uint32(b)
	b[second+3] = 0xff
	if err := os.Chmod(f.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	at := f.Start + int64(second)
	got, found, restarts, end := read(dir)
	if restarts != 2 || end != wire.EndingClean || len(got) >= len(all) {
		t.Fatalf("damaged: %d units, %d restarts, %s", len(got), restarts, end)
	}
	for _, u := range got {
		if u.Offset >= at && u.Offset < f.End() {
			t.Fatalf("a unit at %d, where the framing is lost", u.Offset)
		}
	}
	if want := len(all) - int((f.End()-at)/all[10].Size); len(got) != want {
		t.Errorf("%d units, want %d", len(got), want)
	}
	if k := kinds(found); !strings.Contains(k, wire.KindBadLength) || !strings.Contains(k, capture.KindHashMismatch) || strings.Contains(k, dendro.KindUnknownOrdinal) || len(found) != 2 {
		t.Errorf("found %s", k)
	}
	for _, x := range found {
		if x.Kind == wire.KindBadLength && (x.Offset != at || x.Offset+x.Length != f.End() || x.File != f.Name) {
			t.Errorf("%+v", x)
		}
	}
}

// TestUnreadableFile: a file that can't be opened, or read, is a finding with its
// place and the reason, and the rest is used, by whoever reads the connection.
func TestUnreadableFile(t *testing.T) {
	r := recordMem(t, 5, 40, 1000)
	files := r.count()
	if files < 4 {
		t.Fatalf("%d files", files)
	}
	for n := 1; n <= files; n++ {
		for _, kind := range []string{"open", "read"} {
			for _, why := range []syscall.Errno{syscall.EACCES, syscall.EIO} {
				what := fmt.Sprintf("file %d, %s: %v", n, kind, why)
				fault := &vfs.Fault{FS: r.mem(), Decide: func(op vfs.Op) vfs.Verdict {
					if op.Kind == kind && op.Name == r.name(n, ".cap") {
						return vfs.Verdict{Err: why}
					}
					return vfs.Verdict{}
				}}
				opt := capture.InputOptions{FS: fault, Registry: lenproto.Registry}
				set, err := capture.OpenInputs([]string{"/a"}, opt)
				if err != nil {
					t.Fatal(what, err)
				}
				c := set.Connections[0]
				f := c.Files[n-1]
				var want, got []int64
				for _, at := range r.ends[1 : len(r.ends)-1] { // behind the preamble, and not the stream's end
					if at < f.Start || at >= f.End() {
						want = append(want, at)
					}
				}
				var found []wire.Finding
				units := c.Units()
				for {
					u, fs, err := units.Next()
					found = append(found, fs...)
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(what, err)
					}
					if u.Type == wire.UnitFrame {
						got = append(got, u.Offset)
					}
				}
				units.Close()
				if !slices.Equal(got, want) {
					t.Errorf("%s: frames at %v, want %v", what, got, want)
				}
				if kinds(found) != capture.KindUnreadable || found[0].Offset != f.Start || found[0].Length != f.Length ||
					found[0].File != f.Name || !strings.Contains(found[0].Message, why.Error()) {
					t.Errorf("%s: %+v", what, found)
				}
				info, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: opt})
				if err != nil || !slices.ContainsFunc(info.AllFindings(), func(x wire.Finding) bool { return x.Kind == capture.KindUnreadable && x.File == f.Name }) {
					t.Errorf("%s: %v, %+v", what, err, info)
				}
				if n == 1 || kind == "read" {
					continue
				}
				// Who goes on from place to place is not led past it.
				run := c.Runs()[0]
				dec, err := lenproto.Registry.Named(c.Protocol).Open(wire.Config{})
				if err != nil {
					t.Fatal(err)
				}
				from := c.UnitsFrom(run, f.Start, dec)
				if _, _, err := from.Next(); !errors.Is(err, why) {
					t.Errorf("%s: from there: %v", what, err)
				}
				from.Close()
			}
		}
	}
}
