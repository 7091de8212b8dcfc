package journal

// This file finds the links: a downstream connection, what came back on it, and
// the layout that both are in.

import (
	"crypto/ed25519"
	"errors"
	"io"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/melin"
)

// link is one replication connection: what came down, what came up, or both.
type link struct {
	down, up         *capture.Connection
	downID, upID     int // in the catalogue, 0 for none
	paired           string
	set              melin.Layouts
	layout           melin.Layout
	layoutFrom       string
	ambiguous        bool
	key              []byte // of the replica
	epoch            uint64
	handshake        *melin.Handshake
	challenge        *melin.Challenge
	response         *melin.ChallengeResponse
	responseAt       place
	authOk           bool
	hasGenesis       bool
	genesisEntries   uint64
	stretches        []*stretch
	damages          []damage
	points           []point
	gaps             []gap
	starts           []start
	bodies           []*body
	downStat, upStat direction
	sent             uint64 // the last sequence carried, or the start
	announced        uint64 // the last sequence that the primary named last
	announcedAt      int64
	acked, inMemory  uint64
	ackedAt          int64
	acks             int64
	badAcks          int64
	badEpochs        int64
	segments         int // named by points
	overflow         map[string]bool
	lineage          *lineage
}

// place is where a frame starts.
type place struct {
	run    *capture.Run
	offset int64
}

// direction is what the survey saw of one direction.
type direction struct {
	frames, slots       int64
	clean               bool
	holes               bool // bytes are missing between frames, or before the first
	ending              string
	first, last         uint64
	firstTime, lastTime uint64
}

func (l *link) id() string {
	if l.down != nil {
		return l.down.ID
	}
	return l.up.ID
}

// collect takes the melin connections of the set and pairs them.
func (b *builder) collect(set *capture.Set) (links []*link) {
	var downs, ups []*link
	for _, c := range set.Connections {
		if c.Protocol != melin.Name {
			b.report.Refused(c)
			b.report.Connections = append(b.report.Connections, ReportConnection{ID: c.ID, Protocol: wire.SafeText(c.Protocol, 40)})
			continue
		}
		for _, f := range c.Findings {
			b.report.add(f)
		}
		l := &link{overflow: map[string]bool{}}
		if travels(c) == wire.Upstream {
			l.up = c
			ups = append(ups, l)
		} else {
			l.down = c
			downs = append(downs, l)
		}
		b.progress.Total += c.Length()
	}
	b.pair(downs, ups)
	id := 0
	for _, c := range set.Connections {
		for _, l := range append(downs, ups...) {
			if l.down == c {
				id++
				l.downID = id
			}
			if l.up == c && (l.down != nil || l.paired == "") {
				id++
				l.upID = id
			}
		}
	}
	links = downs
	for _, u := range ups {
		if u.paired == "" {
			links = append(links, u)
		}
	}
	return links
}

// travels is a connection's direction, by its frames where nobody said it.
func travels(c *capture.Connection) wire.Direction {
	dir := c.Direction
	if dir == wire.DirectionUnknown {
		// What can't be read is found when it is surveyed.
		_, _ = walk(c, 0, func(_ *capture.Run, d *melin.Decoder, _ wire.Unit, _ []wire.Finding, _ bool) error {
			if dir = d.Direction(); dir != wire.DirectionUnknown {
				return errStop
			}
			return nil
		})
	}
	return dir
}

// pair joins the two directions of a connection: as the recorder says, and for
// bytes that no recorder of ours wrote by the signature over the nonce.
func (b *builder) pair(downs, ups []*link) {
	byID := map[string]*link{}
	for _, u := range ups {
		byID[u.up.ID] = u
	}
	join := func(d, u *link, how string) {
		d.up, d.paired, u.paired = u.up, how, how
	}
	for _, d := range downs {
		if u := byID[d.down.Pair]; d.down.Pair != "" && u != nil && u.paired == "" {
			join(d, u, "recorded together")
		}
	}
	for _, u := range ups {
		if u.paired != "" || u.up.Pair == "" {
			continue
		}
		for _, d := range downs {
			if d.down.ID == u.up.Pair && d.up == nil {
				join(d, u, "recorded together")
			}
		}
	}
	nonces := map[*link]melin.Challenge{}
	tries := 0
	for _, u := range ups {
		if u.paired != "" {
			continue
		}
		first, ok := firstUnit(u.up)
		if !ok || first.Kind != melin.TagChallengeResponse {
			continue
		}
		r, _ := melin.DecodeChallengeResponse(first.Bytes)
		for _, d := range downs {
			if d.up != nil || d.down.Pair != "" {
				continue
			}
			n, known := nonces[d]
			if !known {
				if first, ok := firstUnit(d.down); ok && first.Kind == melin.TagChallenge {
					n, _ = melin.DecodeChallenge(first.Bytes)
				}
				nonces[d] = n
			}
			if tries++; tries > maxPairs {
				return
			}
			if ed25519.Verify(r.PublicKey[:], n.Nonce[:], r.Signature[:]) {
				join(d, u, "the signature answers the challenge")
				break
			}
		}
	}
}

