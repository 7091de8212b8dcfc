// The page's own parts without a browser: times, arrival indexes, compressed
// files, search, names.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytes, colours, duration, parseShown, parseTime, span, time } from '../src/format.js';
import { Arrivals, arrivalAxis, stretches } from '../src/worker/arrivals.js';
import { compare, describe, group, load, runs, whatItIs } from '../src/worker/captures.js';
import { crc32c } from '../src/worker/crc32c.js';
import { lz4, lz4Raw } from '../src/worker/lz4.js';
import { ops as parquet } from '../src/worker/parquet.js';
import { Packer, packContext } from '../src/worker/packed.js';
import { Pattern, patternBytes } from '../src/worker/search.js';
import { ChangedError, Stream, Window } from '../src/worker/reader.js';
import { filesOf } from '../src/listing.js';
import { parse, read } from '../src/worker/sidecar.js';
import { ZstPart, isZst } from '../src/worker/zst.js';
import { visible } from '../src/dom.js';
import { inflate } from '../src/worker/inflate.js';
import { inflateExactly, ready } from '../src/worker/zstd.js';
import { root, test } from './browser.mjs';
import { generate, work } from './fixtures.mjs';
import { brotliCompressSync, gzipSync } from 'node:zlib';

/** A part of memory that counts how it is read. */
class Memory {
  constructor(bytes, name = 'memory') {
    this.bytes = bytes;
    this.name = name;
    this.size = bytes.length;
    this.reads = [];
  }

  async read(from, n) {
    this.reads.push([from, n]);
    return this.bytes.slice(from, from + n);
  }
}

test('a kind has its colour in every capture, and no other kind has it', () => {
  const frame = (kind) => ({ type: 'frame', kind });
  const one = [{ type: 'preamble' }, frame(1), frame(2), frame(4), { type: 'junk' }, frame(3)];
  const two = [{ type: 'preamble' }, frame(4), frame(1), frame(3), frame(2)];
  const by = (list) => Object.fromEntries(list.map((k, i) => [`${k.type} ${k.kind}`, colours(list)[i]]));
  for (const [k, c] of Object.entries(by(two))) assert.equal(by(one)[k], c, k);
  const many = [{ type: 'preamble' }, frame(0), frame(10), frame(20), frame(153), { type: 'junk' }, { type: 'cut' }, { type: 'zeros' }, frame(8), frame(9)];
  assert.equal(new Set(colours(many)).size, 10);
  assert.ok(colours([...many, frame(11)]).every((c) => c >= 0 && c < 10));
});

test('times are exact to the nanosecond, before 1970 and at the ends of the range', () => {
  assert.equal(time('1700000000123456789', 'utc'), '2023-11-14 22:13:20.123456789');
  assert.equal(time('-1', 'utc'), '1969-12-31 23:59:59.999999999');
  assert.equal(time('9223372036854775807', 'utc'), '2262-04-11 23:47:16.854775807');
  assert.equal(time('-9223372036854775808', 'utc'), '1677-09-21 00:12:43.145224192');
  assert.equal(time('1700000000123456789', 'raw'), '1700000000123456789');
  assert.equal(time('1700000061000000001', 'relative', 1700000000000000000n), '+1 m 01.000000001 s');
  assert.equal(duration('-3723000000004'), '−1 h 02 m 03.000000004 s');
  assert.equal(span(1500n), '1.5 µs');
  assert.equal(bytes(1536), '1.50 KiB');
  assert.equal(parseTime('2023-11-14T22:13:20.123456789Z'), 1700000000123456789n);
  assert.equal(parseTime('2023-11-14'), 1699920000000000000n);
  assert.equal(parseTime('soon'), null);
  // What is shown is read back, in every mode.
  for (const ns of [1700000000123456789n, 1690000000000000001n, 5n]) {
    for (const mode of ['utc', 'local', 'relative', 'raw']) {
      const origin = 1699999990000000000n;
      if (mode === 'raw' && ns < 10n) continue;
      assert.equal(parseShown(time(ns, mode, origin), mode, origin, null), ns, `${mode} ${ns}`);
    }
  }
  assert.equal(parseShown('22:13:20.5', 'utc', null, '2023-11-14'), 1700000000500000000n);
  assert.equal(parseShown('22:13:20.5', 'utc', null, null), null);
  assert.equal(parseShown('2023-11-14T22:13:20Z', 'local', null, null), 1700000000000000000n);
  assert.equal(parseShown('+1 h 00 m 02.5 s', 'relative', 10n, null), 3602500000010n);
});

