#!/bin/sh
# The main job on the bundled sample, over a real socket: a publisher goes away,
# what is left is a recording, and the archive is rebuilt from it.
set -eu
cd "$(dirname "$0")/.."
sample=wire/dendro/testdata/real/small.stream
dir=$(mktemp -d "${TMPDIR:-/tmp}/wiretape-demo.XXXXXX")
player=
trap '[ -z "$player" ] || kill "$player" 2>/dev/null || :' EXIT INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

say "1. a publisher serves a real dendro stream on a socket"
echo "\$ bin/replay play $sample --listen unix://$dir/publisher.sock --speed max"
bin/replay play "$sample" --listen "unix://$dir/publisher.sock" --speed max 2>"$dir/publisher.log" &
player=$!
n=0
while [ ! -S "$dir/publisher.sock" ]; do
  n=$((n + 1)); [ $n -lt 100 ] || { cat "$dir/publisher.log" >&2; exit 1; }
  sleep 0.1
done

say "2. capture records it byte for byte, in files of 64 KiB cut at frame boundaries"
echo "\$ bin/capture record unix://$dir/publisher.sock --dir $dir/rec --rotate-bytes 64KiB --no-retry"
bin/capture record "unix://$dir/publisher.sock" --dir "$dir/rec" --rotate-bytes 64KiB --no-retry 2>/dev/null
wait "$player"; player=
ls -l "$dir/rec" | awk 'NR > 1 { print "  " $5 "\t" $9 }'

say "3. the files, concatenated, are what was sent"
cat "$dir"/rec/*.cap | cmp - "$sample" && echo "  equal to $sample"

say "4. replay rebuilds the archive that the receiver would have had"
echo "\$ bin/replay build $dir/rec --archive $dir/site.dendro"
bin/replay build "$dir/rec" --archive "$dir/site.dendro"

cat <<EOF

Next:
  bin/capture info $dir/rec              what was recorded
  bin/replay inspect $dir/rec            every frame; --frame 3 --hex shows one whole
  make viewer build && bin/replay view $dir/rec
                                         the same in a browser; the page is part of bin/replay
                                         once make viewer has built it
  sqlite3 $dir/site.dendro .tables       the archive is one SQLite file
  bin/replay --help, bin/capture --help     all there is
  rm -r $dir                             when you are done
EOF
