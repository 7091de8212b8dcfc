package ship

// This file holds a capture file against what the destination has of it, and
// copies what is missing.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"wiretape/capture"
	"wiretape/wire"
)

const (
	sumsEnding       = ".sha256"
	compressedEnding = ".zst"
)

// piece is one file on its way: what it is called here and there, and what is
// known of its bytes.
type piece struct {
	from, to string
	// want is the SHA-256 of the bytes as they are recorded, or of a side file;
	// "" when not known. lies is that of the file as it lies here, by its sums.
	want, lies string
	compress   bool
	// expect is what the sums at the destination say of what is stored, "" when
	// they do not bind.
	expect string
	// there says that the destination has it already, other that it has
	// something else of that name.
	there, other bool
	// stored and plain are the SHA-256 of what is stored there and of the
	// recorded bytes, size how many bytes are stored.
	stored, plain string
	size          int64
}

// occupiedError says that the destination has another file of a name.
type occupiedError struct{ name string }

func (e *occupiedError) Error() string { return e.name + ": " + fs.ErrExist.Error() }

// compared is what the destination has of a file.
type compared struct {
	pieces []piece // the bytes last
	// kept are the names of side files that only the destination has, as its
	// sums say.
	kept []string
	// sums are those of the destination, nil when it has none; otherSums says
	// that they can't be read as sums.
	sums      map[string]string
	otherSums bool
}

func (c *compared) data() *piece { return &c.pieces[len(c.pieces)-1] }

// text is what sha256sum -c reads, the bytes first.
func (c *compared) text() []byte {
	last := len(c.pieces) - 1
	var text []byte
	for _, p := range append([]piece{c.pieces[last]}, c.pieces[:last]...) {
		text = append(text, p.stored+"  "+p.to+"\n"...)
	}
	for _, name := range c.kept {
		text = append(text, c.sums[name]+"  "+name+"\n"...)
	}
	return text
}

// summed says that the sums there list just the pieces, and nothing else of
// those that are there.
func (c *compared) summed() bool {
	if len(c.sums) != len(c.pieces)+len(c.kept) {
		return false
	}
	for k := range c.pieces {
		p := &c.pieces[k]
		if sum := c.sums[p.to]; sum == "" || p.there && sum != p.stored {
			return false
		}
	}
	return true
}

// wrong is a name that the destination does not have as it should.
type wrong struct {
	name string
	// other says that it has something else.
	other bool
}

func (c *compared) wrong(stem string) (all []wrong) {
	for k := range c.pieces {
		if p := &c.pieces[k]; !p.there {
			all = append(all, wrong{p.to, p.other})
		}
	}
	if !c.summed() {
		all = append(all, wrong{stem + sumsEnding, c.sums != nil || c.otherSums})
	}
	return all
}

// compare looks at what the destination has of a file.
func (s *Shipper) compare(ctx context.Context, src *proved) (*compared, error) {
	c := &compared{}
	var err error
	if c.sums, err = s.sumsThere(ctx, src.item); errors.Is(err, errNoSums) {
		c.otherSums, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	for _, side := range src.sides {
		c.pieces = append(c.pieces, piece{from: side, to: side, want: src.hashes[side], lies: src.hashes[side]})
	}
	name, err := s.formThere(ctx, src.item, c.sums)
	if err != nil {
		return nil, err
	}
	c.pieces = append(c.pieces, piece{from: src.bytes, to: name, want: src.want, lies: src.sums[src.bytes],
		compress: strings.HasSuffix(name, compressedEnding) && src.form != capture.FormCompressed})
	for k := range c.pieces {
		if err := s.look(ctx, &c.pieces[k]); err != nil {
			return nil, err
		}
	}
	for _, ending := range []string{".idx", ".json"} {
		name := src.stem + ending
		if c.sums[name] == "" || src.hashes[name] != "" {
			continue
		}
		// Lost here since: there it may be whole.
		p := piece{from: name, to: name, want: c.sums[name]}
		if err := s.look(ctx, &p); err != nil {
			return nil, err
		}
		if p.there {
			c.kept = append(c.kept, name)
		}
	}
	return c, nil
}

// maxSums is how long a file's sums may be.
const maxSums = 64 << 10

var errNoSums = errors.New("no SHA-256 sums")

// parseSums reads sums: hashes by name.
func parseSums(r io.Reader) (map[string]string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSums+1))
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		hex, file, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(text) > maxSums || len(hex) != 2*sha256.Size {
			return nil, errNoSums
		}
		sums[file] = hex
	}
	if len(sums) == 0 {
		return nil, errNoSums
	}
	return sums, nil
}