test('the page reads times by the rules of the filter', () => {
  const lines = readFileSync(join(root, 'wasm', 'filter', 'testdata', 'times.txt'), 'utf8').split('\n').filter((l) => l && !l.startsWith('#'));
  assert.ok(lines.length > 60);
  for (const l of lines) {
    const [text, want] = l.split('\t');
    assert.equal(parseTime(text), want === 'none' ? null : BigInt(want), JSON.stringify(text));
  }
  // What is shown and lies beyond the range is none.
  assert.equal(parseShown('+9999999 h 00 m 00 s', 'relative', 0n, null), null);
  assert.equal(parseShown('2023-02-31 10:00', 'local', null, null), null);
  assert.equal(parseTime('9'.repeat(200000)), null);
});

/** An arrival index: magic, header, and records as the recorder writes them. */
function index(start, wall, records) {
  const p = new Packer();
  p.raw(Buffer.from('WTARRIX1'));
  const head = Buffer.alloc(24);
  head.writeBigInt64LE(BigInt(start), 0);
  head.writeBigInt64LE(wall, 8);
  p.raw(head);
  for (const [n, mono, skew] of records) p.uint(n).uint(mono).int(skew).raw(Buffer.from([1, 2, 3, 4]));
  return p.done().slice();
}

test('an arrival index is read by marks, over clock steps, and up to a cut', () => {
  const records = [];
  for (let i = 0; i < 2000; i++) records.push([100 + (i % 7), 1000000, i === 900 ? -157680000000000000n : i === 901 ? 157680000000000000n : 3]);
  const b = index(5000, 1700000000000000000n, records);
  const a = Arrivals.parse(b);
  assert.equal(a.records, 2000);
  let offset = 5000;
  let wall = 1700000000000000000n;
  for (const [n, mono, skew] of records) {
    wall += BigInt(mono) + BigInt(skew);
    assert.equal(a.at(offset), wall);
    assert.equal(a.at(offset + n - 1), wall);
    offset += n;
  }
  assert.equal(a.at(offset), null);
  assert.equal(a.at(4999), null);
  assert.equal(a.offsetAt(1700000000000000000n), 5000);
  assert.equal(a.offsetAt(wall), offset - records[1999][0]);
  assert.equal(a.offsetAt(wall + 1n), null);
  for (let cut = 32; cut < 200; cut++) {
    const c = Arrivals.parse(b.slice(0, cut));
    assert.ok(c.records <= Math.floor((cut - 32) / 8));
  }
  assert.equal(Arrivals.parse(new Uint8Array(10)), null);
});

test('stretches and the axis of arrival hold for clocks that are set back', () => {
  const records = [];
  for (let i = 0; i < 3000; i++) records.push([50 + (i % 9), 1000000, i === 900 ? 3600000000000 : i === 1500 ? -7200000000000 : i % 3 - 1]);
  const wall = 1700000000000000000n;
  const a = Arrivals.parse(index(700, wall, records));
  const reads = [];
  let [offset, t] = [700, wall];
  for (const [n, mono, skew] of records) {
    t += BigInt(mono) + BigInt(skew);
    reads.push({ offset, end: offset + n, wall: t });
    offset += n;
  }
  const compare = { '<': (x, y) => x < y, '<=': (x, y) => x <= y, '>': (x, y) => x > y, '>=': (x, y) => x >= y };
  for (const at of [wall, reads[0].wall, reads[450].wall, reads[901].wall, reads[1600].wall, reads[2999].wall, wall + 3600500000000n, wall - 1n, wall * 2n]) {
    for (const op of Object.keys(compare)) {
      const ranges = a.ranges(op, at);
      const inside = (o) => ranges.some(([x, y]) => o >= x && o < y);
      for (const r of reads) assert.equal(inside(r.offset) && inside(r.end - 1), compare[op](r.wall, at), `${op} ${at} at ${r.offset}`);
      for (let i = 1; i < ranges.length; i++) assert.ok(ranges[i][0] > ranges[i - 1][1]);
    }
  }
  // A file before it has no index, and the last bytes of this one no record.
  const files = [{ start: 0, end: 700, arrivals: null }, { start: 700, end: a.end + 30, arrivals: a }];
  const axis = arrivalAxis(files, 512);
  const low = reads.reduce((m, r) => (r.wall < m ? r.wall : m), reads[0].wall);
  assert.equal(axis.from, low);
  const binAt = (o) => axis.steps.filter(([from]) => from <= o).at(-1)?.[1] ?? -1;
  for (const r of reads.filter((x, i) => i % 37 === 0)) assert.equal(binAt(r.offset), Number((r.wall - axis.from) / axis.step));
  assert.equal(binAt(5), -1);
  assert.equal(binAt(a.end), -1);
  assert.ok(axis.steps.every(([, bin]) => bin >= -1 && bin < 512));
  assert.equal(arrivalAxis([files[0]], 512), null);
  // Up to a place, the rest is gone.
  const cut = a.upTo(reads[1000].offset);
  assert.equal(cut.records, 1000);
  assert.equal(cut.last, reads[999].wall);
  assert.equal(a.upTo(700), null);
});

