// The frame list: rows as the decoder tells them, fetched by pages for what is
// on the screen, all of them or the ones that a filter takes.

import { $, h, say } from './dom.js';
import { VirtualList } from './list.js';
import { Stale } from './link.js';
import { frameNumber, number, time } from './format.js';
import { set, settings } from './settings.js';

const PAGE = 64;
const KEPT_PAGES = 120;
const ROW = 21;
/** How narrow and how wide a column may be made, in pixels. */
const MIN_WIDTH = 40;
const MAX_WIDTH = 900;
const MIN_SUMMARY = 200;
/** The columns that take the width of what they hold, and how wide they get by themselves. */
const FITTED = { row: 120, offset: 140, name: 210, source: 170, stream: 190, size: 110 };
/** Of how many pages of rows the widths are taken. */
const FITTED_PAGES = 6;

export const COLUMNS = [
  { key: 'row', name: 'No.', width: 72, right: true, about: 'Number of the frame, from 1; the preamble is 0' },
  { key: 'offset', name: 'Offset', width: 96, right: true, about: 'Offset in the connection' },
  { key: 'arrival', name: 'Arrival', width: 218, about: 'When its first byte came, by the arrival index' },
  { key: 'name', name: 'Kind', width: 112, about: 'Kind of frame' },
  { key: 'source', name: 'Source', width: 104, about: 'Whom it is about, by label' },
  { key: 'stream', name: 'Stream', width: 116, about: 'The named series' },
  { key: 'time', name: 'Data time', short: 'Time', width: 218, about: 'The data’s own time' },
  { key: 'size', name: 'Size', width: 80, right: true, about: 'Bytes, length prefix included' },
  { key: 'summary', name: 'Summary', width: 0, about: 'What is in it' },
];

export class Frames {
  constructor(app) {
    this.app = app;
    this.el = $('frames');
    this.filtered = false;
    this.pages = new Map();
    this.selected = -1; // index in the list that is shown
    this.selectedRow = -1; // the row's number
    this.outside = null; // {row, at}: what is open is a row that the list doesn't have, at where it would be
    this.header = $('columns');
    this.days = {};
    this.fitted = {};
    this.list = new VirtualList(this.el, {
      rowHeight: ROW,
      make: () => this.make(),
      fill: (e, i) => this.fill(e, i),
      moved: () => this.moved(),
    });
    this.el.addEventListener('click', (e) => {
      const r = e.target.closest('.row');
      if (r) this.select(r.index);
    });
    this.el.addEventListener('keydown', (e) => this.key(e));
    this.columns();
  }

  columns() {
    this.shown = COLUMNS.filter((c) => !settings.hidden.includes(c.key) && !this.app.lacks(c.key));
    this.header.replaceChildren(...this.shown.map((c) => {
      const grip = h('span', { class: 'grip', 'aria-hidden': 'true' });
      grip.addEventListener('pointerdown', (e) => this.resize(e, c));
      const day = this.days[c.key];
      return h('div', { class: `cell ${c.right ? 'right' : ''}`, role: 'columnheader', title: c.about, text: day ? `${c.short ?? c.name} ${day}` : c.name }, c.width ? grip : null);
    }));
    this.widths();
    for (const e of this.list.pool) this.cells(e);
    this.list.draw();
  }

  /** Which columns there are and how wide depends on what the capture holds. */
  settle() {
    const days = { arrival: this.app.dayOf('arrival'), time: this.app.dayOf('time') };
    const key = JSON.stringify([days, settings.time, this.app.noSources, this.app.noTimes]);
    if (key === this.settled) return;
    this.settled = key;
    this.days = days;
    this.columns();
  }

  width(c) {
    // Times of one day are shown without it, the column's name has it.
    if (this.days[c.key]) return settings.widths[`${c.key}-short`] ?? 152;
    return settings.widths[c.key] ?? this.fitted[c.key] ?? c.width;
  }

  widths() {
    const w = this.shown.map((c) => (c.width ? `${this.width(c)}px` : `minmax(${MIN_SUMMARY}px, 1fr)`));
    this.el.style.setProperty('--columns', w.join(' '));
    const least = this.shown.reduce((n, c) => n + (c.width ? this.width(c) : MIN_SUMMARY), 0);
    this.el.style.setProperty('--least', `${least}px`);
    this.el.setAttribute('aria-colcount', this.shown.length);
  }

