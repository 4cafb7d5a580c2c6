/**
 * The crossing: the client's wire and the upstream's wire side by side, the canonical events between them, in the order of
 * time. Pointing at an event, or at the text of a delta, lights the bytes it came from and the bytes it became.
 *
 * @typedef {import("./types.js").Exchange} Exchange
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").CanonicalEvent} CanonicalEvent
 * @typedef {import("./types.js").Note} Note
 * @typedef {"client" | "upstream"} Side
 * @typedef {Frame & {key: string}} KeyedFrame the key is unique in the exchange: an exchange may have several attempts
 * @typedef {{at: number, client: KeyedFrame | null, event: CanonicalEvent | null, upstream: KeyedFrame | null}} Row
 * @typedef {{start: number, end: number, event: number}} Mark characters of a frame's text, and the event they belong to
 */

import { bytes, dialect, fill, h, milliseconds, plain, quoted, visible } from "./dom.js";
import { VirtualList } from "./virtual_list.js";

const ROW = 30;
const NARROW_ROW = 84; // on a phone the three cells of a row are below each other
const TALLEST_GAP = 40; // pixels between two rows, however long nothing happened
const CELL_TEXT = 160; // characters of a frame in a row: more than the widest cell shows
const CELL_LEAD = 16; // characters of it before its delta
const LENS_TEXT = 2_000; // characters before and after a delta in the panel below

/** What an event is about; it decides its colour. @param {string} type */
function topicOf(type) {
  if (type === "Failed") return "failure";
  if (type === "InputDelta" || type === "OutputDelta") return "input";
  if (type === "TextDelta") return "text";
  if (type === "ReasoningDelta" || type === "SealAdded") return "reasoning";
  return "frame";
}

/** @param {number} n */
function clientKey(n) {
  return `client ${n}`;
}

/** @param {number} attempt @param {number} n */
function upstreamKey(attempt, n) {
  return `upstream ${attempt} ${n}`;
}

/** @param {CanonicalEvent} event @param {Exchange} exchange */
function sourceKey(event, exchange) {
  if (event.upstream_frame === null) return null;
  return upstreamKey(event.attempt ?? exchange.attempts.length - 1, event.upstream_frame);
}

/** The frames of both wires; those of all attempts, in their order. @param {Exchange} exchange */
export function wires({ client, attempts }) {
  return {
    client: client.answer.frames.map((frame) => ({ ...frame, key: clientKey(frame.n) })),
    upstream: attempts.flatMap((attempt, index) => (attempt.answer?.frames ?? []).map((frame) => ({ ...frame, key: upstreamKey(index, frame.n) }))),
  };
}

/**
 * The rows: one per event, with the frame it came from and the frame it became, each frame once; and a row for each frame
 * that no event belongs to.
 * @param {Exchange} exchange
 * @param {ReturnType<typeof wires>} frames
 * @returns {Row[]}
 */
function crossingRows(exchange, frames) {
  const upstream = waiting(frames.upstream);
  const client = waiting(frames.client);
  /** @type {Row[]} */
  const rows = [];
  /** @param {KeyedFrame[]} left @param {KeyedFrame[]} right */
  const alone = (left, right) => {
    while (left.length || right.length) {
      const [ours, theirs] = [left[0], right[0]];
      const isOurs = !theirs || (ours !== undefined && ours.at < theirs.at);
      const frame = /** @type {KeyedFrame} */ (isOurs ? left.shift() : right.shift());
      rows.push({ at: frame.at, client: isOurs ? frame : null, event: null, upstream: isOurs ? null : frame });
    }
  };
  // A frame stands beside the event whose text it has, where several events became one frame.
  const owners = new Map(exchange.events.toReversed().flatMap((event) => event.client_ranges.map(([n]) => [n, event.n])));
  for (const event of exchange.events) {
    const keys = event.client_frames.filter((n) => (owners.get(n) ?? event.n) === event.n).map(clientKey);
    const source = sourceKey(event, exchange);
    alone(client.before(keys[0]), upstream.before(source));
    const own = keys.map(client.take).filter((frame) => frame !== null);
    rows.push({ at: event.at, client: own[0] ?? null, event, upstream: source === null ? null : upstream.take(source) });
    for (const frame of own.slice(1)) rows.push({ at: frame.at, client: frame, event: null, upstream: null });
  }
  alone(client.rest(), upstream.rest());
  return rows;
}

/** Frames that no row has yet. @param {KeyedFrame[]} frames in their order */
function waiting(frames) {
  const left = new Map(frames.map((frame) => [frame.key, frame]));
  /** @param {string} key */
  const take = (key) => {
    const frame = left.get(key) ?? null;
    left.delete(key);
    return frame;
  };
  /** Those before a frame, if it still waits. @param {string | null | undefined} key @returns {KeyedFrame[]} */
  const before = (key) => {
    if (!key || !left.has(key)) return [];
    const found = [];
    for (const frame of left.values()) {
      if (frame.key === key) break;
      found.push(frame);
    }
    for (const frame of found) left.delete(frame.key);
    return found;
  };
  return { take, before, rest: () => [...left.values()] };
}

