package inspect

import (
	"bufio"
	"strconv"

	"wiretape/capture"
	"wiretape/wire"
)

// jsonLines writes one JSON object to a line: frames and findings, in their
// order. See docs/inspect-json.md.
type jsonLines struct {
	w    *bufio.Writer
	buf  []byte
	kids []wire.Field
	hex  bool
}

func (j *jsonLines) begin(*capture.Connection) error { return nil }

func (j *jsonLines) end(*capture.Connection, wire.Ending, int64, int64, int64) error { return nil }

func (j *jsonLines) raw(c *capture.Connection, at int64, bytes []byte) error {
	b := append(j.buf[:0], `{"connection":`...)
	b = wire.AppendJSONString(b, c.ID)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, at, 10)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, int64(len(bytes)), 10)
	b = append(b, `,"name":"bytes","hex":"`...)
	b = append(wire.AppendHex(b, bytes), "\"}\n"...)
	j.write(b)
	return nil
}

func (j *jsonLines) rest(int64) error { return nil }

func (j *jsonLines) frame(f *frame) error {
	if f.unit.Type != wire.UnitFrame {
		return nil
	}
	j.open(f)
	return j.shut(f)
}

// open writes a frame's line up to and with its fields. A frame may have
// millions of rows: they are written as they are made.
func (j *jsonLines) open(f *frame) {
	b := append(j.buf[:0], `{"connection":`...)
	b = wire.AppendJSONString(b, f.conn.ID)
	b = append(b, `,"file":`...)
	b = wire.AppendJSONString(b, f.file.Name)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, f.unit.Offset, 10)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, f.unit.Size, 10)
	b = append(b, `,"kind":`...)
	b = strconv.AppendUint(b, uint64(f.unit.Kind), 10)
	b = append(b, `,"name":`...)
	b = wire.AppendJSONString(b, f.name)
	b = append(b, `,"fields":{`...)
	fields, _ := f.dec.Fields(f.unit)
	for i := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendJSONString(b, fields[i].Name)
		b = append(b, ':')
		if fields[i].Type != wire.TypeList {
			b = wire.AppendJSONValue(b, &fields[i], hash)
			continue
		}
		j.list(b, &fields[i], func(b []byte, kid *wire.Field) []byte { return wire.AppendJSONValue(b, kid, hash) })
		b = j.buf[:0]
	}
	j.write(append(b, '}'))
}

// write hands b to the output and keeps its room.
func (j *jsonLines) write(b []byte) {
	j.w.Write(b) // the first error sticks and is given by Flush
	j.buf = b[:0]
}

// list writes what is in b and then f's children as a JSON list.
func (j *jsonLines) list(b []byte, f *wire.Field, each func(b []byte, kid *wire.Field) []byte) {
	b = append(b, '[')
	for from := 0; from < f.Count; from += batch {
		j.kids = f.Children(j.kids[:0], from, batch)
		for i := range j.kids {
			if from+i > 0 {
				b = append(b, ',')
			}
			b = each(b, &j.kids[i])
		}
		j.write(b)
		b = j.buf
	}
	j.write(append(b, ']'))
}

func (j *jsonLines) shut(f *frame) error {
	b := j.buf[:0]
	if j.hex {
		b = append(b, `,"hex":"`...)
		b = wire.AppendHex(b, f.unit.Bytes)
		b = append(b, '"')
	}
	b = append(b, "}\n"...)
	j.buf = b[:0]
	_, err := j.w.Write(b)
	return err
}

// detail adds the parts with their places.
func (j *jsonLines) detail(f *frame) error {
	j.open(f)
	b := append(j.buf[:0], `,"frame":`...)
	b = strconv.AppendInt(b, f.number, 10)
	switch {
	case f.missing < 0:
		b = append(b, `,"missing_before":null`...)
	case f.missing > 0:
		b = append(b, `,"missing_before":`...)
		b = strconv.AppendInt(b, f.missing, 10)
	}
	b = append(b, `,"parts":[`...)
	all := parts(f)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		if all[i].Type != wire.TypeList {
			b = appendPart(b, &all[i])
			continue
		}
		j.list(append(appendPlace(b, &all[i]), `,"parts":`...), &all[i], appendPart)
		b = append(j.buf[:0], '}')
	}
	j.write(append(b, ']'))
	return j.shut(f)
}

// appendPlace begins a part's object.
func appendPlace(b []byte, f *wire.Field) []byte {
	b = append(b, `{"name":`...)
	b = wire.AppendJSONString(b, f.Name)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, f.Offset, 10)
	b = append(b, `,"length":`...)
	b = strconv.AppendInt(b, f.Length, 10)
	if f.Note != "" {
		b = append(b, `,"note":`...)
		b = wire.AppendJSONString(b, f.Note)
	}
	return b
}

func appendPart(b []byte, f *wire.Field) []byte {
	b = appendPlace(b, f)
	switch f.Type {
	case wire.TypeList, wire.TypeMap, wire.TypeRecord:
		b = append(b, `,"parts":[`...)
		var kids []wire.Field
		for from := 0; from < f.Count; from += batch {
			kids = f.Children(kids[:0], from, batch)
			for i := range kids {
				if from+i > 0 {
					b = append(b, ',')
				}
				b = appendPart(b, &kids[i])
			}
		}
		b = append(b, ']')
	default:
		b = append(b, `,"value":`...)
		b = wire.AppendJSONValue(b, f, hash)
	}
	return append(b, '}')
}

func (j *jsonLines) finding(f *wire.Finding) error {
	b := append(j.buf[:0], `{"finding":`...)
	b = f.AppendJSON(b)
	j.buf = append(b, "}\n"...)
	_, err := j.w.Write(j.buf)
	return err
}

// parts are all fields of a frame with what is around its payload.
func parts(f *frame) []wire.Field {
	var all []wire.Field
	if e, ok := f.dec.(wire.Enveloped); ok {
		all = e.Envelope(f.unit)
	}
	fields, _ := f.dec.Fields(f.unit)
	return append(all, fields...)
}
