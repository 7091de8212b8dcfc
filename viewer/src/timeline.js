// The timeline: all rows in bins over the bytes or over the data's time, one
// colour for each kind, with findings, file starts and holes. A click goes
// there, dragging selects a span as a filter.

import { $, h } from './dom.js';
import { bytes, number, span, time } from './format.js';
import { set, settings } from './settings.js';

const BINS = 512;

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
      this.draw();
    });
    c.addEventListener('pointerleave', () => {
      this.at = undefined;
      this.draw();
    });
    c.addEventListener('pointerup', () => this.drop());
    c.addEventListener('pointercancel', () => { this.drag = null; this.draw(); });
    c.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(c);
    for (const b of $('axis').querySelectorAll('button')) {
      b.addEventListener('click', () => {
        set('axis', b.value);
        this.draw();
        this.axes();
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
    $('legend').replaceChildren();
    this.draw();
  }

  axes() {
    for (const b of $('axis').querySelectorAll('button')) {
      const has = b.value === 'bytes' || Boolean(this.bins?.time);
      b.disabled = !has;
      b.setAttribute('aria-pressed', String(this.name === b.value));
    }
  }

  get name() {
    return settings.axis === 'time' && this.bins?.time ? 'time' : 'bytes';
  }

  get axis() {
    return this.bins?.[this.name];
  }

  /** The part of the bins that holds anything: time bins grow by doubling. */
  get range() {
    if (this.name === 'bytes') return [0, Math.max(1, Math.ceil((this.app.info.end - this.app.info.start) / Number(this.axis.step)))];
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
    return BigInt(this.axis.from) + BigInt(this.axis.step) * BigInt(whole) + BigInt(Math.round(Number(this.axis.step) * (bin - whole)));
  }

  text(v) {
    return this.name === 'bytes' ? `offset ${number(Number(v))}` : time(v, settings.time === 'raw' ? 'raw' : settings.time, this.app.origin);
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
    if (!this.axis) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [a, b] = this.range;
    const bw = w / (b - a);
    const floor = height - 2;
    const top = 10;
    let most = 1;
    const totals = new Float64Array(BINS);
    for (const k of this.axis.kinds) if (k) for (let i = a; i < b; i++) totals[i] += k[i];
    for (let i = a; i < b; i++) most = Math.max(most, totals[i]);
    // Heights grow with the square root, so that few rows stay visible.
    for (let i = a; i < b; i++) {
      if (!totals[i]) continue;
      const full = Math.max(3, Math.sqrt(totals[i] / most) * (floor - top));
      let y = floor;
      this.axis.kinds.forEach((k, slot) => {
        if (!k?.[i]) return;
        const part = (k[i] / totals[i]) * full;
        g.fillStyle = colour(`--k${slot % 10}`);
        g.fillRect((i - a) * bw, y - part, Math.max(1, bw - (bw > 3 ? 1 : 0)), part);
        y -= part;
      });
    }
    g.fillStyle = colour('--bad');
    for (let i = a; i < b; i++) {
      if (!this.axis.findings[i]) continue;
      const x = (i - a + 0.5) * bw;
      g.beginPath();
      g.moveTo(x - 4, 1);
      g.lineTo(x + 4, 1);
      g.lineTo(x, 8);
      g.fill();
    }
    if (this.name === 'bytes') this.files(g, w, height, colour);
    const mark = (x, name, dash) => {
      g.strokeStyle = colour(name);
      g.setLineDash(dash);
      g.beginPath();
      g.moveTo(Math.round(x) + 0.5, 0);
      g.lineTo(Math.round(x) + 0.5, height);
      g.stroke();
      g.setLineDash([]);
    };
    const here = this.here();
    if (here !== null) mark(here * w, '--text', []);
    if (this.cursor >= 0) mark((this.cursor + 0.5) * bw, '--accent', [4, 2]);
    if (this.at !== undefined) mark(this.at * w, '--dim', [2, 2]);
    if (this.drag) {
      g.fillStyle = colour('--select');
      g.globalAlpha = 0.45;
      g.fillRect(Math.min(this.drag.from, this.drag.to) * w, 0, Math.abs(this.drag.to - this.drag.from) * w, height);
      g.globalAlpha = 1;
    }
  }

  /** Where files start, and holes between them. */
  files(g, w, height, colour) {
    const { start, end, files } = this.app.info;
    const total = Math.max(1, end - start);
    let at = start;
    for (const f of files) {
      const x = ((f.start - start) / total) * w;
      if (f.start > at) {
        const x0 = ((at - start) / total) * w;
        g.fillStyle = colour('--bad');
        g.globalAlpha = 0.25;
        g.fillRect(x0, 0, Math.max(2, x - x0), height);
        g.globalAlpha = 1;
      }
      if (f.start > start) {
        g.strokeStyle = colour('--dim');
        g.setLineDash([1, 3]);
        g.beginPath();
        g.moveTo(Math.round(x) + 0.5, 0);
        g.lineTo(Math.round(x) + 0.5, height);
        g.stroke();
        g.setLineDash([]);
      }
      at = f.end;
    }
  }

  /** The place of the open frame, 0 to 1. */
  here() {
    const u = this.app.unit;
    if (!u) return null;
    const [a, b] = this.range;
    let v;
    if (this.name === 'bytes') v = BigInt(u.offset);
    else if (u.time !== undefined) v = BigInt(u.time);
    else return null;
    const x = (Number(v - BigInt(this.axis.from)) / Number(this.axis.step) - a) / (b - a);
    return x >= 0 && x <= 1 ? x : null;
  }

  tip() {
    if (!this.axis) return;
    const [a, b] = this.range;
    const i = Math.min(b - 1, Math.floor(a + this.at * (b - a)));
    this.canvas.title = this.describe(i);
  }

  describe(i) {
    let rows = 0;
    for (const k of this.axis.kinds) rows += k?.[i] ?? 0;
    const f = this.axis.findings[i];
    const at = BigInt(this.axis.from) + BigInt(this.axis.step) * BigInt(i);
    const wide = this.name === 'bytes' ? bytes(Number(this.axis.step)) : span(this.axis.step);
    return `${this.text(at)}, ${wide}: ${number(rows)} rows${f ? `, ${number(f)} findings` : ''}`;
  }

  drop() {
    const d = this.drag;
    this.drag = null;
    if (!d) return;
    const w = this.canvas.clientWidth;
    if (Math.abs(d.to - d.from) * w < 4) this.go(this.value(d.to));
    else this.choose(this.value(Math.min(d.from, d.to)), this.value(Math.max(d.from, d.to)));
    this.draw();
  }

  go(v) {
    if (this.name === 'bytes') this.app.gotoOffset(Math.min(Number(v), this.app.info.end - 1));
    else this.app.gotoTime(v);
  }

  choose(from, to) {
    const field = this.name === 'bytes' ? 'offset' : 'time';
    this.app.addFilter(`${field} >= ${from} and ${field} < ${to}`, new RegExp(`\\b${field} >= -?\\d+ and ${field} < -?\\d+`));
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
      else this.go(this.value((this.cursor + 0.001) / n));
      this.held = undefined;
    }
  }

  legend() {
    const l = $('legend');
    const key = JSON.stringify(this.status.kinds.map((k) => [k.name, k.rows]));
    if (key === this.drawn) return;
    this.drawn = key;
    l.replaceChildren(...this.status.kinds.map((k, i) => {
      const b = h('button', {
        class: 'chip', type: 'button', title: `Show only ${k.name}: ${number(k.rows)} rows, ${bytes(k.bytes)}`,
        onclick: () => this.app.addFilter(k.type === 'frame' ? `kind == ${/^kind \d+$/.test(k.name) ? k.kind : k.name}` : `type == ${k.type}`),
      }, h('span', { class: 'swatch', 'aria-hidden': 'true' }), h('span', { text: k.name }), h('span', { class: 'n', text: number(k.rows) }));
      b.style.setProperty('--kind', `var(--k${i % 10})`);
      return b;
    }));
  }
}
