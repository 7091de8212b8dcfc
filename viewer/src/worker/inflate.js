// The codecs of Parquet pages that the decoder does not have itself.

import { gunzip } from 'hyparquet-compressors/src/gzip.js';
import { inflateExactly } from './zstd.js';

const GZIP = 2;
const ZSTD = 6;

/** Whether a gzip file's last four bytes say what it inflates to. */
function endsWith(src, size) {
  const n = src.length;
  return n >= 18 && (src[n - 4] | (src[n - 3] << 8) | (src[n - 2] << 16) | (src[n - 1] << 24)) >>> 0 === size;
}

/** Fills dst from src by a codec; false when it does not come out exactly. */
export function inflate(codec, src, dst) {
  try {
    let out;
    if (codec === ZSTD) out = inflateExactly(src, dst.length);
    else if (codec === GZIP && endsWith(src, dst.length)) out = gunzip(src, new Uint8Array(dst.length));
    else return false;
    if (out.length !== dst.length) return false;
    dst.set(out);
    return true;
  } catch {
    return false;
  }
}
