"""What a request says about shortening its conversation: edits, and the field that asks for a summary.

`context_management` has edits that the vendor makes before the model reads the conversation:

    compact_20260112            summarises the conversation when it has many tokens
    clear_tool_uses_20250919    clears old results of tools
    clear_thinking_20251015     clears old thinking

A Messages upstream gets the field unchanged. For others the gateway clears (`gateway/context_edits.py`), and an upstream that
compacts by itself is asked to.

`compaction: {"type": "summarize"}` asks for a summary in place of an answer. The client later sends the answer's `compaction`
block back as the first block of an assistant message, in place of what it summarises. `gateway/compaction.py` makes a summary
where another upstream answers.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps
from dragoman.core.fields import (
    Fields,
    is_present,
    own_fields,
    read_bool,
    read_int,
    read_list,
    read_object,
    read_objects,
    read_text,
    read_texts,
)
from dragoman.core.summaries import Packed, pack_summary, unpack_summary
from dragoman.dialects.codec import Target
from dragoman.dialects.messages.wire import COMPACTION_BETA, CONTEXT_BETA
from dragoman.model.events import Finished
from dragoman.model.parts import Extra, Opaque, Part
from dragoman.model.request import Request

EDITS_FIELD = "context_management"

_COMPACT = "compact_20260112"
_TOOL_USES = "clear_tool_uses_20250919"
_THINKING = "clear_thinking_20251015"

# The vendor's defaults, and the least tokens at which it compacts.
_TRIGGER = 100_000
_KEPT_USES = 3
_KEPT_THINKING = 1
_COMPACT_TRIGGER = 150_000
_LEAST_COMPACT_TRIGGER = 50_000


class ClearToolUses(Struct, frozen=True, kw_only=True):
    """Clear old results when there are more than so many tokens or results.

    keep: how many of the newest stay. at_least: tokens; if fewer would be cleared, nothing is. exclude: tools whose results stay.
    inputs: also clear the inputs of the calls: of every tool, or of those named.
    """

    tokens: int | None = None
    uses: int | None = None
    keep: int = _KEPT_USES
    at_least: int = 0
    exclude: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False


class ClearThinking(Struct, frozen=True):
    """Clear thinking, except in the newest `keep` turns that have some."""

    keep: int


class Edits(Struct, frozen=True):
    """The edits of one request that the gateway can make. `rest`: the field without them; None if nothing is left."""

    tool_uses: ClearToolUses | None
    thinking: ClearThinking | None
    rest: Raw | None


def read_edits(request: Request) -> Edits | None:
    """Return the edits of a request; None if it has no such field. Edits that cannot be read stay in the rest."""
    value = own_fields("messages", request.extra).get(EDITS_FIELD)
    if value is None:
        return None
    entries = read_list(read_object(value).get("edits"))
    if entries is None:
        return Edits(None, None, value)
    tool_uses: ClearToolUses | None = None
    thinking: ClearThinking | None = None
    rest: list[Raw] = []
    for entry in entries:
        fields = read_object(entry)
        kind = read_text(fields.get("type"))
        if kind == _TOOL_USES and tool_uses is None:
            tool_uses = _tool_uses(fields)
        elif kind == _THINKING and thinking is None:
            thinking = _thinking(fields)
        else:
            rest.append(entry)
    return Edits(tool_uses, thinking, Raw(dumps({"edits": rest})) if rest else None)


def _tool_uses(fields: Fields) -> ClearToolUses:
    trigger = read_object(fields.get("trigger"))
    value = read_int(trigger.get("value"))
    is_uses = read_text(trigger.get("type")) == "tool_uses"
    tokens = None if is_uses else (_TRIGGER if value is None else value)
    keep = read_int(read_object(fields.get("keep")).get("value"))
    inputs = fields.get("clear_tool_inputs")
    named = None if inputs is None else read_list(inputs)
    return ClearToolUses(
        tokens=tokens,
        uses=value if is_uses else None,
        keep=_KEPT_USES if keep is None else max(0, keep),
        at_least=read_int(read_object(fields.get("clear_at_least")).get("value")) or 0,
        exclude=frozenset(read_texts(fields.get("exclude_tools"))),
        inputs=read_bool(inputs) or False if named is None else frozenset(read_texts(inputs)),
    )


def _thinking(fields: Fields) -> ClearThinking | None:
    """None if all thinking is kept, so that nothing is left to do."""
    if read_text(fields.get("keep")) == "all":
        return None
    keep = read_object(fields.get("keep"))
    if read_text(keep.get("type")) == "all":
        return None
    value = read_int(keep.get("value"))
    return ClearThinking(_KEPT_THINKING if value is None else max(0, value))


def with_edits(request: Request, rest: Raw | None) -> Request:
    """Return the request with only these edits left."""
    own = dict(own_fields("messages", request.extra))
    if rest is None:
        del own[EDITS_FIELD]
    else:
        own[EDITS_FIELD] = rest
    return replace(request, extra=Extra("messages", own))


def without_compact_edit(rest: Raw | None) -> Raw | None:
    """Return the edits without the one that compacts, for an upstream that is asked to compact in its own dialect."""
    entries = [] if rest is None else read_list(read_object(rest).get("edits")) or []
    kept = [each for each in entries if read_text(read_object(each).get("type")) != _COMPACT]
    return Raw(dumps({"edits": kept})) if kept else None


def report_edits(applied: Iterable[Mapping[str, object]]) -> Raw:
    """Return the value of the answer's field."""
    return Raw(dumps({"applied_edits": list(applied)}))


