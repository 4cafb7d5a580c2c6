"""One connection to a server: writes a request, reads its answer, and is reused. HTTP/1.1 by httptools.

Measured against general HTTP clients: this one returns the bytes of one socket read as one piece,
arms one timer per idle time instead of one per read, and keeps the bytes that had arrived when the
connection was cut. A consumer that forwards an answer is called with each read directly, without a task wakeup. This
module knows neither addresses nor pools (`transport.py`) nor what a header means.

An answer goes through HEAD, BODY and DONE; FAILED may follow HEAD or BODY. Bytes that arrive after DONE, or without a
request, belong to no answer: the connection is not used again.

After the answer 101 another parser may take the place of httptools' (`speak`): then requests and answers are messages of a
WebSocket (`websocket.py`), and all the rest stays as it is.
"""

import asyncio
from enum import Enum, auto
from typing import Protocol, cast

import httptools

from dragoman.errors import UpstreamError
from dragoman.upstream import errors
from dragoman.upstream.base import Take

# The buffer per connection for a slow reader: above this size the socket is not read until the buffer is taken.
HIGH_WATER = 128 * 1024
# Providers send some KB; this limits heads, trailers and chunk extensions.
MAX_HEAD_BYTES = 256 * 1024
# A small body is copied behind its head: one write costs less than two.
MAX_COPY = 64 * 1024
# Bytes that a server has not read; above this size it gets no pongs, which it would not read either.
MAX_UNREAD = 64 * 1024
# Event loops count time in milliseconds and may wake a little early.
CLOCK_GRAIN = 0.002

# The cache of header names; other names are decoded each time.
MAX_NAMES = 512
MAX_NAME = 64
_names: dict[bytes, str] = {}

_SWITCHING = 101  # Switching Protocols: the only status of its class that is a final answer

