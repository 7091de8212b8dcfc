// The worker owns the files and the decoder. The page asks by messages
// {id, generation, op, args} and gets {id, generation, result} or {…, error};
// what happens meanwhile comes as {event, …}. Every choice of a connection has
// a generation: what belongs to an earlier one is dropped on both sides.

import { Decoder, DecoderError, FEED } from './decoder.js';
import { BlobPart, ChangedError, Ended, endWith, readApart, Stream, UrlPart, Window } from './reader.js';
import { ready } from './zstd.js';
import { compare, describe, group, load, missingBeside, runs, whatItIs } from './captures.js';
import { Packer, packMidStream } from './packed.js';
import { MAX_FILES } from '../listing.js';
import { arrivalAxis, stretches } from './arrivals.js';
import { Pattern, patternBytes } from './search.js';

/** How often the page is told how far a pass is, in milliseconds. */
const TICK = 120;
/** A detail instance that has grown beyond this is replaced. */
const DETAIL_MEMORY = 24 << 20;
/** An index that has grown beyond this is not used again for what is opened next. */
const INDEX_MEMORY = 48 << 20;
/** How much a walk to a place reads at first. */
const SEEK = 128 << 10;
/** The largest frame that is opened. */
const MAX_UNIT = 64 << 20;
const MAX_SEARCH_HITS = 10000;
/** A value whose bytes are no more than this is shown whole (wasm/detail: MaxHex, MaxText). */
const SHOWN_WHOLE = 512;
/** How many fields of a frame are compared. */
const MAX_FLAT = 5000;
/** Columns of the timeline (wasm/index). */
const BINS = 512;
/** How many places are marked on the timeline beside what the decoder finds. */
const MAX_PLACES = 4000;

let module;
let decoder; // the index
const details = {}; // instances that hold one frame: open, compared
let connections = [];
let generation = 0;
let current; // the connection that is shown
let unit; // the frame that is open: {row, offset, size}
const running = new Map(); // what → token

class Cancelled extends Ended {}

/** Ends the requests of a generation. */
let ender = new AbortController();
/** Nothing is shown yet of what was asked for last. */
let opening = false;

/** What is shown changes: of the one before nothing is asked any more. */
function next() {
  ender.abort(new Cancelled());
  ender = new AbortController();
  endWith(ender.signal);
  current = unit = paused = undefined;
  opening = true;
  return ++generation;
}

/** What is asked belongs to the connection that is shown now. */
function task() {
  const of = generation;
  return { generation: of, wait: (p) => p, check() { if (of !== generation) throw new Cancelled(); } };
}

/** of is what the page knows the task by, where there may be several of its kind one after the other. */
function token(what, of) {
  running.get(what)?.cancel();
  let stop = () => {};
  const t = {
    generation,
    of,
    cancelled: false,
    cancel() {
      t.cancelled = true;
      stop(new Cancelled());
    },
    /** Waits for p, one at a time, until it is cancelled: p may never come. */
    wait(p) {
      return new Promise((resolve, reject) => {
        stop = reject;
        p.then(resolve, reject);
      });
    },
    check() { if (t.cancelled || t.generation !== generation) throw new Cancelled(); },
  };
  running.set(what, t);
  return t;
}

function tell(event, data) {
  postMessage({ event, generation, ...data });
}

/** Drives a pass of the decoder over the connection's bytes. */
async function drive(dec, pass, win, t, tick) {
  let last = performance.now();
  for (;;) {
    const need = dec.need(pass);
    if (need < 0) return;
    const pos = dec.pos(pass);
    if (need > 0 && !win.has(pos, need)) {
      await t.wait(win.ensure(pos, need));
      t.check();
    }
    const v = need > 0 ? win.view(pos, need, Math.max(need, FEED)) : NOTHING;
    dec.give(v);
    dec.feed(pass);
    if (tick) {
      const now = performance.now();
      if (now - last >= TICK) {
        last = now;
        tick();
        // Let messages in, such as the one that cancels.
        await breathe();
        t.check();
      }
    }
  }
}
// Several passes may wait at once: each is answered, in the order in which they asked.
const breath = new MessageChannel();
const breathing = [];
breath.port2.onmessage = () => breathing.shift()();
const NOTHING = new Uint8Array(0);
const breathe = () => new Promise((r) => {
  breathing.push(r);
  breath.port1.postMessage(0);
});

