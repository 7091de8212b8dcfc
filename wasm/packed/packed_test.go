package packed

import (
	"bytes"
	"reflect"
	"testing"

	"wiretape/wire"
)

var context = &wire.Context{Protocol: "dendro", Version: 1, Omitted: []string{"source 3"}, Entries: []wire.ContextEntry{
	{ID: 1 << 63, Values: []wire.ContextValue{{Name: "handshake", Bytes: []byte{1, 2, 3}}, {Name: "last_seq", Num: 1<<64 - 1}, {Name: "empty", Bytes: []byte{}}}},
	{ID: 0},
}}

func TestContext(t *testing.T) {
	b := AppendContext(nil, context)
	r := NewReader(b)
	if got := r.Context(); r.Err() != nil || r.Rest() != 0 || !reflect.DeepEqual(got, context) {
		t.Fatalf("%+v, %v", got, r.Err())
	}
	r = NewReader(AppendContext(nil, nil))
	if r.Context() != nil || r.Err() != nil {
		t.Fatal(r.Err())
	}
	for i := range b {
		r := NewReader(b[:i])
		if c := r.Context(); c != nil || r.Err() == nil {
			t.Errorf("cut at %d gave %+v", i, c)
		}
	}
}

func TestLimits(t *testing.T) {
	// A count far beyond what is left allocates nothing.
	b := append([]byte{1}, AppendString(nil, "p")...)
	b = AppendUint(AppendUint(b, 1), 1<<19)
	r := NewReader(b)
	if r.Context() != nil || r.Err() == nil {
		t.Fatal("a count without content was taken")
	}
}

func FuzzContext(f *testing.F) {
	f.Add(AppendContext(nil, context))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		c := r.Context()
		if r.Err() != nil {
			return
		}
		again := NewReader(AppendContext(nil, c)).Context()
		if !bytes.Equal(AppendContext(nil, c), AppendContext(nil, again)) {
			t.Fatal("not the same")
		}
	})
}
