package ship

// This file knows a destination again, so that nothing is written below a mount
// that is away and called shipped.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"wiretape/capture"
	"wiretape/wire"
)

// AwayError says that the destination's name leads to another place than the
// one that was shipped to: a mount is away, or another disk is there.
type AwayError struct {
	Dest string
	// Mark is that of the place that is there, "" for none.
	Mark string
	// During says that it changed while files were on their way.
	During bool
}

// Error says it in one line.
func (e *AwayError) Error() string {
	s := "the destination " + wire.SafeText(e.Dest, 0)
	if e.During {
		return s + " was replaced by another place while it was shipped to"
	}
	if e.Mark == "" {
		return s + " is not the place that was shipped to before: it does not have the mark " + capture.DestinationName
	}
	return s + " is not the place that was shipped to before: its mark " + capture.DestinationName + " is another"
}

// meet looks where the destination's name leads, before anything is written.
func (s *Shipper) meet(ctx context.Context) error {
	here, err := s.dest.Where(ctx)
	if err != nil {
		return err
	}
	known, ours, err := s.recognise(ctx, here.Mark)
	if err != nil {
		return err
	}
	s.reason = reasonKnown
	if !ours {
		s.reason = reasonNew
	}
	if !known {
		if !s.opt.NewPlace {
			return &AwayError{Dest: s.dest.String(), Mark: here.Mark}
		}
		s.reason = reasonNew
	}
	if here.Mark != s.here.Mark {
		s.next, s.arrived = 0, map[string]bool{}
	}
	s.here = here
	return nil
}

// recognise says whether files may go to the place with a mark without being
// told: it was shipped to before, or nothing was under this name. ours says that
// what was shipped to the name before there were marks is there.
func (s *Shipper) recognise(ctx context.Context, mark string) (known, ours bool, err error) {
	old := s.mem.places[""]
	ours = len(old) == 0
	for name := range old {
		if ours, err = s.anyForm(ctx, name); ours || err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return false, false, err
	case mark != "" && (s.mem.met[mark] || s.mem.places[mark] != nil):
		return true, ours, nil
	}
	return ours && len(s.mem.met) == 0, ours, nil
}

// anyForm says that the destination has a file, by its name in the journal.
func (s *Shipper) anyForm(ctx context.Context, name string) (bool, error) {
	for _, n := range []string{name, name + compressedEnding} {
		there, err := s.exists(ctx, n)
		if there || err != nil {
			return there, err
		}
	}
	return false, nil
}

func (s *Shipper) exists(ctx context.Context, name string) (bool, error) {
	f, err := s.dest.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// settle marks the place, under its lock, and has the journal remember it before
// anything is shipped there.
func (s *Shipper) settle(ctx context.Context) error {
	if err := s.still(ctx); err != nil {
		return err
	}
	if s.here.Mark == "" {
		var b [markDigits / 2]byte
		rand.Read(b[:])
		mark := hex.EncodeToString(b[:])
		if err := s.dest.Mark(ctx, mark); err != nil {
			return err
		}
		s.here.Mark = mark
		if err := s.still(ctx); err != nil {
			return err
		}
	}
	if !s.mem.met[s.here.Mark] {
		if err := s.note(capture.Entry{Event: capture.EventDestination, Reason: s.reason}); err != nil {
			return err
		}
	}
	s.opt.NewPlace = false
	return nil
}

// still makes sure that the name leads to the same place.
func (s *Shipper) still(ctx context.Context) error {
	now, err := s.dest.Where(ctx)
	if err != nil {
		return err
	}
	if now != s.here {
		return &AwayError{Dest: s.dest.String(), Mark: now.Mark, During: true}
	}
	return nil
}

// note writes to the journal of the capture directory, about the destination,
// and remembers it.
func (s *Shipper) note(e capture.Entry) error {
	e.Dest, e.DestID = s.dest.String(), s.here.Mark
	if err := capture.Append(s.fs, s.dir, true, capture.Stamp(e, s.opt.Clock.Now())); err != nil {
		return err
	}
	s.mem.take(e, e.Dest)
	return nil
}

// maxWord is how much of a word from a sidecar a journal gets.
const maxWord = 60

// arrive has the destination's own journal say that a file arrived: what
// vanishes there later is missed by that.
func (s *Shipper) arrive(ctx context.Context, src *proved, sha string) error {
	there, err := s.hasArrived(ctx, src.mark())
	if there || err != nil {
		return err
	}
	n := capture.ParseName(src.bytes)
	e := capture.Entry{Event: capture.EventArrive, Connection: n.Connection, File: src.mark(), SHA256: sha}
	if src.form == capture.FormBytes {
		e.Bytes = src.size
	}
	now := s.opt.Clock.Now()
	entries := []capture.Entry{e}
	if sc := src.sidecar; sc != nil {
		a := &entries[0]
		a.Offset, a.Bytes, a.Endpoint, a.Pair = sc.Start, sc.Length, sc.Endpoint, wire.SafeText(sc.Pair, maxWord)
		if v := sc.Transport; v != nil {
			entries = append(entries, capture.Entry{Event: capture.EventDisconnect, Connection: n.Connection,
				Bytes: sc.End(), Reason: wire.SafeText(v.Kind, maxWord)})
		}
	}
	for i := range entries {
		entries[i] = capture.Stamp(entries[i], now)
	}
	if err := s.dest.Arrived(ctx, entries...); err != nil {
		return err
	}
	if there, err = s.hasArrived(ctx, src.mark()); err == nil && !there {
		err = fmt.Errorf("%s: %w", capture.JournalName, errNotAsWritten)
	}
	return err
}

// hasArrived reads on in the destination's journal.
func (s *Shipper) hasArrived(ctx context.Context, mark string) (bool, error) {
	next, err := s.dest.Journal(ctx, s.next, func(e capture.Entry) {
		switch e.Event {
		case capture.EventSeal, capture.EventRecover, capture.EventArrive:
			s.arrived[e.File] = true
		case capture.EventPrune:
			delete(s.arrived, strings.TrimSuffix(e.File, compressedEnding))
		}
	})
	if err == nil {
		s.next = next
	}
	return s.arrived[mark], err
}
