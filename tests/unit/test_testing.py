"""The test double itself: what it sends, what it remembers, and what it does when the script or the client fails."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dragoman.errors import MalformedJson
from dragoman.testing import (
    WEBSOCKET,
    Pause,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)

STREAM = b'data: {"a":1}\n\ndata: {"b":2}\n\n: bye\n\n'


@contextmanager
def connected(upstream: ScriptedUpstream) -> Generator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def ask(upstream: ScriptedUpstream, body: bytes = b"{}") -> tuple[int, dict[str, str], bytes]:
    with connected(upstream) as connection:
        connection.request("POST", "/v1/x?beta=true", body, {"X-Trace": "abc"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()


def test_a_request_is_remembered_as_it_was_sent() -> None:
    with ScriptedUpstream.in_thread([json_reply({"ok": True}, 201)]) as upstream:
        status, headers, body = ask(upstream, b'{"tools":[{"name":"f"}]}')
    assert (status, body) == (201, b'{"ok":true}')
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == "11"
    [request] = upstream.requests
    assert (request.method, request.path, request.query) == ("POST", "/v1/x", "beta=true")
    assert request.headers["x-trace"] == "abc"
    assert request.json() == {"tools": [{"name": "f"}]}
    assert request.at("tools", 0, "name") == "f"
    assert request.sent > len(body)
    assert upstream.failures == []


def test_a_value_the_body_does_not_have_is_an_assertion_that_says_where() -> None:
    with ScriptedUpstream.in_thread([json_reply({})]) as upstream:
        ask(upstream, b'{"tools":[]}')
    [request] = upstream.requests
    with pytest.raises(AssertionError, match=r"nothing at \('tools', 0\)"):
        request.at("tools", 0)
    with pytest.raises(AssertionError, match="no 'x' in"):
        request.at("tools", "x")


def test_a_body_that_is_no_object_is_not_given_as_one() -> None:
    with ScriptedUpstream.in_thread([json_reply({})]) as upstream:
        ask(upstream, b"[1]")
    with pytest.raises(MalformedJson, match="expected a JSON object"):
        upstream.requests[0].json()


def test_a_function_decides_each_reply_by_the_request() -> None:
    def echo(request: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(body=request.body.upper(), content_type="text/plain")

    with ScriptedUpstream.in_thread(echo) as upstream:
        assert ask(upstream, b"one")[2] == b"ONE"
        assert ask(upstream, b"two")[2] == b"TWO"


def test_connections_are_kept_and_counted() -> None:
    replies = [json_reply(1), json_reply(2), ScriptedReply(body=b"3", keep_alive=False)]
    with ScriptedUpstream.in_thread(replies) as upstream, connected(upstream) as connection:
        bodies: list[bytes] = []
        for _ in range(3):
            connection.request("GET", "/")
            bodies.append(connection.getresponse().read())
        assert bodies == [b"1", b"2", b"3"]
        assert [request.connection for request in upstream.requests] == [0, 0, 0]
        upstream.wait_until(lambda: upstream.open_connections == 0)
        assert upstream.connections == 1
        assert not any(request.was_abandoned for request in upstream.requests)


@pytest.mark.parametrize(
    ("cut_into", "count"), [(None, 1), (1, len(STREAM)), (7, 6), ("frames", 3)]
)
def test_a_stream_is_sent_in_the_pieces_asked_for(cut_into: int | None, count: int) -> None:
    reply = sse(STREAM, cut_into=cut_into)
    assert reply.chunks is not None
    assert len(reply.chunks) == count
    with ScriptedUpstream.in_thread([reply]) as upstream:
        status, headers, body = ask(upstream)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert body == STREAM


def test_pieces_may_have_pauses_between() -> None:
    start = time.monotonic()
    with ScriptedUpstream.in_thread([sse(STREAM, cut_into="frames", pause=0.02)]) as upstream:
        assert ask(upstream)[2] == STREAM
    assert time.monotonic() - start >= 0.06


def test_a_chunked_request_body_is_joined() -> None:
    with (
        ScriptedUpstream.in_thread([json_reply({})]) as upstream,
        connected(upstream) as connection,
    ):
        connection.request("POST", "/", iter([b"ab", b"c" * 70_000]), encode_chunked=True)
        assert connection.getresponse().status == 200
    assert upstream.requests[0].body == b"ab" + b"c" * 70_000


def test_trailers_and_repeated_headers_are_taken() -> None:
    with ScriptedUpstream.in_thread([json_reply({})]) as upstream:
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=60) as client:
            client.sendall(
                b"POST / HTTP/1.1\r\nA: 1\r\na:2\r\nTransfer-Encoding: chunked\r\n"
                b"Expect: 100-continue\r\n\r\n1;x=y\r\nz\r\n0\r\nTrailer: t\r\n\r\n"
            )
            assert client.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
            upstream.wait_until(lambda: upstream.requests)
        assert upstream.requests[0].headers["a"] == "1, 2"
        assert upstream.requests[0].body == b"z"


def test_a_cut_reply_has_no_end() -> None:
    with ScriptedUpstream.in_thread([sse(STREAM, cut=True)]) as upstream:
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(upstream)
        assert caught.value.partial == STREAM
        upstream.wait_until(lambda: upstream.requests[0].closed_at)
        assert upstream.requests[0].was_abandoned


def test_a_reset_is_a_reset() -> None:
    reply = ScriptedReply(framing="raw", chunks=[], cut="reset")
    with ScriptedUpstream.in_thread([reply]) as upstream, pytest.raises(ConnectionResetError):
        ask(upstream)


def test_a_promised_length_need_not_be_kept() -> None:
    reply = ScriptedReply(chunks=[b"abc"], framing="length", declared_length=10, cut=True)
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        ask(upstream)
    assert caught.value.partial == b"abc"


def test_a_reply_may_end_with_the_connection() -> None:
    with ScriptedUpstream.in_thread([ScriptedReply(body=b"all", framing="close")]) as upstream:
        _, headers, body = ask(upstream)
    assert body == b"all"
    assert "content-length" not in headers
    assert headers["connection"] == "close"


def test_a_raw_reply_spells_its_own_head() -> None:
    head = b"HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\n"
    reply = ScriptedReply(framing="raw", chunks=[head, b"ok"])
    with ScriptedUpstream.in_thread([reply]) as upstream:
        status, _, body = ask(upstream)
    assert (status, body) == (299, b"ok")


def test_a_request_beyond_the_script_is_a_failure_that_both_sides_see() -> None:
    with ScriptedUpstream.in_thread([]) as upstream:
        status, _, body = ask(upstream)
    assert status == 500
    assert b"the script has 0 replies and this is request 1: POST /v1/x" in body
    assert len(upstream.failures) == 1


def test_a_script_that_raises_is_recorded_and_the_connection_closed() -> None:
    def broken(request: ReceivedRequest) -> ScriptedReply:
        raise ZeroDivisionError("so it goes")

    with ScriptedUpstream.in_thread(broken) as upstream:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(upstream)
        upstream.wait_until(lambda: upstream.failures)
    assert "so it goes" in upstream.failures[0]


def test_bytes_that_are_no_http_are_recorded() -> None:
    with ScriptedUpstream.in_thread([]) as upstream:
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=60) as client:
            client.sendall(b"hello\r\n\r\n")
            assert client.recv(1) == b""
        upstream.wait_until(lambda: upstream.failures)


def test_a_client_that_leaves_is_noticed_while_the_reply_waits() -> None:
    async def run() -> None:
        never = asyncio.Event()
        reply = ScriptedReply(chunks=[b"first", Wait(never), b"last"])
        async with ScriptedUpstream([reply]) as upstream:
            reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"first")
            assert upstream.open_connections == 1
            writer.close()
            await upstream.until(lambda: upstream.open_connections == 0)
            [request] = upstream.requests
            assert request.was_abandoned
            assert request.closed_at is not None
            await writer.wait_closed()

    asyncio.run(run())


def test_a_reply_waits_for_events_of_both_kinds() -> None:
    gate = threading.Event()
    reply = ScriptedReply(hold=Wait(gate), chunks=[Pause(0.01), b"x"])
    with ScriptedUpstream.in_thread([reply]) as upstream, connected(upstream) as connection:
        connection.request("GET", "/")
        upstream.wait_until(lambda: upstream.requests)
        assert upstream.requests[0].sent == 0
        gate.set()
        assert connection.getresponse().read() == b"x"

    async def run() -> None:
        event = asyncio.Event()
        async with ScriptedUpstream([ScriptedReply(chunks=[Wait(event), b"y"])]) as upstream:
            reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            event.set()
            assert await reader.readuntil(b"0\r\n\r\n") == b"1\r\ny\r\n0\r\n\r\n"
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())


def test_a_client_that_does_not_read_stops_the_reply() -> None:
    megabyte = b"x" * (1024 * 1024)
    reply = ScriptedReply(chunks=[megabyte[: 16 * 1024]] * 1024)
    with ScriptedUpstream.in_thread([reply], send_buffer=16 * 1024) as upstream:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            client.connect(("127.0.0.1", upstream.port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            upstream.wait_until(lambda: upstream.requests and upstream.requests[0].sent)
            with pytest.raises(TimeoutError):
                upstream.wait_until(lambda: upstream.requests[0].sent > len(megabyte), 0.2)
        upstream.wait_until(lambda: upstream.open_connections == 0)
        assert upstream.requests[0].was_abandoned
        assert upstream.failures == []


def test_a_condition_that_never_holds_ends_in_a_timeout() -> None:
    async def run() -> None:
        async with ScriptedUpstream([]) as upstream:
            with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
                await upstream.until(lambda: upstream.requests, 0.01)

    asyncio.run(run())


def test_the_server_leaves_nothing_behind_when_it_stops_in_the_middle() -> None:
    async def run() -> None:
        upstream = ScriptedUpstream([ScriptedReply(hold=Pause(60))])
        async with upstream:
            _, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await upstream.until(lambda: upstream.requests)
        assert upstream.open_connections == 0
        assert len(asyncio.all_tasks()) == 1
        writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", upstream.port)

    asyncio.run(run())


# --- WebSockets ---------------------------------------------------------------------------------------------------


def test_messages_of_a_websocket_are_answered_by_the_script() -> None:
    replies = [
        sse(STREAM, cut_into=3),
        json_reply({"ok": True}),
        ScriptedReply(chunks=[b"1", b"2"]),
    ]
    with ScriptedUpstream.in_thread(replies, websocket=True) as upstream:
        with connect(f"ws://127.0.0.1:{upstream.port}/v1/x?a=b") as client:
            client.send('{"n":1}')
            assert [client.recv(timeout=60) for _ in range(2)] == ['{"a":1}', '{"b":2}']
            client.send(['{"n"', ":2}"])  # in fragments
            assert client.recv(timeout=60) == '{"ok":true}'
            assert client.ping().wait(60)
            client.send("{}")
            assert [client.recv(timeout=60) for _ in range(2)] == ["1", "2"]
        upstream.wait_until(lambda: upstream.open_connections == 0)
    assert [(one.method, one.path, one.query) for one in upstream.requests] == [
        (WEBSOCKET, "/v1/x", "a=b")
    ] * 3
    assert upstream.requests[1].json() == {"n": 2}
    assert [one.method for one in upstream.handshakes] == ["GET"]
    assert upstream.connections == 1
    assert upstream.failures == []


def test_a_websocket_is_closed_cut_or_refused_by_the_script() -> None:
    closed = ScriptedReply(body=b"bye", keep_alive=False)
    replies = [
        closed,
        ScriptedReply(chunks=[b"x"], cut=True),
        ScriptedReply(chunks=[], cut="reset"),
    ]
    answers = iter([None, None, None, json_reply({}, 426)])
    with ScriptedUpstream.in_thread(replies, websocket=lambda _: next(answers)) as upstream:
        codes: list[int | None] = []
        for wanted in ("bye", "x", None):
            with connect(f"ws://127.0.0.1:{upstream.port}/") as client:
                client.send("{}")
                if wanted is not None:
                    assert client.recv(timeout=60) == wanted
                with pytest.raises(ConnectionClosed):
                    client.recv(timeout=60)
                codes.append(client.close_code)
        assert codes == [1000, 1006, 1006]
        with (
            pytest.raises(InvalidStatus, match="426"),
            connect(f"ws://127.0.0.1:{upstream.port}/"),
        ):
            pass
    assert len(upstream.handshakes) == 4
    assert [one.was_abandoned for one in upstream.requests] == [False, True, True]


def test_without_websockets_a_handshake_is_an_ordinary_request() -> None:
    with (
        ScriptedUpstream.in_thread([json_reply({}, 405)]) as upstream,
        pytest.raises(InvalidStatus, match="405"),
        connect(f"ws://127.0.0.1:{upstream.port}/"),
    ):
        pass
    assert [one.method for one in upstream.requests] == ["GET"]
    assert upstream.handshakes == []
