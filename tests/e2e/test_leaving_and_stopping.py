"""Clients that leave, clients that do not read, upstreams that go silent or are cut, and a gateway that stops."""

import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest
from msgspec import structs

from dragoman.config.settings import RetrySettings, ServerSettings, Settings
from dragoman.server.http import protocol
from dragoman.testing import Pause, ReceivedRequest, ScriptedReply, ScriptedUpstream, Wait, sse
from gateway_harness import (
    DIALECTS,
    WAYS,
    RunningGateway,
    connection,
    one_upstream,
    running_gateway,
    wait_until,
)
from vendor_wire import Answer, Said, Tool, stream

pytestmark = pytest.mark.parametrize("way", WAYS)

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
ANSWER = Answer(
    (Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":', '"Paris"}')))
)
LEAVING = 0.1  # seconds in which the upstream must be let go
ATTEMPTS = 20  # of which one must be in time: a busy machine takes the processor away now and then
FAILURES = {
    "chat": (b'"error"', b"[DONE]"),
    "responses": (b"event: response.failed", b"response.completed"),
    "messages": (b"event: error", b"message_stop"),
}
ENDS = {"chat": b"[DONE]", "responses": b"response.completed", "messages": b"message_stop"}


def ask(door: str, *, streamed: bool = True) -> bytes:
    body: dict[str, object] = {"model": "m", "stream": streamed}
    turn = [{"role": "user", "content": "Weather in Paris?"}]
    if door == "responses":
        body["input"] = turn
    else:
        body |= {"messages": turn, "max_tokens": 100}
    return json.dumps(body).encode()


def frames(dialect: str, count: int) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream(dialect, ANSWER).split(b"\n\n")[:count]]


def assert_let_go(upstream: ScriptedUpstream, leave: Callable[[], float]) -> None:
    """A client that leaves makes the gateway let go of the upstream in time. `leave` returns when it left."""
    taken: list[float] = []
    while not taken or (taken[-1] >= LEAVING and len(taken) < ATTEMPTS):
        left = leave()
        wait_until(lambda: upstream.requests[-1].closed_at is not None)
        taken.append((upstream.requests[-1].closed_at or 0.0) - left)
    assert taken[-1] < LEAVING, taken


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
def test_client_that_leaves_mid_stream_closes_the_upstream(
    door: str, dialect: str, way: str
) -> None:
    never = threading.Event()
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[*frames(dialect, 4), Wait(never)]
    )
    with (
        ScriptedUpstream.in_thread([reply] * ATTEMPTS) as upstream,
        running_gateway(one_upstream(upstream.url, dialect), way) as gateway,
    ):

        def leave() -> float:
            with connection(gateway) as client:
                client.request("POST", PATHS[door], ask(door))
                assert client.getresponse().read1()
                left = time.monotonic()
                assert client.sock is not None
                client.sock.close()
            return left

        assert_let_go(upstream, leave)
        wait_until(lambda: not gateway.app.gateway.exchanges)
        never.set()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("door", DIALECTS)
def test_client_that_leaves_before_the_first_byte_closes_the_upstream(
    door: str, streamed: bool, way: str
) -> None:
    never = threading.Event()
    reply = ScriptedReply(body=b"{}", hold=Wait(never))
    with (
        ScriptedUpstream.in_thread([reply] * ATTEMPTS) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as gateway,
    ):

        def leave() -> float:
            seen = len(upstream.requests)
            with connection(gateway) as client:
                client.request("POST", PATHS[door], ask(door, streamed=streamed))
                wait_until(lambda: len(upstream.requests) > seen)
                return time.monotonic()

        assert_let_go(upstream, leave)
        wait_until(lambda: not gateway.app.gateway.exchanges)
        never.set()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
def test_upstream_that_is_cut_mid_stream_becomes_a_failure_of_the_door(
    door: str, dialect: str, way: str
) -> None:
    reply = ScriptedReply(content_type="text/event-stream", chunks=frames(dialect, 6), cut=True)
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, dialect), way) as gateway,
        connection(gateway) as client,
    ):
        client.request("POST", PATHS[door], ask(door))
        received = client.getresponse().read()
        wanted, forbidden = FAILURES[door]
        assert wanted in received
        assert forbidden not in received


@pytest.mark.parametrize("door", DIALECTS)
def test_upstream_that_goes_silent_becomes_a_failure_after_the_idle_time(
    door: str, way: str
) -> None:
    never = threading.Event()
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[*frames("chat", 3), Wait(never)]
    )
    with ScriptedUpstream.in_thread([reply]) as upstream:
        settings = one_upstream(upstream.url, "chat")
        silent = structs.replace(settings.upstreams["scripted"], idle_timeout=0.3)
        settings = structs.replace(settings, upstreams={"scripted": silent})
        with running_gateway(settings, way) as gateway, connection(gateway) as client:
            client.request("POST", PATHS[door], ask(door))
            received = client.getresponse().read()
            assert FAILURES[door][0] in received
            assert FAILURES[door][1] not in received
        never.set()


