// Captures as they lie in folders, in a real Chromium: many connections, times of
// arrival, what lies beside the bytes, and folders that are dropped.

import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { connection, dist, filter, filtering, finish, go, holding, indexed, launch, listed, openFiles, openPage, quiet, rest, root, serve, test, toast, unfiltered, unit, until, viewed } from './browser.mjs';
import { dendro, generate, work } from './fixtures.mjs';

const dir = join(work, 'captures-test');
mkdirSync(dir, { recursive: true });
const fixture = (name) => dendro().find((x) => x.name === name).file;
const inside = (d) => readdirSync(d).filter((f) => f !== 'lock').sort().map((f) => join(d, f));
let browser;
let server;
let many; // a folder of nine connections
let one; // a folder of one connection in several files

before(async () => {
  browser = await launch();
  server = await serve({ '/': dist });
  many = generate('connections', fixture('real/live.stream'), fixture('crafted/gap.stream'), fixture('real/small.stream'), fixture('telemetry/small.stream'), join(dir, 'many'));
  one = generate('folder', fixture('real/small.stream'), join(dir, 'one'));
});

after(() => finish(browser, server));

const open = (options) => openPage(browser, `${server.base}/`, options);

/** Shows all times as nanoseconds since 1970. */
async function rawTimes(page) {
  await page.click('#settings-open');
  await page.check('input[name=time][value=raw]');
  await page.click('#settings-dialog button');
}

const axis = async (page, name) => {
  await page.click(`#axis [value=${name}]`);
  await page.waitForSelector(`#axis [value=${name}][aria-pressed=true]`);
};

/** Every bin of the timeline as it is told to who moves over it by keys. */
function told(page) {
  return page.evaluate(() => {
    const t = document.getElementById('timeline');
    const key = (k) => t.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));
    const out = [];
    key('Home');
    const n = Number(t.getAttribute('aria-valuemax')) + 1;
    for (let i = 0; i < n; i++) {
      out.push(t.getAttribute('aria-valuetext'));
      key('ArrowRight');
    }
    return out;
  });
}

async function drag(page, a, b) {
  const box = await page.locator('#timeline').boundingBox();
  await page.mouse.move(box.x + box.width * a, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * b, box.y + 30, { steps: 4 });
  await page.mouse.up();
}

const number = (s) => Number(s.replaceAll(',', ''));

test('a span of each axis takes exactly the rows that lie in it', async () => {
  const page = await open();
  await openFiles(page, inside(one));
  await rawTimes(page);
  const all = await listed(page);
  assert.ok(all.every((r) => /^\d{19}$/.test(r.arrival)));
  const of = { bytes: (r) => BigInt(r.offset), time: (r) => (r.time ? BigInt(r.time) : null), arrival: (r) => BigInt(r.arrival) };
  for (const name of ['bytes', 'time', 'arrival']) {
    await axis(page, name);
    // All rows that have a place on the axis are in its bins.
    const rows = (await told(page)).map((s) => number(/: ([\d,]+) rows?/.exec(s)[1])).reduce((n, v) => n + v, 0);
    assert.equal(rows, all.filter((r) => of[name](r) !== null).length, name);
    for (const [a, b] of [[0.1, 0.62], [0.3, 0.9], [0.02, 0.5]]) {
      const field = name === 'bytes' ? 'offset' : name;
      const e = await filtering(page, new RegExp(`^${field} >= \\S+ and ${field} < \\S+$`), () => drag(page, a, b));
      const [, from, to] = /^\w+ >= (\S+) and \w+ < (\S+)$/.exec(e);
      const value = (s) => (name === 'bytes' ? BigInt(s) : BigInt(Date.parse(`${s.slice(0, 19)}Z`)) * 1000000n + BigInt(s.slice(20, 29)));
      assert.ok(value(from) < value(to));
      const want = all.filter((r) => of[name](r) !== null && of[name](r) >= value(from) && of[name](r) < value(to)).map((r) => r.row);
      assert.ok(want.length > 0 || name === 'time', `${name}: ${from} to ${to}`);
      assert.deepEqual((await listed(page)).map((r) => r.row), want, `${name}: ${from} to ${to}`);
    }
    // By keys alone, with Shift; and a click goes to the row there.
    await unfiltered(page);
    await page.focus('#timeline');
    await page.keyboard.press('Home');
    await page.keyboard.press('Shift+PageDown');
    await page.keyboard.press('Shift+PageDown');
    await filtering(page, / and /, () => page.keyboard.press('Enter'));
    assert.ok((await listed(page)).length < all.length);
    await unfiltered(page);
    await go(page, 0);
    await unit(page, 0);
    const box = await page.locator('#timeline').boundingBox();
    await page.mouse.click(box.x + box.width * 0.55, box.y + 30);
    // Of the data's time, the first of a backfill is early in the stream.
    await page.waitForFunction((least) => Number(document.body.dataset.unit) > least, name === 'time' ? 3 : 5);
  }
  await quiet(page);
});

test('the timeline marks gaps, findings, files and connections on every axis, in shapes and words', async () => {
  const page = await open();
  // The third file is missing; of the rest the last ends in zeros.
  const files = inside(one).filter((f) => !/\.00000003\./.test(f)).map((f) => ({ name: f.split('/').pop(), buffer: readFileSync(f), mimeType: '' }));
  const last = files.findLast((f) => f.name.endsWith('.cap'));
  last.buffer = Buffer.concat([last.buffer.subarray(0, last.buffer.length - 3000), Buffer.alloc(3000)]);
  await openFiles(page, files);
  const chips = await page.locator('#finding-kinds .chip').allTextContents();
  const gaps = chips.map((c) => Number(/^(?:gap|sequence-gap|missing-bytes|zero-filled-tail)([\d,]+)$/.exec(c)?.[1] ?? 0)).reduce((n, v) => n + v);
  assert.ok(gaps >= 2, chips.join());
  for (const name of ['bytes', 'time', 'arrival']) {
    await axis(page, name);
    const bins = await told(page);
    const count = async (mark) => ((await page.isVisible(`#mark-${mark}`)) ? Number(await page.textContent(`#mark-${mark} .n`)) : 0);
    if (name === 'bytes') assert.ok(bins.some((s) => /: in no file$/.test(s)));
    assert.equal(await count('gap'), gaps, name);
    assert.equal(bins.map((s) => Number(/(\d+) gaps?\b/.exec(s)?.[1] ?? 0)).reduce((n, v) => n + v), gaps, name);
    assert.equal(await count('file'), files.filter((f) => f.name.endsWith('.cap')).length - 1, name);
    assert.equal(bins.filter((s) => /00000002\.cap starts/.test(s)).length, 1, name);
    assert.equal(await count('connection'), 1, name);
    assert.match(bins.find((s) => /c00000001-5f3a9b2e starts/.test(s)) ?? '', /preamble|Handshake|Segment|Index|Rows|Clock|0 rows/, name);
    // They are on the canvas: what has the colour of a finding.
    assert.ok(await page.evaluate(() => {
      const c = document.getElementById('timeline');
      const copy = Object.assign(document.createElement('canvas'), { width: c.width, height: c.height });
      const g = copy.getContext('2d', { willReadFrequently: true });
      g.drawImage(c, 0, 0);
      const { data } = g.getImageData(0, 0, c.width, c.height);
      let n = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i] === 179 && data[i + 1] === 38 && data[i + 2] === 30) n++;
      return n > 50;
    }), name);
  }
  assert.match(await page.textContent('#findings'), /missing-bytes/);
  await filtering(page, /finding == /, () => page.click('#mark-gap'));
  const types = (await listed(page)).map((r) => r.type);
  assert.ok(types.includes('missing') && types.includes('zeros'), types.join());
  await unfiltered(page);
  await page.click('#mark-file');
  assert.ok(await page.isVisible('#pane-capture'));
  await quiet(page);
});

