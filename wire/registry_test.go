package wire_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
	"wiretape/wire/protocols"
)

// TestDetect: every real dendro stream is told by its first bytes, foreign files
// are told to be none, and a detector never asks for more than its limit.
func TestDetect(t *testing.T) {
	reg := protocols.All()
	names, err := filepath.Glob("dendro/testdata/*/*.stream")
	if err != nil || len(names) < 50 {
		t.Fatal("fixtures are missing", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, dir, more := reg.Detect(b, true)
		switch {
		case strings.HasSuffix(name, "bad-magic.stream"), strings.HasSuffix(name, "truncated-in-magic.stream"), len(b) == 0:
			if p != nil && p.Name() == dendro.Name && len(b) < 6 {
				t.Errorf("%s is told from %d bytes", name, len(b))
			}
		case p == nil || p.Name() != dendro.Name || dir != wire.Downstream || more:
			t.Errorf("%s: %v, %v, more %v", name, p, dir, more)
		}
	}
	for _, s := range []string{"", "\xff\xd8\xff\xe0\x00\x10JFIF", "SQLite format 3\x00", strings.Repeat("\x00", 5000), "PAR1", "GET / HTTP/1.1\r\n"} {
		if p, _, more := reg.Detect([]byte(s), true); p != nil || more {
			t.Errorf("%.20q is %v, more %v", s, p, more)
		}
	}
	if p, _, more := reg.Detect([]byte("den"), false); p != nil || !more {
		t.Errorf("three bytes: %v, more %v", p, more)
	}
	if reg.Named("dendro") == nil || reg.Named("none") != nil {
		t.Error("names")
	}
	for _, p := range reg {
		d, err := p.Open(wire.Config{Context: wire.MidStream(p.Name())})
		if err != nil {
			t.Errorf("%s refuses the middle of a stream: %v", p.Name(), err)
			continue
		}
		if h := d.Head(nil, true); h.Finding != nil {
			t.Errorf("%s misses a preamble in the middle of a stream", p.Name())
		}
	}
}

func TestDirection(t *testing.T) {
	for _, d := range []wire.Direction{wire.DirectionUnknown, wire.Downstream, wire.Upstream} {
		if wire.ParseDirection(d.String()) != d {
			t.Error(d)
		}
	}
	if wire.ParseDirection("sideways") != wire.DirectionUnknown {
		t.Error("sideways")
	}
}

// TestScannerBounds: the scanner holds no more of a unit than its limit, passes
// the rest unseen where it is told to, and knows its boundaries.
func TestScannerBounds(t *testing.T) {
	d, err := dendro.NewDecoder(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stream := dendro.AppendPreamble(nil)
	labels := dendro.NewMap(map[string]string{"host": strings.Repeat("h", 5000)})
	stream = dendro.AppendHandshake(stream, &dendro.Handshake{Source: 3, Labels: labels})
	hello := len(stream)
	stream = dendro.AppendSegment(stream, &dendro.Segment{Source: 3, Stream: []byte("cpu"), Rows: 1, Bytes: make([]byte, 100_000)})
	s := wire.NewScanner(d, 0, 1000)
	n, u, done := s.Next(stream)
	if n != dendro.PreambleSize || !done || u.Type != wire.UnitPreamble || !s.AtBoundary() {
		t.Fatalf("the preamble: %d, %+v, %v", n, u, done)
	}
	p := stream[n:]
	n, u, done = s.Next(p[:hello-dendro.PreambleSize])
	if !done || len(u.Bytes) != 1000 || int(u.End()) != hello || !s.AtBoundary() || s.Offset() != int64(hello) {
		t.Fatalf("a Handshake above the limit: %d of its %d bytes, %v", len(u.Bytes), u.Size, done)
	}
	p = p[n:]
	n, _, done = s.Next(p[:60])
	if n != 60 || done || s.AtBoundary() || s.Boundary() != int64(hello) {
		t.Fatalf("60 bytes of a Segment: %d, %v", n, done)
	}
	if want := int64(len(p) - 60); s.Skippable() != want {
		t.Fatalf("skippable %d, want %d", s.Skippable(), want)
	}
	if _, done = s.Skip(100); done {
		t.Fatal("done by 100 bytes")
	}
	u, done = s.Skip(1 << 40)
	if !done || int(u.End()) != len(stream) || len(u.Bytes) == 0 || len(u.Bytes) > 1000 || !s.AtBoundary() {
		t.Fatalf("the Segment: %+v, %v", u, done)
	}
	// The ordinal is known although its Handshake was not held whole: but it
	// can't be handed on.
	if f := s.Findings(); len(f) > 0 {
		t.Errorf("found %+v", f)
	}
	if c := d.Context(1 << 20); len(c.Entries) != 0 || len(c.Omitted) != 1 {
		t.Errorf("the context is %+v", c)
	}
	if s.Finish() != wire.EndingClean {
		t.Error("not clean")
	}
}
