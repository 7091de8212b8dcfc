// From files to connections: names and sidecars of a capture directory
// (docs/capture-format.md) say what belongs together; a file with another name
// is a connection of its own.
//
// What is wrong beside the bytes are notes: {kind, message} with the kinds that
// capture verify uses, offset, an offset in the connection, where there is one, and
// end, behind the last byte that is in doubt for it.

import { sha256 } from '@noble/hashes/sha2.js';
import { Arrivals } from './arrivals.js';
import { crc32c } from './crc32c.js';
import { packContext, packMidStream } from './packed.js';
import { MAX_SIDECAR, read } from './sidecar.js';
import { ZstPart, isZst } from './zst.js';
import { many } from '../format.js';
import { MAX_SIZE } from '../listing.js';
import { Ended, Slice } from './reader.js';

const NAME = /^(c(?!00000000)\d{8}-[0-9a-f]{8})\.((?!00000000)\d{8})\.(cap|cap\.partial|cap\.zst|json|json\.partial|idx)$/;
/** The endings of a file's bytes, in the order in which they are taken where several are there. */
const BYTES = ['cap', 'cap.zst', 'cap.partial'];
/** The largest arrival index that is read. */
const MAX_ARRIVALS = 256 << 20;
const utf8 = new TextDecoder('utf-8', { fatal: false });

/**
 * Groups files into connections, without reading any of them.
 * @param {{path: string, part: object}[]} files
 */
export function group(files) {
  const capture = new Map();
  const plain = [];
  const seen = new Map(); // paths, and how often each came
  for (let f of files) {
    const times = (seen.get(f.path) ?? 0) + 1;
    seen.set(f.path, times);
    // Files of folders that are called the same stay apart.
    if (times > 1) f = { ...f, path: f.path.replace(/[^/]*$/, (name) => `(${times})/${name}`) };
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
    const withBytes = list.filter((n) => BYTES.some((x) => n[x]));
    if (withBytes.length) out.push({ name: c.name, path: c.path, list: withBytes, withoutBytes: list.filter((n) => !withBytes.includes(n)) });
  }
  // Files of a capture that are no bytes, such as its journal, are no connections,
  // nor are copies that were set aside as damaged and what desktops leave behind.
  const side = /(^|\/)(journal\.jsonl|lock|destination\.id|list\.json|README[^/]*|Thumbs\.db|desktop\.ini|\.[^/]*)$|\.(sha256|new|idx|damaged)$/;
  const among = capture.size > 0;
  const journals = new Map(plain.filter((f) => /(^|\/)journal\.jsonl$/.test(f.path)).map((f) => [f.path.slice(0, f.path.lastIndexOf('/') + 1), f.part]));
  for (const c of out) c.journal = journals.get(c.path.slice(0, c.path.lastIndexOf('/') + 1)) ?? null;
  for (const f of plain.sort((a, b) => (a.path < b.path ? -1 : 1))) {
    if (among && side.test(f.path)) continue;
    out.push({ name: f.path.slice(f.path.lastIndexOf('/') + 1), path: f.path, list: [{ number: 1, cap: f.part, foreign: true }] });
  }
  return out;
}

/** Reads the sidecar of file number of a connection: null, with a note where it is there and can't be used. */
async function readSidecar(part, name, number, notes) {
  if (!part) return null;
  try {
    if (part.open) part = await part.open();
    if (part.size > MAX_SIDECAR) throw new Error('it is larger than a sidecar may be');
    const s = read(await part.read(0, part.size));
    if (s.connection !== name || s.file !== number) {
      notes.push({ kind: 'sidecar-stale', message: `${part.name} is not used: it is that of file ${s.file} of ${s.connection.slice(0, 60)}` });
      return null;
    }
    return s;
  } catch (e) {
    if (e instanceof Ended) throw e;
    notes.push({ kind: 'sidecar-invalid', message: `${part.name} is not used: ${e.message}` });
    return null;
  }
}

/**
 * The sidecar that fits a file by its name (capture/input.go, sidecar): of one
 * that is sealed the sealed one alone, of another the opening one where there is
 * no other yet.
 */
