"""A whole answer as nearly every server writes it, by its type alone: thoughts, a text, calls of functions. Both ways.

Whatever else a body says does not fit, and is read field by field (`decode`) and written part by part (`body`). Where
both ways can take an answer they say the same. Fields typed `None` may be null but not more.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, as_object, dumps_document, is_strict, typed_decoder
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.plain import plain_parts
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.chat.fields import NULL
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.usage import read_usage, write_usage
from dragoman.dialects.chat.wire import CHUNK_FIELDS
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import Call, Extra, Part, Reasoning, Text
from dragoman.sse import is_utf8

__all__ = ("read_plain", "write_plain")


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _Call(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    type: Literal["function"]
    function: _Function
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


class _Body(Struct, gc=False):
    """All but what has no home: that is what remains of the object's fields."""

    choices: tuple[_Choice]
    id: str | None = None
    created: int | None = None
    model: str | None = None
    error: None = None
    base_resp: None = None


_decode = typed_decoder(_Body)


def read_plain(data: bytes) -> Outcome | None:
    """What a body amounts to; None if a closer look is needed."""
    try:
        body = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    (choice,) = body.choices
    message = choice.message
    calls = message.tool_calls or ()
    # Calls are what a choice with calls ends for; one that ends otherwise was cut, or says so by mistake.
    if bool(calls) is not (choice.finish_reason == "tool_calls") or not (
        data.isascii() or is_utf8(data)
    ):
        return None
    parts: list[Part] = []
    if message.reasoning_content:
        parts.append(Reasoning(summary=(message.reasoning_content,)))
    if message.content:
        parts.append(Text(text=message.content))
    ids: set[str] = set()
    for call in calls:
        name, arguments = call.function.name, call.function.arguments
        if not call.id or call.id in ids or not name or not is_strict(arguments):
            return None
        ids.add(call.id)
        parts.append(Call(call_id=call.id, name=name, input=arguments))
    usage = fields.get("usage", NULL)
    if usage == NULL and "x_groq" in fields:
        return None
    rest = {name: raw for name, raw in fields.items() if name not in CHUNK_FIELDS and raw != NULL}
    return Outcome(
        response_id=body.id or "",
        model=body.model or "",
        created=body.created,
        choices=(Choice(parts=tuple(parts), finish=choice.finish_reason),),
        usage=None if usage == NULL else read_usage(usage),
        completed=True,
        started_extra=Extra("chat", rest) if rest else None,
    )


_Counts = dict[str, object]


class _WrittenMessage(Struct, gc=False, omit_defaults=True):
    role: str
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _WrittenChoice(Struct, gc=False):
    index: int
    message: _WrittenMessage
    logprobs: None
    finish_reason: str


class _Written(Struct, gc=False, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[_WrittenChoice]
    usage: _Counts | None = None


def write_plain(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """The body of a plain answer; None if it must be written part by part."""
    parts = plain_parts(outcome, "chat")
    if parts is None or context.legacy_functions:
        return None
    thoughts: list[str] = []
    texts: list[str] = []
    calls: list[_Call] = []
    for part in parts:
        if isinstance(part, Call):
            calls.append(_Call(part.call_id, "function", _Function(part.name, part.input)))
        elif isinstance(part, Text):
            texts.append(part.text)
        else:
            thoughts += (*part.summary, *part.content)
            if part.seals:
                book.note("seal", "choice 0")
    content = "".join(texts) if texts or not calls else None
    thought = "".join(thoughts) or None
    message = _WrittenMessage("assistant", content, None, thought, calls or None)
    usage = outcome.usage
    if usage is not None and usage.extra is not None:
        note_foreign(book, usage.extra, "usage")
    if outcome.started_extra is not None:
        note_foreign(book, outcome.started_extra, "answer")
    note_extra(book, outcome.completed_extra, "answer")
    return dumps_document(
        _Written(
            outcome.response_id or Minter(context.seed)("chatcmpl-"),
            "chat.completion",
            context.created if outcome.created is None else outcome.created,
            context.model or outcome.model,
            (_WrittenChoice(0, message, None, outcome.choices[0].finish or "stop"),),
            None if usage is None else write_usage(usage),
        )
    )
