// What is opened and what lies beside it: files that are not what their names and
// sidecars say, servers that misbehave, compressed files that are damaged, and
// Parquet files with values that are hard to show.

import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, openAsBlob, readFileSync, readdirSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFileSync, spawnSync } from 'node:child_process';
import { HEADERS, dist, finish, go, indexed, launch, listed, odd, openFiles, openPage, pageMemory, part, quiet, rest, root, serve, test, testdata, unit, until } from './browser.mjs';
import { dendro, generate, work } from './fixtures.mjs';
import { group, load, runs } from '../src/worker/captures.js';
import { ops as parquet } from '../src/worker/parquet.js';
import { BlobPart } from '../src/worker/reader.js';
import { ready } from '../src/worker/zstd.js';

const dir = join(work, 'inputs-test');
mkdirSync(dir, { recursive: true });
const fixture = (name) => dendro().find((x) => x.name === name).file;
let browser;
let server;
let one; // a connection in several files
let other; // another one
let capture;

before(async () => {
  browser = await launch();
  server = await serve({ '/': dist });
  one = generate('folder', fixture('real/small.stream'), join(dir, 'one'));
  other = generate('folder', fixture('crafted/gap.stream'), join(dir, 'other'));
  capture = join(dir, 'capture');
  execFileSync('go', ['build', '-o', capture, './cmd/capture'], { cwd: root, stdio: 'inherit' });
});

after(() => finish(browser, server));

const open = (options) => openPage(browser, `${server.base}/`, options);
const name = (d) => /^(c\d{8}-[0-9a-f]{8})\./.exec(readdirSync(d).find((f) => f.endsWith('.cap')))[1];
const file = (d, n, ext) => join(d, `${name(d)}.0000000${n}.${ext}`);
const edit = (path, f) => writeFileSync(path, f(readFileSync(path)));
const json = (path, f) => edit(path, (b) => JSON.stringify(f(JSON.parse(b))));
const zst = (path, out) => execFileSync('zstd', ['-q', '-f', path, '-o', out]);

/** What a folder looks like that was made wrong in one way. */
const WRONG = {
  'nothing is wrong': () => {},
  'sidecars of two files are swapped': (d) => {
    renameSync(file(d, 1, 'json'), join(d, 'x'));
    renameSync(file(d, 2, 'json'), file(d, 1, 'json'));
    renameSync(join(d, 'x'), file(d, 2, 'json'));
  },
  'a sidecar is of another connection': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, connection: 'c00000009-aaaaaaaa' })),
  'a sidecar is of another file': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, file: 7 })),
  'a first file says it starts elsewhere': (d) => json(file(d, 1, 'json'), (s) => ({ ...s, start: 500, boundary: s.boundary + 500 })),
  'a file says it starts later': (d) => json(file(d, 3, 'json'), (s) => ({ ...s, start: s.start + 10, boundary: s.boundary + 10 })),
  'a sidecar is from before the seal': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, open: true })),
  'a sidecar has no hash': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, sha256: '' })),
  'a sidecar has members of other kinds': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, start: String(s.start) })),
  'a sidecar has a boundary outside': (d) => json(file(d, 2, 'json'), (s) => ({ ...s, boundary: s.start + s.length + 1 })),
  'sidecars are gone': (d) => { for (const n of [1, 3]) rmSync(file(d, n, 'json')); },
  'a file is missing': (d) => { for (const x of ['cap', 'json', 'idx']) rmSync(file(d, 2, x)); },
  'a file and the sidecar behind it are missing': (d) => {
    for (const x of ['cap', 'json', 'idx']) rmSync(file(d, 2, x));
    rmSync(file(d, 3, 'json'));
  },
  'behind a hole a sidecar says a place before it': (d) => {
    for (const x of ['cap', 'json', 'idx']) rmSync(file(d, 2, x));
    json(file(d, 3, 'json'), (s) => ({ ...s, start: 1, boundary: s.boundary - s.start + 1 }));
  },
  'a file is short': (d) => truncateSync(file(d, 2, 'cap'), readFileSync(file(d, 2, 'cap')).length - 7),
  'a file has surplus bytes': (d) => edit(file(d, 2, 'cap'), (b) => Buffer.concat([b, Buffer.from('surplus')])),
  'a file has other and more bytes': (d) => edit(file(d, 2, 'cap'), (b) => Buffer.concat([b.map((x, i) => (i === 9 ? x ^ 1 : x)), Buffer.from('surplus')])),
  'bytes of two files are swapped': (d) => {
    renameSync(file(d, 1, 'cap'), join(d, 'x'));
    renameSync(file(d, 2, 'cap'), file(d, 1, 'cap'));
    renameSync(join(d, 'x'), file(d, 2, 'cap'));
  },
  'a file is there twice with the same bytes': (d) => zst(file(d, 2, 'cap'), `${file(d, 2, 'cap')}.zst`),
  'a file is there twice with different bytes': (d) => {
    zst(file(d, 2, 'cap'), `${file(d, 2, 'cap')}.zst`);
    edit(file(d, 2, 'cap'), (b) => b.map((x, i) => (i === 100 ? x ^ 1 : x)));
  },
  'a file is there twice, once as its beginning': (d) => writeFileSync(`${file(d, 2, 'cap')}.partial`, readFileSync(file(d, 2, 'cap')).subarray(0, 300)),
  'two copies and neither is proved': (d) => {
    writeFileSync(`${file(d, 2, 'cap')}.partial`, readFileSync(file(d, 2, 'cap')).map((x, i) => (i === 20 ? x ^ 1 : x)));
    edit(file(d, 2, 'cap'), (b) => b.map((x, i) => (i === 100 ? x ^ 1 : x)));
  },
  'a file that was being sealed': (d) => {
    const last = readdirSync(d).filter((f) => f.endsWith('.cap')).length;
    renameSync(file(d, last, 'cap'), file(d, last, 'cap.partial'));
    edit(file(d, last, 'cap.partial'), (b) => Buffer.concat([b, Buffer.from('more')]));
  },
  'the last file is missing and its sidecar is there': (d) => rmSync(file(d, readdirSync(d).filter((f) => f.endsWith('.cap')).length, 'cap')),
  'the last file is missing': (d) => {
    const last = readdirSync(d).filter((f) => f.endsWith('.cap')).length;
    for (const x of ['cap', 'json', 'idx']) rmSync(file(d, last, x));
  },
  'a compressed file is cut': (d) => {
    zst(file(d, 2, 'cap'), `${file(d, 2, 'cap')}.zst`);
    rmSync(file(d, 2, 'cap'));
    edit(`${file(d, 2, 'cap')}.zst`, (b) => b.subarray(0, b.length - 40));
  },
  'a sidecar names another protocol': (d) => { for (const f of readdirSync(d).filter((x) => x.endsWith('.json'))) json(join(d, f), (s) => ({ ...s, protocol: 'melin', context: null })); },
};

