//go:build !linux

package ship_test

import "errors"

func mountMemory(string) error { return errors.ErrUnsupported }
func unmount(string)           {}
