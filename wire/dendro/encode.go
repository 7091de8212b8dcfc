package dendro

import "encoding/binary"

// AppendPreamble appends what opens a stream.
func AppendPreamble(dst []byte) []byte {
	dst = append(dst, Magic...)
	return binary.LittleEndian.AppendUint16(dst, Version)
}

// The Append functions append one whole frame with its length prefix. They
// check nothing: a frame above [MaxFrame], or text that is not UTF-8, comes out
// as it was given.

// AppendHandshake appends a Handshake frame.
func AppendHandshake(dst []byte, h *Handshake) []byte {
	dst, at := openFrame(dst, KindHandshake, h.Source)
	dst = appendOpt(dst, h.UUID, h.HasUUID)
	dst = appendMap(dst, h.Labels)
	dst = appendMap(dst, h.Metadata)
	dst = appendI64(dst, h.ClockAnchorWallNs)
	dst = appendBool(dst, h.Complete)
	return closeFrame(dst, at)
}

// AppendIndex appends an Index frame.
func AppendIndex(dst []byte, x *Index) []byte {
	dst, at := openFrame(dst, KindIndex, x.Source)
	dst = appendBytes(dst, x.Stream)
	dst = appendI64(dst, x.TS)
	dst = append(dst, byte(x.Kind))
	dst = appendState(dst, x.State)
	dst = appendBytes(dst, x.Blob)
	return closeFrame(dst, at)
}

// AppendRows appends a Rows frame, made by [NewRows] or decoded.
func AppendRows(dst []byte, r *Rows) []byte {
	dst, at := openRows(dst, r)
	dst = append(dst, r.records...)
	return closeFrame(dst, at)
}

// AppendRowsOf appends what AppendRows does of NewRows, without a copy of the
// rows between.
func AppendRowsOf(dst []byte, source uint32, seq uint64, state State, rows []Row) []byte {
	dst, at := openRows(dst, &Rows{Source: source, Seq: seq, IndexState: state, Count: uint32(len(rows))})
	return closeFrame(appendRecords(dst, rows), at)
}

func openRows(dst []byte, r *Rows) ([]byte, int) {
	dst, at := openFrame(dst, KindRows, r.Source)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seq)
	dst = appendState(dst, r.IndexState)
	return binary.LittleEndian.AppendUint32(dst, r.Count), at
}

// AppendSegment appends a Segment frame.
func AppendSegment(dst []byte, s *Segment) []byte {
	dst, at := openFrame(dst, KindSegment, s.Source)
	dst = appendBytes(dst, s.Stream)
	dst = binary.LittleEndian.AppendUint64(dst, s.Rows)
	dst = appendI64(dst, s.FirstTS)
	dst = appendI64(dst, s.LastTS)
	dst = appendBytes(dst, s.Bytes)
	dst = appendOpt(dst, s.CallerIndex, s.HasCallerIndex)
	return closeFrame(dst, at)
}

// AppendClockOffset appends a ClockOffset frame.
func AppendClockOffset(dst []byte, c *ClockOffset) []byte {
	dst, at := openFrame(dst, KindClockOffset, c.Source)
	dst = appendI64(dst, c.TS)
	dst = appendI64(dst, c.OffsetNs)
	return closeFrame(dst, at)
}

// AppendSourceUpdate appends a SourceUpdate frame.
func AppendSourceUpdate(dst []byte, u *SourceUpdate) []byte {
	dst, at := openFrame(dst, KindSourceUpdate, u.Source)
	dst = appendI64(dst, u.TS)
	dst = appendMap(dst, u.Labels)
	dst = appendMap(dst, u.Metadata)
	return closeFrame(dst, at)
}

// openFrame appends the head of a frame and the source, with which every
// payload begins, and gives where the frame starts.
func openFrame(dst []byte, kind byte, source uint32) ([]byte, int) {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, kind)
	return binary.LittleEndian.AppendUint32(dst, source), at
}

// closeFrame writes the length of the frame that starts at at.
func closeFrame(dst []byte, at int) []byte {
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-LenSize))
	return dst
}

func appendI64(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

func appendState(dst []byte, s State) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, s[0])
	return binary.LittleEndian.AppendUint64(dst, s[1])
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}

func appendOpt(dst, b []byte, has bool) []byte {
	dst = appendBool(dst, has)
	if has {
		dst = appendBytes(dst, b)
	}
	return dst
}

func appendMap(dst []byte, m Map) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.n))
	return append(dst, m.pairs...)
}
