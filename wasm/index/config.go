package index

import (
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
