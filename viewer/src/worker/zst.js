// Compressed capture files: zstd in independent frames, so that only the frames
// that are looked at are inflated. Where the frames lie is read from the seek
// table at the end (zstd's seekable format), or found from the frames' headers.

import { Decompress } from 'fzstd';
import { ChecksumError, frameHeader, inflateExactly, ready } from './zstd.js';
import { ChangedError, Ended } from './reader.js';

/** Compressed bytes that do not inflate. */
class DamagedError extends Error {}

const FRAME = 0xfd2fb528;
const SKIPPABLE = 0x184d2a50; // to …5f
const SEEK_FOOTER = 0x8f92eab1;
/** The most bytes that one frame may inflate to. */
export const MAX_FRAME = 256 << 20;
/** How many bytes of frames are kept inflated, the last one in any case. */
const KEPT = 16 << 20;
/** Of larger frames what is read is copied, so that no reader of some of it holds it all. */
const COPIED = 2 << 20;
const MAX_FRAMES = 1 << 20;

export class ZstPart {
  /** Opens a compressed part; what can't be read by ranges is said. */
  static async open(part) {
    await ready;
    const z = new ZstPart();
    z.part = part;
    z.name = part.name;
    z.local = part.local;
    /** What is known to be damaged: notes with offsets in the inflated bytes. */
    z.damages = [];
    /** Called with what is found to be damaged later. */
    z.tell = () => {};
    z.frames = [];
    z.size = 0;
    z.cache = new Map();
    z.queue = Promise.resolve();
    const table = await seekTable(part);
    z.byTable = table !== null;
    await z.lay(table ?? (await walkFrames(part)));
    return z;
  }

  /** Lays the frames one after the other. */
  async lay({ frames, why }) {
    const { part } = this;
    let wrong = why;
    for (const f of frames) {
      let bad = f.bad;
      if (f.size < 0 || bad) {
        const count = await inflatedSize(part, f);
        f.size = count.size;
        bad ||= count.why;
      }
      if (f.size > MAX_FRAME) {
        throw new Error(`${part.name} is compressed in one piece of ${f.size} bytes, more than can be inflated here: unpack it with zstd -d`);
      }
      this.take(f, Boolean(bad));
      if (bad) {
        wrong = bad;
        break;
      }
    }
    if (wrong) this.ends(wrong);
  }

  /** The next frame; of one that is cut what comes out of it. */
  take(f, cut) {
    if (f.size === 0) return;
    Object.assign(f, { at: this.size, cut });
    this.frames.push(f);
    this.size += f.size;
  }

  /** Nothing more comes out of it. */
  ends(why) {
    this.note({ offset: this.size, message: `${this.name} decompresses only up to byte ${this.size}: ${why}`, cost: 'the bytes behind that' });
  }

  note(n) {
    const note = { kind: 'damaged-zstd', ...n };
    this.damages.push(note);
    this.tell(note);
  }

  /** Inflates all of it, so that what is damaged is known; behind damage that can't be read over it ends. */
  async prove(alive) {
    for (const [i, f] of this.frames.entries()) {
      try {
        await this.inflate(f, true);
      } catch (e) {
        if (!(e instanceof DamagedError)) throw e;
        if (this.byTable) {
          // It may be the table that is wrong: the frames tell by themselves.
          Object.assign(this, { byTable: false, frames: [], size: 0, damages: [] });
          this.cache.clear();
          await this.lay(await walkFrames(this.part));
          await this.prove(alive);
          return;
        }
        const { size } = await inflatedSize(this.part, f);
        this.frames.length = i;
        this.size = f.at;
        this.take(Object.assign(f, { size: Math.min(size, MAX_FRAME) }), true);
        this.ends(e.why);
        return;
      }
      await alive();
    }
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
    return b.length > COPIED ? b.slice(skip, skip + n) : b.subarray(skip, skip + n);
  }

  frame(i) {
    let b = this.cache.get(i);
    this.cache.delete(i);
    if (!b) {
      // Room is made before there is more; one frame at a time is inflated.
      let kept = this.frames[i].size;
      for (const j of [...this.cache.keys()].reverse()) {
        kept += this.frames[j].size;
        if (kept > KEPT) this.cache.delete(j);
      }
      b = this.queue.then(() => this.inflate(this.frames[i]));
      b.catch(() => this.cache.delete(i));
      this.queue = b.then(() => {}, () => {});
    }
    this.cache.set(i, b);
    return b;
  }