async function pass(dec, h, t, finish, tick) {
  try {
    if (tick) await answered(t);
    await drive(dec, h, new Window(current.stream, tick ? undefined : SEEK), t, tick);
    t.check();
    return finish(h);
  } finally {
    if (t.generation === generation) dec.end(h);
  }
}

/** What a pass tells comes behind the answer to who began it, however soon it ends. */
async function answered(t) {
  await breathe();
  t.check();
}

function memory() {
  return Object.values(details).reduce((n, d) => n + d.memory, decoder?.memory ?? 0);
}

const ops = {
  async start({ wasm, reader }) {
    readApart(reader);
    module = wasm instanceof WebAssembly.Module ? wasm : await compile(wasm);
    decoder = await Decoder.start(module);
    await ready;
    return { protocols: decoder.protocols() };
  },

  /** Opens files: [{path, file}] or [{path, url}]. */
  async open({ files }) {
    const of = next();
    if (decoder.memory > INDEX_MEMORY) decoder = await Decoder.start(module);
    if (files.length > MAX_FILES) throw new Error(`${files.length} files are more than can be opened at once`);
    const list = await Promise.all(files.map(async (f) => ({
      path: f.path,
      part: f.file ? new BlobPart(f.file, f.path) : files.length > 1 ? lazy(f) : await UrlPart.open(f.url, f.path),
    })));
    // Files behind URLs answer in any order: what was opened last stays.
    if (of !== generation) throw new Cancelled();
    connections = group(list);
    return {
      generation,
      connections: connections.map((c, id) => ({ id, name: c.name, path: c.path, files: c.list.length, foreign: Boolean(c.list[0].foreign) })),
    };
  },

  /** What a list shows of the connections with numbers from, from + 1, …; from sidecars and first bytes alone. */
  async describe({ from, count }) {
    const out = [];
    for (const c of connections.slice(from, from + count)) out.push(c.about ??= await describe(c, (b, end) => decoder.detect(b, end)));
    return out;
  },

  /** Shows one of the open connections. protocol overrides what is detected. */
  async select({ id, protocol }) {
    next();
    const { signal } = ender;
    const t = token('select');
    const c = connections[id];
    const { files, notes } = await load(c, () => {
      t.check();
      signal.throwIfAborted();
    });
    t.check();
    const stream = new Stream(files.map((f) => ({ start: f.start, end: f.end, part: f.part })));
    const prefix = await stream.read(stream.start, 4096);
    t.check();
    const info = {
      generation, id, name: c.name, start: stream.start, end: stream.end, notes,
      files: files.map((f) => ({
        name: f.name, number: f.number, start: f.start, end: f.end, partial: f.partial,
        arrivals: f.arrivals ? { first: f.arrivals.first, last: f.arrivals.last, records: f.arrivals.records } : null,
        compared: f.compared ? { whole: f.compared.whole, fits: f.compared.fits } : null,
        side: f.side && {
          endpoint: f.side.endpoint, pair: f.side.pair, closed: f.side.closed, closedDetail: f.side.closedDetail, sha256: f.side.sha256,
          transport: f.side.transport, findings: f.side.findings, found: f.side.found, omitted: f.side.omitted,
        },
      })),
    };
    let direction = 0;
    const known = decoder.protocols();
    const said = files.find((f) => known.includes(f.side?.protocol))?.side;
    const found = decoder.detect(prefix, stream.end - stream.start <= prefix.length);
    if (protocol) {
      files[0].middle = found.protocol !== protocol;
    } else if (stream.start === 0 && found.protocol) {
      ({ protocol, direction } = found);
    } else if (said) {
      protocol = said.protocol;
      files[0].middle = stream.start === 0;
    } else if (found.protocol) {
      ({ protocol, direction } = found);
    }
    const named = files.find((f) => f.side && !['raw', 'auto'].includes(f.side.protocol));
    if (named && stream.start === 0 && found.protocol && named.side.protocol !== found.protocol) {
      notes.push({ kind: 'protocol-mismatch', offset: 0, expected: named.side.protocol, found: found.protocol, message: `the sidecar of ${named.name} says ${named.side.protocol}, the bytes are ${found.protocol}` });
    }
    direction ||= { downstream: 1, upstream: 2 }[said?.direction] ?? 0;
    info.protocol = protocol ?? null;
    info.direction = ['', 'downstream', 'upstream'][direction];
    if (!protocol) {
      info.what = whatItIs(prefix, stream.end - stream.start);
      const refused = notes.find((n) => ['sidecar-stale', 'sidecar-invalid'].includes(n.kind));
      const beside = !refused && missingBeside(files[0].name, files[0].side);
      if (refused) info.what += `. ${refused.message}`;
      else if (beside && stream.end > stream.start) info.what += `. It has the name of a capture’s file: open ${beside}, which lies beside it and tells what it is, together with it`;
    }
    current = { info, files, stream, list: c.list };
    for (const f of files) {
      if (!f.part.damages) continue;
      f.part.tell = (n) => {
        if (t.generation !== generation) return;
        const note = { ...n, offset: f.start + n.offset };
        if (n.end !== undefined) note.end = f.start + n.end;
        notes.push(note);
        tell('noted', { note });
      };
    }
    if (!protocol) {
      opening = false;
      return info;
    }
    const list = await runs(files, protocol);
    t.check();
    info.runs = list.length;
    current.protocol = protocol;
    current.direction = direction;
    const config = (some) => {
      const p = new Packer().string(protocol).uint(direction).uint(some.length);
      for (const r of some) p.int(r.start).int(r.end).int(r.zerosFrom).int(r.fileStart).raw(r.context);
      return p.done();
    };
    for (const r of list) {
      if (!r.files[0].side?.context) continue;
      try {
        decoder.open(config([r]));
        decoder.end(decoder.firstPass());
      } catch (e) {
        // A context that the decoder can't start from is as none.
        r.context = packMidStream(protocol);
        notes.push({ kind: 'sidecar-invalid', offset: r.start, message: `the context beside ${r.files[0].name} is not used: ${e.message}` });
      }
    }
    decoder.open(config(list));
    info.words = decoder.filterWords();
    current.decoded = true;
    axes(info, files);
    if (!files.some((f) => f.arrivals)) info.words.fields = info.words.fields.filter((f) => f.name !== 'arrival');
    index(token('index'));
    opening = false;
    return info;
  },

  async rows({ from, count, filtered }) {
    const t = task();
    const numbers = filtered ? decoder.hits(from, count) : [];
    if (!filtered) for (let i = from; i < from + count; i++) numbers.push(i);
    if (!numbers.length) return [];
    const h = decoder.rowsPass(new Packer().list(numbers).done());
    const list = await pass(decoder, h, t, () => decoder.outJSON(h));
    for (const r of list) {
      const a = arrival(r.offset);
      if (a !== null) r.arrival = a;
    }
    return list;
  },

  /** Where a row is in the filtered list, or would be: taken says whether it is. */
  async rank({ row }) {
    const at = decoder.hitRank(row);
    return { at, taken: decoder.hits(at, 1)[0] === row };
  },

  /** The row of a frame, by its number from 1; null where there are not so many. */
  async frame({ number }) {
    const t = token('find');
    const h = decoder.framePass(number);
    return pass(decoder, h, t, () => decoder.outJSON(h));
  },

  /** The row that holds an offset. */
  async find({ offset }) {
    const t = token('find');
    const h = decoder.findPass(offset);
    return pass(decoder, h, t, () => decoder.outJSON(h));
  },

  /** The first row that came at a time or after it, by the arrival index. */
  async findArrival({ time }) {
    for (const f of current.files) {
      const offset = f.arrivals?.offsetAt(time) ?? null;
      if (offset !== null) return ops.find({ offset });
    }
    return null;
  },

  /** Holds all bytes against the arrival indexes; says whether something that was not known came out. */
  async compareArrivals() {
    const t = token('compare');
    const { files, list } = current;
    const todo = files.filter((f) => f.index);
    const total = todo.reduce((n, f) => n + f.end - f.start, 0);
    let done = 0;
    let wrong = false;
    let last = performance.now();
    for (const f of todo) {
      const c = await compare(f, f.index, true, async (at) => {
        if (performance.now() - last < TICK) return;
        last = performance.now();
        tell('compared', { at: done + at - f.start, total });
        await breathe();
        t.check();
      });
      t.check();
      wrong ||= JSON.stringify(c.notes) !== JSON.stringify(f.compared?.notes ?? []);
      list.find((n) => n.number === f.number).compared = c;
      done += f.end - f.start;
    }
    return { wrong };
  },

  /** Opens one frame, with its first bytes and fields, as many as are asked for. */
  async unit({ row, bytes, children }) {
    const t = token('unit');
    unit = undefined;
    const [u, all] = await openUnit(row, t, 'open');
    unit = u;
    return all ? { ...u, bytes: all.slice(0, bytes), children: u.fields ? await ops.children({ path: [], from: 0, count: children }) : [] } : u;
  },

  /** The index pass that did not come to its end goes on. */
  async goOn() {
    if (paused) index(token('index'), paused);
  },

  async children({ path, from, count }) {
    if (!unit?.fields) return []; // what is decoded is of another row
    return details.open.children(new Packer().list(path).done(), from, count);
  },

  async locate({ offset }) {
    return unit?.fields ? details.open.locate(offset) : [];
  },

  async json({ path }) {
    if (!unit?.fields) return '';
    return details.open.fieldJSON(new Packer().list(path).done());
  },

  /** What replay's checks find in the Segment that is open; null for another frame. */
  async checkSegment() {
    return unit?.fields ? details.open.checkSegment() : null;
  },

  async bytes({ offset, count }) {
    return current.stream.read(offset, count);
  },

  /** The fields of a frame as lines, for comparing. The open frame stays. They are made one after the other. */
  flat({ row }) {
    const t = task();
    const mine = flats.then(() => {
      t.check();
      return flat(row, t);
    });
    flats = mine.catch(() => {});
    return mine;
  },

  async findings({ from, count }) { return decoder.findings(from, count); },
  async sources() { return decoder.sources(); },
  async bins() { return decoder.bins(); },
  async status() { return { ...decoder.status(), memory: memory(), read: current?.stream.bytesRead }; },
  async memory() { return { index: decoder.memory, all: memory() }; },

  /** The number of the next row with a finding, of those that the filter takes with filtered; null when there is none. */
  async findingRow({ from, back, filtered }) {
    const row = decoder.findingRow(from, back, filtered);
    return row < 0 ? null : row;
  },

  /** The name of a stream of the sources, as a filter takes it. */
  async streamName({ number }) { return decoder.streamName(number); },

  /** The conditions that a filter joins by ands, or what is wrong with it: {parts} or {wrong}. */
  async parts({ expression }) { return tooLong(expression) ?? decoder.setFilter(expression, true); },

  /** Sets the filter and starts looking: {parts}, or what is wrong with it in {wrong}. */
  async filter({ expression }) {
    const set = setFilter(expression);
    if (set.wrong) return set;
    const t = token('filter', expression);
    const h = decoder.filterPass(0);
    const progress = (done) => tell('hits', { expression, hits: decoder.hitCount(), at: done ? current.stream.end : decoder.pos(h), done });
    pass(decoder, h, t, () => progress(true), () => progress(false)).catch((e) => report('filter', e, t));
    return { parts: set.parts };
  },

  /** The number of the first row that an expression takes, null when none does. What the filter found stays. */
  async first({ expression }) {
    const { wrong } = setFilter(expression);
    if (wrong) throw new Error(wrong.message);
    const t = token('first');
    const h = decoder.filterPass(1);
    return pass(decoder, h, t, () => { const out = decoder.outBytes(h); return out.length ? Number(new TextDecoder().decode(out)) : null; });
  },

  /** Looks for bytes in everything. */
  async search({ of, text, hex, ignoreCase }) {
    const bytes = patternBytes(text, hex);
    if (!bytes) return 'expected pairs of hex digits';
    if (!bytes.length) return 'there is nothing to search for';
    if (bytes.length > 1024) return 'at most 1,024 bytes can be searched for';
    const t = token('search', of);
    search(new Pattern(bytes, ignoreCase && !hex), t).catch((e) => report('search', e, t));
    return null;
  },

  async cancel({ what }) {
    if (what === 'open' && opening) ender.abort(new Ended('Opening was stopped.'));
    else running.get(what)?.cancel();
  },

  /** How fast the files can be read alone: bytes and milliseconds. */
  async readSpeed() {
    const t = token('index');
    const s = current.stream;
    const began = performance.now();
    const win = new Window(s);
    let at = s.start;
    while (at < s.end) {
      await win.ensure(at, 1);
      t.check();
      at = win.end;
    }
    return { bytes: at - s.start, ms: performance.now() - began };
  },
};