test('a comparison with a time of arrival becomes stretches of bytes, of several files', () => {
  const wall = 1700000000000000000n;
  // Reads of ten bytes a second apart, every other one by a clock that is an hour ahead.
  const reads = (start, n) => Arrivals.parse(index(start, wall, Array.from({ length: n }, (_, i) => [10, 1000000000, i % 2 ? 3600000000000 : i ? -3600000000000 : 0])));
  const files = [{ arrivals: reads(0, 4) }, { arrivals: null }, { arrivals: reads(40, 3) }, { arrivals: reads(100, 2) }];
  const late = String(wall + 1800000000000n);
  assert.deepEqual(stretches(files, { op: '>=', time: late }, 1), [[10, 20], [30, 40], [50, 60], [110, 120]]);
  assert.deepEqual(stretches(files, { op: '<', time: late }, 1), [[0, 10], [20, 30], [40, 50], [60, 70], [100, 110]]);
  assert.deepEqual(stretches(files, { op: '>=', time: String(-(1n << 63n)) }, 1), [[0, 70], [100, 120]]);
  assert.deepEqual(stretches(files, { op: '>', time: String((1n << 63n) - 1n) }, 1), []);
  // What is more than the decoder takes is one.
  assert.deepEqual(stretches(files, { op: '>=', time: late }, 1 << 16), [[10, 20], [30, 120]]);
});

test('bytes are held against their arrival index', async () => {
  const bytes = new Uint8Array(200000).map((_, i) => (i * 7) ^ (i >> 5));
  const records = [];
  for (let at = 0; at < bytes.length; at += 100) records.push([100, 1000, 0, crc32c(bytes.subarray(at, at + 100))]);
  const build = (list, crcs) => {
    const p = new Packer();
    p.raw(Buffer.from('WTARRIX1')).raw(Buffer.from(new BigInt64Array([5000n, 17n, 0n]).buffer));
    list.forEach(([n, mono, skew, crc], i) => {
      const b = Buffer.alloc(4);
      b.writeUInt32LE(crcs?.(i) ?? crc);
      p.uint(n).uint(mono).int(skew).raw(b);
    });
    return Arrivals.parse(p.done().slice());
  };
  const good = build(records);
  const file = { part: Object.assign(new Memory(bytes, 'x.cap'), { local: true }), start: 5000 };
  for (const whole of [true, false]) {
    const c = await compare(file, good, whole);
    assert.deepEqual([c.notes, c.fits, c.arrivals === good], [[], true, true]);
  }
  // One read that is torn is told with its place, and what came then stays known.
  const torn = bytes.slice();
  torn[60050] ^= 1;
  let c = await compare({ part: new Memory(torn, 'x.cap'), start: 5000 }, good, true);
  assert.deepEqual(c.notes.map((n) => [n.kind, n.offset]), [['torn-bytes', 65000]]);
  assert.match(c.notes[0].expected, /^CRC-32C 0x[0-9a-f]{8}$/);
  assert.equal(c.arrivals, good);
  // An index of other bytes is not used at all, and a few reads are enough to see it.
  const other = build(records, (i) => i);
  for (const whole of [true, false]) {
    c = await compare(file, other, whole);
    assert.deepEqual([c.notes.map((n) => n.kind), c.arrivals], [['arrival-index'], null]);
  }
  // From a record on whose length is damaged nothing has a witness.
  const slipped = build(records.map((r, i) => (i === 1500 ? [101, ...r.slice(1)] : r)));
  c = await compare(file, slipped, true);
  assert.deepEqual([c.notes.map((n) => [n.kind, n.offset]), c.arrivals.records], [[['torn-bytes', 155000]], 1500]);
});

