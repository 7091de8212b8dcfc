// Command lines prints all that the viewer's decoder makes of files, as it does
// it natively: detection, rows, fields, findings, figures. lines.mjs prints the
// same with the WebAssembly build; the tests hold the two against each other,
// byte for byte.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"wiretape/replay/segment/bounds"
	"wiretape/wasm/detail"
	"wiretape/wasm/filter"
	"wiretape/wasm/index"
	"wiretape/wasm/packed"
	"wiretape/wire"
	"wiretape/wire/protocols"
)

func main() {
	w := bufio.NewWriter(os.Stdout)
	for _, name := range os.Args[1:] {
		b, err := os.ReadFile(name)
		if err == nil {
			fmt.Fprintf(w, "%q\n", filepath.Base(name))
			err = lines(w, b)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "lines:", err)
			os.Exit(1)
		}
	}
	if w.Flush() != nil {
		os.Exit(1)
	}
}

// codecs are the ones that the page has from its own libraries.
var codecs = bounds.Codecs{
	bounds.CodecGzip: func(dst, src []byte) error {
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return err
		}
		return fill(r, dst)
	},
	bounds.CodecZstd: func(dst, src []byte) error {
		r, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer r.Close()
		return fill(r, dst)
	},
}

// fill reads r to its end into dst, exactly.
func fill(r io.Reader, dst []byte) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return errors.New("the output has more bytes")
	}
	return nil
}

func drive(p *index.Pass, b []byte) error {
	for !p.Done() {
		pos, n := p.Need()
		p.Feed(b[pos:min(int64(len(b)), max(pos+n, pos+index.FeedLimit))])
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

func lines(w *bufio.Writer, b []byte) error {
	reg := protocols.All()
	proto, dir, _ := reg.Detect(b[:min(len(b), wire.DetectLimit)], len(b) <= wire.DetectLimit)
	if proto == nil {
		fmt.Fprintln(w, "unknown")
		return nil
	}
	fmt.Fprintln(w, proto.Name(), dir)
	ix := index.New(proto, dir, []index.Run{{End: int64(len(b))}})
	if err := drive(ix.First(), b); err != nil {
		return err
	}
	for _, part := range [][]byte{ix.AppendStatus(nil), ix.AppendFindings(nil, 0, index.MaxFindings), ix.AppendSources(nil), ix.AppendBins(nil)} {
		w.Write(append(part, '\n'))
	}
	e, wrong := filter.Parse("finding or size > 100 and not kind == 3 and source", index.Kinds(proto))
	if wrong != nil {
		return wrong
	}
	hits := new(index.Hits)
	if err := drive(ix.FilterPass(e, hits, 0), b); err != nil {
		return err
	}
	fmt.Fprintln(w, hits.Append(nil, 0, 1000))
	for n := int64(0); n < ix.Rows; n++ {
		if err := row(w, reg, ix, n, b); err != nil {
			return err
		}
	}
	return nil
}

// row prints a row and all of its fields.
func row(w *bufio.Writer, reg wire.Registry, ix *index.Index, n int64, b []byte) error {
	p := ix.UnitPass(n)
	if err := drive(p, b); err != nil {
		return err
	}
	list := p.Close()
	w.Write(append(list, '\n'))
	var rows []struct {
		Offset, Size int64
		Type         string
		Kind         uint32
	}
	if err := json.Unmarshal(list, &rows); err != nil || len(rows) != 1 {
		return fmt.Errorf("row %d: %d rows, %v", n, len(rows), err)
	}
	u := wire.Unit{Offset: rows[0].Offset, Size: rows[0].Size, Kind: rows[0].Kind}
	switch rows[0].Type {
	case "preamble":
		u.Type = wire.UnitPreamble
	case "frame":
		u.Type = wire.UnitFrame
	default:
		return nil
	}
	c := packed.AppendString(nil, ix.Protocol.Name())
	c = packed.AppendUint(c, uint64(ix.Direction))
	c = append(c, p.State...)
	c = packed.AppendUint(c, uint64(u.Type))
	c = packed.AppendInt(c, u.Offset)
	c = packed.AppendInt(c, u.Size)
	c = packed.AppendUint(c, uint64(u.Kind))
	o, err := detail.OpenPacked(reg, c, b[u.Offset:u.End()])
	if err != nil {
		return err
	}
	w.Write(append(o.AppendSummary(nil), '\n'))
	w.Write(append(o.AppendJSON(nil, nil, sha256.Sum256), '\n'))
	w.Write(append(o.AppendChildren(nil, nil, 0, 100), '\n'))
	w.Write(append(o.AppendCheck(nil, bounds.Options{Depth: bounds.DepthFull, DecodedLimit: 32 << 20, Codecs: &codecs}), '\n'))
	for _, off := range []int64{u.Offset, u.Offset + u.Size/2, u.End() - 1} {
		w.WriteString(strconv.FormatInt(off, 10))
		fmt.Fprintln(w, o.Locate(off))
	}
	return nil
}
