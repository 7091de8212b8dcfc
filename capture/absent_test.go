package capture_test

import (
	"bytes"
	"strings"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/internal/vfs"
)

// A connection of which only the journal is left is named with its peer and its
// bytes; one that is here, that ended without a byte, or that came since the
// folder was listed is not.
func TestAbsentConnections(t *testing.T) {
	m := vfs.NewMem()
	d, err := capture.Create("/a", capture.Options{FS: m, Registry: lenproto.Registry, RotateBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	connect := func(n int, end bool) string {
		w, err := d.Connect(capture.ConnInfo{Protocol: "auto", Endpoint: "tcp://10.0.0.9:7000\x1b[2J"})
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if _, err := w.Write(bytes.Repeat([]byte{0}, n), capture.Instant{}); err != nil {
				t.Fatal(err)
			}
		}
		if end {
			if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
				t.Fatal(err)
			}
		}
		return w.ID()
	}
	remove := func(id string) {
		names, err := m.List("/a")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if capture.ParseName(n).Connection == id {
				if err := m.Remove("/a/" + n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	here, gone, empty := connect(2000, true), connect(3000, true), connect(0, true)
	ids = append(ids, here, gone, empty)
	remove(gone)
	remove(empty)
	set, err := capture.OpenInputs([]string{"/a"}, inputs(m))
	if err != nil {
		t.Fatal(err)
	}
	later := connect(10, false)
	found := set.Absent()
	if len(found) != 1 {
		t.Fatalf("%v of %v, the last %s: %+v", len(found), ids, later, found)
	}
	f := found[0]
	if f.Kind != capture.KindMissingConnection || f.Connection != gone || f.Length != 3000 ||
		!strings.Contains(f.Message, "tcp://10.0.0.9:7000") || strings.Contains(f.Message, "\x1b") || !strings.Contains(f.Cost, "3000 bytes") {
		t.Errorf("%+v", f)
	}
	info, err := capture.Describe([]string{"/a"}, capture.InfoOptions{Input: inputs(m)})
	if err != nil || len(info.Findings) != 1 || info.Findings[0].Kind != capture.KindMissingConnection || info.Findings[0].Connection != gone {
		t.Errorf("%v: %+v", err, info)
	}
	remove(later)
	if found = set.Absent(); len(found) != 2 || found[1].Connection != later || !strings.Contains(found[1].Cost, "what came behind") {
		t.Errorf("%+v", found)
	}
}
