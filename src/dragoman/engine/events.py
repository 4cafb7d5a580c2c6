"""The events that an observer of the engine receives, in order. `dragoman run --json` prints them as JSON."""

from typing import Literal

from msgspec import Struct

from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Call, Result
from dragoman.model.request import Turn

__all__ = (
    "CallReported",
    "CallSettled",
    "CallStarted",
    "Compacted",
    "EngineEvent",
    "ModelSpoke",
    "Retried",
    "RunEnd",
    "RunEnded",
    "Settlement",
    "TurnEnded",
    "TurnStarted",
)

Settlement = Literal["done", "failed", "refused", "timed_out", "aborted"]
"""`failed`: the tool reported an error. `refused`: the call could not be run (unknown tool, wrong arguments)."""

RunEnd = Literal[
    "answered",
    "handed_over",
    "max_turns",
    "max_tokens",
    "max_time",
    "no_progress",
    "cancelled",
    "failed",
]
"""`handed_over`: the model called tools that the caller runs itself."""


class TurnStarted(Struct, frozen=True, gc=False, tag_field="type", tag="turn_started"):
    """A request is being sent. Turns count from 1."""

    turn: int


class ModelSpoke(Struct, frozen=True, gc=False, tag_field="type", tag="model_spoke"):
    """An event of the model's answer, as it arrives."""

    event: Event


class CallStarted(Struct, frozen=True, gc=False, tag_field="type", tag="call_started"):
    """A tool begins to run a call."""

    turn: int
    call: Call


class CallReported(Struct, frozen=True, gc=False, tag_field="type", tag="call_reported"):
    """A text on the progress of a call, from the tool."""

    call_id: str
    text: str


class CallSettled(Struct, frozen=True, gc=False, tag_field="type", tag="call_settled"):
    """A call has its result. `elapsed`: seconds from its start; 0 for a call that never started."""

    turn: int
    call: Call
    result: Result
    how: Settlement
    elapsed: float = 0.0


class Retried(Struct, frozen=True, gc=False, tag_field="type", tag="retried"):
    """An answer broke off before any call was started. Its events so far are void; the request is sent again."""

    turn: int
    error: ErrorInfo
    after: float


class Compacted(Struct, frozen=True, gc=False, tag_field="type", tag="compacted"):
    """A summary replaced the older turns. `tokens_before` is None if the model refused the request as too long."""

    tokens_before: int | None
    turns_before: int
    turns_after: int


class TurnEnded(Struct, frozen=True, gc=False, tag_field="type", tag="turn_ended"):
    """One answer and all its calls are over. `usage` is that of the answer, `total` that of the run so far."""

    turn: int
    finish: FinishReason | None
    usage: Usage | None
    total: Usage
    limits: Limits | None = None


class RunEnded(Struct, frozen=True, gc=False, tag_field="type", tag="run_ended", kw_only=True):
    """The end of the run. `turns` is the conversation, ready to be continued: every call in it has its result."""

    reason: RunEnd
    turns: tuple[Turn, ...]
    total: Usage
    turn_count: int
    error: ErrorInfo | None = None


EngineEvent = (
    TurnStarted
    | ModelSpoke
    | CallStarted
    | CallReported
    | CallSettled
    | Retried
    | Compacted
    | TurnEnded
    | RunEnded
)
"""Everything that an observer of a run may see."""
