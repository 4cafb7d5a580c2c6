"""Splits a stream into frames, gives them to the dialect's reader and returns steps. Knows no vendor and does no I/O.

Nearly every frame of an answer is the next delta of an open part and nothing else (a *plain delta*). Plain deltas take a
short path, and those that came in one read and extend one part stay together (`Deltas`): later stages search, encode or
pass them on in one go.
"""

from collections.abc import Callable
from typing import Protocol, final

from msgspec import Struct

from dragoman._json import MAX_VALUES, has_too_many_values
from dragoman.core.open_parts import OpenCall, OpenPart, OpenReasoning, OpenText
from dragoman.errors import ConfigError, FrameTooLarge, MalformedJson
from dragoman.model.events import Event, InputDelta, Started, TextDelta
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.sse import MAX_FRAME_BYTES, Frame, FrameParser, is_utf8, parse_lines, portions

MAX_PROBLEMS = 1000
"""How many problems of one stream are kept. Nobody reads more, and an upstream may send irregular frames for hours."""

OTHER_DIALECT = "other_dialect"
"""The kind of the problem that an answer is in another dialect than the upstream was asked in."""

_LF = 0x0A
_BLANK = b"\n\n"
_FEW = 4  # up to so many frames are split at blank lines, not at a common opening
_LONG_OPENING = 256
"""An event line and `data: ` are shorter than this: the longest event name of any vendor has 50 characters."""


class Step(Struct, frozen=True, gc=False):
    """What one frame means. The `raw` of all steps, joined, is the input, byte for byte."""

    raw: bytes
    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()


class FrameStep(Step, frozen=True, gc=False):
    """A step with its frame. `frame` is None for a plain delta and for bytes that are not read."""

    frame: Frame | None = None


@final
class Deltas(Struct, frozen=True, gc=False):
    """Several frames that are plain deltas of one part: their texts and their data lines. All begin with `opening`."""

    kind: type[TextDelta] | type[InputDelta]
    part: int
    texts: list[str]
    opening: bytes
    lines: list[bytes]

    @property
    def raw(self) -> bytes:
        opening = self.opening
        return opening + (_BLANK + opening).join(self.lines) + _BLANK

    @property
    def events(self) -> list[Event]:
        kind, part = self.kind, self.part
        return [kind(part, text) for text in self.texts]

    def steps(self) -> list[FrameStep]:
        """Return one step for each frame."""
        kind, part, opening = self.kind, self.part, self.opening
        return [
            FrameStep(opening + line + _BLANK, (kind(part, text),))
            for line, text in zip(self.lines, self.texts, strict=True)
        ]


