package vfs

func renameExclusive(from, to string) error { return linkExclusive(from, to) }
