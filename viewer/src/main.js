// The page: what is open, what is selected, and how the parts hear of it.

import { $, h, say, visible } from './dom.js';
import { bytes, colours, hex, many, number, parseShown, rowName, time } from './format.js';
import { COLUMNS, Frames } from './frames.js';
import { Hex, PAGE as HEX_PAGE } from './hex.js';
import { Link, Stale } from './link.js';
import { fetchList } from './listing.js';
import { Complete } from './complete.js';
import { Compare } from './compare.js';
import { Connections } from './connections.js';
import { withCondition } from './expression.js';
import { gather } from './dropped.js';
import { Findings, Search, Sources, showCapture } from './panels.js';
import { Segment } from './segment.js';
import { Timeline } from './timeline.js';
import { PAGE as TREE_PAGE, Tree } from './tree.js';
import { set, settings } from './settings.js';

/* global SINGLE */

const KEYS = [
  SINGLE ? ['o, Shift O', 'open files, a folder'] : ['o, Shift O, u', 'open files, a folder, a URL'],
  ['↑ ↓ or k j', 'move in the list, the tree, the bytes, the findings and what else is listed'],
  ['Page Up, Page Down, Home, End', 'move far'],
  ['→ ←', 'open and close a field'],
  ['1 2 3', 'go to the frame list, the fields, the bytes'],
  ['4', 'go to the side panel'],
  ['[ ]', 'the tab before and after, in the panel that has the focus'],
  ['/', 'filter'],
  ['g', 'go to a row number, an @offset or a time'],
  ['f', 'search bytes'],
  ['n, Shift N', 'next and previous row with a finding'],
  ['l', 'the list of connections'],
  ['< >', 'the connection before and after'],
  ['a', 'the timeline: ← → move, Shift selects a span, Enter goes there'],
  ['x', 'the axis of the timeline: bytes, data time, arrival'],
  ['c', 'hold the frame, to compare others with it'],
  ['s', 'save the selected field’s bytes'],
  ['t', 'times in UTC, local, relative, nanoseconds'],
  ['b', 'show or hide the side panel'],
  ['Esc', 'close a list of completions, stop opening, the index pass or a filter'],
  [',', 'settings'],
  ['?', 'this sheet'],
];

/** How many files are looked into for one that is a connection. */
const MAX_TRIED = 200;
/** How many doubts of the bytes of one row are listed with it. */
const MAX_DOUBTS = 10;
/** How many characters of a filter are shown around what is wrong with it. */
const AROUND = 60;

/** What a tab of the side panel gives the focus to. */
const SIDE = { 'tab-connections': 'connections', 'tab-findings': 'findings', 'tab-sources': 'pane-sources', 'tab-search': 'search-text', 'tab-capture': 'pane-capture' };

class App {
  constructor() {
    this.link = new Link();
    this.info = null;
    this.status = null;
    this.unit = null;
    this.words = null;
    this.sources = [];
    this.told = []; // what only the sidecars tell, once all is indexed
    this.hasArrivals = false;
    this.origin = 0n;
    // A link to a frame is for what is opened first.
    this.link0 = location.hash;
    this.frames = new Frames(this);
    this.tree = new Tree(this);
    this.hex = new Hex(this);
    this.connections = new Connections(this);
    this.timeline = new Timeline(this);
    this.findings = new Findings(this);
    this.sourcesPanel = new Sources(this);
    this.search = new Search(this);
    this.segment = new Segment(this, $('pane-segment'));
    this.compare = new Compare(this, $('pane-compare'));
    this.complete = new Complete($('filter'), this);
    this.link.on('index', (m) => this.indexed(m));
    this.link.on('hits', (m) => this.hits(m));
    this.link.on('compared', (m) => { if ($('compare-state')) $('compare-state').textContent = `${Math.floor((100 * m.at) / Math.max(1, m.total))} %`; });
    this.link.on('noted', (m) => this.noted(m.note));
    this.link.on('failed', (m) => this.broke(m));
    this.link.on('cancelled', (m) => this.cancelled(m));
    // An answer of what is no longer shown is no failure, wherever it was
    // waited for.
    addEventListener('unhandledrejection', (e) => {
      if (e.reason instanceof Stale) e.preventDefault();
      else this.failed(e.reason);
    });
    this.wire();
    this.theme();
    this.layout();
  }

  async start() {
    try {
      const { protocols } = await this.link.start();
      this.protocols = protocols;
    } catch (e) {
      $('what').textContent = `The decoder can’t be started: ${e.message}`;
      return;
    }
    document.body.dataset.ready = '1';
    const q = new URLSearchParams(location.search);
    if (q.has('url')) await this.openUrl(q.get('url'));
    else if (q.has('list')) await this.openList(q.get('list'));
  }

  failed(e) {
    if (e instanceof Stale) return;
    say(e.message, true);
    if (e.changed) $('state').textContent = 'the file was changed: open it again';
  }

  // ── Opening ────────────────────────────────────────────────────────────

  async openFiles(list) {
    const files = [...list].map((f) => ({ path: f.path ?? (f.webkitRelativePath || f.name), file: f.file ?? f }));
    if (!files.length) return this.nothing('There is no file in it.');
    return this.open(files);
  }

  async openUrl(url) {
    let u;
    try {
      u = new URL(url, document.baseURI);
    } catch {
      return this.nothing(`${visible(url)} is no URL.`);
    }
    if (u.protocol !== 'http:' && u.protocol !== 'https:') return this.nothing('Only http and https URLs can be opened.');
    let name = u.pathname.split('/').pop() || u.host;
    try {
      name = decodeURIComponent(name);
    } catch {
      // It is shown as it is written.
    }
    return this.open([{ path: name, url: u.href }]);
  }

  /** Opens what a list names (listing.js). */
  async openList(url) {
    const mine = this.listing = new AbortController();
    try {
      const base = new URL(url, document.baseURI);
      $('what').textContent = 'Opening…';
      await this.open(await this.during(() => fetchList(base, mine)));
    } catch (e) {
      if (this.listing !== mine) return; // something else was opened meanwhile
      this.nothing(e.name === 'AbortError' ? 'Opening was stopped.' : `The list of captures can’t be read: ${e.message}.`);
    }
  }

