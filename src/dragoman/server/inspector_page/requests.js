/**
 * The list of requests, newest first: thousands of them, a few dozen in the document.
 *
 * @typedef {import("./types.js").Summary} Summary
 */

import { clock, count, counted, dialect, fill, h, milliseconds, plain, quoted } from "./dom.js";
import { VirtualList, focusable } from "./virtual_list.js";

const ROW = 56;
const MOST = 20_000; // summaries in memory, some 20 MB; the gateway's own ring is smaller unless requests are tiny

export class RequestList {
  /** Newest first. @type {Summary[]} */
  #all = [];
  /** @type {Map<string, number>} the number of each request, counted from the oldest: it never changes */
  #numbers = new Map();
  #oldest = 0;
  /** @type {Summary[]} */
  #shown = [];
  #words = /** @type {string[]} */ ([]);
  #isAsked = false;
  #focused = "";

  constructor() {
    this.filter = h("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter",
      "aria-label": "Filter requests",
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => {
        this.#words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        this.#drawSoon();
      },
    });
    this.tally = h("p", { class: "tally", "aria-live": "polite" });
    this.host = h("div", { role: "list", "aria-label": "Requests" });
    this.scroller = h("div", { class: "requests-scroll" }, this.host);
    this.empty = h("div", { class: "empty", hidden: true });
    this.element = h("nav", { class: "requests", "aria-label": "Requests" }, h("div", { class: "requests-head" }, this.filter, this.tally), this.empty, this.scroller);
    this.list = new VirtualList(this.scroller, this.host, (index) => this.#row(index));
    this.host.addEventListener("focusin", (focused) => {
      const row = /** @type {Element} */ (focused.target).closest("a");
      if (row) this.#focused = row.dataset.id ?? "";
    });
  }

  /** The request that is open. @type {string} */
  #open = "";
  get open() {
    return this.#open;
  }
  set open(id) {
    this.#open = id;
    if (id) this.#focused = id;
    this.#drawSoon();
  }

  /** Add older requests, as the gateway lists them. @param {Summary[]} summaries */
  addOlder(summaries) {
    for (const summary of summaries) {
      if (this.#all.length >= MOST) break;
      if (this.#numbers.has(summary.id)) continue;
      this.#oldest -= 1;
      this.#numbers.set(summary.id, this.#oldest);
      this.#all.push(summary);
    }
    this.#drawSoon();
  }

  /** A request began, or went on. @param {Summary} summary */
  put(summary) {
    const number = this.#numbers.get(summary.id);
    if (number !== undefined) {
      this.#all[this.#oldest + this.#all.length - 1 - number] = summary;
    } else {
      this.#numbers.set(summary.id, this.#oldest + this.#all.length);
      this.#all.unshift(summary);
      if (this.#all.length > MOST) {
        const last = /** @type {Summary} */ (this.#all.pop());
        this.#numbers.delete(last.id);
        this.#oldest += 1;
      }
      // Somebody who reads further down stays there.
      if (this.scroller.scrollTop > 0 && this.#matches(summary)) this.scroller.scrollTop += ROW;
    }
    this.#drawSoon();
  }

  /** Move the focus. @param {number} by */
  move(by) {
    const at = this.#shown.findIndex((summary) => summary.id === this.#focused);
    const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), this.#shown.length - 1);
    focusable(this.list.reveal(next))?.focus({ preventScroll: true });
  }

  #drawSoon() {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#shown = this.#words.length ? this.#all.filter((summary) => this.#matches(summary)) : this.#all;
      this.list.show(this.#shown.length, () => ROW, (index) => this.#shown[index]);
      for (const [index, row] of this.list.rows()) {
        row.ariaSetSize = String(this.#shown.length);
        row.ariaPosInSet = String(index + 1);
        const link = /** @type {HTMLElement} */ (row.firstChild);
        link.ariaCurrent = link.dataset.id === this.#open ? "true" : null;
      }
      const all = this.#all.length;
      fill(this.tally, this.#words.length ? `${count(this.#shown.length)} of ${count(all)}` : counted(all, "request"));
      this.empty.hidden = all > 0;
    });
  }

  /** @param {Summary} summary */
  #matches(summary) {
    if (!this.#words.length) return true;
    const { error, losses, repairs, problems, live } = summary;
    const text = [
      summary.id, summary.model, summary.door, dialect(summary.upstream_dialect), summary.upstream, summary.status, summary.finish, ...summary.calls,
      error && `error ${error.kind} ${error.message}`, losses && "loss", repairs && "repair", problems && "problem", live && "live",
    ]
      .join(" ")
      .toLowerCase();
    return this.#words.every((word) => text.includes(word));
  }

  /** @param {number} index @returns {HTMLElement} */
  #row(index) {
    const summary = this.#shown[index];
    const { error, status, live } = summary;
    const state = live ? "live" : error || (status ?? 200) >= 400 ? "failed" : summary.problems || summary.losses ? "noted" : "fine";
    return h(
      "div",
      { role: "listitem", class: "request-item", "aria-setsize": this.#shown.length, "aria-posinset": index + 1 },
      h(
        "a",
        { class: `request ${state}`, href: `#/requests/${encodeURIComponent(summary.id)}`, "data-id": summary.id, "aria-current": summary.id === this.#open ? "true" : null },
        h("span", { class: "dot", title: live ? "live" : (error?.kind ?? String(status ?? "")) }),
        h("span", { class: "model" }, quoted(summary.model || "no model")),
        h("time", {}, clock(summary.at)),
        h("span", { class: "way" }, `${short(summary.door)} → ${short(summary.upstream_dialect)}`),
        h("span", { class: "what" }, error ? plain(error.kind) : summary.calls.length ? quoted(callsOf(summary.calls), "calls-made") : plain(summary.finish ?? "")),
        h("span", { class: "took" }, live ? "live" : milliseconds(summary.total_ms)),
      ),
    );
  }
}

/** @param {string[]} calls */
function callsOf(calls) {
  const [first, ...rest] = calls;
  return rest.length ? `${first}() +${rest.length}` : `${first}()`;
}

/** A dialect, or a door by its path. @param {string | null} name */
function short(name) {
  return dialect(name?.match(/chat|responses|messages/)?.[0] ?? name);
}
