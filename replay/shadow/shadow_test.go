package shadow

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/aewrgen"
	"wiretape/internal/unfinished"
	"wiretape/replay/internal/db"
	"wiretape/wire"
	"wiretape/wire/aewr"
)

// record writes a session as a relay records it: each worker's connection in
// its two directions, paired, in files of rotate bytes. ids are the
// connections' by worker and direction.
func record(t testing.TB, s *aewrgen.Session, rotate int64) (dir string, ids map[[2]int]string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "capture")
	d, err := capture.Create(dir, capture.Options{RotateBytes: rotate, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ids = map[[2]int]string{}
	at := capture.Instant{Wall: 1_700_000_000e9, Mono: 1e9}
	for n, w := range s.Workers {
		info := func(d wire.Direction) capture.ConnInfo {
			return capture.ConnInfo{Endpoint: fmt.Sprintf("tcp://worker-%d", n), Direction: d}
		}
		down, up, err := d.ConnectPair(info(wire.Downstream), info(wire.Upstream))
		if err != nil {
			t.Fatal(err)
		}
		for direction, writer := range []*capture.Writer{down, up} {
			ids[[2]int{n, direction}] = writer.ID()
			for _, f := range w.Frames[direction] {
				at.Wall += 1e6
				at.Mono += 1e6
				if _, err := writer.Write(w.Streams[direction][f.Offset:f.Offset+f.Size], at); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := writer.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, ids
}

func set(t testing.TB, paths ...string) *capture.Set {
	t.Helper()
	s, err := capture.OpenInputs(paths, capture.InputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rebuilt is a build that tests look into.
type rebuilt struct {
	dir    string
	report *Report
	db     *db.DB
	ids    map[[2]int]string
}

func rebuild(t testing.TB, ids map[[2]int]string, paths ...string) *rebuilt {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r, err := Build(set(t, paths...), out, Options{Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(out + unfinished.Suffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished folder is still there: %v", err)
	}
	d, err := db.Open(filepath.Join(out, catalogueName), db.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &rebuilt{out, r, d, ids}
}

// rows gives a query's result as text, a row a line.
func (r *rebuilt) rows(t testing.TB, query string, args ...any) string {
	t.Helper()
	var lines []string
	err := r.db.Query(query, func(v []driver.Value) error {
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		lines = append(lines, strings.Join(parts, " "))
		return nil
	}, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// frame is the catalogue's number of a frame.
func (r *rebuilt) frame(t testing.TB, worker, direction int, offset int64) int64 {
	t.Helper()
	n, err := r.db.Int("SELECT f.id FROM frames f JOIN connections c ON c.id = f.connection WHERE c.connection = ? AND f.offset = ?",
		r.ids[[2]int{worker, direction}], offset)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkRequest holds one request's row and results against what was sent.
func (r *rebuilt) checkRequest(t *testing.T, q *aewrgen.Request) {
	t.Helper()
	id := r.frame(t, q.Worker, aewrgen.Down, q.Offset)
	last := "<nil>"
	if q.Answered >= 0 {
		last = fmt.Sprint(r.frame(t, q.Worker, aewrgen.Up, q.Answered))
	}
	want := fmt.Sprintf("%d %d %d %d %s %d %s", q.Type, q.Key.Tenant, q.Txn, q.Key.Container, q.State, q.Rows, last)
	if got := r.rows(t, "SELECT message_type, tenant_id, txn_id, container_id, state, rows, last_answer FROM requests WHERE frame = ?", id); got != want {
		t.Errorf("request at %d of worker %d:\n%s\nwant\n%s", q.Offset, q.Worker, got, want)
		return
	}
	r.checkResults(t, q, id)
}

func (r *rebuilt) checkResults(t *testing.T, q *aewrgen.Request, id int64) {
	t.Helper()
	compare := func(what string, want []string, query string) {
		t.Helper()
		if got := r.rows(t, query, id); got != strings.Join(want, "\n") {
			t.Errorf("request at %d of worker %d: %s\n%s\nwant\n%s", q.Offset, q.Worker, what, got, strings.Join(want, "\n"))
		}
	}
	var want []string
	for _, k := range q.Keys {
		want = append(want, fmt.Sprint(int64(k.SortKey), int64(k.RowOffset)))
	}
	compare("keys", want, "SELECT sort_key, row_offset FROM result_keys JOIN answers USING (frame) WHERE request = ? ORDER BY frame, row")
	want = nil
	for _, a := range q.Aggs {
		want = append(want, fmt.Sprint(a.Value, flag(a.Valid)))
	}
	compare("aggregates", want, "SELECT value, valid FROM result_aggregates JOIN answers USING (frame) WHERE request = ? ORDER BY frame, accumulator")
	want = nil
	for _, g := range q.Groups {
		line := fmt.Sprint(int64(g.Key), flag(g.Used))
		for _, a := range g.Acc {
			line += fmt.Sprint(" ", a.Value, flag(a.Valid))
		}
		want = append(want, line)
	}
	compare("groups", want, "SELECT key, used, acc0, valid0, acc1, valid1, acc2, valid2, acc3, valid3 FROM result_groups JOIN answers USING (frame) WHERE request = ? ORDER BY frame, slot")
	want = nil
	for _, row := range q.Columns {
		for slot, c := range row {
			want = append(want, fmt.Sprint(slot, c.Value, flag(c.Valid)))
		}
	}
	compare("values", want, "SELECT slot, value, valid FROM result_values JOIN answers USING (frame) WHERE request = ? ORDER BY frame, row, slot")
	want = nil
	for _, o := range q.RowOffsets {
		want = append(want, fmt.Sprint(int64(o)))
	}
	compare("row offsets", want, "SELECT row_offset FROM result_row_offsets JOIN answers USING (frame) WHERE request = ? ORDER BY frame, row")
}

// checkShadows holds the shadows, their maps and the catalogue's rows about
// them against what chunks make.
func (r *rebuilt) checkShadows(t *testing.T, want map[aewrgen.Key]*aewrgen.Shadow) {
	t.Helper()
	names, err := os.ReadDir(filepath.Join(r.dir, shadowsName))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 2*len(want) || len(r.report.Shadows) != len(want) {
		t.Errorf("%d files and %d shadows, %d shadows expected", len(names), len(r.report.Shadows), len(want))
	}
	for k, s := range want {
		name := fmt.Sprintf("tenant-%d-container-%d", k.Tenant, k.Container)
		data, err := os.ReadFile(filepath.Join(r.dir, shadowsName, name+".shadow"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(data, s.Data) {
			t.Errorf("%s: %d bytes that differ from the %d sent", name, len(data), len(s.Data))
		}
		text, err := os.ReadFile(filepath.Join(r.dir, shadowsName, name+".map.json"))
		if err != nil {
			t.Fatal(err)
		}
		var m shadowMap
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		var holes []aewrgen.Span
		for _, h := range m.Holes {
			holes = append(holes, aewrgen.Span(h))
		}
		if !slices.Equal(holes, s.Holes) {
			t.Errorf("%s: holes %v, want %v", name, holes, s.Holes)
		}
		differ := map[aewrgen.Span]bool{}
		for _, o := range m.Overlaps {
			differ[aewrgen.Span{From: o.From, To: o.To}] = true
			if o.Earlier.Connection == "" || o.Later.Connection == "" || o.Differing <= 0 {
				t.Errorf("%s: %+v", name, o)
			}
		}
		wantDiffer := map[aewrgen.Span]bool{}
		for _, d := range s.Differ {
			wantDiffer[d] = true
		}
		if !maps.Equal(differ, wantDiffer) {
			t.Errorf("%s: overlaps %v, want %v", name, differ, wantDiffer)
		}
		var lines []string
		for _, h := range s.Holes {
			lines = append(lines, fmt.Sprint(h.From, h.To))
		}
		if got := r.rows(t, "SELECT from_offset, to_offset FROM shadow_holes WHERE tenant_id = ? AND container_id = ? ORDER BY from_offset", int64(k.Tenant), int64(k.Container)); got != strings.Join(lines, "\n") {
			t.Errorf("%s: the catalogue's holes\n%s", name, got)
		}
	}
}

// checkAll holds a build against the whole session.
func (r *rebuilt) checkAll(t *testing.T, s *aewrgen.Session) {
	t.Helper()
	for _, q := range s.Requests {
		r.checkRequest(t, q)
	}
	if got, want := r.rows(t, "SELECT count(*) FROM requests WHERE message_type <> 32"), fmt.Sprint(len(s.Requests)); got != want {
		t.Errorf("%s requests, %s expected", got, want)
	}
	var txns []string
	for _, x := range s.Txns {
		txns = append(txns, fmt.Sprintf("%d %d %s %d %d", x.Tenant, x.ID, x.Outcome, x.Requests, x.Validations))
	}
	slices.Sort(txns)
	got := strings.Split(r.rows(t, "SELECT tenant_id, txn_id, outcome, requests, validations FROM transactions"), "\n")
	slices.Sort(got)
	if !slices.Equal(got, txns) {
		t.Errorf("transactions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(txns, "\n"))
	}
	if got, want := r.rows(t, "SELECT kind, count(*), count(ping), count(round_trip_ns) FROM heartbeats GROUP BY kind ORDER BY kind"),
		fmt.Sprintf("ping %d 0 0\npong %d %d %d", s.Pings, s.Pongs, s.Pongs, s.Pongs); got != want {
		t.Errorf("heartbeats %s, want %s", got, want)
	}
	lag := "250"
	if s.Options.Version >= 30 {
		lag = "0"
	}
	if got := r.rows(t, "SELECT DISTINCT lag_us FROM heartbeats WHERE kind = 'pong'"); got != lag {
		t.Errorf("lag %s", got)
	}
	if got, want := r.rows(t, "SELECT count(*), count(DISTINCT session) FROM migration_steps"), fmt.Sprint(s.Migrations, len(s.Workers)); got != want {
		t.Errorf("migration steps %s, want %s", got, want)
	}
	if got := r.rows(t, "SELECT DISTINCT tenant_id, container_id, steps, retired_frame > last_frame FROM migrations"); got != "0 9 5 1" {
		t.Errorf("migrations %s", got)
	}
	var fences []string
	for _, f := range s.Fences {
		fences = append(fences, fmt.Sprint(r.frame(t, f.Worker, aewrgen.Up, f.Offset), 7, 8))
	}
	if got := r.rows(t, "SELECT frame, epoch, newest FROM fence_violations ORDER BY frame"); got != strings.Join(fences, "\n") {
		t.Errorf("fence violations %s, want %s", got, fences)
	}
	for n, w := range s.Workers {
		for direction := range w.Streams {
			got := r.rows(t, "SELECT direction, version, frames, bytes, lost_bytes, losses, ending FROM connections WHERE connection = ?", r.ids[[2]int{n, direction}])
			want := fmt.Sprintf("%s %d %d %d 0 0 clean", []string{"downstream", "upstream"}[direction], s.Options.Version, len(w.Frames[direction]), len(w.Streams[direction]))
			if got != want {
				t.Errorf("worker %d, stream %d: %s, want %s", n, direction, got, want)
			}
		}
	}
	if got := r.rows(t, "SELECT session, count(*), count(DISTINCT peer) FROM connections GROUP BY session HAVING count(*) <> 2 OR count(DISTINCT peer) <> 2"); got != "" {
		t.Errorf("sessions that are no pairs: %s", got)
	}
	r.checkShadows(t, s.Shadows)
}

// kinds are the kinds of findings that a report has.
func kinds(r *Report) string {
	return strings.Join(slices.Sorted(maps.Keys(r.FindingsByKind)), " ")
}

func TestSessionsAreRebuilt(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		seeds = 20
	}
	for n := range seeds * uint64(len(aewrgen.Versions())) {
		v := aewrgen.Versions()[n%uint64(len(aewrgen.Versions()))]
		t.Run(fmt.Sprintf("v%d-%d", v, n), func(t *testing.T) {
			s := aewrgen.Make(aewrgen.Options{Seed: n, Version: v, Workers: 3, Requests: 15, ChunkBytes: 2000, Gap: v%2 == 0, Differ: v%3 == 0, Fence: v%5 == 0})
			dir, ids := record(t, s, []int64{0, 3000}[v%2])
			r := rebuild(t, ids, dir)
			r.checkAll(t, s)
			want := []string{}
			if v%5 == 0 {
				want = append(want, aewr.KindEpochFence)
			}
			// The second and third tails begin behind 0.
			want = append(want, KindHole)
			if v%3 == 0 {
				want = append(want, KindOverlap)
			}
			if got := kinds(r.report); got != strings.Join(want, " ") {
				t.Errorf("findings %s, want %s: %+v", got, want, r.report.Findings)
			}
			if r.report.Verdict != Findings || len(r.report.Mismatches) > 0 {
				t.Errorf("%s, %+v", r.report.Verdict, r.report.Mismatches)
			}
			var text bytes.Buffer
			if err := r.report.Text(&text, r.dir); err != nil || !strings.Contains(text.String(), "3 sessions") {
				t.Errorf("%v\n%s", err, text.String())
			}
			if written, err := os.ReadFile(filepath.Join(r.dir, reportName)); err != nil || !json.Valid(written) || string(written) != string(r.report.JSON())+"\n" {
				t.Errorf("the report in the folder is another one: %v", err)
			}
		})
	}
}
