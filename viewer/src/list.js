// A virtual list: only the rows on the screen are elements. A browser ends an
// element at about 33 million pixels; a list that would be higher is scaled:
// the scroll bar spans all rows, and the wheel and the keys move by rows.

const MAX_HEIGHT = 4000000;

export class VirtualList {
  /**
   * @param {HTMLElement} el the scrolling element
   * @param {{rowHeight: number, make: () => HTMLElement, fill: (el, index) => void, moved?: () => void}} options
   */
  constructor(el, options) {
    this.el = el;
    el.classList.add('virtual');
    Object.assign(this, options);
    this.count = 0;
    this.top = 0; // first row on the screen, fractional
    this.at = 0; // where the scroll bar is
    this.tall = 0; // height of what is seen, 0 while nothing is
    this.head = 0; // height of what sticks to the top of it, such as column names
    this.pool = [];
    this.sizer = document.createElement('div');
    this.sizer.className = 'sizer';
    this.layer = document.createElement('div');
    this.layer.className = 'layer';
    this.layer.setAttribute('role', 'presentation');
    this.sizer.setAttribute('role', 'presentation');
    this.sizer.append(this.layer);
    el.append(this.sizer);
    el.addEventListener('scroll', () => this.scrolled(), { passive: true });
    el.addEventListener('wheel', (e) => this.wheel(e), { passive: false });
    new ResizeObserver(() => {
      this.measure();
      this.draw();
    }).observe(el);
  }

  /** Asked for in the middle of other changes each of these costs a layout. */
  measure() {
    this.tall = this.el.clientHeight;
    this.head = this.sizer.offsetTop;
  }

  /** Whether it is on the screen; what was just shown has no height that is known yet. */
  get seen() {
    if (!this.tall) this.measure();
    return this.tall > 0;
  }

  get visible() {
    return Math.max(1, Math.floor((this.tall - this.head) / this.rowHeight));
  }

  get scaled() {
    return this.count * this.rowHeight > MAX_HEIGHT;
  }

  get height() {
    return Math.min(this.count * this.rowHeight, MAX_HEIGHT);
  }

  get range() {
    return Math.max(0, this.height + this.head - this.tall);
  }

  get maxTop() {
    return Math.max(0, this.count - (this.tall - this.head) / this.rowHeight);
  }

  setCount(n) {
    if (n === this.count) {
      this.draw();
      return;
    }
    this.count = n;
    this.sizer.style.height = `${this.height}px`;
    this.top = Math.min(this.top, this.maxTop);
    this.place();
    this.draw();
  }

  scrolled() {
    this.at = this.el.scrollTop;
    if (this.placed !== undefined && Math.abs(this.at - this.placed) < 1) {
      this.placed = undefined;
      return;
    }
    this.placed = undefined;
    this.top = this.scaled ? (this.range ? this.at / this.range : 0) * this.maxTop : this.at / this.rowHeight;
    this.draw();
  }

  wheel(e) {
    if (!this.scaled || e.ctrlKey || e.shiftKey || !e.deltaY) return;
    e.preventDefault();
    const rows = e.deltaMode === 1 ? e.deltaY : e.deltaMode === 2 ? e.deltaY * this.visible : e.deltaY / this.rowHeight;
    this.scrollTo(this.top + rows);
  }

  /** Puts the scroll bar where the rows are. */
  place() {
    const y = this.scaled ? (this.maxTop ? this.top / this.maxTop : 0) * this.range : this.top * this.rowHeight;
    if (Math.abs(this.at - y) >= 1) {
      this.el.scrollTop = y;
      this.placed = this.at = this.el.scrollTop;
    }
  }

  /** Other rows come: the first of them at the top. */
  restart(count) {
    this.top = 0;
    this.place();
    this.setCount(count);
  }

  scrollTo(top) {
    this.top = Math.max(0, Math.min(top, this.maxTop));
    this.place();
    this.draw();
  }

  /** Scrolls as little as needed, or to the middle when it is far. */
  show(index) {
    if (!this.seen) {
      this.later = index;
      return;
    }
    const n = this.visible;
    if (index >= this.top && index <= this.top + n - 1) this.draw();
    else if (index < this.top && this.top - index < n) this.scrollTo(index);
    else if (index > this.top && index - this.top < 2 * n) this.scrollTo(index - n + 1);
    else this.scrollTo(index - n / 2);
    this.follow(index);
  }

  /** Where the page is longer than the window, it follows who moves by keys; what sticks to its end covers nothing. */
  follow(index) {
    const page = document.scrollingElement;
    if (document.activeElement !== this.el || page.scrollHeight <= page.clientHeight) return;
    const row = this.element(index)?.getBoundingClientRect();
    if (!row) return;
    const below = row.bottom - document.querySelector('footer').getBoundingClientRect().top;
    if (below > 0) window.scrollBy(0, Math.ceil(below));
    else if (row.top < 0) window.scrollBy(0, Math.floor(row.top));
  }

  draw() {
    if (!this.seen) return;
    if (this.later !== undefined) {
      const i = this.later;
      this.later = undefined;
      this.show(i);
      return;
    }
    if (this.top > this.maxTop) {
      this.top = this.maxTop;
      this.place();
    }
    const first = Math.floor(this.top);
    const n = Math.min(this.count - first, Math.ceil(this.tall / this.rowHeight) + 1);
    while (this.pool.length < n) {
      const e = this.make();
      e.style.height = `${this.rowHeight}px`;
      this.layer.append(e);
      this.pool.push(e);
    }
    // In a scaled list what scrolls is the layer's place, not the rows'.
    const base = this.scaled ? this.at : this.top * this.rowHeight;
    const shift = base - (this.top - first) * this.rowHeight;
    for (let i = 0; i < this.pool.length; i++) {
      const e = this.pool[i];
      if (i >= n) {
        e.hidden = true;
        continue;
      }
      e.hidden = false;
      e.style.transform = `translateY(${shift + i * this.rowHeight}px)`;
      e.index = first + i;
      this.fill(e, first + i);
    }
    this.first = first;
    this.shown = Math.max(0, n);
    this.moved?.();
  }

  /** Where a key goes from a row, within the list; undefined for a key that goes nowhere. */
  step(e, at) {
    if (e.ctrlKey || e.metaKey || e.altKey) return undefined;
    const page = Math.max(1, this.visible - 1);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.count - 1 }[e.key];
    return to === undefined ? undefined : Math.max(0, Math.min(this.count - 1, to));
  }

  /** The element of a row that is on the screen. */
  element(index) {
    return this.pool.find((e) => !e.hidden && e.index === index);
  }
}
