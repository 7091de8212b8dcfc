// Command generate makes the captures that the viewer's tests open:
//
//	generate mixed BYTES FILE    frames as the field sends them, segments of 2 MiB
//	generate small FRAMES FILE   frames as a quiet source sends them, 213 bytes on average
//	generate tiny FRAMES FILE    the smallest frames alone, 25 to 62 bytes
//	generate rows COUNT FILE     one Rows frame of COUNT rows
//	generate alike N FILE        frames that differ where it is easy to miss, labels of N characters
//	generate hostile FILE        labels, streams and payloads that attack a page
//	generate folder STREAM DIR   STREAM recorded into a capture directory
//	generate connections STREAM STREAM… DIR   many connections in a capture directory
//	generate segments FILE       a Segment for each codec of Parquet
//	generate segment PARQUET OUT a Segment of the Parquet file PARQUET
//	generate sidecars LIST OUT   for each line of LIST, base64, 1 in OUT where it is a sidecar and 0 where it is none
//	generate zst FILE OUT        FILE in zstd's seekable form
//	generate zst1 FILE OUT       FILE as one frame of zstd
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire/dendro"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "hostile" {
		return os.WriteFile(args[1], hostile(), 0o644)
	}
	if len(args) == 2 && args[0] == "segments" {
		return segments(args[1])
	}
	if len(args) == 2 && args[0] == "nested" {
		return nested(args[1])
	}
	if len(args) >= 4 && args[0] == "connections" {
		return connections(args[len(args)-1], args[1:len(args)-1]...)
	}
	if len(args) != 3 {
		return fmt.Errorf("wrong arguments %q", args)
	}
	switch args[0] {
	case "folder":
		return folder(args[1], args[2])
	case "segment":
		return segment(args[1], args[2])
	case "sidecars":
		return sidecars(args[1], args[2])
	case "zst":
		return compress(args[1], args[2], capture.CompressTo)
	case "zst1":
		return compress(args[1], args[2], oneFrame)
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(args[2])
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 4<<20)
	switch args[0] {
	case "mixed":
		mixed(w, n)
	case "small":
		small(w, n)
	case "tiny":
		tiny(w, n)
	case "alike":
		w.Write(alike(int(n)))
	case "rows":
		w.Write(opening(1))
		w.Write(rowsFrame(0, 0, int(n), 40))
	default:
		return fmt.Errorf("no command %q", args[0])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

const start = 1_700_000_000_000_000_000

// opening is the preamble and the handshakes of n sources.
func opening(n int) []byte {
	b := dendro.AppendPreamble(nil)
	for i := range n {
		uuid := fmt.Sprintf("3f2b1c4d-0000-4000-8000-%012d", i)
		b = dendro.AppendHandshake(b, &dendro.Handshake{Source: uint32(i), HasUUID: true, UUID: []byte(uuid),
			Labels:   dendro.NewMap(map[string]string{"host": fmt.Sprintf("host-%02d", i), "source": "generated"}),
			Metadata: dendro.NewMap(map[string]string{"encoder": "gen-1"}), ClockAnchorWallNs: start})
	}
	return b
}

// alike are frames that differ where it is easy to miss: SourceUpdates in the
// last of n characters of a label, and in the first of two labels of one key; then
// Rows whose times are 1.000000001 s, 999.999 µs and n ns apart.
func alike(n int) []byte {
	b := opening(1)
	update := func(labels map[string]string) []byte {
		return dendro.AppendSourceUpdate(nil, &dendro.SourceUpdate{Labels: dendro.NewMap(labels), Metadata: dendro.NewMap(nil)})
	}
	long := strings.Repeat("x", n-1)
	for _, last := range []string{"a", "b"} {
		b = append(b, update(map[string]string{"host": long + last})...)
	}
	for _, first := range []string{"1", "9"} {
		twice := update(map[string]string{"ka": first, "kb": "2"})
		b = append(b, bytes.ReplaceAll(bytes.ReplaceAll(twice, []byte("ka"), []byte("kk")), []byte("kb"), []byte("kk"))...)
	}
	b = append(b, update(map[string]string{"host": "\ufeffBOM"})...)
	var rows []dendro.Row
	at := int64(start)
	for _, gap := range []int64{0, 1_000_000_001, 999_999, int64(n)} {
		at += gap
		rows = append(rows, dendro.Row{Stream: []byte("cpu"), TS: at, Row: []byte{1}})
	}
	return dendro.AppendRowsOf(b, 0, 0, dendro.State{}, rows)
}

func rowsFrame(source uint32, seq uint64, n, size int) []byte {
	return dendro.AppendRows(nil, rowsOf(source, seq, n, size))
}

func rowsOf(source uint32, seq uint64, n, size int) *dendro.Rows {
	rows := make([]dendro.Row, n)
	payload := make([]byte, size)
	for i := range rows {
		binary.LittleEndian.PutUint64(payload, seq*1000+uint64(i))
		rows[i] = dendro.Row{Stream: []byte("cpu"), TS: start + int64(seq)*1e9 + int64(i), Row: append([]byte(nil), payload...)}
	}
	r := dendro.NewRows(source, seq, dendro.State{}, rows)
	return &r
}

// mixed writes until it has n bytes: per source and second a Rows frame of a
// few kilobytes, now and then a clock observation and a segment of 2 MiB.
func mixed(w *bufio.Writer, n int64) {
	const sources = 8
	b := opening(sources)
	w.Write(b)
	done := int64(len(b))
	segment := make([]byte, 2<<20)
	x := uint64(88172645463325252)
	for i := 0; i < len(segment); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(segment[i:], x)
	}
	for seq := uint64(1); done < n; seq++ {
		for s := uint32(0); s < sources && done < n; s++ {
			f := rowsFrame(s, seq, 20+int(seq%30), 120)
			if seq%16 == 0 {
				f = dendro.AppendClockOffset(f, &dendro.ClockOffset{Source: s, TS: start + int64(seq)*1e9, OffsetNs: int64(seq % 977)})
			}
			if (seq+uint64(s)*8)%64 == 0 {
				f = dendro.AppendSegment(f, &dendro.Segment{Source: s, Stream: []byte("net"), Rows: 60,
					FirstTS: start + int64(seq)*1e9, LastTS: start + int64(seq+59)*1e9, Bytes: segment})
			}
			w.Write(f)
			done += int64(len(f))
		}
	}
}

