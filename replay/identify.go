package replay

// This file tells connections apart for sources that have no uuid (docs/merging.md,
// section 2): by how the connection begins, up to its first row. That is the same
// however it goes on and whatever else is among the inputs.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"

	"wiretape/capture"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

const (
	// KindUnidentified: a connection has sources without a uuid, and how it
	// began is not known.
	KindUnidentified = "identity-unknown"
	// KindAlike: two connections with sources without a uuid begin alike and
	// differ later.
	KindAlike = "connections-alike"
)

// maxFirst is the most of two connections that must be equal before all of their
// bytes are compared.
const maxFirst = 4096

// identity is what a connection's sources without a uuid are known by.
type identity struct {
	// sum is from what their uuids are made, nil before it is known.
	sum []byte
	// before is the one that an earlier run used. It stays in use; moved says
	// that the connection has another one now, since it has grown.
	before []byte
	moved  bool
	// unknown: no first byte is here, and no sidecar tells how it began.
	unknown bool
	// dec and at are where looking for the first row ended.
	dec *dendro.Decoder
	at  int64
}

// settle finds the connection's identity. waits says that it is not known yet:
// the first row is still to come. With force what has come must do, as it must
// where no more will.
func (c *connection) settle(force bool) (waits bool, err error) {
	id := &c.identity
	if id.sum != nil {
		return false, nil
	}
	o := c.opening()
	var sum []byte
	switch {
	case !o.Known && id.before != nil:
		sum = id.before
	case !o.Known:
		id.unknown = true
		h := sha256.Sum256([]byte(c.ID))
		sum = h[:dendro.OpeningSize]
	case o.Whole:
		sum = o.Digest[:]
	case c.growing && !force:
		return true, nil
	case c.stands != nil && c.stands != c && c.later && !force:
		// All that it has is there already. It may still turn out to be one of
		// its own.
		return true, nil
	case c.stands != nil && c.stands != c:
		// The beginning of another one is that one.
		if waits, err := c.stands.settle(force); err != nil || waits {
			return waits, err
		}
		sum = c.stands.identity.sum
	default:
		sum = o.Digest[:]
	}
	if id.before != nil && !bytes.Equal(sum, id.before) {
		sum, id.moved = id.before, true
	}
	id.sum = bytes.Clone(sum)
	return false, nil
}

// opening is how the connection begins, as far as its bytes and its sidecars
// tell. It goes on where it ended before. What can't be read is reported where
// the connection is read.
func (c *connection) opening() (o dendro.Opening) {
	id := &c.identity
	runs := c.Runs()
	for i, run := range runs {
		if id.dec != nil && (id.at > run.End() || id.at == run.End() && i < len(runs)-1) {
			continue
		}
		if id.dec == nil || run.Start > id.at {
			dec := c.opener(run)
			if dec == nil || !dec.Opening().Known {
				continue
			}
			id.dec, id.at = dec, run.Start
		}
		units := c.UnitsFrom(run, id.at, id.dec)
		units.Growing = c.growing && i == len(runs)-1
		for !id.dec.Opening().Whole {
			u, _, err := units.Next()
			dec, _ := units.Decoder().(*dendro.Decoder)
			if err != nil || dec == nil || !dec.Opening().Known {
				break
			}
			id.dec, id.at = dec, u.End()
		}
		_ = units.Close()
		if id.dec.Opening().Whole {
			break
		}
	}
	if id.dec == nil {
		return o
	}
	return id.dec.Opening()
}

// opener starts a decoder for a run. A stream without a sidecar is taken to begin
// with its first Handshake.
func (c *connection) opener(run *capture.Run) *dendro.Decoder {
	if c.Raw {
		dec, _ := dendro.NewDecoder(wire.Config{Named: true})
		return dec
	}
	d, _ := c.Decoder(run)
	dec, _ := d.(*dendro.Decoder)
	return dec
}

// unidentified is the finding that a connection's identity is not known.
func (c *connection) unidentified() wire.Finding {
	return c.locate(wire.Finding{Kind: KindUnidentified, Connection: c.ID, Offset: c.at, Field: "uuid",
		Message: "a source has no uuid, and how the connection began is not known: its first bytes are not here, and no sidecar tells it; the source is known by the connection's name",
		Cost:    "another copy of the connection counts as another source"})
}

