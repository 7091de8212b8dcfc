package detail

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/replay/segment/bounds"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// units reads a fixture's units with the state before each.
func units(t testing.TB, name string) (all []wire.Unit, before []*wire.Context) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../wire/dendro/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := dendro.Protocol{}.Open(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < int64(len(b)); {
		h := d.Head(b[off:], true)
		if h.Type != wire.UnitFrame && h.Type != wire.UnitPreamble {
			break
		}
		u := wire.Unit{Type: h.Type, Offset: off, Size: h.Size, Kind: h.Kind, Bytes: b[off : off+h.Size]}
		all, before = append(all, u), append(before, d.Context(1<<20))
		d.Observe(u, nil)
		off += h.Size
	}
	return all, before
}

func open(t testing.TB, u wire.Unit, c *wire.Context) *Detail {
	t.Helper()
	o, err := Open(dendro.Protocol{}, wire.Downstream, c, u)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestLocate: every byte of every frame is found in the deepest field that
// holds it, and the path leads there.
func TestLocate(t *testing.T) {
	all, before := units(t, "real/live.stream")
	bytes := 0
	for i, u := range all[:40] {
		o := open(t, u, before[i])
		for off := u.Offset; off < u.End(); off++ {
			path := o.Locate(off)
			if len(path) == 0 {
				t.Fatalf("unit %d: byte %d is in no field", i, off)
			}
			f := o.at(path)
			if f == nil || off < f.Offset || off >= f.Offset+f.Length {
				t.Fatalf("unit %d: byte %d is at %v, which is %+v", i, off, path, f)
			}
			for _, c := range f.Children(nil, 0, f.Count) {
				if off >= c.Offset && off < c.Offset+c.Length {
					t.Fatalf("unit %d: byte %d is in %s, deeper than %v", i, off, c.Name, path)
				}
			}
			bytes++
		}
		if o.Locate(u.Offset-1) != nil || o.Locate(u.End()) != nil {
			t.Fatal("a byte outside was found")
		}
	}
	if bytes < 5000 {
		t.Fatal(bytes)
	}
}

// TestFindings: a frame opened under the state before it has the findings that
// the whole stream has there.
func TestFindings(t *testing.T) {
	for name, kind := range map[string]string{"gap": "gap", "state-mismatch": "skipped", "bad-utf8": "malformed", "unknown-ordinal": "ordinal", "rows-before-full": "skipped"} {
		all, before := units(t, "crafted/"+name+".stream")
		var found []string
		for i, u := range all {
			for _, f := range open(t, u, before[i]).Findings() {
				found = append(found, f.Kind)
				if f.Offset < u.Offset || f.Offset > u.End() {
					t.Errorf("%s: %+v is outside of its unit", name, f)
				}
			}
		}
		if !strings.Contains(strings.Join(found, " "), kind) {
			t.Errorf("%s: found %v, none is a %s", name, found, kind)
		}
	}
}

func TestChildren(t *testing.T) {
	all, before := units(t, "crafted/clean-complete.stream")
	o := open(t, all[1], before[1])
	var list []struct {
		Name, Type, Value string
		Count             int
	}
	if err := json.Unmarshal(o.AppendChildren(nil, nil, 0, 100), &list); err != nil {
		t.Fatal(err)
	}
	names := ""
	labels := -1
	for i, f := range list {
		names += f.Name + " "
		if f.Name == "labels" {
			labels = i
		}
	}
	if names != "len kind source uuid labels metadata clock_anchor_wall_ns complete " {
		t.Fatal(names)
	}
	if got := string(o.AppendJSON(nil, []int{labels}, sha256.Sum256)); got != `{"host":"craft-0","source":"craft"}` {
		t.Fatal(got)
	}
	if got := string(o.AppendChildren(nil, []int{labels}, 1, 5)); !strings.HasPrefix(got, `[{"name":"source"`) {
		t.Fatal(got)
	}
	for _, path := range [][]int{{99}, {-1}, {labels, 7}, {labels, -1}, {labels, 0, 0}} {
		if got := string(o.AppendChildren(nil, path, 0, 5)); got != "[]" {
			t.Errorf("%v has %s", path, got)
		}
		if o.AppendJSON(nil, path, sha256.Sum256) != nil {
			t.Errorf("%v has JSON", path)
		}
	}
}

func TestSegment(t *testing.T) {
	opt := bounds.Options{Depth: bounds.DepthFull}
	all, before := units(t, "crafted/clean-complete.stream")
	seen := 0
	for i, u := range all {
		got := string(open(t, u, before[i]).AppendCheck(nil, opt))
		if u.Kind != dendro.KindSegment {
			if got != "null" {
				t.Errorf("a kind %d has %s", u.Kind, got)
			}
			continue
		}
		seen++
		if !strings.Contains(got, `"sound":true,"proved":true`) {
			t.Error(got)
		}
	}
	all, before = units(t, "crafted/bad-parquet-footer.stream")
	for i, u := range all {
		if u.Kind != dendro.KindSegment {
			continue
		}
		seen++
		var c struct {
			Offset, Length int64
			Sound          bool
			Findings       []struct {
				Kind   string
				Offset int64
			}
		}
		if err := json.Unmarshal(open(t, u, before[i]).AppendCheck(nil, opt), &c); err != nil {
			t.Fatal(err)
		}
		if c.Sound || len(c.Findings) != 1 || c.Findings[0].Kind != bounds.KindFooter || c.Findings[0].Offset < c.Offset || c.Findings[0].Offset > c.Offset+c.Length {
			t.Errorf("%+v", c)
		}
	}
	if seen != 2 {
		t.Fatal(seen)
	}
}

func TestPreview(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain words\n":                "“plain words\\n”",
		"\x00\x01\xff":                 "0001ff",
		"PAR1\x15\x00":                 "504152311500",
		"safe\u202eexe":                "“safe\\u202eexe”",
		strings.Repeat("x", 47) + "é!": "“" + strings.Repeat("x", 47) + "…”",
		strings.Repeat("\xff", 60):     strings.Repeat("ff", 45) + "…",
	} {
		if got := preview([]byte(in)); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
