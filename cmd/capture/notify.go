package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells systemd what the service is doing (sd_notify(3)). It is a few
// datagrams, so no library is needed. Without NOTIFY_SOCKET it does nothing.
type notifier struct{ conn net.Conn }

func newNotifier() *notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return &notifier{}
	}
	// Commands for sealed files are no part of the service's state.
	os.Unsetenv("NOTIFY_SOCKET")
	c, err := net.Dial("unixgram", path)
	if err != nil {
		return &notifier{}
	}
	return &notifier{c}
}

func (n *notifier) tell(state string) {
	if n.conn != nil {
		n.conn.SetWriteDeadline(time.Now().Add(time.Second))
		n.conn.Write([]byte(state))
	}
}

// watchdog tells that the process lives, at half of the interval that
// WATCHDOG_USEC asks for, as long as alive says so.
func (n *notifier) watchdog(ctx context.Context, alive func() bool) {
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if n.conn == nil || err != nil || usec <= 0 {
		return
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	t := time.NewTicker(time.Duration(usec) * time.Microsecond / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if alive() {
				n.tell("WATCHDOG=1")
			}
		}
	}
}
