//go:build js && wasm

// Command wasm is the decoder of the viewer: wire, its protocols and the
// picture of a connection, behind functions that a page's worker calls.
//
// Bytes go in through a buffer that the caller asks for by input, and come out
// where result points until the next call. A function that gives a length gives
// it of its result, or a negative number when it failed, and the result then is
// the reason in words. Numbers that may be beyond 32 bits, offsets and row
// numbers, are float64, exact up to 2^53. docs/viewer.md lists the functions.
package main

import (
	"strconv"
	"unsafe"

	"wiretape/wasm/detail"
	"wiretape/wasm/digest"
	"wiretape/wasm/filter"
	"wiretape/wasm/index"
	"wiretape/wasm/packed"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

// apiVersion changes with every change of a function's meaning.
const apiVersion = 3

const (
	// maxInput bounds the input buffer, maxUnit the bytes of one frame.
	maxInput = index.WholeLimit
	maxUnit  = 72 << 20
	// maxPasses is how many walks may be under way at a time.
	maxPasses = 16
)

var (
	reg    = protocols.All()
	in     []byte
	unit   []byte
	out    []byte
	ix     *index.Index
	hits   = new(index.Hits)
	expr   *filter.Expr
	passes [maxPasses]*index.Pass
	opened *detail.Detail
)

func main() { select {} }

// guard runs f and makes a panic of a decoder a failure of the call alone.
func guard(f func() int32) (n int32) {
	defer func() {
		if v := recover(); v != nil {
			why := "the decoder failed"
			if err, ok := v.(error); ok {
				why += ": " + err.Error()
			}
			n = fail(why)
		}
	}()
	return f()
}

func fail(why string) int32 {
	out = append(out[:0], why...)
	return -1
}

func done() int32 { return int32(len(out)) }

//go:wasmexport version
func version() uint32 { return apiVersion }

//go:wasmexport input
func input(n uint32) unsafe.Pointer {
	if n > maxInput {
		return nil
	}
	if int(n) > cap(in) {
		in = make([]byte, max(int(n), index.FeedLimit))
	}
	in = in[:n]
	return unsafe.Pointer(unsafe.SliceData(in))
}

//go:wasmexport unit_input
func unitInput(n uint32) unsafe.Pointer {
	opened = nil
	if n > maxUnit {
		return nil
	}
	if int(n) > cap(unit) {
		unit = nil
		unit = make([]byte, n)
	}
	unit = unit[:n]
	return unsafe.Pointer(unsafe.SliceData(unit))
}

//go:wasmexport result
func result() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(out)) }

//go:wasmexport result_length
func resultLength() int32 { return int32(len(out)) }

//go:wasmexport detect
func detect(end uint32) int32 {
	return guard(func() int32 {
		p, d, more := reg.Detect(in, end != 0)
		out = append(out[:0], '{')
		if p != nil {
			out = wire.AppendJSONString(append(out, `"protocol":`...), p.Name())
			out = append(out, `,"direction":`...)
			out = strconv.AppendUint(out, uint64(d), 10)
		} else {
			out = strconv.AppendBool(append(out, `"more":`...), more)
		}
		out = append(out, '}')
		return done()
	})
}

//go:wasmexport protocol_list
func protocolList() int32 {
	out = append(out[:0], '[')
	for i, p := range reg {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendJSONString(out, p.Name())
	}
	out = append(out, ']')
	return done()
}

//go:wasmexport index_open
func indexOpen() int32 {
	return guard(func() int32 {
		x, err := index.OpenPacked(reg, in)
		if err != nil {
			return fail(err.Error())
		}
		ix, hits, expr = x, new(index.Hits), nil
		passes = [maxPasses]*index.Pass{}
		out = out[:0]
		return 0
	})
}

// indexAxes says before the first pass what the page knows of the axes.
//
//go:wasmexport index_axes
func indexAxes() int32 {
	return guard(func() int32 {
		if err := ix.AxesPacked(in); err != nil {
			return fail(err.Error())
		}
		out = out[:0]
		return 0
	})
}

// keep gives a pass its number.
func keep(p *index.Pass) int32 {
	if err := p.Err(); err != nil {
		return fail(err.Error())
	}
	for i := range passes {
		if passes[i] == nil {
			passes[i] = p
			return int32(i)
		}
	}
	return fail("too many walks at a time")
}

