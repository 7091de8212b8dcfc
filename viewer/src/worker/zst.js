// Compressed capture files: zstd in independent frames, so that only the frames
// that are looked at are inflated. Where the frames lie is read from the seek
// table at the end (zstd's seekable format), or found from the frames' headers.

import { Decompress } from 'fzstd';
import { frameHeader, inflateExactly } from './zstd.js';

const FRAME = 0xfd2fb528;
const SKIPPABLE = 0x184d2a50; // to …5f
const SEEK_FOOTER = 0x8f92eab1;
/** The most bytes that one frame may inflate to. */
export const MAX_FRAME = 256 << 20;
/** How many frames are kept inflated. */
const KEPT = 3;
const MAX_FRAMES = 1 << 20;

export class ZstPart {
  /** Opens a compressed part; what can't be read by ranges is said. */
  static async open(part) {
    const z = new ZstPart();
    z.part = part;
    z.name = part.name;
    z.local = part.local;
    z.frames = (await seekTable(part)) ?? (await walkFrames(part));
    z.size = 0;
    for (const f of z.frames) {
      if (f.size < 0) f.size = await inflatedSize(part, f);
      if (f.size > MAX_FRAME) {
        throw new Error(`${part.name} is compressed in one piece of ${f.size} bytes, more than can be inflated here: unpack it with zstd -d`);
      }
      f.at = z.size;
      z.size += f.size;
    }
    z.cache = new Map();
    return z;
  }

  async read(from, n) {
    let lo = 0;
    let hi = this.frames.length - 1;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (this.frames[mid].at <= from) lo = mid;
      else hi = mid - 1;
    }
    if (!this.frames.length) return new Uint8Array(0);
    const b = await this.frame(lo);
    const skip = from - this.frames[lo].at;
    return b.subarray(skip, skip + n);
  }

  async frame(i) {
    let b = this.cache.get(i);
    if (!b) {
      b = inflate(this.part, this.frames[i]);
      b.catch(() => this.cache.delete(i));
    }
    this.cache.delete(i);
    this.cache.set(i, b);
    if (this.cache.size > KEPT) this.cache.delete(this.cache.keys().next().value);
    return b;
  }
}

async function inflate(part, f) {
  const packed = await part.read(f.from, f.length);
  let b;
  try {
    b = inflateExactly(packed, f.size);
  } catch (e) {
    throw new Error(`${part.name}: the compressed frame at ${f.from} is damaged: ${e.message}`);
  }
  return b;
}

/** What a frame inflates to, where its header doesn't say. */
async function inflatedSize(part, f) {
  let n = 0;
  const d = new Decompress((chunk) => {
    n += chunk.length;
    if (n > MAX_FRAME) throw new Error(`more than ${MAX_FRAME} bytes in one piece: unpack it with zstd -d`);
  });
  try {
    for (let at = 0; at < f.length; at += 1 << 20) {
      const m = Math.min(1 << 20, f.length - at);
      d.push(await part.read(f.from + at, m), at + m === f.length);
    }
  } catch (e) {
    throw new Error(`${part.name}: the compressed frame at ${f.from} can't be inflated (${e.message})`);
  }
  return n;
}

async function seekTable(part) {
  if (part.size < 17) return null;
  const tail = await part.read(part.size - 9, 9);
  const v = new DataView(tail.buffer, tail.byteOffset, 9);
  if (v.getUint32(5, true) !== SEEK_FOOTER) return null;
  const count = v.getUint32(0, true);
  const entry = tail[4] & 0x80 ? 12 : 8;
  const size = count * entry + 9;
  if (count > MAX_FRAMES || size + 8 > part.size) return null;
  const table = await part.read(part.size - size, size);
  const t = new DataView(table.buffer, table.byteOffset, size);
  const frames = [];
  let from = 0;
  for (let i = 0; i < count; i++) {
    const length = t.getUint32(i * entry, true);
    const inflated = t.getUint32(i * entry + 4, true);
    if (inflated > 0) frames.push({ from, length, size: inflated });
    from += length;
  }
  return from === part.size - size - 8 ? frames : null;
}

/** Finds the frames by their headers and block headers. */
async function walkFrames(part) {
  const frames = [];
  let p = 0;
  const head = async (at, n) => {
    const b = await part.read(at, Math.min(n, part.size - at));
    return new DataView(b.buffer, b.byteOffset, b.length);
  };
  while (p < part.size) {
    const v = await head(p, 18);
    if (v.byteLength < 8) throw damaged(part, p);
    const magic = v.getUint32(0, true);
    if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE) {
      p += 8 + v.getUint32(4, true);
      continue;
    }
    if (magic !== FRAME || frames.length === MAX_FRAMES) throw damaged(part, p);
    const f = frameHeader(new Uint8Array(v.buffer, v.byteOffset, v.byteLength));
    if (!f) throw damaged(part, p);
    let q = p + f.length;
    for (let last = false; !last;) {
      const b = await head(q, 3);
      if (b.byteLength < 3) throw damaged(part, q);
      const h = b.getUint8(0) | (b.getUint8(1) << 8) | (b.getUint8(2) << 16);
      last = (h & 1) === 1;
      const type = (h >> 1) & 3;
      if (type === 3) throw damaged(part, q);
      q += 3 + (type === 1 ? 1 : h >> 3);
    }
    if (f.checksum) q += 4;
    if (q > part.size) throw damaged(part, q);
    if (f.size !== 0) frames.push({ from: p, length: q - p, size: f.size });
    p = q;
  }
  return frames;
}

function damaged(part, at) {
  return new Error(`${part.name}: no zstd frame at ${at}: the compressed file is cut or damaged`);
}

/** Whether bytes begin a zstd file. */
export function isZst(b) {
  return b.length >= 4 && (new DataView(b.buffer, b.byteOffset).getUint32(0, true) === FRAME ||
    (b[0] & 0xf0) === 0x50 && b[1] === 0x2a && b[2] === 0x4d && b[3] === 0x18);
}
