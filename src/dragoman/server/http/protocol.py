"""uvicorn's HTTP protocol, with limits on what a client may send and how long it may take, and without ASGI for
conversations.

A request that the application serves `directly` gets a `Cycle` instead of an ASGI task: there is no scope and there are no
messages, and when the client leaves the cycle is called instead of having to wait for it. uvicorn serves all other requests.

What a client sends is counted by reads. Bytes that are no body (heads, chunk sizes and their extensions, trailers, empty
lines) may run ahead of the body by `max_header_bytes`; beyond that the connection is refused. Trailers are read and dropped.
A request that was answered before it was complete may send `_DISCARDED` times `max_body_bytes` more, a malformed one
`_MOST_GARBAGE`, which is dropped: a client that writes all before it reads would never see its answer otherwise.

Nobody arms a timer for a request. `run.Server` calls `check_times` of each connection about once a second:

    reading           how long                                          what happens then
    BETWEEN requests  idle_timeout, before the first one head_timeout   closed
    HEAD              head_timeout from its first byte                  408, however fast it trickles
    BODY              body_timeout, with less than _LEAST_RATE          408; if it was answered already: closed
    OVER              _LINGER, for the client to read why               closed
    any               send_timeout without any of an answer taken       the answer is cut

An answer that is running is never disturbed: what is malformed behind it only ends the connection after it.
"""

import asyncio
import errno
import logging
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum, auto
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman._json import dumps
from dragoman.config.settings import ServerSettings
from dragoman.server.http.connection import ClientConnection
from dragoman.server.http.cycle import STATUS_LINES, Cycle, Flow

logger = logging.getLogger(__name__)

# Chunks of one byte each have five bytes around each byte; more than eight is not how anybody sends a body.
_AROUND_A_BYTE = 8
# A body twice as large as allowed is still read to its end, so that its sender sees the 413.
_DISCARDED = 2
# What is malformed is not worth so much.
_MOST_GARBAGE = 1024 * 1024
# Bytes a second. A modem is faster; a client that is slower holds a connection for next to nothing.
_LEAST_RATE = 1024
# As long as nginx waits for a client that it has refused.
_LINGER = 5.0
# After a half-close: how soon it is looked whether the client is there, each time twice as long, up to a second.
_FIRST_LOOK = 0.002

# Skipped by every client, asked for or not (RFC 9110, section 15.2); of other interim answers some only know this one.
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Belongs to the size of the next chunk, which may begin with zeros (RFC 9112, section 7.1). Chunks are written whole, so
# between two writes this is the only thing that changes no byte of the body.
_LEADING_ZERO = b"0"

_MALFORMED = "expected a request in HTTP/1.1; what came is malformed"

# Requests ahead of their answers. A read may have thousands of them in it, and all are parsed before any is refused.
_MOST_PIPELINED = 64

# Nothing is ever put into it: requests that come before the answer to the last one are rare.
_EMPTY: deque[tuple[RequestResponseCycle, ASGI3Application]] = deque(maxlen=0)
_DEFAULTS = ServerSettings()

Serve = Callable[[ClientConnection], Coroutine[object, object, None]]
"""Answers one request. What an application has in `directly`, a mapping by path, is served without ASGI."""


class ReadState(Enum):
    """What is being read from a connection."""

    BETWEEN = auto()  # nothing: the last request is complete, whether or not it is answered
    HEAD = auto()
    BODY = auto()
    OVER = auto()  # nothing more is served; what still comes is dropped


# Looked up once: an attribute of an enum costs more than all the rest of a read's bookkeeping.
_BETWEEN, _HEAD, _BODY, _OVER = ReadState.BETWEEN, ReadState.HEAD, ReadState.BODY, ReadState.OVER


