// What is selected is what is shown, copied, saved and linked to, in a real
// Chromium: also under a filter, when a frame can't be opened, and by keys alone.

import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { dist, filter, finish, go, launch, openFiles, openPage, quiet, rest, serve, stored, test, toast, unit, until } from './browser.mjs';
import { dendro, generate, work } from './fixtures.mjs';

const dir = join(work, 'frames-test');
mkdirSync(dir, { recursive: true });
const fixture = (name) => dendro().find((x) => x.name === name).file;
let browser;
let server;

before(async () => {
  browser = await launch();
  server = await serve({ '/c/': join(fixture('real/live.stream'), '..'), '/': dist });
});

after(() => finish(browser, server));

const open = (options, address = '') => openPage(browser, `${server.base}/${address}`, { permissions: ['clipboard-read', 'clipboard-write'], ...options });
const copied = async (page, button) => {
  await page.evaluate(() => navigator.clipboard.writeText(''));
  await page.click(button);
  return until(`${button} copies`, () => page.evaluate(() => navigator.clipboard.readText()));
};
const saved = async (page) => {
  const [d] = await Promise.all([page.waitForEvent('download'), page.click('#save-bytes')]);
  return { name: d.suggestedFilename(), bytes: readFileSync(await d.path()) };
};
const field = (page, name) => page.locator('#tree .node:not([hidden])', { has: page.locator(`.name:text-is("${name}")`) }).first();

