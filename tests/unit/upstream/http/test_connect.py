"""How connections are made: TLS with an authority of one's own, proxies, hosts of several addresses."""

import asyncio
import socket
import ssl
import time
from base64 import b64encode
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamSettings
from dragoman.errors import UpstreamError
from dragoman.testing import ScriptedReply, ScriptedUpstream, sse
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.http import connect
from dragoman.upstream.http.connect import ServerAddress, server_address
from dragoman.upstream.http.upstream import HttpUpstream
from loops import LOOPS, play
from ports import free_port
from socket_scene import AGAIN, SOCKET, sent, turns

TLS = Path(__file__).parent / "tls"
STREAM = b"data: {}\n\n" * 1000
ASKED = UpstreamRequest(dialect="chat", body=b"{}", stream=True, model="m")
PLAIN = UpstreamSettings(kind="chat")

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem")
    return context


async def answered(settings: UpstreamSettings, times: int = 1) -> None:
    upstream = HttpUpstream("local", settings, key="sk-secret")
    try:
        for _ in range(times):
            reply = await upstream.send(ASKED)
            pieces: list[bytes] = []
            while data := await reply.read():
                pieces.append(data)
            assert b"".join(pieces) == STREAM
            reply.close()
    finally:
        await upstream.close()


async def refused(settings: UpstreamSettings) -> UpstreamError:
    upstream = HttpUpstream("local", settings, key="sk-secret")
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(ASKED)
    await upstream.close()
    return caught.value


def test_a_server_is_trusted_by_the_configured_authority(loop: str) -> None:
    async def main() -> ScriptedUpstream:
        async with ScriptedUpstream([sse(STREAM)] * 2, tls=server_context()) as server:
            settings = structs.replace(PLAIN, base_url=server.url, ca_file=str(TLS / "ca.pem"))
            await answered(settings, 2)
            await server.until(lambda: server.open_connections == 0)
        return server

    server = play(loop, main())
    assert [received.connection for received in server.requests] == [0, 0]


def test_a_server_that_nobody_vouches_for_is_refused(loop: str) -> None:
    async def main() -> None:
        async with ScriptedUpstream([], tls=server_context()) as server:
            error = await refused(structs.replace(PLAIN, base_url=server.url))
        assert (error.kind, error.status) == ("upstream", 502)
        assert "certificate is not accepted" in error.message
        assert "certificate verify failed" in error.detail

    play(loop, main())


def test_tls_to_a_server_that_does_not_speak_it_is_refused(loop: str) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await refused(structs.replace(PLAIN, base_url=url))
        server.close()
        assert (error.kind, error.status) == ("upstream", 502)

    play(loop, main())


def test_leaving_a_tls_answer_in_the_middle_frees_the_socket_at_once(loop: str) -> None:
    async def main() -> None:
        endless = sse(b"data: {}\n\n" * 100_000, cut_into=1000, pause=0.01)
        async with ScriptedUpstream([endless], tls=server_context()) as server:
            settings = structs.replace(PLAIN, base_url=server.url, ca_file=str(TLS / "ca.pem"))
            upstream = HttpUpstream("local", settings, key=None)
            reply = await upstream.send(ASKED)
            await reply.read()
            reply.close()
            await server.until(lambda: server.requests[0].was_abandoned)
            await upstream.close()

    play(loop, main())


def test_a_plain_request_goes_to_the_proxy_with_its_whole_address(loop: str) -> None:
    async def main() -> None:
        async with ScriptedUpstream([sse(STREAM)]) as proxy:
            settings = structs.replace(
                PLAIN,
                base_url="http://far.example:8080/v1",
                proxy=proxy.url.replace("://", "://me:p%40ss@"),
            )
            await answered(settings)
        [received] = proxy.requests
        assert received.path == "http://far.example:8080/v1/chat/completions"
        assert received.headers["host"] == "far.example:8080"
        credentials = b64encode(b"me:p@ss").decode()
        assert received.headers["proxy-authorization"] == f"Basic {credentials}"

    play(loop, main())


class Tunnel:
    """A proxy that connects, or says the status it was made with."""

    def __init__(self, status: bytes = b"200 UpstreamConnection established") -> None:
        self.heads: list[bytes] = []
        self._status = status
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://me:hush@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        writer.write(b"HTTP/1.1 %b\r\n\r\n" % self._status)
        if self._status.startswith(b"200"):
            host, port = head.split(b" ")[1].decode().rsplit(":", 1)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, far_writer))
                pumps.create_task(_pump(far_reader, writer))
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


def test_a_tls_server_is_reached_through_a_proxy(loop: str) -> None:
    async def main() -> None:
        tunnel = Tunnel()
        async with (
            ScriptedUpstream([sse(STREAM)] * 2, tls=server_context()) as server,
            tunnel as proxy,
        ):
            settings = structs.replace(
                PLAIN, base_url=server.url, ca_file=str(TLS / "ca.pem"), proxy=proxy
            )
            await answered(settings, 2)
            await server.until(lambda: server.open_connections == 0)
            await server.until(lambda: len(asyncio.all_tasks()) == 1)
        [head] = tunnel.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
        assert b"proxy-authorization: Basic " in head
        assert b"sk-secret" not in head
        assert {received.connection for received in server.requests} == {0}

    play(loop, main())


