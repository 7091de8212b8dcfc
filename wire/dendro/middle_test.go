package dendro_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// seen is a unit and what the rules made of it.
type seen struct {
	at   place
	what dendro.Disposition
}

// readNamed reads a stream of which somebody says that it is one of dendro.
func readNamed(t testing.TB, b []byte) (units []seen, found []wire.Finding) {
	t.Helper()
	dec, err := dendro.NewDecoder(wire.Config{Named: true})
	if err != nil {
		t.Fatal(err)
	}
	rd := wire.NewReader(bytes.NewReader(b), dec, wire.ReaderOptions{})
	for {
		u, fs, err := rd.Next()
		found = append(found, fs...)
		if err == io.EOF {
			return units, found
		}
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, seen{place{u.Type, u.Offset, u.Size, u.Kind}, dec.Last().Disposition})
	}
}

// A stream that begins anywhere, as --from-middle reads it: every frame from the
// first Handshake on is read, none before it, and what was passed is a finding.
// A frame that needs what is gone with the beginning is not applied.
func TestStreamsThatBeginAnywhere(t *testing.T) {
	for _, name := range []string{"rehandshake", "late-handshake", "two-handshakes-same-uuid", "source-update", "gap", "clean-complete"} {
		stream, err := os.ReadFile("testdata/crafted/" + name + ".stream")
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := readNamed(t, stream)
		applied := map[int64]dendro.Disposition{}
		for _, u := range whole {
			applied[u.at.offset] = u.what
		}
		for cut := 1; cut <= len(stream); cut++ {
			at := fmt.Sprintf("%s from byte %d on", name, cut)
			var want []place
			for _, u := range whole {
				if int(u.at.offset) >= cut && u.at.t == wire.UnitFrame && (len(want) > 0 || u.at.kind == dendro.KindHandshake) {
					want = append(want, u.at)
				}
			}
			got, found := readNamed(t, stream[cut:])
			for i, u := range got {
				u.at.offset += int64(cut)
				if i >= len(want) || u.at != want[i] {
					t.Fatalf("%s: frame %d is %+v, want %+v", at, i, u.at, want)
				}
				if u.what == dendro.Applied && applied[u.at.offset] != dendro.Applied {
					t.Errorf("%s: the frame at %d is applied, and is not in the whole stream", at, u.at.offset)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%s: %d frames, want %d", at, len(got), len(want))
			}
			first := int64(len(stream) - cut)
			if len(want) > 0 {
				first = want[0].offset - int64(cut)
			}
			if cut == len(stream) {
				continue // nothing: said as of any stream
			}
			if len(found) == 0 || found[0].Kind != wire.KindBadPreamble || found[0].Offset != 0 || found[0].Length != first {
				t.Fatalf("%s: found %+v, want bad-preamble over %d bytes", at, found, first)
			}
		}
	}
}

// The same in whatever pieces the bytes come.
func TestBeginsAnywhereInPieces(t *testing.T) {
	stream, err := os.ReadFile("testdata/crafted/late-handshake.stream")
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(stream); cut++ {
		want, _ := readNamed(t, stream[cut:])
		dec, err := dendro.NewDecoder(wire.Config{Named: true})
		if err != nil {
			t.Fatal(err)
		}
		got := scan(dec, stream[cut:], 0, func() int { return 1 + cut%7 })
		if len(got.places) != len(want) {
			t.Fatalf("from byte %d on: %d units in pieces, %d at once", cut, len(got.places), len(want))
		}
		for i := range want {
			if got.places[i] != want[i].at {
				t.Fatalf("from byte %d on: unit %d is %+v in pieces, %+v at once", cut, i, got.places[i], want[i].at)
			}
		}
	}
}

// A capture file from the middle that has no sidecar begins with a frame as far as
// anybody knows. Where one begins there all are read; where none does, those from
// the first Handshake on.
func TestFilesThatBeginAnywhere(t *testing.T) {
	for _, name := range []string{"rehandshake", "late-handshake", "two-handshakes-same-uuid", "source-update", "held-segment"} {
		stream, err := os.ReadFile("testdata/crafted/" + name + ".stream")
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := readNamed(t, stream)
		for cut := dendro.PreambleSize; cut < len(stream); cut++ {
			at := fmt.Sprintf("%s from byte %d on", name, cut)
			boundary := slices.ContainsFunc(whole, func(u seen) bool { return int(u.at.offset) == cut })
			var want []place
			for _, u := range whole {
				if int(u.at.offset) >= cut && (boundary || len(want) > 0 || u.at.kind == dendro.KindHandshake) {
					want = append(want, u.at)
				}
			}
			dec, err := dendro.NewDecoder(wire.Config{Named: true, Context: wire.MidStream(dendro.Name)})
			if err != nil {
				t.Fatal(err)
			}
			rd := wire.NewReader(bytes.NewReader(stream[cut:]), dec, wire.ReaderOptions{Offset: int64(cut)})
			var got []place
			lost, credited := false, false
			for {
				u, fs, err := rd.Next()
				for _, f := range fs {
					lost = lost || f.Kind == wire.KindLost && f.Offset == int64(cut)
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(at, err)
				}
				credited = credited || u.Kind == dendro.KindHandshake
				if dec.Last().Disposition == dendro.Applied && !credited {
					t.Fatalf("%s: the frame at %d is applied before a Handshake came", at, u.Offset)
				}
				got = append(got, place{u.Type, u.Offset, u.Size, u.Kind})
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: frames %+v, want %+v", at, got, want)
			}
			if lost == boundary {
				t.Fatalf("%s: found that the framing is lost: %v", at, lost)
			}
		}
	}
}

// Zeros at the beginning are a part of some frame: none is taken to start behind
// them but a Handshake.
func TestBeginsInZeros(t *testing.T) {
	stream, err := os.ReadFile("testdata/crafted/gap.stream")
	if err != nil {
		t.Fatal(err)
	}
	frames := stream[dendro.PreambleSize:]
	for n := 1; n < 40; n++ {
		// The byte behind the zeros would make of the next ones a frame.
		b := append(append(make([]byte, n), 9, 0, 0, 0, 77), frames...)
		got, found := readNamed(t, b)
		if len(got) == 0 || got[0].at.offset != int64(n+5) || got[0].at.kind != dendro.KindHandshake {
			t.Fatalf("behind %d zeros: %+v, %+v", n, got, found)
		}
	}
}
