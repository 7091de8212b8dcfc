// The streams that the protocols' own packages keep as fixtures, as files that
// a page can open, with what is known of their frames.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { root } from './browser.mjs';

/** A folder for the run, removed at its end. */
export const work = mkdtempSync(join(process.env.VIEWER_TMP ?? tmpdir(), 'wiretape-viewer-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));

const jsonl = (text) => text.trim().split('\n').filter(Boolean).map((l) => JSON.parse(l));

/** dendro: [{name, file, frames: [{offset, size, name}]}] as the real crate decoded them. */
export function dendro() {
  const base = join(root, 'wire', 'dendro', 'testdata');
  const out = [];
  for (const dir of ['crafted', 'real', 'telemetry', 'reconnect']) {
    for (const f of readdirSync(join(base, dir)).filter((n) => n.endsWith('.stream')).sort()) {
      const truth = join(base, dir, f.replace(/\.stream$/, '.frames.jsonl'));
      const frames = existsSync(truth) ? jsonl(readFileSync(truth, 'utf8')).filter((l) => l.name).map((l) => ({ offset: l.offset, size: l.length + 4, name: l.name === 'unknown' ? `kind ${l.kind}` : l.name })) : [];
      out.push({ protocol: 'dendro', name: `${dir}/${f}`, file: join(base, dir, f), frames });
    }
  }
  return out;
}

/** melin, as the real decoders decoded it. */
export function melin() {
  const base = join(root, 'wire', 'melin', 'testdata');
  const dir = join(work, 'melin');
  mkdirSync(dir, { recursive: true });
  const out = [];
  for (const set of readdirSync(base)) {
    if (set === 'fuzz') continue;
    for (const f of readdirSync(join(base, set)).filter((n) => n.endsWith('.bin.gz')).sort()) {
      const file = join(dir, `${set}-${f.replace(/\.gz$/, '')}`);
      writeFileSync(file, gunzipSync(readFileSync(join(base, set, f))));
      const frames = jsonl(gunzipSync(readFileSync(join(base, set, f.replace('.bin.gz', '.truth.jsonl.gz')))).toString())
        .map((l) => ({ offset: l.offset, size: l.frame_len, name: l.name }));
      out.push({ protocol: 'melin', name: `${set}/${f}`, file, frames });
    }
  }
  return out;
}

/** AEWR: the vectors of each file one after the other, as one stream each. */
export function aewr() {
  const base = join(root, 'wire', 'aewr', 'testdata', 'vectors');
  const dir = join(work, 'aewr');
  mkdirSync(dir, { recursive: true });
  const out = [];
  for (const f of readdirSync(base).filter((n) => n.endsWith('.txt')).sort()) {
    const vectors = readFileSync(join(base, f), 'utf8').split(/^frame: /m).slice(1).map((s) => s.split('\n')[0]);
    const frames = [];
    const bytes = [];
    let offset = 0;
    for (const v of vectors) {
      const b = Buffer.concat(v.trim().split(' ').map((p) => {
        const m = /^(\d+)\*(.*)$/.exec(p);
        const one = Buffer.from(m ? m[2] : p, 'hex');
        return m ? Buffer.concat(Array(Number(m[1])).fill(one)) : one;
      }));
      bytes.push(b);
      frames.push({ offset, size: b.length });
      offset += b.length;
    }
    const file = join(dir, `${basename(f, '.txt')}.bin`);
    writeFileSync(file, Buffer.concat(bytes));
    // Headers that are no headers are vectors for themselves, not in a stream.
    out.push({ protocol: 'aewr', name: f, file, frames: f === 'header.txt' ? [] : frames });
  }
  return out;
}

let generator;
/** Runs the generator: generate('rows', 1000, file). */
export function generate(...args) {
  if (!generator) {
    generator = join(work, 'generate');
    execFileSync('go', ['build', '-o', generator, './viewer/test/generate'], { cwd: root, stdio: 'inherit' });
  }
  execFileSync(generator, args.map(String), { stdio: 'inherit' });
  return args[args.length - 1];
}
