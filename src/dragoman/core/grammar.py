"""The grammar of an answer: which event may follow which. Decoders obey it, encoders rely on it.

    SILENT --Started--> SPEAKING --Finished--> ENDING --Completed--> OVER
       '------------------ Failed (from any of the three) -----------^
    any event without a row, or out of order within its part --> BROKEN, for good

- Noticed may stand anywhere before the terminal event, UsageReported and LimitsReported anywhere after Started.
- A part is `PartStarted delta* PartEnded`. Parts are numbered densely in order of first appearance over all choices
  and may interleave. A delta fits the class of its part; PartEnded has the class, and for a call the identity, that
  PartStarted announced. The header of a part that streams is empty and in progress.
- A choice is finished once, after all its parts have ended; other choices may still go on. Nothing is added to a
  finished choice.
- Completed needs every choice that appeared to be finished, choice 0 in any case.
- Failed needs every open part to have been ended (as incomplete): close what you opened.

The machine sees order only, not whether deltas join to the value of PartEnded.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Never, assert_never, get_args

from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.parts import Call, Media, Part, Reasoning, Refusal, Result, Text


class GrammarState(Enum):
    SILENT = auto()  # the answer has not started
    SPEAKING = auto()  # started, no choice finished
    ENDING = auto()  # a choice has finished; others may go on
    OVER = auto()  # terminal event seen
    BROKEN = auto()  # a rule was broken: every further event is refused


_DELTAS: tuple[type[Event], ...] = get_args(Delta)
_BODY: tuple[type[Event], ...] = (
    PartStarted,
    *_DELTAS,
    PartEnded,
    Progress,
    UsageReported,
    LimitsReported,
    Noticed,
)

TRANSITIONS: Mapping[tuple[GrammarState, type[Event]], GrammarState] = {
    (GrammarState.SILENT, Noticed): GrammarState.SILENT,
    (GrammarState.SILENT, Started): GrammarState.SPEAKING,
    (GrammarState.SILENT, Failed): GrammarState.OVER,
    **{(GrammarState.SPEAKING, kind): GrammarState.SPEAKING for kind in _BODY},
    (GrammarState.SPEAKING, Finished): GrammarState.ENDING,
    (GrammarState.SPEAKING, Failed): GrammarState.OVER,
    # With several choices, one may end while another continues, or before another begins.
    **{(GrammarState.ENDING, kind): GrammarState.ENDING for kind in _BODY},
    (GrammarState.ENDING, Finished): GrammarState.ENDING,
    (GrammarState.ENDING, Completed): GrammarState.OVER,
    (GrammarState.ENDING, Failed): GrammarState.OVER,
}

FITTING: Mapping[type[Event], tuple[type[Part], ...]] = {
    TextDelta: (Text, Refusal),
    ReasoningDelta: (Reasoning,),
    InputDelta: (Call,),
    # A provider-run tool prints into its call while it runs, or into a result of its own.
    OutputDelta: (Call, Result),
    # A call, because previews of an image come before the image generation call ends.
    MediaDelta: (Media, Call),
    AnnotationAdded: (Text,),
    SealAdded: (Reasoning, Call),
}


class GrammarChecker:
    """Checks one sequence of events, event by event."""

    def __init__(self) -> None:
        self._state = GrammarState.SILENT
        self._count = 0
        self._open: dict[int, PartStarted] = {}
        self._unfinished: set[int] = set()
        self._finished: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether the terminal event has been seen."""
        return self._state is GrammarState.OVER

    def check(self, event: Event) -> None:
        """Check the next event.

        Raises:
            LocalProtocolError: the event is not allowed here; every later event is refused too.
        """
        state = TRANSITIONS.get((self._state, type(event)))
        if state is None:
            self._refuse(event, f"it is not allowed while the answer is {self._state.name}")
        if isinstance(event, Delta):
            self._grow(event)
            return  # no delta changes the state
        match event:
            case PartStarted():
                self._start(event)
            case PartEnded():
                self._end(event)
            case Finished():
                self._finish(event)
            case Progress() | Noticed():
                self._mention(event)
            case Completed():
                self._complete(event)
            case Failed():
                self._fail(event)
            case Started() | UsageReported() | LimitsReported():
                pass
            case _:
                assert_never(event)
        self._state = state

    def _start(self, event: PartStarted) -> None:
        if event.part != self._count:
            self._refuse(event, f"expected part {self._count}")
        if event.choice in self._finished:
            self._refuse(event, f"choice {event.choice} is finished")
        if not _is_fresh(event.header):
            self._refuse(event, "its header is not empty and in progress")
        self._count += 1
        self._open[event.part] = event
        self._unfinished.add(event.choice)

    def _grow(self, event: Delta) -> None:
        opened = self._open.get(event.part)
        if opened is None:
            self._refuse(event, f"part {event.part} is not open")
        if not isinstance(opened.header, FITTING[type(event)]):
            self._refuse(event, f"part {event.part} is a {type(opened.header).__name__}")

    def _end(self, event: PartEnded) -> None:
        opened = self._open.pop(event.part, None)
        if opened is None:
            self._refuse(event, f"part {event.part} is not open")
        header, value = opened.header, event.value
        if type(header) is not type(value):
            self._refuse(
                event, f"part {event.part} began as {type(header).__name__} and ends as another"
            )
        if isinstance(header, Call) and isinstance(value, Call) and _name(header) != _name(value):
            self._refuse(
                event, f"call {event.part} began as {_name(header)} and ends as {_name(value)}"
            )

    def _finish(self, event: Finished) -> None:
        choice = event.choice
        if choice in self._finished:
            self._refuse(event, f"choice {choice} has finished before")
        left = [number for number, opened in self._open.items() if opened.choice == choice]
        if left:
            self._refuse(event, f"parts {left} of choice {choice} are still open")
        self._unfinished.discard(choice)
        self._finished.add(choice)

    def _mention(self, event: Progress | Noticed) -> None:
        if event.part is not None and not 0 <= event.part < self._count:
            self._refuse(event, f"part {event.part} has not started")
        if isinstance(event, Progress) and self._finished and not self._unfinished:
            self._refuse(event, "every choice is finished")

    def _complete(self, event: Completed) -> None:
        # No part can be open here: its choice would be unfinished.
        if self._unfinished or 0 not in self._finished:
            self._refuse(event, f"choices {sorted(self._unfinished) or [0]} are not finished")

    def _fail(self, event: Failed) -> None:
        if self._open:
            self._refuse(event, f"parts {sorted(self._open)} are still open")

    def _refuse(self, event: Event, reason: str) -> Never:
        self._state = GrammarState.BROKEN
        raise LocalProtocolError(f"{type(event).__name__} breaks the grammar: {reason}")


def is_grammatical(events: Iterable[Event]) -> bool:
    """Whether the events are one whole answer, from its first event to its terminal event."""
    grammar = GrammarChecker()
    try:
        for event in events:
            grammar.check(event)
    except LocalProtocolError:
        return False
    return grammar.is_over


def _is_fresh(header: Part) -> bool:
    """Whether the header of a part that streams is empty and in progress. Opaque, Result and Media may be whole."""
    match header:
        case Text():
            is_empty = not header.text and not header.annotations and header.logprobs is None
        case Refusal():
            is_empty = not header.text and header.logprobs is None
        case Reasoning():
            is_empty = not header.summary and not header.content and not header.seals
        case Call():
            is_empty = not header.input and not header.seals
        case _:
            return True
    return is_empty and header.status == "in_progress"


def _name(call: Call) -> tuple[str, str, str | None, str]:
    return call.call_id, call.name, call.namespace, call.kind
