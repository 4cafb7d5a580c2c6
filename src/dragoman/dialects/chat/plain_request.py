"""A request as nearly all are, read by its type alone: plain messages, tools, and the usual settings.

One that says anything else does not fit, and `request` reads it field by field. Where both can read it they say the same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.dialects.chat.fields import NULL
from dragoman.dialects.chat.plain_turn import PlainMessage, turn_of
from dragoman.dialects.chat.read_tools import read_list
from dragoman.model.parts import Extra
from dragoman.model.request import Request, ToolChoice, Turn

__all__ = ("PLAIN_FIELDS", "read_plain")


class _Options(Struct, gc=False, forbid_unknown_fields=True):
    include_usage: bool | None = None


class _Plain(Struct, gc=False, forbid_unknown_fields=True):
    messages: list[PlainMessage]
    model: str | None = None
    tools: Raw = NULL
    tool_choice: Literal["auto", "none", "required"] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: _Options | None = None
    max_tokens: int | None = None
    temperature: int | float | None = None


PLAIN_FIELDS = frozenset(_Plain.__struct_fields__)
"""With any other field a request is not plain; to find that out by reading it would cost as much again."""
_decode = typed_decoder(_Plain)


def read_plain(body: bytes) -> Request | None:
    """The request, which is known to be UTF-8; None if a closer look is needed.

    Raises:
        RequestRefused: one of its tools cannot be used.
    """
    try:
        plain = _decode(body)
    except FAST_FAILURES:
        return None
    turns: list[Turn] = []
    for message in plain.messages:
        turn = turn_of(message)
        if turn is None:
            return None
        turns.append(turn)
    if not turns:
        return None
    mode = plain.tool_choice
    options = plain.stream_options
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=() if plain.tools == NULL else read_list(plain.tools),
        tool_choice=None if mode is None else ToolChoice(mode=mode),
        parallel_calls=plain.parallel_tool_calls,
        stream=plain.stream,
        include_usage=None if options is None else options.include_usage,
        max_tokens=plain.max_tokens,
        temperature=plain.temperature,
        extra=Extra("chat", {}),
    )
