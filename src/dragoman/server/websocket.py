"""Responses over a WebSocket: each `response.create` runs the exchange of a POST, whose stream goes out as text frames.

    text frame ──► read_message ──► Lanes.add ──► Exchange over a SocketConnection ──► text frames
                                        ▲                                  │
                                        └────────── Lanes.end ◄────────────┘

A mistake of the client is answered by a frame of type `error`, and the connection stays open. When the client leaves,
everything that it asked for is cancelled. Headers belong to the connection, so each exchange gets those of the handshake.

This module speaks ASGI, except that our own server takes frames without it (`http.websocket`). `dialects.responses.websocket`
knows the messages.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs
from starlette.types import Receive, Scope, Send

from dragoman._json import dumps
from dragoman.core.failures import error_info, status_of
from dragoman.dialects.responses.websocket import (
    KEEP_ALIVE,
    Create,
    Steer,
    error_frame,
    lane_member,
    read_message,
    read_refused,
)
from dragoman.errors import GatewayError, RequestRefused
from dragoman.gateway.answer import Pending, settle
from dragoman.model.outcome import ErrorInfo
from dragoman.offload import offload
from dragoman.server.doors import Door, stopping_error
from dragoman.server.exchange import Exchange
from dragoman.server.http.connection import Headers, WholeRequest
from dragoman.server.http.headers import error_headers
from dragoman.server.http.websocket import TEXTS
from dragoman.server.lanes import Lanes
from dragoman.server.limits import BodyTooLarge, GatewayRefusal, check_head
from dragoman.sse import FrameParser, data_lines
from dragoman.store.records import Link

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

# Headers of the handshake that say nothing about a request. An id of the client would be the same for all responses.
_OF_HANDSHAKE = frozenset(
    (b"connection", b"upgrade", b"content-length", b"content-encoding", b"x-request-id")
)
_NORMAL, _RESTARTING = 1000, 1012  # close codes: RFC 6455, section 7.4.1, and IANA's registry
# When the gateway stops: seconds for a message that is coming, or for the first one of a client that has just connected, as for
# HTTP; and how often it is looked whether it has come.
_LAST_MESSAGE = 1.0
_LOOK_EVERY = 0.02


SendTexts = Callable[[list[bytes]], Pending]
"""Sends text frames, as `ClientConnection.write` sends bytes."""


class SocketConnection(WholeRequest):
    """The `ClientConnection` of one exchange: its stream goes to the client as text frames."""

    __slots__ = ("_beginning", "_has_left", "_on_leave", "_parser", "_send_texts")

    def __init__(
        self, create: Create, headers: list[tuple[bytes, bytes]], send_texts: SendTexts
    ) -> None:
        super().__init__(headers, create.body)
        if create.headers:  # those of the handshake alone have been checked
            self.line_bytes = 0
        self._send_texts = send_texts
        self._parser: FrameParser | None = None  # for frames of unusual form
        self._on_leave: Callable[[], None] | None = None
        self._has_left = False
        self._beginning = lane_member(create.lane)

    def on_leave(self, call: Callable[[], None] | None) -> None:
        self._on_leave = call
        if call is not None and self._has_left:
            call()  # the client left before the exchange registered `call`

    def leave(self) -> None:
        """Report that the client has left."""
        self._has_left = True
        if self._on_leave is not None:
            self._on_leave()

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        return self._write([error_frame(status, headers, body)])

    def begin(self, headers: Headers, data: bytes) -> Pending:  # noqa: ARG002 - frames have no headers
        return self.write(data)

    def write(self, data: bytes) -> Pending:
        """Send the data of these frames, which are whole: the store keeps the same stream as server-sent events."""
        frames = data_lines(data)
        if frames is None:
            frames = self._parse(data)
        return self._write(frames) if frames else None

    def _parse(self, data: bytes) -> list[bytes]:
        if self._parser is None:
            self._parser = FrameParser()
        return [
            KEEP_ALIVE if frame.data is None else frame.data
            for frame in self._parser.feed(data)
            if not frame.is_done and (frame.data is not None or frame.comment is not None)
        ]

    def finish(self, data: bytes) -> Pending:
        return self.write(data)

    def _write(self, frames: list[bytes]) -> Pending:
        beginning = self._beginning
        if len(beginning) > 1:
            frames = [beginning + frame[1:] for frame in frames]
        return self._send_texts(frames)


class _LaneMemory:
    """The memory of a connection as one request sees it (`state.continuation.Memory`)."""

    __slots__ = ("_create", "_lanes", "generates")

    def __init__(self, lanes: Lanes, create: Create) -> None:
        self._lanes = lanes
        self._create = create
        self.generates = create.generates

    def recall(self, response_id: str) -> Link | None:
        return self._lanes.recall(response_id)

    def remember(self, link: Link) -> None:
        self._lanes.remember(self._create, link)


async def serve_websocket(
    gateway: "Gateway", door: Door, scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve one connection, from its handshake to its end. Refuses it with the status that a POST would get."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    server = gateway.settings.server
    extra: Headers = ()
    error: ErrorInfo | None = None
    try:
        check_head(headers, server.max_header_bytes, len(f"GET {scope['path']} HTTP/1.1\r\n"))
        gateway.identify(headers)
        gateway.slots.check()
        if gateway.is_stopping:
            error = stopping_error()
    except GatewayRefusal as refusal:
        error, extra = error_info(refusal), refusal.headers
    if error is not None:
        body = door.codec.encode_error(error)
        await _refuse(scope, receive, send, status_of(error), body, (*extra, *error_headers(error)))
        return
    gateway.start()
    await WebSocketSession(gateway, door, scope, receive, send).run()


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket where none is served. On 426 Codex falls back to HTTP at once, on any other status after seconds."""
    message = "expected POST: WebSockets are not served here"
    body = dumps({"error": {"message": message, "type": "invalid_request_error", "code": None}})
    await _refuse(scope, receive, send, 426, body, ())


