package capture

// This file reads compressed capture files.

import (
	"io"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxZstdWindow bounds what a compressed file may make a reader hold.
	maxZstdWindow = 32 << 20
	// ZstdFrameSize is how many bytes of a file go into one zstd frame. Frames
	// are independent, so that a reader can start at any of them.
	ZstdFrameSize = 1 << 20
)

// zstdReader decompresses from src with bounded memory and no goroutine.
func zstdReader(src io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// Decompress reads the bytes of a compressed file with bounded memory.
func Decompress(src io.Reader) (io.ReadCloser, error) { return zstdReader(src) }

// seekTable reads the table at the end of seekable zstd; ok is false for other
// zstd. What it says is a claim.
func seekTable(src io.ReaderAt, size int64) (t seekable.SeekTable, ok bool) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		return t, false
	}
	defer d.Close()
	r, err := seekable.NewReader(io.NewSectionReader(src, 0, size), d)
	if err != nil {
		return t, false
	}
	defer r.Close()
	t, err = r.SeekTable()
	return t, err == nil
}

// sizesAgree says that the seek table gives the length that the sidecar does.
func (f *File) sizesAgree() bool {
	if f.expected < 0 {
		return false
	}
	src, _, err := f.source()
	if err != nil {
		return false
	}
	defer src.Close()
	t, ok := seekTable(src, f.size)
	return ok && t.Size() == uint64(f.expected)
}

// CompressTo writes what src holds as zstd that a reader can seek in: frames of
// ZstdFrameSize, each for itself, with a table behind them. Plain zstd reads it.
func CompressTo(dst io.Writer, src io.Reader) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	w, err := seekable.NewWriter(dst, enc)
	if err != nil {
		return err
	}
	buf := make([]byte, ZstdFrameSize)
	for {
		n, err := io.ReadFull(src, buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return w.Close()
		}
		if err != nil {
			return err
		}
	}
}
