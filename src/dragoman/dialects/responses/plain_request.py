"""A request as nearly all are, read by its type alone: plain items, tools, and the usual settings.

One that says anything else does not fit, and `request` reads it field by field. Where both can read it they say the same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.dialects.responses.plain_item import PlainItem, turn_of
from dragoman.dialects.responses.tools import Declared, read_declared
from dragoman.model.parts import Extra, Text
from dragoman.model.request import Request, ToolChoice, Turn

__all__ = ("PLAIN_FIELDS", "read_plain")

_NULL = Raw(b"null")
_NOTHING = Declared()


class _Plain(Struct, gc=False, forbid_unknown_fields=True):
    input: str | list[PlainItem]
    model: str | None = None
    instructions: str | None = None
    tools: Raw = _NULL
    tool_choice: Literal["auto", "none", "required"] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: int | float | None = None
    store: bool | None = None


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
    if plain.instructions is not None:
        turns.append(Turn(role="system", parts=(Text(text=plain.instructions),), head=True))
    if isinstance(plain.input, str):
        turns.append(Turn(role="user", parts=(Text(text=plain.input),)))
    else:
        for item in plain.input:
            turn = turn_of(item)
            if turn is None:
                return None
            turns.append(turn)
    declared = _NOTHING if plain.tools == _NULL else read_declared(plain.tools)
    mode = plain.tool_choice
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=declared.tools,
        namespaces=declared.namespaces,
        tool_choice=None if mode is None else ToolChoice(mode=mode),
        parallel_calls=plain.parallel_tool_calls,
        stream=plain.stream,
        max_tokens=plain.max_output_tokens,
        temperature=plain.temperature,
        store=plain.store,
        extra=Extra("responses", {}),
    )
