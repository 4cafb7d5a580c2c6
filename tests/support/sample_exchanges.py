"""Real exchanges of a gateway on loopback, as `/v1/inspect/requests/{id}` describes them: data for the inspector's page.

`python tests/support/sample_exchanges.py` writes `tests/e2e/samples/exchanges/` anew.
"""

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus_cases import CORPUS
from dragoman.config.settings import InspectSettings
from dragoman.testing import ScriptedUpstream, sse
from gateway_harness import one_upstream, running_gateway, wait_until

SAMPLES = Path(__file__).parents[1] / "e2e" / "samples" / "exchanges"
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def tools_of(door: str, *names: str) -> list[dict[str, Any]]:
    """Functions of these names in a door's dialect."""
    if door == "chat":
        return [
            {"type": "function", "function": {"name": each, "parameters": SCHEMA}} for each in names
        ]
    if door == "responses":
        return [{"type": "function", "name": each, "parameters": SCHEMA} for each in names]
    return [{"name": each, "input_schema": SCHEMA} for each in names]


def ask(door: str, text: str, *names: str, stream: bool = True) -> dict[str, Any]:
    """A request of a door's dialect that offers these tools."""
    said = [{"role": "user", "content": text}]
    turns: dict[str, Any] = {"input": said} if door == "responses" else {"messages": said}
    more = {"max_tokens": 1000} if door == "messages" else {}
    body = {"model": "m", "stream": stream, "tools": tools_of(door, *names), **turns, **more}
    return body if names else {key: value for key, value in body.items() if key != "tools"}


def call(
    url: str,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """One HTTP request; returns status, headers in lower case, and body."""
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if data is not None else {}
        client.request(method, path, data, {**sent, **(headers or {})})
        reply = client.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    finally:
        client.close()


def inspected(url: str, count: int = 1) -> list[dict[str, Any]]:
    """The descriptions of the newest captured exchanges, the oldest first, once all have ended."""
    rows: list[dict[str, Any]] = []

    def is_there() -> bool:
        rows[:] = json.loads(call(url, "GET", "/v1/inspect/requests")[2])["data"]
        return len(rows) >= count and not any(row["live"] for row in rows)

    wait_until(is_there)
    found = [call(url, "GET", f"/v1/inspect/requests/{row['id']}")[2] for row in rows[:count]]
    return [json.loads(each) for each in reversed(found)]


def main() -> None:
    SAMPLES.mkdir(parents=True, exist_ok=True)
    cases = (
        ("chat", "parallel-calls", "messages", ("f", "g")),
        ("messages", "thinking-then-call", "responses", ("f",)),
        ("chat", "cut-with-valid-prefix", "responses", ("f",)),
    )
    for kind, case, door, names in cases:
        folder = CORPUS / kind / case
        if not folder.exists():
            raise SystemExit(f"no such case: {folder}")
        reply = sse((folder / "stream.sse").read_bytes(), cut_into="frames", pause=0.002)
        with ScriptedUpstream.in_thread([reply]) as upstream:
            settings = one_upstream(upstream.url, kind, inspect=InspectSettings(capture="on"))
            with running_gateway(settings) as gateway:
                call(gateway.url, "POST", PATHS[door], ask(door, "What is the weather?", *names))
                [report] = inspected(gateway.url)
        text = json.dumps(report, indent=1, ensure_ascii=False)
        (SAMPLES / f"{kind}-to-{door}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
