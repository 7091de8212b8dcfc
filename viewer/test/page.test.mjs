// The page in a real Chromium: what people see and do.

import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync, appendFileSync, copyFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { dist, filter, filtering, finish, first, go, indexed, launch, listed, openFiles, openPage, quiet, rest, root, serve, single, stored, test, toast, unfiltered, unit, viewed } from './browser.mjs';
import { aewr, dendro, generate, melin, work } from './fixtures.mjs';

const captures = join(work, 'captures');
mkdirSync(captures, { recursive: true });
let browser;
let server;

before(async () => {
  browser = await launch();
  server = await serve({ '/some/where/': dist, '/captures/': captures });
});

after(() => finish(browser, server));

const open = (options) => openPage(browser, `${server.base}/some/where/`, options);

for (const [name, list] of [['dendro', dendro()], ['melin', melin()], ['AEWR', aewr()]]) {
  test(`${name}: the list's rows are the fixtures' frames`, async () => {
    const page = await open();
    let frames = 0;
    for (const f of list) {
      await page.evaluate(() => { document.getElementById('what').textContent = ''; delete document.body.dataset.done; });
      await openFiles(page, [f.file], { wait: false });
      await page.waitForFunction(() => document.body.dataset.done || /:/.test(document.getElementById('what').textContent));
      await rest(page);
      if (await page.evaluate(() => !document.body.dataset.done)) {
        // Not recognised: then no frame of it is known either.
        assert.deepEqual(f.frames, [], f.name);
        continue;
      }
      const rows = (await listed(page)).filter((r) => r.type === 'frame');
      assert.deepEqual(rows.map((r) => r.no), rows.map((_, i) => String(i + 1)), f.name);
      const want = f.frames;
      assert.ok(rows.length >= want.length, `${f.name}: ${rows.length} rows for ${want.length} frames`);
      want.forEach((w, i) => {
        const r = rows[i];
        assert.equal(r.offset, w.offset, `${f.name}, frame ${i}`);
        assert.equal(r.size, w.size, `${f.name}, frame ${i}`);
        if (w.name) assert.equal(r.name, w.name, `${f.name}, frame ${i}`);
      });
      frames += want.length;
    }
    assert.ok(frames > 100, `${frames} frames`);
    await quiet(page);
  });
}

/** Every field of the open frame: selects it, and reads its bytes out of what the hex view lights. */
function fields(page) {
  return page.evaluate(async () => {
    const tree = document.getElementById('tree');
    const hex = document.getElementById('hex');
    const wait = async (f) => {
      const until = performance.now() + 60000;
      while (!f()) {
        if (performance.now() > until) throw new Error(`waited in vain: ${f}`);
        await new Promise((r) => { setTimeout(r, 3); });
      }
    };
    const out = [];
    tree.focus();
    const key = (k) => tree.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));
    key('Home');
    for (let i = 0; i < 400; i++) {
      const n = tree.querySelector('.node.selected');
      if (!n) break;
      await wait(() => ![...hex.querySelectorAll('.line:not([hidden]) .b')].some((b) => b.textContent === '··'));
      const marks = [...hex.querySelectorAll('.line:not([hidden]) .b.mark')].map((b) => b.textContent);
      const place = /offset ([\d,]+) .*· ([\d,]+) bytes?/.exec(document.getElementById('place').textContent);
      // Lines are elements that are used again: their order is that of their index.
      const lines = [...hex.querySelectorAll('.line:not([hidden])')].sort((a, b) => a.index - b.index);
      const ordered = lines.flatMap((l) => [...l.querySelectorAll('.b.mark')].map((b) => b.textContent));
      out.push({
        name: n.querySelector('.name').textContent, value: n.querySelector('.value').textContent, note: n.querySelector('.note').textContent,
        type: /v-(\w+)/.exec(n.querySelector('.value').className)?.[1], hex: ordered.join(''), lit: marks.length,
        offset: Number(place?.[1].replaceAll(',', '')), length: Number(place?.[2].replaceAll(',', '')), expanded: n.getAttribute('aria-expanded'),
      });
      if (n.getAttribute('aria-expanded') === 'false') {
        key('ArrowRight');
        await wait(() => tree.querySelector('.node.selected')?.getAttribute('aria-expanded') === 'true');
      }
      const was = n.id;
      key('ArrowDown');
      await wait(() => tree.querySelector('.node.selected') && !tree.querySelector('.node.selected.waiting'));
      if (tree.querySelector('.node.selected').id === was) break;
    }
    return out;
  });
}

/** What the lit bytes say, read by the field's type alone. */
function readBack(f, b) {
  const le = (x) => BigInt(`0x${Buffer.from(x).reverse().toString('hex') || '0'}`);
  switch (f.type) {
    case 'uint': return le(b).toString();
    case 'int': case 'time': case 'duration': return BigInt.asIntN(b.length * 8, le(b)).toString();
    case 'hex': return b.toString('hex');
    case 'bool': return b[0] ? 'true' : 'false';
    case 'text': return b.toString('utf8');
    default: return null;
  }
}

