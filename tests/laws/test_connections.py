"""A connection to the gateway, whatever is sent on it and however it is cut into reads.

Each well-formed request reaches the server, with its own headers and its whole body, in order; each gets one answer, and no
answer contains bytes of another. A malformed request ends the connection after the pending answers.
"""

import asyncio
import os
import random
import re
from collections.abc import Callable

import pytest
from msgspec import Struct
from uvicorn.server import ServerState

from dragoman.config.settings import ServerSettings, Settings
from dragoman.gateway.answer import settle
from dragoman.server.app import create_app
from dragoman.server.http.connection import ClientConnection
from dragoman.server.http.protocol import GatewayProtocol
from dragoman.server.run import make_server

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
PATH = b"/v1/chat/completions"
LIMITS = ServerSettings(max_header_bytes=4000, max_body_bytes=100_000)
GARBAGE = (
    b"\x00",
    b"POST / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nz",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
)


class Transport(asyncio.Transport):
    """Keeps what is written, and honours what is paused."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.is_paused = self.is_closed = self.is_ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended, "written after the end"
        self.written += data

    def write_eof(self) -> None:
        self.is_ended = True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Sent(Struct, frozen=True):
    mark: bytes
    body: bytes
    wire: bytes
    is_door: bool = True


def make_request(chance: random.Random, number: int) -> Sent:
    mark = b"mark-%d" % number
    body = chance.randbytes(chance.choice((0, 1, 5, 300, 3000)))
    fields = [b"host: localhost", b"x-mark: " + mark]
    if chance.random() < 0.3:
        fields += [b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMA"]
    if chance.random() < 0.15:
        lines = (b"GET /healthz HTTP/1.1", *fields, b"", b"")
        return Sent(mark, b"", b"\r\n".join(lines), is_door=False)
    empty = b"\r\n" * chance.choice((0, 0, 0, 2))
    chance.shuffle(fields)
    line = empty + b"POST %b HTTP/1.1" % (PATH + chance.choice((b"", b"?a=b", b"/")))
    if chance.random() < 0.5:
        fields.append(b"content-length: %d" % len(body))
        return Sent(mark, body, b"\r\n".join((line, *fields, b"", b"")) + body)
    fields.append(b"transfer-encoding: chunked")
    chunks = b""
    left = body
    while left:
        size = chance.randint(1, len(left))
        extension = chance.choice((b"", b";name=value"))
        chunks += b"%x%b\r\n%b\r\n" % (size, extension, left[:size])
        left = left[size:]
    trailers = chance.choice((b"", b"x-mark: other\r\nauthorization: Bearer x\r\n"))
    return Sent(
        mark, body, b"\r\n".join((line, *fields, b"", b"")) + chunks + b"0\r\n" + trailers + b"\r\n"
    )


class Connection:
    """One connection to a gateway whose doors only echo their requests."""

    def __init__(self, chance: random.Random) -> None:
        self.heard: list[tuple[bytes, bytes]] = []
        self.transport = Transport()
        self._chance = chance
        app = create_app(Settings(server=LIMITS))
        self.gateway = app.gateway
        app.directly = dict.fromkeys((PATH, PATH + b"/"), self._serve)
        config = make_server(app, app.gateway.settings).config
        config.load()
        self.state = ServerState()
        self.protocol = GatewayProtocol(config, self.state, {})

    async def _serve(self, line: ClientConnection) -> None:
        headers = dict(line.take_headers())
        assert b"authorization" not in headers
        body = line.take_body()
        while body is None:
            pieces: list[bytes] = []
            is_more = True
            while is_more:
                message = await line.receive()
                if message["type"] == "http.disconnect":
                    return
                pieces.append(message["body"])
                is_more = message["more_body"]
            body = b"".join(pieces)
        mark = headers[b"x-mark"]
        self.heard.append((mark, body))
        for _ in range(self._chance.randrange(3)):
            await asyncio.sleep(0)
        if self._chance.random() < 0.5:
            await settle(line.respond(200, [(b"x-mark", mark)], b"whole " + mark))
            return
        await settle(line.begin([(b"x-mark", mark)], b"part "))
        await asyncio.sleep(0)
        await settle(line.write(b"of "))
        await asyncio.sleep(0)
        await settle(line.finish(mark))

    async def send(self, wire: bytes) -> None:
        """In reads of any size, when the connection is read from."""
        self.protocol.connection_made(self.transport)
        largest = self._chance.choice((1, 7, 100, 5000, 100_000))
        while wire and not self.transport.is_closed:
            while self.transport.is_paused:  # noqa: ASYNC110 -- what is waited for tells nobody
                await asyncio.sleep(0)
            size = self._chance.randint(1, largest)
            self.protocol.data_received(wire[:size])
            wire = wire[size:]
            if self._chance.random() < 0.3:
                await asyncio.sleep(0)

    async def settle(self, is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_done():  # noqa: ASYNC110 -- what is waited for tells nobody
                await asyncio.sleep(0)

    async def close(self) -> None:
        self.protocol.connection_lost(None)
        await asyncio.gather(*self.state.tasks)
        await self.gateway.close()


def answers_in(wire: bytes) -> list[tuple[int, bytes]]:
    """The answers, which must be whole and have nothing between them."""
    found: list[tuple[int, bytes]] = []
    while wire:
        head, end, wire = wire.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert end, head
        assert status, head
        if b"transfer-encoding: chunked" in head:
            body = b""
            while True:
                size, _, wire = wire.partition(b"\r\n")
                length = int(size, 16)
                body += wire[:length]
                assert wire[length : length + 2] == b"\r\n"
                wire = wire[length + 2 :]
                if not length:
                    break
        else:
            measured = re.search(rb"content-length: (\d+)", head)
            assert measured
            body, wire = wire[: int(measured[1])], wire[int(measured[1]) :]
        found.append((int(status[1]), body))
    return found


@pytest.mark.parametrize("seed", range(60 * ROUNDS))
def test_requests_are_served_in_order_however_they_are_cut(seed: int) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        sent = [make_request(chance, number) for number in range(chance.randint(1, 12))]
        connection = Connection(chance)
        await connection.send(b"".join(each.wire for each in sent))
        await connection.settle(lambda: connection.state.total_requests == len(sent))
        assert connection.heard == [(each.mark, each.body) for each in sent if each.is_door]
        found = answers_in(connection.transport.written)
        assert [status for status, _ in found] == [200] * len(sent)
        for (_, body), each in zip(found, sent, strict=True):
            assert body.endswith(each.mark if each.is_door else b"}")
        assert not connection.transport.is_closed
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("seed", range(8 * ROUNDS))
def test_malformed_bytes_end_the_connection_after_the_answers_that_are_due(
    seed: int, garbage: bytes
) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        sent = [make_request(chance, number) for number in range(chance.randint(0, 6))]
        connection = Connection(chance)
        wire = b"".join(each.wire for each in sent)
        await connection.send(wire + garbage + chance.randbytes(chance.choice((0, 10, 5000))))
        await connection.settle(lambda: connection.transport.is_ended)
        doors = [(each.mark, each.body) for each in sent if each.is_door]
        assert connection.heard == doors
        found = answers_in(connection.transport.written)
        assert [status for status, _ in found[: len(sent)]] == [200] * len(sent)
        assert [status for status, _ in found[len(sent) :]] in ([], [400])
        if not sent:
            assert found
        await connection.close()

    asyncio.run(run())
