package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"os"
	"path/filepath"
	"testing"

	"wiretape/replay/segment/bounds"
)

// goldenColumn is what pyarrow read of a column; testdata/make.py says how the
// hash is made.
type goldenColumn struct {
	Name    string
	Entries int64
	Values  int64
	SHA256  string
}

type goldenFile struct {
	Rows    uint64
	Columns []goldenColumn
}

// columnHash is the Visitor that makes the same hash.
type columnHash struct {
	levels, values hash.Hash
	width          int
	count          goldenColumn
	left           int64 // bytes that may still be hashed
}

var errEnough = errors.New("more values than are hashed")

func newColumnHash(width int, limit int64) *columnHash {
	return &columnHash{levels: sha256.New(), values: sha256.New(), width: width, left: limit}
}

func (h *columnHash) Levels(entries int, rep, def []byte) error {
	if h.left -= int64(entries); h.left < 0 {
		return errEnough
	}
	h.count.Entries += int64(entries)
	pairs := make([]byte, 2*entries)
	for i := range rep {
		pairs[2*i] = rep[i]
	}
	for i := range def {
		pairs[2*i+1] = def[i]
	}
	h.levels.Write(pairs)
	return nil
}

func (h *columnHash) Fixed(b []byte) error {
	if h.left -= int64(len(b)); h.left < 0 {
		return errEnough
	}
	h.count.Values += int64(len(b) / h.width)
	h.values.Write(b)
	return nil
}

func (h *columnHash) Bytes(b []byte) error {
	if h.left -= int64(len(b)) + 4; h.left < 0 {
		return errEnough
	}
	h.count.Values++
	h.values.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
	h.values.Write(b)
	return nil
}

func (h *columnHash) sum() goldenColumn {
	all := sha256.New()
	all.Write(h.levels.Sum(nil))
	all.Write(h.values.Sum(nil))
	h.count.SHA256 = hex.EncodeToString(all.Sum(nil))
	return h.count
}

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// claims are what the frames of real/ and damaged/ said.
func claims(t testing.TB) map[string]Claim {
	t.Helper()
	var raw map[string]struct {
		Rows    uint64 `json:"rows"`
		FirstTS int64  `json:"first_ts"`
		LastTS  int64  `json:"last_ts"`
	}
	readJSON(t, "claims.json", &raw)
	out := map[string]Claim{}
	for k, v := range raw {
		out[k] = Claim{Rows: v.Rows, FirstTS: v.FirstTS, LastTS: v.LastTS}
	}
	return out
}

// hashColumns hashes every column, up to limit bytes each.
func hashColumns(b []byte, limit int64) ([]goldenColumn, error) {
	columns, err := bounds.Columns(b)
	if err != nil {
		return nil, err
	}
	out := make([]goldenColumn, len(columns))
	for i, c := range columns {
		h := newColumnHash(max(1, c.Width), limit)
		if err := bounds.Visit(b, i, Options{}.bounds(), h); err != nil {
			return nil, err
		}
		out[i] = h.sum()
		out[i].Name = c.Name
	}
	return out, nil
}

// TestValuesAsPyarrow compares every value of every column with what pyarrow
// reads: the crate's own segments, the telemetry producer's, and files of every
// codec, encoding and page version.
func TestValuesAsPyarrow(t *testing.T) {
	var golden map[string]goldenFile
	readJSON(t, "golden.json", &golden)
	values := int64(0)
	for name, want := range golden {
		b := readFile(t, name)
		got, err := hashColumns(b, 1<<30)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got) != len(want.Columns) {
			t.Errorf("%s: %d columns, pyarrow has %d", name, len(got), len(want.Columns))
			continue
		}
		for i := range got {
			if got[i] != want.Columns[i] {
				t.Errorf("%s: column %d is\n%+v, pyarrow has\n%+v", name, i, got[i], want.Columns[i])
			}
			values += got[i].Values
		}
		if r := Check(b, Claim{}, Options{Depth: DepthFooter}); !r.Sound() || r.ParquetRows != want.Rows {
			t.Errorf("%s: %d rows, pyarrow has %d; %v", name, r.ParquetRows, want.Rows, r.Findings)
		}
	}
	if len(golden) < 50 || values < 400_000 {
		t.Errorf("%d files and %d values were compared, which is too few", len(golden), values)
	}
}

// TestCorpusCovers: the compared files hold every codec but LZO, every encoding
// that writers still use, both page versions and every physical type.
func TestCorpusCovers(t *testing.T) {
	var golden map[string]goldenFile
	readJSON(t, "golden.json", &golden)
	codecs, encodings, pages, types := map[int64]int{}, map[int64]int{}, map[int64]int{}, map[int64]int{}
	for name := range golden {
		a, err := takeApart(readFile(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range a.chunks {
			codecs[c.meta.at(4).num]++
			types[c.meta.at(1).num]++
			for _, p := range c.pages {
				pages[p.header.at(1).num]++
				if h := p.header.at(5); h != nil {
					encodings[h.at(2).num]++
				}
				if h := p.header.at(8); h != nil {
					encodings[h.at(4).num]++
				}
			}
		}
	}
	for what, have := range map[string]struct {
		got  map[int64]int
		want []int64
	}{
		"codec":    {codecs, []int64{0, 1, 2, 4, 5, 6, 7}},
		"encoding": {encodings, []int64{0, 2, 3, 5, 6, 7, 8, 9}},
		"page":     {pages, []int64{0, 2, 3}},
		"type":     {types, []int64{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		for _, n := range have.want {
			if have.got[n] == 0 {
				t.Errorf("no %s %d in the corpus", what, n)
			}
		}
		t.Logf("%s: %v", what, have.got)
	}
}
