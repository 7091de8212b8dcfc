package dendro

import (
	"os"
	"testing"

	"wiretape/wire"
)

// TestFragment: of every frame of a stream, cut at every byte, what is told is
// what the whole frame says, and it only ever gets more.
func TestFragment(t *testing.T) {
	for _, name := range []string{"testdata/reconnect/c2.stream", "testdata/crafted/source-update.stream", "testdata/crafted/clean-complete.stream"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint32]bool{}
		for off := int64(PreambleSize); off < int64(len(data)); {
			size := int64(LenSize) + int64(uint32(data[off])|uint32(data[off+1])<<8|uint32(data[off+2])<<16|uint32(data[off+3])<<24)
			frame := data[off : off+size]
			whole := Fragment(frame, off)
			seen[whole.Kind] = true
			checkWhole(t, frame, off, whole)
			told := 0
			step := max(1, len(frame)/2000)
			for n := 0; n <= len(frame); n += step {
				p := Fragment(frame[:n], off)
				now := int(p.Rows.Count)
				for _, has := range []bool{p.Kind != 0, p.HasSource, p.HasUUID, p.HasStream, p.HasTime, p.HasCount, p.HasBytes, p.HasSeq} {
					if has {
						now++
					}
				}
				if now < told {
					t.Fatalf("%s at %d: %d bytes tell less than fewer", name, off, n)
				}
				told = now
				if p.HasTime && (p.First != whole.First || p.Last != whole.Last) || p.HasStream && string(p.Stream) != string(whole.Stream) ||
					p.HasSeq && p.Seq != whole.Seq || p.HasCount && p.Count != whole.Count {
					t.Fatalf("%s at %d: %d bytes tell %+v, the frame %+v", name, off, n, p, whole)
				}
				rows := uint32(0)
				for range p.Rows.All() {
					rows++
				}
				if rows != p.Rows.Count {
					t.Fatalf("%d rows counted, %d given", p.Rows.Count, rows)
				}
			}
			off += size
		}
		if len(seen) < 3 {
			t.Errorf("%s has frames of %d kinds only", name, len(seen))
		}
	}
}

func checkWhole(t *testing.T, frame []byte, off int64, p Partial) {
	t.Helper()
	u := wire.Unit{Type: wire.UnitFrame, Offset: off, Size: int64(len(frame)), Kind: p.Kind, Bytes: frame}
	switch p.Kind {
	case KindSegment:
		s, f := DecodeSegment(u)
		if f != nil || s.FirstTS != p.First || s.LastTS != p.Last || s.Rows != p.Count || int64(len(s.Bytes)) != p.Bytes || string(s.Stream) != string(p.Stream) {
			t.Errorf("Segment at %d: %+v", off, p)
		}
	case KindRows:
		r, f := DecodeRows(u)
		if f != nil || r.Seq != p.Seq || uint64(r.Count) != p.Count || p.Rows.Count != r.Count || r.Source != p.Source {
			t.Errorf("Rows at %d: %+v", off, p)
		}
	case KindHandshake:
		h, f := DecodeHandshake(u)
		if f != nil || h.HasUUID != p.HasUUID || string(h.UUID) != string(p.UUID) {
			t.Errorf("Handshake at %d: %+v", off, p)
		}
	}
}
