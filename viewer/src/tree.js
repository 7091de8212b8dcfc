// The field tree of the open frame. Children are fetched as they are looked at,
// so that a frame with a hundred thousand rows opens at once.

import { $, copy, h, put, save, say, visible } from './dom.js';
import { VirtualList } from './list.js';
import { Stale } from './link.js';
import { bytes, duration, exactSpan, many, number, time } from './format.js';
import { settings } from './settings.js';

/** The finding that rows are skipped, and those that leave open nothing about their state. */
const SKIPPED = 'rows-skipped';
const SEQUENCE = ['gap'];

export const PAGE = 200;
const ROW = 20;
/** The most bytes that are copied, and that are read at a time to be saved. */
const MAX_COPIED = 16 << 20;
const PIECE = 16 << 20;

/** A field that is open: its children by pages, and which of them are open. */
class Node {
  constructor(field, path, count) {
    this.field = field;
    this.path = path;
    this.count = count;
    this.pages = new Map();
    this.open = new Map(); // child number → Node
  }

  /** How many lines the children take. */
  get lines() {
    let n = this.count;
    for (const c of this.open.values()) n += c.lines;
    return n;
  }

  child(i) {
    const p = this.pages.get(Math.floor(i / PAGE));
    return Array.isArray(p) ? p[i % PAGE] : undefined;
  }

  /** The line-th line below: {parent, index}. */
  at(line) {
    const open = [...this.open.entries()].sort((a, b) => a[0] - b[0]);
    let skipped = 0; // lines of opened children before
    for (const [i, c] of open) {
      if (line <= i + skipped) break;
      const n = c.lines;
      if (line <= i + skipped + n) return c.at(line - i - skipped - 1);
      skipped += n;
    }
    return { parent: this, index: line - skipped };
  }

  /** The line of a child. */
  lineOf(index) {
    let n = index;
    for (const [i, c] of this.open) if (i < index) n += c.lines;
    return n;
  }
}

export class Tree {
  constructor(app) {
    this.app = app;
    this.el = $('tree');
    this.root = null;
    this.line = -1;
    this.list = new VirtualList(this.el, {
      rowHeight: ROW,
      make: () => this.make(),
      fill: (e, i) => this.fill(e, i),
    });
    this.el.addEventListener('click', (e) => this.click(e));
    this.el.addEventListener('pointermove', (e) => this.hover(e));
    this.el.addEventListener('pointerleave', () => this.app.hover(null, 'tree'));
    this.el.addEventListener('keydown', (e) => this.key(e));
  }

  make() {
    return h('div', { class: 'node', role: 'treeitem' },
      h('span', { class: 'twist', 'aria-hidden': 'true' }), h('span', { class: 'name' }), h('span', { class: 'value' }), h('span', { class: 'note' }));
  }

  async open(unit) {
    this.unit = unit;
    this.line = -1;
    this.field = null;
    this.path = [];
    this.chosen = null;
    this.root = new Node(null, [], unit.fields ?? 0);
    const { root } = this;
    this.list.restart(0);
    if (root.count && unit.children) root.pages.set(0, unit.children);
    else if (root.count) await this.load(root, 0);
    // What is small and few is open from the start.
    const opened = [];
    for (let i = 0; i < root.count; i++) {
      const f = root.child(i);
      if (f?.count && f.count <= 12 && root.lines < 60) opened.push(this.expand(root, i, false));
    }
    await Promise.all(opened);
    if (this.root === root) this.list.restart(root.lines);
  }

  close() {
    this.unit = this.root = this.field = this.chosen = null;
    this.line = -1;
    this.list.setCount(0);
  }

  async load(node, page) {
    const have = node.pages.get(page);
    if (have) return have;
    const p = this.app.link.ask('children', { path: node.path, from: page * PAGE, count: PAGE });
    node.pages.set(page, p);
    try {
      const list = await p;
      node.pages.set(page, list);
      return list;
    } catch (e) {
      node.pages.delete(page);
      if (!(e instanceof Stale)) this.app.failed(e);
      return [];
    }
  }

