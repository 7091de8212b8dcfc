package journal

// This file is the hash chain: BLAKE3 over a segment's entries as they lie on
// disk, and then its anchor.

import (
	"github.com/zeebo/blake3"

	"wiretape/wire/melin"
)

// chain is the running hash of one segment. The zero value is one that is not
// known.
type chain struct {
	h      *blake3.Hasher
	anchor [melin.HashSize]byte
	// why is the reason when the chain is not known.
	why string
	// taint is damage that was hashed as it came: no sum can be right behind it.
	taint *damage
}

func (c *chain) known() bool { return c.h != nil }

// start begins at a segment's first entry.
func (c *chain) start(anchor [melin.HashSize]byte) {
	*c = chain{h: blake3.New(), anchor: anchor}
}

// lose says that entries are missing.
func (c *chain) lose(why string) { *c = chain{why: why} }

// write adds bytes of whole entries.
func (c *chain) write(b []byte) {
	if c.h != nil {
		c.h.Write(b)
	}
}

// sum is the chain behind what was written.
func (c *chain) sum() (out [melin.HashSize]byte) {
	h := c.h.Clone()
	h.Write(c.anchor[:])
	h.Sum(out[:0])
	return out
}

// emptySum is the chain of a segment without entries.
func emptySum(anchor [melin.HashSize]byte) [melin.HashSize]byte {
	var c chain
	c.start(anchor)
	return c.sum()
}

// appendEntry appends an entry as it lies on disk: its magic and the slot. dst
// has room for it.
func appendEntry(dst, slot []byte) []byte {
	n := len(dst)
	dst = dst[:n+len(melin.EntryMagic)+len(slot)]
	dst[n], dst[n+1] = melin.EntryMagic[0], melin.EntryMagic[1]
	copy(dst[n+len(melin.EntryMagic):], slot)
	return dst
}

// maxEntry is the most bytes of one entry.
const maxEntry = len(melin.EntryMagic) + melin.MaxSlot
