package main

import (
	"errors"
	"os"
	"path/filepath"

	"wiretape/cmd/internal/cli"
	"wiretape/internal/unfinished"
)

// apart refuses an output that would be written over an input, or into it.
func apart(inputs []string, out string) error {
	if err := unfinished.Clash(inputs, out); err != nil {
		return cli.Usagef("%v: name another output", err)
	}
	return nil
}

// hasFolder refuses an output whose folder is not there.
func hasFolder(flag, out string) error {
	if info, err := os.Stat(filepath.Dir(out)); err != nil || !info.IsDir() {
		return cli.Usagef("%s %s: there is no folder %s", flag, out, filepath.Dir(out))
	}
	return nil
}

// outputHint says what to do about a name that an output can't have.
func outputHint(err error, taken string) error {
	var foreign *unfinished.ForeignError
	switch {
	case errors.As(err, &foreign):
		return &cli.HintError{Err: err, Hint: "move it away, or name another output; nothing was touched"}
	case errors.Is(err, unfinished.ErrExists):
		return &cli.HintError{Err: err, Hint: taken}
	case errors.Is(err, unfinished.ErrBusy):
		return &cli.HintError{Err: err, Hint: "one process at a time writes to an output: let that one end, or stop it, or name another output; an archive may be read meanwhile"}
	}
	return err
}