/** The end of what flat is asked for. */
let flats = Promise.resolve();

async function flat(row, t) {
  const [u] = await openUnit(row, t, 'compared');
  const lines = [];
  const walk = (path, name) => {
    const names = new Map(); // names of children, and how often each came
    for (let from = 0; lines.length < MAX_FLAT;) {
      const list = details.compared.children(new Packer().list(path).done(), from, 200);
      if (!list.length) return;
      list.forEach((f, i) => {
        if (lines.length >= MAX_FLAT) return;
        const times = (names.get(f.name) ?? 0) + 1;
        names.set(f.name, times);
        const key = name + (f.name ? `${name ? '.' : ''}${f.name}${times > 1 ? ` (${times})` : ''}` : `[${from + i}]`);
        lines.push({ key, type: f.type, value: f.value, note: f.note, count: f.count, bytes: f.bytes, offset: f.offset, length: f.length });
        if (f.count) walk([...path, from + i], key);
      });
      from += list.length;
    }
  };
  if (u.fields) walk([], '');
  for (const l of lines) {
    // Bytes are compared by their hash, and what is too long to be shown whole.
    if (l.type === 'blob') l.value = await hash(l);
    else if (!l.count && l.length > SHOWN_WHOLE && typeof l.value === 'string') l.value += ` · ${await hash(l)}`;
    t.check();
  }
  delete details.compared;
  return { unit: u, lines, cut: lines.length >= MAX_FLAT };
}

