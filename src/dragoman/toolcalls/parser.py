"""Tool calls with parsed parameters, from a body or a stream of any dialect; text and calls side by side.

Each call is returned as soon as its dialect closes it. A call that cannot be used is returned too, with an error in its
metadata, and does not delay any other.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman._json import Raw, loads
from dragoman.core.fields import kind_of
from dragoman.core.ids import Minter
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import DecodeContext
from dragoman.errors import ConfigError, FrameTooLarge, GatewayError, MalformedJson, ToolError
from dragoman.model.events import (
    Event,
    Failed,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    TextDelta,
)
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.parts import Call, Dialect, Part, Text
from dragoman.sse import MAX_FRAME_BYTES, Frame, FrameParser
from dragoman.toolcalls.payloads import (
    BOM,
    PayloadContext,
    PayloadReader,
    PayloadReading,
    document_of,
    nameless_call,
)

Provider = Literal["openai", "anthropic", "codex"]

PROVIDERS: Mapping[Dialect, Provider] = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "codex": "codex",
}
# The end of a minted id counts: two hexadecimal digits, or as many as it takes.
_COUNT_DIGITS = 2
_COUNT = re.compile("[0-9a-f]{2,8}")


class ToolCallMetadata(Struct, frozen=True, kw_only=True):
    """Where a call came from. `raw` is the call with its exact argument text; `timestamp` is ISO 8601 in UTC."""

    provider: Provider | None = None
    dialect: Dialect | None = None
    timestamp: str | None = None
    raw: Call | None = None
    error: ToolError | None = None
    choice_index: int = 0


class ToolCall(Struct, frozen=True):
    """A call in no dialect. If `metadata.error` says that the parameters cannot be read, they are empty.

    The input of a custom (freeform) tool is not JSON; it becomes the parameter `input`.
    """

    id: str
    name: str
    parameters: dict[str, object]
    metadata: ToolCallMetadata


def unify(
    call: Call, *, dialect: Dialect | None, choice: int, now: datetime | None, lacks_id: bool
) -> ToolCall:
    """A call as its unified value. `lacks_id`: the payload had no id, and the reader minted one."""
    parameters, problem = _parameters(call)
    if not problem and lacks_id:
        problem = "it was received without an id; a new id was assigned"
    error = f"call {call.call_id!r} of {call.name!r}: {problem}" if problem else ""
    metadata = _metadata(dialect, choice, now, error, raw=call)
    return ToolCall(call.call_id, call.name, parameters, metadata)


def nameless(
    call: Call | None, *, dialect: Dialect | None, choice: int, now: datetime | None
) -> ToolCall:
    """A call whose name never arrived. None: its reader has reported nothing else of it."""
    call_id = call.call_id if call is not None else ""
    error = f"call {call_id!r}: expected a name, got none, and it fits no offered tool"
    return ToolCall(call_id, "", {}, _metadata(dialect, choice, now, error, raw=call))


def _metadata(
    dialect: Dialect | None, choice: int, now: datetime | None, error: str, raw: Call | None = None
) -> ToolCallMetadata:
    return ToolCallMetadata(
        provider=PROVIDERS[dialect] if dialect is not None else None,
        dialect=dialect,
        timestamp=_stamp(now),
        raw=raw,
        error=ToolError(error) if error else None,
        choice_index=choice,
    )


def is_minted(call_id: str, seed: str, bound: int) -> bool:
    """Whether the id is one of the first `bound` ids that a reader with this seed mints."""
    stem = Minter(seed)("")[:-_COUNT_DIGITS]
    _, is_ours, count = call_id.rpartition(stem)
    return bool(is_ours) and _COUNT.fullmatch(count) is not None and int(count, 16) <= bound


def _parameters(call: Call) -> tuple[dict[str, object], str]:
    """The parsed input, and the error in it; no error: an empty text."""
    if call.status != "completed":
        return {}, "it was cut off before its end"
    if call.kind == "custom":
        return {"input": call.input}, ""
    if not call.input.strip():
        return {}, ""
    try:
        value = cast("object", loads(call.input))
    except MalformedJson:
        return (
            {},
            f"expected arguments that are JSON, got {len(call.input)} characters that are not",
        )
    if not isinstance(value, dict):
        return (
            {},
            f"expected arguments that are a JSON object, got {kind_of(Raw(call.input.strip().encode('utf-8', 'replace')))}",
        )
    return cast("dict[str, object]", value), ""


def _stamp(now: datetime | None) -> str | None:
    if now is None:
        return None
    # A naive time is read as UTC: with the machine's zone, the result would depend on the machine.
    aware = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Clock = Callable[[], datetime]
_PartKey = tuple[int, int]

_NO_CONTEXT = DecodeContext()
_EVENTS = cast("tuple[type[Event], ...]", get_args(Event))
_EVENT_CHANNEL = 0  # events that the caller feeds; readers count from 1


class ParsedToolCalls(Struct, frozen=True, kw_only=True):
    """Calls and text. `text`: of the first choice. `errors`: of the calls. `failure`: why the answer itself failed."""

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    errors: tuple[ToolError, ...] = ()
    problems: tuple[Problem, ...] = ()
    failure: ErrorInfo | None = None


class _OpenPart(Struct):
    """A part that has begun: its header, its choice, and the pieces of its input if it is a call."""

    header: Part
    choice: int
    pieces: list[str] = field(default_factory=list[str])


class ToolCallParser:
    """Returns calls as a stream completes them. `feed` takes bytes of SSE cut anywhere, payloads, or events.

    Examples:
        >>> parser = ToolCallParser()
        >>> parser.feed({"type": "content_block_start", "index": 0,
        ...              "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}})
        ()
        >>> parser.feed({"type": "content_block_delta", "index": 0,
        ...              "delta": {"type": "input_json_delta", "partial_json": '{"city":"Oslo"}'}})
        ()
        >>> [call.parameters for call in parser.feed({"type": "content_block_stop", "index": 0})]
        [{'city': 'Oslo'}]

    clock: stamps calls when they are returned; without a clock they have no timestamp.
    context: facts about the request; its tools supply names that the payloads lack.

    Raises:
        ConfigError: there is no such dialect.
    """

    def __init__(
        self,
        *,
        dialect: Dialect | Literal["auto"] = "auto",
        clock: Clock | None = None,
        context: DecodeContext = _NO_CONTEXT,
    ) -> None:
        known = ("auto", *PROVIDERS)
        if dialect not in known:
            raise ConfigError(f"expected a dialect, one of {', '.join(known)}; got {dialect!r}")
        self._failure: ErrorInfo | None = None
        self._reader = PayloadReader(context, None if dialect == "auto" else dialect)
        self._clock = clock
        self._frames: FrameParser | None = None
        self._open: dict[_PartKey, _OpenPart] = {}
        self._texts: dict[_PartKey, list[str]] = {}
        self._lacking: set[int] = set()

    @property
    def failure(self) -> ErrorInfo | None:
        """Why the answer failed, if it did."""
        return self._failure or self._reader.failure

    @property
    def text(self) -> str:
        """The text of the first choice so far."""
        return "".join(piece for pieces in self._texts.values() for piece in pieces)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems: irregular or unreadable payloads. `frame` counts payloads from 1."""
        return tuple(self._reader.problems)

    def feed(self, payload: object) -> tuple[ToolCall, ...]:
        """The calls that this payload completes."""
        if isinstance(payload, _EVENTS):
            return self._take(_EVENT_CHANNEL, payload, None)
        if isinstance(payload, str):
            payload = replace_lone(payload).encode()
        if isinstance(payload, (bytes, bytearray)):
            return self._feed_bytes(bytes(payload))
        return self._route(payload, PayloadContext())

    def feed_whole(self, body: object) -> tuple[ToolCall, ...]:
        """The calls of a finished answer, message or item."""
        return self._route(body, PayloadContext(is_final=True))

    def close(self) -> tuple[ToolCall, ...]:
        """End the stream. Returns the calls that were cut off, with their error; all state but the text is dropped."""
        frames, self._frames = self._frames, None
        calls = list(self._read_frames(frames.close()) if frames is not None else ())
        for reading in self._reader.end(None):
            calls.extend(self._take_reading(reading))
        for part in self._open.values():
            if isinstance(part.header, Call) and part.header.executor == "client":
                cut = replace(part.header, input="".join(part.pieces), status="incomplete")
                calls.append(self._unify(cut, None, part.choice, lacks_id=False))
        self._open.clear()
        self._lacking.clear()
        return tuple(calls)

    def _feed_bytes(self, data: bytes) -> tuple[ToolCall, ...]:
        """Read bytes. The first bytes decide: JSON comes in whole documents, anything else is SSE, cut anywhere."""
        if self._frames is None:
            if _is_json(data):
                return self._route(data, PayloadContext())
            self._frames = FrameParser(MAX_FRAME_BYTES)
        try:
            frames = self._frames.feed(data)
        except FrameTooLarge as error:
            self._frames = None
            self._reader.note("frame_too_large", error.message)
            return tuple(self._fail(error))
        return tuple(self._read_frames(frames))

    def _read_frames(self, frames: Iterable[Frame]) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for frame in frames:
            try:
                document = document_of(frame)
            except MalformedJson as error:
                kind = "invalid_utf8" if frame.invalid_utf8 else "unknown_payload"
                self._reader.note(kind, error.message)
                calls.extend(self._fail(error))
            else:
                if document is not None:
                    calls.extend(self._route(document, PayloadContext()))
        return calls

    def _fail(self, error: GatewayError) -> list[ToolCall]:
        """Fail the stream because a piece of it cannot be read. Returns its open calls with their error."""
        readings = self._reader.fail(error.message)
        return [call for reading in readings for call in self._take_reading(reading)]

    def _route(self, payload: object, place: PayloadContext) -> tuple[ToolCall, ...]:
        readings = self._reader.read(payload, place)
        return tuple(call for reading in readings for call in self._take_reading(reading))

    def _take_reading(self, reading: PayloadReading) -> list[ToolCall]:
        calls: list[ToolCall] = []
        if any(kind == "missing_id" for kind, _ in reading.problems):
            self._lacking.add(reading.channel)
        for event in reading.events:
            calls.extend(self._take(reading.channel, event, reading))
        is_noticed = any(nameless_call(event) is not None for event in reading.events)
        if not is_noticed and any(kind == "nameless_call" for kind, _ in reading.problems):
            calls.append(self._nameless(None, reading, reading.choice))
        return calls

    def _take(
        self, channel: int, event: Event, reading: PayloadReading | None
    ) -> tuple[ToolCall, ...]:
        match event:
            case PartStarted():
                self._start((channel, event.part), event, reading)
            case TextDelta() if (channel, event.part) in self._texts:
                self._texts[channel, event.part].append(event.text)
            case InputDelta() if channel == _EVENT_CHANNEL and (channel, event.part) in self._open:
                self._open[channel, event.part].pieces.append(event.text)
            case PartEnded():
                return self._end((channel, event.part), event, reading)
            case Failed():
                self._failure = event.error
            case Noticed() if (call := nameless_call(event)) is not None:
                is_chat = reading is not None and reading.dialect == "chat"
                choice = event.choice if is_chat or reading is None else reading.choice
                return (self._nameless(call, reading, choice),)
            case _:
                pass
        return ()

    def _nameless(self, call: Call | None, reading: PayloadReading | None, choice: int) -> ToolCall:
        dialect = reading.dialect if reading is not None else None
        return nameless(call, dialect=dialect, choice=choice, now=self._now())

    def _start(self, key: _PartKey, event: PartStarted, reading: PayloadReading | None) -> None:
        choice = event.choice if reading is None else reading.choice_of(event)
        self._open[key] = _OpenPart(event.header, choice)
        if isinstance(event.header, Text) and choice == 0:
            self._texts[key] = []

    def _end(
        self, key: _PartKey, event: PartEnded, reading: PayloadReading | None
    ) -> tuple[ToolCall, ...]:
        part = self._open.pop(key, None)
        value = event.value
        if isinstance(value, Text) and key in self._texts:
            self._texts[key] = [value.text]
        if not isinstance(value, Call) or value.executor != "client":
            return ()
        lacks_id = (
            reading is not None
            and key[0] in self._lacking
            # A reader mints at most a few ids per part: the call's, its item's, the answer's.
            and is_minted(value.call_id, reading.seed, 4 * (event.part + 1) + 8)
        )
        choice = part.choice if part is not None else 0
        return (self._unify(value, reading, choice, lacks_id=lacks_id),)

    def _unify(
        self, call: Call, reading: PayloadReading | None, choice: int, *, lacks_id: bool
    ) -> ToolCall:
        dialect = reading.dialect if reading is not None else None
        return unify(call, dialect=dialect, choice=choice, now=self._now(), lacks_id=lacks_id)

    def _now(self) -> datetime | None:
        return self._clock() if self._clock is not None else None


def parse_tool_calls(
    source: object,
    *,
    dialect: Dialect | Literal["auto"] = "auto",
    clock: Clock | None = None,
    context: DecodeContext = _NO_CONTEXT,
) -> ParsedToolCalls:
    """All calls of an answer, and its text.

    Examples:
        >>> body = b'{"type":"message","content":[{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Oslo"}}]}'
        >>> [(call.name, call.parameters) for call in parse_tool_calls(body).calls]
        [('weather', {'city': 'Oslo'})]

    source: a body (bytes, text, mapping or an SDK's object), a recorded SSE stream, or an iterable of events or of
        payloads of a stream.
    clock: stamps the calls; without a clock they have no timestamp.

    Raises:
        ConfigError: there is no such dialect.
    """
    parser = ToolCallParser(dialect=dialect, clock=clock, context=context)
    calls: list[ToolCall] = []
    if isinstance(source, str):
        source = replace_lone(source).encode()
    if isinstance(source, (bytes, bytearray)) and not _is_json(bytes(source)):
        calls.extend(parser.feed(source))
    elif _is_one(source):
        calls.extend(parser.feed_whole(source))
    else:
        for payload in cast("Iterable[object]", source):
            calls.extend(parser.feed(payload))
    calls.extend(parser.close())
    return ParsedToolCalls(
        calls=tuple(calls),
        text=parser.text,
        errors=tuple(call.metadata.error for call in calls if call.metadata.error is not None),
        problems=parser.problems,
        failure=parser.failure,
    )


def _is_json(data: bytes) -> bool:
    return data.removeprefix(BOM).lstrip()[:1] in (b"{", b"[")


def _is_one(source: object) -> bool:
    """Whether the source is one document rather than many. An SDK's object is one, although it can be iterated."""
    return (
        isinstance(source, (bytes, bytearray, Mapping))
        or hasattr(source, "model_dump")
        or not isinstance(source, Iterable)
    )