  async open(files) {
    this.closeAll();
    this.connections.reset([]);
    $('what').textContent = 'Opening…';
    this.listing?.abort();
    this.listing = null;
    return this.during((mine) => this.openAll(files, mine));
  }

  async openAll(files, mine) {
    try {
      const { connections } = await this.moving('open', { files });
      if (!connections.length) return this.nothing('There is no capture in it: no file with a connection’s bytes.');
      this.connections.reset(connections);
      // A link to what is not here is kept, for what is opened next.
      if (this.missed && this.connections.named(this.missed).id >= 0) this.link0 = this.missed;
      this.missed = '';
      const named = this.connections.named(this.link0);
      if (named?.id < 0) [this.missed, this.link0] = [this.link0, ''];
      this.linkSays = named?.says;
      const id = named?.id >= 0 ? named.id : await this.likely(connections);
      // Stopped between two of the worker's answers, which then knows of nothing to stop.
      if (mine.stopped) this.nothing('Opening was stopped.');
      else await this.select(id);
    } catch (e) {
      if (!(e instanceof Stale)) this.nothing(e.message);
    }
  }

  /** The first of the connections that is one: of a capture, or of a protocol that is known. */
  async likely(connections) {
    const i = connections.findIndex((c) => !c.foreign);
    if (i >= 0 || connections.length === 1) return Math.max(i, 0);
    for (let from = 0; from < Math.min(connections.length, MAX_TRIED); from += 20) {
      const list = await this.link.ask('describe', { from, count: 20 });
      const found = list.findIndex((c) => c.protocol);
      if (found >= 0) return from + found;
    }
    return 0;
  }

  /** While what f gives is waited for, opening can be stopped; f is told in {stopped}. */
  async during(f) {
    const mine = this.pending = { stopped: false };
    const stoppable = (on) => { $('stop-opening').hidden = !on; };
    stoppable(true);
    try {
      return await f(mine);
    } finally {
      if (this.pending === mine) {
        this.pending = null;
        stoppable(false);
      }
    }
  }

  stopOpening() {
    this.listing?.abort();
    if (this.pending) this.pending.stopped = true;
    this.link.send('cancel', { what: 'open' }, undefined, false).catch(() => {});
  }

  /** Asks for what changes what is shown; settled() waits until that is so. */
  async moving(op, args) {
    const p = this.link.move(op, args);
    this.moved = p;
    return p;
  }

  async settled() {
    await Promise.resolve(this.moved).catch(() => {});
    await new Promise((r) => { setTimeout(r); });
  }

  closeAll() {
    this.info = this.unit = this.status = null;
    this.frames.reset();
    this.frames.selectedRow = -1;
    delete document.body.dataset.unit;
    delete document.body.dataset.done;
    document.body.classList.add('blank');
    $('read-as').hidden = true;
    $('connections-open').hidden = true;
  }

  nothing(text) {
    this.closeAll();
    $('what').textContent = visible(text);
    // What else was opened can be chosen from here.
    const others = this.connections.all.length > 1;
    $('welcome-list').hidden = !others;
    if (others) {
      $('welcome-list').append($('connections'));
      this.connections.list.draw();
    }
  }

  /** Shows a connection of what is open. at is an offset to go to. */
  async select(id, { protocol, at, byte = false } = {}) {
    let info;
    delete document.body.dataset.done; // it told of the one before
    try {
      info = await this.during(() => this.moving('select', { id, protocol }));
    } catch (e) {
      if (!(e instanceof Stale)) this.nothing(e.message);
      return;
    }
    this.unit = this.status = this.bins = null;
    this.told = [];
    delete document.body.dataset.unit;
    delete document.body.dataset.filtered;
    if (!info.protocol) {
      this.nothing(`${info.name}: ${info.what}.`);
      if (info.end > info.start) {
        $('read-as').hidden = false;
        $('read-as').replaceChildren(h('span', { text: 'Read it anyway, from its middle, as ' }),
          ...this.protocols.map((p) => h('button', { type: 'button', text: p, onclick: () => this.select(id, { protocol: p }) })));
      }
      return;
    }
    this.info = info;
    this.words = info.words;
    this.sources = [];
    this.noSources = this.noTimes = false;
    this.hasArrivals = info.files.some((f) => f.arrivals?.records);
    this.origin = info.files.find((f) => f.arrivals?.records)?.arrivals.first ?? null;
    if (at !== undefined) this.link0 = `#offset=${at}${byte ? '&byte' : ''}`;
    document.body.classList.remove('blank');
    const many = this.connections.all.length > 1;
    $('connections-open').hidden = !many;
    $('pane-connections').append($('connections'));
    $('file-name').textContent = visible(`${info.name} · ${info.protocol}${info.direction ? ` ${info.direction}` : ''} · ${bytes(info.end - info.start)}`);
    document.title = visible(`${info.name} – Wiretape`);
    this.frames.fittings = 0;
    this.frames.fitted = {};
    this.frames.settled = '';
    this.frames.columns();
    this.frames.reset();
    this.frames.selectedRow = -1;
    this.findings.reset();
    this.sourcesPanel.reset();
    this.search.reset();
    this.timeline.clear();
    this.tree.open({ fields: 0 });
    this.hex.close();
    this.segment.close();
    this.compare.reset();
    $('unit-findings').replaceChildren();
    $('unit-title').textContent = 'Bytes';
    $('place').textContent = '';
    showCapture(this);
    this.tab('detail-tabs', 'tab-tree');
    if (!many && this.sideTab === 'tab-connections') this.tab('side-tabs', 'tab-findings');
    else if (many && !this.sideTab) this.tab('side-tabs', 'tab-connections');
    this.connections.shown();
    this.address();
    if (info.notes.length) say(`${info.notes[0].kind}: ${info.notes[0].message}`, true);
    $('filter-wrong').hidden = true;
    this.first = this.saidNote = false;
    this.indexing = true;
    $('go-on').hidden = true;
  }

