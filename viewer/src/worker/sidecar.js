// Sidecars, as capture/sidecar (Parse) reads them: what is a sidecar there is one
// here, and nothing else is. capture/sidecar/testdata/rules.jsonl is held against
// both readers.

import { many } from '../format.js';

/** The largest sidecar that is read. */
export const MAX_SIDECAR = 16 << 20;
/** How deep lists and objects may lie in each other, as in Go. */
const MAX_DEPTH = 10000;
/** The most findings of a sidecar that are taken, and characters of a text. */
const MAX_TOLD = 1000;
const MAX_TEXT = 4096;

const utf8 = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

/** A number as it is written: its digits say whether it is whole, and which. */
class Digits {
  constructor(text) {
    this.text = text;
  }
}

/** The end of the string that begins at a quote. */
function stringEnd(text, from) {
  for (let i = text.indexOf('"', from + 1); ; i = text.indexOf('"', i + 1)) {
    let escapes = 0;
    while (text[i - 1 - escapes] === '\\') escapes++;
    if (escapes % 2 === 0) return i + 1;
  }
}

/** The values of a JSON text: objects as Map, numbers as Digits. No name may come twice in an object. */
function values(text) {
  if (text[0] === '\ufeff') throw new Error('it begins with a byte order mark');
  JSON.parse(text); // from here on it is JSON
  const open = [];
  const number = /-?[\d.eE+-]+/y;
  let root = null;
  let name = null;
  let named = false;
  const put = (v) => {
    const o = open[open.length - 1];
    if (!o) root = v;
    else if (Array.isArray(o)) o.push(v);
    else o.set(name, v);
    return v;
  };
  const enter = (v) => {
    open.push(put(v));
    if (open.length > MAX_DEPTH) throw new Error(`more than ${MAX_DEPTH} lists and objects lie in each other`);
  };
  for (let i = 0; i < text.length; i++) {
    switch (text[i]) {
      case '{': enter(new Map()); named = true; break;
      case '[': enter([]); named = false; break;
      case '}': case ']': open.pop(); break;
      case ',': named = !Array.isArray(open[open.length - 1]); break;
      case ':': named = false; break;
      case ' ': case '\t': case '\r': case '\n': break;
      case 't': put(true); i += 3; break;
      case 'f': put(false); i += 4; break;
      case 'n': put(null); i += 3; break;
      case '"': {
        const end = stringEnd(text, i);
        if (named) {
          name = text.slice(i + 1, end - 1);
          if (!/^[a-z0-9_]+$/.test(name)) throw new Error(`${text.slice(i, Math.min(end, i + 60))} is no member’s name`);
          if (open[open.length - 1].has(name)) throw new Error(`${name.slice(0, 60)} is there twice`);
        } else put(JSON.parse(text.slice(i, end)));
        i = end - 1;
        break;
      }
      default:
        number.lastIndex = i;
        put(new Digits(number.exec(text)[0]));
        i = number.lastIndex - 1;
    }
  }
  return root;
}

// A reader of a kind of value takes it, null where it is not there, and where it
// is, and gives it; what is null is empty, as in Go.

const not = (where, what) => { throw new Error(`its ${where} is no ${what}`); };
const text = (v, where) => (v === null ? '' : typeof v === 'string' ? v : not(where, 'text'));
const flag = (v, where) => (v === null ? false : typeof v === 'boolean' ? v : not(where, 'flag'));
/** Digits within a range, as BigInt; null where they are none. */
const within = (digits, [least, most]) => {
  if (!(least < 0n ? /^-?\d+$/ : /^\d+$/).test(digits)) return null;
  const short = digits.replace(/^(-?)0+(?=\d)/, '$1');
  if (short.length > 20) return null;
  const n = BigInt(short);
  return n >= least && n <= most ? n : null;
};
const whole = (range) => (v, where) => {
  const n = v === null ? 0n : v instanceof Digits ? within(v.text, range) : null;
  return n === null ? not(where, 'whole number') : Number(n);
};
/** A number written as text, as BigInt. Go takes "null" for none. */
const decimal = (range) => (v, where) => (v === null || v === 'null' ? 0n : (typeof v === 'string' ? within(v, range) : null) ?? not(where, 'decimal number'));
const list = (of) => (v, where) => (v === null ? [] : Array.isArray(v) ? v.map((x, i) => of(x, `${where}[${i}]`)) : not(where, 'list'));
const object = (members) => (v, where) => {
  if (v !== null && !(v instanceof Map)) not(where, 'object');
  return Object.fromEntries(Object.entries(members).map(([k, read]) => [k, read(v?.get(k) ?? null, where ? `${where}.${k}` : k)]));
};
const optional = (read) => (v, where) => (v === null ? null : read(v, where));

const I64 = [-(1n << 63n), (1n << 63n) - 1n];
const U64 = [0n, (1n << 64n) - 1n];
const int = whole(I64);
const uint32 = whole([0n, (1n << 32n) - 1n]);

