package filter

// This file reads an expression: words, operators and values into a tree, with
// the place of what is wrong.

import (
	"strconv"
	"strings"

	"wiretape/wire"
)

const (
	// MaxLength is the most bytes that an expression may have.
	MaxLength = 4096
	// maxDepth bounds how deep parentheses and negations nest.
	maxDepth = 64
)

type parser struct {
	s     string
	tok   string // the current token, "" at the end
	kind  tokenKind
	from  int // of tok
	next  int
	kinds []string
	depth int
	expr  Expr
	err   *Error
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
		return nil, &Error{To: len(s), Message: "the filter is longer than " + wire.Itoa(MaxLength) + " bytes"}
	}
	p := parser{s: s, kinds: kinds}
	p.scan()
	p.expr.root = p.or()
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
	for i < len(p.s) && (p.s[i] == ' ' || p.s[i] == '\t' || p.s[i] == '\n') {
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

// text reads a quoted text with \" and \\ in it.
func (p *parser) text(i int) {
	var b []byte
	for ; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.next, p.kind, p.tok = i+1, tokenText, string(b)
			return
		case c == '\\' && i+1 < len(p.s):
			i++
			b = append(b, p.s[i])
		default:
			b = append(b, c)
		}
	}
	p.next = len(p.s)
	p.fail("this text has no closing quote")
}

func (p *parser) is(sign, word string) bool {
	return p.kind == tokenSign && p.tok == sign || p.kind == tokenWord && strings.EqualFold(p.tok, word)
}

func (p *parser) or() node {
	left := p.and()
	for p.is("||", "or") {
		p.scan()
		a, b := left, p.and()
		left = func(s *Subject) bool { return a(s) || b(s) }
	}
	return left
}

func (p *parser) and() node {
	left := p.not()
	for p.is("&&", "and") {
		p.scan()
		a, b := left, p.not()
		left = func(s *Subject) bool { return a(s) && b(s) }
	}
	return left
}

func (p *parser) not() node {
	if p.depth++; p.depth > maxDepth {
		return p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	if p.is("!", "not") {
		p.scan()
		a := p.not()
		return func(s *Subject) bool { return !a(s) }
	}
	if p.kind == tokenSign && p.tok == "(" {
		p.scan()
		a := p.or()
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
	p.scan()
	if p.kind != tokenSign || p.tok == ")" || p.tok == "&&" || p.tok == "||" {
		return f.has
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
	p.scan()
	if p.kind != tokenWord && p.kind != tokenText {
		return p.fail("expected a value here")
	}
	n := p.value(f, o, ordered)
	p.scan()
	return n
}

// value makes the comparison of f with the current token.
func (p *parser) value(f *field, o op, ordered bool) node {
	number, isNum := parseNumber(p.tok)
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
			return p.fail("expected a time here, such as 2026-11-29T18:00:00Z, or nanoseconds since 1970")
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

func parseNumber(s string) (int64, bool) {
	shift := 0
	if n := len(s); n > 1 && !strings.HasPrefix(s, "0x") {
		switch s[n-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
		if shift > 0 {
			s = s[:n-1]
		}
	}
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil || v > 1<<62>>shift || v < -(1<<62>>shift) {
		return v, err == nil && shift == 0
	}
	return v << shift, true
}

// ParseTime reads a time as nanoseconds since 1970: RFC 3339 in UTC, of which
// the end may be left out (2026-11-29, 2026-11-29T18:05), or the number itself.
func ParseTime(s string) (int64, bool) {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v, true
	}
	s = strings.TrimSuffix(s, "Z")
	date, clock, _ := strings.Cut(s, "T")
	d := strings.Split(date, "-")
	if len(d) != 3 {
		return 0, false
	}
	var n [6]int64
	for i, t := range d {
		v, err := strconv.ParseUint(t, 10, 16)
		if err != nil {
			return 0, false
		}
		n[i] = int64(v)
	}
	clock, frac, _ := strings.Cut(clock, ".")
	if clock != "" {
		c := strings.Split(clock, ":")
		if len(c) < 2 || len(c) > 3 {
			return 0, false
		}
		for i, t := range c {
			v, err := strconv.ParseUint(t, 10, 8)
			if err != nil {
				return 0, false
			}
			n[3+i] = int64(v)
		}
	}
	nanos := int64(0)
	if frac != "" {
		if len(frac) > 9 {
			return 0, false
		}
		v, err := strconv.ParseUint(frac+strings.Repeat("0", 9-len(frac)), 10, 32)
		if err != nil {
			return 0, false
		}
		nanos = int64(v)
	}
	if n[0] < 1678 || n[0] > 2261 || n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > 31 || n[3] > 23 || n[4] > 59 || n[5] > 60 {
		return 0, false
	}
	return (((daysFrom1970(n[0], n[1], n[2])*24+n[3])*60+n[4])*60+n[5])*1_000_000_000 + nanos, true
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
