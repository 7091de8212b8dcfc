package dendro_test

import (
	"encoding/binary"
	"testing"
	"time"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// TestSearchCost: bytes made to look like the beginning of a Handshake at
// every place can't make the search for one take for ever.
func TestSearchCost(t *testing.T) {
	// As often as can be begins a Handshake whose one label has a key of text that
	// ends where its frame does, in a byte that no text has.
	const size = 2 << 20
	s := stream(hello(0))
	s = append(s, 0xff, 0xff, 0xff, 0xff)
	start := len(s)
	const head, rest = 4 + 1 + 4 + 1 + 4 + 4, 4 + 4 + 8 + 1
	for block := start; len(s) < start+size; block = len(s) {
		end := block + dendro.MaxResync/2
		for len(s)+2*head+rest < end {
			n, key := uint32(end-len(s)-4), uint32(end-len(s)-head-rest)
			if (n|key)&0x8080 != 0 {
				s = append(s, 'x') // the lengths themselves must be text
				continue
			}
			s = binary.LittleEndian.AppendUint32(s, n)
			s = append(s, dendro.KindHandshake, 0, 0, 0, 0, 0)
			s = binary.LittleEndian.AppendUint32(s, 1)
			s = binary.LittleEndian.AppendUint32(s, key)
		}
		for len(s) < end-rest-1 {
			s = append(s, 'x')
		}
		s = append(append(s, 0xff), make([]byte, rest)...)
	}
	began := time.Now()
	_, found, end := readAll(t, s, newDecoder(t), wire.ReaderOptions{})
	took := time.Since(began)
	t.Logf("%d bytes took %v", size, took)
	if end != wire.EndingLost || len(found) != 1 {
		t.Errorf("ending %s, %v", end, found)
	}
	if took > 10*time.Second {
		t.Errorf("searching %d bytes took %v", size, took)
	}
}
