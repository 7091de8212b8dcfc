package bounds

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	snappyPeer "github.com/klauspost/compress/snappy"
)

// sampleText has literals, short and long matches, and runs.
func sampleText(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := []string{"timestamp", "cpu_usage/total", "\x00\x00\x00\x00\x00\x00\x00", "a", "0123456789abcdef0123456789abcdef"}
	var b []byte
	for len(b) < n {
		switch rnd.IntN(4) {
		case 0:
			b = append(b, byte(rnd.Uint32()), byte(rnd.Uint32()))
		case 1:
			b = append(b, bytes.Repeat([]byte{byte(rnd.IntN(3))}, rnd.IntN(300))...)
		default:
			b = append(b, words[rnd.IntN(len(words))]...)
		}
	}
	return b[:n]
}

// TestSnappyAsPeer decodes what the peer encodes, at every small size and at
// large ones.
func TestSnappyAsPeer(t *testing.T) {
	all := sampleText(200_000)
	for n := 0; n < len(all); n += 1 + n/3 {
		src := snappyPeer.Encode(nil, all[:n])
		dst := make([]byte, n)
		if err := snappy(dst, src); err != nil || !bytes.Equal(dst, all[:n]) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if err := snappy(make([]byte, n+1), src); err == nil {
			t.Fatalf("%d bytes fill %d", n, n+1)
		}
		if n > 0 && snappy(make([]byte, n-1), src) == nil {
			t.Fatalf("%d bytes fit in %d", n, n-1)
		}
	}
}

// lz4Blocks are LZ4 blocks made by hand after the format's description, with
// what they decode to.
var lz4Blocks = []struct{ name, block, want string }{
	{"nothing", "00", ""},
	{"literals", "50 68656c6c6f", "hello"},
	{"15 literals", "f0 00 6162636465666768696a6b6c6d6e6f", "abcdefghijklmno"},
	{"a match", "44 61626364 0400 50 7778797a21", "abcdabcdabcdwxyz!"},
	{"a run", "1f 61 0100 00 00", "aaaaaaaaaaaaaaaaaaaa"},
	{"a match that overlaps", "30 616263 0300 10 21", "abcabca!"},
}

// badBlocks must not decode, whatever the output's size.
var badBlocks = []struct{ name, block string }{
	{"empty", ""},
	{"literals cut", "50 68656c"},
	{"a length cut", "f0 ff"},
	{"an offset cut", "10 61 01"},
	{"an offset of 0", "10 61 0000 00"},
	{"an offset before the output", "10 61 0200 00"},
	{"ends with a match", "10 61 0100"},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLZ4Blocks(t *testing.T) {
	for _, tt := range lz4Blocks {
		src := unhex(t, tt.block)
		dst := make([]byte, len(tt.want))
		if err := lz4(dst, src); err != nil || string(dst) != tt.want {
			t.Errorf("%s: %q, %v", tt.name, dst, err)
		}
		if err := lz4(make([]byte, len(tt.want)+1), src); err == nil {
			t.Errorf("%s fills a byte more", tt.name)
		}
		if len(tt.want) > 0 && lz4(dst[1:], src) == nil {
			t.Errorf("%s fits in a byte less", tt.name)
		}
		for i := range src {
			if err := lz4(dst, src[:i]); err == nil {
				t.Errorf("%s cut at %d decodes", tt.name, i)
			}
		}
	}
	for _, tt := range badBlocks {
		for n := range 20 {
			if err := lz4(make([]byte, n), unhex(t, tt.block)); err == nil {
				t.Errorf("%s decodes to %d bytes", tt.name, n)
			}
		}
	}
}

// TestLZ4Hadoop: blocks behind their sizes, several of them, and a bare block.
func TestLZ4Hadoop(t *testing.T) {
	var framed []byte
	var want []byte
	for _, tt := range lz4Blocks {
		src := unhex(t, tt.block)
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(tt.want)))
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(src)))
		framed = append(framed, src...)
		want = append(want, tt.want...)
		dst := make([]byte, len(tt.want))
		if err := lz4Hadoop(dst, src); err != nil || string(dst) != tt.want {
			t.Errorf("%s without its sizes: %q, %v", tt.name, dst, err)
		}
	}
	dst := make([]byte, len(want))
	if err := lz4Hadoop(dst, framed); err != nil || !bytes.Equal(dst, want) {
		t.Errorf("%q, %v", dst, err)
	}
	for i := range framed {
		if lz4Hadoop(dst, framed[:i]) == nil {
			t.Errorf("cut at %d decodes", i)
		}
	}
	if lz4Hadoop(append(dst, 0), framed) == nil {
		t.Error("fills a byte more")
	}
}

// FuzzBlocks: neither decoder writes outside its output or takes other bytes
// for a whole block than its peer does.
func FuzzBlocks(f *testing.F) {
	for _, tt := range lz4Blocks {
		f.Add(unhex(f, tt.block), len(tt.want))
	}
	for _, tt := range badBlocks {
		f.Add(unhex(f, tt.block), 4)
	}
	for _, n := range []int{0, 1, 40, 700} {
		f.Add(snappyPeer.Encode(nil, sampleText(n)), n)
	}
	f.Fuzz(func(t *testing.T, src []byte, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		const guard = 0x5a
		room := bytes.Repeat([]byte{guard}, n+16)
		in := slices.Clone(src)
		for name, decode := range map[string]Decompress{"lz4": lz4, "lz4 framed": lz4Hadoop, "snappy": snappy} {
			err := decode(room[:n:n], src)
			if !bytes.Equal(room[n:], bytes.Repeat([]byte{guard}, 16)) || !bytes.Equal(in, src) {
				t.Fatalf("%s wrote outside its output", name)
			}
			if name == "snappy" && err == nil {
				if want, peerErr := snappyPeer.Decode(nil, src); peerErr != nil || !bytes.Equal(want, room[:n]) {
					t.Fatalf("%s decodes what its peer does not: %v", name, peerErr)
				}
			}
		}
	})
}
