package dendro

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"wiretape/wire"
)

// Names of the values of a context entry; its ID is the ordinal.
const (
	// ValueHandshake and ValueSourceUpdate are whole frames.
	ValueHandshake    = "handshake"
	ValueSourceUpdate = "source_update"
	// ValueIndexState0 and ValueIndexState1 are the accumulated index state.
	ValueIndexState0 = "index_state_0"
	ValueIndexState1 = "index_state_1"
	// ValueLastSeq is the seq of the last Rows frame, when ValueHasSeq is 1.
	ValueLastSeq = "last_seq"
	ValueHasSeq  = "has_seq"
	// ValueSeenFull is 1 once a Full index was seen.
	ValueSeenFull = "seen_full"
	// ValueOpening is the digest of the connection's opening, in the first entry;
	// ValueOpeningFrames is how many frames are in it, ValueOpeningWhole is 1 once
	// it changes no more.
	ValueOpening       = "opening"
	ValueOpeningFrames = "opening_frames"
	ValueOpeningWhole  = "opening_whole"
)

// entryCost is what an entry's numbers and names are counted as.
const entryCost = 128

// maxOmitted is how many omissions a context names one by one.
const maxOmitted = 100

// Context is the session state as values, ordinals in ascending order. An
// ordinal whose Handshake does not fit is left out: nothing could be credited
// to it.
func (d *Decoder) Context(limit int) *wire.Context {
	if d.phase == atPreamble {
		return nil
	}
	c := &wire.Context{Protocol: Name, Version: Version}
	left := limit
	more := 0
	omit := func(what string) {
		if len(c.Omitted) < maxOmitted {
			c.Omitted = append(c.Omitted, what)
		} else {
			more++
		}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(d.sources)) {
		s := d.sources[ordinal]
		if s.handshake == nil || entryCost+len(s.handshake) > left {
			omit("source " + wire.Itoa(int64(ordinal)))
			continue
		}
		left -= entryCost + len(s.handshake)
		e := wire.ContextEntry{ID: uint64(ordinal), Values: []wire.ContextValue{
			{Name: ValueHandshake, Bytes: slices.Clone(s.handshake)},
		}}
		switch {
		case s.updateLost, len(s.update) > left:
			omit("source " + wire.Itoa(int64(ordinal)) + ": source_update")
		case s.update != nil:
			left -= len(s.update)
			e.Values = append(e.Values, wire.ContextValue{Name: ValueSourceUpdate, Bytes: slices.Clone(s.update)})
		}
		e.Values = append(e.Values,
			wire.ContextValue{Name: ValueIndexState0, Num: s.state[0]},
			wire.ContextValue{Name: ValueIndexState1, Num: s.state[1]},
			wire.ContextValue{Name: ValueLastSeq, Num: s.lastSeq},
			wire.ContextValue{Name: ValueHasSeq, Num: number(s.hasSeq)},
			wire.ContextValue{Name: ValueSeenFull, Num: number(s.seenFull)})
		if o := d.opening; o.Known && len(c.Entries) == 0 {
			e.Values = append(e.Values,
				wire.ContextValue{Name: ValueOpening, Bytes: slices.Clone(o.Digest[:])},
				wire.ContextValue{Name: ValueOpeningFrames, Num: uint64(o.Frames)},
				wire.ContextValue{Name: ValueOpeningWhole, Num: number(o.Whole)})
		}
		c.Entries = append(c.Entries, e)
	}
	if more > 0 {
		c.Omitted = append(c.Omitted, "and "+wire.Itoa(int64(more))+" more")
	}
	return c
}

