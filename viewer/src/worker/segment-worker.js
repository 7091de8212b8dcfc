// The worker that reads the Parquet file in a Segment. The page ends it when a
// file keeps it too long.

import { ops } from './parquet.js';

onmessage = async ({ data: { id, op, args } }) => {
  try {
    postMessage({ id, result: await ops[op](args) });
  } catch (e) {
    postMessage({ id, error: e.message || String(e) });
  }
};