  /** Holds all bytes against the arrival indexes; pressed again it stops. */
  async compareArrivals() {
    if (this.comparing) {
      this.link.ask('cancel', { what: 'compare' });
      return;
    }
    this.comparing = true;
    $('compare-arrivals').textContent = 'Stop';
    const { id } = this.info;
    try {
      const { wrong } = await this.link.ask('compareArrivals', {});
      this.comparing = false;
      if (wrong) say('Some bytes do not fit their arrival index.', true);
      await this.select(id, { at: this.unit?.offset });
    } catch (e) {
      if (!(e instanceof Stale)) this.failed(e);
    }
    this.comparing = false;
    if (this.info) showCapture(this);
  }

  // ── What comes while the worker works ─────────────────────────────────

  indexed(m) {
    if (!this.info) return;
    this.status = m.status;
    this.colours = colours(m.status.kinds);
    this.told = m.told ?? [];
    this.indexing = !m.done;
    const { start, end } = this.info;
    const total = Math.max(1, end - start);
    if (this.origin === null) {
      const t = m.bins.time;
      if (t) this.origin = BigInt(t.from);
    }
    if (!this.frames.filtered) this.frames.setCount(m.status.rows);
    this.timeline.show(m.bins, m.status);
    this.findings.update(m.status, m.done);
    $('progress').hidden = m.done;
    $('progress').value = (m.status.end - start) / total;
    $('stop').hidden = m.done;
    $('go-on').hidden = !m.cancelled;
    const speed = m.ms > 50 ? ` · ${bytes(((m.status.end - start) / m.ms) * 1000)}/s` : '';
    // Under a filter it is the filter's state that is said.
    if (!this.frames.filtered || m.cancelled) $('state').textContent = `${many(m.status.rows, 'row')}${m.cancelled ? `, stopped at ${Math.floor((100 * (m.status.end - start)) / total)} %` : m.done ? '' : '…'}`;
    $('speed').textContent = m.done ? `indexed in ${(m.ms / 1000).toFixed(m.ms < 10000 ? 2 : 1)} s${speed} · decoder ${bytes(m.memory)}` : speed.slice(3);
    document.body.dataset.rows = m.status.rows;
    document.body.dataset.memory = m.memory;
    this.bins = m.bins;
    this.noSources = m.done && m.status.sources === 0;
    this.noTimes = m.done && !m.cancelled && !m.bins.time;
    this.frames.settle();
    if (m.done) this.frames.fit([]);
    if (m.done) {
      this.connections.indexed(m.status, m.bins, this.found);
      document.body.dataset.done = '1';
      this.loadSources();
    } else delete document.body.dataset.done;
    if (!this.first && m.status.rows > 0) {
      this.first = true;
      this.begin();
    } else if (m.done && this.awaited) this.begin();
  }