function lazy(f) {
  return { name: f.path, size: f.size ?? 0, open: () => UrlPart.open(f.url, f.path), read: async (a, n) => (await UrlPart.open(f.url, f.path)).read(a, n) };
}

async function compile(source) {
  if (typeof source === 'string') return WebAssembly.compileStreaming(fetch(source));
  return WebAssembly.compile(source);
}

/** The index pass that was stopped or lost its server: {handle, ms}. It can go on. */
let paused;

async function index(t, { handle, ms } = { handle: decoder.firstPass(), ms: 0 }) {
  paused = undefined;
  const began = performance.now() - ms;
  const state = (more) => tell('index', {
    status: decoder.status(), bins: decoder.bins(), told: [], done: false, memory: memory(), ms: performance.now() - began, read: current.stream.bytesRead, ...more,
  });
  try {
    await answered(t);
    await drive(decoder, handle, new Window(current.stream), t, () => state());
    t.check();
    state({ done: true, told: told() });
    decoder.end(handle);
  } catch (e) {
    if (t.generation !== generation) return;
    if (!(e instanceof ChangedError || e instanceof DecoderError)) paused = { handle, ms: performance.now() - began };
    if (e instanceof Cancelled) state({ done: true, told: told(), cancelled: true });
    else report('index', e, t);
  }
}

