// Package packed is the binary form in which the page hands configurations and
// contexts to the decoder: unsigned and signed varints, and strings and bytes
// behind their length. It is private to one build of the page; nothing of it
// is ever stored.
package packed

import (
	"encoding/binary"
	"errors"

	"wiretape/wire"
)

// ErrMalformed says that a packed value does not read as what it should be.
var ErrMalformed = errors.New("malformed packed value")

// The most of everything that a packed context may hold.
const (
	MaxEntries = 1 << 20
	MaxValues  = 1 << 10
	MaxOmitted = 1 << 10
)

// Reader reads packed values. The first error sticks and every later read
// gives zero.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads from b, which the strings and bytes given back alias.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Rest is how many bytes were not read.
func (r *Reader) Rest() int { return len(r.b) }

func (r *Reader) fail() {
	r.err = ErrMalformed
	r.b = nil
}

// Uint reads an unsigned number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int reads a signed number.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Count reads a number of things of which each takes at least one byte.
func (r *Reader) Count(limit int) int {
	n := r.Uint()
	if n > uint64(limit) || n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// Bytes reads bytes behind their length.
func (r *Reader) Bytes() []byte {
	n := r.Uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// String reads a string.
func (r *Reader) String() string { return string(r.Bytes()) }

// AppendUint, AppendInt and AppendBytes are the writing side.
func AppendUint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// AppendInt appends a signed number.
func AppendInt(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

// AppendBytes appends bytes behind their length.
func AppendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// AppendString appends a string.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendContext appends a context; nil is a context of its own.
func AppendContext(dst []byte, c *wire.Context) []byte {
	if c == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = AppendString(dst, c.Protocol)
	dst = AppendUint(dst, uint64(c.Version))
	dst = AppendUint(dst, uint64(len(c.Entries)))
	for i := range c.Entries {
		e := &c.Entries[i]
		dst = AppendUint(dst, e.ID)
		dst = AppendUint(dst, uint64(len(e.Values)))
		for j := range e.Values {
			v := &e.Values[j]
			dst = AppendString(dst, v.Name)
			if v.Bytes == nil {
				dst = append(dst, 0)
				dst = AppendUint(dst, v.Num)
			} else {
				dst = append(dst, 1)
				dst = AppendBytes(dst, v.Bytes)
			}
		}
	}
	dst = AppendUint(dst, uint64(len(c.Omitted)))
	for _, s := range c.Omitted {
		dst = AppendString(dst, s)
	}
	return dst
}

// Context reads a context. Its bytes alias the input.
func (r *Reader) Context() *wire.Context {
	if r.Uint() == 0 {
		return nil
	}
	c := &wire.Context{Protocol: r.String(), Version: uint32(r.Uint())}
	n := r.Count(MaxEntries)
	for i := 0; i < n && r.err == nil; i++ {
		e := wire.ContextEntry{ID: r.Uint()}
		m := r.Count(MaxValues)
		for j := 0; j < m && r.err == nil; j++ {
			v := wire.ContextValue{Name: r.String()}
			if r.Uint() == 0 {
				v.Num = r.Uint()
			} else if v.Bytes = r.Bytes(); v.Bytes == nil {
				v.Bytes = []byte{}
			}
			e.Values = append(e.Values, v)
		}
		c.Entries = append(c.Entries, e)
	}
	n = r.Count(MaxOmitted)
	for i := 0; i < n && r.err == nil; i++ {
		c.Omitted = append(c.Omitted, r.String())
	}
	if r.err != nil {
		return nil
	}
	return c
}
