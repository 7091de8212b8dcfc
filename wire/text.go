package wire

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Itoa is a decimal number.
func Itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Utoa is a decimal number.
func Utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Many is a count with its noun, which is in the plural but for 1: "1 entry",
// "12,345 entries". All words for people about counts are made here.
func Many(n int64, one string) string { return grouped(n) + " " + noun(n, one) }

// Count is Many beside offsets and in findings, where a number is written as it
// is: "12345 entries".
func Count(n int64, one string) string { return Itoa(n) + " " + noun(n, one) }

func noun(n int64, one string) string {
	if n == 1 {
		return one
	}
	return plural(one)
}

func plural(one string) string {
	for _, hiss := range [...]string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(one, hiss) {
			return one + "es"
		}
	}
	if n := len(one) - 1; n > 0 && one[n] == 'y' && strings.IndexByte("aeiou", one[n-1]) < 0 {
		return one[:n] + "ies"
	}
	return one + "s"
}

// grouped is a decimal number with a comma before each three digits.
func grouped(n int64) string {
	s := Itoa(n)
	sign := ""
	if s[0] == '-' {
		sign, s = s[:1], s[1:]
	}
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return sign + s
}

const hexDigits = "0123456789abcdef"

// AppendHex appends b as lower-case hex.
func AppendHex(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// AppendJSONString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD;
// control characters, quotes, angle brackets and the two Unicode line
// separators are escaped, so that the result is safe on a terminal, in HTML and
// in JavaScript.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c == '\t':
				dst = append(dst, '\\', 't')
			case c < 0x20 || c == 0x7f || c == '<' || c == '>' || c == '&':
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, `\ufffd`...)
		case unprintable(r):
			dst = appendJSONEscape(dst, r)
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}

// AppendEscapedJSON appends JSON in which the characters that SafeText escapes
// are escaped, as encoding/json does not: it says the same, and is safe on a
// terminal. In JSON such characters stand in strings only.
func AppendEscapedJSON(dst, b []byte) []byte {
	from := 0
	for i := 0; i < len(b); {
		if b[i] < 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == 0x7f || unprintable(r) {
			dst = appendJSONEscape(append(dst, b[from:i]...), r)
			from = i + n
		}
		i += n
	}
	return append(dst, b[from:]...)
}

// appendJSONEscape appends r as JSON escapes it, in two halves where it needs
// more than 16 bits.
func appendJSONEscape(dst []byte, r rune) []byte {
	if r <= 0xffff {
		return appendUnicodeEscape(dst, r)
	}
	r -= 0x10000
	return appendUnicodeEscape(appendUnicodeEscape(dst, 0xd800+r>>10), 0xdc00+r&0x3ff)
}

// unprintable tells the characters that change how a line around them is read, or
// that nobody sees: C1 controls, line separators, and what Unicode calls
// default-ignorable (bidirectional and other formats, fillers, variation selectors,
// tags). testdata/unprintable.txt lists them, for the viewer's rule too.
func unprintable(r rune) bool {
	switch {
	case r < 0x2000:
		return r >= 0x80 && r <= 0x9f || r == 0xad || r == 0x34f || r == 0x61c || r == 0x115f || r == 0x1160 ||
			r == 0x17b4 || r == 0x17b5 || r >= 0x180b && r <= 0x180f
	case r <= 0xffff:
		return r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0x3164 ||
			r >= 0xfe00 && r <= 0xfe0f || r == 0xfeff || r == 0xffa0 || r >= 0xfff0 && r <= 0xfffb
	}
	return r >= 0x1bca0 && r <= 0x1bca3 || r >= 0x1d173 && r <= 0x1d17a || r >= 0xe0000 && r <= 0xe0fff
}

// appendEscape appends r as SafeText escapes it: in braces where it needs more
// than 16 bits.
func appendEscape(dst []byte, r rune) []byte {
	if r <= 0xffff {
		return appendUnicodeEscape(dst, r)
	}
	return append(strconv.AppendUint(append(dst, '\\', 'u', '{'), uint64(r), 16), '}')
}

func appendUnicodeEscape(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// SafeText makes text from the wire harmless on a terminal: control,
// bidirectional and invisible characters and invalid bytes come out as escapes
// (\n, \u202e, \u{e0041}, \xff), and what is longer than limit bytes ends in an ellipsis.
// A limit of 0 is none.
func SafeText(s string, limit int) string {
	clean := limit == 0 || len(s) <= limit
	if clean {
		for i := 0; i < len(s); i++ {
			if s[i] < 0x20 || s[i] >= 0x7f {
				clean = false
				break
			}
		}
		if clean {
			return s
		}
	}
	var dst []byte
	for i := 0; i < len(s); {
		if limit > 0 && len(dst) >= limit {
			return string(append(dst, "…"...))
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, '\\', 'x', hexDigits[s[i]>>4], hexDigits[s[i]&15])
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < 0x20 || r == 0x7f || unprintable(r):
			dst = appendEscape(dst, r)
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return string(dst)
}