  fill(e, line) {
    const { parent, index } = this.root.at(line);
    const f = parent.child(index);
    const depth = parent.path.length;
    const root = this.root;
    e.className = `node${line === this.line ? ' selected' : ''}${f ? '' : ' waiting'}`;
    e.id = `node-${line}`;
    e.style.setProperty('--depth', depth);
    e.setAttribute('aria-level', depth + 1);
    e.setAttribute('aria-posinset', index + 1);
    e.setAttribute('aria-setsize', parent.count);
    e.setAttribute('aria-selected', line === this.line ? 'true' : 'false');
    const [twist, name, value, note] = e.children;
    if (!f) {
      this.load(parent, Math.floor(index / PAGE)).then(() => { if (this.root === root) this.list.draw(); });
      put(twist, 'textContent', '');
      put(name, 'textContent', '…');
      put(value, 'textContent', '');
      put(note, 'textContent', '');
      return;
    }
    const open = parent.open.has(index);
    if (f.count) e.setAttribute('aria-expanded', open ? 'true' : 'false');
    else e.removeAttribute('aria-expanded');
    put(twist, 'textContent', f.count ? (open ? '▾' : '▸') : '');
    put(name, 'textContent', f.name || `[${index}]`);
    if (depth === 0 && index < (this.unit.envelope ?? 0)) e.classList.add('envelope');
    value.className = `value v-${f.type}`;
    const text = String(this.value(f));
    put(value, 'textContent', text);
    value.title = text.length > 40 ? text : '';
    note.title = this.note(f, parent, index);
    put(note, 'textContent', note.title);
    if (f.type === 'record' && this.isSkipped(parent)) e.classList.add('skipped');
    if (this.app.isFaulty(f)) e.classList.add('faulty');
  }

  value(f) {
    switch (f.type) {
      case 'none': return 'absent';
      case 'time': return time(f.value, settings.time, this.app.origin);
      case 'duration': return duration(f.value);
      case 'text': return `“${f.value}”`;
      case 'blob': return many(f.bytes, 'byte');
      case 'list': case 'map': return many(f.count ?? 0, f.type === 'map' ? 'pair' : 'entry');
      case 'record': return '';
      case 'enum': return f.note ? f.note : f.value;
      default: return f.value ?? '';
    }
  }

  note(f, parent, index) {
    if (f.type === 'enum') return f.note ? f.value : '';
    if (f.type === 'blob' && f.preview) return f.preview;
    if (f.type === 'record' || f.type === 'pair') return this.preview(f, parent, index);
    return f.note ?? '';
  }

  /** What a closed record shows of its children once they are known. */
  preview(f, parent, index) {
    if (f.parts === undefined) {
      this.askParts(f, [...parent.path, index]);
      return '';
    }
    if (f.type === 'pair') return this.pair(f);
    const parts = (f.parts ?? []).map((c) => `${c.name} ${this.value(c)}`).join(', ');
    return [this.isSkipped(parent) ? '⊘ skipped' : '', this.gap(f, parent, index), parts].filter(Boolean).join(' · ');
  }

  askParts(f, path) {
    f.parts = null;
    const root = this.root;
    this.app.link.ask('children', { path, from: 0, count: 6 }).then((list) => {
      f.parts = list;
      if (this.root === root) this.list.draw();
    }, () => { f.parts = []; });
  }

