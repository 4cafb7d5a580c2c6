"""Orders events so that the parts of a choice do not overlap, without delaying the first part.

Several clients merge or mis-parse deltas that alternate between two calls, and Messages blocks must not overlap at all.
In each choice the first open part is LIVE and its events pass at once. A part that starts meanwhile is HELD: its events
wait. When the live part ends, the held parts follow in the order in which they started; the first that is still open
becomes live.

    PartStarted --nothing live in its choice--> LIVE --PartEnded--> gone, and the next held part follows
        '-------another part is live----------> HELD --its turn, still open--> LIVE
                                                 '-----its turn, already ended--> emitted whole, gone

Choices do not wait for each other. The output is grammatical: if a part of another choice overtakes a held part, the
parts are renumbered. A grammatical input ends every part before its choice's Finished and before Failed, so nothing is
held by then. Held events need no more memory than the decoder, which keeps every part until it ends.
"""

from collections import deque
from typing import get_args

from msgspec.structs import replace

from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    LimitsReported,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    Started,
    UsageReported,
)

_AboutPart = Delta | Progress | Noticed | PartEnded

PASSING: frozenset[type[Event]] = frozenset(
    (*get_args(Delta), Progress, UsageReported, LimitsReported, Noticed, Started)
)
"""The events that an idle Serializer passes unchanged: all but those that start or end a part, a choice or the answer."""


class Serializer:
    """Reorders the events of one answer for an encoder: feed it every event and write the events that it returns.

    While `is_idle`, it returns events of the classes in `PASSING` unchanged, so a caller may skip the call for speed.
    """

    __slots__ = ("_choice", "_count", "_held", "_live", "_numbers", "_waiting", "is_idle")

    def __init__(self) -> None:
        self.is_idle = True  # nothing held and nothing renumbered: the fast path
        self._live: dict[int, int] = {}  # choice -> its live part
        self._choice: dict[int, int] = {}  # open part -> its choice
        self._held: dict[int, list[_AboutPart]] = {}  # held part -> its events after PartStarted
        self._waiting: dict[int, deque[PartStarted]] = {}  # choice -> its held parts, in order
        self._numbers: dict[int, int] = {}  # part -> its number in the output, where they differ
        self._count = 0  # parts started in the output

    def feed(self, event: Event) -> tuple[Event, ...]:
        """The events to write now.

        Raises:
            LocalProtocolError: a choice or the answer ends while parts are open.
        """
        if self.is_idle and type(event) in PASSING:
            return (event,)
        match event:
            # The cases that an idle Serializer reaches come first: a case costs as much as all cases before it.
            case PartStarted():
                return self._start(event)
            case PartEnded():
                return self._end(event)
            case Finished() | Failed() | Completed():
                self._check_closed(event)
                return (event,)
            case Started() | UsageReported() | LimitsReported():
                return (event,)
            case _:
                return self._pass(event)

    def _start(self, event: PartStarted) -> tuple[Event, ...]:
        part, choice = event.part, event.choice
        self._choice[part] = choice
        if choice in self._live:
            self._held[part] = []
            self._waiting.setdefault(choice, deque()).append(event)
            self.is_idle = False
            return ()
        self._live[choice] = part
        return (self._announce(event),)

    def _end(self, event: PartEnded) -> tuple[Event, ...]:
        choice = self._choice.pop(event.part, None)
        if choice is None:
            raise LocalProtocolError(
                f"expected the end of an open part, got the end of part {event.part}"
            )
        held = self._held.get(event.part)
        if held is not None:
            held.append(event)
            return ()
        del self._live[choice]
        out = [self._renumber(event)]
        waiting = self._waiting.get(choice)
        if waiting:
            self._release(choice, waiting, out)
            self.is_idle = not self._held and not self._numbers
        return tuple(out)

    def _release(self, choice: int, waiting: deque[PartStarted], out: list[Event]) -> None:
        """Emit held parts up to and including the first that is still open, which becomes live."""
        while waiting and choice not in self._live:
            start = waiting.popleft()
            out.append(self._announce(start))
            out.extend(self._renumber(event) for event in self._held.pop(start.part))
            if start.part in self._choice:
                self._live[choice] = start.part

    def _pass(self, event: _AboutPart) -> tuple[Event, ...]:
        held = None if event.part is None else self._held.get(event.part)
        if held is not None:
            held.append(event)
            return ()
        return (self._renumber(event),)

    def _announce(self, event: PartStarted) -> PartStarted:
        number = self._count
        self._count += 1
        if event.part == number:
            return event
        self._numbers[event.part] = number
        self.is_idle = False
        return replace(event, part=number)

    def _renumber(self, event: _AboutPart) -> Event:
        number = None if event.part is None else self._numbers.get(event.part)
        return event if number is None else replace(event, part=number)

    def _check_closed(self, event: Finished | Failed | Completed) -> None:
        left = (
            [part for part, choice in self._choice.items() if choice == event.choice]
            if isinstance(event, Finished)
            else list(self._choice)
        )
        if left:
            raise LocalProtocolError(
                f"expected every part to be ended before {type(event).__name__}, {left} are open"
            )
