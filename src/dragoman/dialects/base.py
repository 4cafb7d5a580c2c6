"""What every dialect offers, and the one machine they share: frames in, steps out.

A dialect package has

    decode.py    a FrameReader: what one SSE frame means; and `read_body`, the same meaning for a whole body
    encode.py    a StreamEncoder: events to SSE bytes
    body.py      `write_body`: a whole answer as a body
    request.py   `decode_request`, `encode_request`
    plain*.py    bodies and requests of the usual shape, by their types alone; what does not fit takes the ways above
    errors.py    error bodies, both ways
    losses.py    what this dialect cannot express
    wire.py      the vendor's spellings; no other module sees them

This module does no I/O and knows no vendor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from operator import methodcaller
from typing import Literal, Protocol

from msgspec import Struct, field

from dragoman._json import MAX_VALUES, has_too_many_values
from dragoman.core.aliases import IdLimits, NameLimits, NameMap
from dragoman.core.deltas import Deltas, spread
from dragoman.core.open_parts import OpenCall, OpenPart, OpenReasoning, OpenText
from dragoman.core.schemas import SchemaRules
from dragoman.core.store_notes import StoreNotes
from dragoman.errors import FrameTooLarge, MalformedJson
from dragoman.model.events import Event, InputDelta, TextDelta
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Problem, Repair
from dragoman.model.parts import CallKind, Dialect
from dragoman.model.request import Tool
from dragoman.sse import MAX_FRAME_BYTES, Frame, FrameParser, is_utf8, parse_lines, portions

__all__ = (
    "DecodeContext",
    "EncodeContext",
    "EncodedRequest",
    "FrameCheck",
    "FrameReader",
    "Look",
    "Step",
    "StreamDecoder",
    "StreamEncoder",
    "Target",
    "check_frame",
)

MAX_PROBLEMS = 1000
"""Problems that are remembered of one stream. Nobody reads more, and an upstream may send nothing else for hours."""

_LF = 0x0A
_FEW = 4  # frames that are not worth being split at their beginnings
_MANY = 128  # frames that are read at a time: what is made of them is then still in the processor's reach
_LONG_OPENING = 256
"""An event line and `data: ` take less than this: the longest name that a vendor has is of 50 characters."""


class Step(Struct, frozen=True, gc=False):
    """What one frame meant. Joining `raw` of all steps gives the input back, byte for byte."""

    raw: bytes
    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()


class DecodeContext(Struct, frozen=True, gc=False, kw_only=True):
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
    """What an encoder must know that events do not say.

    model: the name the client asked for; replaces the upstream's. created: used when the upstream gave none.
    include_usage: Chat only sends usage when asked. profile: Responses' `required_action` variant.
    legacy_functions: Chat's `function_call` instead of `tool_calls`, for clients that sent `functions`.
    last_comment: Chat only: asked when a stream is complete for a comment to stand just before its `[DONE]`.
    response_id: the answer's own id, whatever the upstream calls it; empty: the upstream's, or a minted one.
    previous_id: Responses only: the response that this one continues, written beside it.
    notes: what is written is noted there, for the store.
    """

    model: str | None = None
    created: int = 0
    seed: str = ""
    include_usage: bool = True
    profile: Literal["default", "required_action"] = "default"
    legacy_functions: bool = False
    losses: Mapping[str, LossAction] = field(default_factory=dict[str, LossAction])
    last_comment: Callable[[], str] | None = None
    response_id: str = ""
    previous_id: str | None = None
    notes: StoreNotes | None = None


class Target(Struct, frozen=True, kw_only=True, cache_hash=True):
    """What one upstream accepts. Each dialect has a default; an operator's table may override it per model.

    default_max_tokens: sent where the dialect demands a limit and the client gave none.
    max_tokens_field: Chat only, which of its two names for that limit the upstream reads.
    builtin: the kinds of provider-run tools this upstream has. strict: whether it knows strict functions.
    user_first: whether a conversation must open with a user turn (some Chat servers answer 400 otherwise).
    """

    dialect: Dialect
    names: NameLimits
    ids: IdLimits
    schemas: SchemaRules
    default_max_tokens: int = 8192
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    builtin: frozenset[CallKind] = frozenset()
    strict: bool = True
    user_first: bool = False


class EncodedRequest(Struct, frozen=True, gc=False):
    """A request in a target's dialect, and what is needed to read the answer back in the client's terms."""

    body: bytes
    names: NameMap
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()


class FrameReader(Protocol):
    """The meaning of one dialect's frames. Lives as long as one stream.

    `over` turns true with the terminal event; `problems` collects what was irregular as (kind, message) and is emptied
    by the caller after each frame. `frame`: the number of the frame to `read`, which its caller sets; frames that are plain
    deltas count too.

    There are two ways in. Nearly every frame is the next delta of an open part and nothing else: `find_delta` finds that
    part, and `StreamDecoder` grows it, by many deltas at once where they came together. Every other frame is `read`.
    """

    over: bool
    frame: int
    problems: list[tuple[str, str]]

    def find_delta(self, opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        """The part that a frame grows, and by what, if the frame says nothing else; it changes nothing.

        None: the frame must be read. `read` gives the same for the same frame. `opening` is the frame up to its data, which
        is one line. The text is empty only where the part is a call. Without this a flood costs 2.5 to 6.9 times as much
        and a paced event 1.3 to 2.1 times.
        """
        ...

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """Raises MalformedJson for a frame that cannot be read; the stream fails there (see `StreamDecoder`)."""
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

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """Several deltas of one part that go on after one of the same kind; None if they must be encoded one by one."""
        ...

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:
        """Take up a stream in the middle: the client has seen these events, in the upstream's own frames.

        last: the last of the frames, for those that are numbered. choices: how many have begun.
        """
        ...

    def close(self) -> bytes:
        """Guarantee a terminal: fails the stream if no terminal event was encoded."""
        ...


class Look(Struct, frozen=True, gc=False):
    """What a frame that is no plain delta is to a client that gets it as it came.

    problem: what some client cannot use about it; "" for nothing. input_size: how many characters of tool input it brings.
    model: the model it names. is_stray: it means nothing, and there are clients that stumble over it. is_error: it is
    the dialect's own failure.
    """

    problem: str = ""
    input_size: int = 0
    model: str | None = None
    is_stray: bool = False
    is_error: bool = False


class FrameCheck(Protocol):
    """Finds what some known client cannot use in the frames of one stream of its own dialect. See `relay`.

    `harmless` are the kinds of the reader's problems that no client minds. `ending`: the terminal frame, where one stands
    for all. `model_path`: where a frame has the name of its model. `has_default_input`: a call without input means `{}`.
    `choices`: how many have begun. `is_ahead`: the frames have begun or ended something that the encoder, given the events so far, would write again.
    """

    harmless: frozenset[str]
    ending: bytes
    model_path: tuple[str, ...]
    has_default_input: bool

    @property
    def choices(self) -> int: ...

    @property
    def is_ahead(self) -> bool: ...

    def look(self, frame: Frame, data: bytes, events: Sequence[Event]) -> Look:
        """Check the next frame that is no plain delta. `events`: what the reader made of it."""
        ...

    def take(self, events: Sequence[Event]) -> None:
        """Note events that came without such a frame."""
        ...

    def plain(self, raw: bytes, event: Event | None) -> bytes | None:
        """The frame to send for a plain delta: as it came, but for the model's name; None if a client cannot use it."""
        ...

    def plain_input_size(self, data: bytes) -> int:
        """How many characters of tool input the data of a plain delta brings."""
        ...

    def keep_alive(self) -> bytes:
        """What keeps a silent connection open between the upstream's own frames."""
        ...


