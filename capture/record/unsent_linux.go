package record

import (
	"net"

	"golang.org/x/sys/unix"
)

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
