"""uvicorn's HTTP protocol, with limits on how much a client may send and how long it may take, and without ASGI for
conversations.

A request whose path is in the application's `directly` gets a `Cycle` instead of an ASGI task: there is no scope and there are
no messages, and the cycle is called when the client leaves, without waiting for it. uvicorn serves all other requests.

Received bytes are counted per read. Bytes outside of bodies (heads, chunk sizes and their extensions, trailers, empty
lines) may exceed the body by `max_header_bytes`; beyond that the connection is refused. Trailers are read and dropped.
A request that was answered before it was complete may send `_DISCARDED` times `max_body_bytes` more, and a malformed one
`_MOST_GARBAGE`; these bytes are dropped. Otherwise a client that writes everything before it reads would never see its answer.

No request has a timer of its own. `run.Server` calls `check_times` of each connection about once a second:

    reading           time limit                                        when it expires
    BETWEEN requests  idle_timeout, before the first one head_timeout   closed
    HEAD              head_timeout from its first byte                  408, even if bytes still trickle in
    BODY              body_timeout, with less than _LEAST_RATE          408; closed if already answered
    OVER              _LINGER, so that the client can read the error    closed
    any               send_timeout without the client reading           the answer is cut

A running answer is never disturbed: malformed bytes behind its request only end the connection after the answer.
"""

import asyncio
import logging
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum, auto
from operator import itemgetter
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman._json import dumps
from dragoman.config.settings import ServerSettings
from dragoman.server.http.connection import ClientConnection
from dragoman.server.http.cycle import STATUS_LINES, Cycle, Flow, unsent_bytes
from dragoman.server.http.websocket import WebSocketProtocol, asks_for_websocket

logger = logging.getLogger(__name__)

# Chunks of one byte each have five bytes around each byte; no real client needs more than eight.
_AROUND_A_BYTE = 8
# A body of up to twice the allowed size is read to its end, so that its sender sees the 413.
_DISCARDED = 2
# For bytes behind a malformed request.
_MOST_GARBAGE = 1024 * 1024
# Bytes per second. A modem is faster; a slower client would occupy a connection for almost no data.
_LEAST_RATE = 1024
# nginx waits this long for a client that it has refused.
_LINGER = 5.0
# Seconds in which a client that has connected must begin its request if the server stops: a client connects to send at once.
_FIRST_REQUEST = 1.0
# After a half-close: the first delay before checking whether the client is there; it doubles each time, up to a second.
_FIRST_LOOK = 0.002

# Every client skips this interim answer, expected or not (RFC 9110, section 15.2); some know no other interim answer.
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# A part of the size of the next chunk, which may begin with zeros (RFC 9112, section 7.1). Chunks are written whole, so
# between two writes this is the only byte that does not change the body.
_LEADING_ZERO = b"0"