_PARSER_FAILURES = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class _State(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()
    FAILED = auto()


# Looked up once because each read uses them: enum attributes are slow.
_IDLE, _HEAD, _BODY, _DONE, _FAILED = _State
_ANSWERING = (_HEAD, _BODY)


class Parser(Protocol):
    """What reads the bytes of a server: it calls the connection's `on_…` methods, as httptools' parser does."""

    def feed_data(self, data: bytes, /) -> bool | None:
        """Read the bytes of one read. True: they are no sign that an answer goes on, such as pings."""
        ...

    def get_status_code(self) -> int: ...

    def should_keep_alive(self) -> bool: ...


class UpstreamConnection(asyncio.Protocol):
    """`name`: the upstream's name, for messages. Times are in seconds."""

    __slots__ = (
        "_ends_with_connection",
        "_error",
        "_fields",
        "_first_byte_timeout",
        "_held",
        "_idle_timeout",
        "_is_paused",
        "_is_switched",
        "_limit",
        "_loop",
        "_may_be_kept",
        "_name",
        "_overhead",
        "_parser",
        "_pieces",
        "_rest",
        "_state",
        "_take",
        "_timer",
        "_transport",
        "_waiter",
        "_waiting_since",
        "_whole",
        "has_received",
        "has_served",
        "headers",
        "idle_since",
        "on_body",
        "status",
    )

    def __init__(self, name: str, first_byte_timeout: float, idle_timeout: float) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_received = False
        self.has_served = False
        self.idle_since = 0.0
        self._name = name
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._state = _IDLE
        self._may_be_kept = False
        self._ends_with_connection = False
        self._fields: list[tuple[bytes, bytes]] = []
        self._overhead = 0  # bytes of the head, or since the last piece of the body
        self._pieces: list[bytes] = []
        self._whole = 0  # the number of pieces when the answer ended
        self._held = 0
        self._is_paused = False
        self._is_switched = False  # to another protocol
        self._rest = b""  # what came behind the answer 101
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._waiting_since = 0.0
        self._limit = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._take: Take | None = None
        # The parser calls this function for each chunk, and events are chunks: a method of ours would cost more.
        self.on_body = self._pieces.append
        self._parser: Parser | None = httptools.HttpResponseParser(self)

    # --- called by the pool

    def is_usable(self, longest_rest: float) -> bool:
        """Whether a new request may be written: the connection is open, and has been idle for at most this many seconds."""
        return (
            self._state is _IDLE
            and self._transport is not None
            and not self._transport.is_closing()
            and self._loop.time() - self.idle_since < longest_rest
        )

    def rest(self) -> bool:
        """Drop the answer and wait for another request. False: the answer has not ended, or one side does not allow reuse."""
        transport = self._transport
        if (
            self._state is not _DONE
            or not self._may_be_kept
            or transport is None
            or transport.is_closing()
            # The server has answered without reading the whole request.
            or transport.get_write_buffer_size() != 0
        ):
            return False
        self.has_served = True
        self._state = _IDLE
        self._pieces.clear()
        self._held = 0
        self.headers = {}
        if self._is_paused:
            self._resume()
        self.idle_since = self._loop.time()
        return True

    def abort(self) -> None:
        """Close at once, even with unwritten bytes."""
        # Once raised it refers to this connection: the cycle would wait for the garbage collector.
        self._error = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def speak(self, parser: Parser) -> None:
        """Go on in another protocol, after the answer 101. `parser` reads all that comes from now on, also without a request."""
        rest, self._rest = self._rest, b""
        self._parser = parser
        self._is_switched = True
        self._state = _IDLE
        self.headers = {}
        self.idle_since = self._loop.time()
        self._resume()
        if rest:
            parser.feed_data(rest)

    def detach(self) -> asyncio.Transport:
        """Give the transport to another protocol; this object is of no further use."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is None:
            raise errors.gone_without_answer(self._name)
        return self._transport

    # --- called by an exchange

    @property
    def is_waiting(self) -> bool:
        """Whether nothing of the answer to a request has come yet."""
        return self._state is _HEAD

    @property
    def is_answering(self) -> bool:
        """Whether an answer has begun and not ended."""
        return self._state is _BODY

    async def ask(self, head: bytes, body: bytes) -> None:
        """Write a request and return when the head of its answer is known.

        Raises:
            UpstreamError: the connection was closed, the first byte did not come in time, or the answer is not HTTP.
        """
        transport = self._transport
        if transport is None:
            raise errors.gone_without_answer(self._name)
        self._state = _HEAD
        self._overhead = 0
        self._may_be_kept = False
        self.has_received = False
        self.status = 0
        if len(body) < MAX_COPY:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        while self._state is _HEAD:
            await self._wait(self._first_byte_timeout)
        if self._error is not None and not self.status:
            raise self._error  # otherwise the head, and perhaps a body, must be read first

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended and was read to its end."""
        return self._state is _DONE and not self._pieces

    def take_pieces(self) -> list[bytes]:
        """The pieces of an answer that has arrived whole, as a small one does with its head.

        Empty if it has not.
        """
        return self._taken() if self._state is _DONE else []

    async def read(self) -> bytes:
        """The bytes that have arrived, or the next ones; empty at the end.

        Raises:
            UpstreamError: the answer was cut, or nothing came for the idle time.
        """
        while not self._pieces:
            if self._state is _DONE:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(self._idle_timeout)
        return b"".join(self._taken())

    async def forward(self, take: Take) -> bool:
        """Pass each read to `take` as soon as it comes; the event loop calls `take`. See `Reply.forward`.

        Raises:
            UpstreamError: as `read`.
        """
        while True:
            if self._pieces:
                if not take(self._taken()):
                    return False
            elif self._state is _DONE:
                return True
            elif self._error is not None:
                raise self._error
            else:
                self._take = take
                try:
                    if not await self._wait(self._idle_timeout):
                        return False
                finally:
                    self._take = None

    def _taken(self) -> list[bytes]:
        taken = self._pieces.copy()
        self._pieces.clear()
        self._held = 0
        if self._is_paused:
            self._resume()
        return taken

    def write(self, data: bytes) -> None:
        """Write bytes that are no request, such as a pong, unless the server does not read what was written before."""
        transport = self._transport
        if (
            transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() <= MAX_UNREAD
        ):
            transport.write(data)

    def _wait(self, limit: float) -> asyncio.Future[bool]:
        """Wait for the next event of the connection; False if `take` wants no more.

        The timer stays armed from one wait to the next: most waits end long before it.
        """
        loop = self._loop
        self._waiting_since = loop.time()
        self._limit = limit
        due = self._waiting_since + limit
        if self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(due, self._look_at_clock)
        self._waiter = loop.create_future()
        return self._waiter

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        due = self._waiting_since + self._limit
        if self._loop.time() < due - CLOCK_GRAIN:
            self._timer = self._loop.call_at(due, self._look_at_clock)
        elif self._state is _HEAD:
            self.fail(errors.no_answer(self._name, self._limit))
        else:
            self.fail(errors.gone_silent(self._name, self._limit))

    def fail(self, error: UpstreamError) -> None:
        """End the connection, and with it the answer that it carries."""
        self._state = _FAILED
        self.abort()
        self._error = error
        self._wake()

    def _wake(self, *, goes_on: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(goes_on)

    def _pause(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._is_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or self._state not in _ANSWERING:
            self._take_between(data)
            return
        self.has_received = True
        held = len(self._pieces)
        try:
            if parser.feed_data(data):
                return
        except _PARSER_FAILURES as error:
            if self._state is not _DONE:
                self.fail(errors.not_http(self._name, str(error)))
                return
            self._may_be_kept = False
            self._rest = _behind(error, data)
        take = self._take
        pieces = self._pieces
        if len(pieces) > held:
            self._overhead = 0
        elif self._state in _ANSWERING and not (self._is_switched or self._has_room_for(len(data))):
            return
        if take is None:
            self._keep(data)
            return
        if self._state is _DONE:
            del pieces[self._whole :]
        if pieces:
            self._waiting_since = self._loop.time()
            is_wanted = take(pieces)
            pieces.clear()
            if not is_wanted:
                self._take = None
                self._wake(goes_on=False)
                return
        if self._state is not _BODY:
            self._wake()

    def _keep(self, data: bytes) -> None:
        """Buffer received bytes until they are read."""
        if self._state is not _HEAD:
            if self._state is _DONE:
                del self._pieces[self._whole :]
            self._held += len(data)
            if self._held > HIGH_WATER and self._pieces and not self._is_paused:
                self._pause()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def _has_room_for(self, size: int) -> bool:
        """Count bytes outside the body: the parser buffers a line of the head or of the trailers until it ends."""
        self._overhead += size
        if self._overhead <= MAX_HEAD_BYTES:
            return True
        what = (
            f"a head of over {MAX_HEAD_BYTES} bytes"
            if self._state is _HEAD
            else f"over {MAX_HEAD_BYTES} bytes of trailers or chunk extensions"
        )
        self.fail(errors.not_http(self._name, what))
        return False

    def _take_between(self, data: bytes) -> None:
        """Handle bytes that come while no answer is awaited."""
        if self._parser is not None and self._is_switched:
            self._parser.feed_data(data)
        else:
            self.refuse_data()

    def refuse_data(self) -> None:
        """Handle bytes that belong to no answer."""
        self._may_be_kept = False
        if self._state is _IDLE:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._parser = None  # it refers to this connection; the cycle would need the collector
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cause = "the connection was closed" if exc is None else exc
        if self._state is _HEAD:
            if self.has_received:
                self.fail(errors.cut_short(self._name, cause))
            else:
                self.fail(errors.gone_without_answer(self._name))
        elif self._state is _BODY:
            if self._ends_with_connection and exc is None:
                self._state = _DONE
                self._wake()
            else:
                self.fail(errors.cut_short(self._name, cause))

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._state is _DONE:
            self._may_be_kept = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._state is _HEAD:  # otherwise a trailer
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser is None or self._state is not _HEAD:
            return
        status = self._parser.get_status_code()
        if 100 <= status <= 199 and status != _SWITCHING:
            self._fields.clear()  # an interim answer ("Continue", "Early Hints")
            return
        headers: dict[str, str] = {}
        for name, value in self._fields:
            field = _names.get(name) or _name(name)
            text = value.decode("latin-1")
            headers[field] = f"{headers[field]}, {text}" if field in headers else text
        self._fields.clear()
        self.status = status
        self.headers = headers
        self._ends_with_connection = (
            not self._is_switched
            and "content-length" not in headers
            and not _is_chunked(headers.get("transfer-encoding", ""))
        )
        self._state = _BODY
        if status == _SWITCHING:  # what follows is in another protocol, and waits for its parser
            self._state = _DONE
            self._pause()

    def on_message_complete(self) -> None:
        if self._state is _BODY and self._parser is not None:
            self._state = _DONE
            self._whole = len(self._pieces)
            self._may_be_kept = self._parser.should_keep_alive()


def _is_chunked(transfer_encoding: str) -> bool:
    """Whether the body is chunked: the last encoding is `chunked`, in any letter case (RFC 9112, sections 6.3 and 7)."""
    return transfer_encoding.rpartition(",")[2].strip(" \t").lower() == "chunked"


def _behind(error: Exception, data: bytes) -> bytes:
    """What follows the answer 101 in a read: the exception says where another protocol begins."""
    is_switching = isinstance(error, httptools.HttpParserUpgrade)
    return data[int(str(error)) :] if is_switching else b""


def _name(raw: bytes) -> str:
    """A header's name in lower case, cached up to a limit."""
    name = raw.decode("latin-1").lower()
    if len(_names) < MAX_NAMES and len(raw) <= MAX_NAME:
        _names[raw] = name
    return name
