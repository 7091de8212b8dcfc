package capture

// This file tells what is expected from what is damage: files that retention
// deleted, files that a recorder is at, folders in which nothing was recorded.

import (
	"path/filepath"
	"strings"

	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// Recording says that a recorder is at work on the connection: its last file is
// not sealed, no end of it is known, and the lock of its folder is held.
func (s *Set) Recording(c *Connection) bool {
	if c.Raw || c.Transport != nil || len(c.Files) == 0 || c.Files[len(c.Files)-1].Sealed {
		return false
	}
	return s.inUse(filepath.Dir(c.Files[len(c.Files)-1].Path))
}

// AtEnd says that a finding reaches into the connection's newest file.
func (c *Connection) AtEnd(f *wire.Finding) bool {
	return len(c.Files) > 0 && f.Offset+f.Length >= c.Files[len(c.Files)-1].Start
}

// inUse says that the lock of a folder is held. Where that can't be told it is
// not.
func (s *Set) inUse(dir string) bool {
	held, asked := s.locked[dir]
	if !asked {
		held, _ = s.fs.Locked(filepath.Join(dir, LockName))
		if s.locked == nil {
			s.locked = map[string]bool{}
		}
		s.locked[dir] = held
	}
	return held
}

// expected says that a finding about a connection tells of nothing that is
// wrong, and puts it so: what retention deleted, and what a recorder is at.
func (s *Set) expected(c *Connection, f *wire.Finding) bool {
	switch f.Kind {
	case KindPruned:
		return true
	case KindUnsealed, wire.KindCut, wire.KindZeroTail, wire.KindDoubtful:
		if c == nil || !s.Recording(c) || f.Kind != KindUnsealed && !c.AtEnd(f) {
			return false
		}
		f.Message = "a recorder is at work on the file"
		if f.Kind != KindUnsealed {
			f.Message = "the rest of this frame is not there yet"
		}
		f.Kind, f.Cost, f.Want, f.Got = KindRecording, "", "", ""
		return true
	}
	return false
}

// Silent says that nothing came on the connection, as far as is known of it. No
// fault lies in the bytes of such a one.
func (c *Connection) Silent() bool {
	return !c.Raw && len(c.Files) > 0 && c.Files[0].Number == 1 && c.Files[len(c.Files)-1].End() == 0
}

// silent gives a note about a connection that is Silent.
func (c *Connection) silent() []wire.Finding {
	if !c.Silent() {
		return nil
	}
	f := wire.Finding{Kind: KindNothingReceived, Connection: c.ID, Message: "nothing was received: not one byte came"}
	if t := c.Transport; t != nil && t.Kind == sidecar.TransportCut {
		f.Message += ", and the transport was cut: " + wire.SafeText(t.Detail, 300)
	}
	return []wire.Finding{f}
}

// nothing gives a finding for each folder among the inputs in which there is
// nothing: of kind KindPruned where retention deleted all that there was.
func (s *Set) nothing() []wire.Finding {
	var found []wire.Finding
	for _, dir := range s.barren {
		sealed, pruned, attempts := int64(0), int64(0), int64(0)
		newest := ""
		skipped := 0
		err := eachEntry(s.fs, dir, func(e Entry) {
			switch e.Event {
			case EventSeal, EventRecover:
				sealed++
			case EventPrune:
				pruned++
			case EventAttempt:
				attempts++
				newest = e.Detail
			}
		}, &skipped)
		name := wire.SafeText(filepath.Base(dir), 200)
		f := wire.Finding{Kind: KindNothing, File: name, Message: "nothing was recorded here"}
		switch {
		case err != nil:
			f.Kind, f.Message = KindUnreadable, "nothing is here, and what was can't be told: "+cause(err)
		case sealed > pruned:
			continue // each of its files is told of as missing
		case sealed > 0:
			f.Kind, f.Message = KindPruned, "nothing is here any more: "+wire.Count(pruned, "file")+" (deleted by retention)"
		case s.inUse(dir):
			f.Message += " yet: a recorder is at work and has had no connection"
		}
		if f.Kind == KindNothing && attempts > 0 {
			f.Message += "; the newest failed try: " + wire.SafeText(strings.TrimSpace(newest), 300)
		}
		found = append(found, f)
	}
	return found
}
