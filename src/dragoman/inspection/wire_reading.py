"""Reads an answer on one wire: its frames with their times, its events, and where in its frame the text of each delta is. Pure.

The dialect's own decoder reads the bytes, so a report shows what the gateway understood. A frame's time is the time of the
read that ended it. The work is linear in the bytes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from dragoman._json import loads
from dragoman.core.fold import fold
from dragoman.dialects.registry import upstream_codec
from dragoman.dialects.stream_decoder import Step
from dragoman.dialects.translate import make_decoder, read_body
from dragoman.errors import MalformedJson
from dragoman.inspection.exchange import RecordedAnswer
from dragoman.model.events import (
    Event,
    Failed,
    InputDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.outcome import Outcome, Problem
from dragoman.model.parts import Call, Dialect

JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(\s*+:)?|\\?\Z)', re.DOTALL)
"""A string in the source of JSON, or what is left of one that was cut: the search would otherwise begin again at each quote in it.
The second group is there if it is the name of a member."""
# A body may have thousands of calls whose input cannot be found; each search reads the rest of the body.
_MAX_MISSES = 8

TextEvent = TextDelta | ReasoningDelta | InputDelta | OutputDelta
"""An event that adds text to its part."""


class TimedFrame(Struct, frozen=True):
    """One frame of a stream, or a whole body. `number` counts from 1."""

    number: int
    at: float
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")


class PlacedEvent(Struct, frozen=True):
    """An event, and the frame that it was decoded from; None: it follows from the end of the stream.

    start, end: the place of a delta's text in the frame's text, as the wire spells it; -1: not found.
    """

    event: Event
    frame: int | None
    at: float
    start: int = -1
    end: int = -1

    @property
    def text(self) -> str:
        """The text that the event adds to its part."""
        return self.event.text if isinstance(self.event, TextEvent) else ""


class EndedCall(Struct, frozen=True):
    """A call of the answer, complete or cut."""

    part: int
    choice: int
    call: Call


class WireReading(Struct, frozen=True, kw_only=True):
    dialect: Dialect
    frames: tuple[TimedFrame, ...] = ()
    events: tuple[PlacedEvent, ...] = ()
    problems: tuple[Problem, ...] = ()
    calls: tuple[EndedCall, ...] = ()
    outcome: Outcome = Outcome()


def read_answer(answer: RecordedAnswer, dialect: Dialect) -> WireReading:
    """Read an answer. If the capture was cut, read what there is."""
    if not answer.pieces:
        return WireReading(dialect=dialect)
    steps = list(_timed_steps(answer, dialect))
    frames: list[TimedFrame] = []
    events: list[PlacedEvent] = []
    problems: list[Problem] = []
    for at, step in steps:
        frame: TimedFrame | None = None
        if step.raw:
            frame = TimedFrame(len(frames) + 1, at, step.raw)
            frames.append(frame)
        events += _place(step.events, frame, at)
        problems += step.problems
    return WireReading(
        dialect=dialect,
        frames=tuple(frames),
        events=tuple(events),
        problems=tuple(problems),
        calls=tuple(_calls(events)),
        outcome=fold(each.event for each in events),
    )


def _timed_steps(answer: RecordedAnswer, dialect: Dialect) -> Iterator[tuple[float, Step]]:
    last = answer.pieces[-1].at
    if not answer.is_stream:
        data = answer.data
        if answer.status is not None and answer.status >= 400:
            error = upstream_codec(dialect).decode_error(data, answer.status)
            yield last, Step(data, (Failed(error),))
        elif answer.is_whole:
            yield last, read_body(data, dialect)
        else:
            yield last, Step(data)
        return
    decoder = make_decoder(dialect)
    read = 0
    for piece in answer.pieces:
        for step in decoder.feed(piece.data):
            read += len(step.raw)
            yield piece.at, step
    if answer.is_whole:
        for step in decoder.close():
            read += len(step.raw)
            yield last, step
    rest = answer.data[read:]
    if rest:  # the frame in which the capture was cut
        yield last, Step(rest)


def _place(events: tuple[Event, ...], frame: TimedFrame | None, at: float) -> Iterator[PlacedEvent]:
    number = None if frame is None else frame.number
    count = sum(1 for event in events if isinstance(event, TextEvent) and event.text)
    places = _Places(frame.text, is_single=count == 1) if frame is not None and count else None
    for event in events:
        start = end = -1
        if places is not None and isinstance(event, TextEvent) and event.text:
            start, end = places.find(event.text)
        yield PlacedEvent(event, number, at, start, end)


class _Places:
    """Finds texts in a frame: as the values of JSON strings, otherwise literally (the object of a call's input)."""

    def __init__(self, text: str, *, is_single: bool) -> None:
        self._text = text
        self._is_single = is_single
        self._cursor = 0
        self._misses = 0
        self._values: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for match in JSON_STRING.finditer(text):
            if match[2] is None:
                self._values[json_text(match[1])].append(match.span(1))
        for spans in self._values.values():
            spans.reverse()  # the first is taken from the end

    def find(self, wanted: str) -> tuple[int, int]:
        spans = self._values.get(wanted)
        if spans:
            if self._is_single:
                return spans[0]  # the last string with this value: types and roles come first
            while len(spans) > 1 and spans[-1][0] < self._cursor:
                spans.pop()
            found = spans.pop()
            self._cursor = max(self._cursor, found[1])
            return found
        if self._misses < _MAX_MISSES:
            start = self._text.find(wanted, self._cursor)
            if start >= 0:
                self._cursor = start + len(wanted)
                return start, self._cursor
            self._misses += 1
        return -1, -1


def json_text(source: str) -> str:
    """The text of a JSON string from its source without the quotes; the source itself if it is not JSON."""
    if "\\" not in source:
        return source
    try:
        value: object = loads(f'"{source}"')
    except MalformedJson:
        return source
    return value if isinstance(value, str) else source


def _calls(events: Iterable[PlacedEvent]) -> Iterator[EndedCall]:
    choices: dict[int, int] = {}
    for placed in events:
        event = placed.event
        if isinstance(event, PartStarted):
            choices[event.part] = event.choice
        elif isinstance(event, PartEnded) and isinstance(event.value, Call):
            choice = choices.get(event.part, 0)
            yield EndedCall(event.part, choice, event.value)
