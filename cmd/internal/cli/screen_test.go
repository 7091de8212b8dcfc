package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestScreen: nothing that is written runs into the status line, it is put back
// behind whole lines only, and it does not come again after its end.
func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := NewScreen(&b, true)
	w := &through{s, &b}
	s.Status("one")
	s.Status("one")
	w.Write([]byte("a line\n"))
	w.Write([]byte("half"))
	w.Write([]byte(" a line\n"))
	s.Status("two")
	s.End()
	w.Write([]byte("result\n"))
	s.Status("three")
	want := "\r\x1b[Kone" + "\r\x1b[Ka line\none" + "\r\x1b[Khalf a line\n" + "\r\x1b[Ktwo" + "\r\x1b[K" + "result\n"
	if got := b.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if NewScreen(&b, false).Through(&b) != &b || s.Through(&b) != &b {
		t.Error("what is no terminal is written to through the screen")
	}
}

// asTerminal makes this test binary write to the terminal that it is run on.
const asTerminal = "CLI_TEST_AS_TERMINAL"

func TestMain(m *testing.M) {
	if os.Getenv(asTerminal) == "" {
		os.Exit(m.Run())
	}
	o := NewOutlet()
	s := NewScreen(o.To(os.Stderr, false), IsTerminal(os.Stderr))
	s.Status("STATUS")
	s.Through(o.To(os.Stdout, true)).Write([]byte("RESULT\n"))
	s.End()
	o.Close(0)
}

// TestScreenOnTerminal: standard output and standard error of one terminal, each
// written through a queue, stay apart.
func TestScreenOnTerminal(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal("script (util-linux) gives this test its terminal: ", err)
	}
	c := exec.Command(script, "-qec", os.Args[0], "/dev/null")
	c.Env = append(os.Environ(), asTerminal+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	want := "\r\x1b[KSTATUS\r\x1b[KRESULT\r\nSTATUS\r\x1b[K"
	if got := string(out); !strings.Contains(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
