package cli

// This file makes shell completion and the manual page from the verbs' own
// description.

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

var shells = []string{"bash", "zsh", "fish"}

func (p *Program) completionCommand() *Command {
	return &Command{Name: "completion", Args: strings.Join(shells, "|"), Short: "print the completion script of a shell: bash, zsh or fish", values: shells,
		Long: `The script completes verbs, flags, the words that a flag can take, and file names.
"make install" puts it where the shells look.`,
		Examples: fmt.Sprintf(`# for this shell
source <(%s completion bash)`, p.Name),
		Setup: func(*pflag.FlagSet) func(*Run) error {
			return func(r *Run) error {
				if len(r.Args) == 1 {
					switch r.Args[0] {
					case "bash":
						return p.bash(r.Stdout)
					case "zsh":
						return p.zsh(r.Stdout)
					case "fish":
						return p.fish(r.Stdout)
					}
				}
				return Usagef("name one shell: bash, zsh or fish")
			}
		}}
}

func (p *Program) manCommand() *Command {
	return &Command{Name: "man", Short: "print the manual page, for man -l -", noInput: true,
		Examples: fmt.Sprintf(`# read it
%s man | man -l -`, p.Name),
		Setup: func(*pflag.FlagSet) func(*Run) error {
			return func(r *Run) error {
				if len(r.Args) > 0 {
					return Usagef("man takes no arguments")
				}
				return p.man(r.Stdout)
			}
		}}
}

// flagWords are a verb's flags as completion offers them.
func (p *Program) flagWords(c *Command) string {
	fs, _ := p.flags(c)
	var w []string
	eachFlag(fs, func(f *pflag.Flag) { w = append(w, "--"+f.Name) })
	return strings.Join(append(w, "--help"), " ")
}

// valued gives a verb's flags that take a value: those that take one of some
// words with them, and those that take the name of a file. Of the others
// nothing is known.
func (p *Program) valued(c *Command, words func(f *pflag.Flag, words []string), file, other func(*pflag.Flag)) {
	fs, _ := p.flags(c)
	eachFlag(fs, func(f *pflag.Flag) {
		_, value, _ := spell(f)
		if w, ok := f.Value.(*Word); ok {
			words(f, w.Words)
			return
		}
		switch value {
		case "":
		case "FILE", "DIR", "OUT", "PROGRAM":
			file(f)
		default:
			other(f)
		}
	})
}

