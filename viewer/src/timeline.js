// The timeline: all rows in bins over the bytes, over the data's time or over
// the time of arrival, one colour for each kind, with gaps, findings, and where
// files and connections start. A click goes there, dragging selects a span as a
// filter.

import { $, h, say, visible } from './dom.js';
import { sameFinding, sameKind, sameSpan, spanOf } from './expression.js';
import { LAST_TIME, bytes, exactTime, many, number, parseTime, span, time, timeWithin } from './format.js';
import { set, settings } from './settings.js';

const BINS = 512;
/** The findings that are gaps (wasm/index). */
const GAPS = ['gap', 'sequence-gap', 'missing-bytes', 'zero-filled-tail'];

// The marks differ in shape; index.html draws the same ones for the legend.

function line(g, x, from, to, colour, dash) {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(Math.round(x) + 0.5, from);
  g.lineTo(Math.round(x) + 0.5, to);
  g.stroke();
  g.setLineDash([]);
}

/** A triangle at the top; an open one was told by what lies beside the bytes. */
function findingMark(g, at, colour, open = false) {
  const x = Math.max(5, Math.min(g.canvas.clientWidth - 5, at));
  g.beginPath();
  g.moveTo(x - 4, 1);
  g.lineTo(x + 4, 1);
  g.lineTo(x, 8);
  g.closePath();
  g.fillStyle = g.strokeStyle = colour;
  if (open) g.stroke();
  else g.fill();
}

/** Two bars across the whole height, with nothing between them. */
function gapMark(g, x, height, colour) {
  g.fillStyle = colour;
  g.fillRect(x - 3, 1, 2, height - 2);
  g.fillRect(x + 1, 1, 2, height - 2);
}

/** A flag on a pole; that of another connection is open. */
function flagMark(g, x, height, colour, open) {
  line(g, x, 0, height, colour, open ? [3, 2] : []);
  g.beginPath();
  const d = x > g.canvas.clientWidth - 10 ? -8 : 8;
  g.moveTo(x + 0.5, height - 10);
  g.lineTo(x + 0.5 + d, height - 6);
  g.lineTo(x + 0.5, height - 2);
  g.closePath();
  g.fillStyle = g.strokeStyle = colour;
  if (open) g.stroke();
  else g.fill();
}

export class Timeline {
  constructor(app) {
    this.app = app;
    this.canvas = $('timeline');
    this.cursor = -1;
    this.drag = null;
    const c = this.canvas;
    c.addEventListener('pointerdown', (e) => {
      if (e.button !== 0 || !this.axis) return;
      c.setPointerCapture(e.pointerId);
      this.drag = { from: this.x(e), to: this.x(e) };
    });
    c.addEventListener('pointermove', (e) => {
      if (this.drag) this.drag.to = this.x(e);
      this.at = this.x(e);
      this.tip();
      this.drawSoon();
    });
    c.addEventListener('pointerleave', () => {
      this.at = undefined;
      this.tip();
      this.draw();
    });
    c.addEventListener('pointerup', () => this.drop());
    c.addEventListener('pointercancel', () => { this.drag = null; this.draw(); });
    c.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(c);
    $('mark-finding').addEventListener('click', () => {
      // What lies beside the bytes is at no row.
      if (this.status.findings) this.app.addFilter('finding', sameFinding);
      else this.app.showSide('tab-findings');
    });
    $('mark-gap').addEventListener('click', () => {
      const kinds = GAPS.filter((k) => this.status.byFinding[k]).map((k) => `finding == ${k}`);
      this.app.addFilter(kinds.length > 1 ? `(${kinds.join(' or ')})` : kinds[0], sameFinding);
    });
    $('mark-file').addEventListener('click', () => this.app.showSide('tab-capture'));
    $('mark-connection').addEventListener('click', () => this.app.showSide(this.app.connections.all.length > 1 ? 'tab-connections' : 'tab-capture'));
    for (const b of $('axis').querySelectorAll('button')) {
      b.addEventListener('click', () => {
        this.turn(b.value);
      });
    }
  }

  x(e) {
    const r = this.canvas.getBoundingClientRect();
    return Math.max(0, Math.min(1, (e.clientX - r.left) / r.width));
  }

