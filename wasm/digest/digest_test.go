package digest

import (
	"crypto/sha256"
	"testing"
)

func TestEqualsTheStandardLibrary(t *testing.T) {
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i*7 + i/13)
	}
	for n := range b {
		if got, want := Sum256(b[:n]), sha256.Sum256(b[:n]); got != want {
			t.Fatalf("%d bytes: %x, want %x", n, got, want)
		}
	}
}