test('findings without a time of their own lie where the rows before them do', async () => {
  const page = await open();
  await openFiles(page, [fixture('crafted/bad-utf8.stream')]);
  for (const name of ['bytes', 'time']) {
    await axis(page, name);
    // The malformed frame, and the gap that the next one makes.
    assert.ok((await told(page)).some((s) => /1 finding/.test(s)), name);
    assert.equal(await page.textContent('#mark-finding .n'), '2');
    assert.equal(await page.textContent('#finding-count'), '2');
    assert.equal(await page.textContent('#mark-gap .n'), '1');
  }
  assert.ok(await page.isDisabled('#axis [value=arrival]'));
  await filtering(page, 'finding', () => page.click('#mark-finding'));
  assert.deepEqual((await listed(page)).map((r) => r.row), [4, 5]);
  await quiet(page);
});

test('many connections are listed, and chosen by mouse, keys and the timeline', async () => {
  const page = await open();
  await openFiles(page, inside(many));
  await page.waitForFunction(() => document.querySelectorAll('#connections .connection:not([hidden]) .badge').length >= 7);
  const cards = () => page.evaluate(() => [...document.querySelectorAll('#connections .connection:not([hidden])')].sort((a, b) => a.index - b.index).map((c) => c.innerText));
  const list = await cards();
  assert.match(list[0], /▶ c00000001-5f3a9b01\s+dendro\s+↓ downstream · tcp:\/\/other\.example:7001\s+2023-11-14 22:13:20\.066 for 4\.\d+ s\s+266 KiB · 36 frames · 3 files · nothing found/);
  assert.match(list[3], /publisher-2[^]*165 KiB · 14 frames · 2 files · ⚠ 1 finding/);
  assert.match(list[2], /gap|1 finding/);
  assert.equal(await page.textContent('#connections-open'), 'Connection 1 of 9');
  // By keys: the list, two down, Enter.
  await page.focus('#frames');
  await page.keyboard.press('l');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'connections');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const shown = async (n, name) => {
    await connection(page, name);
    assert.equal(await page.textContent('#connections-open'), `Connection ${n} of 9`);
    assert.equal(await page.getAttribute('#connections [aria-selected=true]', 'aria-posinset'), String(n));
  };
  await page.keyboard.press('Enter');
  await shown(3, 'c00000003-5f3a9b03');
  assert.equal((await listed(page)).length, 7);
  assert.match((await cards())[2], /6 frames · ⚠ 1 finding/);
  await page.focus('#frames');
  await page.keyboard.press('>');
  await shown(4, 'c00000004');
  // How it ended is told.
  await page.click('#tab-capture');
  assert.match(await page.textContent('#capture'), /connection reset by peer/);
  assert.match(await page.textContent('#capture'), /✓ All bytes fit their arrival index/);
  await page.click('#tab-connections');
  await page.focus('#frames');
  await page.keyboard.press('<');
  await page.keyboard.press('<');
  await shown(2, 'c00000002');
  await page.locator('#connections .connection', { hasText: 'c00000001' }).click();
  await shown(1, 'c00000001');
  // Over the arrival axis of the long one lie the starts of those that began meanwhile.
  await axis(page, 'arrival');
  assert.equal(await page.textContent('#mark-connection .n'), '8');
  const bins = await told(page);
  const at = bins.findIndex((s) => /c00000005-5f3a9b05 starts/.test(s));
  assert.ok(at > 0, bins.filter((s) => /starts/.test(s)).join('\n'));
  const box = await page.locator('#timeline').boundingBox();
  await page.mouse.click(box.x + (box.width * (at + 0.5)) / bins.length, box.y + 20);
  await shown(5, 'c00000005');
  // The strip over it shows all of them, on each axis.
  await axis(page, 'bytes');
  const strip = await page.locator('#spans').boundingBox();
  await page.mouse.click(strip.x + 20, strip.y + 6);
  await shown(1, 'c00000001');
  await axis(page, 'arrival');
  await page.mouse.click(strip.x + 3, strip.y + 6);
  await shown(2, 'c00000002');
  await axis(page, 'time');
  assert.match(await page.textContent('#spans-note'), /^\d more/);
  await quiet(page);
});

test('a link names the connection, and a filter stays when another is shown', async () => {
  const page = await open();
  await openFiles(page, inside(many));
  await page.keyboard.press('>');
  await connection(page, 'c00000002');
  assert.match(new URL(page.url()).hash, /connection=c00000002/);
  await filter(page, 'kind == Rows');
  const n = (await listed(page)).length;
  await page.keyboard.press('Escape');
  await page.focus('#frames');
  await filtering(page, 'kind == Rows', async () => {
    await page.keyboard.press('>');
    await connection(page, 'c00000003');
  });
  assert.deepEqual((await listed(page)).map((r) => r.name), ['Rows', 'Rows', 'Rows', 'Rows']);
  assert.notEqual(n, 4);
  await page.evaluate(() => { location.hash = '#offset=407&connection=c00000006-5f3a9b06'; });
  await connection(page, 'c00000006');
  await unit(page, 5);
  assert.match(new URL(page.url()).hash, /offset=407/);
  const linked = await openPage(browser, `${server.base}/#offset=170&connection=c00000003-5f3a9b03`);
  await openFiles(linked, inside(many));
  await unit(linked, 2);
  assert.match(await linked.textContent('#file-name'), /^c00000003/);
  await quiet(linked);
  await quiet(page);
});

test('a time is gone to under a filter, by the data or by arrival', async () => {
  const page = await open();
  await openFiles(page, inside(one));
  await filter(page, 'kind == Rows or kind == Segment');
  await rawTimes(page);
  const rows = await listed(page);
  await page.evaluate(() => { document.getElementById('frames').scrollTop = 0; });
  const some = rows[Math.floor(rows.length / 2)];
  await go(page, `arrival ${some.arrival}`);
  await unit(page, rows.find((r) => BigInt(r.arrival) >= BigInt(some.arrival)).row);
  assert.deepEqual((await listed(page)).map((r) => r.row), rows.map((r) => r.row), 'the filter still holds');
  await go(page, rows[2].time);
  await unit(page, rows.find((r) => BigInt(r.time) >= BigInt(rows[2].time)).row);
  // A time of day, as the columns show it.
  await page.keyboard.press('Escape');
  await page.focus('#frames');
  await page.keyboard.press('t');
  await page.waitForFunction(() => /Arrival 2023-11-14/.test(document.getElementById('columns').textContent));
  await page.evaluate(() => { document.getElementById('frames').scrollTop = 0; });
  const last = (await listed(page)).at(-1);
  await go(page, `arrival ${last.arrival}`);
  await unit(page, rows.find((r) => r.arrival === rows.at(-1).arrival).row);
  await go(page, 'data 2200-01-01');
  await toast(page, /No data is as late/);
  await go(page, '@99999999999');
  await toast(page, /The bytes go from offset 0 to/);
  await quiet(page);
});

test('what is wrong with a comparison of arrival times is said at its place', async () => {
  const page = await open();
  const wrong = async (e, says, mark) => {
    await page.fill('#filter', e);
    await page.press('#filter', 'Escape');
    await page.press('#filter', 'Enter');
    await page.waitForFunction((t) => document.querySelector('#filter-wrong:not([hidden]) mark')?.textContent === t, mark);
    assert.match(await page.textContent('#filter-wrong'), says);
  };
  await openFiles(page, inside(one));
  await wrong('size > 3 and arrival == 2023-11-14', /compared with a time by <, <=, > or >=/, '==');
  await wrong('arrival > 2023-11-14T22:13:20 and colour', /no field/, 'colour');
  await wrong('arrival > soon', /expected a time/, 'soon');
  // Completion offers it.
  await page.fill('#filter', '');
  await page.focus('#filter');
  await page.keyboard.type('arr');
  await page.keyboard.press('Tab');
  assert.equal((await page.inputValue('#filter')).trim(), 'arrival');
  await page.fill('#filter', '');
  await page.press('#filter', 'Enter');
  await openFiles(page, [fixture('crafted/gap.stream')]);
  await wrong('arrival > 2023-11-14', /no arrival index/, 'arrival');
  await quiet(page);
});