func number(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// restore takes over a context. It comes from a file beside the bytes, so it is
// checked like them.
func (d *Decoder) restore(c *wire.Context) error {
	if c.Protocol != "" && c.Protocol != Name {
		return errors.New("context: it is of protocol " + wire.SafeText(c.Protocol, labelLimit) + ", not " + Name)
	}
	if c.Version != 0 && c.Version != Version {
		return errors.New("context: it is of protocol version " + wire.Itoa(int64(c.Version)) + "; " + wire.Itoa(Version) + " is read here")
	}
	if len(c.Entries) > MaxSources {
		return errors.New("context: it has more than " + wire.Itoa(MaxSources) + " sources")
	}
	for _, e := range c.Entries {
		if err := d.restoreSource(e); err != nil {
			return errors.New("context: source " + wire.Utoa(e.ID) + ": " + err.Error())
		}
	}
	return nil
}

func (d *Decoder) restoreSource(e wire.ContextEntry) error {
	if e.ID > math.MaxUint32 {
		return errors.New("its ordinal is no u32")
	}
	if d.sources[uint32(e.ID)] != nil {
		return errors.New("it is there twice")
	}
	s := &source{ordinal: uint32(e.ID)}
	frame, ok := e.Value(ValueHandshake)
	if !ok {
		return errors.New("its handshake is missing")
	}
	u, err := contextFrame(frame.Bytes, KindHandshake)
	if err != nil {
		return err
	}
	h, fault := DecodeHandshake(u)
	if fault != nil {
		return fault
	}
	if h.Source != s.ordinal {
		return errors.New("its handshake is that of source " + wire.Itoa(int64(h.Source)))
	}
	s.label = h.label()
	if !d.opening.restore(e) {
		return errors.New("its opening is not " + wire.Itoa(OpeningSize) + " bytes")
	}
	if s.handshake = d.keep(frame.Bytes); s.handshake == nil {
		return errors.New("the context is larger than " + wire.Itoa(MaxHeld) + " bytes")
	}
	if frame, ok = e.Value(ValueSourceUpdate); ok {
		if u, err = contextFrame(frame.Bytes, KindSourceUpdate); err != nil {
			return err
		}
		up, fault := DecodeSourceUpdate(u)
		if fault != nil {
			return fault
		}
		if up.Source != s.ordinal {
			return errors.New("its source_update is that of source " + wire.Itoa(int64(up.Source)))
		}
		s.label = labelOf(up.Labels)
		if s.update = d.keep(frame.Bytes); s.update == nil {
			return errors.New("the context is larger than " + wire.Itoa(MaxHeld) + " bytes")
		}
	}
	num := func(name string) uint64 {
		v, _ := e.Value(name)
		return v.Num
	}
	s.state = State{num(ValueIndexState0), num(ValueIndexState1)}
	s.lastSeq, s.hasSeq, s.seenFull = num(ValueLastSeq), num(ValueHasSeq) != 0, num(ValueSeenFull) != 0
	d.sources[s.ordinal] = s
	return nil
}

// contextFrame makes a unit of a frame kept in a context. It has no place: its
// offset is that in the value.
func contextFrame(b []byte, kind uint32) (wire.Unit, error) {
	if len(b) < frameHead || int64(binary.LittleEndian.Uint32(b)) != int64(len(b)-LenSize) ||
		len(b) > LenSize+MaxFrame || uint32(b[LenSize]) != kind {
		return wire.Unit{}, errors.New("its " + KindName(kind) + " is not one whole frame")
	}
	return wire.Unit{Type: wire.UnitFrame, Size: int64(len(b)), Kind: kind, Bytes: b}, nil
}

// Source is what a decoder holds of one ordinal.
type Source struct {
	Ordinal uint32
	// Label is how people know it.
	Label string
	// Handshake is the newest Handshake frame whole, nil where it was above a
	// limit; SourceUpdate the newest one after it, nil when there is none.
	Handshake    []byte
	SourceUpdate []byte
}

// Units gives the two frames as units to decode, as far as there are any. They
// have no place in the connection: their offset is 0.
func (s Source) Units() (handshake, update wire.Unit) {
	handshake, _ = contextFrame(s.Handshake, KindHandshake)
	update, _ = contextFrame(s.SourceUpdate, KindSourceUpdate)
	return handshake, update
}

// Sources gives the ordinals that are known at the decoder's position, in
// ascending order. The frames belong to the decoder.
func (d *Decoder) Sources() iter.Seq[Source] {
	return func(yield func(Source) bool) {
		for _, ordinal := range slices.Sorted(maps.Keys(d.sources)) {
			s := d.sources[ordinal]
			if !yield(Source{Ordinal: ordinal, Label: s.label, Handshake: s.handshake, SourceUpdate: s.update}) {
				return
			}
		}
	}
}
