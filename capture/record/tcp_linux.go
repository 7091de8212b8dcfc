package record

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp says that a connection is over in both directions: its peer broke it
// off, or both ended their streams.
func hungUp(c net.Conn) (over bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		over = err == nil && n > 0 && p[0].Revents&unix.POLLHUP != 0
	})
	return over
}

// unsent is how many bytes wait in a connection's send queue or are not yet
// acknowledged; 0 when that can't be told.
func unsent(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if q, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = q
		}
	})
	return n
}