def cleared_tool_uses(uses: int, tokens: int) -> Mapping[str, object]:
    return {"type": _TOOL_USES, "cleared_tool_uses": uses, "cleared_input_tokens": tokens}


def cleared_thinking(turns: int, tokens: int) -> Mapping[str, object]:
    return {"type": _THINKING, "cleared_thinking_turns": turns, "cleared_input_tokens": tokens}


def read_compact_at(value: Raw) -> int | None:
    """Return the tokens at which the vendor should compact; None if it should not, or should pause or follow instructions."""
    for edit in read_objects(read_object(value).get("edits")):
        if read_text(edit.get("type")) != _COMPACT:
            continue
        if read_bool(edit.get("pause_after_compaction")) or read_text(edit.get("instructions")):
            return None
        trigger = read_int(read_object(edit.get("trigger")).get("value"))
        return _COMPACT_TRIGGER if trigger is None else trigger
    return None


def write_compact_edit(request: Request, target: Target) -> dict[str, Raw]:
    """Return the field that asks the vendor to compact, for a request of another dialect; empty if it does not ask for that."""
    if request.compact_at is None or not target.compacts:
        return {}
    value = max(request.compact_at, _LEAST_COMPACT_TRIGGER)
    edit = {"type": _COMPACT, "trigger": {"type": "input_tokens", "value": value}}
    return {EDITS_FIELD: Raw(dumps({"edits": [edit]}))}


# --- the field that asks for a summary, and the block with one -------------------------------------------------------

_SUMMARY_FIELD = "compaction"
COMPACTED = Finished(
    "pause", native="compaction", extra=Extra("messages", {"stop_reason": Raw(b'"compaction"')})
)
"""The end of an answer that is only a compaction."""


def asks_for_summary(request: Request) -> bool:
    """Whether the client asks for a summary in place of an answer."""
    extra = request.extra
    if extra is None or _SUMMARY_FIELD not in extra.fields or extra.dialect != "messages":
        return False
    return is_present(extra.fields[_SUMMARY_FIELD])


def without_summary_field(request: Request) -> tuple[Request, str | None]:
    """Return the request without the field that asks for a summary, and the client's instructions for the summary."""
    own = own_fields("messages", request.extra)
    value = read_object(own.get(_SUMMARY_FIELD))
    rest = {name: value for name, value in own.items() if name != _SUMMARY_FIELD}
    return replace(request, extra=Extra("messages", rest)), read_text(value.get("instructions"))


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


def with_summary_field(request: Request) -> Request:
    """Return the request of another dialect with the field that asks for a summary, in place of that dialect's own fields."""
    return replace(request, extra=Extra("messages", {_SUMMARY_FIELD: Raw(b'{"type":"summarize"}')}))


def compaction_betas(own: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return the betas that the fields of a request need to be accepted."""
    betas = (COMPACTION_BETA,) if _SUMMARY_FIELD in own else ()
    if EDITS_FIELD not in own:
        return betas
    edits = read_objects(read_object(own[EDITS_FIELD]).get("edits"))
    compacts = any(read_text(edit.get("type")) == _COMPACT for edit in edits)
    return (*betas, CONTEXT_BETA) if compacts else betas
