"""Opens connections: resolves names, tries addresses in parallel, connects through proxies, and starts TLS.

Knows nothing of pools and answers; returns a `connection.py` object.
"""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from urllib.parse import unquote

from msgspec import Struct

from dragoman.config.environment import DEFAULT_PORTS, http_address
from dragoman.config.settings import DIRECT, UpstreamSettings
from dragoman.errors import ConfigError, UpstreamError
from dragoman.upstream import errors
from dragoman.upstream.http.connection import UpstreamConnection

# Recommended by RFC 8305: how long to wait for one address before the next is tried as well.
ATTEMPT_DELAY = 0.25
# A provider may think for minutes without sending; routers drop such connections unless packets are sent.
KEEPALIVE_SECONDS = 60
KEEPALIVE_PROBES = 5

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Address]


class ServerAddress(Struct, frozen=True):
    """The server of a URL, without its path. `authority`: the value of the Host header."""

    is_tls: bool
    host: str
    port: int
    authority: str
    credentials: str | None = None


def server_address(url: str, what: str) -> ServerAddress:
    """The server of a URL. `what` names the setting it came from.

    Raises:
        ConfigError: the URL has no host, or a scheme other than http and https. The URL is not quoted: it may
            contain a password.
    """
    parts = http_address(url)
    if parts is None:
        raise ConfigError(f"{what}: expected an address such as https://host or http://host:8000")
    credentials = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = b64encode(pair.encode()).decode()
    return ServerAddress(
        is_tls=parts.scheme == "https",
        host=parts.hostname or "",
        port=parts.port or DEFAULT_PORTS[parts.scheme],
        authority=parts.netloc.rpartition("@")[2],
        credentials=credentials,
    )


class Dialer:
    """Makes connections to one server, through a proxy if one is configured."""

    def __init__(self, name: str, settings: UpstreamSettings, tls: ssl.SSLContext | None) -> None:
        self._name = name
        self._settings = settings
        self._tls = tls
        self.place = server_address(settings.base_url, f"upstreams.{name}.base_url")
        self.proxy: ServerAddress | None = None
        if settings.proxy and settings.proxy != DIRECT:
            self.proxy = server_address(settings.proxy, f"upstreams.{name}.proxy")
            if self.proxy.is_tls:
                raise ConfigError(
                    f"upstreams.{name}.proxy: expected http://…, got an https address"
                )

    async def dial(self) -> UpstreamConnection:
        """A connection that is ready for a request.

        Raises:
            UpstreamError: kind `upstream`. The caller applies timeouts.
        """
        try:
            if self.proxy is None:
                return await self._connect(self.place, tls=self._tls)
            try:
                connection = await self._connect(self.proxy, tls=None)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
                raise errors.proxy_unreachable(self._name, self.proxy.authority, error) from error
            return await self._tunnel(connection, self.proxy) if self.place.is_tls else connection
        except TimeoutError:
            raise
        except (OSError, UnicodeError) as error:
            raise errors.unreachable(self._name, error) from error

    async def _connect(
        self, place: ServerAddress, *, tls: ssl.SSLContext | None
    ) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            link = undo.enter_context(await _open_socket(loop, place.host, place.port))
            _, connection = await loop.create_connection(
                self._connection, sock=link, ssl=tls, server_hostname=place.host if tls else None
            )
            undo.pop_all()
        return connection

    async def _tunnel(
        self, connection: UpstreamConnection, proxy: ServerAddress
    ) -> UpstreamConnection:
        host = self.place.host
        target = f"[{host}]:{self.place.port}" if ":" in host else f"{host}:{self.place.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if proxy.credentials is not None:
            lines.append(f"proxy-authorization: Basic {proxy.credentials}")
        with ExitStack() as undo:
            undo.callback(connection.abort)
            await connection.ask("\r\n".join((*lines, "", "")).encode("latin-1"), b"")
            if not 200 <= connection.status <= 299:
                raise self.refused_by_proxy(proxy, connection.status)
            inner = self._connection()
            tls = self._tls or ssl.create_default_context()
            transport = await asyncio.get_running_loop().start_tls(
                connection.detach(), inner, tls, server_hostname=host
            )
            if transport is None:
                raise errors.unreachable(self._name, "the connection closed under TLS")
            undo.pop_all()
        inner.connection_made(transport)
        return inner

    def refused_by_proxy(self, proxy: ServerAddress, status: int) -> UpstreamError:
        return errors.refused_by_proxy(
            self._name, proxy.authority, status, has_user=proxy.credentials is not None
        )

    def _connection(self) -> UpstreamConnection:
        settings = self._settings
        return UpstreamConnection(self._name, settings.first_byte_timeout, settings.idle_timeout)


async def resolve(host: str, port: int) -> Sequence[AddressInfo]:
    """The addresses of a host, in the order the system prefers."""
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _open_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A socket to the first of the host's addresses that accepts; each address gets a short lead over the next."""
    addresses = by_turns(await resolve(host, port))
    attempts: set[asyncio.Task[socket.socket]] = set()
    first_error: OSError | None = None
    try:
        while addresses or attempts:
            if addresses:
                attempts.add(loop.create_task(_try_address(loop, addresses.pop(0))))
            delay = ATTEMPT_DELAY if addresses else None
            done, _ = await asyncio.wait(
                attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                attempts.remove(attempt)
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                first_error = first_error or error
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_close_late)
            attempt.cancel()
    raise first_error or OSError(f"no address for {host!r}")


async def _try_address(loop: asyncio.AbstractEventLoop, info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    with ExitStack() as undo:
        link = undo.enter_context(socket.socket(family, kind, protocol))
        link.setblocking(False)  # noqa: FBT003 -- the standard library's signature
        await loop.sock_connect(link, address)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        undo.pop_all()
    return link


def by_turns(found: Sequence[AddressInfo]) -> list[AddressInfo]:
    """The addresses in the system's order, families alternating: a broken IPv6 costs one lead, not one per address."""
    first = [info for info in found if info[0] == found[0][0]]
    others = [info for info in found if info[0] != found[0][0]]
    pairs = zip_longest(first, others)
    return [info for pair in pairs for info in pair if info is not None]


def _close_late(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
