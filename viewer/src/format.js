// Values as people read them. Times are nanoseconds since 1970 as BigInt or
// decimal text, never a double.

const SECOND = 1000000000n;

export const number = (n) => n.toLocaleString('en');

/** A count with its noun, in the plural but for 1. */
export const many = (n, one) => `${number(n)} ${n === 1 ? one : one.endsWith('y') ? `${one.slice(0, -1)}ies` : `${one}s`}`;

/** The number of a row's frame as the replay command counts them: the preamble is 0, and what is no frame has none. */
export const frameNumber = (r) => (r.frame ? String(r.frame) : r.type === 'preamble' ? '0' : '–');

/** A row in a sentence. */
export const rowName = (r) => (r.frame ? `frame ${number(r.frame)}` : r.type);

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let i = -1;
  let v = n;
  do {
    v /= 1024;
    i++;
  } while (v >= 1024 && i < units.length - 1);
  return `${v < 10 ? v.toFixed(2) : v < 100 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

/** How many colours of kinds there are (app.css). */
const COLOURS = 10;

/**
 * The colours of a capture's kinds: of a frame by its number, the same in every
 * capture, unless another kind has that one already.
 */
export function colours(kinds) {
  const taken = new Set();
  return kinds.map((k) => {
    // What is no frame begins at the other end.
    let c = k.type === 'preamble' ? 0 : k.type === 'frame' ? (1 + k.kind) % COLOURS : COLOURS - 1;
    const step = k.type === 'frame' || k.type === 'preamble' ? 1 : COLOURS - 1;
    for (let n = 0; taken.has(c) && n < COLOURS; n++) c = (c + step) % COLOURS;
    taken.add(c);
    return c;
  });
}

const floorDiv = (a, b) => (a >= 0n ? a / b : -((-a + b - 1n) / b));
const pad = (n, w) => String(n).padStart(w, '0');
const year = (y) => (y < 0 ? `-${pad(-y, 4)}` : pad(y, 4));

/** How a time is shown: utc, local, relative or raw. */
export function time(ns, mode, origin) {
  const t = BigInt(ns);
  if (mode === 'raw') return t.toString();
  if (mode === 'relative') return duration(t - BigInt(origin ?? 0), true);
  const s = floorDiv(t, SECOND);
  const frac = pad(t - s * SECOND, 9);
  const d = new Date(Number(s) * 1000);
  if (Number.isNaN(d.getTime())) return `${t} ns`;
  if (mode === 'local') {
    return `${year(d.getFullYear())}-${pad(d.getMonth() + 1, 2)}-${pad(d.getDate(), 2)} ` +
      `${pad(d.getHours(), 2)}:${pad(d.getMinutes(), 2)}:${pad(d.getSeconds(), 2)}.${frac}`;
  }
  return `${year(d.getUTCFullYear())}-${pad(d.getUTCMonth() + 1, 2)}-${pad(d.getUTCDate(), 2)} ` +
    `${pad(d.getUTCHours(), 2)}:${pad(d.getUTCMinutes(), 2)}:${pad(d.getUTCSeconds(), 2)}.${frac}`;
}

/** A duration to the nanosecond: 1 h 02 m 03.000000004 s. */
export function duration(ns, sign = false) {
  let t = BigInt(ns);
  const lead = t < 0n ? '−' : sign ? '+' : '';
  if (t < 0n) t = -t;
  const s = t / SECOND;
  const f = pad(t % SECOND, 9);
  if (s < 60n) return `${lead}${s}.${f} s`;
  const m = s / 60n;
  if (m < 60n) return `${lead}${m} m ${pad(s % 60n, 2)}.${f} s`;
  return `${lead}${m / 60n} h ${pad(m % 60n, 2)} m ${pad(s % 60n, 2)}.${f} s`;
}

/** A span of time in one or two units, for axes and gaps. */
export function span(ns) {
  const t = Number(ns);
  const a = Math.abs(t);
  if (a < 1e3) return `${t} ns`;
  if (a < 1e6) return `${+(t / 1e3).toPrecision(4)} µs`;
  if (a < 1e9) return `${+(t / 1e6).toPrecision(4)} ms`;
  if (a < 120e9) return `${+(t / 1e9).toPrecision(4)} s`;
  if (a < 7200e9) return `${+(t / 60e9).toPrecision(4)} min`;
  if (a < 172800e9) return `${+(t / 3600e9).toPrecision(4)} h`;
  return `${+(t / 86400e9).toPrecision(4)} d`;
}

/** A span of time to the nanosecond in one unit: 1.5 µs, 1.000000001 s. */
export function exactSpan(ns, sign = false) {
  let t = BigInt(ns);
  const lead = t < 0n ? '−' : sign ? '+' : '';
  if (t < 0n) t = -t;
  const [digits, unit] = t < 1000n ? [0, 'ns'] : t < 1000000n ? [3, 'µs'] : t < SECOND ? [6, 'ms'] : [9, 's'];
  if (t >= 60n * SECOND) return duration(ns, sign);
  const u = 10n ** BigInt(digits);
  const f = pad(t % u, digits).slice(0, digits).replace(/0+$/, '');
  return `${lead}${t / u}${f ? `.${f}` : ''} ${unit}`;
}

/** A time as a filter takes it, exact. */
export const exactTime = (ns) => `${time(ns, 'utc').replace(' ', 'T')}Z`;

/** The first and the last time that there is: 64 bits of nanoseconds. */
export const FIRST_TIME = -(1n << 63n);
export const LAST_TIME = (1n << 63n) - 1n;

/** A time, or the end of the range that it lies beyond. */
export const timeWithin = (t) => (t < FIRST_TIME ? FIRST_TIME : t > LAST_TIME ? LAST_TIME : t);

const orNone = (t) => (t === timeWithin(t) ? t : null);

/**
 * Reads a time as it is shown in a mode: in local time, since the origin ("+1 m
 * 02.5 s"), or as parseTime does; a time of day is of the given day. Null when it
 * is none.
 */
export function parseShown(s, mode, origin, day) {
  s = s.trim();
  if (/^\d\d:\d\d/.test(s) && day) s = `${day} ${s}`;
  const d = /^([+−-])(?:(\d{1,9}) h )?(?:(\d{1,9}) m )?(\d{1,12})(?:\.(\d{1,9}))?(?: ?s)?$/.exec(s);
  if (d && origin !== null) {
    const n = (BigInt(d[2] ?? 0) * 3600n + BigInt(d[3] ?? 0) * 60n + BigInt(d[4])) * SECOND + BigInt((d[5] ?? '').padEnd(9, '0'));
    return orNone(BigInt(origin) + (d[1] === '+' ? n : -n));
  }
  const t = parseTime(s);
  if (t === null || mode !== 'local' || /Z$|^-?\d+$/.test(s)) return t;
  const [y, mo, da, h, mi, se] = /^(\d+)-(\d+)-(\d+)(?:[T ](\d+):(\d+)(?::(\d+))?)?/.exec(s).slice(1).map((x) => Number(x ?? 0));
  const whole = floorDiv(t, SECOND) * SECOND;
  return orNone(BigInt(new Date(y, mo - 1, da, h, mi, se).getTime()) * 1000000n + (t - whole));
}

/**
 * Reads a time as a filter does (wasm/filter): in UTC, of which the end may be
 * left out, or nanoseconds; null when it is none.
 */
export function parseTime(s) {
  if (/^-?\d{1,19}$/.test(s)) return orNone(BigInt(s));
  const m = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?Z?$/.exec(s);
  if (!m) return null;
  const [y, mo, da, h, mi, se] = m.slice(1, 7).map((x) => Number(x ?? 0));
  const d = new Date(0);
  d.setUTCFullYear(y, mo - 1, da);
  // A day that there is not becomes another one.
  if (d.getUTCFullYear() !== y || d.getUTCMonth() !== mo - 1 || d.getUTCDate() !== da || h > 23 || mi > 59 || se > 59) return null;
  d.setUTCHours(h, mi, se);
  return orNone(BigInt(d.getTime()) * 1000000n + BigInt((m[7] ?? '').padEnd(9, '0')));
}

export const hex = (n, w = 0) => n.toString(16).padStart(w, '0');
