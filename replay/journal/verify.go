package journal

// This file reads back what was written, by itself: nothing that writing knew
// is taken for granted.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/zeebo/blake3"

	"wiretape/wire"
	"wiretape/wire/melin"
)

// readBack checks every journal file of a lineage and the catalogue's count.
func (b *builder) readBack(g *lineage) error {
	var entries int64
	for _, f := range g.files {
		if err := b.readFile(f); err != nil {
			return fmt.Errorf("reading back %s: %w", f.name, err)
		}
		entries += f.entries
	}
	if err := b.cat.entries.Flush(); err != nil {
		return err
	}
	n, err := b.cat.db.Int("SELECT count(*) FROM entries WHERE lineage = ? AND segment IS NOT NULL", int64(g.number))
	if err != nil {
		return err
	}
	if n != entries {
		return fmt.Errorf("the catalogue has %d entries of lineage %d, its files %d", n, g.number, entries)
	}
	return nil
}

func (b *builder) readFile(f *file) error {
	path := filepath.Join(b.dir, f.name)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() != f.size {
		return fmt.Errorf("it has %d bytes instead of %d", st.Size(), f.size)
	}
	e, err := openFile(path, 0, f.kind == "segment")
	if err != nil {
		return err
	}
	defer e.Close()
	if f.kind == "segment" {
		h, fault := ParseHeader(e.header)
		switch {
		case fault != "":
			return fmt.Errorf("its header: %s", fault)
		case h.Start != f.start || h.Anchor != f.anchor || !bytes.Equal(e.header, f.header):
			return fmt.Errorf("its header is another one")
		}
	}
	h := blake3.New()
	next, n := f.start, int64(0)
	for {
		more, err := e.Next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if e.sequence != next {
			return fmt.Errorf("sequence %d where %d should be", e.sequence, next)
		}
		next++
		n++
		h.Write(e.buf)
		b.progress.Total += int64(len(e.buf))
		b.read(int64(len(e.buf)))
	}
	if e.fault != "" {
		return fmt.Errorf("%s", e.fault)
	}
	if n != f.entries || next != f.last+1 {
		return fmt.Errorf("it has %d entries to %d instead of %d to %d", n, next-1, f.entries, f.last)
	}
	if f.hasHash {
		h.Write(f.anchor[:])
		var sum [melin.HashSize]byte
		if h.Sum(sum[:0]); sum != f.hash {
			return fmt.Errorf("its chain is not the one that was written")
		}
	}
	return nil
}

// covers gives the links whose entries cover the sequences in the plan, and
// whether all are.
func (g *lineage) covers(from, to uint64) (by []string, all bool) {
	for _, p := range g.pieces[g.pieceFrom(from):] {
		if p.first > from {
			return by, false
		}
		if id := p.from.link.id(); len(by) < maxReasons && (len(by) == 0 || by[len(by)-1] != id) {
			by = append(by, id)
		}
		if p.last >= to {
			return by, true
		}
		from = p.last + 1
	}
	return by, false
}

// rangeText is "sequence 7" or "sequences 7 to 9".
func rangeText(from, to uint64) string {
	if from == to {
		return "sequence " + wire.Utoa(from)
	}
	return "sequences " + wire.Utoa(from) + " to " + wire.Utoa(to)
}