// small writes n frames as they are in the shortest real recordings: an interval
// of one to four rows, now and then none, and a clock observation.
func small(w *bufio.Writer, n int64) {
	const sources = 4
	w.Write(opening(sources))
	var f []byte
	for i := int64(0); i < n; i++ {
		s, seq := uint32(i%sources), uint64(i/sources)
		switch k := seq % 16; k {
		case 0:
			f = dendro.AppendClockOffset(f[:0], &dendro.ClockOffset{Source: s, TS: start + int64(seq)*1e9, OffsetNs: i % 1000})
		default:
			n := 0
			if k > 2 {
				n = 1 + int(k%4)
			}
			f = dendro.AppendRows(f[:0], rowsOf(s, seq-seq/16-1, n, 60))
		}
		w.Write(f)
	}
}

// tiny writes n frames of 25 to 62 bytes from 4 sources.
func tiny(w *bufio.Writer, n int64) {
	w.Write(opening(4))
	var f []byte
	row := []dendro.Row{{Stream: []byte("a"), Row: make([]byte, 8)}}
	for i := int64(0); i < n; i++ {
		s := uint32(i % 4)
		f = f[:0]
		switch i / 4 % 3 {
		case 0:
			f = dendro.AppendClockOffset(f, &dendro.ClockOffset{Source: s, TS: start + i*1000, OffsetNs: i % 1000})
		default:
			row[0].TS = start + i*1000
			r := dendro.NewRows(s, uint64(i/12*2)+uint64(i/4%3), dendro.State{}, row)
			f = dendro.AppendRows(f, &r)
		}
		w.Write(f)
	}
}

