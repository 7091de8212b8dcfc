package filter

// This file reads an expression: words, operators and values into a tree, with
// the place of what is wrong.

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"wiretape/wire"
)

const (
	// MaxLength is the most bytes that an expression may have.
	MaxLength = 16 << 10
	// maxDepth bounds how deep parentheses and negations nest.
	maxDepth = 64
)

type parser struct {
	s     string
	tok   string // the current token, "" at the end
	kind  tokenKind
	from  int // of tok
	next  int
	end   int // of the token before it
	kinds []string
	depth int
	expr  Expr
	err   *Error
	// one is what was read last, where it is one comparison; joins counts the
	// ands and ors so far.
	one   Part
	joins int
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenText
	tokenSign
)

// Parse checks an expression. kinds are the names of frame kinds that the
// protocol knows.
func Parse(s string, kinds []string) (*Expr, *Error) {
	if len(s) > MaxLength {
		return nil, &Error{To: len(s), Message: "the filter has " + wire.Itoa(int64(len(s))) + " bytes, of which it may have " + wire.Itoa(MaxLength)}
	}
	p := parser{s: s, kinds: kinds}
	p.scan()
	p.expr.root = p.or(true)
	if p.err == nil && p.kind != tokenEnd {
		p.fail("expected && or || here")
	}
	if p.err != nil {
		return nil, p.err
	}
	e := p.expr
	return &e, nil
}

func (p *parser) fail(message string) node {
	if p.err == nil {
		p.err = &Error{From: p.from, To: max(p.next, p.from), Message: message}
	}
	p.kind, p.tok = tokenEnd, ""
	return func(*Subject) bool { return false }
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 ||
		strings.IndexByte("_-.:/+@", c) >= 0
}

// scan moves to the next token.
func (p *parser) scan() {
	if p.err != nil {
		return
	}
	i := p.next
	p.end = i
	for i < len(p.s) && (p.s[i] == ' ' || p.s[i] == '\t' || p.s[i] == '\n' || p.s[i] == '\r') {
		i++
	}
	p.from = i
	if i == len(p.s) {
		p.next, p.kind, p.tok = i, tokenEnd, ""
		return
	}
	if p.s[i] == '"' {
		p.text(i + 1)
		return
	}
	if wordByte(p.s[i]) {
		j := i
		for j < len(p.s) && wordByte(p.s[j]) {
			j++
		}
		p.next, p.kind, p.tok = j, tokenWord, p.s[i:j]
		return
	}
	n := 1
	if i+1 < len(p.s) {
		switch p.s[i : i+2] {
		case "&&", "||", "==", "!=", "<=", ">=", "!~":
			n = 2
		}
	}
	p.next, p.kind, p.tok = i+n, tokenSign, p.s[i:i+n]
}

// text reads a quoted text: \" and \\, \n and \t, \xNN for a byte, and \uNNNN
// or \u{N} for a character by its number in hex. No other escape is known.
func (p *parser) text(i int) {
	var b []byte
	for i < len(p.s) {
		c := p.s[i]
		if c == '"' {
			p.next, p.kind, p.tok = i+1, tokenText, string(b)
			return
		}
		if c != '\\' {
			b = append(b, c)
			i++
			continue
		}
		var n int
		if b, n = appendEscaped(b, p.s[i+1:]); n == 0 {
			_, size := utf8.DecodeRuneInString(p.s[i+1:])
			p.from, p.next = i, i+1+size
			p.fail(`there is no such escape; there are \" \\ \n \t \xNN \uNNNN \u{N}`)
			return
		}
		i += 1 + n
	}
	p.next = len(p.s)
	p.fail("this text has no closing quote")
}

