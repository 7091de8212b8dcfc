package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// recorded is a capture in memory that tests take apart.
type recorded struct {
	id     string
	stream []byte
	ends   []int64
	files  map[string][]byte
}

// recordMem records a stream in files of about limit bytes.
func recordMem(t testing.TB, seed uint64, frames int, limit int64) *recorded {
	t.Helper()
	r := &recorded{}
	r.stream, r.ends = lenproto.Stream(seed, frames, 300)
	mem, clock := vfs.NewMem(), newClock()
	d, err := capture.Create("/a", capture.Options{FS: mem, Clock: clock, Registry: lenproto.Registry, RotateBytes: limit,
		Unique: func() uint32 { return uint32(seed) }})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://a"})
	if err != nil {
		t.Fatal(err)
	}
	r.id = w.ID()
	for p := r.stream; len(p) > 0; {
		n := min(97, len(p))
		if _, err := w.Write(p[:n], clock.pass(1e6)); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r.files = mem.Files()
	return r
}

// name is the path of a file of the capture.
func (r *recorded) name(n int, ext string) string { return fmt.Sprintf("/a/%s.%08d%s", r.id, n, ext) }

func (r *recorded) count() int {
	n := 0
	for r.files[r.name(n+1, ".cap")] != nil {
		n++
	}
	return n
}

// mem puts the files into a new file system.
func (r *recorded) mem() *vfs.Mem {
	m := vfs.NewMem()
	m.MkdirAll("/a")
	for n, b := range r.files {
		m.SetFile(n, b)
	}
	return m
}

func inputs(m vfs.FS) capture.InputOptions {
	return capture.InputOptions{FS: m, Registry: lenproto.Registry}
}

// readBytes is what the runs of a set's only connection hold, by offset.
func readBytes(t testing.TB, c *capture.Connection) map[int64][]byte {
	t.Helper()
	out := map[int64][]byte{}
	for _, r := range c.Runs() {
		rr, _ := r.Open()
		b, err := io.ReadAll(rr)
		if err != nil {
			t.Fatal(err)
		}
		out[r.Start] = b
	}
	return out
}

// TestLessonSidecarsAreNoAuthority deletes, cuts, ages, swaps and forges the
// sidecars: everything is rebuilt from the bytes, and it is said. It closes
// "side file trusted over data".
func TestLessonSidecarsAreNoAuthority(t *testing.T) {
	r := recordMem(t, 1, 200, 2000)
	n := r.count()
	if n < 10 {
		t.Fatalf("only %d files", n)
	}
	side := func(k int) []byte { return r.files[r.name(k, ".json")] }
	forge := func(b []byte, from, to string) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) }
	cases := []struct {
		name   string
		damage func(m *vfs.Mem)
		want   string
	}{
		{"all deleted", func(m *vfs.Mem) {
			for k := 1; k <= n; k++ {
				m.Remove(r.name(k, ".json"))
			}
		}, capture.KindSidecarMissing},
		{"everything beside deleted", func(m *vfs.Mem) {
			for name := range r.files {
				if !strings.HasSuffix(name, ".cap") {
					m.Remove(name)
				}
			}
		}, capture.KindSidecarMissing},
		{"one cut", func(m *vfs.Mem) { m.SetFile(r.name(4, ".json"), side(4)[:200]) }, capture.KindSidecarInvalid},
		{"one empty", func(m *vfs.Mem) { m.SetFile(r.name(4, ".json"), nil) }, capture.KindSidecarInvalid},
		{"one of another file", func(m *vfs.Mem) { m.SetFile(r.name(4, ".json"), side(5)) }, capture.KindSidecarStale},
		{"an aged one", func(m *vfs.Mem) {
			m.SetFile(r.name(4, ".json"), forge(side(4), "\"file\": 4,", "\"file\": 4, \"open\": true,"))
		}, capture.KindSidecarStale},
		{"a wrong start", func(m *vfs.Mem) {
			m.SetFile(r.name(4, ".json"), forge(side(4), "\"start\": ", "\"start\": 1"))
		}, ""},
		{"a shorter length", func(m *vfs.Mem) {
			s := parse(t, side(4))
			s.Length, s.Boundary = s.Length-5, s.Boundary-5
			m.SetFile(r.name(4, ".json"), text(t, s))
		}, capture.KindSidecarStale},
		{"not JSON", func(m *vfs.Mem) { m.SetFile(r.name(1, ".json"), []byte("\xff\xd8\xff")) }, capture.KindSidecarInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := r.mem()
			c.damage(m)
			set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
			if err != nil {
				t.Fatal(err)
			}
			conn := set.Connections[0]
			if got := readBytes(t, conn); len(got) != 1 || !bytes.Equal(got[0], r.stream) {
				t.Fatal("the bytes are not those that were recorded")
			}
			if conn.Protocol != lenproto.Name {
				t.Fatalf("protocol %s", conn.Protocol)
			}
			if got := kinds(conn.Findings); got == "" || !strings.Contains(got, c.want) {
				t.Fatalf("findings: %v", got)
			}
			// recover makes anew what is missing or can't be read.
			if _, err := capture.Recover("/a", capture.Options{FS: m, Clock: newClock(), Registry: lenproto.Registry}); err != nil {
				t.Fatal(err)
			}
			set, err = capture.OpenInputs([]string{"/a"}, inputs(m))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(kinds(set.Connections[0].Findings), capture.KindSidecarMissing) {
				t.Fatalf("after recovery: %v", set.Connections[0].Findings)
			}
		})
	}
}

