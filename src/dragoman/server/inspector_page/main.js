/**
 * The page: a list of requests, and beside it what the gateway is or the request that is open.
 *
 * The address says what is open (`#/`, `#/gateway`, `#/requests/ID`), so the back button and links work. The data comes from the gateway,
 * or from the page itself if it was exported (`source.js`).
 *
 * @typedef {import("./types.js").Status} Status
 * @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").Exchange} Exchange
 */

import { buttons } from "./actions.js";
import { bytes, fill, h, plain } from "./dom.js";
import { ExchangeView } from "./exchange.js";
import { overview } from "./overview.js";
import { RequestList } from "./requests.js";
import { FileSource, GatewaySource, Refused } from "./source.js";

const LIVE_MS = 1000; // how often a request that is not over yet is asked for again
const STATUS_MS = 5000; // how often the overview is
const THEMES = ["auto", "light", "dark"];

const island = document.getElementById("exported");
const source = island ? new FileSource(JSON.parse(island.textContent ?? "")) : new GatewaySource();

/** @type {Status | null} */
let status = null;
/** @type {ExchangeView | null} */
let view = null;
let asked = new AbortController();

const list = new RequestList();
const detail = h("main", { class: "detail", tabindex: "-1" });
const connection = h("span", { class: "connection", role: "status" });
const headSwitch = makeSwitch();
const bar = h(
  "header",
  { class: "bar" },
  h("a", { class: "brand", href: "#/" }, "Dragoman"),
  h("span", { class: "bar-title" }, source instanceof FileSource ? source.title : "inspector"),
  source.isLive ? h("a", { class: "gateway-link", href: "#/gateway" }, "Gateway") : null,
  connection,
  source.isLive ? headSwitch : null,
  themeButton(),
);

/** The id in the address, or nothing. */
function openId() {
  const found = location.hash.match(/^#\/requests\/(.+)$/);
  try {
    return found ? decodeURIComponent(found[1]) : "";
  } catch {
    return "";
  }
}

/** @param {string} id */
function open(id) {
  location.hash = `#/requests/${encodeURIComponent(id)}`;
}

async function showRoute() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  const id = openId();
  list.open = id;
  // On a phone the list and what is open have the screen in turn.
  document.body.dataset.view = id || location.hash === "#/gateway" ? "detail" : "list";
  if (!id) return showOverview();
  await showExchange(id, signal);
}

function showOverview() {
  document.title = source instanceof FileSource ? source.title : "Dragoman";
  replaceDetail(null);
  if (status) fill(detail, overview(status, makeSwitch()));
  else if (!source.isLive) fill(detail, h("p", { class: "placeholder" }, "Choose a request."));
}

/** @param {ExchangeView | null} next */
function replaceDetail(next) {
  view?.close();
  view = next;
  detail.scrollTop = 0;
}

/** @param {string} id @param {AbortSignal} signal */
async function showExchange(id, signal) {
  try {
    const exchange = await source.exchange(id, signal);
    if (signal.aborted) return;
    // Draw nothing if the answer says nothing new: somebody may be reading, or pointing at something.
    if (JSON.stringify(view?.exchange) !== JSON.stringify(exchange)) drawExchange(exchange);
    if (exchange.summary.live && source.isLive) setTimeout(() => signal.aborted || showExchange(id, signal), LIVE_MS);
  } catch (error) {
    if (signal.aborted) return;
    replaceDetail(null);
    fill(detail, h("div", { class: "placeholder" }, h("h1", {}, "This request cannot be shown"), h("p", {}, /** @type {Error} */ (error).message), h("a", { href: "#/" }, "← Requests")));
  }
}

/** @param {Exchange} exchange */
function drawExchange(exchange) {
  const isSame = view?.exchange.summary.id === exchange.summary.id;
  const scrolled = detail.scrollTop;
  const actions = source instanceof GatewaySource && status ? buttons(source, exchange, status, open) : null;
  const next = new ExchangeView(exchange, detail, actions);
  replaceDetail(next);
  document.title = `${plain(exchange.summary.model)} · Dragoman`;
  fill(detail, next.element);
  next.show();
  if (isSame) detail.scrollTop = scrolled;
}

function makeSwitch() {
  const label = h("span", {});
  const button = h("button", { type: "button", role: "switch", class: "capture-switch", onclick: toggle }, h("span", { class: "knob" }), label);
  const update = () => {
    const capture = status?.capture;
    button.setAttribute("aria-checked", String(capture?.on ?? false));
    button.disabled = !capture;
    fill(label, capture?.on ? "Capturing" : "Capture is off");
    button.title = capture ? `${bytes(capture.bytes)} of ${bytes(capture.max_bytes)}` : "";
  };
  async function toggle() {
    if (!status || !(source instanceof GatewaySource)) return;
    try {
      await source.setCapture(!status.capture.on);
      await refreshStatus();
    } catch (error) {
      showProblem(/** @type {Error} */ (error));
    }
  }
  button.addEventListener("dragoman-status", update);
  update();
  return button;
}

async function refreshStatus() {
  if (!(source instanceof GatewaySource)) return;
  const before = JSON.stringify(status);
  status = await source.status();
  for (const each of document.querySelectorAll(".capture-switch")) each.dispatchEvent(new Event("dragoman-status"));
  const isReading = detail.contains(document.activeElement) && document.activeElement !== detail;
  if (!openId() && before !== JSON.stringify(status) && !isReading) showOverview();
  fill(list.empty, emptyWords(status));
}

