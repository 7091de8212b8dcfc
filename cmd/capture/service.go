package main

// This file is what record and relay share: the flags for writing a capture
// directory, signals, the log, and every way to tell what is going on.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/sidecar"
	"wiretape/cmd/internal/cli"
	"wiretape/internal/jsontext"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// protocolFlag is --protocol, for whoever reads or records bytes.
func protocolFlag(fs *pflag.FlagSet) *cli.Word {
	w := &cli.Word{Value: "auto", Words: []string{"auto"}}
	for _, p := range protocols.All() {
		w.Words = append(w.Words, p.Name())
	}
	w.Words = append(w.Words, capture.ProtocolRaw)
	fs.Var(w, "protocol", "what the bytes are; auto finds it out from the first of them")
	return w
}

// service is the flags of a recording process.
type service struct {
	dir         string
	rotateBytes cli.Size
	rotateEvery time.Duration
	sync        string
	buffer      cli.Size
	minFree     cli.Size
	onSealed    string
	json        bool
	metrics     string
	logFormat   cli.Word
	verbose     bool
	protocol    *cli.Word
	keep        retentionFlags
	makeRoom    bool
	statusEvery time.Duration
}

func (s *service) register(fs *pflag.FlagSet) {
	s.buffer = record.DefaultBuffer
	s.logFormat = cli.Word{Value: "text", Words: []string{"text", "json"}}
	fs.StringVar(&s.dir, "dir", "", "the capture directory `DIR`; made when it does not exist")
	fs.Var(&s.rotateBytes, "rotate-bytes", "begin a new file at the frame boundary before it would get larger")
	cli.DurationVar(fs, &s.rotateEvery, "rotate-every", 0, "begin a new file at the next frame boundary after so long")
	fs.StringVar(&s.sync, "sync", "1s", "when bytes are made safe: every `DURATION`, frame (as they are written) or seal (with each file)")
	fs.Var(&s.buffer, "buffer", "memory between the network and the disk, for each direction of a connection")
	s.protocol = protocolFlag(fs)
	fs.Var(&s.minFree, "min-free", "stop recording before the disk has less free")
	fs.BoolVar(&s.makeRoom, "make-room", false, "at --min-free, delete the oldest sealed files instead of stopping, as far as they may go")
	s.keep.register(fs)
	fs.StringVar(&s.onSealed, "on-sealed", "", "`PROGRAM` that gets each sealed file's path as its argument; no shell")
	fs.BoolVar(&s.json, "json", false, "JSON lines on standard output: status, sealed files and the report")
	cli.DurationVar(fs, &s.statusEvery, "status-every", tellLines, "how often --json tells the status")
	fs.StringVar(&s.metrics, "metrics", "", "serve Prometheus metrics at `ADDR`; :PORT is the loopback interface's")
	fs.Var(&s.logFormat, "log-format", "how the log on standard error is written")
	fs.BoolVarP(&s.verbose, "verbose", "v", false, "log every sealed file")
}

func (s *service) syncMode() (record.Sync, error) {
	switch s.sync {
	case "frame":
		return record.Sync{Frame: true}, nil
	case "seal":
		return record.Sync{}, nil
	}
	d, err := cli.ParseDuration(s.sync)
	if err != nil || d <= 0 {
		return record.Sync{}, cli.Usagef("--sync takes a duration such as 1s, frame or seal, not %q", s.sync)
	}
	return record.Sync{Every: d}, nil
}

