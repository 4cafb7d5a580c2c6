/**
 * Elements, text that is safe to look at, and numbers a person can read.
 *
 * Whatever a model, a tool or a client wrote reaches the document as text nodes only. Nothing here, and nothing that uses it,
 * parses markup; the page's Content-Security-Policy demands Trusted Types and allows no policy, so markup could not be parsed.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, unknown>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. A function is a listener (`onclick`), true an empty attribute; null, undefined and false are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  furnish(element, attributes, children);
  return element;
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  furnish(element, attributes, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes | undefined} attributes
 * @param {(Child | Child[])[]} children
 */
function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
}

/** @param {(Child | Child[])[]} children */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * Replace what an element contains.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/**
 * A link to a page and a heading of the documentation, which the gateway has as text. In a file there is no gateway.
 * @param {string} docs such as `dialects/chat.md#losses`
 */
export function docsLink(docs) {
  const [page, heading] = docs.split("#");
  if (location.protocol === "file:" || !/^dialects\/\w+\.md$/.test(page)) return h("code", { class: "docs" }, docs);
  const text = encodeURIComponent(`## ${(heading ?? "").replaceAll("-", " ")}`);
  return h("a", { class: "docs", href: `inspector/${page}#:~:text=${text}`, target: "_blank", rel: "noopener" }, docs);
}

// Control characters but line feed and tab, overrides and marks of direction, invisible separators and tags, lone halves of
// surrogate pairs: what could hide or reorder text, as in inspection/terminal_text.py.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const HIDDEN_IN_LINE = new RegExp(`${HIDDEN.source}|\\n`, "g");

/** @param {string} character */
function escapeOf(character) {
  const code = character.codePointAt(0) ?? 0;
  if (code === 0x0d) return "\\r";
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
}

/** The text with what cannot be seen written as escapes, for titles and labels. @param {string} text */
export function plain(text) {
  return text.replace(HIDDEN, escapeOf);
}

/**
 * Text in which every character can be seen: escapes stand out. `isLine`: line feeds too, for a text on one line.
 * @param {string} text
 * @param {boolean} [isLine]
 * @returns {DocumentFragment}
 */
export function visible(text, isLine = false) {
  const fragment = document.createDocumentFragment();
  let from = 0;
  for (const found of text.matchAll(isLine ? HIDDEN_IN_LINE : HIDDEN)) {
    if (found.index > from) fragment.append(text.slice(from, found.index));
    const isBreak = found[0] === "\n";
    fragment.append(h("span", { class: isBreak ? "break" : "escape" }, isBreak ? "↵" : escapeOf(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) fragment.append(text.slice(from));
  return fragment;
}

/** Text of a model or a tool, whole, in a box of its own. @param {string} text @param {string} [name] */
export function quoted(text, name = "quoted") {
  return h("bdi", { class: name }, visible(text, true));
}

// A browser lays out about this many characters without a pause that a person would notice.
const SHOWN_AT_ONCE = 20_000;

/**
 * A block of text, however long: the rest comes piece by piece, on request.
 * @param {string} text
 * @param {string} [name]
 * @returns {HTMLElement}
 */
export function longText(text, name = "block") {
  const block = h("pre", { class: name, tabindex: "0" }, visible(text.slice(0, SHOWN_AT_ONCE)));
  if (text.length <= SHOWN_AT_ONCE) return block;
  let shown = SHOWN_AT_ONCE;
  const more = h("button", { type: "button", class: "more" });
  const label = () => {
    const left = text.length - shown;
    more.textContent = `Show ${count(Math.min(left, SHOWN_AT_ONCE))} more of ${count(left)} characters`;
  };
  more.addEventListener("click", () => {
    block.append(visible(text.slice(shown, shown + SHOWN_AT_ONCE)));
    shown += SHOWN_AT_ONCE;
    if (shown >= text.length) more.remove();
    else label();
  });
  label();
  return h("div", { class: "long" }, block, more);
}

/**
 * JSON with line breaks and indents. Only white space between tokens changes: numbers, escapes and double keys stay as they
 * are. Text that is no JSON comes back as it is.
 * @param {string} text
 */
export function indented(text) {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return text;
  /** @type {string[]} */
  const out = [];
  let depth = 0;
  // Deeper than this, indents would take more room than the text: hostile JSON nests as deep as it is long.
  const margin = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\[\s\S])*"?|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out.push(token, margin());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const isEmpty = /^[{[]$/.test(out.at(-2) ?? "") && /^\s*$/.test(out.at(-1) ?? "");
      if (isEmpty) out.pop();
      else out.push(margin());
      out.push(token);
    } else if (token === ",") {
      out.push(token, margin());
    } else {
      out.push(token === ":" ? ": " : token);
    }
  }
  return out.join("");
}

const NUMBER = new Intl.NumberFormat("en");

/** @param {number} value */
export function count(value) {
  return NUMBER.format(value);
}

/** @param {number} value @param {string} noun */
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** @param {number} value */
export function bytes(value) {
  if (value < 10_000) return `${count(value)} B`;
  if (value < 1_000_000) return `${(value / 1000).toFixed(1)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

/** @param {number | null} value */
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(2)} ms`;
  if (value < 1000) return `${value.toFixed(0)} ms`;
  if (value < 100_000) return `${(value / 1000).toFixed(2)} s`;
  return `${(value / 60_000).toFixed(1)} min`;
}

/** The time of day of a request. @param {number} seconds */
export function clock(seconds) {
  const date = new Date(seconds * 1000);
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** How long ago. @param {number} seconds @param {number} [now] */
export function ago(seconds, now = Date.now() / 1000) {
  const past = Math.max(0, now - seconds);
  if (past < 2) return "now";
  if (past < 120) return `${past.toFixed(0)} s ago`;
  if (past < 7200) return `${(past / 60).toFixed(0)} min ago`;
  if (past < 172_800) return `${(past / 3600).toFixed(0)} h ago`;
  return `${(past / 86_400).toFixed(0)} days ago`;
}

/** The name of a dialect. @param {string | null | undefined} name */
export function dialect(name) {
  /** @type {Record<string, string>} */
  const names = { chat: "Chat", responses: "Responses", messages: "Messages", codex: "Codex" };
  return names[name ?? ""] ?? name ?? "–";
}
