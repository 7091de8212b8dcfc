package source_test

import (
	"errors"
	"strings"
	"testing"

	"wiretape/capture/source"
)

// FuzzParse: any text is an endpoint or a permanent error, and the name of an
// endpoint is one that parses to the same name; no password shows.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"-", "tcp://h:1", "tls://[::1]:9", "listen+tcp://:0", "unix://a b", "file:///x/%zz",
		"http://u:passpass@h:1/p?a=passpass&passpass#f", "https://h/%2e%2e/", "http://[::1%25eth0]:80/", "tcp://u:passpass@h:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := source.Parse(s)
		if err != nil {
			var se *source.Error
			if !errors.As(err, &se) || !se.Permanent(false) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		name := e.String()
		again, err := source.Parse(name)
		if err != nil {
			t.Fatalf("%q gives the name %q: %v", s, name, err)
		}
		if again.String() != name || again.Scheme != e.Scheme || again.Address != e.Address {
			t.Fatalf("%q gives the name %q, which gives %q", s, name, again)
		}
		if e.HTTP() && strings.Contains(s, ":passpass@") && strings.Contains(name, "passpass@") {
			t.Fatalf("%q shows in %q", s, name)
		}
	})
}