// options are the recorder's. Nothing is touched yet.
func (s *service) options() (record.Options, error) {
	o := record.Options{}
	if s.dir == "" {
		return o, cli.Usagef("name the capture directory with --dir")
	}
	var err error
	if o.Sync, err = s.syncMode(); err != nil {
		return o, err
	}
	if s.rotateEvery < 0 {
		return o, cli.Usagef("--rotate-every takes a positive duration")
	}
	if s.metrics != "" {
		if _, err := loopbackUnlessTold(s.metrics); err != nil {
			return o, cli.Usagef("--metrics takes HOST:PORT or :PORT")
		}
	}
	if s.onSealed != "" {
		if o.OnSealed, err = exec.LookPath(s.onSealed); err != nil {
			return o, cli.Usagef("--on-sealed: %v", err)
		}
	}
	if s.statusEvery <= 0 {
		return o, cli.Usagef("--status-every takes a positive duration")
	}
	if s.makeRoom && s.minFree == 0 {
		return o, cli.Usagef("--make-room goes with --min-free")
	}
	if o.Retention, err = s.keep.retention(); err != nil {
		return o, err
	}
	o.MakeRoom = s.makeRoom
	o.Protocol = s.protocol.Value
	o.Buffer, o.MinFree = int64(s.buffer), int64(s.minFree)
	o.Capture.RotateBytes, o.Capture.RotateEvery = int64(s.rotateBytes), s.rotateEvery
	o.Capture.Tool = tool()
	return o, nil
}

