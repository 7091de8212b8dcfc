package dendro_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"wiretape/wire"
	"wiretape/wire/dendro"
)

// seeds adds the small streams.
func seeds(f *testing.F, add func(stream []byte)) {
	for _, name := range streams(f) {
		if b := load(f, name); len(b) < 1000 {
			add(b)
		}
	}
}

// FuzzStream: both drivers tell the same of any bytes and account for each.
func FuzzStream(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint64(1)) })
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		sameBothWays(t, stream, rand.New(rand.NewPCG(seed, 2)))
	})
}

// FuzzZeros: whatever is said of zeros, the reader ends and stays inside, and the
// scanner says the same.
func FuzzZeros(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint16(600), uint16(100)) })
	f.Fuzz(func(t *testing.T, stream []byte, zeros, start uint16) {
		stream = append(bytes.Clone(stream), make([]byte, zeros)...)
		opt := wire.ReaderOptions{Zeros: wire.ZerosFrom(zerosFrom(stream), min(int64(start), int64(len(stream))))}
		r := wire.NewReader(bytes.NewReader(stream), newDecoder(t), opt)
		var want run
		defer func() {
			want.clean = r.Ending() == wire.EndingClean
			for _, most := range []int{1, 7, 1 << 20} {
				got := scanTo(whole{newDecoder(t)}, stream, 1<<30, opt.Zeros, func() int { return most })
				if d := got.diff(want); d != "" {
					t.Errorf("pieces of %d: %s", most, d)
				}
			}
		}()
		for {
			u, found, err := r.Next()
			want.found = append(want.found, found...)
			for _, f := range found {
				if f.Offset < 0 || f.Byte()+f.Length > int64(len(stream)) {
					t.Fatalf("a finding outside the stream: %+v", f)
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want.places = append(want.places, place{u.Type, u.Offset, u.Size, u.Kind})
			if u.End() > int64(len(stream)) {
				t.Fatalf("a unit ends at %d of %d", u.End(), len(stream))
			}
		}
	})
}

// FuzzFrame: any payload of any kind decodes or names the field that does not,
// and what decodes encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, b := range [][]byte{hello(1), index(1, 1, dendro.State{1, 2}), rows(1, 2, dendro.State{3, 4}, 2), segment(3)} {
		f.Add(b[4], b[5:], 20)
	}
	f.Fuzz(func(t *testing.T, kind byte, payload []byte, have int) {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)+1))
		b = append(append(b, kind), payload...)
		u := wire.Unit{Type: wire.UnitFrame, Offset: 77, Size: int64(len(b)), Kind: uint32(kind), Bytes: b}
		d := newDecoder(t)
		d.Observe(wire.Unit{Type: wire.UnitPreamble}, nil)
		d.Observe(u, nil)
		o := d.Last()
		fields, fault := d.Fields(u)
		malformed := o.Fault != nil && o.Fault.Finding.Kind == wire.KindMalformed
		if malformed != (fault != nil) {
			t.Fatalf("observed %+v, fields %+v", o.Fault, fault)
		}
		at := u.Offset + 5
		for _, f := range fields {
			at = tileField(t, "fuzz", u, at, f)
		}
		wire.AppendJSON(nil, fields, sha256.Sum256)
		if fault != nil {
			if fault.Offset < u.Offset || fault.Offset+fault.Length > u.End() {
				t.Fatalf("the fault is outside the frame: %+v", fault)
			}
		} else if at != u.End() {
			t.Fatalf("the fields end at %d of %d", at, u.End())
		}
		var out []byte
		switch {
		case o.Handshake != nil:
			out = dendro.AppendHandshake(nil, o.Handshake)
		case o.Index != nil:
			out = dendro.AppendIndex(nil, o.Index)
		case o.Rows != nil:
			out = dendro.AppendRows(nil, o.Rows)
		case o.Segment != nil:
			out = dendro.AppendSegment(nil, o.Segment)
		case o.ClockOffset != nil:
			out = dendro.AppendClockOffset(nil, o.ClockOffset)
		case o.SourceUpdate != nil:
			out = dendro.AppendSourceUpdate(nil, o.SourceUpdate)
		}
		if out != nil && !bytes.Equal(out, b) {
			t.Fatalf("%x comes back as %x", b, out)
		}
		// The first bytes alone: no panic, and no fault that the whole has not.
		if have = min(max(have, 0), len(b)); have < len(b) {
			u.Bytes = b[:have]
			d.Info(u)
			d.Fields(u)
			part := newDecoder(t)
			part.Observe(wire.Unit{Type: wire.UnitPreamble}, nil)
			part.Observe(u, nil)
			if f := part.Last().Fault; f != nil && f.Finding.Kind == wire.KindMalformed && !malformed {
				t.Fatalf("%d of %d bytes are malformed: %+v", have, len(b), f)
			}
		}
	})
}

// FuzzContext: any context is refused or gives itself back.
func FuzzContext(f *testing.F) {
	up := dendro.AppendSourceUpdate(nil, &dendro.SourceUpdate{Source: 3, Labels: dendro.NewMap(map[string]string{"host": "h"})})
	f.Add(uint64(3), hello(3), up, uint64(1), uint64(2), uint64(1))
	f.Add(uint64(4), hello(3), []byte(nil), uint64(1), uint64(2), uint64(0))
	f.Fuzz(func(t *testing.T, id uint64, handshake, update []byte, state, seq, flags uint64) {
		e := wire.ContextEntry{ID: id, Values: []wire.ContextValue{
			{Name: dendro.ValueHandshake, Bytes: handshake},
			{Name: dendro.ValueIndexState0, Num: state},
			{Name: dendro.ValueLastSeq, Num: seq},
			{Name: dendro.ValueHasSeq, Num: flags & 1},
			{Name: dendro.ValueSeenFull, Num: flags >> 1}}}
		if len(update) > 0 {
			e.Values = append(e.Values, wire.ContextValue{Name: dendro.ValueSourceUpdate, Bytes: update})
		}
		d, err := dendro.NewDecoder(wire.Config{Context: &wire.Context{Protocol: dendro.Name, Entries: []wire.ContextEntry{e}}})
		if err != nil {
			return
		}
		c := d.Context(1 << 20)
		if len(c.Entries) != 1 || c.Entries[0].ID != id {
			t.Fatalf("%+v", c)
		}
		got, _ := c.Entries[0].Value(dendro.ValueHandshake)
		if !bytes.Equal(got.Bytes, handshake) {
			t.Fatal("another handshake")
		}
		readAll(t, rows(uint32(id), seq+1, dendro.State{state, 0}, 1), d, wire.ReaderOptions{})
	})
}
