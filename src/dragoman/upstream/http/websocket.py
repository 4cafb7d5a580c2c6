"""The frames of one WebSocket to a server, read as if they were answers over HTTP.

`SocketReader` takes the place of the HTTP parser in an `UpstreamConnection`: a message is a request, the frames up to the last
event are its answer, and their bytes are those of a server-sent stream. So timeouts, backpressure, forwarding and reuse are
those of HTTP, and nobody above notices. A frame of type `error` before the first event becomes an answer with its status.

`websockets` reads the frames, without I/O: 2.7 µs each, where a chunk of HTTP takes 0.3 µs. Compression is not offered: events
are small, and each would wait for the compressor's window of 32 KB per connection. Pings are answered, but do not renew the times of
an answer: a proxy may ping for ever while the model is gone. We send none, because TCP's keep-alive (`connect.py`) finds a dead peer,
and the idle time bounds a silent answer.
"""

import logging
import re

from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side
from websockets.utils import accept_key

from dragoman.core.secrets import clean
from dragoman.dialects.responses.websocket_client import (
    AnswerState,
    event_type,
    is_keep_alive,
    is_last,
    is_noted,
    read_error_frame,
    sse_frame,
)
from dragoman.sse import MAX_FRAME_BYTES
from dragoman.upstream import errors
from dragoman.upstream.http.connection import MAX_HEAD_BYTES, UpstreamConnection

# Bytes that are parsed at a time: the frames of a read are kept until all are parsed, and one of two bytes takes 70.
_SLICE = 16 * 1024
_PINGS = (Opcode.PING, Opcode.PONG)
_PING_HEAD = 2  # bytes of such a frame before its payload: RFC 6455, section 5.5
_MAX_REASON = 123  # bytes of a reason for a close: RFC 6455, section 5.5
_OK = 200
# Headers of the handshake that are none of an answer.
_OF_HANDSHAKE = re.compile(r"connection|upgrade|date|server|content-length|sec-websocket-.*")

_logger = logging.getLogger(__name__)
_logger.setLevel(logging.WARNING)  # `websockets` would log the contents of frames


