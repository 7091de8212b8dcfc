package replay

// This file tells connections apart for sources that have no uuid (docs/merging.md,
// section 2): by the connection's first bytes, its preamble and first frame.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"

	"wiretape/capture"
	"wiretape/wire/dendro"
)

// maxFirst is the most of a connection that identifies it.
const maxFirst = 4096

// identify gives each connection its first bytes. Connections that begin alike
// and then differ, as those of one publisher without a uuid do, are told apart
// by all their bytes; one that is the other's beginning is the same connection,
// captured twice.
func identify(conns []*connection) error {
	groups := map[string][]*connection{}
	for _, c := range conns {
		b, err := c.beginning()
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		c.first = sum[:]
		groups[string(c.first)] = append(groups[string(c.first)], c)
	}
	for _, g := range groups {
		if len(g) == 1 {
			continue
		}
		// Each stands for the longest of which it is the beginning.
		for _, c := range g {
			longest := c
			for _, o := range g {
				// Of two that are as long the one with the larger hash, so that
				// the order of the inputs does not matter.
				if n := cmp.Compare(o.length(), longest.length()); n > 0 || n == 0 && bytes.Compare(o.hash(), longest.hash()) > 0 {
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
		distinct := map[string]bool{}
		for _, c := range g {
			distinct[string(c.stands.hash())] = true
		}
		if len(distinct) == 1 {
			continue
		}
		for _, c := range g {
			sum := sha256.Sum256(append(bytes.Clone(c.first), c.stands.hash()...))
			c.identity = sum[:]
		}
	}
	for _, c := range conns {
		if c.identity != nil {
			c.first = c.identity
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
