package wire

// Type says how a field's value is to be read and shown.
type Type uint8

const (
	// TypeNone is an optional value that is absent.
	TypeNone Type = iota
	// TypeUint is an unsigned number in Num.
	TypeUint
	// TypeInt is a signed number in Num, two's complement.
	TypeInt
	// TypeBool is 0 or 1 in Num.
	TypeBool
	// TypeEnum is a number in Num whose name, if it has one, is in Note.
	TypeEnum
	// TypeTime is nanoseconds since 1970 in Num, two's complement.
	TypeTime
	// TypeDuration is nanoseconds in Num, two's complement.
	TypeDuration
	// TypeFloat is the bits of a float64 in Num.
	TypeFloat
	// TypeText is valid UTF-8 in Bytes.
	TypeText
	// TypeHex is a short value shown whole in hex: a hash, a key, a nonce.
	TypeHex
	// TypeBlob is bytes shown as a length and a hash.
	TypeBlob
	// TypePair is two or more unsigned numbers that form one value, such as a
	// 128-bit index state; its children are the numbers.
	TypePair
	// TypeList has Count children without names of their own.
	TypeList
	// TypeMap has Count children, each a key in Name with its text.
	TypeMap
	// TypeRecord has Count named children.
	TypeRecord
)

// Field is a part of a unit with its place. It aliases the unit's bytes.
type Field struct {
	// Name in the specification's words; for a map's child the key.
	Name string
	// Offset in the connection and Length in bytes, a length prefix included.
	Offset int64
	Length int64
	Type   Type
	Num    uint64
	Bytes  []byte
	// Note is a few words beside the value: an enum's name, a reading.
	Note string
	// Count is how many children there are. They are made as they are asked
	// for, so that a frame with 100,000 rows opens at once.
	Count int
	// Make appends the children from number from on, at most n, to dst.
	Make func(dst []Field, from, n int) []Field
	// ByteOffset is where Bytes starts in the connection.
	ByteOffset int64
}

// Children appends the children numbered from to from+n-1 to dst, as far as
// there are any.
func (f *Field) Children(dst []Field, from, n int) []Field {
	if f.Make == nil || from < 0 || from >= f.Count || n <= 0 {
		return dst
	}
	return f.Make(dst, from, min(n, f.Count-from))
}

// Fixed is a Make for children that are there already.
func Fixed(fields []Field) func([]Field, int, int) []Field {
	return func(dst []Field, from, n int) []Field { return append(dst, fields[from:from+n]...) }
}

// childBatch is how many children of a field are made at a time to look at all.
const childBatch = 256

// AnyStream says that one of the streams that fields tell of, a frame's own or
// one of its rows', is one that is asked for. The name aliases the unit's bytes.
func AnyStream(fields []Field, is func(name []byte) bool) bool {
	var kids []Field
	for i := range fields {
		f := &fields[i]
		if f.Type == TypeText && f.Name == "stream" && is(f.Bytes) {
			return true
		}
		if f.Type != TypeList && f.Type != TypeRecord {
			continue
		}
		for from := 0; from < f.Count; from += childBatch {
			kids = f.Children(kids[:0], from, childBatch)
			if AnyStream(kids, is) {
				return true
			}
		}
	}
	return false
}
