// Package flagtest holds the scripts of a program against its help: every flag
// that a verb lists is used by a script, which says what it does or why it is
// refused.
package flagtest

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
)

// Scripts checks that each flag of each verb is in a line of the scripts that
// match pattern and call the verb, and that help, completion and manual page
// list just the flags that the verb takes.
func Scripts(t *testing.T, p *cli.Program, pattern string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var lines []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(b), "\n")...)
	}
	for _, c := range p.Commands {
		fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
		c.Setup(fs)
		help, fish := output(t, p, c.Name, "--help"), output(t, p, "completion", "fish")
		man := output(t, p, "man")
		_, man, _ = strings.Cut(man, ".SS "+p.Name+" "+c.Name+" ")
		man, _, _ = strings.Cut(man, "\n.SS ")
		listed := 0
		fs.VisitAll(func(f *pflag.Flag) {
			listed++
			used := func(l string) bool {
				return strings.Contains(l+" ", p.Name+" "+c.Name+" ") && slices.ContainsFunc(strings.FieldsFunc(l, func(r rune) bool { return strings.ContainsRune(" =;'\"", r) }),
					func(w string) bool { return w == "--"+f.Name || f.Shorthand != "" && w == "-"+f.Shorthand })
			}
			if !slices.ContainsFunc(lines, used) {
				t.Errorf("%s %s --%s: no script uses it", p.Name, c.Name, f.Name)
			}
			if !strings.Contains(help, "--"+f.Name) || !strings.Contains(man, `\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)) ||
				!strings.Contains(fish, "from "+c.Name+"' -l "+f.Name+" ") {
				t.Errorf("%s %s --%s is not in help, manual page or completion", p.Name, c.Name, f.Name)
			}
		})
		if n := strings.Count(man, ".TP\n.B \\-"); n != listed {
			t.Errorf("the manual page of %s %s lists %d flags of %d", p.Name, c.Name, n, listed)
		}
	}
}

func output(t *testing.T, p *cli.Program, args ...string) string {
	var b strings.Builder
	if code := p.Run(args, strings.NewReader(""), &b, io.Discard); code != 0 {
		t.Fatalf("%v: exit code %d", args, code)
	}
	return b.String()
}
