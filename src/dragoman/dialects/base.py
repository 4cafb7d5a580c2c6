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
from itertools import chain, takewhile
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

        `read` gives the same for the same frame; this is how nearly all of them are read. `piece` is the frame, with or
        without its blank line, `data` what follows its only `data: `, if it is one line; if it is not, it is no JSON.
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
    """Feeds a FrameReader: splits reads into frames, survives bad ones, stops at the terminal event.

    `problems` gathers what was irregular; each step has its own of them too.
    """

    def __init__(self, reader: FrameReader, max_frame: int = MAX_FRAME_BYTES) -> None:
        self.problems: list[Problem] = []
        self._reader = reader
        self._quick = reader.quick
        self._found = reader.found
        self._parser = FrameParser(max_frame)
        self._count = 0
        self._broken = False
        self._opening = b"data: "  # how the last plain frame began, up to its data

    def feed(self, data: bytes) -> list[Step]:
        """What the frames mean that end in `data`, one step each."""
        if self._broken:
            return [Step(data)]
        pieces = self._parser.pieces(data)
        if pieces is not None:
            return self._steps([piece + b"\n\n" for piece in pieces], self._tell(pieces))
        try:
            frames = self._parser.feed(data)
        except FrameTooLarge as error:
            return [self._break(error)]
        return self._frame_steps(frames)

    def events(self, data: bytes) -> Sequence[Event]:
        """As `feed`, for callers that have no use for the bytes.

        A read that is one plain delta, as token streams come, is understood right here.
        """
        if self._broken:
            return ()
        if self._parser.is_single(data):
            opening = self._opening
            start = len(opening) if data.startswith(opening) else self._open(data)
            if start and not self._reader.over and (data.isascii() or is_utf8(data)):
                events = self._quick(data, data[start:-2])
                if events is not None:
                    self._count += 1
                    if self._found:
                        self._note_found()
                    return events
            return self._read(_frame(data[:-2]))
        pieces = self._parser.pieces(data)
        if pieces is not None:
            return list(chain.from_iterable(self._tell(pieces)))
        return [event for step in self.feed(data) for event in step.events]

    def close(self) -> list[Step]:
        """The steps that remain. The last says Completed or Failed unless an earlier one did."""
        if self._broken:
            return []
        try:
            frames = self._parser.close()
        except FrameTooLarge as error:
            return [self._break(error)]
        steps = self._frame_steps(frames)
        if not self._reader.over:
            events = self._reader.end()
            known = len(self.problems)
            self._note_found()
            steps.append(Step(b"", events, tuple(self.problems[known:])))
        return steps

    def _tell(self, pieces: list[bytes]) -> list[tuple[Event, ...]]:
        """What each frame means. Nearly every one is a plain delta, and is understood without a Frame.

        Its data is one line after at most an event line. What stands after that line is not looked at: with it the
        data is no JSON, and then the frame is read line by line.
        """
        reader = self._reader
        quick = _say_nothing if reader.over else self._quick
        found = self._found
        opening = self._opening
        size = len(opening)
        told: list[tuple[Event, ...]] = []
        quickly = 0  # frames not yet counted
        for piece in pieces:
            if piece.startswith(opening):
                start = size
            else:
                start = self._open(piece)
                opening = self._opening
                size = len(opening)
            events = None
            if start and (piece.isascii() or is_utf8(piece)):
                events = quick(piece, piece[start:])
            if events is None:
                self._count += quickly
                quickly = 0
                events = self._read(_frame(piece))
                quick = _say_nothing if reader.over else quick
            else:
                quickly += 1
                if found:
                    self._count += quickly
                    quickly = 0
                    self._note_found()
            told.append(events)
        self._count += quickly
        return told

    def _open(self, piece: bytes) -> int:
        """Where the data of a plain frame begins; 0 if it is none. The next frame mostly begins alike."""
        start = piece.find(b"\n") + 7 if piece.startswith(b"event: ") else 6
        if not piece.startswith(b"data: ", start - 6):
            return 0
        self._opening = piece[:start]
        return start

    def _read(self, frame: Frame) -> tuple[Event, ...]:
        reader = self._reader
        self._count += 1
        if reader.over:
            return ()  # "nothing follows a terminal event": a late frame keeps its bytes and means nothing
        try:
            events = reader.read(frame)
        except MalformedJson as error:
            events = ()
            reader.found.append(("malformed_frame", error.message))
        if frame.invalid_utf8:
            reader.found.append(("invalid_utf8", "bytes that are no UTF-8 were read as U+FFFD"))
        if reader.found:
            self._note_found()
        return events

    def _frame_steps(self, frames: list[Frame]) -> list[Step]:
        return self._steps([frame.raw for frame in frames], [self._read(frame) for frame in frames])

    def _steps(self, raws: list[bytes], told: list[tuple[Event, ...]]) -> list[Step]:
        """Steps of the frames just read, each with its problems."""
        first = self._count - len(raws) + 1
        if not self.problems or self.problems[-1].frame < first:
            return [Step(raw, events) for raw, events in zip(raws, told, strict=True)]
        fresh = list(takewhile(lambda problem: problem.frame >= first, reversed(self.problems)))
        problems: dict[int, list[Problem]] = {}
        for problem in reversed(fresh):
            problems.setdefault(problem.frame, []).append(problem)
        return [
            Step(raw, events, tuple(problems.get(frame, ())))
            for frame, (raw, events) in enumerate(zip(raws, told, strict=True), start=first)
        ]

    def _break(self, error: FrameTooLarge) -> Step:
        self._broken = True
        info = ErrorInfo(kind="too_large", message=error.message, status=error.status)
        events = () if self._reader.over else self._reader.fail(info)
        problem = Problem(self._count + 1, "frame_too_large", error.message)
        self.problems.append(problem)
        return Step(self._parser.rest(), events, (problem,))

    def _note_found(self) -> None:
        found = self._reader.found
        self.problems.extend(Problem(self._count, kind, message) for kind, message in found)
        found.clear()


def _say_nothing(_piece: bytes, _data: bytes, /) -> None:
    """Stands for `quick` after the end: no delta means anything then."""


def _frame(piece: bytes) -> Frame:
    """A frame from what stood before its blank line. The common shape is read at once."""
    raw = piece + b"\n\n"
    head, _, data = piece.partition(b"\ndata: ")
    is_plain = head.startswith(b"event: ") and b"\n" not in head and data and b"\n" not in data
    if is_plain and (piece.isascii() or is_utf8(piece)):
        return Frame(raw, data)
    return parse_lines(raw, is_first=False)
