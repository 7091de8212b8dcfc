package replay

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/replay/segment"
	"wiretape/wire"
)

// One bad length in the middle of a capture costs the rest of its own file: the
// next file begins at a frame, and its sidecar knows the sources.
func TestBuildGoesOnBehindDamage(t *testing.T) {
	dir := t.TempDir()
	d, err := capture.Create(dir, capture.Options{RotateBytes: 70_000})
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://publisher:9000", Protocol: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	b := must(os.ReadFile(stream("real/small")))
	if _, err := w.Write(b, capture.Instant{Wall: 1_700_000_000e9, Mono: 1e9}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, _ := mustBuild(t, Options{Check: segment.DepthRows}, dir)
	if whole.Verdict != Clean {
		t.Fatalf("undamaged: %s", whole.JSON())
	}

	set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := set.Connections[0].Files
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	f := files[1]
	bytes := must(os.ReadFile(f.Path))
	second := 4 + int64(binary.LittleEndian.Uint32(bytes))
	bytes[second+3] = 0xff
	if err := os.Chmod(f.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, f.Path, bytes)
	lost := int64(0)
	for at := range boundaries(b) {
		if at := int64(at); at >= f.Start+second && at < f.End() {
			lost++
		}
	}
	r, _ := mustBuild(t, Options{Check: segment.DepthRows}, dir)
	got, want := r.Counts, whole.Counts
	if lost == 0 || got.Frames != want.Frames-lost || got.Rows != want.Rows || got.ClockOffsets != want.ClockOffsets || got.Segments != want.Segments-lost {
		t.Errorf("%d frames are behind the bad length; counts\n got %+v\nwant %+v", lost, got, want)
	}
	hit := false
	for _, x := range r.Findings {
		hit = hit || x.Kind == wire.KindBadLength && x.Offset == f.Start+second && x.Offset+x.Length == f.End()
	}
	if !hit || r.Verdict == Clean {
		t.Errorf("verdict %s, findings %+v", r.Verdict, r.Findings)
	}
}

// A damaged preamble costs the first file: the next one's sidecar says what the
// connection is and which sources it has.
func TestBuildGoesOnBehindADamagedPreamble(t *testing.T) {
	for _, at := range []int{3, len("dendro-repl") + 1} {
		dir := t.TempDir()
		b := must(os.ReadFile(stream("real/small")))
		record(t, dir, 70_000, 0, b)
		set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := set.Connections[0].Files[0]
		bytes := must(os.ReadFile(first.Path))
		bytes[at] ^= 0x40
		if err := os.Chmod(first.Path, 0o600); err != nil {
			t.Fatal(err)
		}
		write(t, first.Path, bytes)
		lost := int64(0)
		for at := range boundaries(b) {
			if at := int64(at); at > 14 && at <= first.End() {
				lost++
			}
		}
		whole, _ := mustBuild(t, Options{}, stream("real/small"))
		r, _ := mustBuild(t, Options{}, dir)
		if lost == 0 || r.Counts.Frames != whole.Counts.Frames-lost || r.Counts.Rows != whole.Counts.Rows {
			t.Errorf("byte %d: %d frames are in the damaged file; %+v of %+v", at, lost, r.Counts, whole.Counts)
		}
		if r.Verdict != Findings || r.Source[0].Complete || r.Inputs[0].Clean {
			t.Errorf("byte %d: %s", at, r.JSON())
		}
	}
}

// A source is not complete when a file of its connection is missing, whichever,
// and the report names the file; of one go as of an archive that is brought up
// to date.
func TestMissingFileIsTold(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, 70_000, 0, must(os.ReadFile(stream("real/complete"))))
	set, err := capture.OpenInputs([]string{dir}, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := mustBuild(t, Options{}, dir)
	if !whole.Source[0].Complete {
		t.Fatal("the whole recording is not complete")
	}
	for _, f := range set.Connections[0].Files {
		away := f.Path + ".away"
		if err := os.Rename(f.Path, away); err != nil {
			t.Fatal(err)
		}
		check := func(how string, r *Report, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(how, err)
			}
			for _, s := range r.Source {
				if s.Complete {
					t.Errorf("%s, without %s: source %s is called complete", how, f.Name, s.UUID)
				}
			}
			if n := r.FindingsByKind[capture.KindMissingFiles]; r.Verdict != Findings || n != 1 || r.Inputs[0].Clean {
				t.Errorf("%s, without %s: verdict %s, %d missing-files: %s", how, f.Name, r.Verdict, n, r.JSON())
			}
		}
		r, _, err := build(t, Options{}, dir)
		check("build", r, err)
		out := filepath.Join(t.TempDir(), "out.dendro")
		update := func() (*Report, error) {
			return Follow(t.Context(), Options{Archive: out}, FollowOptions{Open: opener(dir), Once: true})
		}
		r, err = update()
		check("update", r, err)
		if err := os.Rename(away, f.Path); err != nil {
			t.Fatal(err)
		}
		if f.Number == int64(len(set.Connections[0].Files)) {
			if r, err := update(); err != nil || r.Verdict != Clean || !r.Source[0].Complete {
				t.Errorf("with the last file back: %v, %s", err, r.JSON())
			}
		}
	}
}
