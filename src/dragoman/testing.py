"""Public test doubles: an HTTP server that sends scripted answers and records the requests.

`ScriptedUpstream` listens on 127.0.0.1 on a port that the system chooses and speaks real HTTP/1.1 over real sockets, so
that tests meet real conditions: chunk borders, cut connections, silence, a client that disconnects. It knows no
dialect; the script supplies the bytes.

    async with ScriptedUpstream([sse(stream, cut_into="frames")]) as upstream:
        ...                                      # a client of upstream.url, in the same event loop
    with ScriptedUpstream.in_thread(answer) as upstream:
        ...                                      # a blocking client; the server has a thread and a loop of its own

With `websocket=True` it accepts WebSockets too (the extra `server` has the package for it). Each text message is then a request
with the method `WEBSOCKET`, answered by the same script: each event of a server-sent stream is one text frame.

Every time is `time.monotonic()`.
"""

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Self, cast

from msgspec import Struct, field

from dragoman._json import as_object, dumps_document, loads
from dragoman.sse import FrameParser

__all__ = (
    "WEBSOCKET",
    "Chunk",
    "Handshake",
    "Pause",
    "ReceivedRequest",
    "Script",
    "ScriptedReply",
    "ScriptedUpstream",
    "Wait",
    "json_reply",
    "sse",
)

# Room for tests with large headers; a head without an end is still refused.
MAX_HEAD_BYTES = 1024 * 1024
DEFAULT_WAIT = 30.0  # seconds; bounds every wait of a test, many times what a busy machine needs
_POLL = 0.001

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: closing sends RST, not FIN
_READ = 64 * 1024
_STREAM = "text/event-stream"
_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-accept: %b\r\n\r\n"
)
_CLOSE_FRAME = b"\x88\x02\x03\xe8"  # code 1000, a normal end: RFC 6455, section 7.4.1


class Pause(Struct, frozen=True):
    """Send nothing for so many seconds, then continue."""

    seconds: float


class Wait(Struct, frozen=True):
    """Send nothing until the test sets the event."""

    event: asyncio.Event | threading.Event


Chunk = bytes | Pause | Wait
"""A step of a scripted answer: bytes to send, or a reason not to go on yet."""


class ScriptedReply(Struct, frozen=True, kw_only=True):
    """One scripted answer.

    body, chunks: one or the other. Chunks are written one by one, each flushed to the system before the next.
    framing: how the end of the body is marked. By default `length` for a body and `chunked` for chunks; `close` ends with the
        connection; `raw` writes the chunks alone, so that a script can write the status line itself, or send nothing.
    declared_length: a false content-length.
    hold: a wait before the status line.
    cut: close the connection after the chunks, without the end that the framing promises; `reset` does so with a TCP
        reset, which may overtake bytes that the client has not read yet.
    keep_alive: False sends `connection: close` and closes the connection.

    Over a WebSocket there is neither status nor head. The events of a stream (content type `text/event-stream`) are one text
    frame each; otherwise the body, or each chunk, is one. `raw` writes bytes past the frames, and `keep_alive=False` ends
    with a close frame.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str | None = None
    body: bytes = b""
    chunks: Sequence[Chunk] | None = None
    framing: Literal["length", "chunked", "close", "raw"] | None = None
    declared_length: int | None = None
    hold: Pause | Wait | None = None
    cut: bool | Literal["reset"] = False
    keep_alive: bool = True


class ReceivedRequest(Struct, kw_only=True):
    """A request and the state of its reply. Header names are in lower case; repeated headers are joined by commas.

    connection: the number of the connection; the first one that the server accepted is 0.
    sent: bytes of the reply that the system has accepted so far, head and framing included.
    finished_at: when the system had accepted the whole reply; stays None if the client disconnects before.
    closed_at: when the server saw the connection close, by either side.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    connection: int
    received_at: float
    sent: int = 0
    finished_at: float | None = None
    closed_at: float | None = None

    @property
    def was_abandoned(self) -> bool:
        """Whether the connection closed before the reply was whole."""
        return self.closed_at is not None and self.finished_at is None

    def json(self) -> dict[str, object]:
        """The body, which must be a JSON object."""
        return {name: loads(value) for name, value in as_object(self.body).items()}

    def at(self, *path: str | int) -> object:
        """A value deep in the JSON body: `request.at("tools", 0, "function", "name")`."""
        value = loads(self.body)
        for step in path:
            try:
                value = value[step]
            except (LookupError, TypeError) as error:
                message = f"the body has nothing at {path!r}: no {step!r} in {value!r}"
                raise AssertionError(message) from error
        return value


