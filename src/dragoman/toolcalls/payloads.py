"""Decodes payloads to events: finds the JSON in what a caller passes in, its dialect, and the reader of that dialect.

A payload is a mapping, JSON text or bytes, whole SSE frames, an object of a vendor's SDK (recognised by its `model_dump`;
no SDK is imported), or a list of these. A payload is never changed. Bytes are read without re-encoding, so that arguments
in them keep their exact text. A mapping has no text, so it is encoded as compact JSON.

The only wire knowledge of this package is here: enough to recognise a bare piece (a Chat delta, one Responses item, one
Anthropic block) and to put it into the frame that its reader expects. `dialects.shapes` recognises whole payloads. Codex's first app-server
protocol wraps other payloads (`codex/event/agent_message_delta` around a Chat delta, …), as the vendors' stream helpers
do (`{"type": "chunk", "chunk": …}`); the wrapping is removed here.

Each choice and stream has a reader of its own. These readers handle all irregularities of servers. When a payload arrives
after the end of a reader's stream, a new reader replaces it. No payload makes this module raise: one that cannot be read is
reported as a problem, with its number from 1. An unreadable piece of a stream may have changed any call, so every stream
fails, and until the next turn only whole messages are read.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, typed_decoder
from dragoman.core.fields import (
    expect_text,
    read_fragment,
    read_json,
    read_list,
    read_object,
    read_text,
)
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import CODECS, UPSTREAM_CODECS
from dragoman.dialects.shapes import MESSAGES_BLOCKS, Shape, shape_of
from dragoman.dialects.stream_decoder import FrameReader, check_frame
from dragoman.errors import GatewayError, MalformedJson
from dragoman.model.events import Event, Failed, Noticed, PartStarted
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.parts import Call, Dialect
from dragoman.sse import Frame, FrameParser

BOM = b"\xef\xbb\xbf"

DONE = b"[DONE]"
"""The end marker of the OpenAI dialects."""

_MAX_DEPTH = 200
"""Nesting of a value that must be copied before it can be encoded; vendors accept far less."""

# A `model_dump` with another signature than pydantic's, or a value that pydantic cannot serialise (a ValueError).
_DUMP_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

_decode_array = typed_decoder(list[Raw])


def is_empty(payload: object) -> bool:
    """Whether the payload has nothing to read."""
    return payload is None or (
        isinstance(payload, (str, bytes, bytearray, Mapping, list, tuple)) and not payload
    )


def to_documents(payload: object) -> list[bytes]:
    """The JSON documents in a payload, in order; `DONE` for the end marker.

    Raises:
        MalformedJson: the payload cannot be read.
    """
    if isinstance(payload, str):
        payload = replace_lone(payload).encode()
    if isinstance(payload, (bytes, bytearray)):
        return _split(bytes(payload))
    if isinstance(payload, (list, tuple)):
        return [_write(entry) for entry in cast("list[object]", payload) if not is_empty(entry)]
    return [_write(payload)]


def _split(data: bytes) -> list[bytes]:
    text = data.removeprefix(BOM).strip()
    if text.startswith(b"{"):
        return [text]
    if text.upper() == DONE:
        return [DONE]
    if text.startswith(b"["):
        try:
            return [bytes(entry) for entry in _decode_array(text)]
        except FAST_FAILURES as error:
            raise MalformedJson(f"expected a JSON array, got {len(data)} other bytes") from error
    if not text:
        raise MalformedJson(f"expected JSON or SSE frames, got {len(data)} blanks")
    parser = FrameParser()
    documents = [document_of(frame) for frame in (*parser.feed(data), *parser.close())]
    return [document for document in documents if document is not None]


def document_of(frame: Frame) -> bytes | None:
    """The JSON in a frame, or `DONE`; None for a frame without data: a comment, or one that keeps a connection open.

    Raises:
        MalformedJson: the frame lost its data, or its data is not UTF-8.
    """
    check_frame(frame)
    data = frame.data
    if data is not None and data.strip():
        return DONE if frame.is_done else data
    # All events that belong to an answer have a dot or an underscore in their names, except Chat's default name.
    name = frame.name
    if b"." in name or b"_" in name or name == b"message":
        raise MalformedJson("expected data with an event, got none")
    return None


def _write(value: object) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # The value contains something other than JSON: an SDK's object, a mapping that is not a dict, or a cycle.
        return dumps(_plain(value, 0))


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise MalformedJson(f"expected a payload of at most {_MAX_DEPTH} levels, got more")
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): _plain(entry, depth + 1) for key, entry in entries.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, depth + 1) for entry in cast("list[object]", value)]
    return _plain(_dump(value), depth + 1)


def _dump(value: object) -> object:
    dump: object = getattr(value, "model_dump", None)
    if not callable(dump):
        raise MalformedJson(
            f"expected a mapping, JSON or an SDK's object, got {type(value).__name__}"
        )
    try:
        return dump(mode="json", by_alias=True, warnings=False)
    except _DUMP_FAILURES as error:
        # Without its message, which quotes values.
        kind = type(error).__name__
        raise MalformedJson(f"model_dump of {type(value).__name__} raised {kind}") from error


Fields = Mapping[str, Raw]

_MAX_WRAPPINGS = 6
"""Levels of wrapping: twice the observed number (`params`, `msg`, `delta`), and a limit on the cost of a hostile payload."""

_RESPONSES_ITEMS = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request"})
_RESPONSES_ENDINGS = ("_call", "_output")
_CODEX_ITEMS = frozenset({"dynamicToolCall", "agentMessage", "userMessage"})
_CHAT_FIELDS = frozenset(
    [
        "tool_calls",
        "function_call",
        "content",
        "role",
        "refusal",
        "reasoning_content",
        "reasoning",
        "audio",
    ]
)
_CODEX_V1_METHODS = frozenset({"agentMessageDelta", "agentMessage"})
_CODEX_V1_TYPES = frozenset({"agent_message_delta", "agent_message", "raw_response_item"})
_CODEX_V1_PREFIX = "codex/event/"
_WRAPPERS = ("params", "msg", "chunk", "item", "delta", "message")
# Events that the vendors' stream helpers add to the events of the wire.
_HELPER_PREFIXES = ("tool_calls.", "content.", "refusal.", "logprobs.")
_HELPER_TYPES = frozenset({"input_json", "citation", "signature"})
_HELPER_FIELD = "snapshot"

# The frames around a bare piece.
_CHUNK = b'{"choices":[{"index":%d,"%b":%b,"finish_reason":%b}]}'
_RESPONSE = b'{"object":"response","status":"completed","output":[%b]}'
_MESSAGE = (
    b'{"type":"message","role":"assistant","content":[%b],"stop_reason":"%b",'
    b'"usage":{"input_tokens":0,"output_tokens":0}}'
)
_NOTIFICATION = b'{"method":"%b","params":{"item":%b}}'


class Payload(Struct, frozen=True):
    """The input of a reader: one payload of a stream, or (`is_whole`) one body.

    `choice`: the choice of the payload; a body names its own choices. `stream` separates the conversations that share one
    Codex pipe. `event`: the name of its SSE frame.
    """

    dialect: Dialect
    data: bytes
    choice: int
    is_whole: bool = False
    stream: str = ""
    event: str = ""


class PayloadContext(Struct, frozen=True):
    """The caller's facts about a payload: its choice, and whether it is a finished message."""

    choice: int = 0
    is_final: bool = False
    depth: int = 0


