// Large files: the first rows at once, all of it indexed near the speed at which
// it can be read, memory bounded, a jump shown at once.

import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { dist, finish, launch, openPage, pageMemory, serve, test } from './browser.mjs';
import { generate, work } from './fixtures.mjs';

const MiB = 1 << 20;
/** Within how many milliseconds a frame is shown after a jump. */
const JUMP = 100;
let server;
let chromium;

before(async () => {
  server = await serve({ '/p/': dist });
  chromium = await launch();
});

after(() => finish(chromium, server));

/** Opens a file and measures; the limits are the caller's. */
async function measure(file) {
  const page = await openPage(chromium, `${server.base}/p/`);
  await page.setInputFiles('#pick-files', file);
  const m = await page.evaluate(async () => {
    const began = performance.now();
    const wait = async (f) => { while (!f()) await new Promise((r) => { setTimeout(r, 5); }); return performance.now() - began; };
    const first = await wait(() => document.querySelector('#frames .row:not(.waiting) .c-name')?.textContent);
    const all = await wait(() => document.body.dataset.done);
    return { first, all, rows: Number(document.body.dataset.rows), said: document.getElementById('speed').textContent };
  });
  // What follows the end of the list is the end of the file.
  await page.focus('#frames');
  for (let i = 0; i < 20; i++) {
    await page.evaluate((part) => { const f = document.getElementById('frames'); f.scrollTop = (f.scrollHeight * part) / 20; }, i);
    await page.waitForTimeout(30);
  }
  await page.keyboard.press('End');
  await page.waitForFunction((n) => document.body.dataset.unit === String(n - 1), m.rows);
  m.jumps = [];
  for (const part of [0.5, 0.11, 0.93, 0.37, 0.78]) {
    // Another program may have its hour: the best of three rows near by counts.
    let best = Infinity;
    for (let i = 0; i < 3 && best >= JUMP; i++) {
      best = Math.min(best, await page.evaluate(jump, Math.floor(m.rows * part) + i * 333));
    }
    m.jumps.push(best);
  }
  m.jumps.sort((a, b) => a - b);
  m.wasm = Number(await page.evaluate(() => document.body.dataset.memory));
  m.page = pageMemory();
  // The same page reads the file without decoding, in the same run.
  m.read = await page.evaluate(() => new Promise((done) => {
    document.addEventListener('measured', (e) => done(e.detail), { once: true });
    document.dispatchEvent(new CustomEvent('measure'));
  }));
  assert.deepEqual(page.complaints, []);
  await page.context().close();
  m.ratio = m.read.ms / m.all;
  console.log(`${m.rows} rows: first after ${m.first.toFixed(0)} ms, all after ${m.all.toFixed(0)} ms, reading alone ${m.read.ms.toFixed(0)} ms, ratio ${m.ratio.toFixed(2)}, ` +
    `jumps ${m.jumps.map((j) => j.toFixed(0)).join(' ')} ms, WebAssembly ${(m.wasm / MiB).toFixed(1)} MiB, page ${(m.page / MiB).toFixed(0)} MiB`);
  return m;
}

/** Goes to a row far away, in the page, and gives how long until it is shown. */
async function jump(row) {
  const began = performance.now();
  const g = document.getElementById('goto');
  g.value = String(row);
  g.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
  while (document.body.dataset.unit !== String(row) || !document.querySelector('#tree .node:not([hidden])')) await new Promise((r) => { setTimeout(r, 1); });
  return performance.now() - began;
}

function check(m, { ratio, page = 250 }) {
  assert.ok(m.first < 2000, `first rows after ${m.first} ms`);
  assert.ok(m.ratio >= ratio, `indexed at ${m.ratio} of the speed of reading alone`);
  assert.ok(m.jumps[4] < JUMP, `jumps took ${m.jumps} ms`);
  assert.ok(m.wasm < 64 * MiB, `${m.wasm / MiB} MiB of WebAssembly memory`);
  assert.ok(m.page < page * MiB, `${m.page / MiB} MiB of page`);
}

/** How often it is measured, where other programs are in the way. */
const TRIES = 4;

/** Measures until each of the limits was kept once: what the page can do, whatever else the machine does. */
async function within(file, limits) {
  const best = {};
  for (let i = 1; ; i++) {
    const m = await measure(file);
    best.first = Math.min(m.first, best.first ?? Infinity);
    best.ratio = Math.max(m.ratio, best.ratio ?? 0);
    best.jumps = m.jumps.map((j, k) => Math.min(j, best.jumps?.[k] ?? Infinity));
    best.wasm = Math.max(m.wasm, best.wasm ?? 0); // memory is no matter of what others do
    best.page = Math.max(m.page, best.page ?? 0);
    try {
      check(best, limits);
      break;
    } catch (e) {
      if (i >= TRIES) throw e;
      console.log(`once more: ${e.message}`);
    }
  }
  rmSync(file);
}

test('a capture of 400 MB', () => within(generate('mixed', 400e6, join(work, 'mixed.stream')), { ratio: 0.6 }));

test('two million small frames', () => within(generate('small', 2e6, join(work, 'small.stream')), { ratio: 0.45 }));

if (process.env.WIRETAPE_TORTURE === '1') {
  test('a capture of 4 GiB', () => within(generate('mixed', 4 * 1024 * MiB, join(work, 'four.stream')), { ratio: 0.6 }));

  test('ten million small frames', () => within(generate('small', 10e6, join(work, 'ten.stream')), { ratio: 0.6 }));

  // Of 55 bytes on average: no publisher's, and half of the speed of reading is enough of them.
  test('ten million of the smallest frames', () => within(generate('tiny', 10e6, join(work, 'tiny.stream')), { ratio: 0.4 }));
}
