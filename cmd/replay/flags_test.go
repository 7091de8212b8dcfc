package main

import (
	"testing"

	"wiretape/cmd/internal/flagtest"
)

// Every flag that a verb lists does something, or is refused with the reason.
func TestEveryFlagIsTested(t *testing.T) { flagtest.Scripts(t, program(), "testdata/script/*.txtar") }
