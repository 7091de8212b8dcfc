package segment

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The campaign runs in a process of its own, so that a death by memory, which
// nothing can catch, is seen and told apart.
const (
	workerEnv = "WIRETAPE_SEGMENT_MUTATIONS"
	seedEnv   = "WIRETAPE_SEGMENT_SEED"
	// hostileMemory is the address space that the process may have, hostileRSS
	// what it may hold at its worst: twice the limit of decoded bytes, the
	// corpus and the runtime.
	hostileMemory = 3 << 30
	hostileRSS    = 300 << 20
	// hostileTime is what one check may compute.
	hostileTime = time.Second
)

// campaign is what a worker tells.
type campaign struct {
	Mutations int
	Found     int // a finding
	Unchecked int // no finding, and something could not be checked
	Harmless  int // sound, every value as before
	Unseen    int // sound, with other values
	ByKind    map[string]int
	UnseenBy  map[string]int
	Real      int // mutations of what real producers wrote
	RealSeen  int // of those, found
	RealNone  int // of those, without another value
	Slowest   time.Duration
	Peak      int64
}

// TestMutations mutates sound segments and looks at what becomes of the check:
// no crash, no hang, bounded memory, and no proof of a claim that is not so.
func TestMutations(t *testing.T) {
	n, workers := 20_000, 1
	if os.Getenv("WIRETAPE_TORTURE") == "1" {
		n, workers = 600_000, 2
	}
	total := campaign{ByKind: map[string]int{}, UnseenBy: map[string]int{}}
	type outcome struct {
		c   campaign
		out []byte
		err error
	}
	results := make(chan outcome)
	for w := range workers {
		seed := uint64(time.Now().UnixNano()) + uint64(w)
		if s := os.Getenv(seedEnv); s != "" {
			v, _ := strconv.ParseUint(s, 10, 64)
			seed = v + uint64(w)
		}
		t.Logf("seed %d, %d mutations", seed, n)
		go func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMutationWorker$", "-test.timeout=3h")
			cmd.Env = append(os.Environ(), workerEnv+"="+strconv.Itoa(n), seedEnv+"="+strconv.FormatUint(seed, 10))
			var o outcome
			o.out, o.err = cmd.CombinedOutput()
			for line := range bytes.Lines(o.out) {
				if rest, ok := bytes.CutPrefix(line, []byte("campaign ")); ok {
					json.Unmarshal(rest, &o.c)
				}
			}
			results <- o
		}()
	}
	for range workers {
		o := <-results
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, o.out)
		}
		total.Mutations += o.c.Mutations
		total.Found += o.c.Found
		total.Unchecked += o.c.Unchecked
		total.Harmless += o.c.Harmless
		total.Unseen += o.c.Unseen
		total.Real += o.c.Real
		total.RealSeen += o.c.RealSeen
		total.RealNone += o.c.RealNone
		total.Slowest = max(total.Slowest, o.c.Slowest)
		total.Peak = max(total.Peak, o.c.Peak)
		for k, v := range o.c.ByKind {
			total.ByKind[k] += v
		}
		for k, v := range o.c.UnseenBy {
			total.UnseenBy[k] += v
		}
	}
	if total.Mutations != n*workers || total.Found < total.Mutations/4 {
		t.Errorf("%+v", total)
	}
	if total.Peak > hostileRSS {
		t.Errorf("%d bytes of memory at the worst, the most is %d", total.Peak, hostileRSS)
	}
	t.Logf("%d mutations: %d found, %d unchecked, %d changed no value, %d changed values unseen (%.1f %%, each found by SHA-256); the slowest check took %v, %d MiB at the worst",
		total.Mutations, total.Found, total.Unchecked, total.Harmless, total.Unseen, 100*float64(total.Unseen)/float64(total.Mutations), total.Slowest, total.Peak>>20)
	t.Logf("of %d mutations of real producers' segments, which have no page CRCs, %d were found, %d changed no value and %d passed unseen or unchecked",
		total.Real, total.RealSeen, total.RealNone, total.Real-total.RealSeen-total.RealNone)
	for _, k := range slices.Sorted(mapKeys(total.ByKind)) {
		t.Logf("%-14s %7d, unseen %d", k, total.ByKind[k], total.UnseenBy[k])
	}
}