test('a link that is malformed and names that attack are only text', async () => {
  const page = await openPage(browser, `${server.base}/#offset=170&connection=%E0%A4%A`);
  const buffer = readFileSync(fixture('crafted/gap.stream'));
  const evil = ['<img src=x onerror=alert(1)>.stream', 'safe\u202egnp.stream', '%s%n"\'.stream', 'c00000001-5f3a9b2e.00000001.cap'];
  await openFiles(page, [...evil.map((name) => ({ name, mimeType: '', buffer })), { name: 'c00000001-5f3a9b2e.00000001.json', mimeType: '', buffer: Buffer.from(JSON.stringify({ format: 'wiretape-sidecar', version: 1, connection: 'c00000001-5f3a9b2e', file: 1, framing: 'frames', boundary: 0, sha256: 'ab'.repeat(32), protocol: 'dendro', endpoint: '<b onclick=alert(1)>\u202e', start: 0, length: buffer.length, closed: '<script>alert(1)</script>', findings: [{ kind: '<i>', offset: 5, message: '\u202e<i>' }] })) }]);
  await toast(page, /The link is to connection %E0%A4%A, which is not among what was opened\./);
  await unit(page, 0);
  for (let i = 0; i < evil.length; i++) {
    await page.focus('#frames');
    await page.keyboard.press('>');
    await page.waitForFunction((n) => document.getElementById('connections-open').textContent === `Connection ${n} of 4` && document.body.dataset.done, ((i + 1) % 4) + 1);
    await rest(page);
  }
  for (const t of ['capture', 'findings', 'connections']) await page.click(`#tab-${t}`);
  await told(page);
  const text = await page.evaluate(() => document.body.innerText);
  assert.match(text, /<img src=x onerror=alert\(1\)>\.stream/);
  assert.doesNotMatch(text, /[\u202a-\u202e]/);
  assert.equal(await page.locator('img, b, i, script:not([src])').count(), 0);
  await quiet(page);
});

/** The files of a folder as the picker takes them, some of them changed: {name: (bytes) => bytes}. */
const changed = (d, change) => inside(d).map((f) => {
  const name = f.split('/').pop();
  const b = readFileSync(f);
  const how = Object.entries(change).find(([k]) => name.endsWith(k));
  return { name, mimeType: '', buffer: how ? how[1](b) : b };
});

test('an arrival index that does not fit its bytes is said and not used', async () => {
  const page = await open();
  const records = (b) => Buffer.from(b).fill(0x55, b.length - 3); // the checksum of the last read
  // One read in the middle of the second file is torn.
  await openFiles(page, changed(one, { '.00000002.cap': (b) => { b[Math.floor(b.length / 2)] ^= 4; return b; } }));
  await page.click('#tab-findings');
  assert.match(await page.textContent('#notes'), /^⚠ torn-bytes c\d+-[0-9a-f]+\.00000002\.cap: bytes \d+ to \d+ do not fit their arrival index[^]*expected CRC-32C 0x[0-9a-f]{8}, found 0x[0-9a-f]{8} · offset [\d,]+$/);
  assert.ok(Number(await page.textContent('#finding-count')) >= 1);
  assert.ok((await listed(page)).every((r) => /^22:13:20/.test(r.arrival)), 'arrival times stay');
  await page.click('#notes button');
  await page.waitForFunction(() => document.querySelector('#hex .b.cursor'));
  // The last read of a file does not fit: nothing behind it would either.
  await openFiles(page, changed(one, { '.00000001.idx': records }));
  assert.match(await page.textContent('#notes'), /torn-bytes.*arrival times from there on are not used/);
  // The index of another file is of no use; the rest is.
  const third = readFileSync(inside(one).find((f) => f.endsWith('.00000003.cap')));
  await openFiles(page, changed(one, { '.00000002.cap': (b) => Buffer.concat([third, third]).subarray(0, b.length) }));
  assert.match(await page.textContent('#notes'), /arrival-index.*\.00000002\.cap: its arrival index is of other bytes, or damaged; arrival times of this file are not used/);
  const rows = await listed(page);
  assert.ok(rows.some((r) => r.arrival) && rows.some((r) => !r.arrival));
  // None at all, and one that is none.
  for (const [how, says] of [[(b) => Buffer.from(b).fill(0, 0, 8), /arrival-index.*is no arrival index/], [(b) => { b.writeBigInt64LE(7n, 8); return b; }, /starts at 7, its file at/]]) {
    await openFiles(page, changed(one, { '.idx': how }));
    assert.match(await page.textContent('#notes'), says);
    assert.ok((await listed(page)).every((r) => r.arrival === '' || r.arrival === undefined));
    assert.ok(await page.isDisabled('#axis [value=arrival]'));
  }
  await quiet(page);
});

test('a large capture is held against its arrival index when that is asked for', async () => {
  const stream = generate('mixed', 40 << 20, join(dir, 'mixed.stream'));
  const d = generate('folder', stream, join(dir, 'large'));
  const torn = inside(d).find((f) => f.endsWith('.00000002.cap'));
  const b = readFileSync(torn);
  b[5000001] ^= 128;
  writeFileSync(torn, b);
  const page = await open();
  await openFiles(page, inside(d));
  await page.click('#tab-capture');
  assert.match(await page.textContent('#capture'), /Some reads were held against the arrival index, and fit/);
  await page.click('#compare-arrivals');
  await page.waitForFunction(() => /Some bytes do not fit/.test(document.getElementById('capture').textContent));
  await indexed(page);
  await page.click('#tab-findings');
  assert.match(await page.textContent('#notes'), /torn-bytes.*00000002\.cap/);
  assert.equal(await page.locator('#notes .beside').count(), 1);
  assert.match(await page.textContent('#columns'), /Arrival/);
  await quiet(page);
});

test('sidecars that lie, and what they found when they recorded, are said', async () => {
  const page = await open();
  const side = (f) => (b) => Buffer.from(JSON.stringify(f(JSON.parse(b))));
  await openFiles(page, changed(one, { '.00000001.json': side((s) => ({ ...s, length: s.length + 5, findings: [{ kind: 'gap', offset: 1206, message: '<b>seq</b> 9 follows 6' }] })), '.00000003.json': () => Buffer.from('{') }));
  await page.click('#tab-findings');
  const notes = await page.textContent('#notes');
  assert.match(notes, /short-file.*its sidecar says/);
  assert.match(notes, /sidecar-invalid.*00000003\.json is not used/);
  await page.click('#tab-capture');
  await page.click('#capture summary');
  assert.match(await page.textContent('#capture'), /1 finding told by its sidecar.*gap at 1,206: <b>seq<\/b> 9 follows 6/);
  assert.match((await told(page)).find((s) => /gap: <b>/.test(s)) ?? '', /9 follows 6/);
  await page.click('#capture details button');
  await page.waitForFunction(() => document.querySelector('#hex .b.cursor'));
  await rest(page);
  await openFiles(page, changed(one, {}).filter((f) => f.name.includes('.00000003.')));
  const frames = (await listed(page)).filter((r) => r.type === 'frame').map((r) => r.offset);
  assert.ok(frames.length > 1);
  // A context that is none: the file from the middle is read without it.
  for (const value of [{ bytes: 'AAEC' }, { bytes: '' }, { number: '99999999999999999999' }]) {
    const middle = changed(one, { '.00000003.json': side((s) => ({ ...s, context: { ...s.context, entries: s.context.entries.map((e) => ({ ...e, values: e.values.map((v) => ({ name: v.name, ...value })) })) } })) })
      .filter((f) => f.name.includes('.00000003.') && !f.name.endsWith('.idx'));
    await openFiles(page, middle, { wait: false });
    await page.waitForFunction(() => document.body.dataset.done || document.querySelector('#read-as:not([hidden]) button'));
    if (await page.isVisible('#read-as')) await page.click('#read-as button:has-text("dendro")');
    await indexed(page);
    // A sidecar with a number that is none is no sidecar, and gives no place.
    const place = (l) => l.map((o) => o - (value.number ? l[0] : 0));
    assert.deepEqual(place((await listed(page)).filter((r) => r.type === 'frame').map((r) => r.offset)), place(frames), JSON.stringify(value));
    await page.click('#tab-findings');
    assert.match(await page.textContent('#pane-findings'), /sidecar-invalid|malformed|unknown-ordinal/, JSON.stringify(value));
  }
  await quiet(page);
});