func parse(t testing.TB, b []byte) *sidecar.Sidecar {
	t.Helper()
	s, err := sidecar.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func text(t testing.TB, s *sidecar.Sidecar) []byte {
	t.Helper()
	b, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLessonFileSets takes files away, cuts, doubles, mixes and changes them:
// each is named with its span, and nothing is applied twice. It closes "part
// looks whole".
func TestLessonFileSets(t *testing.T) {
	r := recordMem(t, 1, 200, 2000)
	n := r.count()
	start := func(k int) int64 { return parse(t, r.files[r.name(k, ".json")]).Start }
	end := int64(len(r.stream))
	whole := []int64{0, end}
	type span = []int64
	cases := []struct {
		name   string
		damage func(m *vfs.Mem) []string // gives the paths, nil for the folder
		spans  []span
		kind   string
		offset int64
		length int64
	}{
		{"nothing", func(m *vfs.Mem) []string { return nil }, []span{whole}, "", 0, 0},
		{"file by file, in any order", func(m *vfs.Mem) []string {
			var p []string
			for k := n; k >= 1; k-- {
				p = append(p, r.name(k, ".cap"))
			}
			return p
		}, []span{whole}, "", 0, 0},
		{"by folder and by file", func(m *vfs.Mem) []string { return []string{"/a", r.name(3, ".cap"), "/a/../a"} }, []span{whole}, "", 0, 0},
		{"a middle one missing", func(m *vfs.Mem) []string {
			m.Remove(r.name(3, ".cap"))
			return nil
		}, []span{{0, start(3)}, {start(4), end}}, capture.KindMissingFiles, start(3), start(4) - start(3)},
		{"two missing with all their sides", func(m *vfs.Mem) []string {
			for _, ext := range []string{".cap", ".json", ".idx", ".sha256"} {
				m.Remove(r.name(3, ext))
				m.Remove(r.name(4, ext))
			}
			return nil
		}, []span{{0, start(3)}, {start(5), end}}, capture.KindMissingFiles, start(3), start(5) - start(3)},
		{"the first missing", func(m *vfs.Mem) []string {
			m.Remove(r.name(1, ".cap"))
			return nil
		}, []span{{start(2), end}}, capture.KindMissingFiles, 0, start(2)},
		{"the last missing", func(m *vfs.Mem) []string {
			m.Remove(r.name(n, ".cap"))
			return nil
		}, []span{{0, start(n)}}, capture.KindMissingFiles, start(n), end - start(n)},
		{"the last missing with its sides", func(m *vfs.Mem) []string {
			for _, ext := range []string{".cap", ".json", ".idx", ".sha256"} {
				m.Remove(r.name(n, ext))
			}
			return nil
		}, []span{{0, start(n)}}, capture.KindNoEnd, start(n), 0},
		{"a short one", func(m *vfs.Mem) []string {
			b := r.files[r.name(3, ".cap")]
			m.SetFile(r.name(3, ".cap"), b[:len(b)-10])
			return nil
		}, []span{{0, start(4) - 10}, {start(4), end}}, capture.KindShortFile, start(4) - 10, 10},
		{"a short one before one without sidecar", func(m *vfs.Mem) []string {
			b := r.files[r.name(3, ".cap")]
			m.SetFile(r.name(3, ".cap"), b[:len(b)-10])
			m.Remove(r.name(4, ".json"))
			return nil
		}, []span{{0, start(4) - 10}, {start(4), end}}, capture.KindShortFile, start(4) - 10, 10},
		{"bytes behind one", func(m *vfs.Mem) []string {
			m.SetFile(r.name(3, ".cap"), append(append([]byte{}, r.files[r.name(3, ".cap")]...), "surplus"...))
			return nil
		}, []span{whole}, capture.KindSurplusBytes, start(4), 7},
		{"doubled by another site", func(m *vfs.Mem) []string {
			m.MkdirAll("/b")
			for name, b := range r.files {
				m.SetFile("/b/"+filepath.Base(name), b)
			}
			return []string{"/b", "/a"}
		}, []span{whole}, "", 0, 0},
		{"another site has the rest of one that is cut", func(m *vfs.Mem) []string {
			m.MkdirAll("/b")
			b := r.files[r.name(3, ".cap")]
			m.SetFile("/b/"+filepath.Base(r.name(3, ".cap")), b[:len(b)/2])
			return []string{"/a", "/b"}
		}, []span{whole}, capture.KindDoubled, 0, 0},
		{"another site has other bytes", func(m *vfs.Mem) []string {
			m.MkdirAll("/b")
			b := append([]byte{}, r.files[r.name(3, ".cap")]...)
			b[20] ^= 1
			m.SetFile("/b/"+filepath.Base(r.name(3, ".cap")), b)
			return []string{"/b", "/a"}
		}, []span{whole}, capture.KindConflict, 0, 0},
		{"a foreign file", func(m *vfs.Mem) []string {
			m.SetFile("/a/notes.txt", []byte("hello"))
			return nil
		}, []span{whole}, capture.KindForeign, 0, 0},
		{"a name that is nearly one", func(m *vfs.Mem) []string {
			m.SetFile("/a/"+r.id+".3.cap", []byte("hello"))
			return nil
		}, []span{whole}, capture.KindForeign, 0, 0},
		{"no sidecars, a middle one missing", func(m *vfs.Mem) []string {
			for k := 1; k <= n; k++ {
				m.Remove(r.name(k, ".json"))
			}
			m.Remove(r.name(3, ".cap"))
			return nil
		}, []span{{0, start(3)}, {start(3), end - (start(4) - start(3))}}, capture.KindMissingFiles, start(3), 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := r.mem()
			paths := c.damage(m)
			if paths == nil {
				paths = []string{"/a"}
			}
			before := m.Files()
			set, err := capture.OpenInputs(paths, inputs(m))
			if err != nil {
				t.Fatal(err)
			}
			if len(set.Connections) != 1 {
				t.Fatalf("%d connections", len(set.Connections))
			}
			conn := set.Connections[0]
			if len(conn.Runs()) != len(c.spans) {
				t.Fatalf("%d runs, findings %v", len(conn.Runs()), conn.Findings)
			}
			for i, run := range conn.Runs() {
				if run.Start != c.spans[i][0] || run.End() != c.spans[i][1] {
					t.Fatalf("run %d is %d to %d, not %v", i, run.Start, run.End(), c.spans[i])
				}
				if (run.Context == nil) != (run.Start == 0) {
					t.Fatalf("run %d at %d: context %v", i, run.Start, run.Context)
				}
				if run.Loose != (c.length == 0 && c.kind == capture.KindMissingFiles && i > 0) {
					t.Fatalf("run %d: loose %v", i, run.Loose)
				}
				got := readRun(t, run)
				want := r.stream[run.Start:run.End()]
				if run.Loose {
					want = r.stream[end-int64(len(got)):]
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("run %d: %d bytes are as sent, of %d", i, commonPrefix(got, want), len(want))
				}
			}
			all := append(set.Findings, conn.Findings...)
			if c.kind == "" && len(all) > 0 {
				t.Fatalf("found %v", all)
			}
			if c.kind != "" {
				hit := false
				for _, f := range all {
					hit = hit || f.Kind == c.kind && f.Offset == c.offset && f.Length == c.length && f.File != "" && f.Message != "" || f.Kind == c.kind && c.offset == 0 && c.length == 0
				}
				if !hit {
					t.Fatalf("no %s at %d of %d bytes: %+v", c.kind, c.offset, c.length, all)
				}
			}
			for _, f := range all {
				if f.Kind == capture.KindConflict && !(strings.Contains(f.Message, "/a/"+f.File) && strings.Contains(f.Message, "/b/"+f.File)) {
					t.Fatalf("the two can't be told apart: %s", f.Message)
				}
			}
			for name, b := range m.Files() {
				if !bytes.Equal(before[name], b) {
					t.Fatalf("reading changed %s", name)
				}
			}
		})
	}
}

// TestNoPlace: files from the middle without sidecars are refused, by a typed
// error and for that connection alone, unless a context is given.
func TestNoPlace(t *testing.T) {
	r := recordMem(t, 1, 200, 2000)
	o := recordMem(t, 2, 50, 2000)
	m := vfs.NewMem()
	m.MkdirAll("/a")
	m.SetFile(r.name(3, ".cap"), r.files[r.name(3, ".cap")])
	m.SetFile(r.name(4, ".cap"), r.files[r.name(4, ".cap")])
	var refused *capture.NoPlaceError
	if _, err := capture.OpenInputs([]string{"/a"}, inputs(m)); !errors.As(err, &refused) || refused.Connection != r.id {
		t.Fatalf("got %v", err)
	}
	opt := inputs(m)
	opt.Context, opt.ContextStart, opt.Protocol = wire.MidStream(lenproto.Name), 777, lenproto.Name
	set, err := capture.OpenInputs([]string{"/a"}, opt)
	if err != nil {
		t.Fatal(err)
	}
	if run := set.Connections[0].Runs()[0]; run.Start != 777 || run.Context == nil || len(run.Files) != 2 {
		t.Fatalf("got %+v", run)
	}
	for name, b := range o.files {
		m.SetFile(name, b)
	}
	set, err = capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Connections {
		if (c.ID == r.id) != (c.Refused != nil) || (c.ID == o.id) != (len(c.Runs()) == 1) {
			t.Fatalf("%s: %v, %d runs", c.ID, c.Refused, len(c.Runs()))
		}
	}
}

// TestLessonFlippedByte flips one byte in each file in turn: verify names the
// file and the read that the byte came with, replay reads all the rest, and no
// input changes. It closes "a global reaction to local damage".
func TestLessonFlippedByte(t *testing.T) {
	r := recordMem(t, 1, 60, 2000)
	for k := 1; k <= r.count(); k++ {
		size := len(r.files[r.name(k, ".cap")])
		for _, at := range []int{0, 5, size / 2, size - 1} {
			m := r.mem()
			b := append([]byte{}, r.files[r.name(k, ".cap")]...)
			b[at] ^= 0x10
			m.SetFile(r.name(k, ".cap"), b)
			before := m.Files()
			off := parse(t, r.files[r.name(k, ".json")]).Start + int64(at)
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m)})
			if err != nil {
				t.Fatal(err)
			}
			var torn, hash bool
			for _, f := range rep.Findings {
				if f.File != filepath.Base(r.name(k, ".cap")) && (f.Kind == capture.KindTornBytes || f.Kind == capture.KindHashMismatch) {
					t.Fatalf("file %d was flipped, found %+v", k, f)
				}
				torn = torn || f.Kind == capture.KindTornBytes && f.Offset <= off && off < f.Offset+f.Length && f.Length <= 97
				hash = hash || f.Kind == capture.KindHashMismatch
			}
			if !torn || !hash {
				t.Fatalf("byte %d of file %d was flipped, found %+v", at, k, rep.Findings)
			}
			set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
			if err != nil {
				t.Fatal(err)
			}
			run := set.Connections[0].Runs()[0]
			rr, _ := run.Open()
			got, err := io.ReadAll(rr)
			if err != nil || int64(len(got)) != int64(len(r.stream)) {
				t.Fatal(err, len(got))
			}
			if f := rr.Findings(); len(f) != 1 || f[0].Kind != capture.KindHashMismatch || f[0].File != filepath.Base(r.name(k, ".cap")) {
				t.Fatalf("while reading: %v", f)
			}
			// Where the framing is lost in the file, the next one goes on.
			if next := run.After(off); k < r.count() && (next == nil || next.Files[0].Number != int64(k+1) || next.Context == nil) {
				t.Fatalf("behind file %d: %+v", k, next)
			}
			for name, b := range m.Files() {
				if !bytes.Equal(before[name], b) {
					t.Fatalf("verifying changed %s", name)
				}
			}
		}
	}
}

