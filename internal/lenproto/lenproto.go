// Package lenproto is the smallest protocol that has all that a capture asks of
// one: a preamble, frames that end where their length says, kinds, and a session
// state that goes into sidecars. Tests of capture use it, so that they hold for
// every protocol and not by a rule of a real one.
//
// A stream is "LEN1", then frames of a little-endian uint32 length (1 to
// MaxPayload) and that many bytes, of which the first is the kind. The session
// state is the number of frames so far.
package lenproto

import (
	"encoding/binary"
	"math/rand/v2"

	"wiretape/wire"
)

// Name is the protocol's name in sidecars.
const Name = "lenproto"

// Protocol implements wire.Protocol.
type Protocol struct{}

// MaxPayload is the largest length of a frame.
const MaxPayload = 1 << 20

// Registry knows this protocol only.
var Registry = wire.Registry{Protocol{}}

// Name implements [wire.Protocol].
func (Protocol) Name() string { return Name }

// KindName implements [wire.Protocol].
func (Protocol) KindName(kind uint32) string {
	if kind < 4 {
		return "Kind" + wire.Itoa(int64(kind))
	}
	return ""
}

// Detect implements [wire.Protocol].
func (Protocol) Detect(p []byte, end bool) (wire.Match, wire.Direction) {
	n := min(len(p), 4)
	if string(p[:n]) != "LEN1"[:n] {
		return wire.NoMatch, wire.DirectionUnknown
	}
	if n < 4 {
		return wire.MoreNeeded, wire.DirectionUnknown
	}
	return wire.Matched, wire.Downstream
}

// Open implements [wire.Protocol].
func (Protocol) Open(c wire.Config) (wire.Decoder, error) {
	d := &decoder{}
	if c.Context != nil {
		d.preamble = true
		for _, e := range c.Context.Entries {
			if v, ok := e.Value("seen"); ok {
				d.seen = v.Num
			}
		}
	}
	return d, nil
}

type decoder struct {
	preamble bool
	seen     uint64
}

func (d *decoder) Head(b []byte, end bool) wire.Head {
	if len(b) < 4 {
		return wire.Head{Type: wire.UnitMore, Size: 4}
	}
	if !d.preamble {
		if string(b[:4]) != "LEN1" {
			return wire.Head{Type: wire.UnitLost, Finding: &wire.Finding{Kind: wire.KindBadPreamble, Message: "no LEN1 preamble"}}
		}
		return wire.Head{Type: wire.UnitPreamble, Size: 4, Peek: 4}
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > MaxPayload {
		return wire.Head{Type: wire.UnitLost, Finding: &wire.Finding{Kind: wire.KindBadLength, Message: "impossible length"}}
	}
	h := wire.Head{Type: wire.UnitFrame, Size: 4 + int64(n), Peek: 5}
	if len(b) > 4 {
		h.Kind = uint32(b[4])
	}
	return h
}

func (d *decoder) Observe(u wire.Unit, f []wire.Finding) []wire.Finding {
	switch u.Type {
	case wire.UnitPreamble:
		d.preamble = true
	case wire.UnitFrame:
		d.seen++
	}
	return f
}

func (d *decoder) Info(u wire.Unit) wire.Info { return wire.Info{Name: Protocol{}.KindName(u.Kind)} }

func (d *decoder) Fields(u wire.Unit) ([]wire.Field, *wire.Finding) { return nil, nil }

func (d *decoder) Context(limit int) *wire.Context {
	if !d.preamble {
		return nil
	}
	return &wire.Context{Protocol: Name, Version: 1, Entries: []wire.ContextEntry{{Values: []wire.ContextValue{{Name: "seen", Num: d.seen}}}}}
}

// Stream makes a stream of frames whose payloads have sizes up to maxSize,
// and gives the offset behind each unit.
func Stream(seed uint64, frames, maxSize int) (stream []byte, ends []int64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	stream = []byte("LEN1")
	ends = append(ends, 0, 4)
	for range frames {
		n := 1 + rng.IntN(maxSize)
		stream = binary.LittleEndian.AppendUint32(stream, uint32(n))
		stream = append(stream, byte(rng.IntN(4)))
		for range n - 1 {
			stream = append(stream, byte(rng.Uint32()))
		}
		ends = append(ends, int64(len(stream)))
	}
	return stream, ends
}

// Boundary says that a unit of a stream begins or ends at an offset.
func Boundary(stream []byte, off int64) bool {
	at := int64(min(4, len(stream)))
	for off != 0 && at < off && at+4 <= int64(len(stream)) {
		at += 4 + int64(binary.LittleEndian.Uint32(stream[at:]))
	}
	return off == 0 || at == off
}
