"""The line to one client while one request is served: what it asked comes in on it, the answer goes out.

Two kinds: `AsgiLine`, under any ASGI server, and `turn.Turn`, on a connection of our own server, which needs far fewer
steps for the same. Where a step out is not done at once (the client does not read, or the server wants to be awaited) what
is left of it is returned, to be called and awaited before the next; None: it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

__all__ = ("AsgiLine", "Headers", "Line", "Pending", "line_bytes", "settle")

Headers = Sequence[tuple[bytes, bytes]]
Pending = Callable[[], Awaitable[None]] | None


class Line(Protocol):
    """What an exchange needs of a connection.

    line_bytes: of the request's first line.
    """

    line_bytes: int

    def task(self) -> asyncio.Task[None] | None:
        """The task that serves the request."""
        ...

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        """The request's, their names in lower case. They are the caller's: streams outlast the need for them."""
        ...

    def receive(self) -> Awaitable[Message]:
        """As ASGI has it: the body, piece by piece, and then the client's leaving."""
        ...

    def take_body(self) -> bytes | None:
        """The whole body if it is here already; None: it is to be received."""
        ...

    def on_leave(
        self, call: Callable[[], None] | None, probe: Callable[[], bool] | None = None
    ) -> bool:
        """Have `call` called when the client leaves. False: it is only told to who waits for it with `receive`.

        probe: called when a client may have left while a stream is sent to it. It writes what the dialect allows into
            a silence; False: it cannot.
        """
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        """A whole answer."""
        ...

    def begin(self, headers: Headers, data: bytes) -> Pending:
        """The head of a stream, and the first of it."""
        ...

    def write(self, data: bytes) -> Pending:
        """More of a stream."""
        ...

    def finish(self, data: bytes) -> Pending:
        """The last of a stream, perhaps nothing, and its end."""
        ...


def line_bytes(scope: Scope) -> int:
    """How many bytes the first line of a request has."""
    target = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return len(scope["method"]) + len(target) + len(query) + len("  HTTP/1.1\r\n") + bool(query)


async def settle(pending: Pending) -> None:
    """Wait until a step is done."""
    if pending is not None:
        await pending()


class AsgiLine:
    """Under any ASGI server."""

    __slots__ = ("_headers", "_receive", "_send", "line_bytes")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send
        self.line_bytes = line_bytes(scope)

    def task(self) -> asyncio.Task[None] | None:
        return asyncio.current_task()

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        return self._headers

    def receive(self) -> Awaitable[Message]:
        return self._receive()

    def take_body(self) -> bytes | None:
        return None

    def on_leave(
        self,
        call: Callable[[], None] | None,
        probe: Callable[[], bool] | None = None,  # noqa: ARG002 - ASGI knows nothing of half-closed connections
    ) -> bool:
        return call is None

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

    async def _start(self, status: int, headers: Headers, data: bytes, *, is_more: bool) -> None:
        head = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self._send(head)
        await self._send({"type": "http.response.body", "body": data, "more_body": is_more})