async function sidecarOf(c, n, sealed, notes) {
  const before = notes.length;
  let side = await readSidecar(n.json, c.name, n.number, notes);
  if (side?.open && sealed) {
    notes.push({ kind: 'sidecar-stale', message: `${n.json.name} is not used: it is from before the file was sealed` });
    return null;
  }
  if (!side && !sealed && notes.length === before) side = await readSidecar(n['json.partial'], c.name, n.number, notes);
  return side;
}

/** Whether the bytes of number n are of a sealed file. */
const isSealed = (n) => Boolean(n.cap ?? n['cap.zst']);

/** A connection's files whose bytes come to no more than this are held against their arrival indexes at once. */
const COMPARE_AT_ONCE = 32 << 20;
/** How many reads of a file are compared with its arrival index when not all are, and of how many files. */
const SAMPLES = 8;
const MAX_SAMPLE = 1 << 20;
const MAX_SAMPLED = 64;
/** The same of files behind URLs, where each read is a request. */
const REMOTE_SAMPLES = 1;
const MAX_REMOTE_SAMPLED = 4;
const PIECE = 1 << 20;
/** How many torn stretches of a file are told apart. */
const MAX_TORN = 100;

/** Bytes of a part, read in pieces, as checksums. */
class Sums {
  constructor(part, start, piece) {
    this.part = part;
    this.start = start;
    this.piece = piece;
    this.at = start;
    this.bytes = new Uint8Array(0);
  }

  async crc(offset, length) {
    let c = 0;
    while (length > 0) {
      if (offset < this.at || offset >= this.at + this.bytes.length) {
        this.bytes = await this.part.read(offset - this.start, Math.min(this.piece || length, this.start + this.part.size - offset));
        this.at = offset;
        if (!this.bytes.length) throw new Error(`${this.part.name} ends early`);
      }
      const b = this.bytes.subarray(offset - this.at, offset - this.at + length);
      c = crc32c(b, c);
      offset += b.length;
      length -= b.length;
    }
    return c;
  }
}

/**
 * Holds a file's bytes against its arrival index: each read, or a few of them.
 * Gives {arrivals, notes, whole, fits}: what of the index can be used, as far as
 * reads fit it, what does not fit, and whether all was compared.
 */
export async function compare({ part, start }, index, whole, progress = () => {}) {
  const sums = new Sums(part, start, whole ? PIECE : 0);
  const samples = part.local ? SAMPLES : REMOTE_SAMPLES;
  const end = start + part.size;
  const torn = []; // {from, to, found, expected} stretches that do not fit
  let fit = 0;
  let compared = 0;
  let open = null; // the torn stretch that the last read belongs to
  const settle = async (r) => {
    compared++;
    const c = await sums.crc(r.offset, r.length);
    if (c === r.crc) {
      fit++;
      open = null;
    } else if (open) {
      open.to = r.offset + r.length;
    } else {
      open = { from: r.offset, to: r.offset + r.length, found: c, expected: r.crc };
      if (torn.length <= MAX_TORN) torn.push(open);
      else torn[MAX_TORN] = open;
    }
  };
  const inside = (r) => r.offset + r.length <= end;
  for (let i = 0; i < index.marks.length; i++) {
    const list = [];
    if (whole) index.block(i, (r) => list.push(r));
    else if (i % Math.ceil(index.marks.length / samples) === 0 || i === index.marks.length - 1) {
      index.block(i, (r) => {
        // The first read of a block and, of the last block, the last.
        if (!list.length || i === index.marks.length - 1) list[list.length ? 1 : 0] = r;
      });
    }
    for (const r of list) if (inside(r) && (whole || r.length <= MAX_SAMPLE)) await settle(r);
    await progress(Math.min(end, index.marks[i + 1]?.offset ?? index.end));
  }
  const hex = (v) => `0x${v.toString(16).padStart(8, '0')}`;
  const cost = (t) => ({ offset: t.from, expected: `CRC-32C ${hex(t.expected)}`, found: hex(t.found) });
  let arrivals = index;
  const notes = torn.map((t) => ({
    kind: 'torn-bytes', ...cost(t), end: t.to,
    message: `${part.name}: bytes ${t.from} to ${t.to} do not fit their arrival index: they or the index are damaged`,
  }));
  if (compared && !fit) {
    arrivals = null;
    notes.splice(0, notes.length, {
      kind: 'arrival-index', ...cost(torn[0]),
      message: `${part.name}: its arrival index is of other bytes, or damaged; arrival times of this file are not used`,
    });
  } else if (whole && open) {
    // What follows the last read that fits has no witness.
    arrivals = index.upTo(open.from);
    notes[notes.length - 1].message += '; arrival times from there on are not used';
  }
  return { arrivals, notes, whole, fits: !torn.length };
}

