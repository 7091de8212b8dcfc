// The codecs of Parquet pages, for the rows that the page reads and, of those
// that the decoder does not have itself, for the decoder's checks.

import { snappyUncompress } from 'hyparquet/src/snappy.js';
import { gunzip } from 'hyparquet-compressors/src/gzip.js';
import { brotliExactly } from './brotli.js';
import { lz4, lz4Raw } from './lz4.js';
import { inflateExactly } from './zstd.js';

/** The numbers that the format gives the codecs (parquet.thrift, CompressionCodec). */
const GZIP = 2;
const BROTLI = 4;
const ZSTD = 6;

/** The most bytes that a page may inflate to. */
const MAX_PAGE = 256 << 20;

/** Whether a gzip file's last four bytes say what it inflates to. */
function endsWith(src, size) {
  const n = src.length;
  return n >= 18 && (src[n - 4] | (src[n - 3] << 8) | (src[n - 2] << 16) | (src[n - 1] << 24)) >>> 0 === size;
}

const sized = (f) => (input, length) => {
  if (length > MAX_PAGE) throw new Error(`a page claims ${length} bytes`);
  return f(input, length);
};

/** By the names that the reader of the rows has for them. */
export const compressors = {
  SNAPPY: sized((input, length) => {
    const out = new Uint8Array(length);
    snappyUncompress(input, out);
    return out;
  }),
  GZIP: sized((input, length) => gunzip(input, new Uint8Array(length))),
  BROTLI: sized(brotliExactly),
  ZSTD: sized(inflateExactly),
  LZ4: sized(lz4),
  LZ4_RAW: sized(lz4Raw),
};

/** Fills dst from src by a codec; false when it does not come out exactly. */
export function inflate(codec, src, dst) {
  try {
    let out;
    if (codec === ZSTD) out = inflateExactly(src, dst.length);
    else if (codec === BROTLI) out = brotliExactly(src, dst.length);
    else if (codec === GZIP && endsWith(src, dst.length)) out = gunzip(src, new Uint8Array(dst.length));
    else return false;
    if (out.length !== dst.length) return false;
    dst.set(out);
    return true;
  } catch {
    return false;
  }
}
