"""HTTP/1.1 to one server over our own connections: a pool, and the reply that the gateway reads.

Knows no dialect and no header's meaning. If the server closes a kept connection just as a request is sent, the request is sent
once more on a new connection; the caller judges every other failure, which is an `UpstreamError`.
"""

import asyncio
import ssl
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol
from urllib.parse import urlsplit

from dragoman.config.settings import UpstreamSettings
from dragoman.errors import UpstreamError
from dragoman.upstream import errors
from dragoman.upstream.base import Take, UpstreamReply
from dragoman.upstream.http.connect import Dialer
from dragoman.upstream.http.connection import UpstreamConnection

# A connection idle for longer is not reused: a middlebox may have dropped it silently.
MAX_REST_SECONDS = 60.0

# Limit of inflated bytes per step, so that the reader's own limit stops a bomb.
MAX_PIECE = 256 * 1024

_PROXY_REFUSES = 407  # no other server answers so
# Request lines that are kept. A URL may contain the model, whose name clients choose.
_MAX_STARTS = 256

_READABLE = ("gzip", "x-gzip", "deflate")
# Sent although it was not asked for. Other words mean nothing: some servers send `utf-8` with a plain answer.
_UNREADABLE = ("br", "zstd", "compress", "x-compress")
_AUTOMATIC = 32 + zlib.MAX_WBITS  # gzip or zlib, detected by the first bytes
_TELLING_BYTES = 2  # enough to detect a gzip or zlib header
_BARE = -zlib.MAX_WBITS  # deflate without a header, which some servers send as `deflate`


