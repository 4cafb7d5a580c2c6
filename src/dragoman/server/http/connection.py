"""One request's connection to its client: the request is read from it, and the answer is written to it.

There are two kinds: `AsgiConnection`, under any ASGI server, and `cycle.Cycle`, under our own server, which needs far fewer
steps. A write that is not done at once (the client does not read, or the server must be awaited) returns what is left of
it, to be called and awaited before the next write; None means that it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from dragoman.gateway.answer import Pending

Headers = Sequence[tuple[bytes, bytes]]


class ClientConnection(Protocol):
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

    def on_leave(self, call: Callable[[], None] | None) -> bool:
        """Have `call` called when the client leaves. False: only a caller that waits in `receive` learns it."""
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


class AsgiConnection:
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

    def on_leave(self, call: Callable[[], None] | None) -> bool:
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
