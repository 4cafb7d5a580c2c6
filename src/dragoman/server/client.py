"""The client's end of one exchange: an answer is started once, written as it comes, and finished once.

Writes wait while the client does not read (the server's flow control), so nothing piles up here. Knows no dialect.
"""

from collections.abc import Callable, Sequence

from starlette.types import Send

__all__ = ("Client", "Headers")

Headers = Sequence[tuple[bytes, bytes]]

# `no-transform` keeps proxies from compressing, `x-accel-buffering` keeps nginx from collecting a stream.
_STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Client:
    """Writes one response. Its headers may be added to until it starts."""

    __slots__ = (
        "_clock",
        "_send",
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
        self, send: Send, headers: list[tuple[bytes, bytes]], clock: Callable[[], float]
    ) -> None:
        self.headers = headers
        self.reply_headers: list[
            tuple[bytes, bytes]
        ] = []  # those of the reply that is told, if one is
        self.started = False
        self.finished = False
        self.is_writing = False  # a write waits for the client to read
        self.status = 0
        self.bytes_out = 0
        self.first_write: float | None = None
        self.last_write = clock()
        self.keep_alive: Callable[[], bytes] | None = None  # what may be written into a silence
        self.on_start: Callable[[], None] | None = None
        self._send = send
        self._clock = clock

    async def write(self, data: bytes) -> None:
        """The next bytes of a stream: whole frames."""
        now = self._clock()
        if not self.started:
            await self._start(200, _STREAM_HEADERS, now)
        self.last_write = now
        self.bytes_out += len(data)
        self.is_writing = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.is_writing = False

    async def finish(self) -> None:
        """The end of a stream."""
        if not self.finished:
            self.finished = True
            self.keep_alive = None
            await self._send({"type": "http.response.body", "body": b""})

    async def respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """A whole answer in JSON."""
        size = (b"content-length", b"%d" % len(body))
        now = self._clock()
        await self._start(status, ((b"content-type", b"application/json"), size, *headers), now)
        self.finished = True
        self.bytes_out += len(body)
        await self._send({"type": "http.response.body", "body": body})

    async def keep_open(self) -> None:
        """Break a silence, if the stream is one that may be written into."""
        if self.keep_alive is not None and not self.finished:
            data = self.keep_alive()
            if data:
                await self.write(data)

    async def _start(self, status: int, headers: Headers, now: float) -> None:
        self.started = True
        self.status = status
        self.first_write = now
        if self.on_start is not None:
            self.on_start()
        message = {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, *self.headers, *(self.reply_headers if status == 200 else ())],
        }
        await self._send(message)
