//go:build interop

package interop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wiretape/interop"
)

// craftedOutcomes say what comes of a crafted stream: the exit code of replay build,
// and how many things its archive has that the crate's has not and the other
// way, with the reason (docs/merging.md).
var craftedOutcomes = map[string]struct {
	exit        int
	ours, crate int
	why         string
}{
	"bad-bool":                     {3, 1, 0, "stops at the first refused frame"},
	"bad-magic":                    {2, 0, 0, ""},
	"bad-parquet-footer":           {3, 0, 1, "never opens a segment's bytes"},
	"bad-utf8":                     {3, 1, 0, "stops at the first refused frame"},
	"bad-uuid-utf8":                {3, 0, 0, ""},
	"bad-version":                  {1, 0, 0, ""},
	"bytes-overrun":                {3, 0, 0, ""},
	"clean-complete":               {0, 0, 0, ""},
	"complete-no-clock":            {0, 0, 1, "invents a clock observation"},
	"duplicate-row-ts":             {0, 2, 0, "drops a whole Rows frame for one repeated (stream, ts)"},
	"empty-caller-index-vs-absent": {0, 0, 0, ""},
	"empty-stream":                 {0, 0, 0, ""},
	"encoder-mismatch":             {0, 1, 1, "overwrites the publisher's encoder"},
	"gap":                          {3, 0, 0, ""},
	"held-segment":                 {0, 0, 0, ""},
	"late-handshake":               {0, 0, 0, ""},
	"len-0":                        {3, 1, 0, "stops at the first refused frame"},
	"len-over-64MiB":               {3, 0, 0, ""},
	"map-out-of-order":             {3, 0, 0, ""},
	"no-handshake":                 {3, 0, 0, ""},
	"overlapping-segment":          {3, 1, 0, "stops at a segment that straddles the newest sealed row"},
	"rehandshake":                  {0, 2, 9, "a second handshake for a uuid makes a second source"},
	"rows-before-full":             {3, 0, 0, ""},
	"rows-count-lies":              {3, 0, 1, "never opens a segment's bytes"},
	"rows-no-index-state":          {0, 0, 0, ""},
	"rows-out-of-order":            {0, 0, 0, ""},
	"segment-after-live-rows":      {3, 1, 3, "stops at a segment with a live row at or below its last_ts"},
	"segment-before-live-rows":     {0, 0, 0, ""},
	"segment-covers-held-rows":     {0, 2, 2, "stops at a segment with a live row at or below its last_ts"},
	"segment-empty-bytes":          {3, 0, 1, "never opens a segment's bytes"},
	"segment-inverted-span":        {3, 0, 0, ""},
	"segment-zero-rows":            {3, 0, 0, ""},
	"seq-backwards":                {0, 0, 0, ""},
	"seq-repeat":                   {0, 0, 0, ""},
	"source-update":                {0, 0, 0, ""},
	"source-update-empty":          {0, 0, 0, ""},
	"state-mismatch":               {3, 0, 0, ""},
	"trailing-bytes":               {3, 1, 0, "stops at the first refused frame"},
	"truncated-after-len":          {3, 0, 0, ""},
	"truncated-in-len":             {3, 0, 0, ""},
	"truncated-in-len-1":           {3, 0, 0, ""},
	"truncated-in-magic":           {2, 0, 0, ""},
	"truncated-in-payload":         {3, 0, 0, ""},
	"ts-range-lies":                {3, 1, 1, "never opens a segment's bytes"},
	"two-handshakes-same-uuid":     {0, 2, 8, "a second handshake for a uuid makes a second source"},
	"unknown-kind":                 {3, 0, 0, ""},
	"unknown-kind-only":            {3, 0, 0, ""},
	"unknown-ordinal":              {3, 1, 0, "stops at the first refused frame"},
	"uuid-absent":                  {0, 0, 0, ""},
	"uuid-empty":                   {3, 0, 0, ""},
	"uuid-uppercase":               {3, 0, 0, ""},
	"zero-byte-file":               {2, 0, 0, ""},
}

// Each crafted stream gives the crate's own archive, but for what a rebuild does
// better.
func TestCrafted(t *testing.T) {
	streams := fixtures(t, "crafted/*.stream")
	if len(streams) != len(craftedOutcomes) {
		t.Errorf("%d streams, %d outcomes", len(streams), len(craftedOutcomes))
	}
	for _, s := range streams {
		t.Run(base(s), func(t *testing.T) {
			want, ok := craftedOutcomes[base(s)]
			if !ok {
				t.Fatal("no outcome is written down")
			}
			tmp := t.TempDir()
			theirs, ours := filepath.Join(tmp, "crate.dendro"), filepath.Join(tmp, "ours.dendro")
			applied := subscribe(t, s, theirs, rigEncoder)
			r := run(t, programs.Replay, "build", s, "--archive", ours, "--json")
			if r.Exit != want.exit {
				t.Fatalf("exit %d, want %d: %s%s", r.Exit, want.exit, r.Stdout, r.Stderr)
			}
			if want.exit == 1 || want.exit == 2 {
				if _, err := os.Stat(ours); err == nil {
					t.Error("a failed rebuild left an archive")
				}
				return
			}
			if !applied.Created {
				t.Fatal("the crate made no archive")
			}
			rig(t, "verify", ours)
			minted := base(s) == "uuid-absent"
			diff := interop.Differences(comparable(dump(t, theirs), minted), comparable(dump(t, ours), minted))
			onlyOurs, onlyCrate := 0, 0
			for _, d := range diff {
				if strings.HasPrefix(d, "only ours") {
					onlyOurs++
				} else {
					onlyCrate++
				}
			}
			if onlyOurs != want.ours || onlyCrate != want.crate {
				t.Errorf("%d things only in ours, %d only in the crate's; wanted %d and %d (%s)\n%s",
					onlyOurs, onlyCrate, want.ours, want.crate, want.why, strings.Join(diff, "\n"))
			}
		})
	}
}

// The older schema holds the same, and the crate reads it.
func TestOldSchema(t *testing.T) {
	for _, s := range append(fixtures(t, "real/*.stream"), fixtures(t, "telemetry/*.stream")...) {
		t.Run(base(s), func(t *testing.T) {
			tmp := t.TempDir()
			four, five := filepath.Join(tmp, "4.dendro"), filepath.Join(tmp, "5.dendro")
			build(t, four, []string{s}, "--schema", "4")
			build(t, five, []string{s})
			crateAccepts(t, four, encoderOf(t, s))
			got, want := dump(t, four), dump(t, five)
			if got.Schema != 4 || want.Schema != 5 {
				t.Fatalf("schemas %d and %d", got.Schema, want.Schema)
			}
			got.Schema = 5
			sameDump(t, want, got)
		})
	}
}
