package replay

import (
	"bytes"
	"fmt"
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
