// What the browser tests share: the page's server with the headers of
// docs/viewer.md, Chromium, and what people do with the page.
//
// A test waits for what its last step makes true and what was not true before
// it: openFiles, connection, unit, filter and filtering do, and then until the
// page is at rest. Where there is no such thing, rest is what to wait for.

import nodeTest from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createReadStream, existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, extname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const here = dirname(fileURLToPath(import.meta.url));
export const root = resolve(here, '..', '..');
export const dist = process.env.VIEWER_DIST ?? join(root, 'dist', 'viewer');
export const single = join(dirname(dist), 'viewer.html');
export const testdata = join(here, 'testdata');

/** How long a test may take, and of it a single wait, in milliseconds: many times what they take on a machine that is busy. */
const TEST_LIMIT = process.env.WIRETAPE_TORTURE === '1' ? 1800000 : 300000;
const WAIT_LIMIT = 60000;

/** What there still is to do at the end of the test that runs. */
const left = new Set();

/** Has f called at the end of the test, however that comes; what is returned takes it back. */
function atEnd(f) {
  left.add(f);
  return () => left.delete(f);
}

/** A test that ends by itself, under its name, where it hangs, and leaves no page and no process behind. */
export const test = (name, f) => nodeTest(name, { timeout: TEST_LIMIT }, (t) => {
  t.after(async () => {
    for (const end of [...left].reverse()) await end();
    left.clear();
  });
  return f(t);
});

