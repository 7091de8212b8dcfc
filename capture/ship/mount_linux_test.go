package ship_test

import "syscall"

// mountMemory mounts a small file system over a folder.
func mountMemory(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m") }

func unmount(dir string) { syscall.Unmount(dir, syscall.MNT_DETACH) }