/** The arrival index beside a file, checked against where its bytes lie; null with a note when there is none to use. */
async function readArrivals(n, start, notes) {
  if (!n.idx) return null;
  let idx = n.idx;
  const not = (why) => {
    notes.push({ kind: 'arrival-index', message: `${idx.name} ${why}; arrival times are not used` });
    return null;
  };
  let bytes;
  try {
    if (idx.open) idx = await idx.open();
    if (idx.size > MAX_ARRIVALS) return not(`has ${idx.size} bytes, more than are read`);
    if (idx.size === 0) return null;
    bytes = await idx.read(0, idx.size);
  } catch (e) {
    if (e instanceof Ended) throw e;
    return not(`is not read: ${e.message}`);
  }
  const a = Arrivals.parse(bytes);
  if (!a) return not('is no arrival index');
  if (a.start !== start) return not(`starts at ${a.start}, its file at ${start}`);
  return a.records ? a : null;
}

/**
 * The most bytes of a file that are read to prove it by its hash, where its length
 * or a second copy leaves doubt. What lies behind a URL is read less of.
 */
const MAX_PROOF = 256 << 20;
const MAX_REMOTE_PROOF = 8 << 20;
/** Compressed files up to this are inflated whole at once, so that damage is known. */
const INFLATE_AT_ONCE = 32 << 20;

/** The SHA-256 of a part's first bytes, null where they are more than are read for it. */
async function hashOf(part, length, alive) {
  if (length > (part.local ? MAX_PROOF : MAX_REMOTE_PROOF)) return null;
  const h = sha256.create();
  for (let at = 0; at < length;) {
    const b = await part.read(at, Math.min(PIECE, length - at));
    await alive();
    if (!b.length) return null;
    h.update(b);
    at += b.length;
  }
  return Array.from(h.digest(), (x) => x.toString(16).padStart(2, '0')).join('');
}

/**
 * Finds out a file's length and what its sidecar is worth (capture/input.go,
 * look). Its notes have offsets in the file.
 */
async function look(c, n, ext, alive) {
  const sealed = ext !== 'cap.partial';
  const notes = [];
  let side = n.foreign ? null : await sidecarOf(c, n, sealed, notes);
  let part = n[ext].open ? await n[ext].open() : n[ext];
  const f = { number: n.number, ext, name: part.name, sealed, notes, expected: side && !side.open ? side.length : -1 };
  if (ext === 'cap.zst' || (n.foreign && part.size >= 4 && isZst(await part.read(0, 4)))) {
    part = await ZstPart.open(part);
    if (part.local && part.size <= INFLATE_AT_ONCE) await part.prove(alive);
    if (n.foreign && !part.size && part.damages.length) throw new Error(part.damages[0].message);
    notes.push(...part.damages);
  }
  const size = part.size;
  if (f.expected >= 0 && size !== f.expected) {
    if (!sealed) {
      // It was being sealed, or its recorder died behind a seal that failed: its bytes count.
      f.expected = -1;
      side = { ...side, open: true };
    } else if (size > f.expected) {
      if ((await hashOf(part, f.expected, alive)) === side.sha256) {
        notes.push({ kind: 'surplus-bytes', offset: f.expected, expected: `${f.expected} bytes`, found: `${size} bytes`, message: `${part.name} has ${many(size - f.expected, 'byte')} behind those that its sidecar proves, which are not used` });
        part = new Slice(part, f.expected);
      } else {
        notes.push({ kind: 'sidecar-stale', offset: 0, expected: `${f.expected} bytes`, found: `${size} bytes`, message: `${part.name} has ${size} bytes, its sidecar says ${f.expected} and does not prove them: it is not used` });
        side = null;
        f.expected = size;
      }
    } else {
      notes.push({ kind: 'short-file', offset: size, expected: `${f.expected} bytes`, found: `${size} bytes`, cost: `${many(f.expected - size, 'byte')} missing`, message: `${part.name} has ${size} bytes, its sidecar says ${f.expected}` });
    }
  }
  return Object.assign(f, { part, side });
}

