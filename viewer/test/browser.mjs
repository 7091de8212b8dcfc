// What the browser tests share: the page's server with the headers of
// docs/viewer.md, Chromium, and what people do with the page.

import assert from 'node:assert/strict';
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
  await new Promise((r) => { server.listen(0, '127.0.0.1', r); });
  return { server, requests, base: `http://127.0.0.1:${server.address().port}`, close: () => { server.closeAllConnections(); server.close(); } };
}

const OPTIONS = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--enable-precise-memory-info'],
};

export function launch() {
  return chromium.launch(OPTIONS);
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

/** A page that fails the test when anything is written to its console. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) page.complaints.push(`${m.type()}: ${m.text()}`); });
  page.on('pageerror', (e) => page.complaints.push(`exception: ${e.stack ?? e.message}`));
  page.on('dialog', (d) => { page.complaints.push(`dialog: ${d.message()}`); d.dismiss(); });
  await page.goto(url);
  await page.waitForSelector('body[data-ready]');
  return page;
}

/** Opens files by the picker and waits until all is indexed. */
export async function openFiles(page, paths, { wait = true } = {}) {
  await page.evaluate(() => { delete document.body.dataset.done; });
  await page.setInputFiles('#pick-files', paths);
  if (wait) await page.waitForSelector('body[data-done]', { timeout: 60000 });
}

/** Nothing was written to the console; the page is let go. */
export async function quiet(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

/** The rows of the list as they are on the screen, from the first to the last; times in the form that they are shown in. */
export function listed(page) {
  return page.evaluate(async () => {
    const f = document.getElementById('frames');
    const count = Number(f.getAttribute('aria-rowcount')) - 1;
    const names = [...document.querySelectorAll('#columns .cell')].map((c) => c.textContent.split(' ')[0]);
    const at = (n) => names.indexOf(n);
    const rows = new Map();
    const until = performance.now() + 20000;
    for (let top = 0; rows.size < count && performance.now() < until;) {
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
  });
}

/** Types into the box that goes to a row, an offset or a time. */
export const go = async (page, where) => {
  // A row goes by its frame's number, or where it is none by its offset.
  const text = typeof where !== 'object' ? where : /^\d+$/.test(where.no) ? where.no : `@${where.offset}`;
  await page.fill('#goto', String(text));
  await page.press('#goto', 'Enter');
};

export const unit = (page, row) => page.waitForSelector(`body[data-unit="${row}"]`);

/** A cell of the first row that has one, from the top of the list. */
export async function first(page, column) {
  await page.evaluate(() => { document.getElementById('frames').scrollTop = 0; });
  await page.waitForFunction(() => document.querySelector('#row-0:not(.waiting)'));
  return page.evaluate((c) => [0, 1, 2].map((i) => document.querySelector(`#row-${i} .c-${c}`).textContent).find(Boolean), column);
}

/** Sets a filter and waits until all its rows are found. */
export async function filter(page, expression) {
  await page.fill('#filter', expression);
  await page.keyboard.press('Escape');
  // The same filter again is looked through again, and that is waited for.
  await page.evaluate(() => { delete document.body.dataset.filtered; });
  await page.press('#filter', 'Enter');
  await page.waitForFunction((e) => document.body.dataset.filtered === e, expression);
}
