package replay

// This file tells raw streams apart for a follower. A stream file that no
// recorder wrote has no id: its name says nothing of what is in it. So it is
// known by its bytes: beside how far it was applied, the SHA-256 of what was
// applied is kept, and a stream goes on where an earlier run left it only when
// it begins with just those bytes. Another one under the same name is another
// connection, applied from its first byte.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"wiretape/capture"
	"wiretape/replay/archive"
	"wiretape/wire"
	"wiretape/wire/dendro"
)

// KindNameReused: a raw stream has the name of one that was applied before, and
// other bytes.
const KindNameReused = "name-reused"

// sampleBytes is how much before the end of what was applied is compared, each
// time a file that is followed has grown.
const sampleBytes = 64 << 10

// rawPrefix is what is known of a raw stream as far as it was applied; it is
// committed beside the data.
type rawPrefix struct {
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
}

// rawStream is what a follower knows of a raw stream that it reads.
type rawStream struct {
	path     string
	length   int64
	modified time.Time
	// sum is over the first n bytes, last the hash of the last bytes of these,
	// at most sampleBytes.
	sum  hash.Hash
	n    int64
	last [32]byte
}

// nameStreams gives the raw streams of a set the ids under which they were
// applied before, or new ones. It must come before anything of them is used.
// Streams that go on under their own names come first: another copy of the bytes
// takes nothing from them.
func (f *follower) nameStreams(set *capture.Set) error {
	claimed := map[string]bool{}
	var rest []*capture.Connection
	for _, c := range set.Connections {
		if !c.Raw || c.Refused != nil {
			continue
		}
		named, err := f.keepsName(c, claimed)
		if err != nil {
			return fmt.Errorf("stream %s: %w", c.Files[0].Path, err)
		}
		if !named {
			rest = append(rest, c)
			continue
		}
		claimed[c.ID] = true
	}
	for _, c := range rest {
		if err := f.nameStream(c, claimed); err != nil {
			return fmt.Errorf("stream %s: %w", c.Files[0].Path, err)
		}
		claimed[c.ID] = true
	}
	return nil
}

// keepsName names a stream that is read already, or that begins with what an
// earlier run applied under its name.
func (f *follower) keepsName(c *capture.Connection, claimed map[string]bool) (named bool, err error) {
	file := c.Files[0]
	for _, k := range f.order {
		if k.raw == nil || k.gone || k.raw.path != file.Path || claimed[k.ID] {
			continue
		}
		same, err := k.raw.goesOn(c)
		if err != nil {
			return false, err
		}
		if same {
			k.raw.length, k.raw.modified = file.Length, file.Modified()
			c.ID = k.ID
			return true, nil
		}
		k.gone, k.done, k.clean = true, true, false
		f.reused(c, "the one that was read until now", "what the file had behind byte "+wire.Itoa(k.progress())+" before, if there was anything")
		return true, f.newName(c, claimed)
	}
	key, err := f.applied(c, claimed, func(k string) bool { return k == c.ID || strings.HasPrefix(k, c.ID+"~") })
	c.ID = cmp.Or(key, c.ID)
	return key != "", err
}

// nameStream names a stream that does not go on under its name.
func (f *follower) nameStream(c *capture.Connection, claimed map[string]bool) error {
	if key, err := f.applied(c, claimed, func(string) bool { return true }); err != nil || key != "" {
		c.ID = cmp.Or(key, c.ID)
		return err
	}
	if _, before := f.before[c.ID]; before && !claimed[c.ID] && f.conns[c.ID] == nil && c.Files[0].Length > int64(dendro.PreambleSize) {
		if _, known := f.raws[c.ID]; known {
			f.reused(c, "the one that an earlier run applied", "")
		} else {
			f.report.note("raw streams of which an earlier version noted no hash, applied from their first byte")
		}
	}
	return f.newName(c, claimed)
}

// reused reports a name that now has other bytes. The contents of an archive
// that is an input change as it is added to: that is noted and no finding.
func (f *follower) reused(c *capture.Connection, which, cost string) {
	if _, err := archive.Detect(c.Files[0].Path); err == nil {
		f.report.note("archives that have changed since they were applied, applied again")
		return
	}
	f.report.add(wire.Finding{Kind: KindNameReused, Connection: c.ID, File: c.Files[0].Name,
		Message: "the stream does not begin with the bytes of " + which + " under this name: it is another connection, applied from its first byte",
		Cost:    cost})
	f.dirty = true
}