def shapes_of(data: bytes, place: PayloadContext) -> tuple[Payload, ...] | None:
    """The payloads in a JSON object; None if its shape is unknown.

    Raises:
        MalformedJson: the data is not a JSON object, or its `type` is not a string.
    """
    return _recognise(as_object(data), data, place)


def source_of(data: bytes) -> str:
    """The id of the answer that a payload belongs to, if it has one."""
    fields = read_object(data)
    holders = (fields, read_object(fields.get("response")), read_object(fields.get("message")))
    return next((text for holder in holders if (text := _text(holder, "id"))), "")


def _recognise(fields: Fields, data: bytes, place: PayloadContext) -> tuple[Payload, ...] | None:
    if place.depth > _MAX_WRAPPINGS:
        return None
    if method := _text(fields, "method"):
        if method in _CODEX_V1_METHODS or method.startswith(_CODEX_V1_PREFIX):
            return _unwrap(fields, place)
        return (Payload("codex", data, place.choice, stream=_conversation(fields)),)
    kind = expect_text(fields.get("type"), "type") or ""
    shape = shape_of(fields)
    is_piece = shape is None or not (shape.is_sure or kind)
    if shape is not None and shape.dialect == "chat":
        is_piece = "choices" not in fields  # an error, or a delta without its chunk
    if shape is not None and not is_piece:
        return _shaped(shape, kind, fields, data, place)
    return _typed(kind, fields, data, place) if kind else _untyped(fields, data, place)


