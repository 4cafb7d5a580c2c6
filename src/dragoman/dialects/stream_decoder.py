"""Frames in, steps out: how a stream is split, and how its reader is fed. Knows no vendor and does no I/O.

Nearly every frame of an answer is the next delta of an open part and nothing else. Such deltas are read by their type
alone, and those that came in one read and grow one part stay together (`Deltas`): they are then searched, encoded or
passed on in one go.
"""

from typing import Protocol, final

from msgspec import Struct

from dragoman._json import MAX_VALUES, has_too_many_values
from dragoman.core.open_parts import OpenCall, OpenPart, OpenReasoning, OpenText
from dragoman.errors import FrameTooLarge, MalformedJson
from dragoman.model.events import Event, InputDelta, TextDelta
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.sse import MAX_FRAME_BYTES, Frame, FrameParser, is_utf8, parse_lines, portions

MAX_PROBLEMS = 1000
"""Problems that are remembered of one stream. Nobody reads more, and an upstream may send nothing else for hours."""

_LF = 0x0A
_BLANK = b"\n\n"
_FEW = 4  # frames that are not worth being split at their beginnings
_LONG_OPENING = 256
"""An event line and `data: ` take less than this: the longest name that a vendor has is of 50 characters."""


class Step(Struct, frozen=True, gc=False):
    """What one frame meant. Joining `raw` of all steps gives the input back, byte for byte."""

    raw: bytes
    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()


class FrameStep(Step, frozen=True, gc=False):
    """The same with the frame; None for a delta that means what it says and nothing else, and for what is not read."""

    frame: Frame | None = None


@final
class Deltas(Struct, frozen=True, gc=False):
    """Several frames that are deltas of one part: what each brings, and its data. All begin with `opening`."""

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
        """The same, frame by frame."""
        kind, part, opening = self.kind, self.part, self.opening
        return [
            FrameStep(opening + line + _BLANK, (kind(part, text),))
            for line, text in zip(self.lines, self.texts, strict=True)
        ]


class FrameReader(Protocol):
    """The meaning of one dialect's frames. Lives as long as one stream.

    `over` turns true with the terminal event; `problems` collects what was irregular as (kind, message) and is emptied
    by the caller after each frame. `frame`: the number of the frame to `read`, which its caller sets; frames that are plain
    deltas count too.

    There are two ways in. `find_delta` finds the part that a plain delta grows, and `StreamDecoder` grows it. Every other frame is
    `read`.
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


class StreamDecoder:
    """Feeds a FrameReader: splits reads into frames, stops at the terminal event or at a frame that cannot be read.

    Nobody knows what such a frame said: it may have been a piece of an open call's input, or a whole call. So the stream
    fails there, and what came before it is exact. Only what the end of the wire left of a frame is no such frame: there
    the stream was cut.

    `problems` gathers what was irregular; each step has its own of them too.
    """

    def __init__(self, reader: FrameReader, max_frame: int = MAX_FRAME_BYTES) -> None:
        self.problems: list[Problem] = []
        self._reader = reader
        self._find = reader.find_delta
        self._fresh = reader.problems  # of the frame at hand
        self._parser = FrameParser(max_frame)
        self._count: int = 0
        self._broken = False
        self._is_cut = False  # the wire has ended: what is left of a frame is read
        self._opening = b"data: "  # how the last frame began whose data is one line, up to its data
        self._may_be_delta = True  # a frame with that opening

    def feed(self, data: bytes) -> list[Step]:
        """What the frames mean that end in `data`, one step each."""
        steps: list[FrameStep] = []
        for one in self.decode(data):
            if type(one) is Deltas:
                steps += one.steps()
            else:
                steps.append(one)
        return [*map(_without_frame, steps)]

    def close(self) -> list[Step]:
        """The steps that remain. The last says Completed or Failed unless an earlier one did."""
        return [*map(_without_frame, self.decode_rest())]

    def events(self, data: bytes) -> list[Event]:
        """The same for callers that have no use for the bytes."""
        return [event for one in self.decode(data) for event in one.events]

    def decode(self, data: bytes) -> list[FrameStep | Deltas]:
        """The same with deltas that came together left together."""
        if self._broken:
            return [FrameStep(data)]
        opening = self._opening
        start = len(opening) if data.startswith(opening) else self._open(data)
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
        """As `close`."""
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

    def _read_line(self, raw: bytes, line: bytes) -> FrameStep:
        """A frame with the last opening, and its data."""
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
        """Frames that came in one read. Most begin alike: as the one in the middle does.

        So they are split where such a frame begins, which costs a third of finding each end and each beginning. What is
        then more than one line has other frames behind it. Without this, and without keeping deltas together, a flood
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
        """The data of frames with one opening, from `at` on; perhaps with other frames behind it."""
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
        """The plain deltas from `at` on, those of one part together: the number of the first frame that is none."""
        find = self._find
        part: OpenText | OpenCall | None = None  # what grows by `texts`
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
        """A frame that is not plain, and perhaps others behind it, which begin otherwise."""
        pieces = line.split(_BLANK, _FEW)
        if len(pieces) <= _FEW:
            out += map(self._read_piece, pieces)
            return
        out.append(self._read_piece(pieces[0]))
        # Each time at most half as many: the block's middle is where it was split.
        self._read_block(line[len(pieces[0]) + 2 :] + _BLANK, out)

    def _read_piece(self, piece: bytes) -> FrameStep:
        """A frame, from what stood before its blank line."""
        opening = self._opening
        start = len(opening) if piece.startswith(opening) else self._open(piece)
        raw, line = piece + _BLANK, piece[start:]
        if start and _LF not in line and (piece.isascii() or is_utf8(piece)):
            return self._read_line(raw, line)
        return self._read(parse_lines(raw, is_first=False))

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

    def _read(self, frame: Frame) -> FrameStep:
        reader = self._reader
        self._count += 1
        if reader.over:
            return FrameStep(frame.raw)  # a late frame keeps its bytes and means nothing
        reader.frame = self._count
        try:
            check_frame(frame)
            events = reader.read(frame)
        except MalformedJson as error:
            events = self._fail_at(frame, error)
        return FrameStep(frame.raw, events, self._take_problems(), frame)

    def _fail_at(self, frame: Frame, error: MalformedJson) -> tuple[Event, ...]:
        """This frame cannot be read."""
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
        """Those of the last frame."""
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