/**
 * Takes one of the files that have the same number, and says what the others are
 * (capture/input.go, choose): the one whose sidecar fits, then a sealed one, then
 * the longest.
 */
async function choose(list, notes, alive) {
  if (list.length === 1) return list[0];
  for (const f of list) {
    f.sum = await hashOf(f.part, f.part.size, alive);
    f.fits = f.sum !== null && f.side?.sha256 === f.sum;
  }
  const order = (f) => [f.fits ? 0 : 1, f.sealed ? 0 : 1, -f.part.size];
  const ranked = list.map((f) => [order(f), f]).sort(([a, f], [b, g]) => {
    const i = a.findIndex((v, k) => v !== b[k]);
    return i >= 0 ? a[i] - b[i] : f.sum !== g.sum && f.sum && g.sum ? (f.sum < g.sum ? -1 : 1) : BYTES.indexOf(f.ext) - BYTES.indexOf(g.ext);
  }).map(([, f]) => f);
  const [best, ...others] = ranked;
  for (const o of others) {
    if (o.sum !== null && o.sum === best.sum) continue;
    const both = `${best.name} and as ${o.name}`;
    if (o.sum === null || best.sum === null) {
      notes.push({ kind: 'conflicting-files', of: best, offset: 0, message: `file ${best.number} is here twice, as ${both}, and they can’t be compared here; ${best.name} is used` });
    } else if (o.part.size < best.part.size && (await hashOf(best.part, o.part.size, alive)) === o.sum) {
      notes.push({ kind: 'doubled-file', of: best, offset: 0, message: `file ${best.number} is here twice, as ${both}, which are the first ${many(o.part.size, 'byte')} of the other; ${best.name} is used` });
    } else {
      notes.push({
        kind: 'conflicting-files', of: best, offset: 0, expected: best.sum, found: o.sum, cost: `${many(o.part.size, 'byte')} not used`,
        message: `file ${best.number} is here with different bytes, as ${both}; ${best.fits ? 'the one that its sidecar proves is used' : `neither can be proved, ${best.name} is used`}`,
      });
    }
  }
  return best;
}

/**
 * Gives each file its offset (capture/input.go and place.go). Files that are
 * numbered from 1 without a hole lie where the sums of their lengths say; a
 * sidecar gives a place behind a hole only. apart: what is before a file is not
 * known to be all there, so that it begins a run of its own.
 */
function place(files, notes) {
  let [end, next, known, lacks] = [0, 1, true, 0];
  for (const f of files) {
    const hole = f.number !== next;
    f.start = end + lacks;
    f.apart = hole || lacks > 0;
    const s = f.side;
    const not = (kind, why) => {
      notes.push({ kind, of: f, offset: 0, expected: `${f.start}`, found: `${s.start}`, message: `${f.name} starts at ${s.start} by its sidecar, ${why}; it is not used` });
      f.side = null;
    };
    if (s && s.start > MAX_SIZE) not('sidecar-invalid', 'beyond all bytes');
    else if (!hole && lacks === 0 && s && known && s.start !== end) not('sidecar-stale', `the files before it end at ${end}`);
    else if (!hole && lacks > 0 && s && s.start !== f.start) f.side = null;
    else if (hole) {
      known = Boolean(s) && s.start >= end;
      if (known) f.start = s.start;
      else if (s) not('sidecar-stale', `before the end of the file before it (${end})`);
    }
    // Where the sum does not tell, the last place that is known is all there is.
    f.end = f.start + f.part.size;
    lacks = Math.max(0, f.expected - f.part.size);
    [end, next] = [f.end, f.number + 1];
  }
}

