// Prints all that the WebAssembly decoder makes of files: the other side of
// lines/main.go, through the same functions that the page calls.

import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { dist } from './browser.mjs';
import { Decoder, FEED } from '../src/worker/decoder.js';
import { Packer, packContext } from '../src/worker/packed.js';

const utf8 = new TextDecoder();
let module;

/** The lines of files, as one string. */
export async function lines(files) {
  module ??= await WebAssembly.compile(readFileSync(join(dist, 'wiretape.wasm')));
  const d = await Decoder.start(module);
  const out = [];
  for (const f of files) {
    out.push(JSON.stringify(basename(f)));
    one(d, new Uint8Array(readFileSync(f)), out);
  }
  return `${out.join('\n')}\n`;
}

function drive(d, h, b, end = true) {
  for (let need = d.need(h); need >= 0; need = d.need(h)) {
    const pos = d.pos(h);
    d.give(b.subarray(pos, Math.max(pos + need, pos + FEED)));
    d.feed(h);
  }
  const bytes = d.outBytes(h);
  if (end) d.end(h);
  return bytes;
}

function one(d, b, out) {
  const found = d.detect(b.subarray(0, 4096), b.length <= 4096);
  if (!found.protocol) {
    out.push('unknown');
    return;
  }
  out.push(`${found.protocol} ${['unknown', 'downstream', 'upstream'][found.direction]}`);
  d.open(new Packer().string(found.protocol).uint(found.direction).uint(1).int(0).int(b.length).int(0).int(0).raw(packContext(null)).done());
  drive(d, d.firstPass(), b);
  const text = (n) => d.string(n);
  out.push(text(d.x.index_status()), text(d.x.index_findings(0, 5000)), text(d.x.index_sources()), text(d.x.index_bins()));
  const { wrong } = d.setFilter('finding or size > 100 and not kind == 3 and source');
  if (wrong) throw new Error(wrong.message);
  drive(d, d.filterPass(0), b);
  out.push(`[${d.hits(0, 1000).join(' ')}]`);
  const { rows } = d.status();
  for (let n = 0; n < rows; n++) {
    const h = d.unitPass(n);
    const line = utf8.decode(drive(d, h, b, false));
    const state = d.state(h);
    d.end(h);
    out.push(line);
    const [r] = JSON.parse(line);
    if (r.type !== 'frame' && r.type !== 'preamble') continue;
    d.unitInput(r.size).set(b.subarray(r.offset, r.offset + r.size));
    d.give(new Packer().string(found.protocol).uint(found.direction).raw(state)
      .uint(r.type === 'preamble' ? 1 : 2).int(r.offset).int(r.size).uint(r.kind ?? 0).done());
    out.push(text(d.x.detail_open()));
    const root = new Packer().list([]).done();
    out.push(d.fieldJSON(root));
    d.give(root);
    out.push(text(d.x.detail_children(0, 100)), text(d.x.segment_check()));
    for (const o of [r.offset, r.offset + Math.floor(r.size / 2), r.offset + r.size - 1]) out.push(`${o}[${d.locate(o).join(' ')}]`);
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) process.stdout.write(await lines(process.argv.slice(2)));
