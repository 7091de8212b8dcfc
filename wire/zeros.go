package wire

// This file decides what a tail of zeros is, as a power loss leaves one: for
// [Reader], [Scanner] and whoever else moves over units.

const (
	// SectorSize is the unit in which a power loss zeroes a file's tail.
	SectorSize = 512
	// minZeros is the least that is called a zero-filled tail: fewer may be the
	// first bytes of a length.
	minZeros = 4
)

// Zeros is that an input ends in zeros which a power loss may have left. The
// zero Zeros says that nothing is known of any.
type Zeros struct {
	from, file int64
	are        bool
}

// ZerosFrom says that an input holds only zeros from an offset in the connection
// on, and that the file which they lie in begins at file: power loss zeroes whole
// sectors of a file.
func ZerosFrom(from, file int64) Zeros { return Zeros{from, file, true} }

// At says that a tail begins at off, where a unit would, in an input that ends at
// end.
func (z Zeros) At(off, end int64) bool {
	return z.are && off >= z.from && end-off >= minZeros
}

// Into says that u decodes by its length but that a zeroed sector reaches into it
// and goes on behind it, and where that begins: from there on its bytes are not
// what was sent. A unit that the input ends with keeps its zeros: they may be its
// own.
func (z Zeros) Into(u Unit, end int64) (p int64, doubt bool) {
	if !z.are || u.End() <= z.from || u.End() >= end || u.Type != UnitFrame {
		return 0, false
	}
	p = z.sector()
	return p, p < u.End()
}

// Cut says that a frame with head h at off, of which the input ends inside, ends
// in at least a whole sector of zeros, and where they begin: that is a tail, and
// not a cut in transport.
func (z Zeros) Cut(h Head, off, end int64) (p int64, tail bool) {
	if !z.are || h.Type != UnitFrame {
		return 0, false
	}
	p = z.sector()
	return p, p >= off && p <= end-SectorSize
}

// Junk is how many of n bytes of junk at off lie before a tail begins.
func (z Zeros) Junk(off, n, end int64) int64 {
	if off < z.from && off+n > z.from && z.At(z.from, end) {
		return z.from - off
	}
	return n
}

// Found is what there is to report of a tail from from to end, and of the frame
// at start, if another place, that it reaches into.
func (z Zeros) Found(start, from, end int64) []Finding {
	found := []Finding{zeroTail(from, end)}
	if from > start {
		found = append(found, setAside(start, from))
	}
	return found
}

// sector is where the first sector of the file begins that holds zeros alone, up
// to the input's end.
func (z Zeros) sector() int64 {
	in := max(z.from-z.file, 0)
	return z.file + (in+SectorSize-1)/SectorSize*SectorSize
}

func zeroTail(from, end int64) Finding {
	return Finding{Kind: KindZeroTail, Offset: from, Length: end - from,
		Message: "zero-filled tail from " + Itoa(from) + ", " + Itoa(end-from) + " bytes",
		Cost:    "what was there before the zeros is lost"}
}

func setAside(start, from int64) Finding {
	return Finding{Kind: KindDoubtful, Offset: start, Length: from - start,
		Message: "a frame reaches into the zero-filled tail and is set aside",
		Cost:    "this frame is lost"}
}
