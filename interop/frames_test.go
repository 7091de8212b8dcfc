//go:build interop

package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"
)

// frameLine is a frame as replay inspect --json prints it.
type frameLine struct {
	Offset  json.Number    `json:"offset"`
	Size    json.Number    `json:"size"`
	Kind    json.Number    `json:"kind"`
	Name    string         `json:"name"`
	Fields  map[string]any `json:"fields"`
	Finding any            `json:"finding"`
}

func jsonLines[T any](t *testing.T, b []byte) (all []T) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// shortHash cuts our blobs' hashes to the 16 digits that the rig prints.
func shortHash(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if sum, ok := v["sha256"].(string); ok && len(v) == 2 && v["length"] != nil {
			return map[string]any{"len": v["length"], "sha256_16": sum[:16]}
		}
		for k := range v {
			v[k] = shortHash(v[k])
		}
	case []any:
		for i := range v {
			v[i] = shortHash(v[i])
		}
	}
	return v
}

// sameFrames: replay inspect shows what the crate decodes, every field of every
// frame, up to the first frame that the crate refuses. It gives how many frames
// were compared.
func sameFrames(t *testing.T, stream string) int {
	t.Helper()
	var ours []frameLine
	for _, l := range jsonLines[frameLine](t, run(t, programs.Replay, "inspect", stream, "--json").Stdout) {
		if l.Finding == nil {
			ours = append(ours, l)
		}
	}
	n := 0
	for _, theirs := range jsonLines[map[string]any](t, run(t, programs.Rig, "frames", stream).Stdout) {
		if theirs["error_stage"] != nil || theirs["end"] != nil {
			break
		}
		if n >= len(ours) {
			t.Fatalf("inspect shows %d frames, the crate more", n)
		}
		got := ours[n]
		n++
		length, err := theirs["length"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		place := fmt.Sprintf("offset %v size %d kind %v", theirs["offset"], length+4, theirs["kind"])
		if at := fmt.Sprintf("offset %s size %s kind %s", got.Offset, got.Size, got.Kind); at != place {
			t.Fatalf("frame %d: the crate has %s, inspect %s", n, place, at)
		}
		if theirs["skipped"] != nil {
			continue
		}
		if theirs["name"] != got.Name {
			t.Errorf("frame %d: the crate's name is %v, inspect's %s", n, theirs["name"], got.Name)
		}
		for _, k := range []string{"offset", "length", "kind", "name"} {
			delete(theirs, k)
		}
		if k, ok := theirs["index_kind"]; ok {
			delete(theirs, "index_kind")
			theirs["kind"] = json.Number(map[any]string{"full": "0", "delta": "1"}[k])
		}
		if fields := shortHash(got.Fields); !reflect.DeepEqual(fields, any(theirs)) {
			t.Errorf("frame %d at %s: the crate has %v, inspect %v", n, got.Offset, theirs, fields)
		}
	}
	return n
}

// Every frame of every stream, field by field.
func TestFramesDecodeAlike(t *testing.T) {
	frames := 0
	for _, pattern := range []string{"real/*.stream", "telemetry/*.stream", "reconnect/*.stream", "crafted/*.stream"} {
		for _, s := range fixtures(t, pattern) {
			t.Run(base(s), func(t *testing.T) { frames += sameFrames(t, s) })
		}
	}
	r := rand.New(rand.NewPCG(seed(t), 4))
	for i := range rounds(6) {
		flags, _ := randomFlags(r)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("%q", flags)
			stream := filepath.Join(t.TempDir(), "a.stream")
			publish(t, append(flags, "--out", stream)...)
			frames += sameFrames(t, stream)
		})
	}
	t.Logf("%d frames", frames)
	if frames < 500 {
		t.Errorf("only %d frames were compared", frames)
	}
}
