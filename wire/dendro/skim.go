package dendro

import (
	"encoding/binary"

	"wiretape/wire"
)

// Places in the frames that Skim moves over.
const (
	rowsSeq      = frameHead + 4
	rowsState    = rowsSeq + 8
	rowsCount    = rowsState + 16
	rowsFirst    = rowsCount + 4
	clockTS      = frameHead + 4
	clockOffsets = clockTS + 8
	clockSize    = clockOffsets + 8
)

// Skim implements [wire.Skimmer] for the frames that streams consist of: Rows
// and ClockOffset of known sources that are sound and that rules 2 and 3 have
// nothing to say of. [Decoder.Last] tells nothing after it.
func (d *Decoder) Skim(b []byte, dst []wire.Skimmed) (n, size int) {
	if d.phase != atFrame || d.opening.open() {
		return 0, 0
	}
	d.out = Outcome{}
	for n < len(dst) {
		f := b[size:]
		if len(f) < clockSize {
			break
		}
		length := binary.LittleEndian.Uint32(f)
		if length > uint32(len(f)-LenSize) || length < clockSize-LenSize {
			break
		}
		f = f[:LenSize+int(length)]
		ordinal := binary.LittleEndian.Uint32(f[frameHead:])
		s := d.recent[ordinal%recentSources]
		if s == nil || s.ordinal != ordinal {
			if s = d.find(ordinal); s == nil {
				break
			}
		}
		o := &dst[n]
		switch f[LenSize] {
		case KindClockOffset:
			if len(f) != clockSize {
				return n, size
			}
			o.HasTime, o.Time = true, int64(binary.LittleEndian.Uint64(f[clockTS:]))
		case KindRows:
			if len(f) < rowsFirst {
				return n, size
			}
			seq := binary.LittleEndian.Uint64(f[rowsSeq:])
			state := State{binary.LittleEndian.Uint64(f[rowsState:]), binary.LittleEndian.Uint64(f[rowsState+8:])}
			count := binary.LittleEndian.Uint32(f[rowsCount:])
			if s.gap(seq) > 0 || s.rowsDisposition(state) != Applied || int64(count)*minRow > int64(len(f)-rowsFirst) {
				return n, size
			}
			if end, _, ok := soundRows(f, rowsFirst, count); !ok || end != len(f) {
				return n, size
			}
			s.hasSeq, s.lastSeq = true, seq
			o.HasTime, o.Time = false, 0
			if count > 0 {
				at := rowsFirst + rowStreamLen + int(binary.LittleEndian.Uint32(f[rowsFirst:]))
				o.HasTime, o.Time = true, int64(binary.LittleEndian.Uint64(f[at:]))
			}
		default:
			return n, size
		}
		o.Size, o.Kind, o.Source, o.HasSource = length+LenSize, uint32(f[LenSize]), uint64(ordinal), true
		n++
		size += len(f)
	}
	return n, size
}
