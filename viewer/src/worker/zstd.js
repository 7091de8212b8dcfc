// Inflating zstd to a size that is known, whatever the input claims.

import { Decompress } from 'fzstd';

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

/** Inflates src to exactly size bytes, or throws. */
export function inflateExactly(src, size) {
  const head = frameHeader(src);
  if (!head) throw new Error('it is no zstd frame');
  if (head.size >= 0 && head.size !== size) throw new Error(`its header says ${head.size} bytes, not ${size}`);
  if (head.window > MAX_WINDOW) throw new Error(`it needs a window of ${head.window} bytes`);
  const out = new Uint8Array(size);
  let at = 0;
  const d = new Decompress((chunk) => {
    if (at + chunk.length > size) throw new Error(`it holds more than ${size} bytes`);
    out.set(chunk, at);
    at += chunk.length;
  });
  d.push(src, true);
  if (at !== size) throw new Error(`it holds ${at} bytes, not ${size}`);
  return out;
}
