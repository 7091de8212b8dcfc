// The filter, what is put into it by a click, the ways from finding to finding and
// what links lead to, in a real Chromium.

import { createHash } from 'node:crypto';
import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dist, filter, filtering, finish, go, indexed, launch, listed, openFiles, openPage, quiet, rest, serve, test, toast, unfiltered, unit } from './browser.mjs';
import { generate, work } from './fixtures.mjs';
import { quote, sameFinding, sameKind, sameSource, sameSpan, spanOf, tokens, withCondition } from '../src/expression.js';

let browser;
let server;

before(async () => {
  browser = await launch();
  server = await serve({ '/v/': dist });
});

after(() => finish(browser, server));

const open = (hash = '', options = {}) => openPage(browser, `${server.base}/v/${hash}`, options);

// ── Captures of dendro, made byte by byte ──────────────────────────────────

const T = 1700000000000000000n;
const u32 = (v) => { const b = Buffer.alloc(4); b.writeUInt32LE(v); return b; };
const u64 = (v) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt.asUintN(64, BigInt(v))); return b; };
const text = (s) => { const b = Buffer.isBuffer(s) ? s : Buffer.from(s); return Buffer.concat([u32(b.length), b]); };
const map = (o) => Buffer.concat([u32(Object.keys(o).length), ...Object.entries(o).flatMap(([k, v]) => [text(k), text(v)])]);
const frame = (kind, ...parts) => { const b = Buffer.concat(parts); return Buffer.concat([u32(b.length + 1), Buffer.from([kind]), b]); };
const PREAMBLE = Buffer.concat([Buffer.from('dendro-repl\0'), Buffer.from([1, 0])]);
const handshake = (source, labels) => frame(1, u32(source), Buffer.from([1]), text(`00000000-0000-4000-8000-${String(source).padStart(12, '0')}`), map(labels), map({}), u64(0), Buffer.from([0]));
const index = (source, stream, time) => frame(2, u32(source), text(stream), u64(time), Buffer.from([1]), u64(0), u64(0), text('blob'));
const rows = (source, seq, stream, time) => frame(3, u32(source), u64(seq), u64(0), u64(0), u32(1), text(stream), u64(time), u64(0), text('row'));
const clock = (source, time) => frame(5, u32(source), u64(time), u64(0));

function stream(name, ...parts) {
  const file = join(work, name);
  writeFileSync(file, Buffer.concat([PREAMBLE, ...parts]));
  return file;
}

/** A source's rows with a gap before every one but the first. */
const gaps = (n) => [handshake(1, { host: 'a' }), ...Array.from({ length: n }, (_, i) => rows(1, 1 + 2 * i, 's', T + BigInt(i)))];

let mixedFile;
/** Two sources with 40 rows and 10 clock observations each, and a gap in the rows of the first. */
const mixed = () => {
  mixedFile ??= stream('mixed.stream', handshake(1, { host: 'a' }), handshake(2, { host: 'b' }),
    ...Array.from({ length: 40 }, (_, i) => [rows(1, i < 20 ? i : i + 1, 'cpu', T + BigInt(i)), rows(2, i, 'net', T + BigInt(i)), ...(i % 4 ? [] : [clock(1, T), clock(2, T)])]).flat());
  return mixedFile;
};

/** Does what sets this filter, and gives how many rows it takes. */
async function taken(page, expression, act) {
  await filtering(page, expression, act);
  return Number((await page.textContent('#state')).replaceAll(',', '').split(' ')[0]);
}

/** Asks for a filter in which something is wrong, and waits until that is said: a text that is marked, or what fits a RegExp. */
async function wrong(page, expression, says) {
  await page.fill('#filter', expression);
  await page.keyboard.press('Escape');
  await page.press('#filter', 'Enter'); // it hides what was said of the one before
  await page.waitForFunction(([s, all]) => {
    const at = document.querySelector('#filter-wrong:not([hidden])');
    return at && (all ? new RegExp(s).test(at.textContent) : at.querySelector('mark').textContent === s);
  }, says instanceof RegExp ? [says.source, true] : [says, false]);
}

const selected = (page) => page.evaluate(() => Number(document.body.dataset.unit));

// ── Without a browser ──────────────────────────────────────────────────────