def test_client_that_does_not_read_stops_the_upstream_and_memory_stays_bounded(way: str) -> None:
    piece = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    chunk = piece % (b"x" * 16_000)
    count = 4_000  # 64 MB
    opening = frames("chat", 1)
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*opening, *[chunk] * count])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as gateway,
    ):
        address = gateway.url.removeprefix("http://").split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.connect((address[0], int(address[1])))
        body = ask("chat")
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        assert slow.recv(1)
        sent = _settled(upstream)
        # Sockets' buffers in the kernel (some megabytes with autotuning) and ours (kilobytes); not the 64 MB.
        assert sent < 20_000_000
        gc.collect()
        slow.close()
        wait_until(lambda: not gateway.app.gateway.exchanges)


def _read_to(response: http.client.HTTPResponse, wanted: bytes) -> bytes:
    received = b""
    deadline = time.monotonic() + 60.0
    while wanted not in received:
        assert time.monotonic() < deadline, received
        received += response.read1()
    return received


def _settled(upstream: ScriptedUpstream) -> int:
    """What the upstream could send, once that no longer grows."""
    wait_until(lambda: len(upstream.requests) == 1)
    before = -1
    while (now := upstream.requests[0].sent) != before:
        before = now
        time.sleep(0.2)
    return now


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("door", DIALECTS)
def test_gateway_that_stops_lets_a_stream_finish_within_the_grace(
    door: str, dialect: str, way: str
) -> None:
    rest = threading.Event()
    whole = stream(dialect, ANSWER)
    at = whole.index(b"Let me ")
    at = whole.index(b"\n\n", at) + 2
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
    )
    with ScriptedUpstream.in_thread([reply]) as upstream:
        settings = _with_server(one_upstream(upstream.url, dialect), shutdown_grace=60.0)
        with running_gateway(settings, way) as gateway, connection(gateway) as client:
            client.request("POST", PATHS[door], ask(door))
            response = client.getresponse()
            gateway.server.should_exit = True
            wait_until(lambda: gateway.app.gateway.is_stopping)
            rest.set()
            received = response.read()
            assert b"get_weather" in received
            assert ENDS[door] in received


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat/comp"])
def test_gateway_that_stops_answers_the_first_request_of_a_client_that_has_connected(
    begun: bytes, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another process takes over the address, such a client would see its connection cut for no reason."""
    reply = ScriptedReply(content_type="text/event-stream", body=stream("chat", ANSWER))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(ask("chat")) + ask("chat")
    monkeypatch.setattr(protocol, "_FIRST_REQUEST", 60.0)
    with ExitStack() as opened:
        upstream = opened.enter_context(ScriptedUpstream.in_thread([reply]))
        patient = _with_server(one_upstream(upstream.url, "chat"), shutdown_grace=60.0)
        gateway = opened.enter_context(running_gateway(patient, way))
        address = ("127.0.0.1", int(gateway.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(begun)
            wait_until(lambda: len(gateway.server.server_state.connections) == 1)
            gateway.server.should_exit = True
            wait_until(lambda: gateway.app.gateway.is_stopping)
            client.sendall(request.removeprefix(begun))
            received = b""
            while data := client.recv(65536):  # until the gateway closes it
                received += data
        assert b"connection: close" in received.lower()
        assert ENDS["chat"] in received


def test_gateway_that_stops_does_not_wait_long_for_a_client_that_sends_nothing(way: str) -> None:
    with running_gateway(Settings(), way) as gateway:
        address = ("127.0.0.1", int(gateway.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=60) as client:
            wait_until(lambda: len(gateway.server.server_state.connections) == 1)
            gateway.server.should_exit = True
            assert client.recv(1) == b""


@pytest.mark.parametrize("door", DIALECTS)
def test_gateway_that_stops_fails_what_is_open_after_the_grace(door: str, way: str) -> None:
    never = threading.Event()
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[*frames("chat", 3), Wait(never)]
    )
    with ScriptedUpstream.in_thread([reply]) as upstream:
        with (
            running_gateway(one_upstream(upstream.url, "chat"), way) as gateway,
            connection(gateway) as client,
        ):
            client.request("POST", PATHS[door], ask(door))
            response = client.getresponse()
            gateway.server.should_exit = True
            received = response.read()
            wanted, forbidden = FAILURES[door]
            assert wanted in received
            assert b"shutting down" in received
            assert forbidden not in received
            gateway.stop()
            assert not gateway.app.gateway.exchanges
        never.set()


@pytest.mark.parametrize("door", DIALECTS)
def test_silence_is_filled_with_what_the_dialect_allows(door: str, way: str) -> None:
    rest = threading.Event()
    whole = stream("chat", ANSWER)
    at = whole.index(b"\n\n") + 2
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
    )
    keep_alive = {
        "chat": b": ping\n\n",
        "responses": b'"type":"keepalive"',
        "messages": b"event: ping",
    }[door]
    with ScriptedUpstream.in_thread([reply]) as upstream:
        settings = _with_server(one_upstream(upstream.url, "chat"), keep_alive_interval=0.1)
        with running_gateway(settings, way) as gateway, connection(gateway) as client:
            client.request("POST", PATHS[door], ask(door))
            response = client.getresponse()
            received = _read_to(response, keep_alive)
            rest.set()
            received += response.read()
            assert b"get_weather" in received


@contextmanager
def _commented(
    door: str, way: str
) -> Generator[tuple[RunningGateway, http.client.HTTPResponse, threading.Event]]:
    """An answer of which the client has got comments only, and what lets the upstream send the rest."""
    rest = threading.Event()
    reply = ScriptedReply(
        content_type="text/event-stream", chunks=[Wait(rest), stream("chat", ANSWER)]
    )
    with ScriptedUpstream.in_thread([reply]) as upstream:
        settings = _with_server(one_upstream(upstream.url, "chat"), keep_alive_interval=0.1)
        with running_gateway(settings, way) as gateway, connection(gateway) as client:
            client.request("POST", PATHS[door], ask(door))
            response = client.getresponse()
            assert response.read1().startswith(b":")
            yield gateway, response, rest
        rest.set()


def test_silence_before_the_first_byte_is_filled_with_comments_only(way: str) -> None:
    with _commented("responses", way) as (_, response, rest):
        rest.set()
        received = response.read()
        events = [line for line in received.split(b"\n") if line.startswith(b"event:")]
        assert events[0] == b"event: response.created"


@pytest.mark.parametrize("door", DIALECTS)
def test_stopping_gateway_sends_a_failure_where_only_comments_were_sent(
    door: str, way: str
) -> None:
    with _commented(door, way) as (gateway, response, _):
        gateway.server.should_exit = True
        received = response.read()
        wanted, forbidden = FAILURES[door]
        assert wanted in received
        assert forbidden not in received


@pytest.mark.parametrize("door", DIALECTS)
def test_no_comment_between_two_attempts_hinders_a_third(door: str, way: str) -> None:
    rest, other_rest = threading.Event(), threading.Event()

    def script(request: ReceivedRequest) -> ScriptedReply:
        number = sum(each.body == request.body for each in upstream.requests)
        if b"Paris" not in request.body:
            return ScriptedReply(content_type="text/event-stream", chunks=[Wait(other_rest)])
        if number == 1:
            return ScriptedReply(content_type="text/event-stream", chunks=[], cut=True)
        if number == 2:
            return ScriptedReply(status=503, body=b"{}", hold=Wait(rest))
        return sse(stream("chat", ANSWER))

    with ScriptedUpstream.in_thread(script) as upstream:
        settings = one_upstream(
            upstream.url, "chat", retry=RetrySettings(base_delay=0.005, max_delay=0.01)
        )
        settings = _with_server(settings, keep_alive_interval=0.1)
        with (
            running_gateway(settings, way) as gateway,
            connection(gateway) as client,
            connection(gateway) as other,
        ):
            client.request("POST", PATHS[door], ask(door))
            wait_until(lambda: len(upstream.requests) == 2)
            # Its comments show that those of the first would have been sent too.
            other.request("POST", PATHS[door], ask(door).replace(b"Paris", b"Oslo"))
            assert _read_to(other.getresponse(), b": keep-alive\n\n: keep-alive\n\n")
            rest.set()
            assert b"get_weather" in client.getresponse().read()
            other_rest.set()


def test_every_event_is_forwarded_when_it_comes_and_not_later(way: str) -> None:
    gates = [threading.Event() for _ in range(7)]
    pieces = [frame + b"\n\n" for frame in stream("chat", ANSWER).split(b"\n\n") if frame]
    chunks: list[bytes | Wait | Pause] = []
    for gate, piece in zip(gates, pieces, strict=False):
        chunks += [Wait(gate), piece]
    chunks += pieces[len(gates) :]
    reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as gateway,
        connection(gateway) as client,
    ):
        client.request("POST", PATHS["messages"], ask("messages"))
        gates[0].set()
        gates[1].set()
        response = client.getresponse()
        assert b"message_start" in _read_to(response, b"Let me ")
        # The request declares no tools, so the call's name may still grow: it is emitted with the first argument.
        gates[3].set()
        for gate, piece in ((gates[2], b"look."), (gates[4], b"city"), (gates[5], b"Paris")):
            gate.set()
            _read_to(response, piece)
        for gate in gates:
            gate.set()
        assert b"message_stop" in response.read()


def test_whole_answers_reach_clients_after_many_exchanges_and_nothing_is_left_open(
    way: str,
) -> None:
    with (
        ScriptedUpstream.in_thread(lambda _: sse(stream("chat", ANSWER))) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as gateway,
        connection(gateway) as client,
    ):
        for _ in range(20):
            client.request("POST", PATHS["messages"], ask("messages"))
            assert b"message_stop" in client.getresponse().read()
        wait_until(lambda: not gateway.app.gateway.exchanges)
        # Each was read to its end and its connection given back; a quick client may ask again just before that.
        assert len({request.connection for request in upstream.requests}) <= 3


def _with_server(settings: Settings, **changes: object) -> Settings:
    server: ServerSettings = structs.replace(settings.server, **changes)
    return structs.replace(settings, server=server)
