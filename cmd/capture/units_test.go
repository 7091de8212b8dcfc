package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestUnits: the sample units call the verbs with flags that they have, and
// systemd, where it is here, takes them.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for unit, as := range map[string]string{
		"wiretape-record.service": "wiretape-record.service",
		"wiretape-ship@.service":  `wiretape-ship@mnt-far-site\x2da.service`,
	} {
		text, err := os.ReadFile("../../contrib/systemd/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		_, call, ok := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\nExecStart=/usr/local/bin/capture ")
		call, _, _ = strings.Cut(call, "\n")
		words := strings.Fields(call)
		if !ok || len(words) == 0 {
			t.Fatalf("%s calls nothing", unit)
		}
		found := false
		for _, c := range program().Commands {
			if c.Name != words[0] {
				continue
			}
			found = true
			fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
			fs.SetOutput(io.Discard)
			c.Setup(fs)
			if err := fs.Parse(words[1:]); err != nil {
				t.Errorf("%s: %v", unit, err)
			}
		}
		if !found {
			t.Errorf("%s: no verb %s", unit, words[0])
		}
		here := strings.ReplaceAll(string(text), "/usr/local/bin/capture", os.Args[0])
		if err := os.WriteFile(filepath.Join(dir, as), []byte(here), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Join(dir, as))
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: the units are not shown to systemd")
		return
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, names...)...).CombinedOutput()
	// It may have words about other units of the machine.
	if err != nil || strings.Contains(string(out), "wiretape") {
		t.Errorf("%v\n%s", err, out)
	}
}
