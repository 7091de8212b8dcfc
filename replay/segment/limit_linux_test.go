package segment

import (
	"syscall"
	"testing"
	"time"
)

// limitMemory bounds the address space of this process.
func limitMemory(t testing.TB, n uint64) {
	limit := syscall.Rlimit{Cur: n, Max: n}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Fatal(err)
	}
}

// clock is the time that this process has computed: a busy machine is not a
// hang.
func clock() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
