"""Compaction: the field that asks for a summary of the conversation, and the block that contains one.

A client sends the whole conversation with `compaction: {"type": "summarize"}`, and later sends the answer's `compaction` block back
as the first block of an assistant message, in place of what it summarises. The vendor also makes such blocks by itself
(`context_management`). `gateway/compaction.py` makes a summary where another upstream answers.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman._json import Raw, dumps
from dragoman.core.fields import is_present, own_fields, read_object, read_text
from dragoman.core.summaries import Packed, pack_summary, unpack_summary
from dragoman.dialects.messages.context_management import EDITS_FIELD, is_compacting
from dragoman.dialects.messages.wire import COMPACTION_BETA, CONTEXT_BETA
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
    extra = request.extra
    if extra is None or _FIELD not in extra.fields or extra.dialect != "messages":
        return False
    return is_present(extra.fields[_FIELD])


def without_summary_wish(request: Request) -> tuple[Request, str | None]:
    """Return the request without the field that asks for a summary, and the client's instructions for the summary."""
    own = own_fields("messages", request.extra)
    wish = read_object(own.get(_FIELD))
    rest = {name: value for name, value in own.items() if name != _FIELD}
    return replace(request, extra=Extra("messages", rest)), read_text(wish.get("instructions"))


def is_compaction_block(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == "compaction" and part.dialect == "messages"


def compaction_block(packed: Packed) -> Opaque:
    """Return the block that contains a summary. Its `encrypted_content` shows that this vendor did not sign it."""
    sealed = pack_summary(packed)
    fields = {"type": "compaction", "content": packed.summary, "encrypted_content": sealed}
    return Opaque(dialect="messages", type="compaction", raw=Raw(dumps(fields)))


def unpack_block(block: Opaque) -> Packed | None:
    """Return what a compaction block contains; None if it is empty.

    Raises:
        RequestRefused: a gateway made the block, and its content was damaged since.
    """
    fields = read_object(block.raw)
    packed = read_text(fields.get("encrypted_content"))
    own = None if packed is None else unpack_summary(packed)
    return own or pack_native(block)


def pack_native(block: Opaque, *, is_inline: bool = False) -> Packed | None:
    """Return a block of the vendor with its summary; None if it is empty."""
    summary = read_text(read_object(block.raw).get("content")) or None
    if summary is None:
        return None
    return Packed(summary=summary, native=block.raw, dialect="messages", is_inline=is_inline)


def native_block(raw: Raw) -> Opaque:
    """Return the vendor's own compaction block."""
    return Opaque(dialect="messages", type="compaction", raw=raw)


def with_summary_wish(request: Request) -> Request:
    """Return the request of another dialect with the field that asks for a summary, in place of that dialect's own fields."""
    return replace(request, extra=Extra("messages", {_FIELD: Raw(b'{"type":"summarize"}')}))


def compaction_betas(own: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return the betas that the fields of a request need to be accepted."""
    wish = (COMPACTION_BETA,) if _FIELD in own else ()
    edit = (CONTEXT_BETA,) if EDITS_FIELD in own and is_compacting(own[EDITS_FIELD]) else ()
    return (*wish, *edit)
