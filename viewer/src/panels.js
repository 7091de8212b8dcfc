// The side panel: findings, sources, search, and the capture's files.

import { $, h, say, visible } from './dom.js';
import { quote, sameFinding, sameSource } from './expression.js';
import { bytes, hex, many, number, span, time } from './format.js';
import { VirtualList } from './list.js';
import { settings } from './settings.js';

const PAGE = 100;
const MAX_NOTES = 200;
/** How many files and, of each, what was found when it was recorded, are listed. */
const MAX_FILES = 1000;
const MAX_TOLD = 50;

/** All that a finding says, a line each. */
const wholeOf = (f) => [f.message, f.expected && `expected ${f.expected}`, f.found && `found ${f.found}`, f.cost].filter(Boolean).map(visible).join('\n');

/** Findings, fetched by pages. */
export class Findings {
  constructor(app) {
    this.app = app;
    this.el = $('findings');
    this.pages = new Map();
    this.list = new VirtualList(this.el, {
      rowHeight: 75,
      make: () => h('div', { class: 'finding', role: 'option' }, h('div', { class: 'kind' }), h('div', { class: 'message' }), h('div', { class: 'place' })),
      fill: (e, i) => this.fill(e, i),
    });
    this.at = -1;
    this.el.addEventListener('click', (e) => {
      const f = e.target.closest('.finding');
      if (f) this.select(f.index);
    });
    this.el.addEventListener('keydown', (e) => {
      const to = this.list.step(e, this.at);
      if (to === undefined) return;
      e.preventDefault();
      this.select(to);
    });
  }

  reset() {
    this.pages = new Map();
    this.kept = 0;
    this.at = -1;
    this.list.setCount(0);
    $('finding-count').textContent = '';
    $('no-findings').hidden = false;
    $('no-findings').textContent = 'Nothing was found.';
    $('finding-kinds').replaceChildren();
    this.notes();
  }

  /** What is wrong beside the bytes: sidecars, arrival indexes, lengths. */
  notes() {
    const { notes } = this.app.info;
    $('notes').replaceChildren(...notes.slice(0, MAX_NOTES).map((n) => h(n.offset === undefined ? 'div' : 'button', {
      class: 'beside', type: 'button', onclick: n.offset === undefined ? null : () => this.app.gotoOffset(n.offset, { reveal: true }),
    }, h('strong', { text: `⚠ ${n.kind} ` }), h('span', { text: visible(n.message) }),
    n.expected || n.found ? h('span', { class: 'dim', text: visible(` · ${[n.expected && `expected ${n.expected}`, n.found && `found ${n.found}`].filter(Boolean).join(', ')}`) }) : null,
    n.offset === undefined ? null : h('span', { class: 'dim', text: ` · offset ${number(n.offset)}` }))),
    ...(notes.length > MAX_NOTES ? [h('div', { class: 'line', text: `and ${number(notes.length - MAX_NOTES)} more` })] : []));
    if (notes.length) {
      $('finding-count').textContent = number(notes.length);
      $('no-findings').hidden = true;
    }
  }

  update(status, done) {
    const { keptFindings: kept } = status;
    if (kept !== this.kept) this.pages.delete(Math.floor(this.kept / PAGE));
    this.kept = kept;
    // What only the sidecars tell comes behind the rest.
    this.list.setCount(kept + this.app.told.length);
    const all = this.app.found;
    $('finding-count').textContent = all ? number(all) : '';
    $('no-findings').hidden = all > 0;
    $('no-findings').textContent = done ? 'Nothing to report.' : 'Nothing so far.';
    $('more-findings').hidden = status.findings <= kept;
    $('more-findings').textContent = `The first ${number(kept)} of ${number(status.findings)}; a filter such as “finding” shows all rows.`;
    const kinds = Object.entries(status.byFinding);
    $('finding-kinds').replaceChildren(...kinds.map(([k, n]) => h('button', {
      class: 'chip bad', type: 'button', title: `Show only rows with ${k}`, onclick: () => this.app.addFilter(`finding == ${quote(k)}`, sameFinding),
    }, h('span', { text: k }), h('span', { class: 'n', text: number(n) }))));
  }

