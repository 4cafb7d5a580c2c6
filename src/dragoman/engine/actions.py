"""What a turn decides, for its runner to do, and what it is told beside the events of the answer."""

from msgspec import Struct

from dragoman.engine.answer import Answer
from dragoman.engine.events import RunEnd, Settlement
from dragoman.engine.outputs import Content
from dragoman.engine.toolbox import Entry
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Result

__all__ = (
    "AbortCall",
    "Action",
    "CloseStream",
    "EndTurn",
    "RunCall",
    "SettleCall",
    "Settled",
    "Stopped",
)


class RunCall(Struct, frozen=True):
    """Its turn has come."""

    number: int
    call: Call
    entry: Entry


class SettleCall(Struct, frozen=True):
    """It has its result; whoever watches is told."""

    number: int
    call: Call
    result: Result
    how: Settlement
    elapsed: float


class AbortCall(Struct, frozen=True):
    """It is to be stopped; that it has stopped is told by `settle`."""

    number: int


class CloseStream(Struct, frozen=True):
    """Nothing more of the answer is wanted."""


class EndTurn(Struct, frozen=True):
    answer: Answer


Action = RunCall | SettleCall | AbortCall | CloseStream | EndTurn


class Settled(Struct, frozen=True, kw_only=True):
    """What became of a call that was run. An aborted one has no content: the turn knows the reason.

    is_stuck: the tool did not stop when it was told to. fatal: why nothing more can be done in this conversation.
    """

    number: int
    how: Settlement
    content: Content = ()
    is_error: bool = True
    elapsed: float = 0.0
    is_stuck: bool = False
    fatal: ErrorInfo | None = None


class Stopped(Struct, frozen=True):
    """The turn is to end now. `by`: the call that ordered it, which has ended by itself."""

    reason: RunEnd
    error: ErrorInfo | None = None
    by: int | None = None