// sumsThere reads the sums that the destination has of a file.
func (s *Shipper) sumsThere(ctx context.Context, i item) (map[string]string, error) {
	f, err := s.dest.Open(ctx, i.stem+sumsEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseSums(f)
}

// formThere is the name that the bytes get at the destination. What lies there
// in the other form already, or is to lie there by its sums, stays in it.
func (s *Shipper) formThere(ctx context.Context, i item, sums map[string]string) (string, error) {
	name, other := i.mark(), i.mark()+compressedEnding
	if s.opt.Zstd || i.form == capture.FormCompressed {
		name, other = other, name
	}
	if sums[name] != "" {
		return name, nil
	}
	switch there, err := s.exists(ctx, other); {
	case err != nil:
		return name, err
	case there:
		return other, nil
	}
	if i.form != capture.FormCompressed && sums[other] != "" {
		name = other
	}
	return name, nil
}

// look holds a piece against what the destination has of that name: from a pass
// that was broken off, from another shipper, or another file. Only the bytes
// tell.
func (s *Shipper) look(ctx context.Context, p *piece) error {
	there, err := s.dest.Open(ctx, p.to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	stored, plain, n, therr := digest(there, strings.HasSuffix(p.to, compressedEnding))
	there.Close()
	want := p.want
	if want == "" {
		var err error
		if want, err = s.plain(p.from); err != nil {
			return err
		}
	}
	if therr != nil || plain != want {
		p.other = true
		return nil
	}
	p.there, p.stored, p.plain, p.size = true, stored, plain, n
	return nil
}

// ship copies one file with its side files, and has the journal say so. What is
// there already, in either form, is held against what is here before anything
// is written: of a file that can't be whole there nothing is.
func (s *Shipper) ship(ctx context.Context, i item, rep *Report) error {
	src, err := s.prove(i, rep)
	if src == nil {
		return err
	}
	c, err := s.compare(ctx, src)
	var damaged *damagedError
	if errors.As(err, &damaged) {
		s.damaged(rep, src, damaged)
		return nil
	}
	if err != nil {
		return err
	}
	return s.send(ctx, src, c, rep)
}

// send writes what the destination lacks of a file.
func (s *Shipper) send(ctx context.Context, src *proved, c *compared, rep *Report) error {
	before, shipped := s.mem.at(s.here.Mark)[src.mark()]
	// What was shipped and is bad now may be mended; also where recovery made
	// the side files anew before the journal could say that it was shipped.
	mend := shipped || s.mem.remade[src.mark()] && c.data().there
	wrote, err := s.write(ctx, src, c, shipped, mend)
	var taken *occupiedError
	var damaged *damagedError
	data := c.data()
	switch {
	case errors.As(err, &damaged):
		s.damaged(rep, src, damaged)
		return nil
	case errors.As(err, &taken):
		s.find(rep, wire.Finding{Kind: KindOccupied, Connection: capture.ParseName(src.bytes).Connection, File: src.bytes,
			Message: "the destination has another file named " + wire.SafeText(taken.name, 200) + ": it is left as it is", Cost: "the file is not shipped"})
		return nil
	case err != nil:
		return err
	}
	// What was written may have gone below a mount that was away for a while.
	if err := s.still(ctx); err != nil {
		return err
	}
	for _, name := range append([]string{src.stem + sumsEnding}, c.names()...) {
		there, err := s.exists(ctx, name)
		if err == nil && !there {
			err = fmt.Errorf("%s is not at the destination any more", name)
		}
		if err != nil {
			return err
		}
	}
	if err := s.arrive(ctx, src, data.plain); err != nil {
		return err
	}
	if err := s.still(ctx); err != nil {
		return err
	}
	if err := s.note(capture.Entry{Event: capture.EventShip, File: src.mark(), Bytes: src.size, SHA256: data.plain}); err != nil {
		return err
	}
	if !wrote {
		rep.already(src.item)
		return nil
	}
	rep.counted[src.mark()] = true
	rep.Shipped++
	rep.Bytes += src.size
	rep.Stored += data.size
	if shipped && !before.good {
		rep.Mended++
	}
	s.log.Info("shipped", "file", src.bytes, "dest", s.dest.String())
	return nil
}

func (c *compared) names() []string {
	var names []string
	for k := range c.pieces {
		names = append(names, c.pieces[k].to)
	}
	return names
}

// write puts the pieces that are not there, and the sums. Of what was shipped
// before, a bad copy of the bytes is set aside; mend lets side files be replaced.
func (s *Shipper) write(ctx context.Context, src *proved, c *compared, shipped, mend bool) (wrote bool, err error) {
	for k := range c.pieces {
		p := &c.pieces[k]
		if p.other && !mend || p.other && p == c.data() && !shipped {
			return false, &occupiedError{p.to}
		}
	}
	summed := c.summed()
	if (c.sums != nil || c.otherSums) && !summed && !mend {
		return false, &occupiedError{src.stem + sumsEnding}
	}
	for k := range c.pieces {
		p := &c.pieces[k]
		if p.there {
			continue
		}
		over := OverNothing
		if p.other && p == c.data() {
			over = OverAside
		} else if p.other {
			over = OverIt
		}
		if !mend {
			p.expect = c.sums[p.to]
		}
		if err := s.still(ctx); err != nil {
			return wrote, err
		}
		wrote = true
		if err := s.put(ctx, src.stem, p, over); err != nil {
			return wrote, err
		}
		summed = summed && c.sums[p.to] == p.stored
	}
	if summed {
		return wrote, nil
	}
	if err := s.still(ctx); err != nil {
		return wrote, err
	}
	return true, s.putSums(ctx, src.stem, c)
}

// put copies a piece to the destination and fills in what is stored there.
func (s *Shipper) put(ctx context.Context, stem string, p *piece, over Over) error {
	zst := strings.HasSuffix(p.to, compressedEnding)
	out := sha256.New()
	var count counter
	err := s.dest.Put(ctx, p.to, over, func(w io.Writer) error {
		src, err := s.source(p.from)
		if err != nil {
			return err
		}
		defer src.Close()
		w = io.MultiWriter(w, out, &count)
		in := sha256.New()
		from := io.TeeReader(src, in)
		switch {
		case p.compress:
			err = capture.CompressTo(w, from)
			p.plain = sumOf(in)
		case zst:
			// What is compressed already is held against its sidecar by
			// taking it apart once more.
			if _, err = io.Copy(w, from); err == nil {
				p.plain, err = s.plain(p.from)
			}
		case strings.HasSuffix(p.from, compressedEnding):
			err = decompress(w, from, p.from)
			p.plain = sumOf(out)
		default:
			_, err = io.Copy(w, from)
			p.plain = sumOf(out)
		}
		switch lies := sumOf(in); {
		case err != nil:
			return err
		case p.want != "" && p.plain != p.want:
			return &damagedError{file: p.from, want: p.want, got: p.plain}
		case p.lies != "" && lies != p.lies:
			return &damagedError{file: p.from, want: p.lies, got: lies, by: stem + sumsEnding}
		case p.expect != "" && p.expect != sumOf(out):
			return &occupiedError{stem + sumsEnding}
		}
		return nil
	}, func(r io.Reader) error {
		gotStored, gotPlain, n, err := digest(r, zst)
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if gotStored != sumOf(out) || gotPlain != p.plain || n != int64(count) {
			return errNotAsWritten
		}
		return nil
	})
	if errors.Is(err, fs.ErrExist) {
		return &occupiedError{p.to}
	}
	p.stored, p.size = sumOf(out), int64(count)
	return err
}

// decompress writes what a file here holds, which is damaged when that fails.
func decompress(w io.Writer, from io.Reader, file string) error {
	z, err := capture.Decompress(from)
	if err != nil {
		return &damagedError{file: file, got: wire.SafeText(err.Error(), 300)}
	}
	defer z.Close()
	if _, err := io.Copy(w, damagedReader{z, file}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, from)
	return err
}

// digest reads r whole: the hash of its bytes, that of what they decompress to,
// and how many they are.
func digest(r io.Reader, zst bool) (stored, plain string, size int64, err error) {
	h := sha256.New()
	var n counter
	in := io.TeeReader(r, io.MultiWriter(h, &n))
	if !zst {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return "", "", 0, err
		}
		return sumOf(h), sumOf(h), int64(n), nil
	}
	z, err := capture.Decompress(in)
	if err != nil {
		return "", "", 0, err
	}
	defer z.Close()
	p := sha256.New()
	if _, err := io.Copy(p, z); err != nil {
		return "", "", 0, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return "", "", 0, err
	}
	return sumOf(h), sumOf(p), int64(n), nil
}

// putSums writes the sums of what is there now.
func (s *Shipper) putSums(ctx context.Context, stem string, c *compared) error {
	text, name, over := c.text(), stem+sumsEnding, OverNothing
	if c.sums != nil || c.otherSums {
		over = OverIt
	}
	err := s.dest.Put(ctx, name, over, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}, func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, text) {
			err = errNotAsWritten
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return &occupiedError{name}
	}
	return err
}