  show(bins, status) {
    this.bins = bins;
    this.status = status;
    this.axes();
    this.legend();
    this.draw();
  }

  clear() {
    this.bins = this.status = null;
    this.cursor = -1;
    this.drag = null;
    this.drawn = '';
    $('legend').replaceChildren();
    this.draw();
  }

  has(axis) {
    return axis === 'bytes' || Boolean(axis === 'time' ? this.bins?.time : this.app.info?.arrival);
  }

  axes() {
    for (const b of $('axis').querySelectorAll('button')) {
      b.disabled = !this.has(b.value);
      b.setAttribute('aria-pressed', String(this.name === b.value));
    }
  }

  turn(axis) {
    set('axis', axis);
    this.cursor = -1;
    this.drag = null;
    this.held = undefined;
    this.axes();
    this.draw();
    this.app.connections.draw();
  }

  /** The next of the axes that there are. */
  next() {
    const all = ['bytes', 'time', 'arrival'].filter((a) => this.has(a));
    this.turn(all[(all.indexOf(this.name) + 1) % all.length]);
    say(`The timeline is over ${{ bytes: 'the bytes', time: 'the data’s time', arrival: 'the time of arrival' }[this.name]}`);
  }

  get name() {
    return this.has(settings.axis) ? settings.axis : 'bytes';
  }

  /** The axis that is shown: {from, step, kinds, findings, gaps}. */
  get axis() {
    if (!this.bins) return null;
    if (this.name !== 'arrival') return this.bins[this.name];
    const { from, step } = this.app.info.arrival;
    return { kinds: [], findings: [], gaps: [], ...this.bins.arrival, from, step };
  }

  /** The part of the bins that holds anything: time bins grow by doubling. */
  get range() {
    if (this.name === 'bytes') return [0, Math.max(1, Math.ceil((this.app.info.end - this.app.info.start) / Number(this.axis.step)))];
    if (this.name === 'arrival') {
      const { from, to, step } = this.app.info.arrival;
      return [0, Number((to - from) / step) + 1];
    }
    let from = BINS;
    let to = 0;
    for (const k of this.axis.kinds) {
      if (!k) continue;
      for (let i = 0; i < BINS; i++) {
        if (k[i]) {
          from = Math.min(from, i);
          to = Math.max(to, i + 1);
        }
      }
    }
    return from < to ? [from, to] : [0, BINS];
  }

  /** The value, as BigInt, at a place from 0 to 1. */
  value(x) {
    const [a, b] = this.range;
    const bin = a + x * (b - a);
    const whole = Math.floor(bin);
    const v = BigInt(this.axis.from) + BigInt(this.axis.step) * BigInt(whole) + BigInt(Math.round(Number(this.axis.step) * (bin - whole)));
    // The last bin of times may reach beyond the last time that there is.
    return this.name === 'bytes' ? v : timeWithin(v);
  }

  /** The place of a value, from 0 to 1 where it is on the axis. */
  place(v) {
    const [a, b] = this.range;
    return (Number(BigInt(v) - BigInt(this.axis.from)) / Number(this.axis.step) - a) / (b - a);
  }

  text(v) {
    return this.name === 'bytes' ? `offset ${number(Number(v))}` : time(v, settings.time === 'raw' ? 'raw' : settings.time, this.app.origin);
  }

  /**
   * What is marked beside the bins: {what, x, text, id}, what of file (starts
   * here), connection (starts here; id of another one) or told (noted when it was
   * recorded, or beside the bytes).
   */
  marked() {
    const { info } = this.app;
    const out = [];
    const name = this.name;
    const put = (what, v, text, id) => {
      if (v === null || v === undefined) return;
      const x = this.place(v);
      if (x >= 0 && x <= 1) out.push({ what, x, text, id });
    };
    const value = (p, i) => (name === 'bytes' ? p.offset : name === 'arrival' ? p.arrival : this.bins.time?.places?.[i]);
    const told = new Set(this.app.told.map((f) => `${f.kind}@${f.offset}`));
    const first = info.places.findIndex((p) => p.what === 'file');
    info.places.forEach((p, i) => {
      if (p.what === 'note' || (p.what === 'told' && told.has(`${p.kind}@${p.offset}`))) put('told', value(p, i), p.text);
      else if (p.what === 'told') return; // the decoder found it too
      else if (i !== first) put('file', value(p, i), `${p.text} starts`);
      else if (info.start === 0) put('connection', value(p, i) ?? this.axis.from, `${info.name} starts`);
      else put('file', value(p, i), `${p.text} starts, the connection before it`);
    });
    for (const c of this.app.connections.all) {
      if (c.id === info.id) continue;
      const e = this.app.connections.extent(c, name);
      if (e && c.about?.start === 0) put('connection', e[0], `${c.name} starts`, c.id);
    }
    return out;
  }

