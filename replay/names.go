package replay

// This file bounds what is held of names: streams, labels and metadata come from
// the wire, any number of them and of any length. What a rebuild needs of them
// lies in files beyond these limits; what only the report needs is not tracked
// any more, and the finding names-limit says so.

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"

	"wiretape/wire"
)

// KindNamesLimit: names took more memory than a rebuild uses for them.
const KindNamesLimit = "names-limit"

const (
	// maxUUIDBytes is the most that the uuids of all sources take; more ends the
	// rebuild.
	maxUUIDBytes = 16 << 20
	// maxSpanBytes is the most that the streams of all connections take whose
	// times are kept track of, spanOverhead bytes and the name for each.
	maxSpanBytes = 32 << 20
	spanOverhead = 160
	// maxWordsHeld is how much of labels and metadata is held in memory; the
	// rest lies in a file without a name beside the archive.
	maxWordsHeld = 8 << 20
	// maxReportBytes is how much the report lists of sources and streams, by
	// their names and labels and listedOverhead bytes for each.
	maxReportBytes = 4 << 20
	listedOverhead = 64
	// maxInterned is how many bytes of names are kept as one string for all
	// their rows.
	maxInterned = 4 << 20
)

// namesLimit says what a limit costs.
func namesLimit(p *part, what, cost string) wire.Finding {
	f := wire.Finding{Kind: KindNamesLimit, Message: what, Cost: cost}
	if p != nil {
		f.Connection = p.conn.ID
	}
	return f
}

// words keeps the labels and metadata of every part, in one piece each.
type words struct {
	dir  string
	held []byte
	file *os.File
	size int64
}

// wordsAt is where a piece lies, and how long it may get in its place.
type wordsAt struct {
	off       int64
	size, cap int
}

// put stores a piece; at is where it lay before, the zero value for nowhere.
func (w *words) put(at wordsAt, labels, metadata map[string]string) (wordsAt, error) {
	b := appendWords(appendWords(nil, labels), metadata)
	if len(b) > at.cap {
		at = wordsAt{off: w.size, cap: len(b)}
		w.size += int64(len(b))
	}
	at.size = len(b)
	if w.file == nil && w.size > maxWordsHeld {
		f, err := os.CreateTemp(w.dir, ".replay-words-")
		if err == nil {
			// It is gone with the process, however that ends.
			err = os.Remove(f.Name())
			w.file = f
		}
		if err == nil {
			_, err = w.file.Write(w.held)
		}
		if err != nil {
			return at, fmt.Errorf("keeping labels and metadata: %w", err)
		}
		w.held = nil
	}
	if w.file == nil {
		if n := int(w.size) - len(w.held); n > 0 {
			w.held = append(w.held, make([]byte, n)...)
		}
		copy(w.held[at.off:], b)
		return at, nil
	}
	if _, err := w.file.WriteAt(b, at.off); err != nil {
		return at, fmt.Errorf("keeping labels and metadata: %w", err)
	}
	return at, nil
}

// get reads a piece again.
func (w *words) get(at wordsAt) (labels, metadata map[string]string, err error) {
	if at.size == 0 {
		return map[string]string{}, map[string]string{}, nil
	}
	b := make([]byte, at.size)
	if w.file == nil {
		copy(b, w.held[at.off:])
	} else if _, err := w.file.ReadAt(b, at.off); err != nil {
		return nil, nil, fmt.Errorf("reading labels and metadata again: %w", err)
	}
	labels, b = wordsOf(b)
	metadata, _ = wordsOf(b)
	return labels, metadata, nil
}

// close lets go of the file.
func (w *words) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

func appendWords(b []byte, m map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		for _, s := range [...]string{k, m[k]} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return b
}

func wordsOf(b []byte) (map[string]string, []byte) {
	next := func() int {
		n, at := binary.Uvarint(b)
		b = b[at:]
		return int(n)
	}
	text := func() string {
		n := next()
		s := string(b[:n])
		b = b[n:]
		return s
	}
	m := map[string]string{}
	for range next() {
		k := text()
		m[k] = text()
	}
	return m, b
}

// interned gives names as one string for all their rows.
type interned struct {
	names map[string]string
	bytes int
}

func (x *interned) of(name []byte) string {
	if s, ok := x.names[string(name)]; ok {
		return s
	}
	if x.names == nil || x.bytes > maxInterned {
		x.names, x.bytes = map[string]string{}, 0
	}
	s := string(name)
	x.names[s] = s
	x.bytes += len(s) + spanOverhead/2
	return s
}
