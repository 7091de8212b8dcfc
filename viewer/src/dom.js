// Making elements. Text is always set as text.

import { many } from './format.js';

/** An element with properties, attributes (aria-*, role, data-*) and children. */
export function h(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k === 'text') e.textContent = v;
    else if (k === 'class') e.className = v;
    else if (k in e && !k.startsWith('aria') && k !== 'role' && k !== 'list') e[k] = v;
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

/** Sets what differs: what is set anew is laid out anew, even where it is the same. */
export function put(e, property, value) {
  if (e[property] !== value) e[property] = value;
}

export const $ = (id) => document.getElementById(id);

/** The characters that wire.SafeText escapes too (wire/testdata/unprintable.txt), and halves of one. */
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}\ud800-\udfff]/gu;

/** Text from a capture with what changes the line around it, or is not seen, made visible. */
export function visible(s) {
  return s.replace(UNPRINTABLE, (c) => {
    const n = c.codePointAt(0);
    return n > 0xffff ? `\\u{${n.toString(16)}}` : `\\u${n.toString(16).padStart(4, '0')}`;
  });
}

/** Saves a Blob as a file of the person's. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const a = h('a', { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

let said;
/** Says one line, for a while, and to screen readers. */
export function say(text, bad = false) {
  const e = $('toast');
  e.textContent = visible(text);
  e.className = bad ? 'bad shown' : 'shown';
  clearTimeout(said);
  said = setTimeout(() => { e.className = ''; }, bad ? 12000 : 3500);
}

/** Copies a text that is not empty; more is said behind how much it was. */
export async function copy(text, more = '') {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // From file:// and plain http the clipboard is reached by a selection.
    const t = h('textarea', { class: 'offscreen', value: text, 'aria-hidden': 'true' });
    document.body.append(t);
    t.select();
    const done = document.execCommand('copy');
    t.remove();
    if (!done) {
      say('The browser does not let this page copy.', true);
      return;
    }
  }
  say(`Copied ${many(text.length, 'character')}${more}`);
}