def test_a_websocket_over_tls_goes_through_a_proxy(loop: str) -> None:
    async def main() -> None:
        tunnel = Tunnel()
        async with (
            ScriptedUpstream([sse(AGAIN)] * 2, tls=server_context(), websocket=True) as server,
            tunnel as proxy,
        ):
            settings = structs.replace(
                SOCKET, base_url=server.url, ca_file=str(TLS / "ca.pem"), proxy=proxy
            )
            upstream = HttpUpstream("local", settings, key="sk-secret")
            await turns(upstream, 2)
            await upstream.close()
            await server.until(lambda: server.open_connections == 0)
            await server.until(lambda: len(asyncio.all_tasks()) == 1)
        assert len(tunnel.heads) == 1
        assert sent(server) == [(0, None, 1), (0, "resp_again", 1)]

    play(loop, main())


def test_a_proxy_that_refuses_is_an_upstream_error(loop: str) -> None:
    async def main() -> None:
        async with Tunnel(b"407 Proxy Authentication Required\r\ncontent-length: 0") as proxy:
            error = await refused(
                structs.replace(PLAIN, base_url="https://far.example", proxy=proxy)
            )
        assert error.kind == "upstream"
        said = "its proxy answered 407; it refuses the user and password in its address"
        assert error.message == f"upstream 'local' cannot be reached: {said}"
        assert error.detail == f"proxy {proxy.rpartition('@')[2]}"

    play(loop, main())


def addresses(*pairs: tuple[str, int]) -> list[connect.AddressInfo]:
    return [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
        for host, port in pairs
    ]


def resolving_to(monkeypatch: pytest.MonkeyPatch, found: list[connect.AddressInfo]) -> None:
    async def resolve(host: str, port: int) -> list[connect.AddressInfo]:
        return found

    monkeypatch.setattr(connect, "resolve", resolve)


def test_the_next_address_is_tried_when_one_refuses(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = free_port()

    async def main() -> None:
        async with ScriptedUpstream([sse(STREAM)]) as server:
            resolving_to(monkeypatch, addresses(("127.0.0.1", closed), ("127.0.0.1", server.port)))
            await answered(structs.replace(PLAIN, base_url="http://far.example"))

    play(loop, main())


def test_a_silent_address_does_not_hold_up_the_next(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            async with ScriptedUpstream([sse(STREAM)]) as server:
                silent = ("127.0.0.1", full.getsockname()[1])
                resolving_to(monkeypatch, addresses(silent, ("127.0.0.1", server.port)))
                began = time.monotonic()
                patient = structs.replace(PLAIN, base_url="http://far.example", connect_timeout=600)
                async with asyncio.timeout(60):
                    await answered(patient)
                assert time.monotonic() - began > 0.2
                await server.until(lambda: len(asyncio.all_tasks()) == 1)
            for filler in fillers:
                filler.close()

    play(loop, main())


def test_a_host_without_an_address_is_an_upstream_error(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving_to(monkeypatch, [])

    async def main() -> None:
        error = await refused(structs.replace(PLAIN, base_url="http://far.example"))
        assert error.message == "upstream 'local' cannot be reached: no connection could be made"
        assert error.detail == "no address for 'far.example'"

    play(loop, main())


def test_a_name_that_is_no_host_is_an_upstream_error(loop: str) -> None:
    async def main() -> None:
        error = await refused(structs.replace(PLAIN, base_url=f"http://{'x' * 70}.example"))
        assert error.kind == "upstream"

    play(loop, main())


def test_families_take_turns(loop: str) -> None:
    four = addresses(("1.1.1.1", 1), ("2.2.2.2", 1), ("3.3.3.3", 1))
    six: list[connect.AddressInfo] = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0))
    ]
    assert connect.by_turns([*six, *four]) == [six[0], *four]
    assert connect.by_turns([*four, *six]) == [four[0], six[0], *four[1:]]
    assert connect.by_turns([]) == []


def test_an_address_is_read_into_its_parts(loop: str) -> None:
    assert server_address("https://h/v1", "x") == ServerAddress(
        is_tls=True, host="h", port=443, authority="h"
    )
    assert server_address("http://[::1]:81", "x") == ServerAddress(
        is_tls=False, host="::1", port=81, authority="[::1]:81"
    )


def test_a_place_that_a_client_no_longer_wants_goes_to_the_next(loop: str) -> None:
    async def ask(upstream: HttpUpstream) -> None:
        reply = await upstream.send(ASKED)
        assert await reply.read()
        reply.close()

    async def main() -> None:
        async with ScriptedUpstream([ScriptedReply(body=b"x")] * 2) as server, asyncio.timeout(10):
            settings = structs.replace(
                PLAIN, base_url=server.url, max_connections=1, connect_timeout=30
            )
            upstream = HttpUpstream("local", settings, key=None)
            first = await upstream.send(ASKED)
            leaving, waiting = (asyncio.create_task(ask(upstream)) for _ in range(2))
            for _ in range(10):
                await asyncio.sleep(0)
            queue = upstream._transport._waiting  # pyright: ignore[reportPrivateUsage] - nothing else shows who waits
            assert len(queue) == 2
            first.close()  # wakes the first of the two
            leaving.cancel()
            await waiting
            await upstream.close()

    play(loop, main())
