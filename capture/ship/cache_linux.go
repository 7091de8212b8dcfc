package ship

import (
	"golang.org/x/sys/unix"

	"wiretape/internal/vfs"
)

// dropCache makes a synced file's bytes come from the disk when they are read
// back, as far as the system heeds it.
func dropCache(f vfs.File) {
	if d, ok := f.(interface{ Fd() uintptr }); ok {
		_ = unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
}
