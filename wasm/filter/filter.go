// Package filter is the expression language of the page's frame list:
//
//	kind == Rows && size > 4K
//	source ~ "host-7" and not finding
//	time >= 2026-11-29T18:00:00Z and time < 2026-11-29T18:05:00Z
//
// An expression joins comparisons by &&, ||, ! (or and, or, not) and
// parentheses. A comparison is a field, an operator (== = != < <= > >=, ~ for
// "contains" without regard to case, !~) and a value: a number, decimal or 0x,
// with K, M or G for its powers of 1024; text, in quotes where it isn't one
// word, with escapes; a time as RFC 3339 in UTC or as nanoseconds since 1970.
// What is quoted is text: source == 2 is the second, source == "2" one that is
// called so. A field alone
// asks whether the row has it. An expression is checked whole before it is
// used, and what is wrong is said with its place.
package filter

import (
	"sort"
	"strings"

	"wiretape/wire"
)

// Subject is a row as an expression sees it.
type Subject struct {
	// Number is the frame's, from 1; 0 of what is no frame.
	Number, Offset, Size int64
	// Type is the row's, such as "frame" or "junk".
	Type string
	// Name is the kind's, and Kind its number where it is a frame.
	Name     string
	HasKind  bool
	Kind     uint32
	Info     wire.Info
	Findings []wire.Finding
	// Streams says that one of the frame's rows is of a stream that is asked
	// for; nil where it has none.
	Streams func(is func(name []byte) bool) bool
}

// Error is what is wrong with an expression, and where: byte offsets in it.
type Error struct {
	From, To int
	Message  string
}

// Error is the message alone.
func (e *Error) Error() string { return e.Message }

// fieldType says what a field may be compared with.
type fieldType uint8

const (
	isNumber fieldType = iota
	isKind
	isText
	isTime
	isArrival
)

// field is one thing that can be asked of a row.
type field struct {
	name string
	typ  fieldType
	// info, summary, findings and streams say what of the row it needs.
	info, summary, findings, streams bool
	// unsigned says that num is to be compared as parseUnsigned reads.
	unsigned bool
	has      func(*Subject) bool
	num      func(*Subject) int64
	text     func(*Subject) string
	about    string
}

func always(*Subject) bool { return true }

var fields = []field{
	{name: "number", typ: isNumber, has: func(s *Subject) bool { return s.Number > 0 }, num: func(s *Subject) int64 { return s.Number }, about: "the frame's number, from 1"},
	{name: "offset", typ: isNumber, has: always, num: func(s *Subject) int64 { return s.Offset }, about: "where it starts in the connection"},
	{name: "size", typ: isNumber, has: always, num: func(s *Subject) int64 { return s.Size }, about: "bytes, length prefix included"},
	{name: "kind", typ: isKind, has: func(s *Subject) bool { return s.HasKind }, num: func(s *Subject) int64 { return int64(s.Kind) }, text: func(s *Subject) string { return s.Name }, about: "the frame's kind, by name or number"},
	{name: "type", typ: isText, has: always, text: func(s *Subject) string { return s.Type }, about: "frame, preamble, junk, lost, cut, zeros, missing"},
	{name: "source", typ: isText, info: true, unsigned: true, has: func(s *Subject) bool { return s.Info.HasSource }, num: func(s *Subject) int64 { return int64(s.Info.Source ^ signBit) }, text: func(s *Subject) string { return s.Info.Label }, about: "whom it is about, by label or number"},
	{name: "stream", typ: isText, info: true, streams: true, has: func(s *Subject) bool { return s.ofStream(func([]byte) bool { return true }) }, about: "the named series that it is about or has rows of"},
	{name: "time", typ: isTime, info: true, has: func(s *Subject) bool { return s.Info.HasTime }, num: func(s *Subject) int64 { return s.Info.Time }, about: "the data's own time"},
	{name: "arrival", typ: isArrival, num: func(s *Subject) int64 { return s.Offset }, about: "when its first byte came: < <= > >="},
	{name: "summary", typ: isText, info: true, summary: true, has: func(s *Subject) bool { return s.Info.Summary != "" }, text: func(s *Subject) string { return s.Info.Summary }, about: "the text of the last column"},
	{name: "finding", typ: isText, findings: true, has: func(s *Subject) bool { return len(s.Findings) > 0 }, about: "a finding's kind or message; alone: any finding"},
}

// Expr is a checked expression.
type Expr struct {
	root                             node
	info, summary, findings, streams bool
	parts                            []Part
	arrivals                         []*Arrival
}

