package aewr

import (
	"bytes"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"testing"

	"wiretape/internal/aewrgen"
	"wiretape/wire"
)

// benchStream is size bytes of frames that are 4 KiB on average, of the
// payloads that a busy worker sends.
func benchStream(size int) []byte {
	keys := make([]aewrgen.KeyOffset, 250)
	groups := make([]aewrgen.Group, 63)
	cells := make([][]aewrgen.Cell, 170)
	for i := range keys {
		keys[i] = aewrgen.KeyOffset{SortKey: uint64(i) << 20, RowOffset: uint64(i) * 96}
	}
	for i := range groups {
		groups[i].Key, groups[i].Used = uint64(i), true
	}
	for i := range cells {
		cells[i] = []aewrgen.Cell{{Value: int64(i), Valid: true}, {Value: 5}, {Value: int64(-i), Valid: i%3 == 0}}
	}
	frames := []aewrgen.Frame{
		{Type: ResultStreamChunk, Constants: aewrgen.KeyOffsets(keys)},
		{Type: ResultMaterializeChunk, Constants: aewrgen.Materialized(3, cells, nil)},
		{Type: ResultGroupedAggChunk, Constants: aewrgen.Groups(groups)},
		{Type: SegmentStreamChunk, Constants: aewrgen.Segment(true, 0, 1, make([]byte, 4000))},
	}
	return repeated(size, frames)
}

// hashStream is hash tables of 4 KiB alone: they travel the other way.
func hashStream(size int) []byte {
	dir := make([]aewrgen.HashSlot, 128)
	var records [][]uint64
	for i := range dir {
		dir[i].Free = i%2 == 1
		if i%2 == 0 {
			dir[i].Start, dir[i].Count = uint32(len(records)), 1
			records = append(records, []uint64{uint64(i), 3, 1, 2})
		}
	}
	return repeated(size, []aewrgen.Frame{{Type: HashTableLoad, Constants: aewrgen.HashTable(dir, 4, records)}})
}

func repeated(size int, frames []aewrgen.Frame) []byte {
	var stream []byte
	for n := 0; len(stream) < size; n++ {
		f := frames[n%len(frames)]
		f.Version, f.Cluster, f.Epoch, f.Txn, f.Container, f.Tenant = 31, 0x1122334455667788, 12, uint64(n/50), uint64(n%7), uint64(n%3)
		stream = f.Append(stream)
	}
	return stream
}

func headerStream(size int) (stream []byte) {
	for n := 0; len(stream) < size; n++ {
		stream = aewrgen.Frame{Version: 31, Type: ExecSuccess, Cluster: 0x1122334455667788, Epoch: 12, Txn: uint64(n / 3), Container: uint64(n % 7)}.Append(stream)
	}
	return stream
}

// walk drives a decoder over frames that lie in memory. whole gives Observe
// every payload, as a Reader does, else only the header, as a Scanner does.
func walk(b *testing.B, stream []byte, whole bool) (frames int) {
	d := open(b, wire.Config{})
	var findings []wire.Finding
	for at := 0; at < len(stream); {
		h := d.Head(stream[at:], true)
		u := wire.Unit{Type: h.Type, Offset: int64(at), Size: h.Size, Kind: h.Kind, Bytes: stream[at : at+HeaderSize]}
		if whole {
			u.Bytes = stream[at : at+int(h.Size)]
		}
		findings = d.Observe(u, findings)
		at += int(h.Size)
		frames++
	}
	if len(findings) > 0 {
		b.Fatalf("%+v", findings[0])
	}
	return frames
}

func bench(b *testing.B, stream []byte, run func() int) {
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	frames := 0
	for b.Loop() {
		frames += run()
	}
	b.ReportMetric(float64(frames)/b.Elapsed().Seconds()/1e6, "Mframes/s")
}

const benchBytes = 64 << 20

// BenchmarkHeaders walks the headers of frames of 4 KiB with their checksums.
func BenchmarkHeaders(b *testing.B) {
	stream := benchStream(benchBytes)
	bench(b, stream, func() int { return walk(b, stream, false) })
}

