package wire

import (
	"math"
	"strconv"
)

// AppendJSON appends the fields as one JSON object, in their order: the
// `fields` of an inspect line. Numbers are exact decimal integers, times and
// durations nanoseconds, an enum its number, a blob {"length", "sha256"} with
// the hash that hash gives. It is the one rendering that the native and the
// WebAssembly build share.
func AppendJSON(dst []byte, fields []Field, hash func([]byte) [32]byte) []byte {
	dst = append(dst, '{')
	for i := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendJSONString(dst, fields[i].Name)
		dst = append(dst, ':')
		dst = AppendJSONValue(dst, &fields[i], hash)
	}
	return append(dst, '}')
}

// jsonBatch is how many children are made at a time.
const jsonBatch = 256

// AppendJSONValue appends one field's value.
func AppendJSONValue(dst []byte, f *Field, hash func([]byte) [32]byte) []byte {
	switch f.Type {
	case TypeNone:
		return append(dst, "null"...)
	case TypeUint, TypeEnum:
		return strconv.AppendUint(dst, f.Num, 10)
	case TypeInt, TypeTime, TypeDuration:
		return strconv.AppendInt(dst, int64(f.Num), 10)
	case TypeBool:
		return strconv.AppendBool(dst, f.Num != 0)
	case TypeFloat:
		v := math.Float64frombits(f.Num)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return AppendJSONString(dst, strconv.FormatFloat(v, 'g', -1, 64))
		}
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case TypeText:
		return AppendJSONString(dst, string(f.Bytes))
	case TypeHex:
		dst = append(dst, '"')
		dst = AppendHex(dst, f.Bytes)
		return append(dst, '"')
	case TypeBlob:
		sum := hash(f.Bytes)
		dst = append(dst, `{"length":`...)
		dst = strconv.AppendInt(dst, int64(len(f.Bytes)), 10)
		dst = append(dst, `,"sha256":"`...)
		dst = AppendHex(dst, sum[:])
		return append(dst, `"}`...)
	}
	named := f.Type == TypeMap || f.Type == TypeRecord
	open, shut := byte('['), byte(']')
	if named {
		open, shut = '{', '}'
	}
	dst = append(dst, open)
	var batch []Field
	for from := 0; from < f.Count; from += len(batch) {
		batch = f.Children(batch[:0], from, jsonBatch)
		if len(batch) == 0 {
			break
		}
		for i := range batch {
			if from+i > 0 {
				dst = append(dst, ',')
			}
			if named {
				dst = AppendJSONString(dst, batch[i].Name)
				dst = append(dst, ':')
			}
			dst = AppendJSONValue(dst, &batch[i], hash)
		}
	}
	return append(dst, shut)
}

// AppendJSON appends the finding as a JSON object: the value of `finding` in an
// inspect line and an element of a report's `findings`. Empty parts are left out.
func (f *Finding) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":`...)
	dst = AppendJSONString(dst, f.Kind)
	text := func(name, v string, always bool) {
		if v == "" && !always {
			return
		}
		dst = append(dst, ',', '"')
		dst = append(dst, name...)
		dst = append(dst, '"', ':')
		dst = AppendJSONString(dst, v)
	}
	text("connection", f.Connection, true)
	text("file", f.File, true)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, f.Offset, 10)
	if f.At > 0 {
		dst = append(dst, `,"at":`...)
		dst = strconv.AppendInt(dst, f.At, 10)
	}
	if f.Length > 0 {
		dst = append(dst, `,"length":`...)
		dst = strconv.AppendInt(dst, f.Length, 10)
	}
	text("field", f.Field, false)
	text("expected", f.Want, false)
	text("found", f.Got, false)
	text("message", f.Message, true)
	text("cost", f.Cost, false)
	return append(dst, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (f Finding) MarshalJSON() ([]byte, error) { return f.AppendJSON(nil), nil }
