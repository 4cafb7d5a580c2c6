"""What HTTP/1.1 asks of a connection to the gateway, byte by byte: requests in a row, at once, in pieces, and its end."""

import http.client
import json
import socket
import threading
from collections.abc import Generator

import h11
import httptools
import pytest

from dragoman.config.settings import ServerSettings, Settings
from dragoman.server.http.protocol import ReadState
from dragoman.testing import ScriptedReply, ScriptedUpstream, Wait, json_reply
from gateway_harness import WAYS, RunningGateway, one_upstream, running_gateway, wait_until
from vendor_wire import Answer, Said, stream
from wire_client import PATH, request, text_of, wire

OPENING = [
    frame + b"\n\n"
    for frame in stream("chat", Answer((Said(("Let me ", "look.")),))).split(b"\n\n")[:2]
]


@pytest.fixture(scope="module", params=WAYS)
def gateway(request: pytest.FixtureRequest) -> Generator[RunningGateway]:
    with running_gateway(Settings(), request.param) as running:
        yield running


def test_requests_follow_one_another_on_one_connection(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        for _ in range(3):
            client.send(request())
            head, body = client.answer()
            assert head.startswith(b"http/1.1 200 ok\r\n")
            assert b"connection: close" not in head
            assert text_of(body)


def test_streams_and_bodies_follow_one_another(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(request(is_stream=True))
        head, body = client.answer()
        assert b"content-type: text/event-stream; charset=utf-8" in head
        assert body.endswith(b"data: [DONE]\n\n")
        client.send(request())
        assert text_of(client.answer()[1])


def test_requests_sent_at_once_are_answered_in_order(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        ids = [f"ask-{number}" for number in range(5)]
        client.send(
            b"".join(request(f"x-request-id: {own}", is_stream=own[-1] == "2") for own in ids)
        )
        heads = [client.answer()[0] for _ in ids]
        assert [own for own, head in zip(ids, heads, strict=True) if own.encode() in head] == ids


def test_pages_and_doors_take_turns_on_one_connection(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        page = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        client.send(page + request() + page + request(path="/nowhere"))
        found = [client.answer() for _ in range(4)]
        assert [head.split(b" ")[1] for head, _ in found] == [b"200", b"200", b"200", b"404"]
        assert text_of(found[1][1])


def test_connection_that_is_to_be_closed_is_closed_after_the_answer(
    gateway: RunningGateway,
) -> None:
    for is_stream in (False, True):
        with wire(gateway) as client:
            client.send(request("connection: close", is_stream=is_stream))
            head, _ = client.answer()
            assert b"connection: close" in head
            assert client.rest() == b""


def test_client_of_http_1_0_is_answered_and_let_go(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(request(version="1.0"))
        head, body = client.answer()
        assert b"200 ok" in head
        assert text_of(body)
        assert client.rest() == b""


def test_client_that_waits_to_be_asked_for_its_body_is_asked(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        head, _, body = request("expect: 100-continue").partition(b"\r\n\r\n")
        client.send(head + b"\r\n\r\n")
        assert client.head() == b"http/1.1 100 continue"
        client.send(body)
        assert text_of(client.answer()[1])


def test_request_may_come_in_any_pieces(gateway: RunningGateway) -> None:
    whole = request(content="word " * 40_000)
    with wire(gateway) as client:
        for size in (20_011, 65_536, len(whole)):
            for start in range(0, len(whole), size):
                client.send(whole[start : start + size])
            assert text_of(client.answer()[1])
        head, _, body = request().partition(b"\r\n\r\n")
        client.send(head[:30])
        client.send(head[30:] + b"\r\n\r\n")
        for byte in body:
            client.send(bytes((byte,)))
        assert text_of(client.answer()[1])


def test_chunked_request_is_read(gateway: RunningGateway) -> None:
    body = request().partition(b"\r\n\r\n")[2]
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    halves = (body[:20], body[20:])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(half), half) for half in halves)
    with wire(gateway) as client:
        client.send(head + chunks + b"0\r\nx-trailer: yes\r\n\r\n" + request())
        assert text_of(client.answer()[1])
        assert text_of(client.answer()[1])


@pytest.mark.parametrize("path", [f"{PATH}?beta=true", f"{PATH}/", "/chat/completions"])
def test_other_spellings_of_a_door_lead_to_it(gateway: RunningGateway, path: str) -> None:
    with wire(gateway) as client:
        client.send(request(path=path))
        assert text_of(client.answer()[1])


def test_request_id_cannot_smuggle_a_header(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(request("x-request-id: a\rb"))
        assert client.rest().startswith(b"HTTP/1.1 400 ")


def test_answer_that_comes_before_the_body_was_sent_ends_the_exchange_only() -> None:
    settings = Settings()
    with running_gateway(settings) as running, wire(running) as client:
        limit = running.app.gateway.settings.server.max_body_bytes
        client.send(
            f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {limit + 1}\r\n\r\n".encode()
        )
        head, body = client.answer()
        assert head.startswith(b"http/1.1 413 ")
        assert b"content-length announces" in body


def test_idle_connection_is_closed_after_its_time_and_a_busy_one_is_not() -> None:
    go_on = threading.Event()
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*OPENING, Wait(go_on)])
    scripted = [json_reply({"error": {"message": "no"}}, 400), reply]
    with (
        ScriptedUpstream.in_thread(scripted) as upstream,
        running_gateway(
            one_upstream(
                upstream.url, "chat", server=ServerSettings(idle_timeout=3.0, shutdown_grace=0.3)
            )
        ) as running,
        wire(running) as idle,
        wire(running) as busy,
    ):
        idle.send(request())
        assert idle.answer()[0].startswith(b"http/1.1 400 ")
        busy.send(request(is_stream=True))
        wait_until(lambda: len(upstream.requests) == 2)
        assert idle.rest() == b""
        assert len(running.app.gateway.exchanges) == 1
        go_on.set()
        busy.answer()


# --- trailers, upgrades, Host -----------------------------------------------------------------------------------------


def test_trailers_are_never_headers() -> None:
    body = request().partition(b"\r\n\r\n")[2]
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    keys = ("a-key-of-some-length",)
    trailer = f"authorization: Bearer {keys[0]}\r\nexpect: 100-continue\r\n\r\n".encode()
    server = ServerSettings(api_keys=keys, shutdown_grace=0.3)
    for way in WAYS:
        with running_gateway(Settings(server=server), way) as running, wire(running) as client:
            chunked = head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailer
            client.send(chunked + request())
            for _ in range(2):
                assert client.answer()[0].startswith(b"http/1.1 401 ")


@pytest.mark.parametrize("is_chunked", [False, True], ids=["sized", "chunked"])
@pytest.mark.parametrize("name", ["h2c", "websocket", "TLS/1.0"])
def test_upgrade_is_ignored_and_the_body_is_read(
    gateway: RunningGateway, name: str, is_chunked: bool
) -> None:
    """Java's HttpClient and `curl --http2` ask for h2c with each first request."""
    fields = (
        "connection: Upgrade, HTTP2-Settings, keep-alive",
        f"upgrade: {name}",
        "http2-settings: AAMAAABkAARAAAAAAAIAAAAA",
    )
    whole = request(*fields)
    if is_chunked:
        body = whole.partition(b"\r\n\r\n")[2]
        lines = (f"POST {PATH} HTTP/1.1", "host: localhost", "transfer-encoding: chunked", *fields)
        head = "\r\n".join((*lines, "", "")).encode()
        whole = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with wire(gateway) as client:
        for step in (len(whole), 7):
            for start in range(0, len(whole), step):
                client.send(whole[start : start + step])
            head, body = client.answer()
            assert head.startswith(b"http/1.1 200 ")
            assert b"connection: close" not in head
            assert text_of(body)
        client.send(whole * 3 + request())
        for _ in range(4):
            assert text_of(client.answer()[1])


@pytest.mark.parametrize("field", ["x-padding", "upgrade"])
def test_large_head_that_asks_for_an_upgrade_is_refused_in_however_many_pieces_it_comes(
    gateway: RunningGateway, field: str
) -> None:
    """The head is parsed a second time, without the headers that ask for the upgrade."""
    padding = ", ".join(["h2c"] * 14_000)
    fields = ("connection: Upgrade", "upgrade: h2c", f"{field}: {padding}")
    whole = request(*fields)
    connections = gateway.server.server_state.connections
    for at in (len(whole), 60_000):
        with wire(gateway) as client:
            client.send(whole[:at])
            if at < len(whole):
                wait_until(lambda: any(is_reading_head(each) for each in tuple(connections)))
                client.send(whole[at:])
            assert client.answer()[0].startswith(b"http/1.1 431 ")


def is_reading_head(connection: object) -> bool:
    return getattr(connection, "_reading", None) is ReadState.HEAD


def test_websocket_is_answered_426_and_the_next_request_is_served(gateway: RunningGateway) -> None:
    fields = "upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n"
    with wire(gateway) as client:
        asked = f"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n".encode()
        client.send(asked + request())
        assert client.answer()[0].startswith(b"http/1.1 426 ")
        assert text_of(client.answer()[1])


@pytest.mark.parametrize("path", [PATH, "/healthz"])
@pytest.mark.parametrize("hosts", [(), ("localhost", "localhost"), ("localhost", "other")])
def test_request_without_exactly_one_host_is_refused(
    gateway: RunningGateway, hosts: tuple[str, ...], path: str
) -> None:
    fields = [f"host: {host}" for host in hosts]
    with wire(gateway) as client:
        client.send("\r\n".join((f"GET {path} HTTP/1.1", *fields, "", "")).encode())
        head, body = client.answer()
        assert head.startswith(b"http/1.1 400 ")
        assert b"Host" in body
        assert client.rest() == b""


def test_http_1_0_needs_no_host(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.answer()[0].startswith(b"http/1.1 200 ")


# --- what is malformed, beside what is answered -----------------------------------------------------------------------

GARBAGE = (
    b"\x00\x01 this is not HTTP\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\n\r\n",  # no Host
    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n",
    b"GET http://localhost:99999/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
)


@pytest.mark.parametrize("garbage", GARBAGE, ids=["bytes", "head", "chunk", "port"])
@pytest.mark.parametrize("way", WAYS)
def test_malformed_request_behind_a_stream_is_never_answered_inside_it(
    way: str, garbage: bytes
) -> None:
    go_on = threading.Event()
    rest = stream("chat", Answer((Said(("Let me ", "look.")),))).split(b"\n\n", 2)[2]
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*OPENING, Wait(go_on), rest])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as running,
        wire(running) as client,
    ):
        client.send(request(is_stream=True))
        head = client.head()
        assert head.startswith(b"http/1.1 200 ")
        client.send(garbage)
        client.send(b"more of it" * 1000)
        go_on.set()
        result = client.chunks()
        assert result.endswith(b"data: [DONE]\n\n")
        assert b"400" not in result
        assert client.rest() == b""


@pytest.mark.parametrize("garbage", GARBAGE, ids=["bytes", "head", "chunk", "port"])
def test_malformed_request_is_answered_once_and_the_connection_closed(
    gateway: RunningGateway, garbage: bytes
) -> None:
    with wire(gateway) as client:
        client.send(garbage)
        head, body = client.answer()
        assert head.startswith(b"http/1.1 400 ")
        assert b"connection: close" in head
        assert json.loads(body)["error"]["message"]
        assert client.rest() == b""


def test_a_target_that_cannot_be_read_is_answered_after_another_answer(
    gateway: RunningGateway,
) -> None:
    with wire(gateway) as client:
        client.send(request())
        assert client.answer()[0].startswith(b"http/1.1 200 ")
        client.send(b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"a" * 70_000))
        assert client.answer()[0].startswith((b"http/1.1 400 ", b"http/1.1 431 "))
        assert client.rest() == b""


