/**
 * The JSON form of /v1/inspect, as docs/inspector.md describes it. Types only: no code.
 *
 * Times `at` are milliseconds since the exchange began; absolute times are seconds since 1970. Ranges count characters
 * (code points) of a frame's text.
 *
 * @typedef {{on: boolean, can_switch: boolean, bytes: number, max_bytes: number, exchanges: number, dropped: number}} Capture
 * @typedef {{version: string, address: string, started_at: number, stores: boolean, workers: number}} GatewayStatus
 * @typedef {{name: string, upstream: string, kind: string, dialect: string | null, address: string,
 *   state: "ok" | "failing" | "resting" | "unknown", health: string | null, last_error: string | null, last_used_at: number | null}} UpstreamStatus
 * @typedef {{model: string, upstreams: string[]}} Route
 * @typedef {{client: string, text: string}} Snippet
 * @typedef {{capture: Capture, gateway: GatewayStatus, upstreams: UpstreamStatus[], routes: Route[], connect: Snippet[]}} Status
 *
 * @typedef {{input: number | null, cached: number | null, output: number | null}} Usage
 * @typedef {{id: string, at: number, door: string, model: string, upstream: string | null, upstream_dialect: string | null,
 *   stream: boolean, live: boolean, captured: boolean, status: number | null, finish: string | null,
 *   error: {kind: string, message: string} | null, first_byte_ms: number | null, total_ms: number | null, usage: Usage | null,
 *   calls: string[], losses: number, repairs: number, problems: number, previous: string | null}} Summary
 *
 * @typedef {[string, string]} Header
 * @typedef {{n: number, at: number, bytes: number, text: string}} Frame
 * @typedef {{status: number | null, headers: Header[], stream: boolean, frames: Frame[]}} Answer
 * @typedef {{dialect: string, method: string, path: string, headers: Header[], body: string, answer: Answer}} ClientSide
 * @typedef {{upstream: string, dialect: string, model: string, address: string, at: number, headers: Header[], body: string,
 *   answer: Answer | null, error: string | null}} Attempt
 * @typedef {{n: number, at: number, type: string, part: number | null, choice: number, text: string | null,
 *   attempt: number | null, upstream_frame: number | null, client_frames: number[], upstream_range: [number, number] | null,
 *   client_ranges: [number, number, number][]}} CanonicalEvent
 * @typedef {{upstream: string | null, client: string | null}} Pair
 * @typedef {{bytes: number, sha256: string, text: string}} CallInput
 * @typedef {{part: number | null, place: "answer" | "request", kind: string, id: Pair, name: Pair, executor: string, executable: boolean, why: string | null,
 *   status: string, input: {upstream: CallInput | null, client: CallInput | null, equal: boolean | null},
 *   result: {state: "waiting" | "paired" | "none", request: string | null}}} CallRow
 * @typedef {{type: "loss" | "repair" | "problem", code: string, message: string, field: string | null,
 *   side: "client" | "upstream", frame: number | null, docs: string}} Note
 * @typedef {{op: "=" | "+" | "-", text: string}} DiffLine
 * @typedef {{previous: string, common_prefix_bytes: number, lines: DiffLine[], cached_tokens: number | null}} Change
 * @typedef {{summary: Summary, client: ClientSide, attempts: Attempt[], events: CanonicalEvent[], calls: CallRow[],
 *   notes: Note[], change: Change | null, truncated: boolean}} Exchange
 */
export {};