/** How many findings of sidecars are told. */
const MAX_TOLD = 5000;

const place = (kind, offset) => `${kind}@${offset}`;

/**
 * What the sidecars tell of the bytes that were gone through, and neither the
 * decoder nor a look beside the bytes has found: one thing is listed once. Behind
 * the last finding that the decoder keeps nothing can be told apart.
 */
function told() {
  const { info, files } = current;
  const status = decoder.status();
  const known = new Set(info.notes.map((n) => place(n.kind, n.offset)));
  let last = 0;
  for (let from = 0; from < status.keptFindings; from += 1000) {
    for (const { finding: f } of decoder.findings(from, 1000)) {
      known.add(place(f.kind, f.offset));
      if (f.at !== undefined) known.add(place(f.kind, f.at));
      last = Math.max(last, f.offset);
    }
  }
  const end = status.findings > status.keptFindings ? last : status.end;
  const out = [];
  for (const file of files) {
    for (const f of file.side?.findings ?? []) {
      if (f.offset > end || known.has(place(f.kind, f.offset)) || (f.at !== undefined && known.has(place(f.kind, f.at)))) continue;
      known.add(place(f.kind, f.offset));
      if (out.length < MAX_TOLD) out.push({ ...f, file: file.name });
    }
  }
  return out;
}