test('compressed files of a capture have their place, their context and their times', async () => {
  const page = await open();
  const files = [];
  for (const f of inside(one)) {
    const cap = f.endsWith('.cap');
    const from = cap ? generate('zst', f, join(dir, `${f.split('/').pop()}.zst`)) : f;
    files.push({ name: from.split('/').pop(), mimeType: '', buffer: readFileSync(from) });
  }
  await openFiles(page, files);
  const want = dendro().find((x) => x.name === 'real/small.stream').frames.map((w) => w.offset);
  const rows = await listed(page);
  assert.deepEqual(rows.filter((r) => r.type === 'frame').map((r) => r.offset), want);
  assert.ok(rows.every((r) => /^22:13:20/.test(r.arrival)));
  await page.click('#tab-capture');
  assert.match(await page.textContent('#capture'), /✓ All bytes fit their arrival index/);
  await quiet(page);
});

test('a narrow window has the connections, the marks and the strip too', async () => {
  for (const viewport of [{ width: 400, height: 800 }, { width: 700, height: 430 }]) {
    const page = await open({ viewport });
    await openFiles(page, inside(many));
    await page.click('#axis [value=arrival]');
    for (const id of ['connections', 'spans', 'marks', 'timeline', 'legend', 'frames', 'tree', 'hex']) {
      await page.locator(`#${id}`).scrollIntoViewIfNeeded();
      const b = await page.locator(`#${id}`).boundingBox();
      assert.ok(b.width > 100 && b.height > 8 && b.x >= 0 && b.x + b.width <= viewport.width + 1, `${id} ${JSON.stringify(b)}`);
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scrolling');
    await page.focus('#frames');
    await page.keyboard.press('l');
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.getElementById('connections-open').textContent === 'Connection 9 of 9' && document.body.dataset.done);
    await rest(page);
    await quiet(page);
  }
});

test('replay view lists the connections of a folder, by ranges', async () => {
  const replay = join(work, 'replay-many');
  execFileSync('go', ['build', '-o', replay, './cmd/replay'], { cwd: root, stdio: 'inherit' });
  const { url, stop } = await viewed(replay, many);
  const page = await openPage(browser, url);
  await indexed(page);
  await page.waitForFunction(() => document.querySelectorAll('#connections .connection:not([hidden]) .badge').length >= 7);
  await page.focus('#frames');
  await page.keyboard.press('>');
  await connection(page, 'c00000002');
  assert.equal(await page.textContent('#connections-open'), 'Connection 2 of 9');
  await page.click('#tab-capture');
  assert.doesNotMatch(await page.textContent('#capture'), /✓ All bytes fit their arrival index/);
  await page.click('#compare-arrivals');
  await page.waitForFunction(() => /✓ All bytes fit their arrival index/.test(document.getElementById('capture').textContent));
  await indexed(page);
  await quiet(page);
  assert.equal(await stop(), 0);
});

/** Drops files and folders of the disk on the page, as a person would. */
async function drop(page, paths) {
  const client = await page.context().newCDPSession(page);
  const data = { items: [], files: paths, dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop']) await client.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
  await client.detach();
}

test('folders, files and a mix of them are dropped', async () => {
  const page = await open();
  await drop(page, [one]);
  await indexed(page);
  const want = dendro().find((x) => x.name === 'real/small.stream').frames.map((w) => w.offset);
  assert.deepEqual((await listed(page)).filter((r) => r.type === 'frame').map((r) => r.offset), want);
  assert.match(await page.textContent('#columns'), /Arrival/);
  assert.ok(await page.isHidden('#connections-open'));
  // Two folders and a file: all their connections.
  await drop(page, [many, one, fixture('crafted/gap.stream')]);
  await page.waitForFunction(() => document.getElementById('connections-open').textContent === 'Connection 1 of 11' && document.body.dataset.done);
  await rest(page);
  await page.focus('#connections');
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await connection(page, 'gap.stream');
  assert.equal((await listed(page)).length, 7);
  // Empty ones say so.
  const empty = join(dir, 'empty', 'deeper');
  mkdirSync(empty, { recursive: true });
  await drop(page, [join(dir, 'empty')]);
  await page.waitForFunction(() => /There is no file in it/.test(document.getElementById('what').textContent));
  assert.ok(await page.isVisible('#welcome'));
  await quiet(page);
});

test('a folder with thousands of entries and deep nesting opens, and says what it left out', async () => {
  const page = await open();
  const d = join(dir, 'deep');
  let p = d;
  for (let i = 0; i < 40; i++) {
    p = join(p, `level-${i}`);
    mkdirSync(p, { recursive: true });
    if (i === 5) for (const f of inside(one)) writeFileSync(join(p, f.split('/').pop()), readFileSync(f));
    if (i === 39) writeFileSync(join(p, 'too-deep.stream'), readFileSync(fixture('crafted/gap.stream')));
  }
  const wide = join(d, 'wide');
  mkdirSync(wide);
  for (let i = 0; i < 3000; i++) writeFileSync(join(wide, `note-${i}.txt`), 'words');
  await drop(page, [d]);
  await indexed(page);
  await toast(page, /Folders more than 32 deep were left out/);
  // The capture comes first, the texts can be looked at and say what they are.
  assert.match(await page.textContent('#file-name'), /^c00000001-5f3a9b2e/);
  assert.equal(await page.textContent('#connections-open'), 'Connection 1 of 3,001');
  await page.focus('#connections');
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /note-\d+\.txt: text/.test(document.getElementById('what').textContent));
  assert.ok(await page.isVisible('#welcome-list #connections'));
  assert.ok(await page.locator('#connections .connection').count() < 60);
  await page.focus('#connections');
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  await indexed(page);
  assert.ok(await page.isVisible('#pane-connections #connections'));
  await quiet(page);
});

test('a folder without a capture opens the first file that is one', async () => {
  const page = await open();
  await openFiles(page, [
    ...Array.from({ length: 30 }, (_, i) => ({ name: `a-${i}.txt`, mimeType: '', buffer: Buffer.from('words') })),
    { name: 'm.bin', mimeType: '', buffer: readFileSync(fixture('crafted/gap.stream')) },
    { name: 'z.txt', mimeType: '', buffer: Buffer.from('words') },
  ]);
  assert.match(await page.textContent('#file-name'), /^m\.bin · dendro/);
  await quiet(page);
});

test('every codec of Parquet shows its rows and is checked', async () => {
  const page = await open();
  await openFiles(page, [generate('segments', join(dir, 'segments.stream'))]);
  const segments = (await listed(page)).filter((r) => r.name === 'Segment');
  assert.equal(segments.length, 6);
  let before;
  for (const s of segments) {
    await go(page, s);
    await unit(page, s.row);
    await page.click('#tab-segment');
    await page.waitForFunction(() => /✓ Proved/.test(document.getElementById('pane-segment').textContent));
    assert.doesNotMatch(await page.textContent('#pane-segment'), /not checked/);
    await page.waitForFunction(() => /^\d{19}$/.test(document.querySelector('.p-row .p-cell:nth-child(2)')?.textContent ?? ''));
    const rows = await page.locator('.p-row:not([hidden])').allTextContents();
    assert.ok(rows.length > 3);
    assert.match(rows[3], /host-03.*the quick brown fox/);
    before ??= rows;
    assert.deepEqual(rows, before, `row ${s.row}`);
  }
  await quiet(page);
});