/**
 * Reads what lies beside a connection's bytes and lays its files one after the
 * other. Everything that a sidecar says is checked against the files. alive is
 * called now and then, and throws where nobody waits any more.
 */
export async function load(c, alive = () => {}) {
  const notes = [];
  const files = [];
  let unread = null;
  for (const n of c.list) {
    const all = [];
    for (const ext of BYTES) {
      if (!n[ext]) continue;
      try {
        all.push(await look(c, n, ext, alive));
      } catch (e) {
        // One file that can't be read is a finding, and the others are shown.
        if (e instanceof Ended || c.list.length === 1) throw e;
        unread = e;
        notes.push({ kind: 'unreadable-file', message: e.message });
      }
    }
    await alive();
    if (!all.length) continue;
    const f = await choose(all, notes, alive);
    // What two files have beside them is one thing.
    const seen = new Set();
    for (const x of all.flatMap((o) => o.notes)) {
      if (!seen.has(x.message)) notes.push({ ...x, of: x.offset === undefined ? undefined : f });
      seen.add(x.message);
    }
    files.push(f);
  }
  if (!files.length) throw unread;
  const bare = c.list[0].foreign ? [] : files.filter((f) => !f.side && f.expected < 0 && f.part.size > 0);
  if (bare.length) {
    notes.push({ kind: 'sidecar-missing', of: bare[0], offset: 0, message: `${bare.length} of ${many(files.length, 'file')} ${bare.length === 1 ? 'has' : 'have'} no sidecar that can be used: ${bare[0].name}${bare.length > 1 ? ' and others' : ''}`, cost: 'their arrival times, and their context if they are read alone' });
  }
  place(files, notes);
  for (const x of notes) {
    if (x.of) {
      x.offset += x.of.start;
      if (x.end !== undefined) x.end += x.of.start;
    }
    delete x.of;
  }
  for (const f of files) {
    const n = c.list.find((x) => x.number === f.number);
    f.arrivals = await readArrivals(n, f.start, notes);
    f.partial = !f.sealed;
    await alive();
  }
  await missing(c, files, notes);
  const indexed = files.filter((f) => f.arrivals);
  const local = indexed.every((f) => f.part.local);
  const small = local && indexed.reduce((n, f) => n + f.part.size, 0) <= COMPARE_AT_ONCE;
  for (const [i, f] of indexed.entries()) {
    const n = c.list.find((x) => x.number === f.number);
    if (!n.compared && (small || i < (local ? MAX_SAMPLED : MAX_REMOTE_SAMPLED))) n.compared = await compare(f, f.arrivals, small, alive);
    if (!n.compared) continue;
    f.index = f.arrivals;
    f.arrivals = n.compared.arrivals;
    f.compared = n.compared;
    notes.push(...n.compared.notes);
  }
  return { files, notes };
}

/** The largest journal that is read for what was deleted on purpose. */
const MAX_JOURNAL = 16 << 20;

/** The names of a connection's files that retention deleted, by the journal. */
async function deleted(c) {
  const out = new Set();
  try {
    let part = c.journal;
    if (part?.open) part = await part.open();
    if (!part || part.size > MAX_JOURNAL) return out;
    for (const line of utf8.decode(await part.read(0, part.size)).split('\n')) {
      if (!line.includes('"prune"') || !line.includes(c.name)) continue;
      try {
        const e = JSON.parse(line);
        if (e.event === 'prune' && NAME.exec(e.file)?.[1] === c.name) out.add(Number(NAME.exec(e.file)[2]));
      } catch {
        // A line that can't be read explains nothing.
      }
    }
  } catch {
    // As without a journal.
  }
  return out;
}

/**
 * Notes which files of a connection are not here: before the first, behind the
 * last, and between where no sidecar tells how many bytes they had; the decoder
 * tells of a gap that it knows the ends of.
 */
