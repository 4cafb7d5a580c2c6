"""The choice of a body as nearly every server writes it, read by its type alone: thoughts, a text, calls of functions.

Whatever else a choice says does not fit, and `ChoiceTrack` reads it field by field. Where both can read it they say the
same. Fields typed `None` may be null but not more.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, is_strict, typed_decoder
from dragoman.model.events import (
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Reasoning, Text

__all__ = ("read_plain",)


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _Call(Struct, gc=False, forbid_unknown_fields=True):
    id: str
    function: _Function
    type: Literal["function"]
    index: int | None = None


class _Message(Struct, gc=False, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    annotations: tuple[()] | None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None


class _Choice(Struct, gc=False, forbid_unknown_fields=True):
    message: _Message
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    index: Literal[0] = 0
    logprobs: None = None
    stop_reason: None = None
    matched_stop: None = None


_decode = typed_decoder(tuple[_Choice])
_NO_TEXT = Text(status="in_progress")
_NO_THOUGHT = Reasoning(status="in_progress")


def read_plain(choices: Raw) -> list[Event] | None:
    """The parts of the only choice, then its finish; None if a closer look is needed."""
    try:
        (choice,) = _decode(choices)
    except FAST_FAILURES:
        return None
    message = choice.message
    calls = message.tool_calls or ()
    # Calls are what a choice with calls ends for; one that ends otherwise was cut, or says so by mistake.
    if bool(calls) is not (choice.finish_reason == "tool_calls") or not _are_regular(calls):
        return None
    events: list[Event] = []
    part = 0
    if message.reasoning_content:
        text = message.reasoning_content
        events += (
            PartStarted(part, _NO_THOUGHT),
            ReasoningDelta(part, text),
            PartEnded(part, Reasoning(summary=(text,))),
        )
        part += 1
    if message.content:
        text = message.content
        events += (
            PartStarted(part, _NO_TEXT),
            TextDelta(part, text),
            PartEnded(part, Text(text=text)),
        )
        part += 1
    for call in calls:
        name, text = call.function.name, call.function.arguments
        events += (
            PartStarted(part, Call(call_id=call.id, name=name, status="in_progress")),
            InputDelta(part, text),
            PartEnded(part, Call(call_id=call.id, name=name, input=text)),
        )
        part += 1
    events.append(Finished(choice.finish_reason, native=choice.finish_reason))
    return events


def _are_regular(calls: list[_Call] | tuple[()]) -> bool:
    """Whether every call has a name, an id of its own and input that is JSON."""
    return len({call.id for call in calls}) == len(calls) and all(
        call.id and call.function.name and is_strict(call.function.arguments) for call in calls
    )
