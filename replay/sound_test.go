package replay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire/dendro"
)

// A publisher of a few streams, each with its own pace: with a row at every
// interval, at every few of them, or by chance.
type publisher struct {
	streams []string
	// rows are those of each interval.
	rows [][]dendro.Row
	// opens is what a connection begins with: the newest row of every stream, all
	// rows of some time, or only what comes.
	opens opens
}

type opens int

const (
	withNewest opens = iota
	catchingUp
	tailing
)

// back is how far a publisher goes back that catches up, in intervals.
const back = 7

func newPublisher(rng *rand.Rand, intervals int) *publisher {
	p := &publisher{opens: opens(rng.IntN(3))}
	type pace struct {
		every, phase int
		chance       float64
	}
	var paces []pace
	for i := range 1 + rng.IntN(4) {
		p.streams = append(p.streams, fmt.Sprintf("s%d", i))
		x := pace{every: 1}
		switch rng.IntN(3) {
		case 0:
			x.every = 2 + rng.IntN(8)
			x.phase = rng.IntN(x.every)
		case 1:
			x.chance = 0.05 + 0.5*rng.Float64()
		}
		paces = append(paces, x)
	}
	for n := range intervals {
		var rows []dendro.Row
		for i, x := range paces {
			if x.chance > 0 && rng.Float64() >= x.chance || x.chance == 0 && n%x.every != x.phase {
				continue
			}
			ts := int64(1_700_000_000+n)*1e9 + int64(i)*1000
			rows = append(rows, dendro.Row{Stream: []byte(p.streams[i]), TS: ts, Row: fmt.Appendf(nil, "%s at %d", p.streams[i], n)})
		}
		p.rows = append(p.rows, rows)
	}
	return p
}

// connection is what a subscriber gets that is there from one interval to another,
// frame by frame.
func (p *publisher) connection(from, to int, ownSeq bool) (frames [][]byte) {
	frames = append(frames, dendro.AppendPreamble(nil),
		dendro.AppendHandshake(nil, &dendro.Handshake{UUID: []byte("3f2b1c4d-0000-4000-8000-000000000001"), HasUUID: true}))
	for n := from; n <= to; n++ {
		rows, seq := p.rows[n], uint64(n)
		switch {
		case n != from || p.opens == tailing:
		case p.opens == withNewest:
			rows = p.newest(n)
		default:
			rows = slices.Concat(p.rows[max(0, n-back) : n+1]...)
		}
		if ownSeq {
			seq -= uint64(from)
		}
		frames = append(frames, dendro.AppendRowsOf(nil, 0, seq, dendro.State{}, rows))
	}
	return frames
}

func (p *publisher) newest(n int) (rows []dendro.Row) {
	for _, s := range p.streams {
		found := false
		for i := n; i >= 0 && !found; i-- {
			for _, r := range p.rows[i] {
				if found = string(r.Stream) == s; found {
					rows = append(rows, r)
					break
				}
			}
		}
	}
	return rows
}

// recordedAt is a connection as one recorder has it.
type recordedAt struct {
	from, to int
	frames   [][]byte
	verdict  string
}