class GatewayProtocol(HttpToolsProtocol):
    """One connection. What it holds counts: there is one per open stream."""

    # Beside uvicorn's own attributes: with more than thirty of them a dictionary of its own would be made for each.
    __slots__ = (
        "_body_bytes",
        "_came",
        "_coming",
        "_directly",
        "_discarded",
        "_excess",
        "_has_begun",
        "_hosts",
        "_is_half_closed",
        "_limits",
        "_problem",
        "_reading",
        "_running",
        "_since",
        "_upgrading",
        "_written",
        "_written_at",
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.flow = Flow(self.transport)
        self.pipeline = _EMPTY
        # uvicorn asks whether its log has handlers; whoever has given it some may not have asked for lines.
        self.access_log = self.access_log and self.config.access_log
        is_plain = not (self.root_path or self.access_log or self.limit_concurrency is not None)
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn leaves it open
        self._directly: Mapping[bytes, Serve] = getattr(app, "directly", {}) if is_plain else {}
        self._limits: ServerSettings = getattr(app, "limits", _DEFAULTS)
        self._reading = _BETWEEN
        self._since = self.loop.time()  # when that began, or its time was last renewed
        self._came = 0  # bytes of a body since then
        self._has_begun = False  # whether the last read had the beginning of a request in it
        self._body_bytes = 0  # in the last read
        self._excess = 0  # bytes that are no body, so far as they run ahead of it
        self._discarded = 0
        self._hosts = 0
        self._is_half_closed = False
        self._problem: str | None = None  # why a callback stopped the parser
        self._upgrading: list[tuple[bytes, bytes]] | None = None
        self._coming: Cycle | None = None  # the one whose request is being read
        self._running: Cycle | RequestResponseCycle | None = None  # not always the last that came
        self._written = 0  # bytes that waited for the client when it was last looked, and when they became fewer
        self._written_at = 0.0

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is _OVER:
            self._discard(len(data))
            return
        self._has_begun = False
        self._body_bytes = 0
        # As uvicorn's own, without a timer that is cancelled and armed again (see `check_times`).
        try:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                self._go_on(memoryview(data), upgrade)
        except HttpParserError:
            self._refuse(400, self._problem or _MALFORMED)
            return
        if not self._has_begun:
            self._count(len(data))
        if self._reading is not _BETWEEN:
            if self._has_begun or self._reading is not reading:
                self._since = self.loop.time()
                self._came = 0
            self._came += self._body_bytes

    # asyncio lets it return whether the connection stays open; uvicorn has narrowed that to None.
    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. That may be all it closed, or everything: see `_look`.

        It is answered if its request is complete and it still takes what is sent to it.
        """
        if not self._end_reading():
            return False
        self._is_half_closed = True
        return self._nudge()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._reading = _OVER
        self._leave()
        # They know the connection: with it they would be left for the garbage collector.
        self._coming = None
        self.cycle = cast("RequestResponseCycle", None)
        self.pipeline = _EMPTY

    def resume_writing(self) -> None:
        self._written = 0
        super().resume_writing()

    def check_times(self, now: float) -> None:
        """Let go of a client that takes too long."""
        if not self.transport.is_closing():
            self._check_read(now)
            if self._is_half_closed:
                self._check_half_closed(now)
        # What waits for the client while more is written shows nothing, unless it is so much that nobody writes more.
        # A connection that is closing stays until the client has taken all of it.
        if self.flow.write_paused or self._running is None:
            self._check_written(now)

    # What the parser says.

    def on_message_begin(self) -> None:
        self._reading = _HEAD
        self._has_begun = True
        self._excess = 0
        self._hosts = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is not _HEAD:
            return  # a trailer: it came too late to say who asks, or what for
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        if self._upgrading is not None:
            self.headers, self._upgrading = self._upgrading, None
        elif parser.should_upgrade():
            self._upgrading = self.headers  # `_go_on` is next
            return
        if self._hosts != 1 and (self._hosts or parser.get_http_version() == "1.1"):
            self._problem = f"expected one Host header; got {self._hosts or 'none'}"
            raise HttpParserError(self._problem)
        is_next = self._running is None
        if not is_next:
            self._make_room()
        self._reading = _BODY
        direct = self._direct(parser)
        if direct is None:
            self._coming = None
            self._make_scope()
            super().on_headers_complete()
            return
        turn, serve = direct
        self.headers = []
        self._coming = turn
        self.cycle = cast("RequestResponseCycle", turn)
        if is_next:
            self._start_cycle(turn, serve)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, cast("ASGI3Application", serve)))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._coming is not None:
            self._coming.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrading is not None:
            return
        self._reading = _BETWEEN
        if self._coming is not None:
            self._coming.complete()
            self._coming = None
        else:
            super().on_message_complete()

    def _go_on(self, data: memoryview, upgrade: HttpParserUpgrade) -> None:
        """A request to change to another protocol is served in this one, with its body.

        llhttp takes it for the last in HTTP, and all behind its head for the other protocol's. So another parser gets
        the head without what asks for the change, and then the rest.
        """
        while True:
            data = data[cast("int", upgrade.args[0]) :]
            head = self._plain_head()
            self.parser = HttpRequestParser(self)
            # As uvicorn has it: of several requests at once, those before one that closes are answered.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(head)
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as another:
                upgrade = another
            else:
                return

    def _plain_head(self) -> bytes:
        """The head that was just read, without what asks for another protocol."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._problem = "expected a request for this server; got CONNECT"
            raise HttpParserError(self._problem)
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(each for each in options if each.lower() != b"upgrade")  # noqa: PLW2901 - what is left of it
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join((*lines, b"", b""))

    def _direct(self, parser: HttpRequestParser) -> tuple[Cycle, Serve] | None:
        """The turn of a request that is served without ASGI. What needs more of HTTP than the usual goes the long way."""
        serve = self._directly.get(self.url)
        if serve is None and b"?" in self.url:
            serve = self._directly.get(self.url.partition(b"?")[0])
        if serve is None or self.expect_100_continue:
            return None
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        keep_alive = parser.should_keep_alive()
        return Cycle(self, self.headers, self.url, keep_alive=keep_alive), serve

    def _make_room(self) -> None:
        """For a request that comes before the last one is answered."""
        if self.pipeline is _EMPTY:
            self.pipeline = deque()
        elif len(self.pipeline) >= _MOST_PIPELINED:
            self._problem = f"expected at most {_MOST_PIPELINED} requests ahead of their answers"
            raise HttpParserError(self._problem)

    def _make_scope(self) -> None:
        """What uvicorn makes when a message begins, made now."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers

    # What becomes of it.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        turn = cast("object", cycle)
        if isinstance(turn, Cycle):
            self._start_cycle(turn, cast("Serve", app))
        else:
            self._running = cycle
            super()._start_asgi_task(cycle, app)

    def _start_cycle(self, turn: Cycle, serve: Serve) -> None:
        self._running = turn
        turn.start(self.loop.create_task(serve(turn)))

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._running = None
        self._since = self.loop.time()
        self._discarded = 0
        if (self.flow.read_paused or self.pipeline) and not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        elif self._is_half_closed:
            self.transport.close()
        elif self._reading is _OVER or (self._reading is _BODY and self.expect_100_continue):
            # In the second case the client decides whether the body comes; nobody could distinguish it from a next request.
            self._linger()

    def _count(self, size: int) -> None:
        """A read has gone on with what an earlier one began."""
        self._excess = max(0, self._excess + size - (_AROUND_A_BYTE + 1) * self._body_bytes)
        limit = self._limits.max_header_bytes
        if self._excess > limit:
            self._refuse(
                431,
                f"expected at most {limit} bytes of head, trailers and chunk framing (server.max_header_bytes); got more",
            )
        elif self._reading is _BODY and self.cycle.response_complete:
            self._discard(size)

    def _discard(self, size: int) -> None:
        """Drop what nobody wants, up to a bound."""
        self._discarded += size
        is_body = self._reading is _BODY
        if self._discarded > (
            _DISCARDED * self._limits.max_body_bytes if is_body else _MOST_GARBAGE
        ):
            if self._running is None:
                self.transport.abort()
            else:
                self.flow.pause_reading()

    def _refuse(self, status: int, message: str) -> None:
        """Read no more. The client learns why, unless an answer to it has begun: that one is finished first."""
        logger.info("refused a request: %s", message)
        is_answered = self._reading is _BODY and self.cycle.response_complete
        if self._end_reading():
            return
        self._leave()
        if not is_answered:
            error = {"type": "invalid_request_error", "code": None, "param": None}
            body = dumps({"type": "error", "error": {**error, "message": message}})
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (STATUS_LINES[status], len(body), body)
            )
        self._linger()

    def _end_reading(self) -> bool:
        """Serve nothing but what is here as a whole. Whether that is anything: the connection ends with its answer."""
        is_partial, self._reading = self._reading is _BODY, _OVER
        self._since = self.loop.time()
        self._discarded = 0
        if is_partial and self.pipeline:
            self.pipeline.popleft()  # nobody has begun to answer it
        elif is_partial and self._running is not None and not self._running.response_started:
            return False
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
        return self._running is not None

    def _leave(self) -> None:
        """Let whoever answers know that the client is gone."""
        running, self._running = self._running, None
        if isinstance(running, Cycle):
            running.leave()
        elif running is not None:
            running.disconnected = True
            running.message_event.set()

    def _linger(self) -> None:
        """Say that this is the end, and wait until the client has heard it.

        Closed at once, with unread bytes in the socket, the system would reset the connection and drop the answer.
        """
        self._reading = _OVER
        if self.flow.read_paused:
            self.flow.resume_reading()
        if not self.transport.is_closing():
            self.transport.write_eof()

    def _check_read(self, now: float) -> None:
        limits, reading = self._limits, self._reading
        waited = now - self._since
        if reading is _BETWEEN:
            if self._running is None:
                is_first = cast("RequestResponseCycle | None", self.cycle) is None
                if waited >= (limits.head_timeout if is_first else limits.idle_timeout):
                    self.transport.close()
        elif reading is _OVER:
            if waited >= _LINGER and self._running is None:
                self.transport.close()
        elif self.flow.read_paused:
            self._since = now  # it is we who are not reading
        elif reading is _BODY:
            self._check_body(now)
        elif waited >= limits.head_timeout:
            self._refuse(408, _late("head", "head_timeout", limits.head_timeout))

    def _check_body(self, now: float) -> None:
        limits = self._limits
        waited = now - self._since
        if waited >= limits.body_timeout:
            if self._running is None:
                self.transport.close()
            elif self._came < waited * _LEAST_RATE:
                self._refuse(408, _late("body", "body_timeout", limits.body_timeout))
            else:
                self._since = now
                self._came = 0

    def _check_written(self, now: float) -> None:
        """Cut off a client that has not taken anything of its answer for too long."""
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            waiting += _unsent(self.transport)
        if not waiting or not self._written or waiting < self._written:
            self._written, self._written_at = waiting, now
        elif now - self._written_at >= self._limits.send_timeout:
            logger.info(
                "cut off a client that took nothing of its answer for %g s (server.send_timeout)",
                self._limits.send_timeout,
            )
            self.transport.abort()

    def _check_half_closed(self, now: float) -> None:
        """The client may have left since it was last sent something."""
        self._look(None)
        running = self._running
        is_silent = running is not None and not running.response_started
        if is_silent and now - self._since >= self._limits.keep_alive_interval:
            self._since = now
            self._nudge()

    def _nudge(self) -> bool:
        """Send a half-closed client bytes that mean nothing: one that is gone answers them with a reset.

        False: no answer is due, so the connection may be closed.
        """
        running = self._running
        if running is None:
            return False
        if not self.flow.write_paused:  # otherwise enough is on its way
            if not running.response_started:
                # An HTTP/1.0 client may not get an interim answer (RFC 9110, section 15.2): its own answer shows it.
                if isinstance(running, Cycle) or running.scope["http_version"] != "1.0":
                    self.transport.write(_CONTINUE)
            elif running.chunked_encoding:
                self.transport.write(_LEADING_ZERO)
            # The rest of a body that is not chunked follows by itself.
        self.loop.call_later(_FIRST_LOOK, self._look, _FIRST_LOOK)
        return True

    def _look(self, delay: float | None) -> None:
        """Whether a client that closed its side is there: one that is gone answers what it is sent with a reset.

        Nobody reads from the socket any more, so nobody would notice.
        """
        if self.transport.is_closing():
            return
        sock = cast("socket.socket | None", self.transport.get_extra_info("socket"))
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        elif delay is not None and delay < 1:
            self.loop.call_later(2 * delay, self._look, 2 * delay)

    def _unset_keepalive_if_required(self) -> None:
        """There is no timer."""

    def _unsupported_upgrade_warning(self) -> None:
        """Not worth a warning: Codex asks for a WebSocket each time, and goes on without."""


def _late(what: str, setting: str, seconds: float) -> str:
    return f"expected the {what} of the request within {seconds:g} s (server.{setting}); it stalled"


if sys.platform == "linux":
    import fcntl
    import termios

    def _unsent(transport: asyncio.Transport) -> int:
        """Bytes that the system holds for a client. It says that there is room only when a third of them is gone."""
        sock = cast("socket.socket | None", transport.get_extra_info("socket"))
        if sock is None:
            return 0
        try:
            found = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTTY):
                raise
            return 0
        return int.from_bytes(found, sys.byteorder)

else:

    def _unsent(_transport: asyncio.Transport) -> int:
        return 0
