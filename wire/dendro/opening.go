package dendro

// This file tells connections apart that begin with the same handshakes, for
// sources that have no uuid (docs/merging.md, section 2).

import (
	"encoding/binary"
	"hash/fnv"

	"wiretape/wire"
)

const (
	// OpeningSize is the size of the digest of an opening.
	OpeningSize = 16
	// MaxOpening is how many first bytes of a frame count for it.
	MaxOpening = 64 << 10
	// MaxOpeningFrames is how many frames an opening has at most: a connection
	// without a row is known by these.
	MaxOpeningFrames = 1024
)

// Opening is what is known of how a connection begins: a digest (FNV-1a, 128
// bits, chained) of the first bytes of each of its frames, up to and with the
// first Rows frame that has a row, MaxOpeningFrames at most; of a frame at most MaxOpening, of Index and Segment those
// before the blobs, of an unknown kind its length and number. It is the same
// however the connection goes on, and it goes with the context. It proves
// nothing: who sends the same first bytes has the same.
type Opening struct {
	Digest [OpeningSize]byte
	// Known: the decoder began where the connection does, or was told by its
	// context.
	Known bool
	// Frames are in the digest.
	Frames uint32
	// Whole: the first row came, or MaxOpeningFrames without one, so that the
	// digest changes no more.
	Whole bool
}

// Opening is how the connection began, as far as the decoder has observed it.
func (d *Decoder) Opening() Opening { return d.opening }

// open says that the opening is not over yet.
func (o *Opening) open() bool { return o.Known && !o.Whole }

// frame takes in a frame.
func (o *Opening) frame(u wire.Unit) {
	n := int64(MaxOpening)
	if u.Kind != KindRows {
		n = min(n, peek(u.Kind, u.Size, u.Bytes))
	}
	b := u.Bytes[:min(int64(len(u.Bytes)), u.Size, n)]
	h := fnv.New128a()
	h.Write(o.Digest[:])
	h.Write(b)
	h.Sum(o.Digest[:0])
	o.Frames++
	row := u.Kind == KindRows && len(b) >= rowsFirst && binary.LittleEndian.Uint32(b[rowsCount:]) > 0
	o.Whole = row || o.Frames >= MaxOpeningFrames
}

// restore takes over what an entry of a context says, if it says anything.
func (o *Opening) restore(e wire.ContextEntry) (ok bool) {
	v, there := e.Value(ValueOpening)
	if !there {
		return true
	}
	if len(v.Bytes) != OpeningSize {
		return false
	}
	whole, _ := e.Value(ValueOpeningWhole)
	frames, _ := e.Value(ValueOpeningFrames)
	*o = Opening{Digest: [OpeningSize]byte(v.Bytes), Known: true, Frames: uint32(min(frames.Num, MaxOpeningFrames)), Whole: whole.Num != 0}
	return true
}
