package shadow

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"wiretape/internal/aewrgen"
)

// benchFile is a stream of about size bytes of what frame makes, numbered.
func benchFile(b *testing.B, name string, size int64, frame func(n uint64) aewrgen.Frame) (path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	var buf []byte
	for n, written := uint64(0), int64(0); written < size; n++ {
		x := frame(n)
		x.Version, x.Cluster, x.Epoch = 31, 0x1122334455667788, 3
		buf = x.Append(buf[:0])
		written += int64(len(buf))
		if _, err := w.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	return path
}

func benchBuild(b *testing.B, path string, size int64) {
	b.Helper()
	b.SetBytes(size)
	var frames, memory float64
	for b.Loop() {
		out := filepath.Join(b.TempDir(), "out")
		var peak runtime.MemStats
		r, err := Build(set(b, path), out, Options{Progress: func(p Progress) {
			if p.Frames%20_000 == 0 {
				runtime.ReadMemStats(&peak)
				memory = max(memory, float64(peak.HeapInuse))
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		frames += float64(r.Counts.Frames)
		if err := os.RemoveAll(out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(frames/b.Elapsed().Seconds()/1e3, "kframes/s")
	b.ReportMetric(memory/(1<<20), "heap-MiB")
}

// BenchmarkBuildSegments is a shadow's tail in chunks of 64 KiB.
func BenchmarkBuildSegments(b *testing.B) {
	const size = 256 << 20
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = byte(i * 7)
	}
	benchBuild(b, benchFile(b, "up.stream", size, func(n uint64) aewrgen.Frame {
		return aewrgen.Frame{Type: 0x1B, Container: 1 + n%4, Constants: aewrgen.Segment(true, n/4*uint64(len(data)), 1, data)}
	}), size)
}

// BenchmarkBuildFrames is small frames of many transactions.
func BenchmarkBuildFrames(b *testing.B) {
	const size = 24 << 20
	benchBuild(b, benchFile(b, "up.stream", size, func(n uint64) aewrgen.Frame {
		return aewrgen.Frame{Type: 0x14, Txn: n / 3, Container: n % 7}
	}), size)
}

// BenchmarkBuildResults is chunks of key offsets.
func BenchmarkBuildResults(b *testing.B) {
	const size = 24 << 20
	rows := make([]aewrgen.KeyOffset, 250)
	benchBuild(b, benchFile(b, "up.stream", size, func(n uint64) aewrgen.Frame {
		for i := range rows {
			rows[i] = aewrgen.KeyOffset{SortKey: n<<20 + uint64(i), RowOffset: n*250 + uint64(i)}
		}
		return aewrgen.Frame{Type: 0x02, Txn: n / 3, Container: n % 7, Constants: aewrgen.KeyOffsets(rows)}
	}), size)
}
