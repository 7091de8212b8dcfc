package dendro_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// openings reads a stream with a decoder and gives the opening after each unit,
// by the unit's end.
func openings(t *testing.T, b []byte, from int, c wire.Config) map[int64]dendro.Opening {
	t.Helper()
	dec, err := dendro.NewDecoder(c)
	if err != nil {
		t.Fatal(err)
	}
	at := map[int64]dendro.Opening{}
	rd := wire.NewReader(bytes.NewReader(b[from:]), dec, wire.ReaderOptions{Offset: int64(from)})
	for {
		u, _, err := rd.Next()
		if err == io.EOF {
			return at
		}
		if err != nil {
			t.Fatal(err)
		}
		at[u.End()] = dec.Opening()
	}
}

// The opening is the same from every context, by the reader and by the scanner
// that a recorder uses in pieces of any size, with a skimmer in between, and for
// a stream that lacks its preamble; and two connections of one publisher differ.
func TestOpening(t *testing.T) {
	last := map[[dendro.OpeningSize]byte]string{}
	for _, name := range []string{"reconnect/c1", "reconnect/c2", "real/live", "crafted/uuid-absent", "crafted/rehandshake", "crafted/unknown-kind"} {
		b, err := os.ReadFile("testdata/" + name + ".stream")
		if err != nil {
			t.Fatal(err)
		}
		whole := openings(t, b, 0, wire.Config{})
		end := whole[int64(len(b))]
		if !end.Known || !end.Whole {
			t.Fatalf("%s: %+v", name, end)
		}
		if other := last[end.Digest]; other != "" && name != other {
			t.Errorf("%s has the opening of %s", name, other)
		}
		last[end.Digest] = name
		if got := openings(t, b, dendro.PreambleSize, wire.Config{Named: true})[int64(len(b))]; got != end {
			t.Errorf("%s without its preamble: %+v, want %+v", name, got, end)
		}
		for _, piece := range []int{1, 7, 4096, len(b)} {
			dec, err := dendro.NewDecoder(wire.Config{})
			if err != nil {
				t.Fatal(err)
			}
			s := wire.NewScanner(dec, 0, 0)
			for rest := b; len(rest) > 0; {
				p := rest[:min(piece, len(rest))]
				rest = rest[len(p):]
				for len(p) > 0 {
					n, u, done := s.Next(p)
					p = p[n:]
					if !done || piece > 7 && u.End() > 4096 {
						continue
					}
					if want := whole[u.End()]; u.Type == wire.UnitFrame && dec.Opening() != want {
						t.Fatalf("%s in pieces of %d, at %d: %+v, want %+v", name, piece, u.End(), dec.Opening(), want)
					}
					// From the context here on it is the same.
					c := dec.Context(1 << 20)
					if c == nil || len(c.Entries) == 0 {
						continue
					}
					if got := openings(t, b, int(u.End()), wire.Config{Context: c})[int64(len(b))]; u.End() < int64(len(b)) && got != end {
						t.Fatalf("%s from the context at %d: %+v, want %+v", name, u.End(), got, end)
					}
				}
			}
			if dec.Opening() != end {
				t.Errorf("%s in pieces of %d: %+v, want %+v", name, piece, dec.Opening(), end)
			}
		}
	}
}

// Keepalives and what is told again at every connect do not end an opening; a
// context without it, and one of another size, are told apart.
func TestOpeningEnds(t *testing.T) {
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 1})
	b = dendro.AppendIndex(b, &dendro.Index{Source: 1, Stream: []byte("x"), TS: 5, Blob: []byte("blob")})
	b = dendro.AppendClockOffset(b, &dendro.ClockOffset{Source: 1, TS: 5})
	b = dendro.AppendRowsOf(b, 1, 1, dendro.State{}, nil)
	open := len(b)
	b = dendro.AppendRowsOf(b, 1, 2, dendro.State{}, []dendro.Row{{Stream: []byte("x"), TS: 6}})
	got := openings(t, b, 0, wire.Config{})
	if got[int64(open)].Whole || !got[int64(len(b))].Whole {
		t.Errorf("%+v", got)
	}
	long := b[:open:open]
	for i := 0; i < dendro.MaxOpeningFrames; i++ {
		long = dendro.AppendRowsOf(long, 1, 2+uint64(i), dendro.State{}, nil)
	}
	got = openings(t, long, 0, wire.Config{})
	for at, o := range got {
		if o.Whole != (o.Frames == dendro.MaxOpeningFrames) || o.Whole && o != got[int64(len(long))] {
			t.Errorf("%d: %+v of a connection without a row", at, o)
		}
	}
	if o := openings(t, b, dendro.PreambleSize, wire.Config{Context: wire.MidStream(dendro.Name)})[int64(len(b))]; o.Known {
		t.Errorf("from the middle: %+v", o)
	}
	dec, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rd := wire.NewReader(bytes.NewReader(b), dec, wire.ReaderOptions{})
	for err == nil {
		_, _, err = rd.Next()
	}
	c := dec.Context(1 << 20)
	for i, v := range c.Entries[0].Values {
		if v.Name == dendro.ValueOpening {
			c.Entries[0].Values[i].Bytes = v.Bytes[1:]
		}
	}
	if _, err := dendro.NewDecoder(wire.Config{Context: c}); err == nil {
		t.Error("an opening of another size was taken")
	}
}
