// The connections that are open: a list of who they were, from when to when, how
// much of them there is and what was found, to choose from; and a strip over the
// timeline that shows where each starts and ends.

import { $, h, visible } from './dom.js';
import { bytes, many, number, span, time } from './format.js';
import { Stale } from './link.js';
import { VirtualList } from './list.js';
import { settings } from './settings.js';

/** How many connections are asked about at a time, and in all. */
const CHUNK = 50;
const MAX_DESCRIBED = 5000;
/** Connections that were open at the same time lie in so many lines of the strip. */
const LINES = 3;

const ARROW = { downstream: '↓ downstream', upstream: '↑ upstream' };

/** Whether a path is a connection's, or the end of it. */
const isIn = (c, path) => c.path === path || c.path.endsWith(`/${path}`);

export class Connections {
  constructor(app) {
    this.app = app;
    this.el = $('connections');
    this.all = [];
    this.at = -1;
    this.list = new VirtualList(this.el, {
      rowHeight: 76,
      make: () => h('div', { class: 'connection', role: 'option' }, h('div', { class: 'title' }), h('div', { class: 'about' }), h('div', { class: 'about' }), h('div', { class: 'about' })),
      fill: (e, i) => this.fill(e, i),
    });
    this.el.addEventListener('click', (e) => {
      const c = e.target.closest('.connection');
      if (c) this.open(c.index);
    });
    this.el.addEventListener('keydown', (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const to = this.list.step(e, this.at);
      if (to !== undefined) {
        e.preventDefault();
        this.move(to);
      } else if (e.key === 'Enter' || e.key === ' ') {
        e.preventDefault();
        this.open(this.at);
      }
    });
    this.canvas = $('spans');
    this.canvas.addEventListener('click', (e) => {
      const c = this.under(e);
      if (c) this.open(c.id);
    });
    this.canvas.addEventListener('pointermove', (e) => {
      const c = this.under(e);
      this.canvas.title = c ? this.words(c) : '';
      this.canvas.style.cursor = c ? 'pointer' : 'default';
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** Other connections were opened. */
  reset(connections) {
    this.all = connections.map((c) => ({ ...c, about: null, seen: null }));
    this.at = -1;
    this.asked = 0; // the one that is shown, or will be
    this.list.top = 0;
    this.list.setCount(this.all.length);
    $('tab-connections').hidden = $('connections-open').hidden = $('spans-box').hidden = this.all.length < 2;
    this.describe();
  }

  /** Asks about all of them, a few at a time. */
  async describe() {
    const { all } = this;
    for (let from = 0; from < Math.min(all.length, MAX_DESCRIBED);) {
      try {
        const list = await this.app.link.ask('describe', { from, count: CHUNK });
        if (this.all !== all) return;
        list.forEach((about, i) => { all[from + i].about = about; });
        from += list.length || CHUNK;
        this.list.draw();
        this.draw();
        this.app.timeline.draw();
      } catch (e) {
        if (this.all !== all) return;
        if (!(e instanceof Stale)) {
          this.app.failed(e);
          return;
        }
        // Another connection was chosen meanwhile: what was asked is asked again.
        await this.app.settled();
      }
    }
  }

  /** What a link calls a connection: its name, and as much of the folders that it lies in as tells it from others of that name. */
  linkName(c) {
    const others = this.all.filter((o) => o !== c && o.name === c.name);
    const path = c.path.split('/');
    for (let n = 1; n < path.length; n++) {
      const name = path.slice(-n).join('/');
      if (!others.some((o) => isIn(o, name))) return name;
    }
    return c.path;
  }

  /**
   * The connection that a link names: {id, says}, id -1 when there is none, says
   * what is to be said when it isn't that one alone; null when the link names none.
   */
  named(link) {
    const m = /[#&]connection=([^&]*)/.exec(link);
    if (!m) return null;
    let [, name] = m;
    try {
      name = decodeURIComponent(name);
    } catch {
      // It is not a name that any link was made of.
    }
    const says = `The link is to connection ${name}`;
    let found = this.all.filter((c) => isIn(c, name));
    if (found.length === 1) return { id: found[0].id };
    if (found.length) return { id: found[0].id, says: `${says}, of which ${number(found.length)} were opened: this is ${found[0].path}.` };
    // The folder may have been moved.
    found = this.all.filter((c) => c.name === name.slice(name.lastIndexOf('/') + 1));
    if (found.length === 1) return { id: found[0].id, says: `${says}: this is ${found[0].path}.` };
    return { id: -1, says: `${says}, which is not among what was opened.` };
  }

  get current() {
    return this.all[this.app.info?.id ?? -1];
  }

  /** What the index pass has found of the connection that is shown. */
  indexed(status, bins, findings) {
    const c = this.current;
    if (!c) return;
    c.seen = { frames: status.kinds.reduce((n, k) => n + (k.type === 'frame' ? k.rows : 0), 0), findings, sources: status.sources, from: null, to: null, marks: this.marksOf(bins) };
    if (bins.time) {
      let [a, b] = [Infinity, 0];
      for (const k of bins.time.kinds) k?.forEach((n, i) => { if (n) [a, b] = [Math.min(a, i), Math.max(b, i + 1)]; });
      if (a < b) {
        c.seen.from = BigInt(bins.time.from) + BigInt(bins.time.step) * BigInt(a);
        c.seen.to = BigInt(bins.time.from) + BigInt(bins.time.step) * BigInt(b);
      }
    }
    this.list.draw();
    this.draw();
  }

  /** Where the findings of the connection that is shown lie, on each axis. */
  marksOf(bins) {
    const { info, told } = this.app;
    const out = {};
    const at = { bytes: (i) => info.places[i].offset, time: (i) => bins.time?.places?.[i], arrival: (i) => info.places[i].arrival };
    const alone = new Set(told.map((f) => `${f.kind}@${f.offset}`));
    for (const axis of ['bytes', 'time', 'arrival']) {
      const b = axis === 'arrival' && bins.arrival ? { ...bins.arrival, ...info.arrival } : bins[axis];
      if (!b || b.step === undefined) continue;
      const [from, step] = [BigInt(b.from), BigInt(b.step)];
      out[axis] = [];
      b.findings.forEach((n, i) => { if (n) out[axis].push(from + step * BigInt(i)); });
      info.places.forEach((p, i) => {
        const v = p.what === 'note' || (p.what === 'told' && alone.has(`${p.kind}@${p.offset}`)) ? at[axis](i) : null;
        if (v !== null && v !== undefined) out[axis].push(BigInt(v));
      });
    }
    return out;
  }

  /** The same of a connection, shown or only described. */
  marks({ about, seen }, axis) {
    if (seen) return seen.marks[axis] ?? [];
    const list = about?.marks ?? [];
    return axis === 'bytes' ? list.map((m) => BigInt(m.offset)) : axis === 'arrival' ? list.filter((m) => m.arrival !== null).map((m) => m.arrival) : [];
  }

  fill(e, i) {
    const c = this.all[i];
    const { about, seen } = c;
    const shown = c === this.current;
    e.id = `connection-${i}`;
    e.className = `connection${shown ? ' selected' : ''}${i === this.at ? ' at' : ''}`;
    e.setAttribute('aria-selected', String(shown));
    e.setAttribute('aria-posinset', i + 1);
    e.setAttribute('aria-setsize', this.all.length);
    const [title, who, when, what] = e.children;
    title.replaceChildren(h('span', { text: `${shown ? '▶ ' : ''}${visible(c.name)}` }),
      ...(about?.protocol ? [h('span', { class: 'badge', text: visible(about.protocol) })] : []));
    e.title = this.words(c);
    if (!about) {
      who.textContent = i < MAX_DESCRIBED ? '…' : many(c.files, 'file');
      when.textContent = what.textContent = '';
      return;
    }
    who.textContent = visible([ARROW[about.direction], about.endpoint].filter(Boolean).join(' · ')) || visible(about.protocol ? c.path : about.what ?? c.path);
    when.textContent = this.when(about);
    what.replaceChildren(h('span', { text: this.amount(c) }));
    const n = this.findings(c);
    if (n) what.append(h('span', { class: 'bad', text: ` · ⚠ ${many(n, 'finding')}` }));
    else if (seen) what.append(h('span', { text: ' · nothing found' }));
  }

  findings({ about, seen }) {
    return seen ? seen.findings : about?.findings ?? 0;
  }

  when(about) {
    if (about.first === null) return about.what ? '' : 'no arrival times';
    const t = time(about.first, settings.time, this.app.origin).replace(/(\.\d{3})\d{6}/, '$1');
    if (about.last === null) return `from ${t}, not sealed`;
    return about.last === about.first ? `${t}, in one read` : `${t} for ${span(BigInt(about.last) - BigInt(about.first))}`;
  }

  amount({ about, seen, files }) {
    const frames = seen?.frames ?? about.frames;
    return [bytes(about.bytes), frames === null ? null : many(frames, 'frame'), files > 1 ? `${number(files)} files` : null,
      about.unsealed && !about.what && about.closed === null && about.first !== null ? 'unfinished' : null].filter(Boolean).join(' · ');
  }

  words(c) {
    if (!c.about) return visible(c.path);
    return [c.path, [c.about.protocol, ARROW[c.about.direction], c.about.endpoint].filter(Boolean).join(' · '), this.when(c.about), this.amount(c),
      c.about.closed && `closed: ${c.about.closed}`, c.about.transport && `transport: ${c.about.transport}`].filter(Boolean).map(visible).join('\n');
  }

  move(i) {
    this.at = i;
    this.el.setAttribute('aria-activedescendant', `connection-${i}`);
    this.list.show(i);
  }

  open(i) {
    if (i < 0 || i >= this.all.length) return;
    this.move(i);
    this.asked = i;
    this.app.select(i);
  }

  /** The one after or before the one that was asked for last. */
  step(d) {
    if (this.all.length > 1) this.open((this.asked + d + this.all.length) % this.all.length);
  }

  /** Another connection is shown. */
  shown() {
    const i = this.all.indexOf(this.current);
    $('connections-open').textContent = `Connection ${number(i + 1)} of ${number(this.all.length)}`;
    if (i >= 0) {
      this.asked = i;
      this.move(i);
    }
    this.draw();
  }

  /** From where to where a connection goes on an axis, BigInt; null where that isn't known. */
  extent(c, axis) {
    if (axis === 'time') return c.seen && c.seen.from !== null ? [c.seen.from, c.seen.to] : null;
    if (axis === 'arrival') return c.about && c.about.first !== null ? [BigInt(c.about.first), BigInt(c.about.last ?? c.about.first)] : null;
    return null;
  }

  /** All of them side by side on an axis: {c, from, to, line, marks}, from, to and marks in 0 to 1. */
  lay(axis) {
    const out = [];
    if (axis === 'bytes') {
      const total = this.all.reduce((n, c) => n + (c.about?.bytes ?? 0), 0) || 1;
      let at = 0;
      for (const c of this.all) {
        const n = c.about?.bytes ?? 0;
        const start = c.about?.start ?? 0;
        out.push({ c, from: at / total, to: (at + n) / total, line: 0, marks: this.marks(c, axis).map((v) => (at + Math.max(0, Math.min(n, Number(v) - start))) / total) });
        at += n;
      }
      return out;
    }
    const known = this.all.map((c) => [c, this.extent(c, axis)]).filter(([, e]) => e);
    if (!known.length) return out;
    const low = known.reduce((m, [, e]) => (e[0] < m ? e[0] : m), known[0][1][0]);
    const high = known.reduce((m, [, e]) => (e[1] > m ? e[1] : m), known[0][1][1]);
    const total = Number(high - low) || 1;
    const ends = new Array(LINES).fill(-1);
    for (const [c, e] of known.sort(([, a], [, b]) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0))) {
      const from = Number(e[0] - low) / total;
      const to = Number(e[1] - low) / total;
      let line = ends.findIndex((x) => x < from);
      if (line < 0) line = ends.indexOf(Math.min(...ends));
      ends[line] = Math.max(ends[line], to);
      out.push({ c, from, to, line, marks: this.marks(c, axis).map((v) => Number(v - low) / total) });
    }
    return out;
  }

  draw() {
    const box = $('spans-box');
    if (box.hidden || !this.canvas.clientWidth) return;
    const axis = this.app.timeline.name;
    this.laid = this.lay(axis);
    const lines = Math.max(1, ...this.laid.map((x) => x.line + 1));
    const height = 4 + lines * 9;
    this.canvas.style.height = `${height}px`;
    const w = this.canvas.clientWidth;
    const dpr = devicePixelRatio || 1;
    this.canvas.width = Math.round(w * dpr);
    this.canvas.height = Math.round(height * dpr);
    const g = this.canvas.getContext('2d');
    g.scale(dpr, dpr);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    for (const x of this.laid) {
      const mine = x.c === this.current;
      const left = x.from * (w - 2);
      const width = Math.max(3, (x.to - x.from) * (w - 2) - 1);
      g.fillStyle = colour(mine ? '--accent' : '--dim');
      g.globalAlpha = mine ? 1 : 0.45;
      g.fillRect(left, 3 + x.line * 9 + (mine ? 0 : 1.5), width, mine ? 7 : 4);
      g.globalAlpha = 1;
      // Where it starts.
      g.fillRect(left, 2 + x.line * 9, 2, 9);
      g.fillStyle = colour('--bad');
      for (const m of x.marks) g.fillRect(Math.min(m * (w - 2), w - 4), 5 + x.line * 9, 3, 3);
    }
    const without = this.all.length - this.laid.length;
    $('spans-note').textContent = !without ? '' : axis === 'time' ? `${number(without)} more once they were shown` : `${number(without)} without arrival times`;
  }

  under(e) {
    const r = this.canvas.getBoundingClientRect();
    const x = e.clientX - r.left;
    const line = Math.floor((e.clientY - r.top - 2) / 9);
    const at = (v) => v * (r.width - 2);
    const near = (this.laid ?? []).filter((s) => x >= at(s.from) - 3 && x <= Math.max(at(s.to), at(s.from) + 3) + 1);
    return (near.find((s) => s.line === line) ?? near[0])?.c;
  }
}
