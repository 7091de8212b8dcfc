package record_test

import (
	"net"
	"path/filepath"
	"testing"

	"wiretape/capture"
	"wiretape/capture/record"
	"wiretape/capture/source"
	"wiretape/internal/peer"
	"wiretape/internal/vfs"
)

// BenchmarkRecord records a stream over loopback onto the disk of the temporary
// folder, without waiting for it but at the end.
func BenchmarkRecord(b *testing.B) {
	for _, tc := range []struct {
		name  string
		chunk []byte
	}{{"raw", noise(1 << 20)}, {"dendro", real(b)}} {
		b.Run(tc.name, func(b *testing.B) {
			b.SetBytes(int64(len(tc.chunk)))
			addr := peer.Listen(b, func(c net.Conn, _ int) error {
				for i := range b.N {
					p := tc.chunk
					if tc.name == "dendro" && i > 0 {
						p = p[14:] // the preamble comes once
					}
					if _, err := c.Write(p); err != nil {
						return err
					}
				}
				return nil
			})
			r := open(b, filepath.Join(b.TempDir(), "rec"), record.Options{NoRetry: true, Capture: capture.Options{FS: unsynced{vfs.OS}}})
			b.ResetTimer()
			r.Record(b.Context(), sourceOf(b, "tcp://"+addr, source.Options{}))
			rep, err := r.Close()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(rep.Stalled.Seconds(), "stalled-s")
		})
	}
}
