package journal

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"wiretape/capture"
	"wiretape/wire/melin"
)

// busy is a stream of size bytes of a busy primary, with a ChainCheck every 64
// batches.
func busy(size, payload int) []byte {
	p := newPrimary(8, 'a')
	h := blake3.New()
	data := make([]byte, payload)
	for n := 1; len(p.b) < size; n++ {
		at, count := 0, 0
		p.b, at = melin.BeginInputBatch(p.b)
		for len(p.b)-at < 32<<10 {
			p.seq++
			count++
			before := len(p.b)
			p.b = melin.AppendSlot(p.b, &melin.Slot{Sequence: p.seq, Timestamp: 1e18 + p.seq, Event: melin.EventApp, Payload: data}, melin.ShapeCRC)
			h.Write([]byte(melin.EntryMagic))
			h.Write(p.b[before:])
		}
		p.b = melin.EndInputBatch(p.b, at, count)
		if n%64 == 0 {
			c := h.Clone()
			c.Write(p.anchor[:])
			point := melin.ChainPoint{Sequence: p.seq}
			c.Sum(point.Hash[:0])
			p.b = point.Append(p.b, melin.TagChainCheck)
		}
	}
	return p.b
}

// BenchmarkChain checks the chain and every CRC of a stream in memory, and in
// the same run hashes the same entries by BLAKE3 and CRC-32C alone: BLAKE3 over
// all of them, CRC-32C over each, as there is one for each. ratio is how much of
// their speed is left; ratio-one-crc is the same against a single CRC-32C over
// all bytes, which proves no slot. Both are timed in blocks of a few frames, of
// which the best of all rounds counts: other load only slows.
func BenchmarkChain(b *testing.B) {
	for _, p := range []struct {
		name string
		size int
	}{{"slots-of-40", 9}, {"slots-of-287", 256}, {"slots-of-1055", 1024}} {
		b.Run(p.name, func(b *testing.B) {
			in := busy(32<<20, p.size)
			var blocks, entries [][]byte
			at, _ := frames(in)
			for i := 0; i < len(at); i += 8 {
				end := len(in)
				if i+8 < len(at) {
					end = at[i+8]
				}
				blocks = append(blocks, in[at[i]:end])
				entries = append(entries, entriesOf(in[at[i]:end]))
			}
			const magicAndSlot = 2 + 31 // the bytes of an entry around its payload
			type times struct{ hash, one, each, check time.Duration }
			best := make([]times, len(blocks))
			b.SetBytes(int64(len(in)))
			for round := 0; b.Loop(); round++ {
				h := blake3.New()
				c := checker{b: b, buf: make([]byte, 0, bufferSize+maxEntry)}
				for i := range blocks {
					t0 := time.Now()
					h.Write(entries[i])
					t1 := time.Now()
					crc32.Update(0, castagnoli, entries[i])
					t2 := time.Now()
					for e := entries[i]; len(e) > 0; e = e[p.size+magicAndSlot:] {
						crc32.Update(0, castagnoli, e[:p.size+magicAndSlot])
					}
					t3 := time.Now()
					c.check(blocks[i])
					now := times{t1.Sub(t0), t2.Sub(t1), t3.Sub(t2), time.Since(t3)}
					if round == 0 {
						best[i] = now
					}
					best[i] = times{min(best[i].hash, now.hash), min(best[i].one, now.one), min(best[i].each, now.each), min(best[i].check, now.check)}
				}
				if c.points == 0 {
					b.Fatal("no hash was checked")
				}
			}
			var sum times
			for _, t := range best {
				sum = times{sum.hash + t.hash, sum.one + t.one, sum.each + t.each, sum.check + t.check}
			}
			b.ReportMetric((sum.hash+sum.each).Seconds()/sum.check.Seconds(), "ratio")
			b.ReportMetric((sum.hash+sum.one).Seconds()/sum.check.Seconds(), "ratio-one-crc")
			b.ReportMetric(float64(len(in))/sum.check.Seconds()/1e6, "checked-MB/s")
		})
	}
}

func entriesOf(in []byte) (out []byte) {
	at, tags := frames(in)
	var s melin.Slot
	for i := range at {
		if tags[i] == melin.TagInputBatch {
			r := melin.SlotsOf(frameAt(in, at[i]), melin.ShapeCRC)
			for r.Next(&s) {
				out = append(append(out, melin.EntryMagic...), s.Raw...)
			}
		}
	}
	return out
}

func frameAt(in []byte, at int) []byte {
	n := int(in[at]) | int(in[at+1])<<8 | int(in[at+2])<<16
	return in[at : at+4+n]
}

// checker goes over the entries as a build does: CRC, gathering, chain, and
// every hash that is named.
type checker struct {
	b      *testing.B
	c      chain
	buf    []byte
	points int
}

func (k *checker) check(in []byte) {
	var s melin.Slot
	for at := 0; at < len(in); {
		f := frameAt(in, at)
		at += len(f)
		switch f[4] {
		case melin.TagStreamStart:
			v, _ := melin.DecodeStreamStart(f, 8)
			k.c.start(v.Anchor)
		case melin.TagInputBatch:
			r := melin.SlotsOf(f, melin.ShapeCRC)
			for r.Next(&s) {
				if !s.CRCValid() {
					k.b.Fatal("crc")
				}
				k.buf = appendEntry(k.buf, s.Raw)
				if len(k.buf) >= bufferSize {
					k.c.write(k.buf)
					k.buf = k.buf[:0]
				}
			}
		case melin.TagChainCheck:
			v, _ := melin.DecodeChainPoint(f)
			k.c.write(k.buf)
			k.buf = k.buf[:0]
			if k.c.sum() != v.Hash {
				k.b.Fatal("chain")
			}
			k.points++
		}
	}
}

// BenchmarkBuild is a whole build, catalogue and reading back included.
func BenchmarkBuild(b *testing.B) {
	in := busy(64<<20, 256)
	path := filepath.Join(b.TempDir(), "in.bin")
	if err := os.WriteFile(path, in, 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		set, err := capture.OpenInputs([]string{path}, capture.InputOptions{})
		if err != nil {
			b.Fatal(err)
		}
		out := filepath.Join(b.TempDir(), "out")
		r, err := Build(set, out, Options{})
		if err != nil || r.Verdict != Clean {
			b.Fatal(err, r.FindingsByKind)
		}
		os.RemoveAll(out)
	}
}
