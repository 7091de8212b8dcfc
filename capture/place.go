package capture

import (
	"math"
	"path/filepath"

	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// place gives each file its offset in the connection and finds the holes.
//
// Numbering is the authority where it can be: files that are consecutive from
// number 1 lie where the sum of the lengths before them says. A sidecar gives a
// place only behind a hole, and a place that contradicts the sum is a stale
// sidecar, unless the file before is short by just what is missing.
func (in *inputs) place(c *Connection, g *gathered) {
	end := int64(0)     // where the next file starts
	next := int64(1)    // and its number
	known := true       // end is an offset in the connection
	missing := int64(0) // bytes that the file before lacks
	var run *Run
	for _, f := range c.Files {
		s := f.Sidecar
		hole := f.Number != next
		switch {
		case !hole && missing == 0:
			f.Start = end
			if s != nil && known && s.Start != end {
				c.add(wire.Finding{Kind: KindSidecarStale, File: f.Name, Offset: end,
					Want: wire.Itoa(end), Got: wire.Itoa(s.Start),
					Message: "the sidecar of " + f.Name + " says that it starts at " + wire.Itoa(s.Start) +
						", the files before it end at " + wire.Itoa(end) + "; it is not used"})
				f.Sidecar = nil
			}
		case !hole:
			// The short file's own sidecar says where this one starts.
			f.Start = end + missing
			if s != nil && s.Start != f.Start {
				f.Sidecar = nil
			}
			run = nil
		default:
			if s == nil && run == nil && len(c.runs) == 0 {
				if in.opt.Context == nil {
					c.Refused = &NoPlaceError{Connection: c.ID, File: f.Name}
					c.add(wire.Finding{Kind: KindNoPlace, File: f.Name, Message: c.Refused.Error(),
						Cost: "the connection can't be read; replay reads it from its middle with --from-middle and --protocol"})
					return
				}
				f.Start = in.opt.ContextStart
				known = f.Start > 0
				run = &Run{conn: c, Start: f.Start, Context: in.opt.Context, Loose: !known}
				c.runs = append(c.runs, run)
				c.missing(next, f.Number, end, f.Start, known, in.deleted(c.ID, next, f.Number))
				break
			}
			f.Start, known = end, false
			if s != nil && s.Start >= end {
				f.Start, known = s.Start, true
			}
			run = nil
			c.missing(next, f.Number, end, f.Start, known, in.deleted(c.ID, next, f.Number))
		}
		if run == nil {
			run = &Run{conn: c, Start: f.Start, Loose: !known}
			if f.Start > 0 || hole {
				run.Context = c.contextOf(f)
				if run.Context == nil {
					run.Context = wire.MidStream(c.protocolSaid())
				}
			}
			c.runs = append(c.runs, run)
		}
		run.Files = append(run.Files, f)
		missing = 0
		if f.expected > f.Length {
			missing = f.expected - f.Length
		}
		end, next = f.End(), f.Number+1
	}
	in.lastFile(c, g, next)
	// The protocol of a context made up is known only now.
	for _, r := range c.runs {
		if r.Context != nil && r.Context.Protocol == ProtocolRaw {
			r.Context.Protocol = c.protocolSaid()
		}
	}
}

// protocolSaid is the protocol that the sidecars or the options name.
func (c *Connection) protocolSaid() string {
	if p := c.opt.Protocol; p != "" && p != ProtocolAuto {
		return p
	}
	for _, f := range c.Files {
		if f.Sidecar != nil && f.Sidecar.Protocol != ProtocolRaw && f.Sidecar.Protocol != ProtocolAuto {
			return f.Sidecar.Protocol
		}
	}
	return ProtocolRaw
}

// missing reports the files from number from up to but not including to.
func (c *Connection) missing(from, to, start, end int64, known, deleted bool) {
	c.add(missingFiles(c.ID, from, to, start, end, known, deleted))
}

// missingFiles is the finding of files of connection id that are not here, over the
// bytes from start to end where these are known.
func missingFiles(id string, from, to, start, end int64, known, deleted bool) wire.Finding {
	f := wire.Finding{Kind: KindMissingFiles, File: stem(id, from) + extBytes, Offset: start}
	what := "file " + wire.Itoa(from) + " of " + id + " is missing"
	if to-from > 1 {
		what = "files " + wire.Itoa(from) + " to " + wire.Itoa(to-1) + " of " + id + " are missing"
	}
	if known {
		f.Length = end - start
		f.Cost = wire.Count(f.Length, "byte") + " missing"
		f.Message = what + ": bytes " + wire.Itoa(start) + " to " + wire.Itoa(end)
	} else {
		f.Cost = "bytes of unknown number are missing"
		f.Message = what + " from byte " + wire.Itoa(start) + " on; how many bytes is not known, later offsets count from there"
	}
	if deleted {
		f.Kind = KindPruned
		f.Message += " (deleted by retention)"
	}
	return f
}

// wentAway is the finding of files, from first to last, that are not there any more
// since they were listed: what is missing begins at from.
func (c *Connection) wentAway(first, last *File, from int64) wire.Finding {
	in := &inputs{opt: c.opt, folders: []string{filepath.Dir(first.Path)}}
	f := missingFiles(c.ID, first.Number, last.Number+1, from, last.End(), true,
		!c.Raw && in.deleted(c.ID, first.Number, last.Number+1))
	f.Connection = c.ID
	if c.Raw {
		f.File, f.Message = first.Name, first.Name+" is not there any more"
	}
	return f
}

// Vanished is the finding of a connection that was here at an earlier look and of
// which nothing is now: what is missing from an offset on, as far as c tells.
func (s *Set) Vanished(c *Connection, from int64) wire.Finding {
	last := &File{Number: 1, Path: c.ID}
	if n := len(c.Files); n > 0 {
		last = c.Files[n-1]
	}
	first := last
	for i := len(c.Files) - 1; i >= 0 && c.Files[i].End() > from; i-- {
		first = c.Files[i]
	}
	in := &inputs{opt: c.opt, folders: s.folders}
	f := missingFiles(c.ID, first.Number, last.Number+1, from, max(from, last.End()), last.End() > from, in.deleted(c.ID, first.Number, last.Number+1))
	f.Connection = c.ID
	return f
}

// absent reports a connection of which only sidecars are here.
func (in *inputs) absent(id string, g *gathered) {
	if len(g.sides) == 0 {
		return
	}
	from, to := int64(math.MaxInt64), int64(0)
	for n := range g.sides {
		from, to = min(from, n), max(to, n+1)
	}
	c := &Connection{ID: id, opt: in.opt}
	c.missing(from, to, 0, 0, false, in.deleted(id, from, to))
	for _, f := range c.Findings {
		f.Connection = wire.SafeText(id, 60)
		in.set.Findings = append(in.set.Findings, f)
	}
}

// lastFile reports an end that is not the connection's.
func (in *inputs) lastFile(c *Connection, g *gathered, next int64) {
	last := c.Files[len(c.Files)-1]
	// Sidecars whose bytes are not here tell of files behind the last one.
	behind := next - 1
	for n := range g.sides {
		behind = max(behind, n)
	}
	c.accounted = behind
	if behind >= next {
		f := &File{Number: behind, Name: stem(c.ID, behind) + extBytes}
		end, known := last.End(), false
		for _, dir := range g.sides[behind] {
			if s, _ := in.readSidecar(c.ID, f, filepath.Join(dir, stem(c.ID, behind)+extSidecar)); s != nil && !s.Open && s.End() >= end {
				end, known = s.End(), true
			}
		}
		c.missing(next, behind+1, last.End(), end, known, in.deleted(c.ID, next, behind+1))
		return
	}
	s := last.Sidecar
	if s == nil || s.Open || s.Recovery != nil {
		return
	}
	if t := s.Transport; t != nil {
		// A cut inside a frame is told by the frames.
		if t.Kind == sidecar.TransportCut && !c.Silent() && (s.EndsAtBoundary || s.Framing != sidecar.FramingFrames) {
			end := max(last.End(), s.End()) // of a short file too
			at := wire.Itoa(end)
			f := wire.Finding{Kind: KindTransportCut, File: last.Name, Offset: end,
				Message: "the transport of " + c.ID + " was cut behind byte " + at,
				Cost:    "what the peer sent behind byte " + at + ", if anything"}
			if t.Detail != "" {
				f.Message += ": " + wire.SafeText(t.Detail, 300)
			}
			c.add(f)
		}
		return
	}
	switch s.Closed {
	case sidecar.ClosedSize, sidecar.ClosedTime, sidecar.ClosedRequest:
		c.add(wire.Finding{Kind: KindNoEnd, File: last.Name, Offset: last.End(),
			Message: "the last file here of " + c.ID + " was closed for " + s.Closed + "; what came behind it is not here",
			Cost:    "everything behind byte " + wire.Itoa(last.End())})
	}
}

// deleted says that the files from number from up to but not including to went
// by retention, if a journal among the inputs knows of each.
func (in *inputs) deleted(id string, from, to int64) bool {
	if in.pruned == nil {
		in.pruned = map[string]bool{}
		skipped := 0
		for _, dir := range in.folders {
			// A journal that can't be read explains nothing.
			_ = eachEntry(in.opt.FS, dir, func(e Entry) {
				if n := ParseName(e.File); e.Event == EventPrune {
					in.pruned[stem(n.Connection, n.Number)] = true
				}
			}, &skipped)
		}
	}
	for n := from; n < to; n++ {
		if !in.pruned[stem(id, n)] {
			return false
		}
	}
	return true
}
