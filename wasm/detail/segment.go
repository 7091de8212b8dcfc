package detail

import (
	"strconv"

	"wiretape/replay/segment/bounds"
	"wiretape/wire"
)

// segment finds the Parquet file in the unit and what the frame claims of it.
func (o *Detail) segment() (file *wire.Field, c bounds.Claim, ok bool) {
	if o.info.Name != "Segment" {
		return nil, c, false
	}
	for i := range o.Payload() {
		f := &o.Payload()[i]
		switch f.Name {
		case "rows":
			c.Rows = f.Num
		case "first_ts":
			c.FirstTS = int64(f.Num)
		case "last_ts":
			c.LastTS = int64(f.Num)
		case "bytes":
			file = f
		}
	}
	return file, c, file != nil
}

// AppendCheck checks the Parquet file in a Segment frame as replay does, and
// appends {"offset", "length", "sound", "proved", "rows", "distinct",
// "findings", "unchecked"}, where the offset is the file's first byte in the
// connection; null for another frame.
func (o *Detail) AppendCheck(dst []byte, opt bounds.Options) []byte {
	f, claim, ok := o.segment()
	if !ok {
		return append(dst, "null"...)
	}
	r := bounds.Check(f.Bytes, claim, opt)
	dst = strconv.AppendInt(append(dst, `{"offset":`...), f.ByteOffset, 10)
	dst = strconv.AppendInt(append(dst, `,"length":`...), int64(len(f.Bytes)), 10)
	dst = strconv.AppendBool(append(dst, `,"sound":`...), r.Sound())
	dst = strconv.AppendBool(append(dst, `,"proved":`...), r.Proved)
	dst = strconv.AppendUint(append(dst, `,"rows":`...), r.ParquetRows, 10)
	if r.TimeRead {
		dst = strconv.AppendUint(append(dst, `,"distinct":`...), r.Distinct, 10)
		dst = append(append(append(dst, `,"first":"`...), wire.Itoa(r.FirstTS)...), '"')
		dst = append(append(append(dst, `,"last":"`...), wire.Itoa(r.LastTS)...), '"')
	}
	dst = append(dst, `,"findings":[`...)
	for i := range r.Findings {
		if i > 0 {
			dst = append(dst, ',')
		}
		g := r.Findings[i]
		g.Offset += f.ByteOffset
		dst = g.AppendJSON(dst)
	}
	dst = append(dst, `],"unchecked":[`...)
	for i, s := range r.Unchecked {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = wire.AppendJSONString(dst, wire.SafeText(s, MaxHex))
	}
	return append(dst, "]}"...)
}
