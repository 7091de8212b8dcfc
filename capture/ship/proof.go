package ship

// This file holds what lies here against what is known of it, so that damage is
// not shipped with sums that fit it.

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// proved is a file here with what is known of it.
type proved struct {
	item
	// sidecar is nil when there is none that can be read.
	sidecar *sidecar.Sidecar
	start   int64
	// want is the SHA-256 of the recorded bytes, "" when nothing tells.
	want string
	// sums are those that lie beside the file, nil without; hashes those of the
	// side files as they lie.
	sums, hashes map[string]string
}

// damagedError says that a file here is not what is known of it.
type damagedError struct {
	file      string
	want, got string
	// by is the file beside it that says otherwise, "" for its sidecar.
	by string
}

func (e *damagedError) Error() string { return e.file + " is damaged: " + e.got }

// damagedReader takes what can't be read for damage of the file.
type damagedReader struct {
	io.Reader
	file string
}

func (r damagedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = &damagedError{file: r.file, got: wire.SafeText(err.Error(), 300)}
	}
	return n, err
}

// source opens a file of the directory.
func (s *Shipper) source(name string) (io.ReadCloser, error) {
	f, err := s.fs.Open(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EIO) {
		// It is this file's, and no reason to stop at it.
		err = &damagedError{file: name, got: wire.SafeText(err.Error(), 300)}
	}
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	return readCloser{damagedReader{io.NewSectionReader(f, 0, n), name}, f}, nil
}

// plain is the SHA-256 of what a file of the directory holds, decompressed.
func (s *Shipper) plain(name string) (string, error) {
	zst := strings.HasSuffix(name, compressedEnding)
	f, err := s.source(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, sum, _, err := digest(f, zst)
	if err != nil && zst {
		err = &damagedError{file: name, got: wire.SafeText(err.Error(), 300)}
	}
	return sum, err
}

// prove reads what lies beside a file: sums, sidecar, index. It is nil, and the
// finding said, when one contradicts another.
func (s *Shipper) prove(i item, rep *Report) (*proved, error) {
	src := &proved{item: i, hashes: map[string]string{}}
	bad := false
	for _, look := range []func(*proved, *Report) error{s.readSums, s.proveSides, s.readSidecar, s.proveBytes} {
		err := look(src, rep)
		for _, err := range each(err) {
			var damaged *damagedError
			if !errors.As(err, &damaged) {
				return nil, err
			}
			s.damaged(rep, src, damaged)
			bad = true
		}
		if bad {
			return nil, nil
		}
	}
	return src, nil
}

// each takes errors.Join apart.
func each(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// proveSides holds the side files against the sums.
func (s *Shipper) proveSides(src *proved, rep *Report) error {
	var errs []error
	for _, side := range src.sides {
		f, err := s.source(side)
		if err != nil {
			return err
		}
		hash, _, _, err := digest(f, false)
		f.Close()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if want, listed := src.sums[side]; src.sums != nil && want != hash {
			if !listed {
				want = "no sum"
			}
			errs = append(errs, &damagedError{side, want, hash, src.stem + sumsEnding})
		}
		src.hashes[side] = hash
	}
	return errors.Join(errs...)
}

// proveBytes holds against each other what was written down of the bytes, and
// says what is missing beside them.
func (s *Shipper) proveBytes(src *proved, rep *Report) error {
	index := src.stem + ".idx"
	if src.sums[index] != "" && src.hashes[index] == "" {
		s.find(rep, wire.Finding{Kind: KindNoIndex, Connection: capture.ParseName(src.bytes).Connection, File: src.bytes, Offset: src.start,
			Message: "the arrival index that the sums list is not there: the file is shipped without", Cost: "when its bytes came"})
	}
	// What was written down of the bytes at different times is the same.
	for _, known := range []string{s.mem.sealed[src.mark()], s.mem.at(s.here.Mark)[src.mark()].sha} {
		if src.want != "" && known != "" && src.want != known {
			return &damagedError{src.bytes, known, src.want, capture.JournalName}
		}
		if src.want == "" {
			src.want = known
		}
	}
	if src.form == capture.FormBytes && src.want == "" {
		src.want = src.sums[src.bytes]
	}
	return nil
}

// readSums takes in what lies beside the file for sha256sum -c.
func (s *Shipper) readSums(src *proved, _ *Report) error {
	name := src.stem + sumsEnding
	f, err := s.source(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if src.sums, err = parseSums(f); errors.Is(err, errNoSums) {
		return &damagedError{file: name, got: "no SHA-256 sums"}
	}
	return err
}

// readSidecar takes in what describes the file. One that can't be read, which no
// sums hold either, is not shipped.
func (s *Shipper) readSidecar(src *proved, rep *Report) error {
	name := src.stem + ".json"
	text, err := vfs.ReadFile(s.fs, filepath.Join(s.dir, name), sidecar.MaxSize)
	n := capture.ParseName(src.bytes)
	if err == nil {
		if sc, perr := sidecar.Parse(text); perr == nil && !sc.Open && sc.Connection == n.Connection && sc.Number == n.Number {
			src.sidecar, src.want, src.start = sc, sc.SHA256, sc.Start
			return nil
		}
	}
	message := "no sidecar describes the file: it is shipped as it is"
	if src.hashes[name] != "" && src.sums == nil {
		message = "the sidecar can't be read, and is not shipped; the file is, as it is"
		sides := src.sides
		src.sides = nil
		for _, side := range sides {
			if side != name {
				src.sides = append(src.sides, side)
			}
		}
	}
	s.find(rep, wire.Finding{Kind: KindNoSidecar, Connection: n.Connection, File: src.bytes, Message: message})
	return nil
}

// damaged reports a file that is not shipped for what is wrong with it here.
func (s *Shipper) damaged(rep *Report, src *proved, d *damagedError) {
	f := wire.Finding{Kind: KindDamagedSource, Connection: capture.ParseName(src.bytes).Connection, File: d.file, Offset: src.start,
		Want: d.want, Got: d.got, Message: "the bytes are not those that were recorded: the file is not shipped", Cost: "the file is only here"}
	switch {
	case strings.HasSuffix(d.file, sumsEnding):
		f.Message = "the sums can't be read as such: the file that they belong to is not shipped (removed, they hold up nothing)"
	case d.by == capture.JournalName:
		f.Message = "the sidecar describes other bytes than " + d.by + " says were sealed: the file is not shipped"
	case d.by != "":
		f.Message = "it is not what " + d.by + " says: one of them is damaged, and the file that they belong to is not shipped " +
			"(without a damaged side file it is; capture recover makes a missing sidecar anew)"
	}
	s.find(rep, f)
}
