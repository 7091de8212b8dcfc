//go:build !linux

package record_test

import "errors"

func mountMemory(string, string, bool) error { return errors.ErrUnsupported }
func unmount(string)                         {}