for (const [name, list] of [
  ['dendro', dendro().filter((f) => /clean-complete|source-update|bad-utf8|empty-caller-index|rows-no-index/.test(f.name))],
  ['melin', melin().filter((f) => /vectors\/melin-r2p|s2-idle\/conn01-p2r/.test(f.name))],
  ['AEWR', aewr().filter((f) => /heartbeat|result-stream|segment-stream|exec-bytecode/.test(f.name))],
]) {
  test(`${name}: every field lights its own bytes`, async () => {
    assert.ok(list.length >= 2, list.map((f) => f.name).join());
    const page = await open();
    await page.click('#settings-open');
    await page.check('input[name=time][value=raw]');
    await page.click('#settings-dialog button');
    let read = 0;
    for (const f of list) {
      const bytes = readFileSync(f.file);
      await openFiles(page, [f.file]);
      const rows = await listed(page);
      for (const r of rows.slice(0, 8)) {
        if (r.type !== 'frame') continue;
        await go(page, r);
        await unit(page, r.row);
        for (const x of await fields(page)) {
          const where = `${f.name}, row ${r.row}, ${x.name} = ${x.value}`;
          assert.ok(x.offset >= r.offset && x.offset + x.length <= r.offset + r.size, `${where}: at ${x.offset}, ${x.length} bytes`);
          if (x.length === 0 || x.length > 128) continue;
          const b = bytes.subarray(x.offset, x.offset + x.length);
          assert.equal(x.hex, b.toString('hex'), where);
          const shown = x.type === 'text' ? x.value.slice(1, -1) : x.value.replace('−', '-');
          const back = readBack(x, b);
          if (x.type === 'duration') {
            const [, s, ns] = /^(-?\d+)\.(\d{9}) s$/.exec(shown) ?? [];
            if (s) assert.equal(back.replace('-', '').padStart(10, '0'), (s.replace('-', '') + ns).padStart(10, '0').replace(/^0+(?=\d{10})/, ''), where);
          } else if (x.type === 'text') {
            // A text has its length before it, and a map's value its key.
            if (!/[\\…]/.test(shown)) assert.ok(back.endsWith(shown) || b.includes(shown), `${where}: ${back}`);
          } else if (back !== null) {
            assert.ok(back === shown || (x.type === 'hex' && back.endsWith(shown)), `${where}: the bytes say ${back}`);
          }
          read++;
        }
      }
    }
    assert.ok(read > 40, `${read} fields`);
    await quiet(page);
  });
}

test('tree and bytes are in step both ways, by click, hover and keys', async () => {
  const page = await open();
  const f = dendro().find((x) => x.name === 'real/live.stream');
  await openFiles(page, [f.file]);
  const row = (await listed(page)).find((r) => r.name === 'Rows' && r.size > 200).row;
  await go(page, row);
  await unit(page, row);
  await page.waitForFunction(() => ![...document.querySelectorAll('#hex .b')].some((b) => b.textContent === '··'));
  // A byte selects the deepest field that holds it.
  const click = (i) => page.evaluate((n) => { document.querySelectorAll('#hex .line .b')[n].click(); }, i);
  await click(9);
  await page.waitForFunction(() => document.querySelector('#tree .node.selected .name')?.textContent === 'seq');
  assert.equal(await page.locator('#hex .b.mark').count(), 8);
  await click(50);
  await page.waitForFunction(() => /stream|ts|wall_offset|row/.test(document.querySelector('#tree .node.selected .name')?.textContent ?? ''));
  // A field that is hovered lights its bytes, a byte that is hovered its field.
  await page.locator('#tree .node', { hasText: 'seq' }).first().hover();
  await page.waitForFunction(() => document.querySelectorAll('#hex .b.glow').length === 8);
  await page.locator('#hex .line .b').nth(5).hover();
  await page.waitForFunction(() => document.querySelector('#tree .node.lit .name')?.textContent === 'source');
  // The keys of the bytes tell the field.
  await page.focus('#hex');
  await page.keyboard.press('Home');
  await page.waitForFunction(() => document.querySelector('#tree .node.selected .name')?.textContent === 'len');
  for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.querySelector('#tree .node.selected .name')?.textContent === 'kind');
  await quiet(page);
});

test('a frame that does not decode shows its fields up to the fault, and the frames after it', async () => {
  const page = await open();
  await openFiles(page, [dendro().find((x) => x.name.endsWith('bad-utf8.stream')).file]);
  const rows = await listed(page);
  const bad = rows.find((r) => r.summary.startsWith('⚠'));
  assert.ok(bad && rows.some((r) => r.row > bad.row && r.name === 'Rows'), 'a row after the bad one');
  await page.locator('#findings .finding').first().click();
  await unit(page, bad.row);
  assert.match(await page.textContent('#unit-findings'), /malformed-frame.*expected valid UTF-8, found other bytes/);
  await page.waitForFunction(() => /seq/.test(document.getElementById('tree').textContent));
  await page.waitForFunction(() => document.querySelectorAll('#hex .b.mark').length > 0);
  await quiet(page);
});

test('a finding about a field lights that field', async () => {
  const page = await open();
  await openFiles(page, [dendro().find((x) => x.name === 'crafted/state-mismatch.stream').file]);
  await page.locator('#findings .finding').first().click();
  await page.waitForFunction(() => document.querySelector('#tree .node.selected .name')?.textContent === 'index_state');
  await rest(page);
  assert.equal(await page.locator('#hex .b.mark').count(), 16);
  assert.match(await page.textContent('#unit-findings'), /rows-skipped.*but the index here is at/);
  await quiet(page);
});

