"""What every dialect offers, and the one machine they share: frames in, steps out.

A dialect package has

    decode.py    a FrameReader: what one SSE frame means; and `read_body`, the same meaning for a whole body
    encode.py    a StreamEncoder: events to SSE bytes; and `encode_body`, events to a body
    request.py   `decode_request`, `encode_request`
    errors.py    error bodies, both ways
    losses.py    what this dialect cannot express
    wire.py      the vendor's spellings; no other module sees them

This module does no I/O and knows no vendor.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

from dragoman.core.aliases import IdLimits, NameLimits, NameMap
from dragoman.core.schemas import SchemaRules
from dragoman.errors import FrameTooLarge, MalformedJson
from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Problem, Repair
from dragoman.model.parts import CallKind, Dialect
from dragoman.model.request import Tool
from dragoman.sse import MAX_FRAME_BYTES, Frame, FrameParser, is_utf8, parse_lines

__all__ = (
    "DecodeContext",
    "EncodeContext",
    "EncodedRequest",
    "FrameReader",
    "Step",
    "StreamDecoder",
    "StreamEncoder",
    "Target",
)


class Step(Struct, frozen=True, gc=False):
    """What one frame meant. Joining `raw` of all steps gives the input back, byte for byte."""

    raw: bytes
    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()


class DecodeContext(Struct, frozen=True, kw_only=True):
    """What a decoder may know of the request its stream answers.

    tools: the tools that were offered, by the names the upstream knows them by; they settle names that never come.
    choices: how many choices were asked for (None: unknown). With 1, a stream that spreads one answer over several
        choices (Copilot does) is merged.
    name_fallback: `schema`: the only tool whose schema the arguments satisfy; `positional`: the n-th tool.
    seed: for minted ids; empty means the response's own id.
    """

    tools: tuple[Tool, ...] = ()
    choices: int | None = None
    name_fallback: Literal["schema", "positional"] = "schema"
    seed: str = ""


class EncodeContext(Struct, frozen=True, kw_only=True):
    """What an encoder must be told because events do not say it.

    model: the name the client asked for; replaces the upstream's. created: used when the upstream gave none.
    include_usage: Chat only sends usage when asked. profile: Responses' `required_action` variant.
    legacy_functions: Chat's `function_call` instead of `tool_calls`, for clients that sent `functions`.
    """

    model: str | None = None
    created: int = 0
    seed: str = ""
    include_usage: bool = True
    profile: Literal["default", "required_action"] = "default"
    legacy_functions: bool = False
    losses: Mapping[str, LossAction] = field(default_factory=dict[str, LossAction])


class Target(Struct, frozen=True, kw_only=True):
    """What one upstream accepts. Each dialect has a default; an operator's table may override it per model.

    default_max_tokens: sent where the dialect demands a limit and the client gave none.
    builtin: the kinds of provider-run tools this upstream has. strict: whether it knows strict functions.
    user_first: whether a conversation must open with a user turn (some Chat servers answer 400 otherwise).
    """

    dialect: Dialect
    names: NameLimits
    ids: IdLimits
    schemas: SchemaRules
    default_max_tokens: int = 8192
    builtin: frozenset[CallKind] = frozenset()
    strict: bool = True
    user_first: bool = False


class EncodedRequest(Struct, frozen=True):
    """A request in a target's dialect, and what is needed to read the answer back in the client's terms."""

    body: bytes
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


class FrameReader(Protocol):
    """The meaning of one dialect's frames. Lives as long as one stream.

    `over` turns true with the terminal event; `found` collects what was irregular as (kind, message) and is emptied
    by the caller after each frame.
    """

    over: bool
    found: list[tuple[str, str]]

    def quick(self, piece: bytes, data: bytes, /) -> tuple[Event, ...] | None:
        """What a frame means that is nothing but the next delta of an open part; None for every other frame.

        `read` gives the same for the same frame; this is how nearly all of them are read. `piece` is the frame without
        its blank line, `data` what follows its only `data: `, if it is one line; if it is not, it is no JSON.
        """
        ...

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """Raises MalformedJson for a frame that cannot be read; the stream goes on without it."""
        ...

    def end(self) -> tuple[Event, ...]:
        """The wire has ended: what must still be said. Ends with Completed, or with Failed if it was cut."""
        ...

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """Close what is open as incomplete, then fail."""
        ...


class StreamEncoder(Protocol):
    """Events to bytes. `losses` grows as things turn up that the dialect cannot say."""

    @property
    def losses(self) -> Sequence[Loss]: ...

    def encode(self, event: Event) -> bytes: ...

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        ...


class StreamDecoder:
    """Feeds a FrameReader: splits reads into frames, survives bad ones, stops at the terminal event."""

    def __init__(self, reader: FrameReader, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._reader = reader
        self._quick_read = reader.quick
        self._found = reader.found
        self._parser = FrameParser(max_frame)
        self._count = 0
        self._broken = False
        self.problems: list[Problem] = []

    def feed(self, data: bytes) -> list[Step]:
        if self._broken:
            return [Step(data)]
        pieces = self._parser.pieces(data)
        if pieces is not None:
            return [self._piece_step(piece) for piece in pieces]
        try:
            frames = self._parser.feed(data)
        except FrameTooLarge as error:
            return [self._break(error)]
        return [self._step(frame) for frame in frames]

    def close(self) -> list[Step]:
        """The steps that remain. The last says Completed or Failed unless an earlier one did."""
        if self._broken:
            return []
        try:
            frames = self._parser.close()
        except FrameTooLarge as error:
            return [self._break(error)]
        steps = [self._step(frame) for frame in frames]
        if not self._reader.over:
            events = self._reader.end()
            steps.append(Step(b"", events, self._problems()))
        return steps

    def events(self, data: bytes) -> Sequence[Event]:
        """As `feed`, for callers that have no use for the bytes; what was irregular gathers in `problems`."""
        if not self._broken:
            single = self._parser.single(data)
            if single is not None:
                return self._told(single)
            pieces = self._parser.pieces(data)
            if pieces is not None:
                events: list[Event] = []
                for piece in pieces:
                    events += self._told(piece)
                return events
        steps = self.feed(data)
        self.problems.extend(problem for step in steps for problem in step.problems)
        return [event for step in steps for event in step.events]

    def _told(self, piece: bytes) -> tuple[Event, ...]:
        events = self._quick(piece)
        if events is None:
            step = self._step(_frame(piece))
            self.problems += step.problems
            return step.events
        if self._found:
            self.problems += self._problems()
        return events

    def _quick(self, piece: bytes) -> tuple[Event, ...] | None:
        """What a frame means that is one plain delta: nearly every frame is, and is understood without a Frame.

        Its data is one line after at most an event line. What stands after that line is not looked at: with it the
        data is no JSON, and then the frame is read line by line.
        """
        if piece.startswith(b"event: "):
            start = piece.find(b"\n") + 7
            if not piece.startswith(b"data: ", start - 6):
                return None
        elif piece.startswith(b"data: "):
            start = 6
        else:
            return None
        if self._reader.over or not (piece.isascii() or is_utf8(piece)):
            return None
        events = self._quick_read(piece, piece[start:])
        if events is not None:
            self._count += 1
        return events

    def _piece_step(self, piece: bytes) -> Step:
        events = self._quick(piece)
        if events is None:
            return self._step(_frame(piece))
        return Step(piece + b"\n\n", events, self._problems() if self._found else ())

    def _step(self, frame: Frame) -> Step:
        reader = self._reader
        self._count += 1
        if reader.over:
            # "nothing follows a terminal event": late frames keep their bytes and mean nothing
            return Step(frame.raw)
        try:
            events = reader.read(frame)
        except MalformedJson as error:
            events = ()
            reader.found.append(("malformed_frame", error.message))
        if frame.invalid_utf8:
            reader.found.append(("invalid_utf8", "bytes that are no UTF-8 were read as U+FFFD"))
        return Step(frame.raw, events, self._problems() if reader.found else ())

    def _break(self, error: FrameTooLarge) -> Step:
        self._broken = True
        info = ErrorInfo(kind="too_large", message=error.message, status=error.status)
        events = () if self._reader.over else self._reader.fail(info)
        problem = Problem(self._count + 1, "frame_too_large", error.message)
        return Step(self._parser.rest(), events, (problem,))

    def _problems(self) -> tuple[Problem, ...]:
        found = self._reader.found
        problems = tuple(Problem(self._count, kind, message) for kind, message in found)
        found.clear()
        return problems


def _frame(piece: bytes) -> Frame:
    """A frame from what stood before its blank line. The common shape is read at once."""
    raw = piece + b"\n\n"
    head, _, data = piece.partition(b"\ndata: ")
    is_plain = head.startswith(b"event: ") and b"\n" not in head and data and b"\n" not in data
    if is_plain and (piece.isascii() or is_utf8(piece)):
        return Frame(raw, data)
    return parse_lines(raw, is_first=False)
