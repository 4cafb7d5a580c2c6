"""Deltas that came together and are written alike: only their texts are read.

A server writes the deltas of one text, or of one call's input, all in the same way: what stands before the text and after
it does not change. So the first few are read as JSON, and from one of them is taken how it is written around its text (a
`Mould`). The frames behind it are cut there; that each of them is written so is known when putting them together again
gives what came. Behind the text there may be random padding against traffic analysis. What does not fit is read as JSON,
as ever; where nothing fits no more attempts are made. Deltas that have numbers are all read as JSON: cutting them was
measured to cost more. They make runs too (`quick_run`).

Knows no dialect. Whether more of the same may be said at this point is for the reader to know (`prolong`).
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol, cast, final

from msgspec import Struct

from dragoman._json import FAST_FAILURES, loads_texts
from dragoman.model.events import Event, InputDelta, TextDelta

__all__ = ("STRETCH", "Mould", "Quick", "Run", "RunReader", "Told", "spread")

FEW = 4
"""Frames that are read as JSON before a mould is tried. It takes three to know how a call's input comes
(`calls.InputBuffer`)."""

STRETCH = 64
"""Frames that are cut at once. Where one of them does not fit, each is looked at by itself."""

_MAX_VAIN = 3
"""Attempts that may be of no use before no more are made: what a server says in every delta it says in all of them."""


@final
class Run(Struct, frozen=True, gc=False):
    """Several deltas of one part, which go on after another of the same kind."""

    kind: type[TextDelta] | type[InputDelta]
    part: int
    texts: list[str]

    def events(self) -> list[Event]:
        kind, part = self.kind, self.part
        return [kind(part, text) for text in self.texts]


Told = Event | Run


class Quick(Protocol):
    """What is needed of a `dialects.base.FrameReader`."""

    found: list[tuple[str, str]]

    @property
    def padding(self) -> bytes | None: ...

    def quick_many(self, opening: bytes, lines: list[bytes], told: list[Event], /) -> int: ...

    def prolong(self, last: TextDelta | InputDelta, texts: list[str], /) -> bool: ...

    def quick_run(self, lines: list[bytes], /) -> Run | None: ...


class Mould(Struct, frozen=True, gc=False):
    """How the data of a delta is written around its text. `last`: what was told of the delta it was taken from.

    middle: what stands between the text and a padding, which may be another each time; empty if there is none.
    """

    last: TextDelta | InputDelta
    head: bytes
    middle: bytes
    tail: bytes

    def texts(self, lines: list[bytes]) -> list[str] | None:
        """The texts of these frames, if all of them are written so, and none is empty."""
        head, middle, tail = self.head, self.middle, self.tail
        start, end = len(head), -len(tail)
        cut = [line[start:end] for line in lines]
        # A line that is too short to have both makes what is put together longer than what came.
        if head + (tail + head).join(cut) + tail != b"".join(lines):
            return None
        if middle:
            parts = [each.partition(middle) for each in cut]
            # A line without the middle is taken for its text, and has a quotation mark too many.
            if not b"".join([padding for _, _, padding in parts]).isalnum():
                return None
            cut = [text for text, _, _ in parts]
        try:
            texts = loads_texts(cut)
        except FAST_FAILURES:
            return None
        return texts if all(texts) else None

    def fits(self, line: bytes) -> bool:
        """Whether a frame may be written so."""
        return line.startswith(self.head) and line.endswith(self.tail)

    def read(self, reader: Quick, lines: list[bytes]) -> Run | None:
        """The first of these frames as one run, as far as they are written so; None if they are to be read as JSON."""
        if not lines or not self.fits(lines[0]):
            return None
        texts = self.texts(lines)
        while texts is None and len(lines) > FEW:
            fitting = [*takewhile(self.fits, lines)]
            # One that begins and ends so may say something else all the same; it is not looked for.
            lines = fitting if len(fitting) < len(lines) else lines[: len(lines) // 2]
            texts = self.texts(lines)
        last = self.last
        if texts is None or not reader.prolong(last, texts):
            return None
        return Run(type(last), last.part, texts)


def mould_of(lines: Sequence[bytes], told: Sequence[Event], padding: bytes) -> Mould | None:
    """How these plain deltas are written, of which this was told; None if that is not certain."""
    for line, event in zip(reversed(lines), reversed(told), strict=True):
        # Where nothing is escaped every string stands as it is: one that stands there once, and is the text, is the text.
        if b"\\" in line or not isinstance(event, TextDelta | InputDelta):
            continue
        text = b'"%b"' % event.text.encode()
        start = line.find(text) + 1
        if start and line.find(text, start) < 0:
            middle, tail = _padded(line[start + len(text) - 2 :], padding)
            return Mould(event, line[:start], middle, tail)
    return None


def _padded(tail: bytes, padding: bytes) -> tuple[bytes, bytes]:
    """What stands before a padding and after it; nothing and all of it if there is none."""
    before, name, rest = tail.rpartition(padding) if padding else (b"", b"", tail)
    _, quote, end = rest.partition(b'"')
    return (before + name, quote + end) if name and quote else (b"", tail)


class RunReader:
    """Reads the plain deltas of one stream that came together."""

    __slots__ = (
        "_has_begun",
        "_opening",
        "_padding",
        "_reader",
        "_vain",
        "goes_on",
        "is_stopped",
        "mould",
    )

    def __init__(self, reader: Quick) -> None:
        self.mould: Mould | None = None  # of the last that were read, if they have one
        self._reader = reader
        self._padding = reader.padding
        self.goes_on = True  # nothing speaks against it that the next frame is plain too
        self.is_stopped = False  # it is known not to be
        self._has_begun = False  # there was a plain delta, and nothing else since
        self._opening = b""  # with which it began
        self._vain = 0  # attempts in a row that were of no use

    def begin(self) -> None:
        """Of the frames that are read next nothing is known."""
        self.goes_on = True
        self.is_stopped = False

    def forget(self) -> None:
        """Something else than a plain delta is read."""
        self.mould = None
        self._has_begun = False

    def next_run(self, opening: bytes, lines: list[bytes]) -> Run | None:
        """The first of these frames, if they go on as those before; None: they must be read one by one."""
        if not self._has_begun or opening != self._opening:
            return None
        mould = self.mould
        if mould is not None:
            run = mould.read(self._reader, lines)
        else:
            run = self._reader.quick_run(lines)
        if run is None:
            self.forget()
            self._vain += 1
        else:
            self._vain = 0
        return run

    def next_events(self, opening: bytes, lines: list[bytes], told: list[Event]) -> int:
        """As `quick_many`, where nothing is told yet. It `goes_on` if all that was tried was plain, and told something."""
        reader = self._reader
        is_hopeful = self._vain < _MAX_VAIN
        tried = lines[:FEW] if is_hopeful else lines
        count = reader.quick_many(opening, tried, told)
        self.goes_on = len(told) == len(tried) and not reader.found
        self.is_stopped = len(told) == count < len(tried) and not reader.found
        if self.goes_on and is_hopeful:
            self._has_begun = True
            self._opening = opening
            if self._padding is not None:
                self.mould = mould_of(tried, told, self._padding)
        return count

    def read(self, opening: bytes, lines: list[bytes], at: int, told: list[Told]) -> int:
        """As `quick_many`, for the frames from `at` on: the number of the first that was not read."""
        self.begin()
        while self.goes_on and at < len(lines):
            stretch = lines[at : at + STRETCH]
            run = self.next_run(opening, stretch)
            if run is not None:
                told.append(run)
                at += len(run.texts)
                continue
            events: list[Event] = []
            at += self.next_events(opening, stretch, events)
            told += events
        return at


def spread(told: Sequence[Told]) -> Sequence[Event]:
    """The same, delta by delta."""
    if Run not in map(type, told):
        return cast("Sequence[Event]", told)
    events: list[Event] = []
    for one in told:
        if type(one) is Run:
            events += one.events()
        else:
            events.append(one)
    return events