class FrameReader(Protocol):
    """Decodes the frames of one stream of one dialect.

    `over` becomes true with the terminal event. `problems` collects problems as (kind, message); the caller empties it
    after each frame. `frame`: the number of the frame to `read`, which the caller sets; plain deltas count too.

    There are two entrances. `find_delta` finds the part that a plain delta extends, and `StreamDecoder` extends it. `read`
    decodes every other frame.
    """

    over: bool
    frame: int
    problems: list[tuple[str, str]]

    def find_delta(self, opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        """Return the part that a frame extends and the text to add, if the frame contains nothing else. Changes no state.

        None: the frame must be given to `read`, which decodes any frame with the same result. `opening` is the frame up to
        its data, which is one line. The text is empty only where the part is a call. Without this method a flood costs 2.5 to
        6.9 times as much and a paced event 1.3 to 2.1 times.
        """
        ...

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """Decode a frame. Raises MalformedJson if it cannot be read; the stream fails there (see `StreamDecoder`)."""
        ...

    def end(self) -> tuple[Event, ...]:
        """The stream has ended: return the events still missing. The last is Completed, or Failed if the stream was cut."""
        ...

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """Return the events that close all open parts as incomplete, then Failed."""
        ...


FindReader = Callable[[Frame], tuple[FrameReader, str] | None]
"""Returns the reader of another dialect if a frame belongs to it, and the message of the problem; else None."""


class StreamDecoder:
    """Feeds a FrameReader: splits reads into frames, stops at the terminal event or at a frame that cannot be read.

    Examples:
        >>> from dragoman import make_decoder
        >>> decoder = make_decoder("messages")  # a StreamDecoder with the reader of that dialect
        >>> decoder.feed(b"event: pi")
        []
        >>> [step.raw for step in decoder.feed(b'ng\\ndata: {"type":"ping"}\\n\\n')]
        [b'event: ping\\ndata: {"type":"ping"}\\n\\n']

    find_reader: asked for a frame that does not start the answer. A server that was asked in one dialect may answer in
    another; then its first frame chooses the reader for the whole stream.

    A frame that cannot be read may have been a piece of an open call's input, or a whole call. So the stream fails there,
    and everything before it is exact. The exception is an incomplete frame at the end of the input: there the stream was
    cut.

    `problems` collects the problems of all steps.
    """

    def __init__(
        self,
        reader: FrameReader,
        max_frame: int = MAX_FRAME_BYTES,
        find_reader: FindReader | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self._use(reader)
        self._find_reader = find_reader  # None: the reader is the right one
        self._parser = FrameParser(max_frame)
        self._count: int = 0
        self._broken = False
        self._is_cut = False  # the input has ended: an incomplete frame is being read
        # Of the last frame with one line of data: its bytes before the data.
        self._opening = b"data: "
        self._may_be_delta = True  # whether a frame with this opening may be a plain delta

    def _use(self, reader: FrameReader) -> None:
        self._reader = reader
        self._find = reader.find_delta
        self._fresh = reader.problems  # of the frame at hand

    def feed(self, data: bytes) -> list[Step]:
        """Return one step for each frame that ends in `data`."""
        steps: list[FrameStep] = []
        for one in self.decode(data):
            if type(one) is Deltas:
                steps += one.steps()
            else:
                steps.append(one)
        return [*map(_without_frame, steps)]

    def close(self) -> list[Step]:
        """Return the remaining steps. The last has Completed or Failed unless an earlier step had it."""
        return [*map(_without_frame, self.decode_rest())]

    def events(self, data: bytes) -> list[Event]:
        """As `feed`, for callers that only need the events."""
        return [event for one in self.decode(data) for event in one.events]

    def decode(self, data: bytes) -> list[FrameStep | Deltas]:
        """As `feed`, but plain deltas of one part that came together stay together, and other steps have their frames."""
        if self._broken:
            return [FrameStep(data)]
        opening = self._opening
        try:
            start = len(opening) if data.startswith(opening) else self._open(data)
        except (AttributeError, TypeError) as error:
            raise ConfigError(
                f"expected a piece of a stream as bytes, got {type(data).__name__}"
            ) from error
        line = self._parser.line(data, start) if start else None
        if line is not None:  # nearly every read of a token stream is one frame
            return [self._read_line(data, line)]
        block = self._parser.block(data)
        if block is not None:
            out: list[FrameStep | Deltas] = []
            for portion in portions(block):
                self._read_block(portion, out)
            return out
        try:
            return [self._read(frame) for frame in self._parser.feed(data)]
        except FrameTooLarge as error:
            return [self._break(error)]

    def decode_rest(self) -> list[FrameStep]:
        """As `close`, with the frames."""
        if self._broken:
            return []
        try:
            frames = self._parser.close()
        except FrameTooLarge as error:
            return [self._break(error)]
        self._is_cut = True
        steps = [self._read(frame) for frame in frames]
        if not self._reader.over:
            steps.append(FrameStep(b"", self._reader.end(), self._take_problems()))
        return steps

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame; they are decoded together when it comes."""
        return self._parser.waiting

    @property
    def is_over(self) -> bool:
        """Whether the terminal event was emitted: later frames have no meaning."""
        return self._reader.over

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """End the stream from outside: return the events that close its open parts, and Failed. Nothing if it is over."""
        if self._reader.over:
            return ()
        return self._reader.fail(error)

    def _read_line(self, raw: bytes, line: bytes) -> FrameStep:
        """Decode a frame that begins with the last opening; `line` is its data."""
        found = self._find(self._opening, line) if self._may_be_delta else None
        if found is None or self._reader.over:
            return self._read(Frame(raw, line))
        return self._grow(found[0], found[1], raw, line)

    def _grow(self, part: OpenPart, text: str, raw: bytes, line: bytes) -> FrameStep:
        event = part.grow(text)
        self._count += 1
        if event is None or event.text is not text or self._fresh:
            events = () if event is None else (event,)
            return FrameStep(raw, events, self._take_problems(), Frame(raw, line))
        return FrameStep(raw, (event,))

    def _read_block(self, block: bytes, out: list[FrameStep | Deltas]) -> None:
        """Decode the frames that came in one read. Most begin with the same opening as the frame in the middle.

        So the block is split at this opening, which costs a third of finding each end and each beginning. A piece with more
        than one line contains further frames with other openings. Without this, and without keeping deltas together, a flood
        costs 1.2 to 1.4 times as much.
        """
        if not (block.isascii() or is_utf8(block)):
            out += map(self._read_piece, block[:-2].split(_BLANK))
            return
        middle = block.find(_BLANK, len(block) // 2) + 2
        self._open(block[middle : middle + _LONG_OPENING])
        opening = self._opening
        lines = block.split(_BLANK + opening)
        lines[-1] = lines[-1][:-2]
        out += map(self._read_piece, lines[0].split(_BLANK))
        self._read_lines(opening, lines, 1, out)

    def _read_lines(
        self, opening: bytes, lines: list[bytes], at: int, out: list[FrameStep | Deltas]
    ) -> None:
        """Decode the lines from `at` on: each is the data of a frame with this opening, perhaps followed by other frames."""
        may_be_delta = _may_be_delta(opening)
        while at < len(lines):
            if may_be_delta and not self._reader.over:
                at = self._read_deltas(opening, lines, at, out)
            if at < len(lines):
                line = lines[at]
                at += 1
                if _LF in line:
                    self._read_others(opening + line, out)
                else:
                    out.append(self._read(Frame(opening + line + _BLANK, line)))

    def _read_deltas(
        self, opening: bytes, lines: list[bytes], at: int, out: list[FrameStep | Deltas]
    ) -> int:
        """Decode the plain deltas from `at` on, those of one part together. Returns the index of the first other frame."""
        find = self._find
        part: OpenText | OpenCall | None = None  # the part that `texts` extend
        texts: list[str] = []
        for end in range(at, len(lines)):
            line = lines[end]
            found = None if _LF in line else find(opening, line)
            if found is None:
                break
            grows, text = found
            if grows is part and text:
                texts.append(text)
                continue
            if part is not None:
                out.append(self._grow_by(part, texts, opening, lines[end - len(texts) : end]))
                part = None
            if text and not isinstance(grows, OpenReasoning) and grows.gathers:
                part, texts = grows, [text]
            else:
                out.append(self._grow(grows, text, opening + line + _BLANK, line))
        else:
            end = len(lines)
        if part is not None:
            out.append(self._grow_by(part, texts, opening, lines[end - len(texts) : end]))
        return end

    def _grow_by(
        self, part: OpenText | OpenCall, texts: list[str], opening: bytes, lines: list[bytes]
    ) -> FrameStep | Deltas:
        if len(texts) == 1:
            return self._grow(part, texts[0], opening + lines[0] + _BLANK, lines[0])
        part.grow_by(texts)
        self._count += len(texts)
        kind = TextDelta if type(part) is OpenText else InputDelta
        return Deltas(kind, part.part, texts, opening, lines)

    def _read_others(self, line: bytes, out: list[FrameStep | Deltas]) -> None:
        """Decode a frame that is not a plain delta, and any frames after it, which have other openings."""
        pieces = line.split(_BLANK, _FEW)
        if len(pieces) <= _FEW:
            out += map(self._read_piece, pieces)
            return
        out.append(self._read_piece(pieces[0]))
        # The remainder is at most half of the block, because the block was split at its middle: the recursion is shallow.
        self._read_block(line[len(pieces[0]) + 2 :] + _BLANK, out)

    def _read_piece(self, piece: bytes) -> FrameStep:
        """Decode a frame; `piece` is the frame without its blank line."""
        opening = self._opening
        start = len(opening) if piece.startswith(opening) else self._open(piece)
        raw, line = piece + _BLANK, piece[start:]
        if start and _LF not in line and (piece.isascii() or is_utf8(piece)):
            return self._read_line(raw, line)
        return self._read(parse_lines(raw, is_first=False))

    def _open(self, piece: bytes) -> int:
        """Return where the data of a frame begins that is at most an event line and one line of data; 0 for any other frame.

        Remembers the opening: the next frame mostly has the same.
        """
        start = piece.find(b"\n") + 7 if piece.startswith(b"event: ") else 6
        if not piece.startswith(b"data: ", start - 6):
            return 0
        self._opening = piece[:start]
        self._may_be_delta = _may_be_delta(self._opening)
        return start

    def _read(self, frame: Frame) -> FrameStep:
        self._count += 1
        if self._reader.over:
            return FrameStep(frame.raw)  # a late frame keeps its bytes and means nothing
        events = self._read_events(frame)
        if self._find_reader is not None:
            events = self._choose_reader(self._find_reader, frame, events)
        return FrameStep(frame.raw, events, self._take_problems(), frame)

    def _read_events(self, frame: Frame) -> tuple[Event, ...]:
        reader = self._reader
        reader.frame = self._count
        try:
            check_frame(frame)
            return reader.read(frame)
        except MalformedJson as error:
            return self._fail_at(frame, error)

    def _choose_reader(
        self, find_reader: FindReader, frame: Frame, events: tuple[Event, ...]
    ) -> tuple[Event, ...]:
        """Return these events, or those of the reader that the frame belongs to; it reads the rest of the stream."""
        if any(isinstance(event, Started) for event in events):
            self._find_reader = None
            return events
        found = find_reader(frame)
        if found is None:
            return events
        self._find_reader = None
        reader, message = found
        self._use(reader)
        events = self._read_events(frame)
        self._fresh.insert(0, (OTHER_DIALECT, message))
        return events

    def _fail_at(self, frame: Frame, error: MalformedJson) -> tuple[Event, ...]:
        """Note that a frame cannot be read, and fail the stream unless the input has ended within the frame."""
        kind = "invalid_utf8" if frame.invalid_utf8 else "malformed_frame"
        self._fresh.append((kind, error.message))
        if self._is_cut:
            return ()
        message = (
            f"the upstream's stream cannot be read from frame {self._count} on: {error.message}"
        )
        return self._reader.fail(ErrorInfo(kind="protocol", message=message, status=error.status))

    def _break(self, error: FrameTooLarge) -> FrameStep:
        self._broken = True
        info = ErrorInfo(kind="protocol", message=error.message, status=error.status)
        events = () if self._reader.over else self._reader.fail(info)
        problem = Problem(self._count + 1, "frame_too_large", error.message)
        self.problems.append(problem)
        return FrameStep(self._parser.rest(), events, (problem,))

    def _take_problems(self) -> tuple[Problem, ...]:
        """Return the problems of the last frame, and keep them up to `MAX_PROBLEMS`."""
        if not self._fresh:
            return ()
        problems = tuple([Problem(self._count, kind, message) for kind, message in self._fresh])
        self._fresh.clear()
        if len(self.problems) < MAX_PROBLEMS:
            self.problems += problems
        return problems


def _without_frame(step: FrameStep) -> Step:
    return Step(step.raw, step.events, step.problems)


def check_frame(frame: Frame) -> None:
    """Check a frame by the rules of every dialect.

    Raises:
        MalformedJson: the data is not UTF-8 or would take too long to parse; or the frame has no data and is not a comment:
            a damaged `data:` line.
    """
    if frame.data is None:
        unknown = frame.unknown_field
        if unknown is not None:
            # The message does not quote the line: it may be private.
            raise MalformedJson(f"expected a data line, got another of {len(unknown)} bytes")
        return
    if frame.invalid_utf8:
        raise MalformedJson("expected UTF-8, got other bytes")
    if has_too_many_values(frame.data):
        raise MalformedJson(
            f"expected an SSE frame of at most {MAX_VALUES:,} JSON values, got one with more"
        )


def _may_be_delta(opening: bytes) -> bool:
    """Whether frames with this opening may be plain deltas: a failed attempt costs twice as much as a successful one."""
    return len(opening) == len(b"data: ") or b"delta" in opening