// hostile is a stream whose every text tries something.
func hostile() []byte {
	markup := `<img src=x onerror="document.title='pwned'"><script>document.title='pwned'</script>`
	bidi := "safe\u202egnp.exe\u2066\u0007\u001b[31mred\u200b\ufeff"
	b := dendro.AppendPreamble(nil)
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 0, HasUUID: true, UUID: []byte(markup),
		Labels: dendro.MapOf([2]string{markup, markup}, [2]string{"host", markup}, [2]string{bidi, bidi}), ClockAnchorWallNs: -1})
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 1, HasUUID: true, UUID: []byte("x"),
		Labels: dendro.MapOf([2]string{"host", strings.Repeat("A", 1_000_000)}, [2]string{strings.Repeat("k", 1_000_000), bidi})})
	b = dendro.AppendHandshake(b, &dendro.Handshake{Source: 2, Labels: dendro.MapOf([2]string{"host", bidi})})
	for _, stream := range []string{markup, bidi, "javascript:alert(1)", "__proto__", "constructor", strings.Repeat("\u202e", 1000), `"; alert(1); "`, "%s%n", "../../etc/passwd", ""} {
		for s := range uint32(3) {
			b = dendro.AppendIndex(b, &dendro.Index{Source: s, Stream: []byte(stream), TS: 1<<63 - 1, Blob: []byte(markup)})
			r := dendro.NewRows(s, uint64(len(stream)), dendro.State{}, []dendro.Row{{Stream: []byte(stream), TS: -1 << 63, Row: []byte(markup)}})
			b = dendro.AppendRows(b, &r)
			b = dendro.AppendSegment(b, &dendro.Segment{Source: s, Stream: []byte(stream), Rows: 1, FirstTS: 1, LastTS: 2, Bytes: []byte("PAR1" + markup + "PAR1")})
		}
	}
	b = dendro.AppendIndex(b, &dendro.Index{Source: 4_000_000_000, Stream: []byte(markup)})
	// A frame that is malformed, and one of an unknown kind.
	b = append(b, 6, 0, 0, 0, dendro.KindRows, 1, 2, 3, 4, 5)
	b = append(b, 9, 0, 0, 0, 77, '<', 'b', '>', 'x', '<', '/', 'b', '>')
	// A length that lies.
	return append(b, 0xff, 0xff, 0xff, 0x03, dendro.KindSegment, 0, 0)
}

// folder records a stream in reads of 1,000 bytes, a millisecond apart, into
// files of a quarter of it.
func folder(stream, dir string) error {
	b, err := os.ReadFile(stream)
	if err != nil {
		return err
	}
	var opt capture.Options
	opt.RotateBytes = int64(len(b)/4 + 1)
	opt.Unique = func() uint32 { return 0x5f3a9b2e }
	d, err := capture.Create(dir, opt)
	if err != nil {
		return err
	}
	c, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://publisher.example:7001", Protocol: "auto"})
	if err != nil {
		return err
	}
	at := capture.Instant{Wall: start, Mono: 5e9}
	for len(b) > 0 {
		n := min(1000, len(b))
		if _, err := c.Write(b[:n], at); err != nil {
			return err
		}
		b = b[n:]
		at.Wall += 1e6
		at.Mono += 1e6
	}
	if _, err := c.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		return err
	}
	return d.Close()
}

func oneFrame(dst io.Writer, src io.Reader) error {
	w, err := zstd.NewWriter(dst, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, src); err != nil {
		return err
	}
	return w.Close()
}

func compress(name, out string, to func(io.Writer, io.Reader) error) error {
	src, err := os.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(filepath.Clean(out))
	if err != nil {
		return err
	}
	if err := to(dst, src); err != nil {
		return err
	}
	return dst.Close()
}

// segment wraps a Parquet file.
func segment(parquet, out string) error {
	b, err := os.ReadFile(parquet)
	if err != nil {
		return err
	}
	s := dendro.AppendSegment(opening(1), &dendro.Segment{Stream: []byte("net"), Rows: 4, FirstTS: start, LastTS: start + 3e9, Bytes: b})
	return os.WriteFile(out, s, 0o644)
}

// sidecars tells of each line of a file which sidecars the commands take.
func sidecars(list, out string) error {
	lines, err := read(list)
	if err != nil {
		return err
	}
	var verdicts []byte
	for line := range bytes.Lines(lines) {
		b, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil {
			return err
		}
		if _, err := sidecar.Parse(b); err == nil {
			verdicts = append(verdicts, '1')
		} else {
			verdicts = append(verdicts, '0')
		}
	}
	return os.WriteFile(out, verdicts, 0o644)
}
