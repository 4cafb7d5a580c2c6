/**
 * What can be done with an exchange: copied as curl, saved as a test case, sent again, exported.
 *
 * @typedef {import("./types.js").Exchange} Exchange
 * @typedef {import("./types.js").Status} Status
 * @typedef {import("./source.js").GatewaySource} GatewaySource
 */

import { dialect, h } from "./dom.js";

// Longer arguments than this are refused by Linux (128 KiB for one of them).
const LONGEST_ARGUMENT = 100_000;
const DOORS = ["chat", "responses", "messages"];

/** A word of a shell. Characters that a terminal would act on while they are pasted are escapes. @param {string} text */
function shellWord(text) {
  if (/^[\w./:=@%+-]+$/.test(text)) return text;
  // eslint-disable-next-line no-control-regex
  if (!/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = text
    .replace(/[\\']/g, "\\$&")
    .replace(/[\u0001-\u001f\u007f]/g, (each) => `\\x${each.charCodeAt(0).toString(16).padStart(2, "0")}`)
    .replace(/[\u0080-\u009f\u2028-\u202e\u2066-\u2069]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `$'${escaped}'`;
}

/**
 * The client's request as a command. The gateway took the secrets out before the page got it; a key comes from the environment.
 * @param {Exchange} exchange
 * @param {string} address
 */
function curlCommand(exchange, address) {
  const { method, path, headers, body } = exchange.client;
  // curl sets these itself, or they belong to the connection and not to the request.
  const left = /^(host|content-length|connection|accept-encoding|user-agent|transfer-encoding|cookie|authorization|x-api-key|api-key|sec-.*|origin|referer|x-forwarded-.*|forwarded|x-request-id)$/i;
  const kept = headers.filter(([name]) => !left.test(name));
  const isKeyed = headers.some(([name]) => /^(authorization|x-api-key|api-key)$/i.test(name));
  const words = [
    `curl -N -X ${shellWord(method)} ${shellWord(`${address}${path}`)}`,
    ...kept.map(([name, value]) => `-H ${shellWord(`${name}: ${value}`)}`),
  ];
  if (isKeyed) words.push('-H "authorization: Bearer $DRAGOMAN_API_KEY"');
  if (body.length <= LONGEST_ARGUMENT) return [...words, `--data-binary ${shellWord(body)}`].join(" \\\n  ");
  return `${[...words, "--data-binary @-"].join(" \\\n  ")} <<'DRAGOMAN'\n${body}\nDRAGOMAN`;
}

/** @param {string} text @param {HTMLElement} button which says for a moment that it is done */
export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = label), 1500);
}

/** Offer a file for download. @param {Blob} blob @param {string} name */
function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name.replace(/[^\w.-]/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * The buttons of an exchange.
 * @param {GatewaySource} source
 * @param {Exchange} exchange
 * @param {Status} status
 * @param {(id: string) => void} open
 */
export function buttons(source, exchange, status, open) {
  const { id } = exchange.summary;
  const isWhole = exchange.summary.captured && !exchange.truncated;
  const why = isWhole ? null : "the request was not captured whole";
  const button = (/** @type {string} */ label, /** @type {(pressed: Event) => unknown} */ act) =>
    h("button", { type: "button", disabled: !isWhole, title: why, onclick: act }, label);
  const attempt = async (/** @type {HTMLElement} */ pressed, /** @type {() => Promise<void>} */ act) => {
    try {
      await act();
    } catch (error) {
      message(`${pressed.textContent}: ${/** @type {Error} */ (error).message}`);
    }
  };
  return h(
    "div",
    { class: "actions" },
    button("Copy as curl", (pressed) =>
      copy(curlCommand(exchange, status.gateway.address), /** @type {HTMLElement} */ (pressed.currentTarget)),
    ),
    button("Test case", (pressed) =>
      attempt(/** @type {HTMLElement} */ (pressed.currentTarget), async () => save(await source.file(id, "case"), `${id}.zip`)),
    ),
    button("Replay…", () => askReplay(source, exchange, status, open)),
    button("Export…", () => askExport(source, id)),
  );
}

/** A line at the bottom that goes away by itself. @param {string} text */
export function message(text) {
  const line = h("p", { class: "message", role: "status" }, text);
  document.body.append(line);
  setTimeout(() => line.remove(), 6000);
}

/**
 * @param {string} title
 * @param {string} verb
 * @param {Node[]} fields
 * @param {(data: FormData) => Promise<void>} act
 */
function ask(title, verb, fields, act) {
  const problem = h("p", { class: "problem-line", role: "alert" });
  const dialog = h(
    "dialog",
    { "aria-label": title, onclose: () => dialog.remove() },
    h(
      "form",
      {
        method: "dialog",
        onsubmit: async (/** @type {SubmitEvent} */ submitted) => {
          submitted.preventDefault();
          problem.textContent = "";
          try {
            await act(new FormData(/** @type {HTMLFormElement} */ (submitted.target)));
            dialog.close();
          } catch (error) {
            problem.textContent = /** @type {Error} */ (error).message;
          }
        },
      },
      h("h2", {}, title),
      ...fields,
      problem,
      h(
        "div",
        { class: "dialog-buttons" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, verb),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {string} label @param {Node} field */
function labelled(label, field) {
  return h("label", { class: "field" }, h("span", {}, label), field);
}

/** @param {GatewaySource} source @param {Exchange} exchange @param {Status} status @param {(id: string) => void} open */
function askReplay(source, exchange, status, open) {
  const { summary } = exchange;
  const option = (/** @type {string} */ value, /** @type {string} */ label) => h("option", { value }, label);
  const fields = [
    h("p", {}, "The recorded request is sent again, and its answer opens beside this one. Tools are not run."),
    labelled(
      "Upstream",
      h("select", { name: "upstream" }, option("", "by the routes"), ...new Map(status.upstreams.map(({ upstream, kind }) => [upstream, option(upstream, `${upstream} (${kind})`)])).values()),
    ),
    labelled("Model", h("input", { name: "model", placeholder: summary.model, autocomplete: "off", spellcheck: "false" })),
    labelled("Client’s dialect", h("select", { name: "dialect" }, option("", `as it was: ${dialect(exchange.client.dialect)}`), ...DOORS.map((name) => option(name, dialect(name))))),
  ];
  ask("Replay", "Send again", fields, async (data) => {
    const chosen = [...data].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
    open(await source.replay(summary.id, Object.fromEntries(chosen)));
  });
}

/** @param {GatewaySource} source @param {string} id */
function askExport(source, id) {
  const fields = [
    h("p", {}, "One HTML file that opens anywhere, without a network. Keys and tokens are taken out."),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "contents", checked: true }), " with the contents: texts, arguments, results"),
  ];
  ask("Export", "Save file", fields, async (data) => {
    const what = data.has("contents") ? "export?contents=true" : "export?contents=false";
    save(await source.file(id, what), `dragoman-${id}.html`);
  });
}
