"""Answers and requests as nearly all are, recognised by one look. Knows no wire.

A writer that is given a plain answer (one choice of thoughts, texts and calls of the client's functions, every one
whole) has nothing to settle; nor has one that is given a turn that is a text and nothing more.
"""

from operator import attrgetter

from dragoman.model.outcome import FinishReason, Outcome
from dragoman.model.parts import Call, Dialect, Reasoning, Text
from dragoman.model.request import Request, Turn

_seldom = attrgetter(
    *("top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "choices", "logprobs", "top_logprobs"),
    *("logit_bias", "stop", "response_format", "reasoning", "verbosity", "user", "safety_id", "cache_key", "metadata"),
    *("service_tier", "store", "previous_id", "include"),
)  # fmt: skip
_UNSAID: object = _seldom(Request())

PlainPart = Reasoning | Text | Call
_ENDINGS: frozenset[FinishReason | None] = frozenset({"stop", "tool_calls", "length"})


def plain_parts(outcome: Outcome, dialect: Dialect) -> list[PlainPart] | None:
    """The parts of a plain answer; None if a closer look is needed, as at fields of `dialect`, which it is written in."""
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None and extra.dialect == dialect:
            return None
    if not outcome.completed or outcome.error is not None or outcome.limits is not None:
        return None
    if len(outcome.choices) != 1:
        return None
    choice = outcome.choices[0]
    if choice.index or choice.stop_sequence is not None or choice.finish_extra is not None:
        return None
    parts: list[PlainPart] = []
    has_calls = False
    for part in choice.parts:
        if type(part) is Text and part.text and _is_plain_text(part):
            parts.append(part)
        elif type(part) is Call and _is_plain_call(part):
            parts.append(part)
            has_calls = True
        elif type(part) is Reasoning and _is_plain_thought(part):
            parts.append(part)
        else:
            return None
    # Calls are what an answer with calls ends for.
    is_settled = has_calls is (choice.finish == "tool_calls") and choice.finish in _ENDINGS
    return parts if is_settled else None


def has_seldom_settings(request: Request) -> bool:
    """Whether a request says how to answer beyond its stream, its limit, its temperature and its tools."""
    said: object = _seldom(request)
    return said != _UNSAID


def bare_text(turn: Turn) -> str | None:
    """What a message says that is a text and nothing more; None for any other turn, and for results."""
    if len(turn.parts) != 1 or turn.role == "tool":
        return None
    part = turn.parts[0]
    if type(part) is not Text or part.cache is not None or not _is_plain_text(part):
        return None
    if turn.extra is not None or turn.cache is not None or turn.name is not None:
        return None
    return part.text or None if turn.item_id is None and turn.status is None else None


def _is_plain_text(text: Text) -> bool:
    return (
        not text.annotations
        and text.logprobs is None
        and text.extra is None
        and text.item_extra is None
        and text.status == "completed"
    )


def _is_plain_thought(thought: Reasoning) -> bool:
    return (
        len(thought.summary) + len(thought.content) <= 1
        and thought.extra is None
        and thought.status == "completed"
    )


def _is_plain_call(call: Call) -> bool:
    return (
        call.kind == "function"
        and call.executor == "client"
        and call.status == "completed"
        and call.call_id != ""
        and call.name != ""
        and call.namespace is None
        and call.extra is None
        and not call.seals
    )
