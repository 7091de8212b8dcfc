// The Segment tab: the Parquet file inside, its structure and its rows, and
// what replay's checks find in it.

import { h, visible } from './dom.js';
import { bytes, many, number, time } from './format.js';
import { VirtualList } from './list.js';
import { Stale } from './link.js';
import { settings } from './settings.js';
import { startWorker } from './trusted.js';

/** How long a file may keep its reader. */
const PATIENCE = 20000;
const PAGE = 50;
const FIRST_COLUMNS = 12;
/** Of how many columns those that are shown can be chosen. */
const MAX_PICKS = 2000;
/** The codecs that are read (worker/inflate.js). */
const CODECS = ['UNCOMPRESSED', 'SNAPPY', 'GZIP', 'BROTLI', 'ZSTD', 'LZ4', 'LZ4_RAW'];

/** A reader of one Parquet file, ended when it takes too long. */
class Reader {
  constructor() {
    this.worker = startWorker('worker.js', 'segment');
    this.waiting = new Map();
    this.next = 1;
    this.worker.onmessage = ({ data }) => {
      const w = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      clearTimeout(w.timer);
      if (data.error) w.reject(new Error(data.error));
      else w.resolve(data.result);
    };
    this.worker.onerror = (e) => this.end(new Error(e.message || 'the reader failed'));
  }

  ask(op, args, transfer = []) {
    if (this.ended) return Promise.reject(this.ended);
    return new Promise((resolve, reject) => {
      const id = this.next++;
      const timer = setTimeout(() => this.end(new Error(`the file kept its reader for more than ${PATIENCE / 1000} s`)), PATIENCE);
      this.waiting.set(id, { resolve, reject, timer });
      this.worker.postMessage({ id, op, args }, transfer);
    });
  }

  end(why) {
    this.ended ??= why;
    this.worker.terminate();
    for (const w of this.waiting.values()) {
      clearTimeout(w.timer);
      w.reject(why);
    }
    this.waiting.clear();
  }
}

export class Segment {
  constructor(app, el) {
    this.app = app;
    this.el = el;
  }

  /** Times are shown in another form. */
  times() {
    if (this.check) this.el.querySelector('.verdict')?.replaceWith(this.verdict(this.check));
  }

  close() {
    this.check = null;
    this.reader?.end(new Stale());
    this.reader = null;
    this.row = undefined;
    this.el.replaceChildren();
  }

  async show(unit) {
    if (this.row === unit.row) return;
    this.close();
    this.row = unit.row;
    this.el.replaceChildren(h('p', { class: 'empty', text: 'Checking and reading the Parquet file…' }));
    const mine = () => this.row === unit.row;
    try {
      const check = await this.app.link.ask('checkSegment', {});
      if (!mine()) return;
      if (!check) {
        this.el.replaceChildren(h('p', { class: 'empty', text: 'There is no Parquet file in this frame.' }));
        return;
      }
      this.check = check;
      this.el.replaceChildren(this.verdict(check));
      const b = await this.app.link.ask('bytes', { offset: check.offset, count: check.length });
      if (!mine()) return;
      const copy = b.byteOffset === 0 && b.byteLength === b.buffer.byteLength ? b.buffer : b.slice().buffer;
      this.reader = new Reader();
      const m = await this.reader.ask('open', { bytes: copy }, [copy]);
      if (!mine()) return;
      this.el.append(...this.about(m));
    } catch (e) {
      if (mine() && !(e instanceof Stale)) this.el.append(h('p', { class: 'bad', role: 'status', text: `⚠ The Parquet file can’t be read: ${visible(e.message)}` }));
    }
  }

