"""An upstream that is asked over WebSockets, on loopback: what is sent, which connection carries it, and what may go wrong."""

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import structs
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode

from dragoman.config.settings import UpstreamSettings
from dragoman.errors import UpstreamError
from dragoman.testing import (
    WEBSOCKET,
    Chunk,
    Handshake,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from dragoman.upstream.base import Reply, UpstreamRequest
from dragoman.upstream.http import websocket_pool
from dragoman.upstream.http.upstream import HttpUpstream
from garbage import left_by
from loops import LOOPS, play
from socket_scene import Json, answer_stream, error_frame, numbered, outputs
from vendor_wire import Answer, Said, Tool

SOCKET = UpstreamSettings(kind="responses", websocket=True)
TLS = Path(__file__).parent / "tls"
HELLO = Answer((Said(("Hel", "lo.")),))
CALLS = Answer((Said(("Let me look.",)), Tool("call_1", "f", ('{"a":', "1}"))))
USER: Json = {"role": "user", "content": "Hi"}
MORE: Json = {"role": "user", "content": "And?"}
AGAIN = answer_stream(HELLO, "resp_again")
FIRST = AGAIN[: AGAIN.index(b"\n\n") + 2]
REST = AGAIN[len(FIRST) :]
NOT_FOUND = error_frame(400, "previous_response_not_found")
TOO_OLD = error_frame(400, "websocket_connection_limit_reached")

Scene = Callable[[ScriptedUpstream, HttpUpstream], Awaitable[None]]


class Run(Protocol):
    def __call__(
        self,
        script: Script,
        scene: Scene,
        settings: UpstreamSettings = SOCKET,
        websocket: bool | Handshake = True,
    ) -> ScriptedUpstream: ...


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(loop: str) -> Run:
    """A scene with a server and an upstream that points to it; nothing may be left when it ends."""

    async def main(
        script: Script, scene: Scene, settings: UpstreamSettings, websocket: bool | Handshake
    ) -> ScriptedUpstream:
        async with ScriptedUpstream(script, websocket=websocket) as server:
            pointed = structs.replace(settings, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("local", pointed, key="sk-secret")
            try:
                async with asyncio.timeout(10):
                    await scene(server, upstream)
            finally:
                await upstream.close()
            await server.until(lambda: server.open_connections == 0)
            await server.until(lambda: len(asyncio.all_tasks()) == 1)
        assert not server.failures
        return server

    def run_scene(
        script: Script,
        scene: Scene,
        settings: UpstreamSettings = SOCKET,
        websocket: bool | Handshake = True,
    ) -> ScriptedUpstream:
        return play(loop, main(script, scene, settings, websocket))

    return run_scene


def asking(items: object, key: str | None = None, **fields: object) -> UpstreamRequest:
    body = {"model": "m", "input": items, "stream": True, "store": False, **fields}
    data = json.dumps(body).encode()
    return UpstreamRequest(
        dialect="responses", body=data, stream=True, model="m", client_key=key, request_id="req_1"
    )


async def whole(reply: Reply) -> bytes:
    pieces: list[bytes] = []
    try:
        while data := await reply.read():
            pieces.append(data)
    finally:
        reply.close()
    return b"".join(pieces)


class Talk:
    """A client that sends its whole conversation each time."""

    def __init__(self, upstream: HttpUpstream, *items: Json, key: str | None = None) -> None:
        self._upstream = upstream
        self.items = list(items or (USER,))
        self._key = key

    async def turn(self, **fields: object) -> Reply:
        """The answer, which is complete; the next turn goes on with it."""
        reply = await self._upstream.send(asking(self.items, self._key, **fields))
        assert reply.status == 200
        data = await whole(reply)
        assert b"response.completed" in data
        assert data == data.replace(b"event: \n", b"")
        self.items += [*outputs(data), MORE]
        return reply


def sent(server: ScriptedUpstream) -> list[tuple[int, Any, int]]:
    """Of each message: its connection, the response that it continues, and how many items it has."""
    return [
        (request.connection, request.json().get("previous_response_id"), len(_input(request)))
        for request in server.requests
        if request.method == WEBSOCKET
    ]


def _input(request: ReceivedRequest) -> list[Json]:
    items: list[Json] = json.loads(request.body)["input"]
    return items


async def failure_of(awaited: Awaitable[object]) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await awaited
    assert "sk-secret" not in caught.value.message
    return caught.value


async def turns(upstream: HttpUpstream, count: int) -> None:
    talk = Talk(upstream)
    for _ in range(count):
        await talk.turn()


# --- turns --------------------------------------------------------------------------------------------------------


def test_each_turn_sends_what_is_new_on_the_same_connection(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 4)

    server = run(numbered(CALLS, HELLO), scene)
    assert sent(server) == [(0, None, 1), (0, "resp_1", 1), (0, "resp_2", 1), (0, "resp_3", 1)]
    [shaken] = server.handshakes
    assert (shaken.method, shaken.path) == ("GET", "/v1/responses")
    assert shaken.headers["authorization"] == "Bearer sk-secret"
    assert shaken.headers["openai-beta"] == "responses_websockets=2026-02-06"
    assert shaken.headers["x-request-id"] == "req_1"
    assert "sec-websocket-extensions" not in shaken.headers
    assert "content-length" not in shaken.headers
    first = server.requests[0].json()
    assert first == {"type": "response.create", "model": "m", "input": [USER], "store": False}


def test_the_stream_is_that_of_a_post(run: Run) -> None:
    bodies: list[bytes] = []

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        assert reply.headers == {"content-type": "text/event-stream"}
        bodies.append(await whole(reply))
        plain = HttpUpstream(
            "plain", UpstreamSettings(kind="responses", base_url=f"{server.url}/v1"), key=None
        )
        bodies.append(await whole(await plain.send(asking([USER]))))
        await plain.close()

    run([sse(AGAIN, cut_into=7), sse(AGAIN)], scene)
    assert bodies[0] == bodies[1]


def test_conversations_side_by_side_keep_their_connections(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        one, two = Talk(upstream), Talk(upstream, {"role": "user", "content": "Other"})
        for _ in range(3):
            await one.turn()
            await two.turn()

    server = run(numbered(HELLO), scene)
    assert sent(server) == [
        *((0, None, 1), (1, None, 1)),
        *((0, "resp_1", 1), (1, "resp_2", 1)),
        *((0, "resp_3", 1), (1, "resp_4", 1)),
    ]


def test_two_continuations_of_one_answer_do_not_share_its_connection(run: Run) -> None:
    gate = asyncio.Event()

    def script(request: ReceivedRequest) -> ScriptedReply:
        is_fork = len(server_requests) == 1
        server_requests.append(request)
        return (
            ScriptedReply(content_type="text/event-stream", chunks=[FIRST, Wait(gate), REST])
            if is_fork
            else sse(AGAIN)
        )

    server_requests: list[ReceivedRequest] = []

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        running = await upstream.send(asking(talk.items))
        other = await upstream.send(asking(talk.items))
        await whole(other)
        gate.set()
        await whole(running)

    server = run(script, scene)
    assert sent(server) == [(0, None, 1), (0, "resp_again", 1), (1, None, 3)]


def test_another_setting_sends_the_whole_on_another_connection(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        await talk.turn(reasoning={"effort": "low"})
        await talk.turn(reasoning={"effort": "low"})

    server = run(numbered(HELLO), scene)
    assert sent(server) == [(0, None, 1), (1, None, 3), (1, "resp_2", 1)]


def test_the_client_does_not_see_that_its_response_continues_another(run: Run) -> None:
    seen: list[bytes] = []

    def script(request: ReceivedRequest) -> ScriptedReply:
        previous = request.json().get("previous_response_id")
        named = f'"previous_response_id": {json.dumps(previous)}'.encode()
        return sse(AGAIN.replace(b'"previous_response_id": null', named))

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        seen.append(await whole(await upstream.send(asking(talk.items))))

    server = run(script, scene)
    assert sent(server)[1] == (0, "resp_again", 1)
    assert seen == [AGAIN]


@pytest.mark.parametrize(
    "asked",
    [
        asking([USER], background=True),
        structs.replace(asking([USER]), stream=False),
        structs.replace(asking([USER]), operation="count_tokens"),
        structs.replace(asking([USER]), dialect="chat"),
    ],
)
def test_what_a_websocket_cannot_carry_is_a_post(run: Run, asked: UpstreamRequest) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await whole(await upstream.send(asked)) == b"{}"

    server = run([json_reply({})], scene)
    assert [request.method for request in server.requests] == ["POST"]
    assert server.requests[0].body == asked.body
    assert not server.handshakes


# --- owners -------------------------------------------------------------------------------------------------------


def test_two_keys_never_share_a_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_RESERVED", 1)  # any free connection would be taken

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(2):
            for key in ("key-a", "key-b"):
                await Talk(upstream, key=key).turn()
        stolen = Talk(upstream, MORE, key="key-a")
        await stolen.turn()
        other = Talk(upstream, *stolen.items, key="key-b")
        await other.turn()

    passing = structs.replace(SOCKET, api_key="client")
    server = run(numbered(HELLO), scene, passing)
    keys = {request.connection: request.headers["authorization"] for request in server.handshakes}
    assert keys == {0: "Bearer key-a", 1: "Bearer key-b"}
    assert [request.connection for request in server.requests] == [0, 1, 0, 1, 0, 1]
    assert sent(server)[-1] == (1, None, 3)  # the other's conversation is not continued


def test_headers_of_a_session_separate_and_headers_of_a_request_do_not(run: Run) -> None:
    def of(talk: Talk, **headers: str) -> UpstreamRequest:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return structs.replace(asking(talk.items), headers=named)

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        for turn, session in (("1", "a"), ("2", "a"), ("3", "b")):
            asked = of(
                talk, session_id=session, x_codex_turn_metadata=turn, x_client_request_id=turn
            )
            talk.items += [*outputs(await whole(await upstream.send(asked))), MORE]

    server = run(numbered(HELLO), scene)
    assert sent(server) == [(0, None, 1), (0, "resp_1", 1), (1, None, 5)]
    assert [shaken.headers["session-id"] for shaken in server.handshakes] == ["a", "b"]
    metadata = [request.at("client_metadata") for request in server.requests]
    assert metadata == [{"x-codex-turn-metadata": turn} for turn in "123"]


def test_the_operators_own_beta_header_stays(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 1)

    own = structs.replace(SOCKET, headers={"OpenAI-Beta": "own=1"})
    server = run(numbered(HELLO), scene, own)
    assert server.handshakes[0].headers["openai-beta"] == "own=1"


# --- errors -------------------------------------------------------------------------------------------------------


def test_an_error_frame_is_an_answer_with_its_status(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        assert reply.status == 429
        assert reply.headers["retry-after"] == "7"
        assert json.loads(await whole(reply))["error"]["code"] == "slow_down"
        await server.until(lambda: server.open_connections == 0)

    run([error_frame(429, "slow_down", headers={"Retry-After": "7"})], scene)


@pytest.mark.parametrize(
    "failure",
    [
        NOT_FOUND,
        TOO_OLD,
        error_frame(500, "server_error"),
        error_frame(404, "not_found"),
        ScriptedReply(chunks=[], cut=True),
        ScriptedReply(chunks=[], cut="reset"),
        ScriptedReply(chunks=[], framing="raw", keep_alive=False),
        ScriptedReply(chunks=[b"\x82\x01x"], framing="raw"),
        ScriptedReply(chunks=[b"nonsense that is no frame"], framing="raw"),
        ScriptedReply(body=b'{"type":"codex.rate_limits"}', cut=True),
    ],
)
def test_a_continuation_that_fails_is_sent_whole_at_once(run: Run, failure: ScriptedReply) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 3)

    answers = [sse(answer_stream(HELLO, f"resp_{number}")) for number in range(3)]
    server = run([answers[0], failure, *answers[1:]], scene)
    assert sent(server) == [(0, None, 1), (0, "resp_0", 1), (1, None, 3), (1, "resp_1", 1)]


def test_a_continuation_is_sent_again_only_once(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        reply = await upstream.send(asking(talk.items))
        assert reply.status == 400
        reply.close()

    server = run([sse(AGAIN), NOT_FOUND, NOT_FOUND], scene)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [401, 403, 429])
def test_an_error_of_the_account_is_not_repeated(run: Run, status: int) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        reply = await upstream.send(asking(talk.items))
        assert reply.status == status
        reply.close()
        await talk.turn()

    server = run([sse(AGAIN), error_frame(status, "no"), sse(AGAIN)], scene)
    assert sent(server) == [(0, None, 1), (0, "resp_again", 1), (1, None, 3)]


def test_a_new_connection_that_closes_without_an_answer_is_a_failure(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert (error.kind, error.message) == (
            "upstream",
            "upstream 'local' closed the connection without an answer",
        )

    server = run([ScriptedReply(chunks=[], cut=True)], scene)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ([], "the connection was closed"),
        ([b"\x88\x06\x03\xf3gone"], "it closed the WebSocket with code 1011: gone"),
        ([b"\x88\x00"], "it closed the WebSocket with code 1005"),
    ],
)
def test_an_answer_that_breaks_off_is_truncated(run: Run, end: list[bytes], cause: str) -> None:
    first = Frame(Opcode.TEXT, b'{"type":"response.created","response":{}}').serialize(mask=False)

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        assert (await reply.read()).startswith(b"event: response.created\n")
        error = await failure_of(reply.read())
        assert error.kind == "truncated"
        assert error.message == f"upstream 'local' cut its answer short: {cause}"
        reply.close()

    run([ScriptedReply(chunks=[first, *end], framing="raw", cut=True)], scene)


@pytest.mark.parametrize(
    ("bytes_", "cause"),
    [
        (b"\x82\x01x", "expected text frames, got a binary frame"),
        (b"\xf1\x01x", "reserved bits must be 0"),
        (b"\x81\x81aaaax", "incorrect masking"),
        (b"\x81\x7f" + (2**40).to_bytes(8, "big"), "exceeds limit"),
        (b"\x80\x01x", "unexpected continuation frame"),
    ],
)
def test_frames_that_are_none_are_an_error(run: Run, bytes_: bytes, cause: str) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.kind == "protocol"
        assert "did not answer by WebSocket" in error.message
        assert cause in error.message

    run([ScriptedReply(chunks=[bytes_], framing="raw", cut=True)], scene)


def test_frames_before_the_first_event_come_with_it_and_are_bounded(run: Run) -> None:
    limits = b'data: {"type":"codex.rate_limits"}\n\n'
    flood = [b'{"type":"codex.rate_limits","x":"%b"}' % (b"x" * 50_000)] * 8

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        data = await whole(await upstream.send(asking([USER])))
        assert data == b"event: codex.rate_limits\n" + limits + AGAIN
        reply = await upstream.send(asking([MORE]))
        assert reply.status == 400
        reply.close()
        error = await failure_of(upstream.send(asking([USER, USER])))
        assert "other bytes" in error.message

    limited = ScriptedReply(
        chunks=[b'{"type":"codex.rate_limits"}', NOT_FOUND.body],
    )
    run([sse(limits + AGAIN), limited, ScriptedReply(chunks=flood)], scene)


def test_events_without_a_request_end_the_connection(run: Run) -> None:
    late = b'data: {"type":"response.created","response":{}}\n\n'

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        await server.until(lambda: server.open_connections == 0)
        await talk.turn()

    server = run([sse(AGAIN + late), sse(AGAIN)], scene)
    assert sent(server) == [(0, None, 1), (1, None, 3)]


def test_a_failed_or_unfinished_response_is_not_continued(run: Run) -> None:
    failed = b'data: {"type":"response.failed","response":{"id":"resp_1","status":"failed"}}\n\n'
    short = b'data: {"type":"response.incomplete","response":{"id":"resp_2"}}\n\n'

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(3):
            await whole(await upstream.send(asking([USER, MORE])))

    server = run([sse(failed), sse(short), sse(AGAIN)], scene)
    assert [previous for _, previous, _ in sent(server)] == [None, None, None]


# --- times --------------------------------------------------------------------------------------------------------


def test_silence_before_and_in_an_answer_is_a_timeout(run: Run) -> None:
    gate = asyncio.Event()
    begun: list[Chunk] = [FIRST, Wait(gate)]

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.message == "upstream 'local' began no answer within 0.2 s"
        reply = await upstream.send(asking([USER]))
        error = await failure_of(whole(reply))
        assert error.message == "upstream 'local' sent nothing for 0.3 s"

    impatient = structs.replace(SOCKET, first_byte_timeout=0.2, idle_timeout=0.3)
    held = ScriptedReply(body=b"{}", hold=Wait(gate))
    run([held, ScriptedReply(content_type="text/event-stream", chunks=begun)], scene, impatient)


def test_keep_alive_frames_prevent_a_timeout(run: Run) -> None:
    from dragoman.testing import Pause  # noqa: PLC0415

    beat: list[Chunk] = [b'data: {"type":"keepalive"}\n\n', Pause(0.15)]
    chunks: list[Chunk] = [*beat * 3, FIRST, *beat * 3, REST]

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        data = await whole(await upstream.send(asking([USER])))
        assert data.count(b'{"type":"keepalive"}') == 3  # those before the answer are left out

    impatient = structs.replace(SOCKET, first_byte_timeout=0.4, idle_timeout=0.4)
    run([ScriptedReply(content_type="text/event-stream", chunks=chunks)], scene, impatient)


def test_a_timeout_of_a_continuation_is_not_repeated(run: Run) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        error = await failure_of(upstream.send(asking(talk.items)))
        assert error.kind == "timeout"

    impatient = structs.replace(SOCKET, first_byte_timeout=0.2)
    server = run(
        [sse(AGAIN), ScriptedReply(body=b"{}", hold=Wait(asyncio.Event()))], scene, impatient
    )
    assert len(server.requests) == 2


def test_a_handshake_without_answer_takes_no_longer_than_a_connection_may(run: Run) -> None:
    silent = ScriptedReply(body=b"", hold=Wait(asyncio.Event()))

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.message == "upstream 'local' gave no connection within 0.2 s"

    run([], scene, structs.replace(SOCKET, connect_timeout=0.2), lambda _: silent)


# --- connections --------------------------------------------------------------------------------------------------


def test_a_connection_that_the_server_closed_while_idle_costs_nothing(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        await server.until(lambda: server.open_connections == 0)
        await talk.turn()
        await talk.turn()

    first = structs.replace(sse(answer_stream(HELLO, "resp_0")), keep_alive=False)
    server = run([first, *[sse(answer_stream(HELLO, f"resp_{n}")) for n in (1, 2)]], scene)
    assert sent(server) == [(0, None, 1), (1, None, 3), (1, "resp_1", 1)]


def test_an_old_connection_is_not_used_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        monkeypatch.setattr(websocket_pool, "MAX_AGE", 0.0)
        await talk.turn()
        await server.until(lambda: server.open_connections == 0)

    server = run(numbered(HELLO), scene)
    assert sent(server) == [(0, None, 1), (1, None, 3)]


def test_idle_connections_are_closed_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_IDLE_SECONDS", 0.2)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await Talk(upstream).turn()
        await Talk(upstream, MORE).turn()
        assert server.open_connections == 2
        await server.until(lambda: server.open_connections == 0)

    run(numbered(HELLO), scene)


def test_idle_connections_are_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_IDLE", 2)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talks = [Talk(upstream, {"role": "user", "content": str(number)}) for number in range(4)]
        for talk in talks:
            await talk.turn()
        await server.until(lambda: server.open_connections == 2)
        for talk in (talks[3], talks[0]):
            await talk.turn()

    server = run(numbered(HELLO), scene)
    assert sent(server)[4:] == [(3, "resp_4", 1), (4, None, 3)]


def test_many_short_questions_share_connections(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_RESERVED", 2)

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for number in range(6):
            await Talk(upstream, {"role": "user", "content": str(number)}).turn()

    server = run(numbered(HELLO), scene)
    assert sent(server) == [(number % 2, None, 1) for number in range(6)]


def test_a_free_connection_that_fails_is_replaced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_RESERVED", 1)

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 1)
        await Talk(upstream, MORE).turn()
        await Talk(upstream, USER, USER).turn()
        reply = await upstream.send(asking([MORE, MORE]))
        assert reply.status == 400  # the request is wrong, not the connection
        reply.close()

    cut = ScriptedReply(chunks=[], cut=True)
    wrong = error_frame(400, "invalid_value")
    server = run([sse(AGAIN), TOO_OLD, sse(AGAIN), cut, sse(AGAIN), wrong], scene)
    assert [connection for connection, _, _ in sent(server)] == [0, 0, 1, 1, 2, 2]


def test_idle_connections_make_room_within_max_connections(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 2)
        await Talk(upstream, MORE).turn()
        assert await whole(await upstream.send(structs.replace(asking([USER]), stream=False)))
        await Talk(upstream, MORE, MORE).turn()
        assert server.open_connections == 1

    one = structs.replace(SOCKET, max_connections=1)
    answers = [sse(AGAIN), sse(AGAIN), sse(AGAIN), json_reply({}), sse(AGAIN)]
    server = run(answers, scene, one)
    assert [request.connection for request in server.requests] == [0, 0, 1, 2, 3]


def test_a_request_waits_for_a_busy_connection_within_max_connections(run: Run) -> None:
    gate = asyncio.Event()
    slow = ScriptedReply(content_type="text/event-stream", chunks=[FIRST, Wait(gate), REST])

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        first = await upstream.send(asking([USER]))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(Talk(upstream, MORE).turn())
            await asyncio.sleep(0)
            gate.set()
            await whole(first)
        assert waiting.result().status == 200

    server = run([slow, sse(AGAIN)], scene, structs.replace(SOCKET, max_connections=1))
    assert not server.failures


def test_a_taken_limit_is_reported_and_is_no_failed_handshake(run: Run) -> None:
    gate = asyncio.Event()
    slow = ScriptedReply(content_type="text/event-stream", chunks=[FIRST, Wait(gate), REST])

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        first = await upstream.send(asking([USER]))
        for _ in range(4):
            error = await failure_of(upstream.send(asking([MORE])))
            assert "max_connections" in error.message
        gate.set()
        await whole(first)
        await Talk(upstream, MORE).turn()

    narrow = structs.replace(SOCKET, max_connections=1, connect_timeout=0.05)
    server = run([slow, sse(AGAIN)], scene, narrow)
    assert [request.method for request in server.requests] == [WEBSOCKET, WEBSOCKET]


def test_a_client_that_leaves_closes_its_connection_and_no_other(run: Run) -> None:
    gate = asyncio.Event()
    slow = ScriptedReply(content_type="text/event-stream", chunks=[FIRST, Wait(gate), REST])

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        one, two = await upstream.send(asking([USER])), await upstream.send(asking([MORE]))
        await one.read()
        one.close()
        await server.until(lambda: server.requests[0].was_abandoned)
        assert server.open_connections == 1
        gate.set()
        assert b"response.completed" in await whole(two)

    run([slow, slow], scene)


def test_a_client_that_leaves_before_the_answer_closes_its_connection(run: Run) -> None:
    held = ScriptedReply(body=b"{}", hold=Wait(asyncio.Event()))

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        sending = asyncio.ensure_future(upstream.send(asking([USER])))
        await server.until(lambda: server.requests)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await server.until(lambda: server.open_connections == 0)

    run([held], scene)


def test_closing_the_upstream_closes_every_connection(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 1)
        running = await upstream.send(asking([MORE]))
        await upstream.close()
        await server.until(lambda: server.open_connections == 0)
        running.close()

    run(numbered(HELLO), scene)


def test_pushed_back_frames_are_not_read_without_bound(run: Run) -> None:
    delta = b'data: {"type":"response.output_text.delta","delta":"%b"}\n\n' % (b"x" * 1000)
    flood = AGAIN[: AGAIN.index(b"event: response.completed")] + delta * 20_000

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        before = -1
        while server.requests[0].sent != before:  # until the server cannot send more
            before = server.requests[0].sent
            await asyncio.sleep(0.1)
        assert before < len(flood) / 2
        reply.close()

    run([sse(flood, cut_into="frames")], scene)


# --- HTTP instead -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 426, 501, 200])
def test_a_server_without_websockets_is_asked_over_http_for_a_while(
    run: Run, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = True

    def shake(_: ReceivedRequest) -> ScriptedReply | None:
        return json_reply({}, status) if refused else None

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        nonlocal refused
        await turns(upstream, 3)
        refused = False
        monkeypatch.setattr(websocket_pool, "_now", lambda: loop_time() + 700)
        loop_time = asyncio.get_running_loop().time
        await turns(upstream, 1)

    with caplog.at_level(logging.WARNING):
        server = run(numbered(HELLO), scene, SOCKET, shake)
    assert [request.method for request in server.requests] == [*["POST"] * 3, WEBSOCKET]
    assert len(server.handshakes) == 2
    assert len(_input(server.requests[2])) == 5
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning == (
        "upstream 'local' is asked over HTTP for 600 s: "
        f"its WebSocket's handshake was answered with status {status}"
    )
    assert "responses_websockets" not in str(server.requests[0].headers)


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_refused_handshake_is_the_answer(run: Run, status: int) -> None:
    error = json_reply({"error": {"message": "no"}}, status, headers={"Retry-After": "3"})

    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        assert (reply.status, reply.headers["retry-after"]) == (status, "3")
        assert await whole(reply) == b'{"error":{"message":"no"}}'

    server = run([], scene, SOCKET, lambda _: error)
    assert len(server.handshakes) == 1


@pytest.mark.parametrize(
    "broken",
    [
        json_reply({}, 502),
        ScriptedReply(chunks=[], framing="raw", cut=True),
        ScriptedReply(chunks=[b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], framing="raw"),
        ScriptedReply(
            chunks=[b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                    b"sec-websocket-accept: x\r\n\r\n"],
            framing="raw",
        ),
    ],
)  # fmt: skip
def test_handshakes_that_fail_again_and_again_lead_to_http(
    run: Run, broken: ScriptedReply, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(_: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(2):
            try:
                reply = await upstream.send(asking([USER]))
            except UpstreamError as error:
                assert error.kind in ("upstream", "protocol")
            else:
                assert reply.status == 502
                reply.close()
        await turns(upstream, 2)

    with caplog.at_level(logging.WARNING):
        server = run(numbered(HELLO), scene, SOCKET, lambda _: broken)
    assert len(server.handshakes) == 3
    assert [request.method for request in server.requests] == ["POST", "POST"]
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("upstream 'local' is asked over HTTP for 60 s: 3 WebSockets in a row")


@pytest.mark.parametrize(
    ("handshake", "detail"),
    [
        (True, "reached; WebSocket accepted"),
        (lambda _: json_reply({}, 426), "reached; no WebSocket: it answered 426; HTTP is used"),
        (
            lambda _: ScriptedReply(chunks=[], framing="raw", cut=True),
            "reached; no WebSocket: upstream 'local' closed the connection without an answer",
        ),
    ],
)
def test_a_check_tries_the_websocket(run: Run, handshake: bool | Handshake, detail: str) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        found = await upstream.check()
        assert (found.ok, found.detail) == (True, detail)
        await server.until(lambda: len(server.handshakes) == 1)

    run([json_reply({"data": []})], scene, SOCKET, handshake)


# --- another implementation, TLS, memory --------------------------------------------------------------------------


def events_of(data: bytes) -> list[str]:
    return [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("is_tls", [False, True])
def test_pings_fragments_and_large_frames_of_a_real_server(loop: str, is_tls: bool) -> None:
    large = "x" * 3_000_000
    seen: list[Json] = []

    async def answer(connection: ServerConnection) -> None:
        await (await connection.ping())  # before the first message
        async for message in connection:
            seen.append(json.loads(message))
            await connection.send('{"type":"response.created","response":{"id":"resp_1"}}')
            await (await connection.ping(b"during an answer"))

            async def pieces() -> Any:  # noqa: ANN401 -- an iterator, in the library's own words
                for piece in ('{"type":"response.output_text.delta",', f'"delta":"{large}"', "}"):
                    yield piece

            await connection.send(pieces())
            await connection.send('{"type":"response.completed","response":{"id":"resp_1"}}')
            await (await connection.ping(b"after it"))

    async def main() -> None:
        context = None
        if is_tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(TLS / "server.pem")
        async with asyncio.timeout(20), serve(answer, "127.0.0.1", 0, ssl=context) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            scheme = "https" if is_tls else "http"
            settings = structs.replace(
                SOCKET,
                base_url=f"{scheme}://127.0.0.1:{port}/v1",
                ca_file=str(TLS / "ca.pem") if is_tls else None,
            )
            upstream = HttpUpstream("local", settings, key=None)
            for items in ([USER], [USER, MORE]):
                events = events_of(await whole(await upstream.send(asking(items))))
                assert len(events) == 3
                assert json.loads(events[1])["delta"] == large
            await upstream.close()

    play(loop, main())
    assert [message.get("previous_response_id") for message in seen] == [None, "resp_1"]


def test_a_turn_leaves_no_cycles(loop: str) -> None:
    async def main(count: int) -> None:
        async with ScriptedUpstream(numbered(HELLO), websocket=True) as server:
            settings = structs.replace(SOCKET, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("local", settings, key=None)
            await turns(upstream, count)
            await upstream.close()
            await server.until(lambda: server.open_connections == 0)

    few = left_by(partial(lambda count: play(loop, main(count)), 1))
    many = left_by(partial(lambda count: play(loop, main(count)), 9))
    assert not [name for name in many if name.startswith("dragoman.upstream")]
    more = many - few
    del more["dragoman.testing.ReceivedRequest"]  # the server remembers its requests
    assert not more