  fill(e, i) {
    const p = Math.floor(i / PAGE);
    const page = this.pages.get(p);
    e.setAttribute('aria-selected', i === this.at ? 'true' : 'false');
    e.setAttribute('aria-posinset', i + 1);
    e.setAttribute('aria-setsize', this.list.count);
    e.classList.toggle('selected', i === this.at);
    e.id = `finding-${i}`;
    const [kind, message, place] = e.children;
    if (i >= this.kept) {
      this.fillTold(kind, message, place, e, this.app.told[i - this.kept]);
      return;
    }
    const it = Array.isArray(page) ? page[i % PAGE] : null;
    if (!it) {
      kind.textContent = '…';
      message.textContent = place.textContent = '';
      if (!page) this.load(p);
      return;
    }
    const f = it.finding;
    kind.textContent = f.kind;
    message.textContent = visible(f.message);
    message.title = e.title = wholeOf(f);
    place.textContent = `${it.frame ? `frame ${number(it.frame)} · ` : ''}offset ${number(f.at ?? f.offset)}${f.field ? ` · ${visible(f.field)}` : ''}`;
  }

  /** One that its sidecar alone tells. */
  fillTold(kind, message, place, e, f) {
    kind.textContent = visible(f.kind);
    message.textContent = visible(f.message);
    message.title = e.title = wholeOf(f);
    place.textContent = `offset ${number(f.at ?? f.offset)} · told by the sidecar alone`;
  }

  /** Fetches a page, once at a time. */
  load(p) {
    const { pages } = this;
    const was = pages.get(p);
    if (was) return was;
    const asked = (async () => {
      try {
        const list = await this.app.link.ask('findings', { from: p * PAGE, count: PAGE });
        if (pages.get(p) === asked) pages.set(p, list);
        if (this.pages === pages) this.list.draw();
        return list;
      } catch {
        if (pages.get(p) === asked) pages.delete(p);
        return [];
      }
    })();
    pages.set(p, asked);
    return asked;
  }

  async select(i) {
    if (i < 0 || i >= this.list.count) return;
    this.at = i;
    this.el.setAttribute('aria-activedescendant', `finding-${i}`);
    this.list.show(i);
    if (i >= this.kept) {
      const f = this.app.told[i - this.kept];
      await this.app.gotoOffset(f.at ?? f.offset, { reveal: true });
      return;
    }
    // It may lie far beyond what is on the screen.
    const page = await this.load(Math.floor(i / PAGE));
    const it = page[i % PAGE];
    if (this.at !== i || !it) return;
    await this.app.gotoRow(it.row);
    this.app.selectPlace(it.finding);
  }
}

/** Sources: who they are, what of them there is, what is missing. */
export class Sources {
  constructor(app) {
    this.app = app;
    this.el = $('sources');
    this.open = new Set();
    this.told = new Map();
  }

  reset() {
    this.open.clear();
    this.told.clear();
    this.el.replaceChildren();
  }

  show(list) {
    this.list = list;
    const mode = settings.time;
    this.el.replaceChildren(...(list.length ? list.slice(0, 500).map((s) => this.one(s, mode)) : [h('p', { class: 'empty', text: 'No sources: this protocol names none, or no frame did.' })]),
      ...(list.length > 500 ? [h('p', { class: 'empty', text: `and ${number(list.length - 500)} more` })] : []));
  }

  one(s, mode) {
    const origin = this.app.origin;
    const range = s.from === undefined ? 'no times' : `${time(s.from, mode, origin)} to ${time(s.to, mode, origin)} (${span(BigInt(s.to) - BigInt(s.from))})`;
    const d = h('details', { class: 'source', open: this.open.has(s.id) });
    d.addEventListener('toggle', () => {
      if (d.open) {
        this.open.add(s.id);
        this.tell(s, d);
      } else this.open.delete(s.id);
    });
    const lost = Object.entries(s.findings);
    d.append(...[
      h('summary', {}, h('strong', { text: s.label ?? `source ${s.id}` }), h('span', { class: 'dim', text: ` #${s.id} · ${many(s.rows, 'frame')} · ${bytes(s.bytes)}` })),
      h('div', { class: 'line', text: range }),
      h('div', { class: 'line', text: Object.entries(s.kinds).map(([k, n]) => `${k} ${number(n)}`).join(', ') }),
      lost.length ? h('div', { class: 'line bad', text: `⚠ ${lost.map(([k, n]) => `${k} ${number(n)}`).join(', ')}` }) : h('div', { class: 'line', text: 'nothing missing was found' }),
      h('div', { class: 'actions' },
        h('button', { type: 'button', text: 'Only this', onclick: () => this.app.addFilter(`source == ${s.id}`, sameSource) }),
        h('button', { type: 'button', text: 'First frame', onclick: () => this.app.gotoRow(s.first) }),
        h('button', { type: 'button', text: 'Last frame', onclick: () => this.app.gotoRow(s.last) })),
      h('div', { class: 'told' }),
      s.streams.length ? h('table', {},
        h('thead', {}, h('tr', {}, h('th', { text: 'stream' }), h('th', { text: 'frames' }), h('th', { text: 'bytes' }), h('th', { text: 'span' }))),
        h('tbody', {}, s.streams.map((t) => h('tr', {},
          h('td', {}, h('button', { class: 'link', type: 'button', text: t.name, onclick: () => this.only(s, t) })),
          h('td', { text: number(t.rows) }), h('td', { text: bytes(t.bytes) }),
          h('td', { text: t.from === undefined ? '' : span(BigInt(t.to) - BigInt(t.from)), title: t.from === undefined ? '' : `${time(t.from, mode, origin)} to ${time(t.to, mode, origin)}` }))))) : null,
      s.more ? h('div', { class: 'line', text: `and ${many(s.more, 'frame')} of further streams` }) : null,
    ].filter(Boolean));
    if (d.open) this.tell(s, d);
    return d;
  }