// quietLogger is for a verb that reports at its end: without verbose it says
// what went wrong only.
func (s *service) quietLogger(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if s.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// logger writes structured lines. Text from outside is escaped by its handlers.
func (s *service) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if s.verbose {
		o.Level = slog.LevelDebug
	}
	if s.logFormat.Value == "json" {
		return slog.New(slog.NewJSONHandler(jsontext.Lines{W: w}, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// sealedLine is a sealed file as a JSON line.
type sealedLine struct {
	File       string `json:"file"`
	Connection string `json:"connection"`
	Number     int64  `json:"number"`
	Start      int64  `json:"start"`
	Length     int64  `json:"length"`
	SHA256     string `json:"sha256"`
	Reason     string `json:"reason"`
}

// droppedLine says among JSON lines how many of them nobody read.
func droppedLine(n int) string { return `{"dropped":{"lines":` + wire.Itoa(int64(n)) + `}}` }

// lines writes JSON lines, each an object with one member that names it: those
// that must be kept, and those that need not.
type lines struct{ kept, spare io.Writer }

func (l *lines) put(name string, v any) {
	if l == nil {
		return
	}
	w := l.kept
	if name == "status" {
		w = l.spare
	}
	if b, err := jsontext.Marshal(map[string]any{name: v}, ""); err == nil {
		w.Write(append(b, '\n'))
	}
}

// run opens the recorder, lets work use it until it ends or a signal comes, and
// gives the verb's exit. opened is called between: what it opens is there
// before anybody is told that the service is ready.
func (s *service) run(run *cli.Run, o record.Options, opened func(context.Context, *slog.Logger) error, work func(context.Context, *record.Recorder)) error {
	words := cli.NewOutlet()
	// On one terminal both outputs share a queue, so that what is written to
	// the one does not run into the other's status line. The report is what the
	// verb is for: it waits for its reader.
	results, patience := words, time.Duration(0)
	if !cli.IsTerminal(run.Stderr) || !cli.IsTerminal(run.Stdout) {
		results, patience = cli.NewOutlet(), stderrLimit
		defer results.Close(0)
	}
	defer func() { words.Close(patience) }()
	stderr := words.To(run.Stderr, false)
	scr := cli.NewScreen(stderr, cli.IsTerminal(run.Stderr))
	stdout := func(keep bool) io.Writer { return scr.Through(results.Saying(run.Stdout, keep, droppedLine)) }
	log := s.logger(scr.Through(stderr))
	o.Log = log
	var out *lines
	if s.json {
		out = &lines{stdout(true), stdout(false)}
	}
	o.Capture.OnSealed = func(f capture.Sealed) {
		out.put("sealed", sealedLine{f.Path, f.Connection, f.Number, f.Start, f.Length, f.SHA256, f.Reason})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// Signals first: from here on each of them finds its meaning.
	// A reader of our output that goes away is no reason to stop: with a
	// handler for SIGPIPE, to the very end, a write only fails.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	var rec atomic.Pointer[record.Recorder]
	note := newNotifier()
	stops := slices.Clone(cli.Stops)
	if !signal.Ignored(syscall.SIGHUP) {
		// The terminal is closed; nohup means the opposite.
		stops = append(stops, syscall.SIGHUP)
	}
	release := cli.OnStop(func(sig os.Signal) {
		note.tell("STOPPING=1")
		log.Info("stopping; again to quit at once", "signal", sig.String())
		cancel()
	}, func(sig os.Signal) {
		// The unfinished file is valid as it is, and recovery seals it.
		log.Warn("quitting at once: what is not sealed the next start recovers", "signal", sig.String())
		scr.End()
		words.Close(quitLimit)
		os.Exit(cli.Failed)
	}, stops...)
	defer release()
	rotations := make(chan os.Signal, 1)
	signal.Notify(rotations, syscall.SIGUSR1)
	defer signal.Stop(rotations)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-rotations:
				if r := rec.Load(); r != nil {
					r.Rotate()
				}
			}
		}
	}()

	if err := opened(ctx, log); err != nil {
		return err
	}
	r, err := record.Open(s.dir, o)
	if capture.DiskFull(err) {
		return &cli.HintError{Err: err, Hint: "the disk is full and nothing may be deleted; free some space, or let the oldest files go with --min-free SIZE --make-room, and --delete-unshipped where they were shipped nowhere"}
	}
	if err != nil {
		return err
	}
	rec.Store(r)
	for _, f := range r.Dir().Recovered() {
		log.Info("recovered", "file", f.File, "kept", f.Kept, "whole", f.Whole, "tail", f.Tail)
	}
	if s.metrics != "" {
		addr, err := serveMetrics(ctx, s.metrics, r.Status, func(err error) { log.Error("metrics", "err", err) })
		if err != nil {
			_, cerr := r.Close()
			return errors.Join(fmt.Errorf("metrics: %w", err), cerr)
		}
		log.Info("metrics", "address", addr)
	}
	note.tell("READY=1")
	go note.watchdog(ctx, func() bool { r.Status(); return true })
	telling := make(chan struct{})
	var told sync.WaitGroup
	told.Add(1)
	go func() {
		defer told.Done()
		s.tell(telling, r, scr, out, note)
	}()
	work(ctx, r)
	rep, err := r.Close()
	close(telling)
	told.Wait()
	scr.End()
	if out == nil {
		writeReport(stdout(true), rep)
	}
	out.put("report", rep)
	switch {
	case err != nil:
		if rep.NotRecorded > 0 {
			err = fmt.Errorf("%w; %d received bytes were not recorded", err, rep.NotRecorded)
		}
		return err
	case rep.Verdict != record.VerdictClean:
		return &cli.ExitError{Code: cli.Findings}
	}
	return nil
}

const (
	tellTerminal = 500 * time.Millisecond
	tellLines    = time.Second
	tellService  = 5 * time.Second
	// stderrLimit is how long the end waits for a log that nobody reads.
	stderrLimit = 2 * time.Second
	// quitLimit is the same where quitting was asked for twice.
	quitLimit = 200 * time.Millisecond
)

// tell says what goes on until stop: on a terminal, as JSON lines, to systemd.
func (s *service) tell(stop <-chan struct{}, r *record.Recorder, scr *cli.Screen, out *lines, note *notifier) {
	every := tellTerminal
	if out != nil {
		every = min(every, s.statusEvery)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var rate rate
	var lastLine, lastNote time.Time
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			st := r.Status()
			line := statusLine(st, rate.per(st, now))
			scr.Status(line)
			if out != nil && now.Sub(lastLine) >= s.statusEvery*9/10 {
				out.put("status", st)
				lastLine = now
			}
			if now.Sub(lastNote) >= tellService {
				note.tell("STATUS=" + line)
				lastNote = now
			}
		}
	}
}

// rate is bytes a second, smoothed over a few seconds.
type rate struct {
	last time.Time
	seen int64
	ewma float64
}

func (r *rate) per(s record.Status, now time.Time) int64 {
	if !r.last.IsZero() {
		if d := now.Sub(r.last).Seconds(); d > 0 {
			r.ewma += (float64(s.Received-r.seen)/d - r.ewma) * min(1, d/2)
		}
	}
	r.last, r.seen = now, s.Received
	return int64(r.ewma)
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// statusLine is one line of at most 120 columns, of our own words only.
func statusLine(s record.Status, perSecond int64) string {
	b := fmt.Sprintf("%d open · received %s (%s/s) · written %s · synced %s · files %d",
		s.Open, size(s.Received), size(perSecond), size(s.Written), size(s.Synced), s.Files)
	for _, p := range slices.Sorted(maps.Keys(s.Protocols)) {
		b += " · " + p + " " + wire.Itoa(s.Protocols[p])
	}
	if s.Waiting > 0 {
		b += " · waiting " + size(s.Waiting)
	}
	if s.NotRecorded > 0 {
		b += " · NOT RECORDED " + size(s.NotRecorded)
	}
	return b
}

// writeReport is the report for people.
func writeReport(w io.Writer, rep *record.Report) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s in %s\n", rep.Verdict, wire.Count(int64(rep.Connections), "connection"), wire.Count(int64(rep.Files), "file"), rep.Uptime.Round(time.Millisecond))
	fmt.Fprintf(&b, "received %s, written %d, synced %d", wire.Count(int64(rep.Received), "byte"), rep.Written, rep.Synced)
	if rep.NotRecorded > 0 {
		fmt.Fprintf(&b, ", NOT RECORDED %d", rep.NotRecorded)
	}
	b.WriteByte('\n')
	if rep.Stalled > 0 {
		fmt.Fprintf(&b, "publishers were held up for %s by full buffers\n", rep.Stalled.Round(time.Millisecond))
	}
	if rep.Attempts > 0 {
		fmt.Fprintf(&b, "%s made no connection\n", wire.Count(int64(rep.Attempts), "try"))
	}
	if rep.Recovered > 0 {
		fmt.Fprintf(&b, "recovered at the start: %s of an earlier run\n", wire.Count(int64(rep.Recovered), "file"))
	}
	if !rep.LimitsMet {
		b.WriteString("a limit of what to keep is not met")
		if rep.Held > 0 {
			fmt.Fprintf(&b, ": %s, %s, had to go and stay: the journal has no proof of shipping", wire.Count(int64(rep.Held), "file"), size(rep.HeldBytes))
		}
		b.WriteByte('\n')
	}
	if rep.HookFailures > 0 {
		fmt.Fprintf(&b, "the command failed for %s\n", wire.Count(int64(rep.HookFailures), "sealed file"))
	}
	if rep.EndedOmitted > 0 {
		fmt.Fprintf(&b, "… %s before\n", wire.Count(int64(rep.EndedOmitted), "connection"))
	}
	for _, e := range rep.Ended {
		framing := e.Framing
		if framing == "" {
			framing = "not known"
		}
		protocol := "protocol " + e.Protocol
		switch e.Protocol {
		case "":
			protocol = "nothing came"
		case capture.ProtocolRaw:
			protocol = "no known protocol: raw bytes"
		}
		fmt.Fprintf(&b, "%s  %s, %s, transport %s (%s), framing %s\n", e.Connection, wire.Count(int64(e.Written), "byte"), protocol, e.Transport, wire.SafeText(e.Detail, 0), framing)
		if e.Framing == string(wire.EndingCut) && e.Transport == sidecar.TransportStopped {
			b.WriteString("  it was stopped inside a frame: the last frame is partial, and verify will say so\n")
		}
	}
	io.WriteString(w, b.String())
}