def test_requests_before_a_malformed_one_are_answered(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(request(is_stream=True) + request() + GARBAGE[0])
        assert client.answer()[1].endswith(b"data: [DONE]\n\n")
        assert text_of(client.answer()[1])
        assert client.rest() == b""


# --- a client that half-closes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_client_that_half_closes_gets_its_answer(
    gateway: RunningGateway, version: str, is_stream: bool
) -> None:
    with wire(gateway) as client:
        client.send(request(version=version, is_stream=is_stream))
        client.end()
        sent = client.rest()
        assert sent.count(b"HTTP/1.1 200 OK") == 1
        assert b"data: [DONE]" in sent if is_stream else b'"finish_reason":"stop"' in sent


def test_all_requests_before_a_half_close_are_answered(gateway: RunningGateway) -> None:
    with wire(gateway) as client:
        client.send(request() + request(is_stream=True) + request())
        client.end()
        sent = client.rest()
        assert sent.count(b"HTTP/1.1 200 OK") == 3
        assert sent.count(b"data: [DONE]") == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
def test_client_that_half_closes_may_wait_for_a_slow_upstream(way: str, is_stream: bool) -> None:
    go_on = threading.Event()
    whole = stream("chat", Answer((Said(("Let me ", "look.")),)))
    reply = ScriptedReply(content_type="text/event-stream", chunks=[Wait(go_on), whole])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as running,
        wire(running) as client,
    ):
        client.send(request(is_stream=is_stream))
        client.end()
        wait_until(lambda: len(upstream.requests) == 1)
        assert client.head() == b"http/1.1 100 continue"  # to see whether the client is there
        go_on.set()
        head, body = client.answer()
        assert head.startswith(b"http/1.1 200 ")
        assert b"look." in body
        assert client.rest() == b""
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fields", [(), ("expect: 100-continue",)], ids=["plain", "expect"])
def test_client_that_half_closes_in_the_middle_of_a_stream_gets_the_rest(
    way: str, fields: tuple[str, ...]
) -> None:
    go_on = threading.Event()
    rest = stream("chat", Answer((Said(("Let me ", "look.")),))).split(b"\n\n", 2)[2]
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*OPENING, Wait(go_on), rest])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as running,
        wire(running) as client,
    ):
        client.send(request(*fields, is_stream=True))
        head = client.head()
        if head == b"http/1.1 100 continue":
            head = client.head()
        assert head.startswith(b"http/1.1 200 ")
        assert client.until(b"Let me")
        client.end()
        assert client.until(b"\r\n0")  # the beginning of the next chunk's size
        go_on.set()
        body = client.chunks()
        assert b"look." in body
        assert body.endswith(b"data: [DONE]\n\n")
        assert client.rest() == b""


