package record

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"wiretape/capture"
)

// TestBuffer: whatever the sizes and the speeds of both sides, the bytes come
// out as they went in, each read with its arrival, within the limit.
func TestBuffer(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := newBuffer(0)
		sent := make([]byte, 4<<20)
		rand.NewChaCha8([32]byte{byte(seed)}).Read(sent)
		type read struct {
			end int
			at  int64
		}
		var reads []read
		slowReader, slowWriter := seed%3 == 0, seed%3 == 1
		go func() {
			n := 0
			for n < len(sent) {
				p := b.reserve()
				k := min(len(p), 1+r.IntN(1<<r.IntN(21)), len(sent)-n)
				copy(p, sent[n:n+k])
				n += k
				reads = append(reads, read{n, int64(len(reads))})
				b.commit(k, capture.Instant{Mono: int64(len(reads) - 1)})
				if slowReader && len(reads)%16 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			b.end()
		}()
		var got []byte
		var marks []read
		w := rand.New(rand.NewPCG(seed, 1))
		for {
			p, from, ms, end := b.take()
			if end {
				break
			}
			if len(p) == 0 {
				<-b.ready
				continue
			}
			ms = ms[:1+w.IntN(len(ms))] // some of them, as a writer that rotates
			n := ms[len(ms)-1].end - from
			at := len(got)
			got = append(got, p[:n]...)
			for _, m := range ms {
				marks = append(marks, read{at + m.end - from, m.at.Mono})
			}
			if slowWriter {
				time.Sleep(50 * time.Microsecond)
			}
			b.release(n)
			b.mu.Lock()
			if b.held > b.limit {
				t.Fatalf("seed %d: %d bytes held", seed, b.held)
			}
			b.mu.Unlock()
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: got %d bytes, other than the %d sent", seed, len(got), len(sent))
		}
		for i := range reads {
			if i >= len(marks) || marks[i] != reads[i] {
				t.Fatalf("seed %d: read %d is %v, went in as %v", seed, i, marks[min(i, len(marks)-1)], reads[i])
			}
		}
		if b.held != 0 && len(b.chunks) > 1 || b.wait != 0 {
			t.Errorf("seed %d: %d bytes held and %d waiting at the end", seed, b.held, b.wait)
		}
	}
}

// TestBufferFullCountsTheWait: a full buffer makes its reader wait, and says
// for how long; giving it up lets the reader go and counts what is lost.
func TestBufferFullCountsTheWait(t *testing.T) {
	b := newBuffer(0)
	fill := func() (n int) {
		for {
			p, full := b.tryReserve()
			if full {
				return n
			}
			b.commit(len(p), capture.Instant{})
			n += len(p)
		}
	}
	n := fill()
	if n == 0 || int64(n) > b.limit {
		t.Fatalf("%d bytes in a buffer of %d", n, b.limit)
	}
	time.Sleep(30 * time.Millisecond)
	p, _, _, _ := b.take()
	b.release(len(p))
	more := fill()
	if more == 0 {
		t.Fatal("no room after a release")
	}
	wait, high, stalled := b.usage()
	if stalled < 30*time.Millisecond || wait != int64(n+more-len(p)) || high != max(int64(n), wait) {
		t.Errorf("waiting %d, most %d, stalled %v", wait, high, stalled)
	}
	released := make(chan []byte)
	go func() { released <- b.reserve() }()
	time.Sleep(10 * time.Millisecond)
	if lost := b.giveUp(); lost != wait {
		t.Errorf("%d bytes lost of %d", lost, wait)
	}
	if p := <-released; p != nil {
		t.Error("a broken buffer gave room")
	}
}

func BenchmarkBuffer(b *testing.B) {
	q := newBuffer(16 << 20)
	const n = 64 << 10
	b.SetBytes(n)
	go func() {
		for range b.N {
			p := q.reserve()
			q.commit(min(n, len(p)), capture.Instant{})
		}
		q.end()
	}()
	for {
		p, _, _, end := q.take()
		if end {
			return
		}
		if len(p) == 0 {
			<-q.ready
			continue
		}
		q.release(len(p))
	}
}