class SocketReader:
    """Reads the frames of one connection. `owner`: whose requests it may carry; `since`: when it was opened.

    headers: those of the handshake's answer. They describe the first answer; later ones have none.
    error_code: the code of the error that the last request was answered with.
    """

    __slots__ = (
        "_before",
        "_before_bytes",
        "_frames",
        "_headers",
        "_is_kept",
        "_message",
        "_name",
        "_status",
        "answer",
        "connection",
        "error_code",
        "owner",
        "since",
    )

    def __init__(
        self,
        connection: UpstreamConnection,
        name: str,
        *,
        owner: bytes,
        since: float,
        answer: AnswerState,
    ) -> None:
        self.owner = owner
        self.since = since
        self.answer = answer
        self.error_code: str | None = None
        self.connection = connection
        self._name = name
        self._frames = Protocol(Side.CLIENT, max_size=MAX_FRAME_BYTES, logger=_logger)
        # A message whose last fragment has not come. A list of fragments, which may have no bytes, could grow without end.
        self._message: bytearray | None = None
        self._headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in connection.headers.items()
            if _OF_HANDSHAKE.fullmatch(name) is None
        ]
        self._before: list[bytes] = []  # frames before the first event, such as rate limits
        self._before_bytes = 0
        self._status = 0
        self._is_kept = False

    def expect(self, answer: AnswerState) -> None:
        """Prepare for the answer to a message that is sent next."""
        self.answer = answer
        self.error_code = None
        self._before.clear()
        self._before_bytes = 0
        self._status = 0
        self._is_kept = False

    # --- called by the connection, as httptools' parser is

    def feed_data(self, data: bytes) -> bool:
        frames = self._frames
        connection = self.connection
        is_expected = connection.is_waiting or connection.is_answering
        pings = 0  # bytes
        for start in range(0, len(data), _SLICE):
            frames.receive_data(data[start : start + _SLICE])
            for frame in frames.events_received():
                if not isinstance(frame, Frame):
                    continue  # an event of a handshake
                if frame.opcode in _PINGS:
                    pings += _PING_HEAD + len(frame.data)
                else:
                    self._take(frame)
        writes = frames.data_to_send()
        if writes:  # pongs, or a close
            connection.write(b"".join(writes))
        if frames.parser_exc is not None:
            self._break(str(frames.parser_exc))
        if not is_expected and pings != len(data):
            connection.refuse_data()  # at once: a message may take 64 MB until it is complete
        return pings == len(data)

    def get_status_code(self) -> int:
        return self._status

    def should_keep_alive(self) -> bool:
        return self._is_kept

    # --- frames

    def _take(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT and frame.fin:
            self._take_text(bytes(frame.data))
        elif opcode is Opcode.TEXT:
            self._message = bytearray(frame.data)
        elif opcode is Opcode.CONT and self._message is not None:
            self._message += frame.data
            if frame.fin:
                whole, self._message = bytes(self._message), None
                self._take_text(whole)
        elif opcode is Opcode.CLOSE:
            self._take_close(frame)
        else:
            self._break("expected text frames, got a binary frame")

    def _take_text(self, data: bytes) -> None:
        connection = self.connection
        kind = event_type(data)
        if connection.is_answering:
            self._pass(kind, data)
        elif not connection.is_waiting:
            connection.refuse_data()
        elif kind == "error":
            self._take_error(data)
        elif kind.startswith("response.") and not is_keep_alive(kind):
            self._begin(_OK, (b"content-type", b"text/event-stream"), *self._headers)
            self._headers = []
            before, self._before = self._before, []
            for frame in before:
                connection.on_body(frame)
            self._pass(kind, data)
        elif not is_keep_alive(kind):
            self._before.append(sse_frame(kind, data))
            self._before_bytes += len(self._before[-1])
            if self._before_bytes > MAX_HEAD_BYTES:
                self._break(f"expected an event of a response, got {MAX_HEAD_BYTES} other bytes")

    def _pass(self, kind: str, data: bytes) -> None:
        if is_noted(kind):
            data = self.answer.take(kind, data)
        self.connection.on_body(sse_frame(kind, data))
        if is_last(kind):
            # After an error nobody knows what the server still remembers; Codex closes the connection too.
            self._is_kept = kind in ("response.completed", "response.incomplete")
            self.connection.on_message_complete()

    def _take_error(self, data: bytes) -> None:
        error = read_error_frame(data)
        self.error_code = error.code
        self._before.clear()
        self._begin(error.status, (b"content-type", b"application/json"), *error.headers)
        self.connection.on_body(error.body)
        self.connection.on_message_complete()

    def _begin(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        self._status = status
        for name, value in headers:
            self.connection.on_header(name, value)
        self.connection.on_headers_complete()

    def _take_close(self, frame: Frame) -> None:
        connection = self.connection
        close = Close.parse(frame.data)
        if connection.is_waiting:
            connection.fail(errors.gone_without_answer(self._name))
        elif connection.is_answering:
            reason = clean(close.reason, _MAX_REASON)
            cause = f"it closed the WebSocket with code {close.code:d}"
            connection.fail(errors.cut_short(self._name, f"{cause}: {reason}" if reason else cause))
        else:
            connection.refuse_data()

    def _break(self, cause: str) -> None:
        connection = self.connection
        if connection.is_waiting or connection.is_answering:
            connection.fail(errors.not_websocket(self._name, cause))
        else:
            connection.refuse_data()

    def end(self) -> None:
        """Free what refers to itself. The connection has ended."""
        self._frames.parser.close()


def handshake_headers(key: str) -> dict[str, str]:
    """The headers with which a client asks for a WebSocket; the server's answer depends on `key`."""
    return {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
    }


def handshake_problem(connection: UpstreamConnection, key: str) -> str | None:
    """What is wrong with the answer 101, if anything is."""
    headers = connection.headers
    if headers.get("upgrade", "").strip().lower() != "websocket":
        return f"expected the protocol websocket, got {headers.get('upgrade', '')[:40]!r}"
    if headers.get("sec-websocket-accept", "").strip() != accept_key(key):
        return "expected the key of the handshake in sec-websocket-accept, got another or none"
    if "sec-websocket-extensions" in headers or "sec-websocket-protocol" in headers:
        return "expected no extension and no subprotocol, got one"
    return None


def message_frame(message: bytes) -> bytes:
    """A message of ours as one text frame."""
    return Frame(Opcode.TEXT, message).serialize(mask=True)
