// Makes the pictures of docs/img anew: node test/screenshots.mjs

import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { dist, launch, openFiles, openPage, root, serve } from './browser.mjs';
import { dendro, generate, work } from './fixtures.mjs';

const out = join(root, 'docs', 'img');
mkdirSync(out, { recursive: true });
const server = await serve({ '/': dist });
const browser = await launch();
const fixture = (name) => dendro().find((f) => f.name === name).file;
const size = { width: 1280, height: 800 };

async function filter(page, expression) {
  await page.fill('#filter', expression);
  await page.keyboard.press('Escape');
  await page.press('#filter', 'Enter');
  await page.waitForFunction((e) => document.body.dataset.filtered === e, expression);
}

async function go(page, row) {
  await page.fill('#goto', String(row));
  await page.press('#goto', 'Enter');
  await page.waitForSelector(`body[data-unit="${row}"]`);
  await page.fill('#goto', '');
  await page.focus('#frames');
}

const folder = (dir) => readdirSync(dir).filter((f) => f !== 'lock').map((f) => join(dir, f));

// Many connections over the time of arrival; a frame, its fields and its bytes in step.
const many = generate('connections', ...['real/live', 'crafted/gap', 'real/small', 'telemetry/small'].map((n) => fixture(`${n}.stream`)), join(work, 'many'));
let page = await openPage(browser, `${server.base}/`, { viewport: size, colorScheme: 'light' });
await openFiles(page, folder(many));
await page.waitForFunction(() => document.querySelectorAll('#connections .connection:not([hidden]) .badge').length >= 7);
await page.click('#axis [value=arrival]');
await go(page, 30); // a Rows frame
await page.waitForFunction(() => document.querySelectorAll('#tree .node:not([hidden])').length > 6 && ![...document.querySelectorAll('#hex .b')].some((b) => b.textContent === '··'));
await page.evaluate(() => { document.querySelectorAll('#hex .line .b')[9].click(); });
await page.waitForSelector('#hex .b.mark');
await page.screenshot({ path: join(out, 'viewer-frame.png') });
await page.context().close();

// A segment proved and its rows, in the dark, with arrival times.
const dir = join(work, 'folder');
generate('folder', fixture('telemetry/small.stream'), dir);
page = await openPage(browser, `${server.base}/`, { viewport: size, colorScheme: 'dark' });
await openFiles(page, folder(dir));
await filter(page, 'kind == Segment and size > 6K');
await page.click('#tab-segment');
await page.waitForSelector('.p-row');
await page.click('#tab-capture');
await page.waitForTimeout(600);
await page.screenshot({ path: join(out, 'viewer-segment.png') });
await page.context().close();

await browser.close();
server.close();
