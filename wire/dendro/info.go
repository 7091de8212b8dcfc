package dendro

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"wiretape/wire"
)

// tellingLabels are the labels by which people know a source, the most telling
// one first.
var tellingLabels = [...]string{"host", "hostname", "instance", "node", "name", "source"}

// maxLabel is how many bytes of a label are kept for each source.
const maxLabel = 256

// short is a label's beginning, whole characters.
func short(v []byte) string {
	if len(v) > maxLabel {
		n := maxLabel
		for n > maxLabel-utf8.UTFMax && !utf8.RuneStart(v[n]) {
			n--
		}
		v = v[:n]
	}
	return string(v)
}

// labelOf is the most telling label, "" when there is none.
func labelOf(labels Map) string {
	for _, key := range tellingLabels {
		if v, ok := labels.Get(key); ok && len(v) > 0 {
			return short(v)
		}
	}
	return ""
}

func (h *Handshake) label() string {
	if l := labelOf(h.Labels); l != "" {
		return l
	}
	return short(h.UUID)
}

// Info is the line of a frame list: name, source, stream, time and a summary,
// as far as u.Bytes reaches. The time of a Rows frame is that of its first row.
func (d *Decoder) Info(u wire.Unit) wire.Info {
	switch u.Type {
	case wire.UnitPreamble:
		return wire.Info{Name: "preamble", Summary: Name + " replication, protocol " + wire.Itoa(Version)}
	case wire.UnitFrame:
	default:
		return wire.Info{Name: "junk", Summary: wire.Itoa(u.Size) + " bytes that no frame owns"}
	}
	info := wire.Info{Name: KindName(u.Kind)}
	if info.Name == "" {
		info.Name = "unknown"
		info.Summary = "kind " + wire.Itoa(int64(u.Kind))
		if u.Size <= LenSize {
			info.Summary = "len 0"
		}
		return info
	}
	c := begin(u)
	var ordinal uint32
	at := func(t int64) { info.HasTime, info.Time = !c.shortOf(frameHead+12), t }
	switch u.Kind {
	case KindHandshake:
		h := c.handshake()
		ordinal = h.Source
		info.Label = h.label()
		info.Summary = "uuid " + uuidText(&h) + mapsText(h.Labels, h.Metadata)
		if h.Complete {
			info.Summary += ", complete"
		}
	case KindIndex:
		x := c.index()
		ordinal = x.Source
		info.Stream = string(x.Stream)
		at(x.TS)
		info.Summary = x.Kind.String() + ", state " + x.State.text()
	case KindRows:
		r := c.rows()
		ordinal = r.Source
		info.Summary = "seq " + wire.Utoa(r.Seq) + ", " + count(uint64(r.Count), "row")
		if r.Count == 0 {
			info.Summary += " (keepalive)"
		}
		if t, ok := firstTime(c.b); ok && r.Count > 0 {
			at(t)
		}
	case KindSegment:
		s := c.segment()
		ordinal = s.Source
		info.Stream = string(s.Stream)
		at(s.FirstTS)
		info.Summary = count(s.Rows, "row") + " in " + seconds(uint64(s.LastTS)-uint64(s.FirstTS))
		if s.FirstTS > s.LastTS {
			info.Summary = count(s.Rows, "row") + ", ends before it begins"
		}
	case KindClockOffset:
		o := c.clockOffset()
		ordinal = o.Source
		at(o.TS)
		info.Summary = "offset " + wire.Itoa(o.OffsetNs) + " ns"
	case KindSourceUpdate:
		s := c.sourceUpdate()
		ordinal = s.Source
		// Its ts is when it was made, and no time of data.
		info.Label = labelOf(s.Labels)
		info.Summary = "replaces" + mapsText(s.Labels, s.Metadata)[1:]
	}
	if c.fault != nil {
		info.Summary = "malformed: " + c.fault.Error()
	}
	if c.shortOf(frameHead + 4) {
		return info
	}
	info.HasSource, info.Source = true, uint64(ordinal)
	if info.Label == "" {
		if s := d.sources[ordinal]; s != nil {
			info.Label = s.label
		}
	}
	if info.Label == "" {
		info.Label = "#" + wire.Itoa(int64(ordinal))
	}
	return info
}

// Brief is Info without the Summary: all that an index needs of a frame, at a
// tenth of the cost for the kinds that streams consist of.
func (d *Decoder) Brief(u wire.Unit) wire.Info {
	const ordinal = frameHead + 4
	if u.Type != wire.UnitFrame || len(u.Bytes) < ordinal || u.Kind != KindRows && u.Kind != KindClockOffset {
		return d.Info(u)
	}
	s := binary.LittleEndian.Uint32(u.Bytes[frameHead:])
	info := wire.Info{Name: KindName(u.Kind), HasSource: true, Source: uint64(s)}
	if u.Kind == KindRows {
		info.Time, info.HasTime = firstTime(u.Bytes)
		const count = ordinal + 8 + 16
		if info.HasTime && binary.LittleEndian.Uint32(u.Bytes[count:]) == 0 {
			info.Time, info.HasTime = 0, false
		}
	} else if len(u.Bytes) >= ordinal+8 {
		info.Time, info.HasTime = int64(binary.LittleEndian.Uint64(u.Bytes[ordinal:])), true
	}
	if src := d.sources[s]; src != nil {
		info.Label = src.label
	}
	if info.Label == "" {
		info.Label = "#" + wire.Itoa(int64(s))
	}
	return info
}

// Spans implements [wire.Spanner]: a stream's data is in its Segments and Rows. An
// Index entry tells what was, or will be, in others; a ClockOffset and a
// SourceUpdate have times of their own.
func (d *Decoder) Spans(u wire.Unit, visit func(stream []byte, first, last int64)) {
	if u.Type != wire.UnitFrame {
		return
	}
	switch u.Kind {
	case KindSegment:
		if s, fault := DecodeSegment(u); fault == nil {
			visit(s.Stream, s.FirstTS, s.LastTS)
		}
	case KindRows:
		if r, fault := DecodeRows(u); fault == nil {
			for row := range r.All() {
				visit(row.Stream, row.TS, row.TS)
			}
		}
	}
}

// firstTime is the time of a Rows frame's first row, as far as the frame's first
// bytes reach.
func firstTime(b []byte) (t int64, ok bool) {
	const first = frameHead + 4 + 8 + 16 + 4
	if len(b) < first+rowStreamLen {
		return 0, false
	}
	at := first + rowStreamLen + int64(binary.LittleEndian.Uint32(b[first:]))
	if int64(len(b)) < at+8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(b[at:])), true
}

// shortOf says that the frame's first n bytes are not all there.
func (c *cursor) shortOf(n int) bool { return len(c.b) < n }

func uuidText(h *Handshake) string {
	switch {
	case !h.HasUUID:
		return "absent"
	case len(h.UUID) == 0:
		return "empty"
	}
	return short(h.UUID)
}

func mapsText(labels, metadata Map) string {
	return ", " + count(uint64(labels.Len()), "label") + ", " + wire.Itoa(int64(metadata.Len())) + " metadata"
}

// count is a number of things.
func count(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return wire.Utoa(n) + " " + thing
}

// seconds is a span in nanoseconds as people read it.
func seconds(ns uint64) string {
	s := wire.Utoa(ns / 1e9)
	if frac := ns % 1e9; frac > 0 {
		digits := wire.Utoa(1e9 + frac)[1:]
		s += "." + strings.TrimRight(digits, "0")
	}
	return s + " s"
}