// appendEscaped appends what the escape at the start of s stands for, behind
// its backslash, and gives how many bytes of s it has; 0 when it is none.
func appendEscaped(dst []byte, s string) ([]byte, int) {
	if s == "" {
		return dst, 0
	}
	digits, n := "", 0
	switch s[0] {
	case '"', '\\':
		return append(dst, s[0]), 1
	case 'n':
		return append(dst, '\n'), 1
	case 't':
		return append(dst, '\t'), 1
	case 'x':
		if len(s) < 3 {
			return dst, 0
		}
		v, err := strconv.ParseUint(s[1:3], 16, 8)
		if err != nil {
			return dst, 0
		}
		return append(dst, byte(v)), 3
	case 'u':
		if strings.HasPrefix(s, "u{") {
			var ok bool
			if digits, _, ok = strings.Cut(s[2:], "}"); !ok {
				return dst, 0
			}
			n = len(digits) + 3
		} else if len(s) >= 5 {
			digits, n = s[1:5], 5
		}
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) > 6 || !utf8.ValidRune(rune(v)) {
		return dst, 0
	}
	return utf8.AppendRune(dst, rune(v)), n
}

// AppendQuoted appends the text that a filter takes for exactly s.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\', s[i])
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		dst = append(dst, wire.SafeText(s[i:i+n], 0)...)
		i += n
	}
	return append(dst, '"')
}

func (p *parser) is(sign, word string) bool {
	return p.kind == tokenSign && p.tok == sign || p.kind == tokenWord && strings.EqualFold(p.tok, word)
}

// or reads an expression. top says that it is the whole one, whose parts are
// kept.
func (p *parser) or(top bool) node {
	left := p.and(top)
	for p.is("||", "or") {
		p.joins++
		if top {
			p.expr.parts = nil
		}
		p.scan()
		a, b := left, p.and(false)
		left = func(s *Subject) bool { return a(s) || b(s) }
	}
	return left
}

func (p *parser) and(top bool) node {
	left := p.part(top)
	for p.is("&&", "and") {
		p.joins++
		p.scan()
		a, b := left, p.part(top)
		left = func(s *Subject) bool { return a(s) && b(s) }
	}
	return left
}

// part reads one of what is joined by ands.
func (p *parser) part(top bool) node {
	from, joins := p.from, p.joins
	n := p.not()
	if top {
		one := p.one
		if p.joins > joins {
			one = Part{}
		}
		one.From, one.To = from, p.end
		p.expr.parts = append(p.expr.parts, one)
	}
	return n
}

