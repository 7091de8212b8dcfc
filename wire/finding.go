package wire

import "strings"

// Finding is something to report, with its place. wire fills in what it knows;
// who reads files adds the connection and the file.
type Finding struct {
	// Kind is a stable word for programs, one of the Kind constants here or of
	// a protocol's package.
	Kind string
	// Connection and File, where known.
	Connection string
	File       string
	// Offset of the first byte of the frame or stretch concerned, in the
	// connection. Where the fault lies inside a frame, At is the offset of its
	// very byte, else 0. Length is how many bytes from there; 0 is a point.
	// (A decoder puts the byte into Offset; Reader and Scanner, who know the
	// frame, move it.)
	Offset int64
	At     int64
	Length int64
	// Field is the name of the field concerned, in the specification's words.
	Field string
	// Want and Got are what was expected and what was found.
	Want string
	Got  string
	// Message says it in one line for people.
	Message string
	// Cost says what is lost by it, "" when nothing is.
	Cost string
}

// The kinds of findings that do not depend on the protocol.
const (
	// KindCut: the stream ends inside a unit.
	KindCut = "cut"
	// KindZeroTail: from here to the end there are only zeros, as a power loss
	// leaves them.
	KindZeroTail = "zero-filled-tail"
	// KindBadLength: a frame's length is impossible; the framing is lost.
	KindBadLength = "bad-length"
	// KindLost: bytes stepped over because no frame could be found in them.
	KindLost = "framing-lost"
	// KindBadPreamble: the stream does not start as the protocol says.
	KindBadPreamble = "bad-preamble"
	// KindBadVersion: another version of the protocol than is known here.
	KindBadVersion = "bad-version"
	// KindMalformed: a frame whose payload does not decode.
	KindMalformed = "malformed-frame"
	// KindUnknownKind: a frame of a kind that this version does not know.
	KindUnknownKind = "unknown-kind"
	// KindDoubtful: a frame that decodes but reaches into a zero-filled tail.
	KindDoubtful = "doubtful-frame"
)

// Byte is the offset of the very byte concerned.
func (f *Finding) Byte() int64 {
	if f.At > 0 {
		return f.At
	}
	return f.Offset
}

// Place is where a finding lies, for people: the file, or else the connection,
// the offset in the connection of what is concerned, and the very byte in it
// where that is another. "" where none is known.
func (f *Finding) Place() string {
	where := f.File
	if where == "" {
		where = f.Connection
	}
	return f.at(SafeText(where, 120))
}

// at appends where in the connection it is, where there is one.
func (f *Finding) at(where string) string {
	if f.Connection == "" && f.Offset == 0 {
		return where
	}
	if where != "" {
		where += " "
	}
	where += "at " + Itoa(f.Offset)
	if f.At > f.Offset {
		where += ", byte " + Itoa(f.At)
	}
	return where
}

// Line says a finding for people in one line, without its kind: the place, the
// message, and of what was expected and found what the message does not say.
func (f *Finding) Line() string {
	s := SafeText(f.Message, maxMessage)
	more := ""
	if unsaid(f.Message, f.Want) {
		more = "expected " + SafeText(f.Want, 0)
	}
	if unsaid(f.Message, f.Got) {
		if more != "" {
			more += ", "
		}
		more += "found " + SafeText(f.Got, 0)
	}
	if more != "" {
		s += " (" + more + ")"
	}
	place := f.Place()
	if f.File != "" && strings.Contains(f.Message, f.File) {
		place = f.at("") // it is named once
	}
	if place != "" {
		s = place + ": " + s
	}
	return s
}

// CostLine says what a finding costs, for people; "" when it costs nothing.
func (f *Finding) CostLine() string {
	if f.Cost == "" {
		return ""
	}
	return "costs: " + SafeText(f.Cost, maxMessage)
}

const (
	// maxMessage bounds what people are shown of a message. A value longer than
	// maxValue, such as a hash, is for programs.
	maxMessage = 1000
	maxValue   = 60
)

// unsaid tells whether there is a value to be said that a message does not have
// in it: all of it, or the number that it begins with as a word of its own.
func unsaid(message, value string) bool {
	if value == "" || len(value) > maxValue || strings.Contains(message, value) {
		return false
	}
	number, _, _ := strings.Cut(value, " ")
	if number == "" || number[len(number)-1] < '0' || number[len(number)-1] > '9' {
		return true
	}
	for _, word := range strings.FieldsFunc(message, func(r rune) bool { return r == ' ' || r == ',' || r == ':' || r == ';' }) {
		if word == number {
			return false
		}
	}
	return true
}

// InUnit gives findings about a unit the unit's own offset.
func InUnit(u Unit, findings []Finding) {
	for i := range findings {
		if f := &findings[i]; f.At == 0 && f.Offset > u.Offset && f.Offset <= u.End() {
			f.Offset, f.At = u.Offset, f.Offset
		}
	}
}

// Fault is why a unit could not be decoded: a [Finding] as an error.
type Fault struct{ Finding Finding }

// Error is the message alone; the place is in the finding.
func (f *Fault) Error() string { return f.Finding.Message }

// Cut makes the finding of a stream that ended inside a unit: have of want
// bytes are there. want is 0 when the unit's length is not known.
func Cut(offset, have, want int64, what string) Finding {
	f := Finding{Kind: KindCut, Offset: offset, Length: have,
		Got:  Itoa(have) + " bytes",
		Cost: "the partial " + what + " is lost"}
	if want > 0 {
		f.Want = Itoa(want) + " bytes"
		f.Message = "the stream ends inside a " + what + ": got " + Itoa(have) + " of " + Itoa(want) + " bytes"
	} else {
		f.Message = "the stream ends inside a " + what + ": got " + Itoa(have) + " bytes, too few to know its length"
	}
	return f
}
