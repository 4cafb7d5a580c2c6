"""What the writer of an answer notes for the store: how it began, what it says, and how it ends.

Encoders and the relay note it while they write, so that nobody reads what they wrote. The frames that end a stream wait
until the answer is stored; if it cannot be stored, `AnswerEnd.fail` encodes a failure in their place.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, final

from msgspec import Struct, structs

from dragoman.core.fold import fold
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import Call, Part, Result

TerminalStatus = Literal["completed", "incomplete", "failed", "cancelled"]

# A part is whole in the event that ends it: its deltas are not needed.
_KEPT: frozenset[type[Event]] = frozenset(
    {Started, PartStarted, PartEnded, Finished, UsageReported, Completed, Failed}
)


@final
class AnswerEnd(Struct, frozen=True, kw_only=True, gc=False):
    """How an answer ended.

    body: the whole answer as a body, which is what a later GET returns. open_calls: the ids of the calls whose results the
    client owes. items: the ids of its items. frames: those that end a stream. fail: encodes a failure to be sent in their
    place; None where they say a failure already.
    """

    id: str
    status: TerminalStatus
    body: bytes = b""
    open_calls: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    frames: bytes = b""
    fail: Callable[[ErrorInfo], bytes] | None = None


class StoreNotes:
    """Of one answer of one upstream.

    `response_id`: what was sent at the beginning. Where we wrote the answer, `opening` makes the object that was sent with
    it, and `end` is how the answer ended. Where it was relayed, both stand in the upstream's own frames: `first_frame` and
    `last_frame`.
    """

    __slots__ = (
        *("_events", "_outcome", "end", "first_frame", "last_frame", "opening", "response_id"),
    )

    def __init__(self) -> None:
        self.response_id = ""
        self.opening: Callable[[], bytes] | None = None
        self.first_frame = b""
        self.last_frame = b""
        self.end: AnswerEnd | None = None
        self._events: list[Event] = []
        self._outcome: Outcome | None = None

    def begin(self, response_id: str, opening: Callable[[], bytes]) -> None:
        """An encoder has begun the answer. It may also go on with one that was relayed so far."""
        if not self.response_id:
            self.response_id = response_id
            self.opening = opening

    def take(self, events: Iterable[Event]) -> None:
        """Events of a stream have been written."""
        self._events += [event for event in events if type(event) in _KEPT]

    def take_frame(self, raw: bytes, events: Sequence[Event]) -> None:
        """A frame of the upstream's was passed on, with these events."""
        self.take(events)
        for event in events:
            if isinstance(event, Started):
                self.response_id = event.response_id
                self.first_frame = raw
            elif isinstance(event, Completed | Failed):
                self.last_frame = raw

    def take_body(self, outcome: Outcome) -> None:
        """A body of the upstream's is passed on."""
        self._outcome = outcome

    def outcome(self) -> Outcome:
        """What was taken amounts to."""
        return fold(self._events) if self._outcome is None else self._outcome

    def hide(self, hide: Callable[[bytes], bytes]) -> None:
        """Remove secrets from the end, as from what is sent."""
        self.last_frame = hide(self.last_frame)
        end = self.end
        if end is not None:
            fail = end.fail
            self.end = structs.replace(
                end,
                body=hide(end.body),
                frames=hide(end.frames),
                fail=None if fail is None else partial(_fail_hidden, hide, fail),
            )


def _fail_hidden(
    hide: Callable[[bytes], bytes], fail: Callable[[ErrorInfo], bytes], error: ErrorInfo
) -> bytes:
    return hide(fail(error))


def open_calls(parts: Iterable[Part]) -> list[Call]:
    """The complete calls for the client that have no result."""
    calls: dict[str, Call] = {}
    for part in parts:
        if isinstance(part, Result):
            calls.pop(part.call_id, None)
        elif isinstance(part, Call) and part.executor == "client" and part.status == "completed":
            calls[part.call_id] = part
    return list(calls.values())


def open_call_ids(outcome: Outcome) -> tuple[str, ...]:
    """The ids of such calls of an answer."""
    parts = [part for choice in outcome.choices if choice.index == 0 for part in choice.parts]
    return tuple([call.call_id for call in open_calls(parts)])