func mapKeys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// sound is a segment of the corpus.
type sound struct {
	name    string
	b       []byte
	claim   Claim
	parts   *anatomy
	columns []goldenColumn
	sum     [32]byte
}

const hashLimit = 4 << 20

func hostileCorpus(t testing.TB) []*sound {
	var golden map[string]goldenFile
	readJSON(t, "golden.json", &golden)
	said := claims(t)
	var all []*sound
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for k := range golden {
			if !yield(k) {
				return
			}
		}
	}) {
		b := readFile(t, name)
		if len(b) > 40<<10 {
			continue
		}
		s := &sound{name: name, b: b, sum: sha256.Sum256(b)}
		var ok bool
		if s.claim, ok = said[name]; !ok {
			if times, err := Times(b, Options{}); err == nil && len(times) > 0 {
				s.claim = Claim{Rows: uint64(len(times)), FirstTS: times[0], LastTS: times[len(times)-1]}
			}
		}
		var err error
		if s.parts, err = takeApart(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.columns, err = hashColumns(b, hashLimit); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The parts put together again hold the same values.
		again := s.parts.clone().putTogether()
		if columns, err := hashColumns(again, hashLimit); err != nil || !slices.Equal(columns, s.columns) {
			t.Fatalf("%s: taken apart and put together: %v", name, err)
		}
		all = append(all, s)
	}
	return all
}

// TestMutationWorker is the campaign's process. Without its variable it runs a
// few mutations in this one.
func TestMutationWorker(t *testing.T) {
	n, seed := 500, uint64(1)
	child := os.Getenv(workerEnv) != ""
	if child {
		n, _ = strconv.Atoi(os.Getenv(workerEnv))
		seed, _ = strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
		limitMemory(t, hostileMemory)
	}
	corpus := hostileCorpus(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := campaign{ByKind: map[string]int{}, UnseenBy: map[string]int{}}
	for i := range n {
		s := corpus[rnd.IntN(len(corpus))]
		kind := mutations[rnd.IntN(len(mutations))]
		b := kind.make(rnd, s, corpus)
		if bytes.Equal(b, s.b) {
			b = append(b[:len(b):len(b)], 0)
		}
		c.Mutations++
		c.ByKind[kind.name]++
		real := strings.HasPrefix(s.name, "real/")
		if real {
			c.Real++
		}
		start := clock()
		r := Check(b, s.claim, Options{Depth: DepthFull})
		took := clock() - start
		c.Slowest = max(c.Slowest, took)
		if took > hostileTime {
			t.Errorf("mutation %d of seed %d (%s of %s) took %v", i, seed, kind.name, s.name, took)
		}
		times, err := Times(b, Options{})
		if r.Proved && (err != nil || uint64(len(times)) != s.claim.Rows) {
			t.Errorf("mutation %d of seed %d (%s of %s): proved, but %d times of %d, %v", i, seed, kind.name, s.name, len(times), s.claim.Rows, err)
		}
		switch {
		case !r.Sound():
			c.Found++
			if real {
				c.RealSeen++
			}
			for _, f := range r.Findings {
				if f.Offset < 0 || f.Offset+f.Length > int64(len(b)) || f.Message == "" {
					t.Errorf("mutation %d of seed %d (%s of %s): a finding outside the segment of %d bytes: %+v", i, seed, kind.name, s.name, len(b), f)
				}
			}
		case len(r.Unchecked) > 0:
			c.Unchecked++
		default:
			columns, err := hashColumns(b, hashLimit)
			if err == nil && slices.Equal(columns, s.columns) {
				c.Harmless++
				if real {
					c.RealNone++
				}
				break
			}
			c.Unseen++
			c.UnseenBy[kind.name]++
			if sha256.Sum256(b) == s.sum {
				t.Errorf("mutation %d of seed %d has the SHA-256 of %s", i, seed, s.name)
			}
		}
	}
	c.Peak = peakRSS(t)
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if child {
		os.Stdout.WriteString("campaign " + string(line) + "\n")
	}
}

// peakRSS is the most memory that this process held.
func peakRSS(t testing.TB) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM in /proc/self/status")
	return 0
}

