package dendro

import (
	"encoding/binary"

	"wiretape/wire"
)

// Envelope gives what is in front of a frame's payload, len and kind, and for
// the preamble its magic and version. It is apart from [Decoder.Fields] because
// an Index has a kind of its own.
func (d *Decoder) Envelope(u wire.Unit) []wire.Field {
	var f []wire.Field
	switch {
	case u.Type == wire.UnitPreamble && len(u.Bytes) >= PreambleSize:
		f = append(f,
			wire.Field{Name: "magic", Offset: u.Offset, Length: int64(len(Magic)), Type: wire.TypeText,
				Bytes: u.Bytes[:len(Magic)], ByteOffset: u.Offset},
			wire.Field{Name: "version", Offset: u.Offset + int64(len(Magic)), Length: 2, Type: wire.TypeUint,
				Num: uint64(binary.LittleEndian.Uint16(u.Bytes[len(Magic):]))})
	case u.Type == wire.UnitFrame && len(u.Bytes) >= LenSize:
		f = append(f, wire.Field{Name: "len", Offset: u.Offset, Length: LenSize, Type: wire.TypeUint,
			Num: uint64(binary.LittleEndian.Uint32(u.Bytes))})
		if len(u.Bytes) >= frameHead {
			f = append(f, wire.Field{Name: "kind", Offset: u.Offset + LenSize, Length: 1, Type: wire.TypeEnum,
				Num: uint64(u.Bytes[LenSize]), Note: KindName(u.Kind)})
		}
	}
	return f
}

// Fields gives the payload's fields in the specification's order and words; an
// unknown kind's payload is one blob, `payload`. The rows of a Rows frame and
// the pairs of a map are made as they are asked for.
func (d *Decoder) Fields(u wire.Unit) ([]wire.Field, *wire.Finding) {
	if u.Type != wire.UnitFrame {
		return nil, nil
	}
	if f := zeroLength(u); f != nil {
		return nil, &f.Finding
	}
	c := begin(u)
	c.trace = true
	if !c.payload() && !c.short {
		b := c.b[c.p:]
		c.p = len(c.b)
		c.note("payload", frameHead, wire.TypeBlob, 0, b, frameHead)
		c.short = len(c.b) < c.size
	}
	if f := c.whole(); f != nil {
		return c.fields, &f.Finding
	}
	return c.fields, nil
}

// step remembers where in a list the last child made ends, so that children
// asked for in their order are not looked for from the start each time.
type step struct{ index, pos int }

// children makes a map's pairs.
func (m Map) children() func([]wire.Field, int, int) []wire.Field {
	var last step
	return func(dst []wire.Field, from, n int) []wire.Field {
		if from < last.index {
			last = step{}
		}
		for ; n > 0 && last.pos < len(m.pairs); last.index++ {
			b := m.pairs[last.pos:]
			k, v, rest := pair(b)
			at := m.at + 4 + int64(last.pos)
			size := len(b) - len(rest)
			if last.index >= from {
				dst = append(dst, wire.Field{Name: string(k), Offset: at, Length: int64(size),
					Type: wire.TypeText, Bytes: v, ByteOffset: at + 8 + int64(len(k))})
				n--
			}
			last.pos += size
		}
		return dst
	}
}

// rowChildren makes the records of checked rows.
func rowChildren(records []byte, at int64) func([]wire.Field, int, int) []wire.Field {
	var last step
	return func(dst []wire.Field, from, n int) []wire.Field {
		if from < last.index {
			last = step{}
		}
		rest := Rows{records: records[last.pos:], at: at + int64(last.pos)}
		for row := range rest.All() {
			if n == 0 {
				break
			}
			if last.index >= from {
				dst = append(dst, rowField(row))
				n--
			}
			last.index++
			last.pos += int(row.Length)
		}
		return dst
	}
}

func rowField(r Row) wire.Field {
	n := int64(len(r.Stream))
	ts := r.Offset + rowStreamLen + n
	return wire.Field{Offset: r.Offset, Length: r.Length, Type: wire.TypeRecord, Count: 4,
		Make: wire.Fixed([]wire.Field{
			{Name: "stream", Offset: r.Offset, Length: rowStreamLen + n, Type: wire.TypeText,
				Bytes: r.Stream, ByteOffset: r.Offset + rowStreamLen},
			{Name: "ts", Offset: ts, Length: 8, Type: wire.TypeTime, Num: uint64(r.TS)},
			{Name: "wall_offset", Offset: ts + 8, Length: 8, Type: wire.TypeDuration, Num: uint64(r.WallOffset)},
			{Name: "row", Offset: ts + 16, Length: 4 + int64(len(r.Row)), Type: wire.TypeBlob,
				Bytes: r.Row, ByteOffset: ts + rowFixed},
		})}
}