test('a field that was chosen in one frame is not what the next one copies and saves', async () => {
  const file = fixture('real/live.stream');
  const all = readFileSync(file);
  const frames = dendro().find((x) => x.name === 'real/live.stream').frames;
  const page = await open();
  await openFiles(page, [file]);
  await go(page, 4);
  await unit(page, 4);
  await field(page, 'seq').click();
  assert.equal(await copied(page, '#copy-json'), '1');
  await go(page, 9);
  await unit(page, 9);
  assert.equal(await page.locator('#tree .selected').count(), 0);
  const { offset, size } = frames[8];
  const own = all.subarray(offset, offset + size);
  assert.equal(await copied(page, '#copy-hex'), own.toString('hex'));
  assert.match(await copied(page, '#copy-json'), /^\{[^]*"seq":6/);
  const s = await saved(page);
  assert.equal(s.name, `frame-9-at-${offset}.bin`);
  assert.deepEqual(s.bytes, own);
  await field(page, 'seq').hover();
  await page.waitForFunction(() => /^seq · offset/.test(document.getElementById('place').textContent));
  await page.hover('#unit-title');
  await page.waitForFunction(() => document.getElementById('place').textContent === '');
  await quiet(page);
});

test('a field far down a list is the one that is copied, however soon', async () => {
  const page = await open();
  await openFiles(page, [generate('rows', 100000, join(dir, 'rows.stream'))]);
  await go(page, 2);
  await unit(page, 2);
  await page.focus('#tree');
  await page.keyboard.press('End');
  await page.keyboard.press('ArrowRight');
  await rest(page);
  assert.equal(await page.getAttribute('#tree .node.selected', 'aria-expanded'), 'true');
  await page.keyboard.press('End');
  const hex = await copied(page, '#copy-hex');
  assert.ok(hex.length < 400, `${hex.length} characters`);
  await page.waitForFunction(() => document.querySelector('#tree .selected .name')?.textContent === '[99999]');
  assert.match(await page.textContent('#place'), /^entry · offset/);
  assert.ok(await page.locator('#hex .mark').count() > 0);
  await quiet(page);
});

test('a row that the filter does not take is shown when it is gone to, and said not to be in the list', async () => {
  const page = await open();
  await openFiles(page, [fixture('real/live.stream')]);
  await filter(page, 'kind == ClockOffset');
  await go(page, 10);
  await unit(page, 10);
  await toast(page, /^The filter does not take this row/);
  assert.match(await page.textContent('#unit-title'), /^Frame 10 · Rows/);
  assert.equal(await page.locator('#frames .selected').count(), 0);
  const { frames } = dendro().find((x) => x.name === 'real/live.stream');
  const { offset } = frames[9];
  assert.equal(new URL(page.url()).hash, `#offset=${offset}`);
  // From there to the rows around it: before it there is none.
  const next = frames.findIndex((f) => f.name === 'ClockOffset') + 1;
  assert.ok(next > 10);
  const chosen = async () => {
    await unit(page, next);
    assert.equal(await page.locator('#frames .selected').getAttribute('data-row'), String(next));
  };
  await page.focus('#frames');
  await page.keyboard.press('ArrowUp');
  await chosen();
  await go(page, 10);
  await unit(page, 10);
  await page.focus('#frames');
  await page.keyboard.press('ArrowDown');
  await chosen();
  // A link under a filter that was kept leads to its own frame.
  const other = await page.context().newPage();
  await other.goto(`${server.base}/app.css`);
  await stored(other, 'filter', 'kind == ClockOffset');
  await other.goto(`${server.base}/?url=/c/live.stream#offset=${offset}`);
  await unit(other, 10);
  await other.waitForFunction(() => document.body.dataset.filtered === 'kind == ClockOffset');
  assert.equal(new URL(other.url()).hash, `#offset=${offset}`);
  assert.match(await other.textContent('#unit-title'), /^Frame 10 · Rows/);
  await quiet(page);
});

test('a row that is gone to while the filter is taken away is that row', async () => {
  const page = await open();
  await openFiles(page, [fixture('real/live.stream')]);
  await filter(page, 'number > 60');
  // It is taken away while its place in what the filter takes is asked for.
  await page.evaluate(() => {
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function ask(m, ...more) {
      postMessage.call(this, m, ...more);
      if (m.op !== 'rank') return;
      Worker.prototype.postMessage = postMessage;
      document.getElementById('filter-clear').click();
    };
  });
  await go(page, 65);
  await unit(page, 65);
  assert.equal(await page.locator('#frames .selected').getAttribute('data-row'), '65');
  await quiet(page);
});

test('a row that is gone to while the filter still runs is that row, and has its place at the end', async () => {
  const f = generate('small', 600000, join(dir, 'small.stream'));
  const page = await open();
  await openFiles(page, [f]);
  await page.fill('#filter', 'kind == Rows');
  await page.keyboard.press('Escape');
  await page.press('#filter', 'Enter');
  await go(page, 500000);
  await page.waitForFunction(() => /^Frame 500,?000 · Rows/.test(document.getElementById('unit-title').textContent));
  await page.waitForFunction(() => document.body.dataset.filtered === 'kind == Rows');
  await page.waitForFunction(() => document.querySelector('#frames .selected')?.dataset.row === document.body.dataset.unit);
  assert.match(await page.textContent('#unit-title'), /^Frame 500,?000 · Rows/);
  rmSync(f);
  await quiet(page);
});

test('a frame that can’t be opened leaves nothing of the one before', async () => {
  const f = join(dir, 'cut-later.stream');
  copyFileSync(fixture('real/live.stream'), f);
  const page = await open();
  await openFiles(page, [f]);
  await go(page, 5);
  await unit(page, 5);
  truncateSync(f, 2000);
  await page.click('#frames .row[data-row="8"]');
  await page.waitForFunction(() => document.getElementById('unit-title').textContent === 'This frame can’t be opened.');
  assert.equal(await page.locator('#tree .node:not([hidden])').count(), 0);
  assert.equal(await page.locator('#hex .line:not([hidden])').count(), 0);
  await page.evaluate(() => navigator.clipboard.writeText('untouched'));
  await page.click('#copy-json');
  await rest(page);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'untouched');
  await page.context().close();
});

