package index

import (
	"wiretape/wasm/filter"
	"wiretape/wasm/packed"
	"wiretape/wire"
)

// maxRuns is how many stretches one connection may lie in.
const maxRuns = 1 << 16

// OpenPacked reads what New needs from its packed form: protocol, direction,
// the number of runs, and per run start, end, where its zeros and the file of
// them start, and its context.
func OpenPacked(reg wire.Registry, b []byte) (*Index, error) {
	r := packed.NewReader(b)
	p := reg.Named(r.String())
	d := wire.Direction(r.Uint())
	n := r.Count(maxRuns)
	var runs []Run
	at := int64(0)
	for i := 0; i < n && r.Err() == nil; i++ {
		run := Run{Start: r.Int(), End: r.Int(), ZerosFrom: r.Int(), FileStart: r.Int(), Context: clone(r.Context())}
		if run.Start < at || run.End < run.Start || run.End > maxOffset {
			return nil, packed.ErrMalformed
		}
		at = run.End
		runs = append(runs, run)
	}
	if r.Err() != nil || r.Rest() > 0 || p == nil || len(runs) == 0 {
		return nil, packed.ErrMalformed
	}
	return New(p, d, runs), nil
}

// maxOffset is the largest offset: what a JavaScript number holds exactly.
const maxOffset = 1<<53 - 1

// clone frees a context of the buffer that it was read from.
func clone(c *wire.Context) *wire.Context {
	return packed.NewReader(packed.AppendContext(nil, c)).Context()
}

// Numbers reads a packed list of row numbers.
func Numbers(b []byte) ([]int64, error) {
	r := packed.NewReader(b)
	n := r.Count(1 << 16)
	list := make([]int64, 0, n)
	for range n {
		list = append(list, int64(r.Uint()))
	}
	if r.Err() != nil || r.Rest() > 0 {
		return nil, packed.ErrMalformed
	}
	return list, nil
}

const (
	// MaxPlaces is how many places may be asked about, maxSteps how many steps
	// the arrival axis may have.
	MaxPlaces = 1 << 14
	maxSteps  = 1 << 17
)

// AxesPacked reads what Axes needs from its packed form: the number of places
// and per place its offset, the number of steps and per step its offset and its
// bin plus one, 0 for none.
func (ix *Index) AxesPacked(b []byte) error {
	r := packed.NewReader(b)
	places := make([]int64, r.Count(MaxPlaces))
	at := int64(0)
	rising := func() int64 {
		off := r.Int()
		if off < at || off > maxOffset {
			at = maxOffset + 1
		}
		at = max(at, off)
		return off
	}
	for i := range places {
		places[i] = rising()
	}
	ok := at <= maxOffset
	at = 0
	steps := make([]Step, r.Count(maxSteps))
	for i := range steps {
		off := rising()
		bin := r.Uint()
		ok = ok && bin <= Bins
		steps[i] = Step{Offset: off, Bin: int(bin) - 1}
	}
	if r.Err() != nil || r.Rest() > 0 || !ok || at > maxOffset {
		return packed.ErrMalformed
	}
	ix.Axes(places, steps)
	return nil
}

// maxStretches is how many stretches of bytes a filter's times of arrival may
// become, all together.
const maxStretches = 1 << 17

// ArrivalsPacked reads what the times of arrival in a filter take from its packed
// form: the number of comparisons, and per comparison the number of stretches and
// per stretch where it starts and ends, rising.
func ArrivalsPacked(e *filter.Expr, b []byte) error {
	r := packed.NewReader(b)
	left := maxStretches
	all := make([][][2]int64, r.Count(filter.MaxLength))
	for i := range all {
		list := make([][2]int64, r.Count(left))
		left -= len(list)
		at := int64(0)
		for j := range list {
			list[j] = [2]int64{r.Int(), r.Int()}
			if list[j][0] < at || list[j][1] < list[j][0] {
				return packed.ErrMalformed
			}
			at = list[j][1]
		}
		all[i] = list
	}
	if r.Err() != nil || r.Rest() > 0 || e == nil || len(all) != len(e.Arrivals()) {
		return packed.ErrMalformed
	}
	for i, list := range all {
		e.SetArrivals(i, list)
	}
	return nil
}
