package main

import (
	"bytes"
	"fmt"
	"os"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/wire"
)

// connections records what a day with a flaky network leaves: a publisher that
// was connected to eight times, one time after the other, cut off in the middle
// the third time, and over all of it a second publisher, in three files. The
// streams are those that are named, in turn.
func connections(dir string, streams ...string) error {
	var opt capture.Options
	n := uint32(0x5f3a9b00)
	opt.Unique = func() uint32 { n++; return n }
	opt.RotateBytes = 100 << 10
	d, err := capture.Create(dir, opt)
	if err != nil {
		return err
	}
	at := capture.Instant{Wall: start, Mono: 5e9}
	over, err := read(streams[len(streams)-1])
	if err != nil {
		return err
	}
	other, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://other.example:7001", Protocol: "auto"})
	if err != nil {
		return err
	}
	// Each connection brings a part of the long one along.
	const times = 8
	step := len(over)/times + 1
	for i := range times {
		b, err := read(streams[i%(len(streams)-1)])
		if err != nil {
			return err
		}
		verdict, closed := sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd
		if i == 2 {
			b = b[:len(b)*2/3]
			verdict, closed = sidecar.Verdict{Kind: sidecar.TransportCut, Detail: "connection reset by peer"}, sidecar.ClosedError
		}
		c, err := d.Connect(capture.ConnInfo{Endpoint: fmt.Sprintf("tcp://publisher-%d.example:7001", i%3), Protocol: "auto", Direction: wire.Downstream})
		if err != nil {
			return err
		}
		for len(b) > 0 {
			k := min(700, len(b))
			if _, err := c.Write(b[:k], at); err != nil {
				return err
			}
			b = b[k:]
			at.Wall += 2e6
			at.Mono += 2e6
		}
		if _, err := c.Close(verdict, closed); err != nil {
			return err
		}
		k := min(step, len(over))
		if _, err := other.Write(over[:k], at); err != nil {
			return err
		}
		over = over[k:]
		at.Wall += 400e6
		at.Mono += 400e6
	}
	if _, err := other.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd); err != nil {
		return err
	}
	return d.Close()
}

func read(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	return bytes.Clone(b), err
}
