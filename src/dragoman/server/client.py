"""Writes the answer of one exchange to the client: it starts once, is written as it comes, and finishes once.

Nothing is buffered here: if a slow client holds up a write, the rest of the write is returned, and the caller awaits it before
the next write (see `http.connection`). Knows no dialect.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from dragoman.gateway.answer import Pending, settle
from dragoman.server.http.connection import ClientConnection, Headers

# `no-transform` stops proxies from compressing; `x-accel-buffering` stops nginx from buffering a stream.
_STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_JSON = (b"content-type", b"application/json")


class Client:
    """Writes one response. Headers may be added until it starts.

    No struct: each event of a stream sets its attributes, which takes a struct four times as long.
    """

    __slots__ = (
        "_clock",
        "_connection",
        "bytes_out",
        "finished",
        "first_write",
        "headers",
        "is_writing",
        "keep_alive",
        "last_write",
        "on_start",
        "reply_headers",
        "started",
        "status",
    )

    def __init__(
        self,
        connection: ClientConnection,
        headers: list[tuple[bytes, bytes]],
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self._connection = connection
        self.headers = headers
        self._clock = clock
        self.last_write = began
        self.reply_headers: Headers = ()  # headers from the upstream's reply
        self.started = False
        self.finished = False
        self.is_writing = False  # a write is waiting for the client to read
        self.status = 0
        self.bytes_out = 0
        self.first_write: float | None = None
        self.keep_alive: Callable[[], bytes] | None = None  # returns the bytes for a silent stream
        self.on_start: Callable[[], None] | None = None

    def write(self, data: bytes) -> Pending:
        """Write the next bytes of a stream: whole frames."""
        self.last_write = now = self._clock()
        self.bytes_out += len(data)
        if self.started:
            pending = self._connection.write(data)
        else:
            self._start(200, now)
            headers = [*_STREAM_HEADERS, *self.headers, *self.reply_headers]
            pending = self._connection.begin(headers, data)
        return None if pending is None else partial(self._wait, pending)

    def finish(self, data: bytes = b"") -> Pending:
        """Write the last bytes of a stream, and end it."""
        if self.finished:
            return None
        if not self.started:
            return partial(self._finish_late, data)
        self.finished = True
        self.keep_alive = None
        self.bytes_out += len(data)
        return self._connection.finish(data)

    def respond(self, status: int, body: bytes, headers: Headers = ()) -> Pending:
        """Write a whole answer in JSON."""
        self.started = self.finished = True
        self.status = status
        self.first_write = self._clock()
        if self.on_start is not None:
            self.on_start()
        self.bytes_out += len(body)
        more = self.reply_headers if status == 200 else ()
        return self._connection.respond(status, [_JSON, *headers, *self.headers, *more], body)

    async def keep_open(self) -> None:
        """Write a keep-alive, if the stream accepts one now."""
        if self.keep_alive is not None and not self.finished:
            data = self.keep_alive()
            if data:
                await settle(self.write(data))

    def _start(self, status: int, now: float) -> None:
        self.started = True
        self.status = status
        self.first_write = now
        if self.on_start is not None:
            self.on_start()

    async def _finish_late(self, data: bytes) -> None:
        await settle(self.write(data))
        await settle(self.finish())

    async def _wait(self, pending: Callable[[], Awaitable[None]]) -> None:
        self.is_writing = True
        await pending()
        self.is_writing = False