function wrong(what) {
  const d = join(dir, what.replaceAll(/\W/g, '-'));
  if (existsSync(d)) return d;
  cpSync(one, d, { recursive: true });
  WRONG[what](d);
  return d;
}

/** The kinds that tell how files and sidecars fit. */
const KINDS = ['sidecar-stale', 'sidecar-invalid', 'sidecar-missing', 'short-file', 'surplus-bytes', 'missing-files', 'no-end', 'conflicting-files', 'doubled-file', 'damaged-zstd'];

async function opened(d) {
  const files = [];
  for (const f of readdirSync(d)) if (f !== 'lock') files.push({ path: `d/${f}`, part: new BlobPart(await openAsBlob(join(d, f)), f) });
  return load(group(files)[0]);
}

test('files are placed and sidecars believed as the commands do it', async () => {
  for (const what of Object.keys(WRONG)) {
    const d = wrong(what);
    const info = JSON.parse(spawnSync(capture, ['info', '--json', d], { encoding: 'utf8' }).stdout);
    const { files, notes } = await opened(d);
    assert.deepEqual(files.map((f) => [f.number, f.start, f.end - f.start]), info.connections[0].file_list.map((f) => [f.number, f.start, f.length]), what);
    const kinds = (list) => [...new Set(list.map((f) => f.kind).filter((k) => KINDS.includes(k)))].sort();
    const want = kinds(info.findings);
    // What is missing between two files that are there is told by the decoder.
    if (what.startsWith('a file is missing') && !kinds(notes).includes('missing-files')) want.splice(want.indexOf('missing-files'), 1);
    // A place before what was there is believed by nobody, and said here.
    if (what.startsWith('behind a hole')) want.push('sidecar-stale');
    assert.deepEqual(kinds(notes), want.sort(), `${what}: ${JSON.stringify(notes)}`);
    assert.ok(notes.every((n) => n.offset === undefined || Number.isSafeInteger(n.offset) && n.offset >= 0), what);
    assert.ok((await runs(files, 'dendro')).every((r, i, all) => i === 0 || r.start >= all[i - 1].end), what);
  }
});