test('a compressed capture is read by ranges, with the seek table and without', async () => {
  const plain = new Uint8Array(9 << 20);
  for (let i = 0; i < plain.length; i++) plain[i] = (i * 31 + (i >> 8)) & 63;
  const file = join(work, 'plain');
  writeFileSync(file, plain);
  const packed = new Uint8Array(readFileSync(generate('zst', file, join(work, 'plain.zst'))));
  assert.ok(isZst(packed));
  const whole = new Uint8Array(readFileSync(generate('zst1', file, join(work, 'one.zst'))));
  for (const [name, b] of [['seekable', packed], ['frames alone', packed.slice(0, packed.length - 17 - 8)], ['one frame', whole]]) {
    const part = new Memory(b);
    let z;
    try {
      z = await ZstPart.open(part);
    } catch (e) {
      // Without its end the table is cut, and that is said.
      assert.equal(name, 'frames alone');
      assert.match(e.message, /cut or damaged/);
      continue;
    }
    assert.equal(z.size, plain.length, name);
    const s = new Stream([{ start: 0, end: z.size, part: z }]);
    for (const [at, n] of [[0, 10], [plain.length - 5, 5], [(4 << 20) - 100, 200], [1 << 20, 3 << 20]]) {
      assert.deepEqual(await s.read(at, n), plain.subarray(at, at + n), `${name} at ${at}`);
    }
  }
  // Of large frames no more than one is kept.
  const large = await ZstPart.open(new Memory(packed));
  large.frames = Array.from({ length: 9 }, (_, i) => ({ size: 9 << 20, at: i * (9 << 20) }));
  large.inflate = async (f) => new Uint8Array(f.size);
  for (let i = 0; i < 9; i++) {
    const b = await large.read(i * (9 << 20) + 5, 100);
    assert.equal(b.buffer.byteLength, 100);
    assert.equal(large.cache.size, 1);
  }
  const bad = packed.slice();
  bad[2000] ^= 255;
  const z = await ZstPart.open(new Memory(bad));
  // Found late, its place has been counted with: all is there but what is damaged.
  const end = await z.read(plain.length - 50, 50);
  assert.deepEqual(end, plain.subarray(plain.length - 50));
  assert.deepEqual(z.damages, []);
  const first = await z.read(0, z.frames[0].size);
  assert.equal(first.length, z.frames[0].size);
  assert.notDeepEqual(first, plain.subarray(0, first.length));
  assert.match(z.damages[0].message, /the compressed frame at 0 is damaged: .*is shown as zeros/);
  await z.read(0, 100);
  assert.equal(z.damages.length, 1);
});

test('a codec gives exactly what was declared, or nothing', async () => {
  await ready;
  const plain = Buffer.from('abc'.repeat(1000));
  const packed = gzipSync(plain);
  const dst = new Uint8Array(3000);
  assert.ok(inflate(2, packed, dst));
  assert.deepEqual(Buffer.from(dst), plain);
  for (const n of [0, 2999, 3001]) assert.ok(!inflate(2, packed, new Uint8Array(n)));
  assert.ok(!inflate(6, packed, new Uint8Array(3000)));
  assert.ok(!inflate(4, packed, new Uint8Array(3000)));
  const brotli = brotliCompressSync(Buffer.concat([plain, Buffer.from('The time has come, the walrus said')]));
  dst.fill(0);
  const all = new Uint8Array(3034);
  assert.ok(inflate(4, brotli, all));
  assert.deepEqual(Buffer.from(all.subarray(0, 3000)), plain);
  for (const n of [0, 3000, 3033, 3035, 100000]) assert.ok(!inflate(4, brotli, new Uint8Array(n)), `${n}`);
  for (let cut = 0; cut < brotli.length; cut++) assert.ok(!inflate(4, brotli.subarray(0, cut), all.fill(0)) || Buffer.from(all.subarray(0, 3000)).equals(plain), `cut at ${cut}`);
  assert.ok(!inflate(1, brotli, all));
  // LZ4: a block of nothing, literals, a copy over itself; and what lies.
  const block = (hex, n) => Buffer.from(lz4Raw(Buffer.from(hex, 'hex'), n)).toString();
  assert.equal(block('00', 0), '');
  assert.equal(block('3061 6263'.replace(/ /g, ''), 3), 'abc');
  assert.equal(block('2661620200' + '10'.repeat(1) + '63', 13), 'ababababababc');
  for (const [h, n] of [['', 0], ['00', 1], ['30616263', 2], ['30616263', 4], ['306162', 3], ['1f610100', 20], ['14610200', 9], ['14610000', 9], ['f0ff', 300]]) {
    assert.throws(() => lz4Raw(Buffer.from(h, 'hex'), n), /damaged/, `${h}, ${n}`);
  }
  assert.equal(Buffer.from(lz4(Buffer.from('0000000300000004306162630000000300000004306465 66'.replace(/ /g, ''), 'hex'), 6)).toString(), 'abcdef');
  assert.equal(Buffer.from(lz4(Buffer.from('30616263', 'hex'), 3)).toString(), 'abc');
  // A header that asks for 2 GiB of window gets none.
  assert.throws(() => inflateExactly(new Uint8Array([0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8, 1, 0, 0, 0]), 10), /window/);
});

