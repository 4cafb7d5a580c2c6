"""An upstream that is asked over WebSockets, on loopback: what is sent, whose it is, and what may go wrong."""

import asyncio
import json
import tracemalloc
from functools import partial
from typing import Protocol

import pytest
from msgspec import structs
from websockets.frames import Frame, Opcode

from dragoman.config.settings import UpstreamSettings
from dragoman.dialects.responses.websocket_client import AnswerState, read_request
from dragoman.testing import (
    Chunk,
    Handshake,
    Pause,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.http import websocket_pool
from dragoman.upstream.http.connection import UpstreamConnection
from dragoman.upstream.http.upstream import HttpUpstream
from dragoman.upstream.http.websocket import SocketReader
from loops import LOOPS, play
from socket_scene import (
    AGAIN,
    FIRST,
    HELLO,
    MORE,
    REST,
    SOCKET,
    USER,
    Scene,
    Talk,
    answer_stream,
    asking,
    error_frame,
    failure_of,
    numbered,
    outputs,
    run_scene,
    sent,
    turns,
    whole,
)
from vendor_wire import Answer, Said, Tool

CALLS = Answer((Said(("Let me look.",)), Tool("call_1", "f", ('{"a":', "1}"))))
NOT_FOUND = error_frame(400, "previous_response_not_found")
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


# --- turns --------------------------------------------------------------------------------------------------------


def test_each_turn_sends_what_is_new_on_the_same_connection(run: Run) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await whole(await upstream.send(asked)) == b"{}"

    server = run([json_reply({})], scene)
    assert [request.method for request in server.requests] == ["POST"]
    assert server.requests[0].body == asked.body
    assert not server.handshakes


# --- owners -------------------------------------------------------------------------------------------------------


def test_two_keys_never_share_a_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_pool, "MAX_RESERVED", 1)  # any free connection would be taken

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 3)

    answers = [sse(answer_stream(HELLO, f"resp_{number}")) for number in range(3)]
    server = run([answers[0], failure, *answers[1:]], scene)
    assert sent(server) == [(0, None, 1), (0, "resp_0", 1), (1, None, 3), (1, "resp_1", 1)]


def test_a_continuation_is_sent_again_only_once(run: Run) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        reply = await upstream.send(asking(talk.items))
        assert reply.status == 400
        reply.close()

    server = run([sse(AGAIN), NOT_FOUND, NOT_FOUND], scene)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [401, 403, 429])
def test_an_error_of_the_account_is_not_repeated(run: Run, status: int) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        reply = await upstream.send(asking(talk.items))
        assert reply.status == status
        reply.close()
        await talk.turn()

    server = run([sse(AGAIN), error_frame(status, "no"), sse(AGAIN)], scene)
    assert sent(server) == [(0, None, 1), (0, "resp_again", 1), (1, None, 3)]


def test_a_new_connection_that_closes_without_an_answer_is_a_failure(run: Run) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.kind == "protocol"
        assert "did not answer by WebSocket" in error.message
        assert cause in error.message

    run([ScriptedReply(chunks=[bytes_], framing="raw", cut=True)], scene)


def test_frames_before_the_first_event_come_with_it_and_are_bounded(run: Run) -> None:
    limits = b'data: {"type":"codex.rate_limits"}\n\n'
    flood = [b'{"type":"codex.rate_limits","x":"%b"}' % (b"x" * 50_000)] * 8

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
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


def test_fragments_without_bytes_take_no_memory(loop: str) -> None:
    async def main() -> None:
        connection = UpstreamConnection("local", 1.0, 1.0)
        request = read_request(b'{"input":"Hi"}', b"")
        assert request is not None
        answer = AnswerState(request)
        reader = SocketReader(connection, "local", owner=b"", since=0.0, answer=answer)
        reader.feed_data(b"\x01\x00")
        tracemalloc.start()
        try:
            for _ in range(10):
                assert not reader.feed_data(b"\x00\x00" * 5_000)
            assert tracemalloc.get_traced_memory()[0] < 50_000  # a reference to each has 400,000
        finally:
            tracemalloc.stop()
            reader.end()

    play(loop, main())


def test_events_without_a_request_end_the_connection(run: Run) -> None:
    late = b'data: {"type":"response.created","response":{}}\n\n'

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        await server.until(lambda: server.open_connections == 0)
        await talk.turn()

    server = run([sse(AGAIN + late), sse(AGAIN)], scene)
    assert sent(server) == [(0, None, 1), (1, None, 3)]


