"""What HTTP/1.1 asks of a connection to the gateway, byte by byte: requests in a row, at once, in pieces, and its end."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from gateway_harness import WAYS, RunningGateway, one_upstream, running_gateway, wait_until
from vendor_wire import Answer, Said, stream

from dragoman.server.settings import Settings
from dragoman.testing import ScriptedReply, ScriptedUpstream, Wait, json_reply

PATH = "/v1/chat/completions"
MODEL = "rehearsal"
OPENING = [
    frame + b"\n\n"
    for frame in stream("chat", Answer((Said(("Let me ", "look.")),))).split(b"\n\n")[:2]
]


def request(
    *fields: str,
    path: str = PATH,
    version: str = "1.1",
    is_stream: bool = False,
    content: str = "hi",
) -> bytes:
    body = json.dumps(
        {"model": MODEL, "stream": is_stream, "messages": [{"role": "user", "content": content}]}
    ).encode()
    lines = [f"POST {path} HTTP/{version}", "host: here", f"content-length: {len(body)}", *fields]
    return "\r\n".join((*lines, "", "")).encode() + body


class Wire:
    """A client's end of a connection: bytes out, whole answers in."""

    def __init__(self, gateway: RunningGateway) -> None:
        host, port = gateway.url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=5)
        self._kept = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def head(self) -> bytes:
        """The next head, in lower case."""
        while b"\r\n\r\n" not in self._kept:
            self._more()
        head, _, self._kept = self._kept.partition(b"\r\n\r\n")
        return head.lower()

    def answer(self) -> tuple[bytes, bytes]:
        """The next head, and the body that belongs to it."""
        head = self.head()
        if b"transfer-encoding: chunked" in head:
            return head, self._chunks()
        (length,) = (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        )
        while len(self._kept) < length:
            self._more()
        body, self._kept = self._kept[:length], self._kept[length:]
        return head, body

    def rest(self) -> bytes:
        """All that comes before the other side closes."""
        while data := self._socket.recv(65536):
            self._kept += data
        return self._kept

    def _chunks(self) -> bytes:
        found: list[bytes] = []
        while True:
            while b"\r\n" not in self._kept:
                self._more()
            size, _, self._kept = self._kept.partition(b"\r\n")
            length = int(size, 16)
            while len(self._kept) < length + 2:
                self._more()
            assert self._kept[length : length + 2] == b"\r\n"
            found.append(self._kept[:length])
            self._kept = self._kept[length + 2 :]
            if not length:
                return b"".join(found)

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, f"the connection was closed after {self._kept!r}"
        self._kept += data


@contextmanager
def wire(gateway: RunningGateway) -> Generator[Wire]:
    opened = Wire(gateway)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module", params=WAYS)
def gateway(request: pytest.FixtureRequest) -> Generator[RunningGateway]:
    with running_gateway(Settings(), request.param) as running:
        yield running


def text_of(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


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
        page = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"
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
    head = f"POST {PATH} HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n".encode()
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
        client.send(f"POST {PATH} HTTP/1.1\r\ncontent-length: {limit + 1}\r\n\r\n".encode())
        head, body = client.answer()
        assert head.startswith(b"http/1.1 413 ")
        assert b"content-length announces" in body


def test_idle_connection_is_closed_after_its_time_and_a_busy_one_is_not() -> None:
    go_on = threading.Event()
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*OPENING, Wait(go_on)])
    scripted = [json_reply({"error": {"message": "no"}}, 400), reply]
    with (
        ScriptedUpstream.in_thread(scripted) as upstream,
        running_gateway(one_upstream(upstream.url, "chat")) as running,
    ):
        running.server.config.timeout_keep_alive = 1
        with wire(running) as idle, wire(running) as busy:
            idle.send(request())
            assert idle.answer()[0].startswith(b"http/1.1 400 ")
            busy.send(request(is_stream=True))
            wait_until(lambda: len(upstream.requests) == 2)
            assert idle.rest() == b""
            assert len(running.app.gateway.exchanges) == 1
            go_on.set()
            busy.answer()