test('a sidecar of another connection gives no source, and swapped ones no offsets', async () => {
  const page = await open();
  const all = (d) => readdirSync(d).filter((f) => f !== 'lock').map((f) => join(d, f));
  await openFiles(page, all(one));
  const want = (await listed(page)).map((r) => [r.offset, r.source]);
  for (const what of ['sidecars of two files are swapped', 'a sidecar is of another connection']) {
    await openFiles(page, all(wrong(what)));
    assert.deepEqual((await listed(page)).map((r) => [r.offset, r.source]), want, what);
    assert.match(await page.textContent('#notes'), /sidecar-stale.*is not used: it is that of file/, what);
  }
  // The middle of a connection beside another's sidecar of the same name.
  const [mine, yours] = [name(one), name(other)];
  const buffer = (d, f) => readFileSync(join(d, f));
  await openFiles(page, [{ name: `${mine}.00000003.cap`, mimeType: '', buffer: buffer(one, `${mine}.00000003.cap`) },
    { name: `${mine}.00000003.json`, mimeType: '', buffer: Buffer.from(JSON.stringify({ ...JSON.parse(buffer(one, `${mine}.00000003.json`)), connection: `${yours.slice(0, -1)}0` })) }], { wait: false });
  await page.waitForSelector('#read-as:not([hidden]) button');
  assert.match(await page.textContent('#what'), /00000003\.json is not used: it is that of file 3 of c/);
  await page.click('#read-as button:has-text("dendro")');
  await indexed(page);
  assert.match(await page.textContent('#notes'), /sidecar-stale/);
  await quiet(page);
});

/** A zstd frame of content in one raw block, with a checksum of 4 bytes that is given. */
const rawFrame = (content, checksum) => {
  const block = Buffer.alloc(3);
  block.writeUIntLE((content.length << 3) | 1, 0, 3);
  const size = Buffer.alloc(4);
  size.writeUInt32LE(content.length);
  return Buffer.concat([Buffer.from('28b52ffda4', 'hex'), size, block, content, checksum]);
};

test('compressed bytes that do not fit their checksum, or end early, are found', async () => {
  const src = readFileSync(fixture('crafted/gap.stream'));
  const plain = join(dir, 'plain.stream');
  writeFileSync(plain, src);
  const page = await open();
  await openFiles(page, [plain]);
  const want = (await listed(page)).map((r) => r.offset);
  const path = join(dir, 'x.cap.zst');
  const put = async (b) => {
    writeFileSync(path, b);
    await openFiles(page, [path]);
    return [await page.textContent('#notes'), (await listed(page)).map((r) => r.offset)];
  };
  execFileSync('zstd', ['-q', '-f', '--check', plain, '-o', path]);
  const packed = readFileSync(path);
  assert.deepEqual(await put(packed), ['', want]);
  // The checksum that zstd makes of the same bytes.
  const sum = packed.subarray(packed.length - 4);
  assert.deepEqual(await put(rawFrame(src, sum)), ['', want]);
  const flipped = Buffer.from(src);
  flipped[src.length - 20] ^= 1;
  const [said, rows] = await put(rawFrame(flipped, sum));
  assert.match(said, /damaged-zstd.*bytes 0 to \d+ are not what was compressed: its content checksum is 0x[0-9a-f]{8}/);
  assert.equal(rows.length, want.length);
  // Cut in the last frame of two: what comes out of it is shown.
  const half = 400;
  const two = Buffer.concat([rawFrame(src.subarray(0, half), Buffer.alloc(4)), packed]);
  const first = rawFrame(src.subarray(0, half), Buffer.alloc(4)).length;
  const [cut] = await put(two.subarray(0, first + 20));
  assert.match(cut, /damaged-zstd.*decompresses only up to byte/);
  const [junk] = await put(Buffer.concat([packed, Buffer.from('junk behind it')]));
  assert.match(junk, new RegExp(`decompresses only up to byte ${src.length}: no zstd frame`));
  assert.deepEqual((await listed(page)).map((r) => r.offset), want);
  await quiet(page);
});

test('a seek table that lies hides nothing, and damage in a large compressed file is a finding', async () => {
  const page = await open();
  const src = join(dir, 'seek.stream');
  writeFileSync(src, readFileSync(fixture('real/small.stream')));
  await openFiles(page, [src]);
  const rows = () => page.evaluate(() => document.body.dataset.rows);
  const want = await rows();
  const zst = join(dir, 'seek.cap.zst');
  generate('zst', src, zst);
  const good = readFileSync(zst);
  // The last entry of the table: its frame's compressed and inflated size.
  const entry = good.length - 9 - (good[good.length - 5] & 0x80 ? 12 : 8);
  for (const size of [0, 1000, good.readUInt32LE(entry + 4) + 5]) {
    const lie = Buffer.from(good);
    lie.writeUInt32LE(size, entry + 4);
    writeFileSync(zst, lie);
    await openFiles(page, [zst]);
    assert.equal(await rows(), want, `inflated size ${size}`);
    assert.equal(await page.textContent('#notes'), '');
  }
  const big = generate('small', 200000, join(dir, 'large.stream'));
  await openFiles(page, [big]);
  const all = Number(await rows());
  const packed = join(dir, 'large.cap.zst');
  generate('zst', big, packed);
  const b = readFileSync(packed);
  b.fill(0xa5, b.length >> 1, (b.length >> 1) + 300);
  writeFileSync(packed, b);
  await openFiles(page, [packed]);
  assert.match(await page.textContent('#notes'), /damaged-zstd/);
  const some = Number(await rows());
  assert.ok(some > all / 3 && some < all + 10, `${some} of ${all}`);
  rmSync(big);
  rmSync(packed);
  await quiet(page);
});

