package ship

// This file is what the journal of a capture directory remembers of the places
// that its files were shipped to.

import (
	"strings"

	"wiretape/capture"
	"wiretape/internal/vfs"
)

// memory is read from the journal as it grows.
type memory struct {
	next int64
	// places by their mark; "" is what was shipped to a destination of our name
	// before places had marks.
	places map[string]place
	// met are the marks that were found under our destination's name.
	met map[string]bool
	// newest is the mark among them that was named last, "" for none.
	newest string
	// sealed is the SHA-256 with which a file here was sealed first, and remade
	// are those that recovery touched later: by name.
	sealed map[string]string
	remade map[string]bool
	// any says that a file was ever sealed, which may have been pruned since.
	any bool
}

// place is what was shipped to one place: by name of the .cap.
type place map[string]copied

// copied is a file that was shipped. One that is not good any more was found
// missing or damaged there, or its side files were made anew here since.
type copied struct {
	sha  string
	good bool
}

// update reads on in the journal. name is what the destination is called.
func (m *memory) update(fsys vfs.FS, dir, name string) error {
	if m.places == nil {
		m.places, m.met = map[string]place{}, map[string]bool{}
		m.sealed, m.remade = map[string]string{}, map[string]bool{}
	}
	next, err := capture.EachEntry(fsys, dir, m.next, func(e capture.Entry) { m.take(e, name) })
	m.next = next
	return err
}

func (m *memory) take(e capture.Entry, name string) {
	if e.DestID != "" && e.Dest == name {
		m.met[e.DestID], m.newest = true, e.DestID
	}
	switch e.Event {
	case capture.EventSeal, capture.EventArrive, capture.EventRecover:
		m.any = true
		if m.sealed[e.File] == "" {
			m.sealed[e.File] = e.SHA256
		}
		if e.Event == capture.EventRecover {
			m.remade[e.File] = true
			for _, p := range m.places {
				if c, ok := p[e.File]; ok {
					p[e.File] = copied{c.sha, false}
				}
			}
		}
	case capture.EventPrune:
		mark := strings.TrimSuffix(e.File, compressedEnding)
		delete(m.sealed, mark)
		delete(m.remade, mark)
	case capture.EventDestination:
		if e.Dest == name && e.Reason == reasonKnown {
			// What lies there without a mark was shipped to this place.
			p := m.at(e.DestID)
			for file, c := range m.at("") {
				p[file] = c
			}
			delete(m.places, "")
		}
	case capture.EventShip:
		if e.DestID != "" || e.Dest == name {
			m.at(e.DestID)[e.File] = copied{e.SHA256, true}
		}
	case capture.EventUnship:
		if p := m.at(e.DestID); e.DestID != "" || e.Dest == name {
			p[e.File] = copied{p[e.File].sha, false}
		}
	}
}

// knows says that files were shipped to the destination's name, or that a place
// was met under it.
func (m *memory) knows() bool { return len(m.met) > 0 || len(m.places[""]) > 0 }

// at is the place with a mark.
func (m *memory) at(mark string) place {
	p := m.places[mark]
	if p == nil {
		p = place{}
		m.places[mark] = p
	}
	return p
}

// The reasons of a capture.EventDestination.
const (
	// reasonKnown: the first place of this name, with all that was shipped to
	// that name before.
	reasonKnown = "known"
	// reasonNew: another place than before.
	reasonNew = "new"
)