test('dropped files open', async () => {
  const page = await open();
  const f = dendro().find((x) => x.name === 'crafted/gap.stream');
  await page.evaluate((bytes) => {
    const t = new DataTransfer();
    t.items.add(new File([new Uint8Array(bytes)], 'dropped.stream'));
    for (const type of ['dragenter', 'dragover', 'drop']) window.dispatchEvent(new DragEvent(type, { dataTransfer: t, bubbles: true, cancelable: true }));
  }, [...readFileSync(f.file)]);
  await indexed(page);
  assert.match(await page.textContent('#file-name'), /dropped\.stream · dendro/);
  assert.equal((await listed(page)).filter((r) => r.type === 'frame').length, f.frames.length);
  await quiet(page);
});

test('skipped rows and gaps say their reason', async () => {
  const page = await open();
  for (const [name, kind] of [['state-mismatch', /rows-skipped|skipped/], ['gap', /gap/], ['truncated-in-payload', /cut/], ['unknown-ordinal', /ordinal|source/]]) {
    await openFiles(page, [dendro().find((x) => x.name === `crafted/${name}.stream`).file]);
    assert.match(await page.textContent('#findings .finding'), kind, name);
  }
  await quiet(page);
});

test('a hundred thousand rows open at once', async () => {
  const page = await open();
  const f = generate('rows', 100000, join(captures, 'rows.stream'));
  await openFiles(page, [f]);
  const ms = await page.evaluate(async () => {
    const began = performance.now();
    const g = document.getElementById('goto');
    g.value = '2';
    g.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    while (!/100,000 entries/.test(document.getElementById('tree').textContent)) await new Promise((r) => { setTimeout(r, 5); });
    return performance.now() - began;
  });
  // In all but no time on an idle machine; a line for each row would take minutes.
  assert.ok(ms < 15000, `${ms} ms`);
  await unit(page, 2);
  await page.focus('#tree');
  await page.keyboard.press('End');
  await page.keyboard.press('ArrowRight');
  await rest(page);
  assert.equal(await page.getAttribute('#tree .node.selected', 'aria-expanded'), 'true');
  await page.keyboard.press('End');
  await page.waitForFunction(() => [...document.querySelectorAll('#tree .node:not([hidden]) .name')].some((n) => n.textContent === '[99999]'));
  await page.waitForFunction(() => /to the one before/.test(document.getElementById('tree').textContent));
  assert.ok(await page.locator('#tree .node').count() < 200);
  // Its last byte finds its last row.
  await page.focus('#hex');
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.querySelector('#tree .node.selected .name')?.textContent === 'row');
  await quiet(page);
});

test('columns are as wide as what they hold, and the tabs all show, at 1,400 pixels and 1,000', async () => {
  const page = await open({ viewport: { width: 1400, height: 900 } });
  const cut = () => page.evaluate(() => [...document.querySelectorAll('#frames .row:not([hidden]) .cell:not(.c-summary), #columns .cell, #side-tabs')].filter((c) => c.scrollWidth > c.clientWidth).map((c) => `${c.className}: ${c.textContent}`));
  for (const name of ['fan-out.txt', 'exec-bytecode.txt', 'v18-down', 'txn.txt', 'exec-abort.txt']) {
    const f = aewr().find((x) => x.name === name)?.file ?? join(root, 'wire', 'aewr', 'testdata', 'sessions', `${name}.stream`);
    if (!existsSync(f)) continue;
    await openFiles(page, [f]);
    await listed(page);
    assert.deepEqual(await cut(), [], name);
    // No two kinds of the legend have one name.
    const legend = await page.locator('#legend .chip').evaluateAll((all) => all.map((c) => c.children[1].textContent));
    assert.equal(new Set(legend).size, legend.length, legend.join());
  }
  await openFiles(page, [join(root, 'wire', 'aewr', 'testdata', 'sessions', 'v18-down.stream')]);
  const chip = page.locator('#legend .chip', { hasText: 'MIGRATE_* 10' });
  await filtering(page, 'kind == 10', () => chip.click());
  assert.equal(String((await listed(page)).length), await chip.locator('.n').textContent());
  await page.setViewportSize({ width: 1000, height: 700 });
  for (const t of await page.locator('#side-tabs [role=tab]:visible').all()) {
    const [b, s] = [await t.boundingBox(), await page.locator('#side').boundingBox()];
    assert.ok(b.x >= s.x && b.x + b.width <= s.x + s.width, await t.textContent());
  }
  // A width that was chosen stays.
  await page.keyboard.press(',');
  await page.locator('#set-widths label', { hasText: 'Kind' }).locator('input').fill('60');
  await page.click('#settings-dialog button');
  await openFiles(page, [aewr()[0].file]);
  assert.equal(await page.evaluate(() => Math.round([...document.querySelectorAll('#columns .cell')].find((c) => /Kind/.test(c.textContent)).getBoundingClientRect().width)), 60);
  await quiet(page);
});

const HOSTILE = /pwned/;
test('hostile texts stay text, in every panel', async () => {
  const page = await open();
  await openFiles(page, [generate('hostile', join(captures, 'hostile.stream'))]);
  const rows = await listed(page);
  assert.ok(rows.length > 80, `${rows.length} rows`);
  for (const r of rows) {
    if (r.row % 3 && r.name !== 'Handshake') continue;
    await go(page, r);
    await unit(page, r.row);
    if (await page.isVisible('#tab-segment')) {
      await page.click('#tab-segment');
      await page.waitForSelector('#pane-segment .verdict');
      await page.click('#tab-tree');
    }
  }
  for (const t of ['sources', 'search', 'capture', 'findings']) await page.click(`#tab-${t}`);
  await page.click('#tab-sources');
  for (const s of await page.locator('#sources summary').all()) await s.click();
  await page.waitForSelector('#sources .told .pair');
  await page.focus('#frames');
  await page.keyboard.press('Home');
  await page.keyboard.press('c');
  await page.keyboard.press('End');
  await page.click('#tab-compare');
  await rest(page);
  await page.waitForSelector('#pane-compare .compare');
  assert.doesNotMatch(await page.title(), HOSTILE);
  assert.equal(await page.locator('img, script:not([src]), b, iframe').count(), 0);
  const text = await page.evaluate(() => document.body.innerText);
  assert.match(text, /<img src=x/);
  assert.doesNotMatch(text, /[\u202a-\u202e\u2066-\u2069\u0007\u001b]/);
  assert.ok(text.length < 300000, `${text.length} characters on the page`);
  await quiet(page);
});

