"""Upstreams over HTTP, on loopback: times that run out, cut answers, connections kept and let go; by both loops."""

import asyncio
import gzip
import socket
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamSettings
from dragoman.core.failures import error_info
from dragoman.errors import UpstreamError
from dragoman.testing import (
    Chunk,
    Pause,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from dragoman.upstream.base import UpstreamReply, UpstreamRequest
from dragoman.upstream.http import transport
from dragoman.upstream.http.upstream import HttpUpstream
from loops import LOOPS, play
from ports import free_port

STREAM = b'data: {"a":1}\n\ndata: {"b":2}\n\n'
PLAIN = UpstreamSettings(kind="chat")
ASKED = UpstreamRequest(dialect="chat", body=b'{"model":"m"}', stream=True, model="m")

Scene = Callable[[ScriptedUpstream, HttpUpstream], Awaitable[None]]


class Run(Protocol):
    def __call__(
        self, script: Script, scene: Scene, settings: UpstreamSettings = PLAIN
    ) -> ScriptedUpstream: ...


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(loop: str) -> Run:
    """A scene with a server and an upstream that points to it; nothing may be left when it ends."""

    async def main(script: Script, scene: Scene, settings: UpstreamSettings) -> ScriptedUpstream:
        async with ScriptedUpstream(script) as server:
            pointed = structs.replace(settings, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("local", pointed, key="sk-secret")
            try:
                async with asyncio.timeout(60):
                    await scene(server, upstream)
            finally:
                await upstream.close()
            await server.until(lambda: server.open_connections == 0)
            await server.until(lambda: len(asyncio.all_tasks()) == 1)
        return server

    def run_scene(
        script: Script, scene: Scene, settings: UpstreamSettings = PLAIN
    ) -> ScriptedUpstream:
        return play(loop, main(script, scene, settings))

    return run_scene


async def whole(reply: UpstreamReply) -> bytes:
    pieces: list[bytes] = []
    while data := await reply.read():
        pieces.append(data)
    return b"".join(pieces)


async def body_of(upstream: HttpUpstream, asked: UpstreamRequest = ASKED) -> bytes:
    reply = await upstream.send(asked)
    try:
        return await whole(reply)
    finally:
        reply.close()


async def failure_of(awaited: Awaitable[object]) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await awaited
    assert "sk-secret" not in caught.value.message
    return caught.value


def test_a_request_arrives_as_it_was_given(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(structs.replace(ASKED, request_id="req_1"))
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.headers["x-two"] == "a, b"
        assert await whole(reply) == STREAM
        reply.close()

    server = run([sse(STREAM, headers={"X-Two": "a", "x-two": "b"})], scene)
    [received] = server.requests
    assert (received.method, received.path, received.query) == ("POST", "/v1/chat/completions", "")
    assert received.body == ASKED.body
    assert received.headers["authorization"] == "Bearer sk-secret"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["accept"] == "text/event-stream"
    assert received.headers["x-request-id"] == "req_1"
    assert received.headers["host"] == server.url.removeprefix("http://")
    assert received.headers["content-length"] == str(len(ASKED.body))
    assert "cookie" not in received.headers


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_bodies_of_every_size_and_framing_are_read_whole(run: Run, framing: str, size: int) -> None:
    body = b"x" * size
    reply = {
        "length": ScriptedReply(body=body),
        "chunked": ScriptedReply(chunks=[body]),
        "close": ScriptedReply(body=body, framing="close"),
    }[framing]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == body

    run([reply], scene)


def test_error_statuses_are_replies_and_redirects_are_not_followed(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for status in (400, 404, 429, 500, 529, 307):
            reply = await upstream.send(ASKED)
            assert reply.status == status
            assert await whole(reply) == b'{"error":{}}'
            reply.close()

    replies = [
        json_reply({"error": {}}, status, headers={"location": "/elsewhere"})
        for status in (400, 404, 429, 500, 529, 307)
    ]
    assert len(run(replies, scene).requests) == 6


def test_each_event_is_handed_over_when_it_arrives(run: Run) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    chunks: list[Chunk] = [b"one", Wait(gates[0]), b"two", Wait(gates[1]), b"three"]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == b"one"
        gates[0].set()
        assert await reply.read() == b"two"
        gates[1].set()
        assert await whole(reply) == b"three"
        assert await reply.read() == b""
        reply.close()

    run([ScriptedReply(chunks=chunks)], scene)


def test_a_connection_is_used_again_after_an_answer_was_read_whole(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for _ in range(5):
            await body_of(upstream)

    server = run([sse(STREAM)] * 3 + [json_reply({}), json_reply({})], scene)
    assert {received.connection for received in server.requests} == {0}


def test_a_connection_that_the_server_wants_closed_is_not_used_again(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await body_of(upstream)
        await body_of(upstream)

    server = run([ScriptedReply(body=b"1", keep_alive=False), json_reply({})], scene)
    assert [received.connection for received in server.requests] == [0, 1]


def test_closing_a_reply_in_the_middle_frees_the_socket_at_once(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == b"first"
        reply.close()
        reply.close()
        await server.until(lambda: server.requests[0].was_abandoned)
        assert await body_of(upstream) == b"{}"

    server = run([ScriptedReply(chunks=[b"first", Pause(600)]), json_reply({})], scene)
    assert [received.connection for received in server.requests] == [0, 1]


def test_giving_up_before_the_first_byte_frees_the_socket_at_once(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        sending = asyncio.create_task(upstream.send(ASKED))
        await server.until(lambda: server.requests)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await server.until(lambda: server.requests[0].was_abandoned)

    run([ScriptedReply(hold=Pause(600))], scene)


def test_a_reader_that_does_not_read_stops_the_server(run: Run) -> None:
    piece = b"x" * 16 * 1024

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        await reply.read()
        # What the system buffers on loopback is some MB; the rest must wait with the server.
        with pytest.raises(TimeoutError):
            await server.until(lambda: server.requests[0].finished_at, 0.3)
        assert server.requests[0].sent < 20 * 1024 * 1024
        assert len(await whole(reply)) > 32 * 1024 * 1024
        reply.close()

    run([ScriptedReply(chunks=[piece] * 4096)], scene)


def test_no_first_byte_in_time_is_a_timeout_that_says_so(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(ASKED))
        assert (error.kind, error.status) == ("timeout", 504)
        assert error.message == "upstream 'local' began no answer within 0.1 s"
        await server.until(lambda: server.requests[0].closed_at)

    settings = structs.replace(PLAIN, first_byte_timeout=0.1)
    server = run([ScriptedReply(hold=Pause(60))], scene, settings)
    assert len(server.requests) == 1


def test_silence_in_the_middle_is_a_timeout_that_says_so(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == b"first"
        began = time.monotonic()
        error = await failure_of(reply.read())
        assert time.monotonic() - began > 0.15
        assert (error.kind, error.status) == ("timeout", 504)
        assert error.message == "upstream 'local' sent nothing for 0.2 s"
        reply.close()

    settings = structs.replace(PLAIN, idle_timeout=0.2)
    run([ScriptedReply(chunks=[b"first", Pause(60)])], scene, settings)


def test_a_slow_answer_is_not_a_silent_one(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"abcdef"

    chunks: list[Chunk] = []
    for letter in (b"a", b"b", b"c", b"d", b"e", b"f"):
        chunks += [letter, Pause(0.3)]
    run([ScriptedReply(chunks=chunks)], scene, structs.replace(PLAIN, idle_timeout=1.5))


def test_a_server_that_takes_no_connection_is_a_timeout_that_says_so(
    loop: str,
) -> None:
    async def main() -> None:
        # A listener whose queue is full: the system answers no further connection.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            address = listener.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            settings = structs.replace(
                PLAIN, base_url=f"http://127.0.0.1:{address[1]}", connect_timeout=0.2
            )
            upstream = HttpUpstream("local", settings, key=None)
            error = await failure_of(upstream.send(ASKED))
            assert (error.kind, error.status) == ("timeout", 504)
            assert error.message == "upstream 'local' gave no connection within 0.2 s"
            await upstream.close()
            for filler in fillers:
                filler.close()

    play(loop, main())


@pytest.mark.parametrize("url", ["http://127.0.0.1:{free}", "http://no-such-host.invalid"])
def test_a_server_that_is_not_there_is_an_upstream_error(loop: str, url: str) -> None:
    free = free_port()

    async def main() -> None:
        settings = structs.replace(
            PLAIN, base_url=url.format(free=free), query={"key": "sk-secret"}
        )
        upstream = HttpUpstream("local", settings, key="sk-secret")
        error = await failure_of(upstream.send(ASKED))
        assert (error.kind, error.status) == ("upstream", 502)
        assert error.message.startswith("upstream 'local' cannot be reached: ")
        await upstream.close()

    play(loop, main())


CUTS = {
    "chunked": sse(STREAM, cut=True),
    "length": ScriptedReply(
        chunks=[STREAM], framing="length", declared_length=len(STREAM) + 1, cut=True
    ),
    "reset": ScriptedReply(chunks=[STREAM, Pause(0.1)], cut="reset"),
}


@pytest.mark.parametrize("how", CUTS)
def test_an_answer_that_is_cut_is_reported_up_to_the_cut(run: Run, how: str) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == STREAM
        error = await failure_of(reply.read())
        assert (error.kind, error.status) == ("truncated", 502)
        assert error.message.startswith("upstream 'local' cut its answer short: ")
        reply.close()

    run([CUTS[how]], scene)


def test_what_arrived_before_a_cut_is_not_lost_on_a_slow_reader(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        await server.until(lambda: server.open_connections == 0)
        await asyncio.sleep(0.05)
        assert await reply.read() == STREAM
        assert (await failure_of(reply.read())).kind == "truncated"
        reply.close()

    run([CUTS["chunked"]], scene)


def test_a_server_that_hangs_up_instead_of_answering_is_an_upstream_error(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(ASKED))
        assert (error.kind, error.status) == ("upstream", 502)
        assert error.message == "upstream 'local' closed the connection without an answer"

    run([HANG_UP] * 2, scene)


HANG_UP = ScriptedReply(framing="raw", chunks=[], cut=True)


@pytest.mark.parametrize("cut", [True, "reset"])
def test_a_kept_connection_that_was_just_closed_costs_the_client_nothing(
    run: Run, cut: bool
) -> None:
    hang_up = ScriptedReply(framing="raw", chunks=[], cut=cut)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"1"
        assert await body_of(upstream) == b"2"

    server = run([json_reply(1), hang_up, json_reply(2)], scene)
    assert [received.connection for received in server.requests] == [0, 0, 1]
    assert [received.body for received in server.requests] == [ASKED.body] * 3


def test_an_answer_that_had_begun_is_not_asked_for_again(run: Run) -> None:
    half = ScriptedReply(framing="raw", chunks=[b"HTTP/1.1 200"], cut=True)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await body_of(upstream)
        await failure_of(upstream.send(ASKED))

    assert len(run([json_reply(1), half], scene).requests) == 2


def test_bytes_that_are_no_http_are_a_protocol_error(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(ASKED))
        assert (error.kind, error.status) == ("protocol", 502)
        assert error.message.startswith("upstream 'local' did not answer in HTTP: ")

    run([ScriptedReply(framing="raw", chunks=[b"SSH-2.0-nope\r\n\r\n"])], scene)


def test_informational_answers_are_passed_over(run: Run) -> None:
    head = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert reply.status == 200
        assert "link" not in reply.headers
        assert await whole(reply) == b"ok"
        reply.close()

    run([ScriptedReply(framing="raw", chunks=[head, final])], scene)


@pytest.mark.parametrize("fields", [b"", b"upgrade: websocket\r\nconnection: upgrade\r\n"])
def test_a_switch_to_another_protocol_is_a_final_answer(run: Run, fields: bytes) -> None:
    """The connection is not used again: what follows is no HTTP."""
    head = b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n"
    final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert (reply.status, await whole(reply)) == (101, b"")
        reply.close()
        again = await upstream.send(ASKED)
        assert (again.status, await whole(again)) == (200, b"ok")
        again.close()

    frame = ScriptedReply(framing="raw", chunks=[head + b"\x81\x02hi"])
    run([frame, ScriptedReply(framing="raw", chunks=[final])], scene)


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data)


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", _gzip), ("deflate", zlib.compress)])
@pytest.mark.parametrize("cut_into", [1, 7, 10_000])
def test_compressed_answers_are_inflated(
    run: Run, encoding: str, packed: Callable[[bytes], bytes], cut_into: int
) -> None:
    text = b'{"text":"%b"}' % (b"many words " * 500)
    data = packed(text)
    chunks = [data[at : at + cut_into] for at in range(0, len(data), cut_into)]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream, structs.replace(ASKED, stream=False)) == text

    server = run([ScriptedReply(chunks=chunks, headers={"content-encoding": encoding})], scene)
    assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"


def test_no_more_connections_are_opened_than_allowed(run: Run) -> None:
    gate = asyncio.Event()

    def answer(received: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(chunks=[b"x", Wait(gate)])

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        asked = [asyncio.create_task(body_of(upstream)) for _ in range(5)]
        await server.until(lambda: len(server.requests) == 2)
        await asyncio.sleep(0.05)
        assert server.connections == 2
        gate.set()
        assert await asyncio.gather(*asked) == [b"x"] * 5
        assert server.connections == 2

    run(answer, scene, structs.replace(PLAIN, max_connections=2))


def test_waiting_for_a_free_connection_ends_with_a_503_that_says_when_to_return(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        first = await upstream.send(ASKED)
        error = await failure_of(upstream.send(ASKED))
        assert error.message == (
            "expected one of the 1 connections to upstream 'local' (max_connections) to be free"
            " within 0.1 s; each is taken"
        )
        info = error_info(error)
        assert (info.kind, info.status, info.retry_after) == ("overloaded", 503, 1.0)
        first.close()

    settings = structs.replace(PLAIN, max_connections=1, connect_timeout=0.1)
    run([ScriptedReply(chunks=[Pause(60)])], scene, settings)


def test_by_default_there_are_as_many_connections_as_requests(run: Run) -> None:
    gate = asyncio.Event()
    count = 64
    assert PLAIN.max_connections is None

    def answer(received: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(hold=Wait(gate), body=b"x")

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        asked = [asyncio.create_task(body_of(upstream)) for _ in range(count)]
        await server.until(lambda: len(server.requests) == count)
        gate.set()
        assert await asyncio.gather(*asked) == [b"x"] * count

    run(answer, scene)


def _raw(transfer_encoding: str, *rest: bytes) -> ScriptedReply:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {transfer_encoding}\r\n\r\n"
    return ScriptedReply(framing="raw", chunks=[head.encode(), *rest], cut=True)


@pytest.mark.parametrize("spelling", ["chunked", "Chunked", "CHUNKED", "chunked ", "gzip, Chunked"])
@pytest.mark.parametrize("rest", [b"3\r\nabc\r\n", b"5\r\nabc", b"3\r\nabc\r\n0\r\n"])
def test_a_chunked_answer_that_ends_early_is_cut_short_however_it_is_spelled(
    run: Run, spelling: str, rest: bytes
) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == b"abc"
        error = await failure_of(reply.read())
        assert error.kind == "truncated"
        reply.close()

    run([_raw(spelling, rest)], scene)


@pytest.mark.parametrize("spelling", ["identity", "chunked, gzip"])
def test_an_answer_whose_last_transfer_encoding_is_not_chunked_ends_with_its_connection(
    run: Run, spelling: str
) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"abc"

    run([_raw(spelling, b"abc")], scene)


@pytest.mark.parametrize("is_forwarded", [False, True])
@pytest.mark.parametrize(
    "flood",
    [b"x" * 1024, b"x-more: 1\r\n" * 100],
    ids=["one-trailer-without-end", "trailers-without-end"],
)
def test_trailers_without_end_are_refused_at_the_size_of_a_head(
    run: Run, flood: bytes, is_forwarded: bool
) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert isinstance(reply, transport.HttpReply)
        taken: list[bytes] = []

        def take(pieces: list[bytes]) -> bool:
            taken.append(b"".join(pieces))
            return True

        error = await failure_of(reply.forward(take) if is_forwarded else whole(reply))
        assert error.kind == "protocol"
        assert error.message == (
            "upstream 'local' did not answer in HTTP: over 262144 bytes of trailers or chunk extensions"
        )
        assert server.requests[0].sent < 8 * 1024 * 1024  # what the system buffers is some MB
        reply.close()

    trailer = flood if flood.endswith(b"\n") else b"x-more: " + flood
    run([_raw("chunked", b"3\r\nabc\r\n0\r\n", trailer, *[flood] * 20_000)], scene)


def test_trailers_are_neither_headers_nor_body(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await whole(reply) == b"abc"
        assert "x-late" not in reply.headers
        reply.close()

    run([_raw("chunked", b"3\r\nabc\r\n", b"0\r\nx-late: 1\r\n\r\n")], scene)


def test_a_large_request_is_sent_whole(run: Run) -> None:
    body = b"x" * (8 * 1024 * 1024)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await body_of(upstream, structs.replace(ASKED, body=body))

    assert run([json_reply({})], scene).requests[0].body == body


def test_many_requests_at_once_do_not_mix(run: Run) -> None:
    def answer(received: ReceivedRequest) -> ScriptedReply:
        return sse(received.body * 10, cut_into=3)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        bodies = [b"<%d>" % number for number in range(50)]
        asked = [body_of(upstream, structs.replace(ASKED, body=body)) for body in bodies]
        assert await asyncio.gather(*asked) == [body * 10 for body in bodies]

    run(answer, scene)


def test_an_answer_without_a_body_leaves_the_connection(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert (reply.status, await reply.read()) == (204, b"")
        reply.close()
        assert await body_of(upstream) == b"{}"

    # Neither a length nor chunks: the status alone says that nothing follows.
    bare = ScriptedReply(framing="raw", chunks=[b"HTTP/1.1 204 No Content\r\n\r\n", Pause(0.5)])
    server = run([bare, json_reply({})], scene)
    assert server.requests[0].connection == 0


def test_trailers_are_no_headers(run: Run) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"2\r\nok\r\n0\r\nx-late: 1\r\n\r\n"

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await whole(reply) == b"ok"
        assert "x-late" not in reply.headers
        reply.close()

    run([ScriptedReply(framing="raw", chunks=[head, body])], scene)


def test_bytes_beyond_the_answer_belong_to_nobody(run: Run) -> None:
    twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    surplus: list[Chunk] = [twice + b"ok" + twice + b"no", Pause(0.2)]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"ok"
        assert await body_of(upstream) == b"{}"

    server = run([ScriptedReply(framing="raw", chunks=surplus), json_reply({})], scene)
    assert [received.connection for received in server.requests] == [0, 1]


def test_bytes_that_nobody_asked_for_end_the_connection(run: Run) -> None:
    gate = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    chunks: list[Chunk] = [head + b"ok", Wait(gate), b"HTTP/1.1 408 Late\r\n\r\n", Pause(60)]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"ok"
        gate.set()
        await server.until(lambda: server.open_connections == 0)
        assert await body_of(upstream) == b"{}"

    server = run([ScriptedReply(framing="raw", chunks=chunks), json_reply({})], scene)
    assert [received.connection for received in server.requests] == [0, 1]


def test_a_head_without_an_end_is_a_protocol_error(run: Run) -> None:
    endless = [b"HTTP/1.1 200 OK\r\n"] + [b"x-%d: y\r\n" % number for number in range(40_000)]

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        error = await failure_of(upstream.send(ASKED))
        assert error.kind == "protocol"
        assert error.message.endswith("a head of over 262144 bytes")

    run([ScriptedReply(framing="raw", chunks=[b"".join(endless)])], scene)


def test_an_answer_to_half_a_request_is_read_and_the_connection_dropped(loop: str) -> None:
    async def main() -> None:
        seen = asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            await seen.wait()
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = structs.replace(PLAIN, base_url=f"http://127.0.0.1:{port}")
        upstream = HttpUpstream("local", settings, key=None)
        for _ in range(2):
            reply = await upstream.send(structs.replace(ASKED, body=b"x" * (32 * 1024 * 1024)))
            assert reply.status == 413
            assert await whole(reply) == b"no"
            reply.close()
        seen.set()
        await upstream.close()
        server.close()
        await server.wait_closed()

    play(loop, main())


def test_a_reply_that_was_closed_reads_as_ended(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        reply.close()
        assert await reply.read() == b""

    run([sse(STREAM)], scene)


def test_a_late_close_does_not_hurt_the_next_exchange(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        first = await upstream.send(ASKED)
        await whole(first)
        first.close()
        second = await upstream.send(ASKED)
        first.close()
        assert await whole(second) == STREAM
        second.close()

    server = run([sse(STREAM), sse(STREAM, cut_into=1)], scene)
    assert [received.connection for received in server.requests] == [0, 0]


def test_connections_that_rested_too_long_are_not_trusted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_REST_SECONDS", 0.05)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        await asyncio.gather(body_of(upstream), body_of(upstream))
        await asyncio.sleep(0.1)
        await body_of(upstream)
        assert server.connections == 3

    run([json_reply({}, headers={"x": "y"})] * 3, scene)


def test_a_header_that_would_speak_for_us_is_refused(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        for value, complaint in (
            ("a\r\nx: y", "line end"),
            ("a\nb", "line end"),
            ("漢", "cannot carry"),
        ):
            error = await failure_of(upstream.send(structs.replace(ASKED, request_id=value)))
            assert complaint in error.message

    assert run([], scene).requests == []


def test_old_connections_are_let_go_when_a_younger_one_comes_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_REST_SECONDS", 0.05)

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        slow = await upstream.send(ASKED)
        await body_of(upstream)
        await asyncio.sleep(0.1)
        await whole(slow)
        slow.close()
        await server.until(lambda: server.open_connections == 1)

    run([json_reply({})] * 2, scene)


def test_a_stale_connection_makes_room_for_a_fresh_one_among_those_that_rest(run: Run) -> None:
    def answer(received: ReceivedRequest) -> ScriptedReply:
        return HANG_UP if len(bodies) == 2 and received.connection != 2 else json_reply({})

    bodies: list[bytes] = []

    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        bodies.extend(await asyncio.gather(body_of(upstream), body_of(upstream)))
        assert await body_of(upstream) == b"{}"
        assert server.connections == 3

    run(answer, scene, structs.replace(PLAIN, max_connections=2))


def test_a_connection_may_rest_longer_than_an_answer_may_be_silent(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert await body_of(upstream) == b"x"
        await asyncio.sleep(2.2)
        assert await body_of(upstream) == b"{}"

    settings = structs.replace(PLAIN, idle_timeout=2.0, first_byte_timeout=2.0)
    slow = ScriptedReply(chunks=[Pause(0.05), b"x", Pause(0.05)])
    server = run([slow, json_reply({})], scene, settings)
    assert [received.connection for received in server.requests] == [0, 0]


def test_an_answer_that_nobody_reads_does_not_reach_the_next(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        await server.until(lambda: server.requests[0].finished_at)
        await asyncio.sleep(0.05)
        reply.close()
        assert await body_of(upstream) == b"{}"

    run([ScriptedReply(body=b"x" * 200_000), json_reply({})], scene)


@pytest.mark.parametrize(
    "body", [b"not gzip at all", gzip.compress(b"words " * 100)[:-4]], ids=["plain", "cut"]
)
def test_compressed_answers_that_are_broken_are_cut_answers(run: Run, body: bytes) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        assert (await failure_of(body_of(upstream))).kind == "truncated"

    run([ScriptedReply(body=body, headers={"content-encoding": "gzip"})], scene)


def test_closing_the_upstream_ends_what_is_under_way(run: Run) -> None:
    async def scene(server: ScriptedUpstream, upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read() == b"x"
        await upstream.close()
        assert (await failure_of(reply.read())).kind == "truncated"
        reply.close()

    run([ScriptedReply(chunks=[b"x", Pause(60)])], scene)