async function missing(c, files, notes) {
  if (c.list[0].foreign) return;
  let gone = null;
  const note = async (from, to, offset, end) => {
    gone ??= await deleted(c);
    let kept = false;
    for (let n = from; n < to && !kept; n++) kept = !gone.has(n);
    const what = to - from > 1 ? `files ${from} to ${to - 1} of ${c.name} are` : `file ${from} of ${c.name} is`;
    notes.push({
      kind: kept ? 'missing-files' : 'pruned-files', offset,
      message: `${what} not among the files: ${end > offset ? `bytes ${offset} to ${end}` : 'how many bytes is not known'}${kept ? '' : ' (deleted by retention)'}`,
    });
  };
  let [next, at] = [1, 0];
  for (const f of files) {
    if (f.number > next && (next === 1 || f.start === at)) await note(next, f.number, at, f.start);
    [next, at] = [f.number + 1, f.end];
  }
  const behind = Math.max(next - 1, ...(c.withoutBytes ?? []).map((n) => n.number));
  if (behind >= next) {
    const n = c.withoutBytes.find((x) => x.number === behind);
    const side = await readSidecar(n.json, c.name, behind, []);
    await note(next, behind + 1, at, side && !side.open ? Math.max(at, side.start + side.length) : at);
    return;
  }
  const last = files[files.length - 1];
  const s = last.side;
  if (s && !s.open && !s.transport && !s.recovered && ['size', 'time', 'request'].includes(s.closed)) {
    notes.push({ kind: 'no-end', offset: last.end, message: `${last.name} was closed for ${s.closed}; what came behind it is not among the files` });
  }
}

/** How many sidecars of a connection are read for what a list of connections shows. */
const MAX_DESCRIBED = 256;
/** How many places of findings are shown of a connection that isn't open, and the arrival indexes that are read for them. */
const MAX_MARKS = 64;
const MARK_INDEXES = 4;
const MAX_MARK_INDEX = 4 << 20;

/** Where the findings that sidecars tell lie: {offset, arrival}, arrival null where no index tells it. */
async function marks(c, sides) {
  const out = [];
  let read = 0;
  for (const [i, side] of sides.entries()) {
    if (!side?.findings.length || out.length >= MAX_MARKS) continue;
    let index = null;
    if (c.list[i].idx && read < MARK_INDEXES) {
      read++;
      try {
        const part = c.list[i].idx.open ? await c.list[i].idx.open() : c.list[i].idx;
        if (part.size > 0 && part.size <= MAX_MARK_INDEX) index = Arrivals.parse(await part.read(0, part.size));
      } catch {
        // As without one: it is told of when the connection is shown.
      }
    }
    for (const f of side.findings.slice(0, MAX_MARKS - out.length)) out.push({ offset: f.offset, arrival: index?.at(f.offset) ?? index?.at(f.offset - 1) ?? null });
  }
  return out;
}

/**
 * What a list of connections shows of one, from its sidecars alone: {protocol,
 * direction, endpoint, pair, bytes, start, first, last, frames, findings, marks,
 * closed, transport, unsealed}; what isn't known is null. detect tells the protocol of a
 * file without a sidecar from its first bytes.
 */
export async function describe(c, detect) {
  const few = c.list.length > MAX_DESCRIBED ? [c.list[0], c.list[c.list.length - 1]] : c.list;
  const sides = [];
  for (const n of few) sides.push(n.foreign ? null : await sidecarOf(c, n, isSealed(n), []));
  const head = sides.find(Boolean) ?? null;
  const tail = sides[sides.length - 1];
  const whole = few === c.list && sides.every((s) => s && !s.open);
  const sum = (f) => (whole ? sides.reduce((n, s) => n + f(s), 0) : null);
  const out = {
    protocol: head?.protocol || null, direction: head?.direction || null, endpoint: head?.endpoint || null, pair: head?.pair || null,
    start: c.list[0].number === 1 ? 0 : (sides[0]?.start ?? 0),
    first: sides.find((s) => s?.first)?.first ?? null, last: sides.findLast((s) => s?.last)?.last ?? null,
    frames: sum((s) => s.frames), findings: sum((s) => s.found),
    closed: tail?.closed || null, transport: tail?.transport?.verdict || null, unsealed: !tail || tail.open, bytes: 0,
    marks: few === c.list ? await marks(c, sides) : [],
  };
  for (const [i, n] of c.list.entries()) {
    const side = whole ? sides[i] : null;
    const part = n.cap ?? n['cap.zst'] ?? n['cap.partial'];
    out.bytes += side?.length ?? part.size;
  }
  if (out.protocol === null || out.protocol === 'auto') {
    const ext = BYTES.find((x) => c.list[0][x]);
    let part = c.list[0][ext];
    try {
      if (part.open) part = await part.open();
      if (ext === 'cap.zst' || (c.list[0].foreign && part.size >= 4 && isZst(await part.read(0, 4)))) {
        part = await ZstPart.open(part);
        if (c.list.length === 1) out.bytes = part.size;
      }
      const prefix = await part.read(0, Math.min(4096, part.size));
      const found = detect(prefix, prefix.length >= part.size);
      out.protocol = found.protocol ?? null;
      out.direction ??= ['', 'downstream', 'upstream'][found.direction ?? 0] || null;
      if (!found.protocol) out.what = whatItIs(prefix, part.size);
    } catch (e) {
      if (e instanceof Ended) throw e;
      out.what = e.message;
    }
  }
  return out;
}

