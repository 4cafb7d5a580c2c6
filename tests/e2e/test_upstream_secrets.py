"""Credentials that the gateway sends to an upstream reach neither clients, in the upstream's errors, nor the log.

Nor does the client see the upstream's address. Keys that the client sent itself may come back to it.
"""

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from dragoman.sse import MAX_FRAME_BYTES
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from plain_http import ask, fetch, plain_body
from stage import Stage, running_stage
from vendor_errors import failure_frame
from vendor_wire import Answer, Said, stream

DOORS = ("chat", "responses", "messages")
KEY = 'sk-live-Zq7/"\\<b>&0123456789'
"""With every character that some way of writing text writes otherwise."""
HEADER = "tenant-4711-not-for-clients"
PASSWORD = "correct-horse-battery"
BASIC = base64.b64encode(f"gateway:{PASSWORD}".encode()).decode()
SECRETS = (KEY, HEADER, PASSWORD, BASIC)
QUOTED = (
    f"Incorrect API key provided: {KEY}. You sent x-tenant {HEADER} and Basic {BASIC} ({PASSWORD})."
)

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
passthroughs = pytest.mark.parametrize("passthrough", ["repair", "exact"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        absent = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    headers = {"x-tenant": HEADER, "proxy-authorization": f"Basic {BASIC}"}
    upstreams: dict[str, dict[str, object]] = {
        f"{kind}-{passthrough}": {
            "kind": kind,
            "api_key": KEY,
            "headers": headers,
            "passthrough": passthrough,
        }
        for kind in DOORS
        for passthrough in ("repair", "exact")
    }
    upstreams |= {f"{kind}-client": {"kind": kind, "api_key": "client"} for kind in DOORS}
    upstreams["absent"] = {"kind": "chat", "base_url": absent}
    with running_stage(upstreams=upstreams) as running:
        yield running


def _vendor_error(dialect: str) -> dict[str, Any]:
    error = {"message": QUOTED, "type": "invalid_request_error", "code": KEY, "param": HEADER}
    whole: dict[str, Any] = {"error": {**error, "debug": {"sent": [KEY, BASIC]}}}
    return {"type": "error", **whole} if dialect == "messages" else whole


def _escaped(value: object) -> bytes:
    """JSON in which every character that may be escaped is."""
    text = json.dumps(value)
    return text.replace("/", "\\/").replace("<", "\\u003c").replace("&", "\\u0026").encode()


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        pairs = cast("dict[str, object]", value)
        for each in (*pairs, *pairs.values()):
            yield from _strings(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _strings(each)


def _read(data: str) -> str:
    """All that a client could read in an answer: its bytes, and what they mean."""
    lines = [line.removeprefix("data: ") for line in data.splitlines()]
    found = [data]
    for line in lines:
        try:
            found += _strings(json.loads(line))
        except ValueError:
            continue
    return "\n".join(found)


def _check(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    read = _read(answer)
    assert [secret for secret in SECRETS if secret in read] == []
    logged = _read(caplog.text)
    assert [secret for secret in SECRETS if secret in logged] == []


REPLIES: dict[str, Callable[[str], ScriptedReply]] = {
    "json": lambda dialect: json_reply(_vendor_error(dialect), 401),
    "escaped": lambda dialect: json_reply(_escaped(_vendor_error(dialect)), 401),
    "bare": lambda _: json_reply({"detail": QUOTED}, 400),
    "page": lambda _: ScriptedReply(
        status=502,
        content_type="text/html",
        chunks=[f"<html><body>{QUOTED}</body></html>".encode()],
    ),
    "text": lambda _: ScriptedReply(
        status=403, content_type="text/plain", chunks=[b"x" * 470 + KEY.encode() + b" and so on"]
    ),
    "success": lambda dialect: json_reply(_vendor_error(dialect), 200),
}


@pytest.mark.parametrize("form", REPLIES)
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@passthroughs
@dialects
@doors
def test_an_error_does_not_quote_what_the_gateway_sent(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    door: str,
    dialect: str,
    passthrough: str,
    form: str,
    *,
    stream: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    scene = stage.scene(dialect, REPLIES[form](dialect), route=f"{dialect}-{passthrough}")
    answer = ask(stage.url, door, plain_body(door, scene.model, stream=stream))
    assert len(scene.requests) == 1
    stage.gateway.app.gateway.flush()
    assert "[redacted]" in answer.text or form == "text"
    assert "sk-live-Zq7" not in answer.text
    _check(answer.text, caplog)


def _failing_stream(dialect: str, *, first: bool) -> ScriptedReply:
    frame = failure_frame(dialect, QUOTED, 0 if first else 3)
    if first:
        return sse(frame)
    received = stream(dialect, Answer((Said(("Let me ", "look.")),)))
    frames = received.split(b"\n\n")
    return sse(b"\n\n".join(frames[:3]) + b"\n\n" + frame, cut_into="frames")


@pytest.mark.parametrize("first", [True, False], ids=["at-once", "after-text"])
@passthroughs
@dialects
@doors
def test_a_failure_in_a_stream_does_not_quote_what_the_gateway_sent(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    door: str,
    dialect: str,
    passthrough: str,
    *,
    first: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    reply = _failing_stream(dialect, first=first)
    scene = stage.scene(dialect, reply, route=f"{dialect}-{passthrough}")
    answer = ask(stage.url, door, plain_body(door, scene.model, stream=True))
    assert len(scene.requests) == 1
    stage.gateway.app.gateway.flush()
    assert "Incorrect API key provided" in answer.text
    assert "[redacted]" in answer.text
    _check(answer.text, caplog)


@doors
def test_a_client_reads_of_its_own_key_but_the_log_does_not(
    stage: Stage, caplog: pytest.LogCaptureFixture, door: str
) -> None:
    caplog.set_level(logging.DEBUG)
    own = "own-key-of-the-client-1234"

    def refuse(request: ReceivedRequest) -> ScriptedReply:
        sent = {**request.headers}
        given = sent.get("x-api-key") or sent["authorization"].removeprefix("Bearer ")
        return json_reply({"error": {"message": f"no such key: {given}"}}, 401)

    scene = stage.scene(door, refuse, route=f"{door}-client")
    headers = {"authorization": f"Bearer {own}"}
    answer = ask(stage.url, door, plain_body(door, scene.model), headers)
    stage.gateway.app.gateway.flush()
    assert f"no such key: {own}" in answer.text
    assert own not in caplog.text


def test_a_count_of_tokens_that_fails_does_not_quote_the_key(stage: Stage) -> None:
    scene = stage.scene("messages", REPLIES["json"]("messages"), route="messages-repair")
    body = json.dumps(plain_body("messages", scene.model)).encode()
    sent = {"content-type": "application/json"}
    counted = fetch("POST", f"{stage.url}/v1/messages/count_tokens", sent, body)
    assert counted.status_code == 401
    assert "[redacted]" in counted.text
    assert [secret for secret in SECRETS if secret in _read(counted.text)] == []


def test_what_is_kept_of_a_failure_does_not_quote_the_key(stage: Stage) -> None:
    reply = _failing_stream("responses", first=False)
    scene = stage.scene("responses", reply, route="responses-repair")
    texts = ask(stage.url, "responses", plain_body("responses", scene.model, stream=True))
    created = next(line for line in texts.text.splitlines() if line.startswith("data: "))
    response_id = json.loads(created.removeprefix("data: "))["response"]["id"]
    kept = fetch("GET", f"{stage.url}/v1/responses/{response_id}")
    assert kept.json()["status"] == "failed"
    replayed = fetch("GET", f"{stage.url}/v1/responses/{response_id}?stream=true")
    for text in (kept.text, replayed.text):
        assert "Incorrect API key provided" in text
        assert [secret for secret in SECRETS if secret in _read(text)] == []


# --- where an upstream is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@doors
def test_an_upstream_that_is_not_there_is_not_located(
    stage: Stage, caplog: pytest.LogCaptureFixture, door: str, *, stream: bool
) -> None:
    caplog.set_level(logging.INFO)
    answer = ask(stage.url, door, plain_body(door, "absent/model", stream=stream))
    stage.gateway.app.gateway.flush()
    port = stage.gateway.app.gateway.settings.upstreams["absent"].base_url.split(":")[2][:-3]
    assert answer.status_code == 502
    assert "cannot be reached" in answer.text
    assert "refused" in answer.text
    assert "127.0.0.1" not in answer.text
    assert port not in answer.text
    assert port in caplog.text  # the operator has to know


@doors
def test_an_upstream_that_names_its_own_address_is_not_located(stage: Stage, door: str) -> None:
    place = stage.upstream.url.removeprefix("http://")
    reply = json_reply({"error": {"message": f"connect ECONNREFUSED {place} at http://{place}/v1"}}, 502)  # fmt: skip
    scene = stage.scene(door, reply, route=f"{door}-repair")
    answer = ask(stage.url, door, plain_body(door, scene.model))
    assert answer.status_code == 502
    assert place not in answer.text


# --- an answer beyond all bounds --------------------------------------------------------------------------------------


# A frame has 64 MiB: each upstream and each door once, the pairs are those of the bodies.
TOO_LARGE = [
    *[(door, dialect, False) for door in DOORS for dialect in DOORS],
    *[(door, dialect, True) for door, dialect in zip(DOORS, reversed(DOORS), strict=True)],
]


@pytest.mark.parametrize(("door", "dialect", "stream"), TOO_LARGE)
def test_an_answer_that_is_too_large_is_the_upstreams_fault(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
    dialect: str,
    *,
    stream: bool,
) -> None:
    # More than a connection holds back before anybody reads it.
    monkeypatch.setattr("dragoman.gateway.answer.MAX_BODY_BYTES", 400_000)
    endless = [b"x" * 100_000] * 20
    reply = (
        sse(b"data: " + b"x" * (MAX_FRAME_BYTES + 1))
        if stream
        else ScriptedReply(content_type="application/json", chunks=[b'{"id":"', *endless, b'"}'])
    )
    scene = stage.scene(dialect, reply)
    answer = ask(stage.url, door, plain_body(door, scene.model, stream=stream))
    assert answer.status_code == 502
    assert "at most" in answer.text or "exceeds" in answer.text
    assert "request_too_large" not in answer.text
    assert "invalid_prompt" not in answer.text
    assert "invalid_request" not in answer.text
