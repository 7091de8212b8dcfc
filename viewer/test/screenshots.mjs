// Makes the pictures of docs/img anew: node test/screenshots.mjs

import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { dist, filter, go, launch, openFiles, openPage, rest, root, serve, unit } from './browser.mjs';
import { dendro, generate, work } from './fixtures.mjs';

const out = join(root, 'docs', 'img');
mkdirSync(out, { recursive: true });
const server = await serve({ '/': dist });
const browser = await launch();
const fixture = (name) => dendro().find((f) => f.name === name).file;
const size = { width: 1280, height: 800 };

const folder = (dir) => readdirSync(dir).filter((f) => f !== 'lock').map((f) => join(dir, f));

// Many connections over the time of arrival; a frame, its fields and its bytes in step.
const many = generate('connections', ...['real/live', 'crafted/gap', 'real/small', 'telemetry/small'].map((n) => fixture(`${n}.stream`)), join(work, 'many'));
let page = await openPage(browser, `${server.base}/`, { viewport: size, colorScheme: 'light' });
await openFiles(page, folder(many));
await page.waitForFunction(() => document.querySelectorAll('#connections .connection:not([hidden]) .badge').length >= 7);
await page.click('#axis [value=arrival]');
await go(page, 30); // a Rows frame
await unit(page, 30);
await page.fill('#goto', '');
await page.focus('#frames');
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
await rest(page);
await page.screenshot({ path: join(out, 'viewer-segment.png') });
await page.context().close();

await browser.close();
server.close();