type mutation struct {
	name string
	make func(rnd *rand.Rand, s *sound, corpus []*sound) []byte
}

var mutations = []mutation{
	{"cut", func(rnd *rand.Rand, s *sound, _ []*sound) []byte { return s.b[:rnd.IntN(len(s.b))] }},
	{"cut out", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		i := rnd.IntN(len(s.b))
		j := i + 1 + rnd.IntN(min(64, len(s.b)-i))
		return slices.Concat(s.b[:i], s.b[j:])
	}},
	{"flip", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		b := slices.Clone(s.b)
		for range 1 << rnd.IntN(5) {
			b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		}
		return b
	}},
	{"flip one", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		b := slices.Clone(s.b)
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		return b
	}},
	{"zero", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		b := slices.Clone(s.b)
		i := rnd.IntN(len(b))
		clear(b[i:min(len(b), i+1+rnd.IntN(1<<rnd.IntN(12)))])
		return b
	}},
	{"splice", func(rnd *rand.Rand, s *sound, corpus []*sound) []byte {
		b := slices.Clone(s.b)
		from := s.b
		if rnd.IntN(2) == 0 {
			from = corpus[rnd.IntN(len(corpus))].b
		}
		i, j := rnd.IntN(len(b)), rnd.IntN(len(from))
		n := min(1+rnd.IntN(1<<rnd.IntN(12)), len(b)-i, len(from)-j)
		copy(b[i:], from[j:j+n])
		return b
	}},
	{"footer", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		a := s.parts.clone()
		b := a.putTogether()
		body := b[:len(b)-8-int(uint32(b[len(b)-8])|uint32(b[len(b)-7])<<8|uint32(b[len(b)-6])<<16|uint32(b[len(b)-5])<<24)]
		for range 1 + rnd.IntN(3) {
			mutateTree(rnd, a.meta)
		}
		return finish(body[:len(body):len(body)], a.meta)
	}},
	{"page header", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		a := s.parts.clone()
		for range 1 + rnd.IntN(2) {
			if c := a.chunks[rnd.IntN(len(a.chunks))]; len(c.pages) > 0 {
				mutateTree(rnd, c.pages[rnd.IntN(len(c.pages))].header)
			}
		}
		return a.putTogether()
	}},
	{"pages", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		a := s.parts.clone()
		c := a.chunks[rnd.IntN(len(a.chunks))]
		d := a.chunks[rnd.IntN(len(a.chunks))]
		if len(c.pages) > 0 && len(d.pages) > 0 {
			i, j := rnd.IntN(len(c.pages)), rnd.IntN(len(d.pages))
			switch rnd.IntN(3) {
			case 0:
				c.pages[i], d.pages[j] = d.pages[j], c.pages[i]
			case 1:
				c.pages = slices.Insert(c.pages, i, d.pages[j])
			case 2:
				c.pages = slices.Delete(c.pages, i, i+1)
			}
		}
		return a.putTogether()
	}},
	{"page body", func(rnd *rand.Rand, s *sound, _ []*sound) []byte {
		// Where run headers, widths, counts and lengths are: the first bytes.
		a := s.parts.clone()
		c := a.chunks[rnd.IntN(len(a.chunks))]
		if len(c.pages) == 0 {
			return a.putTogether()
		}
		p := c.pages[rnd.IntN(len(c.pages))]
		p.header.fields = slices.DeleteFunc(p.header.fields, func(f field) bool { return f.id == 4 })
		if len(p.body) > 0 {
			p.body = slices.Clone(p.body)
			i := rnd.IntN(min(len(p.body), 16))
			switch rnd.IntN(3) {
			case 0:
				p.body[i] = byte(rnd.Uint32())
			case 1:
				for k := i; k < min(len(p.body), i+1+rnd.IntN(8)); k++ {
					p.body[k] = 0xff
				}
			case 2:
				big := bigNumbers[rnd.IntN(len(bigNumbers))]
				for k := i; k < len(p.body) && big > 0; k++ {
					p.body[k] = byte(big&0x7f) | 0x80
					if big >>= 7; big == 0 {
						p.body[k] &= 0x7f
					}
				}
			}
		}
		return a.putTogether()
	}},
}

