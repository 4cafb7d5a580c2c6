/**
 * Where the page's data comes from: the gateway that serves it, or the file it was exported into.
 *
 * @typedef {import("./types.js").Status} Status
 * @typedef {import("./types.js").Capture} Capture
 * @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").Exchange} Exchange
 */

const KEY = "dragoman-key";
const PAGE = 500; // summaries of one answer: about 200 kB
const RETRY_MS = [250, 500, 1000, 2000, 5000]; // a gateway that restarts is back within seconds

/** The gateway refused a request, or did not answer (status 0). */
export class Refused extends Error {
  /** @param {number} status @param {string} message @param {string} [code] */
  constructor(status, message, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether a key would help. */
  get wantsKey() {
    return this.status === 401 || this.code === "inspect_not_allowed";
  }
}

/** @param {string} path of the gateway; relative, so that the page also works behind a proxy with a prefix */
function place(path) {
  return `v1/inspect${path}`;
}

export class GatewaySource {
  isLive = true;

  /** The key stays in this tab, and goes nowhere but to the gateway. */
  get key() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  set key(value) {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  }

  /**
   * @param {string} path
   * @param {unknown} [body]
   * @param {AbortSignal} [signal]
   */
  async #ask(path, body, signal) {
    /** @type {Record<string, string>} */
    const headers = {};
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const method = body === undefined ? "GET" : "POST";
    let response;
    try {
      const sent = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(place(path), { method, headers, body: sent, signal, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Refused(0, "the gateway does not answer");
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /** @returns {Promise<Status>} */
  async status() {
    return (await this.#ask("")).json();
  }

  /**
   * Every request that the gateway still has, newest first, page by page.
   * @returns {AsyncGenerator<Summary[]>}
   */
  async *requests() {
    let before = "";
    while (true) {
      const page = await (await this.#ask(`/requests?limit=${PAGE}${before}`)).json();
      yield page.data;
      if (!page.has_more || !page.data.length) return;
      before = `&before=${encodeURIComponent(page.data.at(-1).id)}`;
    }
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<Exchange>} */
  async exchange(id, signal) {
    return (await this.#ask(`/requests/${encodeURIComponent(id)}`, undefined, signal)).json();
  }

  /** @param {boolean} on */
  async setCapture(on) {
    await this.#ask("/capture", { on });
  }

  /** @param {string} id @param {Record<string, string>} to @returns {Promise<string>} the id of the new request */
  async replay(id, to) {
    return (await (await this.#ask(`/requests/${encodeURIComponent(id)}/replay`, to)).json()).id;
  }

  /** @param {string} id @param {"case" | "receipt" | "export?contents=true" | "export?contents=false"} what */
  async file(id, what) {
    return (await this.#ask(`/requests/${encodeURIComponent(id)}/${what}`)).blob();
  }

  /**
   * Follow what happens, and reconnect for ever.
   * @param {{request: (summary: Summary) => void, capture: (capture: Capture) => void, connected: () => void,
   *   lost: (error: Error) => void}} listener
   * @param {AbortSignal} signal
   */
  async follow(listener, signal) {
    let failures = 0;
    while (!signal.aborted) {
      try {
        // Not EventSource: it cannot send the key.
        const response = await this.#ask("/events", undefined, signal);
        failures = 0;
        listener.connected();
        for await (const event of events(response)) {
          if (event.name === "request") listener.request(JSON.parse(event.data));
          else if (event.name === "capture") listener.capture(JSON.parse(event.data));
        }
        listener.lost(new Refused(0, "the gateway closed the connection"));
      } catch (error) {
        if (signal.aborted) return;
        listener.lost(/** @type {Error} */ (error));
      }
      const wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** @param {Response} response */
async function refusal(response) {
  try {
    const { error } = await response.json();
    return new Refused(response.status, error.message, error.code);
  } catch {
    return new Refused(response.status, `the gateway answered with status ${response.status}`);
  }
}

/** The events of a server-sent stream. @param {Response} response */
async function* events(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = { name: "message", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) event.name = line.slice(6).trim();
        else if (line.startsWith("data:")) event.data += line.slice(5).trim();
      }
      if (event.data) yield event;
    }
  }
}

/** Exchanges that were exported into the page itself: nothing is asked for, and nothing can be changed. */
export class FileSource {
  isLive = false;

  /** @param {{title: string, exchanges: Exchange[]}} data */
  constructor(data) {
    this.title = data.title;
    this.exchanges = data.exchanges;
  }

  /** @returns {AsyncGenerator<Summary[]>} */
  async *requests() {
    yield this.exchanges.map((exchange) => exchange.summary);
  }

  /** @param {string} id @returns {Promise<Exchange>} */
  async exchange(id) {
    const found = this.exchanges.find((exchange) => exchange.summary.id === id);
    if (!found) throw new Refused(404, "this file has no such request");
    return found;
  }
}
