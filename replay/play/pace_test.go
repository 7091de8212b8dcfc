package play

import (
	"context"
	"testing"
	"time"
)

// virtual is a clock whose every sleep takes a millisecond too long.
type virtual struct{ now time.Duration }

const oversleep = time.Millisecond

func (v *virtual) Now() time.Duration { return v.now }

func (v *virtual) Sleep(_ context.Context, d time.Duration) error {
	v.now += d + oversleep
	return nil
}

// tcpreplay 630, 674, 699, 724: the speed drifted, because each wait was
// measured from the one before. After a million frames the error is one sleep's.
func TestLessonSpeedDoesNotDrift(t *testing.T) {
	for _, speed := range []float64{1, 0.5, 100} {
		clock := &virtual{now: 5 * time.Hour}
		p := pacer{clock: clock, speed: speed}
		began := clock.Now()
		mono, passed := int64(77), int64(0)
		for i := range 1_000_000 {
			step := int64(1_234_567)
			switch i {
			case 300_000: // the recording pauses
				step = int64(30 * time.Hour)
			case 500_000: // another recorder, whose clock is behind
				mono, step = 12, 0
			}
			mono += step
			if i > 0 {
				passed += step
			} else {
				passed = 0
			}
			if err := p.wait(context.Background(), mono); err != nil {
				t.Fatal(err)
			}
		}
		want := time.Duration(float64(passed) / speed)
		if off := clock.Now() - began - want; off < 0 || off > oversleep {
			t.Errorf("speed %g: after a million frames %v off, one sleep is %v off", speed, off, oversleep)
		}
		if p.late > oversleep {
			t.Errorf("speed %g: %v late", speed, p.late)
		}
	}
}

func TestSpeedZeroDoesNotWait(t *testing.T) {
	clock := &virtual{}
	p := pacer{clock: clock}
	for i := range 10 {
		if err := p.wait(context.Background(), int64(i)*int64(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if clock.now != 0 {
		t.Errorf("waited %v", clock.now)
	}
}
