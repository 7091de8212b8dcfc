package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/replay"
	"wiretape/replay/archive"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// inputHelp says what an INPUT is, in the help of every verb that takes one.
const inputHelp = `

INPUT is a capture directory, some of its .cap files (each is read with its sidecar
beside it), a raw stream file that never saw this tool, or a finished dendro archive,
which is read as the stream that a publisher of it would send: offsets in it are those
of that stream, not of the file. Any number of them, of any number of connections.`

// inputFlags are the flags of every verb that reads captures.
type inputFlags struct {
	protocol   cli.Word
	fromMiddle bool
	// apart: connections that are of another protocol than --protocol stay what
	// they are, so that it chooses among them.
	apart bool
	// cache is for who opens the same inputs again and again.
	cache  *capture.Cache
	inputs *replay.Inputs
}

func (f *inputFlags) register(fs *pflag.FlagSet) {
	f.protocol = cli.Word{Value: "auto", Words: []string{"auto", "dendro", "melin", "aewr", "raw"}}
	usage := "read the inputs as this protocol; auto tells it from the content"
	if f.apart {
		usage = "the protocol to build, of inputs that hold several; also where their first bytes don't tell it"
	}
	fs.Var(&f.protocol, "protocol", usage)
	fs.BoolVar(&f.fromMiddle, "from-middle", false, "read files from the middle of a connection that have no sidecar, as --protocol, knowing nothing of what came before")
}

// known says that --protocol names one that has frames.
func (f *inputFlags) known() bool { return protocols.All().Named(f.protocol.Value) != nil }

// open opens the inputs that the arguments name: captures, streams and finished
// archives. They are open until close.
func (f *inputFlags) open(args []string) (*capture.Set, error) {
	if len(args) == 0 {
		return nil, cli.Usagef("no INPUT: name a capture directory, some of its files, or a raw stream file")
	}
	opt := capture.InputOptions{Protocol: f.protocol.Value, Cache: f.cache}
	if f.fromMiddle {
		if !f.known() {
			return nil, cli.Usagef("--from-middle needs --protocol dendro, melin or aewr: a file without its sidecar does not say what it is")
		}
		opt.Context = wire.MidStream(f.protocol.Value)
	}
	in, err := replay.OpenInputs(args, opt)
	if err != nil {
		return nil, inputHint(err)
	}
	if f.apart && f.known() {
		if err := f.keepApart(args, opt, in); err != nil {
			return nil, errors.Join(err, in.Close())
		}
	}
	if err := f.close(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	f.inputs = in
	return in.Set, nil
}

// keepApart gives connections of which it is known that they are of another
// protocol than the one that is named their own.
func (f *inputFlags) keepApart(args []string, opt capture.InputOptions, in *replay.Inputs) error {
	opt.Protocol, opt.Cache = capture.ProtocolAuto, nil
	told := map[string]string{}
	for _, arg := range args {
		// One by one: what is of no known protocol is no input without its name.
		set, err := capture.OpenInputs([]string{arg}, opt)
		if err != nil {
			continue
		}
		for _, c := range set.Connections {
			if protocols.All().Named(c.Protocol) != nil {
				told[c.ID] = c.Protocol
			}
		}
	}
	for _, c := range in.Connections {
		if p := told[c.ID]; p != "" && p != f.protocol.Value {
			c.Protocol = p
		}
	}
	return nil
}

// inputHint says what to do about an input that can't be read.
func inputHint(err error) error {
	var place *capture.NoPlaceError
	if errors.As(err, &place) {
		return &cli.HintError{Err: err, Hint: "give the files before it as well, or its sidecar; or read it from its middle: " +
			"--from-middle --protocol dendro (or melin, aewr), or in the viewer (replay view)"}
	}
	var none *capture.NotCaptureError
	if !errors.As(err, &none) {
		return err
	}
	if files := streamFiles(none.Path); len(files) > 0 {
		return &cli.HintError{Err: err, Hint: "its files can be given one by one, such as " + strings.Join(files, " ")}
	}
	if hint := builtHint(none.Path); hint != "" {
		return &cli.HintError{Err: err, Hint: hint}
	}
	if dirs := captureFolders(none.Path); len(dirs) > 0 {
		return &cli.HintError{Err: err, Hint: "it holds captures, which can be given one by one or all together: " + strings.Join(dirs, " ")}
	}
	if none.Readable {
		return &cli.HintError{Err: err, Hint: "where its first bytes are damaged or missing, --protocol dendro, melin or aewr says what it is; " +
			`"replay inspect --protocol raw" shows the bytes of anything`}
	}
	return err
}

// streamFiles are files in a folder that are streams of a known protocol, the
// first few; none where path is no folder.
func streamFiles(path string) (names []string) {
	const most, looked = 3, 100
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for i, e := range entries {
		if i == looked || len(names) == most {
			break
		}
		p := filepath.Join(path, e.Name())
		if _, err := capture.OpenInputs([]string{p}, capture.InputOptions{}); err == nil && e.Type().IsRegular() {
			names = append(names, wire.SafeText(p, 200))
		}
	}
	return names
}

// captureFolders are the folders in a folder that are capture directories, the
// first few; none where path is no folder.
func captureFolders(path string) (names []string) {
	const most, looked = 5, 1000
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for i, e := range entries {
		if i == looked {
			break
		}
		p := filepath.Join(path, e.Name())
		if capture.CheckDir(nil, p) != nil {
			continue
		}
		if len(names) == most {
			return append(names, "…")
		}
		names = append(names, wire.SafeText(p, 200))
	}
	return names
}

// builtHint says of a folder that a rebuild made what it is, "" of anything else.
func builtHint(path string) string {
	holds := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	switch {
	case holds("catalogue.sqlite") && holds("shadows"):
		return `it is what "replay build" made of AEWR connections: "replay export-results" gives its results`
	case holds("catalogue.sqlite"):
		return `it is a melin journal folder, which "replay build" made and read back: its report.json says what was proved, docs/melin.md what the files are`
	}
	return ""
}

// archiveHint says of a path that is no archive what it is, and which verb is
// for it.
func archiveHint(path string, err error) error {
	var no *archive.NotArchiveError
	if !errors.As(err, &no) {
		return err
	}
	hint := builtHint(path)
	switch {
	case capture.CheckDir(nil, path) == nil:
		hint = `it is a capture directory: "capture verify" checks it, "replay build" makes an archive of it`
	case hint == "":
		if _, e := capture.OpenInputs([]string{path}, capture.InputOptions{}); e == nil {
			hint = `it is a recording: "replay build" makes an archive of it, "replay inspect" shows it`
		} else if files := streamFiles(path); len(files) > 0 {
			hint = `it is a folder of recordings: "replay build" takes its files, such as ` + strings.Join(files, " ")
		} else if dirs := captureFolders(path); len(dirs) > 0 {
			hint = `it is a folder of captures, of which "replay build" makes archives: ` + strings.Join(dirs, " ")
		} else {
			return err
		}
	}
	return &cli.HintError{Err: err, Hint: hint}
}

// close ends the reading; its error says that an archive changed meanwhile.
func (f *inputFlags) close() error {
	if f.inputs == nil {
		return nil
	}
	return f.inputs.Close()
}

// protocolsOf are the known protocols of a set's connections, sorted.
func protocolsOf(set *capture.Set) (names []string) {
	for _, c := range set.Connections {
		if c.Protocol != "" && c.Protocol != capture.ProtocolRaw && !slices.Contains(names, c.Protocol) {
			names = append(names, c.Protocol)
		}
	}
	slices.Sort(names)
	return names
}
