"""Items of a conversation as nearly all are, read by their type alone: messages of text, calls of functions, their outputs.

Whatever else an item says does not fit, and `history` reads it field by field. Where both can read it they say the same.
One type for all three, because a message may leave out what tells it from the others.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.core.results import unmark_error
from dragoman.dialects.responses.wire import PART_STATUS
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Turn

__all__ = ("PlainItem", "read_plain", "turn_of")


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: tuple[()] | None = None
    logprobs: tuple[()] | None = None


class PlainItem(Struct, gc=False, forbid_unknown_fields=True):
    """Unset is what an item does not have; null is something else where it has no meaning, and does not fit."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["assistant", "developer", "system", "user"] | UnsetType = UNSET
    content: str | list[_Text] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    namespace: str | UnsetType | None = UNSET
    id: str | None = None
    status: str | None = None


_decode = typed_decoder(PlainItem)


def read_plain(item: Raw) -> Turn | None:
    """The turn of an item; None if a closer look is needed."""
    try:
        return turn_of(_decode(item))
    except FAST_FAILURES:
        return None


def turn_of(item: PlainItem) -> Turn | None:
    """The same for one that has been read."""
    if item.type == "message":
        return _message(item)
    if item.role is not UNSET or item.content is not UNSET or not item.call_id:
        return None
    return _call(item) if item.type == "function_call" else _output(item)


def _message(item: PlainItem) -> Turn | None:
    content, role = item.content, item.role
    if (
        role is UNSET
        or content is UNSET
        or item.call_id is not UNSET
        or item.name is not UNSET
        or item.arguments is not UNSET
        or item.output is not UNSET
        or item.namespace is not UNSET
    ):
        return None
    return Turn(
        role=role,
        parts=(Text(text=content),)
        if isinstance(content, str)
        else tuple(Text(text=part.text) for part in content),
        item_id=item.id or None,
        status=item.status,
    )


def _call(item: PlainItem) -> Turn | None:
    call_id, name, source = item.call_id, item.name, item.arguments
    if call_id is UNSET or name is UNSET or source is UNSET or item.output is not UNSET:
        return None
    if not name:
        return None
    call = Call(
        call_id=call_id,
        name=name,
        input=source,
        namespace=item.namespace or None,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="assistant", parts=(call,), status=item.status)


def _output(item: PlainItem) -> Turn | None:
    call_id, output = item.call_id, item.output
    if (
        call_id is UNSET
        or output is UNSET
        or item.name is not UNSET
        or item.arguments is not UNSET
        or item.namespace is not UNSET
    ):
        return None
    text, is_error = unmark_error(output)
    result = Result(
        call_id=call_id,
        content=(Text(text=text),),
        is_error=is_error,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="tool", parts=(result,), status=item.status)