  /** Shows only a stream, by its name as it is in the capture. */
  async only(s, t) {
    const name = await this.app.link.ask('streamName', { number: t.number });
    const { longest } = this.app.words;
    if (name.length > longest / 2) say(`The name of this stream has ${number(name.length)} characters: more than a filter takes.`, true);
    else this.app.addFilter(`source == ${s.id} and stream == ${name}`, sameSource);
  }

  /** Labels and metadata, from the frame that told them last. */
  async tell(s, d) {
    const at = d.querySelector('.told');
    if (s.told < 0 || at.childElementCount) return;
    const key = `${s.id}/${s.told}`;
    let flat = this.told.get(key);
    if (!flat) {
      try {
        flat = await this.app.link.ask('flat', { row: s.told });
      } catch {
        return;
      }
      this.told.set(key, flat);
    }
    const lines = flat.lines.filter((l) => /^(uuid|labels|metadata)\b/.test(l.key) && l.value !== undefined);
    at.replaceChildren(...lines.slice(0, 200).map((l) => h('div', { class: 'pair' }, h('span', { class: 'dim', text: l.key.replace(/^(labels|metadata)\./, '') }), h('span', { text: l.value }))),
      h('button', { class: 'link', type: 'button', text: `told by frame ${number(s.toldFrame)}`, onclick: () => this.app.gotoRow(s.told) }));
  }
}

/** Search for text or bytes over everything. */
export class Search {
  constructor(app) {
    this.app = app;
    this.hits = [];
    this.list = new VirtualList($('hits'), {
      rowHeight: 20,
      make: () => h('div', { class: 'hit', role: 'option' }),
      fill: (e, i) => {
        e.textContent = `offset ${number(this.hits[i])}  0x${hex(this.hits[i])}`;
        e.setAttribute('aria-selected', i === this.at ? 'true' : 'false');
        e.setAttribute('aria-posinset', i + 1);
        e.setAttribute('aria-setsize', this.hits.length);
        e.classList.toggle('selected', i === this.at);
        e.id = `hit-${i}`;
      },
    });
    this.at = -1;
    $('search').addEventListener('submit', (e) => {
      e.preventDefault();
      this.start();
    });
    $('hits').addEventListener('click', (e) => {
      const r = e.target.closest('.hit');
      if (r) this.select(r.index);
    });
    $('hits').addEventListener('keydown', (e) => {
      const to = this.list.step(e, this.at);
      if (to === undefined) return;
      e.preventDefault();
      this.select(to);
    });
    $('search-cancel').addEventListener('click', () => app.link.ask('cancel', { what: 'search' }));
    app.link.on('found', (m) => this.found(m));
  }

  reset() {
    this.hits = [];
    this.at = -1;
    this.list.setCount(0);
    $('search-state').textContent = '';
    $('search-cancel').hidden = true;
  }

  async start() {
    this.reset();
    const kind = $('search-kind').value;
    this.length = 0;
    // What an earlier search still finds is not of this one.
    const of = this.of = (this.of ?? 0) + 1;
    const wrong = await this.app.link.ask('search', { of, text: $('search-text').value, hex: kind === 'hex', ignoreCase: kind === 'text' });
    if (of !== this.of) return;
    if (wrong) {
      $('search-state').textContent = wrong;
      return;
    }
    $('search-cancel').hidden = false;
    $('search-state').textContent = 'searching…';
  }

  found(m) {
    if (m.of !== this.of) return;
    for (const o of m.hits) this.hits.push(o);
    this.list.setCount(this.hits.length);
    const { start, end } = this.app.info;
    const part = m.done ? '' : ` · ${Math.floor((100 * (m.at - start)) / Math.max(1, end - start))} %`;
    $('search-state').textContent = `${number(m.total)}${m.more ? ' or more' : ''} found${part}`;
    this.length = m.length ?? this.length;
    if (m.done) $('search-cancel').hidden = true;
  }

