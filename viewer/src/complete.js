// Completion of the filter: fields, operators, kinds, and what the sources are
// called.

import { $, h } from './dom.js';

const OPERATORS = [['==', 'equal'], ['!=', 'not equal'], ['~', 'contains'], ['!~', 'contains not'], ['<', 'less'], ['<=', 'at most'], ['>', 'more'], ['>=', 'at least']];
const JOINERS = [['and', 'both'], ['or', 'one of the two']];
const TYPES = ['frame', 'preamble', 'junk', 'lost', 'cut', 'zeros', 'missing'];

const quote = (s) => (/^[\w.:/+@-]+$/.test(s) ? s : `"${s.replace(/["\\]/g, '\\$&')}"`);

export class Complete {
  constructor(input, app) {
    this.input = input;
    this.app = app;
    this.box = $('completions');
    this.at = -1;
    input.addEventListener('input', () => {
      this.typed = true;
      this.update();
    });
    input.addEventListener('focus', () => {
      clearTimeout(this.leaving);
      this.typed = false;
      this.update();
    });
    input.addEventListener('blur', () => { this.leaving = setTimeout(() => this.close(), 150); });
    input.addEventListener('keydown', (e) => this.key(e), true);
  }

  /** What could stand at the cursor: [from, [text, about][]]. */
  offers() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const word = /("[^"]*|[\w.:/+@-]*)$/.exec(before)[0];
    const from = before.length - word.length;
    const rest = before.slice(0, from).trimEnd();
    const { words, sources } = this.app;
    if (!words) return [from, []];
    const fields = words.fields.map((f) => [f.name, f.about]);
    let list;
    const compared = /(\w+)\s*(==|=|!=|~|!~|<=?|>=?)$/.exec(rest);
    if (compared) list = this.values(compared[1].toLowerCase(), sources);
    else if (rest === '' || /(\band|\bor|\bnot|&&|\|\||!|\()$/i.test(rest)) list = [...fields, ['not', 'the rows that it does not take']];
    else if (words.fields.some((f) => new RegExp(`(^|[^\\w"])${f.name}$`, 'i').test(rest))) list = [...OPERATORS, ...JOINERS];
    else list = JOINERS;
    const low = word.toLowerCase().replace(/^"/, '');
    return [from, list.filter(([t]) => t.toLowerCase().replace(/^"/, '').startsWith(low) && t !== word).slice(0, 12)];
  }

  values(field, sources) {
    if (field === 'kind') return this.app.words.kinds.map((k) => [k, '']);
    if (field === 'type') return TYPES.map((t) => [t, '']);
    if (field === 'source') return sources.map((s) => [quote(s.label ?? s.id), `source ${s.id}`]);
    if (field === 'stream') return [...new Set(sources.flatMap((s) => s.streams.map((t) => t.name)))].map((n) => [quote(n), '']);
    if (field === 'finding') return Object.entries(this.app.status?.byFinding ?? {}).map(([k, n]) => [quote(k), `${n}`]);
    if (field === 'time' && this.app.unit?.time) return [[this.app.unit.time, 'of the frame that is open']];
    return [];
  }

  /** Whether a word was begun: else Tab goes on, as it does anywhere. */
  get begun() {
    return this.typed && this.input.selectionStart > this.from;
  }

  update() {
    if (document.activeElement !== this.input) return;
    const [from, list] = this.offers();
    this.from = from;
    this.list = list;
    this.at = -1;
    if (!list.length) {
      this.close();
      return;
    }
    this.box.replaceChildren(...list.map(([text, about], i) => h('div', {
      class: 'offer', role: 'option', id: `offer-${i}`, 'aria-selected': 'false',
      onpointerdown: (e) => { e.preventDefault(); this.take(i); },
    }, h('span', { text }), h('span', { class: 'dim', text: about }))));
    this.box.hidden = false;
    this.input.setAttribute('aria-expanded', 'true');
  }

  close() {
    this.box.hidden = true;
    this.input.setAttribute('aria-expanded', 'false');
    this.input.removeAttribute('aria-activedescendant');
  }

  mark(i) {
    this.at = i;
    [...this.box.children].forEach((c, j) => c.setAttribute('aria-selected', String(i === j)));
    if (i >= 0) this.input.setAttribute('aria-activedescendant', `offer-${i}`);
  }

  take(i) {
    const { value, selectionStart } = this.input;
    const text = `${this.list[i][0]} `;
    this.input.value = value.slice(0, this.from) + text + value.slice(selectionStart);
    this.input.selectionStart = this.input.selectionEnd = this.from + text.length;
    this.update();
  }

  key(e) {
    if (this.box.hidden) return;
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      const n = this.list.length;
      this.mark(e.key === 'ArrowDown' ? (this.at + 1) % n : (this.at - 1 + n) % n);
    } else if ((e.key === 'Enter' && this.at >= 0) || (e.key === 'Tab' && !e.shiftKey && (this.at >= 0 || this.begun))) {
      e.preventDefault();
      e.stopImmediatePropagation();
      this.take(Math.max(0, this.at));
    } else if (e.key === 'Escape') {
      e.stopImmediatePropagation();
      this.close();
    }
  }
}
