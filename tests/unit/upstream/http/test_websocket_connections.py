"""The connections of an upstream that is asked over WebSockets: kept, closed, limited, and when HTTP is used instead."""

import asyncio
import json
import logging
import ssl
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from msgspec import structs
from websockets.asyncio.server import ServerConnection, serve

from dragoman.config.settings import UpstreamSettings
from dragoman.testing import (
    WEBSOCKET,
    Handshake,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from dragoman.upstream.http import websocket_pool
from dragoman.upstream.http.upstream import HttpUpstream
from garbage import left_by
from loops import LOOPS, play
from socket_scene import (
    AGAIN,
    FIRST,
    HELLO,
    MORE,
    REST,
    SOCKET,
    USER,
    Json,
    Scene,
    Talk,
    answer_stream,
    asking,
    error_frame,
    failure_of,
    input_of,
    numbered,
    run_scene,
    sent,
    turns,
    whole,
)

TLS = Path(__file__).parent / "tls"
TOO_OLD = error_frame(400, "websocket_connection_limit_reached")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Run(Protocol):
    def __call__(
        self,
        script: Script,
        scene: Scene,
        settings: UpstreamSettings = SOCKET,
        websocket: bool | Handshake = True,
    ) -> ScriptedUpstream: ...


@pytest.fixture
def run(loop: str) -> Run:
    return partial(run_scene, loop)


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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for number in range(6):
            await Talk(upstream, {"role": "user", "content": str(number)}).turn()

    server = run(numbered(HELLO), scene)
    assert sent(server) == [(number % 2, None, 1) for number in range(6)]


def test_a_free_connection_that_fails_is_replaced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_RESERVED", 1)

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        nonlocal refused
        await turns(upstream, 3)
        refused = False
        loop_time = asyncio.get_running_loop().time
        monkeypatch.setattr(websocket_pool, "_now", lambda: loop_time() + 700)
        await turns(upstream, 1)

    with caplog.at_level(logging.WARNING):
        server = run(numbered(HELLO), scene, SOCKET, shake)
    assert [request.method for request in server.requests] == [*["POST"] * 3, WEBSOCKET]
    assert len(server.handshakes) == 2
    assert len(input_of(server.requests[2])) == 5
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning == (
        "upstream 'local' is asked over HTTP for 600 s: "
        f"its WebSocket's handshake was answered with status {status}"
    )
    assert "responses_websockets" not in str(server.requests[0].headers)


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_refused_handshake_is_the_answer(run: Run, status: int) -> None:
    error = json_reply({"error": {"message": "no"}}, status, headers={"Retry-After": "3"})

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(asking([USER]))
        assert (reply.status, reply.headers["retry-after"]) == (status, "3")
        assert await whole(reply) == b'{"error":{"message":"no"}}'

    server = run([], scene, SOCKET, lambda _: error)
    assert len(server.handshakes) == 1


@pytest.mark.parametrize(
    "broken",
    [
        json_reply({}, 502),
        json_reply({}, 403),
        ScriptedReply(chunks=[], framing="raw", cut=True),
        ScriptedReply(chunks=[b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], framing="raw"),
        ScriptedReply(
            chunks=[b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n"],
            framing="raw",
        ),
    ],
)  # fmt: skip
def test_handshakes_that_fail_again_and_again_lead_to_http(
    run: Run, broken: ScriptedReply, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(2):
            if broken.status != 200:
                reply = await upstream.send(asking([USER]))
                assert reply.status == broken.status
                reply.close()
            else:
                error = await failure_of(upstream.send(asking([USER])))
                assert error.kind in ("upstream", "protocol")
        await turns(upstream, 2)

    with caplog.at_level(logging.WARNING):
        server = run(numbered(HELLO), scene, SOCKET, lambda _: broken)
    assert len(server.handshakes) == 3
    assert [request.method for request in server.requests] == ["POST", "POST"]
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("upstream 'local' is asked over HTTP for 60 s: 3 WebSockets in a row")


@pytest.mark.parametrize(
    ("refusal", "detail"),
    [
        (None, "reached; WebSocket accepted"),
        (json_reply({}, 426), "reached; no WebSocket: it answered 426; HTTP is used"),
        (
            ScriptedReply(chunks=[], framing="raw", cut=True),
            "reached; no WebSocket: upstream 'local' closed the connection without an answer",
        ),
    ],
)
def test_a_check_tries_the_websocket(run: Run, refusal: ScriptedReply | None, detail: str) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        found = await upstream.check()
        assert (found.ok, found.detail) == (True, detail)
        await server.until(lambda: len(server.handshakes) == 1)

    run([json_reply({"data": []})], scene, SOCKET, lambda _: refusal)


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

            await connection.send(
                ['{"type":"response.output_text.delta",', f'"delta":"{large}"', "}"]
            )
            await connection.send('{"type":"response.completed","response":{"id":"resp_1"}}')
            await (await connection.ping(b"after it"))

    async def main() -> None:
        context = None
        if is_tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(TLS / "server.pem")
        async with asyncio.timeout(60), serve(answer, "127.0.0.1", 0, ssl=context) as server:
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

    few = left_by(lambda: play(loop, main(1)))
    many = left_by(lambda: play(loop, main(9)))
    assert not [name for name in many if name.startswith("dragoman.upstream")]
    more = many - few
    del more["dragoman.testing.ReceivedRequest"]  # the server remembers its requests
    assert not more
