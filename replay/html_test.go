package replay

import (
	"bytes"
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
