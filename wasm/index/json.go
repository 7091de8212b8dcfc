package index

// This file is what the page asks of an index, as JSON.

import (
	"strconv"

	"wiretape/wire"
)

const (
	// maxLabel and maxSummary bound what a row shows of texts from the wire.
	maxLabel   = 200
	maxSummary = 400
)

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendNumber(dst []byte, name string, v int64) []byte {
	return strconv.AppendInt(appendName(dst, name), v, 10)
}

// appendFrame appends the number of a row's frame, nothing where it is none.
func appendFrame(dst []byte, frame int64) []byte {
	if frame == 0 {
		return dst
	}
	return appendNumber(dst, "frame", frame)
}

// appendExact appends a number that may be beyond 2^53 as a string.
func appendExact(dst []byte, name string, v int64) []byte {
	return appendQuoted(appendName(dst, name), wire.Itoa(v))
}

// appendText appends text from the wire, made harmless; nothing when empty.
func appendText(dst []byte, name, s string) []byte {
	if s == "" {
		return dst
	}
	return wire.AppendJSONString(appendName(dst, name), wire.SafeText(s, maxLabel))
}

func appendSpan(dst []byte, has bool, from, to int64) []byte {
	if !has {
		return dst
	}
	return appendExact(appendExact(dst, "from", from), "to", to)
}

func appendCounts(dst []byte, name string, list []count) []byte {
	dst = append(appendName(dst, name), '{')
	for i, c := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = wire.AppendJSONString(dst, c.name)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, c.n, 10)
	}
	return append(dst, '}')
}

// AppendStatus appends what the page shows while the pass runs and after it:
// rows, kinds with their counts, findings by kind.
func (ix *Index) AppendStatus(dst []byte) []byte {
	dst = append(dst, `{"rows":`...)
	dst = strconv.AppendInt(dst, ix.Rows, 10)
	dst = appendNumber(dst, "end", ix.End)
	dst = appendNumber(dst, "findings", ix.nFindings)
	dst = appendNumber(dst, "keptFindings", int64(len(ix.findings)))
	dst = appendNumber(dst, "sources", int64(len(ix.sources)))
	dst = appendCounts(dst, "byFinding", ix.byFinding)
	dst = append(dst, `,"kinds":[`...)
	for i, k := range ix.kinds {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = wire.AppendJSONString(dst, k.name)
		if k.what == Frame {
			dst = appendNumber(dst, "kind", int64(k.kind))
		}
		dst = appendName(dst, "type")
		dst = appendQuoted(dst, k.what.String())
		dst = appendNumber(dst, "rows", k.rows)
		dst = appendNumber(dst, "bytes", k.bytes)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// AppendFindings appends n of the kept findings from number from on.
func (ix *Index) AppendFindings(dst []byte, from, n int) []byte {
	dst = append(dst, '[')
	from = max(from, 0)
	for i := from; i < len(ix.findings) && i < from+n; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		f := &ix.findings[i]
		dst = append(dst, `{"row":`...)
		dst = strconv.AppendInt(dst, f.number, 10)
		dst = appendFrame(dst, f.frame)
		dst = appendName(dst, "finding")
		dst = f.Finding.AppendJSON(dst)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendBins appends the timeline: per axis where it starts, how wide a bin is,
// the counts of each kind in the order of the status, of findings and of gaps;
// and of the places that the page asked about, their data's times.
func (ix *Index) AppendBins(dst []byte) []byte {
	b := &ix.Bins
	dst = append(dst, `{"bytes":{"from":`...)
	dst = appendQuoted(dst, wire.Itoa(b.start))
	dst = appendExact(dst, "step", b.width)
	dst = b.bytes.append(dst)
	dst = append(dst, '}')
	if b.hasTime {
		dst = append(dst, `,"time":{"from":`...)
		dst = appendQuoted(dst, wire.Itoa(b.from))
		dst = appendQuoted(appendName(dst, "step"), wire.Utoa(b.step))
		dst = b.time.append(dst)
		dst = append(dst, `,"places":[`...)
		for i := range b.places {
			if i > 0 {
				dst = append(dst, ',')
			}
			if p := &b.places[i]; p.HasTime {
				dst = appendQuoted(dst, wire.Itoa(p.Time))
			} else {
				dst = append(dst, "null"...)
			}
		}
		dst = append(dst, "]}"...)
	}
	if b.hasArrival {
		dst = append(dst, `,"arrival":{"bins":`...)
		dst = strconv.AppendInt(dst, Bins, 10)
		dst = b.arrival.append(dst)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func (s *series) append(dst []byte) []byte {
	dst = append(dst, `,"kinds":[`...)
	for i, k := range s.kinds {
		if i > 0 {
			dst = append(dst, ',')
		}
		if k == nil {
			dst = append(dst, "null"...)
			continue
		}
		dst = appendBinCounts(dst, k)
	}
	dst = append(dst, `],"findings":`...)
	dst = appendBinCounts(dst, &s.findings)
	dst = append(dst, `,"gaps":`...)
	return appendBinCounts(dst, &s.gaps)
}

func appendBinCounts(dst []byte, c *[Bins]uint32) []byte {
	dst = append(dst, '[')
	for i, n := range c {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(n), 10)
	}
	return append(dst, ']')
}

// AppendRow appends what the list shows of a row. findings is how many were
// made at it.
func AppendRow(dst []byte, p wire.Protocol, r *Row, info *wire.Info, findings int) []byte {
	dst = append(dst, `{"row":`...)
	dst = strconv.AppendInt(dst, r.Number, 10)
	dst = appendFrame(dst, r.Frame)
	dst = appendNumber(dst, "offset", r.Offset)
	dst = appendNumber(dst, "size", r.Size)
	dst = appendName(dst, "type")
	dst = appendQuoted(dst, r.What.String())
	if r.What == Frame {
		dst = appendNumber(dst, "kind", int64(r.Kind))
	}
	dst = wire.AppendJSONString(appendName(dst, "name"), rowName(p, r))
	if info.HasSource {
		dst = appendQuoted(appendName(dst, "source"), wire.Utoa(info.Source))
	}
	dst = appendText(dst, "label", info.Label)
	dst = appendText(dst, "stream", info.Stream)
	if info.HasTime {
		dst = appendExact(dst, "time", info.Time)
	}
	if info.Summary != "" {
		dst = wire.AppendJSONString(appendName(dst, "summary"), wire.SafeText(info.Summary, maxSummary))
	}
	if findings > 0 {
		dst = appendNumber(dst, "findings", int64(findings))
	}
	return append(dst, '}')
}
