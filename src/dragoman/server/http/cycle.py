"""One request on a connection of our own server, and its answer: a `ClientConnection` in HTTP/1.1.

It replaces uvicorn's `RequestResponseCycle`, so uvicorn's keep-alive, flow control and shutdown apply to it.
uvicorn reads its `disconnected`, `keep_alive`, `response_complete`, `chunked_encoding` and `message_event`.
An answer goes out in one write, a stream's head together with its first bytes; data that is available is never awaited.
"""

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable, MutableMapping
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import cast

from starlette.types import Message
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.gateway.answer import Pending
from dragoman.server.http.connection import Headers

logger = logging.getLogger(__name__)

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode("ascii"))
    for status in HTTPStatus
}

_LINE = b"%b: %b\r\n"
# Numbers, because CPython 3.11 raises and drops an error before it searches bytes for bytes.
_LF, _CR = 0x0A, 0x0D

# From this size on, copying the bytes of a stream costs more than passing them on in pieces.
_LARGE = 32 * 1024


class Flow(FlowControl):
    """uvicorn's flow control of one connection. The event that wakes a writer is created only when a writer must wait."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False

    def pause_writing(self) -> None:
        if not self.write_paused:
            self._is_writable_event = asyncio.Event()
            self.write_paused = True


class Cycle:
    """`connection` is uvicorn's protocol; its `on_response_complete` is called when the answer has been written."""

    __slots__ = (
        "_connection",
        "_flow",
        "_headers",
        "_on_leave",
        "_pieces",
        "_size",
        "_task",
        "_transport",
        "_waiter",
        "chunked_encoding",
        "disconnected",
        "keep_alive",
        "line_bytes",
        "more_body",
        "response_complete",
        "response_started",
    )

    def __init__(
        self,
        connection: HttpToolsProtocol,
        headers: list[tuple[bytes, bytes]],
        line_bytes: int | None,
        *,
        keep_alive: bool,
    ) -> None:
        self.disconnected = False
        self.keep_alive = keep_alive
        self.more_body = True
        self.response_started = False
        self.chunked_encoding = False
        self.response_complete = False
        self.line_bytes = line_bytes
        self._connection = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self._headers = headers
        self._on_leave: Callable[[], None] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    # --- called by the connection

    @property
    def message_event(self) -> "Cycle":
        """The object whose `set` uvicorn calls when the connection is lost: this one."""
        return self

    def set(self) -> None:
        """Wake the task that waits for more of the request."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def start(self, task: asyncio.Task[None]) -> None:
        """Note the task that answers the request."""
        self._task = task
        self._connection.tasks.add(task)
        task.add_done_callback(self.end)

    def leave(self) -> None:
        """Report that the client has left."""
        if not self.response_complete:
            self.disconnected = True
            self.set()
            if self._on_leave is not None:
                self._on_leave()

    def add(self, data: bytes) -> None:
        """Add received bytes of the body."""
        if not self.response_complete:
            self._pieces.append(data)
            self._size += len(data)
            if self._size > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
            if self._waiter is not None:
                self.set()

    def complete(self) -> None:
        """Report that the body is complete."""
        self.more_body = False
        if self._waiter is not None:
            self.set()

    def end(self, task: asyncio.Task[None]) -> None:
        """Report that the task has ended. An incomplete answer must not look complete, so its connection is closed."""
        self._connection.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the task of a request ended with an exception", exc_info=error)
        if not self.response_complete and not self.disconnected:
            self._transport.close()

    # --- called by the exchange (`ClientConnection`)

    def task(self) -> asyncio.Task[None] | None:
        return self._task

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        headers, self._headers = self._headers, []
        return headers

    def take_body(self) -> bytes | None:
        if self.more_body:
            return None
        pieces = self._pieces
        return pieces.pop() if len(pieces) == 1 and not self._flow.read_paused else self._taken()

    async def receive(self) -> Message:
        if not self._pieces and self.more_body and not self._is_over():
            self._flow.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._is_over():
            return {"type": "http.disconnect"}
        message: MutableMapping[str, object] = {"type": "http.request", "body": self._taken()}
        message["more_body"] = self.more_body
        return message

    def on_leave(self, call: Callable[[], None] | None) -> None:
        self._on_leave = call
        if call is not None and self.disconnected:
            call()  # the client left before the exchange registered `call`

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        if self._flow.write_paused:
            return partial(self._respond_later, status, headers, body)
        if not self.disconnected:
            self.response_started = True
            head = self._head(status, headers)
            self._transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
            self._complete()
        return None

    def begin(self, headers: Headers, data: bytes) -> Pending:
        if not self.disconnected:
            self.response_started = self.chunked_encoding = True
            head = self._head(200, headers) + b"transfer-encoding: chunked\r\n\r\n"
            self._send(head, data, b"")
        return self._flow.drain if self._flow.write_paused else None

    def write(self, data: bytes) -> Pending:
        if not self.disconnected:
            self._send(b"", data, b"")
        return self._flow.drain if self._flow.write_paused else None

    def finish(self, data: bytes) -> Pending:
        if not self.disconnected:
            self._send(b"", data, b"0\r\n\r\n")
            self._complete()
        return None

    def _send(self, before: bytes, data: bytes, behind: bytes) -> None:
        """Write one chunk of the body between other bytes. An empty chunk is left out: it would end the body."""
        size = len(data)
        if size >= _LARGE:
            self._transport.writelines((b"%b%x\r\n" % (before, size), data, b"\r\n%b" % behind))
        elif size:
            self._transport.write(b"%b%x\r\n%b\r\n%b" % (before, size, data, behind))
        else:
            self._transport.write(before + behind)

    async def _respond_later(self, status: int, headers: Headers, body: bytes) -> None:
        await self._flow.drain()
        self.respond(status, headers, body)

    def _head(self, status: int, headers: Headers) -> bytes:
        """The head, without the header that frames the body."""
        own = self._connection.server_state.default_headers
        fields = [*own, *headers] if own else headers
        names_and_values = tuple(chain.from_iterable(fields))
        sent = b"".join(names_and_values)
        # A header value with a line end in it could inject further headers.
        if _LF in sent or _CR in sent:
            raise ValueError("expected headers without line ends; one contains a line end")
        head = _LINE * len(fields) % names_and_values
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return (
            b"%b%b" % (line, head)
            if self.keep_alive
            else b"%b%bconnection: close\r\n" % (line, head)
        )

    def _complete(self) -> None:
        self.response_complete = True
        if self._waiter is not None:
            self.set()
        if not self.keep_alive:
            self._transport.close()
        self._connection.on_response_complete()

    def _is_over(self) -> bool:
        return self.disconnected or self.response_complete

    def _taken(self) -> bytes:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._flow.read_paused:
            self._flow.resume_reading()  # also to notice when the client leaves
        return data


if sys.platform == "linux":
    import fcntl
    import termios

    def unsent_bytes(transport: asyncio.Transport) -> int:
        """Bytes in the system's send buffer. The system reports free room only when a third of the buffer is empty."""
        sock = cast("socket.socket | None", transport.get_extra_info("socket"))
        if sock is None or sock.fileno() < 0:  # it was closed meanwhile
            return 0
        try:
            found = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTTY):
                raise
            return 0
        return int.from_bytes(found, sys.byteorder)

else:

    def unsent_bytes(_transport: asyncio.Transport) -> int:
        return 0