test('a condition takes the place of what asks the same, and of nothing else', () => {
  const part = (expression, at, field, op, value, not = false) => {
    const from = expression.indexOf(at);
    return { from, to: from + at.length, ...(field && { field, op, value, not }) };
  };
  const e = 'not kind == Rows && summary ~ "kind == Rows and x" and (kind == Rows or finding)';
  const parts = [part(e, 'not kind == Rows', 'kind', '==', 'Rows', true), part(e, 'summary ~ "kind == Rows and x"', 'summary', '~', 'kind == Rows and x'), part(e, '(kind == Rows or finding)')];
  assert.equal(withCondition(e, parts, 'kind == Segment', sameKind), 'kind == Segment and summary ~ "kind == Rows and x" and (kind == Rows or finding)');
  assert.equal(withCondition('a or b', null, 'finding', sameFinding), '(a or b) and finding');
  assert.equal(withCondition('size > 1', [part('size > 1', 'size > 1', 'size', '>', '1')], 'finding', sameFinding), 'size > 1 and finding');
  const s = 'stream == y and source == 1 and stream == x and size > 2';
  const sources = [part(s, 'stream == y', 'stream', '==', 'y'), part(s, 'source == 1', 'source', '==', '1'), part(s, 'stream == x', 'stream', '==', 'x'), part(s, 'size > 2', 'size', '>', '2')];
  assert.equal(withCondition(s, sources, 'source == 2', sameSource), 'stream == y and source == 2 and size > 2');
  const t = 'time >= 1 and size > 2 and time < 9 and time > 3';
  const times = [part(t, 'time >= 1', 'time', '>=', '1'), part(t, 'size > 2', 'size', '>', '2'), part(t, 'time < 9', 'time', '<', '9'), part(t, 'time > 3', 'time', '>', '3')];
  assert.equal(withCondition(t, times, 'time >= 4 and time < 5', sameSpan('time')), 'time >= 4 and time < 5 and size > 2 and time > 3');
  assert.deepEqual(spanOf(times, 'time'), { from: '1', to: '9', whole: false });
  assert.ok(!spanOf(times.slice(0, 2), 'time') && !spanOf(null, 'time') && !spanOf(times, 'offset'));
  assert.equal(withCondition('time >= 1', times.slice(0, 1), 'time >= 4 and time < 5', sameSpan('time')), 'time >= 1 and time >= 4 and time < 5');
});

test('labels that read as numbers or words of the language are quoted', () => {
  for (const s of ['2', '4K', '0x10', '-1', '+1', 'and', 'NOT', 'a b', '', 'ü', '1.5']) assert.equal(quote(s), `"${s}"`);
  for (const s of ['web-1', 'host.example:70', 'K', '_x', 'android']) assert.equal(quote(s), s);
  assert.equal(quote('a"b\\c'), '"a\\"b\\\\c"');
});

test('a text of any length is split in a time that grows with it', () => {
  const all = (s) => tokens(s).map((t) => t.text);
  assert.deepEqual(all('not (kind==Rows&&size>=4K) or stream !~ "a\\"b" and x'), ['not', '(', 'kind', '==', 'Rows', '&&', 'size', '>=', '4K', ')', 'or', 'stream', '!~', '"a\\"b"', 'and', 'x']);
  assert.deepEqual(all('stream == "open and '), ['stream', '==', '"open and ']);
  for (const s of ['x', '"', '"x', 'time >= ', '\\', '((', ' ', '!~']) {
    const began = performance.now();
    tokens(s.repeat(1000000 / s.length));
    // What grows with the square takes minutes.
    assert.ok(performance.now() - began < 20000, `${s}: ${performance.now() - began} ms`);
  }
});

// ── In the page ────────────────────────────────────────────────────────────

test('n and N go from finding to finding behind the most that are listed, and End opens the last that is', async () => {
  const page = await open();
  await openFiles(page, [stream('manyfind.stream', ...gaps(7000))]);
  const at = async (row, key, to) => {
    await go(page, `#${row}`);
    await unit(page, row);
    await page.focus('#frames');
    await page.keyboard.press(key);
    await unit(page, to);
  };
  // Row 0 is the preamble, 1 the handshake, 2 the first rows: from row 3 on each has a gap.
  await at(6000, 'n', 6001);
  await at(6000, 'N', 5999);
  await at(5002, 'n', 5003);
  await at(1, 'n', 3);
  await go(page, '#7001');
  await unit(page, 7001);
  await page.focus('#frames');
  await page.keyboard.press('n');
  await toast(page, /^No finding after this row\.$/);
  await go(page, '#3');
  await unit(page, 3);
  await page.focus('#frames');
  await page.keyboard.press('N');
  await toast(page, /^No finding before this row\.$/);
  // Under a filter among its rows.
  await filter(page, 'number == 2 or number == 500 or number == 6500');
  await page.focus('#frames');
  await page.keyboard.press('Home');
  await unit(page, 2);
  await page.keyboard.press('n');
  await unit(page, 500);
  await page.keyboard.press('n');
  await unit(page, 6500);
  await page.keyboard.press('n');
  await toast(page, /in what the filter takes/);
  await page.keyboard.press('N');
  await unit(page, 500);
  await unfiltered(page);
  assert.match(await page.getAttribute('#finding-0', 'title'), /^[^\n]*follows[^]*\nexpected [^]*\nfound /);
  // The panel's last one, whose page was never on the screen.
  await page.click('#tab-findings');
  await page.focus('#findings');
  await page.keyboard.press('Home');
  await unit(page, 3);
  await page.keyboard.press('End');
  await unit(page, 5002);
  assert.match(await page.textContent('#findings .finding.selected .place'), /^frame 5,002 /);
  await quiet(page);
});