  /** It is drawn with the browser's next picture, however often that is asked for until then. */
  drawSoon() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = undefined;
      this.draw();
    });
  }

  draw() {
    const c = this.canvas;
    const w = c.clientWidth;
    const height = c.clientHeight;
    const dpr = devicePixelRatio || 1;
    if (!w) return;
    if (c.width !== Math.round(w * dpr) || c.height !== Math.round(height * dpr)) {
      c.width = Math.round(w * dpr);
      c.height = Math.round(height * dpr);
    }
    const g = c.getContext('2d');
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    g.clearRect(0, 0, w, height);
    if (!this.axis || !this.app.info) return;
    const style = getComputedStyle(document.documentElement);
    const colours = new Map();
    const colour = (name) => {
      if (!colours.has(name)) colours.set(name, style.getPropertyValue(name).trim());
      return colours.get(name);
    };
    const [a, b] = this.range;
    const bw = w / (b - a);
    const floor = height - 2;
    const top = 12;
    const axis = this.axis;
    let most = 1;
    const totals = new Float64Array(BINS);
    for (const k of axis.kinds) if (k) for (let i = a; i < b; i++) totals[i] += k[i];
    for (let i = a; i < b; i++) most = Math.max(most, totals[i]);
    if (this.name === 'bytes') this.holes(g, w, height, colour);
    this.span(g, w, height, colour);
    // Heights grow with the square root, so that few rows stay visible.
    for (let i = a; i < b; i++) {
      if (!totals[i]) continue;
      const full = Math.max(3, Math.sqrt(totals[i] / most) * (floor - top));
      let y = floor;
      axis.kinds.forEach((k, slot) => {
        if (!k?.[i]) return;
        const part = (k[i] / totals[i]) * full;
        g.fillStyle = colour(`--k${this.app.colours[slot]}`);
        g.fillRect((i - a) * bw, y - part, Math.max(1, bw - (bw > 3 ? 1 : 0)), part);
        y -= part;
      });
    }
    for (let i = a; i < b; i++) {
      const x = (i - a + 0.5) * bw;
      if (axis.gaps[i]) gapMark(g, x, height, colour('--bad'));
      if (axis.findings[i]) findingMark(g, x, colour('--bad'));
    }
    this.marks = this.marked();
    for (const m of this.marks) {
      const x = Math.min(m.x * w, w - 1);
      if (m.what === 'file') line(g, x, 0, height, colour('--dim'), [1, 3]);
      else if (m.what === 'told') findingMark(g, x, colour('--bad'), true);
      else flagMark(g, x, height, colour(m.id === undefined ? '--accent' : '--text'), m.id !== undefined);
    }
    const here = this.here();
    if (here !== null) line(g, here * w, 0, height, colour('--text'), []);
    if (this.cursor >= 0) line(g, (this.cursor + 0.5) * bw, 0, height, colour('--accent'), [4, 2]);
    if (this.at !== undefined) line(g, this.at * w, 0, height, colour('--dim'), [2, 2]);
    if (this.drag) {
      g.fillStyle = colour('--select');
      g.globalAlpha = 0.45;
      g.fillRect(Math.min(this.drag.from, this.drag.to) * w, 0, Math.abs(this.drag.to - this.drag.from) * w, height);
      g.globalAlpha = 1;
    }
    this.scale();
    this.counts();
  }

  /** The span that the filter takes on this axis stays to be seen. */
  span(g, w, height, colour) {
    const m = this.app.frames.filtered ? this.spanIn(this.app.parts) : null;
    if (!m) return;
    const [x0, x1] = m.map((v) => Math.max(0, Math.min(1, this.place(v))));
    g.fillStyle = colour('--select');
    g.globalAlpha = 0.6;
    g.fillRect(x0 * w, 0, Math.max(1, (x1 - x0) * w), height);
    g.globalAlpha = 1;
  }

  /** What the axis is called in a filter. */
  get field() {
    return { bytes: 'offset', time: 'time', arrival: 'arrival' }[this.name];
  }

  /** The span of this axis in the parts of a filter, as two values, or null. */
  spanIn(parts) {
    const m = spanOf(parts, this.field);
    if (!m) return null;
    const read = (s) => (this.name === 'bytes' ? (/^\d{1,16}$/.test(s) ? BigInt(s) : null) : parseTime(s));
    const [from, to] = [read(m.from), read(m.to)];
    return from === null || to === null || to < from ? null : [from, m.whole ? to + 1n : to];
  }

  /** What the two ends of the axis are, and how wide it is. */
  scale() {
    const [from, to] = [this.value(0), this.value(1)];
    const end = { bytes: BigInt(this.app.info.end), arrival: this.app.info.arrival?.to, time: to }[this.name];
    const first = this.text(from);
    const last = this.text(end);
    $('scale-from').textContent = first;
    $('scale-wide').textContent = this.name === 'bytes' ? bytes(Number(end - from)) : span(end - from);
    // A day that both ends share stands at the first.
    $('scale-to').textContent = /^\d{4}-\d\d-\d\d /.test(last) && last.slice(0, 11) === first.slice(0, 11) ? last.slice(11) : last;
  }

  /** How many there are of each mark: of findings as many as the panel tells, of starts those of this axis. */
  counts() {
    const counts = {
      finding: this.app.found, gap: GAPS.reduce((n, k) => n + (this.status.byFinding[k] ?? 0), 0),
      file: this.marks.filter((m) => m.what === 'file').length, connection: this.marks.filter((m) => m.what === 'connection').length,
    };
    for (const [k, n] of Object.entries(counts)) {
      const b = $(`mark-${k}`);
      b.hidden = n === 0;
      b.querySelector('.n').textContent = number(n);
    }
  }

  /** Bytes between files that are in none. */
  holes(g, w, height, colour) {
    let at = this.app.info.start;
    for (const f of this.app.info.files) {
      if (f.start > at) {
        const x0 = this.place(at) * w;
        const x1 = Math.max(x0 + 2, this.place(f.start) * w);
        g.fillStyle = colour('--bad');
        g.globalAlpha = 0.18;
        g.fillRect(x0, 0, x1 - x0, height);
        g.globalAlpha = 1;
      }
      at = f.end;
    }
  }

  /** The place of the open frame, 0 to 1. */
  here() {
    const u = this.app.unit;
    const v = u && { bytes: u.offset, time: u.time, arrival: u.arrival }[this.name];
    if (v === undefined || v === null) return null;
    const x = this.place(v);
    return x >= 0 && x <= 1 ? x : null;
  }

  tip() {
    const tip = $('timeline-tip');
    if (!this.axis || this.at === undefined) {
      tip.hidden = true;
      return;
    }
    const [a, b] = this.range;
    tip.textContent = this.describe(Math.min(b - 1, Math.floor(a + this.at * (b - a))));
    tip.hidden = false;
    const w = this.canvas.clientWidth;
    const x = this.at * w;
    tip.style.left = `${Math.max(0, Math.min(w - tip.offsetWidth, x + (x > w / 2 ? -tip.offsetWidth - 10 : 10)))}px`;
  }

  describe(i) {
    let rows = 0;
    const kinds = [];
    this.axis.kinds.forEach((k, slot) => {
      if (!k?.[i]) return;
      rows += k[i];
      kinds.push(`${this.status.kinds[slot]?.name} ${number(k[i])}`);
    });
    const gaps = this.axis.gaps[i] ?? 0;
    const found = this.axis.findings[i] ?? 0;
    const at = BigInt(this.axis.from) + BigInt(this.axis.step) * BigInt(i);
    const wide = this.name === 'bytes' ? bytes(Number(this.axis.step)) : span(this.axis.step);
    const [a, b] = this.range;
    const nowhere = this.name === 'bytes' && !this.app.info.files.some((f) => BigInt(f.start) < at + BigInt(this.axis.step) && BigInt(f.end) > at);
    const marks = (this.marks ?? []).filter((m) => Math.min(b - 1, Math.floor(a + m.x * (b - a))) === i).map((m) => visible(m.text));
    return [`${this.text(at)}, ${wide}: ${nowhere ? 'in no file' : many(rows, 'row')}${kinds.length ? ` (${kinds.join(', ')})` : ''}`, ...(found ? [`${many(found, 'finding')}${gaps ? ` (${many(gaps, 'gap')})` : ''}`] : []),
      ...marks.slice(0, 4), ...(marks.length > 4 ? [`and ${number(marks.length - 4)} more`] : [])].join(', ');
  }

  drop() {
    const d = this.drag;
    this.drag = null;
    if (!d) return;
    const w = this.canvas.clientWidth;
    if (Math.abs(d.to - d.from) * w < 4) this.go(d.to);
    else this.choose(this.value(Math.min(d.from, d.to)), this.value(Math.max(d.from, d.to)));
    this.draw();
  }

  /** Goes to a place of the axis, or to the connection whose start is marked there. */
  go(x, near = 5) {
    const w = this.canvas.clientWidth;
    const [flag] = (this.marks ?? []).filter((m) => m.id !== undefined && Math.abs(m.x - x) * w <= near).sort((m, o) => Math.abs(m.x - x) - Math.abs(o.x - x));
    if (flag) {
      this.app.connections.open(flag.id);
      return;
    }
    const v = this.value(x);
    if (this.name === 'bytes') this.app.gotoOffset(Math.min(Number(v), this.app.info.end - 1));
    else this.app.gotoTime(v, this.name);
  }

  choose(from, to) {
    const f = this.field;
    const text = (v) => (this.name === 'bytes' ? v : exactTime(v));
    // Behind the last time there is none that a span could end before.
    const before = this.name !== 'bytes' && to === LAST_TIME ? '<=' : '<';
    this.app.addFilter(`${f} >= ${text(from)} and ${f} ${before} ${text(to)}`, sameSpan(f));
  }

  key(e) {
    if (!this.axis) return;
    const [a, b] = this.range;
    const n = b - a;
    const to = { ArrowLeft: this.cursor - 1, ArrowRight: this.cursor + 1, PageUp: this.cursor - 16, PageDown: this.cursor + 16, Home: 0, End: n - 1 }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      const was = this.cursor;
      this.cursor = Math.max(0, Math.min(n - 1, to));
      if (e.shiftKey) this.held ??= Math.max(0, was);
      else this.held = undefined;
      this.drag = this.held === undefined ? null : { from: Math.min(this.held, this.cursor) / n, to: (Math.max(this.held, this.cursor) + 1) / n };
      const text = this.describe(a + this.cursor);
      this.canvas.setAttribute('aria-valuenow', this.cursor);
      this.canvas.setAttribute('aria-valuemax', n - 1);
      this.canvas.setAttribute('aria-valuetext', text);
      this.draw();
    } else if (e.key === 'Enter' && this.cursor >= 0) {
      e.preventDefault();
      if (this.held !== undefined) this.drop();
      else this.go((this.cursor + 0.001) / n, this.canvas.clientWidth / n);
      this.held = undefined;
    }
  }

  legend() {
    const l = $('legend');
    const key = JSON.stringify(this.status.kinds.map((k) => [k.name, k.rows]));
    if (key === this.drawn) return;
    this.drawn = key;
    l.replaceChildren(...this.status.kinds.map((k, i) => {
      // Kinds that share a name are told apart by their numbers.
      const shared = k.type === 'frame' && this.status.kinds.some((o) => o !== k && o.name === k.name);
      const name = shared ? `${k.name} ${k.kind}` : k.name;
      const plain = /^[\w-]+$/.test(k.name) && !shared;
      const b = h('button', {
        class: 'chip', type: 'button', title: `Show only ${name}: ${many(k.rows, 'row')}, ${bytes(k.bytes)}`,
        onclick: () => this.app.addFilter(k.type === 'frame' ? `kind == ${plain ? k.name : k.kind}` : `type == ${k.type}`, sameKind),
      }, h('span', { class: 'swatch', 'aria-hidden': 'true' }), h('span', { text: name }), h('span', { class: 'n', text: number(k.rows) }));
      b.style.setProperty('--kind', `var(--k${this.app.colours[i]})`);
      return b;
    }));
  }
}
