// Inflating zstd to a size that is known, whatever the input claims.

import { Decompress } from 'fzstd';
import xxhash from 'xxhash-wasm';

let hashes;
/** Content checksums can be held against once this is settled. */
export const ready = xxhash().then((h) => { hashes = h; });

/** Bytes that came out whole, and do not fit the checksum that their frame has of them. */
export class ChecksumError extends Error {
  constructor(message, bytes) {
    super(message);
    this.bytes = bytes;
  }
}

/** The largest window that a frame may ask for. */
const MAX_WINDOW = 128 << 20;

/**
 * Reads a frame's header: {window, size}, size -1 when it isn't said; null when
 * the bytes begin no frame.
 */
export function frameHeader(b) {
  if (b.length < 6 || b[0] !== 0x28 || b[1] !== 0xb5 || b[2] !== 0x2f || b[3] !== 0xfd) return null;
  const v = new DataView(b.buffer, b.byteOffset, b.length);
  const d = b[4];
  const single = (d >> 5) & 1;
  const dict = [0, 1, 2, 4][d & 3];
  const n = [single, 2, 4, 8][d >> 6];
  let p = 5 + (single ? 0 : 1) + dict;
  if (b.length < p + n) return null;
  let size = -1;
  if (n === 1) size = v.getUint8(p);
  if (n === 2) size = v.getUint16(p, true) + 256;
  if (n === 4) size = v.getUint32(p, true);
  if (n === 8) size = Number(v.getBigUint64(p, true));
  p += n;
  const w = 2 ** (10 + (b[5] >> 3));
  const window = single ? size : w + (w / 8) * (b[5] & 7);
  return { window, size, length: p, checksum: (d & 4) !== 0 };
}

/** Where the frame ends whose header ends at p, -1 when it is cut or has a block that is none. */
function frameEnd(b, p, checksum) {
  for (let last = false; !last;) {
    if (p + 3 > b.length) return -1;
    const h = b[p] | (b[p + 1] << 8) | (b[p + 2] << 16);
    last = (h & 1) === 1;
    const type = (h >> 1) & 3;
    if (type === 3) return -1;
    p += 3 + (type === 1 ? 1 : h >> 3);
  }
  if (checksum) p += 4;
  return p <= b.length ? p : -1;
}

/** Inflates src, one frame or several, to exactly size bytes, or throws; a ChecksumError has them all the same. */
export function inflateExactly(src, size) {
  if (!hashes) throw new Error('checksums can’t be held against yet');
  const out = new Uint8Array(size);
  let at = 0;
  let wrong = '';
  for (let p = 0; p < src.length || p === 0;) {
    if (p > 0 && src.length - p >= 8 && (src[p] & 0xf0) === 0x50 && src[p + 1] === 0x2a && src[p + 2] === 0x4d && src[p + 3] === 0x18) {
      p += 8 + new DataView(src.buffer, src.byteOffset + p + 4, 4).getUint32(0, true);
      continue;
    }
    const head = frameHeader(src.subarray(p));
    if (!head) throw new Error('it is no zstd frame');
    if (head.size > size - at) throw new Error(`its header says ${at + head.size} bytes, not ${size}`);
    if (head.window > MAX_WINDOW) throw new Error(`it needs a window of ${head.window} bytes`);
    const end = frameEnd(src, p + head.length, head.checksum);
    if (end < 0) throw new Error('it is cut, or has a block that is none');
    const hash = head.checksum ? hashes.create64() : null;
    const from = at;
    new Decompress((chunk) => {
      if (at + chunk.length > size) throw new Error(`it holds more than ${size} bytes`);
      out.set(chunk, at);
      hash?.update(chunk);
      at += chunk.length;
    }).push(src.subarray(p, end), true);
    if (head.size >= 0 && at - from !== head.size) throw new Error(`it holds ${at - from} bytes, not ${head.size}`);
    if (hash) {
      const says = new DataView(src.buffer, src.byteOffset + end - 4, 4).getUint32(0, true);
      const is = Number(hash.digest() & 0xffffffffn);
      if (says !== is) wrong ||= `its content checksum is 0x${says.toString(16).padStart(8, '0')}, that of its bytes 0x${is.toString(16).padStart(8, '0')}`;
    }
    p = end;
  }
  if (at !== size) throw new Error(`it holds ${at} bytes, not ${size}`);
  if (wrong) throw new ChecksumError(wrong, out);
  return out;
}
