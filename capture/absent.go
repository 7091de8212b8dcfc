package capture

// This file names connections of which only a journal knows.

import (
	"errors"
	"math"
	"slices"
	"strings"

	"wiretape/wire"
)

// maxAbsent bounds the connections that Absent tells one by one; the rest is
// counted in one finding.
const maxAbsent = 100_000

// absentConnection is what a journal says of a connection without any file.
type absentConnection struct {
	endpoint, pair string
	// end is how far its sealed files reach, total what its end said; files is
	// how many were sealed, pruned how many of these retention deleted.
	end, total    int64
	ended         bool
	files, pruned int64
}

// Absent gives a finding for each connection that the journals of the given
// folders know and of which no file and no side file is among the inputs: its
// id, its peer and as many of its bytes as are known. Nothing of one that ended
// without a byte is missing. It reads the journals, and the folders again for
// what was recorded since they were listed.
func (s *Set) Absent() []wire.Finding {
	var found []wire.Finding
	gone := map[string]*absentConnection{}
	more := map[string]bool{}
	here := map[string]bool{}
	for _, dir := range s.folders {
		skipped := 0
		err := eachEntry(s.fs, dir, func(e Entry) {
			id := e.Connection
			if n := ParseName(e.File); id == "" {
				id = n.Connection
			}
			if !validID(id) || s.known[id] {
				return
			}
			a := gone[id]
			if a == nil {
				switch e.Event {
				case EventConnect, EventDisconnect, EventSeal, EventRecover, EventArrive, EventPrune:
				default:
					return
				}
				if len(gone) >= maxAbsent {
					more[id] = len(more) < maxAbsent
					return
				}
				a = &absentConnection{}
				gone[id] = a
			}
			a.add(e)
		}, &skipped)
		names, lerr := s.fs.List(dir)
		if err = errors.Join(err, lerr); err != nil {
			found = append(found, wire.Finding{Kind: KindUnreadable, File: JournalName,
				Message: "which connections were here before can't be told: " + cause(err)})
		}
		for _, n := range names {
			if c := ParseName(n).Connection; c != "" {
				here[c] = true
			}
		}
	}
	for id, a := range gone {
		if !here[id] && !(a.ended && a.total == 0 && a.end == 0) {
			found = append(found, a.finding(id))
		}
	}
	slices.SortFunc(found, func(a, b wire.Finding) int { return strings.Compare(a.Connection, b.Connection) })
	if len(more) > 0 {
		n := wire.Itoa(int64(len(more)))
		found = append(found, wire.Finding{Kind: KindMissingConnection, Got: n + " more",
			Message: n + " or more further connections of the journal have no file here", Cost: "all of their bytes"})
	}
	return found
}

func (a *absentConnection) add(e Entry) {
	if e.Endpoint != "" {
		a.endpoint = wire.SafeText(e.Endpoint, 300)
	}
	if e.Pair != "" {
		a.pair = wire.SafeText(e.Pair, 60)
	}
	switch e.Event {
	case EventSeal, EventRecover, EventArrive:
		a.files++
		if e.Offset >= 0 && e.Bytes >= 0 && e.Bytes <= math.MaxInt64-e.Offset {
			a.end = max(a.end, e.Offset+e.Bytes)
		}
	case EventDisconnect:
		a.ended, a.total = true, max(a.total, e.Bytes)
	case EventPrune:
		a.pruned++
	}
}

func (a *absentConnection) finding(id string) wire.Finding {
	bytes := wire.Count(max(a.total, a.end), "byte")
	f := wire.Finding{Kind: KindMissingConnection, Connection: id, Length: max(a.total, a.end),
		Message: "the journal knows connection " + id, Cost: "all of it: " + bytes}
	if a.endpoint != "" {
		f.Message += " from " + a.endpoint
	}
	if a.pair != "" {
		f.Message += ", the other direction of " + a.pair
	}
	f.Message += ", and none of its files is here"
	switch {
	case a.pruned > 0 && a.pruned >= a.files:
		f.Kind = KindPruned
		f.Message += " (deleted by retention)"
	case a.pruned > 0:
		f.Message += " (" + wire.Count(a.pruned, "file") + " of " + wire.Itoa(a.files) + " deleted by retention)"
	}
	if !a.ended {
		f.Cost = "all of it: " + bytes + " that were sealed, and what came behind them"
	}
	return f
}
