// The arrival index of a capture file (docs/capture-format.md): when each read
// of the transport came. The file's own bytes are kept as they are, with a mark
// at every 256th record; what lies between is read again for each question.

const MAGIC = 'WTARRIX1';
const HEADER = 32;
const EVERY = 256;

/** A varint at p: [value as a Number or, where it is long, a BigInt, next p]; p is -1 at a cut. */
function varint(b, p) {
  let v = 0;
  let scale = 1;
  for (let i = 0; i < 7; i++) {
    if (p >= b.length) return [0, -1];
    const c = b[p++];
    v += (c & 127) * scale;
    if (c < 128) return [v, p];
    scale *= 128;
  }
  let long = BigInt(v);
  let shift = 49n;
  for (let i = 0; i < 3; i++) {
    if (p >= b.length) return [0, -1];
    const c = b[p++];
    long |= BigInt(c & 127) << shift;
    if (c < 128) return [BigInt.asUintN(64, long), p];
    shift += 7n;
  }
  return [0, -1];
}

function zigzag(v) {
  if (typeof v === 'number') return v % 2 === 0 ? v / 2 : -(v + 1) / 2;
  return v & 1n ? -((v + 1n) >> 1n) : v >> 1n;
}

export class Arrivals {
  /** Null when the bytes are no arrival index. */
  static parse(bytes) {
    if (bytes.length < HEADER || String.fromCharCode(...bytes.subarray(0, 8)) !== MAGIC) return null;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const a = new Arrivals();
    a.bytes = bytes;
    a.start = Number(view.getBigInt64(8, true));
    a.marks = []; // {p, offset, wall, highest}
    a.records = 0;
    let s = { p: HEADER, offset: a.start, wall: view.getBigInt64(16, true) };
    let highest = null;
    a.first = null;
    for (;;) {
      if (a.records % EVERY === 0) a.marks.push({ ...s, highest });
      const r = a.step(s);
      if (!r) break;
      a.first ??= r.wall;
      if (highest === null || r.wall > highest) highest = r.wall;
      a.records++;
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
    a.end = s.offset;
    a.last = a.records ? s.wall : null;
    a.highest = highest;
    return a;
  }

  /** The record after a state: {p, offset, length, wall}; null at the end. */
  step(s) {
    let [n, p] = varint(this.bytes, s.p);
    if (p < 0 || typeof n !== 'number' || n === 0) return null;
    let mono;
    let skew;
    [mono, p] = varint(this.bytes, p);
    if (p < 0) return null;
    [skew, p] = varint(this.bytes, p);
    // A checksum of the bytes follows.
    p = p < 0 ? p : p + 4;
    if (p < 0 || p > this.bytes.length) return null;
    return { p, offset: s.offset, length: n, wall: s.wall + BigInt(mono) + BigInt(zigzag(skew)) };
  }

  /** When the byte at an offset came, nanoseconds since 1970; null when not known. */
  at(offset) {
    if (offset < this.start || offset >= this.end) return null;
    let lo = 0;
    let hi = this.marks.length - 1;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (this.marks[mid].offset <= offset) lo = mid;
      else hi = mid - 1;
    }
    let s = this.marks[lo];
    for (let r = this.step(s); r; r = this.step(s)) {
      if (offset < r.offset + r.length) return r.wall;
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
    return null;
  }

  /** The offset of the first read that came at a time or after it, null when none did. */
  offsetAt(time) {
    if (this.highest === null || this.highest < time) return null;
    let i = this.marks.findIndex((m) => m.highest !== null && m.highest >= time);
    i = i < 0 ? this.marks.length - 1 : Math.max(0, i - 1);
    let s = this.marks[i];
    for (let r = this.step(s); r; r = this.step(s)) {
      if (r.wall >= time) return r.offset;
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
    return null;
  }
}

/**
 * Puts offsets in the place of arrival times in a filter: bytes arrive in the
 * order of their offsets. What is put there is as long as what was, so that the
 * place of a fault stays right.
 * @param {(time: bigint) => number|null} offsetAt the first offset that came at a time or after it
 * @param {(text: string) => bigint|null} parse reads a time
 */
export function arrivalToOffset(expression, offsetAt, parse, end) {
  return expression.replace(/"(?:\\.|[^"\\])*"?|\barrival(\s*)(>=|<=|>|<)(\s*)([\w.:+-]+)/gi, (all, a, op, b, value) => {
    if (op === undefined) return all; // a quoted text
    const t = parse(value);
    if (t === null) return all;
    const offset = offsetAt(op === '>' || op === '<=' ? t + 1n : t) ?? end;
    return `offset${a}${op[0] === '>' ? '>=' : '<'}${b}${offset}`.padEnd(all.length);
  });
}