test('what is no capture is said in one line', async () => {
  const page = await open();
  const cases = [
    ['picture.jpg', Buffer.concat([Buffer.from('ffd8ffe000104a464946', 'hex'), Buffer.alloc(5000, 90)]), /JPEG/],
    ['nothing', Buffer.alloc(0), /an empty file/],
    ['packets.pcap', Buffer.concat([Buffer.from('d4c3b2a1', 'hex'), Buffer.alloc(60)]), /pcap/],
    ['cut.cap.zst', Buffer.from('28b52ffd0000', 'hex'), /zstd|compressed/],
    ['text.txt', Buffer.from('just words\n'.repeat(10)), /text/],
  ];
  for (const [name, b, says] of cases) {
    const f = join(captures, name);
    writeFileSync(f, b);
    await page.evaluate(() => { document.getElementById('what').textContent = ''; });
    await openFiles(page, [f], { wait: false });
    await page.waitForFunction(() => document.getElementById('what').textContent.length > 10);
    assert.match(await page.textContent('#what'), says, name);
  }
  // Read as a protocol all the same, nothing hangs.
  await openFiles(page, [join(captures, 'picture.jpg')], { wait: false });
  await page.click('#read-as button >> nth=0');
  await indexed(page);
  await quiet(page);
});

test('a capture folder joins by its sidecars, and a file from its middle has its context', async () => {
  const dir = join(captures, 'folder');
  generate('folder', dendro().find((x) => x.name === 'telemetry/small.stream').file, dir);
  const page = await open();
  await page.setInputFiles('#pick-folder', dir);
  await indexed(page);
  const rows = await listed(page);
  const want = dendro().find((x) => x.name === 'telemetry/small.stream').frames;
  assert.deepEqual(rows.filter((r) => r.type === 'frame').map((r) => r.offset), want.map((w) => w.offset));
  assert.match(await page.textContent('#columns'), /Arrival/);
  assert.match(await first(page, 'arrival'), /22:13:20\.000/);
  await page.click('#tab-capture');
  assert.match(await page.textContent('#capture'), /tcp:\/\/publisher\.example:7001/);
  // The time of an arrival is a place to go to.
  await go(page, '2023-11-14T22:13:20.100000000');
  await page.waitForFunction(() => /#offset=\d{5,}/.test(location.hash));
  await rest(page);
  await filter(page, 'arrival >= 2023-11-14T22:13:20.100000000 and arrival < 2023-11-14T22:13:20.150000000');
  const some0 = await listed(page);
  assert.deepEqual(some0.map((r) => r.offset), rows.filter((r) => r.offset >= 100000 && r.offset < 150000).map((r) => r.offset));
  assert.ok(some0.length > 3);
  await unfiltered(page);
  // A file from the middle, with its sidecar, knows who its source is.
  const middle = readdirSync(dir).filter((f) => f.includes('.00000003.')).map((f) => join(dir, f));
  await openFiles(page, middle);
  const some = await listed(page);
  assert.ok(some[0].offset > 0);
  assert.match(await first(page, 'source'), /web-00/);
  // Without it, it is read all the same.
  await openFiles(page, middle.filter((f) => f.endsWith('.cap')), { wait: false });
  await page.waitForFunction(() => document.body.dataset.done || document.querySelector('#read-as:not([hidden]) button'));
  if (await page.isVisible('#read-as')) await page.click('#read-as button:has-text("dendro")');
  await indexed(page);
  assert.equal((await listed(page)).filter((r) => r.type === 'frame').length, some.filter((r) => r.type === 'frame').length);
  // A hole in the middle is a row, and is found.
  await openFiles(page, readdirSync(dir).filter((f) => !f.includes('.00000002.') && f !== 'lock').map((f) => join(dir, f)));
  const holed = await listed(page);
  assert.ok(holed.some((r) => r.type === 'missing'));
  assert.match(await page.textContent('#finding-kinds'), /missing-bytes/);
  await quiet(page);
});

test('unfinished, zero-filled and compressed captures open', async () => {
  const page = await open();
  const src = dendro().find((x) => x.name === 'real/small.stream');
  const whole = readFileSync(src.file);
  const partial = join(captures, 'c00000001-00000000.00000001.cap.partial');
  writeFileSync(partial, Buffer.concat([whole.subarray(0, 60000), Buffer.alloc(5000)]));
  await openFiles(page, [partial]);
  assert.match(await page.textContent('#finding-kinds'), /zero-filled-tail/);
  for (const how of ['zst', 'zst1']) {
    const z = generate(how, src.file, join(captures, `${how}.stream.zst`));
    await openFiles(page, [z]);
    assert.deepEqual((await listed(page)).filter((r) => r.type === 'frame').map((r) => [r.offset, r.name]), src.frames.map((w) => [w.offset, w.name]));
  }
  await quiet(page);
});

test('a URL is read by ranges, and a change is noticed', async () => {
  const f = join(captures, 'served.stream');
  copyFileSync(dendro().find((x) => x.name === 'real/small.stream').file, f);
  const page = await openPage(browser, `${server.base}/some/where/?url=${encodeURIComponent(`${server.base}/captures/served.stream`)}#offset=236960`);
  await indexed(page);
  await unit(page, 18);
  assert.ok(server.requests.filter((r) => r.path.endsWith('served.stream')).every((r) => r.range));
  assert.equal((await listed(page)).length, 73);
  appendFileSync(f, Buffer.from([1, 2, 3]));
  await page.focus('#frames');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowDown');
  await toast(page, /changed while it was open/);
  await page.evaluate(() => { document.getElementById('what').textContent = ''; });
  await page.evaluate((u) => { document.getElementById('url').value = u; document.getElementById('url-dialog').returnValue = 'open'; document.getElementById('url-dialog').dispatchEvent(new Event('close')); }, `${server.base}/captures/absent`);
  await page.waitForFunction(() => /404/.test(document.getElementById('what').textContent));
  // A request that fails is written to the console by Chromium itself.
  page.complaints = page.complaints.filter((c) => !/404|412/.test(c));
  await quiet(page);
});

test('a file that changes on disk while it is open is noticed', async () => {
  const f = join(captures, 'changing.stream');
  copyFileSync(dendro().find((x) => x.name === 'real/small.stream').file, f);
  const page = await open();
  await openFiles(page, [f]);
  writeFileSync(f, Buffer.alloc(100, 1));
  await go(page, 60);
  await toast(page, /changed|shorter/);
  await rest(page);
  assert.equal(await page.textContent('#state'), 'the file was changed: open it again');
  // Nothing goes on as if it worked.
  await page.click('#tab-search');
  await page.fill('#search-text', 'cpu');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /^0 found, stopped: .*changed/.test(document.getElementById('search-state').textContent));
  assert.ok(await page.isHidden('#search-cancel'));
  await quiet(page);
});

