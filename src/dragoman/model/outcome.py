"""A whole answer (`Outcome`), and the types for its end, its usage, its limits and its errors."""

from typing import Literal

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.parts import Extra, Part

__all__ = (
    "Choice",
    "ErrorInfo",
    "ErrorKind",
    "FinishReason",
    "LimitWindow",
    "Limits",
    "Loss",
    "LossAction",
    "Outcome",
    "Problem",
    "Repair",
    "Usage",
)

FinishReason = Literal[
    "stop",
    "stop_sequence",
    "length",
    "context_window",
    "tool_calls",
    "content_filter",
    "refusal",
    "pause",
    "cancelled",
    "error",
]

ErrorKind = Literal[
    "invalid_request",
    "authentication",
    "permission",
    "not_found",
    "conflict",
    "too_large",
    "context_length",
    "content_policy",
    "rate_limit",
    "quota",
    "overloaded",
    "timeout",
    "truncated",
    "protocol",
    "cancelled",
    "upstream",
    "server",
]

LossAction = Literal["refuse", "carry", "drop"]


class Usage(Struct, frozen=True, gc=False, kw_only=True):
    """Token counts. `input` includes cached and cache-write tokens; a later report replaces the counts that it states."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    total: int | None = None
    extra: Extra | None = None


class LimitWindow(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    used_percent: float | None = None
    remaining: float | None = None
    limit: float | None = None
    window_minutes: int | None = None
    resets_at: int | None = None


class Limits(Struct, frozen=True, gc=False, kw_only=True):
    """Rate limits as a provider reports them beside an answer."""

    windows: tuple[LimitWindow, ...] = ()
    has_credits: bool | None = None
    unlimited: bool | None = None
    balance: str | None = None


class ErrorInfo(Struct, frozen=True, gc=False, kw_only=True):
    """One error, independent of dialects. `raw` is the provider's error object, exact in `dialect` only.

    request_id: the id of the client's request, which some dialects show with the error.
    """

    kind: ErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    dialect: str | None = None
    raw: Raw | None = None
    request_id: str | None = None


class Problem(Struct, frozen=True, gc=False):
    """Something irregular in what was received. `frame` counts frames from 1; a body is frame 1."""

    frame: int
    kind: str
    message: str


class Loss(Struct, frozen=True, gc=False):
    """Something the target dialect cannot express: which rule (`code`), where, and what was done about it."""

    code: str
    where: str
    action: LossAction
    detail: str = ""


class Repair(Struct, frozen=True, gc=False):
    """A change to a conversation, by a named rule, so that a strict upstream accepts the conversation."""

    rule: str
    where: str
    detail: str = ""


class Choice(Struct, frozen=True, gc=False, kw_only=True):
    index: int = 0
    parts: tuple[Part, ...] = ()
    finish: FinishReason | None = None
    stop_sequence: str | None = None
    finish_extra: Extra | None = None


class Outcome(Struct, frozen=True, gc=False, kw_only=True):
    """A whole answer: `core.fold.fold` builds it from the events, streamed or not."""

    response_id: str = ""
    model: str = ""
    created: int | None = None
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    limits: Limits | None = None
    error: ErrorInfo | None = None
    completed: bool = False
    started_extra: Extra | None = None
    completed_extra: Extra | None = None
