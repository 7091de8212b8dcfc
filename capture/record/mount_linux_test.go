package record_test

import "syscall"

// mountMemory mounts a small file system, or changes the size of one.
func mountMemory(dir, size string, again bool) error {
	var flags uintptr
	if again {
		flags = syscall.MS_REMOUNT
	}
	return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size)
}

func unmount(dir string) { syscall.Unmount(dir, syscall.MNT_DETACH) }
