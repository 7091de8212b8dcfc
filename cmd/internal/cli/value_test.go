package cli

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for v, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 720 * time.Hour, "2w": 336 * time.Hour,
		"1w1d1h": 193 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour, "15250w": 15250 * 168 * time.Hour,
	} {
		if got, err := ParseDuration(v); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", v, got, err, want)
		}
	}
	for _, v := range []string{"", "-", "d", "30", "30x", "1d2", "1e9d", "999999999w", "15251w", "1d 2h", "--1d", "1..2d", "٣d"} {
		if got, err := ParseDuration(v); err == nil {
			t.Errorf("%q is taken as %v", v, got)
		}
	}
	// What help shows is taken back.
	for _, d := range []time.Duration{0, time.Second, 2 * time.Minute, 90 * time.Second, time.Hour, 36 * time.Hour, 90 * time.Minute, math.MaxInt64} {
		v := Duration(d)
		if got, err := ParseDuration(v.String()); err != nil || got != d {
			t.Errorf("%v is shown as %s, which is %v, %v", d, v.String(), got, err)
		}
	}
}
