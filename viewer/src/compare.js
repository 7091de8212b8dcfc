// The Compare tab: the fields of two frames side by side.

import { h, visible } from './dom.js';
import { duration, many, number, rowName, time } from './format.js';
import { Stale } from './link.js';
import { settings } from './settings.js';

export class Compare {
  constructor(app, el) {
    this.app = app;
    this.el = el;
    this.other = null; // the row that others are compared with
  }

  reset() {
    this.other = null;
    this.shown = this.rendered = undefined;
    this.el.replaceChildren();
  }

  /** Times are shown in another form. */
  times() {
    if (this.rendered) this.render(...this.rendered);
  }

  /** Takes a row as the one to compare with. */
  hold(row) {
    this.other = row;
    this.shown = undefined;
  }

  async show(unit) {
    if (this.other === null) {
      this.el.replaceChildren(h('p', { class: 'empty', text: 'No frame is held to compare with.' }),
        h('button', { type: 'button', text: 'Hold the open frame (c)', onclick: () => this.app.hold() }));
      return;
    }
    const key = `${this.other}/${unit.row}`;
    if (this.shown === key) return;
    this.shown = key;
    this.rendered = undefined;
    this.el.replaceChildren(h('p', { class: 'empty', text: 'Comparing…' }));
    // While frames go by only the last of them is compared.
    if (this.busy) return;
    this.busy = true;
    try {
      await this.work();
    } finally {
      this.busy = false;
    }
  }

  /** Compares what is asked for until nothing else is. */
  async work() {
    for (let key; this.shown !== undefined && this.shown !== key;) {
      key = this.shown;
      const [left, right] = key.split('/').map(Number);
      try {
        const a = await this.app.link.ask('flat', { row: left });
        const b = this.shown === key ? await this.app.link.ask('flat', { row: right }) : null;
        if (b && this.shown === key) this.render(a, b);
      } catch (e) {
        if (e instanceof Stale || this.shown !== key) continue;
        this.shown = undefined;
        this.el.replaceChildren(h('p', { class: 'bad', text: visible(e.message) }));
      }
    }
  }

  text(l) {
    if (!l) return '';
    const v = l.type === 'time' ? time(l.value, settings.time, this.app.origin) : l.type === 'duration' ? duration(l.value)
      : l.type === 'blob' ? `${many(l.bytes, 'byte')}, ${l.value}` : l.type === 'none' ? 'absent' : l.value ?? (l.count === undefined ? '' : `${number(l.count)} ×`);
    return l.note ? `${v} (${l.note})` : v;
  }

  render(a, b) {
    this.rendered = [a, b];
    const whole = this.el.querySelector('input')?.checked ?? false;
    const left = new Map(a.lines.map((l) => [l.key, l]));
    const right = new Map(b.lines.map((l) => [l.key, l]));
    const keys = [...new Set([...left.keys(), ...right.keys()])];
    const lines = keys.map((k) => ({ k, a: this.text(left.get(k)), b: this.text(right.get(k)), inA: left.has(k), inB: right.has(k) }));
    const same = (l) => l.inA === l.inB && l.a === l.b;
    const differing = lines.filter((l) => !same(l));
    const body = h('tbody');
    const fill = (all) => body.replaceChildren(...(all ? lines : differing).slice(0, 3000).map((l) => h('tr', { class: same(l) ? '' : 'differs' },
      h('td', { class: 'sign', text: same(l) ? '=' : !l.inA ? '+' : !l.inB ? '−' : '≠' }),
      h('td', { text: l.k }), h('td', { text: l.a, title: l.a }), h('td', { text: l.b, title: l.b }))));
    fill(whole);
    this.el.replaceChildren(
      h('p', { class: 'line', role: 'status', text: `${number(differing.length)} of ${many(lines.length, 'field')} differ${a.cut || b.cut ? ' (of the first 5,000)' : ''}.` }),
      h('label', {}, h('input', { type: 'checkbox', checked: whole, onchange: (e) => fill(e.target.checked) }), h('span', { text: 'show equal fields too' })),
      h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Differences' }, h('table', { class: 'compare' },
        h('thead', {}, h('tr', {}, h('td'), h('th', { text: 'field' }),
          h('th', {}, h('button', { class: 'link', type: 'button', text: `${rowName(a.unit)} ${a.unit.name}`, onclick: () => this.app.gotoRow(a.unit.row) })),
          h('th', { text: `${rowName(b.unit)} ${b.unit.name}` }))),
        body)));
  }
}
