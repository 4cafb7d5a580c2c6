"""An upstream's answer read to events in the client's terms, whatever it comes as: a stream, or a body.

The same steps as on the way to a client (`answers`), without the encoder at its end: calls that were written as text are
found, names are those of the request. No I/O.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from dragoman.dialects.interpret import Change
from dragoman.dialects.registry import upstream_codec
from dragoman.dialects.staging import Scanning
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.server.answers import AnswerPlan

__all__ = ("Reading",)


class Reading:
    """One answer. Every method gives the events that are told by now."""

    __slots__ = ("_decoder", "_plan", "_problems", "_tell")

    def __init__(self, plan: AnswerPlan) -> None:
        self._plan = plan
        self._decoder = make_decoder(plan.dialect, plan.decode)
        self._tell = _telling(plan)
        self._problems: tuple[Problem, ...] = ()  # of a body

    @property
    def is_over(self) -> bool:
        """Whether a stream has come to its end: what the upstream sends after that means nothing."""
        return self._decoder.is_over

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame."""
        return self._decoder.waiting

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was irregular, also in calls that the model wrote as text."""
        written = self._plan.written
        found = () if written is None else written.problems
        return (
            *self._decoder.problems,
            *self._problems,
            *(Problem(problem.frame, f"text_{problem.kind}", problem.message) for problem in found),
        )

    def feed(self, data: bytes) -> Sequence[Event]:
        """The next bytes of a stream."""
        return self._tell(self._decoder.events(data))

    def close(self) -> Sequence[Event]:
        """The stream has ended; if it was cut, the last event is Failed."""
        return self._tell([event for step in self._decoder.close() for event in step.events])

    def fail(self, error: ErrorInfo) -> Sequence[Event]:
        """The stream broke off."""
        return self._tell(self._decoder.fail(error))

    def body(self, data: bytes) -> Sequence[Event]:
        """A whole answer that is no stream."""
        step = upstream_codec(self._plan.dialect).read_body(data, self._plan.decode)
        self._problems = step.problems
        return self._tell(step.events)


def _telling(plan: AnswerPlan) -> Callable[[Sequence[Event]], Sequence[Event]]:
    scan = plan.scan
    change = plan.change(is_scanned=scan is not None)
    if scan is not None:
        return Scanning(scan, change or _same).feed
    if change is None:
        return _all_the_same
    return lambda events: _changed(change, events)


def _changed(change: Change, events: Sequence[Event]) -> Sequence[Event]:
    return list(chain.from_iterable(map(change, events)))


def _same(event: Event) -> tuple[Event]:
    return (event,)


def _all_the_same(events: Sequence[Event]) -> Sequence[Event]:
    return events
