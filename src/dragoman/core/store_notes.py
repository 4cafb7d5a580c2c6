"""Notes for the store: how an answer began, its events, and how it ended.

Encoders and the relay take these notes while they write, so that the store need not parse their output. The frames that
end a stream are held until the answer is stored; if storing fails, `AnswerEnd.fail` encodes a failure in their place.
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

# The deltas are not needed: PartEnded has the whole part.
_KEPT: frozenset[type[Event]] = frozenset(
    {Started, PartStarted, PartEnded, Finished, UsageReported, Completed, Failed}
)


@final
class AnswerEnd(Struct, frozen=True, kw_only=True):
    """How an answer ended. The garbage collector must see it: `fail` leads to the encoder, and from there to these notes.

    body: the whole answer as a body, which a later GET returns. open_calls: the ids of the calls that wait for results of
    the client. items: the ids of the answer's items. frames: the frames that end a stream. fail: encodes a failure to send
    in their place; None if the frames report a failure already.
    """

    id: str
    status: TerminalStatus
    body: bytes = b""
    open_calls: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    frames: bytes = b""
    fail: Callable[[ErrorInfo], bytes] | None = None


class StoreNotes(Struct, eq=False):
    """The notes of one answer of one upstream.

    `response_id`: the id that was sent at the beginning. For an encoded answer, `opening` builds the response object that
    was sent with the id, and `end` describes the end. For a relayed answer, the upstream's own frames hold both:
    `first_frame` and `last_frame`.
    """

    response_id: str = ""
    opening: Callable[[], bytes] | None = None
    first_frame: bytes = b""
    last_frame: bytes = b""
    end: AnswerEnd | None = None
    _events: list[Event] = []
    _outcome: Outcome | None = None

    def begin(self, response_id: str, opening: Callable[[], bytes]) -> None:
        """An encoder has begun the answer, or continues an answer that was relayed so far."""
        if not self.response_id:
            self.response_id = response_id
            self.opening = opening

    def take(self, events: Iterable[Event]) -> None:
        """Note events of a stream that have been written."""
        self._events += [event for event in events if type(event) in _KEPT]

    def take_frame(self, raw: bytes, events: Sequence[Event]) -> None:
        """Note a frame of the upstream that was relayed, with its events."""
        self.take(events)
        for event in events:
            if isinstance(event, Started):
                self.response_id = event.response_id
                self.first_frame = raw
            elif isinstance(event, (Completed, Failed)):
                self.last_frame = raw

    def take_body(self, outcome: Outcome) -> None:
        """Note a body of the upstream that is relayed."""
        self._outcome = outcome

    def outcome(self) -> Outcome:
        """The whole answer, from the noted events or body."""
        return fold(self._events) if self._outcome is None else self._outcome

    def hide(self, hide: Callable[[bytes], bytes]) -> None:
        """Remove secrets from the noted end, as from the bytes that are sent."""
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
    """The ids of the open calls in choice 0 of an answer."""
    parts = [part for choice in outcome.choices if choice.index == 0 for part in choice.parts]
    return tuple([call.call_id for call in open_calls(parts)])