test('what differs at the end of a long text or under a key that comes twice is told', async () => {
  const page = await open();
  await openFiles(page, [generate('alike', 9000, join(dir, 'alike.stream'))]);
  const compare = async (a, b) => {
    await go(page, a);
    await unit(page, a);
    await page.focus('#frames');
    await page.keyboard.press('c');
    await go(page, b);
    await unit(page, b);
    await page.click('#tab-compare');
    await page.waitForFunction(() => /differ/.test(document.querySelector('#pane-compare [role=status]')?.textContent ?? ''));
    return page.$$eval('#pane-compare tr.differs td:nth-child(2)', (l) => l.map((x) => x.textContent));
  };
  assert.ok((await compare(2, 3)).length > 0, 'the last of 9,000 characters');
  const twice = await compare(4, 5);
  assert.ok(twice.length > 0 && twice.every((k) => !k.includes('(2)')), twice.join());
  assert.deepEqual(await compare(5, 5), []);
  // A text is copied with all of its characters.
  await go(page, 6);
  await unit(page, 6);
  await page.click('#tab-tree');
  await page.locator('#tree .value', { hasText: 'BOM' }).first().click();
  assert.equal([...await copied(page, '#copy-raw')].filter((c) => c === '\ufeff').length, 1);
  // Gaps are exact.
  await go(page, 7);
  await unit(page, 7);
  assert.equal(await field(page, 'rows').getAttribute('aria-expanded'), 'true');
  const notes = await page.$$eval('#tree .node:not([hidden]) .note', (l) => l.map((x) => x.textContent));
  for (const s of ['+1.000000001 s', '+999.999 µs', '+9 µs']) assert.ok(notes.some((x) => x.includes(`${s} to the one before`)), `${s}: ${notes}`);
  await quiet(page);
});

test('rows without a Full index before them say so, and equal states are not called unequal', async () => {
  const page = await open();
  for (const [name, says] of [['crafted/rows-before-full.stream', /nothing accumulated, the rows are skipped: no Full index came yet/], ['crafted/state-mismatch.stream', /≠ accumulated, the rows are skipped · \(([0-9a-f]{16}), ([0-9a-f]{16})\) against \((?!\1, \2\))/]]) {
    await openFiles(page, [fixture(name)]);
    await page.focus('#frames');
    await page.keyboard.press('n');
    await page.waitForFunction(() => /rows-skipped/.test(document.getElementById('unit-findings').textContent));
    await page.waitForFunction((s) => new RegExp(s).test(document.getElementById('tree').textContent), says.source);
    await rest(page);
  }
  await quiet(page);
});

test('text that is dropped closes nothing', async () => {
  const page = await open();
  await openFiles(page, [fixture('real/live.stream')]);
  const prevented = await page.evaluate(() => {
    const t = new DataTransfer();
    t.setData('text/plain', 'some text');
    return ['dragenter', 'dragover', 'drop'].map((n) => !document.body.dispatchEvent(new DragEvent(n, { dataTransfer: t, bubbles: true, cancelable: true })));
  });
  assert.deepEqual(prevented, [false, false, false]);
  assert.equal(await page.textContent('#state'), '70 rows');
  assert.ok(!(await page.evaluate(() => document.body.className)).includes('dropping'));
  await quiet(page);
});

test('j and k move in the fields and the bytes too', async () => {
  const page = await open();
  await openFiles(page, [fixture('real/live.stream')]);
  await go(page, 4);
  await unit(page, 4);
  await page.focus('#tree');
  for (const k of ['j', 'j', 'j', 'k']) await page.keyboard.press(k);
  assert.equal(await page.getAttribute('#tree', 'aria-activedescendant'), 'node-1');
  await page.focus('#hex');
  for (const k of ['j', 'j', 'k']) await page.keyboard.press(k);
  await page.waitForFunction(() => document.querySelector('#hex .cursor'));
  await rest(page);
  // A line down, from the first byte that a key goes to.
  assert.equal(await page.$eval('#hex .b.cursor', (e) => `${e.closest('.line').index}:${[...e.parentElement.children].indexOf(e)}`), '0:0');
  await quiet(page);
});

