//go:build !linux

package main

import (
	"os"
	"testing"
)

// shrink can't be done here: the pipe is filled by more output.
func shrink(*testing.T, *os.File) {}
