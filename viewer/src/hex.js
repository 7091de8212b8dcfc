// The bytes of the open frame. Hovering and clicking a byte finds its field, a
// field lights its bytes.

import { $, h, put } from './dom.js';
import { VirtualList } from './list.js';
import { Stale } from './link.js';
import { hex } from './format.js';

const ROW = 18;
export const PAGE = 16 << 10; // bytes

export class Hex {
  constructor(app) {
    this.app = app;
    this.el = $('hex');
    this.width = 16;
    this.unit = null;
    this.pages = new Map();
    this.mark = null; // [from, to) that is selected
    this.glow = null; // [from, to) that is hovered
    this.cursor = -1;
    this.doubts = []; // what is not known to be what was sent: {offset, length}
    this.list = new VirtualList(this.el, {
      rowHeight: ROW,
      make: () => this.make(),
      fill: (e, i) => this.fill(e, i),
    });
    this.el.addEventListener('click', (e) => this.click(e));
    this.el.addEventListener('pointermove', (e) => this.hover(e));
    this.el.addEventListener('pointerleave', () => this.app.hover(null, 'hex'));
    this.el.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.fit()).observe(this.el);
  }

  /** 16 bytes to a line where there is room, else 8. */
  fit() {
    const w = this.el.clientWidth < 512 ? 8 : 16;
    if (w === this.width || !this.el.clientWidth) return;
    this.width = w;
    for (const e of this.list.pool) e.remove();
    this.list.pool = [];
    this.list.setCount(this.unit ? Math.ceil(this.unit.size / this.width) : 0);
  }

  make() {
    const byte = () => h('span', { class: 'b' });
    const char = () => h('span', { class: 'c' });
    return h('div', { class: 'line' },
      h('span', { class: 'at' }),
      h('span', { class: 'bytes' }, Array.from({ length: this.width }, byte)),
      h('span', { class: 'chars' }, Array.from({ length: this.width }, char)));
  }

  open(unit) {
    this.unit = unit;
    this.pages = new Map();
    this.mark = this.glow = null;
    this.cursor = -1;
    this.doubts = [];
    if (unit.bytes) this.pages.set(0, unit.bytes);
    this.list.restart(Math.ceil(unit.size / this.width));
  }

  close() {
    this.unit = null;
    this.list.setCount(0);
  }

  byte(i) {
    const p = this.pages.get(Math.floor(i / PAGE));
    if (p instanceof Uint8Array) return p[i % PAGE];
    if (!p) this.load(Math.floor(i / PAGE));
    return undefined;
  }

  async load(p) {
    const { pages, unit } = this;
    pages.set(p, 'asked');
    try {
      const b = await this.app.link.ask('bytes', { offset: unit.offset + p * PAGE, count: Math.min(PAGE, unit.size - p * PAGE) });
      pages.set(p, b);
      if (this.pages === pages) this.list.draw();
    } catch (e) {
      pages.delete(p);
      if (!(e instanceof Stale)) this.app.failed(e);
    }
  }

  fill(e, line) {
    const [at, bs, cs] = e.children;
    const from = line * this.width;
    put(at, 'textContent', hex(this.unit.offset + from, 8));
    for (let i = 0; i < this.width; i++) {
      const b = bs.children[i];
      const c = cs.children[i];
      const pos = from + i;
      if (pos >= this.unit.size) {
        put(b, 'textContent', '  ');
        put(c, 'textContent', ' ');
        put(b, 'className', 'b');
        put(c, 'className', 'c');
        continue;
      }
      const v = this.byte(pos);
      put(b, 'textContent', v === undefined ? '··' : hex(v, 2));
      put(c, 'textContent', v === undefined ? ' ' : v >= 0x20 && v < 0x7f ? String.fromCharCode(v) : '·');
      const o = this.unit.offset + pos;
      const within = (r) => r && o >= r[0] && o < r[1];
      const k = `${within(this.mark) ? ' mark' : ''}${within(this.glow) ? ' glow' : ''}${o === this.cursor ? ' cursor' : ''}${v === 0 ? ' zero' : ''}${this.doubts.some((d) => o >= d.offset && o < d.offset + d.length) ? ' doubt' : ''}`;
      put(b, 'className', `b${k}`);
      put(c, 'className', `c${k}`);
    }
  }

  offsetOf(e) {
    const cell = e.target.closest('.b, .c');
    const line = e.target.closest('.line');
    if (!cell || !line) return -1;
    const i = [...cell.parentElement.children].indexOf(cell);
    const pos = line.index * this.width + i;
    return this.unit && pos < this.unit.size ? this.unit.offset + pos : -1;
  }

  click(e) {
    const o = this.offsetOf(e);
    if (o < 0) return;
    this.cursor = o;
    this.app.selectByte(o);
  }

  hover(e) {
    const o = this.offsetOf(e);
    if (o === this.hovered) return;
    this.hovered = o;
    this.app.hoverByte(o);
  }

  /** Lights the bytes of a field, and scrolls to them when it was chosen elsewhere. */
  select(f, scroll) {
    this.mark = f ? [f.offset, f.offset + f.length] : null;
    if (f && scroll) this.list.show(Math.floor((f.offset - this.unit.offset) / this.width));
    this.list.draw();
  }

  /** Underlines bytes that are in doubt. */
  doubt(list) {
    if (!list.length && !this.doubts.length) return;
    this.doubts = list;
    this.list.draw();
  }

  light(f) {
    this.glow = f ? [f.offset, f.offset + f.length] : null;
    this.list.draw();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || !this.unit) return;
    const w = this.width;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: w, ArrowUp: -w, j: w, k: -w, PageDown: w * (this.list.visible - 1), PageUp: -w * (this.list.visible - 1) }[e.key];
    const { offset, size } = this.unit;
    let to = this.cursor < 0 ? offset : this.cursor + (step ?? 0);
    if (e.key === 'Home') to = offset;
    else if (e.key === 'End') to = offset + size - 1;
    else if (step === undefined) return;
    e.preventDefault();
    this.cursor = Math.max(offset, Math.min(offset + size - 1, to));
    this.list.show(Math.floor((this.cursor - offset) / w));
    this.app.selectByte(this.cursor);
  }
}
