// Lists of captures on a file server: {"files": [{"path", "url", "size"}]}
// (docs/viewer.md). What a list says is from outside: it is read within bounds,
// and each entry is held against what it may say.

import { number } from './format.js';
import { patient } from './patience.js';

/** The most files that are opened at once. */
export const MAX_FILES = 100000;
/** The largest list that is read, in bytes. */
const MAX_LIST = 64 << 20;
/** How long a path and a URL in it may be, in UTF-16 units. */
const MAX_PATH = 4096;
const MAX_URL = 16384;
/** The largest file: places are exact as doubles. */
export const MAX_SIZE = 2 ** 52;

/** Refuses what is not of this page's own site: a link to this page may say where to ask, but never elsewhere. */
function own(u) {
  if (u.origin !== location.origin || !/^https?:$/.test(u.protocol)) throw new Error('it names another site than this page’s');
  return u;
}

/** Fetches a list, until control ends it: [{path, url, size}]. */
export async function fetchList(base, control) {
  own(base);
  const r = await patient(control, fetch(base, { signal: control.signal }));
  const refuse = (why) => {
    r.body?.cancel().catch(() => {});
    throw new Error(why);
  };
  if (!r.ok) refuse(`the server answers ${r.status}`);
  // A server may have led elsewhere.
  if (new URL(r.url).origin !== base.origin) refuse('the server leads to another site than this page’s');
  const large = `it has more than ${number(MAX_LIST)} bytes`;
  if (Number(r.headers.get('Content-Length')) > MAX_LIST) refuse(large);
  const decoder = new TextDecoder();
  const pieces = [];
  let size = 0;
  const reader = r.body?.getReader();
  while (reader) {
    const { done, value } = await patient(control, reader.read());
    if (done) break;
    size += value.length;
    if (size > MAX_LIST) {
      reader.cancel().catch(() => {});
      throw new Error(large);
    }
    pieces.push(decoder.decode(value, { stream: true }));
  }
  pieces.push(decoder.decode());
  return filesOf(pieces.join(''), base, own);
}

/** The files that a list names: [{path, url, size}]. The error of an entry that can't be taken names it and says why. */
export function filesOf(text, base, check = (u) => u) {
  if (!text.trim()) throw new Error('it is empty');
  let list;
  try {
    list = JSON.parse(text);
  } catch (e) {
    throw new Error(`it is no JSON (${e.message})`);
  }
  const files = list?.files;
  if (!Array.isArray(files)) throw new Error('it is no list of files, {"files": [{"path", "url", "size"}]}');
  if (files.length > MAX_FILES) throw new Error(`it names ${number(files.length)} files, and at most ${number(MAX_FILES)} are opened at once`);
  return files.map((f, i) => entry(f, `entry ${number(i + 1)}`, base, check));
}

function entry(f, which, base, check) {
  if (!f || typeof f !== 'object' || Array.isArray(f)) throw new Error(`${which} is no object`);
  const text = (key, most) => {
    const v = f[key];
    if (v === undefined) throw new Error(`${which} has no ${key}`);
    if (typeof v !== 'string') throw new Error(`the ${key} of ${which} is no text`);
    if (!v) throw new Error(`the ${key} of ${which} is empty`);
    if (v.length > most) throw new Error(`the ${key} of ${which} has ${number(v.length)} characters, and may have ${number(most)}`);
    if (/\p{Surrogate}/u.test(v)) throw new Error(`the ${key} of ${which} has half a character in it`);
    return v;
  };
  const path = text('path', MAX_PATH);
  if (path.endsWith('/')) throw new Error(`the path of ${which} names no file`);
  const written = text('url', MAX_URL);
  let url;
  try {
    url = new URL(written, base);
  } catch {
    throw new Error(`the url of ${which} is none: ${written.slice(0, 100)}`);
  }
  try {
    check(url);
  } catch (e) {
    throw new Error(`${which}: ${e.message}`);
  }
  const { size } = f;
  if (size === undefined) throw new Error(`${which} has no size`);
  if (!Number.isInteger(size) || size < 0 || size > MAX_SIZE) throw new Error(`the size of ${which} is no number of bytes: ${shown(size)}`);
  return { path, url: url.href, size };
}

/** A value of any kind, in few characters. */
function shown(v) {
  if (Array.isArray(v)) return 'a list';
  return v && typeof v === 'object' ? 'an object' : (JSON.stringify(v) ?? '').slice(0, 40);
}