// newName gives a stream an id that no other one has or had: its name, or this
// with a part of its hash.
func (f *follower) newName(c *capture.Connection, claimed map[string]bool) error {
	taken := func(id string) bool {
		_, before := f.before[id]
		_, raw := f.raws[id]
		return before || raw || claimed[id] || f.conns[id] != nil
	}
	if !taken(c.ID) {
		return nil
	}
	sum := hex.EncodeToString((&connection{Connection: c}).hash())
	for n := 8; n <= len(sum); n += 8 {
		if id := c.ID + "~" + sum[:n]; !taken(id) {
			c.ID = id
			return nil
		}
	}
	// The very bytes under the very name: given twice, by two paths.
	for n := 2; ; n++ {
		if id := c.ID + "~" + sum[:8] + "~" + wire.Itoa(int64(n)); !taken(id) {
			c.ID = id
			return nil
		}
	}
}

// applied finds the stream among some that an earlier run applied and with whose
// bytes c begins: the longest of these, "" for none.
func (f *follower) applied(c *capture.Connection, claimed map[string]bool, among func(key string) bool) (key string, err error) {
	length := c.Length()
	var keys []string
	for k, p := range f.raws {
		if p.Length > 0 && p.Length <= length && !claimed[k] && f.conns[k] == nil && among(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.raws[a].Length, f.raws[b].Length), cmp.Compare(b, a))
	})
	if len(keys) == 0 {
		return "", nil
	}
	src := (&connection{Connection: c}).open()
	defer src.Close()
	h, at := sha256.New(), int64(0)
	for _, k := range keys {
		n, err := io.CopyN(h, src, f.raws[k].Length-at)
		if at += n; err != nil {
			// What can't be read is reported where the stream is read.
			break
		}
		// Of the same bytes under two names, the one with this name.
		if hex.EncodeToString(h.Sum(nil)) == f.raws[k].SHA256 && (key == "" || f.raws[key].Length < at || k == c.ID) {
			key = k
		}
	}
	return key, nil
}

// goesOn says that a stream still begins with what was applied of it. One that
// has grown is compared by its last bytes before that, any other that has
// changed by all of them.
func (r *rawStream) goesOn(c *capture.Connection) (bool, error) {
	file := c.Files[0]
	if file.Length == r.length && file.Modified().Equal(r.modified) || r.n == 0 {
		return true, nil
	}
	if file.Length < r.n {
		return false, nil
	}
	if _, err := archive.Detect(file.Path); err != nil && file.Length > r.length {
		last, err := sample(c, r.n)
		return last == r.last, err
	}
	src := (&connection{Connection: c}).open()
	defer src.Close()
	h := sha256.New()
	_, err := io.CopyN(h, src, r.n)
	return err == nil && bytes.Equal(h.Sum(nil), r.sum.Sum(nil)), nil
}

// sample is the hash of the last bytes before n.
func sample(c *capture.Connection, n int64) (sum [32]byte, err error) {
	src, _ := c.Runs()[0].OpenAt(max(0, n-sampleBytes))
	defer src.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, src, min(n, sampleBytes)); err != nil {
		return sum, fmt.Errorf("reading again what was applied: %w", err)
	}
	return [32]byte(h.Sum(nil)), nil
}

// advance takes in what was applied, up to the offset to.
func (r *rawStream) advance(c *capture.Connection, to int64) error {
	if to <= r.n {
		return nil
	}
	src, _ := c.Runs()[0].OpenAt(r.n)
	defer src.Close()
	if r.sum == nil {
		r.sum = sha256.New()
	}
	n, err := io.CopyN(r.sum, src, to-r.n)
	if r.n += n; err != nil {
		return fmt.Errorf("reading again what was applied: %w", err)
	}
	r.last, err = sample(c, to)
	return err
}

// prefix is what is committed of it.
func (r *rawStream) prefix() rawPrefix {
	return rawPrefix{Length: r.n, SHA256: hex.EncodeToString(r.sum.Sum(nil))}
}

// forget takes back what an earlier run found behind the end of what it applied
// of a stream: the stream may have grown, and is read again from there.
func (f *follower) forget(k *followed) {
	at := f.before[k.ID]
	f.report.withdraw(func(x wire.Finding) bool {
		return x.Connection == k.ID && x.Offset >= at && x.Kind != KindNameReused
	})
}