test('rows of every writer, codec, encoding and page version are the same', async () => {
  await ready;
  const made = join(root, 'replay', 'segment', 'testdata', 'made');
  const read = async (name) => {
    const b = readFileSync(join(made, name));
    const m = parquet.open({ bytes: b.buffer.slice(b.byteOffset, b.byteOffset + b.length) });
    const { rows, wrong } = await parquet.rows({ columns: m.columns.map((_, i) => i), from: 0, count: m.rows });
    assert.deepEqual(wrong, [], name);
    return { codecs: new Set(m.groups.flatMap((g) => g.columns.map((c) => c.codec))), columns: Object.fromEntries(m.columns.map((c, i) => [c, rows.map((r) => r[i])])) };
  };
  // Files of one set hold the same rows; the first is the plain one.
  const sets = [
    ['none-v1-plain.parquet', /^(brotli|gzip|lz4|snappy|zstd|none)-v[12]-(plain|dictionary|delta|split)\.parquet$/],
    ['parquet-rs-none-v1.parquet', /^parquet-rs-/], ['fastparquet-None.parquet', /^fastparquet-/],
    ['polars-gzip.parquet', /^polars-/], ['duckdb-zstd-v1.parquet', /^duckdb-/],
  ];
  const codecs = new Set();
  for (const [plain, of] of sets) {
    const want = await read(plain);
    assert.ok(Object.keys(want.columns).length > 3, plain);
    const names = readdirSync(made).filter((n) => of.test(n));
    assert.ok(names.length >= 2, plain);
    for (const n of names) {
      const got = await read(n);
      got.codecs.forEach((c) => codecs.add(c));
      for (const [c, values] of Object.entries(got.columns)) assert.deepEqual(values, want.columns[c], `${n}, ${c}`);
    }
  }
  // Times are exact; an empty page and one row are rows like others.
  assert.deepEqual((await read('micros.parquet')).columns.timestamp?.slice(0, 1), ['1970-01-01 00:00:00.000001000']);
  await read('one-row.parquet');
  assert.deepEqual([...codecs].sort(), ['BROTLI', 'GZIP', 'LZ4', 'LZ4_RAW', 'SNAPPY', 'UNCOMPRESSED', 'ZSTD']);
});

test('a window reads small where it jumps and large where it goes on', async () => {
  const part = new Memory(new Uint8Array(64 << 20));
  const w = new Window(new Stream([{ start: 0, end: part.size, part }]));
  for (let at = 0; at < part.size; at += 2 << 20) await w.ensure(at, 300);
  const jumped = part.reads.reduce((n, r) => n + r[1], 0);
  assert.ok(jumped <= 33 * (16 << 10), `${jumped} bytes read for 32 heads`);
  part.reads = [];
  const v = new Window(new Stream([{ start: 0, end: part.size, part }]));
  for (let at = 0; at < part.size; at += 1000) await v.ensure(at, Math.min(1000, part.size - at));
  assert.ok(part.reads.length < 40, `${part.reads.length} reads for 64 MiB`);
  const short = new Memory(new Uint8Array(100));
  short.size = 200;
  await assert.rejects(new Window(new Stream([{ start: 0, end: 200, part: short }])).ensure(50, 100), ChangedError);
});

test('search finds every place, over windows, in any case', () => {
  const b = Buffer.from('aaaa needle NEEDLE nEeDlE needleneedle');
  const all = (p) => {
    const out = [];
    p.scan(b, (i) => { out.push(i); });
    return out;
  };
  assert.deepEqual(all(new Pattern(patternBytes('needle'), false)), [5, 26, 32]);
  assert.deepEqual(all(new Pattern(patternBytes('NeedLe'), true)), [5, 12, 19, 26, 32]);
  assert.deepEqual(all(new Pattern(patternBytes('aa'), false)), [0, 1, 2]);
  assert.deepEqual(all(new Pattern(patternBytes('6e 65 65', true), false)), [5, 26, 32]);
  assert.equal(patternBytes('6e6', true), null);
  assert.equal(patternBytes('zz', true), null);
});

test('files join to connections by their names, and runs break at holes alone', async () => {
  const part = (n) => new Memory(new Uint8Array(n).fill(1));
  const c = (i, ext) => `d/c00000001-0123abcd.0000000${i}.${ext}`;
  const side = (file, start, length, more = {}) => {
    const b = new TextEncoder().encode(JSON.stringify({ format: 'wiretape-sidecar', version: 1, connection: 'c00000001-0123abcd', file, protocol: 'dendro', framing: 'frames', start, length, boundary: start, sha256: 'ab'.repeat(32), ...more }));
    return new Memory(b, 'side.json');
  };
  const files = [
    { path: c(1, 'cap'), part: part(100) }, { path: c(1, 'json'), part: side(1, 0, 100) },
    { path: c(2, 'cap'), part: part(50) }, { path: c(2, 'json'), part: side(2, 100, 50) },
    { path: c(4, 'cap.partial'), part: part(10) }, { path: c(4, 'json.partial'), part: side(4, 200, 0, { open: true, context: { protocol: 'dendro', version: 1, entries: [] } }) },
    { path: 'd/journal.jsonl', part: part(5) }, { path: 'd/lock', part: part(0) }, { path: 'd/destination.id', part: part(33) }, { path: 'other.bin', part: part(7) },
  ];
  const g = group(files);
  assert.deepEqual(g.map((x) => x.name), ['c00000001-0123abcd', 'other.bin']);
  const { files: list, notes } = await load(g[0]);
  assert.deepEqual(list.map((f) => [f.start, f.end]), [[0, 100], [100, 150], [200, 210]]);
  assert.deepEqual(notes, []);
  const r = await runs(list, 'dendro');
  assert.deepEqual(r.map((x) => [x.start, x.end]), [[0, 150], [200, 210]]);
  assert.deepEqual([...r[1].context], [...packContext({ protocol: 'dendro', version: 1, entries: [] })]);
  // A sidecar that lies is said and not followed.
  files[3].part = side(2, 90, 50);
  const lied = await load(group(files)[0]);
  assert.equal(lied.notes.length, 1);
  assert.equal(lied.notes[0].kind, 'sidecar-stale');
  assert.match(lied.notes[0].message, /not used/);
  assert.deepEqual(lied.files.map((f) => f.start), [0, 100, 200]);
});

