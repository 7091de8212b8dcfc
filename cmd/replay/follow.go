package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/fsnotify/fsnotify"

	"wiretape/capture"
	"wiretape/cmd/internal/cli"
	"wiretape/replay"
	"wiretape/wire"
)

// followInputs keeps an archive up with its inputs.
func followInputs(r *cli.Run, in *inputFlags, opt replay.Options, follow bool) (*replay.Report, error) {
	ctx, stop := cli.Interruptible()
	defer stop()
	in.cache = &capture.Cache{}
	fo := replay.FollowOptions{
		Open: func() (*capture.Set, error) { return in.open(r.Args) },
		Once: !follow,
	}
	if follow {
		events, why := watch(ctx, r.Args)
		fo.Events = events
		if why != nil {
			fmt.Fprintf(r.Stderr, "no file events (%v): looking twice a second instead\n", why)
		}
		fo.Status = (&statusLine{w: r.Stderr, screen: r.Screen}).show
		defer r.Screen.End()
	}
	return replay.Follow(ctx, opt, fo)
}

// watch tells when something may have changed in the inputs' folders. An event
// is a hint: whoever gets it looks again, and looks anyway from time to time.
func watch(ctx context.Context, inputs []string) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, p := range inputs {
		if info, err := os.Stat(p); err == nil && !info.IsDir() {
			p = filepath.Dir(p)
		}
		if err := w.Add(p); err != nil {
			return nil, fmt.Errorf("%w, %w", err, w.Close())
		}
	}
	events := make(chan struct{}, 1)
	go func() {
		defer w.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case _, ok := <-w.Events:
				if !ok {
					return
				}
			case <-w.Errors:
				// Events were lost, perhaps: that is an event.
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()
	return events, nil
}

// statusLine says what a follower does: a line that renews itself on a
// terminal; elsewhere a line for each change between waiting and stuck.
type statusLine struct {
	w      io.Writer
	screen *cli.Screen
	last   string
	at     time.Time
}

func (s *statusLine) show(st replay.Status) {
	word := "reading"
	switch {
	case st.Stuck != nil:
		word = "stuck: " + wire.SafeText(st.Stuck.Message, 200)
	case st.Rebuilding != "":
		word = "making the archive anew: " + wire.SafeText(st.Rebuilding, 200)
	case st.Waiting:
		word = "at the end, waiting"
	}
	if s.screen.Terminal() {
		if word == s.last && time.Since(s.at) < 200*time.Millisecond {
			return
		}
		s.last, s.at = word, time.Now()
		s.screen.Status(fmt.Sprintf("%s, %s, %s: %s", humanize.IBytes(uint64(st.Bytes)), wire.Many(st.Counts.Rows, "row"), wire.Many(st.Counts.Segments, "segment"), word))
		return
	}
	if word != s.last && word != "reading" {
		fmt.Fprintln(s.w, word)
		s.last = word
	}
}
