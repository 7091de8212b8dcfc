package cli

// This file writes help: of a program, and of a verb with its flags.

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

const (
	// helpWidth is how wide help is, in columns, and flagColumn where what a
	// flag does begins; a longer flag has it on the next line.
	helpWidth  = 90
	flagColumn = 30
)

func (p *Program) help(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n%s\n\nUsage: %s VERB [ARGUMENTS]\n\nVerbs\n", p.Name, p.Short, strings.TrimSpace(p.Long), p.Name)
	for _, c := range p.verbs() {
		fmt.Fprintf(w, "  %-14s %s\n", c.Name, c.Short)
	}
	fmt.Fprintf(w, "\nMore about a verb: %s VERB --help\n"+
		"Exit codes: 0 all of it, nothing to report; 1 failed; 2 wrong usage;\n"+
		"3 finished, and something is missing or was found.\n", p.Name)
}

func (p *Program) commandHelp(w io.Writer, c *Command, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "%s %s: %s\n\nUsage: %s\n", p.Name, c.Name, c.Short, strings.TrimSpace(p.Name+" "+c.Name+" "+c.Args))
	if s := strings.TrimSpace(c.Long); s != "" {
		fmt.Fprintf(w, "\n%s\n", s)
	}
	if fs.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags\n")
		eachFlag(fs, func(f *pflag.Flag) { flagHelp(w, f) })
	}
	if s := strings.TrimSpace(c.Examples); s != "" {
		fmt.Fprintf(w, "\nExamples\n")
		for _, l := range strings.Split(s, "\n") {
			fmt.Fprintf(w, "  %s\n", strings.TrimSpace(l))
		}
	}
}

// eachFlag goes through the flags that are shown, in their order.
func eachFlag(fs *pflag.FlagSet, do func(*pflag.Flag)) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			do(f)
		}
	})
}

// spell gives a flag as it is written, with its value's placeholder, and what it
// does, with the default where there is one. A placeholder is in capitals; what
// is not is to be written as it stands.
func spell(f *pflag.Flag) (flag, value, usage string) {
	value, usage = pflag.UnquoteUsage(f)
	switch f.Value.Type() {
	case "bool":
		value = ""
	case "duration":
		value = durationPlace
	}
	switch value {
	case "int", "uint", "int64", "uint64", "float64":
		value = "N"
	case "string":
		value = "TEXT"
	}
	flag = "--" + f.Name
	if f.Shorthand != "" {
		flag = "-" + f.Shorthand + ", " + flag
	}
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return flag, value, usage
}

func flagHelp(w io.Writer, f *pflag.Flag) {
	flag, value, usage := spell(f)
	head := "      " + flag
	if f.Shorthand != "" {
		head = "  " + flag
	}
	if value != "" {
		head += " " + value
	}
	lines := wrap(usage, helpWidth-flagColumn)
	if n := utf8.RuneCountInString(head); n < flagColumn-1 {
		fmt.Fprintf(w, "%s%s%s\n", head, strings.Repeat(" ", flagColumn-n), lines[0])
		lines = lines[1:]
	} else {
		fmt.Fprintln(w, head)
	}
	for _, l := range lines {
		fmt.Fprintf(w, "%s%s\n", strings.Repeat(" ", flagColumn), l)
	}
}

// wrap breaks text at blanks into lines of at most width columns, at least one.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch n := utf8.RuneCountInString(*last); {
		case n == 0:
			*last = word
		case n+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
