"""How often a connection is written to: each write is a system call, and often a packet."""

import asyncio
import json
from collections.abc import Callable, Coroutine

from uvicorn.server import ServerState

from dragoman.config.settings import Settings
from dragoman.server.app import create_app
from dragoman.server.http.protocol import GatewayProtocol
from dragoman.server.run import make_server


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def ask(*, stream: bool) -> bytes:
    conversation = [{"role": "user", "content": "hi"}]
    asked = {"model": "rehearsal", "stream": stream, "messages": conversation}
    body = json.dumps(asked).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


def serve(talk: Callable[[GatewayProtocol, Transport], Coroutine[object, object, None]]) -> None:
    async def run() -> None:
        app = create_app(Settings())
        config = make_server(app, app.gateway.settings).config
        config.load()
        state = ServerState()
        protocol = GatewayProtocol(config, state, {})
        transport = Transport()
        protocol.connection_made(transport)
        async with asyncio.timeout(60):
            await talk(protocol, transport)
        protocol.connection_lost(None)
        await asyncio.gather(*state.tasks)
        await app.gateway.close()

    asyncio.run(run())


async def wait_for(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 -- what is waited for tells nobody
        await asyncio.sleep(0)


def test_whole_answer_is_one_write() -> None:
    async def talk(protocol: GatewayProtocol, transport: Transport) -> None:
        for count in (1, 2):
            protocol.data_received(ask(stream=False))
            await wait_for(lambda: not protocol.tasks)
            assert len(transport.writes) == count
            head, _, body = transport.writes[-1].partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert json.loads(body)["object"] == "chat.completion"

    serve(talk)


def test_head_of_a_stream_goes_with_its_first_frame_and_its_end_with_the_last() -> None:
    async def talk(protocol: GatewayProtocol, transport: Transport) -> None:
        protocol.data_received(ask(stream=True))
        await wait_for(lambda: not protocol.tasks)
        assert b"\r\n\r\n" in transport.writes[0]
        assert b"data: {" in transport.writes[0]
        assert b"[DONE]" in transport.writes[-1]
        assert transport.writes[-1].endswith(b"\r\n0\r\n\r\n")

    serve(talk)


def test_stream_waits_for_a_client_that_does_not_read() -> None:
    async def talk(protocol: GatewayProtocol, transport: Transport) -> None:
        protocol.data_received(ask(stream=True))
        await wait_for(lambda: bool(transport.writes))
        protocol.pause_writing()
        before = len(transport.writes)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(transport.writes) <= before + 1
        protocol.resume_writing()
        await wait_for(lambda: not protocol.tasks)
        assert transport.writes[-1].endswith(b"\r\n0\r\n\r\n")

    serve(talk)


def test_answer_waits_for_a_client_that_has_not_read_the_last_one() -> None:
    async def talk(protocol: GatewayProtocol, transport: Transport) -> None:
        protocol.pause_writing()
        protocol.data_received(ask(stream=False))
        for _ in range(100):
            await asyncio.sleep(0)
        assert transport.writes == []
        protocol.resume_writing()
        await wait_for(lambda: not protocol.tasks)
        assert len(transport.writes) == 1

    serve(talk)


def test_connection_that_is_to_shut_down_says_so_and_closes_after_the_answer() -> None:
    async def talk(protocol: GatewayProtocol, transport: Transport) -> None:
        protocol.data_received(ask(stream=False))
        protocol.shutdown()
        await wait_for(lambda: not protocol.tasks)
        assert b"connection: close\r\n" in transport.writes[0]
        assert transport.is_closed

    serve(talk)
