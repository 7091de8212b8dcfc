package dendro

import (
	"os"
	"path/filepath"
	"testing"

	"wiretape/wire"
)

// TestBrief holds Brief against Info, for whole frames and for their beginnings.
func TestBrief(t *testing.T) {
	names, err := filepath.Glob("testdata/*/*.stream")
	if err != nil || len(names) == 0 {
		t.Fatal(err, len(names))
	}
	seen := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDecoder(wire.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < int64(len(b)); {
			h := d.Head(b[off:], true)
			if h.Type == wire.UnitMore || h.Type == wire.UnitLost || off+h.Size > int64(len(b)) {
				break
			}
			u := wire.Unit{Type: h.Type, Offset: off, Size: h.Size, Kind: h.Kind, Bytes: b[off : off+h.Size]}
			d.Observe(u, nil)
			for _, n := range []int64{h.Size, min(h.Size, 64), min(h.Size, 40), min(h.Size, 12)} {
				u.Bytes = b[off : off+n]
				got, want := d.Brief(u), d.Info(u)
				want.Summary = got.Summary
				if got != want {
					t.Errorf("%s at %d, %d of %d bytes: %+v, want %+v", filepath.Base(name), off, n, h.Size, got, want)
				}
				seen++
			}
			off += h.Size
		}
	}
	if seen < 1000 {
		t.Fatalf("only %d frames", seen)
	}
}