test('Page Up, Page Down, j and k move in the findings, the hits and the connections', async () => {
  const page = await open();
  await openFiles(page, [stream('keys.stream', ...gaps(300))]);
  const number = (id) => page.evaluate((i) => Number(/\d+$/.exec(document.getElementById(i).getAttribute('aria-activedescendant'))[0]), id);
  const moves = async (id) => {
    await page.focus(`#${id}`);
    await page.keyboard.press('Home');
    assert.equal(await number(id), 0, id);
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    assert.equal(await number(id), 1, id);
    await page.keyboard.press('PageDown');
    const far = await number(id);
    assert.ok(far > 2, `${id}: ${far}`);
    await page.keyboard.press('PageDown');
    assert.equal(await number(id), 2 * far - 1, id);
    await page.keyboard.press('PageUp');
    assert.equal(await number(id), far, id);
    await page.keyboard.press('PageUp');
    await page.keyboard.press('PageUp');
    assert.equal(await number(id), 0, id);
  };
  await page.click('#tab-findings');
  await moves('findings');
  await page.click('#tab-search');
  await page.fill('#search-text', 'row');
  await page.press('#search-text', 'Enter');
  await page.waitForFunction(() => /^300 found/.test(document.getElementById('search-state').textContent));
  await moves('hits');
  await quiet(page);
});

test('a chip and "Only this" show what their title says, whatever the filter was', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  const chip = (name) => () => page.locator('#legend .chip', { hasText: name }).click();
  const only = (i) => async () => {
    await page.click('#tab-sources');
    await page.locator('#sources details').nth(i).evaluate((d) => { d.open = true; });
    await page.locator('#sources details').nth(i).getByText('Only this').click();
  };
  await filter(page, 'not kind == Rows');
  assert.equal(await taken(page, 'kind == ClockOffset', chip('ClockOffset')), 20);
  await filter(page, 'kind != ClockOffset and number > 3');
  assert.ok(await taken(page, 'kind == ClockOffset and number > 3', chip('ClockOffset')) > 10);
  await filter(page, 'not (kind == Rows) && not source == 1');
  assert.equal(await taken(page, 'not (kind == Rows) and source == 2', only(1)), 11);
  assert.equal(await taken(page, 'kind == Rows and source == 2', chip('Rows')), 40);
  // What a text holds and what an "or" offers is no condition.
  await filter(page, 'not summary ~ "kind == Rows and x"');
  assert.equal(await taken(page, 'not summary ~ "kind == Rows and x" and kind == ClockOffset', chip('ClockOffset')), 20);
  await filter(page, 'kind == Rows or source == 2');
  assert.equal(await taken(page, '(kind == Rows or source == 2) and kind == ClockOffset', chip('ClockOffset')), 10);
  assert.equal(await taken(page, '(kind == Rows or source == 2) and kind == Rows', chip('Rows')), 80);
  await page.click('#tab-findings');
  const finding = page.locator('#finding-kinds .chip').first();
  const kind = await finding.locator('span').first().textContent();
  for (const [was, becomes] of [['not finding', `finding == ${kind}`], [`finding == ${kind}`, `finding == ${kind}`], [`not finding == ${kind} and size > 1`, `finding == ${kind} and size > 1`]]) {
    await filter(page, was);
    assert.equal(await taken(page, becomes, () => finding.click()), 1, was);
  }
  await filter(page, 'not finding');
  assert.equal(await taken(page, `finding == ${kind}`, () => page.click('#mark-gap')), 1);
  await filter(page, 'not finding');
  assert.equal(await taken(page, 'finding', () => page.click('#mark-finding')), 1);
  // A stream of a source takes the place of the source and of its stream.
  await page.click('#tab-sources');
  await filter(page, 'not source == 2 and stream == "net" and size > 1');
  assert.equal(await taken(page, 'source == 1 and size > 1', only(0)), 51);
  // To what is no filter nothing is added: what is wrong with it is said.
  await page.fill('#filter', 'size >');
  await chip('Rows')();
  await page.waitForSelector('#filter-wrong:visible');
  assert.equal(await page.inputValue('#filter'), 'size >');
  await quiet(page);
});