test('at 200 % the chosen row is never under the footer', async () => {
  const page = await open({ viewport: { width: 720, height: 450 }, deviceScaleFactor: 2 });
  await openFiles(page, [fixture('real/live.stream')]);
  await page.focus('#frames');
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press(i < 30 ? 'ArrowDown' : 'ArrowUp');
    const [row, foot] = await page.evaluate(() => [document.querySelector('#frames .selected').getBoundingClientRect(), document.querySelector('footer').getBoundingClientRect()].map((r) => ({ top: r.top, bottom: r.bottom })));
    assert.ok(row.bottom <= foot.top + 1 && row.top >= -1, `step ${i}: ${JSON.stringify([row, foot])}`);
  }
  await quiet(page);
});

test('with forced colours marked bytes, the pressed axis and the open tab can be told apart', async () => {
  const page = await open({ forcedColors: 'active' });
  await openFiles(page, [fixture('real/live.stream')]);
  await go(page, 4);
  await unit(page, 4);
  const style = (s, p) => page.$eval(s, (e, q) => getComputedStyle(e)[q], p);
  const before = await page.locator('#hex').screenshot();
  await field(page, 'seq').click();
  await page.waitForSelector('#hex .mark');
  assert.notDeepEqual(await page.locator('#hex').screenshot(), before);
  assert.notEqual(await style('#axis [aria-pressed=true]', 'backgroundColor'), await style('#axis [aria-pressed=false]:not([disabled])', 'backgroundColor'));
  assert.notEqual(await style('#tab-tree', 'borderBottomColor'), await style('#tab-compare', 'borderBottomColor'));
  const swatches = await page.$$eval('#legend .swatch', (l) => l.map((e) => getComputedStyle(e).backgroundColor));
  assert.equal(new Set(swatches).size, swatches.length);
  await quiet(page);
});

test('with forced colours what floats has an edge, and what is chosen in every list can be told', async () => {
  const page = await open({ forcedColors: 'active' });
  await openFiles(page, [fixture('crafted/gap.stream'), fixture('real/live.stream')]);
  const surfaces = ['#toast', '#completions', '#filter-wrong', '#timeline-tip', '#drop', ...await page.$$eval('dialog', (l) => l.map((d) => `#${d.id}`))];
  assert.ok(surfaces.length >= 8, surfaces.join());
  for (const s of surfaces) {
    const edge = await page.$eval(s, (e) => {
      const { borderTopWidth: w, borderTopStyle: kind, borderTopColor: c, opacity } = getComputedStyle(e);
      return { w: parseFloat(w), kind, c, opacity };
    });
    // #drop has its own while something is dragged over the page.
    if (s === '#drop') {
      await page.evaluate(() => document.body.classList.add('dropping'));
      assert.ok(await page.$eval(s, (e) => parseFloat(getComputedStyle(e).borderTopWidth)) > 0);
      await page.evaluate(() => document.body.classList.remove('dropping'));
      continue;
    }
    assert.ok(edge.w >= 1 && edge.kind !== 'none' && !/^rgba\(.*, 0\)$/.test(edge.c), `${s}: ${JSON.stringify(edge)}`);
  }
  // Nothing more is seen of the toast without forced colours.
  const other = await open();
  assert.match(await other.$eval('#toast', (e) => getComputedStyle(e).borderTopColor), /^rgba\(.*, 0\)$/);
  await quiet(other);
  for (const [tab, list, item] of [['#tab-connections', '#connections', '.connection'], ['#tab-findings', '#findings', '.finding']]) {
    await page.click(tab);
    await page.locator(`${list} ${item}`).first().click();
    await page.waitForSelector(`${list} ${item}.selected`);
    assert.notEqual(await page.$eval(`${list} ${item}.selected`, (e) => getComputedStyle(e).outlineStyle), 'none', list);
  }
  await quiet(page);
});