test('a sidecar of any shape is read for what it is, or said to be none', async () => {
  const good = { format: 'wiretape-sidecar', version: 1, tool: 't', connection: 'c00000001-0123abcd', file: 1, framing: 'frames', boundary: 100, protocol: 'dendro', direction: 'downstream', endpoint: 'e', pair: '', start: 0, length: 100, sha256: 'ab'.repeat(32),
    frames: [{ kind: 1, count: 2 }], first_arrival: { wall_ns: '5' }, last_arrival: { wall_ns: '9' }, findings: [{ kind: 'gap', offset: 3, message: 'm' }],
    findings_omitted: 1, closed: 'size', closed_detail: 'd', transport: { verdict: 'clean', detail: '' },
    context: { protocol: 'dendro', version: 1, entries: [{ id: '1', values: [{ name: 'a', number: '2' }, { name: 'b', bytes: 'AAEC' }] }], omitted: ['x'] } };
  const open = async (side) => {
    const [c] = group([{ path: 'd/c00000001-0123abcd.00000001.cap', part: new Memory(new Uint8Array(100).fill(1)) },
      { path: 'd/c00000001-0123abcd.00000001.json', part: new Memory(new TextEncoder().encode(JSON.stringify(side)), 's.json') }]);
    return [await load(c), await describe(c, () => ({}))];
  };
  const [known, told] = await open(good);
  assert.deepEqual(known.notes, []);
  assert.deepEqual([told.frames, told.findings, told.first, told.last, told.transport], [2, 2, '5', '9', 'clean']);
  const odd = [null, 0, -1, 1e300, 'x', '\u202e<b>', [], [null], [[]], {}, { wall_ns: 5 }, true, { entries: 5 }, { entries: [{}] }, [{ kind: {}, offset: -1 }], [{ offset: 5 }]];
  for (const k of Object.keys(good)) {
    for (const v of odd) {
      const [l, d] = await open({ ...good, [k]: v });
      const where = `${k}: ${JSON.stringify(v)}`;
      assert.equal(l.files.length, 1, where);
      assert.ok(l.files[0].start >= 0 && l.files[0].end - l.files[0].start === 100, where);
      assert.ok([...await runs(l.files, 'dendro')].length === 1, where);
      for (const t of ['endpoint', 'direction', 'protocol', 'closed', 'transport']) assert.ok(d[t] === null || typeof d[t] === 'string', where);
      assert.ok(d.frames === null || Number.isSafeInteger(d.frames), where);
    }
  }
});

test('zeros at the end of a run are found wherever they begin', async () => {
  for (const n of [0, 1, 511, 512, 513, 1 << 20, (1 << 20) + 700]) {
    const b = new Uint8Array(3 << 20).fill(7, 0, (3 << 20) - n);
    const [r] = await runs([{ start: 1000, end: 1000 + b.length, part: new Memory(b) }], 'dendro');
    assert.equal(r.zerosFrom, n === 0 ? 0 : 1000 + b.length - n);
  }
});

test('one line says what a file is that is no capture', () => {
  assert.match(whatItIs(Buffer.from('ffd8ffe000104a46', 'hex'), 100), /JPEG/);
  assert.match(whatItIs(Buffer.from('d4c3b2a102000400', 'hex'), 100), /pcap/);
  assert.match(whatItIs(Buffer.from('PAR1....'), 100), /Parquet/);
  assert.match(whatItIs(new Uint8Array(0), 0), /empty/);
  assert.match(whatItIs(Buffer.from('{"a":1}'), 7), /JSON/);
  assert.match(whatItIs(Buffer.from('  [1, "é", 2]'), 14), /JSON/);
  for (const b of [[0x7b, 1, 2, 3], [0x5b, 0, 0, 0], [0x20, 0x7b, 0xff], [0x5b, 0x7f]]) assert.match(whatItIs(Buffer.from(b), b.length), /no protocol/, String(b));
  assert.match(whatItIs(Buffer.from(`[${'é'.repeat(400)}`), 801), /JSON/);
  assert.match(whatItIs(Buffer.from('hello there'), 11), /text/);
  assert.match(whatItIs(new Uint8Array(64), 64), /zeros/);
  assert.match(whatItIs(Buffer.from([1, 2, 3, 250, 251]), 5), /no protocol/);
});