  /** A pair of numbers; an index state as findings write it, against the one that was accumulated. */
  pair(f) {
    const state = /state/.test(f.name);
    const text = `(${(f.parts ?? []).map((c) => (state ? BigInt(c.value).toString(16).padStart(16, '0') : c.value)).join(', ')})`;
    if (f.name !== 'index_state' || !f.parts) return text;
    const found = this.unit.findings ?? [];
    const skipped = found.find((x) => x.kind === SKIPPED);
    if (skipped) {
      const why = skipped.expected.startsWith('(') ? `≠ accumulated, the rows are skipped · ${text} against ${skipped.expected}` : `nothing accumulated, the rows are skipped: no Full index came yet · ${text}`;
      return `${why} · an Index comes before the Rows of its interval (rule 9)`;
    }
    // Of a frame that can't be attributed nothing is known.
    return found.every((x) => SEQUENCE.includes(x.kind)) ? `= accumulated · ${text}` : text;
  }

  /** Whether the entries of a list are rows that are skipped. */
  isSkipped(parent) {
    return parent.field?.name === 'rows' && Boolean(this.unit.findings?.some((x) => x.kind === SKIPPED));
  }

  /** The time from the record before to this one. */
  gap(f, parent, index) {
    const before = index > 0 ? parent.child(index - 1) : null;
    if (before?.type === 'record' && before.parts === undefined) this.askParts(before, [...parent.path, index - 1]);
    const t = (r) => r?.parts?.find((c) => c.type === 'time')?.value;
    const a = t(before);
    const b = t(f);
    if (a === undefined || b === undefined) return '';
    const d = BigInt(b) - BigInt(a);
    if (d === 0n) return 'same time as the one before';
    return `${exactSpan(d, true)} to the one before`;
  }

  async expand(parent, index, draw = true) {
    const f = parent.child(index);
    if (!f?.count || parent.open.has(index)) return;
    const n = new Node(f, [...parent.path, index], f.count);
    parent.open.set(index, n);
    await this.load(n, 0);
    if (draw) this.list.setCount(this.root.lines);
  }

  collapse(parent, index) {
    parent.open.delete(index);
    this.list.setCount(this.root.lines);
  }

  toggle(line) {
    const { parent, index } = this.root.at(line);
    if (parent.open.has(index)) this.collapse(parent, index);
    else this.expand(parent, index);
  }

  click(e) {
    const n = e.target.closest('.node');
    if (!n) return;
    if (e.target.classList.contains('twist')) this.toggle(n.index);
    this.select(n.index);
    if (e.detail === 2) this.toggle(n.index);
  }

  hover(e) {
    const n = e.target.closest('.node');
    const at = n ? this.root.at(n.index) : null;
    this.app.hover(at?.parent.child(at.index) ?? null, 'tree');
  }

  select(line, { tell = true } = {}) {
    if (!this.root || line < 0 || line >= this.root.lines) return;
    this.line = line;
    this.el.setAttribute('aria-activedescendant', `node-${line}`);
    this.list.show(line);
    const { parent, index } = this.root.at(line);
    this.path = [...parent.path, index];
    this.field = parent.child(index) ?? null;
    this.chosen = null;
    if (this.field) {
      if (tell) this.app.selectField(this.field, 'tree');
      return;
    }
    // It isn't here yet; what is done with the field waits for it.
    const root = this.root;
    const mine = this.chosen = this.load(parent, Math.floor(index / PAGE)).then(() => {
      if (this.root !== root || this.chosen !== mine) return;
      this.field = parent.child(index) ?? null;
      this.chosen = null;
      if (tell && this.field) this.app.selectField(this.field, 'tree');
    });
  }

  /** The number of the frame's own field with a name, behind the envelope; -1 for none. */
  fieldNamed(name) {
    for (let i = this.unit?.envelope ?? 0; i < (this.root?.count ?? 0); i++) if (this.root.child(i)?.name === name) return i;
    return -1;
  }

  /** Opens the way to a path and selects it; the bytes stay where they are when they led here. */
  async reveal(path, from = 'hex') {
    if (!path.length) return;
    const root = this.root;
    let node = root;
    for (let d = 0; d < path.length; d++) {
      await this.load(node, Math.floor(path[d] / PAGE));
      if (this.root !== root) return;
      if (d < path.length - 1) {
        await this.expand(node, path[d], false);
        node = node.open.get(path[d]);
        if (!node || this.root !== root) return;
      }
    }
    this.list.setCount(this.root.lines);
    this.select(this.lineOfPath(path), { tell: false });
    if (this.field) this.app.selectField(this.field, from);
  }

