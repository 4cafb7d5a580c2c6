/**
 * One exchange: what it was, its calls, what was lost or wrong, how it differs from the request before, both requests, and
 * the crossing.
 *
 * @typedef {import("./types.js").Exchange} Exchange
 * @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").CallRow} CallRow
 * @typedef {import("./types.js").CallInput} CallInput
 * @typedef {import("./types.js").Note} Note
 * @typedef {import("./types.js").Change} Change
 * @typedef {import("./types.js").Header} Header
 * @typedef {import("./dom.js").Child} Child
 */

import { Crossing } from "./crossing.js";
import { bytes, clock, count, counted, dialect, docsLink, fill, h, indented, longText, milliseconds, plain, quoted, visible } from "./dom.js";
import { timeline } from "./timeline.js";

const DIFF_CONTEXT = 3; // lines around a change, as in every diff
const MOST_DIFF_LINES = 2_000; // a diff is for reading

export class ExchangeView {
  /**
   * @param {Exchange} exchange
   * @param {HTMLElement} scroller
   * @param {Child} actions
   */
  constructor(exchange, scroller, actions) {
    this.exchange = exchange;
    this.crossing = new Crossing(exchange, scroller);
    const { change, notes, calls, summary } = exchange;
    this.element = h(
      "article",
      { class: "exchange", "aria-label": `Request ${plain(summary.id)}` },
      head(exchange, actions),
      facts(exchange, this.crossing.wires.upstream.length),
      exchange.truncated ? h("p", { class: "banner warning" }, "Too large for the inspector’s memory: what follows is a part of the exchange.") : null,
      summary.error ? banner(summary.error) : null,
      timeline(exchange, this.crossing.wires.upstream),
      notes.length ? section("Losses, repairs, problems", counted(notes.length, "note"), this.#notes(notes)) : null,
      calls.length ? section("Calls", counted(calls.length, "call"), callTable(calls)) : null,
      change ? changeSection(change) : null,
      requests(exchange),
      section("Crossing", "the answer, frame by frame", this.crossing.element, this.crossing.lens),
    );
  }

  /** Call it when the element is in the document. */
  show() {
    this.crossing.show();
  }

  close() {
    this.crossing.close();
  }

  /** @param {Note[]} notes */
  #notes(notes) {
    return h(
      "ul",
      { class: "notes" },
      ...notes.map((note) =>
        h(
          "li",
          { class: note.type },
          h("span", { class: "kind" }, note.type),
          h("span", { class: "code" }, note.code),
          h("span", { class: "text" }, visible(messageOf(note)), note.field ? [" ", h("code", { class: "field-name" }, visible(note.field, true))] : null),
          note.frame === null
            ? h("span", { class: "where" }, `${note.side}’s request`)
            : h(
                "button",
                { type: "button", class: "where link", onclick: () => this.crossing.openFrame(note.side, /** @type {number} */ (note.frame)) },
                `${note.side} frame ${note.frame}`,
              ),
          note.docs ? docsLink(note.docs) : null,
        ),
      ),
    );
  }
}

/** The message, without the code that stands beside it. @param {Note} note */
function messageOf({ code, message }) {
  return message.startsWith(`${code}: `) ? message.slice(code.length + 2) : message;
}

/** @param {string} title @param {string} detail @param {...Child} children */
function section(title, detail, ...children) {
  return h("section", {}, h("h2", {}, title, h("small", {}, detail)), ...children);
}

/** @param {{kind: string, message: string}} error */
function banner(error) {
  return h("p", { class: "banner problem" }, h("strong", {}, error.kind), " ", visible(error.message));
}

/** @param {Exchange} exchange @param {Child} actions */
function head({ summary, client, attempts }, actions) {
  const last = attempts.at(-1);
  return h(
    "header",
    { class: "exchange-head" },
    h("a", { class: "back", href: "#/" }, "← Requests"),
    h("h1", {}, quoted(summary.model || "no model", "model")),
    h(
      "p",
      { class: "route" },
      h("span", { class: "client" }, `${dialect(client.dialect)} client`),
      h("span", { class: "arrow", "aria-label": "to" }, "→"),
      h("span", { class: "upstream" }, last ? `${dialect(last.dialect)} upstream ` : "no upstream", last ? quoted(last.upstream, "name") : null),
      attempts.length > 1 ? h("span", { class: "attempts" }, counted(attempts.length, "attempt")) : null,
      h("span", { class: "id" }, quoted(summary.id, "id-text")),
      h("time", { datetime: new Date(summary.at * 1000).toISOString() }, clock(summary.at)),
    ),
    actions,
  );
}