test('what nobody sees is escaped, by the rule of the commands', () => {
  const listed = new Set();
  for (const line of readFileSync(join(root, 'wire', 'testdata', 'unprintable.txt'), 'utf8').split('\n')) {
    const m = /^([0-9a-f]+)(?:-([0-9a-f]+))?$/.exec(line);
    if (m) for (let c = parseInt(m[1], 16); c <= parseInt(m[2] ?? m[1], 16); c++) listed.add(c);
  }
  assert.ok(listed.size > 4000);
  for (let c = 0; c <= 0x10ffff; c++) {
    const s = String.fromCodePoint(c);
    const half = c >= 0xd800 && c <= 0xdfff;
    if ((visible(s) !== s) !== (listed.has(c) || half)) assert.fail(`U+${c.toString(16)}`);
  }
  assert.equal(visible('a\u{e0041}b\u3164\u202e\n'), 'a\\u{e0041}b\\u3164\\u202e\\u000a');
});

/** A sidecar of capture/sidecar, and the rules of what is one. */
const VERSION1 = join(root, 'capture', 'sidecar', 'testdata', 'version1.json');
const RULES = join(root, 'capture', 'sidecar', 'testdata', 'rules.jsonl');
const isSidecar = (b) => {
  try {
    parse(b);
    return true;
  } catch (e) {
    assert.ok(e instanceof Error && !(e instanceof TypeError || e instanceof RangeError) && e.message.length < 400, e.stack);
    return false;
  }
};

test('what is a sidecar for the commands is one for the page, by the same list of rules', () => {
  const base = readFileSync(VERSION1);
  const rules = readFileSync(RULES, 'utf8').trim().split('\n').map((l) => JSON.parse(l));
  assert.ok(rules.length > 200 && rules.some((r) => r.valid) && rules.some((r) => !r.valid));
  for (const r of rules) {
    const from = Buffer.from(r.from);
    const to = r.to_hex ? Buffer.from(r.to_hex, 'hex') : Buffer.from(r.to.replace('#[]', '['.repeat(r.deep) + ']'.repeat(r.deep)));
    const at = base.indexOf(from);
    assert.ok(at >= 0, r.what);
    assert.equal(isSidecar(Buffer.concat([base.subarray(0, at), to, base.subarray(at + from.length)])), r.valid, r.what);
  }
  // What is taken is what was written.
  const s = read(base);
  assert.deepEqual([s.first, s.last, s.frames, s.found, s.transport, s.start, s.length], ['1700000000123456789', '1700000000123456790', 1, 1, { verdict: 'clean', detail: '' }, 100, 50]);
  const [b, n] = [s.context.entries[0].values[1], s.context.entries[0].values[0]];
  assert.deepEqual([b.bytes, b.number, n.bytes, n.number, s.context.entries[0].id], ['AP8=', null, null, '18446744073709551615', 18446744073709551615n]);
});

test('of mutated sidecars the page and the commands take the same ones', () => {
  const base = readFileSync(VERSION1);
  let seed = 12345;
  const random = (n) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % n;
  };
  // Tokens for others of any kind, and bytes for any.
  const tokens = [...base.toString('latin1').matchAll(/"(?:[^"\\]|\\.)*"|[-\d.eE+]+|true|false|null|[[\]{},:]/g)].map((m) => [m.index, m[0].length]);
  const put = ['null', 'true', '""', '"7"', '"-1"', '0', '-0', '7e3', '7.0', '-1', '9007199254740993', '18446744073709551616', '[]', '{}', '[null]', '{"a":1,"a":2}', '"file"', '"Start"', '{', '}', ',', ':', '"AAE="', '"\\ud800"', '"null"', '1E400', '\ufeff', '\u00a0', ''];
  const all = [];
  for (let i = 0; i < 20000; i++) {
    let b = base;
    for (let k = random(3); k >= 0; k--) {
      if (random(2)) {
        const [at, n] = tokens[random(tokens.length)];
        const [from, m] = random(3) ? [Buffer.from(put[random(put.length)]), n] : [base.subarray(...((t) => [t[0], t[0] + t[1]])(tokens[random(tokens.length)])), random(2) * n];
        b = Buffer.concat([b.subarray(0, at), from, b.subarray(at + m)]);
      } else {
        const at = random(b.length);
        b = Buffer.concat([b.subarray(0, at), Buffer.from([random(256)].slice(random(2))), b.subarray(at + random(2))]);
      }
    }
    all.push(b);
  }
  const list = join(work, 'sidecars.txt');
  writeFileSync(list, all.map((b) => b.toString('base64')).join('\n'));
  const verdicts = readFileSync(generate('sidecars', list, join(work, 'sidecars.out')), 'latin1');
  assert.equal(verdicts.length, all.length);
  let taken = 0;
  all.forEach((b, i) => {
    assert.equal(isSidecar(b) ? '1' : '0', verdicts[i], b.toString());
    taken += Number(verdicts[i]);
  });
  assert.ok(taken > 500 && taken < 15000, `${taken} are sidecars`);
});

