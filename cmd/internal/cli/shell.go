package cli

// This file makes shell completion and the manual page from the verbs' own
// description.

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// words are a verb's flags as completion offers them.
func (p *Program) words(c *Command) []string {
	fs, _ := p.flags(c)
	var w []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			w = append(w, "--"+f.Name)
		}
	})
	return append(w, "--help")
}

func (p *Program) verbs() []string {
	var v []string
	for _, c := range p.Commands {
		v = append(v, c.Name)
	}
	return append(v, "completion", "man", "help", "version")
}

func (p *Program) completion(args []string, stdout, stderr io.Writer) int {
	shell := ""
	if len(args) == 1 {
		shell = args[0]
	}
	switch shell {
	case "bash":
		fmt.Fprintf(stdout, "_%[1]s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=\n  if [ \"$COMP_CWORD\" -eq 1 ]; then words='%[2]s'\n  else case ${COMP_WORDS[1]} in\n", p.Name, strings.Join(p.verbs(), " "))
		for _, c := range p.Commands {
			fmt.Fprintf(stdout, "    %s) words='%s';;\n", c.Name, strings.Join(p.words(c), " "))
		}
		fmt.Fprintf(stdout, "    completion) words='bash zsh fish';;\n  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n  if [ \"$COMP_CWORD\" -gt 1 ] && [[ $cur != -* ]]; then COMPREPLY+=($(compgen -f -- \"$cur\")); fi\n}\ncomplete -o filenames -F _%[1]s %[1]s\n", p.Name)
	case "zsh":
		fmt.Fprintf(stdout, "#compdef %[1]s\n_%[1]s() {\n  if (( CURRENT == 2 )); then compadd %[2]s; return; fi\n  case $words[2] in\n", p.Name, strings.Join(p.verbs(), " "))
		for _, c := range p.Commands {
			fmt.Fprintf(stdout, "    %s) compadd -- %s;;\n", c.Name, strings.Join(p.words(c), " "))
		}
		fmt.Fprintf(stdout, "    completion) compadd bash zsh fish;;\n  esac\n  _files\n}\ncompdef _%[1]s %[1]s\n", p.Name)
	case "fish":
		for _, c := range p.Commands {
			fmt.Fprintf(stdout, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", p.Name, c.Name, quoteFish(c.Short))
			fs, _ := p.flags(c)
			fs.VisitAll(func(f *pflag.Flag) {
				fmt.Fprintf(stdout, "complete -c %s -n '__fish_seen_subcommand_from %s' -l %s -d %s\n", p.Name, c.Name, f.Name, quoteFish(firstLine(f.Usage)))
			})
		}
	default:
		fmt.Fprintf(stderr, "%s completion: name one shell: bash, zsh or fish\n", p.Name)
		return Usage
	}
	return OK
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }

func quoteFish(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// roff escapes text for a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func (p *Program) man(w io.Writer) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\nVERB [ARGUMENTS]\n.SH DESCRIPTION\n%s\n.SH VERBS\n",
		strings.ToUpper(p.Name), VersionString(), p.Name, roff(p.Short), p.Name, roff(strings.TrimSpace(p.Long)))
	for _, c := range p.Commands {
		fmt.Fprintf(w, ".SS %s %s %s\n%s.\n.PP\n%s\n", p.Name, c.Name, roff(c.Args), roff(c.Short), roff(strings.TrimSpace(c.Long)))
		fs, _ := p.flags(c)
		fs.VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			if name != "" {
				name = " " + name
			}
			def := ""
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
				def = " (default " + f.DefValue + ")"
			}
			fmt.Fprintf(w, ".TP\n.B \\-\\-%s%s\n%s\n", roff(f.Name), roff(name), roff(usage+def))
		})
		if c.Examples != "" {
			fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(c.Examples)))
		}
	}
	fmt.Fprintf(w, ".SH EXIT STATUS\n0 all of it, nothing to report; 1 failed; 2 wrong usage, nothing was touched; 3 finished, and something is missing or was found.\n")
}