// TestLessonZeroFilledTail zeroes an unfinished file from every 512-byte point,
// and appends zeros: a named verdict with its offset, all whole frames before it
// are read, and zeros inside of a payload stay. It closes "a torn tail taken for
// corruption".
func TestLessonZeroFilledTail(t *testing.T) {
	stream, ends := lenproto.Stream(9, 40, 300)
	// A frame whose payload is zeros, longer than a sector, in the middle.
	zeros := append([]byte{0x20, 0x07, 0, 0, 1}, make([]byte, 0x720-1)...)
	stream = append(stream, zeros...)
	ends = append(ends, int64(len(stream)))
	more, moreEnds := lenproto.Stream(10, 20, 300)
	for _, e := range moreEnds[2:] {
		ends = append(ends, int64(len(stream))+e-4)
	}
	stream = append(stream, more[4:]...)
	name := "/a/c00000001-00000007.00000001.cap.partial"
	check := func(b []byte, from int64) {
		t.Helper()
		m := vfs.NewMem()
		m.MkdirAll("/a")
		m.SetFile(name, b)
		rec, err := capture.Recover("/a", capture.Options{FS: m, Clock: newClock(), Registry: lenproto.Registry})
		if err != nil || len(rec) != 1 {
			t.Fatal(rec, err)
		}
		want := int64(0)
		for _, e := range ends {
			if e <= from {
				want = e
			}
		}
		if from < int64(len(stream)) || len(b) > len(stream) {
			if rec[0].Tail != wire.KindZeroTail {
				t.Fatalf("zeros from %d of %d: %+v", from, len(b), rec[0])
			}
		}
		// A frame that ended with zeros of its own just there is whole.
		if rec[0].Whole < want {
			t.Fatalf("zeros from %d of %d: whole frames to %d, want %d", from, len(b), rec[0].Whole, want)
		}
		if !bytes.Equal(stream[:rec[0].Whole], b[:rec[0].Whole]) {
			t.Fatalf("zeros from %d of %d: %d bytes are whole frames and not as sent", from, len(b), rec[0].Whole)
		}
		if got := m.Files()[strings.TrimSuffix(name, ".partial")]; !bytes.Equal(got, b) {
			t.Fatal("recovery changed the bytes")
		}
		set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
		if err != nil {
			t.Fatal(err)
		}
		run := set.Connections[0].Runs()[0]
		rr, opt := run.Open()
		dec, _ := set.Connections[0].Decoder(run)
		wr := wire.NewReader(rr, dec, opt)
		end := int64(0)
		for {
			u, _, err := wr.Next()
			if err != nil {
				break
			}
			end = u.End()
		}
		if end != rec[0].Whole {
			t.Fatalf("zeros from %d of %d: read to %d, recovery says %d", from, len(b), end, rec[0].Whole)
		}
	}
	for from := 512; from < len(stream); from += 512 {
		b := append([]byte{}, stream...)
		clear(b[from:])
		// The last frame before the end may be zeros of its own.
		check(b, int64(from))
	}
	for _, n := range []int{4, 100, 511, 512, 4096, 100_000} {
		check(append(append([]byte{}, stream...), make([]byte, n)...), int64(len(stream)))
	}
}

