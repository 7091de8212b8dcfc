// From files to connections: names and sidecars of a capture directory
// (docs/capture-format.md) say what belongs together; a file with another name
// is a connection of its own.

import { Arrivals } from './arrivals.js';
import { packContext, packMidStream } from './packed.js';
import { ZstPart, isZst } from './zst.js';

const NAME = /^(c\d{8}-[0-9a-f]{8})\.(\d{8})\.(cap|cap\.partial|cap\.zst|json|json\.partial|idx)$/;
/** The largest sidecar and arrival index that are read. */
const MAX_SIDECAR = 16 << 20;
const MAX_ARRIVALS = 256 << 20;
export const MAX_FILES = 100000;
const utf8 = new TextDecoder('utf-8', { fatal: false });

/**
 * Groups files into connections, without reading any of them.
 * @param {{path: string, part: object}[]} files
 */
export function group(files) {
  const capture = new Map();
  const plain = [];
  for (const f of files) {
    const slash = f.path.lastIndexOf('/');
    const m = NAME.exec(f.path.slice(slash + 1));
    if (!m) {
      plain.push(f);
      continue;
    }
    const key = f.path.slice(0, slash + 1) + m[1];
    let c = capture.get(key);
    if (!c) capture.set(key, c = { name: m[1], path: key, numbers: new Map() });
    const number = Number(m[2]);
    let n = c.numbers.get(number);
    if (!n) c.numbers.set(number, n = { number });
    n[m[3]] = f.part;
  }
  const out = [];
  for (const c of [...capture.values()].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    const list = [...c.numbers.values()].sort((a, b) => a.number - b.number);
    const withBytes = list.filter((n) => n.cap ?? n['cap.zst'] ?? n['cap.partial']);
    if (withBytes.length) out.push({ name: c.name, path: c.path, list: withBytes });
  }
  // Files of a capture that are no bytes, such as its journal, are no connections.
  const side = /(^|\/)(journal\.jsonl|lock|README[^/]*)$|\.(sha256|new|idx)$/;
  const among = capture.size > 0;
  for (const f of plain.sort((a, b) => (a.path < b.path ? -1 : 1))) {
    if (among && side.test(f.path)) continue;
    out.push({ name: f.path.slice(f.path.lastIndexOf('/') + 1), path: f.path, list: [{ number: 1, cap: f.part, foreign: true }] });
  }
  return out;
}

async function readSidecar(part, notes) {
  if (!part) return null;
  if (part.size > MAX_SIDECAR) {
    notes.push(`${part.name} is larger than a sidecar may be and is not used`);
    return null;
  }
  try {
    const s = JSON.parse(utf8.decode(await part.read(0, part.size)));
    if (s.format !== 'wiretape-sidecar') throw new Error('it is no sidecar');
    if (s.version !== 1) throw new Error(`it is of version ${s.version}`);
    return s;
  } catch (e) {
    notes.push(`${part.name} is not used: ${e.message}`);
    return null;
  }
}

/**
 * Reads what lies beside a connection's bytes and lays its files one after the
 * other. Everything that a sidecar says is checked against the files.
 */
export async function load(c) {
  const notes = [];
  const files = [];
  let at = 0;
  for (const n of c.list) {
    const side = (await readSidecar(n.json, notes)) ?? (await readSidecar(n['json.partial'], notes));
    let part = n.cap ?? n['cap.zst'] ?? n['cap.partial'];
    if (part.open) part = await part.open();
    if (part.size >= 4 && isZst(await part.read(0, 4))) part = await ZstPart.open(part);
    let start = Number.isSafeInteger(side?.start) && side.start >= 0 ? side.start : at;
    if (start < at) {
      notes.push(`${part.name} starts at ${start} by its sidecar, before the end of the file before it (${at}); it is put behind it`);
      start = at;
    }
    if (side && !side.open && Number.isSafeInteger(side.length) && side.length !== part.size) {
      notes.push(`${part.name} has ${part.size} bytes, its sidecar says ${side.length}`);
    }
    let arrivals = null;
    const idx = n.idx?.open ? await n.idx.open() : n.idx;
    if (idx && idx.size <= MAX_ARRIVALS) {
      arrivals = Arrivals.parse(await idx.read(0, idx.size));
      if (!arrivals) notes.push(`${idx.name} is no arrival index`);
      else if (arrivals.start !== start) {
        notes.push(`${idx.name} starts at ${arrivals.start}, its file at ${start}; arrival times are not used`);
        arrivals = null;
      }
    }
    files.push({ name: part.name, number: n.number, part, start, end: start + part.size, side, arrivals, partial: !n.cap && !n['cap.zst'] });
    at = start + part.size;
  }
  return { files, notes };
}