test('the filter is checked, completes, streams and is kept', async () => {
  const page = await open();
  const f = dendro().find((x) => x.name === 'real/small.stream');
  await openFiles(page, [f.file]);
  const all = await listed(page);
  const cases = [
    ['kind == Rows', (r) => r.name === 'Rows'],
    ['kind != Rows and size > 4K', (r) => r.type === 'frame' && r.name !== 'Rows' && r.size > 4096],
    ['(kind = Index or kind == 5) and not size < 103', (r) => (r.name === 'Index' || r.name === 'ClockOffset') && r.size >= 103],
    ['number >= 10 && number < 20', (r) => r.no >= 10 && r.no < 20],
    ['offset < 0x4b2', (r) => r.offset < 0x4b2],
    ['source ~ WEB and stream == late_stream and kind == Segment', (r) => r.name === 'Segment' && r.size === 3701],
    ['type == preamble', (r) => r.type === 'preamble'],
    ['finding', () => false],
  ];
  for (const [e, takes] of cases) {
    await filter(page, e);
    const want = all.filter(takes).map((r) => r.row);
    assert.deepEqual((await listed(page)).map((r) => r.row), want, e);
    if (want.length) assert.match(await page.textContent('#state'), new RegExp(`^${want.length} of 73 rows`));
  }
  assert.ok(await page.isVisible('#no-rows'));
  for (const [e, says] of [['kind == Nothing', /no kind of that name/], ['size > big', /expected a number/], ['colour == red', /no field/], ['size >', /expected a value/], ['(size > 1', /expected \)/], ['stream < 3', /no order/]]) {
    await page.fill('#filter', e);
    await page.press('#filter', 'Escape');
    await page.press('#filter', 'Enter');
    // Enter hides what was said of the one before.
    await page.waitForSelector('#filter-wrong:not([hidden])');
    assert.match(await page.textContent('#filter-wrong'), says, e);
  }
  // Completion by the keyboard alone.
  await page.fill('#filter', '');
  await page.focus('#filter');
  await page.keyboard.type('ki');
  await page.keyboard.press('Tab');
  await page.keyboard.type('==');
  await page.keyboard.type(' Cl');
  await page.keyboard.press('Tab');
  assert.equal((await page.inputValue('#filter')).trim(), 'kind == ClockOffset');
  await page.keyboard.press('Escape');
  await page.fill('#filter', (await page.inputValue('#filter')).trim());
  await filtering(page, 'kind == ClockOffset', () => page.keyboard.press('Enter'));
  assert.equal((await listed(page)).length, 8);
  // It survives a reload, as do the theme and the columns.
  await page.click('#settings-open');
  await page.check('input[name=theme][value=dark]');
  await page.uncheck('#set-columns input >> nth=0');
  await page.click('#settings-dialog button');
  await page.reload();
  await page.waitForSelector('body[data-ready]');
  await filtering(page, 'kind == ClockOffset', () => openFiles(page, [f.file]));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  assert.doesNotMatch(await page.textContent('#columns'), /Offset/);
  await quiet(page);
});