test('a span takes the place of the span, and only what the filter takes is tinted', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  const box = await page.locator('#timeline').boundingBox();
  const drag = async (from, to, fits) => {
    const was = await page.inputValue('#filter');
    const becomes = await filtering(page, fits, async () => {
      await page.mouse.move(box.x + box.width * from, box.y + 20);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * to, box.y + 20, { steps: 3 });
      await page.mouse.up();
      await page.mouse.move(5, 5);
    });
    assert.notEqual(becomes, was);
  };
  await filter(page, 'not (offset >= 5 and offset < 50) and summary ~ "offset >= 1 and offset < 9"');
  await drag(0.2, 0.6, /^not \(offset >= 5 and offset < 50\) and summary ~ "offset >= 1 and offset < 9" and offset >= \d+ and offset < \d+$/);
  await drag(0.1, 0.3, /^not \(offset >= 5 and offset < 50\) and summary ~ "offset >= 1 and offset < 9" and offset >= \d+ and offset < \d+$/);
  const picture = () => page.evaluate(() => document.getElementById('timeline').toDataURL());
  await unfiltered(page);
  await page.focus('#frames');
  await page.keyboard.press('Home');
  await unit(page, 0);
  const plain = await picture();
  const shown = async (e) => {
    await filter(page, e);
    await page.focus('#frames');
    await unit(page, 0);
    return picture();
  };
  assert.equal(await shown('type == preamble and not (offset >= 100 and offset < 900)'), plain);
  assert.equal(await shown('type == preamble and not summary ~ "offset >= 100 and offset < 900"'), plain);
  assert.notEqual(await shown('type == preamble and offset >= 0 and offset < 900'), plain);
  // What is typed and not asked for yet tints nothing.
  await shown('type == preamble');
  await page.fill('#filter', 'offset >= 100 and offset < 900');
  await page.keyboard.press('Escape');
  await page.mouse.move(box.x + 5, box.y + 20);
  await page.waitForSelector('#timeline-tip:visible');
  await page.mouse.move(5, 5);
  await page.waitForFunction(() => document.getElementById('timeline-tip').hidden);
  assert.equal(await picture(), plain);
  await quiet(page);
});

test('a filter and a search that have nothing to go through come to their end', async () => {
  const page = await open();
  await openFiles(page, [stream('bare.stream')]);
  for (const e of ['type == preamble', 'kind == Rows', 'finding', 'type == preamble']) {
    await filter(page, e);
    assert.equal((await listed(page)).length, e === 'type == preamble' ? 1 : 0, e);
  }
  await page.click('#tab-search');
  // It is longer than all that there is.
  await page.fill('#search-text', 'x'.repeat(1000));
  await page.press('#search-text', 'Enter');
  await page.waitForFunction(() => document.getElementById('search-state').textContent === '0 found');
  await rest(page);
  assert.equal(await page.textContent('#search-state'), '0 found');
  assert.ok(await page.isHidden('#search-cancel'));
  await quiet(page);
});

test('the link of a stream finds its frames, whatever its name holds and however long it is', async () => {
  const long = 'x'.repeat(5000);
  const names = ['plain', 'PLAIN', 'a"b\\c', 'new\nline', 'carriage\rreturn', 'tab\tx', 'rtl\u202eabc', 'zero\u200bwidth', 'emoji😀', 'back\\u202eabc', '<b>bold</b>', 'combin\u0301ing', `${long}a`, `${long}b`, 'time >= 1 and time < 9'];
  const page = await open();
  await openFiles(page, [stream('names.stream', handshake(1, { host: 'a' }), handshake(2, { host: 'b' }), ...names.flatMap((n, i) => [index(1, n, T + BigInt(i)), index(2, n, T + BigInt(i))]), index(1, 'y'.repeat(20000), T))]);
  await page.click('#tab-sources');
  await page.locator('#sources details').first().evaluate((d) => { d.open = true; });
  const links = page.locator('#sources details >> nth=0').locator('td button.link');
  const n = await links.count();
  assert.equal(n, names.length + 1);
  const found = new Set();
  let refused = 0;
  for (let i = 0; i < n; i++) {
    // One after the other, each in place of the one before.
    await page.evaluate(() => {
      delete document.body.dataset.filtered;
      document.getElementById('toast').textContent = '';
    });
    await links.nth(i).click();
    await page.waitForFunction(() => document.body.dataset.filtered || document.getElementById('toast').textContent);
    await rest(page);
    if (!(await page.evaluate(() => document.body.dataset.filtered))) {
      assert.match(await page.textContent('#toast'), /The name of this stream has 20,002 characters: more than a filter takes\./);
      refused++;
      continue;
    }
    const list = await listed(page);
    assert.equal(list.length, 1, await page.inputValue('#filter'));
    found.add(list[0].row);
  }
  assert.equal(refused, 1);
  assert.deepEqual([...found].sort((a, b) => a - b), names.map((_, i) => 3 + 2 * i));
  // Completion offers the same names.
  await page.fill('#filter', '');
  await page.focus('#filter');
  await page.keyboard.type('stream == rtl');
  await page.keyboard.press('Tab');
  await page.waitForFunction(() => document.getElementById('filter').value === 'stream == "rtl\\u202eabc" ');
  await filtering(page, 'stream == "rtl\\u202eabc"', () => page.keyboard.press('Enter'));
  assert.equal((await listed(page)).length, 2);
  await quiet(page);
});

