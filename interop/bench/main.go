//go:build interop

// Bench times replay build against the dendro crate's subscriber and against a
// bare insert of the same rows and segments into the same SQLite build, on the
// same disk, in one run. Figures are ratios: the machine's speed cancels out.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"wiretape/interop"
)

// stream is one stream that the crate's publisher makes for timing.
type stream struct {
	Name  string
	Flags []string
}

var streams = []stream{
	// About 500 MB: eight streams of two sources, four fifths of it sealed
	// segments of 0.4 to 2 MB, the rest live rows.
	{"mixed", []string{"--seed", "7", "--sources", "2", "--streams", "8", "--segments", "22", "--rows-per-segment", "1000",
		"--live-intervals", "4500", "--row-bytes", "1024", "--mixed-sizes", "--index-every", "5", "--seal-every", "200"}},
	// About 300 MB: 2.4 million rows in frames of 3 KB.
	{"rows", []string{"--direct", "--seed", "7", "--sources", "4", "--streams", "25", "--live-intervals", "26000",
		"--row-bytes", "64", "--mixed-sizes"}},
}

// figure is one program's run over one stream.
type figure struct {
	Stream  string  `json:"stream"`
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_seconds"`
	MBps    float64 `json:"mb_per_second"`
	PeakMiB float64 `json:"peak_mib"`
	// Crate is how many times the crate's speed this is, Bare how many times
	// the bare insert's time.
	Crate float64 `json:"times_the_crates_speed"`
	Bare  float64 `json:"times_the_bare_inserts_time"`
}

func main() {
	dir := flag.String("dir", "interop/build", "where streams are kept and archives are written")
	asJSON := flag.Bool("json", false, "figures as JSON lines")
	only := flag.String("stream", "", "mixed or rows alone")
	runs := flag.Int("runs", 1, "runs of each; the fastest counts")
	bareIn := flag.String("bare", "", "internal: insert this stream's rows and nothing else")
	bareOut := flag.String("bare-archive", "", "internal: into this empty archive")
	flag.Parse()
	var err error
	if *bareIn != "" {
		err = bareInsert(*bareIn, *bareOut)
	} else {
		err = bench(*dir, *only, *runs, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(dir, only string, runs int, asJSON bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	p, err := interop.Build(tmp)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		fmt.Fprintln(w, "stream\twhat\tseconds\tMB/s\tCPU s\tpeak MiB\t× crate's speed\t× bare insert's time\t")
	}
	for _, s := range streams {
		if only != "" && s.Name != only {
			continue
		}
		in, err := s.make(p, dir)
		if err != nil {
			return err
		}
		figures, err := s.time(p, in, tmp, runs)
		if err != nil {
			return err
		}
		for _, f := range figures {
			if asJSON {
				b, err := json.Marshal(f)
				if err != nil {
					return err
				}
				fmt.Println(string(b))
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.1f\t%.2f\t%.0f\t%.2f\t%.2f\t\n", f.Stream, f.What, f.Seconds, f.MBps, f.CPU, f.PeakMiB, f.Crate, f.Bare)
		}
		w.Flush()
	}
	return nil
}

// make publishes the stream unless it is there from an earlier run with the
// same flags.
func (s stream) make(p interop.Programs, dir string) (string, error) {
	out := filepath.Join(dir, s.Name+".stream")
	note := out + ".flags"
	want := fmt.Sprintf("%q\n", s.Flags)
	if got, err := os.ReadFile(note); err == nil && string(got) == want {
		if _, err := os.Stat(out); err == nil {
			return out, nil
		}
	}
	fmt.Fprintf(os.Stderr, "publishing %s\n", out)
	if r, err := interop.Run(p.Rig, append([]string{"publish", "--out", out}, s.Flags...)...); err != nil {
		return "", err
	} else if r.Exit != 0 {
		return "", fmt.Errorf("publish: exit %d: %s", r.Exit, r.Stderr)
	}
	return out, os.WriteFile(note, []byte(want), 0o600)
}

func (s stream) time(p interop.Programs, in, tmp string, runs int) ([]figure, error) {
	info, err := os.Stat(in)
	if err != nil {
		return nil, err
	}
	empty := filepath.Join(tmp, "empty")
	if err := os.WriteFile(empty, []byte("dendro-repl\x00\x01\x00"), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out := filepath.Join(tmp, "out.dendro")
	programs := []struct {
		what string
		argv []string
	}{
		{"the crate's subscriber", []string{p.Rig, "subscribe", in, "--archive", out}},
		{"bare insert", []string{self, "-bare", in, "-bare-archive", out}},
		{"replay build --check none", []string{p.Replay, "build", in, "--archive", out, "--check", "none"}},
		{"replay build --check rows", []string{p.Replay, "build", in, "--archive", out, "--check", "rows"}},
		{"replay build --check full", []string{p.Replay, "build", in, "--archive", out, "--check", "full"}},
	}
	var figures []figure
	for _, prog := range programs {
		f := figure{Stream: s.Name, What: prog.what}
		for range runs {
			for _, end := range []string{"", "-wal", "-shm", ".quarantine"} {
				if err := os.RemoveAll(out + end); err != nil {
					return nil, err
				}
			}
			bare := prog.argv[0] == self
			if bare {
				// The schema is the crate's own.
				if r, err := interop.Run(p.Rig, "subscribe", empty, "--archive", out); err != nil || r.Exit != 0 {
					return nil, fmt.Errorf("an empty archive: exit %d, %v: %s", r.Exit, err, r.Stderr)
				}
			}
			// What the run before left to write is not this one's to wait for.
			syscall.Sync()
			r, err := interop.Run(prog.argv[0], prog.argv[1:]...)
			if err != nil {
				return nil, err
			}
			if r.Exit != 0 {
				return nil, fmt.Errorf("%q: exit %d: %s", prog.argv, r.Exit, r.Stderr)
			}
			wall := r.Wall
			if bare {
				// The insert alone: reading and decoding is not part of it.
				var took bareTime
				if err := r.JSON(&took); err != nil {
					return nil, err
				}
				wall = time.Duration(took.InsertNs)
			}
			if f.Seconds == 0 || wall.Seconds() < f.Seconds {
				f.Seconds, f.CPU, f.PeakMiB = wall.Seconds(), r.CPU.Seconds(), float64(r.PeakRSS)/(1<<20)
			}
		}
		f.MBps = float64(info.Size()) / 1e6 / f.Seconds
		figures = append(figures, f)
	}
	for i := range figures {
		figures[i].Crate = figures[0].Seconds / figures[i].Seconds
		figures[i].Bare = figures[i].Seconds / figures[1].Seconds
	}
	return figures, nil
}