/** The headers that docs/viewer.md asks for. */
export const HEADERS = {
  'Content-Security-Policy': "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types wiretape",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.wasm': 'application/wasm', '.txt': 'text/plain; charset=utf-8' };

/** Serves folders under prefixes: {'/a/b/': folder}, with ranges. */
export async function serve(folders) {
  const requests = [];
  const server = createServer((req, res) => {
    let path = new URL(req.url, 'http://x').pathname;
    try {
      path = decodeURIComponent(path);
    } catch {
      // It names nothing that is here.
    }
    requests.push({ path, range: req.headers.range });
    const at = Object.keys(folders).find((p) => path.startsWith(p));
    let file = at && normalize(join(folders[at], path.slice(at.length)));
    if (file && existsSync(file) && statSync(file).isDirectory()) file = join(file, 'index.html');
    if (!file || !file.startsWith(folders[at]) || !existsSync(file)) {
      res.writeHead(404, HEADERS).end();
      return;
    }
    const { size, mtimeMs } = statSync(file);
    const tag = `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}"`;
    const head = { ...HEADERS, 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream', 'Accept-Ranges': 'bytes', ETag: tag };
    const m = /^bytes=(\d+)-(\d+)$/.exec(req.headers.range ?? '');
    if (m && (!req.headers['if-range'] || req.headers['if-range'] === tag)) {
      const from = Number(m[1]);
      const to = Math.min(Number(m[2]), size - 1);
      if (from >= size) {
        res.writeHead(416, { ...head, 'Content-Range': `bytes */${size}` }).end();
        return;
      }
      res.writeHead(206, { ...head, 'Content-Range': `bytes ${from}-${to}/${size}`, 'Content-Length': to - from + 1 });
      createReadStream(file, { start: from, end: to }).pipe(res);
      return;
    }
    res.writeHead(200, { ...head, 'Content-Length': size });
    createReadStream(file).pipe(res);
  });
  return { requests, ...await listen(server) };
}

/** A server on a port of its own. One that is left open keeps no process alive. */
async function listen(server) {
  await new Promise((r) => { server.listen(0, '127.0.0.1', r); });
  server.unref();
  return { base: `http://127.0.0.1:${server.address().port}`, close: () => { server.closeAllConnections(); server.close(); } };
}

/** A server that answers ranges of /odd… as answer(res, from, to, state) does, and the page beside it. */
export async function odd(data, answer) {
  const state = { open: 0, sent: 0, data };
  const server = createServer((req, res) => {
    const path = new URL(req.url, 'http://x').pathname;
    if (path.startsWith('/odd')) {
      state.open++;
      res.on('close', () => { state.open--; });
      const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(req.headers.range ?? '') ?? [0, '0', '0'];
      answer(res, Number(from), Number(to), state);
      return;
    }
    const f = join(dist, path === '/' ? 'index.html' : path);
    if (!existsSync(f)) {
      res.writeHead(404, HEADERS).end();
      return;
    }
    res.writeHead(200, { ...HEADERS, 'Content-Type': TYPES[extname(f)] ?? 'application/octet-stream' }).end(readFileSync(f));
  });
  return { state, ...await listen(server) };
}

/** The head of an answer of bytes from to to of total. */
export const part = (res, from, to, total, more = {}) => res.writeHead(206, { ...HEADERS, 'Content-Range': `bytes ${from}-${to}/${total}`, ...more });

/**
 * The same, where the bytes from hold on, but those at the end that are looked at
 * first, are kept back until release() is called, and each answer takes delay
 * milliseconds: what reads all of them is under way for as long as a test wants.
 */
export async function holding(data, hold, delay = 0) {
  let release;
  const released = new Promise((r) => { release = r; });
  const site = await odd(data, async (res, from, to, state) => {
    await new Promise((r) => { setTimeout(r, delay); });
    if (to >= hold && from > 0 && from < data.length - data.length / 8) {
      state.waits = true;
      await released;
    }
    const last = Math.min(to, data.length - 1);
    if (!res.destroyed) part(res, from, last, data.length).end(data.subarray(from, last + 1));
  });
  return { ...site, release };
}

/** Runs replay view on a folder: {url, stop}; stop gives its exit code. */
export async function viewed(replay, folder) {
  const p = spawn(replay, ['view', folder], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = new Promise((r) => { p.once('exit', (code, signal) => r(code ?? signal)); });
  const stop = () => {
    p.kill('SIGTERM');
    return exit;
  };
  atEnd(stop);
  let said = '';
  const url = await new Promise((y, n) => {
    p.stdout.on('data', (b) => {
      said += b;
      if (said.includes('\n')) y(said.trim());
    });
    exit.then((code) => n(new Error(`replay view ended with ${code}`)));
  });
  return { url, stop };
}

const OPTIONS = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--enable-precise-memory-info'],
};

export function launch() {
  return chromium.launch({ ...OPTIONS, timeout: 2 * WAIT_LIMIT });
}

/** The end of a file of tests. What does not let go of the run is ended with it. */
export async function finish(browser, server) {
  server.close();
  setTimeout(() => {
    console.error('something is still open a minute after the last test');
    process.exit(1);
  }, 60000).unref();
  await browser.close();
}

/** The private memory of the page's process, in bytes: the largest renderer that this process started. */
export function pageMemory() {
  const parents = new Map();
  for (const p of readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
    try {
      parents.set(Number(p), Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${p}/stat`, 'utf8'))[1]));
    } catch {
      // It has ended meanwhile.
    }
  }
  const below = (p) => { for (let q = p; q > 1; q = parents.get(q)) if (q === process.pid) return true; return false; };
  let most = 0;
  for (const p of parents.keys()) {
    try {
      if (!below(p) || !readFileSync(`/proc/${p}/cmdline`, 'utf8').includes('--type=renderer')) continue;
      const kb = /^Anonymous:\s+(\d+) kB/m.exec(readFileSync(`/proc/${p}/smaps_rollup`, 'utf8'));
      most = Math.max(most, Number(kb[1]) * 1024);
    } catch {
      // As above.
    }
  }
  return most;
}

/** How many times slower the page is made: WIRETAPE_SLOW. */
const SLOW = Number(process.env.WIRETAPE_SLOW) || 1;

/** In the page, before its own scripts: counts what its workers are asked, and keeps what it says. What they tell comes late by so many milliseconds. */
function watch(late) {
  if (late) {
    const again = new WeakSet();
    globalThis.Worker = class extends Worker {
      constructor(...how) {
        super(...how);
        this.addEventListener('message', (e) => {
          if (again.has(e)) return;
          e.stopImmediatePropagation();
          const same = new MessageEvent('message', { data: e.data });
          again.add(same);
          setTimeout(() => this.dispatchEvent(same), late);
        });
      }
    };
  }
  const asked = globalThis.asked = { sent: 0, waiting: 0 };
  const of = new WeakMap(); // what each worker has not answered yet
  const { postMessage, terminate } = Worker.prototype;
  Worker.prototype.postMessage = function ask(m, ...more) {
    if (m?.id !== undefined) {
      if (!of.has(this)) {
        of.set(this, new Set());
        this.addEventListener('message', ({ data }) => { if (of.get(this).delete(data.id)) asked.waiting--; });
      }
      of.get(this).add(m.id);
      asked.sent++;
      asked.waiting++;
    }
    return postMessage.call(this, m, ...more);
  };
  Worker.prototype.terminate = function end() {
    asked.waiting -= of.get(this)?.size ?? 0;
    of.get(this)?.clear();
    return terminate.call(this);
  };
  globalThis.said = [];
  addEventListener('DOMContentLoaded', () => {
    const toast = document.getElementById('toast');
    if (toast) new MutationObserver(() => { if (toast.textContent) globalThis.said.push(toast.textContent); }).observe(toast, { childList: true });
  });
}

/** A page that fails the test when anything is written to its console. It is closed when the test ends. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, ...options });
  context.setDefaultTimeout(WAIT_LIMIT);
  await context.addInitScript(watch, SLOW > 1 ? 20 * SLOW : 0);
  const page = await context.newPage();
  if (SLOW > 1) await (await context.newCDPSession(page)).send('Emulation.setCPUThrottlingRate', { rate: SLOW });
  page.complaints = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) page.complaints.push(`${m.type()}: ${m.text()}`); });
  page.on('pageerror', (e) => page.complaints.push(`exception: ${e.stack ?? e.message}`));
  page.on('dialog', (d) => { page.complaints.push(`dialog: ${d.message()}`); d.dismiss(); });
  context.once('close', atEnd(() => tellAndClose(page)));
  await page.goto(url);
  await page.waitForSelector('body[data-ready]');
  return page;
}

/** Says what a page that a test has left shows, and closes it. */
async function tellAndClose(page) {
  if (page.isClosed()) return;
  const shows = page.evaluate(() => JSON.stringify({
    ...Object.fromEntries(['what', 'state', 'toast', 'filter-wrong', 'unit-title', 'search-state'].map((id) => [id, document.getElementById(id)?.textContent])),
    body: { ...document.body.dataset }, filter: document.getElementById('filter')?.value, asked: globalThis.asked, hash: location.hash,
  })).catch((e) => e.message);
  const late = new Promise((r) => { setTimeout(r, 5000, 'it does not answer').unref(); });
  console.log(`the page that was left: ${await Promise.race([shows, late])} ${page.complaints.join('; ')}`);
  await page.context().close();
}

/**
 * Waits until the page is at rest: its workers have answered all that was asked,
 * what it put off by a moment is done and has asked for nothing more. Passes over
 * the bytes (index, filter, search) are not waited for.
 */
export const rest = (page) => page.evaluate(async (limit) => {
  const { asked } = globalThis;
  const wait = (ms) => new Promise((r) => { setTimeout(r, ms); });
  const frame = () => Promise.race([new Promise((r) => { requestAnimationFrame(r); }), wait(500)]);
  const until = performance.now() + limit;
  for (let sent = -1; sent !== asked.sent || asked.waiting;) {
    if (performance.now() > until) throw new Error(`the page does not come to rest: ${asked.waiting} answers are awaited`);
    ({ sent } = asked);
    await frame();
    // Longer than the page puts anything off that it asks for (frames.js: 60 ms).
    await wait(70);
    await frame();
  }
}, WAIT_LIMIT);

/** Waits until f gives what is true, and gives it; what says what was waited for. */
export async function until(what, f) {
  for (const end = Date.now() + WAIT_LIMIT; Date.now() < end;) {
    const got = await f();
    if (got) return got;
    await new Promise((r) => { setTimeout(r, 20); });
  }
  return assert.fail(`waited in vain: ${what}`);
}

/** Waits until the connection that is shown, or being opened, is indexed. */
export async function indexed(page) {
  await page.waitForSelector('body[data-done]');
  await rest(page);
}

/** Opens files by the picker and waits until all is indexed. */
export async function openFiles(page, paths, { wait = true } = {}) {
  await page.evaluate(() => { delete document.body.dataset.done; });
  await page.setInputFiles('#pick-files', paths);
  if (wait) await indexed(page);
}

/** Waits until the connection whose name starts so is shown and indexed. */
export async function connection(page, name) {
  await page.waitForFunction((n) => document.getElementById('file-name').textContent.startsWith(n) && document.body.dataset.done, name);
  await rest(page);
}

/** Waits until the page says this, a RegExp, also where something else was said since; each of what it says is taken once. */
export const toast = (page, says) => page.waitForFunction((s) => {
  const i = globalThis.said.findIndex((t) => new RegExp(s).test(t));
  if (i >= 0) globalThis.said.splice(0, i + 1);
  return i >= 0;
}, says.source);

/** Nothing was written to the console; the page is let go. */
export async function quiet(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

/** The rows of the list as they are on the screen, from the first to the last; times in the form that they are shown in. */
export function listed(page) {
  return page.evaluate(async (limit) => {
    const f = document.getElementById('frames');
    const count = Number(f.getAttribute('aria-rowcount')) - 1;
    const names = [...document.querySelectorAll('#columns .cell')].map((c) => c.textContent.split(' ')[0]);
    const at = (n) => names.indexOf(n);
    const rows = new Map();
    const until = performance.now() + limit;
    for (let top = 0; rows.size < count;) {
      if (performance.now() > until) throw new Error(`${rows.size} of ${count} rows were listed`);
      f.scrollTop = top * 21;
      await new Promise((r) => { setTimeout(r, 30); });
      let last = -1;
      for (const e of f.querySelectorAll('.row:not([hidden]):not(.waiting)')) {
        const c = [...e.querySelectorAll('.cell')].map((x) => x.textContent);
        rows.set(e.index, { row: Number(e.dataset.row), no: c[at('No.')], offset: Number(c[at('Offset')]), name: c[at('Kind')], size: Number(c[at('Size')].replaceAll(',', '')), type: /t-(\w+)/.exec(e.className)?.[1] ?? 'frame', summary: c[at('Summary')], time: c[at('Time')] ?? c[at('Data')] ?? '', arrival: c[at('Arrival')] ?? '', source: c[at('Source')] ?? '' });
        last = Math.max(last, e.index);
      }
      const waiting = f.querySelector('.row.waiting:not([hidden])');
      if (!waiting) top = last + 1 >= count ? top : Math.max(top + 1, last - 1);
      if (last + 1 >= count && !waiting && rows.size < count) top = [...Array(count).keys()].find((i) => !rows.has(i));
    }
    return [...rows.values()].sort((a, b) => a.row - b.row);
  }, 2 * WAIT_LIMIT);
}

/** Types into the box that goes to a row, an offset or a time. */
export const go = async (page, where) => {
  // A row goes by its frame's number, or where it is none by its offset.
  const text = typeof where !== 'object' ? where : /^\d+$/.test(where.no) ? where.no : `@${where.offset}`;
  await page.fill('#goto', String(text));
  await page.press('#goto', 'Enter');
};

/** Waits until a row is open. */
export async function unit(page, row) {
  await page.waitForSelector(`body[data-unit="${row}"]`);
  await rest(page);
}

/** A cell of the first row that has one, from the top of the list. */
export async function first(page, column) {
  await page.evaluate(() => { document.getElementById('frames').scrollTop = 0; });
  await page.waitForFunction(() => document.querySelector('#row-0:not(.waiting)'));
  return page.evaluate((c) => [0, 1, 2].map((i) => document.querySelector(`#row-${i} .c-${c}`).textContent).find(Boolean), column);
}

/** Does what sets a filter, a text or one that fits a RegExp, and waits until all its rows are found, of the same filter anew; gives the filter. */
export async function filtering(page, expression, act) {
  const want = expression instanceof RegExp ? [expression.source, true] : [expression, false];
  await page.evaluate(() => { delete document.body.dataset.filtered; });
  await act();
  const found = () => page.waitForFunction(([e, fits]) => {
    const { filtered = '' } = document.body.dataset;
    return filtered && filtered === document.getElementById('filter').value.trim() && (fits ? new RegExp(e).test(filtered) : filtered === e) ? filtered : '';
  }, want);
  await found();
  await rest(page);
  // What came was still of the one before where it is gone again.
  return (await found()).jsonValue();
}

/** Sets a filter by hand and waits until all its rows are found. */
export const filter = (page, expression) => filtering(page, expression, async () => {
  await page.fill('#filter', expression);
  await page.keyboard.press('Escape');
  await page.press('#filter', 'Enter');
});

/** Takes the filter away. */
export async function unfiltered(page) {
  await page.click('#filter-clear');
  await page.waitForFunction(() => document.body.dataset.filtered === undefined && document.getElementById('filter').value === '');
  await rest(page);
}

/** Waits until a page of the same site, another tab too, reads a setting as this: what a tab stores reaches the others a moment later. */
export const stored = (page, key, value) => page.waitForFunction(([k, v]) => JSON.parse(localStorage.getItem('wiretape-viewer') ?? '{}')[k] === v, [key, value]);