/**
 * The arrival axis and the places that the timeline marks: where files start and
 * what was noted beside the bytes. Each has an offset, and when its byte came;
 * its place in the data's time comes with the bins, in the same order.
 */
function axes(info, files) {
  const axis = arrivalAxis(files, BINS);
  info.arrival = axis && { from: axis.from, to: axis.to, step: axis.step };
  const places = files.map((f) => ({ what: 'file', offset: f.start, text: f.name }));
  for (const n of info.notes) if (n.offset !== undefined) places.push({ what: 'note', offset: n.offset, text: `${n.kind}: ${n.message}` });
  for (const f of files) for (const x of f.side?.findings ?? []) places.push({ what: 'told', kind: x.kind, offset: x.offset, text: `${x.kind}: ${x.message}` });
  places.splice(MAX_PLACES);
  places.sort((a, b) => a.offset - b.offset);
  for (const p of places) p.arrival = arrival(p.offset) ?? arrival(p.offset - 1);
  info.places = places;
  const config = new Packer().uint(places.length);
  for (const p of places) config.int(Math.max(0, p.offset));
  const steps = axis?.steps ?? [];
  config.uint(steps.length);
  for (const [offset, bin] of steps) config.int(offset).uint(bin + 1);
  decoder.axes(config.done());
}

/** A filter so long that the decoder isn't asked: {wrong}, else null. */
function tooLong(expression) {
  const { longest } = current.info.words;
  return expression.length > longest ? { wrong: { from: 0, to: expression.length, message: `the filter has ${expression.length} characters, of which it may have ${longest}` } } : null;
}

/** Sets a filter: {wrong}, or {parts}. The page knows when bytes came, the decoder which rows they are of. */
function setFilter(expression) {
  const set = tooLong(expression) ?? decoder.setFilter(expression);
  if (set.wrong || !set.arrivals.length) return set;
  const { files } = current;
  if (!files.some((f) => f.arrivals)) {
    const { from } = set.arrivals[0];
    return { wrong: { from, to: from + 'arrival'.length, message: 'there is no arrival index beside these bytes' } };
  }
  const lists = new Packer().uint(set.arrivals.length);
  for (const a of set.arrivals) {
    const list = stretches(files, a, set.arrivals.length);
    lists.uint(list.length);
    for (const [from, to] of list) lists.int(from).int(to);
  }
  decoder.filterArrivals(lists.done());
  return set;
}

/** Tells how a task ended, but of one of what is no longer shown. */
function report(what, e, t) {
  if (t.generation !== generation) return;
  if (e instanceof Cancelled) {
    tell('cancelled', { what, of: t.of });
    return;
  }
  tell('failed', { what, of: t.of, message: e.message, changed: e instanceof ChangedError, paused: what === 'index' && Boolean(paused) });
}

function arrival(offset) {
  const { files } = current;
  let lo = 0;
  let hi = files.length - 1;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (files[mid].start <= offset) lo = mid;
    else hi = mid - 1;
  }
  return files[lo].arrivals?.at(offset) ?? null;
}