test('labels that read as numbers are offered and taken as labels', async () => {
  const page = await open();
  const labels = { 1: '2', 2: '1', 3: '4K', 4: 'web' };
  await openFiles(page, [stream('numbers.stream', ...Object.entries(labels).map(([s, l]) => handshake(Number(s), { source: l })), ...[1, 2, 2, 3, 3, 3, 4].map((s, i) => rows(s, i, 'x', T)))]);
  await page.waitForFunction(() => document.querySelectorAll('#sources details').length === 4);
  await page.focus('#filter');
  await page.keyboard.type('source == ');
  const offers = await page.evaluate(() => [...document.querySelectorAll('#completions .offer span:first-child')].map((e) => e.textContent));
  assert.deepEqual(offers, ['"2"', '"1"', '"4K"', 'web']);
  await page.keyboard.type('2');
  await page.keyboard.press('Tab');
  assert.equal(await page.inputValue('#filter'), 'source == "2" ');
  const of = async (e) => {
    await filter(page, `${e} and kind == Rows`);
    return (await listed(page)).length;
  };
  assert.deepEqual([await of('source == "2"'), await of('source == 2'), await of('source == "1"'), await of('source == "4K"'), await of('source == web'), await of('source == 4')], [1, 2, 2, 3, 1, 1]);
  await quiet(page);
});

test('what is wrong is marked where it stands, behind any characters', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  for (const [e, mark, before] of [
    ['source ~ "日本語日本語" and sizze > 4', 'sizze', 'source ~ "日本語日本語" and '],
    ['source ~ "😀😀😀" and size > 4X and finding', '4X', 'source ~ "😀😀😀" and size > '],
    ['source ~ "é" and time >= "2023-02-31 😀" and finding', '"2023-02-31 😀"', 'source ~ "é" and time >= '],
    ['source ~ "ü\\q"', '\\q', 'source ~ "ü'],
    ['source ~ "ü" and arrival >= 2023-01-01', 'arrival', 'source ~ "ü" and '],
  ]) {
    await wrong(page, e, mark);
    assert.equal(await page.textContent('#filter-wrong code span'), before);
    assert.equal(await page.textContent('#filter-wrong code'), e);
  }
  await quiet(page);
});

test('a text of any length can be pasted into the filter, and how long it may be is said', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  for (const s of ['x'.repeat(200000), '"'.repeat(200001), 'offset >= '.repeat(20000), `kind == Rows and ${'time >= 1 and '.repeat(20000)}`, 'a b '.repeat(50000)]) {
    await wrong(page, s, new RegExp(`the filter has ${s.trim().length} characters, of which it may have 16384`));
    assert.ok((await page.textContent('#filter-wrong code')).length < 300);
  }
  // One just as long as it may be is taken.
  await filter(page, `size > ${'1'.padStart(16384 - 7, '0')}`);
  await quiet(page);
});

test('times are read by one rule wherever they are typed, and numbers as they look', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  for (const e of ['time >= 2023-02-31', 'time < 2023-01-01T24:00', 'number == 0b11', 'number == 1_0', 'time > 9223372036854775808']) {
    await wrong(page, e, /./);
    await page.fill('#filter', '');
    await page.press('#filter', 'Enter');
    await page.waitForFunction(() => document.getElementById('filter-wrong').hidden);
  }
  await filter(page, 'number == 010');
  assert.deepEqual((await listed(page)).map((r) => r.no), ['10']);
  await filter(page, 'time >= "2023-11-14 22:13:20.000000039Z"');
  assert.equal((await listed(page)).length, 2);
  await unfiltered(page);
  await go(page, '#5');
  await unit(page, 5);
  for (const t of ['2023-13-45', '2023-02-31', '2023-01-01 25:00', '2300-01-01', 'data 99999999999999999999']) {
    await go(page, t);
    await toast(page, /^A frame number, an offset/);
    await rest(page);
    assert.equal(await selected(page), 5, t);
  }
  await quiet(page);
});

