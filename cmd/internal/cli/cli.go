// Package cli is what the two programs share: verbs with their flags, help that
// teaches, exit codes, man pages and shell completion from one description.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"wiretape/wire"
)

// The exit codes of every verb.
const (
	OK       = 0 // all of it, nothing to report
	Failed   = 1 // failed
	Usage    = 2 // wrong usage, nothing was touched
	Findings = 3 // finished, and something is missing or was found
)

// Version is set by the linker; without it the module's own is used.
var Version string

// VersionString is the version that --version, sidecars and reports name.
func VersionString() string {
	if Version != "" {
		return Version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}

// Program is a program of verbs.
type Program struct {
	Name string
	// Short says what it is in one line, Long in a paragraph.
	Short, Long string
	Commands    []*Command
}

// Command is one verb.
type Command struct {
	Name string
	// Args is the synopsis of the arguments, such as "INPUT… --archive OUT".
	Args string
	// Short is one line, Long the text of its help, Examples lines of
	// "command", each with a "# what it does" line before it.
	Short, Long, Examples string
	// Setup registers the flags and gives the verb's body, which runs after
	// they were parsed.
	Setup func(*pflag.FlagSet) func(*Run) error
}

// Run is one call of a verb.
type Run struct {
	Args   []string
	Flags  *pflag.FlagSet
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// UsageError is wrong usage: the program exits with Usage and points to help.
type UsageError struct{ Message string }

// Error is Message.
func (e *UsageError) Error() string { return e.Message }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// ExitError ends the program with a code. An empty Message says nothing.
type ExitError struct {
	Code    int
	Message string
}

// Error is Message.
func (e *ExitError) Error() string { return e.Message }

// HintError is an error with a line that says what to do about it.
type HintError struct {
	Err  error
	Hint string
}

// Error is that of Err, without the hint.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *HintError) Unwrap() error { return e.Err }

// Main runs the program and gives its exit code.
func (p *Program) Main() int {
	return p.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run is Main with everything from outside given.
func (p *Program) Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		p.help(stderr)
		return Usage
	}
	switch args[0] {
	case "-h", "--help":
		p.help(stdout)
		return OK
	case "--version", "version":
		fmt.Fprintf(stdout, "%s %s\n", p.Name, VersionString())
		return OK
	case "help":
		if len(args) == 1 {
			p.help(stdout)
			return OK
		}
		c := p.find(args[1])
		if c == nil {
			return p.unknown(stderr, args[1])
		}
		fs, _ := p.flags(c)
		p.commandHelp(stdout, c, fs)
		return OK
	case "completion":
		return p.completion(args[1:], stdout, stderr)
	case "man":
		p.man(stdout)
		return OK
	}
	c := p.find(args[0])
	if c == nil {
		return p.unknown(stderr, args[0])
	}
	fs, run := p.flags(c)
	if err := fs.Parse(args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			p.commandHelp(stdout, c, fs)
			return OK
		}
		return p.fail(stderr, c, &UsageError{err.Error()})
	}
	return p.fail(stderr, c, run(&Run{Args: fs.Args(), Flags: fs, Stdin: stdin, Stdout: stdout, Stderr: stderr}))
}

// fail says what went wrong and gives the exit code.
func (p *Program) fail(stderr io.Writer, c *Command, err error) int {
	if err == nil {
		return OK
	}
	var usage *UsageError
	var exit *ExitError
	var hint *HintError
	switch {
	case errors.As(err, &exit):
		if exit.Message != "" {
			fmt.Fprintf(stderr, "%s: %s\n", p.Name, wire.SafeText(exit.Message, 0))
		}
		return exit.Code
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s %s: %s\n", p.Name, c.Name, wire.SafeText(err.Error(), 0))
		fmt.Fprintf(stderr, "see '%s %s --help'\n", p.Name, c.Name)
		return Usage
	}
	fmt.Fprintf(stderr, "%s %s: %s\n", p.Name, c.Name, wire.SafeText(err.Error(), 0))
	if errors.As(err, &hint) {
		fmt.Fprintf(stderr, "hint: %s\n", hint.Hint)
	}
	return Failed
}

func (p *Program) unknown(stderr io.Writer, name string) int {
	fmt.Fprintf(stderr, "%s: no verb %q; '%s --help' lists them\n", p.Name, name, p.Name)
	return Usage
}

func (p *Program) find(name string) *Command {
	for _, c := range p.Commands {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (p *Program) flags(c *Command) (*pflag.FlagSet, func(*Run) error) {
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.SortFlags = false
	run := c.Setup(fs)
	return fs, run
}

func (p *Program) help(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n%s\n\nUsage: %s VERB [ARGUMENTS]\n\nVerbs\n", p.Name, p.Short, strings.TrimSpace(p.Long), p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(w, "  %-14s %s\n", c.Name, c.Short)
	}
	fmt.Fprintf(w, "  %-14s %s\n", "completion", "print the completion script of a shell: bash, zsh or fish")
	fmt.Fprintf(w, "  %-14s %s\n", "man", "print the manual page, for man -l -")
	fmt.Fprintf(w, "\nMore about a verb: %s VERB --help. Version: %s --version\n"+
		"Exit codes: 0 all of it, nothing to report; 1 failed; 2 wrong usage;\n"+
		"3 finished, and something is missing or was found.\n", p.Name, p.Name)
}

func (p *Program) commandHelp(w io.Writer, c *Command, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "%s %s: %s\n\nUsage: %s %s %s\n", p.Name, c.Name, c.Short, p.Name, c.Name, c.Args)
	if s := strings.TrimSpace(c.Long); s != "" {
		fmt.Fprintf(w, "\n%s\n", s)
	}
	if u := fs.FlagUsagesWrapped(90); u != "" {
		fmt.Fprintf(w, "\nFlags\n%s", u)
	}
	if s := strings.TrimSpace(c.Examples); s != "" {
		fmt.Fprintf(w, "\nExamples\n")
		for _, l := range strings.Split(s, "\n") {
			fmt.Fprintf(w, "  %s\n", strings.TrimSpace(l))
		}
	}
}
