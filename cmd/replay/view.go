package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/replay/archive"
	"wiretape/replay/view"
)

var viewCommand = &cli.Command{
	Name:  "view",
	Args:  "INPUT…",
	Short: "show recordings in a browser",
	Long: `Serves the viewer's page on this machine with the inputs open in it, and prints
its address. The page reads the files by ranges, so that a large one opens at
once; nothing leaves this machine. The address holds a secret: who doesn't have
it reads nothing. Ends with Ctrl-C.

The page is part of the program when "make viewer" ran before it was built. It
opens files by itself too: docs/viewer.md tells how to serve it, or to open it
from disk.`,
	Examples: `# look into a capture directory
replay view capture/
# at a fixed port, for a tunnel from another machine
replay view saved.stream --listen 127.0.0.1:8080
# a list of a capture on a file server, for the page there: ?list=…/list.json
replay view --list capture/ > capture/list.json`,
	Setup: func(fs *pflag.FlagSet) func(*cli.Run) error {
		list := fs.Bool("list", false, "print the list of one folder's files that the page opens from a file server, and serve nothing")
		listen := fs.String("listen", "127.0.0.1:0", "loopback address `ADDR` to serve on; port 0 is any")
		return func(r *cli.Run) error {
			if len(r.Args) == 0 {
				return cli.Usagef("no INPUT: name a capture directory, some of its files, or a raw stream file")
			}
			if err := loopback(*listen); err != nil {
				return err
			}
			if *list {
				if st, err := os.Stat(r.Args[0]); len(r.Args) != 1 || err == nil && !st.IsDir() {
					return cli.Usagef("--list is of one folder: its files are named from there")
				}
			}
			for _, arg := range r.Args {
				if err := recording(arg); err != nil {
					return err
				}
			}
			files, err := view.Files(r.Args)
			if err != nil {
				return err
			}
			if *list {
				return view.WriteList(r.Stdout, files, r.Args[0])
			}
			page, err := view.Page()
			if errors.Is(err, view.ErrNoPage) {
				return &cli.HintError{Err: err, Hint: "run make viewer, then make build"}
			}
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", *listen)
			if err != nil {
				return err
			}
			ctx, stop := cli.Interruptible()
			defer stop()
			pages := view.NewServer(page, files)
			srv := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
			go func() {
				<-ctx.Done()
				srv.Close()
			}()
			if _, err := fmt.Fprintf(r.Stdout, "http://%s%s\n", l.Addr(), pages.Path()); err != nil {
				return err
			}
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the page: %w", err)
			}
			return nil
		}
	},
}

// recording refuses what a rebuild made: the page shows recordings.
func recording(arg string) error {
	if _, err := archive.Detect(arg); err == nil {
		return &cli.HintError{Err: cli.Usagef("%s is a finished archive, and the page shows recordings", arg),
			Hint: `"replay inspect" shows it as the frames that a publisher of it would send, "replay extract" takes it apart; "replay view" is for the captures that it was built from`}
	}
	if hint := builtHint(arg); hint != "" && capture.CheckDir(nil, arg) != nil {
		return &cli.HintError{Err: cli.Usagef("%s holds no recordings, and the page shows recordings", arg), Hint: hint}
	}
	return nil
}

// loopback refuses an address that other machines could reach.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return cli.Usagef("--listen %q: %v", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return cli.Usagef("--listen %q is no loopback address: the page is for this machine; docs/viewer.md tells how to serve it to others", address)
	}
	return nil
}