func (p *parser) not() node {
	if p.depth++; p.depth > maxDepth {
		return p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	if p.is("!", "not") {
		p.scan()
		a := p.not()
		p.one.Not = !p.one.Not
		return func(s *Subject) bool { return !a(s) }
	}
	if p.kind == tokenSign && p.tok == "(" {
		p.scan()
		a := p.or(false)
		if p.kind != tokenSign || p.tok != ")" {
			return p.fail("expected ) here")
		}
		p.scan()
		return a
	}
	return p.comparison()
}

func (p *parser) comparison() node {
	if p.kind != tokenWord {
		return p.fail("expected a field here: " + fieldNames())
	}
	var f *field
	for i := range fields {
		if strings.EqualFold(fields[i].name, p.tok) {
			f = &fields[i]
		}
	}
	if f == nil {
		return p.fail("there is no field " + wire.SafeText(p.tok, 40) + "; there are " + fieldNames())
	}
	p.expr.info = p.expr.info || f.info
	p.expr.summary = p.expr.summary || f.summary
	p.expr.findings = p.expr.findings || f.findings
	p.expr.streams = p.expr.streams || f.streams
	from := p.from
	p.one = Part{Field: f.name}
	p.scan()
	if p.kind != tokenSign || p.tok == ")" || p.tok == "&&" || p.tok == "||" {
		if f.typ == isArrival {
			return p.arrival(Arrival{From: from, To: p.end, Op: ">=", Time: math.MinInt64})
		}
		return f.has
	}
	sign := p.tok
	if sign == "=" {
		sign = "=="
	}
	o, ok := map[string]op{"=": opEqual, "==": opEqual, "!=": opNot, "<": opLess, "<=": opLessEqual,
		">": opMore, ">=": opMoreEqual, "~": opHas, "!~": opHasNot}[p.tok]
	if !ok {
		return p.fail("expected an operator here: == != < <= > >= ~ !~")
	}
	ordered := o >= opLess && o <= opMoreEqual
	if f.num == nil && ordered {
		return p.fail(f.name + " is text: it has no order, only == != ~ !~")
	}
	if (f.typ == isNumber || f.typ == isTime) && o >= opHas {
		return p.fail(f.name + " is no text: it can't contain anything")
	}
	if f.typ == isArrival && !ordered {
		return p.fail("arrival is compared with a time by <, <=, > or >=")
	}
	p.scan()
	if p.kind != tokenWord && p.kind != tokenText {
		return p.fail("expected a value here")
	}
	p.one.Op, p.one.Value = sign, p.tok
	var n node
	if f.typ == isArrival {
		t, ok := ParseTime(p.tok)
		if !ok {
			return p.fail(expectedTime)
		}
		n = p.arrival(Arrival{From: from, To: p.next, Op: sign, Time: t})
	} else {
		n = p.value(f, o, ordered)
	}
	p.scan()
	return n
}

const expectedTime = "expected a time here, such as 2026-11-29T18:00:00Z, or nanoseconds since 1970"

// arrival makes a comparison with a time of arrival, of which what it takes is
// told later.
func (p *parser) arrival(a Arrival) node {
	at := &a
	p.expr.arrivals = append(p.expr.arrivals, at)
	return func(s *Subject) bool { return at.takes(s.Offset) }
}

// value makes the comparison of f with the current token. What is quoted is
// never a number.
func (p *parser) value(f *field, o op, ordered bool) node {
	number, isNum := parseNumber(p.tok)
	if f.unsigned {
		number, isNum = parseUnsigned(p.tok)
	}
	isNum = isNum && p.kind == tokenWord
	var n node
	switch f.typ {
	case isNumber:
		if !isNum {
			return p.fail("expected a number here, such as 4096, 0x1000 or 4K")
		}
		n = compareNumber(o, f.num, number)
	case isTime:
		t, ok := ParseTime(p.tok)
		if !ok {
			return p.fail(expectedTime)
		}
		n = compareNumber(o, f.num, t)
	case isKind:
		switch {
		case isNum && o < opHas:
			n = compareNumber(o, f.num, number)
		case ordered:
			return p.fail("expected a kind's number here")
		default:
			v := p.tok
			if o < opHas {
				if v = p.known(v); v == "" {
					return p.fail("there is no kind of that name; there are " + strings.Join(p.kinds, ", "))
				}
			}
			n = compareText(o, f.text, v)
		}
	default:
		switch {
		case f.name == "finding":
			return compareFinding(o, p.tok)
		case f.streams:
			return compareStream(o, p.tok)
		case f.num != nil && isNum && o < opHas:
			n = compareNumber(o, f.num, number)
		case ordered:
			return p.fail("expected a number here")
		default:
			n = compareText(o, f.text, p.tok)
		}
	}
	if o == opNot || o == opHasNot {
		return func(s *Subject) bool { return !f.has(s) || n(s) }
	}
	return func(s *Subject) bool { return f.has(s) && n(s) }
}

func (p *parser) known(name string) string {
	for _, k := range p.kinds {
		if strings.EqualFold(k, name) {
			return k
		}
	}
	return ""
}

func fieldNames() string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return strings.Join(names, ", ")
}

