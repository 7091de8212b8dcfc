package cli

// This file is the terminal: a status line at its foot that nothing else that is
// written runs into.

import (
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen is a terminal with a status line, which is taken away before anything
// else is written to standard output or standard error, and put back behind
// that. Elsewhere than on a terminal there is no such line.
type Screen struct {
	out  io.Writer
	term bool

	mu   sync.Mutex
	line string
	over bool
}

const clearLine = "\r\x1b[K"

// NewScreen shows the line on out, standard error, if that is a terminal.
func NewScreen(out io.Writer, terminal bool) *Screen { return &Screen{out: out, term: terminal} }

// Terminal says that the status line can be seen.
func (s *Screen) Terminal() bool { return s.term }

// Status shows a line, "" for none, in place of the one before. After End it
// does nothing.
func (s *Screen) Status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line = s.fitting(line)
	if !s.term || s.over || line == s.line {
		return
	}
	s.line = line
	io.WriteString(s.out, clearLine+line)
}

// fitting cuts a line to the terminal's width: one that wraps could not be taken
// away again.
func (s *Screen) fitting(line string) string {
	f, ok := terminalOf(s.out).(*os.File)
	if !ok {
		return line
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 2 || utf8.RuneCountInString(line) < width {
		return line
	}
	return string([]rune(line)[:width-2]) + "…"
}

// End takes the line away for good.
func (s *Screen) End() {
	s.Status("")
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// Through gives a writer to w, one of the two outputs, which the status line
// makes room for. What is no terminal the line is not in the way of.
func (s *Screen) Through(w io.Writer) io.Writer {
	if !s.term || !IsTerminal(w) {
		return w
	}
	return &through{s, w}
}

type through struct {
	screen *Screen
	w      io.Writer
}

func (t *through) Write(p []byte) (int, error) {
	s := t.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return t.w.Write(p)
	}
	io.WriteString(s.out, clearLine)
	n, err := t.w.Write(p)
	if len(p) > 0 && p[len(p)-1] == '\n' {
		io.WriteString(s.out, s.line)
	} else {
		s.line = "" // it would stand in the middle of what is written
	}
	return n, err
}

// bare is the writer itself, without the status line's care.
func bare(w io.Writer) io.Writer {
	if r, ok := w.(*results); ok {
		w = r.w
	}
	if t, ok := w.(*through); ok {
		return t.w
	}
	return w
}