test('search finds text and bytes over everything, and goes there', async () => {
  const page = await open();
  const f = dendro().find((x) => x.name === 'real/small.stream');
  const b = readFileSync(f.file);
  await openFiles(page, [f.file]);
  await page.focus('#frames');
  await page.keyboard.press('f');
  await page.keyboard.type('LATE_stream');
  await page.keyboard.press('Enter');
  let want = 0;
  for (let i = b.indexOf('late_stream'); i >= 0; i = b.indexOf('late_stream', i + 1)) want++;
  await page.waitForFunction((n) => document.getElementById('search-state').textContent === `${n} found`, want);
  await page.locator('#hits .hit').nth(1).click();
  await page.waitForFunction(() => document.querySelectorAll('#hex .b.mark').length === 11);
  await rest(page);
  assert.equal(await page.evaluate(() => [...document.querySelectorAll('#hex .c.mark')].map((c) => c.textContent).join('')), 'late_stream');
  await page.selectOption('#search-kind', 'hex');
  await page.fill('#search-text', '50 41 52 31');
  await page.press('#search-text', 'Enter');
  let parquet = 0;
  for (let i = b.indexOf('PAR1'); i >= 0; i = b.indexOf('PAR1', i + 1)) parquet++;
  await page.waitForFunction((n) => document.getElementById('search-state').textContent === `${n} found`, parquet);
  await quiet(page);
});

test('a segment shows its schema, its rows and what replay finds in it', async () => {
  const page = await open();
  await openFiles(page, [dendro().find((x) => x.name === 'telemetry/small.stream').file]);
  await filter(page, 'kind == Segment');
  await page.click('#tab-segment');
  await page.waitForFunction(() => /✓ Proved/.test(document.getElementById('pane-segment').textContent));
  await page.waitForFunction(() => /^\d{19}$/.test(document.querySelector('.p-row .p-cell:nth-child(2)')?.textContent ?? ''));
  assert.match(await page.textContent('#pane-segment'), /40 rows/);
  await page.click('#pane-segment summary:has-text("Schema")');
  assert.match(await page.textContent('#pane-segment [aria-label=Columns]'), /timestamp.*INT64.*ZSTD/);
  await page.click('#pane-segment summary:has-text("Choose columns")');
  const columns = await page.locator('.p-head .p-cell').count();
  await page.locator('.picks input').nth(1).uncheck();
  assert.equal(await page.locator('.p-head .p-cell').count(), columns - 1);
  // A damaged one: the same finding that replay gives, at its place.
  await unfiltered(page);
  await openFiles(page, [dendro().find((x) => x.name === 'crafted/bad-parquet-footer.stream').file]);
  await filter(page, 'kind == Segment');
  await page.click('#tab-segment');
  await page.waitForFunction(() => /⚠ 1 finding/.test(document.getElementById('pane-segment').textContent));
  assert.match(await page.textContent('#pane-segment .verdict'), /segment-footer/);
  await page.click('#pane-segment .verdict .link');
  await page.waitForSelector('#pane-tree:not([hidden])');
  await quiet(page);
});

test('two frames are compared, a payload is saved, a field copied', async () => {
  const page = await open();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await openFiles(page, [dendro().find((x) => x.name === 'real/small.stream').file]);
  await go(page, 18);
  await unit(page, 18);
  await page.focus('#frames');
  await page.keyboard.press('c');
  await page.keyboard.press('ArrowDown');
  await unit(page, 19);
  await page.click('#tab-compare');
  await page.waitForFunction(() => /2 of 5 fields differ/.test(document.getElementById('pane-compare').textContent));
  await page.click('#tab-tree');
  await page.locator('#tree .node', { hasText: 'offset_ns' }).click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-bytes')]);
  const saved = readFileSync(await download.path());
  assert.equal(saved.length, 8);
  await page.click('#copy-hex');
  await toast(page, /^Copied 16 characters$/);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), saved.toString('hex'));
  await page.click('#copy-json');
  await page.waitForFunction(async (v) => (await navigator.clipboard.readText()) === v, saved.readBigInt64LE().toString());
  await quiet(page);
});

test('the timeline shows what there is, and a span of it becomes a filter', async () => {
  const page = await open();
  await openFiles(page, [dendro().find((x) => x.name === 'real/small.stream').file]);
  const box = await page.locator('#timeline').boundingBox();
  const drag = async (a, b) => {
    await page.mouse.move(box.x + box.width * a, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * b, box.y + 20, { steps: 4 });
    await page.mouse.up();
  };
  const [, from, to] = /offset >= (\d+) and offset < (\d+)/.exec(await filtering(page, /^offset >= \d+ and offset < \d+$/, () => drag(0.05, 0.5)));
  assert.deepEqual((await listed(page)).map((r) => r.offset > Number(from) - 1 && r.offset < Number(to)).filter((x) => !x), []);
  assert.ok((await listed(page)).length >= 3);
  await page.click('#axis [value=time]');
  await filtering(page, /time >= \S+Z and time < \S+Z/, () => drag(0.2, 0.6));
  await unfiltered(page);
  await go(page, 0);
  await unit(page, 0);
  await page.focus('#timeline');
  await page.keyboard.press('End');
  assert.match(await page.getAttribute('#timeline', 'aria-valuetext'), /\brows?\b/);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => Number(document.body.dataset.unit) > 30);
  await filtering(page, 'kind == Segment', () => page.click('.chip:has-text("Segment")'));
  await quiet(page);
});

