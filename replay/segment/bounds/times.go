package bounds

import (
	"encoding/binary"
	"errors"

	"wiretape/wire"
)

// timeColumn finds the column that rows are keyed by: INT64 `timestamp` at the
// top of the schema, in nanoseconds as far as it says. nil where there is none;
// that is said.
func (c *checker) timeColumn(f *footer) *leaf {
	var found *leaf
	for i := range f.leaves {
		l := &f.leaves[i]
		if len(l.path) != 1 || string(l.path[0]) != TimeColumn {
			continue
		}
		if found != nil {
			c.unchecked("two columns are named " + TimeColumn)
			return nil
		}
		found = l
	}
	switch {
	case found == nil:
		c.unchecked("no column is named " + TimeColumn)
	case found.typ != typeInt64 || found.maxRep > 0:
		c.unchecked("the column " + TimeColumn + " is not an INT64")
	case found.unit == unitOther:
		c.unchecked("the column " + TimeColumn + " is not in nanoseconds")
	default:
		c.res.TimeColumn = TimeColumn
		return found
	}
	return nil
}

// times is the Visitor of a time column.
type times struct {
	c        *checker
	each     func(ts int64) error
	seen     bool
	first    int64
	last     int64
	distinct uint64
	entries  int64
	values   int64
	at       int64 // of the row at which time goes back
	back     int64 // the time it goes back to
	outside  bool  // each is running
}

var errBack = errors.New("time goes back")

func (t *times) Levels(entries int, rep, def []byte) error {
	t.entries += int64(entries)
	return nil
}

func (t *times) Bytes([]byte) error { return nil }

func (t *times) Fixed(b []byte) error {
	for ; len(b) >= 8; b = b[8:] {
		v := int64(binary.LittleEndian.Uint64(b))
		t.values++
		if t.seen {
			if v == t.last {
				continue
			}
			if v < t.last {
				t.at, t.back = t.values-1, v
				return errBack
			}
		} else {
			t.seen, t.first = true, v
		}
		t.last = v
		t.distinct++
		if t.each != nil {
			t.outside = true
			err := t.each(v)
			t.outside = false
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// readTimes decodes the time column. It says false when it was not read whole,
// or went back, which is found.
func (c *checker) readTimes(f *footer, column *leaf, t *times) bool {
	for i := range f.chunks {
		ch := &f.chunks[i]
		if ch.leaf != column {
			continue
		}
		if c.decode(ch, t) {
			continue
		}
		if c.visitErr == errBack {
			c.visitErr = nil
			c.find(wire.Finding{Kind: KindUnsorted, Offset: ch.start, Length: ch.end - ch.start, Field: TimeColumn,
				Want: "at least " + wire.Itoa(t.last), Got: wire.Itoa(t.back),
				Message: "the time column goes back at row " + wire.Itoa(t.at) + ", from " + wire.Itoa(t.last) + " to " + wire.Itoa(t.back)})
		}
		return false
	}
	if t.entries != t.values {
		c.unchecked("the column " + TimeColumn + " has " + wire.Itoa(t.entries-t.values) + " nulls")
		return false
	}
	return true
}

// checkTimes compares the time column with the claim.
func (c *checker) checkTimes(f *footer, column *leaf, claim Claim) {
	t := times{c: c}
	if !c.readTimes(f, column, &t) {
		return
	}
	r := &c.res
	r.TimeRead, r.Distinct, r.FirstTS, r.LastTS = true, t.distinct, t.first, t.last
	at, n := int64(0), int64(0)
	for i := range f.chunks {
		if ch := &f.chunks[i]; ch.leaf == column {
			at, n = ch.start, ch.end-ch.start
			break
		}
	}
	find := func(kind, field, want, got, msg string) {
		c.find(wire.Finding{Kind: kind, Offset: at, Length: n, Field: field, Want: want, Got: got, Message: msg})
	}
	sound := true
	if t.seen && t.first != claim.FirstTS {
		sound = false
		find(KindSpan, "first_ts", wire.Itoa(claim.FirstTS), wire.Itoa(t.first),
			"the frame says that it starts at "+wire.Itoa(claim.FirstTS)+", the time column starts at "+wire.Itoa(t.first))
	}
	if t.seen && t.last != claim.LastTS {
		sound = false
		find(KindSpan, "last_ts", wire.Itoa(claim.LastTS), wire.Itoa(t.last),
			"the frame says that it ends at "+wire.Itoa(claim.LastTS)+", the time column ends at "+wire.Itoa(t.last))
	}
	if t.distinct != claim.Rows {
		sound = false
		find(KindRows, "rows", wire.Utoa(claim.Rows), wire.Utoa(t.distinct),
			"the frame says "+wire.Utoa(claim.Rows)+" rows, the time column has "+wire.Utoa(t.distinct)+" distinct timestamps")
	}
	r.Proved = sound
}

// EachTime calls fn with each distinct timestamp of a segment, in order. Memory
// is that of one page. The error is fn's own, a [*wire.Fault] for a fault in
// the segment, or [*Unchecked] where there is no time column that can be read.
// Options.Depth does not matter. fn may have been called before an error.
func EachTime(b []byte, o Options, fn func(ts int64) error) (err error) {
	c := newChecker(b, o)
	t := times{c: c, each: fn}
	defer func() {
		if p := recover(); p != nil {
			if t.outside {
				panic(p)
			}
			err = &wire.Fault{Finding: wire.Finding{Kind: KindPage, Length: int64(len(b)), Message: "a decoder gave up on a page"}}
			return
		}
		c.close()
	}()
	f, ok := c.readFooter()
	if !ok {
		return c.err()
	}
	c.orders = f.orders
	column := c.timeColumn(f)
	if column == nil {
		return c.err()
	}
	for i := range f.chunks {
		if ch := &f.chunks[i]; ch.leaf == column && !c.headers(ch) {
			return c.err()
		}
	}
	if !c.readTimes(f, column, &t) {
		return c.err()
	}
	return nil
}
