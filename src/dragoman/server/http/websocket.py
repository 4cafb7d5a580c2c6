"""uvicorn's WebSocket protocol, behind our HTTP protocol: limits, frames without ASGI, a shutdown that waits for responses.

`websockets` reads and writes the frames. Its own reading of the handshake allows fewer and shorter headers than
`server.max_header_bytes`, and answers some mistakes with 400, on which Codex gives up instead of falling back to HTTP. So
`protocol.GatewayProtocol` checks the request (`asks_for_websocket`) and passes on only what the handshake needs.

A read is taken in slices of `_SLICE` bytes, and the next one only when the session has taken every message of the last: a
read may hold thousands of frames of six bytes. What comes before the handshake is answered waits for it. A client that does
not read gets the answer to its last ping only, when it reads again (RFC 6455, section 5.5.3).

No connection has a timer of its own. `run.Server` calls `check_times` about once a second:

    the client                                              time limit                       when it expires
    reads nothing of what was written                       send_timeout                     cut off
    sends nothing, and has read everything                  keep_alive_interval              pinged
    … and answers no ping                                   SILENT_INTERVALS times that      cut off
    has begun a message, with less than _LEAST_RATE         body_timeout                     closed with code 1008
"""

import asyncio
import logging
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from dragoman.config.settings import ServerSettings
from dragoman.gateway.answer import Pending
from dragoman.server.http.cycle import unsent_bytes

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

TEXTS = "dragoman.texts"
"""The extension of the ASGI scope with which a session sends several frames at once, and without awaiting."""

WEBSOCKET_ROOM = 2
"""A message of up to so many times `max_body_bytes` is read to its end, so that its sender gets an error; a larger one ends
the connection with code 1009."""

SILENT_INTERVALS = 3
"""A client that has sent nothing for so many `keep_alive_interval`, not even the answer to a ping, is cut off: 45 seconds,
in which a client may be in a tunnel or busy."""

# RFC 6455, section 4.1: sixteen bytes in base64.
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_LINGER = 5.0  # seconds for a client to answer our close
# Bytes that are parsed at a time: 2,700 of the smallest frames, some 20 ms.
_SLICE = 16 * 1024
# Bytes per second of a message, as for the body of a POST.
_LEAST_RATE = 1024

_PING_BYTES = 2  # of a ping without payload

_NOTHING = memoryview(b"")
_DEFAULTS = ServerSettings()
_logger = logging.getLogger(__name__)
# Uvicorn logs each connection as INFO; our log has a line for each response.
_logger.setLevel(logging.WARNING)


def asks_for_websocket(headers: Collection[tuple[bytes, bytes]]) -> bool:
    """Whether these headers are a correct WebSocket handshake."""
    found = dict(headers)
    return (
        found.get(b"upgrade", b"").strip().lower() == b"websocket"
        and _KEY.fullmatch(found.get(b"sec-websocket-key", b"").strip()) is not None
        and found.get(b"sec-websocket-version", b"").strip() == b"13"
    )


