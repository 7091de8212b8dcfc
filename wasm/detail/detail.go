// Package detail is one frame opened: its fields as a tree whose children are
// made as they are looked at, the field at a byte, and what is found in it when
// all of it is checked.
package detail

import (
	"strconv"
	"unicode/utf8"

	"wiretape/wasm/packed"
	"wiretape/wire"
)

const (
	// MaxText is how many bytes of a text are shown in the tree.
	MaxText = 4096
	// MaxHex is how many bytes of a short value are shown in hex.
	MaxHex = 512
	// MaxChildren is how many children are given at a time.
	MaxChildren = 1000
	// maxPreview is how many bytes of a blob are shown beside its length.
	maxPreview = 48
	// locateBatch is how many children are looked through at a time.
	locateBatch = 512
)

// enveloper is a decoder that shows what is in front of a payload apart from
// the payload's own fields.
type enveloper interface {
	Envelope(wire.Unit) []wire.Field
}

// Detail is one unit opened.
type Detail struct {
	unit     wire.Unit
	envelope int // how many of fields are the envelope
	fields   []wire.Field
	findings []wire.Finding
	info     wire.Info
}

// Open decodes a unit, which must be whole, under the state that holds before
// it. It keeps u.Bytes.
func Open(p wire.Protocol, d wire.Direction, c *wire.Context, u wire.Unit) (*Detail, error) {
	dec, err := p.Open(wire.Config{Direction: d, Context: c})
	if err != nil {
		return nil, err
	}
	o := &Detail{unit: u}
	if e, ok := dec.(enveloper); ok {
		o.fields = append(o.fields, e.Envelope(u)...)
		o.envelope = len(o.fields)
	}
	f, fault := dec.Fields(u)
	o.fields = append(o.fields, f...)
	o.findings = dec.Observe(u, nil)
	if fault != nil && !has(o.findings, fault) {
		o.findings = append(o.findings, *fault)
	}
	wire.InUnit(u, o.findings)
	o.info = dec.Info(u)
	return o, nil
}

func has(list []wire.Finding, f *wire.Finding) bool {
	for i := range list {
		if list[i].Kind == f.Kind && list[i].Byte() == f.Byte() {
			return true
		}
	}
	return false
}

// Payload gives the fields of the payload without the envelope.
func (o *Detail) Payload() []wire.Field { return o.fields[o.envelope:] }

// Findings gives what was found in the whole unit.
func (o *Detail) Findings() []wire.Finding { return o.findings }

// AppendSummary appends what is known of the unit beside its fields:
// {"envelope": n, "fields": n, "name": …, "findings": […]}.
func (o *Detail) AppendSummary(dst []byte) []byte {
	dst = append(dst, `{"envelope":`...)
	dst = strconv.AppendInt(dst, int64(o.envelope), 10)
	dst = append(dst, `,"fields":`...)
	dst = strconv.AppendInt(dst, int64(len(o.fields)), 10)
	dst = wire.AppendJSONString(append(dst, `,"name":`...), o.info.Name)
	dst = append(dst, `,"findings":[`...)
	for i := range o.findings {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = o.findings[i].AppendJSON(dst)
	}
	return append(dst, "]}"...)
}

// at finds the field at a path of child numbers.
func (o *Detail) at(path []int) *wire.Field {
	if len(path) == 0 || path[0] < 0 || path[0] >= len(o.fields) {
		return nil
	}
	f := &o.fields[path[0]]
	for _, i := range path[1:] {
		c := f.Children(nil, i, 1)
		if len(c) != 1 {
			return nil
		}
		f = &c[0]
	}
	return f
}

// AppendChildren appends n children of the field at path from number from on,
// the unit's own fields for the empty path, as a JSON array.
func (o *Detail) AppendChildren(dst []byte, path []int, from, n int) []byte {
	var list []wire.Field
	n = min(n, MaxChildren)
	if len(path) == 0 {
		from = min(max(from, 0), len(o.fields))
		list = o.fields[from:min(len(o.fields), from+max(n, 0))]
	} else if f := o.at(path); f != nil {
		list = f.Children(nil, from, n)
	}
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendField(dst, &list[i])
	}
	return append(dst, ']')
}

var typeNames = [...]string{
	wire.TypeNone: "none", wire.TypeUint: "uint", wire.TypeInt: "int", wire.TypeBool: "bool",
	wire.TypeEnum: "enum", wire.TypeTime: "time", wire.TypeDuration: "duration", wire.TypeFloat: "float",
	wire.TypeText: "text", wire.TypeHex: "hex", wire.TypeBlob: "blob", wire.TypePair: "pair",
	wire.TypeList: "list", wire.TypeMap: "map", wire.TypeRecord: "record",
}