Script = Callable[[ReceivedRequest], ScriptedReply] | Sequence[ScriptedReply]
"""The answers of a scripted upstream: one for each request in turn, or a function that chooses."""

WEBSOCKET = "WEBSOCKET"
"""The method of a request that came as a message of a WebSocket."""

Handshake = Callable[[ReceivedRequest], ScriptedReply | None]
"""Decides about a WebSocket: None accepts it, a reply refuses it."""


def sse(
    stream: bytes,
    *,
    cut_into: int | Literal["frames"] | None = None,
    pause: float = 0.0,
    cut: bool = False,
    headers: Mapping[str, str] | None = None,
) -> ScriptedReply:
    """A streamed answer: whole, in pieces of `cut_into` bytes, or frame by frame, with a pause after each piece."""
    pieces: list[Chunk] = []
    for piece in _pieces(stream, cut_into):
        pieces.append(piece)
        if pause:
            pieces.append(Pause(pause))
    return ScriptedReply(content_type=_STREAM, chunks=pieces, cut=cut, headers=headers or {})


def json_reply(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> ScriptedReply:
    """A JSON body; bytes are sent as they are."""
    body = value if isinstance(value, bytes) else dumps_document(value)
    return ScriptedReply(
        status=status, content_type="application/json", body=body, headers=headers or {}
    )


def _pieces(stream: bytes, cut_into: int | Literal["frames"] | None) -> list[bytes]:
    if cut_into is None:
        return [stream]
    if cut_into == "frames":
        parser = FrameParser()
        return [frame.raw for frame in (*parser.feed(stream), *parser.close())]
    return [stream[start : start + cut_into] for start in range(0, len(stream), cut_into)]


class ScriptedUpstream:
    """The server. `script` is a function from request to reply, or the replies in the order of the requests.

    requests: all requests, in order of arrival.
    failures: messages about requests beyond the script (the client gets a 500 with the message), a script that
        raised, and bytes that are not HTTP (the connection is closed). Empty in a good test.
    handshakes: the requests for WebSockets, accepted or refused. They are not in `requests`.
    connections, open_connections: how many connections were accepted, and how many of them are open.

    send_buffer: bytes that the system may hold for a client that does not read; small, to measure backpressure.
    tls: a server context; `url` is then https.
    websocket: whether WebSockets are accepted, or a function that decides for each; False: their handshakes go to the script.
    """

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        send_buffer: int | None = None,
        websocket: bool | Handshake = False,
    ) -> None:
        self.requests: list[ReceivedRequest] = []
        self.handshakes: list[ReceivedRequest] = []
        self.failures: list[str] = []
        self.connections = 0
        self.open_connections = 0
        self.port = 0
        self._script = script
        self._websocket = websocket
        self._tls = tls
        self._send_buffer = send_buffer
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        # Connections inherit it. asyncio sets it only where the protocol was named, and a chunk would wait 40 ms for another.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, self._reply_to, self._shake_hands, self._tasks),
            sock=listener,
            ssl=self._tls,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports notify their protocols in the loop's next round

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        send_buffer: int | None = None,
        websocket: bool | Handshake = False,
    ) -> Generator[Self]:
        """The same server in a thread of its own, for blocking clients."""
        upstream = cls(script, tls=tls, send_buffer=send_buffer, websocket=websocket)
        started = threading.Event()
        stop: list[Callable[[], object]] = []

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            stopped = asyncio.Event()
            async with upstream:
                stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
                started.set()
                await stopped.wait()

        thread = threading.Thread(target=asyncio.run, args=(serve(),), name="scripted-upstream")
        thread.start()
        if not started.wait(DEFAULT_WAIT):
            raise RuntimeError(f"the server did not start within {DEFAULT_WAIT} s")
        try:
            yield upstream
        finally:
            stop[0]()
            thread.join()

    async def until(self, condition: Callable[[], object], timeout: float = DEFAULT_WAIT) -> None:  # noqa: ASYNC109 -- a bound with a message of its own
        """Return as soon as the condition holds.

        Raises:
            TimeoutError: the condition did not hold within the time.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            _check(deadline, timeout)
            await asyncio.sleep(_POLL)

    def wait_until(self, condition: Callable[[], object], timeout: float = DEFAULT_WAIT) -> None:
        """`until` for a blocking test; the server must be in a thread of its own."""
        deadline = time.monotonic() + timeout
        while not condition():
            _check(deadline, timeout)
            time.sleep(_POLL)

    def _reply_to(self, request: ReceivedRequest) -> ScriptedReply:
        number = len(self.requests)
        self.requests.append(request)
        if callable(self._script):
            return self._script(request)
        if number < len(self._script):
            return self._script[number]
        return self._fail(
            f"the script has {len(self._script)} replies and this is request {number + 1}: "
            f"{request.method} {request.path}"
        )

    def _shake_hands(self, request: ReceivedRequest) -> ScriptedReply | None:
        """The reply to a request over HTTP; None if it opens a WebSocket."""
        is_handshake = request.headers.get("upgrade", "").lower() == "websocket"
        if not is_handshake or self._websocket is False:
            return self._reply_to(request)
        self.handshakes.append(request)
        return None if self._websocket is True else self._websocket(request)

    def _fail(self, message: str) -> ScriptedReply:
        self.failures.append(message)
        return json_reply({"error": {"type": "script_failure", "message": message}}, 500)


def _check(deadline: float, timeout: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"the condition did not hold within {timeout} s")


class _Connection(asyncio.StreamReaderProtocol):
    """One client. It reads while it writes a reply, so that it notices a disconnect at once."""

    def __init__(
        self,
        upstream: ScriptedUpstream,
        reply_to: Callable[[ReceivedRequest], ScriptedReply],
        shake_hands: Handshake,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._stream = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        super().__init__(self._stream)
        self._upstream = upstream
        self._reply_to = reply_to
        self._shake_hands = shake_hands
        self._tasks = tasks
        self._requests: list[ReceivedRequest] = []
        self._number = 0
        # Names of our own: the base class has a `_transport` and a `_task` and clears them at its own times.
        self._writer: asyncio.StreamWriter | None = None
        self._serving: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        stream = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from it
        # No buffering in this process: a flush returns when the system has accepted the bytes. (`high` is not 0: an idle
        # TLS transport would count as full for ever.)
        stream.set_write_buffer_limits(high=1, low=0)
        self._number = self._upstream.connections
        self._upstream.connections += 1
        self._upstream.open_connections += 1
        loop = asyncio.get_running_loop()
        # Keep a reference: a writer that is freed before its transport is closed emits a warning.
        self._writer = asyncio.StreamWriter(stream, self, self._stream, loop)
        self._serving = loop.create_task(self._serve(self._writer))
        self._tasks.add(self._serving)
        self._serving.add_done_callback(self._ended)

    def eof_received(self) -> bool:
        # A client that closes its half has disconnected: no client in the tests waits for a reply after that.
        self._mark_closed()
        if self._writer is not None:
            self._writer.transport.abort()
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.open_connections -= 1
        self._mark_closed()
        super().connection_lost(exc)
        if self._serving is not None:
            self._serving.cancel()

    def _mark_closed(self) -> None:
        now = time.monotonic()
        for request in self._requests:
            if request.closed_at is None:
                request.closed_at = now

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._upstream.failures.append(f"connection {self._number + 1}: {error!r}")
        if self._writer is not None:
            self._writer.transport.abort()

    async def _serve(self, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._receive(writer)) is not None:
                self._requests.append(request)
                reply = self._shake_hands(request)
                if reply is None:
                    await self._serve_websocket(writer, request)
                    return
                await self._send(writer, request, reply)
                if reply.cut or not reply.keep_alive or _framing(reply) in ("close", "raw"):
                    if reply.cut == "reset":
                        _reset(writer)
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client disconnected; `closed_at` says when

    async def _serve_websocket(
        self, writer: asyncio.StreamWriter, handshake: ReceivedRequest
    ) -> None:
        from websockets.frames import Frame, Opcode  # noqa: PLC0415 -- a package of the extra `server`
        from websockets.protocol import Protocol, Side  # noqa: PLC0415
        from websockets.utils import accept_key  # noqa: PLC0415

        accept = accept_key(handshake.headers["sec-websocket-key"])
        await _flush(writer, handshake, _SWITCHING % accept.encode("ascii"))
        handshake.finished_at = time.monotonic()
        incoming = Protocol(Side.SERVER, max_size=None)
        pieces: list[bytes] = []
        while data := await self._stream.read(_READ):
            incoming.receive_data(data)
            writer.write(b"".join(incoming.data_to_send()))  # pongs, or the answer to a close
            for frame in incoming.events_received():
                if not isinstance(frame, Frame) or frame.opcode is Opcode.CLOSE:
                    return
                if frame.opcode in (Opcode.TEXT, Opcode.CONT):
                    pieces.append(bytes(frame.data))
                    if frame.fin:
                        message, pieces = b"".join(pieces), []
                        if not await self._answer_message(writer, handshake, message):
                            return

    async def _answer_message(
        self, writer: asyncio.StreamWriter, handshake: ReceivedRequest, message: bytes
    ) -> bool:
        """Answer one message by the script. False: the connection ends."""
        request = ReceivedRequest(
            method=WEBSOCKET,
            path=handshake.path,
            query=handshake.query,
            headers=handshake.headers,
            body=message,
            connection=self._number,
            received_at=time.monotonic(),
        )
        self._requests.append(request)
        reply = self._reply_to(request)
        if reply.hold is not None:
            await _be_silent(reply.hold)
        parser = FrameParser() if (reply.content_type or "").startswith(_STREAM) else None
        for chunk in (reply.body,) if reply.chunks is None else reply.chunks:
            if not isinstance(chunk, bytes):
                await _be_silent(chunk)
            elif reply.framing == "raw":
                await _flush(writer, request, chunk)
            else:
                found = [chunk] if parser is None else [each.data for each in parser.feed(chunk)]
                for data in found:
                    if data is not None and data != b"[DONE]":
                        await _flush(writer, request, _text_frame(data))
        if reply.cut:
            if reply.cut == "reset":
                _reset(writer)
            return False
        request.finished_at = time.monotonic()
        if not reply.keep_alive:
            await _flush(writer, request, _CLOSE_FRAME)
        return reply.keep_alive

    async def _receive(self, writer: asyncio.StreamWriter) -> ReceivedRequest | None:
        try:
            head = await self._stream.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        line, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ", 2)
        headers: dict[str, str] = {}
        for name, value in (header.split(":", 1) for header in lines):
            key = name.lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
        if "expect" in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        path, _, query = target.partition("?")
        return ReceivedRequest(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=await self._receive_body(headers),
            connection=self._number,
            received_at=time.monotonic(),
        )

    async def _receive_body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await self._stream.readexactly(int(headers.get("content-length", 0)))
        pieces: list[bytes] = []
        while size := int((await self._stream.readuntil(b"\r\n")).partition(b";")[0], 16):
            pieces.append((await self._stream.readexactly(size + 2))[:-2])
        while await self._stream.readuntil(b"\r\n") != b"\r\n":
            pass  # tests do not need trailers
        return b"".join(pieces)

    async def _send(
        self, writer: asyncio.StreamWriter, request: ReceivedRequest, reply: ScriptedReply
    ) -> None:
        framing = _framing(reply)
        if reply.hold is not None:
            await _be_silent(reply.hold)
        head = b"" if framing == "raw" else _head(reply, framing)
        if reply.chunks is None:
            await _flush(writer, request, head + _framed(reply.body, framing))
        else:
            await _flush(writer, request, head)
            for chunk in reply.chunks:
                if isinstance(chunk, bytes):
                    await _flush(writer, request, _framed(chunk, framing))
                else:
                    await _be_silent(chunk)
        if framing == "chunked" and not reply.cut:
            await _flush(writer, request, b"0\r\n\r\n")
        if not reply.cut:
            request.finished_at = time.monotonic()


def _text_frame(data: bytes) -> bytes:
    from websockets.frames import Frame, Opcode  # noqa: PLC0415

    return Frame(Opcode.TEXT, data).serialize(mask=False)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


async def _flush(writer: asyncio.StreamWriter, request: ReceivedRequest, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
    request.sent += len(data)


async def _be_silent(how: Pause | Wait) -> None:
    if isinstance(how, Pause):
        await asyncio.sleep(how.seconds)
    elif isinstance(how.event, asyncio.Event):
        await how.event.wait()
    else:
        while not how.event.is_set():  # noqa: ASYNC110 -- a thread's event cannot be awaited
            await asyncio.sleep(_POLL)


def _framing(reply: ScriptedReply) -> Literal["length", "chunked", "close", "raw"]:
    return reply.framing or ("length" if reply.chunks is None else "chunked")


def _framed(data: bytes, framing: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if framing == "chunked" and data else data


def _head(reply: ScriptedReply, framing: str) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Scripted"]
    if reply.content_type is not None:
        lines.append(f"content-type: {reply.content_type}")
    if framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif framing == "length":
        whole = (chunk for chunk in reply.chunks or (reply.body,) if isinstance(chunk, bytes))
        length = sum(map(len, whole)) if reply.declared_length is None else reply.declared_length
        lines.append(f"content-length: {length}")
    if framing == "close" or not reply.keep_alive:
        lines.append("connection: close")
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1")
