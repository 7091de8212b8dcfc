package jsontext_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"wiretape/internal/jsontext"
	"wiretape/wire"
)

// Every character has its value, and none that SafeText escapes is there as
// itself.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= 0x10ffff; r++ {
		if r >= 0xd800 && r <= 0xdfff || r >= 0x20000 && r < 0xe0000 && r%101 != 0 {
			continue
		}
		c := string(r)
		text, err := jsontext.Marshal(map[string]string{c: "<" + c + ">"}, "")
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(text, &back); err != nil || back[c] != "<"+c+">" {
			t.Fatalf("U+%04X: %s is %q, %v", r, text, back, err)
		}
		unsafe := wire.SafeText(c, 0) != c
		if unsafe && bytes.Contains(text, []byte(c)) {
			t.Fatalf("U+%04X is itself in %q", r, text)
		}
		if !unsafe && r >= 0x80 && !bytes.Contains(text, []byte(c)) {
			t.Fatalf("U+%04X is escaped without need: %q", r, text)
		}
		if s := wire.AppendJSONString(nil, c); json.Unmarshal(s, &c) != nil || c != string(r) || unsafe && bytes.Contains(s, []byte(c)) {
			t.Fatalf("U+%04X: AppendJSONString gives %q", r, s)
		}
	}
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	v := struct {
		Name string   `json:"name"`
		List []string `json:"list"`
	}{"a\u009b31m", []string{}}
	if err := jsontext.Write(&b, v, " "); err != nil {
		t.Fatal(err)
	}
	if want := "{\n \"name\": \"a\\u009b31m\",\n \"list\": []\n}\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	if err := jsontext.Write(&b, func() {}, ""); err == nil {
		t.Error("what is no JSON was written")
	}
}

func TestLines(t *testing.T) {
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(jsontext.Lines{W: &b}, nil)).Info("sealed", "file", "x\u202ey")
	var line struct{ File string }
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.File != "x\u202ey" || bytes.ContainsRune(b.Bytes(), 0x202e) {
		t.Errorf("%q: %v", b.Bytes(), err)
	}
	if _, err := fmt.Fprint(jsontext.Lines{W: failing{}}, "x"); err == nil {
		t.Error("a write that failed is none")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }
