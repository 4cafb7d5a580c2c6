"""Defects of other gateways that only HTTP can show, each named after its entry in the collection."""

import gzip
import http.client
import json
import threading
import zlib
from collections.abc import Callable

import pytest
from anthropic import Anthropic, AnthropicError
from openai import OpenAI, OpenAIError

from dragoman.testing import ScriptedReply, ScriptedUpstream, Wait
from gateway_harness import DIALECTS, connection, one_upstream, running_gateway, wait_until
from vendor_wire import Answer, Said, Tool, stream

HI = {"role": "user", "content": "hi"}
ANSWER = Answer((Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":"Paris"}',))))


def ask(client: http.client.HTTPConnection, body: dict[str, object] | None = None) -> None:
    asked = body or {"model": "m", "stream": True, "messages": [HI]}
    client.request(
        "POST", "/v1/chat/completions", json.dumps(asked), {"accept-encoding": "gzip, br, zstd"}
    )


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_m148_compressed_stream_of_an_upstream_is_read_and_sent_plainly(
    dialect: str, encoding: str
) -> None:
    plain = stream(dialect, ANSWER)
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    reply = ScriptedReply(
        content_type="text/event-stream", headers={"content-encoding": encoding}, chunks=[packed]
    )
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, dialect)) as gateway,
        connection(gateway) as client,
    ):
        ask(client)
        response = client.getresponse()
        sent = response.read()
        assert b"get_weather" in sent
        assert sent.endswith(b"data: [DONE]\n\n")
        assert response.getheader("content-encoding") is None
        # A compressed stream is held back block by block: it was not asked for.
        assert upstream.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "body"])
def test_an_answer_in_an_encoding_that_cannot_be_read_names_it(is_stream: bool) -> None:
    kind = "text/event-stream" if is_stream else "application/json"
    reply = ScriptedReply(
        content_type=kind, headers={"content-encoding": "br"}, chunks=[b"\x8b\x03\x80{}\x03"]
    )
    with (
        ScriptedUpstream.in_thread([reply] * 3) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        ask(client, {"model": "m", "stream": is_stream, "messages": [HI]})
        response = client.getresponse()
        message = json.loads(response.read())["error"]["message"]
        assert response.status == 502
        assert "expected none, gzip or deflate, got 'br'" in message


def test_m150_stream_forbids_proxies_to_hold_or_compress_it() -> None:
    gate = threading.Event()
    whole = stream("chat", ANSWER)
    at = whole.index(b"\n\n", whole.index(b"Let me ")) + 2
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[whole[:at], Wait(gate), whole[at:]]
    )
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        ask(client)
        response = client.getresponse()
        assert response.getheader("x-accel-buffering") == "no"
        assert "no-transform" in (response.getheader("cache-control") or "")
        sent = b""
        while b"Let me " not in sent:  # nothing more will come before it has arrived
            sent += response.read1()
        gate.set()
        response.read()


@pytest.mark.parametrize("streamed", [True, False])
def test_m152_m153_client_that_leaves_before_the_first_chunk_cancels_the_upstream(
    streamed: bool,
) -> None:
    never = threading.Event()
    reply = ScriptedReply(content_type="text/event-stream", chunks=[Wait(never)])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        body: dict[str, object] = {"model": "m", "stream": streamed, "messages": [HI]}
        ask(client, body)
        wait_until(lambda: len(upstream.requests) == 1)
        client.close()
        wait_until(lambda: upstream.requests[0].was_abandoned)
        wait_until(lambda: not gateway.app.gateway.exchanges)
        never.set()


