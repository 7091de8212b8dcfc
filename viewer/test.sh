#!/bin/sh
# Builds the viewer and tests it, the page in a real Chromium. WIRETAPE_TORTURE=1
# adds the files of 4 GiB and of ten million frames; WIRETAPE_SLOW=4 slows the
# page's own thread down so many times and lets its workers' answers come late,
# to find tests that wait for too little.
set -eu
cd "$(dirname "$0")"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$CHROMIUM" ]; then
  install='apt-get update && apt-get install -y chromium'
  if [ "${CI:-}" != true ]; then
    echo "the viewer's tests need Chromium: $install" >&2
    exit 1
  fi
  sh -c "$install" >/dev/null
  CHROMIUM=$(command -v chromium)
fi
export CHROMIUM
sh build.sh
exec node --test --test-concurrency=1 --test-reporter=spec test/*.test.mjs