// AppendFields appends the fields with what they mean as JSON, for completion.
func AppendFields(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = wire.AppendJSONString(append(dst, `{"name":`...), fields[i].name)
		dst = wire.AppendJSONString(append(dst, `,"about":`...), fields[i].about)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// parseNumber reads a number: decimal, with a minus or without, or 0x and hex
// digits; K, M or G behind a decimal one is for 1024 and its powers.
func parseNumber(s string) (int64, bool) {
	negative := strings.HasPrefix(s, "-")
	v, ok := magnitude(strings.TrimPrefix(s, "-"))
	if !ok || v > math.MaxInt64 {
		return 0, false
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}

// signBit turns the order of unsigned numbers into that of signed ones.
const signBit = 1 << 63

// parseUnsigned reads a number up to 2^64-1 for the order of signed ones.
func parseUnsigned(s string) (int64, bool) {
	v, ok := magnitude(s)
	return int64(v ^ signBit), ok
}

func magnitude(s string) (uint64, bool) {
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		v, err := strconv.ParseUint(s[2:], 16, 64)
		return v, err == nil
	}
	shift := 0
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return v << shift, err == nil && v <= math.MaxUint64>>shift
}

// ParseTime reads a time as nanoseconds since 1970: RFC 3339 in UTC, with T or
// a space before the time of day, of which the end may be left out (2026-11-29,
// 2026-11-29T18:05), or the number itself. testdata/times.txt holds its rules,
// by which the page reads times too.
func ParseTime(s string) (int64, bool) {
	if digits := strings.TrimPrefix(s, "-"); allDigits(digits) && len(digits) <= 19 {
		v, err := strconv.ParseInt(s, 10, 64)
		return v, err == nil
	}
	s = strings.TrimSuffix(s, "Z")
	// Year, month, day, hour, minute and second, and what stands before each.
	n := [6]int64{}
	for i, before := range [6]string{"", "-", "-", "T ", ":", ":"} {
		if i > 0 {
			if s == "" && i != 1 && i != 2 && i != 4 {
				break
			}
			if s == "" || strings.IndexByte(before, s[0]) < 0 {
				return 0, false
			}
			s = s[1:]
		}
		width := 2
		if i == 0 {
			width = 4
		}
		if len(s) < width || !allDigits(s[:width]) {
			return 0, false
		}
		v, _ := strconv.Atoi(s[:width])
		n[i], s = int64(v), s[width:]
		if i == 5 && s != "" {
			frac := strings.TrimPrefix(s, ".")
			if len(frac) == len(s) || !allDigits(frac) || len(frac) > 9 {
				return 0, false
			}
			v, _ := strconv.Atoi(frac + strings.Repeat("0", 9-len(frac)))
			return nanoseconds(n, int64(v))
		}
	}
	if s != "" {
		return 0, false
	}
	return nanoseconds(n, 0)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// nanoseconds is a date's and a time of day's number, false where there is no
// such day or time, or where it lies beyond the range of 64 bits.
func nanoseconds(n [6]int64, frac int64) (int64, bool) {
	y, m, d := n[0], n[1], n[2]
	if m < 1 || m > 12 || d < 1 || n[3] > 23 || n[4] > 59 || n[5] > 59 {
		return 0, false
	}
	last := int64(31)
	switch m {
	case 4, 6, 9, 11:
		last = 30
	case 2:
		last = 28
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			last = 29
		}
	}
	if d > last {
		return 0, false
	}
	seconds := ((daysFrom1970(y, m, d)*24+n[3])*60+n[4])*60 + n[5]
	const second = 1_000_000_000
	if seconds < 0 {
		// Counted back from the second after it: the first of the range would not fit.
		seconds, frac = seconds+1, frac-second
		return seconds*second + frac, seconds >= (math.MinInt64-frac)/second
	}
	return seconds*second + frac, seconds <= (math.MaxInt64-frac)/second
}

// daysFrom1970 counts the days to a date of the Gregorian calendar.
func daysFrom1970(y, m, d int64) int64 {
	// Years that begin in March have their odd day at the end.
	if m <= 2 {
		y--
		m += 12
	}
	return 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + d - 1 - 719468
}
