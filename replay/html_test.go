package replay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

// The page shows what was set aside, and text from the wire stays text.
func TestHTML(t *testing.T) {
	hostile := `</title><script>alert(1)</script>"'&`
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{UUID: []byte(hostile), HasUUID: true,
		Labels: dendro.NewMap(map[string]string{hostile: hostile}), Metadata: dendro.NewMap(map[string]string{"encoder": hostile})})
	rows := dendro.NewRows(0, 0, dendro.State{}, []dendro.Row{{Stream: []byte(hostile), TS: -1 << 63}, {Stream: []byte(hostile), TS: 1<<63 - 1}})
	b = dendro.AppendRows(b, &rows)
	b = append(b, "junk"...)
	in := t.TempDir() + "/h.stream"
	write(t, in, b)
	r, _ := mustBuild(t, Options{Picture: true}, in)
	var page bytes.Buffer
	if err := r.HTML(&page, hostile); err != nil {
		t.Fatal(err)
	}
	if s := page.String(); strings.Contains(s, "<script") || strings.Contains(s, "alert(1)</") || !strings.Contains(s, `class="live"`) {
		t.Error(s)
	}

	r, _ = mustBuild(t, Options{Picture: true, Check: segment.DepthRows}, stream("crafted/overlapping-segment"))
	page.Reset()
	if err := r.HTML(&page, "x"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`class="aside"`, `class="sealed"`, "segment-conflict", "2171", "What could not be"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// A page is for people: of very many streams it draws the first ones and says
// how many more there are.
func TestHTMLOfManyStreams(t *testing.T) {
	const more = 7
	b := manySources(1)
	var rows []dendro.Row
	for i := range htmlStreams + more {
		rows = append(rows, dendro.Row{Stream: fmt.Appendf(nil, "stream-%05d", i), TS: int64(i), Row: []byte("x")})
	}
	r := dendro.NewRows(0, 0, dendro.State{}, rows)
	b = dendro.AppendRows(b, &r)
	path := filepath.Join(t.TempDir(), "many.stream")
	write(t, path, b)
	rep, out, err := build(t, Options{Picture: true}, path)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := rep.HTML(&page, out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != htmlStreams || !strings.Contains(page.String(), "… and 7 more streams") {
		t.Errorf("%d streams are drawn of %d", n, htmlStreams+more)
	}
	if len(rep.Source[0].Streams) != htmlStreams+more {
		t.Errorf("%d streams in the report", len(rep.Source[0].Streams))
	}
}

// The page says what the text says: a part is no whole, counts have people's
// words, the times are there, only colours that are drawn are explained, and a
// loss shows what became of it.
func TestHTMLSaysWhatTheTextSays(t *testing.T) {
	page := func(opt Options, paths ...string) string {
		opt.Picture = true
		r, _, err := build(t, opt, paths...)
		var s strings.Builder
		if e := r.HTML(&s, "x"); e != nil {
			t.Fatal(e)
		}
		if (err != nil) != (r.Verdict == Failed) {
			t.Fatal(err, r.Verdict)
		}
		return s.String()
	}
	holds := func(s string, want bool, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if strings.Contains(s, p) != want {
				t.Errorf("%q in the page: %v\n%s", p, !want, s[strings.Index(s, "<body"):])
			}
		}
	}
	var opt Options
	opt.Select.Streams = []string{"memory"}
	s := page(opt, stream("real/small"))
	holds(s, true, "Rebuilt in part, as selected, nothing to report.", "segments stored", ">2023-11-14 22:13:20Z<", ">2023-11-14 22:40:38Z<", `<i class="sealed">`)
	holds(s, false, "Rebuilt whole", "segments_held", "index_entries", `<i class="gap">`, `<i class="conflict">`)
	opt.Select.Streams = []string{"nope"}
	holds(page(opt, stream("real/small")), true, "Failed: the selection matches nothing")

	b := must(os.ReadFile(stream("real/small")))
	cut := filepath.Join(t.TempDir(), "cut.stream")
	write(t, cut, b[:190000])
	s = page(Options{}, cut)
	holds(s, true, "Rebuilt, with 1 loss not made good.", `<li class="missing"><b>not made good</b>`, `<i class="gap">`, ">2023-11-14 22:39:59Z<")
	s = page(Options{}, cut, stream("real/small"))
	holds(s, true, "Rebuilt whole, all losses made good", `<li class="made-good"><b>made good by other captured data</b>`)
	holds(s, false, `<i class="gap">`)
}

// Every count of the report has words for people.
func TestCountsHaveWords(t *testing.T) {
	var c ReportCounts
	for _, n := range c.list() {
		if countWords[n.name] == "" {
			t.Errorf("%s has no words", n.name)
		}
	}
}
