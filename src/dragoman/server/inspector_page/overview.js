/**
 * What the gateway is: its address, whether it captures, its upstreams and routes, and what to paste into clients.
 *
 * @typedef {import("./types.js").Status} Status
 * @typedef {import("./types.js").Capture} Capture
 * @typedef {import("./types.js").Snippet} Snippet
 */

import { copy } from "./actions.js";
import { ago, bytes, counted, dialect, h, longText, quoted, visible } from "./dom.js";

/**
 * @param {Status} status
 * @param {HTMLElement} captureSwitch
 */
export function overview(status, captureSwitch) {
  const { gateway, upstreams, routes, connect } = status;
  const failing = upstreams.filter((upstream) => ["failing", "resting"].includes(upstream.state)).length;
  return h(
    "article",
    { class: "overview" },
    h(
      "header",
      { class: "overview-head" },
      h("a", { class: "back", href: "#/" }, "← Requests"),
      h("h1", {}, failing ? `${counted(failing, "upstream")} failing` : "Serving"),
      h("p", {}, quoted(gateway.address, "address"), ` · version ${gateway.version} · started ${ago(gateway.started_at)} · ${gateway.stores ? "stores responses" : "stores nothing"}`),
    ),
    h("section", { class: "capture-card" }, captureSwitch, captureWords(status.capture)),
    h("section", {}, h("h2", {}, "Upstreams", h("small", {}, counted(upstreams.length, "upstream"))), upstreamTable(status)),
    h("section", {}, h("h2", {}, "Routes", h("small", {}, "the first that matches the model")), routeTable(routes)),
    h("section", {}, h("h2", {}, "Connect a client"), snippets(connect)),
    h("section", { class: "keys" }, h("h2", {}, "Keys"), keys()),
  );
}

/** @param {Capture} capture */
function captureWords(capture) {
  const kept = `${counted(capture.exchanges, "request")} in memory, ${bytes(capture.bytes)} of ${bytes(capture.max_bytes)}`;
  const dropped = capture.dropped ? `; ${counted(capture.dropped, "older one")} dropped` : "";
  const why = capture.on
    ? "Requests and answers are kept in this gateway’s memory, without keys and tokens. Nothing is written to disk."
    : "Nothing is captured until you switch it on, here or with serve --inspect.";
  return h("p", { class: "capture-words" }, why, h("small", {}, kept + dropped));
}

/** @param {Status} status */
function upstreamTable({ upstreams }) {
  const words = { ok: "answers", failing: "failing", resting: "resting", unknown: "not used yet" };
  return table(
    ["name", "speaks", "address", "state", "last used"],
    upstreams.map((upstream) => [
      quoted(upstream.name, "name"),
      upstream.dialect ? dialect(upstream.dialect) : upstream.kind,
      quoted(upstream.address, "address"),
      h("span", { class: `state ${upstream.state}` }, words[upstream.state] ?? upstream.state, upstream.health ? h("small", {}, visible(upstream.health, true)) : null, upstream.last_error ? h("small", {}, visible(upstream.last_error, true)) : null),
      upstream.last_used_at === null ? "–" : ago(upstream.last_used_at),
    ]),
  );
}

/** @param {Status["routes"]} routes */
function routeTable(routes) {
  return table(
    ["model", "goes to"],
    routes.map((route) => [quoted(route.model, "name"), quoted(route.upstreams.join(", then "))]),
  );
}

/** @param {string[]} headings @param {(Node | string)[][]} rows */
function table(headings, rows) {
  return h(
    "div",
    { class: "scroll-x", tabindex: "0", role: "region", "aria-label": headings.join(", ") },
    h("table", {}, h("thead", {}, h("tr", {}, ...headings.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell)))))),
  );
}

/** One text at a time, chosen by tabs. @param {Snippet[]} connect */
function snippets(connect) {
  const panel = h("div", { class: "snippet", role: "tabpanel", id: "snippet" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Clients" });
  const choose = (/** @type {number} */ index) => {
    [...tabs.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.setAttribute("tabindex", at === index ? "0" : "-1");
    });
    const { text } = connect[index];
    const button = h("button", { type: "button", class: "copy", onclick: () => copy(text, button) }, "Copy");
    panel.replaceChildren(button, longText(text));
  };
  connect.forEach(({ client }, index) => {
    tabs.append(h("button", { type: "button", role: "tab", "aria-controls": "snippet", onclick: () => choose(index) }, client));
  });
  tabs.addEventListener("keydown", (pressed) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[pressed.key];
    if (!by) return;
    const next = ([...tabs.children].indexOf(/** @type {Element} */ (document.activeElement)) + by + connect.length) % connect.length;
    choose(next);
    /** @type {HTMLElement} */ (tabs.children[next]).focus();
  });
  if (connect.length) choose(0);
  return h("div", {}, tabs, panel);
}

function keys() {
  const rows = [
    ["j k", "next and previous request, or row of the crossing"],
    ["Enter", "open"],
    ["Esc", "back"],
    ["/", "filter"],
  ];
  return h("dl", { class: "key-list" }, ...rows.map(([key, what]) => h("div", {}, h("dt", {}, ...key.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, what))));
}
