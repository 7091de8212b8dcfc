// The page's own parts without a browser: times, arrival indexes, compressed
// files, search, names.

import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { duration, parseTime, span, time, bytes } from '../src/format.js';
import { Arrivals, arrivalToOffset } from '../src/worker/arrivals.js';
import { group, load, runs, whatItIs } from '../src/worker/captures.js';
import { Packer, packContext } from '../src/worker/packed.js';
import { Pattern, patternBytes } from '../src/worker/search.js';
import { ChangedError, Stream, Window } from '../src/worker/reader.js';
import { ZstPart, isZst } from '../src/worker/zst.js';
import { inflate } from '../src/worker/inflate.js';
import { inflateExactly } from '../src/worker/zstd.js';
import { generate, work } from './fixtures.mjs';
import { gzipSync } from 'node:zlib';

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

test('a filter on arrival times becomes one on offsets, of the same length', () => {
  const offsetAt = (t) => (t > 1700000009000000000n ? null : t <= 1700000000000000000n ? 0 : 500);
  const put = (e) => arrivalToOffset(e, offsetAt, parseTime, 1000);
  const cases = [
    ['arrival >= 2023-11-14T22:13:20Z and size > 3', 'offset >= 0 and size > 3'],
    ['arrival > 2023-11-14T22:13:20', 'offset >= 500'],
    ['not (arrival<1700000005000000000)', 'not (offset<500)'],
    ['arrival <= 2023-11-14T22:13:20Z', 'offset < 500'],
    ['arrival >= 2030-01-01', 'offset >= 1000'],
    ['arrival < 2030-01-01', 'offset < 1000'],
    ['stream == "arrival > 2030-01-01" or kind == 3', 'stream == "arrival > 2030-01-01" or kind == 3'],
    ['arrival > soon', 'arrival > soon'],
  ];
  for (const [from, to] of cases) {
    const got = put(from);
    assert.equal(got.replace(/\s+/g, ' ').replace(/ \)/g, ')').trim(), to);
    assert.equal(got.length, from.length);
  }
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
  const bad = packed.slice();
  bad[2000] ^= 255;
  const z = await ZstPart.open(new Memory(bad));
  await assert.rejects(z.read(0, 100), /damaged/);
});

test('a codec gives exactly what was declared, or nothing', () => {
  const plain = Buffer.from('abc'.repeat(1000));
  const packed = gzipSync(plain);
  const dst = new Uint8Array(3000);
  assert.ok(inflate(2, packed, dst));
  assert.deepEqual(Buffer.from(dst), plain);
  for (const n of [0, 2999, 3001]) assert.ok(!inflate(2, packed, new Uint8Array(n)));
  assert.ok(!inflate(6, packed, new Uint8Array(3000)));
  assert.ok(!inflate(4, packed, new Uint8Array(3000)));
  // A header that asks for 2 GiB of window gets none.
  assert.throws(() => inflateExactly(new Uint8Array([0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8, 1, 0, 0, 0]), 10), /window/);
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
  const side = (start, length, context = null) => {
    const b = new TextEncoder().encode(JSON.stringify({ format: 'wiretape-sidecar', version: 1, protocol: 'dendro', start, length, context }));
    return new Memory(b, 'side.json');
  };
  const files = [
    { path: c(1, 'cap'), part: part(100) }, { path: c(1, 'json'), part: side(0, 100) },
    { path: c(2, 'cap'), part: part(50) }, { path: c(2, 'json'), part: side(100, 50) },
    { path: c(4, 'cap.partial'), part: part(10) }, { path: c(4, 'json.partial'), part: side(200, 10, { protocol: 'dendro', version: 1, entries: [] }) },
    { path: 'd/journal.jsonl', part: part(5) }, { path: 'd/lock', part: part(0) }, { path: 'other.bin', part: part(7) },
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
  files[3].part = side(90, 50);
  const lied = await load(group(files)[0]);
  assert.equal(lied.notes.length, 1);
  assert.match(lied.notes[0], /put behind it/);
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
  assert.match(whatItIs(Buffer.from('hello there'), 11), /text/);
  assert.match(whatItIs(new Uint8Array(64), 64), /zeros/);
  assert.match(whatItIs(Buffer.from([1, 2, 3, 250, 251]), 5), /no protocol/);
});