const INSTANT = object({ wall_ns: decimal(I64), monotonic_ns: decimal(I64), time: text });
const VALUE = (v, where) => {
  const x = object({ name: text, bytes: optional(text), number: optional(text) })(v, where);
  if ((x.bytes === null) === (x.number === null)) throw new Error(`its ${where} has not either bytes or a number`);
  if (x.number !== null && within(x.number, U64) === null) not(`${where}.number`, 'decimal number');
  if (x.bytes !== null && !isBase64(x.bytes)) not(`${where}.bytes`, 'base64');
  return x;
};
const SIDECAR = object({
  format: text, version: int, tool: text, connection: text, file: int, open: flag, protocol: text, protocol_version: uint32,
  direction: text, pair: text, endpoint: text, start: int, length: int, sha256: text, previous_sha256: text,
  frames: list(object({ kind: uint32, name: text, count: int })), frames_of_other_kinds: int,
  first_arrival: optional(INSTANT), last_arrival: optional(INSTANT),
  framing: text, starts_at_boundary: flag, ends_at_boundary: flag, boundary: int,
  findings: list(object({ kind: text, connection: text, file: text, offset: int, at: int, length: int, field: text, expected: text, found: text, message: text, cost: text })),
  findings_omitted: int, closed: text, closed_detail: text,
  transport: optional(object({ verdict: text, detail: text })),
  recovery: optional(object({ kept: int, whole: int, tail: text, proven: int })),
  context: optional(object({ protocol: text, version: uint32, entries: list(object({ id: decimal(U64), values: list(VALUE) })), omitted: list(text) })),
});

/** Standard base64 with its padding, over any number of lines. */
function isBase64(s) {
  const b = s.replace(/[\r\n]/g, '');
  const pad = /={0,2}$/.exec(b)[0].length;
  return b.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(b.slice(0, b.length - pad));
}

/** What no recorder writes; '' for nothing. */
function wrongWith(s) {
  if (s.format !== 'wiretape-sidecar') return 'it is no sidecar';
  if (s.version !== 1) return `it is of version ${s.version}`;
  if (!s.connection) return 'it names no connection';
  if (s.file < 1) return `it is of file number ${s.file}`;
  if (s.start < 0 || s.length < 0 || s.start > Number.MAX_SAFE_INTEGER || s.length > Number.MAX_SAFE_INTEGER - s.start) return `it says start ${s.start} and length ${s.length}`;
  if (!s.protocol) return 'it names no protocol';
  if (!['frames', 'unknown', 'lost'].includes(s.framing)) return 'its framing is unknown';
  if (s.open) return '';
  if (!/^[0-9a-f]{64}$/.test(s.sha256)) return 'it has no SHA-256';
  if (s.boundary < s.start || s.boundary > s.start + s.length) return `its boundary ${s.boundary} is outside of ${s.start} to ${s.start + s.length}`;
  return '';
}

/** Reads a sidecar's bytes, by the names of its members; what is none is an error that says why. */
export function parse(bytes) {
  if (bytes.length > MAX_SIDECAR) throw new Error('it is larger than a sidecar may be');
  const s = SIDECAR(values(utf8.decode(bytes)), '');
  const wrong = wrongWith(s);
  if (wrong) throw new Error(wrong);
  return s;
}

/** What the page takes of a sidecar. */
export function read(bytes) {
  const s = parse(bytes);
  const some = (v) => v.slice(0, MAX_TEXT);
  const count = (v) => (Number.isSafeInteger(v) && v >= 0 ? v : undefined);
  // What recovery has found of a file that its recorder left is told as capture verify tells it.
  const told = [];
  const r = s.recovery;
  if (r?.tail) {
    const [whole, kept] = [count(r.whole) ?? 0, count(r.kept) ?? 0];
    told.push({ kind: 'recovered-file', offset: s.start + whole, expected: '', found: '', cost: '', message: `the file was recovered; no whole frames are in its last ${many(Math.max(0, kept - whole), 'byte')}: ${r.tail.slice(0, 40)}` });
  }
  for (const f of s.findings.slice(0, MAX_TOLD)) {
    if (count(f.offset) !== undefined && (f.kind || f.message)) told.push({ kind: some(f.kind), offset: f.offset, at: count(f.at) || undefined, expected: some(f.expected), found: some(f.found), message: some(f.message), cost: some(f.cost) });
  }
  const wall = (a) => (a?.wall_ns ? String(a.wall_ns) : null);
  return {
    connection: s.connection, file: s.file,
    tool: some(s.tool), endpoint: some(s.endpoint), direction: some(s.direction), protocol: some(s.protocol), pair: some(s.pair),
    sha256: s.sha256, closed: some(s.closed), closedDetail: some(s.closed_detail), open: s.open,
    recovered: r !== null, start: s.start, length: s.length, first: wall(s.first_arrival), last: wall(s.last_arrival),
    transport: s.transport && { verdict: some(s.transport.verdict), detail: some(s.transport.detail) },
    frames: s.frames.reduce((n, k) => n + (count(k.count) ?? 0), 0) + (count(s.frames_of_other_kinds) ?? 0),
    findings: told, found: Math.max(told.length, s.findings.length) + (count(s.findings_omitted) ?? 0),
    context: s.context, omitted: s.context ? s.context.omitted.map(some) : [],
  };
}