/** Decodes a row's frame whole, under the state that holds before it; gives its bytes too, where it is a frame. */
async function openUnit(row, t, which) {
  const h = decoder.unitPass(row);
  const [r, state] = await pass(decoder, h, t, () => [decoder.outJSON(h)[0], decoder.state(h)]);
  if (!r) throw new Error(`there is no row ${row}`);
  const u = { ...r };
  const a = arrival(r.offset);
  if (a !== null) u.arrival = a;
  if (r.type !== 'frame' && r.type !== 'preamble') return [{ ...u, envelope: 0, fields: 0, findings: [] }];
  if (r.size > MAX_UNIT + 4096) throw new Error(`a frame of ${r.size} bytes is not opened`);
  const bytes = await current.stream.read(r.offset, r.size);
  t.check();
  let detail = details[which];
  if (!detail || detail.exited || detail.memory > DETAIL_MEMORY) {
    delete details[which];
    detail = await Decoder.start(module);
    t.check();
    details[which] = detail;
  }
  detail.unitInput(bytes.length).set(bytes);
  const config = new Packer().string(current.protocol).uint(current.direction).raw(state)
    .uint(r.type === 'preamble' ? 1 : 2).int(r.offset).int(r.size).uint(r.kind ?? 0);
  return [{ ...u, ...detail.openDetail(config.done()) }, bytes];
}

async function hash(l) {
  const b = await current.stream.read(l.offset, l.length);
  // FNV-1a over 64 bits would need BigInt; two 32-bit sums tell bytes apart for the eye.
  let x = 0x811c9dc5;
  let y = 0x1000193;
  for (const c of b) {
    x = Math.imul(x ^ c, 0x01000193);
    y = Math.imul(y ^ c, 0x85ebca6b) ^ (y >>> 13);
  }
  return `${(x >>> 0).toString(16).padStart(8, '0')}${(y >>> 0).toString(16).padStart(8, '0')}`;
}

async function search(pattern, t) {
  await answered(t);
  const s = current.stream;
  const n = pattern.bytes.length;
  const win = new Window(s);
  let hits = [];
  let total = 0;
  let last = performance.now();
  for (let at = s.start; at < s.end && total < MAX_SEARCH_HITS;) {
    const p = s.partAt(at);
    if (at < p.start || at >= p.end) {
      // Over bytes that are in no file, or the end.
      const behind = s.parts.find((x) => x.start >= at && x.end > x.start);
      if (!behind) break;
      at = behind.start;
      continue;
    }
    // A match may lie over the edge of two files, and of two windows.
    const end = s.endOf(at);
    if (end - at < n) {
      at = end;
      continue;
    }
    await t.wait(win.ensure(at, n));
    t.check();
    const b = win.view(at, n, end - at);
    pattern.scan(b, (i) => {
      total++;
      hits.push(at + i);
      return total < MAX_SEARCH_HITS;
    });
    const now = performance.now();
    if (now - last > TICK || total >= MAX_SEARCH_HITS) {
      tell('found', { of: t.of, hits, total, at, length: n });
      hits = [];
      last = now;
      await breathe();
      t.check();
    }
    at += b.length - n + 1;
  }
  tell('found', { of: t.of, hits, total, at: s.end, done: true, length: n, more: total >= MAX_SEARCH_HITS });
}

/** What can be asked while no connection's bytes are decoded. */
const ANYTIME = ['start', 'open', 'describe', 'select', 'cancel'];

async function hear({ data }) {
  const { id, op, args } = data;
  const stale = data.generation !== undefined && data.generation !== generation;
  try {
    if (stale || (!current?.decoded && !ANYTIME.includes(op))) throw new Cancelled();
    const result = await ops[op](args ?? {});
    postMessage({ id, generation, result });
  } catch (e) {
    postMessage({ id, generation, error: { message: e.message || String(e), cancelled: e instanceof Cancelled, changed: e instanceof ChangedError } });
  }
}

/** Answers the page from now on. */
export function serve() {
  onmessage = hear;
}