test('an entry of a list that can’t be taken is named, with what is wrong with it', () => {
  const base = new URL('http://site.example/c/list.json');
  const good = { path: 'a/x.cap', url: 'x.cap', size: 5 };
  assert.deepEqual(filesOf(`\ufeff${JSON.stringify({ files: [good], more: 1 })}`.slice(1), base), [{ path: 'a/x.cap', url: 'http://site.example/c/x.cap', size: 5 }]);
  assert.deepEqual(filesOf('{"files": []}', base), []);
  assert.equal(filesOf(JSON.stringify({ files: [{ ...good, path: 'a\u0007\u202e<b>', size: 0 }, { ...good, size: 2 ** 52 }] }), base).length, 2);
  const is = (text, says) => assert.throws(() => filesOf(text, base), (e) => {
    assert.match(e.message, says);
    assert.ok(e.message.length < 300 && !/undefined|\[object|null\b.*null|TypeError/.test(e.message), e.message);
    return true;
  });
  for (const text of ['null', '5', '"x"', '[]', '{}', '{"files": null}', '{"files": {}}', '{"files": "x"}']) is(text, /^it is no list of files/);
  for (const text of ['', ' \n']) is(text, /^it is empty$/);
  for (const text of ['<!doctype html>', '{"files": [', '\u0000']) is(text, /^it is no JSON/);
  const entry = (more, says) => is(JSON.stringify({ files: [good, good, { ...good, ...more }] }), says);
  for (const v of [null, 5, 'x', true, [], [good]]) is(JSON.stringify({ files: [good, v] }), /^entry 2 is no object$/);
  for (const k of ['path', 'url']) {
    is(JSON.stringify({ files: [good, { ...good, [k]: undefined }] }), new RegExp(`^entry 2 has no ${k}$`));
    for (const v of [null, 5, true, [], {}, ['x.cap']]) entry({ [k]: v }, new RegExp(`^the ${k} of entry 3 is no text$`));
    entry({ [k]: '' }, new RegExp(`^the ${k} of entry 3 is empty$`));
    entry({ [k]: 'a\ud800b' }, new RegExp(`^the ${k} of entry 3 has half a character in it$`));
    entry({ [k]: 'x'.repeat(1e6) }, new RegExp(`^the ${k} of entry 3 has 1,000,000 characters`));
  }
  entry({ path: 'a/' }, /^the path of entry 3 names no file$/);
  for (const url of ['http://', 'http://[', 'http://a:b:c/']) entry({ url }, /^the url of entry 3 is none/);
  is(JSON.stringify({ files: [{ ...good, size: undefined }] }), /^entry 1 has no size$/);
  for (const [v, shown] of [[null, 'null'], ['5', '"5"'], ['x'.repeat(1e6), '"xxx'], [-1, '-1'], [0.5, '0.5'], [1e300, '1e\\+300'], [2 ** 53, '9007199254740992'], [[], 'a list'], [{}, 'an object'], [true, 'true']]) {
    entry({ size: v }, new RegExp(`^the size of entry 3 is no number of bytes: ${shown}`));
  }
  is(`{"files": [${'{},'.repeat(1e6)}{}]}`, /^it names 1,000,001 files, and at most 100,000/);
  assert.throws(() => filesOf(JSON.stringify({ files: [good, { ...good, url: 'http://other.example/x' }] }), base, (u) => { if (u.host !== base.host) throw new Error('it names another site'); }), /^Error: entry 2: it names another site$/);
});

test('files of folders that are called the same are connections of their own', () => {
  const files = [];
  for (const n of [1, 2, 3]) for (const x of ['cap', 'json', 'idx']) files.push({ path: `d/c00000001-0123abcd.00000001.${x}`, part: new Memory(new Uint8Array(n), `${n}.${x}`) });
  for (const n of [1, 2]) files.push({ path: 'x.bin', part: new Memory(new Uint8Array(n), `x${n}`) });
  assert.deepEqual(group(files).map((c) => [c.path, c.list[0].cap.name, c.list[0].json?.name]), [
    ['d/(2)/c00000001-0123abcd', '2.cap', '2.json'], ['d/(3)/c00000001-0123abcd', '3.cap', '3.json'], ['d/c00000001-0123abcd', '1.cap', '1.json'],
    ['(2)/x.bin', 'x2', undefined], ['x.bin', 'x1', undefined]]);
});