/**
 * The runs of a connection, packed for the decoder. A file in the middle of it
 * begins a run of its own only where bytes are missing before it.
 */
export async function runs(files, protocol) {
  const out = [];
  for (const f of files) {
    const last = out[out.length - 1];
    if (last && last.end === f.start && !f.apart) {
      last.end = f.end;
      last.files.push(f);
      continue;
    }
    let context = null;
    if (f.start > 0 || f.middle || (f.apart && last)) {
      const c = f.side?.context;
      context = c && c.protocol === protocol ? packContext(c) : packMidStream(protocol);
    }
    out.push({ start: f.start, end: f.end, context: context ?? packContext(null), files: [f], zerosFrom: 0, fileStart: 0 });
  }
  for (const r of out) await findZeros(r);
  return out.filter((r, i) => r.end > r.start || i === 0);
}

/** Fewer zeros than a sector are no power loss (wire.SectorSize). */
const SECTOR = 512;

/**
 * Where a run's zeros start, when it ends in zeros that a power loss may have
 * left: those of a file that its sidecar proves are its own (capture/run.go,
 * zerosFrom).
 */
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
  const sealed = f.side && !f.side.open && !f.side.recovered && f.side.length === f.part.size;
  if (sealed && (f.part.size - end < SECTOR || (await hashOf(f.part, f.part.size, async () => {}) ?? f.side.sha256) === f.side.sha256)) return;
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
  ['53514c69746520666f726d6174203300', 'a SQLite database. An archive is made from captures, which are what is shown here; replay inspect shows an archive'],
  ['57544152524958', 'an arrival index without its capture file'],
  ['52554f4a', 'a melin journal file: the bytes on disk, not a connection'],
];

/** What is missing of a file of a capture that nothing beside it tells about, null where nothing is. */
export function missingBeside(name, side) {
  const m = NAME.exec(name.slice(name.lastIndexOf('/') + 1));
  if (!m || side || !m[3].startsWith('cap')) return null;
  return `${m[1]}.${m[2]}.json${m[3] === 'cap.partial' ? '.partial' : ''}`;
}

/** One line that says what bytes are that no protocol begins with. */
export function whatItIs(prefix, size) {
  if (size === 0) return 'an empty file';
  const hex = [...prefix.subarray(0, 16)].map((x) => x.toString(16).padStart(2, '0')).join('');
  for (const [magic, says] of KNOWN) if (hex.startsWith(magic)) return says;
  if (prefix.every((x) => x === 0)) return 'nothing but zeros at its start';
  // Of text that was cut the last character may be half there.
  const s = utf8.decode(prefix.subarray(0, 512)).replace(prefix.length > 512 || size > prefix.length ? /\ufffd$/ : /$^/, '');
  if (/^HTTP\/1\.[01] \d/.test(s)) return 'an HTTP response with its header: the body alone is the connection';
  if (!/[\u0000-\u0008\u000e-\u001f\u007f-\u009f\ufffd]/.test(s)) return /^\s*[[{]/.test(s) ? 'JSON or the like' : 'text';
  return 'bytes that begin like no protocol known here';
}