//go:wasmexport pass_first
func passFirst() int32 { return guard(func() int32 { return keep(ix.First()) }) }

//go:wasmexport pass_rows
func passRows() int32 {
	return guard(func() int32 {
		list, err := index.Numbers(in)
		if err != nil {
			return fail(err.Error())
		}
		return keep(ix.RowsPass(list))
	})
}

//go:wasmexport pass_unit
func passUnit(number float64) int32 {
	return guard(func() int32 { return keep(ix.UnitPass(int64(number))) })
}

//go:wasmexport pass_find
func passFind(off float64) int32 {
	return guard(func() int32 { return keep(ix.FindPass(int64(off))) })
}

//go:wasmexport pass_frame
func passFrame(number float64) int32 {
	return guard(func() int32 { return keep(ix.FramePass(int64(number))) })
}

// passFilter looks for all rows that the filter takes, which become the hits, or
// up to a limit: the number of the last one is then what the pass has made.
//
//go:wasmexport pass_filter
func passFilter(limit float64) int32 {
	return guard(func() int32 {
		h := new(index.Hits)
		if limit == 0 {
			hits = h
		}
		return keep(ix.FilterPass(expr, h, int64(limit)))
	})
}

//go:wasmexport pass_pos
func passPos(h uint32) float64 {
	pos, _ := passes[h%maxPasses].Need()
	return float64(pos)
}

// passNeed is how many bytes are wanted at pass_pos, -1 when the pass is done.
//
//go:wasmexport pass_need
func passNeed(h uint32) int32 {
	p := passes[h%maxPasses]
	if p.Done() {
		return -1
	}
	_, n := p.Need()
	return int32(n)
}

//go:wasmexport pass_feed
func passFeed(h uint32) int32 {
	return guard(func() int32 {
		p := passes[h%maxPasses]
		p.Feed(in)
		if err := p.Err(); err != nil {
			return fail(err.Error())
		}
		return 0
	})
}

//go:wasmexport pass_out
func passOut(h uint32) int32 {
	out = append(out[:0], passes[h%maxPasses].Close()...)
	return done()
}

// passState is the decoder's state before the row of a unit pass, packed.
//
//go:wasmexport pass_state
func passState(h uint32) int32 {
	out = append(out[:0], passes[h%maxPasses].State...)
	return done()
}

//go:wasmexport pass_end
func passEnd(h uint32) { passes[h%maxPasses] = nil }

//go:wasmexport index_status
func indexStatus() int32 { out = ix.AppendStatus(out[:0]); return done() }

//go:wasmexport index_sources
func indexSources() int32 { out = ix.AppendSources(out[:0]); return done() }

//go:wasmexport index_bins
func indexBins() int32 { out = ix.AppendBins(out[:0]); return done() }

//go:wasmexport index_findings
func indexFindings(from, n uint32) int32 {
	out = ix.AppendFindings(out[:0], int(from), int(min(n, index.MaxFindings)))
	return done()
}

// indexFindingRow is the first row with a finding after a row, or before it with
// back, of those that the filter takes with filtered; -1 when there is none.
//
//go:wasmexport index_finding_row
func indexFindingRow(row float64, back, filtered uint32) float64 {
	var among *index.Hits
	if filtered != 0 {
		among = hits
	}
	return float64(ix.Found.Next(int64(row), back != 0, among))
}

// indexStream is the name of a stream as a filter takes it.
//
//go:wasmexport index_stream
func indexStream(number uint32) int32 {
	out = append(out[:0], ix.StreamName(int(number))...)
	return done()
}

