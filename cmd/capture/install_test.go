package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInstall: what make install puts where systems look is there, whole, and
// nothing else is.
func TestInstall(t *testing.T) {
	dest := t.TempDir()
	c := exec.Command("make", "-s", "-C", "../..", "install", "BIN="+t.TempDir(), "PREFIX=/opt/w", "DESTDIR="+dest)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var want []string
	for _, p := range []string{"capture", "replay"} {
		for name, begins := range map[string]string{
			"bin/" + p:                                       "\x7fELF",
			"share/man/man1/" + p + ".1":                     ".TH " + strings.ToUpper(p) + " 1",
			"share/bash-completion/completions/" + p:         "_" + p + "() {\n",
			"share/zsh/site-functions/_" + p:                 "#compdef " + p + "\n",
			"share/fish/vendor_completions.d/" + p + ".fish": "complete -c " + p + " ",
		} {
			name = filepath.Join(dest, "opt/w", name)
			want = append(want, name)
			if b, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(b), begins) {
				t.Errorf("%s: %v, begins with %.20q", name, err, b)
			}
		}
	}
	var got []string
	filepath.WalkDir(dest, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, path)
		}
		return err
	})
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
