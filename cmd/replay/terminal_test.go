package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// Guards: names from the wire steer no terminal through --json (CSI as one
// character, a direction that turns), in every verb that prints them, and have
// their value in it.
func TestJSONSteersNoTerminal(t *testing.T) {
	const evil = "\u009b31m\u202eevil\u200b\u0085\x7f"
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	stream := func(name, uuid string) {
		b := dendro.AppendPreamble(nil)
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 0, HasUUID: true, UUID: []byte(uuid),
			Labels: dendro.NewMap(map[string]string{"host": evil}), Metadata: dendro.NewMap(map[string]string{"encoder": evil})})
		b = dendro.AppendRowsOf(b, 0, 0, dendro.State{}, []dendro.Row{{Stream: []byte(evil), TS: 1, Row: []byte("x")}})
		b = dendro.AppendRowsOf(b, 0, 9, dendro.State{}, []dendro.Row{{Stream: []byte(evil), TS: 2, Row: []byte("y")}})
		if err := os.WriteFile(at(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stream(evil+"1", evil)
	stream("2", evil+"2")
	told := 0
	for _, args := range [][]string{
		{"build", at(evil + "1"), "--archive", at("a"), "--json"},
		{"build", at("2"), "--archive", at("b"), "--json"},
		{"build", at(evil + "1"), "--archive", at("a"), "--update", "--json"},
		{"build", at(evil + "none"), "--archive", at("none"), "--json"},
		{"diff", at("a"), at("b"), "--json"},
		{"extract", at("a"), "--dir", at("x"), "--json"},
		{"verify", at("a"), "--json"},
		{"merge", at("a"), at("b"), "--archive", at("m"), "--json"},
		{"inspect", at(evil + "1"), "--json"},
	} {
		var out, words bytes.Buffer
		program().Run(args, strings.NewReader(""), &out, &words)
		if out.Len() == 0 {
			t.Fatalf("%q prints nothing: %s", args, words.String())
		}
		for _, b := range [][]byte{out.Bytes(), words.Bytes()} {
			for _, r := range string(b) {
				if r != '\n' && r != '\t' && wire.SafeText(string(r), 0) != string(r) {
					t.Errorf("%q prints %U as itself", args[0], r)
				}
			}
		}
		for d := json.NewDecoder(&out); d.More(); {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatalf("%q: %v", args, err)
			}
			if b, _ := json.Marshal(v); bytes.Contains(b, []byte("\u009b31m\u202eevil")) {
				told++
			}
		}
	}
	if told < 5 {
		t.Errorf("only %d objects have the name", told)
	}
	manifest, err := os.ReadFile(filepath.Join(at("x"), "manifest.json"))
	if err != nil || bytes.ContainsRune(manifest, 0x9b) || !bytes.Contains(manifest, []byte(`\u009b31m`)) {
		t.Errorf("the manifest: %v\n%q", err, manifest)
	}
}
