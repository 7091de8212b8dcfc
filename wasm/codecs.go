//go:build js && wasm

package main

import (
	"errors"
	"unsafe"

	"wiretape/replay/segment/bounds"
)

// inflate is the page's own decoder of a codec that bounds does not have: the
// one that shows the rows. It fills dst exactly and gives 0, or anything else.
//
//go:wasmimport wiretape inflate
func inflate(codec uint32, src unsafe.Pointer, srcLen uint32, dst unsafe.Pointer, dstLen uint32) int32

var errInflate = errors.New("it does not decode to its declared size")

func inflater(codec uint32) bounds.Decompress {
	return func(dst, src []byte) error {
		if inflate(codec, unsafe.Pointer(unsafe.SliceData(src)), uint32(len(src)),
			unsafe.Pointer(unsafe.SliceData(dst)), uint32(len(dst))) != 0 {
			return errInflate
		}
		return nil
	}
}

var codecs = bounds.Codecs{
	bounds.CodecGzip:   inflater(bounds.CodecGzip),
	bounds.CodecBrotli: inflater(bounds.CodecBrotli),
	bounds.CodecZstd:   inflater(bounds.CodecZstd),
}

// decodedLimit is how much of a segment may be held decoded.
const decodedLimit = 32 << 20

//go:wasmexport segment_check
func segmentCheck() int32 {
	return guard(func() int32 {
		out = opened.AppendCheck(out[:0], bounds.Options{Depth: bounds.DepthFull, DecodedLimit: decodedLimit, Codecs: &codecs})
		return done()
	})
}
