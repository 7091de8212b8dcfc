package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"
	codecs "github.com/parquet-go/parquet-go/compress"

	"wiretape/wire/dendro"
)

// sample is a row of the Parquet files that segments writes.
type sample struct {
	Timestamp int64   `parquet:"timestamp"`
	Host      string  `parquet:"host,dict"`
	Load      float64 `parquet:"load"`
	Count     int32   `parquet:"count,optional"`
	Text      string  `parquet:"text"`
}

const sampleRows = 300

// segments writes a stream with a Segment for each codec that parquet-go writes,
// of the same rows, each in a stream of the codec's name.
func segments(name string) error {
	rows := make([]sample, sampleRows)
	for i := range rows {
		rows[i] = sample{Timestamp: start + int64(i)*1e9, Host: fmt.Sprintf("host-%02d", i%7), Load: math.Sin(float64(i)), Count: int32(i % 5),
			Text: strings.Repeat("the quick brown fox of the world and its information ", i%4) + fmt.Sprint(i)}
	}
	b := opening(1)
	for _, codec := range []codecs.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Brotli, &parquet.Zstd, &parquet.Lz4Raw} {
		var file bytes.Buffer
		w := parquet.NewGenericWriter[sample](&file, parquet.Compression(codec))
		if _, err := w.Write(rows); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		b = dendro.AppendSegment(b, &dendro.Segment{Source: 0, Stream: []byte(codec.CompressionCodec().String()), Rows: sampleRows,
			FirstTS: rows[0].Timestamp, LastTS: rows[sampleRows-1].Timestamp, Bytes: file.Bytes()})
	}
	return os.WriteFile(name, b, 0o644)
}

// deep is a row of the Parquet file with nested columns that nested writes.
type deep struct {
	Timestamp int64              `parquet:"timestamp"`
	List      []int64            `parquet:"list,list"`
	Map       map[string]float64 `parquet:"map"`
	Inner     *inner             `parquet:"inner,optional"`
}

type inner struct {
	Text  *string  `parquet:"text,optional"`
	Bytes [][]byte `parquet:"bytes,list"`
}

// nested writes a stream with two Segments: one of nested columns with nulls, one
// of ten thousand columns.
func nested(name string) error {
	b := opening(1)
	add := func(stream string, rows int, file []byte) {
		b = dendro.AppendSegment(b, &dendro.Segment{Source: 0, Stream: []byte(stream), Rows: uint64(rows),
			FirstTS: start, LastTS: start + int64(rows-1)*1e9, Bytes: file})
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[deep](&file, parquet.Compression(&parquet.Zstd))
	rows := make([]deep, 60)
	for i := range rows {
		rows[i].Timestamp = start + int64(i)*1e9
		rows[i].List = make([]int64, i%3)
		if i%2 == 0 {
			text := "<img src=x>"
			rows[i].Map = map[string]float64{"<b>x</b>": 1, "\u202ey": 2}
			rows[i].Inner = &inner{&text, [][]byte{{1, 254}, nil}}
		}
	}
	if _, err := w.Write(rows); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	add("nested", len(rows), file.Bytes())

	columns := parquet.Group{"timestamp": parquet.Leaf(parquet.Int64Type)}
	for i := range 10000 {
		columns[fmt.Sprintf("c%05d", i)] = parquet.Optional(parquet.Leaf(parquet.Int64Type))
	}
	var wide bytes.Buffer
	ww := parquet.NewGenericWriter[any](&wide, parquet.NewSchema("wide", columns))
	for i := range 5 {
		if _, err := ww.Write([]any{map[string]any{"timestamp": start + int64(i)*1e9}}); err != nil {
			return err
		}
	}
	if err := ww.Close(); err != nil {
		return err
	}
	add("wide", 5, wide.Bytes())
	return os.WriteFile(name, b, 0o644)
}
