/**
 * The exchange on one axis of time: the frames of both wires as ticks, and the time between events as bars.
 *
 * @typedef {import("./types.js").Exchange} Exchange
 * @typedef {import("./types.js").Frame} Frame
 */

import { h, milliseconds, svg } from "./dom.js";

const HEIGHT = 104;
const LEFT = 72; // room for the names of the rails
const RIGHT = 12;
const CLIENT = 14;
const UPSTREAM = 34;
const BARS = 84; // the base of the bars
const TALLEST = 36;

/**
 * @param {Exchange} exchange
 * @param {Frame[]} upstream
 * @returns {HTMLElement | null} null if the exchange was recorded without times
 */
export function timeline(exchange, upstream) {
  const client = exchange.client.answer.frames;
  const times = exchange.events.map((event) => event.at);
  const gaps = times.slice(1).map((at, index) => ({ at, gap: Math.max(0, at - times[index]) }));
  const end = Math.max(exchange.summary.total_ms ?? 0, ...lastTimes(client, upstream));
  if (!end) return null;
  const figure = h("figure", { class: "timeline" });
  const caption = h("figcaption", {}, describe(gaps.map((each) => each.gap)));
  const draw = () => {
    const width = Math.max(figure.clientWidth, 320);
    const x = (/** @type {number} */ at) => LEFT + (Math.max(0, at) / end) * (width - LEFT - RIGHT);
    figure.replaceChildren(
      svg(
        "svg",
        { width, height: HEIGHT, role: "img", "aria-label": caption.textContent },
        rail("client", CLIENT, width, ticks(client, x), "to client"),
        rail("upstream", UPSTREAM, width, ticks(upstream, x), "upstream"),
        svg("text", { class: "rail-name", x: 0, y: BARS - 8 }, "between"),
        bars(gaps, x),
        axis(end, x, width),
      ),
      caption,
    );
  };
  new ResizeObserver(draw).observe(figure);
  return figure;
}

/** @param {Frame[][]} wires */
function lastTimes(...wires) {
  return wires.map((frames) => frames.at(-1)?.at ?? 0);
}

/** One tick per pixel at most: ten thousand frames are no more to draw than the pixels they fall on. @param {Frame[]} frames @param {(at: number) => number} x */
function ticks(frames, x) {
  return [...new Set(frames.map((frame) => Math.round(x(frame.at) * 2) / 2))];
}

/** @param {string} name @param {number} y @param {number} width @param {number[]} at @param {string} label */
function rail(name, y, width, at, label) {
  const path = at.map((each) => `M${each} ${y - 6}v12`).join("");
  return svg(
    "g",
    { class: `rail ${name}` },
    svg("text", { class: "rail-name", x: 0, y: y + 4 }, label),
    svg("line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
    svg("path", { d: path }),
  );
}

/** @param {{at: number, gap: number}[]} gaps @param {(at: number) => number} x */
function bars(gaps, x) {
  const longest = gaps.reduce((most, each) => Math.max(most, each.gap), 1);
  /** @type {Map<number, number>} the longest gap of each pixel */
  const columns = new Map();
  for (const { at, gap } of gaps) {
    const column = Math.round(x(at) * 2) / 2;
    columns.set(column, Math.max(columns.get(column) ?? 0, gap));
  }
  // On a scale of logarithms, gaps of a tenth and of a thousand milliseconds can both be seen.
  const height = (/** @type {number} */ gap) => 1 + (TALLEST - 1) * (Math.log1p(gap) / Math.log1p(longest));
  const path = [...columns].map(([column, gap]) => `M${column} ${BARS}v${-height(gap).toFixed(1)}`).join("");
  return svg("path", { class: "bars", d: path });
}

/** @param {number} end @param {(at: number) => number} x @param {number} width */
function axis(end, x, width) {
  const wanted = Math.max(2, Math.floor((width - LEFT) / 140));
  const raw = end / wanted;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each >= raw) ?? raw;
  const group = svg("g", { class: "axis" }, svg("line", { x1: LEFT, x2: width - RIGHT, y1: BARS, y2: BARS }));
  for (let at = 0; at <= end; at += step) {
    const left = x(at);
    const anchor = left > width - 48 ? "end" : at === 0 ? "start" : "middle";
    const label = step >= 1000 ? `${(at / 1000).toFixed(step % 1000 ? 1 : 0)} s` : `${Number(at.toPrecision(4))} ms`;
    group.append(
      svg("line", { x1: left, x2: left, y1: BARS, y2: BARS + 4 }),
      svg("text", { x: left, y: HEIGHT - 5, "text-anchor": anchor }, label),
    );
  }
  return group;
}

/** @param {number[]} gaps */
function describe(gaps) {
  if (!gaps.length) return "One event, or none: there is no time between events.";
  const sorted = gaps.toSorted((a, b) => a - b);
  const median = milliseconds(sorted[sorted.length >> 1]);
  return `Time between events: median ${median}, longest ${milliseconds(sorted.at(-1) ?? 0)}`;
}