test('the Parquet file of a Segment is saved as one, byte for byte', async () => {
  const page = await open();
  const stream = readFileSync(generate('segments', join(dir, 'saved.stream')));
  await openFiles(page, [{ name: 'saved.stream', mimeType: '', buffer: stream }]);
  await go(page, 5);
  await unit(page, 5);
  await page.locator('#tree .node', { has: page.locator('.name', { hasText: /^bytes$/ }) }).click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('s')]);
  const saved = readFileSync(await download.path());
  const at = Number(/^frame-5-at-(\d+)\.parquet$/.exec(download.suggestedFilename())[1]);
  assert.deepEqual(saved, stream.subarray(at, at + saved.length));
  assert.deepEqual([saved.subarray(0, 4).toString(), saved.subarray(-4).toString()], ['PAR1', 'PAR1']);
  await quiet(page);
});

test('a codec that is not read is named, and the other columns are shown', async () => {
  const page = await open();
  const stream = readFileSync(generate('segments', join(dir, 'lzo.stream')));
  // In the footer of the snappy one, the codec of one column becomes LZO.
  const at = stream.indexOf('SNAPPY');
  const file = stream.indexOf('PAR1', at);
  const footer = stream.lastIndexOf('load', stream.indexOf('PAR1', file + 4));
  const codec = stream.indexOf(Buffer.from([0x15, 0x02, 0x16]), footer);
  assert.ok(codec > footer && codec < stream.indexOf('PAR1', file + 4));
  stream[codec + 1] = 0x06;
  await openFiles(page, [{ name: 'lzo.stream', mimeType: '', buffer: stream }]);
  await go(page, 3);
  await unit(page, 3);
  await page.click('#tab-segment');
  await page.waitForSelector('.p-row');
  assert.match(await page.textContent('#pane-segment'), /⚠ Not shown: load, compressed with LZO, which this page does not read/);
  assert.match(await page.textContent('.p-head'), /^#timestamphostcounttext$/);
  await page.waitForFunction(() => /^\d{19}$/.test(document.querySelector('.p-row .p-cell:nth-child(2)')?.textContent ?? ''));
  await page.click('#pane-segment summary:has-text("Choose columns")');
  await page.locator('.picks label', { hasText: 'load' }).click();
  await page.waitForFunction(() => /These rows can’t be read: .*LZO/.test(document.getElementById('pane-segment').textContent));
  await page.click('#pane-segment summary:has-text("Row groups")');
  assert.match(await page.textContent('[aria-label="Row groups"]'), /group.*00300/);
  await quiet(page);
});

test('a search and a filter over much are stopped', async () => {
  // What is read by them comes slowly, and the rest not before it is asked for.
  const much = readFileSync(generate('mixed', 40 << 20, join(dir, 'much.stream')));
  const site = await holding(much, 20 << 20, 100);
  const page = await openPage(browser, `${site.base}/?url=/odd.cap`);
  await page.waitForFunction(() => Number(document.body.dataset.rows) > 100);
  await page.focus('#frames');
  await page.keyboard.press('f');
  await page.selectOption('#search-kind', 'exact');
  await page.fill('#search-text', 'nothing of that kind is in it');
  await page.press('#search-text', 'Enter');
  await page.waitForFunction(() => /^0 found · \d+ %/.test(document.getElementById('search-state').textContent));
  await page.click('#search-cancel');
  await page.waitForFunction(() => document.getElementById('search-state').textContent === '0 found, stopped');
  assert.ok(await page.isHidden('#search-cancel'));
  await page.fill('#filter', 'summary ~ "no such words"');
  await page.keyboard.press('Escape');
  await page.press('#filter', 'Enter');
  await page.waitForFunction(() => /^0 rows, \d+ %$/.test(document.getElementById('state').textContent));
  await page.focus('#frames');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => /^0 rows so far, stopped$/.test(document.getElementById('filter').title));
  assert.ok(await page.isHidden('#stop'));
  // What comes after goes on.
  site.release();
  await page.click('#go-on');
  await filter(page, 'number < 5');
  await indexed(page);
  assert.equal((await listed(page)).length, 4);
  await quiet(page);
  site.close();
});

test('rows are marked as skipped with the reason, and the index state stands against the accumulated one', async () => {
  const page = await open();
  await openFiles(page, [fixture('crafted/state-mismatch.stream')]);
  await go(page, 8);
  await unit(page, 8);
  const tree = () => page.evaluate(() => [...document.querySelectorAll('#tree .node:not([hidden])')].sort((a, b) => a.index - b.index).map((n) => n.innerText.replace(/\s+/g, ' ')));
  await page.waitForFunction(() => document.querySelectorAll('#tree .node.skipped:not([hidden])').length === 2);
  await page.waitForFunction(() => /to the one before/.test(document.getElementById('tree').textContent) && /accumulated/.test(document.getElementById('tree').textContent));
  const lines = await tree();
  assert.match(lines.find((l) => /index_state/.test(l)) ?? '', /≠ accumulated, the rows are skipped · \(1111111111111111, 2222222222222222\) against \(fffffffffffffffe, 8000000000000001\) · an Index comes before the Rows of its interval \(rule 9\)/);
  assert.match(lines.filter((l) => /⊘ skipped/.test(l))[1], /⊘ skipped · \+1 s to the one before · stream/);
  assert.match(await page.textContent('#unit-findings'), /2 rows are skipped: they can't be attributed/);
  await go(page, 7);
  await unit(page, 7);
  await page.waitForFunction(() => /= accumulated · \(fffffffffffffffe, 8000000000000001\)/.test(document.getElementById('tree').textContent));
  assert.equal(await page.locator('#tree .node.skipped:not([hidden])').count(), 0);
  await quiet(page);
});

test('times are shown in UTC, local, since the first and as nanoseconds, exact everywhere', async () => {
  const page = await open({ timezoneId: 'Asia/Kathmandu' });
  await openFiles(page, inside(one));
  const row = (await listed(page)).find((r) => r.name === 'ClockOffset').row;
  await go(page, row);
  await unit(page, row);
  const shown = async () => {
    const [list, tree] = await Promise.all([
      page.evaluate((r) => ['time', 'arrival'].map((c) => document.querySelector(`#row-${r} .c-${c}`).textContent), row),
      page.evaluate(() => document.querySelector('#tree .v-time').textContent),
    ]);
    return [...list, tree];
  };
  await page.focus('#frames');
  const utc = await shown();
  assert.ok(utc[2].endsWith(utc[0]) && /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9}$/.test(utc[2]), utc.join());
  await page.keyboard.press('t');
  const local = await shown();
  const day = (s, zone) => BigInt(Date.parse(`${s.slice(0, 19)}${zone}`)) * 1000000n + BigInt(s.slice(20));
  assert.equal(day(local[2].replace(' ', 'T'), '+05:45'), day(utc[2].replace(' ', 'T'), 'Z'));
  await page.keyboard.press('t');
  const relative = await shown();
  assert.match(relative[1], /^\+0\.\d{9} s$/);
  await page.keyboard.press('t');
  const raw = await shown();
  assert.equal(BigInt(raw[2]), day(utc[2].replace(' ', 'T'), 'Z'));
  assert.ok(raw.every((s) => /^\d{19}$/.test(s)), raw.join());
  // It holds after a reload, as the axis and the widths of columns do.
  await page.click('#axis [value=arrival]');
  await page.keyboard.press(',');
  await page.fill('#set-widths input >> nth=1', '200');
  await page.click('#settings-dialog button');
  await page.reload();
  await page.waitForSelector('body[data-ready]');
  await openFiles(page, inside(one));
  assert.equal(await page.getAttribute('#axis [value=arrival]', 'aria-pressed'), 'true');
  assert.match((await listed(page))[3].arrival, /^\d{19}$/);
  assert.ok(await page.evaluate(() => Math.abs(document.querySelectorAll('#columns .cell')[1].getBoundingClientRect().width - 200) < 2));
  await quiet(page);
});

