package aewr

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wiretape/internal/aewrgen"
	"wiretape/wire"
)

// goldenOptions are the sessions under testdata/sessions: one worker's two
// directions each, small, with all that can happen in one.
func goldenOptions() map[string]aewrgen.Options {
	o := aewrgen.Options{Workers: 1, Requests: 8, ChunkBytes: 120, Chunks: 6, Gap: true, Differ: true, Fence: true}
	all := map[string]aewrgen.Options{}
	for _, v := range []uint16{17, 18, 19, 31} {
		o.Seed, o.Version = uint64(v), v
		all[fmt.Sprintf("v%d", v)] = o
	}
	o.Version, o.UpVersion = 30, 18
	all["v30-v18"] = o
	return all
}

// TestGoldenSessions holds the session files against what was sent: the frames'
// places, and the fields as they were when the files were made.
func TestGoldenSessions(t *testing.T) {
	for name, o := range goldenOptions() {
		w := aewrgen.Make(o).Workers[0]
		for direction, word := range []string{"down", "up"} {
			t.Run(name+"-"+word, func(t *testing.T) {
				path := filepath.Join("testdata", "sessions", name+"-"+word)
				stream := w.Streams[direction]
				var lines []string
				r := wire.NewReader(bytes.NewReader(stream), open(t, wire.Config{}), wire.ReaderOptions{})
				var units []unit
				for {
					u, found, err := r.Next()
					for _, f := range found {
						lines = append(lines, string(f.AppendJSON(nil)))
					}
					if err == io.EOF {
						break
					}
					units = append(units, unit{u.Offset, u.Size, u.Kind})
					fields, _ := r.Decoder().Fields(u)
					line := fmt.Appendf(nil, `{"offset":%d,"size":%d,"kind":%d,"name":`, u.Offset, u.Size, u.Kind)
					line = wire.AppendJSONString(line, r.Decoder().Info(u).Name)
					line = append(line, `,"fields":`...)
					line = append(wire.AppendJSON(line, fields, sha256.Sum256), '}')
					lines = append(lines, string(line))
				}
				if !slices.Equal(units, placed(w.Frames[direction])) {
					t.Error("the frames are not those that were sent")
				}
				text := strings.Join(lines, "\n") + "\n"
				if *update {
					for file, data := range map[string][]byte{path + ".stream": stream, path + ".frames.jsonl": []byte(text)} {
						if err := os.WriteFile(file, data, 0o644); err != nil {
							t.Fatal(err)
						}
					}
				}
				for file, want := range map[string][]byte{path + ".stream": stream, path + ".frames.jsonl": []byte(text)} {
					got, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s is not what it was", file)
					}
				}
			})
		}
	}
}