@pytest.mark.parametrize("way", WAYS)
def test_client_of_http_1_0_that_half_closes_gets_no_interim_answer(way: str) -> None:
    go_on = threading.Event()
    whole = stream("chat", Answer((Said(("Let me ", "look.")),)))
    reply = ScriptedReply(content_type="text/event-stream", chunks=[Wait(go_on), whole])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as running,
        wire(running) as client,
    ):
        client.send(request(version="1.0"))
        client.end()
        wait_until(lambda: len(upstream.requests) == 1)
        go_on.set()
        assert client.rest().startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("way", WAYS)
def test_client_that_leaves_in_the_middle_of_a_stream_is_noticed(way: str) -> None:
    never = threading.Event()
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*OPENING, Wait(never)])
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat"), way) as running,
    ):
        with wire(running) as client:
            client.send(request("expect: 100-continue", is_stream=True))
            assert client.until(b"Let me")
        wait_until(lambda: upstream.requests[0].closed_at is not None)
        wait_until(lambda: not running.app.gateway.exchanges)
        never.set()


def test_http_libraries_read_a_chunk_whose_size_begins_with_a_zero() -> None:
    """What the gateway writes to see whether a half-closed client is there, as the libraries under the SDKs read it."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    cut = head + b"5\r\nLet m\r\n0"  # as it stands until the next chunk comes
    pieces = (cut, b"7\r\ne look.\r\n", b"00\r\n\r\n")
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "localhost")]))
    reader.send(h11.EndOfMessage())
    body = b""
    for piece in pieces:
        reader.receive_data(piece)
        while (event := reader.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
    assert body == b"Let me look."

    class Heard:
        def __init__(self) -> None:
            self.body = b""
            self.is_complete = False

        def on_body(self, body: bytes) -> None:
            self.body += body

        def on_message_complete(self) -> None:
            self.is_complete = True

    heard = Heard()
    parser = httptools.HttpResponseParser(heard)
    for piece in pieces:
        assert not heard.is_complete
        parser.feed_data(piece)
    assert (heard.body, heard.is_complete) == (b"Let me look.", True)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(pieces))
        answer = http.client.HTTPResponse(theirs)
        answer.begin()
        assert answer.read() == b"Let me look."


@pytest.mark.parametrize("way", WAYS)
def test_client_that_half_closes_and_leaves_later_is_noticed(way: str) -> None:
    never = threading.Event()
    reply = ScriptedReply(body=b"{}", hold=Wait(never))
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.5)
    with (
        ScriptedUpstream.in_thread([reply]) as upstream,
        running_gateway(one_upstream(upstream.url, "chat", server=server), way) as running,
    ):
        with wire(running) as client:
            client.send(request())
            client.end()
            assert client.head() == b"http/1.1 100 continue"
            wait_until(lambda: len(upstream.requests) == 1)
        wait_until(lambda: upstream.requests[0].closed_at is not None)
        wait_until(lambda: not running.app.gateway.exchanges)
        never.set()


def test_client_that_half_closes_in_the_middle_of_its_request_is_let_go(
    gateway: RunningGateway,
) -> None:
    whole = request()
    for size in (10, len(whole) - 5):
        with wire(gateway) as client:
            client.send(whole[:size])
            client.end()
            assert client.rest() == b""
    wait_until(lambda: not gateway.app.gateway.exchanges)