/** The positions in a JavaScript string of ranges that count characters. @param {string} text @param {Mark[]} marks @returns {Mark[]} */
function placed(text, marks) {
  const sorted = marks.toSorted((a, b) => a.start - b.start);
  if (!/[\ud800-\udbff]/.test(text)) return sorted;
  let characters = 0;
  let units = 0;
  const advance = (/** @type {number} */ to) => {
    while (characters < to && units < text.length) {
      units += (text.codePointAt(units) ?? 0) > 0xffff ? 2 : 1;
      characters += 1;
    }
    return units;
  };
  return sorted.map((mark) => {
    if (mark.start < characters) characters = units = 0;
    const start = advance(mark.start);
    return { start, end: advance(mark.end), event: mark.event };
  });
}

/**
 * A piece of a frame's text, with its deltas marked.
 * @param {string} text
 * @param {Mark[]} marks in order
 * @param {number} from
 * @param {number} to
 * @param {boolean} isLine
 */
function marked(text, marks, from, to, isLine) {
  const fragment = document.createDocumentFragment();
  if (from > 0) fragment.append(h("span", { class: "cut" }, "…"));
  let at = from;
  for (const { start, end, event } of marks) {
    const first = Math.max(start, at);
    const last = Math.min(end, to);
    if (last <= first) continue;
    fragment.append(visible(text.slice(at, first), isLine));
    fragment.append(h("mark", { "data-event": event }, visible(text.slice(first, last), isLine)));
    at = last;
  }
  if (at < to) fragment.append(visible(text.slice(at, to), isLine));
  if (to < text.length) fragment.append(h("span", { class: "cut" }, "…"));
  return fragment;
}

/** The exchange's lanes, as a table of which only what can be seen is in the document. */
export class Crossing {
  /** @type {Map<string, Mark[]>} by side and frame */
  #marks = new Map();
  /** @type {Map<string, Note[]>} by side and frame */
  #notes = new Map();
  /** @type {Map<number, number>} the row of an event */
  #rowOfEvent = new Map();
  /** @type {Map<string, number>} the row of a frame */
  #rowOfFrame = new Map();
  #lit = -1;
  #selected = -1;