  /** Inflates a frame. Damage is thrown where it is looked for; later its place has been counted with. */
  async inflate(f, proving = false) {
    const packed = await this.part.read(f.from, f.length);
    try {
      return f.cut ? inflateSome(packed, f.size) : inflateExactly(packed, f.size);
    } catch (e) {
      if (e instanceof ChecksumError) {
        if (!f.wrong) {
          f.wrong = true;
          this.note({ offset: f.at, end: f.at + f.size, message: `${this.name}: bytes ${f.at} to ${f.at + f.size} are not what was compressed: ${e.message}` });
        }
        return e.bytes;
      }
      const why = `the compressed frame at ${f.from} is damaged: ${e.message}`;
      if (proving) throw Object.assign(new DamagedError(`${this.name}: ${why}`), { why });
      if (!f.wrong) {
        f.wrong = true;
        this.note({ offset: f.at, end: f.at + f.size, message: `${this.name}: ${why}; what does not come out of it, to byte ${f.at + f.size}, is shown as zeros`, cost: `up to ${f.size} bytes` });
      }
      return inflateSome(packed, f.size);
    }
  }
}

/** The first size bytes that a damaged frame inflates to. */
function inflateSome(packed, size) {
  const out = new Uint8Array(size);
  let at = 0;
  try {
    const d = new Decompress((chunk) => {
      const b = chunk.subarray(0, size - at);
      out.set(b, at);
      at += b.length;
      if (at === size) throw new Error('enough');
    });
    d.push(packed, true);
  } catch {
    // It is known to be damaged.
  }
  return out;
}

/** What a frame inflates to, where its header doesn't say: {size, why}, why where it comes to no end. */
async function inflatedSize(part, f) {
  let size = 0;
  const d = new Decompress((chunk) => {
    size += chunk.length;
    if (size > MAX_FRAME) throw new Error(`more than ${MAX_FRAME} bytes in one piece`);
  });
  try {
    const head = frameHeader(await part.read(f.from, Math.min(18, f.length)));
    if (head?.window > MAX_FRAME) throw new Error(`it needs a window of ${head.window} bytes`);
    for (let at = 0; at < f.length; at += 1 << 20) {
      const m = Math.min(1 << 20, f.length - at);
      d.push(await part.read(f.from + at, m), at + m === f.length);
    }
  } catch (e) {
    if (e instanceof ChangedError || e instanceof Ended) throw e;
    return { size, why: `the compressed frame at ${f.from} can't be inflated (${e.message})` };
  }
  return { size };
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
    if (length > 0 && inflated === 0) return null; // the frame tells
    if (inflated > 0) frames.push({ from, length, size: inflated });
    from += length;
  }
  return from === part.size - size - 8 ? { frames } : null;
}

/**
 * Finds the frames by their headers and block headers: {frames, why}, why where
 * something that is none follows. The last frame has bad where it is cut or damaged.
 */
async function walkFrames(part) {
  const frames = [];
  let p = 0;
  const head = async (at, n) => {
    const b = at < part.size ? await part.read(at, Math.min(n, part.size - at)) : new Uint8Array(0);
    return new DataView(b.buffer, b.byteOffset, b.length);
  };
  const none = (at) => `no zstd frame at ${at}: the compressed file is cut or damaged`;
  while (p < part.size) {
    const v = await head(p, 18);
    if (v.byteLength < 8) return { frames, why: none(p) };
    const magic = v.getUint32(0, true);
    if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE) {
      p += 8 + v.getUint32(4, true);
      if (p > part.size) return { frames, why: `the compressed file ends ${p - part.size} bytes before the end of its last piece` };
      continue;
    }
    const f = magic === FRAME && frames.length < MAX_FRAMES ? frameHeader(new Uint8Array(v.buffer, v.byteOffset, v.byteLength)) : null;
    if (!f) return { frames, why: none(p) };
    let q = p + f.length;
    let bad = '';
    for (let last = false; !last && !bad;) {
      const b = await head(q, 3);
      const h = b.byteLength < 3 ? 6 : b.getUint8(0) | (b.getUint8(1) << 8) | (b.getUint8(2) << 16);
      last = (h & 1) === 1;
      const type = (h >> 1) & 3;
      if (type === 3) bad = `the compressed frame at ${p} is cut or damaged at ${q}`;
      q += 3 + (type === 1 ? 1 : h >> 3);
    }
    if (f.checksum) q += 4;
    if (q > part.size) bad ||= `the compressed file ends ${q - part.size} bytes before the end of its frame at ${p}`;
    if (bad) {
      frames.push({ from: p, length: part.size - p, size: -1, bad });
      return { frames };
    }
    if (f.size !== 0) frames.push({ from: p, length: q - p, size: f.size });
    p = q;
  }
  return { frames };
}

/** Whether bytes begin a zstd file. */
export function isZst(b) {
  return b.length >= 4 && (new DataView(b.buffer, b.byteOffset).getUint32(0, true) === FRAME ||
    (b[0] & 0xf0) === 0x50 && b[1] === 0x2a && b[2] === 0x4d && b[3] === 0x18);
}
