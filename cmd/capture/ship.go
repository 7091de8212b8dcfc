package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/ship"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

func shipCommand() *cli.Command {
	return &cli.Command{
		Name: "ship", Args: "DIR DEST",
		Short: "copy sealed files to another place, proved by reading back",
		Long: `Copies the sealed files of the capture directory DIR, with what lies beside them, to
the directory DEST: a mount, or a disk that travels. DEST must exist. What was
shipped is noted in DIR's journal, and retention goes by that. It can be broken
off and started again at any time. No bytes at DEST are ever replaced: a damaged
copy that --recheck finds is set aside. DEST is known again by the file
destination.id in it; another place under its name is not written to.

At the far end sha256sum -c proves the set, and verify, replay and the viewer
read it as it is, compressed or not.`,
		Examples: `# what is there now
capture ship /var/lib/wiretape /mnt/far/site-a
# go on as files are sealed, compressed
capture ship /var/lib/wiretape /mnt/far/site-a --watch --zstd
# at the far end
cd /mnt/far/site-a && sha256sum --quiet -c *.sha256`,
		Setup: setupShip,
	}
}

func setupShip(fs *pflag.FlagSet) func(*cli.Run) error {
	var (
		watch, zstd, recheck, newDest, jsonOut, verbose bool
		poll                                            time.Duration
	)
	fs.BoolVar(&watch, "watch", false, "go on as files are sealed, until a signal")
	cli.DurationVar(fs, &poll, "poll", ship.DefaultPoll, "how often a watch looks by itself")
	fs.BoolVar(&zstd, "zstd", false, "compress, so that a reader can still seek")
	fs.BoolVar(&recheck, "recheck", false, "read what was shipped before at the destination, and ship again what is missing or damaged")
	fs.BoolVar(&newDest, "new-dest", false, "DEST is another place than the one shipped to before: ship everything there")
	fs.BoolVar(&jsonOut, "json", false, "the report as JSON")
	fs.BoolVarP(&verbose, "verbose", "v", false, "log every file")
	return func(run *cli.Run) error {
		if poll <= 0 {
			return cli.Usagef("--poll takes a positive duration")
		}
		if len(run.Args) != 2 {
			return cli.Usagef("name the capture directory and the destination")
		}
		if watch && recheck {
			return cli.Usagef("--recheck is for one pass, not for a watch")
		}
		sv := service{verbose: verbose || watch, logFormat: cli.Word{Value: "text"}}
		log := sv.quietLogger(run.Stderr)
		folder := ship.NewFolder
		if watch {
			folder = func(fsys vfs.FS, path string) (*ship.Folder, error) {
				return ship.AwaitedFolder(fsys, run.Args[0], path)
			}
		}
		dest, err := folder(nil, run.Args[1])
		if errors.Is(err, os.ErrNotExist) {
			hint := "the destination is not made: is it mounted? mkdir makes a folder"
			if watch {
				hint = "the destination is not made, and was never shipped to, so it is not waited for: is it mounted? mkdir makes a folder"
			}
			return &cli.HintError{Err: err, Hint: hint}
		}
		if err != nil {
			return err
		}
		bar := &cli.Bar{}
		if !watch {
			bar = cli.NewBar(run.Stderr, "shipping", 0)
		}
		if !watch {
			// What is watched may be made into a capture later.
			if err := capture.CheckDir(nil, run.Args[0]); err != nil {
				return err
			}
		}
		s, err := ship.New(run.Args[0], dest, ship.Options{Zstd: zstd, Recheck: recheck, NewPlace: newDest, Progress: bar.Set, Log: log})
		if err != nil {
			return err
		}
		ctx, release := cli.Interruptible()
		defer release()
		rep := &ship.Report{Dest: dest.String(), Verdict: record.VerdictClean, Errors: []string{}}
		note := newNotifier()
		note.tell("READY=1")
		if watch {
			err = s.Watch(ctx, poll, rep)
		} else {
			err = s.Pass(ctx, rep)
		}
		note.tell("STOPPING=1")
		bar.Done()
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = errors.New("broken off; another run takes it up")
		}
		if len(rep.Findings) > 0 {
			rep.Verdict = record.VerdictFindings
		}
		if err != nil {
			rep.Verdict = record.VerdictFailed
			rep.Errors = append(rep.Errors, err.Error())
		}
		if werr := writeShipReport(run.Stdout, rep, jsonOut, watch); werr != nil && err == nil {
			err = werr
		}
		var locked *capture.LockedError
		var away *ship.AwayError
		switch {
		case errors.As(err, &locked):
			return &cli.HintError{Err: err, Hint: "another shipper, or a recorder, has the destination"}
		case errors.As(err, &away) && !away.During:
			return &cli.HintError{Err: err, Hint: "is it mounted? --new-dest takes another place on purpose, and ships everything there"}
		case err != nil:
			return err
		case len(rep.Findings) > 0:
			return &cli.ExitError{Code: cli.Findings}
		}
		return nil
	}
}

func writeShipReport(w io.Writer, rep *ship.Report, asJSON, told bool) error {
	if asJSON {
		return jsontext.Write(w, struct {
			*ship.Report
			Findings []wire.Finding `json:"findings"`
		}{rep, append([]wire.Finding{}, rep.Findings...)}, "")
	}
	unshipped := ""
	if rep.Unshipped == nil {
		unshipped = "; not known what is not shipped"
	} else if *rep.Unshipped > 0 {
		unshipped = "; sealed and not shipped: " + wire.Itoa(*rep.Unshipped)
	}
	_, err := fmt.Fprintf(w, "%s: shipped %s, %s (%d stored), to %s; there before: %d; still being written: %d%s\n",
		rep.Verdict, wire.Count(int64(rep.Shipped), "file"), wire.Count(int64(rep.Bytes), "byte"), rep.Stored, wire.SafeText(rep.Dest, 0), rep.Already, rep.Unfinished, unshipped)
	switch {
	case err != nil || len(rep.Findings) == 0:
	case told:
		// The others were logged when they were met.
		_, err = fmt.Fprintf(w, "%s, told in the log or here\n", wire.Count(int64(len(rep.Findings)), "finding"))
		var left []wire.Finding
		for _, f := range rep.Findings {
			if f.Kind == ship.KindNotShipped {
				left = append(left, f)
			}
		}
		cli.PrintFindings(w, left, shownFindings)
	default:
		cli.PrintFindings(w, rep.Findings, 0)
	}
	return err
}