// Part is one of the conditions that an expression joins by ands, at its top.
type Part struct {
	// From and To are byte offsets in the expression.
	From, To int
	// Field is what it asks about, "" where it is more than one comparison. Op is
	// "" where it asks only whether the row has the field, and Not says that the
	// rows are taken that this does not take.
	Field, Op, Value string
	Not              bool
}

// Parts are the conditions that all must hold, nil where the expression is one
// or the other of several.
func (e *Expr) Parts() []Part { return e.parts }

// Arrival is a comparison with a time of arrival, which rows do not tell: what
// it takes is told by the stretches of bytes that came then.
type Arrival struct {
	// From and To are byte offsets in the expression.
	From, To int
	// Op is < <= > or >=.
	Op   string
	Time int64
	// stretches are offsets, each from the first to before the second, rising.
	stretches [][2]int64
}

func (a *Arrival) takes(off int64) bool {
	i := sort.Search(len(a.stretches), func(i int) bool { return a.stretches[i][1] > off })
	return i < len(a.stretches) && a.stretches[i][0] <= off
}

// Arrivals are the comparisons with times of arrival; until SetArrivals is
// called they take no row.
func (e *Expr) Arrivals() []*Arrival { return e.arrivals }

// SetArrivals tells which stretches of bytes the comparison of a number takes,
// in rising order.
func (e *Expr) SetArrivals(i int, stretches [][2]int64) { e.arrivals[i].stretches = stretches }

// NeedsInfo says that Subject.Info must be filled in.
func (e *Expr) NeedsInfo() bool { return e.info }

// NeedsSummary says that Info must have its Summary.
func (e *Expr) NeedsSummary() bool { return e.summary }

// NeedsStreams says that Subject.Streams must be filled in.
func (e *Expr) NeedsStreams() bool { return e.streams }

// NeedsFindings says that rows must be checked whole for Subject.Findings.
func (e *Expr) NeedsFindings() bool { return e.findings }

// Match says whether the row is one that the expression takes.
func (e *Expr) Match(s *Subject) bool { return e.root(s) }

type node func(*Subject) bool

type op uint8

const (
	opEqual op = iota
	opNot
	opLess
	opLessEqual
	opMore
	opMoreEqual
	opHas
	opHasNot
)

func compareNumber(o op, get func(*Subject) int64, v int64) node {
	switch o {
	case opEqual:
		return func(s *Subject) bool { return get(s) == v }
	case opNot:
		return func(s *Subject) bool { return get(s) != v }
	case opLess:
		return func(s *Subject) bool { return get(s) < v }
	case opLessEqual:
		return func(s *Subject) bool { return get(s) <= v }
	case opMore:
		return func(s *Subject) bool { return get(s) > v }
	}
	return func(s *Subject) bool { return get(s) >= v }
}

func compareText(o op, get func(*Subject) string, v string) node {
	low := strings.ToLower(v)
	switch o {
	case opEqual:
		return func(s *Subject) bool { return get(s) == v }
	case opNot:
		return func(s *Subject) bool { return get(s) != v }
	case opHas:
		return func(s *Subject) bool { return contains(get(s), low) }
	}
	return func(s *Subject) bool { return !contains(get(s), low) }
}

func (s *Subject) ofStream(is func(name []byte) bool) bool {
	return s.Info.Stream != "" && is([]byte(s.Info.Stream)) || s.Streams != nil && s.Streams(is)
}

func compareStream(o op, v string) node {
	low := strings.ToLower(v)
	is := func(name []byte) bool { return string(name) == v }
	if o == opHas || o == opHasNot {
		is = func(name []byte) bool { return contains(string(name), low) }
	}
	if o == opNot || o == opHasNot {
		return func(s *Subject) bool { return !s.ofStream(is) }
	}
	return func(s *Subject) bool { return s.ofStream(is) }
}

// contains is strings.Contains without regard to case; low is in lower case.
func contains(s, low string) bool { return strings.Contains(strings.ToLower(s), low) }

func compareFinding(o op, v string) node {
	low := strings.ToLower(v)
	any := func(s *Subject) bool {
		for i := range s.Findings {
			f := &s.Findings[i]
			if f.Kind == v || (o == opHas || o == opHasNot) && (contains(f.Kind, low) || contains(f.Message, low)) {
				return true
			}
		}
		return false
	}
	if o == opNot || o == opHasNot {
		return func(s *Subject) bool { return !any(s) }
	}
	return any
}
