package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// shrink makes a pipe as small as it can be, so that it fills.
func shrink(t *testing.T, w *os.File) {
	t.Helper()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
}
