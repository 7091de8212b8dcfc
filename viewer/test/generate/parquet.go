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