// writeRecorded records the connections of one recorder, the arrival times those of the
// intervals.
func writeRecorded(t *testing.T, dir string, conns []recordedAt) {
	t.Helper()
	d := must(capture.Create(dir, capture.Options{Tool: "test"}))
	for _, c := range conns {
		w := must(d.Connect(capture.ConnInfo{Endpoint: "test", Protocol: "auto"}))
		for i, f := range c.frames {
			at := int64(1_700_000_000+c.from+max(0, i-2))*1e9 + 5e8
			must(w.Write(f, capture.Instant{Wall: at, Mono: at}))
		}
		if _, err := w.Close(sidecar.Verdict{Kind: c.verdict}, sidecar.ClosedEnd); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsClaimedFalsely: connections of one publisher, one after the other
// and side by side, of which frames are lost, refused or cut off. Where a rebuild
// says that nothing is missing its archive is that of the connections without
// these losses.
func TestNothingIsClaimedFalsely(t *testing.T) {
	seed, rounds := uint64(20261130), 150
	if os.Getenv("WIRETAPE_TORTURE") != "" {
		seed, rounds = rand.Uint64(), 2500
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	healed, open, cautious := 0, 0, 0
	for round := range rounds {
		const intervals = 60
		p := newPublisher(rng, intervals)
		ownSeq := rng.IntN(2) == 0
		root := t.TempDir()
		var whole, lossy []string
		did := ""
		for k := range 1 + rng.IntN(3) {
			var as, are []recordedAt
			for at := rng.IntN(10); at < intervals-5; {
				to := min(intervals-1, at+3+rng.IntN(25))
				c := recordedAt{at, to, p.connection(at, to, ownSeq), sidecar.TransportClean}
				did += fmt.Sprintf(" %d/%d from %d to %d;", k, len(as)+1, at, to)
				x := c
				x.frames = append([][]byte{}, c.frames...)
				n := len(x.frames)
				// What the peer had sent when the transport was cut, and was lost.
				flying := func(i int) int { return at + min(n, i+rng.IntN(4)) - 3 }
				i := 2 + rng.IntN(n-2)
				switch rng.IntN(14) {
				case 0: // frames that did not come
					// Of those at either end nobody could know.
					if i = max(3, i); i > n-2 {
						break
					}
					j := min(n-1, i+1+rng.IntN(4))
					x.frames = append(x.frames[:i:i], x.frames[j:]...)
					did += fmt.Sprintf(" %d/%d without frames %d to %d of %d;", k, len(as)+1, i, j-1, n)
				case 1: // cut inside a frame
					x.frames = append(x.frames[:i:i], c.frames[i][:1+rng.IntN(len(c.frames[i])-1)])
					x.verdict = sidecar.TransportCut
					to = flying(i + 1)
					did += fmt.Sprintf(" %d/%d cut in frame %d of %d;", k, len(as)+1, i, n)
				case 2: // cut between two
					x.frames = x.frames[:i]
					x.verdict = sidecar.TransportCut
					to = flying(i)
					did += fmt.Sprintf(" %d/%d cut before frame %d of %d;", k, len(as)+1, i, n)
				case 3: // a frame that does not decode
					bad := append([]byte{}, c.frames[i][:len(c.frames[i])-3]...)
					binary.LittleEndian.PutUint32(bad, uint32(len(bad)-dendro.LenSize))
					x.frames[i] = bad
					did += fmt.Sprintf(" %d/%d altered in frame %d of %d;", k, len(as)+1, i, n)
				}
				c.frames = c.frames[:to-at+3]
				as, are = append(as, c), append(are, x)
				at = max(at+1, to+rng.IntN(4)-1)
			}
			if len(as) == 0 {
				continue
			}
			a, b := filepath.Join(root, fmt.Sprint("whole", k)), filepath.Join(root, fmt.Sprint("lossy", k))
			writeRecorded(t, a, as)
			writeRecorded(t, b, are)
			whole, lossy = append(whole, a), append(lossy, b)
		}
		of, want := mustBuild(t, Options{}, whole...)
		r, got := mustBuild(t, Options{}, lossy...)
		same := cmp.Equal(want, got)
		switch {
		case r.ExitCode() == 0 && !same:
			t.Errorf("seed %d, round %d:%s nothing is said to be missing, %+v, without %v:\n%s", seed, round, did, r.Losses, missingRows(want, got), lossesIn(r))
		case r.ExitCode() == 0:
			healed++
		case !same:
			open++
		case of.ExitCode() == 0:
			cautious++
		}
	}
	t.Logf("made good %d, missing %d, missing as far as is known %d", healed, open, cautious)
	if healed < rounds/20 || open < rounds/20 {
		t.Errorf("made good %d, missing %d of %d rounds", healed, open, rounds)
	}
}

// missingRows are the rows of one archive that another one lacks: streams and intervals.
func missingRows(want, got *dumped) (missing []string) {
	has := map[dumpedRow]bool{}
	for _, s := range got.Sources {
		for _, r := range s.WAL {
			has[r] = true
		}
	}
	for _, s := range want.Sources {
		for _, r := range s.WAL {
			if !has[r] {
				missing = append(missing, fmt.Sprintf("%s@%d", r.Stream, r.TS/1e9-1_700_000_000))
			}
		}
	}
	return missing
}

// lossesIn are the losses in words.
func lossesIn(r *Report) (lines string) {
	for _, s := range r.Source {
		for _, l := range s.Losses {
			lines += l.text() + "\n"
		}
	}
	return lines
}