test('the timeline makes filters that are taken at both ends of time', async () => {
  const page = await open();
  const M = (1n << 63n) - 1n;
  for (const [name, times, last] of [['late', Array.from({ length: 50 }, (_, i) => M - 1n - BigInt(49 - i) * 1000000000n), '2262-04-11T23:47:16.854775807Z'], ['ends', [-M, -1n, 0n, 1n, M - 1n], '2262-04-11T23:47:16.854775807Z']]) {
    await page.evaluate(() => localStorage.clear());
    await openFiles(page, [stream(`${name}.stream`, handshake(1, { host: 'a' }), ...times.map((t, i) => rows(1, i, 's', t)))]);
    await page.click('#axis button[value=time]');
    const box = await page.locator('#timeline').boundingBox();
    for (const [from, to] of [[0, 1], [0.5, 1], [0, 0.5]]) {
      const e = await filtering(page, /^time >= /, async () => {
        await page.mouse.move(box.x + box.width * from, box.y + 20);
        await page.mouse.down();
        await page.mouse.move(box.x + (box.width + 20) * to, box.y + 20, { steps: 3 });
        await page.mouse.up();
      });
      const want = to === 1 ? `and time <= ${last}` : 'and time < ';
      assert.ok(e.includes(want), `${name} ${from} ${to}: ${e}`);
      const rowsIn = await listed(page);
      assert.ok(rowsIn.length > 0, e);
      if (from === 0 && to === 1) assert.ok(rowsIn.length === times.length, `${name}: ${e} takes ${rowsIn.length} of ${times.length}`);
    }
    await unfiltered(page);
    await go(page, '0');
    await unit(page, 0);
    await page.mouse.click(box.x + box.width * 0.97, box.y + 20);
    // Near the end of the axis: the last row, or its last bin behind it.
    await page.waitForFunction(() => Number(document.body.dataset.unit) > 2 || globalThis.said.includes('No data is as late as that.'));
  }
  await quiet(page);
});

test('times of arrival are fields as others are: in quotes, under a not, alone', async () => {
  const dir = join(work, 'filter-arrivals');
  generate('folder', generate('mixed', 300000, join(work, 'filter-arrivals.stream')), dir);
  const files = readdirSync(dir).filter((f) => f !== 'lock').map((f) => join(dir, f));
  const page = await open();
  await openFiles(page, files);
  const all = (await listed(page)).map((r) => r.row);
  const of = async (e) => {
    await filter(page, e);
    return (await listed(page)).map((r) => r.row);
  };
  const late = await of('arrival >= "2023-11-14 22:13:20.150000000Z"');
  assert.ok(late.length > 3 && late.length < all.length - 3, `${late.length} of ${all.length}`);
  assert.deepEqual(await of('arrival>=2023-11-14T22:13:20.15'), late);
  assert.deepEqual(await of('not (arrival >= 1700000000150000000)'), all.filter((r) => !late.includes(r)));
  assert.deepEqual(await of('arrival'), all);
  assert.deepEqual(await of('summary ~ "arrival >= 2023-01-01" and arrival'), []);
  for (const [e, says] of [['arrival >= 2026-02-31', /expected a time/], ['arrival == 2023-11-14', /compared with a time by/], ['arrival >= "soon"', /expected a time/]]) {
    await wrong(page, e, says);
  }
  await quiet(page);
});

test('a link to what is not there is said and leads nowhere else', async () => {
  const dir = join(work, 'filter-links');
  const a = generate('mixed', 20000, join(work, 'link-a.stream'));
  const b = generate('small', 200, join(work, 'link-b.stream'));
  generate('connections', a, b, dir);
  const files = readdirSync(dir).filter((f) => f !== 'lock').map((f) => join(dir, f));
  const page = await open('#offset=900&connection=c00000009-deadbeef');
  await openFiles(page, files);
  await toast(page, /The link is to connection c00000009-deadbeef, which is not among what was opened\./);
  await unit(page, 0);
  await go(page, '#7');
  await unit(page, 7);
  const here = await page.evaluate(() => location.hash);
  const name = decodeURIComponent(/connection=([^&]+)/.exec(here)[1]);
  const leads = async (hash, says) => {
    await page.evaluate((h) => { location.hash = h; }, hash);
    await toast(page, says);
    await rest(page);
    assert.equal(await selected(page), 7, hash);
    assert.equal(await page.evaluate(() => location.hash), here, hash);
  };
  await leads('#offset=1200&connection=c00000009-deadbeef', /not among what was opened/);
  await leads('#offset=99999999', /The link is to offset 99,999,999; the bytes go from offset 0 to [\d,]+\./);
  await leads(`#offset=99999999&connection=${name}`, /The link is to offset 99,999,999/);
  // The link that led nowhere holds for what is opened next, where that is it.
  const other = await open(`#offset=${/offset=(\d+)/.exec(here)[1]}&connection=${name}`);
  await openFiles(other, [b]);
  await toast(other, /not among what was opened/);
  await openFiles(other, files);
  await unit(other, 7);
  assert.equal(await other.evaluate(() => location.hash), here);
  await quiet(other);
  // An offset behind the end, in the link that the page was opened by.
  const beyond = await open('#offset=99999999');
  await openFiles(beyond, [a]);
  await toast(beyond, /The link is to offset 99,999,999; the bytes go/);
  await unit(beyond, 0);
  await quiet(beyond);
  await quiet(page);
});

