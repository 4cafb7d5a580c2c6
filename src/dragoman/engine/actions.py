"""The inputs of a turn beside the events of the answer, the actions that a turn orders from its runner, and its outcome."""

from msgspec import Struct

from dragoman.engine.events import RunEnd, Settlement
from dragoman.engine.results import Content
from dragoman.engine.toolbox import Entry
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Call, Result
from dragoman.model.request import Turn


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """One answer and all its calls.

    calls: every call of the model, whoever runs it, except those that the provider runs.
    end: why the run ends after this turn; None: the run goes on.
    """

    turns: tuple[Turn, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    limits: Limits | None = None
    end: RunEnd | None = None
    error: ErrorInfo | None = None


class RunCall(Struct, frozen=True):
    """Start the call: the schedule lets it run now."""

    number: int
    call: Call
    entry: Entry


class SettleCall(Struct, frozen=True):
    """The call has its result: inform the observer."""

    number: int
    call: Call
    result: Result
    how: Settlement
    elapsed: float


class AbortCall(Struct, frozen=True):
    """Stop the call. When it has stopped, `settle` is called for it."""

    number: int


class CloseStream(Struct, frozen=True):
    """Stop reading the answer."""


class EndTurn(Struct, frozen=True):
    """Every call has its result."""

    outcome: TurnOutcome


Action = RunCall | SettleCall | AbortCall | CloseStream | EndTurn


class Settled(Struct, frozen=True, kw_only=True):
    """How a call that was run has ended. An aborted call has no content: the turn knows why it was aborted.

    is_stuck: the tool did not stop when it was cancelled. fatal: why nothing more can be done in this conversation.
    """

    number: int
    how: Settlement
    content: Content = ()
    is_error: bool = True
    elapsed: float = 0.0
    is_stuck: bool = False
    fatal: ErrorInfo | None = None


class Stopped(Struct, frozen=True):
    """End the turn now. `by`: the call that caused the stop; it has ended by itself."""

    reason: RunEnd
    error: ErrorInfo | None = None
    by: int | None = None