test('by the keyboard alone: from opening to comparing two frames, and Tab goes on everywhere', async () => {
  const page = await open();
  const chosen = page.waitForEvent('filechooser');
  // By then the chooser is waited for in the browser too.
  await page.reload();
  await page.waitForSelector('body[data-ready]');
  await page.keyboard.press('o');
  await (await chosen).setFiles(dendro().find((x) => x.name === 'real/live.stream').file);
  await indexed(page);
  const seen = [];
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    seen.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent));
    if (i && await page.evaluate(() => document.activeElement === document.body)) break;
  }
  for (const id of ['filter', 'goto', 'timeline', 'frames', 'tab-tree', 'tree', 'hex', 'tab-findings', 'side-toggle']) assert.equal(seen.filter((x) => x === id).length, 1, `${id}: ${seen}`);
  assert.equal(await page.inputValue('#filter'), '');
  // Keys pressed faster than frames open hold the one that is chosen.
  await page.keyboard.press('1');
  await page.evaluate(() => {
    const f = document.getElementById('frames');
    for (const k of ['Home', 'ArrowDown', 'ArrowDown', 'ArrowDown', 'c', 'ArrowDown']) f.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));
  });
  await unit(page, 4);
  await page.keyboard.press('2');
  await page.focus('#tab-tree');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => /\d+ of \d+ fields differ/.test(document.getElementById('pane-compare').textContent));
  assert.match(await page.textContent('#pane-compare thead'), /frame 3 Rows\s*frame 4 Rows/);
  // However fast frames go by, the last of them is compared in the end.
  for (let i = 0; i < 8; i++) {
    await page.evaluate(() => {
      const f = document.getElementById('frames');
      for (const k of ['End', 'ArrowUp', 'ArrowUp', 'Home', 'ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowDown']) f.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));
      document.getElementById('tab-compare').click();
    });
    await page.waitForTimeout(i * 7);
    await page.evaluate(() => document.getElementById('frames').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true })));
    await unit(page, 5);
    assert.match(await page.textContent('#pane-compare thead'), /frame 3 Rows\s*frame 5 Rows/, `after ${i * 7} ms`);
  }
  // Another tab's choices are kept beside this one's.
  const other = await page.context().newPage();
  await other.goto(`${server.base}/some/where/`);
  await other.waitForSelector('body[data-ready]');
  await page.keyboard.press('t');
  await stored(other, 'time', 'local');
  await other.bringToFront();
  await other.keyboard.press('b');
  await stored(page, 'side', false);
  await stored(page, 'time', 'local');
  await quiet(page);
});

test('everything is reached by the keyboard, and the keys are listed', async () => {
  const page = await open();
  await openFiles(page, [dendro().find((x) => x.name === 'crafted/gap.stream').file]);
  await page.focus('#frames');
  await page.keyboard.press('?');
  await page.waitForSelector('#help-dialog[open]');
  assert.ok(await page.locator('#keys kbd').count() > 12);
  await page.keyboard.press('Escape');
  const active = () => page.evaluate(() => document.activeElement.id);
  for (const [key, id] of [['1', 'frames'], ['2', 'tree'], ['3', 'hex'], ['4', 'findings'], ['/', 'filter'], ['Escape', 'filter'], ['Escape', ''], ['g', 'goto'], ['Escape', ''], ['f', 'search-text']]) {
    await page.keyboard.press(key);
    assert.equal(await active(), id, key);
  }
  await page.keyboard.press('Escape');
  await page.keyboard.press('n');
  await page.waitForSelector('#unit-findings button');
  await page.keyboard.press('b');
  assert.ok(!(await page.isVisible('#side')));
  await page.keyboard.press('b');
  await page.keyboard.press('t');
  await toast(page, /^Times: local$/);
  await page.focus('#split-list');
  const was = await page.getAttribute('#split-list', 'aria-valuenow');
  await page.keyboard.press('ArrowDown');
  assert.notEqual(await page.getAttribute('#split-list', 'aria-valuenow'), was);
  assert.equal(await page.getAttribute('#frames', 'aria-rowcount'), String(Number(await page.evaluate(() => document.body.dataset.rows)) + 1));
  await quiet(page);
});

