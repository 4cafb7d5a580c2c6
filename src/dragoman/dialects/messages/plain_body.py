"""A whole message as nearly all are, by its type alone: text, thinking, calls of the client's tools. Both ways.

Whatever else a message says does not fit, and is read and written block by block (`body`). Where both ways can take an
answer they say the same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, is_strict, typed_decoder
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.plain import plain_parts
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.messages.fields import own_fields
from dragoman.dialects.messages.losses import note_foreign, note_usage
from dragoman.dialects.messages.plain import PlainBlock, part_of
from dragoman.dialects.messages.render import (
    Block,
    is_object_text,
    reasoning_block,
    write_id,
)
from dragoman.dialects.messages.usage import UsageReader, usage_in_full
from dragoman.dialects.messages.wire import END_FIELDS, MAPPED_FIELDS
from dragoman.model.outcome import Choice, FinishReason, Outcome
from dragoman.model.parts import Call, Extra, Part, Text
from dragoman.sse import is_utf8

__all__ = ("read_plain", "write_plain")

_KNOWN = MAPPED_FIELDS["message"]
_REASONS: dict[str, FinishReason] = {"end_turn": "stop", "tool_use": "tool_calls"}
_WORDS: dict[FinishReason | None, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
}


class _Message(Struct, gc=False):
    """All but what has no home: that is what remains of the object's fields."""

    type: Literal["message"]
    content: list[PlainBlock]
    stop_reason: Literal["end_turn", "tool_use"]
    usage: dict[str, Raw]
    id: str | None = None
    model: str | None = None
    stop_sequence: None = None


_decode = typed_decoder(_Message)


def read_plain(data: bytes) -> Outcome | None:
    """What a message amounts to; None if a closer look is needed."""
    try:
        message = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    parts: list[Part] = []
    has_calls = False
    for block in message.content:
        part = part_of(block)
        parts.append(part)
        if type(part) is Call:
            has_calls = True
            # An object, as it must be: what else it may be, and what it may not, is for the closer look.
            is_whole = part.input.startswith("{") and is_strict(part.input)
            if not part.call_id or not part.name or not is_whole:
                return None
    rest = own_fields(fields, _KNOWN)
    if (
        has_calls is not (message.stop_reason == "tool_use")
        or not END_FIELDS.isdisjoint(rest)
        or not (data.isascii() or is_utf8(data))
    ):
        return None
    return Outcome(
        response_id=message.id or "",
        model=message.model or "",
        choices=(Choice(parts=tuple(parts), finish=_REASONS[message.stop_reason]),),
        usage=UsageReader().read(message.usage),
        completed=True,
        started_extra=Extra("messages", rest) if rest else None,
    )


class _WrittenText(Struct, gc=False):
    type: str
    text: str


class _WrittenCall(Struct, gc=False):
    type: str
    id: str
    name: str
    input: Raw


_WrittenBlock = _WrittenText | _WrittenCall | Block


class _Written(Struct, gc=False):
    id: str
    type: str
    role: str
    model: str
    content: list[_WrittenBlock]
    stop_reason: str
    stop_sequence: None
    usage: dict[str, object]


def write_plain(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """The message of a plain answer; None if it must be written block by block."""
    parts = plain_parts(outcome, "messages")
    if parts is None:
        return None
    content: list[_WrittenBlock] = []
    for part in parts:
        if isinstance(part, Text):
            content.append(_WrittenText("text", part.text))
        elif isinstance(part, Call):
            if not is_object_text(part.input):
                return None
            source = Raw(part.input.encode("utf-8", "replace"))
            content.append(_WrittenCall("tool_use", write_id(part.call_id), part.name, source))
        else:
            block = reasoning_block(part, book, "")
            if block is not None:
                content.append(block)
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None:
            note_foreign(book, extra, "message")
    if outcome.usage is not None:
        note_usage(outcome.usage, book)
    return dumps_document(
        _Written(
            context.response_id or outcome.response_id or Minter(context.seed)("msg_"),
            "message",
            "assistant",
            context.model or outcome.model,
            content,
            _WORDS[outcome.choices[0].finish],
            None,
            usage_in_full(outcome.usage),
        )
    )
