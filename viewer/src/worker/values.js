// Parquet values as text, from how they are stored and what their column says
// they are. Nothing goes through a double that is none.

import { time } from '../format.js';

/** How many bytes of a value are shown. */
const MAX_BYTES = 200;

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const DAY = 86400000000000n;
const UNITS = { MILLIS: 1000000n, MICROS: 1000n, NANOS: 1n };

/** Bytes in hex. */
export function bytesText(v) {
  const h = Array.from(v.subarray(0, MAX_BYTES), (b) => b.toString(16).padStart(2, '0')).join('');
  return `0x${h}${v.length > MAX_BYTES ? '…' : ''}`;
}

/** An unscaled number and how many of its digits are behind the point. */
export function decimal(n, scale) {
  const s = (n < 0n ? -n : n).toString();
  const lead = n < 0n ? '-' : '';
  if (scale <= 0) return lead + s + (n === 0n ? '' : '0'.repeat(-scale));
  const digits = s.padStart(scale + 1, '0');
  return `${lead}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

/** The largest scale that is written out. */
const MAX_SCALE = 1000;
/** The most bytes of a number that are worked out. */
const MAX_NUMBER = 512;

function signed(b) {
  let n = 0n;
  for (const x of b) n = (n << 8n) | BigInt(x);
  return b.length ? BigInt.asIntN(b.length * 8, n) : 0n;
}

/** A double, or with single a float in as few digits as tell it from all others. */
function float(v, single) {
  if (Object.is(v, -0)) return '-0';
  if (!single || !Number.isFinite(v)) return String(v);
  for (let p = 6; p < 9; p++) {
    const short = Number(v.toPrecision(p));
    if (Math.fround(short) === v) return String(short);
  }
  return String(Number(v.toPrecision(9)));
}

function half(b) {
  const n = b[0] | (b[1] << 8);
  const sign = n & 0x8000 ? -1 : 1;
  const [e, f] = [(n >> 10) & 31, n & 1023];
  if (e === 31) return f ? NaN : sign * Infinity;
  return e === 0 ? sign * f * 2 ** -24 : sign * (1024 + f) * 2 ** (e - 25);
}

const date = (days) => {
  const t = time(BigInt(days) * DAY, 'utc');
  return t.endsWith(' ns') ? `${days} days since 1970` : t.slice(0, t.indexOf(' '));
};

const clock = (ns) => {
  const t = time(ns, 'utc');
  return ns >= 0n && ns < DAY ? t.slice(t.indexOf(' ') + 1) : `${ns} ns`;
};

const uuid = (b) => {
  const h = bytesText(b).slice(2);
  return [h.slice(0, 8), h.slice(8, 12), h.slice(12, 16), h.slice(16, 20), h.slice(20)].join('-');
};

/** What an element says of its values: their logical type, or what stood for it before there were those. */
function meaning(e) {
  const l = e.logical_type;
  const c = e.converted_type ?? '';
  if (l?.type === 'DECIMAL' || c === 'DECIMAL') return { type: 'DECIMAL', scale: l?.scale ?? e.scale ?? 0 };
  if (l?.type === 'TIME' || l?.type === 'TIMESTAMP') return { type: l.type, unit: UNITS[l.unit] };
  if (l?.type === 'INTEGER') return { type: l.isSigned ? '' : 'UNSIGNED' };
  if (l?.type) return { type: l.type };
  const t = /^(TIME|TIMESTAMP)_(MILLIS|MICROS)$/.exec(c);
  if (t) return { type: t[1], unit: UNITS[t[2]] };
  if (c.startsWith('UINT_')) return { type: 'UNSIGNED' };
  return { type: c === 'UTF8' ? 'STRING' : c };
}

/** Whether a value is shown as the text that it is. */
const TEXTS = ['STRING', 'ENUM', 'JSON'];

function text(b) {
  try {
    return strict.decode(b);
  } catch {
    return null;
  }
}

/** A value of a leaf, as it is stored, as text. */
export function leafText(v, element) {
  const { type, scale, unit } = meaning(element);
  if (v instanceof Uint8Array) {
    if (TEXTS.includes(type)) return text(v) ?? bytesText(v);
    if (type === 'DECIMAL' && v.length <= MAX_NUMBER && Math.abs(scale) <= MAX_SCALE) return decimal(signed(v), scale);
    if (type === 'FLOAT16' && v.length === 2) return float(half(v), false);
    if (type === 'UUID' && v.length === 16) return uuid(v);
    if (type === 'INTERVAL' && v.length === 12) {
      const d = new DataView(v.buffer, v.byteOffset, 12);
      return `${d.getUint32(0, true)} months ${d.getUint32(4, true)} days ${d.getUint32(8, true)} ms`;
    }
    return bytesText(v);
  }
  if (typeof v === 'boolean') return String(v);
  if (element.type === 'FLOAT' || element.type === 'DOUBLE') return float(Number(v), element.type === 'FLOAT');
  // INT96 comes as the nanoseconds that it stands for.
  if (element.type === 'INT96') return time(BigInt(v), 'utc');
  const n = BigInt(v);
  if (type === 'DECIMAL' && Math.abs(scale) <= MAX_SCALE) return decimal(n, scale);
  if (type === 'UNSIGNED') return BigInt.asUintN(element.type === 'INT32' ? 32 : 64, n).toString();
  if (type === 'DATE') return date(n);
  if (type === 'TIMESTAMP') return time(n * unit, 'utc');
  if (type === 'TIME') return clock(n * unit);
  return n.toString();
}

/** The same inside of a list, a struct or a map: what is text stands in quotes. */
export function quoted(v, element) {
  if (!(v instanceof Uint8Array)) return ['DATE', 'TIME', 'TIMESTAMP'].includes(meaning(element).type) || element.type === 'INT96' ? `"${leafText(v, element)}"` : leafText(v, element);
  const s = leafText(v, element);
  return ['DECIMAL', 'FLOAT16'].includes(meaning(element).type) ? s : JSON.stringify(s);
}
