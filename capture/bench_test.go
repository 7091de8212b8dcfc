package capture_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/lenproto"
	"wiretape/wire/protocols"
)

// benchStream is about 8 MiB of frames of one size, of lenproto.
func benchStream(payload int) []byte {
	b := []byte("LEN1")
	for len(b) < 8<<20 {
		b = binary.LittleEndian.AppendUint32(b, uint32(payload))
		b = append(b, 1)
		b = append(b, bytes.Repeat([]byte{byte(len(b))}, payload-1)...)
	}
	return b
}

// BenchmarkWrite records frames of several sizes in reads of 64 KiB; "plain"
// is the same reads written to one file, which is what there is to reach.
func BenchmarkWrite(b *testing.B) {
	const read = 64 << 10
	b.Run("plain", func(b *testing.B) {
		stream := benchStream(1000)
		f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		b.SetBytes(int64(len(stream)))
		for b.Loop() {
			for p := stream; len(p) > 0; {
				n := min(read, len(p))
				if _, err := f.WriteAt(p[:n], int64(len(stream)-len(p))); err != nil {
					b.Fatal(err)
				}
				p = p[n:]
			}
		}
	})
	for _, payload := range []int{50, 1000, 100_000} {
		b.Run(fmt.Sprintf("frames-%d", payload), func(b *testing.B) {
			benchRecord(b, benchStream(payload), lenproto.Name, read)
		})
	}
	b.Run("raw", func(b *testing.B) { benchRecord(b, benchStream(1000), capture.ProtocolRaw, read) })
}

func benchRecord(b *testing.B, stream []byte, protocol string, read int) {
	reg := append(lenproto.Registry, protocols.All()...)
	d, err := capture.Create(b.TempDir(), capture.Options{Registry: reg, RotateBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	w, err := d.Connect(capture.ConnInfo{Protocol: protocol})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	body := stream
	for b.Loop() {
		for p := body; len(p) > 0; {
			n := min(read, len(p))
			if _, err := w.Write(p[:n], capture.SystemClock.Now()); err != nil {
				b.Fatal(err)
			}
			p = p[n:]
		}
		// The preamble comes once.
		if protocol != capture.ProtocolRaw {
			body = stream[4:]
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRotate is one file: opened, written, sealed.
func BenchmarkRotate(b *testing.B) {
	d, err := capture.Create(b.TempDir(), capture.Options{Registry: lenproto.Registry})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	w, err := d.Connect(capture.ConnInfo{Protocol: capture.ProtocolRaw})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := w.Write([]byte("some bytes"), capture.SystemClock.Now()); err != nil {
			b.Fatal(err)
		}
		if err := w.Rotate(sidecar.ClosedRequest); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpenInputs looks at a directory of 2,000 files, for the first time
// and again.
func BenchmarkOpenInputs(b *testing.B) {
	r := recordMem(b, 1, 2000, 1)
	opt := inputs(r.mem())
	look := func(b *testing.B, opt capture.InputOptions) {
		set, err := capture.OpenInputs([]string{"/a"}, opt)
		if err != nil || len(set.Connections[0].Files) < 2000 || len(set.Connections[0].Findings) > 0 {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			look(b, opt)
		}
	})
	b.Run("again", func(b *testing.B) {
		opt.Cache = &capture.Cache{}
		look(b, opt)
		for b.Loop() {
			look(b, opt)
		}
	})
}
