package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// A stream whose first bytes are damaged is read when its protocol is named:
// the damage is a finding, and everything from the first Handshake on is there.
func TestDamagedMagicWithProtocolNamed(t *testing.T) {
	whole := must(os.ReadFile(stream("real/small")))
	want := golden(t, "dump/real/small")
	for at := range len(dendro.Magic) {
		b := append([]byte(nil), whole...)
		b[at] ^= 0x11
		path := filepath.Join(t.TempDir(), "damaged.bin")
		write(t, path, b)
		set, err := capture.OpenInputs([]string{path}, capture.InputOptions{Protocol: dendro.Name})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out.dendro")
		r, err := Build(set, Options{Archive: out})
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		if r.Verdict != Findings || r.FindingsByKind[wire.KindBadPreamble] != 1 || len(r.FindingsByKind) != 1 || r.Findings[0].Offset != 0 {
			t.Errorf("byte %d: verdict %s, %+v", at, r.Verdict, r.Findings)
		}
		if diff := cmp.Diff(want, dump(t, out)); diff != "" {
			t.Errorf("byte %d (-sound +damaged):\n%s", at, diff)
		}
		followed := filepath.Join(t.TempDir(), "out.dendro")
		if _, err := Follow(t.Context(), Options{Archive: followed}, FollowOptions{Once: true, Open: func() (*capture.Set, error) {
			return capture.OpenInputs([]string{path}, capture.InputOptions{Protocol: dendro.Name})
		}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, dump(t, followed)); diff != "" {
			t.Errorf("byte %d, followed (-sound +damaged):\n%s", at, diff)
		}
	}
}

// A stream without any Handshake fails with what was looked through in vain.
func TestNoHandshakeToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "middle.bin")
	b := must(os.ReadFile(stream("real/small")))[70_000:]
	write(t, path, b)
	set, err := capture.OpenInputs([]string{path}, capture.InputOptions{Protocol: dendro.Name})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build(set, Options{Archive: filepath.Join(t.TempDir(), "out.dendro")})
	want := "no frame was found in the " + wire.Itoa(int64(len(b))) + " bytes that are here"
	if err == nil || !strings.Contains(err.Error(), want) || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Message, want) {
		t.Errorf("%v\n%+v", err, r.Findings)
	}
}