test('a search finds text over the edge of files and windows', async () => {
  const needle = Buffer.from('NEEDLE-XYZ');
  const src = readFileSync(fixture('real/small.stream'));
  // The edge of the first window is where a walk begins to read again.
  for (const [edge, cut] of [[16384, 16384], [16384, 16389], [16389, 16384], [16380, 16384], [49152, 49152], [49155, 49152]]) {
    const whole = Buffer.from(src.subarray(0, 70000));
    needle.copy(whole, edge - 5);
    const [page, id] = [await open(), 'c00000007-5f3a9b2e'];
    const piece = (n, b) => ({ name: `${id}.0000000${n}.cap`, mimeType: '', buffer: b });
    await openFiles(page, [piece(1, whole.subarray(0, cut)), piece(2, whole.subarray(cut, cut)), piece(3, whole.subarray(cut, cut + 3)), piece(4, whole.subarray(cut + 3))]);
    await page.click('#tab-search');
    await page.fill('#search-text', 'needle-xyz');
    await page.press('#search-text', 'Enter');
    await page.waitForFunction(() => /found/.test(document.getElementById('search-state').textContent) && document.getElementById('search-cancel').hidden);
    assert.match(await page.textContent('#search-state'), /^1 /, `${edge}, ${cut}`);
    assert.ok((await page.textContent('#hits')).includes((edge - 5).toLocaleString('en')), `${edge}, ${cut}`);
    await quiet(page);
  }
});

test('opening by URL is stopped by Esc, by its button and by what is opened next', async () => {
  const data = readFileSync(fixture('crafted/gap.stream'));
  const chunk = Buffer.alloc(1 << 20, 0x55);
  const flood = (res, state) => {
    const more = () => {
      if (res.destroyed || state.sent > 3e8) return;
      state.sent += chunk.length;
      res.write(chunk, more);
    };
    more();
  };
  // An answer that never ends is not read beyond what was asked for.
  const endless = await odd(data, (res, from, to, state) => {
    part(res, from, to, 1000000);
    flood(res, state);
  });
  const p = await openPage(browser, `${endless.base}/`);
  const url = async (page, base) => {
    await page.click('#open-url');
    await page.fill('#url-dialog input', `${base}/odd.cap`);
    await page.press('#url-dialog input', 'Enter');
  };
  await url(p, endless.base);
  await p.waitForFunction(() => /other bytes than those that are asked for/.test(document.getElementById('what').textContent));
  await until('the connection is closed', () => endless.state.open === 0);
  assert.ok(endless.state.sent < 64 << 20, `${endless.state.sent} bytes sent`);
  await p.context().close();
  endless.close();
  // One that never comes.
  const never = await odd(data, () => {});
  const page = await openPage(browser, `${never.base}/`);
  for (const stop of [() => page.keyboard.press('Escape'), () => page.click('#stop-opening')]) {
    await url(page, never.base);
    await page.waitForSelector('#stop-opening:not([hidden])');
    await until('it is asked', () => never.state.open === 1);
    await page.evaluate(() => document.activeElement.blur());
    await stop();
    await page.waitForFunction(() => document.getElementById('what').textContent === 'Opening was stopped.');
    assert.equal(await page.isVisible('#stop-opening'), false);
    await until('the request is ended', () => never.state.open === 0);
  }
  await url(page, never.base);
  await until('it is asked', () => never.state.open === 1);
  await openFiles(page, [fixture('crafted/gap.stream')]);
  await until('the request is ended', () => never.state.open === 0);
  assert.equal(await page.isVisible('#stop-opening'), false);
  // A list that never comes.
  await page.goto(`${never.base}/?list=/odd.json`, { waitUntil: 'commit' });
  await page.waitForSelector('#stop-opening:not([hidden])');
  await until('it is asked', () => never.state.open === 1);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.getElementById('what').textContent === 'Opening was stopped.');
  await until('the request is ended', () => never.state.open === 0);
  await page.context().close();
  never.close();
  // What comes while a connection is chosen can be stopped too, and Stop ends an index pass that waits.
  for (const held of [false, true]) {
    const half = await odd(readFileSync(fixture('real/small.stream')), (res, from, to, state) => {
      if (held ? from > 0 && from < 100000 : to > 0) {
        state.waits = true;
        return;
      }
      part(res, from, to, state.data.length).end(state.data.subarray(from, to + 1));
    });
    const q = await openPage(browser, `${half.base}/`);
    await url(q, half.base);
    await until('it waits', () => half.state.waits);
    if (held) await q.waitForFunction(() => !document.body.classList.contains('blank'));
    await q.evaluate(() => document.activeElement.blur());
    await q.keyboard.press('Escape');
    await q.waitForFunction((h) => (h ? /stopped at/.test(document.getElementById('state').textContent) : document.getElementById('what').textContent === 'Opening was stopped.'), held);
    await openFiles(q, [fixture('crafted/gap.stream')]);
    await until('the requests are ended', () => half.state.open === 0);
    await q.context().close();
    half.close();
  }
});