// bash completes by its own means alone, without the bash-completion package.
// Names of files are given whole, whatever is in them, and quoted by the shell.
func (p *Program) bash(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `_%[1]s() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= files=
  COMPREPLY=()
  if [[ $cur == = ]]; then cur=
  elif [[ $prev == = && $COMP_CWORD -gt 2 ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then words='%[2]s'
  else case ${COMP_WORDS[1]}:$prev in
`, p.Name, strings.Join(p.names(), " "))
	verbs := p.verbs()
	for _, c := range verbs {
		p.valued(c,
			func(f *pflag.Flag, words []string) {
				fmt.Fprintf(&b, "    %s:--%s) words='%s';;\n", c.Name, f.Name, strings.Join(words, " "))
			},
			func(f *pflag.Flag) { fmt.Fprintf(&b, "    %s:--%s) files=1;;\n", c.Name, f.Name) },
			func(f *pflag.Flag) { fmt.Fprintf(&b, "    %s:--%s) ;;\n", c.Name, f.Name) })
	}
	for _, c := range verbs {
		fmt.Fprintf(&b, "    %s:*) if [[ $cur == -* ]]; then words='%s'; else ", c.Name, p.flagWords(c))
		switch {
		case len(c.values) > 0:
			fmt.Fprintf(&b, "words='%s'", strings.Join(c.values, " "))
		case c.noInput:
			b.WriteString(":")
		default:
			b.WriteString("files=1")
		}
		b.WriteString("; fi;;\n")
	}
	fmt.Fprintf(&b, `  esac; fi
  if [ -n "$words" ]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"); fi
  if [ -n "$files" ]; then
    cur=${cur#[\"\']}; cur=${cur//\\/}
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -F _%[1]s %[1]s
`, p.Name)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Program) zsh(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n_%[1]s() {\n  if (( CURRENT == 2 )); then compadd -- %[2]s; return; fi\n  case $words[2]:$words[CURRENT-1] in\n", p.Name, strings.Join(p.names(), " "))
	verbs := p.verbs()
	for _, c := range verbs {
		p.valued(c,
			func(f *pflag.Flag, words []string) {
				fmt.Fprintf(&b, "    %s:--%s) compadd -- %s; return;;\n", c.Name, f.Name, strings.Join(words, " "))
			},
			func(f *pflag.Flag) { fmt.Fprintf(&b, "    %s:--%s) _files; return;;\n", c.Name, f.Name) },
			func(f *pflag.Flag) { fmt.Fprintf(&b, "    %s:--%s) return;;\n", c.Name, f.Name) })
	}
	for _, c := range verbs {
		fmt.Fprintf(&b, "    %s:*) if [[ $PREFIX == -* ]]; then compadd -- %s; ", c.Name, p.flagWords(c))
		switch {
		case len(c.values) > 0:
			fmt.Fprintf(&b, "else compadd -- %s; ", strings.Join(c.values, " "))
		case !c.noInput:
			b.WriteString("else _files; ")
		}
		b.WriteString("fi;;\n")
	}
	// Loaded by its name from a folder of functions it is the function itself.
	fmt.Fprintf(&b, "  esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then _%[1]s \"$@\"; else compdef _%[1]s %[1]s; fi\n", p.Name)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Program) fish(w io.Writer) error {
	var b strings.Builder
	for _, c := range p.verbs() {
		fmt.Fprintf(&b, "complete -c %s -f -n __fish_use_subcommand -a %s -d %s\n", p.Name, c.Name, quoteFish(c.Short))
		seen := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", p.Name, c.Name)
		if len(c.values) > 0 {
			fmt.Fprintf(&b, "%s -f -a %s\n", seen, quoteFish(strings.Join(c.values, " ")))
		} else if c.noInput {
			fmt.Fprintf(&b, "%s -f\n", seen)
		}
		takes := map[string]string{}
		p.valued(c,
			func(f *pflag.Flag, words []string) { takes[f.Name] = " -x -a " + quoteFish(strings.Join(words, " ")) },
			func(f *pflag.Flag) { takes[f.Name] = " -r -F" },
			func(f *pflag.Flag) { takes[f.Name] = " -x" })
		fs, _ := p.flags(c)
		eachFlag(fs, func(f *pflag.Flag) {
			_, _, usage := spell(f)
			fmt.Fprintf(&b, "%s -l %s%s -d %s\n", seen, f.Name, takes[f.Name], quoteFish(usage))
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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

func (p *Program) man(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\nVERB [ARGUMENTS]\n.SH DESCRIPTION\n%s\n.SH VERBS\n",
		strings.ToUpper(p.Name), VersionString(), p.Name, roff(p.Short), p.Name, roff(strings.TrimSpace(p.Long)))
	for _, c := range p.verbs() {
		fmt.Fprintf(&b, ".SS %s %s %s\n%s.\n", p.Name, c.Name, roff(c.Args), roff(c.Short))
		if c.Long != "" {
			fmt.Fprintf(&b, ".PP\n%s\n", roff(strings.TrimSpace(c.Long)))
		}
		fs, _ := p.flags(c)
		eachFlag(fs, func(f *pflag.Flag) {
			flag, value, usage := spell(f)
			if value != "" {
				flag += " " + value
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flag), roff(usage))
		})
		if c.Examples != "" {
			fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(c.Examples)))
		}
	}
	b.WriteString(".SH EXIT STATUS\n0 all of it, nothing to report; 1 failed; 2 wrong usage, nothing was touched; 3 finished, and something is missing or was found.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
