package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// prefixed is the least protocol: a u32 length and that many bytes.
type prefixed struct{}

func (prefixed) Head(b []byte, end bool) Head {
	if len(b) < 4 {
		return Head{Type: UnitMore, Size: 4}
	}
	return Head{Type: UnitFrame, Size: 4 + int64(binary.LittleEndian.Uint32(b)), Peek: 4}
}
func (prefixed) Observe(u Unit, f []Finding) []Finding { return f }
func (prefixed) Info(Unit) Info                        { return Info{} }
func (prefixed) Fields(Unit) ([]Field, *Finding)       { return nil, nil }
func (prefixed) Context(int) *Context                  { return nil }

// A reader's buffer is as large as the largest unit, however many units come and
// however they lie in it.
func TestReaderBufferStaysSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	largest := 0
	for range 40 {
		n := r.IntN(5000)
		if r.IntN(3) == 0 {
			n = r.IntN(3 << 20)
		}
		largest = max(largest, n+4)
		stream = binary.LittleEndian.AppendUint32(stream, uint32(n))
		for len(stream)%8 != 0 && n > 0 {
			stream = append(stream, byte(r.Uint32()))
			n--
		}
		stream = append(stream, bytes.Repeat([]byte{byte(n)}, n)...)
	}
	for name, src := range map[string]io.Reader{"whole": bytes.NewReader(stream), "halves": iotest.HalfReader(bytes.NewReader(stream)),
		"end with data": iotest.DataErrReader(bytes.NewReader(stream))} {
		rd := NewReader(src, prefixed{}, ReaderOptions{})
		var got []byte
		for {
			u, _, err := rd.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(name, err)
			}
			got = append(got, u.Bytes...)
		}
		if !bytes.Equal(got, stream) || rd.Ending() != EndingClean {
			t.Errorf("%s: %d of %d bytes came out, %s", name, len(got), len(stream), rd.Ending())
		}
		if limit := max(readWindow, largest); len(rd.buf) > limit {
			t.Errorf("%s: the buffer has %d bytes, the largest unit %d", name, len(rd.buf), largest)
		}
	}
}
