package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameExclusive uses renameat2(RENAME_NOREPLACE), and a hard link on file
// systems that do not know it.
func renameExclusive(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return linkExclusive(from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
