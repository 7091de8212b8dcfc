package shadow

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/internal/aewrgen"
	"wiretape/replay/inspect"
	"wiretape/replay/internal/db"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// This file builds from recordings whose beginning is not there: streams cut
// anywhere, and captures whose first files are gone.

func torture() bool { return os.Getenv("WIRETAPE_TORTURE") == "1" }

// rebuildAs builds from inputs that somebody names, and holds the build against
// what inspect shows of them: both read the same frames.
func rebuildAs(t testing.TB, opt capture.InputOptions, ids map[[2]int]string, paths ...string) *rebuilt {
	t.Helper()
	open := func() *capture.Set {
		s, err := capture.OpenInputs(paths, opt)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	out := filepath.Join(t.TempDir(), "out")
	r, err := Build(open(), out, Options{Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(filepath.Join(out, catalogueName), db.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	b := &rebuilt{out, r, d, ids}
	for _, id := range ids {
		res, err := inspect.Write(&bytes.Buffer{}, open(), inspect.Options{Connection: id})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.rows(t, "SELECT frames FROM connections WHERE connection = ?", id); got != fmt.Sprint(res.Frames) {
			t.Errorf("%s: inspect reads %d frames, build %s", id, res.Frames, got)
		}
	}
	return b
}

// certain holds what the build calls certain against what was sent, of streams
// that begin at the offsets from.
func (r *rebuilt) certain(t *testing.T, s *aewrgen.Session, from [2]int64, names func(offset int64, direction int) int64) {
	t.Helper()
	for line := range strings.Lines(r.rows(t, `SELECT f.offset, q.state, a.offset FROM requests q JOIN frames f ON f.id = q.frame
		LEFT JOIN frames a ON a.id = q.last_answer WHERE q.certain AND q.message_type <> 32`)) {
		var offset int64
		var state, answered string
		if _, err := fmt.Sscan(line, &offset, &state, &answered); err != nil {
			t.Fatal(line, err)
		}
		i := slices.IndexFunc(s.Requests, func(q *aewrgen.Request) bool { return names(q.Offset, aewrgen.Down) == offset })
		if i < 0 {
			t.Errorf("a request at %d, where none was sent", offset)
			continue
		}
		q := s.Requests[i]
		want := "<nil>"
		if q.Answered >= 0 {
			want = fmt.Sprint(names(q.Answered, aewrgen.Up))
		}
		if state != q.State || answered != want {
			t.Errorf("from %v on: the request at %d is certainly %s by %s, and was %s by %s", from, offset, state, answered, q.State, want)
		}
	}
	lag := "250"
	if s.Options.Version >= 30 {
		lag = "0"
	}
	if got := r.rows(t, "SELECT DISTINCT lag_us FROM heartbeats WHERE ping IS NOT NULL"); got != "" && got != lag {
		t.Errorf("from %v on: a pong has a lag of %s, all have %s", from, got, lag)
	}
}

// behind is the shadows of the chunks from offsets on.
func behind(s *aewrgen.Session, from [2]int64) map[aewrgen.Key]*aewrgen.Shadow {
	var left []aewrgen.Chunk
	for _, c := range s.Chunks {
		if c.Offset >= from[c.Direction] {
			left = append(left, c)
		}
	}
	return aewrgen.Apply(left)
}

func middleSessions() (all []*aewrgen.Session) {
	for _, v := range []uint16{17, 19, 26, 31} {
		all = append(all, aewrgen.Make(aewrgen.Options{Seed: uint64(v), Version: v, Workers: 1, Requests: 12, ChunkBytes: 150, Chunks: 8,
			NoSnapshotWord: v == 26, Gap: true, Differ: true, Fence: true}))
	}
	return all
}

// Streams cut at their start: the shadows hold exactly the chunks behind the
// cuts, with holes before them, and what can't be known for what is gone is not
// called certain.
func TestStreamsThatBeginAnywhere(t *testing.T) {
	builds := 0
	for _, s := range middleSessions() {
		w := s.Workers[0]
		var cuts [][2]int64
		for direction := range 2 {
			frames := w.Frames[direction]
			for i := 0; i < len(frames); i++ {
				if !torture() && i > 2 && i%(len(frames)/3) > 0 {
					continue
				}
				for _, d := range []int64{0, 1, 63, frames[i].Size - 1} {
					if !torture() && (int64(i)+d)%2 > 0 || frames[i].Offset+d == 0 {
						continue
					}
					var from [2]int64
					from[direction] = frames[i].Offset + d
					cuts = append(cuts, from)
					if from[1-direction] = frames[i].Offset / 2; d == 1 {
						cuts = append(cuts, from)
					}
				}
			}
		}
		for i, from := range cuts {
			from[0], from[1] = min(from[0], int64(len(w.Streams[0]))-1), min(from[1], int64(len(w.Streams[1]))-1)
			for _, said := range []bool{true, false} {
				if !said && !torture() && i%3 > 0 {
					continue
				}
				opt := capture.InputOptions{Protocol: aewr.Name}
				if said {
					opt.Context = wire.MidStream(aewr.Name)
				}
				_, paths, ids := rawFiles(t, [2][]byte{w.Streams[0][from[0]:], w.Streams[1][from[1]:]})
				r := rebuildAs(t, opt, ids, paths...)
				builds++
				what := fmt.Sprintf("version %d from %v on, said %v", s.Options.Version, from, said)
				boundary := func(direction int) bool {
					return slices.ContainsFunc(w.Frames[direction], func(f aewrgen.Placed) bool { return f.Offset == from[direction] })
				}
				r.checkShadows(t, behind(s, from))
				told := said || !boundary(0) || !boundary(1) // nothing tells a stream that begins with a frame from a whole one
				if told && (r.report.Verdict != Findings || r.report.ExitCode() != 3) {
					t.Errorf("%s: %s", what, r.report.Verdict)
				}
				if said || (from[0] == 0 || !boundary(0)) && (from[1] == 0 || !boundary(1)) {
					r.certain(t, s, from, func(offset int64, direction int) int64 { return offset - from[direction] })
				}
				for _, f := range r.report.Findings {
					switch f.Kind {
					case wire.KindLost, wire.KindZeroTail, capture.KindMissingFiles, KindHole, KindOverlap, aewr.KindEpochFence, aewr.KindReading:
					default:
						t.Errorf("%s: it claims %+v", what, f)
					}
				}
				if t.Failed() {
					t.Fatal(what, kinds(r.report))
				}
			}
		}
	}
	t.Log(builds, "builds")
}

// A capture whose first files were pruned in one direction or both, with their
// sidecars and without.
func TestPrunedCaptures(t *testing.T) {
	for _, s := range middleSessions() {
		w := s.Workers[0]
		made, ids := record(t, s, 900)
		for i, gone := range [][2]int{{1, 0}, {0, 1}, {2, 5}, {3, 2}} {
			if !torture() && i%2 != int(s.Options.Version)/2%2 {
				continue
			}
			for _, how := range []string{"its sidecar", "no sidecars", "stale sidecars"} {
				dir := filepath.Join(t.TempDir(), "capture")
				if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
					t.Fatal(err)
				}
				var from [2]int64
				for direction, n := range gone {
					names, err := filepath.Glob(filepath.Join(dir, ids[[2]int{0, direction}]+".*.cap"))
					if err != nil || len(names) <= n+1 {
						t.Fatalf("%d files, %v", len(names), err)
					}
					for i, name := range names {
						stem := strings.TrimSuffix(name, ".cap")
						switch {
						case i < n:
							st, err := os.Stat(name)
							if err != nil {
								t.Fatal(err)
							}
							from[direction] += st.Size()
							for _, end := range []string{".cap", ".json", ".idx", ".sha256"} {
								if err := os.Remove(stem + end); err != nil {
									t.Fatal(err)
								}
							}
						case n > 0 && how == "no sidecars":
							err = os.Remove(stem + ".json")
						case n > 0 && how == "stale sidecars" && i+1 < len(names):
							var b []byte
							if b, err = os.ReadFile(strings.TrimSuffix(names[i+1], ".cap") + ".json"); err == nil {
								err = os.WriteFile(stem+".json", b, 0o600)
							}
						case n > 0 && how == "stale sidecars":
							err = os.Remove(stem + ".json")
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				opt := capture.InputOptions{Protocol: aewr.Name}
				known := from
				if how != "its sidecar" {
					opt.Context = wire.MidStream(aewr.Name)
				} else {
					known = [2]int64{} // offsets are those in the connection
				}
				r := rebuildAs(t, opt, ids, dir)
				what := fmt.Sprintf("version %d without %v files, %s", s.Options.Version, gone, how)
				r.checkShadows(t, behind(s, from))
				r.certain(t, s, from, func(offset int64, direction int) int64 { return offset - known[direction] })
				if r.report.Verdict != Findings || r.report.FindingsByKind[capture.KindMissingFiles] == 0 {
					t.Errorf("%s: %s %v", what, r.report.Verdict, r.report.FindingsByKind)
				}
				for _, f := range r.report.Findings {
					switch f.Kind {
					case capture.KindMissingFiles, capture.KindSidecarStale, capture.KindSidecarMissing, capture.KindSums, KindHole, KindOverlap, aewr.KindEpochFence, aewr.KindReading:
					default:
						t.Errorf("%s: it claims %+v", what, f)
					}
				}
				// The whole recording beside it has all of it.
				whole := rebuild(t, ids, made)
				_, paths, _ := rawFiles(t, w.Streams)
				both := rebuildAs(t, opt, nil, append(paths, dir)...)
				if whole.report.Counts.ShadowBytes != both.report.Counts.ShadowBytes || len(whole.report.Shadows) != len(both.report.Shadows) {
					t.Errorf("%s, and the whole: %+v, want %+v", what, both.report.Shadows, whole.report.Shadows)
				}
				if t.Failed() {
					t.Fatal(what, kinds(r.report))
				}
			}
		}
	}
}

// Where the end of what the workers sent is not there, that a request has no
// answer is nothing certain; and a connection of which nothing can be read is
// reported.
func TestWithoutItsEnd(t *testing.T) {
	s := middleSessions()[3]
	made, ids := record(t, s, 900)
	names, err := filepath.Glob(filepath.Join(made, ids[[2]int{0, aewrgen.Up}]+".*.cap"))
	if err != nil || len(names) < 6 {
		t.Fatal(names, err)
	}
	for _, name := range names[4:] {
		for _, end := range []string{".cap", ".json"} {
			if err := os.Remove(strings.TrimSuffix(name, ".cap") + end); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := rebuildAs(t, capture.InputOptions{}, ids, made)
	r.certain(t, s, [2]int64{}, func(offset int64, direction int) int64 { return offset })
	if got := r.rows(t, "SELECT count(*) FROM requests WHERE state = 'none' AND certain"); got != "0" {
		t.Errorf("%s requests are certain to have no answer", got)
	}
	if got := r.rows(t, "SELECT count(*) > 0 FROM requests WHERE state = 'none'"); got != "1" {
		t.Error("every request has its answer")
	}
	for _, name := range names[:4] {
		if err := os.Remove(strings.TrimSuffix(name, ".cap") + ".json"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	delete(ids, [2]int{0, aewrgen.Up})
	if r = rebuildAs(t, capture.InputOptions{}, ids, made); r.report.FindingsByKind[capture.KindNoPlace] != 1 || r.report.Verdict != Findings {
		t.Errorf("%s %v", r.report.Verdict, r.report.FindingsByKind)
	}
}
