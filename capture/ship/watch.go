package ship

// This file goes on shipping as files are sealed: on events and, beside them, by
// looking.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"wiretape/capture/source"
)

const (
	// DefaultPoll is how often a watch looks by itself: events get lost, and
	// some file systems give none.
	DefaultPoll = 2 * time.Second
	// settle is how long a watch waits after an event for those that follow.
	settle = 50 * time.Millisecond
	// retryMax is the longest wait for a destination that is away.
	retryMax = time.Minute
)

// Watch ships what is sealed, and goes on as files are sealed, until ctx ends.
// A pass that fails is tried again with growing waits: the destination may be
// away for a while. The error is why the newest pass failed, nil where it did
// not; the report has what is sealed and not at the destination.
func (s *Shipper) Watch(ctx context.Context, poll time.Duration, rep *Report) error {
	if poll <= 0 {
		poll = DefaultPoll
	}
	s.watching = true
	w := newWatcher(s, poll)
	defer w.close()
	failed := s.passes(ctx, w, rep)
	s.watching = false
	return s.ended(failed, rep, nil)
}

// passes gives the error that stands when ctx ends.
func (s *Shipper) passes(ctx context.Context, w *watcher, rep *Report) (failed error) {
	back := source.NewBackoff(retryMax)
	for {
		err := s.pass(ctx, rep)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // it was under way: what is left is not shipped, and why is not known
		}
		if err != nil {
			if failed == nil || err.Error() != failed.Error() {
				// Said once, however long it lasts.
				s.log.Error("shipping stopped, and is tried again", "err", err)
			}
			failed = err
			if source.Wait(ctx, back.Next(nil)) != nil {
				return failed
			}
			continue
		}
		if failed != nil {
			s.log.Info("shipping goes on")
			failed = nil
		}
		back = source.NewBackoff(retryMax)
		if !w.wait(ctx) {
			return nil
		}
	}
}

// watcher waits until there may be something new: an event says so, or the
// clock. The folder is watched, not the files, since names come by rename.
type watcher struct {
	s    *Shipper
	poll time.Duration
	fw   *fsnotify.Watcher
	// at is the folder that is watched, to notice another in its place.
	at   os.FileInfo
	said bool
}

func newWatcher(s *Shipper, poll time.Duration) *watcher {
	w := &watcher{s: s, poll: poll}
	w.start()
	return w
}

// start watches the folder that has the name now.
func (w *watcher) start() {
	w.close()
	fw, err := fsnotify.NewWatcher()
	if err == nil {
		if w.at, err = os.Stat(w.s.dir); err == nil {
			err = fw.Add(w.s.dir)
		}
		if err != nil {
			fw.Close()
		}
	}
	if err != nil {
		if !w.said {
			w.said = true
			w.s.log.Warn("the directory can't be watched, so it is looked at now and then", "every", w.poll, "err", err)
		}
		return
	}
	w.fw = fw
}

func (w *watcher) close() {
	if w.fw != nil {
		w.fw.Close()
		w.fw = nil
	}
}

// wait gives false when ctx ended.
func (w *watcher) wait(ctx context.Context) bool {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.fw != nil {
		events, errs = w.fw.Events, w.fw.Errors
	}
	t := time.NewTimer(w.poll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			w.rewatch()
			return true
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if !interesting(e) {
				continue
			}
			// A sealed file comes with others: one pass for all of them.
			return source.Wait(ctx, settle) == nil
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			// Lost events are found by looking.
			w.s.log.Debug("watching", "err", err)
			return true
		}
	}
}

// rewatch notices that the folder was replaced, and tries again where watching
// failed.
func (w *watcher) rewatch() {
	now, err := os.Stat(w.s.dir)
	if err != nil {
		return
	}
	if w.fw == nil || w.at == nil || !os.SameFile(now, w.at) {
		w.start()
	}
}

// interesting says that an event may be a file getting its final name.
func interesting(e fsnotify.Event) bool {
	return e.Has(fsnotify.Create) && strings.HasSuffix(filepath.Base(e.Name), ".cap") || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
}