/** @param {Status} now */
function emptyWords(now) {
  return [
    h("h2", {}, "No requests yet"),
    h("p", {}, now.capture.on ? `Point a client at ${now.gateway.address}: its requests appear here while they run.` : "Switch the capture on, then point a client here."),
  ];
}

/** @param {Error} error */
function showProblem(error) {
  const wantsKey = error instanceof Refused && error.wantsKey;
  connection.className = "connection lost";
  fill(connection, wantsKey ? "not signed in" : "not connected");
  connection.title = error.message;
  if (wantsKey && source instanceof GatewaySource) signIn(source, error.message);
  else if (!status) fill(detail, h("div", { class: "placeholder" }, h("h1", {}, "Nothing to inspect"), h("p", {}, error.message)));
}

/** @param {GatewaySource} gateway @param {string} why */
function signIn(gateway, why) {
  if (detail.querySelector("form.sign-in")) return;
  const key = h("input", { type: "password", name: "key", autocomplete: "off", required: true, "aria-label": "Key" });
  replaceDetail(null);
  document.body.dataset.view = "detail";
  fill(
    detail,
    h(
      "form",
      {
        class: "sign-in",
        onsubmit: (/** @type {SubmitEvent} */ submitted) => {
          submitted.preventDefault();
          gateway.key = key.value.trim();
          location.reload();
        },
      },
      h("h1", {}, "Sign in"),
      h("p", {}, "A key of this gateway that may inspect. It stays in this tab and is sent to this gateway only."),
      h("p", { class: "problem-line" }, why),
      h("div", { class: "sign-in-row" }, key, h("button", { type: "submit", class: "primary" }, "Sign in")),
    ),
  );
  key.focus();
}

function themeButton() {
  const root = document.documentElement;
  const button = h("button", { type: "button", class: "theme", onclick: () => set(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]) });
  const theme = () => root.dataset.theme ?? "auto";
  /** @param {string} name */
  function set(name) {
    root.dataset.theme = name;
    button.textContent = { auto: "◐", light: "○", dark: "●" }[name] ?? "◐";
    button.setAttribute("aria-label", `Colours: ${name}`);
    button.title = `Colours: ${name}`;
    try {
      localStorage.setItem("dragoman-theme", name);
    } catch {
      // A page in a file may have no storage: the choice lasts as long as the page.
    }
  }
  let stored = null;
  try {
    stored = localStorage.getItem("dragoman-theme");
  } catch {
    // as above
  }
  set(stored && THEMES.includes(stored) ? stored : "auto");
  return button;
}

/** @param {KeyboardEvent} pressed */
function onKey(pressed) {
  const target = /** @type {HTMLElement} */ (pressed.target);
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = target.matches("input, select, textarea");
  if (pressed.key === "Escape") {
    if (isTyping) target.blur();
    else if (location.hash.length > 2) location.hash = "#/";
    else list.move(0);
    if (target === list.filter && list.filter.value) {
      list.filter.value = "";
      list.filter.dispatchEvent(new Event("input"));
    }
    return;
  }
  if (isTyping) {
    if (pressed.key === "Enter" && target === list.filter) list.move(0);
    return;
  }
  const by = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[pressed.key];
  if (pressed.key === "/") {
    list.filter.focus();
    list.filter.select();
  } else if (by) {
    const isInCrossing = view?.crossing.element.contains(target);
    if (isInCrossing) view?.crossing.move(by);
    else if (pressed.key.length === 1 || list.element.contains(target)) list.move(by);
    else return;
  } else {
    return;
  }
  pressed.preventDefault();
}

async function loadRequests() {
  for await (const page of source.requests()) list.addOlder(page);
}

/** @param {GatewaySource} gateway */
async function follow(gateway) {
  await gateway.follow(
    {
      connected: async () => {
        connection.className = "connection live";
        fill(connection, "live");
        await Promise.all([refreshStatus(), loadRequests()]).catch(showProblem);
      },
      request: (/** @type {Summary} */ summary) => {
        list.put(summary);
        if (summary.id === openId() && !summary.live) showRoute();
      },
      capture: (capture) => {
        if (status) status = { ...status, capture };
        for (const each of document.querySelectorAll(".capture-switch")) each.dispatchEvent(new Event("dragoman-status"));
      },
      lost: showProblem,
    },
    new AbortController().signal,
  );
}

async function start() {
  document.body.dataset.live = String(source.isLive);
  document.body.replaceChildren(h("a", { class: "skip", href: "#detail", onclick: (/** @type {Event} */ clicked) => (clicked.preventDefault(), detail.focus()) }, "Skip to the request"), bar, h("div", { class: "page" }, list.element, detail));
  addEventListener("hashchange", showRoute);
  addEventListener("keydown", onKey);
  if (source instanceof GatewaySource) {
    try {
      await refreshStatus();
    } catch (error) {
      showProblem(/** @type {Error} */ (error));
      if (error instanceof Refused && error.status) return;
    }
    setInterval(() => document.hidden || refreshStatus().catch(showProblem), STATUS_MS);
    void follow(source);
  } else {
    await loadRequests();
    const [only, ...others] = source.exchanges;
    document.body.dataset.single = String(!others.length);
    if (only && !openId()) history.replaceState(null, "", `#/requests/${encodeURIComponent(only.summary.id)}`);
  }
  await showRoute();
}

void start();