test('an opening that is stopped between two answers does not go on', async () => {
  const page = await open();
  await page.evaluate((bytes) => {
    const t = new DataTransfer();
    t.items.add(new File([new Uint8Array(bytes)], 'gap.stream'));
    const input = document.getElementById('pick-files');
    input.files = t.files;
    input.dispatchEvent(new Event('change'));
    // The files are taken by then, and none is chosen.
    document.getElementById('stop-opening').click();
  }, [...readFileSync(fixture('crafted/gap.stream'))]);
  await page.waitForFunction(() => document.getElementById('what').textContent === 'Opening was stopped.');
  await rest(page);
  assert.ok(await page.isVisible('#welcome'));
  assert.equal(await page.textContent('#what'), 'Opening was stopped.');
  await openFiles(page, [fixture('crafted/gap.stream')]);
  assert.equal((await listed(page)).length, 7);
  await quiet(page);
});

test('a file that changed behind its URL is noticed by its tag, its time and its length', async () => {
  const data = readFileSync(fixture('real/small.stream'));
  const changed = Buffer.from(data).fill(0x41, 20000, 30000);
  const tag = (a, b) => (res, from, to, s) => part(res, from, to, s.data.length, { [a]: s.changed ? b[1] : b[0] }).end((s.changed ? changed : s.data).subarray(from, to + 1));
  const ways = {
    ETag: tag('ETag', ['"one"', '"two"']), 'ETag weak': tag('ETag', ['W/"one"', 'W/"two"']),
    modified: tag('Last-Modified', ['Mon, 02 Nov 2026 10:00:00 GMT', 'Mon, 02 Nov 2026 11:00:00 GMT']),
    length: (res, from, to, s) => part(res, from, to, s.data.length + (s.changed ? 100 : 0)).end(s.data.subarray(from, to + 1)),
    more: (res, from, to, s) => part(res, from, to, s.data.length).end(s.data.subarray(from, to + 1 + (s.changed ? 5 : 0))),
    place: (res, from, to, s) => part(res, from, to + (s.changed ? 5 : 0), s.data.length).end(s.data.subarray(from, to + 1)),
  };
  for (const [what, answer] of Object.entries(ways)) {
    const s = await odd(data, answer);
    const page = await openPage(browser, `${s.base}/?url=/odd.cap`);
    await indexed(page);
    s.state.changed = true;
    await page.fill('#goto', '@150000');
    await page.press('#goto', 'Enter');
    await page.waitForFunction(() => /changed while it was open|gave (more than|bytes)/.test(document.getElementById('toast').textContent) || document.getElementById('state').textContent === 'the file was changed: open it again').catch(() => assert.fail(what));
    await page.context().close();
    s.close();
  }
});

const made = (f) => join(testdata, 'parquet', `${f}.parquet`);

async function table(f) {
  await ready;
  const b = readFileSync(made(f));
  const m = parquet.open({ bytes: b.buffer.slice(b.byteOffset, b.byteOffset + b.length) });
  const { rows, wrong } = await parquet.rows({ columns: m.columns.map((_, i) => i), from: 0, count: Math.min(4, m.rows) });
  return { m, wrong, columns: m.columns.map((c, i) => [c, rows.map((r) => r[i])]) };
}