class Transport:
    """Connections to one server: opened on demand, and kept while both sides allow reuse."""

    def __init__(self, name: str, settings: UpstreamSettings, tls: ssl.SSLContext | None) -> None:
        self._name = name
        self._settings = settings
        self._dialer = Dialer(name, settings, tls)
        self._starts: dict[tuple[str, str], str] = {}
        self._resting: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()
        self._dialing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.make_room: Callable[[], bool] | None = None
        """Closes a connection that `upgrade` returned and that is not in use; False if there is none."""

    def lines(self, headers: Mapping[str, str]) -> str:
        """The header lines of a request.

        Raises:
            UpstreamError: a value has a line end in it.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        # A client's header value with a line end in it could inject further headers.
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise UpstreamError(f"upstream {self._name!r}: a header has a line end in its value")
        return lines

    async def send(self, method: str, url: str, lines: str, body: bytes) -> "HttpReply":
        """Send a request; return the reply as soon as its head is there. `lines`: the header lines.

        Raises:
            UpstreamError: kind `upstream`, `timeout`, `truncated` or `protocol`.
        """
        head = self._head(method, url, lines, body)
        connection = self._take_resting() or await self._obtain()
        is_answered = False
        try:
            await connection.ask(head, body)
            is_answered = True
        except UpstreamError as error:
            is_stale = connection.has_served and not connection.has_received
            if not is_stale or error.kind != "upstream":
                raise
        finally:
            if not is_answered:  # the attempt failed, or the client left
                self.drop(connection)
        if not is_answered:
            connection = await self._ask_anew(head, body)
        if connection.status == _PROXY_REFUSES:
            self._check_proxy(connection)
        return HttpReply(self, connection, self._name)

    async def upgrade(self, url: str, lines: str) -> UpstreamConnection:
        """Ask the server on a new connection to switch to another protocol; return the connection when its answer is there.

        The caller looks at `status`, and ends with `drop`, or with `give_back` if the connection still speaks HTTP.

        Raises:
            UpstreamError: kind `upstream`, `timeout`, `truncated` or `protocol`.
        """
        head = self._encoded(f"{self._start('GET', url)}\r\n{lines}\r\n")
        connection = await self._obtain()
        limit = self._settings.connect_timeout
        with ExitStack() as undo:
            undo.callback(self.drop, connection)
            try:
                async with asyncio.timeout(limit):
                    await connection.ask(head, b"")
            except TimeoutError as error:
                raise errors.no_connection(self._name, limit) from error
            undo.pop_all()
        return connection

    async def close(self) -> None:
        for connection in tuple(self._open):
            self.drop(connection)
        self._resting.clear()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next round

    def give_back(self, connection: UpstreamConnection) -> None:
        """End an exchange: keep its connection for reuse if possible, else close it."""
        if connection not in self._open:
            connection.abort()
            return
        if not connection.rest():
            self.drop(connection)
            return
        self._resting.append(connection)
        # The oldest connections are at the front.
        while self._resting[0].idle_since < connection.idle_since - MAX_REST_SECONDS:
            self.drop(self._resting.pop(0))
        if self._waiting:
            self.call_next()

    async def _ask_anew(self, head: bytes, body: bytes) -> UpstreamConnection:
        """Send a request again after a stale connection. That one's place is free, so a new connection is opened."""
        connection = await self._obtain()
        with ExitStack() as undo:
            undo.callback(self.drop, connection)
            await connection.ask(head, body)
            undo.pop_all()
        return connection

    def _check_proxy(self, connection: UpstreamConnection) -> None:
        """Raises UpstreamError: the proxy refused the request, which goes to it with the server's address."""
        proxy = self._dialer.proxy
        if proxy is not None:
            self.drop(connection)
            raise self._dialer.refused_by_proxy(proxy, _PROXY_REFUSES)

    def _take_resting(self) -> UpstreamConnection | None:
        while self._resting:
            connection = self._resting.pop()
            if connection.is_usable(MAX_REST_SECONDS):
                return connection
            self.drop(connection)
        return None

    async def _obtain(self) -> UpstreamConnection:
        """A new connection as soon as the limit allows, or one that another exchange gave back meanwhile."""
        limit = self._settings.connect_timeout
        most = self._settings.max_connections
        is_waiting = False
        try:
            async with asyncio.timeout(limit):
                while most is not None and len(self._open) + self._dialing >= most:
                    if self._close_unused():
                        continue
                    is_waiting = True
                    await self._wait_for_place()
                    kept = self._take_resting()
                    if kept is not None:
                        return kept
                is_waiting = False
                return await self._dial()
        except TimeoutError as error:
            if is_waiting and most is not None:
                raise errors.all_taken(self._name, most, limit) from error
            raise errors.no_connection(self._name, limit) from error

    async def _dial(self) -> UpstreamConnection:
        self._dialing += 1
        try:
            connection = await self._dialer.dial()
        finally:
            self._dialing -= 1
            self.call_next()
        self._open.add(connection)
        return connection

    def _close_unused(self) -> bool:
        """Close a connection that is not in use, to make room for another; False if each is in use."""
        if self._resting:
            self.drop(self._resting.pop(0))
            return True
        return self.make_room is not None and self.make_room()

    async def _wait_for_place(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        is_taken = False
        try:
            await place
            is_taken = True
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not is_taken:  # the client left just as its place came
                self.call_next()

    def call_next(self) -> None:
        """Let a request that waits for a connection look again: there may be room now."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return

    def drop(self, connection: UpstreamConnection) -> None:
        """Close a connection at once."""
        self._open.discard(connection)
        connection.abort()
        self.call_next()

    def _head(self, method: str, url: str, lines: str, body: bytes) -> bytes:
        start = self._starts.get((method, url))
        if start is None:
            if len(self._starts) >= _MAX_STARTS:
                self._starts.clear()
            start = self._starts[method, url] = self._start(method, url)
        # In this spelling, because proxy.py adds a second one beside `content-length`, which servers refuse.
        return self._encoded(f"{start}\r\nContent-Length: {len(body)}\r\n{lines}\r\n")

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError as error:
            message = f"upstream {self._name!r}: a header has a character that HTTP cannot carry"
            raise UpstreamError(message) from error

    def _start(self, method: str, url: str) -> str:
        parts = urlsplit(url)
        place, proxy = self._dialer.place, self._dialer.proxy
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", f"host: {place.authority}"]
        if proxy is not None and not place.is_tls:
            lines[0] = f"{method} http://{place.authority}{target} HTTP/1.1"
            if proxy.credentials is not None:
                lines.append(f"proxy-authorization: Basic {proxy.credentials}")
        return "\r\n".join(lines)


class Inflater:
    """Decompresses: feed it, then take from it until it is empty.

    Raises (`feed`, `take`):
        zlib.error: the bytes are not valid compressed data.
    """

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(_AUTOMATIC)
        self._rest = b""
        self._has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether the input ends where the compressed data ends."""
        return not self._rest and (self._machine.eof or not self._has_begun)

    def feed(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        """Some decompressed bytes, or none if more input is needed."""
        if not self._has_begun and len(self._rest) < _TELLING_BYTES:
            return b""
        while self._rest:
            if self._machine.eof:  # gzip members may follow one another
                self._machine = zlib.decompressobj(_AUTOMATIC)
            data = self._inflate(self._rest)
            self._has_begun = True
            self._rest = self._machine.unconsumed_tail or self._machine.unused_data
            if data:
                return data
        return b""

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._machine.decompress(data, MAX_PIECE)
        except zlib.error:
            if self._has_begun:
                raise
            self._machine = zlib.decompressobj(_BARE)
            return self._machine.decompress(data, MAX_PIECE)


class Pool(Protocol):
    """Where a connection goes when its answer was read."""

    def give_back(self, connection: UpstreamConnection) -> None: ...


class HttpReply(UpstreamReply):
    """An answer on its connection, until it is closed; later events of the connection belong to another answer."""

    __slots__ = ("_connection", "_encoding", "_inflater", "_name", "_pool", "headers", "status")

    def __init__(self, pool: Pool, connection: UpstreamConnection, name: str) -> None:
        self.status = connection.status
        self.headers = connection.headers
        self._pool = pool
        self._connection: UpstreamConnection | None = connection
        self._name = name
        self._inflater: Inflater | None = None
        self._encoding = ""
        if "content-encoding" in connection.headers:
            self._encoding = connection.headers["content-encoding"].strip().lower()
            if self._encoding in _READABLE or self._encoding in _UNREADABLE:
                self._inflater = Inflater()

    @property
    def is_over(self) -> bool:
        return self._connection is None or (self._inflater is None and self._connection.is_over)

    def take_pieces(self) -> list[bytes]:
        """As `Reply.take_pieces`; empty for a compressed answer."""
        if self._connection is None or self._inflater is not None:
            return []
        return self._connection.take_pieces()

    async def read(self) -> bytes:
        connection = self._connection
        if connection is None:
            return b""
        if self._inflater is None:
            return await connection.read()
        return await self._read_inflated(connection, self._inflater)

    async def forward(self, take: Take) -> bool:
        """As `Reply.forward`; the event loop calls `take`. Drops the headers, because streams last long."""
        self.headers = {}
        connection = self._connection
        if connection is not None and self._inflater is None:
            connection.headers = {}
            return await connection.forward(take)
        return await super().forward(take)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection)

    async def _read_inflated(self, connection: UpstreamConnection, inflater: Inflater) -> bytes:
        if self._encoding in _UNREADABLE:
            raise errors.not_readable(self._name, self._encoding)
        try:
            while not (data := inflater.take()):
                packed = await connection.read()
                if not packed:
                    if not inflater.is_whole:
                        raise errors.cut_short(self._name, "its compression has no end")
                    return b""
                inflater.feed(packed)
        except zlib.error as error:
            raise errors.cut_short(self._name, str(error)) from error
        return data