  /** The search was stopped, by a person or by what went wrong. */
  stopped(m) {
    if (m.of !== this.of) return;
    $('search-cancel').hidden = true;
    $('search-state').textContent = `${number(this.hits.length)} found, stopped${m.message ? `: ${visible(m.message)}` : ''}`;
  }

  async select(i) {
    if (i < 0 || i >= this.hits.length) return;
    this.at = i;
    $('hits').setAttribute('aria-activedescendant', `hit-${i}`);
    this.list.show(i);
    await this.app.gotoOffset(this.hits[i], { reveal: true, length: this.length });
  }
}

/** The files of the capture, and how it ended. */
export function showCapture(app) {
  const { info } = app;
  const mode = settings.time;
  const rows = [
    ['protocol', info.protocol ?? 'unknown'],
    ['direction', info.direction || 'not known'],
    ['bytes', `${number(info.end - info.start)} (${bytes(info.end - info.start)}), offsets ${number(info.start)} to ${number(info.end)}`],
  ];
  $('capture').replaceChildren(
    h('dl', {}, rows.flatMap(([k, v]) => [h('dt', { text: k }), h('dd', { text: v })])),
    ...compared(app),
    ...info.files.slice(0, MAX_FILES).map((f) => h('div', { class: 'file' },
      h('button', { class: 'link', type: 'button', text: visible(f.name), onclick: () => app.gotoOffset(f.start) }),
      h('div', { class: 'line', text: `offsets ${number(f.start)} to ${number(f.end)}, ${bytes(f.end - f.start)}${f.partial ? ', not sealed' : ''}` }),
      f.arrivals?.records ? h('div', { class: 'line', text: `${many(f.arrivals.records, 'read')}, ${time(f.arrivals.first, mode, app.origin)} to ${time(f.arrivals.last, mode, app.origin)}` }) : null,
      f.side?.endpoint ? h('div', { class: 'line', text: visible(`from ${f.side.endpoint}`) }) : null,
      f.side?.pair ? h('div', { class: 'line' }, otherWay(app, f.side.pair)) : null,
      f.side?.closed ? h('div', { class: 'line', text: visible(`closed: ${f.side.closed}${f.side.closedDetail ? `, ${f.side.closedDetail}` : ''}`) }) : null,
      f.side?.transport ? h('div', { class: 'line', text: visible(`transport: ${f.side.transport.verdict}${f.side.transport.detail ? `, ${f.side.transport.detail}` : ''}`) }) : null,
      f.side?.sha256 ? h('div', { class: 'line mono', text: `sha256 ${visible(f.side.sha256)}` }) : null,
      f.side?.findings.length ? h('details', {}, h('summary', { class: 'bad', text: `⚠ ${many(f.side.found, 'finding')} told by its sidecar` }),
        ...f.side.findings.slice(0, MAX_TOLD).map((x) => h('button', { class: 'link line', type: 'button', text: visible(`${x.kind} at ${number(x.offset)}: ${x.message}`), onclick: () => app.gotoOffset(x.offset, { reveal: true }) }))) : null,
      f.side?.omitted?.length ? h('div', { class: 'line bad', text: visible(`⚠ its context lacks ${f.side.omitted.join(', ')}`) }) : null)),
    ...(info.files.length > MAX_FILES ? [h('p', { class: 'line', text: `and ${many(info.files.length - MAX_FILES, 'further file')}` })] : []));
}

/** The connection that holds the other direction, to go to where it was opened too. */
function otherWay(app, name) {
  const other = app.connections.all.find((c) => c.name === name);
  const text = visible(`the other direction: ${name}`);
  return other ? h('button', { class: 'link', type: 'button', text, onclick: () => app.connections.open(other.id) }) : h('span', { text });
}

/** What is known of the bytes against their arrival indexes, and the way to know all of it. */
function compared(app) {
  const indexed = app.info.files.filter((f) => f.compared);
  const some = app.info.files.filter((f) => f.arrivals || f.compared);
  if (!some.length) return [];
  const whole = indexed.length === some.length && indexed.every((f) => f.compared.whole);
  const fits = indexed.every((f) => f.compared.fits);
  const text = !fits ? '⚠ Some bytes do not fit their arrival index: see the findings.'
    : whole ? '✓ All bytes fit their arrival index (CRC-32C of each read).' : 'Some reads were held against the arrival index, and fit.';
  return [h('p', { class: fits ? whole ? 'line good' : 'line' : 'line bad', text }),
    ...(whole ? [] : [h('div', { class: 'actions file' }, h('button', { id: 'compare-arrivals', type: 'button', text: 'Compare all bytes', onclick: () => app.compareArrivals() }),
      h('span', { id: 'compare-state', class: 'dim', role: 'status' }))])];
}