test('Parquet values are shown exactly, whatever they are and whatever their columns are called', async () => {
  const T = ['1700000000000000000', '1700000001000000000', '1700000002000000000', '1700000003000000000'];
  const want = {
    numbers: [
      ['timestamp', T],
      ['dec38', ['12345678901234567890123456789012.123456', '-0.100000', null, '0.000000']],
      ['dec18', ['9007199254740993.01', '-0.10', '0.05', '1.00']],
      ['u64', ['18446744073709551615', null, '0', '1']],
      ['u32', ['4294967295', null, '0', '1']],
      ['i64', ['-9223372036854775808', '9223372036854775807', '0', null]],
      ['f64', ['NaN', 'Infinity', '-0', '5e-324']],
      ['f32', ['0.1', '-Infinity', '-0', '16777216']],
      ['f16', ['1.5', null, 'NaN', '-0']],
      ['lists', ['[NaN,Infinity,-0,null]', '[]', null, '[0.5]']],
      ['decs', ['[9007199254740993.01,null]', '[]', null, '[0.10]']],
      ['struct', ['{"__proto__":1152921504606846977,"b":"0xff00"}', null, '{"__proto__":null,"b":null}', '{"__proto__":1,"b":"0x6162"}']],
      ['map', ['{"k":1,"k":2}', '{}', null, '{"__proto__":null}']],
      ['keys', ['{9007199254740993:1,2:2}', '{}', null, '{1:1}']],
    ],
    times: [
      ['timestamp', T],
      ['date', ['0001-01-01', '1969-12-31', null, '9999-12-31']],
      ['ns', ['2023-11-14 22:13:20.123456789', null, '1969-12-31 23:59:59.999999999', '1970-01-01 00:00:00.000000000']],
      ['us', ['1969-12-31 23:59:59.999999000', null, '1970-01-01 00:00:00.000000000', '0001-01-01 00:00:00.000000000']],
      ['ms', ['-4611686018427387904000000 ns', null, '1970-01-01 00:00:00.000000000', '1970-01-01 00:00:00.001000000']],
      ['time', ['00:20:34.567890123', null, '00:00:00.000000000', '23:59:59.999999999']],
      ['text', ['\u202eabc\n', '\ufeff', null, '']],
      ['bytes', ['0xfffe', '0x6162', null, '0x']],
      ['fixed', ['0x01020304', null, '0x61626364', '0xffffffff']],
    ],
    int96: [['timestamp', T], ['t', ['2023-11-14 22:13:20.000000001', null, '1969-12-31 23:59:59.999999999', '1970-01-01 00:00:00.000000000']]],
    names: [['timestamp', T], ...['v', 'v', '__proto__', 'constructor', 'a.b', '', 'length', '\u202ex'].map((c, i) => [c, [0, 1, 2, 3].map((r) => String(10 * i + r))]),
      ['a', ['{"b":0}', '{"b":1}', '{"b":2}', '{"b":3}']]],
  };
  for (const [f, columns] of Object.entries(want)) {
    const t = await table(f);
    assert.deepEqual(t.wrong, [], f);
    assert.deepEqual(t.columns, columns, f);
  }
  const { m } = await table('bounds');
  assert.deepEqual(m.groups[0].columns.map((c) => [c.path, c.min, c.max]), [
    ['timestamp', T[0], T[3]], ['bytes', '0xff00', '0xff03'], ['text', 'a', 'é'], ['u64', '0', '18446744073709551615'],
    ['dec18', '-1.00', '9007199254740993.01'], ['dec38', '-1.000000', '12345678901234567890123456789012.123456'], ['date', '0001-01-01', '0001-01-01'],
    ['time', '2023-11-14 22:13:20.000000001', '2023-11-14 22:13:20.000000001'], ['f64', '-0', '0'],
  ]);
});

test('a few bytes of Parquet that say that much follows are refused before they are decoded', async () => {
  const want = {
    'bomb-values': /a page says that its values are 100,000,000, more than the 4,194,304 that are read here/,
    'bomb-run': /a run of 1,000,000,000 values goes beyond its page of 10/,
    'bomb-prefixes': /the decoded bytes of a page are 400,000,000, more than the 67,108,864/,
    'bomb-parts': /the deltas of a page come in blocks of 2,147,483,648/,
  };
  const page = await open();
  for (const [f, says] of Object.entries(want)) {
    const { wrong } = await table(f);
    assert.equal(wrong.length, 1, f);
    assert.match(wrong[0].message, says);
    await openFiles(page, [generate('segment', made(f), join(dir, `${f}.stream`))]);
    await go(page, 2);
    await unit(page, 2);
    await page.click('#tab-segment');
    await page.waitForFunction((s) => new RegExp(s).test(document.getElementById('pane-segment').textContent), `These rows can’t be read: timestamp: ${says.source}`);
    assert.ok(pageMemory() < 400e6, `${f}: ${pageMemory()} bytes`);
  }
  // The names of columns are their own on the page too.
  await openFiles(page, [generate('segment', made('names'), join(dir, 'names.stream'))]);
  await go(page, 2);
  await unit(page, 2);
  await page.click('#tab-segment');
  await page.waitForFunction(() => /^\d{19}$/.test(document.querySelector('.p-row .p-cell:nth-child(2)')?.textContent ?? ''));
  assert.deepEqual(await page.locator('.p-head .p-cell').allTextContents(), ['#', 'timestamp', 'v', 'v', '__proto__', 'constructor', 'a.b', '', 'length', '\\u202ex', 'a']);
  assert.deepEqual(await page.locator('.p-row:not([hidden]) >> nth=1 >> .p-cell').allTextContents(), ['1', '1700000001000000000', '1', '11', '21', '31', '41', '51', '61', '71', '{"b":1}']);
  await quiet(page);
});

