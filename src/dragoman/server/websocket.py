"""Responses over a WebSocket: each `response.create` runs the exchange of a POST, whose stream goes out as text frames.

    text frame ──► read_create ──► Lanes.add ──► Exchange over a SocketConnection ──► text frames
                                        ▲                                  │
                                        └────────── Lanes.end ◄────────────┘

A mistake of the client is answered by a frame of type `error`, always with a `status`: Codex ignores one without. The
connection stays open. When the client leaves, everything that it asked for is cancelled.

Headers belong to the connection, so each exchange gets those of the handshake. This module speaks ASGI; it knows the frames
of the stream only as bytes.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs
from starlette.types import Message, Receive, Scope, Send

from dragoman._json import Raw, as_object, dumps, dumps_text, loads
from dragoman.core.failures import error_info, status_of
from dragoman.errors import GatewayError, MalformedJson, RequestRefused
from dragoman.gateway.answer import Pending
from dragoman.model.outcome import ErrorInfo
from dragoman.offload import offload
from dragoman.server.doors import Door, stopping_error
from dragoman.server.exchange import Exchange
from dragoman.server.http.connection import Headers
from dragoman.server.http.headers import error_headers
from dragoman.server.lanes import Create, Lanes, check_name
from dragoman.server.limits import BodyTooLarge, GatewayRefusal, check_head
from dragoman.sse import FrameParser
from dragoman.store.records import Link

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

logger = logging.getLogger(__name__)

# Codex waits five minutes for a frame, and pings do not count; it ignores this type, and so do the SDKs.
_KEEP_ALIVE = b'{"type":"keepalive"}'
# Headers of the handshake that say nothing about a request. An id of the client would be the same for all responses.
_OF_HANDSHAKE = frozenset(
    (b"connection", b"upgrade", b"content-length", b"content-encoding", b"x-request-id")
)
_NORMAL, _RESTARTING = 1000, 1012  # close codes: RFC 6455, section 7.4.1, and IANA's registry


class SocketConnection:
    """The `ClientConnection` of one exchange: its stream goes to the client as text frames."""

    __slots__ = ("_body", "_headers", "_on_leave", "_parser", "_send", "_stream_id", "line_bytes", "running")

    def __init__(self, create: Create, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        self.line_bytes = 0  # the handshake's head has been checked
        self.running: asyncio.Task[None] | None = None
        self._body: bytes = create.body
        self._headers = headers
        self._send = send
        self._parser = FrameParser()
        self._on_leave: Callable[[], None] | None = None
        self._stream_id = _stream_id_member(create.lane)

    def task(self) -> asyncio.Task[None] | None:
        return self.running

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        headers, self._headers = self._headers, []
        return headers

    def take_body(self) -> bytes | None:
        body, self._body = self._body, b""
        return body

    async def receive(self) -> Message:
        """Never called: the body is there, and `leave` reports that the client has left."""
        return {"type": "http.disconnect"}

    def on_leave(self, call: Callable[[], None] | None) -> bool:
        self._on_leave = call
        return True

    def leave(self) -> None:
        """Report that the client has left."""
        if self._on_leave is not None:
            self._on_leave()

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        return partial(self._send_all, [error_frame(status, headers, body)])

    def begin(self, headers: Headers, data: bytes) -> Pending:  # noqa: ARG002 - frames have no headers
        return self.write(data)

    def write(self, data: bytes) -> Pending:
        frames = [
            _KEEP_ALIVE if frame.data is None else frame.data
            for frame in self._parser.feed(data)
            if not frame.is_done and (frame.data is not None or frame.comment is not None)
        ]
        return partial(self._send_all, frames) if frames else None

    def finish(self, data: bytes) -> Pending:
        return self.write(data)

    async def _send_all(self, frames: list[bytes]) -> None:
        own = self._stream_id
        with suppress(OSError):  # the client has left, and `leave` will be called
            for frame in frames:
                text = _named(frame, own).decode("utf-8")
                await self._send({"type": "websocket.send", "text": text})


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
    try:
        check_head(headers, server.max_header_bytes, len(f"GET {scope['path']} HTTP/1.1\r\n"))
        gateway.identify(headers)
        gateway.slots.check()
    except GatewayRefusal as refusal:
        error, extra = error_info(refusal), refusal.headers
    else:
        error = stopping_error() if gateway.is_stopping else None
    if error is not None:
        body = door.codec.encode_error(error)
        await _refuse(scope, receive, send, status_of(error), body, (*extra, *error_headers(error)))
        return
    gateway.start()
    await Session(gateway, door, headers, receive, send).run()


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


class Session:
    """One open connection."""

    def __init__(
        self,
        gateway: "Gateway",
        door: Door,
        headers: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
    ) -> None:
        self._gateway = gateway
        self._door = door
        self._headers = [
            pair
            for pair in headers
            if pair[0] not in _OF_HANDSHAKE and not pair[0].startswith(b"sec-websocket-")
        ]
        self._receive = receive
        self._send = send
        self._lanes = Lanes(gateway.settings.server.max_body_bytes)
        self._since = gateway.clock()
        self._connections: set[SocketConnection] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._close_code: int | None = None  # set: the connection ends with its running responses

    async def run(self) -> None:
        """Serve the connection until the client leaves or the gateway closes it."""
        gateway = self._gateway
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept"})
        gateway.sessions.add(self)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while (message := await self._receive())["type"] == "websocket.receive":
                    with suppress(OSError):  # the client has left: its disconnect is the next message
                        await self._take(message)
                self._lanes.drop_waiting()
                for connection in tuple(self._connections):
                    connection.leave()
        finally:
            gateway.sessions.discard(self)
            self._tasks = None

    def stop(self) -> None:
        """Close the connection when its running responses have ended: the gateway is shutting down."""
        self._end_soon(_RESTARTING)

    async def _take(self, message: Message) -> None:
        """Handle one message of the client. A mistake is answered by an error frame."""
        text: str | None = message.get("text")
        lane: str | None = None
        try:
            if text is None:
                raise RequestRefused("expected a text frame with one JSON object; got a binary frame")
            limit = self._gateway.settings.server.max_body_bytes
            if len(text) > limit:
                raise BodyTooLarge(
                    f"expected a message of at most {limit} bytes (server.max_body_bytes); {len(text)} came",
                    code="message_too_large",
                )
            fields = await offload(len(text), as_object, text)
            lane = check_name(_plain(fields, "stream_id"))
            kind = _plain(fields, "type")
            if kind == "response.steer":
                await self._send_text(_steer_failed(fields), lane)
                return
            if kind != "response.create":
                raise RequestRefused(
                    f"type: expected response.create, got {str(kind)[:60]!r}", param="type"
                )
            create = read_create(fields, lane)
            self._check_open()
            for starting in self._lanes.add(create):
                self._start(starting)
        except GatewayRefusal as refusal:
            await self._send_error(error_info(refusal), lane, refusal.headers)
        except MalformedJson as error:
            refused = RequestRefused(f"expected a text frame with one JSON object: {error.message}")
            await self._send_error(error_info(refused), lane)
        except GatewayError as error:
            await self._send_error(error_info(error), lane)
        if self._close_code is not None:
            await self._close_if_idle()

    def _check_open(self) -> None:
        """Raises GatewayRefusal: the connection takes no further request."""
        if self._close_code == _RESTARTING:
            raise _Stopping(stopping_error().message)
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
        connection = SocketConnection(create, list(self._headers), self._send)
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
        with suppress(OSError):
            for create in self._lanes.drop_waiting():
                await self._send_error(stopping_error(), create.lane)
            await self._close_if_idle()

    async def _close_if_idle(self) -> None:
        if self._lanes.is_idle and self._close_code is not None:
            with suppress(OSError, RuntimeError):  # already closed, by the client or by us
                await self._send({"type": "websocket.close", "code": self._close_code})

    async def _send_error(self, error: ErrorInfo, lane: str | None, headers: Headers = ()) -> None:
        error = structs.replace(error, request_id=self._gateway.mint_request_id({}))
        body = self._door.codec.encode_error(error)
        fields = (*headers, *error_headers(error))
        await self._send_text(error_frame(status_of(error), fields, body), lane)

    async def _send_text(self, frame: bytes, lane: str | None) -> None:
        text = _named(frame, _stream_id_member(lane)).decode("utf-8")
        await self._send({"type": "websocket.send", "text": text})


class _Stopping(GatewayRefusal):
    kind = "overloaded"
    status = 503


def read_create(fields: dict[str, Raw], lane: str | None) -> Create:
    """Return what a `response.create` asks for.

    `stream` is ignored, although OpenAI forbids it: Codex and openai-agents send it.

    Raises:
        RequestRefused: it asks for what a connection cannot do.
    """
    if _plain(fields, "background") not in (None, False):
        raise RequestRefused(
            "background: expected false: a response over a WebSocket ends with its connection",
            param="background",
            code="unsupported_parameter",
        )
    generate = _plain(fields, "generate")
    if generate not in (None, True, False):
        raise RequestRefused("generate: expected a boolean", param="generate")
    previous = _plain(fields, "previous_response_id")
    own = {
        name: value
        for name, value in fields.items()
        if name not in ("type", "stream_id", "generate", "background", "stream")
    }
    members = [dumps_text(name) + b":" + bytes(value) for name, value in own.items()]
    return Create(
        body=b"{%b}" % b",".join([*members, b'"stream":true']),
        lane=lane,
        previous=previous if isinstance(previous, str) else None,
        generates=generate is not False,
    )


def error_frame(status: int, headers: Headers, body: bytes) -> bytes:
    """Return the frame of type `error` for what a POST would be answered with. Its `code` is always a string."""
    shown = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name not in (b"content-type", b"vary") and not name.startswith(b"access-control-")
    }
    error: dict[str, object] = loads(body)["error"]
    if error.get("code") is None:
        error["code"] = error["type"]
    frame: dict[str, object] = {"type": "error", "status": status, "error": error}
    return dumps({**frame, "headers": shown} if shown else frame)


def _named(frame: bytes, stream_id: bytes) -> bytes:
    """The frame, a JSON object, with the name of its lane."""
    return b"{%b,%b" % (stream_id, frame[1:]) if stream_id else frame


def _stream_id_member(lane: str | None) -> bytes:
    """The member of a frame that names its lane; empty for the default lane."""
    return b"" if lane is None else b'"stream_id":' + dumps_text(lane)


def _plain(fields: dict[str, Raw], name: str) -> object:
    """The value of a field that should be short; None if there is none."""
    value = fields.get(name)
    return None if value is None else loads(bytes(value))


def _steer_failed(fields: dict[str, Raw]) -> bytes:
    error = {
        "code": "steering_not_supported",
        "message": "a running response cannot be steered here; send response.create when it has ended",
        "type": "invalid_request_error",
    }
    wanted = [name for name in ("previous_response_id", "input") if name in fields]
    steer = b",".join([dumps_text(name) + b":" + bytes(fields[name]) for name in wanted])
    head = b'"type":"response.steer.failed","sequence_number":0,"error":' + dumps(error)
    return b'{%b,"steer":{%b}}' % (head, steer)
