#!/bin/sh
# Speed and memory. Each figure has what it is measured against in the same run:
# a plain walk of the bytes, BLAKE3 and CRC-32C alone, socat, the real crate's
# subscriber, the bare inserts. Rates of a busy machine say little: look at the
# ratios.
set -u
cd "$(dirname "$0")/.."
failed=0
run() { echo; echo "== $1"; shift; "$@" || failed=1; }
bench() {
  out=$(mktemp) && code=0
  go test -run '^$' -bench "$2" -benchtime "${3:-1s}" -benchmem "./$1/" > "$out" || code=$?
  grep -v '^PASS\|^ok\|^goos\|^goarch' "$out"
  rm -f "$out"
  return "$code"
}

run "dendro: a walk, decode, scan, read" bench wire/dendro .
run "melin: decode, and CRC against the polynomial alone" bench wire/melin .
run "melin: the chain against BLAKE3 alone" bench replay/journal .
run "aewr: headers and payloads against a walk" bench wire/aewr .
run "aewr: shadows and catalogue" bench replay/shadow . 3x
run "segments: each depth of check" bench replay/segment .
run "rebuild of live rows" bench replay BuildRows 5x
run "recording: the writer, rotations, opening inputs" bench capture .
run "recording in one process" bench capture/record Record 300x
if command -v socat >/dev/null; then
  run "recording against socat; many connections; the relay's latency" bench cmd/capture . 1x
else
  echo "socat is missing: apt-get install -y socat" >&2; failed=1
fi
if command -v cargo >/dev/null; then
  run "replay build against the real crate and bare inserts" sh interop/run bench
else
  echo "cargo is missing: the crate is not measured" >&2; failed=1
fi
exit $failed