// units is how many UTF-16 units, of which a page's texts are, s has.
func units(s string) int64 {
	n := int64(0)
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// appendPlace appends where in s something stands, in UTF-16 units.
func appendPlace(dst []byte, s string, from, to int) []byte {
	at := units(s[:from])
	dst = strconv.AppendInt(append(dst, `{"from":`...), at, 10)
	return strconv.AppendInt(append(dst, `,"to":`...), at+units(s[from:to]), 10)
}

// filterSet checks an expression and makes it the filter; filterParts checks it
// alone.
//
//go:wasmexport filter_set
func filterSet() int32 { return guard(func() int32 { return parseFilter(true) }) }

//go:wasmexport filter_parts
func filterParts() int32 { return guard(func() int32 { return parseFilter(false) }) }

func parseFilter(set bool) int32 {
	s := string(in)
	e, err := filter.Parse(s, index.Kinds(ix.Protocol))
	if err != nil {
		out = appendPlace(append(out[:0], `{"wrong":`...), s, err.From, err.To)
		out = append(wire.AppendJSONString(append(out, `,"message":`...), err.Message), "}}"...)
		return done()
	}
	out = append(out[:0], `{"parts":`...)
	parts := e.Parts()
	if parts == nil {
		out = append(out, "null"...)
	} else {
		out = append(out, '[')
		for i, p := range parts {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendPlace(out, s, p.From, p.To)
			if p.Field != "" {
				out = wire.AppendJSONString(append(out, `,"field":`...), p.Field)
				out = wire.AppendJSONString(append(out, `,"op":`...), p.Op)
				out = wire.AppendJSONString(append(out, `,"value":`...), p.Value)
				out = strconv.AppendBool(append(out, `,"not":`...), p.Not)
			}
			out = append(out, '}')
		}
		out = append(out, ']')
	}
	out = append(out, `,"arrivals":[`...)
	for i, a := range e.Arrivals() {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendPlace(out, s, a.From, a.To)
		out = wire.AppendJSONString(append(out, `,"op":`...), a.Op)
		out = wire.AppendJSONString(append(out, `,"time":`...), wire.Itoa(a.Time))
		out = append(out, '}')
	}
	out = append(out, "]}"...)
	if set {
		expr = e
	}
	return done()
}

// filterArrivals tells of each of the filter's comparisons with a time of arrival
// which stretches of bytes it takes.
//
//go:wasmexport filter_arrivals
func filterArrivals() int32 {
	return guard(func() int32 {
		if err := index.ArrivalsPacked(expr, in); err != nil {
			return fail(err.Error())
		}
		out = out[:0]
		return 0
	})
}

// filterWords gives what completion offers: the fields and the kinds' names.
//
//go:wasmexport filter_words
func filterWords() int32 {
	out = filter.AppendFields(append(out[:0], `{"fields":`...))
	out = append(out, `,"kinds":[`...)
	for i, k := range index.Kinds(ix.Protocol) {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendJSONString(out, k)
	}
	out = strconv.AppendInt(append(out, `],"longest":`...), filter.MaxLength, 10)
	out = append(out, '}')
	return done()
}

//go:wasmexport hits_count
func hitsCount() float64 { return float64(hits.Len()) }

//go:wasmexport hits_rank
func hitsRank(row float64) float64 { return float64(hits.Rank(int64(row))) }

//go:wasmexport hits_list
func hitsList(from float64, n uint32) int32 {
	list := hits.Append(nil, int64(from), int(min(n, 1<<16)))
	out = append(out[:0], '[')
	for i, r := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, r, 10)
	}
	out = append(out, ']')
	return done()
}

//go:wasmexport detail_open
func detailOpen() int32 {
	return guard(func() int32 {
		o, err := detail.OpenPacked(reg, in, unit)
		if err != nil {
			return fail(err.Error())
		}
		opened = o
		out = o.AppendSummary(out[:0])
		return done()
	})
}

// path reads a packed path: how many numbers, and the numbers.
func path() []int {
	r := packed.NewReader(in)
	p := make([]int, r.Count(64))
	for i := range p {
		p[i] = int(r.Uint())
	}
	return p
}

//go:wasmexport detail_children
func detailChildren(from, n uint32) int32 {
	return guard(func() int32 {
		out = opened.AppendChildren(out[:0], path(), int(from), int(n))
		return done()
	})
}

//go:wasmexport detail_locate
func detailLocate(off float64) int32 {
	return guard(func() int32 {
		out = append(out[:0], '[')
		for i, n := range opened.Locate(int64(off)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = strconv.AppendInt(out, int64(n), 10)
		}
		out = append(out, ']')
		return done()
	})
}

//go:wasmexport detail_json
func detailJSON() int32 {
	return guard(func() int32 {
		b := opened.AppendJSON(out[:0], path(), digest.Sum256)
		if b == nil {
			return fail("there is no such field")
		}
		out = b
		return done()
	})
}
