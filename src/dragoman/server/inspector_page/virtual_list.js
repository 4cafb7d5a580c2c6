/** A list of any length of which only what can be seen is in the document. */

// Rows beyond the edges, so that a quick scroll and the tab key meet rows that are there.
const OVERSCAN = 8;

export class VirtualList {
  /** @type {Map<number, HTMLElement>} */
  #shown = new Map();
  /** What each row shows; a row that shows the same in its new place stays as it is. @type {Map<unknown, HTMLElement>} */
  #byItem = new Map();
  /** @type {(index: number) => unknown} */
  #item = (index) => index;
  #count = 0;
  /** The top of each row and, last, the height of all. @type {Float64Array} */
  #tops = new Float64Array(1);
  #isAsked = false;
  #drawSoon = () => {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.draw();
    });
  };

  /**
   * @param {HTMLElement} scroller what scrolls
   * @param {HTMLElement} host what holds the rows, anywhere inside it
   * @param {(index: number) => HTMLElement} render
   */
  constructor(scroller, host, render) {
    this.scroller = scroller;
    this.host = host;
    this.render = render;
    host.classList.add("virtual");
    scroller.addEventListener("scroll", this.#drawSoon, { passive: true });
    this.watch = new ResizeObserver(this.#drawSoon);
    this.watch.observe(scroller);
  }

  /** Forget the list; its rows stay as they are. */
  close() {
    this.watch.disconnect();
    this.scroller.removeEventListener("scroll", this.#drawSoon);
  }

  /**
   * Show these rows. Rows in the document that show the same item stay, perhaps at another place; the others are made anew.
   * @param {number} count
   * @param {(index: number) => number} height
   * @param {(index: number) => unknown} [item]
   */
  show(count, height, item) {
    const kept = item ? new Map(this.#byItem) : new Map();
    this.#item = item ?? ((index) => index);
    this.#count = count;
    this.#tops = new Float64Array(count + 1);
    for (let index = 0; index < count; index++) this.#tops[index + 1] = this.#tops[index] + height(index);
    this.host.style.height = `${this.#tops[count]}px`;
    const focused = [...this.#shown].find(([, row]) => row.contains(document.activeElement))?.[0];
    this.#shown.clear();
    this.#byItem.clear();
    this.draw(kept);
    const stays = new Set(this.#shown.values());
    for (const row of [...this.host.children]) if (!stays.has(/** @type {HTMLElement} */ (row))) row.remove();
    if (focused !== undefined && !this.host.contains(document.activeElement)) {
      focusable(this.#shown.get(focused))?.focus({ preventScroll: true });
    }
  }

  /**
   * Put the rows that can be seen into the document, in their order, and take the others out.
   * @param {Map<unknown, HTMLElement>} [kept] rows that may be used again
   */
  draw(kept) {
    const view = this.scroller.getBoundingClientRect();
    const above = view.top - this.host.getBoundingClientRect().top;
    const first = Math.max(0, this.#find(above) - OVERSCAN);
    const last = Math.min(this.#count - 1, this.#find(above + view.height) + OVERSCAN);
    for (const [index, row] of this.#shown) {
      if (index >= first && index <= last) continue;
      // The row with the focus stays, or the keyboard would lose its place.
      if (row.contains(document.activeElement)) continue;
      row.remove();
      this.#shown.delete(index);
      this.#byItem.delete(this.#item(index));
    }
    for (let index = first; index <= last; index++) {
      if (this.#shown.has(index)) continue;
      const item = this.#item(index);
      const old = kept?.get(item);
      const row = old ?? this.render(index);
      row.style.transform = `translateY(${this.#tops[index]}px)`;
      this.#shown.set(index, row);
      this.#byItem.set(item, row);
      if (!old) this.host.insertBefore(row, this.#after(index));
    }
  }

  /** The row, scrolled into view. @param {number} index @returns {HTMLElement | undefined} */
  reveal(index) {
    if (index < 0 || index >= this.#count) return undefined;
    const view = this.scroller.getBoundingClientRect();
    const top = this.host.getBoundingClientRect().top + this.#tops[index] - view.top;
    const bottom = top + this.#tops[index + 1] - this.#tops[index];
    const edge = Math.min(96, view.height / 4);
    if (top < edge) this.scroller.scrollTop += top - edge;
    else if (bottom > view.height - edge) this.scroller.scrollTop += bottom - view.height + edge;
    this.draw();
    return this.#shown.get(index);
  }

  /** Every row that is in the document. @returns {IterableIterator<[number, HTMLElement]>} */
  rows() {
    return this.#shown.entries();
  }

  /** The row that stands at a height. @param {number} height */
  #find(height) {
    let low = 0;
    let high = this.#count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#tops[middle] <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The row before which a row belongs. @param {number} index */
  #after(index) {
    let next = Infinity;
    for (const shown of this.#shown.keys()) if (shown > index && shown < next) next = shown;
    return this.#shown.get(next) ?? null;
  }
}

/** What takes the focus in a row: the row itself, or what is in it. @param {HTMLElement | undefined} row @returns {HTMLElement | null | undefined} */
export function focusable(row) {
  return row?.matches("[tabindex], a") ? row : row?.querySelector("a");
}
