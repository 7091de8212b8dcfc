package replay

// This file lets finished archives be inputs beside captures: each is read as
// the stream that a publisher of it would send, so one set of rules merges both.

import (
	"errors"
	"path/filepath"

	"wiretape/capture"
	"wiretape/internal/vfs"
	"wiretape/replay/archive"
	"wiretape/wire"
)

// KindDocuments: an archive among the inputs holds documents that are not of
// its contents and are not taken over.
const KindDocuments = "documents-not-copied"

// Inputs is a set of captures, streams and archives.
type Inputs struct {
	*capture.Set
	open []*archive.Archive
}

// OpenInputs is [capture.OpenInputs] where a path may also be an archive. Close
// it when nothing of the set is read any more.
func OpenInputs(paths []string, opt capture.InputOptions) (in *Inputs, err error) {
	in = &Inputs{}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	over := &withArchives{FS: opt.FS, streams: map[string]*archive.Stream{}}
	if over.FS == nil {
		over.FS = vfs.OS
	}
	var found []wire.Finding
	for _, p := range paths {
		if _, err := archive.Detect(p); err != nil {
			continue // what it is then, capture.OpenInputs says
		}
		a, err := archive.Open(p)
		if err != nil {
			return in, err
		}
		in.open = append(in.open, a)
		if over.streams[filepath.Clean(p)], err = archive.NewStream(a); err != nil {
			return in, err
		}
		found = append(found, over.streams[filepath.Clean(p)].Findings()...)
		documents, err := a.Documents()
		if err != nil {
			return in, err
		}
		delete(documents, DocumentKind)
		n := int64(0)
		for _, k := range documents {
			n += k
		}
		if n > 0 {
			found = append(found, wire.Finding{Kind: KindDocuments, File: wire.SafeText(filepath.Base(p), 200), Got: wire.Count(n, "document"),
				Message: wire.Count(n, "document") + " of the archive not taken over: no part of what is merged", Cost: "they are in that archive alone"})
		}
	}
	opt.FS = over
	in.Set, err = capture.OpenInputs(paths, opt)
	if err == nil {
		in.Set.Findings = append(in.Set.Findings, found...)
	}
	return in, err
}

// Close closes the archives. It gives an archive.ErrChanged when one was written
// to while it was read.
func (in *Inputs) Close() error {
	var errs []error
	for _, a := range in.open {
		errs = append(errs, a.Close())
	}
	in.open = nil
	return errors.Join(errs...)
}

// withArchives is a file system in which archives are streams.
type withArchives struct {
	vfs.FS
	streams map[string]*archive.Stream
}

// Stat describes an archive as the file that its stream would be.
func (fs *withArchives) Stat(name string) (vfs.Info, error) {
	info, err := fs.FS.Stat(name)
	if s := fs.streams[filepath.Clean(name)]; s != nil && err == nil {
		info.Size = s.Size()
	}
	return info, err
}

// Open opens an archive as its stream.
func (fs *withArchives) Open(name string) (vfs.File, error) {
	if s := fs.streams[filepath.Clean(name)]; s != nil {
		return streamFile{s}, nil
	}
	return fs.FS.Open(name)
}

// streamFile is a stream to read.
type streamFile struct{ s *archive.Stream }

func (f streamFile) ReadAt(p []byte, off int64) (int, error) { return f.s.ReadAt(p, off) }
func (f streamFile) Size() (int64, error)                    { return f.s.Size(), nil }
func (f streamFile) Close() error                            { f.s.Rest(); return nil }
func (f streamFile) Write([]byte) (int, error)               { return 0, errors.ErrUnsupported }
func (f streamFile) WriteAt([]byte, int64) (int, error)      { return 0, errors.ErrUnsupported }
func (f streamFile) Truncate(int64) error                    { return errors.ErrUnsupported }
func (f streamFile) Sync() error                             { return errors.ErrUnsupported }
