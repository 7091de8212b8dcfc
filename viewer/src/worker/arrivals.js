// The arrival index of a capture file (docs/capture-format.md): when each read
// of the transport came, and the checksum of its bytes. The file's own bytes are
// kept as they are, with a mark at every 256th record; what lies between is read
// again for each question. Wall clocks are set back and forth, so nothing here
// takes the times to rise.

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
    a.view = view;
    a.start = Number(view.getBigInt64(8, true));
    a.marks = []; // {p, offset, wall} before a block of records, with its lowest and highest time
    a.records = 0;
    let s = { p: HEADER, offset: a.start, wall: view.getBigInt64(16, true) };
    let m = null;
    a.first = null;
    for (;;) {
      const r = a.step(s);
      if (!r) break;
      if (a.records % EVERY === 0) a.marks.push(m = { ...s, lowest: r.wall, highest: r.wall });
      if (r.wall < m.lowest) m.lowest = r.wall;
      if (r.wall > m.highest) m.highest = r.wall;
      a.first ??= r.wall;
      a.records++;
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
    a.end = s.offset;
    a.last = a.records ? s.wall : null;
    return a;
  }

  /** The same index up to the record that begins at an offset; null when that is its first. */
  upTo(offset) {
    let s = { p: HEADER, offset: this.start, wall: this.view.getBigInt64(16, true) };
    while (s.offset < offset) {
      const r = this.step(s);
      if (!r) break;
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
    return s.p === HEADER ? null : Arrivals.parse(this.bytes.slice(0, s.p));
  }

  /** The record after a state: {p, offset, length, wall, crc}; null at the end. */
  step(s) {
    let [n, p] = varint(this.bytes, s.p);
    if (p < 0 || typeof n !== 'number' || n === 0) return null;
    let mono;
    let skew;
    [mono, p] = varint(this.bytes, p);
    if (p < 0) return null;
    [skew, p] = varint(this.bytes, p);
    if (p < 0 || p + 4 > this.bytes.length) return null;
    return { p: p + 4, offset: s.offset, length: n, wall: s.wall + BigInt(mono) + BigInt(zigzag(skew)), crc: this.view.getUint32(p, true) };
  }

  /** Calls f with each record of the block behind a mark. */
  block(i, f) {
    let s = this.marks[i];
    for (let n = 0; n < EVERY; n++) {
      const r = this.step(s);
      if (!r) return;
      f(r);
      s = { p: r.p, offset: r.offset + r.length, wall: r.wall };
    }
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
    const i = this.marks.findIndex((m) => m.highest >= time);
    if (i < 0) return null;
    let offset = null;
    this.block(i, (r) => { if (r.wall >= time) offset ??= r.offset; });
    return offset;
  }

  /** The stretches [from, to) of bytes that came at times that a comparison takes. */
  ranges(operator, time) {
    const takes = { '<': (t) => t < time, '<=': (t) => t <= time, '>': (t) => t > time, '>=': (t) => t >= time }[operator];
    const out = [];
    const add = (from, to) => {
      const last = out[out.length - 1];
      if (last && last[1] === from) last[1] = to;
      else out.push([from, to]);
    };
    this.marks.forEach((m, i) => {
      const low = takes(m.lowest);
      const high = takes(m.highest);
      if (low && high) add(m.offset, this.marks[i + 1]?.offset ?? this.end);
      else if (low || high) this.block(i, (r) => { if (takes(r.wall)) add(r.offset, r.offset + r.length); });
    });
    return out;
  }
}

/** The most steps of an axis: a clock that jumps with every read makes one of each. */
const MAX_STEPS = 100000;

/**
 * The arrival axis of a connection in a number of bins: {from, step, to, steps},
 * from and to the first and last time and step a bin's width in nanoseconds,
 * steps [offset, bin] pairs in rising order of offset, bin -1 where it isn't
 * known when the bytes came. Null without any arrival times.
 * @param {{start: number, end: number, arrivals: Arrivals|null}[]} files
 */
export function arrivalAxis(files, bins) {
  const known = files.map((f) => f.arrivals).filter((a) => a?.records);
  if (!known.length) return null;
  let from = known[0].first;
  let to = from;
  for (const a of known) {
    for (const m of a.marks) {
      if (m.lowest < from) from = m.lowest;
      if (m.highest > to) to = m.highest;
    }
  }
  const step = (to - from) / BigInt(bins) + 1n;
  const binOf = (t) => Number((t - from) / step);
  const steps = [];
  const put = (offset, bin) => {
    if ((steps.length ? steps[steps.length - 1][1] : -1) !== bin) steps.push([offset, bin]);
  };
  let end = files[0].start;
  for (const f of files) {
    const a = f.arrivals;
    if (f.start > end) put(end, -1);
    end = f.end;
    if (!a?.records) {
      put(f.start, -1);
      continue;
    }
    a.marks.forEach((m, i) => {
      if (binOf(m.lowest) === binOf(m.highest)) put(m.offset, binOf(m.lowest));
      else a.block(i, (r) => put(r.offset, binOf(r.wall)));
    });
    if (a.end < f.end) put(a.end, -1);
    if (steps.length > MAX_STEPS) return null;
  }
  return { from, to, step, steps };
}

/** The most stretches that the comparisons of one filter become, all together (wasm/index). */
const MAX_STRETCHES = 1 << 17;

/** What a filter's comparisons with times of arrival take: of the number of them there are, one's stretches; what is beyond its part of the most is taken as one. */
export function stretches(files, { op, time }, comparisons) {
  const most = Math.floor(MAX_STRETCHES / comparisons);
  const list = joined(files.map((f) => f.arrivals?.ranges(op, BigInt(time)) ?? []));
  if (list.length > most) list.splice(most - 1, list.length, [list[most - 1][0], list[list.length - 1][1]]);
  return list;
}

/** The stretches of several files' ranges, joined where one ends as the next begins. */
function joined(lists) {
  const out = [];
  for (const r of lists.flat()) {
    const last = out[out.length - 1];
    if (last && last[1] >= r[0]) last[1] = Math.max(last[1], r[1]);
    else out.push([...r]);
  }
  return out;
}
