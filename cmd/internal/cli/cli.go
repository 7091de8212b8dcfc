// Package cli is what the two programs share: verbs with their flags, help that
// teaches, exit codes, man pages and shell completion from one description.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

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

	// values are the words that its argument can be, where these are few;
	// noInput says that its arguments are no files.
	values  []string
	noInput bool
}

// Run is one call of a verb.
type Run struct {
	Args  []string
	Flags *pflag.FlagSet
	Stdin io.Reader
	// Stdout and Stderr take the status line off the terminal before they
	// write, and put it back.
	Stdout io.Writer
	Stderr io.Writer
	// Screen is where the status line is.
	Screen *Screen
	// JSONLines is set by a verb that prints one object after the other: its
	// failure is one more.
	JSONLines bool
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
		args = []string{"help"}
	case "--version":
		args = []string{"version"}
	}
	c := p.find(args[0])
	if c == nil {
		return p.fail(stderr, nil, p.unknown(args[0]))
	}
	fs, run := p.flags(c)
	screen := NewScreen(stderr, IsTerminal(stderr))
	results := &results{screen.Through(stdout), &loss{}}
	this := &Run{Flags: fs, Stdin: stdin, Stdout: results, Stderr: screen.Through(stderr), Screen: screen}
	err := fs.Parse(args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		p.commandHelp(results, c, fs)
		err = nil
	case err != nil:
		err = &UsageError{err.Error()}
	default:
		this.Args = fs.Args()
		err = run(this)
		screen.End()
	}
	if lost := results.lost(); lost != nil {
		// What was done stays done; but nobody was told all of it.
		err = lostError(err, lost)
	}
	code := p.fail(stderr, c, err)
	if results.lost() == nil && results.tell(fs, this.JSONLines, err, code) != nil && results.lost() != nil {
		return Failed
	}
	return code
}

// fail says what went wrong and gives the exit code.
func (p *Program) fail(stderr io.Writer, c *Command, err error) int {
	if err == nil {
		return OK
	}
	var usage *UsageError
	var exit *ExitError
	var hint *HintError
	// What was given is not what the verb is for, says an error of another
	// package.
	var wrong interface{ WrongUsage() }
	switch {
	case errors.As(err, &exit):
		if exit.Message != "" {
			fmt.Fprintf(stderr, "%s: %s\n", p.Name, wire.SafeText(exit.Message, 0))
		}
		return exit.Code
	case errors.As(err, &usage), errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s %s: %s\n", p.Name, c.Name, wire.SafeText(err.Error(), 0))
		if errors.As(err, &hint) {
			fmt.Fprintf(stderr, "hint: %s\n", hint.Hint)
		}
		fmt.Fprintf(stderr, "see '%s %s --help'\n", p.Name, c.Name)
		return Usage
	}
	fmt.Fprintf(stderr, "%s %s: %s\n", p.Name, c.Name, wire.SafeText(err.Error(), 0))
	if errors.As(err, &hint) {
		fmt.Fprintf(stderr, "hint: %s\n", hint.Hint)
	}
	return Failed
}

// unknown is the error for a verb that there is not.
func (p *Program) unknown(name string) error {
	return &ExitError{Usage, fmt.Sprintf("no verb %q; '%s --help' lists them", name, p.Name)}
}

// verbs are the program's own and those that every program has.
func (p *Program) verbs() []*Command {
	return append(slices.Clone(p.Commands), p.completionCommand(), p.manCommand(), p.helpCommand(), p.versionCommand())
}

func (p *Program) find(name string) *Command {
	for _, c := range p.verbs() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (p *Program) helpCommand() *Command {
	return &Command{Name: "help", Args: "[VERB]", Short: "tell how the program, or one of its verbs, is used", values: p.names(),
		Setup: func(*pflag.FlagSet) func(*Run) error {
			return func(r *Run) error {
				switch len(r.Args) {
				case 0:
					p.help(r.Stdout)
					return nil
				case 1:
				default:
					return Usagef("name one verb")
				}
				c := p.find(r.Args[0])
				if c == nil {
					return p.unknown(r.Args[0])
				}
				fs, _ := p.flags(c)
				p.commandHelp(r.Stdout, c, fs)
				return nil
			}
		}}
}

func (p *Program) versionCommand() *Command {
	return &Command{Name: "version", Short: "print the version, as --version does", noInput: true,
		Setup: func(*pflag.FlagSet) func(*Run) error {
			return func(r *Run) error {
				if len(r.Args) > 0 {
					return Usagef("version takes no arguments")
				}
				_, err := fmt.Fprintf(r.Stdout, "%s %s\n", p.Name, VersionString())
				return err
			}
		}}
}

func (p *Program) names() []string {
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return append(names, "completion", "man", "help", "version")
}

func (p *Program) flags(c *Command) (*pflag.FlagSet, func(*Run) error) {
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.SortFlags = false
	run := c.Setup(fs)
	return fs, run
}