def _shaped(
    shape: Shape, kind: str, fields: Fields, data: bytes, place: PayloadContext
) -> tuple[Payload, ...]:
    """A whole payload of a stream, or a body."""
    if shape.dialect == "chat":
        return _chat(fields, data, place)
    is_whole = shape.form == "body" and shape.is_sure
    return (Payload(shape.dialect, data, place.choice, is_whole, event="" if is_whole else kind),)


def _typed(
    kind: str, fields: Fields, data: bytes, place: PayloadContext
) -> tuple[Payload, ...] | None:
    if kind in _CODEX_V1_TYPES or kind.startswith(_CODEX_V1_PREFIX) or kind == "chunk":
        return _unwrap(fields, place)
    if _is_helper(kind, fields):
        return ()
    if kind in ("function", "custom") and read_object(fields.get(kind)):
        return (_chat_piece(b'{"tool_calls":[' + data + b"]}", place, has_calls=True),)
    return _item(kind, data, place)


def _item(kind: str, data: bytes, place: PayloadContext) -> tuple[Payload, ...] | None:
    """A bare item, block or message."""
    if kind in MESSAGES_BLOCKS or kind.endswith("_tool_result"):
        reason = b"tool_use" if kind == "tool_use" else b"end_turn"
        body = _MESSAGE % (data, reason)
        return (Payload("messages", body, place.choice, is_whole=True),)
    if kind in _CODEX_ITEMS:
        method = b"item/completed" if place.is_final else b"item/started"
        return (Payload("codex", _NOTIFICATION % (method, data), place.choice),)
    if kind == "message" or kind in _RESPONSES_ITEMS or kind.endswith(_RESPONSES_ENDINGS):
        return (Payload("responses", _RESPONSE % data, place.choice, is_whole=True),)
    return None


def _untyped(fields: Fields, data: bytes, place: PayloadContext) -> tuple[Payload, ...] | None:
    if "choices" in fields:  # of the legacy completions API
        return _chat(fields, data, place)
    if _is(fields, "delta", b"{") or _is(fields, "message", b"{"):
        return _chat_choice(fields, place)
    if any(_is(fields, key, b"{") for key in _WRAPPERS):
        return _unwrap(fields, place)
    if not _CHAT_FIELDS.isdisjoint(fields):
        has_calls = _is(fields, "tool_calls", b"[") or _is(fields, "function_call", b"{")
        return (_chat_piece(data, place, has_calls=has_calls),)
    if read_object(fields.get("error")):
        return (Payload("chat", data, place.choice),)
    # An answer to a JSON-RPC request, or an object with only nulls: neither has anything to read.
    is_nothing = "result" in fields or all(bytes(value) == b"null" for value in fields.values())
    return () if is_nothing else None


