package main

import (
	"errors"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/replay"
)

// inputFlags are the flags of every verb that reads captures.
type inputFlags struct {
	protocol cli.Word
	// cache is for who opens the same inputs again and again.
	cache  *capture.Cache
	inputs *replay.Inputs
}

func (f *inputFlags) register(fs *pflag.FlagSet) {
	f.protocol = cli.Word{Value: "auto", Words: []string{"auto", "dendro", "melin", "aewr", "raw"}}
	fs.Var(&f.protocol, "protocol", "read the inputs as this protocol; auto tells it from the content")
}

// open opens the inputs that the arguments name: captures, streams and finished
// archives. They are open until close.
func (f *inputFlags) open(args []string) (*capture.Set, error) {
	if len(args) == 0 {
		return nil, cli.Usagef("no INPUT: name a capture directory, some of its files, or a raw stream file")
	}
	in, err := replay.OpenInputs(args, capture.InputOptions{Protocol: f.protocol.Value, Cache: f.cache})
	var no *capture.NoPlaceError
	if errors.As(err, &no) {
		err = &cli.HintError{Err: err, Hint: "give the files before it as well, or its sidecar"}
	}
	if err != nil {
		return nil, err
	}
	if err := f.close(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	f.inputs = in
	return in.Set, nil
}

// close ends the reading; its error says that an archive changed meanwhile.
func (f *inputFlags) close() error {
	if f.inputs == nil {
		return nil
	}
	return f.inputs.Close()
}
