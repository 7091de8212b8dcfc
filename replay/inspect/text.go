package inspect

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"wiretape/capture"
	"wiretape/wire"
)

// textLines writes lines for people. Whatever comes from the wire goes through
// wire.SafeText.
type textLines struct {
	w   *bufio.Writer
	hex bool
	any bool
}

// How much of a text from the wire a line shows, and a frame's own page.
const (
	cellLimit  = 60
	valueLimit = 4000
)

func (t *textLines) begin(c *capture.Connection) error {
	if t.any {
		fmt.Fprintln(t.w)
	}
	t.any = true
	size := int64(0)
	for _, f := range c.Files {
		size += f.Length
	}
	what := c.Protocol
	if what == "" {
		what = "no protocol that is known"
	}
	if c.Direction != wire.DirectionUnknown {
		what += " " + c.Direction.String()
	}
	fmt.Fprintf(t.w, "connection %s: %s, %s in %s\n", wire.SafeText(c.ID, 0), what, wire.Count(size, "byte"), wire.Count(int64(len(c.Files)), "file"))
	if c.Silent() {
		_, err := fmt.Fprintln(t.w, "nothing was received: not one byte came")
		return err
	}
	if c.Protocol == capture.ProtocolRaw {
		_, err := fmt.Fprintln(t.w, "no known protocol, and so no frames: these are its bytes")
		return err
	}
	_, err := fmt.Fprintf(t.w, "%7s %12s %10s  %-16s %-14s %-16s %-30s %s\n",
		"frame", "offset", "size", "kind", "source", "stream", "time", "summary")
	return err
}

func (t *textLines) frame(f *frame) error {
	info := f.dec.Info(f.unit)
	number, name := wire.Itoa(f.number), f.name
	if f.unit.Type != wire.UnitFrame {
		number = "-"
	} else if name == "unknown" {
		name = fmt.Sprintf("kind %d", f.unit.Kind)
	}
	when := ""
	if info.HasTime {
		when = timeText(info.Time)
	}
	line := fmt.Sprintf("%7s %12d %10d  %-16s %-14s %-16s %-30s %s", number, f.unit.Offset, f.unit.Size, name,
		wire.SafeText(info.Label, cellLimit), wire.SafeText(info.Stream, cellLimit), when, wire.SafeText(info.Summary, 4*cellLimit))
	if _, err := fmt.Fprintln(t.w, strings.TrimRight(line, " ")); err != nil {
		return err
	}
	if t.hex {
		return dump(t.w, f.unit)
	}
	return nil
}

func (t *textLines) finding(f *wire.Finding) error {
	_, err := fmt.Fprintf(t.w, "      ! %s [%s]\n", f.Line(), wire.SafeText(f.Kind, cellLimit))
	if cost := f.CostLine(); cost != "" {
		_, err = fmt.Fprintf(t.w, "        %s\n", cost)
	}
	return err
}

func (t *textLines) raw(_ *capture.Connection, at int64, b []byte) error {
	return dump(t.w, wire.Unit{Offset: at, Bytes: b})
}

func (t *textLines) rest(n int64) error {
	_, err := fmt.Fprintf(t.w, "… and %s; --hex shows all, --from-offset and --to-offset a part\n", wire.Count(n, "more byte"))
	return err
}

func (t *textLines) end(c *capture.Connection, e wire.Ending, at, frames, findings int64) error {
	if e == "" {
		return nil
	}
	said := "ends clean"
	switch e {
	case wire.EndingCut:
		said = "ends inside a frame"
	case wire.EndingZeroTail:
		said = "ends in zeros that no frame owns"
	case wire.EndingLost:
		said = "ends in bytes in which no frame was found"
	}
	_, err := fmt.Fprintf(t.w, "%s; the last whole frame ends at %d; frames: %d, findings: %d\n", said, at, frames, findings)
	return err
}