test('links that name other sites or no URL are refused in one line, and nothing is asked', async () => {
  for (const [query, says] of [['url=x%25zz.cap', /^x%zz\.cap: the server answers 404/], ['url=%2525E0%2525A4', /404/], ['url=javascript:alert(1)', /Only http/],
    ['list=javascript:1', /another site/], ['list=http://127.0.0.1:1/a', /another site/], ['list=index.html', /can’t be read/]]) {
    const page = await openPage(browser, `${server.base}/?${query}`);
    await page.waitForFunction((s) => new RegExp(s).test(document.getElementById('what').textContent), says.source);
    await rest(page);
    page.complaints = page.complaints.filter((c) => !/404/.test(c));
    await quiet(page);
  }
});

test('what is no capture, opened behind one that is still being read, says only what it is', async () => {
  const page = await open();
  const good = fixture('telemetry/small.stream');
  for (let i = 0; i < 25; i++) {
    await openFiles(page, [good]);
    // Rows and a frame are asked for, and at once nothing of it is there any more.
    await page.evaluate(() => {
      const f = document.getElementById('frames');
      f.scrollTop = 300;
      f.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }));
    });
    await page.setInputFiles('#pick-files', [{ name: 'note.txt', buffer: Buffer.from('hello, this is a text of no use\n'), mimeType: '' }]);
    await page.waitForFunction(() => /text/.test(document.getElementById('what').textContent));
    await page.evaluate(() => { document.getElementById('frames').dispatchEvent(new KeyboardEvent('keydown', { key: 'Home', bubbles: true })); });
  }
  await rest(page);
  assert.deepEqual(await page.evaluate(() => globalThis.said), []);
  await quiet(page);
});

test('a server that answers with other bytes, lengths or times than asked is found out, and what was opened last is shown', async () => {
  const bytes = readFileSync(fixture('real/small.stream'));
  const held = [];
  const page = await open();
  // How it answers goes by the file: of one that was opened before there may still be questions.
  await page.route('**/odd/**', async (route) => {
    const [, a, to] = /^bytes=(\d+)-(\d+)$/.exec(route.request().headers().range).map(Number);
    const b = Math.min(to, bytes.length - 1);
    const answer = (from, size) => route.fulfill({ status: 206, headers: { 'Content-Range': `bytes ${from}-${from + b - a}/${size}`, ETag: '"x"' }, body: bytes.subarray(from, from + b - a + 1) });
    const file = new URL(route.request().url()).pathname.split('/').pop();
    if (file === 'other.cap') return answer(a ? a + 5 : 0, bytes.length);
    if (file === 'huge.cap') return answer(a, '99999999999999999999');
    const answered = new Promise((r) => { held.push(() => { r(); return answer(a, bytes.length).catch(() => {}); }); });
    await answered;
    return undefined;
  });
  const openUrl = async (u) => {
    await page.keyboard.press('u');
    await page.fill('#url', `${server.base}/odd/${u}`);
    await page.click('#url-dialog .primary');
  };
  await openUrl('huge.cap');
  await page.waitForFunction(() => /^huge\.cap: the server claims a length of 99999999999999999999 bytes/.test(document.getElementById('what').textContent));
  await openUrl('other.cap');
  await page.waitForFunction(() => /gave bytes from \d+ on where those from \d+ on were asked for/.test(document.getElementById('what').textContent + document.getElementById('toast').textContent));
  // The answer to the one that was opened before comes last.
  await openUrl('late.cap');
  await until('it is asked', () => held.length);
  await openFiles(page, [fixture('crafted/gap.stream')]);
  await Promise.all(held.map((r) => r()));
  await rest(page);
  assert.match(await page.textContent('#file-name'), /^gap\.stream/);
  await page.focus('#frames');
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.body.dataset.unit === '6');
  assert.equal((await listed(page)).length, 7);
  await quiet(page);
});

test('an index pass whose server failed goes on where it was', async () => {
  const f = generate('small', 200000, join(dir, 'failing.stream'));
  const bytes = readFileSync(f);
  const page = await open();
  await openFiles(page, [f]);
  const rows = await page.evaluate(() => document.body.dataset.rows);
  let down = true;
  await page.route('**/failing/**', (route) => {
    const [, a, to] = /^bytes=(\d+)-(\d+)$/.exec(route.request().headers().range).map(Number);
    if (down && a < bytes.length / 2 && to > bytes.length / 2) return route.fulfill({ status: 503 });
    const b = Math.min(to, bytes.length - 1);
    return route.fulfill({ status: 206, headers: { 'Content-Range': `bytes ${a}-${b}/${bytes.length}` }, body: bytes.subarray(a, b + 1) });
  });
  await page.keyboard.press('u');
  await page.fill('#url', `${server.base}/failing/f.cap`);
  await page.click('#url-dialog .primary');
  await page.waitForSelector('#go-on:not([hidden])');
  await toast(page, /^f\.cap: the server answers 503/);
  assert.equal(await page.textContent('#state'), 'stopped');
  down = false;
  await page.click('#go-on');
  await indexed(page);
  assert.equal(await page.evaluate(() => document.body.dataset.rows), rows);
  assert.ok(page.complaints.every((c) => c.includes('503')), page.complaints.join('\n'));
  rmSync(f);
  await page.context().close();
});

test('nested columns with nulls and ten thousand columns are shown', async () => {
  const page = await open();
  await openFiles(page, [generate('nested', join(dir, 'nested.stream'))]);
  const segment = async (n, columns) => {
    await go(page, n);
    await unit(page, n);
    await page.click('#tab-segment');
    await page.waitForFunction((c) => document.getElementById('pane-segment').textContent.includes(c), `Choose columns (${columns})`);
    await page.waitForFunction(() => document.querySelectorAll('#pane-segment .p-row:not([hidden]) .p-cell')[1]?.textContent);
    await rest(page);
  };
  await segment(2, 4);
  const row = (i) => page.evaluate((n) => [...document.querySelectorAll('#pane-segment .p-row')].find((r) => r.index === n && !r.hidden)?.innerText.split('\n').map((s) => s.trim()), i);
  assert.deepEqual((await row(0)).slice(2), ['[]', '{"<b>x</b>":1,"\\u202ey":2}', '{"text":"<img src=x>","bytes":["0x01fe","0x"]}']);
  assert.deepEqual((await row(1)).slice(2), ['[0]', '{}', 'null']);
  await segment(3, '10,001');
  await page.locator('#pane-segment summary', { hasText: 'Choose columns' }).click();
  assert.equal(await page.locator('.picks input').count(), 2000);
  assert.match(await page.textContent('.picks'), /and 8,001 more, which can’t be chosen/);
  await quiet(page);
});

test('each capture has its own columns, also behind one that has as few', async () => {
  const page = await open();
  const columns = () => page.evaluate(() => [...document.querySelectorAll('#columns .cell')].map((c) => c.textContent.split(' ')[0]).join(' '));
  const bare = { name: 'x.stream', mimeType: '', buffer: readFileSync(fixture('real/small.stream')).subarray(0, 14) };
  for (let i = 0; i < 3; i++) {
    await openFiles(page, [bare]);
    assert.equal(await columns(), 'No. Offset Kind Size Summary');
  }
  await openFiles(page, [fixture('real/live.stream')]);
  assert.equal(await columns(), 'No. Offset Kind Source Stream Time Size Summary');
  await quiet(page);
});