for (const theme of ['light', 'dark']) {
  test(`axe finds nothing, ${theme}`, async () => {
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    const page = await openPage(browser, `${server.base}/some/where/`, { colorScheme: theme, bypassCSP: true });
    const check = async (what) => {
      await page.evaluate(axe);
      const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
      assert.deepEqual(violations.map((v) => `${what}: ${v.id} ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary}`).join(' | ')}`), []);
      assert.ok(passes.length > 10);
    };
    await check('welcome');
    await openFiles(page, [dendro().find((x) => x.name === 'telemetry/small.stream').file]);
    await filter(page, 'kind == Segment');
    await check('fields');
    await page.click('#tab-segment');
    await page.waitForSelector('.p-row');
    await page.click('#tab-sources');
    await page.click('#sources summary');
    await page.waitForSelector('.told .pair');
    await check('segment and sources');
    for (const s of await page.locator('#pane-segment summary').all()) await s.click();
    await check('all of a segment');
    await page.focus('#frames');
    await page.keyboard.press('c');
    await page.keyboard.press('ArrowDown');
    await rest(page);
    await page.click('#tab-compare');
    await page.waitForSelector('.compare');
    await page.click('#tab-search');
    await page.fill('#search-text', 'cpu');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#hits .hit');
    await page.waitForFunction(() => document.getElementById('search-cancel').hidden);
    await check('comparing and searching');
    await page.fill('#filter', 'kind == Ro');
    await page.waitForSelector('#completions .offer');
    await check('completing');
    await page.keyboard.press('Escape');
    await page.press('#filter', 'Enter');
    await page.waitForSelector('#filter-wrong:visible');
    await check('a wrong filter');
    // However long it is, what is wrong shows.
    await page.fill('#filter', `${'size > 1 or '.repeat(90)}size > x${' or size > 1'.repeat(90)}`);
    await page.keyboard.press('Escape');
    await page.press('#filter', 'Enter');
    await page.waitForFunction(() => /^…[^]*size > x[^]*…$/.test(document.querySelector('#filter-wrong code').textContent));
    assert.ok((await page.locator('#filter-wrong').boundingBox()).height < 150);
    await page.focus('#filter');
    await page.keyboard.press('Escape');
    assert.ok(await page.isHidden('#filter-wrong'));
    await page.click('#tab-tree');
    await page.setViewportSize({ width: 400, height: 800 });
    await check('a narrow window');
    await page.setViewportSize({ width: 1440, height: 900 });
    await unfiltered(page);
    await openFiles(page, [dendro().find((x) => x.name === 'crafted/gap.stream').file]);
    await page.click('#tab-findings');
    await page.keyboard.press('n');
    await page.waitForSelector('#unit-findings button');
    await check('findings');
    await page.click('#tab-search');
    const folder = generate('connections', ...['real/live', 'crafted/gap', 'real/small', 'telemetry/small'].map((n) => dendro().find((x) => x.name === `${n}.stream`).file), join(captures, `many-${theme}`));
    const files = readdirSync(folder).filter((f) => f !== 'lock').map((f) => ({ name: f, mimeType: '', buffer: readFileSync(join(folder, f)) }));
    // A torn byte, so that there is a note too.
    files.find((f) => f.name.endsWith('.cap')).buffer[5000] ^= 1;
    await openFiles(page, files);
    await page.click('#axis [value=arrival]');
    await page.click('#tab-connections');
    await rest(page);
    await check('connections');
    await page.click('#tab-findings');
    await page.waitForSelector('#notes .beside');
    await check('notes');
    await page.click('#settings-open');
    await check('settings');
    await page.keyboard.press('Escape');
    await page.click('#help-open');
    await check('keys');
    await page.keyboard.press('Escape');
    await page.click('#open-url');
    await check('a URL');
    await page.context().close();
  });
}

test('a narrow window and twice the size have everything too', async () => {
  const page = await open({ viewport: { width: 720, height: 450 }, deviceScaleFactor: 2 });
  await openFiles(page, [dendro().find((x) => x.name === 'crafted/gap.stream').file]);
  for (const id of ['filter', 'frames', 'tree', 'hex', 'findings', 'timeline']) {
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    const b = await page.locator(`#${id}`).boundingBox();
    assert.ok(b.width > 100 && b.height > 20 && b.x >= 0 && b.x + b.width <= 721, `${id} ${JSON.stringify(b)}`);
  }
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scrolling');
  await quiet(page);
});

test('the one file opens from disk and does the same', async () => {
  const f = dendro().find((x) => x.name === 'telemetry/small.stream');
  const page = await openPage(browser, pathToFileURL(single).href);
  await openFiles(page, [f.file]);
  assert.deepEqual((await listed(page)).filter((r) => r.type === 'frame').map((r) => [r.offset, r.name]), f.frames.map((w) => [w.offset, w.name]));
  await filter(page, 'kind == Segment');
  await page.click('#tab-segment');
  await page.waitForFunction(() => /✓ Proved/.test(document.getElementById('pane-segment').textContent));
  await page.waitForSelector('.p-row');
  await quiet(page);
});

test('the served page asks for its own files alone, then for nothing', async () => {
  const page = await open();
  const asked = [];
  page.on('request', (r) => asked.push(r.url()));
  await openFiles(page, [dendro().find((x) => x.name === 'telemetry/small.stream').file]);
  await filter(page, 'kind == Segment');
  await page.click('#tab-segment');
  await page.waitForSelector('.p-row');
  assert.deepEqual(asked.filter((u) => !u.startsWith(`${server.base}/some/where/`) && !u.startsWith('blob:')), []);
  const all = server.requests.filter((r) => r.path.startsWith('/some/where/')).map((r) => r.path.slice(12));
  for (const p of all) assert.ok(['', 'app.js', 'app.css', 'worker.js', 'read.js', 'wiretape.wasm', 'icon.svg'].includes(p), p);
  await quiet(page);
});

test('replay view opens a capture folder in the page', async () => {
  const dir = join(work, 'viewed');
  generate('folder', dendro().find((x) => x.name === 'telemetry/small.stream').file, dir);
  const replay = join(work, 'replay');
  execFileSync('go', ['build', '-o', replay, './cmd/replay'], { cwd: root, stdio: 'inherit' });
  const { url, stop } = await viewed(replay, dir);
  assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/[0-9a-f]{32}\/\?list=list\.json$/);
  const page = await openPage(browser, url);
  await indexed(page);
  const want = dendro().find((x) => x.name === 'telemetry/small.stream').frames;
  assert.deepEqual((await listed(page)).filter((r) => r.type === 'frame').map((r) => r.offset), want.map((w) => w.offset));
  assert.match(await page.textContent('#columns'), /Arrival/);
  await quiet(page);
  assert.equal(await stop(), 0);
});

test('nothing but the listed licences goes into the page', () => {
  const text = readFileSync(join(dist, 'licenses.txt'), 'utf8');
  for (const name of ['hyparquet', 'fzstd', 'Go runtime']) assert.match(text, new RegExp(name));
  rmSync(captures, { recursive: true, force: true });
  assert.ok(readFileSync(join(root, 'viewer', 'package-lock.json'), 'utf8').includes('"lockfileVersion": 3'));
});
