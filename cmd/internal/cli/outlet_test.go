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
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	var lines, words strings.Builder
	hold := func(b *strings.Builder) io.Writer { return &gated{gate, entered, b} }
	l, w := hold(&lines), hold(&words)
	spare := o.Saying(l, false, func(n int) string { return `{"dropped":` + wire.Itoa(int64(n)) + `}` })
	log := o.To(w, false)
	io.WriteString(spare, "{}\n")
	<-entered // what is queued from here on waits
	for range maxQueued + 10 {
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
	if !strings.HasSuffix(lines.String(), "{\"dropped\":10}\n") {
		t.Error("it is not said that 10 lines are missing")
	}
	if got := words.String(); got != "(1 line dropped: nobody read them)\n" {
		t.Errorf("words: %q", got)
	}
}

// gated writes nothing before its gate opens.
type gated struct {
	gate, entered chan struct{}
	w             io.Writer
}

func (g *gated) Write(p []byte) (int, error) {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.gate
	return g.w.Write(p)
}
