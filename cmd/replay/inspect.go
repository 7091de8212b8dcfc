package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"wiretape/cmd/internal/cli"
	"wiretape/replay/inspect"
	"wiretape/wire"
)

var inspectCommand = &cli.Command{
	Name:  "inspect",
	Args:  "INPUT…",
	Short: "show the frames of recordings, their fields and what is wrong with them",
	Long: `Lists every frame with its offset in the connection, size, kind, source, stream
and time, and what was found at it. With --frame one frame is shown with each
field's offset, length and value; --hex adds the bytes. With --json each frame
and each finding is a JSON object on a line of its own (docs/inspect-json.md).

A frame that is refused is shown too, with its fields up to the fault. The
filters choose what is listed; findings are always told, with --limit those up to
its end, with --frame those about the files and that frame. Exit code 3 when
something was found, 1 when the filters match nothing. With --protocol raw the bytes
themselves are shown.` + inputHelp,
	Examples: `# what is in a saved stream
replay inspect saved.stream
# the segments of one source, as JSON lines
replay inspect capture/ --kind Segment --source web-1 --json
# the frame that a finding at byte 440 is about, byte by byte
replay inspect capture/ --frame @440 --hex`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		var (
			in    inputFlags
			opt   inspect.Options
			frame string
		)
		fs.BoolVar(&opt.JSON, "json", false, "JSON lines instead of text (docs/inspect-json.md)")
		fs.StringVar(&frame, "frame", "", "show frame `N` of each connection whole, counted from 1 among those that are here (0 is the preamble), or the one at byte @OFFSET")
		fs.BoolVar(&opt.Hex, "hex", false, "add the bytes of each frame that is shown")
		fs.StringSliceVar(&opt.Kinds, "kind", nil, "only frames of these `KINDS`, by name or number")
		fs.StringVar(&opt.Source, "source", "", "only frames of the source with this `LABEL` or number")
		fs.StringVar(&opt.Stream, "stream", "", "only frames of, or with rows of, the stream `NAME`")
		fs.StringVar(&opt.Connection, "connection", "", "only the connection `ID`")
		fs.Int64Var(&opt.From, "from-offset", 0, "only frames that start at byte `N` of the connection or behind it")
		fs.Int64Var(&opt.To, "to-offset", 0, "only frames that start before byte `N`")
		fs.Int64Var(&opt.Limit, "limit", 0, "end after `N` frames that are shown")
		in.register(fs)
		return func(r *cli.Run) error {
			r.JSONLines = true
			switch {
			case opt.From < 0 || opt.To < 0 || opt.Limit < 0:
				return cli.Usagef("offsets and limits are 0 or more")
			case opt.To > 0 && opt.To <= opt.From:
				return cli.Usagef("--to-offset must be above --from-offset")
			}
			if fs.Changed("frame") {
				ref, err := inspect.ParseRef(frame)
				if err != nil {
					return cli.Usagef("%v", err)
				}
				opt.Frame = ref
			}
			set, err := in.open(r.Args)
			if err != nil {
				return err
			}
			res, err := inspect.Write(r.Stdout, set, opt)
			switch {
			case errors.Is(err, inspect.ErrKind), errors.Is(err, inspect.ErrConnection):
				return cli.Usagef("%v", err)
			case errors.Is(err, inspect.ErrNoFrame):
				return fmt.Errorf("%w: %s; the input has %s", err, frame, wire.Count(int64(res.Frames), "frame"))
			case errors.Is(err, inspect.ErrNothing):
				return &cli.HintError{Err: err, Hint: "without filters all of it is listed"}
			case err != nil:
				return err
			case res.Findings > 0:
				return &cli.ExitError{Code: cli.Findings}
			}
			return nil
		}
	},
}
