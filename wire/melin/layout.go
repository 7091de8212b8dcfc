package melin

import "wiretape/wire"

// Layout is the number of the protocol version whose layout a stream has, 1 to
// 8; 0 is not known. 1 is everything before versions were counted: the first
// published frames and those that followed until fencing epochs came. Within 1
// the frames' lengths tell them apart.
type Layout uint8

// Newest is the newest layout known here.
const Newest Layout = 8

// String is "protocol 8", or what stands for it where versions were not
// counted yet.
func (l Layout) String() string {
	switch {
	case l == 0:
		return "unknown"
	case l == 1:
		return "before protocol 2"
	}
	return "protocol " + wire.Utoa(uint64(l))
}

// Shape is how the slots of an InputBatch are laid out.
type Shape uint8

const (
	// ShapeUnknown stands for a shape that was not told yet.
	ShapeUnknown Shape = iota
	// ShapeRequest: request_seq before event_tag and no CRC, until protocol 4.
	ShapeRequest
	// ShapePlain: neither request_seq nor CRC, protocol 5.
	ShapePlain
	// ShapeCRC: no request_seq, a CRC-32C last, from protocol 6 on.
	ShapeCRC
)

// Shape is the layout's shape of slots.
func (l Layout) Shape() Shape {
	switch {
	case l == 0:
		return ShapeUnknown
	case l <= 4:
		return ShapeRequest
	case l == 5:
		return ShapePlain
	}
	return ShapeCRC
}

// Layouts is a set of layouts: those under which everything seen so far reads.
type Layouts uint16

// AllLayouts is what a reader starts with that knows nothing.
const AllLayouts Layouts = 1<<(Newest+1) - 2

func layouts(ls ...Layout) (s Layouts) {
	for _, l := range ls {
		s |= 1 << l
	}
	return s
}

// Only is the set of one layout, all of them for 0.
func Only(l Layout) Layouts {
	if l == 0 || l > Newest {
		return AllLayouts
	}
	return 1 << l
}

// Has says whether l is in the set.
func (s Layouts) Has(l Layout) bool { return s>>l&1 != 0 }

// Taken is the layout to read by: the newest of the set, 0 for none.
func (s Layouts) Taken() Layout {
	for l := Newest; l > 0; l-- {
		if s.Has(l) {
			return l
		}
	}
	return 0
}

// String lists the set: "protocol 8", "4, 5".
func (s Layouts) String() string {
	if s&(s-1) == 0 {
		return s.Taken().String()
	}
	text := ""
	for l := Layout(1); l <= Newest; l++ {
		if s.Has(l) {
			if text != "" {
				text += ", "
			}
			text += wire.Utoa(uint64(l))
		}
	}
	return text
}

// shapes lists the shapes of slots that the set allows.
func (s Layouts) shapes() (has [ShapeCRC + 1]bool, n int) {
	for l := Layout(1); l <= Newest; l++ {
		if s.Has(l) && !has[l.Shape()] {
			has[l.Shape()] = true
			n++
		}
	}
	return has, n
}

// withShape is the subset whose slots have this shape.
func (s Layouts) withShape(shape Shape) (t Layouts) {
	for l := Layout(1); l <= Newest; l++ {
		if s.Has(l) && l.Shape() == shape {
			t |= 1 << l
		}
	}
	return t
}

// streamStartLayouts are the layouts under which the frame is a StreamStart:
// by its length and, where a genesis of that very length would fit as well, by
// the values.
func streamStartLayouts(frame []byte) (s Layouts) {
	p := frame[HeaderSize:]
	switch len(p) + 1 {
	case lenStreamStart1:
		s = layouts(1)
	case lenStreamStart2:
		s = layouts(2, 3)
	case lenStreamStart4:
		if p[56] <= maxPolicy {
			s = layouts(4, 5, 6)
		}
	case lenStreamStart7:
		if p[56] <= maxPolicy && p[57] <= 1 {
			s = layouts(7)
		}
	case lenStreamStart:
		if p[56] <= 1 {
			s = layouts(8)
		}
	}
	if len(p) >= 12 && uint64(u32(p[8:])) == uint64(len(p)-12) {
		// A segment that begins behind the stream's first entry can't be.
		if len(p) >= 16 && u64(p[8:])-1 > u64(p) {
			s = 0
		}
		s |= layouts(1)
	}
	return s
}

// frameLayouts are the layouts that have a frame like this: all of them where
// its tag and length tell nothing.
func frameLayouts(tag uint32, frame []byte) Layouts {
	switch tag {
	case TagHandshake:
		switch len(frame) - PrefixSize {
		case lenHandshakeFirst:
			return layouts(1)
		case lenHandshakeEpoch:
			return layouts(2)
		case lenHandshake:
			if v := u16(frame[PrefixSize+lenHandshake-2:]); v >= 2 && v <= uint16(Newest) {
				return layouts(Layout(v))
			}
		}
	case TagAck:
		if len(frame)-PrefixSize == lenAckFirst {
			return layouts(1)
		}
	case TagStreamStart:
		if s := streamStartLayouts(frame); s != 0 {
			return s
		}
	case TagRotate, TagChainCheck, TagSegmentSeedBegin:
		return layouts(3, 4, 5, 6, 7, 8)
	case TagDataBatch:
		return layouts(1)
	case TagHeartbeat:
		switch len(frame) - PrefixSize {
		case lenHeartbeat:
			return layouts(1, 2, 3, 8)
		case lenHeartbeatPolicy:
			return layouts(4, 5, 6, 7)
		case lenHeartbeatFirst:
			return layouts(1)
		}
	}
	return AllLayouts
}

// Narrow gives the layouts of s under which the frame, whole and with its
// length prefix, reads as well. A frame that reads under none of them changes
// nothing: it may be damaged.
func (s Layouts) Narrow(frame []byte) Layouts {
	if s&(s-1) == 0 || len(frame) < HeaderSize {
		return s
	}
	tag := uint32(frame[PrefixSize])
	if t := s & frameLayouts(tag, frame); t != 0 {
		s = t
	}
	if tag != TagInputBatch {
		return s
	}
	has, n := s.shapes()
	if n < 2 {
		return s
	}
	var t Layouts
	for shape := ShapeCRC; shape > ShapeUnknown; shape-- {
		if !has[shape] {
			continue
		}
		slots, _, ok := validSlots(frame, shape)
		if !ok {
			continue
		}
		t |= s.withShape(shape)
		if shape == ShapeCRC && slots > 0 {
			break // its CRCs fit: no accident
		}
	}
	if t != 0 {
		return t
	}
	return s
}