  /** @param {Exchange} exchange @param {HTMLElement} scroller */
  constructor(exchange, scroller) {
    this.exchange = exchange;
    this.wires = wires(exchange);
    this.rows = crossingRows(exchange, this.wires);
    this.rows.forEach((row, index) => {
      if (row.event) this.#rowOfEvent.set(row.event.n, index);
      if (row.client) this.#rowOfFrame.set(row.client.key, index);
      if (row.upstream) this.#rowOfFrame.set(row.upstream.key, index);
    });
    for (const note of exchange.notes) {
      if (note.frame !== null) push(this.#notes, this.#noteKey(note.side, note.frame), note);
    }
    for (const event of exchange.events) {
      const source = sourceKey(event, exchange);
      if (source !== null && event.upstream_range) {
        const [start, end] = event.upstream_range;
        push(this.#marks, source, { start, end, event: event.n });
      }
      for (const [n, start, end] of event.client_ranges) push(this.#marks, clientKey(n), { start, end, event: event.n });
    }
    for (const { key, text } of [...this.wires.client, ...this.wires.upstream]) {
      const marks = this.#marks.get(key);
      if (marks) this.#marks.set(key, placed(text, marks));
    }
    this.lens = h("div", { class: "lens", role: "region", "aria-label": "Bytes of the event", "aria-live": "polite" });
    this.host = h("div", { class: "lanes-rows", role: "rowgroup" });
    this.element = this.#table();
    this.list = new VirtualList(scroller, this.host, (index) => this.#row(index));
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", this.show);
    this.#listen();
    this.#fillLens();
  }

  /** Call it when the element is in the document. */
  show = () => {
    const row = this.narrow.matches ? NARROW_ROW : ROW;
    this.list.show(this.rows.length, (index) => row + this.#gap(index));
  };

  close() {
    this.narrow.removeEventListener("change", this.show);
    this.list.close();
  }

  /** Go to a frame: what a note's link does. @param {Side} side @param {number} frame */
  openFrame(side, frame) {
    this.select(this.#rowOfFrame.get(this.#noteKey(side, frame)) ?? -1);
  }

  /** Notes are about the answer that the client's was made from, the last one. @param {Side} side @param {number} frame */
  #noteKey(side, frame) {
    return side === "client" ? clientKey(frame) : upstreamKey(this.exchange.attempts.length - 1, frame);
  }

  /** @param {number} index */
  select(index) {
    const row = this.list.reveal(index);
    if (!row) return;
    this.#selected = index;
    row.focus({ preventScroll: true });
    this.#light(index);
  }

  /** Walk from the row with the focus. @param {number} by */
  move(by) {
    this.select(Math.min(Math.max(this.#selected + by, 0), this.rows.length - 1));
  }

  #table() {
    const { client, attempts } = this.exchange;
    const last = attempts.at(-1);
    const heading = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string} */ detail) =>
      h("div", { class: `lane-head ${name}`, role: "columnheader" }, h("strong", {}, title), h("span", {}, detail));
    return h(
      "div",
      { class: "lanes", role: "table", "aria-label": "Frames and events", "aria-rowcount": this.rows.length + 1 },
      h(
        "div",
        { class: "lanes-head", role: "row" },
        h("div", { class: "lane-head time", role: "columnheader" }, "time"),
        heading("client", "Client’s wire", wire(client.dialect, this.wires.client)),
        heading("event", "Events", String(this.exchange.events.length)),
        heading("upstream", "Upstream’s wire", wire(last?.dialect ?? "", this.wires.upstream)),
      ),
      this.host,
    );
  }

  /** Pixels above a row: the longer nothing happened, the more. @param {number} index */
  #gap(index) {
    if (!index) return 0;
    const silence = this.rows[index].at - this.rows[index - 1].at;
    return silence < 20 ? 0 : Math.min(TALLEST_GAP, Math.round(6 * Math.log2(silence / 10)));
  }

  /** @param {number} index @returns {HTMLElement} */
  #row(index) {
    const row = this.rows[index];
    const isNew = !index || Math.abs(row.at - this.rows[index - 1].at) >= 0.1;
    const element = h(
      "div",
      {
        class: "lanes-row",
        role: "row",
        tabindex: "0",
        "aria-rowindex": index + 2,
        "data-index": index,
        "data-topic": row.event ? topicOf(row.event.type) : "frame",
      },
      h("div", { class: "time", role: "cell" }, isNew ? milliseconds(row.at) : ""),
      this.#frameCell("client", row.client, row.event),
      this.#eventCell(row),
      this.#frameCell("upstream", row.upstream, row.event),
    );
    const gap = this.#gap(index);
    if (gap) {
      element.classList.add("after-silence");
      element.style.setProperty("--gap", `${gap}px`);
    }
    if (row.event && row.event.n === this.#lit) element.classList.add("lit");
    for (const mark of element.querySelectorAll(`mark[data-event="${this.#lit}"]`)) mark.classList.add("lit");
    return element;
  }

  /** @param {Side} side @param {KeyedFrame | null} frame @param {CanonicalEvent | null} event */
  #frameCell(side, frame, event) {
    const cell = h("div", { class: `frame ${side}`, role: "cell" });
    if (!frame) {
      const isJoined = event && (side === "client" ? event.client_frames.length : event.upstream_frame !== null);
      if (isJoined) cell.append(h("span", { class: "joined", title: "in a frame of another row" }, "⋮"));
      return cell;
    }
    const marks = this.#marks.get(frame.key) ?? [];
    const focus = (event && marks.find((mark) => mark.event === event.n)) ?? marks[0];
    const text = frame.text.trimEnd();
    const start = focus && focus.start > CELL_LEAD ? focus.start - CELL_LEAD : 0;
    const to = Math.min(text.length, start + CELL_TEXT);
    cell.append(
      h("span", { class: "number", title: `frame ${frame.n}, ${bytes(frame.bytes)}` }, frame.n),
      h("bdi", { class: "wire" }, text ? marked(text, marks, Math.min(start, to), to, true) : bytes(frame.bytes)),
      ...(this.#notes.get(frame.key) ?? []).map((note) => h("span", { class: `pin ${note.type}`, title: plain(note.message) }, note.code)),
    );
    return cell;
  }

  /** @param {Row} row */
  #eventCell({ event }) {
    if (!event) return h("div", { class: "event", role: "cell" });
    return h(
      "div",
      { class: "event", role: "cell", "data-event": event.n },
      h("span", { class: "type" }, event.type),
      event.part === null ? null : h("span", { class: "part", title: `part ${event.part}` }, event.part),
      event.text ? quoted(event.text.slice(0, 60), "delta") : null,
    );
  }

  #listen() {
    this.host.addEventListener("pointerover", (pointed) => this.#point(pointed.target));
    this.host.addEventListener("focusin", (focused) => {
      const row = /** @type {HTMLElement} */ (focused.target).closest(".lanes-row");
      if (row instanceof HTMLElement) this.#selected = Number(row.dataset.index);
      this.#point(focused.target);
    });
    this.host.addEventListener("click", (clicked) => {
      const row = /** @type {Element} */ (clicked.target).closest(".lanes-row");
      if (row instanceof HTMLElement) row.focus({ preventScroll: true });
    });
  }

  /** @param {EventTarget | null} target */
  #point(target) {
    if (!(target instanceof Element)) return;
    const mark = target.closest("mark[data-event]");
    const row = target.closest(".lanes-row");
    if (mark instanceof HTMLElement) this.#light(this.#rowOfEvent.get(Number(mark.dataset.event)) ?? -1);
    else if (row instanceof HTMLElement) this.#light(Number(row.dataset.index));
  }

  /** Light an event with the bytes it came from and the bytes it became. @param {number} index its row */
  #light(index) {
    const row = this.rows[index];
    if (!row) return;
    this.#lit = row.event?.n ?? -1;
    for (const lit of this.element.querySelectorAll(".lit")) lit.classList.remove("lit");
    for (const [shown, element] of this.list.rows()) {
      if (shown === index) element.classList.add("lit");
      if (this.#lit < 0) continue;
      for (const mark of element.querySelectorAll(`mark[data-event="${this.#lit}"]`)) mark.classList.add("lit");
    }
    this.#fillLens(row);
  }

  /** The panel below the lanes: the whole bytes of the lit event. @param {Row} [row] */
  #fillLens(row) {
    this.lens.classList.toggle("idle", !row);
    if (!row) {
      fill(this.lens, h("p", { class: "hint" }, "Point at an event, or move with ", h("kbd", {}, "j"), " and ", h("kbd", {}, "k"), ", to see the bytes it came from and the bytes it became."));
      return;
    }
    const { event } = row;
    const numbers = event ? event.client_frames : row.client ? [row.client.n] : [];
    const source = event ? sourceKey(event, this.exchange) : (row.upstream?.key ?? null);
    const clients = this.wires.client.filter((frame) => numbers.includes(frame.n));
    const upstreams = this.wires.upstream.filter((frame) => frame.key === source);
    fill(
      this.lens,
      h("div", { class: "lens-side client", tabindex: "0", role: "group", "aria-label": "Client’s bytes" }, this.#lensFrames("client", clients)),
      h(
        "div",
        { class: "lens-side middle", tabindex: "0", role: "group", "aria-label": "Event" },
        h("div", { class: "lens-title" }, event ? event.type : "no event"),
        event?.text ? h("pre", {}, visible(event.text.slice(0, LENS_TEXT))) : null,
      ),
      h("div", { class: "lens-side upstream", tabindex: "0", role: "group", "aria-label": "Upstream’s bytes" }, this.#lensFrames("upstream", upstreams)),
    );
    for (const mark of this.lens.querySelectorAll(`mark[data-event="${this.#lit}"]`)) {
      mark.classList.add("lit");
      const box = mark.closest(".lens-side");
      if (box) box.scrollTop = Math.max(0, /** @type {HTMLElement} */ (mark).offsetTop - 48);
    }
  }

  /** @param {Side} side @param {KeyedFrame[]} frames @returns {Node[]} */
  #lensFrames(side, frames) {
    if (!frames.length) {
      return [h("div", { class: "lens-title" }, side === "client" ? "nothing sent to the client" : "nothing came from upstream")];
    }
    return frames.flatMap((frame) => {
      const marks = this.#marks.get(frame.key) ?? [];
      const own = marks.find((mark) => mark.event === this.#lit);
      const start = own?.start ?? 0;
      const from = Math.max(0, start - LENS_TEXT);
      const to = Math.min(own?.end ?? start, start + LENS_TEXT) + LENS_TEXT;
      return [
        h("div", { class: "lens-title" }, `${side} frame ${frame.n} · ${milliseconds(frame.at)} · ${bytes(frame.bytes)}`),
        h("pre", {}, marked(frame.text.trimEnd(), marks, from, Math.min(to, frame.text.trimEnd().length), false)),
        ...(this.#notes.get(frame.key) ?? []).map((note) =>
          h("p", { class: `lens-note ${note.type}` }, h("b", {}, note.code), " ", visible(note.message)),
        ),
      ];
    });
  }
}

/** @template T @param {Map<string, T[]>} map @param {string} key @param {T} value */
function push(map, key, value) {
  const found = map.get(key);
  if (found) found.push(value);
  else map.set(key, [value]);
}

/** @param {string} name @param {Frame[]} frames */
function wire(name, frames) {
  const size = frames.reduce((sum, frame) => sum + frame.bytes, 0);
  return `${dialect(name)} · ${frames.length} ${frames.length === 1 ? "frame" : "frames"} · ${bytes(size)}`;
}