// firstUnit reads the first frame of a connection, if it is there and whole.
func firstUnit(c *capture.Connection) (u wire.Unit, ok bool) {
	runs := c.Runs()
	if len(runs) == 0 || runs[0].Start != 0 {
		return u, false
	}
	src, opt := runs[0].Open()
	defer src.Close()
	d, err := melin.NewDecoder(wire.Config{Direction: c.Direction})
	if err != nil {
		return u, false
	}
	u, found, err := wire.NewReader(src, d, opt).Next()
	return u, err == nil && len(found) == 0
}

// visit is told every frame of a connection and what was found at it; u.Size is
// 0 for what was found at the end. restarted says that bytes are missing, or
// could not be read, before it.
type visit func(run *capture.Run, d *melin.Decoder, u wire.Unit, found []wire.Finding, restarted bool) error

// decoder starts reading a run as the connection's reader does, in a layout that
// is known from elsewhere, 0 when it is not.
func decoder(run *capture.Run, layout melin.Layout) (wire.Decoder, error) {
	dec, err := run.Connection().Decoder(run)
	if errors.Is(err, melin.ErrContext) { // a sidecar is a convenience only
		dec, err = melin.NewDecoder(wire.Config{Direction: run.Connection().Direction, Context: wire.MidStream(melin.Name)})
	}
	if err != nil {
		return nil, err
	}
	d, ok := dec.(*melin.Decoder)
	if !ok {
		return nil, melin.ErrContext
	}
	d.FixLayout(layout)
	return d, nil
}

var errStop = errors.New("enough was read")

// walk reads a connection to its end. A visit that gives errStop ends the walk.
// ending is how it ended, or "holes" when not all of it could be read.
func walk(c *capture.Connection, layout melin.Layout, v visit) (ending string, err error) {
	r := c.Units()
	r.Open = func(run *capture.Run) (wire.Decoder, error) { return decoder(run, layout) }
	defer r.Close()
	starts := 0
	for {
		u, found, err := r.Next()
		if err != nil && err != io.EOF {
			return ending, err
		}
		restarted := false
		if r.Restarted() {
			starts++
			restarted = starts > 1 || r.Run().Start > 0
		}
		d, _ := r.Decoder().(*melin.Decoder)
		if run := r.Run(); run != nil && d != nil {
			if err := v(run, d, u, found, restarted); err == errStop {
				return ending, nil
			} else if err != nil {
				return ending, err
			}
		}
		if err == io.EOF {
			if starts > 1 {
				return "holes", nil
			}
			return string(r.Ending()), nil
		}
	}
}

// tellLayout finds a link's layout: by the Handshake, else by the frames.
func (b *builder) tellLayout(l *link, handshake melin.Layouts) error {
	if handshake != melin.AllLayouts {
		l.set, l.layout, l.layoutFrom = handshake, handshake.Taken(), "handshake"
		return nil
	}
	l.set, l.layoutFrom = melin.AllLayouts, "frames"
	if l.down != nil {
		slots, starts := false, false
		_, err := walk(l.down, 0, func(_ *capture.Run, d *melin.Decoder, u wire.Unit, _ []wire.Finding, _ bool) error {
			l.set &= d.Layouts()
			if l.set == 0 {
				l.set = d.Layouts()
			}
			switch u.Kind {
			case melin.TagStreamStart:
				starts = true
			case melin.TagInputBatch:
				slots = slots || u.Size > int64(melin.HeaderSize+2)
			}
			if l.set == melin.Only(l.set.Taken()) || slots && !l.set.Has(1) && sameShape(l.set) {
				return errStop
			}
			return nil
		})
		if err != nil {
			return err
		}
		l.ambiguous = slots && !sameShape(l.set) || starts && l.set.Has(1) && l.set != melin.Only(1)
	}
	l.layout = l.set.Taken()
	if l.set == melin.AllLayouts {
		l.layoutFrom = "taken"
	}
	if l.ambiguous {
		l.layoutFrom = "ambiguous"
	}
	return nil
}

func sameShape(s melin.Layouts) bool {
	for n := melin.Layout(1); n <= melin.Newest; n++ {
		if s.Has(n) && n.Shape() != s.Taken().Shape() {
			return false
		}
	}
	return true
}