// alike finds the connections of a source without a uuid that begin alike, so
// that they are one source, and differ later.
func (s *source) alike() (found []wire.Finding, err error) {
	if !s.minted || len(s.parts) < 2 {
		return nil, nil
	}
	longest := s.parts[0].conn
	for _, p := range s.parts[1:] {
		if c := p.conn; cmp.Or(cmp.Compare(c.Length(), longest.Length()), bytes.Compare(c.hash(), longest.hash())) > 0 {
			longest = c
		}
	}
	for _, p := range s.parts {
		c := p.conn
		if c == longest {
			continue
		}
		at, err := differs(longest, c)
		if err != nil {
			return nil, err
		}
		if at >= 0 {
			found = append(found, c.locate(wire.Finding{Kind: KindAlike, Connection: c.ID, Offset: at, Field: "uuid",
				Message: "the connection begins as " + longest.ID + " does, up to its first row, and differs from byte " + wire.Itoa(at) + " on: without a uuid they can't be told apart, and are one source, " + s.uuid,
				Cost:    "what two publishers sent may be in one source"}))
		}
	}
	return found, nil
}

// differs is the first offset at which two connections have other bytes, -1
// where all that both have is equal.
func differs(o, c *connection) (int64, error) {
	if !o.placed() || !c.placed() {
		return -1, nil
	}
	for _, a := range o.Runs() {
		for _, b := range c.Runs() {
			from, to := max(a.Start, b.Start), min(a.End(), b.End())
			if from >= to || a.Loose || b.Loose {
				continue
			}
			if at, err := firstDifference(a, b, from, to); err != nil || at >= 0 {
				return at, err
			}
		}
	}
	return -1, nil
}

// placed says that offsets are those of the connection: its preamble is here, or
// sidecars tell.
func (c *connection) placed() bool {
	if !c.Raw {
		return true
	}
	src := c.open()
	defer src.Close()
	b := make([]byte, len(dendro.Magic))
	_, err := io.ReadFull(src, b)
	return err == nil && string(b) == dendro.Magic
}

// firstDifference compares two runs between two offsets that both have. It ends
// where one can't be read: that is reported where it is read.
func firstDifference(a, b *capture.Run, from, to int64) (int64, error) {
	x, _ := a.OpenAt(from)
	y, _ := b.OpenAt(from)
	defer x.Close()
	defer y.Close()
	p, q := make([]byte, 1<<16), make([]byte, 1<<16)
	for from < to {
		n := min(to-from, int64(len(p)))
		k, errX := io.ReadFull(x, p[:n])
		m, errY := io.ReadFull(y, q[:n])
		for i := range min(k, m) {
			if p[i] != q[i] {
				return from + int64(i), nil
			}
		}
		if errX != nil || errY != nil {
			break
		}
		from += n
	}
	return -1, nil
}

// identify finds the connections that are the beginning of another one: they are
// the same connection, captured twice. Each stands for the longest of which it
// is the beginning.
func identify(conns []*connection) error {
	groups := map[[sha256.Size]byte][]*connection{}
	for _, c := range conns {
		b, err := c.beginning()
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		c.stands = nil
		groups[sum] = append(groups[sum], c)
	}
	for _, g := range groups {
		if len(g) == 1 {
			continue
		}
		for _, c := range g {
			longest := c
			for _, o := range g {
				// Of two that are as long the one with the larger hash, so that
				// the order of the inputs does not matter.
				if n := cmp.Compare(o.Length(), longest.Length()); n > 0 || n == 0 && bytes.Compare(o.hash(), longest.hash()) > 0 {
					same, err := beginsWith(o, c)
					if err != nil {
						return err
					}
					if same {
						longest = o
					}
				}
			}
			c.stands = longest
		}
	}
	return nil
}

// open gives the connection's bytes from its first one on, as far as there is
// no hole.
func (c *connection) open() io.ReadCloser {
	runs := c.Runs()
	if len(runs) == 0 || runs[0].Start != 0 {
		return io.NopCloser(bytes.NewReader([]byte(c.ID)))
	}
	src, _ := runs[0].Open()
	return src
}

// beginning is the preamble and the first frame, at most maxFirst bytes.
func (c *connection) beginning() ([]byte, error) {
	src := c.open()
	defer src.Close()
	b := make([]byte, maxFirst)
	n, err := io.ReadFull(src, b)
	var damage *capture.DamagedError
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF && !errors.As(err, &damage) {
		return nil, err
	}
	b = b[:n]
	if len(b) >= dendro.PreambleSize+dendro.LenSize {
		h := b[dendro.PreambleSize:]
		end := int64(h[0]) | int64(h[1])<<8 | int64(h[2])<<16 | int64(h[3])<<24
		end += int64(dendro.PreambleSize + dendro.LenSize)
		b = b[:min(int64(len(b)), end)]
	}
	return b, nil
}

// beginsWith says that the bytes of c are the first bytes of o.
func beginsWith(o, c *connection) (bool, error) {
	a, b := o.open(), c.open()
	defer a.Close()
	defer b.Close()
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(b, y)
		m, _ := io.ReadFull(a, x[:n])
		if m < n || !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return true, nil
		case err != nil:
			// What can't be read is reported where the connection is read.
			return true, nil
		}
	}
}
