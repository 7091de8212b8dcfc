// The worker that reads the Parquet file in a Segment. The page ends it when a
// file keeps it too long.

import { ops } from './parquet.js';
import { ready } from './zstd.js';

async function hear({ data: { id, op, args } }) {
  try {
    await ready;
    postMessage({ id, result: await ops[op](args) });
  } catch (e) {
    postMessage({ id, error: e.message || String(e) });
  }
}

/** Answers the page from now on. */
export function serve() {
  onmessage = hear;
}