_UPGRADE_REQUIRED = 426
_UPGRADE = b"upgrade: websocket\r\nconnection: upgrade, close\r\n"
_ASKS_TO_SWITCH = re.compile(
    rb"^upgrade[ \t]*:[ \t]*websocket[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)

_NAME_OF = itemgetter(0)

_MALFORMED = "expected a request in HTTP/1.1; what came is malformed"

# The limit of requests ahead of their answers. One read may contain thousands, and all are parsed before any is refused.
_MOST_PIPELINED = 64

# Shared and never filled: requests that come before the previous answer are rare.
_EMPTY: deque[tuple[RequestResponseCycle, ASGI3Application]] = deque(maxlen=0)
_DEFAULTS = ServerSettings()

Serve = Callable[[ClientConnection], Coroutine[object, object, None]]
"""Answers one request. An application's `directly` maps paths to these functions, which are served without ASGI."""


class ReadState(Enum):
    """What is being read from a connection."""

    BETWEEN = auto()  # nothing: the last request is complete, answered or not
    HEAD = auto()
    BODY = auto()
    OVER = auto()  # nothing more is served; further bytes are dropped


# Looked up once: an enum attribute costs more than all the other bookkeeping of a read.
_BETWEEN, _HEAD, _BODY, _OVER = ReadState.BETWEEN, ReadState.HEAD, ReadState.BODY, ReadState.OVER


class GatewayProtocol(HttpToolsProtocol):
    """One connection. There is one per open stream, so its memory matters."""

    # With more than thirty attributes, uvicorn's included, each instance would get a dictionary of its own.
    __slots__ = (
        "_body_bytes",
        "_came",
        "_coming",
        "_directly",
        "_discarded",
        "_excess",
        "_has_begun",
        "_hosts",
        "_is_ending",
        "_is_half_closed",
        "_limits",
        "_problem",
        "_read_bytes",
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
        # uvicorn only checks whether its logger has handlers; handlers alone do not mean that access lines are wanted.
        self.access_log = self.access_log and self.config.access_log
        is_plain = not (self.root_path or self.access_log or self.limit_concurrency is not None)
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn does not type it
        self._directly: Mapping[bytes, Serve] = getattr(app, "directly", {}) if is_plain else {}
        self._limits: ServerSettings = getattr(app, "limits", _DEFAULTS)
        self._reading = _BETWEEN
        self._since = self.loop.time()  # when `_reading` began, or its time was last renewed
        self._came = 0  # bytes of a body since `_since`
        self._has_begun = False  # whether a request began in the last read
        self._read_bytes = 0  # of the last read
        self._body_bytes = 0  # of the last read, those of a body
        self._excess = 0  # bytes outside of bodies, beyond what the body allows
        self._discarded = 0
        self._hosts = 0
        self._is_half_closed = False
        self._is_ending = False  # the server stops: no request after the next answer
        self._problem: str | None = None  # why a callback stopped the parser
        self._upgrading: list[tuple[bytes, bytes]] | None = None
        self._coming: Cycle | None = None  # the cycle whose request is being read
        self._running: Cycle | RequestResponseCycle | None = None  # not always the last request's
        self._written = 0  # unread bytes at the last check, and the time of their last decrease
        self._written_at = 0.0

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is _OVER:
            self._discard(len(data))
            return
        self._has_begun = False
        self._read_bytes = len(data)
        self._body_bytes = 0
        # As uvicorn does, but without cancelling and arming a timer for each read (see `check_times`).
        try:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                self._go_on(memoryview(data), upgrade)
        except HttpParserError:
            self._refuse(426 if self._asks_to_switch(data) else 400, self._problem or _MALFORMED)
            return
        if not self._has_begun:
            self._count(self._read_bytes)
        if self._reading is not _BETWEEN:
            if self._has_begun or self._reading is not reading:
                self._since = self.loop.time()
                self._came = 0
            self._came += self._body_bytes

    # In asyncio this method may return whether the connection stays open; uvicorn narrows the type to None.
    def eof_received(self) -> bool:  # type: ignore[override]
        """Handle the end of the client's data. The client may have closed one direction or both: see `_look`.

        The client is answered if its request is complete and it still reads.
        """
        if not self._end_reading():
            return False
        self._is_half_closed = True
        return self._nudge()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._reading = _OVER
        self._leave()
        # These objects refer to the connection: the cycle of references would wait for the garbage collector.
        self._coming = None
        self.cycle = cast("RequestResponseCycle", None)
        self.pipeline = _EMPTY

    def resume_writing(self) -> None:
        self._written = 0
        super().resume_writing()

    def shutdown(self) -> None:
        """Called when the server stops. A request that is coming, or the first one of a new connection, is still answered.

        Its client cannot know that the server stops. If other processes serve the address, it should not notice at all.
        """
        if self._is_ending:
            return
        self._is_ending = True
        is_new = cast("RequestResponseCycle | None", self.cycle) is None
        if self._reading is _HEAD or (is_new and self._reading is _BETWEEN):
            self.loop.call_later(_FIRST_REQUEST, self._close_unused, self.cycle)
        else:
            super().shutdown()

    def _close_unused(self, cycle: RequestResponseCycle | None) -> None:
        if self.cycle is cycle:
            self.transport.close()

    def check_times(self, now: float) -> None:
        """Close the connection of a client that takes too long."""
        if not self.transport.is_closing():
            self._check_read(now)
            if self._is_half_closed:
                self._check_half_closed(now)
        # While more is written, unread bytes prove nothing, unless the buffer is so full that writing has paused.
        # A closing connection stays open until the client has read everything.
        if self.flow.write_paused or self._running is None:
            self._check_written(now)

    # --- called by the parser

    def on_message_begin(self) -> None:
        self._reading = _HEAD
        self._has_begun = True
        self._excess = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # Also of a trailer, which is too late to affect how the request is served: nobody reads that list.
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        if self._upgrading is not None:
            self.headers, self._upgrading = self._upgrading, None
            is_upgrade = False
        else:
            is_upgrade = parser.should_upgrade()
        names = list(map(_NAME_OF, self.headers))
        self._hosts = names.count(b"host")
        if b"expect" in names:
            self.expect_100_continue = any(
                name == b"expect" and value.lower() == b"100-continue"
                for name, value in self.headers
            )
        if is_upgrade:
            self._upgrading = self.headers  # `_go_on` follows
            return
        if self._hosts != 1 and (self._hosts or parser.get_http_version() == "1.1"):
            self._problem = f"expected one Host header; got {self._hosts or 'none'}"
            raise HttpParserError(self._problem)
        is_next = self._running is None
        if not is_next:
            self._make_room()
        direct = self._direct(parser)
        if direct is None:
            self._coming = None
            self._make_scope()
            super().on_headers_complete()  # raises for a target that cannot be parsed
            self._reading = _BODY
            self.headers = []
            if self._is_ending:
                self.cycle.keep_alive = False
            return
        self._reading = _BODY
        turn, serve = direct
        self.headers = []
        self._coming = turn
        self.cycle = turn  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] -- a cast is a call
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
        if self.headers:  # of a trailer
            self.headers = []
        if self._coming is not None:
            self._coming.complete()
            self._coming = None
        else:
            super().on_message_complete()

    def _go_on(self, data: memoryview, upgrade: HttpParserUpgrade) -> None:
        """Serve a request that asks for a protocol change, body included, in HTTP/1.1.

        llhttp regards it as the last HTTP request, and everything after its head as the other protocol. So a new parser gets
        the head without the headers that ask for the change, and then the rest.
        """
        while True:
            data = data[cast("int", upgrade.args[0]) :]
            if self._is_websocket():
                self._hand_over(bytes(data))
                return
            head = self._plain_head()
            # It may have come in several reads, so that its size must be measured.
            self._read_bytes = sys.maxsize
            self.parser = HttpRequestParser(self)
            # As in uvicorn: of several pipelined requests, those before one that closes the connection are answered.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(head)
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as another:
                upgrade = another
            else:
                return

    def _is_websocket(self) -> bool:
        """Whether the request asks for a WebSocket that the application accepts. If not, HTTP answers it, with 426."""
        parser = self.parser
        if parser.get_method() != b"GET" or parser.get_http_version() != "1.1":
            return False
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn does not type it
        paths: frozenset[str] = getattr(app, "websocket_paths", frozenset())
        path = self.url.partition(b"?")[0].decode("latin-1")
        is_free = self._running is None and not self.pipeline and self._hosts == 1
        return is_free and path in paths and asks_for_websocket(self.headers)

    def _asks_to_switch(self, data: bytes) -> bool:
        """Whether the head that could not be parsed is a WebSocket's handshake. `data`: the read where that was noticed.

        On 400 Codex gives up, whatever the reason; on 426 it uses HTTP, and learns there what is wrong.
        """
        if self._reading is not _HEAD or self.parser.get_method() != b"GET":
            return False
        is_read = any(
            name == b"upgrade" and value.strip().lower() == b"websocket"
            for name, value in self.headers
        )
        return is_read or _ASKS_TO_SWITCH.search(data) is not None

    def _hand_over(self, data: bytes) -> None:
        """Have a WebSocket protocol serve the connection from now on. `data`: what came behind the head."""
        self.connections.discard(self)
        protocol = WebSocketProtocol(self.config, self.server_state, self.app_state)
        protocol.connection_made(self.transport)
        if self.flow.write_paused:  # by an earlier answer, which the client has not read
            protocol.pause_writing()
        self.transport.set_protocol(protocol)
        protocol.begin(self.url, self.headers, data)
        # It refers to this object, which nothing else needs any more: the cycle would wait for the garbage collector.
        self.parser = cast("HttpRequestParser", None)

    def _plain_head(self) -> bytes:
        """The head that was just read, without the headers that ask for another protocol."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._problem = "expected a request for this server; got CONNECT"
            raise HttpParserError(self._problem)
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(each for each in options if each.lower() != b"upgrade")  # noqa: PLW2901 - the remaining options
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join((*lines, b"", b""))

    def _direct(self, parser: HttpRequestParser) -> tuple[Cycle, Serve] | None:
        """The cycle and server of a request that needs no ASGI. Requests with unusual HTTP features go through uvicorn."""
        serve = self._directly.get(self.url)
        if serve is None and b"?" in self.url:
            serve = self._directly.get(self.url.partition(b"?")[0])
        if serve is None or self.expect_100_continue:
            return None
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        keep_alive = parser.should_keep_alive() and not self._is_ending
        # A head that came in one read, as most do, has no more bytes than the read. The limit is that of now, not of `_limits`.
        line_bytes = None
        most: int = self.app.limits.max_header_bytes  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] -- a cast is a call
        if not self._has_begun or self._read_bytes > most:
            line_bytes = len(b"POST  HTTP/1.1\r\n") + len(self.url)
        return Cycle(self, self.headers, line_bytes, keep_alive=keep_alive), serve

    def _make_room(self) -> None:
        """Make room in the pipeline for a request that comes before the previous one is answered."""
        if self.pipeline is _EMPTY:
            self.pipeline = deque()
        elif len(self.pipeline) >= _MOST_PIPELINED:
            self._problem = f"expected at most {_MOST_PIPELINED} requests ahead of their answers"
            raise HttpParserError(self._problem)

    def _make_scope(self) -> None:
        """Make the ASGI scope, which uvicorn makes when a message begins."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers

    # --- the end of a request or of the connection

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
            # In the second case the client may or may not send the body, which could not be distinguished from a next request.
            self._linger()

    def _count(self, size: int) -> None:
        """Count a read that only continues an earlier request."""
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
        """Drop unwanted bytes, up to a limit."""
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
        """Stop reading, and send the error; but if an answer has begun, finish it and send no error."""
        logger.info("refused a request: %s", message)
        is_answered = self._reading is _BODY and self.cycle.response_complete
        if self._end_reading():
            return
        self._leave()
        if not is_answered:
            error = {"type": "invalid_request_error", "code": None, "param": None}
            body = dumps({"type": "error", "error": {**error, "message": message}})
            fields = _UPGRADE if status == _UPGRADE_REQUIRED else b"connection: close\r\n"
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
                % (STATUS_LINES[status], len(body), fields, body)
            )
        self._linger()

    def _end_reading(self) -> bool:
        """Stop reading; serve only complete requests. Returns whether there is one: the connection ends after its answer."""
        is_partial, self._reading = self._reading is _BODY, _OVER
        self._since = self.loop.time()
        self._discarded = 0
        if is_partial and self.pipeline:
            self.pipeline.popleft()  # not yet being answered
        elif is_partial and self._running is not None and not self._running.response_started:
            return False
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
        return self._running is not None

    def _leave(self) -> None:
        """Notify the running cycle that the client has gone."""
        running, self._running = self._running, None
        if isinstance(running, Cycle):
            running.leave()
        elif running is not None:
            running.disconnected = True
            running.message_event.set()

    def _linger(self) -> None:
        """End our side of the connection, and wait until the client has read the answer.

        If it closed at once, with unread bytes in the socket, the system would reset the connection and drop the answer.
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
            self._since = now  # the delay is ours: we do not read
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
        """Close the connection of a client that has read nothing of its answer for too long."""
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            waiting += unsent_bytes(self.transport)
        if not waiting or not self._written or waiting < self._written:
            self._written, self._written_at = waiting, now
        elif now - self._written_at >= self._limits.send_timeout:
            logger.info(
                "cut off a client that read nothing of its answer for %g s (server.send_timeout)",
                self._limits.send_timeout,
            )
            self.transport.abort()

    def _check_half_closed(self, now: float) -> None:
        """Check whether a half-closed client has left since the last write."""
        self._look(None)
        running = self._running
        is_silent = running is not None and not running.response_started
        if is_silent and now - self._since >= self._limits.keep_alive_interval:
            self._since = now
            self._nudge()

    def _nudge(self) -> bool:
        """Send a half-closed client bytes without meaning: a client that has gone answers with a reset.

        False: there is no answer to send, so the connection may be closed.
        """
        running = self._running
        if running is None:
            return False
        if not self.flow.write_paused:  # otherwise enough bytes are in flight
            if not running.response_started:
                # An HTTP/1.0 client must not get an interim answer (RFC 9110, section 15.2): it gets no probe.
                if isinstance(running, Cycle) or running.scope["http_version"] != "1.0":
                    self.transport.write(_CONTINUE)
            elif running.chunked_encoding:
                self.transport.write(_LEADING_ZERO)
            # A body that is not chunked needs no probe: its remaining bytes serve as one.
        self.loop.call_later(_FIRST_LOOK, self._look, _FIRST_LOOK)
        return True

    def _look(self, delay: float | None) -> None:
        """Close the connection if a half-closed client has gone: such a client answers our bytes with a reset.

        After the half-close nothing reads from the socket, so the reset must be looked for.
        """
        if self.transport.is_closing():
            return
        sock = cast("socket.socket | None", self.transport.get_extra_info("socket"))
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        elif delay is not None and delay < 1:
            self.loop.call_later(2 * delay, self._look, 2 * delay)

    def _unset_keepalive_if_required(self) -> None:
        """Does nothing: this protocol arms no keep-alive timer."""

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing: Codex asks for a WebSocket each time, and continues without one."""


def _late(what: str, setting: str, seconds: float) -> str:
    return f"expected the {what} of the request within {seconds:g} s (server.{setting}); it stalled"