def _chat(fields: Fields, data: bytes, place: PayloadContext) -> tuple[Payload, ...]:
    choices = read_list(fields.get("choices")) or []
    entries = [read_object(choice) for choice in choices]
    if not entries:
        # Leave it to the reader to refuse anything but an array or null.
        is_odd = read_object(fields.get("error")) or bytes(fields["choices"])[:1] not in (
            b"[",
            b"n",
        )
        return (Payload("chat", data, place.choice),) if is_odd else ()
    has_message = any(_is(entry, "message", b"{") for entry in entries)
    if has_message or (place.is_final and not any("delta" in entry for entry in entries)):
        return (Payload("chat", data, place.choice, is_whole=True),)
    places = [place.choice if (own := _index(entry, "index")) is None else own for entry in entries]
    if len(entries) == 1:
        return (Payload("chat", data, places[0]),)
    return tuple(
        Payload("chat", b'{"choices":[%b]}' % bytes(choice), number)
        for choice, number in zip(choices, places, strict=True)
    )


def _chat_choice(fields: Fields, place: PayloadContext) -> tuple[Payload, ...] | None:
    """A choice without its chunk, or another object with the member `delta` or `message`."""
    place = _within(fields, place)
    is_whole = _is(fields, "message", b"{")
    piece = bytes(fields["message" if is_whole else "delta"])
    inner = read_object(piece)
    if _text(inner, "type") or _text(inner, "method"):
        return _recognise(inner, piece, replace(place, is_final=place.is_final or is_whole))
    if is_whole:
        place = replace(place, is_final=True)
    has_calls = any(name in inner for name in ("tool_calls", "function_call"))
    finish = bytes(fields.get("finish_reason", b"null"))
    return (_chat_piece(piece, place, has_calls=has_calls, finish=finish),)


def _chat_piece(
    piece: bytes, place: PayloadContext, *, has_calls: bool, finish: bytes = b"null"
) -> Payload:
    """A delta or a message in the chunk or the body that its reader expects. A message gets a finish reason if it has none."""
    if place.is_final and finish == b"null":
        finish = b'"tool_calls"' if has_calls else b'"stop"'
    name = b"message" if place.is_final else b"delta"
    data = _CHUNK % (place.choice, name, piece, finish)
    return Payload("chat", data, place.choice, is_whole=place.is_final)


def _unwrap(fields: Fields, place: PayloadContext) -> tuple[Payload, ...]:
    """The payloads in a wrapper. Codex's first protocol has many events without anything to read: no payloads."""
    place = _within(fields, place)
    for key in _WRAPPERS:
        inner = bytes(fields.get(key, b"null"))
        inside = replace(place, depth=place.depth + 1, is_final=place.is_final or key == "message")
        if inner.startswith(b"{"):
            return _recognise(read_object(inner), inner, inside) or ()
        if inner.startswith(b'"') and key in ("delta", "message"):
            return (_chat_piece(b'{"content":%b}' % inner, inside, has_calls=False),)
    return ()


def _within(fields: Fields, place: PayloadContext) -> PayloadContext:
    number = _index(fields, "choice_index", "choiceIndex", "index")
    return place if number is None else replace(place, choice=number)


def _is_helper(kind: str, fields: Fields) -> bool:
    return (
        kind.startswith(_HELPER_PREFIXES)
        or kind in _HELPER_TYPES
        or (kind in MESSAGES_BLOCKS and _HELPER_FIELD in fields)
    )


def _conversation(fields: Fields) -> str:
    params = read_object(fields.get("params"))
    turn = _text(params, "turnId") or _text(read_object(params.get("turn")), "id")
    return f"{_text(params, 'threadId')}/{turn}"


def _is(fields: Fields, key: str, opening: bytes) -> bool:
    return bytes(fields.get(key, b"")).startswith(opening)