// appendField appends what the tree shows of one field. Numbers are strings,
// so that they stay exact; bytes are given by their place.
func appendField(dst []byte, f *wire.Field) []byte {
	dst = wire.AppendJSONString(append(dst, `{"name":`...), wire.SafeText(f.Name, MaxHex))
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, f.Offset, 10)
	dst = append(dst, `,"length":`...)
	dst = strconv.AppendInt(dst, f.Length, 10)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, typeNames[f.Type]...)
	dst = append(dst, '"')
	value := func(s string) { dst = wire.AppendJSONString(append(dst, `,"value":`...), s) }
	switch f.Type {
	case wire.TypeUint, wire.TypeEnum:
		value(wire.Utoa(f.Num))
	case wire.TypeInt, wire.TypeTime, wire.TypeDuration:
		value(wire.Itoa(int64(f.Num)))
	case wire.TypeBool:
		value(strconv.FormatBool(f.Num != 0))
	case wire.TypeFloat:
		value(string(wire.AppendJSONValue(nil, f, nil)))
	case wire.TypeText:
		value(wire.SafeText(string(f.Bytes[:min(len(f.Bytes), 2*MaxText)]), MaxText))
	case wire.TypeHex:
		s := string(wire.AppendHex(nil, f.Bytes[:min(len(f.Bytes), MaxHex)]))
		if len(f.Bytes) > MaxHex {
			s += "…"
		}
		value(s)
	case wire.TypeBlob:
		dst = wire.AppendJSONString(append(dst, `,"preview":`...), preview(f.Bytes))
	}
	if f.Note != "" {
		dst = wire.AppendJSONString(append(dst, `,"note":`...), wire.SafeText(f.Note, MaxHex))
	}
	if f.Count > 0 {
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendInt(dst, int64(f.Count), 10)
	}
	if f.Type == wire.TypeText || f.Type == wire.TypeHex || f.Type == wire.TypeBlob {
		dst = append(dst, `,"byteOffset":`...)
		dst = strconv.AppendInt(dst, f.ByteOffset, 10)
		dst = append(dst, `,"bytes":`...)
		dst = strconv.AppendInt(dst, int64(len(f.Bytes)), 10)
	}
	return append(dst, '}')
}

// preview shows a blob's first bytes: as text where it is text, else in hex.
func preview(b []byte) string {
	more := ""
	if len(b) > maxPreview {
		b, more = b[:maxPreview], "…"
		// A character that the cut went through is no sign against text.
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.Valid(b); i++ {
			b = b[:len(b)-1]
		}
	}
	text := len(b) > 0 && utf8.Valid(b)
	for _, c := range b {
		text = text && (c >= ' ' || c == '\n' || c == '\t')
	}
	if text {
		return "“" + wire.SafeText(string(b), 0) + more + "”"
	}
	return string(wire.AppendHex(nil, b)) + more
}

// Locate gives the path of the deepest field that holds the byte at an offset
// in the connection, nil when none does.
func (o *Detail) Locate(off int64) []int {
	holds := func(f *wire.Field) bool { return off >= f.Offset && off < f.Offset+f.Length }
	var path []int
	var f wire.Field
	for i := range o.fields {
		if holds(&o.fields[i]) {
			f, path = o.fields[i], append(path, i)
			break
		}
	}
	var batch []wire.Field
	for deeper := len(path) > 0; deeper; {
		deeper = false
		for from := 0; from < f.Count && !deeper; from += len(batch) {
			batch = f.Children(batch[:0], from, locateBatch)
			if len(batch) == 0 {
				break
			}
			if batch[0].Offset > off {
				break
			}
			for i := range batch {
				if holds(&batch[i]) {
					path = append(path, from+i)
					f, deeper = batch[i], true
					break
				}
			}
		}
	}
	return path
}

// AppendJSON appends the field at path as its JSON value, the payload's fields
// as an object for the empty path; nil when there is no such field.
func (o *Detail) AppendJSON(dst []byte, path []int, hash func([]byte) [32]byte) []byte {
	if len(path) == 0 {
		return wire.AppendJSON(dst, o.Payload(), hash)
	}
	f := o.at(path)
	if f == nil {
		return nil
	}
	return wire.AppendJSONValue(dst, f, hash)
}

// OpenPacked reads what Open needs from its packed form: protocol, direction,
// context, then the unit's type, offset, size and kind.
func OpenPacked(reg wire.Registry, b, bytes []byte) (*Detail, error) {
	r := packed.NewReader(b)
	p := reg.Named(r.String())
	d := wire.Direction(r.Uint())
	c := r.Context()
	u := wire.Unit{Type: wire.UnitType(r.Uint()), Offset: r.Int(), Size: r.Int(), Kind: uint32(r.Uint()), Bytes: bytes}
	if r.Err() != nil || p == nil || u.Type > wire.UnitLost || int64(len(bytes)) > u.Size {
		return nil, packed.ErrMalformed
	}
	return Open(p, d, c, u)
}