class StreamDecoder:
    """Feeds a FrameReader: splits reads into frames, stops at the terminal event or at a frame that cannot be read.

    Nobody knows what such a frame said: it may have been a piece of an open call's input, or a whole call. So the stream
    fails there, and what came before it is exact. Only what the end of the wire left of a frame is no such frame: there
    the stream was cut.

    `problems` gathers what was irregular; each step has its own of them too. `on_frame` is called with every frame that
    is no plain delta, and its number.
    """

    def __init__(
        self,
        reader: FrameReader,
        max_frame: int = MAX_FRAME_BYTES,
        on_frame: Callable[[int, Frame], None] | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self._on_frame = on_frame
        self._reader = reader
        self._fresh = reader.problems  # of the frame at hand
        self._parser = FrameParser(max_frame)
        self._count: int = 0
        self._broken = False
        self._is_cut = False  # the wire has ended: what is left of a frame is read
        self._opening = b"data: "  # how the last frame began whose data is one line, up to its data
        self._may_be_delta = True  # a frame with that opening

    def feed(self, data: bytes) -> list[Step]:
        """What the frames mean that end in `data`, one step each."""
        if self._broken:
            return [Step(data)]
        pieces = self._parser.pieces(data)
        if pieces is not None:
            return self._steps([piece + b"\n\n" for piece in pieces], self._read_pieces(pieces))
        try:
            frames = self._parser.feed(data)
        except FrameTooLarge as error:
            return [self._break(error)]
        return self._frame_steps(frames)

    def events(self, data: bytes) -> Sequence[Event]:
        """As `feed`, for callers that have no use for the bytes."""
        return spread(self.decode(data))

    def decode(self, data: bytes) -> Sequence[Event | Deltas]:
        """The same, with deltas that came together left together.

        A read that is one plain delta, as token streams come, is understood right here.
        """
        if self._broken:
            return ()
        opening = self._opening
        start = len(opening) if data.startswith(opening) else self._open(data)
        if start and self._parser.is_line(data, start) and (data.isascii() or is_utf8(data)):
            line = data[start:-2]
            events = self._read_delta(line)
            return self._read(Frame(data, line)) if events is None else events
        block = self._parser.block(data)
        if block is not None:
            return [one for part in portions(block) for one in self._read_block(part)]
        return [event for step in self.feed(data) for event in step.events]

    def decode_together(self, pieces: list[bytes]) -> Sequence[Event | Deltas]:
        """The same for a read that came in several pieces. Mostly each is a frame: then none need be looked for."""
        out: list[Event | Deltas] = []
        for lines, data in self._parcels(pieces):
            if data:
                out += self.decode(data)
            else:
                self._read_lines(self._opening, lines, 0, out)
        return out

    def close(self) -> list[Step]:
        """The steps that remain. The last says Completed or Failed unless an earlier one did."""
        if self._broken:
            return []
        try:
            frames = self._parser.close()
        except FrameTooLarge as error:
            return [self._break(error)]
        self._is_cut = True
        steps = self._frame_steps(frames)
        if not self._reader.over:
            events = self._reader.end()
            known = len(self.problems)
            self._note_problems()
            steps.append(Step(b"", events, tuple(self.problems[known:])))
        return steps

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame: what is read at once when it comes."""
        return self._parser.waiting

    @property
    def is_over(self) -> bool:
        """Whether the terminal event was emitted: what follows means nothing."""
        return self._reader.over

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """The stream ends here, by no word of its own: what closes its open parts, and the failure. Nothing if over."""
        if self._reader.over:
            return ()
        return self._reader.fail(error)

    def _read_pieces(self, pieces: list[bytes]) -> list[tuple[Event, ...]]:
        """What each frame means. Nearly every one is a plain delta, and is understood without a Frame."""
        read: list[tuple[Event, ...]] = []
        for piece in pieces:
            opening = self._opening
            start = len(opening) if piece.startswith(opening) else self._open(piece)
            events = None
            if start and (piece.isascii() or is_utf8(piece)):
                line = piece[start:]
                if _LF in line:
                    start = 0  # more than one line of data, or another field after it
                else:
                    events = self._read_delta(line)
            read.append(self._read(_frame(piece, start)) if events is None else events)
        return read

    def _read_delta(self, line: bytes) -> tuple[Event, ...] | None:
        """What the data of a frame with the last opening means if it is a plain delta; None if it must be read."""
        reader = self._reader
        if not self._may_be_delta or reader.over:
            return None
        grown = reader.find_delta(self._opening, line)
        if grown is None:
            return None
        event = grown[0].grow(grown[1])
        self._count += 1
        if self._fresh:
            self._note_problems()
        return () if event is None else (event,)

    def _read_block(self, block: bytes) -> list[Event | Deltas]:
        """The same for frames that came in one read, where most begin alike: as the one in the middle does.

        So they are split where such a frame begins, which costs a third of finding each end and each beginning. What is
        then more than one line has other frames behind it. Without this, and without keeping deltas together, a flood
        costs 1.2 to 1.4 times as much.
        """
        if not (block.isascii() or is_utf8(block)):
            return [*chain.from_iterable(self._read_pieces(block[:-2].split(b"\n\n")))]
        middle = block.find(b"\n\n", len(block) // 2) + 2
        self._open(block[middle : middle + _LONG_OPENING])
        opening = self._opening
        lines = block.split(b"\n\n" + opening)
        lines[-1] = lines[-1][:-2]
        out: list[Event | Deltas] = [
            *chain.from_iterable(self._read_pieces(lines[0].split(b"\n\n")))
        ]
        self._read_lines(opening, lines, 1, out)
        return out

    def _parcels(self, pieces: list[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
        """The pieces of a read in order: the data of frames that begin with `_opening`, or anything else as it is."""
        yield [], pieces[0]  # it may be the end of a frame
        at = 1
        while at < len(pieces):
            self._open(pieces[at])
            some = pieces[at : at + _MANY]
            if not (some[-1].startswith(self._opening) and some[0].startswith(self._opening)):
                some = [*takewhile(methodcaller("startswith", self._opening), some)]
            lines = self._parser.lines(self._opening, some) if len(some) > _FEW else None
            if lines is None:
                some = pieces[at : at + max(len(some), _FEW)]
                yield [], b"".join(some)
            else:
                yield lines, b""
            at += len(some)

    def _read_lines(
        self, opening: bytes, lines: list[bytes], at: int, out: list[Event | Deltas]
    ) -> None:
        """The data of frames with one opening, from `at` on; perhaps with other frames behind it."""
        may_be_delta = _may_be_delta(opening)
        while at < len(lines):
            if may_be_delta and not self._reader.over:
                at = self._read_deltas(opening, lines, at, out)
            if at < len(lines):
                line = lines[at]
                if _LF in line:
                    out += self._read_line(opening + line)
                else:
                    out += self._read(Frame(opening + line + b"\n\n", line))
                at += 1

    def _read_deltas(
        self, opening: bytes, lines: list[bytes], at: int, out: list[Event | Deltas]
    ) -> int:
        """The plain deltas from `at` on, those of one part together: the number of the first frame that is none."""
        find = self._reader.find_delta
        part: OpenText | OpenCall | None = None  # what grows by `texts`
        texts: list[str] = []
        end = at
        before = self._count
        while end < len(lines):
            line = lines[end]
            grown = None if _LF in line else find(opening, line)
            if grown is None:
                break
            end += 1
            grows, text = grown
            if grows is part and text:
                texts.append(text)
                continue
            if part is not None:
                part.grow_by(texts, out)
                part = None
            if type(grows) is not OpenReasoning and text and grows.gathers:
                part, texts = grows, [text]
                continue
            event = grows.grow(text)
            if event is not None:
                out.append(event)
            if self._fresh:
                self._count = before + end - at
                self._note_problems()
        if part is not None:
            part.grow_by(texts, out)
        self._count = before + end - at
        return end

    def _read_line(self, line: bytes) -> Sequence[Event | Deltas]:
        """A frame that is not plain, and perhaps others behind it, which begin otherwise."""
        pieces = line.split(b"\n\n", _FEW)
        if len(pieces) <= _FEW:
            return [*chain.from_iterable(self._read_pieces(pieces))]
        out: list[Event | Deltas] = [*chain.from_iterable(self._read_pieces(pieces[:1]))]
        # Each time at most half as many: the block's middle is where it was split.
        return out + self._read_block(line[len(pieces[0]) + 2 :] + b"\n\n")

    def _open(self, piece: bytes) -> int:
        """Where the data of a frame begins that is at most an event line and one line of data; 0 if it is none.

        The next frame mostly begins alike.
        """
        start = piece.find(b"\n") + 7 if piece.startswith(b"event: ") else 6
        if not piece.startswith(b"data: ", start - 6):
            return 0
        self._opening = piece[:start]
        self._may_be_delta = _may_be_delta(self._opening)
        return start

    def _read(self, frame: Frame) -> tuple[Event, ...]:
        reader = self._reader
        self._count += 1
        if reader.over:
            return ()  # "nothing follows a terminal event": a late frame keeps its bytes and means nothing
        reader.frame = self._count
        if self._on_frame is not None:
            self._on_frame(self._count, frame)
        try:
            check_frame(frame)
            events = reader.read(frame)
        except MalformedJson as error:
            events = self._fail_at(frame, error)
        if reader.problems:
            self._note_problems()
        return events

    def _fail_at(self, frame: Frame, error: MalformedJson) -> tuple[Event, ...]:
        """This frame cannot be read."""
        kind = "invalid_utf8" if frame.invalid_utf8 else "malformed_frame"
        self._reader.problems.append((kind, error.message))
        if self._is_cut:
            return ()
        message = (
            f"the upstream's stream cannot be read from frame {self._count} on: {error.message}"
        )
        return self._reader.fail(ErrorInfo(kind="protocol", message=message, status=error.status))

    def _frame_steps(self, frames: list[Frame]) -> list[Step]:
        return self._steps([frame.raw for frame in frames], [self._read(frame) for frame in frames])

    def _steps(self, raws: list[bytes], read: list[tuple[Event, ...]]) -> list[Step]:
        """Steps of the frames just read, each with its problems."""
        first = self._count - len(raws) + 1
        if not self.problems or self.problems[-1].frame < first:
            return [Step(raw, events) for raw, events in zip(raws, read, strict=True)]
        fresh = list(takewhile(lambda problem: problem.frame >= first, reversed(self.problems)))
        problems: dict[int, list[Problem]] = {}
        for problem in reversed(fresh):
            problems.setdefault(problem.frame, []).append(problem)
        return [
            Step(raw, events, tuple(problems.get(frame, ())))
            for frame, (raw, events) in enumerate(zip(raws, read, strict=True), start=first)
        ]

    def _break(self, error: FrameTooLarge) -> Step:
        self._broken = True
        info = ErrorInfo(kind="protocol", message=error.message, status=error.status)
        events = () if self._reader.over else self._reader.fail(info)
        problem = Problem(self._count + 1, "frame_too_large", error.message)
        self.problems.append(problem)
        return Step(self._parser.rest(), events, (problem,))

    def _note_problems(self) -> None:
        fresh = self._reader.problems
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.extend(Problem(self._count, kind, message) for kind, message in fresh)
        fresh.clear()


def check_frame(frame: Frame) -> None:
    """What holds in every dialect.

    Raises:
        MalformedJson: its data is no UTF-8 or would take too long to be read, or it has none and is no comment either:
            a damaged `data:` line.
    """
    if frame.data is None:
        unknown = frame.unknown_field
        if unknown is not None:
            # Not its words: they may be anybody's.
            raise MalformedJson(f"expected a data line, got another of {len(unknown)} bytes")
        return
    if frame.invalid_utf8:
        raise MalformedJson("expected UTF-8, got other bytes")
    if has_too_many_values(frame.data):
        raise MalformedJson(
            f"expected an SSE frame of at most {MAX_VALUES:,} JSON values, got one with more"
        )


def _may_be_delta(opening: bytes) -> bool:
    """Whether frames with this opening may be plain deltas: to try in vain costs twice what it costs to succeed."""
    return len(opening) == len(b"data: ") or b"delta" in opening


def _frame(piece: bytes, start: int) -> Frame:
    """A frame from what stood before its blank line. `start`: where the data of a plain one begins, or 0."""
    raw = piece + b"\n\n"
    line = piece[start:]
    if start and _LF not in line and (piece.isascii() or is_utf8(piece)):
        return Frame(raw, line)
    return parse_lines(raw, is_first=False)
