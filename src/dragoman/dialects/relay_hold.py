"""Frames that wait for a stage: one that reads the text of an answer, and may find that part of it is something else.

A stage tells what it is given, only later where it has to see how a text goes on. A frame waits until the stage has told
all that the frame says; then the frame itself is passed on, and what was told is forgotten. Frames behind it wait too:
they keep their order. When the stage tells something else than came, what it told of the waiting frames is told instead.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.staging import Debt, Stage
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.sse import Frame

__all__ = ("Fault", "Hold", "Waiting")

Fault = tuple[str, str]
"""What a reader found in a frame: its kind and a message."""

MAX_HELD_BYTES = 262_144
"""Frames that may wait. A block of text that is a call reaches this with some thousand tokens, and is hidden anyway."""

_ABOUT_NO_PART = (Started, UsageReported, LimitsReported, Finished, Failed, Completed)
_DEFERRED = (PartStarted, PartEnded, AnnotationAdded)
_LATE = (TextDelta, *_DEFERRED)  # what a stage may tell later than it came


class Waiting(Struct):
    """A frame on its way: as it came, what it says, and what was irregular. `frame` is None for a plain delta.

    told: what the stage told when it was given this. debts: what it had not told then.
    """

    raw: bytes
    data: bytes | None
    frame: Frame | None
    events: tuple[Event, ...]
    found: tuple[Fault, ...]
    told: list[Event] = []
    debts: tuple[Debt, ...] = ()


class Hold:
    """The frames of one answer that wait. Those that were passed on are `noted`, so that both count parts alike."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.frames: list[Waiting] = []
        self._size = 0
        self._numbers: dict[int, int] = {}  # of parts: the stage's -> the client's
        self._count = 0
        self._is_alike = True

    @property
    def is_full(self) -> bool:
        return self._size > MAX_HELD_BYTES

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Give the stage what a frame says: what it tells."""
        feed = self.stage.feed
        return [told for event in events for told in feed(event)]

    def debts(self, events: Iterable[Event]) -> tuple[Debt, ...]:
        """What of these events the stage has not told."""
        parts = dict.fromkeys([event.part for event in events if isinstance(event, _LATE)])
        debts = [self.stage.debt(part) for part in parts]
        return tuple([debt for debt in debts if debt is not None])

    def put(self, waiting: Waiting) -> None:
        self.frames.append(waiting)
        self._size += len(waiting.raw)

    def take_paid(self) -> list[Waiting]:
        """The frames that need wait no longer."""
        frames, is_paid = self.frames, self.stage.is_paid
        count = 0
        while count < len(frames) and all(map(is_paid, frames[count].debts)):
            self._size -= len(frames[count].raw)
            count += 1
        taken = frames[:count]
        del frames[:count]
        if taken and frames:
            self._keep_what_is_due()
        return taken

    def take_told(self) -> list[list[Event]]:
        """What the stage told of the frames that wait; they no longer do."""
        told = [waiting.told for waiting in self.frames]
        self.frames.clear()
        self._size = 0
        return told

    def note(self, events: Iterable[Event]) -> None:
        """A frame with these events is passed on."""
        for event in events:
            if isinstance(event, PartStarted):
                number = self.stage.number_of(event.part)
                if number is not None:
                    self._numbers[number] = event.part
                self._is_alike = self._is_alike and number == event.part
                self._count += 1

    def renumber(self, events: Sequence[Event]) -> Sequence[Event]:
        """What the stage tells, by the numbers that the client's side knows."""
        if self._is_alike:
            return events
        return [self._renumbered(event) for event in events]

    def _renumbered(self, event: Event) -> Event:
        if isinstance(event, _ABOUT_NO_PART) or event.part is None:
            return event
        if isinstance(event, PartStarted):
            self._numbers[event.part] = self._count
            self._count += 1
        number = self._numbers.get(event.part)
        return event if number is None or number == event.part else replace(event, part=number)

    def _keep_what_is_due(self) -> None:
        """Of what the stage told of the waiting frames forget what it owed to those that are gone."""
        stage = self.stage
        due: Counter[tuple[type[Event], int | None]] = Counter()
        parts: set[int] = set()
        for waiting in self.frames:
            for event in waiting.events:
                if isinstance(event, TextDelta):
                    parts.add(event.part)
                    due[TextDelta, stage.number_of(event.part)] += len(event.text)
                elif isinstance(event, _DEFERRED):
                    due[type(event), stage.number_of(event.part)] += 1
        for part in parts:
            due[TextDelta, stage.number_of(part)] -= stage.owed(part)
        for waiting in reversed(self.frames):
            waiting.told = _last_of(waiting.told, due)


def _last_of(told: list[Event], due: "Counter[tuple[type[Event], int | None]]") -> list[Event]:
    """The last of the events, as far as they are due; what comes at once always is."""
    kept: list[Event] = []
    for event in reversed(told):
        if isinstance(event, TextDelta):
            size = min(len(event.text), due[TextDelta, event.part])
            due[TextDelta, event.part] -= size
            if size == len(event.text):
                kept.append(event)
            elif size:
                kept.append(TextDelta(event.part, event.text[-size:]))
        elif not isinstance(event, _DEFERRED):
            kept.append(event)
        elif due[type(event), event.part] > 0:
            due[type(event), event.part] -= 1
            kept.append(event)
    return kept[::-1]