test('a filter that is cleared before it began stays cleared', async () => {
  const page = await open();
  await openFiles(page, [fixture('real/live.stream')]);
  for (let i = 0; i < 15; i++) {
    await page.evaluate(async (wait) => {
      const f = document.getElementById('filter');
      f.value = 'size > 10';
      f.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
      await new Promise((r) => { setTimeout(r, wait); });
      document.getElementById('filter-clear').click();
    }, i / 4);
  }
  await rest(page);
  assert.equal(await page.textContent('#state'), '70 rows');
  assert.equal(await page.evaluate(() => JSON.parse(localStorage.getItem('wiretape-viewer')).filter), '');
  await quiet(page);
});

test('an index pass that is stopped says what it did not reach, and goes on', async () => {
  const f = generate('small', 200000, join(dir, 'stopped.stream'));
  const bytes = readFileSync(f);
  const site = await holding(bytes, bytes.length >> 1);
  const page = await openPage(browser, `${site.base}/?url=/odd.cap`);
  const rows = () => page.evaluate(() => Number(document.body.dataset.rows));
  await page.waitForFunction(() => !document.body.classList.contains('blank'));
  await until('the pass waits', () => site.state.waits);
  await page.click('#stop');
  await page.waitForFunction(() => /stopped at \d+ %/.test(document.getElementById('state').textContent));
  const before = await rows();
  site.release();
  await go(page, 199990);
  await toast(page, /^The index pass was stopped before that\.$/);
  await page.click('#go-on');
  await page.waitForFunction(() => document.getElementById('go-on').hidden && document.getElementById('stop').hidden);
  await indexed(page);
  const after = await rows();
  assert.ok(before > 100 && before < after, `${before} of ${after}`);
  await openFiles(page, [f]);
  assert.equal(await rows(), after, 'as many as without a stop');
  rmSync(f);
  await quiet(page);
  site.close();
});

test('a recovered connection has one count of findings everywhere, the sidecar’s word among them', async () => {
  const capture = join(work, 'capture');
  execFileSync('go', ['build', '-o', capture, './cmd/capture'], { cwd: root, stdio: 'inherit' });
  const rec = join(dir, 'recovered');
  const p = spawn(capture, ['record', '-', '--dir', rec, '--sync', 'frame'], { stdio: ['pipe', 'ignore', 'ignore'] });
  p.stdin.on('error', () => {});
  p.stdin.write(readFileSync(fixture('real/live.stream')).subarray(0, 9000));
  const size = () => { try { return readdirSync(rec).filter((f) => f.endsWith('.cap.partial')).reduce((n, f) => n + readFileSync(join(rec, f)).length, 0); } catch { return 0; } };
  await until('all is written', () => size() >= 9000);
  p.kill('SIGKILL');
  await new Promise((r) => { p.once('exit', r); });
  assert.equal(spawnSync(capture, ['recover', rec]).status, 3);
  const { findings } = JSON.parse(spawnSync(capture, ['verify', '--json', rec], { encoding: 'utf8' }).stdout);
  assert.deepEqual(findings.map((f) => f.kind).sort(), ['cut', 'recovered-file']);

  const page = await open();
  // Alone and beside another connection, with its card.
  for (const others of [[], [fixture('real/small.stream')]]) {
    await openFiles(page, [...inside(rec), ...others]);
    await page.click('#tab-findings');
    await rest(page);
    assert.equal(await page.locator('#findings .finding:not([hidden])').count(), 2);
    assert.equal(await page.textContent('#finding-count'), '2');
    assert.equal(await page.textContent('#mark-finding .n'), '2');
    assert.equal(await page.getAttribute('#findings .finding', 'aria-setsize'), '2');
    const list = await page.evaluate(() => document.getElementById('findings').innerText);
    assert.match(list, /^cut\n[^]*offset 8,754\nrecovered-file\n[^]*last 246 bytes: cut\noffset 8,754 · told by the sidecar alone$/);
    if (others.length) {
      await page.click('#tab-connections');
      await page.waitForFunction(() => /⚠ 2 findings/.test(document.querySelector('#connections .connection').innerText));
    }
  }
  // By the keys it is gone to as any other.
  await page.click('#tab-findings');
  await page.focus('#findings');
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.querySelector('#frames .row.selected .c-offset')?.textContent === '8754');
  await quiet(page);
});

/** Where the strip of connections has the colour of a finding, in pixels from its left. */
const reds = (page) => page.evaluate(() => {
  const c = document.getElementById('spans');
  const copy = Object.assign(document.createElement('canvas'), { width: c.width, height: c.height });
  const g = copy.getContext('2d', { willReadFrequently: true });
  g.drawImage(c, 0, 0);
  const { data } = g.getImageData(0, 0, c.width, c.height);
  const out = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i] === 179 && data[i + 1] === 38 && data[i + 2] === 30) out.add((i / 4) % c.width);
  return { width: c.clientWidth, at: [...out].sort((a, b) => a - b) };
});

test('an index pass, a filter and a search at once all come to their end, and what was stopped goes on', async () => {
  const f = generate('small', 1000000, join(dir, 'three.stream'));
  const bytes = readFileSync(f);
  const taken = /^250,0\d\d of 1,000,00\d rows$/;
  for (const stopped of [false, true]) {
    const site = await holding(bytes, bytes.length >> 2);
    const page = await openPage(browser, `${site.base}/?url=/odd.cap`);
    await page.waitForFunction(() => !document.body.classList.contains('blank'));
    await until('the index pass waits', () => site.state.waits);
    await page.fill('#filter', 'source == 3');
    await page.keyboard.press('Escape');
    if (stopped) {
      // Filtered and stopped in one go.
      await page.evaluate(() => {
        document.getElementById('filter').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
        document.getElementById('stop').click();
      });
      await page.waitForSelector('#go-on:visible');
      await rest(page);
      site.release();
      await filtering(page, 'source == 3', () => page.click('#go-on'));
    } else {
      await page.press('#filter', 'Enter');
      await page.click('#tab-search');
      await page.fill('#search-text', 'zzqqzz');
      await page.press('#search-text', 'Enter');
      await page.waitForSelector('#search-cancel:visible');
      await filtering(page, 'source == 3', () => site.release());
      await page.waitForFunction(() => document.getElementById('search-state').textContent === '0 found');
      assert.ok(await page.isHidden('#search-cancel'));
    }
    await indexed(page);
    assert.ok(await page.isHidden('#go-on'));
    // What is said of how many there are in all is of the time when the filter came to its end.
    await filter(page, 'source == 3');
    assert.match(await page.textContent('#state'), taken);
    await quiet(page);
    site.close();
  }
  rmSync(f);
});