  /** What to show first: the place in the link, the filter that was kept. */
  async begin() {
    const at = /(?:^#|&)offset=(\d+)/.exec(this.link0);
    if (at && Number(at[1]) >= this.status.end && Number(at[1]) < this.info.end && this.indexing) {
      this.awaited = true; // the link’s place, by the index
      return;
    }
    this.awaited = false;
    const link = this.link0;
    this.link0 = '';
    const [says, outside] = [this.linkSays, at ? this.beyond(Number(at[1])) : ''];
    this.linkSays = '';
    const kept = $('filter').value || settings.filter;
    if (kept) {
      $('filter').value = kept;
      await this.setFilter(kept);
    }
    if (at && !outside) await this.gotoOffset(Number(at[1]), { reveal: /[#&]byte\b/.test(link) });
    else if (!this.frames.filtered) await this.frames.select(0, { show: true });
    if (says || outside) say([says, outside].filter(Boolean).join(' '), true);
  }

  /** What is to be said of a link to an offset that no byte has, or that was not come to. */
  beyond(offset) {
    const { start, end } = this.info;
    if (offset >= start && (offset < this.status.end || (this.status.end === end && offset === start))) return '';
    if (offset >= start && offset < end) return this.indexing ? `Offset ${number(offset)} is not indexed yet.` : `The index pass was stopped before offset ${number(offset)}.`;
    return `The link is to offset ${number(offset)}; the bytes go from offset ${number(start)} to ${number(end)}.`;
  }

  /** The address follows what is selected. */
  address() {
    const { current, all } = this.connections;
    const parts = [];
    if (this.unit) parts.push(`offset=${this.unit.offset}`);
    if (all.length > 1 && current) parts.push(`connection=${encodeURIComponent(this.connections.linkName(current))}`);
    history.replaceState(null, '', parts.length ? `#${parts.join('&')}` : location.pathname + location.search);
  }

  async loadSources() {
    try {
      this.sources = await this.link.ask('sources', {});
      this.sourcesPanel.show(this.sources);
    } catch (e) {
      this.failed(e);
    }
  }

  broke(m) {
    if (m.what === 'index') {
      this.indexing = false;
      $('progress').hidden = $('stop').hidden = true;
      $('go-on').hidden = !m.paused;
      $('state').textContent = 'stopped';
    }
    if (m.what === 'search') this.search.stopped(m);
    if (m.what === 'filter' && m.of === this.filtering) this.filterState(`${many(this.frames.list.count, 'row')} so far, stopped`);
    say(m.message, true);
    if (m.changed) $('state').textContent = 'the file was changed: open it again';
    if (m.what === 'worker') $('what').textContent = m.message;
  }

  cancelled(m) {
    if (m.what === 'search') this.search.stopped(m);
    if (m.what === 'filter' && this.frames.filtered && m.of === this.filtering) this.filterState(`${many(this.frames.list.count, 'row')} so far, stopped`, true);
  }

  /** How many findings there are: of the bytes, of what lies beside them, and what only the sidecars tell. */
  get found() {
    return (this.status?.findings ?? 0) + this.info.notes.length + this.told.length;
  }

  /** Something was found to be wrong beside the bytes while they are read. */
  noted(note) {
    // One is said; all of them are listed.
    if (!this.saidNote) say(`${note.kind}: ${note.message}`, true);
    this.saidNote = true;
    this.info.notes.push(note);
    this.findings.notes();
    if (this.status) this.findings.update(this.status, !this.indexing);
    if (!this.indexing && this.status) this.connections.indexed(this.status, this.bins, this.found);
    if (this.unit) this.unitFindings();
  }

  // ── Filter ─────────────────────────────────────────────────────────────

  async setFilter(expression) {
    expression = expression.trim();
    const mine = this.setting = {};
    $('filter-clear').hidden = !expression;
    $('filter-wrong').hidden = true;
    $('filter').removeAttribute('aria-invalid');
    if (!this.info) {
      set('filter', expression);
      return;
    }
    const keep = this.frames.selectedRow;
    if (!expression) {
      set('filter', '');
      this.link.ask('cancel', { what: 'filter' }).catch((e) => this.failed(e));
      if (this.frames.filtered) {
        this.frames.reset(false);
        this.frames.setCount(this.status?.rows ?? 0);
        this.filterState('');
        delete document.body.dataset.filtered;
        this.timeline.draw();
        if (keep >= 0) await this.frames.keep(keep);
      }
      return;
    }
    const { wrong, parts } = await this.link.ask('filter', { expression });
    if (this.setting !== mine) return; // another one was set meanwhile
    if (wrong) {
      const at = $('filter-wrong');
      // Of a long one what is around the fault.
      const [from, to] = [Math.max(0, wrong.from - AROUND), Math.min(wrong.to, wrong.from + AROUND)];
      at.replaceChildren(h('code', {}, h('span', { text: `${from > 0 ? '…' : ''}${expression.slice(from, wrong.from)}` }),
        h('mark', { text: expression.slice(wrong.from, to) || '⟂' }), h('span', { text: `${expression.slice(to, to + AROUND)}${to + AROUND < expression.length ? '…' : ''}` })), h('div', { text: wrong.message }));
      at.hidden = false;
      $('filter').setAttribute('aria-invalid', 'true');
      return;
    }
    set('filter', expression);
    this.frames.reset(true);
    this.filterDone = false;
    this.filtering = expression;
    this.parts = parts;
    delete document.body.dataset.filtered;
    this.filterState('looking…');
    this.timeline.draw();
  }

  /** Adds a condition, in place of those that ask the same (expression.js). */
  async addFilter(condition, same) {
    const f = $('filter');
    for (;;) {
      const was = f.value.trim();
      if (!was) f.value = condition;
      else {
        const { parts, wrong } = await this.link.ask('parts', { expression: was });
        if (f.value.trim() !== was) continue; // it was written to meanwhile
        // Nothing can be added to what is no filter: what is wrong with it is said.
        if (!wrong) f.value = withCondition(was, parts, condition, same);
      }
      this.setFilter(f.value);
      return;
    }
  }

  hits(m) {
    if (!this.frames.filtered || m.expression !== this.filtering) return;
    const first = this.frames.list.count === 0 && m.hits > 0;
    this.frames.setCount(m.hits);
    const { start, end } = this.info;
    this.filterState(m.done ? `${number(m.hits)} of ${many(this.status?.rows ?? 0, 'row')}` : `${many(m.hits, 'row')}, ${Math.floor((100 * (m.at - start)) / Math.max(1, end - start))} %`, m.done);
    document.body.dataset.filtered = m.done ? m.expression : '';
    this.filterDone = m.done;
    if (first && this.frames.selected < 0 && !this.frames.outside) this.frames.select(0);
    if (m.done) this.frames.filterEnded().catch((e) => this.failed(e));
  }

  filterState(text, done = true) {
    $('filter').title = text;
    $('stop').hidden = done && !this.indexing;
    if (text) $('state').textContent = text;
    else if (this.status) $('state').textContent = many(this.status.rows, 'row');
  }

  // ── Selection ──────────────────────────────────────────────────────────

  /** Columns that would be empty in this capture are not shown. */
  lacks(key) {
    if (key === 'arrival') return !this.hasArrivals;
    if (key === 'time') return this.noTimes;
    return (key === 'source' || key === 'stream') && this.noSources;
  }

  /** The day, in UTC or local, that all times of a column share, null when they don't. */
  dayOf(key) {
    if (settings.time !== 'utc' && settings.time !== 'local') return null;
    let from;
    let to;
    if (key === 'arrival') {
      const all = this.info?.files.filter((f) => f.arrivals?.records) ?? [];
      if (!all.length) return null;
      from = all[0].arrivals.first;
      to = all[all.length - 1].arrivals.last;
    } else {
      const t = this.bins?.time;
      if (!t) return null;
      let [a, b] = [t.kinds[0]?.length ?? 512, 0];
      for (const k of t.kinds) {
        k?.forEach((n, i) => { if (n) [a, b] = [Math.min(a, i), Math.max(b, i)]; });
      }
      from = BigInt(t.from) + BigInt(a) * BigInt(t.step);
      to = BigInt(t.from) + BigInt(b + 1) * BigInt(t.step);
    }
    const day = (v) => time(v, settings.time).slice(0, 10);
    return day(from) === day(to) ? day(from) : null;
  }

  /** The frame that is selected is open, not the one before it still. */
  get opened() {
    return Boolean(this.unit) && this.unit.row === this.frames.selectedRow && document.body.dataset.unit === String(this.unit.row);
  }

  /** The colour of a row's kind. */
  slot(r) {
    const i = this.status?.kinds.findIndex((k) => k.type === r.type && (r.type !== 'frame' || (k.kind === r.kind && k.name === r.name))) ?? -1;
    return i < 0 ? 0 : this.colours[i];
  }

  async openRow(row, then) {
    if (this.unit?.row === row && document.body.dataset.unit === String(row)) {
      // It is open: what was chosen in it stays.
      if (then) await then();
      return;
    }
    let u;
    const mine = this.opening = {};
    try {
      u = await this.link.ask('unit', { row, bytes: HEX_PAGE, children: TREE_PAGE });
    } catch (e) {
      this.failed(e);
      if (!(e instanceof Stale) && this.frames.selectedRow === row && this.opening === mine) this.closeUnit('This frame can’t be opened.');
      return;
    }
    if (this.frames.selectedRow !== row || this.opening !== mine) return;
    this.unit = u;
    $('unit-title').textContent = visible(`${u.name === rowName(u) ? '' : `${rowName(u).replace(/^./, (c) => c.toUpperCase())} · `}${u.name} · ${bytes(u.size)}`);
    this.hex.open(u);
    this.unitFindings();
    $('place').textContent = '';
    this.address();
    this.timeline.drawSoon();
    $('tab-segment').hidden = u.name !== 'Segment';
    if (u.name !== 'Segment' && this.detailTab === 'tab-segment') this.tab('detail-tabs', 'tab-tree');
    await this.tree.open(u);
    if (this.unit !== u) return; // another row, or another file, meanwhile
    document.body.dataset.unit = row;
    this.showTab();
    if (then) await then();
  }

  /** What was found in the row that is open, and what is in doubt of its bytes. */
  unitFindings() {
    const u = this.unit;
    const doubts = this.info.notes.filter((n) => n.end > u.offset && n.offset < u.offset + u.size)
      .map((n) => ({ ...n, offset: Math.max(n.offset, u.offset), length: Math.min(n.end, u.offset + u.size) - Math.max(n.offset, u.offset) }));
    $('unit-findings').replaceChildren(...[...u.findings, ...doubts.slice(0, MAX_DOUBTS)].map((f) => h('button', {
      class: 'unit-finding', type: 'button', onclick: () => this.selectPlace(f),
    }, h('strong', { text: `⚠ ${f.kind} ` }), h('span', { text: visible(f.message) }),
    f.expected || f.found ? h('span', { class: 'dim', text: visible(` · ${f.expected ? `expected ${f.expected}` : ''}${f.expected && f.found ? ', ' : ''}${f.found ? `found ${f.found}` : ''} · offset ${number(f.at ?? f.offset)}`) }) : null,
    f.cost ? h('span', { class: 'dim', text: visible(` · ${f.cost}`) }) : null)),
    ...(doubts.length > MAX_DOUBTS ? [h('div', { class: 'dim', text: `and ${number(doubts.length - MAX_DOUBTS)} more in its bytes` })] : []));
    this.hex.doubt(doubts);
  }

  /** Nothing is open: what was is not taken for what is selected now. */
  closeUnit(why) {
    this.unit = null;
    this.hex.close();
    this.tree.close();
    delete document.body.dataset.unit;
    $('unit-title').textContent = why;
    $('unit-findings').replaceChildren();
    $('place').textContent = '';
    $('tab-segment').hidden = true;
    if (this.detailTab === 'tab-segment') this.tab('detail-tabs', 'tab-tree');
  }

  showTab() {
    if (!this.unit) return;
    if (this.detailTab === 'tab-segment') this.segment.show(this.unit);
    if (this.detailTab === 'tab-compare') this.compare.show(this.unit);
  }

  /** A field was chosen in the tree, or found for a byte. */
  selectField(f, from) {
    this.hex.select(f, from !== 'hex');
    this.place(f);
  }

  place(f) {
    $('place').textContent = f ? visible(`${f.name || 'entry'} · offset ${number(f.offset)} (0x${hex(f.offset)}) · ${many(f.length, 'byte')}`) : '';
  }

  async selectByte(offset) {
    try {
      const path = await this.link.ask('locate', { offset });
      this.hex.list.draw();
      if (path.length) {
        this.tab('detail-tabs', 'tab-tree');
        await this.tree.reveal(path);
      } else {
        this.hex.select(null);
        $('place').textContent = `offset ${number(offset)} (0x${hex(offset)}), in no field`;
      }
    } catch (e) {
      this.failed(e);
    }
  }

  hover(f, from) {
    this.hex.light(f);
    if (from === 'tree') this.place(f ?? this.tree.field);
  }

  /** Lights the field of a byte under the pointer, once it rests there. */
  hoverByte(offset) {
    clearTimeout(this.hovering);
    if (offset < 0 || !this.unit?.fields) {
      this.hover(null, 'hex');
      this.tree.el.querySelectorAll('.lit').forEach((e) => e.classList.remove('lit'));
      return;
    }
    this.hovering = setTimeout(async () => {
      try {
        const path = await this.link.ask('locate', { offset });
        if (this.hex.hovered !== offset) return;
        const f = await this.fieldAt(path);
        this.hover(f, 'hex');
        this.place(f);
        this.tree.el.querySelectorAll('.lit').forEach((e) => e.classList.remove('lit'));
        const key = path.join('/');
        for (const e of this.tree.list.pool) {
          if (e.hidden) continue;
          const { parent, index } = this.tree.root.at(e.index);
          if ([...parent.path, index].join('/') === key) e.classList.add('lit');
        }
      } catch (e) {
        this.failed(e);
      }
    }, 25);
  }

  async fieldAt(path) {
    if (!path.length) return null;
    const [f] = await this.link.ask('children', { path: path.slice(0, -1), from: path[path.length - 1], count: 1 });
    return f ?? null;
  }

  isFaulty(f) {
    return Boolean(this.unit?.findings?.some((x) => x.field === f.name && (x.at ?? x.offset) >= f.offset && (x.at ?? x.offset) <= f.offset + f.length));
  }

  /** Goes to a finding's place inside the open frame. */
  async selectPlace(f) {
    const at = f.at ?? f.offset;
    if (!this.unit || at < this.unit.offset || at >= this.unit.offset + this.unit.size) return;
    try {
      this.tab('detail-tabs', 'tab-tree');
      // A finding about a field as a whole names it, one about a byte has its place.
      const named = f.at === undefined && f.field ? this.tree.fieldNamed(/^\w+/.exec(f.field)?.[0]) : -1;
      const path = named >= 0 ? [named] : await this.link.ask('locate', { offset: at });
      if (path.length) await this.tree.reveal(path, 'finding');
      if (named < 0) this.hex.select({ offset: at, length: Math.max(1, f.length ?? 1) }, true);
      $('place').textContent = visible(`${f.kind} · offset ${number(at)}`);
    } catch (e) {
      this.failed(e);
    }
  }

  async gotoRow(row) {
    return this.frames.goto(row);
  }

  /** Goes to a frame by its number, from 1; 0 is the preamble. */
  async gotoFrame(frame) {
    try {
      const row = frame === 0 ? 0 : await this.link.ask('frame', { number: frame });
      if (typeof row !== 'number') say(`There is no frame ${number(frame)}${this.indexing ? ' yet' : ''}.`, true);
      else await this.frames.goto(row);
    } catch (e) {
      this.failed(e);
    }
  }

  async gotoOffset(offset, { reveal = false, length = 0 } = {}) {
    try {
      const row = await this.link.ask('find', { offset });
      if (typeof row !== 'number') return;
      await this.frames.goto(row);
      if (reveal && this.unit?.row === row) {
        this.hex.cursor = offset;
        this.hex.list.show(Math.floor((offset - this.unit.offset) / this.hex.width));
        await this.selectByte(offset);
        if (length) this.hex.select({ offset, length }, true);
      }
    } catch (e) {
      this.failed(e);
    }
  }

  /** Goes to a time, of the data or of arrival. */
  async gotoTime(t, axis) {
    try {
      const asked = `${axis} >= ${t}`;
      // Under a filter, to the first of its rows.
      const row = this.frames.filtered ? await this.link.ask('first', { expression: `(${this.filtering}) and ${asked}` })
        : axis === 'arrival' ? await this.link.ask('findArrival', { time: t }) : await this.link.ask('first', { expression: asked });
      if (typeof row !== 'number') say(axis === 'arrival' ? 'Nothing came as late as that.' : 'No data is as late as that.');
      else await this.frames.goto(row);
    } catch (e) {
      this.failed(e);
    }
  }

  async goto(text) {
    text = text.trim().replace(/,/g, '');
    const offset = /^@(\d{1,16})$/.exec(text) ?? /^@?(0x[0-9a-f]{1,13})$/i.exec(text);
    if (offset) {
      const at = Number(offset[1]);
      if (at < this.info.start || at >= this.info.end) {
        say(`The bytes go from offset ${number(this.info.start)} to ${number(this.info.end)}.`, true);
        return undefined;
      }
      return this.gotoOffset(at);
    }
    if (/^#?\d{1,14}$/.test(text)) {
      return this.gotoFrame(Number(text.replace('#', '')));
    }
    // A time is of arrival or of the data as it says, or as the timeline's axis is,
    // or as it lies within one of them alone.
    const m = /^(?:(arrival|data|time)\s+)?(.+)$/i.exec(text);
    const t = m ? this.timeOf(m[2], m[1]) : null;
    if (t !== null) {
      const axis = m[1] ? (/arrival/i.test(m[1]) ? 'arrival' : 'time') : this.axisOf(t);
      if (axis === 'arrival' && !this.hasArrivals) {
        say('This connection has no arrival times.', true);
        return undefined;
      }
      return this.gotoTime(t, axis);
    }
    say('A frame number, an offset (@1234 or 0x4d2) or a time (2026-11-29T18:00:00, or arrival 2026-11-29T18:00:00)', true);
    return undefined;
  }

  /** A time as the view shows it; of the day that the column's name has, where it is one of a day. */
  timeOf(text, of = '') {
    const day = /arrival/i.test(of) || (!of && this.timeline.name === 'arrival') ? this.dayOf('arrival') : this.dayOf('time') ?? this.dayOf('arrival');
    return parseShown(text, settings.time, this.origin, day);
  }

  axisOf(t) {
    if (this.timeline.name !== 'bytes') return this.timeline.name;
    const { arrival } = this.info;
    const data = this.timeline.has('time') ? this.connections.current?.seen : null;
    const within = (from, to) => t >= from && t <= to;
    if (!arrival) return 'time';
    return within(arrival.from, arrival.to) && !(data?.from && within(data.from, data.to)) ? 'arrival' : this.timeline.has('time') ? 'time' : 'arrival';
  }

  async nextFinding(back) {
    const { selectedRow: from, filtered } = this.frames;
    try {
      const row = await this.link.ask('findingRow', { from, back, filtered });
      if (row !== null) return this.gotoRow(row);
      say(`No finding ${back ? 'before' : 'after'} this row${filtered ? ' in what the filter takes' : ''}${this.indexing && !back ? ' yet' : ''}.`);
    } catch (e) {
      this.failed(e);
    }
    return undefined;
  }

  hold() {
    // The one that is chosen, which may still be on its way.
    const row = this.frames.selectedRow;
    if (!this.info || row < 0) return;
    this.compare.hold(row);
    const name = this.unit?.row === row ? rowName(this.unit).replace(/^./, (c) => c.toUpperCase()) : 'The chosen frame';
    say(`${name} is held: choose another and look at Compare`);
  }

  // ── The page itself ────────────────────────────────────────────────────

  tab(list, id) {
    for (const t of $(list).querySelectorAll('[role=tab]')) {
      const on = t.id === id;
      t.setAttribute('aria-selected', String(on));
      t.tabIndex = on ? 0 : -1;
      $(t.getAttribute('aria-controls')).hidden = !on;
    }
    if (list === 'detail-tabs') {
      this.detailTab = id;
      $('copying').hidden = id !== 'tab-tree';
      this.showTab();
      if (id === 'tab-tree') this.tree.list.draw();
    } else {
      this.sideTab = id;
      if (id === 'tab-connections') this.connections.list.draw();
      if (id === 'tab-findings') this.findings.list.draw();
      if (id === 'tab-search') this.search.list.draw();
      if (id === 'tab-sources' && this.indexing) this.loadSources();
    }
  }

  theme() {
    const t = settings.theme;
    if (t === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = t;
    this.timeline.draw();
    this.connections.draw();
  }

  times() {
    this.frames.settle();
    this.frames.list.draw();
    this.tree.list.draw();
    this.timeline.draw();
    this.sourcesPanel.show(this.sources);
    this.connections.list.draw();
    this.compare.times();
    this.segment.times();
    if (this.info) showCapture(this);
  }

  layout() {
    document.body.classList.toggle('no-side', !settings.side);
    $('side-toggle').setAttribute('aria-pressed', String(settings.side));
    const root = document.documentElement.style;
    root.setProperty('--list', `${settings.list}%`);
    root.setProperty('--tree', `${settings.tree}%`);
    $('split-list').setAttribute('aria-valuenow', Math.round(settings.list));
    $('split-tree').setAttribute('aria-valuenow', Math.round(settings.tree));
  }

  splitter(id, key, vertical, box) {
    const s = $(id);
    const put = (v) => {
      set(key, Math.max(15, Math.min(85, v)));
      this.layout();
    };
    s.addEventListener('pointerdown', (e) => {
      e.preventDefault();
      s.setPointerCapture(e.pointerId);
      const move = (m) => {
        const r = $(box).getBoundingClientRect();
        put(vertical ? (100 * (m.clientX - r.left)) / r.width : (100 * (m.clientY - r.top)) / r.height);
      };
      s.addEventListener('pointermove', move);
      s.addEventListener('pointerup', () => s.removeEventListener('pointermove', move), { once: true });
    });
    s.addEventListener('keydown', (e) => {
      const d = { ArrowUp: -2, ArrowLeft: -2, ArrowDown: 2, ArrowRight: 2 }[e.key];
      if (!d) return;
      e.preventDefault();
      put(settings[key] + d);
    });
  }

  wire() {
    const pick = (button, input) => $(button).addEventListener('click', () => $(input).click());
    pick('open-files', 'pick-files');
    pick('welcome-files', 'pick-files');
    pick('open-folder', 'pick-folder');
    pick('welcome-folder', 'pick-folder');
    for (const id of ['pick-files', 'pick-folder']) {
      $(id).addEventListener('change', (e) => {
        this.openFiles(e.target.files);
        e.target.value = '';
      });
    }
    const askUrl = () => {
      $('url-dialog').returnValue = '';
      $('url-dialog').showModal();
    };
    $('open-url').addEventListener('click', askUrl);
    $('welcome-url').addEventListener('click', askUrl);
    if (SINGLE) $('open-url').hidden = $('welcome-url').hidden = true;
    $('url-dialog').addEventListener('close', () => { if ($('url-dialog').returnValue === 'open' && $('url').value) this.openUrl($('url').value); });
    $('connections-open').addEventListener('click', () => this.showSide('tab-connections'));
    this.dropping();

    $('filter').addEventListener('keydown', (e) => { if (e.key === 'Enter') this.setFilter(e.target.value); });
    $('filter-clear').addEventListener('click', () => {
      $('filter').value = '';
      this.setFilter('');
    });
    $('goto').addEventListener('keydown', (e) => { if (e.key === 'Enter') this.goto(e.target.value); });
    $('stop').addEventListener('click', () => this.stop());
    $('stop-opening').addEventListener('click', () => this.stopOpening());
    $('go-on').addEventListener('click', () => this.goOn());
    $('side-toggle').addEventListener('click', () => this.toggleSide());
    $('copy-json').addEventListener('click', () => this.copyAs('json'));
    $('copy-hex').addEventListener('click', () => this.copyAs('hex'));
    $('copy-raw').addEventListener('click', () => this.copyAs('raw'));
    $('save-bytes').addEventListener('click', () => this.saveField());
    for (const list of ['detail-tabs', 'side-tabs']) {
      $(list).addEventListener('click', (e) => {
        const t = e.target.closest('[role=tab]');
        if (t) this.tab(list, t.id);
      });
      $(list).addEventListener('keydown', (e) => {
        const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (!d) return;
        e.preventDefault();
        this.stepTab(list, d);
      });
    }
    this.splitter('split-list', 'list', false, 'left');
    this.splitter('split-tree', 'tree', true, 'detail');
    this.dialogs();
    document.addEventListener('keydown', (e) => this.key(e));
    // How fast the file can be read alone, for who measures.
    document.addEventListener('measure', async () => {
      document.dispatchEvent(new CustomEvent('measured', { detail: await this.link.ask('readSpeed', {}) }));
    });
    window.addEventListener('hashchange', () => {
      if (this.connections.all.length) this.follow(location.hash);
    });
  }

  /** Goes to what a link names. What it names and isn't here is said, and the address is again that of what is shown. */
  follow(link) {
    const at = /[#&]offset=(\d+)/.exec(link);
    const byte = /[#&]byte\b/.test(link);
    const named = this.connections.named(link);
    if (named?.id >= 0 && named.id !== this.info?.id) {
      this.linkSays = named.says;
      this.select(named.id, { at: at ? Number(at[1]) : undefined, byte });
      return;
    }
    const outside = at && this.status && !(named?.id < 0) ? this.beyond(Number(at[1])) : '';
    const says = [named?.says, outside].filter(Boolean).join(' ');
    if (says) say(says, true);
    if (named?.id < 0 || outside) this.address();
    else if (at && this.info && (byte || Number(at[1]) !== this.unit?.offset)) this.gotoOffset(Number(at[1]), { reveal: byte });
  }

  stepTab(list, d) {
    const tabs = [...$(list).querySelectorAll('[role=tab]')].filter((t) => !t.hidden);
    const i = tabs.findIndex((t) => t.getAttribute('aria-selected') === 'true');
    const t = tabs[(i + d + tabs.length) % tabs.length];
    this.tab(list, t.id);
    t.focus();
  }

  /** Does something with the row that is open. */
  withOpened(what) {
    if (this.opened) what().catch((e) => this.failed(e));
    else if (this.info) say(this.frames.selectedRow < 0 ? 'No row is chosen.' : 'The chosen row is not open.', true);
  }

  copyAs(how) {
    this.withOpened(() => this.tree.copyAs(how));
  }

  saveField() {
    this.withOpened(() => this.tree.saveField());
  }

  stop() {
    if (this.pending) {
      this.stopOpening();
      return;
    }
    this.link.ask('cancel', { what: 'index' });
    this.link.ask('cancel', { what: 'filter' });
    $('stop').hidden = true;
  }

  goOn() {
    this.indexing = true;
    $('go-on').hidden = true;
    $('stop').hidden = false;
    $('stop').focus();
    this.link.ask('goOn', {}).catch((e) => this.failed(e));
    // A filter that was stopped with the index goes through everything again.
    if (this.frames.filtered && !this.filterDone) this.setFilter(this.filtering).catch((e) => this.failed(e));
  }

  toggleSide() {
    set('side', !settings.side);
    this.layout();
  }

  /** Shows a tab of the side panel and goes there. */
  showSide(tab) {
    if (!settings.side) this.toggleSide();
    this.tab('side-tabs', tab);
    $(SIDE[tab]).focus();
  }

  dialogs() {
    for (const key of ['theme', 'time']) {
      for (const r of $(`set-${key}`).querySelectorAll('input')) {
        r.checked = settings[key] === r.value;
        r.addEventListener('change', () => {
          set(key, r.value);
          if (key === 'theme') this.theme();
          else this.times();
        });
      }
    }
    $('set-columns').append(...COLUMNS.filter((c) => c.key !== 'row' && c.key !== 'summary').map((c) => h('label', {}, h('input', {
      type: 'checkbox', checked: !settings.hidden.includes(c.key),
      onchange: (e) => {
        set('hidden', e.target.checked ? settings.hidden.filter((x) => x !== c.key) : [...settings.hidden, c.key]);
        this.frames.columns();
      },
    }), h('span', { text: ` ${c.name}` }))));
    $('settings-open').addEventListener('click', () => {
      $('set-widths').replaceChildren(h('legend', { text: 'Widths in pixels' }), ...this.frames.shown.filter((c) => c.width).map((c) => h('label', {}, h('span', { text: c.name }), h('input', {
        type: 'number', min: 40, max: 900, step: 1, value: this.frames.width(c), oninput: (e) => this.frames.setWidth(c, Number(e.target.value)),
      }))));
      $('settings-dialog').showModal();
    });
    $('help-open').addEventListener('click', () => $('help-dialog').showModal());
    $('keys').append(h('dl', {}, KEYS.flatMap(([k, v]) => [h('dt', {}, h('kbd', { text: k })), h('dd', { text: v })])));
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    const typing = e.target.matches('input, select, textarea');
    if (e.key === 'Escape') {
      $('filter-wrong').hidden = true;
      if (typing) e.target.blur();
      else this.stop();
      return;
    }
    if (typing) return;
    const focus = (id) => { $(id).focus(); };
    const act = {
      o: () => $('pick-files').click(),
      O: () => $('pick-folder').click(),
      u: () => !SINGLE && $('open-url').click(),
      '?': () => $('help-dialog').showModal(),
      ',': () => $('settings-open').click(),
      '/': () => focus('filter'),
      g: () => { focus('goto'); $('goto').select(); },
      f: () => this.showSide('tab-search'),
      l: () => (this.connections.all.length > 1 ? this.showSide('tab-connections') : say('There is one connection.')),
      '<': () => this.connections.step(-1),
      '>': () => this.connections.step(1),
      a: () => focus('timeline'),
      x: () => this.timeline.next(),
      1: () => focus('frames'),
      2: () => focus(this.detailTab === 'tab-tree' ? 'tree' : this.detailTab === 'tab-segment' ? 'pane-segment' : 'pane-compare'),
      3: () => focus('hex'),
      4: () => this.showSide(this.sideTab ?? 'tab-findings'),
      '[': () => this.stepTab($('side').contains(document.activeElement) ? 'side-tabs' : 'detail-tabs', -1),
      ']': () => this.stepTab($('side').contains(document.activeElement) ? 'side-tabs' : 'detail-tabs', 1),
      n: () => this.nextFinding(false),
      N: () => this.nextFinding(true),
      c: () => this.hold(),
      s: () => this.saveField(),
      b: () => this.toggleSide(),
      t: () => {
        const modes = ['utc', 'local', 'relative', 'raw'];
        set('time', modes[(modes.indexOf(settings.time) + 1) % modes.length]);
        $('set-time').querySelector(`[value=${settings.time}]`).checked = true;
        this.times();
        say(`Times: ${settings.time}`);
      },
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  }

  dropping() {
    let depth = 0;
    const show = (on) => document.body.classList.toggle('dropping', on);
    // What is no file, such as text that was selected, goes where it always does.
    const files = (e) => e.dataTransfer?.types.includes('Files');
    window.addEventListener('dragenter', (e) => {
      if (!files(e)) return;
      e.preventDefault();
      depth++;
      show(true);
    });
    window.addEventListener('dragleave', (e) => {
      if (!files(e)) return;
      depth = Math.max(0, depth - 1);
      if (!depth) show(false);
    });
    window.addEventListener('dragover', (e) => { if (files(e)) e.preventDefault(); });
    window.addEventListener('drop', async (e) => {
      if (!files(e)) return;
      e.preventDefault();
      depth = 0;
      show(false);
      this.dropped(e.dataTransfer);
    });
  }

  async dropped(transfer) {
    // Entries are only good during the event: gather takes them at once.
    const found = gather(transfer, (n) => { $('what').textContent = `Looking through the folders… ${many(n, 'file')}`; });
    this.closeAll();
    this.connections.reset([]);
    const { files, notes } = await found;
    if (!files.length) {
      this.nothing(['There is no file in it.', ...notes].join(' '));
      return;
    }
    await this.openFiles(files);
    if (notes.length) say(notes.join(' '), true);
  }
}

const app = new App();
app.start();
