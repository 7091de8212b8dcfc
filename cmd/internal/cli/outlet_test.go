package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"wiretape/wire"
)

// TestDroppedLinesAreSaidInTheirFormat: what a reader was too slow for is
// counted for each output, in the form that the output has.
func TestDroppedLinesAreSaidInTheirFormat(t *testing.T) {
	o := NewOutlet()
	gate := make(chan struct{})
	var lines, words strings.Builder
	hold := func(b *strings.Builder) io.Writer { return &gated{gate, b} }
	l, w := hold(&lines), hold(&words)
	spare := o.Saying(l, false, func(n int) string { return `{"dropped":` + wire.Itoa(int64(n)) + `}` })
	log := o.To(w, false)
	for range 2*maxQueued + 10 {
		io.WriteString(spare, "{}\n")
	}
	io.WriteString(log, "a line\n")
	close(gate)
	o.Close(0)
	for _, s := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		if !json.Valid([]byte(s)) {
			t.Errorf("no JSON: %q", s)
		}
	}
	if !strings.Contains(lines.String(), `{"dropped":`) {
		t.Error("nothing is said of the lines that are missing")
	}
	if got := words.String(); got != "(1 line dropped: nobody read them)\n" {
		t.Errorf("words: %q", got)
	}
}

// gated writes nothing before its gate opens.
type gated struct {
	gate chan struct{}
	w    io.Writer
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.gate
	return g.w.Write(p)
}