test('a link tells two folders with the same connection apart', async () => {
  const twins = join(work, 'twins');
  const one = join(work, 'twin');
  generate('folder', generate('small', 300, join(work, 'twin.stream')), one);
  for (const d of ['a', 'b']) {
    mkdirSync(twins, { recursive: true });
    cpSync(one, join(twins, d), { recursive: true });
  }
  const openFolder = async (page, dir) => {
    await page.evaluate(() => { delete document.body.dataset.done; });
    await page.setInputFiles('#pick-folder', dir);
    await indexed(page);
  };
  const path = (page) => page.evaluate(() => document.querySelector('#connections .connection.selected').title.split('\n')[0]);
  const page = await open();
  await openFolder(page, twins);
  await page.click('#tab-connections');
  await page.waitForFunction(() => document.querySelectorAll('#connections .connection:not([hidden])').length === 2);
  await page.locator('#connections .connection:not([hidden])').nth(1).click();
  await page.waitForFunction(() => /b\/c/.test(document.querySelector('#connections .connection.selected').title) && document.body.dataset.done);
  await rest(page);
  await go(page, '#20');
  await unit(page, 20);
  const hash = await page.evaluate(() => location.hash);
  const name = decodeURIComponent(/connection=(.+)$/.exec(hash)[1]);
  assert.match(name, /^b\/c0+1-[0-9a-f]+$/);
  const q = await open(hash);
  await openFolder(q, twins);
  await unit(q, 20);
  assert.match(await path(q), /twins\/b\/c0+1-[0-9a-f]+$/);
  await quiet(q);
  // A name that both have: the first is shown, and that is said.
  const both = await open(hash.replace('b%2F', ''));
  await openFolder(both, twins);
  await toast(both, new RegExp(`The link is to connection ${name.slice(2)}, of which 2 were opened: this is twins/a/`));
  assert.match(await path(both), /twins\/a\//);
  await quiet(both);
  await quiet(page);
});

test('Compare and Segment show times as the page does, when that changes too', async () => {
  const page = await open();
  await openFiles(page, [generate('segments', join(work, 'filter-segments.stream'))]);
  const list = await listed(page);
  const [one, two] = list.filter((r) => r.name === 'Segment');
  await go(page, one);
  await unit(page, one.row);
  await page.focus('#frames');
  await page.keyboard.press('c');
  await go(page, two);
  await unit(page, two.row);
  await page.click('#tab-compare');
  await page.locator('#pane-compare').getByText('show equal fields too').click();
  const times = (id) => page.evaluate((i) => document.getElementById(i).textContent, id);
  const day = /\d{4}-\d\d-\d\d \d\d:\d\d/;
  await page.waitForFunction(() => /\d{4}-\d\d-\d\d \d\d:\d\d/.test(document.getElementById('pane-compare').textContent));
  const rowsOf = () => page.locator('#pane-compare tbody tr').count();
  const n = await rowsOf();
  await page.focus('#frames');
  const turn = async (mode) => {
    for (let i = 0; i < 4; i++) {
      await page.keyboard.press('t');
      if (await page.textContent('#toast') === `Times: ${mode}`) return;
    }
    assert.fail(`no times in ${mode}`);
  };
  await turn('raw');
  assert.doesNotMatch(await times('pane-compare'), day);
  assert.equal(await rowsOf(), n, 'what was chosen to be shown stays');
  await page.click('#tab-segment');
  await page.waitForSelector('#pane-segment .verdict');
  const verdict = () => page.textContent('#pane-segment .verdict');
  assert.doesNotMatch(await verdict(), day);
  await page.focus('#frames');
  await turn('utc');
  assert.match(await verdict(), day);
  await page.click('#tab-compare');
  assert.match(await times('pane-compare'), day);
  await quiet(page);
});

test('Enter closes the completions, of an empty filter too', async () => {
  const page = await open();
  await openFiles(page, [mixed()]);
  await page.click('#filter');
  await page.waitForSelector('#completions:visible');
  await page.keyboard.type('kind == Rows');
  await filtering(page, 'kind == Rows', () => page.keyboard.press('Enter'));
  assert.ok(await page.isHidden('#completions'));
  for (let i = 0; i < 12; i++) await page.keyboard.press('Backspace');
  assert.ok(await page.isVisible('#completions'));
  const over = await page.locator('#completions').boundingBox();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => !document.body.dataset.filtered);
  await rest(page);
  assert.ok(await page.isHidden('#completions'));
  const line = await page.locator('#timeline').boundingBox();
  assert.ok(over.y + over.height > line.y + 30, 'the list lay over the timeline');
  await go(page, '0');
  await unit(page, 0);
  await page.mouse.click(over.x + 60, line.y + 30);
  await page.waitForFunction(() => Number(document.body.dataset.unit) > 0);
  assert.equal(await page.inputValue('#filter'), '');
  // Written on, it is there again.
  await page.click('#filter');
  await page.keyboard.type('ki');
  assert.ok(await page.isVisible('#completions'));
  await quiet(page);
});