/**
 * The runs of a connection, packed for the decoder. A file in the middle of it
 * begins a run of its own only where bytes are missing before it.
 */
export async function runs(files, protocol) {
  const out = [];
  for (const f of files) {
    const last = out[out.length - 1];
    if (last && last.end === f.start) {
      last.end = f.end;
      last.files.push(f);
      continue;
    }
    let context = null;
    if (f.start > 0 || f.middle) {
      const c = f.side?.context;
      context = c && c.protocol === protocol ? packContext(c) : packMidStream(protocol);
    }
    out.push({ start: f.start, end: f.end, context: context ?? packContext(null), files: [f], zerosFrom: 0, fileStart: 0 });
  }
  for (const r of out) await findZeros(r);
  return out.filter((r, i) => r.end > r.start || i === 0);
}

/** Where a run's zeros start, when it ends in zeros. */
async function findZeros(run) {
  const f = run.files[run.files.length - 1];
  let end = f.part.size;
  while (end > 0) {
    const n = Math.min(end === f.part.size ? 512 : 1 << 20, end);
    const b = await f.part.read(end - n, n);
    let i = b.length;
    while (i > 0 && b[i - 1] === 0) i--;
    end -= b.length - i;
    if (i > 0 || b.length === 0) break;
  }
  if (end < f.part.size) {
    run.zerosFrom = Math.max(f.start + end, 1);
    run.fileStart = f.start;
  }
}

const KNOWN = [
  ['ffd8ff', 'a JPEG picture'],
  ['89504e47', 'a PNG picture'],
  ['47494638', 'a GIF picture'],
  ['25504446', 'a PDF document'],
  ['504b0304', 'a ZIP archive'],
  ['1f8b', 'a gzip file: unpack it first'],
  ['425a68', 'a bzip2 file: unpack it first'],
  ['fd377a585a00', 'an xz file: unpack it first'],
  ['d4c3b2a1', 'a pcap file: it holds packets, not the bytes of one connection'],
  ['a1b2c3d4', 'a pcap file: it holds packets, not the bytes of one connection'],
  ['4d3cb2a1', 'a pcap file: it holds packets, not the bytes of one connection'],
  ['0a0d0d0a', 'a pcapng file: it holds packets, not the bytes of one connection'],
  ['7f454c46', 'a program (ELF)'],
  ['50415231', 'a Parquet file'],
  ['53514c69746520666f726d6174203300', 'a SQLite database'],
  ['57544152524958', 'an arrival index without its capture file'],
  ['52554f4a', 'a melin journal file: the bytes on disk, not a connection'],
];

/** One line that says what bytes are that no protocol begins with. */
export function whatItIs(prefix, size) {
  if (size === 0) return 'an empty file';
  const hex = [...prefix.subarray(0, 16)].map((x) => x.toString(16).padStart(2, '0')).join('');
  for (const [magic, says] of KNOWN) if (hex.startsWith(magic)) return says;
  if (prefix.every((x) => x === 0)) return 'nothing but zeros at its start';
  const s = utf8.decode(prefix.subarray(0, 512));
  if (/^\s*[[{]/.test(s)) return 'JSON or the like';
  if (/^HTTP\/1\.[01] \d/.test(s)) return 'an HTTP response with its header: the body alone is the connection';
  if (!/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(s)) return 'text';
  return 'bytes that begin like no protocol known here';
}
