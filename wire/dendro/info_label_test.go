package dendro_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// A label of any length costs no more memory than its beginning, and is cut
// between characters.
func TestLongLabelsAreCut(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 1<<20), "x" + strings.Repeat("ü", 1<<20), strings.Repeat("\x80", 1000)} {
		d, err := dendro.NewDecoder(wire.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := dendro.AppendPreamble(nil)
		b = dendro.AppendHandshake(b, &dendro.Handshake{HasUUID: true, UUID: []byte(long)})
		rd := wire.NewReader(strings.NewReader(string(b)), d, wire.ReaderOptions{})
		for {
			u, _, err := rd.Next()
			if err != nil {
				break
			}
			if l := d.Info(u).Label; len(l) > 256 || u.Kind == dendro.KindHandshake && l == "" || utf8.ValidString(long) && !utf8.ValidString(l) {
				t.Errorf("%d bytes of label: %.20q", len(l), l)
			}
		}
	}
}