test('a list of captures that is odd is refused in one line, or shown as safe text', async () => {
  const stream = readFileSync(fixture('crafted/gap.stream'));
  const good = { path: 'a/x.stream', url: '/odd/x.stream', size: stream.length };
  // {list} is given as it is, {answer} answers by itself.
  let now = {};
  let sent = 0;
  const srv = await odd(stream, (res, from, to) => {
    if (!res.req.url.endsWith('/list.json')) {
      const end = Math.min(to, stream.length - 1);
      part(res, from, end, stream.length).end(stream.subarray(from, end + 1));
    } else if (now.answer) now.answer(res);
    else res.writeHead(200, { ...HEADERS, 'Content-Type': 'application/json' }).end(typeof now.list === 'string' ? now.list : JSON.stringify(now.list));
  });
  const { base } = srv;
  const opened = async (what) => {
    now = what;
    return openPage(browser, `${base}/?list=/odd/list.json`);
  };
  const chunk = Buffer.alloc(1 << 20, 0x20);
  const flood = (res) => {
    if (res.destroyed || sent > 1e9) return;
    sent += chunk.length;
    res.write(chunk, () => flood(res));
  };
  for (const [what, says] of [
    [{ list: 'null' }, 'it is no list of files, {"files": [{"path", "url", "size"}]}.'],
    [{ list: { files: [good, { url: good.url, size: 1 }] } }, 'entry 2 has no path.'],
    [{ list: { files: [good, { ...good, url: 'http://other.example/x' }] } }, 'entry 2: it names another site than this page’s.'],
    [{ list: { files: [good, { ...good, path: 'x\ud800' }] } }, 'the path of entry 2 has half a character in it.'],
    [{ list: { files: [good, { ...good, size: -1 }] } }, 'the size of entry 2 is no number of bytes: -1.'],
    [{ list: `{"files": [${`${JSON.stringify(good)},`.repeat(999999)}${JSON.stringify(good)}]}` }, 'it names 1,000,000 files, and at most 100,000 are opened at once.'],
    [{ answer: (res) => { res.writeHead(200, { ...HEADERS, 'Content-Length': '1000000000' }); flood(res); } }, 'it has more than 67,108,864 bytes.'],
    [{ answer: (res) => { res.writeHead(200, HEADERS); flood(res); } }, 'it has more than 67,108,864 bytes.'],
    [{ answer: (res) => { res.writeHead(204, HEADERS).end(); } }, 'it is empty.'],
  ]) {
    const p = await opened(what);
    await p.waitForFunction(() => !/^(Opening…)?$/.test(document.getElementById('what').textContent));
    assert.equal(await p.textContent('#what'), `The list of captures can’t be read: ${says}`);
    assert.ok(await p.isHidden('#stop-opening'));
    await quiet(p);
  }
  assert.ok(sent < 3e8, `${sent} bytes were taken`);
  // A server that gives nothing for a minute.
  for (const answer of [() => {}, (res) => { res.writeHead(200, HEADERS); res.write('{"files"'); }]) {
    now = { answer };
    const context = await browser.newContext();
    const p = await context.newPage();
    await p.clock.install();
    await p.goto(`${base}/?list=/odd/list.json`);
    await p.waitForSelector('#stop-opening:not([hidden])');
    await p.waitForTimeout(300);
    await p.clock.fastForward(61000);
    await p.waitForFunction(() => document.getElementById('what').textContent === 'The list of captures can’t be read: the server has given nothing for 60 s.');
    await context.close();
  }
  // What can be shown is shown, as text, and its link leads to it.
  const names = ['a/\u001b[31m<b>\u202ename', '../../%E0%A4%A', '__proto__', 'a//./b c#&?', 'x'.repeat(4096), '(2)/y'];
  const p = await opened({ list: { files: [...names.map((path) => ({ ...good, path })), { ...good, path: names[0], url: 'y.stream', size: 0 }] } });
  await p.waitForSelector('body[data-done]');
  assert.equal((await p.textContent('#file-name')).split(' · ').length, 3);
  // Each has an address of its own.
  const links = new Set();
  for (let i = 0; i <= names.length; i++) {
    await p.waitForFunction((seen) => document.body.dataset.done && /connection=/.test(location.hash) && !seen.includes(location.hash), [...links]);
    links.add(await p.evaluate(() => location.hash));
    assert.doesNotMatch(await p.textContent('#file-name'), /undefined|[\u0000-\u001f\u202e]/);
    await p.keyboard.press('>');
  }
  await p.click('#tab-connections');
  assert.doesNotMatch(await p.textContent('#connections'), /undefined|NaN|[\u0000-\u0009\u001b\u202e]/);
  await quiet(p);
  srv.close();
});