@pytest.mark.parametrize("door", DIALECTS)
def test_codex_gets_a_full_context_in_the_stream_and_a_long_wait_as_an_error(
    door: str,
) -> None:
    full = {"error": {"message": "too long", "code": "context_length_exceeded", "type": "x"}}
    limited = {"error": {"message": "slow down", "code": "rate_limit_exceeded", "type": "x"}}
    replies = [
        ScriptedReply(status=400, body=json.dumps(full).encode()),
        ScriptedReply(
            status=429, body=json.dumps(limited).encode(), headers={"retry-after": "3600"}
        ),
    ]
    path = {"chat": "chat/completions"}.get(door, door)
    body = json.dumps(
        {"model": "m", "stream": True, "input": "hi", "messages": [HI], "max_tokens": 9}
    )
    with (
        ScriptedUpstream.in_thread(replies) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        client.request("POST", f"/v1/{path}", body, {"originator": "codex_exec"})
        response = client.getresponse()
        sent = response.read()
        if door == "responses":
            assert response.status == 200
            assert b"event: response.failed" in sent
            assert b'"code":"context_length_exceeded"' in sent
        else:
            assert response.status == 400
        client.request("POST", f"/v1/{path}", body, {"originator": "codex_exec"})
        response = client.getresponse()
        assert response.status == 429
        assert b"slow down" in response.read()
        expected = None if door == "responses" else "3600"
        assert response.getheader("retry-after") == expected


def test_head_without_an_end_is_cut_off() -> None:
    with (
        ScriptedUpstream.in_thread([]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        client.connect()
        sock = client.sock
        assert sock is not None
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-long: ")
        sent = b""
        try:
            for _ in range(64):
                sock.sendall(b"a" * 65_536)
            sent = sock.recv(65_536)
        except OSError:
            sent = sent or b"HTTP/1.1 431 closed before it was read"
        assert sent.startswith(b"HTTP/1.1 431")


def test_large_head_gets_the_doors_own_error() -> None:
    with (
        ScriptedUpstream.in_thread([]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as gateway,
        connection(gateway) as client,
    ):
        client.request(
            "POST", "/v1/messages", b"{}", {"x-long": "a" * 60_000, "x-more": "a" * 60_000}
        )
        response = client.getresponse()
        assert response.status == 431
        assert json.loads(response.read())["type"] == "error"


# --- a frame that cannot be read ------------------------------------------------------------------

PIECES = ('{"path":"/srv', "/app", '/main.py"}')


def heard_by_openai_chat(url: str) -> None:
    asked = OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    finishes = [choice.finish_reason for chunk in asked for choice in chunk.choices]
    raise AssertionError(f"expected an error, got the finishes {finishes}")


def heard_by_openai_responses(url: str) -> None:
    asked = OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0).responses.create(
        model="m", input="hi", stream=True
    )
    for event in asked:
        assert event.type != "response.completed"
        if event.type == "response.output_item.done":
            assert getattr(event.item, "status", "") != "completed"
        if event.type == "response.failed":
            raise OpenAIError("response.failed")


def heard_by_anthropic(url: str) -> None:
    asked = Anthropic(base_url=url, api_key="k", max_retries=0).messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
    )
    types = [event.type for event in asked]
    raise AssertionError(f"expected an error, got {types}")


@pytest.mark.parametrize("damage", [b'{"oops', b"\xff", b"5"])
@pytest.mark.parametrize(
    "hear", [heard_by_openai_chat, heard_by_openai_responses, heard_by_anthropic]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_client_gets_a_call_with_a_frame_missing_from_its_arguments(
    dialect: str, hear: Callable[[str], None], damage: bytes
) -> None:
    whole = stream(dialect, Answer((Tool("call_1", "read_file", PIECES),)))
    frames = whole.split(b"\n\n")
    at = next(number for number, frame in enumerate(frames) if b"/app" in frame)
    head, _, _ = frames[at].partition(b"data: ")
    frames[at] = head + b"data: " + damage
    reply = ScriptedReply(content_type="text/event-stream", chunks=[b"\n\n".join(frames)])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, dialect)) as gateway,
        pytest.raises((OpenAIError, AnthropicError)),
    ):
        hear(gateway.url)
