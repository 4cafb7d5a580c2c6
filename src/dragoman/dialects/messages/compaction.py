"""Compaction: the field that asks for a summary of the conversation, and the block that contains one.

A client sends the whole conversation with `compaction: {"type": "summarize"}`, and later sends the answer's `compaction` block back
as the first block of an assistant message, in place of what it summarises. The vendor also makes such blocks by itself
(`context_management`). `gateway/compaction.py` makes a summary where another upstream answers.
"""

from msgspec.structs import replace

from dragoman._json import Raw, dumps
from dragoman.core.fields import is_present, own_fields, read_object, read_text
from dragoman.core.summaries import pack_summary, unpack_summary
from dragoman.model.events import Finished
from dragoman.model.parts import Extra, Opaque, Part
from dragoman.model.request import Request

_FIELD = "compaction"
COMPACTED = Finished(
    "pause",
    native="compaction",
    extra=Extra("messages", {"stop_reason": Raw(b'"compaction"')}),
)
"""The end of an answer that is only a compaction."""


def asks_for_summary(request: Request) -> bool:
    """Whether the client asks for a summary in place of an answer."""
    own = own_fields("messages", request.extra)
    return _FIELD in own and is_present(own[_FIELD])


def without_summary_wish(request: Request) -> tuple[Request, str | None]:
    """Return the request without the field that asks for a summary, and the client's instructions for the summary."""
    own = own_fields("messages", request.extra)
    wish = read_object(own.get(_FIELD))
    rest = {name: value for name, value in own.items() if name != _FIELD}
    return replace(request, extra=Extra("messages", rest)), read_text(wish.get("instructions"))


def is_compaction_block(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == "compaction" and part.dialect == "messages"


def compaction_block(summary: str) -> Opaque:
    """Return the block that contains a summary. Its `encrypted_content` shows that no provider signed it."""
    fields = {"type": "compaction", "content": summary, "encrypted_content": pack_summary(summary)}
    return Opaque(dialect="messages", type="compaction", raw=Raw(dumps(fields)))


def summary_of_block(block: Opaque, *, is_native: bool) -> str | None:
    """Return the summary in a compaction block, for an upstream that cannot take the block.

    None if the upstream can (`is_native`: it speaks this dialect, and the block is the vendor's), or the block is empty.

    Raises:
        RequestRefused: a gateway made the block, and its content was damaged since.
    """
    fields = read_object(block.raw)
    packed = read_text(fields.get("encrypted_content"))
    own = None if packed is None else unpack_summary(packed)
    if own is not None or is_native:
        return own
    return read_text(fields.get("content")) or None
