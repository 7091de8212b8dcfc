package replay

import (
	"path/filepath"
	"testing"

	"wiretape/replay/archive"
	"wiretape/replay/segment"
	"wiretape/wire/dendro"
)

// Equal bytes under other claims, which only a rebuild without checks meets, are
// said and set aside; equal ones under equal claims are held.
func TestEqualBytesUnderOtherClaims(t *testing.T) {
	b := manySources(1)
	for _, claim := range []dendro.Segment{{Rows: 3, FirstTS: 1, LastTS: 5}, {Rows: 3, FirstTS: 1, LastTS: 5}, {Rows: 4, FirstTS: 1, LastTS: 5}, {Rows: 3, FirstTS: 1, LastTS: 9}} {
		claim.Stream, claim.Bytes = []byte("s"), []byte("not checked")
		b = dendro.AppendSegment(b, &claim)
	}
	path := filepath.Join(t.TempDir(), "claims.stream")
	write(t, path, b)
	for _, opt := range []Options{{Check: segment.DepthNone}, {Check: segment.DepthNone, OnBadSegment: Keep}, {Check: segment.DepthRows, OnBadSegment: Keep}} {
		r, _ := mustBuild(t, opt, path)
		if c := r.Counts; c.Segments != 1 || c.SegmentsHeld != 1 || c.SegmentsQuarantined != 2 || r.FindingsByKind[archive.KindSegmentClaims] != 2 {
			t.Errorf("check %v, %q: %+v, %v", opt.Check, opt.OnBadSegment, c, r.FindingsByKind)
		}
		if r.Quarantine == "" || r.Verdict != Findings {
			t.Errorf("verdict %s, set aside in %q", r.Verdict, r.Quarantine)
		}
	}
}
