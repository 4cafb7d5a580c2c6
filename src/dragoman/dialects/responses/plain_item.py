"""An item of a conversation as nearly all are, read by its type alone: messages of text, calls of functions, their outputs.

Whatever else an item says does not fit, and `history` reads it field by field. Where both can read it they say the same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.core.results import unmark_error
from dragoman.dialects.responses.wire import PART_STATUS
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Turn

__all__ = ("read_plain",)


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: tuple[()] | None = None
    logprobs: tuple[()] | None = None


class _Message(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="message"):
    role: Literal["assistant", "developer", "system", "user"]
    content: str | list[_Text]
    id: str | None = None
    status: str | None = None


class _Call(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None
    namespace: str | None = None


class _Output(
    Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="function_call_output"
):
    call_id: str
    output: str
    id: str | None = None
    status: str | None = None


_decode_message = typed_decoder(
    _Message
)  # outside a union the tag may be missing, as it may on the wire
_decode_call = typed_decoder(_Call)
_decode_output = typed_decoder(_Output)


def read_plain(kind: str | None, item: Raw) -> Turn | None:
    """The turn of an item of this type; None if a closer look is needed."""
    try:
        match kind:
            case "function_call":
                return _call(_decode_call(item))
            case "function_call_output":
                return _output(_decode_output(item))
            case "message" | None:
                return _message(_decode_message(item))
            case _:
                return None
    except FAST_FAILURES:
        return None


def _message(item: _Message) -> Turn:
    content = item.content
    return Turn(
        role=item.role,
        parts=(Text(text=content),)
        if isinstance(content, str)
        else tuple(Text(text=part.text) for part in content),
        item_id=item.id or None,
        status=item.status,
    )


def _call(item: _Call) -> Turn | None:
    if not item.call_id or not item.name:
        return None
    call = Call(
        call_id=item.call_id,
        name=item.name,
        input=item.arguments,
        namespace=item.namespace or None,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="assistant", parts=(call,), status=item.status)


def _output(item: _Output) -> Turn | None:
    if not item.call_id:
        return None
    text, is_error = unmark_error(item.output)
    result = Result(
        call_id=item.call_id,
        content=(Text(text=text),),
        is_error=is_error,
        status=PART_STATUS.get(item.status or "", "completed"),
        item_id=item.id or None,
    )
    return Turn(role="tool", parts=(result,), status=item.status)