test('where there is nothing to be copied or saved, that is said', async () => {
  const page = await open('', { permissions: ['clipboard-read', 'clipboard-write'] });
  const put = (s) => page.evaluate((t) => navigator.clipboard.writeText(t), s);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const toast = (s) => page.waitForFunction((t) => document.getElementById('toast').textContent === t, s);
  const downloads = [];
  page.on('download', (d) => downloads.push(d));
  const dead = async (button, says) => {
    await page.evaluate(() => { document.getElementById('toast').textContent = ''; });
    await put('as before');
    await page.click(button);
    await toast(says);
    assert.equal(await clipboard(), 'as before');
  };
  // A stretch in no file, behind a frame that was open.
  const stream = Buffer.concat([PREAMBLE, handshake(1, { name: 'a' }), ...Array.from({ length: 40 }, (_, i) => rows(1, i + 1, 's', T + BigInt(i)))]);
  const id = 'c00000007-5f3a9b2e';
  const [a, b] = [stream.subarray(0, 1000), stream.subarray(1500)];
  const side = { format: 'wiretape-sidecar', version: 1, connection: id, file: 3, protocol: 'dendro', framing: 'frames', start: 1500, length: b.length, boundary: 1500, sha256: createHash('sha256').update(b).digest('hex') };
  await openFiles(page, [
    { name: `${id}.00000001.cap`, mimeType: '', buffer: a }, { name: `${id}.00000003.cap`, mimeType: '', buffer: b },
    { name: `${id}.00000003.json`, mimeType: '', buffer: Buffer.from(JSON.stringify(side)) }]);
  await page.waitForFunction(() => document.body.dataset.unit === '0');
  const hole = (await listed(page)).find((r) => r.type === 'missing');
  assert.ok(hole);
  await go(page, hole);
  await unit(page, hole.row);
  await dead('#copy-hex', 'These bytes are in no file: there is nothing to copy.');
  await dead('#copy-raw', 'These bytes are in no file: there is nothing to copy.');
  await dead('#copy-json', 'This is no frame and has no fields: there is nothing to copy as JSON.');
  await dead('#save-bytes', 'These bytes are in no file: there is nothing to save.');
  // A value without bytes.
  await openFiles(page, [{ name: 'empty.stream', mimeType: '', buffer: Buffer.concat([PREAMBLE, handshake(1, {}), frame(3, u32(1), u64(1), u64(0), u64(0), u32(1), text('s'), u64(T), u64(0), text(''))]) }]);
  await go(page, 2);
  await unit(page, 2);
  await page.locator('#tree .node:not([hidden])', { hasText: 'stream “s”' }).dblclick();
  await page.locator('#tree .node:not([hidden])', { has: page.locator('.name:text-is("row")') }).click();
  await page.waitForFunction(() => /^row /.test(document.getElementById('place').textContent));
  await dead('#copy-hex', 'row has no bytes: there is nothing to copy.');
  await dead('#save-bytes', 'row has no bytes: there is nothing to save.');
  assert.equal(downloads.length, 0);
  // One character is one.
  await page.locator('#tree .node:not([hidden])', { has: page.locator('.name:text-is("source")') }).first().click();
  await page.click('#copy-json');
  await toast('Copied 1 character');
  assert.equal(await clipboard(), '1');
  await quiet(page);
});
