// Package bounds checks the Parquet file inside a dendro Segment: that its
// structure holds, that its time column is what the frame says, and that every
// page of every column decodes.
//
// It reads a Parquet file that may be anything. The rules it keeps:
//
//   - A length or count is checked against the bytes that are left before it is
//     used, and nothing is allocated for it before.
//   - What lies in the file is where the footer says, and nowhere twice.
//   - A page decodes into a buffer of exactly the size that it declares, which
//     is within a limit, and within what its codec can make of its bytes.
//   - Runs are walked run by run, values that take no bytes of their own are
//     counted against a limit that grows with the segment: no input makes it
//     spin.
//
// The file's structure is the one of the Parquet format, parquet.thrift. The
// package has its own reader of the few Thrift structs concerned and its own
// decoders of all encodings, so that it imports neither a Parquet library nor
// fmt or reflection: it is compiled to WebAssembly. SNAPPY, LZ4 and LZ4_RAW are
// its own too; other codecs are handed in ([Codecs]).
//
// Offsets of findings are offsets in the segment's bytes.
package bounds

import (
	"sync"

	"wiretape/wire"
)

// Depth is how far a segment is checked. Each includes the one before.
type Depth uint8

const (
	// DepthNone looks at nothing.
	DepthNone Depth = iota
	// DepthFooter checks the structure: footer, schema, places, page headers.
	DepthFooter
	// DepthRows decodes the time column and compares it with the claim.
	DepthRows
	// DepthFull decodes every page of every column and compares the values
	// with the statistics that the footer has of them.
	DepthFull
)

var depthNames = [...]string{"none", "footer", "rows", "full"}

// String gives the word used in flags and reports.
func (d Depth) String() string {
	if int(d) < len(depthNames) {
		return depthNames[d]
	}
	return "unknown"
}

// ParseDepth is the inverse of String.
func ParseDepth(s string) (Depth, bool) {
	for i, n := range depthNames {
		if s == n {
			return Depth(i), true
		}
	}
	return DepthNone, false
}

// The kinds of findings in a segment.
const (
	// KindFooter: the footer does not decode, or points outside the file.
	KindFooter = "segment-footer"
	// KindPage: a page header or a page does not hold.
	KindPage = "segment-page"
	// KindUnsorted: the time column goes back.
	KindUnsorted = "segment-unsorted"
	// KindSpan: first_ts or last_ts is not the time column's.
	KindSpan = "segment-span"
	// KindRows: rows is not the number of distinct timestamps.
	KindRows = "segment-rows"
	// KindValues: values that the column's type can't have.
	KindValues = "segment-values"
	// KindIndex: a column's page index is not what its pages are.
	KindIndex = "segment-index"
	// KindStatistics: the values are not what the footer says of them.
	KindStatistics = "segment-statistics"
)

// Claim is what a Segment frame says of its Parquet.
type Claim struct {
	Rows    uint64
	FirstTS int64
	LastTS  int64
}

// Options of a check.
type Options struct {
	Depth Depth
	// DecodedLimit is the most decoded bytes that are held at a time, 0 for
	// DefaultDecodedLimit. A column chunk that needs more is not checked.
	DecodedLimit int64
	// Codecs beyond this package's own, nil for none.
	Codecs *Codecs
}

const (
	// DefaultDecodedLimit is what a Segment may cost beside its own bytes.
	DefaultDecodedLimit = 64 << 20
	// TimeColumn is the column that a segment's rows are keyed by.
	TimeColumn = "timestamp"

	// maxFindings and maxUnchecked are how many a segment gets; one more says
	// how many are left out.
	maxFindings  = 16
	maxUnchecked = 16
	// maxText is how many bytes of a name from the segment are shown.
	maxText = 64
	// maxPageValues is the most entries of one page.
	maxPageValues = 1 << 24
	// workPerByte and workLimits bound the work for one segment: decoded bytes
	// and values, so many for each of its bytes and so many times DecodedLimit
	// on top. Real segments need under 10 for a byte.
	workPerByte = 32
	workLimits  = 4
	// pageWork is what a page costs beside its bytes.
	pageWork = 2 << 10
)

// Result of a check.
type Result struct {
	// Findings are faults, at most 17 of them.
	Findings []wire.Finding
	// Unchecked is what could not be checked, and why. It is no fault.
	Unchecked []string
	// Proved: the time column was read whole and sorted, and its span and its
	// distinct timestamps are the claim's.
	Proved bool
	// ParquetRows is the file's own row count. Several rows may have one
	// timestamp.
	ParquetRows uint64
	// Distinct timestamps, the first and the last, where the time column was
	// read whole; TimeRead says so.
	TimeRead        bool
	Distinct        uint64
	FirstTS, LastTS int64
	// TimeColumn is its name, "" where there is none.
	TimeColumn string
}

// Sound says that no fault was found.
func (r *Result) Sound() bool { return len(r.Findings) == 0 }

// checker is one check. It is kept for the next one because of its buffers.
type checker struct {
	b        []byte
	opt      Options
	res      Result
	dec      decoder
	stop     bool
	orders   bool
	work     int64
	visitErr error
	moreF    int
	moreU    int
}

