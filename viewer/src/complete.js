// Completion of the filter: fields, operators, kinds, and what the sources are
// called.

import { $, h } from './dom.js';
import { quote, tokens } from './expression.js';

const OPERATORS = [['==', 'equal'], ['!=', 'not equal'], ['~', 'contains'], ['!~', 'contains not'], ['<', 'less'], ['<=', 'at most'], ['>', 'more'], ['>=', 'at least']];
const JOINERS = [['and', 'both'], ['or', 'one of the two']];
const TYPES = ['frame', 'preamble', 'junk', 'lost', 'cut', 'zeros', 'missing'];

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

  /** What could stand at the cursor: [from, [text, about, stream][]], stream a number where the text is not the whole name. */
  offers() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const { words, sources } = this.app;
    if (!words || before.length > words.longest) return [before.length, []];
    const all = tokens(before);
    // The word or the open quote that the cursor stands at is being written.
    let [word, from] = ['', before.length];
    const last = all[all.length - 1];
    if (last && last.from + last.text.length === before.length && (/^[\w.:/+@\-\u0080-\uffff]/.test(last.text) || /^"(\\[^]|[^"\\])*$/.test(last.text))) {
      word = last.text;
      ({ from } = all.pop());
    }
    const [two, one] = [all[all.length - 2]?.text, all[all.length - 1]?.text];
    const operator = (t) => t === '=' || OPERATORS.some(([o]) => o === t);
    const isField = (t) => words.fields.some((f) => f.name === t?.toLowerCase());
    let list;
    if (operator(one)) list = this.values(two?.toLowerCase(), sources);
    else if (one === undefined || /^(and|or|not|&&|\|\||!|\()$/i.test(one)) list = [...words.fields.map((f) => [f.name, f.about]), ['not', 'the rows that it does not take']];
    else if (isField(one) && !operator(two)) list = [...OPERATORS, ...JOINERS];
    else list = JOINERS;
    const low = word.toLowerCase().replace(/^"/, '');
    return [from, list.filter(([t]) => t.toLowerCase().replace(/^"/, '').startsWith(low) && t !== word).slice(0, 12)];
  }

  values(field, sources) {
    if (field === 'kind') return this.app.words.kinds.map((k) => [k, '']);
    if (field === 'type') return TYPES.map((t) => [t, '']);
    // What is not shown as it is goes by its number.
    if (field === 'source') return sources.map((s) => (s.label === undefined || s.altered ? [s.id, s.label ?? `source ${s.id}`] : [quote(s.label), `source ${s.id}`]));
    if (field === 'stream') {
      const seen = new Map();
      for (const t of sources.flatMap((s) => s.streams)) {
        if (t.altered) seen.set(t.number, [t.name, '', t.number]);
        else seen.set(t.name, [quote(t.name), '']);
      }
      return [...seen.values()];
    }
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

  async take(i) {
    const { value, selectionStart } = this.input;
    const { from } = this;
    let [text, , stream] = this.list[i];
    if (stream !== undefined) {
      text = await this.app.link.ask('streamName', { number: stream });
      if (this.input.value !== value) return;
    }
    this.input.value = `${value.slice(0, from)}${text} ${value.slice(selectionStart)}`;
    this.input.selectionStart = this.input.selectionEnd = from + text.length + 1;
    this.update();
  }

  key(e) {
    // What is asked for with Enter is as it should be.
    if (e.key === 'Enter' && this.at < 0) this.close();
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
