// Package jsontext writes JSON that is safe to be looked at on a terminal: what is
// printed with --json, and what lies in files for people. Names from the wire keep
// their value in it, and none of their control, bidirectional or invisible
// characters acts.
package jsontext

import (
	"bytes"
	"encoding/json"
	"io"

	"wiretape/wire"
)

// Marshal gives v as JSON without a line feed at its end: on one line, or with an
// indent on several.
func Marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return wire.AppendEscapedJSON(nil, bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// Write writes v as Marshal gives it, and a line feed.
func Write(w io.Writer, v any, indent string) error {
	b, err := Marshal(v, indent)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Lines is a writer of JSON lines that are made by others: each write is whole
// lines, and comes out as Marshal would have made it.
type Lines struct{ W io.Writer }

// Write writes lines.
func (l Lines) Write(p []byte) (int, error) {
	if _, err := l.W.Write(wire.AppendEscapedJSON(nil, p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