  lineOfPath(path) {
    let node = this.root;
    let line = 0;
    for (let d = 0; d < path.length; d++) {
      line += node.lineOf(path[d]);
      if (d < path.length - 1) {
        node = node.open.get(path[d]);
        line++;
      }
    }
    return line;
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || !this.root) return;
    const to = this.list.step(e, this.line);
    if (to !== undefined) {
      e.preventDefault();
      this.select(to);
      return;
    }
    if (this.line < 0) return;
    const { parent, index } = this.root.at(this.line);
    if (e.key === 'ArrowRight') {
      e.preventDefault();
      if (parent.open.has(index)) this.select(this.line + 1);
      else this.expand(parent, index);
    } else if (e.key === 'ArrowLeft') {
      e.preventDefault();
      if (parent.open.has(index)) this.collapse(parent, index);
      else if (parent.path.length) this.select(this.lineOfPath(parent.path));
    } else if (e.key === 'Enter' || e.key === ' ') {
      e.preventDefault();
      this.toggle(this.line);
    }
  }

  /** The bytes of the selected field, or of the frame: how many they should be, and where from. */
  get extent() {
    const f = this.field;
    const [from, n] = f ? [f.byteOffset ?? f.offset, f.bytes ?? f.length] : [this.unit.offset, this.unit.size];
    return { from, n };
  }

  /** Why there is nothing to be copied or saved. */
  nothing(what) {
    const why = this.unit.type === 'missing' ? 'These bytes are in no file' : this.field ? `${this.field.name || 'The entry'} has no bytes` : 'There are no bytes here';
    say(`${visible(why)}: there is nothing to ${what}.`, true);
  }

  /** Copies the selected field, or the frame, as JSON, hex or raw text. */
  async copyAs(how) {
    await this.chosen;
    const f = this.field;
    if (how === 'json') {
      if (this.unit.fields) copy(await this.app.link.ask('json', { path: f ? this.path : [] }));
      else say(`${this.unit.type === 'frame' ? 'This frame has no fields' : 'This is no frame and has no fields'}: there is nothing to copy as JSON.`, true);
      return;
    }
    const { from, n } = this.extent;
    if (n > MAX_COPIED && this.unit.type !== 'missing') throw new Error(`${bytes(n)} are too many to copy: save them as a file`);
    const b = await this.app.link.ask('bytes', { offset: from, count: Math.min(n, MAX_COPIED) });
    if (!b.length) {
      this.nothing('copy');
      return;
    }
    const text = how === 'hex' ? [...b].map((x) => x.toString(16).padStart(2, '0')).join('') : new TextDecoder('utf-8', { ignoreBOM: true }).decode(b);
    copy(text, some(b.length, n));
  }

  async saveField() {
    await this.chosen;
    const { from, n } = this.extent;
    const parquet = this.unit.name === 'Segment' && this.field?.name === 'bytes';
    const name = `frame-${this.unit.frame ?? this.unit.row}-at-${from}.${parquet ? 'parquet' : 'bin'}`;
    // In pieces: a stretch that is no frame may be as large as its file.
    const pieces = [];
    let got = 0;
    while (got < n) {
      const b = await this.app.link.ask('bytes', { offset: from + got, count: Math.min(n - got, PIECE) });
      if (!b.length) break;
      pieces.push(new Blob([b]));
      got += b.length;
    }
    if (!got) {
      this.nothing('save');
      return;
    }
    if (got < n) say(`Saved${some(got, n)}`, true);
    save(new Blob(pieces, { type: 'application/octet-stream' }), name);
  }
}

/** Says that fewer bytes are there than there should be. */
const some = (got, n) => (got < n ? `: only ${number(got)} of ${many(n, 'byte')} are there` : '');