  /** Makes columns as wide as these rows need, and as their numbers need by now, within bounds; what a person has chosen stays. */
  fit(rows) {
    if (!this.list.pool.length || (rows.length && this.fittings >= FITTED_PAGES)) return;
    if (rows.length) this.fittings++;
    const g = (this.measure ??= document.createElement('canvas').getContext('2d'));
    let wider = false;
    for (const c of this.shown) {
      if (!FITTED[c.key]) continue;
      const cell = this.list.pool[0].children[this.shown.indexOf(c)];
      const style = getComputedStyle(cell);
      g.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      const pad = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + 3;
      // What numbers there will be is known of some before they are seen.
      const most = { row: String(this.app.status?.rows ?? ''), offset: String(this.app.info?.end ?? '') }[c.key];
      let need = c.right ? 62 : Math.min(c.width, 70);
      for (const text of most === undefined ? rows.map((r) => this.text(c, r)) : [most]) {
        need = Math.max(need, Math.ceil(g.measureText(text.slice(0, 200)).width + pad));
      }
      need = Math.min(FITTED[c.key], need);
      if (need > (this.fitted[c.key] ?? 0)) {
        this.fitted[c.key] = need;
        wider = true;
      }
    }
    if (wider) this.widths();
  }

  /** Gives a column a width in pixels. */
  setWidth(c, width) {
    if (!(width > 0)) return;
    settings.widths[this.days[c.key] ? `${c.key}-short` : c.key] = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, width));
    this.widths();
    set('widths', settings.widths);
  }

  resize(e, c) {
    e.preventDefault();
    e.stopPropagation();
    const from = e.clientX;
    const was = this.width(c);
    const move = (m) => this.setWidth(c, was + m.clientX - from);
    const up = () => {
      window.removeEventListener('pointermove', move);
      window.removeEventListener('pointerup', up);
    };
    window.addEventListener('pointermove', move);
    window.addEventListener('pointerup', up);
  }

  make() {
    const e = h('div', { class: 'row', role: 'row' });
    this.cells(e);
    return e;
  }

  cells(e) {
    e.replaceChildren(...this.shown.map((c) => h('div', { class: `cell c-${c.key} ${c.right ? 'right' : ''}`, role: 'gridcell' })));
  }

  fill(e, i) {
    const page = this.pages.get(Math.floor(i / PAGE));
    const r = Array.isArray(page) ? page[i % PAGE] : undefined;
    e.id = `row-${i}`;
    e.dataset.row = r?.row ?? '';
    e.setAttribute('aria-rowindex', i + 2);
    e.setAttribute('aria-selected', i === this.selected ? 'true' : 'false');
    const kind = r ? this.app.slot(r) : 0;
    e.className = `row${i === this.selected ? ' selected' : ''}${r && r.type !== 'frame' ? ` t-${r.type}` : ''}${r?.findings ? ' found' : ''}${r ? '' : ' waiting'}`;
    e.style.setProperty('--kind', `var(--k${kind})`);
    this.shown.forEach((c, j) => {
      const cell = e.children[j];
      const text = r ? this.text(c, r) : '';
      if (cell.textContent !== text) cell.textContent = text;
      if (c.key === 'summary' || c.key === 'name' || c.key === 'source' || c.key === 'stream') cell.title = text;
    });
  }

  /** What a column shows of a row. */
  text(c, r) {
    switch (c.key) {
      case 'row': return frameNumber(r);
      case 'arrival': case 'time': return r[c.key] === undefined ? '' : this.time(c.key, r[c.key], this.app.origin);
      case 'size': return number(r.size);
      case 'source': return r.label ?? r.source ?? '';
      case 'summary': return (r.findings ? '⚠ ' : '') + (r.summary ?? '');
      default: return String(r[c.key] ?? '');
    }
  }

  time(key, ns, origin) {
    const s = time(ns, settings.time, origin);
    return this.days[key] && s.startsWith(this.days[key]) ? s.slice(11) : s;
  }

  /** Asks for the pages that are on the screen and not there. */
  moved() {
    clearTimeout(this.timer);
    const missing = this.wanted();
    if (!missing.length) return;
    // While the list flies by, only where it comes to rest is asked for.
    this.timer = setTimeout(() => {
      for (const p of this.wanted()) this.load(p);
    }, this.flying() ? 60 : 0);
  }

  flying() {
    const now = performance.now();
    const fast = now - (this.lastMove ?? 0) < 40;
    this.lastMove = now;
    return fast;
  }

  wanted() {
    const out = [];
    if (!this.list.count) return out;
    const last = Math.min(this.list.count - 1, this.list.first + this.list.shown);
    for (let p = Math.floor(this.list.first / PAGE); p <= Math.floor(last / PAGE); p++) {
      const have = this.pages.get(p);
      const full = Array.isArray(have) && have.length >= Math.min(PAGE, this.list.count - p * PAGE);
      if (!full && !(have instanceof Promise)) out.push(p);
    }
    return out;
  }

  async load(p) {
    const was = this.pages.get(p);
    if (was instanceof Promise) return was;
    const { pages, filtered } = this;
    const count = Math.min(PAGE, this.list.count - p * PAGE);
    const promise = this.app.link.ask('rows', { from: p * PAGE, count, filtered });
    // What was there stays on the screen until the fuller page is here.
    if (!Array.isArray(was)) pages.set(p, promise);
    try {
      const rows = await promise;
      if (this.pages !== pages) return;
      pages.delete(p);
      pages.set(p, rows);
      if (pages.size > KEPT_PAGES) {
        for (const k of pages.keys()) {
          if (pages.size <= KEPT_PAGES) break;
          if (Math.abs(k - this.list.first / PAGE) > 4) pages.delete(k);
        }
      }
      this.fit(rows);
      this.list.draw();
    } catch (e) {
      if (pages.get(p) === promise) pages.delete(p);
      if (!(e instanceof Stale)) this.app.failed(e);
    }
  }

  /** A new connection, or another set of rows of it. */
  reset(filtered = false) {
    this.filtered = filtered;
    this.pages = new Map();
    this.selected = -1;
    this.outside = null;
    this.list.restart(0);
    this.setCount(0);
  }

  /** The labels in the list may have changed. */
  refresh() {
    this.pages = new Map();
    this.list.draw();
  }

  setCount(n) {
    this.el.setAttribute('aria-rowcount', n + 1);
    this.list.setCount(n);
    $('no-rows').hidden = n > 0 || !this.filtered;
    if (this.filtered || !this.outside) return;
    // What was open before the index pass came to it has its place now.
    if (this.outside.row < n) this.select(this.outside.row);
    else this.outside.at = n;
  }

  /** Selects by the place in the list that is shown. */
  async select(i, { show = true, field } = {}) {
    if (i < 0 || i >= this.list.count) return;
    this.selected = i;
    this.outside = null;
    this.el.setAttribute('aria-activedescendant', `row-${i}`);
    if (show) this.list.show(i);
    else this.list.draw();
    let row = i;
    if (this.filtered) {
      let page = this.pages.get(Math.floor(i / PAGE));
      if (!Array.isArray(page)) {
        await this.load(Math.floor(i / PAGE));
        page = this.pages.get(Math.floor(i / PAGE));
      }
      if (this.selected !== i || !Array.isArray(page)) return;
      row = page[i % PAGE].row;
    }
    this.selectedRow = row;
    await this.app.openRow(row, field);
  }

  /**
   * Selects a row by its number. One that the filter does not take is opened all
   * the same, with no row of the list selected, and that is said.
   */
  async goto(row, options) {
    if (!this.filtered) {
      if (row >= this.list.count) say(this.app.indexing ? 'That is not indexed yet.' : 'The index pass was stopped before that.', true);
      return this.select(row, options);
    }
    const { pages } = this;
    const { at, taken } = await this.app.link.ask('rank', { row });
    // Under another filter it has another place.
    if (this.pages !== pages) return this.goto(row, options);
    if (taken) {
      if (at >= this.list.count) this.setCount(at + 1); // found meanwhile
      return this.select(at, options);
    }
    if (this.app.filterDone) this.sayOutside();
    return this.openOutside(row, at, options?.field);
  }

  /** Opens a row that is not in the list, where it would be at a place. */
  openOutside(row, at, field) {
    this.selected = -1;
    this.el.removeAttribute('aria-activedescendant');
    this.selectedRow = row;
    this.outside = { row, at };
    if (this.list.count) this.list.show(Math.min(at, this.list.count - 1));
    this.list.draw();
    return this.app.openRow(row, field);
  }

  /** Goes back to all rows with the one that was chosen among those of a filter. */
  async keep(row) {
    if (row < this.list.count) return this.select(row);
    // A filter finds rows that the index pass has not come to.
    say(`The index pass ${this.app.indexing ? 'has not come to this row yet' : 'was stopped before this row'}: it is shown, and not in the list.`);
    return this.openOutside(row, this.list.count);
  }

  sayOutside() {
    say('The filter does not take this row: it is shown, and not in the list.');
  }

  /** The filter has come to its end: what was opened meanwhile has its place now. */
  async filterEnded() {
    if (!this.outside) return;
    const { outside } = this;
    const { at, taken } = await this.app.link.ask('rank', { row: outside.row });
    if (this.outside !== outside) return;
    if (taken) await this.select(at);
    else {
      this.outside.at = at;
      this.sayOutside();
    }
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = this.list.visible - 1;
    // From a row that the filter doesn't take, to the ones around it.
    const [up, down] = this.outside ? [this.outside.at - 1, this.outside.at] : [this.selected - 1, this.selected + 1];
    const to = {
      ArrowDown: down, ArrowUp: up, PageDown: down - 1 + page, PageUp: up + 1 - page,
      Home: 0, End: this.list.count - 1, j: down, k: up,
    }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.select(Math.max(0, Math.min(this.list.count - 1, to)));
  }
}
