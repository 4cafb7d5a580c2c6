"""A request's connection to its client: the exchange reads the request from it and writes the answer to it.

There are `AsgiConnection`, for any ASGI server, and `cycle.Cycle`, for our own server, which needs far fewer steps; and for requests
that came in another way, those that extend `WholeRequest`. A write that cannot finish at once (the client does not read, or the
server must be awaited) returns a function to call and await before the next write; None means that the write is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from dragoman.gateway.answer import Pending

Headers = Sequence[tuple[bytes, bytes]]

# How long the client of a complete request is not watched under other servers: the task would cost a small exchange a tenth of its
# time. Half of the time in which a client's leaving must reach the upstream, with room for a busy loop.
_UNWATCHED_SECONDS = 0.03


class ClientConnection(Protocol):
    """What an exchange needs of a connection."""

    @property
    def line_bytes(self) -> int | None:
        """The size of the request's first line; None: the size of the head has been checked."""
        ...

    def task(self) -> asyncio.Task[None] | None:
        """The task that serves the request."""
        ...

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        """The request's headers, with lower-case names. They are released here, because a stream outlasts their use."""
        ...

    def receive(self) -> Awaitable[Message]:
        """As in ASGI: the body piece by piece, or the client's disconnect."""
        ...

    def take_body(self) -> bytes | None:
        """The whole body if it has arrived; None: it must be received."""
        ...

    def on_leave(self, call: Callable[[], None] | None) -> None:
        """Register a function to call when the client leaves; None at the end of the exchange."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        """Write a whole answer."""
        ...

    def begin(self, headers: Headers, data: bytes) -> Pending:
        """Write the head of a stream and its first bytes."""
        ...

    def write(self, data: bytes) -> Pending:
        """Write more bytes of a stream."""
        ...

    def finish(self, data: bytes) -> Pending:
        """Write the last bytes of a stream, perhaps none, and end it."""
        ...


def line_bytes(scope: Scope) -> int:
    """How many bytes the first line of a request has."""
    target = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return len(scope["method"]) + len(target) + len(query) + len("  HTTP/1.1\r\n") + bool(query)


class WholeRequest:
    """The reading side of a connection whose request is there already. running: the task that serves it."""

    __slots__ = ("_body", "_headers", "line_bytes", "running")

    def __init__(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.line_bytes: int | None = None
        self.running: asyncio.Task[None] | None = None
        self._headers = headers
        self._body = body

    def task(self) -> asyncio.Task[None] | None:
        return self.running

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        headers, self._headers = self._headers, []
        return headers

    def take_body(self) -> bytes | None:
        body, self._body = self._body, b""
        return body

    async def receive(self) -> Message:
        """Never called: the body is there, and a client that leaves is reported in another way."""
        return {"type": "http.disconnect"}


class AsgiConnection:
    """A connection under any ASGI server."""

    __slots__ = (
        "_headers",
        "_on_leave",
        "_receive",
        "_server_send",
        "_timer",
        "_watcher",
        "line_bytes",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._server_send = send
        self._on_leave: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.line_bytes = line_bytes(scope)

    def task(self) -> asyncio.Task[None] | None:
        return asyncio.current_task()

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        return self._headers

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_UNWATCHED_SECONDS, self._start_watching)
        return message

    def take_body(self) -> bytes | None:
        return None

    def on_leave(self, call: Callable[[], None] | None) -> None:
        self._on_leave = call
        if call is None and self._timer is not None:
            self._timer.cancel()
        if call is None and self._watcher is not None:
            self._watcher.cancel()

    def _start_watching(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Wait until the client leaves, which the server reports only to a task that waits for the next message."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._on_leave is not None:
            self._on_leave()

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        size = (b"content-length", b"%d" % len(body))
        return partial(self._start, status, [*headers, size], body, is_more=False)

    def begin(self, headers: Headers, data: bytes) -> Pending:
        return partial(self._start, 200, headers, data, is_more=True)

    def write(self, data: bytes) -> Pending:
        message = {"type": "http.response.body", "body": data, "more_body": True}
        return partial(self._send, message)

    def finish(self, data: bytes) -> Pending:
        return partial(self._send, {"type": "http.response.body", "body": data})

    async def _send(self, message: Message) -> None:
        with suppress(OSError):  # the client has left: its disconnect is the next message
            await self._server_send(message)

    async def _start(self, status: int, headers: Headers, data: bytes, *, is_more: bool) -> None:
        head = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self._send(head)
        await self._send({"type": "http.response.body", "body": data, "more_body": is_more})
