#!/bin/sh
# Builds the viewer: dist/viewer/, dist/viewer.html, and a copy that goes into
# the replay command. Needs Go and Node.js 20; the page's libraries come by npm
# as package-lock.json names them.
set -eu
cd "$(dirname "$0")"
command -v node >/dev/null 2>&1 || { echo 'the viewer needs Node.js 20 or newer: apt-get install nodejs npm' >&2; exit 1; }
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --no-audit --no-fund --loglevel=error
fi
node build.mjs "$@"