def _text(fields: Fields, key: str) -> str:
    return read_fragment(fields.get(key)) or ""


def _index(fields: Fields, *keys: str) -> int | None:
    """The number of a choice: the first of these keys that holds a number."""
    for key in keys:
        value = read_json(fields.get(key))
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


MAX_PROBLEMS = 1000
"""The number of newest problems that are kept: a long turn of a broken server must not grow without limit."""

_SHOWN_FIELDS = 8


class PayloadReading(Struct, frozen=True):
    """The events of a payload in one choice. `channel`: the number of the reader. `seed`: from which it mints ids."""

    dialect: Dialect
    choice: int
    channel: int
    events: tuple[Event, ...]
    problems: tuple[tuple[str, str], ...]
    seed: str
    is_whole: bool = False

    def choice_of(self, start: PartStarted) -> int:
        """The choice of a part. Only Chat has several, and numbers them itself."""
        return start.choice if self.dialect == "chat" else self.choice


def nameless_call(event: Event) -> Call | None:
    """The call without a name that a reader noticed; None for any other event."""
    if not isinstance(event, Noticed) or event.kind != "nameless":
        return None
    return Call(call_id=event.name, name="", input=read_text(event.raw) or "")


class _Channel(Struct):
    number: int
    reader: FrameReader
    seed: str


_Key = tuple[int, Dialect, str]


