package record

// This file sees to the space on the disk: the recording stops before it is used
// up, or room is made.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"wiretape/capture"
)

// fileCost is what a file takes on disk beside its bytes: its side files, and
// what is left of the last block of each.
const fileCost = 32 << 10

// space is how many bytes may be received before the disk is looked at again.
type space struct {
	left  atomic.Int64
	looks sync.Mutex
	// soon is what left may fall to before it is looked at in good time, free
	// what the last look found.
	soon, free atomic.Int64
	wake       chan struct{}
	// full is why nothing more is recorded, nil while there is space.
	full atomic.Pointer[NoSpaceError]
}

// cost is what n received bytes take on disk, with what stands beside them.
func (r *Recorder) cost(n int64) int64 {
	// Of the arrival index an entry has up to 32 bytes for each read.
	n += n/8 + 32
	if limit := r.opt.Capture.RotateBytes; limit > 0 {
		n += n * fileCost / limit
	}
	return n
}

// spend counts bytes that were received.
func (r *Recorder) spend(n int) {
	if r.opt.MinFree > 0 && r.space.left.Add(-r.cost(int64(n))) < r.space.soon.Load() {
		poke(r.space.wake)
	}
}

// admit looks at the disk where that is due before more is received, or, by a
// relay that makes room and holds no traffic up, written. What does not fit any
// more ends the recording by itself: false.
func (r *Recorder) admit() bool {
	if r.opt.MinFree <= 0 || r.space.left.Load() > 0 {
		return true
	}
	r.space.looks.Lock()
	defer r.space.looks.Unlock()
	if r.space.left.Load() <= 0 {
		r.watchFree()
	}
	return r.space.full.Load() == nil
}

// manyLeft is from how much space on reads are not limited by it.
const manyLeft = 256 << 20

// limit cuts the room for a read so that what comes fits, also when all open
// connections read at once.
func (r *Recorder) limit(p []byte) []byte {
	if r.opt.MinFree <= 0 {
		return p
	}
	left := r.space.left.Load()
	if left >= manyLeft {
		return p
	}
	share := left / r.cost(int64(len(r.count.tapes()))*minRead) * minRead
	return p[:min(int64(len(p)), max(share, minRead))]
}

// full is why nothing more can be taken by a relay that goes on, nil while there
// is space. It never waits for the disk, which may be one that hangs.
func (r *Recorder) full() error {
	if full := r.space.full.Load(); full != nil {
		return full
	}
	if r.opt.MinFree > 0 && !r.opt.MakeRoom && r.space.left.Load() <= 0 {
		return &NoSpaceError{Dir: r.dir.Path(), Free: r.space.free.Load(), Keep: r.opt.MinFree, Waiting: r.cost(r.waiting())}
	}
	return nil
}

// look keeps an eye on the disk until ctx ends: others write to it, too, and
// files grow old.
func (r *Recorder) look(ctx context.Context) {
	held := time.Now()
	tick := time.NewTicker(freeTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.space.wake:
		}
		if r.opt.MinFree > 0 {
			r.space.looks.Lock()
			r.watchFree()
			r.space.looks.Unlock()
		}
		if time.Since(held) >= holdTick {
			held = time.Now()
			r.dir.Hold()
		}
	}
}

// pruned is told what was deleted. A limit that can't be met is said once, until
// it is met again.
func (r *Recorder) pruned(rep *capture.PruneReport, err error) {
	if err != nil {
		r.log.Error("pruning", "err", err)
	}
	if rep == nil {
		return
	}
	if n := len(rep.Deleted); n > 0 {
		r.log.Info("pruned", "files", n, "bytes", rep.FreedBytes)
		r.count.pruned.Add(int64(n))
	}
	r.mu.Lock()
	before := r.unmet
	r.unmet = !rep.Met
	r.mu.Unlock()
	if !rep.Met && !before {
		r.log.Warn("a limit of what to keep is not met", "unshipped_files", rep.Held, "unshipped_bytes", rep.HeldBytes)
	}
}

// lastHold holds the limits of what to keep a last time, and says whether they
// hold. Where recording failed it is not looked.
func (r *Recorder) lastHold() *capture.PruneReport {
	if r.opt.Retention.Any() && r.failed() == nil {
		rep, err := r.dir.Prune(r.opt.Retention)
		if r.pruned(rep, err); err == nil {
			return rep
		}
	}
	return &capture.PruneReport{Met: true}
}

// watchFree looks how much may still be received, makes room where it may, and
// ends the recording when the disk is too full. A relay that goes on without it
// records again once there is space. The caller holds space.looks.
func (r *Recorder) watchFree() {
	left, err := r.leftOver()
	if err != nil && r.opt.MakeRoom {
		limits := r.opt.Retention
		// Somewhat more, so that it is not done for every read.
		limits.MinFree = r.opt.MinFree + r.cost(r.waiting()) + max(r.opt.MinFree/16, minRead)
		for {
			wait := r.waiting()
			r.pruned(r.dir.Prune(limits))
			left, err = r.leftOver()
			if err == nil || wait == 0 || r.lenient.Load() {
				break
			}
			// What waits will be in sealed files soon, which may go then.
			time.Sleep(waitTick)
		}
		if err != nil && err.Free >= r.opt.MinFree && r.lenient.Load() {
			err = nil
		}
	}
	r.space.soon.Store(max(r.space.left.Add(left), 0) / 2)
	before := r.space.full.Swap(err)
	switch {
	case err == nil && before != nil:
		r.log.Info("there is space again: new connections are recorded")
	case err == nil || before != nil:
	case !r.lenient.Load():
		r.fail(err)
	default:
		for _, t := range r.count.tapes() {
			t.endWith(err)
		}
	}
}

// waiting is how many received bytes are in no file yet.
func (r *Recorder) waiting() (n int64) {
	for _, t := range r.count.tapes() {
		wait, _, _ := t.buf.usage()
		n += wait
	}
	return n
}

// leftOver is by how much space.left is to change for what the disk has free
// beside what is to be kept and what waits to be written.
func (r *Recorder) leftOver() (int64, *NoSpaceError) {
	// In this order, so that what comes or is written meanwhile counts twice
	// rather than not at all.
	before := r.space.left.Load()
	wait := r.cost(r.waiting())
	free, err := r.dir.Free()
	if err != nil {
		// Not a reason to stop: a full disk says so itself.
		r.log.Warn("the free space can't be told", "err", err)
		return unknownSpace - before, nil
	}
	r.space.free.Store(free)
	left := free - r.opt.MinFree - wait
	if left < 0 {
		return left - before, &NoSpaceError{Dir: r.dir.Path(), Free: free, Keep: r.opt.MinFree, Waiting: wait}
	}
	return left - before, nil
}

// waitTick is how often it is looked whether what waits is written.
const waitTick = 2 * time.Millisecond

// unknownSpace is what is received between two looks at a disk that does not
// tell its free space.
const unknownSpace = 16 << 20
