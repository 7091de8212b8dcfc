package vfs

// renameExclusive uses a hard link, which never replaces a name.
func renameExclusive(from, to string) error { return linkExclusive(from, to) }
