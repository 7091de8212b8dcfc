package segment

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"wiretape/replay/segment/bounds"
)

// codecs are those that bounds does not have itself. Each writes into the
// page's own buffer and can't make it larger.
var codecs = bounds.Codecs{
	bounds.CodecGzip:   gunzip,
	bounds.CodecBrotli: unbrotli,
	bounds.CodecZstd:   unzstd,
}

var (
	errMore = errors.New("the output has more bytes")
	errSize = errors.New("the output has another size")
)

// zstdDecoder is safe for concurrent use. A frame that decodes to more than the
// page's buffer holds is an error.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
})

func unzstd(dst, src []byte) error {
	d, err := zstdDecoder()
	if err != nil {
		return err
	}
	out, err := d.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) {
		return errSize
	}
	return nil
}

// exactly reads r to its end into dst, which it must fill.
func exactly(r io.Reader, dst []byte) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	var one [1]byte
	switch n, err := r.Read(one[:]); {
	case n > 0:
		return errMore
	case err == nil:
		_, err = r.Read(one[:])
		if err != io.EOF {
			return errMore
		}
	case err != io.EOF:
		return err
	}
	return nil
}

type gzipReader struct {
	src bytes.Reader
	gz  gzip.Reader
}

var gzips = sync.Pool{New: func() any { return new(gzipReader) }}

func gunzip(dst, src []byte) error {
	r := gzips.Get().(*gzipReader)
	r.src.Reset(src)
	if err := r.gz.Reset(&r.src); err != nil {
		return err
	}
	err := exactly(&r.gz, dst)
	r.src.Reset(nil)
	gzips.Put(r)
	return err
}

type brotliReader struct {
	src bytes.Reader
	br  *brotli.Reader
}

var brotlis = sync.Pool{New: func() any { return new(brotliReader) }}

func unbrotli(dst, src []byte) error {
	r := brotlis.Get().(*brotliReader)
	r.src.Reset(src)
	if r.br == nil {
		r.br = brotli.NewReader(&r.src)
	} else if err := r.br.Reset(&r.src); err != nil {
		return err
	}
	err := exactly(r.br, dst)
	if left := r.src.Len(); err == nil && left > 0 {
		err = errors.New("the input has bytes left over")
	}
	r.src.Reset(nil)
	brotlis.Put(r)
	return err
}