// detail is the page of one frame.
func (t *textLines) detail(f *frame) error {
	if t.any {
		fmt.Fprintln(t.w)
	}
	t.any = true
	title := fmt.Sprintf("frame %d: %s", f.number, f.name)
	if f.unit.Type != wire.UnitFrame {
		title = f.name
	} else if f.name == "unknown" {
		title = fmt.Sprintf("frame %d: of the unknown kind %d", f.number, f.unit.Kind)
	}
	if f.missing != 0 && f.unit.Type == wire.UnitFrame {
		bytes := "bytes of unknown number"
		if f.missing > 0 {
			bytes = wire.Count(f.missing, "byte")
		}
		title += " (the number counts the frames that are here: " + bytes + " before it are missing)"
	}
	fmt.Fprintf(t.w, "%s\nconnection %s, offset %d, %s; in %s from byte %d on\n", title,
		wire.SafeText(f.conn.ID, 0), f.unit.Offset, wire.Count(f.unit.Size, "byte"), f.file.Name, f.at)
	if info := f.dec.Info(f.unit); info.Label != "" {
		fmt.Fprintf(t.w, "source %s\n", wire.SafeText(info.Label, valueLimit))
	}
	fmt.Fprintf(t.w, "%12s %10s  %-24s %s\n", "offset", "length", "field", "value")
	for _, p := range parts(f) {
		if err := t.field(&p, 0, p.Name); err != nil {
			return err
		}
	}
	if t.hex {
		return dump(t.w, f.unit)
	}
	return nil
}

func (t *textLines) field(f *wire.Field, depth int, name string) error {
	indent := strings.Repeat("  ", depth)
	line := fmt.Sprintf("%12d %10d  %-24s %s", f.Offset, f.Length, indent+wire.SafeText(name, valueLimit), valueText(f))
	if _, err := fmt.Fprintln(t.w, strings.TrimRight(line, " ")); err != nil {
		return err
	}
	if f.Type == wire.TypePair {
		return nil
	}
	var kids []wire.Field
	for from := 0; from < f.Count; from += batch {
		kids = f.Children(kids[:0], from, batch)
		for i := range kids {
			name := kids[i].Name
			if f.Type == wire.TypeList {
				name = "[" + wire.Itoa(int64(from+i)) + "]"
			}
			if err := t.field(&kids[i], depth+1, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// valueText is a field's value for people.
func valueText(f *wire.Field) string {
	s := ""
	switch f.Type {
	case wire.TypeNone:
		s = "absent"
	case wire.TypeUint, wire.TypeEnum:
		s = wire.Utoa(f.Num)
	case wire.TypeInt:
		s = wire.Itoa(int64(f.Num))
	case wire.TypeBool:
		s = fmt.Sprint(f.Num != 0)
	case wire.TypeTime:
		s = wire.Itoa(int64(f.Num)) + "  " + timeText(int64(f.Num))
	case wire.TypeDuration:
		s = wire.Itoa(int64(f.Num)) + " ns"
		if d := time.Duration(f.Num); d >= time.Microsecond || d <= -time.Microsecond {
			s += "  " + d.String()
		}
	case wire.TypeFloat:
		s = fmt.Sprint(math.Float64frombits(f.Num))
	case wire.TypeText:
		s = "“" + wire.SafeText(string(f.Bytes), valueLimit) + "”"
	case wire.TypeHex:
		s = hex.EncodeToString(f.Bytes)
	case wire.TypeBlob:
		sum := hash(f.Bytes)
		s = fmt.Sprintf("%s, sha256 %x", wire.Count(int64(len(f.Bytes)), "byte"), sum)
	case wire.TypePair:
		var n []string
		for _, k := range f.Children(nil, 0, f.Count) {
			n = append(n, wire.Utoa(k.Num))
		}
		s = "(" + strings.Join(n, ", ") + ")"
	case wire.TypeList:
		s = fmt.Sprintf("list of %d", f.Count)
	case wire.TypeMap:
		s = fmt.Sprintf("map of %d", f.Count)
	}
	if f.Note != "" {
		s += "  " + wire.SafeText(f.Note, valueLimit)
	}
	return s
}

// timeText is a time in nanoseconds as people read it, in UTC.
func timeText(ns int64) string {
	return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000000000Z")
}

// dump writes a unit's bytes, 16 to a line, with their offsets in the
// connection.
func dump(w io.Writer, u wire.Unit) error {
	line := make([]byte, 0, 120)
	for at := 0; at < len(u.Bytes); at += 16 {
		row := u.Bytes[at:min(at+16, len(u.Bytes))]
		line = fmt.Appendf(line[:0], "%12d  ", u.Offset+int64(at))
		for i := range 16 {
			if i == 8 {
				line = append(line, ' ')
			}
			if i < len(row) {
				line = append(wire.AppendHex(line, row[i:i+1]), ' ')
			} else {
				line = append(line, "   "...)
			}
		}
		line = append(line, " |"...)
		for _, c := range row {
			if c < 0x20 || c >= 0x7f {
				c = '.'
			}
			line = append(line, c)
		}
		line = append(line, "|\n"...)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}