/** @param {Exchange} exchange @param {number} frames of the upstreams */
function facts({ summary, client }, frames) {
  const { usage } = summary;
  /** @type {[string, Child, Child][]} */
  const rows = [
    ["status", summary.live ? "live" : String(summary.status ?? "–"), summary.stream ? "stream" : "body"],
    ["finish", summary.finish ?? "–", summary.error ? summary.error.kind : ""],
    ["first byte", milliseconds(summary.first_byte_ms), ""],
    ["total", milliseconds(summary.total_ms), ""],
    ["input tokens", usage?.input == null ? "–" : count(usage.input), usage?.cached ? `${count(usage.cached)} cached` : ""],
    ["output tokens", usage?.output == null ? "–" : count(usage.output), ""],
    ["frames", count(frames), `${count(client.answer.frames.length)} to client`],
  ];
  return h(
    "dl",
    { class: "facts" },
    ...rows.map(([name, value, detail]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, detail ? h("small", {}, detail) : null))),
  );
}

/** @param {CallRow[]} calls */
function callTable(calls) {
  const rows = calls.flatMap((call) => {
    const inputs = h("tr", { class: "call-inputs", hidden: true });
    const toggle = h(
      "button",
      {
        type: "button",
        class: "link",
        "aria-expanded": "false",
        onclick: () => {
          inputs.hidden = !inputs.hidden;
          toggle.setAttribute("aria-expanded", String(!inputs.hidden));
          if (!inputs.hidden && !inputs.childElementCount) inputs.append(inputCell(call));
        },
      },
      quoted(call.name.client ?? call.name.upstream ?? "no name", "call-name"),
    );
    return [callRow(call, toggle), inputs];
  });
  const headings = ["call", "id", "input upstream → client", "result", "runs", "may be run"];
  return h(
    "div",
    { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Calls" },
    h("table", { class: "calls" }, h("thead", {}, h("tr", {}, ...headings.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows)),
  );
}

/** @param {CallRow} call @param {HTMLElement} toggle */
function callRow(call, toggle) {
  const { result } = call;
  const paired = result.request ? h("a", { href: `#/requests/${encodeURIComponent(result.request)}` }, result.state) : result.state;
  return h(
    "tr",
    {},
    h("td", {}, toggle, alias(call.name.upstream, call.name.client), h("small", {}, call.place === "request" ? `${call.kind}, sent back` : call.kind)),
    h("td", {}, quoted(call.id.client ?? call.id.upstream ?? "–", "id-text"), alias(call.id.upstream, call.id.client)),
    h("td", {}, h("div", { class: "inputs" }, hash(call.input.upstream), equality(call.input.equal), hash(call.input.client))),
    h("td", { class: `result ${result.state}` }, paired),
    h("td", {}, call.executor),
    h(
      "td",
      { class: call.executable ? "good" : "bad" },
      call.executable ? "yes" : "no",
      call.why && !call.executable ? h("small", {}, visible(call.why.replaceAll("_", " "))) : null,
    ),
  );
}

/** What the upstream called it, where the client sees another name. @param {string | null} upstream @param {string | null} client */
function alias(upstream, client) {
  if (upstream === null || client === null || upstream === client) return null;
  return h("small", { class: "alias" }, "upstream: ", quoted(upstream));
}

/** @param {CallInput | null} input */
function hash(input) {
  if (!input) return h("span", { class: "hash none" }, "–");
  return h("span", { class: "hash", title: `SHA-256 ${input.sha256}` }, h("b", {}, bytes(input.bytes)), h("code", {}, input.sha256.slice(0, 8)));
}

/** @param {boolean | null} equal */
function equality(equal) {
  if (equal === null) return h("span", { class: "mark none", title: "nothing to compare" }, "·");
  return equal
    ? h("span", { class: "mark equal", title: "the same bytes on both wires" }, "=")
    : h("span", { class: "mark differs", title: "the bytes differ" }, "≠");
}

/** @param {CallRow} call */
function inputCell({ input }) {
  const side = (/** @type {string} */ name, /** @type {CallInput | null} */ value) =>
    h("div", {}, h("h3", {}, name, value ? h("code", {}, `sha256 ${value.sha256}`) : null), value ? longText(value.text) : h("p", {}, "not sent"));
  const sides = input.equal ? [side("The same bytes on both wires", input.upstream)] : [side("From the upstream", input.upstream), side("To the client", input.client)];
  return h("td", { colspan: 6 }, h("div", { class: "sides" }, ...sides));
}

/** @param {Change} change */
function changeSection(change) {
  const added = change.lines.filter((line) => line.op === "+").length;
  const removed = change.lines.filter((line) => line.op === "-").length;
  const cached = change.cached_tokens === null ? "" : ` · ${count(change.cached_tokens)} tokens from the provider’s cache`;
  return disclosure(
    "Change since the request before",
    `+${count(added)} −${count(removed)} lines · same for the first ${bytes(change.common_prefix_bytes)}${cached}`,
    () => [
      h("p", {}, "Compared with ", h("a", { href: `#/requests/${encodeURIComponent(change.previous)}` }, quoted(change.previous)), ", as sent upstream. A provider’s cache can serve no more than the common prefix."),
      diff(change),
    ],
  );
}

/** @param {Change} change */
function diff({ lines }) {
  const list = h("ol", { class: "diff", tabindex: "0" });
  const near = lines.map(() => false);
  lines.forEach((line, index) => {
    if (line.op === "=") return;
    for (let at = Math.max(0, index - DIFF_CONTEXT); at <= Math.min(lines.length - 1, index + DIFF_CONTEXT); at++) near[at] = true;
  });
  let isPrefix = true;
  let skipped = 0;
  const skip = () => {
    if (skipped) list.append(h("li", { class: "skipped" }, `${counted(skipped, "equal line")}`));
    skipped = 0;
  };
  lines.slice(0, MOST_DIFF_LINES).forEach((line, index) => {
    if (isPrefix && line.op !== "=") {
      skip();
      list.append(h("li", { class: "prefix-end" }, "the common prefix ends here"));
      isPrefix = false;
    }
    if (!near[index]) {
      skipped += 1;
      return;
    }
    skip();
    const name = { "=": "same", "+": "added", "-": "removed" }[line.op];
    list.append(h("li", { class: name }, h("span", { class: "op", "aria-label": name }, line.op === "=" ? " " : line.op), h("bdi", {}, visible(line.text, true))));
  });
  skip();
  if (lines.length > MOST_DIFF_LINES) list.append(h("li", { class: "skipped" }, `${count(lines.length - MOST_DIFF_LINES)} more lines`));
  return list;
}

/** @param {Exchange} exchange */
function requests({ client, attempts }) {
  const last = attempts.at(-1);
  const detail = `${bytes(new Blob([client.body]).size)} from the client${last ? `, ${bytes(new Blob([last.body]).size)} to the upstream` : ""}`;
  return disclosure("Request", detail, () => [
    h(
      "div",
      { class: "sides" },
      wireRequest("client", `${client.method} ${client.path}`, client.headers, client.body),
      last ? wireRequest("upstream", last.address, last.headers, last.body) : h("p", {}, "No request was sent to an upstream."),
    ),
    attempts.length > 1 ? attemptList(attempts) : null,
  ]);
}

/** @param {Exchange["attempts"]} attempts */
function attemptList(attempts) {
  return h(
    "ol",
    { class: "attempt-list" },
    ...attempts.map((attempt) => h("li", {}, quoted(attempt.upstream), ": ", attempt.error ? visible(attempt.error, true) : `status ${attempt.answer?.status ?? "–"}`)),
  );
}

/** @param {string} side @param {string} title @param {Header[]} headers @param {string} body */
function wireRequest(side, title, headers, body) {
  const holder = h("div", {});
  const show = (/** @type {boolean} */ isIndented) => fill(holder, longText(isIndented ? indented(body) : body));
  const box = h("input", { type: "checkbox", checked: true, onchange: () => show(box.checked) });
  show(true);
  return h(
    "div",
    { class: `wire-request ${side}` },
    h("h3", {}, quoted(title), h("label", {}, box, " indented")),
    h("dl", { class: "headers" }, ...headers.map(([name, value]) => h("div", {}, h("dt", {}, visible(name, true)), h("dd", {}, visible(value, true))))),
    holder,
  );
}

/** Contents that are made when somebody opens them. @param {string} title @param {string} detail @param {() => Child[]} make */
function disclosure(title, detail, make) {
  const body = h("div", { class: "disclosed" });
  return h(
    "details",
    {
      ontoggle: () => {
        if (!body.childElementCount) fill(body, ...make());
      },
    },
    h("summary", {}, h("h2", {}, title, h("small", {}, detail))),
    body,
  );
}