// TestLessonNotACapture: one line that says what an input is not.
func TestLessonNotACapture(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	sub := filepath.Join(dir, "sub")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ path, want string }{
		{put("a.jpg", "\xff\xd8\xff\xe0\x00\x10JFIF\x00"), "a JPEG image"},
		{put("empty", ""), "an empty file"},
		{put("a.pcap", "\xd4\xc3\xb2\xa1\x02\x00\x04\x00"), "a pcap packet capture"},
		{put("a.db", "SQLite format 3\x00\x10\x00"), "an SQLite database"},
		{put("a.parquet", "PAR1\x15\x00"), "a Parquet file"},
		{put("a.txt", "hello, world"), "no stream of a known protocol"},
		{put("bad.zst", "\x28\xb5\x2f\xfd\x00\x01\x02"), "zstd data that does not decompress"},
		{put("half", "TO"), "no stream of a known protocol"},
		{sub, "an empty folder"},
		{dir, "a folder without capture files"},
		{"/dev/null", ""},
	}
	for _, c := range cases {
		_, err := capture.OpenInputs([]string{c.path}, capture.InputOptions{Registry: lenproto.Registry})
		var not *capture.NotCaptureError
		if !errors.As(err, &not) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	if _, err := capture.OpenInputs([]string{filepath.Join(dir, "absent")}, capture.InputOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	// A huge sidecar beside real bytes is not even read.
	r := recordMem(t, 1, 20, 0)
	m := r.mem()
	m.SetFile(r.name(1, ".json"), make([]byte, sidecar.MaxSize+1))
	set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil || !strings.Contains(kinds(set.Connections[0].Findings), capture.KindSidecarInvalid) {
		t.Fatal(set, err)
	}
}

// TestRawStream reads a stream file that never saw the recorder.
func TestRawStream(t *testing.T) {
	stream, _ := lenproto.Stream(4, 30, 200)
	m := vfs.NewMem()
	m.MkdirAll("/x")
	m.SetFile("/x/old.stream", stream)
	m.SetFile("/x/again/old.stream", stream)
	m.SetFile("/x/other/old.stream", append(stream, stream[4:]...))
	set, err := capture.OpenInputs([]string{"/x/old.stream"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	c := set.Connections[0]
	if c.ID != "old.stream" || !c.Raw || c.Protocol != lenproto.Name || !bytes.Equal(readRun(t, c.Runs()[0]), stream) {
		t.Fatalf("%+v", c)
	}
	set, err = capture.OpenInputs([]string{"/x/old.stream", "/x/again/old.stream", "/x/other/old.stream"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Connections) != 2 || kinds(set.Findings) != capture.KindDoubled || set.Connections[0].ID == set.Connections[1].ID {
		t.Fatalf("%d connections, %v", len(set.Connections), set.Findings)
	}
	var zst bytes.Buffer
	if err := capture.CompressTo(&zst, bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	m.SetFile("/x/old.zst", zst.Bytes())
	set, err = capture.OpenInputs([]string{"/x/old.zst"}, inputs(m))
	if err != nil || !bytes.Equal(readRun(t, set.Connections[0].Runs()[0]), stream) {
		t.Fatal(err)
	}
	opt := inputs(m)
	opt.Protocol = capture.ProtocolRaw
	m.SetFile("/x/noise", []byte("any bytes"))
	set, err = capture.OpenInputs([]string{"/x/noise"}, opt)
	if err != nil || set.Connections[0].Protocol != capture.ProtocolRaw {
		t.Fatal(err)
	}
}

// TestCompressedFiles reads a set of which some files are compressed, seeks in
// them, and goes on behind a damaged one.
func TestCompressedFiles(t *testing.T) {
	r := recordMem(t, 1, 200, 4000)
	m := r.mem()
	for k := 1; k <= r.count(); k += 2 {
		var z bytes.Buffer
		if err := capture.CompressTo(&z, bytes.NewReader(r.files[r.name(k, ".cap")])); err != nil {
			t.Fatal(err)
		}
		m.Remove(r.name(k, ".cap"))
		m.SetFile(r.name(k, ".cap.zst"), z.Bytes())
	}
	for _, sides := range []bool{true, false} {
		if !sides {
			for k := 1; k <= r.count(); k++ {
				m.Remove(r.name(k, ".json"))
			}
		}
		set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
		if err != nil {
			t.Fatal(err)
		}
		run := set.Connections[0].Runs()[0]
		if !bytes.Equal(readRun(t, run), r.stream) {
			t.Fatal("the bytes are not those that were recorded")
		}
		for _, at := range []int64{0, 1, 3999, 4001, int64(len(r.stream)) - 1, int64(len(r.stream))} {
			rr, opt := run.OpenAt(at)
			b, err := io.ReadAll(rr)
			if err != nil || opt.Offset != at || !bytes.Equal(b, r.stream[at:]) {
				t.Fatalf("from %d: %d bytes, %v", at, len(b), err)
			}
		}
	}
	m = r.mem()
	m.Remove(r.name(2, ".cap"))
	var z bytes.Buffer
	if err := capture.CompressTo(&z, bytes.NewReader(r.files[r.name(2, ".cap")])); err != nil {
		t.Fatal(err)
	}
	broken := z.Bytes()
	broken[len(broken)/2] ^= 0xff
	m.SetFile(r.name(2, ".cap.zst"), broken)
	set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	rr, _ := set.Connections[0].Runs()[0].Open()
	b, err := io.ReadAll(rr)
	var d *capture.DamagedError
	if !errors.As(err, &d) || d.Finding.File != filepath.Base(r.name(2, ".cap.zst")) || !bytes.HasPrefix(r.stream, b) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	start := parse(t, r.files[r.name(3, ".json")]).Start
	if d.Next == nil || d.Next.Start != start || !bytes.Equal(readRun(t, d.Next), r.stream[start:]) {
		t.Fatalf("behind the damage: %+v", d.Next)
	}
}

// TestFileAt maps offsets to files and back.
func TestFileAt(t *testing.T) {
	r := recordMem(t, 1, 100, 2000)
	set, err := capture.OpenInputs([]string{"/a"}, inputs(r.mem()))
	if err != nil {
		t.Fatal(err)
	}
	run := set.Connections[0].Runs()[0]
	for off := range int64(len(r.stream)) {
		f, at := run.FileAt(off)
		if r.files[f.Path][at] != r.stream[off] || f.Start+at != off {
			t.Fatalf("offset %d is byte %d of %s", off, at, f.Name)
		}
	}
	if f, at := run.FileAt(run.End()); f.Number != int64(r.count()) || at != f.Length {
		t.Fatalf("the end is byte %d of %s", at, f.Name)
	}
}

// TestNoFileAtAll: a name of a capture file that is a pipe or a folder does not
// hold a reader up, nor a recorder.
func TestNoFileAtAll(t *testing.T) {
	dir := t.TempDir()
	stream, _ := lenproto.Stream(4, 30, 200)
	id := record(t, dir, stream, capture.Options{}, newClock())
	if err := syscall.Mkfifo(filepath.Join(dir, "c00000009-00000009.00000001.cap"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "c00000009-00000009.00000002.cap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "c00000009-00000009.00000003.cap.partial"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, id+".00000001.json")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, id+".00000001.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := open(t, capture.InputOptions{}, dir)
	if len(set.Connections) != 1 || set.Connections[0].ID != id || kinds(set.Findings) != strings.Repeat(capture.KindForeign+" ", 2)+capture.KindForeign {
		t.Fatalf("%d connections, %v", len(set.Connections), set.Findings)
	}
	if rec, err := capture.Recover(dir, capture.Options{Registry: lenproto.Registry}); err != nil || len(rec) != 1 || !rec[0].Rebuilt {
		t.Fatal(rec, err)
	}
}

// TestLessonDeclaredSizes: sizes that side files and compressed files declare
// are believed by nobody. It closes "a declared size trusted".
func TestLessonDeclaredSizes(t *testing.T) {
	r := recordMem(t, 1, 60, 2000)
	huge := func(k int) []byte {
		s := parse(t, r.files[r.name(k, ".json")])
		s.Length = 1<<52 - s.Start
		s.Boundary = s.Start
		return text(t, s)
	}
	var bomb bytes.Buffer
	if err := capture.CompressTo(&bomb, io.LimitReader(zeroReader{}, 256<<20)); err != nil {
		t.Fatal(err)
	}
	// A zstd frame that declares 2^62 bytes and a window of as many.
	frame := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0xa8}, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0)
	cases := map[string]func(m *vfs.Mem){
		"a sidecar's length": func(m *vfs.Mem) { m.SetFile(r.name(2, ".json"), huge(2)) },
		"a sidecar's length, compressed": func(m *vfs.Mem) {
			var z bytes.Buffer
			if err := capture.CompressTo(&z, bytes.NewReader(r.files[r.name(2, ".cap")])); err != nil {
				t.Fatal(err)
			}
			m.Remove(r.name(2, ".cap"))
			m.SetFile(r.name(2, ".cap.zst"), z.Bytes())
			m.SetFile(r.name(2, ".json"), huge(2))
		},
		"a compressed file's zeros": func(m *vfs.Mem) {
			m.Remove(r.name(2, ".cap"))
			m.SetFile(r.name(2, ".cap.zst"), bomb.Bytes())
		},
		"a compressed file's window": func(m *vfs.Mem) {
			m.Remove(r.name(2, ".cap"))
			m.SetFile(r.name(2, ".cap.zst"), frame)
		},
		"a frame's length": func(m *vfs.Mem) {
			m.SetFile(r.name(2, ".cap"), append([]byte{0xff, 0xff, 0x0f, 0}, make([]byte, 10)...))
		},
		"an index record": func(m *vfs.Mem) {
			m.SetFile(r.name(2, ".idx"), append(sidecar.AppendIndexHeader(nil, parse(t, r.files[r.name(2, ".json")]).Start, 0, 0),
				0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0))
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			m := r.mem()
			damage(m)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
			if err != nil {
				t.Fatal(err)
			}
			units := set.Connections[0].Units()
			n := 0
			for ; ; n++ {
				if _, _, err := units.Next(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			units.Close()
			rep, err := capture.Verify([]string{"/a"}, capture.VerifyOptions{Input: inputs(m)})
			if err != nil || len(rep.Findings) == 0 {
				t.Fatal(rep, err)
			}
			runtime.ReadMemStats(&after)
			// Most of it is garbage: buffers of readers, one after the other.
			if got := after.TotalAlloc - before.TotalAlloc; got > 256<<20 {
				t.Errorf("%d MiB were allocated", got>>20)
			}
			if n < 30 {
				t.Errorf("only %d units were read of what is sound", n)
			}
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestZeroedSealedFile: a sealed file whose end was zeroed afterwards is told by
// its hash, and then from where on.
func TestZeroedSealedFile(t *testing.T) {
	r := recordMem(t, 1, 60, 0)
	b := append([]byte{}, r.files[r.name(1, ".cap")]...)
	from := len(b) / 2 / 512 * 512
	clear(b[from:])
	m := r.mem()
	m.SetFile(r.name(1, ".cap"), b)
	set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	units := set.Connections[0].Units()
	defer units.Close()
	var all []wire.Finding
	end := int64(0)
	for {
		u, found, err := units.Next()
		all = append(all, found...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		end = u.End()
	}
	if got := kinds(all); !strings.Contains(got, wire.KindZeroTail) || !strings.Contains(got, capture.KindHashMismatch) || end > int64(from) || end < int64(from)-300 {
		t.Fatalf("zeros from %d: read to %d, found %+v", from, end, all)
	}
}

// TestHalfARename: where a hard link stands in for an exclusive rename, a crash
// between its two steps leaves both names. One of them goes, unless they are
// not the same file.
func TestHalfARename(t *testing.T) {
	r := recordMem(t, 1, 60, 2000)
	last := r.count()
	for _, same := range []bool{true, false} {
		for _, sides := range []bool{true, false} {
			m := r.mem()
			b := r.files[r.name(last, ".cap")]
			if !same {
				b = b[:len(b)-1]
			}
			m.SetFile(r.name(last, ".cap.partial"), b)
			if !sides {
				m.Remove(r.name(last, ".json"))
			}
			opt := capture.Options{FS: m, Clock: newClock(), Registry: lenproto.Registry}
			rec, err := capture.Recover("/a", opt)
			if err != nil || (len(rec) == 1) != (same && !sides) {
				t.Fatal(rec, err)
			}
			files := m.Files()
			if (files[r.name(last, ".cap.partial")] == nil) != same || !bytes.Equal(files[r.name(last, ".cap")], r.files[r.name(last, ".cap")]) {
				t.Fatalf("same %v: %s", same, m.Dump())
			}
			if rec, err := capture.Recover("/a", opt); err != nil || len(rec) > 0 {
				t.Fatal(rec, err)
			}
			set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
			if err != nil || !bytes.Equal(readAllRuns(t, set.Connections[0]), r.stream) {
				t.Fatal(err)
			}
		}
	}
}