test('an opening that failed leaves an idle page whose connections are told; a file that is gone is a finding', async () => {
  const bad = join(dir, 'c00000001-0bad0bad.00000001.cap.zst');
  writeFileSync(bad, Buffer.from('28b52ffd24', 'hex'));
  const page = await open();
  const files = [bad, fixture('real/live.stream'), fixture('crafted/gap.stream')];
  await openFiles(page, files, { wait: false });
  // It comes first, and is what is shown.
  const failed = () => page.waitForFunction(() => /^c00000001-0bad0bad/.test(document.getElementById('what').textContent));
  await failed();
  await page.waitForFunction(() => document.querySelectorAll('#welcome-list .connection:not([hidden]) .badge').length === 2);
  await rest(page);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const spent = async () => (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value;
  // A page that asks for ever is never idle; one that was busy is some time.
  await until('the page is idle', async () => {
    const before = await spent();
    await page.waitForTimeout(1500);
    return await spent() - before < 0.5;
  });
  await page.locator('#connections .connection', { hasText: 'live' }).click();
  await connection(page, 'live.stream');
  await page.locator('#connections .connection', { hasText: '0bad0bad' }).click();
  await failed();
  await quiet(page);
  const folder = join(dir, 'gone-index');
  cpSync(one, folder, { recursive: true });
  const other = await open();
  const list = { files: readdirSync(folder).filter((f) => f !== 'lock').map((f) => ({ path: `gone/${f}`, url: `./${f}`, size: 1 })) };
  for (const l of list.files) l.size = readFileSync(join(folder, l.path.slice(5))).length;
  const idx = list.files.find((l) => l.path.endsWith('.00000002.idx'));
  writeFileSync(join(folder, 'list.json'), JSON.stringify(list));
  rmSync(join(folder, idx.path.slice(5)));
  const site = await serve({ '/c/': folder, '/': dist });
  await other.goto(`${site.base}/?list=/c/list.json`);
  await indexed(other);
  assert.deepEqual(await found(other), ['arrival-index']);
  site.close();
  await other.context().close();
});

/** The kinds of all findings, of those beside the bytes too. */
const found = (page) => page.$$eval('#findings .kind, #notes strong', (l) => l.map((x) => x.textContent.replace('⚠', '').trim()));

test('files that are missing before, between and behind those that are there are findings', async () => {
  const replay = join(work, 'replay-inspect');
  execFileSync('go', ['build', '-o', replay, './cmd/replay'], { cwd: root, stdio: 'inherit' });
  const whole = generate('folder', fixture('real/small.stream'), join(dir, 'gone'));
  const of = (n) => readdirSync(whole).filter((f) => f.includes(`.0000000${n}.`));
  const last = Math.max(...readdirSync(whole).map((f) => Number(/\.(\d{8})\./.exec(f)?.[1] ?? 0)));
  assert.ok(last >= 4);
  for (const [name, gone] of [['head', [1, 2]], ['middle', [2]], ['tail', [last]], ['bytes', [last]]]) {
    const some = join(dir, `gone-${name}`);
    cpSync(whole, some, { recursive: true });
    for (const f of gone.flatMap(of)) if (name !== 'bytes' || f.endsWith('.cap')) rmSync(join(some, f));
    const page = await open();
    await openFiles(page, inside(some));
    const kinds = (await found(page)).sort();
    const said = spawnSync(replay, ['inspect', '--json', '--kind', 'Handshake', some], { encoding: 'utf8' }).stdout.trim().split('\n').map((l) => JSON.parse(l)).filter((l) => l.finding);
    // A hole between files that are there is a row of its own here: missing-bytes.
    const expected = said.map((l) => (name === 'middle' && l.finding.kind === 'missing-files' ? 'missing-bytes' : l.finding.kind)).sort();
    assert.ok(kinds.length > 0, name);
    assert.deepEqual(kinds, expected, name);
    await quiet(page);
  }
  // What retention deleted is called so.
  const pruned = join(dir, 'gone-pruned');
  cpSync(join(dir, 'gone-head'), pruned, { recursive: true });
  const base = of(1).find((f) => f.endsWith('.cap'));
  for (const n of [1, 2]) appendFileSync(join(pruned, 'journal.jsonl'), `${JSON.stringify({ event: 'prune', file: base.replace('00000001.cap', `0000000${n}.cap`) })}\n`);
  const page = await open();
  await openFiles(page, inside(pruned));
  assert.deepEqual(await found(page), ['pruned-files']);
  assert.match(await page.textContent('#notes'), /: bytes 0 to \d+ \(deleted by retention\)/);
  await quiet(page);
});

test('zeros that a sender sent are its own, those that came to a sealed file later are not', async () => {
  const capture = join(work, 'capture');
  execFileSync('go', ['build', '-o', capture, './cmd/capture'], { cwd: root, stdio: 'inherit' });
  const sent = join(dir, 'zeros.stream');
  writeFileSync(sent, Buffer.concat([readFileSync(fixture('real/small.stream')).subarray(0, 100000), Buffer.alloc(5000)]));
  const rec = join(dir, 'zeros');
  spawnSync(capture, ['record', `file://${sent}`, '--dir', rec]);
  const kinds = () => JSON.parse(spawnSync(capture, ['verify', '--json', rec], { encoding: 'utf8' }).stdout).findings.map((f) => f.kind).sort();
  const page = await open();
  await openFiles(page, inside(rec));
  assert.deepEqual((await found(page)).sort(), kinds());
  assert.ok(!kinds().includes('zero-filled-tail'));
  const cap = join(rec, readdirSync(rec).find((f) => f.endsWith('.cap')));
  const b = readFileSync(cap);
  b.fill(0, 90000);
  writeFileSync(cap, b);
  await openFiles(page, inside(rec));
  assert.ok((await found(page)).includes('zero-filled-tail'));
  assert.ok(kinds().includes('zero-filled-tail'), kinds().join());
  await quiet(page);
});

test('a capture of several files on a file server opens by a list; what lies beside it is no connection', async () => {
  const replay = join(work, 'replay-inspect');
  execFileSync('go', ['build', '-o', replay, './cmd/replay'], { cwd: root, stdio: 'inherit' });
  const folder = join(dir, 'served #1: ü');
  cpSync(one, folder, { recursive: true });
  const cap = readdirSync(folder).find((f) => f.endsWith('.cap'));
  writeFileSync(join(folder, `${cap}.damaged`), 'x');
  writeFileSync(join(folder, '.DS_Store'), 'x');
  for (let i = 0; i < 2; i++) writeFileSync(join(folder, 'list.json'), spawnSync(replay, ['view', '--list', folder]).stdout);
  // The commands know it too.
  rmSync(join(folder, `${cap}.damaged`));
  rmSync(join(folder, '.DS_Store'));
  const capture = join(work, 'capture');
  execFileSync('go', ['build', '-o', capture, './cmd/capture'], { cwd: root, stdio: 'inherit' });
  assert.equal(spawnSync(capture, ['verify', folder]).status, 0);
  writeFileSync(join(folder, `${cap}.damaged`), 'x');
  writeFileSync(join(folder, '.DS_Store'), 'x');
  const site = await serve({ '/v/': dist, '/c/': folder });
  const page = await openPage(browser, `${site.base}/v/?list=${encodeURIComponent('/c/list.json')}`);
  await indexed(page);
  const served = await page.evaluate(() => document.body.dataset.rows);
  assert.ok(await page.isHidden('#connections-open'), 'one connection');
  assert.deepEqual(await found(page), []);
  await openFiles(page, inside(one));
  assert.equal(await page.evaluate(() => document.body.dataset.rows), served);
  await quiet(page);
  site.close();
});

test('the strip of connections marks findings where they are', async () => {
  const page = await open();
  const gap = readFileSync(fixture('crafted/gap.stream'));
  await openFiles(page, [{ name: 'a.stream', buffer: readFileSync(fixture('real/small.stream')), mimeType: '' }, { name: 'b.stream', buffer: gap, mimeType: '' }]);
  await page.keyboard.press('>');
  await connection(page, 'b.stream');
  await page.click('#tab-findings');
  await page.locator('#findings .finding').first().click();
  await page.waitForFunction(() => /\d/.test(document.querySelector('#frames .row.selected .c-offset')?.textContent ?? ''));
  await rest(page);
  const at = Number(await page.textContent('#frames .row.selected .c-offset'));
  const before = readFileSync(fixture('real/small.stream')).length;
  const { width, at: red } = await reds(page);
  const want = ((before + at) / (before + gap.length)) * (width - 2);
  assert.ok(red.length >= 3 && red.length <= 4 && Math.abs(red[0] - want) <= 3, `${red} of ${width}, ${want} expected`);
  await quiet(page);
});

test('a file from the middle without its sidecar asks for it', async () => {
  const page = await open();
  const cap = inside(one).filter((f) => f.endsWith('.cap'))[2];
  await openFiles(page, [cap], { wait: false });
  await page.waitForFunction(() => /known here/.test(document.getElementById('what').textContent));
  const asked = /open (\S+), which lies beside it/.exec(await page.textContent('#what'))[1];
  assert.equal(asked, cap.split('/').pop().replace(/cap$/, 'json'));
  assert.ok(await page.isVisible('#read-as button'));
  await openFiles(page, [cap, join(cap, '..', asked)]);
  assert.match(await page.textContent('#file-name'), /dendro/);
  await quiet(page);
});
