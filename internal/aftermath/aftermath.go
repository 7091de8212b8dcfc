// Package aftermath holds what a dead recorder left behind against what was
// sent to it and what it had reported safe. It is for tests that kill recorders,
// real processes and those on a double of the file system.
package aftermath

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"wiretape/capture"
	"wiretape/capture/sidecar"
	"wiretape/internal/vfs"
	"wiretape/wire"
)

// Case is one recorder's end.
type Case struct {
	// FS and Dir are what it left; FS nil is the operating system's.
	FS  vfs.FS
	Dir string
	// Registry is that of the recorder; nil is all protocols.
	Registry wire.Registry
	// Sent is what was sent on each connection so far, or more: by id.
	Sent map[string][]byte
	// Safe is what was reported synced of each.
	Safe map[string]int64
	// Killed says that only the process died: what was written is there, and
	// nothing may be torn but a connection's last frame.
	Killed bool
	// Clock and Unique as in capture.Options; nil are the real ones.
	Clock  capture.Clock
	Unique func() uint32
}

func (c *Case) options() capture.Options {
	return capture.Options{FS: c.FS, Clock: c.Clock, Registry: c.Registry, Holder: "restart", Unique: c.Unique}
}

// read gives every file of the directory.
func (c *Case) read() (map[string][]byte, error) {
	fsys := c.FS
	if fsys == nil {
		fsys = vfs.OS
	}
	names, err := fsys.List(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		// It got no further.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, n := range names {
		if out[n], err = vfs.ReadFile(fsys, filepath.Join(c.Dir, n), 1<<30); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Check restarts a recorder in the directory, unaided, records one more
// connection, and says what promise was broken (docs/capture-format.md, Promises and
// Recovery), nil when none.
func (c *Case) Check() error {
	before, err := c.read()
	if err != nil {
		return err
	}
	if err := SealedAreWhole(before); err != nil {
		return err
	}
	next := []byte("the recorder is back")
	id, err := c.restart(next)
	if err != nil {
		return err
	}
	settled, err := c.read()
	if err != nil {
		return err
	}
	if err := bytesKept(before, settled); err != nil {
		return err
	}
	if err := c.settled(settled); err != nil {
		return err
	}
	set, err := capture.OpenInputs([]string{c.Dir}, capture.InputOptions{FS: c.FS, Registry: c.Registry})
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, conn := range set.Connections {
		found[conn.ID] = true
		if conn.ID == id {
			if got, err := readAll(conn); err != nil || !bytes.Equal(got, next) {
				return fmt.Errorf("the connection after the restart is not what was sent: %q, %v", got, err)
			}
			continue
		}
		// A recorder may die before it says what it called a connection.
		sent := c.Sent[conn.ID]
		if id <= conn.ID {
			return fmt.Errorf("the new connection %s is not behind %s", id, conn.ID)
		}
		if err := c.connection(conn, sent); err != nil {
			return fmt.Errorf("%s: %w", conn.ID, err)
		}
	}
	for id, n := range c.Safe {
		if n > 0 && !found[id] {
			return fmt.Errorf("%d bytes of %s were reported safe and it is gone", n, id)
		}
	}
	return nil
}

// restart records one connection of raw bytes.
func (c *Case) restart(next []byte) (id string, err error) {
	opt := c.options()
	if opt.Clock == nil {
		opt.Clock = capture.SystemClock
	}
	d, err := capture.Create(c.Dir, opt)
	if err != nil {
		return "", fmt.Errorf("restarting: %w", err)
	}
	w, err := d.Connect(capture.ConnInfo{Endpoint: "tcp://next", Protocol: capture.ProtocolRaw})
	if err != nil {
		return "", errors.Join(fmt.Errorf("recording after the restart: %w", err), d.Close())
	}
	_, werr := w.Write(next, opt.Clock.Now())
	_, cerr := w.Close(sidecar.Verdict{Kind: sidecar.TransportClean}, sidecar.ClosedEnd)
	return w.ID(), errors.Join(werr, cerr, d.Close())
}

// settled says that nothing is left to recover, and that recovering changes
// nothing.
func (c *Case) settled(files map[string][]byte) error {
	rec, err := capture.Recover(c.Dir, c.options())
	if err != nil || len(rec) > 0 {
		return fmt.Errorf("a second recovery recovered %v, %w", rec, err)
	}
	again, err := c.read()
	if err != nil {
		return err
	}
	for name, b := range again {
		if name != capture.LockName && !bytes.Equal(files[name], b) {
			return fmt.Errorf("a second recovery changed %s", name)
		}
	}
	return SealedAreWhole(again)
}

// bytesKept says that recovery kept the bytes of unfinished files, all of them.
func bytesKept(before, after map[string][]byte) error {
	for name, b := range before {
		sealed, partial := strings.CutSuffix(name, ".partial")
		if n := capture.ParseName(name); !partial || n.Form != capture.FormPartial {
			continue
		}
		if !bytes.Equal(after[sealed], b) {
			return fmt.Errorf("recovery changed the bytes of %s", name)
		}
	}
	return nil
}

// SealedAreWhole says of a directory's files that what has its final name is
// complete and described (docs/capture-format.md, Promises).
func SealedAreWhole(files map[string][]byte) error {
	for name, b := range files {
		if capture.ParseName(name).Form != capture.FormBytes {
			continue
		}
		stem := strings.TrimSuffix(name, ".cap")
		sum := sha256.Sum256(b)
		hex := hex.EncodeToString(sum[:])
		s, err := sidecar.Parse(files[stem+".json"])
		if err != nil {
			return fmt.Errorf("%s is sealed, its sidecar is not: %w", name, err)
		}
		if s.Length != int64(len(b)) || s.SHA256 != hex {
			return fmt.Errorf("%s is sealed and not what its sidecar says", name)
		}
		if !bytes.Contains(files[stem+".sha256"], []byte(hex+"  "+name+"\n")) {
			return fmt.Errorf("%s is sealed without its sum", name)
		}
	}
	return nil
}

func readAll(c *capture.Connection) ([]byte, error) {
	var all []byte
	for _, r := range c.Runs() {
		rr, _ := r.Open()
		b, err := io.ReadAll(rr)
		if err != nil {
			return nil, err
		}
		if f := rr.Findings(); len(f) > 0 {
			return nil, fmt.Errorf("%s", f[0].Message)
		}
		all = append(all, b...)
	}
	return all, nil
}

// connection holds a recovered connection against what was sent: all that was
// reported safe is there, nothing twice, and its whole frames are a prefix of
// the stream. Unsynced bytes that a power loss spoiled inside of frames are told
// by the arrival index, as far as that survived.
func (c *Case) connection(conn *capture.Connection, sent []byte) error {
	if rs := conn.Runs(); len(rs) != 1 || rs[0].Start != 0 {
		return fmt.Errorf("%d runs, %v", len(rs), conn.Findings)
	}
	got, err := readAll(conn)
	if err != nil {
		return err
	}
	same := commonPrefix(got, sent)
	if safe := c.Safe[conn.ID]; same < safe {
		return fmt.Errorf("%d bytes were reported safe, %d are there", safe, same)
	}
	if (c.Killed || sent == nil) && same < int64(len(got)) {
		return fmt.Errorf("%d of %d bytes are as sent", same, len(got))
	}
	last := conn.Files[len(conn.Files)-1]
	s := last.Sidecar
	if s == nil {
		return fmt.Errorf("%s has no sidecar: %v", last.Name, conn.Findings)
	}
	whole := s.Boundary
	if s.Recovery != nil {
		whole = last.Start + s.Recovery.Whole
	}
	if same < whole {
		if s.Recovery == nil || same < last.Start+s.Recovery.Proven {
			return fmt.Errorf("%s: %d bytes are said to be whole frames, %d are as sent: %+v", last.Name, whole, same, s.Recovery)
		}
		if end := indexed(last); same < end && !tells(last.WholeSidecar()) {
			return fmt.Errorf("%s: bytes are damaged from %d on, and the index up to %d did not tell", last.Name, same, end)
		}
	}
	return agrees(conn, last, whole, same)
}

// agrees says that a reader finds the same end of whole frames as recovery.
func agrees(conn *capture.Connection, last *capture.File, whole, same int64) error {
	if last.Sidecar.Framing == sidecar.FramingUnknown {
		if same >= wire.DetectLimit && conn.Protocol != capture.ProtocolRaw {
			return fmt.Errorf("%s: the protocol got lost", last.Name)
		}
		return nil
	}
	run := conn.Runs()[0]
	dec, err := conn.Decoder(run)
	if err != nil || dec == nil {
		return fmt.Errorf("no decoder: %w", err)
	}
	rr, opt := run.Open()
	defer rr.Close()
	r, end := wire.NewReader(rr, dec, opt), int64(0)
	for {
		u, _, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		end = u.End()
	}
	if end != whole {
		return fmt.Errorf("%s: a reader finds whole frames up to %d, the sidecar says %d (%+v)", last.Name, end, whole, last.Sidecar.Recovery)
	}
	return nil
}

// indexed is up to where the arrival index can tell: the end of the last read
// that is there whole.
func indexed(f *capture.File) int64 {
	end := f.Start
	all, _, err := f.Arrivals()
	if err != nil {
		return end
	}
	for _, a := range all {
		if a.Offset+a.Length <= f.End() {
			end = a.Offset + a.Length
		}
	}
	return end
}

func tells(s *sidecar.Sidecar) bool {
	if s == nil {
		return false
	}
	for _, f := range s.Findings {
		if f.Kind == capture.KindTornBytes {
			return true
		}
	}
	return false
}

func commonPrefix(a, b []byte) int64 {
	n := int64(0)
	for n < int64(len(a)) && n < int64(len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
