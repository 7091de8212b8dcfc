package sidecar

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"

	"wiretape/wire"
)

// Context is a wire.Context as JSON that people can read: bytes in base64,
// numbers as decimal strings.
//
//	{"protocol": "dendro", "version": 2, "entries": [
//	  {"id": "7", "values": [{"name": "handshake", "bytes": "AAEC"},
//	                         {"name": "last_seq", "number": "12"}]}],
//	 "omitted": ["index state of ordinal 3: 9 MiB"]}
//
// A value has exactly one of bytes and number.
type Context struct {
	Protocol string         `json:"protocol"`
	Version  uint32         `json:"version"`
	Entries  []contextEntry `json:"entries"`
	Omitted  []string       `json:"omitted,omitempty"`
}

type contextEntry struct {
	ID     uint64         `json:"id,string"`
	Values []contextValue `json:"values"`
}

type contextValue struct {
	Name   string  `json:"name"`
	Bytes  *[]byte `json:"bytes,omitempty"`
	Number *string `json:"number,omitempty"`
}

// UnmarshalJSON refuses a value without content, or with two.
func (v *contextValue) UnmarshalJSON(b []byte) error {
	// As text, since a list of numbers would do for bytes.
	var w struct {
		Name          string
		Bytes, Number *string
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if (w.Bytes == nil) == (w.Number == nil) {
		return errors.New("a context value has either bytes or a number")
	}
	*v = contextValue{Name: w.Name, Number: w.Number}
	if w.Number != nil {
		_, err := strconv.ParseUint(*w.Number, 10, 64)
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(*w.Bytes)
	v.Bytes = &raw
	return err
}

// ContextOf makes the JSON form of c, nil for nil.
func ContextOf(c *wire.Context) *Context {
	if c == nil {
		return nil
	}
	out := &Context{Protocol: c.Protocol, Version: c.Version, Entries: []contextEntry{}, Omitted: c.Omitted}
	for _, e := range c.Entries {
		ce := contextEntry{ID: e.ID, Values: []contextValue{}}
		for _, v := range e.Values {
			cv := contextValue{Name: v.Name}
			if v.Bytes != nil {
				b := v.Bytes
				cv.Bytes = &b
			} else {
				n := wire.Utoa(v.Num)
				cv.Number = &n
			}
			ce.Values = append(ce.Values, cv)
		}
		out.Entries = append(out.Entries, ce)
	}
	return out
}

// Wire is the inverse of ContextOf.
func (c *Context) Wire() *wire.Context {
	if c == nil {
		return nil
	}
	out := &wire.Context{Protocol: c.Protocol, Version: c.Version, Omitted: c.Omitted}
	for _, e := range c.Entries {
		we := wire.ContextEntry{ID: e.ID}
		for _, v := range e.Values {
			wv := wire.ContextValue{Name: v.Name}
			if v.Bytes != nil {
				wv.Bytes = append([]byte{}, *v.Bytes...)
			} else {
				// UnmarshalJSON has checked it.
				wv.Num, _ = strconv.ParseUint(*v.Number, 10, 64)
			}
			we.Values = append(we.Values, wv)
		}
		out.Entries = append(out.Entries, we)
	}
	return out
}