class _Messages:
    """The events that the session has not taken. In place of `asyncio.Queue`, whose four deques take 3 KB of each connection."""

    __slots__ = ("_events", "_waiter")

    def __init__(self) -> None:
        self._events: list[ASGIReceiveEvent] = []  # few: a client that does not wait is not read
        self._waiter: asyncio.Future[None] | None = None

    def put_nowait(self, event: "ASGIReceiveEvent") -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def empty(self) -> bool:
        return not self._events

    async def get(self) -> "ASGIReceiveEvent":
        """Only one task may wait."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._waiter = None
        return self._events.pop(0)


class _Writable:
    """Whether the client reads. In place of `asyncio.Event`, which has a deque even if nobody waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: asyncio.Event | None = None  # None: it reads

    def is_set(self) -> bool:
        return self._waiting is None

    def set(self) -> None:
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def clear(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.Event()

    async def wait(self) -> None:
        if self._waiting is not None:
            await self._waiting.wait()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. The session that serves it (`server.websocket`) ends it at a shutdown."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, object]
    ) -> None:
        super().__init__(config, server_state, app_state)
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn does not type it
        self._limits: ServerSettings = getattr(app, "limits", _DEFAULTS)
        self.logger = _logger
        self.queue = cast("asyncio.Queue[ASGIReceiveEvent]", _Messages())
        self.writable = cast("asyncio.Event", _Writable())
        self.close_timeout = _LINGER
        self._headers: list[tuple[bytes, bytes]] = []
        self._unparsed = _NOTHING  # the rest of a read; while there is one, nothing is read
        self._pong = b""  # the answer to the last ping of a client that does not read
        self._came = 0  # bytes that came since the last check
        self._heard_at = 0.0  # when the client last sent or read something
        self._pings = 0  # how many pings were sent since then
        self._unread = 0  # unread bytes at the last check, and the time of their last decrease
        self._unread_since = 0.0
        # Of an incomplete message: when its rate was last checked, and what came since.
        self._message_since: float | None = None
        self._message_came = 0

    def begin(self, url: bytes, headers: list[tuple[bytes, bytes]], data: bytes) -> None:
        """Start with a request that `GatewayProtocol` has read. `data`: what came behind its head."""
        self._headers = headers
        self._heard_at = self.loop.time()
        found = dict(headers)
        key = found[b"sec-websocket-key"].strip()
        super().data_received(
            b"GET %b HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
            % (url.partition(b"?")[0], key)
        )
        if data:
            self.data_received(data)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        self.scope["headers"] = self._headers
        self._headers = []
        own: dict[object, object] = {
            "send": self.send_texts,
            "is_message_coming": self.is_message_coming,
        }
        self.scope["extensions"] = {**(self.scope.get("extensions") or {}), TEXTS: own}

    # --- what the client sends

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._unparsed or len(data) > _SLICE or not self.handshake_complete:
            self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
            self._parse_on()
        else:
            super().data_received(data)

    def _parse_on(self) -> None:
        """Parse the next slice of a read, if the session has taken everything before it."""
        if self.disconnected or not self._unparsed:
            return
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        if not self.handshake_complete or not self.queue.empty():
            return  # `send` and `receive` call again
        data, self._unparsed = self._unparsed[:_SLICE], self._unparsed[_SLICE:]
        super().data_received(bytes(data))
        if self.transport.is_closing():
            self._unparsed = _NOTHING
        elif self.queue.empty():
            if self._unparsed:
                self.loop.call_soon(self._parse_on)
            else:
                self._read_on()

    def _read_on(self) -> None:
        if self.read_paused:
            self.read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    async def receive(self) -> "ASGIReceiveEvent":
        message = await self.queue.get()
        if self.queue.empty():
            if self._unparsed:
                self.loop.call_soon(self._parse_on)
            else:
                self._read_on()
        else:
            await asyncio.sleep(0)  # others are served between the messages of a burst
        return message

    async def send(self, message: "ASGISendEvent") -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._forget_handshake()
            self._parse_on()  # what came too early
        elif message["type"] == "websocket.http.response.body":
            # The answer is a refusal. Without this, uvicorn logs an error when the session returns.
            self.handshake_complete = True

    def _forget_handshake(self) -> None:
        """Drop the request and the answer, and the parser that keeps the request. No byte of a frame was parsed yet."""
        del self.request, self.response
        if self.conn.state is State.OPEN:
            self.conn.parser.close()
            self.conn.parser = self.conn.parse()
            next(self.conn.parser)

    def handle_text(self, event: Frame) -> None:
        super().handle_text(event)
        # The parser keeps the frame until the next one comes, and it may have 64 MB.
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """Add a fragment to its message. A list of fragments, which may have no bytes, could grow without end."""
        frames = cast("list[bytes | bytearray]", self.frames)
        first = frames[0]
        whole = frames[0] = first if isinstance(first, bytearray) else bytearray(first)
        whole += event.data
        event.data = b""
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                text = str(self.frames[0], "utf-8")
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(CloseCode.INVALID_DATA, "expected a text frame in UTF-8")
                self.handle_parser_exception()
                return
            self.frames = []
            self.queue.put_nowait({"type": "websocket.receive", "text": text})
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()
            return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        pongs = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(pongs))
        elif pongs:
            self._pong = pongs[-1]

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.transport.is_closing():
            self.transport.write(pong)

    def is_message_coming(self) -> bool:
        """Whether the client has sent bytes that the session has not taken."""
        if self.disconnected or self.close_sent:
            return False
        return not self.queue.empty() or bool(self._unparsed) or self._is_incomplete

    def eof_received(self) -> None:
        """End the connection of a client that has closed its direction: without a close frame it has left.

        `transport.close()` would wait until the client has read everything, perhaps forever.
        """
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unparsed = _NOTHING
        self.frames = []
        # These refer to the connection: the cycles of references would wait for the garbage collector.
        self.conn.parser.close()
        if self.handshake_initiated:
            self.scope["extensions"] = {}

    # --- what the client gets

    def send_texts(self, frames: list[bytes]) -> Pending:
        """Send text frames, in one write. Nothing is sent to a client that has left: the session learns of it by ASGI."""
        if self.disconnected or self.close_sent or self.transport.is_closing():
            return None
        for frame in frames:
            self.conn.send_text(frame)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return None if self.writable.is_set() else self._drain

    async def _drain(self) -> None:
        await self.writable.wait()

    def start_keepalive(self) -> None:
        """Starts no timer: `check_times` sends the pings."""

    def shutdown(self) -> None:
        """Called when the server stops: the session closes an open connection when its responses have ended."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()

    # --- times

    def check_times(self, now: float) -> None:
        """Cut off a client that reads nothing, answers no ping, or does not finish its message."""
        if self.disconnected:  # the list of connections to check may be a second old
            return
        came, self._came = self._came, 0
        unread = self.transport.get_write_buffer_size() + unsent_bytes(self.transport)
        has_read = unread < self._unread
        if has_read or not unread or not self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since >= self._limits.send_timeout:
            self._cut_off("read nothing", "server.send_timeout", self._limits.send_timeout)
            return
        if self.transport.is_closing() or self.close_sent or not self.handshake_complete:
            return
        self._check_message(now, came)
        # While the gateway does not read, nothing can come. A ping behind other unread bytes gets no answer: `send_timeout` counts.
        is_held_up = unread > _PING_BYTES * self._pings
        if came or has_read or is_held_up or self.read_paused:
            self._heard_at, self._pings = now, 0
        else:
            self._check_silence(now)

    def _check_silence(self, now: float) -> None:
        """Ping a client of which nothing was heard, and cut it off if it answers none of the pings."""
        interval = self._limits.keep_alive_interval
        missed = (now - self._heard_at) / interval
        if missed >= SILENT_INTERVALS:
            self._cut_off(
                "answered no ping",
                f"{SILENT_INTERVALS} server.keep_alive_interval",
                missed * interval,
            )
        elif missed >= self._pings + 1 and self.writable.is_set():
            self._pings += 1
            self.conn.send_ping(b"")
            self.transport.write(b"".join(self.conn.data_to_send()))

    def _check_message(self, now: float, came: int) -> None:
        """Close the connection if the bytes of an incomplete message come too slowly, as those of a POST's body."""
        is_incomplete = self._is_incomplete
        # While the gateway does not read, nothing can come.
        if not is_incomplete or self.read_paused or self._message_since is None:
            self._message_since, self._message_came = now if is_incomplete else None, 0
            return
        self._message_came += came
        limit = self._limits.body_timeout
        if now - self._message_since >= limit:
            if self._message_came < limit * _LEAST_RATE:
                self.conn.fail(CloseCode.POLICY_VIOLATION, "expected the rest of a message")
                self.handle_parser_exception()
            self._message_since, self._message_came = now, 0

    @property
    def _is_incomplete(self) -> bool:
        return bool(self.frames or self.conn.reader.buffer)

    def _cut_off(self, what: str, setting: str, seconds: float) -> None:
        self.logger.warning(
            "cut off a WebSocket client that %s for %g s (%s)", what, seconds, setting
        )
        self.transport.abort()