test('a row that was chosen under a filter stays chosen where the index pass did not come to', async () => {
  const data = readFileSync(fixture('real/complete.stream'));
  let hold = true;
  const srv = await odd(data, (res, from, to, state) => {
    if (hold && from > 0 && from < 70000 && to > 60000) return;
    part(res, from, to, state.data.length).end(state.data.subarray(from, to + 1));
  });
  const page = await openPage(browser, `${srv.base}/`);
  await page.click('#open-url');
  await page.fill('#url', `${srv.base}/odd.stream`);
  await page.press('#url', 'Enter');
  await page.waitForFunction(() => !document.body.classList.contains('blank'));
  await until('the index pass waits', () => srv.state.open >= 1);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => /stopped at/.test(document.getElementById('state').textContent));
  hold = false;
  const known = Number(await page.evaluate(() => document.body.dataset.rows));
  await page.fill('#filter', 'offset > 100000');
  await page.press('#filter', 'Enter');
  await page.waitForFunction(() => document.body.dataset.filtered === 'offset > 100000');
  await page.waitForFunction(() => Number(document.body.dataset.unit) > 0);
  const row = Number(await page.evaluate(() => document.body.dataset.unit));
  assert.ok(row >= known, `${row} of ${known}`);
  const title = await page.textContent('#unit-title');
  await page.click('#filter-clear');
  await page.waitForFunction(() => window.said.includes('The index pass was stopped before this row: it is shown, and not in the list.'));
  assert.equal(await page.textContent('#unit-title'), title);
  assert.equal(await page.evaluate(() => document.body.dataset.unit), String(row));
  // What is done with it is done with this one, and the keys go on from the end of the list.
  await page.waitForFunction(() => /offset=1\d{5}/.test(location.hash));
  await page.focus('#frames');
  await page.keyboard.press('ArrowUp');
  await unit(page, known - 1);
  // Chosen again, and reached when the pass goes on: it is in the list then.
  await page.fill('#filter', 'offset > 100000');
  await page.press('#filter', 'Enter');
  await page.waitForFunction(() => document.body.dataset.filtered === 'offset > 100000');
  await unit(page, row);
  await page.click('#filter-clear');
  await page.waitForFunction(() => !document.querySelector('#frames .row.selected:not([hidden])'));
  await page.click('#go-on');
  await page.waitForSelector(`#frames .row.selected[data-row="${row}"]`);
  await unit(page, row);
  assert.equal(await page.textContent('#unit-title'), title);
  await page.context().close();
  srv.close();
});

test('damage in a large compressed file is said where its bytes are seen', async () => {
  const big = generate('mixed', 48 << 20, join(dir, 'damaged.stream'));
  const data = readFileSync(big);
  // A piece of 1 MiB that lies inside of a payload that the index pass does not read.
  const zst = join(dir, 'damaged.cap.zst');
  generate('zst', big, zst);
  const b = readFileSync(zst);
  const size = b[b.length - 5] & 0x80 ? 12 : 8;
  const count = b.readUInt32LE(b.length - 9);
  const pieces = [];
  for (let i = 0, from = 0, at = 0; i < count; i++) {
    const e = b.length - 9 - (count - i) * size;
    pieces.push({ from, at, length: b.readUInt32LE(e), inflated: b.readUInt32LE(e + 4) });
    from += pieces[i].length;
    at += pieces[i].inflated;
  }
  const frames = [];
  for (let p = 14; p + 4 < data.length; p += 4 + data.readUInt32LE(p)) frames.push([p, 4 + data.readUInt32LE(p)]);
  let inside;
  const f = frames.findIndex(([at, n]) => {
    inside = pieces.find((x) => x.at > at + 100000 && x.at + x.inflated < at + n - 200000);
    return inside;
  });
  assert.ok(f >= 0);
  b.fill(0xa5, inside.from + (inside.length >> 1), inside.from + (inside.length >> 1) + 300);
  writeFileSync(zst, b);
  const page = await open();
  await openFiles(page, [zst]);
  assert.equal(await page.textContent('#notes'), '', 'the index pass does not read it');
  await go(page, f + 1);
  await unit(page, f + 1);
  assert.match(await page.textContent('#unit-findings'), new RegExp(`damaged-zstd.*to byte ${inside.at + inside.inflated}, is shown as zeros`));
  assert.match(await page.textContent('#toast'), /^damaged-zstd: .*shown as zeros/);
  assert.match(await page.textContent('#notes'), /damaged-zstd/);
  assert.equal(await page.textContent('#finding-count'), '1');
  // Its bytes are marked, from the first of them on.
  await page.click('#unit-findings button:has-text("damaged-zstd")');
  await page.waitForSelector('#hex .doubt');
  const places = await page.$$eval('#hex .line:not([hidden])', (l) => l.map((e) => [parseInt(e.querySelector('.at').textContent, 16), [...e.querySelectorAll('.b')].map((x) => x.classList.contains('doubt'))]));
  const marked = places.flatMap(([at, l]) => l.map((on, i) => [at + i, on]));
  assert.ok(marked.every(([o, on]) => on === (o >= inside.at && o < inside.at + inside.inflated)), JSON.stringify(places.slice(0, 3)));
  // Of the frame before nothing is said.
  await go(page, f);
  await unit(page, f);
  assert.doesNotMatch(await page.textContent('#unit-findings'), /damaged/);
  rmSync(big);
  rmSync(zst);
  await quiet(page);
});
