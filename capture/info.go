package capture

// This file describes inputs: what is there, when it came, what is missing.

import (
	"io"
	"slices"
	"sort"
	"time"

	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// Info is what there is in a set of inputs: the report of `capture info`, a
// contract (docs/capture-format.md, Reports).
type Info struct {
	Connections []ConnectionInfo `json:"connections"`
	// Findings about inputs that belong to no connection.
	Findings []wire.Finding `json:"-"`
	// Notes are what is expected and no fault: what retention deleted, what is
	// being recorded.
	Notes []wire.Finding `json:"-"`
}

// ConnectionInfo is one connection. Times are nanoseconds since 1970, as
// strings; sizes and offsets in bytes.
type ConnectionInfo struct {
	ID        string `json:"connection"`
	Protocol  string `json:"protocol"`
	Direction string `json:"direction"`
	Pair      string `json:"pair"`
	Endpoint  string `json:"endpoint"`
	Files     int    `json:"files"`
	// Unsealed files are being written, or their recorder did not live.
	Unsealed int `json:"unsealed"`
	// Recording says that a recorder is at work on it.
	Recording bool `json:"being_recorded"`
	// Bytes of the connection that are here, Disk what they take.
	Bytes int64 `json:"bytes"`
	Disk  int64 `json:"disk_bytes"`
	// Start and End are the offsets that the bytes here span, holes included.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// FirstArrival and LastArrival are null when not known. Duration is by the
	// monotonic clock and Rate what that makes in bytes a second.
	FirstArrival *sidecar.Instant `json:"first_arrival"`
	LastArrival  *sidecar.Instant `json:"last_arrival"`
	Duration     time.Duration    `json:"duration_ns"`
	Rate         float64          `json:"bytes_per_second"`
	// Transport and Framing are the two verdicts, null when not known.
	Transport *sidecar.Verdict    `json:"transport"`
	Framing   string              `json:"framing"`
	Kinds     []sidecar.KindCount `json:"kinds"`
	// Sources are only there when the frames were read.
	Sources []SourceInfo `json:"sources"`
	// Holes are missing bytes.
	Holes []Hole `json:"holes"`
	// Pauses are times in which nothing came, the longest first.
	Pauses []Pause `json:"pauses"`
	// ClockSteps are where the wall clock went otherwise than the monotonic.
	ClockSteps []ClockStep    `json:"clock_steps"`
	FileList   []FileInfo     `json:"file_list"`
	Findings   []wire.Finding `json:"-"`
	// FindingsOmitted is how many more there were than a report lists.
	FindingsOmitted int64 `json:"findings_omitted"`
	// Refused says why nothing of it can be read, "" otherwise.
	Refused string `json:"refused"`
}

// SourceInfo is whom frames are about.
type SourceInfo struct {
	Source uint64 `json:"source,string"`
	Label  string `json:"label"`
	Frames int64  `json:"frames"`
	Bytes  int64  `json:"bytes"`
	// Streams are the names of the series that it has data of, as far as
	// MaxStreams.
	Streams []string `json:"streams"`
	// First and Last are the data's own times, 0 when it has none. When a
	// frame was made is no time of its data.
	First int64 `json:"first_ns,string"`
	Last  int64 `json:"last_ns,string"`
}

// Hole is a stretch of missing bytes; Length is 0 when it is not known.
type Hole struct {
	Offset  int64  `json:"offset"`
	Length  int64  `json:"length"`
	Message string `json:"message"`
}

// Pause is a time in which nothing came, before the byte at Offset.
type Pause struct {
	Offset   int64         `json:"offset"`
	Wall     int64         `json:"wall_ns,string"`
	Duration time.Duration `json:"duration_ns"`
}

// ClockStep is by how much the wall clock ran away before the byte at Offset.
type ClockStep struct {
	Offset int64         `json:"offset"`
	Wall   int64         `json:"wall_ns,string"`
	Step   time.Duration `json:"step_ns"`
}

// FileInfo is one file.
type FileInfo struct {
	File       string `json:"file"`
	Number     int64  `json:"number"`
	Start      int64  `json:"start"`
	Length     int64  `json:"length"`
	Sealed     bool   `json:"sealed"`
	Compressed bool   `json:"compressed"`
	SHA256     string `json:"sha256"`
	Closed     string `json:"closed"`
	FirstWall  int64  `json:"first_wall_ns,string"`
	LastWall   int64  `json:"last_wall_ns,string"`
}

const (
	// DefaultPause is how long nothing must come to be a pause.
	DefaultPause = 10 * time.Second
	// maxPauses and maxSteps are how many are listed, maxSources how many
	// sources of a connection and MaxStreams how many series of a source.
	maxPauses  = 20
	maxSteps   = 100
	maxSources = 10_000
	MaxStreams = 1000
	// maxLabel is how much of a name from the wire is shown.
	maxLabel = 200
)

// InfoOptions are how Describe goes about it.
type InfoOptions struct {
	Input InputOptions
	// Quick takes the sidecars at their word and reads no frames.
	Quick bool
	// Pause is the shortest pause to list; 0 is DefaultPause.
	Pause    time.Duration
	Progress func(n int64)
}

// Describe says what there is in inputs.
func Describe(paths []string, opt InfoOptions) (*Info, error) {
	if opt.Pause <= 0 {
		opt.Pause = DefaultPause
	}
	set, err := OpenInputs(paths, opt.Input)
	if err != nil {
		return nil, err
	}
	info := &Info{Connections: []ConnectionInfo{}}
	info.Findings = info.unexpected(set, nil, slices.Concat(set.nothing(), set.Findings, set.Absent()))
	for _, c := range set.Connections {
		ci, err := c.describe(opt, set.Recording(c))
		ci.Findings = info.unexpected(set, c, ci.Findings)
		info.Notes = append(info.Notes, c.silent()...)
		if err != nil {
			return info, err
		}
		info.Connections = append(info.Connections, *ci)
	}
	return info, nil
}

// unexpected moves what is no fault to the notes.
func (i *Info) unexpected(set *Set, c *Connection, found []wire.Finding) []wire.Finding {
	var left []wire.Finding
	for _, f := range found {
		if set.expected(c, &f) {
			i.Notes = append(i.Notes, f)
		} else {
			left = append(left, f)
		}
	}
	return left
}

func (c *Connection) describe(opt InfoOptions, recording bool) (*ConnectionInfo, error) {
	ci := &ConnectionInfo{ID: c.ID, Protocol: c.Protocol, Direction: c.Direction.String(), Pair: c.Pair, Endpoint: c.Endpoint,
		Files: len(c.Files), Recording: recording, FirstArrival: c.FirstArrival, LastArrival: c.LastArrival, Transport: c.Transport,
		Kinds: []sidecar.KindCount{}, Sources: []SourceInfo{}, Holes: []Hole{}, Pauses: []Pause{}, ClockSteps: []ClockStep{},
		FileList: []FileInfo{}, Findings: append([]wire.Finding(nil), c.Findings...)}
	if c.Refused != nil {
		ci.Refused = c.Refused.Error()
	}
	kinds := map[uint32]int64{}
	times := &timeline{ci: ci, pause: opt.Pause}
	for i, f := range c.Files {
		ci.add(f, i == 0)
		if !c.Raw {
			times.file(f)
			if !f.Sealed {
				ci.found(c.unsealed(f))
			}
		}
		if s := f.Sidecar; s != nil && opt.Quick {
			for _, k := range s.Frames {
				kinds[k.Kind] += k.Count
			}
			ci.Framing = endingOf(s)
			for _, x := range f.findings() {
				w := safeFinding(x.Wire())
				w.Connection, w.File = c.ID, f.Name
				ci.found(w)
			}
		}
	}
	times.finish()
	for _, f := range c.Findings {
		if isHole(f.Kind) {
			ci.Holes = append(ci.Holes, Hole{f.Offset, f.Length, f.Message})
		}
	}
	if !opt.Quick {
		if err := c.readFrames(ci, kinds, opt); err != nil {
			return ci, err
		}
	}
	ci.Kinds = kindCounts(c.opt.Registry.Named(c.Protocol), kinds)
	return ci, nil
}

// isHole says that findings of a kind tell of bytes that are not here.
func isHole(kind string) bool {
	return kind == KindMissingFiles || kind == KindPruned || kind == KindShortFile
}

// endingOf is how the frames of a file ended, by its sidecar.
func endingOf(s *sidecar.Sidecar) string {
	switch {
	case s.Open || s.Framing == sidecar.FramingUnknown:
		return sidecar.FramingUnknown
	case s.Recovery != nil && s.Recovery.Tail != "":
		return wire.SafeText(s.Recovery.Tail, 40)
	case s.Framing == sidecar.FramingLost:
		return string(wire.EndingLost)
	case s.EndsAtBoundary:
		return string(wire.EndingClean)
	}
	return string(wire.EndingCut)
}

func (ci *ConnectionInfo) found(fs ...wire.Finding) {
	for _, f := range fs {
		if len(ci.Findings) == maxReported {
			ci.FindingsOmitted++
			continue
		}
		ci.Findings = append(ci.Findings, f)
	}
}

func (ci *ConnectionInfo) add(f *File, first bool) {
	fi := FileInfo{File: f.Name, Number: f.Number, Start: f.Start, Length: f.Length, Sealed: f.Sealed, Compressed: f.Compressed}
	if s := f.Sidecar; s != nil {
		fi.SHA256, fi.Closed = wire.SafeText(s.SHA256, 64), wire.SafeText(s.Closed, 40)
		if s.FirstArrival != nil && s.LastArrival != nil {
			fi.FirstWall, fi.LastWall = s.FirstArrival.Wall, s.LastArrival.Wall
		}
	}
	ci.FileList = append(ci.FileList, fi)
	ci.Bytes += f.Length
	ci.Disk += f.size
	if first {
		ci.Start = f.Start
	}
	ci.End = f.End()
	if !f.Sealed && fi.Number > 0 && ParseName(f.Name).Form == FormPartial {
		ci.Unsealed++
	}
}

// timeline goes through the arrivals of a connection.
type timeline struct {
	ci    *ConnectionInfo
	pause time.Duration
	prev  sidecar.Arrival
	any   bool
	first sidecar.Arrival
}

// file goes through those of a file, as far as it has an index.
func (t *timeline) file(f *File) {
	idx, done, err := f.ArrivalIndex()
	if err != nil {
		return
	}
	defer done.Close()
	for {
		a, ok := idx.Next()
		if !ok {
			return
		}
		if !t.any {
			t.any, t.first, t.prev = true, a, a
			continue
		}
		if d := time.Duration(a.Mono - t.prev.Mono); d >= t.pause {
			t.ci.Pauses = append(t.ci.Pauses, Pause{a.Offset, t.prev.Wall, d})
			if len(t.ci.Pauses) > 2*maxPauses {
				t.trim()
			}
		}
		if step := (a.Wall - t.prev.Wall) - (a.Mono - t.prev.Mono); (step > clockStep || step < -clockStep) && len(t.ci.ClockSteps) < maxSteps {
			t.ci.ClockSteps = append(t.ci.ClockSteps, ClockStep{a.Offset, t.prev.Wall, time.Duration(step)})
		}
		t.prev = a
	}
}

// trim keeps the longest pauses.
func (t *timeline) trim() {
	p := t.ci.Pauses
	sort.SliceStable(p, func(i, j int) bool { return p[i].Duration > p[j].Duration })
	t.ci.Pauses = p[:min(len(p), maxPauses)]
}

func (t *timeline) finish() {
	t.trim()
	if !t.any {
		return
	}
	if t.ci.FirstArrival == nil {
		t.ci.FirstArrival = sidecar.At(t.first.Wall, t.first.Mono)
	}
	// The index of a file being written knows more than any sidecar.
	if l := t.ci.LastArrival; l == nil || t.prev.Mono > l.Mono {
		t.ci.LastArrival = sidecar.At(t.prev.Wall, t.prev.Mono)
	}
	t.ci.Duration = time.Duration(t.ci.LastArrival.Mono - t.ci.FirstArrival.Mono)
	if s := t.ci.Duration.Seconds(); s > 0 {
		t.ci.Rate = float64(t.ci.Bytes) / s
	}
}

// readFrames reads the connection frame by frame.
func (c *Connection) readFrames(ci *ConnectionInfo, kinds map[uint32]int64, opt InfoOptions) error {
	sources := map[uint64]*sourceSum{}
	units := c.Units()
	units.Progress = opt.Progress
	defer units.Close()
	for {
		u, found, err := units.Next()
		ci.found(found...)
		for _, f := range found {
			if isHole(f.Kind) {
				ci.Holes = append(ci.Holes, Hole{f.Offset, f.Length, f.Message})
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if u.Type != wire.UnitFrame {
			continue
		}
		kinds[u.Kind]++
		in := units.Decoder().Info(u)
		if !in.HasSource || len(sources) >= maxSources && sources[in.Source] == nil {
			continue
		}
		s := sources[in.Source]
		if s == nil {
			s = &sourceSum{info: SourceInfo{Source: in.Source, Streams: []string{}}, streams: map[string]bool{}}
			sources[in.Source] = s
		}
		s.add(in, u.Size)
		if spanner, ok := units.Decoder().(wire.Spanner); !ok {
			if in.Stream != "" {
				s.stream([]byte(in.Stream))
			}
			if in.HasTime {
				s.span(in.Time, in.Time)
			}
		} else if len(found) == 0 {
			spanner.Spans(u, s.data)
		}
	}
	if ci.Framing = string(units.Ending()); ci.Framing == "" {
		ci.Framing = sidecar.FramingUnknown
	}
	for _, s := range sources {
		for name := range s.streams {
			s.info.Streams = append(s.info.Streams, wire.SafeText(name, maxLabel))
		}
		sort.Strings(s.info.Streams)
		ci.Sources = append(ci.Sources, s.info)
	}
	sort.Slice(ci.Sources, func(i, j int) bool { return ci.Sources[i].Source < ci.Sources[j].Source })
	return nil
}

type sourceSum struct {
	info    SourceInfo
	streams map[string]bool // names as they came, cut to what is shown
	timed   bool
}

func (s *sourceSum) add(in wire.Info, size int64) {
	s.info.Frames++
	s.info.Bytes += size
	if in.Label != "" {
		s.info.Label = wire.SafeText(in.Label, maxLabel)
	}
}

// data is a piece of a stream's data.
func (s *sourceSum) data(stream []byte, first, last int64) {
	s.stream(stream)
	s.span(first, last)
}

func (s *sourceSum) stream(name []byte) {
	name = name[:min(len(name), maxLabel)]
	if s.streams[string(name)] || len(s.streams) >= MaxStreams {
		return
	}
	s.streams[string(name)] = true
}

func (s *sourceSum) span(first, last int64) {
	if !s.timed {
		s.timed, s.info.First, s.info.Last = true, first, last
		return
	}
	s.info.First = min(s.info.First, first)
	s.info.Last = max(s.info.Last, last)
}

type progressFunc func(int64)

func (f progressFunc) Write(p []byte) (int, error) {
	if f != nil {
		f(int64(len(p)))
	}
	return len(p), nil
}
