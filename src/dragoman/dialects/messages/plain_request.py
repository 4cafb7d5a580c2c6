"""A request as nearly all are, read by its type alone: plain messages, tools, and the usual settings.

One that says anything else does not fit, and `request` reads it field by field. Where both can read it they say the same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.dialects.messages.fields import MAX_NUMBER
from dragoman.dialects.messages.history import settled, split_user
from dragoman.dialects.messages.plain import PlainBlock, part_of
from dragoman.dialects.messages.tools import read_list
from dragoman.model.parts import Call, Part, Text
from dragoman.model.request import Request, Turn

__all__ = ("PLAIN_FIELDS", "read_plain")

_NULL = Raw(b"null")


class _Message(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: str | list[PlainBlock]


class _Metadata(Struct, gc=False, forbid_unknown_fields=True):
    user_id: str | None = None


class _Plain(Struct, gc=False, forbid_unknown_fields=True):
    messages: list[_Message]
    model: str | None = None
    system: str | list[PlainBlock] | None = None
    tools: Raw = _NULL
    stream: bool | None = None
    max_tokens: int | None = None
    temperature: int | float | None = None
    metadata: _Metadata | None = None


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
    if plain.system is not None:
        system = _content(plain.system)
        if system is None:
            return None
        if system:
            turns.append(Turn(role="system", parts=system, head=True))
    for message in plain.messages:
        parts = _content(message.content)
        if parts is None:
            return None
        if message.role == "user":
            turns += split_user(parts)
        else:
            turns.append(Turn(role="assistant", parts=parts))
    numbers = (plain.max_tokens or 0, plain.temperature or 0)
    if max(map(abs, numbers)) > MAX_NUMBER:
        return None
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=() if plain.tools == _NULL else read_list(plain.tools),
        stream=plain.stream,
        max_tokens=plain.max_tokens,
        temperature=plain.temperature,
        user=None if plain.metadata is None else plain.metadata.user_id,
    )


def _content(content: str | list[PlainBlock]) -> tuple[Part, ...] | None:
    if isinstance(content, str):
        return (Text(text=content),)
    parts = tuple(settled(part_of(block)) for block in content)
    is_nameless = any(type(part) is Call and not part.name for part in parts)
    return None if is_nameless else parts
