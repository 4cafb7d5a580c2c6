"""uvicorn's HTTP protocol, with a ceiling on a request's head, and a short way for what the gateway does all day.

The parser keeps a head until it is complete, however long that takes. A head that is a little too large gets its door's
own error from `limits`; one that goes on beyond the ceiling is cut off here, before more of it is kept.

A request that the application serves `directly` gets a `Turn` instead of a task that speaks ASGI: no scope is made for it,
no message passes, and when the client leaves it is called instead of having to wait for that. All else goes uvicorn's way.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman.server.line import Line
from dragoman.server.turn import Flow, Turn

__all__ = ("CEILING", "GatewayProtocol", "Serve")

# Far above any `server.max_header_bytes` in use, and little enough to be held by every connection at once.
CEILING = 1024 * 1024

_BODY = b'{"error":{"message":"expected a request head of at most 1048576 bytes; got more"}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)

# Loops count time in milliseconds and may wake a little early.
_CLOCK_GRAIN = 0.002

# Nothing is ever put into it: requests that come before the answer to the last one are rare.
_EMPTY: deque[tuple[RequestResponseCycle, ASGI3Application]] = deque(maxlen=0)

Serve = Callable[[Line], Coroutine[object, object, None]]
"""Answers one request. What an application has in `directly`, a mapping by path, is served without ASGI."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection. What it holds counts: there is one per open stream."""

    # Beside uvicorn's own attributes: with more than thirty of them a dictionary of its own would be made for each.
    __slots__ = ("_coming", "_directly", "_head_bytes", "_idle_since", "_is_in_head", "_running")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.flow = Flow(self.transport)
        self.pipeline = _EMPTY
        # uvicorn asks whether its log has handlers; whoever has given it some may not have asked for lines.
        self.access_log = self.access_log and self.config.access_log
        is_plain = not (self.root_path or self.access_log or self.limit_concurrency is not None)
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn leaves it open
        self._directly: Mapping[bytes, Serve] = getattr(app, "directly", {}) if is_plain else {}
        self._is_in_head = False
        self._head_bytes = 0
        self._idle_since = 0.0
        self._coming: Turn | None = None  # the one whose request is being read
        self._running: Turn | None = None  # with pipelining not always the last one that came

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > CEILING:
                self.transport.write(_REFUSAL)
                self.transport.close()
                return
        # As uvicorn's own, without the keep-alive's timer, which is left alone (see `_unset_keepalive_if_required`).
        try:
            self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess] -- it is None after the end
        except HttpParserError:
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)
        except HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._running is not None:
            self._running.leave()
        # They know the connection: with it they would be left for the garbage collector.
        self._coming = self._running = None
        self.cycle = cast("RequestResponseCycle", None)

    # What the parser says.

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        cycle = self.cycle  # None at first, whatever uvicorn says
        is_next = not cycle or cycle.response_complete
        if not is_next and self.pipeline is _EMPTY:
            self.pipeline = deque()
        direct = self._direct(self.parser)
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
            self._start_turn(turn, serve)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, cast("ASGI3Application", serve)))

    def on_body(self, body: bytes) -> None:
        if self._coming is not None:
            self._coming.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._coming is not None:
            self._coming.complete()
            self._coming = None
        else:
            super().on_message_complete()

    def _is_idle(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _direct(self, parser: HttpRequestParser | None) -> tuple[Turn, Serve] | None:
        """The turn of a request that is served without ASGI. What needs more of HTTP than the usual goes the long way."""
        serve = self._directly.get(self.url)
        if serve is None and b"?" in self.url:
            serve = self._directly.get(self.url.partition(b"?")[0])
        if serve is None or parser is None or self.expect_100_continue:
            return None
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        if parser.should_upgrade():
            return None
        return Turn(self, self.headers, keep_alive=parser.should_keep_alive()), serve

    def _make_scope(self) -> None:
        """What uvicorn makes when a message begins, made now."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers

    # What becomes of it.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        turn = cast("object", cycle)
        if type(turn) is Turn:
            self._start_turn(turn, cast("Serve", app))
        else:
            super()._start_asgi_task(cycle, app)

    def _start_turn(self, turn: Turn, serve: Serve) -> None:
        self._running = turn
        turn.start(self.loop.create_task(serve(turn)))

    def on_response_complete(self) -> None:
        self._running = None
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None or self.pipeline:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            if self.flow.read_paused:
                self.flow.resume_reading()

    def _unset_keepalive_if_required(self) -> None:
        """Left armed from one request to the next: it looks at the clock when it is due."""

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._is_in_head or not self._is_idle():
            return  # the end of the answer arms it again
        due = self._idle_since + self.timeout_keep_alive
        if self.loop.time() < due - _CLOCK_GRAIN:
            self.timeout_keep_alive_task = self.loop.call_at(due, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _unsupported_upgrade_warning(self) -> None:
        """Not worth a warning: Codex asks for a WebSocket each time, and is told to do without."""