async def _refuse(
    scope: Scope, receive: Receive, send: Send, status: int, body: bytes, headers: Headers
) -> None:
    await receive()  # websocket.connect
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})  # the server answers 403
        return
    kind = "websocket.http.response"
    fields = [(b"content-type", b"application/json"), *headers]
    await send({"type": f"{kind}.start", "status": status, "headers": fields})
    await send({"type": f"{kind}.body", "body": body})


class WebSocketSession:
    """One open connection."""

    def __init__(
        self,
        gateway: "Gateway",
        door: Door,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._gateway = gateway
        self._door = door
        self._headers = [
            pair
            for pair in scope["headers"]
            if pair[0] not in _OF_HANDSHAKE and not pair[0].startswith(b"sec-websocket-")
        ]
        self._receive = receive
        self._send = send
        direct = scope.get("extensions", {}).get(TEXTS, {})
        self._send_texts: SendTexts = direct.get("send", partial(partial, self._send_by_asgi))
        self._is_message_coming: Callable[[], bool] = direct.get("is_message_coming", bool)
        self._lanes = Lanes(gateway.settings.server.max_body_bytes, gateway.conversations)
        self._since = gateway.clock()
        self._connections: set[SocketConnection] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._close_code: int | None = None  # set: the connection ends with its running responses
        self._has_asked = False  # a message has come
        self._is_taking = False  # a message is being read, and may become a request

    async def run(self) -> None:
        """Serve the connection until the client leaves or the gateway closes it."""
        self._gateway.sessions.add(self)
        try:
            await self._receive()  # websocket.connect
            await self._send({"type": "websocket.accept"})
            async with asyncio.TaskGroup() as self._tasks:
                if self._close_code is not None:  # the gateway stopped during the handshake
                    self._end_soon(self._close_code)
                while await self._take_next():
                    pass
                self._lanes.drop_waiting()
                for connection in tuple(self._connections):
                    connection.leave()
        finally:
            self._gateway.sessions.discard(self)
            self._lanes.forget_all()
            self._tasks = None

    def stop(self) -> None:
        """Close the connection when its running responses have ended: the gateway is shutting down."""
        self._end_soon(_RESTARTING)

    def move(self, gateway: "Gateway") -> None:
        """Have another gateway serve the requests from now on; those that run stay where they are."""
        self._gateway.sessions.discard(self)
        self._gateway = gateway
        gateway.sessions.add(self)
        self._lanes.max_bytes = gateway.settings.server.max_body_bytes

    async def _take_next(self) -> bool:
        """Handle the next message of the client. False: the client has left."""
        # Here, and not in `run`, whose variables would keep the last message until the next one comes.
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return False
        self._is_taking = True
        try:
            await self._take(message.get("text"))
        finally:
            self._is_taking = False
            self._has_asked = True
        if self._close_code is not None:
            await self._close_if_idle()
        return True

    async def _take(self, text: str | None) -> None:
        """Handle one message. A mistake is answered by an error frame. None: a binary frame."""
        try:
            if text is None:
                raise RequestRefused(
                    "expected a text frame with one JSON object; got a binary frame"
                )
            self._check_size(text)
            asked = await offload(len(text), read_message, text)
            if isinstance(asked, Steer):
                await settle(self._send_texts([lane_member(asked.lane) + asked.failure[1:]]))
                return
            self._check_open()
            for starting in self._lanes.add(asked):
                self._start(starting)
        except GatewayError as error:
            headers = error.headers if isinstance(error, GatewayRefusal) else ()
            lane = previous = None
            if text is not None and not isinstance(error, BodyTooLarge):
                lane, previous = await offload(len(text), read_refused, text)
            if not isinstance(error, GatewayRefusal):  # that one may be sent again as it is
                self._lanes.note_failure(lane, previous)
            await self._send_error(error_info(error), lane, headers)

    def _check_size(self, text: str) -> None:
        """Raises BodyTooLarge: a POST with this body would be refused."""
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
        limit = self._gateway.settings.server.max_body_bytes
        if size > limit:
            raise BodyTooLarge(
                f"expected a message of at most {limit} bytes (server.max_body_bytes); {size} came",
                code="message_too_large",
            )

    def _check_open(self) -> None:
        """Raises GatewayRefusal: the connection takes no further request."""
        if self._close_code == _RESTARTING:
            if self._has_asked:
                raise _Stopping(stopping_error().message)
            return
        longest = self._gateway.settings.server.websocket_max_age
        if self._close_code is not None or self._gateway.clock() - self._since >= longest:
            self._close_code = _NORMAL
            raise RequestRefused(
                f"Responses websocket connection limit reached ({longest / 60:g} minutes). "
                "Create a new websocket connection to continue.",
                code="websocket_connection_limit_reached",
            )

    def _start(self, create: Create) -> None:
        if self._tasks is None:
            return
        own = dict(create.headers)
        headers = [pair for pair in self._headers if pair[0] not in own]
        connection = SocketConnection(create, [*headers, *create.headers], self._send_texts)
        # The exchange drops it when it is no longer needed.
        create = structs.replace(create, body=b"")
        self._connections.add(connection)
        connection.running = self._tasks.create_task(self._serve(create, connection))

    async def _serve(self, create: Create, connection: SocketConnection) -> None:
        """Answer one request, then start those that waited for it."""
        memory = _LaneMemory(self._lanes, create)
        exchange = Exchange(self._gateway, self._door, connection, memory=memory)
        record = exchange.record
        try:
            await exchange.run()
        finally:
            self._connections.discard(connection)
            has_failed = record.status >= 400 or record.error_kind is not None
            for starting in self._lanes.end(create, has_failed=has_failed):
                self._start(starting)
        if self._close_code is not None:
            await self._close_if_idle()

    def _end_soon(self, code: int) -> None:
        self._close_code = code
        if self._tasks is not None:
            self._tasks.create_task(self._refuse_waiting())

    async def _refuse_waiting(self) -> None:
        for create in self._lanes.drop_waiting():
            await self._send_error(stopping_error(), create.lane)
        await self._await_last_message()
        await self._close_if_idle(is_last=True)

    async def _await_last_message(self) -> None:
        """Wait for a message that is coming. Its sender cannot know that the gateway stops, and after a close it gets no answer."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _LAST_MESSAGE
        # Polled, for a second at most: an event would cost every message of every connection.
        while self._expects_message() and loop.time() < end:  # noqa: ASYNC110 - see above
            await asyncio.sleep(_LOOK_EVERY)

    def _expects_message(self) -> bool:
        return not (self._has_asked or self._is_taking) or self._is_message_coming()

    async def _close_if_idle(self, *, is_last: bool = False) -> None:
        """Close the connection if nothing runs. `is_last`: a message that has not come yet is not waited for."""
        is_idle = self._lanes.is_idle and not self._is_taking
        if is_idle and self._close_code is not None and (is_last or not self._expects_message()):
            with suppress(OSError, RuntimeError):  # already closed, by the client or by us
                await self._send({"type": "websocket.close", "code": self._close_code})

    async def _send_error(self, error: ErrorInfo, lane: str | None, headers: Headers = ()) -> None:
        body = self._door.codec.encode_error(error)
        frame = error_frame(status_of(error), (*headers, *error_headers(error)), body)
        await settle(self._send_texts([lane_member(lane) + frame[1:]]))

    async def _send_by_asgi(self, frames: list[bytes]) -> None:
        with suppress(OSError):  # the client has left: its disconnect is the next message
            for frame in frames:
                await self._send({"type": "websocket.send", "text": frame.decode("utf-8")})


class _Stopping(GatewayRefusal):
    kind = "overloaded"
    status = 503