var bigNumbers = []uint64{1 << 7, 1 << 14, 1 << 20, 1 << 24, 1<<31 - 1, 1 << 31, 1<<32 - 2, 1<<32 - 1, 1 << 40, 1<<63 - 1, 1 << 63, math.MaxUint64}

var liesInt = []int64{0, 1, -1, 2, 7, 8, 127, 128, 255, 4096, 1 << 20, 1 << 24, 1 << 26, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 40,
	math.MaxInt64, math.MinInt64, math.MinInt32}

// mutateTree makes one node of a Thrift tree lie.
func mutateTree(rnd *rand.Rand, root *node) {
	var all []*node
	root.walk(func(n *node) { all = append(all, n) })
	n := all[rnd.IntN(len(all))]
	switch n.typ {
	case cTrue, cFalse:
		n.typ = cTrue + cFalse - n.typ
		n.num = int64(n.typ)
	case cByte, cI16, cI32, cI64:
		switch rnd.IntN(4) {
		case 0:
			n.num = liesInt[rnd.IntN(len(liesInt))]
		case 1:
			n.num += int64(rnd.IntN(9) - 4)
		case 2:
			n.num = all[rnd.IntN(len(all))].num
		case 3:
			n.num = int64(rnd.IntN(16))
		}
	case cBinary:
		switch rnd.IntN(4) {
		case 0:
			n.bytes = n.bytes[:rnd.IntN(len(n.bytes)+1)]
		case 1:
			n.bytes = append(slices.Clone(n.bytes), byte(rnd.Uint32()))
		case 2:
			n.bytes = slices.Clone(n.bytes)
			if len(n.bytes) > 0 {
				n.bytes[rnd.IntN(len(n.bytes))] ^= 1 << rnd.IntN(8)
			}
		case 3:
			n.bytes = make([]byte, rnd.IntN(1<<rnd.IntN(16)))
		}
	case cList:
		switch {
		case len(n.list) == 0 || rnd.IntN(6) == 0:
			n.elem = byte(rnd.IntN(16))
		case rnd.IntN(2) == 0:
			i := rnd.IntN(len(n.list))
			n.list = slices.Delete(n.list, i, i+1)
		case rnd.IntN(2) == 0:
			n.list = append(n.list, n.list[rnd.IntN(len(n.list))].clone())
		default:
			i, j := rnd.IntN(len(n.list)), rnd.IntN(len(n.list))
			n.list[i], n.list[j] = n.list[j], n.list[i]
		}
	case cStruct:
		if len(n.fields) == 0 {
			return
		}
		i := rnd.IntN(len(n.fields))
		switch rnd.IntN(4) {
		case 0:
			n.fields = slices.Delete(n.fields, i, i+1)
		case 1:
			n.fields = append(n.fields, field{n.fields[len(n.fields)-1].id + 1, n.fields[i].v.clone()})
		case 2:
			n.fields[i].id = int64(rnd.IntN(20))
		case 3:
			n.fields[i].v.typ = byte(1 + rnd.IntN(12))
		}
	}
}