class PayloadReader:
    """Reads payloads of any dialect.

    dialect: the dialect of every payload, if the caller knows it; None: recognise each payload by its shape.
    failure: why only whole messages are read for the rest of this turn.
    """

    def __init__(self, context: DecodeContext, dialect: Dialect | None = None) -> None:
        self.problems: deque[Problem] = deque(maxlen=MAX_PROBLEMS)
        self._context = context
        self._dialect: Dialect | None = dialect
        self._channels: dict[_Key, _Channel] = {}
        self._channel_count = 0
        self._payload_count = 0
        self.failure: ErrorInfo | None = None
        self._turn = 0

    def read(self, payload: object, place: PayloadContext) -> list[PayloadReading]:
        """Read one payload: its events, by choice and stream."""
        if is_empty(payload):
            return []
        self._payload_count += 1
        readings: list[PayloadReading] = []
        try:
            for document in to_documents(payload):
                readings.extend(self._read_document(document, place))
        except GatewayError as error:
            self.note("unknown_payload", error.message)
            if not place.is_final:
                readings.extend(self.fail(error.message))
        return readings

    def fail(self, message: str) -> list[PayloadReading]:
        """Fail all streams because a piece of one cannot be read: open parts stay unfinished."""
        message = f"payload {self._payload_count}: {message}"
        info = self.failure = ErrorInfo(kind="protocol", message=message)
        return [
            self._reading(key, channel, channel.reader.fail(info))
            for key, channel in tuple(self._channels.items())
            if not channel.reader.over
        ]

    def end(self, choice: int | None) -> list[PayloadReading]:
        """End the streams of one choice, or of all."""
        readings: list[PayloadReading] = []
        for key in self._keys(choice):
            channel = self._channels.pop(key)
            if not channel.reader.over:
                readings.append(self._reading(key, channel, channel.reader.end()))
        return readings

    def reset(self, choice: int | None) -> None:
        """Forget the streams of one choice, or of all."""
        for key in self._keys(choice):
            del self._channels[key]
        self.failure = None
        self._turn += 1
        if choice is None:
            self.problems.clear()

    def note(self, kind: str, message: str) -> None:
        self.problems.append(Problem(self._payload_count, kind, message))

    def _read_document(self, document: bytes, place: PayloadContext) -> Iterable[PayloadReading]:
        if document == DONE:
            # The marker names no choice, so it ends every stream that could have sent it.
            return [
                self._read_frame(key, channel, DONE)
                for key, channel in tuple(self._channels.items())
                if key[1] != "codex" and not channel.reader.over
            ]
        try:
            shapes = shapes_of(document, place)
        except MalformedJson:
            # Without its message, which quotes the payload.
            size = len(document)
            raise MalformedJson(f"expected a JSON object, got {size} other bytes") from None
        if self._dialect is not None:
            shapes = self._only_dialect(self._dialect, shapes, document, place)
        if shapes is None:
            self.note("unknown_payload", _describe(document))
            return []
        return [
            reading
            for shape in shapes
            for reading in (self._read_body(shape) if shape.is_whole else self._read(shape))
        ]

    def _only_dialect(
        self,
        dialect: Dialect,
        shapes: tuple[Payload, ...] | None,
        document: bytes,
        place: PayloadContext,
    ) -> tuple[Payload, ...]:
        own = tuple(shape for shape in shapes or () if shape.dialect == dialect)
        if own or shapes == ():
            return own
        return (Payload(dialect, document, place.choice, place.is_final and dialect in CODECS),)

    def _read(self, shape: Payload) -> list[PayloadReading]:
        if self.failure is not None:
            return []
        choice = 0 if shape.dialect == "chat" and self._context.choices == 1 else shape.choice
        key = (choice, shape.dialect, shape.stream)
        channel = self._channels.get(key)
        if channel is None or channel.reader.over:
            seed = self._seed(shape, choice)
            reader = UPSTREAM_CODECS[shape.dialect].reader(replace(self._context, seed=seed))
            channel = self._channels[key] = _Channel(self._next_channel(), reader, seed)
        return [self._read_frame(key, channel, shape.data, shape.event)]

    def _read_frame(
        self, key: _Key, channel: _Channel, data: bytes, event: str = ""
    ) -> PayloadReading:
        raw = b"event: %b\n" % replace_lone(event).encode() if event else b""
        channel.reader.frame += 1
        return self._reading(key, channel, channel.reader.read(Frame(raw, data)))

    def _read_body(self, shape: Payload) -> list[PayloadReading]:
        seed = self._seed(shape, shape.choice)
        step = CODECS[shape.dialect].read_body(shape.data, replace(self._context, seed=seed))
        problems = self._note_all(
            [(problem.kind, problem.message) for problem in step.problems], step.events
        )
        channel = self._next_channel()
        return [
            PayloadReading(
                shape.dialect, shape.choice, channel, step.events, problems, seed, is_whole=True
            )
        ]

    def _reading(self, key: _Key, channel: _Channel, events: tuple[Event, ...]) -> PayloadReading:
        problems = self._note_all(channel.reader.problems, events)
        channel.reader.problems.clear()
        return PayloadReading(key[1], key[0], channel.number, events, problems, channel.seed)

    def _note_all(
        self, found: list[tuple[str, str]], events: tuple[Event, ...]
    ) -> tuple[tuple[str, str], ...]:
        problems = tuple(found)
        for kind, message in problems:
            self.note(kind, message)
        if events and isinstance(failed := events[-1], Failed):
            self.note("failed", f"{failed.error.kind}: {failed.error.message}")
        return problems

    def _next_channel(self) -> int:
        self._channel_count += 1
        return self._channel_count

    def _seed(self, shape: Payload, choice: int) -> str:
        """The seed of a reader: minted ids must differ between choices, turns and, if the answer has an id, answers."""
        origin = self._context.seed or source_of(shape.data) or shape.stream
        return f"{origin}#{self._turn}.{choice}"

    def _keys(self, choice: int | None) -> list[_Key]:
        return [key for key in self._channels if choice is None or key[0] == choice]


def _describe(document: bytes) -> str:
    names = sorted(as_object(document))
    shown = ", ".join(repr(name) for name in names[:_SHOWN_FIELDS])
    more = ", …" if len(names) > _SHOWN_FIELDS else ""
    return f"expected a payload of a known dialect, got an object with the fields {shown}{more}"
