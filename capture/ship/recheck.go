package ship

// This file reads again what was shipped.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"wiretape/capture"
	"wiretape/wire"
)

// recheck reads everything that was shipped before at the destination. All of it
// is read, and the journal takes back what is missing or damaged, before any of
// it is shipped again: that may break off.
func (s *Shipper) recheck(ctx context.Context, items []item, rep *Report, step func(item)) error {
	here := make(map[string]bool, len(items))
	for _, i := range items {
		here[i.mark()] = true
		if !s.mem.at(s.here.Mark)[i.mark()].good {
			continue
		}
		err := s.recheckFile(ctx, i, rep)
		if err != nil && s.gone(i) {
			// Pruned meanwhile.
			here[i.mark()], err = false, nil
		}
		if err != nil {
			return fmt.Errorf("reading %s again: %w", i.bytes, err)
		}
		step(i)
	}
	return s.recheckGone(ctx, here, rep)
}

// recheckFile reads a file and what lies beside it.
func (s *Shipper) recheckFile(ctx context.Context, i item, rep *Report) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	src, err := s.prove(i, rep)
	if err != nil {
		return err
	}
	if src == nil {
		// What is here can mend nothing.
		return s.recheckBytes(ctx, i.mark(), "what is here is damaged as well", rep)
	}
	c, err := s.compare(ctx, src)
	if err != nil && (ctx.Err() != nil || s.gone(i)) {
		return err
	}
	if err != nil {
		s.missing(rep, i.mark(), "what the destination has of it can't be read: "+wire.SafeText(err.Error(), 300))
		return s.takeBack(ctx, i.mark())
	}
	bad := c.wrong(i.stem)
	if len(bad) == 0 {
		return s.arrive(ctx, src, c.data().plain)
	}
	for _, w := range bad {
		switch {
		case !w.other:
			s.missing(rep, w.name, "the destination no longer has it: it is shipped again")
		case w.name == c.data().to:
			s.missing(rep, w.name, "what the destination has of it is not what was shipped: it is set aside, and the file shipped again")
		default:
			s.missing(rep, w.name, "what the destination has of it is not what was shipped: it is shipped again")
		}
	}
	return s.takeBack(ctx, i.mark())
}

func (s *Shipper) missing(rep *Report, name, message string) {
	s.find(rep, wire.Finding{Kind: KindMissingThere, Connection: capture.ParseName(name).Connection, File: name, Message: message})
}

// takeBack has the journal say that a file is not at the destination as it was
// shipped. Retention keeps what is here from then on.
func (s *Shipper) takeBack(ctx context.Context, mark string) error {
	// Only of the place itself can that be said.
	if err := s.still(ctx); err != nil {
		return err
	}
	return s.note(capture.Entry{Event: capture.EventUnship, File: mark, SHA256: s.mem.at(s.here.Mark)[mark].sha, Reason: KindMissingThere})
}

// recheckGone reads what was shipped before and is not here any more: the copy
// there is all there is.
func (s *Shipper) recheckGone(ctx context.Context, here map[string]bool, rep *Report) error {
	var marks []string
	for mark, c := range s.mem.at(s.here.Mark) {
		if c.good && !here[mark] {
			marks = append(marks, mark)
		}
	}
	if len(marks) == 0 {
		return nil
	}
	sort.Strings(marks)
	pruned := map[string]bool{}
	if _, err := s.dest.Journal(ctx, 0, func(e capture.Entry) {
		switch e.Event {
		case capture.EventPrune:
			pruned[strings.TrimSuffix(e.File, compressedEnding)] = true
		case capture.EventArrive:
			delete(pruned, e.File)
		}
	}); err != nil {
		return err
	}
	for _, mark := range marks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if pruned[mark] {
			continue // by its own retention
		}
		if err := s.recheckBytes(ctx, mark, "it is not here any more, and can't be shipped again", rep); err != nil {
			return err
		}
	}
	return nil
}

// recheckBytes reads the bytes of a file at the destination that can't be
// shipped again for the reason why.
func (s *Shipper) recheckBytes(ctx context.Context, mark, why string, rep *Report) error {
	want := s.mem.at(s.here.Mark)[mark].sha
	got := ""
	for _, name := range []string{mark, mark + compressedEnding} {
		f, err := s.dest.Open(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, plain, _, err := digest(f, strings.HasSuffix(name, compressedEnding))
		f.Close()
		if err == nil && plain == want {
			return nil
		}
		got = plain
		if err != nil {
			got = wire.SafeText(err.Error(), 300)
		}
	}
	f := wire.Finding{Kind: KindMissingThere, Connection: capture.ParseName(mark).Connection, File: mark, Want: want, Got: got,
		Message: "the destination no longer has it; " + why, Cost: "the bytes of the file"}
	if got != "" {
		f.Message = "what the destination has of it is not what was shipped; " + why
	}
	s.find(rep, f)
	return s.takeBack(ctx, mark)
}