var checkers = sync.Pool{New: func() any { return new(checker) }}

func newChecker(b []byte, o Options) *checker {
	c := checkers.Get().(*checker)
	if o.DecodedLimit <= 0 {
		o.DecodedLimit = DefaultDecodedLimit
	}
	*c = checker{b: b, opt: o, dec: c.dec, work: int64(len(b))*workPerByte + o.DecodedLimit*workLimits}
	return c
}

// close gives the checker back. One that panicked is not kept.
func (c *checker) close() {
	c.dec.release()
	*c = checker{dec: c.dec}
	checkers.Put(c)
}

func (c *checker) find(f wire.Finding) {
	if len(c.res.Findings) >= maxFindings {
		c.moreF++
		return
	}
	c.res.Findings = append(c.res.Findings, f)
}

// faults is how many findings there are, those left out among them.
func (c *checker) faults() int { return len(c.res.Findings) + c.moreF }

func (c *checker) unchecked(why string) {
	if len(c.res.Unchecked) >= maxUnchecked {
		c.moreU++
		return
	}
	c.res.Unchecked = append(c.res.Unchecked, why)
}

// result is the finished result.
func (c *checker) result() Result {
	if c.moreF > 0 {
		c.res.Findings = append(c.res.Findings, wire.Finding{Kind: c.res.Findings[maxFindings-1].Kind,
			Message: wire.Itoa(int64(c.moreF)) + " more findings in this segment"})
	}
	if c.moreU > 0 {
		c.res.Unchecked = append(c.res.Unchecked, wire.Itoa(int64(c.moreU))+" more columns")
	}
	return c.res
}

// Check checks a Segment's Parquet against what its frame claims. It may be
// called at the same time from several goroutines. b is not kept.
func Check(b []byte, claim Claim, o Options) (r Result) {
	if o.Depth == DepthNone {
		return Result{}
	}
	c := newChecker(b, o)
	defer func() {
		// Nothing is known that panics; a hostile segment must not be the first.
		if recover() != nil {
			c.find(wire.Finding{Kind: KindPage, Length: int64(len(b)), Message: "a decoder gave up on a page"})
			c.res.Proved = false
			r = c.result()
			return
		}
		r = c.result()
		c.close()
	}()
	f, ok := c.readFooter()
	if !ok {
		return
	}
	c.orders = f.orders
	c.res.ParquetRows = uint64(f.rows)
	for i := range f.chunks {
		c.headers(&f.chunks[i])
	}
	if o.Depth < DepthRows {
		return
	}
	column := c.timeColumn(f)
	if column != nil {
		c.checkTimes(f, column, claim)
	}
	if o.Depth < DepthFull {
		return
	}
	for i := range f.chunks {
		if ch := &f.chunks[i]; ch.leaf != column {
			c.decode(ch, nil)
		}
	}
	return
}

// Column is a leaf of a segment's schema.
type Column struct {
	// Name is the path, its parts joined by dots, safe to show.
	Name string
	// Width is how many bytes a value takes in [Visitor.Fixed], 0 for a
	// BYTE_ARRAY.
	Width int
	// MaxRep and MaxDef are the greatest levels.
	MaxRep, MaxDef int
}

// Columns are a segment's columns in the order that [Visit] counts them.
func Columns(b []byte) ([]Column, error) {
	c := newChecker(b, Options{Depth: DepthFooter})
	defer c.close()
	f, ok := c.readFooter()
	if !ok {
		return nil, c.err()
	}
	out := make([]Column, len(f.leaves))
	for i := range f.leaves {
		l := &f.leaves[i]
		out[i] = Column{Name: l.name(), Width: l.width, MaxRep: int(l.maxRep), MaxDef: int(l.maxDef)}
	}
	return out, nil
}

// Visit shows v what column number column holds, in order. Before it sees a
// page, everything about it that can be checked is. The error is a [wire.Fault]
// for a fault in the segment, [*Unchecked] for what can't be read, or v's own.
func Visit(b []byte, column int, o Options, v Visitor) error {
	c := newChecker(b, o)
	defer c.close()
	f, ok := c.readFooter()
	if !ok {
		return c.err()
	}
	c.orders = f.orders
	if column < 0 || column >= len(f.leaves) {
		return &Unchecked{Why: "no column " + wire.Itoa(int64(column))}
	}
	for i := column; i < len(f.chunks); i += len(f.leaves) {
		ch := &f.chunks[i]
		if !c.headers(ch) || !c.decode(ch, v) {
			return c.err()
		}
	}
	return nil
}

// Unchecked is the error of what can't be read though it may be sound.
type Unchecked struct{ Why string }

// Error says why.
func (u *Unchecked) Error() string { return "unchecked: " + u.Why }

// err is why the check stopped.
func (c *checker) err() error {
	switch {
	case c.visitErr != nil:
		return c.visitErr
	case len(c.res.Findings) > 0:
		return &wire.Fault{Finding: c.res.Findings[0]}
	case len(c.res.Unchecked) > 0:
		return &Unchecked{Why: c.res.Unchecked[0]}
	}
	return &Unchecked{Why: "no reason"}
}