// BenchmarkPayloads checks every payload too.
func BenchmarkPayloads(b *testing.B) {
	stream := benchStream(benchBytes)
	bench(b, stream, func() int { return walk(b, stream, true) })
}

// BenchmarkHashTables checks hash tables, the payload that costs most.
func BenchmarkHashTables(b *testing.B) {
	stream := hashStream(benchBytes)
	bench(b, stream, func() int { return walk(b, stream, true) })
}

// BenchmarkHeaderOnlyFrames walks frames without a payload.
func BenchmarkHeaderOnlyFrames(b *testing.B) {
	stream := headerStream(benchBytes)
	bench(b, stream, func() int { return walk(b, stream, true) })
}

// BenchmarkChecksum is the checksum alone, the floor under the one above.
func BenchmarkChecksum(b *testing.B) {
	stream := headerStream(1 << 20)
	bench(b, stream, func() (n int) {
		for at := 0; at < len(stream); at += HeaderSize {
			if Checksum(stream[at:]) == 0 {
				n--
			}
			n++
		}
		return n
	})
}

// BenchmarkChecksumOfLibrary is the same by the standard library, byte by byte.
func BenchmarkChecksumOfLibrary(b *testing.B) {
	stream := headerStream(1 << 20)
	hash := fnv.New32a()
	var zero [4]byte
	bench(b, stream, func() (n int) {
		for at := 0; at < len(stream); at += HeaderSize {
			hash.Reset()
			hash.Write(stream[at : at+offChecksum])
			hash.Write(zero[:])
			hash.Write(stream[at+offChecksum+4 : at+HeaderSize])
			if hash.Sum32() == 0 {
				n--
			}
			n++
		}
		return n
	})
}

// BenchmarkReader and BenchmarkScanner drive the decoder as replay and capture
// do.
func BenchmarkReader(b *testing.B) {
	stream := benchStream(benchBytes)
	bench(b, stream, func() (frames int) {
		r := wire.NewReader(bytes.NewReader(stream), open(b, wire.Config{}), wire.ReaderOptions{})
		for {
			if _, _, err := r.Next(); err == io.EOF {
				return frames
			}
			frames++
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	stream := benchStream(benchBytes)
	bench(b, stream, func() (frames int) {
		s := wire.NewScanner(open(b, wire.Config{}), 0, 0)
		for p := stream; len(p) > 0; {
			n, _, done := s.Next(p)
			p = p[n:]
			if done {
				frames++
			}
		}
		return frames
	})
}

// BenchmarkPlainWalk reads the same bytes and does nothing else: the ceiling.
func BenchmarkPlainWalk(b *testing.B) {
	stream := benchStream(benchBytes)
	bench(b, stream, func() int { return bytes.Count(stream, []byte{0xfe}) & 0 })
}

// BenchmarkSearch steps over bytes in which no frame starts, some of them made to
// look as if, to a session behind them.
func BenchmarkSearch(b *testing.B) {
	tail := session(31).Workers[0].Streams[aewrgen.Up]
	lure := func(size uint32) []byte {
		h := Header{Version: 31, MessageType: ExecSuccess, ConstantsLen: size}
		head := h.Append(nil)
		head[offChecksum] ^= 1
		return head
	}
	random := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(random)
	for _, j := range []struct {
		name  string
		piece []byte
	}{{"random", random}, {"zeros", make([]byte, 1<<20)}, {"magic", []byte(Magic)}, {"headers", lure(200 << 10)}, {"headers-alone", append(lure(10), "............"...)}} {
		for _, size := range []int{4 << 20, 32 << 20} {
			stream := append(bytes.Repeat(j.piece, size/len(j.piece)), tail...)
			b.Run(j.name+"/"+wire.Itoa(int64(size>>20))+"MiB", func(b *testing.B) {
				bench(b, stream, func() (frames int) {
					r := wire.NewReader(bytes.NewReader(stream[1:]), open(b, wire.Config{Named: true}), wire.ReaderOptions{})
					for {
						if _, _, err := r.Next(); err == io.EOF {
							return frames
						}
						frames++
					}
				})
			})
		}
	}
}