  verdict(c) {
    const t = (v) => time(v, settings.time, this.app.origin);
    return h('section', { class: 'verdict' },
      h('p', { class: c.sound ? 'good' : 'bad' }, h('strong', { text: c.sound ? (c.proved ? '✓ Proved' : '✓ No fault found') : `⚠ ${many(c.findings.length, 'finding')}` }),
        h('span', { text: c.proved ? ': the time column was read whole, is sorted, and is what the frame says.' : '' })),
      h('p', { class: 'line', text: `${many(c.rows, 'Parquet row')}${c.distinct === undefined ? '' : `, ${many(c.distinct, 'timestamp')}${c.distinct ? `, ${t(c.first)} to ${t(c.last)}` : ''}`}, ${bytes(c.length)} at offset ${number(c.offset)}` }),
      ...c.findings.map((f) => h('p', { class: 'bad' }, h('button', {
        class: 'link', type: 'button', text: f.kind, onclick: () => this.app.selectPlace(f),
      }), h('span', { text: visible(` ${f.message}${f.expected ? ` · expected ${f.expected}` : ''}${f.found ? `, found ${f.found}` : ''}`) }))),
      ...c.unchecked.map((u) => h('p', { class: 'line', text: visible(`not checked: ${u}`) })));
  }

  about(m) {
    const out = [];
    out.push(h('p', { class: 'line', text: visible(`Parquet version ${m.version}, ${many(m.leaves.length, 'column')}, ${many(m.groups.length, 'row group')}, footer ${bytes(m.metadataLength)}${m.created ? `, written by ${m.created}` : ''}`) }));
    const odd = m.groups.flatMap((g) => g.columns).filter((c) => !CODECS.includes(c.codec));
    if (odd.length) {
      const names = [...new Set(odd.map((c) => c.path))];
      out.push(h('p', { class: 'bad', role: 'status', text: visible(`⚠ Not shown: ${names.slice(0, 20).join(', ')}${names.length > 20 ? ` and ${number(names.length - 20)} more` : ''}, compressed with ${[...new Set(odd.map((c) => c.codec ?? 'an unknown codec'))].join(', ')}, which this page does not read.`) }));
    }
    out.push(this.rows(m, new Set(odd.map((c) => c.top))));
    out.push(h('details', {}, h('summary', { text: `Row groups (${number(m.groups.length)})` }),
      h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Row groups' }, h('table', {},
        h('thead', {}, h('tr', {}, ['group', 'first row', 'rows', 'packed', 'raw'].map((t) => h('th', { text: t })))),
        h('tbody', {}, m.groups.slice(0, 1000).map((g, i) => h('tr', {}, [i, m.groups.slice(0, i).reduce((n, x) => n + x.rows, 0), g.rows].map((v) => h('td', { text: number(v) })),
          h('td', { text: bytes(g.columns.reduce((n, c) => n + c.packed, 0)) }), h('td', { text: bytes(g.columns.reduce((n, c) => n + c.raw, 0)) }))))))));
    out.push(h('details', {}, h('summary', { text: `Schema and columns (${number(m.leaves.length)})` }), this.columnsTable(m)));
    if (m.pairs.length) {
      out.push(h('details', {}, h('summary', { text: `Metadata (${number(m.pairs.length)})` }),
        ...m.pairs.slice(0, 200).map(([k, v]) => h('div', { class: 'pair' }, h('span', { class: 'dim', text: visible(k) }), h('span', { text: visible(v) })))));
    }
    return out;
  }

  columnsTable(m) {
    const head = ['group', 'column', 'type', 'codec', 'encodings', 'values', 'nulls', 'packed', 'raw', 'min', 'max'];
    const lines = m.groups.flatMap((g, i) => g.columns.map((c) => ({ g: i, ...c })));
    return h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Columns' }, h('table', {},
      h('thead', {}, h('tr', {}, head.map((t) => h('th', { text: t })))),
      h('tbody', {}, lines.slice(0, 1000).map((c) => {
        const l = m.leaves[c.leaf];
        return h('tr', {}, [c.g, c.path, `${l?.type ?? ''}${l?.logical ? ` (${l.logical})` : ''} ${l?.repetition ?? ''}`.trim(), c.codec, c.encodings?.join(' '), number(c.values),
          c.nulls ?? '', bytes(c.packed), bytes(c.raw), c.min ?? '', c.max ?? ''].map((v) => h('td', { text: visible(String(v ?? '')) })));
      })),
      lines.length > 1000 ? h('tfoot', {}, h('tr', {}, h('td', { colspan: head.length, text: `and ${number(lines.length - 1000)} more` }))) : null));
  }

  /** The rows; the columns in odd are not chosen at first. Columns go by their numbers: a name may be there twice. */
  rows(m, odd) {
    const every = m.columns.map((_, i) => i);
    let chosen = every.filter((c) => !odd.has(c)).slice(0, FIRST_COLUMNS);
    const time = m.columns.indexOf('timestamp');
    if (time >= 0 && !odd.has(time) && !chosen.includes(time)) chosen.unshift(time);
    const head = h('div', { class: 'p-head' });
    const scroll = h('div', { class: 'p-rows', tabindex: '0', role: 'region', 'aria-label': 'Rows of the Parquet file' }, head);
    let pages = new Map();
    const note = h('p', { class: 'bad', hidden: true, role: 'status' });
    const list = new VirtualList(scroll, {
      rowHeight: 20,
      make: () => h('div', { class: 'p-row' }),
      fill: (e, i) => {
        const page = pages.get(Math.floor(i / PAGE));
        const r = Array.isArray(page) ? page[i % PAGE] : null;
        while (e.children.length < chosen.length + 1) e.append(h('span', { class: 'p-cell' }));
        while (e.children.length > chosen.length + 1) e.lastChild.remove();
        e.children[0].textContent = i;
        chosen.forEach((c, j) => {
          const v = r ? r[j] : '';
          const cell = e.children[j + 1];
          cell.textContent = v === null ? 'null' : visible(v);
          cell.classList.toggle('dim', v === null);
          cell.title = cell.textContent;
        });
        if (!page) load(Math.floor(i / PAGE));
      },
    });
    const load = async (p) => {
      const mine = pages;
      pages.set(p, 'asked');
      try {
        const { rows, wrong } = await this.reader.ask('rows', { columns: chosen, from: p * PAGE, count: Math.min(PAGE, m.rows - p * PAGE) });
        mine.set(p, rows);
        if (mine !== pages) return;
        list.draw();
        if (!wrong.length) return;
        note.hidden = false;
        note.textContent = visible(`⚠ These rows can’t be read: ${wrong.slice(0, 20).map((w) => `${m.columns[w.column]}: ${w.message}`).join('; ')}${wrong.length > 20 ? `; and ${number(wrong.length - 20)} more columns` : ''}`);
      } catch (e) {
        if (e instanceof Stale) return;
        note.hidden = false;
        note.textContent = `⚠ These rows can’t be read: ${visible(e.message)}`;
      }
    };
    const choose = () => {
      head.replaceChildren(h('span', { class: 'p-cell', text: '#' }), ...chosen.map((c) => h('span', { class: 'p-cell', text: visible(m.columns[c]), title: visible(m.columns[c]) })));
      scroll.style.setProperty('--cells', chosen.length);
      pages = new Map();
      note.hidden = true;
      list.draw();
    };
    const picks = h('div', { class: 'picks' }, every.slice(0, MAX_PICKS).map((c) => h('label', {}, h('input', {
      type: 'checkbox', checked: chosen.includes(c),
      onchange: (e) => {
        const on = new Set(chosen);
        if (e.target.checked) on.add(c);
        else on.delete(c);
        chosen = every.filter((x) => on.has(x));
        choose();
      },
    }), h('span', { text: visible(m.columns[c]) }))), m.columns.length > MAX_PICKS ? h('span', { class: 'dim', text: `and ${number(m.columns.length - MAX_PICKS)} more, which can’t be chosen` }) : null);
    scroll.style.height = `${Math.min(280, 46 + 20 * Math.max(0, m.rows))}px`;
    choose();
    // The list measures itself once it is in the page.
    requestAnimationFrame(() => list.setCount(Math.max(0, m.rows)));
    return h('section', {}, h('details', {}, h('summary', { text: `Choose columns (${number(m.columns.length)})` }), picks),
      h('p', { class: 'line', text: many(m.rows, 'row') }), note, scroll);
  }
}