@pytest.mark.parametrize("begun", [b"\x01\x01{", b"\x81\x7f", b"\x81\x7e\x10\x00{"])
def test_a_message_that_begins_without_a_request_is_not_waited_for(run: Run, begun: bytes) -> None:
    """It could have 64 MB on each of many idle connections."""
    gate = asyncio.Event()
    events = [line.removeprefix(b"data: ") for line in AGAIN.splitlines() if b"data: " in line]
    frames = [Frame(Opcode.TEXT, event).serialize(mask=False) for event in events]
    chunks: list[Chunk] = [*frames, Wait(gate), begun, Wait(asyncio.Event())]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await turns(upstream, 1)
        gate.set()
        await server.until(lambda: server.open_connections == 0)

    run([ScriptedReply(chunks=chunks, framing="raw")], scene)


def test_a_failed_or_unfinished_response_is_not_continued(run: Run) -> None:
    failed = b'data: {"type":"response.failed","response":{"id":"resp_1","status":"failed"}}\n\n'
    short = b'data: {"type":"response.incomplete","response":{"id":"resp_2"}}\n\n'

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(3):
            await whole(await upstream.send(asking([USER, MORE])))

    server = run([sse(failed), sse(short), sse(AGAIN)], scene)
    assert [previous for _, previous, _ in sent(server)] == [None, None, None]


# --- times --------------------------------------------------------------------------------------------------------


def test_silence_before_and_in_an_answer_is_a_timeout(run: Run) -> None:
    gate = asyncio.Event()
    begun: list[Chunk] = [FIRST, Wait(gate)]

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.message == "upstream 'local' began no answer within 1.5 s"
        reply = await upstream.send(asking([USER]))
        error = await failure_of(whole(reply))
        assert error.message == "upstream 'local' sent nothing for 0.3 s"

    impatient = structs.replace(SOCKET, first_byte_timeout=1.5, idle_timeout=0.3)
    held = ScriptedReply(body=b"{}", hold=Wait(gate))
    run([held, ScriptedReply(content_type="text/event-stream", chunks=begun)], scene, impatient)


def test_keep_alive_frames_prevent_a_timeout(run: Run) -> None:
    beat: list[Chunk] = [b'data: {"type":"keepalive"}\n\n', Pause(0.7)]
    chunks: list[Chunk] = [*beat * 3, FIRST, *beat * 3, REST]

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        data = await whole(await upstream.send(asking([USER])))
        assert data.count(b'{"type":"keepalive"}') == 3  # those before the answer are left out

    impatient = structs.replace(SOCKET, first_byte_timeout=2.0, idle_timeout=2.0)
    run([ScriptedReply(content_type="text/event-stream", chunks=chunks)], scene, impatient)


@pytest.mark.parametrize("sign", [b"\x89\x00", b"\x8a\x00"], ids=["ping", "pong"])
@pytest.mark.parametrize("is_begun", [False, True], ids=["before", "in an answer"])
def test_pings_do_not_prevent_a_timeout(run: Run, sign: bytes, is_begun: bool) -> None:
    """The machine is alive; whether the model still works is shown by events only. Codex judges a server in this way, too."""
    created = b'{"type":"response.created","response":{}}'
    first = Frame(Opcode.TEXT, created).serialize(mask=False)
    beats: list[Chunk] = [sign, Pause(0.1)] * 600

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        if not is_begun:
            assert (await failure_of(upstream.send(asking([USER])))).kind == "timeout"
            return
        reply = await upstream.send(asking([USER]))
        assert (await failure_of(whole(reply))).kind == "timeout"

    impatient = structs.replace(SOCKET, first_byte_timeout=1.0, idle_timeout=1.0)
    chunks = [first, *beats] if is_begun else beats
    run([ScriptedReply(chunks=chunks, framing="raw", cut=True)], scene, impatient)


def test_a_timeout_of_a_continuation_is_not_repeated(run: Run) -> None:
    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        talk = Talk(upstream)
        await talk.turn()
        error = await failure_of(upstream.send(asking(talk.items)))
        assert error.kind == "timeout"

    impatient = structs.replace(SOCKET, first_byte_timeout=1.5)
    server = run(
        [sse(AGAIN), ScriptedReply(body=b"{}", hold=Wait(asyncio.Event()))], scene, impatient
    )
    assert len(server.requests) == 2


def test_a_handshake_without_answer_takes_no_longer_than_a_connection_may(run: Run) -> None:
    silent = ScriptedReply(body=b"", hold=Wait(asyncio.Event()))

    async def scene(_server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(asking([USER])))
        assert error.message == "upstream 'local' gave no connection within 0.2 s"

    run([], scene, structs.replace(SOCKET, connect_timeout=0.2), lambda _: silent)
