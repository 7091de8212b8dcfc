// Package segment checks the Parquet file inside a dendro Segment against what
// the frame says of it. The checks themselves are package bounds; here they get
// every codec of the format.
//
// docs/segment-checks.md says what each depth proves, and what it can't.
package segment

import (
	"errors"
	"fmt"

	"wiretape/replay/segment/bounds"
)

// Depth is how far a segment is checked. Each includes the one before.
type Depth = bounds.Depth

// The depths, in their order: nothing; the structure and the page headers; the
// time column against the claim; every page of every column.
const (
	DepthNone   = bounds.DepthNone
	DepthFooter = bounds.DepthFooter
	DepthRows   = bounds.DepthRows
	DepthFull   = bounds.DepthFull
)

// ParseDepth is the inverse of Depth.String: none, footer, rows or full.
func ParseDepth(s string) (Depth, error) {
	d, ok := bounds.ParseDepth(s)
	if !ok {
		return DepthNone, fmt.Errorf("unknown check depth %q: none, footer, rows or full", s)
	}
	return d, nil
}

// The kinds of findings in a segment.
const (
	KindFooter     = bounds.KindFooter
	KindPage       = bounds.KindPage
	KindUnsorted   = bounds.KindUnsorted
	KindSpan       = bounds.KindSpan
	KindRows       = bounds.KindRows
	KindValues     = bounds.KindValues
	KindIndex      = bounds.KindIndex
	KindStatistics = bounds.KindStatistics
)

// DefaultDecodedLimit is the most decoded bytes that are held at a time. A
// column chunk that needs more is unchecked, and said to be.
const DefaultDecodedLimit = bounds.DefaultDecodedLimit

// Claim is what a Segment frame says of its Parquet, in the frame's own words.
type Claim = bounds.Claim

// Options of a check. A DecodedLimit of 0 is DefaultDecodedLimit.
type Options struct {
	Depth        Depth
	DecodedLimit int64
}

// Result of a check. Offsets of findings are offsets in the segment's bytes.
type Result = bounds.Result

// Unchecked is the error of a time column that can't be read though the segment
// may be sound.
type Unchecked = bounds.Unchecked

// Check checks the Parquet file b. It never panics, takes time and memory that
// are bounded by len(b) and the limit whatever b holds, and may be called at
// the same time from several goroutines. b is not kept.
func Check(b []byte, c Claim, o Options) Result {
	return bounds.Check(b, c, o.bounds())
}

// EachTime calls fn with each distinct timestamp of a segment in order, in the
// memory of one page. The error is fn's own, a *wire.Fault for a fault in the
// segment, or *Unchecked. fn may have been called before an error. The depth
// does not matter.
func EachTime(b []byte, o Options, fn func(ts int64) error) error {
	return bounds.EachTime(b, o.bounds(), fn)
}

// maxTimes is how many timestamps Times gives.
const maxTimes = 1 << 24

var errTimes = errors.New("more timestamps than a list may have")

// Times is the list of what EachTime gives: 8 bytes for each row of the claim.
// A segment with more than 16,777,216 timestamps is an error; EachTime has no
// such limit.
func Times(b []byte, o Options) ([]int64, error) {
	var all []int64
	err := EachTime(b, o, func(ts int64) error {
		if len(all) == maxTimes {
			return errTimes
		}
		all = append(all, ts)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the time column: %w", err)
	}
	return all, nil
}

func (o Options) bounds() bounds.Options {
	return bounds.Options{Depth: o.Depth, DecodedLimit: o.DecodedLimit, Codecs: &codecs}
}
